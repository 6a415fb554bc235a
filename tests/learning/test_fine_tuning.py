"""Fine-tuning: the steps themselves, and their number where clients choose it."""

import numpy as np
import pytest

import ebfed as eb
from ebfed.learning.fine_tuning import TRIED, FineTuning
from ebfed.learning.validation import Portion
from ebfed.models import MLP, Linear

RNG = np.random.default_rng(11)
GROUPS = np.repeat(np.arange(6), [1, 2, 9, 12, 20, 30])
X = RNG.normal(size=(len(GROUPS), 2))
OWN = RNG.normal(size=6)
Y = X @ [1.0, -0.5] + OWN[GROUPS] + 0.3 * RNG.normal(size=len(GROUPS))
SOME = {"n_rounds": 5, "learning_rate": 0.1, "local_steps": 2, "random_state": 0}
QUIET = {"privacy": eb.ClientPrivacy(noise_multiplier=0.0)}
# Learners with a shared predictor, and what they need. A step of PPSGD is divided by clients.
LEARNERS = {
    "AdaPeD": {},
    "DPAdaPeD": QUIET,
    "DPFedAvg": QUIET,
    "Ditto": {},
    "FeO2": QUIET,
    "FedAvg": {},
    "FedBN": {"personal": ["intercept"]},
    "FedMutual": {},
    "FedProx": {},
    "FedRep": {},
    "JointDPSGD": QUIET | {"personal": ["intercept"]},
    "PFedMe": {},
    "PPSGD": QUIET | {"local_steps": 1},
    "PerFedAvg": {},
    "QuPeD": {},
    "Scaffold": {},
}


def learner(name, **more):
    given = SOME | LEARNERS[name] | more
    if name == "JointDPSGD":
        del given["local_steps"]
    return getattr(eb.learning, name)(Linear(), **given)


def descended(theta, rows, steps, rate, y=Y):
    """Gradient steps of half the mean squared error."""
    A = np.column_stack([X, np.ones(len(X))])[rows]
    for _ in range(steps):
        theta = theta - rate * A.T @ (A @ theta - y[rows]) / len(A)
    return theta


def test_all_learners_are_here():
    others = {
        "ClientPrivacy",
        "HierarchicalEB",
        "Learner",
        "LearnerRounds",
        "LocalOnly",
        "RateSchedule",
    }
    assert set(LEARNERS) == set(eb.learning.__all__) - others


@pytest.mark.parametrize("name", LEARNERS)
def test_steps_go_on_from_the_predictor_of_each_client(name):
    plain = learner(name).fit(X, Y, groups=GROUPS)
    tuned = learner(name, fine_tune=3, fine_tune_rate=0.2).fit(X, Y, groups=GROUPS)
    by_hand = [descended(plain.parameters_[i], i == GROUPS, 3, 0.2) for i in range(6)]
    np.testing.assert_allclose(tuned.parameters_, by_hand, rtol=1e-10, atol=1e-12)
    for key, value in plain.shared_.items():
        np.testing.assert_array_equal(tuned.shared_[key], value)


def test_the_rate_is_that_after_the_last_round():
    few = {"decay": 0.5, "fine_tune": 4}
    last, own = (
        learner("FedAvg", **few, **more).fit(X, Y, groups=GROUPS).parameters_
        for more in ({}, {"fine_tune_rate": 0.1 * 0.5**5})
    )
    np.testing.assert_array_equal(last, own)


def choice_by_hand(est, theta, i, rates):
    """Loss of the rows held back after each number of steps on the others; then all rows."""
    mine = np.flatnonzero(i == GROUPS)
    ordered = est.clients_
    held = Portion.held_back(ordered, est.validation_fraction)
    back = np.zeros(len(X), bool)
    back[[np.flatnonzero((row == X).all(axis=1))[0] for row in held.X[_span(held, i)]]] = True
    rest = np.setdiff1d(mine, np.flatnonzero(back))
    A = np.column_stack([X, np.ones(len(X))])[back]
    losses = [
        (np.mean((A @ descended(theta, rest, steps, rate) - Y[back]) ** 2), steps, -rate)
        for rate in rates
        for steps in TRIED
    ]
    _, steps, rate = min(losses)
    return steps, descended(theta, mine, steps, -rate)


