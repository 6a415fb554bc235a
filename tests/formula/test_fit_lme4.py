"""Formulas against lme4's fits of the same formulas; `tests/reference/formulas.py` made the data.

Both minimise the same criterion. lme4's stored figures are polished to the root of its slope; what
is left is where our optimiser stops, on a criterion that is flat to second order at its minimum.
"""

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

import ebfed as eb

REFERENCE = Path(__file__).parents[1] / "reference"
# Of coefficients by their standard errors, of variance components and of groups' effects by the
# standard deviation they have, of the criterion by itself. The search leaves variances wrong by up
# to 1e-4 of their standard errors, and coefficients move by less.
FIXED, COMPONENT, GROUPS, CRITERION = 3e-5, 1e-4, 1e-4, 1e-6

# lme4's formula is in the stored table under the same name.
FORMULAS = {
    "sleepstudy": "Reaction ~ Days + (1 + Days | Subject)",
    "sleepstudy_ml": "Reaction ~ Days + (1 + Days | Subject)",
    "sleepstudy_independent": "Reaction ~ Days + (1 + Days || Subject)",
    "sleepstudy_intercept": "Reaction ~ Days + (1 | Subject)",
    "radon_null": "log_radon ~ 1 + (1 | county)",
    "radon_intercept": "log_radon ~ floor + (1 | county)",
    "radon_factor": "log_radon ~ C(floor) + (1 | county)",
    "radon_sum": "log_radon ~ C(floor, contr.sum) + (1 | county)",
    "radon_slope": "log_radon ~ floor + log_uranium + (1 + floor | county)",
    "radon_independent": "log_radon ~ floor * log_uranium + (1 + floor || county)",
    "chem97_intercept": "score ~ gcsecnt + (1 | school)",
    "chem97_slope": "score ~ gcsecnt * gender + (1 + gcsecnt | school)",
    "chem97_square": "score ~ age + I(age**2) + gcsescore + (1 | school)",
    "chem97_sum": "score ~ age + I(age**2) + gcsescore + C(gender, contr.sum) + (1 | school)",
    "chem97_poly": "score ~ poly(age, 2) + np.log(gcsescore + 1) + (1 | school)",
}


def stored(name, case):
    table = pd.read_csv(REFERENCE / f"lme4_formulas_{name}.csv", dtype={"grp": str})
    return table[table["case"] == case].reset_index(drop=True)


@cache
def rows(name):
    suffix = ".csv.gz" if name == "chem97" else ".csv"
    return pd.read_csv(REFERENCE / f"{name}{suffix}")


def case_fit(case):
    fit = stored("fit", case).iloc[0]
    return eb.from_formula(FORMULAS[case], rows(fit["data"]), method=fit["method"].lower())


@pytest.fixture(scope="module", params=FORMULAS)
def fitted(request):
    return request.param, case_fit(request.param)


def test_every_linear_case_is_tried():
    cases = pd.read_csv(REFERENCE / "lme4_formulas_fit.csv")
    assert cases.loc[cases["method"].isin(["REML", "ML"]), "case"].tolist() == [*FORMULAS]


def test_coefficients(fitted):
    case, fit = fitted
    expected, found = stored("fixef", case), fit.tidy("fixed")
    errors = expected["std_error"].to_numpy()
    away = (found["estimate"] - expected["estimate"]) / errors
    np.testing.assert_allclose(away, 0, atol=FIXED)
    np.testing.assert_allclose(found["std.error"], errors, rtol=FIXED)


def test_variance_components(fitted):
    case, fit = fitted
    expected, found = stored("varcor", case), fit.tidy("ran_pars")
    kinds = found["term"].str.partition("__")[0]
    correlated = expected["var2"].notna()
    spreads = expected["sdcor"][~correlated]
    np.testing.assert_allclose(found["estimate"][kinds == "sd"], spreads, rtol=COMPONENT)
    assert (kinds == "cor").sum() == correlated.sum()
    np.testing.assert_allclose(
        found["estimate"][kinds == "cor"], expected["sdcor"][correlated], atol=COMPONENT
    )


