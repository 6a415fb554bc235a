"""Contract of channels: of the laws of their reports, and of reports about categories."""

from __future__ import annotations

import itertools
import pickle
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from ebfed.channels import Channel
from ebfed.channels.base import Message, public_figures
from ebfed.channels.law import Law
from ebfed.channels.report import Report
from ebfed.families import Family
from ebfed.privacy.calibration import PrivacyWarning
from ebfed.streams import Stream, make_key
from ebfed.tables.clients import Summary
from ebfed.testing.seed import SEED

__all__ = ["check_channel"]

# Concentration of the population over which reports are averaged.
CONCENTRATION = 3.0


def check_channel(
    channel: Channel,
    summary: Summary,
    family: Family,
    *,
    secure: int = 1000,
    size: int = 30_000,
) -> None:
    """Check a channel on clients of one column; of a channel for categories, on their shares.

    Messages are plain arrays with one entry per client and no labels. They do not depend on the
    blocks of clients. `decode` is unbiased and has the stated `variance`, for one column and for
    three. Reports have the frequencies of the likelihood, at a fixed parameter and over a
    population. The law of a report integrates to one, agrees with its average over normal local
    values, and keeps the `guarantee`. Reports drawn with the randomness of the operating system
    have the same law.

    Parameters
    ----------
    channel : Channel
        All of its arguments are set.
    summary : Summary of at least two clients, one column
        Local means to try. Both ends of the channel's range are among them.
    family : Family
        What the rows of clients are; `families.Gaussian` with known variances.
    secure : int
        Number of reports drawn with the randomness of the operating system, at a false alarm rate
        of 1e-9. 0 if OpenDP is not installed.
    size : int
        Number of simulated reports for each frequency.

    Examples
    --------
    >>> from ebfed.channels import OneBit
    >>> from ebfed.families import Binomial
    >>> summary = Summary.from_counts([0, 2, 8], [5, 5, 8])
    >>> check_channel(OneBit(1.0, (0, 1)), summary, Binomial())
    """
    if channel.of_shares:
        _check_message(channel, summary)
        _check_decode(channel, summary, size)
        check_categories(channel, summary, family, size, secure)
        return
    assert summary.n_features == 1, "give clients of one column; three are made of it"
    _check_message(channel, summary)
    _check_decode(channel, summary, size)
    columns = np.column_stack([np.roll(summary.mean, shift) for shift in range(3)])
    three = Summary(summary.ids, summary.n, columns, np.repeat(summary.scatter, 3, axis=1))
    _check_message(channel, three)
    _check_decode(channel, three, size)
    likelihood = channel.likelihood(channel.encode(summary, SEED), family)
    assert len(likelihood) == len(summary), "likelihood has one row per client"
    has_data = np.isfinite(likelihood.local[:, 0])
    np.testing.assert_array_equal(has_data, summary.n > 0, "clients with rows must be informative")
    if not isinstance(channel, Report):
        return
    law, counts = channel._law(1), family.typical(1, 1).counts_rows
    trials = np.unique(summary.n[summary.n > 0])
    for n in np.unique(trials[[0, -1]]):
        if counts or n == trials[0]:
            check_law(law, int(n) if counts else 0, *_guarantee(channel, 1))
        check_reports(channel, summary, family, int(n), size, secure if n == trials[0] else 0)


def _figures(summary: Summary) -> Message:
    return {"n": summary.n, "mean": summary.mean, "scatter": summary.scatter}


def _repeat(summary: Summary, i: int, size: int) -> Summary:
    """Return `size` clients with the figures of client i."""
    figures = [np.repeat(values[[i]], size, axis=0) for values in _figures(summary).values()]
    return Summary(np.arange(size), *figures)


