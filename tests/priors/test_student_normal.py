"""Populations under t errors: the normal limit, optimisers, quadrature, coverage, ashrink."""

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize

import ebfed as eb
from ebfed.likelihoods import Gaussian, StudentT
from ebfed.priors import Laplace, LogSpline, Normal, PointLaplace, PointNormal, Prior, ScaleMixture

RNG = np.random.default_rng(11)
N = 150
ERRORS = RNG.uniform(0.5, 1.5, N)
DEGREES = RNG.choice([3.0, 6.0, 20.0], N)
X = RNG.normal(2, 1, N) + ERRORS * RNG.standard_t(DEGREES)
MESSAGES = StudentT(X[:, None], ERRORS[:, None] ** 2, DEGREES)
COVARIATES = RNG.normal(size=(N, 2))


def both(x, errors, **options):
    """The fit with normal errors, and that with a million degrees of freedom."""
    return [eb.posterior_from(x, errors, df=df, **options) for df in (None, 1e6)]


@pytest.mark.parametrize("prior", [Normal(), Normal(mean=1.0), Normal(variance=2.0), "laplace"])
def test_many_degrees_are_normal_errors(prior):
    normal, student = both(X, ERRORS, prior=prior)
    np.testing.assert_allclose(student.mean, normal.mean, rtol=1e-4, atol=1e-5)
    # of a mode, fewer plausible values are kept
    np.testing.assert_allclose(student.sd, normal.sd, rtol=1e-2 if prior == "laplace" else 2e-4)
    np.testing.assert_allclose(student.prior.variance_, normal.prior.variance_, rtol=1e-4)


def test_few_groups_of_many_degrees():
    """REML is the limit, and so are intervals over plausible variances."""
    effects, errors = [28, 8, -3, 7, -1, 1, 18, 12], [15, 10, 16, 11, 9, 11, 10, 18]
    normal, student = both(effects, errors)
    np.testing.assert_allclose(student.mean, normal.mean, rtol=1e-5)
    np.testing.assert_allclose(student.sd, normal.sd, rtol=1e-4)
    np.testing.assert_allclose(student.interval(), normal.interval(), rtol=1e-3)
    assert student.prior.variance_[0] == 0
    assert student.notes == normal.notes


@pytest.mark.parametrize(("n", "tau"), [(5000, 0.0), (5000, 0.15), (12_000, 0.1)])
def test_many_groups_of_small_spread(n, tau):
    """A part of the messages stands for all: of 2000, a curvature has an error of 3 %."""
    rng = np.random.default_rng(4)
    errors = rng.uniform(0.5, 1.5, n)
    x = rng.normal(1, tau, n) + errors * rng.standard_normal(n)
    normal, student = both(x, errors)
    np.testing.assert_allclose(student.prior.variance_, normal.prior.variance_, atol=1e-5)
    np.testing.assert_allclose(student.sd, normal.sd, rtol=0.1)
    lengths = [np.subtract(*each.interval()[::-1]).mean() for each in (normal, student)]
    assert lengths[1] == pytest.approx(lengths[0], rel=0.1)


def test_covariates_of_many_degrees():
    x = X + COVARIATES @ [1.0, -2.0]
    normal, student = both(x, ERRORS, mean=COVARIATES)
    for name in ("coefficients_", "coefficient_errors_", "variance_"):
        found, expected = (getattr(each.prior, name) for each in (student, normal))
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_allclose(student.mean, normal.mean, rtol=1e-4)


def test_maximum_likelihood_is_that_of_a_general_optimiser():
    def loss(point):
        return -MESSAGES.marginal(point[:1], np.exp(point[1:])).sum()

    best = minimize(loss, [1.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-11})
    prior = Normal(method="ml").fit(MESSAGES)
    assert prior.mean_[0] == pytest.approx(best.x[0], abs=1e-5)
    assert prior.variance_[0] == pytest.approx(np.exp(best.x[1]), rel=1e-5)
    assert prior.log_marginal(MESSAGES).sum() == pytest.approx(-best.fun, abs=1e-9)


def test_restricted_likelihood_is_that_with_the_mean_integrated_out():
    few = MESSAGES.take(slice(12))

    def value(t):
        means = np.linspace(-4, 8, 241)
        logs = [few.marginal(np.array([mean]), np.array([t])).sum() for mean in means]
        return np.log(np.exp(np.array(logs) - max(logs)).sum()) + max(logs)

    grid = np.linspace(0.01, 4.0, 60)
    exact = grid[np.argmax([value(t) for t in grid])]
    restricted = Normal().fit(few).variance_[0]
    plain = Normal(method="ml").fit(few).variance_[0]
    # the mean is integrated to second order
    assert abs(restricted - exact) < 0.25 * abs(plain - exact)


