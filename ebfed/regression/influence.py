"""Influence of groups on the coefficients of a regression."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ebfed.inference.influence import changes_without, cooks_distances
from ebfed.regression.inferring import check_rows_of_all, mixed_fit, names_of_mean
from ebfed.tables.dispersed import Dispersed
from ebfed.tables.frames import Style, frame
from ebfed.tables.levels import parents_of

__all__ = ["frame_of_changes", "influence_of_generalized", "influence_of_linear"]


def influence_of_linear(self: Any, level: str | None = None, *, refit: bool = False) -> Any:
    """Return how much the mean depends on each group, by leaving it out.

    Cook's distance of a group is ``d' S^-1 d / p``, d being the change of the p coefficients of the
    mean, and S their sampling covariance in the whole fit.

    Parameters
    ----------
    level : str, optional
        Name of the level of the groups; the lowest if None.
    refit : bool
        Whether the model is fitted again without each group, variances too, as in R's
        ``influence(fit, "group")``. If not, the variances are those of the whole fit, and the
        change of the mean is exact given these: it is a product of sums, without any fit. Where a
        group has much of the variance between groups, the two differ. lme4's
        ``cooks.distance(influence(fit, "group"))`` is the refitted one times ``(m - p) / m``, m
        being the number of groups.

    Returns
    -------
    DataFrame
        Label of the group, ``n``, ``cooksd``, and ``dfbeta.x`` for each coefficient x: the
        coefficient less that without the group. NaN where the other groups do not identify it.

    Raises
    ------
    ValueError
        If the rows of the fit are with the clients; it has no likelihood, or no noise; or there is
        no such level.

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
    model = mixed_fit(self)
    place = _place(self, level)
    owners, ids, n = _groups(self, place)
    if not refit:
        chain = np.arange(len(owners))  # groups of the model are in another order
        for above in model.owners[:place:-1]:
            chain = above[chain]
        order = np.zeros(len(ids), np.int64)
        order[owners] = chain
        changes = changes_without(model, place)[order]
    else:
        changes = _refitted(self, owners, len(ids))
    return _frame(self, changes, self._result["mean_covariance"], ids, n, place)


def influence_of_generalized(self: Any, level: str | None = None) -> Any:
    """Return how much the mean depends on each group, by fitting again without it.

    Cook's distance of a group is ``d' S^-1 d / p``, d being the change of the p coefficients of the
    mean, and S their sampling covariance in the whole fit. Variances and shapes are fitted again
    too. This is one fit for each group.

    Parameters
    ----------
    level : str, optional
        Name of the level of the groups; the lowest if None.

    Returns
    -------
    DataFrame
        As of `LinearEB.influence`; NaN where the other groups cannot be fitted.
    """
    check_is_fitted(self, "clients_")
    check_rows_of_all(self, "leaving groups out")
    place = _place(self, level)
    owners, ids, n = _groups(self, place)
    changes = _refitted(self, owners, len(ids))
    return _frame(self, changes, self._result["mean_covariance"], ids, n, place)


def _place(fit: Any, level: str | None) -> int:
    """Place of a level, from the top."""
    names = list(fit._level_names or (fit._style_.group,))
    if level is None:
        return len(names) - 1
    if level not in names:
        raise ValueError(f"level must be one of {', '.join(map(repr, names))}; got {level!r}.")
    return names.index(level)


def _groups(fit: Any, place: int) -> tuple[NDArray, NDArray, NDArray]:
    """Place of the group of a level of each client, and labels and numbers of rows of these."""
    ids, owners = fit.clients_.ids, np.arange(len(fit.clients_))
    for _ in range(len(fit._level_names or ("",)) - 1 - place):
        ids, above = parents_of(ids)
        owners = above[owners]
    return owners, ids, np.bincount(owners, fit.clients_.n, len(ids)).astype(np.int64)


def _refitted(fit: Any, owners: NDArray, m: int) -> NDArray[np.float64]:
    """Changes of the mean by fits without each group; NaN where there is no fit."""
    changes = np.full((m, len(fit._result["mean"])), np.nan)
    for j in range(m):
        rest = fit.clients_.take(np.flatnonzero(owners != j))
        rest = rest.occupied() if isinstance(rest, Dispersed) else rest
        try:
            with warnings.catch_warnings():  # of small parts of the rows
                warnings.simplefilter("ignore")
                other = copy(fit)._fit(rest, {})
        except ValueError:
            continue
        changes[j] = fit._result["mean"] - other._result["mean"]
    return changes


def _frame(
    fit: Any, changes: NDArray, covariance: NDArray, ids: NDArray, n: NDArray, place: int
) -> Any:
    style = fit._style_
    if fit._level_names and place < len(fit._level_names) - 1:
        own = style.above[place]
        style = type(style)(style.backend, own.group, above=style.above[:place])
    own = fit._of_mean
    given = changes[:, own], covariance[np.ix_(own, own)], names_of_mean(fit)
    return frame_of_changes(*given, ids, n, style)


def frame_of_changes(
    changes: NDArray,
    covariance: NDArray,
    terms: Sequence[str],
    ids: NDArray,
    n: NDArray,
    style: Style,
) -> Any:
    """Return Cook's distances and changes of coefficients, a row for each group.

    Parameters
    ----------
    changes : ndarray of shape (m, p)
        Coefficients less those without the group.
    covariance : ndarray of shape (p, p)
        Sampling covariance of the coefficients.
    terms : sequence of str
        Their names.
    ids, n : ndarray of shape (m,)
        Labels of the groups, and numbers of rows.
    style : Style

    Returns
    -------
    DataFrame
    """
    columns = {"n": n, "cooksd": cooks_distances(changes, covariance)}
    columns |= {f"dfbeta.{term}": changes[:, j] for j, term in enumerate(terms)}
    style = style.avoiding(columns)
    return frame({style.group: ids} | columns, style)
