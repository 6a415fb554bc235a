"""Series and frames of pandas pair by label; what has no index pairs by position."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from ebfed.tables.alignment import aligned, counts_only, labels_of, of_groups
from ebfed.tables.clients import Clients, Summary

FIRST = pd.Series([1.0, 2.0, 3.0], ["a", "b", "c"])


def pair(one, other, **options):
    return list(aligned({"one": one, "other": other}, **options)["other"])


@pytest.mark.parametrize("rows", [True, False])
def test_labels_in_another_order_are_aligned(rows):
    assert pair(FIRST, pd.Series([7, 8, 9], ["c", "a", "b"]), rows=rows) == [8, 9, 7]
    frame = pd.DataFrame({"x": [7, 8, 9]}, ["c", "a", "b"])
    assert aligned({"one": FIRST, "other": frame}, rows=rows)["other"]["x"].tolist() == [8, 9, 7]


@pytest.mark.parametrize("rows", [True, False])
def test_an_index_that_counts_is_aligned_with_the_same_labels(rows):
    assert pair(pd.Series([1.0, 2.0]), pd.Series([7, 8], [1, 0]), rows=rows) == [8, 7]
    assert pair(pd.Series([1.0, 2.0], [1, 0]), pd.Series([7, 8]), rows=rows) == [8, 7]


def test_levels_of_an_index_are_one_label():
    index = pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)])
    assert pair(pd.Series(0, index), pd.Series([7, 8, 9], index[[2, 0, 1]])) == [8, 9, 7]


def test_dates_and_missing_labels_are_aligned():
    days = pd.DatetimeIndex(["2024-01-01", "2024-01-02", None])
    assert pair(pd.Series(0, days), pd.Series([7, 8, 9], days[::-1])) == [9, 8, 7]


def test_equal_indexes_pair_by_position():
    twice = pd.Series([1, 2, 3], ["a", "a", "b"])
    assert pair(twice, pd.Series([7, 8, 9], twice.index)) == [7, 8, 9]


@pytest.mark.parametrize(
    "other", [np.array([7, 8, 9]), [7, 8, 9], pl.Series([7, 8, 9])], ids=["array", "list", "polars"]
)
def test_what_has_no_index_pairs_by_position(other):
    assert pair(FIRST, other, rows=False) == [7, 8, 9]
    assert pair(other, FIRST, rows=False) == FIRST.tolist()


def test_other_labels_are_refused():
    with pytest.raises(ValueError, match="the index of other has other labels than that of one"):
        pair(FIRST, pd.Series([7, 8, 9], ["a", "b", "d"]))


def test_rows_that_are_only_counted_pair_by_position():
    counted = pd.Series([7, 8, 9])
    assert pair(FIRST, counted) == [7, 8, 9]
    assert pair(counted, FIRST) == FIRST.tolist()
    with pytest.raises(ValueError, match="has other labels"):
        pair(FIRST, counted, rows=False)


@pytest.mark.parametrize("index", [pd.RangeIndex(3, 6), [5, 7, 9], [0, 1, 3]])
def test_other_numbers_of_rows_are_other_rows(index):
    """Parts of one frame, as train and test, were paired by position."""
    other = pd.Series([7, 8, 9], index)
    for one, two in ((other, pd.Series([1, 2, 3])), (pd.Series([1, 2, 3]), other)):
        with pytest.raises(ValueError, match="has other labels than that of one"):
            pair(one, two)


def test_labels_of_rows_pair_beside_rows_that_are_counted():
    """Two series with labels pair by them, if the first argument has none."""
    given = {"X": pd.Series([1, 2, 3]), "y": FIRST, "groups": FIRST[::-1]}
    assert aligned(given)["groups"].tolist() == FIRST.tolist()
    with pytest.raises(ValueError, match="the index of groups has other labels than that of y"):
        aligned(given | {"groups": FIRST.rename({"a": "d"})})


def test_labels_that_occur_twice_are_refused():
    with pytest.raises(ValueError, match="the index of other has the label 'a' twice"):
        pair(FIRST, pd.Series([7, 8, 9], ["a", "a", "b"]))
    with pytest.raises(ValueError, match="the index of one has the label 'a' twice"):
        pair(pd.Series([7, 8, 9], ["a", "a", "b"]), FIRST)


def test_other_lengths_and_names_are_as_they_were():
    short = pd.Series([7, 8], ["b", "a"])
    given = aligned({"X": FIRST, "groups": short, "y": "vote", "consent": None})
    assert given["groups"] is short
    assert (given["y"], given["consent"]) == ("vote", None)


def test_values_of_groups_follow_their_labels():
    chosen = pd.Series(["open", "private"], ["b", "a"])
    assert list(of_groups(chosen, "consent", np.array(["a", "b"]))) == ["private", "open"]
    assert of_groups(["open", "private"], "consent", np.array(["a", "b"])) == ["open", "private"]


def test_an_index_may_only_count():
    assert counts_only(pd.Series([3, 4], [0, 1]))
    assert not counts_only(pd.Series([3, 4], [1, 0]))
    assert not counts_only(pd.Series([3, 4], pd.RangeIndex(2, 4)))
    assert not counts_only(pd.Series([3, 4], pd.RangeIndex(2, name="county")))


@pytest.mark.parametrize("index", [pd.RangeIndex(2, 5), [9, 2, 4], ["b", "a", "c"]])
def test_labels_are_those_of_an_index(index):
    found = labels_of(pd.Series(1.0, index))
    assert (found.tolist(), found.name) == (list(index), "term")
    assert labels_of(pd.Series(1.0, index), [7, 8, 9]) == [7, 8, 9]


def test_a_count_of_groups_is_no_label_unless_groups_have_these():
    values = pd.Series(["open", "private"])
    assert list(of_groups(values, "consent", np.array([1, 0]))) == ["private", "open"]
    for ids in (np.array([7, 9]), np.array(["a", "b"])):
        assert of_groups(values, "consent", ids) is values
    with pytest.raises(ValueError, match="has other labels"):
        of_groups(values.set_axis([2, 3]), "consent", np.array([7, 9]))


# --- summaries and clients -----------------------------------------------------------------------


def test_rows_of_summaries_pair_by_label():
    groups = pd.Series(["s", "t", "t"], ["b", "c", "a"])
    summary = Summary.from_rows(FIRST, groups)
    assert summary.mean.ravel().tolist() == [2.0, 2.0]
    assert summary.n.tolist() == [1, 2]
    clients = Clients.from_rows(FIRST, groups, pd.Series([7.0, 8.0, 9.0], ["c", "b", "a"]))
    assert clients.X.ravel().tolist() == [2.0, 1.0, 3.0]
    assert clients.y.tolist() == [8.0, 9.0, 7.0]


def test_counts_pair_by_label():
    successes, trials = pd.Series([3, 0], ["a", "b"]), pd.Series([2, 4], ["b", "a"])
    ids = pd.Series(["x", "y"], ["b", "a"])
    summary = Summary.from_counts(successes, trials, ids)
    assert summary.ids.tolist() == ["x", "y"]
    assert summary.mean.ravel().tolist() == [0.0, 0.75]
    with pytest.raises(ValueError, match="the index of trials has other labels"):
        Summary.from_counts(successes, trials.rename({"a": "c"}))


def test_regressions_of_clients_pair_by_label():
    X = pd.DataFrame({"a": [1, 1, 1, 1], "b": [1, -1, 1, -1]}, list("pqrs"))
    y, groups = pd.Series([3.0, 1.0, 5.0, 1.0], list("pqrs")), ["g"] * 4
    straight = Summary.from_regression(X, y, groups)
    turned = Summary.from_regression(X, y[::-1], groups)
    np.testing.assert_array_equal(turned.mean, straight.mean)
