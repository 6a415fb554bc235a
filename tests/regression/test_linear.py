"""LinearEB: against dense matrices, in simulation, and on rows that are hard."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

import ebfed as eb
from ebfed.regression.numerics.mixed_model import Problem
from ebfed.regression.posteriors.linear import CoefficientPosterior
from ebfed.tables.factors import Factors


def simulate(seed, m=60, sizes=(2, 12), sds=(1.0, 0.5, 0.3), noise=1.0, mean=(1.0, 2.0, -1.0)):
    """Rows of m groups with an intercept and two slopes."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(m), rng.integers(*sizes, m))
    X = rng.normal(size=(len(groups), 2))
    theta = mean + rng.normal(size=(m, 3)) * sds
    design = np.column_stack([np.ones(len(X)), X])
    y = np.einsum("np,np->n", design, theta[groups]) + noise * rng.normal(size=len(X))
    return X, y, groups, theta


def dense(estimator, X, y, groups, covariates=None):
    """Criterion, coefficients and their covariances from whole matrices (Henderson 1975)."""
    design = np.column_stack([np.ones(len(X)), X])
    m, p = groups.max() + 1, design.shape[1]
    T, noise = estimator.covariance_, estimator.noise_variance_
    Z = np.zeros((len(X), m * p))
    for i in range(m):
        Z[groups == i, i * p : (i + 1) * p] = design[groups == i]
    G = np.kron(np.eye(m), T)
    V = Z @ G @ Z.T + noise * np.eye(len(X))
    H = design.T @ np.linalg.solve(V, design)
    beta = np.linalg.solve(H, design.T @ np.linalg.solve(V, y))
    left = y - design @ beta
    u = G @ Z.T @ np.linalg.solve(V, left)
    criterion = np.linalg.slogdet(V)[1] + left @ np.linalg.solve(V, left)
    n = len(X)
    if estimator.method == "reml":
        criterion += np.linalg.slogdet(H)[1]
        n -= p
    inner = G - G @ Z.T @ np.linalg.solve(V, Z @ G)
    away = np.kron(np.ones((m, 1)), np.eye(p)) - G @ Z.T @ np.linalg.solve(V, design)
    covariance = inner + away @ np.linalg.inv(H) @ away.T
    blocks = [covariance[i * p : (i + 1) * p, i * p : (i + 1) * p] for i in range(m)]
    return criterion + n * np.log(2 * np.pi), beta + u.reshape(m, p), np.array(blocks)


@pytest.mark.parametrize("method", ["reml", "ml"])
@pytest.mark.parametrize("covariance", ["diag", "spherical", "full"])
def test_against_dense_matrices(covariance, method):
    X, y, groups, _ = simulate(1, m=25)
    estimator = eb.LinearEB(covariance, method=method).fit(X, y, groups=groups)
    criterion, coefficients, covariances = dense(estimator, X, y, groups)
    assert estimator.criterion_ == pytest.approx(criterion, abs=1e-8)
    posterior = estimator.posterior()
    np.testing.assert_allclose(posterior.mean, coefficients, atol=1e-9)
    # what not knowing the variances adds, by differences, is tested below
    known = CoefficientPosterior(
        estimator.clients_,
        estimator.mean_,
        estimator.mean_covariance_,
        estimator.covariance_,
        estimator.noise_variance_,
    )
    np.testing.assert_allclose(known.covariance, covariances, atol=1e-9)
    covariances = posterior.covariance
    np.testing.assert_allclose(posterior.sd, np.sqrt(np.einsum("npp->np", covariances)), atol=1e-9)
    assert np.all(posterior.sd >= known.sd)
    draws = posterior.sample(20_000, 0)
    # five standard errors of a covariance of 20,000 draws: a false alarm rate below 1e-4
    spread = np.einsum("snp,snq->npq", draws - posterior.mean, draws - posterior.mean) / 20_000
    assert np.abs(spread - covariances).max() < 5 * np.sqrt(2 / 20_000) * covariances.max()


