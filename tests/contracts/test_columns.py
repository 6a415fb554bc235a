"""Every entry reads a column alike: the same numbers of every type, or the same refusal by name."""

import datetime as dt
import re
from decimal import Decimal

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import ebfed as eb
from ebfed.tables.values import NotNumericError

RNG = np.random.default_rng(3)
N, AT = 60, 4
K = np.repeat(np.arange(6), 10)
X = RNG.integers(-4, 5, N).astype(float)
Y = X + RNG.integers(-6, 7, N) + 3.0 * (K == 1)
COLUMNS = {  # whole numbers, which every type holds
    "x": X,
    "y": Y,
    "won": (Y > 0).astype(float),
    "count": RNG.poisson(3, N).astype(float),
    "kind": RNG.integers(0, 3, N).astype(float),
    "weight": RNG.integers(1, 4, N).astype(float),
    "error": RNG.integers(1, 4, N).astype(float),
    "observed": (RNG.random(N) < 0.7).astype(float),
    "time": RNG.integers(1, 9, N).astype(float),
    "offset": RNG.integers(0, 2, N).astype(float),
    "size": np.full(N, 20.0),
    "k": K.astype(float),
    "day": (np.arange(N) % 5).astype(float),
    "unit": np.arange(N, 0, -1).astype(float),
}


def figures(result):
    """The numbers of a result, without its labels."""
    table = nw.from_native(result.to_frame(), eager_only=True)
    names = [name for name in table.columns[1:] if table[name].dtype.is_numeric()]
    return np.column_stack([table[name].to_numpy() for name in names]).astype(float)


def located(make):
    return lambda **given: figures(make().fit(**given).posterior())


def predicted(make, method="predict"):
    def fit(X, y, groups, **others):
        fitted = make().fit(X, y, groups=groups, **others)
        asked = {"offset": others["offset"]} if "offset" in others else {}
        return np.asarray(getattr(fitted, method)(X, groups=groups, **asked), float)

    return fit


def crossed(X, y, first, second, sample_weight):
    fitted = eb.CrossedEB().fit(X, y, groups=[first, second], sample_weight=sample_weight)
    return np.asarray(fitted.predict(X, groups=[first, second]), float)


def encoded(**given):
    fitted = eb.GroupEncoder("continuous").fit(**given)
    return np.sort(fitted.tidy()["estimate"])


def unit(function):
    return lambda **given: figures(function(**given))


def formula(text, **settings):
    """A fit of a formula to a frame of the library of a column that is a series of one."""

    def fit(**given):
        kind = next((type(x) for x in given.values() if isinstance(x, pl.Series | ARROW)), None)
        if kind is None:
            flat = {name: x if np.ndim(x) == 1 else x[:, 0] for name, x in given.items()}
            data = pd.DataFrame(flat)
        elif kind is pl.Series:
            data = pl.DataFrame({name: pl.Series(name, x) for name, x in given.items()})
        else:
            data = pa.table(given)
        return np.asarray(eb.from_formula(text, data, **settings).predict(data), float)

    return fit


