"""Fits side by side, what privacy costs, how often intervals hold, and the county elections."""

from typing import TYPE_CHECKING

from ebfed.lazily import at_first_use

if TYPE_CHECKING:
    from ebfed.evaluation import county as county
    from ebfed.evaluation import coverage as coverage
    from ebfed.evaluation.comparison import anova as anova
    from ebfed.evaluation.comparison import compare as compare
    from ebfed.evaluation.price import price_of_privacy as price_of_privacy

__getattr__ = at_first_use(__name__)
