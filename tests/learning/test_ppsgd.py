"""PPSGD with a part of the parameters that clients add to."""

import numpy as np
import pytest

from ebfed import models
from ebfed.learning import PPSGD, ClientPrivacy
from ebfed.models.base import Batch

HEAD = ("output", "output_intercept")
RNG = np.random.default_rng(5)
GROUPS = np.repeat(np.arange(12), 6)
X, Y = RNG.normal(size=(72, 3)), RNG.integers(2, size=72)


def fitted(**arguments):
    est = PPSGD(
        models.MLP(4),
        privacy=ClientPrivacy(noise_multiplier=0.0, clip=0.7),
        n_rounds=5,
        learning_rate=0.8,
        random_state=3,
        **arguments,
    )
    return est.fit(X, Y, groups=GROUPS)


def test_clients_add_to_the_head_alone():
    """Equation of section 6, by a second computation: w and W of all, theta_i of the head."""
    est = fitted(alpha=0.4, personal=HEAD)
    net = est.protocol().predictor({"n_features": [3], "classes": np.arange(2)})
    own = np.zeros(net.size, bool)
    for name in HEAD:
        own[net.blocks[name]] = True
    away = est.parameters_ - est.shared_["w"]
    assert np.all(away[:, ~own] == 0)
    assert np.all(np.abs(away[:, own]).max(axis=1) > 0)
    w = fitted(alpha=0.0, personal=HEAD).shared_["w"].copy()  # where all begin
    theta = np.zeros((12, own.sum()))
    rows = X.reshape(12, 1, 6, 3), Y.reshape(12, 1, 6), np.full((12, 1, 6), 1 / 6)
    batches = [Batch(*each) for each in zip(*rows, strict=True)]
    for _ in range(5):
        slopes = []
        for i, batch in enumerate(batches):
            whole = w.copy()
            whole[own] += theta[i]
            slopes.append(net.gradient(whole[None], batch).gradient[0])
        slopes = np.array(slopes)
        theta -= 0.8 / 12 * slopes[:, own]
        norm = np.linalg.norm(slopes, axis=1, keepdims=True)
        w = w - 0.4 * 0.8 * (slopes * np.minimum(1, 0.7 / norm)).mean(axis=0)
    np.testing.assert_allclose(est.shared_["w"], w, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(away[:, own], theta, rtol=1e-9, atol=1e-12)


def test_learning_alone_keeps_the_first_layers():
    alone, together = fitted(alpha=0.0, personal=HEAD), fitted(alpha=np.inf, personal=HEAD)
    assert np.ptp(together.parameters_, axis=0).max() == 0
    assert not np.array_equal(alone.shared_["w"], together.shared_["w"])


def test_names_are_checked():
    with pytest.raises(TypeError, match="personal must be a list of names; got 'output'"):
        fitted(personal="output")
    with pytest.raises(ValueError, match="personal must name blocks of the model"):
        fitted(personal=["conv"])
