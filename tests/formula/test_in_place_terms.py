"""Formulas of lazy tables are those of the rows in memory, and read sums alone."""

import duckdb
import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import ebfed as eb
from ebfed.formula import fit as formulas
from ebfed.tables import lazy as tables

dd = pytest.importorskip("dask.dataframe")

pytestmark = [
    # advice to whoever installs Dask; nothing to change here
    pytest.mark.filterwarnings("ignore:Dask support is moving out of Narwhals:FutureWarning"),
]


def in_pandas(table):
    """Return a frame of the types of Arrow, which has dates, and whole numbers beside gaps."""
    return table.to_pandas(types_mapper=pd.ArrowDtype)


LAZY = {
    "polars": lambda table: pl.from_arrow(table).lazy(),
    "DuckDB": duckdb.from_arrow,
    "Dask": lambda table: dd.from_pandas(in_pandas(table), npartitions=3),
}

RNG = np.random.default_rng(5)
N, M = 3000, 40
G = RNG.integers(0, M, N)
X, KIND = RNG.normal(size=N), RNG.choice(["red", "blue", "green"], N)
SLOPE = RNG.normal(1.0, 0.4, M)
TABLE = pa.table(
    {
        "g": [f"g{code:02d}" for code in G],
        "x": X,
        "a b": RNG.uniform(1.0, 3.0, N),
        "kind": KIND,
        "step": RNG.integers(1, 4, N),
        "is_old": RNG.random(N) < 0.3,
        "of group": RNG.normal(size=M)[G],
        "y": np.exp(0.2 * (SLOPE[G] * X + (KIND == "red") + RNG.normal(size=N))),
        "won": RNG.integers(0, 2, N),
        "answer": np.where(RNG.random(N) < 0.2 + 0.01 * G, "yes", "no"),
        "games": RNG.integers(1, 5, N),
        "events": RNG.poisson(2.0 + G / 20, N),
        "never read": [["a list"]] * N,
    }
)


@pytest.fixture(params=["polars", "DuckDB", pytest.param("Dask", marks=pytest.mark.slow)])
def lazy(request):
    return LAZY[request.param]


def computed(table):
    """Predictions that an engine has computed, sorted: it keeps no order of rows."""
    table = nw.from_native(table)
    found = table.collect("polars" if table.implementation.is_polars() else "pyarrow")
    return np.sort(found[".fitted"].to_numpy())


def assert_same(found, expected):
    assert found.log_likelihood_ == pytest.approx(expected.log_likelihood_, rel=1e-9)
    pairs = (found.tidy(), expected.tidy()), (found.ranef(), expected.ranef())
    for own, wanted in pairs:
        own, wanted = (nw.from_native(each, eager_only=True) for each in (own, wanted))
        assert own.columns == wanted.columns
        for name in own.columns:
            values, others = own[name].to_list(), wanted[name].to_list()
            if own[name].dtype.is_float():
                np.testing.assert_allclose(values, others, rtol=1e-6, atol=1e-9)
            else:
                assert values == others
    assert found.glance().shape == expected.glance().shape


LINEAR = [
    "y ~ x + (1 + x | g)",
    "y ~ x + (1 + x || g)",
    "log(y) ~ x * kind + I(x**2) + (1 | g)",
    "y ~ 0 + kind + x:kind + (0 + x:kind | g)",
    "y ~ C(step) + C(kind, contr.sum) * is_old + (1 | g)",
    "y ~ C(step, levels=[3, 1, 2]) + I(np.sqrt(`a b`) / 2) + (1 | g)",
    "y ~ abs(x - 1) + np.log2(`a b`) + I(kind == 'red') + I(-x) + (1 + abs(x - 1) | g)",
    "y ~ x | g",
    "y ~ scale(x) * kind + (1 + scale(x) | g)",
    "y ~ center(np.log(step)) + scale(x, ddof=0) + scale(step) + (1 | g)",
    "y ~ center(x) + I(center(x)**2) + (0 + scale(x) || g)",
]