ARROW = pa.Array | pa.ChunkedArray
# What each argument holds: data, amounts (which True and False are not), labels or classes; a
# column of a formula is numbers, or a factor.
DATA, AMOUNT, LABELS, CLASSES, COLUMN = "data", "amount", "labels", "classes", "column"
MEANS = {"X": ("y", DATA), "groups": ("k", LABELS), "sample_weight": ("weight", AMOUNT)}
ROWS = {"X": ("x", DATA), "y": ("y", DATA), "groups": ("k", LABELS)}
UNITS = {"estimates": ("y", DATA), "std_errors": ("error", AMOUNT), "labels": ("unit", LABELS)}
WEIGHT = {"sample_weight": ("weight", AMOUNT)}
ENTRIES = {
    "GaussianEB": (located(eb.GaussianEB), MEANS),
    "BernoulliEB": (located(eb.BernoulliEB), MEANS | {"X": ("won", DATA)}),
    "PoissonEB": (
        located(eb.PoissonEB),
        {"X": ("count", DATA), "groups": ("k", LABELS), "exposure": ("weight", AMOUNT)},
    ),
    "CategoricalEB": (
        located(eb.CategoricalEB),
        {"X": ("kind", CLASSES), "groups": ("k", LABELS)},
    ),
    "DurationEB": (
        located(eb.DurationEB),
        {"X": ("time", DATA), "groups": ("k", LABELS), "observed": ("observed", DATA)} | WEIGHT,
    ),
    "LinearEB": (predicted(eb.LinearEB), ROWS | WEIGHT),
    "LogisticEB": (
        predicted(eb.LogisticEB, "predict_proba"),
        ROWS | {"y": ("won", CLASSES)} | WEIGHT,
    ),
    "GeneralizedEB": (
        predicted(lambda: eb.GeneralizedEB("poisson")),
        ROWS | {"y": ("count", DATA), "offset": ("offset", AMOUNT)} | WEIGHT,
    ),
    "trials": (
        predicted(lambda: eb.GeneralizedEB("binomial")),
        ROWS | {"y": ("won", DATA), "trials": ("weight", AMOUNT)},
    ),
    "CrossedEB": (
        crossed,
        {"X": ("x", DATA), "y": ("y", DATA), "first": ("k", LABELS), "second": ("day", LABELS)}
        | WEIGHT,
    ),
    "LocalOnly": (
        predicted(lambda: eb.learning.LocalOnly(n_rounds=2), "predict_proba"),
        ROWS | {"y": ("won", CLASSES)},
    ),
    "formula": (
        formula("y ~ x + (1 | k)", weights="w"),
        {"y": ("y", DATA), "x": ("x", COLUMN), "k": ("k", LABELS), "w": ("weight", AMOUNT)},
    ),
    "formula of two labels": (
        formula("y ~ x + (1 | k)", family="binomial"),
        {"y": ("won", CLASSES), "x": ("x", COLUMN), "k": ("k", LABELS)},
    ),
    "formula of trials": (
        formula("cbind(won, trials=n) ~ x + (1 | k)", family="binomial"),
        {"won": ("won", DATA), "n": ("weight", DATA), "x": ("x", COLUMN), "k": ("k", LABELS)},
    ),
    "formula of counts": (
        formula("y ~ x + offset(away) + (1 | k)", family="poisson"),
        {"y": ("count", DATA), "x": ("x", COLUMN), "k": ("k", LABELS), "away": ("offset", DATA)},
    ),
    "formula of factors": (
        formula("y ~ x + (1 | k) + (1 | day)"),
        {"y": ("y", DATA), "x": ("x", COLUMN), "k": ("k", LABELS), "day": ("day", LABELS)},
    ),
    "GroupEncoder": (encoded, {"X": ("k", CLASSES), "y": ("y", DATA)} | WEIGHT),
    "posterior_from": (
        unit(eb.posterior_from),
        UNITS | {"mean": ("time", DATA), "spread": ("y", DATA)},
    ),
    "degrees": (unit(eb.posterior_from), UNITS | {"df": ("time", AMOUNT)}),
    "meta_analysis": (unit(eb.meta_analysis), UNITS | {"covariates": ("time", DATA)}),
    "fay_herriot": (unit(eb.fay_herriot), UNITS | {"covariates": ("time", DATA)}),
    "moderated_t": (
        unit(eb.moderated_t),
        UNITS | {"estimates": ("y", AMOUNT), "df": ("time", AMOUNT)},
    ),
    "effect_sizes": (
        lambda **given: np.asarray(eb.effect_sizes(**given), float),
        {
            "events": ("count", AMOUNT),
            "n": ("size", AMOUNT),
            "control_events": ("time", AMOUNT),
            "control_n": ("size", AMOUNT),
        },
    ),
}
CASES = [(entry, argument) for entry, (_, roles) in ENTRIES.items() for argument in roles]
# Arguments whose missing values say that there are no data, and are not refused.
UNKNOWN = {
    ("posterior_from", "std_errors"),
    ("degrees", "std_errors"),
    ("degrees", "df"),
    ("fay_herriot", "std_errors"),
}
# Rows of several columns, whose cells cannot be of every type by themselves.
TABLES = ("LinearEB", "LogisticEB", "GeneralizedEB", "trials", "CrossedEB", "LocalOnly")
TABLES = {(entry, "X") for entry in (*TABLES, "GroupEncoder")}


