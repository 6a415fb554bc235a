"""LogisticEB by adaptive quadrature, beside one of 60 nodes on each axis in plain NumPy."""

import numpy as np
import pytest
from scipy.special import expit

import ebfed as eb

# Parameters, in standard errors, and log-likelihoods: a thousandth is beyond what anybody reads.
NEAR = 1e-3


def draw(m, n, mean, covariance, seed):
    """Rows, answers and groups of an intercept and a slope, correlated in groups."""
    rng = np.random.default_rng(seed)
    values, vectors = np.linalg.eigh(np.asarray(covariance, float))
    root = vectors * np.sqrt(np.maximum(values, 0))
    theta = np.asarray(mean) + rng.standard_normal((m, 2)) @ root.T
    groups, x = np.repeat(np.arange(m), n), rng.standard_normal(m * n)
    y = rng.random(m * n) < expit(theta[groups, 0] + theta[groups, 1] * x)
    return x[:, None], y.astype(int), groups


def log_likelihood(design, Z, y, groups, mean, root, n_nodes=60):
    """Adaptive Gauss-Hermite quadrature with `n_nodes` on each axis; equal sizes of groups."""
    m, q = groups[-1] + 1, Z.shape[1]
    sign = np.where(y == 1, 1.0, -1.0).reshape(m, -1)
    offset, A = (design @ mean).reshape(m, -1), (Z @ root).reshape(m, -1, q)
    eta = np.zeros((m, q))
    for _ in range(100):  # modes, by Newton's method with short steps
        p = expit(-sign * (offset + np.einsum("mnq,mq->mn", A, eta)))
        slope = np.einsum("mn,mnq->mq", sign * p, A) - eta
        bend = np.eye(q) + np.einsum("mn,mnq,mnr->mqr", p * (1 - p), A, A)
        step = np.linalg.solve(bend, slope[:, :, None])[:, :, 0]
        eta = eta + step / np.maximum(1, np.abs(step).max(axis=1, keepdims=True))
    wide = np.linalg.cholesky(np.linalg.inv(bend))
    t, w = np.polynomial.hermite_e.hermegauss(n_nodes)
    t, log_w = (
        np.stack(np.meshgrid(*[each] * q, indexing="ij"), axis=-1).reshape(-1, q)
        for each in (t, np.log(w / w.sum()) + t**2 / 2)
    )
    total = 0.0
    for some in np.array_split(np.arange(m), 1 + m * len(t) // 200_000):
        at = eta[some, None] + np.einsum("mqr,kr->mkq", wide[some], t)
        logit = offset[some, None] + np.einsum("mnq,mkq->mkn", A[some], at)
        height = log_w.sum(axis=1) - 0.5 * (at**2).sum(axis=2)
        height -= np.logaddexp(0, -sign[some, None] * logit).sum(axis=2)
        total += np.logaddexp.reduce(height, axis=1).sum()
        total += np.log(np.einsum("mqq->mq", wide[some])).sum()
    return total


def distance(point, function):
    """Steps of Newton's method on the reference from a point, in standard errors; its value."""
    d, h = len(point), 1e-3
    steps = h * np.eye(d)
    value = function(point)
    up, down = (np.array([function(point + s * e) for e in steps]) for s in (1, -1))
    hessian = np.diag((up - 2 * value + down) / h**2)
    for i in range(d):
        for j in range(i):
            both = function(point + steps[i] + steps[j])
            hessian[i, j] = hessian[j, i] = (both - up[i] - up[j] + value) / h**2
    covariance = np.linalg.inv(-hessian)
    move = covariance @ (up - down) / (2 * h)
    return np.abs(move) / np.sqrt(np.diag(covariance)), value


CASES = [
    pytest.param(4000, 2, 3.0, 0, id="4000x2"),
    pytest.param(600, 2, 3.0, 1, id="600x2"),
    pytest.param(200, 20, 1.0, 2, id="200x20"),
    pytest.param(50, 5, 1.0, 3, id="50x5"),
    pytest.param(300, 1, 1.0, 3, id="300x1"),
]


@pytest.mark.parametrize(("m", "n", "sd", "seed"), CASES[:4])
def test_random_intercepts(m, n, sd, seed):
    X, y, groups = draw(m, n, (0.0, 1.0), np.diag([sd**2, 0.0]), seed)
    est = eb.LogisticEB(varying=["intercept"]).fit(X, y, groups=groups)
    assert est.method_ == "aghq"
    assert est.converged_
    design = np.column_stack([np.ones(len(X)), X])

    def function(point):
        return log_likelihood(design, design[:, :1], y, groups, point[:2], point[2:, None])

    point = np.array([*est.mean_, np.sqrt(est.covariance_[0, 0])])
    away, value = distance(point, function)
    print(point, value, away, est.n_iter_)
    assert np.all(away < NEAR)
    assert est.log_likelihood_ == pytest.approx(value, abs=NEAR)


@pytest.mark.parametrize("kind", ["diag", "full", "spherical"])
def test_two_random_coefficients(kind):
    X, y, groups = draw(150, 6, (0.5, -1.0), [[1.0, 0.6], [0.6, 1.5]], 4)
    est = eb.LogisticEB(kind).fit(X, y, groups=groups)
    design = np.column_stack([np.ones(len(X)), X])
    root = np.linalg.cholesky(est.covariance_)
    entries = {"diag": [0, 3], "full": [0, 2, 3], "spherical": [0]}[kind]

    def function(point):
        at = np.zeros(4)
        at[entries] = point[2:]
        at[3] = at[0] if kind == "spherical" else at[3]
        return log_likelihood(design, design, y, groups, point[:2], at.reshape(2, 2))

    away, value = distance(np.array([*est.mean_, *root.ravel()[entries]]), function)
    print(value, away, est.n_iter_)
    assert np.all(away < NEAR)
    assert est.log_likelihood_ == pytest.approx(value, abs=NEAR)
