"""Degrees of freedom of counts and classes: what normal theory has of them, and who has none."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

import ebfed as eb
from ebfed.priors import IdentificationWarning
from ebfed.regression.criteria import QuadratureCriterion
from ebfed.regression.numerics.spread_doubt import MANY
from ebfed.testing.nodes import fit_on_nodes

REFERENCE = Path(__file__).parents[1] / "reference"


def draw(m=8, n=4, seed=0, family="poisson"):
    """Rows of m groups, with a column of rows and one of groups."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(m), n)
    X = np.column_stack([rng.normal(size=m * n), rng.normal(size=m)[groups]])
    z = 0.5 + rng.normal(0, 0.6, m)[groups] + X @ [0.4, 0.3]
    if family == "poisson":
        return X, rng.poisson(np.exp(z)), groups
    return X, (rng.random(m * n) < 1 / (1 + np.exp(-z))).astype(int), groups


@pytest.mark.parametrize("columns", [1, 3])
def test_of_rates_that_are_known_they_are_those_of_a_regression_on_groups(columns):
    """Groups of some 1e6 events: logarithms of rates are normal numbers without errors.

    Standard errors and degrees of freedom are those of least squares on these, but that three
    values stand for the distribution of the variance.
    """
    rng = np.random.default_rng(1)
    m = 12
    X = rng.normal(size=(m, columns))
    events = rng.poisson(np.exp(14 + X.sum(axis=1) + rng.normal(0, 0.3, m)))
    fit = eb.GeneralizedEB("poisson", varying=["intercept"]).fit(X, events, groups=np.arange(m))
    found = fit.inference("satterthwaite")
    design = np.column_stack([np.ones(m), X])
    coefficients, left = np.linalg.lstsq(design, np.log(events))[:2]
    degrees = m - 1 - columns
    errors = np.sqrt(np.diag(np.linalg.inv(design.T @ design)) * left / degrees)
    np.testing.assert_allclose(found.mean, coefficients, atol=1e-3)
    np.testing.assert_allclose(found.std_error(np.eye(1 + columns)), errors, rtol=2e-3)
    np.testing.assert_allclose(found.df(np.eye(1 + columns)), degrees, rtol=0.06)
    with_all = found.joint(np.eye(1 + columns))
    assert with_all.den_df == pytest.approx(degrees, rel=0.06)


def test_columns_of_rows_have_many_degrees_and_columns_of_groups_few():
    X, y, groups = draw()
    fit = eb.GeneralizedEB("poisson", varying=["intercept"]).fit(X, y, groups=groups)
    found = fit.tests()
    plain = fit.tests(ddf="asymptotic")
    assert found["df"].iloc[1] > 30
    assert (found["df"].iloc[[0, 2]] < 20).all()
    larger = found["std.error"] / plain["std.error"]
    assert (larger.iloc[[0, 2]] > 1.05).all()
    assert larger.iloc[1] == pytest.approx(1, abs=0.15)
    np.testing.assert_array_equal(plain["std.error"], fit.tidy("fixed")["std.error"])
    one = fit.inference().joint(np.eye(3)[[2]])
    assert one.p_value == pytest.approx(found["p.value"].iloc[2], rel=1e-9)


