"""Intervals by profile and bootstrap: beside lme4's, and what must hold of them."""

import numpy as np
import pandas as pd
import pytest
from r_fits import data_of, fit_of, stored
from scipy.optimize import minimize, minimize_scalar
from scipy.stats import chi2
from sklearn.exceptions import ConvergenceWarning

import ebfed as eb
from ebfed.inference.profiles import NEARLY_ONE, Held, Profile, profile_end
from ebfed.regression.inferring import mixed_fit
from ebfed.regression.intervals import drawn

PROFILES = stored("profiles")


@pytest.mark.parametrize("case", ["sleepstudy", "sleepstudy_diag", "radon", "oats"])
def test_profiles_are_those_of_lme4(case):
    """lme4 interpolates its profile by splines: ends agree to 2e-3 of the interval."""
    expected = PROFILES[PROFILES["case"] == case]
    found = fit_of(case).confint(method="profile")
    spreads, means = found[found["effect"] == "ran_pars"], found[found["effect"] == "fixed"]
    told = expected["term"].str.contains("sd_|cor_|sigma")
    for here, in_r in ((spreads, expected[told]), (means, expected[~told])):
        low, high = (np.sort(here[name]) for name in ("conf.low", "conf.high"))
        width = (in_r["high"] - in_r["low"]).min()
        np.testing.assert_allclose(low, np.sort(in_r["low"]), atol=2e-3 * width, rtol=1e-3)
        np.testing.assert_allclose(high, np.sort(in_r["high"]), atol=2e-3 * width, rtol=1e-3)


def profile_of(fit):
    return Profile(fit._criterion("profile"))


@pytest.mark.parametrize("kind", ["full", "diag", "spherical"])
def test_slopes_are_those_of_the_deviance(kind):
    """Central differences of steps of 1e-6: 1e-6 of the deviance is rounding and curvature."""
    rng = np.random.default_rng(0)
    groups, X = np.repeat(np.arange(15), 6), rng.normal(size=(90, 2))
    coef = rng.normal(size=(15, 3)) @ np.diag([1, 0.5, 0.7])
    y = coef[groups, 0] + (X * coef[groups, 1:]).sum(axis=1) + rng.normal(size=90)
    fit = eb.LinearEB(kind).fit(X, y, groups=groups)
    profile = profile_of(fit)
    asked = [(None, 0.0), (Held("mean", first=1), 0.3), (Held("shape"), 0.9)]
    asked += [(Held("spread", 0, 1), 0.6)]
    asked += [(Held("correlation", 0, 0, 2), 0.3)] if kind == "full" else []
    for held, value in asked:
        start = profile.best[1] if held is None else profile._inside(held, profile.best[1])
        start = start + 0.1 * rng.normal(size=len(start))
        slope = profile._at(held, value, start)[1]
        moves = 1e-6 * np.eye(len(start))
        numeric = [
            (profile._at(held, value, start + e)[0] - profile._at(held, value, start - e)[0]) / 2e-6
            for e in moves
        ]
        np.testing.assert_allclose(slope, numeric, rtol=1e-4, atol=1e-4)
        if held is not None and held.kind != "mean":
            point = profile._in_order(held, profile._whole(held, value, start)[0])
            assert profile._range(held, point)[0] == pytest.approx(value)


def test_the_smallest_deviance_is_that_of_the_fit():
    fit = fit_of("sleepstudy_ml")
    own, shaken = mixed_fit(fit.estimator_), profile_of(fit.estimator_)
    found = shaken.least(None, 0.0, shaken.best[1] * 1.3 + 0.1)[1]
    for G, L in zip(own.covariances, shaken._roots(found, None), strict=True):
        np.testing.assert_allclose(L @ L.T, G, rtol=1e-3, atol=1e-3 * np.diag(G).max())


def test_a_spread_that_may_be_zero_has_an_interval_from_zero():
    rng = np.random.default_rng(3)
    rows = pd.DataFrame({"g": np.repeat(np.arange(12), 4), "y": rng.normal(size=48)})
    fit = eb.from_formula("y ~ 1 + (1 | g)", rows, eb.LinearEB())
    found = fit.confint(method="profile").set_index("term")
    assert found.loc["sd__intercept", "conf.low"] == 0
    assert 0 < found.loc["sd__intercept", "conf.high"] < 1


