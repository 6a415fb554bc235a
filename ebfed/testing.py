"""Contracts: what every likelihood, prior, channel and estimator must obey, shipped to users.

Each `check_*` takes an instance (and data to try it on) and raises AssertionError with a sentence
if a contract is broken. The package runs them over everything it registers; run them on your own
prior or channel before you trust it. Checks that draw random numbers use a fixed seed and bounds
of five standard errors, a false alarm rate below 1e-6 for each figure checked.
"""

from __future__ import annotations

import itertools
import pickle
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from ebfed import wire
from ebfed.channels import Channel
from ebfed.channels.base import Message, Model
from ebfed.channels.law import Law
from ebfed.channels.report import Report
from ebfed.engines import Cohort, Local
from ebfed.engines.protocol import Estimator
from ebfed.engines.rounds import converse
from ebfed.learning.base import Learner
from ebfed.likelihoods import Binomial, Joined, Likelihood, Reported
from ebfed.location.base import LocationEstimator
from ebfed.priors import IdentificationWarning, Posterior, Prior
from ebfed.privacy.calibration import PrivacyWarning
from ebfed.regression.base import RegressionEstimator
from ebfed.streams import Stream, make_key
from ebfed.tables.clients import Clients, Summary

__all__ = [
    "check_channel",
    "check_estimator_contract",
    "check_learner_contract",
    "check_likelihood",
    "check_prior",
    "check_regression_contract",
]

SEED = 20230723


def check_likelihood(likelihood: Likelihood) -> None:
    """Check that a likelihood is consistent with itself.

    Parameters
    ----------
    likelihood : Likelihood of at least two clients, at least one of which has something to say

    Examples
    --------
    >>> from ebfed.likelihoods import Gaussian
    >>> check_likelihood(Gaussian(np.array([[0.0], [1.0]]), np.array([[1.0], [2.0]])))
    """
    n, d = len(likelihood), likelihood.n_features
    low, high = likelihood.support
    if d == 1:
        nodes = likelihood.nodes(50)
        assert nodes.ndim == 1, "nodes must be one-dimensional"
        assert len(nodes) >= 50, "nodes must give at least as many as asked for"
        assert np.all(np.diff(nodes) > 0), "nodes must increase"
        assert low <= nodes[0] <= nodes[-1] <= high, "nodes must lie in the support"
    local = likelihood.local
    assert local.shape == (n, d), "local must have shape (n, d)"
    has_data = np.isfinite(local).any(axis=1)
    # a client may be asked about one coordinate only: any value will do for the others
    inside = np.where(np.isfinite(local), local, _middle(local))[has_data]
    inside = np.clip(inside, *_inner(low, high))
    theta = inside[: min(5, len(inside))]
    values = likelihood.logpdf(theta)
    assert values.shape == (n, len(theta)), "logpdf must have shape (n, k)"
    assert not np.isnan(values).any(), "logpdf must never be NaN"
    assert np.all(values[~has_data] == 0), "a client that says nothing has logpdf 0"

    own_part = np.array(
        [likelihood.take(slice(i, i + 1)).logpdf(inside)[0] for i in range(len(inside))]
    )
    if has_data.all():
        best = np.diag(own_part)
        np.testing.assert_allclose(likelihood.log_peak(), best, rtol=1e-6, atol=1e-6)
        # the best of nodes a quarter of a standard error apart misses at most an eighth, 1/128 in
        # the log-likelihood; one that rises for ever is cut four errors beyond the range
        coarse = isinstance(likelihood, Reported | Joined)
        slack = 0.03 if coarse else 1e-9 * (1 + np.abs(best[:, None]))
        assert np.all(own_part <= best[:, None] + slack), (
            "a client's local estimate must maximise its likelihood"
        )
    parts = np.concatenate([block.logpdf(theta) for block in likelihood.split(3)])
    np.testing.assert_allclose(
        parts, values, rtol=1e-12, atol=1e-12, err_msg="blocks must give the same log-likelihood"
    )

    rows, counts = likelihood.compress()
    exact = likelihood.exact
    free = has_data if exact is None else has_data & np.isnan(exact).all(axis=1)
    assert counts.sum() == free.sum(), "compress must count every client that says something"
    # merging may move a message by a hundredth of its standard error
    np.testing.assert_allclose(
        counts @ rows.logpdf(theta),
        likelihood.take(free).logpdf(theta).sum(axis=0),
        rtol=1e-3,
        err_msg="compress must keep the total log-likelihood",
    )
    _check_combine(rows, counts)


def _middle(values: NDArray) -> NDArray:
    """Return a middle value of each column, one of those there."""
    return np.nanquantile(values, 0.5, axis=0, method="nearest")


def _inner(low: float, high: float) -> tuple[float, float]:
    return (low + 1e-9 if np.isfinite(low) else low, high - 1e-9 if np.isfinite(high) else high)


def _check_combine(rows: Likelihood, counts: NDArray) -> None:
    rng = np.random.default_rng(SEED)
    weights = counts[:, None] * rng.random((len(rows), 3))
    best = np.clip(rows.combine(weights), *_inner(*rows.support))
    assert best.shape == (3, rows.n_features), "combine must have shape (k, d)"
    top = np.diag(weights.T @ rows.logpdf(best))
    nodes = [rows.column(j).nodes(50) for j in range(rows.n_features)]
    # a likelihood may rise for ever: beyond the nodes nothing is sought
    low, high = np.minimum([x[0] for x in nodes], best), np.maximum([x[-1] for x in nodes], best)
    for shift in (-1e-3, 1e-3):
        moved = np.clip(best + shift * (1 + np.abs(best)), low, high)
        assert np.all(np.diag(weights.T @ rows.logpdf(moved)) <= top + 1e-9 * (1 + np.abs(top))), (
            "combine must maximise the weighted log-likelihood"
        )


