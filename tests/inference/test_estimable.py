"""Predictions, margins, tests and intervals of what rows do not identify are NaN, in all doors."""

import warnings

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import ebfed as eb
from ebfed.cli.app import app
from ebfed.inference.estimable import Estimable
from ebfed.priors import IdentificationWarning

PLANE = "x + dup"  # dup = 2 x + 1
CELL = "a * b + x"  # without rows of a = r, b = t
ON_PLANE = pd.DataFrame({"x": [1.0, 1.0], "dup": [3.0, 30.0], "g": 0, "h": 0, "c": 0})
CELLS = pd.DataFrame({"a": "r", "b": ["s", "t"], "x": 0.0, "g": 0, "h": 0, "c": 0})
RESPONSES = {
    "y": "gaussian",
    "k": "poisson",
    "w": "negative_binomial",
    "v": "binomial",
    "u": "gamma",
    "o": "ordinal",
}
MODELS = [  # response, groups
    *((name, "(1 | g)") for name in RESPONSES),
    ("y", "(x | g)"),
    ("y", "(1 | h / g)"),
    ("k", "(1 | h / g)"),
    ("y", "(1 | g) + (1 | c)"),
    ("k", "(1 | g) + (1 | c)"),
    ("v", "(1 | g) + (1 | c)"),
    ("y", "(x | g) + (1 | c)"),
]


