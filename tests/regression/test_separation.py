"""Separation by rows: every table that has it, and no other."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import linprog

import ebfed as eb
from ebfed.regression.separation import direction_without_end
from ebfed.testing.nodes import fit_on_nodes


def told(model, X, y, groups):
    """Warnings of coefficients without a finite estimate."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit = model.fit(X, y, groups=groups)
    texts = [str(each.message) for each in caught]
    kept = [text for text in texts if "without end" in text or "without error" in text]
    assert [note for note in fit.notes_ if "without e" in note] == kept
    return kept


def models(family):
    if family == "crossed":
        return eb.CrossedEB(family="binomial")
    if family == "logistic":
        return eb.LogisticEB(varying=["intercept"])
    return eb.GeneralizedEB(family, varying=["intercept"])


def table(family, m, seed):
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(m), 10)
    x = rng.normal(size=10 * m)
    z = 0.5 * x - 0.5 + rng.normal(0, 0.5, m)[groups]
    y = {
        "poisson": rng.poisson(np.exp(z)),
        "negative_binomial": rng.poisson(np.exp(z) * rng.gamma(2, 0.5, len(z))),
        "ordinal": 1 + np.digitize(z + rng.logistic(size=len(z)), [0.0, 1.0]),
    }.get(family, rng.random(len(z)) < 1 / (1 + np.exp(-z)))
    labels = groups if family != "crossed" else [groups, rng.integers(0, 8, len(z))]
    return rng, x, y.astype(float), labels


@pytest.mark.parametrize("n_rows", [1, 4, 20])
@pytest.mark.parametrize(
    "family", ["binomial", "logistic", "poisson", "negative_binomial", "ordinal", "crossed"]
)
def test_a_kind_of_rows_without_an_event(family, n_rows):
    """Of 1 to 20 rows of 120: the former rule, of information, missed it in 28 of 48."""
    rng, x, y, labels = table(family, 12, n_rows)
    kind = np.zeros(len(x))
    kind[rng.choice(len(x), n_rows, replace=False)] = 1.0
    y[kind > 0] = 1.0 if family == "ordinal" else 0.0
    found = told(models(family), pd.DataFrame({"x": x, "kind": kind}), y, labels)
    assert len(found) == 1
    assert "'kind'" in found[0]
    assert "'x'" not in found[0]


@pytest.mark.parametrize("family", ["binomial", "poisson", "ordinal", "crossed"])
def test_ordinary_rows_are_not_separated(family):
    for seed in range(3):
        rng, x, y, labels = table(family, 12, seed)
        kind = (rng.random(len(x)) < 0.3).astype(float)
        assert told(models(family), pd.DataFrame({"x": x, "kind": kind}), y, labels) == []


def test_complete_separation_names_its_columns():
    _, x, _, groups = table("binomial", 12, 0)
    found = told(models("logistic"), pd.DataFrame({"x": x}), (x > 0.1).astype(float), groups)
    assert len(found) == 1
    assert "separated without error (of 'x')" in found[0]


def test_directions_are_those_of_a_linear_programme():
    """Small tables of whole numbers have separation in all kinds, and ties."""
    rng = np.random.default_rng(0)
    separated = 0
    for _ in range(200):
        n, p = rng.integers(3, 12), rng.integers(1, 4)
        X = rng.integers(-2, 3, (n, p)).astype(float)
        bounds = X * rng.choice([-1.0, 1.0], n)[:, None]
        box = {"bounds": (-1, 1), "A_ub": -bounds, "b_ub": np.zeros(n)}
        rises = -linprog(-bounds.sum(axis=0), **box).fun > 1e-7
        found = direction_without_end(bounds)
        assert (found is not None) == rises
        separated += rises
        if found is not None:
            size = np.sqrt(np.mean(bounds**2, axis=0))
            rise = bounds @ (found[0] / np.where(size > 0, size, 1.0))
            assert rise.min() > -1e-7
            assert rise.max() > 1e-7
    assert 40 < separated < 160


@pytest.mark.parametrize("shift", [0.0, 2000.0])
def test_large_tables_and_distant_columns(shift):
    """A year beside a dummy: columns far from zero, and rows of which some are looked at first."""
    rng = np.random.default_rng(0)
    n = 20000
    X = np.column_stack([np.ones(n), shift + rng.normal(size=n), rng.random(n) < 0.001])
    y = rng.random(n) < 0.4
    side = np.where(y, 1.0, -1.0)[:, None]
    y0 = y & (X[:, 2] == 0)
    assert direction_without_end(X[X[:, 2] == 0][:, :2] * side[X[:, 2] == 0]) is None
    direction, complete = direction_without_end(X * np.where(y0, 1.0, -1.0)[:, None])
    np.testing.assert_allclose(direction, [0.0, 0.0, -1.0], atol=1e-9)
    assert not complete


def test_equal_rows_of_a_gamma_law_at_nodes_have_an_end():
    groups = np.repeat(np.arange(3), 30)
    X = np.random.default_rng(3).normal(size=(90, 1))
    parts = [
        {"X": X[own], "y": np.ones(own.sum()), "groups": groups[own]}
        for own in (groups == 0, groups > 0)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nodes, *_ = fit_on_nodes(models("gamma"), parts)
    assert not [note for note in nodes[0].notes_ if "without end" in note]
