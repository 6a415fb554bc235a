"""SQL of fits, run in DuckDB and SQLite: it equals `predict`, whatever the names and labels."""

import datetime as dt
import sqlite3
from contextlib import closing

import duckdb
import numpy as np
import pandas as pd
import pytest
import sqlglot
from sklearn.base import clone

import ebfed as eb
from ebfed.report.sql import DIALECTS, Query
from ebfed.report.view import view_of

# Sums in another order, and quotients of them, of up to a million rows: far above 1e-16 sqrt(n).
CLOSE = {"rtol": 1e-10, "atol": 1e-12}
SIZES = [10_000, pytest.param(1_000_000, marks=pytest.mark.slow)]
ENGINES = pytest.mark.parametrize("engine", ["duckdb", "sqlite"])
pytestmark = pytest.mark.filterwarnings("ignore::ebfed.priors.IdentificationWarning")


def run(sql, engine, **tables):
    """Run a query on frames; returns a frame in the order of its first column."""
    if engine == "duckdb":
        with duckdb.connect() as connection:
            for name, table in tables.items():
                connection.register(name, table)
            found = connection.sql(sql).df()
    else:
        with closing(sqlite3.connect(":memory:")) as connection:
            for name, table in tables.items():
                table.to_sql(name, connection, index=False)
            found = pd.read_sql(sql, connection)
    return found.sort_values(found.columns[0], kind="stable", ignore_index=True)


