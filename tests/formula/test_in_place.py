"""Predictions of formulas beside the rows of lazy tables are those of the rows in memory."""

import importlib.util
import warnings

import duckdb
import narwhals as nw
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import ebfed as eb

dd = pytest.importorskip("dask.dataframe")

pytestmark = [
    # advice to whoever installs Dask; nothing to change here
    pytest.mark.filterwarnings("ignore:Dask support is moving out of Narwhals:FutureWarning"),
    pytest.mark.filterwarnings("ignore::ebfed.tables.unseen.UnseenGroupWarning"),
]

RNG = np.random.default_rng(3)
N, M = 1200, 30
G = RNG.integers(0, M, N)
X, U = RNG.normal(size=N), RNG.normal(size=M)
CHANCE = 1 / (1 + np.exp(-0.3 - U[G] - X))
TABLE = pa.table(
    {
        "row": np.arange(N),
        "g": [f"g{code:02d}" for code in G],
        "x": X,
        "years": RNG.uniform(0.5, 3.0, N),
        "kind": RNG.choice(["red", "blue"], N),
        "won": (RNG.random(N) < CHANCE).astype(int),
        "answer": np.where(RNG.random(N) < CHANCE, "yes", "no"),
        "games": RNG.integers(1, 5, N),
        "events": RNG.poisson(2.0 * np.exp(U[G] / 2)),
        "cost": RNG.gamma(3.0, np.exp(U[G] / 2 + X / 5)),
        "grade": 1 + RNG.binomial(3, CHANCE),
    }
)
# groups that the fit has not seen, and rows far from all others, whose predictors vary much
PART = TABLE.slice(0, 900).filter(pa.compute.not_equal(TABLE["g"][:900], "g03"))
FAR = TABLE.set_column(2, "x", pa.array(X * np.where(np.arange(N) % 50 == 0, 30.0, 1.0)))


def spark_frame(table):
    from pyspark.sql import SparkSession

    options = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1",
    }
    session = SparkSession.builder.master("local[2]").config(map=options).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session.createDataFrame(table)


LAZY = {
    "polars": lambda table: pl.from_arrow(table).lazy(),
    "DuckDB": duckdb.from_arrow,
    "Dask": lambda table: dd.from_pandas(table.to_pandas(), npartitions=3),
    "Spark": spark_frame,
}
SLOW = {
    "Dask": [pytest.mark.slow],
    "Spark": [
        pytest.mark.slow,
        pytest.mark.skipif(importlib.util.find_spec("pyspark") is None, reason="needs pyspark"),
        pytest.mark.filterwarnings("ignore"),  # its own: of Python, pandas, sockets left open
    ],
}


@pytest.fixture(params=[pytest.param(name, marks=SLOW.get(name, ())) for name in LAZY])
def lazy(request):
    return LAZY[request.param]


def columns_of(table, *names):
    """Columns that an engine computes, in the order of the rows."""
    table = nw.from_native(table)
    found = table.collect("polars" if table.implementation.is_polars() else "pyarrow").sort("row")
    values = [found[name].to_numpy() for name in names]
    return values[0] if len(names) == 1 else np.column_stack(values)


FITS = [
    ("won ~ x + (1 | g)", {"family": "binomial"}),
    ("answer ~ x + kind + (1 + x | g)", {"family": "binomial"}),
    ("cbind(won, trials=games) ~ x + (1 | g)", {}),
    ("events ~ x + offset(log(years)) + (1 | g)", {"family": "poisson"}),
    ("events ~ x + (1 + x || g)", {"family": "negative_binomial"}),
    ("cost ~ I(x**2) + (1 | g)", {"family": "gamma"}),
    ("grade ~ x + (1 | g)", {"family": "ordinal"}),
    ("events ~ 1 + (1 | g)", {"family": "poisson"}),
]


