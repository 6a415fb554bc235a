"""Log-likelihoods against scipy, and sums over messages that are one."""

import numpy as np
from scipy import stats

from ebfed.likelihoods import Binomial, Gaussian


def test_gaussian_density():
    rng = np.random.default_rng(0)
    values, variances = rng.normal(size=(7, 2)), rng.uniform(0.1, 3, (7, 2))
    theta = rng.normal(size=(5, 2))
    expected = stats.norm.logpdf(values[:, None], theta, np.sqrt(variances)[:, None]).sum(axis=2)
    np.testing.assert_allclose(Gaussian(values, variances).logpdf(theta), expected, rtol=1e-12)


def test_gaussian_density_shares_a_variance_between_columns():
    values = np.array([[0.0, 1.0], [2.0, 3.0]])
    one = Gaussian(values, np.array([[2.0], [3.0]]))
    two = Gaussian(values, np.array([[2.0, 2.0], [3.0, 3.0]]))
    theta = np.array([[0.5, 0.5]])
    np.testing.assert_array_equal(one.logpdf(theta), two.logpdf(theta))


def test_binomial_density_sums_to_one():
    rates = np.array([[0.0], [0.1], [0.5], [1.0]])
    counts = Binomial(np.arange(9)[:, None], np.full(9, 8))
    values = counts.logpdf(rates)
    np.testing.assert_allclose(np.exp(values).sum(axis=0), 1, rtol=1e-12)
    expected = stats.binom.logpmf(np.arange(9)[:, None], 8, rates[:, 0])
    np.testing.assert_allclose(values, expected, rtol=1e-12)
