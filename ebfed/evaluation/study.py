"""The scaffold of the studies: what is written once for all of them.

A study puts the same question many times. It is declared as a `Study`, in three parts:

- its settings: the *cells* (a dimension, an epsilon, ...), how often each is run, a quick version;
- its one run: a function of a seed and a cell that returns rows;
- its page: a `SimulatedStudy`, which prints and draws the results.

Every run has a generator of its own, named by the seed, the number of the run and the cell, so that
results do not depend on how the runs are spread over processes.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import pandas as pd

from ebfed.report.summary import Text
from ebfed.tables.replacing import replaced
from ebfed.tables.spreadsheets import write_csv

__all__ = [
    "SIMULATED_NOISE",
    "THICK",
    "THIN",
    "WIDTH",
    "Cell",
    "Results",
    "SimulatedStudy",
    "Study",
    "average",
    "doubts",
    "each",
    "legend_outside",
    "print_row",
    "records",
    "replicate",
    "wrap",
]

WIDTH = 96
# A note on every page with private methods: these are experiments, and protect nobody.
SIMULATED_NOISE = (
    "Noise is simulated from the seed, and protects nobody. Epsilon is what real noise would give."
)
THIN, THICK = "-" * WIDTH, "=" * WIDTH

Cell = Mapping[str, Any]
ResultRows = list[dict[str, Any]]


class Results(ABC):
    """Results of a study: tables, a printed page and figures.

    Attributes
    ----------
    name : str
        Name of the study.
    """

    name: ClassVar[str]

    @abstractmethod
    def title(self) -> str:
        """Return the first line of the page."""

    @abstractmethod
    def lines(self) -> Iterator[str]:
        """Yield the lines of the page between title and notes."""

    @abstractmethod
    def notes(self) -> Iterator[str]:
        """Yield the notes at the end of the page."""

    @abstractmethod
    def frames(self) -> dict[str, pd.DataFrame]:
        """Return the tables by their names."""

    @abstractmethod
    def figures(self) -> dict[str, Any]:
        """Draw the figures; returns matplotlib Figures by their names."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, lists and strings, ready for JSON; None for missing values."""

    def doubts(self) -> Iterator[str]:
        """Yield a note on each number that cannot be right as it stands."""
        yield from ()

    def to_text(self) -> Text:
        """Return the results as a printed page."""
        notes = wrap([*self.notes(), *self.doubts()])
        return Text("\n".join([self.title(), THICK, *self.lines(), THICK, *notes]))

    def save(self, directory: str | Path) -> list[Path]:
        """Write tables (CSV), the printed page and the figures (PNG) to a directory.

        Parameters
        ----------
        directory : str or Path
            Folder to write to; it is made if it does not exist.

        Returns
        -------
        list of Path
            The files written.
        """
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        stem = self.name.replace("-", "_")
        paths = []
        for name, frame in self.frames().items():
            paths.append(folder / f"{stem}_{name}.csv")
            with replaced(paths[-1]) as new:
                write_csv(frame, new)
        paths.append(folder / f"{stem}.txt")
        with replaced(paths[-1]) as new:
            new.write_text(self.to_text() + "\n", encoding="utf-8")
        for name, figure in self.figures().items():
            paths.append(folder / f"{f'{stem}_{name}' if name else stem}.png")
            with replaced(paths[-1]) as new:
                figure.savefig(new, dpi=200)
        return paths


