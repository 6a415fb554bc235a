"""Steps within a radius are the best of the quadratic there."""

import numpy as np
import pytest

from ebfed.inference.trust_region import climb, uncertainty

RNG = np.random.default_rng(0)


def quadratic(slope, curvature, step):
    return slope @ step + 0.5 * step @ curvature @ step


@pytest.mark.parametrize("radius", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("signs", [(-1, -1, -1), (-1, -1, 1), (1, 1, 1), (-1, 0, 0)])
def test_no_point_within_the_radius_is_higher(signs, radius):
    axes = np.linalg.qr(RNG.normal(size=(3, 3)))[0]
    curvature = axes * (np.array(signs) * [1.0, 2.0, 0.5]) @ axes.T
    slope = axes @ np.array([1.0, -0.3, 0.2 * abs(signs[2])])
    step, gain = climb(slope, curvature, radius)
    assert np.linalg.norm(step) <= radius * (1 + 1e-8)
    assert gain == pytest.approx(quadratic(slope, curvature, step), rel=1e-8)
    others = RNG.normal(size=(2000, 3))
    others *= radius * RNG.random((2000, 1)) / np.linalg.norm(others, axis=1, keepdims=True)
    best = max(quadratic(slope, curvature, other) for other in others)
    assert gain >= best - 1e-9


def test_where_nothing_slopes_it_goes_along_the_bend():
    step, gain = climb(np.zeros(2), np.diag([-1.0, 3.0]), 2.0)
    np.testing.assert_allclose(np.abs(step), [0, 2])
    assert gain == pytest.approx(6.0)


def test_flat_directions_stay():
    step, gain = climb(np.array([1.0, 1e-17]), np.diag([-4.0, 0.0]), 9.0)
    np.testing.assert_allclose(step, [0.25, 0.0])
    assert gain == pytest.approx(0.125)
    assert climb(np.zeros(0), np.zeros((0, 0)), 1.0)[1] == 0


def test_uncertainty_is_of_what_bends_down():
    turn = np.array([[2.0, 0.3], [0.3, 1.0]])
    np.testing.assert_allclose(uncertainty(-turn), np.linalg.inv(turn))
    np.testing.assert_allclose(uncertainty(np.diag([-1e12, 1.0, 0.0])), np.diag([1e-12, 0, 0]))


@pytest.mark.parametrize("bend", [1e-3, 1.0, 1e14])
def test_a_slope_along_the_lowest_bend_is_followed_to_the_radius(bend):
    """What is added to the curvature is small beside it."""
    for radius in RNG.uniform(1e-3, 2.0, 200):
        step, gain = climb(np.array([0.7, 1e-3]), np.diag([-1.0, bend]), radius)
        assert np.linalg.norm(step) == pytest.approx(radius, rel=1e-6)
        assert gain > 0
