"""Weights of the rows of mixtures of regressions, by brute force and by repeated rows."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from scipy.special import logsumexp
from sklearn.base import clone

import ebfed as eb
from ebfed.testing.nodes import fit_on_nodes

RNG = np.random.default_rng(3)
M = 60
GROUPS = np.repeat(np.arange(M), 6)
X = RNG.normal(size=(6 * M, 1))
KIND = RNG.random(M) < 0.4
SLOPE = np.where(KIND, -2.0, 2.0)[GROUPS]
WEIGHTS = RNG.gamma(2.0, 1.0, 6 * M)
Y = 1 + SLOPE * X[:, 0] + RNG.normal(size=6 * M) / np.sqrt(WEIGHTS)
ESTIMATORS = {
    "lines": eb.MixtureLinearEB(2, random_state=0),
    "spread": eb.AdaMix(2, random_state=0),
}


def log_likelihood(fit):
    """Density of all rows, by covariance matrices of groups in each component."""
    spreads = getattr(fit, "variances_", np.zeros_like(fit.means_))
    total = 0.0
    for k in range(M):
        some = k == GROUPS
        design = np.column_stack([np.ones(some.sum()), X[some]])
        noise = fit.noise_variance_ * np.diag(1 / WEIGHTS[some])
        logs = [
            stats.multivariate_normal(design @ mean, (design * spread) @ design.T + noise).logpdf(
                Y[some]
            )
            for mean, spread in zip(fit.means_, spreads, strict=True)
        ]
        total += logsumexp(logs, b=fit.weights_)
    return total


@pytest.mark.parametrize("name", ESTIMATORS)
def test_likelihood_by_brute_force(name):
    fit = clone(ESTIMATORS[name]).fit(X, Y, groups=GROUPS, sample_weight=WEIGHTS)
    assert fit.log_likelihood_ == pytest.approx(log_likelihood(fit), rel=1e-8)
    assert fit.history_["log_likelihood"].iloc[-1] == pytest.approx(fit.log_likelihood_)
    assert_allclose(np.sort(fit.means_[:, 1]), [-2, 2], atol=0.2)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_equal_weights_change_the_noise_alone(name):
    plain = clone(ESTIMATORS[name]).fit(X, Y, groups=GROUPS)
    given = {"groups": GROUPS, "sample_weight": np.full(6 * M, 4.0)}
    equal = clone(ESTIMATORS[name]).fit(X, Y, **given)
    assert equal.noise_variance_ == pytest.approx(4 * plain.noise_variance_, rel=1e-5)
    assert_allclose(equal.means_, plain.means_, rtol=1e-4)
    assert equal.log_likelihood_ == pytest.approx(plain.log_likelihood_, rel=1e-7)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_same_from_wherever_rows_are(name, tmp_path):
    whole = clone(ESTIMATORS[name]).fit(X, Y, groups=GROUPS, sample_weight=WEIGHTS)
    frame = pd.DataFrame({"g": GROUPS, "x": X[:, 0], "y": Y, "w": WEIGHTS})
    fit = clone(ESTIMATORS[name]).fit(frame, "y", groups="g", sample_weight="w")
    assert fit.log_likelihood_ == pytest.approx(whole.log_likelihood_, rel=1e-12)
    assert_allclose(fit.posterior(frame).mean, whole.posterior().mean, rtol=1e-6)
    fit.save(tmp_path / "fit.json")
    assert_allclose(eb.load_fit(tmp_path / "fit.json").predict(frame), fit.predict(frame))
    rows = {"X": X, "y": Y, "groups": GROUPS, "sample_weight": WEIGHTS}
    half = GROUPS < 25
    nodes = [{key: x[some] for key, x in rows.items()} for some in (half, ~half)]
    fitted, *_ = fit_on_nodes(clone(ESTIMATORS[name]), nodes)
    assert fitted[0].log_likelihood_ == pytest.approx(whole.log_likelihood_, rel=1e-9)


def test_classes_are_counted():
    some = GROUPS < 20
    times, rows = RNG.integers(0, 3, some.sum()), (X[some], (Y[some] > 0) * 1, GROUPS[some])
    estimator = eb.AdaMixClassifier(2, n_init=1, random_state=0)
    one = clone(estimator).fit(*rows[:2], groups=rows[2], sample_weight=times)
    x, y, groups = (np.repeat(each, times, axis=0) for each in rows)
    other = clone(estimator).fit(x, y, groups=groups)
    assert one.log_likelihood_ == pytest.approx(other.log_likelihood_, rel=1e-9)
