"""What follows for a server with nodes on its side, from all that it sees: by linear algebra.

Honest nodes are those of the package. The server tells each of them what it likes, at each step:
other keys, other shares, other lists of who is counted. Nodes on its side sign what it likes, and
give it all shares. Of what it then has, the vectors and masks of honest nodes are unknowns: a
masked vector is an equation, and a mask is known if the secret that it derives from follows from
shares. By elimination of the masks, what is left are the combinations of vectors that follow.
"""

import itertools
from functools import cache, cached_property

import numpy as np
import pytest

from ebfed.engines.secure_sum import answer, keys, least_threshold, node, sign_up, terms
from ebfed.engines.secure_sum.node import (
    agreement,
    own_mask,
    private_mask_key,
    receipt,
    shared_mask,
)

NAMES = ["a", "b", "c", "d", "e"]
PRIME = 2**61 - 1
SUBSETS = [frozenset(x) for n in range(1, 6) for x in itertools.combinations(NAMES, n)]
SIDES = [frozenset(x) for n in range(4) for x in itertools.combinations(NAMES, n)]


def eliminated(rows, columns):
    """Return combinations of rows without these columns, modulo a prime; all others follow."""
    rows = [dict(row) for row in rows]
    for column in columns:
        pivot = next((row for row in rows if column in row), None)
        if pivot is None:
            continue
        rows.remove(pivot)
        rows = [less(row, pivot, column) for row in rows]
    return [row for row in rows if row]


def less(row, pivot, column):
    """Subtract as much of a pivot as leaves nothing in a column."""
    if column not in row:
        return row
    factor = row[column] * pow(pivot[column], -1, PRIME)
    sums = {x: (row.get(x, 0) - factor * pivot.get(x, 0)) % PRIME for x in row | pivot}
    return {x: value for x, value in sums.items() if value}


def reduced(rows):
    """Return the reduced echelon form of rows, as a set of rows."""
    rows, done = [dict(row) for row in rows], []
    for column in sorted({x for row in rows for x in row}):
        pivot = next((row for row in rows if column in row), None)
        if pivot is None:
            continue
        rows.remove(pivot)
        inverse = pow(pivot[column], -1, PRIME)
        pivot = {x: value * inverse % PRIME for x, value in pivot.items()}
        rows = [new for row in rows if (new := less(row, pivot, column))]
        done = [less(row, pivot, column) for row in done] + [pivot]
    return {frozenset(row.items()) for row in done}


@cache
def follows(places, threshold):
    """Whether a secret follows from shares at these places: values of a polynomial."""
    rows = [{k: (i + 1) ** k for k in range(threshold)} for i in places]
    return bool(eliminated(rows, range(1, threshold)))


