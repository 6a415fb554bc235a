"""Influence of the levels of crossed factors on the coefficients: each level is left out, exactly.

With the covariance ``noise V`` of rows and ``C = [X, y]``, the coefficients follow from
``N = C' V^-1 C``. In the equations of the effects, ``M = Z'WZ + G^-1`` with G their covariance over
the noise,

    N = C'WC - C'WZ M^-1 Z'WC.

The rows of a level reach a few effects alone, E. Without them, with their products ``S = E'Z'WZE``
and ``g = E'Z'WC``, the inverse of M is, with K = M^-1 (which is finite where G is singular),

    K + K E S (I - E'KE S)^-1 E' K,

so that a level costs a solution with as many unknowns as there are effects in its rows.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.sparse import bsr_matrix, csr_matrix
from sklearn.base import clone

from ebfed.regression.crossed_fitting import check_noise, regressed
from ebfed.regression.families import Responses
from ebfed.regression.influence import frame_of_changes
from ebfed.regression.numerics.crossed_model import CrossedSystem
from ebfed.regression.numerics.crossed_patterns import MOST_DENSE
from ebfed.regression.numerics.crossed_sums import CrossedDesign
from ebfed.regression.reading import CrossedRows

__all__ = ["influence_of_crossed"]

# Share of the largest curvature that a coefficient must have.
LEAST = 1e-10


def influence_of_crossed(
    self: Any,
    X: Any,
    y: Any = None,
    *,
    groups: Any = None,
    sample_weight: Any = None,
    offset: Any = None,
    trials: Any = None,
    level: str | None = None,
    refit: bool = False,
) -> Any:
    """Return how much the coefficients depend on each level of a factor, by leaving out its rows.

    Cook's distance of a level is ``d' S^-1 d / p``, d being the change of the p coefficients, and S
    their sampling covariance in the whole fit.

    Parameters
    ----------
    X, y, groups, sample_weight, offset, trials : as in `fit`
        The rows of the fit. (A fit by formula has them.)
    level : str, optional
        Name of the factor; the first if None.
    refit : bool
        Whether the model is fitted again without each level, variances too, as in R's
        ``influence(fit, "d")``. If not, the variances are those of the whole fit, and the change of
        the coefficients is exact given these. Rows that are not Gaussian are always fitted again.

    Returns
    -------
    DataFrame
        Label of the level, ``n``, ``cooksd``, and ``dfbeta.x`` for each coefficient x: the
        coefficient less that without the level. NaN where the other rows do not identify it.

    Raises
    ------
    ValueError
        If these are not the rows of the fit, there is no such factor, or effects explain all rows.

    References
    ----------
    Cook (1977), Detection of influential observation in linear regression, Technometrics 19;
    Demidenko, Stukel (2005), Influence analysis for linear mixed-effects models, Stat. Med. 24.

    Examples
    --------
    >>> import ebfed as eb
    >>> import pandas as pd
    >>> rng = np.random.default_rng(0)
    >>> rows = pd.DataFrame(rng.integers(0, (20, 8), (200, 2)), columns=["s", "d"])
    >>> rows["y"] = rng.normal(size=20)[rows["s"]] + rng.normal(size=200) + 5 * (rows["d"] == 3)
    >>> found = eb.from_formula("y ~ 1 + (1 | s) + (1 | d)", rows).influence("d")
    >>> int(found["d"][found["cooksd"].argmax()])
    3
    """
    design, _, codes = self._placed(X, groups, offset)
    level = self._names[0] if level is None else level
    if level not in self._names:
        known = ", ".join(map(repr, self._names))
        raise ValueError(f"level must be one of {known}; got {level!r}.")
    given = self._named_in(X) if groups is None else groups
    options = {"sample_weight": sample_weight, "offset": offset, "trials": trials}
    rows = CrossedRows.of(X, y, given, options, self._set_aside(X))
    found = rows.responses(self._family)
    keep = found.weight > 0
    if (codes < 0).any() or keep.sum() != self._n[0].sum():
        raise ValueError("influence needs the rows of the fit, all of them; got others.")
    number = self._names.index(level)
    place, ids, n = self._order.index(number), self.levels_[level], self._n[number]
    if refit or self._family is not None:
        changes = _refitted(self, rows, codes[:, place], len(ids))
    else:
        check_noise(self, "influences")
        own = [codes[keep, k] for k in range(codes.shape[1])]
        changes = _changes(self._fit, self.terms_, design[keep], found.take(keep), own, place)
        changes = changes @ self._all_columns.T
    style = self._styles[number]
    return frame_of_changes(changes, self.mean_covariance_, self.terms_, ids, n, style)


def _refitted(fit: Any, rows: CrossedRows, codes: NDArray, m: int) -> NDArray[np.float64]:
    """Changes of the coefficients by fits without each level; NaN where there is no fit."""
    import pandas as pd

    values = np.asarray(rows.X)
    names = [term for term in fit.terms_ if term != "intercept"]
    X = pd.DataFrame(values, columns=names) if values.shape[1] else values
    labels = {style.group: own for style, own in zip(rows.styles, rows.levels, strict=True)}
    groups, y = pd.DataFrame(labels), np.asarray(rows.y)
    changes = np.full((m, len(fit.mean_)), np.nan)
    for j in range(m):
        rest = np.flatnonzero(codes != j)
        part = X.iloc[rest] if isinstance(X, pd.DataFrame) else X[rest]
        given = {name: own[rest] for name, own in rows.beside.items() if len(own) == len(codes)}
        try:
            with warnings.catch_warnings():  # of small parts of the rows
                warnings.simplefilter("ignore")
                other = clone(fit).fit(part, y[rest], groups=groups.iloc[rest], **given)
        except ValueError:
            continue
        known = other._estimable.coefficients | ~fit._estimable.coefficients
        changes[j] = np.where(known, fit.mean_ - other.mean_, np.nan)
    return changes


def _changes(
    fit: Any,
    terms: Sequence[str],
    design: NDArray,
    rows: Responses,
    codes: Sequence[NDArray],
    factor: int,
) -> NDArray[np.float64]:
    """Changes of the coefficients at the variances of the fit."""
    names = [terms[j] for j in fit.fixed_columns]
    triangle, _, columns = regressed(design[:, fit.fixed_columns], names, rows)
    m = int(fit.system.sums.sizes[factor])
    turned = CrossedDesign(codes, fit.system.sums.sizes, fit.bases(design))
    sums = turned.sums(rows.weight, columns)
    whole = _Whole(CrossedSystem(sums, fit.system.roots, fit.system.restricted))
    order = np.argsort(codes[factor], kind="stable")
    ends = np.searchsorted(codes[factor][order], np.arange(m + 1))
    least, p = whole.coefficients(whole.products), columns.shape[1] - 1
    changes = np.full((m, p), np.nan)
    for j, (i, k) in enumerate(itertools.pairwise(ends)):
        own = order[i:k]
        first, others = turned.taken(own).matrices
        without = whole.without(first, others, rows.weight[own], columns[own])
        changes[j] = least - whole.coefficients(without)
    return changes @ solve_triangular(triangle, np.eye(p), lower=False).T


class _Whole:
    """The equations of all rows, and N.

    Parameters
    ----------
    system : CrossedSystem
    """

    def __init__(self, system: CrossedSystem):
        sums = system.sums
        if sums.q > MOST_DENSE:
            raise ValueError(
                f"influence() is of up to {MOST_DENSE:,} coefficients of levels of all factors but "
                f"the largest; this fit has {sums.q:,}."
            )
        self.inner = system.whole_inverse()  # K of the other factors
        n = len(system.share)
        of_levels = system.share, np.arange(n), np.arange(n + 1)
        self.share = csr_matrix(bsr_matrix(of_levels))  # and of the first, if these had none
        self.along = csr_matrix(self.share @ sums.table.matrix)
        ahead, below = sums.outer, sums.below
        self.others = self.inner @ (below - self.along.T @ ahead)  # K Z'WC
        self.first = self.share @ ahead - self.along @ self.others
        explained = ahead.T @ self.first + below.T @ self.others
        self.products = sums.whole - (explained + explained.T) / 2

    def without(
        self, first: csr_matrix, others: csr_matrix, weight: NDArray, columns: NDArray
    ) -> NDArray[np.float64]:
        """N without some rows.

        Parameters
        ----------
        first, others : sparse matrix
            Their columns of effects, of the first factor and of all others.
        weight : ndarray of shape (n,)
        columns : ndarray of shape (n, p + 1)
        """
        J1, J2 = np.unique(first.indices), np.unique(others.indices)
        along = self.along[J1]
        moved = along @ self.inner
        K = np.empty((len(J1) + len(J2),) * 2)
        K[: len(J1), : len(J1)] = self.share[J1][:, J1].toarray() + moved @ along.T
        K[: len(J1), len(J1) :] = -moved[:, J2]
        K[len(J1) :, : len(J1)] = -moved[:, J2].T
        K[len(J1) :, len(J1) :] = self.inner[np.ix_(J2, J2)]
        Z = np.hstack([first[:, J1].toarray(), others[:, J2].toarray()])
        weighed = weight[:, None] * Z
        S, g = Z.T @ weighed, weighed.T @ columns
        h = np.vstack([self.first[J1], self.others[J2]])
        v = h - K @ g
        more = h.T @ g + g.T @ v - v.T @ (S @ np.linalg.solve(np.eye(len(K)) - K @ S, v))
        found = self.products - columns.T @ (weight[:, None] * columns) + more
        return (found + found.T) / 2

    @staticmethod
    def coefficients(products: NDArray) -> NDArray[np.float64]:
        """Coefficients that follow from N; NaN where it does not identify them."""
        square, p = products[:-1, :-1], len(products) - 1
        values = np.linalg.eigvalsh(square) if p else np.ones(1)
        if not values[0] > LEAST * values[-1]:
            return np.full(p, np.nan)
        return np.linalg.solve(square, products[:-1, -1])
