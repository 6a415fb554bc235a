"""Plausible coefficients and overdispersions of counts with covariates."""

import numpy as np
import pytest
from scipy.special import expit, gammaln

from ebfed.likelihoods import Binomial, Poisson
from ebfed.priors import Beta, Gamma
from ebfed.priors.count_regression import BetaRegression, GammaRegression
from ebfed.priors.exploration import TILT

W = np.linspace(0, 10, 30)[:, None]
ZEROS = {
    "beta": (Beta(), Binomial(np.zeros((30, 1), int), np.full(30, 10))),
    "gamma": (Gamma(), Poisson(np.zeros((30, 1), int), np.full(30, 10.0))),
}
LINE = np.column_stack([np.ones(12), np.linspace(-1.6, 1.6, 12)])
EVENTS = np.array([1, 0, 2, 4, 1, 3, 6, 2, 5, 4, 9, 7.0])


@pytest.mark.filterwarnings("ignore:Covariates separate")
@pytest.mark.parametrize("kind", ZEROS)
def test_no_events_are_no_certainty(kind):
    prior, counts = ZEROS[kind]
    prior.fit(counts, W)
    there = prior.at(W)
    posterior = there.posterior(counts)
    lower, upper = posterior.interval()
    # without covariates the limits are 1.0 and 1.2 %; at the ends they are wider
    assert ((lower >= 0) & (upper > 0.002) & (upper < 0.1)).all()
    assert (posterior.sd > 1e-3).all()
    assert posterior.sample(50, 0).std(axis=0).min() > 0
    errors = prior.coefficient_errors_
    assert ((errors > 0.1) & (errors < 10)).all()
    low, high = prior.coefficient_interval()
    assert low[0] < -4 < high[0] < 7  # without events nothing but the prior bounds it
    assert (low[1] < 0 < high[1]).all()
    assert (prior.mean_error() > 1e-3).all()
    ends = np.array(prior.mean_interval()).ravel()
    assert 0 < ends[0] < 0.01 < ends[1] < 0.2


@pytest.mark.parametrize("kind", ["beta", "gamma"])
def test_points_have_the_moments_of_the_posterior(kind):
    """Against a lattice of 40^3 points; 256 points of importance have errors of 5 % of an sd."""
    a, b, t = np.meshgrid(np.linspace(-4, 3, 40), np.linspace(-1.5, 3, 40), np.linspace(-12, 5, 41))
    at = np.column_stack([a.ravel(), b.ravel(), t.ravel()])
    predictor, phi = at[:, :2] @ LINE.T, np.exp(at[:, 2:])
    if kind == "beta":
        table = BetaRegression(EVENTS, np.full(12, 12.0), LINE)
        up, down = expit(predictor) / phi, expit(-predictor) / phi
        logs = gammaln(EVENTS + up) - gammaln(up) + gammaln(12 - EVENTS + down) - gammaln(down)
        logs += gammaln(1 / phi) - gammaln(12 + 1 / phi)
        weight, power, h = expit(predictor) * expit(-predictor), 1.0, 1.0
    else:
        table = GammaRegression(EVENTS, np.full(12, 3.0), LINE)
        x = 3 * phi * np.exp(predictor)
        logs = gammaln(EVENTS + 1 / phi) - gammaln(1 / phi) - (EVENTS + 1 / phi) * np.log1p(x)
        logs += EVENTS * np.log(x)
        weight, power, h = x / phi / (1 + x), 0.5, EVENTS.mean() + 0.5
    products = np.einsum("kn,ni,nj->kij", weight, LINE, LINE, optimize=True)
    logs = logs.sum(axis=1) + power * np.log(np.linalg.det(products))
    logs += ((0.5 + TILT) * np.log(phi) - (1.5 + TILT) * np.log1p(h * phi))[:, 0]
    shares = np.exp(logs - logs.max())
    shares /= shares.sum()
    mean = shares @ at
    sd = np.sqrt(shares @ (at - mean) ** 2)
    points, weights = table.plausible()
    points[:, 2] = np.log(points[:, 2])
    assert 1 / (weights @ weights) > 100
    found = weights @ points
    np.testing.assert_allclose((found - mean) / sd, 0, atol=0.12)
    np.testing.assert_allclose(np.sqrt(weights @ (points - found) ** 2) / sd, 1, atol=0.12)


def test_units_of_covariates_do_not_matter():
    counts = Binomial(EVENTS[:, None].astype(int), np.full(12, 12))
    sds, errors = [], []
    for w in (LINE[:, 1:], 1e4 * LINE[:, 1:] - 7):
        prior = Beta().fit(counts, w)
        sds.append(prior.at(w).posterior(counts).sd)
        errors.append(prior.coefficient_interval()[1][1])
    np.testing.assert_allclose(*sds, rtol=1e-6)
    np.testing.assert_allclose(errors[0], 1e4 * errors[1], rtol=1e-6)


def test_a_separated_group_has_a_wide_interval():
    """Without covariates, 0 of 10 and a flat rate have an upper limit of 28 %."""
    w = np.array([1.0, *np.zeros(19)])[:, None]
    z = np.array([0, *[2, 3, 4, 3] * 4, 3, 2, 4])
    counts = Binomial(z[:, None], np.full(20, 10))
    with pytest.warns(UserWarning, match="separate"):
        prior = Beta().fit(counts, w)
    posterior = prior.at(w).posterior(counts)
    assert 0.1 < posterior.interval()[1][0, 0] < 0.4
    assert prior.coefficient_errors_[1, 0] < 10


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["beta", "gamma"])
def test_intervals_of_eight_groups_cover(kind):
    """Of 40 x 8 intervals; the standard error is 1.2 %, and the bound three of it below 95 %."""
    hits, alone = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        w = rng.normal(size=(8, 1))
        if kind == "beta":
            mean = expit(0.7 * w[:, 0] - 1)
            theta = rng.beta(20 * mean, 20 * (1 - mean))
            counts, prior = Binomial(rng.binomial(10, theta)[:, None], np.full(8, 10)), Beta()
        else:
            mean = np.exp(0.5 * w[:, 0])
            theta = rng.gamma(10, mean / 10)
            counts, prior = Poisson(rng.poisson(3 * theta)[:, None], np.full(8, 3.0)), Gamma()
        there = prior.fit(counts, w).at(w)
        for integrate, found in ((True, hits), (False, alone)):
            lower, upper = there.posterior(counts, integrate=integrate).interval()
            found.append(((lower[:, 0] <= theta) & (theta <= upper[:, 0])).mean())
    assert 0.915 < np.mean(hits) < 0.99
    assert np.mean(alone) < 0.9
