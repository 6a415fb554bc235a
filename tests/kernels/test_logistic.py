"""The kernels of logistic regression against quadrature and plain NumPy."""

import itertools

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit

from ebfed.kernels import expectation_propagation, importance, laplace, log_logistic_normal
from ebfed.kernels.logistic import LOGIT_STEP, _add_log_likelihoods, _exp, _tilted
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
def test_tilted_moments(mean, variance, sign):
    sums, out = np.empty(3), np.empty(3)
    _tilted(mean, variance, sign, LOGIT_STEP, sums, out)
    sd = np.sqrt(variance)
    low = min(mean, mean + sign * variance) - 9 * sd
    high = max(mean, mean + sign * variance) + 9 * sd
    z = np.linspace(low, high, 40_001)
    height = -np.logaddexp(0, -sign * z) - 0.5 * (z - mean) ** 2 / variance
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
        _tilted(mean, variance, 1.0, LOGIT_STEP, sums, out)
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


@pytest.mark.parametrize("d", [1, 2])
def test_expectation_propagation_comes_near_the_posterior(d):
    X, offset, signs, indptr = rows([0, 1, 3, 8, 20], d)
    found = empty(5, d)
    stand_ins = np.zeros(len(X)), np.zeros(len(X))
    left = expectation_propagation(X, offset, signs, indptr, *stand_ins, 1e-10, 100, *found)
    assert left == 0
    for i, (first, last) in enumerate(itertools.pairwise(indptr)):
        mean, cov, evidence = on_grid(X[first:last], offset[first:last], signs[first:last])
        sd = np.sqrt(np.diag(cov))
        # its own error, in standard deviations
        assert np.all(np.abs(found[0][i] - mean) < 0.005 * sd)
        assert np.all(np.abs(found[1][i] - cov) < 0.02 * np.outer(sd, sd))
        assert found[2][i] == pytest.approx(evidence, abs=0.005)


def test_expectation_propagation_is_a_fixed_point():
    """At the end, every row's stand-in gives the moments that the row itself would."""
    X, offset, signs, indptr = rows([12], 3)
    mean, cov, evidence = empty(1, 3)
    precision, shift = np.zeros(12), np.zeros(12)
    expectation_propagation(
        X, offset, signs, indptr, precision, shift, 1e-12, 200, mean, cov, evidence
    )
    V = np.linalg.inv(np.eye(3) + X.T @ (precision[:, None] * X))
    np.testing.assert_allclose(cov[0], V, atol=1e-12)
    np.testing.assert_allclose(mean[0], V @ X.T @ shift, atol=1e-12)
    sums, out = np.empty(3), np.empty(3)
    for x, o, s, t, u in zip(X, offset, signs, precision, shift, strict=True):
        v, z = x @ V @ x, x @ mean[0]
        cavity, centre = v / (1 - t * v), (z - v * u) / (1 - t * v)
        _tilted(centre + o, cavity, s, LOGIT_STEP, sums, out)
        assert centre + cavity * out[1] == pytest.approx(z, abs=1e-8)
        assert cavity - cavity**2 * out[2] == pytest.approx(v, abs=1e-8)


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


def importance_reference(X, offset, signs, points, widening, mean, cov):
    away = widening * points @ np.linalg.cholesky(cov).T
    eta = mean + away
    height = -0.5 * (eta**2).sum(axis=1)
    height -= np.logaddexp(0, -signs * (offset + eta @ X.T)).sum(axis=1)
    square = (points**2).sum(axis=1)
    drawn = -0.5 * square - len(mean) * np.log(widening) - 0.5 * np.linalg.slogdet(cov)[1]
    posterior = np.exp(height - drawn)
    normal = widening ** len(mean) * np.exp(0.5 * (1 - widening**2) * square)
    more = posterior / posterior.sum() - normal / normal.sum()
    shift = more @ away
    spread = (more[:, None] * away).T @ away - np.outer(shift, shift)
    told = (1 - np.diag(cov)) ** 2
    share = told / (told + 1e-4)
    return (
        mean + share * shift,
        cov + np.outer(share, share) * spread,
        np.log(posterior.sum() / normal.sum()),
    )


def test_importance():
    X, offset, signs, indptr = rows([0, 1, 5, 25], 3)
    points = np.random.default_rng(5).normal(size=(40, 3))
    found = empty(4, 3)
    laplace(*observed(X, offset, signs, indptr), 1e-10, 100, *found)
    before = [x.copy() for x in found]
    importance(X, offset, signs, indptr, points, 1.3, *found)
    for i, (first, last) in enumerate(itertools.pairwise(indptr)):
        part = slice(first, last)
        expected = importance_reference(
            X[part], offset[part], signs[part], points, 1.3, before[0][i], before[1][i]
        )
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours[i], theirs, atol=1e-10)
    # where the approximation is exact, nothing is added
    np.testing.assert_allclose(found[0][0], 0, atol=1e-14)
    np.testing.assert_allclose(found[1][0], np.eye(3), atol=1e-14)


def test_exponentials_side_by_side():
    x = -np.concatenate([np.linspace(0, 40, 2001), np.geomspace(1e-300, 700, 500)])
    found = np.array([_exp(each) for each in x])
    np.testing.assert_allclose(found, np.exp(x), rtol=1e-15)
    assert _exp(0.0) == 1.0
    assert 0 < _exp(-1e300) < 1e-300


@pytest.mark.parametrize("n_rows", [0, 1, 7, 2500])
def test_log_likelihoods_of_many_points(n_rows):
    """As many rows, too, as a product of factors between 1 and 2 does not hold."""
    rng = np.random.default_rng(n_rows)
    X, offset = rng.normal(size=(n_rows, 2)), rng.normal(size=n_rows)
    signs = rng.choice([-1.0, 1.0], n_rows)
    m, away, out = rng.normal(size=2), rng.normal(size=(2, 5)), np.zeros(5)
    space = np.empty((2, 5))
    _add_log_likelihoods(X, offset, signs, 0, n_rows, m, away, *space, out)
    z = signs[:, None] * (offset[:, None] + X @ (m[:, None] + away))
    np.testing.assert_allclose(out, -np.logaddexp(0, -z).sum(axis=0), rtol=1e-12, atol=1e-12)


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
