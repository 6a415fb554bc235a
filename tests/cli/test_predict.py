"""`ebfed fit --save` and `ebfed predict`: what they write and print, and what they refuse."""

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import ebfed as eb
from ebfed.cli.app import app

runner = CliRunner()


def invoke(*arguments):
    return runner.invoke(app, [str(argument) for argument in arguments])


def refusal(*arguments):
    """The one line that a mistake ends with."""
    result = invoke(*arguments)
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith("ebfed: ")
    return line


@pytest.fixture
def saved(file, tmp_path):
    options = ("--group", "fips", "--value", "score", "--save", tmp_path / "fit.json")
    result = invoke("fit", file, *options)
    assert result.exit_code == 0, result.output
    assert "Wrote the fit to" in result.stdout
    return tmp_path / "fit.json"


def test_a_saved_fit_estimates_the_groups_of_a_table(saved, rows, tmp_path):
    later = rows.assign(fips=[f"{k + 5:05d}" for k in rows["number"]], score=rows["score"] + 1)
    later.to_csv(tmp_path / "later.csv", index=False)
    result = invoke("predict", saved, tmp_path / "later.csv", "--out", tmp_path / "out.csv")
    assert result.exit_code == 0, result.output
    found = pd.read_csv(tmp_path / "out.csv", dtype={"fips": str})
    fit = eb.GaussianEB().fit(rows[["fips", "score"]], groups="fips")
    expected = fit.posterior(later[["fips", "score"]]).to_frame()
    assert found["fips"].tolist() == expected["fips"].tolist()
    np.testing.assert_allclose(found["estimate"], expected["estimate"], rtol=1e-12)
    printed = invoke("predict", saved, tmp_path / "later.csv", "--level", 0.5)
    assert "Estimates, with intervals of 50 %" in printed.stdout


def test_without_groups_the_file_has_no_label(file, rows, tmp_path):
    options = ("--group", "fips", "--value", "won", "--family", "binomial")
    invoke("fit", file, *options, "--save", tmp_path / "fit.json", "--no-groups")
    text = (tmp_path / "fit.json").read_text()
    assert '"00010"' not in text
    result = invoke("predict", tmp_path / "fit.json", file)
    assert result.exit_code == 0, result.output
    assert "00010" in result.stdout


def test_counts_have_exposures(rows, tmp_path):
    rng = np.random.default_rng(0)
    rows = rows.assign(deaths=rng.poisson(3, len(rows)), years=rng.uniform(1, 2, len(rows)))
    rows.to_csv(tmp_path / "rows.csv", index=False)
    options = ("--group", "fips", "--value", "deaths", "--exposure", "years", "--family", "poisson")
    result = invoke("fit", tmp_path / "rows.csv", *options, "--save", tmp_path / "fit.json")
    assert result.exit_code == 0, result.output
    out = tmp_path / "out.csv"
    result = invoke(
        "predict", tmp_path / "fit.json", tmp_path / "rows.csv", "--exposure", "years", "--out", out
    )
    assert result.exit_code == 0, result.output
    some = rows[["fips", "deaths", "years"]]
    expected = eb.PoissonEB().fit(some, groups="fips", exposure="years").predict()
    np.testing.assert_allclose(pd.read_csv(out)["estimate"], expected, rtol=1e-12)
    assert "exposure= must give" in refusal("predict", tmp_path / "fit.json", tmp_path / "rows.csv")


def test_rows_have_weights(rows, tmp_path):
    rng = np.random.default_rng(0)
    rows = rows.assign(w=rng.gamma(2, 1, len(rows)))
    rows.to_csv(tmp_path / "rows.csv", index=False)
    options = ("--group", "fips", "--value", "score", "--weight", "w")
    result = invoke("fit", tmp_path / "rows.csv", *options, "--save", tmp_path / "fit.json")
    assert result.exit_code == 0, result.output
    out = tmp_path / "out.csv"
    found = ("predict", tmp_path / "fit.json", tmp_path / "rows.csv", "--out", out)
    result = invoke(*found, "--weight", "w")
    assert result.exit_code == 0, result.output
    fit = eb.GaussianEB().fit(rows[["fips", "score", "w"]], groups="fips", sample_weight="w")
    np.testing.assert_allclose(pd.read_csv(out)["estimate"], fit.predict(), rtol=1e-9)
    assert "sample_weight= must give the weight" in refusal(*found)
    options = ("--group", "fips", "--value", "score", "--std-error", "w", "--weight", "w")
    assert "--std-error has none" in refusal("fit", tmp_path / "rows.csv", *options)


