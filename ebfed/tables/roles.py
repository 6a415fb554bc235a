"""Roles of columns: which columns of the frame of a fit were what, so that later frames say it too.

A column that was named in a fit, as labels of groups or as weights, need not be named again where a
later frame has it, and is never taken for values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from ebfed.tables.covariates import named_columns
from ebfed.tables.lazy import column_names
from ebfed.tables.levels import split_levels

__all__ = ["NEEDED", "Roles"]

# If the rows of a fit had it, later rows must have it too.
NEEDED = {
    "exposure": "exposure= must give the exposure of each row, as in the fit.",
    "sample_weight": "sample_weight= must give the weight of each row, as in the fit.",
}


@dataclass(frozen=True)
class Roles:
    """Columns of a fit by role, the name of the argument that named them.

    Attributes
    ----------
    columns : mapping of str to str, list of str or None
        None of what was given, but not as a column.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = pd.DataFrame({"county": ["a"], "rate": [0.5], "n": [3]})
    >>> roles = Roles().learned(rows, {"groups": ["county"], "exposure": "n", "consent": None})
    >>> roles.columns, roles.names
    ({'groups': 'county', 'exposure': 'n'}, ['county', 'n'])
    >>> roles.found(rows[["county", "rate"]], {"exposure": [7]})
    {'groups': 'county', 'exposure': [7]}
    """

    columns: Mapping[str, str | list[str] | None] = field(default_factory=dict)

    def learned(self, X: Any, given: Mapping[str, Any]) -> Self:
        """Return the roles with these arguments in place of their own."""
        kept = {role: each for role, each in self.columns.items() if role not in given}
        new = {role: _named(role, x, X) for role, x in given.items() if x is not None}
        return type(self)(kept | new)

    def found(self, X: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is given, and else the columns of the fit, where a table has them."""
        there = {*column_names(X)} if self.columns else set()
        named = {role: names for role, names in self.columns.items() if names}
        known = {role: names for role, names in named.items() if {*_each(names)} <= there}
        return known | {role: value for role, value in given.items() if value is not None}

    @property
    def names(self) -> list[str]:
        """All columns that have a role."""
        return [name for names in self.columns.values() for name in _each(names)]


def _named(role: str, given: Any, X: Any) -> str | list[str] | None:
    """Return the columns that an argument names; None if it names none."""
    if role == "covariates":
        return named_columns(given) or None
    levels = split_levels(given, X) if role == "groups" else [given]
    if not all(isinstance(each, str) for each in levels):
        return None
    return levels if len(levels) > 1 else levels[0]


def _each(names: str | Sequence[str] | None) -> Sequence[str]:
    return [names] if isinstance(names, str) else names or ()
