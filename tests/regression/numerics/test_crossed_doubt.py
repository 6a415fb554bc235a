"""Spreads of crossed factors that rows do not tell from the fitted ones."""

import numpy as np
import pytest

import ebfed as eb
from ebfed.regression.families import Responses, family_named
from ebfed.regression.numerics.crossed_doubt import constant_within, spreads_near
from ebfed.regression.numerics.crossed_laplace import CrossedLaplace
from ebfed.regression.numerics.crossed_search import CrossedBlocks
from ebfed.regression.numerics.crossed_sums import CrossedDesign

SIZES = (12, 10)


def crossed(seed=0, spreads=(0.5, 0.3), family="poisson", level=1.0):
    """Counts, or shares of 10, of all pairs of two factors.

    Columns are of one factor, of the other, and of rows.
    """
    rng = np.random.default_rng(seed)
    a, b = (each.ravel() for each in np.meshgrid(*map(np.arange, SIZES), indexing="ij"))
    X = np.column_stack([rng.normal(size=12)[a], rng.normal(size=10)[b], rng.normal(size=120)])
    z = level + 0.3 * X.sum(axis=1)
    for codes, size, spread in zip((a, b), SIZES, spreads, strict=True):
        z = z + rng.normal(0, spread, size)[codes]
    if family == "poisson":
        return X, rng.poisson(np.exp(z)), [a, b]
    return X, rng.binomial(10, 1 / (1 + np.exp(-z))) / 10, [a, b]


def laplace(X, y, groups, family):
    design = CrossedDesign(groups, np.array(SIZES), [np.ones((len(X), 1))] * 2)
    columns = np.column_stack([np.ones(len(X)), X])
    weight, offset = np.full(len(y), 10.0 if family == "binomial" else 1.0), np.zeros(len(y))
    rows, blocks = Responses(y.astype(float), weight, offset), CrossedBlocks([[(0, 1)]] * 2, (1, 1))
    return CrossedLaplace(design, columns, family_named(family), rows, blocks)


@pytest.mark.parametrize("family", ["poisson", "binomial"])
def test_second_derivatives_are_those_of_differences(family):
    """Of the criterion, by steps of a twentieth of standard errors: to 1 %."""
    X, y, groups = crossed(family=family)
    model = laplace(X, y, groups, family)
    fit = model.fit()
    point = fit.point
    assert (point[:2] > 0).all()
    steps = np.diag(0.05 * np.sqrt(np.diag(fit.known)))

    def at(move):
        return model.mode(point + move).criterion

    bends = np.array(
        [[at(s + t) - at(s - t) - at(t - s) + at(-s - t) for t in steps] for s in steps]
    ) / np.outer(*2 * [2 * np.diag(steps)])
    size = np.sqrt(np.diag(fit.known))
    found = fit.known @ bends / 2 / np.outer(size, 1 / size)
    np.testing.assert_allclose(found, np.eye(6), atol=0.01)


@pytest.mark.parametrize("family", ["poisson", "binomial"])
def test_covariances_are_those_of_coefficients_if_the_spread_is_that(family):
    """By differences of slopes; the equations have the changes of them to 5 %."""
    X, y, groups = crossed(1, family=family)
    model = laplace(X, y, groups, family)
    fit = model.fit()
    near, roots = spreads_near(model, fit)
    assert len(roots) == len(near.weights) == 6
    theta, beta = np.split(fit.point, [2])

    def covariance(spreads, beta):
        bends = np.empty((4, 4))
        for j, step in enumerate(1e-3 * np.eye(4)):
            points = (np.concatenate([spreads, beta + s * step]) for s in (1, -1))
            up, down = (model.slope(point, model.mode(point))[2:] for point in points)
            bends[j] = (up - down) / 2e-3
        return 2 * np.linalg.inv((bends + bends.T) / 2)

    np.testing.assert_allclose(near.fitted, covariance(theta, beta), rtol=1e-2, atol=1e-4)
    turn = fit.known[2:, :2] @ np.linalg.inv(fit.known[:2, :2])
    for k, given, shift in zip(near.parameters, near.covariances, near.shifts, strict=True):
        moved = theta.copy()
        moved[k] += shift @ turn[:, k] / (turn[:, k] @ turn[:, k])
        exact = np.diag(covariance(moved, beta + shift))
        np.testing.assert_allclose(np.diag(given), exact, rtol=0.05)


