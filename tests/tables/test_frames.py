"""Frames in, frames out: every library, every kind of label, and back again.

Labels come back with the type and the values they went in with. The exception is pyarrow, of which
narwhals, through which all libraries are read, sees one type where there are several:
``large_string`` and ``string_view`` come back as ``string``, and a dictionary with ``uint32``
indices. Labels are never null, so nothing is lost.
"""

import datetime as dt
import decimal

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import polars.testing
import pyarrow as pa
import pytest

import ebfed as eb
from ebfed.tables.frames import Style, frame
from ebfed.tables.rows import Rows

X = [1.0, 2.0, 4.0, 4.5, 8.0, 9.0]
PICK = [1, 1, 0, 0, 2, 2]  # the order of the groups' labels below: sorted as written
FRAMES = {
    "pandas": lambda **columns: pd.DataFrame(columns),
    "polars": lambda **columns: pl.DataFrame(columns),
    "pyarrow": lambda **columns: pa.table(columns),
}
BERLIN = "Europe/Berlin"


def pandas_series(values, dtype=None):
    return pd.Series(values, dtype=dtype).iloc[PICK].reset_index(drop=True)


def polars_series(values, dtype=None):
    return pl.Series(values, dtype=dtype)[PICK]


def arrow_array(values, dtype=None):
    return pa.array(values, dtype).take(pa.array(PICK))


INTEGERS = [-7, 3, 120]
STRINGS = ["Ada", "Åland", "Ödön"]
DAYS = [dt.date(1921, 3, 1), dt.date(2020, 2, 29), dt.date(2021, 10, 31)]
TIMES = [
    dt.datetime(1921, 3, 1),
    dt.datetime(2020, 2, 29, 4, 5, 6, 789012),
    dt.datetime(2021, 1, 1),
]
# half past two comes twice on the night the clocks go back
FALL_BACK = [dt.datetime(2021, 10, 31, hour, 30) for hour in (0, 1, 2)]
SPANS = [dt.timedelta(days=-1), dt.timedelta(seconds=5), dt.timedelta(days=3)]


def pandas_zoned(times, unit="us"):
    return pandas_series(
        pd.Series(times).dt.as_unit(unit).dt.tz_localize("UTC").dt.tz_convert(BERLIN)
    )


