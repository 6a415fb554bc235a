"""A node: how it answers a request, without any network; and one that takes plans, never code."""

from __future__ import annotations

import contextlib
import hashlib
import math
import traceback
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.validation import has_fit_parameter

from ebfed import wire
from ebfed.engines import journal, portable
from ebfed.engines.base import cut
from ebfed.engines.flower.files import alone, now, table_of, write
from ebfed.engines.flower.gate import Gate
from ebfed.engines.flower.limits import check_counts, check_round, limited
from ebfed.engines.flower.messages import question
from ebfed.engines.flower.rows import TableRows, UnfitRowsError, check_rows
from ebfed.engines.flower.rules import FILE as RULES
from ebfed.engines.flower.rules import Rules
from ebfed.engines.matching import UNMATCHED, digests, read_match_key
from ebfed.engines.secure_sum import StoredNode, stored_key
from ebfed.engines.secure_sum.node import NOTHING
from ebfed.privacy.ledger import simulated
from ebfed.streams import Stream, make_key

__all__ = ["LEDGER", "SUM_KEY", "Node", "PlannedNode", "plan_of_run"]

LEDGER = "ledger.jsonl"
# Key by which other nodes know this one, in secure sums.
SUM_KEY = "sum-key"
# Number of last rounds whose messages, and memories after them, are kept. The ledger keeps all.
KEPT = 2

# Arguments that belong to the server's process.
OF_THE_SERVER = ("checkpoint", "random_state", "verbose", "warm_start")