@pytest.mark.parametrize("spread", [0.5, 0.0])
def test_of_nested_factors_they_are_those_of_levels(spread):
    """`GeneralizedEB` has the same likelihood, in other coordinates.

    Where regions of a nation have effects of the sum zero, the spread of nations is zero.
    """
    rng = np.random.default_rng(2)
    nation, region = np.repeat(np.arange(10), 30), np.repeat(np.arange(60), 5)
    X = np.column_stack([rng.normal(size=300), rng.normal(size=10)[nation]])
    z = 1 + 0.3 * X.sum(axis=1) + spread * rng.normal(size=10)[nation]
    own = rng.normal(0, 0.4, (10, 6))
    own -= own.mean(axis=1, keepdims=True)
    y = rng.poisson(np.exp(z + own.ravel()[region]))
    found = eb.CrossedEB(family="poisson").fit(X, y, groups=[nation, region])
    levels = eb.GeneralizedEB("poisson", varying=["intercept"])
    levels.fit(X, y, groups=[nation, region])
    assert (found.variances_["group1"] == 0) == (spread == 0)
    one, other = found.tests(), levels.tests()
    np.testing.assert_allclose(one["std.error"], other["std.error"], rtol=3e-3)
    np.testing.assert_allclose(one["df"].iloc[[0, 2]], other["df"].iloc[[0, 2]], rtol=0.02)
    np.testing.assert_allclose(one["df"], other["df"], rtol=0.1)


@pytest.mark.parametrize("level", [9.0, 14.0])
def test_of_large_counts_they_are_those_of_normal_rows(level):
    """Logarithms of counts above 1,000 are normal numbers; a level of each row is their noise.

    Columns of levels have the errors and degrees of a regression on these. Over spreads that are
    taken one after the other, errors are up to 4 % larger.
    """
    for seed in range(3):
        X, y, groups = crossed(seed, level=level)
        y = np.rint(y * np.exp(np.random.default_rng(seed).normal(0, 0.25, 120))).astype(int)
        counts = eb.CrossedEB(family="poisson").fit(X, y, groups=[*groups, np.arange(120)])
        normal = eb.CrossedEB().fit(X, np.log(y), groups=groups)
        assert counts.converged_
        found, expected = counts.tests().iloc[1:], normal.tests().iloc[1:]
        np.testing.assert_allclose(found["std.error"], expected["std.error"], rtol=0.05)
        np.testing.assert_allclose(found["df"], expected["df"], rtol=0.1)
        assert found["df"].iloc[:2].between(7, 12).all()


def test_a_spread_of_zero_is_not_known_to_be_zero():
    X, y, groups = crossed(5, spreads=(0.5, 0.0))
    fit = eb.CrossedEB(family="poisson").fit(X, y, groups=groups)
    assert fit.variances_["group2"] == 0
    found, plain = fit.tests(), fit.tests(ddf="asymptotic")
    assert found["std.error"].iloc[2] > 1.05 * plain["std.error"].iloc[2]
    assert found["df"].iloc[2] < 100


@pytest.mark.parametrize("family", ["gaussian", "poisson"])
@pytest.mark.parametrize("spread", [0.7, 0.3])
def test_intervals_of_few_levels_hold_the_effects(family, spread):
    """With the spreads as fitted, often zero, .77 and .73 of them did."""
    rng, inside = np.random.default_rng(7), []
    for _ in range(60):
        first, others = spread * rng.normal(size=6), 0.5 * rng.normal(size=5)
        groups = [np.repeat(np.arange(6), 6), rng.integers(0, 5, 36)]
        x = rng.normal(size=36)
        z = 0.5 + 0.5 * x + first[groups[0]] + others[groups[1]]
        y = rng.poisson(np.exp(z)) if family == "poisson" else z + rng.normal(size=36)
        fit = eb.CrossedEB(family=family).fit(x[:, None], y, groups=groups)
        low, high = fit.posterior("group1").interval(0.95)
        inside.append(np.mean((low[:, 0] <= first) & (first <= high[:, 0])))
    assert 0.92 < np.mean(inside) < 0.995  # its standard error is .012


