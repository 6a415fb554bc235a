"""What a node refuses: rounds, runs and releases that its owner's rules do not allow."""

import math

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import ebfed as eb
from ebfed.channels import AddNoise, Exact, Gaussian
from ebfed.engines import journal
from ebfed.engines.flower import Node, Rules
from ebfed.engines.flower.gate import odometer_of
from ebfed.engines.secure_sum import terms
from ebfed.learning import ClientPrivacy, DPFedAvg, JointDPSGD
from ebfed.models import Linear

RNG = np.random.default_rng(3)
GROUPS = np.repeat([f"g{i:02d}" for i in range(20)], 3)
X = RNG.normal(size=(60, 2))
Y = X @ [1.0, -1.0] + RNG.normal(size=60)


def hold(estimator, folder, rounds=None, y=Y, data=None, **more):
    """Ask a node for rounds, until the server is done or, where given, so many."""
    rows = {"X": X, "groups": GROUPS} | ({} if y is None else {"y": y}) | (data or {})
    node = Node("north", estimator, lambda: rows, folder, seed=1, **more)
    called = node.answer(1, {"exchange": "roll call"})
    if "failure" in called:
        return 0
    facts = called["facts"]
    server = clone(estimator)
    state = server.protocol().start(facts, np.array([1, 2], np.uint64))
    count = 0
    for round_ in range(rounds or 1000):
        if rounds is None and state["done"]:
            break
        sent = server.protocol().broadcast(state) | {"round": round_, "done": False}
        turn = np.zeros(len(facts["n"]), np.int8)
        question = {"exchange": "round", "sent": sent, "turn": turn, "first": 0}
        answer = node.answer(1, question)
        if "failure" in answer:
            break
        count += 1
        if not state["done"] and rounds is None:
            state = server.protocol().update(state, answer["message"])
    return count


def test_a_node_answers_the_rounds_of_the_plan_and_no_more(tmp_path):
    local = ClientPrivacy(epsilon=1.0, trust="none")
    learner = DPFedAvg(Linear(), privacy=local, n_rounds=2)
    assert hold(learner, tmp_path / "a", rounds=50, budget=math.inf) == 2
    joint = JointDPSGD(
        Linear(), personal=("intercept",), privacy=ClientPrivacy(epsilon=1.0), n_rounds=3
    )
    assert hold(joint, tmp_path / "b", rounds=30, budget=math.inf) == 3


def test_exact_figures_need_consent_within_a_budget(tmp_path):
    assert hold(eb.GaussianEB(), tmp_path / "a", y=None, budget=0.5) == 0
    assert hold(eb.GaussianEB(), tmp_path / "b", y=None, budget=math.inf) == 1
    private = Gaussian(epsilon=0.4, delta=1e-6, range=(-4, 4))
    both = eb.GaussianEB(1.0, channel={"private": private, "open": Exact()})
    consent = {"consent": np.where(GROUPS < "g10", "private", "open")}
    assert hold(both, tmp_path / "c", y=None, budget=0.5, data=consent) == 1
    other = eb.GaussianEB(1.0, channel={"private": private, "public": Exact()})
    consent = {"consent": np.where(GROUPS < "g10", "private", "public")}
    assert hold(other, tmp_path / "d", y=None, budget=0.5, data=consent) == 0


def test_a_training_is_charged_as_a_whole(tmp_path):
    """Forty rounds at epsilon 8 together are worth 8, and not forty times that of one round."""
    learner = DPFedAvg(
        Linear(),
        privacy=ClientPrivacy(epsilon=8.0),
        n_rounds=40,
        sample_rate=0.2,
        sampling="poisson",
    )
    assert hold(learner, tmp_path / "enough", budget=Rules(8.0, against="readers")) == 40
    assert hold(learner, tmp_path / "short", budget=Rules(7.9, against="readers")) == 0
    assert [row["kind"] for row in journal.read(tmp_path / "short" / "ledger.jsonl")] == ["facts"]
    spent = odometer_of(journal.read(tmp_path / "enough" / "ledger.jsonl")).spent(1e-5)
    fitted = clone(learner).fit(X, Y, groups=GROUPS)
    ledger = fitted.privacy_["epsilon"].to_numpy()[0]
    np.testing.assert_allclose(list(spent.values()), ledger, atol=1e-3)
    assert len(spent) == 20


