"""Posteriors averaged over plausible populations."""

import itertools
import pickle
import warnings

import numpy as np
import pytest
from scipy.special import stdtrit

import ebfed as eb
from ebfed import Summary, families
from ebfed.channels import Hybrid, TwoBit
from ebfed.likelihoods import Binomial, Gaussian, Poisson, StudentT
from ebfed.priors import Beta, Discrete, Gamma, Laplace, Normal, PointLaplace, PointNormal
from ebfed.priors.base import OwnReports
from ebfed.priors.integrated import (
    FEW,
    RARELY,
    TOLERANCE,
    IntegratedPosterior,
    _caution,
    quantile_between,
)
from ebfed.priors.two_moments import TwoMoments

RNG = np.random.default_rng(5)
SIZES = RNG.integers(3, 40, 25)
EIGHT = np.full(12, 8)
COUNTS = {
    "rates": (Beta(), Binomial(RNG.binomial(SIZES, RNG.beta(2, 6, 25))[:, None], SIZES)),
    "two ends": (Beta(), Binomial(RNG.binomial(8, RNG.beta(0.1, 0.2, 12))[:, None], EIGHT)),
    "one success": (Beta(), Binomial(np.eye(30, 1, dtype=int), np.full(30, 10))),
    "events": (Gamma(), Poisson(RNG.poisson(RNG.gamma(2, 1, 20))[:, None], np.ones(20))),
    "one event": (Gamma(), Poisson(np.eye(30, 1, dtype=int), np.full(30, 10.0))),
}


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("q", [0.025, 0.5, 0.975])
def test_quantiles_of_one_family_are_roots_of_the_mixture(name, q):
    prior, counts = COUNTS[name]
    posterior = prior.fit(counts).posterior(counts)
    parts, _ = posterior._mixture
    assert isinstance(posterior, IntegratedPosterior)
    assert isinstance(parts[0], TwoMoments)
    at = posterior.quantile(q)
    # where even the least of numbers has more probability below, the quantile is next to zero
    tiny = at < 1e-300
    # probabilities are reached to 1e-11, and have the rounding of 100 parts
    np.testing.assert_allclose(posterior.prob_below(at)[~tiny], q, atol=2e-11)
    assert (posterior.prob_below(at)[tiny] >= q).all()
    ends = np.array([part.quantile(q) for part in parts])
    slow = quantile_between(
        lambda x: posterior.prob_below(x) - q, ends.min(axis=0), ends.max(axis=0)
    )
    np.testing.assert_allclose(at, slow, atol=1e-7, rtol=1e-7)  # its probabilities are to 1e-9


def test_mixtures_that_are_the_same_have_the_same_quantile():
    prior, counts = COUNTS["rates"]
    prior.fit(counts)
    both = Binomial(np.vstack([counts.successes] * 2), np.append(SIZES, SIZES))
    once, twice = prior.posterior(counts).quantile(0.9), prior.posterior(both).quantile(0.9)
    np.testing.assert_array_equal(twice, np.vstack([once, once]))


def test_share_of_local_estimates_limits_harm():
    """Mean squared error of moves with known errors, by its formula, in each population."""
    rng = np.random.default_rng(3)
    means, spreads = rng.normal(0, 1, 200), rng.gamma(1, 1, (200, 1))
    weights = rng.dirichlet(np.ones(200))
    populations = [Normal.known(v, mean) for v, mean in zip(spreads, means, strict=True)]
    spreads = spreads[:, 0]
    noise = np.array([0.1, 1.0, 10.0])
    share = _caution(populations, weights[:, None], Gaussian(np.zeros((3, 1)), noise[:, None]))
    for v, s in zip(noise, share[:, 0], strict=True):
        pull = v / (v + spreads)
        b = weights @ pull
        centre = weights @ (pull * means) / b

        def harm(s, v=v, b=b, centre=centre):
            """Probability of populations where local estimates are better by over 2 %."""
            rest = 1 - (1 - s) * b
            bias = (1 - s) * b * (means - centre)
            risk = rest**2 * v + ((1 - s) * b) ** 2 * spreads + bias**2
            return weights @ (risk > (1 + TOLERANCE) * v)

        assert harm(s + 1e-6) <= RARELY
        assert s == 0 or harm(s - 1e-3) > RARELY - weights.max()
    assert share.max() > 0


def test_clients_without_data_or_without_noise_have_no_part_in_shares():
    populations = [Normal.known(np.full(1, v), mean) for v, mean in ((1.0, 0.0), (0.0, 1.0))]
    clients = Gaussian(np.zeros((2, 1)), np.array([[np.inf], [0.0]]))
    share = _caution(populations, np.full((2, 1), 0.5), clients)
    np.testing.assert_array_equal(share, 0.0)