@pytest.mark.parametrize("family", ["gaussian", "poisson"])
def test_a_spread_of_zero_leaves_effects_unknown(family, tmp_path):
    X, y, groups = crossed(5, spreads=(0.5, 0.0))
    fit = eb.CrossedEB(family=family).fit(X, y, groups=groups)
    assert fit.variances_["group2"] == 0
    posterior = fit.posterior("group2")
    assert not posterior.mean.any()
    assert (posterior.sd > 0.02).all()
    new = [groups[0][:5], np.full(5, 99)]
    design, _, codes = fit._placed(X[:5], new, None)
    assert (fit.std_errors(X[:5], groups=new) ** 2 > fit._fit.variance(design, codes)).all()
    fit.save(tmp_path / "fit.json")
    again = eb.load_fit(tmp_path / "fit.json").posterior("group2")
    np.testing.assert_allclose(again.sd, posterior.sd, rtol=1e-9)


def test_columns_that_are_constant_within_levels_are_counted():
    """Combinations are, too: the last column is of rows and of levels of the first factor."""
    X, y, groups = crossed()
    X[:, 1] = X[:, 2] + np.random.default_rng(9).normal(size=12)[groups[0]]
    model = laplace(X, y, groups, "poisson")
    sums = model.design.sums(np.random.default_rng(1).uniform(0.5, 2, 120), model.columns)
    assert constant_within(sums, 4, 0, 0) == 3
    assert constant_within(sums, 4, 1, 0) == 1


@pytest.mark.filterwarnings("ignore:The search for the variances did not converge")
@pytest.mark.parametrize("seed", [1, 25, 65, 103, 112])
def test_of_rows_that_levels_separate_they_are_finite(seed):
    """Small tables, in which searches had met equations without a solution."""
    rng = np.random.default_rng(seed)
    n, family = 40, ["poisson", "binomial"][seed % 2]
    a, b = rng.integers(0, 6, n), rng.integers(0, 3, n)
    z = rng.normal(-2, 1) + rng.normal(0, 6, 6)[a] + rng.normal(0, 3, 3)[b]
    z = np.minimum(z, 8)
    y = rng.poisson(np.exp(z)) if family == "poisson" else (z > 0).astype(int)
    fit = eb.CrossedEB(family=family).fit(rng.normal(size=(n, 2)), y, groups=[a, b])
    found = fit.tests()
    assert np.isfinite(found["p.value"]).all()
    assert (found["df"] > 1).all()


@pytest.mark.slow
@pytest.mark.parametrize("family", ["poisson", "binomial"])
def test_intervals_of_few_levels_hold_the_truth(family):
    """95 % intervals of the column of 8 levels, of 600 samples: less than 91 % have odds of 1e-4.

    Those by z hold less than 92.5 %.
    """
    held = np.zeros((600, 2))
    for seed in range(len(held)):
        rng = np.random.default_rng([seed, 7])
        a, b = np.repeat(np.arange(8), 20), np.tile(np.arange(20), 8)
        X = np.column_stack([rng.normal(size=8)[a], rng.normal(size=160)])
        z = 0.5 + 0.3 * X.sum(axis=1) + rng.normal(0, 0.6, 8)[a] + rng.normal(0, 0.4, 20)[b]
        y, trials = rng.poisson(np.exp(z)), None
        if family == "binomial":
            trials = np.full(160, 4)
            y = rng.binomial(trials, 1 / (1 + np.exp(-z)))
        fit = eb.CrossedEB(family=family).fit(X, y, groups=[a, b], trials=trials)
        for column, ddf in enumerate(("satterthwaite", "asymptotic")):
            ends = fit.confint(ddf=ddf).iloc[1]
            held[seed, column] = ends["conf.low"] <= 0.3 <= ends["conf.high"]
    by_t, by_z = held.mean(axis=0)
    assert by_t > 0.91
    assert by_z < 0.925


@pytest.mark.filterwarnings("ignore:The search for the variances did not converge")
@pytest.mark.filterwarnings("ignore:The classes are separated without error")
def test_without_a_maximum_nothing_is_near():
    X, _, groups = crossed()
    y = (X[:, 2] > 0).astype(int)
    fit = eb.CrossedEB(family="binomial").fit(X, y, groups=groups)
    assert not fit.converged_
    assert np.isinf(fit.tests()["df"]).all()
    with pytest.raises(ValueError, match="converged to a maximum of the likelihood; 'asymptotic'"):
        fit.tests(ddf="satterthwaite")
