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
from ebfed.engines.secure_sum import server as of_the_server
from ebfed.engines.secure_sum.keys import signing_key, verify_key
from ebfed.learning.rounds import LearnerRounds
from ebfed.streams import make_key

RNG = np.random.default_rng(5)
GROUPS = np.repeat(np.arange(200), 8)
X = RNG.normal(size=(len(GROUPS), 4))
Y = X @ [1.5, -1.0, 0.5, 0.0] + 0.5 * RNG.normal(size=len(GROUPS)) > 0


@pytest.fixture(autouse=True)
def _as_in_a_run(monkeypatch):
    as_in_a_run(monkeypatch)


class RecordingGrid(Grid):
    """A grid that keeps all answers; some nodes are silent in some exchanges, or change theirs."""

    def __init__(self, nodes, silent=(), change=None):
        super().__init__({number: partial(self.reply, node) for number, node in nodes.items()})
        self.silent, self.seen, self.change = silent, [], change or {}

    def reply(self, node, message):
        number = message.metadata.dst_node_id
        if (number, message.metadata.group_id) in self.silent:
            return []
        answer = node.answer(1, messages.unpack(message))
        answer = self.change.get(number, dict)(answer)
        self.seen.append(answer)
        return [(0, messages.make_reply(message, answer))]


LEARNER = eb.learning.FedAvg(
    n_rounds=12,
    local_steps=3,
    learning_rate=0.5,
    random_state=0,
    privacy=eb.ClientPrivacy(epsilon=8, trust="nobody"),
    sampling="poisson",
)
NAMES = [f"node {i}" for i in range(5)]


# To see who is let in.
SHORT = clone(LEARNER).set_params(n_rounds=2)


def make_nodes(folder, partners=NAMES, learner=LEARNER, colluding=(0,) * 5):
    nodes = {}
    for i, name in enumerate(NAMES):
        own = np.isin(GROUPS % 5, i)
        rows = {"X": X[own], "y": Y[own], "groups": GROUPS[own]}
        rules = Rules(min_group_size=1, partners=partners, colluding=colluding[i])
        nodes[i] = Node(name, learner, lambda rows=rows: rows, folder / name, seed=0, budget=rules)
    return nodes


def fit(grid, out, learner=LEARNER, **terms):
    terms = {"plan": {}, "fit": 1, "quorum": 4, "deadline": 1.0} | terms
    return serve(learner, FlowerCohort(grid, learner, 5, **terms), out)


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


