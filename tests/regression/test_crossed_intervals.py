"""Intervals of crossed factors by profile and bootstrap: beside dense searches, and other doors."""

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq, minimize, minimize_scalar
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
OF_FAMILIES = [(family, "(1 + x | a) + (1 | b)", "profile") for family in FAMILIES]
RESTRICTED = [("gaussian", terms, "restricted") for terms in ("(1 + x | a) + (1 | b)", "(x | a)")]


@pytest.mark.parametrize(("family", "terms", "method"), [*OF_FAMILIES, *RESTRICTED])
def test_slopes_are_those_of_the_deviance(family, terms, method):
    """Central differences of steps of 1e-5; those of modes that are found to 1e-8 leave 1e-3."""
    fit = eb.from_formula(f"{family} ~ x + {terms}", rows_of(), family=family).estimator_
    profile, rng = Profile(fit._criterion(method)), np.random.default_rng(0)
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
    with pytest.raises(
        ValueError, match="method must be one of 'wald', 'profile', 'restricted', 'bootstrap'"
    ):
        fit.confint(method="boot")
    fit.save(tmp_path / "fit.json")
    with pytest.raises(ValueError, match="rows of the fit are needed for intervals by 'profile'"):
        eb.load_fit(tmp_path / "fit.json").confint(method="profile")


def test_restricted_intervals_are_those_of_strata():
    """Equal groups of equal size: mean squares, of n - 1 and of m (n - 1) degrees of freedom."""
    rng = np.random.default_rng(3)
    y = rng.normal(0, 1.5, 6)[:, None] + rng.normal(size=(6, 5))
    rows = pd.DataFrame({"y": y.ravel(), "g": np.repeat(np.arange(6), 5)})
    between = 5 * np.sum((y.mean(1) - y.mean()) ** 2)
    within = np.sum((y - y.mean(1, keepdims=True)) ** 2)

    def least(spread):
        def deviance(log_noise):
            noise = np.exp(log_noise)
            total = noise + 5 * spread**2
            return 24 * log_noise + within / noise + 5 * np.log(total) + between / total

        return minimize_scalar(deviance, bracket=(-1, 1), options={"xtol": 1e-12}).fun

    found = minimize_scalar(least, bounds=(0.3, 5), method="bounded", options={"xatol": 1e-9})
    ends = [
        brentq(lambda x: least(x) - found.fun - LIMIT, low, high)
        for low, high in ((0.01, found.x), (found.x, 30))
    ]
    fit = eb.from_formula("y ~ 1 + (1 | g)", rows)
    table = fit.confint(method="restricted").set_index("term")
    spread = table.loc["sd__intercept", ["conf.low", "conf.high"]].to_numpy(float)
    np.testing.assert_allclose(spread, ends, rtol=1e-5)
    wald = fit.confint(ddf="kenward-roger").set_index("term")
    table = fit.confint(method="restricted", ddf="kenward-roger").set_index("term")
    pd.testing.assert_frame_equal(table.loc[["intercept"], [*wald]], wald)


@pytest.mark.parametrize("method", ["profile", "restricted"])
def test_nested_and_crossed_doors_have_the_same_intervals(method):
    """Ends are found to 1e-6 of their steps, by searches that end within 1e-5 of a deviance."""
    rng = np.random.default_rng(5)
    rows = pd.DataFrame({"g": np.repeat(np.arange(8), 12), "h": np.repeat(np.arange(24), 4)})
    rows["x"] = rng.normal(size=96)
    effects = rng.normal(size=8)[rows["g"]] + rng.normal(0, 0.8, 24)[rows["h"]]
    rows["y"] = rows["x"] + effects + rng.normal(size=96)
    nested = eb.LinearEB(varying=["intercept"])
    nested = nested.fit(rows[["x"]], rows["y"], groups=rows[["g", "h"]])
    crossed = eb.CrossedEB().fit(rows[["x"]], rows["y"], groups=rows[["g", "h"]])
    tables = [fit.confint(method=method).set_index(["group", "term"]) for fit in (nested, crossed)]
    one, other = (table.loc[table["effect"] == "ran_pars"].sort_index() for table in tables)
    other.index = one.index  # a group within another is named by both
    pd.testing.assert_frame_equal(one, other, rtol=1e-4)


@pytest.mark.parametrize("formula", ["poisson ~ x + (1 | a)", "poisson ~ x + (1 | a) + (1 | b)"])
def test_rows_of_families_have_no_restricted_likelihood(formula):
    fit = eb.from_formula(formula, rows_of(), family="poisson")
    with pytest.raises(ValueError, match="no restricted likelihood"):
        fit.confint(method="restricted")
