"""Sums that are the same wherever clients are."""

import math
from fractions import Fraction

import numpy as np
import pytest

from ebfed.engines.sums import MOST_ROWS, add_fixed, add_up, fixed_point, total

RNG = np.random.default_rng(3)


def cut(values, *places):
    return np.vstack([add_up(part) for part in np.split(values, places)])


WIDE = RNG.normal(size=(40, 5)) * 10.0 ** RNG.integers(-40, 40, (40, 5))
CANCELLING = np.vstack([WIDE, -WIDE[::-1], np.full((1, 5), 0.1)])
ENDS = np.ldexp(RNG.choice([-1.0, 1.0], (30, 4)), RNG.integers(-1074, 1000, (30, 4)))


@pytest.mark.parametrize("values", [WIDE, CANCELLING, ENDS, np.ones((7, 2)), np.zeros((3, 2))])
def test_no_cut_and_no_order_changes_a_sum(values):
    expected = [math.fsum(column) for column in values.T]
    np.testing.assert_array_equal(total(values), expected)
    n = len(values)
    for places in ([n // 2], [1], [0, n // 3, n // 3, n - 1], list(range(n))):
        np.testing.assert_array_equal(total(cut(values, *places)), expected)
        np.testing.assert_array_equal(total(cut(RNG.permutation(values), *places)), expected)


@pytest.mark.parametrize("values", [WIDE, CANCELLING, ENDS])
def test_the_sum_of_a_block_is_exact_and_says_no_more(values):
    sums = add_up(values)
    for j, column in enumerate(values.T):
        exact = sum(map(Fraction, column))
        assert sum(map(Fraction, sums[:, j])) == exact
        assert Fraction(sums[0, j]) == Fraction(float(exact)), "a function of the sum alone"
    np.testing.assert_array_equal(add_up(RNG.permutation(values)), sums)
    assert len(sums) <= MOST_ROWS


@pytest.mark.parametrize("m", [1, 20, 3000])
@pytest.mark.parametrize("spread", [1.0, 60.0])
@pytest.mark.parametrize("beside", [0.0, 1.0])
def test_sums_of_fixed_points_are_floats(m, spread, beside):
    values = RNG.normal(size=(m, 50)) / spread ** RNG.random((m, 1))
    rounded = fixed_point(values, m, beside)
    assert len(add_up(rounded)) == 1
    largest = np.abs(values).max()
    assert np.abs(rounded - values).max() <= m * largest * 2.0**-45
    assert (np.abs(rounded) <= np.abs(values)).all(), "a norm must not grow"


def test_small_changes_beside_large_parameters_are_cut_alike():
    """One client has all but converged, another has not: the sum is one float all the same."""
    values = np.vstack([RNG.normal(size=(10, 5)) * 1e-9, RNG.normal(size=(10, 5))])
    assert len(add_up(fixed_point(values, 20))) > 1
    rounded = fixed_point(values, 20, beside=3.0)
    assert len(add_up(rounded)) == 1
    np.testing.assert_allclose(rounded, values, rtol=0, atol=3 * 20 * 2.0**-45)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_stays_so(bad):
    values = np.array([[1.0, 0.1], [bad, 1e-30]])
    np.testing.assert_array_equal(fixed_point(values, 2)[1], values[1])
    assert not np.isfinite(total(values)[0])
    assert not np.isfinite(add_up(values)).all()
    with np.errstate(over="ignore"):
        assert total(np.full((3, 1), 1.7e308)).tolist() == [np.inf]


def test_nobody_is_a_sum_of_nothing():
    assert add_up(np.zeros((0, 3))).shape == (0, 3)
    assert total(np.zeros((0, 3))).tolist() == [0.0] * 3


def test_arrays_from_a_wire_are_read_only():
    values = RNG.normal(size=(4, 3))
    values.flags.writeable = False
    kept = values.copy()
    total(values), add_up(values), fixed_point(values, 4)
    np.testing.assert_array_equal(values, kept)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("beside", [0.0, 3.0])
@pytest.mark.parametrize("scale", [1.0, 1e-37, 1e-42, 1e30])
def test_rows_are_cut_and_added_at_once_as_one_after_the_other(dtype, beside, scale):
    rows = RNG.normal(size=(5, 3000)) * np.exp(3 * RNG.normal(size=(5, 1)))
    values, before = (scale * rows).astype(dtype), scale * np.ones((1, 3000))
    values[0], values[1, 0] = 0.0, -0.0
    expected = add_up(np.vstack([before, fixed_point(values, 9, beside * scale)]))
    np.testing.assert_array_equal(add_fixed(values, before, 9, beside * scale), expected)


def test_rows_that_lose_digits_or_are_not_finite_are_added_too():
    before = np.array([[1.0, 1.0]])
    np.testing.assert_array_equal(
        add_fixed(np.array([[2.0**-90, 0.0]]), before, 2), [[1.0, 1.0], [2.0**-90, 0.0]]
    )
    assert not np.isfinite(add_fixed(np.array([[np.inf, 0.0]]), before, 2)[0, 0])
    assert add_fixed(np.array([[2.0, 3.0]]), np.zeros((0, 2)), 2).tolist() == [[2.0, 3.0]]


def test_digits_are_cut_in_place_if_the_values_may_change():
    values = np.array([[1.0, 1e-20]])
    assert fixed_point(values, 2) is not values
    assert values[0, 1] == 1e-20
    assert fixed_point(values, 2, copy=False) is values
    assert values[0, 1] == 0
