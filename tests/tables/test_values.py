"""Masked entries are never used; times, complex numbers and booleans are no numbers."""

import datetime
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.linear_model import LinearRegression

import ebfed as eb
from ebfed.families import Gaussian
from ebfed.tables.clients import Clients, Summary
from ebfed.tables.covariates import read_covariates
from ebfed.tables.features import check_finite, validated
from ebfed.tables.rows import Rows
from ebfed.tables.values import NotNumericError, numbers, plain, read_labels, unmasked

MASKED = np.ma.array([1.0, 2.0, 3.0], mask=[False, True, False])
TIMES = {
    "dates": np.array(["2024-01-01"], "M8[D]"),
    "durations": np.array([3], "m8[s]"),
    "objects": np.array([np.timedelta64(3, "s")], object),
    "a list": [np.datetime64("2024-01-01")],
    "days": [datetime.date(2024, 1, 1)],
    "pandas": pd.Series([pd.Timestamp("2024-01-01")]),
    "durations of pandas": pd.Series([pd.Timedelta(1, "D")]),
}


def test_masked_entries_are_refused_by_name():
    with pytest.raises(ValueError, match="X has 1 masked entries, the first in row 1; drop them"):
        unmasked(MASKED, "X")
    with pytest.raises(ValueError, match="X has 1 masked entries, the first in row 1"):
        unmasked([np.ma.array([1.0, 2.0]), np.ma.array([1.0, 2.0], mask=[True, False])], "X")
    with pytest.raises(ValueError, match="sd has 1 masked entries; drop"):
        unmasked(np.ma.masked, "sd")


def test_masks_without_masked_entries_are_dropped():
    plain = unmasked(np.ma.array([1.0, 2.0]), "X")
    assert type(plain) is np.ndarray
    assert plain.tolist() == [1.0, 2.0]


def test_masked_entries_are_nan_where_that_means_no_data():
    found = numbers(MASKED, "estimates", fill=True)
    np.testing.assert_array_equal(found, [1.0, np.nan, 3.0])
    found = numbers([1, np.ma.masked], "estimates", fill=True)
    np.testing.assert_array_equal(found, [1.0, np.nan])
    words = np.ma.array(["a", "b"], mask=[False, True])
    with pytest.raises(ValueError, match="estimates has 1 masked"):
        numbers(words, "estimates", fill=True)


READERS = {
    "X": lambda values: Rows.read(values),
    "groups": lambda values: Rows.read([1.0, 2.0, 3.0], values),
    "consent": lambda values: Rows.read([1.0, 2.0, 3.0], beside={"consent": values}),
    "y": lambda values: Rows.read([1.0, 2.0, 3.0], y=values),
    "labels": lambda values: read_labels(values, "labels"),
    "covariates": lambda values: read_covariates(values, None, None, np.arange(3)),
    "variances": lambda values: Gaussian(values).noise_variance(3),
    "successes": lambda values: Summary.from_counts(values, [4, 4, 4]),
    "trials": lambda values: Summary.from_counts([1, 1, 1], values),
    "ids": lambda values: Summary.from_counts([1, 1, 1], [4, 4, 4], values),
    "mean": lambda values: Summary(np.arange(3), np.ones(3, int), values, np.zeros((3, 1))),
}


@pytest.mark.parametrize("name", READERS)
def test_every_argument_is_read_with_its_mask(name):
    masked = MASKED[:, None] if name == "mean" else MASKED
    with pytest.raises(ValueError, match=f"{name} has 1 masked entries, the first in row 1"):
        READERS[name](masked)


def test_rows_of_summaries_and_clients_are_read_with_their_masks():
    for reader in (Summary.from_rows, Clients.from_rows):
        with pytest.raises(ValueError, match="X has 1 masked"):
            reader(MASKED, [1, 2, 3])
        with pytest.raises(ValueError, match="groups has 1 masked"):
            reader([1.0, 2.0, 3.0], MASKED)
    with pytest.raises(ValueError, match="y has 1 masked"):
        Clients.from_rows([1.0, 2.0, 3.0], [1, 2, 3], MASKED)


