"""Sums behind rising factorials, against NumPy; run also with NUMBA_DISABLE_JIT=1."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ebfed.kernels import (
    dirichlet_profiles,
    dirichlet_values,
    negative_binomial_profiles,
    negative_binomial_values,
    rising_sums,
)
from ebfed.kernels.rising import tallied_sums
from ebfed.priors.beta_binomial import tally

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


def log_likelihood(z, n, mean, step):
    parts = ((z, mean), (n - z, 1 - mean), (n, 1.0))
    up, down, both = (sum(reference(start, each, step)[0] for each in x) for x, start in parts)
    return up + down - both


@pytest.mark.parametrize("step", [0.0, 1e-9, 1e-4, 0.02, 1.0, 1e4])
@pytest.mark.parametrize("start", [1e-12, 0.3, 1.0])
@pytest.mark.parametrize(
    "values", [[0, 3, 5], [0], [7, 64, 65, 130], [2, 90_000], [*range(200), 50_000, 10**6]]
)
def test_sums_of_many_counts(values, start, step):
    """Few large counts are no sums term by term; the order of counts does not matter."""
    values, times = np.array(values), np.arange(1.0, len(values) + 1)
    tallied = tally(values[::-1], times[::-1])
    found = tallied_sums(start, step, *tallied, True)
    expected = times @ np.array([reference(start, count, step) for count in values])
    np.testing.assert_allclose(found[1:], expected[1:], rtol=1e-11)
    scale = times @ [np.abs(np.log(start + np.arange(v) * step)).sum() for v in values]
    assert abs(found[0] - expected[0]) <= ROUNDING * (1 + scale)
    assert tallied_sums(start, step, *tallied, False)[1:] == found[1:]


def joined(*columns):
    """Tallies of categories one after another, and of their sums."""
    once = np.ones(len(columns[0]))
    *parts, all_ = [tally(column, once) for column in (*columns, sum(columns))]
    flat = [np.concatenate([part[i] for part in parts]) for i in range(3)]
    edges, ends = (np.cumsum([0, *(len(part[i]) for part in parts)]) for i in (0, 1))
    return (flat[0], edges, *flat[1:], ends), all_


@pytest.mark.parametrize("large", [[], [40_000, 3000]])
def test_best_mean_given_the_overdispersion(large):
    rng = np.random.default_rng(0)
    n = np.array([3, 8, 8, 20, 1, 300, *large])
    z = rng.binomial(n, 0.3)
    z[0] = 3
    tallies = joined(z, n - z)
    steps = np.array([0.0, 1e-6, 0.1, 10.0])

    def profiles(steps, mean):
        shares, values, slopes = dirichlet_profiles(steps, np.array([mean, 1 - mean]), *tallies)
        np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-14)
        return np.array([shares[:, 0], values, slopes])

    found = profiles(steps, z.sum() / n.sum())
    alone = [profiles(step, z.sum() / n.sum()) for step in steps[:, None]]
    np.testing.assert_allclose(found, np.hstack(alone), rtol=1e-9, atol=1e-9)
    for step, (mean, value, slope) in zip(steps, np.hstack(alone).T, strict=True):
        assert value == pytest.approx(log_likelihood(z, n, mean, step), rel=1e-12)
        shares = np.array([[mean, 1 - mean]])
        same = dirichlet_values(np.array([step]), shares, *tallies)[0]
        assert same == pytest.approx(value, rel=1e-15)
        around = [log_likelihood(z, n, mean + a, step) for a in (-1e-3, 1e-3)]
        assert max(around) < value
        h = 1e-7 + 1e-5 * step
        ends = profiles(np.array([step, step + h]), mean)[1]
        assert slope == pytest.approx(np.diff(ends)[0] / h, rel=1e-2, abs=1e-3)


@pytest.mark.parametrize("start", [-9.0, 0.0, 7.0])
@pytest.mark.parametrize("step", [0.0, 1e-7, 1e-3, 0.5, 1e4])
def test_best_rate_given_the_overdispersion(step, start):
    rng = np.random.default_rng(1)
    exposure, groups = np.array([1e-3, 0.5, 2.0, 700.0, 1e-310]), np.array([3, 40, 20, 2, 1])
    counts = [rng.poisson(e * rng.gamma(2, 1, n)) for e, n in zip(exposure, groups, strict=True)]
    events = np.array([each.sum() for each in counts], float)
    y, size = np.concatenate(counts), np.repeat(exposure, groups)
    tallied = tally(y, np.ones(len(y)))
    table = tallied, exposure, groups.astype(float), events
    found = negative_binomial_profiles(np.array([step, 2 * step]), start, *table)
    log_rate, value, slope = found[:, 0]

    def log_likelihood(log_rate, step):
        mean = size * np.exp(log_rate)
        if step == 0:
            return stats.poisson.logpmf(y, mean).sum()
        return stats.nbinom.logpmf(y, 1 / step, 1 / (1 + step * mean)).sum()

    assert negative_binomial_values(np.array([log_rate]), np.array([step]), *table)[0] == value
    best = log_likelihood(log_rate, step)
    assert max(log_likelihood(log_rate + a, step) for a in (-1e-3, 1e-3)) < best
    if step not in (1e-7, 0.0):  # where scipy has digits
        h = 1e-4 * step
        ends = [log_likelihood(log_rate, step + a) for a in (-h, h)]
        assert slope == pytest.approx((ends[1] - ends[0]) / (2 * h), rel=1e-4, abs=1e-4)
        gained = log_likelihood(found[0, 1], 2 * step) - best
        assert found[1, 1] - value == pytest.approx(gained, rel=1e-8)


# What NumPy says of zeros where nothing is compiled.
@pytest.mark.filterwarnings("ignore:(divide by zero|invalid value) encountered")
def test_values_where_all_succeed():
    """The share of failures may be 0 where there are none."""
    n = np.array([3, 5])
    shares = np.array([[1.0, 0.0], [0.5, 0.5]])
    found = dirichlet_values(np.ones(2), shares, *joined(n, n - n))
    np.testing.assert_allclose(found, [0.0, log_likelihood(n, n, 0.5, 1.0)], atol=1e-15)
    some = joined(n - 1, n - n + 1)
    assert dirichlet_values(np.ones(1), shares[:1], *some)[0] == -np.inf


@pytest.mark.parametrize("dispersion", [0.0, 0.3, 50.0])
def test_dirichlet_profiles(dispersion):
    """Shares, value and slope against scipy's optimum and differences; large counts included."""
    from scipy.optimize import minimize

    counts = np.array([[9, 1, 2], [0, 4, 100], [5, 1, 5], [1, 9, 0]])
    tallies = joined(*counts.T)
    start = counts.sum(axis=0) / counts.sum()

    def profile(phi):
        return [each[0] for each in dirichlet_profiles(np.array([phi]), start, *tallies)]

    def log_likelihood(shares):
        total = -sum(reference(1.0, n, dispersion)[0] for n in counts.sum(axis=1))
        return total + sum(
            reference(share, z, dispersion)[0]
            for share, column in zip(shares, counts.T, strict=True)
            for z in column
        )

    def free(x):
        weights = np.exp(np.append(x, 0.0))
        return -log_likelihood(weights / weights.sum())

    shares, value, slope = profile(dispersion)
    best = minimize(free, np.zeros(2), method="BFGS", options={"gtol": 1e-7})
    assert shares.sum() == pytest.approx(1.0, abs=1e-14)
    assert value == pytest.approx(log_likelihood(shares), rel=1e-12)
    assert value == pytest.approx(-best.fun, rel=1e-9)
    step = 1e-5 * (1 + dispersion)
    low, high = max(dispersion - step, 0.0), dispersion + step
    difference = (profile(high)[1] - profile(low)[1]) / (high - low)
    assert slope == pytest.approx(difference, rel=1e-3)
