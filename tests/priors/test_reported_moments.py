"""Plausible means and variances of a population on the line, from reports of channels."""

import numpy as np
import pytest

import ebfed as eb
from ebfed.channels import Hybrid, Piecewise, Quantizer, TwoBit

GUESS = eb.channels.Guess(mean=(-0.5, 0.5), spread=0.1)
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


def fitted(m, mean, channel, seed, prior="normal"):
    """Parameters ``theta ~ N(mean, .1**2)`` of m groups of 5 rows, and a fit to reports of them."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(mean, 0.1, m)
    rows = rng.normal(np.repeat(theta, 5), 0.5)
    model = eb.GaussianEB(0.25, channel=channel, guess=GUESS, prior=prior, random_state=seed)
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


def slopes(m, mean, channel, seed):
    """Derivatives of the reports' log-likelihood at the true population: their means are zero.

    By the mean and by the variance, and the square of the latter plus the second derivative.
    """
    steps = np.array([[0, 0], [0.005, 0], [-0.005, 0], [0, 0.0005], [0, -0.0005]])
    known = [eb.priors.Normal(*each) for each in steps + np.array([mean, 0.01])]
    each = [fitted(m, mean, channel, seed, prior)[1].log_likelihood_ for prior in known]
    at, right, left, up, down = each
    slope = (up - down) / 0.001
    return [right - left, slope, slope**2 + (up - 2 * at + down) / 0.0005**2]


def without_chance(figures, slopes):
    """Mean of figures of fits, less what it owes to slopes whose means should be zero."""
    slopes = slopes / slopes.std(axis=0)
    matrix = np.column_stack([np.ones(len(slopes)), slopes])
    return np.linalg.lstsq(matrix, figures, rcond=None)[0][0]


@pytest.mark.slow
@pytest.mark.parametrize(("m", "times"), [(500, 4), (5000, 2)])
@pytest.mark.parametrize("name", CHANNELS)
def test_risk_and_coverage_over_ten_means(name, m, times):
    """Over means from -.45 to .45: the risk of the plug-in or less, and intervals that cover.

    Coverage of one fit has a standard deviation of .05 (500 groups) or .025 (5000), nearly all of
    which the slopes explain: without it, the mean's standard error is .002.
    """
    figures, chance = [], []
    for seed, mean in enumerate(np.tile(np.linspace(-0.45, 0.45, 10), times)):
        theta, model = fitted(m, mean, CHANNELS[name], seed)
        posterior = model.posterior()
        low, high = posterior.interval(0.95)
        covered = np.mean((low[:, 0] <= theta) & (theta <= high[:, 0]))
        plugged = risk(theta, model.posterior(integrate=False))
        figures.append([risk(theta, posterior), plugged, covered])
        chance.append(slopes(m, mean, CHANNELS[name], seed))
    squares, plugged, covered = without_chance(np.array(figures), np.array(chance))
    assert squares < 1.03 * plugged
    assert 0.93 < covered < 0.985