def test_sums_are_divided_by_what_those_in_them_are_expected_to_be(tmp_path):
    """A clip that follows the messages stays near them where a node is away."""
    learner = clone(LEARNER).set_params(
        n_rounds=10, privacy__clip_quantile=0.9, privacy__clip_step=2.0, privacy__bit_noise=1.0
    )
    clips = []
    away = {(3, f"round {k}, masked{also}") for k in range(1, 11) for also in ("", " and keys")}
    for name, silent in (("all", ()), ("some", away)):
        grid = RecordingGrid(make_nodes(tmp_path / name, learner=learner), silent)
        fitted = fit(grid, tmp_path / name / "out", learner)
        clips.append(fitted.history_["clip"].to_numpy())
    assert clips[1][-1] < 1.5 * clips[0][-1]


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """What is fitted where nothing happens."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        as_in_a_run(patch)
        return fit(RecordingGrid(make_nodes(folder)), folder / "out").shared_["w"]


def public_keys(grid):
    """All public keys that nodes have shown, as often as they were drawn: once in each round."""
    shown = {
        (seen["name"], each["round"], kind): each["keys"][kind].tobytes()
        for seen in grid.seen
        for each in seen.get("answers", ())
        if each["step"] == "keys"
        for kind in ("mask", "box")
    }
    return [*shown.values()]


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("last", ["round 1, masked and keys", "round 5, unmask"])
def test_a_server_that_was_killed_goes_on(tmp_path, last, signed, expected):
    """With the same draws at the nodes, the result is the same to the last bit; keys are new."""
    grid = RecordingGrid((with_keys if signed else make_nodes)(tmp_path))
    push, killed = grid.push_messages, []

    def push_and_die(sent):
        for message in sent:
            if message.metadata.group_id.startswith(last) and not killed:
                killed.append(message)
                raise KeyboardInterrupt
        yield from push(sent)

    grid.push_messages = push_and_die
    with pytest.raises(KeyboardInterrupt):
        fit(grid, tmp_path / "out")
    assert (tmp_path / "out" / "sums.ebfed").exists()
    # nodes are started again, too
    again = RecordingGrid((with_keys if signed else make_nodes)(tmp_path))
    found = fit(again, tmp_path / "out").shared_["w"]
    np.testing.assert_array_equal(found, expected)
    assert not (tmp_path / "out" / "sums.ebfed").exists()
    again.seen = grid.seen + again.seen
    shown = public_keys(again)
    assert len(set(shown)) == len(shown) == 5 * 2 * 13  # of the round that was begun ahead, too


def test_a_sum_that_failed_is_held_when_the_fit_goes_on(tmp_path, expected):
    """Two nodes were away; the three that have answered give the same answers again."""
    silent = {(i, "round 4, masked and keys") for i in (2, 3)}
    with pytest.raises(RuntimeError, match="round 3, masked: 3 of 5 nodes answered, 4 are needed"):
        fit(RecordingGrid(make_nodes(tmp_path), silent), tmp_path / "out", deadline=0.2)
    found = fit(RecordingGrid(make_nodes(tmp_path)), tmp_path / "out").shared_["w"]
    np.testing.assert_array_equal(found, expected)


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


def test_those_who_do_not_collude_give_all_the_noise(tmp_path, monkeypatch):
    """Shares of those that are left of the threshold; an owner who fears more takes no part."""
    asked, sums = set(), LearnerRounds.secure_sums

    def recorded(self, sent, *, nodes, rows, survivors):
        asked.add((nodes, survivors))
        return sums(self, sent, nodes=nodes, rows=rows, survivors=survivors)

    monkeypatch.setattr(LearnerRounds, "secure_sums", recorded)
    fit(RecordingGrid(make_nodes(tmp_path, colluding=(2, 1, 3, 2, 2))), tmp_path / "out")
    # that it is for sums is asked of a protocol with two nodes
    assert asked == {(2, 1), (5, 2)}
    assert "colluding=3" in (tmp_path / "node 2" / "errors.log").read_text()


def test_a_node_sends_its_part_in_no_other_way(tmp_path):
    """A server that asks for the message itself gets nothing."""
    node = make_nodes(tmp_path)[0]
    facts = node.answer(1, {"exchange": "roll call"})["facts"]
    server = clone(LEARNER)
    state = server.protocol().start(facts, make_key(0))
    request = {"exchange": "round", "sent": server.protocol().broadcast(state), "first": 0}
    answer = node.answer(1, request | {"turn": np.zeros(len(facts["n"]), np.int8)})
    assert answer["failure"].startswith("ValueError")
    assert "for secure sums only" in (tmp_path / "node 0" / "errors.log").read_text()


class Server:
    """A server that asks nodes by itself, for sums of the first round, and may lie.

    `change` returns what a node is asked in place of the request that the others get; `left_out`
    are not asked for vectors.
    """

    def __init__(self, folder, nodes, run="1"):
        self.folder, self.nodes = folder, dict(zip(NAMES, nodes.values(), strict=True))
        shown = {name: x.answer(1, {"exchange": "roll call"}) for name, x in self.nodes.items()}
        facts = [each["facts"] for each in shown.values()]
        server = clone(LEARNER)
        self.sent = server.protocol().broadcast(server.protocol().start(join(facts), make_key(0)))
        self.turn = np.zeros(max(len(each["n"]) for each in facts), np.int8)
        rows = len(self.turn)
        size = LEARNER.protocol().secure_sums(self.sent, nodes=5, rows=rows, survivors=4).grid.size
        listed = shown["node 0"].get("partners", {})
        keys = {name: listed[name] for name in NAMES if len(listed.get(name, ()))}
        self.agreed = terms(run, NAMES, size, threshold=4, verify=keys or None)
        self.common = {"sent": self.sent, "turn": self.turn, "first": 0}
        self.of_sums = {"exchange": "sum", "rows": rows, "terms": self.agreed}
        self.left_out, self.seen, self.change = set(), [], lambda name, request: request
        self.sums = SecureSums(self.agreed, self.relay)
        self.about = messages.question(self.common | self.of_sums)

    def ask(self, name, **request):
        return self.nodes[name].answer(1, self.common | request)

    def relay(self, asked):
        answers = {}
        for name, requests in asked.items():
            if name in self.left_out and requests[-1]["step"] != "keys":
                continue
            request = self.change(name, self.of_sums | {"requests": requests})
            answer = self.ask(name, **request)
            if "answers" in answer:
                answers[name] = answer["answers"]
                self.seen += answer["answers"]
        return answers

    def log_of(self, name):
        return (self.folder / name / "errors.log").read_text()


def test_a_round_is_summed_once(tmp_path):
    """Two sums of the same vectors, of which one leaves out a node, would show its vector."""
    server = Server(tmp_path, make_nodes(tmp_path))
    assert server.sums.next(server.about).round == 0
    server.left_out.add("node 2")
    with pytest.raises(RuntimeError, match="masked: 0 of 5 nodes answered"):
        server.sums.next(server.about)
    assert "a round is summed once" in server.log_of("node 0")


def test_a_part_of_a_sum_is_not_sent_as_a_message(tmp_path):
    """A server that asks for the message of a round that was summed has the vector itself."""
    server = Server(tmp_path, make_nodes(tmp_path))
    server.sums.next(server.about)
    for more in ({}, {"rows": 40, "terms": server.agreed}):
        assert "failure" in server.ask("node 0", exchange="round", **more)
    assert "answered to another question" in server.log_of("node 0")


def test_a_vector_answers_the_question_that_is_signed(tmp_path):
    """It is formed for a request that is refused in the end, and asked for with other numbers."""
    server = Server(tmp_path, make_nodes(tmp_path))
    other = server.sent | {"shared": {name: x + 1 for name, x in server.sent["shared"].items()}}

    def change(name, request):
        (first, *_) = request["requests"]
        if name == "node 0" and first["step"] == "masked":
            wrong = request | {"requests": [first | {"boxes": {}}], "sent": other}
            assert "failure" in server.ask(name, **wrong)
        return request

    server.change = change
    found = server.sums.next(server.about)
    assert found.lost["node 0"] == "masked: no answer"
    assert "answered to another question" in server.log_of("node 0")


def test_a_state_that_is_gone_begins_no_other_sum(tmp_path):
    server = Server(tmp_path, make_nodes(tmp_path))
    server.sums.next(server.about)
    (tmp_path / "node 0" / "run-1" / "sums.ebfed").unlink()
    again = Server(tmp_path, make_nodes(tmp_path))
    asked = again.of_sums | {"requests": [{"step": "keys", "round": 0}]}
    assert "failure" in again.ask("node 0", **asked)
    assert "sums.ebfed, which says so, is gone" in again.log_of("node 0")


def test_a_sum_of_another_run_is_refused(tmp_path):
    """Its keys could be those of that run, of which the server may know secrets."""
    server = Server(tmp_path, make_nodes(tmp_path), run="2")
    with pytest.raises(RuntimeError, match="keys: 0 of 5 nodes"):
        server.sums.next()
    assert "the sum is one of run '2'; this is run 1" in server.log_of("node 0")


def others_told(what):
    """Tell node 4 something else than the others."""

    def change(name, request):
        if name != "node 4":
            return request
        if what == "plan":
            return request | {"plan": {"method": "another"}}
        if what == "rows":
            return request | {"rows": request["rows"] + 1}
        return request | {"sent": what}

    return change


@pytest.mark.parametrize("what", ["sent", "plan", "rows"])
@pytest.mark.parametrize("lies", [False, True])
def test_nodes_that_receive_different_questions(tmp_path, what, lies, monkeypatch):
    """A server that checks leaves the node out; one that does not gets no share of a secret."""
    server = Server(tmp_path, with_keys(tmp_path))
    shared = {name: x + 1 for name, x in server.sent["shared"].items()}
    server.change = others_told(server.sent | {"shared": shared} if what == "sent" else what)
    if not lies:
        found = server.sums.next(server.about)
        assert found.counted == tuple(NAMES[:4])
        assert found.lost["node 4"].startswith("masked: node 4 has not signed")
        return
    monkeypatch.setattr(of_the_server, "check_signed", lambda *_: None)
    with pytest.raises(RuntimeError, match="unmask: 0 of 5 nodes"):
        server.sums.next(server.about)
    assert "node 4 has not signed what this node has seen" in server.log_of("node 0")
    assert not any({"seeds", "secrets"} & each.keys() for each in server.seen)
    assert sum("masked" in each for each in server.seen) == 5


def with_keys(folder, changes=None, learner=LEARNER):
    """Nodes whose owners have exchanged keys; `changes` are of the table of the first one."""
    keys = {}
    for name in NAMES:
        (folder / name).mkdir(exist_ok=True)
        keys[name] = stored_key(folder / name / "sum-key")[1].tobytes().hex()
    nodes = make_nodes(folder, keys, learner)
    first = make_nodes(folder, keys | (changes or {}), learner)[0]
    return nodes | {0: first}


def test_nodes_that_know_each_others_keys(tmp_path, expected):
    """A round has another step, in which nodes sign what they have seen; the sum is the same."""
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
    with pytest.raises(RuntimeError, match="4 of 5 nodes answered, 5 are needed"):
        fit(RecordingGrid(nodes), tmp_path / "b" / "out", quorum=5, deadline=0.3)
    said = (tmp_path / "b" / "node 4" / "errors.log").read_text()
    assert "must list their keys, or none" in said


STRANGE = verify_key(signing_key())
SHOWN = {
    "another key of its own": lambda table: table | {"node 4": STRANGE},
    "other keys of all": lambda table: dict.fromkeys(table, STRANGE),
    "no keys": lambda table: dict.fromkeys(table, STRANGE[:0]),
    "other nodes": lambda table: {"node 4": STRANGE, "node 9": STRANGE},
    "nothing": lambda table: None,
}


@pytest.mark.parametrize("shown", SHOWN)
def test_one_node_does_not_end_the_sums_of_all(tmp_path, shown):
    """Whatever partners and keys it says that its owner lists."""

    def change(answer):
        if "partners" in answer:
            table = SHOWN[shown](answer["partners"])
            answer = {name: x for name, x in answer.items() if name != "partners"}
            answer |= {} if table is None else {"partners": table}
        return answer

    nodes = with_keys(tmp_path, learner=SHORT)
    fitted = fit(RecordingGrid(nodes, change={4: change}), tmp_path / "out", SHORT)
    assert len(fitted.history_) == SHORT.n_rounds
    assert np.isfinite(fitted.shared_["w"]).all()


def test_a_node_that_others_do_not_list_is_left_out(tmp_path):
    """A fifth node, whose owner lists all, and whom no other owner lists."""
    fifth = with_keys(tmp_path, learner=SHORT)[4]
    keys = {x: stored_key(tmp_path / x / "sum-key")[1].tobytes().hex() for x in NAMES[:4]}
    grid = RecordingGrid(make_nodes(tmp_path, keys, SHORT) | {4: fifth})
    fit(grid, tmp_path / "out", SHORT)
    said = pd.read_csv(tmp_path / "out" / "participants.csv", keep_default_na=False)
    row = said[said["exchange"] == "secure sums"].iloc[0]
    assert row.tolist()[1:4] == ["node 4", "failed", "most owners do not list it"]
