"""Rounds of all nodes: sums are exact, nodes may be lost, and the server sees only the sum."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest

from ebfed import wire
from ebfed.engines.secure_sum import (
    LocalNodes,
    SecureSums,
    answer,
    keys,
    messages,
    secure_sum,
    server,
    terms,
)
from ebfed.engines.secure_sum.messages import dtype_of, largest
from ebfed.engines.secure_sum.node import own_mask, private_mask_key, shared_mask

NAMES = ["a", "b", "c", "d", "e"]


def make(names=NAMES, size=50, seed=0, bits=32, threshold=None, last=None, signed=False):
    """Return terms and nodes with random vectors."""
    signing = {name: keys.signing_key() for name in names} if signed else None
    known = signing and {name: keys.verify_key(key) for name, key in signing.items()}
    agreed = terms("run", names, size, bits=bits, threshold=threshold, verify=known)
    rng, most = np.random.default_rng(seed), largest(bits, len(names))
    vectors = {name: rng.integers(-most, most, size, endpoint=True) for name in names}
    return agreed, LocalNodes(agreed, vectors, last, signing)


def total(nodes, names):
    return sum(nodes.vectors[name] for name in names)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("bits", [16, 32, 64])
@pytest.mark.parametrize("n", [2, 3, 7])
def test_sums_are_exact(n, bits, signed):
    names = [f"node {i}" for i in range(n)]
    agreed, nodes = make(names, bits=bits, signed=signed)
    for round_ in range(2):
        found = secure_sum(agreed, round_, nodes.ask)
        assert found.total.dtype == np.int64
        assert np.array_equal(found.total, total(nodes, names))
        assert found.counted == tuple(names)
        assert found.lost == {}


def test_the_largest_and_least_sums_are_exact():
    agreed, nodes = make(size=2, bits=16)
    most = largest(16, 5)
    for name in NAMES:
        nodes.vectors[name] = np.array([most, -most])
    assert secure_sum(agreed, 0, nodes.ask).total.tolist() == [5 * most, -5 * most]


@pytest.mark.parametrize(
    ("last", "signed"),
    [
        *itertools.product(["", "keys", "shares", "masked", "unmask"], [False, True]),
        ("agree", True),
    ],
)
def test_a_round_ends_without_one_of_five(last, signed):
    """The node is killed after each step; once its masked vector is in, it is counted."""
    agreed, nodes = make(last={"b": last}, signed=signed)
    found = secure_sum(agreed, 0, nodes.ask)
    counted = NAMES if last in ("masked", "agree", "unmask") else ["a", "c", "d", "e"]
    assert found.counted == tuple(counted)
    assert np.array_equal(found.total, total(nodes, counted))
    assert list(found.lost) == ([] if last == "unmask" else ["b"])


@given(st.data())
@settings(max_examples=40, deadline=None)  # keys are random, so times vary
def test_any_nodes_may_be_lost_as_long_as_enough_are_left(data):
    n = data.draw(st.integers(2, 9), "nodes")
    names = [f"{i}" for i in range(n)]
    least = max(n // 2 + 1, 2)
    signed = data.draw(st.booleans(), "signed")
    agreed, nodes = make(
        names,
        size=data.draw(st.integers(1, 40), "size"),
        bits=data.draw(st.sampled_from([16, 32, 64]), "bits"),
        threshold=data.draw(st.integers(least, n), "threshold"),
        seed=n,
        signed=signed,
    )
    order = ["", *messages.steps(agreed)]
    for name in names:
        nodes.last[name] = data.draw(st.sampled_from([*order, *["unmask"] * 8]), name)
    reached = {name: order.index(last) for name, last in nodes.last.items()}
    counted = [name for name in names if reached[name] >= order.index("masked")]
    if sum(at == len(order) - 1 for at in reached.values()) < agreed["threshold"]:
        with pytest.raises(RuntimeError, match="are needed"):
            secure_sum(agreed, 0, nodes.ask)
        return
    found = secure_sum(agreed, 0, nodes.ask)
    assert found.counted == tuple(counted)
    assert np.array_equal(found.total, total(nodes, counted))


def test_too_few_nodes_are_named():
    agreed, nodes = make(last={"a": "keys", "c": "shares", "d": "masked"})
    with pytest.raises(RuntimeError) as raised:
        secure_sum(agreed, 3, nodes.ask)
    assert str(raised.value) == (
        "round 3, unmask: 2 of 5 nodes answered, 3 are needed (a: shares: no answer; "
        "c: masked: no answer; d: unmask: no answer)."
    )


def test_a_lost_node_is_asked_again_in_the_next_round():
    agreed, nodes = make(last={"b": "shares"})
    assert "b" not in secure_sum(agreed, 0, nodes.ask).counted
    del nodes.last["b"]
    assert "b" in secure_sum(agreed, 1, nodes.ask).counted


# Rounds one after the other --------------------------------------------------------------------


@pytest.mark.parametrize("signed", [False, True])
def test_rounds_take_two_exchanges(signed):
    agreed, nodes = make(signed=signed)
    steps = []

    def ask(requests):
        steps.append([each["step"] for each in requests["a"]])
        return nodes.ask(requests)

    rounds = SecureSums(agreed, ask, first=4)
    for i in range(5):
        steps.clear()
        nodes.vectors = {name: x + i for name, x in nodes.vectors.items()}
        assert np.array_equal(rounds.next().total, total(nodes, NAMES))
        first = [["keys"], ["shares"]] * (i == 0)
        middle = [["agree", "shares"], ["unmask"]] if signed else [["unmask", "shares"]]
        assert steps == [*first, ["masked", "keys"], *middle]


@pytest.mark.parametrize("last", ["", "keys", "shares", "masked", "unmask"])
def test_a_node_that_was_lost_takes_part_again(last):
    """A node that is lost in rounds 2 and 3, at most, is in round 5, and each sum is exact."""
    agreed, nodes = make()
    rounds = SecureSums(agreed, nodes.ask)
    there = []
    for i in range(6):
        nodes.last = {"b": last} if i == 2 else {}
        found = rounds.next()
        assert np.array_equal(found.total, total(nodes, found.counted))
        assert len(found.counted) >= 4
        there.append("b" in found.counted)
    assert all(there[:2])
    assert there[5]
    assert all(there) == (last == "unmask")


@given(
    n=st.integers(2, 6),
    signed=st.booleans(),
    lost=st.lists(
        st.dictionaries(
            st.integers(0, 5),
            st.sampled_from(["", "keys", "shares", "masked", "unmask"]),
            max_size=3,
        ),
        min_size=1,
        max_size=5,
    ),
)
@settings(max_examples=40, deadline=None)
def test_every_round_of_many_is_exact_or_refused(n, signed, lost):
    names = [f"{i}" for i in range(n)]
    agreed, nodes = make(names, size=5, signed=signed)
    rounds, exact = SecureSums(agreed, nodes.ask), 0
    for each in [{}, *lost, {}, {}, {}]:
        nodes.last = {f"{i}": last for i, last in each.items() if i < n}
        nodes.vectors = {name: x // 2 + 1 for name, x in nodes.vectors.items()}
        try:
            found = rounds.next()
        except RuntimeError:
            continue
        assert len(found.counted) >= agreed["threshold"]
        assert np.array_equal(found.total, total(nodes, found.counted))
        exact += 1
    assert exact >= 2  # the first round, and the last: two rounds after all have answered
    assert found.counted == tuple(names)


def test_a_round_ends_though_the_next_cannot_begin():
    agreed, nodes = make()
    rounds = SecureSums(agreed, nodes.ask)
    rounds.next()
    nodes.last = dict.fromkeys("abc", "masked")  # with these three the sum cannot be unmasked
    with pytest.raises(RuntimeError, match="round 1, unmask: 2 of 5 nodes"):
        rounds.next()
    nodes.last = {}
    with pytest.raises(RuntimeError, match="round 2, shares: 2 of 5 nodes"):
        rounds.next()
    assert rounds.next().counted == tuple(NAMES)


@pytest.mark.parametrize("wrong", [None, [], [None], {"step": "keys"}, [1, 2, 3], "ab"])
def test_answers_of_another_form_are_left_out(wrong):
    agreed, nodes = make()
    found = secure_sum(agreed, 0, lambda requests: nodes.ask(requests) | {"c": wrong})
    assert found.lost == {"c": "keys: an answer to something else."}
    assert np.array_equal(found.total, total(nodes, found.counted))


# What the server sees --------------------------------------------------------------------------


def encodings(vector):
    """Return ways in which the numbers of a vector may be written."""
    for kind in "iu":
        for size in (2, 4, 8):
            for order in "<>":
                yield vector.astype(f"{order}{kind}{size}").tobytes()
    yield vector.astype(float).tobytes()


def shows(transcript, vector):
    """Whether a vector is anywhere in what has passed, in part or as a whole."""
    everything = b"".join(data for _, data in transcript)
    parts = (vector[start : start + 4] for start in range(0, len(vector) - 3, 4))
    return any(code in everything for part in parts for code in encodings(part))


def messages_of(nodes):
    """Return all messages that have passed, with the node's name."""
    return [(name, x) for name, data in nodes.transcript for x in wire.unpack(data)]