def check_prior(prior: Prior, likelihood: Likelihood) -> None:
    """Check a prior on a likelihood that it accepts.

    The fit does not depend on the order of clients; densities integrate to one; draws have the
    fitted mean and variance; EM never loses likelihood; a closed form equals quadrature; a client
    that says nothing gets the population.

    Parameters
    ----------
    prior : Prior, not fitted
    likelihood : Likelihood of at least twenty clients

    Examples
    --------
    >>> from ebfed.likelihoods import Gaussian
    >>> from ebfed.priors import Normal
    >>> rng = np.random.default_rng(0)
    >>> check_prior(Normal(), Gaussian(rng.normal(size=(50, 1)), np.full((50, 1), 0.5)))
    """
    d = likelihood.n_features
    try:
        clone(prior).posterior(likelihood)
    except NotFittedError:
        pass
    else:
        raise AssertionError("posterior before fit must raise NotFittedError")
    fitted = clone(prior)
    assert fitted.fit(likelihood) is fitted, "fit must return self"
    assert fitted.mean_.shape == fitted.variance_.shape == (d,), "moments must have shape (d,)"
    assert np.all(fitted.variance_ >= 0), "variance_ must not be negative"
    assert all(isinstance(note, str) for note in fitted.notes_), "notes_ must be sentences"
    assert pickle.loads(pickle.dumps(fitted)).mean_.tolist() == fitted.mean_.tolist()

    shuffled = np.random.default_rng(SEED).permutation(len(likelihood))
    again = clone(prior).fit(likelihood.take(shuffled))
    tolerance = 1e-3 * (1 + np.sqrt(fitted.variance_))  # of a prior found by random starts
    assert np.all(np.abs(again.mean_ - fitted.mean_) < tolerance), "order must not matter"

    _check_draws(fitted)
    _check_posterior(fitted, likelihood)
    if d == 1 and type(prior)._fit is not Prior._fit:
        _check_em(prior, likelihood)


def _check_draws(prior: Prior) -> None:
    size = 20_000
    draws = prior.sample(size, SEED)
    assert draws.shape == (size, len(prior.mean_)), "sample must have shape (size, d)"
    np.testing.assert_array_equal(draws, prior.sample(size, SEED), "a seed must fix the draws")
    assert np.all((draws >= prior.support[0]) & (draws <= prior.support[1])), "draws in the support"
    error = np.sqrt(prior.variance_ / size)
    off = np.abs(draws.mean(axis=0) - prior.mean_)
    assert np.all(off <= 5 * error + 1e-6), "draws must have the fitted mean"
    fourth = ((draws - draws.mean(axis=0)) ** 4).mean(axis=0)
    spread = np.sqrt(np.maximum(fourth - prior.variance_**2, 0) / size)
    off = np.abs(draws.var(axis=0) - prior.variance_)
    assert np.all(off <= 5 * spread + 1e-6 * (1 + prior.variance_)), (
        "draws must have the fitted variance"
    )


def _check_posterior(prior: Prior, likelihood: Likelihood) -> None:
    posterior = prior.posterior(likelihood)
    check_posterior(posterior, likelihood)
    marginal = prior.log_marginal(likelihood)
    assert marginal.shape == (len(likelihood),), "log_marginal must have shape (n,)"
    assert not np.isnan(marginal).any(), "log_marginal must never be NaN"
    if likelihood.n_features > 1 or not np.all(prior.variance_ > 0):
        return
    plain = clone(prior)
    plain.__dict__.update(prior.__dict__)
    for name in ("mean_variance_", "variance_variance_"):
        if hasattr(plain, name):  # quadrature takes the population as known
            setattr(plain, name, np.zeros_like(prior.mean_))
    closed, numeric = plain.posterior(likelihood), Prior.posterior(plain, likelihood)
    scale = np.sqrt(prior.variance_)
    # quadrature on some 400 nodes; 1e-4 of the spread of the population
    np.testing.assert_allclose(closed.mean, numeric.mean, rtol=0, atol=1e-4 * scale[0])
    np.testing.assert_allclose(closed.sd, numeric.sd, rtol=0, atol=1e-3 * scale[0])
    np.testing.assert_allclose(marginal, Prior.log_marginal(plain, likelihood), rtol=0, atol=1e-4)


def check_posterior(posterior: Posterior, likelihood: Likelihood) -> None:
    """Check that the figures of a posterior agree with one another."""
    shape = (len(likelihood), likelihood.n_features)
    assert posterior.mean.shape == posterior.sd.shape == shape, "mean and sd must be (n, d)"
    for name, values in (("mean", posterior.mean), ("sd", posterior.sd)):
        assert np.isfinite(values).all(), f"{name} must be finite"
    low, high = posterior.interval(0.9)
    wide = posterior.interval(0.99)
    assert np.all(wide[0] <= low), "a higher level gives a wider interval"
    assert np.all(low <= high), "an interval has its lower end first"
    assert np.all(high <= wide[1]), "a higher level gives a wider interval"
    middle = posterior.quantile(0.5)
    below = np.stack([posterior.prob_below(value)[i] for i, value in enumerate(middle[:5, 0])])[
        :, 0
    ]
    assert np.all(below >= 0.5 - 1e-6), "at least half lies at or below the median"
    draws = posterior.sample(4000, SEED)
    assert draws.shape == (4000, *shape), "sample must have shape (size, n, d)"
    off = np.abs(draws.mean(axis=0) - posterior.mean)
    assert np.all(off <= 6 * posterior.sd / np.sqrt(4000) + 1e-9 * (1 + np.abs(posterior.mean))), (
        "draws must have the posterior mean"
    )
    frame = posterior.to_frame()
    assert len(frame) == posterior.mean.size, "one row per client and coordinate"


