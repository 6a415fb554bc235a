"""Curves of privacy: closed forms, tangents, and those of an accountant."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from ebfed.privacy import events, gaussian_delta
from ebfed.privacy.curves import GAUSSIAN, approximate_curve, gaussian_curve, sampled

PLACES = (1e-6, 1e-3, 0.1, 0.5, 0.9, 0.999)


@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0])
def test_a_curve_is_the_highest_of_its_tangents(mu):
    # delta at epsilon is the largest y - e^epsilon g(y): a tangent touches the curve
    y = norm.cdf(np.linspace(-12, 12, 4001))
    g = np.array([gaussian_curve(mu)(each) for each in y])
    for epsilon in (0.3, 1.0, 4.0):
        delta = gaussian_delta(1 / mu, epsilon)
        assert np.max(y - math.exp(epsilon) * g) == pytest.approx(delta, rel=1e-4, abs=1e-12)
        below = np.array([approximate_curve(epsilon, delta)(each) for each in y])
        assert np.all(below <= g * (1 + 1e-9) + 1e-12)


def test_curves_are_symmetric():
    # if an event has (y, g), its complement has (1 - g, 1 - y)
    for curve in (gaussian_curve(0.7), approximate_curve(0.7, 0.0)):
        for y in PLACES:
            assert curve(1 - curve(y)) == pytest.approx(1 - y, rel=1e-6)


def test_without_sampling_an_accountant_finds_the_closed_form():
    family = sampled(
        lambda t: events.repeated(events.poisson(1.0, events.gaussian(2 / t)), 4),
        lambda t, delta: GAUSSIAN.epsilon(t, delta),
        "add_or_remove",
    )
    for t in (0.5, 1.0, 2.0):  # four releases of multiplier 2 / t are one of 1 / t
        for y in PLACES:
            found, exact = family.curve(t)(y), gaussian_curve(t)(y)
            assert found <= exact * (1 + 1e-9), "rounded towards less privacy"
            # the nearest of the tangents touches a little beside the place
            assert found >= 0.97 * exact - 1e-6


def test_sampling_protects():
    def family(rate, relation):
        def release(t):
            return events.poisson(rate, events.gaussian(1 / t))

        return sampled(release, GAUSSIAN.epsilon, relation)

    whole, half = (family(rate, "add_or_remove").curve(1.0) for rate in (1.0, 0.5))
    assert all(half(y) > whole(y) for y in PLACES[1:])
    exchanged = family(1.0, "replace_one").curve(1.0)
    assert exchanged(0.5) == pytest.approx(gaussian_curve(2.0)(0.5), rel=0.03)


def test_the_strongest_refuted():
    found = GAUSSIAN.strongest(lambda curve: curve(0.5) > norm.cdf(-1.5))
    assert found == pytest.approx(1.5, rel=2e-5)
    assert found <= 1.5
    assert GAUSSIAN.strongest(lambda curve: False) == 0
    assert GAUSSIAN.strongest(lambda curve: True) == pytest.approx(32, rel=1e-4)
    assert GAUSSIAN.epsilon(1.0, 0.12694) == pytest.approx(1.0, rel=1e-4)
