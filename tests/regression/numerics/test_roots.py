"""Curvature in the entries of a root, against traces of products of matrices."""

import numpy as np

from ebfed.regression.numerics.roots import LowerRoot

RNG = np.random.default_rng(4)


def test_newton_inverts_the_expected_curvature():
    q, n_rows = 3, 200
    inner = RNG.normal(size=(40, q, q))
    inner = inner @ inner.swapaxes(1, 2)
    root = np.tril(RNG.normal(size=(q, q))) + 2 * np.eye(q)
    places = np.tril_indices(q)
    moves = []
    for a, b in zip(*places, strict=True):
        D = np.outer(np.eye(q)[a], root[:, b])
        moves.append(D + D.T)
    along = [np.trace(inner.sum(axis=0) @ D) for D in moves]
    curvature = [[sum(np.trace(K @ D @ K @ E) for K in inner) for E in moves] for D in moves]
    curvature -= np.outer(along, along) / n_rows
    outer = np.einsum("mab,mcd->abcd", inner, inner)
    found = LowerRoot(places).newton(root, outer, inner.sum(axis=0), n_rows)
    np.testing.assert_allclose(found, np.linalg.inv(curvature), rtol=1e-8, atol=1e-12)


def test_a_column_of_zeros_has_a_curvature():
    inner = np.eye(2)[None]
    outer = np.einsum("mab,mcd->abcd", inner, inner)
    root = np.diag([1.0, 0.0])
    found = LowerRoot(np.tril_indices(2)).newton(root, outer, inner.sum(axis=0), 1000)
    assert np.linalg.eigvalsh(found).min() > 0
    assert np.isfinite(found).all()