def _check_em(prior: Prior, likelihood: Likelihood) -> None:
    """EM on a grid climbs, and reaches what the closed form finds."""
    params = prior.get_params()
    if "method" not in params or not clone(prior).fit(likelihood).n_parameters_:
        return
    closed = clone(prior).set_params(method="ml").fit(likelihood)
    climbing = clone(prior).set_params(method="ml")
    climbing.notes_, climbing.noise_variance_ = [], None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # slow to converge is not wrong
        Prior._fit(climbing, likelihood)
    steps = np.diff(climbing.path_)
    assert np.all(steps >= -1e-7 * (1 + np.abs(climbing.path_[1:]))), (
        "EM must never lose likelihood"
    )
    best = closed.log_marginal(likelihood).sum()
    reached = climbing.log_marginal(likelihood).sum()
    assert reached <= best + 1e-3, "the closed form must find the maximum"
    assert reached >= best - 0.05, "EM must come near the maximum"


def check_channel(
    channel: Channel,
    summary: Summary,
    model: Model,
    *,
    secure: int = 1000,
    size: int = 30_000,
) -> None:
    """Check a channel on clients of one column.

    Messages are plain arrays with an entry per client and no labels, and do not depend on how
    clients are cut into blocks; `decode` is unbiased, with the `variance` stated, for one column
    and for three; reports have the frequencies that the likelihood says, at a parameter and over a
    population; a report's law integrates to one, agrees with its average over normal local values,
    and keeps the promise of `guarantee`; reports from the operating system's randomness have the
    same law.

    Parameters
    ----------
    channel : Channel
        With no argument left open.
    summary : Summary of at least two clients, one column
        Local means to try, both ends of the channel's range among them.
    model : callable
        The likelihood of exact figures ``n``, ``mean`` and ``scatter``: `Binomial`, or `Gaussian`
        with known variances.
    secure : int
        How many reports to draw from the operating system's randomness, for a false alarm rate of
        1e-9; 0 where OpenDP is not installed.
    size : int
        How many reports to simulate for each frequency checked.

    Examples
    --------
    >>> from ebfed.channels import OneBit
    >>> from ebfed.likelihoods import Binomial
    >>> def model(message):
    ...     successes = np.rint(message["mean"] * message["n"][:, None]).astype(int)
    ...     return Binomial(successes, message["n"])
    >>> check_channel(OneBit(1.0, (0, 1)), Summary.from_counts([0, 2, 8], [5, 5, 8]), model)
    """
    assert summary.n_features == 1, "give clients of one column; three are made of it"
    _check_message(channel, summary)
    _check_decode(channel, summary, size)
    columns = np.column_stack([np.roll(summary.mean, shift) for shift in range(3)])
    three = Summary(summary.ids, summary.n, columns, np.repeat(summary.scatter, 3, axis=1))
    _check_message(channel, three)
    _check_decode(channel, three, size)
    likelihood = channel.likelihood(channel.encode(summary, SEED), model)
    assert len(likelihood) == len(summary), "likelihood has one row per client"
    has_data = np.isfinite(likelihood.local[:, 0])
    np.testing.assert_array_equal(has_data, summary.n > 0, "clients with rows say something")
    if not isinstance(channel, Report):
        return
    law, counts = channel._law(1), isinstance(model(_figures(summary)), Binomial)
    trials = np.unique(summary.n[summary.n > 0])
    for n in np.unique(trials[[0, -1]]):
        if counts or n == trials[0]:
            _check_law(law, int(n) if counts else 0, *_promise(channel, 1))
        _check_reports(channel, summary, model, int(n), size, secure if n == trials[0] else 0)


def _figures(summary: Summary) -> Message:
    return {"n": summary.n, "mean": summary.mean, "scatter": summary.scatter}


def _repeat(summary: Summary, i: int, size: int) -> Summary:
    """So many clients with the figures of one."""
    figures = [np.repeat(values[[i]], size, axis=0) for values in _figures(summary).values()]
    return Summary(np.arange(size), *figures)


def _check_message(channel: Channel, summary: Summary) -> None:
    n, d = len(summary), summary.n_features
    labels = 10**15 + np.arange(n)
    summary = Summary(labels, summary.n, summary.mean, summary.scatter)
    before = pickle.dumps(summary)
    message = channel.encode(summary, SEED)
    assert pickle.dumps(summary) == before, "encode must leave the figures of clients alone"
    assert isinstance(message, dict), "a message is a dict"
    for name, values in message.items():
        assert isinstance(values, np.ndarray), f"{name} must be an array"
        assert values.dtype.kind in "biuf", f"{name} must be plain numbers"
        assert len(values) == n, f"{name} must have one entry per client"
        assert not np.isin(values, labels).any(), f"{name} gives labels away"
    asked = message.get("asked")
    if asked is not None:
        assert asked.shape == (n, d), "asked must have shape (n, d)"
        assert np.all(asked.sum(axis=1) == 1), "asked must name one coordinate of each client"

    copy = pickle.loads(pickle.dumps(channel))
    _same(copy.encode(summary, SEED), message, "a seed must fix the message")
    assert repr(clone(channel)) == repr(channel), "a channel can be cloned"
    _same(clone(channel).encode(summary, SEED), message, "a clone must send the same")
    whole = channel.encode(summary, Stream(make_key(SEED), 0))
    for cuts in ([0, 1, n], [0, n - 1, n], list(range(n + 1))):
        blocks = [
            channel.encode(summary.take(slice(*ends)), Stream(make_key(SEED), 0, first=ends[0]))
            for ends in itertools.pairwise(cuts)
        ]
        joined = {name: np.concatenate([block[name] for block in blocks]) for name in message}
        _same(joined, whole, "blocks must not matter")

    decoded, variance = channel.decode(message), channel.variance(summary)
    assert decoded.shape == variance.shape == (n, d), "decode and variance must be (n, d)"
    clipped, bits = channel.clipped(summary), channel.message_bits(summary)
    assert clipped.shape == (n,), "clipped must have shape (n,)"
    assert clipped.dtype == bool, "clipped must be booleans"
    assert bits.shape == (n,), "message_bits must have shape (n,)"
    assert np.all(np.isnan(bits) | (bits > 0)), "bits must be positive, or NaN"
    assert np.isnan(channel.bits) or channel.bits > 0, "bits must be positive, or NaN"
    epsilon, delta = _promise(channel, d)
    assert epsilon > 0, "epsilon must be positive; infinite where nothing is promised"
    assert 0 <= delta < 1, "delta must be a probability"
    assert type(channel.event(d)).__name__.endswith("DpEvent"), "event is one of dp-accounting"


