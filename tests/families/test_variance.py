"""Rows of which the variance is of interest."""

import numpy as np
from scipy import integrate, stats

from ebfed.families import Variance
from ebfed.tables.clients import Summary


def test_summaries_merge_as_rows_do():
    rng = np.random.default_rng(0)
    x, groups = rng.normal(1e4, 2.0, (40, 2)), np.repeat(np.arange(8), 5)
    family = Variance()
    whole = family.summarise(x, groups)
    halves = [family.summarise(x[part], groups[part]) for part in (slice(0, 17), slice(17, 40))]
    both = family.merge(*halves)
    np.testing.assert_array_equal(both.n, whole.n)
    np.testing.assert_allclose(both.mean, whole.mean, rtol=1e-9)  # values are 5000 sds from 0
    np.testing.assert_allclose(both.sums["centre"], whole.sums["centre"], rtol=1e-12)


def test_density_of_rows_with_a_flat_mean():
    family, rows = Variance(), np.array([1.0, 2.5, 4.0])
    summary = family.converted(Summary.from_rows(rows, np.zeros(3, int)))
    theta = np.log(1.7)
    log = family.likelihood(family.figures(summary)).logpdf(np.array([[theta]]))[0, 0]
    log += family.log_base_measure(summary)[0]
    density = lambda mu: stats.norm(mu, 1.7**0.5).pdf(rows).prod()  # noqa: E731
    exact, _ = integrate.quad(density, -20, 25)
    np.testing.assert_allclose(log, np.log(exact), rtol=1e-8)


def test_simulated_sample_variances():
    """Mean and variance of log sample variances; five standard errors, 1e-6 a figure."""
    from scipy.special import psi

    family, rng, size = Variance(), np.random.default_rng(1), 50_000
    draws = family.simulate(np.full(size, 0.7), np.full(size, 6), rng)
    variance = float(family.sampling_variance(0.7, 6))
    assert abs(draws.mean() - (0.7 + psi(2.5) - np.log(2.5))) < 5 * np.sqrt(variance / size)
    fourth = ((draws - draws.mean()) ** 4).mean()
    assert abs(draws.var() - variance) < 5 * np.sqrt((fourth - variance**2) / size)
