"""Plausible means and variances of a population on the line, from reports of channels."""

import numpy as np
import pytest

import ebfed as eb
from ebfed.channels import Hybrid, Piecewise, Quantizer, TwoBit

GUESS = eb.Guess(mean=(-0.5, 0.5), spread=0.1)
CHANNELS = {
    "hybrid, 2": Hybrid(2.0),
    "hybrid, 4": Hybrid(4.0),
    "piecewise, 4": Piecewise(4.0),
    "3 bits": Quantizer(3),
    "4 bits": Quantizer(4),
    "5 bits": Quantizer(5),
    "two bits": TwoBit(2.0),
    "private range": Hybrid(2.0, range="private"),
}


def fitted(m, mean, channel, seed, guess=GUESS):
    """Parameters ``theta ~ N(mean, .1**2)`` of m groups of 5 rows, and a fit to reports of them."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(mean, 0.1, m)
    rows = rng.normal(np.repeat(theta, 5), 0.5)
    model = eb.GaussianEB(0.25, channel=channel, guess=guess, random_state=seed)
    return theta, model.fit(rows, groups=np.repeat(np.arange(m), 5))


def risk(theta, posterior):
    return np.mean((posterior.mean[:, 0] - theta) ** 2)


@pytest.mark.parametrize("channel", [Hybrid(2.0, (-1.2, 1.2)), Quantizer(4, (-1.2, 1.2))])
def test_plausible_populations_reach_the_fit(channel):
    """The likelihood of one of them is within .05 of the largest, wherever the population is."""
    rng = np.random.default_rng(0)
    rows = rng.normal(np.repeat(rng.normal(-0.4, 0.1, 1000), 5), 0.5)
    clients = eb.Summary.from_rows(rows, groups=np.repeat(np.arange(1000), 5))
    likelihood = channel.likelihood(channel.encode(clients, 0), eb.families.Gaussian(0.25))
    prior = eb.priors.Normal().fit(likelihood)
    rows, counts = likelihood.compress()
    best = counts @ rows.marginal(prior.mean_, prior.variance_)
    populations, _ = prior.populations()
    each = [counts @ rows.marginal(one.mean_, one.variance_) for one in populations]
    assert max(each) > best - 0.05


@pytest.mark.parametrize(
    ("channel", "mean", "m"),
    [(Hybrid(2.0), -0.4, 20_000), (Piecewise(4.0, range=(-30.0, 50.0)), 0.0, 10_000)],
)
def test_integrating_costs_nothing_where_the_mean_is_away_from_the_centre(channel, mean, m):
    """With so many groups, estimates are as good as those under the fitted population."""
    theta, model = fitted(m, mean, channel, 0)
    assert risk(theta, model.posterior()) < 1.01 * risk(theta, model.posterior(integrate=False))


@pytest.mark.slow
@pytest.mark.parametrize(("m", "times"), [(500, 4), (5000, 1)])
@pytest.mark.parametrize("name", CHANNELS)
def test_risk_and_coverage_over_ten_means(name, m, times):
    """Over means from -.45 to .45: the risk of the plug-in or less, and intervals that cover.

    Coverage of one fit has a standard deviation of .05 (500 groups) and .025 (5000), of all .008.
    """
    means = np.tile(np.linspace(-0.45, 0.45, 10), times)
    squares, covered = np.zeros(2), []
    for seed, mean in enumerate(means):
        theta, model = fitted(m, mean, CHANNELS[name], seed)
        posterior = model.posterior()
        squares += risk(theta, posterior), risk(theta, model.posterior(integrate=False))
        low, high = posterior.interval(0.95)
        covered.append(np.mean((low[:, 0] <= theta) & (theta <= high[:, 0])))
    assert squares[0] < 1.03 * squares[1]
    assert 0.93 < np.mean(covered) < 0.985
