"""Weights of the rows of a logistic regression: a row counts for so many."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

import ebfed as eb

RNG = np.random.default_rng(1)
M = 40
GROUPS = RNG.permutation(np.repeat(np.arange(M), 6))
X = RNG.normal(size=(240, 1))
LOGIT = RNG.normal(0.5, 1, M)[GROUPS] + RNG.normal(1, 0.5, M)[GROUPS] * X[:, 0]
Y = np.where(RNG.random(240) < 1 / (1 + np.exp(-LOGIT)), "yes", "no")
TIMES = RNG.integers(0, 4, 240)
REPEATED = [np.repeat(each, TIMES, axis=0) for each in (X, Y, GROUPS)]


@pytest.mark.parametrize("method", ["aghq", "laplace"])
def test_a_frequency_is_a_number_of_rows(method):
    estimator = eb.LogisticEB(method=method)
    one = clone(estimator).fit(X, Y, groups=GROUPS, sample_weight=TIMES)
    x, y, groups = REPEATED
    other = clone(estimator).fit(x, y, groups=groups)
    assert one.log_likelihood_ == pytest.approx(other.log_likelihood_, rel=1e-12)
    at = np.searchsorted(one.groups_, other.groups_)
    assert_array_equal(one.clients_.totals()[at], other.clients_.n)
    assert_allclose(one.mean_, other.mean_, rtol=1e-10)
    assert_allclose(one.posterior().mean[at], other.posterior().mean, rtol=1e-9)
    again = one.posterior(X, Y, groups=GROUPS, sample_weight=TIMES)
    assert_allclose(again.mean, one.posterior().mean, rtol=1e-9)
    blocks = clone(estimator)
    for part in np.array_split(np.arange(240), 2):
        blocks.partial_fit(
            X[part], Y[part], ["no", "yes"], groups=GROUPS[part], sample_weight=TIMES[part]
        )
    assert_allclose(blocks.mean_, one.mean_, rtol=1e-6)


def test_frames_and_formulas():
    frame = pd.DataFrame({"g": GROUPS, "x": X[:, 0], "y": (Y == "yes") * 1, "w": TIMES})
    whole = eb.LogisticEB().fit(X, (Y == "yes") * 1, groups=GROUPS, sample_weight=TIMES)
    for table in (frame, pl.from_pandas(frame)):
        fit = eb.LogisticEB().fit(table, "y", groups="g", sample_weight="w")
        assert_allclose(fit.mean_, whole.mean_, rtol=1e-10)
        assert_allclose(fit.posterior(table).mean, whole.posterior().mean, rtol=1e-9)
        assert_array_equal(fit.predict(table), whole.predict(X, groups=GROUPS))
    formula = eb.from_formula("y ~ x + (1 + x || g)", frame, family="binomial", weights="w")
    assert_allclose(formula.estimator_.mean_, whole.mean_, rtol=1e-9)
    counts = frame.assign(won=frame["y"] * 2, lost=2 - frame["y"] * 2)
    both = eb.from_formula("cbind(won, lost) ~ x + (1 + x || g)", counts, weights="w")
    twice = eb.LogisticEB().fit(X, frame["y"], groups=GROUPS, sample_weight=2 * TIMES)
    assert_allclose(both.estimator_.mean_, twice.mean_, rtol=1e-8)


def test_refused():
    with pytest.raises(ValueError, match=r"whole numbers.*row 0 has 0\.5"):
        eb.LogisticEB().fit(X, Y, groups=GROUPS, sample_weight=np.full(240, 0.5))
    with pytest.raises(ValueError, match="sample_weight has 3 entries"):
        eb.LogisticEB().fit(X, Y, groups=GROUPS, sample_weight=[1, 2, 3])
