"""Influence of groups: deletion against matrices of all rows, and against refits of lme4."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import ebfed as eb
from ebfed.inference.influence import changes_without, cooks_distances
from ebfed.regression.inferring import mixed_fit

REFERENCE = Path(__file__).parents[1] / "reference"
SLEEP = pd.read_csv(REFERENCE / "sleepstudy.csv")


def generalised(rows, response, V):
    """Coefficients of generalised least squares."""
    whitened = np.linalg.solve(V, np.column_stack([rows, response]))
    return np.linalg.solve(rows.T @ whitened[:, :-1], rows.T @ whitened[:, -1])


def test_deletion_is_that_of_all_rows():
    fit = eb.from_formula("Reaction ~ Days + (Days | Subject)", SLEEP)
    X, y = np.column_stack([np.ones(180), SLEEP["Days"]]), SLEEP["Reaction"].to_numpy()
    subject = SLEEP["Subject"].to_numpy()
    V = X @ fit.covariance_ @ X.T * (subject[:, None] == subject)
    V += fit.noise_variance_ * np.eye(180)
    table = fit.influence()
    for j in (0, 7, 17):
        kept = subject != table["Subject"][j]
        expected = fit.mean_ - generalised(X[kept], y[kept], V[np.ix_(kept, kept)])
        found = table.loc[j, ["dfbeta.intercept", "dfbeta.Days"]].to_numpy(float)
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("level", ["block", "variety"])
def test_deletion_of_groups_within_groups(level):
    oats = pd.read_csv(REFERENCE / "oats.csv")
    fit = eb.from_formula("yield ~ nitro + (1 | block/variety)", oats)
    X, y = np.column_stack([np.ones(len(oats)), oats["nitro"]]), oats["yield"].to_numpy()
    block = oats["block"].to_numpy()
    plot = (oats["block"] + oats["variety"]).to_numpy()
    V = fit.covariance_above_["block"][0, 0] * (block[:, None] == block)
    V = V + fit.covariance_[0, 0] * (plot[:, None] == plot) + fit.noise_variance_ * np.eye(len(y))
    table = fit.influence(level)
    assert table["n"].sum() == len(oats)
    for j in (0, len(table) - 1):
        here = block if level == "block" else plot
        label = table["block"][j] + ("" if level == "block" else table["variety"][j])
        kept = here != label
        expected = fit.mean_ - generalised(X[kept], y[kept], V[np.ix_(kept, kept)])
        found = table.loc[j, ["dfbeta.intercept", "dfbeta.nitro"]].to_numpy(float)
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_deletion_where_the_noise_has_levels():
    rng = np.random.default_rng(0)
    g, x, kind = np.repeat(np.arange(12), 8), rng.normal(size=96), rng.integers(0, 2, 96)
    kind[g == 2] = 2  # a level of one group
    y = 1 + x + rng.normal(size=12)[g] + rng.normal(size=96) * (1 + 2 * kind)
    rows = pd.DataFrame({"g": g, "x": x, "kind": kind, "y": y})
    fit = eb.from_formula("y ~ x + (1 | g)", rows, dispersion="~ kind")
    noise = np.array([fit.estimator_.noise_variances_[str(each)] for each in kind])
    X, V = np.column_stack([np.ones(96), x]), fit.covariance_[0, 0] * (g[:, None] == g)
    V = V + np.diag(noise)
    held, table = fit.influence(), fit.influence(refit=True)
    for j in (1, 2, 11):
        kept = g != j
        expected = fit.mean_ - generalised(X[kept], y[kept], V[np.ix_(kept, kept)])
        found = held.loc[j, ["dfbeta.intercept", "dfbeta.x"]].to_numpy(float)
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        other = eb.from_formula("y ~ x + (1 | g)", rows[kept], dispersion="~ kind")
        found = table.loc[j, ["dfbeta.intercept", "dfbeta.x"]].to_numpy(float)
        # searches that begin elsewhere end within 1e-8 of the criterion
        np.testing.assert_allclose(found, fit.mean_ - other.mean_, atol=1e-4)


@pytest.mark.parametrize("case", ["sleepstudy", "gaps"])
def test_refits_are_those_of_lme4(case):
    rows = SLEEP
    if case == "gaps":
        rows = rows.drop(index=range(0, len(rows), 5))
        late = rows["Subject"].isin([308, 335, 371]) & (rows["Days"] > 3)
        rows = rows[~late].reset_index(drop=True)
    fit = eb.from_formula("Reaction ~ Days + (Days | Subject)", rows)
    reference = pd.read_csv(REFERENCE / "inference_influence.csv")
    expected = reference.loc[reference["case"] == case, "cooks"].to_numpy()
    table = fit.influence(refit=True)
    # lme4 multiplies by (m - p) / m; both searches of a maximum leave some 1e-3 of the changes
    np.testing.assert_allclose(table["cooksd"] * 16 / 18, expected, rtol=5e-3, atol=1e-5)
    held = fit.influence()["cooksd"]
    assert np.corrcoef(held, table["cooksd"])[0, 1] > 0.9


def test_influence_of_counts_is_that_of_refits():
    rng = np.random.default_rng(0)
    groups, x = np.repeat(np.arange(10), 6), rng.normal(size=60)
    y = rng.poisson(np.exp(0.5 + 0.3 * x + (groups == 4) * 3))
    est = eb.GeneralizedEB("poisson", varying=["intercept"])
    fit = est.fit(x[:, None], y, groups=groups)
    table = fit.influence()
    kept = groups != 4
    other = eb.GeneralizedEB("poisson", varying=["intercept"])
    other.fit(x[kept, None], y[kept], groups=groups[kept])
    found = table.loc[4, ["dfbeta.intercept", "dfbeta.x0"]].to_numpy(float)
    np.testing.assert_allclose(found, fit.mean_ - other.mean_, atol=1e-6)
    assert table["cooksd"].argmax() == 4


def test_a_group_that_identifies_a_coefficient_has_no_change():
    x = np.zeros((20, 1))
    x[:4, 0] = np.arange(4)
    groups = np.repeat(np.arange(5), 4)
    rng = np.random.default_rng(0)
    y = rng.normal(size=5)[groups] + rng.normal(size=20)
    fit = eb.LinearEB(varying=["intercept"]).fit(x, y, groups=groups)
    changes = changes_without(mixed_fit(fit), 0)
    assert np.isnan(changes[0]).all()
    assert np.isfinite(changes[1:]).all()
    assert np.isnan(cooks_distances(changes, fit.mean_covariance_)[0])
    with pytest.raises(ValueError, match="level must be one of 'group'; got 'state'"):
        fit.influence("state")