@pytest.mark.parametrize("method", ["reml", "ml"])
@pytest.mark.parametrize("covariance", ["diag", "spherical", "full"])
def test_slope_of_the_criterion(covariance, method):
    X, y, groups, _ = simulate(2, m=12)
    factors = eb.LinearEB().fit(X, y, groups=groups).clients_
    problem = Problem(factors.rows, len(X), np.array([0, 2]), covariance, method, True)
    moves = {
        "diag": [np.diag([1.0, 0.0]), np.diag([0.0, 1.0])],
        "spherical": [np.eye(2)],
        "full": np.eye(4)[[0, 2, 3]].reshape(3, 2, 2),
    }[covariance]
    root = np.tensordot(np.random.default_rng(0).normal(size=len(moves)), moves, 1)

    def value(root):
        return problem.value(problem.whiten(root))

    slope = 2 * problem.slope(problem.whiten(root)) @ root
    for move in moves:
        numeric = (value(root + 1e-5 * move) - value(root - 1e-5 * move)) / 2e-5
        assert (slope * move).sum() == pytest.approx(numeric, rel=1e-6, abs=1e-6)


@pytest.mark.filterwarnings("ignore:Columns of X are collinear")
def test_random_intercept_is_gaussian_eb():
    rng = np.random.default_rng(4)
    groups = np.repeat(np.arange(40), rng.integers(1, 9, 40))
    y = rng.normal(size=40)[groups] + rng.normal(size=len(groups))
    means = eb.GaussianEB().fit(y, groups=groups)
    # no column but the intercept: one of zeros
    lines = eb.LinearEB(varying=["intercept"]).fit(np.zeros((len(y), 1)), y, groups=groups)
    assert lines.mean_[0] == pytest.approx(means.prior_.mean_[0], rel=1e-6)
    assert lines.covariance_[0, 0] == pytest.approx(means.prior_.variance_[0], rel=1e-4)
    assert lines.noise_variance_ == pytest.approx(means.noise_variance_[0], rel=1e-5)
    np.testing.assert_allclose(
        lines.posterior().mean[:, 0], means.posterior().mean[:, 0], atol=1e-5
    )


def test_units_do_not_matter():
    X, y, groups, _ = simulate(5)
    plain = eb.LinearEB("full").fit(X, y, groups=groups)
    units = np.array([1e-6, 1e5])
    scaled = eb.LinearEB("full").fit(X * units, 1e4 * y, groups=groups)
    inverse = 1e4 / np.concatenate(([1.0], units))
    np.testing.assert_allclose(scaled.posterior().mean, plain.posterior().mean * inverse, rtol=1e-4)
    np.testing.assert_allclose(
        scaled.covariance_, plain.covariance_ * np.outer(inverse, inverse), rtol=1e-3
    )


def test_fixed_columns_are_the_same_for_all():
    X, y, groups, _ = simulate(6)
    frame = pd.DataFrame(X, columns=["x", "z"]).assign(y=y, g=groups)
    estimator = eb.LinearEB(varying=["intercept", "x"]).fit(frame, "y", groups="g")
    means = estimator.posterior().mean
    assert np.ptp(means[:, 2]) < 1e-12
    assert np.ptp(means[:, 1]) > 0.1
    assert estimator.covariance_[2].tolist() == [0, 0, 0]
    none = eb.LinearEB(varying=[]).fit(frame, "y", groups="g")
    pooled = np.linalg.lstsq(np.column_stack([np.ones(len(X)), X]), y)[0]
    np.testing.assert_allclose(none.mean_, pooled, rtol=1e-9)


