"""Numbers of distinct rows, against NumPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ebfed.likelihoods import Binomial, Poisson, distinct
from ebfed.likelihoods.distinct import distinct_in_order, number_rows

INT64 = st.integers(-(2**63), 2**63 - 1)
NUMBERS = st.one_of(st.integers(-3, 3), INT64, st.sampled_from([2**61, 2**62, -(2**62)]))


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """Compile outside the tests that hypothesis times."""
    number_rows([np.array([0, 1])]), number_rows([np.array([0, 2**62])])


def assert_numbered(columns):
    codes, first, counts = number_rows(columns)
    rows = [tuple(row) for row in zip(*(column.tolist() for column in columns), strict=True)]
    distinct = list(dict.fromkeys(rows))
    assert [rows[i] for i in first] == distinct
    assert [distinct[code] for code in codes] == rows
    assert counts.tolist() == [rows.count(row) for row in distinct]


@given(st.lists(st.tuples(NUMBERS, NUMBERS, st.booleans()), min_size=1, max_size=40))
@settings(deadline=None)
def test_rows_of_integers(rows):
    first, second, third = zip(*rows, strict=True)
    assert_numbered([np.array(first, np.int64), np.array(second, np.int64), np.array(third)])


def test_rows_of_floats():
    values = np.array([0.5, np.inf, -0.0, 0.0, -np.inf, 5e-324, 0.5, -1e308])
    assert_numbered([values, np.array([1, 1, 2, 2, 2, 1, 1, 1])])


def test_no_rows():
    for column in (np.empty(0), np.empty(0, np.int64)):
        assert [len(each) for each in number_rows([column])] == [0, 0, 0]


@pytest.mark.parametrize("low", [0.0, 1e-300, 1.0])
@pytest.mark.parametrize("full", [0, distinct.FULL])
def test_distinct_rows_are_in_order(monkeypatch, low, full):
    monkeypatch.setattr(distinct, "FULL", full)  # at 0, all rows are numbered and sorted
    rng = np.random.default_rng(0)
    values = low + rng.exponential(size=3000) ** 3
    values[rng.integers(0, 3000, 900)] = values[:900]
    columns = [values, rng.integers(0, 3, 3000), rng.integers(0, 2, 3000) / 2]
    rows = np.column_stack(columns)
    expected, counts = np.unique(rows, axis=0, return_counts=True)
    first, found = distinct_in_order(columns)
    np.testing.assert_array_equal(rows[first], expected)
    np.testing.assert_array_equal(found, counts)
    assert len(distinct_in_order([column[:0] for column in columns])[0]) == 0


def test_negative_numbers_are_in_order():
    values = np.random.default_rng(0).normal(size=500)
    np.testing.assert_array_equal(distinct_in_order([values])[0], np.argsort(values))
    values = np.exp(values)
    first, _ = distinct_in_order([values, -values])
    np.testing.assert_array_equal(first, np.argsort(values))


def test_columns_are_read_only_or_strided():
    table = np.array([[3, 0], [3, 1], [3, 0]])
    table.flags.writeable = False
    assert number_rows(table.T)[0].tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    "likelihood",
    [
        Binomial(np.array([[1, 0], [0, 0], [1, 0], [1, 2], [0, 0]]), np.array([2, 0, 2, 2, 0])),
        Binomial(np.array([[2**52], [1], [2**52], [0]]), np.array([2**53, 1, 2**53, 0])),
        Poisson(np.array([[1], [0], [1], [7], [1], [0]]), np.array([0.5, 0.0, 0.5, 1e300, 0.5, 0])),
    ],
    ids=["columns", "far apart", "exposures"],
)
def test_messages_are_those_of_the_table(likelihood):
    rows, codes = likelihood.numbered()
    again = rows.take(codes)
    for name in likelihood.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(again, name), getattr(likelihood, name))
    table, times = likelihood.compress()
    size = table.exposure if isinstance(table, Poisson) else table.trials
    assert np.all(size > 0)
    assert np.all(np.diff(size) >= 0)
    assert times.sum() == len(likelihood) - (likelihood.local != likelihood.local).any(axis=1).sum()


def test_exposures_that_are_all_different_are_not_numbered():
    assert Poisson(np.ones((3, 1), np.int64), np.array([1.0, 2.0, 3.0])).numbered() is None


@pytest.mark.parametrize("step", [0.0, 1e-8, 0.3, 50.0])
@pytest.mark.parametrize("mean", [0.0, 0.2, 1.0])
def test_counts_beyond_those_whose_logarithms_are_added(mean, step):
    """Marginal log-probabilities of large groups, in bounded time each."""
    z, n = np.array([0, 3, 2000, 0, 5000]), np.array([0, 5, 2500, 4000, 5000])
    if mean in (0.0, 1.0):
        step = 0.0
    found = Binomial(z[:, None], n).marginal(
        np.array([mean]), np.array([mean * (1 - mean) * step / (1 + step)])
    )
    j = np.arange(5000)
    with np.errstate(divide="ignore", invalid="ignore"):
        sums = [np.append(0, np.cumsum(np.log(a + step * j))) for a in (mean, 1 - mean, 1.0)]
        expected = sums[0][z] + sums[1][n - z] - sums[2][n]
    expected += Binomial(z[:, None], n).log_coefficient()
    # sums of up to 1e5 cancel, each rounded 5000 times where it is a running one
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-9)
