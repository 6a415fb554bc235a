"""Populations whose location and spread depend on covariates."""

import pickle

import numpy as np
import pytest

import ebfed as eb
from ebfed.likelihoods import Binomial, Gaussian, StudentT
from ebfed.priors import (
    Discrete,
    LocationScale,
    LogSpline,
    Normal,
    PointLaplace,
    PointNormal,
    ScaleMixture,
)
from ebfed.priors.location_scale import LocationScaleFit
from ebfed.priors.regression import Design

SHAPES = [Normal(), PointNormal(), PointLaplace(mode=None), ScaleMixture(), LogSpline(), Discrete()]


def dependent(n, seed=0, shape=None):
    """Estimates whose mean and spread grow with their standard errors."""
    rng = np.random.default_rng(seed)
    w = rng.normal(-0.7, 0.5, n)
    tau = rng.standard_normal(n) if shape is None else shape(rng, n)
    theta = 0.6 * w + 0.35 * np.exp(0.8 * w) * tau
    error = np.exp(w)
    x = theta + error * rng.standard_normal(n)
    return theta, Gaussian(x[:, None], error[:, None] ** 2), w[:, None]


def batters():
    rows = eb.datasets.load_batting().query("at_bats >= 11")
    hits, n = rows.hits.to_numpy(), rows.at_bats.to_numpy()
    x = np.arcsin(np.sqrt((hits + 0.25) / (n + 0.5)))
    return Gaussian(x[:, None], 0.25 / n[:, None]), np.log(n)[:, None]


# Maxima by a general optimiser, to the digits shown.
@pytest.mark.parametrize(
    ("columns", "mean", "spread", "log_likelihood"),
    [
        ({"mean": [], "spread": []}, [0.5170334], [-3.3576006], 866.26508),
        ({"spread": []}, [0.2733129, 0.0437574], [-3.9887364], 1075.63481),
        ({}, [0.2744169, 0.0435461], [-1.3554525, -0.4485464], 1082.52638),
    ],
)
def test_batters_of_2015(columns, mean, spread, log_likelihood):
    messages, w = batters()
    prior = LocationScale(Normal(method="ml"), **columns).fit(messages, w)
    assert prior.at(w).log_marginal(messages).sum() == pytest.approx(log_likelihood, abs=1e-5)
    np.testing.assert_allclose(prior.coefficients_[:, 0], mean, atol=2e-6)
    np.testing.assert_allclose(prior.spread_coefficients_[:, 0], spread, atol=1e-5)


@pytest.mark.parametrize("errors", ["normal", "t"])
@pytest.mark.parametrize("restricted", [False, True])
@pytest.mark.parametrize("with_prior", [False, True])
def test_slopes_are_those_of_the_criterion(errors, restricted, with_prior):
    _, messages, w = dependent(60)
    if errors == "t":
        messages = StudentT(messages.values, messages.variances, np.full(60, 5.0))
    matrix = Design.of(w, np.ones(60, bool)).matrix
    fit = LocationScaleFit(messages, matrix, matrix, restricted)
    point, step = np.array([-0.3, 0.1, -1.2, 0.2]), 1e-5
    slope = [
        (fit.at(point + e, with_prior).value - fit.at(point - e, with_prior).value) / (2 * step)
        for e in step * np.eye(4)
    ]
    # a t law is a mixture of few normals, whose number may change with the point
    np.testing.assert_allclose(fit.at(point, with_prior).slope, slope, rtol=1e-4, atol=1e-4)


def test_a_constant_spread_is_that_of_the_normal():
    rng = np.random.default_rng(1)
    w = rng.normal(size=(40, 1))
    error = rng.uniform(0.3, 1, (40, 1))
    x = Gaussian(
        w + 0.5 * rng.standard_normal((40, 1)) + error * rng.standard_normal((40, 1)), error**2
    )
    one, other = Normal().fit(x, w), LocationScale(spread=[]).fit(x, w)
    np.testing.assert_allclose(other.coefficients_, one.coefficients_, rtol=1e-5)
    np.testing.assert_allclose(other.variance_, one.variance_, rtol=1e-5)
    assert other.restriction_ == pytest.approx(one.restriction_, abs=1e-5)
    both = [prior.at(w).posterior(x) for prior in (one, other)]
    np.testing.assert_allclose(both[1].mean, both[0].mean, rtol=1e-4, atol=1e-4)
    # sums over 200 points of four parameters, and nearly exact integrals
    np.testing.assert_allclose(both[1].sd, both[0].sd, rtol=0.03)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: type(shape).__name__)
