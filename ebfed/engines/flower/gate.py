"""The gate of a node: what its owner's rules let a run take, whoever plans it or asks.

The adversary is the server and its plan, unless the owner says ``against = "readers"``. A plan
chooses among the roles that the owner's table gives to columns; which persons rows are of, who
agreed to exact figures, and what may be stated as a fact are the owner's. What a run may take is in
the ledger before anything is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ebfed.engines.flower.rows import TableRows
from ebfed.engines.flower.rules import Rules
from ebfed.privacy.odometer import Charge, Odometer, Plan

__all__ = ["Gate", "odometer_of"]

# What a plan without a table of the owner calls those who agreed to exact figures: there the plan
# is the owner's own.
OPEN = "open"
# Account of rows, where each is of another person.
EACH_ROW = "each row"


@dataclass(frozen=True)
class Gate:
    """What may leave of the groups of a node.

    Parameters
    ----------
    rules : Rules
    method : str
        Name of the estimator.
    labels : list of str
        Of the groups.
    people : list of ndarray of str, "row" or None
        Whom each group has rows of. "row": each row is of another person; None: each group is one.
    rows : ndarray of shape (n_groups,)
        How many rows, or persons, each figure of a group is of at least: see
        `Estimator.rows_shown`; of weighted rows the effective number, (sum w)² / sum w².
    exact : bool ndarray of shape (n_groups,)
        Whether figures of a group have no guarantee.
    opened : bool ndarray of shape (n_groups,), or None
        Who agreed to exact figures; None: the class "open" of the plan.
    """

    rules: Rules
    method: str
    labels: list[str]
    people: list[NDArray] | Literal["row"] | None
    rows: NDArray[np.float64]
    exact: NDArray[np.bool_]
    opened: NDArray[np.bool_] | None

    @classmethod
    def of(cls, rules: Rules, protocol: Any, clients: Any, memory: Any, read: TableRows) -> Self:
        """Make the gate of groups, of rows as they were read."""
        labels = np.asarray(clients.ids).astype(str).tolist()
        named = np.asarray(read.arguments["groups"]).astype(str).astype(object)
        group = pd.Index(labels, dtype=object).get_indexer(named)
        read_here, group = group >= 0, group[group >= 0]
        if others := np.sum(np.bincount(group, minlength=len(labels)) == 0):
            raise ValueError(f"{others} labels of groups are not found among those of rows.")
        method = type(protocol.estimator).__name__
        rows, exact = protocol.rows_shown(clients, memory)
        if "exposure" in read.arguments and rules.rows is not None and not rules.rows.exposure:
            exact = np.ones(len(labels), bool)  # no owner said that exposures are public
        people, opened, person = read.people, None, np.arange(len(group))
        if (persons := read.persons) is not None:
            names, person = np.unique(persons[read_here], return_inverse=True)
        pairs, pair = np.unique(group * (len(group) + 1) + person, return_inverse=True)
        of_pair, who = np.divmod(pairs, len(group) + 1)
        if persons is not None:
            cuts = np.searchsorted(of_pair, np.arange(1, len(labels)))
            people = np.split(names[who], cuts)
            counts = np.split(np.bincount(pair), cuts)
            rows = np.array([_fewest(*each) for each in zip(counts, rows, strict=True)])
        if "sample_weight" in read.arguments:
            given = np.asarray(read.arguments["sample_weight"], float)[read_here]
            w = np.bincount(pair, given)
            with np.errstate(divide="ignore", invalid="ignore"):
                effective = np.bincount(of_pair, w) ** 2 / np.bincount(of_pair, w**2)
            rows = np.minimum(rows, np.nan_to_num(effective))
        if read.opened is not None:
            agreed = np.broadcast_to(np.asarray(read.opened, bool), read_here.shape)
            opened = np.bincount(group, ~agreed[read_here]) == 0
        return cls(rules, method, labels, people, rows, exact, opened)

    def take(self, chosen: NDArray[np.bool_]) -> Self:
        """Return the gate of some groups."""
        where = np.flatnonzero(chosen)
        people = self.people
        people = [people[i] for i in where] if isinstance(people, list) else people
        return replace(
            self,
            labels=[self.labels[i] for i in where],
            people=people,
            rows=self.rows[chosen],
            exact=self.exact[chosen],
            opened=None if self.opened is None else self.opened[chosen],
        )

    def sends(self, n: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether each group may send something.

        Parameters
        ----------
        n : ndarray of shape (n_groups,)
            Numbers of rows.

        Raises
        ------
        ValueError
            If none may.
        """
        least = self.rules.min_group_size
        # without a budget, the plan of a server may choose noise that hides nothing
        trusted = self.rules.rows is None or self.rules.against == "readers"
        hidden = ~self.exact & (self.rules.is_finite or trusted)
        may = (n == 0) | hidden | (self.rows >= least)
        if not may.any():
            what = "persons" if isinstance(self.people, list) else "rows"
            raise ValueError(
                f"no group has min_group_size={least} {what}, and figures of fewer than "
                f"min_group_size={least} are sent only with a guarantee, within a budget."
            )
        if self.opened is not None:  # before anything is stated of them
            self._check_agreed("groups", may & self.exact, self.opened)
        return may

    def _check_agreed(
        self, who: str, members: NDArray[np.bool_], agreed: NDArray[np.bool_]
    ) -> None:
        """Refuse exact figures of these groups, within a budget, unless they agreed to them."""
        if self.rules.is_finite and not agreed[members].all():
            raise ValueError(
                f"{who}: {self.method} would send figures without a guarantee, which only "
                "groups may send whose rows all agreed to it, within a budget: see consent of "
                "[rows] in node.toml."
            )

    def check_facts(self, facts: Mapping[str, Any], rows: Mapping[str, Any], fit: Any) -> None:
        """Refuse to state labels of classes that few rows have, or any within a budget.

        The owner's table may say that they are public. An estimator with classes and no response
        has them of `X`, if that is one column.
        """
        role = "y" if "classes" in facts else "X"
        labels, table = np.atleast_1d(np.asarray(rows.get(role))), self.rules.rows
        of_columns = role == "X" and labels.size > len(labels)
        if table is None or of_columns or not hasattr(fit, "classes_"):
            return
        public = {_text(each) for each in table.classes or ()}
        counts = pd.Series([_text(each) for each in labels.ravel().tolist()]).value_counts()
        least = math.inf if self.rules.is_finite else self.rules.min_group_size
        stated = facts["classes"].tolist() if role == "y" else labels.ravel().tolist()
        stated = {_text(each) for each in stated} - public
        if few := [each for each in stated if 0 < counts.get(each, 0) < least]:
            raise ValueError(
                f"{len(few)} classes of {role} would be stated that are not among classes of "
                "[rows] in node.toml."
            )

    def check_plans(self, plans: Sequence[Plan]) -> None:
        """Refuse plans that are against the rules, whatever was spent before."""
        rules, method = self.rules, self.method
        rules.check_method(method)
        for plan in plans:
            if math.isfinite(plan.epsilon):
                rules.check_plan(method, plan)
                few = self.rows[plan.members] < rules.min_group_size
                if plan.trusts_server and rules.against == "server" and few.any():
                    raise ValueError(
                        f"{plan.who}: the guarantee of {method} trusts the server, which would see "
                        f"figures of fewer than min_group_size={rules.min_group_size} persons, and "
                        'is not trusted unless against = "readers".'
                    )
                people = self._people(np.flatnonzero(plan.members))
                if rules.is_finite and plan.of_sum and len(set(people)) < len(people):
                    raise ValueError(
                        f"{plan.who}: the noise of {method} is in a sum over groups, for one group "
                        "of each person; some persons are in several."
                    )
                continue
            if not self.exact[plan.members].all():
                raise ValueError(f"{plan.who}: {method} does not say that it sends exact figures.")
            agreed = self.opened
            if agreed is None:
                agreed = np.full(len(self.labels), plan.who == OPEN)
            self._check_agreed(plan.who, plan.members, agreed)

    def charged(self, plans: Sequence[Plan], round_: int) -> list[dict[str, Any]]:
        """Return the rows of the ledger for the plans of a run, in which this round must be.

        A release of a group is charged to every person in it.
        """
        rows: list[dict[str, Any]] = []
        for plan in plans:
            if plan.rounds is not None and round_ >= plan.rounds:
                raise ValueError(f"round {round_ + 1} is not in the plan of {plan.rounds} rounds.")
            members = np.flatnonzero(plan.members)
            row: dict[str, Any] = {"kind": "plan", "method": self.method, "who": plan.who}
            row |= {"groups": [self.labels[i] for i in members], "people": self._people(members)}
            rows.append(row | {"rounds": plan.rounds} | plan.charge.to_dict())
        return rows

    def _people(self, members: NDArray[np.intp]) -> list[str]:
        """Return whom a release of each of these groups is charged to, as often as it is."""
        if self.people is None:
            return [self.labels[i] for i in members]
        if isinstance(self.people, str):  # a row is in one group of those that are asked
            return [EACH_ROW] if len(members) else []
        return [person for i in members for person in self.people[i].tolist()]

    def total(self, new: Sequence[dict[str, Any]], entries: Sequence[dict[str, Any]]) -> float:
        """Return the epsilon of the most charged person of the groups, after these plans."""
        people = self._people(np.arange(len(self.labels)))
        spent = odometer_of([*entries, *new]).spent(self.rules.delta, dict.fromkeys(people))
        return max(spent.values(), default=0.0)

    def is_new(
        self, run: int, new: Sequence[dict[str, Any]], entries: Sequence[dict[str, Any]]
    ) -> bool:
        """Return whether plans are to be charged; refuse those that the budget does not allow."""
        if known := [row for row in entries if row["run"] == str(run)]:
            if [{name: row[name] for name in new[0]} for row in known] != new:
                raise ValueError("the plan differs from the one that was charged for this run.")
            return False
        self.check_run(new)
        if math.isfinite(self.rules.epsilon):
            spent = self.total(new, entries)
            if spent > self.rules.epsilon * (1 + 1e-9):
                runs = len({row["run"] for row in entries} | {str(run)})
                raise ValueError(
                    f"epsilon {spent:.4g} of {runs} runs would exceed budget "
                    f"{self.rules.epsilon:g}."
                )
        return True

    def check_run(self, new: Sequence[dict[str, Any]]) -> None:
        """Refuse plans that cost a person too much, whatever delta they state."""
        most, delta = self.rules.run_epsilon, self.rules.delta
        if math.isfinite(most) and (spent := self.total(new, ())) > most * (1 + 1e-9):
            raise ValueError(
                f"epsilon {spent:.4g} of {self.method}, at delta={delta:g}, would exceed "
                f"run_epsilon={most:g}."
            )


def _fewest(counts: NDArray[np.int64], rows: float) -> float:
    """Return how many persons, who have so many rows each, some of the rows are of at least."""
    return 1.0 + float(np.searchsorted(np.sort(counts)[::-1].cumsum(), rows))


def _text(label: Any) -> str:
    """Write a label, and a number alike whatever its type."""
    number = isinstance(label, int | float) and not isinstance(label, bool)
    return f"{float(label):.17g}" if number else str(label)


def odometer_of(entries: Iterable[Mapping[str, Any]]) -> Odometer:
    """Return what the plans in a ledger charge each person; open releases are not counted."""
    odometer = Odometer()
    for row in entries:
        if row["kind"] == "plan" and row["epsilon"] is not None:
            odometer.add(Charge.from_dict(dict(row)), row["people"])
    return odometer
