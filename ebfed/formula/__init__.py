"""Models written as formulas: ``y ~ x + C(kind) + (1 + x | county)``."""

from ebfed.formula.fit import FormulaFit, from_formula
from ebfed.formula.grammar import Model, parse

__all__ = ["FormulaFit", "Model", "from_formula", "parse"]
