"""Linear mixed models whose effects explain their rows without noise, or nearly so.

Where rows agree but for their effects, the likelihood grows without end as the noise sigma goes to
zero. All else has a limit. Let U be a basis of the columns of Z. What is orthogonal to them has
noise alone,

    (I - U U') (y - X beta) = e,

which gives sigma and, without error, as many combinations of beta as its columns have rank. The
others, N c, and the spread follow from what is in the span of Z, and has no noise. It says that the
effects are, with the null space Z n = 0,

    u = u_0 - B c - n t,    Z u_0 = U U' y,    Z B = U U' X N,    u ~ N(0, D),

D of blocks T_k of the levels of factor k. The likelihood is that of a regression of u_0 on B and n,
whose noise is D; t is integrated out, as in REML, for changes of t change no row. It is that of
groups (one factor), of groups within groups, and of crossed factors; rows that share no effects are
clusters, and independent. It is maximised by steps of EM, each followed by the best scale of D
(Liu, Rubin 1994), and then by BFGS steps in roots of T, where these steps are slow. The relative
error of this limit is about ``sigma**2 / (n_i T)``.

References
----------
Liu, Rubin (1994), The ECME algorithm: a simple extension of EM and ECM with faster monotone
convergence, Biometrika 81.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag
from scipy.optimize import minimize

__all__ = [
    "FAR",
    "MOST_EFFECTS",
    "NOTHING",
    "NO_NOISE",
    "Between",
    "Exact",
    "Limit",
    "limit_of",
    "limit_of_crossed",
    "limit_of_far",
]

# Share of the largest singular value that is negligible.
NOTHING = 1e-8
# Standard deviation of the noise, in that of the spread, below which it is negligible.
NO_NOISE = 1e-6
# Root from which effects are taken to be far beyond the noise: their share of what noise explains
# of them is then below rounding of the search. Those above the other are in the limit with them.
FAR, NEAR = 1e4, 1e3
# Rows of crossed factors that are added to a triangle at a time.
SOME_ROWS = 4096
# Effects of a cluster, of which a dense matrix is factored.
MOST_EFFECTS = 3_000
# Steps of EM, and change at which they end, of the largest entry.
MOST_STEPS, CONVERGED = 50, 1e-11
# Root of a variance, in the largest, at which it is tried as zero; root there; and what the
# criterion may rise.
SMALL_ROOT, AT_ZERO, NO_LESS = 3e-2, 1e-4, 1e-7


class Between(NamedTuple):
    """What rows say of effects without noise, and what is orthogonal to these.

    Attributes
    ----------
    within : ndarray of shape (n, p + 1)
        Rows of ``[X y]`` that have noise alone.
    solved : list of ndarray of shape (m, n_k, q_k, p + 1)
        Effects that explain the others, of the n_k levels of factor k in each of m clusters; zero
        from a cluster's number on.
    null : list of ndarray of shape (m, n_k, q_k, d)
        Combinations of effects that are in no row; zero from a cluster's number on.
    counts : list of int
        Numbers of levels of each factor.
    rank : int
        Number of rows that have no noise.
    """

    within: NDArray
    solved: Sequence[NDArray]
    null: Sequence[NDArray]
    counts: Sequence[int]
    rank: int

    @classmethod
    def of(cls, rows: NDArray, Z: NDArray) -> Self:
        """Solve rows of groups, shape (m, r, p + 1), for effects; Z has shape (m, r, q)."""
        within, solved, null, rank = _solved(rows, Z)
        some = rank > 0
        parts = [solved[some][:, None]], [null[some][:, None]], [int(some.sum())]
        return cls(within, *parts, int(rank.sum()))

    @classmethod
    def of_clusters(
        cls, rows: Sequence[NDArray], Z: Sequence[Sequence[NDArray]], widths: Sequence[int]
    ) -> Self:
        """Solve the rows of clusters for the effects of their levels.

        Parameters
        ----------
        rows : list of ndarray of shape (r_j, p + 1)
        Z : list of list of ndarray of shape (r_j, n_jk * q_k)
            Effects of the n_jk levels of each factor, by cluster.
        widths : list of int
            q_k.
        """
        parts = []
        for own, each in zip(rows, Z, strict=True):
            effects = np.hstack(each)
            if len(own) > own.shape[1] + effects.shape[1]:
                R: Any = np.linalg.qr(np.column_stack([effects, own]), mode="r")
                effects, own = R[:, : effects.shape[1]], R[:, effects.shape[1] :]
            parts.append(_solved(own[None], effects[None]))
        found: list[list[NDArray]] = []
        for place in (1, 2):
            whole = _stacked([part[place][0] for part in parts])
            by_factor, at = [], np.zeros(len(parts), np.int64)
            for k, q in enumerate(widths):
                sizes = np.array([each[k].shape[1] for each in Z])
                steps = np.arange(sizes.max())
                own = whole[
                    np.arange(len(parts))[:, None],
                    np.minimum(at[:, None] + steps, whole.shape[1] - 1),
                ]
                own = np.where((steps < sizes[:, None])[:, :, None], own, 0.0)
                shape = len(parts), sizes.max() // q, q, own.shape[2]
                by_factor.append(own.reshape(shape))
                at += sizes
            found.append(by_factor)
        counts = [sum(each[k].shape[1] for each in Z) // q for k, q in enumerate(widths)]
        within = np.concatenate([each[0] for each in parts])
        solved, null = found
        return cls(within, solved, null, counts, sum(int(each[3][0]) for each in parts))


class Limit(NamedTuple):
    """The maximum as the noise goes to zero.

    Attributes
    ----------
    covariance : ndarray of shape (q, q)
        T, in a block for each factor.
    error : ndarray of shape (q, q)
        Sampling covariance of its diagonal; of a full one, the average of ``Z_i' V_i^-1 Z_i``,
        inverted.
    noise : float
        sigma squared; 0 where it is negligible beside T.
    beta : ndarray of shape (p,)
    beta_covariance : ndarray of shape (p, p)
    effects : list of ndarray of shape (m, n_k, q_k)
        Of factors far beyond the noise.
    """

    covariance: NDArray
    error: NDArray
    noise: float
    beta: NDArray
    beta_covariance: NDArray
    effects: list[NDArray]


class Exact(NamedTuple):
    """What rows with noise alone tell.

    Attributes
    ----------
    noise : float
    beta : ndarray of shape (p,)
        Coefficients, of which rows without noise move those along `free`.
    free : ndarray of shape (p, k)
    covariance : ndarray of shape (p, p)
        Sampling covariance of what they tell.
    """

    noise: float
    beta: NDArray
    free: NDArray
    covariance: NDArray

    @classmethod
    def of(cls, within: NDArray, n_rows: int, basis: NDArray) -> Self | None:
        """Regress these rows, of `n_rows`; None where they do not tell the noise."""
        A = within[:, :-1] @ basis
        R: Any = np.linalg.qr(np.column_stack([A, within[:, -1]]), mode="r")
        _, sizes, turn = np.linalg.svd(R[:, :-1])
        sizes = np.concatenate([sizes, np.zeros(len(turn) - len(sizes))])
        known = sizes > NOTHING * np.sqrt(max(n_rows, 1))
        left = n_rows - int(known.sum())
        if left <= 0:
            return None
        half = turn[known].T / sizes[known]
        beta = half @ half.T @ (R[:, :-1].T @ R[:, -1])
        noise = float(np.sum((R[:, -1] - R[:, :-1] @ beta) ** 2)) / left
        covariance = noise * basis @ half @ half.T @ basis.T
        return cls(noise, basis @ beta, basis @ turn[~known].T, covariance)


def limit_of(
    between: Between, n_rows: int, basis: NDArray, kinds: Sequence[str], restricted: bool
) -> Limit | None:
    """Return the limit; None where rows do not tell noise and spread apart.

    Parameters
    ----------
    between : Between
    n_rows : int
        Number of rows in all.
    basis : ndarray of shape (p, rank)
        Combinations of coefficients that X identifies.
    kinds : list of {"spherical", "diag", "full"}
        Kind of T of each factor.
    restricted : bool

    Examples
    --------
    >>> rows = np.array([[[1.0, 0.0, 4.0], [0.0, 1.0, 2.0]], [[1.0, 0.0, 6.0], [0.0, 1.0, 2.0]]])
    >>> found = limit_of(Between.of(rows, rows[:, :, :1]), 4, np.eye(2), ["diag"], True)
    >>> found.covariance.round(6), found.beta.round(6), found.noise
    (array([[2.]]), array([5., 2.]), 0.0)
    """
    exact = Exact.of(between.within, n_rows - between.rank, basis)
    if exact is None:
        return None
    effects = _Effects(between, exact, kinds, restricted)
    if effects.degrees <= 0 or not effects.known:
        return None
    at = effects.maximise()
    T, free = block_diag(*at.covariances), exact.free
    small = exact.noise < NO_NOISE**2 * np.diag(T).max()
    covariance = free @ at.coefficient_covariance @ free.T
    return Limit(
        T,
        effects.error(at),
        0.0 if small else exact.noise,
        exact.beta + free @ at.coefficients,
        covariance + (0.0 if small else 1.0) * exact.covariance,
        at.effects,
    )


def limit_of_far(
    between: Callable[[NDArray], Between | None],
    kept: NDArray,
    owner: NDArray,
    kinds: Sequence[str],
    spread: NDArray | None,
    n_rows: int,
    basis: NDArray,
    restricted: bool,
) -> Limit | None:
    """Limit of the effects that are far beyond the noise; None if it is not known.

    Parameters
    ----------
    between : callable
        What rows say of some effects; None of too many.
    kept : int64 ndarray
        Effects whose variance is identified.
    owner : int64 ndarray of shape (q,)
        Factor of each effect.
    kinds : list of str
        Of each factor; see `limit_of`.
    spread : ndarray of shape (q, q) or None
        T where a search ended, in units of the noise: others keep it, unless it went far. None if
        it failed.
    n_rows, basis, restricted : as in `limit_of`
    """
    T = np.zeros((len(owner), len(owner)))
    found: Limit | None = None
    while len(kept):
        rows = between(kept)
        own_kinds = [kinds[k] for k in np.unique(owner[kept])]
        try:
            found = None if rows is None else limit_of(rows, n_rows, basis, own_kinds, restricted)
        except np.linalg.LinAlgError:
            return None
        if found is None:
            return None
        own = np.diag(found.covariance)
        if (own > max(NEAR**2 * found.noise, NO_NOISE**2 * own.max())).all():
            break
        near = own == own.min()  # the others may move into what it had
        T[kept[near], kept[near]] = np.where(own[near] > found.noise, own[near], 0.0)
        kept = kept[~near]
    if found is None or not len(kept):
        return None
    left = np.setdiff1d(np.arange(len(owner)), kept)
    if spread is not None and np.diag(spread)[left].max(initial=0.0) < NEAR**2:
        T[np.ix_(left, left)] = found.noise * spread[np.ix_(left, left)]
    if found.noise == 0:
        T[:] = 0.0
    error = np.zeros_like(T)
    T[np.ix_(kept, kept)], error[np.ix_(kept, kept)] = found.covariance, found.error
    return found._replace(covariance=T, error=error)


def limit_of_crossed(
    codes: Sequence[NDArray],
    bases: Sequence[NDArray],
    weight: NDArray,
    columns: NDArray,
    kinds: Sequence[str],
    restricted: bool,
    spread: NDArray | None,
) -> Limit | None:
    """Limit of crossed factors; None if their effects are not far beyond the noise.

    Nor is it known of too many effects.

    Parameters
    ----------
    codes : list of int64 ndarray of shape (n,)
        Level of each row of each factor.
    bases : list of ndarray of shape (n, q_k)
        Columns whose coefficients differ between levels; of zeros, where they have no variance.
    weight : ndarray of shape (n,)
    columns : ndarray of shape (n, p + 1)
        ``[X y]``; times the roots of the weights, columns of X are orthonormal.
    kinds, restricted : as in `limit_of_far`
    spread : ndarray of shape (q, q) or None
        Covariances of effects over the noise, of which the search has few digits where they are
        large. None if it failed.

    Raises
    ------
    ValueError
        If the search failed, and the limit is not known.
    """
    if spread is not None and spread.max() <= FAR**2:
        return None
    root = np.sqrt(weight)[:, None]
    rows = root * columns
    widths = [basis.shape[1] for basis in bases]
    owner = np.repeat(np.arange(len(bases)), widths)
    whole, sizes = root * np.hstack(bases), [int(own.max()) + 1 for own in codes]

    def between(kept: NDArray) -> Between | None:
        own = [kept[owner[kept] == k] for k in range(len(bases))]
        ends = np.cumsum([size * len(each) for size, each in zip(sizes, own, strict=True)])
        if ends[-1] > MOST_EFFECTS:
            return None
        R: Any = np.zeros((0, ends[-1] + rows.shape[1]))
        for at in range(0, len(rows), SOME_ROWS):
            here, Z = slice(at, at + SOME_ROWS), []
            for code, size, each in zip(codes, sizes, own, strict=True):
                block = np.zeros((len(rows[here]), size, len(each)))
                block[np.arange(len(block)), code[here]] = whole[here][:, each]
                Z.append(block.reshape(len(block), -1))
            R = np.linalg.qr(np.vstack([R, np.hstack([*Z, rows[here]])]), mode="r")
        effects = np.split(R[:, : ends[-1]], ends[:-1], axis=1)
        there = [k for k, each in enumerate(own) if len(each)]
        parts = [R[:, ends[-1] :]], [[effects[k] for k in there]], [len(own[k]) for k in there]
        return Between.of_clusters(*parts)

    known = np.flatnonzero(whole.any(axis=0))
    basis = np.sqrt(len(rows)) * np.eye(rows.shape[1] - 1)  # columns of a mean square of 1
    with np.errstate(all="ignore"):  # of rows that noise is in after all
        limit = limit_of_far(between, known, owner, kinds, spread, len(rows), basis, restricted)
    if limit is None and spread is None:
        raise ValueError("the effects explain y without noise; this model has no likelihood then.")
    return limit


class _At(NamedTuple):
    """Figures at T, times the best scale.

    Attributes
    ----------
    covariances : list of ndarray of shape (q_k, q_k)
        T, times this scale.
    moments : list of ndarray of shape (q_k, q_k)
        What a step of EM makes of it.
    coefficients : ndarray of shape (k,)
    coefficient_covariance : ndarray of shape (k, k)
    criterion : float
        -2 log-likelihood, but for a constant.
    effects : list of ndarray of shape (m, n_k, q_k)
    """

    covariances: list[NDArray]
    moments: list[NDArray]
    coefficients: NDArray
    coefficient_covariance: NDArray
    criterion: float
    effects: list[NDArray]


class _Effects:
    """The regression of effects that explain the rows; its noise is their spread."""

    def __init__(self, between: Between, exact: Exact, kinds: Sequence[str], restricted: bool):
        self.counts, self.kinds, self.restricted = between.counts, kinds, restricted
        self.d, self.k = between.null[0].shape[3], exact.free.shape[1]
        self.degrees = between.rank - self.k * restricted
        self.columns = []  # n, B and u_0 of each factor
        for solved, null in zip(between.solved, between.null, strict=True):
            u = solved[..., -1:] - solved[..., :-1] @ exact.beta[:, None]
            self.columns.append(np.concatenate([null, solved[..., :-1] @ exact.free, u], axis=3))
        self.widths = [each.shape[2] for each in self.columns]
        some = sum(np.abs(each).sum(axis=(1, 2)) for each in between.null)
        self.absent = np.where(some > 0, 0.0, 1.0)
        self.known = any(each[..., -1].any() for each in self.columns)

    def solve(self, T: Sequence[NDArray]) -> tuple[list[NDArray], NDArray, NDArray, NDArray]:
        """Regress u_0 and B on n, and what is left on B, by triangles: products cost digits.

        Returns
        -------
        halves : list of ndarray of shape (q_k, q_k)
            ``half' half = T^-1``.
        root : ndarray of shape (m, d, d)
            ``root root'`` is the inverse of products of n.
        along : ndarray of shape (m, d, k + 1)
            What n takes of ``[B u_0]``.
        left : ndarray of shape (k or more, k + 1)
            Triangle of what it leaves of all clusters.
        """
        d, f = self.d, self.d + self.k + 1
        halves = [np.linalg.inv(np.linalg.cholesky(each)) for each in T]
        pad = np.zeros((len(self.absent), d, f))
        pad[:, np.arange(d), np.arange(d)] = self.absent
        white = [pad]
        for half, F in zip(halves, self.columns, strict=True):
            white.append(np.einsum("ab,mjbf->mjaf", half, F).reshape(len(pad), -1, f))
        R: Any = np.linalg.qr(np.concatenate(white, axis=1), mode="r")
        root = np.linalg.inv(R[:, :d, :d])
        left: Any = np.linalg.qr(R[:, d:, d:].reshape(-1, self.k + 1), mode="r")
        return halves, root, root @ R[:, :d, d:], left

    def at(self, T: Sequence[NDArray]) -> _At:
        """Find coefficients and scale, and take a step of EM."""
        d, k = self.d, self.k
        halves, root, along, triangle = self.solve(T)
        back = np.linalg.inv(triangle[:k, :k])
        c = back @ triangle[:k, -1]
        left = [F[..., d:] - np.einsum("mjad,mdg->mjag", F[..., :d], along) for F in self.columns]
        u = [each[..., -1] - each[..., :-1] @ c for each in left]
        Q = sum(float(np.sum((x @ half.T) ** 2)) for half, x in zip(halves, u, strict=True))
        scale, moments = Q / self.degrees, []
        parts = zip(self.columns, left, u, self.counts, self.kinds, strict=True)
        for F, each, x, n, kind in parts:
            open_ = np.einsum("mjad,mde->mjae", F[..., :d], root)
            moment = _squared(x[..., None]) + scale * _squared(open_)
            if self.restricted:
                moment += scale * _squared(each[..., :-1] @ back)
            moments.append(_of_kind(moment / n, kind))
        criterion = self.degrees * np.log(scale)
        criterion -= 2 * np.log(np.abs(np.diagonal(root, axis1=1, axis2=2))).sum()
        for n, half in zip(self.counts, halves, strict=True):
            criterion -= 2 * n * np.log(np.diag(half)).sum()
        if self.restricted:
            criterion -= 2 * np.log(np.abs(np.diag(back))).sum()
        covariance = scale * back @ back.T
        return _At([scale * each for each in T], moments, c, covariance, float(criterion), u)

    def maximise(self) -> _At:
        """Take steps of EM, then of BFGS if they are slow."""
        total = sum(float(np.sum(each[..., -1] ** 2)) for each in self.columns)
        size = total / sum(n * q for n, q in zip(self.counts, self.widths, strict=True))
        at = self.at([size * np.eye(q) for q in self.widths])
        for _ in range(MOST_STEPS):
            pairs = zip(at.moments, at.covariances, strict=True)
            moved = max(np.abs(new - old).max() for new, old in pairs)
            at = self.at(at.moments)
            sizes = np.concatenate([np.diag(each) for each in at.covariances])
            if moved < CONVERGED * sizes.max() or sizes.min() < NO_NOISE**2 * sizes.max():
                return at
        return self.without_small(self.descend(at))

    def descend(self, at: _At) -> _At:
        """Descend in the entries of roots of T."""
        units = [np.sqrt(np.diag(each)) for each in at.covariances]
        masks = [_mask(q, kind) for q, kind in zip(self.widths, self.kinds, strict=True)]
        ends = np.cumsum([len(mask) for mask in masks])[:-1]

        def roots(free: NDArray) -> list[NDArray]:
            parts = zip(np.split(free, ends), masks, units, strict=True)
            return [unit[:, None] * np.tensordot(own, mask, 1) for own, mask, unit in parts]

        def value(free: NDArray) -> tuple[float, NDArray]:
            own, slope, counts = roots(free), [], self.counts
            try:
                here = self.at([L @ L.T for L in own])
                parts = zip(own, here.covariances, here.moments, units, masks, counts, strict=True)
                for L, T, new, unit, mask, n in parts:
                    each = 2 * n * np.linalg.solve(T, T - new) @ np.linalg.inv(L).T
                    slope.append(np.tensordot(mask, unit[:, None] * each, 2))
            except np.linalg.LinAlgError:
                return np.inf, np.zeros(len(free))
            return here.criterion, np.concatenate(slope)

        start = []
        for T, unit, mask in zip(at.covariances, units, masks, strict=True):
            L = np.linalg.cholesky(T) / unit[:, None]
            start.append(np.tensordot(mask, L, 2) / mask.sum(axis=(1, 2)))
        options = {"gtol": 1e-7, "maxiter": 500}
        found = minimize(value, np.concatenate(start), jac=True, method="BFGS", options=options)
        return self.at([L @ L.T for L in roots(found.x)])

    def without_small(self, at: _At) -> _At:
        """Take spreads for zero that the likelihood does not tell from it."""
        most = max(np.diag(each).max() for each in at.covariances)
        for k, T in enumerate(at.covariances):
            for a in np.flatnonzero(np.diag(T) < SMALL_ROOT**2 * most):
                rows = np.arange(len(T)) if self.kinds[k] == "spherical" else np.array([a])
                turn = np.ones(len(T))
                turn[rows] = AT_ZERO * np.sqrt(most / T[a, a])
                tried = [*at.covariances]
                tried[k] = turn[:, None] * at.covariances[k] * turn
                there = self.at(tried)
                if there.criterion < at.criterion + NO_LESS:
                    there.covariances[k][rows] = there.covariances[k][:, rows] = 0.0
                    return there
        return at

    def error(self, at: _At) -> NDArray:
        """Sampling error of T, in blocks, see `Limit`; zero where a spread is zero."""
        if not all(np.diag(each).all() for each in at.covariances):
            return np.zeros((sum(self.widths),) * 2)
        halves, root, _, _ = self.solve(at.covariances)
        inner, squares, shares = [], [], []
        for half, F, n in zip(halves, self.columns, self.counts, strict=True):
            K = half.T @ half
            A = np.einsum("ab,mjbd,mde->mjae", K, F[..., : self.d], root, optimize=True)
            taken = np.einsum("mjae,mjbe->mjab", A, A)
            inner.append(K - taken.sum(axis=(0, 1)) / n)
            squares.append(n * K**2 - 2 * K * taken.sum(axis=(0, 1)))
            shares.append(np.einsum("mjae,mjaf->maef", A, A))
        if self.kinds[0] == "full":
            return block_diag(*(np.linalg.inv(each) for each in inner))
        share = np.concatenate(shares, axis=1)
        information = block_diag(*squares) + np.einsum("maef,mbef->ab", share, share)
        if self.kinds[0] == "diag":
            return 2 * np.linalg.inv(information)
        own = np.repeat(np.arange(len(self.widths)), self.widths)
        sums = np.zeros((len(self.widths),) * 2)
        np.add.at(sums, (own[:, None], own), information)
        return 2 * np.linalg.inv(sums)[np.ix_(own, own)] * (own[:, None] == own)


def _solved(rows: NDArray, Z: NDArray) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """Solve rows of m clusters for their effects; see `Between`.

    Returns
    -------
    within : ndarray of shape (n, p + 1)
    solved : ndarray of shape (m, q, p + 1)
        The least.
    null : ndarray of shape (m, q, d)
    rank : int64 ndarray of shape (m,)
    """
    axes, sizes, turn = np.linalg.svd(Z)
    rank = (sizes > NOTHING * sizes.max(initial=0.0)).sum(axis=1)
    turned, (q, s) = axes.swapaxes(1, 2) @ rows, (Z.shape[2], sizes.shape[1])
    within = turned[np.arange(rows.shape[1]) >= rank[:, None]]
    known = np.arange(s) < rank[:, None]
    inverse = np.where(known, 1 / np.where(known, sizes, 1.0), 0.0)
    solved = turn[:, :s].swapaxes(1, 2) @ (inverse[:, :, None] * turned[:, :s])
    first = int(rank.min(initial=q))
    open_ = np.arange(first, q) >= rank[:, None]
    return within, solved, np.where(open_[:, None], turn[:, first:].swapaxes(1, 2), 0.0), rank


def _stacked(matrices: Sequence[NDArray]) -> NDArray:
    """Stack matrices of different shapes; zero from a matrix's end on."""
    shape = np.max([each.shape for each in matrices], axis=0)
    found = np.zeros((len(matrices), *shape))
    for place, each in zip(found, matrices, strict=True):
        place[: each.shape[0], : each.shape[1]] = each
    return found


def _squared(columns: NDArray) -> NDArray:
    """Sum of products of the effects of levels, shape (m, n, q, c) to (q, q)."""
    flat = columns.swapaxes(0, 2).reshape(columns.shape[2], -1)
    return flat @ flat.T


def _of_kind(T: NDArray, kind: str) -> NDArray:
    """Return the nearest covariance of a kind."""
    if kind == "full":
        return (T + T.T) / 2
    diagonal = np.diag(T)
    return np.diag(diagonal if kind == "diag" else np.full(len(T), diagonal.mean()))


def _mask(q: int, kind: str) -> NDArray[np.float64]:
    """Entries of a root that each free number sets, shape (n_free, q, q)."""
    if kind == "spherical":
        return np.eye(q)[None]
    rows, columns = np.tril_indices(q) if kind == "full" else (np.arange(q),) * 2
    mask = np.zeros((len(rows), q, q))
    mask[np.arange(len(rows)), rows, columns] = 1.0
    return mask
