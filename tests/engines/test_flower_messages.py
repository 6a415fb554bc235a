"""Answers under a name are of the node whose key was registered under it."""

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("flwr")

from flwr.supercore.primitives.asymmetric import generate_key_pairs
from grids import RegisteredGrid, as_in_a_run

import ebfed as eb
from ebfed.engines.flower import FlowerCohort, Node, messages, serve

GROUPS = np.repeat([f"g{i:02d}" for i in range(40)], 4)
X = np.repeat(np.random.default_rng(1).normal(3, 1, 40), 4) + np.random.default_rng(2).normal(
    size=160
)
NAMES = ["a", "b", "c", "d"]
REGISTERED = dict(enumerate(NAMES))
PARTS = dict(zip(NAMES, np.array_split(np.arange(160), 4), strict=True))


@pytest.fixture(autouse=True)
def _as_in_a_run(monkeypatch):
    as_in_a_run(monkeypatch)


@pytest.fixture
def nodes(tmp_path):
    """Nodes that answer as they should, and sign."""

    def node(name):
        load = lambda: {"X": X[PARTS[name]], "groups": GROUPS[PARTS[name]]}  # noqa: E731
        own = Node(name, eb.GaussianEB(), load, tmp_path / name, seed=0, budget=np.inf)

        def answer(message, private):
            reply = own.answer(1, messages.unpack(message))
            return [(0, messages.make_reply(message, reply, private))]

        return answer

    return {i: node(name) for i, name in REGISTERED.items()}


def fit(grid, out, nodes=4, quorum=3, deadline=0.5):
    terms = {"plan": {}, "fit": 1, "quorum": quorum, "deadline": deadline}
    return serve(eb.GaussianEB(), FlowerCohort(grid, eb.GaussianEB(), nodes, **terms), out)


def said(out):
    table = pd.read_csv(out / "participants.csv", keep_default_na=False)
    return {(row.exchange, row.node): (row.status, row.detail) for row in table.itertuples()}


def is_of(fitted, names):
    rows = np.concatenate([PARTS[name] for name in names])
    here = eb.GaussianEB().fit(X[rows], groups=GROUPS[rows])
    np.testing.assert_allclose(fitted.prior_.mean_, here.prior_.mean_, rtol=1e-12)


def named(node, name, exchange=None):
    """Let a node give another name, in all exchanges or in one."""

    def answer(message, private):
        ((looks, reply),) = node(message, private)
        content = messages.unpack(reply)
        if exchange in (None, messages.unpack(message)["exchange"]):
            content["name"] = name
        return [(looks, messages.make_reply(message, content, private))]

    return answer


@pytest.mark.parametrize("invited", [4, NAMES])
def test_nodes_that_give_their_names(nodes, tmp_path, invited):
    is_of(fit(RegisteredGrid(nodes, REGISTERED), tmp_path, invited, quorum=1.0), NAMES)
    assert {status for status, _ in said(tmp_path).values()} == {"answered"}


OTHER = "gives the name 'a', which is not that of its key"


@pytest.mark.parametrize("invited", [4, NAMES])
@pytest.mark.parametrize("exchange", ["roll call", "round"])
def test_a_node_that_gives_anothers_name_is_left_out(nodes, tmp_path, invited, exchange):
    nodes[3] = named(nodes[3], "a", exchange)
    is_of(fit(RegisteredGrid(nodes, REGISTERED), tmp_path, invited), "abc")
    title = "round 1" if exchange == "round" else exchange
    assert said(tmp_path)[title, "d"] == ("failed", OTHER)
    assert said(tmp_path)["round 1", "a"] == ("answered", "")
    with pytest.raises(RuntimeError, match=r"3 of 4 nodes answered, 4 are needed \(d failed"):
        fit(RegisteredGrid(nodes, REGISTERED), tmp_path / "all", invited, quorum=4)