def decimal(values):
    return [Decimal(str(each)) for each in values]


def mixed(values):
    return [int(each) if i % 2 else float(each) for i, each in enumerate(values)]


def text(values):
    return [f"t{each:g}" for each in values]


def digits(values):
    return [str(each) for each in values]


def days(values):
    return pd.to_datetime(values + 100, unit="D")


def series(dtype, make=lambda values: values):
    return lambda values: pd.Series(make(values), dtype=dtype)


NUMBERS = {
    "list": list,
    "series": pd.Series,
    "float32": series("f4"),
    "float16": lambda values: values.astype("f2"),
    "long double": lambda values: values.astype(np.longdouble),
    "int8": series("i1", lambda values: values.astype(int)),
    "int32": lambda values: values.astype("i4"),
    "big endian": lambda values: values.astype(">f8"),
    "big endian series": series(">i4", lambda values: values.astype(int)),
    "Int64": series("Int64", lambda values: values.astype(int)),
    "Float64": series("Float64"),
    "array of pandas": lambda values: pd.array(values.astype(int), dtype="Int64"),
    "arrow int": series("int64[pyarrow]", lambda values: values.astype(int)),
    "arrow float": series("double[pyarrow]"),
    "arrow decimal": series(pd.ArrowDtype(pa.decimal128(10, 3)), decimal),
    "objects": series(object, mixed),
    "array of objects": lambda values: np.array(mixed(values), object),
    "Decimal": series(object, decimal),
    "list of Decimal": decimal,
    "polars": lambda values: pl.Series("a", values),
    "polars int8": lambda values: pl.Series("a", values.astype("i1")),
    "polars Decimal": lambda values: pl.Series("a", decimal(values)),
    "polars objects": lambda values: pl.Series("a", decimal(values), dtype=pl.Object),
    "pyarrow": lambda values: pa.chunked_array([values]),
    "pyarrow array": lambda values: pa.array(values.astype(int)),
    "pyarrow Decimal": lambda values: pa.chunked_array([decimal(values)]),
    "masked array": lambda values: np.ma.array(values, mask=False),
    "one column": lambda values: values[:, None],
}
BOOLEANS = {
    "bool": lambda values: values == 1,
    "list of bool": lambda values: (values == 1).tolist(),
    "boolean": series("boolean", lambda values: values == 1),
    "arrow bool": series("bool[pyarrow]", lambda values: values == 1),
    "objects of bool": series(object, lambda values: values == 1),
    "polars bool": lambda values: pl.Series("a", values == 1),
    "pyarrow bool": lambda values: pa.chunked_array([values == 1]),
}
# Good labels, of which none is a number.
NAMES = {
    "digits": series(object, digits),
    "array of digits": lambda values: np.array(digits(values)),
    "list of digits": digits,
    "string digits": series("string", digits),
    "arrow digits": series("string[pyarrow]", digits),
    "polars digits": lambda values: pl.Series("a", digits(values)),
    "pyarrow digits": lambda values: pa.chunked_array([digits(values)]),
    "text": series(object, text),
    "list of text": text,
    "polars text": lambda values: pl.Series("a", text(values)),
    "categories of text": series("category", text),
    "categories of numbers": series("category"),
    "polars categories": lambda values: pl.Series("a", digits(values), dtype=pl.Categorical),
    "pyarrow dictionary": lambda values: pa.array(text(values)).dictionary_encode(),
    "dictionary of numbers": lambda values: pa.chunked_array(
        [pa.array(values).dictionary_encode()]
    ),
    "dates": lambda values: pd.Series(days(values)),
    "array of dates": lambda values: days(values).to_numpy(),
    "list of times": lambda values: list(days(values)),
    "objects of dates": series(object, lambda values: [each.date() for each in days(values)]),
    "dates with a zone": lambda values: pd.Series(days(values).tz_localize("Europe/Paris")),
    "polars dates": lambda values: pl.Series("a", [each.date() for each in days(values)]),
    "time spans": lambda values: pd.Series(pd.to_timedelta(values, unit="D")),
    "objects of spans": series(object, lambda x: [dt.timedelta(days=int(each)) for each in x]),
    "polars spans": lambda values: pl.Series("a", [dt.timedelta(days=int(x)) for x in values]),
}
# Neither numbers nor labels that can be sorted.
NEITHER = {
    "text among numbers": lambda values: pd.Series(["no", *values[1:]], dtype=object),
    "list of both": lambda values: ["no", *values[1:]],
    "complex": lambda values: values + 0j,
}


