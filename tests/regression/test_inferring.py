"""Tests of coefficients by estimators without a formula."""

import numpy as np
import pandas as pd
import pytest

import ebfed as eb


def make_rows(seed=0):
    """Rows of 14 groups, which have a covariate."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(14), rng.integers(2, 9, 14))
    rows = pd.DataFrame({"x": rng.normal(size=len(groups)), "w": groups % 3 * 1.0, "g": groups})
    own = rng.normal(size=(2, 14))[:, groups]
    rows["y"] = 1 + own[0] + rows["w"] + (1 + own[1]) * rows["x"] + rng.normal(size=len(groups))
    return rows


def test_covariates_are_columns_that_do_not_vary():
    rows = make_rows()
    fit = eb.LinearEB("full").fit(rows, "y", groups="g", covariates=["w"])
    rows["xw"] = rows["x"] * rows["w"]
    twin = eb.LinearEB("full", varying=["intercept", "x"]).fit(rows, "y", groups="g")
    for ddf in ("satterthwaite", "kenward-roger"):
        one, other = fit.tests(ddf=ddf), twin.tests(ddf=ddf)
        assert one["term"].tolist() == ["intercept", "x", "intercept:w", "x:w"]
        np.testing.assert_allclose(one["df"], other["df"].iloc[[0, 1, 2, 3]], rtol=1e-3)
    assert fit.tests(type="wald")["num.df"].tolist() == [2]


def test_weights_are_precisions():
    rows = make_rows(1)
    weight = np.random.default_rng(0).integers(1, 4, len(rows)).astype(float)
    fit = eb.LinearEB(varying=["intercept"])
    fit.fit(rows[["x"]], rows["y"], groups=rows["g"], sample_weight=weight)
    doubled = eb.LinearEB(varying=["intercept"])
    doubled.fit(rows[["x"]], rows["y"], groups=rows["g"], sample_weight=2 * weight)
    np.testing.assert_allclose(fit.tests()["df"], doubled.tests()["df"], rtol=1e-4)


def test_frames_are_those_of_the_fit():
    pl = pytest.importorskip("polars")
    rows = pl.from_pandas(make_rows())
    fit = eb.LinearEB().fit(rows.select("x"), rows["y"], groups=rows["g"])
    assert isinstance(fit.tests(), pl.DataFrame)


def test_what_cannot_be_tested_says_why():
    rows = make_rows()
    with pytest.warns(match="no minimum"):
        fit = eb.LinearEB("spherical", solver="gradient").fit(
            rows[["x"]], rows["y"], groups=rows["g"]
        )
    with pytest.raises(ValueError, match="gradient descent has no likelihood"):
        fit.tests()
    exact = eb.LinearEB(varying=["intercept"]).fit(rows[["x"]], 2 * rows["x"], groups=rows["g"])
    with pytest.raises(ValueError, match="explain all rows"):
        exact.tests()


FAR = {  # how far from zero x is, in its own spreads
    ("y ~ x + (1 | g)", None): (1e3, 1e6),
    ("y ~ x + (1 + x | g)", None): (300.0, 1e4),
    ("y ~ x * kind + (1 + x | g)", None): (300.0, 1e4),
    ("hit ~ x + (1 | g)", "binomial"): (1e3, 1e5),
    ("hit ~ x + (1 + x | g)", "binomial"): (300.0, 3e3),
    ("n ~ x + (1 | g)", "poisson"): (1e3, 3e5),
}


@pytest.mark.parametrize(("formula", "family"), FAR)
def test_tests_of_columns_far_from_zero_are_those_of_centred_ones(formula, family):
    rng = np.random.default_rng(0)
    groups, x = rng.integers(0, 20, 300), rng.normal(size=300)
    own = rng.normal(size=(2, 20))[:, groups] * [[0.7], [0.4]]
    line = 0.2 + 0.5 * x + own[0] + own[1] * x
    rows = pd.DataFrame({"g": groups, "kind": rng.choice(["a", "b"], 300)})
    rows["y"], rows["hit"] = line + rng.normal(size=300), (line + rng.logistic(size=300) > 0) * 1
    rows["n"] = rng.poisson(np.exp(line))
    near = eb.from_formula(formula, rows.assign(x=x), family=family)
    kinds = [None, "kenward-roger"] if family is None else [None]
    for away in FAR[formula, family]:
        far = eb.from_formula(formula, rows.assign(x=x + away), family=family)
        for ddf in kinds:
            one, other = (fit.tests(ddf=ddf).set_index("term") for fit in (near, far))
            slopes = [term for term in one.index if "x" in term]
            for name in ("estimate", "std.error", "df", "p.value"):
                np.testing.assert_allclose(
                    other.loc[slopes, name], one.loc[slopes, name], rtol=2e-3, err_msg=name
                )
            one, other = (fit.margins(ddf=ddf).frame() for fit in (near, far))
            for name in ("std.error", "df"):
                np.testing.assert_allclose(other[name], one[name], rtol=2e-2, err_msg=name)
