"""Tests of terms by F: against anova of lmerTest."""

import numpy as np
import pandas as pd
import pytest
from r_fits import data_of, fit_of, stored
from scipy.optimize import minimize
from scipy.special import gammaln, logsumexp

import ebfed as eb

TERMS = stored("terms")


@pytest.mark.parametrize(
    ("case", "ddf"), sorted(set(zip(TERMS["case"], TERMS["ddf"], strict=True)))
)
def test_terms_of_type_iii_are_those_of_lmertest(case, ddf):
    expected = TERMS[(TERMS["case"] == case) & (TERMS["ddf"] == ddf)]
    found = fit_of(case).tests(ddf=ddf, type="III")
    assert found["num.df"].tolist() == expected["num_df"].tolist()
    np.testing.assert_allclose(found["den.df"], expected["den_df"], rtol=1e-3)
    np.testing.assert_allclose(found["statistic"], expected["statistic"], rtol=1e-4)
    np.testing.assert_allclose(found["p.value"], expected["p_value"], rtol=5e-3, atol=1e-12)


def test_type_iii_does_not_depend_on_the_coding():
    rows = data_of("cake").iloc[3:]
    by_treatment = eb.from_formula("angle ~ recipe * C(temp) + (1 | batch)", rows)
    by_sum = eb.from_formula(
        "angle ~ C(recipe, contr.sum) * C(temp, contr.sum) + (1 | batch)", rows
    )
    columns = ["den.df", "statistic", "p.value"]
    one, other = (each.tests(type="III")[columns] for each in (by_treatment, by_sum))
    np.testing.assert_allclose(one, other, rtol=1e-3)
    one, other = (each.tests(type="wald")[columns] for each in (by_treatment, by_sum))
    assert abs(one["statistic"][0] - other["statistic"][0]) > 0.01


def test_terms_with_names_and_functions():
    rows = data_of("oats").rename(columns={"nitro": "the dose"})
    fit = eb.from_formula("yield_ ~ poly(`the dose`, 2) + variety + (1 | block)", rows)
    found = fit.tests(type="III")
    assert found["num.df"].tolist() == [2, 2]
    np.testing.assert_allclose(found["statistic"], fit.tests(type="wald")["statistic"])


@pytest.mark.parametrize(
    "name", ["o", "C", "contr", "class", "the recipe", "C(`o`)", "C(`the recipe`)"]
)
def test_type_iii_whatever_factors_are_called(name):
    """Letters of other words, functions, words of Python, and names in backticks."""
    column = name[3:-2] if name.startswith("C(`") else name
    rows = data_of("cake").rename(columns={"recipe": column})
    written = name if name.isidentifier() and name != "class" else f"`{name}`"
    written = name if name.startswith("C(`") else written
    found = eb.from_formula(f"angle ~ {written} * temp + (1 | batch)", rows).tests(type="III")
    plain = eb.from_formula("angle ~ recipe * temp + (1 | batch)", data_of("cake"))
    columns = ["num.df", "den.df", "statistic", "p.value"]
    np.testing.assert_allclose(found[columns], plain.tests(type="III")[columns], rtol=1e-9)


def rows_without_groups():
    """Unequal numbers of rows of two factors, and groups that explain nothing."""
    rng = np.random.default_rng(1)
    kinds = {"a": rng.choice(list("uvw"), 90), "b": rng.choice(list("pq"), 90, p=[0.7, 0.3])}
    rows = pd.DataFrame(kinds | {"x": rng.normal(size=90), "g": np.tile(np.arange(9), 10)})
    y = rng.normal(size=90) + 0.4 * rows["x"] + 0.5 * (rows["a"] == "v")
    return rows.assign(y=y - y.groupby(rows["g"]).transform("mean"))


@pytest.mark.parametrize("terms", ["a + b", "a * b", "C(b) * C(a) + x", "x + a:x"])
def test_type_ii_without_a_spread_is_that_of_least_squares(terms):
    from statsmodels.formula.api import ols
    from statsmodels.stats.anova import anova_lm

    rows = rows_without_groups()
    fit = eb.from_formula(f"y ~ {terms} + (1 | g)", rows)
    found = fit.tests(type="II", ddf="residual").set_index("term")
    expected = anova_lm(ols(f"y ~ {terms}", rows).fit(), typ=2).drop(index="Residual")
    np.testing.assert_allclose(found.loc[expected.index, "statistic"], expected["F"], rtol=1e-7)


