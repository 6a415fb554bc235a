"""The server's program, which Flower runs, and the files of a fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ebfed import wire
from ebfed.engines.flower.cohort import FlowerCohort, check_invitation
from ebfed.engines.flower.files import alone, table_of, write
from ebfed.engines.flower.messages import need_flower
from ebfed.engines.flower.node import plan_of_run
from ebfed.engines.matching import UNMATCHED
from ebfed.engines.robust import check_max_shift
from ebfed.engines.rounds import converse

__all__ = ["load_fit", "serve", "server_app"]

EXCHANGES = ["exchange", "node", "status", "detail", "shift"]
FIT = "fit.ebfed"
# What an interrupted fit goes on from.
STATE, SUMS = "state.ebfed", "sums.ebfed"
WITHOUT = "The fit is without answers of these nodes, which missed a round or were left out: {}."


def server_app(
    estimator: Any,
    nodes: int | Sequence[str],
    *,
    rows: Mapping[str, Any],
    quorum: float,
    deadline: float,
    out: str | Path,
    max_shift: float | None = None,
) -> Any:
    """Make the server's program.

    Nodes receive a plan: the name of the estimator, its arguments, and names of columns. They check
    it by their own rules, and execute nothing else (`ebfed node`).

    Parameters
    ----------
    estimator : Estimator
        Estimator of ebfed, whose arguments are data or objects of ebfed.
    nodes : int or list of str
        Least number of nodes, or their names; with names, other nodes are ignored.
    rows : dict
        Columns of the nodes' tables by argument of `fit`, such as ``{"X": ["age"], "y": "score",
        "groups": "ward"}``; also ``consent``, ``exposure``, ``observed`` and ``sample_weight``.
    quorum : int or float
        Number of nodes that must answer each exchange, or as a float their share (1.0: all).
    deadline : float
        Seconds that an exchange may take, to compute and to send. Nodes that have not answered by
        then are left out. Time in which the SuperLink does not answer is not counted.
    out : path
        Folder of the results, with a folder ``run-…`` for each run, see `serve`.
    max_shift : float, optional
        How far a node may move the population, in standard errors of the fit without it. A node
        that moves it further is left out by name, and named in ``participants.csv``; if fewer nodes
        than the quorum are left, or no more than half of those that answered, nothing is estimated.
        None: shifts are shown, and have no limit.

    Returns
    -------
    flwr.serverapp.ServerApp
    """
    check_invitation(nodes, quorum, deadline)
    check_max_shift(max_shift)
    plan = plan_of_run(estimator, rows)
    need_flower()
    from flwr.serverapp import ServerApp

    app = ServerApp()

    @app.main()
    def main(grid: Any, context: Any) -> None:
        begun = unfinished(Path(out), plan)
        fit = context.run_id % 2**63 if begun is None else begun
        folder = Path(out) / f"run-{fit}"
        terms: dict[str, Any] = {"plan": plan, "quorum": quorum, "deadline": deadline}
        terms["max_shift"] = max_shift
        with alone(folder):  # one that is under way in another run of Flower is waited for
            if (folder / FIT).exists() and not (folder / STATE).exists():
                print((folder / "summary.txt").read_text(encoding="utf-8"), flush=True)
                return
            serve(estimator, FlowerCohort(grid, estimator, nodes, fit=fit, **terms), folder)

    return app


def unfinished(out: Path, plan: Mapping[str, Any]) -> int | None:
    """Return the number of the last fit of this plan, if it did not end."""
    states = sorted(out.glob(f"run-*/{STATE}"), key=lambda path: path.stat().st_mtime)
    for path in reversed(states):
        if wire.unpack(path.read_bytes())["plan"] == wire.unpack(wire.pack(dict(plan))):
            return int(path.parent.name.removeprefix("run-"))
    return None


def reached(out: Path) -> int | None:
    """Return the rounds of an unfinished fit, None if there is none."""
    path = out / STATE
    return wire.unpack(path.read_bytes())["state"]["round"] if path.exists() else None


def forget(out: Path) -> None:
    """Delete what a fit goes on from."""
    for name in (SUMS, STATE):
        (out / name).unlink(missing_ok=True)


def serve(estimator: Any, cohort: FlowerCohort, out: Path) -> Any:
    """Run a fit with a cohort, and write its files; go on with one that was interrupted.

    Parameters
    ----------
    estimator : Estimator
    cohort : FlowerCohort
    out : path
        Folder of the files: ``fit.ebfed`` for `load_fit`, ``summary.txt``, ``ledger.csv`` of all
        that clients were asked for, whether or not they answered, ``participants.csv``, the status
        of each node in each exchange and its shift (see `server_app`), and ``exchanges.jsonl``, a
        line of JSON for each exchange: seconds, bytes, and which nodes answered. The last two are
        written even if the fit fails. Shifts are as private as the messages.
        Until the fit ends, ``state.ebfed`` has what it goes on from, with the key of the server's
        noise: it is as private as the messages. A fit that ends with an error in its first round
        does not go on.

    Returns
    -------
    Estimator
        A fitted copy, which holds no client's rows.

    Raises
    ------
    RuntimeError
        If fewer than a quorum answered or are left.
    ValueError
        If nodes state different columns and most do not agree, or the fit is not finite.
    """
    from sklearn.base import clone

    protocol = clone(estimator).protocol()
    cohort.log, cohort.sums = out / "exchanges.jsonl", out / SUMS
    kept = wire.unpack((out / STATE).read_bytes()) if (out / STATE).exists() else None
    roll, state = (None, None) if kept is None else (kept["roll"], kept["state"])
    if kept is not None:
        cohort.recall()
        cohort.lost, cohort.shifts = set(kept["lost"]), kept["shifts"]
        cohort.received, cohort.used = kept["received"], kept["used"]

    def keep(found: Any, _: Any) -> None:
        more = {"roll": cohort.roll, "lost": sorted(cohort.lost), "used": cohort.used}
        more |= {"shifts": cohort.shifts, "received": [] if found["done"] else cohort.received}
        write(out / STATE, wire.pack({"plan": cohort.plan, "state": found} | more))
        history = found.get("history")
        if isinstance(history, list) and history and "loss" in history[-1]:
            print(f"round {found['round']}: loss {history[-1]['loss']:.6g}", flush=True)
        if most := cohort.most_moving(f"round {found['round']}"):
            print(most, flush=True)

    def begin(found: Any, _: Any) -> Any:
        if not (out / STATE).exists():  # or nodes are charged for the first round again
            keep(found, _)
        return found

    try:
        cohort.call_roll(roll)
        matched = cohort.matched
        state = converse(protocol, matched or cohort, state=state, before=begin, after=keep)
        fitted, sent = protocol.conclude(state), protocol.broadcast(state)
        saved = protocol.keep(state)
        if matched is None and len(cohort.facts) > 1:
            fitted._remarks = (UNMATCHED,)
        if "n_rows" in sent and matched is None:  # a learner may have other clients in each round
            names, gone = cohort.without(state)
            if names:
                fitted._remarks += (WITHOUT.format(", ".join(names)),)
            if gone.any():
                fitted._totals = int((~gone).sum()), int(state["n"][~gone].sum())
                sent = sent | {"n_rows": fitted._totals[1]}
        saved |= {"remarks": fitted._remarks, "totals": fitted._totals}
        if hasattr(fitted, "log_likelihood_"):
            saved["log_likelihood"] = fitted.log_likelihood_
        write(out / FIT, wire.pack(saved))
        write(out / "summary.txt", f"{fitted.summary()}\n".encode())
        write(out / "ledger.csv", table_of(fitted.privacy_))
        cohort.tell(sent, matched)
    except Exception:
        if reached(out) == 0:  # there is nothing to go on from
            forget(out)
        raise
    finally:
        write(out / "participants.csv", table_of(cohort.records, EXCHANGES))
    forget(out)
    print(fitted.summary(), flush=True)
    return fitted


def load_fit(estimator: Any, path: str | Path) -> Any:
    """Read a fit that a server wrote.

    Parameters
    ----------
    estimator : Estimator
        Estimator with the same arguments as on the server.
    path : path
        The file ``fit.ebfed``, or its folder.

    Returns
    -------
    Estimator
        A fitted copy, which estimates groups from given rows.
    """
    from sklearn.base import clone

    path = Path(path)
    saved = wire.unpack((path / FIT if path.is_dir() else path).read_bytes())
    remarks, totals = saved.pop("remarks"), saved.pop("totals")
    fitted = clone(estimator).protocol().conclude(saved)
    fitted._remarks, fitted._totals = remarks, totals
    return fitted
