"""Families of generalized linear models by their names."""

from __future__ import annotations

from ebfed.regression.families.base import ResponseFamily
from ebfed.regression.families.binomial import Binomial
from ebfed.regression.families.gamma import Gamma
from ebfed.regression.families.negative_binomial import NegativeBinomial
from ebfed.regression.families.ordinal import Ordinal
from ebfed.regression.families.poisson import Poisson

__all__ = ["FAMILIES", "family_named"]

FAMILIES: dict[str, ResponseFamily] = {
    each.name: each for each in (Binomial(), Gamma(), NegativeBinomial(), Ordinal(), Poisson())
}


def family_named(name: object) -> ResponseFamily:
    """Return the family of this name.

    Raises
    ------
    ValueError
        If there is none.

    Examples
    --------
    >>> family_named("poisson").link
    'log'
    """
    if not isinstance(name, str) or name not in FAMILIES:
        raise ValueError(f"family must be one of {tuple(FAMILIES)}; got {name!r}.")
    return FAMILIES[name]