def _promise(channel: Channel, d: int) -> tuple[float, float]:
    with warnings.catch_warnings():  # a weak promise is kept if it is stated
        warnings.simplefilter("ignore", PrivacyWarning)
        return channel.guarantee(d)


def _same(message: Message, other: Message, sentence: str) -> None:
    assert list(message) == list(other), sentence
    for name, values in message.items():
        assert values.dtype == other[name].dtype, sentence
        np.testing.assert_array_equal(values, other[name], sentence)


def _check_decode(channel: Channel, summary: Summary, size: int) -> None:
    """Mean and variance of what is decoded, for up to five clients."""
    order = np.argsort(summary.mean[:, 0], kind="stable")
    for i in np.unique(order[np.linspace(0, len(order) - 1, 5).astype(int)]):
        many = _repeat(summary, i, size)
        if channel.clipped(many)[0]:
            continue
        decoded, true = channel.decode(channel.encode(many, SEED)), summary.mean[i]
        variance, off = channel.variance(many)[0], decoded - true
        digits = 1e-9 * (np.abs(true) + np.sqrt(variance))
        assert np.all(np.abs(off.mean(axis=0)) <= 5 * np.sqrt(variance / size) + digits), (
            f"decode must be unbiased: {decoded.mean(axis=0)} on average for {true}"
        )
        squares = off**2
        error = squares.std(axis=0) / np.sqrt(size)
        assert np.all(
            np.abs(squares.mean(axis=0) - variance) <= 5 * error + 1e-9 * variance + digits**2
        ), f"variance says {variance} for {true}; it is {squares.mean(axis=0)} ± {error}"


def _outcomes(law: Law, size: int) -> tuple[NDArray, NDArray, NDArray]:
    """Reports, weights, and which of them have a probability of their own; finer than the law's."""
    reports, weights = law.outcomes(size)
    if reports.dtype.kind != "f":
        every = np.arange(int(reports.min()), int(reports.max()) + 1).astype(reports.dtype)
        return every, np.ones(len(every)), np.ones(len(every), bool)
    own = weights == 1
    fine = int(np.ceil(40_000 / max((~own).sum(), 1)))
    parts = (np.arange(fine) + 0.5) / fine - 0.5
    inner = (reports[~own, None] + weights[~own, None] * parts).ravel()
    order = np.argsort(inner, kind="stable")
    inner, widths = inner[order], np.repeat(weights[~own] / fine, fine)[order]
    mask = np.arange(own.sum() + len(inner)) < own.sum()
    return np.append(reports[own], inner), np.append(weights[own], widths), mask


def _check_law(law: Law, size: int, epsilon: float, delta: float) -> None:
    reports, weights, own = _outcomes(law, size)
    sizes = np.full(len(reports), size)
    grid = np.linspace(-1, 1, (size or 10) + 1)
    noisy = law.variance(grid[:, None] + 1e-3 * (grid[:, None] < 0), np.full(len(grid), size)).any()
    # sums over steps miss up to one step at a jump of the density
    tolerance = 1e-9 if own.all() else 1e-4
    if noisy or size:
        total = weights @ law.density(reports, grid, sizes)
        np.testing.assert_allclose(total, 1, atol=tolerance, err_msg="the law must sum to one")
    if noisy and not size:
        means, variances = np.array([-1.3, 0.02, 0.6, 1.0]), np.full(len(reports), 0.3)
        total = weights @ law.average(reports, means, variances, sizes)
        np.testing.assert_allclose(total, 1, atol=tolerance, err_msg="averages must sum to one")
        _check_average(law, size)
    if not np.isfinite(epsilon):
        return
    density = law.density(reports, grid, sizes)
    if delta == 0:
        ratio = np.exp(epsilon) * density.min(axis=1)
        assert np.all(density.max(axis=1) <= ratio * (1 + 1e-9)), "the law must keep epsilon"
        return
    for p in density.T:
        excess = weights @ np.maximum(p[:, None] - np.exp(epsilon) * density, 0)
        assert np.all(excess <= delta * (1 + 1e-3)), "the law must keep epsilon and delta"


def _check_average(law: Law, size: int) -> None:
    """Averages are integrals of the density over normal local values."""
    from scipy.stats import norm

    reports, _ = law.outcomes(size)
    reports = reports[np.unique(np.linspace(0, len(reports) - 1, 40).astype(int))]
    sizes = np.full(len(reports), size)
    means = np.array([-1.27, -0.34, 0.03, 0.71, 1.0])
    points = np.array([-1, -0.733, -0.0213, 0.307, 1])  # where no window begins or ends
    at = law.density(reports, points, sizes)
    near = law.average(reports, points, np.full(len(reports), 1e-18), sizes)
    inner = slice(1, -1)  # at an end, half of the values lie inside: a window may end there
    np.testing.assert_allclose(
        near[:, inner], at[:, inner], rtol=1e-6, err_msg="average must tend to the density"
    )
    for sd in (0.03, 0.4, 3.0):
        ends = law.density(reports, np.array([-1.0, 1.0]), sizes)
        sums = []
        for count in (10_001, 20_001):
            u = np.linspace(-1, 1, count)
            heights = norm.pdf(u[:, None], means, sd)
            heights[[0, -1]] /= 2
            inside = law.density(reports, u, sizes) @ heights * (u[1] - u[0])
            below, above = norm.cdf(-1, means, sd), norm.sf(1, means, sd)
            sums.append(inside + ends[:, [0]] * below + ends[:, [1]] * above)
        average = law.average(reports, means, np.full(len(reports), sd**2), sizes)
        # jumps of a density cost the sum a step's worth, which halving the step shows
        unsure = 4 * np.abs(sums[1] - sums[0]).max() + 1e-6 * at.max()
        assert np.all(np.abs(average - sums[1]) <= unsure), "average must integrate the density"


