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

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.sparse import bsr_matrix, csr_matrix

from ebfed.regression.crossed_fitting import CrossedFit, CrossedProblem, regressed
from ebfed.regression.numerics.crossed_model import CrossedSystem
from ebfed.regression.numerics.crossed_patterns import MOST_DENSE
from ebfed.regression.numerics.crossed_sums import CrossedDesign

__all__ = ["changes_of_crossed"]

# Share of the largest curvature that a coefficient must have.
LEAST = 1e-10


def changes_of_crossed(
    fit: CrossedFit, problem: CrossedProblem, factor: int
) -> NDArray[np.float64]:
    """Changes of the coefficients at the variances of the fit, without each level of a factor.

    Parameters
    ----------
    fit : CrossedFit
    problem : CrossedProblem
        The rows of the fit.
    factor : int

    Returns
    -------
    ndarray of shape (n_levels, p)
    """
    rows, codes, design = problem.responses, problem.codes, problem.design
    names = [problem.terms[j] for j in fit.fixed_columns]
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