def test_effects_of_groups(fitted):
    case, fit = fitted
    expected = stored("ranef", case)
    wide = expected.pivot(index="grp", columns="term", values="condval")
    wide = wide[expected["term"].unique()]
    found = fit.ranef()
    found.index = found.iloc[:, 0].astype(str)
    values = found.loc[wide.index].iloc[:, 1:].to_numpy(float)
    away = (values - wide.to_numpy()) / wide.std().to_numpy()
    np.testing.assert_allclose(away, 0, atol=GROUPS)
    # conditional standard deviations, in the same order
    errors = expected.pivot(index="grp", columns="term", values="condsd")
    tidy = fit.tidy("ran_vals").assign(level=lambda each: each["level"].astype(str))
    mine = tidy["std.error"].to_numpy().reshape(-1, values.shape[1])
    mine = pd.DataFrame(mine, index=tidy["level"].unique()).loc[wide.index]
    np.testing.assert_allclose(mine, errors[wide.columns], rtol=COMPONENT)


def test_criterion_and_sizes(fitted):
    case, fit = fitted
    expected, glance = stored("fit", case).iloc[0], fit.glance().iloc[0]
    assert glance["nobs"] == expected["n"]
    assert glance["n_groups"] == expected["n_groups"]
    assert glance["npar"] == expected["df"]
    assert glance["sigma"] == pytest.approx(expected["sigma"], rel=COMPONENT)
    assert glance["likelihood"] == expected["method"]
    for ours, theirs in {"logLik": "loglik", "AIC": "aic", "BIC": "bic"}.items():
        assert glance[ours] == pytest.approx(expected[theirs], rel=CRITERION)
    assert fit.log_likelihood_ == glance["logLik"]
    if expected["method"] == "REML":
        assert glance["REMLcrit"] == pytest.approx(expected["criterion"], rel=CRITERION)


def test_summaries_name_the_likelihood():
    shown = {case: str(case_fit(case).summary()) for case in ("sleepstudy", "sleepstudy_ml")}
    assert "logLik (REML):  -871.81 " in shown["sleepstudy"]
    assert "logLik:         -875.97 " in shown["sleepstudy_ml"]
    shown = str(case_fit("radon_null").summary())
    assert f"logLik (REML):  {stored('fit', 'radon_null')['loglik'].item():.2f} " in shown


def test_fits_by_reml_are_refitted_where_terms_differ():
    """lme4 stores the likelihood of the larger model by both methods."""
    pair = ("sleepstudy", "sleepstudy_independent")
    one, two = map(case_fit, pair)
    three = eb.from_formula("Reaction ~ 1 + (1 | Subject)", rows("sleepstudy"))
    alike = eb.compare(one, two)
    assert alike["likelihood"].tolist() == ["REML", "REML"]
    expected = [stored("fit", case)["loglik"].item() for case in pair]
    np.testing.assert_allclose(alike["logLik"], expected, rtol=CRITERION)
    unlike = eb.compare(one, three, case_fit("sleepstudy_ml"))
    assert unlike["likelihood"].tolist() == ["ML (refitted)"] * 2 + ["ML"]
    for ours, theirs in {"logLik": "loglik", "AIC": "aic", "BIC": "bic"}.items():
        expected = stored("fit", "sleepstudy_ml")[theirs].item()
        np.testing.assert_allclose(unlike[ours].iloc[[0, 2]], expected, rtol=CRITERION)
    again = eb.from_formula(three.formula, rows("sleepstudy"), method="ml")
    assert unlike["logLik"].iloc[1] == pytest.approx(again.log_likelihood_, rel=1e-9)


def test_new_rows(fitted):
    case, fit = fitted
    new = pd.read_csv(REFERENCE / f"{stored('fit', case)['data'][0]}_new.csv")
    expected = stored("predict", case)
    scale = fit.glance()["sigma"].item()
    group = fit.formula.rsplit("|", 1)[1].strip(" )")
    found = {"prediction": fit.predict(new), "population": fit.predict(new.drop(columns=group))}
    for name, values in found.items():
        np.testing.assert_allclose(values / scale, expected[name] / scale, atol=GROUPS)
    augmented = fit.augment(new)
    np.testing.assert_array_equal(augmented[".fitted"], found["prediction"])
    np.testing.assert_array_equal(augmented[".fixed"], found["population"])


