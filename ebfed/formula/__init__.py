"""Models written as formulas: ``y ~ x + C(kind) + (1 + x | county)``."""

from typing import TYPE_CHECKING

from ebfed.lazily import at_first_use

if TYPE_CHECKING:
    from ebfed.formula.fit import FormulaFit as FormulaFit
    from ebfed.formula.fit import from_formula as from_formula

__getattr__ = at_first_use(__name__)
