"""Subspaces: the optimum, and personal ones around a shared one."""

import numpy as np
import pytest

from beyond.subspaces import LEARNED, LOCAL, POOLED, _one_run
from ebfed.learning import LocalOnly
from ebfed.models import Batch, Subspace

RNG = np.random.default_rng(0)


def test_a_row_within_has_no_slope():
    net = Subspace(1).bind(2, 1)
    found = net.gradient(
        np.array([[1.0, 0.0]]), Batch(np.array([[[2.0, 0.0]]]), np.zeros((1, 1)), np.ones((1, 1)))
    )
    assert not found.gradient.any()


def test_minimum_is_the_principal_components():
    X = RNG.normal(size=(60, 6)) * [3.0, 2.5, 1.0, 0.5, 0.5, 0.5]
    groups = np.repeat([0, 1], 30)
    fit = LocalOnly(Subspace(2), n_rounds=2000, learning_rate=0.02, random_state=0)
    fit.fit(X, np.zeros(60), groups=groups)
    for i, theta in enumerate(fit.parameters_):
        basis, own = theta.reshape(6, 2), X[groups == i]
        first = np.linalg.eigh(own.T @ own)[1][:, -2:]
        np.testing.assert_allclose(basis.T @ basis, np.eye(2), atol=1e-6)
        np.testing.assert_allclose(basis @ basis.T, first @ first.T, atol=1e-5)
    basis = fit.parameters_[0].reshape(6, 2)
    distance = np.linalg.norm(X[:3] - X[:3] @ basis @ basis.T, axis=1)
    np.testing.assert_allclose(fit.predict(X[:3], groups=groups[:3]), distance, rtol=1e-9)


def test_rank_is_below_the_number_of_features():
    with pytest.raises(ValueError, match="rank must be below the 3 features; got 3"):
        Subspace(3).bind(3, 1)
    with pytest.raises(ValueError, match="rank must be"):
        Subspace(0).bind(3, 1)


@pytest.mark.parametrize("spread", [0.35, 0.5, 1.0])
def test_personal_subspaces_beat_local_and_pooled_ones(spread):
    """By far more than runs differ: errors of one run have a standard error of about 4 %."""
    found = {row["method"]: row["error"] for row in _one_run((0, 0), 100, spread)}
    assert found[LEARNED] < 0.9 * min(found[LOCAL], found[POOLED])


def test_where_clients_are_alike_or_unlike_little_is_lost():
    alike, unlike = (
        {row["method"]: row["error"] for row in _one_run((0, 1), 60, spread)}
        for spread in (0.0, 4.0)
    )
    assert alike[LEARNED] < 0.1 * alike[LOCAL]
    assert unlike[LEARNED] < 1.1 * unlike[LOCAL] < unlike[POOLED]
