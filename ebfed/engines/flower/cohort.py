"""Clients behind a Flower grid: nodes are asked, answers checked, and a quorum is needed."""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed import wire
from ebfed.engines import journal
from ebfed.engines.base import Cohort, join
from ebfed.engines.flower.files import now, write
from ebfed.engines.flower.messages import UNSIGNED, Registered, make_request, question, read_answer
from ebfed.engines.matching import Matched, check_digests
from ebfed.engines.robust import check_max_shift, differing, guilty, settle
from ebfed.engines.secure_sum import SecureSums, Terms, least_threshold, terms
from ebfed.engines.secure_sum.keys import KEY, Octets
from ebfed.engines.secure_sum.messages import check_octets

__all__ = ["FlowerCohort", "check_invitation"]

# Seconds between two searches for answers, which grow to a part of the time since the question; and
# at least before a node is asked again. A search that takes longer is not waited for.
POLL, PART, AGAIN = 0.05, 0.1, 5.0
ROLL_CALL = {"exchange": "roll call"}
# What a node shows besides facts, if its owner says so.
SHOWN = ("digests", "partners", "colluding")


@dataclass(frozen=True)
class _Member:
    """A node that answered the roll call, and its clients; `id` is None while it is not there."""

    name: str
    id: int | None
    place: slice
    facts: dict
    digests: NDArray[np.uint8] | None
    partners: dict[str, Octets] | None
    colluding: int | None