def test_prediction_and_intervals():
    X, y, groups, _ = simulate(7)
    estimator = eb.LinearEB("full").fit(X, y, groups=groups)
    design = np.column_stack([np.ones(len(X)), X])
    theta = estimator.posterior().mean
    np.testing.assert_allclose(
        estimator.predict(X, groups=groups), np.einsum("np,np->n", design, theta[groups])
    )
    covariance = estimator.posterior().covariance[groups]
    low, high = estimator.predict_interval(X, groups=groups, kind="mean")
    half = 1.959964 * np.sqrt(np.einsum("np,npq,nq->n", design, covariance, design))
    np.testing.assert_allclose((high - low) / 2, half, rtol=1e-6)
    wide = estimator.predict_interval(X, groups=groups)
    assert np.all(wide[1] - wide[0] > high - low)
    new = estimator.predict_interval(X, groups=np.full(len(X), -1), kind="mean")
    everyone = estimator.predict_interval(X, kind="mean")
    np.testing.assert_allclose(new, everyone)
    assert np.all(new[1] - new[0] > high - low)
    for wrong in ({"level": 2}, {"kind": "x"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            estimator.predict_interval(X, groups=groups, **wrong)


def test_covariates_are_interactions():
    X, y, groups, _ = simulate(8)
    w = np.random.default_rng(0).normal(size=60)
    estimator = eb.LinearEB(varying=["intercept", 0]).fit(X, y, groups=groups, covariates=w)
    more = np.column_stack([X, w[groups], X[:, 0] * w[groups]])
    by_hand = eb.LinearEB(varying=["intercept", 0]).fit(more, y, groups=groups)
    assert estimator.criterion_ == pytest.approx(by_hand.criterion_, abs=1e-6)
    np.testing.assert_allclose(estimator.population_coef_[:, 0], by_hand.mean_[3:], rtol=1e-5)
    np.testing.assert_allclose(
        estimator.predict(X, groups=groups), by_hand.predict(more, groups=groups), rtol=1e-5
    )
    theta = estimator.posterior().mean
    np.testing.assert_allclose(
        np.einsum("np,np->n", np.column_stack([np.ones(len(X)), X]), theta[groups]),
        estimator.predict(X, groups=groups),
        rtol=1e-9,
    )
    new = estimator.posterior(groups=[1000], covariates=[0.5])
    slopes = estimator.mean_ + np.append(0.5 * estimator.population_coef_[:, 0], 0)
    np.testing.assert_allclose(new.mean[0], slopes)
    with pytest.raises(ValueError, match="1000 was not in the fit"):
        estimator.posterior(groups=[1000])
    with pytest.raises(ValueError, match="partial_fit takes no covariates"):
        estimator.partial_fit(X, y, groups=groups)
    with pytest.raises(ValueError, match="had no covariates"):
        by_hand.predict(more, groups=groups, covariates=w)


def test_covariates_from_columns():
    polars = pytest.importorskip("polars")
    X, y, groups, _ = simulate(9)
    w = np.random.default_rng(0).normal(size=60)
    labels = np.array([f"g{i:02d}" for i in range(60)])
    table = {"x": X[:, 0], "z": X[:, 1], "y": y, "g": labels[groups], "w": w[groups]}
    plain = eb.LinearEB().fit(X, y, groups=groups, covariates=w)
    for library in (pd.DataFrame, polars.DataFrame):
        frame = library(table)
        estimator = eb.LinearEB().fit(frame, "y", groups="g", covariates=["w"])
        np.testing.assert_allclose(estimator.predict(frame), plain.predict(X, groups=groups))
        shown = estimator.posterior(frame).to_frame()
        assert isinstance(shown, library)
        np.testing.assert_allclose(np.asarray(shown["estimate"]), plain.posterior().mean.ravel())
        assert "x:w" in list(estimator.tidy()["term"])
    with pytest.raises(ValueError, match="constant within groups"):
        eb.LinearEB().fit(pd.DataFrame(table), "y", groups="g", covariates=["x"])


def test_descent_replicates_and_warns():
    X, y, groups, theta = simulate(10, sds=(0.5, 0.5, 0.5), sizes=(10, 11))
    with pytest.warns(ConvergenceWarning, match="no minimum"):
        estimator = eb.LinearEB(
            "spherical", solver="gradient", learning_rate=0.01, n_steps=500
        ).fit(X, y, groups=groups)
    path = estimator.history_["objective"]
    assert len(path) == 500
    assert path.iloc[-1] < path.iloc[0]
    assert any("no minimum" in note for note in estimator.notes_)
    # stopped early it still helps; the marginal likelihood does better
    best = eb.LinearEB("spherical").fit(X, y, groups=groups)
    errors = [((e.posterior().mean - theta) ** 2).sum(axis=1).mean() for e in (estimator, best)]
    assert errors[1] <= errors[0] < 1.2 * errors[1]
    far = eb.LinearEB("spherical", solver="gradient", learning_rate=1e4)
    with pytest.raises(ValueError, match="diverged"), np.errstate(all="ignore"):
        far.fit(X, y, groups=groups)
    with pytest.raises(ValueError, match="needs covariance='spherical'"):
        eb.LinearEB(solver="gradient").fit(X, y, groups=groups)


def test_joint_objective_is_unbounded():
    """Its spread collapses, whatever the data: the longer one descends, the more."""
    X, y, groups, _ = simulate(11, m=20, sds=(0.2, 0.2, 0.2))
    spreads = []
    for n_steps in (100, 2000):
        estimator = eb.LinearEB("spherical", solver="gradient", learning_rate=0.01, n_steps=n_steps)
        with pytest.warns(ConvergenceWarning):
            spreads.append(estimator.fit(X, y, groups=groups).covariance_[0, 0])
    assert spreads[1] < 0.1 * spreads[0]


@pytest.mark.parametrize(
    ("covariance", "sds"),
    [("diag", (1.0, 0.5, 0.3)), ("spherical", (0.5,) * 3), ("full", (1, 0.5, 0.3))],
)
def test_coverage(covariance, sds):
    """Mean coverage over 200 groups, 3 coefficients and 12 draws: s.e. about .4 %."""
    hits = []
    for seed in range(12):
        X, y, groups, theta = simulate(seed, m=200, sds=sds)
        estimator = eb.LinearEB(covariance).fit(X, y, groups=groups)
        low, high = estimator.posterior().interval()
        hits.append(np.mean((low <= theta) & (theta <= high)))
    assert 0.93 <= np.mean(hits) <= 0.97


def test_new_rows_are_covered():
    hits = []
    for seed in range(8):
        X, y, groups, _ = simulate(seed, m=100, sizes=(6, 16))
        held = np.random.default_rng(seed).random(len(y)) < 0.2
        estimator = eb.LinearEB().fit(X[~held], y[~held], groups=groups[~held])
        low, high = estimator.predict_interval(X[held], groups=groups[held])
        hits.append(np.mean((low <= y[held]) & (y[held] <= high)))
    # some 1,600 rows: s.e. .5 %
    assert 0.93 <= np.mean(hits) <= 0.97


def test_known_hyperparameters_are_nearly_reached():
    """Theorem 7's risk with everything known, and what estimating costs: under 1.5 % here."""
    gaps = []
    for seed in range(10):
        X, y, groups, theta = simulate(seed, m=400, sizes=(6, 7), sds=(0.5,) * 3)
        estimator = eb.LinearEB("spherical").fit(X, y, groups=groups)
        risk = ((estimator.posterior().mean - theta) ** 2).sum()
        known = CoefficientPosterior(
            estimator.clients_, np.array([1.0, 2.0, -1.0]), np.zeros((3, 3)), 0.25 * np.eye(3), 1.0
        )
        gaps.append(risk / ((known.mean - theta) ** 2).sum() - 1)
    assert np.mean(gaps) < 0.015


GROUPS = np.arange(60) % 12
X60 = np.random.default_rng(0).normal(size=(60, 2))
Y60 = X60 @ [1, 2] + np.random.default_rng(1).normal(size=60)


@pytest.mark.parametrize(
    ("X", "y", "groups", "match"),
    [
        (np.where(X60 > 2, np.nan, X60), Y60, GROUPS, "X contains NaN"),
        (X60, np.where(Y60 > 2, np.nan, Y60), GROUPS, "y contains NaN"),
        (X60 * 1e307, Y60, GROUPS, "too large"),
        (X60, Y60 * 1e100, GROUPS, "y holds a value too large"),
        (X60, Y60 * 1e-100, GROUPS, "must not be larger"),
        (np.array([["a"]] * 60), Y60, GROUPS, "could not convert"),
        (X60, np.array(["a"] * 60), GROUPS, "y must be numbers"),
        (X60, None, GROUPS, "requires y"),
        (X60, Y60, GROUPS[:5], "5 entries for the 60 rows"),
        (X60, Y60[:5], GROUPS, "inconsistent numbers of samples"),
        (X60[:0], Y60[:0], GROUPS[:0], "0 sample"),
    ],
)
def test_bad_rows(X, y, groups, match):
    with pytest.raises((ValueError, TypeError), match=match):
        eb.LinearEB().fit(X, y, groups=groups)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"covariance": "x"}, "covariance must be"),
        ({"method": "x"}, "method must be"),
        ({"solver": "x"}, "solver must be"),
        ({"varying": ["q"]}, "varying must name columns of .* got .q."),
        ({"varying": "x0"}, "varying must be"),
        ({"varying": [True, False]}, "varying must name"),
    ],
)
def test_bad_arguments(arguments, match):
    with pytest.raises((ValueError, TypeError), match=match):
        eb.LinearEB(**arguments).fit(X60, Y60, groups=GROUPS)


