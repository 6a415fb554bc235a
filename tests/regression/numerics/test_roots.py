"""Curvature in the entries of a root, against that in its squares."""

import numpy as np

from ebfed.regression.numerics.roots import DiagonalRoot, raised_inverse

RNG = np.random.default_rng(4)


def test_a_metric_inverts_the_curvature():
    root = np.array([1.0, 1.0, 2.0])
    half = RNG.normal(size=(3, 8))
    curvature = half @ half.T + 5 * np.eye(3)
    whole = 4 * np.outer(root, root) * curvature
    found = DiagonalRoot([1, 1, 1]).metric(root, curvature)
    np.testing.assert_allclose(found, np.linalg.inv(whole), rtol=1e-10, atol=1e-14)
    joined = np.array([[1, 1, 0], [0, 0, 1]])
    found = DiagonalRoot([2, 1]).metric(root, curvature)
    np.testing.assert_allclose(found, np.linalg.inv(joined @ whole @ joined.T), rtol=1e-10)


def test_a_root_of_zero_has_a_curvature():
    found = DiagonalRoot([1, 1]).metric(np.array([1.0, 0.0]), np.eye(2))
    assert np.linalg.eigvalsh(found).min() > 0
    assert np.isfinite(found).all()


def test_small_eigenvalues_are_raised():
    np.testing.assert_allclose(raised_inverse(np.diag([2.0, 0.0]), 0.1), np.diag([0.5, 5.0]))
