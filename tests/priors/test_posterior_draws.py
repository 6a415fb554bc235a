"""Draws of several clients at once share the error of the population's mean.

Of `SIZE` draws a mean has a standard error of ``1 / sqrt(SIZE)``, a correlation or a square of at
most sqrt(2) times that. It is off by 6 of them less than once in 10**8 runs; there are fewer than
5,000 of them here, and less than one false alarm in 20,000 runs.
"""

import numpy as np
import pytest

import ebfed as eb
from ebfed.likelihoods import Binomial, Gaussian
from ebfed.priors import Beta, Normal
from ebfed.priors.normal import NormalPosterior
from ebfed.regression.posteriors.linear import CoefficientPosterior
from ebfed.regression.posteriors.normal import NormalCoefficients

SIZE = 40_000
CLOSE = 6 / np.sqrt(SIZE)

RNG = np.random.default_rng(8)
ERRORS = RNG.uniform(0.5, 3.0, 12)
W = np.column_stack([1e6 + 1e4 * RNG.standard_normal(12), RNG.random(12) < 0.5])
X = 0.8 * RNG.standard_normal(12) + W @ [1e-4, 2.0] + ERRORS * RNG.standard_normal(12)


def check(posterior, covariance, column=0):
    """Compare the covariance of draws with a known one."""
    draws = posterior.sample(SIZE, 0)[:, :, column]
    sd = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(posterior.sd[:, column], sd, rtol=1e-6)
    away = (draws - posterior.mean[:, column]) / sd
    np.testing.assert_allclose(away.mean(axis=0), 0, atol=CLOSE)
    # a square has sqrt(2) times the error of a product
    expected = covariance / np.outer(sd, sd)
    np.testing.assert_allclose(away.T @ away / SIZE, expected, atol=np.sqrt(2) * CLOSE)


@pytest.mark.parametrize("prior", [Normal(), Normal(variance=1.0), Normal(variance=0.0)])
@pytest.mark.parametrize("covariates", [None, W], ids=["mean", "covariates"])
def test_means_are_drawn_as_if_errors_might_be_correlated(prior, covariates):
    both = (eb.posterior_from(X, e, prior, covariates) for e in (np.diag(ERRORS**2), ERRORS))
    joint, posterior = (getattr(one, "_fitted", one) for one in both)  # in closed form
    check(posterior, joint.covariance)
    other = joint.covariance - np.diag(np.diag(joint.covariance))
    assert np.abs(other / np.outer(joint.sd, joint.sd)).max() > 3 * CLOSE  # or nothing was tested


def test_differences_of_four_equal_schools():
    """The error of the mean cancels: ``2 t v / (t + v)`` is left, and no more."""
    posterior = eb.posterior_from([1.0, 5.0, 9.0, 3.0], [8.0] * 4, Normal(variance=16.0))
    draws = posterior.sample(SIZE, 0)[:, :, 0]
    sd = np.sqrt(2 * 16 * 64 / (16 + 64))
    # a standard deviation is off by 6 of its errors once in 10**8 runs
    assert np.std(draws[:, 0] - draws[:, 1]) == pytest.approx(sd, rel=6 / np.sqrt(2 * SIZE))


def test_noise_of_a_channel_that_a_client_knows():
    """The errors of estimates with weights by precision, from the messages written out."""
    t, v, q = 1.3, ERRORS**2, np.where(np.arange(12) < 9, 2.0, np.inf)
    h = 1 / (t + v + q)
    prior = Normal(0.0, t).fit(Gaussian(X[:, None], v[:, None]))
    prior.mean_variance_ = np.array([1 / h.sum()])
    h = h / h.sum()
    noise = np.zeros((12, 1))
    posterior = NormalPosterior(prior, Gaussian(X[:, None], v[:, None]), q[:, None], noise)
    a = posterior.weight[:, 0]
    # estimate less theta, in theta, errors and noise; of theta the common mean drops out
    mean = np.tile(h, (12, 1))
    theta = np.diag(a - 1) + (1 - a)[:, None] * mean
    error = np.diag(a) + (1 - a)[:, None] * mean
    added = (1 - a)[:, None] * (mean - np.diag(h))
    finite = np.where(np.isinf(q), 0.0, q)
    expected = t * theta @ theta.T + (error * v) @ error.T + (added * finite) @ added.T
    check(posterior, expected)


