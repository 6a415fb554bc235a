"""What a node answers, and what it refuses."""

import numpy as np
import pytest

from ebfed.engines.secure_sum import answer, keys, sign_up, terms
from ebfed.engines.secure_sum.messages import context, largest
from ebfed.engines.secure_sum.node import own_mask, shared_mask
from ebfed.engines.secure_sum.server import advance, begin

NAMES = ["a", "b", "c", "d", "e"]
TERMS = terms("run", NAMES, 2)
VECTOR = np.array([3, -4])


class Round:
    """All nodes, up to a step: `requests` is what the server would send next."""

    def __init__(self, step, agreed=TERMS, signing=None, silent=()):
        signing = signing or {}
        self.states = {name: sign_up(name, agreed, signing.get(name)) for name in agreed["names"]}
        self.server, self.requests = begin(agreed, 0)
        while self.server["step"] != step:
            answers = {
                name: self.answer(name)
                for name in self.requests
                if (name, self.server["step"]) not in silent
            }
            self.server, self.requests = advance(self.server, answers)

    def answer(self, name, **changed):
        request = self.requests[name] | changed
        vector = VECTOR if request["step"] == "masked" else None
        self.states[name], reply = answer(self.states[name], request, vector)
        return reply

    def refuses(self, message, name="a", **changed):
        before = dict(self.states[name])
        with pytest.raises(ValueError, match=message):
            self.answer(name, **changed)
        assert self.states[name].keys() == before.keys()


def signers(names=NAMES):
    return {name: keys.signing_key() for name in names}


def signed_terms(signing, **more):
    known = {name: keys.verify_key(key) for name, key in signing.items()}
    return terms("run", list(signing), 2, verify=known, **more)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (None, "must be a dict"),
        ({}, "step must be one of keys, shares, masked, unmask; got None"),
        ({"step": "agree", "round": 0}, "step must be one of"),
        ({"step": "keys"}, "round must be"),
        ({"step": "keys", "round": -1}, "round must be"),
        ({"step": "keys", "round": 1.0}, "round must be"),
        ({"step": "shares", "round": 0}, "does not follow"),
        ({"step": "unmask", "round": -1}, "round must be"),
        ({"step": "keys", "round": 0, "terms": np.zeros(32, np.uint8)}, "not those"),
    ],
)
def test_a_request_of_another_form_is_refused(request_, message):
    with pytest.raises(ValueError, match=message):
        answer(sign_up("a", TERMS), request_)


def test_a_node_signs_up_for_terms_that_have_it():
    with pytest.raises(ValueError, match="name must be one of"):
        sign_up("f", TERMS)
    with pytest.raises(ValueError, match="signing must be given"):
        sign_up("a", TERMS, keys.signing_key())
    signing = signers()
    with pytest.raises(ValueError, match="signing must be given"):
        sign_up("a", signed_terms(signing))
    with pytest.raises(ValueError, match="private key of verify"):
        sign_up("a", signed_terms(signing), signing["b"])


def test_other_participants_than_it_signed_up_with_are_refused():
    state = sign_up("a", TERMS)
    for other in (
        terms("run", ["a", "b", "c", "d", "f"], 2),
        terms("run", NAMES, 2, threshold=4),
        terms("other run", NAMES, 2),
    ):
        with pytest.raises(ValueError, match="not those that this node has signed up for"):
            answer(state, begin(other, 0)[1]["a"])
    node = Round("shares")
    shown = node.requests["a"]["keys"]
    node.refuses("'f' is not among", keys=shown | {"f": shown["b"]})


@pytest.mark.parametrize("step", ["keys", "shares", "masked", "unmask"])
def test_a_step_is_answered_once(step):
    node = Round(step)
    node.answer("a")
    node.refuses("was begun before" if step == "keys" else "does not follow")


@pytest.mark.parametrize("last", ["keys", "masked", "unmask"])
def test_a_round_is_not_repeated(last):
    node = Round(last)
    node.answer("a")
    for round_ in (0, -1):
        with pytest.raises(ValueError, match=r"was begun before|round must be"):
            answer(node.states["a"], {"step": "keys", "round": round_})
    later, _ = answer(node.states["a"], {"step": "keys", "round": 5})
    with pytest.raises(ValueError, match="was begun before"):
        answer(later, {"step": "keys", "round": 4})


def test_a_new_round_forgets_the_secrets_of_the_last():
    node = Round("unmask")
    assert {"shares", "keys", "view"} <= node.states["a"].keys()
    later, _ = answer(node.states["a"], {"step": "keys", "round": 1})
    assert not {"shares", "view"} & later.keys()
    assert list(later["keys"]) == ["a"]


