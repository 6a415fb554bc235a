"""The kernels of logistic regression against quadrature and plain NumPy."""

import itertools

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit

from ebfed.kernels import expectation_propagation, laplace, log_logistic_normal
from ebfed.kernels.logistic import LOGIT_STEP, _tilted
from ebfed.kernels.responses import BINOMIAL

# The trapezoidal rule's own promise.
QUADRATURE = 1e-6


def rows(sizes, d, seed=0):
    rng = np.random.default_rng(seed)
    indptr = np.concatenate(([0], np.cumsum(sizes)))
    X = rng.normal(size=(indptr[-1], d))
    offset = 0.5 * rng.normal(size=len(X))
    return X, offset, np.where(rng.random(len(X)) < 0.7, 1.0, -1.0), indptr


def empty(m, d):
    return np.zeros((m, d)), np.zeros((m, d, d)), np.zeros(m)


def on_grid(X, offset, signs, reach=8.0, count=321):
    """Mean, covariance and evidence of one client by brute force, in one or two dimensions."""
    t = np.linspace(-reach, reach, count)
    eta = np.array(list(itertools.product(t, repeat=X.shape[1])))
    height = -0.5 * (eta**2).sum(axis=1)
    height -= np.logaddexp(0, -signs * (offset + eta @ X.T)).sum(axis=1)
    weight = np.exp(height - height.max())
    volume = ((t[1] - t[0]) / np.sqrt(2 * np.pi)) ** X.shape[1]
    mean = weight @ eta / weight.sum()
    cov = (weight[:, None] * (eta - mean)).T @ (eta - mean) / weight.sum()
    return mean, cov, np.log(weight.sum() * volume) + height.max()


@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize("variance", [1e-4, 0.3, 4.0, 100.0])
@pytest.mark.parametrize("mean", [-30.0, -2.0, 0.0, 0.7, 12.0])
@pytest.mark.parametrize("power", [1.0, 0.4])
def test_tilted_moments(mean, variance, sign, power):
    sums, out = np.empty(3), np.empty(3)
    _tilted(mean, variance, sign, power, LOGIT_STEP, sums, out)
    sd = np.sqrt(variance)
    low = min(mean, mean + sign * power * variance) - 9 * sd
    high = max(mean, mean + sign * power * variance) + 9 * sd
    z = np.linspace(low, high, 40_001)
    height = -power * np.logaddexp(0, -sign * z) - 0.5 * (z - mean) ** 2 / variance
    weight = np.exp(height - height.max())
    total, first = weight.sum(), weight @ z / weight.sum()
    log_mass = np.log(total * (z[1] - z[0]) / np.sqrt(2 * np.pi * variance)) + height.max()
    second = weight @ (z - first) ** 2 / total
    assert out[0] == pytest.approx(log_mass, abs=QUADRATURE)
    assert out[1] == pytest.approx((first - mean) / variance, abs=QUADRATURE)
    assert out[2] == pytest.approx((1 - second / variance) / variance, abs=QUADRATURE)


@pytest.mark.parametrize("mean", [-1e5, -800.0, 800.0, 1e5])
def test_far_out_nothing_overflows(mean):
    sums, out = np.empty(3), np.empty(3)
    for variance in (0.0, 1.0, 1e6):
        _tilted(mean, variance, 1.0, 1.0, LOGIT_STEP, sums, out)
        assert np.isfinite(out).all()
        assert out[2] >= 0


def test_average_of_the_logistic_function():
    mean, variance = np.array([-3.0, 0.0, 1.5, 1.5]), np.array([2.0, 5.0, 0.4, 0.0])
    out = np.empty(4)
    log_logistic_normal(mean, variance, out)
    for m, v, value in zip(mean[:3], variance[:3], out[:3], strict=True):
        sd = np.sqrt(v)
        exact, _ = quad(
            lambda t, m=m, sd=sd: expit(m + sd * t) * np.exp(-t * t / 2) / np.sqrt(2 * np.pi), -9, 9
        )
        assert value == pytest.approx(np.log(exact), abs=QUADRATURE)
    assert out[3] == pytest.approx(np.log(expit(1.5)), abs=QUADRATURE)


def matched(X, offset, y, weight, indptr, tolerance=1e-10):
    """Means, evidence, slopes by rows and stand-ins of clients, which all are done."""
    n, d = X.shape
    sites, found = (np.empty((n, 2)), np.empty((n, 2))), (np.zeros((len(indptr) - 1, d)),)
    found += np.empty(len(indptr) - 1), np.empty(n), np.empty((n, d)), np.empty(n)
    given = X, offset, y, weight, indptr, tolerance, 200, True
    assert expectation_propagation(*given, *sites, *found) == 0
    return found, sites


@pytest.mark.parametrize("d", [1, 2])
def test_expectation_propagation_comes_near_the_posterior(d):
    X, offset, signs, indptr = rows([0, 1, 3, 8, 20], d)
    y = (signs + 1) / 2
    (mean, evidence, _, _, bend), _ = matched(X, offset, y, np.ones(len(y)), indptr)
    for i, (first, last) in enumerate(itertools.pairwise(indptr)):
        own = slice(first, last)
        exact, spread, height = on_grid(X[own], offset[own], signs[own])
        cov = np.linalg.inv(np.eye(d) + X[own].T @ (bend[own, None] * X[own]))
        sd = np.sqrt(np.diag(spread))
        # its own error, in standard deviations
        assert np.all(np.abs(mean[i] - exact) < 0.005 * sd)
        assert np.all(np.abs(cov - spread) < 0.02 * np.outer(sd, sd))
        assert evidence[i] == pytest.approx(height, abs=0.005)