def test_runs_are_composed_as_mechanisms(tmp_path):
    """Nine runs of a Gaussian report at epsilon 1 cost three times as much as one, and not 9."""
    channel = Gaussian(epsilon=1.0, delta=1e-5, range=(-4, 4))
    estimator = eb.GaussianEB(1.0, channel=channel)
    data = {"X": X, "groups": GROUPS}
    node = Node("north", estimator, lambda: data, tmp_path, seed=1, budget=Rules(4.0))
    sent = {"round": 0, "done": False, "settings": {"all clients": {}}}
    ask = {"exchange": "round", "sent": sent, "turn": np.zeros(20, np.int8), "first": 0}
    answered = ["message" in node.answer(run, ask) for run in range(12)]
    assert answered == sorted(answered, reverse=True)
    assert sum(answered) >= 9
    spent = max(odometer_of(journal.read(tmp_path / "ledger.jsonl")).spent(1e-5).values())
    assert 3.0 < spent <= 4.0


def test_a_message_that_was_lost_is_not_drawn_again(tmp_path):
    estimator = eb.GaussianEB(1.0, channel=Gaussian(epsilon=1.0, delta=1e-5, range=(-4, 4)))
    assert hold(estimator, tmp_path, y=None, budget=8.0) == 1
    (tmp_path / "run-1" / "round-0.ebfed").unlink()
    assert hold(estimator, tmp_path, y=None, budget=8.0) == 0
    assert "its file is gone" in (tmp_path / "errors.log").read_text()


def test_a_claim_of_many_clients_needs_least_noise(tmp_path):
    """With 1e12 private clients the noise of each would be next to nothing."""
    estimator = eb.OptOutMean(1.0, 1.0, epsilon=1, delta=1e-5, range=(-4, 4), trust="server")
    rows = {"X": X[:, :1], "groups": GROUPS, "consent": np.full(60, "private")}

    def ask(folder, n_private, **rules):
        rules = {"against": "readers"} | rules
        node = Node("north", estimator, lambda: rows, folder, seed=1, budget=Rules(**rules))
        noise = estimator.protocol().least_noise(n_private, 1)
        settings = {"private": {"sd": noise}, "open": {}}
        sent = {
            "round": 0,
            "done": False,
            "n_private": {"private": n_private},
            "settings": settings,
        }
        turn = np.zeros(20, np.int8)
        return "message" in node.answer(
            1, {"exchange": "round", "sent": sent, "turn": turn, "first": 0}
        )

    assert not ask(tmp_path / "a", 10**12, epsilon=1.0)
    assert not ask(tmp_path / "b", 10**12, epsilon=1.0, least_noise=0.5)
    assert ask(tmp_path / "c", 20, epsilon=1.0, least_noise=0.5)
    assert not ask(tmp_path / "e", 10**12, run_epsilon=1.0)
    assert not ask(tmp_path / "d", 20, epsilon=1.0, least_noise=0.5, against="server")


def test_other_rules(tmp_path):
    estimator = eb.GaussianEB(1.0, channel=Gaussian(epsilon=1.0, delta=1e-5, range=(-4, 4)))
    for name, rules, answers in (
        ("methods", {"methods": ["BernoulliEB"]}, 0),
        ("run_epsilon", {"run_epsilon": 0.9}, 0),
        ("allowed", {"methods": ["GaussianEB"], "min_group_size": 9, "run_epsilon": 1.0}, 1),
    ):
        folder = tmp_path / name
        assert hold(estimator, folder, y=None, budget=Rules(8.0, **rules)) == answers, name
        if not answers:
            assert name in (folder / "errors.log").read_text()


