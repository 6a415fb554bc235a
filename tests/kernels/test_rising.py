"""Sums behind rising factorials, against NumPy; run also with NUMBA_DISABLE_JIT=1."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebfed.kernels import rising_sums

# Sums of up to 300 positive terms, and one logarithm for many factors.
ROUNDING = 1e-12


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """Compile outside the tests that hypothesis times."""
    rising_sums(np.ones(1), np.ones(1, np.int64), 0.0)


def reference(start, count, step):
    j = np.arange(count)
    x = start + j * step
    return np.log(x).sum(), (1 / x).sum(), (1 / x**2).sum(), (j / x).sum()


@given(
    st.lists(st.tuples(st.floats(1e-13, 1.0), st.integers(0, 300)), min_size=1, max_size=5),
    st.one_of(st.just(0.0), st.floats(1e-9, 1e6)),
)
def test_rising_sums(rows, step):
    starts, counts = np.array(rows).T
    found = rising_sums(starts, counts.astype(np.int64), step)
    expected = [reference(start, int(count), step) for start, count in rows]
    scale = [np.abs(np.log(s + np.arange(int(c)) * step)).sum() for s, c in rows]
    np.testing.assert_allclose(found[:, 1:], np.array(expected)[:, 1:], rtol=ROUNDING)
    assert np.all(
        np.abs(found[:, 0] - np.array(expected)[:, 0]) <= ROUNDING * (1 + np.array(scale))
    )


@pytest.mark.parametrize("step", [0.0, 1e-9, 1e-5, 1e-3, 0.02, 1.0, 1e4])
@pytest.mark.parametrize("count", [63, 64, 65, 1000, 100_000])
def test_many_terms(count, step):
    """Sums in constant time against those term by term; log 1 leaves nothing but rounding."""
    starts = np.array([1e-13, 1e-4, 0.3, 1 - 1e-9, 1.0])
    found = rising_sums(starts, np.full(5, count), step)
    expected = np.array([reference(start, count, step) for start in starts])
    np.testing.assert_allclose(found[:, 1:], expected[:, 1:], rtol=1e-11)
    np.testing.assert_allclose(found[:, 0], expected[:, 0], rtol=1e-11, atol=1e-15 * count)
