"""A node's side: from its state and a request to its next state and the answer.

A node refuses a request that is out of order, of a round that it has begun before, of fewer nodes
than the threshold, or of nodes that it has not signed up with. It answers each step of a round
once. Of another node it gives away the share of the seed or that of the secret, never both; and
where nodes sign, neither before every node that is counted has signed that it received the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.engines.secure_sum import keys
from ebfed.engines.secure_sum.keys import KEY, NONCE, SECRET, Octets
from ebfed.engines.secure_sum.messages import (
    Answer,
    Keys,
    NodeState,
    Request,
    Terms,
    check_names,
    check_octets,
    check_terms,
    context,
    dtype_of,
    largest,
    round_view,
    steps,
)

__all__ = ["answer", "sign_up"]

NOTHING = np.zeros(0, np.uint8)
TAG = 16  # bytes by which encryption is longer than the text, besides the nonce
SIGNATURE = 64


def sign_up(name: str, agreed: Terms, signing: Octets | None = None) -> NodeState:
    """Return the state of a node before its first round.

    Parameters
    ----------
    name : str
        Name of this node.
    agreed : Terms
        The terms, as the owner of this node knows them.
    signing : array of shape (32,), optional
        This node's private key for signatures, if the terms have ``verify``.

    Returns
    -------
    NodeState
        Secret: it holds keys.

    Raises
    ------
    ValueError

    Examples
    --------
    >>> from ebfed.engines.secure_sum import terms
    >>> state = sign_up("north", terms("trial 7", ["north", "south"], size=2))
    >>> state, reply = answer(state, {"step": "keys", "round": 0})
    >>> reply["keys"]["mask"].shape
    (32,)
    """
    check_terms(agreed)
    if name not in agreed["names"]:
        raise ValueError(f"name must be one of {', '.join(agreed['names'])}; got {name!r}.")
    if ("verify" in agreed) != (signing is not None):
        raise ValueError("signing must be given if the terms have verify, and only then.")
    state: NodeState = {"name": name, "terms": agreed, "round": -1, "step": "unmask"}
    if signing is not None:
        check_octets("signing", signing, KEY)
        if not np.array_equal(keys.verify_key(signing), agreed["verify"][name]):
            raise ValueError(f"signing must be the private key of verify[{name!r}].")
        state["signing"] = signing
    return state


def answer(
    state: NodeState,
    request: Request,
    vector: NDArray[np.int64] | None = None,
    about: Octets = NOTHING,
) -> tuple[NodeState, Answer]:
    """Answer a request.

    The next state must be on the disk before the answer is sent.

    Parameters
    ----------
    state : NodeState
        It is not changed.
    request : Request
    vector : int64 ndarray of shape (size,), optional
        What is to be summed; needed at the step "masked".
    about : array of bytes
        Digest of what the vector answers. Where nodes sign, no sum is shown of vectors that answer
        different questions.

    Returns
    -------
    state : NodeState
        With which the next request is answered.
    answer : Answer

    Raises
    ------
    ValueError
        If the request is refused; the state is as before.
    """
    if not isinstance(request, dict):
        raise ValueError(f"a request must be a dict; got a {type(request).__name__}.")
    step, round_ = request.get("step"), request.get("round")
    order = steps(state["terms"])
    if step not in order:
        raise ValueError(f"step must be one of {', '.join(order)}; got {step!r}.")
    if type(round_) is not int or not 0 <= round_ < 2**31:
        raise ValueError(f"round must be a whole number from 0 on; got {round_!r}.")
    if step == "keys":
        if round_ <= state["round"]:
            raise ValueError(
                f"round {round_} was begun before, or one after it; a vector is summed once."
            )
    elif round_ != state["round"] or order.index(step) != order.index(state["step"]) + 1:
        raise ValueError(
            f"step {step!r} of round {round_} does not follow step {state['step']!r} of round "
            f"{state['round']}."
        )
    if step == "masked":
        state, reply = _mask(state, request, vector, about)
    else:
        state, reply = _STEPS[step](state, request)
    return state | {"step": step}, {"step": step, "round": round_} | reply


def _begin(state: NodeState, request: Request) -> tuple[NodeState, Any]:
    """Draw secrets, and show public keys. What is left of an earlier round is forgotten."""
    agreed, name, round_ = state["terms"], state["name"], request["round"]
    if "terms" in request and request["terms"].tobytes() != context(agreed, round_):
        raise ValueError("the terms of this run are not those that this node has signed up for.")
    kept: NodeState = {"name": name, "terms": agreed, "round": round_, "step": "keys"}
    if "signing" in state:
        kept["signing"] = state["signing"]
    kept |= {"seed": keys.draw(), "secret": keys.draw(), "box": keys.draw(KEY)}
    own: Keys = {
        "mask": keys.public(private_mask_key(kept["secret"], agreed, round_)),
        "box": keys.public(kept["box"]),
    }
    if "signing" in state:
        own["signature"] = keys.sign(state["signing"], _signed_keys(agreed, round_, name, own))
    return kept | {"keys": {name: own}}, {"keys": own}


def private_mask_key(secret: Octets, agreed: Terms, round_: int) -> Octets:
    """Derive the private key of masks from the secret that is shared."""
    return keys.derived(secret, context(agreed, round_), b"mask key")


def _signed_keys(agreed: Terms, round_: int, name: str, shown: Keys) -> bytes:
    known = shown["mask"].tobytes(), shown["box"].tobytes()
    return keys.digest(context(agreed, round_), b"keys", name.encode(), *known)


def _share(state: NodeState, request: Request) -> tuple[NodeState, Any]:
    """Check the keys of all, and divide both secrets among their owners."""
    agreed, name, round_ = state["terms"], state["name"], state["round"]
    shown, known = request.get("keys"), []
    check_names("keys", shown, agreed["names"], agreed["threshold"])
    assert shown is not None
    for other, each in shown.items():
        check_keys(agreed, round_, other, each)
        known += [each["mask"].tobytes(), each["box"].tobytes()]
    own = state["keys"][name]
    same = (np.array_equal(shown.get(name, own)[kind], own[kind]) for kind in ("mask", "box"))
    if name not in shown or not all(same):
        raise ValueError("keys must have those of this node, as it has shown them.")
    if len(set(known)) != len(known):
        raise ValueError("keys must differ.")
    t, n, where = agreed["threshold"], len(agreed["names"]), context(agreed, round_)
    seeds, secrets = (keys.split(state[kind], t, n) for kind in ("seed", "secret"))
    shares, boxes = {}, {}
    for place, other in enumerate(agreed["names"]):
        if other not in shown:
            continue
        share = np.concatenate([seeds[place], secrets[place]])
        if other == name:
            shares[name] = share
            continue
        key = keys.agreed(state["box"], shown[other]["box"], *_route(where, name, other))
        boxes[other] = keys.encrypt(key, share, where)
    reply = {"boxes": boxes, "commitment": commitment(state["seed"], agreed, round_)}
    return state | {"keys": shown, "shares": shares}, reply


def check_keys(agreed: Terms, round_: int, name: str, shown: Any) -> None:
    """Raise a ValueError if these are no public keys, or not signed by that node."""
    if not isinstance(shown, dict):
        raise ValueError(f"keys of {name} must be a dict.")
    for kind in ("mask", "box"):
        check_octets(f"the {kind} key of {name}", shown.get(kind), KEY)
    if "verify" in agreed:
        check_octets(f"the signature of {name}", shown.get("signature"), SIGNATURE)
        signed = _signed_keys(agreed, round_, name, shown)  # type: ignore[arg-type]
        if not keys.verified(agreed["verify"][name], shown["signature"], signed):
            raise ValueError(f"the keys of {name} are not signed by {name}.")


def commitment(seed: Octets, agreed: Terms, round_: int) -> Octets:
    """Return what shows whether a seed is the one that was shared, and nothing else of it."""
    return keys.derived(seed, context(agreed, round_), b"commitment")


def _route(where: bytes, sender: str, receiver: str) -> tuple[bytes, ...]:
    return where, b"share", sender.encode(), receiver.encode()


def _mask(
    state: NodeState, request: Request, vector: NDArray | None, about: Octets
) -> tuple[NodeState, Any]:
    """Decrypt the shares of others, and add masks to the vector."""
    agreed, name, round_ = state["terms"], state["name"], state["round"]
    boxes = request.get("boxes")
    others = [each for each in state["keys"] if each != name]
    check_names("boxes", boxes, others, agreed["threshold"] - 1)
    assert boxes is not None
    checked = check_vector(agreed, vector)
    where, shares = context(agreed, round_), dict(state["shares"])
    for other, box in boxes.items():
        check_octets(f"the share of {other}", box, NONCE + 2 * SECRET + TAG)
        key = keys.agreed(state["box"], state["keys"][other]["box"], *_route(where, other, name))
        shares[other] = keys.decrypt(key, box, where)
    private = private_mask_key(state["secret"], agreed, round_)
    total = checked.astype(dtype_of(agreed))
    total += own_mask(state["seed"], agreed, round_)
    for other in boxes:
        total += shared_mask(private, state["keys"][other]["mask"], name, other, agreed, round_)
    view = round_view(agreed, round_, state["keys"], list(shares), about)
    reply: Any = {"masked": total}
    if "signing" in state:
        reply["signature"] = keys.sign(state["signing"], receipt(view))
    kept: Any = {each: x for each, x in state.items() if each not in ("seed", "secret", "box")}
    return kept | {"shares": shares, "view": view}, reply


def check_vector(agreed: Terms, vector: Any) -> NDArray[np.int64]:
    """Raise a ValueError if that is no vector whose sum over all nodes is exact."""
    if not (isinstance(vector, np.ndarray) and vector.dtype == np.int64):
        kind = vector.dtype if isinstance(vector, np.ndarray) else type(vector).__name__
        raise ValueError(f"vector must be an array of int64; got {kind}.")
    if vector.shape != (agreed["size"],):
        raise ValueError(f"vector must have shape ({agreed['size']},); got {vector.shape}.")
    most = largest(agreed["bits"], len(agreed["names"]))
    if max(int(vector.max()), -int(vector.min())) > most:
        raise ValueError(
            f"entries of vector must be at most {most:,} in size, so that no sum of "
            f"{len(agreed['names'])} nodes overflows {agreed['bits']} bits."
        )
    return vector


def own_mask(seed: Octets, agreed: Terms, round_: int) -> NDArray:
    """Return the mask that a node adds to its vector for itself."""
    key = keys.derived(seed, context(agreed, round_), b"own mask")
    return keys.mask(key, agreed["size"], dtype_of(agreed))


def shared_mask(
    private: Octets, other_key: Octets, name: str, other: str, agreed: Terms, round_: int
) -> NDArray:
    """Return the mask that a node adds for itself and another; the other adds its negative."""
    low, high = sorted((name, other))
    where = context(agreed, round_), b"shared mask", low.encode(), high.encode()
    drawn = keys.mask(keys.agreed(private, other_key, *where), agreed["size"], dtype_of(agreed))
    return drawn if name == low else np.negative(drawn)


def _agree(state: NodeState, request: Request) -> tuple[NodeState, Any]:
    """Sign all that the server has sent in this round, and who is to be counted."""
    counted = _checked_counted(state, request)
    signature = keys.sign(state["signing"], agreement(state["view"], counted))
    return state | {"counted": counted}, {"signature": signature}


def receipt(view: Octets) -> bytes:
    """Return what a node signs with its vector: what it has received in this round."""
    return keys.digest(view.tobytes(), b"receipt")


def agreement(view: Octets, counted: list[str]) -> bytes:
    """Return what a node signs when it agrees to who is counted."""
    return keys.digest(view.tobytes(), b"counted", *(name.encode() for name in sorted(counted)))


def _checked_counted(state: NodeState, request: Request) -> list[str]:
    counted = request.get("counted")
    check_names("counted", counted, sorted(state["shares"]), state["terms"]["threshold"])
    assert counted is not None
    if state["name"] not in counted:
        raise ValueError("counted must have this node, which has sent its vector.")
    return sorted(counted)


def _unmask(state: NodeState, request: Request) -> tuple[NodeState, Any]:
    """Give the shares of seeds of nodes that are counted, and of secrets of those that are not."""
    agreed, counted = state["terms"], _checked_counted(state, request)
    if "verify" in agreed:
        if counted != state["counted"]:
            raise ValueError("counted must be the nodes that this node has agreed to.")
        view, least = state["view"], agreed["threshold"]
        check_signed(agreed, agreement(view, counted), counted, least, request.get("signatures"))
        check_signed(agreed, receipt(view), counted, len(counted), request.get("receipts"))
    shares = state["shares"]
    reply = {
        "seeds": {name: shares[name][:SECRET] for name in counted},
        "secrets": {name: share[SECRET:] for name, share in shares.items() if name not in counted},
    }
    kept: Any = {
        each: x for each, x in state.items() if each in ("name", "terms", "signing", "round")
    }
    return kept, reply


def check_signed(
    agreed: Terms, signed: bytes, among: list[str], least: int, signatures: Any
) -> None:
    """Raise a ValueError if not enough nodes have signed that, or if one has signed otherwise."""
    check_names("signatures", signatures, among, least)
    for name, signature in signatures.items():
        check_octets(f"the signature of {name}", signature, SIGNATURE)
        if not keys.verified(agreed["verify"][name], signature, signed):
            raise ValueError(f"{name} has not signed what this node has seen of the round.")


_STEPS = {"keys": _begin, "shares": _share, "agree": _agree, "unmask": _unmask}
