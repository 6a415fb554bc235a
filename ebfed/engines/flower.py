"""Federation over Flower: clients on machines of their own.

A fit is a roll call, an exchange for each round of the method, and the result. `server_app` and
`client_app` make the two programs that Flower runs, for any estimator of this package; `load_fit`
reads what the server wrote.

What is left to chance by the network is settled here. Nodes are taken in the order of their names,
so that it does not matter who came first. Every exchange ends by a deadline, and the fit with a
refusal if fewer than a quorum answered; a node that missed an exchange is not asked again, and is
told the result all the same. Answers that come late or twice are ignored. A node asked again for a
round sends what it sent before, from its disk: it never draws noise twice for the same question.

The server learns what `Estimator.describe` states, what channels send, and names of nodes; of a
failure it learns the kind, never the text. Rows, estimates and ledgers of clients stay on their
disks. Without seeds clients draw their noise from the operating system (extra ``secure``).
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import importlib.util
import io
import json
import math
import os
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed import wire
from ebfed.engines.base import Cohort
from ebfed.engines.rounds import converse
from ebfed.streams import Stream, make_key

__all__ = ["FlowerCohort", "Node", "client_app", "load_fit", "serve", "server_app"]

ACTION = "ebfed"
# What an answer holds besides the name of the node.
ANSWERS: dict[str, dict[str, type]] = {
    "roll call": {"facts": dict},
    "round": {"message": dict},
    "result": {},
    "failure": {"failure": str},
}
# Seconds between two looks for answers.
POLL = 0.2


def server_app(
    estimator: Any,
    nodes: int | Sequence[str],
    *,
    quorum: float,
    deadline: float,
    out: str | Path,
) -> Any:
    """Make the server's program.

    Parameters
    ----------
    estimator : Estimator
        Constructed as on the clients.
    nodes : int or list of str
        How many nodes are invited at least, or their names; with names, others are not listened to.
    quorum : int or float
        How many of them must answer each exchange, or as a fraction (1.0: all) which share.
    deadline : float
        Seconds that an exchange may take. Asking and answering takes about 5 seconds at best; a
        node that is killed is otherwise found out after a minute.
    out : path
        Gets a folder ``run-…`` for each run, see `serve`.

    Returns
    -------
    flwr.serverapp.ServerApp
    """
    _check_invitation(nodes, quorum, deadline)
    _need_flower()
    from flwr.serverapp import ServerApp

    app = ServerApp()

    @app.main()
    def main(grid: Any, context: Any) -> None:
        folder = Path(out) / f"run-{context.run_id}"
        cohort = FlowerCohort(grid, estimator, nodes, quorum=quorum, deadline=deadline)
        serve(estimator, cohort, folder)

    return app


def client_app(
    estimator: Any,
    load: Callable[[Any], Mapping[str, Any]],
    *,
    directory: str | Path | None = None,
    budget: float = math.inf,
    seed: int | None = None,
) -> Any:
    """Make the program of a node.

    Parameters
    ----------
    estimator : Estimator
        Constructed as on the server. What is fixed here, such as the epsilon of a channel, no
        server can change.
    load : callable
        Given Flower's context, returns the arguments of `fit` as a dict. It is called in every
        exchange. Errors while it runs are reported without their text; while this program is
        imported they are not, so it should read data nowhere else.
    directory : path, optional
        Where the node keeps its own results, ledger and log; ``directory`` of the node-config if
        None. Two nodes on one machine need two.
    budget : float, optional
        Sum of the epsilons of all runs that this node will take part in; a round beyond it is
        refused. Groups that opted out do not count.
    seed : int, optional
        For tests: noise is then that of a fit in one process with this ``random_state``, and
        protects nobody.

    Returns
    -------
    flwr.clientapp.ClientApp
    """
    _need_flower()
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.query(ACTION)
    def answer(message: Any, context: Any) -> Any:
        config = context.node_config
        name = str(config.get("name", config.get("partition-id", context.node_id)))
        own = config.get("directory") if directory is None else directory
        node = Node(name, estimator, lambda: load(context), own, budget=budget, seed=seed)
        return _reply(message, node.answer(message.metadata.run_id, _unpack(message)))

    return app


def serve(estimator: Any, cohort: FlowerCohort, out: Path) -> Any:
    """Hold a fit with a cohort, and write what came of it.

    Parameters
    ----------
    estimator : Estimator
    cohort : FlowerCohort
    out : path
        The folder gets ``fit.ebfed`` for `load_fit`, ``summary.txt``, ``ledger.csv`` of all that
        clients were asked for, whether or not their answers came, and ``participants.csv``: which
        node did what in which exchange. The last is written even if there is no fit.

    Returns
    -------
    Estimator
        A fitted copy, which holds no client's rows.

    Raises
    ------
    RuntimeError
        If fewer than a quorum answered, or two nodes have the same name.
    """
    from sklearn.base import clone

    fitted = clone(estimator)
    try:
        cohort.call_roll()
        state = converse(fitted, cohort)
        fitted.conclude(state)
        saved = fitted.keep(state)
        if hasattr(fitted, "log_likelihood_"):
            saved["log_likelihood"] = fitted.log_likelihood_
        _write(out / "fit.ebfed", wire.pack(saved))
        _write(out / "summary.txt", f"{fitted.summary()}\n".encode())
        _write(out / "ledger.csv", fitted.privacy_.to_csv(index=False).encode())
        cohort.tell(fitted.broadcast(state))
    finally:
        _write(out / "participants.csv", _table(cohort.records))
    print(fitted.summary(), flush=True)
    return fitted


def load_fit(estimator: Any, path: str | Path) -> Any:
    """Read a fit that a server wrote.

    Parameters
    ----------
    estimator : Estimator
        Constructed as on the server.
    path : path
        The file ``fit.ebfed``, or its folder.

    Returns
    -------
    Estimator
        A fitted copy. It estimates groups from rows it is given.
    """
    from sklearn.base import clone

    path = Path(path)
    saved = (path / "fit.ebfed" if path.is_dir() else path).read_bytes()
    return clone(estimator).conclude(wire.unpack(saved))


# The server ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Member:
    """A node that answered the roll call, and the clients it stated."""

    name: str
    id: int
    place: slice
    facts: dict


class FlowerCohort(Cohort):
    """Clients behind a Flower grid.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
    estimator, nodes, quorum, deadline : as in `server_app`

    Attributes
    ----------
    facts : list of dict
        What nodes stated in the roll call, in the order of their names.
    records : list of dict
        What each node did in each exchange.
    """

    def __init__(
        self,
        grid: Any,
        estimator: Any,
        nodes: int | Sequence[str],
        *,
        quorum: float,
        deadline: float,
    ):
        self._estimator = estimator
        self._invited, self._needed = _check_invitation(nodes, quorum, deadline)
        self._names = None if isinstance(nodes, int) else frozenset(nodes)
        self._grid, self._deadline = grid, deadline
        self._members: list[_Member] = []
        self._lost: set[int] = set()
        self.facts = []
        self.records: list[dict[str, Any]] = []

    def call_roll(self) -> None:
        """Ask whoever is there, and whoever comes, until all the invited answered or time is up."""

        def complete(asked: set[int], answers: dict[int, dict]) -> bool:
            if self._names is None:  # if more came than were invited, all are welcome
                return len(answers) >= max(self._invited, len(asked))
            return self._names <= {answer.get("name") for answer in answers.values()}

        asked, answers = self._exchange(
            "roll call",
            lambda: {node: {"exchange": "roll call"} for node in self._grid.get_node_ids()},
            complete,
            lambda _, answer: self._estimator.check_facts(answer["facts"]),
        )
        names = {node: str(answers.get(node, {}).get("name", f"node {node}")) for node in asked}
        if self._names is None:
            silent = {names[node] for node in asked if node not in answers}
            silent |= {f"node never connected ({i + 1})" for i in range(self._invited - len(asked))}
        else:
            strangers = {
                node
                for node, answer in answers.items()
                if "name" in answer and answer["name"] not in self._names
            }
            self._record("roll call", [names[node] for node in strangers], "not invited")
            answers = {node: x for node, x in answers.items() if node not in strangers}
            silent = set(self._names.difference(names[node] for node in answers))
        came = [names[node] for node in answers]
        twice = sorted({name for name in came if came.count(name) > 1})
        good = self._sort_out("roll call", names, answers, silent)
        if twice:
            raise RuntimeError(f"two nodes have the same name: {', '.join(map(repr, twice))}.")
        self._check_quorum("roll call", len(good))
        ordered = sorted(good, key=names.__getitem__)
        edges = np.cumsum([0, *(len(good[node]["facts"]["n"]) for node in ordered)]).tolist()
        self._members = [
            _Member(names[node], node, slice(first, last), good[node]["facts"])
            for node, first, last in zip(ordered, edges, edges[1:], strict=False)
        ]
        self.facts = [good[node]["facts"] for node in ordered]

    def ask(self, sent: dict, round_: int, turn: NDArray[np.int8]) -> list[dict]:
        """Ask every node that has missed nothing so far."""
        requests = {
            node.id: {
                "exchange": "round",
                "sent": sent,
                "turn": turn[node.place],
                "first": node.place.start,
            }
            for node in self._present()
        }
        members = {node.id: node for node in self._members}

        def check(node: int, answer: dict) -> None:
            member = members[node]
            self._estimator.check_message(answer["message"], member.facts, sent, turn[member.place])

        good = self._hold(f"round {round_ + 1}", requests, requests.keys(), check)
        self._check_quorum(f"round {round_ + 1}", len(good))
        return [good[node.id]["message"] for node in self._members if node.id in good]

    def tell(self, sent: dict) -> None:
        """Send the result to all, and wait for those that have missed nothing."""
        requests = {
            node.id: {"exchange": "result", "sent": sent, "used": node.id not in self._lost}
            for node in self._members
        }
        self._hold("result", requests, {node.id for node in self._present()})

    def _present(self) -> list[_Member]:
        return [node for node in self._members if node.id not in self._lost]

    def _hold(
        self,
        title: str,
        requests: dict[int, dict],
        awaited: Iterable[int],
        check: Callable[[int, dict], None] = lambda node, answer: None,
    ) -> dict:
        awaited = set(awaited)
        names = {node.id: node.name for node in self._members}
        _, answers = self._exchange(
            title, lambda: requests, lambda _, answers: awaited <= answers.keys(), check
        )
        silent = [names[node] for node in requests if node not in answers]
        good = self._sort_out(title, names, answers, silent)
        self._lost |= requests.keys() - good.keys()
        return good

    def _exchange(
        self,
        title: str,
        requests: Callable[[], Mapping[int, dict]],
        complete: Callable[[set[int], dict[int, dict]], bool],
        check: Callable[[int, dict], None],
    ) -> tuple[set[int], dict[int, dict]]:
        """Send requests, and collect answers until they are complete or time is up."""
        asked: set[int] = set()
        pending: dict[str, tuple[int, str]] = {}
        answers: dict[int, dict] = {}
        end = time.monotonic() + self._deadline
        while True:
            for node, request in requests().items():
                if node not in asked:
                    asked.add(node)
                    # one by one, for an error names only the question it answers
                    for message in self._grid.push_messages([_request(node, title, request)]):
                        pending[message] = node, request["exchange"]
            for reply in self._grid.pull_messages(list(pending)) if pending else ():
                # the answer to no question that is open came late, or came before
                if question := pending.pop(reply.metadata.reply_to_message_id, None):
                    answers[question[0]] = _read(reply, *question, check)
            if complete(asked, answers) or time.monotonic() >= end:
                return asked, answers
            time.sleep(POLL)

    def _sort_out(
        self, title: str, names: Mapping[int, str], answers: dict[int, dict], silent: Iterable[str]
    ) -> dict[int, dict]:
        """Record who did what; returns the good answers."""
        good = {node: answer for node, answer in answers.items() if "failure" not in answer}
        self._record(title, [names[node] for node in good], "answered")
        for node, answer in answers.items():
            if node not in good:
                self._record(title, [names[node]], "failed", answer["failure"])
        self._record(title, silent, "silent")
        others = [row for row in self.records if row["exchange"] == title]
        others = [row for row in others if row["status"] != "answered"]
        print(
            f"{title}: {len(good)} of {self._invited} nodes answered", *map(_line, others), sep="; "
        )
        return good

    def _record(self, title: str, names: Iterable[str], status: str, detail: str = "") -> None:
        for name in sorted(names):
            row = {"exchange": title, "node": name, "status": status, "detail": detail}
            self.records.append(row)

    def _check_quorum(self, title: str, count: int) -> None:
        if count < self._needed:
            rows = [row for row in self.records if row["exchange"] == title]
            missing = "; ".join(_line(row) for row in rows if row["status"] != "answered")
            lost = sorted(node.name for node in self._members if node.id in self._lost)
            missing = missing or f"missing since earlier: {', '.join(lost)}"
            raise RuntimeError(
                f"{title}: {count} of {self._invited} nodes answered, {self._needed} are needed "
                f"({missing}). Nothing was estimated."
            )


def _line(row: Mapping[str, str]) -> str:
    return f"{row['node']} {row['status']}" + f" ({row['detail']})" * bool(row["detail"])


def _check_invitation(
    nodes: int | Sequence[str], quorum: float, deadline: float
) -> tuple[int, int]:
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


# A node ----------------------------------------------------------------------------------------


class Node:
    """What a node does with a request, whoever carries it.

    Parameters
    ----------
    name : str
    estimator : Estimator
    load : callable
        Returns the arguments of `fit`.
    directory : path
    budget : float
    seed : int or None
    """

    def __init__(
        self,
        name: str,
        estimator: Any,
        load: Callable[[], Mapping[str, Any]],
        directory: str | Path | None,
        *,
        budget: float = math.inf,
        seed: int | None = None,
    ):
        self._name, self._estimator, self._load = name, estimator, load
        self._budget, self._seed = budget, seed
        self._directory = None if directory is None else Path(directory)

    def answer(self, run: int, request: dict) -> dict:
        """Answer a request of a run; a failure is answered by its kind, and logged at home."""
        try:
            return {"name": self._name, **self._answer(run, request)}
        except Exception as error:
            with contextlib.suppress(Exception):
                self._append("errors.log", f"{_now()} run {run}\n{traceback.format_exc()}\n")
            kind = type(error).__name__
            return {"name": self._name, "failure": f"{kind}; the node's own errors.log says more"}

    def _answer(self, run: int, request: dict) -> dict:
        from sklearn.base import clone

        if self._directory is None:
            raise ValueError(
                "directory must be given to client_app, or in the node-config; got None."
            )
        folder = self._directory / f"run-{int(run)}"
        estimator = clone(self._estimator)
        clients, memory = estimator.prepare(**self._load())
        facts = estimator.describe(clients, memory)
        with _alone(self._directory):
            _compare(folder / "clients", clients, facts)
            if request["exchange"] == "roll call":
                return {"facts": facts}
            nobody = np.full(len(clients), -1, np.int8)
            memory |= {"turn": nobody} | _remembered(folder)
            if request["exchange"] == "round":
                return {"message": self._report(run, request, estimator, clients, memory, folder)}
            if not request["used"]:  # what was sent came too late to be in the result
                memory |= {"turn": nobody}
            self._finish(estimator, request["sent"], memory, clients, folder)
            return {}

    def _report(
        self, run: int, request: dict, estimator: Any, clients: Any, memory: dict, folder: Path
    ) -> dict:
        """Return the message of a round: what was sent before, or one that is entered first."""
        sent, turn = request["sent"], request["turn"]
        round_ = sent["round"]
        if type(round_) is not int or not 0 <= round_ < 2**31:
            raise ValueError(f"a round is a number from 0 on; got {type(round_).__name__}.")
        if turn.dtype != np.int8 or turn.shape != (len(clients),):
            raise ValueError(f"turn must be one int8 for each of {len(clients)} groups.")
        kept = folder / f"round-{round_}.ebfed"
        if kept.exists():
            return wire.unpack(kept.read_bytes())["message"]
        once = not estimator.answers_every_round
        if once and list(folder.glob("round-*.ebfed")):  # its turn is what it was told first
            turn = memory["turn"]
        rng: Any = "secure"
        if self._seed is not None:
            rng = Stream(make_key(self._seed), round_, request["first"])
        message, memory = estimator.local(sent, memory | {"turn": turn}, clients, rng)
        rows = estimator.releases(sent, memory, clients)
        self._enter(run, round_, rows, estimator.answers_every_round)
        _write(kept, wire.pack({"message": message, "memory": memory}))
        return message

    def _finish(self, estimator: Any, sent: dict, memory: dict, clients: Any, folder: Path) -> None:
        """Write the estimates of this node's groups; they are for its owner."""
        fitted = estimator.finish(sent, memory, clients)
        table = fitted.estimates("pandas").to_csv(index=False)
        _write(folder / "estimate.csv", table.encode())
        _write(folder / "summary.txt", f"{fitted.summary()}\n".encode())

    def _enter(self, run: int, round_: int, rows: list[dict[str, Any]], every_round: bool) -> None:
        """Write in the ledger what is about to be sent, if the budget allows it.

        First the ledger, then the disk, then the wire: what was sent is in the ledger for sure.
        """
        assert self._directory is not None
        path = self._directory / "ledger.jsonl"
        before = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        # Where each group answers once in a run, the largest epsilon is what it cost anyone; where
        # it answers in every round, rounds add up.
        cost: dict[tuple, float] = {}
        new = {"run": str(run), "round": round_, "every_round": every_round}
        for row in [*map(json.loads, before), *(new | row for row in rows)]:
            if row["epsilon"] is not None and row["epsilon"] < math.inf:
                answer = row["run"], row["round"] if row["every_round"] else None
                cost[answer] = max(cost.get(answer, 0.0), row["epsilon"])
        if sum(cost.values()) > self._budget:
            raise ValueError(f"epsilon {sum(cost.values()):g} would exceed budget {self._budget:g}")
        for row in rows:
            plain = {
                name: None if isinstance(x, float) and not math.isfinite(x) else x
                for name, x in row.items()
            }
            entry = {"time": _now()} | new | plain
            self._append(path.name, json.dumps(entry) + "\n")

    def _append(self, name: str, text: str) -> None:
        assert self._directory is not None
        self._directory.mkdir(parents=True, exist_ok=True)
        with open(self._directory / name, "a", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())


