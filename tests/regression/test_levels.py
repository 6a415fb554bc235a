"""Factors that are both fixed and random: their variance is not identified, and is left at zero."""

import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest

import ebfed as eb
from ebfed.priors import IdentificationWarning
from ebfed.testing.nodes import fit_on_nodes


def rows(seed=1):
    rng = np.random.default_rng(seed)
    arm, ind = np.repeat([0, 1, 2], 24), np.repeat(np.arange(18), 4)
    frame = pd.DataFrame({"arm": np.array(list("abc"))[arm], "ind": ind, "x": rng.normal(size=72)})
    frame["w"] = rng.integers(0, 8, 72)
    effects = rng.normal(0, 1.2, 18)[ind] + rng.normal(0, 1, 8)[frame["w"]]
    frame["y"] = arm + effects + frame["x"] + rng.normal(size=72)
    return frame.assign(k=rng.poisson(np.exp(0.3 * frame["y"] - 0.5)))


def figures(fit, group=None):
    """Estimates and errors, of all groups or without those of one."""
    table = fit.tidy()
    return table[table["group"] != group].drop(columns="statistic").reset_index(drop=True)


@pytest.mark.parametrize("method", ["reml", "ml"])
@pytest.mark.parametrize(
    ("random", "least"),
    [
        ("(1 | arm / ind)", "(1 | ind)"),
        ("(1 | arm) + (1 | arm:ind)", "(1 | ind)"),
        ("(1 | arm) + (1 | w)", "(1 | w)"),
        ("(1 | arm) + (1 | ind) + (1 | w)", "(1 | ind) + (1 | w)"),
        ("(1 | arm) + (x | w)", "(x | w)"),
        ("(1 | arm) + (x || ind) + (1 | w)", "(x || ind) + (1 | w)"),
    ],
)
def test_the_rest_is_as_without_the_term(random, least, method):
    """Errors of `arm` were millions, and crossed fits ended in an OverflowError."""
    frame = rows()
    with pytest.warns(IdentificationWarning, match="'arm' is not identified, as columns"):
        fit = eb.from_formula(f"y ~ arm + x + {random}", frame, method=method)
    other = eb.from_formula(f"y ~ arm + x + {least}", frame, method=method)
    assert any("variance of intercept" in note and "'arm'" in note for note in fit.notes_)
    table = fit.tidy()
    assert table["estimate"][table["group"] == "arm"].tolist() == [0.0]
    found, expected = figures(fit, "arm"), figures(other)
    assert found["term"].tolist() == expected["term"].tolist()
    # a crossed fit beside one of a level: two searches that stop 1e-6 of the deviance apart
    np.testing.assert_allclose(found["estimate"], expected["estimate"], atol=1e-3)
    np.testing.assert_allclose(found["std.error"], expected["std.error"], rtol=1e-3)
    np.testing.assert_allclose(fit.log_likelihood_, other.log_likelihood_, rtol=1e-7)
    assert fit.glance()["npar"][0] == other.glance()["npar"][0]
    for ddf in ["satterthwaite", "kenward-roger"][: 1 + (method == "reml")]:
        a, b = (each.tests(ddf=ddf) for each in (fit, other))
        np.testing.assert_allclose(a["std.error"], b["std.error"], rtol=1e-3)
        np.testing.assert_allclose(a["df"], b["df"], rtol=1e-2)


@pytest.mark.parametrize("share", ["groups", "sums"])
@pytest.mark.parametrize("covariance", ["diag", "full", "spherical"])
def test_one_level(covariance, share):
    """The error of `arm` was 1.77 for 0.50, without a word."""
    frame = pd.get_dummies(rows(), columns=["arm"], drop_first=True, dtype=float)
    X = frame[["arm_b", "arm_c", "x"]]
    options = {"varying": ["intercept"], "share": share}
    with pytest.warns(IdentificationWarning, match="variance of intercept between groups is not"):
        fit = eb.LinearEB(covariance, **options).fit(X, frame["y"], groups=rows()["arm"])
    design = np.column_stack([np.ones(72), X])
    least, squares = np.linalg.lstsq(design, frame["y"], rcond=None)[:2]
    noise = squares[0] / 68
    np.testing.assert_allclose(fit.mean_, least, atol=1e-9)
    np.testing.assert_allclose(fit.noise_variance_, noise)
    np.testing.assert_allclose(fit.mean_covariance_, noise * np.linalg.inv(design.T @ design))
    assert not fit.covariance_.any()
    assert fit.n_parameters_ == 5