def _check_reports(
    channel: Report, summary: Summary, model: Model, n: int, size: int, secure: int
) -> None:
    """Frequencies of reports of clients with n rows are those of the likelihood."""
    rng = np.random.default_rng(SEED)
    law = channel._law(1)
    reports, weights, own = _outcomes(law, n)
    one = model({"n": np.array([n]), "mean": np.zeros((1, 1)), "scatter": np.zeros((1, 1))})
    counts = isinstance(one, Binomial)
    if not counts:
        reports, weights, own = _outcomes(law, 0)
    message = {"n": np.full(len(reports), n), "report": reports[:, None]}
    likelihood = channel.likelihood(message, model)

    def drawn(theta: NDArray, how: Any) -> NDArray:
        if isinstance(one, Binomial):
            local = rng.binomial(n, theta) / n
        else:
            local = rng.normal(theta, np.sqrt(np.asarray(one.variances)[0, 0]))  # type: ignore[attr-defined]
        figures = np.full(len(theta), n), local[:, None], np.zeros((len(theta), 1))
        return channel.encode(Summary(np.arange(len(theta)), *figures), how)["report"][:, 0]

    middle, top = summary.mean.mean(), summary.mean.max()
    if counts:
        top = min(top, 0.95)
    for theta in (middle, top):
        masses = weights * np.exp(likelihood.logpdf(np.array([[theta]]))[:, 0])
        simulated = drawn(np.full(size, theta), SEED)
        _check_frequencies(simulated, reports, own, masses, 1e-6, f"simulated at {theta:g}")
        if secure and theta == middle:
            real = drawn(np.full(secure, theta), "secure")
            assert real.dtype == simulated.dtype, "secure reports must be of the same type"
            _check_frequencies(real, reports, own, masses, 1e-9, f"secure at {theta:g}")
    if counts:
        variance = 0.2 * middle * (1 - middle)
        theta = rng.beta(4 * middle, 4 * (1 - middle), size)
    else:
        variance = summary.mean.var()
        theta = rng.normal(middle, np.sqrt(variance), size)
    masses = weights * np.exp(likelihood.marginal(np.array([middle]), np.array([variance])))
    _check_frequencies(drawn(theta, SEED), reports, own, masses, 1e-6, "over a population")


def _check_frequencies(
    drawn: NDArray, reports: NDArray, own: NDArray, masses: NDArray, alarm: float, what: str
) -> None:
    """Compare frequencies with probabilities by chi-square, at that rate of false alarms."""
    from scipy.stats import chi2

    assert abs(masses.sum() - 1) < 1e-4, f"probabilities of reports {what} sum to {masses.sum()}"
    values = drawn.astype(float)
    atoms, inner = reports[own].astype(float), reports[~own]
    bins = np.full(len(values), -1)
    if len(atoms):
        order = np.argsort(atoms, kind="stable")
        place = np.clip(np.searchsorted(atoms[order], values - 1e-9), 0, len(atoms) - 1)
        hit = np.abs(atoms[order][place] - values) <= 1e-9
        bins[hit] = order[place[hit]]
    expected = masses[own]
    if len(inner):  # some forty bins of even probability
        below = np.cumsum(masses[~own])
        group = np.minimum((below / below[-1] * 40).astype(int), 39)
        edges = (inner[1:] + inner[:-1]) / 2
        rest = bins < 0
        bins[rest] = len(atoms) + group[np.searchsorted(edges, values[rest])]
        expected = np.append(expected, np.bincount(group, masses[~own], minlength=40))
    assert np.all(bins >= 0), f"a report {what} is none of the law's outcomes"
    seen = np.bincount(bins, minlength=len(expected)).astype(float)
    expected = expected * len(values)
    kept = expected >= 10
    seen, expected = (np.append(x[kept], x[~kept].sum()) for x in (seen, expected))
    if expected[-1] < 10:  # what is rare joins the last bin
        seen, expected = (np.append(x[:-2], x[-2:].sum()) for x in (seen, expected))
    statistic = ((seen - expected) ** 2 / expected).sum()
    chance = chi2.sf(statistic, max(len(seen) - 1, 1))
    assert chance >= alarm, (
        f"reports {what} do not have the frequencies of the likelihood: chi-square {statistic:.1f} "
        f"in {len(seen)} bins, p = {chance:.1g}"
    )


class _Relay(Cohort):
    """Nodes that hold their own rows, and are spoken to in bytes."""

    def __init__(self, estimator: Estimator, rows: list[dict[str, Any]], key: NDArray):
        self.nodes = []
        for own in rows:
            node = clone(estimator)
            self.nodes.append([node, *node.prepare(**own)])
        self.facts = [_noted(node.describe(*own)) for node, *own in self.nodes]
        self._key = key

    def ask(self, sent: dict, round_: int, turn: NDArray[np.int8]) -> list[dict]:
        first, messages = 0, []
        for each in self.nodes:
            node, clients, memory = each
            last = first + len(clients)
            stream = Stream(self._key, round_, first)
            memory = memory | {"turn": turn[first:last]}
            message, each[2] = node.local(_noted(sent), memory, clients, stream)
            messages.append(_noted(message))
            first = last
        return messages


def _noted(content: dict) -> dict:
    return wire.unpack(wire.pack(content))


def _federated(
    estimator: Estimator, X: NDArray, groups: NDArray, y: NDArray | None = None
) -> list[Any]:
    """Two nodes, each with a half of the groups, after a fit over the wire."""
    half = _first_half(groups)
    rows = [
        {"X": X[own_part], "y": None if y is None else y[own_part], "groups": groups[own_part]}
        for own_part in (half, ~half)
    ]
    nodes, kept, _ = _meet(estimator, rows)
    again = clone(estimator).conclude(kept | {"log_likelihood": 0.0})
    assert str(again.summary()), "a server has a summary of what it fitted"
    return nodes


