"""Learners whose server is not trusted, over a grid that is not there."""

from functools import partial

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("flwr")

from grids import Grid, as_in_a_run
from sklearn.base import clone

import ebfed as eb
from ebfed.engines.base import join
from ebfed.engines.flower import FlowerCohort, Node, Rules, messages, serve
from ebfed.engines.secure_sum import SecureSums, stored_key, terms
from ebfed.engines.secure_sum.keys import signing_key, verify_key
from ebfed.streams import make_key

RNG = np.random.default_rng(5)
GROUPS = np.repeat(np.arange(200), 8)
X = RNG.normal(size=(len(GROUPS), 4))
Y = X @ [1.5, -1.0, 0.5, 0.0] + 0.5 * RNG.normal(size=len(GROUPS)) > 0


@pytest.fixture(autouse=True)
def _as_in_a_run(monkeypatch):
    as_in_a_run(monkeypatch)


class RecordingGrid(Grid):
    """A grid that keeps all answers; some nodes are silent in some exchanges."""

    def __init__(self, nodes, silent=()):
        super().__init__({number: partial(self.reply, node) for number, node in nodes.items()})
        self.silent, self.seen = silent, []

    def reply(self, node, message):
        if (message.metadata.dst_node_id, message.metadata.group_id) in self.silent:
            return []
        answer = node.answer(1, messages.unpack(message))
        self.seen.append(answer)
        return [(0, messages.make_reply(message, answer))]


LEARNER = eb.FedAvg(
    n_rounds=12,
    local_steps=3,
    learning_rate=0.5,
    random_state=0,
    privacy=eb.ClientPrivacy(epsilon=8, trust="nobody"),
    sampling="poisson",
)
NAMES = [f"node {i}" for i in range(5)]


def make_nodes(folder, partners=NAMES):
    nodes = {}
    for i, name in enumerate(NAMES):
        own = np.isin(GROUPS % 5, i)
        rows = {"X": X[own], "y": Y[own], "groups": GROUPS[own]}
        rules = Rules(min_group_size=1, partners=partners)
        nodes[i] = Node(name, LEARNER, lambda rows=rows: rows, folder / name, seed=0, budget=rules)
    return nodes


def fit(grid, out, **terms):
    terms = {"plan": {}, "fit": 1, "quorum": 4, "deadline": 1.0} | terms
    return serve(LEARNER, FlowerCohort(grid, LEARNER, 5, **terms), out)


@pytest.mark.parametrize(
    "silent", [(), {(3, "round 4, masked and keys"), (2, "round 6, unmask and shares")}]
)
def test_a_learner_that_trusts_nobody(tmp_path, silent):
    grid = RecordingGrid(make_nodes(tmp_path), silent)
    fitted = fit(grid, tmp_path / "out")
    here = clone(LEARNER).fit(X, Y, groups=GROUPS)
    central = here.score(X, Y, groups=GROUPS)
    w = fitted.shared_["w"]
    got = np.mean(here.model_.bind(4, 2).predict(w[None], X[None])[0].argmax(axis=1) == Y)
    assert got == pytest.approx(central, abs=0.03)
    assert not any("message" in each for each in grid.seen)
    assert "the nodes together" in str(fitted.privacy_["what"].iloc[0])


@pytest.mark.parametrize("last", ["round 1, masked and keys", "round 5, unmask and shares"])
def test_a_server_that_was_killed_goes_on(tmp_path, last):
    """With the same draws at the nodes, the result is the same to the last bit."""
    (tmp_path / "others").mkdir()
    expected = fit(
        RecordingGrid(make_nodes(tmp_path / "others")), tmp_path / "undisturbed"
    ).shared_["w"]
    grid = RecordingGrid(make_nodes(tmp_path))
    push, killed = grid.push_messages, []

    def push_and_die(sent):
        for message in sent:
            if message.metadata.group_id == last and not killed:
                killed.append(message)
                raise KeyboardInterrupt
        yield from push(sent)

    grid.push_messages = push_and_die
    with pytest.raises(KeyboardInterrupt):
        fit(grid, tmp_path / "out")
    assert (tmp_path / "out" / "sums.ebfed").exists()
    found = fit(grid, tmp_path / "out").shared_["w"]
    np.testing.assert_array_equal(found, expected)
    assert not (tmp_path / "out" / "sums.ebfed").exists()


@pytest.mark.parametrize(
    ("partners", "what"),
    [
        (None, "partners of node.toml must name"),
        (["node 0", "node 1"], "'node 2' is not among the partners"),
        ([*NAMES, *"abcdefg"], "sums of 4 nodes are of half of the 12 partners"),
    ],
)
def test_sums_that_an_owner_refuses(tmp_path, partners, what):
    with pytest.raises(RuntimeError, match=r"fewer|needed"):
        fit(RecordingGrid(make_nodes(tmp_path, partners)), tmp_path / "out", deadline=0.3)
    assert what in (tmp_path / "node 0" / "errors.log").read_text()