@pytest.fixture
def no_rows(monkeypatch):
    """Let no formula read its rows."""

    def refused(*args):
        raise AssertionError("rows were read")

    monkeypatch.setattr(formulas, "collected", refused)


@pytest.mark.parametrize("formula", LINEAR)
def test_columns_of_terms_are_computed_by_the_engine(lazy, formula, no_rows):
    fitted, expected = (eb.from_formula(formula, each) for each in (lazy(TABLE), TABLE))
    assert_same(fitted, expected)
    found = computed(fitted.predict(lazy(TABLE)))
    # covariances are searched for to where the likelihood is flat
    close = {"rtol": 1e-9, "atol": 1e-8}
    np.testing.assert_allclose(found, np.sort(expected.predict(TABLE)), **close)
    # rows in memory, of either fit, are predicted by the other
    few = TABLE.slice(0, 20)
    np.testing.assert_allclose(fitted.predict(few), expected.predict(few), **close)
    again = computed(expected.predict(lazy(TABLE)))
    np.testing.assert_allclose(again, found, **close)


def test_columns_of_all_sizes_keep_their_digits(lazy, no_rows):
    table = TABLE.append_column("wage", pa.array(1e9 * X + 2e9))
    table = table.append_column("cost", pa.array(1e-8 * TABLE["y"].to_numpy()))
    formula = "cost ~ wage * kind + (1 | g)"
    fitted, expected = (eb.from_formula(formula, each) for each in (lazy(table), table))
    assert fitted.log_likelihood_ == pytest.approx(expected.log_likelihood_, rel=1e-12)
    found, wanted = (np.asarray(fit.tidy()["estimate"]) for fit in (fitted, expected))
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


@pytest.mark.parametrize("formula", ["won ~ 1 + (1 | day)", "won ~ x + (1 | day)", "y | day"])
def test_days_are_labels_as_they_are_in_memory(formula):
    days = np.datetime64("2020-01-01") + G.astype("timedelta64[D]")
    table = TABLE.append_column("day", pa.array(days)).select(["day", "x", "y", "won"])
    family = "binomial" if formula.startswith("won") else None
    wanted = eb.from_formula(formula, table, family=family).groups_
    for name in ("polars", "DuckDB"):
        found = eb.from_formula(formula, LAZY[name](table), family=family).groups_
        assert [str(each) for each in found] == [str(each) for each in wanted]


OTHERS = [
    ("y ~ 1 + (1 | g)", {}),
    ("log(y) | g", {"weights": "a b"}),
    ("y ~ x + (1 | g)", {"weights": "a b"}),
    ("y ~ x * kind + C(step) + offset(x) + (1 | g)", {"weights": "a b"}),
    ("y ~ 1 + (1 | g)", {"estimator": eb.LinearEB()}),
    ("won | g", {"family": "binomial"}),
    ("answer | g", {"family": "binomial"}),
    ("cbind(won, games) | g", {}),
    ("cbind(won, trials=games) | g", {}),
    ("events ~ offset(log(`a b`)) | g", {"family": "poisson"}),
    ("y ~ 1 + (1 | g)", {"family": "variance"}),
]


def test_factors_are_keys_and_no_columns(lazy, monkeypatch):
    asked = []

    def recorded(X, keys, columns, *args):
        asked.append((len(keys), len(columns)))
        return statistics(X, keys, columns, *args)

    statistics = tables.statistics
    monkeypatch.setattr(tables, "statistics", recorded)
    eb.from_formula("y ~ x * kind + C(step) * kind + (1 | g)", lazy(TABLE))
    assert asked == [(3, 2)]


@pytest.mark.parametrize(("formula", "settings"), OTHERS)
def test_other_estimators_read_sums(lazy, formula, settings, no_rows):
    fitted, expected = (eb.from_formula(formula, each, **settings) for each in (lazy(TABLE), TABLE))
    assert_same(fitted, expected)
    assert str(fitted.summary()) == str(expected.summary())
    found = computed(fitted.predict(lazy(TABLE)))
    np.testing.assert_allclose(found, np.sort(expected.predict(TABLE)), rtol=1e-9)