def _first_half(groups: NDArray) -> NDArray[np.bool_]:
    return groups <= np.median(np.unique(groups))


def _meet(estimator: Estimator, rows: list[dict[str, Any]]) -> tuple[list[Any], dict, dict]:
    """Let nodes with these rows fit over the wire.

    Returns the nodes, what the server would keep, and what it told last.
    """
    key = make_key(estimator.random_state)
    relay = _Relay(estimator, rows, key)
    server = clone(estimator)
    state = converse(server, relay, key)
    sent = _noted(server.broadcast(state))
    for node, clients, memory in relay.nodes:
        node.finish(sent, memory, clients)
    return [node for node, *_ in relay.nodes], _noted(server.keep(state)), sent


def check_estimator_contract(
    estimator: LocationEstimator, X: Any, groups: NDArray, tolerance: float = 1e-6
) -> None:
    """Check an estimator on rows of at least three groups.

    Blocks, the order of rows and the names of groups do not matter, nor whether rows lie in two
    places that exchange nothing but packed bytes with a server; `partial_fit` on pieces is
    `fit` on the whole, where there is one channel; known, new and empty groups all get finite
    estimates; reports come as frames; fitted estimators pickle.

    Parameters
    ----------
    estimator : LocationEstimator, not fitted
    X : array-like of shape (n_rows, d) or (n_rows,)
    groups : int ndarray of shape (n_rows,)
    tolerance : float
        How far estimates may move with the order of summation, relative to their size; an
        iterative fit needs more than the default.

    Examples
    --------
    >>> from ebfed.location import GaussianEB
    >>> rng = np.random.default_rng(0)
    >>> check_estimator_contract(GaussianEB(), rng.normal(size=60), np.arange(60) % 20)
    """
    X, groups = np.asarray(X, float), np.asarray(groups)
    fitted = clone(estimator).fit(X, groups=groups)
    estimates = fitted.predict()
    assert len(estimates) == len(np.unique(groups)), "predict() has one entry per group"
    np.testing.assert_array_equal(estimates, np.squeeze(fitted.posterior().mean))

    blocks = clone(estimator).set_params(engine=Local(13)).fit(X, groups=groups)
    np.testing.assert_array_equal(blocks.predict(), estimates, "blocks must not matter")

    apart = np.concatenate([node.predict() for node in _federated(estimator, X, groups)])
    np.testing.assert_array_equal(apart, estimates, "nor must places")

    scale = tolerance * (1 + np.abs(estimates).max())
    order = np.random.default_rng(SEED).permutation(len(X))
    shuffled = clone(estimator).fit(X[order], groups=groups[order])
    np.testing.assert_allclose(shuffled.predict(), estimates, atol=scale, rtol=0)
    named = clone(estimator).fit(X, groups=np.array([f"g{g:09d}" for g in groups]))
    np.testing.assert_allclose(named.predict(), estimates, atol=scale, rtol=0)
    if not isinstance(estimator.channel, Mapping):
        pieces = clone(estimator)
        with warnings.catch_warnings():  # of what the first pieces cannot tell alone
            warnings.simplefilter("ignore", IdentificationWarning)
            for part in np.array_split(np.arange(len(X)), 3):
                pieces.partial_fit(X[part], groups=groups[part])
        np.testing.assert_allclose(pieces.predict(), estimates, atol=scale, rtol=0)

    rows = fitted.predict(X, groups=groups)
    assert len(rows) == len(X), "predict(X) has one entry per row"
    np.testing.assert_allclose(rows, estimates[np.unique(groups, return_inverse=True)[1]])
    unknown = groups.max() + 7
    empty = fitted.posterior(groups=[unknown])
    np.testing.assert_allclose(empty.mean[0], fitted.prior_.mean_, rtol=1e-9, atol=1e-12)
    assert np.isfinite(fitted.predict(X[:1], groups=[unknown])).all(), "new groups are estimated"
    assert np.isfinite(fitted.score(X, groups=groups)), "score must be finite"

    assert len(fitted.tidy()) >= 1
    assert len(fitted.glance()) == 1
    assert len(fitted.augment(X, groups=groups)) == len(X)
    assert type(estimator).__name__ in str(fitted.summary())
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copy.predict(), estimates)


