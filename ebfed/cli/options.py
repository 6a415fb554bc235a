"""Options that several commands have, and errors of their users."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated

import typer

__all__ = [
    "Decimal",
    "Encoding",
    "FamilyName",
    "FamilyOption",
    "FederatedFamily",
    "FederatedOption",
    "Json",
    "NaValues",
    "Separator",
    "errors_of_the_user",
]


class FamilyName(StrEnum):
    """What a row is; the names are those of formulas."""

    gaussian = "gaussian"
    binomial = "binomial"
    poisson = "poisson"
    negative_binomial = "negative_binomial"
    gamma = "gamma"
    ordinal = "ordinal"
    categorical = "categorical"
    duration = "duration"
    variance = "variance"


class FederatedFamily(StrEnum):
    """What a row is, in a model that is written for nodes."""

    gaussian = "gaussian"
    binomial = "binomial"
    poisson = "poisson"


FIRST_THREE = (
    "gaussian: values around a mean; binomial: 0 or 1 with a rate; poisson: counts of events with "
    "a rate"
)
FamilyOption = Annotated[
    FamilyName,
    typer.Option(
        help=FIRST_THREE + "; negative_binomial: counts that scatter more; gamma: positive "
        "values; ordinal: ordered classes 1, 2, …; categorical: labels "
        "with shares; duration: times until an event; variance: values whose variance is estimated."
    ),
]
FederatedOption = Annotated[
    FederatedFamily,
    typer.Option(help=FIRST_THREE + ". Others: a Python file as --model."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON only.")]
Separator = Annotated[
    str,
    typer.Option("--sep", metavar="CHARACTER", help="Between the columns of a .csv; ';' or tab."),
]
Encoding = Annotated[
    str, typer.Option(metavar="NAME", help="Encoding of a .csv, such as latin-1 or cp1252.")
]
NaValues = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TEXT",
        help="A cell of a .csv that is missing, in every column, such as -99; may be repeated. If "
        "none is given: NA, N/A, NaN, nan, NULL, null and None among numbers.",
    ),
]
Decimal = Annotated[
    str, typer.Option(metavar="CHARACTER", help="Decimal sign in a .csv: a point or a comma.")
]


@contextmanager
def errors_of_the_user(*others: type[Exception]) -> Iterator[None]:
    """Print errors of files, arguments and missing packages in one line, and exit with code 2.

    Parameters
    ----------
    *others : exception types
        Errors of the user beside OSError, ValueError and ImportError.
    """
    kinds: tuple[type[Exception], ...] = (OSError, ValueError, ImportError, *others)
    try:
        yield
    except (typer.Exit, BrokenPipeError):  # a RuntimeError; and a reader, as head, that has enough
        raise
    except kinds as error:
        typer.echo(f"ebfed: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(2) from None