def test_covariates_of_groups_are_read_with_their_sums(lazy, no_rows):
    settings = {"estimator": eb.GaussianEB()}
    formula = "y ~ `of group` + I(`of group` ** 2) + (1 | g)"
    fitted, expected = (eb.from_formula(formula, each, **settings) for each in (lazy(TABLE), TABLE))
    assert_same(fitted, expected)
    with pytest.raises(ValueError, match="covariate 'x' must be the same in all rows of a group"):
        eb.from_formula("y ~ x + (1 | g)", lazy(TABLE), **settings)


def with_gaps():
    x = TABLE["x"].to_pylist()
    x[3], x[50] = None, None
    return TABLE.set_column(1, "x", pa.array(x, pa.float64()))


def test_rows_that_lack_values_are_left_out_or_refused(lazy, no_rows):
    table = with_gaps()
    fitted, expected = (
        eb.from_formula("y ~ x + (1 | g)", each, na_action="drop") for each in (lazy(table), table)
    )
    assert_same(fitted, expected)
    assert "2 rows with missing values left out" in str(fitted.summary())
    with pytest.raises(ValueError, match="column 'x' has 2 missing values; drop those rows"):
        eb.from_formula("y ~ x + (1 | g)", lazy(table))
    nothing = TABLE.set_column(1, "x", pa.nulls(N, pa.float64()))
    with pytest.raises(ValueError, match="no row without missing values"):
        eb.from_formula("y ~ x + (1 | g)", lazy(nothing))


@pytest.mark.parametrize(
    ("formula", "settings"),
    [
        ("scale(y) ~ x + (1 | g)", {}),
        ("y ~ scale(`a b`, center=False) + (1 | g)", {}),
        ("y ~ poly(x, 2) + (1 | g)", {}),
        ("y ~ x + (1 | g)", {"subset": "exp(x) > 1"}),
        ("y ~ I(x % 2) + (1 | g)", {}),
        ("answer ~ x + (1 | g)", {"family": "binomial"}),
    ],
)
def test_what_needs_rows_reads_them(formula, settings):
    fitted = eb.from_formula(formula, LAZY["polars"](TABLE), **settings)
    expected = eb.from_formula(formula, TABLE, **settings)
    assert fitted.log_likelihood_ == pytest.approx(expected.log_likelihood_, rel=1e-9)
    np.testing.assert_allclose(fitted.predict(), expected.predict(), rtol=1e-6)


LACKING = pa.table(
    {name: TABLE[name] for name in ("g", "x", "y", "kind", "step", "won", "games")}
    | {
        "z": pa.array([None if i % 7 == 0 else np.nan if i % 11 == 0 else X[i] for i in range(N)]),
        "old": pa.array([None if i % 5 == 0 else bool(X[i] > 0.3) for i in range(N)]),
        "text": pa.array([None if i % 6 == 0 else str(KIND[i]) for i in range(N)]),
        "whole": pa.array([None if i % 9 == 0 else int(G[i]) + 2**60 for i in range(N)]),
    }
)
SUBSETS = [
    "x > low",
    "!(z > 1)",
    "z != 1 & x < 2",
    "z > 0 & text == 'red' | step == 2",
    "!(text in some)",
    "text not in ['blue']",
    "text == kind and not x + z > low",
    "-1 < z < 1",
    "!old",
    "old == True or x > 1",
    "step in [1, 2.0]",
    f"whole > {2**60 + 7}",
]


@pytest.mark.parametrize("subset", SUBSETS)
def test_engines_choose_the_rows_of_a_subset(lazy, subset, no_rows):
    settings = {"subset": subset, "context": {"low": 0.2, "some": ["red", "blue"]}}
    for formula, more in (("y ~ x + (1 | g)", {}), ("won | g", {"family": "binomial"})):
        fitted, expected = (
            eb.from_formula(formula, each, **settings, **more) for each in (lazy(LACKING), LACKING)
        )
        assert_same(fitted, expected)
    assert fitted.get_params()["subset"] == subset