def holed(missing, make=lambda values: pd.Series(values, dtype=object)):
    return lambda values: make([missing if i == AT else each for i, each in enumerate(values)])


def of_r(array, values, dtype):
    """A vector of R with NA, as `as_column` of vignettes/ebfed.R makes it."""
    return array(np.asarray(values).astype(dtype), np.arange(N) == AT)


HOLES = {
    "R integer": lambda values: of_r(pd.arrays.IntegerArray, values, "int64"),
    "R double": lambda values: np.array(holed(np.nan, list)(values), "float64"),
    "NaN": holed(np.nan, pd.Series),
    "array with NaN": holed(np.nan, np.array),
    "list with NaN": holed(np.nan, list),
    "list with None": holed(None, list),
    "list with NA": holed(pd.NA, list),
    "objects with None": holed(None),
    "objects with NA": holed(pd.NA),
    "objects with NaT": holed(pd.NaT),
    "Decimal NaN": lambda values: holed(Decimal("NaN"))(decimal(values)),
    "Int64 NA": holed(pd.NA, lambda values: pd.Series(values, dtype="Int64")),
    "Float64 NA": holed(pd.NA, lambda values: pd.Series(values, dtype="Float64")),
    "arrow null": holed(None, lambda values: pd.Series(values, dtype="double[pyarrow]")),
    "polars null": holed(None, lambda values: pl.Series("a", values)),
    "polars NaN": holed(np.nan, lambda values: pl.Series("a", values)),
    "pyarrow null": holed(None, lambda values: pa.chunked_array([values])),
    "masked": lambda values: np.ma.array(values, mask=np.arange(N) == AT),
    "R": lambda values: np.where(np.arange(N) == AT, -(2**31), values).astype("i4"),
    "NA among numbers": holed("NA"),
    "list with a blank": holed("", list),
    "infinity": holed(np.inf, pd.Series),
    "polars infinity": holed(np.inf, lambda values: pl.Series("a", values)),
}


def as_table(column):
    """A column as the only one of a table of its library."""
    if isinstance(column, pd.Series):
        return column.to_frame("a")
    if isinstance(column, pl.Series):
        return column.to_frame()
    if isinstance(column, pa.Array | pa.ChunkedArray):
        return pa.table({"a": column})
    if isinstance(column, list):
        return [[each] for each in column]
    if isinstance(column, np.ndarray):
        return column.reshape(-1, 1)
    return pd.DataFrame({"a": column})


def outcome(entry, argument, make):
    """What a fit gives where one argument is of another type."""
    fit, roles = ENTRIES[entry]
    given = {name: COLUMNS[column].copy() for name, (column, _) in roles.items()}
    given[argument] = make(given[argument])
    for name in given:
        if (entry, name) in TABLES:
            given[name] = as_table(given[name])
    try:
        return fit(**given)
    except (ValueError, TypeError) as error:
        return error


