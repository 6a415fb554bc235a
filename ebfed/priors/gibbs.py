"""Plausible Gaussian mixtures: draws from the posterior distribution of their parameters."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ebfed.likelihoods import Gaussian
from ebfed.priors.atom_draws import drawn_weights, lasting_order
from ebfed.priors.exploration import TILT

__all__ = ["mixture_draws"]

BURN_IN, THINNING = 50, 2  # steps of the sampler
N_NODES = 200  # standard deviations that are tried
FURTHEST = 10.0  # the largest of them, in standard deviations of the values
WIDTH = 0.05  # noise variances are rounded to powers of 1 + WIDTH


def mixture_draws(
    values: NDArray,
    noise: NDArray,
    start: tuple[NDArray, NDArray, NDArray],
    shared: bool,
    least: NDArray,
    size: int,
) -> tuple[NDArray, NDArray, NDArray]:
    r"""Draw parameters of a mixture of k Gaussians that noisy values leave plausible.

    A Gibbs sampler gives each client a component, then the components their weights, standard
    deviations and centres; clients' parameters are integrated out,

    .. math:: x_i \mid z_i = l \sim N(\mu_l, \mathrm{diag}(S_l + V_i)),

    so that standard deviations near zero are no trap. A standard deviation is drawn with its centre
    integrated out, on a lattice. The prior is, with m and s**2 mean and variance of the values (one
    s for all columns where these are `shared`), weights uniform on the simplex, centres ``N(m,
    s**2)`` and standard deviations half-Cauchy of scale s (Gelman 2006). A single component has the
    prior of `Normal`. Draws are always the same for the same values, and independent for a single
    component.

    Parameters
    ----------
    values : ndarray of shape (n, d)
    noise : ndarray of shape (n, d)
        Variances of the noise; infinite where a client has no value. For standard deviations and
        centres they are rounded to 5 %.
    start : tuple of ndarrays
        Weights (k,), centres (k, d) and variances (k, d) to start from.
    shared : bool
        Whether the columns of a component have one variance.
    least : ndarray of shape (d,)
        Lower bounds of the variances.
    size : int

    Returns
    -------
    weights : ndarray of shape (size, k)
    means, variances : ndarray of shape (size, k, d)

    References
    ----------
    Diebolt and Robert (1994), Estimation of finite mixture distributions through Bayesian sampling,
    J. R. Statist. Soc. B 56, 363-375; Gelman (2006), Prior distributions for variance parameters in
    hierarchical models.

    Examples
    --------
    >>> x = np.append(np.linspace(-6, -4, 20), np.linspace(4, 6, 30))[:, None]
    >>> start = np.array([0.4, 0.6]), np.array([[-5.0], [5.0]]), np.ones((2, 1))
    >>> weights, means, _ = mixture_draws(x, np.full((50, 1), 0.1), start, True, np.zeros(1), 200)
    >>> weights.mean(axis=0).round(1), means.mean(axis=0).ravel().round()
    (array([0.4, 0.6]), array([-5.,  5.]))
    """
    rng = np.random.default_rng(0)
    order = np.argsort(lasting_order(Gaussian(values, noise)), kind="stable")
    values, noise = values[order], noise[order]  # each keeps its random numbers
    has_data = np.isfinite(noise)
    values = np.where(has_data, values, 0.0)
    centre = np.average(values, axis=0, weights=has_data + 1e-300)
    square = np.average((values - centre) ** 2, axis=0, weights=has_data + 1e-300)
    square = np.full_like(square, square.mean()) if shared else square
    spread = np.sqrt(np.where(square > 0, square, np.median(noise[has_data])))
    sampler = _Sampler((values - centre) / spread, noise / spread**2, shared, least / spread**2)
    weights, means, variances = start
    mixture = weights, (means - centre) / spread, variances / spread**2
    k, draws = len(weights), []
    burn_in, thinning = (0, 1) if k == 1 else (BURN_IN, THINNING)
    for step in range(burn_in + thinning * size):
        mixture = sampler.step(mixture, rng)
        if step >= burn_in and (step - burn_in) % thinning == thinning - 1:
            draws.append(mixture)
    weights, means, variances = (np.array(each) for each in zip(*draws, strict=True))
    return weights, centre + spread * means, spread**2 * variances


class _Sampler:
    """Steps of the sampler, in units in which the values have mean 0 and variance 1."""

    def __init__(self, values: NDArray, noise: NDArray, shared: bool, least: NDArray):
        self._values, self._noise, self._shared = values, noise, shared
        self._has_data, self._least = np.isfinite(noise), least
        known = noise[self._has_data]
        typical = min(np.median(column[np.isfinite(column)]) for column in noise.T)
        self._typical = typical
        unit = max(0.3 * float(np.sqrt(typical)), 1e-4)
        low, high = np.arcsinh(np.sqrt(least.min()) / unit), np.arcsinh(FURTHEST / unit)
        self._unit, self._nodes = unit, np.linspace(low, high, N_NODES)
        # noise is rounded: then sums over clients are few, and reciprocals are taken once
        floor = np.maximum(known, 1e-8 * unit**2)
        codes = np.rint(np.log(floor) / np.log1p(WIDTH)).astype(np.int64)
        levels, place = np.unique(codes, return_inverse=True)
        self._rounded = (1 + WIDTH) ** levels
        self._places = np.zeros(noise.shape, np.int64)
        self._places[self._has_data] = place
        total = self._rounded + self._variance(self._nodes)[:, None]
        self._logs, self._precisions = np.log(total), 1 / total

    def _variance(self, node: NDArray) -> NDArray:
        return (self._unit * np.sinh(node)) ** 2

    def step(
        self, mixture: tuple[NDArray, NDArray, NDArray], rng: np.random.Generator
    ) -> tuple[NDArray, NDArray, NDArray]:
        """Draw components of clients, then weights, variances and centres."""
        k, (n, d) = len(mixture[0]), self._values.shape
        members = np.zeros(n, np.int64) if k == 1 else self._members(mixture, rng)
        weights = drawn_weights(1.0 + np.bincount(members, minlength=k), rng)
        firm = 1.0 if k > 1 else 0.0  # a single component has the prior of `Normal`
        sums = self._sums(members, k)
        log = self._log_density(sums, firm)
        if self._shared:
            log = log.sum(axis=1, keepdims=True)
        sd = self._unit * np.sinh(self._nodes)
        log += np.log(np.cosh(self._nodes)) - firm * np.log1p(sd**2)
        if k == 1:
            log += TILT * np.log(np.maximum(sd**2, 1e-12) / (sd**2 + self._typical))
        below = np.cumsum(np.exp(log - log.max(axis=2, keepdims=True)), axis=2)
        uniform = rng.random((*below.shape[:2], 1)) * below[:, :, -1:]
        picked = np.minimum((below < uniform).sum(axis=2), N_NODES - 1)
        width = self._nodes[1] - self._nodes[0]
        node = self._nodes[picked] + width * (rng.random(picked.shape) - 0.5)
        # in the first cell, half of it; and never a point
        variances = self._variance(np.maximum(np.abs(node), 1e-3 * width))
        variances = np.maximum(variances, self._least)
        precision = 1 / (self._rounded + variances[:, :, None])
        weight = (sums[0] * precision).sum(axis=2) + firm
        means = (sums[1] * precision).sum(axis=2) / weight
        return weights, means + rng.standard_normal((k, d)) / np.sqrt(weight), variances

    def _members(
        self, mixture: tuple[NDArray, NDArray, NDArray], rng: np.random.Generator
    ) -> NDArray:
        """Draw the component of each client, shape (n,)."""
        logs = []
        for weight, mean, variance in zip(*mixture, strict=True):
            total = np.where(self._has_data, self._noise + variance, 1.0)
            square = np.where(self._has_data, (self._values - mean) ** 2 / total, 0.0)
            logs.append(np.log(weight) - 0.5 * (square + np.log(total)).sum(axis=1))
        heights = np.exp(logs - np.max(logs, axis=0))
        below = np.cumsum(heights, axis=0)
        return (rng.random(below.shape[1]) * below[-1] > below).sum(axis=0)

    def _sums(self, members: NDArray, k: int) -> NDArray:
        """Numbers, sums and sums of squares of a component's values at each level, (3, k, d, L)."""
        d, n_levels = self._values.shape[1], len(self._rounded)
        sums = np.empty((3, k, d, n_levels))
        for j in range(d):
            place = members * n_levels + self._places[:, j]
            for which, each in enumerate((1.0, self._values[:, j], self._values[:, j] ** 2)):
                found = np.bincount(place, each * self._has_data[:, j], minlength=k * n_levels)
                sums[which, :, j] = found.reshape(k, n_levels)
        return sums

    def _log_density(self, sums: NDArray, firm: float) -> NDArray:
        """Log-likelihood of each standard deviation, its centre integrated out, (k, d, G)."""
        number, first, second = (each @ self._precisions.T for each in sums)
        logs = sums[0] @ self._logs.T
        weight = np.maximum(number + firm, 1e-300)
        return -0.5 * (logs + np.log(weight) + second - first**2 / weight)
