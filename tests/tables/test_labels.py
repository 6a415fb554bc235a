"""Numbers of labels."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ebfed.kernels import number_more
from ebfed.tables.labels import LONGEST, SHORT, number_integers, number_labels, row_numbers


@pytest.mark.parametrize("length", [0, 1, 2, 50, SHORT, SHORT + 1])
@pytest.mark.parametrize("distinct", [1, 3, 10**6])
def test_short_arrays_are_numbered_as_long_ones(length, distinct):
    keys = np.random.default_rng(length).integers(-distinct, distinct, length)
    found = number_integers(keys)
    expected = number_more(np.zeros((1 << 10, 2), np.int64), 0, keys)[1:]
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype == np.int64
        np.testing.assert_array_equal(one, other)


def test_integers_of_a_narrow_range_number_rows_themselves():
    labels = np.array([3, -2, 3])
    assert row_numbers(labels) == (None, labels)
    assert row_numbers(None) == (None, None)


@pytest.mark.parametrize(
    "labels", [np.array([10**15, 0, 0]), np.array(["b", "a", "a"]), np.array([2.5, 1.0, 1.0])]
)
def test_other_labels_are_numbered(labels):
    ids, codes = row_numbers(labels)
    assert codes.tolist() == [1, 0, 0]
    np.testing.assert_array_equal(ids[codes], labels)


@pytest.mark.parametrize("kind", [np.int64, "M8[s]"])
def test_sorted_labels_far_apart(kind):
    labels = np.repeat(np.array([-(10**15), 7, 8, 10**15]), [2, 1, 3, 1]).astype(kind)
    ids, codes = number_labels(labels)
    np.testing.assert_array_equal(ids, np.unique(labels))
    assert codes.tolist() == [0, 0, 1, 2, 2, 2, 3]


@pytest.mark.skipif(pd.__version__ < "3", reason="pandas 2 ends text at a null character")
@given(
    st.lists(st.text(st.characters(codec=None), max_size=LONGEST // 2), min_size=1),
    st.sampled_from([object, "U"]),
)
@example(["", "a\0", "a", "a\0b", "\ud800", "\uffff", "\U0001f600"], object)
@example(["b" * LONGEST, "a", "b" * LONGEST + "a"], object)
def test_text_is_in_the_order_of_python(labels, kind):
    given = np.array(labels, dtype=kind)  # the end of a NumPy string is its last letter but zeros
    ids, codes = number_labels(given)
    assert ids.dtype == given.dtype
    assert ids.tolist() == sorted(set(given.tolist()))
    assert ids[codes].tolist() == given.tolist()
