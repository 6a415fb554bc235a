"""Fits side by side, and what privacy costs."""

from ebfed.evaluation.comparison import compare
from ebfed.evaluation.price import price_of_privacy

__all__ = ["compare", "price_of_privacy"]
