"""A node: how it answers a request, without any network."""

from __future__ import annotations

import contextlib
import hashlib
import math
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed import wire
from ebfed.engines import journal
from ebfed.engines.flower.files import now, write
from ebfed.streams import Stream, make_key

__all__ = ["Node"]


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
    budget : float
        Largest sum of the epsilons of all runs.
    seed : int or None
        Seed of the noise; None: noise of the operating system.
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
        """Answer a request of a run; of a failure, only the kind is sent, and the text logged."""
        try:
            return {"name": self._name, **self._answer(run, request)}
        except Exception as error:
            with contextlib.suppress(Exception):
                self._log_error(f"{now()} run {run}\n{traceback.format_exc()}\n")
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
            if not request["used"]:  # the message was too late for the result
                memory |= {"turn": nobody}
            self._finish(estimator, request["sent"], memory, clients, folder)
            return {}

    def _report(
        self, run: int, request: dict, estimator: Any, clients: Any, memory: dict, folder: Path
    ) -> dict:
        """Return the message of a round: the stored one, or a new one that is in the ledger."""
        sent, turn = request["sent"], request["turn"]
        round_ = sent["round"]
        if type(round_) is not int or not 0 <= round_ < 2**31:
            raise ValueError(f"round must be an integer from 0 on; got a {type(round_).__name__}.")
        if turn.dtype != np.int8 or turn.shape != (len(clients),):
            raise ValueError(f"turn must be one int8 for each of {len(clients)} groups.")
        kept = folder / f"round-{round_}.ebfed"
        if kept.exists():
            return wire.unpack(kept.read_bytes())["message"]
        once = not estimator.answers_every_round
        if once and list(folder.glob("round-*.ebfed")):  # its turn is that of its first round
            turn = memory["turn"]
        rng: Any = "secure"
        if self._seed is not None:
            rng = Stream(make_key(self._seed), round_, request["first"])
        message, memory = estimator.local(sent, memory | {"turn": turn}, clients, rng)
        rows = estimator.releases(sent, memory, clients)
        self._enter(run, round_, rows, estimator.answers_every_round)
        write(kept, wire.pack({"message": message, "memory": memory}))
        return message

    def _finish(self, estimator: Any, sent: dict, memory: dict, clients: Any, folder: Path) -> None:
        """Write the estimates of this node's groups for its owner."""
        fitted = estimator.finish(sent, memory, clients)
        table = fitted.estimates("pandas").to_csv(index=False)
        write(folder / "estimate.csv", table.encode())
        write(folder / "summary.txt", f"{fitted.summary()}\n".encode())

    def _enter(self, run: int, round_: int, rows: list[dict[str, Any]], every_round: bool) -> None:
        """Enter a message in the ledger before it is sent, if the budget allows it.

        The order is ledger, disk, network, so that the ledger lists every message that was sent.
        """
        assert self._directory is not None
        path = self._directory / "ledger.jsonl"
        # A group that answers once in a run pays at most the largest epsilon of the rounds; a group
        # that answers in every round pays their sum.
        cost: dict[tuple, float] = {}
        new = {"run": str(run), "round": round_, "every_round": every_round}
        for row in [*journal.read(path), *(new | row for row in rows)]:
            if row["epsilon"] is not None and row["epsilon"] < math.inf:
                answer = row["run"], row["round"] if row["every_round"] else None
                cost[answer] = max(cost.get(answer, 0.0), row["epsilon"])
        if sum(cost.values()) > self._budget:
            raise ValueError(f"epsilon {sum(cost.values()):g} would exceed budget {self._budget:g}")
        journal.append(path, [{"time": now()} | new | _plain(row) for row in rows])

    def _log_error(self, text: str) -> None:
        assert self._directory is not None
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._directory / "errors.log"
        path.touch(mode=0o600)
        with open(path, "a", encoding="utf-8") as file:
            file.write(text)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Replace numbers that JSON does not have by None."""
    return {
        name: None if isinstance(x, float) and not math.isfinite(x) else x
        for name, x in row.items()
    }


@contextlib.contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Let one process of a node work at a time, so that no noise is drawn twice."""
    import fcntl

    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed
        yield


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
    rounds = [int(path.stem.removeprefix("round-")) for path in folder.glob("round-*.ebfed")]
    if not rounds:
        return {}
    return wire.unpack((folder / f"round-{max(rounds)}.ebfed").read_bytes())["memory"]