def test_a_regression_predicts_rows(file, rows, tmp_path):
    fit = eb.LinearEB().fit(rows[["fips", "number", "score"]], "score", groups="fips")
    fit.save(tmp_path / "fit.json")
    out = tmp_path / "out.csv"
    result = invoke("predict", tmp_path / "fit.json", file, "--out", out)
    assert result.exit_code == 0, result.output
    expected = fit.predict(rows[["fips", "number"]])
    np.testing.assert_allclose(pd.read_csv(out)["prediction"], expected, rtol=1e-12)
    assert "a fit of counts" in refusal("predict", tmp_path / "fit.json", file, "--exposure", "won")


def test_a_saved_formula_predicts_the_rows_of_a_table(file, rows, tmp_path):
    formula = "score ~ center(number) + (1 | fips)"
    saved, out = tmp_path / "fit.json", tmp_path / "out.csv"
    result = invoke("fit", file, "--formula", formula, "--save", saved)
    assert result.exit_code == 0, result.output
    result = invoke("predict", saved, file, "--out", out)
    assert result.exit_code == 0, result.output
    fit = eb.from_formula(formula, rows)
    np.testing.assert_allclose(pd.read_csv(out)["prediction"], fit.predict(), rtol=1e-12)
    assert "the formula names the groups" in refusal("predict", saved, file, "--group", "won")
    assert "without a formula" in refusal("predict", saved, file, "--exposure", "won")


@pytest.mark.parametrize("prior", ["normal", "point_laplace", "scale_mixture"])
def test_later_estimates_come_from_the_population_of_earlier_ones(prior, tmp_path):
    rng = np.random.default_rng(5)
    table = pd.DataFrame({"school": [f"{j:03d}" for j in range(60)], "se": rng.uniform(1, 2, 60)})
    table["effect"] = rng.normal(2, 1.5, 60) + table["se"] * rng.normal(size=60)
    files = {name: tmp_path / f"{name}.csv" for name in ("first", "later", "out")}
    table[:40].to_csv(files["first"], index=False)
    table[40:].to_csv(files["later"], index=False)
    columns = ("--group", "school", "--value", "effect", "--std-error", "se")
    past = tmp_path / "past.json"
    result = invoke("fit", files["first"], *columns, "--prior", prior, "--save", past)
    assert result.exit_code == 0, result.output
    fit = eb.posterior_from(table["effect"][:40], table["se"][:40], prior)
    assert f"{fit.prior.mean_[0]:.6g}" in result.stdout.split()
    result = invoke("predict", past, files["later"], *columns, "--out", files["out"])
    assert result.exit_code == 0, result.output
    found = pd.read_csv(files["out"], dtype={"school": str})
    expected = eb.posterior_from(table["effect"][40:], table["se"][40:], prior=fit.prior)
    np.testing.assert_allclose(found["estimate"], expected.mean[:, 0], rtol=1e-9)
    assert found["school"].tolist() == table["school"][40:].tolist()
    assert "--std-error goes with" in refusal("predict", past, files["later"], *columns[:4])


def test_mistakes_end_with_one_line(saved, file, tmp_path):
    score = ("fit", file, "--group", "fips", "--value", "score")
    assert "a saved fit is a .json file" in refusal(*score, "--save", tmp_path / "fit.txt")
    assert "--no-groups goes with --save" in refusal(*score, "--no-groups")
    errors = ("--std-error", "won", "--group", "fips", "--value", "score")
    assert "--std-error goes with a population" in refusal("predict", saved, file, *errors)
    assert "no column 'county'" in refusal("predict", saved, file, "--group", "county")
    assert "is not a whole file of a fit" in refusal("predict", file, file)
    assert "No such file" in refusal("predict", tmp_path / "none.json", file)
    assert "--level must lie between" in refusal("predict", saved, file, "--level", 2)