def recovered(agreed, nodes, counted, dropped):
    """Return each masked vector less all masks that the server can compute: the others' stay."""
    sent = messages_of(nodes)
    shown = {name: x["keys"] for name, x in sent if x["step"] == "keys" and "keys" in x}
    masked = {name: x["masked"] for name, x in sent if "masked" in x}
    shares = {name: x for name, x in sent if x["step"] == "unmask" and "seeds" in x}
    chosen = sorted(shares)[: agreed["threshold"]]

    def secret(part, owner):
        return keys.recover({NAMES.index(each): shares[each][part][owner] for each in chosen})

    left = {name: masked[name] - own_mask(secret("seeds", name), agreed, 0) for name in counted}
    for gone in dropped:
        private = private_mask_key(secret("secrets", gone), agreed, 0)
        for name in counted:
            left[name] = left[name] + shared_mask(
                private, shown[name]["mask"], gone, name, agreed, 0
            )
    return masked, left


def test_the_server_sees_no_vector_but_the_sum():
    """One of five is lost after shares: the server has all that recovery needs."""
    agreed, nodes = make(last={"b": "shares"})
    counted, transcript = ["a", "c", "d", "e"], nodes.transcript
    found = secure_sum(agreed, 0, nodes.ask)
    masked, left = recovered(agreed, nodes, counted, ["b"])
    for name in NAMES:
        assert not shows(transcript, nodes.vectors[name])
    for n in range(1, 5):
        for subset in itertools.combinations(counted, n):
            expected = total(nodes, subset).astype("<u4")
            with_masks = sum(masked[name] for name in subset)
            with_shared_masks = sum(left[name] for name in subset)
            assert not shows(transcript, total(nodes, subset))
            # none of fifty numbers is as it was by chance, but with probability 1e-8
            assert not (with_masks == expected).any()
            assert (with_shared_masks == expected).any() == (n == 4)
            assert not shows(transcript, with_shared_masks.astype(np.int64))
    assert np.array_equal(sum(left.values()).view("<i4"), found.total)