def test_draws_are_of_the_fit():
    """Sums of squares of the rest over the noise are chi-squared: false alarm 1 in 1,000."""
    fit = mixed_fit(fit_of("gaps").estimator_)
    draw = drawn(fit, np.random.default_rng(0))
    rest = np.array([(draw()[:, -1, -1] ** 2).sum() / fit.noise for _ in range(200)])
    left = (fit.n - np.minimum(fit.n, 3)).sum() * 200
    assert chi2.ppf(0.0005, left) < rest.sum() < chi2.ppf(0.9995, left)
    one = draw()
    np.testing.assert_allclose(
        np.einsum("nri,nrj->nij", one[:, :, :-1], one[:, :, :-1]),
        np.einsum("nri,nrj->nij", fit.rows[:, :, :-1], fit.rows[:, :, :-1]),
        atol=1e-8 * np.abs(fit.rows).max() ** 2,
    )


def test_bootstrap_agrees_with_the_profile_where_both_are_exact():
    """Of many rows, the noise has a known interval; 400 draws find its ends to a tenth of it."""
    fit = fit_of("radon")
    found = fit.confint(method="bootstrap", n_boot=400).set_index("term")
    profile = fit.confint(method="profile").set_index("term")
    for term in ("sd__Observation", "floor", "log_uranium"):
        width = profile.loc[term, "conf.high"] - profile.loc[term, "conf.low"]
        for end in ("conf.low", "conf.high"):
            assert abs(found.loc[term, end] - profile.loc[term, end]) < 0.2 * width
    again = fit.confint(method="bootstrap", n_boot=400).set_index("term")
    pd.testing.assert_frame_equal(found, again)


def test_what_cannot_be_is_refused():
    fit = fit_of("sleepstudy")
    with pytest.raises(ValueError, match="method must be"):
        fit.confint(method="boot")
    with pytest.raises(ValueError, match="a level must lie"):
        fit.confint(95, method="profile")
    with pytest.raises(ValueError, match="n_boot must be"):
        fit.confint(method="bootstrap", n_boot=1)
    rows = data_of("sleepstudy")
    with pytest.warns(ConvergenceWarning):
        descent = eb.LinearEB("spherical", solver="gradient", n_steps=5).fit(
            rows[["Days"]], rows["Reaction"], groups=rows["Subject"]
        )
    with pytest.raises(ValueError, match="gradient descent has no likelihood"):
        descent.confint(method="profile")


