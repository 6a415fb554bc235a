"""Populations within populations: the likelihood, and what is left where nothing tells apart."""

from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize

from ebfed.likelihoods import Gaussian
from ebfed.priors.nested import fit_nested, nested_estimates
from ebfed.priors.variance_components import MomentTable, fit_components

REFERENCE = Path(__file__).parents[1] / "reference"


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


def dense(likelihood, paths, variances, noise, restricted=True):
    """-2 log-likelihood of the messages, and of the scatter within groups."""
    x, m = likelihood.values[:, 0], len(likelihood)
    covariance = np.diag(noise * likelihood.variances[:, 0])
    for level, variance in enumerate(variances):
        same = np.eye(m, dtype=bool)
        if level < paths.shape[1]:
            rows = paths[:, : level + 1]
            same = (rows[:, None] == rows[None]).all(axis=2)
        covariance += variance * same
    precision, one = np.linalg.inv(covariance), np.ones(m)
    weight = one @ precision @ one
    away = x - one @ precision @ x / weight
    value = np.linalg.slogdet(covariance)[1] + away @ precision @ away
    if likelihood.scatter is not None:
        value += likelihood.degrees * np.log(noise) + likelihood.scatter[0] / noise
    return value + (np.log(weight) if restricted else 0.0)


@pytest.mark.parametrize("method", ["reml", "ml"])
@pytest.mark.parametrize("known", [False, True], ids=["noise", "known"])
def test_variances_are_those_of_the_dense_likelihood(messages, method, known):
    """Nelder and Mead on the covariance matrix of all messages find no better variances."""
    likelihood, parents = messages
    if known:
        likelihood = likelihood.scaled(np.ones(1))
    paths, reml = parents[:, None], method == "reml"
    fit = fit_nested(likelihood, paths, method)
    best = dense(likelihood, paths, fit.variances, fit.noise, reml)

    def criterion(logs):
        noise = 1.0 if known else np.exp(logs[2])
        return dense(likelihood, paths, np.exp(logs[:2]), noise, reml)

    start = np.log([*fit.variances, fit.noise][: 3 - known]) + 0.2
    options = {"xatol": 1e-6, "fatol": 1e-10}
    found = minimize(criterion, start, method="Nelder-Mead", options=options)
    assert best <= found.fun + 1e-8
    np.testing.assert_allclose(np.exp(found.x[:2]), fit.variances, rtol=1e-4)  # its precision


def test_three_levels_are_those_of_the_dense_likelihood():
    rng = np.random.default_rng(1)
    paths = np.column_stack([np.repeat(np.arange(4), 15), np.tile(np.repeat(np.arange(5), 3), 4)])
    x = rng.normal(0, 1, 4)[paths[:, 0]] + rng.normal(0, 1, 20)[paths[:, 0] * 5 + paths[:, 1]]
    x += rng.normal(0, 1.2, 60)
    likelihood = Gaussian(x[:, None], rng.uniform(0.1, 1, (60, 1)))
    fit = fit_nested(likelihood, paths)
    best = dense(likelihood, paths, fit.variances, 1.0)
    for step in 1e-4 * np.vstack([np.eye(3), -np.eye(3)]):
        assert dense(likelihood, paths, fit.variances * np.exp(step), 1.0) > best


@pytest.mark.parametrize("ratios", [(0.01, 0.2), (0.3, 0.001), (2.0, 0.5)])
def test_slopes_are_those_of_the_values(messages, ratios):
    table, ratios = fit_nested(*within(messages)).table, np.array(ratios)
    slopes = table.profile(ratios).slope
    for slope, step in zip(slopes, 1e-6 * np.eye(2), strict=True):
        ahead, behind = (table.profile(ratios + each).value for each in (step, -step))
        np.testing.assert_allclose((ahead - behind) / 2e-6, slope, rtol=1e-5)


def test_order_and_names_of_groups_do_not_matter(messages):
    likelihood, parents = messages
    fit = fit_nested(likelihood, parents[:, None])
    order = np.random.default_rng(2).permutation(len(parents))
    again = fit_nested(likelihood.take(order), 100 - 7 * parents[order][:, None])
    np.testing.assert_allclose(again.variances, fit.variances, rtol=1e-9)
    np.testing.assert_allclose(again.noise, fit.noise, rtol=1e-9)


def test_one_parent_leaves_one_level(messages):
    """Its variance is not identified; the rest is the fit of one level."""
    likelihood, parents = messages
    fit = fit_nested(likelihood, np.zeros((len(parents), 1), int))
    ratio, scale = fit_components([MomentTable.of(likelihood, 0, True)], "reml")
    np.testing.assert_allclose(fit.variances, [0.0, ratio * scale], rtol=1e-6)
    np.testing.assert_allclose(fit.noise, scale, rtol=1e-9)


def test_parents_of_one_group_have_its_variance(messages):
    likelihood, parents = messages
    fit = fit_nested(likelihood, np.arange(len(parents))[:, None])
    ratio, scale = fit_components([MomentTable.of(likelihood, 0, True)], "reml")
    np.testing.assert_allclose(fit.variances, [ratio * scale, 0.0], rtol=1e-6)


def within(messages):
    likelihood, parents = messages
    return likelihood, parents[:, None]


def test_a_search_may_begin_near(messages):
    likelihood, parents = messages
    whole = nested_estimates(likelihood, [parents])
    again = nested_estimates(likelihood, [parents], [1.2 * each for each in whole.ratios])
    np.testing.assert_allclose(again.ratios, whole.ratios, rtol=1e-9)
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
