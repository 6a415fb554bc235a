"""Binomial and Poisson rows of crossed factors: beside glmer, and what must hold of them."""

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import poisson
from scipy.stats import t as student
from sklearn.exceptions import ConvergenceWarning

import ebfed as eb
from ebfed.priors import IdentificationWarning
from ebfed.regression.numerics import crossed_search

REFERENCE = Path(__file__).parents[1] / "reference"
FIGURES = pd.read_csv(REFERENCE / "glmer_crossed.csv")
EFFECTS = pd.read_csv(REFERENCE / "glmer_crossed_effects.csv")
YEAR = "TICKS ~ C(YEAR) + height + (1 | BROOD) + (1 | LOCATION)"
MODELS = {
    "verbagg": (
        "r2 ~ anger + Gender + btype + situ + (1 | id) + (1 | item)",
        "verbagg.csv.gz",
        "binomial",
    ),
    "grouseticks": (f"{YEAR} + (1 | INDEX)", "grouseticks.csv", "poisson"),
    "grouseticks_two": (YEAR, "grouseticks.csv", "poisson"),
    "insteval_sixth": (
        "high ~ service + (1 | s) + (1 | d)",
        "insteval_sixth.csv.gz",
        "binomial",
    ),
    "insteval_cells": (
        "cbind(won, trials=n) ~ service + (1 | d) + (1 | dept)",
        "insteval_cells.csv",
        "binomial",
    ),
}


def fit_of(case):
    """Fit the model of a case."""
    formula, file, family = MODELS[case]
    rows = pd.read_csv(REFERENCE / file)
    if family == "poisson":
        rows = rows.assign(INDEX=np.arange(1, len(rows) + 1), height=rows["cHEIGHT"] / 100)
    return eb.from_formula(formula, rows, family=family)


@pytest.mark.parametrize("case", MODELS)
def test_figures_are_those_of_glmer(case):
    """Its optimisers stop where the criterion is flat; its errors are differences of that.

    Its criterion is off by 5e-5 itself, see the dense matrices below.
    """
    fit, told = fit_of(case), FIGURES[FIGURES["model"] == case]
    criterion = told.loc[told["kind"] == "criterion", "value"].item()
    assert fit.converged_
    assert fit.criterion_ == pytest.approx(criterion, abs=1e-4)
    fixed, found = told[told["kind"] == "fixed"], fit.tidy("fixed")
    errors = fixed["std.error"].astype(float).to_numpy()
    assert np.all(np.abs(found["estimate"] - fixed["value"].to_numpy()) < 1e-4 * errors)
    np.testing.assert_allclose(found["std.error"], errors, rtol=1e-3)
    spreads = fit.tidy("ran_pars").set_index("group")["estimate"]
    sds = told[told["kind"] == "sd"].set_index("term")["value"]
    assert set(spreads.index) == set(sds.index)
    np.testing.assert_allclose(spreads[sds.index], sds, rtol=1e-3)


@pytest.mark.parametrize("case", MODELS)
def test_effects_are_those_of_glmer(case):
    """In units of their standard deviations, which agree to 1e-3."""
    fit, told = fit_of(case), EFFECTS[EFFECTS["model"] == case]
    for factor, expected in told.groupby("factor"):
        found = fit.ranef(factor)
        found.index = found.iloc[:, 0].astype(str)
        found = found.loc[expected["level"].astype(str)]
        np.testing.assert_allclose(found["std.error"], expected["sd"], rtol=1e-3)
        away = found["estimate"].to_numpy() - expected["value"].to_numpy()
        assert np.all(np.abs(away) < 2e-3 * expected["sd"].to_numpy())


def counts(seed=0, n=400):
    """Counts of two factors with exposures, and a column."""
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame(rng.integers(0, (25, 9), (n, 2)), columns=["a", "b"])
    rows["x"], rows["e"] = rng.normal(size=n), rng.uniform(0.5, 3, n)
    rate = np.exp(0.3 * rows["x"] + rng.normal(0, 0.6, 25)[rows["a"]])
    rate *= np.exp(rng.normal(0, 0.4, 9)[rows["b"]])
    rows["y"] = rng.poisson(rate * rows["e"])
    return rows