@pytest.mark.filterwarnings("ignore:Columns of X are collinear")
@pytest.mark.parametrize(
    ("X", "y", "groups", "note"),
    [
        (X60, np.ones(60), GROUPS, "explain all rows"),
        (X60, X60 @ [1, 2], GROUPS, "explain all rows"),
        (np.column_stack([X60, np.ones(60)]), Y60, GROUPS, "collinear"),
        (np.column_stack([X60, np.zeros(60)]), Y60, GROUPS, "collinear"),
        (np.column_stack([X60, X60[:, 0]]), Y60, GROUPS, "collinear"),
        (np.random.default_rng(0).normal(size=(60, 80)), Y60, GROUPS, "collinear"),
    ],
)
@pytest.mark.filterwarnings("ignore:There are no more rows than mean coefficients")
def test_degenerate_rows(X, y, groups, note):
    estimator = eb.LinearEB().fit(X, y, groups=groups)
    assert any(note in each for each in estimator.notes_)
    posterior = estimator.posterior()
    assert np.isfinite(posterior.mean).all()
    assert np.isfinite(posterior.sd).all()


@pytest.mark.filterwarnings("ignore:Columns of X are collinear")
@pytest.mark.parametrize("arguments", [{}, {"share": "sums"}, {"covariance": "full"}])
@pytest.mark.parametrize("groups", [[0, 0, 1], [["a", "a", "b"], [0, 1, 0]]])
@pytest.mark.filterwarnings("ignore:No group of level 'group' has two rows")
def test_as_many_rows_as_coefficients_tell_nothing_of_the_noise(arguments, groups):
    if arguments.get("share") and len(groups) == 2:
        pytest.skip("sums are of groups of one level")
    X, y = [[1.0, 0.0], [2.0, 1.0], [4.0, -1.0]], [1.0, 2.0, 0.0]
    with pytest.warns(eb.IdentificationWarning, match="no more rows than mean coefficients"):
        estimator = eb.LinearEB(**arguments).fit(X, y, groups=groups)
    assert estimator.noise_variance_ == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error", eb.IdentificationWarning)
        eb.LinearEB(**arguments).fit(X60, Y60, groups=GROUPS)