class Round:
    """A round of nodes, some of them on the side of the server, whatever it sends to the others.

    A story is what a node is told: who has shown keys, who has sent shares, and who is counted.
    Answers to the same requests are computed once.
    """

    def __init__(self, threshold, bad, number=0, vectors=None, earlier=None):
        self.bad, self.honest = bad, [name for name in NAMES if name not in bad]
        self.number, self.vectors = number, number if vectors is None else vectors
        self.t = threshold
        self.signing = earlier.signing if earlier else {x: keys.signing_key() for x in NAMES}
        verify = {name: keys.verify_key(key) for name, key in self.signing.items()}
        self.agreed = terms("run", NAMES, 2, threshold=threshold, verify=verify)
        self.first, self.shown, self.kept = {}, {}, {}
        for name in NAMES:
            state = earlier.first[name] if earlier else None
            state = state or sign_up(name, self.agreed, self.signing[name])
            self.first[name], reply = answer(state, self.ask("keys"))
            self.shown[name] = reply["keys"]

    def ask(self, step, **parts):
        return {"step": step, "round": self.number} | parts

    def once(self, step, *known):
        if (step, *known) not in self.kept:
            self.kept[step, *known] = getattr(self, step)(*known)
        return self.kept[step, *known]

    def shares(self, name, shown):
        keys_of = {other: self.shown[other] for other in sorted(shown)}
        return answer(self.first[name], self.ask("shares", keys=keys_of))

    def masked(self, name, shown, sharing):
        state, _ = self.once("shares", name, shown)
        everybody = frozenset(NAMES)
        boxes = {
            other: self.once("shares", other, everybody)[1]["boxes"][name]
            for other in sorted(sharing - {name})
        }
        vector = np.array([NAMES.index(name), 7])
        state, reply = answer(state, self.ask("masked", boxes=boxes), vector)
        total = vector.astype(np.uint32) + self.own(name)
        for other in sharing - {name}:
            total += self.pairs[name, other]
        assert np.array_equal(total, reply["masked"]), "the equation below is that of the node"
        return state, reply

    def agree(self, name, shown, sharing, counted):
        state, _ = self.once("masked", name, shown, sharing)
        return answer(state, self.ask("agree", counted=sorted(counted)))

    def unmask(self, name, shown, sharing, counted, signers, tellers):
        """Return the shares that a node gives, None if it refuses; of signatures that there are."""
        state, _ = self.once("agree", name, shown, sharing, counted)
        view = state["view"]
        receipts = {x: self.once("masked", x, shown, sharing)[1]["signature"] for x in tellers}
        signed = {x: self.once("agree", x, shown, sharing, counted)[1] for x in signers}
        signatures = {x: reply["signature"] for x, reply in signed.items()}
        for x in self.bad & counted:
            receipts[x] = keys.sign(self.signing[x], receipt(view))
            signatures[x] = keys.sign(self.signing[x], agreement(view, sorted(counted)))
        given = {"counted": sorted(counted), "signatures": signatures, "receipts": receipts}
        try:
            return answer(state, self.ask("unmask", **given))[1]
        except ValueError:
            return None

    def own(self, name):
        return own_mask(self.first[name]["seed"], self.agreed, self.number)

    @cached_property
    def pairs(self):
        """What a node adds for itself and another; the other adds its negative."""
        secrets = {name: self.first[name]["secret"] for name in NAMES}
        private = {
            name: private_mask_key(secret, self.agreed, self.number)
            for name, secret in secrets.items()
        }
        found = {
            (x, y): shared_mask(private[x], self.shown[y]["mask"], x, y, self.agreed, self.number)
            for x, y in itertools.permutations(NAMES, 2)
        }
        assert all(not (mask + found[y, x]).any() for (x, y), mask in found.items())
        return found

    def stories(self, name):
        """All that a node can be told."""
        large = [x for x in SUBSETS if name in x and len(x) >= self.t]
        return [
            story
            for story in itertools.product(large, repeat=3)
            if story[0] >= story[1] >= story[2]
        ]

    def seen(self, strategy):
        """What the server has, if each honest node is told a story: None if it cannot be told.

        Returns shares of secrets by place, and of each node in whose sum its masked vector is.
        """
        for name, (_, sharing, _) in strategy.items():
            for other in sharing - self.bad - {name}:
                if other not in strategy or name not in strategy[other][0]:
                    return None  # there is no share of the other for this node
        shares = {}
        for name, (shown, *_) in strategy.items():
            for kind in ("seeds", "secrets"):
                shares[kind, name] = {NAMES.index(x) for x in self.bad & shown}
        lists = set()
        for name, story in strategy.items():
            others = [x for x in self.honest if x in story[2] and x in strategy]
            signers = frozenset(x for x in others if strategy[x] == story)
            tellers = frozenset(x for x in others if strategy[x][:2] == story[:2])
            reply = self.once("unmask", name, *story, signers, tellers)
            if reply is None:
                continue
            lists.add(story[2])
            for kind in ("seeds", "secrets"):
                for other in reply[kind].keys() - self.bad:
                    shares[kind, other].add(NAMES.index(name))
        return shares, lists