def test_rules_are_read_from_the_directory_of_the_node(tmp_path):
    estimator = eb.GaussianEB(1.0, channel=AddNoise(0.5))
    assert hold(estimator, tmp_path, y=None) == 0
    assert "node.toml" in (tmp_path / "errors.log").read_text()
    (tmp_path / "node.toml").write_text("epsilon = 0.5\ndelta = 1e-6")
    assert hold(estimator, tmp_path, y=None) == 0
    (tmp_path / "node.toml").write_text("epsilon = inf\nmin_group_size = 3")
    assert hold(estimator, tmp_path, y=None) == 1


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("epsilon = -1", "epsilon must be a number, 0 or above"),
        ("epsilon = 'one'", "epsilon must be a number"),
        ("epsilon = true", "epsilon must be a number"),
        ("epsilon = nan", "epsilon must be a number"),
        ("epsilon = 1\ndelta = 2", "delta"),
        ("epsilon = 1\nbudget = 2", "'budget' is not among"),
        ("epsilon = 1\nagainst = 'nobody'", "against must be 'server' or 'readers'"),
        ("epsilon = 1\nmin_group_size = 0", "min_group_size must be"),
        ("epsilon = 1\nmin_group_size = 5.0", "min_group_size must be"),
        ("epsilon = 1\nmethods = 'GaussianEB'", "methods must be a list"),
        ("epsilon = 1\nmatch_key = 5", "match_key must be the name of a file"),
        ("delta = 1e-5", "must say epsilon"),
        ("epsilon", "no TOML"),
    ],
)
def test_files_that_are_no_rules(tmp_path, text, what):
    (tmp_path / "node.toml").write_text(text)
    with pytest.raises(ValueError, match=what):
        Rules.read(tmp_path / "node.toml")


# Small groups ------------------------------------------------------------------------------------

SIZES = np.arange(1, 13)
UNEVEN = {
    "X": RNG.normal(size=(78, 2)),
    "y": np.tile([0, 1], 39),
    "groups": np.repeat([f"s{i:02d}" for i in SIZES], SIZES),
}
LARGE = np.repeat(SIZES >= 5, SIZES)
OF_MEANS = eb.GaussianEB(), eb.GaussianEB(share="sums")


@pytest.mark.parametrize(
    "estimator",
    [
        *OF_MEANS,
        eb.LinearEB(varying=["intercept"]),
        eb.LogisticEB(varying=["intercept"], share="sums"),
        eb.learning.FedAvg(n_rounds=3, random_state=0),
        eb.learning.Ditto(n_rounds=3, random_state=0),
    ],
    ids=lambda each: f"{type(each).__name__} {each.get_params().get('share', '')}",
)
def test_small_groups_send_nothing_and_have_estimates(estimator, tmp_path):
    names = ("X", "groups") if estimator in OF_MEANS else ("X", "y", "groups")
    rows = {name: UNEVEN[name] for name in names}
    node = Node("north", estimator, lambda: rows, tmp_path, seed=1, budget=Rules())
    facts = node.answer(1, {"exchange": "roll call"})["facts"]
    assert facts["n"].tolist() == SIZES[SIZES >= 5].tolist(), "not even their sizes"
    server = clone(estimator)
    state = server.protocol().start(facts, np.array([0, 1], np.uint64))
    while not state["done"]:
        request = {
            "exchange": "round",
            "sent": server.protocol().broadcast(state),
            "turn": state["turn"],
        }
        answer = node.answer(1, request | {"first": 0})
        server.protocol().check_message(
            answer["message"], facts, server.protocol().broadcast(state), state["turn"]
        )
        state = server.protocol().update(state, answer["message"])
    sent = server.protocol().broadcast(state)
    assert node.answer(1, {"exchange": "result", "sent": sent, "used": True}) == {"name": "north"}
    written = pd.read_csv(tmp_path / "run-1" / "estimate.csv")
    large = clone(estimator).fit(**{name: each[LARGE] for name, each in rows.items()})
    expected = large.protocol().estimates("pandas")
    label = written.columns[0]
    assert sorted(set(written[label])) == sorted(set(UNEVEN["groups"])), "every group is there"
    assert written[label].is_monotonic_increasing
    numbers = [name for name in expected.columns if expected[name].dtype.kind == "f"]
    kept = written[written[label].isin(expected[label])]
    np.testing.assert_allclose(kept[numbers], expected[numbers], rtol=1e-9)
    assert np.isfinite(written[numbers]).all(axis=None)
    text = (tmp_path / "run-1" / "summary.txt").read_text()
    assert "Groups with too few rows to send anything (min_group_size): s01, s02, s03, s04" in text
    if estimator in OF_MEANS:  # as of any group that the fit has not seen
        small = {"X": UNEVEN["X"][~LARGE], "groups": UNEVEN["groups"][~LARGE]}
        posterior = large.posterior(**small).to_frame()
        np.testing.assert_allclose(
            written["estimate"][written[label] < "s05"], posterior["estimate"], rtol=1e-9
        )


