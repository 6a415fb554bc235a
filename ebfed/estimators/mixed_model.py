"""The linear mixed model, fitted by REML or ML to clients' triangular factors.

Client i's rows are ``y_i = X_i beta + Z_i u_i + e_i`` with ``u_i ~ N(0, sigma**2 T)`` and
``e_i ~ N(0, sigma**2 I)``; Z_i are those columns of X_i whose coefficients vary. With
``T = root root'`` and ``V_i = I + Z_i T Z_i'``, beta and sigma**2 are profiled out, and what is
left to minimise over `root` is (Bates, Maechler, Bolker, Walker, 2015, eqs. 35 and 42)

    sum_i log|V_i| + [log|H|] + dof (1 + log(2 pi Q / dof)),
    H = sum_i X_i' V_i^-1 X_i,   Q = sum_i (y_i - X_i beta)' V_i^-1 (y_i - X_i beta),

with log|H| and dof = N - rank for REML, without and dof = N for ML. All of it comes from the rows
whitened by the Cholesky factor of V_i: one pass of compiled code over the clients, and products of
matrices. The slope in T is, with Z~, X~, e~ whitened,

    sum_i Z~_i' Z~_i  -  [sum_i Z~_i' X~_i H^-1 X~_i' Z~_i]  -  dof / Q sum_i Z~_i' e~_i e~_i' Z~_i.

A root of zero is where a variance of zero lies: there the criterion is smooth and even in the
root, so that the boundary needs no care.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

__all__ = ["Fit", "fit_mixed_model"]

Covariance = Literal["spherical", "diag", "full"]

# No standard deviation is looked for beyond so many times that of the noise.
LARGEST_ROOT = 1e5


@dataclass
class Fit:
    """A fitted mixed model.

    Attributes
    ----------
    mean : ndarray of shape (p,)
        beta.
    mean_covariance : ndarray of shape (p, p)
    covariance : ndarray of shape (p, p)
        ``sigma**2 T``; zero for columns that do not vary.
    noise_variance : float
        ``sigma**2``.
    criterion : float
        -2 log-likelihood, restricted or not.
    path : list of float
        The criterion at each step.
    rank : int
        Of all clients' X together.
    """

    mean: NDArray
    mean_covariance: NDArray
    covariance: NDArray
    noise_variance: float
    criterion: float
    path: list[float]
    rank: int


def fit_mixed_model(
    rows: NDArray,
    n_rows: int,
    varying: NDArray,
    *,
    covariance: Covariance = "diag",
    method: Literal["reml", "ml"] = "reml",
    identified: bool = True,
) -> Fit:
    """Minimise the criterion.

    Parameters
    ----------
    rows : ndarray of shape (n_clients, r, p + 1)
        Factors of ``[X_i y_i]``; see `Factors`.
    n_rows : int
        Number of rows N that they stand for.
    varying : int64 ndarray of shape (q,)
        Columns whose coefficients vary.
    covariance : {"spherical", "diag", "full"}
        What T may be: a multiple of the identity, diagonal, or any.
    method : {"reml", "ml"}
    identified : bool
        Whether the spread can be told at all; taken to be zero if not.
    """
    problem = _Problem(rows, n_rows, varying, covariance, method)
    free = np.zeros(problem.size)
    path: list[float] = []
    if identified and problem.noisy and problem.size:
        free, path = problem.minimise()
    return problem.conclude(free, path)


class _Problem:
    """The criterion as a function of the free entries of the root.

    Clients lie along the last axis of all arrays; columns have unit mean square.
    """

    def __init__(
        self, rows: NDArray, n_rows: int, varying: NDArray, covariance: Covariance, method: str
    ):
        from ebfed.kernels.factors import BATCH

        self.n_clients, r, width = rows.shape
        self.rows = np.zeros((width, r, -(-self.n_clients // BATCH) * BATCH))
        self.rows[:, :, : self.n_clients] = rows.transpose(2, 1, 0)
        q = len(varying)
        scale = np.sqrt(np.einsum("pim,pim->p", self.rows, self.rows) / max(n_rows, 1))
        if covariance == "spherical" and q:  # the columns that vary share a unit
            scale[varying] = np.sqrt(np.mean(scale[varying] ** 2))
        self.scale = np.where(scale > 0, scale, 1.0)
        self.rows /= self.scale[:, None, None]
        self.n_rows, self.varying = n_rows, varying
        self.covariance, self.restricted = covariance, method == "reml"
        self.p = len(self.rows) - 1
        self.lower = np.tril_indices(q)
        self.size = {"spherical": min(q, 1), "diag": q, "full": len(self.lower[0])}[covariance]
        flat = self.rows.reshape(self.p + 1, -1)
        self.basis = _basis((flat @ flat.T)[:-1, :-1])
        self.rank = self.basis.shape[1]
        left_over = n_rows - self.rank
        self.dof = max(left_over if self.restricted else n_rows, 1)
        self.white = np.zeros_like(self.rows)
        self.last: tuple[NDArray, _Profile] | None = None
        self.pooled = self.whiten(np.zeros((q, q)))
        # what rounding leaves of a perfect fit is no noise
        self.noisy = left_over > 0 and self.pooled.quadratic > 1e-24 * n_rows**2

    def root(self, free: NDArray) -> NDArray:
        """Lower triangular root of T."""
        q = len(self.varying)
        root = np.zeros((q, q))
        if self.covariance == "full":
            root[self.lower] = free
        else:
            np.fill_diagonal(root, free)
        return root

    def whiten(self, root: NDArray) -> _Profile:
        """Whiten the rows, and solve for beta."""
        from ebfed.kernels import whiten

        if self.last is not None and np.array_equal(root, self.last[0]):
            return self.last[1]
        if root.any():
            log_det = whiten(self.rows, self.varying, root, self.white)
        else:
            self.white[:], log_det = self.rows, 0.0
        white = self.white.reshape(self.p + 1, -1)
        products = white @ white.T
        chol = np.linalg.cholesky(self.basis.T @ products[:-1, :-1] @ self.basis)
        half = np.linalg.inv(chol) @ self.basis.T
        right = half @ products[:-1, -1]
        beta = half.T @ right
        quadratic = products[-1, -1] - right @ right
        if quadratic < 1e-6 * products[-1, -1]:  # few digits are left of the difference
            residual = white[-1] - beta @ white[:-1]
            quadratic = residual @ residual
        value = log_det
        if self.restricted:
            value += 2 * np.log(np.diag(chol)).sum()
        profile = _Profile(value, products, half, beta, max(float(quadratic), 1e-300))
        self.last = root, profile
        return profile

    def value(self, profile: _Profile) -> float:
        """The criterion."""
        noise = 2 * np.pi * profile.quadratic / self.dof
        return profile.log_det + self.dof * (1 + np.log(noise))

    def slope(self, profile: _Profile) -> NDArray:
        """Slope of the criterion in T, at the rows that were whitened last."""
        from ebfed.kernels import square_products

        X, Z = self.white[:-1], self.white[self.varying]
        slope = profile.products[np.ix_(self.varying, self.varying)]
        if self.restricted:
            hat = (profile.half @ X.reshape(self.p, -1)).reshape(-1, *X.shape[1:])
            squares, products = square_products(Z, hat, self.covariance == "full")
            slope = slope - (
                products if self.covariance == "full" else np.diag(squares.sum(axis=1))
            )
        residual = self.white[-1] - (profile.beta @ X.reshape(self.p, -1)).reshape(X.shape[1:])
        scores = (Z * residual).sum(axis=1)
        return slope - self.dof / profile.quadratic * scores @ scores.T

    def of_free(self, slope: NDArray, root: NDArray) -> NDArray:
        """Slope in the free entries of the root, from that in T."""
        by_root = 2 * slope @ root
        if self.covariance == "full":
            return by_root[self.lower]
        if self.covariance == "diag":
            return np.diag(by_root)
        return np.atleast_1d(np.trace(by_root))

    def minimise(self) -> tuple[NDArray, list[float]]:
        """Two steps of Fisher scoring from zero, then descent by a quasi-Newton method."""

        def criterion(free: NDArray) -> tuple[float, NDArray]:
            root = self.root(free)
            profile = self.whiten(root)
            return self.value(profile), self.of_free(self.slope(profile), root)

        variance = self.score(self.pooled, np.zeros(len(self.varying)))
        variance = self.score(self.whiten(np.diag(np.sqrt(variance))), variance)
        first = np.sqrt(variance)
        # Columns of different sizes that share a variance, or few clients, may give several minima.
        sizes = np.ones(1)
        if self.covariance == "spherical":
            sizes = np.append(1.0, np.geomspace(1e-3, 1e3, 13) / first[0])
        elif self.n_clients < 200:
            sizes = np.geomspace(0.1, 100, 7)
        if len(sizes) > 1:
            best = min(sizes, key=lambda size: self.value(self.whiten(np.diag(size * first))))
            first = best * first

        # to some 1e-5 of the variances, whose errors are about 1 / sqrt(n_clients) of them
        tolerance = min(1e-12 * self.n_clients**2, 1e-6)
        free = first[:1] if self.covariance == "spherical" else first
        free = np.diag(first)[self.lower] if self.covariance == "full" else free
        free, path = descend(criterion, free, lambda: self.metric(first), LARGEST_ROOT, tolerance)
        # a root on its way to zero arrives there slowly
        at_zero = np.where(np.abs(free) < 1e-2 * np.abs(free).max(initial=1.0), 0.0, free)
        if not at_zero.all() and criterion(at_zero)[0] <= path[-1] + tolerance:
            free = at_zero
        return free, path

    def score(self, profile: _Profile, variance: NDArray) -> NDArray:
        """One step of Fisher scoring for a diagonal T, from the rows that were whitened last."""
        curvature, slope = self.curvature(), np.diag(self.slope(profile))
        if self.covariance == "spherical":
            step = np.full(len(variance), slope.sum() / curvature.sum())
            curvature = np.full_like(curvature, curvature.sum())
        else:
            step = np.linalg.lstsq(curvature, slope, rcond=1e-10)[0]
        bend = np.diag(curvature)
        least = np.divide(0.1, np.sqrt(bend), out=np.zeros_like(bend), where=bend > 0)
        return np.maximum(variance - step, least)

    def curvature(self) -> NDArray:
        """Expected curvature of the criterion in the diagonal of T, at the rows whitened last.

        It is ``sum_i (Z~_i' Z~_i)_jk**2``, less what sharing sigma**2 takes away.
        """
        from ebfed.kernels import square_products

        Z = self.white[self.varying]
        curvature, _ = square_products(Z, Z, False)
        shared = np.einsum("qim,qim->q", Z, Z)
        return curvature - np.outer(shared, shared) / self.n_rows

    def metric(self, root: NDArray) -> NDArray:
        """About the inverse curvature in the free entries of a diagonal root."""
        curvature = self.curvature()
        if self.covariance == "spherical":
            curvature, root = np.atleast_2d(curvature.sum()), root[:1]
        bend = np.where(np.diag(curvature) > 0, np.diag(curvature), 1.0)
        whole = 4 * np.outer(root, root) * curvature
        # near zero a root bends as its fourth power
        whole[np.diag_indices(len(root))] = np.maximum(np.diag(whole), np.sqrt(bend))
        if self.covariance != "full":
            unit = np.sqrt(np.diag(whole))
            values, vectors = np.linalg.eigh(whole / np.outer(unit, unit))
            # where columns say the same, their variances are hard to tell apart
            return (vectors / np.maximum(values, 1e-3)) @ vectors.T / np.outer(unit, unit)
        side = np.sqrt(bend)
        units = np.maximum(root**2 * side, 1.0) * side[:, None]
        np.fill_diagonal(units, np.diag(whole))
        return np.diag(1 / units[self.lower])

    def conclude(self, free: NDArray, path: list[float]) -> Fit:
        """Put the optimum into the units of the data."""
        root = self.root(free)
        profile = self.whiten(root)
        units, unit = self.scale[:-1], self.scale[-1]
        spread = np.zeros((self.p, self.p))
        spread[np.ix_(self.varying, self.varying)] = root @ root.T
        noise = profile.quadratic / self.dof if self.noisy else 0.0
        shape = unit**2 * noise / np.outer(units, units)
        offset = np.nan
        if self.noisy:
            offset = 2 * self.dof * np.log(unit)
            if self.restricted and self.rank == self.p:
                # X in its own units; where it has no full rank, in those of its basis
                offset += 2 * np.log(units).sum()
        return Fit(
            mean=unit * profile.beta / units,
            mean_covariance=shape * (profile.half.T @ profile.half),
            covariance=shape * spread,
            noise_variance=float(unit**2 * noise),
            criterion=float(self.value(profile) + offset),
            path=[value + offset for value in path],
            rank=self.rank,
        )


@dataclass
class _Profile:
    """Figures of the whitened rows.

    Attributes
    ----------
    log_det : float
        Sum of ``log|V_i|``, for REML with ``log|H|``.
    products : ndarray of shape (p + 1, p + 1)
        Of ``[X y]`` whitened.
    half : ndarray of shape (rank, p)
        ``H^-1 = half' half``.
    beta : ndarray of shape (p,)
    quadratic : float
        Q.
    """

    log_det: float
    products: NDArray
    half: NDArray
    beta: NDArray
    quadratic: float


def descend(
    function: Callable[[NDArray], tuple[float, NDArray]],
    x: NDArray,
    metric: Callable[[], NDArray],
    limit: float,
    tolerance: float,
) -> tuple[NDArray, list[float]]:
    """Minimise by the quasi-Newton method of Broyden, Fletcher, Goldfarb and Shanno.

    Parameters
    ----------
    function : callable
        Returns value and slope.
    x : ndarray of shape (k,)
    metric : callable
        About the inverse of the second derivatives at x, asked for when the function has been
        evaluated there; where they are right, steps are Newton's.
    limit : float
        How far from zero an entry may go.
    tolerance : float
        Stop where a quadratic would fall by half of this.

    Returns
    -------
    x : ndarray of shape (k,)
    path : list of float
        Values, falling.
    """
    value, slope = function(x)
    path, inverse = [value], metric()
    for _ in range(1000):
        step = -inverse @ slope
        fall = -slope @ step  # twice what a quadratic has left to fall
        if fall < max(tolerance, 1e-13 * abs(value)):
            break
        length = 1.0
        while True:
            candidate = np.clip(x + length * step, -limit, limit)
            reached, there = function(candidate)
            if reached <= value - 1e-4 * length * fall or length < 1e-10:
                break
            length /= 2
        if reached >= value:  # rounding is all that is left
            break
        moved, turned = candidate - x, there - slope
        x, value, slope = candidate, reached, there
        path.append(value)
        if (along := moved @ turned) > 1e-12 * np.sqrt(moved @ moved * (turned @ turned)):
            update = np.eye(len(x)) - np.outer(moved, turned) / along
            inverse = update @ inverse @ update.T + np.outer(moved, moved) / along
    if fall > 1e-4 + 1e-12 * abs(value):
        warnings.warn(
            f"the variances did not converge: the criterion may fall by another {fall / 2:.2g}.",
            ConvergenceWarning,
            stacklevel=3,
        )
    return x, path


def _basis(products: NDArray) -> NDArray:
    """Directions of the coefficients that X tells, shape (p, rank)."""
    size = np.sqrt(np.diag(products))
    size = np.where(size > 0, size, 1.0)
    values, vectors = np.linalg.eigh(products / np.outer(size, size))
    told = values > 1e-11 * max(values.max(initial=0.0), 1e-300)
    if told.all():
        return np.eye(len(products))
    return vectors[:, told] / size[:, None]