def test_columns_have_means_of_their_own():
    values = np.column_stack([X, X[::-1]])
    likelihood = Gaussian(values, np.column_stack([ERRORS, ERRORS[::-1]]) ** 2)
    for covariates in (None, W):
        prior = Normal().fit(likelihood, covariates)
        prior = prior if covariates is None else prior.at(covariates)
        posterior = prior._posterior(likelihood)  # in closed form
        for column in range(2):
            x, v = likelihood.values[:, column], likelihood.variances[:, column]
            joint = eb.posterior_from(x, np.diag(v), "normal", covariates)
            check(posterior, joint._fitted.covariance, column)
        draws = (posterior.sample(SIZE, 1) - posterior.mean) / posterior.sd
        across = draws[:, :, 0].T @ draws[:, :, 1] / SIZE
        np.testing.assert_allclose(across, 0, atol=CLOSE)


# --- rates ---------------------------------------------------------------------------------------

TRIALS = RNG.integers(2, 10, 12)
COUNTS = Binomial(RNG.binomial(TRIALS, 0.3 + 0.3 * W[:, 1])[:, None], TRIALS)


@pytest.mark.parametrize("covariates", [None, W], ids=["mean", "covariates"])
def test_rates_share_the_error_of_their_mean(covariates):
    """With its slope ``1 - a_i``; with covariates, of means as correlated as their logits."""
    prior = Beta().fit(COUNTS, covariates)
    correlation = np.ones((12, 12))
    if covariates is not None:
        rows = np.column_stack([np.ones(12), W - prior.covariates_mean_])
        covariance = rows @ prior.coefficients_covariance_[0] @ rows.T
        correlation = covariance / np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)))
        prior = prior.at(W)
    posterior = prior._posterior(COUNTS)
    draws, sd = posterior.sample(SIZE, 0)[:, :, 0], posterior.sd[:, 0]
    assert np.all((draws >= 0) & (draws <= 1))
    away = (draws - posterior.mean[:, 0]) / sd
    np.testing.assert_allclose(away.mean(axis=0), 0, atol=CLOSE)
    # no rate has a fourth moment above 8
    np.testing.assert_allclose((away**2).mean(axis=0), 1, atol=np.sqrt(7) * CLOSE)
    pull = (1 - posterior.weight[:, 0]) * np.sqrt(np.ravel(prior.mean_variance_)) / sd
    expected = np.outer(pull, pull) * correlation
    np.fill_diagonal(expected, 0)
    found = away.T @ away / SIZE
    np.fill_diagonal(found, 0)
    # betas are not quite as correlated as the normals they are made from; products of correlated
    # rates vary more than those of independent ones
    slack = 0.0 if covariates is None else 0.02
    np.testing.assert_allclose(found, expected, atol=np.sqrt(2) * CLOSE + slack)
    assert np.abs(expected).max() > 0.2


def test_rates_that_are_all_one_rate_are_one_in_each_draw():
    counts = Binomial(np.full((5, 1), 3), np.full(5, 10))
    prior = Beta().fit(counts)
    prior.variance_variance_ = np.zeros(1)  # and this is known
    posterior = prior._posterior(counts)
    draws = posterior.sample(500, 0)[:, :, 0]
    np.testing.assert_allclose(draws, draws[:, :1] + np.zeros(5), atol=1e-6)
    assert draws[:, 0].std() == pytest.approx(posterior.sd[0, 0], rel=0.2)


def test_rates_of_a_known_population_are_independent():
    posterior = Beta(2.0, 3.0).fit(COUNTS).posterior(COUNTS)
    away = (posterior.sample(SIZE, 0)[:, :, 0] - posterior.mean[:, 0]) / posterior.sd[:, 0]
    found = away.T @ away / SIZE
    np.testing.assert_allclose(found - np.diag(np.diag(found)), 0, atol=CLOSE)


# --- coefficients --------------------------------------------------------------------------------