def test_nobody_takes_the_place_of_an_absent_node(nodes, tmp_path):
    """Neither in the roll call nor of a fit that goes on, of which the node was a part."""
    present = {0: nodes[0], 1: nodes[1], 2: named(nodes[2], "d")}
    grid = RegisteredGrid(present, REGISTERED)
    with pytest.raises(RuntimeError, match="2 of 4 nodes"):
        fit(grid, tmp_path / "one", NAMES)
    assert said(tmp_path / "one")["roll call", "d"] == ("silent", "")
    terms = {"plan": {}, "fit": 1, "quorum": 2, "deadline": 0.5}
    cohort = FlowerCohort(grid, eb.GaussianEB(), NAMES, **terms)
    cohort.call_roll([{"name": name, "facts": {"n": np.full(10, 4)}} for name in NAMES])

    def found():
        cohort._called.clear()
        cohort._find_absent()
        for reply in cohort._replies([*cohort._overdue]):
            cohort._late(reply)
        return [member.id for member in cohort._members]

    assert found() == [0, 1, None, None]
    grid.keys[3] = generate_key_pairs()[0]
    grid.nodes[3] = grid._signing(3, nodes[3])
    assert found() == [0, 1, None, 3], "the node itself"


@pytest.mark.parametrize("quorum", [2, 3])
def test_two_keys_of_one_name_are_both_left_out(nodes, tmp_path, quorum):
    names = REGISTERED | {3: "a"}
    grid = RegisteredGrid(nodes | {3: named(nodes[3], "a")}, names)
    if quorum == 2:
        is_of(fit(grid, tmp_path, quorum=2), "bc")
    else:
        with pytest.raises(RuntimeError, match=r"2 of 4 .*\(a failed \(two nodes have this name\)"):
            fit(grid, tmp_path, quorum=3)
    assert said(tmp_path)["roll call", "a"] == ("failed", "two nodes have this name")


def test_a_key_without_a_name_is_left_out(nodes, tmp_path):
    """Where the SuperLink lets nodes register themselves, beside nodes that its owner named."""
    grid = RegisteredGrid(nodes, {i: REGISTERED[i] for i in range(3)})
    is_of(fit(grid, tmp_path), "abc")
    assert said(tmp_path)["roll call", "node 3"] == (
        "failed",
        "its key is registered under no name",
    )


def test_names_that_are_not_registered_are_what_nodes_say(nodes, tmp_path, capsys):
    is_of(fit(RegisteredGrid(nodes, {}), tmp_path), NAMES)
    assert "names are what nodes say: no key is registered" in capsys.readouterr().out


def unsigned(node):
    return lambda message, private: node(message, None)


def by_another(node):
    own = RegisteredGrid({0: node}, {}).keys[0]
    return lambda message, private: node(message, own)


def replayed(node):
    """Give the first answer to each question, with the signature that it had."""
    first = []

    def answer(message, private):
        first.extend(node(message, private))
        content = first[0][1].content
        ((looks, reply),) = node(message, private)
        reply.content = content
        return [(looks, reply)]

    return answer


@pytest.mark.parametrize("kind", [unsigned, by_another, replayed])
def test_answers_without_the_signature_of_their_node_are_left_out(nodes, tmp_path, kind):
    nodes[3] = kind(nodes[3])
    is_of(fit(RegisteredGrid(nodes, REGISTERED), tmp_path), "abc")
    title = "round 1" if kind is replayed else "roll call"
    assert said(tmp_path)[title, "d"] == ("failed", messages.UNSIGNED)


@pytest.mark.parametrize("late", [0, 3])
def test_an_answer_in_the_name_of_another_number_is_ignored(nodes, tmp_path, late):
    """Flower lets each node say from which node a reply is; here node 3 answers for node 0 too."""
    own = nodes[0]

    def outpaced(message, private):
        ((_, reply),) = own(message, private)
        false = messages.unpack(reply)
        if "message" in false:
            false["message"]["all clients"]["mean"] = np.full((10, 1), 1e6)
        forged = messages.make_reply(message, false, grid.keys[3])
        return [(0, forged), (late, reply)]

    grid = RegisteredGrid(nodes | {0: outpaced}, REGISTERED)
    is_of(fit(grid, tmp_path, deadline=20.0), NAMES)