LABELS = {
    ("pandas", "int8"): pandas_series(INTEGERS, "int8"),
    ("pandas", "int64"): pandas_series([-(10**12), 3, 10**12]),
    ("pandas", "uint64"): pandas_series([3, 2**63 + 1, 2**63 + 2], "uint64"),
    ("pandas", "float"): pandas_series([-2.5, 0.1, 3.0]),
    ("pandas", "str"): pandas_series(STRINGS),
    ("pandas", "category"): pandas_series(STRINGS, "category"),
    ("pandas", "ordered category"): pandas_series(
        STRINGS, pd.CategoricalDtype(STRINGS[::-1], ordered=True)
    ),
    ("pandas", "category with more"): pandas_series(
        STRINGS, pd.CategoricalDtype([*STRINGS, "nowhere"])
    ),
    ("pandas", "category of integers"): pandas_series([8, 9, 10], "category"),
    ("pandas", "category of days"): pandas_series(pd.to_datetime(DAYS), "category"),
    ("pandas", "datetime"): pandas_series(TIMES),
    ("pandas", "datetime of nanoseconds"): pandas_series(pd.to_datetime([1, 2, 3], unit="ns")),
    ("pandas", "datetime of seconds"): pandas_series(np.array(DAYS, "M8[s]")),
    ("pandas", "zoned"): pandas_zoned(TIMES),
    ("pandas", "zoned when clocks go back"): pandas_zoned(FALL_BACK, "ns"),
    ("pandas", "zoned by offset"): pandas_series(TIMES).dt.tz_localize(
        dt.timezone(dt.timedelta(hours=5))
    ),
    ("pandas", "date"): pandas_series(DAYS),
    ("pandas", "bool"): pandas_series([False, True, True]),
    ("pandas", "duration"): pandas_series(SPANS),
    ("pandas", "object"): pandas_series(INTEGERS, object),
    ("pandas", "Int64"): pandas_series(INTEGERS, "Int64"),
    ("pandas", "UInt8"): pandas_series([1, 2, 200], "UInt8"),
    ("pandas", "Float64"): pandas_series([-2.5, 0.1, 3.0], "Float64"),
    ("pandas", "boolean"): pandas_series([False, True, True], "boolean"),
    ("pandas", "string"): pandas_series(STRINGS, "string"),
    ("pandas", "strings as objects"): pandas_series(STRINGS, object),
    ("pandas", "Arrow int64"): pandas_series(INTEGERS, "int64[pyarrow]"),
    ("pandas", "Arrow string"): pandas_series(STRINGS, pd.ArrowDtype(pa.string())),
    ("polars", "int8"): polars_series(INTEGERS, pl.Int8),
    ("polars", "int64"): polars_series([-(10**12), 3, 10**12]),
    ("polars", "uint64"): polars_series([3, 2**63 + 1, 2**63 + 2], pl.UInt64),
    ("polars", "float"): polars_series([-2.5, 0.1, 3.0]),
    ("polars", "str"): polars_series(STRINGS),
    ("polars", "categorical"): polars_series(STRINGS, pl.Categorical),
    ("polars", "enum"): polars_series(STRINGS, pl.Enum([*STRINGS[::-1], "nowhere"])),
    ("polars", "datetime"): polars_series(TIMES),
    ("polars", "datetime of nanoseconds"): polars_series(TIMES, pl.Datetime("ns")),
    ("polars", "datetime of milliseconds"): polars_series(TIMES, pl.Datetime("ms")),
    ("polars", "zoned"): polars_series(TIMES).dt.replace_time_zone(BERLIN),
    ("polars", "zoned when clocks go back"): polars_series(FALL_BACK)
    .dt.replace_time_zone("UTC")
    .dt.convert_time_zone(BERLIN),
    ("polars", "date"): polars_series(DAYS),
    ("polars", "bool"): polars_series([False, True, True]),
    ("polars", "duration"): polars_series(SPANS),
    ("polars", "decimal"): polars_series(INTEGERS).cast(pl.Decimal(10, 2)),
    ("pyarrow", "int8"): arrow_array(INTEGERS, pa.int8()),
    ("pyarrow", "int64"): arrow_array([-(10**12), 3, 10**12]),
    ("pyarrow", "uint64"): arrow_array([3, 2**63 + 1, 2**63 + 2], pa.uint64()),
    ("pyarrow", "float"): arrow_array([-2.5, 0.1, 3.0]),
    ("pyarrow", "str"): arrow_array(STRINGS),
    ("pyarrow", "datetime"): arrow_array(TIMES),
    ("pyarrow", "datetime of nanoseconds"): arrow_array([1, 2, 3], pa.timestamp("ns")),
    ("pyarrow", "zoned"): arrow_array(TIMES, pa.timestamp("us", BERLIN)),
    ("pyarrow", "zoned when clocks go back"): arrow_array(FALL_BACK, pa.timestamp("ms", BERLIN)),
    ("pyarrow", "date"): arrow_array(DAYS, pa.date32()),
    ("pyarrow", "bool"): arrow_array([False, True, True]),
    ("pyarrow", "duration"): arrow_array(SPANS),
    ("pyarrow", "decimal"): arrow_array([decimal.Decimal(k) for k in INTEGERS]),
}
# What comes back is named beside what goes in; see the docstring of this file.
EXCEPTIONS = {
    ("pyarrow", "large string"): (arrow_array(STRINGS, pa.large_string()), pa.string()),
    ("pyarrow", "string view"): (
        pa.array([STRINGS[k] for k in PICK], pa.string_view()),
        pa.string(),
    ),
    ("pyarrow", "dictionary"): (
        arrow_array(STRINGS).dictionary_encode(),
        pa.dictionary(pa.uint32(), pa.string()),
    ),
}
INPUTS = {case: (labels, None) for case, labels in LABELS.items()} | EXCEPTIONS


def values_of(native):
    """Python values of a column of any library; times of a zone in UTC, where none comes twice."""
    column = nw.from_native(native, series_only=True)
    if column.dtype == nw.Datetime and column.dtype.time_zone is not None:
        column = column.dt.convert_time_zone("UTC")
    return column.to_list()


def type_of(native):
    return native.type if hasattr(native, "type") else native.dtype


def column_of(native, name):
    return nw.from_native(native)[name].to_native()


def by_case(cases):
    return pytest.mark.parametrize("case", cases, ids=["-".join(case) for case in cases])