def test_each_shape_stays_near_the_oracle(shape):
    theta, x, w = dependent(600, 3)
    prior = LocationScale(shape).fit(x, w)
    posterior = prior.at(w).posterior(x)
    location, spread = 0.6 * w, 0.35 * np.exp(0.8 * w)
    oracle = location + spread**2 / (spread**2 + x.variances) * (x.values - location)
    risk, best = (((each[:, 0] - theta) ** 2).mean() for each in (posterior.mean, oracle))
    assert risk < 1.1 * best
    lower, upper = posterior.interval(kind="robust")
    assert ((lower[:, 0] <= theta) & (theta <= upper[:, 0])).mean() > 0.94
    draws = posterior.sample(2000, 0)
    # 2,000 draws of heavy tails: of single ones the standard deviation is off by a fifth
    assert abs((draws.std(axis=0) / posterior.sd).mean() - 1) < 0.02
    quantile = posterior.quantile(0.3)
    assert (posterior.prob_below(quantile + 1e-6) > 0.3 - 1e-6).all()
    assert (posterior.prob_below(quantile - 1e-6) < 0.3 + 1e-6).all()
    again = pickle.loads(pickle.dumps(prior)).at(w).posterior(x)
    np.testing.assert_array_equal(again.mean, posterior.mean)


def test_units_and_order_do_not_matter():
    _, x, w = dependent(80)
    one = LocationScale().fit(x, w).at(w).posterior(x)
    turned = Gaussian(1e4 * x.values[::-1], 1e8 * x.variances[::-1])
    other = LocationScale().fit(turned, 5 + 100 * w[::-1]).at(5 + 100 * w[::-1]).posterior(turned)
    # Newton's method stops where steps gain less than 1e-11 of the log-likelihood
    np.testing.assert_allclose(other.mean[::-1], 1e4 * one.mean, rtol=1e-4)
    np.testing.assert_allclose(other.sd[::-1], 1e4 * one.sd, rtol=1e-3)


@pytest.mark.parametrize("unit", [1e-10, 1e10])
@pytest.mark.parametrize("shape", [None, PointNormal(), LogSpline()], ids=repr)
def test_errors_of_coefficients_do_not_depend_on_units(shape, unit):
    """Those of the location were dropped beside those of the spread, as rounding of these."""
    _, x, w = dependent(80)
    one = LocationScale(shape).fit(x, w)
    turned = Gaussian(unit * x.values, unit**2 * x.variances)
    other = LocationScale(shape).fit(turned, w)
    np.testing.assert_allclose(other.coefficient_errors_, unit * one.coefficient_errors_, rtol=1e-5)
    np.testing.assert_allclose(
        other.spread_coefficient_errors_, one.spread_coefficient_errors_, rtol=1e-5
    )
    both = one.at(w).posterior(x), other.at(w).posterior(turned)
    np.testing.assert_allclose(both[1].sd, unit * both[0].sd, rtol=1e-3)  # as above


def test_without_spread_all_are_the_location():
    rng = np.random.default_rng(5)
    w, error = rng.normal(size=(30, 1)), np.full((30, 1), 1.0)
    x = Gaussian(w + 0.3 * rng.standard_normal((30, 1)), error)
    prior = LocationScale(spread=[]).fit(x, w)
    assert any("variance between groups is zero" in note for note in prior.notes_)
    steep = LocationScale().fit(x, w)
    assert any("without bound" in note for note in steep.notes_)
    assert np.abs(steep.spread_coefficients_[1]) < 4
    posterior = prior.at(w).posterior(x)
    np.testing.assert_allclose(posterior.mean, prior.at(w).mean_, atol=1e-4)
    assert (posterior.sd > 0.05).all()


@pytest.mark.slow
@pytest.mark.parametrize("m", [8, 15, 40])
def test_intervals_cover_with_few_groups(m):
    covered = []
    for seed in range(300):
        theta, x, w = dependent(m, seed)
        lower, upper = LocationScale().fit(x, w).at(w).posterior(x).interval()
        covered.append((lower[:, 0] <= theta) & (theta <= upper[:, 0]))
    # the standard error is about .006
    assert 0.925 < np.mean(covered) < 0.985


def test_a_fitted_population_is_reused():
    _, x, w = dependent(200)
    past = LocationScale().fit(x, w)
    new = past.reused_for(x.take(slice(3)), w[:3]).at(w[:3]).posterior(x.take(slice(3)))
    np.testing.assert_allclose(new.mean, past.at(w).posterior(x).mean[:3])


@pytest.mark.parametrize("channel", [eb.channels.Exact(), eb.channels.AddNoise(0.2)])
def test_groups_of_rows_come_through_the_same_door(channel, tmp_path):
    rng = np.random.default_rng(4)
    sizes = rng.integers(2, 60, 400)
    groups, w = np.repeat(np.arange(400), sizes), np.log(sizes)
    theta = 0.5 * w + 0.2 * sizes**0.3 * rng.standard_normal(400)
    y = theta[groups] + rng.standard_normal(len(groups))
    model = eb.GaussianEB(1.0, prior=LocationScale(), channel=channel, random_state=0)
    fit = model.fit(y, groups=groups, covariates=w)
    assert fit.prior_.spread_coefficients_[1, 0] == pytest.approx(0.3, abs=0.15)
    assert fit.coef_[0] == pytest.approx(0.5, abs=0.15)
    lower, upper = fit.posterior().interval()
    assert 0.92 < ((lower[:, 0] <= theta) & (theta <= upper[:, 0])).mean() < 0.98
    if channel.is_exact:
        means = np.bincount(groups, y) / sizes
        one = eb.posterior_from(means, 1 / np.sqrt(sizes), mean=w, spread=w)
        np.testing.assert_allclose(fit.posterior().mean, one.mean, rtol=1e-8)
        fit.save(tmp_path / "fit.json")
        again = eb.load_fit(tmp_path / "fit.json")
        np.testing.assert_array_equal(again.posterior().interval(), fit.posterior().interval())


