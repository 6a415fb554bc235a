"""What reports say: integrated otherwise, merged, and of clients who said nothing."""

import numpy as np
import pytest
from scipy import stats

from ebfed import Summary, channels, families
from ebfed.channels import design
from ebfed.likelihoods import Joined, ReportedMeans, binomial
from ebfed.likelihoods import reported as module
from ebfed.priors import Beta, Discrete, Normal

UNIT = (0.0, 1.0)
RNG = np.random.default_rng(11)


means, counts = families.Gaussian(0.5), families.Binomial()


def of_means(n, d=1):
    theta = RNG.normal(0.5, 0.3, (len(n), d))
    x = RNG.normal(theta, np.sqrt(0.5 / np.maximum(n, 1))[:, None])
    return Summary(np.arange(len(n)), n, np.where(n[:, None] > 0, x, 0.0), np.zeros_like(x))


def of_counts(n):
    return Summary.from_counts(RNG.binomial(n, RNG.beta(3, 4, len(n))), n)


CONTINUOUS = [
    channels.Gaussian(2.0, 1e-5, UNIT),
    channels.Laplace(2.0, UNIT),
    channels.Piecewise(2.0, UNIT),
    channels.Hybrid(2.0, UNIT),
]
SYMBOLS = [
    channels.OneBit(2.0, UNIT),
    channels.TwoBit(2.0, 0.4, UNIT),
    channels.Quantizer(3, UNIT),
    channels.DiscreteGaussian(2.0, 1e-5, UNIT),
    channels.RandomizedResponse(2.0, UNIT, levels=6),
    channels.UnaryEncoding(2.0, UNIT, levels=6),
]


# Integrals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("channel", CONTINUOUS + SYMBOLS, ids=repr)
def test_counts_are_summed_over(channel):
    """``sum_z p(y | z / n) Binomial(z; n, theta)``, client by client."""
    summary = of_counts(np.array([1, 4, 9, 4]))
    message = channel.encode(summary, 1)
    theta = np.array([0.0, 0.2, 0.9, 1.0])
    found = channel.likelihood(message, counts).logpdf(theta[:, None])
    law = channel._law(1)
    for i, n in enumerate(summary.n):
        density = law.density(
            message["report"][[i], 0], 2 * np.arange(n + 1) / n - 1, summary.n[[i]]
        )
        masses = stats.binom.pmf(np.arange(n + 1)[:, None], n, theta)
        np.testing.assert_allclose(np.exp(found[i]), (density @ masses)[0], rtol=1e-9)


@pytest.mark.parametrize("channel", CONTINUOUS + SYMBOLS, ids=repr)
def test_population_widens_the_law_of_means(channel):
    """The marginal is the average of the likelihood over a normal theta."""
    message = channel.encode(of_means(np.array([2, 5, 9])), 1)
    likelihood = channel.likelihood(message, means)
    theta = np.linspace(-3, 4, 8001)
    weights = stats.norm.pdf(theta, 0.4, 0.35) * (theta[1] - theta[0])
    averaged = np.exp(likelihood.logpdf(theta[:, None])) @ weights
    found = likelihood.marginal(np.array([0.4]), np.array([0.35**2]))
    np.testing.assert_allclose(np.exp(found), averaged, rtol=1e-6)


@pytest.mark.parametrize("channel", CONTINUOUS + SYMBOLS, ids=repr)
def test_population_mixes_the_law_of_counts(channel):
    message = channel.encode(of_counts(np.array([1, 4, 9])), 1)
    likelihood = channel.likelihood(message, counts)
    theta, weights = np.polynomial.legendre.leggauss(60)
    theta = (theta + 1) / 2
    averaged = np.exp(likelihood.logpdf(theta[:, None])) @ (
        weights / 2 * stats.beta.pdf(theta, 3, 5)
    )
    found = likelihood.marginal(np.array([3 / 8]), np.array([stats.beta.var(3, 5)]))
    np.testing.assert_allclose(np.exp(found), averaged, rtol=1e-9)