def learned(*parts):
    """Combinations of vectors of honest nodes that follow, and sums of which they may be.

    Parameters
    ----------
    *parts : pairs of a Round, and the story of each honest node
    """
    known, rows, sums = set(), [], set()
    seen = [(round_, strategy, *round_.seen(strategy)) for round_, strategy in parts]
    for round_, _, shares, _ in seen:
        for (kind, name), places in shares.items():
            if follows(frozenset(places), round_.t):
                known.add(round_.first[name][kind.removesuffix("s")].tobytes())
    masks = set()
    for round_, strategy, _, lists in seen:
        first = round_.first
        for name, (_, sharing, _) in strategy.items():
            row = {("x", name, round_.vectors): 1}
            if first[name]["seed"].tobytes() not in known:
                row["own", round_.own(name).tobytes()] = 1
            for other in sharing - round_.bad - {name}:
                secrets = {first[x]["secret"].tobytes() for x in (name, other)}
                if not secrets & known:
                    low = name < other
                    mask = round_.pairs[(name, other) if low else (other, name)]
                    row["pair", mask.tobytes()] = 1 if low else PRIME - 1
            rows.append(row)
            masks |= {x for x in row if x[0] != "x"}
        for counted in lists:
            sums.add(
                frozenset((("x", x, round_.vectors), 1) for x in counted if x in round_.honest)
            )
    return reduced(eliminated(rows, sorted(masks))), sums


def leaks(*parts):
    """Whether more follows than one sum in each round, over two honest nodes or more."""
    found, sums = learned(*parts)
    rounds = [next(iter(each))[0][2] for each in found]
    few = min(map(len, found), default=2) < 2
    return not found <= sums or few or len({*rounds}) < len(rounds)


def all_strategies(round_):
    for stories in itertools.product(*map(round_.stories, round_.honest)):
        strategy = dict(zip(round_.honest, stories, strict=True))
        if round_.seen(strategy) is not None:
            yield strategy


def some_strategy(round_, rng):
    """One or two stories, of which each honest node is told one that it is in."""
    while True:
        of_all = [s for name in NAMES for s in round_.stories(name)]
        shown, sharing, counted = of_all[rng.integers(len(of_all))]
        again = [s for s in of_all if s[:2] == (shown, sharing)]
        other = (again if rng.random() < 0.8 else of_all)[rng.integers(len(again))]
        both = [(shown, sharing, counted), other]
        strategy = {}
        for name in round_.honest:
            told_it = [story for story in both if name in story[2]]
            if told_it:
                strategy[name] = told_it[rng.integers(len(told_it))]
        if strategy and round_.seen(strategy) is not None:
            return strategy


@pytest.mark.parametrize("threshold", [3, 4, 5])
def test_shares_below_the_threshold_say_nothing(threshold):
    for n in range(6):
        for places in itertools.combinations(range(5), n):
            assert follows(frozenset(places), threshold) == (n >= threshold)


def two_stories(round_):
    """All ways to tell honest nodes one of two lists of who is counted, after the same keys."""
    large = [x for x in SUBSETS if len(x) >= round_.t]
    for shown, sharing in itertools.product(large, repeat=2):
        if not shown >= sharing:
            continue
        within = [(shown, sharing, x) for x in large if x <= sharing]
        names = [name for name in round_.honest if name in sharing]
        for both in itertools.combinations_with_replacement(within, 2):
            told_it = [sorted({s for s in both if name in s[2]}, key=str) for name in names]
            kept = [name for name, s in zip(names, told_it, strict=True) if s]
            for stories in itertools.product(*filter(None, told_it)):
                strategy = dict(zip(kept, stories, strict=True))
                if strategy and round_.seen(strategy) is not None:
                    yield strategy


# How many strategies there are for nodes on the side of the server, at the least threshold. A node
# that is asked for less, or not at all, has said less.
STRATEGIES = {"c": 11_827, "bd": 1_430, "ae": 1_430, "abc": 1, "bde": 1, "ace": 1}


@pytest.mark.parametrize("bad", STRATEGIES)
def test_only_sums_follow_whatever_the_server_says(bad):
    """All strategies of one round: the sum over the honest nodes that are counted, or nothing."""
    round_ = Round(least_threshold(5, len(bad)), frozenset(bad))
    tried = sums = 0
    for strategy in all_strategies(round_):
        assert not leaks((round_, strategy)), strategy
        tried += 1
        sums += bool(learned((round_, strategy))[0])
    assert tried == STRATEGIES[bad]
    assert sums > 0, "rounds that end are among them"


