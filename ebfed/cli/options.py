"""Options that several commands have."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

__all__ = ["Decimal", "Encoding", "FamilyName", "FamilyOption", "Json", "Separator"]


class FamilyName(StrEnum):
    """What a row is."""

    gaussian = "gaussian"
    binomial = "binomial"
    poisson = "poisson"


FamilyOption = Annotated[
    FamilyName,
    typer.Option(
        help="gaussian: values around a mean; binomial: 0 or 1 with a rate; poisson: counts of "
        "events with a rate."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON only.")]
Separator = Annotated[
    str,
    typer.Option("--sep", metavar="CHARACTER", help="Between the columns of a .csv; ';' or tab."),
]
Encoding = Annotated[
    str, typer.Option(metavar="NAME", help="Encoding of a .csv, such as latin-1 or cp1252.")
]
Decimal = Annotated[
    str, typer.Option(metavar="CHARACTER", help="Decimal sign in a .csv: a point or a comma.")
]
