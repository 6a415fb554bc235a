"""Logistic models in which some coefficients are alike in all groups, beside lme4's glmer."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import ebfed as eb

STORED = Path(__file__).parents[1] / "reference"
CASE = "cbpp_quadrature"
# Expectation propagation is an approximation, and so are 25 nodes: nearer they need not be.
NEAR = 2e-3


def stored(kind):
    table = pd.read_csv(STORED / f"lme4_formulas_{kind}.csv", dtype={"grp": str})
    return table[table["case"] == CASE]


@pytest.fixture(scope="module")
def fit():
    herds = pd.read_csv(STORED / "cbpp.csv")
    return eb.from_formula("cbind(incidence, size) ~ C(period) + (1 | herd)", herds)


def test_agrees_with_glmer(fit):
    expected = stored("fixef")
    fixed = fit.tidy("fixed")
    np.testing.assert_allclose(fixed["estimate"], expected["estimate"], atol=NEAR)
    # lme4's allow for the variance as well, which is as if it were known here
    np.testing.assert_allclose(fixed["std.error"], expected["std_error"], rtol=0.02)
    spread = fit.tidy("ran_pars")
    assert spread["term"].tolist() == ["sd__intercept"]
    assert spread["estimate"].item() == pytest.approx(stored("varcor")["sdcor"].item(), rel=NEAR)


def test_groups_are_near_the_modes_of_glmer(fit):
    """Means of skewed posteriors lie some hundredths from their modes."""
    mine = fit.ranef().assign(herd=lambda each: each["herd"].astype(str)).set_index("herd")
    modes = stored("ranef").set_index("grp")["condval"]
    away = mine["intercept"] - modes[mine.index]
    assert np.abs(away).max() < 0.06
    assert list(mine.columns) == ["intercept"]


def test_what_does_not_vary_is_alike_everywhere(fit):
    coef = fit.coef().drop(columns=["herd", "intercept"])
    np.testing.assert_allclose(coef.std(), 0, atol=1e-5)
    assert fit.estimator_.n_parameters_ == 5
    assert np.flatnonzero(np.diag(fit.estimator_.covariance_)).tolist() == [0]


def test_all_varying_is_the_model_without_it():
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(900, 1)), np.repeat(np.arange(100), 9)
    logit = rng.normal(0, 1, 100)[groups] + rng.normal(1, 0.7, 100)[groups] * X[:, 0]
    y = rng.random(900) < 1 / (1 + np.exp(-logit))
    every = eb.LogisticEB(varying=["intercept", 0]).fit(X, y, groups=groups)
    plain = eb.LogisticEB().fit(X, y, groups=groups)
    np.testing.assert_array_equal(every.covariance_, plain.covariance_)
    none = eb.LogisticEB(varying=[]).fit(X, y, groups=groups)
    assert not none.covariance_.any()
    # no coefficient varies: logistic regression
    import statsmodels.api as sm

    ordinary = sm.Logit(y.astype(float), sm.add_constant(X)).fit(disp=0)
    np.testing.assert_allclose(none.mean_, ordinary.params, atol=1e-4)
    np.testing.assert_allclose(np.sqrt(np.diag(none.mean_covariance_)), ordinary.bse, rtol=1e-3)


@pytest.mark.parametrize("options", [{"covariance": "full"}, {"covariance": "spherical"}])
def test_needs_a_diagonal_covariance(options):
    X, groups = np.arange(12.0).reshape(-1, 1) % 5, np.repeat([0, 1, 2], 4)
    est = eb.LogisticEB(varying=["intercept"], **options)
    with pytest.raises(ValueError, match="needs covariance='diag'"):
        est.fit(X, X[:, 0] > 2, groups=groups)


def test_unknown_columns():
    X, groups = np.arange(12.0).reshape(-1, 1) % 5, np.repeat([0, 1, 2], 4)
    with pytest.raises(ValueError, match="varying has 'age'"):
        eb.LogisticEB(varying=["age"]).fit(X, X[:, 0] > 2, groups=groups)