class Node:
    """A node: how it answers a request, without any network.

    Parameters
    ----------
    name : str
        Name of the node.
    estimator : Estimator
        The node's copy.
    load : callable
        Returns the arguments of `fit`.
    directory : path
        Folder of the node's results, ledger and log.
    budget : Rules or float, optional
        What runs may take from the groups; a number is the epsilon of a budget, without any other
        rule. None: the rules are read from `node.toml` in the directory.
    seed : int or None
        Seed of the noise; None: noise of the operating system.

    Notes
    -----
    Rows are read when a run begins, and kept until another run does.
    """

    def __init__(
        self,
        name: str,
        estimator: Any,
        load: Callable[[], Mapping[str, Any]],
        directory: str | Path,
        *,
        budget: Rules | float | None = None,
        seed: int | None = None,
    ):
        self._name, self._estimator, self._load = name, estimator, load
        if isinstance(budget, int | float):
            budget = Rules(epsilon=budget, min_group_size=1)
        self._given = budget
        self._seed = seed
        self._directory = Path(directory)
        # The run that rows were read for, its plan, and what was read.
        self._open: tuple[int, bytes | None, _Opened] | None = None

    def answer(self, run: int, request: dict) -> dict:
        """Answer a request of a run; of a failure, only the kind is sent, and the text logged."""
        try:
            return {"name": self._name, **self._answer(run, request)}
        except Exception as error:
            with contextlib.suppress(Exception):
                self._log_error(f"{now()} run {run}\n{traceback.format_exc()}\n")
            unfit = "rows that lack values, or have some that the model does not take"
            what = unfit if isinstance(error, UnfitRowsError) else type(error).__name__
            return {"name": self._name, "failure": f"{what}; the node's own errors.log says more"}

    def _answer(self, run: int, request: dict) -> dict:
        folder = self._directory / f"run-{int(run)}"
        rules = self._given or Rules.read(self._directory / RULES)
        # no noise is drawn twice
        with limited(rules.max_seconds, rules.max_memory), alone(self._directory):
            protocol, clients, memory, home, gate = self._opened(run, request, rules, folder)
            own = rules.match_key if protocol.matches else None
            if request["exchange"] == "roll call":
                shown: dict[str, Any] = {"facts": self._facts(run, protocol, clients, memory)}
                if own is not None:
                    shown["digests"] = self._digests(run, own, clients.ids)
                if (partners := rules.listed_partners()) is not None:
                    shown |= {"partners": partners, "colluding": rules.colluding}
                return shown
            check_round(request["sent"])
            nobody = np.full(len(clients), -1, np.int8)
            memory = memory | {"turn": nobody} | _remembered(folder)
            if request["exchange"] == "round":
                message = self._report(run, request, gate, protocol, clients, memory, folder)
                return {"message": message}
            if request["exchange"] == "sum":
                node, about = self._node_of_sums(run, request, rules, folder), question(request)

                def vector(asked: int) -> NDArray[np.int64]:
                    if asked != request["sent"]["round"]:
                        raise ValueError(
                            f"sum {asked} is not one of the vectors of round "
                            f"{request['sent']['round']}: a round is summed once."
                        )
                    known = gate, protocol, clients, memory, folder
                    return self._report(run, request, *known, about)["vector"]

                answers = [node.answer(each, vector, about) for each in request["requests"]]
                return {"answers": answers}
            if not request["used"]:  # the message was too late for the result
                memory = memory | {"turn": nobody}
            if own is not None and "merged" in request:
                clients, memory = protocol.with_merged(request["merged"], clients, memory)
            remarks = (UNMATCHED,) if request.get("unmatched") else ()
            protocol.estimator._remarks = remarks
            self._finish(protocol, request["sent"], memory, clients, home, folder)
            return {}

    def _node_of_sums(self, run: int, request: dict, rules: Rules, folder: Path) -> StoredNode:
        """Return this node's side of the secure sums of a run."""
        agreed, path = request["terms"], folder / "sums.ebfed"
        rules.check_sums(self._name, agreed)
        if agreed["run"] != str(run):
            raise ValueError(f"the sum is one of run {agreed['run']!r}; this is run {run}.")
        if not path.exists() and _listed(journal.read(self._directory / LEDGER), run):
            raise ValueError(f"a round was summed, and {path.name}, which says so, is gone.")
        signs = "verify" in agreed
        signing = stored_key(self._directory / SUM_KEY)[0] if signs else None
        return StoredNode(path, self._name, agreed, signing)

    def _opened(self, run: int, request: dict, rules: Rules, folder: Path) -> _Opened:
        """Return the method, and the rows with their memory, which are read once in a run."""
        plan = self._checked_plan(request, folder)
        if self._open is None or self._open[:2] != (run, plan):
            estimator = self._method(plan)
            estimator._simulated = self._seed is not None
            rules.check_method(type(estimator).__name__)
            rows, protocol = self._rows(plan, rules), estimator.protocol()
            arguments = dict(rows.arguments)
            if rules.rows is not None and has_fit_parameter(estimator, "users"):
                arguments |= _users(rows, rules)
            try:
                clients, memory = protocol.prepare(**arguments)
            except ValueError as error:  # may have figures of the rows
                raise UnfitRowsError(f"{error}") from error
            gate = Gate.of(rules, protocol, clients, memory, rows)
            sends = gate.sends(clients.n)
            home = _part(clients, memory, ~sends)
            if not sends.all():
                clients, memory = _part(clients, memory, sends)
            facts = protocol.describe(clients, memory)
            gate.check_facts(facts, rows.arguments, protocol.estimator)
            _compare(folder / "clients", clients, facts)
            self._open = run, plan, _Opened(protocol, clients, memory, home, gate.take(sends))
        found = self._open[2]
        rules.check_method(found.gate.method)
        return found._replace(gate=replace(found.gate, rules=rules))

    def _checked_plan(self, request: dict, folder: Path) -> bytes | None:
        """Return the plan of a run, where nodes take one from the network."""
        return None

    def _method(self, plan: bytes | None) -> Any:
        from sklearn.base import clone

        return clone(self._estimator)

    def _rows(self, plan: bytes | None, rules: Rules) -> TableRows:
        return TableRows(self._load())

    def _facts(self, run: int, protocol: Any, clients: Any, memory: Any) -> dict[str, Any]:
        """Return what is public of the groups, which is in the ledger before it is sent."""
        facts = protocol.describe(clients, memory)
        names = [name.replace("_", " ") for name in facts if name != "n"]
        self._enter_once(
            run,
            "facts",
            f"numbers of rows, {', '.join(names)}",
            len(clients),
            8.0 * sum(np.asarray(x).nbytes for x in facts.values()),
        )
        return facts

    def _digests(self, run: int, name: str, ids: NDArray) -> NDArray[np.uint8]:
        """Return digests of labels, which are in the ledger before they are sent."""
        found = digests(ids, read_match_key(self._directory / name))
        self._enter_once(run, "digests", "digests of labels", len(ids), 8.0 * found.size)
        return found

    def _enter_once(self, run: int, kind: str, what: str, count: int, bits: float) -> None:
        """Enter what is sent as it is, and the same however often it is asked for."""
        row: dict[str, Any] = {"kind": kind, "who": "all clients", "what": what}
        row |= {"clients": count, "epsilon": None, "bits": bits}
        ledger = journal.read(self._directory / LEDGER)
        if not any(each["run"] == str(run) and each["kind"] == kind for each in ledger):
            self._enter(run, [row])

    def _report(
        self,
        run: int,
        request: dict,
        gate: Gate,
        protocol: Any,
        clients: Any,
        memory: dict,
        folder: Path,
        about: NDArray[np.uint8] = NOTHING,
    ) -> dict:
        """Return the message of a round: the stored one, or a new one.

        A message that is for a secure sum answers one question, of which `about` is the digest, and
        is returned to no other.

        The plan is in the ledger before anything is drawn. The message is on the disk, and then in
        the ledger, before it is sent: so nothing is sent that is not listed, and what was sent is
        sent again as it was.
        """
        sent, turn = request["sent"], request["turn"]
        round_ = sent["round"]
        if turn.dtype != np.int8 or turn.shape != (len(clients),):
            raise ValueError(f"turn must be one int8 for each of {len(clients)} groups.")
        ledger = journal.read(self._directory / LEDGER)
        listed = _listed(ledger, run)
        needed = sorted(listed)[-KEPT:] + [round_] * (round_ in listed)
        if gone := [each for each in needed if not _kept(folder, each).exists()]:
            raise ValueError(f"round {gone[0] + 1} was answered, and its file is gone.")
        kept = _kept(folder, round_)
        if not kept.exists():
            once = not protocol.answers_every_round
            if once and _rounds(folder):  # its turn is that of its first round
                turn = memory["turn"]
            plans = protocol.plan(sent, memory | {"turn": turn}, clients)
            gate.check_plans(plans)
            entries = [row for row in ledger if row["kind"] == "plan"]
            new = gate.charged(plans, round_)
            if gate.is_new(run, new, entries):
                self._enter(run, new)
            rng: Any = "secure"
            if self._seed is not None:
                rng = Stream(make_key(self._seed), round_, request["first"])
            last = max(_rounds(folder), default=-1)
            counted = (memory["turn"] == 0) & (request.get("used", last) == last)
            now = {"turn": turn, "uncounted": ~counted}
            message, memory = protocol.local(sent, memory | now, clients, rng)
            memory.pop("uncounted", None)
            message = self._shared(request, protocol, message)
            rows = protocol.releases(sent, memory, clients)
            rows = [_plain(row) for row in (rows if self._seed is None else simulated(rows))]
            parts = {"message": message, "memory": memory, "rows": rows, "about": about}
            write(kept, wire.pack(parts))
        stored = wire.unpack(kept.read_bytes())
        if not np.array_equal(stored["about"], about):
            raise ValueError(f"round {round_ + 1} was answered to another question.")
        if round_ not in listed:
            self._enter(run, [{"kind": "release", "round": round_} | row for row in stored["rows"]])
        for number in sorted(listed | {round_})[:-KEPT]:  # a server asks for the last one again
            _kept(folder, number).unlink(missing_ok=True)
        return stored["message"]

    def _shared(self, request: dict, protocol: Any, message: Any) -> Any:
        """Add up what clients send; where nobody is trusted, with noise, as integers to mask."""
        whole: dict[str, Any] = {"names": [], "threshold": 1, "colluding": 0}
        agreed = request["terms"] if request["exchange"] == "sum" else whole
        sums = protocol.secure_sums(
            request["sent"],
            nodes=len(agreed["names"]),
            rows=request.get("rows", 1),
            survivors=agreed["threshold"] - agreed["colluding"],
        )
        if sums is None:
            return protocol.add_up(message)
        if request["exchange"] != "sum":
            raise ValueError("this method is for secure sums only; nothing else is sent.")
        rng: Any = "secure"
        if self._seed is not None:
            rng = np.random.default_rng([self._seed, request["sent"]["round"], request["first"]])
        return {"vector": sums.encode(message, rng)}

    def _finish(
        self,
        protocol: Any,
        sent: dict,
        memory: dict,
        clients: Any,
        home: tuple[Any, dict],
        folder: Path,
    ) -> None:
        """Write the estimates of this node's groups for its owner, of small ones too."""
        silent, own = home
        others = copy(protocol.estimator).protocol()
        fitted = protocol.finish(sent, memory, clients)
        table, text = protocol.estimates("pandas"), f"{fitted.summary()}\n"
        if len(silent):
            nobody = np.full(len(silent), -1, np.int8)
            others.finish(sent, own | {"turn": nobody}, silent)
            more = others.estimates("pandas")
            table = pd.concat([table, more], ignore_index=True)
            table = table.sort_values(table.columns[0], kind="stable", ignore_index=True)
            names = ", ".join(map(str, silent.ids.tolist()))
            text += f"\nGroups with too few rows to send anything (min_group_size): {names}\n"
        write(folder / "estimate.csv", table_of(table))
        write(folder / "summary.txt", text.encode())

    def _enter(self, run: int, rows: list[dict[str, Any]]) -> None:
        head = {"time": now(), "run": str(run)}
        journal.append(self._directory / LEDGER, [head | row for row in rows])

    def _log_error(self, text: str) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._directory / "errors.log"
        path.touch(mode=0o600)
        with open(path, "a", encoding="utf-8") as file:
            file.write(text)


