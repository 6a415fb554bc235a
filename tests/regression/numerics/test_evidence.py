"""What clients say of a mixture of regressions, and the server's steps from it."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from ebfed.priors.mixture_em import kmeans
from ebfed.regression.numerics.evidence import (
    MixturePopulation,
    information,
    make_grid,
    responsibilities,
    rotate,
    weigh,
)
from ebfed.regression.numerics.scoring import _score, accelerate, between, improve, invert
from ebfed.regression.schemes import draw, least_squares
from ebfed.streams import Stream, make_key

RNG = np.random.default_rng(0)
SIZES = np.array([0, 1, 2, 5, 5, 3])
FACTORS = np.zeros((6, 5, 4))
for i, n in enumerate(SIZES):
    FACTORS[i, :n] = RNG.normal(size=(n, 4))
ROWS = rotate(FACTORS, SIZES)
SHAPES = {
    "one variance": np.array([[0.4], [1.7]]),
    "many": np.array([[0.4, 0.1, 2.0], [0.3, 0.0, 1.0]]),
    "none": np.zeros((2, 1)),
}


def population(variances, noise=0.6):
    return MixturePopulation(
        np.array([0.3, 0.7]), np.arange(6.0).reshape(2, 3) / 4, variances, noise
    )


def moved(here, name, index, by):
    values = {key: np.array(x, float) for key, x in here._asdict().items()}
    values[name][index] += by
    values["noise"] = float(values["noise"])
    return MixturePopulation(**values)


@pytest.mark.parametrize("variances", SHAPES.values(), ids=SHAPES)
def test_log_evidence_is_the_joint_density(variances):
    here = population(variances)
    log = weigh(ROWS, here).log
    for i, n in enumerate(SIZES):
        X, y = FACTORS[i, :n, :-1], FACTORS[i, :n, -1]
        for j in range(2):
            D = np.diag(np.broadcast_to(variances[j], 3))
            cov = X @ D @ X.T + here.noise * np.eye(n)
            expected = multivariate_normal.logpdf(y, X @ here.means[j], cov) if n else 0.0
            assert log[i, j] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("variances", SHAPES.values(), ids=SHAPES)
def test_slopes_are_those_of_differences(variances):
    here = population(variances + 0.01)  # a two-sided difference needs room
    found, step = weigh(ROWS, here), 1e-5

    def slope(name, index):
        up, down = (weigh(ROWS, moved(here, name, index, by)).log for by in (step, -step))
        return (up - down) / (2 * step)

    for j in range(2):
        for column in range(3):
            expected = slope("means", (j, column))[:, j]
            np.testing.assert_allclose(found.mean[:, j, column], expected, atol=1e-6)
        for column in range(variances.shape[1]):
            expected = slope("variances", (j, column))[:, j]
            np.testing.assert_allclose(found.variance[:, j, column], expected, atol=1e-5)
    np.testing.assert_allclose(found.noise, slope("noise", ()), atol=1e-5)


@pytest.mark.parametrize("variances", SHAPES.values(), ids=SHAPES)
def test_information_is_that_of_normals(variances):
    """``tr(K^-1 dK K^-1 dK) / 2`` for parameters of K, ``X' K^-1 X`` for the mean."""
    here = population(variances)
    found = weigh(ROWS, here)
    for i, n in enumerate(SIZES):
        X = FACTORS[i, :n, :-1]
        for j in range(2):
            inverse = np.linalg.inv(
                X @ np.diag(np.broadcast_to(variances[j], 3)) @ X.T + here.noise * np.eye(n)
            )
            P = X.T @ inverse @ X
            W = found.white[j][i] * found.scale[j][i][:, None]
            np.testing.assert_allclose(W.T @ W, P, atol=1e-12)
            total = 0.5 * P**2
            crossed = 0.5 * np.diag(X.T @ inverse @ inverse @ X)
            own, rest = np.diag(total), total.sum(axis=1) - np.diag(total)
            if variances.shape[1] == 1:
                own, rest, crossed = total.sum(), 0.0, crossed.sum()
            np.testing.assert_allclose(found.variance_information[i, j], own, atol=1e-12)
            np.testing.assert_allclose(found.variance_rest[i, j], rest, atol=1e-12)
            np.testing.assert_allclose(found.crossed[i, j], crossed, atol=1e-12)
            expected = 0.5 * np.trace(inverse @ inverse)
            assert found.noise_information[i, j] == pytest.approx(expected)


def test_information_does_not_depend_on_blocks():
    rng = np.random.default_rng(1)
    sizes = rng.integers(0, 9, 500)
    factors = rng.normal(size=(500, 8, 4)) * (np.arange(8) < sizes[:, None])[:, :, None]
    factors *= [1.0, 1e-6, 1e7, 1.0]
    here = population(np.array([[0.4, 0.1, 2.0], [0.3, 0.0, 1.0]]))
    grid = make_grid(np.sqrt((factors**2).sum(axis=1)).max(axis=0)[:-1], here, 500)

    def total(n_blocks):
        sums = []
        for part in np.array_split(np.arange(500), n_blocks):
            found = weigh(rotate(factors[part], sizes[part]), here)
            share = responsibilities(found.log, here.weights)[1]
            sums.append(information(found, share, grid))
        return np.concatenate(sums).sum(axis=0)

    whole = total(1)
    for n_blocks in (2, 13, 500):
        np.testing.assert_array_equal(total(n_blocks), whole)
    found = weigh(rotate(factors, sizes), here)
    share = responsibilities(found.log, here.weights)[1]
    for j in range(2):
        W = found.white[j] * found.scale[j][:, :, None] * np.sqrt(share[:, [j]])[:, :, None]
        plain = W.reshape(-1, 3).T @ W.reshape(-1, 3)
        size = np.sqrt(np.outer(np.diag(plain), np.diag(plain)))
        np.testing.assert_allclose(
            whole[j] / np.outer(grid[j], grid[j]) / size, plain / size, atol=1e-4
        )
    assert np.abs(whole).max() < 2**53