def _check_message(channel: Channel, summary: Summary) -> None:
    n, d = len(summary), summary.n_features
    labels = 10**15 + np.arange(n)
    summary = Summary(labels, summary.n, summary.mean, summary.scatter)
    before = pickle.dumps(summary)
    message = channel.encode(summary, SEED)
    assert pickle.dumps(summary) == before, "encode must not change the summary"
    assert isinstance(message, dict), "a message is a dict"
    for name, values in message.items():
        assert isinstance(values, np.ndarray), f"{name} must be an array"
        assert values.dtype.kind in "biuf", f"{name} must be plain numbers"
        assert len(values) == n, f"{name} must have one entry per client"
        assert not np.isin(values, labels).any(), f"{name} must not contain labels of clients"
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
    epsilon, delta = _guarantee(channel, d)
    assert epsilon > 0, "epsilon must be positive; infinite without a guarantee"
    assert 0 <= delta < 1, "delta must be a probability"
    assert type(channel.event(d)).__name__.endswith("DpEvent"), "event is one of dp-accounting"


def _guarantee(channel: Channel, d: int) -> tuple[float, float]:
    with warnings.catch_warnings():  # a weak guarantee must hold too
        warnings.simplefilter("ignore", PrivacyWarning)
        return channel.guarantee(d)


def _same(message: Message, other: Message, sentence: str) -> None:
    assert list(message) == list(other), sentence
    for name, values in message.items():
        assert values.dtype == other[name].dtype, sentence
        np.testing.assert_array_equal(values, other[name], sentence)


def _check_decode(channel: Channel, summary: Summary, size: int) -> None:
    """Check the mean and the variance of decoded values, for up to five clients."""
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
    """Return reports, weights and which reports are atoms, on a finer grid than the law's."""
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


def check_law(law: Law, size: int, epsilon: float, delta: float) -> None:
    """Check that a law sums to one and keeps the guarantee."""
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
    """Check that averages are integrals of the density over normal local values."""
    from scipy.stats import norm

    reports, _ = law.outcomes(size)
    reports = reports[np.unique(np.linspace(0, len(reports) - 1, 40).astype(int))]
    sizes = np.full(len(reports), size)
    means = np.array([-1.27, -0.34, 0.03, 0.71, 1.0])
    points = np.array([-1, -0.733, -0.0213, 0.307, 1])  # no window begins or ends here
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
        # a jump of the density costs the sum one step; halving the step measures it
        error = 4 * np.abs(sums[1] - sums[0]).max() + 1e-6 * at.max()
        assert np.all(np.abs(average - sums[1]) <= error), "average must integrate the density"


def check_reports(
    channel: Report, summary: Summary, family: Family, n: int, size: int, secure: int
) -> None:
    """Check that reports of clients with n rows have the frequencies of the likelihood."""
    rng = np.random.default_rng(SEED)
    law = channel._law(1)
    reports, weights, own = _outcomes(law, n)
    counts = family.typical(n, 1).counts_rows
    if not counts:
        reports, weights, own = _outcomes(law, 0)
    blank = family.blank(np.full(len(reports), n), 1)
    message = public_figures(blank) | {"report": reports[:, None]}
    likelihood = channel.likelihood(message, family)

    def drawn(theta: NDArray, how: Any) -> NDArray:
        sizes = np.full(len(theta), n)
        local = family.simulate(theta, sizes, rng)
        clients = replace(family.blank(sizes, 1), mean=local[:, None])
        return channel.encode(clients, how)["report"][:, 0]

    middle, top = summary.mean.mean(), summary.mean.max()
    low, high = family.support
    if np.isfinite(high):
        top = min(top, 0.95 * high)
    for theta in (middle, top):
        masses = weights * np.exp(likelihood.logpdf(np.array([[theta]]))[:, 0])
        simulated = drawn(np.full(size, theta), SEED)
        _check_frequencies(simulated, reports, own, masses, 1e-6, f"simulated at {theta:g}")
        if secure and theta == middle:
            real = drawn(np.full(secure, theta), "secure")
            assert real.dtype == simulated.dtype, "secure reports must be of the same type"
            _check_frequencies(real, reports, own, masses, 1e-9, f"secure at {theta:g}")
    bounded = np.isfinite(high)
    variance = 0.2 * (middle - low) * (high - middle) if bounded else summary.mean.var()
    theta = family.draw_population(middle, variance, size, rng)
    masses = weights * np.exp(likelihood.marginal(np.array([middle]), np.array([variance])))
    _check_frequencies(drawn(theta, SEED), reports, own, masses, 1e-6, "over a population")


