"""Posteriors computed once for all clients that have the same data, against each by itself."""

import pickle
from contextlib import nullcontext

import numpy as np
import pytest

from ebfed.channels import TwoBit
from ebfed.families import Binomial as Rates
from ebfed.likelihoods import Binomial, Poisson, StudentT
from ebfed.priors import Beta, Discrete, Gamma, LogSpline, Normal, ScaleMixture, integrated
from ebfed.priors.integrated import InterpolatedPosterior, RepeatedPosterior
from ebfed.tables.clients import Summary

N = 300


def rates(d=1, spread=1.0):
    rng = np.random.default_rng(0)
    n = rng.integers(0, 6, N)
    p = rng.beta(3 / spread, 5 / spread, (N, d))
    return Binomial(rng.binomial(n[:, None], p), n)


def events():
    rng = np.random.default_rng(1)
    exposure = rng.choice([0.5, 1.0, 3.0], N)
    return Poisson(rng.poisson(exposure * rng.gamma(3, 0.5, N))[:, None], exposure)


def from_reports(likelihood):
    summary = Summary.from_counts(likelihood.successes[:, 0], likelihood.trials)
    channel = TwoBit(3.0, range=(0.0, 1.0))
    return Beta().fit(channel.likelihood(channel.encode(summary, 0), Rates()))


CASES = {
    "beta": lambda: (Beta().fit(rates()), rates()),
    "hardly known": lambda: (Beta().fit(rates(spread=0.01)), rates(spread=0.01)),
    "of one rate": lambda: (Beta().fit(Binomial(np.array([[0]]), np.array([9]))), rates()),
    "two columns": lambda: (Beta().fit(rates(2)), rates(2)),
    "of reports": lambda: (from_reports(rates()), rates()),
    "npmle": lambda: (Discrete("npmle").fit(rates()), rates()),
    "gamma": lambda: (Gamma().fit(events()), events()),
}


@pytest.fixture(params=CASES)
def both(request, monkeypatch):
    """Posteriors of each client by itself, and computed once for the same data."""
    with pytest.warns() if request.param == "of one rate" else nullcontext():
        prior, likelihood = CASES[request.param]()
    each = prior.posterior(likelihood)
    monkeypatch.setattr(integrated, "FEWEST_CLIENTS", 1)
    once = prior.posterior(likelihood)
    assert isinstance(once, RepeatedPosterior)
    assert not isinstance(each, RepeatedPosterior)
    assert prior.posterior(likelihood, integrate=False).mean.shape == each.mean.shape
    return each, once


def test_figures(both):
    each, once = both
    assert len(once) == len(each)
    for name in ("mean", "sd", "expectation", "weight"):
        expected, found = getattr(each, name), getattr(once, name)
        if expected is None:
            assert found is None
        else:
            expected = np.broadcast_to(expected, each.mean.shape)
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)


def test_probabilities_and_quantiles(both):
    each, once = both
    np.testing.assert_allclose(once.quantile(0.1), each.quantile(0.1), rtol=1e-9, atol=1e-12)
    own = np.linspace(0, 1, each.mean.size).reshape(each.mean.shape)
    for threshold in (0.3, np.full(each.mean.shape[1], 0.2), own):
        for name in ("prob_below", "prob_above"):
            expected = getattr(each, name)(threshold)
            np.testing.assert_allclose(getattr(once, name)(threshold), expected, atol=1e-12)
    np.testing.assert_allclose(once.interval(0.8), each.interval(0.8), rtol=1e-9, atol=1e-12)


def test_draws_are_those_of_each_client(both):
    each, once = both
    np.testing.assert_array_equal(once.sample(3, 0), each.sample(3, 0))


def test_copies(monkeypatch):
    monkeypatch.setattr(integrated, "FEWEST_CLIENTS", 1)
    posterior = Beta(2.0, 3.0).fit(rates()).posterior(rates())
    again = pickle.loads(pickle.dumps(posterior))
    np.testing.assert_array_equal(again.quantile(0.5), posterior.quantile(0.5))
    np.testing.assert_array_equal(again.sd, posterior.sd)


def test_robust_intervals(monkeypatch):
    likelihood = rates()
    prior = Beta().fit(likelihood)
    expected = prior.posterior(likelihood).interval(kind="robust")
    monkeypatch.setattr(integrated, "FEWEST_CLIENTS", 1)
    found = prior.posterior(likelihood).interval(kind="robust")
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_data_that_hardly_repeat_are_not_looked_up(monkeypatch):
    monkeypatch.setattr(integrated, "FEWEST_CLIENTS", 1)
    exposure = np.linspace(1, 2, 40)
    counts = Poisson(np.arange(40)[:, None], exposure)
    assert not isinstance(Gamma().fit(counts).posterior(counts), RepeatedPosterior)


# --- estimates with t errors ----------------------------------------------------------------------


def estimates(n=30_000):
    """Estimates with t errors; one has no message, and one no error."""
    rng = np.random.default_rng(2)
    s = rng.uniform(0.8, 1.1, n)
    x = rng.normal(0, 1.5, n) + s * rng.standard_t(5, n)
    s[0], s[1] = np.inf, 0.0
    return StudentT(x[:, None], s[:, None] ** 2, np.full(n, 5.0))


POPULATIONS = {
    "normal": lambda: Normal(0.5, 2.0),
    "log-spline": lambda: LogSpline(5),
    "scale mixture": lambda: ScaleMixture(scales=[0, 1, 2]),
    "atoms": lambda: Discrete([[-2.0], [0.0], [2.0]], [0.2, 0.5, 0.3]),
}


@pytest.mark.parametrize("name", POPULATIONS)
def test_figures_between_estimates(name):
    """To 1e-5 standard errors of those of each client; points have theirs exactly."""
    messages = estimates()
    prior = POPULATIONS[name]().fit(messages)
    found, some = prior.posterior(messages), np.r_[0:40, 1000:1040]
    assert isinstance(found, InterpolatedPosterior)
    each = prior.posterior(messages.take(some))
    for figure in ("mean", "sd", "expectation"):
        expected = getattr(each, figure)
        np.testing.assert_allclose(getattr(found, figure)[some], expected, atol=3e-5)
    grid = 0.1 if name == "log-spline" else 3e-5  # its quantiles are nodes of a grid
    np.testing.assert_allclose(found.quantile(0.2)[some], each.quantile(0.2), atol=grid)
    for which in ("prob_below", "prob_above"):
        expected = getattr(each, which)(0.3)
        np.testing.assert_allclose(getattr(found, which)(0.3)[some], expected, atol=grid)
    own = np.arange(len(messages))[:, None] / len(messages)
    expected = each.prob_below(own[some])
    np.testing.assert_allclose(found.prob_below(own)[some], expected, atol=grid)
    np.testing.assert_allclose(found.interval()[0][some], each.interval()[0], atol=grid)
    assert found.mean[1] == messages.values[1]
    assert found.sd[1] == 0


def test_ends_of_the_line_and_draws():
    messages = estimates()
    found = Normal(0.5, 2.0).fit(messages).posterior(messages)
    assert np.isneginf(found.quantile(0.0)[2:]).all()
    assert found.sample(2, 0).shape == (2, len(messages), 1)
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(again.sd, found.sd)
