"""Tests of terms by F: against anova of lmerTest."""

import numpy as np
import pandas as pd
import pytest
from r_fits import data_of, fit_of, stored

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
    with pytest.raises(ValueError, match="type must be 'wald', 'III' or None"):
        fit_of("cake").tests(type="II")


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


@pytest.mark.parametrize("weights", [None, "w"])
@pytest.mark.parametrize(
    "formula", ["Reaction ~ 1 + (1 | Subject)", "Reaction ~ 1 + (1 | s / Subject)"]
)
def test_means_of_groups_are_tested_as_the_same_model(formula, weights):
    """They had no tests, profiles, margins, residuals or influences."""
    rows = data_of("sleepstudy")
    numbers = np.unique(rows["Subject"], return_inverse=True)[1]
    rows = rows.assign(s=numbers % 6, w=1.0 + np.arange(len(rows)) % 3)
    fit = eb.from_formula(formula, rows, weights=weights)
    assert type(fit.estimator_) is eb.GaussianEB
    other = eb.from_formula(formula, rows, eb.LinearEB(), weights=weights)
    pd.testing.assert_frame_equal(fit.tests(), other.tests())
    pd.testing.assert_frame_equal(fit.tests(ddf="kenward-roger"), other.tests(ddf="kenward-roger"))
    found = fit.tests()
    # the two searches end within 1e-4 of the variances
    np.testing.assert_allclose(found["estimate"][0], fit.tidy("fixed")["estimate"][0], rtol=1e-5)
    np.testing.assert_allclose(found["std.error"][0], fit.tidy("fixed")["std.error"][0], rtol=1e-3)
    pd.testing.assert_frame_equal(fit.margins().frame(), other.margins().frame())
    np.testing.assert_allclose(
        fit.residuals(), rows["Reaction"] - fit.predict(), rtol=1e-3, atol=0.1
    )
    pd.testing.assert_frame_equal(fit.influence(), other.influence())
    for ends in zip(fit.predict_interval(rows), other.predict_interval(rows), strict=True):
        np.testing.assert_array_equal(*ends)
    pd.testing.assert_frame_equal(
        fit.confint(ddf="satterthwaite"), other.confint(ddf="satterthwaite")
    )


def test_means_of_groups_have_profiles():
    """Of sleepstudy, as `confint` of lme4 has them; it was a ValueError."""
    fit = eb.from_formula("Reaction ~ 1 + (1 | Subject)", data_of("sleepstudy"))
    found = fit.confint(method="profile")
    other = eb.from_formula(fit.formula, data_of("sleepstudy"), eb.LinearEB())
    pd.testing.assert_frame_equal(found, other.confint(method="profile"))
    assert len(found) == 3
    with pytest.raises(ValueError, match="has no rows"):
        fit.published().tests()
