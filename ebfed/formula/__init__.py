"""Models written as formulas: ``y ~ x + C(kind) + (1 + x | county)``."""

from ebfed.formula.fit import FormulaFit, from_formula

__all__ = ["FormulaFit", "from_formula"]
