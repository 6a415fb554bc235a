"""Options that several commands have."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

__all__ = ["FamilyName", "FamilyOption", "Json"]


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
