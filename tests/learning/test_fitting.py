"""Weights of rows: which they are, what they are to losses, averages and metrics."""

import numpy as np
import pandas as pd
import pytest

import ebfed as eb
from ebfed.learning import PPSGD, DPAdaPeD, FedMutual, FedProx, FedRep, JointDPSGD, Scaffold
from ebfed.models import MLP, Linear
from ebfed.tables.clients import Clients

RNG = np.random.default_rng(8)
GROUPS = np.repeat(np.arange(6), [2, 3, 5, 8, 8, 9])
X = RNG.normal(size=(len(GROUPS), 2))
Y = (X[:, 0] + RNG.normal(size=6)[GROUPS] > 0).astype(int)
WEIGHTS = RNG.integers(0, 4, len(GROUPS))
WEIGHTS[np.r_[True, np.diff(GROUPS) > 0]] = 2  # all groups have a row that counts
TIMES = np.repeat(np.arange(len(GROUPS)), WEIGHTS)
SOME = {"n_rounds": 4, "learning_rate": 0.3, "local_steps": 2, "random_state": 0}
PRIVACY = eb.ClientPrivacy(noise_multiplier=1.0, clip=0.1)
LEARNERS = [
    eb.learning.FedAvg(**SOME, fine_tune=3),
    eb.learning.FedAvg(**SOME, weights="rows", optimizer="adam"),
    FedProx(**SOME, weights="rows"),
    Scaffold(**SOME),
    FedRep(MLP(3), **SOME),
    eb.learning.Ditto(**SOME),
    eb.learning.PFedMe(**SOME),
    eb.learning.PerFedAvg(**SOME),
    eb.learning.AdaPeD(**SOME),
    eb.learning.QuPeD(**SOME),
    FedMutual(**SOME),
    eb.learning.LocalOnly(**SOME),
    eb.learning.FedAvg(**SOME, privacy=PRIVACY),
    eb.learning.DPFedAvg(**SOME, privacy=PRIVACY),
    eb.learning.FeO2(**SOME, privacy=PRIVACY),
    DPAdaPeD(**SOME, privacy=PRIVACY),
]


@pytest.mark.parametrize("learner", LEARNERS, ids=repr)
def test_a_weight_is_a_number_of_rows(learner):
    """Of batches of all rows: also with noise, whose key and scale do not depend on weights."""
    weighted = learner.fit(X, Y, groups=GROUPS, sample_weight=WEIGHTS)
    parameters, shared = weighted.parameters_, weighted.shared_
    again = learner.fit(X[TIMES], Y[TIMES], groups=GROUPS[TIMES])
    np.testing.assert_allclose(parameters, again.parameters_, rtol=1e-6, atol=1e-9)
    for name, value in shared.items():
        np.testing.assert_allclose(value, again.shared_[name], rtol=1e-6, atol=1e-9)


def test_a_weight_is_a_number_of_rows_of_a_regression_of_frames():
    learner = eb.learning.FedAvg(Linear(), **SOME)
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "g": GROUPS, "y": Y, "w": WEIGHTS})
    named = learner.fit(frame, "y", groups="g", sample_weight="w").parameters_
    assert learner.predict(frame).shape == Y.shape, "w is no feature"
    shuffled = frame["w"].sample(frac=1, random_state=0)
    aligned = learner.fit(frame[["a", "b"]], frame["y"], groups=frame["g"], sample_weight=shuffled)
    np.testing.assert_array_equal(named, aligned.parameters_)
    again = learner.fit(X[TIMES], Y[TIMES].astype(float), groups=GROUPS[TIMES]).parameters_
    np.testing.assert_allclose(named, again, rtol=1e-6)
    assert np.array_equal(learner.fit(frame[["a", "b", "w"]], Y, groups=GROUPS).terms_[2], "w")


def test_weights_of_unsorted_rows_go_with_them():
    order = RNG.permutation(len(GROUPS))
    learner = eb.learning.Ditto(**SOME)
    first = learner.fit(X, Y, groups=GROUPS, sample_weight=WEIGHTS).parameters_
    rows = {"groups": GROUPS[order], "sample_weight": WEIGHTS[order]}
    np.testing.assert_allclose(first, learner.fit(X[order], Y[order], **rows).parameters_)