@pytest.mark.parametrize("df", [0.5, 1.0, 2.0, 2 + 1e-12, 3.0])
@pytest.mark.parametrize(
    "prior",
    ["normal", "point_normal", "laplace", "point_laplace", "scale_mixture", "log_spline", "npmle"],
)
def test_two_estimates_with_heavy_errors_have_intervals_of_two_ends(prior, df):
    # of any spread of the population: a t distribution around each estimate, whose spread is
    # infinite, and so is no sign of a point
    posterior = eb.posterior_from([1.0, 3.0], [1.0, 2.0], prior=prior, df=df)
    reach = stdtrit(df, 0.975) * np.array([1.0, 2.0])
    lower, upper = posterior.interval()
    np.testing.assert_allclose(lower[:, 0], np.array([1.0, 3.0]) - reach, rtol=1e-9)
    np.testing.assert_allclose(upper[:, 0], np.array([1.0, 3.0]) + reach, rtol=1e-9)
    assert np.isneginf(posterior.quantile(0.0)).all()
    assert np.isposinf(posterior.quantile(1.0)).all()


@pytest.mark.parametrize(
    ("prior", "kind"),
    [
        *itertools.product([Normal(), Discrete(), Laplace(), PointNormal()], ["estimates", "two"]),
        *itertools.product([Normal(), Laplace(), PointNormal()], ["t errors"]),
        *itertools.product([Normal(), Discrete()], ["reports"]),
    ],
)
def test_a_posterior_can_be_pickled(prior, kind):
    """Before and after it has found the posteriors that it averages."""
    x = np.random.default_rng(2).normal(0, 2, (2 if kind == "two" else 12, 1))
    own = Gaussian(x, np.ones(x.shape))
    likelihood = StudentT(x, np.ones(x.shape), np.full(len(x), 5.0)) if kind == "t errors" else own
    if kind == "reports":
        clients = Summary(np.arange(len(x)), np.full(len(x), 2), x, np.zeros(x.shape))
        channel = Hybrid(2.0, (-3.0, 3.0))
        likelihood = channel.likelihood(channel.encode(clients, 0), families.Gaussian(2.0))
    with warnings.catch_warnings():  # two groups leave the spread open
        warnings.simplefilter("ignore")
        posterior = prior.fit(likelihood).posterior(own)
    for _ in range(2):
        copy = pickle.loads(pickle.dumps(posterior))
        np.testing.assert_array_equal(copy.interval(0.9), posterior.interval(0.9))


def test_the_posterior_of_members_can_be_pickled():
    x = np.random.default_rng(2).normal(0, 2, (12, 1))
    own = Gaussian(x, np.ones(x.shape))
    reports = OwnReports(np.full(x.shape, 0.5), None, x)
    posterior = Normal().fit(own).posterior_of_members(own, reports)
    copy = pickle.loads(pickle.dumps(posterior))
    np.testing.assert_array_equal(copy.quantile(0.3), posterior.quantile(0.3))


def test_rates_through_a_channel_can_be_pickled():
    clients = Summary.from_counts([0, 3, 6, 2], [6, 6, 6, 6])
    channel = TwoBit(2.0, 0.5, (0.0, 1.0))
    likelihood = channel.likelihood(channel.encode(clients, 0), families.Binomial())
    own = Binomial(np.array([[0], [3], [6], [2]]), np.full(4, 6))
    posterior = Beta().fit(likelihood).posterior(own)
    copy = pickle.loads(pickle.dumps(posterior))
    np.testing.assert_array_equal(copy.quantile(0.3), posterior.quantile(0.3))


@pytest.mark.parametrize("far", [1e150, -1e200, 1e307, -1.7e308])
def test_data_further_than_squares_can_say_have_an_estimate(far):
    """Between the population and the data, and on the side of these."""
    x = np.random.default_rng(2).normal(0, 2, (40, 1))
    clients = Summary(np.arange(40), np.full(40, 2), x, np.zeros(x.shape))
    channel = Hybrid(2.0, (-3.0, 3.0))
    likelihood = channel.likelihood(channel.encode(clients, 0), families.Gaussian(2.0))
    own = Gaussian(np.append(x, [[far]], axis=0), np.ones((41, 1)))
    posterior = Normal().fit(likelihood).posterior(own)
    low, high = posterior.interval(0.95)
    for figure in (posterior.mean, low, high):
        assert 0 < figure[-1, 0] / far <= 1


def test_reports_are_compared_with_a_few_populations(monkeypatch):
    """Under a population on a grid each takes as long as the fitted one."""
    rng = np.random.default_rng(0)
    summary = Summary.from_rows(rng.laplace(0.3, 0.3, 60), groups=np.arange(60))
    channel = eb.channels.Laplace(12.0, (-1, 2))
    reports = channel.likelihood(channel.encode(summary, rng=1), families.Gaussian(0.5))
    prior, asked = PointLaplace().fit(reports), []
    log_marginal = PointLaplace.log_marginal
    monkeypatch.setattr(
        PointLaplace, "log_marginal", lambda *a: asked.append(1) or log_marginal(*a)
    )
    assert np.isfinite(prior.posterior(reports).sd).all()
    assert 0 < len(asked) <= FEW
    assert len(prior.populations()[0]) > 100
