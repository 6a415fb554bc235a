"""Variances, simulated responses, and fits of other responses."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from r_fits import data_of

import ebfed as eb

SLEEP = data_of("sleepstudy")
SLOPES = "Reaction ~ Days + (1 + Days | Subject)"


def binary(seed=0, m=40, n=20):
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame({"g": np.repeat(np.arange(m), n), "x": rng.normal(size=m * n)})
    mean = rng.normal(0, 1.0, m)[rows["g"]] + 0.5 * rows["x"]
    rows["trials"] = rng.integers(2, 7, m * n)
    rows["won"] = rng.binomial(rows["trials"], 1 / (1 + np.exp(-mean)))
    rows["lost"] = rows["trials"] - rows["won"]
    rows["n"] = rng.poisson(np.exp(mean))
    rows["said"] = np.where(rng.uniform(size=m * n) < 1 / (1 + np.exp(-mean)), "yes", "no")
    return rows


@pytest.mark.parametrize("formula", [SLOPES, "Reaction ~ Days + (1 | Subject) + (1 | week)"])
def test_covariances_of_coefficients_are_those_of_the_model_in_dense_matrices(formula):
    rows = SLEEP.assign(week=(np.arange(len(SLEEP)) % 7).astype(str))
    fit = eb.from_formula(formula, rows)
    found, parts = fit.vcov(), fit.VarCorr()
    X = np.column_stack([np.ones(len(rows)), rows["Days"]])
    marginal = fit.sigma() ** 2 * np.eye(len(rows))
    for group in parts["grp"].unique()[:-1]:
        own = parts[parts["grp"] == group]
        names = own.loc[own["var2"] == "", "var1"].tolist()
        spread = np.zeros((len(names), len(names)))
        for one, two, value in zip(own["var1"], own["var2"], own["vcov"], strict=True):
            j, k = names.index(one), names.index(two or one)
            spread[j, k] = spread[k, j] = value
        same = rows[group].to_numpy()[:, None] == rows[group].to_numpy()
        marginal += same * (X[:, : len(names)] @ spread @ X[:, : len(names)].T)
    expected = np.linalg.inv(X.T @ np.linalg.solve(marginal, X))
    np.testing.assert_allclose(found[["intercept", "Days"]], expected, rtol=1e-8)
    errors = np.sqrt(np.diag(expected))
    np.testing.assert_allclose(fit.tidy("fixed")["std.error"], errors, rtol=1e-8)


@pytest.mark.filterwarnings("ignore:Gradient descent:sklearn.exceptions.ConvergenceWarning")
def test_gradient_descent_has_no_covariance_of_coefficients():
    fit = eb.from_formula(
        "Reaction ~ Days | Subject",
        SLEEP.assign(Reaction=SLEEP["Reaction"] / 100),
        eb.LinearEB("spherical", solver="gradient", learning_rate=1e-3),
    )
    assert fit.vcov()[["intercept", "Days"]].isna().all(axis=None)


def test_fits_without_noise_of_rows_or_coefficients_say_so():
    rows = SLEEP.assign(slow=(SLEEP["Reaction"] > 300) * 1, twice=2 * SLEEP["Days"])
    with pytest.raises(TypeError, match="no one standard deviation of rows; they are"):
        eb.from_formula("slow ~ Days + (1 | Subject)", rows, family="poisson").sigma()
    with pytest.raises(TypeError, match="has no covariance of coefficients; the mixed model"):
        eb.from_formula("Reaction | Subject", rows).vcov()
    with pytest.warns(eb.IdentificationWarning, match="collinear"):
        fit = eb.from_formula("Reaction ~ Days + twice + (1 | Subject)", rows)
    found = fit.vcov()
    assert found.set_index("term").notna().to_numpy().sum() == 1  # of the intercept


def test_variances_are_those_of_lme4():
    """As ``as.data.frame(VarCorr(fit))`` prints them (Bates et al. 2015, sleepstudy by REML)."""
    found = eb.from_formula(SLOPES, SLEEP).VarCorr()
    assert found["grp"].tolist() == ["Subject"] * 3 + ["Residual"]
    assert found["var1"].tolist() == ["intercept", "Days", "intercept", ""]
    assert found["var2"].tolist() == ["", "", "Days", ""]
    np.testing.assert_allclose(found["vcov"], [612.10, 35.07, 9.604, 654.94], rtol=1e-4)
    np.testing.assert_allclose(found["sdcor"], [24.741, 5.922, 0.066, 25.592], atol=6e-4)


@pytest.mark.parametrize("formula", [SLOPES, "Reaction ~ (1 | Subject) + (1 | Days)"])
def test_variances_and_covariances_are_those_of_the_population(formula):
    fit = eb.from_formula(formula, SLEEP)
    shown = fit.VarCorr()
    variances = shown[(shown["var2"] == "") & (shown["grp"] != "Residual")]["vcov"]
    within = [fit.estimator_.covariance_] if "covariance_" in dir(fit) else []
    expected = within or list(fit.estimator_.covariances_.values())
    np.testing.assert_allclose(variances, np.concatenate([np.diag(each) for each in expected]))
    assert shown["vcov"].iloc[-1] == pytest.approx(fit.noise_variance_)


def test_rates_have_a_spread_and_no_rows_to_draw():
    fit = eb.from_formula("n | g", binary(), family="poisson")
    shown = fit.VarCorr()
    assert shown[["grp", "var1"]].to_numpy().tolist() == [["g", "mean"]]
    assert shown["vcov"].item() == pytest.approx(fit.prior_.variance_[0])
    with pytest.raises(TypeError, match="PoissonEB has no residuals"):
        fit.simulate()


def test_new_groups_vary_as_the_population_and_kept_ones_as_the_noise():
    """Covariances of simulated rows: ``Z T Z' + sigma**2 I``, or the noise around the estimates."""
    fit = eb.from_formula(SLOPES, SLEEP)
    T, noise = fit.estimator_.covariance_, fit.noise_variance_
    first = SLEEP["Subject"] == SLEEP["Subject"].iloc[0]
    Z = np.column_stack([np.ones(first.sum()), SLEEP["Days"][first]])
    drawn = fit.simulate(4000, random_state=1)[first.to_numpy()].to_numpy()
    V = Z @ T @ Z.T + noise * np.eye(len(Z))
    # entries of a sample covariance have errors of about sqrt(2 / 4000) of the diagonal
    limit = 5 * np.sqrt(2 / 4000) * np.diag(V).max()
    np.testing.assert_allclose(np.cov(drawn), V, atol=limit)
    np.testing.assert_allclose(drawn.mean(axis=1), Z @ fit.mean_, atol=5 * np.sqrt(V.max() / 4000))
    kept = fit.simulate(4000, conditional=True, random_state=1).to_numpy()
    np.testing.assert_allclose(kept.mean(axis=1), fit.predict(), atol=5 * np.sqrt(noise / 4000))
    np.testing.assert_allclose(kept.std(axis=1) ** 2, noise, rtol=5 * np.sqrt(2 / 4000))


