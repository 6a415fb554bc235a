"""Factors: blocks of compressed regressions."""

import numpy as np
import pytest

from ebfed.tables.clients import Clients, Summary
from ebfed.tables.factors import Factors

RNG = np.random.default_rng(3)


def clients_of(sizes, d=2, labels=None):
    groups = np.repeat(np.arange(len(sizes)) if labels is None else labels, sizes)
    n = len(groups)
    return Clients.from_rows(RNG.normal(size=(n, d)), groups, RNG.normal(size=n))


def products(factors):
    return np.einsum("mri,mrj->mij", factors.rows, factors.rows)


def test_blocks_are_cut_and_padded():
    factors = Factors.of(clients_of([5, 1, 9, 2]))
    assert factors.n.tolist() == [5, 1, 9, 2]
    assert factors.n_features == 2
    parts = factors.split(3)
    np.testing.assert_array_equal(np.concatenate([part.rows for part in parts]), factors.rows)
    assert factors.padded(6).shape == (4, 6, 3)
    assert not factors.padded(6)[:, 3:].any()


def test_merging_is_compressing_the_union():
    first, second = clients_of([5, 1, 9], labels=[0, 1, 2]), clients_of([2, 7], labels=[2, 5])
    both = Factors.of(first).merge(Factors.of(second))
    whole = Factors.of(first.merge(second))
    assert both.ids.tolist() == [0, 1, 2, 5]
    assert both.n.tolist() == whole.n.tolist() == [5, 1, 11, 7]
    np.testing.assert_allclose(products(both), products(whole), rtol=1e-12, atol=1e-12)


def test_clients_are_taken_and_merged():
    clients = clients_of([3, 1, 2, 4])
    taken = clients.take(np.array([3, 0]))
    assert taken.n.tolist() == [4, 3]
    np.testing.assert_array_equal(taken.X[:4], clients.X[6:])
    np.testing.assert_array_equal(taken.y[4:], clients.y[:3])
    again = taken.merge(clients.take(np.array([2])))
    assert again.ids.tolist() == [0, 2, 3]
    assert again.n.tolist() == [3, 2, 4]


def test_moments_of_columns_of_all_sizes_keep_their_digits():
    clients = clients_of([5, 1, 9, 2, 40], d=3)
    sizes = np.array([1e-12, 1.0, 1e12])
    apart = Clients(clients.ids, clients.indptr, clients.X * sizes, clients.y * 1e8)
    rows = np.column_stack([apart.X, apart.y])
    owner = np.repeat(apart.ids, np.diff(apart.indptr))
    n, means, scatter = [], [], []
    for each in apart.ids:
        own = rows[owner == each]
        n.append(len(own))
        means.append(own.mean(axis=0))
        scatter.append((own - means[-1]).T @ (own - means[-1]))
    moments = Summary(apart.ids, np.array(n), np.array(means), np.array(scatter))
    found = products(Factors.from_moments(moments, intercept=False))
    one = np.array([False, False, True, False, True])
    alone = moments.take(one)
    np.testing.assert_allclose(
        products(Factors.from_moments(alone, intercept=False)), found[one], rtol=1e-13
    )
    over = 1 / np.append(sizes, 1e8)
    wanted = products(Factors.of(apart)) * over[:, None] * over
    np.testing.assert_allclose(found * over[:, None] * over, wanted, rtol=0, atol=1e-13 * 40)
    small = Summary(apart.ids, np.array(n), np.array(means) * 1e-200, np.array(scatter) * 0)
    with pytest.raises(ValueError, match="all smaller than"):
        Factors.from_moments(small, intercept=True)


@pytest.mark.parametrize("dependent", [False, True])
def test_moments_of_dependent_and_constant_columns_are_kept(dependent):
    rows = RNG.normal(size=(3, 12, 4))
    rows[1, :, 1] = 2.0  # constant in a group
    if dependent:
        rows[2, :, 2] = rows[2, :, 0] - 3.0 * rows[2, :, 1]
    means = rows.mean(axis=1)
    rest = rows - means[:, None]
    scatter = rest.swapaxes(1, 2) @ rest
    moments = Summary(np.arange(3), np.full(3, 12), means, scatter)
    found = products(Factors.from_moments(moments, intercept=False))
    np.testing.assert_allclose(found, rows.swapaxes(1, 2) @ rows, rtol=1e-12, atol=1e-12)


def test_bad_rows():
    clients = clients_of([3, 2])
    with pytest.raises(ValueError, match="y is missing"):
        Factors.of(Clients(clients.ids, clients.indptr, clients.X))
    with pytest.raises(ValueError, match="must not be larger"):
        Factors.of(Clients(clients.ids, clients.indptr, clients.X * 1e100, clients.y))
    with pytest.raises(ValueError, match="cannot merge"):
        Factors.of(clients).merge(Factors.of(clients_of([3], d=4)))