def test_the_search_finds_vectors_without_masks(monkeypatch):
    """The control: with masks of zero the same search finds every vector."""
    monkeypatch.setattr(keys, "mask", lambda key, size, dtype: np.zeros(size, dtype))
    agreed, nodes = make()
    assert np.array_equal(secure_sum(agreed, 0, nodes.ask).total, total(nodes, NAMES))
    assert all(shows(nodes.transcript, nodes.vectors[name]) for name in NAMES)


def test_a_vector_that_is_late_stays_masked():
    """The server declared the node lost, and has its shared masks; its own mask is left."""
    agreed, nodes = make(last={"b": "shares"})
    late = []

    def ask(requests):
        answers = nodes.ask(requests)
        if requests["a"][0]["step"] == "masked":  # it answers, but nobody waits any more
            _, reply = answer(nodes.states["b"][0], requests["b"][0], nodes.vectors["b"])
            late.append(reply["masked"])
        return answers

    counted = ["a", "c", "d", "e"]
    found = secure_sum(agreed, 0, ask)
    assert np.array_equal(found.total, total(nodes, counted))
    answers = messages_of(nodes)
    shown = {name: x["keys"] for name, x in answers if x["step"] == "keys" and "keys" in x}
    shares = {name: x for name, x in answers if x["step"] == "unmask" and "seeds" in x}
    chosen = sorted(shares)[: agreed["threshold"]]
    secret = keys.recover({NAMES.index(x): shares[x]["secrets"]["b"] for x in chosen})
    private = private_mask_key(secret, agreed, 0)
    bare = late[0]
    for name in counted:
        bare = bare - shared_mask(private, shown[name]["mask"], "b", name, agreed, 0)
    assert not (bare == nodes.vectors["b"].astype("<u4")).any()
    assert all("b" not in x["seeds"] for x in shares.values())


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_masked_vectors_are_uniform(bits):
    """Of zeros, a masked vector and one without its own mask are numbers of no pattern."""
    agreed, nodes = make(size=4000, bits=bits)
    nodes.vectors = {name: np.zeros(4000, np.int64) for name in NAMES}
    assert not secure_sum(agreed, 0, nodes.ask).total.any()
    masked, left = recovered(agreed, nodes, NAMES, [])
    for each in (*masked.values(), *left.values()):
        # keys are new in every run: false once in 1e8 runs
        assert kstest((each + 0.5) / 2.0**bits, "uniform").pvalue > 1e-9
    pairs = itertools.combinations(masked.values(), 2)
    assert all(abs(np.corrcoef(*pair)[0, 1]) < 6 / np.sqrt(4000) for pair in pairs)


def test_masks_are_new_in_each_round():
    agreed, nodes = make(size=4000)
    seen = []
    for round_ in range(2):
        nodes.transcript.clear()
        secure_sum(agreed, round_, nodes.ask)
        answers = messages_of(nodes)
        seen.append({name: x["masked"] for name, x in answers if "masked" in x})
    for name in NAMES:  # the same vectors, so a repeated mask would be an equal message
        assert (seen[0][name] == seen[1][name]).mean() < 0.01


