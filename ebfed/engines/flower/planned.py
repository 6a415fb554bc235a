"""Nodes that take a plan from the network: a method by its name, and data; never code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ebfed import wire
from ebfed.engines import portable
from ebfed.engines.flower.files import write
from ebfed.engines.flower.limits import check_counts
from ebfed.engines.flower.node import Node
from ebfed.engines.flower.rows import TableRows, check_rows
from ebfed.engines.flower.rules import Rules

__all__ = ["PlannedNode", "plan_of_run"]

# Arguments that belong to the server's process.
OF_THE_SERVER = ("checkpoint", "random_state", "verbose", "warm_start")


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


_none: Callable[[], Mapping[str, Any]] = dict
