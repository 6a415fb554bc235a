"""Weights of the rows of a regression: precisions, by brute force and from wherever rows are."""

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

import ebfed as eb
from ebfed.testing.nodes import fit_on_nodes

RNG = np.random.default_rng(0)
M = 30
GROUPS = np.repeat(np.arange(M), 8)
X = RNG.normal(size=(240, 1))
WEIGHTS = RNG.gamma(2.0, 1.0, 240)
THETA = np.column_stack([RNG.normal(1, 1, M), RNG.normal(2, 0.5, M)])
Y = THETA[GROUPS, 0] + THETA[GROUPS, 1] * X[:, 0] + RNG.normal(size=240) / np.sqrt(WEIGHTS)
FRAME = pd.DataFrame({"g": GROUPS, "x": X[:, 0], "y": Y, "w": WEIGHTS})
METHODS = "ml", "reml"


@pytest.fixture(scope="module")
def fits():
    return {
        method: eb.LinearEB(method=method).fit(X, Y, groups=GROUPS, sample_weight=WEIGHTS)
        for method in METHODS
    }


def log_likelihood(mean, covariance, noise, restricted=False):
    """Density of all rows by their covariance matrices; lme4's restricted one."""
    total, information = 0.0, 0.0
    for k in range(M):
        some = k == GROUPS
        design = np.column_stack([np.ones(some.sum()), X[some]])
        V = design @ covariance @ design.T + noise * np.diag(1 / WEIGHTS[some])
        total += stats.multivariate_normal(design @ mean, V).logpdf(Y[some])
        information = information + design.T @ np.linalg.solve(V, design)
    if restricted:
        total += np.log(2 * np.pi) - 0.5 * np.linalg.slogdet(information)[1]
    return total


@pytest.mark.parametrize("method", METHODS)
def test_likelihood_by_brute_force(method, fits):
    fit = fits[method]
    given = fit.mean_, fit.covariance_, fit.noise_variance_
    top = log_likelihood(*given, method == "reml")
    assert fit.log_likelihood_ == pytest.approx(top, rel=1e-12)
    for factor in (0.97, 1.03):  # and no other variances are more likely
        assert log_likelihood(given[0], factor * given[1], given[2], method == "reml") < top
        assert log_likelihood(given[0], given[1], factor * given[2], method == "reml") < top