@dataclass(frozen=True)
class SimulatedStudy(Results):
    """Results of a simulated study.

    Attributes
    ----------
    table : DataFrame
        A row for each cell and method: means over runs, with standard errors.
    runs : DataFrame
        A row for each cell, method and run.
    reps : int
        Number of runs.
    seed : int
    """

    table: pd.DataFrame
    runs: pd.DataFrame
    reps: int
    seed: int

    @abstractmethod
    def figure(self) -> Any:
        """Draw the results; returns a matplotlib Figure."""

    def doubts(self) -> Iterator[str]:
        """Yield a note on each row that the table marks as doubtful; see `doubts`."""
        if "doubt" in self.table:
            for doubt in self.table.loc[self.table["doubt"] != "", "doubt"]:
                yield f"! {doubt}. More runs would tell chance from a fault."

    def frames(self) -> dict[str, pd.DataFrame]:
        """Return the tables by their names."""
        return {"table": self.table, "runs": self.runs}

    def figures(self) -> dict[str, Any]:
        """Return the one figure, which has the name of the study alone."""
        return {"": self.figure()}

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, lists and strings, ready for JSON; None for missing values."""
        return {
            "study": self.name,
            "reps": self.reps,
            "seed": self.seed,
            "table": records(self.table),
        }


R = TypeVar("R", bound=SimulatedStudy)


def _all_alike(cells: Sequence[Cell], reps: int) -> list[tuple[Sequence[Cell], int]]:
    return [(cells, reps)]


@dataclass(frozen=True)
class Study(Generic[R]):
    """Declaration of a simulated study: its settings, its one run and its page.

    Parameters
    ----------
    results : type of SimulatedStudy
        Class of the results, which has the study's name.
    cells : callable
        ``cells(quick, **options)`` returns the cells of the study, or of its quick version.
    one_run : callable
        ``one_run(seed=(seed, run), **cell)`` returns rows; a function of a module, so that other
        processes find it.
    tabulate : callable
        ``tabulate(runs)`` returns the table of means.
    reps, quick_reps : int
        Number of runs of the study, and of its quick version.
    n_jobs : int
        Number of processes of the study, -1: one for each core; the quick version has one.
    hidden : tuple of str
        Columns of cells that the table of runs does not show.
    parts : callable
        ``parts(cells, reps)`` returns lists of cells with their numbers of runs, for a study whose
        cells are not all run `reps` times.
    """

    results: type[R]
    cells: Callable[..., Sequence[Cell]]
    one_run: Callable[..., ResultRows]
    tabulate: Callable[[pd.DataFrame], pd.DataFrame]
    reps: int
    quick_reps: int = 2
    n_jobs: int = -1
    hidden: tuple[str, ...] = ()
    parts: Callable[[Sequence[Cell], int], list[tuple[Sequence[Cell], int]]] = _all_alike

    def run(
        self,
        reps: int | None = None,
        seed: int = 0,
        *,
        quick: bool = False,
        n_jobs: int | None = None,
        progress: bool | None = None,
        keep: str | Path | None = None,
        **options: Any,
    ) -> R:
        """Run the study.

        Parameters
        ----------
        reps : int, optional
            Number of runs, each with new clients; the study's own number if None.
        seed : int
            Seed of all random numbers.
        quick : bool
            Whether to run the small version, which takes seconds and answers nothing.
        n_jobs : int, optional
            Number of processes, -1: one for each core; the study's own number if None. The results
            do not depend on it.
        progress : bool, optional
            Whether to show a progress bar on stderr; if None, only on a terminal.
        keep : str or Path, optional
            Folder for finished runs: an interrupted study continues from there.
        **options
            Settings that only this study has, see its `cells`.

        Returns
        -------
        SimulatedStudy

        Raises
        ------
        ValueError
            If `reps` is below 2 or `seed` is negative.
        OSError, ImportError
            If the data of the study are neither stored nor to be downloaded.
        """
        if reps is None:
            reps = self.quick_reps if quick else self.reps
        if n_jobs is None:
            n_jobs = 1 if quick else self.n_jobs
        everything = partial(
            replicate,
            self.one_run,
            seed=seed,
            n_jobs=n_jobs,
            progress=progress,
            label=self.results.name,
            keep=keep,
        )
        parts = self.parts(self.cells(quick, **options), reps)
        runs = pd.concat([everything(cells, reps=count) for cells, count in parts])
        runs = runs.reset_index(drop=True)
        shown = runs.drop(columns=list(self.hidden))
        return self.results(self.tabulate(runs), shown, reps, seed)


def each(
    task: Callable[..., Any],
    cells: Sequence[Cell],
    *,
    n_jobs: int = 1,
    progress: bool | None = None,
    label: str,
) -> Iterator[Any]:
    """Yield the result of a task for each cell, in order, with a progress bar.

    Parameters
    ----------
    task : callable
        Called as ``task(**cell)``.
    cells : sequence of mappings
    n_jobs : int
        Number of processes; -1: one for each core.
    progress : bool or None
        Whether to show a progress bar on stderr; None: only on a terminal.
    label : str
        Label of the bar.
    """
    from sklearn.utils.parallel import Parallel, delayed
    from tqdm import tqdm

    disable = None if progress is None else not progress
    with tqdm(desc=label, total=len(cells), leave=False, disable=disable) as bar:
        for result in Parallel(n_jobs=n_jobs, return_as="generator")(
            delayed(task)(**cell) for cell in cells
        ):
            yield result
            bar.update()


def replicate(
    task: Callable[..., ResultRows],
    cells: Sequence[Cell],
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
        ``task(seed=(seed, run), **cell)`` returns rows.
    cells : sequence of mappings
    reps : int
        Number of runs.
    seed : int
    n_jobs, progress, label
        As for `each`.
    keep : path, optional
        Folder for the rows of every finished run: an interrupted study continues from there.

    Returns
    -------
    DataFrame
        All rows, each with its cell and ``run``.

    Raises
    ------
    ValueError
        If `reps` is below 2, because errors are then unknown, or `seed` is negative.
    """
    if reps < 2:
        raise ValueError(f"reps must be at least 2; got {reps}.")
    if seed < 0:
        raise ValueError(f"seed must not be negative; got {seed}.")
    places = [(cell, run) for run in range(reps) for cell in cells]
    results = each(
        partial(_once, task, keep=keep, label=label),
        [{"seed": (seed, run), "cell": cell} for cell, run in places],
        n_jobs=n_jobs,
        progress=progress,
        label=label,
    )
    return pd.DataFrame(
        [
            {**cell, "run": run, **row}
            for (cell, run), rows in zip(places, results, strict=True)
            for row in rows
        ]
    )


