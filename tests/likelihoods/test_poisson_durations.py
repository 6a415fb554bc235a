"""Reports on rates from durations: against integrals, and over gamma populations."""

import numpy as np
import pytest
from scipy import integrate, stats

from ebfed.channels import Laplace, Quantizer
from ebfed.families import EndedDuration

NUMBER, RANGE = np.array([1, 2, 7, 30]), (0.1, 1.5)


def likelihood(channel):
    family = EndedDuration()
    rates = family.simulate(np.full(4, 0.6), NUMBER, np.random.default_rng(2))
    summary = family.blank(NUMBER, 1)
    message = channel.encode(type(summary)(summary.ids, NUMBER, rates[:, None], 0 * rates[:, None]))
    return channel.likelihood(message, family)


@pytest.mark.parametrize("channel", [Laplace(3.0, RANGE), Quantizer(3, RANGE)], ids=repr)
def test_reports_have_the_density_of_an_integral(channel):
    """Over the total time, whose law is a gamma: 400 cells of the range leave less than 1e-4."""
    reports = likelihood(channel)
    law, middle, half = channel._law(1), 0.8, 0.7
    for i, n in enumerate(NUMBER):

        def density(time, i=i, n=n):
            u = np.clip((n / time - middle) / half, -1, 1)
            return law.density(reports.reports[[i], 0], np.array([u]), np.zeros(1, np.int64))[0, 0]

        for theta in (0.2, 0.6, 2.0):
            ends = stats.gamma(n, scale=1 / theta).ppf([1e-12, 1 - 1e-12])
            time = np.linspace(*ends, 200_001)
            heights = [density(t) for t in time[::50]]
            expected = integrate.simpson(
                np.array(heights) * stats.gamma(n, scale=1 / theta).pdf(time[::50]), x=time[::50]
            )
            found = np.exp(reports.take(np.array([i])).logpdf(np.array([[theta]])))[0, 0]
            assert found == pytest.approx(expected, rel=5e-3, abs=1e-6)


def test_reports_of_a_gamma_population_have_the_density_of_an_integral():
    reports = likelihood(Laplace(3.0, RANGE))
    mean, variance = 0.7, 0.2
    population = stats.gamma(mean**2 / variance, scale=variance / mean)
    theta = population.ppf((np.arange(4000) + 0.5) / 4000)
    expected = np.log(np.exp(reports.logpdf(theta[:, None])).mean(axis=1))
    found = reports.marginal(np.array([mean]), np.array([variance]))
    np.testing.assert_allclose(found, expected, atol=1e-4)  # of the 4,000 points
    point = reports.marginal(np.array([mean]), np.zeros(1))
    np.testing.assert_allclose(point, reports.logpdf(np.array([[mean]]))[:, 0], rtol=1e-12)
