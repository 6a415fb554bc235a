"""Integrals of negative binomial likelihoods over gamma populations, against fine sums."""

import numpy as np
import pytest
from scipy import special

from ebfed.kernels import negative_binomial_gamma

COUNTS, RATIOS = np.array([0.0, 3.0, 0.0, 40.0, 700.0]), np.array([0.5, 0.5, 1e-9, 2.0, 1e3])
SIZES = np.array([2.0, 2.0, 1e9, 7.0, 0.7])


def largest(y, ratio, size):
    """Of ``y w - (y + size) log(1 + ratio e^w)``: at a mean of y, for any w."""
    return special.xlogy(y, y / (size * ratio)) - (y + size) * np.log1p(y / size)


def reference(shape):
    """Sums over even steps of the logarithm, so many and so far that nothing is left out."""
    found = []
    for y, ratio, size in zip(COUNTS, RATIOS, SIZES, strict=True):
        w = np.linspace(-42 / (shape + y) - 12, 12, 400_001)
        x = np.expm1(w)
        v = x - w
        logs = y * w - (y + size) * np.log1p(ratio * (1 + x)) - shape * v
        heights = np.exp(logs - logs.max())
        shares = heights / heights.sum()
        ends = shares @ x, shares @ v
        x, v = x - ends[0], v - ends[1]
        mass = logs.max() - largest(y, ratio, size) + np.log(heights.sum() * (w[1] - w[0]))
        found.append([mass, *ends, shares @ x**2, shares @ v**2, shares @ (x * v)])
    return np.array(found)


@pytest.mark.parametrize("shape", [0.05, 0.7, 4.0, 1e3])
def test_integrals(shape):
    found = negative_binomial_gamma(COUNTS, RATIOS, SIZES, shape, 0.5)
    np.testing.assert_allclose(found, reference(shape), rtol=1e-9, atol=1e-11)


def test_coarse_steps_are_near():
    fine = negative_binomial_gamma(COUNTS, RATIOS, SIZES, 2.0, 0.5)
    coarse = negative_binomial_gamma(COUNTS, RATIOS, SIZES, 2.0, 1.5)
    np.testing.assert_allclose(coarse[:, 0], fine[:, 0], atol=1e-2)


def test_no_spread():
    """The integral of a population that is nearly a point is its width times its height."""
    shape = 1e12
    found = negative_binomial_gamma(COUNTS[:2], RATIOS[:2], SIZES[:2], shape, 0.5)
    height = -(COUNTS[:2] + SIZES[:2]) * np.log1p(RATIOS[:2])
    height -= largest(COUNTS[:2], RATIOS[:2], SIZES[:2])
    np.testing.assert_allclose(found[:, 0] - 0.5 * np.log(2 * np.pi / shape), height, atol=1e-5)
