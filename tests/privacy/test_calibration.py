"""Delta is what its definition says, sigma inverts it, and the paper's formula has limits."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from ebfed.privacy import (
    PrivacyWarning,
    check_delta,
    check_epsilon,
    discrete_gaussian_delta,
    discrete_gaussian_sigma,
    gaussian_delta,
    gaussian_sigma,
    paper_delta,
    paper_sigma,
)

EPSILONS = [1e-3, 0.1, 0.5, 1, 4, 10, 50]
DELTAS = [1e-12, 1e-6, 1e-4, 0.1]


@pytest.mark.parametrize(("sigma", "epsilon"), [(0.3, 1), (0.3, 10), (1, 0.01), (2, 1), (30, 0.1)])
def test_gaussian_delta_is_the_excess_probability(sigma, epsilon):
    def excess(x):
        return norm.pdf(x, 0, sigma) - math.exp(epsilon) * norm.pdf(x, 1, sigma)

    edge = 0.5 - epsilon * sigma**2  # where the likelihood ratio is e^epsilon
    expected, error = quad(excess, edge - 12 * sigma, edge, epsabs=0, epsrel=1e-11)
    assert gaussian_delta(sigma, epsilon) == pytest.approx(expected, rel=1e-9, abs=2 * error)


# 60-digit values (mpmath) of the two terms' difference, where they cancel or nearly underflow
@pytest.mark.parametrize(
    ("sigma", "epsilon", "expected"),
    [
        (6000.0, 0.001, 2.60725295195198e-14),
        (1000000.0, 1e-06, 8.33155122454254e-8),
        (40.0, 0.5, 4.39748528263089e-92),
        (0.25, 100.0, 3.44257949847411e-118),
        (0.7, 50.0, 2.55857261310685e-259),
        (0.03, 1000.0, 5.27949771671312e-41),
    ],
)
def test_gaussian_delta_keeps_its_digits(sigma, epsilon, expected):
    assert gaussian_delta(sigma, epsilon) == pytest.approx(expected, rel=1e-11, abs=0)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_gaussian_sigma_is_the_inverse(epsilon, delta):
    for sensitivity in (1.0, 0.02, 14.1):
        sigma = gaussian_sigma(epsilon, delta, sensitivity)
        achieved = gaussian_delta(sigma, epsilon, sensitivity)
        assert achieved == pytest.approx(delta, rel=1e-10)
        assert achieved <= delta * (1 + 1e-13)
        assert gaussian_delta(sigma * 0.999, epsilon, sensitivity) > delta


def test_extreme_promises():
    assert gaussian_sigma(1e3, 1e-300) < gaussian_sigma(1e3, 1e-301)
    for epsilon, delta in ((1e-9, 1e-300), (1e3, 0.5), (1e-9, 1 - 1e-9)):
        achieved = gaussian_delta(gaussian_sigma(epsilon, delta), epsilon)
        assert achieved == pytest.approx(delta, rel=1e-10, abs=0)


PROMISES = st.tuples(st.floats(1e-3, 100), st.floats(1e-15, 0.5))
POSITIVE = st.floats(1e-2, 1e2)


@given(POSITIVE, st.floats(1e-3, 100), POSITIVE)
def test_more_noise_is_more_private(sigma, epsilon, scale):
    delta = gaussian_delta(sigma, epsilon)
    assert 0 <= delta <= 1
    assert gaussian_delta(1.01 * sigma, epsilon) <= delta
    assert gaussian_delta(sigma, 1.01 * epsilon) <= delta
    # only the ratio of noise to sensitivity counts; a tail magnifies its rounding
    same = gaussian_delta(scale * sigma, epsilon, scale)
    assert same == pytest.approx(delta, rel=1e-9, abs=1e-290)


@given(PROMISES, POSITIVE)
def test_sigma_scales_with_the_sensitivity(promise, scale):
    sigma = gaussian_sigma(*promise)
    assert gaussian_sigma(*promise, scale) == pytest.approx(scale * sigma, rel=1e-12)
    assert gaussian_sigma(promise[0] * 1.1, promise[1]) < sigma
    assert gaussian_sigma(promise[0], promise[1] * 1.1) < sigma


def test_the_papers_calibration():
    for epsilon in (0.1, 0.5, 1):  # too noisy
        ratio = paper_sigma(epsilon, 1e-4, 0.5) / gaussian_sigma(epsilon, 1e-4)
        assert 1.39 < ratio < 1.82
    for epsilon in (1, 4, 8, 8.9):
        assert paper_delta(epsilon, 1e-4) <= 1e-4
    for epsilon in (9, 10, 20):
        assert paper_delta(epsilon, 1e-4) > 1e-4
        with pytest.warns(PrivacyWarning, match="gaussian_sigma gives the noise that is needed"):
            paper_sigma(epsilon, 1e-4, 0.5)
    with pytest.warns(PrivacyWarning, match=r"delta=0\.356"):
        sigma = paper_sigma(1, 1e-4, 2.0, n_features=50)
    assert sigma == pytest.approx(2 * math.sqrt(8 * math.log(2e4)), rel=1e-15)
    assert gaussian_delta(sigma, 1, 4 * math.sqrt(50)) == pytest.approx(0.3555, abs=1e-4)


@pytest.mark.parametrize("sigma", [0.2, 1, 2, 2.1, 30])
@pytest.mark.parametrize("epsilon", [0.01, 1, 20])
@pytest.mark.parametrize("steps", [1, 3, 15])
def test_discrete_gaussian_delta_is_the_excess_probability(sigma, epsilon, steps):
    y = np.arange(-2000, 2001)
    weights, moved = np.exp(-0.5 * (y / sigma) ** 2), np.exp(-0.5 * ((y - steps) / sigma) ** 2)
    expected = np.maximum(0, weights - np.exp(epsilon) * moved).sum() / weights.sum()
    assert discrete_gaussian_delta(sigma, epsilon, steps) == pytest.approx(
        expected, rel=1e-9, abs=1e-14
    )


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("steps", [1, 15])
def test_discrete_gaussian_sigma_keeps_its_promise(epsilon, delta, steps):
    sigma = discrete_gaussian_sigma(epsilon, delta, steps)
    assert discrete_gaussian_delta(sigma, epsilon, steps) <= delta * (1 + 1e-13)
    assert discrete_gaussian_delta(sigma * 0.999, epsilon, steps) > delta
    if sigma > 20:  # many steps of noise: as good as continuous
        assert sigma == pytest.approx(gaussian_sigma(epsilon, delta, steps), rel=1e-3)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_concentrated_privacy_of_a_vector(epsilon, delta):
    sigma = discrete_gaussian_sigma(epsilon, delta, 15, n_features=9)
    rho = 15**2 * 9 / (2 * sigma**2)
    order = 1 + np.geomspace(1e-6, 1e9, 200_001)
    conversion = order * rho + np.log1p(-1 / order) - np.log(order * delta) / (order - 1)
    assert conversion.min() == pytest.approx(epsilon, rel=1e-6)
    # it is a bound on, and not far from, what continuous noise of the same variance does
    assert 1 < sigma / gaussian_sigma(epsilon, delta, 45) < (2 if delta < 0.01 else 12)


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf, True, "1", None, [1.0], 1j])
def test_bad_numbers(bad):
    with pytest.raises(ValueError, match="epsilon must be a finite number above 0"):
        check_epsilon(bad)
    with pytest.raises(ValueError, match="delta must lie between 0 and 1"):
        check_delta(bad)
    with pytest.raises(ValueError, match="sigma must be"):
        gaussian_delta(bad, 1.0)
    with pytest.raises(ValueError, match="sensitivity must be"):
        gaussian_sigma(1.0, 1e-5, bad)
    with pytest.raises(ValueError, match="half_width must be"):
        paper_sigma(1.0, 1e-5, bad)


@pytest.mark.parametrize("bad", [0, -1, 1.5, math.nan, True, "1", None])
def test_bad_counts(bad):
    with pytest.raises(ValueError, match="steps must be a whole number"):
        discrete_gaussian_delta(1.0, 1.0, bad)
    with pytest.raises(ValueError, match="steps must be a whole number"):
        discrete_gaussian_sigma(1.0, 1e-5, bad)
    with pytest.raises(ValueError, match="n_features must be a whole number"):
        paper_delta(1.0, 1e-5, bad)


def test_delta_one_is_no_promise():
    with pytest.raises(ValueError, match=r"delta must lie between 0 and 1.*; got 1"):
        gaussian_sigma(1.0, 1)


def test_numbers_of_numpy_are_numbers():
    assert check_epsilon(np.float32(0.5)) == 0.5
    assert check_epsilon(np.int64(2)) == 2
    assert discrete_gaussian_delta(1.0, 1.0, np.int64(1)) == discrete_gaussian_delta(1.0, 1.0, 1)