def rows():
    rng = np.random.default_rng(1)
    n, g = 240, np.repeat(np.arange(24), 10)
    x, a, b = rng.normal(size=n), rng.integers(0, 3, n), rng.integers(0, 2, n)
    eta = 0.4 * x + 0.3 * a - 0.2 * b + rng.normal(0, 0.5, 24)[g]
    latent = eta + rng.logistic(size=n)
    frame = pd.DataFrame({"g": g, "h": g // 4, "c": rng.integers(0, 8, n), "x": x})
    return frame.assign(
        dup=2 * x + 1,
        a=np.array(list("pqr"))[a],
        b=np.array(list("st"))[b],
        y=eta + rng.normal(size=n),
        k=rng.poisson(np.exp(eta)),
        w=rng.poisson(np.exp(eta) * rng.gamma(2, 0.5, n)),
        v=(latent > 0) * 1,
        u=rng.gamma(3, np.exp(eta) / 3),
        o=1 + (latent > -0.5) + (latent > 1),
    )


def fitted(response, fixed, groups, estimator=None):
    frame = rows()
    if fixed == CELL:
        frame = frame[(frame["a"] != "r") | (frame["b"] != "t")].reset_index(drop=True)
    family = None if estimator else RESPONSES[response]
    with pytest.warns(IdentificationWarning, match="are collinear") as caught:
        fit = eb.from_formula(f"{response} ~ {fixed} + {groups}", frame, estimator, family=family)
    named = [each.message.args[0] for each in caught if "collinear" in str(each.message)]
    return frame, fit, named


def quiet(function, *arguments, **options):
    """Call a function that warns of what is NaN."""
    with pytest.warns(IdentificationWarning, match="not identified, and NaN"):
        return function(*arguments, **options)


def numbers(fit, new):
    """Expected responses of rows, or probabilities."""
    return fit.predict_proba(new)[:, 1] if hasattr(fit, "classes_") else fit.predict(new)


@pytest.mark.parametrize(("response", "groups"), MODELS)
def test_off_a_collinear_plane(response, groups):
    frame, fit, named = fitted(response, PLANE, groups)
    assert named[0].startswith("Columns of X are collinear ('intercept', 'x', 'dup'): of 3 ")
    assert named[0] in fit.notes_
    found = quiet(numbers, fit, ON_PLANE)
    assert np.isnan(found).tolist() == [False, True]
    with warnings.catch_warnings():  # rows of the fit are on the plane
        warnings.simplefilter("error")
        assert np.isfinite(numbers(fit, frame)).all()
    if response != "v" or "+" in groups:
        for kind in ("row", "mean"):
            ends = quiet(fit.predict_interval, ON_PLANE, kind=kind)
            assert np.isnan(ends).tolist() == [[False, True]] * 2
    for table in (quiet(fit.tests), fit.confint(), fit.tidy("fixed"), fit.fixef()):
        assert np.isnan(table.select_dtypes(float)).all(axis=None)
    mean = fit.margins("x").frame()  # at the means of x and dup
    assert np.isfinite(mean["estimate"]).all()
    apart = quiet(fit.margins("dup", at={"dup": [1.0, 3.0]}).frame)
    assert np.isnan(apart["estimate"]).all()


@pytest.mark.parametrize(("response", "groups"), MODELS)
def test_an_empty_cell(response, groups, tmp_path):
    _, fit, named = fitted(response, CELL, groups)
    assert "('a[T.r]:b[T.t]'): of 7 mean coefficients only 6" in named[0]
    found = quiet(numbers, fit, CELLS)
    assert np.isnan(found).tolist() == [False, True]
    for table in (quiet(fit.tests), fit.confint(), fit.tidy("fixed")):
        empty = table["term"] == "a[T.r]:b[T.t]"
        columns = table.select_dtypes(float).drop(columns="df", errors="ignore")
        assert (empty == np.isnan(columns).T).all(axis=None)
    margins = quiet(fit.margins(["a", "b"]).frame)
    empty = (margins["a"] == "r") & (margins["b"] == "t")
    for name in ("estimate", "std.error", "conf.low", "conf.high"):
        assert (np.isnan(margins[name]) == empty).all()
    fit.save(tmp_path / "fit.json")
    again = eb.load_fit(tmp_path / "fit.json")
    np.testing.assert_array_equal(quiet(numbers, again, CELLS), found)


@pytest.mark.parametrize("groups", ["(1 | g)", "(1 | g) + (1 | c)"])
@pytest.mark.parametrize("response", ["y", "k"])
def test_the_fit_is_that_without_the_column(response, groups):
    """As lme4's, which drops it; a term is tested by what is left of it."""
    frame, fit, _ = fitted(response, CELL, groups)
    columns = {"q": frame["a"] == "q", "r": frame["a"] == "r", "t": frame["b"] == "t"}
    frame = frame.assign(**{name: each * 1.0 for name, each in columns.items()})
    frame["qt"] = frame["q"] * frame["t"]
    formula = f"{response} ~ q + r + t + x + qt + {groups}"
    least = eb.from_formula(formula, frame, family=RESPONSES[response])
    np.testing.assert_allclose(fit.log_likelihood_, least.log_likelihood_, rtol=1e-8)
    np.testing.assert_allclose(fit.mean_[:6], least.mean_, atol=1e-4)
    error = np.sqrt(np.diag(fit.mean_covariance_))
    np.testing.assert_allclose(error[:6], np.sqrt(np.diag(least.mean_covariance_)), rtol=1e-3)
    joint = fit.tests(type="wald")
    one = joint[joint["term"] == "a:b"].iloc[0]
    single = least.tests()
    p = single["p.value"][single["term"] == "qt"].iloc[0]
    assert one["num.df"] == 1
    np.testing.assert_allclose(one["p.value"], p, rtol=1e-3)


@pytest.mark.parametrize("method", ["aghq", "ep", "laplace"])
def test_logistic_regression_by_each_method(method):
    _, fit, _ = fitted("v", PLANE, "(1 | g)", eb.LogisticEB(method=method))
    found = quiet(fit.predict_proba, ON_PLANE)
    assert np.isnan(found).tolist() == [[False] * 2, [True] * 2]


@pytest.mark.parametrize("share", ["groups", "sums"])
@pytest.mark.parametrize("estimator", [eb.LinearEB, eb.GeneralizedEB])
def test_without_a_formula(estimator, share):
    frame = rows()
    X, y = frame[["x", "dup"]], frame["k"]
    with pytest.warns(IdentificationWarning, match="'intercept', 'x', 'dup'"):
        fit = estimator(varying=["intercept"], share=share).fit(X, y, groups=frame["g"])
    for groups in (None, [0, 0]):
        found = quiet(fit.predict, ON_PLANE[["x", "dup"]], groups=groups)
        assert np.isnan(found).tolist() == [False, True]


def test_covariates_of_groups():
    frame = rows().assign(
        z=lambda f: f["x"], p=lambda f: f["g"] % 5, q=lambda f: 3 * (f["g"] % 5) - 1
    )
    with pytest.warns(IdentificationWarning, match="'intercept', 'intercept:p', 'intercept:q'"):
        fit = eb.LinearEB(varying=["intercept"]).fit(
            frame[["z", "p", "q"]], frame["y"], groups=frame["g"], covariates=["p", "q"]
        )
    new = pd.DataFrame({"z": [0.0, 0.0], "p": 1, "q": [2, 7]})
    found = quiet(fit.predict, new, groups=[100, 101])
    assert np.isnan(found).tolist() == [False, True]


def test_the_command_line(tmp_path):
    frame = rows()
    frame.to_csv(tmp_path / "rows.csv", index=False)
    ON_PLANE.to_csv(tmp_path / "new.csv", index=False)
    paths = [str(tmp_path / name) for name in ("rows.csv", "new.csv", "fit.json", "out.csv")]
    run, options = CliRunner().invoke, ["--formula", "k ~ x + dup + (1 | g)"]
    options += ["--family", "poisson", "--save", paths[2]]
    made = run(app, ["fit", paths[0], *options])
    assert made.exit_code == 0, made.output
    assert "collinear ('intercept', 'x', 'dup'):" in " ".join(made.output.split())
    found = run(app, ["predict", paths[2], paths[1], "--out", paths[3]])
    assert found.exit_code == 0, found.output
    assert (
        "Warning: 1 of 2 rows are not identified, and NaN: the columns 'intercept'" in found.stderr
    )
    predicted = pd.read_csv(paths[3])
    assert np.isnan(predicted.iloc[:, -1]).tolist() == [False, True]


def test_part_of():
    """Of two contrasts, of which one is estimable, and a sum of the others is."""
    known = Estimable(np.array([[0.0], [1.0], [-1.0]]), ["a", "b", "c"])
    assert known.columns == ["b", "c"]
    part = known.part_of(np.eye(3)[1:])
    np.testing.assert_allclose(np.abs(part), [[0, np.sqrt(0.5), np.sqrt(0.5)]])
    assert part[0, 1] * part[0, 2] > 0
    assert known.part_of(np.array([[0.0, 1.0, 0.0]])).shape == (0, 3)


def test_rows_of_the_fit_are_known_in_any_unit():
    """Of a column in large units some rows are small: the constant keeps them on the plane."""
    frame = rows()
    x = (frame["x"].to_numpy() + 3) * 1e8
    x[:3] = [-4e5, 2e5, 7.0]
    frame = frame.assign(x=x, dup=2 * x + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdentificationWarning)
        for family in ("gaussian", "ordinal"):
            name = {"gaussian": "y", "ordinal": "o"}[family]
            fit = eb.from_formula(f"{name} ~ x + dup + (1 | g)", frame, family=family)
            assert np.isfinite(fit.predict(frame)).all()