@contextlib.contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Let one process of a node work at a time, so that nothing is drawn twice."""
    import fcntl

    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed, however that comes about
        yield


def _compare(path: Path, clients: Any, facts: dict) -> None:
    """Refuse groups, numbers of rows or choices that are not those of the run's first exchange."""
    names = [str(each) for each in clients.ids.tolist()]
    digest = hashlib.sha256(wire.pack([names, facts])).hexdigest().encode()
    if not path.exists():
        _write(path, digest)
    elif path.read_bytes() != digest:
        raise ValueError("groups, numbers of rows or consent have changed since the roll call.")


def _remembered(folder: Path) -> dict[str, NDArray]:
    """Return what clients keep since the last round they answered."""
    rounds = [int(path.stem.removeprefix("round-")) for path in folder.glob("round-*.ebfed")]
    if not rounds:
        return {}
    return wire.unpack((folder / f"round-{max(rounds)}.ebfed").read_bytes())["memory"]


# What is said to Flower ------------------------------------------------------------------------


def _need_flower() -> None:
    if importlib.util.find_spec("flwr") is None:
        raise ImportError('federation needs Flower: pip install "ebfed[flower]"')


def _pack(content: dict) -> Any:
    from flwr.app import ConfigRecord, RecordDict

    return RecordDict({ACTION: ConfigRecord({"packed": wire.pack(content)})})


