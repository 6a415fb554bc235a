"""The rules of a node: a file that its owner writes, and no run can change."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from ebfed.engines.flower.rows import OwnRows
from ebfed.engines.secure_sum.keys import Octets
from ebfed.engines.secure_sum.messages import check_terms, least_threshold
from ebfed.privacy.calibration import check_delta
from ebfed.privacy.odometer import Plan

__all__ = ["FILE", "Rules"]

FILE = "node.toml"


@dataclass(frozen=True)
class Rules:
    """What runs may take from the groups of a node.

    A node reads them from `node.toml` in its own directory::

        epsilon = 8.0            # budget of each person, over all runs; inf: no limit
        delta = 1e-5
        run_epsilon = 2.0        # most that one run may cost a person
        against = "server"       # or "readers" of results, where owners trust the server
        least_noise = 0.1        # of each message, where the server says how much is needed
        min_group_size = 5       # rows
        max_seconds = 3600       # most that an answer may take, and GiB of memory
        max_memory = 8
        methods = ["GaussianEB", "DPFedAvg"]
        partners = ["north", "east", "west"]  # of secure sums
        colluding = 1            # partners that may be on the side of the server
        match_key = "labels.key"  # a file of this directory

        [rows]                   # see OwnRows
        path = "patients.csv"
        columns = ["ward", "score"]
        person = "patient"
        groups = ["ward"]

    Parameters
    ----------
    epsilon, delta : float
        Budget of each person, over all runs: of each group, unless `rows` says whose rows they are.
        Where there is a budget, a release without a guarantee is taken only from groups that agreed
        to it, as `rows` says.
    run_epsilon : float
        Largest epsilon of one run for each person, at the delta above.
    against : {"server", "readers"}
        Against whom budgets hold. "server": methods whose noise the server adds, or whose guarantee
        rests on what it says (``trust="server"``), are refused. "readers": the server is trusted.
    least_noise : float, optional
        Least standard deviation of the noise of a message, in units of half the range, of methods
        whose guarantee depends on a number that the server states, such as
        ``OptOutMean(trust="server")``. None: these methods are refused where there is a budget.
    min_group_size : int
        Least number of rows, or of persons where `rows` names them, of a group that is to send
        figures as they are, or without a budget with noise that a server chose; 1 for any. Weighted
        rows count by their effective number, and of training with batches those of one batch. The
        mean of one row *is* that row, and two rows follow from their mean and scatter. A group with
        fewer rows sends nothing, and the server does not learn of it; its estimate is
        made at home, from its own rows and the population.
        Rows are counted, not what columns or models make of them: a sum of products with a
        covariate that few rows have, such as a rare illness, is of those few, as is the gradient
        of a hidden unit that few rows turn on, and more follows from several figures. Against
        that, leave such a column out of `columns`, or give a budget.
    methods : sequence of str, optional
        Names of estimators that may run; any if None.
    partners : sequence of str, or dict of str, optional
        Names of all nodes whose sum the server may see where it is not trusted
        (``trust="nobody"``), this one among them. A sum of half of them or fewer, or with another
        node, which a server may have invented, is refused. None: the node takes part in no such
        sum. As a table, a name is followed by the key that the owner of that node has given, in
        hexadecimal digits (``sum-key.pub`` of its directory): then the server cannot put keys of
        its own in the place of a node's. All owners must list keys, or none.
    colluding : int
        How many of the partners may be on the side of the server. A sum that could then show a
        vector of this node is refused: one over too few nodes, see
        `ebfed.engines.secure_sum.least_threshold`; and one whose noise is not enough without their
        shares. With all but two, no node may be lost.
    match_key : str, optional
        File with the key that the owners of nodes share, to match labels of groups; see
        `ebfed.engines.matching.read_match_key`. A path is relative to the directory. With it, the
        node sends digests of its labels to methods that merge exact summaries. None: none are sent.
    max_seconds : float
        Most seconds that one answer may take, whatever a plan asks for.
    max_memory : float, optional
        Most memory that one answer may add, in GiB; None: half of that of the machine. On Linux.
    rows : OwnRows, optional
        Where the rows are, and which columns may be read; nodes that take plans need it.

    Examples
    --------
    >>> Rules(epsilon=8.0, methods=["GaussianEB"])
    Rules(epsilon=8.0, delta=1e-05, ..., rows=None)
    """

    epsilon: float = math.inf
    delta: float = 1e-5
    run_epsilon: float = math.inf
    against: Literal["server", "readers"] = "server"
    least_noise: float | None = None
    min_group_size: int = 5
    methods: Sequence[str] | None = None
    partners: Sequence[str] | Mapping[str, str] | None = None
    colluding: int = 0
    match_key: str | None = None
    max_seconds: float = 3600.0
    max_memory: float | None = None
    rows: OwnRows | None = None

    def __post_init__(self) -> None:
        check_delta(self.delta)
        for name in ("epsilon", "run_epsilon", "least_noise", "max_seconds", "max_memory"):
            x = getattr(self, name)
            if name in ("least_noise", "max_memory") and x is None:
                continue
            number = isinstance(x, int | float) and not isinstance(x, bool)
            if not number or not x >= 0:
                raise ValueError(f"{name} must be a number, 0 or above; got {x!r}.")
            if x == 0 and name.startswith("max_"):
                raise ValueError(f"{name} must be above 0; got {x!r}.")
        if self.against not in ("server", "readers"):
            raise ValueError(f"against must be 'server' or 'readers'; got {self.against!r}.")
        if type(self.min_group_size) is not int or self.min_group_size < 1:
            raise ValueError(f"min_group_size must be 1 or above; got {self.min_group_size!r}.")
        if self.methods is not None:
            if isinstance(self.methods, str) or not all(isinstance(x, str) for x in self.methods):
                raise ValueError(f"methods must be a list of names; got {self.methods!r}.")
            object.__setattr__(self, "methods", tuple(self.methods))
        if self.partners is not None:
            if isinstance(self.partners, str) or not all(isinstance(x, str) for x in self.partners):
                raise ValueError(f"partners must be a list of names; got {self.partners!r}.")
            if not isinstance(self.partners, Mapping):
                object.__setattr__(self, "partners", tuple(self.partners))
            elif wrong := [x for x in self.partners.values() if not _is_key(x)]:
                raise ValueError(f"keys of partners have 64 hexadecimal digits; got {wrong[0]!r}.")
        most = 0 if self.partners is None else max(len(self.partners) - 2, 0)
        if type(self.colluding) is not int or not 0 <= self.colluding <= most:
            raise ValueError(
                f"colluding must be a whole number from 0 to {most}, all partners but two; got "
                f"{self.colluding!r}."
            )
        if self.match_key is not None and not (isinstance(self.match_key, str) and self.match_key):
            raise ValueError(f"match_key must be the name of a file; got {self.match_key!r}.")
        if not isinstance(self.rows, OwnRows | None):
            raise TypeError(f"rows must be OwnRows, or a table of TOML; got {self.rows!r}.")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the rules from a file.

        Raises
        ------
        ValueError
            If there is no file, or it does not hold rules.
        """
        if not path.exists():
            raise ValueError(
                f"the owner of this node has to write {path}, such as: epsilon = 1.0 (a budget "
                "for each person, over all runs; inf for no limit) and delta = 1e-5."
            )
        try:
            given = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is no TOML file: {error}") from error
        known = [field.name for field in fields(cls)]
        if unknown := sorted(given.keys() - set(known)):
            raise ValueError(f"{path}: {unknown[0]!r} is not among {', '.join(known)}.")
        if "epsilon" not in given:
            raise ValueError(f"{path} must say epsilon; inf for no limit.")
        try:
            if isinstance(given.get("rows"), dict):
                given["rows"] = OwnRows.of(given["rows"])
            return cls(**given)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path}: {error}") from error

    def check_sums(self, name: str, agreed: Any) -> None:
        """Refuse a secure sum with nodes that the owner does not know, or with too few."""
        check_terms(agreed)
        if self.partners is None:
            raise ValueError("partners of node.toml must name the nodes of secure sums.")
        if name not in agreed["names"]:
            raise ValueError(f"the sum is one without this node, {name!r}.")
        if others := sorted(set(agreed["names"]) - set(self.partners)):
            raise ValueError(f"{others[0]!r} is not among the partners of node.toml.")
        if agreed["threshold"] <= len(self.partners) // 2:
            raise ValueError(
                f"sums of {agreed['threshold']} nodes are of half of the {len(self.partners)} "
                "partners, or fewer."
            )
        if agreed["threshold"] < (least := least_threshold(len(self.partners), self.colluding)):
            raise ValueError(
                f"sums of {agreed['threshold']} of {len(self.partners)} nodes do not hide a vector "
                f"from a server with colluding={self.colluding} of them; {least} are needed."
            )
        if agreed["colluding"] < self.colluding:
            raise ValueError(
                f"noise of the sum is shared as if at most {agreed['colluding']} partners were on "
                f"the side of the server; colluding={self.colluding} here."
            )
        if ("verify" in agreed) != isinstance(self.partners, Mapping):
            raise ValueError("the owners of all partners must list their keys, or none.")
        for other, shown in agreed.get("verify", {}).items():
            if shown.tobytes().hex() != self.partners[other].lower():
                raise ValueError(f"the key of {other!r} is not the one of node.toml.")

    def listed_partners(self) -> dict[str, Octets] | None:
        """Return the partners, each with its key, which is empty where none are listed."""
        if self.partners is None:
            return None
        given = self.partners if isinstance(self.partners, Mapping) else {}
        return {
            name: np.frombuffer(bytes.fromhex(given.get(name, "")), np.uint8)
            for name in self.partners
        }

    @property
    def is_finite(self) -> bool:
        """Whether there is a budget."""
        return math.isfinite(min(self.epsilon, self.run_epsilon))

    def check_method(self, method: str) -> None:
        """Refuse a method that may not run."""
        if self.methods is not None and method not in self.methods:
            raise ValueError(f"methods of this node are {', '.join(self.methods)}; not {method}.")

    def check_plan(self, method: str, plan: Plan) -> None:
        """Refuse a plan whose guarantee holds against readers alone, or by what a server says."""
        if plan.trusts_server and self.is_finite and self.against == "server":
            raise ValueError(
                f"{plan.who}: the guarantee of {method} trusts the server, which is not one "
                'against = "server".'
            )
        self._check_noise(plan, method)

    def _check_noise(self, plan: Plan, method: str) -> None:
        if plan.noise is None or (self.least_noise is None and not self.is_finite):
            return
        if self.least_noise is None:
            raise ValueError(
                f"{plan.who}: the guarantee of {method} rests on the number of private groups that "
                "the server states; least_noise must say how much noise is enough."
            )
        if plan.noise < self.least_noise:
            raise ValueError(
                f"{plan.who}: noise of {plan.noise:.4g} is less than "
                f"least_noise={self.least_noise:g}."
            )


def _is_key(text: Any) -> bool:
    return isinstance(text, str) and re.fullmatch("[0-9a-fA-F]{64}", text) is not None
