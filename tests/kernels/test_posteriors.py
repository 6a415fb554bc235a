"""Kernels of mixtures against NumPy and SciPy; run also with NUMBA_DISABLE_JIT=1."""

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import erfcx as scipy_erfcx
from scipy.special import gammaln
from scipy.stats import norm, truncnorm
from scipy.stats import t as student

from ebfed.kernels import (
    bell_shapes,
    gaussian_tally,
    mixture_below,
    mixture_quantiles,
    pick_members,
    point_and_slab,
)
from ebfed.kernels.posteriors import erfcx
from ebfed.priors.mixture_posterior import Components
from ebfed.priors.symmetric import LaplaceSlab, NormalSlab

# without compilation NumPy says aloud what the compiled code does on purpose: underflow to zero
pytestmark = pytest.mark.filterwarnings("ignore:(overflow|divide by zero) encountered")


def test_erfcx():
    at = np.linspace(-5, 60, 500)
    # exp(y**2) carries the rounding of y**2 <= 100, relative 1e-14
    np.testing.assert_allclose([erfcx(y) for y in at], scipy_erfcx(at), rtol=1e-13)


@pytest.mark.parametrize(
    "nodes",
    [
        np.linspace(-5, 6, 90),
        np.linspace(-5, 6, 600),
        np.sort(np.random.default_rng(1).normal(size=40)),
        np.unique(np.append(np.linspace(-5, 6, 50), np.linspace(0, 1e-3, 40))),
        np.array([0.25]),
        np.array([-1.0, 0.25]),
        np.array([]),
    ],
    ids=["even", "many", "uneven", "in heaps", "one", "two", "none"],
)
def test_gaussian_tally(nodes):
    rng = np.random.default_rng(0)
    masses, values, errors = rng.exponential(size=50), rng.normal(size=50), rng.uniform(0.1, 2, 50)
    reference = masses @ np.exp(-0.5 * ((values[:, None] - nodes) / errors[:, None]) ** 2)
    # terms below 1e-16 are left out; recurrences of 16 steps round 16**2 / 2 times
    np.testing.assert_allclose(
        gaussian_tally(masses, values, errors, nodes), reference, rtol=1e-12, atol=1e-13
    )


def test_pick_members():
    rng = np.random.default_rng(0)
    likelihoods, weights, uniforms = rng.random((300, 7)), rng.random(7), rng.random(900)
    rows = np.append(rng.integers(300, size=600), np.repeat(np.arange(100), 3))
    likelihoods[:, 2] = 0.0  # nobody is in a component that is impossible
    below = np.cumsum(likelihoods[rows] * weights, axis=1)
    picked = (uniforms[:, None] * below[:, -1:] >= below).sum(axis=1)
    columns = np.ascontiguousarray(likelihoods.T)
    np.testing.assert_array_equal(pick_members(columns, weights, rows, uniforms), picked)
    assert 2 not in picked


@pytest.mark.parametrize("many", [3, 10_000])
def test_bell_shapes(many):
    rng = np.random.default_rng(0)
    numbers, shapes = rng.integers(many, size=9) * rng.integers(2, size=9), rng.random(9)
    tried, gain = bell_shapes(numbers, shapes, 0.3, 0.2, 7.0, 4.0, 0.2)
    bell = student.pdf((np.arange(9) + 0.5) / 9, 4, 0.3, 0.2)
    np.testing.assert_allclose(tried, 7 * (0.8 * bell / bell.sum() + 0.2 / 9), rtol=1e-13)
    by_shapes = [(gammaln(each + numbers) - gammaln(each)).sum() for each in (tried, shapes)]
    # rounding of log-gamma, and of as many factors as there are members
    assert gain == pytest.approx(by_shapes[0] - by_shapes[1], rel=1e-10)