def test_slopes_beside_a_fixed_factor_are_identified():
    """Of the intercept and the slope of a factor, only the first is fixed too."""
    frame = rows()
    frame["y"] += frame["x"] * (frame["arm"] == "c") * 3
    with pytest.warns(IdentificationWarning, match="variance of intercept between"):
        fit = eb.from_formula("y ~ arm + x + (1 + x | arm)", frame)
    other = eb.from_formula("y ~ arm + x + (0 + x | arm)", frame)
    np.testing.assert_allclose(fit.covariance_[3, 3], other.covariance_[3, 3], rtol=1e-4)
    assert fit.covariance_[3, 3] > 1
    np.testing.assert_allclose(fit.tests()["std.error"], other.tests()["std.error"], rtol=1e-3)
    table = fit.confint(method="profile")
    assert table["term"][4:].tolist()[:3] == ["sd__intercept", "sd__x", "cor__intercept.x"]
    assert np.isnan(table["conf.low"][[4, 6]]).all()
    assert np.isfinite(table["conf.high"][5])
    with pytest.warns(IdentificationWarning, match="variance of intercept between levels of 'arm'"):
        crossed = eb.from_formula("y ~ arm + x + (1 + x | arm) + (1 | w)", frame)
    less = eb.from_formula("y ~ arm + x + (0 + x | arm) + (1 | w)", frame)
    np.testing.assert_allclose(crossed.variances_["arm"], [0, less.variances_["arm"][0]], rtol=1e-3)
    np.testing.assert_allclose(crossed.tests()["df"], less.tests()["df"], rtol=1e-2)


@pytest.mark.parametrize("random", ["(1 | arm / ind)", "(1 | arm) + (1 | w)", "(1 | arm)"])
def test_counts(random):
    """The likelihood is largest without a variance that the fixed effects have taken."""
    frame = rows()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdentificationWarning)
        fit = eb.from_formula(f"k ~ arm + x + {random}", frame, family="poisson")
    table = fit.tidy()
    assert table["estimate"][table["group"] == "arm"].tolist() == [0.0]


def test_a_covariate_of_two_groups():
    """A column that differs between two groups alone is a fixed effect of both."""
    frame = rows()[rows()["arm"] != "c"].assign(z=lambda f: (f["arm"] == "b") * 2.5 + 1)
    with pytest.warns(IdentificationWarning, match="tell these groups apart"):
        fit = eb.from_formula("y ~ z + (1 | arm)", frame)
    assert fit.covariance_[0, 0] == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert eb.from_formula("y ~ x + (1 | arm)", rows()).notes_ == []


@pytest.mark.parametrize(
    ("formula", "far"),
    [
        ("y ~ year | g", True),
        ("y ~ year + (1 + year || g)", True),
        ("y ~ year + (1 + year | g)", False),
        ("y ~ year + (1 | g)", False),
        ("y ~ x | g", False),
        ("y ~ year + (1 + year || top/g)", True),
        ("y ~ year + (1 | g) + (0 + year | g) + (1 | h)", True),
        ("y ~ year + (1 + year | g) + (1 | h)", False),
    ],
)
@pytest.mark.parametrize("family", ["gaussian", "poisson"])
def test_columns_far_from_zero_are_noted_where_that_matters(formula, far, family):
    rng = np.random.default_rng(0)
    g = np.repeat(np.arange(20), 8)
    x, u = rng.normal(size=160), rng.normal(size=(20, 2)) / 2
    rows = pd.DataFrame({"g": g, "top": g % 5, "h": rng.integers(0, 6, 160), "x": x})
    line = 1 + 0.3 * x + u[g, 0] + u[g, 1] * x / 2
    rows = rows.assign(y=rng.poisson(np.exp(line)), year=x + 2000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such fits may not converge
        fit = eb.from_formula(formula, rows, family=family)
    assert any("year is far from zero" in note for note in fit.notes_) == far


@pytest.mark.parametrize("covariance", ["diag", "full", "spherical"])
@pytest.mark.parametrize("share", ["groups", "sums"])
@pytest.mark.parametrize("make", [eb.LinearEB, partial(eb.GeneralizedEB, "poisson")])
def test_columns_far_from_zero_are_noted_of_rows_at_nodes(make, share, covariance):
    """By sums that are sent in any case: those of products of columns."""
    rng = np.random.default_rng(0)
    g = np.repeat(np.arange(20), 8)
    x, u = rng.normal(size=160), rng.normal(size=(20, 2)) / 2
    y = rng.poisson(np.exp(1 + 0.3 * x + u[g, 0] + u[g, 1] * x / 2))
    rows = {"X": pd.DataFrame({"year": x + 2000, "x": x**2}), "y": y, "groups": g}
    halves = [{name: each[some] for name, each in rows.items()} for some in (g < 10, g >= 10)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such fits may not converge
        (node, _), *_ = fit_on_nodes(make(covariance=covariance, share=share), halves)
    noted = [note.split(" is far from zero")[0] for note in node.notes_ if "is far" in note]
    assert noted == ([] if covariance == "full" else ["year"])
