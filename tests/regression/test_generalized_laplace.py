"""More coefficients than quadrature can integrate over: Laplace's approximation, as glmer()'s."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import ebfed as eb

REFERENCE = Path(__file__).parents[1] / "reference"
LME4 = pd.read_csv(REFERENCE / "lme4_counts.csv", keep_default_na=False)
LME4["std_error"] = pd.to_numeric(LME4["std_error"])

RNG = np.random.default_rng(5)
M, EACH = 60, 30
GROUPS = np.repeat(np.arange(M), EACH)
N = M * EACH
X = RNG.normal(size=(N, 3))
SPREAD = np.array([0.6, 0.3, 0.4, 0.2])
THETA = np.array([0.5, 0.3, -0.4, 0.2]) + RNG.normal(size=(M, 4)) * SPREAD
OFFSET = RNG.normal(0, 0.3, N)
Z = OFFSET + (np.column_stack([np.ones(N), X]) * THETA[GROUPS]).sum(axis=1)
SIZE = 2.0
ROWS = {
    "poisson": RNG.poisson(np.exp(Z)).astype(float),
    "binomial": (RNG.random(N) < expit(Z)).astype(float),
    "negative_binomial": RNG.negative_binomial(SIZE, SIZE / (SIZE + np.exp(Z))).astype(float),
    "gamma": RNG.gamma(3.0, np.exp(Z) / 3),
    "ordinal": 1.0 + (RNG.random(N)[:, None] > expit(np.array([0, 1.5]) - Z[:, None])).sum(axis=1),
}


def seizures():
    table = pd.read_csv(REFERENCE / "epil.csv")
    table["lbase"] = np.log(table["base"] / 4) - np.log(table["base"] / 4).mean()
    table["lage"] = np.log(table["age"]) - np.log(table["age"]).mean()
    return table


def pills():
    table = pd.read_csv(REFERENCE / "contraception.csv")
    return table.assign(use=(table["use"] == "Y").astype(float))


CASES = {
    "epil_laplace": ("y ~ lbase*trt + lage + V4 + (1 + V4 | subject)", "poisson", seizures),
    "contraception_laplace": ("use ~ age + urban + (1 + urban | district)", "binomial", pills),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_laplace_of_glmer(name):
    """With two coefficients, for which glmer() has figures."""
    formula, family, rows = CASES[name]
    fit = eb.from_formula(formula, rows(), eb.GeneralizedEB(family, method="laplace"))
    figures = LME4[LME4["case"] == name]
    expected = figures[(figures["group"] == "") & (figures["term"] != "logLik")]
    ours = fit.tidy("fixed")
    place = [abs(ours["estimate"] - x).argmin() for x in expected["estimate"]]
    away = (ours["estimate"].to_numpy()[place] - expected["estimate"]) / expected["std_error"]
    assert np.abs(away).max() < 1e-4
    np.testing.assert_allclose(ours["std.error"].iloc[place], expected["std_error"], rtol=1e-3)
    spreads = figures[figures["group"] != ""]["estimate"]
    np.testing.assert_allclose(fit.tidy("ran_pars")["estimate"], spreads, rtol=1e-4)
    likelihood = figures[figures["term"] == "logLik"]["estimate"].item()
    assert fit.log_likelihood_ == pytest.approx(likelihood, abs=1e-6)


@pytest.mark.parametrize("family", ROWS)
def test_four_coefficients_are_estimated(family):
    fit = eb.GeneralizedEB(family, method="laplace").fit(
        X, ROWS[family], groups=GROUPS, offset=OFFSET
    )
    errors = np.sqrt(np.diag(fit.mean_covariance_))
    truth = np.array([0.5, 0.3, -0.4, 0.2])
    assert np.abs((fit.mean_ - truth) / errors).max() < 3.5
    ratio = np.sqrt(np.diag(fit.covariance_)) / SPREAD
    assert np.all((ratio < 1.5) & (ratio > (0.5 if family in ("poisson", "gamma") else -1)))
    assert fit.likelihood_kind_ == "approximate"
    assert any("Laplace" in note for note in fit.notes_)
    assert "Laplace's approximation" in str(fit.summary())
    given = {"groups": GROUPS, "offset": OFFSET}
    low, high = fit.predict_interval(X, **given, level=0.9)
    assert 0.87 < np.mean((low <= ROWS[family]) & (high >= ROWS[family])) <= 1
    posterior, open_ = fit.posterior(), np.diag(fit.covariance_) > 0
    away = ((THETA - posterior.mean) / posterior.sd)[:, open_]
    assert 0.85 < np.mean(np.abs(away) < 1.645) < 0.97
    # a group without rows is as the population
    other = fit.predict(X[:1], groups=[999], offset=OFFSET[:1])
    assert np.isfinite(other).all()


def test_sums_and_weights():
    y = ROWS["poisson"]
    times = RNG.integers(0, 3, N)
    row = np.repeat(np.arange(N), times)
    repeated = eb.GeneralizedEB("poisson").fit(X[row], y[row], groups=GROUPS[row])
    for share in ("groups", "sums"):
        fit = eb.GeneralizedEB("poisson", share=share)
        fit.fit(X, y, groups=GROUPS, sample_weight=times)
        np.testing.assert_allclose(fit.mean_, repeated.mean_, atol=1e-5)
        np.testing.assert_allclose(fit.covariance_, repeated.covariance_, atol=1e-5)


def test_it_is_near_quadrature_where_groups_are_large():
    settings = {"varying": ["intercept", 0, 1]}
    exact = eb.GeneralizedEB("poisson", **settings).fit(X, ROWS["poisson"], groups=GROUPS)
    near = eb.GeneralizedEB("poisson", method="laplace", **settings).fit(
        X, ROWS["poisson"], groups=GROUPS
    )
    np.testing.assert_allclose(near.mean_, exact.mean_, atol=0.002)
    np.testing.assert_allclose(near.covariance_, exact.covariance_, atol=0.002)
    modes, means = near.posterior(), exact.posterior()
    # means of skewed posteriors lie a share of a deviation from modes
    assert (np.abs(modes.mean - means.mean) < 0.25 * means.sd).all()
    np.testing.assert_allclose(modes.sd, means.sd, rtol=0.05)
