"""Intervals of crossed factors by profile and bootstrap: beside dense searches, and other doors."""

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.stats import chi2

import ebfed as eb
from ebfed.inference.profiles import Profile

REFERENCE = Path(__file__).parents[1] / "reference"
LIMIT = chi2.ppf(0.95, 1)


def rows_of(n=160, seed=1):
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame({"a": rng.integers(0, 12, n), "b": rng.integers(0, 6, n)})
    rows["x"] = rng.normal(size=n)
    u, v = rng.normal(size=(12, 2)) @ np.array([[1, 0.3], [0, 0.5]]), rng.normal(0, 0.7, 6)
    z = 0.5 + 0.4 * rows["x"] + u[rows["a"], 0] + u[rows["a"], 1] * rows["x"] + v[rows["b"]]
    rows["gaussian"] = z + rng.normal(size=n)
    rows["poisson"] = rng.poisson(np.exp(z - 0.5))
    rows["binomial"] = (rng.random(n) < 1 / (1 + np.exp(-z))).astype(int)
    rows["negative_binomial"] = rng.negative_binomial(2, 2 / (2 + np.exp(z)))
    rows["gamma"] = rng.gamma(2, np.exp(z) / 2)
    rows["ordinal"] = 1 + np.searchsorted([-0.5, 0.5, 2], z + rng.logistic(size=n))
    return rows


FAMILIES = ["gaussian", "poisson", "binomial", "negative_binomial", "gamma", "ordinal"]


@pytest.mark.parametrize("family", FAMILIES)
def test_slopes_are_those_of_the_deviance(family):
    """Central differences of steps of 1e-5; those of modes that are found to 1e-8 leave 1e-3."""
    formula = f"{family} ~ x + (1 + x | a) + (1 | b)"
    fit = eb.from_formula(formula, rows_of(), family=family).estimator_
    profile, rng = Profile(fit._criterion("profile")), np.random.default_rng(0)
    best = profile.best[1]
    assert len(profile.every()) == len(fit.__ebfed_view__().parameters())
    for held in profile.every():
        value = 0.5 if held.kind == "correlation" else 1.1 * profile._range(held, best)[0]
        at = profile._inside(held, best)
        at = at + 0.05 * rng.normal(size=len(at))
        slope, moves = profile._at(held, value, at)[1], 1e-5 * np.eye(len(at))
        up, down = ([profile._at(held, value, at + s * e)[0] for e in moves] for s in (1, -1))
        numeric = np.subtract(up, down) / 2e-5
        np.testing.assert_allclose(slope, numeric, rtol=1e-3, atol=2e-3, err_msg=str(held))


@pytest.mark.parametrize("term", ["x", "sd__x", "cor__intercept.x", "sd__intercept.b"])
def test_ends_are_where_a_dense_search_says(term):
    """The smallest deviance of matrices of all rows at an end is 3.84 higher than the smallest.

    Searches by differences of values end within 1e-6; ends, within 1e-6 of their steps.
    """
    rows = rows_of(90)
    found = eb.from_formula("gaussian ~ x + (1 + x | a) + (1 | b)", rows)
    found = found.confint(method="profile").set_index(["group", "term"])
    y, X = rows["gaussian"].to_numpy(), np.column_stack([np.ones(len(rows)), rows["x"]])
    same = [np.equal.outer(rows[name].to_numpy(), rows[name].to_numpy()) for name in "ab"]

    def deviance(free, held, value):
        size = dict(
            zip(("sd__intercept", "sd__x", "sd__intercept.b"), np.exp(free[:3]), strict=True)
        )
        size["cor__intercept.x"] = np.tanh(free[3])
        size |= {held: value}
        s, t, b, rho = (
            size[each] for each in ("sd__intercept", "sd__x", "sd__intercept.b", "cor__intercept.x")
        )
        G = np.array([[s**2, rho * s * t], [rho * s * t, t**2]])
        V = np.exp(free[4]) * np.eye(len(y)) + same[0] * (X @ G @ X.T) + b**2 * same[1]
        inverse, left, kept = np.linalg.inv(V), y, X
        if held == "x":
            left, kept = y - value * X[:, 1], X[:, :1]
        W = inverse @ kept
        left = left - kept @ np.linalg.solve(kept.T @ W, W.T @ left)
        return np.linalg.slogdet(V)[1] + left @ inverse @ left

    def least(held, value):
        start = [0.0, -0.5, -0.3, 0.5, 0.0]
        return minimize(deviance, start, (held, value), "BFGS", options={"gtol": 1e-4}).fun

    best = least(None, None)
    group = {"x": "", "sd__intercept.b": "b"}.get(term, "a")
    for end in ("conf.low", "conf.high"):
        value = found.loc[(group, term.removesuffix(".b")), end]
        above = least(term, np.clip(value, -1 + 1e-9, 1 - 1e-9) if "cor" in term else value) - best
        assert above == pytest.approx(LIMIT, abs=1e-4) or (value == 1 and above < LIMIT)


