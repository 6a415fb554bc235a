"""Laplace's approximation of crossed factors: against dense matrices, and other searches."""

import numpy as np
import pytest
from scipy.linalg import LinAlgError, block_diag
from scipy.optimize import minimize

from ebfed.regression.families import Responses, family_named
from ebfed.regression.numerics.crossed_laplace import CrossedLaplace
from ebfed.regression.numerics.crossed_model import CrossedSystem
from ebfed.regression.numerics.crossed_search import CrossedBlocks, maximise
from ebfed.regression.numerics.crossed_sums import CrossedDesign

FAMILIES = ["poisson", "binomial", "negative_binomial", "gamma", "ordinal"]
# Coefficients of each factor, and which of them are correlated.
SHAPES = {
    "intercepts": ((1, 1), [[(0, 1)], [(0, 1)]]),
    "slopes": ((2, 3), [[(0, 2)], [(0, 1), (1, 3)]]),
    "a slope": ((1, 2), [[(0, 1)], [(0, 1), (1, 2)]]),
}


def drawn(family, seed, shape, n=120, sizes=(12, 7)):
    """A design, columns and responses."""
    rng = np.random.default_rng(seed)
    widths, blocks = SHAPES[shape]
    codes = [rng.integers(0, size, n) for size in sizes]
    X = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    design = CrossedDesign(codes, np.array(sizes), [X[:, :p] for p in widths])
    z = X @ [0.4, 0.5, -0.2]
    for code, size, basis in zip(codes, sizes, design.bases, strict=True):
        z += np.sum(basis * rng.normal(0, 0.5, (size, basis.shape[1]))[code], axis=1)
    y = {
        "gaussian": lambda: z + rng.normal(size=n),
        "poisson": lambda: rng.poisson(np.exp(z)),
        "binomial": lambda: rng.binomial(1, 1 / (1 + np.exp(-z))),
        "negative_binomial": lambda: rng.poisson(np.exp(z) * rng.gamma(2, 0.5, n)),
        "gamma": lambda: np.exp(z) * rng.gamma(3, 1 / 3, n),
        "ordinal": lambda: 1 + (rng.logistic(z)[:, None] > [-1.0, 0.5]).sum(axis=1),
    }[family]().astype(float)
    return design, X, y, CrossedBlocks(blocks, widths), rng


def model_of(family, seed, shape):
    design, X, y, blocks, rng = drawn(family, seed, shape)
    weight = np.ones(len(y)) if family == "binomial" else rng.uniform(0.5, 2, len(y))
    rows = Responses(y, weight, 0.1 * rng.normal(size=len(y)))
    return CrossedLaplace(design, X, family_named(family), rows, blocks), rng


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_criterion_is_that_of_dense_matrices(family, shape):
    """At any parameters; the mode is found by steps with the whole matrix of second derivatives."""
    model, rng = model_of(family, 1, shape)
    point = model.start()
    point[: model.n_entries] = rng.uniform(0.2, 0.7, model.n_entries)
    design, rows = model.design, model._responses
    Z = np.hstack([each.toarray() for each in design.matrices])
    roots = model.roots(point)
    levels = zip(roots, design.sizes.tolist(), strict=True)
    Z = Z @ block_diag(*(np.kron(np.eye(m), root) for root, m in levels))
    fixed = model.columns @ model.beta(point) + rows.offset
    b, shapes = np.zeros(Z.shape[1]), model.shapes(point)
    for _ in range(50):
        value, found = model._rows(fixed + Z @ b, shapes)
        H = np.eye(len(b)) + Z.T @ (found[1][:, None] * Z)
        b += np.linalg.solve(H, Z.T @ found[0] - b)
    value, found = model._rows(fixed + Z @ b, shapes)
    H = np.eye(len(b)) + Z.T @ (found[1][:, None] * Z)
    expected = value + b @ b + np.linalg.slogdet(H)[1]
    expected -= 2 * family_named(family).base(rows, shapes)[0].sum()
    assert model.mode(point).criterion == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shape", SHAPES)
def test_slopes_are_those_of_differences(family, shape):
    """In roots, coefficients and shapes, also where a covariance is singular."""
    model, rng = model_of(family, 2, shape)
    point = model.start()
    point[: model.n_entries] = rng.uniform(0.2, 0.7, model.n_entries)
    point[model.n_entries - 1] = 0.0
    slope = model.slope(point, model.mode(point))
    for j, step in enumerate(1e-5 * np.eye(len(point))):
        up, down = (model.mode(point + s * step).criterion for s in (1, -1))
        assert slope[j] == pytest.approx((up - down) / 2e-5, rel=1e-4, abs=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gaussian", *FAMILIES])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(6))
def test_no_other_search_finds_a_lower_criterion(family, shape, seed):
    """By more than 1e-3, from four starts by quasi-Newton steps in all parameters."""
    if family == "gaussian":
        design, X, y, blocks, rng = drawn(family, seed, shape)
        sums = design.sums(np.ones(len(y)), np.column_stack([X, y]))
        least = maximise(sums, True, blocks).system.deviance
        entries, start = blocks.in_roots, np.zeros(len(blocks.in_roots))

        def criterion(point):
            roots = [np.zeros((int(p), int(p))) for p in design.widths]
            for (k, a, b), value in zip(entries, point, strict=True):
                roots[k][a, b] = value
            system = CrossedSystem(sums, roots, True)
            slopes = [2 * each @ root for each, root in zip(system.slope(), roots, strict=True)]
            return system.deviance, np.array([slopes[k][a, b] for k, a, b in entries])

    else:
        model, rng = model_of(family, seed, shape)
        fit = model.fit()
        least, start, entries = fit.mode.criterion, model.start(), model.entries
        assert fit.converged

        def criterion(point):
            try:
                mode = model.mode(point)
                return mode.criterion, model.slope(point, mode)
            except LinAlgError:
                return 1e10, np.zeros(len(point))

    for _ in range(4):
        begin = start + rng.normal(0, 0.3, len(start))
        begin[: len(entries)] = rng.normal(0, rng.choice([0.1, 0.5, 1.5]), len(entries))
        bounds = [(-5, 5)] * len(begin)  # farther out ordinal rows may be separated
        found = minimize(criterion, begin, jac=True, method="L-BFGS-B", bounds=bounds)
        assert found.fun > least - 1e-3
