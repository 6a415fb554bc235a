"""Every engine gives the same as rows in memory, and rejects the same tables."""

import datetime as dt
import importlib.util
import warnings
from decimal import Decimal
from functools import partial

import duckdb
import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from sklearn.base import clone

import ebfed as eb
from ebfed.tables import lazy as pushdown
from ebfed.tables.lazy import Statistics, column_names, is_lazy, statistics, summarise

dd = pytest.importorskip("dask.dataframe")

pytestmark = [
    # advice to whoever installs Dask; nothing to change here
    pytest.mark.filterwarnings("ignore:Dask support is moving out of Narwhals:FutureWarning"),
]

CLOSE = 1e-10


def dask_frame(table):
    # of Arrow's types: Dask makes strings of dates that are Python objects
    return dd.from_pandas(table.to_pandas(types_mapper=pd.ArrowDtype), npartitions=3)


def spark_frame(table):
    from pyspark.sql import SparkSession

    options = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.host": "127.0.0.1",
    }
    session = SparkSession.builder.master("local[2]").config(map=options).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session.createDataFrame(table)


EAGER = {"pandas": pa.Table.to_pandas, "polars": pl.from_arrow, "pyarrow": lambda table: table}
LAZY = {
    "polars lazy": lambda table: pl.from_arrow(table).lazy(),
    "DuckDB": duckdb.from_arrow,
    "Dask": dask_frame,
    "Spark": spark_frame,
}
SLOW = {
    "Spark": [
        pytest.mark.slow,
        pytest.mark.skipif(importlib.util.find_spec("pyspark") is None, reason="needs pyspark"),
        pytest.mark.filterwarnings("ignore"),  # its own: of Python, pandas, sockets left open
    ]
}


def engines(names):
    return [pytest.param(name, marks=SLOW.get(name, ())) for name in names]


@pytest.fixture(params=engines([*EAGER, *LAZY]))
def engine(request):
    return (EAGER | LAZY)[request.param]


@pytest.fixture(params=engines(LAZY))
def lazy(request):
    return LAZY[request.param]


RNG = np.random.default_rng(0)
CODES = np.concatenate([RNG.integers(0, 40, 1200), [40, 41]])  # two groups of one row
FAR = np.array([0.0, 1e8, -1e8])[CODES % 3]
LABELS = {
    "integers": pa.array(CODES * 1000 - 7),
    "strings": pa.array([f"ö{code:02d}" for code in CODES]),
    "days": pa.array([dt.date(1969, 12, 20) + dt.timedelta(days=int(code)) for code in CODES]),
    "times": pa.array(np.datetime64("1969-12-31T23:00:00.000001", "us") + CODES * 10**6),
    "booleans": pa.array(CODES % 2 == 0),
}
# one group of weight zero
WEIGHTS = np.where(CODES == 7, 0.0, np.linspace(0.1, 9.0, len(CODES)))
TIMES = CODES % 4
COLUMNS = {
    "small": RNG.normal(2.0, 1.0, len(CODES)),
    "large": 1e8 + RNG.normal(size=len(CODES)),
    "apart": FAR + RNG.normal(size=len(CODES)),
    "constant": CODES * 0.1,
    "whole": RNG.integers(-5, 5, len(CODES)),
    "bit": RNG.integers(0, 2, len(CODES)) == 1,
}


def table_of(labels="integers", columns=tuple(COLUMNS)):
    return pa.table({"g": LABELS[labels]} | {name: COLUMNS[name] for name in columns})


def values_of(columns):
    return np.column_stack([COLUMNS[name] for name in columns]).astype(float)


def products_in_memory(values):
    """Products of deviations from group means; differences from a row of the group are exact."""
    means, products = [], []
    for code in np.unique(CODES):
        own = values[code == CODES]
        rest = own - own[0]
        means.append(own[0] + rest.mean(axis=0))
        rest -= rest.mean(axis=0)
        products.append(rest.T @ rest)
    return np.array(means), np.array(products)


def assert_close(found, expected):
    assert found.ids.dtype == expected.ids.dtype
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.n, expected.n)
    scale = np.sqrt(expected.scatter / expected.n[:, None]) + np.abs(expected.mean)
    assert (np.abs(found.mean - expected.mean) <= CLOSE * scale).all()
    np.testing.assert_allclose(found.scatter, expected.scatter, rtol=CLOSE, atol=0)