def test_step_climbs_and_solves():
    """One component: the mean is that of generalised least squares after one step."""
    here = MixturePopulation(np.ones(1), np.zeros((1, 3)), np.array([[0.5]]), 0.6)
    found = weigh(ROWS, here)
    grid = make_grid(np.full(3, 10.0), here, 6)
    share = np.ones((6, 1))
    heard = found.messages() | {
        "information": information(found, share, grid).sum(axis=0) / np.outer(grid[0], grid[0])
    }
    value, there = improve(here, heard, SIZES > 0, spread=True, noise=True)
    np.testing.assert_allclose(value, found.log[:, 0])
    assert weigh(ROWS, there).log.sum() > value.sum()
    W = found.scale[0][:, :, None] * found.white[0]
    target = found.scale[0] * ROWS.response
    expected = np.linalg.lstsq(W.reshape(-1, 3), target.ravel(), rcond=None)[0]
    np.testing.assert_allclose(there.means[0], expected, atol=1e-4)
    np.testing.assert_allclose(
        invert(heard["information"][0]) @ heard["information"][0], np.eye(3), atol=1e-8
    )


def test_scoring_stops_at_zero():
    """A variance that would turn negative stays at zero, and the others step as if it were held."""
    slope, own = np.array([[-9.0, 1.0]]), np.array([[2.0, 4.0]])
    rest, crossed = np.zeros((1, 2)), np.array([[1.0, 0.5]])
    variances, noise = _score(np.array([[0.5, 0.5]]), 1.0, slope, own, rest, crossed, 0.1, 3.0)
    assert variances[0, 0] == 0
    # the other variance and the noise, given a step of -0.5 of the first
    step = np.linalg.solve([[4.0, 0.5], [0.5, 3.0]], [1.0, 0.1 + 0.5])
    np.testing.assert_allclose([variances[0, 1] - 0.5, noise - 1], step)
    again = _score(variances, noise, slope, own, rest, crossed, 0.1, 3.0)[0]
    assert again[0, 0] == 0
    known = _score(None, 1.0, slope, own, rest, crossed, 0.0, np.inf)
    assert known[1] == 1.0


def test_extrapolation_solves_what_is_linear():
    """Steps towards a point, each a fixed share of the way that is left."""
    goal = population(np.array([[0.4], [1.7]]))
    trail = []
    here = between(goal, population(np.array([[0.5], [1.0]]), 0.7), 1.0)
    for _ in range(3):
        there = goal._replace(variances=here.variances + 0.1 * (goal.variances - here.variances))
        trail.append((here._replace(noise=0.6), there))
        here = there
    aim = accelerate(trail, leap=1e6)
    np.testing.assert_allclose(aim.variances, goal.variances, atol=1e-6)
    short = accelerate(trail, leap=1.0)
    last = np.abs(trail[-1][1].variances - trail[-1][0].variances)
    assert np.all(np.abs(short.variances - trail[-1][1].variances) <= last.sum())


def test_draws_have_the_posterior_moments():
    """Six clients, 20,000 draws; 36 figures within 4.5 standard errors: false alarms 0.03 %."""
    here, many = population(np.array([[0.4], [1.7]])), 20_000
    rows = rotate(np.repeat(FACTORS, many, axis=0), np.repeat(SIZES, many))
    draws = draw(rows, here, Stream(make_key(0), 0)).reshape(6, many, 3)
    found = weigh(ROWS, here)
    share = responsibilities(found.log, here.weights)[1]
    means = here.means + here.variances * found.mean
    mean = (share[:, :, None] * means).sum(axis=1)
    error = draws.std(axis=1) / np.sqrt(many)
    assert np.all(np.abs(draws.mean(axis=1) - mean) < 4.5 * error)
    second = np.zeros((6, 3))
    for j in range(2):
        told = ((found.white[j] * found.scale[j][:, :, None]) ** 2).sum(axis=1)
        variance = here.variances[j] - here.variances[j] ** 2 * told
        second += share[:, [j]] * (variance + means[:, j] ** 2)
    error = (draws**2).std(axis=1) / np.sqrt(many)
    assert np.all(np.abs((draws**2).mean(axis=1) - second) < 4.5 * error)


def test_least_squares_of_least_norm():
    expected = [np.linalg.pinv(F[:, :-1]) @ F[:, -1] for F in FACTORS]
    np.testing.assert_allclose(least_squares(ROWS), expected, atol=1e-12)


def test_kmeans():
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0], [9, 0], [0, 9]])
    values = centres[np.arange(90) % 3] + rng.normal(size=(90, 2))
    labels, found = kmeans(values, 3, np.random.RandomState(0))
    order = np.argsort(found @ [1, 2])
    np.testing.assert_allclose(found[order], centres, atol=1)
    assert np.bincount(labels).tolist() == [30, 30, 30]
