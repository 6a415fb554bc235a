"""Kernels of multinomial logistic regression against NumPy."""

import itertools

import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from ebfed.kernels import laplace, laplace_softmax, softmax_normal
from ebfed.kernels.responses import BINOMIAL


def rows(sizes, p, c, seed=0):
    """Rows of classes 0 to c, and a population."""
    rng = np.random.default_rng(seed)
    indptr = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    X = rng.normal(size=(indptr[-1], p))
    centre, root = rng.normal(size=(c, p)), rng.uniform(0.3, 1.5, (c, p))
    return X, rng.integers(c + 1, size=len(X)), indptr, centre, root


def found(X, codes, indptr, centre, root):
    n, q = len(indptr) - 1, centre.size
    out = np.zeros((n, q)), np.empty((n, q, q)), np.empty((n, q)), np.empty(n)
    assert laplace_softmax(X, codes, indptr, centre, root, 1e-15, 100, *out) == 0
    return out


def curvature(X, centre, root, eta):
    """Minus the second derivative of the log-posterior; and log-probabilities."""
    logits = X @ (centre + root * eta.reshape(centre.shape)).T
    logits = np.column_stack([np.zeros(len(X)), logits])
    P, Z = softmax(logits, axis=1)[:, 1:], X[:, None] * root
    W = P[:, :, None] * np.eye(len(centre)) - P[:, :, None] * P[:, None]
    H = np.einsum("naj,nab,nbk->ajbk", Z, W, Z).reshape(eta.size, -1)
    return np.eye(eta.size) + H, log_softmax(logits, axis=1)


def test_laplace_is_mode_curvature_and_skewness():
    X, codes, indptr, centre, root = rows([0, 1, 6, 30], 2, 3)
    modes, V, shifts, evidence = found(X, codes, indptr, centre, root)
    for i, (first, last) in enumerate(itertools.pairwise(indptr)):
        A, own, mode = X[first:last], codes[first:last], modes[i]
        H, log = curvature(A, centre, root, mode)
        away = (own[:, None] == np.arange(1, 4)) - np.exp(log[:, 1:])
        gradient = ((away.T @ A) * root).ravel()
        np.testing.assert_allclose(gradient, mode, atol=1e-8)
        np.testing.assert_allclose(V[i], np.linalg.inv(H), atol=1e-10)
        height = log[np.arange(len(own)), own].sum() - 0.5 * mode @ mode
        assert evidence[i] == pytest.approx(height - 0.5 * np.linalg.slogdet(H)[1], abs=1e-10)
        slope = [
            (
                np.linalg.slogdet(curvature(A, centre, root, mode - step)[0])[1]
                - np.linalg.slogdet(curvature(A, centre, root, mode + step)[0])[1]
            )
            / 4e-5
            for step in 1e-5 * np.eye(len(mode))
        ]
        np.testing.assert_allclose(shifts[i], V[i] @ slope, atol=1e-8)


def test_two_classes_are_logistic_regression():
    X, codes, indptr, centre, root = rows([0, 1, 6, 30], 3, 1)
    mode, V, _, evidence = found(X, codes, indptr, centre, root)
    other = np.zeros((4, 3)), np.empty((4, 3, 3)), np.empty(4)
    given = X * root[0], X @ centre[0], (codes == 1).astype(float), np.ones(len(X)), indptr
    laplace(*given, BINOMIAL, np.zeros(0), 1e-15, 100, *other)
    for ours, theirs in zip((mode, V, evidence), other, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_softmax_normal_is_an_average():
    rng = np.random.default_rng(0)
    mean, root, points = (
        rng.normal(size=(5, 2)),
        rng.normal(size=(5, 2, 2)),
        rng.normal(size=(9, 2)),
    )
    mean[0] = 900, -900  # exponentials overflow
    out = np.empty((5, 3))
    softmax_normal(mean, root, points, out)
    logits = mean[:, None] + np.einsum("nab,mb->nma", root, points)
    logits = np.concatenate([np.zeros((5, 9, 1)), logits], axis=2)
    np.testing.assert_allclose(out, softmax(logits, axis=2).mean(axis=1), atol=1e-14)