class _Opened(NamedTuple):
    """A method, the groups that send, the small groups that stay at home, and the gate."""

    protocol: Any
    clients: Any
    memory: dict[str, Any]
    home: tuple[Any, dict[str, Any]]
    gate: Gate


def _part(clients: Any, memory: dict, chosen: NDArray[np.bool_]) -> tuple[Any, dict]:
    """Take some groups, and what they keep."""
    places = np.flatnonzero(chosen)
    return clients.take(places), cut(memory, places)


def _listed(ledger: list[dict[str, Any]], run: int) -> set[int]:
    """Return the rounds of a run of which something was sent."""
    return {row["round"] for row in ledger if row["kind"] == "release" and row["run"] == str(run)}


def _kept(folder: Path, round_: int) -> Path:
    return folder / f"round-{round_}.ebfed"


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Replace numbers that JSON does not have by None."""
    return {
        name: None if isinstance(x, float) and not math.isfinite(x) else x
        for name, x in row.items()
    }


def _compare(path: Path, clients: Any, facts: dict) -> None:
    """Refuse groups, numbers of rows or consent that differ from the run's first exchange."""
    names = [str(each) for each in clients.ids.tolist()]
    digest = hashlib.sha256(wire.pack([names, facts])).hexdigest().encode()
    if not path.exists():
        write(path, digest)
    elif path.read_bytes() != digest:
        raise ValueError("groups, numbers of rows or consent have changed since the roll call.")


