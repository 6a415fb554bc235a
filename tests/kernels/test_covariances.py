"""The kernel of covariances against projections."""

import numpy as np
import pytest

from ebfed.kernels import covariance_step, least_covariance, nearest_root, root_within


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


NO_TURNS = np.zeros((0, 2, 5, 5))


def blocks_of(ends):
    """Places of the entries of blocks with these ends."""
    starts = [0, *ends[:-1]]
    pairs = zip(starts, ends, strict=True)
    places = [a + np.indices((b - a, b - a)).reshape(2, -1) for a, b in pairs]
    return (*np.concatenate(places, axis=1), np.array(ends))


def matrix_of(entries, rows, columns, ends):
    matrix = np.zeros((ends[-1], ends[-1]))
    matrix[rows, columns] = entries
    return (matrix + matrix.T) / 2


def test_nearest_root_of_blocks():
    space = blocks_of([3, 5])
    entries = np.random.default_rng(1).normal(size=13)
    root, matrix = nearest_root(entries, *space, 5), matrix_of(entries, *space)
    values, vectors = np.linalg.eigh(matrix)
    np.testing.assert_allclose(
        root @ root.T, (vectors * np.maximum(values, 0)) @ vectors.T, atol=1e-12
    )


def test_a_step_leads_to_the_least_without_negative_eigenvalues():
    """Matrix and slope at the least are positive semidefinite, and their product is zero."""
    space, zeros = blocks_of([3, 5]), 0
    rows, columns, _ = space
    for seed in range(20):
        rng = np.random.default_rng(seed)
        K = rng.normal(size=(30, 5, 4))
        K = (K @ K.swapaxes(1, 2)) / 30
        bends = (K[:, rows[:, None], rows] * K[:, columns[:, None], columns]).sum(axis=0)
        slope = matrix_of(rng.normal(size=13), *space)
        root = nearest_root(rng.normal(size=13), *space, 5)
        here, step, inverse, fall = covariance_step(root, slope, bends, NO_TURNS, 1e-10, *space)
        np.testing.assert_allclose(
            inverse.T @ matrix_of(here, *space) @ inverse, root @ root.T, atol=1e-12
        )
        X = inverse.T @ matrix_of(here + step, *space) @ inverse
        moved = (X - root @ root.T)[rows, columns]
        S = matrix_of(slope[rows, columns] + bends @ moved, *space)
        assert np.isclose(fall, -slope[rows, columns] @ moved)
        assert np.linalg.eigvalsh(X)[0] > -1e-12
        assert np.linalg.eigvalsh(S)[0] > -1e-3 * np.abs(slope).max()
        assert np.abs(X @ S).max() < 1e-3 * np.abs(slope).max() * np.abs(X).max()
        zeros += np.linalg.matrix_rank(X, tol=1e-10) < 5
    assert zeros > 10


def test_the_curvature_along_a_step_is_what_the_slope_turned_by():
    """Where it is not far from the expected one: a step in T by the corrected curvature."""
    space, rng = blocks_of([2]), np.random.default_rng(4)
    rows, columns, _ = space
    moved, bends = np.array([[0.1, 0.02], [0.02, 0.3]]), 3 * np.eye(4)
    step, root = moved[rows, columns], 10 * np.eye(2)
    slope = matrix_of(rng.normal(size=4), *space)
    for factor, corrected in ((1.4, True), (5.0, False)):
        turned = factor * 3 * moved
        turns = np.array([[moved, turned]])
        here, by, inverse, _ = covariance_step(root, slope, bends, turns, 1e-10, *space)
        turn, along = turned[rows, columns], bends @ step
        whole = (
            bends + np.outer(turn, turn) / (step @ turn) - np.outer(along, along) / (step @ along)
        )
        expected = np.linalg.solve(whole if corrected else bends, -slope[rows, columns])
        found = (inverse.T @ matrix_of(by, *space) @ inverse)[rows, columns]
        np.testing.assert_allclose(found, expected, rtol=1e-10)
        np.testing.assert_allclose(
            root_within(here + by, inverse, 1e9, *space)
            @ root_within(here + by, inverse, 1e9, *space).T,
            root @ root.T + matrix_of(expected, *space),
            rtol=1e-10,
        )
        assert np.abs(root_within(here + by, inverse, 2.0, *space)).max() <= 2.0