def test_secrets_are_kept_no_longer_than_needed():
    node = Round("unmask")
    assert not {"seed", "secret", "box"} & node.states["a"].keys()
    node.answer("a")
    assert node.states["a"].keys() == {"name", "terms", "round", "step"}


def test_keys_that_are_wrong_are_refused():
    node = Round("shares")
    shown = node.requests["a"]["keys"]
    node.refuses("of nodes by name", keys=None)
    node.refuses("of 3 nodes or more; got 2", keys={name: shown[name] for name in "ab"})
    node.refuses("those of this node", keys={name: shown[name] for name in "bcd"})
    node.refuses("those of this node", keys=shown | {"a": shown["a"] | {"box": keys.draw(32)}})
    node.refuses("keys must differ", keys=shown | {"b": shown["c"]})
    node.refuses("32 bytes", keys=shown | {"b": shown["b"] | {"mask": keys.draw(31)}})
    node.refuses("must be a dict", keys=shown | {"b": 7})
    node.answer("a")  # as it should be


def test_a_key_that_its_node_has_not_signed_is_refused():
    signing = signers()
    node = Round("shares", signed_terms(signing), signing)
    shown = node.requests["a"]["keys"]
    own = {"mask": keys.public(keys.draw(32)), "box": keys.public(keys.draw(32))}
    node.refuses("signature of b must be 64 bytes", keys=shown | {"b": own})
    forged = own | {"signature": shown["b"]["signature"]}
    node.refuses("keys of b are not signed by b", keys=shown | {"b": forged})
    node.refuses("keys of b are not signed by b", keys=shown | {"b": shown["c"]})
    node.answer("a")


def test_keys_of_an_earlier_round_are_refused():
    signing = signers()
    agreed = signed_terms(signing)
    old = Round("shares", agreed, signing).requests["a"]["keys"]["b"]
    node = Round("shares", agreed, signing)
    state, requests = begin(agreed, 1)
    fresh = {}
    for name in NAMES:
        node.states[name], fresh[name] = answer(node.states[name], requests[name])
    _, requests = advance(state, fresh)
    with pytest.raises(ValueError, match="not signed by b"):
        answer(node.states["a"], requests["a"] | {"keys": requests["a"]["keys"] | {"b": old}})


def test_shares_that_are_wrong_are_refused():
    node = Round("masked")
    boxes = node.requests["a"]["boxes"]
    node.refuses("of 2 nodes or more; got 1", boxes={"b": boxes["b"]})
    node.refuses("'a' is not among", boxes=boxes | {"a": boxes["b"]})
    node.refuses("changed, or is of another round", boxes=boxes | {"b": boxes["c"]})
    other = node.requests["b"]["boxes"]["c"]
    node.refuses("changed, or is of another round", boxes=boxes | {"c": other})
    node.refuses("must be 60 bytes", boxes=boxes | {"b": boxes["b"][1:]})
    node.answer("a")


def test_no_shares_of_a_node_that_has_shown_no_keys():
    node = Round("masked", silent={("e", "keys")})
    node.refuses("'e' is not among", boxes=node.requests["a"]["boxes"] | {"e": keys.draw(60)})


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        (None, "got NoneType"),
        ([1, 2], "got list"),
        (np.array([1.0, 2.0]), "got float64"),
        (np.array([1, 2], np.int32), "got int32"),
        (np.array([1, 2, 3]), r"shape \(2,\); got \(3,\)"),
        (np.array([0, largest(32, 5) + 1]), "at most 429,496,729 in size"),
        (np.array([0, -largest(32, 5) - 1]), "at most 429,496,729 in size"),
        (np.array([0, np.iinfo(np.int64).min]), "at most 429,496,729 in size"),
    ],
)
def test_vectors_that_cannot_be_summed_are_refused(vector, message):
    node = Round("masked")
    with pytest.raises(ValueError, match=message):
        answer(node.states["a"], node.requests["a"], vector)


def test_of_each_node_one_of_two_shares_is_given():
    node = Round("unmask", silent={("e", "masked")})
    reply = node.answer("a")
    assert sorted(reply["seeds"]) == ["a", "b", "c", "d"]
    assert sorted(reply["secrets"]) == ["e"]
    node.refuses("does not follow", counted=["a", "b", "c", "e"])  # nor the other one later