def _unpack(message: Any) -> dict:
    content = wire.unpack(message.content[ACTION]["packed"])
    if not isinstance(content, dict):
        raise ValueError(f"a message must hold a dict; got a {type(content).__name__}.")
    return content


def _request(node: int, title: str, request: dict) -> Any:
    from flwr.app import Message

    return Message(_pack(request), node, f"query.{ACTION}", group_id=title)


def _reply(message: Any, answer: dict) -> Any:
    from flwr.app import Message

    return Message(_pack(answer), reply_to=message)


def _read(reply: Any, node: int, exchange: str, check: Callable[[int, dict], None]) -> dict:
    """Return an answer; what Flower says of a failure is not repeated, for it may quote data."""
    if reply.has_error():
        return {"failure": f"Flower's error code {reply.error.code}"}
    try:
        answer = _unpack(reply)
    except Exception:  # whatever a stranger's bytes may do to a reader
        return {"failure": "an answer that cannot be read"}
    wanted = {"name": str} | ANSWERS["failure" if "failure" in answer else exchange]
    if not all(isinstance(answer.get(part), kind) for part, kind in wanted.items()):
        return {"failure": "an answer to something else"}
    if "failure" not in answer:
        try:
            check(node, answer)
        except Exception:  # the same: what it says may not even have the right types
            return {"name": answer["name"], "failure": "an answer that does not fit the question"}
    return answer


# Files -----------------------------------------------------------------------------------------


def _write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")
    with open(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def _table(rows: list[dict[str, Any]]) -> bytes:
    text = io.StringIO()
    table = csv.DictWriter(text, ["exchange", "node", "status", "detail"], lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return text.getvalue().encode()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
