"""Influence of groups on the coefficients of a regression."""

from __future__ import annotations

import warnings
from copy import copy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ebfed.inference.influence import changes_without, cooks_distances
from ebfed.regression.inferring import check_rows_of_all, mixed_fit, names_of_mean
from ebfed.tables.dispersed import Dispersed
from ebfed.tables.frames import Style, frame
from ebfed.tables.levels import parents_of

__all__ = ["LeftOut", "changes_of_linear", "fit_without", "groups_of_level", "influence_of_groups"]


def influence_of_groups(self: Any, level: str | None = None, *, refit: bool = False) -> Any:
    """Return how much the mean depends on each group, by leaving it out.

    Cook's distance of a group is ``d' S^-1 d / p``, d being the change of the p coefficients of the
    mean, and S their sampling covariance in the whole fit.

    Parameters
    ----------
    level : str, optional
        Name of the level of the groups, or of the factor; the lowest level, or the first factor, if
        None.
    refit : bool
        Whether the model is fitted again without each group, variances too, as in R's
        ``influence(fit, "group")``. If not, the variances are those of the whole fit, and the
        change of the mean is exact given these: it is a product of sums, without any fit. Where a
        group has much of the variance between groups, the two differ. lme4's
        ``cooks.distance(influence(fit, "group"))`` is the refitted one times ``(m - p) / m``, m
        being the number of groups. Rows that are not Gaussian are always fitted again, shapes too.

    Returns
    -------
    DataFrame
        Label of the group, ``n``, ``cooksd``, and ``dfbeta.x`` for each coefficient x: the
        coefficient less that without the group. NaN where the other groups do not identify it, or
        cannot be fitted.

    Raises
    ------
    ValueError
        If the rows of the fit are with the clients, or a file had none; it has no likelihood, or no
        noise; or there is no such level.

    References
    ----------
    Cook (1977), Detection of influential observation in linear regression, Technometrics 19;
    Demidenko, Stukel (2005), Influence analysis for linear mixed-effects models, Stat. Med. 24.

    Examples
    --------
    >>> import ebfed as eb
    >>> rng = np.random.default_rng(0)
    >>> groups, x = np.repeat(np.arange(12), 5), rng.normal(size=60)
    >>> y = x + rng.normal(size=12)[groups] + rng.normal(size=60) + 9 * (groups == 3)
    >>> fit = eb.LinearEB(varying=["intercept"]).fit(x[:, None], y, groups=groups)
    >>> found = fit.influence()
    >>> int(found["group"][found["cooksd"].argmax()])
    3
    """
    check_is_fitted(self, "mean_")
    groups, own = self._groups_of(level), self._of_mean
    changes = None if refit else self._changes_without(groups)
    if changes is None:
        changes = _refitted(self, groups)
    mean_covariance = _of_all(self, "mean_covariance")
    cooks = cooks_distances(changes[:, own], mean_covariance[np.ix_(own, own)])
    columns = {"n": groups.n, "cooksd": cooks}
    pairs = zip(own, names_of_mean(self), strict=True)
    columns |= {f"dfbeta.{term}": changes[:, j] for j, term in pairs}
    style = groups.style.avoiding(columns)
    return frame({style.group: groups.ids} | columns, style)


class LeftOut(NamedTuple):
    """Groups that are left out, one after the other.

    Attributes
    ----------
    place : int
        Place of their level, from the top, or of the factor.
    owners : int64 ndarray
        Group of each client, or row, of the fit.
    ids, n : ndarray of shape (m,)
        Labels, and numbers of rows.
    style : Style
    """

    place: int
    owners: NDArray[np.int64]
    ids: NDArray
    n: NDArray[np.int64]
    style: Style


def _of_all(fit: Any, name: str) -> NDArray[np.float64]:
    """Mean of all coefficients or its covariance, those of products with covariates among them."""
    return fit._result[name] if hasattr(fit, "_result") else getattr(fit, f"{name}_")


def _refitted(fit: Any, groups: LeftOut) -> NDArray[np.float64]:
    """Changes of the mean by fits without each group; NaN where there is no fit."""
    mean, known = _of_all(fit, "mean"), fit._estimable.coefficients
    changes = np.full((len(groups.ids), len(mean)), np.nan)
    for j in range(len(changes)):
        try:
            with warnings.catch_warnings():  # of small parts of the rows
                warnings.simplefilter("ignore")
                other = fit._without(groups.owners == j)
        except ValueError:
            continue
        there = other._estimable.coefficients | ~known
        changes[j] = np.where(there, mean - _of_all(other, "mean"), np.nan)
    return changes


def groups_of_level(self: Any, level: str | None) -> LeftOut:
    """Return the groups of a level of a fit, and the group of each client."""
    check_rows_of_all(self, "leaving groups out")
    names = list(self._level_names or (self._style_.group,))
    if level not in (None, *names):
        raise ValueError(f"level must be one of {', '.join(map(repr, names))}; got {level!r}.")
    place = len(names) - 1 if level is None else names.index(level)
    ids, owners = self.clients_.ids, np.arange(len(self.clients_))
    for _ in range(len(names) - 1 - place):
        ids, above = parents_of(ids)
        owners = above[owners]
    n, style = np.bincount(owners, self.clients_.totals(), len(ids)).astype(np.int64), self._style_
    if place < len(names) - 1:
        style = type(style)(style.backend, style.above[place].group, above=style.above[:place])
    return LeftOut(place, owners, ids, n, style)


def fit_without(self: Any, out: NDArray[np.bool_]) -> Any:
    """Fit again without some clients."""
    rest = self.clients_.take(np.flatnonzero(~out))
    return copy(self)._fit(rest.occupied() if isinstance(rest, Dispersed) else rest, {})


def changes_of_linear(self: Any, groups: LeftOut) -> NDArray[np.float64]:
    """Changes of the mean at the variances of the fit, by sums over groups."""
    model = mixed_fit(self)
    chain = np.arange(len(groups.owners))  # groups of the model are in another order
    for above in model.owners[: groups.place : -1]:
        chain = above[chain]
    order = np.zeros(len(groups.ids), np.int64)
    order[groups.owners] = chain
    return changes_without(model, groups.place)[order]
