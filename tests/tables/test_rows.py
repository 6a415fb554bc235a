"""Rows are read once: every role is an array of a plain type, in the order of X."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import ebfed as eb
from ebfed.tables.rows import Rows

FRAME = pd.DataFrame(
    {
        "state": ["r", "s", "s"],
        "county": [2, 1, 2],
        "x": [1.0, 2.0, 3.0],
        "y": [0.5, 0.25, 1.0],
        "w": [1, 2, 3],
        "note": ["a", "b", "c"],
    },
    index=[7, 5, 6],
)
NAMED = {"groups": ["state", "county"], "y": "y", "beside": {"sample_weight": "w"}}


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
def test_named_columns_are_arrays_and_no_values(library):
    frame = FRAME if library is pd.DataFrame else pl.from_pandas(FRAME)
    rows = Rows.read(frame, **NAMED, aside=["note", "absent"], numeric=True)
    assert rows.columns == ["x"]
    np.testing.assert_array_equal(rows.X, [[1.0], [2.0], [3.0]])
    assert rows.labels.tolist() == [("r", 2), ("s", 1), ("s", 2)]
    assert rows.numbered[0].tolist() == [("r", 2), ("s", 1), ("s", 2)]
    np.testing.assert_array_equal(rows.y, [0.5, 0.25, 1.0])
    np.testing.assert_array_equal(rows.beside["sample_weight"], [1.0, 2.0, 3.0])
    assert [each.group for each in (*rows.style.above, rows.style)] == ["state", "county"]


def test_every_role_is_in_the_order_of_the_values():
    turned = FRAME.iloc[::-1]
    given = {"groups": [turned["state"], turned["county"]], "y": turned["y"]}
    rows = Rows.read(FRAME[["x"]], **given, beside={"offset": turned["w"]}, numeric=True)
    assert rows.labels.tolist() == [("r", 2), ("s", 1), ("s", 2)]
    np.testing.assert_array_equal(rows.y, FRAME["y"])
    np.testing.assert_array_equal(rows.beside["offset"], FRAME["w"])


def test_levels_without_names_are_named():
    style = Rows.read([[1.0], [2.0]], [["s", "r"], [1, 1]]).style
    assert [each.group for each in (*style.above, style)] == ["parent", "group"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"groups": ["a"]}, "groups has 1 entries for the 2 rows of X"),
        ({"beside": {"offset": [0.0]}}, "offset has 1 entries for the 2 rows of X"),
        ({"y": "y"}, "y='y' names a column, but X is not a data frame"),
        ({"beside": {"sample_weight": ["1", "2"]}}, "sample_weight must be numbers"),
        ({"y": [[1.0, 2.0], [3.0]]}, "y must be one response for each row"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(given, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Rows.read([1.0, 2.0], **given)


def test_a_frame_of_labels_alone_has_no_values():
    rows = Rows.read(FRAME[["state"]], "state")
    assert rows.X.shape == (3, 0)
    assert rows.columns == []


def test_rows_that_were_read_are_taken_as_they_are():
    arrays = FRAME[["x"]].to_numpy(), FRAME["state"].to_numpy()
    rows = Rows.read(arrays[0], arrays[1], y=FRAME["y"].to_numpy(), numeric=True)
    assert Rows.read(Rows.read(rows.X, arrays[1])).labels is not None
    more = Rows.read(rows, beside={"sample_weight": [1, 2, 3], "offset": 2.0})
    assert more.labels is rows.labels
    np.testing.assert_array_equal(more.beside["sample_weight"], [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(more.beside["offset"], [2.0, 2.0, 2.0])
    X = np.arange(12.0)[:, None] ** 0.5
    y, g = np.sin(np.arange(12.0)), np.repeat(["a", "b", "c"], 4)
    given = Rows.read(X, g, y=y, numeric=True)
    weight = np.arange(12.0) + 1
    fits = [
        eb.LinearEB().fit(given, sample_weight=weight),
        eb.LinearEB().fit(X, y, groups=g, sample_weight=weight),
    ]
    for each, other in zip(fits[0].mean_, fits[1].mean_, strict=True):
        assert each == other
    np.testing.assert_array_equal(fits[0].predict(given), fits[1].predict(X, groups=g))