@pytest.mark.parametrize("groups", [np.zeros(60, int), np.arange(60)], ids=["one", "each"])
def test_spread_that_is_not_identified(groups):
    with pytest.warns(eb.IdentificationWarning, match="not identified"):
        estimator = eb.LinearEB().fit(X60, Y60, groups=groups)
    assert not estimator.covariance_.any()
    pooled = np.linalg.lstsq(np.column_stack([np.ones(60), X60]), Y60)[0]
    np.testing.assert_allclose(estimator.mean_, pooled)


def test_tiny_and_huge_units_are_fine():
    plain = eb.LinearEB().fit(X60, Y60, groups=GROUPS)
    scaled = eb.LinearEB().fit(X60 * 1e50, Y60 * 1e-50, groups=GROUPS)
    np.testing.assert_allclose(
        scaled.predict(X60 * 1e50, groups=GROUPS) * 1e50,
        plain.predict(X60, groups=GROUPS),
        rtol=1e-4,
    )


def test_groups_of_a_block_of_factors():
    factors = Factors.of(
        eb.tables.Clients.from_rows(np.column_stack([np.ones(60), X60]), GROUPS, Y60)
    )
    estimator = eb.LinearEB().fit(X60, Y60, groups=GROUPS)
    np.testing.assert_array_equal(estimator.clients_.rows, factors.rows)
    assert estimator.groups_.tolist() == list(range(12))


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_tables_that_are_not_in_memory(fit_intercept):
    """Products of columns lose some digits that factors keep, more of means far from zero."""
    polars = pytest.importorskip("polars")
    duckdb = pytest.importorskip("duckdb")
    X, y, groups, _ = simulate(12)
    X[:, 0] += 10
    frame = pd.DataFrame(X, columns=["x", "z"]).assign(y=y, g=groups)
    plain = eb.LinearEB("full", fit_intercept=fit_intercept).fit(frame, "y", groups="g")
    for table in (polars.DataFrame(frame).lazy(), duckdb.from_df(frame)):
        lazy = eb.LinearEB("full", fit_intercept=fit_intercept).fit(table, "y", groups="g")
        assert lazy.criterion_ == pytest.approx(plain.criterion_, abs=1e-6)
        np.testing.assert_allclose(lazy.predict(frame), plain.predict(frame), rtol=1e-5, atol=1e-5)
        again = lazy.posterior(table, groups="g")
        np.testing.assert_allclose(again.mean, plain.posterior().mean, rtol=1e-5, atol=1e-5)
        with pytest.raises(ValueError, match="y must name a column"):
            eb.LinearEB().fit(table, y, groups="g")
        with pytest.raises(ValueError, match="y='w' is not a column"):
            eb.LinearEB().fit(table, "w", groups="g")


