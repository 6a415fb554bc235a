"""Simulated studies: the same question put many times, and what all answers say together.

A study is a list of *cells* (a setting, an epsilon, ...), each run `reps` times. Every run draws
from a generator of its own, named by the seed, the cell and the number of the run, so that results
do not depend on how runs are spread over processes.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd

from ebfed.report.summary import Text

__all__ = ["SimulatedStudy", "average", "print_errors", "replicate", "wrap"]

WIDTH = 96


@dataclass(frozen=True)
class SimulatedStudy(ABC):
    """Results of a simulated study.

    Attributes
    ----------
    table : DataFrame
        A row for each cell and method: means over runs, and how sure they are.
    runs : DataFrame
        A row for each cell, method and run.
    reps, seed : int
    """

    name: ClassVar[str]

    table: pd.DataFrame
    runs: pd.DataFrame
    reps: int
    seed: int

    @abstractmethod
    def to_text(self) -> Text:
        """Return the results as a printed page."""

    @abstractmethod
    def figure(self) -> Any:
        """Draw the results; returns a matplotlib Figure."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, lists and strings, ready for JSON; None for what does not exist."""
        table = json.loads(self.table.to_json(orient="records", double_precision=15))
        return {"study": self.name, "reps": self.reps, "seed": self.seed, "table": table}

    def save(self, directory: str | Path) -> list[Path]:
        """Write tables (CSV), the printed page and the figure (PNG) to a directory.

        Parameters
        ----------
        directory : str or Path
            Made if it does not exist.

        Returns
        -------
        list of Path
            The files written.
        """
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        stem = self.name.replace("-", "_")
        paths = [
            folder / f"{stem}{ending}" for ending in ("_table.csv", "_runs.csv", ".txt", ".png")
        ]
        self.table.to_csv(paths[0], index=False)
        self.runs.to_csv(paths[1], index=False)
        paths[2].write_text(self.to_text() + "\n", encoding="utf-8")
        self.figure().savefig(paths[3], dpi=200)
        return paths


def replicate(
    task: Callable[..., list[dict[str, Any]]],
    cells: Sequence[Mapping[str, Any]],
    *,
    reps: int,
    seed: int,
    n_jobs: int,
    progress: bool | None,
    label: str,
    keep: str | Path | None = None,
) -> pd.DataFrame:
    """Run a task `reps` times in each cell.

    Parameters
    ----------
    task : callable
        ``task(seed=(seed, run), **cell)`` returns rows; a function of a module, so that other
        processes find it.
    cells : sequence of mappings
    reps, seed : int
    n_jobs : int
        Processes; -1: one for each core.
    progress : bool or None
        Whether to show a progress bar on stderr; None: if that is a terminal.
    label : str
        What the bar says.
    keep : path, optional
        A folder that holds the rows of every run that is finished, so that a study that was
        interrupted goes on where it was.

    Returns
    -------
    DataFrame
        The rows of all, each with its cell and ``run``.

    Raises
    ------
    ValueError
        If `reps` is below 2, which leaves errors unknown, or `seed` negative.
    """
    from sklearn.utils.parallel import Parallel, delayed
    from tqdm import tqdm

    if reps < 2:
        raise ValueError(f"reps must be at least 2; got {reps}.")
    if seed < 0:
        raise ValueError(f"seed must not be negative; got {seed}.")
    places = [(cell, run) for run in range(reps) for cell in cells]
    results: Iterable[list[dict[str, Any]]] = Parallel(n_jobs=n_jobs, return_as="generator")(
        delayed(_once)(task, (seed, run), cell, keep, label) for cell, run in places
    )
    disable = None if progress is None else not progress
    bar = tqdm(results, label, total=len(places), leave=False, disable=disable)
    return pd.DataFrame(
        [
            {**cell, "run": run, **row}
            for (cell, run), rows in zip(places, bar, strict=True)
            for row in rows
        ]
    )


