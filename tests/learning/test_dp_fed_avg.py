"""Budgets of clients' own: how long each takes part, and what the ledger says of it."""

import numpy as np
import pandas as pd
import pytest

from ebfed.learning import ClientPrivacy, DPFedAvg
from ebfed.models import Linear
from ebfed.privacy import accountant, events
from ebfed.testing.nodes import fit_on_nodes

RNG = np.random.default_rng(4)
GROUPS = np.repeat(np.arange(60), 4)
X = RNG.normal(size=(240, 2))
Y = X @ [1.0, -1.0] + RNG.normal(size=240)
BUDGETS = {g: [0.4, 1.5, np.inf][g % 3] for g in range(60)}

NOISY = {"privacy": ClientPrivacy(noise_multiplier=2.0)}


def learner(**others):
    given = {
        "privacy": ClientPrivacy(epsilon=4.0),
        "n_rounds": 12,
        "sample_rate": 0.5,
        "learning_rate": 0.3,
        "random_state": 0,
    }
    return DPFedAvg(Linear(), **given | others)


def test_no_client_spends_more_than_its_epsilon():
    fitted = learner().fit(X, Y, groups=GROUPS, consent=BUDGETS)
    ledger = fitted.privacy_
    assert ledger["clients"].tolist() == [20, 20, 20]
    assert ledger["times"].is_monotonic_increasing
    assert ledger["times"].iloc[-1] == 12
    z = fitted.protocol().exchange(60).multiplier
    for times, epsilon, most in zip(
        ledger["times"], ledger["epsilon"], [0.4, 1.5, 4.0], strict=True
    ):
        assert epsilon <= most
        if times:
            event = events.repeated(events.poisson(0.5, events.gaussian(z)), times)
            spent = accountant.epsilon(event, 1e-5, relation="add_or_remove", interval=1e-3)
            np.testing.assert_allclose(epsilon, spent, rtol=1e-2)
    answered = fitted._memory["answered"].reshape(20, 3)
    assert (answered.max(axis=0) <= ledger["times"].to_numpy()).all()
    assert ledger["assumptions"].str.endswith("; budgets are public").all()
    assert "budgets" not in learner().fit(X, Y, groups=GROUPS).privacy_["assumptions"][0]


def test_budgets_that_all_last_change_nothing():
    plain = learner().fit(X, Y, groups=GROUPS)
    same = learner().fit(X, Y, groups=GROUPS, consent=dict.fromkeys(range(60), 4.0))
    np.testing.assert_array_equal(plain.parameters_, same.parameters_)
    assert same.privacy_["epsilon"].tolist() == plain.privacy_["epsilon"].tolist()


def test_a_column_or_rows_may_say_it():
    rows = np.array([BUDGETS[g] for g in GROUPS])
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(epsilon=rows)
    one = learner().fit(frame, Y, groups=GROUPS, consent="epsilon")
    two = learner().fit(X, Y, groups=GROUPS, consent=rows)
    three = learner().fit(X, Y, groups=GROUPS, consent=BUDGETS)
    np.testing.assert_array_equal(one.parameters_, two.parameters_)
    np.testing.assert_array_equal(two.parameters_, three.parameters_)


def test_sums_are_divided_by_the_number_that_still_takes_part():
    """Without noise to speak of, all clients alike, later rounds move as far as the first ones."""
    X, Y = np.ones((240, 1)), np.full(240, 1e3)
    est = DPFedAvg(
        Linear(fit_intercept=False),
        privacy=ClientPrivacy(noise_multiplier=0.05, clip=1.0),
        n_rounds=4,
        sample_rate=1.0,
        learning_rate=1.0,
        random_state=0,
    )
    exchange = est.protocol().exchange(60)
    spent = exchange.round.spent(0.05, 4, 1e-5)
    budgets = {g: spent[1] if g < 40 else np.inf for g in range(60)}
    fitted = est.fit(X, Y, groups=GROUPS, consent=budgets)
    # four moves of length 1; the noise of a move has a standard deviation below .003
    np.testing.assert_allclose(next(iter(fitted.shared_.values())), 4.0, atol=0.05)
    assert fitted.privacy_["times"].tolist() == [2, 4]


def test_a_client_refuses_when_its_budget_is_spent():
    est = learner()
    clients, memory = est.protocol().prepare(X, Y, groups=GROUPS, consent=BUDGETS)
    state = est.protocol().start(
        est.protocol().describe(clients, memory), np.array([1, 2], np.uint64)
    )
    sent = est.protocol().broadcast(state) | {"round": 11}
    memory |= {"turn": np.zeros(60, np.int8)}
    with pytest.raises(ValueError, match="the budgets of 40 clients are spent"):
        est.protocol().local(sent, memory, clients, "secure")


def test_nodes_do_as_one_process_does():
    rows = [
        {
            "X": X[part],
            "y": Y[part],
            "groups": GROUPS[part],
            "consent": {g: BUDGETS[g] for g in np.unique(GROUPS[part])},
        }
        for part in (GROUPS < 25, GROUPS >= 25)
    ]
    nodes, _, _ = fit_on_nodes(learner(), rows)
    expected = learner().fit(X, Y, groups=GROUPS, consent=BUDGETS)
    found = np.vstack([node.parameters_ for node in nodes])
    np.testing.assert_array_equal(found, expected.parameters_)


@pytest.mark.parametrize(
    ("consent", "others", "what"),
    [
        (dict.fromkeys(range(60), -1.0), {}, "number above 0"),
        (dict.fromkeys(range(60), "private"), {}, "consent must be numbers"),
        (dict.fromkeys(range(59), 1.0), {}, "consent is missing for 1 groups"),
        (np.arange(1.0, 241.0), {}, "the same in all rows"),
        (dict.fromkeys(range(60), 1e-6), {}, "no client's budget pays"),
        (BUDGETS, NOISY | {"sampling": "fixed"}, "sampling is 'poisson'"),
        (BUDGETS, {"privacy": ClientPrivacy(noise_multiplier=0.0)}, "keeps none"),
    ],
)
def test_what_is_refused(consent, others, what):
    with pytest.raises(ValueError, match=what):
        learner(**others).fit(X, Y, groups=GROUPS, consent=consent)


def test_budgets_need_a_server_that_sees_messages_or_noise_of_each():
    secure = ClientPrivacy(epsilon=4.0, trust="nobody")
    assert learner(privacy=secure).fit(X, Y, groups=GROUPS).privacy_["epsilon"].iloc[0] <= 4
    with pytest.raises(ValueError, match='consent cannot give budgets with trust="nobody"'):
        learner(privacy=secure).fit(X, Y, groups=GROUPS, consent=BUDGETS)
