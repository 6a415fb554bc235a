"""Gaussian mixture: clusters of parameters, each with a centre and a spread of its own."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from ebfed.kernels import mixture_quantiles
from ebfed.kernels.threads import one_thread
from ebfed.likelihoods import Gaussian, Likelihood, join
from ebfed.likelihoods.base import parts_of
from ebfed.priors.base import Prior
from ebfed.priors.gibbs import mixture_draws
from ebfed.priors.mixture_em import (
    Mixture,
    SortedMessages,
    climb,
    levels,
    log_joint,
    log_sum,
    start,
)
from ebfed.priors.n_components import check_n_components, choose, to_try
from ebfed.priors.posterior import Posterior, normal_below

__all__ = ["GaussianMixture"]

# Below this share of the variance of all values, noise no longer keeps a component from collapsing.
LEAST = 1e-4
MOST_STEPS = 5000  # of EM
MOST_OF_START = 1000  # distinct messages, for each component, that a start is found from
BLOCK = 1_000_000  # components of posteriors that are in memory at a time
FEW = 4000  # clients up to which what is not known of the population matters
NEEDLE = 1e-3  # share of the population's sd below which a component is as good as a point


@dataclass(eq=False, repr=False)
class GaussianMixture(Prior):
    """Population ``theta ~ sum_l w_l N(mu_l, diag(S_l))``.

    Fitted to Gaussian messages ``x_i ~ N(theta_i, V_i)``, with variances V_i that may differ
    between clients and coordinates, by EM for their exact marginal likelihood

        sum_i log sum_l w_l N(x_i; mu_l, S_l + V_i).

    Components are what is missing, theta is integrated out: given the responsibilities, centres
    are precision-weighted means and each variance takes steps of Fisher scoring, or where these
    would lose likelihood the step of EM with theta missing too. The noise bounds the likelihood, so
    that a variance of zero is a normal answer: all clients of that component are alike. Where the
    noise is less than `LEAST` of the variance of all values, it no longer does, and variances of
    components are kept above that.

    Parameters
    ----------
    n_components : int, "bic" or "heldout"
        Number of components, or how it is chosen from 1 to `max_components`: the least BIC, or the
        largest likelihood of clients that were held out; see `ebfed.priors.n_components`.
    covariance : {"spherical", "diag"}
        Whether the columns of a component share one variance or have one each.
    max_components : int
    n_plausible : int
        Number of plausible mixtures to draw, by `gibbs.mixture_draws`, where there are at most 4000
        clients; they have as many components as the fitted one, whose number is taken as known. All
        draws take as long as 50 to 150 steps of EM. 0: the fitted mixture is taken as known.
    n_init : int
        Number of starts of EM (k-means++); the likeliest is kept.
    random_state : int, Generator or None
        Seed of the starts.

    Attributes
    ----------
    weights_ : ndarray of shape (k,)
    means_, variances_ : ndarray of shape (k, d)
        Means and variances of the components, sorted by the means.
    mean_, variance_ : ndarray of shape (d,)
        Mean and variance of the population.
    path_ : ndarray
        Log-likelihood before each step of EM; it never falls.
    criterion_ : ndarray
        For each number of components that was tried: its BIC, or with ``"heldout"`` minus twice the
        log-likelihood of held-out clients.

    References
    ----------
    Dempster, Laird and Rubin (1977); Bovy, Hogg and Roweis (2011), Extreme deconvolution, on noisy
    observations; Arthur and Vassilvitskii (2007), k-means++; Schwarz (1978), BIC.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> theta = rng.normal([[0.0, 5.0]], [[1.0, 2.0]], (500, 2)).ravel()
    >>> messages = Gaussian(rng.normal(theta, 0.5)[:, None], np.full((1000, 1), 0.25))
    >>> prior = GaussianMixture(2, random_state=0).fit(messages)
    >>> prior.weights_.round(2), prior.means_.ravel().round(1)
    (array([0.49, 0.51]), array([-0.1,  4.9]))
    """

    n_components: int | Literal["bic", "heldout"] = "bic"
    covariance: Literal["spherical", "diag"] = "spherical"
    _: KW_ONLY
    max_components: int = 10
    n_init: int = 8
    n_plausible: int = 50
    random_state: Any = None

    max_features: ClassVar[float] = np.inf
    couples_columns: ClassVar[bool] = True
    _by_column = ("means_", "variances_")

    def accepts(self, likelihood: Likelihood) -> bool:
        """Messages with Gaussian noise; reports that a channel clips or rounds are for Discrete."""
        return all(isinstance(part, Gaussian) for part in parts_of(likelihood))

    @property
    def centres_(self) -> NDArray:
        """Centres of the components, shape (k, d)."""
        return self.means_

    @property
    def spreads_(self) -> NDArray:
        """Variances of the components, shape (k, d)."""
        return self.variances_

    def logpdf(self, theta: NDArray) -> NDArray:
        """Log-density at theta of shape (k, d), shape (k,); infinite at a component of no width."""
        terms = np.log(self.weights_) - 0.5 * np.log(2 * np.pi) * len(self.mean_)
        away = (theta[:, None, :] - self.means_) ** 2
        with np.errstate(divide="ignore", invalid="ignore"):
            heights = -0.5 * (np.log(self.variances_) + away / self.variances_)
        point = np.where(away == 0, np.inf, -np.inf)
        return log_sum(terms + np.where(self.variances_ > 0, heights, point).sum(axis=2))

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        rng = np.random.default_rng(random_state)
        component = rng.choice(len(self.weights_), size, p=self.weights_)
        noise = rng.standard_normal((size, len(self.mean_)))
        return self.means_[component] + np.sqrt(self.variances_[component]) * noise

    def points(self) -> tuple[NDArray, NDArray]:
        """Means and weights of the components, where all are as good as points."""
        if np.all(self.variances_ < NEEDLE**2 * self.variance_):
            return self.means_[:, 0], self.weights_
        return super().points()

    def grid(self, low: float, high: float) -> NDArray:
        """Add places within each component."""
        away = np.sqrt(self.variances_) * np.linspace(-4, 4, 81)
        at = np.union1d(super().grid(low, high), self.means_ + away)
        return at[(at >= low) & (at <= high)]

    # Fitting ----------------------------------------------------------------------------------

    def _fit(self, likelihood: Likelihood) -> None:
        if self.covariance not in ("spherical", "diag"):
            raise ValueError(f"covariance must be 'spherical' or 'diag'; got {self.covariance!r}.")
        if not isinstance(self.n_plausible, int | np.integer) or self.n_plausible < 0:
            raise ValueError(f"n_plausible must be a number >= 0; got {self.n_plausible!r}.")
        rows, counts = _distinct(join(parts_of(self._settled(likelihood))))
        d = likelihood.n_features
        if not len(rows):
            self._add_note("No client has data: the population is unknown.", True)
            self.path_, self.criterion_ = np.zeros(1), np.zeros(1)
            self._set(Mixture(np.ones(1), np.zeros((1, d)), np.zeros((1, d))), free=0)
            return
        # in units of the data, squares stay within range
        share = counts / counts.sum()
        centre = share @ rows.values
        unit = np.sqrt(np.mean(share @ (rows.values - centre) ** 2))
        unit = unit if unit > 0 else 1.0
        shared = self.covariance == "spherical"
        scaled = (rows.values - centre) / unit
        table = SortedMessages.of(scaled, rows.variances / unit**2, counts, shared)
        generator = np.random.default_rng(self.random_state)
        rng = np.random.RandomState(generator.integers(2**31))

        def n_free(k: int) -> int:
            return k * (1 + d + (1 if self.covariance == "spherical" else d)) - 1

        least = self._least(table)

        def fit(k: int, counts: NDArray) -> tuple[Mixture, NDArray]:
            """Keep the likeliest of several short runs of EM, and go on until it hardly climbs."""
            whole = table.weighted(counts)
            some, n = whole, len(whole.counts)
            k = min(k, n)
            if n > (most := MOST_OF_START * k):
                some = whole.take(np.sort(rng.choice(n, most, replace=False)))
            starts = [
                climb(some, start(some, k, shared, least, rng), shared, least, 1e-6, 30)
                for _ in range(self.n_init if k > 1 else 1)
            ]
            best, _ = max(starts, key=lambda run: run[1][-1])
            return climb(whole, best, shared, least, 1e-10, MOST_STEPS)

        def log_marginal(mixture: Mixture) -> NDArray:
            return log_sum(log_joint(table.values, table.noise, table.level, mixture))

        check_n_components(self.n_components, self.max_components)
        numbers = to_try(self.n_components, self.max_components, rows.values)
        with one_thread():
            mixture, path, self.criterion_ = choose(
                *numbers, fit, log_marginal, n_free, table.counts, generator
            )
        path = path - d * counts.sum() * np.log(unit)
        self.criterion_ += 2 * d * counts.sum() * np.log(unit)
        if len(path) == MOST_STEPS:
            warnings.warn(
                f"EM for GaussianMixture stopped after {MOST_STEPS} steps, still gaining.",
                ConvergenceWarning,
                stacklevel=4,
            )
        self.path_ = path
        fitted = Mixture(
            mixture.weights, centre + unit * mixture.means, unit**2 * mixture.variances
        )
        self._set(fitted, free=n_free(len(fitted.weights)))
        if 1 < counts.sum() <= FEW and self.n_plausible:
            self._find_later(GaussianMixture._learn_plausible, rows, counts, least * unit**2)

    def _learn_plausible(self, rows: Gaussian, counts: NDArray, least: NDArray) -> None:
        """Draw mixtures of as many components that the messages leave plausible."""
        each = np.repeat(np.arange(len(rows)), counts.astype(int))
        values = rows.values[each]
        noise = np.broadcast_to(rows.variances[each], values.shape)
        start, shared = (self.weights_, self.means_, self.variances_), self.covariance != "diag"
        draws = mixture_draws(values, noise, start, shared, least, self.n_plausible)
        self.plausible_ = dict(zip(("weights_", "means_", "variances_"), draws, strict=True))
        shares = np.full((self.n_plausible, values.shape[1]), 1 / self.n_plausible)
        self.plausible_["weights"] = shares

    def _take(self, weights_: NDArray, means_: NDArray, variances_: NDArray) -> None:
        self._set(Mixture(weights_, means_, variances_), 0)

    def _set(self, mixture: Mixture, free: int) -> None:
        order = np.lexsort(mixture.means.T[::-1])
        self.weights_, self.means_, self.variances_ = (part[order] for part in mixture)
        self.mean_ = self.weights_ @ self.means_
        self.variance_ = self.weights_ @ (self.variances_ + (self.means_ - self.mean_) ** 2)
        self.n_parameters_ = free

    def _least(self, table: SortedMessages) -> NDArray:
        """Least variance of a component in each column: 0 where there is noise enough."""
        spread = table.counts @ table.values**2 / table.counts.sum()
        alike = len(table.noise) == 1
        noise = table.noise[0] if alike else np.median(table.noise[table.level], axis=0)
        if self.covariance == "spherical":  # columns of one variance are guarded together
            spread, noise = (np.full_like(x, x.mean()) for x in (spread, noise))
        return np.maximum(LEAST * spread - noise, 0.0)

    # Posteriors -------------------------------------------------------------------------------

    def _posterior(self, likelihood: Likelihood) -> Posterior:
        """Mixture of Gaussians for Gaussian messages; quadrature for reports on one coordinate."""
        if not isinstance(likelihood, Gaussian):
            return super()._posterior(likelihood)
        return GaussianMixturePosterior(self, likelihood)

    def responsibilities(self, likelihood: Likelihood) -> NDArray:
        """Probability that each client belongs to each component, shape (n, k)."""
        joint = self._log_joint(likelihood)
        # a message that is impossible in all components has no information on them
        joint[np.isneginf(joint).all(axis=1)] = np.log(self.weights_)
        return np.exp(joint - log_sum(joint)[:, None])

    def log_marginal(self, likelihood: Likelihood) -> NDArray:
        """``log sum_l w_l N(x_i; mu_l, S_l + V_i)``, shape (n,)."""
        check_is_fitted(self, "mean_")
        if not isinstance(likelihood, Gaussian):
            return super().log_marginal(likelihood)
        return log_sum(self._log_joint(likelihood))

    def _log_joint(self, likelihood: Likelihood) -> NDArray:
        assert isinstance(likelihood, Gaussian)
        noise, level = levels(likelihood.variances)
        # a value known exactly, of a component of no width, is to be met almost exactly
        floor = 1e-12 * self.variance_.max() or 1e-300
        mixture = Mixture(self.weights_, self.means_, self.variances_)
        return log_joint(likelihood.values, np.maximum(noise, floor), level, mixture)

    def _nodes(self, likelihood: Likelihood, low: float, high: float) -> NDArray:
        """Nodes of the likelihood, and of each component."""
        away = np.sqrt(self.variances_) * np.linspace(-9, 9, 201)
        own = np.union1d(np.linspace(low, high, self.n_nodes), self.means_ + away)
        return np.union1d(likelihood.nodes(self.n_nodes), own)[:, None]

    def _log_masses(self, atoms: NDArray) -> NDArray:
        """Density times width of the cell around each node; a component of no width is one node."""
        at, sd = atoms, np.sqrt(self.variances_[:, 0])
        wide = sd > 0
        away = (at - self.means_[wide, 0]) / sd[wide]
        heights = np.exp(-0.5 * away**2) / (np.sqrt(2 * np.pi) * sd[wide])
        masses = np.gradient(at[:, 0]) * (heights @ self.weights_[wide])
        masses += (at == self.means_[~wide, 0]) @ self.weights_[~wide]
        with np.errstate(divide="ignore"):
            return np.log(masses)


def _distinct(likelihood: Likelihood) -> tuple[Gaussian, NDArray]:
    """Distinct messages, sorted, and how many clients sent each."""
    assert isinstance(likelihood, Gaussian)
    first = likelihood.values[:, 0]
    order = np.argsort(first)
    if likelihood.n_features > 1 and np.all(np.diff(first[order]) > 0):  # no two are equal
        has_data = np.isfinite(likelihood.variances) & (likelihood.variances > 0)
        rows = likelihood.take(order[has_data.all(axis=1)[order]])
        variances = np.broadcast_to(rows.variances, rows.values.shape)
        return Gaussian(rows.values, variances), np.ones(len(rows))
    rows, counts = likelihood.compress()
    return rows, counts


class GaussianMixturePosterior(Posterior):
    """``sum_l r_il N(m_il, diag(a_il V_i))``, a mixture of Gaussians for each client.

    With ``a_il = S_l / (S_l + V_i)``, ``m_il = mu_l + a_il (x_i - mu_l)`` and ``r_il`` the client's
    responsibilities. The population is taken as known.

    Parameters
    ----------
    prior : GaussianMixture
    likelihood : Gaussian of n clients
    """

    _has_points = True

    def __init__(self, prior: GaussianMixture, likelihood: Gaussian):
        self.likelihood = likelihood
        self.responsibilities = prior.responsibilities(likelihood)
        self._means, self._variances = prior.means_, prior.variances_
        mean = sum(share * mean for share, mean, _ in self._components())
        known = likelihood.exact
        self.mean = mean if known is None else np.where(np.isnan(known), mean, known)
        square = sum(
            share * (sd**2 + (mean - self.mean) ** 2) for share, mean, sd in self._components()
        )
        self.sd = np.sqrt(square)

    def _components(self) -> Iterator[tuple[NDArray, NDArray, NDArray]]:
        """Responsibility (n, 1), mean and sd (n, d) of each component."""
        values = self.likelihood.values
        noise = np.broadcast_to(self.likelihood.variances, values.shape)
        for share, mean, variance in zip(
            self.responsibilities.T, self._means, self._variances, strict=True
        ):
            # a value known exactly is itself, whatever the component
            total = np.where(noise > 0, noise + variance, 1.0)
            own = np.where(noise > 0, variance / total, 1.0)
            sd = np.sqrt(np.where(noise > 0, variance * (1 - own), 0.0))
            yield share[:, None], np.where(noise > 0, mean + own * (values - mean), values), sd

    def _quantile_together(self, parts: Sequence[Posterior], weights: NDArray, q: float) -> NDArray:
        """Quantiles of the mixture of all components of all parts."""
        result = np.empty(self.mean.shape)
        n, k = self.responsibilities.shape
        for place in np.array_split(np.arange(n), 1 + n * k * len(parts) // BLOCK):
            found: list[list[NDArray]] = [[], [], []]
            for part, weight in zip(parts, weights, strict=True):
                assert isinstance(part, GaussianMixturePosterior)
                for share, mean, sd in part._components():
                    figures = (weight * share)[place], mean[place], sd[place]
                    for each, own in zip(found, figures, strict=True):
                        each.append(own)
            shares, means, sds = (np.array(each) for each in found)
            centre = (shares * means).sum(axis=0)
            spread = np.sqrt((shares * (sds**2 + (means - centre) ** 2)).sum(axis=0))
            sides, none = np.zeros(len(shares), np.int64), np.zeros(shares.shape[:2])
            for j in range(self.mean.shape[1]):
                moments = centre[:, j].copy(), spread[:, j].copy()
                share, mean, sd = (each[:, :, j].copy() for each in (shares, means, sds))
                result[place, j] = mixture_quantiles(q, *moments, share, mean, sd, none, sides)
        return result

    def _prob_to(self, threshold: ArrayLike, sign: int = 1) -> NDArray:
        at, parts = np.asarray(threshold), self._components()
        return sum(share * normal_below(sign * (at - mean), sd) for share, mean, sd in parts)

    def _quantile(self, q: float) -> NDArray:
        if 0 < q < 1:
            return self._quantile_together([self], np.ones((1, *self.mean.shape)), q)
        side = 1.0 if q else -1.0
        ends = [mean + np.where(sd > 0, side * np.inf, 0.0) for _, mean, sd in self._components()]
        return side * np.max(side * np.array(ends), axis=0)

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        """Draw whole parameters, coordinates together, shape (size, n, d)."""
        rng = np.random.default_rng(random_state)
        below = np.cumsum(self.responsibilities, axis=1)[:, :-1]
        picked = (rng.random((size, len(self), 1)) > below).sum(axis=2)
        draws = rng.standard_normal((size, *self.mean.shape))
        result = np.empty_like(draws)
        for j, (_, mean, sd) in enumerate(self._components()):
            result = np.where((picked == j)[:, :, None], mean + sd * draws, result)
        return result
