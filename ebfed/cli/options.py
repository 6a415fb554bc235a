"""Options that several commands have."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

__all__ = ["Json", "ModelOption", "RowKind"]


class RowKind(StrEnum):
    """What a row is: a number around its group's mean, or 0/1 with its group's rate."""

    gaussian = "gaussian"
    bernoulli = "bernoulli"


ModelOption = Annotated[
    RowKind, typer.Option(help="gaussian: values around a mean; bernoulli: 0 or 1 with a rate.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON only.")]