def slab_log_likelihood(slab, x, s2, weight, scale, mode):
    u = x - mode
    spike, blurred = -(u**2) / (2 * s2), slab.log_blurred(u, s2, scale)
    return np.logaddexp(np.log1p(-weight) + spike, np.log(weight) + blurred).sum()


@pytest.mark.parametrize("slab", [NormalSlab, LaplaceSlab])
@pytest.mark.parametrize("point", [(0.4, 1.3, 0.2), (0.9, 0.05, -1.0), (0.01, 20.0, 0.0)])
def test_slab_and_its_derivatives(slab, point):
    rng = np.random.default_rng(1)
    x, s2 = np.append(rng.normal(0, 3, 40), [40.0, -40.0]), rng.uniform(0.2, 2, 42)

    def value(weight, log_scale, mode):
        return slab_log_likelihood(slab, x, s2, weight, np.exp(log_scale), mode)

    def kernel_at(p):
        return point_and_slab(x, s2, p[0], np.exp(p[1]), p[2], slab is LaplaceSlab)

    at = np.array([point[0], np.log(point[1]), point[2]])
    figures = kernel_at(at)
    assert figures[0] == pytest.approx(value(*at), rel=1e-12)
    steps = 1e-6 * np.eye(3)
    # central differences: relative error of 1e-6 or so
    slope = [(value(*(at + h)) - value(*(at - h))) / 2e-6 for h in steps]
    np.testing.assert_allclose(figures[1:4], slope, rtol=1e-5, atol=1e-4)
    bend = np.array([(kernel_at(at + h) - kernel_at(at - h))[1:4] / 2e-6 for h in steps])
    np.testing.assert_allclose(
        figures[4:], bend[np.triu_indices(3)], rtol=1e-4, atol=1e-6 * np.abs(bend).max()
    )


# a point at 0; a normal; the two half-lines of a Laplace, one of them deep in its tail
SIDES = np.array([0, 0, 1, -1])
WEIGHTS = np.array([[0.3, 0.0], [0.2, 0.5], [0.4, 0.3], [0.1, 0.2]])
ANCHORS = np.array([[0.0, 0.0], [1.0, -2.0], [0.0, 0.0], [0.0, 0.0]])
SCALES = np.array([[0.0, 0.0], [0.5, 1.0], [2.0, 0.1], [2.0, 0.1]])
STARTS = np.array([[0.0, 0.0], [0.0, 0.0], [-1.5, 30.0], [2.5, -8.0]])
MIXTURES = Components(WEIGHTS, ANCHORS, SCALES, STARTS, SIDES)


def cdf(t, i):
    total = WEIGHTS[0, i] * (t >= 0) + WEIGHTS[1, i] * norm.cdf(t, ANCHORS[1, i], SCALES[1, i])
    for k in (2, 3):
        start, scale, side = STARTS[k, i], SCALES[k, i], SIDES[k]
        excess = truncnorm(start, np.inf, loc=-start)
        part = excess.cdf(t / scale) if side > 0 else excess.sf(-t / scale)
        total = total + WEIGHTS[k, i] * part
    return total


@pytest.mark.parametrize("t", [-3.0, -0.2, -1e-3, 0.0, 1e-3, 0.4, 2.0])
def test_mixture_below(t):
    np.testing.assert_allclose(
        mixture_below(np.full(2, t), *MIXTURES.arrays()), [cdf(t, 0), cdf(t, 1)], atol=1e-12
    )


@pytest.mark.parametrize("q", [1e-6, 0.02, 0.3, 0.5])
def test_mixture_quantiles(q):
    mean, variance = MIXTURES.moments()
    found = mixture_quantiles(q, mean, np.sqrt(variance), *MIXTURES.arrays())
    for i, value in enumerate(found):
        if cdf(-1e-12, i) < q <= cdf(0.0, i):  # in the jump
            assert value == 0.0
        else:
            assert value == pytest.approx(
                brentq(lambda t, i=i: cdf(t, i) - q, -50, 50, xtol=1e-14), abs=1e-10
            )
