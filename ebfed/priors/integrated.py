"""Posteriors over several plausible populations: what is not known of the population included."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri, softmax, stdtr, stdtrit

from ebfed.likelihoods import Binomial, Gaussian, Likelihood, StudentT, join
from ebfed.likelihoods.lattice import Lattice
from ebfed.priors.discrete_posterior import DiscretePosterior, SeveralDiscrete
from ebfed.priors.exploration import thinned
from ebfed.priors.narrow import NarrowPosterior
from ebfed.priors.posterior import IndependentNormals, Posterior

__all__ = [
    "FlatStudentPosterior",
    "IntegratedPosterior",
    "InterpolatedPosterior",
    "RepeatedPosterior",
    "SeparatePosteriors",
    "integrated",
    "of_distinct",
    "quantile_between",
    "several",
]

# Populations that a posterior by quadrature averages over.
FEW = 12
# Where reports were noisy: the mean squared error of estimates may exceed that of local estimates
# by the share TOLERANCE, and by more in populations of probability RARELY.
TOLERANCE, RARELY = 0.02, 0.1
# Error of the probability at a quantile.
PRECISION = 1e-9
# Spread of a value that is known, by rounding, relative to the value.
ROUNDING = 1e-14


def integrated(prior: Any, likelihood: Likelihood, fitted: Posterior, *own: Any) -> Posterior:
    """Average a posterior over the populations that are plausible beside a fitted one.

    Parameters
    ----------
    prior : Prior, fitted
    likelihood : Likelihood of n clients
    fitted : Posterior
        ``prior._posterior(likelihood, *own)``.
    *own
        What posteriors under other populations depend on besides.

    Returns
    -------
    Posterior
        `fitted` itself where the population is known.
    """
    is_open = prior.spread_is_unknown_ or prior.noise_is_unknown_
    if isinstance(likelihood, Gaussian | StudentT) and is_open:
        of_any: Any = _with_any_noise if prior.noise_is_unknown_ else _with_any_spread
        found = IntegratedPosterior(fitted, partial(of_any, prior, likelihood))
        found._has_points = False  # these posteriors have densities
        return found
    if not prior._has_others:
        return fitted
    towards = None
    # rates of events may have populations so wide that no line is near the averages
    if prior.averages_ and not likelihood.is_noisy and isinstance(likelihood, Binomial | Gaussian):
        populations, weights = prior.populations()
        towards = likelihood.local, _caution(populations, weights, likelihood)
    # a partial function, as a local one cannot be pickled
    parts = partial(_parts, prior, likelihood, isinstance(fitted, DiscretePosterior), *own)
    if isinstance(fitted, NarrowPosterior):
        parts = partial(_narrow_parts, prior, likelihood)
    return IntegratedPosterior(fitted, parts, prior.averages_, towards)


def _parts(
    prior: Any, likelihood: Likelihood, by_quadrature: bool, *own: Any
) -> tuple[Sequence[Posterior], NDArray]:
    """Posteriors under the plausible populations, and the probabilities of these."""
    populations, weights = prior.populations()
    if by_quadrature and not prior._mixes(likelihood):
        # by quadrature each takes as long as the fitted one: a few, of all sizes
        sizes = np.array([one.variance_[0] for one in populations])
        numbered = np.column_stack([sizes, np.arange(len(sizes))])
        kept, times = thinned(numbered, weights[:, 0], FEW)
        some = [populations[int(k)] for k in kept[:, 1]]
        shares = _shares(prior, some, times[:, None], likelihood)
        return [several(some, shares, likelihood)], np.ones((1, 1, 1))
    shares = _shares(prior, populations, weights, likelihood)
    if prior._mixes(likelihood):
        return [prior._mixed(populations, shares, likelihood)], np.ones((1, 1, 1))
    return [one._posterior(likelihood, *own) for one in populations], shares


def _narrow_parts(prior: Any, likelihood: Likelihood) -> tuple[Sequence[Posterior], NDArray]:
    """Posterior of narrow messages under the average of the plausible populations."""
    populations, weights = prior.populations()
    shares = _shares(prior, populations, weights, likelihood)[:, :, 0]
    around = prior._around(likelihood, populations, shares)
    return [NarrowPosterior(likelihood, around)], np.ones((1, 1, 1))


def several(populations: Sequence[Any], shares: NDArray, likelihood: Likelihood) -> Posterior:
    """Average posteriors on grids of one coordinate; shares have shape (K, 1 or n, 1)."""
    grids = [one._grid(likelihood) for one in populations]
    each = shares[:, 0, 0] if shares.shape[1] == 1 else shares[:, :, 0]
    return SeveralDiscrete(grids, each, likelihood)


def _shares(
    prior: Any, populations: Sequence[Any], weights: NDArray, likelihood: Likelihood
) -> NDArray:
    """Probability of each population for each client and coordinate, (K, 1 or n, 1 or d).

    Where messages were noisy reports, clients' own data say more of the population than these did.
    """
    whole = prior.couples_columns
    if not prior.averages_:
        return weights[:, None, :1] if whole else weights[:, None, :]
    columns = []
    for j in range(1 if whole else likelihood.n_features):
        own = likelihood if whole else likelihood.column(j)
        each = populations if whole else [one.column(j) for one in populations]
        with np.errstate(divide="ignore", over="ignore"):
            log_weights = np.log(weights[:, [j]])
            logs = np.array([one.log_marginal(own) for one in each]) + log_weights
        # data so far from all populations that squares overflow do not tell these apart
        beyond = np.isneginf(logs).all(axis=0)
        logs[:, beyond] = log_weights
        columns.append(softmax(logs, axis=0))
    return np.stack(columns, axis=2)


def _caution(populations: Sequence[Any], weights: NDArray, likelihood: Likelihood) -> NDArray:
    r"""Share of local estimates with which averages over populations do little harm, (n, d).

    An average moves the local estimate x to about ``x - b (x - mu)``, where b and ``b mu`` are
    averages of ``v_k / (v_k + tau_k**2)`` and of this times mu_k: population k has mean mu_k and
    variance tau_k**2, and v_k is the variance of x around theta there. A share s leaves
    ``(1 - s) b`` of the move. Then the mean squared error in population k is

        ``v_k - 2 (1 - s) b v_k + ((1 - s) b)**2 D_k,   D_k = v_k + tau_k**2 + (mu_k - mu)**2.``

    The share is the least with which it exceeds ``(1 + TOLERANCE) v_k`` in no more populations than
    have the probability `RARELY`.
    """
    shares = np.zeros((len(likelihood), likelihood.n_features))
    for j in range(likelihood.n_features):
        means, variances = np.array([[one.mean_[j], one.variance_[j]] for one in populations]).T
        own, weight = likelihood.column(j), weights[:, min(j, weights.shape[1] - 1)]
        # clients whose estimates have the same variance have the same share
        of_one = own.sampling_variance(float(weight @ means), float(weight @ variances))
        _, first, place = np.unique(of_one, return_index=True, return_inverse=True)
        own = own.take(first)
        noise = np.array(
            [own.sampling_variance(*pair) for pair in zip(means, variances, strict=True)]
        )
        with np.errstate(invalid="ignore", divide="ignore"):
            pull = noise / (noise + variances[:, None])
            move = weight @ pull
            centre = (weight * means) @ pull / move
            error = noise + variances[:, None] + (means[:, None] - centre) ** 2
            limits = (noise + np.sqrt(noise**2 + TOLERANCE * noise * error)) / error
            order = np.argsort(limits, axis=0)
            below = np.cumsum(weight[order], axis=0)
            at = np.argmax(below > RARELY, axis=0)
            limit = np.take_along_axis(np.take_along_axis(limits, order, 0), at[None], 0)[0]
            shares[:, j] = (1 - np.clip(np.nan_to_num(limit / move, nan=1.0), 0.0, 1.0))[place]
    return shares


def _with_any_spread(
    prior: Any, likelihood: Gaussian | StudentT
) -> tuple[Sequence[Posterior], NDArray]:
    """Posteriors where the population may have any spread: what the own data say, no more."""
    if isinstance(likelihood, StudentT):
        return [FlatStudentPosterior(likelihood, prior.mean_)], np.ones((1, 1, 1))
    variances = np.broadcast_to(likelihood.variances, likelihood.values.shape)
    values = np.where(np.isfinite(variances), likelihood.values, prior.mean_)
    return [IndependentNormals(values, np.sqrt(variances))], np.ones((1, 1, 1))


def _with_any_noise(prior: Any, likelihood: Gaussian) -> tuple[Sequence[Posterior], NDArray]:
    """Posteriors where noise may be any share of the variance of the values, all as likely.

    One value alone has any variance.
    """
    total = np.full(prior.variance_.shape, np.inf) if prior.n_seen_ < 2 else prior.variance_
    has_data = np.isfinite(np.broadcast_to(likelihood.variances, likelihood.values.shape))
    away = np.where(has_data, likelihood.values, prior.mean_) - prior.mean_
    nodes, weights = np.polynomial.legendre.leggauss(9)
    parts = []
    for noise in (1 + nodes) / 2:
        mean = prior.mean_ + np.where(has_data, 1 - noise, 1.0) * away
        variance = np.where(has_data, noise, 1.0) * (1 - noise) * total
        parts.append(IndependentNormals(mean, np.sqrt(variance)))
    return parts, (weights / 2)[:, None, None]


class IntegratedPosterior(Posterior):
    r"""Posterior of clients whose population is one of several, with known probabilities.

    .. math:: p(\theta_i \mid \text{data}) = \sum_k w_{ki}\, p(\theta_i \mid x_i, \gamma_k)

    with :math:`\gamma_k` the parameters of population k, and :math:`w_{ki}` its probability given
    the messages (Kass and Steffey, 1989). `sd`, quantiles, probabilities and draws are those of
    this mixture. `mean` is the estimate under the fitted population, unless `averages`; then it is
    the mean of the mixture, as `expectation` always is, or lies between it and `towards`.

    Parameters
    ----------
    fitted : Posterior of n clients
        Posterior under the fitted population.
    parts : callable
        Function without arguments, called when it is needed. It returns the K posteriors under the
        plausible populations, and the probabilities of these: an array that broadcasts to shape
        (K, n, d). With shape (K, ..., 1) a draw is of one population for all coordinates.
    averages : bool
        Whether estimates are averages over the populations too.
    towards : tuple of ndarrays of shape (n, d), optional
        Local estimates, NaN where there are none, and their share in such averages. Where reports
        say little of the population, averages depend on the reference prior: over its populations
        they are best, but for some, such as rare events, local estimates are better.

    References
    ----------
    Kass and Steffey (1989), Approximate Bayesian inference in conditionally independent
    hierarchical models, J. Amer. Statist. Assoc. 84, 717-726.

    Examples
    --------
    >>> from ebfed.likelihoods import Gaussian
    >>> from ebfed.priors import Normal
    >>> x = Gaussian(np.array([[0.0], [4.0]]), np.full((2, 1), 1.0))
    >>> narrow, wide = (Normal.known(np.full(1, v), 2.0).posterior(x) for v in (0.0, 3.0))
    >>> posterior = IntegratedPosterior(
    ...     narrow, lambda: ([narrow, wide], np.full((2, 1, 1), 0.5))
    ... )
    >>> posterior.mean.ravel(), posterior.expectation.ravel(), posterior.sd.ravel().round(2)
    (array([2., 2.]), array([1.25, 2.75]), array([0.97, 0.97]))
    """

    def __init__(
        self,
        fitted: Posterior,
        parts: Callable[[], tuple[Sequence[Posterior], NDArray]],
        averages: bool = False,
        towards: tuple[NDArray, NDArray] | None = None,
    ):
        self._fitted, self._make, self._averages = fitted, parts, averages
        self._has_points = fitted._has_points
        self.likelihood = getattr(fitted, "likelihood", None)
        self.mean = self.expectation if averages else fitted.mean
        if averages and towards is not None:
            local, share = towards
            self.mean = self.mean + share * np.where(np.isnan(local), 0.0, local - self.mean)
        self.weight = None if averages else fitted.weight

    @cached_property
    def _mixture(self) -> tuple[Sequence[Posterior], NDArray]:
        """Posteriors, and the weight of each for each client and coordinate, shape (K, n, d)."""
        parts, weights = self._make()
        self._n_picks = weights.shape[-1]
        return parts, np.broadcast_to(weights, (len(parts), *self._fitted.mean.shape))

    def _average(self, figures: Callable[[Posterior], NDArray]) -> NDArray:
        """Average over the populations of figures of shape (n, d)."""
        total = np.zeros(self._fitted.mean.shape)
        for part, weight in zip(*self._mixture, strict=True):
            total += weight * figures(part)
        return total

    def of_estimates(self, figures: Callable[[Posterior], NDArray]) -> NDArray:
        """Figures of the fitted population, or averages over all of them, as estimates are."""
        return self._average(figures) if self._averages else figures(self._fitted)

    @cached_property
    def expectation(self) -> NDArray:
        """Mean of each client's mixture, shape (n, d)."""
        return self._average(lambda part: part.mean)

    @cached_property
    def sd(self) -> NDArray:  # type: ignore[override]
        """Standard deviation of each client's mixture, shape (n, d)."""
        centre = self.expectation
        sd = np.sqrt(self._average(lambda part: part.sd**2 + (part.mean - centre) ** 2))
        return np.where(sd > ROUNDING * np.abs(centre), sd, 0.0)

    def _quantile(self, q: float) -> NDArray:
        parts, weights = self._mixture
        if len(parts) == 1:
            return parts[0].quantile(q)
        found = parts[0]._quantile_together(parts, weights, q) if 0 < q < 1 else None
        if found is not None:
            return found
        ends = [part.quantile(q) for part in parts]
        possible = weights > 0
        low = np.min(np.where(possible, ends, np.inf), axis=0)
        high = np.max(np.where(possible, ends, -np.inf), axis=0)
        return quantile_between(lambda x: self._prob_to(x) - q, low, high)

    def _prob_to(self, threshold: ArrayLike, sign: int = 1) -> NDArray:
        return np.clip(self._average(lambda part: part._prob_to(threshold, sign)), 0.0, 1.0)

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        """Draw `size` values of each client's parameter, shape (size, n, d).

        Where all clients have the same probabilities of populations, each draw is of one population
        for all of them.
        """
        rng = np.random.default_rng(random_state)
        parts, _ = self._mixture
        picked = self._picks(size, rng)
        draws = np.empty((size, *self._fitted.mean.shape))
        for k, part in enumerate(parts):
            chosen = picked == k
            most = int(chosen.sum(axis=0).max(initial=0))
            own = part.sample(most, rng) if most else draws[:0]
            if picked.shape[1] < draws.shape[1]:  # one population for all clients
                for j, of_draws in enumerate(chosen[:, 0].T):
                    draws[of_draws, :, j] = own[: of_draws.sum(), :, j]
            elif most:
                place = np.maximum(np.cumsum(chosen, axis=0) - 1, 0)
                draws[chosen] = np.take_along_axis(own, place, axis=0)[chosen]
        return draws

    def _picks(self, size: int, rng: np.random.Generator) -> NDArray[np.int32]:
        """Draw a population for each draw, shape (size, 1, d), or draw and client, (size, n, d)."""
        _, weights = self._mixture
        below = np.cumsum(weights, axis=0)
        if (below == below[:, :1]).all():
            below = below[:, :1]
        uniform = rng.random((size, below.shape[1], self._n_picks))
        picked = np.zeros((size, *below.shape[1:]), np.int32)
        for each in below[:-1]:
            picked += uniform > each
        return picked

    def interval(
        self, level: float = 0.95, kind: Literal["eb", "robust"] = "eb"
    ) -> tuple[NDArray, NDArray]:
        """Interval of the mixture; a robust one is no narrower than under the fitted population."""
        if kind == "eb":
            return super().interval(level)
        low, high = self._fitted.interval(level, kind)
        lower, upper = super().interval(level)
        return np.minimum(lower, low), np.maximum(upper, high)


