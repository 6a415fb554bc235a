"""What the parameters of a population mean, and how derivatives follow."""

import numpy as np
import pytest

from ebfed.regression.numerics.quadrature_population import QuadraturePopulation

RNG = np.random.default_rng(0)
FRAME, WAYS, PLACES = RNG.normal(size=(4, 3)), RNG.normal(size=(3, 2)), np.array([0, 2])


# Whether coefficients share a variance, and the block of each.
KINDS = {"full": (False, [0, 0]), "diag": (False, [0, 1]), "spherical": (True, [0, 0])}


def population(kind, entries):
    shared, blocks = KINDS[kind]
    point = np.array([0.5, -1.0, *entries])
    return QuadraturePopulation(point, shared, FRAME, WAYS, PLACES, (2,), np.array(blocks))


@pytest.mark.parametrize(
    ("kind", "entries", "root"),
    [
        ("full", [1.0, 0.5, 2.0], [[1.0, 0.0], [0.5, 2.0]]),
        ("diag", [1.0, -2.0], [[1.0, 0.0], [0.0, -2.0]]),
        ("spherical", [1.5], [[1.5, 0.0], [0.0, 1.5]]),
    ],
)
def test_parameters(kind, entries, root):
    here = population(kind, entries)
    np.testing.assert_array_equal(here.root, root)
    mean, (seen,) = here.seen()
    np.testing.assert_allclose(mean, FRAME @ WAYS @ [0.5, -1.0])
    wide = FRAME[:, PLACES] @ root
    np.testing.assert_allclose(seen @ seen.T, wide @ wide.T)
    assert here.at_bounds() == (False, False)
    np.testing.assert_allclose(here.start(0.7).root, 0.7 * np.eye(2))
    # of a quadratic in the mean of c and the entries of the root
    rows, columns = here.entries
    d = 3 + len(rows)
    bend = RNG.normal(size=(d, d))
    bend = bend + bend.T

    def moved(point):
        there = here.at(point)
        return np.concatenate([there.mean, there.root[rows, columns]])

    score, curvature = here.chain(bend @ moved(here.point), bend)
    steps = 1e-6 * np.eye(len(here.point))
    values = [
        0.5 * (moved(p) @ bend @ moved(p) - moved(q) @ bend @ moved(q)) / 2e-6
        for p, q in zip(here.point + steps, here.point - steps, strict=True)
    ]
    np.testing.assert_allclose(score, values, rtol=1e-6)
    slopes = [
        here.at(here.point + s).chain(bend @ moved(here.point + s), bend)[0] - score for s in steps
    ]
    np.testing.assert_allclose(curvature, np.array(slopes) / 1e-6, rtol=1e-5)


def test_what_is_hardly_above_zero_is_zero():
    _, (root,) = population("diag", [1e-5, 2.0]).seen()
    assert not root[:, 0].any()
    assert population("diag", [1e-5, 2.0]).at_bounds() == (True, False)
    _, (root,) = population("full", [1.0, 1.0, 1e-5]).seen()
    assert np.linalg.matrix_rank(root) == 1
    assert population("full", [1.0, 1.0, 200.0]).at_bounds() == (False, True)


def test_blocks_apart():
    """The first and last coefficient are correlated, and independent of the one between them."""
    ways, frame, point = np.eye(3)[:, :1], np.eye(3), np.array([0.0, 1.0, 2.0, 0.5, 3.0])
    blocks = np.array([0, 1, 0])
    here = QuadraturePopulation(point, False, frame, ways, np.arange(3), (3,), blocks)
    np.testing.assert_array_equal(here.root, [[1, 0, 0], [0, 2, 0], [0.5, 0, 3]])
    flat = here.at(np.array([0.0, 1.0, 2.0, 1.0, 1e-5]))
    _, (seen,) = flat.seen()
    np.testing.assert_allclose(seen @ seen.T, [[1, 0, 1], [0, 4, 0], [1, 0, 1]], atol=1e-4)
    assert np.linalg.matrix_rank(seen) == 2


def test_near_a_population_that_was_seen():
    """The mean is that one's; variances are a little larger."""
    frame, ways = np.diag([1.0, 2.0, 0.5]), np.eye(3)
    point, blocks = np.array([0.3, -1.0, 2.0, 1.0, 2.0, 0.5, 3.0]), np.array([0, 1, 0])
    here = QuadraturePopulation(point, False, frame, ways, np.array([2, 0, 1]), (3,), blocks)
    mean, (root,) = here.seen()
    there = here.at(np.zeros(7)).near(mean, [root @ root.T], np.zeros(0))
    np.testing.assert_allclose(there.mean, here.mean)
    np.testing.assert_allclose(
        there.root @ there.root.T, here.root @ here.root.T + 0.01 * np.eye(3)
    )
    alike = QuadraturePopulation(np.zeros(4), True, frame, ways, np.arange(2), (2,), np.zeros(2))
    again = alike.near(mean, [np.diag([9.0, 36.0, 0.0])], np.zeros(0))
    np.testing.assert_allclose(again.root, np.sqrt(9.01) * np.eye(2))
