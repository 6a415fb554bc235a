"""`ebfed fit --family`: every kind of rows, its columns, and `ebfed predict` from its file."""

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import ebfed as eb
from ebfed.cli.app import app
from ebfed.cli.options import FamilyName, FederatedFamily
from ebfed.formula.choice import FAMILIES

runner = CliRunner()
RNG = np.random.default_rng(0)
GROUP = np.repeat([f"{k:03d}" for k in range(30)], 8)
RATE = np.repeat(RNG.gamma(4, 0.5, 30), 8)
TIME = RNG.exponential(1 / RATE)
ROWS = pd.DataFrame(
    {
        "ward": GROUP,
        "score": RNG.normal(0, np.repeat(np.sqrt(6 / RNG.chisquare(6, 30)), 8)).round(4),
        "cases": RNG.poisson(3 * RATE * RNG.gamma(2, 0.5, 240)),
        "years": 3.0,
        "party": RNG.choice(["blue", "green", "red"], 240, p=[0.5, 0.3, 0.2]),
        "days": np.minimum(TIME, 1.0).round(4),
        "ended": (TIME < 1.0).astype(int),
    }
)
# Family, columns of the command, and the same in Python.
KINDS = {
    "variance": (("--value", "score"), lambda: eb.VarianceEB().fit(ROWS[["score"]], groups=GROUP)),
    "negative_binomial": (
        ("--value", "cases", "--exposure", "years"),
        lambda: eb.NegativeBinomialEB().fit(
            ROWS[["cases"]], groups=GROUP, exposure=ROWS["years"].to_numpy()
        ),
    ),
    "categorical": (
        ("--value", "party"),
        lambda: eb.CategoricalEB().fit(ROWS[["party"]], groups=GROUP),
    ),
    "duration": (
        ("--value", "days", "--observed", "ended"),
        lambda: eb.DurationEB().fit(
            ROWS[["days"]], groups=GROUP, observed=ROWS["ended"].to_numpy()
        ),
    ),
}


def invoke(*arguments):
    return runner.invoke(app, [str(argument) for argument in arguments])


def refusal(*arguments):
    """The one line that a mistake ends with."""
    result = invoke(*arguments)
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    return line


@pytest.fixture
def table(tmp_path):
    ROWS.to_csv(tmp_path / "rows.csv", index=False)
    return tmp_path / "rows.csv"


@pytest.mark.parametrize("family", KINDS)
def test_the_command_fits_what_python_fits(family, table, tmp_path):
    columns, fit = KINDS[family]
    out, saved = tmp_path / "out.csv", tmp_path / "fit.json"
    options = ("--group", "ward", *columns, "--family", family, "--out", out, "--save", saved)
    result = invoke("fit", table, *options)
    assert result.exit_code == 0, result.output
    expected = fit().posterior().to_frame()
    found = pd.read_csv(out, dtype={"ward": str})
    np.testing.assert_allclose(found["estimate"], expected["estimate"], rtol=1e-9)
    np.testing.assert_allclose(found["upper"], expected["upper"], rtol=1e-9)
    assert found["ward"].tolist() == expected["group"].tolist()
    assert "Wrote 30 groups" in result.stdout
    # the same rows through the file, from another table
    named = ("--group", "ward", *(columns if family in ("duration", "categorical") else ()))
    named += columns[2:] if family == "negative_binomial" else ()
    again = invoke("predict", saved, table, *named, "--out", tmp_path / "again.csv")
    assert again.exit_code == 0, again.output
    later = pd.read_csv(tmp_path / "again.csv", dtype={"ward": str})
    np.testing.assert_allclose(later["estimate"], found["estimate"], rtol=1e-9)


def test_positive_values_are_saved_with_their_formula(table, tmp_path):
    options = (
        "--group",
        "ward",
        "--value",
        "days",
        "--family",
        "gamma",
        "--out",
        tmp_path / "o.csv",
    )
    result = invoke("fit", table, *options, "--save", tmp_path / "fit.json")
    assert result.exit_code == 0, result.output
    expected = eb.from_formula("days ~ 1 + (1 | ward)", ROWS, family="gamma")
    found = pd.read_csv(tmp_path / "o.csv")
    np.testing.assert_allclose(found["estimate"], expected.posterior().mean[:, 0], rtol=1e-9)
    again = invoke("predict", tmp_path / "fit.json", table, "--out", tmp_path / "again.csv")
    assert again.exit_code == 0, again.output
    later = pd.read_csv(tmp_path / "again.csv")
    np.testing.assert_allclose(later["prediction"], expected.predict(ROWS), rtol=1e-9)


