"""The kernel of covariances against projections."""

import numpy as np
import pytest

from ebfed.kernels import least_covariance


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
