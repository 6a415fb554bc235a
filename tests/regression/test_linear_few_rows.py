"""Groups with no more rows than the model has columns, some of which are constant within groups."""

import numpy as np
import pytest

import ebfed as eb
from ebfed.regression.numerics.mixed_model import Problem, _CommonProblem
from ebfed.tables.clients import Clients
from ebfed.tables.factors import Factors

RNG = np.random.default_rng(3)
M = 60
LEVEL = RNG.normal(size=(M, 2))


def restricted_criterion(X, Z, y, groups, covariance, noise):
    """-2 restricted log-likelihood, group by group with dense matrices."""
    H, Xy, yy, log_det = 0.0, 0.0, 0.0, 0.0
    for g in range(M):
        mine = groups == g
        V = Z[mine] @ covariance @ Z[mine].T + noise * np.eye(mine.sum())
        W = np.linalg.inv(V)
        H, Xy = H + X[mine].T @ W @ X[mine], Xy + X[mine].T @ W @ y[mine]
        yy, log_det = yy + y[mine] @ W @ y[mine], log_det + np.linalg.slogdet(V)[1]
    quadratic = yy - Xy @ np.linalg.solve(H, Xy)
    dof = len(y) - X.shape[1]
    return log_det + np.linalg.slogdet(H)[1] + quadratic + dof * np.log(2 * np.pi)


@pytest.mark.parametrize("rows", [2, 3, 4, 5])
@pytest.mark.parametrize("varying", [["intercept"], ["intercept", 0]])
def test_criterion_is_that_of_dense_matrices(rows, varying):
    groups = np.repeat(np.arange(M), rows)
    time = np.tile(np.arange(rows, dtype=float), M)
    X = np.column_stack([time, LEVEL[groups]])
    y = X @ [0.5, 1.0, -1.0] + RNG.normal(size=M)[groups] + RNG.normal(size=len(groups))
    est = eb.LinearEB(varying=varying).fit(X, y, groups=groups)
    design = np.column_stack([np.ones(len(y)), X])
    Z = design[:, : len(varying)]
    spread = est.covariance_[: len(varying), : len(varying)]
    found = restricted_criterion(design, Z, y, groups, spread, est.noise_variance_)
    assert est.criterion_ == pytest.approx(found, rel=1e-9)
    # and no other noise is better
    for factor in (0.97, 1.03):
        near = restricted_criterion(design, Z, y, groups, spread, factor * est.noise_variance_)
        assert near > found


@pytest.mark.filterwarnings("ignore:Columns of X are collinear")
def test_what_is_not_identified_has_no_error():
    groups = np.repeat(np.arange(M), 4)
    x, z = RNG.normal(size=(2, len(groups)))
    y = x + RNG.normal(size=M)[groups] + RNG.normal(size=len(groups))
    fit = eb.LinearEB(varying=["intercept"])
    for columns, known in [
        ([x, z], [True, True, True]),
        ([x, 2 * x, z], [True, False, False, True]),
        ([x, np.full_like(x, 3.0), z], [False, True, False, True]),
        ([x, z, x + z + 1], [False] * 4),
    ]:
        table = fit.fit(np.column_stack(columns), y, groups=groups).tidy("fixed")
        assert table["std.error"].notna().tolist() == known


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("rows", [3, 12])
def test_turned_rows_have_the_criterion_of_whitened_ones(rows, intercept):
    """With one variance for all columns, V_i is diagonal in the same axes for every size."""
    X = RNG.normal(size=(M * rows, 5)) * [1.0, 3.0, 0.1, 1.0, 1.0]
    if intercept:
        X = np.column_stack([np.ones(len(X)), X + 2.0])
    y = X @ RNG.normal(size=X.shape[1]) + RNG.normal(size=len(X))
    groups = np.repeat(np.arange(M), rows)[: len(X) - 1]  # one group has a row less
    factors = Factors.of(Clients.from_rows(X[:-1], groups, y[:-1]))
    varying = np.arange(X.shape[1] - 1)
    given = (factors.rows, len(groups), varying, "spherical", "reml", intercept)
    common, whitened = _CommonProblem(*given), Problem(*given)
    for size in (0.0, 0.3, 1.0, 40.0):
        root = size * np.eye(len(varying))
        one, other = common.whiten(root), whitened.whiten(root)
        assert common.value(one) == pytest.approx(whitened.value(other), rel=1e-11)
        np.testing.assert_allclose(one.beta, other.beta, rtol=1e-8, atol=1e-12)
        slope = np.trace(whitened.slope(other, True))
        assert np.trace(common.slope(one, True)) == pytest.approx(slope, rel=1e-8)
        assert common.curvature().sum() == pytest.approx(whitened.curvature().sum(), rel=1e-9)
        residuals = whitened.squares_left(other.beta)
        assert common.squares_left(one.beta) == pytest.approx(residuals, rel=1e-9)
