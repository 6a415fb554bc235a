"""Messages on variances."""

import numpy as np
from scipy import integrate, stats

from ebfed import channels
from ebfed.families import Variance
from ebfed.likelihoods import LogVariance


def test_density_of_the_log_of_a_sum_of_squares():
    one = LogVariance(np.array([[3.0]]), np.array([5]))
    for theta in (-1.0, 0.5):
        ratio = 3.0 / np.exp(theta)
        log = stats.chi2(5).logpdf(ratio) + np.log(ratio)
        np.testing.assert_allclose(one.logpdf(np.array([[theta]])), [[log]], rtol=1e-13)


def test_normal_marginal():
    """Adaptive quadrature equals that of SciPy."""
    rng = np.random.default_rng(0)
    degrees = np.array([1, 2, 9, 60, 1])
    messages = LogVariance(np.append(rng.chisquare(degrees[:4]), 0.0)[:, None], degrees)
    found = messages.marginal(np.array([0.3]), np.array([1.7]))
    for i in range(5):
        one = messages.take([i])
        density = lambda t, one=one: (  # noqa: E731
            np.exp(one.logpdf(np.array([[t]]))[0, 0]) * stats.norm(0.3, 1.7**0.5).pdf(t)
        )
        exact, _ = integrate.quad(density, -15, 15, points=[one.local[0, 0]], limit=400)
        np.testing.assert_allclose(found[i], np.log(exact), atol=1e-8)


def test_reports_are_averages_over_log_sample_variances():
    """Law of a report from simulated sample variances; five standard errors, 1e-6 a figure."""
    family, channel = Variance(), channels.Quantizer(2, (-2.0, 2.0))
    rng = np.random.default_rng(1)
    size, theta = 40_000, 0.4
    summary = family.blank(np.full(size, 4), 1)
    own = family.simulate(np.full((size, 1), theta), np.full((size, 1), 4), rng)
    object.__setattr__(summary, "mean", own)
    message = channel.encode(summary, 2)
    law = channel.likelihood(message, family)
    values, first, counts = np.unique(message["report"], return_index=True, return_counts=True)
    expected = np.exp(law.take(first).logpdf(np.array([[theta]])))[:, 0]
    assert len(values) == 4
    np.testing.assert_allclose(expected.sum(), 1.0, atol=1e-4)  # cells of the quadrature
    error = np.sqrt(expected * (1 - expected) / size)
    assert np.all(np.abs(counts / size - expected) < 5 * error)


def test_groups_of_one_row_say_nothing():
    family = Variance()
    summary = family.summarise(np.array([[1.0], [5.0], [9.0]]), np.array([0, 0, 1]))
    reports = channels.Laplace(1.0, (-5.0, 5.0))
    found = reports.likelihood(reports.encode(summary, 0), family)
    assert found.logpdf(np.array([[0.3]]))[1, 0] == 0
    assert np.isnan(family.likelihood(family.figures(summary)).local[1, 0])


def test_marginal_of_columns_of_which_one_does_not_vary():
    """Each column has a population of its own, whatever the one before it."""
    family, channel = Variance(), channels.Quantizer(2, (-2.0, 2.0))
    rows = np.random.default_rng(3).normal(size=(20, 2))
    message = channel.encode(family.summarise(rows, np.repeat(np.arange(5), 4)), 4)
    reports = channel.likelihood(message, family)
    mean, variance = np.array([0.2, -0.4]), np.array([0.0, 1.5])
    apart = sum(reports.column(j).marginal(mean[[j]], variance[[j]]) for j in (0, 1))
    np.testing.assert_allclose(reports.marginal(mean, variance), apart, rtol=1e-12)