def test_slopes_without_a_mean():
    """The intercept moves with the covariance: the search took 46 steps, and stopped early.

    Figures are those of the dense likelihood, polished by Newton's method. lme4's `lmer` by ML ends
    within 1e-4 standard errors of them: 257.762108, 24.615576, 11.926691, -.188997.
    """
    fit = eb.from_formula("Reaction ~ 1 + (Days | Subject)", rows("sleepstudy"), method="ml")
    assert len(fit.history_) <= 20
    assert fit.log_likelihood_ == pytest.approx(-887.737941, abs=1e-6)
    fixed = fit.tidy("fixed")
    assert fixed["estimate"].item() == pytest.approx(257.761777, rel=1e-7)
    assert abs(fixed["estimate"] - 257.762108).item() < 1e-4 * fixed["std.error"].item()
    expected = [24.615496, 11.926704, -0.188982, 25.591816]
    np.testing.assert_allclose(fit.VarCorr()["sdcor"], expected, rtol=3e-6)


def test_an_intercept_without_a_mean():
    """Its spread stands for the mean: 1,001 steps did not reach the maximum, by BFGS in logs."""
    sleep = rows("sleepstudy")
    fit = eb.from_formula("Reaction ~ 0 + Days + (Days | Subject)", sleep, method="ml")
    assert fit.converged_
    assert len(fit.history_) <= 40
    y, x = sleep["Reaction"].to_numpy(), sleep["Days"].to_numpy()
    own = sleep["Subject"].to_numpy()
    alike, Z = own[:, None] == own, np.column_stack([np.ones(len(x)), x])

    def deviance(parameters):
        a, b, c, noise = parameters
        root = np.array([[np.exp(a), 0.0], [b, np.exp(c)]])
        V = alike * (Z @ root @ root.T @ Z.T) + np.exp(2 * noise) * np.eye(len(y))
        solved = np.linalg.solve(V, np.column_stack([x, y]))
        left = y - x * (x @ solved[:, 1]) / (x @ solved[:, 0])
        return (
            np.linalg.slogdet(V)[1] + len(y) * np.log(2 * np.pi) + left @ (np.linalg.solve(V, left))
        )

    best = minimize(deviance, [np.log(250.0), -7.0, np.log(6.0), np.log(25.0)], method="BFGS")
    assert -2 * fit.log_likelihood_ == pytest.approx(best.fun, abs=1e-5)


def test_the_mean_of_every_day():
    """``Reaction ~ 0 + factor(Days) + (1 | Subject)`` of lme4: its REML criterion."""
    fit = eb.from_formula("Reaction ~ 0 + factor(Days) + (1 | Subject)", rows("sleepstudy"))
    assert fit.glance()["REMLcrit"].item() == pytest.approx(1729.49256, abs=1e-5)


def test_rates_in_herds():
    """Of a logistic regression the likelihood is an integral: both by quadrature.

    The search of lme4's glmer ends some 1e-5 standard errors from the maximum.
    """
    fit = eb.from_formula(
        "cbind(incidence, size - incidence) ~ C(period) + (1 | herd)", rows("cbpp")
    )
    expected = stored("fixef", "cbpp_quadrature")
    away = fit.tidy("fixed")["estimate"] - expected["estimate"]
    np.testing.assert_allclose(away / expected["std_error"], 0, atol=1e-4)
    spread = stored("varcor", "cbpp_quadrature")["sdcor"].item()
    assert fit.tidy("ran_pars")["estimate"].item() == pytest.approx(spread, rel=1e-5)


def test_authorities_and_schools_within_them():
    """Chem97 of mlmRev, ``lmer(score ~ gcsecnt + (1 | lea/school))``; see reference/lme4_levels.R.

    Printed digits, and lme4's optimiser stops within 1e-5.
    """
    pupils = rows("chem97").merge(pd.read_csv(REFERENCE / "chem97_lea.csv"))
    fit = eb.from_formula("score ~ gcsecnt + (1 | lea/school)", pupils)
    lea, school, noise = fit.tidy().query("effect == 'ran_pars'")["estimate"] ** 2
    assert school == pytest.approx(1.166202, rel=1e-5)
    assert lea == pytest.approx(0.014766, abs=1e-6)
    assert noise == pytest.approx(5.154201, rel=1e-5)
    assert fit.glance()["REMLcrit"][0] == pytest.approx(141696.9881, abs=1e-4)
