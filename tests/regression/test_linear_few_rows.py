"""Groups with no more rows than the model has columns, some of which are constant within groups."""

import numpy as np
import pytest

import ebfed as eb
from ebfed.priors import IdentificationWarning
from ebfed.regression.numerics.mixed_model import CommonProblem, Problem
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
    common, whitened = CommonProblem(*given), Problem(*given)
    for size in (0.0, 0.3, 1.0, 40.0):
        root = size * np.eye(len(varying))
        one, other = common.whiten(root), whitened.whiten(root)
        assert common.value(one) == pytest.approx(whitened.value(other), rel=1e-11)
        np.testing.assert_allclose(one.beta, other.beta, rtol=1e-8, atol=1e-12)
        slope = np.trace(whitened.slope(other))
        assert np.trace(common.slope(one)) == pytest.approx(slope, rel=1e-8)
        assert common.curvature().sum() == pytest.approx(whitened.curvature().sum(), rel=1e-9)
        residuals = whitened.squares_left(other.beta)
        assert common.squares_left(one.beta) == pytest.approx(residuals, rel=1e-9)


@pytest.mark.parametrize(("m", "p", "seed"), [(100, 40, 2), (500, 120, 0), (500, 120, 1)])
def test_one_variance_of_more_columns_than_rows(m, p, seed):
    """Groups hardly tell noise from spread. The error was that columns are collinear."""
    rng = np.random.default_rng(seed)
    X, groups = rng.normal(size=(5 * m, p)), np.repeat(np.arange(m), 5)
    y = np.sum(X * rng.normal(1, 1, size=(m, p))[groups], axis=1)
    fit = eb.LinearEB("spherical").fit(X, y, groups=groups)
    rows = np.column_stack([np.ones(len(X)), X, y]).reshape(m, 5, p + 2)

    def criterion(spread, noise):
        V = spread * rows[:, :, :-1] @ rows[:, :, :-1].swapaxes(1, 2) + noise * np.eye(5)
        inner = np.einsum("mra,mrb->ab", rows, np.linalg.solve(V, rows))
        H = inner[:-1, :-1]
        left = inner[-1, -1] - inner[-1, :-1] @ np.linalg.solve(H, inner[:-1, -1])
        constant = (5 * m - p - 1) * np.log(2 * np.pi)
        return np.linalg.slogdet(V)[1].sum() + np.linalg.slogdet(H)[1] + left + constant

    here = criterion(fit.covariance_[0, 0], fit.noise_variance_)
    np.testing.assert_allclose(fit.criterion_, here, rtol=1e-9)
    for noise in (0.0, 0.9 * fit.noise_variance_, 1.1 * fit.noise_variance_ + 0.1):
        moved = fit.noise_variance_ - noise  # rows keep about their variance
        assert here < criterion(fit.covariance_[0, 0] + moved / (p + 1), noise) + 1e-6


def test_more_correlated_coefficients_than_groups_are_named():
    """Before the search, which takes long where they are many."""
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(60, 3)), rng.integers(0, 3, 60)
    y = X[:, 0] + rng.normal(size=3)[groups] + rng.normal(size=60)
    with pytest.warns(IdentificationWarning, match="3 groups have 4 coefficients each") as caught:
        fit = eb.LinearEB("full").fit(X, y, groups=groups)
    assert len(caught) == 1
    assert "covariance='diag'" in fit.notes_[0]
    diagonal = eb.LinearEB("diag").fit(X, y, groups=groups)
    assert not any("may be correlated" in note for note in diagonal.notes_)
