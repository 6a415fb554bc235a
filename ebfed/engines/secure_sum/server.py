"""The server's side: from its state and the answers of nodes to its next state and requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ebfed.engines.secure_sum import keys
from ebfed.engines.secure_sum.keys import KEY, NONCE, SECRET, Octets
from ebfed.engines.secure_sum.messages import (
    Answer,
    Request,
    ServerState,
    Terms,
    check_names,
    check_octets,
    check_terms,
    context,
    dtype_of,
    round_view,
    steps,
)
from ebfed.engines.secure_sum.node import (
    NOTHING,
    TAG,
    agreement,
    check_keys,
    check_signed,
    commitment,
    own_mask,
    private_mask_key,
    receipt,
    shared_mask,
)

__all__ = ["Ask", "SecureSum", "SecureSums", "advance", "begin", "check_answer", "secure_sum"]

Requests: TypeAlias = dict[str, Request]
Ask: TypeAlias = Callable[[dict[str, list[Request]]], Mapping[str, Any]]

# Steps that need no vectors.
AHEAD = ("keys", "shares")


@dataclass(frozen=True, eq=False)
class SecureSum:
    """The result of a round.

    Attributes
    ----------
    round : int
    total : int64 ndarray of shape (size,)
        Sum of the vectors of the nodes that are counted.
    counted : tuple of str
        Names of these nodes.
    lost : dict of str
        Names of the others, and of nodes that were counted and lost afterwards: the step at which
        an answer is missing, and why.
    """

    round: int
    total: NDArray[np.int64]
    counted: tuple[str, ...]
    lost: dict[str, str]


class SecureSums:
    """The rounds of a run, one after the other, in two exchanges each.

    Keys and shares of a round do not depend on vectors. So they are sent together with the masked
    vectors of the round before, and with what removes its masks: a round takes two exchanges,
    three with ``verify``, and the first one two more. A node that is lost in a round has shown no
    keys for the next one, and takes part again in the one after it.

    Parameters
    ----------
    agreed : Terms
    ask : callable
        Called with a list of requests for each node, by name. Returns, by name, the lists of
        answers of the nodes that answer in time. Answers may be anything: they are checked.
    first : int
        Number of the first round, larger than that of every earlier round of the run.
    keep : callable, optional
        Called after each exchange with a dict that `ebfed.wire` can pack: no secret of a node is in
        it. A server that was killed goes on from the last one by `resumed`.

    Examples
    --------
    >>> from ebfed.engines.secure_sum import LocalNodes, terms
    >>> agreed = terms("trial 7", ["north", "south", "east"], size=2)
    >>> vectors = {"north": [1, -5], "south": [2, 7], "east": [40, 0]}
    >>> nodes = LocalNodes(agreed, {name: np.array(x) for name, x in vectors.items()})
    >>> rounds = SecureSums(agreed, nodes.ask)
    >>> rounds.next().total
    array([43,  2])
    >>> nodes.vectors["north"] += 1000
    >>> rounds.next().total
    array([1043, 1002])
    """

    def __init__(
        self,
        agreed: Terms,
        ask: Ask,
        first: int = 0,
        *,
        keep: Callable[[dict[str, Any]], None] | None = None,
    ):
        self.agreed, self._ask, self._keep = agreed, ask, keep
        self._held = [_Held.begun(agreed, first)]  # this round, and the next one

    @classmethod
    def resumed(
        cls,
        kept: dict[str, Any],
        ask: Ask,
        *,
        keep: Callable[[dict[str, Any]], None] | None = None,
    ) -> SecureSums:
        """Go on after the last exchange that was kept: the next one is held, or held again.

        Nodes that have answered it must give the same answers again, as `StoredNode` does. If the
        last exchange ended a round, `next` returns the sum of that round, perhaps again. If too few
        nodes answered it, it is held again.
        """
        rounds = [_Held(**each | {"failure": ""}) for each in kept["rounds"]]
        whole = cls(rounds[0].state["terms"], ask, keep=keep)
        whole._held = rounds
        return whole

    def next(self, about: Octets = NOTHING) -> SecureSum:
        """Hold the next round.

        Parameters
        ----------
        about : array of bytes
            Digest of what the vectors answer, see `node.answer`.

        Raises
        ------
        RuntimeError
            If fewer nodes than the threshold answer a step, or shares do not fit together. The
            server has then learned nothing, and the next round can be held.
        """
        held = self._held[0]
        while held.step in AHEAD:
            self._exchange(held)
        held.state.setdefault("about", about)
        if len(self._held) == 1:
            self._held.append(_Held.begun(self.agreed, held.state["round"] + 1))
        while held.open:
            ahead = self._held[1]
            self._exchange(held, *([ahead] if ahead.step in AHEAD else []))
        self._held.pop(0)
        return held.result

    def _exchange(self, *rounds: _Held) -> None:
        _exchange(self._ask, *rounds)
        if self._keep is not None:
            self._keep({"rounds": [vars(each) for each in self._held]})


def secure_sum(agreed: Terms, round_: int, ask: Ask) -> SecureSum:
    """Hold one round with nodes, wherever they are, in an exchange for each step.

    Parameters
    ----------
    agreed : Terms
    round_ : int
        Number of the round, larger than that of every earlier round of the run.
    ask : callable
        As in `SecureSums`.

    Returns
    -------
    SecureSum

    Raises
    ------
    RuntimeError
        If fewer nodes than the threshold answer a step, or shares do not fit together.

    Examples
    --------
    >>> from ebfed.engines.secure_sum import LocalNodes, terms
    >>> agreed = terms("trial 7", ["north", "south", "east"], size=2)
    >>> vectors = {"north": [1, -5], "south": [2, 7], "east": [40, 0]}
    >>> nodes = LocalNodes(agreed, {name: np.array(x) for name, x in vectors.items()})

    A node that is lost before it has sent its vector is not counted:

    >>> nodes.last["south"] = "shares"
    >>> found = secure_sum(agreed, 0, nodes.ask)
    >>> found.total, found.counted, found.lost
    (array([41, -5]), ('east', 'north'), {'south': 'masked: no answer'})
    """
    held = _Held.begun(agreed, round_)
    while held.open:
        _exchange(ask, held)
    return held.result


@dataclass
class _Held:
    """A round that is being held; a failure is raised when the result is asked for.

    After a failure it is as before the exchange that failed.
    """

    state: ServerState
    requests: Requests
    lost: dict[str, str]
    failure: str = ""

    @classmethod
    def begun(cls, agreed: Terms, round_: int) -> _Held:
        return cls(*begin(agreed, round_), {})

    @property
    def open(self) -> bool:
        return bool(self.requests) and not self.failure

    @property
    def step(self) -> str:
        return "done" if self.failure else self.state["step"]

    @property
    def result(self) -> SecureSum:
        if self.failure:
            raise RuntimeError(self.failure)
        state = self.state
        signed = state["total"].view(dtype_of(state["terms"]).str.replace("u", "i"))
        counted = tuple(state["counted"])
        return SecureSum(state["round"], signed.astype(np.int64), counted, self.lost)

    def take(self, given: Mapping[str, Any]) -> None:
        """Use the answers that have been given, the good ones among them."""
        state, agreed, good, lost = self.state, self.state["terms"], {}, dict(self.lost)
        for name in self.requests:
            if name not in given:
                lost[name] = f"{state['step']}: no answer"
                continue
            try:
                check_answer(state, name, given[name])
            except (ValueError, TypeError, KeyError) as error:
                lost[name] = f"{state['step']}: {error}"
                continue
            good[name] = given[name]
        if len(good) >= agreed["threshold"]:
            try:
                self.state, self.requests = advance(state, good)
                self.lost = lost
                return
            except ValueError as error:
                why = str(error)
        else:
            missing = "; ".join(f"{name}: {reason}" for name, reason in sorted(lost.items()))
            why = (
                f"{len(good)} of {len(agreed['names'])} nodes answered, {agreed['threshold']} are "
                f"needed ({missing})."
            )
        self.failure = f"round {state['round']}, {state['step']}: {why}"


def _exchange(ask: Ask, *rounds: _Held) -> None:
    """Send the requests of one round, or of one and the next, and use the answers."""
    requests: dict[str, list[Request]] = {}
    places: list[dict[str, int]] = []
    for held in rounds:
        places.append({name: len(requests.get(name, ())) for name in held.requests})
        for name, request in held.requests.items():
            requests.setdefault(name, []).append(request)
    counts = {name: len(asked) for name, asked in requests.items()}
    answers = ask(requests)
    for held, place in zip(rounds, places, strict=True):
        given = {}
        for name in held.requests:
            if name in answers:
                own = answers[name]
                whole = isinstance(own, list | tuple) and len(own) == counts[name]
                given[name] = own[place[name]] if whole else None
        held.take(given)


def begin(agreed: Terms, round_: int) -> tuple[ServerState, Requests]:
    """Return the first state of a round, and the first requests."""
    check_terms(agreed)
    state: ServerState = {"terms": agreed, "round": round_, "step": "keys", "keys": {}}
    digest = np.frombuffer(context(agreed, round_), np.uint8)
    return state, {name: _request(state, terms=digest) for name in agreed["names"]}


def _request(state: ServerState, **parts: Any) -> Request:
    return {"step": state["step"], "round": state["round"]} | parts  # type: ignore[return-value]


def check_answer(state: ServerState, name: str, given: Any) -> None:
    """Raise a ValueError if that is no answer of that node to the last request."""
    agreed, step = state["terms"], state["step"]
    if not isinstance(given, dict) or (given.get("step"), given.get("round")) != (
        step,
        state["round"],
    ):
        raise ValueError("an answer to something else.")
    if step == "keys":
        check_keys(agreed, state["round"], name, given.get("keys"))
    elif step == "shares":
        check_octets("the commitment", given.get("commitment"), KEY)
        others = [each for each in state["keys"] if each != name]
        check_names("boxes", given.get("boxes"), others, len(others))
        for box in given["boxes"].values():
            check_octets("an encrypted share", box, NONCE + 2 * SECRET + TAG)
    elif step == "masked":
        vector: Any = given.get("masked")
        right = isinstance(vector, np.ndarray) and vector.dtype == dtype_of(agreed)
        if not right or vector.shape != (agreed["size"],):
            raise ValueError(
                f"masked must be {agreed['size']} integers of {agreed['bits']} bits, unsigned."
            )
        if "verify" in agreed:
            signed = receipt(_view(state))
            check_signed(agreed, signed, [name], 1, {name: given.get("signature")})
    elif step == "agree":
        signed = agreement(_view(state), state["counted"])
        check_signed(agreed, signed, state["counted"], 1, {name: given.get("signature")})
    else:
        gone = [each for each in state["commitments"] if each not in state["counted"]]
        for part, names in (("seeds", state["counted"]), ("secrets", gone)):
            check_names(part, given.get(part), names, len(names))
            for share in given[part].values():
                check_octets("a share", share, SECRET)


def _view(state: ServerState) -> Octets:
    known = state["keys"], list(state["commitments"]), state.get("about", NOTHING)
    return round_view(state["terms"], state["round"], *known)


def advance(state: ServerState, answers: Mapping[str, Answer]) -> tuple[ServerState, Requests]:
    """Use the answers to a step; return the next state and requests, none if the sum is known.

    Parameters
    ----------
    state : ServerState
        It is not changed.
    answers : dict of Answer
        By name: of as many nodes as the threshold or more, each checked by `check_answer`.

    Raises
    ------
    ValueError
        If shares of the nodes do not fit together.
    """
    agreed, step = state["terms"], state["step"]
    names, order = sorted(answers), steps(agreed)
    following = [*order, "done"][order.index(step) + 1]
    state = state | {"step": following}
    if step == "keys":
        state["keys"] = {name: answers[name]["keys"] for name in names}
        return state, {name: _request(state, keys=state["keys"]) for name in names}
    if step == "shares":
        state["commitments"] = {name: answers[name]["commitment"] for name in names}
        return state, {
            name: _request(
                state,
                boxes={each: answers[each]["boxes"][name] for each in names if each != name},
            )
            for name in names
        }
    if step == "masked":
        total = np.zeros(agreed["size"], dtype_of(agreed))
        for name in names:
            total += answers[name]["masked"]
        state["total"], state["counted"] = total, names
        if "verify" in agreed:
            state["receipts"] = {name: answers[name]["signature"] for name in names}
        return state, {name: _request(state, counted=names) for name in names}
    if step == "agree":
        signatures = {name: answers[name]["signature"] for name in names}
        parts = {"counted": state["counted"], "signatures": signatures}
        parts["receipts"] = state["receipts"]
        return state, {name: _request(state, **parts) for name in names}
    state["total"] = state["total"] - _masks(state, answers)
    return state, {}


def _masks(state: ServerState, answers: Mapping[str, Answer]) -> NDArray:
    """Return what masks add to the sum, from the shares of as many nodes as are needed."""
    agreed, round_, counted = state["terms"], state["round"], state["counted"]
    total = np.zeros(agreed["size"], dtype_of(agreed))
    for name in counted:
        seed = _recovered(agreed, answers, "seeds", name)
        if not np.array_equal(commitment(seed, agreed, round_), state["commitments"][name]):
            raise ValueError(f"shares of the seed of {name} do not fit together.")
        total += own_mask(seed, agreed, round_)
    for gone in state["commitments"]:
        if gone in counted:
            continue
        secret = _recovered(agreed, answers, "secrets", gone)
        private = private_mask_key(secret, agreed, round_)
        if not np.array_equal(keys.public(private), state["keys"][gone]["mask"]):
            raise ValueError(f"shares of the secret of {gone} do not fit together.")
        for name in counted:  # what the node that is gone would have added, with the other sign
            other = state["keys"][name]["mask"]
            total -= shared_mask(private, other, gone, name, agreed, round_)
    return total


def _recovered(agreed: Terms, answers: Mapping[str, Answer], part: str, name: str) -> Octets:
    places = {each: place for place, each in enumerate(agreed["names"])}
    chosen = sorted(answers)[: agreed["threshold"]]
    given: Any = answers
    return keys.recover({places[each]: given[each][part][name] for each in chosen})