def test_coordinates_add_up():
    summary = of_means(np.arange(1, 7), d=3)
    theta = RNG.normal(0.5, 0.5, (4, 3))
    for channel in (channels.Gaussian(2.0, 1e-5, UNIT), channels.Laplace(2.0, UNIT)):
        likelihood = channel.likelihood(channel.encode(summary, 1), means)
        parts = sum(likelihood.column(j).logpdf(theta[:, [j]]) for j in range(3))
        np.testing.assert_allclose(likelihood.logpdf(theta), parts, rtol=1e-12)
        variance = np.array([0.1, 0.2, 0.3])
        parts = sum(likelihood.column(j).marginal(theta[0, [j]], variance[[j]]) for j in range(3))
        np.testing.assert_allclose(likelihood.marginal(theta[0], variance), parts, rtol=1e-12)


def test_asked_about_one_coordinate_says_nothing_of_others():
    channel = channels.Laplace(2.0, UNIT)
    message = channel.encode(of_means(np.full(50, 4), d=3), 1)
    likelihood = channel.likelihood(message, means)
    assert np.array_equal(np.isfinite(likelihood.local), message["asked"])
    theta = RNG.normal(0.5, 0.3, (1, 3))
    for j in range(3):
        moved = theta + np.eye(3)[j]
        same = likelihood.logpdf(theta)[:, 0] == likelihood.logpdf(moved)[:, 0]
        np.testing.assert_array_equal(same, ~message["asked"][:, j])


@pytest.mark.parametrize("most", [36, 8], ids=["two populations", "some numbers of rows"])
@pytest.mark.parametrize("channel", CONTINUOUS + SYMBOLS, ids=repr)
def test_several_populations_at_once(channel, most, monkeypatch):
    """``sum_z p(y | z / n) BetaBinomial(z; n)``, and as one by one for means."""
    n = np.array([4, 1, 9, 0, 4])
    pairs = np.array([[0.3, 0.05], [0.5, 1 / 12], [0.9, 1e-9]])
    monkeypatch.setattr(binomial, "MOST_MASSES", most)  # in memory at a time
    message = channel.encode(of_counts(n), 1)
    likelihood = channel.likelihood(message, counts)
    found = Joined((likelihood, likelihood)).marginals(pairs[:, :1], pairs[:, 1:])
    law = channel._law(1)
    for i, size in enumerate(n):
        u, z = 2 * np.arange(size + 1) / max(size, 1) - 1, np.arange(size + 1)
        density = law.density(message["report"][[i], 0], u, n[[i]])[0]
        for k, (mean, variance) in enumerate(pairs):
            total = mean * (1 - mean) / variance - 1
            masses = stats.betabinom.pmf(z, size, mean * total, (1 - mean) * total)
            expected = np.log(density @ masses) if size else 0.0
            # of 1e9 scipy loses digits
            assert found[[i, i + 5], k] == pytest.approx(expected, rel=1e-6 if k == 2 else 1e-10)
    if not isinstance(channel, channels.RandomizedResponse | channels.UnaryEncoding):
        of_n = channel.likelihood(channel.encode(of_means(n), 1), means)
        one_by_one = [of_n.marginal(pair[:1], pair[1:]) for pair in pairs]
        np.testing.assert_array_equal(of_n.marginals(pairs[:, :1], pairs[:, 1:]).T, one_by_one)
    assert likelihood.marginals(np.empty((0, 1)), np.empty((0, 1))).shape == (5, 0)


def test_symbols_are_merged_once_for_all_who_sent_them(monkeypatch):
    channel = channels.RandomizedResponse(2.0, UNIT, levels=6)
    likelihood = channel.likelihood(channel.encode(of_counts(np.repeat([5, 8], 3000)), 1), counts)
    monkeypatch.setattr(binomial, "MOST_ENTRIES", 4 * 12 * 9)  # not for each client
    rows, weights = likelihood.compress()
    assert len(rows) == 12
    theta = np.linspace(0.05, 0.95, 9)[:, None]
    monkeypatch.undo()
    np.testing.assert_allclose(
        weights @ rows.logpdf(theta), likelihood.logpdf(theta).sum(axis=0), rtol=1e-10
    )


# Nothing to say -------------------------------------------------------------------------------