@pytest.mark.parametrize(
    "prior", [Normal(), PointNormal(), Laplace(), PointLaplace(), ScaleMixture()], ids=repr
)
def test_posteriors_of_outliers_are_those_of_a_fine_grid(prior):
    known = prior.fit(MESSAGES).without_doubt()
    x = np.array([-4.0, 2.1, 9.0, 50.0])[:, None]
    rows = StudentT(x, np.ones((4, 1)), np.array([1.0, 3.0, 10.0, 30.0]))
    posterior = known._posterior(rows)
    theta = np.unique(np.concatenate([np.linspace(-60, 60, 240_001), [0.0]]))[:, None]
    fine = theta[1, 0] - theta[0, 0]
    points, masses = known.points()
    density = np.exp(known.logpdf(theta)) * fine
    is_point = np.isin(theta[:, 0], points)
    if is_point.any():  # at the mode: the slab's own density beside the probability of the point
        density[is_point] = masses + np.exp(known.logpdf(theta[is_point] + 1e-9)) * fine
    joint = density * np.exp(rows.logpdf(theta))
    joint /= joint.sum(axis=1, keepdims=True)
    mean = joint @ theta[:, 0]
    sd = np.sqrt(((theta[:, 0] - mean[:, None]) ** 2 * joint).sum(axis=1))
    # the grid's rule is exact to 1e-7 where the density is smooth, and a Laplace one is not
    rtol = 1e-3 if isinstance(prior, Laplace | PointLaplace) else 1e-5
    np.testing.assert_allclose(posterior.mean[:, 0], mean, rtol=rtol)
    np.testing.assert_allclose(posterior.sd[:, 0], sd, rtol=rtol)
    median = posterior.quantile(0.5)
    below = (joint * (theta[:, 0] <= median + 1e-9)).sum(axis=1)
    assert (below >= 0.5 - 1e-3).all()
    np.testing.assert_allclose(
        posterior.prob_below(1.0)[:, 0], joint @ (theta[:, 0] <= 1.0), atol=1e-3
    )


def test_a_posterior_can_have_two_peaks():
    """An outlier is that of its error, or of its parameter; intervals hold both."""
    messages = StudentT(np.array([[9.0]]), np.ones((1, 1)), np.full(1, 3.0))
    prior = Normal(mean=0.0, variance=4.0).fit(messages)
    lower, upper = prior.posterior(messages).interval(0.9)
    assert upper[0, 0] - lower[0, 0] > 1.5 * 2 * 1.645 * np.sqrt(4 / 5)


def test_intervals_cover():
    """The rate over 60 tables of 30 estimates has a standard error of .6 %."""
    rng, inside = np.random.default_rng(0), []
    for _ in range(60):
        theta, errors = rng.normal(1, 1, 30), rng.uniform(0.5, 1.5, 30)
        x = theta + errors * rng.standard_t(4, 30)
        lower, upper = eb.posterior_from(x, errors, df=4).interval()
        inside.append((lower[:, 0] < theta) & (theta < upper[:, 0]))
    assert abs(np.mean(inside) - 0.95) < 0.018


def test_risk_is_that_of_the_oracle():
    rng, m = np.random.default_rng(1), 10_000
    theta, errors = rng.normal(1, 1, m), rng.uniform(0.5, 1.5, m)
    x = theta + errors * rng.standard_t(4, m)
    rows = StudentT(x[:, None], errors[:, None] ** 2, np.full(m, 4.0))
    oracle = Normal(mean=1.0, variance=1.0).fit(rows).posterior(rows).mean[:, 0]
    found = eb.posterior_from(x, errors, df=4).mean[:, 0]
    risk = np.mean((found - theta) ** 2) / np.mean((oracle - theta) ** 2)
    assert risk < 1.01
    normal = eb.posterior_from(x, errors).mean[:, 0]
    assert np.mean((normal - theta) ** 2) > 1.1 * np.mean((oracle - theta) ** 2)


def test_draws_share_the_error_of_the_mean():
    few = MESSAGES.take(slice(12))
    prior = Normal(variance=0.1).fit(few)
    posterior = prior.posterior(few)
    draws = posterior.sample(20_000, 0)[:, :, 0]
    np.testing.assert_allclose(draws.mean(axis=0), posterior.mean[:, 0], atol=0.03)
    np.testing.assert_allclose(draws.std(axis=0), posterior.sd[:, 0], rtol=0.03)
    assert np.corrcoef(draws.T)[~np.eye(12, dtype=bool)].min() > 0.1


