"""The account of a node: what its ledger says was spent, and what a run would cost."""

from __future__ import annotations

import math
import runpy
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from ebfed.engines import journal
from ebfed.engines.flower.gate import Gate, odometer_of
from ebfed.engines.flower.node import LEDGER
from ebfed.engines.flower.rules import FILE, Rules
from ebfed.privacy import events, gaussian_sigma
from ebfed.privacy.odometer import Charge, Plan, compose
from ebfed.streams import make_key

__all__ = ["Account", "plan_of"]


class Account:
    """Rules and ledger of a node.

    Parameters
    ----------
    directory : path
        The node's own directory.

    Attributes
    ----------
    rules : Rules
    entries : list of dict
        The ledger.
    spent : dict of floats
        Epsilon of each person who was charged, at the delta of the rules.
    """

    def __init__(self, directory: Path):
        self.rules = Rules.read(directory / FILE)
        self.entries = journal.read(directory / LEDGER, repair=False)
        self._odometer = odometer_of(self.entries)
        self.spent = self._odometer.spent(self.rules.delta)

    @property
    def most(self) -> float:
        """Epsilon of the person who has spent most."""
        return max(self.spent.values(), default=0.0)

    @property
    def runs(self) -> list[dict[str, Any]]:
        """What each run was allowed to take of each class of groups, and how far it went."""
        rows = []
        for plan in self.entries:
            if plan["kind"] != "plan":
                continue
            answered = {
                row["round"]
                for row in self.entries
                if row["kind"] == "release" and row["run"] == plan["run"]
            }
            rows.append(
                {
                    "run": plan["run"],
                    "time": plan["time"],
                    "method": plan["method"],
                    "who": plan["who"],
                    "groups": len(plan["groups"]),
                    "rounds": f"{len(answered)} of {plan['rounds'] or 'any'}",
                    "epsilon": math.inf if plan["epsilon"] is None else plan["epsilon"],
                    "delta": plan["delta"],
                }
            )
        return rows

    def left(self) -> float:
        """Return the largest epsilon of one more run by everybody, with Gaussian noise.

        To a tenth of a per cent of the budget, rounded down.
        """
        budget, delta = self.rules.epsilon, self.rules.delta
        if not math.isfinite(budget) or self.most >= budget:
            return max(budget - self.most, 0.0)
        worst = max(self.spent, key=self.spent.__getitem__, default="")
        charges = self._odometer.charges_of(worst)
        low, high = 0.0, budget
        while high - low > 1e-3 * budget:
            middle = (low + high) / 2
            run = events.gaussian(gaussian_sigma(middle, delta, 2.0))
            total = compose([*charges, Charge(run, "replace_one", middle, delta)], delta)
            low, high = (middle, high) if total <= budget else (low, middle)
        return low


def plan_of(app: Path, directory: Path, rules: Rules) -> tuple[Gate, list[Plan]]:
    """Return the gate of the groups of this node, and what a run of a project may take.

    The number of all clients, on which samples of a fixed size depend, is taken to be that of this
    node.

    Parameters
    ----------
    app : path
        Folder of a project, whose ``model.py`` defines `estimator` and `rows`.
    directory : path
        Folder of the node.
    rules : Rules
        Of the node.

    Raises
    ------
    ValueError
        If the project has no model, or the rules do not say where the rows are.
    """
    if not (app / "model.py").exists():
        raise ValueError(f"{app} holds no model.py.")
    if rules.rows is None:
        raise ValueError(f"{directory / FILE} must say where the rows are, in a table [rows].")
    model = runpy.run_path(str(app / "model.py"))
    protocol = clone(model["estimator"]).protocol()
    rows = rules.rows.read(directory, model["rows"], budget=rules.is_finite)
    clients, memory = protocol.prepare(**rows.arguments)
    gate = Gate.of(rules, protocol, clients, memory, rows)
    server = clone(protocol.estimator).protocol()
    state = server.start(protocol.describe(clients, memory), make_key(0))
    memory = memory | {"turn": np.zeros(len(clients), np.int8)}
    return gate, protocol.plan(server.broadcast(state), memory, clients)