# What nodes may do wrong -----------------------------------------------------------------------


def altered(nodes, name, step, change):
    """Ask nodes, of which one answers something else."""

    def ask(requests):
        answers = nodes.ask(requests)
        if name in answers and requests[name][0]["step"] == step:
            answers[name] = [change(answers[name][0])]
        return answers

    return ask


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(
    ("step", "change"),
    [
        ("keys", lambda x: None),
        ("keys", lambda x: x | {"round": 1}),
        ("keys", lambda x: x | {"keys": 7}),
        ("keys", lambda x: {"step": "keys", "round": 0}),
        ("shares", lambda x: x | {"boxes": {}}),
        ("shares", lambda x: x | {"commitment": None}),
        ("shares", lambda x: x | {"boxes": dict.fromkeys(x["boxes"], x["commitment"])}),
        ("masked", lambda x: x | {"masked": x["masked"][1:]}),
        ("masked", lambda x: x | {"masked": x["masked"].astype(float)}),
        ("masked", lambda x: x | {"step": "unmask"}),
        ("unmask", lambda x: x | {"seeds": {}}),
        ("unmask", lambda x: x | {"secrets": x["seeds"]}),
        ("unmask", lambda x: x | {"seeds": {name: y[1:] for name, y in x["seeds"].items()}}),
    ],
)
def test_a_node_that_answers_something_else_is_left_out(step, change, signed):
    agreed, nodes = make(signed=signed)
    found = secure_sum(agreed, 0, altered(nodes, "c", step, change))
    counted = NAMES if step == "unmask" else ["a", "b", "d", "e"]
    assert found.counted == tuple(counted)
    assert np.array_equal(found.total, total(nodes, counted))
    assert found.lost["c"].startswith(f"{step}: ")
    assert "no answer" not in found.lost["c"]


def test_a_signature_of_something_else_is_left_out():
    agreed, nodes = make(signed=True)
    wrong = altered(nodes, "c", "agree", lambda x: x | {"signature": x["signature"] ^ 1})
    found = secure_sum(agreed, 0, wrong)
    assert list(found.lost) == ["c"]
    assert np.array_equal(found.total, total(nodes, NAMES))


def test_a_node_that_was_told_something_else_is_not_counted():
    agreed, nodes = make(signed=True)
    rounds, about = SecureSums(agreed, nodes.ask), keys.digested(b"this")
    answer_of, step = nodes._answer, "masked"

    def told_otherwise(name, request):
        nodes.about = keys.digested(b"other") if name == "c" else about
        return answer_of(name, request)

    nodes._answer = told_otherwise
    found = rounds.next(about)
    assert found.lost == {"c": f"{step}: c has not signed what this node has seen of the round."}
    assert np.array_equal(found.total, total(nodes, ["a", "b", "d", "e"]))


def test_wrong_shares_give_no_wrong_sum():
    """A share that has the right form and is wrong is found, not added up."""

    def wrong(part):
        return lambda x: x | {part: {name: y ^ 1 for name, y in x[part].items()}}

    agreed, nodes = make()
    with pytest.raises(RuntimeError, match="unmask: shares of the seed of a do not fit together"):
        secure_sum(agreed, 0, altered(nodes, "a", "unmask", wrong("seeds")))
    agreed, nodes = make(last={"b": "shares"})
    with pytest.raises(RuntimeError, match="shares of the secret of b do not fit together"):
        secure_sum(agreed, 0, altered(nodes, "a", "unmask", wrong("secrets")))


def test_the_state_of_the_server_can_be_packed_between_steps():
    agreed, nodes = make(last={"b": "masked"}, signed=True)
    state, requests = server.begin(agreed, 0)
    while requests:
        answers = nodes.ask({name: [request] for name, request in requests.items()})
        answers = {name: each for name, (each,) in answers.items()}
        for name, each in answers.items():
            server.check_answer(state, name, each)
        before = wire.pack(state)
        following, requests = server.advance(state, answers)
        assert wire.pack(state) == before  # it is not changed
        state = wire.unpack(wire.pack(following))
    assert state["step"] == "done"
    assert np.array_equal(state["total"].view("<i4"), total(nodes, NAMES))


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_bytes_of_a_round_are_those_of_the_numbers(bits):
    """Of 3,000 numbers and 5 nodes, masks and keys add little."""
    agreed, nodes = make(size=3000, bits=bits)
    secure_sum(agreed, 0, nodes.ask)
    assert dtype_of(agreed).itemsize == bits // 8
    sent = [len(data) for name, data in nodes.transcript if name == "a" and b"masked" in data]
    assert max(sent) < 3000 * bits // 8 + 300
    everything = sum(len(data) for name, data in nodes.transcript if name == "a")
    assert everything < 3000 * bits // 8 + 6000
