"""Rows of 0 and 1."""

import numpy as np
import pytest

from ebfed.families import Binomial
from ebfed.tables.clients import Summary


@pytest.mark.parametrize(
    "labels",
    [
        np.array([0, 1, 1, 2, 1, 0]),
        np.array([7, 9, 9, -3, 9, 7]),  # with gaps, and not from 0
        np.array([10**15, 0, 0, -1, 0, 10**15]),
        np.array([7, 9, 9, 3, 9, 7], np.uint8),
        np.array(["b", "a", "a", "c", "a", "b"]),
    ],
)
@pytest.mark.parametrize("columns", [1, 2])
def test_a_summary_is_that_of_the_counts(labels, columns):
    rows = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    rows = rows[:, :columns]
    found = Binomial().summarise(rows, labels)
    ids, codes = np.unique(labels, return_inverse=True)
    trials = np.bincount(codes)
    np.testing.assert_array_equal(found.ids, ids)
    np.testing.assert_array_equal(found.n, trials)
    for j in range(columns):
        counts = Summary.from_counts(np.bincount(codes, rows[:, j]), trials)
        np.testing.assert_array_equal(found.mean[:, j], counts.mean[:, 0])
        np.testing.assert_array_equal(found.scatter[:, j], counts.scatter[:, 0])
    general = Summary.from_rows(rows, labels)
    np.testing.assert_allclose(found.mean, general.mean, rtol=1e-14)
    np.testing.assert_allclose(found.scatter, general.scatter, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("place", [0, 5, 70_000])
def test_the_first_row_that_is_no_0_or_1_is_named(place):
    rows = np.zeros((80_000, 1))
    rows[place:] = 2.0
    with pytest.raises(ValueError, match=rf"only 0 and 1; row {place} has \[2.0\]"):
        Binomial().check_rows(rows)