def quantile_between(excess: Callable[[NDArray], NDArray], low: NDArray, high: NDArray) -> NDArray:
    """Root of an increasing function in each entry, by Ridders' method; a jump is a root too.

    The function differs from a probability by a constant. Ends that are infinite or equal are
    returned as they are.
    """
    open_ = np.isfinite(low) & np.isfinite(high) & (low < high)
    if not open_.any():
        return np.where(np.isfinite(high), high, low)
    left, right = np.where(open_, low, 0.0), np.where(open_, high, 0.0)
    at_left, at_right = excess(left), excess(right)
    root = np.where(at_left >= 0, left, right)
    done = ~open_ | (at_left >= 0)
    tolerance = 1e-12 * np.maximum(np.abs(left), np.abs(right)) + 1e-9 * (right - left)
    for _ in range(60):
        middle = left + (right - left) / 2
        at_middle = excess(middle)
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = np.sqrt(at_middle**2 - at_left * at_right)
            guess = middle + (middle - left) * at_middle / slope * np.sign(at_left - at_right)
        guess = np.where((guess > left) & (guess < right), guess, middle)
        at_guess = excess(guess)
        for x, value in ((middle, at_middle), (guess, at_guess)):
            inside = (x > left) & (x < right)
            up, down = inside & (value >= 0), inside & (value < 0)
            right, at_right = np.where(up, x, right), np.where(up, value, at_right)
            left, at_left = np.where(down, x, left), np.where(down, value, at_left)
        root = np.where(done, root, np.where(np.abs(at_guess) < PRECISION, guess, right))
        done |= (np.abs(at_guess) < PRECISION) | (right - left <= tolerance)
        if done.all():
            break
    return np.where(open_, root, np.where(np.isfinite(high), high, low))


