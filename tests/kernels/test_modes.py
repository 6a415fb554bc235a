"""Modes of posteriors, searched from near and from far."""

import numpy as np
import pytest
from numba import config

from ebfed.kernels import joint_modes, laplace
from ebfed.kernels.responses import BINOMIAL, NEGATIVE_BINOMIAL, ORDINAL, POISSON

KINDS = {
    "binomial": (BINOMIAL, 40, []),
    "poisson": (POISSON, None, []),
    "negative_binomial": (NEGATIVE_BINOMIAL, None, [0.8]),
    "ordinal": (ORDINAL, None, [3.0]),
}
FARTHEST_OFF = [-900.0, -60.0, 60.0, 900.0]


def rows(name):
    """Rows of three clients, with predictors that spread by 6."""
    rng = np.random.default_rng(0)
    kind, trials, shapes = KINDS[name]
    X = 6 * np.ones((60, 1))
    offset = rng.normal(2.0, 1.0, 60) + np.repeat([-6.0, 0.0, 6.0], 20)
    weight = np.ones(60)
    y = rng.poisson(np.exp(offset)).astype(float)
    if trials:
        weight[:] = trials
        y = rng.binomial(trials, 1 / (1 + np.exp(-offset / 4))) / trials
    elif name == "ordinal":
        y = rng.integers(1, 4, 60).astype(float)
    return X, offset, y, weight, np.arange(0, 61, 20), kind, np.array(shapes)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("start", FARTHEST_OFF)
def test_modes_are_found_from_far(name, start):
    found = []
    for first in (0.0, start):
        mode, cov, evidence = np.full((3, 1), first), np.empty((3, 1, 1)), np.empty(3)
        assert laplace(*rows(name), 1e-12, 200, mode, cov, evidence) == 0
        found.append((mode, evidence))
    np.testing.assert_allclose(found[1][0], found[0][0], atol=1e-5)
    np.testing.assert_allclose(found[1][1], found[0][1], atol=1e-6)


@pytest.mark.skipif(config.DISABLE_JIT, reason="Python has no root of a negative number")
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("start", FARTHEST_OFF)
def test_modes_of_levels_are_found_from_far(name, start):
    X, offset, y, weight, ends, kind, shapes = rows(name)
    # a group of the top with three within it
    nodes = np.array([0, *ends]), np.array([-1, 0, 0, 0]), np.array([0, 1, 1, 1])
    tops, levels = np.array([0, 4]), np.array([0, 1, 2])
    found = []
    for first in (0.0, start):
        out = np.empty(60), np.empty((60, 2)), np.empty(60), np.empty((60, len(shapes)))
        mode, evidence = np.full((4, 2), first), np.empty(1)
        given = np.repeat(X, 2, axis=1), offset, y, weight, *nodes, tops, levels, kind, shapes
        assert joint_modes(*given, 200, mode, evidence, *out) == 0
        found.append(evidence)
    np.testing.assert_allclose(found[1], found[0], atol=1e-6)
