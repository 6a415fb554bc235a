"""Degrees of freedom: against lmerTest and pbkrtest, and what must hold of them."""

import numpy as np
import pandas as pd
import pytest
from r_fits import fit_of, in_words_of_r, stored

import ebfed as eb
from ebfed.inference.degrees_of_freedom import inference_of
from ebfed.regression.inferring import mixed_fit

COEFFICIENTS = stored("coefficients")
# Both optimisers stop near the optimum: degrees of freedom to 1e-3 of themselves.
NEAR = 1e-3


@pytest.mark.parametrize(
    ("case", "ddf"), sorted(set(zip(COEFFICIENTS["case"], COEFFICIENTS["ddf"], strict=True)))
)
def test_coefficients_are_those_of_lmertest(case, ddf):
    expected = COEFFICIENTS[(COEFFICIENTS["case"] == case) & (COEFFICIENTS["ddf"] == ddf)]
    found = fit_of(case).tests(ddf=ddf)
    found.index = in_words_of_r(found["term"])
    found = found.loc[expected["term"]]
    np.testing.assert_allclose(found["estimate"], expected["estimate"], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found["std.error"], expected["std_error"], rtol=1e-4)
    np.testing.assert_allclose(found["df"], expected["df"], rtol=NEAR)
    np.testing.assert_allclose(found["p.value"], expected["p_value"], rtol=5e-3, atol=1e-12)


def test_one_contrast_is_tested_alike_by_t_and_by_f():
    for ddf in ("satterthwaite", "kenward-roger"):
        by_t = fit_of("gaps").tests(ddf=ddf).iloc[1:]
        by_f = fit_of("gaps").estimator_.tests(ddf=ddf, type="wald")
        np.testing.assert_allclose(by_f["statistic"], by_t["statistic"] ** 2)
        np.testing.assert_allclose(by_f["den.df"], by_t["df"])
        np.testing.assert_allclose(by_f["p.value"], by_t["p.value"], rtol=1e-6)


def test_balanced_designs_have_the_degrees_of_freedom_of_the_analysis_of_variance():
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(12), 5)
    treated = (groups % 2).astype(float)
    x = np.tile(np.arange(5.0), 12)
    y = rng.normal(size=12)[groups] * 2 + treated + x + rng.normal(size=60)
    rows = pd.DataFrame({"treated": treated, "x": x})
    fit = eb.LinearEB(varying=["intercept"]).fit(rows, y, groups=groups)
    for ddf in ("satterthwaite", "kenward-roger"):
        found = fit.tests(ddf=ddf)
        np.testing.assert_allclose(found["df"][1:], [10, 60 - 12 - 1], rtol=1e-4)


def test_a_variance_of_zero_adds_nothing():
    rng = np.random.default_rng(3)
    groups, x = np.repeat(np.arange(20), 6), rng.normal(size=120)
    y = 1 + x + rng.normal(size=120)
    y -= np.bincount(groups, y)[groups] / 6  # groups differ less than their noise explains
    fit = eb.LinearEB(varying=["intercept"]).fit(x[:, None], y, groups=groups)
    assert fit.covariance_[0, 0] == 0
    np.testing.assert_allclose(fit.tests()["df"], 118, rtol=1e-6)
    np.testing.assert_allclose(fit.tests(ddf="residual")["df"], 118)


def test_units_do_not_matter():
    rng = np.random.default_rng(5)
    groups = np.repeat(np.arange(15), rng.integers(3, 9, 15))
    x = rng.normal(size=len(groups))
    y = rng.normal(size=15)[groups] + (1 + rng.normal(size=15)[groups]) * x
    y += rng.normal(size=len(x))
    for covariance in ("diag", "spherical", "full"):
        one = eb.LinearEB(covariance).fit(x[:, None], y, groups=groups)
        rescaled = eb.LinearEB(covariance).fit(x[:, None], 1e6 * y, groups=groups)
        for ddf in ("satterthwaite", "kenward-roger"):
            first, second = one.tests(ddf=ddf), rescaled.tests(ddf=ddf)
            np.testing.assert_allclose(first["df"], second["df"], rtol=1e-4)
            np.testing.assert_allclose(first["std.error"] * 1e6, second["std.error"], rtol=1e-4)


@pytest.mark.filterwarnings("ignore:Columns of X are collinear")
@pytest.mark.filterwarnings("ignore:2 of 4 contrasts are not identified")
def test_collinear_columns_have_no_test():
    rng = np.random.default_rng(1)
    groups, x = np.repeat(np.arange(10), 4), rng.normal(size=40)
    X = np.column_stack([x, 2 * x, rng.normal(size=40)])
    fit = eb.LinearEB(varying=["intercept"]).fit(X, rng.normal(size=40) + x, groups=groups)
    for ddf in ("satterthwaite", "kenward-roger"):
        found = fit.tests(ddf=ddf)
        assert found["p.value"].isna().tolist() == [False, True, True, False]


def test_methods_are_checked():
    fit = fit_of("sleepstudy_ml")
    with pytest.raises(ValueError, match="needs a fit by REML"):
        fit.tests(ddf="kenward-roger")
    with pytest.raises(ValueError, match="ddf must be 'satterthwaite'"):
        fit.tests(ddf="kr")
    assert np.isinf(inference_of(mixed_fit(fit.estimator_), "asymptotic").df(np.eye(2))).all()