def test_rows_of_several_classes_have_the_probability_of_each(rows, tmp_path):
    party = np.random.default_rng(0).choice(["a", "b", "c d"], len(rows))
    rows.assign(party=party).to_csv(tmp_path / "rows.csv", index=False)
    options = ("--formula", "party ~ 1 | fips", "--family", "categorical")
    result = invoke("fit", tmp_path / "rows.csv", *options, "--save", tmp_path / "fit.json")
    assert result.exit_code == 0, result.output
    out = tmp_path / "out.csv"
    result = invoke("predict", tmp_path / "fit.json", tmp_path / "rows.csv", "--out", out)
    assert result.exit_code == 0, result.output
    found = pd.read_csv(out)[["prediction_a", "prediction_b", "prediction_c d"]]
    fit = eb.from_formula("party ~ 1 | fips", rows.assign(party=party), family="categorical")
    np.testing.assert_allclose(found, fit.predict(), rtol=1e-12)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_two_labels_are_an_event_and_the_other(rows, tmp_path, kind):
    """yes is the event, being the second in sorted order: the fit of 1 and 0."""
    word = np.where(rows["won"] == 1, "yes", "no")
    tables = {"plain": rows, "labels": rows.assign(won=word)}
    found, later = {}, {}
    for name, table in tables.items():
        path, fit, out = (tmp_path / f"{name}.{end}" for end in (kind, "json", "out.csv"))
        table.to_csv(path, index=False) if kind == "csv" else table.to_parquet(path)
        options = ("--group", "fips", "--value", "won", "--family", "binomial", "--out", out)
        result = invoke("fit", path, *options, "--save", fit)
        assert result.exit_code == 0, result.output
        assert ("The event is won = 'yes'." in result.stdout) == (name == "labels")
        found[name] = pd.read_csv(out, dtype={"fips": str})
        assert invoke("predict", fit, path, "--out", out).exit_code == 0
        later[name] = pd.read_csv(out, dtype={"fips": str})
        formula = ("--formula", "won ~ score + (1 | fips)", "--family", "binomial")
        result = invoke("fit", path, *formula, "--save", fit, "--out", tmp_path / "groups.csv")
        assert result.exit_code == 0, result.output
        assert invoke("predict", fit, path, "--out", out).exit_code == 0
        found[name + " rows"] = pd.read_csv(out)["prediction"]
    np.testing.assert_allclose(found["labels"]["estimate"], found["plain"]["estimate"], rtol=1e-6)
    np.testing.assert_allclose(later["labels"]["estimate"], later["plain"]["estimate"], rtol=1e-6)
    chance = found["labels rows"]
    assert ((chance > 0) & (chance < 1)).all()
    np.testing.assert_allclose(chance, found["plain rows"], rtol=1e-6)


def test_an_event_is_that_of_the_fit(rows, tmp_path):
    """The second level of a category, also where its column has one label, or another name."""
    word = pd.Categorical(np.where(rows["won"] == 1, "high", "low"), ["low", "high"])
    tables = {"numbers": rows, "labels": rows.assign(won=word)}
    found = {}
    for name, table in tables.items():
        fit, out = (tmp_path / f"{name}.{end}" for end in ("json", "csv"))
        table.to_parquet(tmp_path / "rows.parquet")
        won = table[rows["won"] == 1].rename(columns={"won": "result", "fips": "place"})
        won.assign(won=0).to_parquet(tmp_path / "won.parquet")
        options = ("--group", "fips", "--value", "won", "--family", "binomial", "--save", fit)
        assert invoke("fit", tmp_path / "rows.parquet", *options).exit_code == 0
        options = ("--group", "place", "--value", "result", "--out", out)
        result = invoke("predict", fit, tmp_path / "won.parquet", *options)
        assert result.exit_code == 0, result.output
        found[name] = pd.read_csv(out)["estimate"]
    assert found["labels"].min() > rows["won"].mean()
    np.testing.assert_allclose(found["labels"], found["numbers"], rtol=1e-6)
    word = word.rename_categories({"low": "none"})
    rows.assign(won=word).to_parquet(tmp_path / "rows.parquet")
    assert "'none'; the fit had 'low', 'high'" in refusal("predict", fit, tmp_path / "rows.parquet")