def test_the_criterion_is_that_of_dense_matrices():
    """Three factors, one of them with a level of each row; an exact mode, and its determinant."""
    rows, rng = counts(2).assign(own=np.arange(400)), np.random.default_rng(2)
    rows["y"] = rng.poisson(rows["y"] * np.exp(rng.normal(0, 0.7, 400)))
    formula = "y ~ x + offset(log(e)) + (1 | a) + (1 | b) + (1 | own)"
    fit = eb.from_formula(formula, rows, family="poisson")
    X = np.column_stack([np.ones(400), rows["x"]])
    Z = [pd.get_dummies(rows[name]) * v**0.5 for name, v in fit.variances_.items()]
    Z, y, offset = np.column_stack(Z), rows["y"].to_numpy(float), np.log(rows["e"].to_numpy())

    def criterion(scale, beta):
        scaled = Z * np.repeat(scale, [25, 9, 400])
        effects = np.zeros(434)
        for _ in range(30):
            eta = X @ beta + offset + scaled @ effects
            bend = np.eye(434) + scaled.T @ (np.exp(eta)[:, None] * scaled)
            effects += np.linalg.solve(bend, scaled.T @ (y - np.exp(eta)) - effects)
        found = poisson(np.exp(eta)).logpmf(y).sum()
        return -2 * found + effects @ effects + np.linalg.slogdet(bend)[1]

    best = criterion(np.ones(3), fit.mean_)
    assert fit.criterion_ == pytest.approx(best, rel=1e-10)
    for j in range(3):
        for factor in (0.97, 1.03):
            assert criterion(np.where(np.arange(3) == j, factor, 1.0), fit.mean_) > best
    for move in 0.05 * np.eye(2):
        assert min(criterion(np.ones(3), fit.mean_ + s * move) for s in (-1, 1)) > best


def test_a_weight_is_a_number_of_equal_rows():
    rows = counts()
    twice = pd.concat([rows, rows.head(100)])
    weight = np.where(np.arange(400) < 100, 2.0, 1.0)
    est = eb.CrossedEB(family="poisson")
    given = {"sample_weight": weight, "offset": np.log(rows["e"])}
    one = est.fit(rows[["x"]], rows["y"], groups=rows[["a", "b"]], **given)
    two = eb.CrossedEB(family="poisson").fit(
        twice[["x"]], twice["y"], groups=twice[["a", "b"]], offset=np.log(twice["e"])
    )
    assert one.criterion_ == pytest.approx(two.criterion_, rel=1e-9)
    np.testing.assert_allclose(one.mean_, two.mean_, rtol=1e-6)
    np.testing.assert_allclose(one.posterior("b").sd, two.posterior("b").sd, rtol=1e-6)


def test_beside_a_factor_without_effect_the_other_is_as_alone():
    """Of 360 trials of a level Laplace's method is near to quadrature."""
    rng = np.random.default_rng(3)
    a, b = (each.ravel() for each in np.meshgrid(np.arange(40), np.arange(6), indexing="ij"))
    won = np.rint(60 / (1 + np.exp(-rng.normal(0, 0.8, 40))))[a]
    rows = pd.DataFrame({"won": won, "n": 60, "a": a, "b": b})
    fit = eb.from_formula("cbind(won, trials=n) ~ 1 + (1 | a) + (1 | b)", rows)
    assert fit.variances_["b"] == 0
    formula = "cbind(won, trials=n) ~ 1 + (1 | a)"
    alone = eb.from_formula(formula, rows, eb.GeneralizedEB("binomial"))
    assert fit.mean_[0] == pytest.approx(alone.mean_[0], abs=1e-3)
    assert fit.variances_["a"] == pytest.approx(alone.covariance_[0, 0], rel=2e-3)


def test_predictions_average_over_what_is_not_known():
    rows = counts()
    fit = eb.from_formula("y ~ x + offset(log(e)) + (1 | a) + (1 | b)", rows, family="poisson")
    known = fit.predict(rows)
    assert known.sum() == pytest.approx(rows["y"].sum(), rel=0.05)
    new = fit.predict(rows.head(3).assign(a=77, b=99))
    spread = sum(fit.variances_.values())
    fixed = np.exp(fit.mean_[0] + fit.mean_[1] * rows["x"][:3]) * rows["e"][:3]
    assert np.all(new > fixed * np.exp(spread / 2))
    low, high = fit.predict_interval(rows, level=0.9)
    assert np.mean((low <= rows["y"]) & (rows["y"] <= high)) > 0.88
    twin = pickle.loads(pickle.dumps(fit))
    np.testing.assert_array_equal(twin.predict(rows), known)
    assert "Laplace" in str(fit.summary())