def test_one_or_two_estimates():
    """Nothing bounds the spread: the interval is that of the t law."""
    with pytest.warns(eb.IdentificationWarning):
        one = eb.posterior_from([3.0], [2.0], df=4)
    expected = 3.0 + 2.0 * stats.t(4).ppf([0.025, 0.975])
    np.testing.assert_allclose(np.ravel(one.interval()), expected)
    assert np.isinf(eb.posterior_from([3.0, 1.0], [2.0, 1.0], df=2).sd).all()
    below = eb.posterior_from([3.0, 1.0], [2.0, 1.0], df=[4, np.inf]).prob_below(0.0)
    np.testing.assert_allclose(below[:, 0], [stats.t(4).cdf(-1.5), stats.norm.cdf(-1)])


def test_estimates_without_noise_or_message():
    posterior = eb.posterior_from([1.0, 2.0, 9.0, 0.0, 5.0], [1.0, 1.0, 0.0, np.nan, 1.0], df=5)
    assert posterior.mean[2, 0] == 9.0
    assert posterior.sd[2, 0] == 0
    assert posterior.mean[3, 0] == pytest.approx(posterior.prior.mean_[0])
    exact = eb.posterior_from([1.0, 2.0, 4.0], [0.0, 0.0, 0.0], df=5)
    np.testing.assert_array_equal(exact.mean[:, 0], [1, 2, 4])


def test_quadrature_is_near():
    smooth = LogSpline().fit(MESSAGES)
    posterior = smooth.posterior(MESSAGES)
    assert np.corrcoef(posterior.mean[:, 0], X)[0, 1] > 0.7
    normal = Normal().fit(MESSAGES).without_doubt()
    numeric = Prior._posterior(normal, MESSAGES)
    np.testing.assert_allclose(numeric.mean, normal._posterior(MESSAGES).mean, atol=1e-4)


@pytest.mark.parametrize("df", [1e308, np.nan, 0, -1.0, 1e-3, [3.0, np.nan, 3.0]])
def test_degrees_are_checked(df):
    with pytest.raises(ValueError, match=r"df must be degrees of freedom from 0\.1 to 1e"):
        eb.posterior_from([1.0, 2.0, 3.0], [1.0, 1.0, 1.0], df=df)


@pytest.mark.parametrize(
    ("df", "error"), [("a", TypeError), (True, TypeError), ([1, 2], ValueError)]
)
def test_degrees_are_numbers(df, error):
    with pytest.raises(error, match="df must be"):
        eb.posterior_from([1.0, 2.0, 3.0], [1.0, 1.0, 1.0], df=df)


def test_degrees_and_covariance():
    with pytest.raises(ValueError, match="df must be None with a covariance"):
        eb.posterior_from([1.0, 2.0, 3.0], np.eye(3), df=4)


@pytest.mark.parametrize("method", ["moments", "paule_mandel"])
def test_methods_of_moments_have_no_errors_of_few_degrees(method):
    with pytest.raises(ValueError, match="'reml' or 'ml' where errors have a t distribution"):
        eb.posterior_from([1.0, 2.0, 3.0], np.ones(3), Normal(method=method), df=4)


def test_all_infinite_degrees_are_the_same_fit():
    normal, student = (eb.posterior_from(X, ERRORS, df=df) for df in (None, np.inf))
    np.testing.assert_array_equal(normal.mean, student.mean)
    np.testing.assert_array_equal(normal.sd, student.sd)


@pytest.mark.parametrize("c", [1e3, 3e-5])
def test_units_do_not_matter(c):
    one, other = (eb.posterior_from(k * X, k * ERRORS, df=DEGREES) for k in (1.0, c))
    np.testing.assert_allclose(other.mean, c * one.mean, rtol=1e-6)
    np.testing.assert_allclose(other.sd, c * one.sd, rtol=1e-5)


def test_marginals_are_those_of_ashrink():
    """Of one point and one normal with known weights, posterior means too."""
    ashrink = pytest.importorskip("ashrink")
    x, errors, df = X[:30] - 2, ERRORS[:30], DEGREES[:30]
    peer = ashrink.fit(
        x, errors, df=df, prior=ashrink.normal_mixture([0.0, 1.5], [0.4, 0.6]), fix_prior=True
    )
    rows = StudentT(x[:, None], errors[:, None] ** 2, df)
    prior = ScaleMixture(scales=[0.0, 1.5]).fit(rows)
    prior._set(0.0, np.array([0.4, 0.6]), np.array([0.0, 1.5]), 0)
    posterior = prior._posterior(rows)
    np.testing.assert_allclose(posterior.mean[:, 0], peer.posterior_mean, atol=1e-6)
    np.testing.assert_allclose(posterior.sd[:, 0], peer.posterior_sd, atol=1e-6)


def test_normal_messages_are_left_to_their_own_formulas():
    rows = Gaussian(X[:, None], ERRORS[:, None] ** 2)
    logs, spreads = rows.normals(X, ERRORS**2, 1.0, 1.0)
    assert (logs == 0).all()
    np.testing.assert_array_equal(spreads, [ERRORS**2])