@pytest.mark.parametrize("seed", range(6))
def test_few_groups_whose_spread_is_hardly_known(seed):
    """Where a spread of zero is likeliest for some values of the noise: beside a dense search."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(8), rng.integers(2, 9, 8))
    x = rng.normal(size=8)[groups]
    y = 0.5 * x + rng.normal(0, 0.6, 8)[groups] + rng.normal(size=len(groups))
    fit = eb.LinearEB(varying=["intercept"]).fit(x[:, None], y, groups=groups)
    found = fit.confint(method="profile").set_index("term")
    X, same = np.column_stack([np.ones(len(x)), x]), np.equal.outer(groups, groups)

    def deviance(noise, spread):
        V = noise**2 * np.eye(len(x)) + spread**2 * same
        left = y - X @ np.linalg.solve(X.T @ np.linalg.solve(V, X), X.T @ np.linalg.solve(V, y))
        return np.linalg.slogdet(V)[1] + left @ np.linalg.solve(V, left)

    def profile(noise):
        return minimize_scalar(lambda s: deviance(noise, s), bounds=(0, 5), method="bounded").fun

    best = minimize_scalar(profile, bounds=(0.3, 3), method="bounded").fun
    for end in ("conf.low", "conf.high"):
        above = profile(found.loc["sd__Observation", end]) - best
        assert above == pytest.approx(chi2.ppf(0.95, 1), abs=1e-3), "what bounded searches leave"


def six_subjects():
    rows = data_of("sleepstudy")
    return rows[rows["Subject"].isin(np.unique(rows["Subject"])[:6])]


def test_a_correlation_is_not_that_of_the_opposite_sign():
    """The deviance at -1 is 7.06, by Nelder-Mead; the search crossed to +1, and had 0.66 there."""
    fit = eb.from_formula("Reaction ~ Days + (1 + Days | Subject)", six_subjects())
    rows = fit.confint(method="profile").set_index("term")
    deviance, own = profile_of(fit.estimator_), mixed_fit(fit.estimator_)
    held = Held("correlation", 0, 0, 1)

    def of(parameters, rho):
        spread = np.exp(parameters[:2]) * np.sqrt(np.diag(deviance.criterion.levels[0].typical))
        G = np.outer(spread, spread) * np.array([[1, rho], [rho, 1]])
        sums = own.sums([G], np.exp(parameters[2]) * own.noise)
        inner, cross = sums.inner[:-1, :-1], sums.inner[:-1, -1]
        return sums.log_det + sums.inner[-1, -1] - cross @ np.linalg.solve(inner, cross)

    for rho in (-1 + 1e-10, -0.9, 0.5, 1 - 1e-10):
        starts = np.random.default_rng(0).normal(size=(4, 3))
        searched = [minimize(of, x, (rho,), method="Nelder-Mead", tol=1e-8).fun for x in starts]
        assert deviance.profile(held, rho)[0] == pytest.approx(min(searched), abs=1e-4)
    low, high = rows.loc["cor__intercept.Days", ["conf.low", "conf.high"]]
    excess = deviance.profile(held, low)[0] - deviance.best[0]
    assert excess == pytest.approx(chi2.ppf(0.95, 1), abs=1e-3)
    assert high == 1.0


@pytest.mark.parametrize("seed", range(8))
def test_ends_are_where_the_deviance_says(seed):
    """Of few groups: the smallest deviance at an end is the limit, or the end is a bound."""
    rng = np.random.default_rng(seed)
    m = rng.integers(5, 9)
    groups = np.repeat(np.arange(m), rng.choice([2, 3, 5, 10], m))
    x, noise = rng.normal(size=len(groups)), rng.normal(size=len(groups))
    effects = rng.normal(size=(m, 2)) * rng.choice([0, 0.7], 2)
    y = 1 + x + effects[groups, 0] + x * effects[groups, 1] + noise
    labels = [groups // 3, groups] if seed % 4 == 3 else groups
    kind = ("full", "diag", "full", "spherical")[seed % 4]
    deviance = profile_of(eb.LinearEB(kind).fit(x[:, None], y, groups=labels))
    limit = chi2.ppf(0.95, 1)
    for held in filter(None, deviance.every()):
        for end in deviance.interval(held, np.sqrt(limit)):
            at_bound = end == 0 or (held.kind == "correlation" and abs(end) == 1)
            value = np.clip(end, -NEARLY_ONE, NEARLY_ONE) if held.kind == "correlation" else end
            deep, found = deviance.profile(held, value)
            starts = [found, *deviance._restarts(held, value, found)]
            starts += [found + rng.normal(size=len(found)) for _ in range(3)]
            deep = min(deviance.profile(held, value, start)[0] for start in starts)
            excess = deep - deviance.best[0]
            assert excess <= limit + 2e-3 if at_bound else abs(excess - limit) < 2e-3


def test_a_profile_that_is_above_its_limit_at_the_centre_ends_there():
    """As where classes are separated, and a search stops short: it was a ValueError of SciPy."""
    assert profile_end(lambda x: 1.0 + x, 0.5, np.inf, 0.1) == 0.5


@pytest.mark.parametrize(
    ("form", "family"),
    [
        ("y ~ x + (1 + x | g)", "gaussian"),
        ("y ~ x + (1 + x | g)", "binomial"),
        ("y ~ x + (1 + x | g/h)", "gaussian"),
        ("y ~ x + (1 + x | g) + (1 | h)", "gaussian"),
        ("y ~ x + (1 + x | g) + (1 | h)", "ordinal"),
    ],
)
@pytest.mark.parametrize("far", [300.0, 1e5])
def test_covariates_far_from_zero_have_the_profiles_of_centred_ones(form, family, far):
    """But for the intercept, which is of another point; ends are found to 1e-6 of a last step."""
    rng = np.random.default_rng(2)
    rows = pd.DataFrame({"g": rng.integers(0, 8, 160), "h": rng.integers(0, 4, 160)})
    x = rng.normal(size=160)
    own = (rng.normal(size=(8, 2)) * [1, 0.7])[rows["g"]]
    predictor = 0.3 + 0.5 * x + own[:, 0] + own[:, 1] * x + rng.normal(size=4)[rows["h"]]
    noisy = predictor + rng.normal(size=160)
    responses = {
        "gaussian": noisy,
        "binomial": noisy > 0,
        "ordinal": np.digitize(noisy, [-1, 1]) + 1,
    }
    rows = rows.assign(y=responses[family] * 1)
    ends = []
    for at in (0.0, far):
        found = eb.from_formula(form, rows.assign(x=x + at), family=family)
        found = found.confint(method="profile")
        here = found[~found["term"].str.contains("intercept|[|]")]
        ends.append(here[["conf.low", "conf.high"]].to_numpy())
    assert len(ends[0]) >= 2
    np.testing.assert_allclose(ends[1] - ends[0], 0.0, atol=1e-4 * np.ptp(ends[0], axis=1).min())