# --- agreement -----------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", LABELS)
def test_summaries_are_those_of_the_rows_in_memory(engine, labels):
    table = table_of(labels)
    expected = eb.GaussianEB().fit(pl.from_arrow(table), groups="g").summaries_
    found = summarise(engine(table), "g")
    assert found.columns == list(COLUMNS)
    assert found.consent is None
    assert_close(found.summary, expected)


def by_group(found):
    """Statistics in the order of the group, which an engine does not keep."""
    order = np.argsort(nw.from_native(found.keys)["g"].to_numpy())
    return Statistics(found.keys, *(each[order] for each in found[1:4]))


def test_products_of_columns(engine):
    columns = list(COLUMNS)
    found = by_group(statistics(engine(table_of()), ["g"], columns, cross=True))
    means, products = products_in_memory(values_of(columns))
    size = np.sqrt(np.einsum("gii->gi", products))
    np.testing.assert_array_equal(found.n, np.unique(CODES, return_counts=True)[1])
    np.testing.assert_allclose(found.mean, means, rtol=CLOSE, atol=CLOSE)
    bound = CLOSE * size[:, :, None] * size[:, None, :]
    assert (np.abs(found.scatter - products) <= bound).all()


def test_keys_of_several_columns(engine):
    table = table_of(columns=["small"]).append_column("h", LABELS["strings"])
    found = by_group(statistics(engine(table), ["h", "g"], ["small"]))
    expected = by_group(statistics(table, ["g"], ["small"]))
    np.testing.assert_array_equal(found.n, expected.n)
    np.testing.assert_allclose(found.scatter, expected.scatter, rtol=CLOSE)


def weighted_table(columns, weights):
    return table_of("strings", columns).append_column("w", pa.array(weights))


@pytest.mark.parametrize("columns", [["small"], ["large"], ["apart", "whole"]])
def test_fits_are_those_of_the_rows_in_memory(engine, columns):
    table = table_of("strings", columns)
    found = eb.GaussianEB().fit(engine(table), groups="g")
    expected = eb.GaussianEB().fit(table, groups="g")
    np.testing.assert_allclose(found.prior_.variance_, expected.prior_.variance_, rtol=CLOSE)
    np.testing.assert_allclose(found.noise_variance_, expected.noise_variance_, rtol=CLOSE)
    spread = CLOSE * np.sqrt(expected.prior_.variance_ + expected.noise_variance_)
    assert (np.abs(found.prior_.mean_ - expected.prior_.mean_) <= spread).all()
    assert (np.abs(found.predict() - expected.predict()) <= spread).all()
    assert found.feature_names_in_.tolist() == columns


@pytest.mark.parametrize("columns", [["small"], ["large"], ["apart", "whole"]])
def test_weighted_fits_are_those_of_the_rows_in_memory(engine, columns):
    table = weighted_table(columns, WEIGHTS)
    found, expected = (
        eb.GaussianEB().fit(each, groups="g", sample_weight="w") for each in (engine(table), table)
    )
    np.testing.assert_array_equal(found.summaries_.n, expected.summaries_.n)
    np.testing.assert_allclose(found.noise_variance_, expected.noise_variance_, rtol=CLOSE)
    np.testing.assert_allclose(found.prior_.variance_, expected.prior_.variance_, rtol=CLOSE)
    assert found.log_likelihood_ == pytest.approx(expected.log_likelihood_, rel=CLOSE)
    spread = CLOSE * np.sqrt(expected.prior_.variance_ + expected.noise_variance_)
    spread = spread + 2 * np.spacing(np.abs(expected.predict()))  # the last digit of means of 1e8
    assert (np.abs(found.predict() - expected.predict()) <= spread).all()
    # a table with the columns of the fit need not name them again
    again = found.posterior(engine(table))
    np.testing.assert_allclose(again.mean, found.posterior().mean, rtol=1e-9)