class FlatStudentPosterior(Posterior):
    """Posterior under a population of any spread: ``x_i + scale_i T``; `mean` without an estimate.

    Parameters
    ----------
    likelihood : StudentT of n clients
    mean : ndarray of shape (1,)
        Mean of the population.

    Examples
    --------
    >>> x = StudentT(np.array([[3.0]]), np.array([[4.0]]), np.array([2.0]))
    >>> [end.round(1).item() for end in FlatStudentPosterior(x, np.zeros(1)).interval()]
    [-5.6, 11.6]
    """

    def __init__(self, likelihood: StudentT, mean: NDArray):
        variances = likelihood.variances
        self.mean = np.where(np.isfinite(variances), likelihood.values, mean)
        self._scale, self._degrees = np.sqrt(variances), likelihood.degrees[:, None]
        with np.errstate(invalid="ignore", divide="ignore"):
            more = np.where(np.isinf(self._degrees), 1.0, self._degrees / (self._degrees - 2))
            self.sd = np.where(self._degrees > 2, self._scale * np.sqrt(more), np.inf)
        self.sd = np.where(variances == 0, 0.0, self.sd)

    def _quantile(self, q: float) -> NDArray:
        finite = np.where(np.isinf(self._degrees), 1.0, self._degrees)
        # SciPy's quantile of 0 is the upper end
        of_t = stdtrit(finite, q) if q > 0 else -np.inf
        unit = np.where(np.isinf(self._degrees), ndtri(q), of_t)
        with np.errstate(invalid="ignore"):  # infinity times zero
            reach = unit * self._scale
        return self.mean + np.where(np.isnan(reach), 0.0, reach)

    def _prob_to(self, threshold: ArrayLike, sign: int = 1) -> NDArray:
        distance = sign * (np.asarray(threshold) - self.mean)
        with np.errstate(divide="ignore", invalid="ignore"):
            z = distance / self._scale
        finite = np.where(np.isinf(self._degrees), 1.0, self._degrees)
        below = np.where(np.isinf(self._degrees), ndtr(z), stdtr(finite, z))
        return np.where(self._scale > 0, below, distance >= 0)

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        rng = np.random.default_rng(random_state)
        finite = np.where(np.isinf(self._degrees), 1.0, self._degrees)
        squares = rng.chisquare(finite, (size, *self.mean.shape)) / finite
        squares = np.where(np.isinf(self._degrees), 1.0, squares)
        return self.mean + self._scale * rng.standard_normal(squares.shape) / np.sqrt(squares)