def test_a_formula_keeps_what_it_learned():
    rows = eb.datasets.load_batting().query("at_bats >= 11")
    x = np.arcsin(np.sqrt((rows.hits + 0.25) / (rows.at_bats + 0.5)))
    error, formula = 0.5 / np.sqrt(rows.at_bats), "~ center(log(at_bats))"
    past = eb.posterior_from(x, error, mean=formula, spread="~ log(se)", data=rows)
    new = eb.posterior_from(
        x[:5], error[:5], prior=past.prior, mean=formula, spread="~ log(se)", data=rows[:5]
    )
    np.testing.assert_allclose(new.mean, past.mean[:5])


def test_errors_are_numbers_where_one_client_alone_shows_a_slope():
    """The robust covariance is then zero along it, but for rounding, which may be negative."""
    x = np.array([-0.53262590, 0.09226597, 2.32333824, 0.20927350, 0.14734977, 0.25152388])
    n = np.array([32.0, 32, 1, 32, 32, 32])
    rows = Gaussian(x[:, None], 4 / n[:, None])
    prior = LocationScale(Discrete("npmle")).fit(rows, np.log(n)[:, None])
    errors = [prior.coefficient_errors_, prior.spread_coefficient_errors_]
    assert all((each >= 0).all() for each in errors)


def test_errors_hold_where_one_client_shows_a_slope():
    # its score is zero, which the sandwich alone takes for certainty
    rng = np.random.default_rng(3)
    w, covered = np.array([0.0, 0, 0, 0, 0, 1])[:, None], 0
    for _ in range(60):
        values = rng.normal(0, np.sqrt(1.25), (6, 1))
        messages = Gaussian(values, np.full((6, 1), 0.25))
        prior = LocationScale(Discrete("npmle"), spread=()).fit(messages, w)
        slope, error = prior.coefficients_[1, 0], prior.coefficient_errors_[1, 0]
        covered += abs(slope) < 1.96 * error
    assert covered > 45  # Wald's of six hold .87; without the leverages .73


def test_what_is_refused():
    _, x, w = dependent(20)
    with pytest.raises(ValueError, match="shape must have the method 'reml' or 'ml'"):
        LocationScale(Normal(method="moments")).fit(x, w)
    with pytest.raises(ValueError, match="leave mean and variance open"):
        LocationScale(Normal(0.0)).fit(x, w)
    with pytest.raises(TypeError, match="shape must be a prior"):
        LocationScale("npmle").fit(x, w)
    for wrong in ("~ log(se)", [0, 1], ["w"]):
        with pytest.raises(ValueError, match="spread must be numbers of columns, of the 1 cov"):
            LocationScale(spread=wrong).fit(x, w)
    with pytest.raises(ValueError, match=r"covariates must have shape \(n, 1\); got \(20, 2\)"):
        LocationScale().fit(x, w).at(np.hstack([w, w]))
    for covariates in (np.ones((20, 1)), np.hstack([w, 2 * w])):
        with pytest.raises(ValueError, match=r"constant columns|collinear columns"):
            LocationScale().fit(x, covariates)
    with pytest.raises(TypeError, match="Choose a prior that fits"):
        LocationScale().fit(Binomial(np.array([[1], [2]]), np.array([3, 3])), w[:2])


@pytest.mark.parametrize("prior", ["point_normal", "point_laplace"])
def test_a_point_is_as_unsure_as_its_location(prior):
    """Its sign was said to be known: by .48 other than that of draws, which share the errors."""
    rng = np.random.default_rng(0)
    w = rng.normal(size=200)
    theta = 0.3 * w + np.where(rng.random(200) < 0.8, 0.0, rng.normal(0, 3, 200))
    x = theta + rng.normal(size=200)
    posterior = eb.posterior_from(x, 1.0, prior, w)
    draws = posterior.sample(4000, 0)[:, :, 0]
    for at in (-0.5, 0.0, 0.3):
        # errors of draws are below .04; what errors do to the rest is to first order
        np.testing.assert_allclose(posterior.prob_below(at)[:, 0], (draws <= at).mean(0), atol=0.06)
    for q in (0.025, 0.4, 0.9):
        np.testing.assert_allclose(posterior.prob_below(posterior.quantile(q)), q, atol=1e-6)
    np.testing.assert_allclose(posterior.prob_below(0.1) + posterior.prob_above(0.1), 1, atol=1e-9)