def _check_frequencies(
    drawn: NDArray, reports: NDArray, own: NDArray, masses: NDArray, alarm: float, what: str
) -> None:
    """Compare frequencies with probabilities by chi-square; `alarm` is the false alarm rate."""
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
    assert np.all(bins >= 0), f"a report {what} is not an outcome of the law"
    seen = np.bincount(bins, minlength=len(expected)).astype(float)
    expected = expected * len(values)
    kept = expected >= 10
    seen, expected = (np.append(x[kept], x[~kept].sum()) for x in (seen, expected))
    _check_fit(seen, expected, alarm, what)


def _check_fit(seen: NDArray, expected: NDArray, alarm: float, what: str) -> None:
    """Compare numbers of reports with expected ones, the last of which are of all rare reports."""
    from scipy.stats import chi2

    if expected[-1] < 10:  # rare reports join the last bin
        seen, expected = (np.append(x[:-2], x[-2:].sum()) for x in (seen, expected))
    statistic = ((seen - expected) ** 2 / expected).sum()
    chance = chi2.sf(statistic, max(len(seen) - 1, 1))
    assert chance >= alarm, (
        f"reports {what} do not have the frequencies of the likelihood: chi-square {statistic:.1f} "
        f"in {len(seen)} bins, p = {chance:.1g}"
    )


def check_categories(
    channel: Channel, summary: Summary, family: Family, size: int, secure: int
) -> None:
    """Check that reports of randomised categories have the probabilities of the likelihood.

    At fixed shares, and over a Dirichlet population. Probabilities are of the reports that were
    drawn: they add up to 1 where all possible ones were.
    """
    rng = np.random.default_rng(SEED)
    likelihood = channel.likelihood(channel.encode(summary, SEED), family)
    assert len(likelihood) == len(summary), "likelihood has one row per client"
    k, n = summary.n_features, int(summary.n.max())
    shares = (summary.n @ summary.mean + 1) / (summary.n.sum() + k)
    theta = np.broadcast_to(shares, (size, k))
    _check(channel, family, theta, n, rng, SEED, 1e-6, shares)
    if secure:
        _check(channel, family, theta[:secure], n, rng, "secure", 1e-9, shares)
    theta = rng.dirichlet(CONCENTRATION * shares, size)
    _check(channel, family, theta, n, rng, SEED, 1e-6, shares, 1 / (1 + CONCENTRATION))


def _check(
    channel: Channel,
    family: Family,
    theta: NDArray,
    n: int,
    rng: np.random.Generator,
    how: Any,
    alarm: float,
    mean: NDArray,
    correlation: float = 0.0,
) -> None:
    """Compare frequencies of reports with probabilities by chi-square."""
    sizes = np.full(len(theta), n)
    counts = rng.multinomial(sizes, theta)
    clients = replace(family.blank(sizes, theta.shape[1]), mean=counts / n)
    message = channel.encode(clients, how)
    report, first, seen = np.unique(
        message["report"], axis=0, return_index=True, return_counts=True
    )
    said = channel.likelihood({"n": sizes[first], "report": report}, family)
    variance = mean * (1 - mean) * correlation
    chance = np.exp(said.marginal(mean, variance))
    assert chance.sum() < 1 + 1e-9, "probabilities of different reports must not exceed 1"
    if not correlation:
        np.testing.assert_allclose(
            np.exp(said.logpdf(mean[None])[:, 0]), chance, rtol=1e-9, err_msg="a point is a point"
        )
    expected = chance * len(theta)
    kept = expected >= 10
    seen, expected = (
        np.append(x[kept], len(theta) - x[kept].sum()) for x in (seen.astype(float), expected)
    )
    _check_fit(seen, expected, alarm, "of categories")