def test_full_is_no_worse_than_diagonal():
    """Slopes far larger than the others' spread, and uncentred: the root passes a saddle."""
    m = 250
    groups = np.repeat(np.arange(m), 3)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = rng.normal(5, 1, size=(3 * m, 2))
        theta = rng.normal(size=(m, 3)) * [10, 10, 300]
        design = np.column_stack([np.ones(3 * m), X])
        y = np.einsum("np,np->n", design, theta[groups]) + rng.normal(size=3 * m)
        full, diag = (eb.LinearEB(c).fit(X, y, groups=groups) for c in ("full", "diag"))
        assert full.criterion_ <= diag.criterion_ + 1e-6


@pytest.mark.parametrize(("few", "slope", "seed"), [(2, 5, 54), (3, 2, 122)])
def test_two_minima(few, slope, seed):
    """300 groups, of many rows and of few, ask for different variances, for slopes differ too."""
    rng, m = np.random.default_rng(seed), 300
    groups = np.repeat(np.arange(m), np.where(np.arange(m) < 30, 100, few))
    x = rng.standard_t(2, len(groups))
    y = rng.normal(0, 0.2, m)[groups] + slope * rng.normal(size=m)[groups] * x
    y += rng.normal(size=len(groups))
    found, searched = (
        eb.LinearEB(covariance, varying=["intercept"]).fit(x[:, None], y, groups=groups)
        for covariance in ("diag", "spherical")
    )
    # the search for a common variance tries all sizes
    assert found.criterion_ == pytest.approx(searched.criterion_, abs=1e-4), "other: 30 above"


@pytest.mark.parametrize(("seed", "sizes"), [(49, (150, 23, 1)), (56, (800, 38, 3))])
def test_the_better_minimum_may_be_at_zero_or_not(seed, sizes):
    """Of few groups with 300 rows and many with few: the criterion is compared with a grid."""
    rng = np.random.default_rng(seed)
    m, many, few = sizes
    groups = np.repeat(np.arange(m), np.where(np.arange(m) < many, 300, few))
    x = rng.standard_t(2, len(groups))
    y = rng.normal(0, 0.05, m)[groups] + 5 * rng.normal(size=m)[groups] * x
    y += rng.normal(size=len(groups))
    fit = eb.LinearEB(varying=["intercept"]).fit(x[:, None], y, groups=groups)
    searched = eb.LinearEB("spherical", varying=["intercept"]).fit(x[:, None], y, groups=groups)
    assert fit.criterion_ == pytest.approx(searched.criterion_, abs=1e-4)


@pytest.mark.parametrize("offset", [1e5, 1e7])
def test_means_that_dwarf_the_spread(offset):
    """A full covariance does not depend on where zero is."""
    X, y, groups, _ = simulate(13)
    plain = eb.LinearEB("full").fit(X, y, groups=groups)
    moved = eb.LinearEB("full").fit(X + offset, y + offset, groups=groups)
    assert moved.criterion_ == pytest.approx(plain.criterion_, abs=1e-5)
    assert moved.noise_variance_ == pytest.approx(plain.noise_variance_, rel=1e-6)
    # the posterior's own matrices are of squares, and lose digits
    np.testing.assert_allclose(
        moved.predict(X + offset, groups=groups) - offset,
        plain.predict(X, groups=groups),
        atol=3e-9 * offset,
    )


