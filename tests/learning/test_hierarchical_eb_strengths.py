"""Weights of strengths, and what a client does for each strength, against plain loops."""

import numpy as np
import pytest

import ebfed as eb
from ebfed.learning.hierarchical_eb import FLOOR, moved, responsibilities, unit_of
from ebfed.models import Linear, Softmax

CLOSE = {"rtol": 1e-12, "atol": 1e-12}
STRENGTHS = (0.0, 0.3, 4.0, np.inf)
FOLDS, STEPS, RATE, ETA = 3, 4, 0.3, 0.2
SIZES = [3, 7, 5, 11]
GROUPS = np.repeat(np.arange(4), SIZES)
RNG = np.random.default_rng(11)
X = RNG.normal(size=(len(GROUPS), 2))
NUMBERS = X @ [1.0, -0.5] + RNG.normal(size=4)[GROUPS] + 0.5 * RNG.normal(size=len(GROUPS))
CLASSES = np.digitize(NUMBERS, [-0.5, 0.7])
DESIGN = np.column_stack([X, np.ones(len(X))])


def probabilities(theta, A):
    outputs = A @ theta.reshape(3, 3)
    p = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


class Squares:
    model, response, size = Linear(), NUMBERS, 3

    @staticmethod
    def gradient(theta, A, y):
        return A.T @ (A @ theta - y) / len(y)

    @staticmethod
    def losses(theta, A, y):
        return (A @ theta - y) ** 2 / 2

    @staticmethod
    def log_likelihood(losses, n):
        return -n / 2 * np.log(np.sum(losses))


class Logits:
    model, response, size = Softmax(), CLASSES, 9

    @staticmethod
    def gradient(theta, A, y):
        return (A.T @ (probabilities(theta, A) - np.eye(3)[y]) / len(y)).ravel()

    @staticmethod
    def losses(theta, A, y):
        return -np.log(probabilities(theta, A)[np.arange(len(y)), y])

    @staticmethod
    def log_likelihood(losses, n):
        return -np.sum(losses)


both = pytest.mark.parametrize("loss", [Squares, Logits], ids=["squares", "classes"])


def path(loss, w, A, y):
    """Parameters for each strength, each from the last."""
    last = loss.size // 3  # intercepts are a block of their own
    overall = np.mean(w**2)
    spread = np.empty(loss.size)
    for block in (slice(0, -last), slice(-last, None)):
        spread[block] = max(np.mean(w[block] ** 2), overall)
    theta, found = w, []
    for s in STRENGTHS:
        for _ in range(STEPS if s else 0):
            penalty = 1 / (len(y) * s * spread)
            # gradient in f at the old value, of the penalty at the new one
            theta = w + (theta - ETA * loss.gradient(theta, A, y) - w) / (1 + ETA * penalty)
        found.append(theta)
    return found


def plainly(loss, w, weights, n_rounds=1):
    """Weights of strengths after rounds of all clients, and predictors."""
    scores, paths = [], []
    for i in range(4):
        A, y = DESIGN[i == GROUPS], loss.response[i == GROUPS]
        fold = np.random.default_rng(len(y)).permutation(len(y)) % FOLDS
        losses = np.zeros((len(STRENGTHS), len(y)))
        for k in range(FOLDS):
            out = fold == k
            for g, theta in enumerate(path(loss, w, A[~out], y[~out])):
                losses[g, out] = loss.losses(theta, A[out], y[out])
        scores.append([loss.log_likelihood(each, len(y)) for each in losses])
        paths.append(path(loss, w, A, y))
    likelihood = np.exp(scores)
    for t in range(1, n_rounds + 1):
        r = weights * likelihood / (weights * likelihood).sum(axis=1, keepdims=True)
        weights = weights + np.mean(r - weights, axis=0) / np.sqrt(t)
    r = weights * likelihood / (weights * likelihood).sum(axis=1, keepdims=True)
    return weights, np.einsum("ig,igp->ip", r, paths), r


@both
@pytest.mark.parametrize("last", [1, 2])
def test_rounds_of_strengths(loss, last):
    """Both sides make the same sums in another order, of some hundred numbers near 1."""
    w = np.zeros(loss.size)
    for _ in range(3):
        steps = []
        for i in range(4):
            A, y = DESIGN[i == GROUPS], loss.response[i == GROUPS]
            steps.append(RATE * loss.gradient(w, A, y))
        w = w - np.mean(steps, axis=0)
    est = eb.learning.HierarchicalEB(
        loss.model,
        n_rounds=3 + last,
        strength_rounds=last,
        learning_rate=RATE,
        fine_tune_rate=ETA,
        fine_tune=STEPS,
        strengths=STRENGTHS,
        folds=FOLDS,
        averaged=0,
        random_state=0,
    ).fit(X, loss.response, groups=GROUPS)
    weights, theta, r = plainly(loss, w, np.full(4, 0.25), last)
    assert weights.min() > FLOOR
    np.testing.assert_allclose(est.shared_["w"], w, **CLOSE)
    np.testing.assert_allclose(est.shared_["strengths"], weights, **CLOSE)
    np.testing.assert_allclose(est.responsibilities_, r, **CLOSE)
    np.testing.assert_allclose(est.parameters_, theta, **CLOSE)


def test_strengths_whose_training_failed_have_no_part():
    scores = np.array([[0.0, -np.inf], [-np.inf, -np.inf], [-1e9, -2e9]])
    r = responsibilities(scores, np.array([0.2, 0.8]))
    np.testing.assert_allclose(r[[0, 2]], [[1.0, 0.0], [1.0, 0.0]])
    assert np.isnan(r[1]).sum() == 0
    np.testing.assert_allclose(r.sum(axis=1), 1.0)


def test_weights_stay_positive_and_sum_to_one():
    after = moved(np.array([0.5, 0.3, 0.2]), np.array([3.0, -2.0, -0.1]), 1)
    assert after.min() > FLOOR / 4
    assert after.sum() == pytest.approx(1.0, abs=1e-15)
    np.testing.assert_allclose(moved(np.array([0.5, 0.5]), np.array([0.2, -0.2]), 4), [0.6, 0.4])


def test_changes_are_as_long_as_the_clip_allows():
    """The farthest that weights can be apart is the root of 2."""
    assert unit_of({"clip": 0.3}) * np.linalg.norm([1.0, -1.0]) == pytest.approx(0.3, rel=1e-15)
    assert unit_of({}) == 1.0
