"""AdaPeD: what is not as published, beside computations by hand."""

import numpy as np
import pytest

import ebfed as eb
from ebfed.models import Linear

SIZES = [3, 7, 5]
GROUPS = np.repeat(np.arange(3), SIZES)
RNG = np.random.default_rng(4)
X = RNG.normal(size=(15, 2))
Y = X @ [1.0, -0.5] + RNG.normal(size=3)[GROUPS] + 0.3 * RNG.normal(size=15)
A = np.column_stack([X, np.ones(15)])
SOME = {"n_rounds": 3, "local_steps": 2, "learning_rate": 0.1, "random_state": 0}
CLOSE = {"rtol": 1e-10, "atol": 1e-12}  # sums in another order


def fit(**more):
    return eb.learning.AdaPeD(Linear(), **SOME | more).fit(X, Y, groups=GROUPS)


def slope(theta, i):
    """Gradient of half the mean squared error, and of half the mean square of differences."""
    design, y = A[i == GROUPS], Y[i == GROUPS]
    return design.T @ (design @ theta - y) / len(y)


def towards(theta, mu, i):
    design = A[i == GROUPS]
    return design.T @ (design @ (theta - mu)) / len(design)


@pytest.mark.parametrize("label_weight", [0.0, 0.5])
def test_steps_of_mu(label_weight):
    """They are not divided by 2 psi, and may go down the loss of responses too."""
    est = fit(n_rounds=1, local_steps=1, psi=2.0, label_weight=label_weight)
    moves = []
    for i in range(3):
        start = np.zeros(3)
        theta = start - 0.1 * slope(start, i)  # there is no divergence yet
        moves.append(-0.1 * (towards(start, theta, i) + label_weight * slope(start, i)))
    np.testing.assert_allclose(est.shared_["mu"], np.mean(moves, axis=0), **CLOSE)


def test_theta_is_refined_from_mu():
    est = fit(psi=0.8, refine=30)
    mu, psi = est.shared_["mu"], max(est.shared_["psi"][0], est.psi_floor)
    for i in range(3):
        theta = mu
        for _ in range(30):
            theta = theta - 0.1 * (slope(theta, i) + towards(theta, mu, i) / (2 * psi))
        np.testing.assert_allclose(est.parameters_[i], theta, **CLOSE)


def test_clients_that_were_never_invited_are_refined_too():
    est = fit(n_rounds=1, sample_rate=1 / 3, refine=30)
    new = ~est._memory["trained"]
    assert new.sum() == 2
    rows = new[GROUPS]
    own = np.mean((Y - est.predict(X, groups=GROUPS))[rows] ** 2)
    shared = np.mean((Y - A @ est.shared_["mu"])[rows] ** 2)
    assert own < 0.95 * shared  # psi of about 1 keeps them near mu


def test_another_model_is_refined_from_itself():
    """Steps from theta of the last round; a client that never trained has no such theta."""
    more = {"shared_model": Linear(), "n_rounds": 1, "sample_rate": 2 / 3}
    plain, refined = fit(**more, refine=0), fit(**more, refine=5)
    new = ~plain._memory["trained"]
    np.testing.assert_array_equal(refined.parameters_[new], plain.parameters_[new])
    for i in np.flatnonzero(~new):
        theta, mu, psi = plain.parameters_[i], plain.shared_["mu"], plain.shared_["psi"][0]
        for _ in range(5):
            theta = theta - 0.1 * (slope(theta, i) + towards(theta, mu, i) / (2 * psi))
        np.testing.assert_allclose(refined.parameters_[i], theta, **CLOSE)


def test_defaults_are_the_published_ones_in_the_variant():
    assert fit(n_rounds=1).history_["psi"].iloc[0] < 1.0
    paper = fit(variant="paper")
    explicit = fit(variant="paper", psi=3.5, refine=0, label_weight=0.0)
    np.testing.assert_array_equal(paper.parameters_, explicit.parameters_)
    assert 1.0 < paper.history_["psi"].iloc[0] < 3.5
    assert (fit(refine=0).parameters_ != fit().parameters_).any()


@pytest.mark.parametrize(
    ("name", "value"), [("refine", -1), ("refine", 1.5), ("refine", True), ("label_weight", -1.0)]
)
def test_wrong_arguments(name, value):
    with pytest.raises(ValueError, match=name):
        fit(**{name: value})
