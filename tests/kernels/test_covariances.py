"""Kernels of covariances against projections, and steps of searches against NumPy."""

import numpy as np
import pytest

from ebfed.kernels import (
    bounded_entries,
    covariance_root,
    least_covariance,
    quasi_newton_step,
    scoring_step,
)


@pytest.mark.parametrize("seed", range(5))
def test_least_in_euclidean_distance_is_the_projection(seed):
    """A quadratic that bends alike in all directions is least at the nearest matrix."""
    rng = np.random.default_rng(seed)
    q = 1 + seed
    matrix = rng.normal(size=(q, q))
    matrix = matrix + matrix.T - np.eye(q)
    rows, columns = np.indices((q, q)).reshape(2, -1)
    values, vectors = np.linalg.eigh(matrix)
    nearest = (vectors * np.maximum(values, 0)) @ vectors.T
    here, size = np.eye(q).ravel(), np.abs(values).max()
    given = np.eye(q * q), 1.0, size, 1e-12, rows, columns, q
    X, S = least_covariance(here, here - matrix.ravel(), *given)
    np.testing.assert_allclose(X, nearest, atol=1e-4)
    np.testing.assert_allclose(S, nearest - matrix, atol=1e-4)
    assert np.vdot(X, S) < 1e-7, "a small share of what it falls"


def test_a_minimum_is_found_again():
    """Where the search begins at a singular minimum, rounding ends it: it was a LinAlgError."""
    rows, columns = np.indices((2, 2)).reshape(2, -1)
    for angle in np.linspace(0.1, 1.5, 400):
        along, across = (
            np.array([np.cos(angle), -np.sin(angle)]),
            np.sin([angle, angle + np.pi / 2]),
        )
        least, slope = 94 * np.outer(along, along), 0.07 * np.outer(across, across)
        bends = 0.0025 * np.eye(4)
        given = bends, 0.0025, 94.0, 3.6e-12, rows, columns, 2
        X, S = least_covariance(least.ravel(), slope.ravel(), *given)
        np.testing.assert_allclose(X, least, atol=1e-9)
        np.testing.assert_allclose(S, slope, atol=1e-9)


def test_a_step_of_scoring_is_newtons_where_it_ends_inside():
    """With the curvature corrected by what the last steps have shown (Broyden 1970)."""
    rng = np.random.default_rng(1)
    rows, columns = places = np.array([[0, 1, 1, 2, 2], [0, 1, 2, 1, 2]])
    ends, root = np.array([0, 1, 3]), np.diag([2.0, 3.0, 4.0])
    bends = rng.normal(size=(5, 9))
    bends = bends @ bends.T + np.eye(5)
    swap = np.array([0, 1, 3, 2, 4])
    bends = (bends + bends[swap][:, swap]) / 2  # of symmetric matrices
    last = np.diag([2.1, 2.9, 4.0])
    slope, before = np.diag([0.1, 0.2, -0.1]), np.diag([0.4, -0.3, -0.2])
    moved = (root @ root.T - last @ last.T)[rows, columns]
    turned = (slope - before)[rows, columns]
    along, memory = bends @ moved, np.zeros((2, 2, 5))
    turned = turned * (moved @ along) / (moved @ turned)  # as much as is believed
    before = slope - np.diag(turned[[0, 1, 4]])
    whole = bends + np.outer(turned, turned) / (moved @ turned)
    whole -= np.outer(along, along) / (moved @ along)
    step = -np.linalg.solve(whole, slope[rows, columns])
    given = root, slope, last, before, memory, False, bends, places, ends
    inverse, here, sloping, curvature, ahead = scoring_step(*given)
    there = (ahead @ ahead.T)[rows, columns]
    np.testing.assert_allclose(curvature @ (there - here), -sloping, rtol=1e-9)
    bounded = bounded_entries(here, sloping, curvature, places, ends, 1e-9)
    np.testing.assert_allclose(there, bounded, rtol=1e-9, atol=1e-12)
    arrived = inverse.T @ covariance_root(bounded, places, ends)
    expected = np.zeros((3, 3))
    expected[rows, columns] = (root @ root.T)[rows, columns] + step
    np.testing.assert_allclose(arrived @ arrived.T, expected, rtol=1e-9, atol=1e-9)
    assert sloping @ (there - here) == pytest.approx(slope[rows, columns] @ step, rel=1e-9)
    np.testing.assert_allclose(memory[:, 1], [moved, turned])


@pytest.mark.parametrize("along", [1.0, -1.0])
def test_a_quasi_newton_step(along):
    rng = np.random.default_rng(2)
    half = rng.normal(size=(3, 3))
    inverse, moved, slope = half @ half.T, rng.normal(size=3), rng.normal(size=3)
    turned = along * moved + 0.1 * rng.normal(size=3)
    expected = inverse.copy()
    if along > 0:
        share = moved @ turned
        update = np.eye(3) - np.outer(moved, turned) / share
        expected = update @ inverse @ update.T + np.outer(moved, moved) / share
    step, fall = quasi_newton_step(inverse, moved, turned, slope)
    np.testing.assert_allclose(inverse, expected, rtol=1e-12)
    np.testing.assert_allclose(step, -expected @ slope, rtol=1e-12)
    assert fall == pytest.approx(slope @ expected @ slope, rel=1e-12)
