"""Models written as formulas: ``y ~ x + C(kind) + (1 + x | county)``."""

from ebfed.formula.fit import FormulaFit, from_formula
from ebfed.formula.grammar import FormulaTerms, parse

__all__ = ["FormulaFit", "FormulaTerms", "from_formula", "parse"]