@pytest.mark.parametrize("values", TIMES.values(), ids=TIMES)
def test_times_are_no_numbers(values):
    with pytest.raises(TypeError, match="X must be numbers; got"):
        Rows.read(values)
    with pytest.raises(TypeError, match="variances must be numbers; got"):
        numbers(values, "variances")
    with pytest.raises(TypeError, match="X must be numbers; got"):
        Summary.from_rows(values, [0])


def test_complex_numbers_are_refused():
    for values in (np.array([1 + 2j]), [1 + 2j], np.array([1 + 2j], object)):
        with pytest.raises(ValueError, match="Complex data not supported: X holds complex"):
            numbers(values, "X")


@pytest.mark.parametrize(
    "values",
    [True, [True, False], np.array([True]), pd.Series([True]), np.bool_(True), [1.0, True]],
)
def test_booleans_are_no_numbers_of_an_argument(values):
    with pytest.raises(TypeError, match="variances must be numbers; got booleans"):
        numbers(values, "variances")


@pytest.mark.parametrize(
    "values",
    [
        np.array([1, 2], np.float16),
        np.array([1, 2], ">f8"),
        np.array([2, 1], ">i4")[::-1],
        np.array([1, 2], object),
        pd.Series([1, 2], dtype="Int64"),
        pd.Series([1, 2], dtype="Float32"),
        (1, 2),
    ],
)
def test_numbers_of_every_type_are_read(values):
    found = numbers(values, "variances")
    assert found.dtype == np.float64
    assert found.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    "values",
    [
        ["1", "2"],
        np.array(["1", "2"]),
        np.array([b"1", b"2"]),
        pd.Series(["1", "2"], dtype="string"),
        pd.Series([1, 2], dtype="category"),
        pl.Series(["1", "2"]),
        pl.Series(["1", "2"], dtype=pl.Categorical),
        pl.Series([datetime.date(2024, 1, 1)] * 2),
        pl.Series([datetime.timedelta(days=1)] * 2),
        pa.chunked_array([["1", "2"]]),
        pa.array([1, 2]).dictionary_encode(),
        pd.DataFrame({"x": ["1", "2"]}),
    ],
)
def test_text_categories_and_times_of_any_library_are_no_numbers(values):
    with pytest.raises(NotNumericError, match="exposure"):
        numbers(values, "exposure", booleans=True)


@pytest.mark.parametrize(
    "values",
    [
        np.array([3, -(2**31)], np.int32),
        pd.Series([3, -(2**31)], dtype="int32"),
        pl.Series([3, None]),
        pa.array([3, None]),
        pd.array([3, None], dtype="Int64"),
        [Decimal(3), pd.NA],
    ],
)
def test_missing_numbers_of_any_library_are_nan(values):
    np.testing.assert_array_equal(numbers(values, "exposure"), [3.0, np.nan])


def test_missing_numbers_of_pandas_are_nan():
    found = numbers(pd.Series([1, None], dtype="Int64"), "exposure")
    np.testing.assert_array_equal(found, [1.0, np.nan])


def test_words_are_no_numbers():
    with pytest.raises(TypeError, match="variances must be numbers; got 'a'"):
        numbers("a", "variances")


