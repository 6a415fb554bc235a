"""Plain Gaussian noise: its arguments, its law, and clients whose randomness is real."""

import numpy as np
import pytest
from scipy.stats import kstest

from ebfed import Summary, families
from ebfed.channels import AddNoise

MEANS = Summary(
    np.arange(3), np.array([1, 4, 0]), np.array([[-2.0], [0.5], [0.0]]), np.zeros((3, 1))
)


@pytest.mark.parametrize("rng", [7, "secure"])
def test_noise_is_normal(rng):
    """One Kolmogorov-Smirnov test each: a false alarm in a million."""
    many = Summary(
        np.arange(3000), np.ones(3000, int), np.full((3000, 1), 1.5), np.zeros((3000, 1))
    )
    sent = AddNoise(0.3).encode(many, rng)["mean"][:, 0]
    assert kstest((sent - 1.5) / 0.3, "norm").pvalue > 1e-6


def test_the_likelihood_is_blurred():
    message = AddNoise(0.5).encode(MEANS, 1)
    likelihood = AddNoise(0.5).likelihood(message, families.Gaussian(2.0))
    np.testing.assert_allclose(likelihood.variances.ravel(), [2.25, 0.75, np.inf])
    np.testing.assert_array_equal(likelihood.values, message["mean"])


def test_clipping_is_counted():
    channel = AddNoise(0.0, (-1, 1))
    assert channel.clipped(MEANS).tolist() == [True, False, False]
    assert channel.encode(MEANS)["mean"].ravel().tolist() == [-1.0, 0.5, 0.0]
    assert channel.guarantee() == (np.inf, 0.0)


@pytest.mark.parametrize("sd", [None, -1, np.nan, np.inf])
def test_wrong_noise(sd):
    with pytest.raises(ValueError, match="sd must be a number from 0"):
        AddNoise(sd).encode(MEANS)


def test_counts_are_not_noisy_means():
    with pytest.raises(TypeError, match="Binomial clients cannot report plain noisy means"):
        AddNoise(0.1).likelihood(AddNoise(0.1).encode(MEANS, 0), families.Binomial())