# --- labels: there and back ----------------------------------------------------------------------


@by_case(INPUTS)
def test_labels_come_back_as_they_went_in(case):
    labels, exception = INPUTS[case]
    table = FRAMES[case[0]](county=labels, x=X)
    fitted = eb.GaussianEB(variances=1.0).fit(table, groups="county")
    out = fitted.posterior().to_frame()
    assert type(out) is type(table)
    back, sent = column_of(out, "county"), column_of(table, "county")
    assert type_of(back) == (type_of(sent) if exception is None else exception)
    assert set(values_of(back)) == set(values_of(sent))
    assert len(back) == len(set(values_of(sent)))


@by_case([case for case in INPUTS if "bool" not in case[1]])
def test_each_label_keeps_its_own_rows(case):
    labels, _ = INPUTS[case]
    table = FRAMES[case[0]](county=labels, x=X)
    out = eb.GaussianEB(variances=1.0).fit(table, groups="county").posterior().to_frame()
    local = dict(
        zip(values_of(column_of(out, "county")), values_of(column_of(out, "local")), strict=True)
    )
    means = {}
    for label, value in zip(values_of(column_of(table, "county")), X, strict=True):
        means.setdefault(label, []).append(value)
    assert local == {label: np.mean(own) for label, own in means.items()}


@by_case(INPUTS)
def test_labels_as_a_series_beside_an_array(case):
    labels, _ = INPUTS[case]
    if case[0] == "pyarrow":
        labels = pa.chunked_array([labels])
    whole = FRAMES[case[0]](county=labels, x=X)
    named = eb.GaussianEB(variances=1.0).fit(whole, groups="county")
    apart = eb.GaussianEB(variances=1.0).fit(np.array(X), groups=labels)
    np.testing.assert_array_equal(named.predict(), apart.predict())
    out = apart.posterior().to_frame()
    assert type(out) is type(whole)
    name = nw.from_native(out).columns[0]
    assert values_of(column_of(out, name)) == values_of(
        column_of(named.posterior().to_frame(), "county")
    )


@by_case(INPUTS)
def test_groups_are_found_again_by_their_labels(case):
    labels, _ = INPUTS[case]
    table = FRAMES[case[0]](county=labels, x=X)
    fitted = eb.GaussianEB(variances=0.01).fit(table, groups="county")
    if case[0] == "pyarrow":
        labels = pa.chunked_array([labels])
    every = fitted.predict(groups=labels)
    np.testing.assert_array_equal(every, fitted.predict(table, groups="county"))
    assert len(set(every)) == len(fitted.groups_)


