"""Kernels of groups within groups against NumPy."""

import numpy as np
import pytest

from ebfed.kernels import below, nested_products, stacked_factors
from ebfed.kernels.factors import BATCH

RNG = np.random.default_rng(0)


def groups_and_owners(n=21, q=2, p=3, k=2):
    """Effects and rows of groups, what they belong to, and symmetric and other figures of that."""
    left, right = np.zeros((q, 4, 2 * BATCH)), np.zeros((p, 4, 2 * BATCH))
    left[:, :, :n], right[:, :, :n] = RNG.normal(size=(q, 4, n)), RNG.normal(size=(p, 4, n))
    middle = RNG.normal(size=(5, p, p))
    figures = middle + middle.swapaxes(1, 2), RNG.normal(size=(5, p, k))
    B = np.einsum("qin,kin->nqk", left, right)[:n]
    K = np.einsum("qin,kin->nqk", left, left)[:n]
    return (left, right, RNG.integers(0, 5, n)), figures, B, K


@pytest.mark.parametrize("k", [0, 2])
def test_nested_products(k):
    groups, (middle, right), B, K = groups_and_owners(k=1 + k)
    owner = groups[2]
    each = K - B @ middle[owner] @ B.swapaxes(1, 2)
    along = B @ right[owner]
    left, squares, scores, crossed = nested_products(*groups, middle, right)
    np.testing.assert_allclose(left, each.sum(axis=0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(squares, (each**2).sum(axis=0), rtol=1e-12)
    first = along[:, :, 0]
    np.testing.assert_allclose(scores, first.T @ first, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(crossed, (along[:, :, 1:] ** 2).sum(axis=0), rtol=1e-12)


@pytest.mark.parametrize("k", [0, 2])
def test_below(k):
    groups, (middle, right), B, K = groups_and_owners(k=k)
    maps, root = RNG.normal(size=(3, 2)), RNG.normal(size=(2, 2))
    T, owner = root @ root.T, groups[2]
    E = np.eye(3) - maps @ T @ B
    inner, moved = below(*groups, maps, T, middle, right)
    expected = E @ middle[owner] @ E.swapaxes(1, 2) + maps @ (T - T @ K @ T) @ maps.T
    np.testing.assert_allclose(inner, expected, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(moved, E @ right[owner], rtol=1e-10, atol=1e-10)


def test_stacked_factors():
    n, n_parents = 21, 5
    white = np.zeros((3, 2, 2 * BATCH))
    white[:, :, :n] = RNG.normal(size=(3, 2, n))
    owner = np.arange(n) % n_parents
    of_rows = np.tile(np.append(owner, np.full(2 * BATCH - n, n_parents)), 2)
    ends = np.append(0, np.cumsum(2 * np.bincount(owner)))
    factors = stacked_factors(white, np.argsort(of_rows, kind="stable"), ends)
    assert factors.shape == (3, 3, BATCH)
    np.testing.assert_array_equal(factors[:, :, n_parents:], 0)
    for g in range(n_parents):
        R, rows = factors[:, :, g].T, white[:, :, :n][:, :, owner == g].reshape(3, -1)
        np.testing.assert_array_equal(R, np.triu(R))
        np.testing.assert_allclose(R.T @ R, rows @ rows.T, rtol=1e-12)