def test_profiles_of_penicillin_are_those_of_lme4():
    """As printed in Bates, lme4: Mixed-effects modeling with R, chapter 2; splines leave 2e-5."""
    rows = pd.read_csv(REFERENCE / "penicillin.csv")
    fit = eb.from_formula("diameter ~ 1 + (1 | plate) + (1 | sample)", rows)
    found = fit.confint(method="profile")[["conf.low", "conf.high"]].to_numpy()
    printed = [
        (21.2666274, 24.6778176),
        (0.6335658, 1.1821040),
        (1.0957893, 3.5562919),
        (0.4858454, 0.6294535),
    ]
    np.testing.assert_allclose(found, printed, atol=1e-4)


def nested_rows():
    rng = np.random.default_rng(4)
    rows = pd.DataFrame({"low": np.repeat(np.arange(24), 6)})
    rows["top"], rows["x"] = rows["low"] // 4, rng.normal(size=144)
    effects = rng.normal(0, 0.8, 6)[rows["top"]] + rng.normal(0, 0.5, 24)[rows["low"]]
    rows["gaussian"] = effects + 0.5 * rows["x"] + rng.normal(size=144)
    rows["poisson"] = rng.poisson(np.exp(0.5 + effects + 0.3 * rows["x"]))
    return rows


@pytest.mark.parametrize("family", ["gaussian", "poisson"])
def test_factors_that_are_nested_have_the_intervals_of_nested_groups(family):
    """The same likelihood by two engines: ends agree to 1e-4 of the searches' slopes."""
    rows = nested_rows()
    crossed = eb.CrossedEB(family=family).fit(
        rows[["x"]], rows[family], groups=rows[["top", "low"]]
    )
    varying = {"varying": ["intercept"]}
    nested = eb.LinearEB(**varying) if family == "gaussian" else eb.GeneralizedEB(family, **varying)
    nested = nested.fit(rows[["x"]], rows[family], groups=rows[["top", "low"]])
    one, other = (fit.confint(method="profile") for fit in (crossed, nested))
    assert one[["effect", "group", "term"]].equals(other[["effect", "group", "term"]])
    for end in ("conf.low", "conf.high"):
        np.testing.assert_allclose(one[end], other[end], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    "family", ["gaussian", "poisson", "binomial", "negative_binomial", "gamma"]
)
def test_bootstrap_is_near_the_profile(family):
    """Quantiles of 30 draws have errors of a sixth of an interval: false alarms below 1 in 100."""
    fit = eb.from_formula(f"{family} ~ x + (1 | a) + (1 | b)", rows_of(), family=family)
    drawn, profile = (
        fit.confint(method=method, n_boot=30).set_index(["group", "term"])
        for method in ("bootstrap", "profile")
    )
    assert drawn.index.equals(profile.index)
    a, b = drawn.loc[("", "x")], profile.loc[("", "x")]
    width = b["conf.high"] - b["conf.low"]
    assert abs(a["conf.low"] - b["conf.low"]) < width / 2
    assert abs(a["conf.high"] - b["conf.high"]) < width / 2
    known = drawn["conf.high"].notna()
    assert (drawn["conf.low"] < drawn["conf.high"])[known].all()


def test_draws_repeat_and_a_pickle_has_the_rows():
    fit = eb.from_formula("poisson ~ x + (1 | a) + (1 | b)", rows_of(), family="poisson")
    once = fit.estimator_.confint(method="bootstrap", n_boot=4, random_state=3)
    again = pickle.loads(pickle.dumps(fit.estimator_))
    pd.testing.assert_frame_equal(once, again.confint(method="bootstrap", n_boot=4, random_state=3))


def test_a_coefficient_that_follows_from_others_has_no_interval():
    rows = rows_of().assign(twice=lambda f: 2 * f["x"])
    with pytest.warns(eb.priors.IdentificationWarning, match="collinear"):
        fit = eb.from_formula("gaussian ~ x + twice + (1 | a) + (1 | b)", rows)
    found = fit.confint(method="profile").set_index("term")["conf.low"]
    assert found[["x", "twice"]].isna().all()
    assert found.drop(["x", "twice"]).notna().all()


def test_what_crossed_factors_do_not_have_is_named(tmp_path):
    rows = rows_of()
    fit = eb.from_formula("ordinal ~ x + (1 | a) + (1 | b)", rows, family="ordinal").estimator_
    with pytest.raises(ValueError, match="takes no ordered classes"):
        fit.confint(method="bootstrap")
    with pytest.raises(ValueError, match="method must be one of 'wald', 'profile', 'bootstrap'"):
        fit.confint(method="boot")
    fit.save(tmp_path / "fit.json")
    with pytest.raises(ValueError, match="rows of the fit are needed for intervals by 'profile'"):
        eb.load_fit(tmp_path / "fit.json").confint(method="profile")