def blup_differences(fit, X, y, groups):
    """Covariance of the errors ``estimate - theta`` of all groups, by dense matrices."""
    m, p = groups.max() + 1, X.shape[1]
    Z = np.zeros((len(X), m * p))
    for row, (x, group) in enumerate(zip(X, groups, strict=True)):
        Z[row, group * p : (group + 1) * p] = x
    A, S = Z @ np.tile(np.eye(p), (m, 1)), np.kron(np.eye(m), fit.covariance_)
    # Henderson's mixed-model equations: errors of mean and effects together
    free = np.flatnonzero(np.diag(S) > 0)
    Zf, Sf = Z[:, free], S[np.ix_(free, free)]
    C = np.block([[A.T @ A, A.T @ Zf], [Zf.T @ A, Zf.T @ Zf]]) / fit.noise_variance_
    C[p:, p:] += np.linalg.inv(Sf)
    to_theta = np.hstack([np.tile(np.eye(p), (m, 1)), np.eye(m * p)[:, free]])
    return to_theta @ np.linalg.inv(C) @ to_theta.T


@pytest.mark.parametrize("covariance", ["diag", "full"])
def test_differences_of_coefficients_have_the_variance_of_blups(covariance):
    rng = np.random.default_rng(2)
    groups = np.repeat(np.arange(6), [2, 3, 4, 5, 3, 8])
    design = np.column_stack([np.ones(25), 100 * rng.standard_normal(25)])
    theta = np.array([1.0, 0.03]) + rng.standard_normal((6, 2)) * [1.5, 0.02]
    y = np.einsum("np,np->n", design, theta[groups]) + rng.standard_normal(25)
    fit = eb.LinearEB(covariance, fit_intercept=False).fit(design, y, groups=groups)
    known = CoefficientPosterior(
        fit.clients_, fit.mean_, fit.mean_covariance_, fit.covariance_, fit.noise_variance_
    )
    expected = blup_differences(fit, design, y, groups)
    for j in range(2):
        check(known, expected[j::2, j::2], j)
    # what not knowing the variances adds is each group's own
    posterior = fit.posterior()
    own = expected.copy()
    for i in range(6):
        own[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = posterior.covariance[i]
    for j in range(2):
        check(posterior, own[j::2, j::2], j)


def test_linear_combinations_share_what_their_coefficients_share():
    rng = np.random.default_rng(4)
    groups = np.repeat(np.arange(8), 3)
    w = rng.standard_normal(8)
    y = w[groups] + rng.standard_normal(8)[groups] + rng.standard_normal(24)
    fit = eb.LinearEB(fit_intercept=False).fit(
        np.ones((24, 1)), y, groups=groups, covariates=w[:, None]
    )
    posterior = fit.posterior()
    n, t = 3, fit.covariance_[0, 0]
    noise = fit.noise_variance_
    away = noise / n / (t + noise / n)
    rows = np.column_stack([np.ones(8), w])
    shared = away**2 * rows @ fit._population().mean_covariance @ rows.T
    expected = shared - np.diag(np.diag(shared)) + np.diag(posterior.sd[:, 0] ** 2)
    check(posterior, expected)


ROOT = np.array([[1.2, 0.0], [0.3, 0.7]])
DOUBT = np.array([[0.5, 0.1], [0.1, 0.3]])
INSIDE = np.array([0.3 * np.eye(2), [[0.5, 0.2], [0.2, 0.6]], 0.9 * np.eye(2)])


def joint_of_three():
    """Covariance of three clients' coefficients, shape (6, 6)."""
    slopes = [ROOT @ each @ np.linalg.inv(ROOT) for each in INSIDE]
    loadings = np.concatenate(slopes)
    out = loadings @ DOUBT @ loadings.T
    for i, each in enumerate(INSIDE):
        out[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] += ROOT @ each @ ROOT.T
    return out


def test_logistic_coefficients_share_the_error_of_their_mean():
    own, away = ROOT @ INSIDE @ ROOT.T, ROOT @ INSIDE @ np.linalg.inv(ROOT)
    posterior = NormalCoefficients(np.tile([0.5, -1.0], (3, 1)), own, away, DOUBT)
    for j in range(2):
        check(posterior, joint_of_three()[j::2, j::2], j)