def test_frequencies_are_those_of_the_rows_in_memory(engine):
    table = weighted_table(["bit"], TIMES)
    found, expected = (
        eb.BernoulliEB().fit(each, groups="g", sample_weight="w") for each in (engine(table), table)
    )
    np.testing.assert_array_equal(found.summaries_.n, expected.summaries_.n)
    np.testing.assert_allclose(found.predict(), expected.predict(), rtol=CLOSE)


@pytest.mark.parametrize("wrong", [-1.0, np.nan, np.inf])
def test_weights_are_refused(engine, wrong):
    weights = np.where(np.arange(len(CODES)) == 5, wrong, WEIGHTS)
    with pytest.raises(ValueError, match="sample_weight must be finite, and 0 or more"):
        eb.GaussianEB().fit(
            engine(weighted_table(["small"], weights)), groups="g", sample_weight="w"
        )


@pytest.mark.parametrize("learner", [eb.GaussianEB(), eb.LinearEB()])
def test_values_are_numbers_that_can_be_squared_whatever_their_weight(engine, learner):
    large, w = COLUMNS["small"].copy(), np.array(WEIGHTS)
    large[5], w[5] = 1e200, 0.0
    table = weighted_table(["small", "whole"], w).set_column(1, "small", pa.array(large))
    given = ["small"] if isinstance(learner, eb.LinearEB) else []
    with pytest.raises(ValueError, match=r"holds a value too large .* \(up to 1e\+200\)"):
        clone(learner).fit(engine(table), *given, groups="g", sample_weight="w")


def test_rows_of_weight_zero_cost_others_no_digits(engine):
    values, w = COLUMNS["large"].copy(), np.array(WEIGHTS)
    values[5], w[5] = 1e12, 0.0
    table = weighted_table(["large"], w).set_column(1, "large", pa.array(values))
    found, expected = (
        eb.GaussianEB().fit(each, groups="g", sample_weight="w")
        for each in (engine(table), table.filter(pa.compute.greater(table["w"], 0)))
    )
    assert found.log_likelihood_ == pytest.approx(expected.log_likelihood_, rel=CLOSE)


def test_rates_are_those_of_the_rows_in_memory(engine):
    table = table_of("strings", ["bit"])
    found, expected = (eb.BernoulliEB().fit(each, groups="g") for each in (engine(table), table))
    np.testing.assert_allclose(found.predict(), expected.predict(), rtol=CLOSE)
    with pytest.raises(ValueError, match="0 and 1"):
        eb.BernoulliEB().fit(engine(table_of("strings", ["small"])), groups="g")


@st.composite
def tables(draw):
    centres = st.sampled_from([0.0, 1.0, 1e8, -1e8, 1e-8, 1e15])
    groups = draw(st.lists(st.tuples(centres, st.integers(1, 6)), min_size=1, max_size=5))
    scale = draw(st.sampled_from([1e-6, 1.0, 1e6]))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    codes = np.repeat(np.arange(len(groups)), [size for _, size in groups])
    x = np.array([centre for centre, _ in groups])[codes] + scale * rng.normal(size=len(codes))
    return codes, x if draw(st.booleans()) else np.round(x, 1)


@pytest.mark.parametrize("name", ["pyarrow", "polars lazy", "DuckDB"])
@given(tables())
@settings(max_examples=40)
def test_no_digits_are_lost(name, rows):
    codes, x = rows
    found = summarise((EAGER | LAZY)[name](pa.table({"g": codes, "x": x})), "g").summary
    assert_close(found, eb.Summary.from_rows(x, codes))


def scans(monkeypatch, table):
    calls = []
    collect = pushdown._collect
    monkeypatch.setattr(pushdown, "_collect", lambda each: calls.append(0) or collect(each))
    summarise(table, "g")
    return len(calls)


@pytest.mark.parametrize(
    ("column", "expected"), [("small", 1), ("whole", 1), ("bit", 1), ("large", 2), ("apart", 2)]
)
def test_a_second_scan_only_where_digits_are_lost(monkeypatch, column, expected):
    assert scans(monkeypatch, table_of(columns=[column])) == expected


# --- how it looks --------------------------------------------------------------------------------


