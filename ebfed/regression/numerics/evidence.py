"""What clients' rows say of the components of a mixture of regressions.

Rows of client i are ``y_i = X_i theta_i + e_i`` with ``e_i ~ N(0, noise I)``, and ``theta_i ~
N(mu_l, D_l)`` in component l. With theta_i integrated out,

    y_i ~ N(X_i mu_l, K_il),   K_il = X_i D_l X_i' + noise I,

so that with ``e = y_i - X_i mu_l`` and ``P = X_i' K_il^-1 X_i`` the slope of the log evidence is
``X_i' K_il^-1 e =: g`` in mu_l and ``(g_j**2 - P_jj) / 2`` in the j-th variance, the expected
information P and ``P_jk**2 / 2``. All of it, and the posterior ``mu_l + D_l g`` with covariance
``D_l - D_l P D_l``, stays well defined where a variance is zero: a mixture of regressions is the
mixture population without variances, not another method.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Evidence",
    "MixturePopulation",
    "RotatedRows",
    "information",
    "make_grid",
    "responsibilities",
    "rotate",
    "weigh",
]


CHUNK = 128
ROUGH = 1e-5  # least share of the largest square of an axis that products of rows show well


class MixturePopulation(NamedTuple):
    """Components of a mixture of regressions.

    Attributes
    ----------
    weights : ndarray of shape (k,)
    means : ndarray of shape (k, p)
    variances : ndarray of shape (k, v)
        v is 1 where the coefficients of a component share a variance, p where each has its own.
    noise : float
    """

    weights: NDArray
    means: NDArray
    variances: NDArray
    noise: float


class RotatedRows(NamedTuple):
    """Rows of n clients, turned so that those of a client's design are orthogonal.

    Attributes
    ----------
    design : ndarray of shape (n, q, p)
    response : ndarray of shape (n, q)
    rest : ndarray of shape (n,)
        Sum of squares of the response that no coefficients explain.
    sizes : int64 ndarray of shape (n,)
        Numbers of rows.
    squares : ndarray of shape (n, q)
        Sums of squares of the rows of the design.
    """

    design: NDArray
    response: NDArray
    rest: NDArray
    sizes: NDArray
    squares: NDArray


class Evidence(NamedTuple):
    """Log evidence of n clients for k components; its slopes and expected information.

    Attributes
    ----------
    log : ndarray of shape (n, k)
    mean : ndarray of shape (n, k, p)
        Slope in the mean.
    variance, variance_information, variance_rest : ndarray of shape (n, k, v)
        Slope in the variances, diagonal of their information, and the sum of each row beside it.
    crossed : ndarray of shape (n, k, v)
        Information between the variances and the noise.
    noise, noise_information : ndarray of shape (n, k)
    white : list of k ndarrays of shape (n, q, p)
    scale : ndarray of shape (k, n, q)
        ``W = scale * white`` is the design divided by a root of K, and W'W the information on the
        mean.
    """

    log: NDArray
    mean: NDArray
    variance: NDArray
    variance_information: NDArray
    variance_rest: NDArray
    crossed: NDArray
    noise: NDArray
    noise_information: NDArray
    white: list[NDArray]
    scale: NDArray

    @classmethod
    def of(cls, parts: Sequence[tuple[NDArray, ...]]) -> Self:
        """Put figures of one component after the other together, in the order of the attributes."""
        *figures, white, scale = zip(*parts, strict=True)
        stacked = {name: np.stack(x, axis=1) for name, x in zip(cls._fields, figures, strict=False)}
        return cls(**stacked, white=[*white], scale=np.stack(scale))

    def messages(self) -> dict[str, NDArray]:
        """Return what clients send: all but their designs."""
        return {name: x for name, x in self._asdict().items() if name not in ("white", "scale")}


def rotate(factors: NDArray, sizes: NDArray) -> RotatedRows:
    """Turn factors ``[X_i y_i]`` of shape (n, r, p + 1) into the axes of ``X_i X_i'``."""
    X, y = factors[:, :, :-1], factors[:, :, -1:]
    q = min(X.shape[1:])
    squares, U = np.linalg.eigh(X @ X.swapaxes(1, 2))
    U, squares = U[:, :, X.shape[1] - q :], squares[:, X.shape[1] - q :]
    design = U.swapaxes(1, 2) @ X
    # products lose the small axes, which singular values keep; each client's own matter alone
    rough = np.flatnonzero((squares[:, :1] < ROUGH * squares[:, -1:]).any(axis=1))
    if len(rough):
        U[rough], S, V = np.linalg.svd(X[rough], full_matrices=False)
        design[rough], squares[rough] = S[:, :, None] * V, S**2
    response = U.swapaxes(1, 2) @ y
    rest = ((y - U @ response) ** 2).sum(axis=(1, 2))
    return RotatedRows(design, response[:, :, 0], rest, sizes, squares)