def test_subsets_without_rows_or_columns_are_refused(lazy):
    for subset, message in (
        ("x > 100", "subset='x > 100' chooses no row"),
        ("nothing > 1", "'nothing' is not a column of data"),
        ("x", "must be true or false of each row"),
        ("x >", "cannot be read"),
    ):
        with pytest.raises(ValueError, match=message):
            eb.from_formula("y ~ x + (1 | g)", lazy(TABLE), subset=subset)


def test_spreads_are_those_of_all_rows(lazy):
    values = np.where(np.arange(N) < 1000, 1.0, X)  # of the first rows there is none
    table = TABLE.set_column(TABLE.column_names.index("x"), "x", pa.array(values))
    fitted, expected = (
        eb.from_formula("y ~ scale(x) + (1 | g)", each) for each in (lazy(table), table)
    )
    assert_same(fitted, expected)


@pytest.mark.parametrize(
    ("formula", "settings"),
    [("y ~ x * kind + (1 | g)", {}), ("won ~ 1 + (1 | g)", {"family": "binomial"})],
)
def test_engines_leave_out_values_that_stand_for_missing_ones(lazy, formula, settings, no_rows):
    values = np.where(np.arange(N) % 13 == 0, -99.0, X)
    table = TABLE.set_column(TABLE.column_names.index("x"), "x", pa.array(values))
    settings = settings | {"na_values": [-99, "blue", "g03"]}
    fitted, expected = (
        eb.from_formula(formula, each, na_action="drop", **settings)
        for each in (lazy(table), table)
    )
    assert_same(fitted, expected)
    with pytest.raises(ValueError, match=r"missing values.*drop those rows"):
        eb.from_formula(formula, lazy(table), **settings)


def test_labels_beside_missing_ones_keep_all_digits(no_rows):
    labels = [None if i % 9 == 0 else int(G[i]) + 2**60 for i in range(N)]
    table = TABLE.append_column("id", pa.array(labels)).select(["id", "won"])
    settings = {"family": "binomial", "na_action": "drop"}
    expected = eb.from_formula("won ~ 1 + (1 | id)", table, **settings).groups_.tolist()
    for name in ("polars", "DuckDB"):
        fitted = eb.from_formula("won ~ 1 + (1 | id)", LAZY[name](table), **settings)
        assert fitted.groups_.tolist() == expected


def test_errors_of_formulas_are_those_of_rows_in_memory(lazy):
    for formula, message in (
        ("y ~ z + (1 | g)", "'z' is neither a column of data nor known here"),
        ("y ~ x + (1 | h)", "the group 'h' is not a column of data"),
        ("kind ~ x + (1 | g)", "must be numbers for LinearEB"),
        ("cbind(games, trials=won) | g", "must be counts, whole numbers from 0"),
    ):
        with pytest.raises(ValueError, match=message):
            eb.from_formula(formula, lazy(TABLE))


def test_a_fit_of_sums_has_no_rows(lazy):
    fitted = eb.from_formula("y ~ x + (1 | g)", lazy(TABLE))
    for method in (fitted.predict, fitted.augment, fitted.diagnostics):
        with pytest.raises(ValueError, match="has no rows; give a frame"):
            method()
    new = TABLE.set_column(3, "kind", pa.array(["violet"] * N))
    with pytest.raises(ValueError, match="the rows of the fit had no 'violet'"):
        eb.from_formula("y ~ kind + (1 | g)", lazy(TABLE)).predict(lazy(new))


