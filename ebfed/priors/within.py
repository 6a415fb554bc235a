"""Populations of groups of parents, such as counties of states, for populations of groups."""

from __future__ import annotations

from collections.abc import Sequence

from ebfed.priors.base import Prior
from ebfed.priors.beta import Beta
from ebfed.priors.gamma import Gamma
from ebfed.priors.nested_conjugate import NestedBeta, NestedConjugate, NestedGamma
from ebfed.priors.nested_normal import NestedNormal
from ebfed.priors.normal import Normal

__all__ = ["within"]


def within(prior: Prior, names: Sequence[str]) -> Prior:
    """Return the population of groups of parents that has the form of a population of groups.

    Parameters
    ----------
    prior : Prior
    names : sequence of str
        Names of the levels above the groups, from the outermost.

    Raises
    ------
    TypeError
        If populations of this form have no parents.
    ValueError
        If it has arguments that a population of parents has not.

    Examples
    --------
    >>> within(Normal(), ["state"])
    NestedNormal(names=['state'])
    """
    if isinstance(prior, NestedNormal | NestedConjugate):
        return prior.unfitted().set_params(names=list(names))
    if isinstance(prior, Normal):
        if prior.mean is not None or prior.variance is not None or prior.covariance != "diag":
            raise ValueError(
                "levels of groups are for priors.Normal() whose mean and variance are estimated, "
                f"each column with its own; got {prior!r}."
            )
        return NestedNormal(list(names), method=prior.method)  # type: ignore[arg-type]
    if isinstance(prior, Beta) and prior.alpha is None and prior.method == "ml":
        return NestedBeta(list(names))
    if isinstance(prior, Gamma) and prior.shape is None:
        return NestedGamma(list(names))
    if isinstance(prior, Beta | Gamma):
        raise ValueError(
            f"levels of groups are for priors.{type(prior).__name__}() fitted by maximum "
            f"likelihood; got {prior!r}."
        )
    raise TypeError(
        f"{prior!r} is one population for all groups; levels of groups are for "
        "priors.Normal ('normal'), priors.Beta ('beta') and priors.Gamma ('gamma')."
    )