def test_expectation_propagation_is_a_fixed_point():
    """At the end, every stand-in gives the moments that the row itself would."""
    X, offset, signs, indptr = rows([12], 3)
    y, weight = (signs + 1) / 2, np.ones(12)
    (mean, *_), (precision, shift) = matched(X, offset, y, weight, indptr, 1e-12)
    kind = (signs < 0).astype(int)
    precision, shift = precision[np.arange(12), kind], shift[np.arange(12), kind]
    V = np.linalg.inv(np.eye(3) + X.T @ (precision[:, None] * X))
    np.testing.assert_allclose(mean[0], V @ X.T @ shift, atol=1e-12)
    sums, out = np.empty(3), np.empty(3)
    for x, o, s, t, u in zip(X, offset, signs, precision, shift, strict=True):
        v, z = x @ V @ x, x @ mean[0]
        cavity, centre = v / (1 - t * v), (z - v * u) / (1 - t * v)
        _tilted(centre + o, cavity, s, 1.0, LOGIT_STEP, sums, out)
        assert centre + cavity * out[1] == pytest.approx(z, abs=1e-8)
        assert cavity - cavity**2 * out[2] == pytest.approx(v, abs=1e-8)


def test_counts_of_trials_are_so_many_rows():
    X, offset, _, _ = rows([9], 3)
    won, lost = np.arange(9) % 4, np.arange(9) % 3 + 1000 * (np.arange(9) == 8)
    trials = (won + lost).astype(float)
    ends = np.array([0, 9])
    together, _ = matched(X, offset, won / np.maximum(trials, 1), trials, ends)
    row = np.repeat(np.arange(9), (won + lost))
    y = np.concatenate([[1.0] * w + [0.0] * f for w, f in zip(won, lost, strict=True)])
    apart, _ = matched(X[row], offset[row], y, np.ones(len(y)), np.array([0, len(y)]))
    for one, other in zip(together[:2], apart[:2], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-8)


def test_slopes_by_rows_are_those_of_the_evidence():
    """Beside differences, of rows of a share of a trial too."""
    X, offset, signs, indptr = rows([0, 4, 9], 3)
    y, weight = (signs + 1) / 2, np.where(np.arange(13) % 3, 1.0, 0.3)
    y[3], weight[3] = 0.25, 8.0
    given = y, weight, indptr, 1e-12
    (_, _, push, pull, _), _ = matched(X, offset, *given)
    h = 1e-5
    for row in (0, 3, 7):
        for j in (None, 0, 2):
            ends = []
            for step in (h, -h):
                moved, shifted = X.copy(), offset.copy()
                if j is None:
                    shifted[row] += step
                else:
                    moved[row, j] += step
                ends.append(matched(moved, shifted, *given)[0][1].sum())
            expected = push[row] if j is None else pull[row, j]
            # the trapezoidal rule's error over the step
            assert (ends[0] - ends[1]) / (2 * h) == pytest.approx(expected, abs=1e-4)


def observed(X, offset, signs, indptr):
    """Rows as the kernel of modes takes them: one trial each, a success where the sign is 1."""
    return X, offset, (signs + 1) / 2, np.ones(len(X)), indptr, BINOMIAL, np.zeros(0)


def test_laplace_is_mode_and_curvature():
    X, offset, signs, indptr = rows([0, 1, 6, 30], 3)
    mean, cov, evidence = empty(4, 3)
    assert laplace(*observed(X, offset, signs, indptr), 1e-12, 100, mean, cov, evidence) == 0
    for i, (first, last) in enumerate(itertools.pairwise(indptr)):
        A, s = X[first:last], signs[first:last]
        z = offset[first:last] + A @ mean[i]
        p = expit(-s * z)
        np.testing.assert_allclose(A.T @ (s * p), mean[i], atol=1e-6)
        H = np.eye(3) + A.T @ ((p * (1 - p))[:, None] * A)
        np.testing.assert_allclose(cov[i], np.linalg.inv(H), atol=1e-6)
        height = -0.5 * mean[i] @ mean[i] - np.logaddexp(0, -s * z).sum()
        assert evidence[i] == pytest.approx(height - 0.5 * np.linalg.slogdet(H)[1], abs=1e-6)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_modes_do_not_depend_on_where_the_search_begins(scale):
    X, offset, signs, indptr = rows([0, 3, 20], 2)
    given, found = (scale * X, offset, signs, indptr), empty(3, 2)
    assert laplace(*observed(*given), 1e-10, 200, *found) == 0
    for start in (3.0, -50.0):
        again = np.full((3, 2), start), np.empty((3, 2, 2)), np.empty(3)
        assert laplace(*observed(*given), 1e-10, 200, *again) == 0
        np.testing.assert_allclose(again[0], found[0], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(again[2], found[2], rtol=1e-9)
    # at the mode, the log-posterior does not slope
    for i in range(3):
        own = slice(indptr[i], indptr[i + 1])
        z = signs[own] * (offset[own] + given[0][own] @ found[0][i])
        slope = (signs[own] * expit(-z)) @ given[0][own] - found[0][i]
        np.testing.assert_allclose(slope, 0, atol=1e-3 * max(scale, 1.0))
        bend = (given[0][own].T * (expit(z) * expit(-z))) @ given[0][own] + np.eye(2)
        np.testing.assert_allclose(found[1][i], np.linalg.inv(bend), rtol=1e-6, atol=1e-12)


def test_few_steps_leave_a_covariance():
    given, found = rows([20], 2), empty(1, 2)
    assert laplace(*observed(*given), 1e-12, 1, *found) == 1
    np.linalg.cholesky(found[1][0])
    np.testing.assert_allclose(found[1][0], found[1][0].T)