def _once(
    task: Callable[..., ResultRows],
    *,
    seed: tuple[int, int],
    cell: Cell,
    keep: str | Path | None,
    label: str,
) -> ResultRows:
    """Run a task, unless its rows are stored; store them."""
    if keep is None:
        return task(seed=seed, **cell)
    version = sys.modules["ebfed"].__version__
    name = json.dumps([label, version, seed, {key: str(x) for key, x in cell.items()}])
    folder = Path(keep) / "cells"
    path = folder / f"{label}-{hashlib.sha256(name.encode()).hexdigest()[:24]}.json"
    if path.exists():
        return json.loads(path.read_text(encoding="utf-8"))
    stored = json.dumps(task(seed=seed, **cell), default=float)
    folder.mkdir(parents=True, exist_ok=True)
    with replaced(path) as new:
        new.write_text(stored, encoding="utf-8")
    return json.loads(stored)


def average(runs: pd.DataFrame, by: list[str], values: list[str]) -> pd.DataFrame:
    """Return means over runs, standard errors (``.._se``) and standard deviations (``.._sd``).

    Parameters
    ----------
    runs : DataFrame
    by : list of str
        Columns that name a row of the table.
    values : list of str
        Columns that are averaged.
    """
    parts = runs.groupby(by, sort=False, dropna=False)[values]
    mean, sd, count = parts.mean(), parts.std(), parts.size()
    columns = {}
    for value in values:
        columns[value] = mean[value]
        columns[f"{value}_se"] = sd[value] / count.map(math.sqrt)
        columns[f"{value}_sd"] = sd[value]
    return pd.DataFrame(columns).reset_index()


def doubts(table: pd.DataFrame, along: str, local: pd.Series | None = None) -> list[str]:
    """Say of each risk why it is doubtful: more information must not cost, nor sharing.

    A risk is above another if it is so by more than the standard error of the difference, and by
    more than 5 %.

    Parameters
    ----------
    table : DataFrame
        Columns that name a row, then the risk ``mse``, and its standard error ``mse_se``.
    along : str
        Column, such as bits or epsilon, with which the information of a report grows; NaN in rows
        of other methods.
    local : Series, optional
        Risk of local estimates beside each row; that of the method "local", which the table has, if
        None.

    Returns
    -------
    list of str
        Sentences for a page; "" where there is no doubt.

    Examples
    --------
    >>> table = pd.DataFrame({"method": "two bits", "epsilon": [1.0, 2.0, 4.0]})
    >>> table["mse"], table["mse_se"] = [0.3, 0.2, 0.25], 0.01
    >>> doubts(table, "epsilon", pd.Series(1.0, table.index))
    ['', '', 'two bits, epsilon 4: above its own error at epsilon 2']
    """
    keys = [name for name in table.columns[: table.columns.get_loc("mse")] if name != along]
    if local is None:
        setting = [name for name in keys if name != "method"]
        own = table[table["method"] == "local"].set_index(setting)["mse"].rename("_local")
        local = table.join(own, on=setting)["_local"]
    found = pd.Series("", index=table.index)
    for _, line in table.dropna(subset=[along]).groupby(keys, sort=False, dropna=False):
        for place, row in line.iterrows():
            less = line[line[along] < row[along]]
            error = (less["mse_se"] ** 2 + row["mse_se"] ** 2) ** 0.5
            worse = less[_is_above(row["mse"], less["mse"], error)]
            if len(worse):
                least = worse.loc[worse["mse"].idxmin(), along]
                reason = f"above its own error at {along} {least:g}"
            elif _is_above(row["mse"], local[place], row["mse_se"]):
                reason = "above the error of local estimates"
            else:
                continue
            named = [row["method"], f"{along} {row[along]:g}"]
            named += [
                f"{name} {row[name]}" for name in keys if name != "method" and pd.notna(row[name])
            ]
            found[place] = f"{', '.join(named)}: {reason}"
    return found.tolist()


def _is_above(risk: Any, other: Any, error: Any) -> Any:
    """Whether a risk exceeds others by more than errors and 5 %."""
    return (risk - other > error) & (risk > 1.05 * other)


def wrap(notes: Iterable[str]) -> list[str]:
    """Break notes into lines; each note begins on a new one."""
    return [part for note in notes for part in textwrap.wrap(note, WIDTH, break_on_hyphens=False)]


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table as plain dicts, None for missing values."""
    return json.loads(frame.to_json(orient="records", double_precision=15))


def legend_outside(ax: Any) -> None:
    """Put the legend to the right of a panel."""
    ax.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1.02, 1))


def print_row(label: Any, cells: Iterable[Any], left: int, width: int) -> str:
    """Print a label and cells in columns.

    Parameters
    ----------
    label : str
        Label, aligned to the left.
    cells : iterable
        Cells, aligned to the right.
    left, width : int
        Width of the label, and of each cell.

    Examples
    --------
    >>> print_row("local", [1, "2.5"], 8, 5)
    'local       1  2.5'
    """
    return f"{label:<{left}}" + "".join(f"{cell:>{width}}" for cell in cells)
