"""LogisticEB by adaptive quadrature, beside one of 60 nodes on each axis in plain NumPy."""

import numpy as np
import pytest
from scipy.special import expit

import ebfed as eb
from ebfed.priors import IdentificationWarning

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


def beside(est, X, y, groups, design, varying, entries, spherical=False):
    """Check a fit beside the reference; `entries` of the root of q coefficients are parameters."""
    q = len(varying)
    root = np.linalg.cholesky(est.covariance_[np.ix_(varying, varying)])

    def function(point):
        at = np.zeros(q * q)
        at[entries] = point[len(est.mean_) :]
        at = np.diag(np.full(q, at[0])) if spherical else at.reshape(q, q)
        mean = point[: len(est.mean_)]
        return log_likelihood(design, design[:, varying], y, groups, mean, at)

    away, value = distance(np.array([*est.mean_, *root.ravel()[entries]]), function)
    assert np.all(away < NEAR)
    assert est.log_likelihood_ == pytest.approx(value, abs=NEAR)


@pytest.mark.parametrize(
    ("m", "n", "sd", "seed"),
    [(4000, 2, 3.0, 0), (600, 2, 3.0, 1), (200, 20, 1.0, 2), (50, 5, 1.0, 3)],
)
def test_random_intercepts(m, n, sd, seed):
    X, y, groups = draw(m, n, (0.0, 1.0), np.diag([sd**2, 0.0]), seed)
    est = eb.LogisticEB(varying=["intercept"]).fit(X, y, groups=groups)
    assert est.method_ == "aghq"
    assert est.converged_
    beside(est, X, y, groups, np.column_stack([np.ones(len(X)), X]), [0], [0])


SHAPES = {"full": [0, 2, 3], "diag": [0, 3], "spherical": [0]}


@pytest.mark.parametrize(
    ("kind", "m"),
    [
        ("full", 20),
        *[pytest.param(kind, 150, marks=pytest.mark.slow) for kind in SHAPES],
    ],
)
def test_two_random_coefficients(kind, m):
    X, y, groups = draw(m, 6, (0.5, -1.0), [[1.0, 0.6], [0.6, 1.5]], 4)
    est = eb.LogisticEB(kind).fit(X, y, groups=groups)
    design = np.column_stack([np.ones(len(X)), X])
    beside(est, X, y, groups, design, [0, 1], SHAPES[kind], kind == "spherical")


def test_expectation_propagation_is_an_approximation():
    """Of groups of two rows and a spread of 3, its worst case, it is within a standard error."""
    X, y, groups = draw(600, 2, (0.0, 1.0), np.diag([9.0, 0.0]), 1)
    exact = eb.LogisticEB(varying=["intercept"]).fit(X, y, groups=groups)
    near = eb.LogisticEB(varying=["intercept"], method="ep").fit(X, y, groups=groups)
    assert near.method_ == "ep"
    assert near.likelihood_kind_ == "approximate"
    # 0.006 for each group, and a third of the standard error of the variance, which is 3.5
    assert near.log_likelihood_ == pytest.approx(exact.log_likelihood_, abs=0.01 * 600)
    np.testing.assert_allclose(near.covariance_[0, 0], exact.covariance_[0, 0], rtol=0.2)
    error = np.sqrt(np.diag(exact.mean_covariance_))
    assert np.abs((near.mean_ - exact.mean_) / error).max() < 0.5


def test_posteriors_agree_with_the_likelihood():
    """Scores vanish at the maximum: posterior moments average to those of the population."""
    X, y, groups = draw(300, 5, (0.0, 1.0), [[1.0, 0.4], [0.4, 0.8]], 7)
    est = eb.LogisticEB("full").fit(X, y, groups=groups)
    posterior = est._population().posterior_given_population(est.clients_)
    away = posterior.mean - est.mean_
    np.testing.assert_allclose(away.mean(axis=0), 0, atol=1e-5)
    second = posterior.covariance.mean(axis=0) + away.T @ away / len(away)
    np.testing.assert_allclose(second, est.covariance_, atol=1e-4)