def _span(rows, i):
    return slice(rows.indptr[i], rows.indptr[i] + rows.n[i])


@pytest.mark.parametrize("name", ["FedAvg", "Ditto", "AdaPeD", "PPSGD"])
@pytest.mark.parametrize("rate", [None, 0.2])
def test_a_choice_by_rows_that_are_held_back(name, rate):
    more = {"validation_fraction": 0.3, "learning_rate": 0.05}
    plain = learner(name, **more).fit(X, Y, groups=GROUPS)
    tuned = learner(name, **more, fine_tune="auto", fine_tune_rate=rate).fit(X, Y, groups=GROUPS)
    rates, chosen = [0.05, 0.005] if rate is None else [rate], []
    np.testing.assert_array_equal(tuned.parameters_[0], plain.parameters_[0])  # nothing held back
    for i in range(1, 6):
        steps, theta = choice_by_hand(tuned, plain.parameters_[i], i, rates)
        np.testing.assert_allclose(tuned.parameters_[i], theta, rtol=1e-10, atol=1e-12)
        chosen.append(steps)
    assert len(set(chosen)) > 1, "clients differ in what they choose"


def test_choices_are_the_same_in_any_block():
    more = {"validation_fraction": 0.3, "fine_tune": "auto", "batch_size": 4}
    together = eb.learning.FedAvg(MLP(4), **SOME, **more).fit(X, Y > 0, groups=GROUPS)
    apart = eb.learning.FedAvg(MLP(4), **SOME, **more, engine=eb.engines.Local(n_blocks=3))
    np.testing.assert_array_equal(
        together.parameters_, apart.fit(X, Y > 0, groups=GROUPS).parameters_
    )


def test_clients_choose_none_where_all_are_alike_and_many_where_they_differ():
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(100), 40)
    Z = rng.normal(size=(4000, 5))
    more = {"n_rounds": 100, "local_steps": 1, "learning_rate": 0.3, "validation_fraction": 0.2}
    risks = {}
    for spread in (0.0, 2.0):
        theta = spread * rng.normal(size=(100, 6))
        y = (Z * theta[groups, 1:]).sum(axis=1) + theta[groups, 0]
        noisy = y + 3.0 * rng.normal(size=4000)
        for steps in (0, 100, "auto"):
            est = eb.learning.FedAvg(Linear(), **SOME | more, fine_tune=steps)
            guess = est.fit(Z, noisy, groups=groups).predict(Z, groups=groups)
            risks[spread, steps] = np.mean((guess - y) ** 2)
    # a choice by 8 rows is noisy; over seeds the ratios are 0.26 to 0.36, and 1.13 to 1.37
    assert risks[0.0, "auto"] < 0.5 * risks[0.0, 100]
    assert risks[2.0, "auto"] < 1.5 * risks[2.0, 100] < 0.2 * risks[2.0, 0]


def test_history_is_before_a_choice_that_it_would_flatter():
    more = {"validation_fraction": 0.3, "evaluate_every": 1}
    plain, fixed, auto = (
        learner("FedAvg", **more, fine_tune=steps).fit(X, Y, groups=GROUPS).history_["validation"]
        for steps in (0, 3, "auto")
    )
    np.testing.assert_array_equal(auto, plain)
    assert (fixed > plain).all()


