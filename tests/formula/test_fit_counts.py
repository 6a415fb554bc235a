"""Formulas of counts and cases, with offsets, against glmer(); see `tests/reference/lme4_counts.R`.

Both maximise the same likelihood by 25 nodes or more; glmer's figures are polished to the root of
its slope.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import ebfed as eb

REFERENCE = Path(__file__).parents[1] / "reference"
# Of coefficients, in standard errors; of standard deviations and of errors, of themselves.
FIXED, SD, ERROR = 1e-4, 1e-4, 1e-3
LME4 = pd.read_csv(REFERENCE / "lme4_counts.csv", keep_default_na=False)
LME4["std_error"] = pd.to_numeric(LME4["std_error"])


def rows(name):
    table = pd.read_csv(REFERENCE / f"{name}.csv")
    if name == "epil":
        table["lbase"] = np.log(table["base"] / 4) - np.log(table["base"] / 4).mean()
        table["lage"] = np.log(table["age"]) - np.log(table["age"]).mean()
    if name == "contraception":
        table["use"] = (table["use"] == "Y").astype(float)
    return table


FORMULAS = {
    "epil": ("y ~ lbase*trt + lage + V4 + (1 | subject)", "poisson"),
    "cbpp": ("cbind(incidence, size - incidence) ~ C(period) + (1 | herd)", "binomial"),
    "grouseticks": ("TICKS ~ C(YEAR) + cHEIGHT + (1 | BROOD)", "poisson"),
    "contraception": ("use ~ age + I(age**2) + urban + livch + (1 | district)", "binomial"),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_fits_are_those_of_glmer(name):
    formula, family = FORMULAS[name]
    fit = eb.from_formula(formula, rows(name), family=family)
    figures = LME4[LME4["case"] == name]
    fixed = figures[(figures["group"] == "") & (figures["term"] != "logLik")]
    ours = fit.tidy("fixed")
    # formulaic puts interactions last, as R does, and numbers after factors
    place = [abs(ours["estimate"] - x).argmin() for x in fixed["estimate"]]
    assert sorted(place) == list(range(len(fixed)))
    found = ours.iloc[place]
    away = (found["estimate"].to_numpy() - fixed["estimate"]) / fixed["std_error"]
    assert np.abs(away).max() < FIXED
    np.testing.assert_allclose(found["std.error"], fixed["std_error"], rtol=ERROR)
    sd = figures.loc[figures["group"] != "", "estimate"].item()
    assert fit.tidy("ran_pars")["estimate"].iloc[0] == pytest.approx(sd, rel=SD)


RNG = np.random.default_rng(3)
GROUP = np.repeat(np.arange(60), 6)
X = RNG.normal(size=360)
YEARS = RNG.uniform(0.5, 3.0, 360)
Z = 0.3 + 0.4 * X + RNG.normal(0, 0.5, 60)[GROUP] + np.log(YEARS)
TABLE = pd.DataFrame(
    {
        "x": X,
        "g": GROUP,
        "years": YEARS,
        "nb": RNG.negative_binomial(2, 2 / (2 + np.exp(Z))),
        "claim": RNG.gamma(3, np.exp(Z) / 3),
        "won": RNG.binomial(9, 1 / (1 + np.exp(-Z))),
        "n": 9,
    }
)


@pytest.mark.parametrize(
    ("family", "response"), [("negative_binomial", "nb"), ("gamma", "claim"), ("binomial", "won")]
)
def test_families_have_names_and_offsets(family, response):
    given = {"groups": GROUP, "offset": np.log(YEARS)}
    text = response
    if family == "binomial":
        given["trials"] = np.full(360, 9)
        text = "cbind(won, n - won)"
    fit = eb.from_formula(f"{text} ~ x + offset(log(years)) + (1 | g)", TABLE, family=family)
    assert isinstance(fit.estimator_, eb.GeneralizedEB)
    direct = eb.GeneralizedEB(family, varying=["intercept"])
    direct.fit(X[:, None], TABLE[response].to_numpy(), **given)
    np.testing.assert_allclose(fit.mean_, direct.mean_, rtol=1e-9)
    given.pop("trials", None)
    expected = direct.predict(X[:, None], **given)
    np.testing.assert_allclose(fit.predict(), expected, rtol=1e-9)


def test_populations_of_families():
    plain = eb.from_formula("nb | g", TABLE, family="negative_binomial")
    assert type(plain.estimator_) is eb.NegativeBinomialEB
    for prior in (None, "log-normal"):
        null = eb.from_formula("nb ~ 1 + (1 | g)", TABLE, family="negative_binomial", prior=prior)
        assert type(null.estimator_) is eb.GeneralizedEB
    fit = eb.from_formula("nb ~ x + (1 + x | g)", TABLE, family="negative_binomial")
    assert fit.estimator_.get_params()["covariance"] == "full"
    other = eb.from_formula("nb | g", TABLE, family="negative_binomial", prior="log-normal")
    assert isinstance(other.estimator_, eb.GeneralizedEB)
    claims = eb.from_formula("claim ~ 1 + (1 | g)", TABLE, family="gamma")
    assert claims.tidy()["term"].tolist() == ["intercept", "sd__intercept", "shape"]
    with pytest.raises(ValueError, match="family='gamma' has prior='log-normal' alone; got 'npm"):
        eb.from_formula("claim | g", TABLE, family="gamma", prior="npmle")
    with pytest.raises(ValueError, match="is of family='poisson' or 'negative_binomial' or 'gam"):
        eb.from_formula("won | g", TABLE, family="categorical", prior="log-normal")


@pytest.mark.parametrize("groups", ["(1 | g)", "(1 | g) + (1 | h)"])
def test_weighted_rows_of_several_trials_are_rows_that_are_there_more_often(groups):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"g": np.arange(60) % 12, "h": np.arange(60) % 7, "x": rng.normal(size=60)})
    rows["n"], rows["w"] = rng.integers(1, 6, 60), rng.integers(1, 4, 60)
    rows["won"] = rng.binomial(rows["n"], 0.4)
    often = rows.loc[rows.index.repeat(rows["w"])]
    text = f"cbind(won, trials=n) ~ x + {groups}"
    weighted = eb.from_formula(text, rows, family="binomial", weights="w")
    repeated = eb.from_formula(text, often, family="binomial")
    for name in ("logLik", "AIC"):
        np.testing.assert_allclose(weighted.glance()[name], repeated.glance()[name], rtol=1e-7)
    np.testing.assert_allclose(weighted.predict(rows), repeated.predict(rows), rtol=1e-6)