@pytest.mark.parametrize(("m", "n"), [(8, 5), (15, 5), (30, 4)])
def test_coverage_with_few_groups(m, n):
    """Variances near zero, estimated from little: 60 runs, s.e. 1.5 % or less."""
    hits = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        groups = np.repeat(np.arange(m), n)
        theta = np.sqrt(0.1) * rng.normal(size=m)
        X = rng.normal(size=(m * n, 1))
        y = theta[groups] + rng.normal(size=m * n)
        estimator = eb.LinearEB(varying=["intercept"]).fit(X, y, groups=groups)
        low, high = estimator.posterior().interval()
        hits.append(np.mean((low[:, 0] <= theta) & (theta <= high[:, 0])))
    assert np.mean(hits) > 0.925


def test_intervals_of_groups_are_no_wider_than_by_their_own_rows():
    """However little is known of a variance that is estimated as zero, rows of groups are there."""
    rng, groups = np.random.default_rng(0), np.repeat(np.arange(8), 4)
    x, y = rng.normal(size=(2, 32))
    y -= (np.bincount(groups, y) / 4)[groups]  # groups are alike
    fit = eb.LinearEB(varying=["intercept"]).fit(x[:, None], y, groups=groups)
    assert fit.covariance_[0, 0] == 0
    excess = 2 / (32 - 2 - 2)  # of noise that may be larger
    own = fit.noise_variance_ * (1 + excess) / 4 + fit.mean_covariance_[0, 0]
    assert (fit.posterior().sd[:, 0] < np.sqrt(own)).all()


