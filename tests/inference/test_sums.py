"""Sums over groups: equal to those of dense matrices of all rows."""

import numpy as np
import pandas as pd
import pytest

import ebfed as eb
from ebfed.inference import sums as module
from ebfed.regression.inferring import mixed_fit


def nested(covariance, levels):
    """Fit unbalanced rows of some levels; return the fit, X, y and the labels of each level."""
    rng = np.random.default_rng(0)
    n = 120
    labels = [rng.integers(0, 4, n), rng.integers(0, 3, n), rng.integers(0, 2, n)][:levels]
    paths = ["-".join(map(str, row)) for row in zip(*labels, strict=True)]
    numbers = np.unique(paths, return_inverse=True)[1]
    x, z = rng.normal(size=(2, n))
    y = 2 * rng.normal(size=4)[labels[0]] + rng.normal(size=numbers.max() + 1)[numbers] * (1 + x)
    y += x - z + rng.normal(size=n)
    rows = pd.DataFrame({"x": x, "z": z, "y": y})
    names = [f"g{j}" for j in range(levels)]
    for name, label in zip(names, labels, strict=True):
        rows[name] = label
    fit = eb.LinearEB(covariance, varying=["intercept", "x"])
    fit.fit(rows, "y", groups=names if levels > 1 else names[0])
    owners = [[tuple(row[: j + 1]) for row in zip(*labels, strict=True)] for j in range(levels)]
    return fit, np.column_stack([np.ones(n), x, z]), y, owners


@pytest.mark.parametrize("covariance", ["diag", "spherical", "full"])
@pytest.mark.parametrize("levels", [1, 2, 3])
def test_sums_are_those_of_dense_matrices(covariance, levels, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 20_000)  # several blocks
    fit, X, y, owners = nested(covariance, levels)
    model = mixed_fit(fit)
    covariances = [np.array([[1.3, 0.4], [0.4, 0.7]]) * (j + 1) for j in range(levels)]
    if covariance != "full":
        covariances = [np.diag(np.diag(G)) for G in covariances]
    found = model.sums(covariances, 0.8, second=True)
    slopes = []
    V = 0.8 * np.eye(len(y))
    for G, bases, paths in zip(covariances, model.bases, owners, strict=True):
        same = np.array([[a == b for b in paths] for a in paths])
        slopes += [same * (X[:, :2] @ base @ X[:, :2].T) for base in bases]
        V += same * (X[:, :2] @ G @ X[:, :2].T)
    slopes.append(np.eye(len(y)))
    inverse = np.linalg.inv(V)
    C = np.column_stack([X @ model.basis[0], y - X @ model.mean])
    np.testing.assert_allclose(found.log_det, np.linalg.slogdet(V)[1])
    np.testing.assert_allclose(found.inner, C.T @ inverse @ C, atol=1e-8)
    for a, one in enumerate(slopes):
        np.testing.assert_allclose(found.trace[a], np.trace(inverse @ one))
        first = C.T @ inverse @ one @ inverse @ C
        np.testing.assert_allclose(found.first[a], first, atol=1e-8 * np.abs(first).max())
        for b in range(a, len(slopes)):
            both = inverse @ one @ inverse @ slopes[b]
            np.testing.assert_allclose(found.pairs[a, b], np.trace(both))
            second = C.T @ both @ inverse @ C
            np.testing.assert_allclose(found.second[a, b], second, atol=1e-8 * np.abs(second).max())


def test_by_group_adds_up():
    fit, *_ = nested("full", 2)
    model = mixed_fit(fit)
    each = model.by_group(model.covariances, model.noise)
    assert len(each.log_det) == 4
    whole = model.fitted
    np.testing.assert_allclose(each.inner.sum(axis=0), whole.inner)
    np.testing.assert_allclose(each.first.sum(axis=0), whole.first, atol=1e-9)


def test_the_covariance_of_the_mean_is_that_of_the_fit():
    for levels in (1, 2, 3):
        fit, *_ = nested("full", levels)
        np.testing.assert_allclose(mixed_fit(fit).mean_covariance, fit.mean_covariance_, rtol=1e-6)


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
def test_what_is_identified_does_not_depend_on_units(unit):
    """Of a column far from zero: the intercept and the slope have degrees of freedom."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(8), 4)
    x = unit * (1e3 + rng.normal(size=32))
    y = x / unit + rng.normal(size=8)[groups] + rng.normal(size=32)
    fit = eb.LinearEB("diag", varying=["intercept"]).fit(x[:, None], y, groups=groups)
    assert mixed_fit(fit).identified(np.eye(2)).all()
    assert np.isfinite(fit.confint()[["conf.low", "conf.high"]].to_numpy()).all()