def test_durations_without_a_column_are_all_observed(table):
    result = invoke("fit", table, "--group", "ward", "--value", "days", "--family", "duration")
    assert result.exit_code == 0, result.output
    expected = eb.DurationEB().fit(ROWS[["days"]], groups=GROUP)
    assert f"{expected.prior_.mean_[0]:.4g}" in result.stdout


@pytest.mark.parametrize("words", [("False", "True"), ("false", "TRUE")])
def test_durations_of_which_it_is_not_known_whether_they_ended(words, tmp_path):
    rows = pd.DataFrame({"g": list("aabb") * 5, "days": np.arange(20) + 1.0})
    ended = np.arange(20) % 3 > 0
    rows["ended"] = np.where(ended, words[1], words[0])
    rows.loc[4, "ended"] = ""
    rows.to_csv(tmp_path / "rows.csv", index=False)
    columns = ("--group", "g", "--value", "days", "--family", "duration", "--observed", "ended")
    out = tmp_path / "out.csv"
    result = invoke("fit", tmp_path / "rows.csv", *columns, "--na-action", "drop", "--out", out)
    assert result.exit_code == 0, result.output
    assert "Left out 1 of 20 rows." in result.stderr
    known = np.arange(20) != 4
    expected = eb.DurationEB().fit(
        rows["days"][known], groups=rows["g"][known], observed=ended[known]
    )
    found = pd.read_csv(out)["estimate"]
    np.testing.assert_allclose(found, expected.posterior().mean[:, 0], rtol=1e-9)


@pytest.mark.parametrize("family", ["variance", "duration"])
def test_other_populations(family, table):
    columns, _ = KINDS[family]
    result = invoke(
        "fit", table, "--group", "ward", *columns, "--family", family, "--prior", "log_spline"
    )
    assert result.exit_code == 0, result.output
    assert "LogSpline" in result.stdout
    line = refusal("fit", table, "--group", "ward", *columns, "--family", family, "--prior", "beta")
    assert "got 'beta'" in line


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--value", "days", "--observed", "ended"), "--observed goes with --family duration"),
        (("--value", "days", "--family", "duration", "--observed", "days"), "different columns"),
        (("--value", "days", "--family", "duration", "--observed", "over"), "(--observed) among"),
        (("--value", "party", "--family", "duration"), "column 'party' is not numeric"),
        (("--value", "score", "--family", "duration"), "positive durations"),
        (("--value", "days", "--family", "duration", "--observed", "cases"), "1 where the event"),
        (("--value", "cases", "--exposure", "years", "--family", "variance"), "--exposure goes"),
        (("--value", "score", "--family", "negative_binomial"), "count"),
    ],
)
def test_mistakes(options, message, table):
    assert message in refusal("fit", table, "--group", "ward", *options)


def test_formulas_have_no_censored_durations(table):
    line = refusal("fit", table, "--formula", "days ~ 1 + (1 | ward)", "--family", "duration")
    assert "--group and --value, not --formula" in line


def test_rows_that_are_incomplete(tmp_path):
    ROWS.assign(ended=ROWS["ended"].where(ROWS.index > 2)).to_csv(path := tmp_path / "a.csv")
    options = ("--group", "ward", "--value", "days", "--family", "duration", "--observed", "ended")
    assert "3 of 240 rows are incomplete" in refusal("fit", path, *options)
    result = invoke("fit", path, *options, "--na-action", "drop")
    assert result.exit_code == 0, result.output
    assert "Left out 3 of 240 rows." in result.stderr


def test_predict_refuses_what_the_fit_does_not_take(table, tmp_path):
    saved = tmp_path / "fit.json"
    invoke("fit", table, "--group", "ward", "--value", "score", "--save", saved)
    line = refusal("predict", saved, table, "--observed", "ended")
    assert "--observed is not for a fit of GaussianEB" in line


def test_families_have_the_names_of_formulas():
    assert {family.value for family in FamilyName} == {*FAMILIES, "duration"}
    assert {family.value for family in FederatedFamily} < {family.value for family in FamilyName}
