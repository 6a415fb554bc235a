"""Populations within populations: the likelihood, and what is left where nothing tells apart."""

import numpy as np
import pytest

from ebfed.likelihoods import Gaussian
from ebfed.priors.nested import NestedTable, nested_estimates
from ebfed.priors.variance_components import MomentTable, fit_components


@pytest.fixture
def messages():
    rng = np.random.default_rng(0)
    parents = np.repeat(np.arange(12), rng.integers(2, 9, 12))
    n = rng.integers(1, 6, len(parents))
    values = rng.normal(0, 2, 12)[parents] + rng.normal(0, 1, len(n))
    values += rng.normal(0, 1 / np.sqrt(n))
    degrees = int((n - 1).sum())
    scatter = np.array([rng.chisquare(degrees)])
    return Gaussian(values[:, None], 1 / n[:, None], scatter, degrees), parents


def test_it_is_a_table_for_each_parent(messages):
    """Tables of single parents that share their variances: another path to the same optimum."""
    likelihood, parents = messages
    apart = []
    for parent in range(12):
        own = parents == parent
        some = Gaussian(likelihood.values[own], likelihood.variances[own], np.zeros(1), 0)
        apart.append(MomentTable.of(some, 0, True))
    apart[0].scatter, apart[0].degrees = float(likelihood.scatter[0]), likelihood.degrees
    together = NestedTable.within(likelihood, parents)
    np.testing.assert_allclose(
        fit_components([together], "reml"), fit_components(apart, "reml"), rtol=1e-9
    )


def test_slopes_are_those_of_the_values(messages):
    table = NestedTable.within(*messages)

    def value(ratio):
        profile = table.profile(ratio)
        return np.array([profile.log_det, profile.quadratic, profile.log_weight])

    slopes = table.profile(0.7)
    numerical = (value(0.7 + 1e-5) - value(0.7 - 1e-5)) / 2e-5
    found = [slopes.slope_det, slopes.slope_quadratic, slopes.slope_log_weight]
    np.testing.assert_allclose(found, numerical, rtol=1e-6)
    several = table.profile(np.array([0.1, 0.7]))
    np.testing.assert_allclose(several.quadratic[1], slopes.quadratic)
    np.testing.assert_allclose(several.log_weight[1], slopes.log_weight)


def test_a_search_may_begin_near(messages):
    likelihood, parents = messages
    whole = nested_estimates(likelihood, [parents])
    again = nested_estimates(likelihood, [parents], [1.2 * each for each in whole.ratios])
    np.testing.assert_allclose(again.ratios, whole.ratios, rtol=1e-3)
    far = nested_estimates(likelihood, [parents], [1e3 * each for each in whole.ratios])
    np.testing.assert_allclose(far.ratios, whole.ratios, rtol=1e-9)


def test_only_children_have_the_estimate_of_their_parent():
    likelihood = Gaussian(np.array([[0.0], [3.0], [7.0]]), np.ones((3, 1)), np.ones(1), 6)
    found = nested_estimates(likelihood, [np.arange(3)])
    np.testing.assert_allclose(found.levels[1], found.levels[0])
    flat = nested_estimates(Gaussian(likelihood.values, np.full((3, 1), 1 / 6)), [])
    np.testing.assert_allclose(found.levels[0], flat.levels[0])


def test_parents_without_data_have_the_mean():
    values = np.array([[1.0], [3.0], [0.0], [0.0]])
    likelihood = Gaussian(values, np.array([[0.1], [0.1], [np.inf], [np.inf]]))
    found = nested_estimates(likelihood, [np.array([0, 1, 1, 2])])
    assert found.levels[0][2] == found.levels[1][3] == pytest.approx(found.centre)
    assert found.levels[1][2] == pytest.approx(found.levels[0][1])


def test_exact_values_are_kept():
    """Without noise, groups of a parent that agree show it exactly."""
    values = np.array([[1.0], [1.0], [4.0], [4.0]])
    likelihood = Gaussian(values, np.full((4, 1), 0.5), np.zeros(1), 4)
    found = nested_estimates(likelihood, [np.array([0, 0, 1, 1])])
    np.testing.assert_allclose(found.levels[0], [1.0, 4.0])
    np.testing.assert_allclose(found.levels[1], values[:, 0])