def check_regression_contract(
    estimator: RegressionEstimator,
    X: NDArray,
    y: NDArray,
    groups: NDArray,
    tolerance: float = 1e-6,
) -> None:
    """Check a regression on rows of at least six groups.

    Blocks do not matter to the last bit, nor whether rows lie in two places that exchange nothing
    but packed bytes with a server; the order of rows and the names of groups move estimates by no
    more than `tolerance`; `partial_fit` on pieces is `fit` on the whole; known, new and empty
    groups all get finite answers; frames come back as they went in; reports come as frames; fitted
    estimators pickle.

    Parameters
    ----------
    estimator : RegressionEstimator, not fitted
    X : ndarray of shape (n_rows, d)
    y : ndarray of shape (n_rows,)
    groups : int ndarray of shape (n_rows,)
    tolerance : float
        How far coefficients may move with the order of summation, relative to their size; infinite
        where draws depend on the order of groups.

    Examples
    --------
    >>> from ebfed.regression import LinearEB
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(120, 2)), rng.normal(size=120)
    >>> check_regression_contract(LinearEB(), X, y, np.arange(120) % 20)
    """
    import pandas as pd

    fitted = clone(estimator).fit(X, y, groups=groups)
    ids = np.unique(groups)
    estimates = fitted.posterior().mean
    assert estimates.shape == (len(ids), len(fitted.terms_)), "one row per group, one per term"
    assert np.isfinite(estimates).all(), "estimates must be finite"

    blocks = clone(estimator).set_params(engine=Local(13)).fit(X, y, groups=groups)
    np.testing.assert_array_equal(blocks.posterior().mean, estimates, "blocks must not matter")
    threads = clone(estimator).set_params(engine=Local(5, threads=2)).fit(X, y, groups=groups)
    np.testing.assert_array_equal(threads.posterior().mean, estimates, "nor must threads")
    nodes = _federated(estimator, X, groups, y)
    apart = np.concatenate([node.posterior().mean for node in nodes])
    np.testing.assert_array_equal(apart, estimates, "nor must places")

    scale = tolerance * (1 + np.abs(estimates).max())
    order = np.random.default_rng(SEED).permutation(len(X))
    shuffled = clone(estimator).fit(X[order], y[order], groups=groups[order])
    np.testing.assert_allclose(shuffled.posterior().mean, estimates, atol=scale, rtol=0)
    named = clone(estimator).fit(X, y, groups=np.array([f"g{g:09d}" for g in groups]))
    np.testing.assert_allclose(named.posterior().mean, estimates, atol=scale, rtol=0)
    pieces = clone(estimator)
    with warnings.catch_warnings():  # of what the first pieces cannot tell alone
        warnings.simplefilter("ignore")
        for part in np.array_split(np.arange(len(X)), 3):
            pieces.partial_fit(X[part], y[part], groups=groups[part])
    np.testing.assert_allclose(pieces.posterior().mean, estimates, atol=scale, rtol=0)

    rows = fitted.predict(X, groups=groups)
    assert rows.shape == (len(X),), "predict(X) has one entry per row"
    unknown = np.full(len(X), ids.max() + 7)
    new, whole = fitted.predict(X, groups=unknown), fitted.predict(X)
    if new.dtype.kind == "f":
        new, whole = new.round(9), whole.round(9)
    assert np.mean(new == whole) > 0.99, "new groups get the population"
    empty = fitted.posterior(groups=[ids.max() + 7])
    np.testing.assert_allclose(empty.mean[0], fitted.mean_, rtol=1e-9, atol=1e-12)
    again = fitted.posterior(X, y, groups=groups)
    np.testing.assert_allclose(again.mean, estimates, atol=scale, rtol=0)
    assert np.isfinite(fitted.score(X, y, groups=groups)), "score must be finite"
    low, high = fitted.posterior().interval(0.9)
    assert np.all((low <= estimates) & (estimates <= high)), "intervals hold the estimates"

    names = [f"x{j}" for j in range(X.shape[1])]
    table = pd.DataFrame(X, columns=names).assign(y=y, g=groups)
    framed = clone(estimator).fit(table, "y", groups="g")
    np.testing.assert_array_equal(framed.posterior().mean, estimates, "frames must not matter")
    np.testing.assert_array_equal(framed.predict(table), rows)
    shown = framed.posterior().to_frame()
    assert list(shown.columns[:3]) == ["g", "term", "n"], "a frame leads with group and term"

    assert len(fitted.tidy()) == len(fitted._parameters())
    assert len(fitted.glance()) == 1
    assert len(fitted.history_) >= 1
    assert len(fitted.privacy_) >= 1
    assert len(fitted.augment(X, y, groups=groups)) == len(X)
    assert type(estimator).__name__ in str(fitted.summary())
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copy.predict(X, groups=groups), rows)


def check_learner_contract(
    estimator: Learner, X: NDArray, y: NDArray, groups: NDArray, consent: NDArray | None = None
) -> None:
    """Check a learner on rows of at least four groups.

    To the last bit: blocks and threads do not matter, nor whether rows lie in two places that
    exchange nothing but packed bytes with a server, nor whether they come as arrays or as a frame,
    nor what groups are called while their order is kept; the same seed gives the same result, and
    fewer rounds are the first of more, unless a budget is spread over them. Known, new and empty
    groups all get finite answers; probabilities sum to one; the server's own copy predicts by the
    shared parameters, and neither what it keeps nor what it tells holds the key of its noise;
    reports come as frames; fitted learners pickle, clones are not fitted.

    Parameters
    ----------
    estimator : Learner, not fitted
        With an integer as `random_state`, and rounds enough to halve: 4, say.
    X : ndarray of shape (n_rows, d)
    y : ndarray of shape (n_rows,)
    groups : int ndarray of shape (n_rows,)
        Not negative.
    consent : ndarray of shape (n_rows,), optional
        For a learner whose `fit` takes it.

    Raises
    ------
    AssertionError

    Examples
    --------
    >>> from ebfed.learning import FedAvg
    >>> rng = np.random.default_rng(0)
    >>> X, groups = rng.normal(size=(60, 2)), np.arange(60) % 10
    >>> check_learner_contract(FedAvg(n_rounds=4, random_state=0), X, X[:, 0] > 0, groups)
    """
    X, y, groups = np.asarray(X, float), np.asarray(y), np.asarray(groups)
    has_data = {} if consent is None else {"consent": np.asarray(consent)}
    ids, first = np.unique(groups, return_index=True)
    fitted = clone(estimator).fit(X, y, groups=groups, **has_data)
    assert fitted.parameters_.shape[0] == len(ids), "parameters_ has one row per group"
    assert np.isfinite(fitted.parameters_).all(), "parameters_ must be finite"
    answers, history = _answers(fitted, X, groups), fitted.history_
    assert answers.shape[0] == len(X), "there is one answer per row"

    for engine in (Local(13), Local(5, threads=2)):
        other = clone(estimator).set_params(engine=engine).fit(X, y, groups=groups, **has_data)
        _check_same(other, fitted, history, f"{engine!r} must not matter")
        np.testing.assert_array_equal(_answers(other, X, groups), answers)
    again = clone(estimator).fit(X, y, groups=groups, **has_data)
    _check_same(again, fitted, history, "a seed must fix the result")
    names = np.array([f"g{g:09d}" for g in groups])
    named = clone(estimator).fit(X, y, groups=names, **has_data)
    _check_same(named, fitted, history, "names of groups must not matter")
    np.testing.assert_array_equal(_answers(named, X, names), answers)

    _check_places(estimator, fitted, X, y, groups, has_data)
    _check_table(estimator, fitted, X, y, groups, has_data, history)
    _check_prefix(estimator, X, y, groups, has_data, history)

    unknown, whole = _answers(fitted, X, np.full(len(X), ids.max() + 7)), _answers(fitted, X, None)
    assert np.isfinite(unknown).all(), "new groups get finite answers"
    # products of matrices of other widths round otherwise
    np.testing.assert_allclose(unknown, whole, rtol=1e-12, err_msg="all of them the same")
    silent = np.array([ids.max() + 1, ids.max() + 2])
    nothing = np.zeros((0, X.shape[1])), y[:0]
    clients = Clients.from_rows(X, groups, y).merge(
        Clients(silent, np.zeros(3, np.int64), *nothing)
    )
    if consent is not None:
        choices = dict(zip(ids.tolist(), has_data["consent"][first].tolist(), strict=True))
        told_of = {"consent": choices | dict.fromkeys(silent.tolist(), choices[ids[0]])}
    else:
        told_of = {}
    beside = clone(estimator).fit(clients, **told_of)
    assert len(beside.parameters_) == len(ids) + 2, "a group without rows is a group"
    assert np.isfinite(beside.parameters_).all(), "groups without rows get finite parameters"
    assert np.isfinite(_answers(beside, X[:2], silent)).all(), "and finite answers"

    assert np.isfinite(fitted.score(X, y, groups=groups)), "score must be finite"
    assert len(history) == fitted.n_iter_ == estimator.n_rounds, "a row for each round"
    assert len(fitted.privacy_) >= 1, "the ledger has rows"
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(_answers(copy, X, groups), answers, "pickling must not matter")
    blank = clone(fitted)
    assert not hasattr(blank, "parameters_"), "a clone is not fitted"
    assert blank.get_params().keys() == estimator.get_params().keys()