def _once(
    task: Callable[..., list[dict[str, Any]]],
    seed: tuple[int, int],
    cell: Mapping[str, Any],
    keep: str | Path | None,
    label: str,
) -> list[dict[str, Any]]:
    """Run a task, unless its rows are kept; keep them."""
    if keep is None:
        return task(seed=seed, **cell)
    from ebfed import __version__

    name = json.dumps([label, __version__, seed, {key: str(x) for key, x in cell.items()}])
    folder = Path(keep) / "cells"
    path = folder / f"{label}-{hashlib.sha256(name.encode()).hexdigest()[:24]}.json"
    if path.exists():
        return json.loads(path.read_text(encoding="utf-8"))
    has_data = json.dumps(task(seed=seed, **cell), default=float)
    folder.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(f".{os.getpid()}.new")
    new.write_text(has_data, encoding="utf-8")
    os.replace(new, path)
    return json.loads(has_data)


def average(runs: pd.DataFrame, by: list[str], values: list[str]) -> pd.DataFrame:
    """Mean over runs, with its standard error (``.._se``) and the spread of one run (``.._sd``)."""
    parts = runs.groupby(by, sort=False, dropna=False)[values]
    mean, sd, count = parts.mean(), parts.std(), parts.size()
    columns = {}
    for value in values:
        columns[value] = mean[value]
        columns[f"{value}_se"] = sd[value] / count.map(math.sqrt)
        columns[f"{value}_sd"] = sd[value]
    return pd.DataFrame(columns).reset_index()


def print_errors(table: pd.DataFrame, x: str) -> list[str]:
    """Print mean squared errors of settings and methods against x, in thousandths.

    Parameters
    ----------
    table : DataFrame
        ``figure``, ``m``, ``n``, ``method``, `x` (NaN where a method has none), ``mse``,
        ``mse_se``, ``formula`` and ``apart`` (NaN where there is none), and ``keeps``: False gets a
        star.
    x : str

    Returns
    -------
    list of str
        Lines.
    """
    values = table[x].dropna().unique()
    label = min(26, WIDTH - 10 * len(values))
    lines = []
    for (figure, m, n), part in table.groupby(["figure", "m", "n"], sort=False):
        lines += [f"Figure {figure}: {m:,} clients, {n} rows each", "-" * WIDTH]
        lines += [f"{x:<{label}}" + "".join(f"{value:>9g} " for value in values)]
        for method, rows in part.groupby("method", sort=False):
            lines += _print_method(str(method), rows, x, values, label)
        lines += [""]
    return [line.rstrip() for line in lines[:-1]]


def _print_method(method: str, rows: pd.DataFrame, x: str, values: Any, label: int) -> list[str]:
    """Print the means of one method, standard errors below, and what the formula says."""
    if rows[x].isna().all():
        (row,) = rows.itertuples()
        return [
            f"{method:<{label}}{1000 * row.mse:>9.2f}  ({1000 * row.mse_se:.2f}); formula "
            f"{1000 * row.formula:.2f}, {row.apart:+.1f} apart"
        ]
    rows = rows.set_index(x).reindex(values)  # some methods begin later
    stars = rows["keeps"].map({False: "*"}).fillna(" ")
    lines = [
        [f"{1000 * mse:.2f}{star}" for mse, star in zip(rows["mse"], stars, strict=True)],
        [f"({1000 * se:.2f})" for se in rows["mse_se"]],
    ]
    names = [method, ""]
    if rows["formula"].notna().any():
        lines += [[f"{1000 * value:.2f} " for value in rows["formula"]]]
        lines += [[f"{value:+.1f} " for value in rows["apart"]]]
        names += ["  formula", "  apart"]
    return [
        f"{name:<{label}}" + "".join(f"{'' if 'nan' in cell else cell:>10}" for cell in cells)
        for name, cells in zip(names, lines, strict=True)
    ]


def wrap(notes: Iterable[str]) -> list[str]:
    """Lines of sentences, each beginning on a new one."""
    return [line for note in notes for line in textwrap.wrap(note, WIDTH, break_on_hyphens=False)]
