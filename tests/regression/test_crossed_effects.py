"""Effects and coefficients of the levels of one crossed factor, and of all."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import ebfed as eb


def fit_of(formula="y ~ x + (1 | a) + (1 | b)", family="gaussian"):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.integers(0, (12, 5), (300, 2)), columns=["a", "b"])
    z = rng.normal(0, 0.7, 12)[rows["a"]] + rng.normal(0, 0.5, 5)[rows["b"]]
    rows = rows.assign(x=rng.normal(size=300), b="level " + rows["b"].astype(str))
    z += (0.5 + rng.normal(0, 0.4, 12)[rows["a"]]) * rows["x"]
    rows["y"] = rng.poisson(np.exp(z)) if family == "poisson" else z + rng.normal(size=300)
    return rows, eb.from_formula(formula, rows, family=family)


@pytest.mark.parametrize("method", ["ranef", "coef"])
@pytest.mark.parametrize(
    ("formula", "family", "terms"),
    [
        ("y ~ x + (1 | a) + (1 | b)", "gaussian", 1),
        ("y ~ x + (1 | a) + (1 | b)", "poisson", 1),
        ("y ~ x + (1 + x | a) + (1 | b)", "gaussian", 2),
    ],
)
def test_without_a_name_all_factors_are_one_after_the_other(method, formula, family, terms):
    fit = fit_of(formula, family)[1]
    every = getattr(fit, method)()
    assert every["group"].value_counts().to_dict() == {"a": 12 * terms, "b": 5}
    assert every.columns[:2].tolist() == ["group", "level"]
    assert ("term" in every) == (method == "coef" or terms == 2)
    for name in "ab":
        own, one = every[every["group"] == name], getattr(fit, method)(name)
        assert own["level"].tolist() == one[name].astype(str).tolist()
        for column in one.columns[1:]:
            np.testing.assert_array_equal(own[column], one[column])


def test_coefficients_are_the_mean_and_the_effects():
    """Their errors are those of both together: less than of the two, fully correlated."""
    fit = fit_of()[1]
    coef, effects = fit.coef(), fit.ranef()
    np.testing.assert_allclose(coef["estimate"], fit.mean_[0] + effects["estimate"])
    whole = [fit.posterior(level=name).sd[:, 0] for name in "ab"]
    most = np.concatenate(whole) + fit.tidy("fixed")["std.error"][0]
    assert (coef["std.error"] < most).all()


@pytest.mark.parametrize(("effect", "method"), [("ran_vals", "ranef"), ("ran_coefs", "coef")])
@pytest.mark.parametrize("formula", ["y ~ x + (1 | a) + (1 | b)", "y ~ x + (1 + x | a) + (1 | b)"])
def test_tidy_has_the_levels_of_all_factors(effect, method, formula):
    fit = fit_of(formula)[1]
    found, expected = fit.tidy(effect, conf_int=True, conf_level=0.9), getattr(fit, method)()
    assert found["effect"].eq(effect).all()
    for name in expected.columns:
        np.testing.assert_array_equal(found[name], expected[name])
    half = (found["conf.high"] - found["conf.low"]) / 2
    np.testing.assert_allclose(half, stats.norm.ppf(0.95) * found["std.error"])
    assert "term" in found
    with pytest.raises(ValueError, match="a level must lie between 0 and 1"):
        fit.tidy(effect, conf_level=2)


def test_one_slope_has_its_name():
    fit = fit_of("y ~ x + (0 + x | a) + (1 | b)")[1]
    assert fit.ranef("a")["term"].unique().tolist() == ["x"]
    assert "term" not in fit.ranef("b")
    assert fit.coef().groupby("group")["term"].first().to_dict() == {"a": "x", "b": "intercept"}


def test_frames_are_of_the_library_of_the_rows():
    pl = pytest.importorskip("polars")
    rows = fit_of()[0]
    fit = eb.from_formula("y ~ x + (1 | a) + (1 | b)", pl.from_pandas(rows))
    assert isinstance(fit.coef(), pl.DataFrame)
    assert isinstance(fit.ranef("b"), pl.DataFrame)


def test_a_factor_must_be_of_the_fit():
    rows, fit = fit_of()
    for method in (fit.coef, fit.ranef, fit.estimator_.posterior):
        with pytest.raises(ValueError, match="level must be one of 'a', 'b'; got 'c'"):
            method("c")
    for method in (fit.posterior, fit.estimator_.posterior):
        with pytest.raises(ValueError, match="level must be one of 'a', 'b'; got None"):
            method()
    for given in ({"data": rows}, {"data": "a"}, {"groups": [1, 2]}):
        with pytest.raises(ValueError, match="all levels of one of them: give level= alone"):
            fit.posterior(**given)
    assert len(fit.posterior(level="b")) == 5


def test_margins_of_new_levels_have_the_variances_of_all_factors():
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.integers(0, (12, 7), (150, 2)), columns=["a", "b"])
    rows["x"] = rng.normal(size=150)
    rows["y"] = rows["x"] + rng.normal(size=12)[rows["a"]] * (1 + rows["x"]) + rng.normal(size=150)
    fit = eb.from_formula("y ~ x + (1 + x | a) + (1 | b)", rows)
    typical, new = (
        fit.margins(at={"x": 2.0}, group=group).frame()["std.error"][0]
        for group in ("typical", "new")
    )
    along = np.array([1.0, 2.0])
    own = along @ fit.covariances_["a"] @ along + fit.variances_["b"]
    assert new**2 - typical**2 == pytest.approx(own)


def test_it_has_what_other_mixed_models_have():
    """Ranks are of the first factor; SQL would need the effects of several."""
    fit = fit_of()[1].estimator_
    ranks, expected = fit.ranks(), fit.posterior("a").ranks()
    np.testing.assert_array_equal(ranks["rank"], expected["rank"])
    with pytest.raises(ValueError, match="CrossedEB has no SQL: rows have effects of several"):
        fit.to_sql()


def test_levels_that_differ_are_not_taken_for_rows_that_scatter():
    # there are two maxima: 25.04, where no levels differ and the shape is 1.39, and the higher one
    y = [0.3707, 0.01305, 7.347, 0.04183, 0.009363, 0.008597, 0.002289, 0.00928]
    y += [0.004997, 0.0374, 0.07127, 0.07687]
    rows = pd.DataFrame({"y": y, "f": list("uvvuwwwwwwvu"), "b": list("010010000101")})
    rows["g"], rows["h"] = list("aaaabbbbbccc"), list("zyxwwwwwyyyz")
    rows = pd.concat([rows, rows[:4]], ignore_index=True)
    fit = eb.from_formula("y ~ f * b + (1 | g) + (1 | h)", rows, family="gamma")
    found = fit.tidy(effects="ran_pars")
    found = found.set_index(["group", "term"])["estimate"]
    # by search from other places, of Laplace's approximation by dense algebra (tests/fuzz/oracles)
    assert fit.glance()["logLik"].item() == pytest.approx(30.162, abs=0.001)
    assert found["h", "sd__intercept"] == pytest.approx(1.925, rel=1e-3)
    assert found["Residual", "shape"] == pytest.approx(6.813, rel=1e-3)