def test_type_ii_does_not_depend_on_coding_and_is_type_iii_of_balanced_rows():
    rows = rows_without_groups()
    rows["y"] += np.random.default_rng(0).normal(size=9)[rows["g"]]
    columns = ["num.df", "den.df", "statistic", "p.value"]
    plain = eb.from_formula("y ~ a * b * x + (1 | g)", rows).tests(type="II")
    coded = "C(a, contr.sum) * C(b, contr.helmert) * x"
    other = eb.from_formula(f"y ~ {coded} + (1 | g)", rows).tests(type="II")
    np.testing.assert_allclose(other["statistic"], plain["statistic"], rtol=1e-9)
    # those of several contrasts together depend a little on how they are written
    np.testing.assert_allclose(other["den.df"], plain["den.df"], rtol=3e-3)
    balanced = [fit_of("cake").tests(type=each)[columns] for each in ("II", "III")]
    np.testing.assert_allclose(*balanced, rtol=1e-6)
    last = plain["term"] == "a:b:x"  # which no other contains
    wald = eb.from_formula("y ~ a * b * x + (1 | g)", rows).tests(type="wald")
    np.testing.assert_allclose(plain[last][columns], wald[last][columns], rtol=1e-9)


@pytest.mark.filterwarnings("ignore:Columns of X are collinear")
def test_missing_combinations_have_no_type_iii():
    rows = data_of("cake")
    rows = rows[(rows["recipe"] != "A") | (rows["temp"] != "175")]
    fit = eb.from_formula("angle ~ recipe * temp + (1 | batch)", rows)
    with pytest.raises(ValueError, match="needs rows of all combinations"):
        fit.tests(type="III")


def test_what_has_no_tests_says_so():
    fit = eb.from_formula("Reaction ~ 1 + (1 | Subject)", data_of("sleepstudy"), prior="npmle")
    with pytest.raises(TypeError, match="GaussianEB has no tests"):
        fit.tests()
    with pytest.raises(ValueError, match="type must be one of 'wald', 'II', 'III'"):
        fit_of("cake").tests(type="IV")


def test_counts_are_tested_by_z():
    rows = pd.DataFrame({"x": np.tile([0.0, 1.0], 60), "g": np.repeat(np.arange(12), 10)})
    rows["y"] = np.random.default_rng(0).poisson(np.exp(rows["x"]))
    fit = eb.from_formula("y ~ x + (1 | g)", rows, family="poisson")
    found = fit.tests(ddf="asymptotic")
    assert np.isinf(found["df"]).all()
    np.testing.assert_allclose(found["std.error"], fit.tidy("fixed")["std.error"])
    terms = fit.tests(type="III", ddf="asymptotic")
    np.testing.assert_allclose(terms["p.value"][0], found["p.value"][1])
    with pytest.raises(ValueError, match="ddf must be 'satterthwaite' or 'asymptotic'"):
        fit.tests(ddf="kenward-roger")


def deviance(rows, names, weights=None):
    """-2 log-likelihood at its maximum, of an intercept that differs, by the dense covariance."""
    X = np.column_stack([np.ones(len(rows)), *(rows[name] for name in names)])
    y, own = rows["Reaction"].to_numpy(), rows["Subject"].to_numpy()
    alike = (own[:, None] == own).astype(float)
    noise = np.ones(len(rows)) if weights is None else 1 / rows[weights].to_numpy()

    def of(log_spreads):
        group, row = np.exp(2 * log_spreads)
        V = group * alike + row * np.diag(noise)
        solved = np.linalg.solve(V, np.column_stack([X, y]))
        left = y - X @ np.linalg.solve(X.T @ solved[:, :-1], X.T @ solved[:, -1])
        lengths = np.linalg.slogdet(V)[1] + len(y) * np.log(2 * np.pi)
        return lengths + left @ np.linalg.solve(V, left)

    return minimize(of, np.log([30.0, 40.0]), method="Nelder-Mead", options={"xatol": 1e-7}).fun


@pytest.mark.parametrize("weights", [None, "w"])
def test_a_null_model_is_compared_with_covariates(weights):
    """The likelihood ratio by the dense covariance; the null model was one of means."""
    rows = data_of("sleepstudy")
    rows = rows.assign(w=1.0 + np.arange(len(rows)) % 3)
    null, days = (
        eb.from_formula(f"Reaction ~ {terms} + (1 | Subject)", rows, weights=weights)
        for terms in ("1", "Days")
    )
    assert type(null.estimator_) is eb.LinearEB
    expected = [deviance(rows, names, weights) for names in ([], ["Days"])]
    found = eb.anova(null, days)
    np.testing.assert_allclose(-2 * found["logLik"], expected, rtol=1e-8)
    assert found["statistic"][1] == pytest.approx(expected[0] - expected[1], rel=1e-6)
    assert found["npar"].tolist() == [3, 4]


