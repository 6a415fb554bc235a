"""Influence of levels of crossed factors: deletion against matrices of all rows, and refits."""

import numpy as np
import pandas as pd
import pytest

import ebfed as eb
from ebfed.inference.influence import cooks_distances


def crossed(seed=0, n=150):
    """Rows of three factors, one of them far from the others."""
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame(rng.integers(0, (12, 7, 3), (n, 3)), columns=["a", "b", "c"])
    rows["x"], rows["w"] = rng.normal(size=n), rng.uniform(0.5, 2, n)
    rows["y"] = rows["x"] + rng.normal(size=12)[rows["a"]] + rng.normal(size=7)[rows["b"]]
    rows["y"] += rng.normal(size=3)[rows["c"]] * rows["x"] + rng.normal(size=n)
    rows["y"] += 4 * (rows["b"] == 5) * (1 + rows["x"])
    return rows


MODELS = [
    "y ~ x + (1 | a) + (1 | b)",
    "y ~ x + (1 | a) + (1 | b) + (1 | c)",
    "y ~ x + (1 + x | a) + (1 + x || b) + (1 | c)",
    "y ~ 1 + (1 | a) + (1 | b)",
]


def covariance(fit, rows):
    """Covariance of the rows."""
    V = np.diag(fit.noise_variance_ / rows["w"].to_numpy())
    columns = np.column_stack([np.ones(len(rows)), rows["x"]])
    for name, own in fit.covariances_.items():
        Z, codes = columns[:, : len(own)], rows[name].to_numpy()
        V += (Z @ own @ Z.T) * (codes[:, None] == codes)
    return V


@pytest.mark.parametrize("model", MODELS)
def test_deletion_is_that_of_all_rows(model):
    rows = crossed()
    fit = eb.from_formula(model, rows, weights="w")
    X, y = np.column_stack([np.ones(150), rows["x"]])[:, : len(fit.mean_)], rows["y"].to_numpy()
    V = covariance(fit.estimator_, rows)
    for level in fit.estimator_.levels_:
        table, codes = fit.influence(level), rows[level].to_numpy()
        assert table["n"].tolist() == np.bincount(codes).tolist()
        changes = []
        for label in table[level]:
            kept = codes != label
            whitened = np.linalg.solve(V[np.ix_(kept, kept)], np.column_stack([X, y])[kept])
            products = X[kept].T @ whitened
            changes.append(fit.mean_ - np.linalg.solve(products[:, :-1], products[:, -1]))
        found = table[[f"dfbeta.{term}" for term in fit.terms_]].to_numpy()
        np.testing.assert_allclose(found, changes, rtol=1e-6, atol=1e-9)
        expected = cooks_distances(np.array(changes), fit.mean_covariance_)
        np.testing.assert_allclose(table["cooksd"], expected, rtol=1e-6)
    assert fit.influence("b")["cooksd"].argmax() == 5


@pytest.mark.parametrize("model", [MODELS[0], MODELS[2]])
def test_refits_leave_out_rows(model):
    rows = crossed()
    fit = eb.from_formula(model, rows, weights="w")
    table, held = fit.influence("b", refit=True), fit.influence("b")
    for j in (1, 5):
        other = eb.from_formula(model, rows[rows["b"] != j], weights="w")
        found = table.loc[j, ["dfbeta.intercept", "dfbeta.x"]].to_numpy(float)
        np.testing.assert_allclose(found, fit.mean_ - other.mean_, atol=1e-5)
    assert np.corrcoef(held["cooksd"], table["cooksd"])[0, 1] > 0.9


def test_a_factor_without_variance():
    rows = crossed(1)
    rows["c"] = np.random.default_rng(0).integers(0, 5, 150)
    fit = eb.from_formula("y ~ x + (1 | a) + (1 | b) + (1 | c)", rows.assign(w=1.0))
    assert fit.estimator_.variances_["c"] == 0
    V = covariance(fit.estimator_, rows.assign(w=1.0))
    X, kept = np.column_stack([np.ones(150), rows["x"]]), rows["c"].to_numpy() != 2
    inverse = np.linalg.inv(V[np.ix_(kept, kept)])
    products = X[kept].T @ inverse @ np.column_stack([X, rows["y"]])[kept]
    expected = fit.mean_ - np.linalg.solve(products[:, :-1], products[:, -1])
    found = fit.influence("c").loc[2, ["dfbeta.intercept", "dfbeta.x"]].to_numpy(float)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_counts_are_fitted_again():
    rows = crossed(2)
    rows["n"] = np.random.default_rng(0).poisson(np.exp(0.2 * rows["y"] / rows["y"].std()))
    rows["log"] = np.log(rows["w"])
    model = "n ~ x + offset(log) + (1 | b) + (1 | c)"
    fit = eb.from_formula(model, rows, eb.CrossedEB(family="poisson"))
    table = fit.influence("c")
    other = eb.from_formula(model, rows[rows["c"] != 1], eb.CrossedEB(family="poisson"))
    found = table.loc[1, ["dfbeta.intercept", "dfbeta.x"]].to_numpy(float)
    np.testing.assert_allclose(found, fit.mean_ - other.mean_, atol=1e-5)


def test_a_level_that_identifies_a_coefficient_has_no_change():
    rows = crossed(3)
    rows["x"] = np.where(rows["a"] == 4, rows["x"], 0.0)
    fit = eb.from_formula(MODELS[0], rows)
    for refit in (False, True):
        table = fit.influence("a", refit=refit)
        assert np.isnan(table["dfbeta.x"][4])
        assert np.isfinite(table["dfbeta.x"].drop(4)).all()


def test_rows_are_those_of_the_fit(tmp_path):
    rows = crossed()
    est = eb.CrossedEB().fit(rows[["x", "a", "b"]], rows["y"], groups=["a", "b"])
    table = est.influence()
    assert table.columns.tolist() == ["a", "n", "cooksd", "dfbeta.intercept", "dfbeta.x"]
    est.save(tmp_path / "fit.json")
    with pytest.raises(ValueError, match="the rows of the fit are needed for leaving levels out"):
        eb.load_fit(tmp_path / "fit.json").influence()
    with pytest.raises(ValueError, match="level must be one of 'a', 'b'; got 'c'"):
        est.influence("c")
    fit = eb.from_formula("y ~ x + (1 | a) + (1 | b)", rows)
    assert len(eb.report.plot_influence(fit, level="b", ax=eb.report.new_axes()[0]).texts)
