"""Nodes that are killed and started again."""

import os
import stat

import numpy as np
import pytest

from ebfed import wire
from ebfed.engines.secure_sum import (
    LocalNodes,
    SecureSums,
    StoredNode,
    keys,
    secure_sum,
    stored,
    terms,
)

NAMES = ["a", "b", "c"]
VECTORS = {name: np.array([i + 1, -7, 100 * i]) for i, name in enumerate(NAMES)}


def make(signed=False):
    signing = {name: keys.signing_key() if signed else None for name in NAMES}
    known = {name: keys.verify_key(key) for name, key in signing.items()} if signed else None
    return terms("run", NAMES, 3, verify=known), signing


@pytest.mark.parametrize("signed", [False, True])
def test_nodes_that_start_again_before_each_step(tmp_path, signed):
    """Each request is sent twice, to a new process each time."""
    agreed, signing = make(signed)
    drawn = []

    def ask(requests):
        answers = {}
        for name, asked in requests.items():

            def vector(_, name=name):
                drawn.append(name)
                return VECTORS[name]

            first, again = (
                [
                    StoredNode(tmp_path / name, name, agreed, signing[name]).answer(each, vector)
                    for each in asked
                ]
                for _ in range(2)
            )
            assert wire.pack(first) == wire.pack(again)
            answers[name] = again
        return answers

    rounds = SecureSums(agreed, ask)
    for _ in range(3):
        found = rounds.next()
        assert found.total.tolist() == sum(VECTORS.values()).tolist()
        assert found.lost == {}
    assert drawn == NAMES * 3  # noise is drawn once in a round


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("lost_answers", [False, True])
def test_a_server_that_is_killed_in_each_exchange(tmp_path, signed, lost_answers):
    """Before the answers have arrived, or after; the sums are those of a server that is not."""
    agreed, signing = make(signed)
    nodes = {name: StoredNode(tmp_path / name, name, agreed, signing[name]) for name in NAMES}
    kept, asked, drawn = [], [], []

    def vector(name):
        drawn.append(name)
        return VECTORS[name] + len(drawn)  # a second call would give another sum

    def answers_of(requests):
        return {
            name: [nodes[name].answer(each, lambda _, name=name: vector(name)) for each in own]
            for name, own in requests.items()
        }

    def ask(requests):
        asked.append([each["step"] for each in requests["a"]])
        if len(asked) % 2 and lost_answers:
            answers_of(requests)
            raise KeyboardInterrupt
        return answers_of(requests)

    def keep(state):
        kept.append(wire.pack(state))
        if not lost_answers:
            raise KeyboardInterrupt

    def killed(function):
        try:
            return function()
        except KeyboardInterrupt:
            return None

    rounds, sums, kills = SecureSums(agreed, ask, keep=keep), [], 0
    while len(sums) < 3:
        found = killed(rounds.next)
        if found is not None:
            if found.round == len(sums):  # not one that was returned before
                sums.append(found)
        else:
            kills += 1
            rounds = SecureSums(agreed, ask, keep=keep)
            if kept:
                rounds = SecureSums.resumed(wire.unpack(kept[-1]), ask, keep=keep)
    assert drawn == NAMES * 3
    for i, found in enumerate(sums):
        noise = sum(range(3 * i + 1, 3 * i + 4))
        assert found.total.tolist() == (sum(VECTORS.values()) + noise).tolist()
        assert found.lost == {}
    assert kills >= 3 * (3 if signed else 2)


@pytest.mark.parametrize("step", ["masked", "unmask"])
def test_a_sum_that_failed_is_held_again(tmp_path, step):
    """Two nodes are away in an exchange, and the server goes on from what it has kept."""
    agreed, _ = make()
    nodes = {name: StoredNode(tmp_path / name, name, agreed) for name in NAMES}
    kept, away = [], set()

    def ask(requests):
        gone = away if next(iter(requests.values()))[0]["step"] == step else ()
        return {
            name: [nodes[name].answer(each, lambda _, name=name: VECTORS[name]) for each in asked]
            for name, asked in requests.items()
            if name not in gone
        }

    def keep(state):
        kept.append(wire.pack(state))

    rounds = SecureSums(agreed, ask, keep=keep)
    rounds.next()
    away |= {"b", "c"}
    with pytest.raises(RuntimeError, match=f"round 1, {step}: 1 of 3 nodes answered"):
        rounds.next()
    away.clear()
    for _ in range(2):  # also after it was held again
        found = SecureSums.resumed(wire.unpack(kept[-1]), ask, keep=keep).next()
        assert found.round == 1
        assert found.lost == {}
        assert found.total.tolist() == sum(VECTORS.values()).tolist()


def test_another_request_for_the_same_step_is_refused(tmp_path):
    agreed, _ = make()
    nodes = LocalNodes(agreed, VECTORS)
    node, refused = StoredNode(tmp_path / "a", "a", agreed), []

    def ask(requests):
        (request,) = requests.pop("a")
        answers = {"a": [node.answer(request, lambda _: VECTORS["a"])], **nodes.ask(requests)}
        if request["step"] == "unmask":  # who is counted has another order, or a node is left out
            for counted in (["c", "b", "a"], ["a", "b"]):
                with pytest.raises(ValueError, match="does not follow"):
                    node.answer(request | {"counted": counted})
                refused.append(counted)
        return answers

    assert secure_sum(agreed, 0, ask).total.tolist() == sum(VECTORS.values()).tolist()
    assert len(refused) == 2
    with pytest.raises(ValueError, match="was begun before"):
        StoredNode(tmp_path / "a", "a", agreed).answer({"step": "keys", "round": 0, "more": 1})


def test_no_answer_is_given_before_it_is_stored(tmp_path, monkeypatch):
    agreed, _ = make()
    node = StoredNode(tmp_path / "a", "a", agreed)

    def full(path, private):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(stored, "replaced", full)
        with pytest.raises(OSError, match="no space"):
            node.answer({"step": "keys", "round": 0})
    assert "keys" in node.answer({"step": "keys", "round": 0})


def test_only_the_owner_can_read_the_state(tmp_path):
    agreed, _ = make()
    StoredNode(tmp_path / "a", "a", agreed).answer({"step": "keys", "round": 0})
    assert stat.S_IMODE(os.stat(tmp_path / "a").st_mode) == 0o600


def test_states_of_others_are_refused(tmp_path):
    agreed, _ = make()
    StoredNode(tmp_path / "a", "a", agreed).answer({"step": "keys", "round": 0})
    with pytest.raises(ValueError, match="state of another node"):
        StoredNode(tmp_path / "a", "b", agreed)
    with pytest.raises(ValueError, match="or of other terms"):
        StoredNode(tmp_path / "a", "a", terms("run 2", NAMES, 3))
    whole = (tmp_path / "a").read_bytes()
    for torn in (
        b"",
        whole[:-1],
        whole + b"x",
        b"PK",
        wire.pack(7),
        wire.pack([{"state": {}}] * 2),
    ):
        (tmp_path / "a").write_bytes(torn)
        with pytest.raises(ValueError, match="is no state of a secure sum"):
            StoredNode(tmp_path / "a", "a", agreed)