def test_too_few_or_unknown_survivors_are_refused():
    node = Round("unmask", silent={("e", "shares")})
    node.refuses("of nodes by name", counted=None)
    node.refuses("of 3 nodes or more; got 2", counted=["a", "b"])
    node.refuses("must name each node once", counted=["a", "a", "b"])
    node.refuses("must have this node", counted=["b", "c", "d"])
    node.refuses("'e' is not among", counted=["a", "b", "e"])
    node.answer("a")


def test_survivors_that_others_have_not_seen_are_refused():
    """A server that sends lists which differ could ask for both shares of a node."""
    signing = signers()
    node = Round("agree", signed_terms(signing), signing)
    counted = {"a": ["a", "b", "c", "d"], "b": ["a", "b", "c", "e"], "c": ["a", "b", "c", "e"]}
    signatures = {name: node.answer(name, counted=counted[name])["signature"] for name in "abc"}
    node.requests = {name: {"step": "unmask", "round": 0} for name in NAMES}
    node.refuses("that this node has agreed to", counted=counted["b"], signatures=signatures)
    for given in (signatures, dict.fromkeys("abc", signatures["a"])):
        node.refuses("has not signed what this node", counted=counted["a"], signatures=given)
    few = {"a": signatures["a"]}
    node.refuses("signatures must be of 3", counted=counted["a"], signatures=few)
    node.refuses("by name", counted=counted["a"], signatures=None)


def test_shares_that_others_have_not_seen_are_refused():
    """Nodes whose masks are shared with other nodes do not reach the same signatures."""
    signing = signers()
    node = Round("masked", signed_terms(signing), signing)
    boxes = node.requests["a"]["boxes"]
    node.answer("a", boxes={name: boxes[name] for name in "bc"})  # d and e are kept from it
    for name in "bc":
        node.answer(name)
    request = {"step": "agree", "round": 0, "counted": ["a", "b", "c"]}
    node.requests = dict.fromkeys(NAMES, request)
    signatures = {name: node.answer(name)["signature"] for name in "abc"}
    node.requests = {
        "a": {"step": "unmask", "round": 0, "counted": ["a", "b", "c"], "signatures": signatures}
    }
    node.refuses("b has not signed what this node has seen")


def test_vectors_that_answer_other_questions_are_not_shown():
    """With its vector a node signs what it has received; each looks at all signatures."""
    signing = signers()
    agreed = signed_terms(signing)
    node, about = Round("masked", agreed, signing), keys.digested(b"other")
    receipts = {}
    for name in NAMES:
        request = node.requests[name]
        node.states[name], reply = answer(
            node.states[name], request, VECTOR, about if name == "e" else keys.digested(b"this")
        )
        receipts[name] = reply["signature"]
    request = {"step": "agree", "round": 0, "counted": NAMES}
    node.requests = dict.fromkeys(NAMES, request)
    signatures = {name: node.answer(name)["signature"] for name in NAMES}
    asked = {"counted": NAMES, "signatures": {name: signatures[name] for name in "abcd"}}
    node.requests = {name: {"step": "unmask", "round": 0} | asked for name in NAMES}
    for name in "abcd":
        node.refuses("e has not signed what this node has seen", name, receipts=receipts)
        few = {each: receipts[each] for each in "abcd"}
        node.refuses("signatures must be of 5 nodes", name, receipts=few)
        node.refuses("by name", name)
    node.refuses("a has not signed what this node has seen", "e", receipts=receipts)


def test_secrets_that_repeat_make_other_keys_and_masks(monkeypatch):
    """Keys and masks are of one round, even if what is drawn were not."""
    drawn = keys.draw
    monkeypatch.setattr(keys, "draw", lambda size=16: np.arange(size, dtype=np.uint8))
    state = sign_up("a", TERMS)
    shown, masks = [], []
    for round_ in range(3):
        state, reply = answer(state, {"step": "keys", "round": round_})
        shown.append(reply["keys"]["mask"].tobytes())
        masks.append(own_mask(state["seed"], TERMS, round_).tobytes())
    assert len(set(shown)) == len(set(masks)) == 3
    one, other = drawn(32), keys.public(drawn(32))
    both = {shared_mask(one, other, "a", "b", TERMS, r).tobytes() for r in range(3)}
    assert len(both) == 3


def test_the_state_can_be_packed():
    from ebfed import wire

    signing = signers()
    node = Round("unmask", signed_terms(signing), signing)
    for name in NAMES:
        node.states[name] = wire.unpack(wire.pack(node.states[name]))
    replies = [node.answer(name) for name in NAMES]
    assert all(sorted(each["seeds"]) == NAMES for each in replies)
    assert context(node.states["a"]["terms"], 0) == context(signed_terms(signing), 0)