@pytest.mark.parametrize("colluding", [-1, 1.0, True, 4, None])
def test_as_many_partners_may_collude_as_leave_two(colluding):
    with pytest.raises(ValueError, match="colluding must be a whole number from 0 to 3"):
        Rules(partners=list("abcde"), colluding=colluding)
    with pytest.raises(ValueError, match="from 0 to 0"):
        Rules(colluding=1)


@pytest.mark.parametrize(("colluding", "least"), [(0, 3), (1, 4), (2, 4), (3, 5)])
def test_sums_of_too_few_nodes_are_refused(colluding, least):
    rules = Rules(partners=list("abcde"), colluding=colluding)
    for threshold in range(3, 6):
        agreed = terms("run", list("abcde"), 1, threshold=threshold)
        if threshold >= least:
            rules.check_sums("a", agreed | {"colluding": colluding})
            if colluding:
                with pytest.raises(ValueError, match="as if at most 0 partners were on the side"):
                    rules.check_sums("a", agreed)
        else:
            with pytest.raises(ValueError, match=f"colluding={colluding} of them; {least} are"):
                rules.check_sums("a", agreed)


def test_small_groups_may_send_what_is_protected(tmp_path):
    channel = Gaussian(epsilon=1.0, delta=1e-5, range=(-4, 4))
    both = eb.GaussianEB(1.0, channel={"private": channel, "open": Exact()})
    choice = np.where(UNEVEN["groups"] < "s03", "private", "open")
    rows = {"X": UNEVEN["X"], "groups": UNEVEN["groups"], "consent": choice}
    node = Node("north", both, lambda: rows, tmp_path, seed=1, budget=Rules())
    facts = node.answer(1, {"exchange": "roll call"})["facts"]
    assert facts["n"].tolist() == [1, 2, *range(5, 13)]
    private = DPFedAvg(privacy=ClientPrivacy(epsilon=1.0), n_rounds=2)
    node = Node("north", private, lambda: UNEVEN, tmp_path / "b", seed=1, budget=Rules())
    assert len(node.answer(1, {"exchange": "roll call"})["facts"]["n"]) == 12


def test_small_groups_may_train_alone_or_with_noise(tmp_path):
    opened = UNEVEN["groups"] < "s03"
    half = eb.learning.FeO2(privacy=ClientPrivacy(epsilon=1.0), n_rounds=2)
    consent = {"consent": np.where(opened, "open", "private")}
    for learner, more, sizes in (
        (half, consent, range(3, 13)),
        (eb.learning.FeO2(privacy=ClientPrivacy(noise_multiplier=0.0)), consent, range(5, 13)),
        (eb.learning.LocalOnly(n_rounds=2), {}, range(1, 13)),
    ):
        rows = UNEVEN | more
        node = Node("north", learner, lambda rows=rows: rows, tmp_path, seed=1, budget=Rules())
        run = len(list(tmp_path.glob("run-*")))
        facts = node.answer(run, {"exchange": "roll call"})["facts"]
        assert facts["n"].tolist() == list(sizes)


def test_a_node_of_small_groups_sends_nothing(tmp_path):
    assert hold(eb.GaussianEB(), tmp_path, y=None, budget=Rules()) == 0
    assert "no group has min_group_size=5 rows" in (tmp_path / "errors.log").read_text()
    assert hold(eb.GaussianEB(), tmp_path, y=None, budget=Rules(min_group_size=3)) == 1