def test_simulated_frames_have_the_rows_of_the_fit():
    rows = SLEEP.set_axis([f"r{i}" for i in range(len(SLEEP))])
    rows["Days"] = rows["Days"].mask(np.arange(len(rows)) == 3)
    fit = eb.from_formula("log(Reaction) ~ Days + (1 | Subject)", rows, na_action="exclude")
    drawn = fit.simulate(2, random_state=3)
    assert drawn.index.tolist() == rows.index.tolist()
    assert drawn.isna().sum().tolist() == [1, 1]
    pd.testing.assert_frame_equal(drawn, fit.simulate(2, random_state=3))
    again = fit.refit(drawn["sim_1"].sample(frac=1, random_state=0))
    assert again.formula == fit.formula
    np.testing.assert_allclose(again.residuals(), drawn["sim_1"] - again.predict(), equal_nan=True)
    other = eb.from_formula(SLOPES, pl.from_pandas(SLEEP)).simulate(1)
    assert isinstance(other, pl.DataFrame)
    with pytest.raises(ValueError, match="n must be a whole number from 1; got 0"):
        fit.simulate(0)
    with pytest.raises(ValueError, match="response must be one value for each of 180 rows"):
        fit.refit([1.0, 2.0])


CASES = {
    "won": ("cbind(won, lost) ~ x + (1 | g)", {}),
    "trials": ("cbind(won, trials=trials) ~ x + (1 | g)", {}),
    "rest": ("cbind(won, trials - won) ~ x + (1 | g)", {}),
    "n": ("n ~ x + offset(log(trials)) + (1 | g)", {"family": "poisson"}),
    "said": ("said ~ x + (1 | g)", {"family": "binomial"}),
    "logs": ("log(n + 1) ~ x + (1 | g)", {}),
    "weights": ("n ~ x + (1 | g)", {"weights": "trials"}),
    "subset": ("n ~ x + (1 | g)", {"subset": "x > -1"}),
    "means": ("n | g", {}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_refit_is_the_fit_of_a_frame_with_that_response(name):
    formula, given = CASES[name]
    rows = binary()
    fit = eb.from_formula(formula, rows, **given)
    own = rows if name != "subset" else rows[rows["x"] > -1]
    if name == "means":
        drawn = own["n"].to_numpy()[::-1]
    else:
        drawn = fit.simulate(1, random_state=5)["sim_1"].to_numpy()
    column = {"said": "said", "trials": "won", "rest": "won", "won": "won"}.get(name, "n")
    assert name != "said" or set(drawn) == {"no", "yes"}
    values = np.exp(drawn) - 1 if name == "logs" else drawn
    new = own.assign(**{column: values})
    new["lost"] = new["trials"] - new["won"]
    expected = eb.from_formula(formula, new, **{k: x for k, x in given.items() if k != "subset"})
    found = fit.refit(drawn)
    # of logarithms, exponentials are taken and logarithms again
    np.testing.assert_allclose(
        found.tidy()["estimate"], expected.tidy()["estimate"], rtol=1e-9 if name != "logs" else 1e-6
    )
    assert found.log_likelihood_ == pytest.approx(expected.log_likelihood_, rel=1e-9)
    np.testing.assert_allclose(found.predict(), expected.predict(), rtol=1e-6)
    # and the fit is as it was
    again = eb.from_formula(formula, rows, **given)
    np.testing.assert_array_equal(fit.tidy()["estimate"], again.tidy()["estimate"])


@pytest.mark.parametrize("family", ["poisson", "binomial"])
def test_a_refit_begins_at_the_fit(family):
    """Rounds to responses of the fit's own are fewer; means differ by what searches leave."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"g": np.repeat(np.arange(150), 8), "x": rng.normal(size=1200)})
    line = 0.3 + 0.5 * rng.normal(size=150)[rows["g"]] + 0.4 * rows["x"]
    counts = rng.poisson(np.exp(line))
    rows["y"] = counts if family == "poisson" else (counts > 1).astype(int)
    fit = eb.from_formula("y ~ x + (1 + x | g)", rows, eb.GeneralizedEB(family))
    again = fit.refit(rows["y"])
    assert again.n_iter_ < fit.n_iter_
    np.testing.assert_allclose(again.mean_, fit.mean_, rtol=1e-8)
    drawn = fit.simulate(1, random_state=2)["sim_1"]
    fresh = eb.from_formula("y ~ x + (1 + x | g)", rows.assign(y=drawn), eb.GeneralizedEB(family))
    assert fit.refit(drawn).log_likelihood_ == pytest.approx(fresh.log_likelihood_, abs=1e-8)


def test_frames_of_a_refit_have_its_response():
    fit = eb.from_formula("Reaction ~ Days + (1 | Subject)", SLEEP)
    drawn = fit.simulate(1, random_state=2)["sim_1"]
    again = fit.refit(drawn).refit(drawn + 1)
    np.testing.assert_array_equal(again.augment()["Reaction"], drawn + 1)
    assert fit.augment()["Reaction"].equals(SLEEP["Reaction"])
    assert again.score(SLEEP) < again.score(SLEEP.assign(Reaction=drawn + 1))


def test_a_refit_keeps_the_design_and_the_order_of_labels():
    """Knots and levels are those of the fit, also where the response has one label fewer."""
    rows = binary()
    fit = eb.from_formula("said ~ poly(x, 2) + (1 | g)", rows, family="binomial")
    turned = fit.refit(np.where(rows["said"] == "yes", "no", "yes"))
    np.testing.assert_allclose(turned.mean_, -fit.mean_, atol=1e-4)
    assert turned.response.levels == fit.response.levels
    with pytest.raises(ValueError, match="response has 'maybe'; the fit had 'no', 'yes'"):
        fit.refit(np.full(len(rows), "maybe"))


def test_a_parametric_bootstrap_of_a_likelihood_ratio():
    """At a null model the statistic is less than a chi-squared's, as at any boundary."""
    null, slopes = (
        eb.from_formula(f"Reaction ~ Days + ({z} | Subject)", SLEEP, method="ml")
        for z in ("1", "1 + Days")
    )
    drawn = null.simulate(20, random_state=2)
    found = [
        2 * (slopes.refit(drawn[c]).log_likelihood_ - null.refit(drawn[c]).log_likelihood_)
        for c in drawn
    ]
    assert min(found) > -1e-6
    assert np.mean(found) < 4  # a half and a half of one and two degrees of freedom have 1.5
    observed = 2 * (slopes.log_likelihood_ - null.log_likelihood_)
    assert observed == pytest.approx(42.139, abs=2e-3)  # lme4: 1794.1 - 1751.9
    assert observed > max(found)
