"""The rows of a node: where its owner keeps them, and which columns runs may read."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ebfed.tables.columns import Columns, check_na_action
from ebfed.tables.dialect import Dialect
from ebfed.tables.files import naming, read_csv

__all__ = ["ARGUMENTS", "OwnRows", "TableRows", "UnfitRowsError", "check_rows"]


@dataclass(frozen=True)
class TableRows:
    """Rows of a plan, and what the owner says of them.

    Parameters
    ----------
    arguments : dict
        Of `fit`.
    people : array of shape (n_rows,) or "row", optional
        Whose each row is; "row": each is of another person.
    opened : bool array of shape (n_rows,), optional
        Which rows agreed to exact figures.
    lacking : str
        What the rows that were left out lack.
    """

    arguments: Mapping[str, Any]
    people: Any = None
    opened: Any = None
    lacking: str = ""

    @property
    def persons(self) -> NDArray[np.str_] | None:
        """Name of the person of each row; None if none are stated, or each row is of another."""
        return None if self.people is None or isinstance(self.people, str) else _names(self.people)


def _names(labels: Any) -> NDArray[np.str_]:
    """Write persons as text; whole numbers alike, also of a column that lacks some and so is float.

    Examples
    --------
    >>> _names([1, 2]).tolist(), _names(["1.0", "2.5", "007"]).tolist()
    (['1', '2'], ['1', '2.5', '007'])
    """
    found = np.asarray(labels).astype(str).tolist()
    return np.array([re.sub(r"^(-?\d+)\.0+$", r"\1", label) for label in found], str)


ARGUMENTS = ("X", "y", "groups", "consent", "exposure", "observed", "sample_weight")


class UnfitRowsError(ValueError):
    """Rows that the model of a plan does not take: some lack values, or have unsuitable ones."""


def check_rows(rows: Any) -> dict[str, Any]:
    """Return the columns of a plan by argument of `fit`, or raise a ValueError."""
    if not isinstance(rows, Mapping) or not rows.keys() <= set(ARGUMENTS) or "groups" not in rows:
        raise ValueError(
            f"rows must name columns for 'groups' and other arguments among "
            f"{', '.join(ARGUMENTS)}; got {rows!r}."
        )
    for name, columns in rows.items():
        if name == "X" and isinstance(columns, list | tuple):
            named = all(isinstance(each, str) for each in columns)
            sound = named and (len(columns) > 0 or "y" in rows)  # of an intercept alone
        else:
            sound = isinstance(columns, str)
        if not sound:
            raise ValueError(f"rows[{name!r}] must name a column; got {columns!r}.")
    return {name: list(x) if isinstance(x, tuple) else x for name, x in rows.items()}


@dataclass(frozen=True)
class OwnRows:
    """Table ``[rows]`` of `node.toml`: what only the owner of a node decides.

    Parameters
    ----------
    path : str, optional
        A .csv (which may end in .gz), .parquet or .duckdb file; relative to the node's directory.
    table : str, optional
        Table of a .duckdb file.
    columns : sequence of str, optional
        Columns that runs may read; all of them if None.
    person : str, optional
        Column that says whose a row is, or "row" where each row is of another person: the unit of
        the budget. A release of a group is charged to every person in it.
    groups : sequence of str, optional
        Columns of labels that runs may group rows by: how many rows a label has is public. None:
        any.
    consent : dict, optional
        ``{column = "choice", open = ["yes"]}``: a group may send figures without a guarantee if all
        its rows have one of these values. None: no group may, within a budget.
    exposure : sequence of str, optional
        Columns that runs may take for exposures, whose sums over groups are public. None: any, but
        none within a budget.
    weights : sequence of str, optional
        Columns that runs may take for weights, whose sums over groups may be public, as numbers of
        rows. None: any, but none within a budget.
    classes : sequence, optional
        Classes of a response, and categories, that are public.
    na_action : {"raise", "drop"}
        What becomes of rows that lack a value in a column of a plan, of persons or of consent:
        a run of them is refused, or they are left out of it.
    load : str, optional
        ``module:function`` of the owner, in place of a path. The function is called with the
        columns of the plan, as a dict, and returns the arguments of `fit`.
    sep, encoding, decimal : str
    na_values : sequence of str
        Of a .csv file; see `ebfed.tables.dialect.Dialect`.

    Raises
    ------
    ValueError
        If neither path nor load is given, or both are.

    Notes
    -----
    Within a budget, `person` and `groups` must be given, and a plan has no consent of a column that
    is not listed here. A function `load` is the owner's: it decides which columns it returns.
    """

    path: str | None = None
    table: str | None = None
    columns: tuple[str, ...] | None = None
    person: str | None = None
    groups: tuple[str, ...] | None = None
    consent: Mapping[str, Any] | None = None
    exposure: tuple[str, ...] | None = None
    weights: tuple[str, ...] | None = None
    classes: tuple[Any, ...] | None = None
    na_action: str = "raise"
    load: str | None = None
    sep: str = ","
    encoding: str = "utf-8"
    decimal: str = "."
    na_values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.path is None) == (self.load is None):
            raise ValueError("rows must have a path or load = 'module:function'.")
        for field in fields(self):
            value = getattr(self, field.name)
            lists = ("columns", "groups", "exposure", "weights", "na_values")
            if field.name in lists and value is not None:
                if isinstance(value, str) or not all(isinstance(x, str) for x in value):
                    raise ValueError(f"{field.name} must be a list of names; got {value!r}.")
                object.__setattr__(self, field.name, tuple(value))
            elif field.name == "classes" and value is not None:
                if not isinstance(value, list | tuple):
                    raise ValueError(f"classes must be a list; got {value!r}.")
                object.__setattr__(self, "classes", tuple(value))
            elif field.name == "consent" and value is not None:
                if not isinstance(value, Mapping) or value.keys() != {"column", "open"}:
                    raise ValueError(
                        f"consent must be {{column = '…', open = ['…']}}; got {value!r}."
                    )
                if not isinstance(value["open"], list | tuple):
                    raise ValueError(
                        f"open of consent must be a list of values; got {value['open']!r}."
                    )
            elif field.name == "na_action":
                check_na_action(value, ("raise", "drop"))
            elif value is not None and not isinstance(value, str):
                raise ValueError(f"{field.name} must be text; got {value!r}.")

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Self:
        """Make it from the table of a file."""
        known = [field.name for field in fields(cls)]
        if unknown := sorted(table.keys() - set(known)):
            raise ValueError(f"{unknown[0]!r} of [rows] is not among {', '.join(known)}.")
        return cls(**table)

    def read(self, directory: Path, rows: Any, *, budget: bool = False) -> TableRows:
        """Read the columns of a plan.

        Parameters
        ----------
        directory : path
            Folder that the path is relative to.
        rows : mapping
            Columns by argument of `fit`.
        budget : bool
            Whether there is a budget, so that roles of columns must be given.

        Raises
        ------
        ValueError
            If a column is not allowed, or is not there.
        """
        wanted = check_rows(rows)
        names = [x for each in wanted.values() for x in ([each] if isinstance(each, str) else each)]
        if self.columns is not None and (others := sorted(set(names) - set(self.columns))):
            raise ValueError(f"columns of node.toml do not have {others[0]!r}.")
        if self.load is not None:
            arguments = _function(self.load, directory)(wanted)
            own = self.consent is not None and wanted.get("consent") == self.consent["column"]
            return TableRows(arguments, None, self._opened(arguments["consent"] if own else None))
        self._check_roles(wanted, budget)
        assert self.path is not None
        labels = [self.person] if self.person not in (None, "row") else []
        own = labels + ([self.consent["column"]] if self.consent is not None else [])
        # persons are text as labels are: a plan that groups by persons has no others
        labels = [wanted["groups"], *labels]
        frame = self.frame(directory, list(dict.fromkeys([*names, *own])), labels)
        complete, text = Columns.of(frame).lacking([*frame])
        if text and self.na_action == "raise":
            raise UnfitRowsError(
                f"{text}; fill them in, or leave out such rows: na_action = 'drop' in [rows] of "
                "node.toml, or --na-action drop of ebfed federate up."
            )
        frame = frame[complete].reset_index(drop=True)
        if not len(frame):
            raise ValueError("there are no rows.")
        people = frame[self.person] if self.person not in (None, "row") else self.person
        opened = self._opened(None if self.consent is None else frame[self.consent["column"]])
        arguments = {name: frame[columns] for name, columns in wanted.items()}
        return TableRows(arguments, people, opened, text)

    def _opened(self, choices: Any) -> Any:
        """Return which rows agreed to exact figures: none if nothing says so."""
        if choices is None or self.consent is None:
            return False
        return np.isin(np.asarray(choices).astype(str), [str(x) for x in self.consent["open"]])

    def _check_roles(self, wanted: Mapping[str, Any], budget: bool) -> None:
        """Refuse a plan that gives a column a role that the owner did not give it."""
        if budget and (self.person is None or self.groups is None):
            raise ValueError(
                "within a budget, [rows] of node.toml must say person (a column, or 'row') and "
                "groups (columns of labels)."
            )
        consent = None if self.consent is None else (self.consent["column"],)
        roles = {"groups": self.groups, "consent": consent, "exposure": self.exposure}
        for role, among in (roles | {"sample_weight": self.weights}).items():
            given = () if budget and among is None else among
            if role in wanted and given is not None and wanted[role] not in given:
                raise ValueError(
                    f"{wanted[role]!r} is no column of {role} in [rows] of node.toml, which has "
                    f"{', '.join(map(repr, given)) or 'none'}."
                )

    def frame(
        self, directory: Path, names: list[str] | None = None, labels: Sequence[str] = ()
    ) -> Any:
        """Read a file.

        Parameters
        ----------
        directory : path
            Folder that the path is relative to.
        names : list of str, optional
            Columns to read; all if None.
        labels : sequence of str
            Columns of labels, which are text in a .csv file.
        """
        import pandas as pd

        assert self.path is not None
        path = directory / self.path
        kind = path.name.removesuffix(".gz").rpartition(".")[2].lower()
        with naming(path):
            if kind == "csv":
                dialect = Dialect.checked(self.sep, self.encoding, self.decimal, self.na_values)
                return read_csv(path, labels, dialect, names)
            if kind in ("parquet", "pq"):
                return pd.read_parquet(path, columns=names)
            if kind in ("duckdb", "db"):
                return _of_database(path, self.table, names)
        raise ValueError(f"{path.name}: rows are read from .csv, .parquet and .duckdb files.")


def _of_database(path: Path, table: str | None, names: list[str] | None) -> Any:
    try:
        import duckdb
    except ImportError:
        raise ImportError('databases need DuckDB: pip install "ebfed[duckdb]"') from None
    if table is None:
        raise ValueError(f"{path.name}: [rows] must name the table.")
    with duckdb.connect(str(path), read_only=True) as connection:
        relation = connection.table(table)
        names = relation.columns if names is None else names
        if absent := [name for name in names if name not in relation.columns]:
            raise ValueError(f"{path.name}: no column {absent[0]!r}.")
        quoted = ('"' + name.replace('"', '""') + '"' for name in names)
        return relation.project(", ".join(quoted)).df()


def _function(name: str, directory: Path) -> Any:
    """Import a function of the owner, whose module may lie in the node's directory."""
    module, sign, function = name.partition(":")
    if not (module and sign and function):
        raise ValueError(f"load must be 'module:function'; got {name!r}.")
    sys.path.insert(0, str(directory))
    try:
        return getattr(importlib.import_module(module), function)
    finally:
        sys.path.remove(str(directory))