@pytest.mark.parametrize("covariance", ["diag", "spherical", "full"])
def test_slopes_levels_and_classes_have_degrees(covariance):
    X, y, groups = draw(12, 8)
    fits = [
        eb.GeneralizedEB("poisson", covariance, varying=["intercept", 0]),
        eb.GeneralizedEB("negative_binomial", covariance, varying=["intercept", 0]),
        eb.GeneralizedEB("ordinal", covariance, varying=["intercept", 0]),
    ]
    fits = [each.fit(X, np.minimum(y, 3) + 1, groups=groups) for each in fits]
    levels = eb.GeneralizedEB("poisson", covariance, varying=["intercept"])
    fits.append(levels.fit(X, y, groups=[groups // 3, groups]))
    X, y, groups = draw(12, 12, 1, "binomial")
    fits.append(eb.LogisticEB(covariance).fit(X, y, groups=groups))
    for fit in fits:
        found, unit = fit.inference(), np.eye(3)
        assert (np.linalg.eigvalsh(found.covariance) > 0).all()
        assert (found.df(unit) > 1).all()
        assert (found.df(unit) < 1e7).all()
        assert np.isfinite(fit.tests()["p.value"]).all()


def test_a_spread_of_zero_is_not_known_to_be_zero():
    y, groups = np.tile([2, 3, 4], 8), np.repeat(np.arange(8), 3)
    fit = eb.GeneralizedEB("poisson", fit_intercept=False).fit(np.ones((24, 1)), y, groups=groups)
    assert fit.covariance_[0, 0] == 0
    found, plain = fit.tests(), fit.tests(ddf="asymptotic")
    assert found["std.error"].iloc[0] > 1.05 * plain["std.error"].iloc[0]
    assert np.isfinite(found["df"].iloc[0])


def test_intervals_are_by_t_and_those_of_lme4_by_z():
    rows = pd.read_csv(REFERENCE / "cbpp.csv").astype({"period": str})
    model = "cbind(incidence, size - incidence) ~ period + (1 | herd)"
    fit = eb.from_formula(model, rows, eb.GeneralizedEB("binomial"))
    found, tidy = fit.confint(ddf="asymptotic"), fit.tidy("fixed")
    reach = norm.ppf(0.975) * tidy["std.error"]
    np.testing.assert_allclose(found["conf.high"], tidy["estimate"] + reach, rtol=1e-12)
    wider = fit.confint()
    assert (wider["conf.high"] - wider["conf.low"] > found["conf.high"] - found["conf.low"]).all()
    with_ends = fit.tidy("fixed", conf_int=True)
    pd.testing.assert_series_equal(with_ends["conf.low"], wider["conf.low"])
    found = fit.tests()
    for name in ("std.error", "df", "statistic", "p.value"):
        np.testing.assert_array_equal(with_ends[name], found[name])
    assert (with_ends["std.error"] > tidy["std.error"]).all()
    with pytest.raises(ValueError, match=r"is of method='wald'; method='profile'"):
        fit.confint(method="profile", ddf="asymptotic")


@pytest.mark.parametrize("covariance", ["diag", "full"])
@pytest.mark.parametrize("slopes", [0.0, 0.3])
def test_a_thousand_groups_have_some_thousand_degrees(covariance, slopes):
    """And errors near those of z, also where slopes have no variance, and the mean moves."""
    rng = np.random.default_rng(5)
    groups, x = np.repeat(np.arange(1000), 5), rng.normal(size=5000)
    own = rng.normal(size=(2, 1000))[:, groups] * [[0.5], [slopes]]
    y = rng.poisson(np.exp(own[0] + (0.3 + own[1]) * x))
    fit = eb.GeneralizedEB("poisson", covariance).fit(x[:, None], y, groups=groups)
    found, plain = fit.tests(), fit.tests(ddf="asymptotic")
    np.testing.assert_allclose(found["std.error"], plain["std.error"], rtol=0.03)
    assert (found["df"] > 500).all()


def test_of_many_groups_they_are_infinite():
    rng = np.random.default_rng(0)
    y = rng.poisson(np.exp(rng.normal(0, 0.5, MANY)))
    fit = eb.GeneralizedEB("poisson", fit_intercept=False)
    fit = fit.fit(np.ones((MANY, 1)), y, groups=np.arange(MANY))
    found = fit.inference()
    assert np.isinf(found.df(np.eye(1))).all()
    np.testing.assert_array_equal(found.covariance, fit.mean_covariance_)


def test_who_has_none():
    X, y, groups = draw(20, 6, 0, "binomial")
    with pytest.warns(IdentificationWarning, match="has no maximum"):
        other = eb.LogisticEB("spherical", method="gradient").fit(X, y, groups=groups)
    with pytest.raises(ValueError, match="needs a fit whose likelihood has a maximum"):
        other.tests(ddf="satterthwaite")
    assert np.isinf(other.tests()["df"]).all()
    with pytest.raises(ValueError, match="ddf must be 'satterthwaite' or 'asymptotic'"):
        other.tests(ddf="residual")


@pytest.mark.parametrize("est", [eb.LinearEB, eb.GeneralizedEB])
def test_a_node_with_some_of_the_groups_has_tests_by_z(est):
    """Its rows are not those that the errors are of."""
    X, y, groups = draw(20, 5)
    here = est(varying=["intercept"]).fit(X, y, groups=groups)
    some = groups < 8
    given = [{"X": X[own], "y": y[own], "groups": groups[own]} for own in (some, ~some)]
    node = fit_on_nodes(est(varying=["intercept"]), given)[0][0]
    with pytest.raises(ValueError, match="those of 8 of 20"):
        node.tests(ddf="satterthwaite")
    with pytest.raises(ValueError, match="those of 8 of 20"):
        node.influence()
    with pytest.raises(ValueError, match="those of 8 of 20"):
        node.confint(method="profile")
    plain = here.tests(ddf="asymptotic")
    np.testing.assert_allclose(node.tests(ddf="asymptotic")["p.value"], plain["p.value"], rtol=1e-4)
    ends = here.confint(ddf="asymptotic")[["conf.low", "conf.high"]]
    np.testing.assert_allclose(node.confint()[["conf.low", "conf.high"]], ends, rtol=1e-4)


@pytest.mark.parametrize("family", ["poisson", "binomial"])
@pytest.mark.parametrize("varying", [["intercept"], ["intercept", "x0"]])
def test_the_mean_is_known_as_well_at_nearby_spreads_as_its_rows_say(family, varying):
    """By the second derivatives there; the server has the total variance of groups alone."""
    X, y, groups = draw(10, 12, seed=3, family=family)
    fit = eb.GeneralizedEB(family, varying=varying).fit(X, y, groups=groups)
    result, criterion = fit._result, QuadratureCriterion(fit)
    before = criterion.covariance_given(fit.mean_, [result["covariance"]])
    nodes = zip(result["node_means"], result["node_roots"][0], strict=True)
    for (mean, root), found in zip(nodes, result["node_mean_covariances"], strict=True):
        exact = criterion.covariance_given(mean, [root @ root.T])
        ratio = np.diag(found) / np.diag(fit.mean_covariance_)
        np.testing.assert_allclose(ratio, np.diag(exact) / np.diag(before), rtol=0.3)


@pytest.mark.parametrize("family", ["poisson", "gamma"])
def test_intervals_of_few_groups_hold_their_coefficients(family):
    """Beside a column of groups; with the mean as known as at the fitted spread, .90 did."""
    inside = []
    for seed in range(80):
        rng = np.random.default_rng(seed)
        groups = np.repeat(np.arange(6), 8)
        X = np.column_stack([rng.normal(size=48), rng.normal(size=6)[groups]])
        effects = rng.normal(0, 0.6, 6)
        mean = np.exp(0.8 + effects[groups] + X @ [0.4, 0.3])
        y = rng.poisson(mean) if family == "poisson" else mean * rng.gamma(2, 0.5, 48)
        fit = eb.GeneralizedEB(family, varying=["intercept"]).fit(X, y, groups=groups)
        low, high = (each[:, 0] for each in fit.posterior().interval(0.95))
        inside.append(np.mean((low <= 0.8 + effects) & (0.8 + effects <= high)))
    assert 0.925 < np.mean(inside) < 0.99  # its standard error is .01


def test_units_of_columns_do_not_matter_to_what_is_not_known():
    """A column of some 1e7 made the mean unknown at other spreads, and limits infinite."""
    X, y, groups = draw(8, 6, seed=2)
    one, other = (
        eb.GeneralizedEB("poisson", varying=["intercept", "x0"]).fit(
            X * [size, 1], y, groups=groups
        )
        for size in (1.0, 1e7)
    )
    sd = other.posterior().sd * [1.0, 1e7, 1.0]
    np.testing.assert_allclose(sd, one.posterior().sd, rtol=1e-3)