def made(n, seed=0):
    """Rows of n/20 groups, some of which a fit to the first 60 % does not see."""
    rng = np.random.default_rng(seed)
    code = np.sort(rng.integers(0, n // 20, n))
    theta = rng.normal(size=n // 20)[code]
    return pd.DataFrame(
        {
            "row": np.arange(n),
            "place": np.char.add("place ", code.astype(str)).astype(object),
            "value": theta + rng.normal(size=n) + 5,
            "won": (rng.random(n) < 1 / (1 + np.exp(-theta))).astype(float),
            "deaths": rng.poisson(np.exp(theta / 2)),
            "years": rng.uniform(0.5, 2, n),
            "x": rng.normal(size=n),
            "z": rng.integers(0, 3, n),
        }
    )


MEANS = {
    "GaussianEB": (eb.GaussianEB(), "value"),
    "known noise": (eb.GaussianEB(1.0, method="ml"), "value"),
    "no noise": (eb.GaussianEB(0.0), "value"),
    "one mean": (eb.GaussianEB(prior=eb.priors.Normal(variance=0.0)), "value"),
    "BernoulliEB": (eb.BernoulliEB(), "won"),
    "moments": (eb.BernoulliEB(method="moments"), "won"),
    "PoissonEB": (eb.PoissonEB(), "deaths"),
}


def fitted_means(name, rows):
    estimator, column = MEANS[name]
    return clone(estimator).fit(rows[["place", column]], groups="place"), column


@ENGINES
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", MEANS)
def test_means_and_rates_equal_predict(name, n, engine):
    rows = made(n)
    fit, column = fitted_means(name, rows[: int(0.6 * n)])
    frame = rows[["place", column]]
    sql = fit.to_sql(engine, columns=column, each_row=True)
    np.testing.assert_allclose(run(sql, engine, rows=rows)["estimate"], fit.predict(frame), **CLOSE)
    by_group = run(fit.to_sql(engine, columns=column), engine, rows=rows)
    expected = fit.posterior(frame).to_frame().sort_values("place", ignore_index=True)
    np.testing.assert_allclose(by_group["estimate"], expected["estimate"], **CLOSE)
    assert by_group["place"].tolist() == expected["place"].tolist()
    assert by_group["n"].tolist() == expected["n"].tolist()


@ENGINES
def test_sums_of_groups_equal_rows(engine):
    rows = made(2_000)
    for name in MEANS:
        fit, column = fitted_means(name, rows)
        parts = rows.assign(part=rows["row"] % 2).groupby(["place", "part"], as_index=False)
        sums = parts.agg(total=(column, "sum"), rows=(column, "size"))
        sql = fit.to_sql(engine, table="sums", columns="total", size="rows")
        found = run(sql, engine, sums=sums)
        np.testing.assert_allclose(
            found["estimate"], run(fit.to_sql(engine), engine, rows=rows)["estimate"], **CLOSE
        )


@ENGINES
def test_exposures_are_sizes(engine):
    rows = made(2_000)
    some = rows[["place", "deaths", "years"]]
    fit = eb.PoissonEB().fit(some, groups="place", exposure="years")
    found = run(fit.to_sql(engine, size="years", each_row=True), engine, rows=rows)
    np.testing.assert_allclose(found["estimate"], fit.predict(some, type="rate"), **CLOSE)


@ENGINES
def test_columns_are_estimated_one_by_one(engine):
    rows = made(2_000)
    fit = eb.GaussianEB().fit(rows[["place", "value", "x"]], groups="place")
    found = run(fit.to_sql(engine, each_row=True), engine, rows=rows)
    expected = fit.predict(rows[["place", "value", "x"]])
    np.testing.assert_allclose(found[["estimate_value", "estimate_x"]], expected, **CLOSE)


@ENGINES
@pytest.mark.parametrize("name", MEANS)
def test_groups_without_values_have_the_population(name, engine):
    rows = made(2_000)
    fit, column = fitted_means(name, rows)
    nothing = pd.DataFrame({"place": ["nobody", "nobody"], column: [np.nan, np.nan]})
    found = run(fit.to_sql(engine), engine, rows=nothing)
    assert found["n"].tolist() == [0]
    np.testing.assert_allclose(found["estimate"], fit.prior_.mean_, **CLOSE)


@ENGINES
def test_what_is_known_of_groups_may_be_a_table_or_nothing(engine):
    rows = made(2_000)
    fit, column = fitted_means("GaussianEB", rows[:1_200])
    frame, known = rows[["place", column]], pd.DataFrame({"place": fit.groups_})
    inline = run(fit.to_sql(engine), engine, rows=rows)
    by_table = run(fit.to_sql(engine, known="k1"), engine, rows=rows, k1=known)
    pd.testing.assert_frame_equal(by_table, inline)
    unseen = run(fit.to_sql(engine, known=False, each_row=True), engine, rows=rows)["estimate"]
    renamed = frame.assign(place="new " + frame["place"])
    np.testing.assert_allclose(unseen, fit.predict(renamed), **CLOSE)
    assert not np.allclose(unseen, fit.predict(frame), rtol=1e-10)  # it is not the same
    public = fit.published()
    assert public.to_sql(engine, group="place") == fit.to_sql(engine, known=False)


# Regressions -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def linear():
    fits = {}

    def fit(name, n):
        if (name, n) not in fits:
            rows = made(n)[: int(0.6 * n)]
            estimator = {
                "LinearEB": eb.LinearEB("full"),
                "one slope": eb.LinearEB(varying=["intercept"]),
                "no intercept": eb.LinearEB(fit_intercept=False),
                "AdaMix": eb.AdaMix(2, n_init=1, n_rounds=20, random_state=0),
                "MixtureLinearEB": eb.MixtureLinearEB(2, n_init=1, random_state=0),
                "LogisticEB": eb.LogisticEB(),
            }[name]
            y = rows["value"] if name != "LogisticEB" else np.where(rows["won"], "it's", "no")
            fits[name, n] = estimator.fit(rows[["place", "x", "z"]], y, groups="place")
        return fits[name, n]

    return fit


@ENGINES
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", ["LinearEB", "LogisticEB"])
def test_regressions_equal_predict(name, n, engine, linear):
    rows, fit = made(n), linear(name, n)
    found = run(fit.to_sql(engine), engine, rows=rows)["prediction"]
    expected = fit.predict(rows[["place", "x", "z"]])
    if name == "LogisticEB":
        assert found.tolist() == expected.tolist()
        assert found.nunique() == 2
    else:
        np.testing.assert_allclose(found, expected, **CLOSE)


@ENGINES
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", ["one slope", "no intercept", "AdaMix", "MixtureLinearEB"])
def test_other_regressions_equal_predict(name, engine, linear):
    rows, fit = made(2_000), linear(name, 2_000)
    found = run(fit.to_sql(engine), engine, rows=rows)["prediction"]
    np.testing.assert_allclose(found, fit.predict(rows[["place", "x", "z"]]), **CLOSE)


@ENGINES
def test_coefficients_may_be_a_table_or_nothing(engine, linear):
    rows, fit = made(2_000), linear("LinearEB", 2_000)
    inline = run(fit.to_sql(engine), engine, rows=rows)
    table = run(fit.to_sql(engine, known="coef"), engine, rows=rows, coef=fit.coef())
    pd.testing.assert_frame_equal(table, inline)
    unseen = run(fit.to_sql(engine, known=False), engine, rows=rows)["prediction"]
    np.testing.assert_allclose(unseen, fit.predict(rows[["x", "z"]]), **CLOSE)
    assert fit.published().to_sql(engine) == fit.to_sql(engine, known=False)


# Names and labels --------------------------------------------------------------------------------

NAMES = ['x"; DROP TABLE rows; --', "select", "it's", "`tick`", "a.b", "ä ö", "with space", "%s"]


@ENGINES
def test_names_are_quoted(engine):
    rows = made(2_000)
    for name in NAMES:
        other = rows.rename(columns={"place": f"g {name}", "value": name})
        fit = eb.GaussianEB().fit(other[[f"g {name}", name]], groups=f"g {name}")
        found = run(fit.to_sql(engine, table=f"t {name}"), engine, **{f"t {name}": other})
        expected = fit.predict()
        order = np.argsort(fit.groups_.astype(str))
        np.testing.assert_allclose(found["estimate"], expected[order], **CLOSE)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("each_row", [True, False])
def test_every_dialect_reads_one_query_of_quoted_names(dialect, each_row, linear):
    rows = made(2_000)
    for name in NAMES:
        if (dialect, name) == ("bigquery", "a.b"):
            continue  # a name of a column has no points there
        other = rows.rename(columns={"place": f"g {name}", "value": name})
        labels = np.char.add(name, other[f"g {name}"].to_numpy(str))
        fit = eb.GaussianEB().fit(other[[name]], groups=labels)
        sql = fit.to_sql(dialect, table=("main", name), group=f"g {name}", each_row=each_row)
        (query,) = sqlglot.parse(sql, read=dialect)
        assert isinstance(query, sqlglot.exp.Select)
        columns = {column.name for column in query.find_all(sqlglot.exp.Column)}
        assert {name, f"g {name}"} <= columns
        tables = {(table.db, table.name) for table in query.find_all(sqlglot.exp.Table)}
        assert ("main", name) in tables
    for sql in (
        linear("LinearEB", 2_000).to_sql(dialect),
        linear("LogisticEB", 2_000).to_sql(dialect),
    ):
        (query,) = sqlglot.parse(sql, read=dialect)
        assert isinstance(query, sqlglot.exp.Select)


LABELS = {
    "quotes": ["it's", 'a "b"', "c\\d", "e\nf", "g;--", ""],
    "integers": [-5, 3, 10**15, 0, 7, 8],
    "floats": [0.1, -2.5, 1e300, 3.0, 1e-9, 7.25],
    "dates": [dt.date(2020, 1, k) for k in range(1, 7)],
    "times": [dt.datetime(2020, 1, 1, k, 30, 5) for k in range(6)],
    "nanoseconds": np.datetime64("2020-01-01T00:30", "ns") + np.arange(6) * np.timedelta64(1, "h"),
    "booleans": [True, False] * 3,
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_find_their_groups(kind):
    labels = pd.Series(np.repeat(pd.Series(LABELS[kind]), 4)).reset_index(drop=True)
    if kind == "dates":
        labels = labels.astype("M8[s]")
    rng = np.random.default_rng(0)
    x = rng.normal(size=24)
    y = labels.astype("category").cat.codes * x + 0.1 * rng.normal(size=24)
    rows = pd.DataFrame({"row": np.arange(24), "g": labels, "x": x})
    fit = eb.LinearEB().fit(x[:, None], y, groups=labels)
    found = run(fit.to_sql(columns="x", group="g"), "duckdb", rows=rows)["prediction"]
    expected = fit.predict(x[:, None], groups=labels)
    np.testing.assert_allclose(found, expected, **CLOSE)
    assert not np.allclose(expected, fit.predict(x[:, None]))


def test_numbers_are_written_to_the_last_digit():
    fit = eb.GaussianEB(1 / 3).fit(np.array([0.1, 0.2, 1 / 7]) * 1e-30, groups=[0, 1, 2])
    fit.prior_.mean_ = np.array([0.1 + 0.2])
    fit.prior_.variance_, fit.prior_.mean_variance_ = np.array([1 / 3]), np.zeros(1)
    sql = fit.to_sql(columns="x", known=False)
    assert f"{(0.1 + 0.2) * (1 / 3):.16e}" in sql
    assert f"{1 / 3:.16e}" in sql


# What is refused ---------------------------------------------------------------------------------


@pytest.fixture
def fit():
    rng = np.random.default_rng(0)
    return eb.GaussianEB().fit(rng.normal(size=20), groups=np.repeat(np.arange(5), 4))


def test_arguments_are_checked(fit):
    with pytest.raises(ValueError, match=r"dialect must be 'duckdb', .* got 'mysql'"):
        fit.to_sql("mysql")
    with pytest.raises(ValueError, match="columns must name 1 columns, value; got"):
        fit.to_sql(columns=["a", "b"])
    with pytest.raises(ValueError, match="two columns would be called 'n'"):
        fit.to_sql(group="n")
    with pytest.raises(ValueError, match="must be text; got 3"):
        fit.to_sql(table=("main", 3))
    with pytest.raises(ValueError, match="up to three parts"):
        fit.to_sql(table=list("abcd"))
    with pytest.raises(ValueError, match="must be text; got ''"):
        fit.to_sql(group="")
    labels = np.empty(4, object)
    labels[:2] = labels[2:] = [("a", 1), ("b", 2)]
    tuples = eb.GaussianEB().fit(np.arange(4.0), groups=labels)
    with pytest.raises(TypeError, match="labels of type tuple have no form in SQL"):
        tuples.to_sql()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_other_fits_are_refused_by_name():
    rows = made(400)
    values, groups = rows["value"].to_numpy(), rows["place"].to_numpy()
    kinds = np.array(["a", "b", "c"])[np.digitize(values, [4, 6])]
    noise = eb.channels.AddNoise(0.5)
    private = eb.BernoulliEB(channel=eb.channels.TwoBit(2.0), random_state=0)
    by_age = {"groups": groups, "covariates": np.arange(len(set(groups))) % 7}
    refused = {
        "LogSpline has no SQL": eb.GaussianEB(prior="log_spline").fit(values, groups=groups),
        "Discrete has no SQL": eb.PoissonEB(prior="npmle").fit(rows["deaths"], groups=groups),
        "MixtureEB with": eb.MixtureEB(2, random_state=0).fit(values, groups=groups),
        "reports of a channel": eb.GaussianEB(1.0, channel=noise).fit(values, groups=groups),
        "BernoulliEB has no SQL where": private.fit(rows["won"], groups=groups),
        "take out what a group reported": eb.BernoulliEB(method="paper").fit(
            rows["won"], groups=groups
        ),
        "OptOutMean has no SQL": eb.OptOutMean(1.0, 1.0, gamma2=0.1).fit(values, groups=groups),
        "GaussianEB with covariates": eb.GaussianEB().fit(values, **by_age),
        "LinearEB has no SQL where rows have an offset": eb.LinearEB().fit(
            rows[["x", "deaths"]].assign(y=values), "y", groups=groups, offset="deaths"
        ),
        "LinearEB with covariates": eb.LinearEB().fit(rows[["x"]], values, **by_age),
        "AdaMixClassifier": eb.AdaMixClassifier(2, n_init=1, n_rounds=5, random_state=0).fit(
            rows[["x"]], kinds, groups=groups
        ),
    }
    for message, fit in refused.items():
        with pytest.raises(ValueError, match=message):
            fit.to_sql()
    with pytest.raises(ValueError, match="size=, weight= and each_row= are for means"):
        eb.LinearEB().fit(rows[["x"]], values, groups=groups).to_sql(each_row=True)
    learner = eb.learning.LocalOnly(n_rounds=1).fit(rows[["x"]], kinds, groups=groups)
    with pytest.raises(AttributeError):
        learner.to_sql()


def test_a_missing_package_is_named(fit, monkeypatch):
    import builtins

    original = builtins.__import__

    def imported(name, *rest, **named):
        if name.split(".")[0] == "sqlglot":
            raise ImportError(name)
        return original(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", imported)
    with pytest.raises(ImportError, match=r'pip install "ebfed\[sql\]"'):
        fit.to_sql()


def test_only_fits_of_groups_have_sql(fit):
    learner = eb.learning.LocalOnly(n_rounds=1).fit(
        np.zeros((4, 1)), list("abab"), groups=[0, 0, 1, 1]
    )
    with pytest.raises(TypeError, match="LocalOnly has no SQL"):
        Query().text(view_of(learner))
    fit.prior_.mean_ = np.array([np.inf])
    with pytest.raises(ValueError, match="not finite"):
        fit.to_sql()