def differing(entry, argument, kinds, refused):
    """The kinds of column that give something else, and what that is."""
    content = ENTRIES[entry][1][argument][1]
    numbers, factor = outcome(entry, argument, lambda values: values), None
    found = {}
    for kind, make in kinds.items():
        expected = numbers
        if content == COLUMN and kind in NAMES and not re.search("date|time|span", kind):
            factor = outcome(entry, argument, series(object, text)) if factor is None else factor
            expected = factor
        got = outcome(entry, argument, make)
        if refused is None:
            tolerance = 1e-5 if "float" in kind and "Float" not in kind else 1e-9
            same = not isinstance(got, Exception) and got.shape == expected.shape
            if same and content in (LABELS, CLASSES):
                # labels of text are in another order
                got, wanted = np.sort(got, axis=0), np.sort(expected, axis=0)
            else:
                wanted = expected
            if not same or not np.allclose(got, wanted, tolerance, tolerance, equal_nan=True):
                found[kind] = got
        elif not isinstance(got, refused) or (
            argument not in str(got) and argument not in ("first", "second")
        ):
            found[kind] = got
    return {kind: " ".join(str(got).split())[:90] for kind, got in found.items()}


pytestmark = [
    pytest.mark.filterwarnings("ignore:A column-vector y was passed"),
    # a factor of few rows a level separates the labels
    pytest.mark.filterwarnings("ignore:The likelihood rises without end"),
]
every = pytest.mark.parametrize(("entry", "argument"), CASES)


@every
def test_numbers_of_every_type_give_the_same_figures(entry, argument):
    kinds = dict(NUMBERS)
    if ENTRIES[entry][1][argument][0] in ("won", "observed", "offset"):
        if ENTRIES[entry][1][argument][1] == AMOUNT:
            assert differing(entry, argument, BOOLEANS, NotNumericError) == {}
        else:
            kinds |= BOOLEANS
    assert differing(entry, argument, kinds, None) == {}


@every
def test_what_is_no_number_is_a_label_or_refused_by_name(entry, argument):
    content = ENTRIES[entry][1][argument][1]
    refused = None if content in (LABELS, CLASSES, COLUMN) else (TypeError, ValueError)
    kinds = NAMES
    if entry == "CategoricalEB" and argument == "X":  # whose categories are no times
        kinds = {
            kind: make for kind, make in NAMES.items() if not re.search("date|time|span", kind)
        }
    assert differing(entry, argument, kinds, refused) == {}


@every
def test_what_is_neither_is_refused_by_name(entry, argument):
    content = ENTRIES[entry][1][argument][1]
    if argument == "labels" or (entry, argument) == ("GroupEncoder", "X"):
        return  # these are not sorted
    refused = NotNumericError if content in (DATA, AMOUNT) else (TypeError, ValueError)
    assert differing(entry, argument, NEITHER, refused) == {}


@every
def test_missing_and_infinite_values_are_refused_by_name(entry, argument):
    if (entry, argument) in UNKNOWN or (entry, argument) == ("GroupEncoder", "X"):
        assert differing(entry, argument, HOLES, Exception) != {}  # they have a meaning
        return
    kinds = dict(HOLES)
    if ENTRIES[entry][1][argument][1] in (LABELS, CLASSES):  # where words are labels
        for kind in ("NA among numbers", "list with a blank"):
            del kinds[kind]
        kinds["R character"] = lambda values: series(object, holed(None, list))(text(values))
        kinds["R factor"] = lambda values: pd.Categorical.from_codes(
            np.where(np.arange(N) == AT, -1, values.astype(int) - int(values.min())),
            [f"t{each:g}" for each in np.arange(values.min(), values.max() + 1)],
        )
    if ENTRIES[entry][1][argument][0] in ("won", "observed"):
        kinds["R logical"] = lambda values: of_r(pd.arrays.BooleanArray, values, bool)
    assert differing(entry, argument, kinds, ValueError) == {}
