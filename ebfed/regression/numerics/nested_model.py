"""The linear mixed model of groups within groups, fitted to factors of factors.

Rows of group i of parent g are ``y_gi = X_gi beta + Z_gi u_i + Z'_gi v_g + e_gi``; columns of both
Z may be among those of X. Divided by the Cholesky factor of ``V_i = I + Z_i T Z_i'``, the rows of
one parent's groups are stacked, and compressed to a triangle: with u integrated out so, parents are
groups of a model with one level less. At the top, `Problem` does the rest. The log-determinants of
all levels add up.

Going down, let c be minus the coefficients that are known above a group, then 1 (so that its
residuals are ``[X y] c``), and J the covariance of the coefficients that is left, over sigma**2.
With W and Z~ a parent's whitened rows and effects, Z = [X y] S, those of its groups are

    c_g = E c,  J_g = E J E' + S (T - T Z~'Z~ T) S',    E = I - S T Z~'W;

at the top ``c = (-beta, 1)``, and J is ``H^-1`` for REML, zero for ML. The slope in the T of groups
i of g is

    sum_i Z~_i'Z~_i  -  B_i (J_g + dof / Q c_g c_g') B_i',    B_i = Z~_i'W_i.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ebfed import kernels
from ebfed.kernels.factors import BATCH
from ebfed.kernels.threads import one_thread
from ebfed.priors.identification import IdentificationWarning
from ebfed.regression.numerics.mixed_model import (
    BLOCK,
    CommonProblem,
    Covariance,
    Fit,
    Problem,
    Profile,
    column_products,
)
from ebfed.regression.numerics.noiseless import MOST_EFFECTS, Between

__all__ = ["fit_mixed_model"]

# Numbers of which products are computed by one thread in any case.
FEW = 8192
NO_LIMIT = (
    "Groups explain their rows all but without noise, and one parent has too many of them for the "
    "limit: the variances have too few digits, and are not right."
)


def fit_mixed_model(
    rows: NDArray,
    parents: Sequence[NDArray],
    n_rows: int,
    varying: Sequence[NDArray],
    *,
    covariance: Covariance = "diag",
    method: Literal["reml", "ml"] = "reml",
    intercept: bool = False,
    fixed: NDArray | None = None,
    sizes: Sequence[Sequence[int]] | None = None,
) -> Fit:
    """Minimise the criterion of a model of groups, of one level or of several.

    Parameters
    ----------
    rows : ndarray of shape (n_groups, r, p + 1)
        Factors of ``[X_i y_i]`` of the groups of the lowest level; see `Factors`.
    parents : sequence of int64 ndarrays
        From the second level: the place of each group's parent in the level above; see
        `ebfed.tables.labels.number_parents`. None of groups of one level.
    n_rows : int
        Number of rows N that they stand for.
    varying : sequence of int64 ndarrays
        Columns whose coefficients vary, of each level from the top; none of a level whose variance
        is not identified.
    covariance : {"spherical", "diag", "full"}
        Kind of T: a multiple of the identity, diagonal, or any.
    method : {"reml", "ml"}
    intercept : bool
        Whether the first column is all ones.
    fixed : int64 ndarray, optional
        Columns that have a coefficient in beta, which is zero for the others; all if None.
    sizes : sequence of sequence of int, optional
        Numbers of columns that vary of each term of each level, whose coefficients are independent
        of those of other terms: T has a block for each. One term if None.
    """
    given = covariance, method, intercept, sizes, fixed
    # to find the library takes longer than a small fit, for which it starts no threads
    with one_thread() if len(parents) or rows.size > FEW else nullcontext():
        if len(parents):
            return NestedProblem(rows, parents, n_rows, varying, *given).fit()
        [own] = varying
        kind = CommonProblem if covariance == "spherical" and len(own) else Problem
        return kind(rows, n_rows, own, *given).fit()


class NestedProblem(Problem):
    """The criterion of a model with several levels; arrays of levels are from the top."""

    def __init__(
        self,
        rows: NDArray,
        parents: Sequence[NDArray],
        n_rows: int,
        varying: Sequence[NDArray],
        covariance: Covariance,
        method: str,
        intercept: bool,
        terms: Sequence[Sequence[int]] | None = None,
        fixed: NDArray | None = None,
    ):
        n_top = int(parents[0].max()) + 1
        self.owners = [np.zeros(n_top, np.int64), *parents]  # at the top, the population
        terms = [[len(each)] for each in varying] if terms is None else terms
        columns = np.concatenate(varying).astype(np.int64)
        super().__init__(rows, n_rows, columns, covariance, method, intercept, terms, fixed)

    def size_of(self, rows: NDArray) -> tuple[int, int]:
        """Number of groups at the top, and of columns."""
        return len(self.owners[0]), rows.shape[2]

    def begin(self) -> NDArray:
        """Keep what all whitenings share; returns products of the columns."""
        width, m = self.p + 1, self.rows.shape[2]
        # rows of a triangle that effects reach; those below are the same for every population
        touched = int(min(self.varying.max(initial=-1) + 1, self.rows.shape[1]))
        self.bottom = np.ascontiguousarray(self.rows[:, :touched])
        self.Z = np.ascontiguousarray(self.Z[self.spans[-1], :touched])
        self.rest = self.rows[:, touched:].reshape(width, -1)
        self.products_of_rest = column_products(self.rest)
        self.maps = [np.ascontiguousarray(self.map[:, each]) for each in self.spans]
        self.orders: list[tuple[NDArray, NDArray]] = []  # from the second level
        height = touched
        for owner in reversed(self.owners[1:]):
            order, ends = _by_owner(owner, height, m)
            height, m = width, -(-(len(ends) - 1) // BATCH) * BATCH
            self.orders.insert(0, (order, ends))
        return column_products(self.bottom) + self.products_of_rest

    def weigh(self, root: NDArray) -> tuple[float, NDArray]:
        """Whiten the rows, level by level: sum of log-determinants, and products of the columns."""
        log_det, rows = 0.0, self.bottom
        self.whites: list[NDArray] = []
        self.whitened: list[NDArray] = []
        for level in reversed(range(len(self.spans))):
            own = root[self.spans[level], self.spans[level]]
            more, white, rows = self.whitened_level(level, own, rows)
            log_det += more
            self.whites.insert(0, white)
        self.root, self.white = root, rows
        return log_det, column_products(rows) + self.products_of_rest

    def squares_left(self, beta: NDArray) -> float:
        rest = self.rest[-1] - beta @ self.rest[:-1]
        return super().squares_left(beta) + float(rest @ rest)

    def whitened_level(
        self, level: int, own: NDArray, rows: NDArray
    ) -> tuple[float, NDArray, NDArray]:
        """Log-determinants of a level, its whitened rows, and what the level above has of them."""
        white, log_det = rows, 0.0
        if own.any():
            Z = self.Z if rows is self.bottom else self.effects_of(level, rows)
            white, columns = np.zeros_like(rows), self.varying[self.spans[level]]
            log_det = kernels.whiten(rows, Z, columns, np.ascontiguousarray(own), white)
        above = kernels.stacked_factors(white, *self.orders[level - 1]) if level else white
        return log_det, white, above

    def between(self, columns: NDArray) -> Between | None:
        """What rows say of some of the effects without noise, by parent at the top."""
        ancestors = [np.arange(len(self.owners[-1]))]
        for owner in reversed(self.owners[1:]):
            ancestors.insert(0, owner[ancestors[0]])
        kept = [columns[(block.start <= columns) & (columns < block.stop)] for block in self.blocks]
        terms = [k for k, each in enumerate(kept) if len(each)]
        level = [sum(span.stop <= block.start for span in self.spans[:-1]) for block in self.blocks]
        rows: list[NDArray] = []
        effects: list[list[NDArray]] = []
        for top in range(len(self.owners[0])):
            groups = np.flatnonzero(ancestors[0] == top)
            own = self.rows[:, :, groups].transpose(2, 1, 0)
            some = own.any(axis=2)
            rows.append(own[some])
            effects.append([])
            for k in terms:
                units, place = np.unique(ancestors[level[k]][groups], return_inverse=True)
                Z = np.zeros((*own.shape[:2], len(units), len(kept[k])))
                Z[np.arange(len(groups)), :, place] = own @ self.map[:, kept[k]]
                effects[-1].append(Z[some].reshape(len(rows[-1]), -1))
            if sum(each.shape[1] for each in effects[-1]) > MOST_EFFECTS:
                warnings.warn(NO_LIMIT, IdentificationWarning, stacklevel=2)
                return None
        return Between.of_clusters(rows, effects, [len(kept[k]) for k in terms])

    def levels(self) -> list[NDArray]:
        """Z of each level whitened, from the rows that were whitened last."""
        if not self.whitened:
            whites = enumerate(self.whites)
            self.whitened = [self.effects_of(level, white) for level, white in whites]
        return self.whitened

    def slope(self, profile: Profile) -> NDArray:
        J, c = np.zeros((self.p + 1, self.p + 1)), np.append(-profile.beta, 1.0)
        if self.restricted:
            J[:-1, :-1] = profile.half.T @ profile.half
        left, scores, self.last_bends = self.products(J, c)
        return left - self.dof / profile.quadratic * scores

    def expected(self) -> NDArray:
        """About `curvature`, less what the mean takes of groups, where `slope` was taken last."""
        return self.last_bends

    def curvature(self) -> NDArray:
        """Expected curvature of the criterion in the diagonal of T, as if the mean were known."""
        width = self.p + 1
        return self.products(np.zeros((width, width)), np.zeros(width))[2]

    def products(self, J: NDArray, c: NDArray) -> tuple[NDArray, NDArray, NDArray]:
        """Add up products of all groups, from J and c at the top.

        Returns
        -------
        left : ndarray of shape (q, q)
            Sum of ``Z~_i'Z~_i - B_i J_g B_i'``, in a block for each level.
        scores : ndarray of shape (q, q)
            Sum of ``B_i c_g c_g' B_i'``, likewise.
        curvature : ndarray of shape (q, q)
            Expected curvature of the criterion in the diagonal of T, with these J.
        """
        q = len(self.varying)
        left, scores, curvature = np.zeros((q, q)), np.zeros((q, q)), np.zeros((q, q))
        for level, block, middle, right in self.downwards(J[None], c[None, :, None]):
            Z, white, owner = self.levels()[level], self.whites[level], self.owners[level]
            own = kernels.nested_products(Z, white, owner, middle, right)
            left[block, block], curvature[block, block], scores[block, block], crossed = own
            curvature[block, : block.start] = crossed
            curvature[: block.start, block] = crossed.T
        shared = left.diagonal()
        return left, scores, curvature - shared[:, None] * shared / self.n_rows

    def downwards(
        self, J: NDArray, right: NDArray
    ) -> Iterator[tuple[int, slice, NDArray, NDArray]]:
        """Go down the levels: J of each, and E times what is right of it, and the maps above."""
        for level, block in enumerate(self.spans):
            yield level, block, J, right
            if level + 1 < len(self.spans):
                Z, white, owner = self.levels()[level], self.whites[level], self.owners[level]
                maps = np.repeat(self.maps[level][None], len(J), axis=0)
                right = np.concatenate([right, maps], axis=2)
                T = self.root[block, block] @ self.root[block, block].T
                J, right = kernels.below(Z, white, owner, self.maps[level], T, J, right)

    def whole_curvature(self) -> NDArray:
        """Expected curvature in all entries of T of each level, as if the mean were known.

        What groups of one parent have in common, which is little, is left out, as in `curvature`.
        """
        ends = np.cumsum([0, *((block.stop - block.start) ** 2 for block in self.spans)])
        places = [slice(*each) for each in pairwise(ends.tolist())]
        curvature, shared = np.zeros((ends[-1], ends[-1])), np.zeros(ends[-1])
        top = np.zeros((1, self.p + 1, self.p + 1)), np.zeros((1, self.p + 1, 0))
        for level, _, J, above in self.downwards(*top):
            effects, rows, owner = self.levels()[level], self.whites[level], self.owners[level]
            own = places[level]
            for at in range(0, len(owner), BLOCK):
                of = owner[at : at + BLOCK]
                Z, white = (each[:, :, at : at + len(of)] for each in (effects, rows))
                B = np.einsum("aim,wim->maw", Z, white)
                left = np.einsum("aim,bim->mab", Z, Z) - B @ J[of] @ B.swapaxes(1, 2)
                shared[own] += left.sum(axis=0).ravel()
                whole = np.concatenate([B @ above[of], left], axis=2)
                for other, place in zip(self.spans[: level + 1], places, strict=False):
                    curvature[own, place] += _squared(whole[:, :, other])
            curvature[: own.start, own] = curvature[own, : own.start].T
        return curvature - np.outer(shared, shared) / self.n_rows

    def mean_information(self, profile: Profile) -> NDArray:
        """Average of ``Z~'Z~`` over groups with rows of each level: blocks of a matrix."""
        average = np.zeros(self.map.shape[1:] * 2)
        filled = np.asarray(self.rows.any(axis=(0, 1)))
        levels = zip(self.spans, self.levels(), self.owners, strict=True)
        for block, Z, owner in reversed([*levels]):
            flat = Z.reshape(len(Z), Z[0].size if len(Z) else 0)
            average[block, block] = flat @ flat.T / np.count_nonzero(filled)
            filled = np.bincount(owner, filled[: len(owner)]) > 0
        return average


def _squared(matrices: NDArray) -> NDArray:
    """Sum of products of each matrix with itself, shape (m, q, k), by rows and by columns."""
    m, q, k = matrices.shape
    flat = matrices.reshape(m, q * k)
    return (flat.T @ flat).reshape(q, k, q, k).swapaxes(1, 2).reshape(q * q, k * k)


def _by_owner(owner: NDArray[np.int64], height: int, m: int) -> tuple[NDArray, NDArray]:
    """Order of the rows of m groups by parent, and where those of each parent begin and end.

    Of each group there are `height` rows: the first of all groups, then the second of all. Groups
    beyond those with an owner fill up, and are in no parent.
    """
    n_owners = int(owner.max()) + 1
    of_groups = np.append(owner, np.full(m - len(owner), n_owners))
    ends = np.append(0, np.cumsum(height * np.bincount(owner, minlength=n_owners)))
    of_groups = of_groups.astype(np.min_scalar_type(n_owners))  # short integers are sorted faster
    return np.argsort(np.tile(of_groups, height), kind="stable"), ends