def test_tests_are_by_t_and_those_of_glmer_by_z():
    rows = counts().assign(kind=lambda rows: np.array(list("uvw"))[rows["b"] % 3])
    fit = eb.from_formula("y ~ x + kind + (1 | a) + (1 | b)", rows, family="poisson")
    found, plain, tidy = fit.tests(), fit.tests(ddf="asymptotic"), fit.tidy("fixed", conf_int=True)
    assert np.isinf(plain["df"]).all()
    np.testing.assert_array_equal(plain["std.error"], fit.tidy("fixed")["std.error"])
    np.testing.assert_array_equal(found["std.error"], tidy["std.error"])
    assert (found["std.error"] > plain["std.error"]).all()
    # kinds are three of nine levels each
    assert found["df"].iloc[[2, 3]].between(4, 8).all()
    reach = student(found["df"]).ppf(0.975) * found["std.error"]
    for ends in (fit.confint(), tidy):
        np.testing.assert_allclose(ends["conf.high"], tidy["estimate"] + reach, rtol=1e-9)
    by_z = fit.confint(ddf="asymptotic")
    np.testing.assert_allclose(
        by_z["conf.high"], tidy["estimate"] + 1.959964 * plain["std.error"], rtol=1e-6
    )
    terms = fit.tests(type="III").set_index("term")
    assert 4 < terms.loc["kind", "den.df"] < 8
    means = fit.margins("kind").frame()
    assert (means["df"] < 20).all()
    assert np.isinf(fit.margins("kind", ddf="asymptotic").frame()["df"]).all()
    with pytest.raises(ValueError, match="'asymptotic' for CrossedEB of poisson rows"):
        fit.tests(ddf="kenward-roger")


@pytest.mark.parametrize(
    ("family", "change", "message"),
    [
        ("poisson", {"y": np.full(400, 0.5)}, "y must be counts"),
        ("poisson", {"y": np.zeros(400)}, "y must vary; it is 0"),
        ("binomial", {"y": np.ones(400)}, "y must vary; it is 1"),
        ("binomial", {"y": np.full(400, 2.0)}, "y must be 0 or 1"),
        ("binomial", {"y": np.full(400, 2.0), "trials": np.ones(400)}, "at most trials"),
        ("poisson", {"trials": np.ones(400)}, "trials= is for family='binomial'"),
        ("gamma", {}, "y must lie between"),
        ("normal", {}, "family must be"),
    ],
)
def test_bad_rows_are_refused(family, change, message):
    rows = counts()
    options = {"y": rows["y"], "groups": rows[["a", "b"]]} | change
    with pytest.raises(ValueError, match=message):
        eb.CrossedEB(family=family).fit(rows[["x"]], **options)


def test_separated_rows_are_noted():
    rows = counts(1)
    y = (rows["x"] > 0).astype(float)
    with (
        pytest.warns(ConvergenceWarning, match="did not converge"),
        pytest.warns(IdentificationWarning, match="classes are separated without error"),
    ):
        fit = eb.CrossedEB(family="binomial").fit(rows[["x"]], y, groups=rows[["a", "b"]])
    assert not fit.converged_
    assert any("are separated without error (of 'x')" in note for note in fit.notes_)


def test_an_unfinished_search_of_gaussian_rows_is_noted(monkeypatch):
    monkeypatch.setattr(crossed_search, "TOLERANCE", np.inf)
    monkeypatch.setattr(crossed_search, "LEFT", 0.0)
    rows = counts(1)
    with pytest.warns(ConvergenceWarning, match="did not converge"):
        fit = eb.CrossedEB().fit(rows[["x"]], rows["y"], groups=rows[["a", "b"]])
    assert not fit.converged_
    assert (
        "The search for the variances did not converge; the fit is where it stopped." in fit.notes_
    )