# Fewer clients are as fast one by one.
FEWEST_CLIENTS = 10_000
# Errors of interpolation, in standard errors.
NEARNESS = 1e-5


def of_distinct(posterior: Callable[[Likelihood], Posterior], likelihood: Likelihood) -> Posterior:
    """Compute posteriors of clients, for fewer than all if that is worth it.

    Of those that have the same data it is once; of many estimates with t errors, at nodes.

    Parameters
    ----------
    posterior : callable
        Function from a likelihood to posteriors, of each client by itself.
    likelihood : Likelihood of n clients

    Returns
    -------
    Posterior of n clients
    """
    if isinstance(likelihood, StudentT) and likelihood.lattice is not None:
        return InterpolatedPosterior(posterior, likelihood, likelihood.lattice)
    numbered = likelihood.numbered() if len(likelihood) >= FEWEST_CLIENTS else None
    if numbered is None or 2 * len(numbered[0]) > len(likelihood):
        return posterior(likelihood)
    return RepeatedPosterior(posterior, likelihood, *numbered)


class ComposedPosterior(Posterior):
    """Base of posteriors of clients whose figures follow from those of other posteriors."""

    @abstractmethod
    def _of(
        self, figures: Callable[[Posterior, Any], NDArray], unit: float | None = None
    ) -> NDArray:
        """Figures of all clients, from functions of another posterior and of whom it is of.

        `unit` is that of errors, a standard error if None.
        """

    def _alone(self, threshold: ArrayLike = 0.0) -> Posterior | None:
        """Posterior of each client by itself, where quantiles, or probabilities, are its own."""
        return None

    @cached_property
    def sd(self) -> NDArray:  # type: ignore[override]
        """Standard deviation of each client, shape (n, d)."""
        return np.maximum(self._of(lambda part, _: part.sd), 0.0)

    @cached_property
    def expectation(self) -> NDArray:
        return self._of(lambda part, _: part.expectation)

    def _quantile(self, q: float) -> NDArray:
        alone = self._alone()
        return self._of(lambda part, _: part.quantile(q)) if alone is None else alone.quantile(q)

    def _prob_to(self, threshold: ArrayLike, sign: int = 1) -> NDArray:
        if (alone := self._alone(threshold)) is not None:
            return alone._prob_to(threshold, sign)
        at, own = np.asarray(threshold), np.ndim(threshold) > 1
        at = np.broadcast_to(at, self.mean.shape) if own else at
        found = self._of(lambda part, who: part._prob_to(at[who] if own else at, sign), 1.0)
        return np.clip(found, 0.0, 1.0)


