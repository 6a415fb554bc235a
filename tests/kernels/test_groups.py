"""Each kernel against NumPy; run also with NUMBA_DISABLE_JIT=1, which executes the same lines."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ebfed.kernels import (
    add_cells,
    add_entries,
    number_below,
    number_more,
    order_distinct,
    products_of_clients,
    summarise_rows,
    sums_of_clients,
)

# Welford's update and NumPy's two passes differ by a few roundings a row, of the mean relative to
# the largest value, of the scatter relative to the sum of squares of what it centres.
ROUNDING = 1e-13

# Without compilation NumPy says aloud what the compiled hash does on purpose: wrap around.
pytestmark = pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered")

INT64 = st.integers(-(2**63), 2**63 - 1)
EXTREMES = np.array([-(2**63), 2**63 - 1, 0, -1, 1, -(2**63) + 1, 2**62, -(2**62)])
# 2**64 over the golden ratio: the multiplier of the hash. Its inverse modulo 2**64 makes keys of
# any product one likes, so of any slot.
MULTIPLIER = 11400714819323198485
INVERSE = pow(MULTIPLIER, -1, 2**64)


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """Compile outside the tests that hypothesis times."""
    summarise_rows(np.zeros(1), np.zeros(1, np.int64), 0, 1)
    number_integers(np.zeros(1, np.int64))
    number_below(np.zeros(1, np.int64), 1)


# --- summarise_rows ------------------------------------------------------------------------------


def summarise_reference(values, codes, offset, size):
    table = np.zeros((size, 3))
    for group in range(size):
        own = values[codes == group + offset]
        if len(own):
            table[group] = len(own), own.mean(), ((own - own.mean()) ** 2).sum()
    return table


def assert_same_table(table, values, codes, offset, size):
    reference = summarise_reference(values, codes, offset, size)
    assert table.shape == (size, 3)
    assert table.dtype == np.float64
    np.testing.assert_array_equal(table[:, 0], reference[:, 0])
    scale = np.abs(values).max(initial=0.0)
    n = max(len(values), 1)
    np.testing.assert_allclose(table[:, 1], reference[:, 1], rtol=0, atol=ROUNDING * scale)
    np.testing.assert_allclose(
        table[:, 2], reference[:, 2], rtol=1e-12, atol=n * (ROUNDING * scale) ** 2
    )


@st.composite
def rows(draw):
    size = draw(st.integers(1, 12))
    offset = draw(st.integers(-20, 20))
    codes = draw(st.lists(st.integers(offset, offset + size - 1), max_size=40))
    values = draw(arrays(float, len(codes), elements=st.floats(-1e6, 1e6, width=32)))
    return values, np.array(codes, np.int64), offset, size


@given(rows())
@settings(max_examples=200, deadline=None)
def test_summaries_of_unsorted_rows(table):
    values, codes, offset, size = table
    assert_same_table(summarise_rows(values, codes, offset, size), values, codes, offset, size)


def test_groups_that_have_no_rows_are_zero():
    table = summarise_rows(np.array([3.0, 5.0]), np.array([7, 7]), 5, 4)
    np.testing.assert_array_equal(table, [[0, 0, 0], [0, 0, 0], [2, 4, 2], [0, 0, 0]])


def test_no_rows():
    table = summarise_rows(np.empty(0), np.empty(0, np.int64), 0, 3)
    np.testing.assert_array_equal(table, np.zeros((3, 3)))
    assert summarise_rows(np.empty(0), np.empty(0, np.int64), 0, 0).shape == (0, 3)


@pytest.mark.parametrize("offset", [-(2**63), -(10**12), -3, 0, 2**53 + 1, 2**63 - 5])
def test_offset_reaches_both_ends_of_the_integers(offset):
    codes = np.array([4, 0, 4, 2, 0, 4])
    values = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
    shifted = np.array([offset + int(code) for code in codes], np.int64)
    table = summarise_rows(values, shifted, offset, 5)
    np.testing.assert_array_equal(table, summarise_rows(values, codes, 0, 5))
    assert_same_table(table, values, codes, 0, 5)


def test_small_spread_around_large_means_keeps_its_digits():
    # The deviations are exact in binary, so the answer is known to the last digit of the values:
    # an algorithm by sum of squares would lose all sixteen digits here.
    deviations = np.array([-3, -1, 1, 3]) * 2.0**-20
    values = np.concatenate([1e8 + deviations, -1e8 + deviations])
    codes = np.repeat([0, 1], 4)
    order = np.random.default_rng(0).permutation(8)
    table = summarise_rows(values[order], codes[order], 0, 2)
    np.testing.assert_allclose(table[:, 1], [1e8, -1e8], rtol=1e-15)
    np.testing.assert_allclose(table[:, 2], 20 * 2.0**-40, rtol=0.02)


def test_many_rows_of_large_mean():
    rng = np.random.default_rng(1)
    values = 1e8 + rng.standard_normal(20_000)
    table = summarise_rows(values, np.zeros(20_000, np.int64), 0, 1)
    exact = values - 1e8  # without rounding
    # The running mean is rounded at each row, to 1.5e-8 here: its errors add up like a random
    # walk, and each moves a squared deviation of about 1 by as much as itself.
    assert table[0, 1] - 1e8 == pytest.approx(exact.mean(), abs=1.5e-8 * np.sqrt(20_000))
    assert table[0, 2] == pytest.approx(((exact - exact.mean()) ** 2).sum(), rel=1.5e-8)


def test_a_single_row_has_exactly_its_value_and_no_scatter():
    values = np.array([0.1, 1e300, -1e-300])
    table = summarise_rows(values, np.array([2, 0, 1]), 0, 3)
    np.testing.assert_array_equal(table[:, 1], [1e300, -1e-300, 0.1])
    np.testing.assert_array_equal(table[:, 2], 0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_shows_in_its_own_group_only(bad):
    table = summarise_rows(np.array([1.0, bad, 3.0, 4.0]), np.array([0, 0, 1, 1]), 0, 2)
    assert not np.isfinite(table[0, 1:]).all()
    np.testing.assert_array_equal(table[1], [2, 3.5, 0.5])


def test_inputs_are_left_alone():
    values, codes = np.array([1.0, 2.0]), np.array([1, 0])
    values.flags.writeable = codes.flags.writeable = False
    np.testing.assert_array_equal(summarise_rows(values, codes, 0, 2)[:, 1], [2, 1])


# --- add_entries ---------------------------------------------------------------------------------


@pytest.mark.parametrize("weighed", [False, True])
def test_sums_of_entries_are_those_of_rows(weighed):
    rng = np.random.default_rng(0)
    codes, places = rng.integers(0, 150, 2000), rng.integers(0, 30, 2000)
    codes[codes == 7] = 8  # a group without rows
    times = rng.integers(0, 4, 2000).astype(float) if weighed else np.empty(0)
    table, sums = rng.normal(size=(30, 5)), np.full((5, 150), np.nan)
    add_entries(codes, places, times, table, sums)
    rows = table[places] * (times[:, None] if weighed else 1.0)
    # the order of rows, to the last bit
    expected = [np.bincount(codes, column, minlength=150) for column in rows.T]
    np.testing.assert_array_equal(sums, expected)
    assert not sums[:, 7].any()


def test_no_rows_have_no_entries():
    sums, nothing = np.full((2, 3), np.nan), np.empty(0, np.int64)
    add_entries(nothing, nothing, np.empty(0), np.ones((4, 2)), sums)
    assert not sums.any()
    add_entries(nothing, nothing, np.empty(0), np.empty((0, 2)), sums[:, :0])


# --- number_more ---------------------------------------------------------------------------------


def number_integers(keys):
    return number_more(np.zeros((1 << 10, 2), np.int64), 0, keys)[1:]


def number_reference(keys):
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(first), np.int64)
    rank[order] = np.arange(len(first))
    return rank[inverse], first[order]


def assert_numbered(keys):
    codes, first = number_integers(keys)
    expected = number_reference(keys)
    assert codes.dtype == first.dtype == np.int64
    np.testing.assert_array_equal(codes, expected[0])
    np.testing.assert_array_equal(first, expected[1])
    np.testing.assert_array_equal(keys[first][codes], keys)


@given(st.lists(st.one_of(INT64, st.integers(-3, 3), st.sampled_from(EXTREMES.tolist()))))
@settings(max_examples=200, deadline=None)
def test_numbers_in_order_of_first_appearance(keys):
    assert_numbered(np.array(keys, np.int64))


def test_no_keys():
    codes, first = number_integers(np.empty(0, np.int64))
    assert codes.shape == first.shape == (0,)


# The table starts with 2**10 slots and grows four times at each half-full: 512, 2048, 8192 … keys.
@pytest.mark.parametrize("distinct", [511, 512, 513, 2047, 2048, 2049, 9000])
@pytest.mark.parametrize("start", [0, -4500, 2**63 - 9000, -(2**63)])
def test_sequential_keys_across_every_growth(distinct, start):
    assert_numbered(start + np.arange(distinct))


def test_random_keys_of_64_bits_twice_in_random_order():
    rng = np.random.default_rng(2)
    keys = rng.integers(-(2**63), 2**63 - 1, 5000, endpoint=True)
    keys = np.concatenate([keys, keys, EXTREMES, keys[:7]])
    assert_numbered(rng.permutation(keys))


@pytest.mark.parametrize("shift", [0, 20, 32, 48, 54])
def test_keys_that_differ_in_a_few_bits_only(shift):
    assert_numbered(np.arange(-300, 300) << shift)


def keys_of_products(products):
    return np.array([product * INVERSE % 2**64 for product in products], np.uint64).view(np.int64)


@pytest.mark.parametrize("slot", [0, 517, 1023])
def test_keys_that_all_collide_in_one_slot(slot):
    # Equal top bits of the product: one slot at any size up to 2**30. From the last slot the
    # search wraps around to the first.
    top = slot << 54 | (2**20 - 1 if slot == 1023 else 0) << 34
    keys = keys_of_products([top | low for low in range(600)])
    assert len(np.unique((keys.view(np.uint64) * np.uint64(MULTIPLIER)) >> np.uint64(34))) == 1
    assert_numbered(np.concatenate([keys, keys[::-1]]))


def test_zero_is_a_key_like_any_other():
    # Slots are zero when empty.
    assert_numbered(np.array([5, 0, 5, 0, -5, 0]))
    assert_numbered(np.zeros(10, np.int64))


def test_bit_patterns_of_floats():
    values = 1.0 / np.arange(1, 3000)  # as of variances, 1 / n
    rng = np.random.default_rng(3)
    values = rng.permutation(np.concatenate([values, values, [np.inf, -np.inf, 5e-324, 0.0]]))
    assert_numbered(values.view(np.int64))


def test_keys_are_left_alone():
    keys = np.array([9, 9, -9])
    keys.flags.writeable = False
    np.testing.assert_array_equal(number_integers(keys)[0], [0, 0, 1])


# --- number_below --------------------------------------------------------------------------------


@given(st.integers(1, 30).flatmap(lambda size: st.lists(st.integers(0, size - 1), max_size=60)))
@settings(deadline=None)
def test_small_numbers_are_looked_up(keys):
    keys = np.array(keys, np.int64)
    size = int(keys.max(initial=-1)) + 1
    codes, first, counts = number_below(keys, size)
    expected = number_reference(keys)
    assert codes.dtype == first.dtype == counts.dtype == np.int64
    np.testing.assert_array_equal(codes, expected[0])
    np.testing.assert_array_equal(first, expected[1])
    np.testing.assert_array_equal(counts, np.bincount(codes, minlength=len(first)))


# --- order_distinct ------------------------------------------------------------------------------


def test_distinct_rows_are_ordered_by_buckets():
    rng = np.random.default_rng(0)
    keys, others = rng.integers(1000, 1400, 2000), rng.integers(0, 3, (2000, 2))
    rows = np.column_stack([keys, others])
    expected, where, counts = np.unique(rows, axis=0, return_index=True, return_counts=True)
    for shift in (0, 3, 20):
        n_buckets = (400 >> shift) + 1
        first, found = order_distinct(keys, others, 1000, shift, n_buckets, 2000)
        np.testing.assert_array_equal(rows[first], expected)
        np.testing.assert_array_equal(first, where)
        np.testing.assert_array_equal(found, counts)


def test_a_full_bucket_is_left_to_others():
    first, counts = order_distinct(np.zeros(9, np.int64), np.empty((9, 0), np.int64), 0, 0, 1, 8)
    assert len(first) == len(counts) == 0


# --- sums_of_clients, products_of_clients --------------------------------------------------------


def test_sums_and_products_of_clients():
    rng = np.random.default_rng(3)
    sizes = np.array([3, 0, 1, 7])
    indptr, rows = np.concatenate(([0], np.cumsum(sizes))), rng.normal(size=(11, 3))
    centre = rng.normal(size=(4, 3))
    sums, products = sums_of_clients(rows, indptr), products_of_clients(rows, indptr, centre)
    for i in range(4):
        own = rows[indptr[i] : indptr[i + 1]]
        away = own - centre[i]
        np.testing.assert_allclose(sums[i], own.sum(axis=0), rtol=1e-13, atol=1e-13)
        np.testing.assert_allclose(products[i], away.T @ away, rtol=1e-12, atol=1e-12)


def test_cells_add_up_to_the_moments_of_their_rows():
    rng = np.random.default_rng(0)
    sizes, codes = rng.integers(0, 4, 40), rng.integers(0, 5, 40)
    place = np.array([1, -1, 0, 1])
    coefficients = rng.normal(size=(40, 4))
    rows = [1e6 + rng.normal(size=(size, 2)) for size in sizes]
    mean = np.array([own.mean(axis=0) if len(own) else np.zeros(2) for own in rows])
    scatter = np.array([(own - mid).T @ (own - mid) for own, mid in zip(rows, mean, strict=True)])
    total, centre, apart = np.zeros(5), np.zeros((5, 4)), np.zeros((5, 4, 4))
    cells = codes, sizes.astype(float), mean, scatter, coefficients, place
    add_cells(*cells, total, centre, apart)
    for group in range(5):
        own = np.concatenate(
            [
                np.column_stack([np.ones(len(x)), x])[:, place + 1] * factor
                for x, factor, code in zip(rows, coefficients, codes, strict=True)
                if code == group
            ]
        )
        assert total[group] == len(own)
        np.testing.assert_allclose(centre[group], own.mean(axis=0), rtol=1e-12)
        expected = (own - own.mean(axis=0)).T @ (own - own.mean(axis=0))
        # sums of squares of numbers of a million have errors of rounding of 1e-16 of these
        np.testing.assert_allclose(apart[group], expected, rtol=1e-9, atol=1e-3)