def test_whether_rows_are_in_memory(lazy):
    table = table_of(columns=["small"])
    assert is_lazy(lazy(table))
    assert column_names(lazy(table)) == ["g", "small"]
    for eager in EAGER.values():
        assert not is_lazy(eager(table))
    for array in (np.eye(2), [[1.0]], pd.Series([1.0]), pl.Series([1.0]), None):
        assert not is_lazy(array)


@pytest.mark.parametrize("labels", LABELS)
def test_reports_are_frames_of_polars_or_pandas(lazy, labels):
    table = lazy(table_of(labels, ["small"]))
    fitted = eb.GaussianEB().fit(table, groups="g")
    for report in (fitted.posterior().to_frame(), fitted.posterior(table, groups="g").to_frame()):
        kind = pl.DataFrame if isinstance(table, pl.LazyFrame) else pd.DataFrame
        assert type(report) is kind
        assert report.columns[0] == "g"
        expected = pl.from_arrow(table_of(labels, []))["g"].unique().sort().to_list()
        back = pd.Series(list(report["g"]))
        if labels in ("days", "times"):  # times of Spark are in a zone
            back = pd.to_datetime(back, utc=True).dt.tz_localize(None)
            expected = pd.to_datetime(pd.Series(expected)).tolist()
        assert back.tolist() == expected
    assert type(fitted.glance()) is kind


def test_what_else_a_fit_can_do(lazy):
    table = table_of("strings", ["small", "whole"])
    rows, fitted = table.to_pandas(), eb.GaussianEB().fit(lazy(table), groups="g")
    expected = eb.GaussianEB().fit(table, groups="g")
    some = lazy(table.slice(0, 300))
    np.testing.assert_allclose(
        fitted.posterior(some, groups="g").mean,
        expected.posterior(rows[:300], groups="g").mean,
        rtol=CLOSE,
    )
    assert fitted.score(some, groups="g") == pytest.approx(
        expected.score(rows[:300], groups="g"), rel=1e-9
    )
    pieces = eb.GaussianEB().partial_fit(some, groups="g")
    pieces.partial_fit(lazy(table.slice(300)), groups="g")
    np.testing.assert_allclose(pieces.predict(), expected.predict(), rtol=1e-9)
    for method in (fitted.transform, fitted.augment):
        with pytest.raises(ValueError, match="posterior"):
            method(some, groups="g")
    with pytest.raises(ValueError, match="one column of values"):
        fitted.predict(some, groups="g")
    other = lazy(table_of("strings", ["small", "large"]))
    with pytest.raises(ValueError, match="feature names"):
        fitted.posterior(other, groups="g")


EXPOSURE = np.linspace(0.5, 3.0, len(CODES))
EVENTS = RNG.poisson(EXPOSURE * (1 + CODES % 5))


def in_order(table, *names):
    """Rows of any library, in the order of their values."""
    kept = {name: table[name].to_numpy() for name in names}
    return pd.DataFrame(kept).astype(float).sort_values(list(names)).to_numpy()


def in_memory(table):
    """Rows that an engine has computed."""
    table = nw.from_native(table)
    return table.collect("polars" if table.implementation.is_polars() else "pyarrow")


def test_events_and_exposures_are_added_up(lazy):
    table = pa.table({"g": LABELS["strings"], "events": EVENTS, "years": EXPOSURE})
    options = {"groups": "g", "exposure": "years"}
    fitted, expected = (eb.PoissonEB().fit(rows, **options) for rows in (lazy(table), table))
    assert_array_equal(fitted.groups_, expected.groups_)
    found, wanted = fitted.posterior(), expected.posterior()
    np.testing.assert_allclose(found.mean, wanted.mean, rtol=1e-12)
    np.testing.assert_allclose(found.interval(), wanted.interval(), rtol=1e-9)
    assert fitted.log_likelihood_ == pytest.approx(expected.log_likelihood_, rel=1e-12)
    few = lazy(table.slice(0, 300))
    np.testing.assert_allclose(
        fitted.posterior(few).mean, expected.posterior(table.slice(0, 300)).mean, rtol=1e-12
    )


