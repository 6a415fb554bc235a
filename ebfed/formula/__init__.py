"""Models written as formulas: ``y ~ x + C(kind) + (1 + x | county)``."""

from typing import TYPE_CHECKING

from ebfed.lazily import at_first_use

if TYPE_CHECKING:
    from ebfed.formula.fit import FormulaFit, from_formula

__all__ = ["FormulaFit", "from_formula"]

__getattr__ = at_first_use(__name__)