@pytest.mark.parametrize("channel", CONTINUOUS + SYMBOLS, ids=repr)
def test_clients_without_rows(channel):
    n = np.array([0, 3, 0, 5, 2])
    for summary, model in ((of_means(n), means), (of_counts(n), counts)):
        likelihood = channel.likelihood(channel.encode(summary, 1), model)
        empty = n == 0
        assert np.all(likelihood.logpdf(np.array([[0.2], [0.7]]))[empty] == 0)
        assert np.all(likelihood.marginal(np.array([0.5]), np.array([0.05]))[empty] == 0)
        assert np.all(likelihood.log_peak()[empty] == 0)
        np.testing.assert_array_equal(np.isnan(likelihood.local[:, 0]), empty)
        rows, weights = likelihood.compress()
        assert weights.sum() == 3
        nobody = likelihood.take(empty)
        assert nobody.compress()[0].logpdf(np.array([[0.5]])).shape == (0, 1)
        assert len(likelihood.take(slice(0, 0)).logpdf(np.array([[0.5]]))) == 0
        assert len(rows) <= 3


def test_joined_with_a_part_that_nobody_is_left_in():
    channel = channels.Laplace(2.0, UNIT)
    part = channel.likelihood(channel.encode(of_counts(np.full(4, 5)), 1), counts)
    one = Joined((part, part)).take(slice(0, 1))
    theta = np.array([[0.3]])  # of one client or four: a product of matrices rounds otherwise
    np.testing.assert_allclose(one.logpdf(theta), part.logpdf(theta)[:1], rtol=1e-12)
    rows, weights = one.compress()
    assert weights.tolist() == [1.0]
    assert rows.marginal(np.array([0.5]), np.array([0.05])).shape == (1,)


def test_levels_that_are_counts_need_counts():
    for make in (channels.RandomizedResponse, channels.UnaryEncoding):
        channel = make(2.0, UNIT)
        message = channel.encode(of_counts(np.full(3, 4)), 1)
        with pytest.raises(ValueError, match="levels must be given"):
            channel.likelihood(message, means).logpdf(np.array([[0.3]]))
        with pytest.raises(ValueError, match="levels must be given"):
            design.settle(channel, means, 1, 10, 5, None)
        assert design.settle(channel, counts, 1, 10, 5, None) == {}


def test_noise_must_be_known():
    channel = channels.Laplace(2.0, UNIT)
    message = channel.encode(of_means(np.full(3, 4)), 1)

    with pytest.raises(ValueError, match="variances must be given"):
        channel.likelihood(message, families.Gaussian())


# Merging --------------------------------------------------------------------------------------


def differences(rows, weights, mean, variance):
    """How the log-likelihood of a population moves with its mean and variance."""
    values = [
        weights @ rows.marginal(np.array([mean + a]), np.array([variance * b]))
        for a, b in ((0, 1), (0.02, 1), (-0.02, 1), (0, 1.2), (0, 0.8))
    ]
    return np.array(values[1:]) - values[0]


@pytest.mark.parametrize("epsilon", [0.7, 4.0])
@pytest.mark.parametrize(
    "make", [type(channel) for channel in CONTINUOUS], ids=lambda x: x.__name__
)
@pytest.mark.parametrize("model", [means, counts], ids=["means", "counts"])
def test_merging_keeps_differences(make, epsilon, model):
    """By less than 0.1, a seventh of what one standard error of an estimate is worth (1/2)."""
    n = np.full(20_000, 15)
    summary = of_means(n) if model is means else of_counts(n)
    delta = {"delta": 1e-5} if make is channels.Gaussian else {}
    channel = make(epsilon=epsilon, range=UNIT, **delta)
    likelihood = channel.likelihood(channel.encode(summary, 1), model)
    rows, weights = likelihood.compress()
    assert len(rows) <= module.MOST_ROWS
    assert weights.sum() == len(n)
    at = (0.5, 0.09) if model is means else (3 / 7, stats.beta.var(3, 4))
    off = differences(rows, weights, *at) - differences(likelihood, np.ones(len(n)), *at)
    assert np.abs(off).max() < 0.1


