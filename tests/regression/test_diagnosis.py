"""Diagnostics of estimators: rows in their order, exact distributions, and figures of lme4."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import ebfed as eb

REFERENCE = Path(__file__).parents[1] / "reference"
SLEEP = pd.read_csv(REFERENCE / "sleepstudy.csv")


def test_leverages_and_distances_of_rows_are_those_of_lme4():
    # hatvalues, cooks.distance and residuals / sigma / sqrt(1 - h) of the first rows, lme4 1.1.31
    fit = eb.from_formula("Reaction ~ Days + (Days | Subject)", SLEEP)
    found = fit.augment()
    np.testing.assert_allclose(found[".hat"][:3], [0.2293040, 0.1697300, 0.1268237], rtol=1e-4)
    expected = [0.004963133, 0.040206202, 0.226099185]
    np.testing.assert_allclose(found[".cooksd"][:3], expected, rtol=1e-4)
    expected = [-0.1826538, -0.6271796, -1.7644739]
    np.testing.assert_allclose(fit.residuals(kind="standardized")[:3], expected, rtol=1e-4)
    assert ".hat" not in fit.augment(SLEEP)


@pytest.mark.parametrize("more", ["", " + (1 | month)"])
def test_distances_are_over_the_coefficients_of_the_mean(more):
    """As of lme4, a slope that has no mean is none; and so of groups as of crossed factors."""
    rows = SLEEP.assign(month=np.arange(len(SLEEP)) % 7)
    fit = eb.from_formula("Reaction ~ 1 + (Days | Subject)" + more, rows)
    found, hat = fit.augment(), fit.diagnostics().leverage()
    pearson = fit.residuals(kind="pearson")
    np.testing.assert_allclose(found[".cooksd"], (pearson / (1 - hat)) ** 2 * hat, rtol=1e-12)


def test_estimators_and_formulas_agree_in_any_order():
    fit = eb.from_formula("Reaction ~ Days + (1 | Subject)", SLEEP)
    est = eb.LinearEB(varying=["intercept"]).fit(
        SLEEP[["Days", "Reaction", "Subject"]], "Reaction", groups="Subject"
    )
    mixed = SLEEP.sample(frac=1, random_state=0)
    for kind in ("response", "pearson", "standardized"):
        here = est.residuals(mixed[["Days"]], mixed["Reaction"], groups=mixed["Subject"], kind=kind)
        expected = fit.residuals(kind=kind)[mixed.index]
        np.testing.assert_allclose(here, expected, atol=1e-6, rtol=1e-6)
    augmented = est.augment(mixed[["Days"]], mixed["Reaction"], groups=mixed["Subject"])
    here = est.residuals(mixed[["Days"]], mixed["Reaction"], groups=mixed["Subject"])
    np.testing.assert_allclose(here, augmented[".resid"], atol=1e-9)


def test_rows_of_counts_keep_their_order():
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 15, 200)
    x = rng.normal(size=(200, 1))
    offset = rng.normal(size=200)
    y = rng.poisson(np.exp(0.3 * x[:, 0] + offset))
    est = eb.GeneralizedEB("poisson", varying=["intercept"])
    est.fit(x, y, groups=groups, offset=offset)
    found = est.diagnostics(x, y, groups=groups, offset=offset)
    np.testing.assert_array_equal(found.response, y)
    np.testing.assert_allclose(found.fitted, est.predict(x, groups=groups, offset=offset))
    # the same rows smoothed again are those of the fit
    mean, _ = found.smoothed(y.astype(float))
    np.testing.assert_allclose(mean, found.predictor, atol=1e-8)
    one = est.residuals(x, y, groups=groups, offset=offset, kind="pearson")
    weighed = {"sample_weight": np.full(200, 2.0), "offset": offset, "groups": groups}
    two = est.residuals(x, y, kind="pearson", **weighed)
    np.testing.assert_allclose(two, np.sqrt(2) * one)
    with pytest.raises(ValueError, match="repeat a row"):
        est.residuals(x, y, kind="quantile", **weighed)


@pytest.mark.parametrize("crossed", [False, True])
def test_conditional_quantile_residuals_of_normal_rows_are_exact(crossed):
    # Their covariance over draws is that of the noise, less what the fit leaves of it: with the
    # posterior's covariance added, 1 for each row. 400 draws of 120 rows: the mean square has a
    # standard error below 0.02, and 0.1 is five of them.
    rng = np.random.default_rng(1)
    a, b = np.repeat(np.arange(12), 10), np.tile(np.arange(10), 12)
    frame = pd.DataFrame({"a": a, "b": b, "x": rng.normal(size=120)})
    frame["y"] = rng.normal(size=12)[a] + rng.normal(size=10)[b] + rng.normal(size=120)
    if not crossed:
        frame["y"] -= rng.normal(size=10)[b]
    bars = "(1 | a) + (1 | b)" if crossed else "(1 | a)"
    fit = eb.from_formula(f"y ~ x + {bars}", frame)
    found = fit.diagnostics()
    generator = np.random.default_rng(2)
    draws = np.array([found.drawn(generator) for _ in range(400)])
    np.testing.assert_allclose(draws.mean(axis=0), found.fitted, atol=0.2)
    leverage = draws.var(axis=0) / fit.noise_variance_
    np.testing.assert_allclose(leverage.mean(), found.leverage().mean(), rtol=0.1)
    renewed = np.array([found.renewed(generator) for _ in range(400)])
    np.testing.assert_allclose(renewed.var(axis=0).mean(), found.unknown[1].mean(), rtol=0.2)


def test_levels_have_new_effects_of_their_own():
    oats = pd.read_csv(REFERENCE / "oats.csv")
    fit = eb.from_formula("yield ~ nitro + (1 | block/variety)", oats)
    found = fit.diagnostics()
    rng = np.random.default_rng(0)
    away = np.array([found.renewed(rng) - found.expected for _ in range(2000)])
    block = oats["block"] == oats["block"][0]
    plot = block & (oats["variety"] == oats["variety"][0])
    i, j = np.flatnonzero(plot)[:2]
    k = np.flatnonzero(block & ~plot)[0]
    np.testing.assert_allclose(away[:, i], away[:, j])
    above = fit.covariance_above_["block"][0, 0]
    # 2,000 draws: a covariance has a standard error of some 3 % of the variances
    np.testing.assert_allclose(np.cov(away[:, i], away[:, k])[0, 1], above, rtol=0.25)
    with pytest.raises(ValueError, match="groups"):
        fit.estimator_.diagnostics(np.ones((3, 1)), np.ones(3), groups=[1, 2])


@pytest.mark.parametrize("levels", [False, True])
def test_residuals_are_over_the_noise_of_each_row(levels):
    """Against matrices of all rows: fitted values are ``H y``, and leverages the diagonal of H."""
    rng = np.random.default_rng(0)
    g, x, w = np.repeat(np.arange(12), 8), rng.normal(size=96), rng.uniform(0.5, 2, 96)
    kind = np.where(rng.random(96) < 0.4, "b", "a")
    y = 1 + x + rng.normal(size=12)[g] + rng.normal(size=96) * np.where(kind == "b", 3, 1)
    rows = pd.DataFrame({"top": g // 3, "g": g, "x": x, "kind": kind, "w": w, "y": y})
    bar = "top/g" if levels else "g"
    fit = eb.from_formula(f"y ~ x + (1 | {bar})", rows, dispersion="~ kind", weights="w")
    noise = np.array([fit.estimator_.noise_variances_[each] for each in kind]) / w
    X, V = np.column_stack([np.ones(96), x]), np.diag(noise)
    V = V + fit.covariance_[0, 0] * (g[:, None] == g)
    if levels:
        V = V + fit.covariance_above_["top"][0, 0] * (g[:, None] // 3 == g // 3)
    inverse = np.linalg.inv(V)
    P = inverse - inverse @ X @ np.linalg.solve(X.T @ inverse @ X, X.T @ inverse)
    H = np.eye(96) - noise[:, None] * P
    h, away = np.diag(H), y - H @ y
    found = fit.augment()
    np.testing.assert_allclose(found[".hat"], h, rtol=1e-6)
    np.testing.assert_allclose(found[".resid"], away, atol=1e-8)
    np.testing.assert_allclose(fit.residuals(kind="pearson"), away / np.sqrt(noise), atol=1e-8)
    standardized = away / np.sqrt(noise * (1 - h))
    np.testing.assert_allclose(fit.residuals(kind="standardized"), standardized, atol=1e-6)
    np.testing.assert_allclose(
        found[".cooksd"], standardized**2 * h / (1 - h) / 2, rtol=1e-6, atol=1e-12
    )
    est, back = fit.estimator_, rows[::-1]
    options = {"groups": back[bar.split("/")], "sample_weight": w[::-1]}
    other = est.residuals(back[["x"]], y[::-1], kind="pearson", dispersion=kind[::-1], **options)
    np.testing.assert_allclose(other, (away / np.sqrt(noise))[::-1], atol=1e-8)
    with pytest.raises(ValueError, match="dispersion= must give the level of each row"):
        est.residuals(back[["x"]], y[::-1], **options)


def test_rows_that_were_excluded_have_no_residual():
    rows = SLEEP.assign(Reaction=SLEEP["Reaction"].where(SLEEP.index % 50 != 7))
    model = "Reaction ~ Days + (Days | Subject)"
    fit = eb.from_formula(model, rows, subset="Days > 0", na_action="exclude")
    other = eb.from_formula(model, rows, subset="Days > 0", na_action="drop")
    found, expected = fit.augment(), other.augment()
    assert len(found) == 162
    left = found["Reaction"].isna().to_numpy()
    for name in (".resid", ".hat", ".cooksd"):
        assert found[name].isna().equals(found["Reaction"].isna())
        np.testing.assert_allclose(found[name][~left], expected[name])
    values = fit.residuals(kind="quantile")
    np.testing.assert_array_equal(np.isnan(values), left)
    np.testing.assert_array_equal(values[~left], other.residuals(kind="quantile"))


def crossed_counts(family, seed=0):
    """Rows of two factors, with offsets and trials, and options of `CrossedEB`."""
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame(rng.integers(0, (30, 8), (400, 2)), columns=["a", "b"])
    rows["x"], rows["e"] = rng.normal(size=400), rng.normal(0, 0.5, 400)
    z = 0.4 * rows["x"] + rng.normal(0, 0.6, 30)[rows["a"]] + rng.normal(0, 0.5, 8)[rows["b"]]
    options = {"offset": "e"}
    if family == "poisson":
        rows["y"] = rng.poisson(np.exp(z + rows["e"])).astype(float)
    else:
        rows["n"] = rng.integers(1, 9, 400)
        rows["y"] = rng.binomial(rows["n"], 1 / (1 + np.exp(-z - rows["e"]))).astype(float)
        options["trials"] = "n"
    return rows, options


@pytest.mark.parametrize("family", ["poisson", "binomial"])
def test_counts_of_crossed_factors(family):
    rows, options = crossed_counts(family)
    options["groups"] = ["a", "b"]
    est = eb.CrossedEB(family=family).fit(rows, "y", **options)
    found = est.diagnostics(rows, "y", **options)
    trials = rows["n"].to_numpy() if family == "binomial" else np.ones(400)
    np.testing.assert_allclose(found.response, rows["y"] / trials)
    mean = est.predict(rows, groups=options["groups"], offset="e")
    np.testing.assert_allclose(found.fitted, mean)
    pearson = np.sqrt(trials) * (found.response - mean)
    pearson /= np.sqrt(mean * (1 - mean) if family == "binomial" else mean)
    np.testing.assert_allclose(found.residuals("pearson"), pearson)
    # the same rows smoothed again are those of the fit
    again, variance = found.smoothed(found.response)
    np.testing.assert_allclose(again, found.predictor, atol=1e-7)
    design, _, codes = est._placed(rows, ["a", "b"], "e")
    np.testing.assert_allclose(variance, est._fit.variance(design, codes), rtol=1e-6)
    # two tests at 0.001; the check below at 0.005
    for conditional in (True, False):
        residuals = found.residuals("quantile", conditional=conditional)
        assert stats.kstest(residuals, "norm").pvalue > 0.001
    assert found.overdispersion(n_simulations=199).p_value > 0.005
    # draws of linear predictors: 400 of 400 rows; a mean variance has an error of some 2 %
    rng = np.random.default_rng(1)
    draws = np.array([found.drawn(rng) for _ in range(400)])
    np.testing.assert_allclose(draws.mean(axis=0), found.predictor, atol=0.15)
    np.testing.assert_allclose(draws.var(axis=0).mean(), variance.mean(), rtol=0.15)
    with pytest.raises(ValueError, match="standardized residuals"):
        found.residuals("standardized")
    with pytest.raises(ValueError, match="repeat a row"):
        est.residuals(rows, "y", kind="quantile", **options, sample_weight=np.full(400, 2.0))


@pytest.mark.slow
def test_false_alarms_of_the_check_of_crossed_counts():
    """100 data sets at 5 %: 13 alarms or more have a chance of 0.15 %."""
    alarms = 0
    for seed in range(100):
        rows, options = crossed_counts("poisson", seed)
        options["groups"] = ["a", "b"]
        found = eb.CrossedEB(family="poisson").fit(rows, "y", **options)
        found = found.diagnostics(rows, "y", **options)
        alarms += found.overdispersion(n_simulations=99, random_state=seed).p_value <= 0.05
    assert alarms < 13, alarms


def test_leverages_of_crossed_factors_are_those_of_matrices_of_all_rows():
    rows, _ = crossed_counts("poisson")
    w = np.linspace(0.5, 2, 400)
    fit = eb.from_formula("y ~ x + (1 | a) + (1 | b)", rows, weights=w)
    noise = fit.noise_variance_ / w
    X, V = np.column_stack([np.ones(400), rows["x"]]), np.diag(noise)
    for name, variance in fit.variances_.items():
        own = rows[name].to_numpy()
        V = V + variance * (own[:, None] == own)
    inverse = np.linalg.inv(V)
    P = inverse - inverse @ X @ np.linalg.solve(X.T @ inverse @ X, X.T @ inverse)
    H, found = np.eye(400) - noise[:, None] * P, fit.augment()
    np.testing.assert_allclose(found[".hat"], np.diag(H), rtol=1e-8)
    np.testing.assert_allclose(found[".fitted"], H @ rows["y"], atol=1e-8)
    away = (rows["y"] - H @ rows["y"]) / np.sqrt(noise * (1 - np.diag(H)))
    np.testing.assert_allclose(fit.residuals(kind="standardized"), away, atol=1e-8)


def test_extra_variation_of_crossed_counts_is_found():
    rows, _ = crossed_counts("poisson")
    rows["y"] *= np.random.default_rng(0).choice([0.0, 1.0, 3.0], 400)
    fit = eb.from_formula("y ~ x + offset(e) + (1 | a) + (1 | b)", rows, family="poisson")
    assert fit.diagnostics().overdispersion(n_simulations=39).p_value == 1 / 40
    assert ".hat" not in fit.augment()


def test_rows_of_weight_zero_and_of_new_levels_have_residuals():
    rows, _ = crossed_counts("poisson")
    weight = (np.arange(400) % 7 > 0).astype(float)
    groups = ["a", "b"]
    fitted = {"groups": groups, "sample_weight": weight}
    for family in ("gaussian", "poisson"):
        est = eb.CrossedEB(family=family).fit(rows[["x", "y", "a", "b"]], "y", **fitted)
        found = est.diagnostics(rows, "y", **fitted)
        expected = rows["y"] - est.predict(rows, groups=groups)
        np.testing.assert_allclose(found.residuals(), expected)
        assert (found.residuals("pearson")[weight == 0] == 0).all()
        new = rows.assign(a=rows["a"] + 100)
        found = est.diagnostics(new, "y", groups=groups)
        assert np.isfinite(found.residuals("quantile")).all()
        alone = est.diagnostics(rows[["x"]], rows["y"])
        np.testing.assert_allclose(alone.predictor, alone.unknown[0])
        rng = np.random.default_rng(0)
        away = np.array([alone.renewed(rng) - alone.predictor for _ in range(200)])
        # 80,000 draws
        np.testing.assert_allclose(away.var(), alone.unknown[1][0], rtol=0.05)


def test_logistic_rows_are_binomial_ones():
    rng = np.random.default_rng(1)
    groups = rng.integers(0, 12, 150)
    x = rng.normal(size=(150, 1))
    y = np.where(rng.random(150) < stats.logistic.cdf(x[:, 0] + groups / 6 - 1), "yes", "no")
    ones = (y == "yes").astype(float)
    logistic = eb.LogisticEB(varying=["intercept"]).fit(x, y, groups=groups)
    binomial = eb.GeneralizedEB("binomial", varying=["intercept"]).fit(x, ones, groups=groups)
    found = logistic.diagnostics(x, y, groups=groups)
    np.testing.assert_allclose(found.fitted, logistic.predict_proba(x, groups=groups)[:, 1])
    for kind in ("response", "pearson", "deviance", "quantile"):
        for conditional in (True, False):
            one = logistic.residuals(x, y, groups=groups, kind=kind, conditional=conditional)
            other = binomial.residuals(x, ones, groups=groups, kind=kind, conditional=conditional)
            np.testing.assert_allclose(one, other, atol=1e-3)  # two searches for one maximum
    mean, _ = found.smoothed(ones)
    np.testing.assert_allclose(mean, found.predictor, atol=1e-6)
    weighed = logistic.residuals(x, y, groups=groups, sample_weight=np.full(150, 2), kind="pearson")
    one = logistic.residuals(x, y, groups=groups, kind="pearson")
    np.testing.assert_allclose(weighed, np.sqrt(2) * one)
    frame = pd.DataFrame({"g": groups, "x": x[:, 0], "y": ones})
    fit = eb.from_formula("y ~ x + (1 | g)", frame, family="binomial")
    np.testing.assert_allclose(fit.residuals(kind="pearson"), one, atol=1e-6)
    one, other = logistic.influence(), binomial.influence()
    np.testing.assert_allclose(one["cooksd"], other["cooksd"], atol=1e-3)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("model", ["y ~ x + (1 | g)", "y ~ x + (1 | g) + (1 | h)"])
def test_new_rows_of_a_fit_with_weights_have_weights(named, model):
    rng = np.random.default_rng(0)
    g = np.repeat(np.arange(15), 8)
    rows = pd.DataFrame({"g": g, "h": np.tile(np.arange(8), 15), "x": rng.normal(size=120)})
    rows["w"] = rng.integers(1, 5, 120) * 1.0
    rows["y"] = rows["x"] + rng.normal(size=15)[g] + rng.normal(size=120) / rows["w"] ** 0.5
    fit = eb.from_formula(model, rows, weights="w" if named else rows["w"].to_numpy())
    whole = rows if named else rows.rename(columns={"w": "(weights)"})
    for kind in ("pearson", "quantile"):
        found = fit.residuals(whole.iloc[:30], kind=kind)
        np.testing.assert_allclose(found, fit.residuals(kind=kind)[:30], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(
        fit.augment(whole.iloc[:30])[".resid"], fit.augment()[".resid"][:30], rtol=1e-10
    )
    if "h" not in model:
        again = fit.posterior(whole)
        np.testing.assert_allclose(again.mean, fit.posterior().mean, rtol=1e-8)
    error, lost = fit.predict(rows) - rows["y"], rows.drop(columns="w")
    centre = np.average(rows["y"], weights=rows["w"])
    left = np.average((rows["y"] - centre) ** 2, weights=rows["w"])
    expected = 1 - np.average(error**2, weights=rows["w"]) / left
    assert fit.score(whole) == pytest.approx(expected)
    message = "'w' is not a column" if named else r"must be in a column '\(weights\)'"
    with pytest.raises(ValueError, match=message):
        fit.residuals(lost)
    assert fit.score(lost) < 1
    assert len(fit.augment(lost)) == 120
