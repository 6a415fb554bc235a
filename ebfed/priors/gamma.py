"""Gamma population of rates of events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, ClassVar

import numpy as np
from numpy.polynomial.chebyshev import chebfit, chebval
from numpy.typing import NDArray
from scipy.special import log_expit, polygamma, psi

from ebfed.likelihoods import Likelihood, NegativeBinomial, Poisson
from ebfed.likelihoods.counting import POISSON
from ebfed.priors import negative_binomial
from ebfed.priors.conjugate import ByColumn, Update
from ebfed.priors.count_regression import GammaRegression
from ebfed.priors.exploration import TILT, explore
from ebfed.priors.search import maximise
from ebfed.priors.two_moments import POINT_MASS, GammaDistribution

__all__ = ["Gamma", "log_likelihood_of_overdispersed", "maximise_overdispersed", "shape_of"]

LogLikelihood = Callable[[NDArray, NDArray], NDArray]


class Gamma(ByColumn):
    """Population ``lambda ~ Gamma(shape a, mean mu)``.

    Its density is ``(a/mu)**a lambda**(a-1) exp(-a lambda/mu) / Gamma(a)``, its variance ``mu**2 /
    a``; several columns of rates have independent populations. Fitted to counts ``y_i ~ Poisson(E_i
    lambda_i)`` by maximum likelihood of the negative binomial in mean and overdispersion ``phi =
    1/a >= 0``, with ``M_i = E_i mu``,

        sum_i [sum_{j<y_i} log(1 + j phi) + y_i log M_i - (y_i + 1/phi) log(1 + phi M_i)
               - log y_i!],

    a form that is exact down to ``phi = 0``, where all groups have one rate.

    With covariates, client i comes from a gamma of mean ``mu_i``, ``log mu_i = w_i' beta``, and the
    same shape: negative binomial regression, which at ``phi = 0`` is Poisson regression.

    Where the spread is not known well, posteriors average over plausible populations, under a prior
    of Beta(.7, .7) for ``b = E / (E + a/mu)``, a group's weight of its own rate at the average
    exposure E, that is flat in the square root of means of less than an event and in the logarithm
    of larger ones. With covariates it is Beta(.7, 1), at the average number of events, and, given
    phi, Jeffreys' in beta.

    Parameters
    ----------
    mean, shape : float, optional
        Known parameters, both or neither; estimated if None.

    Attributes
    ----------
    shape_ : ndarray of shape (d,)
        Shape; infinite where the spread is zero.
    mean_, variance_ : ndarray of shape (d,)
    mean_variance_, variance_variance_ : ndarray of shape (d,)
        Sampling variances of `mean_` and `variance_`.
    coefficients_, coefficient_errors_ : ndarray of shape (1 + k, d)
        Intercept and coefficients of covariates for the log of the mean, and standard errors.
        `mean_` and `variance_` are then those at average covariates.

    References
    ----------
    Greenwood and Yule (1920), An inquiry into the nature of frequency distributions; Lawless
    (1987), Negative binomial and mixed Poisson regression.

    Examples
    --------
    >>> counts = Poisson(np.array([[0], [2], [9], [4]]), np.array([1.0, 1.0, 2.0, 2.0]))
    >>> prior = Gamma().fit(counts)
    >>> prior.mean_.round(2), prior.shape_.round(2)
    (array([2.35]), array([4.83]))
    >>> prior.posterior(counts).mean.ravel().round(2)
    array([1.58, 2.24, 3.41, 2.18])
    """

    support: ClassVar[tuple[float, float]] = (0.0, np.inf)
    n_nodes: ClassVar[int] = 1600  # cells of roots are uneven: more of them for the same error
    messages, kind, regression = Poisson, GammaDistribution, GammaRegression
    arguments, unknown = ("mean", "shape"), (1.0, 1.0)
    words: ClassVar[dict[str, str]] = {
        "nothing": "No client has data: the population is unknown, taken as 1.",
        "messages": "counts as they are, not for reports of rates",
        "alike": "Estimated overdispersion is zero",
        "noise": "Poisson noise",
        "pooled": "the pooled rate",
        "regression": "that of a Poisson regression",
        "separated": "groups with events from groups without",
    }

    _by_column = (*ByColumn._by_column, "shape_")

    def __init__(self, mean: float | None = None, shape: float | None = None):
        self.mean = mean
        self.shape = shape

    def parameters(self, j: int = 0) -> dict[str, float]:
        """Return the shape of coordinate j."""
        return {"shape": float(self.shape_[j])}

    # The population -----------------------------------------------------------------------------

    def parameters_of(self, first: float, second: float) -> tuple[float, float]:
        """Return mean and overdispersion of mean and shape."""
        return float(first), 1 / second

    def _set(self, mean: NDArray, dispersion: NDArray) -> None:
        super()._set(mean, dispersion)
        with np.errstate(divide="ignore"):
            self.shape_ = 1 / self.dispersion_

    # Fitting ------------------------------------------------------------------------------------

    def likeliest(self, rows: Poisson, counts: NDArray) -> tuple[float, float]:
        """Return mean and overdispersion of greatest likelihood."""
        return negative_binomial.maximise(rows, counts)

    def doubts(self, j: int, rows: Poisson, counts: NDArray) -> tuple[float, float]:
        mean = self.mean_[j]
        if not mean > 0:
            return 0.0, 0.0
        # Var(y / E) = (M + phi M**2) / E**2 in units of the mean, with E = M / mean
        relative = 1 / (rows.exposure * mean) + self.dispersion_[j]
        precise = (counts / relative).sum(), (counts / relative**2).sum()
        return mean**2 / precise[0], 2 * mean**4 / precise[1]

    def unidentified(self, j: int, rows: Poisson, estimate: str) -> str:
        """Return why the spread of column j is not identified; empty if it is."""
        if self.mean_[j] > 0:
            return ""
        return (
            "There are no events: the spread of the population is not identified and taken to be "
            "zero."
        )

    def at_average(self, rows: Poisson, ratios: NDArray) -> Poisson:
        return Poisson(rows.counts, rows.exposure * ratios)

    def trials_of_reports(self, rows: Likelihood) -> tuple[NDArray, NDArray, NDArray]:
        """Return means and overdispersions near which the best may be, and the ends of both."""
        means = rows.nodes(60)[1::3]
        dispersions = np.array([0.0, 0.01, 0.05, 0.2, 0.5, 1.0, 3.0])
        return means, dispersions, np.array([[1e-9 * means[0], 0.0], [1e3 * means[-1], 1e4]])

    def likeliest_of_reports(self, rows: Likelihood, counts: NDArray) -> tuple[NDArray, NDArray]:
        """Return mean and overdispersion that fit reports best, and their covariance."""
        if isinstance(rows, NegativeBinomial):
            return maximise_overdispersed(rows, counts)
        return super().likeliest_of_reports(rows, counts)

    def plausible(
        self, rows: Any, counts: NDArray, mean: float, dispersion: float
    ) -> tuple[NDArray, NDArray]:
        """Find plausible means and overdispersions; see `Gamma` for their prior."""
        if isinstance(rows, Poisson):
            log_likelihood = negative_binomial.log_likelihood_of(rows, counts)
        elif isinstance(rows, NegativeBinomial):
            log_likelihood = log_likelihood_of_overdispersed(rows, counts)
        else:

            def log_likelihood(mean: NDArray, dispersion: NDArray) -> NDArray:
                points = np.column_stack([mean, dispersion])
                return self._log_likelihood_of_reports(rows, counts, points)

        return _plausible(log_likelihood, rows, counts, mean, dispersion)

    def _start(self, rows: Likelihood, counts: NDArray) -> None:
        self._set(np.array([np.median(rows.nodes(self.n_nodes))]), np.ones(1))

    def _m_step(self, atoms: NDArray, masses: NDArray) -> None:
        """Maximum likelihood of a gamma given expected lambda and log lambda."""
        share = masses / masses.sum()
        mean = float(share @ atoms[:, 0])
        gap = np.log(mean) - float(share @ np.log(atoms[:, 0]))
        self._set(np.array([mean]), np.array([1 / shape_of(gap)]))

    # Using --------------------------------------------------------------------------------------

    def update_of(self, likelihood: Poisson) -> Update:
        """Return moments of ``Gamma(a + y_i, rate a/mu + E_i)``.

        The mean is ``b_i y_i/E_i + (1-b_i) mu`` with ``b_i = E_i / (E_i + a/mu)``. What is not
        known of the population adds ``(1 - b_i)**2 (Var(mean) + 2 Var(variance) / v_i)``, ``v_i``
        the variance of a group's own rate.
        """
        # in units of the mean: finite where the population is a point, or at zero
        mean, finite = self.mean_, np.minimum(self.shape_, POINT_MASS)
        expected = likelihood.exposure[:, None] * mean
        total = finite + expected
        weight = expected / total
        found = mean * (finite + likelihood.counts) / total
        some, positive = mean > 0, np.where(mean > 0, mean, 1.0)
        by_mean = np.where(some, (1 - weight) ** 2, 0.0)
        # (1 - b)**2 / v, in a form that holds without exposure
        by_variance = 2 * by_mean * expected / (positive**2 * (1 + expected / finite))
        return Update(found, found * mean / total, weight, by_mean, by_variance)


def shape_of(gap: float) -> float:
    """Shape of the gamma variable whose log of E exceeds E of log by a positive `gap`.

    It solves ``log a - psi(a) = gap`` by Newton's method.

    Examples
    --------
    >>> float(round(shape_of(0.5772156649015329), 9))
    1.0
    """
    shape = (3 - gap + np.sqrt((gap - 3) ** 2 + 24 * gap)) / (12 * gap)
    for _ in range(20):
        step = (np.log(shape) - psi(shape) - gap) / (1 / shape - polygamma(1, shape))
        shape = max(shape - step, shape / 2)
        if abs(step) < 1e-12 * shape:
            break
    return shape


def _plausible(
    log_likelihood: LogLikelihood,
    rows: Likelihood,
    counts: NDArray,
    mean: float,
    dispersion: float,
) -> tuple[NDArray, NDArray]:
    """Find means and overdispersions that the messages leave plausible, and their probabilities.

    The weight of a group's own rate at the average exposure E, ``b = E / (E + shape / mean)``, has
    the prior Beta(.7, .7) (Christiansen and Morris, 1997, have one flat in b). Where groups differ
    little, it is flat in their standard deviation, times ``b**(1/5)``; where they differ much, a
    smaller second number would leave means open without any event. The prior is flat in the square
    root of the mean where less than an event is expected, and in its logarithm where more are. The
    posterior is proper without any event. For reports, E is the exposure in which one event is
    expected. The search begins at the likeliest `mean` and `dispersion`.
    """
    if isinstance(rows, Poisson):
        events, exposure = float(counts @ rows.counts[:, 0]), float(counts @ rows.exposure)
        centre, reach = np.log((events + 0.5) / exposure), np.inf
        typical = np.log(exposure / counts.sum())
    else:
        nodes = rows.nodes(60)
        # reports beyond the range of nodes are all clipped and exclude nothing
        centre, reach = float(np.log(np.median(nodes))), 7.0
        typical = -centre

    def log_density(points: NDArray) -> NDArray:
        log_mean, logit = points.T  # of b
        values = log_likelihood(np.exp(log_mean), np.exp(logit - typical - log_mean))
        # densities of the logarithm of the mean, and of the logit of b
        values += 0.5 * log_expit(typical + log_mean)
        values += (0.5 + TILT) * (log_expit(logit) + log_expit(-logit))
        return np.where(np.abs(log_mean - centre) <= reach, values, -np.inf)

    # the search begins where the density is positive
    log_mean = np.clip(
        np.log(mean) if mean > 0 else centre, centre - 0.9 * reach, centre + 0.9 * reach
    )
    logit = np.log(dispersion) + typical + log_mean if dispersion > 0 else -2.0
    points, weights = explore(log_density, [log_mean, logit])
    log_means, logits = points.T
    return np.exp(np.column_stack([log_means, logits - typical - log_means])), weights


# Dispersions from which the search may start, beside that of moments.
STARTS = (0.0, 0.05, 1.0)
# Step of integrals, in widths of integrands.
FINE = 0.5
# Of the likelihood of other populations: such steps; relative error of a mean that is known well,
# dispersions at which it is found then, and errors of the dispersion up to the largest of these.
SMOOTH, WELL, N_NODES, FAR = 0.75, 0.02, 10, 10.0
# Dispersion beyond which none is plausible.
HIGHEST = 1e4
# Dispersions below lose digits in derivatives: these are then by differences.
LEAST = 1e-6


def maximise_overdispersed(rows: NegativeBinomial, times: NDArray) -> tuple[NDArray, NDArray]:
    """Mean and dispersion of greatest likelihood of a gamma population, and their covariance.

    Parameters
    ----------
    rows : NegativeBinomial of n different messages on one coordinate
    times : ndarray of shape (n,)
        How many clients have each.

    Returns
    -------
    point : ndarray of shape (2,)
    covariance : ndarray of shape (2, 2)

    Examples
    --------
    >>> counts = np.array([[0], [2], [9], [4], [30]])
    >>> rows = NegativeBinomial(counts, np.ones(5), np.full((5, 1), 4.0))
    >>> maximise_overdispersed(rows, np.ones(5))[0].round(3)
    array([9.192, 1.409])
    """
    mean = max(float(times @ rows.counts[:, 0]), 0.5) / float(times @ rows.exposure)
    starts = [*STARTS, _moments(rows, times, mean)]
    integrals = lru_cache(maxsize=1)(partial(_integrals, rows))

    def height(mean: float, dispersion: float) -> float:
        found = integrals(mean, dispersion, FINE)
        return float(times @ rows.gamma_marginal(mean, dispersion, found))

    dispersion = max(starts, key=lambda phi: _rough(rows, times, mean, phi))
    unit = np.array([mean, dispersion + 0.05]) / 3

    def derivatives(x: NDArray) -> tuple[NDArray, NDArray] | None:
        mean, dispersion = map(float, x)
        if 0 < dispersion < LEAST:
            return None
        if dispersion == 0:
            return _without_spread(rows, times, mean)
        return _derivatives(
            times @ integrals(mean, dispersion, FINE), times.sum(), mean, dispersion
        )

    low, high = np.array([1e-9 * mean, 0.0]), np.array([1e3 * mean, 1e4])
    start = np.array([mean, dispersion])
    return maximise(lambda x: height(*map(float, x)), start, low, high, derivatives, unit)


def log_likelihood_of_overdispersed(
    rows: NegativeBinomial, times: NDArray
) -> Callable[[NDArray, NDArray], NDArray]:
    """Log-likelihood of means and dispersions, shape (k,) each, up to a constant.

    Where the mean is known well, it is found at some dispersions only, with its derivatives in the
    mean at the best one. In the mean it is then close to ``A log(mean) - C mean``, as of Poisson
    counts; A, C and the height are polynomials in between, of ``log(1 + dispersion / noise)`` with
    the noise of rates in units of their squared mean, as it bends over that.
    """
    (mean, dispersion), covariance = maximise_overdispersed(rows, times)

    def exact(means: NDArray, dispersions: NDArray) -> NDArray:
        return np.array(
            [
                times @ rows.gamma_marginal(one, phi, _integrals(rows, one, phi, SMOOTH))
                for one, phi in zip(means, dispersions, strict=True)
            ]
        )

    def figures(phi: float) -> NDArray:
        """Height, A and C at a dispersion."""
        found = rows.gamma_integrals(mean, phi, SMOOTH)
        height = times @ rows.gamma_marginal(mean, phi, found)
        slope, second = _derivatives(times @ found, times.sum(), mean, phi)
        events = -(mean**2) * second[0, 0]
        return np.array([height, events, events / mean - slope[0]])

    expected, sizes = rows.exposure * mean, rows._finite[:, 0]
    noise = float(times.sum() / (times @ (expected / (1 + expected / sizes))))
    highest = dispersion + FAR * np.sqrt(covariance[1, 1])
    known = covariance[0, 0] < (WELL * mean) ** 2
    if not dispersion > 0:  # the likelihood falls from there on, whatever its curvature there
        top, highest = exact(np.array([mean]), np.zeros(1))[0], FAR**2 * noise / times.sum()
        while (found := figures(highest))[0] > top - FAR**2 / 2 and highest < HIGHEST:
            highest *= 2
        known = found[1] > 1 / WELL**2
    if not known:
        return exact

    furthest = np.log1p(highest / noise)
    line = np.cos((np.arange(N_NODES) + 0.5) * np.pi / N_NODES)
    at = noise * np.expm1(furthest * (1 + line) / 2)
    table = chebfit(line, [figures(phi) for phi in at], N_NODES - 1)

    def log_likelihood(means: NDArray, dispersions: NDArray) -> NDArray:
        inside = np.minimum(dispersions, highest)
        height, events, exposure = chebval(2 * np.log1p(inside / noise) / furthest - 1, table)
        height = height + events * np.log(means / mean) - exposure * (means - mean)
        return height - FAR**2 * (dispersions - inside) / highest

    return log_likelihood


def _moments(rows: NegativeBinomial, times: NDArray, mean: float) -> float:
    """Dispersion by the method of moments, not negative."""
    expected, sizes = rows.exposure * mean, rows.sizes[:, 0]
    noise = expected * (1 + expected / sizes)
    excess = times @ ((rows.counts[:, 0] - expected) ** 2 - noise)
    return max(float(excess / (times @ (expected**2 * (1 + 1 / sizes)))), 0.0)


def _rough(rows: NegativeBinomial, times: NDArray, mean: float, dispersion: float) -> float:
    """Log-likelihood as if counts were negative binomial of their mean and variance."""
    sizes = np.minimum(rows.sizes, POISSON)
    sizes = 1 / (1 / sizes + dispersion * (1 + 1 / sizes))
    return float(times @ replace(rows, sizes=sizes).logpdf(np.array([[mean]]))[:, 0])


def _integrals(
    rows: NegativeBinomial, mean: float, dispersion: float, step: float
) -> NDArray | None:
    """Integrals over a population that is no point."""
    return rows.gamma_integrals(mean, dispersion, step) if dispersion > 0 else None


def _without_spread(rows: NegativeBinomial, times: NDArray, mean: float) -> tuple[NDArray, NDArray]:
    """Return what `_derivatives` does, where all rates are the mean.

    If g is the likelihood at x times the mean over that at x = 1, with derivatives ``g_k`` there,
    the log-likelihood is ``phi g_2 / 2 + phi**2 (g_3 / 3 + g_4 / 8 - g_2**2 / 8)`` above that
    without spread, from the moments phi, ``2 phi**2`` and ``3 phi**2`` of ``x - 1``.
    """
    y, sizes = rows.counts[:, 0].astype(float), np.minimum(rows.sizes[:, 0], POISSON)
    expected = rows.exposure * mean
    share, total = expected / (expected + sizes), (y + sizes)
    one, two, three, four = (
        (-1) ** k * factor * (total * share**k - y)
        for k, factor in ((1, 1), (2, 1), (3, 2), (4, 6))
    )
    g_2 = two + one**2
    g_3 = three + 3 * one * two + one**3
    g_4 = four + 4 * one * three + 3 * two**2 + 6 * one**2 * two + one**4
    mixed = two + three / 2 + one * (one + two)
    by_mean, by_both = times @ one / mean, times @ mixed / mean
    bent = times @ (2 * g_3 / 3 + (g_4 - g_2**2) / 4)
    slope = np.array([by_mean, times @ g_2 / 2])
    return slope, np.array([[times @ two / mean**2, by_both], [by_both, bent]])


def _derivatives(
    sums: NDArray, n: float, mean: float, dispersion: float
) -> tuple[NDArray, NDArray]:
    """Slope and second derivatives of the log-likelihood in mean and dispersion.

    From sums of the integrals of n clients.

    The log-density of theta has the derivatives ``a x / mean`` in the mean and ``log a - psi(a) -
    v`` in the shape a, with x and v of `negative_binomial_gamma`; second derivatives of the
    log-likelihood are means of second derivatives, and covariances of first ones (Louis, 1982).
    """
    a = 1 / dispersion
    _, x, v, var_x, var_v, both = sums
    by_shape = n * (np.log(a) - psi(a)) - v
    slope = np.array([a * x / mean, -(a**2) * by_shape])
    mixed = -(a**2) * (x - a * both) / mean
    second = np.array(
        [
            [(a**2 * var_x - a * (n + 2 * x)) / mean**2, mixed],
            [mixed, a**4 * (n * (1 / a - polygamma(1, a)) + var_v) + 2 * a**3 * by_shape],
        ]
    )
    return slope, second