@pytest.mark.parametrize("unit", ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns"])
@pytest.mark.parametrize("library", FRAMES)
def test_times_of_numpy_in_any_unit(library, unit):
    labels = np.array(["2019", "2018", "2021"], "M8[Y]").astype(f"M8[{unit}]")[PICK]
    fitted = eb.GaussianEB(variances=1.0).fit(FRAMES[library](x=X), groups=labels)
    out = fitted.posterior().to_frame()
    years = nw.from_native(out, eager_only=True)["group"].dt.year().to_list()
    assert years == [2018, 2019, 2021] if unit != "W" else len(years) == 3


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_groups_of_days_are_found_by_plain_dates(library):
    table = FRAMES[library](day=LABELS[library, "date"], x=X)
    fitted = eb.GaussianEB(variances=1.0).fit(table, groups="day")
    out = fitted.posterior(groups=[DAYS[2], dt.date(1999, 1, 1)]).to_frame()
    assert values_of(column_of(out, "n")) == [0, 2]
    assert values_of(column_of(out, "day")) == [dt.date(1999, 1, 1), DAYS[2]]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_groups_of_zoned_times_are_found_by_zoned_times(library):
    labels = LABELS[library, "zoned"]
    table = FRAMES[library](time=labels, x=X)
    fitted = eb.GaussianEB(variances=1.0).fit(table, groups="time")
    out = fitted.posterior(groups=list(labels)[:2]).to_frame()
    assert values_of(column_of(out, "n")) == [2]


@pytest.mark.parametrize(
    ("case", "asked"),
    [
        (("pandas", "int8"), [3, 1000]),
        (("polars", "int8"), [3, 1000]),
        (("pyarrow", "int8"), [3, 1000]),
        (("pandas", "int64"), [2.5, 3.0]),
        (("polars", "int64"), [2.5, 3.0]),
        (("polars", "bool"), [1, 2]),
        (("pandas", "category"), ["Ada", "new"]),
        (("pandas", "ordered category"), ["Ada", "new"]),
        (("polars", "categorical"), ["Ada", "new"]),
        (("polars", "enum"), ["Ada", "new"]),
        (("pandas", "int64"), ["new"]),
        (("polars", "date"), ["new"]),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else str(value),
)
def test_labels_that_the_fit_has_not_seen_come_back_too(case, asked):
    table = FRAMES[case[0]](county=LABELS[case], x=X)
    fitted = eb.GaussianEB(variances=1.0).fit(table, groups="county")
    out = fitted.posterior(groups=asked).to_frame()
    assert values_of(column_of(out, "county")) == sorted(asked)


# --- labels that are refused ---------------------------------------------------------------------

HOLES = {
    "pandas strings": pd.DataFrame({"county": ["a", None, "b"], "x": X[:3]}),
    "pandas floats": pd.DataFrame({"county": [1.0, np.nan, 2.0], "x": X[:3]}),
    "pandas Int64": pd.DataFrame({"county": pd.array([1, None, 2], dtype="Int64"), "x": X[:3]}),
    "pandas objects": pd.DataFrame({"county": pd.Series([1, None, 2], dtype=object), "x": X[:3]}),
    "pandas datetimes": pd.DataFrame(
        {"county": pd.to_datetime(["2020", None, "2021"]), "x": X[:3]}
    ),
    "pandas categories": pd.DataFrame({"county": pd.Categorical(["a", None, "b"]), "x": X[:3]}),
    "polars strings": pl.DataFrame({"county": ["a", None, "b"], "x": X[:3]}),
    "polars integers": pl.DataFrame({"county": [1, None, 2], "x": X[:3]}),
    "polars NaN": pl.DataFrame({"county": [1.0, np.nan, 2.0], "x": X[:3]}),
    "polars dates": pl.DataFrame({"county": [DAYS[0], None, DAYS[1]], "x": X[:3]}),
    "polars categorical": pl.DataFrame(
        {"county": pl.Series(["a", None, "b"], dtype=pl.Categorical), "x": X[:3]}
    ),
    "pyarrow strings": pa.table({"county": ["a", None, "b"], "x": X[:3]}),
    "pyarrow integers": pa.table({"county": [1, None, 2], "x": X[:3]}),
    "pyarrow dates": pa.table({"county": [DAYS[0], None, DAYS[1]], "x": X[:3]}),
}


@pytest.mark.parametrize("kind", HOLES)
def test_missing_labels_are_refused_by_the_name_of_their_column(kind):
    with pytest.raises(ValueError, match=r"^county has 1 missing .*labels, the first in row 1;"):
        Rows.read(HOLES[kind], "county")


@pytest.mark.parametrize("library", FRAMES)
def test_a_name_that_is_not_a_column(library):
    table = FRAMES[library](county=["a", "b"], x=[1.0, 2.0])
    with pytest.raises(ValueError, match=r"groups='state' is not a column of X.* 'county', 'x'"):
        eb.GaussianEB().fit(table, groups="state")


def test_a_name_without_a_frame():
    with pytest.raises(
        ValueError, match="groups='county' names a column, but X is not a data frame"
    ):
        eb.GaussianEB().fit(np.array(X), groups="county")


@pytest.mark.parametrize("library", FRAMES)
def test_labels_of_another_length(library):
    with pytest.raises(ValueError, match="groups has 2 entries for the 3 rows of X"):
        eb.GaussianEB().fit(FRAMES[library](x=X[:3]), groups=np.array(["a", "b"]))


# --- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", FRAMES)
@pytest.mark.parametrize(
    "column", [["1", "2", "3"], DAYS, TIMES, SPANS], ids=["strings", "dates", "times", "durations"]
)
def test_columns_that_are_not_numeric_are_refused_by_name(library, column):
    table = FRAMES[library](county=["a", "a", "b"], x=X[:3], remark=column)
    with pytest.raises(TypeError, match=r"column 'remark' of X is .*, not numeric"):
        eb.GaussianEB().fit(table, groups="county")


def test_categories_are_not_numeric_even_of_numbers():
    table = pd.DataFrame({"county": [1, 1, 2], "x": pd.Categorical([1, 2, 3])})
    with pytest.raises(TypeError, match="column 'x' of X is Categorical, not numeric"):
        eb.GaussianEB().fit(table, groups="county")


def test_a_frame_of_nothing_but_labels():
    with pytest.raises(ValueError, match="X"):
        eb.GaussianEB().fit(pd.DataFrame({"county": ["a", "b"]}), groups="county")


NUMBERS = {
    "pandas Int64": pd.DataFrame({"x": pd.array([1, 0, 1, 1], dtype="Int64")}),
    "pandas Float64": pd.DataFrame({"x": pd.array([1, 0, 1, 1], dtype="Float64")}),
    "pandas boolean": pd.DataFrame({"x": pd.array([True, False, True, True], dtype="boolean")}),
    "pandas bool": pd.DataFrame({"x": [True, False, True, True]}),
    "pandas Arrow": pd.DataFrame({"x": pd.array([1, 0, 1, 1], dtype="int8[pyarrow]")}),
    "pandas uint8": pd.DataFrame({"x": np.array([1, 0, 1, 1], np.uint8)}),
    "polars int": pl.DataFrame({"x": [1, 0, 1, 1]}),
    "polars bool": pl.DataFrame({"x": [True, False, True, True]}),
    "polars decimal": pl.DataFrame({"x": pl.Series([1, 0, 1, 1]).cast(pl.Decimal(10, 2))}),
    "polars float32": pl.DataFrame({"x": pl.Series([1, 0, 1, 1], dtype=pl.Float32)}),
    "pyarrow int": pa.table({"x": [1, 0, 1, 1]}),
    "pyarrow bool": pa.table({"x": [True, False, True, True]}),
    "pandas series": pd.Series([1, 0, 1, 1], name="x"),
    "polars series": pl.Series("x", [1, 0, 1, 1]),
    "Arrow column": pa.chunked_array([[1, 0], [1, 1]]),
    "list": [1, 0, 1, 1],
}


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("estimator", [eb.GaussianEB(), eb.BernoulliEB()], ids=["gaussian", "rate"])
def test_numbers_of_any_type(kind, estimator):
    groups = ["a", "a", "b", "b"]
    expected = estimator.fit(np.array([1.0, 0, 1, 1]), groups=groups).predict()
    np.testing.assert_array_equal(estimator.fit(NUMBERS[kind], groups=groups).predict(), expected)


GAPS = {
    "pandas": pd.DataFrame({"x": [1.0, None, 3.0]}),
    "pandas Int64": pd.DataFrame({"x": pd.array([1, None, 3], dtype="Int64")}),
    "pandas Float64": pd.DataFrame({"x": pd.array([1, None, 3], dtype="Float64")}),
    "pandas boolean": pd.DataFrame({"x": pd.array([True, None, True], dtype="boolean")}),
    "polars null": pl.DataFrame({"x": [1.0, None, 3.0]}),
    "polars integer null": pl.DataFrame({"x": [1, None, 3]}),
    "polars NaN": pl.DataFrame({"x": [1.0, np.nan, 3.0]}),
    "pyarrow null": pa.table({"x": [1.0, None, 3.0]}),
    "polars series": pl.Series("x", [1, None, 3]),
    "pandas series": pd.Series([1, None, 3], dtype="Int64"),
}


@pytest.mark.parametrize("kind", GAPS)
def test_missing_numbers_are_refused(kind):
    with pytest.raises(ValueError, match="X contains NaN"):
        eb.GaussianEB().fit(GAPS[kind], groups=["a", "a", "b"])


@pytest.mark.parametrize("library", FRAMES)
def test_names_of_columns_are_remembered_and_held_to(library):
    table = FRAMES[library](county=["a", "a", "b", "b"], income=X[:4], age=X[2:6])
    fitted = eb.GaussianEB().fit(table, groups="county")
    assert fitted.feature_names_in_.tolist() == ["income", "age"]
    other = FRAMES[library](county=["a", "a"], income=X[:2], weight=X[:2])
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(other, groups="county")


# --- reports -------------------------------------------------------------------------------------


@pytest.fixture(params=FRAMES)
def library(request):
    return request.param


def table_of(library, columns=1):
    more = {"income": X, "age": X[::-1]}
    names = list(more)[:columns]
    return FRAMES[library](
        county=["b", "b", "a", "a", "c", "c"], **{name: more[name] for name in names}
    )


def columns_of(native):
    return nw.from_native(native, eager_only=True).columns


def is_frame_of(native, library):
    implementation = nw.from_native(native, eager_only=True).implementation
    return implementation == nw.Implementation.from_backend(library)


def test_reports_come_in_the_library_that_was_fitted(library):
    table = table_of(library)
    fitted = eb.GaussianEB().fit(table, groups="county")
    reports = {
        "posterior": fitted.posterior().to_frame(),
        "of new rows": fitted.posterior(table, groups="county").to_frame(),
        "tidy": fitted.tidy(),
        "glance": fitted.glance(),
        "augment": fitted.augment(table, groups="county"),
    }
    for name, report in reports.items():
        assert is_frame_of(report, library), name
    assert columns_of(reports["posterior"]) == [
        "county", "n", "local", "estimate", "sd", "lower", "upper", "weight",
    ]  # fmt: skip
    assert columns_of(reports["augment"]) == ["county", "income", ".fitted", ".resid", ".fixed"]
    assert columns_of(reports["tidy"]) == [
        "effect", "group", "term", "response", "estimate", "std.error", "statistic",
    ]  # fmt: skip
    assert columns_of(reports["glance"]) == [
        "n_groups", "nobs", "npar", "logLik", "likelihood", "AIC", "BIC", "df.residual",
        "sigma", "icc",
    ]  # fmt: skip


def test_reports_of_several_columns(library):
    table = table_of(library, columns=2)
    fitted = eb.GaussianEB().fit(table, groups="county")
    out = fitted.posterior().to_frame()
    assert columns_of(out)[:2] == ["county", "term"]
    assert values_of(column_of(out, "term")) == ["income", "age"] * 3
    assert values_of(column_of(out, "county")) == ["a", "a", "b", "b", "c", "c"]
    np.testing.assert_array_equal(column_of(out, "estimate"), fitted.predict().ravel())
    rows = fitted.augment(table, groups="county")
    assert columns_of(rows) == [
        "county", "income", "age",
        ".fitted_income", ".resid_income", ".fixed_income",
        ".fitted_age", ".resid_age", ".fixed_age",
    ]  # fmt: skip
    assert values_of(column_of(fitted.tidy(), "response")) == ["income"] * 3 + ["age"] * 3


def test_augment_returns_the_rows_in_their_order(library):
    table = table_of(library)
    fitted = eb.GaussianEB().fit(table, groups="county")
    rows = fitted.augment(table, groups="county")
    assert values_of(column_of(rows, "county")) == ["b", "b", "a", "a", "c", "c"]
    assert values_of(column_of(rows, "income")) == X
    estimates = fitted.predict(table, groups="county")
    np.testing.assert_array_equal(column_of(rows, ".fitted"), estimates)
    np.testing.assert_array_equal(column_of(rows, ".resid"), np.array(X) - estimates)
    np.testing.assert_array_equal(column_of(rows, ".fixed"), fitted.prior_.mean_[0])


def test_figures_are_the_same_in_every_library():
    tidy, glance = [], []
    for library in FRAMES:
        fitted = eb.GaussianEB().fit(table_of(library), groups="county")
        tidy.append(values_of(column_of(fitted.tidy(), "estimate")))
        glance.append([values_of(column_of(fitted.glance(), name)) for name in ("AIC", "icc")])
    assert tidy[0] == tidy[1] == tidy[2]
    assert glance[0] == glance[1] == glance[2]


def test_tidy_tells_the_fit():
    fitted = eb.GaussianEB().fit(table_of("pandas"), groups="county")
    expected = pd.DataFrame(
        {
            "effect": ["fixed", "ran_pars", "ran_pars"],
            "group": ["", "county", "Residual"],
            "term": ["mean", "sd__mean", "sd__Observation"],
            "response": ["income"] * 3,
            "estimate": [
                fitted.prior_.mean_[0],
                np.sqrt(fitted.prior_.variance_[0]),
                np.sqrt(fitted.noise_variance_[0]),
            ],
            "std.error": [np.sqrt(fitted.prior_.mean_variance_[0]), np.nan, np.nan],
        }
    )
    expected["statistic"] = expected["estimate"] / expected["std.error"]
    pd.testing.assert_frame_equal(fitted.tidy(), expected)


def test_glance_tells_the_fit():
    fitted = eb.GaussianEB().fit(table_of("pandas"), groups="county")
    glance = fitted.glance().iloc[0]
    assert (glance["n_groups"], glance["nobs"], glance["npar"]) == (3, 6, 3)
    assert glance["logLik"] == fitted.log_likelihood_
    assert glance["AIC"] == pytest.approx(6 - 2 * fitted.log_likelihood_)
    assert glance["BIC"] == pytest.approx(3 * np.log(6) - 2 * fitted.log_likelihood_)
    between, within = fitted.prior_.variance_[0], fitted.noise_variance_[0]
    assert glance["icc"] == pytest.approx(between / (between + within))
    assert glance["sigma"] == np.sqrt(within)
    assert glance["df.residual"] == 6 - 3


@pytest.mark.parametrize("wanted", ["pandas", "polars"])
def test_set_output_decides_the_library_of_every_report(library, wanted):
    table = table_of(library, columns=2)
    fitted = eb.GaussianEB().fit(table, groups="county").set_output(transform=wanted)
    for report in (
        fitted.posterior().to_frame(),
        fitted.posterior(table, groups="county").to_frame(),
        fitted.tidy(),
        fitted.glance(),
        fitted.augment(table, groups="county"),
        fitted.transform(table, groups="county"),
    ):
        assert is_frame_of(report, wanted)


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("wanted", ["pandas", "polars"])
def test_set_output_is_not_about_predictions(columns, wanted):
    table = table_of("pandas", columns=columns)
    expected = eb.GaussianEB().fit_predict(table, groups="county")
    fitted = eb.GaussianEB().set_output(transform=wanted)
    for found in (
        fitted.fit_predict(table, groups="county"),
        fitted.predict(table, groups="county"),
        fitted.predict(groups=table["county"]),
    ):
        np.testing.assert_array_equal(found, expected)
    assert fitted.predict().shape == eb.GaussianEB().fit(table, groups="county").predict().shape


def test_set_output_default_is_the_library_that_came():
    table = table_of("polars")
    fitted = eb.GaussianEB().fit(table, groups="county").set_output(transform="default")
    assert is_frame_of(fitted.posterior().to_frame(), "polars")
    assert isinstance(fitted.transform(table, groups="county"), np.ndarray)


# but for zones without a name, which polars has not
@by_case([case for case in LABELS if case[0] != "pyarrow" and case[1] != "zoned by offset"])
def test_labels_cross_from_one_library_to_the_other(case):
    wanted = "polars" if case[0] == "pandas" else "pandas"
    table = FRAMES[case[0]](county=LABELS[case], x=X)
    fitted = eb.GaussianEB(variances=1.0).fit(table, groups="county")
    fitted.set_output(transform=wanted)
    out = fitted.posterior().to_frame()
    assert is_frame_of(out, wanted)
    back = values_of(column_of(out, "county"))
    if "nanoseconds" in case[1]:  # which Python's datetime has not
        assert len(back) == 3
    else:
        assert set(back) == set(values_of(LABELS[case]))


# --- names that results use themselves -----------------------------------------------------------

RESULTS = ["n", "local", "estimate", "sd", "lower", "upper", "weight", "term"]


@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize("columns", [1, 2])
def test_a_group_column_called_like_a_result_is_not_overwritten(name, columns):
    table = table_of("pandas", columns).rename(columns={"county": name})
    out = eb.GaussianEB().fit(table, groups=name).posterior().to_frame()
    assert out.columns.is_unique
    assert sorted(set(out.iloc[:, 0])) == ["a", "b", "c"]
    assert set(RESULTS[:7]) <= set(out.columns)
    np.testing.assert_array_equal(out["n"], 2)


@pytest.mark.parametrize("name", ["income", ".fitted", ".resid", ".fixed"])
def test_augment_overwrites_no_column(name):
    table = table_of("pandas")
    groups = table["county"].rename(name)
    fitted = eb.GaussianEB().fit(table[["income"]], groups=groups)
    out = fitted.augment(table[["income"]], groups=groups)
    assert out.columns.is_unique
    assert out.iloc[:, 0].tolist() == table["county"].tolist()
    assert out.shape == (6, 5)


# --- the two functions themselves ----------------------------------------------------------------


def test_read_takes_a_frame_apart(library):
    table = Rows.read(table_of(library, columns=2), "county")
    assert table.labels.tolist() == ["b", "b", "a", "a", "c", "c"]
    assert table.columns == ["income", "age"]
    assert table.style == Style(library, "county", nw.String())


def test_read_passes_arrays_through():
    table = Rows.read(np.eye(3), [3, 1, 2])
    np.testing.assert_array_equal(table.X, np.eye(3))
    assert table.labels.tolist() == [3, 1, 2]
    assert table.style == Style()
    assert Rows.read([1.0]).labels is None


def test_read_leaves_the_frame_alone(library):
    table = table_of(library)
    before = columns_of(table)
    Rows.read(table, "county")
    assert columns_of(table) == before


def test_the_index_of_a_pandas_frame_does_not_matter():
    table = table_of("pandas")
    shuffled = table.set_index(pd.Index([5, 5, 1, 0, -1, 2]))
    expected = eb.GaussianEB().fit(table, groups="county").predict()
    for X_, groups in ((shuffled, "county"), (shuffled[["income"]], shuffled["county"])):
        np.testing.assert_array_equal(eb.GaussianEB().fit(X_, groups=groups).predict(), expected)


def test_frame_builds_columns_in_a_style(library):
    out = frame({"place": ["a", "b"], "value": np.array([1.0, 2.0])}, Style(library, "place"))
    assert is_frame_of(out, library)
    assert values_of(column_of(out, "place")) == ["a", "b"]
    assert values_of(column_of(out, "value")) == [1.0, 2.0]


def test_an_empty_frame_of_results():
    fitted = eb.GaussianEB().fit(table_of("polars"), groups="county")
    out = fitted.posterior(groups=[]).to_frame()
    assert out.shape == (0, 8)


@pytest.mark.parametrize("series", [pd.Series, pl.Series])
def test_named_series_are_columns(series):
    values = series(name="income", **{"data" if series is pd.Series else "values": X})
    fitted = eb.GaussianEB().fit(values, groups=["b", "b", "a", "a", "c", "c"])
    assert fitted.feature_names_in_.tolist() == ["income"]
    assert "income" in str(fitted.summary())
    posterior = eb.posterior_from(values, values)
    np.testing.assert_array_equal(posterior.mean, eb.posterior_from(X, X).mean)


def test_estimates_in_series_give_frames_of_their_library():
    out = eb.posterior_from(pl.Series([1.0, 2.0, 9.0]), pl.Series([1.0, 1.0, 1.0])).to_frame()
    same = eb.posterior_from([1.0, 2.0, 9.0], [1.0, 1.0, 1.0]).to_frame()
    polars.testing.assert_frame_equal(out, pl.from_pandas(same))


@pytest.mark.parametrize("of", ["posterior", "augment", "tidy"])
def test_a_frame_may_be_changed_without_changing_the_rows_or_the_fit(of):
    X, groups = np.arange(12.0)[:, None] ** 2, np.repeat(np.arange(3), 4)
    est = eb.GaussianEB().fit(X, groups=groups)
    before = X.copy(), groups.copy(), est.summaries_.n.copy(), est.predict()
    result = est.augment(X, groups=groups) if of == "augment" else est.tidy()
    if of == "posterior":
        result = est.posterior().to_frame()
    for column in result.select_dtypes("number"):
        result.loc[0, column] = 77
    after = X, groups, est.summaries_.n, est.predict()
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "ids",
    [[0, 1, 2], [5, 6, 7], [-3, 0, 2], [-(10**12), 0, 10**12], ["b", "a", "c"], [1.5, -0.5, 9.0]],
    ids=str,
)
def test_rows_get_the_estimate_of_their_group_whatever_the_labels(ids):
    rng = np.random.default_rng(0)
    codes = rng.permutation(np.repeat(np.arange(3), [1, 5, 3]))
    X, groups = rng.normal(size=(9, 2)), np.array(ids)[codes]
    est = eb.GaussianEB().fit(X, groups=groups)
    shown = dict(zip(est.groups_.tolist(), est.posterior().mean, strict=True))
    expected = np.array([shown[label] for label in groups.tolist()])
    np.testing.assert_array_equal(est.predict(X, groups=groups), expected)
    np.testing.assert_array_equal(est.augment(X, groups=groups)[".fitted_x1"], expected[:, 1])
