"""Models written as formulas: ``y ~ x + C(kind) + (1 + x | county)``."""

from ebfed.formula.entry import from_formula
from ebfed.formula.fit import FormulaFit

__all__ = ["FormulaFit", "from_formula"]