def test_rows_that_are_held_back_have_weights():
    learner = eb.learning.LocalOnly(**SOME, validation_fraction=0.4, evaluate_every=1)
    fit = learner.fit(X, Y, groups=GROUPS, sample_weight=WEIGHTS + 0.5)
    assert np.isfinite(fit.history_["validation"]).all()
    from sklearn.metrics import accuracy_score

    same = learner.set_params(metric=accuracy_score)
    same = same.fit(X, Y, groups=GROUPS, sample_weight=WEIGHTS + 0.5)
    np.testing.assert_allclose(fit.history_["validation"], same.history_["validation"])
    learner.set_params(metric=lambda y, guess: 1.0)
    with pytest.raises(ValueError, match="metric must have an argument sample_weight"):
        learner.fit(X, Y, groups=GROUPS, sample_weight=WEIGHTS)


def test_a_class_of_rows_that_do_not_count_is_none():
    y = np.where(WEIGHTS == 0, 2, Y)
    fit = eb.learning.FedAvg(**SOME).fit(X, y, groups=GROUPS, sample_weight=WEIGHTS)
    assert fit.classes_.tolist() == [0, 1]


def test_a_group_whose_rows_do_not_count_has_none():
    weights = np.where(GROUPS == 2, 0, WEIGHTS)
    fit = eb.learning.FedAvg(**SOME, fine_tune=2).fit(X, Y, groups=GROUPS, sample_weight=weights)
    assert fit.clients_.n[2] == 0
    assert np.isfinite(fit.parameters_).all()
    np.testing.assert_allclose(fit.parameters_[2], fit.shared_["w"])


def test_blocks_of_clients_keep_weights():
    clients = Clients.from_rows(X, GROUPS, Y).weighted(WEIGHTS.astype(float))
    assert np.array_equal(clients.totals(), np.bincount(GROUPS, WEIGHTS).astype(int))
    for other in (Clients.join(clients.split(3)), clients.take(np.arange(6))):
        np.testing.assert_array_equal(other.weight, clients.weight)
    plain = eb.learning.Ditto(**SOME).fit(X, Y, groups=GROUPS, sample_weight=WEIGHTS)
    np.testing.assert_array_equal(
        plain.parameters_, eb.learning.Ditto(**SOME).fit(clients).parameters_
    )


@pytest.mark.parametrize(
    ("learner", "weights", "message"),
    [
        (eb.learning.FedAvg(), WEIGHTS[:-1], "entries|length|rows"),
        (eb.learning.FedAvg(), -WEIGHTS, "finite, and 0 or more"),
        (eb.learning.FedAvg(), WEIGHTS * np.nan, "sample_weight"),
        (eb.learning.FedAvg(), np.full(len(Y), 1e308), "between 1e-60 and 1e"),
        (eb.learning.FedAvg(), 0 * WEIGHTS, "zero in every row"),
        (eb.learning.FedAvg(), "w", "names a column, but X is not"),
        (eb.learning.FedAvg(weights="rows"), WEIGHTS + 0.5, "whole numbers"),
        (eb.learning.FedAvg(weights="rows", privacy=PRIVACY), WEIGHTS, "sums of weights are not"),
        (JointDPSGD(privacy=PRIVACY), -WEIGHTS, "finite, and 0 or more"),
        (PPSGD(privacy=PRIVACY, objective="rows"), WEIGHTS, "objective='rows'"),
    ],
)
def test_weights_that_cannot_be(learner, weights, message):
    with pytest.raises(ValueError, match=message):
        learner.fit(X, Y, groups=GROUPS, sample_weight=weights)


@pytest.mark.parametrize(
    ("learner", "changed", "named"),
    [
        (
            eb.learning.HierarchicalEB(fine_tune=2),
            {"strengths": (0.0, 1.0)},
            "shared .* of strengths",
        ),
        (eb.learning.AdaPeD(), {"unsampled": True}, "own .* of mu, psi"),
        (eb.learning.AdaPeD(), {"shared_model": MLP(2)}, "shared .* of mu"),
        (JointDPSGD(privacy=PRIVACY), {"average": True}, "own .* of x_average"),
    ],
    ids=repr,
)
def test_a_fit_that_goes_on_has_parameters_of_the_same_shapes(learner, changed, named):
    est = learner.set_params(n_rounds=2, random_state=0, warm_start=True).fit(X, Y, groups=GROUPS)
    with pytest.raises(ValueError, match=f"{named}\\."):
        est.set_params(n_rounds=4, **changed).fit(X, Y, groups=GROUPS)


def test_declared_classes_are_of_the_type_of_labels():
    """Before, texts were objects, which a node cannot send: no federated fit could declare them."""
    labels = np.array(["no", "yes"])[Y]
    learner = eb.learning.FedAvg(**SOME, classes=["maybe", "no", "yes"])
    fitted = learner.fit(X, labels, groups=GROUPS)
    assert fitted.classes_.dtype.kind == "U"
    assert fitted.protocol().describe(fitted.clients_, {})["classes"].tolist() == learner.classes