def _remembered(folder: Path) -> dict[str, NDArray]:
    """Return the memory of clients after the last round that they answered."""
    rounds = _rounds(folder)
    if not rounds:
        return {}
    return wire.unpack(_kept(folder, max(rounds)).read_bytes())["memory"]


def _rounds(folder: Path) -> list[int]:
    """Return the rounds whose messages are kept."""
    return [int(path.stem.removeprefix("round-")) for path in folder.glob("round-*.ebfed")]


def plan_of_run(estimator: Any, rows: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plan of a run: data that say which method, and which columns.

    Parameters
    ----------
    estimator : Estimator
        Of ebfed, whose arguments are data or objects of ebfed.
    rows : mapping
        Columns of the nodes' tables by argument of `fit`: ``X``, ``y``, ``groups``, ``consent``,
        ``exposure``, ``observed`` or ``sample_weight``.

    Raises
    ------
    TypeError
        If an argument of the estimator is neither.
    ValueError
        If `rows` does not name columns.

    Examples
    --------
    >>> import ebfed as eb
    >>> plan_of_run(eb.OptOutMean(epsilon=1.0), {"X": ["score"], "groups": "ward"})["rows"]
    {'X': ['score'], 'groups': 'ward'}
    """
    plan = {"method": portable.describe(estimator, OF_THE_SERVER), "rows": check_rows(rows)}
    wire.pack(plan)  # or a TypeError names what is no data
    return plan


class PlannedNode(Node):
    """A node that fits what the plan of a run names, to rows that its owner has chosen.

    Nothing that is received is executed: a plan is the name of an estimator of ebfed, its
    arguments, and names of columns. The rules of the owner (`node.toml`) say where the rows are,
    which columns may be read, which methods may run, and what they may cost.

    Parameters
    ----------
    name : str
    directory : path
        Folder of the node's rules, results, ledger and log.
    classes : mapping
        Classes that a plan may name.
    seed : int or None
        Seed of the noise, for trials; None: noise of the operating system.
    """

    def __init__(
        self,
        name: str,
        directory: str | Path,
        classes: Mapping[str, type],
        *,
        seed: int | None = None,
    ):
        super().__init__(name, None, _none, directory, seed=seed)
        self._classes = classes

    def answer(self, run: int, request: dict) -> dict:
        """Answer a request of a fit, which several runs of Flower may carry."""
        fit = request.get("fit")
        if type(fit) is not int or not 0 <= fit < 2**63:
            return {"name": self._name, "failure": "a request without the number of its fit"}
        return super().answer(fit, request)

    def _checked_plan(self, request: dict, folder: Path) -> bytes:
        """Return the packed plan; refuse one that differs from the first of the run."""
        plan = wire.pack(request["plan"])
        path = folder / "plan.ebfed"
        if not path.exists():
            write(path, plan)
        elif path.read_bytes() != plan:
            raise ValueError("the plan is not the one that this fit began with.")
        return plan

    def _method(self, plan: bytes | None) -> Any:
        assert plan is not None
        method = wire.unpack(plan)["method"]
        named = method["arguments"].keys()
        if refused := sorted(x for x in named if x in OF_THE_SERVER or x[0] == "_"):
            raise ValueError(f"a plan has no argument {refused[0]!r}, which is the server's own.")
        check_counts(method, self._classes)
        return portable.make(method, self._classes)

    def _rows(self, plan: bytes | None, rules: Rules) -> TableRows:
        assert plan is not None
        if rules.rows is None:
            raise ValueError("node.toml must say where the rows are, in a table [rows].")
        columns = wire.unpack(plan)["rows"]
        return rules.rows.read(self._directory, columns, budget=rules.is_finite)


def _users(rows: TableRows, rules: Rules) -> dict[str, NDArray]:
    """Return the argument `users` of methods whose promise is to users, as budgets are of persons.

    Empty if each row is of another person, or where there is neither a person nor a budget.
    """
    users = rows.persons
    if rows.people is None and rules.is_finite:
        users = np.asarray(rows.arguments["groups"]).astype(str)
    return {} if users is None else {"users": users}


_none: Callable[[], Mapping[str, Any]] = dict
