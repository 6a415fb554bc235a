"""Kernels of sums against NumPy and fractions."""

import math
from fractions import Fraction

import numpy as np
import pytest

from ebfed.kernels import add_shortened, column_sums, largest_size, shorten_digits
from ebfed.kernels.sums import PIECE

RNG = np.random.default_rng(5)


@pytest.mark.parametrize("least", [0.0, 2.0**-20])
def test_digits_are_cut_towards_zero(least):
    values = RNG.normal(size=(40, 7)) * np.exp(RNG.normal(size=(40, 1)) * 9)
    unit = np.ldexp(1.0, np.frexp(np.abs(values).max(axis=1))[1] - 30)[:, None]
    unit = np.maximum(unit, least)
    expected = np.trunc(values / unit) * unit
    shorten_digits(values, 30, least)
    np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("row", [[np.nan, 0.3], [0.3, np.inf], [1e300, 0.3], [1e-300, 3e-301]])
def test_rows_at_the_ends_of_floats_stay(row):
    values = np.array([row, [1.0, 1 / 3]])
    shorten_digits(values, 20, 0.0)
    np.testing.assert_array_equal(values[0], row)
    assert values[1, 1] != 1 / 3


def added(values, start=0.0):
    values = np.array(values)
    sums = np.empty(values.shape[1])
    begin = np.full_like(sums, start) if start else np.zeros(0)
    return sums, column_sums(values, begin, sums)


def test_sums_say_whether_they_are_exact():
    whole = RNG.integers(-1000, 1000, (30, 3000)).astype(float)
    sums, exact = added(whole, 2.0)
    np.testing.assert_array_equal(sums, whole.sum(axis=0) + 2)
    assert exact
    sums, exact = added([[1.0], [2.0**-60]])
    assert (sums[0], exact) == (1.0, False)
    assert not added([[2.0**-60]], 1.0)[1]
    assert added(np.zeros((0, 2)), 3.0)[0].tolist() == [3.0, 3.0]
    assert not added([[1.0], [np.nan]])[1]
    late = np.zeros((2, 3000))
    late[:, -1] = 1.0, 2.0**-60
    assert not added(late)[1]


def test_sums_without_loss_are_exact():
    for _ in range(200):
        values = RNG.normal(size=(3, 1)).astype(np.float16).astype(float) * 2.0 ** RNG.integers(60)
        sums, whole = added(values)
        exact = sum(Fraction(x) for x in values[:, 0])
        assert whole == (Fraction(sums[0]) == exact)


TYPES = [(np.float64, np.int64), (np.float32, np.int32)]


@pytest.mark.parametrize(("dtype", "integer"), TYPES)
@pytest.mark.parametrize(
    "row", [[], [-0.0], [1.0, -3.5, 2.0], [1e-40, -1e-41], [np.inf, 1e30], [-np.inf, np.nan, 1.0]]
)
def test_the_largest_size(dtype, integer, row):
    row = np.array(row, dtype)
    found = integer(largest_size(row.view(integer), integer(np.iinfo(integer).min))).view(dtype)
    np.testing.assert_array_equal(found, np.abs(row).max(initial=0))


@pytest.mark.parametrize(("dtype", "integer"), TYPES)
@pytest.mark.parametrize("size", [1e-38, 1e-25, 1.0, 1e37])
@pytest.mark.parametrize("spread", [1.0, 1e4], ids=["rows of one size", "rows of many sizes"])
@pytest.mark.parametrize("least", [0.0, 2.0**-30])
def test_rows_are_shortened_while_they_are_added(dtype, integer, size, spread, least):
    """Sums are those of shortened rows, exact where their units are near enough."""
    sizes = np.geomspace(size / spread, size, 5)[:, None]
    values = (RNG.normal(size=(5, 3000)) * sizes).astype(dtype)
    start, sums = np.zeros(0), np.empty(3000)
    if size == 1:
        start = RNG.integers(-99, 99, 3000) / 8
    sign = integer(np.iinfo(integer).min)
    exact = add_shortened(values, values.view(integer), sign, 36, least, 0, start, sums)
    short = values.astype(np.float64)
    shorten_digits(short, 36, least)
    rows = np.vstack([start, short]) if len(start) else short
    expected = [math.fsum(column) for column in rows.T]
    assert exact
    np.testing.assert_array_equal(sums, expected)


def test_each_piece_has_a_unit_of_its_own():
    values = RNG.normal(size=(3, 2 * PIECE + 50))
    values[:, PIECE : 2 * PIECE] *= 2.0**-30
    whole, pieces = values.copy(), np.split(values.copy(), [PIECE, 2 * PIECE], axis=1)
    shorten_digits(whole, 30, 0.0)
    for piece in pieces:
        shorten_digits(piece, 30, 0.0)
    np.testing.assert_array_equal(whole, np.hstack(pieces))
    sums, wide = np.empty(values.shape[1]), np.hstack([np.full((3, 7), 1e9), values])
    sign = np.int64(-(2**63))
    assert add_shortened(wide, wide.view(np.int64), sign, 30, 0.0, 7, np.zeros(0), sums)
    np.testing.assert_array_equal(sums, whole.sum(axis=0))


def test_a_start_of_more_digits_is_noticed():
    values, sums = np.ones((2, 2000)), np.empty(2000)
    start = np.zeros(2000)
    start[-1] = 2.0**-60
    sign = np.int64(-(2**63))
    assert not add_shortened(values, values.view(np.int64), sign, 40, 0.0, 0, start, sums)
    start[-1] = 2.0**-50
    assert add_shortened(values, values.view(np.int64), sign, 40, 0.0, 0, start, sums)
