"""Likelihoods of populations of a point and a slab, beside NumPy."""

import numpy as np
import pytest

from ebfed.kernels import gains_of_weights


@pytest.mark.parametrize("largest", [1.0, 50.0, 600.0])
@pytest.mark.parametrize("counted", [False, True])
def test_gains_of_weights(largest, counted):
    rng = np.random.default_rng(0)
    gains = np.expm1(rng.uniform(-largest, largest, 1000))
    counts = rng.integers(0, 4, 1000).astype(float) if counted else np.ones(1000)
    weights = np.array([1e-12, 0.3, 1 - 1e-15])
    expected = [counts @ np.log1p(weight * gains) for weight in weights]
    # a factor near 1 has the rounding of 1
    np.testing.assert_allclose(gains_of_weights(gains, counts, weights), expected, atol=1e-12)


def test_what_no_weight_explains():
    """A client that neither the point nor the slab can have had."""
    gains = np.array([-1.0, 2.0])
    for counts in (np.ones(2), np.full(2, 2.0)):
        with np.errstate(divide="ignore"):  # without the compiler NumPy warns
            assert gains_of_weights(gains, counts, np.ones(1)) == -np.inf
