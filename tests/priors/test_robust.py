"""Robust intervals: published values, independent linear programs, coverage by quadrature."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import brentq, linprog
from scipy.special import ndtr, ndtri

from ebfed.priors.robust import (
    binomial_half_width,
    binomial_moments,
    gaussian_critical_value,
    gaussian_moments,
)

INTERPOLATION = 2e-4  # stated accuracy of the interpolated Gaussian critical values
SEARCH = 1e-6  # the worst law is searched on a grid, then polished
BISECTION = 1e-3  # two steps of the bisection for the binomial half-widths

# Populations of proportions: points, probabilities.
SPIKES = np.array([0.25, 0.5, 0.75]), np.full(3, 1 / 3)
TWO_POINTS = np.array([0.02, 0.3]), np.array([0.8, 0.2])
NODES, GAUSS = np.polynomial.legendre.leggauss(200)
UNIFORM = (NODES + 1) / 2, GAUSS / 2


def noncoverage(bias, critical_value):
    """P(|bias + Z| > critical_value)."""
    return ndtr(bias - critical_value) + ndtr(-bias - critical_value)


def central_moments(points, probabilities):
    mean = probabilities @ points
    return mean, probabilities @ (points - mean) ** 2, probabilities @ (points - mean) ** 4


# Gaussian critical values


@pytest.mark.parametrize(
    ("bias", "kurtosis", "level", "expected"),
    [  # tests/testthat/test-cv.R of the R package ebci 1.0.0 by the authors of the paper
        (5.0, 3, 0.95, 11.88358367),
        (1.0, 3, 0.80, 1.8494683),
        (10.0, 3, 0.95, 24.86172217),
        (2.8, 8, 0.90, 7.0779747158),
    ],
)
def test_published_critical_values(bias, kurtosis, level, expected):
    assert gaussian_critical_value(bias**2, kurtosis, level) == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("kurtosis", [1, 3, np.inf])
@pytest.mark.parametrize("level", [0.5, 0.9, 0.999])
def test_no_bias_gives_the_normal_quantile(kurtosis, level):
    value = gaussian_critical_value(0.0, kurtosis, level)
    assert value == pytest.approx(ndtri((1 + level) / 2), rel=1e-10)


@pytest.mark.parametrize("bias", [0.01, 1.0, 100.0])
def test_kurtosis_one_is_a_fixed_bias(bias):
    expected = brentq(lambda c: noncoverage(bias, c) - 0.05, 1.9, bias + 3)
    assert gaussian_critical_value(bias**2, 1, 0.95) == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("second_moment", [1e-4, 0.1, 1.0, 4.0, 50.0, 1e4])
def test_second_moment_alone_is_a_tangent_from_zero(second_moment):
    """With unbounded kurtosis the supremum is the least concave majorant in t = b^2."""

    def supremum(c):
        def gap(t):  # r(t) - r(0) - t r'(t), zero where the tangent passes through r(0)
            b = np.sqrt(t)
            slope = (stats.norm.pdf(b - c) - stats.norm.pdf(b + c)) / (2 * b)
            return noncoverage(b, c) - noncoverage(0, c) - t * slope

        tangent = (
            brentq(gap, max((c**2 - 3) / 2, (c - 2) ** 2), (c + 10) ** 2) if c > np.sqrt(3) else 0
        )
        if second_moment >= tangent:
            return noncoverage(np.sqrt(second_moment), c)
        rise = noncoverage(np.sqrt(tangent), c) - noncoverage(0, c)
        return noncoverage(0, c) + second_moment / tangent * rise

    expected = brentq(lambda c: supremum(c) - 0.05, 1.95, np.sqrt((second_moment + 1) / 0.05))
    value = gaussian_critical_value(second_moment, np.inf, 0.95)
    assert value == pytest.approx(expected, rel=1e-7)


def test_large_bias_meets_chebyshev():
    value = gaussian_critical_value(1e8, np.inf, 0.95)
    assert value == pytest.approx(np.sqrt(1e8 / 0.05), rel=1e-3)


@pytest.mark.parametrize("level", [0.8, 0.95])
@pytest.mark.parametrize("kurtosis", [1.05, 3.0, 100.0])
@pytest.mark.parametrize("second_moment", [0.05, 0.8, 40.0])
def test_against_a_linear_program(second_moment, kurtosis, level):
    value = gaussian_critical_value(second_moment, kurtosis, level)
    x = np.unique(
        np.concatenate(
            [
                np.linspace(0, (value + 6) ** 2 / second_moment, 2000),
                1 + np.linspace(-1, 1, 2001) * min(1, 2 * np.sqrt(kurtosis - 1)),
                np.maximum(value + np.linspace(-6, 6, 2000), 0) ** 2 / second_moment,
            ]
        )
    )
    scale = 1 / (1 + x**2 / kurtosis)
    worst = -linprog(
        -noncoverage(np.sqrt(x * second_moment), value) * scale,
        A_eq=scale * np.array([np.ones_like(x), x]),
        b_eq=[1, 1],
        A_ub=[scale * x**2 / kurtosis],
        b_ub=[1],
    ).fun
    assert worst == pytest.approx(1 - level, rel=2e-4)


@pytest.mark.parametrize("shrinkage", [0.05, 0.3, 0.7, 0.95])
@pytest.mark.parametrize("level", [0.8, 0.95])
def test_gaussian_coverage_of_fixed_populations(shrinkage, level):
    """Populations with variance one; the weight is that of the best linear estimator."""
    degrees = 6
    quantiles = (np.arange(20_000) + 0.5) / 20_000
    student = stats.t(degrees).ppf(quantiles)
    populations = [
        (np.array([-2.0, 0, 2]), np.array([0.125, 0.75, 0.125])),
        (np.array([-5.0, 0, 5]), np.array([0.02, 0.96, 0.02])),
        (np.array([-1.0, 1]), np.array([0.5, 0.5])),
        (student / student.std(), np.full(20_000, 1 / 20_000)),
    ]
    second_moment = (1 - shrinkage) / shrinkage
    for points, probabilities in populations:
        kurtosis = probabilities @ points**4
        bias = points * np.sqrt(second_moment)
        for bound in (kurtosis, np.inf):
            value = gaussian_critical_value(second_moment, bound, level)
            assert probabilities @ noncoverage(bias, value) <= (1 - level) * (1 + 1e-7)


@settings(max_examples=40, deadline=None)
@given(
    st.floats(1e-8, 1e8),
    st.floats(1, 1e3),
    st.floats(1, 1e4),
    st.floats(0.5, 0.999),
)
def test_critical_values_grow_with_every_argument(second_moment, factor, kurtosis, level):
    value = gaussian_critical_value(second_moment, kurtosis, level)
    less = value * (1 - SEARCH)
    assert gaussian_critical_value(second_moment * factor, kurtosis, level) >= less
    assert gaussian_critical_value(second_moment, kurtosis * factor, level) >= less
    assert gaussian_critical_value(second_moment, np.inf, level) >= less
    assert gaussian_critical_value(second_moment, kurtosis, (1 + level) / 2) >= less
    assert value >= ndtri((1 + level) / 2) * (1 - 1e-12)
    assert value <= np.sqrt((second_moment + 1) / (1 - level))


@pytest.mark.parametrize("kurtosis", [1.0, 2.5, np.inf])
def test_interpolated_values_equal_exact_ones(kurtosis):
    second_moment = np.append(np.geomspace(1e-8, 1e8, 399), 0).reshape(20, 20)
    interpolated = gaussian_critical_value(second_moment, kurtosis, 0.95)
    assert interpolated.shape == (20, 20)
    exact = [gaussian_critical_value(row, kurtosis, 0.95) for row in second_moment]
    np.testing.assert_allclose(interpolated, exact, rtol=INTERPOLATION)


def test_values_do_not_depend_on_their_company():
    second_moment = np.array([0.0, 3.0, 3.0, 1e-3, 1e5])
    together = gaussian_critical_value(second_moment, 3, 0.9)
    apart = [gaussian_critical_value(m, 3, 0.9) for m in second_moment]
    np.testing.assert_allclose(together, apart, rtol=1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1.0, 3, 0.95), "second_moment"),
        ((np.inf, 3, 0.95), "second_moment"),
        ((1.0, 0.9, 0.95), "kurtosis"),
        ((1.0, np.nan, 0.95), "kurtosis"),
        ((1.0, 3, 1.0), "level"),
    ],
)
def test_impossible_gaussian_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        gaussian_critical_value(*arguments)


# Gaussian moments


def test_moments_of_equal_variances_are_the_papers():
    rng = np.random.default_rng(1)
    deviations = rng.standard_t(5, 400) + rng.standard_normal(400)
    variance, kurtosis = gaussian_moments(deviations, np.ones(400))
    second, fourth = np.mean(deviations**2), np.mean(deviations**4)
    assert variance == pytest.approx(second - 1)
    assert kurtosis == pytest.approx((fourth - 6 * second + 3) / (second - 1) ** 2)


def test_moments_are_truncated_where_there_is_no_variance():
    # Deviations of exactly one standard deviation: mu_2 = 0 and mu_4 = -2 s^4 before truncation.
    variance, kurtosis = gaussian_moments(np.full(50, 3.0), np.full(50, 9.0))
    assert variance == pytest.approx(2 * 9 / 50)
    assert kurtosis == pytest.approx(1 + 32 * 81 / (50 * variance**2))


@pytest.mark.parametrize("spread", [0, 4])
def test_moments_are_recovered_under_unequal_noise(spread):
    rng = np.random.default_rng(2)
    variances = 10 ** rng.uniform(-spread, spread / 2, 20_000)
    theta = rng.choice([-2.0, 0, 0, 0, 0, 0, 0, 2], 20_000)  # variance 1, kurtosis 4
    deviations = theta + np.sqrt(variances) * rng.standard_normal(20_000)
    variance, kurtosis = gaussian_moments(deviations, variances)
    assert variance == pytest.approx(1, abs=0.05)
    assert kurtosis == pytest.approx(4, abs=0.3)


def test_noisy_groups_do_little():
    rng = np.random.default_rng(3)
    deviations = rng.standard_normal(500) * np.sqrt(1.5)
    alone = gaussian_moments(deviations, np.full(500, 0.5))
    noisy = 1e3 * rng.standard_normal(500)
    together = gaussian_moments(
        np.append(deviations, noisy), np.append(np.full(500, 0.5), np.full(500, 1e6))
    )
    assert together[0] == pytest.approx(alone[0], rel=0.01)
    assert together[1] == pytest.approx(alone[1], abs=2)  # with equal weights off by thousands


def test_moments_follow_the_unit():
    rng = np.random.default_rng(4)
    deviations, variances = rng.standard_normal(100), rng.uniform(0.1, 1, 100)
    variance, kurtosis = gaussian_moments(deviations, variances)
    scaled = gaussian_moments(1e-6 * deviations, 1e-12 * variances)
    np.testing.assert_allclose(scaled, [1e-12 * variance, kurtosis], rtol=1e-4)


@pytest.mark.parametrize(
    ("deviations", "variances", "message"),
    [
        ([], [], "empty"),
        ([1.0], [1.0, 1.0], "equal length"),
        ([np.nan], [1.0], "deviations"),
        ([1.0], [0.0], "variances"),
        ([1.0], [np.inf], "variances"),
    ],
)
def test_impossible_gaussian_samples(deviations, variances, message):
    with pytest.raises(ValueError, match=message):
        gaussian_moments(deviations, variances)


# Binomial half-widths


def binomial_noncoverage(trials, weight, mean, half_width, points):
    """Exact P(|p_hat - p| > half_width) at each proportion."""
    counts = np.arange(trials + 1)
    estimates = (1 - weight) * mean + weight * counts / max(trials, 1)
    missed = np.abs(estimates - points[:, None]) > half_width
    return np.sum(stats.binom.pmf(counts, trials, points[:, None]) * missed, axis=1)


@pytest.mark.parametrize("population", [SPIKES, TWO_POINTS, UNIFORM], ids=["3", "2", "uniform"])
@pytest.mark.parametrize("level", [0.8, 0.95])
def test_binomial_coverage_of_fixed_populations(population, level):
    points, probabilities = population
    mean, variance, fourth_moment = central_moments(*population)
    trials = np.array([0, 1, 2, 5, 17, 60, 200])
    weights = trials / (trials + mean * (1 - mean) / variance - 1)
    half_widths = binomial_half_width(trials, weights, mean, variance, fourth_moment, level)
    for n, weight, half_width in zip(trials, weights, half_widths, strict=True):
        missed = binomial_noncoverage(n, weight, mean, half_width, points)
        assert probabilities @ missed <= 1 - level


def test_without_trials_only_the_moments_count():
    """Mass q at mean +- h and the rest at the distance that keeps the variance."""
    variance = 0.01
    fourth_moment = 2 * variance**2

    def room(h):  # the fourth moment left when q = 0.1
        rest = (variance - 0.1 * h**2) ** 2 / 0.9
        return fourth_moment - 0.1 * h**4 - rest

    expected = brentq(room, np.sqrt(variance), np.sqrt(10 * variance))
    value = binomial_half_width([0], [0], 0.5, variance, fourth_moment, 0.9)
    np.testing.assert_allclose(value, expected, rtol=BISECTION)
    # And Chebyshev's inequality, which is sharp, where the fourth moment is free.
    value = binomial_half_width([0], [0], 0.5, variance, np.inf, 0.9)
    np.testing.assert_allclose(value, np.sqrt(variance / 0.1), rtol=BISECTION)


@pytest.mark.parametrize("kurtosis", [1.5, 3.0, 10.0])
def test_many_trials_meet_the_gaussian_critical_value(kurtosis):
    trials, mean, variance = 100_000, 0.5, 1e-6
    noise = mean * (1 - mean) / trials
    weight = variance / (variance + noise)
    expected = gaussian_critical_value(noise / variance, kurtosis, 0.95) * weight * noise**0.5
    value = binomial_half_width([trials], [weight], mean, variance, kurtosis * variance**2, 0.95)
    np.testing.assert_allclose(value, expected, rtol=0.01)


def test_against_a_finer_linear_program():
    """Every jump of the noncoverage, from both sides, on a grid twenty times as fine."""
    trials, (mean, variance, fourth_moment) = 12, central_moments(*TWO_POINTS)
    weight = trials / (trials + 8)
    value = binomial_half_width([trials], [weight], mean, variance, fourth_moment, 0.9)[0]

    def worst(half_width):
        estimates = (1 - weight) * mean + weight * np.arange(trials + 1) / trials
        jumps = np.concatenate([estimates - half_width, estimates + half_width])
        points = np.concatenate([np.linspace(0, 1, 2001), jumps - 1e-9, jumps + 1e-9, [mean]])
        points = np.unique(np.clip(points, 0, 1))
        values = binomial_noncoverage(trials, weight, mean, half_width, points)
        x = (points - mean) / np.sqrt(variance)
        return -linprog(
            -values,
            A_eq=[np.ones_like(x), x, x**2],
            b_eq=[1, 0, 1],
            A_ub=[x**4],
            b_ub=[fourth_moment / variance**2 * (1 + 1e-6)],
        ).fun

    assert worst(value * (1 + BISECTION)) <= 0.1
    assert worst(value * (1 - 2 * BISECTION)) > 0.1


def test_interpolated_half_widths_are_safe_and_close():
    mean, variance, fourth_moment = central_moments(*UNIFORM)
    trials = np.arange(120)
    weights = trials / (trials + 2)
    moments = mean, variance, fourth_moment, 0.95
    interpolated = binomial_half_width(trials, weights, *moments)
    some = np.array([0, 1, 3, 10, 33, 57, 100, 119])
    exact = binomial_half_width(some, weights[some], *moments)
    assert np.all(interpolated[some] >= exact * (1 - BISECTION))
    assert np.all(interpolated[some] <= (exact + 1 / (some + 2)) * (1 + BISECTION))
    assert np.all(np.diff(interpolated[1:]) < 0)


def test_half_widths_do_not_depend_on_their_company():
    moments = 0.2, 0.01, 4e-4, 0.9
    together = binomial_half_width([30, 4, 30, 0], [0.6, 0.2, 0.1, 0.0], *moments)
    apart = [
        binomial_half_width([n], [a], *moments)[0]
        for n, a in [(30, 0.6), (4, 0.2), (30, 0.1), (0, 0.0)]
    ]
    np.testing.assert_allclose(together, apart, rtol=1e-12)


@pytest.mark.parametrize(
    ("mean", "variance", "fourth_moment"),
    [
        (0.5, 0.0, 0.0),
        (0.1, 0.09, 0.0),  # all groups at zero or one
        (0.1, 0.05, 1e-9),  # less than the least fourth moment
        (1e-4, 1e-8, 1e-15),
        (0.3, 1.0, 1.0),
    ],
)
def test_moments_at_the_edge_of_the_possible(mean, variance, fourth_moment):
    value = binomial_half_width([0, 5, 10**6], [0, 0.5, 0.99], mean, variance, fourth_moment, 0.95)
    assert np.all((value >= 0) & (value <= 1))


def test_all_groups_at_an_end():
    """Reports through noise may fit a mean of 1e-9 and the largest variance it can have."""
    value = binomial_half_width([10], [1 - 1e-7], 1e-9, 1e-9, 1e-9, 0.95)
    assert 0 <= value[0] < 0.01


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trials": [1, 2]}, "equal length"),
        ({"trials": [1.5]}, "trials"),
        ({"trials": [-1]}, "trials"),
        ({"weights": [1.5]}, "weights"),
        ({"trials": [0]}, "weight 0"),
        ({"mean": 1.0}, "mean"),
        ({"variance": -1.0}, "variance"),
        ({"level": 0.0}, "level"),
        ({"trials": np.full(30, 9), "weights": np.linspace(0.1, 0.9, 30)}, "equal weights"),
    ],
)
def test_impossible_binomial_arguments(changes, message):
    arguments = {
        "trials": [5],
        "weights": [0.5],
        "mean": 0.5,
        "variance": 0.01,
        "fourth_moment": 3e-4,
        "level": 0.95,
    }
    with pytest.raises(ValueError, match=message):
        binomial_half_width(**(arguments | changes))


# Binomial moments


@pytest.mark.parametrize("population", [SPIKES, TWO_POINTS, UNIFORM], ids=["3", "2", "uniform"])
def test_binomial_moments_are_unbiased(population):
    """A sample with the counts of its expectation: only rounding is left."""
    points, probabilities = population
    mean, variance, fourth_moment = central_moments(*population)
    expected = probabilities @ stats.binom.pmf(np.arange(7), 6, points[:, None])
    successes = np.repeat(np.arange(7), np.round(1e6 * expected).astype(int))
    estimates = binomial_moments(successes, np.full(len(successes), 6), mean)
    np.testing.assert_allclose(estimates, [variance, fourth_moment], rtol=1e-3)


def test_binomial_moments_of_unequal_groups():
    rng = np.random.default_rng(5)
    trials = np.minimum(rng.geometric(0.03, 30_000), 10_000)
    rates = rng.choice(SPIKES[0], 30_000)
    variance, fourth_moment = binomial_moments(rng.binomial(trials, rates), trials, 0.5)
    _, true_variance, true_fourth_moment = central_moments(*SPIKES)
    assert variance == pytest.approx(true_variance, rel=0.02)
    assert fourth_moment == pytest.approx(true_fourth_moment, rel=0.05)


def test_groups_with_the_same_counts_are_given_once():
    rng = np.random.default_rng(7)
    trials = rng.integers(1, 9, 5000)
    successes = rng.binomial(trials, rng.beta(2, 3, 5000))
    pairs, times = np.unique(np.column_stack([successes, trials]), axis=0, return_counts=True)
    expected = binomial_moments(successes, trials, 0.4)
    np.testing.assert_allclose(binomial_moments(*pairs.T, 0.4, times), expected, rtol=1e-12)


def test_binomial_moments_stay_possible():
    rng = np.random.default_rng(6)
    trials = rng.integers(1, 40, 200)
    for rate in (0.5, 0.03):
        variance, fourth_moment = binomial_moments(rng.binomial(trials, rate), trials, rate)
        assert 0 < variance < rate * (1 - rate)
        assert variance**2 <= fourth_moment <= variance * (1 - rate) ** 2
    # All or nothing: the largest variance there is, and its fourth moment.
    successes = trials * (np.arange(200) < 40)
    variance, fourth_moment = binomial_moments(successes, trials, 0.2)
    assert variance <= 0.16 * (1 + 1e-12)
    assert fourth_moment == pytest.approx(0.2 * 0.8**4 + 0.8 * 0.2**4, rel=0.2)
    # No group of four: nothing is known beyond the variance.
    variance, fourth_moment = binomial_moments([0, 1, 3, 2], [2, 2, 3, 3], 0.5)
    assert fourth_moment == pytest.approx(variance / 4)


@pytest.mark.parametrize(
    ("successes", "trials", "mean", "message"),
    [
        ([1], [2, 2], 0.5, "equal length"),
        ([3], [2], 0.5, "successes"),
        ([0.5], [2], 0.5, "successes"),
        ([1], [2], 0.0, "mean"),
        ([1], [1], 0.5, "two trials"),
    ],
)
def test_impossible_counts(successes, trials, mean, message):
    with pytest.raises(ValueError, match=message):
        binomial_moments(successes, trials, mean)