@pytest.mark.parametrize("make", [channels.Piecewise, channels.Hybrid])
def test_windows_around_counts_are_merged_exactly(make):
    channel = make(3.0, UNIT)
    summary = of_counts(np.repeat([5, 8], 3000))
    likelihood = channel.likelihood(channel.encode(summary, 1), counts)
    rows, weights = likelihood.compress()
    assert len(rows) < 60
    other, same = likelihood.take(RNG.permutation(len(likelihood))).compress()
    np.testing.assert_array_equal(other.reports, rows.reports)
    np.testing.assert_array_equal(same, weights)
    theta = np.linspace(0.05, 0.95, 9)[:, None]
    np.testing.assert_allclose(
        weights @ rows.logpdf(theta), likelihood.logpdf(theta).sum(axis=0), rtol=1e-10
    )


def test_merged_cells_end_where_clipping_does():
    law = channels.Piecewise(1.5, UNIT)._law(1)
    reports = np.linspace(-law.reach, law.reach, 100_001)
    rounded = law.rounded(reports)
    np.testing.assert_allclose(rounded, reports, atol=law.width / 400 * (1 + 1e-9))
    outside = np.abs(reports) > 1
    np.testing.assert_array_equal(np.abs(rounded) > 1, outside)
    assert np.all(np.abs(rounded) <= law.reach)
    np.testing.assert_array_equal(rounded, law.rounded(rounded))


@pytest.mark.parametrize("channel", CONTINUOUS + SYMBOLS, ids=repr)
def test_order_of_clients_does_not_matter(channel):
    n = RNG.integers(1, 5, 400)
    for summary, model in ((of_means(n), means), (of_counts(n), counts)):
        likelihood = channel.likelihood(channel.encode(summary, 1), model)
        rows, weights = likelihood.compress()
        other, same = likelihood.take(RNG.permutation(400)).compress()
        np.testing.assert_array_equal(weights, same)
        np.testing.assert_array_equal(rows.reports, other.reports)
        np.testing.assert_array_equal(rows.sizes, other.sizes)
        if isinstance(rows, ReportedMeans):
            np.testing.assert_array_equal(rows.variances, other.variances)


def test_most_entries(monkeypatch):
    monkeypatch.setattr(binomial, "MOST_ENTRIES", 100)
    channel = channels.Laplace(2.0, UNIT)
    likelihood = channel.likelihood(channel.encode(of_counts(np.full(50, 5)), 1), counts)
    with pytest.raises(ValueError, match="GaussianEB"):
        likelihood.logpdf(np.array([[0.5]]))


# Priors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("channel", CONTINUOUS[1:] + SYMBOLS, ids=repr)
def test_a_population_of_no_spread(channel):
    """Posteriors are a point at the mean, where quadrature has nothing to integrate."""
    likelihood = channel.likelihood(channel.encode(of_means(np.full(30, 5)), 1), means)
    posterior = Normal(mean=0.4, variance=0.0).fit(likelihood).posterior(likelihood)
    np.testing.assert_array_equal(posterior.mean, 0.4)
    np.testing.assert_array_equal(posterior.sd, 0.0)


def test_quadrature_is_for_one_coordinate():
    channel = channels.Piecewise(4.0, UNIT)
    likelihood = channel.likelihood(channel.encode(of_means(np.full(30, 5), d=2), 1), means)
    prior = Normal(mean=0.4, variance=0.1).fit(likelihood)
    with pytest.raises(ValueError, match="one coordinate"):
        prior.posterior(likelihood)
    n = np.full(30, 5)
    rates = Summary(np.arange(30), n, RNG.binomial(5, 0.4, (30, 2)) / 5, np.zeros((30, 2)))
    likelihood = channel.likelihood(channel.encode(rates, 1), counts)
    with pytest.raises(ValueError, match="one coordinate"):
        Beta(alpha=1.0, beta=1.0).fit(likelihood).posterior(likelihood)
    assert Discrete([[0.2, 0.2], [0.6, 0.6]]).fit(likelihood).posterior(likelihood).mean.shape == (
        30,
        2,
    )


def test_columns_are_fitted_one_by_one():
    channel = channels.Laplace(6.0, UNIT)
    likelihood = channel.likelihood(channel.encode(of_means(np.full(400, 9), d=2), 1), means)
    both = Normal().fit(likelihood)
    for j in range(2):
        one = Normal().fit(likelihood.column(j))
        np.testing.assert_allclose(
            [both.mean_[j], both.variance_[j]], [one.mean_[0], one.variance_[0]]
        )