@pytest.mark.parametrize("family", ["binomial", "poisson"])
def test_a_null_model_of_classes_and_counts_is_compared_with_covariates(family):
    """The likelihood ratio by quadrature over the intercepts of groups."""
    rng = np.random.default_rng(3)
    rows = pd.DataFrame({"g": np.repeat(np.arange(25), 8), "x": rng.normal(size=200)})
    mean = np.exp(rng.normal(0, 0.7, 25))[rows["g"]]
    rows["y"] = rng.poisson(mean)
    if family == "binomial":
        rows["y"] = (rng.uniform(size=200) < mean / (1 + mean)).astype(int)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)

    def deviance_of(parameters):
        b, slope, log_spread = parameters
        eta = b + slope * rows["x"].to_numpy()[:, None] + np.exp(log_spread) * nodes
        y = rows["y"].to_numpy()[:, None]
        logs = y * eta - np.exp(eta) - gammaln(y + 1)
        if family == "binomial":
            logs = y * eta - np.logaddexp(0, eta)
        groups = np.add.reduceat(logs, np.arange(0, 200, 8)) + np.log(weights / weights.sum())
        return -2 * logsumexp(groups, axis=1).sum()

    expected = [
        minimize(lambda p: deviance_of([p[0], 0.0, p[1]]), [0.0, -0.5]).fun,
        minimize(deviance_of, [0.0, 0.0, -0.5]).fun,
    ]
    found = eb.anova(
        *(eb.from_formula(f"y ~ {x} + (1 | g)", rows, family=family) for x in ("1", "x"))
    )
    # the fit's own quadrature has fewer nodes
    np.testing.assert_allclose(-2 * found["logLik"], expected, rtol=1e-6)


@pytest.mark.parametrize("family", ["gaussian", "binomial", "poisson"])
def test_groups_without_a_coefficient_for_all(family):
    """``0 + (1 | g)``: the likelihood of the spread alone; it was refused."""
    rng = np.random.default_rng(3)
    rows = pd.DataFrame({"g": np.repeat(np.arange(25), 8)})
    effect = rng.normal(0, 0.7, 25)[rows["g"]]
    rows["y"] = effect + rng.normal(size=200)
    if family == "poisson":
        rows["y"] = rng.poisson(np.exp(effect))
    elif family == "binomial":
        rows["y"] = (rng.uniform(size=200) < 1 / (1 + np.exp(-effect))).astype(int)
    nodes = np.linspace(-9, 9, 1801)  # the trapezoidal rule, for peaks that are narrow
    weights, y = np.exp(-(nodes**2) / 2), rows["y"].to_numpy()[:, None]

    def deviance_of(parameters):
        eta = np.exp(parameters[0]) * nodes
        if family == "gaussian":
            logs = -((y - eta) ** 2) / 2 * np.exp(-2 * parameters[1]) - parameters[1]
            logs = logs - np.log(2 * np.pi) / 2
        elif family == "poisson":
            logs = y * eta - np.exp(eta) - gammaln(y + 1)
        else:
            logs = y * eta - np.logaddexp(0, eta)
        groups = np.add.reduceat(logs, np.arange(0, 200, 8)) + np.log(weights / weights.sum())
        return -2 * logsumexp(groups, axis=1).sum()

    expected = minimize(deviance_of, [-0.3, 0.0][: 1 + (family == "gaussian")]).fun
    fit = eb.from_formula("y ~ 0 + (1 | g)", rows, family=family)
    assert -2 * fit.log_likelihood_ == pytest.approx(expected, rel=1e-6)
    for empty in (fit.tests(), fit.confint(), fit.tidy("fixed")):
        assert len(empty) == 0
    assert len(fit.influence()) == 25
    assert fit.VarCorr()["var1"][0] == "intercept"


def test_a_null_model_has_what_models_with_covariates_have():
    """The interval of a new row, profiles, tests, influence and residuals; means had none."""
    rows = data_of("sleepstudy")
    fit = eb.from_formula("Reaction ~ (1 | Subject)", rows)
    means = eb.from_formula("Reaction | Subject", rows)
    assert type(means.estimator_) is eb.GaussianEB
    # one likelihood; the two searches end within 1e-4 of the variances
    assert fit.log_likelihood_ == pytest.approx(means.log_likelihood_, rel=1e-9)
    np.testing.assert_allclose(fit.predict(), means.predict(), rtol=1e-6)
    found = fit.tests(ddf="kenward-roger")
    # balanced groups: the mean of means, over m - 1 degrees of freedom
    averages = rows.groupby("Subject")["Reaction"].mean()
    assert found["df"][0] == pytest.approx(17, rel=1e-6)
    assert found["std.error"][0] == pytest.approx(averages.std() / np.sqrt(18), rel=1e-6)
    assert len(fit.confint(method="profile")) == 3
    assert len(fit.influence()) == 18
    np.testing.assert_allclose(fit.residuals(), rows["Reaction"] - fit.predict())
    low, high = fit.predict_interval(kind="row")
    assert np.mean((low < rows["Reaction"]) & (rows["Reaction"] < high)) > 0.9
    with pytest.raises(ValueError, match="rows of all groups are needed for tests"):
        fit.published().tests()
    with pytest.raises(TypeError, match=r"the mixed model 'y ~ 1 \+ \(1 | Subject\)' has"):
        means.tests()
