"""Intervals by profile of counts and classes: beside lme4's, and what must hold of them."""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import ebfed as eb
from ebfed.inference.profiles import Profile
from ebfed.priors import IdentificationWarning
from ebfed.regression.families import family_named
from ebfed.regression.families.base import Responses

REFERENCE = Path(__file__).parents[1] / "reference"
EXPECTED = pd.read_csv(REFERENCE / "lme4_glmer_profiles.csv").set_index("case")
Z = 1.959963984540054


def cbpp():
    rows = pd.read_csv(REFERENCE / "cbpp.csv").astype({"period": str})
    model = "cbind(incidence, size - incidence) ~ period + (1 | herd)"
    return eb.from_formula(model, rows, eb.GeneralizedEB("binomial"))


def epil():
    rows = pd.read_csv(REFERENCE / "epil.csv")
    rows["lbase"] = np.log(rows["base"] / 4) - np.log(rows["base"] / 4).mean()
    rows["lage"] = np.log(rows["age"]) - np.log(rows["age"]).mean()
    return eb.from_formula("y ~ lbase * trt + lage + V4 + (1 | subject)", rows, family="poisson")


@pytest.mark.parametrize("fit", [cbpp, epil])
def test_profiles_are_those_of_lme4(fit):
    """lme4 interpolates its profile by splines: ends agree to 1e-4 of the interval."""
    expected = EXPECTED.loc[fit.__name__]
    spread, means = expected.iloc[0], expected.iloc[1:]
    found = fit().confint(method="profile")
    assert found["term"].iloc[-1] == "sd__intercept"
    low = [*means["low"], spread["low"]]
    high = [*means["high"], spread["high"]]
    widths = np.subtract(high, low)
    np.testing.assert_allclose((found["conf.low"] - low) / widths, 0, atol=1e-4)
    np.testing.assert_allclose((found["conf.high"] - high) / widths, 0, atol=1e-4)