class SeparatePosteriors(ComposedPosterior):
    """Posterior of clients of whom some have one kind of posterior, and others another.

    Parameters
    ----------
    parts : sequence of Posterior
    which : ndarray of shape (n,)
        Number of the part that each client is in; clients have the order of their part.

    Examples
    --------
    >>> sharp, vague = (IndependentNormals(np.ones((1, 1)), np.full((1, 1), x)) for x in (0.1, 3.0))
    >>> SeparatePosteriors([sharp, vague], np.array([1, 0])).sd
    array([[3. ],
           [0.1]])
    """

    def __init__(self, parts: Sequence[Posterior], which: NDArray):
        self._parts, self._which = parts, which
        self._has_points = any(part._has_points for part in parts)
        self.mean = self._of(lambda part, _: part.mean)

    def _of(
        self, figures: Callable[[Posterior, Any], NDArray], unit: float | None = None
    ) -> NDArray:
        found = np.empty((len(self._which), self._parts[0].mean.shape[1]))
        for k, part in enumerate(self._parts):
            found[self._which == k] = figures(part, self._which == k)
        return found

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        rng = np.random.default_rng(random_state)
        draws = np.empty((size, *self.mean.shape))
        for k, part in enumerate(self._parts):
            draws[:, self._which == k] = part.sample(size, rng)
        return draws


