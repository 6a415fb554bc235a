"""Linear mixed models whose groups explain their rows without noise, or nearly so.

Where rows of a group agree but for its effects, the likelihood grows without end as the noise
sigma goes to zero. All else has a limit. Let U_i be a basis of the columns of Z_i, and U_i' y_i =
w_i. What is orthogonal to them has noise alone,

    (I - U_i U_i') (y_i - X_i beta) = e_i,

which gives sigma and, without error, as many combinations of beta as its columns have rank. The
others, N c, and the spread follow from rows that have no noise,

    w_i = U_i' X_i N c + C_i u_i,    C_i = U_i' Z_i,    u_i ~ N(0, T),

whose (restricted) likelihood is maximised by steps of EM, each followed by the best scale of T
(Liu, Rubin 1994). The relative error of this limit is about ``sigma**2 / (n_i T)``.

References
----------
Liu, Rubin (1994), The ECME algorithm: a simple extension of EM and ECM with faster monotone
convergence, Biometrika 81.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["NOTHING", "NO_NOISE", "Between", "Exact", "Limit", "limit_of"]

# Share of the largest singular value that is negligible.
NOTHING = 1e-8
# Standard deviation of the noise, in that of the spread, below which it is negligible.
NO_NOISE = 1e-6
MOST_STEPS, CONVERGED = 5000, 1e-11


class Between(NamedTuple):
    """Rows without noise, and what is orthogonal to them.

    Attributes
    ----------
    within : ndarray of shape (n, p + 1)
        Rows of ``[X y]`` that have noise alone.
    rows : ndarray of shape (m, s, p + 1)
        Those of groups that have none; zero from their number on.
    effects : ndarray of shape (m, s, q)
        C_i.
    known : bool ndarray of shape (m, s)
        Which rows there are.
    """

    within: NDArray
    rows: NDArray
    effects: NDArray
    known: NDArray

    @classmethod
    def of(cls, rows: NDArray, Z: NDArray) -> Self:
        """Turn rows of groups, shape (m, r, p + 1), so that effects reach the first of them."""
        axes, sizes, _ = np.linalg.svd(Z)
        rank = (sizes > NOTHING * sizes.max(initial=0.0)).sum(axis=1)
        turned, effects = axes.swapaxes(1, 2) @ rows, axes.swapaxes(1, 2) @ Z
        reached = np.arange(rows.shape[1]) < rank[:, None]
        s = int(rank.max(initial=0))
        some = rank > 0
        known = reached[some, :s]
        return cls(
            turned[~reached],
            np.where(known[:, :, None], turned[some, :s], 0.0),
            np.where(known[:, :, None], effects[some, :s], 0.0),
            known,
        )


class Limit(NamedTuple):
    """The maximum as the noise goes to zero.

    Attributes
    ----------
    covariance : ndarray of shape (q, q)
        T.
    error : ndarray of shape (q, q)
        Sampling covariance of its diagonal; of a full one, the average of ``Z_i' V_i^-1 Z_i``,
        inverted.
    noise : float
        sigma squared; 0 where it is negligible beside T.
    beta : ndarray of shape (p,)
    beta_covariance : ndarray of shape (p, p)
    """

    covariance: NDArray
    error: NDArray
    noise: float
    beta: NDArray
    beta_covariance: NDArray


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
    between: Between, n_rows: int, basis: NDArray, kind: str, restricted: bool
) -> Limit | None:
    """Return the limit; None where rows do not tell noise and spread apart.

    Parameters
    ----------
    between : Between
    n_rows : int
        Number of rows in all.
    basis : ndarray of shape (p, rank)
        Combinations of coefficients that X identifies.
    kind : {"diag", "full"}
    restricted : bool

    Examples
    --------
    >>> rows = np.array([[[1.0, 0.0, 4.0], [0.0, 1.0, 2.0]], [[1.0, 0.0, 6.0], [0.0, 1.0, 2.0]]])
    >>> found = limit_of(Between.of(rows, rows[:, :, :1]), 4, np.eye(2), "diag", True)
    >>> found.covariance.round(6), found.beta.round(6), found.noise
    (array([[2.]]), array([5., 2.]), 0.0)
    """
    exact = Exact.of(between.within, n_rows - int(between.known.sum()), basis)
    if exact is None:
        return None
    W = between.rows[:, :, :-1] @ exact.free
    w = between.rows[:, :, -1] - between.rows[:, :, :-1] @ exact.beta
    found = _spread(between.effects, between.known, W, w, kind, restricted)
    if found is None:
        return None
    T, error, c, covariance = found
    small = exact.noise < NO_NOISE**2 * np.diag(T).max()
    return Limit(
        T,
        error,
        0.0 if small else exact.noise,
        exact.beta + exact.free @ c,
        exact.free @ covariance @ exact.free.T + (0.0 if small else 1.0) * exact.covariance,
    )


def _spread(
    C: NDArray, known: NDArray, W: NDArray, w: NDArray, kind: str, restricted: bool
) -> tuple[NDArray, NDArray, NDArray, NDArray] | None:
    """Maximise the likelihood of ``w_i ~ N(W_i c, C_i T C_i')``.

    Returns T, its error, c, and its covariance. T ends where a coefficient has no spread.
    """
    (m, s, q), k = C.shape, W.shape[2]
    degrees = int(known.sum()) - k * restricted
    if degrees <= 0 or not w.any():
        return None
    T = np.eye(q) * float(np.sum(w**2)) / max(float(np.sum(C**2)) / q, 1e-300)
    for _ in range(MOST_STEPS):
        CT = C @ T
        G = CT @ C.swapaxes(1, 2)
        G[:, np.arange(s), np.arange(s)] += ~known
        inverse = np.linalg.inv(G)
        covariance = np.linalg.inv(np.einsum("msk,mst,mtl->kl", W, inverse, W))
        c = covariance @ np.einsum("msk,mst,mt->k", W, inverse, w)
        left = w - W @ c
        scale = float(np.einsum("ms,mst,mt->", left, inverse, left)) / degrees
        gain = CT.swapaxes(1, 2) @ inverse
        u = np.einsum("mqs,ms->mq", gain, left)
        open_ = (T - gain @ CT).sum(axis=0)
        if restricted:
            D = gain @ W
            open_ = open_ + np.einsum("mqk,kl,mrl->qr", D, covariance, D)
        new = (u.T @ u + scale * open_) / m
        new = (new + new.T) / 2 if kind == "full" else np.diag(np.diag(new))
        moved = np.abs(new - scale * T).max() / np.abs(new).max()
        T = new
        if moved < CONVERGED or np.diag(T).min() < NO_NOISE**2 * np.diag(T).max():
            break
    inner = np.einsum("msq,mst,mtr->mqr", C, inverse, C) / scale
    if kind == "full":
        error = np.linalg.inv(inner.mean(axis=0))
    else:
        error = 2 * np.linalg.inv(np.sum(inner**2, axis=0))
    return T, error, c, scale * covariance
