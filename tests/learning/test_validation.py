"""Rows held back: which they are, what is sent of them, and when a fit ends by them."""

import numpy as np
import pytest

import ebfed as eb
from ebfed.learning.validation import Portion, hold_back
from ebfed.models import Linear
from ebfed.tables.clients import Clients

RNG = np.random.default_rng(3)
GROUPS = np.repeat(np.arange(6), [1, 2, 5, 10, 20, 30])
X = RNG.normal(size=(len(GROUPS), 2))
Y = np.where(X[:, 0] + RNG.normal(size=6)[GROUPS] > 0, "yes", "no")
SOME = {"n_rounds": 7, "learning_rate": 0.5, "random_state": 0, "validation_fraction": 0.2}


def test_rows_are_divided_between_training_and_validation():
    clients = Clients.from_rows(np.arange(len(GROUPS))[:, None], GROUPS, Y)
    ordered = hold_back(clients, 0.2)
    training, held = Portion.training(ordered, 0.2), Portion.held_back(ordered, 0.2)
    assert held.n.tolist() == [0, 1, 1, 2, 4, 6]
    for i in range(6):
        parts = [
            each.X[each.indptr[i] : each.indptr[i] + each.n[i], 0] for each in (training, held)
        ]
        assert (np.diff(parts[0]) > 0).all(), "rows of training keep their order"
        assert sorted(np.concatenate(parts)) == np.flatnonzero(i == GROUPS).tolist()


@pytest.mark.parametrize("batch_size", [None, 4])
def test_rows_held_back_change_nothing_else(batch_size):
    """Other responses there: the fit is the same to the last bit, and the history is not."""
    ordered = hold_back(Clients.from_rows(np.arange(len(GROUPS))[:, None], GROUPS, Y), 0.2)
    held = Portion.held_back(ordered, 0.2)
    changed = Y.copy()
    for i in range(6):
        rows = ordered.X[held.indptr[i] : held.indptr[i] + held.n[i], 0].astype(int)
        changed[rows] = np.where(Y[rows] == "yes", "no", "yes")
    learner = eb.learning.Ditto(
        **SOME, evaluate_every=3, batch_size=batch_size, classes=["no", "yes"]
    )
    first, second = (learner.fit(X, y, groups=GROUPS).history_ for y in (Y, changed))
    np.testing.assert_array_equal(first["loss"], second["loss"])
    right, wrong = first["validation"], second["validation"]
    np.testing.assert_allclose((right + wrong).dropna(), 1.0, rtol=1e-6)
    assert np.isfinite(right).tolist() == [True, False, False, True, False, False, True]


@pytest.mark.parametrize("sample_rate", [1.0, 0.5])
def test_what_is_evaluated_is_the_fit_of_the_rounds_before(sample_rate):
    """With one invitation for all, the mean over clients of the shares of right predictions."""
    learner = eb.learning.FedAvg(**SOME, evaluate_every=3, sample_rate=sample_rate)
    history = learner.fit(X, Y, groups=GROUPS).history_
    if sample_rate < 1:
        assert history["validation"].between(0, 1).sum() == 3
        return
    before = eb.learning.FedAvg(**(SOME | {"n_rounds": 6})).fit(X, Y, groups=GROUPS)
    held = Portion.held_back(before.clients_, 0.2)
    shares = []
    for i in range(1, 6):
        rows = slice(held.indptr[i], held.indptr[i] + held.n[i])
        guess = before.predict(held.X[rows], groups=np.full(held.n[i], i))
        shares.append(np.mean(guess == held.y[rows]))
    assert history["validation"].iloc[6] == pytest.approx(np.mean(shares), rel=1e-6)


def test_a_metric_of_the_user():
    seen = []

    def metric(y, predicted):
        seen.append((y.shape, predicted.shape))
        return -np.abs(y - predicted).max()

    est = eb.learning.Ditto(Linear(), **SOME, evaluate_every=1, metric=metric)
    history = est.fit(X, X[:, 0], groups=GROUPS).history_["validation"]
    assert (history < 0).all()
    assert all(first == second for first, second in seen)
    plain = eb.learning.Ditto(Linear(), **SOME, evaluate_every=1).fit(X, X[:, 0], groups=GROUPS)
    assert (plain.history_["validation"] > history).all()


def test_a_fit_ends_early():
    y = RNG.permutation(Y)  # nothing to learn
    est = eb.learning.FedAvg(**(SOME | {"n_rounds": 500}), evaluate_every=2, early_stopping=3)
    est.fit(X, y, groups=GROUPS)
    assert est.n_iter_ < 500
    values = est.history_["validation"].dropna()
    assert len(values) - 1 - int(np.argmax(values)) == 3
    assert len(est.history_) == est.n_iter_