def fit_of(family, covariance="diag", levels=False, seed=0):
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(24), 8)
    X = rng.normal(size=(192, 2))
    effects = rng.normal(size=(24, 2)) @ np.array([[0.7, 0.2], [0.0, 0.4]])
    z = 0.5 + effects[groups, 0] + (0.4 + effects[groups, 1]) * X[:, 0]
    y = {
        "poisson": rng.poisson(np.exp(z)),
        "negative_binomial": rng.negative_binomial(2, 2 / (2 + np.exp(z))),
        "gamma": rng.gamma(2.0, np.exp(z) / 2),
        "ordinal": 1 + np.searchsorted([-0.5, 0.5, 2.0], z + rng.logistic(size=192)),
    }[family]
    labels = [groups // 4, groups] if levels else groups
    model = eb.GeneralizedEB(family, covariance, varying=["intercept", 0])
    return model.fit(X, y, groups=labels), X, y, labels


CASES = [
    ("poisson", "full", False),
    ("poisson", "spherical", False),
    ("poisson", "diag", True),
    ("negative_binomial", "diag", False),
    ("gamma", "full", False),
    ("ordinal", "diag", False),
]


@pytest.mark.parametrize(("family", "covariance", "levels"), CASES)
def test_slopes_are_those_of_the_likelihood(family, covariance, levels):
    """Central differences of steps of 1e-4 leave some 1e-6 of what rules change."""
    profile = Profile(fit_of(family, covariance, levels)[0]._criterion("profile"))
    best = profile.best[1]
    rng = np.random.default_rng(0)
    for held in profile.every():
        value = profile._range(held, best)[0] * 1.1
        value = 0.5 if held.kind == "correlation" else value
        at = profile._inside(held, best)
        at = at + 0.05 * rng.normal(size=len(at))
        slope = profile._at(held, value, at)[1]
        moves = 1e-4 * np.eye(len(at))
        numeric = [
            (profile._at(held, value, at + e)[0] - profile._at(held, value, at - e)[0]) / 2e-4
            for e in moves
        ]
        np.testing.assert_allclose(slope, numeric, atol=5e-3, err_msg=str(held))


@pytest.mark.parametrize(("family", "covariance", "levels"), CASES)
def test_ends_are_where_the_likelihood_is_so_much_lower(family, covariance, levels):
    """With a coefficient held at the end, by an offset, the fit loses ``z**2 / 2``."""
    fit, X, y, labels = fit_of(family, covariance, levels)
    found = fit.confint(method="profile").set_index(["group", "term"])
    for end in ("conf.low", "conf.high"):
        value = found.loc[("", "x1"), end]
        alone = eb.GeneralizedEB(family, covariance, varying=["intercept", 0])
        alone = alone.fit(X[:, :1], y, groups=labels, offset=value * X[:, 1])
        lost = fit.log_likelihood_ - alone.log_likelihood_
        assert lost == pytest.approx(Z**2 / 2, abs=2e-4)
    assert (found["conf.low"] <= found["estimate"] + 1e-6).all()
    assert (found["conf.high"] >= found["estimate"] - 1e-6).all()


def test_thresholds_are_where_the_intercept_is_zero():
    found = fit_of("ordinal")[0].confint(method="profile").set_index("term")
    first = found.loc["1|2"]
    np.testing.assert_allclose(
        first[["conf.low", "conf.high"]].astype(float),
        -found.loc["intercept", ["conf.high", "conf.low"]].astype(float),
        atol=1e-5,
    )
    assert (found.loc[["1|2", "2|3", "3|4"], "conf.low"].diff().dropna() > 0).all()


def test_a_spread_of_zero_has_an_interval_from_zero():
    rng = np.random.default_rng(1)
    X, groups = rng.normal(size=(60, 1)), np.repeat(np.arange(10), 6)
    fit = eb.GeneralizedEB("poisson", varying=["intercept"])
    fit = fit.fit(X, rng.poisson(2, 60), groups=groups)
    found = fit.confint(method="profile").set_index("term").loc["sd__intercept"]
    assert found["conf.low"] == 0
    assert 0 < found["conf.high"] < 1


@pytest.mark.filterwarnings("ignore:Columns of X are collinear")
def test_what_is_not_identified_has_none():
    rng = np.random.default_rng(2)
    x, groups = rng.normal(size=60), np.repeat(np.arange(10), 6)
    y = rng.poisson(np.exp(0.5 + 0.3 * x + rng.normal(0, 0.5, 10)[groups]))
    X = np.column_stack([x, x, np.zeros(60)])
    fit = eb.GeneralizedEB("poisson", varying=["intercept", 2]).fit(X, y, groups=groups)
    found = fit.confint(method="profile").set_index("term")
    missing = found["conf.low"].isna()
    assert missing[["x0", "x1", "x2", "sd__x2"]].all()
    assert not missing[["intercept", "sd__intercept"]].any()


@pytest.mark.parametrize("family", ["poisson", "negative_binomial", "gamma", "ordinal", "binomial"])
def test_draws_have_the_mean_of_the_family(family):
    """Of 20,000 rows at 3 predictors; 4.5 errors: false alarms of 27 figures, 2 in 10,000."""
    shapes = {"negative_binomial": [-0.5], "gamma": [0.4], "ordinal": [0.2, -0.3]}.get(family, [])
    family, shapes = family_named(family), np.array(shapes)
    rng = np.random.default_rng(0)
    for z in (-0.7, 0.2, 1.1):
        at, weight = np.full(20_000, z), np.full(20_000, 3.0)
        y = family.draw(at, weight, shapes, rng)
        mean = family.inverse(at[:1], shapes)[0]
        assert abs(y.mean() - mean) < 4.5 * y.std() / np.sqrt(20_000)
        below = family.below(np.array([1.0]), at[:1], shapes)[0]
        if family.name != "binomial":
            error = np.sqrt(below * (1 - below) / 20_000)
            assert abs(np.mean(y <= 1) - below) < 4.5 * error + 1e-12


@pytest.mark.parametrize(("levels", "n_boot"), [(False, 100), (True, 25)])
def test_bootstrap_is_near_the_profile(levels, n_boot):
    """Of 24 groups, ends of coefficients of rows are within a third of an interval.

    Quantiles of 100 draws have errors of a tenth of an interval; of 25, ends lie inside.
    """
    fit = fit_of("poisson", levels=levels)[0]
    drawn = fit.confint(method="bootstrap", n_boot=n_boot).set_index(["group", "term"])
    profile = fit.confint(method="profile").set_index(["group", "term"])
    assert drawn.index.equals(profile.index)
    for term in ("x0", "x1"):
        a, b = drawn.loc[("", term)], profile.loc[("", term)]
        width = b["conf.high"] - b["conf.low"]
        assert abs(a["conf.low"] - b["conf.low"]) < width / 3
        assert abs(a["conf.high"] - b["conf.high"]) < width / 3


def test_bootstrap_of_trials():
    fit = cbpp()
    drawn = fit.confint(method="bootstrap", n_boot=20)
    assert (drawn["conf.low"] < drawn["conf.high"]).all()
    pd.testing.assert_frame_equal(drawn, fit.confint(method="bootstrap", n_boot=20))


def test_intervals_of_classes_are_those_of_binomial_rows():
    """`LogisticEB` is the same model: its profile to rounding, its bootstrap of the same draws."""
    rng = np.random.default_rng(0)
    groups, X = np.repeat(np.arange(15), 12), rng.normal(size=(180, 1))
    y = (rng.random(180) < 1 / (1 + np.exp(-X[:, 0] - rng.normal(0, 0.8, 15)[groups]))).astype(int)
    named = np.array(["no", "yes"])[y]
    one = eb.GeneralizedEB("binomial", varying=["intercept"]).fit(X, y, groups=groups)
    other = eb.LogisticEB(varying=["intercept"]).fit(X, named, groups=groups)
    for options in ({"method": "profile"}, {"method": "bootstrap", "n_boot": 5}):
        found = [fit.confint(**options).set_index("term")["conf.high"] for fit in (one, other)]
        np.testing.assert_allclose(found[0], found[1], rtol=1e-4)
    with pytest.warns(IdentificationWarning, match="has no maximum"):
        descent = eb.LogisticEB("spherical", method="gradient").fit(X, named, groups=groups)
    with pytest.raises(ValueError, match="needs a fit whose likelihood has a maximum"):
        descent.confint(method="profile")


def test_wrong_arguments_are_named():
    fit = fit_of("poisson")[0]
    with pytest.raises(ValueError, match="n_boot must be a whole number from 2; got 1"):
        fit.confint(method="bootstrap", n_boot=1)
    with pytest.raises(ValueError, match="takes no ordered classes"):
        fit_of("ordinal")[0].confint(method="bootstrap")
    with pytest.raises(
        ValueError, match="method must be one of 'wald', 'profile', 'restricted', 'bootstrap'"
    ):
        fit.confint(method="boot")
    with pytest.raises(ValueError, match="level must lie between 0 and 1"):
        fit.confint(1.0, method="profile")
    state = fit._kept | {"n": np.zeros(0, np.int64)}
    server = eb.GeneralizedEB("poisson", varying=["intercept", 0]).protocol().conclude(state)
    with pytest.raises(ValueError, match="needed for intervals by 'profile'"):
        server.confint(method="profile")


def test_counts_without_dispersion_have_nearly_the_intervals_of_poisson_ones():
    rng = np.random.default_rng(3)
    group = np.repeat(np.arange(25), 6)
    x, effect = rng.normal(size=150), rng.normal(size=25)[group]
    y = rng.poisson(np.exp(0.3 + 0.4 * x + 0.6 * effect))
    few, many = (
        eb.GeneralizedEB(family, varying=["intercept"])
        .fit(x[:, None], y, groups=group)
        .confint(method="profile")[["conf.low", "conf.high"]]
        .to_numpy()
        for family in ("poisson", "negative_binomial")
    )
    np.testing.assert_allclose(many[:3], few, atol=0.03)
    assert many[3, 0] == 0
    assert 0.01 < many[3, 1] < 1


@pytest.mark.parametrize("dispersion", [1e-8, 1e-12, 1e-16])
def test_without_dispersion_terms_of_counts_are_those_of_poisson_ones(dispersion):
    shapes, mean = np.log([dispersion]), np.array([1.0, 2.0, 4.0, 180.0])
    rows = Responses(np.array([0.0, 1.0, 5.0, 200.0]), np.ones(4), np.zeros(4))
    many, few = family_named("negative_binomial"), family_named("poisson")
    nothing = np.zeros(0)
    value, slope, bend = many.base(rows, shapes)
    np.testing.assert_allclose(value, few.base(rows, nothing)[0], atol=1e-3)
    np.testing.assert_allclose(np.hstack([slope, bend]), 0, atol=1e-3)
    for name in ("below", "deviance"):
        of = mean if name == "deviance" else np.log(mean)
        np.testing.assert_allclose(
            getattr(many, name)(rows.y, of, shapes),
            getattr(few, name)(rows.y, of, nothing),
            atol=1e-3,
        )


def test_equal_counts_are_fitted():
    group = np.repeat(np.arange(25), 6)
    x = np.random.default_rng(3).normal(size=(150, 1))
    fit = eb.GeneralizedEB("negative_binomial", varying=["intercept"])
    fit.fit(x, np.ones(150), groups=group)
    np.testing.assert_allclose(fit.predict(x, groups=group), 1, atol=0.1)


@pytest.mark.parametrize("family", ["binomial", "poisson", "gamma", "ordinal", "negative_binomial"])
@pytest.mark.parametrize("seed", range(2))
def test_ends_are_where_the_likelihood_says(family, seed):
    """Of few groups: twice the log-likelihood at an end is at the limit, or the end is a bound."""
    rng = np.random.default_rng(10 * seed + len(family))
    m = rng.integers(5, 9)
    groups = np.repeat(np.arange(m), rng.choice([4, 8, 12], m))
    x = rng.normal(size=len(groups))
    effects = rng.normal(size=(m, 2)) * 0.7
    z = 0.3 + 0.6 * x + effects[groups, 0] + x * effects[groups, 1]
    y = {
        "binomial": rng.random(len(z)) < 1 / (1 + np.exp(-z)),
        "poisson": rng.poisson(np.exp(z)),
        "negative_binomial": rng.negative_binomial(2, 2 / (2 + np.exp(z))),
        "gamma": rng.gamma(2.0, np.exp(z) / 2),
        "ordinal": 1 + np.searchsorted([-0.5, 1.0], z + rng.logistic(size=len(z))),
    }[family].astype(float)
    kind = "full" if family in ("binomial", "poisson", "gamma") else "diag"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = eb.GeneralizedEB(family, kind).fit(x[:, None], y, groups=groups)
    profile = Profile(fit._criterion("profile"))
    for held in profile.every():
        if held is None:
            continue
        for end in profile.interval(held, Z):
            at_bound = end == 0 or np.isinf(end) or (held.kind == "correlation" and abs(end) == 1)
            if np.isnan(end) or np.isinf(end):
                continue
            value = np.clip(end, -1 + 1e-8, 1 - 1e-8) if held.kind == "correlation" else end
            found = profile.profile(held, value)
            starts = profile._restarts(held, value, found[1])
            deviance = min([found[0], *(profile.profile(held, value, x)[0] for x in starts)])
            excess = deviance - profile.best[0]
            assert excess <= Z**2 + 2e-3 if at_bound else abs(excess - Z**2) < 2e-3, held


def test_profiles_do_not_depend_on_where_columns_are_zero():
    """With x at 8,000 the search for the others did not arrive, and ends took minutes."""
    rng = np.random.default_rng(3)
    g, x = np.repeat(np.arange(5), 4), rng.normal(size=20)
    y = 1 + np.digitize(x + rng.normal(size=5)[g] + rng.logistic(size=20), [-0.5, 1.0])
    near, far = (
        eb.from_formula(
            "y ~ x + (1 | g)", pd.DataFrame({"y": y, "x": x + shift, "g": g}), family="ordinal"
        )
        .confint(method="profile")
        .set_index("term")
        .loc[["x", "sd__intercept"], ["conf.low", "conf.high"]]
        for shift in (0.0, 8e3)
    )
    np.testing.assert_allclose(far, near, rtol=1e-3)


def test_ends_of_coefficients_without_a_finite_estimate_are_infinite():
    """An interaction with a level without events was said to be below 8,589."""
    f = np.repeat(["u", "v"], 12)
    b = np.tile(np.repeat(["no", "yes"], 6), 2)
    y = np.where(b == "yes", 0, np.tile([1, 2, 0, 1, 3, 1], 4))
    frame = pd.DataFrame({"y": y, "f": f, "b": b, "g": np.tile(np.arange(4), 6)})
    with pytest.warns(eb.priors.IdentificationWarning, match="without end"):
        fit = eb.from_formula("y ~ f * b + (1 | g)", frame, family="poisson")
    found = fit.confint(method="profile").set_index("term")
    both = found.loc["f[T.v]:b[T.yes]", ["conf.low", "conf.high"]].to_numpy(float)
    np.testing.assert_array_equal(both, [-np.inf, np.inf])
    assert found.loc["b[T.yes]", "conf.low"] == -np.inf
    assert found.loc["b[T.yes]", "conf.high"] < 0
    assert np.isfinite(
        found.loc[["intercept", "f[T.v]"], ["conf.low", "conf.high"]].to_numpy(float)
    ).all()


def test_no_profile_where_the_likelihood_has_no_maximum():
    """Groups of one class each: their variance has no end."""
    groups = np.repeat(np.arange(3), 4)
    y, x = np.repeat([0, 1, 1], 4), np.tile([-1.0, 0.5, 0.2, 1.0], 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = eb.GeneralizedEB("binomial", varying=["intercept"])
        fit.fit(x[:, None], y, groups=groups)
    with pytest.raises(ValueError, match="method='profile' needs a likelihood with a maximum"):
        fit.confint(method="profile")


def test_no_profile_of_rounding():
    """Gamma responses that are equal: the shape is where the search stopped."""
    groups, x = np.repeat(np.arange(3), 6), np.linspace(-1, 1, 18)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = eb.GeneralizedEB("gamma", varying=["intercept"])
        fit.fit(x[:, None], np.full(18, 20.0), groups=groups)
    with pytest.raises(ValueError, match="method='profile' needs noise"):
        fit.confint(method="profile")
