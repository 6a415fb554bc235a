"""Formulas as columns of numbers: a text is parsed into terms, and a table gives their columns."""

from typing import TYPE_CHECKING

from ebfed.lazily import at_first_use

if TYPE_CHECKING:
    from ebfed.designs.design import Design as Design

__getattr__ = at_first_use(__name__)