@pytest.mark.parametrize("seed", [0, 3, 7])
def test_intervals_of_means_are_nearly_those_of_crossed_factors(seed):
    """Which average over values of each spread: within 15 %, where that of parents is zero."""
    rng, groups = np.random.default_rng(seed), np.repeat(np.arange(16), 5)
    rows = pd.DataFrame({"s": groups // 4, "g": groups})
    rows["x"], rows["y"] = rng.normal(size=(2, 80))
    rows["y"] += 0.6 * rng.normal(size=16)[groups]
    nested = eb.LinearEB(varying=["intercept"]).fit(rows, "y", groups=["s", "g"])
    crossed = eb.CrossedEB().fit(rows, "y", groups=["s", "g"])
    low, high = nested.predict_interval(rows, kind="mean")
    least, most = crossed.predict_interval(rows, kind="mean")
    assert crossed.variances_["s"] == 0
    np.testing.assert_allclose(high - low, most - least, rtol=0.15)


@pytest.mark.filterwarnings("ignore:Columns of X are collinear")
def test_log_likelihood_is_that_of_gaussian_eb():
    _, y, groups, _ = simulate(14)
    w = np.random.default_rng(0).normal(size=60)
    for method in ("reml", "ml"):
        lines = eb.LinearEB(varying=["intercept"], method=method)
        lines.fit(np.zeros((len(y), 1)), y, groups=groups, covariates=w)
        means = eb.GaussianEB(method=method).fit(y, groups=groups, covariates=w)
        assert lines.log_likelihood_ == pytest.approx(means.log_likelihood_, abs=1e-3)


@pytest.mark.filterwarnings("ignore:Columns of X are collinear")
def test_restricted_likelihood_does_not_count_columns_that_others_imply():
    """lme4 leaves them out; whatever the units of the others, and their places."""
    _, y, groups, _ = simulate(16)
    x, z = np.random.default_rng(0).normal(size=(2, len(y)))
    fits = [
        eb.LinearEB(varying=["intercept"]).fit(np.column_stack(columns), y, groups=groups)
        for columns in [(x, 1e3 * z), (x, 3 * x - 2, 1e3 * z), (x, 0 * x, 1e3 * z, x + 1e3 * z)]
    ]
    for fit in fits:
        assert fit.log_likelihood_ == pytest.approx(fits[0].log_likelihood_, abs=1e-6)
        assert fit.n_parameters_ == 5


def test_server_predicts_new_groups():
    X, y, groups, _ = simulate(15)
    estimator, server = eb.LinearEB(), eb.LinearEB()
    clients, memory = estimator.protocol().prepare(X, y, groups=groups)
    state = server.protocol().start(
        estimator.protocol().describe(clients, memory), np.zeros(2, np.uint64)
    )
    message, _ = estimator.protocol().local(
        server.protocol().broadcast(state), memory, clients, None
    )
    server.protocol().conclude(server.protocol().update(state, message))
    fitted = eb.LinearEB().fit(X, y, groups=groups)
    np.testing.assert_allclose(server.predict(X), fitted.predict(X))
    np.testing.assert_allclose(server.posterior(X, y, groups=groups).mean, fitted.posterior().mean)
    with pytest.raises(ValueError, match="X must be given"):
        server.posterior()


def test_clients_without_rows_are_clients():
    X, y, groups, _ = simulate(16, m=10)
    clients = eb.tables.Clients.from_rows(X, groups, y)
    indptr = np.append(clients.indptr, clients.indptr[-1])
    more = eb.tables.Clients(np.arange(11), indptr, clients.X, clients.y)
    estimator = eb.LinearEB().fit(more)
    assert estimator.groups_.tolist() == list(range(11))
    np.testing.assert_allclose(estimator.posterior().mean[-1], estimator.mean_)


def test_covariates_of_known_groups_are_those_of_the_fit():
    X, y, groups, _ = simulate(17)
    w = np.random.default_rng(0).normal(size=60)
    estimator = eb.LinearEB().fit(X, y, groups=groups, covariates=w)
    plain = estimator.posterior(groups=[3]).mean
    np.testing.assert_array_equal(estimator.posterior(groups=[3], covariates=[9.0]).mean, plain)
    table = pd.DataFrame({"group": [1000], "w0": [1.0]})
    mixed = estimator.posterior(groups=[3, 1000], covariates=table)
    np.testing.assert_allclose(mixed.mean[:1], plain)
    with pytest.raises(ValueError, match="rows without groups need covariates"):
        estimator.predict(X)
    with pytest.raises(ValueError, match="1 entries for the 9 rows"):
        estimator.predict(X[:9], groups=[3])
    both = estimator.predict(X[:2], covariates=[0.0, 1.0])
    assert both.shape == (2,)
    assert np.isfinite(estimator.score(X, y, groups=groups + 100, covariates=w))


@pytest.mark.filterwarnings("ignore:Columns of X are collinear")
@pytest.mark.parametrize("groups", ["g", "h/g"])
def test_effects_of_collinear_columns_have_the_size_of_their_sum(groups):
    """Rows do not tell them apart: variances of each grew to 1e8, with effects that cancel."""
    rng = np.random.default_rng(1)
    g, h, x = np.repeat(np.arange(30), 6), np.repeat(np.arange(6), 30), rng.normal(size=180)
    effects = rng.normal(size=(30, 2))[g] * [0.7, 0.5] + rng.normal(size=(6, 1))[h]
    y = 1 + x + effects[:, 0] + effects[:, 1] * x + rng.normal(size=180)
    table = pd.DataFrame({"y": y, "x": x, "z": 2 * x - 1, "g": g, "h": h})
    one = eb.from_formula(f"y ~ x + z + (1 + x | {groups})", table)
    both = eb.from_formula(f"y ~ x + z + (1 + x + z | {groups})", table)
    # the search ends within 1e-8 of the least
    assert both.log_likelihood_ == pytest.approx(one.log_likelihood_, abs=1e-7)
    np.testing.assert_allclose(both.predict(table), one.predict(table), atol=1e-3)
    spreads = both.tidy("ran_pars").set_index("term").filter(like="sd__", axis=0)
    assert spreads["estimate"].max() < 2


def test_intervals_of_few_groups_hold_known_and_new_ones():
    """With the variance as fitted, those of new groups held .86 of the means."""
    rng, known, new = np.random.default_rng(3), [], []
    for _ in range(120):
        groups, x = np.repeat(np.arange(6), 6), rng.normal(size=36)
        effects = rng.normal(0, 0.7, 206)
        y = 0.5 + 0.5 * x + effects[groups] + rng.normal(size=36)
        fit = eb.LinearEB(varying=["intercept"]).fit(x[:, None], y, groups=groups)
        for inside, own in ((known, np.arange(6)), (new, np.arange(6, 206))):
            zero = np.zeros((len(own), 1))
            low, high = fit.predict_interval(zero, groups=own, kind="mean")
            inside.append(np.mean((low <= 0.5 + effects[own]) & (0.5 + effects[own] <= high)))
    for inside in (known, new):  # standard errors are .007
        assert 0.93 < np.mean(inside) < 0.99