@pytest.mark.parametrize("name", ["Ditto", "Scaffold", "AdaPeD"])
def test_clients_that_were_never_invited_make_steps_too(name):
    rare = {"n_rounds": 1, "sample_rate": 0.2, "fine_tune": 20, "fine_tune_rate": 0.1}
    rare |= {"refine": 0} if name == "AdaPeD" else {}
    est = learner(name, **rare).fit(X, Y, groups=GROUPS)
    by_hand = (np.column_stack([X, np.ones(len(X))]) * est.parameters_[GROUPS]).sum(axis=1)
    np.testing.assert_allclose(est.predict(X, groups=GROUPS), by_hand, rtol=1e-10)
    shared = est.shared_["mu" if name == "AdaPeD" else "w"]
    for i in np.flatnonzero(~est._memory["trained"]):
        by_hand = descended(shared, i == GROUPS, 20, 0.1)
        np.testing.assert_allclose(est.parameters_[i], by_hand, rtol=1e-10)


def test_a_predictor_that_never_trained_is_not_tuned():
    """With a shared model of its own, AdaPeD has no predictor to begin with."""
    est = eb.learning.AdaPeD(
        Linear(), shared_model=Linear(), **SOME | {"n_rounds": 1}, sample_rate=0.2, fine_tune=9
    )
    est.fit(X, Y, groups=GROUPS)
    new = ~est._memory["trained"]
    assert (est.parameters_[new] == 0).all()
    shared = np.column_stack([X, np.ones(len(X))]) @ est.shared_["mu"]
    rows = new[GROUPS]
    np.testing.assert_allclose(est.predict(X, groups=GROUPS)[rows], shared[rows], rtol=1e-12)


def test_clients_without_rows_do_not_move():
    est = learner("FedAvg", fine_tune=3, weight_decay=0.5)
    clients, memory = est.protocol().prepare(X, Y, groups=GROUPS)
    indptr = np.append(clients.indptr, clients.indptr[-1])
    clients = type(clients)(np.arange(7), indptr, clients.X, clients.y)
    est._fit(clients, memory)
    np.testing.assert_array_equal(est.parameters_[6], est.shared_["w"])


@pytest.mark.parametrize(
    ("est", "words"),
    [
        (eb.learning.FedAvg(fine_tune="auto"), "fine_tune='auto' needs rows that are held back"),
        (eb.learning.FedAvg(fine_tune="best"), "fine_tune must be a number of steps, or 'auto'"),
        (eb.learning.Ditto(fine_tune=-1), "fine_tune must be a number of steps"),
        (eb.learning.Ditto(fine_tune=True), "fine_tune must be a number of steps"),
        (eb.learning.Ditto(fine_tune=1, fine_tune_rate=0.0), "fine_tune_rate must be"),
        (
            eb.learning.LocalOnly(fine_tune=1),
            "fine_tune must be 0: LocalOnly has no shared predictor",
        ),
        (
            eb.learning.HierarchicalEB(fine_tune="auto", validation_fraction=0.2),
            "fine_tune must be",
        ),
        (
            eb.learning.JointDPSGD(**QUIET, fine_tune=1, protect="all"),
            "fine_tune must be 0 with protect",
        ),
    ],
)
def test_wrong_arguments(est, words):
    with pytest.raises(ValueError, match=words):
        est.fit(X, Y > 0, groups=GROUPS)


def test_a_loss_that_is_no_number_is_not_the_least(monkeypatch):
    """Where the predictor before steps has none, clients that hold rows back choose some steps."""
    real, choose, before, chosen = FineTuning.losses, FineTuning.choose, [], []

    def losses(self, theta, places):
        found = real(self, theta, places)
        if before:
            return found
        before.append(found)
        return np.full(len(places), np.nan)

    def kept(self, theta):
        chosen.append(choose(self, theta))
        return chosen[-1]

    monkeypatch.setattr(FineTuning, "losses", losses)
    monkeypatch.setattr(FineTuning, "choose", kept)
    learner("FedAvg", validation_fraction=0.3, fine_tune="auto").fit(X, Y, groups=GROUPS)
    np.testing.assert_array_equal(chosen[0][0] > 0, ~np.isnan(before[0]))