def _answers(fitted: Learner, X: Any, groups: Any) -> NDArray:
    """Probabilities, or predicted numbers; checks that classes go with probabilities."""
    predicted = fitted.predict(X, groups=groups)
    if not hasattr(fitted, "predict_proba"):
        return predicted
    p = fitted.predict_proba(X, groups=groups)
    assert p.shape == (len(predicted), len(fitted.classes_)), "a probability for each class"
    assert np.all(p >= 0), "probabilities must not be negative"
    # a sum of k rounded numbers
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(predicted, fitted.classes_[p.argmax(axis=1)])
    return p


def _check_same(one: Learner, other: Learner, history: Any, why: str) -> None:
    """Two fits agree to the last bit, the other of which has that history."""
    np.testing.assert_array_equal(one.parameters_, other.parameters_, why)
    assert one.shared_.keys() == other.shared_.keys(), why
    for name, value in one.shared_.items():
        np.testing.assert_array_equal(value, other.shared_[name], why)
    np.testing.assert_array_equal(one.history_.to_numpy(), history.to_numpy(), why)


def _check_places(
    estimator: Learner, fitted: Learner, X: NDArray, y: NDArray, groups: NDArray, options: dict
) -> None:
    """Two nodes that send bytes find the same, and the server what is shared."""
    half = _first_half(groups)
    rows = [
        {"X": X[own_part], "y": y[own_part], "groups": groups[own_part]}
        | {name: values[own_part] for name, values in options.items()}
        for own_part in (half, ~half)
    ]
    nodes, kept, sent = _meet(estimator, rows)
    for node, own_part in zip(nodes, (half, ~half), strict=True):
        np.testing.assert_array_equal(
            _answers(node, X[own_part], groups[own_part]),
            _answers(fitted, X[own_part], groups[own_part]),
            "places must not matter",
        )
        assert len(node.history_) == fitted.n_iter_, "a node has the history too"
        assert len(node.privacy_) >= 1, "and a ledger"
    parameters = np.concatenate([node.parameters_ for node in nodes])
    np.testing.assert_array_equal(parameters, fitted.parameters_, "places must not matter")
    for what, held in (("keeps", kept), ("tells", sent)):
        assert "key" not in held, f"the key of the noise is in what a server {what}"
    server = clone(estimator).conclude(kept)
    for name, value in fitted.shared_.items():
        np.testing.assert_array_equal(server.shared_[name], value, "a server knows what is shared")
    for labels, new in ((groups, groups + groups.max() + 1), (None, None)):
        np.testing.assert_array_equal(
            _answers(server, X, labels), _answers(fitted, X, new), "and predicts by that"
        )
    assert len(server.history_) == fitted.n_iter_, "a server has the history"
    assert len(server.privacy_) == len(fitted.privacy_), "and a ledger of as many rows"


def _check_table(
    estimator: Learner,
    fitted: Learner,
    X: NDArray,
    y: NDArray,
    groups: NDArray,
    has_data: dict,
    history: Any,
) -> None:
    """A frame with columns of responses and groups says what arrays do."""
    import pandas as pd

    names = [f"x{j}" for j in range(X.shape[1])]
    table = pd.DataFrame(X, columns=names).assign(y=y, g=groups)
    framed = clone(estimator).fit(table, "y", groups="g", **has_data)
    _check_same(framed, fitted, history, "frames must not matter")
    np.testing.assert_array_equal(_answers(framed, table, None), _answers(fitted, X, groups))
    assert framed.score(table) == fitted.score(X, y, groups=groups), "nor for the score"


def _check_prefix(
    estimator: Learner, X: NDArray, y: NDArray, groups: NDArray, has_data: dict, history: Any
) -> None:
    """Fewer rounds are the first of more, where noise does not depend on how many there are."""
    if estimator.get_params().get("epsilon") is not None or estimator.n_rounds < 2:
        return
    few = estimator.n_rounds // 2
    short = clone(estimator).set_params(n_rounds=few).fit(X, y, groups=groups, **has_data)
    shown, whole = short.history_, history.iloc[:few]
    # an account of fewer rounds may be the tighter one, and its figure is of its own last round
    shown, whole = (each.drop(columns="epsilon", errors="ignore") for each in (shown, whole))
    np.testing.assert_array_equal(
        shown.to_numpy(), whole.to_numpy(), "fewer rounds must be the first of more"
    )