def test_a_node_sends_its_part_in_no_other_way(tmp_path):
    """A server that asks for the message itself gets nothing."""
    node = make_nodes(tmp_path)[0]
    facts = node.answer(1, {"exchange": "roll call"})["facts"]
    server = clone(LEARNER)
    state = server.start(facts, make_key(0))
    request = {"exchange": "round", "sent": server.broadcast(state), "first": 0}
    answer = node.answer(1, request | {"turn": np.zeros(len(facts["n"]), np.int8)})
    assert answer["failure"].startswith("ValueError")
    assert "for secure sums only" in (tmp_path / "node 0" / "errors.log").read_text()


def test_a_round_is_summed_once(tmp_path):
    """Two sums of the same vectors, of which one leaves out a node, would show its vector."""
    nodes = dict(zip(NAMES, make_nodes(tmp_path).values(), strict=True))
    facts = {
        name: node.answer(1, {"exchange": "roll call"})["facts"] for name, node in nodes.items()
    }
    server = clone(LEARNER)
    sent = server.broadcast(server.start(join([*facts.values()]), make_key(0)))
    rows = max(len(each["n"]) for each in facts.values())
    grid = LEARNER.secure_sums(sent, nodes=5, rows=rows, survivors=4).grid
    agreed = terms("1", NAMES, grid.size, threshold=4)
    common = {"exchange": "sum", "sent": sent, "rows": rows, "terms": agreed, "first": 0}
    left_out = set()

    def relay(asked):
        answers = {}
        for name, requests in asked.items():
            if name in left_out and requests[-1]["step"] != "keys":
                continue
            turn = np.zeros(len(facts[name]["n"]), np.int8)
            answer = nodes[name].answer(1, common | {"requests": requests, "turn": turn})
            if "answers" in answer:
                answers[name] = answer["answers"]
        return answers

    sums = SecureSums(agreed, relay)
    assert sums.next().round == 0
    left_out.add("node 2")
    with pytest.raises(RuntimeError, match="masked: 0 of 5 nodes answered"):
        sums.next()
    assert "a round is summed once" in (tmp_path / "node 0" / "errors.log").read_text()


def with_keys(folder, changes=None):
    """Nodes whose owners have exchanged keys; `changes` are of the table of the first one."""
    keys = {}
    for name in NAMES:
        (folder / name).mkdir()
        keys[name] = stored_key(folder / name / "sum-key")[1].tobytes().hex()
    nodes = make_nodes(folder, keys)
    first = make_nodes(folder, keys | (changes or {}))[0]
    return nodes | {0: first}


def test_nodes_that_know_each_others_keys(tmp_path):
    """A round has another step, in which nodes sign what they have seen; the sum is the same."""
    (tmp_path / "others").mkdir()
    expected = fit(
        RecordingGrid(make_nodes(tmp_path / "others")), tmp_path / "undisturbed"
    ).shared_["w"]
    grid = RecordingGrid(with_keys(tmp_path), {(2, "round 3, masked and keys")})
    found = fit(grid, tmp_path / "out").shared_["w"]
    assert found.shape == expected.shape
    steps = {step["step"] for seen in grid.seen for step in seen.get("answers", ())}
    assert steps == {"keys", "shares", "masked", "agree", "unmask"}
    said = pd.read_csv(tmp_path / "out" / "participants.csv", keep_default_na=False)
    of_2 = said[said["node"] == "node 2"].set_index("exchange")["status"]
    assert of_2["round 3, masked and keys"] == "silent"
    assert of_2["round 5, masked and keys"] == "answered"  # it is back in the round after the next


def test_keys_of_a_server(tmp_path):
    """A key that is not the one of the owner, or a node whose owner lists none."""
    other = verify_key(signing_key()).tobytes().hex()
    (tmp_path / "a").mkdir()
    nodes = with_keys(tmp_path / "a", {"node 3": other})
    fit(RecordingGrid(nodes), tmp_path / "a" / "out", deadline=0.3)
    assert "the key of 'node 3' is not" in (tmp_path / "a" / "node 0" / "errors.log").read_text()
    (tmp_path / "b").mkdir()
    nodes = with_keys(tmp_path / "b") | {4: make_nodes(tmp_path / "b")[4]}
    with pytest.raises(RuntimeError, match=r"fewer|needed"):
        fit(RecordingGrid(nodes), tmp_path / "b" / "out", deadline=0.3)
    said = (tmp_path / "b" / "node 0" / "errors.log").read_text()
    assert "must list their keys, or none" in said