class FlowerCohort(Cohort):
    """Clients behind a Flower grid.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
    estimator, nodes, quorum, deadline, max_shift : as in `server_app`
    plan : dict
        What nodes are asked to fit: see `plan_of_run`.
    fit : int
        Number of the fit. Nodes know it again by this number, if the fit is interrupted and goes on
        in another run of Flower.

    Attributes
    ----------
    facts : list of dict
        Facts that nodes stated in the roll call, in the order of their names.
    roll : list of dict
        Name and facts of each node of the fit, in the order of their names.
    lost : set of str
        Names of nodes that missed an exchange or were left out of it, and have not answered since.
    used : dict of int
        The last round of each node, by name, in which its answer was used.
    shifts : dict of dict
        How far each node moved each round, in standard errors: by title of the round and name.
    log : path or None
        File to which a line of JSON is added after each exchange.
    sums : path or None
        File of what secure sums go on from, after an interruption; it has no secret of a node.
    """

    def __init__(
        self,
        grid: Any,
        estimator: Any,
        nodes: int | Sequence[str],
        *,
        plan: Mapping[str, Any],
        fit: int,
        quorum: float,
        deadline: float,
        max_shift: float | None = None,
    ):
        check_max_shift(max_shift)
        self._protocol, self._limit = estimator.protocol(), max_shift
        self._invited, self._needed = check_invitation(nodes, quorum, deadline)
        self._names = None if isinstance(nodes, int) else frozenset(nodes)
        self._grid, self._deadline = grid, deadline
        self.plan, self._terms = dict(plan), {"plan": dict(plan), "fit": fit}
        self._members: list[_Member] = []
        self._dismissed: list[_Member] = []
        self.lost: set[str] = set()
        self.used: dict[str, int] = {}
        # Nodes that did not answer the last time are not waited for, until a late answer arrives.
        self._away: set[int] = set()
        self._overdue: dict[str, int] = {}
        self._called: dict[int, float] = {}
        self.facts, self.answered = [], []
        self._sums: SecureSums | None = None
        self._summed = False
        self._now: dict[str, Any] = {}
        self._cost = ""
        self._registered: dict[int, Registered] = {}
        self.roll: list[dict[str, Any]] = []
        self.log: Path | None = None
        self.sums: Path | None = None
        self._seconds = 0.0
        self.shifts: dict[str, dict[str, float]] = {}
        # Messages of each round, of methods whose rounds are of different clients.
        self.received: list[dict[str, Any]] = []
        self._rows: dict[tuple[str, str], dict[str, str]] = {}

    @property
    def records(self) -> list[dict[str, Any]]:
        """Status of each node in each exchange, of all runs of the fit, and its shift."""
        return [
            row | {"shift": self.shifts.get(title, {}).get(name, math.nan)}
            for (title, name), row in self._rows.items()
        ]

    def recall(self) -> None:
        """Read the records of earlier runs of the fit from the log."""
        for line in [] if self.log is None else journal.read(self.log):
            self._record(line["exchange"], line["answered"], "answered")
            for row in line["others"]:
                self._record(line["exchange"], [row["node"]], row["status"], row["detail"])

    def call_roll(self, roll: list[dict[str, Any]] | None = None) -> None:
        """Ask all nodes that connect, until all invited ones have answered or time is up.

        Parameters
        ----------
        roll : list of dict, optional
            The roll of a fit that goes on: its nodes are those of the fit, also if one is absent.
        """

        def complete(asked: set[int], answers: dict[int, dict]) -> bool:
            if self._names is None:  # more nodes than invited are welcome
                return len(answers) >= max(self._invited, len(asked))
            return self._names <= {answer.get("name") for answer in answers.values()}

        asked, answers = self._exchange(
            "roll call",
            lambda: dict.fromkeys(self._connected(), ROLL_CALL),
            complete,
            lambda _, answer: self._check_facts(answer),
        )
        if self._registered and not any(each.name for each in self._registered.values()):
            print("names are what nodes say: no key is registered under a name")
        names = {node: self._name_of(node, answers.get(node, {})) for node in asked}
        if self._names is None:
            silent = {names[node] for node in asked if node not in answers}
            silent |= {f"node never connected ({i + 1})" for i in range(self._invited - len(asked))}
        else:
            uninvited = {
                node
                for node, answer in answers.items()
                if "name" in answer and answer["name"] not in self._names
            }
            self._record("roll call", [names[node] for node in uninvited], "not invited")
            answers = {node: x for node, x in answers.items() if node not in uninvited}
            silent = set(self._names.difference(names[node] for node in answers))
        count = Counter(names.values())
        for node in answers:
            if count[names[node]] > 1:
                answers[node] = {"name": names[node], "failure": "two nodes have this name"}
        for node, why in self._find_differing(names, answers).items():
            answers[node] = {"name": names[node], "failure": why}
        good = self._sort_out("roll call", names, answers, silent)
        self._check_quorum("roll call", len(good))
        ids = {names[node]: node for node in good}
        if roll is None:
            found = {name: good[ids[name]] for name in sorted(ids)}
            parts = ("facts", *SHOWN)
            roll = [
                {"name": name} | {part: answer[part] for part in parts if part in answer}
                for name, answer in found.items()
            ]
        self._seat(roll, [ids.get(each["name"]) for each in roll])

    def _seat(self, roll: list[dict[str, Any]], ids: Sequence[int | None]) -> None:
        """Give each node of a roll its clients' places among all."""
        edges = np.cumsum([0, *(len(each["facts"]["n"]) for each in roll)]).tolist()
        self._members = [
            _Member(each["name"], id_, slice(*edge), each["facts"], *map(each.get, SHOWN))
            for each, id_, edge in zip(roll, ids, itertools.pairwise(edges), strict=True)
        ]
        self.roll, self.facts = roll, [each["facts"] for each in roll]

    def _find_differing(
        self, names: Mapping[int, str], answers: Mapping[int, dict]
    ) -> dict[int, str]:
        """Return the nodes whose facts, or match keys, differ from those of most, and how."""
        stated = {node: x["facts"] for node, x in answers.items() if "facts" in x}
        found = differing({names[node]: facts for node, facts in stated.items()})
        left = {node: found[names[node]] for node in stated if names[node] in found}
        keys = {node: x["digests"][0].tobytes() for node, x in answers.items() if "digests" in x}
        most, votes = next(iter(Counter(keys.values()).most_common(1)), (b"", 0))
        others = {node for node, key in keys.items() if key != most}
        # without enough others none can be preferred: the fit says that keys differ
        if 2 * votes > len(keys) and len(stated.keys() - left.keys() - others) >= self._needed:
            left |= dict.fromkeys(others, "its match_key is not that of most nodes")
        return left

    def _check_facts(self, answer: dict) -> None:
        self._protocol.check_facts(answer["facts"])
        if "digests" in answer:
            check_digests(answer["digests"], len(answer["facts"]["n"]))
        for name, key in answer.get("partners", {}).items():
            check_octets(f"the key of {name}", key, KEY if len(key) else 0)
        feared = answer.get("colluding", 0)
        if type(feared) is not int or feared < 0:
            raise ValueError(f"colluding must be a whole number from 0; got {feared!r}.")

    def _connected(self) -> list[int]:
        """Return the numbers of nodes that are connected, and note how they were registered."""
        if not hasattr(self._grid, "get_nodes"):  # one without a SuperLink
            return list(self._grid.get_node_ids())
        found = list(self._grid.get_nodes())
        for each in found:
            self._registered[each.node_id] = Registered(each.name, each.public_key)
        return [each.node_id for each in found]

    def _registration(self, node: int) -> Registered | None:
        """Return how a node was registered; None where no node has a name but what it says."""
        if not any(each.name for each in self._registered.values()):
            return None
        return self._registered.get(node, Registered("", b""))

    def _name_of(self, node: int, answer: dict) -> str:
        known = self._registration(node)
        return (known and known.name) or str(answer.get("name", f"node {node}"))

    @property
    def matched(self) -> Matched | None:
        """The nodes, with the same group at two of them as one; None if labels are not matched."""
        given = [node.digests for node in self._members if node.digests is not None]
        if not given or not self._protocol.matches:
            return None
        if len(given) < len(self._members):
            without = [node.name for node in self._members if node.digests is None]
            print(f"labels are not matched: no match_key at {', '.join(without)}")
            return None
        return Matched(self, self._protocol, given)

    def ask(self, sent: dict, round_: int, turn: NDArray[np.int8]) -> list[dict]:
        """Ask the nodes of the fit; where a node answers once, those that missed nothing so far."""
        self._find_absent()
        secure = self._protocol.secure_sums(sent, nodes=2, rows=1, survivors=1)
        self._summed = secure is not None
        if self._summed:
            if self._limit is not None:
                raise ValueError(
                    "max_shift must be None with secure sums: what one node sends is not seen; got "
                    f"{self._limit!r}."
                )
            return [self._ask_sum(sent, round_, turn)]
        requests: dict[int, dict] = {
            node.id: {
                "exchange": "round",
                "sent": sent,
                "turn": turn[node.place],
                "first": node.place.start,
                "used": self.used.get(node.name, -1),
            }
            for node in self._present()
        }
        members = {node.id: node for node in self._members}

        def check(node: int, answer: dict) -> None:
            member = members[node]
            self._protocol.check_message(answer["message"], member.facts, sent, turn[member.place])

        good = self._hold(f"round {round_ + 1}", requests, check)
        self._check_quorum(f"round {round_ + 1}", len(good))
        self.answered = [i for i, node in enumerate(self._members) if node.id in good]
        return [good[self._members[i].id]["message"] for i in self.answered]

    def begin(self, protocol: Any, key: NDArray) -> Any:
        """Return the state before the first round; leave out a node whose facts forbid it."""

        def begun(names: Sequence[str]) -> Any:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    return protocol.start(join([facts[name] for name in names]), key)
            except Exception as error:  # facts may be of a kind that no check foresees
                return error

        while True:
            facts = {node.name: node.facts for node in self._members}
            try:
                return super().begin(protocol, key)
            except Exception as error:
                if (name := guilty(list(facts), begun)) is None:
                    raise
                why = f"the fit cannot begin with its facts: {error}".removesuffix(".")
            self._leave_out("roll call", {name: why}, "failed")
            self._dismiss([name])
            self._check_quorum("roll call", len(self._members))

    def take(
        self,
        protocol: Any,
        state: Any,
        messages: list[dict],
        merge: Callable[[Sequence[int], Sequence[dict]], dict] | None = None,
    ) -> Any:
        """Return the state after a round; leave out nodes that move it too far, by name."""
        title, names = f"round {state['round'] + 1}", [node.name for node in self._members]
        if self._summed:
            there = [names[i] for i in self.answered]
            found = super().take(protocol, self._with_answering(state, there), messages, merge)
            self.used |= dict.fromkeys(there, state["round"])
            found.pop("answering", None)
            return found
        numbers = {names[number]: number for number in self.answered}
        given = dict(zip(numbers, messages, strict=True))
        begins = protocol.begins_again and merge is None and not state["round"]
        if not protocol.answers_every_round:
            self.received = [*self.received[: state["round"]], given]

        def at(chosen: Sequence[str]) -> tuple[Any, dict]:
            parts = [given[name] for name in chosen]
            whole = join(parts) if merge is None else merge([numbers[x] for x in chosen], parts)
            if begins and len(chosen) < len(self._members):
                facts = [self.facts[numbers[name]] for name in chosen]
                return state | protocol.start(join(facts), state["key"]), whole
            before = state if len(chosen) == len(given) else self._without_others(state, chosen)
            return self._with_answering(before, chosen), whole

        try:
            found = settle(protocol, state, at, given, limit=self._limit, least=self._needed)
        except Exception as error:
            if not (gone := sorted(self.lost)):
                raise
            rows = [row for row in self._rows.values() if row["node"] in gone]
            why = "; ".join(_line(row) for row in rows if row["status"] != "answered")
            raise RuntimeError(f"{title}: {error} Left out: {why}.") from error
        self.shifts[title] = found.shifts
        self.used |= dict.fromkeys(given.keys() - found.left.keys(), state["round"])
        self._leave_out(title, found.left)
        if begins:
            self._dismiss([name for name in names if name not in given or name in found.left])
        found.state.pop("answering", None)  # of this round alone
        return found.state

    def _with_answering(self, state: Any, names: Sequence[str]) -> Any:
        """Return a state that says which clients are at the nodes of these names, if not all."""
        if len(names) == len(self._members):
            return state
        there = [np.full(len(node.facts["n"]), node.name in names) for node in self._members]
        return state | {"answering": np.concatenate(there)}

    def without(self, state: Any) -> tuple[list[str], NDArray[np.bool_]]:
        """Return the nodes of which a result has not all answers, and which clients it is without.

        Clients are those of `facts`: of a node that missed the first round there may be none.
        """
        gone = [np.zeros(0, bool)]
        for node in self._members:
            last = self.used.get(node.name, -1)
            if self._protocol.answers_every_round:
                gone.append(np.full(len(node.facts["n"]), last < state["round"] - 1))
            else:
                gone.append(state["turn"][node.place] > last)
        names = [node.name for node, of in zip(self._members, gone[1:], strict=True) if of.any()]
        return sorted([*names, *(node.name for node in self._dismissed)]), np.concatenate(gone)

    def _dismiss(self, names: Sequence[str]) -> None:
        """Go on without nodes of which nothing was used: they receive the result, and no more."""
        self._dismissed += [node for node in self._members if node.name in names]
        kept = [i for i, node in enumerate(self._members) if node.name not in names]
        self._seat([self.roll[i] for i in kept], [self._members[i].id for i in kept])
        self.answered = list(range(len(kept)))

    def _without_others(self, state: Any, chosen: Sequence[str]) -> Any:
        """Return a state that has the messages of these nodes only, if it has any."""
        if not state.get("messages"):
            return state
        received = self.received[: len(state["messages"])]
        return state | {
            "messages": [join([x[name] for name in chosen if name in x]) for x in received]
        }

    def _leave_out(self, title: str, left: Mapping[str, str], status: str = "left out") -> None:
        for name, why in left.items():
            self._record(title, [name], status, why)
            print(f"{title}: {_line(self._rows[title, name])}", flush=True)
        self.lost |= left.keys()
        self.answered = [i for i in self.answered if self._members[i].name not in left]

    def most_moving(self, title: str) -> str:
        """Say which node moves a round most, or that it is not seen; nothing if it is not known."""
        if self._summed:
            return "shifts of nodes are not visible in secure sums" * (title == "round 1")
        known = {name: x for name, x in self.shifts.get(title, {}).items() if not math.isnan(x)}
        if not known:
            return ""
        name = max(known, key=lambda each: known[each])
        return f"{title}: {name} moves it most, by {known[name]:.2g} standard errors"

    def _ask_sum(self, sent: dict, round_: int, turn: NDArray[np.int8]) -> dict:
        """Ask all nodes for what adds up to their sum, of which each one's part is not seen."""
        rows = max(len(node.facts["n"]) for node in self._members)
        if self._sums is None:
            self._sums = self._begun(sent, rows, round_)
        agreed = self._sums.agreed
        n, honest = len(agreed["names"]), agreed["threshold"] - agreed["colluding"]
        sums = self._protocol.secure_sums(sent, nodes=n, rows=rows, survivors=honest)
        self._now = {"exchange": "sum", "sent": sent, "rows": rows, "terms": agreed}
        self._turn, about = turn, question(self._now | self._terms)
        while (found := self._sums.next(about)).round < round_:
            pass  # of a fit that goes on: the sum that its state has already
        self.answered = [i for i, x in enumerate(self._members) if x.name in found.counted]
        return sums.decode(found.total)

    def _terms_of_sums(self, sent: dict, rows: int) -> Terms:
        """Return terms for the nodes that most owners know, with the keys that most of them list.

        With a node that most do not know, or with another key, all would refuse the sum. Without
        enough others all are asked, so that the log of each node says what it refuses.
        """
        tables = [x.partners for x in self._members if x.partners is not None]
        listed = {x.name: _most_listed(tables, x.name) for x in self._members}
        known = [name for name, (_, votes) in listed.items() if 2 * votes > len(tables)]
        if len(known) < max(self._needed, 2):
            known = [*listed]
        self._record("secure sums", listed.keys() - known, "failed", "most owners do not list it")
        n = len(known)
        # owners who fear more than most do refuse the sum
        feared = sorted(x.colluding or 0 for x in self._members if x.name in known)
        colluding = min(feared[len(feared) // 2], max(n - 2, 0))
        least = max(min(self._needed, n), least_threshold(n, colluding))
        keys = {name: np.frombuffer(listed[name][0], np.uint8) for name in known}
        own = {"nodes": n, "rows": rows, "survivors": least - colluding}
        size = self._protocol.secure_sums(sent, **own).grid.size
        return terms(
            f"{self._terms['fit']}",
            known,
            size,
            threshold=least,
            colluding=colluding,
            verify=keys if all(map(len, keys.values())) else None,
        )

    def _begun(self, sent: dict, rows: int, round_: int) -> SecureSums:
        """Begin the sums of a fit, or go on with those of an interrupted one."""
        path = self.sums

        def keep(kept: dict) -> None:
            if path is not None:
                write(path, wire.pack(kept))

        if path is not None and path.exists():
            return SecureSums.resumed(wire.unpack(path.read_bytes()), self._relay, keep=keep)
        agreed = self._terms_of_sums(sent, rows)
        return SecureSums(agreed, self._relay, first=round_, keep=keep)

    def _relay(self, asked: dict[str, list]) -> dict:
        members = {node.name: node for node in self._members}
        requests = {}
        for name, each in asked.items():
            member = members[name]
            if member.id is None:
                continue
            more = {"requests": each, "turn": self._turn[member.place], "first": member.place.start}
            requests[member.id] = self._now | more
        steps = " and ".join(each["step"] for each in max(asked.values(), key=len))
        title = f"round {self._now['sent']['round'] + 1}, {steps}"
        good = self._hold(title, requests, least=self._now["terms"]["threshold"])
        ids = {node.id: node.name for node in self._members}
        return {ids[node]: answer["answers"] for node, answer in good.items()}

    def tell(self, sent: dict, matched: Matched | None = None) -> None:
        """Send the result to all, and wait for the nodes that were asked to the end.

        With matched labels, a node also gets the sums over all nodes of its own groups.
        """
        present = {node.id for node in self._present()}
        unmatched = matched is None and len(self._members) > 1
        requests = {}
        for number, node in enumerate([*self._members, *self._dismissed]):
            if node.id is None:
                continue
            requests[node.id] = {"exchange": "result", "sent": sent, "used": node.id in present}
            requests[node.id] |= {"unmatched": unmatched}
            if matched is not None and (part := matched.part(number)) is not None:
                requests[node.id]["merged"] = part
        self._hold("result", requests)

    def _present(self) -> list[Any]:
        """Nodes that are asked: a node that missed a round comes back, if it answers in each."""
        back = self._protocol.answers_every_round
        return [x for x in self._members if x.id is not None and (back or x.name not in self.lost)]

    def _find_absent(self) -> None:
        """Ask unknown nodes for their names, while a node of the fit is absent; wait for none."""
        known = {node.id for node in self._members}
        if None not in known:
            return
        moment = time.monotonic()
        for node in set(self._connected()) - known:
            if moment >= self._called.get(node, 0.0):
                self._called[node] = moment + AGAIN
                self._overdue |= dict.fromkeys(self._send(node, "roll call", ROLL_CALL), node)

    def _hold(
        self,
        title: str,
        requests: dict[int, dict],
        check: Callable[[int, dict], None] = lambda node, answer: None,
        least: int | None = None,
    ) -> dict:
        """Send requests; wait for nodes that are not away, and for as many as are needed."""
        least = min(self._needed if least is None else least, len(requests))
        everyone = [*self._members, *self._dismissed]
        names = {node.id: node.name for node in everyone if node.id is not None}
        absent = [node.name for node in self._members if node.id is None]

        def complete(_: set[int], answers: dict[int, dict]) -> bool:
            count = sum("failure" not in answer for answer in answers.values())
            enough = requests.keys() - self._away <= answers.keys() and count >= least
            return enough or requests.keys() <= answers.keys()

        _, answers = self._exchange(title, lambda: requests, complete, check)
        silent = [names[node] for node in requests if node not in answers]
        good = self._sort_out(title, names, answers, [*silent, *absent])
        self._away = (self._away | requests.keys()) - good.keys()
        missing = {*absent, *(names[node] for node in requests)}
        self.lost = (self.lost | missing) - {names[node] for node in good}
        return good

    def _exchange(
        self,
        title: str,
        requests: Callable[[], Mapping[int, dict]],
        complete: Callable[[set[int], dict[int, dict]], bool],
        check: Callable[[int, dict], None],
    ) -> tuple[set[int], dict[int, dict]]:
        """Send requests, and collect answers until they are complete or time is up.

        Time in which the SuperLink does not answer is not counted.

        A node that was killed may have taken a request with it, and one that is not connected may
        come back: nodes that do not answer are asked again, which changes nothing for one that is
        busy.
        """
        asked: dict[int, float] = {}
        pending: dict[str, tuple[int, str]] = {}
        answers: dict[int, dict] = {}
        absent: dict[int, dict] = {}
        began = time.monotonic()
        end = began + self._deadline
        while True:
            moment = time.monotonic()
            for node, request in requests().items():
                if node not in answers and moment >= asked.get(node, 0.0):
                    asked[node] = moment + max(AGAIN, moment - began)
                    for message in self._send(node, title, request):
                        pending[message] = node, request["exchange"]
            for reply in self._replies([*pending, *self._overdue]):
                if known := pending.pop(reply.metadata.reply_to_message_id, None):
                    answer = self._read(reply, *known, check)
                    unsigned = answer.get("failure") == UNSIGNED
                    found = absent if unsigned or reply.has_error() else answers
                    found.setdefault(known[0], answer)
                    if unsigned:  # another's, perhaps: the node's own may come
                        pending[reply.metadata.reply_to_message_id] = known
                else:
                    self._late(reply)
            spent = time.monotonic() - moment
            end += spent if spent >= AGAIN else 0.0  # the SuperLink was away, not the nodes
            if complete(set(asked), answers) or time.monotonic() >= end:
                left = {node: message for message, (node, _) in pending.items()}
                self._overdue |= {left[node]: node for node in left.keys() - answers.keys()}
                self._seconds = time.monotonic() - began
                return set(asked), absent | answers
            time.sleep(max(POLL, PART * (time.monotonic() - began)))

    def _read(
        self, reply: Any, node: int, exchange: str, check: Callable[[int, dict], None]
    ) -> dict:
        return read_answer(reply, node, exchange, check, self._registration(node))

    def _send(self, node: int, title: str, request: dict) -> Iterable[str]:
        from flwr.supercore.inflatable.inflatable_utils import ObjectPushError

        # one by one: an error names only the request that it answers
        content = make_request(node, title, request | self._terms)
        with contextlib.suppress(ObjectPushError):  # a SuperLink died meanwhile: it is asked again
            return list(self._grid.push_messages([content]))
        return []

    def _replies(self, messages: list[str]) -> list[Any]:
        """Return replies that have arrived.

        Flower waits for minutes where a node was killed while it sent a reply. Nobody else waits
        for this node: the search goes on in a thread whose result is not used.
        """
        found: Future[list[Any]] = Future()

        def search() -> None:
            try:
                found.set_result(list(self._grid.pull_messages(messages)))
            except BaseException as error:
                found.set_exception(error)

        if messages:
            threading.Thread(target=search, daemon=True).start()
            with contextlib.suppress(TimeoutError):
                return found.result(timeout=AGAIN)
        return []

    def _late(self, reply: Any) -> None:
        """Take a late answer, which is not used: its node is back, perhaps with a new number."""
        node = self._overdue.pop(reply.metadata.reply_to_message_id, None)
        if node is None or reply.has_error():
            return
        answer = self._read(reply, node, "roll call", lambda _, x: self._check_facts(x))
        if answer.get("failure") == UNSIGNED:
            return
        self._away.discard(node)
        for place, member in enumerate(self._members):
            if member.id is None and answer.get("name") == member.name and "facts" in answer:
                self._members[place] = replace(member, id=node)

    def _note(self, title: str, **parts: Any) -> None:
        """Add a line to the log: seconds, who answered, bytes of each answer, and who did not."""
        self._cost = f"{self._seconds:.1f} s, {sum(parts['bytes'].values()) / 1000:.1f} kB"
        if self.log is not None:
            line = {"time": now(), "exchange": title, "seconds": self._seconds}
            self.log.parent.mkdir(parents=True, exist_ok=True)
            journal.append(self.log, [line | parts])

    def _sort_out(
        self, title: str, names: Mapping[int, str], answers: dict[int, dict], silent: Iterable[str]
    ) -> dict[int, dict]:
        """Record the status of each node; returns the valid answers."""
        sizes = {str(x.get("name", n)): x.pop("bytes", 0) for n, x in answers.items()}
        good = {node: answer for node, answer in answers.items() if "failure" not in answer}
        self._record(title, [names[node] for node in good], "answered")
        for node, answer in answers.items():
            if node not in good:
                self._record(title, [names[node]], "failed", answer["failure"])
        self._record(title, silent, "silent")
        others = [row for row in self.records if row["exchange"] == title]
        others = [row for row in others if row["status"] != "answered"]
        answered = sorted(names[node] for node in good)
        self._note(title, answered=answered, bytes=sizes, others=others)
        print(
            f"{title}: {len(good)} of {self._invited} nodes answered ({self._cost})",
            *map(_line, others),
            sep="; ",
        )
        return good

    def _record(self, title: str, names: Iterable[str], status: str, detail: str = "") -> None:
        for name in sorted(names):
            row = {"exchange": title, "node": name, "status": status, "detail": detail}
            self._rows[title, name] = row  # of a round that is held again, the last time counts

    def _check_quorum(self, title: str, count: int) -> None:
        if count < self._needed:
            rows = [row for row in self.records if row["exchange"] == title]
            missing = "; ".join(_line(row) for row in rows if row["status"] != "answered")
            missing = missing or f"missing since earlier: {', '.join(sorted(self.lost))}"
            raise RuntimeError(
                f"{title}: {count} of {self._invited} nodes answered, {self._needed} are needed "
                f"({missing}). Nothing was estimated."
            )


def _most_listed(tables: Sequence[Mapping[str, Octets]], name: str) -> tuple[bytes, int]:
    """Return the key of a node that most owners list, and how many do; empty if none is listed."""
    votes = Counter(table[name].tobytes() for table in tables if name in table)
    return votes.most_common(1)[0] if votes else (b"", 0)


def _line(row: Mapping[str, str]) -> str:
    return f"{row['node']} {row['status']}" + f" ({row['detail']})" * bool(row["detail"])


def check_invitation(nodes: int | Sequence[str], quorum: float, deadline: float) -> tuple[int, int]:
    """Return how many nodes are invited, and how many must answer."""
    if isinstance(nodes, int) and not isinstance(nodes, bool) and nodes >= 1:
        invited = nodes
    elif not isinstance(nodes, int | str) and 0 < len(set(nodes)) == len(nodes):
        invited = len(nodes)
    else:
        raise ValueError(f"nodes must be a number of nodes or their names; got {nodes!r}.")
    if isinstance(quorum, float) and 0 < quorum <= 1:
        needed = math.ceil(round(quorum * invited, 9))  # .55 * 100 is more than 55
    elif isinstance(quorum, int) and not isinstance(quorum, bool) and 1 <= quorum <= invited:
        needed = quorum
    else:
        raise ValueError(
            f"quorum must be a number of nodes from 1 to {invited}, or a share from 0.0 to 1.0; "
            f"got {quorum!r}."
        )
    if not 0 < deadline < math.inf:
        raise ValueError(f"deadline must be a number of seconds; got {deadline!r}.")
    return invited, needed