def test_rows_of_counts_are_predicted_with_their_exposure(rows, tmp_path):
    rng = np.random.default_rng(0)
    table = rows.assign(years=rng.uniform(1, 20, len(rows)))
    table["events"] = rng.poisson(table["years"])
    table.to_csv(tmp_path / "rows.csv", index=False)
    for formula in ("events ~ 1", "events ~ score"):
        text = f"{formula} + offset(log(years)) + (1 | fips)"
        fit, options = tmp_path / "fit.json", ("--family", "poisson", "--formula", text)
        assert invoke("fit", tmp_path / "rows.csv", *options, "--save", fit).exit_code == 0
        found = {}
        for kind in ("response", "rate", "link"):
            ends = ("--type", kind, "--out", tmp_path / "out.csv")
            result = invoke("predict", fit, tmp_path / "rows.csv", *ends)
            assert result.exit_code == 0, result.output
            found[kind] = pd.read_csv(tmp_path / "out.csv")["prediction"]
        np.testing.assert_allclose(found["response"], found["rate"] * table["years"], rtol=1e-6)
        # a mean over what is not known of the predictor is above that of its mean
        excess = np.log(found["response"]) - found["link"]
        assert excess.between(0, 0.5).all()
        assert found["response"].sum() == pytest.approx(table["events"].sum(), rel=0.02)


def test_shares_with_weights_are_of_so_many_trials(rows, tmp_path):
    rng = np.random.default_rng(1)
    n = rng.integers(2, 9, len(rows))
    table = rows.assign(n=n, p=rng.binomial(n, 0.4) / n)
    table.to_csv(tmp_path / "rows.csv", index=False)
    options = ("--family", "binomial", "--weight", "n", "--out", tmp_path / "out.csv")
    result = invoke("fit", tmp_path / "rows.csv", "--group", "fips", "--value", "p", *options)
    assert result.exit_code == 0, result.output
    found = pd.read_csv(tmp_path / "out.csv")["estimate"]
    text = ("--formula", "p ~ score + (1 | fips)")
    assert invoke("fit", tmp_path / "rows.csv", *text, *options).exit_code == 0
    fit = eb.from_formula("cbind(k, trials=n) | fips", table.assign(k=(table["p"] * n).round()))
    np.testing.assert_allclose(found, fit.estimator_.predict(), rtol=1e-6)


def test_dates_are_days_since_1970(rows, tmp_path):
    """Dates of a .csv file, as ISO 8601 writes them; labels stay text."""
    rng = np.random.default_rng(2)
    days = rng.integers(18000, 19000, len(rows))
    stamps = pd.Timestamp("1970-01-01") + pd.to_timedelta(days, unit="D")
    table = rows.assign(days=days, day=stamps.strftime("%Y-%m-%d"))
    table["fips"] = [f"2020-01-{k % 20 + 1:02d}" for k in rows["number"]]
    table.to_csv(tmp_path / "rows.csv", index=False)
    found = {}
    for name in ("day", "days"):
        fit, out = tmp_path / f"{name}.json", tmp_path / "out.csv"
        formula = ("--formula", f"score ~ {name} + (1 | fips)")
        result = invoke("fit", tmp_path / "rows.csv", *formula, "--save", fit)
        assert result.exit_code == 0, result.output
        assert invoke("predict", fit, tmp_path / "rows.csv", "--out", out).exit_code == 0
        found[name] = pd.read_csv(out)
    np.testing.assert_allclose(found["day"]["prediction"], found["days"]["prediction"], rtol=1e-6)
    assert found["day"]["day"].tolist() == table["day"].tolist()
    assert found["day"]["fips"].tolist() == table["fips"].tolist()