def weigh(rows: RotatedRows, population: MixturePopulation) -> Evidence:
    """Weigh the rows of clients against every component."""
    one_variance = population.variances.shape[1] == 1
    component = _one_variance if one_variance else _many_variances
    noise, q = population.noise, rows.response.shape[1]
    # what the turned rows leave of the n: residuals without a design
    spare = (rows.sizes - q) / noise
    left = rows.rest / noise
    parts: list[tuple[NDArray, ...]] = []
    for mean, variance in zip(population.means, population.variances, strict=True):
        away = rows.response - (rows.design @ mean[:, None])[:, :, 0]
        log, *slopes, by_noise, noise_information, white, scale = component(
            rows, away, variance, noise
        )
        log = log - 0.5 * (rows.sizes * np.log(2 * np.pi) + spare * noise * np.log(noise) + left)
        by_noise = by_noise + 0.5 * (left / noise - spare)
        noise_information = noise_information + 0.5 * spare / noise
        parts.append((log, *slopes, by_noise, noise_information, white, scale))
    return Evidence.of(parts)


def _one_variance(
    rows: RotatedRows, away: NDArray, variance: NDArray, noise: float
) -> tuple[NDArray, ...]:
    """Weigh against one component whose coefficients share a variance: K is diagonal."""
    K = noise + variance * rows.squares
    pull = away / K
    log = -0.5 * (np.log(K) + away * pull).sum(axis=1)
    mean = (rows.design.swapaxes(1, 2) @ pull[:, :, None])[:, :, 0]
    explained = rows.squares / K
    return (
        log,
        mean,
        0.5 * ((mean**2).sum(axis=1) - explained.sum(axis=1))[:, None],
        0.5 * (explained**2).sum(axis=1)[:, None],
        np.zeros((len(K), 1)),
        0.5 * (explained / K).sum(axis=1)[:, None],
        0.5 * (pull**2 - 1 / K).sum(axis=1),
        0.5 * (1 / K**2).sum(axis=1),
        rows.design,
        1 / np.sqrt(K),
    )


def _many_variances(
    rows: RotatedRows, away: NDArray, variance: NDArray, noise: float
) -> tuple[NDArray, ...]:
    """Weigh against one component whose coefficients have a variance each."""
    q = away.shape[1]
    K = (rows.design * variance) @ rows.design.swapaxes(1, 2) + noise * np.eye(q)
    root = np.linalg.cholesky(K)
    inverse = np.linalg.inv(root)  # of a triangle, well scaled: the noise bounds it
    white = inverse @ rows.design
    turned = inverse @ away[:, :, None]
    back = inverse.swapaxes(1, 2)
    mean = (white.swapaxes(1, 2) @ turned)[:, :, 0]
    own = (white**2).sum(axis=1)
    log = -0.5 * (turned**2).sum(axis=(1, 2))
    log -= np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1)
    return (
        log,
        mean,
        0.5 * (mean**2 - own),
        0.5 * own**2,
        0.5 * ((white * (white @ white.swapaxes(1, 2) @ white)).sum(axis=1) - own**2),
        0.5 * ((back @ white) ** 2).sum(axis=1),
        0.5 * (((back @ turned) ** 2).sum(axis=(1, 2)) - (inverse**2).sum(axis=(1, 2))),
        0.5 * ((inverse @ back) ** 2).sum(axis=(1, 2)),
        white,
        np.ones_like(away),
    )


def responsibilities(log: NDArray, weights: NDArray) -> tuple[NDArray, NDArray]:
    """Log marginal likelihood (n,) and probability of each component (n, k)."""
    from scipy.special import logsumexp

    with np.errstate(divide="ignore"):
        joint = log + np.log(weights)
    total = logsumexp(joint, axis=1)
    return total, np.exp(joint - total[:, None])


def information(evidence: Evidence, share: NDArray, grid: NDArray) -> NDArray:
    """Sum over clients of their information on the means, in units of the grid.

    Designs are rounded to whole multiples of ``1 / grid``. Sums of products of whole numbers are
    exact in floating point as long as they stay below 2**53, so that the result does not depend on
    how clients are divided into blocks. It aims steps, for which the rounding is nothing; where
    they end does not depend on it.

    Parameters
    ----------
    evidence : Evidence
    share : ndarray of shape (n, k)
        Responsibilities.
    grid : ndarray of shape (k, p)
        See `make_grid`.

    Returns
    -------
    ndarray of shape (1, k, p, p)
        A block's entry.
    """
    k, p = grid.shape
    sums = np.zeros((1, k, p, p))
    for out, design, scale, weight, fine in zip(
        sums[0], evidence.white, evidence.scale, share.T, grid, strict=True
    ):
        members = np.flatnonzero(weight > 1e-16)
        scale = scale * np.sqrt(weight)[:, None]
        # some clients at a time, whose figures stay in the processor's cache
        for place in np.split(members, range(CHUNK, len(members), CHUNK)):
            whole = design[place]
            whole *= scale[place, :, None]
            whole *= fine
            whole = np.rint(whole, out=whole).reshape(-1, p)
            out += whole.T @ whole
    return sums


def make_grid(size: NDArray, population: MixturePopulation, n_clients: int) -> NDArray:
    """Grids on which the products of all clients sum to less than 2**53, shape (k, p).

    The information of a client is at most ``X' X / noise`` and at most ``D^-1``.

    Parameters
    ----------
    size : ndarray of shape (p,)
        Largest norm of a column of one client's design.
    population : MixturePopulation
    n_clients : int
    """
    # a quarter of the room is for what rounding adds
    bits = np.floor((51 - np.log2(n_clients)) / 2)
    with np.errstate(divide="ignore"):
        own = np.sqrt(population.noise) / np.where(size > 0, size, np.inf)
    least = np.maximum(own, np.sqrt(population.variances))
    return 2.0**bits * np.where(least > 0, least, 1.0)
