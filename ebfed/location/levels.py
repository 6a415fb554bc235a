"""Groups of parents in location models: which estimators take them, and their population."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ebfed.priors import Prior
from ebfed.tables.levels import names_of_parents

__all__ = ["check_levels", "population_within"]


def population_within(population: Prior, stated: Sequence[str]) -> Prior:
    """Return the population of groups, of parents if these are among what is stated.

    Raises
    ------
    TypeError
        If there is no such population.
    ValueError
        If it is fitted, and to groups of other parents.

    Examples
    --------
    >>> from ebfed.priors import Normal
    >>> population_within(Normal(), ["uranium"])
    Normal()
    >>> population_within(Normal(), ["(1 | state)"])
    NestedNormal(names=['state'])
    """
    names = names_of_parents(stated)
    if population.is_fitted and names != list(getattr(population, "names", ())):
        raise ValueError(
            f"prior={population!r} was fitted, and is used as it is: it is no population of groups "
            f"of {', '.join(names) or 'no parent'}. One to be fitted is prior.unfitted()."
        )
    if not names or population.is_fitted:
        return population
    from ebfed.priors.nested import within

    return within(population, names)


def check_levels(rounds: Any, stated: Sequence[str]) -> None:
    """Refuse levels that the prior or the channels cannot take, before anything is sent.

    Raises
    ------
    TypeError, ValueError
    """
    if not names_of_parents(stated):
        return
    if not all(channel.keeps_means for channel in rounds.channels.values()):
        raise ValueError(
            "levels of groups need messages that keep the model linear: channels.Exact or "
            f"channels.AddNoise; got {rounds.estimator.channel!r}."
        )
    population_within(rounds.prior, stated)
    rounds.check_covariates()