def test_only_sums_follow_where_no_node_helps():
    round_ = Round(least_threshold(5), frozenset())
    tried = sums = 0
    for strategy in two_stories(round_):
        assert not leaks((round_, strategy)), strategy
        tried += 1
        sums += bool(learned((round_, strategy))[0])
    assert tried > 1000
    assert sums > 10


def three_rounds(threshold, bad, vectors=(0, 1, 2)):
    """Rounds whose keys are shown one after the other by the same nodes."""
    first = Round(threshold, bad, 0, vectors[0])
    second = Round(threshold, bad, 1, vectors[1], earlier=first)
    return first, second, Round(threshold, bad, 2, vectors[2], earlier=second)


@pytest.mark.parametrize("colluding", [0, 1, 2, 3])
def test_only_sums_follow_from_three_rounds(colluding):
    """Of every set of nodes on the side of the server, 30 strategies of three rounds at random."""
    rng = np.random.default_rng(colluding)
    for bad in SIDES:
        if len(bad) != colluding:
            continue
        rounds, sums = three_rounds(least_threshold(5, colluding), bad), 0
        for _ in range(30):
            parts = [(each, some_strategy(each, rng)) for each in rounds]
            assert not leaks(*parts), parts
            sums += len(learned(*parts)[0])
        assert sums > 10, "rounds end"


@pytest.mark.parametrize("threshold", [3, 4, 5])
@pytest.mark.parametrize("colluding", [0, 1, 2, 3])
def test_below_the_least_threshold_a_vector_follows(colluding, threshold):
    """The default, 3 of 5, protects from a server that no node helps; with 3 nodes it takes 5."""
    rng, round_ = np.random.default_rng(1), Round(threshold, frozenset(NAMES[:colluding]))
    found = any(leaks((round_, some_strategy(round_, rng))) for _ in range(200))
    assert found == (threshold < least_threshold(5, colluding))


# Planted holes ---------------------------------------------------------------------------------


def gives_both_shares(patch):
    def unmask(state, request):
        after, reply = UNMASK(state, request)
        shares = state["shares"].items()
        seeds = {name: share[: keys.SECRET] for name, share in shares}
        return after, reply | {
            "seeds": seeds,
            "secrets": {name: share[keys.SECRET :] for name, share in shares},
        }

    patch.setitem(node._STEPS, "unmask", unmask)


def draws_the_same_again(patch):
    drawn, draw = {}, keys.draw

    def begin(state, request):
        own = drawn.setdefault(state["name"], [draw(), draw(), draw(keys.KEY)])
        stream = iter(own)
        patch.setattr(keys, "draw", lambda size=keys.SECRET: next(stream))
        try:
            return BEGIN(state, request)
        finally:
            patch.setattr(keys, "draw", draw)

    patch.setitem(node._STEPS, "keys", begin)


def looks_at_no_signature(patch):
    patch.setattr(node, "check_signed", lambda *_: None)


UNMASK, BEGIN = node._unmask, node._begin
HOLES = {
    "both shares of a node": (gives_both_shares, (0, 1, 2)),
    "keys of an earlier round": (draws_the_same_again, (0, 1, 2)),
    "a vector in two sums": (lambda patch: None, (0, 0, 0)),
}


@pytest.mark.parametrize("bad", ["", "c", "bd"])
@pytest.mark.parametrize("hole", HOLES)
def test_a_hole_is_found(hole, bad, monkeypatch):
    change, vectors = HOLES[hole]
    change(monkeypatch)
    rounds = three_rounds(least_threshold(5, len(bad)), frozenset(bad), vectors)
    rng = np.random.default_rng(2)
    assert any(leaks(*((each, some_strategy(each, rng)) for each in rounds)) for _ in range(200))


@pytest.mark.parametrize("bad", ["c", "bd"])
def test_signatures_that_nobody_looks_at_are_a_hole(bad, monkeypatch):
    looks_at_no_signature(monkeypatch)
    round_ = Round(least_threshold(5, len(bad)), frozenset(bad))
    assert any(leaks((round_, strategy)) for strategy in all_strategies(round_))
