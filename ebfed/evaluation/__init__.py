"""Fits side by side, what privacy costs, how often intervals hold, and the county elections."""

from typing import TYPE_CHECKING

from ebfed.lazily import at_first_use

if TYPE_CHECKING:
    from ebfed.evaluation import county, coverage
    from ebfed.evaluation.comparison import compare
    from ebfed.evaluation.likelihood_ratios import anova
    from ebfed.evaluation.price import price_of_privacy

__all__ = ["anova", "compare", "county", "coverage", "price_of_privacy"]

__getattr__ = at_first_use(__name__)
