"""Families of generalized linear models by their names and links."""

from __future__ import annotations

from ebfed.arguments import check_choice
from ebfed.regression.families.base import ResponseFamily
from ebfed.regression.families.binomial import Binomial
from ebfed.regression.families.complementary_log_log import ComplementaryLogLog
from ebfed.regression.families.gamma import Gamma
from ebfed.regression.families.negative_binomial import NegativeBinomial
from ebfed.regression.families.ordinal import Ordinal
from ebfed.regression.families.poisson import Poisson
from ebfed.regression.families.probit import Probit

__all__ = ["FAMILIES", "family_named"]

FAMILIES: dict[str, ResponseFamily] = {
    each.name: each for each in (Binomial(), Gamma(), NegativeBinomial(), Ordinal(), Poisson())
}
# Binomial rows, by their links.
BINOMIAL: dict[str, ResponseFamily] = {
    each.link: each for each in (Binomial(), Probit(), ComplementaryLogLog())
}


def family_named(name: object, link: object = None) -> ResponseFamily:
    """Return the family of this name, with this link; with its own if None.

    Raises
    ------
    ValueError
        If there is none.

    Examples
    --------
    >>> family_named("poisson").link, family_named("binomial", "probit").link
    ('log', 'probit')
    """
    check_choice("family", name, FAMILIES)
    family = FAMILIES[str(name)]
    links = BINOMIAL if name == "binomial" else {family.link: family}
    if link is None:
        return family
    if not isinstance(link, str) or link not in links:
        known = " or ".join(map(repr, links))
        raise ValueError(f"link of {name} rows must be None or {known}; got {link!r}.")
    return links[link]
