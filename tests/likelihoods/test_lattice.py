"""Nodes that stand for many estimates, against sums over all of them and figures of each."""

import numpy as np
import pytest

from ebfed.likelihoods import StudentT
from ebfed.likelihoods.lattice import Lattice

N = 40_000
DEGREES = {
    "one": lambda rng: np.full(N, 5.0),
    "two": lambda rng: rng.choice([2.0, 3.0], N),
    "some infinite": lambda rng: rng.choice([8.0, np.inf], N),
    "between": lambda rng: rng.uniform(6, 8, N),
}


def messages(degrees, errors=(0.5, 0.9)):
    rng = np.random.default_rng(0)
    s, df = rng.uniform(*errors, N), DEGREES[degrees](rng)
    noise = rng.standard_normal(N) / np.sqrt(
        np.where(np.isinf(df), 1.0, rng.chisquare(np.minimum(df, 100)) / np.minimum(df, 100))
    )
    theta = rng.choice([-1.0, 0.0, 2.0], N)
    return StudentT((theta + s * noise)[:, None], (s**2)[:, None], df)


@pytest.mark.parametrize("degrees", DEGREES)
def test_log_likelihoods_and_gradients(degrees):
    """To 1e-7 for each client: of a population of points, which is less smooth than others."""
    rows = messages(degrees)
    nodes, weights = rows.summed()
    assert 2 * len(nodes) < N
    assert weights.sum() == pytest.approx(N, rel=1e-10)
    atoms, masses = np.array([[-1.0], [0.0], [2.0]]), np.array([0.3, 0.3, 0.4])
    each, there = (some.relative(atoms) @ masses for some in (rows, nodes))
    assert weights @ np.log(there) == pytest.approx(np.log(each).sum(), abs=1e-7 * N)
    at = np.linspace(-4, 5, 30)[:, None]
    expected = (1 / each) @ rows.relative(at)
    np.testing.assert_allclose((weights / there) @ nodes.relative(at), expected, atol=1e-5 * N)


@pytest.mark.parametrize("degrees", DEGREES)
def test_interpolation(degrees):
    """Posterior means of points, and what the lattice says of their errors."""
    rows = messages(degrees)
    nodes, lattice = rows.at_lattice, rows.lattice
    atoms, masses = np.array([[-1.0], [0.0], [2.0]]), np.array([0.3, 0.3, 0.4])

    def means(some):
        joint = some.relative(atoms) * masses
        return (joint @ atoms) / joint.sum(axis=1, keepdims=True)

    missed = np.abs(lattice.interpolate(means(nodes)) - means(rows))
    errors = lattice.errors(means(nodes))
    assert missed.max() < 1e-4
    assert (missed < 5 * errors + 1e-9).mean() > 0.9
    assert missed.max() < 2 * errors.max()


def test_weights_of_clients_count():
    rows, counts = messages("two"), np.random.default_rng(1).uniform(0, 3, N)
    weights = rows.lattice.weights(counts)
    found = weights @ np.cos(rows.lattice.values)
    assert found == pytest.approx(counts @ np.cos(rows.values[:, 0]), rel=1e-9)


def test_estimates_far_from_all_others_are_nodes():
    rows = messages("one")
    values = rows.values.copy()
    values[7] = 1e6
    far = StudentT(values, rows.variances, rows.degrees)
    nodes, weights = far.summed()
    assert weights[nodes.values[:, 0] == 1e6].tolist() == [1.0]
    assert nodes.variances[nodes.values[:, 0] == 1e6][0, 0] == rows.variances[7, 0]


def test_there_is_none_where_it_is_no_shorter():
    x, one = np.linspace(0, 1e4, N), np.ones(N)
    assert Lattice.of(x, one, 5 * one) is None
    assert Lattice.of(np.append(x[:-1] / 1e4, 1e15), one, 5 * one) is None
    few = StudentT(x[:20_000, None] / 1e4, np.ones((20_000, 1)), np.full(20_000, 5.0))
    assert few.lattice is None
    assert few.at_lattice is None
    _, counts = few.summed()
    np.testing.assert_array_equal(counts, few.compress()[1])


def test_clients_without_noise_or_message_are_left_out():
    rows = messages("one")
    variances = rows.variances.copy()
    variances[:5], variances[5:9] = 0.0, np.inf
    rows = StudentT(rows.values, variances, rows.degrees)
    assert rows.summed()[1].sum() == pytest.approx(N - 9)
    few, times = rows.condensed(np.ones(N))
    assert times.sum() == pytest.approx(N - 9)
    assert len(few) < N / 10