def test_what_not_knowing_the_mean_adds():
    """Slopes of posterior means in all coefficients, alike in all groups or not."""
    X, y, groups = draw(80, 4, (0.0, 1.0), np.diag([2.0, 0.0]), 8)
    est = eb.LogisticEB(varying=["intercept"]).fit(X, y, groups=groups)
    est.mean_covariance_ = np.zeros((2, 2))
    base, slope = est.mean_, np.empty((80, 2, 2))
    for j in range(2):
        means = []
        for step in (1e-4, -1e-4):
            est.mean_ = base + step * np.eye(2)[j]
            means.append(est.posterior().mean)
        slope[:, :, j] = (means[0] - means[1]) / 2e-4
    est.mean_, est.mean_covariance_ = base, np.diag([0.3, 0.7])
    population = est._population()
    both = (
        population.posterior_given_spread(est.clients_).covariance
        - population.posterior_given_population(est.clients_).covariance
    )
    expected = slope @ est.mean_covariance_ @ slope.swapaxes(1, 2)
    np.testing.assert_allclose(both, expected, atol=1e-6)


def test_default_beyond_three_coefficients():
    rng = np.random.default_rng(0)
    X, groups = rng.standard_normal((400, 3)), np.repeat(np.arange(40), 10)
    y = rng.random(400) < expit(X.sum(axis=1) + rng.standard_normal(40)[groups])
    assert eb.LogisticEB().fit(X, y, groups=groups).method_ == "ep"
    some = eb.LogisticEB(varying=["intercept", 0, 2]).fit(X, y, groups=groups)
    assert some.method_ == "aghq"
    with pytest.raises(ValueError, match=r"at most 3 coefficients that differ .* got 4 of 1"):
        eb.LogisticEB(method="aghq").fit(X, y, groups=groups)


def test_few_groups():
    X, y, groups = draw(3, 30, (0.0, 1.0), np.diag([1.0, 0.0]), 3)
    est = eb.LogisticEB(varying=["intercept"]).fit(X, y, groups=groups)
    design = np.column_stack([np.ones(len(X)), X])
    beside(est, X, y, groups, design, [0], [0])


def test_one_row_per_group():
    X, y, groups = draw(300, 1, (0.0, 1.0), np.diag([1.0, 0.0]), 3)
    with pytest.warns(IdentificationWarning, match="No group has two rows"):
        est = eb.LogisticEB().fit(X, y, groups=groups)
    assert est.converged_
    assert not est.covariance_.any()


def test_most_groups_of_one_class():
    """Wide posteriors, steep on one side: rules have many nodes there."""
    X, y, groups = draw(100, 5, (0.0, 1.0), np.diag([1.0, 0.0]), 8)
    y[groups % 3 == 0], y[groups % 3 == 1] = 0, 1
    est = eb.LogisticEB(varying=["intercept"]).fit(X, y, groups=groups)
    assert np.sqrt(est.covariance_[0, 0]) > 5
    beside(est, X, y, groups, np.column_stack([np.ones(len(X)), X]), [0], [0])


def test_variances_of_zero_are_reached():
    X, y, groups = draw(200, 20, (0.0, 1.0), np.zeros((2, 2)), 6)
    est = eb.LogisticEB("spherical").fit(X, y, groups=groups)
    assert not est.covariance_.any()
    assert any("variance between groups is zero" in note for note in est.notes_)
    np.testing.assert_allclose(est.posterior().mean, np.tile(est.mean_, (200, 1)), atol=1e-12)


def test_large_groups_and_far_columns():
    """A column alike in all groups may lie anywhere, in any unit."""
    X, y, groups = draw(4, 5_000, (0.0, 1.0), np.diag([0.25, 0.0]), 0)
    plain = eb.LogisticEB(varying=["intercept"]).fit(X, y, groups=groups)
    far = eb.LogisticEB(varying=["intercept"]).fit(1e4 * X + 1e8, y, groups=groups)
    assert far.log_likelihood_ == pytest.approx(plain.log_likelihood_, abs=1e-4)
    np.testing.assert_allclose(far.covariance_[0, 0], plain.covariance_[0, 0], rtol=1e-6)
    np.testing.assert_allclose(1e4 * far.coef_, plain.coef_, rtol=1e-6)
