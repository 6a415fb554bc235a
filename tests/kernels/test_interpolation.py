"""Nodes that stand for many points, against sums over all of them."""

import numpy as np
import pytest

from ebfed.kernels import interpolating_weights


@pytest.mark.parametrize("order", [1, 4, 10])
def test_polynomials_are_summed_exactly(order):
    rng = np.random.default_rng(0)
    at = np.append(rng.uniform(2.0, 2.5, 50), rng.uniform(3.5, 4.0, 30))
    weights = rng.normal(size=(2, 80))
    nodes, *found = interpolating_weights(at, *weights, 2.0, 0.5, 4, order)
    assert len(nodes) == 2 * order  # two of four cells have points
    for power in range(order):
        np.testing.assert_allclose(
            [each @ nodes**power for each in found], weights @ at**power, rtol=1e-11
        )


def test_smooth_functions_are_summed_to_the_last_digits():
    rng = np.random.default_rng(1)
    at, ones = rng.uniform(-5, 5, 10_000), np.ones(10_000)
    nodes, weights, _ = interpolating_weights(at, ones, ones, at.min(), 0.25, 41, 10)
    assert len(nodes) <= 410
    for smooth in (np.exp, lambda x: np.log1p(np.exp(x)), lambda x: 1 / (1 + np.exp(x)) ** 2):
        assert weights @ smooth(nodes) == pytest.approx(smooth(at).sum(), rel=1e-14)


def test_points_at_both_ends():
    nodes, weights, _ = interpolating_weights(
        np.array([0.0, 1.0]), np.ones(2), np.zeros(2), 0.0, 0.5, 2, 3
    )
    assert weights @ nodes == pytest.approx(1.0)
    assert weights.sum() == pytest.approx(2.0)
