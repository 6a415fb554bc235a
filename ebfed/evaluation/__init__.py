"""Fits side by side: criteria and risk, tests by likelihood ratio, and what privacy costs."""

from ebfed.evaluation.comparison import compare
from ebfed.evaluation.likelihood_ratios import anova
from ebfed.evaluation.price import price_of_privacy

__all__ = ["anova", "compare", "price_of_privacy"]