@pytest.mark.parametrize("type_", ["response", "rate"])
def test_predictions_of_counts_stay_where_the_rows_are(lazy, type_):
    table = pa.table({"g": LABELS["strings"], "events": EVENTS, "years": EXPOSURE})
    fitted = eb.PoissonEB().fit(lazy(table.slice(0, 900)), groups="g", exposure="years")
    rows = lazy(table)
    found = fitted.predict(rows, type=type_)
    assert type(found) is type(rows)
    expected = fitted.predict(table, type=type_)
    wanted = table.append_column(".fitted", [expected])
    names = ["years", ".fitted"]
    np.testing.assert_allclose(
        in_order(in_memory(found), *names), in_order(wanted, *names), rtol=1e-12
    )


def test_predictions_stay_where_the_rows_are(lazy):
    table = table_of("integers", ["small", "whole"])
    part = table.slice(0, 500)  # there are groups that are not in it
    fits = (
        (eb.GaussianEB().fit(lazy(part.select(["g", "small"])), groups="g"), ["g", "small"]),
        (eb.LinearEB().fit(lazy(part), "small", groups="g"), ["g", "small", "whole"]),
    )
    for fitted, columns in fits:
        rows = table.select(columns)
        options = {} if "whole" not in columns else {"groups": "g"}
        found = in_memory(fitted.predict(lazy(rows), **options))
        assert [*found.columns][: len(columns) + 1] == [*columns, ".fitted"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plain = rows.to_pandas().drop(columns="small" if "whole" in columns else [])
            expected = fitted.predict(plain, **options)
        wanted = rows.append_column(".fitted", [expected])
        names = ["g", "small", ".fitted"]
        np.testing.assert_allclose(
            in_order(found, *names), in_order(wanted, *names), rtol=1e-9, atol=1e-12
        )


@pytest.mark.parametrize(
    ("formula", "settings"),
    [
        ("small ~ whole + (1 + whole | g)", {}),
        ("whole ~ small + np.log(years) + (1 | g)", {"weights": "years"}),
        ("small ~ C(bit) + (1 | g)", {}),  # a point in the name of a column
        ("bit ~ small + (1 | g)", {"family": "binomial"}),
        ("events ~ 1 + offset(log(years)) + (1 | g)", {"family": "poisson"}),
        ("cbind(events, lost) | g", {"weights": "times"}),
        ("I(events / (events + lost)) | g", {"family": "binomial", "weights": "trials"}),
    ],
)
def test_formulas_read_the_columns_that_they_use(lazy, formula, settings):
    table = table_of("strings", ["small", "whole", "bit"])
    table = table.append_column("years", [EXPOSURE]).append_column("events", [EVENTS])
    table = table.append_column("not read", [LABELS["days"]]).append_column("times", [TIMES])
    table = table.append_column("lost", [ENDED + 1])
    table = table.append_column("trials", [EVENTS + ENDED + 1])
    fitted = eb.from_formula(formula, lazy(table), **settings)
    expected = eb.from_formula(formula, table, **settings)
    assert fitted.log_likelihood_ == pytest.approx(expected.log_likelihood_, rel=1e-9)
    np.testing.assert_allclose(
        fitted.fixef()["estimate"], expected.fixef()["estimate"], rtol=1e-6, atol=1e-9
    )


@pytest.mark.parametrize("labels", ["decimals", "hours"])
def test_predictions_beside_labels_that_are_python_objects(lazy, labels):
    if labels == "decimals" and pl.__version__.startswith("1.30."):
        pytest.skip("polars 1.30 joins no decimals")
    cells = {
        "decimals": [Decimal(int(code)) / 4 for code in CODES],
        "hours": [dt.time(int(code) % 24) for code in CODES],
    }
    table = table_of("strings", ["small"]).set_column(0, "g", pa.array(cells[labels]))
    fitted = eb.from_formula("small | g", table)
    found = in_memory(fitted.predict(lazy(table)))
    wanted = table.append_column(".fitted", [fitted.predict(table)])
    names = ["small", ".fitted"]
    np.testing.assert_allclose(in_order(found, *names), in_order(wanted, *names), rtol=1e-12)


def test_formulas_of_too_many_rows_are_refused(lazy):
    table = table_of("strings", ["small", "bit"])
    with pytest.raises(MemoryError, match="max_memory"):
        eb.from_formula("bit ~ small + (1 | g)", lazy(table), family="binomial", max_memory=1e-6)


def test_predictions_of_durations_are_expected_events(lazy):
    table = pa.table({"g": LABELS["strings"], "days": EXPOSURE})
    fitted = eb.DurationEB().fit(lazy(table), groups="g")
    found = in_order(in_memory(fitted.predict(lazy(table))), "days", ".fitted")
    wanted = table.append_column(".fitted", [fitted.predict(table)])
    np.testing.assert_allclose(found, in_order(wanted, "days", ".fitted"), rtol=1e-12)


def test_predictions_stand_beside_columns_whose_names_have_points(lazy):
    rows = table_of("strings", ["small"]).append_column("a.b", [COLUMNS["small"]])
    if nw.from_native(lazy(rows)).implementation.is_pyspark():
        pytest.skip("narwhals joins no tables of Spark whose columns have points in their names")
    fitted = eb.LinearEB().fit(lazy(rows), "small", groups="g")
    found = in_memory(fitted.predict(lazy(rows), groups="g"))
    assert found.columns[:4] == ["g", "small", "a.b", ".fitted"]  # Arrow keeps an index of Dask
    assert_array_equal(in_order(found, "a.b")[:, 0], np.sort(COLUMNS["small"]))


def test_predictions_that_cannot_be_made_in_place(lazy):
    table = table_of("strings", ["small"])
    fitted = eb.GaussianEB().fit(lazy(table), groups="g")
    several = table_of("strings", ["small", "whole"])
    slopes = eb.LinearEB().fit(lazy(several), "small", groups="g")
    several = several.append_column(".fitted", [COLUMNS["small"]])
    with pytest.raises(ValueError, match=r"has a column '.fitted'"):
        slopes.predict(lazy(several))
    with pytest.raises(ValueError, match="groups must name a column of X"):
        fitted.predict(lazy(table), groups=CODES)


ANSWERS = np.array(["yes", "no", "perhaps"])[RNG.integers(0, 3, len(CODES))]
ENDED = RNG.integers(0, 2, len(CODES))
SHARES = np.round(RNG.binomial(TIMES, 0.4) / np.maximum(TIMES, 1), 4)  # as in printed tables
GROUPED = (1.0 + CODES % 3).astype(float)
SUMS = [
    (eb.PoissonEB, {"events": EVENTS}, {}),
    (
        eb.PoissonEB,
        {"events": EVENTS, "years": EXPOSURE, "w": TIMES},
        {"exposure": "years", "sample_weight": "w"},
    ),
    (eb.DurationEB, {"days": EXPOSURE, "ended": ENDED}, {"observed": "ended"}),
    (partial(eb.DurationEB, channel=eb.channels.Quantizer(4, (0, 0.6))), {"days": EXPOSURE}, {}),
    (
        partial(eb.NegativeBinomialEB, dispersion=0.2),
        {"events": EVENTS, "years": GROUPED},
        {"exposure": "years"},
    ),
    (eb.BernoulliEB, {"won": ENDED}, {}),
    (eb.BernoulliEB, {"share": SHARES, "w": TIMES}, {"sample_weight": "w"}),
    (
        partial(eb.BernoulliEB, channel=eb.channels.TwoBit(epsilon=1)),
        {"won": ENDED, "w": TIMES},
        {"sample_weight": "w"},
    ),
    (eb.CategoricalEB, {"answer": ANSWERS}, {}),
    (eb.CategoricalEB, {"answer": ANSWERS, "w": TIMES}, {"sample_weight": "w"}),
]


@pytest.mark.parametrize(("kind", "columns", "options"), SUMS)
def test_families_with_other_sums_are_those_of_the_rows_in_memory(lazy, kind, columns, options):
    table = pa.table({"g": LABELS["strings"], **columns})
    fitted, expected = (
        kind(random_state=0).fit(rows, groups="g", **options) for rows in (lazy(table), table)
    )
    assert_array_equal(fitted.groups_, expected.groups_)
    assert_array_equal(fitted.summaries_.n, expected.summaries_.n)
    assert fitted.log_likelihood_ == pytest.approx(expected.log_likelihood_, rel=1e-12)
    np.testing.assert_allclose(fitted.posterior().mean, expected.posterior().mean, rtol=1e-9)
    few = table.slice(0, 300)
    again, wanted = (fitted.posterior(rows, groups="g", **options) for rows in (lazy(few), few))
    np.testing.assert_allclose(again.mean, wanted.mean, rtol=1e-12)
    # rows in memory need no weights where the fit had none
    if not options:
        values = few.drop_columns("g").to_pandas()
        found = fitted.posterior(values, groups=few["g"].to_numpy(zero_copy_only=False))
        np.testing.assert_allclose(found.mean, wanted.mean, rtol=1e-12)


WRONG = [
    (eb.PoissonEB, {"events": EVENTS + 0.5}, {}, "counts, whole numbers from 0; 1202 rows have"),
    (eb.PoissonEB, {"events": EVENTS - 100}, {}, "counts, whole numbers from 0"),
    (
        eb.PoissonEB,
        {"events": EVENTS, "years": 0 * EXPOSURE},
        {"exposure": "years"},
        "exposure must be between .*; 1202 rows have others",
    ),
    (
        eb.PoissonEB,
        {"events": EVENTS, "w": WEIGHTS},
        {"sample_weight": "w"},
        "sample_weight must be whole numbers",
    ),
    (eb.BernoulliEB, {"won": EVENTS}, {}, "X must hold only 0 and 1; .* rows have others"),
    (
        eb.BernoulliEB,
        {"share": SHARES, "w": TIMES + 1},
        {"sample_weight": "w"},
        "number of trials, must be a whole number of successes",
    ),
    (
        eb.BernoulliEB,
        {"won": ENDED, "w": np.full(len(CODES), 0.5)},
        {"sample_weight": "w"},
        "sample_weight must be whole numbers",
    ),
    (eb.DurationEB, {"days": -EXPOSURE}, {}, "positive durations"),
    (
        eb.DurationEB,
        {"days": EXPOSURE, "ended": EVENTS},
        {"observed": "ended"},
        "observed must be 1",
    ),
    (
        partial(eb.DurationEB, channel=eb.channels.Quantizer(4, (0, 0.6))),
        {"days": EXPOSURE, "ended": ENDED},
        {"observed": "ended"},
        "observed must be 1 in all rows where channel hides them",
    ),
    (
        eb.NegativeBinomialEB,
        {"events": EVENTS, "years": EXPOSURE},
        {"exposure": "years"},
        "exposure must be the same in all rows of a group",
    ),
]


@pytest.mark.parametrize(("kind", "columns", "options", "message"), WRONG)
def test_rows_of_families_are_checked_by_the_engine(lazy, kind, columns, options, message):
    table = pa.table({"g": LABELS["strings"], **columns})
    with pytest.raises(ValueError, match=message):
        kind().fit(lazy(table), groups="g", **options)


@pytest.mark.parametrize("groups", [None, CODES])
def test_groups_of_counted_rows_are_a_column(lazy, groups):
    table = lazy(pa.table({"g": LABELS["strings"], "answer": ANSWERS}))
    with pytest.raises(ValueError, match="groups must name a column of X"):
        eb.CategoricalEB().fit(table, groups=groups)


def test_choices_may_stand_beside_counts(lazy):
    who = np.where(CODES % 4 == 0, "open", "private")
    table = pa.table({"g": LABELS["strings"], "events": EVENTS, "who": who})
    channel = {"open": eb.channels.Exact(), "private": eb.channels.Quantizer(4, (0, 9))}
    for kind in (eb.PoissonEB, eb.NegativeBinomialEB):
        channel = channel if kind is eb.PoissonEB else dict.fromkeys(channel, eb.channels.Exact())
        fitted, expected = (
            kind(channel=channel, random_state=0).fit(rows, groups="g", consent="who")
            for rows in (lazy(table), table)
        )
        np.testing.assert_allclose(fitted.predict(), expected.predict(), rtol=1e-7)


def consenting(choice):
    table = table_of("strings", ["small"])
    return table.append_column("choice", pa.array(choice.tolist()))


def test_consent(engine):
    choice = np.where(CODES % 4 == 0, "open", "private")
    found = summarise(engine(consenting(choice)), "g", "choice")
    np.testing.assert_array_equal(found.consent == "open", np.arange(42) % 4 == 0)
    assert found.columns == ["small"]
    assert_close(found.summary, summarise(table_of("strings", ["small"]), "g").summary)


def test_two_kinds_of_consent_in_one_group(engine):
    choice = np.where(CODES % 4 == 0, "open", "private")
    choice[np.flatnonzero(CODES == 7)[0]] = "open"
    with pytest.raises(ValueError, match=r"consent must be the same in all rows .*'ö07' has two"):
        summarise(engine(consenting(choice)), "g", "choice")


# --- what is refused -----------------------------------------------------------------------------

BAD = {
    "null label": ([1, None, 1, None], [1.0, 2.0, 3.0, 4.0], "g has 2 missing or infinite labels"),
    "NaN label": ([1.0, np.nan, 1.0, 2.0], [1.0, 2.0, 3.0, 4.0], "g has 1 missing"),
    "infinite label": ([1.0, np.inf, 1.0, 2.0], [1.0, 2.0, 3.0, 4.0], "g has 1 missing"),
    "null": ([1, 1, 2, 2], [1.0, None, 3.0, None], "in 2 rows of column 'x'"),
    "only nulls": ([1, 1, 2, 2], [1.0, 1.0, None, None], "in 2 rows of column 'x'"),
    "NaN": ([1, 1, 2, 2], [1.0, np.nan, 3.0, 4.0], "in 1 rows of column 'x'"),
    "infinity": ([1, 1, 2, 2], [np.inf, -np.inf, 3.0, -np.inf], "in 3 rows of column 'x'"),
    "missing integer": ([1, 1, 2, 2], [1, None, 3, 4], "in 1 rows of column 'x'"),
    "too large": ([1, 1, 2, 2], [1e308, -1e308, 3.0, 4.0], r"too large .*\(up to 1e\+308\)"),
    "large alone": ([1, 1, 2, 2], [1e70, 1e70, 3.0, 4.0], r"too large .*\(up to 1e\+70\)"),
    "no rows": ([], [], "no rows"),
}


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # of pandas, adding infinities
@pytest.mark.parametrize("kind", BAD)
def test_tables_that_cannot_be_used(engine, kind):
    labels, values, message = BAD[kind]
    labels = pa.array(labels, pa.float64() if "label" in kind else pa.int64())
    values = pa.array(values, pa.int64() if "integer" in kind else pa.float64())
    table = engine(
        pa.table({"g": labels, "x": values, "y": pa.array([0.5] * len(labels), pa.float64())})
    )
    with pytest.raises(ValueError, match=message):
        summarise(table, "g")


@pytest.mark.parametrize("labels", ["strings", "days"])
def test_missing_labels_are_counted(engine, labels):
    column = pa.array([None, None, *LABELS[labels].to_pylist()[:3]], LABELS[labels].type)
    with pytest.raises(ValueError, match="g has 2 missing or infinite labels"):
        summarise(engine(pa.table({"g": column, "x": np.arange(5.0)})), "g")


def test_columns_that_cannot_be_used(engine):
    table = engine(table_of("strings", ["small"]))
    with pytest.raises(ValueError, match=r"groups='state' is not a column of X.* 'g', 'small'"):
        summarise(table, "state")
    with pytest.raises(ValueError, match="consent='choice' is not a column"):
        summarise(table, "g", "choice")
    with pytest.raises(ValueError, match="no column but the labels 'g'"):
        summarise(engine(table_of("strings", [])), "g")
    with pytest.raises(TypeError, match=r"column 'g' of X is .*, not numeric"):
        summarise(table, "small")


@pytest.mark.parametrize("groups", [None, CODES, LABELS["strings"]])
def test_groups_of_a_lazy_table_are_a_column(lazy, groups):
    with pytest.raises(ValueError, match="groups must name a column of X"):
        eb.GaussianEB().fit(lazy(table_of(columns=["small"])), groups=groups)


def test_cutting_at_a_threshold_is_left_to_the_engine(lazy):
    with pytest.raises(ValueError, match="binarize"):
        eb.BernoulliEB(binarize=2.0).fit(lazy(table_of(columns=["small"])), groups="g")


def test_what_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr(pushdown, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r'pip install "ebfed\[parquet\]"'):
        summarise(duckdb.from_arrow(table_of()), "g")