FEW = (
    TABLE.append_column("dose", pa.array(RNG.integers(0, 2, N).astype(float)))
    .append_column("grade", pa.array(RNG.integers(1, 4, N)))
    .append_column("times", pa.array(RNG.integers(1, 3, N)))
    .append_column("cost", pa.array(RNG.integers(1, 5, N) / 2))
)
COUNTED = [
    ("won ~ 1 + (1 | g)", {"family": "binomial"}),
    ("answer ~ dose + kind + (1 + dose | g)", {"family": "binomial"}),
    ("won ~ dose + (1 | kind/g)", {"family": "binomial"}),
    ("won ~ dose + (1 | g)", {"family": "binomial", "weights": "times"}),
    ("won ~ dose + (1 | g)", {"family": "binomial", "subset": "games > 1"}),
    ("cbind(won, trials=games) ~ 1 + (1 | g)", {}),
    ("events ~ offset(log(times)) + (1 | g)", {"family": "poisson"}),
    ("events ~ 1 + (1 | g)", {"family": "negative_binomial"}),
    ("cost ~ dose + (1 | g)", {"family": "gamma"}),
    ("grade ~ dose + (1 | g)", {"family": "ordinal"}),
    ("kind | g", {"family": "categorical"}),
]


@pytest.mark.parametrize(("formula", "settings"), COUNTED)
def test_rows_of_few_values_are_counted_by_the_engine(lazy, formula, settings, no_rows):
    fitted, expected = (eb.from_formula(formula, each, **settings) for each in (lazy(FEW), FEW))
    assert_same(fitted, expected)
    assert str(fitted.summary()) == str(expected.summary())
    few = FEW.slice(0, 50)
    np.testing.assert_allclose(fitted.predict(few), expected.predict(few), rtol=1e-9)
    if hasattr(expected.estimator_, "diagnostics"):
        found, wanted = (each.residuals(few) for each in (fitted, expected))
        np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-9)


def test_bootstraps_of_counted_rows_draw_each_row(no_rows):
    formula, settings = "won ~ dose + (1 | g)", {"family": "binomial"}
    fitted, expected = (
        eb.from_formula(formula, each, **settings) for each in (LAZY["polars"](FEW), FEW)
    )
    found, wanted = (
        each.confint(method="bootstrap", n_boot=40)["conf.high"].to_numpy()
        for each in (fitted, expected)
    )
    # of 40 draws each: an end has an error of a third of the width
    np.testing.assert_allclose(found, wanted, atol=0.12)


def test_counted_rows_that_lack_values_are_left_out_or_refused(lazy, no_rows):
    answers = FEW["answer"].to_pylist()
    answers[3] = answers[50] = None
    table = FEW.set_column(FEW.column_names.index("answer"), "answer", pa.array(answers))
    settings = {"family": "binomial"}
    fitted, expected = (
        eb.from_formula("answer ~ dose + (1 | g)", each, na_action="drop", **settings)
        for each in (lazy(table), table)
    )
    assert_same(fitted, expected)
    assert "2 rows with missing values left out" in str(fitted.summary())
    with pytest.raises(ValueError, match="column 'answer' has 2 missing values; drop those rows"):
        eb.from_formula("answer ~ dose + (1 | g)", lazy(table), **settings)


@pytest.mark.parametrize(
    "formula", ["won ~ center(dose) + (1 | g)", "won ~ halved(dose) + (1 | g)"]
)
def test_terms_that_may_keep_figures_of_rows_have_all_rows(formula):
    settings = {"family": "binomial", "context": {"halved": lambda x: x / 2}}
    fitted, expected = (
        eb.from_formula(formula, each, **settings) for each in (LAZY["polars"](FEW), FEW)
    )
    assert_same(fitted, expected)
    assert len(fitted.predict()) == N


def test_dates_are_read_and_slopes_without_a_mean_are_predicted(lazy):
    days = np.datetime64("2020-01-01") + RNG.integers(0, 9, N).astype("timedelta64[D]")
    table = TABLE.append_column("day", pa.array(days))
    fitted, expected = (eb.from_formula("y ~ day + (1 | g)", x) for x in (lazy(table), table))
    assert_same(fitted, expected)
    fitted = eb.from_formula("y ~ x + (1 | g) + (0 + step | g)", lazy(TABLE))
    found = computed(fitted.predict(lazy(TABLE)))
    np.testing.assert_allclose(found, np.sort(fitted.predict(TABLE)), rtol=1e-9)
