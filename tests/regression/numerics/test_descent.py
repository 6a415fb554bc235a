"""Covariances of any kind: few evaluations where they are singular, and none that is better."""

import numpy as np
import pytest
from scipy.optimize import minimize

from ebfed.kernels import bounded_entries, covariance_root
from ebfed.regression.numerics.descent import entries_of
from ebfed.regression.numerics.mixed_model import Problem
from ebfed.regression.numerics.nested_model import NestedProblem
from ebfed.tables.clients import Clients
from ebfed.tables.factors import Factors


def simulate(spreads, parent, rows, seed):
    """Design, labels of groups and responses; `spreads` are roots of T of each level."""
    rng = np.random.default_rng(seed)
    n = rng.integers(3, 2 * rows - 2, len(parent))
    groups = np.repeat(np.arange(len(parent)), n)
    X = rng.normal(size=(len(groups), len(spreads[0]))) + 0.5
    X[:, 0] = 1.0
    theta = 1 + rng.normal(size=(len(parent), spreads[-1].shape[1])) @ spreads[-1].T
    if len(spreads) > 1:
        above = rng.normal(size=(parent.max() + 1, spreads[0].shape[1])) @ spreads[0].T
        theta += above[parent]
    return X, groups, (X * theta[groups]).sum(axis=1) + rng.normal(size=len(groups))


def problem_of(X, groups, y, parent, q, levels, method, intercept=True):
    rows = Factors.of(Clients.from_rows(X, groups, y)).rows
    if levels == 1:
        return Problem(rows, len(X), np.arange(q), "full", method, intercept)
    varying = [np.arange(q)] * 2
    return NestedProblem(rows, [parent], len(X), varying, "full", method, intercept)


def nearly_singular(levels, method):
    """Coefficients that all but determine one another: five of one level, or two of each."""
    rng = np.random.default_rng(3)
    q, n_parents = (5, 300) if levels == 1 else (2, 150)
    parent = np.repeat(np.arange(n_parents), 1 if levels == 1 else 4)
    spreads = []
    for size in (1.0, 0.7)[:levels]:
        ahead = rng.normal(size=(q, 1))
        spreads.append(size * np.hstack([ahead, 0.01 * np.eye(q)]))
    X, groups, y = simulate(spreads, parent, 6, seed=5)
    return problem_of(X, groups, y, parent, q, levels, method)


def least(problem, starts):
    """The least that another optimiser finds, over the entries of a lower triangular root."""
    q = len(problem.varying)
    places = np.zeros((q, q), bool)
    for block in problem.blocks:
        places[block, block] = np.tri(block.stop - block.start, dtype=bool)

    def criterion(free):
        root = np.zeros((q, q))
        root[places] = free
        profile = problem.whiten(root)
        return problem.value(profile), (2 * problem.slope(profile) @ root)[places]

    options = {"maxiter": 2000, "maxfun": 4000, "ftol": 1e-15, "gtol": 1e-8}
    found = [
        minimize(criterion, start, jac=True, method="L-BFGS-B", options=options)
        for start in starts(np.random.default_rng(0), int(places.sum()))
    ]
    return min(each.fun for each in found)


@pytest.mark.parametrize("method", ["reml", "ml"])
@pytest.mark.parametrize("levels", [1, 2])
def test_singular_covariances_take_few_evaluations(levels, method, monkeypatch):
    """They were 43 to 113 when the entries of a root were sought; now they are 11 to 13."""
    problem, asked = nearly_singular(levels, method), []
    weigh = problem.weigh
    monkeypatch.setattr(problem, "weigh", lambda root: asked.append(1) or weigh(root))
    root, path = problem.minimise()
    assert len(asked) <= 25
    assert problem.converged
    assert path == sorted(path, reverse=True)
    value = problem.value(problem.whiten(root))
    best = least(problem, lambda rng, k: rng.normal(size=(3, k)) * [[0.3], [1.0], [3.0]])
    assert value <= best + 1e-6
    assert value == pytest.approx(best, abs=1e-2)


@pytest.mark.parametrize("levels", [1, 2])
def test_curvature_is_that_of_dense_matrices(levels):
    rng = np.random.default_rng(2)
    parent = np.repeat(np.arange(8), 1 if levels == 1 else 3)
    spreads = [rng.normal(size=(2, 2)) for _ in range(levels)]
    X, groups, y = simulate(spreads, parent, 4, seed=1)
    problem = problem_of(X, groups, y, parent, 2, levels, "ml", intercept=False)
    root = np.zeros((2 * levels,) * 2)
    for block in problem.blocks:
        root[block, block] = rng.normal(size=(2, 2))
    problem.whiten(root)
    labels = [parent[groups], groups][2 - levels :]
    V, moves, kept = np.eye(len(X)), [], []
    for block, label in zip(problem.blocks, labels, strict=True):
        Z = X / problem.own_units[block]
        same = np.equal.outer(label, label)
        V += same * (Z @ root[block, block] @ root[block, block].T @ Z.T)
        outer = [np.outer(Z[:, a], Z[:, b]) for a in range(2) for b in range(2)]
        moves += [same * (each + each.T) / 2 for each in outer]
        kept += [same] * 4
    P = np.linalg.inv(V)
    # of a level, what different groups have in common is left out
    expected = np.zeros((len(moves),) * 2)
    for j, k in np.ndindex(expected.shape):
        between = P * kept[j] if kept[j] is kept[k] else P
        expected[j, k] = np.trace(between @ moves[j] @ between @ moves[k])
    traces = np.array([np.trace(P @ A) for A in moves])
    expected -= np.outer(traces, traces) / len(X)
    swap = np.concatenate([4 * level + np.array([0, 2, 1, 3]) for level in range(levels)])
    found = problem.whole_curvature()
    found = (found + found[swap]) / 2  # along symmetric moves
    np.testing.assert_allclose((found + found[:, swap]) / 2, expected, rtol=1e-8, atol=1e-9)


def test_the_least_of_a_quadratic_has_no_negative_eigenvalues():
    """Matrix and slope at the least are positive semidefinite, and their product is zero."""
    places, ends = entries_of([slice(0, 3), slice(3, 5)])
    rows, columns = places

    def matrix(entries):
        found = np.zeros((5, 5))
        found[rows, columns] = entries
        return (found + found.T) / 2

    zeros = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        K = rng.normal(size=(30, 5, 4))
        K = (K @ K.swapaxes(1, 2)) / 30
        bends = (K[:, rows[:, None], rows] * K[:, columns[:, None], columns]).sum(axis=0)
        slope = matrix(rng.normal(size=13))[rows, columns]
        root = covariance_root(rng.normal(size=13), places, ends)
        here = (root @ root.T)[rows, columns]
        found = bounded_entries(here, slope, bends, places, ends, 1e-10)
        X, S = matrix(found), matrix(slope + bends @ (found - here))
        assert np.linalg.eigvalsh(X)[0] > -1e-12
        assert np.linalg.eigvalsh(S)[0] > -1e-3 * np.abs(slope).max()
        assert np.abs(X @ S).max() < 1e-3 * np.abs(slope).max() * np.abs(found).max()
        zeros += np.linalg.matrix_rank(X, tol=1e-10) < 5
    assert zeros > 10
