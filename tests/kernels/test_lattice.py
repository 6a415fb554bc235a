"""Interpolation between nodes of cells, against polynomials, and sums by its transpose."""

import numpy as np

from ebfed.kernels import lattice_errors, lattice_sums, lattice_values

ORDER = 4
UNIT = -np.cos((np.arange(ORDER) + 0.5) * np.pi / ORDER)
NODES = np.array([[UNIT, UNIT + 2], [np.array([1.0, 3.0, 0, 0]), UNIT], [UNIT, UNIT]])
SIZES = np.array([[4, 4], [2, 4], [4, 4]])
FIRST, WHICH = np.array([0, 32, -1]), np.array([[0, 1, 0], [0, 1, 0], [0, 0, 0]])


def factors():
    found = np.ones_like(NODES)
    for axis, cell in np.ndindex(SIZES.shape):
        own = NODES[axis, cell, : SIZES[axis, cell]]
        gaps = own[:, None] - own + np.eye(len(own))
        found[axis, cell, : len(own)] = 1 / gaps.prod(axis=1)
    return found


def places():
    """Nodes of two cells, and a point that is a node itself."""
    own = [
        np.stack(np.meshgrid(*parts, indexing="ij"), axis=-1).reshape(-1, 3)
        for parts in ((UNIT, NODES[1, 0, :2], UNIT), (UNIT + 2, UNIT, UNIT))
    ]
    return np.concatenate([*own, [[9.0, 9.0, 9.0]]])


def points():
    rng = np.random.default_rng(0)
    first = np.column_stack(
        [rng.uniform(-1, 1, 9), rng.choice([1.0, 3.0], 9), rng.uniform(-1, 1, 9)]
    )
    second = rng.uniform(-1, 1, (8, 3)) + np.array([2, 0, 0])
    at = np.concatenate([first, second, [[9.0, 9.0, 9.0], [UNIT[1], 3.0, UNIT[2]]]])
    cells = np.array([0] * 9 + [1] * 8 + [2, 0])
    place = np.where(cells == 2, len(places()) - 1, -1)
    return at, (place, cells, FIRST, np.ascontiguousarray(at.T), WHICH, NODES, factors(), SIZES)


def polynomial(at):
    return at[:, 0] ** 3 * at[:, 2] ** 2 + at[:, 1] * at[:, 2] ** 3 - 2 * at[:, 0] * at[:, 1] + 1


def test_polynomials_are_interpolated_exactly():
    at, stencil = points()
    figures = np.column_stack([polynomial(places()), places()[:, 1]])
    found = lattice_values(figures, *stencil)
    np.testing.assert_allclose(found, np.column_stack([polynomial(at), at[:, 1]]), atol=1e-12)


def test_sums_are_those_of_interpolated_figures():
    at, stencil = points()
    weights, figures = np.random.default_rng(1).normal(size=(2, len(places())))
    weights = weights[: len(at)]
    found = lattice_sums(weights, *stencil, len(places()))
    expected = weights @ lattice_values(figures[:, None], *stencil)[:, 0]
    np.testing.assert_allclose(found @ figures, expected, rtol=1e-12)


def test_errors_are_of_the_size_of_the_next_coefficients():
    """With ``exp(theta)`` they fall geometrically; what is a polynomial leaves none out."""
    degrees = ORDER - np.arange(1, 5)
    own = 2 / ORDER * np.cos(degrees[:, None] * np.arccos(UNIT))
    ends = np.zeros((3, 2, 4, ORDER))
    ends[0] = ends[2] = ends[1, 1] = own
    at, stencil = points()
    figures = np.exp(places()[:, 2])
    errors = lattice_errors(np.array([figures, 0 * figures]), FIRST, WHICH, SIZES, ends)
    missed = np.abs(lattice_values(figures[:, None], *stencil)[:, 0] - np.exp(at[:, 2]))
    assert missed[:17].max() < errors[:2, 0].max() < 20 * missed[:17].max()
    assert not errors[2].any()
    assert not errors[:, 1].any()
