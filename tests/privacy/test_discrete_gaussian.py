"""Sums of discrete Gaussian noise: the bounds hold for probabilities that are computed exactly."""

import math

import numpy as np
import pytest

from ebfed.privacy import accountant, events, gaussian_delta
from ebfed.privacy.discrete_gaussian import (
    distributed_multiplier,
    distributed_sigma,
    divergence_of_sum,
    excess,
)


def discrete_gaussian(sigma, reach):
    masses = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)
    return masses / masses.sum()


def sum_of(sigma, parties, reach):
    """Probabilities of the sum of noises, on integers from -parties * reach."""
    masses = np.ones(1)
    for _ in range(parties):
        masses = np.convolve(masses, discrete_gaussian(sigma, reach))
    return masses


@pytest.mark.parametrize("parties", [2, 3, 10])
@pytest.mark.parametrize("sigma", [0.5, 0.6, 0.8, 1.0, 1.2])
def test_a_sum_is_as_near_to_discrete_gaussian_as_is_said(sigma, parties):
    reach = math.ceil(12 * sigma)
    found = sum_of(sigma, parties, reach)
    expected = discrete_gaussian(math.sqrt(parties) * sigma, parties * reach)
    middle = expected > 1e-13  # where digits of the sum are digits of its terms
    divergence = np.abs(np.log(found[middle] / expected[middle])).max()
    bound = divergence_of_sum(sigma, parties)
    assert divergence <= bound
    if parties == 2 and sigma <= 1:  # further noise smooths the sum, which no bound counts
        assert divergence > bound / 100


@pytest.mark.parametrize("spare", [0.5, 0.6])
def test_discrete_noise_is_nearly_made_of_gaussian_noise(spare):
    """Step 2 of the proof, where b is so small that it can be seen."""
    sigma, k = 1.5, np.arange(-12, 13)
    x, weights = np.polynomial.legendre.leggauss(2000)
    x, weights = 14 * x, 14 * weights
    rest = math.sqrt(sigma**2 - spare**2)
    density = np.exp(-0.5 * (x / rest) ** 2) / (rest * math.sqrt(2 * math.pi))
    drawn = np.exp(-0.5 * ((np.arange(-40, 41)[:, None] - x) / spare) ** 2)
    drawn /= drawn.sum(axis=0)
    found = drawn[28:53] @ (weights * density)
    expected = discrete_gaussian(sigma, 40)[28:53]
    smoothing = 2.01 * math.exp(-2 * (math.pi * spare) ** 2)
    divergence = np.abs(np.log(found / expected))[np.abs(k) < 8].max()
    assert divergence <= 2 * smoothing / (1 - smoothing)
    assert divergence > 1e-7


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize(("sigma", "parties", "shift"), [(2.5, 4, 3), (4.0, 3, 10), (20.0, 5, 40)])
def test_the_multiplier_covers_the_exact_delta(sigma, parties, shift, epsilon):
    """One integer: delta of the sum by its probabilities, beside that of the Gaussian release."""
    reach = math.ceil(14 * sigma)
    masses = sum_of(sigma, parties, reach)
    other = np.zeros_like(masses)
    other[shift:] = masses[:-shift]
    exact = np.maximum(masses - math.exp(epsilon) * other, 0).sum()
    z = distributed_multiplier(sigma, parties, shift)
    said = gaussian_delta(z, epsilon)
    assert exact <= said * (1 + 1e-9) + 1e-16
    if sigma == 20:  # the spare variance is small beside the noise
        assert exact > 0.95 * said


def test_the_multiplier_covers_the_exact_delta_of_two_integers():
    sigma, parties, epsilon, shift = 2.6, 3, 1.0, (2, 3)
    masses = sum_of(sigma, parties, 40)
    both = np.multiply.outer(masses, masses)
    other = np.roll(both, shift, axis=(0, 1))
    exact = np.maximum(both - math.exp(epsilon) * other, 0).sum()
    z = distributed_multiplier(sigma, parties, math.hypot(*shift), n_features=2)
    assert exact <= gaussian_delta(z, epsilon)
    assert exact > 0.5 * gaussian_delta(z, epsilon)


def test_an_event_is_accounted_like_any_gaussian_release():
    z = distributed_multiplier(sigma=1e4, parties=5, sensitivity=1e4 * math.sqrt(5))
    sampled = [
        events.repeated(events.poisson(0.1, events.gaussian(each)), 100) for each in (z, 1.0)
    ]
    found, central = (
        accountant.epsilon(each, 1e-5, relation="add_or_remove", interval=1e-3) for each in sampled
    )
    assert found == pytest.approx(central, rel=1e-6)


@pytest.mark.parametrize("parties", [1, 2, 7, 1000])
@pytest.mark.parametrize("multiplier", [0.1, 1.0, 30.0])
def test_sigma_and_multiplier_are_inverse(multiplier, parties):
    sigma = distributed_sigma(multiplier, parties, sensitivity=1e4)
    assert distributed_multiplier(sigma, parties, 1e4) == pytest.approx(multiplier, rel=1e-12)


def test_noise_that_is_too_fine_for_the_integers_is_refused():
    with pytest.raises(ValueError, match="Take a finer grid"):
        distributed_multiplier(sigma=1.5, parties=4, sensitivity=1.0)
    assert excess(1.5, 4, 1) > 1e-15
    assert distributed_multiplier(sigma=3.0, parties=4, sensitivity=1.0, n_features=10**7) > 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"sigma": 0.4}, "at least 0.5"),
        ({"sigma": math.nan}, "sigma"),
        ({"parties": 0}, "parties"),
        ({"parties": 2.5}, "parties"),
        ({"sensitivity": 0.0}, "sensitivity"),
        ({"n_features": 0}, "n_features"),
    ],
)
def test_wrong_arguments(wrong, message):
    good = {"sigma": 10.0, "parties": 3, "sensitivity": 1.0, "n_features": 2}
    with pytest.raises(ValueError, match=message):
        distributed_multiplier(**good | wrong)