FOUR = {"age": [1.0, 2.0, 3.0, 4.0], "income": [1.0, None, None, 4.0]}


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (pd.DataFrame(FOUR), "X contains NaN: column 'income' has 2 missing values, the first in "),
        (pl.DataFrame(FOUR), "X contains NaN: column 'income' has 2 missing values, the first in "),
        (pd.DataFrame(FOUR).astype({"income": "Int64"}), "column 'income' has 2 missing values"),
        (pd.DataFrame(FOUR).to_numpy(), "X contains NaN: column 1 has 2 missing values"),
        ([[1.0], [None]], "X contains NaN: 1 missing value, the first in row 1; drop those rows"),
        (
            [[0, np.inf], [np.inf, 0]],
            "X contains infinity: column 0 has 1 infinite value, .* 1",
        ),
        ([[0, np.nan], [np.nan, 0]], "first in row 1, and 1 more with such values; drop"),
    ],
)
def test_missing_and_infinite_values_are_located(X, message):
    """In one sentence; scikit-learn's speaks of imputers and other estimators."""
    table = Rows.read(X)
    with pytest.raises(ValueError, match=message) as error:
        validated(LinearRegression(), table.X, table.columns, reset=True)
    assert "mputer" not in str(error.value)


def test_missing_responses_are_located():
    y = pd.Series([1.0, 2.0, np.nan, 4.0])
    with pytest.raises(ValueError, match=r"y contains NaN: 1 missing value, the first in row 2;"):
        check_finite(numbers(y, "y"), "y")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.array([1, 2], ">i4"), np.array([1, 2])),
        (np.array([1, 2], "u1"), np.array([1, 2])),
        (np.array([0.5, 2], "f2"), np.array([0.5, 2.0])),
        (np.array([Decimal("0.5"), 2, Fraction(1, 4)], object), np.array([0.5, 2.0, 0.25])),
        (np.array([1, 2], object), np.array([1, 2])),
        (np.array([1, None], object), np.array([1.0, np.nan])),
        (np.array([None, None], object), np.array([np.nan, np.nan])),
        (np.array([True, False], object), np.array([True, False])),
        (np.array([3, -(2**31)], "i4"), np.array([3.0, np.nan])),
        (pd.Series([1, None], dtype="Int64"), np.array([1.0, np.nan])),
        (np.array([2**70, 1], object), np.array([2.0**70, 1.0])),
    ],
)
def test_numbers_have_a_plain_type(values, expected):
    found = plain(values)
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype


@pytest.mark.parametrize(
    "values", [["a", 1], ["1", "2"], [True, None], [True, 2], [1 + 2j, 1], [(1,), (2,)]]
)
def test_other_objects_stay(values):
    given = np.empty(2, object)
    given[:] = values
    assert plain(given) is given


def test_columns_without_any_value_are_nan():
    empty = pd.Series([None, None], dtype=object)
    for values in (
        empty,
        [None, None],
        pl.Series([None, None], dtype=pl.String),
        pl.Series([None]),
    ):
        assert np.isnan(numbers(values, "X")).all()
    assert np.isnan(numbers(pd.DataFrame({"x": empty, "z": [1, 2]}), "X")[:, 0]).all()


def test_words_for_missing_are_nan_in_lists_too():
    for values in ([1, "NA", 2.5], np.array([1, "NA", 2.5], object), [1, None, 2.5]):
        np.testing.assert_array_equal(numbers(values, "X"), [1, np.nan, 2.5])
    with pytest.raises(NotNumericError, match="could not convert string to float: 'no'"):
        numbers([1, "no"], "X")


TWICE = {
    "pandas": pd.DataFrame([[1.0, 2.0, "a"]], columns=["x", "x", "g"]),
    "Arrow": pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0]), pa.array(["a"])], list("xxg")),
}


@pytest.mark.parametrize("library", TWICE)
def test_two_columns_of_one_name_are_refused_by_name(library):
    with pytest.raises(ValueError, match="the table has more than one column 'x'; rename one"):
        Rows.read(TWICE[library], "g")


def test_batches_of_arrow_are_tables():
    batch = pa.RecordBatch.from_pydict({"g": ["b", "a"], "x": [1.0, 2.0], "y": [0, 1]})
    rows = Rows.read(batch, "g", "y")
    assert rows.labels.tolist() == ["b", "a"]
    assert rows.columns == ["x"]
    encoder = eb.GroupEncoder("continuous").fit(batch.select(["g", "y"]), "y")
    assert encoder.transform(batch.select(["g"])).shape == (2, 1)