class FewerPosterior(ComposedPosterior):
    """Base of posteriors of clients that are known from those of fewer ones.

    Parameters
    ----------
    posterior : callable
        Function from a likelihood to posteriors, of each client by itself.
    likelihood : Likelihood of n clients
    fewer : Posterior
    """

    def __init__(
        self, posterior: Callable[[Likelihood], Posterior], likelihood: Any, fewer: Posterior
    ):
        self._posterior, self.likelihood, self._fewer = posterior, likelihood, fewer
        self._has_points = fewer._has_points
        self.mean = self._of(lambda some, _: some.mean)

    @cached_property
    def _whole(self) -> Posterior:
        """The same, of each client by itself."""
        return self._posterior(self.likelihood)

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        return self._whole.sample(size, random_state)


class RepeatedPosterior(FewerPosterior):
    """Posterior of clients of whom many have the same data.

    Parameters
    ----------
    posterior : callable
        Function from a likelihood to posteriors, of each client by itself.
    likelihood : Likelihood of n clients
    distinct : Likelihood of k clients
        Those whose data differ.
    codes : int64 ndarray of shape (n,)
        Which of them each client is like.

    Examples
    --------
    >>> from ebfed.likelihoods import Binomial
    >>> from ebfed.priors import Beta
    >>> counts = Binomial(np.array([[1], [4], [1]]), np.array([10, 10, 10]))
    >>> prior = Beta(2.0, 2.0).fit(counts)
    >>> RepeatedPosterior(prior.posterior, counts, *counts.numbered()).mean.ravel().round(3)
    array([0.214, 0.429, 0.214])
    """

    def __init__(
        self,
        posterior: Callable[[Likelihood], Posterior],
        likelihood: Likelihood,
        distinct: Likelihood,
        codes: NDArray,
    ):
        self._codes = codes
        super().__init__(posterior, likelihood, posterior(distinct))

    def _spread(self, figures: NDArray) -> NDArray:
        """Figures of each client, from those of the distinct ones."""
        return np.take(figures, self._codes, axis=0)

    def _of(
        self, figures: Callable[[Posterior, Any], NDArray], unit: float | None = None
    ) -> NDArray:
        return self._spread(figures(self._fewer, slice(None)))

    def _alone(self, threshold: ArrayLike = 0.0) -> Posterior | None:
        return self._whole if np.ndim(threshold) > 1 else None  # each client's own

    @cached_property
    def weight(self) -> NDArray | None:  # type: ignore[override]
        """Share of the client's own estimate in its posterior mean, where it is linear."""
        weight = self._fewer.weight
        if weight is None:
            return None
        return self._spread(np.broadcast_to(weight, (len(self._fewer), weight.shape[1])))

    def interval(
        self, level: float = 0.95, kind: Literal["eb", "robust"] = "eb"
    ) -> tuple[NDArray, NDArray]:
        lower, upper = self._fewer.interval(level, kind)
        return self._spread(lower), self._spread(upper)


