"""Columns of frames of any library: each is read once, and what is missing is missing in all."""

import pickle
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import ebfed as eb
from ebfed.tables.columns import Columns, without_values
from ebfed.tables.scans import blanked

NAN = float("nan")
MISSING = {
    "pandas": pd.DataFrame({"x": [1.0, NAN, 3.0], "k": ["a", None, "b"], "n": [1, 2, 3]}),
    "pandas, nullable": pd.DataFrame(
        {"x": pd.array([1.0, None, 3.0], "Float64"), "k": ["a", None, "b"], "n": [1, 2, 3]}
    ).convert_dtypes(),
    "polars": pl.DataFrame({"x": [1.0, None, 3.0], "k": ["a", None, "b"], "n": [1, 2, 3]}),
    "polars, NaN": pl.DataFrame({"x": [1.0, NAN, 3.0], "k": ["a", None, "b"], "n": [1, 2, 3]}),
    "decimals": pl.DataFrame(
        {"x": [Decimal(1), None, Decimal(3)], "k": ["a", None, "b"], "n": [1, 2, 3]}
    ),
    "Arrow": pa.table({"x": [1.0, None, 3.0], "k": ["a", None, "b"], "n": [1, 2, 3]}),
}


@pytest.mark.parametrize("library", MISSING)
def test_what_is_missing_is_missing_in_every_library(library):
    columns = Columns.of(MISSING[library])
    for name in ("x", "k"):
        np.testing.assert_array_equal(columns.known(name), [True, False, True])
    assert columns.known("n").all()
    kept = columns.take(columns.complete(["x", "k"], "drop"), ["x"])
    assert kept.names == ["x"]
    np.testing.assert_array_equal(kept.values("x"), [1.0, 3.0])
    with pytest.raises(ValueError, match="column 'k' has 1 missing values, the first in row 1"):
        columns.complete(["n", "k"], "raise")


def test_a_column_is_read_once_and_forgotten_after_a_fit(monkeypatch):
    read = []
    own = pd.DataFrame.__getitem__
    monkeypatch.setattr(
        pd.DataFrame, "__getitem__", lambda f, key: (read.append(key), own(f, key))[1]
    )
    columns = Columns.of(MISSING["pandas"])
    again = Columns.of(columns)
    assert again is columns
    before = columns.values("x")
    assert columns.values("x") is before
    assert columns.known("x").sum() == 2
    assert read.count("x") <= 1
    columns.forget()
    assert not columns._values
    assert not columns._series
    rows = pd.DataFrame({"g": [1, 1, 2, 2], "y": [1.0, 2.0, 3.0, 5.0]})
    kept = eb.from_formula("y | g", rows)._rows.data
    assert not kept._values
    assert not kept._series
    rows.loc[0, "y"] = 9.0  # the fit has a copy
    assert kept.values("y")[0] == 1.0


def test_names_are_text_and_different():
    assert Columns.of(pd.DataFrame([[1.0, 2.0]])).names == ["0", "1"]
    with pytest.raises(ValueError, match="more than one column '1'"):
        Columns.of(pd.DataFrame([[1.0, 2.0]], columns=[1, "1"]))
    with pytest.raises(TypeError, match="data must be a frame in memory"):
        Columns.of([1.0])


@pytest.mark.parametrize("library", MISSING)
def test_columns_are_pickled_as_their_frame(library):
    columns = Columns.of(MISSING[library])
    columns.values("x")
    again = pickle.loads(pickle.dumps(columns))
    assert type(again.native) is type(columns.native)
    np.testing.assert_array_equal(again.values("x"), columns.values("x"))


def test_columns_of_several_values_in_each_row_are_refused():
    rows = pl.DataFrame({"x": pl.Series([[1.0, 2.0], [3.0, 4.0]], dtype=pl.Array(pl.Float64, 2))})
    with pytest.raises(ValueError, match=r"column 'x' has several values in each row .*Array"):
        Columns.of(rows).values("x")


NUMBERS = [1.0, -99.0, 3.0]
HOLDERS = {
    "floats": pd.Series(NUMBERS),
    "integers": pd.Series(NUMBERS, dtype=int),
    "objects": pd.Series(NUMBERS, dtype=object),
    "decimals": pd.Series([Decimal("1"), Decimal("-99.00"), Decimal("3")]),
    "numbers and text": pd.Series([1, "-99", 3.0], dtype=object),
    "categories": pd.Series(NUMBERS, dtype="category"),
    "categories of integers": pd.Series([1, -99, 3], dtype="category"),
    "nullable": pd.Series([1, -99, 3], dtype="Int64"),
    "Arrow's decimals": pd.Series(pa.array([Decimal("1.00"), Decimal("-99.00"), None])),
}


@pytest.mark.parametrize("given", [-99, -99.0, "-99", "-99.0", [-99], {-99}, (0, np.int64(-99))])
@pytest.mark.parametrize("kind", HOLDERS)
def test_numbers_that_mean_missing_are_found_in_columns_of_any_type(kind, given):
    if kind == "numbers and text" and "-99" not in map(
        str, [given] if np.ndim(given) == 0 else given
    ):
        pytest.skip("text is compared as text")
    rows = pd.DataFrame({"x": HOLDERS[kind].array}, index=["b", "a", "c"])
    found = without_values(Columns.of(rows).table, given).to_native()
    assert found.index.tolist() == ["b", "a", "c"]
    assert found["x"].isna().tolist()[:2] == [False, True]


@pytest.mark.parametrize("dtype", ["int64", "uint64", "Int64", "int64[pyarrow]"])
def test_a_large_number_that_means_missing_is_no_other(dtype):
    large = [2**53, 2**53 + 1, 2**53 + 2]
    rows = pd.DataFrame({"x": pd.Series(large, dtype=dtype)})
    found = without_values(Columns.of(rows).table, [2**53 + 1, -1, 0.5, "1e99"]).to_native()["x"]
    assert found.isna().tolist() == [False, True, False]
    assert found.dropna().tolist() == [2**53, 2**53 + 2]  # nor as a float
    lazy = blanked(pl.from_pandas(rows).lazy(), 2**53 + 1).collect()
    assert lazy["x"].to_list() == [2**53, None, 2**53 + 2]


def test_a_decimal_that_means_missing_is_no_other():
    large = [Decimal(2**53), Decimal(2**53 + 1), Decimal("0.25")]
    for rows in (pd.DataFrame({"x": large}), pl.DataFrame({"x": large})):
        found = without_values(Columns.of(rows).table, [2**53 + 1, "0.250", "1e99"])
        assert found["x"].is_null().to_list() == [False, True, True]


def test_single_floats_that_mean_missing_are_found():
    rows = pd.DataFrame({"x": np.array([0.1, -99.9], np.float32)})
    assert without_values(Columns.of(rows).table, -99.9).to_native()["x"].isna().tolist() == [
        False,
        True,
    ]


def test_values_that_mean_missing_are_no_mapping():
    with pytest.raises(
        TypeError, match="na_values must be values that are missing in every column"
    ):
        eb.from_formula("n ~ 1 + (1 | k)", MISSING["pandas"], na_values={"n": 1})