@pytest.mark.parametrize(("formula", "settings"), FITS)
def test_responses_are_those_of_the_rows_in_memory(lazy, formula, settings):
    fitted = eb.from_formula(formula, PART, **settings)
    found = columns_of(fitted.predict(lazy(TABLE)), ".fitted")
    # to the error of either quadrature
    np.testing.assert_allclose(found, fitted.predict(TABLE), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("engine", ["polars", "DuckDB"])
def test_rows_of_uncertain_predictors_have_more_nodes(engine):
    fitted = eb.from_formula("won ~ x + (1 | g)", PART, family="binomial")
    found = columns_of(fitted.predict(LAZY[engine](FAR)), ".fitted")
    np.testing.assert_allclose(found, fitted.predict(FAR), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("formula", ["answer ~ x + (1 | g)", "answer | g", "won | g"])
def test_probabilities_of_classes_are_columns(lazy, formula):
    fitted = eb.from_formula(formula, PART, family="binomial")
    names = (".fitted_no", ".fitted_yes") if "answer" in formula else (".fitted_0", ".fitted_1")
    found = columns_of(fitted.predict_proba(lazy(TABLE)), *names)
    np.testing.assert_allclose(found, fitted.predict_proba(TABLE), rtol=1e-11, atol=1e-12)


def test_probabilities_of_ordered_classes_are_columns(lazy):
    fitted = eb.from_formula("grade ~ x + (1 | g)", PART, family="ordinal")
    found = fitted.predict_proba(lazy(TABLE))
    found = columns_of(found, *(f".fitted_{grade}" for grade in (1, 2, 3, 4)))
    np.testing.assert_allclose(found, fitted.predict_proba(TABLE), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(
    ("formula", "family"),
    [
        ("events ~ x + offset(log(years)) + (1 | g)", "poisson"),
        ("won ~ x + (1 + x | g)", "binomial"),
        ("answer ~ x + (1 | g)", "binomial"),
        ("cost ~ x + (1 | g)", None),
    ],
)
def test_linear_predictors(lazy, formula, family):
    """A row's coefficients times its columns, with its offset: `predict(type="link")` of lme4."""
    fitted = eb.from_formula(formula, PART, family=family)
    rows = TABLE.to_pandas()
    known = fitted.coef().to_pandas().set_index("g").reindex(rows["g"])
    there = known["intercept"].notna().to_numpy()
    expected = known["intercept"].to_numpy() + known["x"].to_numpy() * rows["x"].to_numpy()
    if "offset" in formula:
        expected = expected + np.log(rows["years"])
    found = fitted.predict(rows, type="link")
    # coefficients include what is not known of the spread, which moves few of them and little
    np.testing.assert_allclose(found[there], expected[there], atol=0.02)
    lazily = columns_of(fitted.predict(lazy(TABLE), type="link"), ".fitted")
    np.testing.assert_allclose(lazily, found, rtol=1e-11, atol=1e-12)
    with pytest.raises(ValueError, match="type='link' is the linear predictor of a mixed model"):
        eb.from_formula("events | g", PART, family="poisson").predict(rows, type="link")


def test_rates_need_no_exposure(lazy):
    fitted = eb.from_formula("events ~ x + offset(log(years)) + (1 | g)", PART, family="poisson")
    table = TABLE.drop_columns(["years"])
    found = columns_of(fitted.predict(lazy(table), type="rate"), ".fitted")
    np.testing.assert_allclose(found, fitted.predict(table, type="rate"), rtol=1e-12)
    with pytest.raises(ValueError, match="type='rate' is for rows that may have exposures"):
        eb.from_formula("won ~ x + (1 | g)", PART, family="binomial").predict(
            lazy(TABLE), type="rate"
        )


def test_estimators_predict_beside_the_rows_too(lazy):
    rows = PART.select(["g", "x", "answer"])
    fitted = eb.LogisticEB().fit(rows, "answer", groups="g")
    found = fitted.predict(lazy(TABLE), groups="g")
    np.testing.assert_array_equal(
        columns_of(found, ".fitted"), fitted.predict(TABLE.select(["g", "x"]), groups="g")
    )
    chances = fitted.predict_proba(lazy(TABLE), groups="g")
    np.testing.assert_allclose(
        columns_of(chances, ".fitted_no", ".fitted_yes"),
        fitted.predict_proba(TABLE.select(["g", "x"]), groups="g"),
        rtol=1e-11,
        atol=1e-12,
    )
    rows = PART.select(["g", "x", "years", "events"])
    counts = eb.GeneralizedEB("poisson").fit(rows, "events", groups="g", offset="years")
    for options in ({}, {"offset": 0.5}, {"type": "rate"}):
        found = columns_of(counts.predict(lazy(TABLE), groups="g", **options), ".fitted")
        wanted = counts.predict(TABLE.select(["g", "x", "years"]), groups="g", **options)
        np.testing.assert_allclose(found, wanted, rtol=1e-11)


def test_predictions_that_need_rows_are_refused(lazy):
    crossed = eb.from_formula("cost ~ x + (1 | g) + (1 | kind)", TABLE)
    nested = eb.from_formula("events ~ x + (1 | kind/g)", TABLE, family="poisson")
    curved = eb.from_formula("won ~ poly(x, 2) + (1 | g)", TABLE, family="binomial")
    for fitted in (crossed, nested, curved):
        with pytest.raises(ValueError, match="need the rows of data in memory; collect them"):
            fitted.predict(lazy(TABLE))
    counts = eb.from_formula("events ~ x + (1 | g)", TABLE, family="poisson")
    with pytest.raises(ValueError, match="need the rows of data in memory; collect them"):
        counts.predict(lazy(TABLE.drop_columns(["g"])))
    with pytest.raises(ValueError, match="predict_proba is of classes; rows are poisson here"):
        counts.predict_proba(lazy(TABLE))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        levels = eb.GeneralizedEB("poisson").fit(
            TABLE.select(["kind", "g", "x", "events"]), "events", groups=["kind", "g"]
        )
    with pytest.raises(ValueError, match="levels of groups need the rows of X in memory"):
        levels.predict(lazy(TABLE), groups="g")
