"""Components of Laplace's distribution: against quadrature, and slopes against differences."""

import numpy as np
import pytest

from ebfed.regression.numerics.evidence import MixturePopulation, rotate
from ebfed.regression.numerics.laplace_population import approximate, weigh_laplace

RNG = np.random.default_rng(0)
N, ROWS, NOISE = 6, 5, 0.64
MEAN, SCALE = np.array([0.3, 0.2]), np.array([0.7, 0.5])
X = RNG.normal(size=(N, ROWS, 2))
X[4] = 0.0  # a client that knows nothing of its coefficients
X[5, :, 1] = X[5, :, 0]  # and one that knows their sum
THETA = RNG.laplace(MEAN, SCALE, (N, 2))
Y = np.einsum("nij,nj->ni", X, THETA) + np.sqrt(NOISE) * RNG.normal(size=(N, ROWS))
CLIENTS = rotate(np.concatenate([X, Y[:, :, None]], axis=2), np.full(N, ROWS))


def quadrature(i):
    """Log evidence, mean and standard deviations of a client, on a fine grid."""
    line = np.linspace(-12, 12, 2401)
    theta = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1)
    log = (-np.abs(theta - MEAN) / SCALE - np.log(2 * SCALE)).sum(axis=-1)
    left = Y[i] - theta @ X[i].T
    log -= 0.5 * (left**2).sum(axis=-1) / NOISE + 0.5 * ROWS * np.log(2 * np.pi * NOISE)
    mass = np.exp(log - log.max())
    total = mass.sum()
    mean = (mass[..., None] * theta).sum(axis=(0, 1)) / total
    square = (mass[..., None] * (theta - mean) ** 2).sum(axis=(0, 1)) / total
    cell = 2 * np.log(line[1] - line[0])
    return log.max() + np.log(total) + cell, mean, np.sqrt(square)


def test_quadrature():
    """To what expectation propagation loses: least where rows know each coefficient apart."""
    found = approximate(CLIENTS, MEAN, SCALE, NOISE)
    for i in range(N):
        log, mean, sd = quadrature(i)
        error = 0.07 if i == 5 else 3e-3
        assert found.log[i] == pytest.approx(log, abs=error)
        np.testing.assert_allclose(MEAN + found.mean[i], mean, atol=error)
        np.testing.assert_allclose(np.sqrt(np.diag(found.covariance[i])), sd, rtol=error)
    np.testing.assert_allclose(
        found.log[4], -0.5 * (Y[4] @ Y[4] / NOISE + ROWS * 1.391589), atol=1e-4
    )
    np.testing.assert_allclose(found.distance[4], SCALE, rtol=1e-6)


def differences(name, at=None, h=1e-5):
    values = {"mean": MEAN, "variances": 2 * SCALE**2, "noise": NOISE}
    logs = []
    for sign in (1, -1):
        moved = dict(values)
        unit = h if at is None else h * np.eye(2)[at]
        moved[name] = values[name] + sign * unit
        one = MixturePopulation(
            np.ones(1), moved["mean"][None], moved["variances"][None], moved["noise"]
        )
        logs.append(weigh_laplace(CLIENTS, one).log[:, 0])
    return (logs[0] - logs[1]) / (2 * h)


def test_slopes_are_those_of_the_evidence():
    one = MixturePopulation(np.ones(1), MEAN[None], 2 * SCALE[None] ** 2, NOISE)
    found = weigh_laplace(CLIENTS, one)
    for j in range(2):
        np.testing.assert_allclose(found.mean[:, 0, j], differences("mean", j), atol=1e-7)
        np.testing.assert_allclose(found.variance[:, 0, j], differences("variances", j), atol=1e-7)
    np.testing.assert_allclose(found.noise[:, 0], differences("noise"), atol=1e-7)
    assert (found.variance_information >= 0).all()
    assert (found.noise_information >= 0).all()


def test_one_variance_is_the_sum():
    many = MixturePopulation(np.ones(1), MEAN[None], np.full((1, 2), 0.8), NOISE)
    one = many._replace(variances=np.full((1, 1), 0.8))
    own, shared = weigh_laplace(CLIENTS, many), weigh_laplace(CLIENTS, one)
    np.testing.assert_allclose(shared.log, own.log)
    np.testing.assert_allclose(shared.variance[..., 0], own.variance.sum(axis=2))


@pytest.mark.parametrize("far", [1e2, 1e5])
@pytest.mark.parametrize("scale", [1e-5, 1e5])
def test_no_digits_are_lost_far_out(far, scale):
    """Where the population is narrow it wins, where it is wide the rows do."""
    rows = CLIENTS._replace(response=CLIENTS.response + far)
    found = approximate(rows, MEAN, np.full(2, scale), NOISE)
    assert all(np.isfinite(x).all() for x in found)
    if scale > far:
        own = np.linalg.lstsq(rows.design[0], rows.response[0], rcond=None)[0]
        np.testing.assert_allclose(MEAN + found.mean[0], own, rtol=1e-3)