def test_private_fits_keep_it_with_clients():
    privacy = eb.ClientPrivacy(noise_multiplier=1.0)
    est = eb.learning.FedAvg(**SOME, evaluate_every=2, privacy=privacy)
    clients, memory = est.protocol().prepare(X, Y, groups=GROUPS)
    state = est.protocol().start(
        est.protocol().describe(clients, memory), np.array([1, 2], np.uint64)
    )
    turn = {"turn": state["turn"]}
    message, _ = est.protocol().local(
        est.protocol().broadcast(state), memory | turn, clients, eb.streams.Stream(state["key"], 0)
    )
    assert message.keys() == {"changes"}
    fit = est.fit(X, Y, groups=GROUPS)
    assert np.isfinite(fit.history_["validation"]).tolist() == [True, False] * 3 + [True]
    alone = eb.learning.LocalOnly(**SOME, evaluate_every=2).fit(X, Y, groups=GROUPS)
    assert np.isfinite(alone.history_["validation"]).sum() == 4


def test_it_is_in_the_ledger():
    plain = eb.learning.FedAvg(**SOME).fit(X, Y, groups=GROUPS).privacy_.iloc[0]
    told = eb.learning.FedAvg(**SOME, evaluate_every=2).fit(X, Y, groups=GROUPS).privacy_.iloc[0]
    assert "rows held back" in told["what"]
    assert "rows held back" not in plain["what"]
    assert told["bits"] == plain["bits"] + 64 * 6 * 7


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"validation_fraction": 1.0}, "validation_fraction must be a number from 0 to 0.9"),
        ({"validation_fraction": 0.0, "evaluate_every": 2}, "evaluate_every needs rows"),
        ({"evaluate_every": 0}, "evaluate_every must"),
        ({"early_stopping": 2}, "early_stopping needs evaluate_every"),
        ({"evaluate_every": 1, "early_stopping": 0}, "early_stopping must"),
    ],
)
def test_wrong_arguments(more, words):
    with pytest.raises(ValueError, match=words):
        eb.learning.FedAvg(**(SOME | more)).fit(X, Y, groups=GROUPS)


def test_who_cannot_stop_early():
    stop = {"evaluate_every": 1, "early_stopping": 2}
    with pytest.raises(ValueError, match="early_stopping is not for private fits"):
        eb.learning.FedAvg(**SOME, **stop, privacy=eb.ClientPrivacy(1.0)).fit(X, Y, groups=GROUPS)
    with pytest.raises(ValueError, match="it sends nothing"):
        eb.learning.LocalOnly(**SOME, **stop).fit(X, Y, groups=GROUPS)
    with pytest.raises(TypeError, match="metric must be a function"):
        eb.learning.FedAvg(**SOME, metric="accuracy").fit(X, Y, groups=GROUPS)
    joint = eb.learning.JointDPSGD(privacy=eb.ClientPrivacy(1.0), validation_fraction=0.1)
    with pytest.raises(ValueError, match="validation_fraction must be 0"):
        joint.fit(X, Y, groups=GROUPS)


def test_a_fit_that_goes_on_holds_the_same_rows_back():
    """Others were trained on."""
    est = eb.learning.FedAvg(**SOME, warm_start=True).fit(X, Y, groups=GROUPS)
    est.set_params(n_rounds=9, validation_fraction=0.4)
    with pytest.raises(ValueError, match="validation_fraction must be that of the last fit"):
        est.fit(X, Y, groups=GROUPS)
    assert est.set_params(validation_fraction=0.2).fit(X, Y, groups=GROUPS).n_iter_ == 9


@pytest.mark.parametrize("private", [True, False])
def test_evaluations_stay_with_their_rounds_in_a_fit_that_goes_on(private):
    privacy = eb.ClientPrivacy(noise_multiplier=1.0) if private else None
    est = eb.learning.FedAvg(**SOME, warm_start=True, privacy=privacy, evaluate_every=3)
    before = est.fit(X, Y, groups=GROUPS).history_["validation"]
    est.set_params(n_rounds=12, evaluate_every=2)
    if private:  # clients keep the third of those of rounds 0, 3, 6, ..., not that of round 6
        with pytest.raises(ValueError, match="evaluate_every must be that of the last fit"):
            est.fit(X, Y, groups=GROUPS)
        est.set_params(evaluate_every=3)
    after = est.fit(X, Y, groups=GROUPS).history_["validation"]
    np.testing.assert_allclose(after[:7], before, rtol=1e-6)
    places = [9] if private else [8, 10]
    assert np.flatnonzero(np.isfinite(after[7:])).tolist() == [place - 7 for place in places]


def test_a_fit_that_stopped_early_has_its_patience_again():
    settings = SOME | {"n_rounds": 100, "learning_rate": 1e-9}
    est = eb.learning.FedAvg(**settings, evaluate_every=1, early_stopping=3, warm_start=True)
    assert est.fit(X, Y, groups=GROUPS).n_iter_ == 4
    assert est.fit(X, Y, groups=GROUPS).n_iter_ == 8
