"""Quadrature of clients with a rate of their own, against that of any rows and columns."""

import numpy as np
import pytest

from ebfed.kernels import laplace, quadrature_derivatives, rate_derivatives
from ebfed.kernels.responses import POISSON

RNG = np.random.default_rng(0)
# A client without rows, one without events, and some with many.
SIZES = [3, 0, 1, 5, 2, 8]
INDPTR = np.concatenate(([0], np.cumsum(SIZES)))
N = INDPTR[-1]
FRAME = np.array([[0.8, -0.3, 0.1], [0.0, 1.2, 0.4], [0.0, 0.0, 0.7]])
X = np.column_stack([np.ones(N), RNG.normal(size=(N, 2))])
MEAN = np.array([0.5, -0.4, 0.3])


def rules(*sizes):
    nodes, weights = np.zeros((2, len(sizes), max(sizes)))
    for j, size in enumerate(sizes):
        t, w = np.polynomial.hermite_e.hermegauss(size)
        nodes[j, :size], weights[j, :size] = t, np.log(w / w.sum()) + t**2 / 2
    return nodes, weights, np.array(sizes, np.int64), np.array([0.4] * (len(sizes) - 1) + [np.inf])


def outputs(d):
    m = len(SIZES)
    return np.empty(m), np.empty((m, d)), np.empty((m, d * (d + 1) // 2))


@pytest.mark.parametrize("scale", [0.3, 1.0, 40.0])
@pytest.mark.parametrize("sd", [0.0, 0.4, -1.5])
def test_derivatives_are_those_of_any_rows(scale, sd):
    counts = RNG.poisson(scale * np.exp(RNG.normal(size=N))).astype(float)
    counts[INDPTR[4] : INDPTR[5]] = 0.0
    weight, offset = RNG.uniform(0.5, 3.0, N), np.log(scale) + RNG.normal(0, 0.3, N)
    ours, mode = outputs(4), np.zeros((len(SIZES), 1))
    given = INDPTR, FRAME, MEAN, 0, sd
    assert rate_derivatives(X, counts, weight, offset, *given, *rules(15, 31), mode, *ours)
    design = X @ FRAME
    line = design[:, :1] * sd
    observed = line, design @ MEAN + offset, counts, weight, INDPTR, POISSON, np.zeros(0)
    place, cov = np.zeros((len(SIZES), 1)), np.empty((len(SIZES), 1, 1))
    laplace(*observed, 1e-12, 100, place, cov, np.empty(len(SIZES)))
    np.testing.assert_allclose(mode, place, atol=1e-5)
    general = outputs(4)
    column, factor = np.array([0, 1, 2, 0]), np.array([-1, -1, -1, 0])
    quadrature_derivatives(*observed, mode, cov, *rules(15, 31), design, column, factor, *general)
    for found, expected in zip(ours, general, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7 * scale)


def test_columns_that_vary_within_clients_are_refused():
    rows = np.ones(N), np.ones(N), np.zeros(N)
    given = INDPTR, FRAME, MEAN, 1, 0.5
    assert not rate_derivatives(X, *rows, *given, *rules(15), np.zeros((6, 1)), *outputs(4))


@pytest.mark.parametrize("start", [-900.0, 900.0])
def test_modes_are_found_from_far(start):
    counts, given = RNG.poisson(3.0, N).astype(float), (INDPTR, FRAME, MEAN, 0, 5.0)
    found = []
    for first in (0.0, start):
        mode, ours = np.full((len(SIZES), 1), first), outputs(4)
        assert rate_derivatives(
            X, counts, np.ones(N), np.zeros(N), *given, *rules(15, 31), mode, *ours
        )
        found.append((mode, *ours))
    for far, near in zip(found[1], found[0], strict=True):
        np.testing.assert_allclose(far, near, rtol=1e-6, atol=1e-6)