class InterpolatedPosterior(FewerPosterior):
    """Posterior of many estimates, interpolated between the nodes of their `Lattice`.

    Where the last coefficients of the interpolating polynomials say that a figure may be off by
    more than 1e-5 standard errors (a probability by 1e-5), it is computed for each client.
    Quantiles and probabilities of populations with points are always computed for each.

    Parameters
    ----------
    posterior : callable
        Function from a likelihood to posteriors, of each client by itself.
    likelihood : StudentT of n clients
    lattice : Lattice
        Lattice of these.

    Examples
    --------
    >>> from ebfed.priors import Normal
    >>> x = np.random.default_rng(0).normal(0, 2, (30_000, 1))
    >>> messages = StudentT(x, np.ones((30_000, 1)), np.full(30_000, 5.0))
    >>> prior = Normal(0.0, 3.0).fit(messages)
    >>> found = InterpolatedPosterior(prior._posterior, messages, messages.lattice)
    >>> bool(abs(found.mean - prior._posterior(messages).mean).max() < 1e-5)
    True
    """

    def __init__(
        self,
        posterior: Callable[[Likelihood], Posterior],
        likelihood: StudentT,
        lattice: Lattice,
    ):
        self._lattice, variances = lattice, likelihood.variances[:, 0]
        self._between = np.isfinite(variances) & (variances > 0)
        at_lattice, others = likelihood.at_lattice, likelihood.take(~self._between)
        assert at_lattice is not None
        nodes = posterior(join([at_lattice, others]))
        super().__init__(posterior, likelihood, nodes)

    def _of(
        self, figures: Callable[[Posterior, Any], NDArray], unit: float | None = None
    ) -> NDArray:
        lattice, between = self._lattice, self._between
        at_nodes, others = np.split(figures(self._fewer, slice(None)), [len(lattice)])
        if not np.isfinite(at_nodes).all():
            return figures(self._whole, slice(None))
        found = np.empty((len(between), at_nodes.shape[1]))
        found[between], found[~between] = lattice.interpolate(at_nodes), others
        units = np.sqrt(self.likelihood.variances[between]) if unit is None else unit
        alone = np.zeros(len(between), bool)
        alone[between] = (lattice.errors(at_nodes) > NEARNESS * units).any(axis=1)
        if alone.any():
            found[alone] = figures(self._posterior(self.likelihood.take(alone)), alone)
        return found

    def _alone(self, threshold: ArrayLike = 0.0) -> Posterior | None:
        return self._whole if self._has_points or np.ndim(threshold) > 0 else None

    def interval(
        self, level: float = 0.95, kind: Literal["eb", "robust"] = "eb"
    ) -> tuple[NDArray, NDArray]:
        if kind == "eb" and not self._has_points:
            return super().interval(level)
        return self._whole.interval(level, kind)