def test_equal_weights_change_the_noise_alone():
    plain = eb.LinearEB().fit(X, Y, groups=GROUPS)
    equal = eb.LinearEB().fit(X, Y, groups=GROUPS, sample_weight=np.full(240, 3.0))
    assert equal.noise_variance_ == pytest.approx(3 * plain.noise_variance_, rel=1e-9)
    assert_allclose(equal.covariance_, plain.covariance_, rtol=1e-7)
    assert equal.log_likelihood_ == pytest.approx(plain.log_likelihood_, rel=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_the_same_from_wherever_rows_are(method, tmp_path, fits):
    whole, order = fits[method], RNG.permutation(240)
    shuffled = FRAME.iloc[order]
    for table in (
        FRAME,
        shuffled,
        pl.from_pandas(FRAME),
        pl.from_pandas(FRAME).lazy(),
        duckdb.sql("FROM FRAME"),
    ):
        fit = eb.LinearEB(method=method).fit(table, "y", groups="g", sample_weight="w")
        assert fit.log_likelihood_ == pytest.approx(whole.log_likelihood_, rel=1e-10)
        assert_allclose(fit.posterior().mean, whole.posterior().mean, rtol=1e-8)
        assert_array_equal(fit.clients_.n, whole.clients_.n)
        again = fit.posterior(table, groups="g")
        assert_allclose(again.mean, whole.posterior().mean, rtol=1e-8)
    series = pd.Series(WEIGHTS)[order]
    paired = eb.LinearEB(method=method)
    paired.fit(FRAME[["x"]], FRAME["y"], groups=FRAME["g"], sample_weight=series)
    assert paired.log_likelihood_ == pytest.approx(whole.log_likelihood_, rel=1e-12)
    blocks = eb.LinearEB(method=method)
    for part in np.array_split(np.arange(240), 3):
        blocks.partial_fit(X[part], Y[part], groups=GROUPS[part], sample_weight=WEIGHTS[part])
    assert blocks.log_likelihood_ == pytest.approx(whole.log_likelihood_, rel=1e-10)
    named = eb.LinearEB(method=method).fit(FRAME, "y", groups="g", sample_weight="w")
    named.save(tmp_path / "fit.json")
    loaded = eb.load_fit(tmp_path / "fit.json")
    assert loaded.log_likelihood_ == named.log_likelihood_
    assert_array_equal(loaded.predict(FRAME), named.predict(FRAME))
    assert_allclose(loaded.posterior(FRAME).mean, whole.posterior().mean, rtol=1e-8)
    sums = eb.LinearEB(method=method, share="sums")
    sums.fit(X, Y, groups=GROUPS, sample_weight=WEIGHTS)
    assert sums.log_likelihood_ == pytest.approx(whole.log_likelihood_, rel=1e-8)


@pytest.mark.parametrize("match_key", [None, b"k" * 32])
def test_nodes(match_key, fits):
    rows = {"X": X, "y": Y, "groups": GROUPS, "sample_weight": WEIGHTS}
    first = GROUPS < 12 if match_key is None else np.arange(240) % 2 == 0
    nodes = [{name: x[some] for name, x in rows.items()} for some in (first, ~first)]
    fitted, *_ = fit_on_nodes(eb.LinearEB(), nodes, match_key)
    for node in fitted:
        assert node.log_likelihood_ == pytest.approx(fits["reml"].log_likelihood_, rel=1e-10)
        at = fits["reml"].posterior().mean[node.groups_]
        assert_allclose(node.posterior().mean, at, rtol=1e-8)
    nodes[1].pop("sample_weight")
    with pytest.raises(ValueError, match=r"at all nodes, or at none|all nodes must state"):
        fit_on_nodes(eb.LinearEB(), nodes, match_key)


def test_formulas(fits):
    fit = eb.from_formula("y ~ x + (1 + x || g)", FRAME, weights="w")
    assert fit.log_likelihood_ == pytest.approx(fits["reml"].log_likelihood_, rel=1e-10)


class Unweighted(eb.LinearEB):
    """An estimator whose rows have no weights."""

    def fit(self, X, y, *, groups):
        return super().fit(X, y, groups=groups)


def test_formulas_refuse_weights_that_would_be_ignored():
    with pytest.raises(ValueError, match="Unweighted takes no weights of rows"):
        eb.from_formula("y ~ x | g", FRAME, Unweighted(), weights="w")


def test_a_row_of_weight_zero_is_left_out():
    weights = np.where(np.arange(240) % 5 == 0, 0.0, WEIGHTS)
    kept = weights > 0
    found = eb.LinearEB().fit(X, Y, groups=GROUPS, sample_weight=weights)
    alone = eb.LinearEB().fit(X[kept], Y[kept], groups=GROUPS[kept], sample_weight=weights[kept])
    assert found.log_likelihood_ == pytest.approx(alone.log_likelihood_, rel=1e-10)
    assert_array_equal(found.clients_.n, alone.clients_.n)
    assert_allclose(found.posterior().mean, alone.posterior().mean, rtol=1e-8)


def test_refused(fits):
    with pytest.raises(ValueError, match="sample_weight= must give the weight of each row"):
        fits["ml"].posterior(X, Y, groups=GROUPS)
    with pytest.raises(ValueError, match="sample_weight has 2 entries for the 240 rows"):
        eb.LinearEB().fit(X, Y, groups=GROUPS, sample_weight=[1.0, 2.0])
    with pytest.raises(ValueError, match=r"0 or more; row 1 has -1\.0"):
        eb.LinearEB().fit(X, Y, groups=GROUPS, sample_weight=np.where(np.arange(240) == 1, -1.0, 1))
    clients = eb.tables.Clients.from_rows(X, GROUPS, Y)
    with pytest.raises(ValueError, match="clients have rows without weights"):
        eb.LinearEB().fit(clients, sample_weight=WEIGHTS)


@pytest.mark.parametrize("options", [{}, {"share": "sums"}, {"covariance": "full"}])
@pytest.mark.parametrize("size", [1.0, 1e6])
def test_weights_of_any_size_and_columns_far_from_zero(size, options):
    """Columns are centred at their weighted means: by rows, weights of 1e6 left no digits."""
    far, weights = X + 2000.0, size * WEIGHTS
    near = eb.LinearEB(varying=["intercept"]).fit(X, Y, groups=GROUPS, sample_weight=WEIGHTS)
    fit = eb.LinearEB(varying=["intercept"], **options)
    fit.fit(far, Y, groups=GROUPS, sample_weight=weights)
    assert_allclose(fit.mean_[1], near.mean_[1], rtol=1e-6)
    error = np.sqrt(near.mean_covariance_[1, 1])
    assert_allclose(np.sqrt(fit.mean_covariance_[1, 1]), error, rtol=1e-6)
    assert fit.log_likelihood_ == pytest.approx(near.log_likelihood_, abs=1e-6)
    assert_allclose(fit.predict(far, groups=GROUPS), near.predict(X, groups=GROUPS), atol=1e-6)


def test_weights_of_any_size_of_groups_within_groups():
    data = FRAME.assign(x=FRAME.x + 2000.0, w=1e4 * FRAME.w, h=FRAME.g % 5)
    near = eb.from_formula("y ~ x + (1 | h/g)", FRAME.assign(h=FRAME.g % 5), weights="w")
    far = eb.from_formula("y ~ x + (1 | h/g)", data, weights="w")
    assert far.log_likelihood_ == pytest.approx(near.log_likelihood_, abs=1e-6)
    assert_allclose(far.predict(data), near.predict(FRAME.assign(h=FRAME.g % 5)), atol=1e-6)


def test_intervals_of_new_responses_have_their_weights():
    weights = RNG.integers(20, 200, 240).astype(float)
    scale = 3 / np.sqrt(weights)
    data = FRAME.assign(w=weights, y=X[:, 0] + THETA[GROUPS, 0] + scale * RNG.normal(size=240))
    data["h"] = GROUPS % 4
    own = eb.LinearEB(varying=["intercept"])
    own.fit(data[["x", "g", "w"]], data["y"], groups="g", sample_weight="w")
    by_estimator = own.predict_interval(data[["x", "g", "w"]])
    for formula in ("y ~ x + (1 | g)", "y ~ x + (1 | g) + (1 | h)"):
        fit = eb.from_formula(formula, data, weights="w")
        low, high = fit.predict_interval(data)
        reach = 1.96 * scale  # and what is not known of the mean
        assert ((high - low) / 2 > reach * 0.9).all()
        assert ((high - low) / 2 < 1.5 * reach + 1.0).all()
        assert 0.9 < np.mean((low <= data["y"]) & (data["y"] <= high)) < 0.99
        np.testing.assert_array_equal(fit.predict_interval(), (low, high))
        heavy = fit.predict_interval(data.assign(w=1e12))
        assert_allclose(heavy, fit.predict_interval(data, kind="mean"), atol=1e-4)
        with pytest.warns(UserWarning, match="rows of weight 1"):
            ones = fit.predict_interval(data.drop(columns="w"))
        assert_allclose(ones, fit.predict_interval(data.assign(w=1.0)))
        if "h" not in formula:
            assert_allclose(by_estimator, (low, high), rtol=1e-9)


@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize("settings", [{}, {"covariance": "full"}])
def test_groups_of_weight_zero_say_nothing_of_the_spread(settings, levels):
    """Six groups of 60 have weights: intervals are those of six."""
    rng, groups = np.random.default_rng(3), np.repeat(np.arange(60), 5)
    x, y = rng.normal(size=(2, 300))
    y += 0.4 * rng.normal(size=60)[groups]
    own, places = groups < 6, pd.DataFrame({"s": groups // 2, "g": groups}).iloc[:, -levels:]
    varying = ["intercept", 0] if settings else ["intercept"]
    some, alone = (eb.LinearEB(varying=varying, **settings) for _ in range(2))
    some.fit(x[:, None], y, groups=places, sample_weight=own.astype(float))
    alone.fit(x[own, None], y[own], groups=places[own], sample_weight=np.ones(30))
    for labels in (None, places[:8]):  # of new groups, and of two that have rows
        options = {"groups": labels, "kind": "mean"}
        found, known = (fit.predict_interval(x[:8, None], **options) for fit in (some, alone))
        np.testing.assert_allclose(found, known, rtol=1e-6)
