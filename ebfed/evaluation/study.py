"""Studies: what is written once for all of them, and for the replications in `vignettes/papers`.

A simulated study is a `Study`: settings, one run, a table and a page. Every run has a generator of
its own, named by the seed, the number of the run and the cell, so that results do not depend on how
the runs are spread over processes.
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
from typing import Any, ClassVar, Self

import pandas as pd

from ebfed.report import new_axes, plot_curves
from ebfed.report.plots.axes import COLOURS, LINES, MARKERS
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
    "Study",
    "average",
    "draw_panel",
    "draw_panels",
    "each",
    "number",
    "print_grid",
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
    heading : str
        First line of the page.
    """

    name: ClassVar[str]
    heading: ClassVar[str] = ""

    def title(self) -> str:
        """Return the first line of the page."""
        return self.heading

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
class Study(Results):
    """A simulated study, which puts the same question many times; an instance has its results.

    The class is the declaration. Its parts are settings (the *cells*: a dimension, an epsilon, ...;
    how often each is run, and a quick version), one run (a function of a seed and a cell that
    returns rows), the table of means, and the page that prints and draws it.

    Attributes
    ----------
    table : DataFrame
        A row for each cell and method: means over runs, with standard errors.
    runs : DataFrame
        A row for each cell, method and run.
    reps : int
        Number of runs.
    seed : int
    full, quick : int
        Number of runs of the study, and of its quick version, unless another is asked for.
    n_jobs : int
        Number of processes of the study, -1: one for each core; the quick version has one.
    hidden : tuple of str
        Columns of cells that the table of runs does not show.
    cells : callable
        ``cells(quick, **options)`` returns the cells of the study, or of its quick version.
    one_run : callable
        ``one_run(seed=(seed, run), **cell)`` returns rows; a function of a module, so that other
        processes find it.
    """

    def __init_subclass__(cls, **functions: Callable[..., Any]) -> None:
        """Take functions of a module as static methods: ``class S(Study, one_run=one_run)``."""
        super().__init_subclass__()
        for name, function in functions.items():
            setattr(cls, name, staticmethod(function))

    full: ClassVar[int]
    quick: ClassVar[int] = 2
    n_jobs: ClassVar[int] = -1
    hidden: ClassVar[tuple[str, ...]] = ()
    cells: ClassVar[Callable[..., Sequence[Cell]]]
    one_run: ClassVar[Callable[..., ResultRows]]

    table: pd.DataFrame
    runs: pd.DataFrame
    reps: int
    seed: int

    @staticmethod
    @abstractmethod
    def tabulate(runs: pd.DataFrame) -> pd.DataFrame:
        """Return the table of means."""

    @staticmethod
    def parts(cells: Sequence[Cell], reps: int) -> list[tuple[Sequence[Cell], int]]:
        """Return lists of cells with their numbers of runs; all alike unless a study says so."""
        return [(cells, reps)]

    @classmethod
    def run(
        cls,
        reps: int | None = None,
        seed: int = 0,
        *,
        quick: bool = False,
        n_jobs: int | None = None,
        progress: bool | None = None,
        keep: str | Path | None = None,
        only: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Self:
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
        only : mapping of str to str, optional
            Values of cells as text, such as ``{"m": "100,400"}``: only cells with one of these are
            run.
        **options
            Settings that only this study has, see its `cells`.

        Returns
        -------
        Study

        Raises
        ------
        ValueError
            If `reps` is below 2, `seed` is negative, or no cell is as `only` says.
        OSError, ImportError
            If the data of the study are neither stored nor to be downloaded.
        """
        if reps is None:
            reps = cls.quick if quick else cls.full
        if n_jobs is None:
            n_jobs = 1 if quick else cls.n_jobs
        settings: dict[str, Any] = {"seed": seed, "n_jobs": n_jobs, "progress": progress}
        wanted = {name: values.split(",") for name, values in (only or {}).items()}
        cells = [
            cell
            for cell in cls.cells(quick, **options)
            if all(str(cell.get(name)) in values for name, values in wanted.items())
        ]
        if not cells:
            raise ValueError(f"only must be values of cells of {cls.name}; got {only!r}.")
        runs = pd.concat(
            [
                replicate(cls.one_run, some, reps=count, label=cls.name, keep=keep, **settings)
                for some, count in cls.parts(cells, reps)
            ]
        ).reset_index(drop=True)
        return cls(
            cls.tabulate(runs), runs.drop(columns=list(cls.hidden), errors="ignore"), reps, seed
        )

    def panels(self) -> Iterable[Mapping[str, Any]]:
        """Return the panels of the figure, arguments of `draw_panel` each."""
        raise NotImplementedError

    def figure(self) -> Any:
        """Draw the results; returns a matplotlib Figure."""
        return draw_panels(self.panels())

    def doubts(self) -> Iterator[str]:
        """Yield a note on each row of the table whose column ``doubt`` says why it is doubtful."""
        if "doubt" in self.table:
            for doubt in self.table.loc[self.table["doubt"] != "", "doubt"]:
                yield f"! {doubt}. More runs would tell chance from a fault."

    def frames(self) -> dict[str, pd.DataFrame]:
        return {"table": self.table, "runs": self.runs}

    def figures(self) -> dict[str, Any]:
        """Return the one figure, which has the name of the study alone."""
        return {"": self.figure()}

    def to_dict(self) -> dict[str, Any]:
        return {
            "study": self.name,
            "reps": self.reps,
            "seed": self.seed,
            "table": records(self.table),
        }


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


def wrap(notes: Iterable[str]) -> list[str]:
    """Break notes into lines; each note begins on a new one."""
    return [part for note in notes for part in textwrap.wrap(note, WIDTH, break_on_hyphens=False)]


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table as plain dicts, None for missing values."""
    return json.loads(frame.to_json(orient="records", double_precision=15))


def draw_panel(
    ax: Any,
    table: pd.DataFrame,
    x: str,
    y: str,
    *,
    errors: float = 2.0,
    spread: str = "se",
    title: str = "",
    xlabel: str = "",
    ylabel: str = "",
    level: float | None = None,
    ticks: Sequence[str] | None = None,
    **options: Any,
) -> None:
    """Draw a figure of each method against a setting, with bands of errors.

    Parameters
    ----------
    ax : matplotlib Axes
    table : DataFrame
        Columns ``method``, `x`, `y` and its error, ``y_se``.
    x, y : str
        Columns of the horizontal and of the vertical axis.
    errors : float
        Errors in half of a band.
    spread : str
        What follows ``y_`` in the name of the error: "se", or "sd" of a single run.
    title, xlabel, ylabel : str
    level : float, optional
        Where a grey line is drawn across.
    ticks : sequence of str, optional
        Names of the values of `x`, which are 0, 1, ...
    **options
        Of `plot_curves`.
    """
    curves = table.assign(_band=errors * table[f"{y}_{spread}"])
    plot_curves(curves, x=x, y=y, spread="_band", ax=ax, **options)
    ax.set_title(title, loc="left", fontsize="medium")
    ax.set(xlabel=xlabel, ylabel=ylabel)
    if ticks is not None:
        ax.set_xticks(range(len(ticks)), ticks, rotation=20, ha="right")
    if level is not None:
        ax.axhline(level, color="0.7", lw=1, zorder=0)


def draw_panels(panels: Iterable[Mapping[str, Any]]) -> Any:
    """Draw panels in which a method looks the same, with one legend; returns a matplotlib Figure.

    Parameters
    ----------
    panels : iterable of mappings
        Arguments of `draw_panel`. A panel with ``legend=True`` has a legend of its own.
    """
    panels = list(panels)
    methods = pd.concat(
        [each["table"]["method"] for each in panels if not each.get("legend")] or [pd.Series()]
    )
    looks = {
        str(method): {"color": COLOURS[k % 7], "marker": MARKERS[k % 7], "ls": LINES[k % 7]}
        for k, method in enumerate(methods.unique())
    }
    columns = 2 if len(panels) == 4 else min(3, len(panels))
    rows = -(-len(panels) // columns)
    axes = new_axes(columns, (2.6 + 3.6 * columns, 4.0 * rows), n_rows=rows)
    named: dict[str, Any] = {}
    for ax, panel in zip(axes, panels, strict=False):
        draw_panel(ax, **{"legend": False, "looks": looks, **panel})
        if not panel.get("legend"):
            handles, names = ax.get_legend_handles_labels()
            named |= dict(zip(names, handles, strict=True))
    for ax in axes[len(panels) :]:
        ax.set_axis_off()
    figure = axes[0].figure
    if named:
        place: dict[str, Any] = {"loc": "outside right upper", "frameon": False}
        figure.legend(named.values(), named, fontsize="small", **place)
    return figure


def number(value: float, form: str) -> str:
    """Print a number, "" where it is NaN.

    Examples
    --------
    >>> number(0.25, ".1f"), number(float("nan"), ".1f")
    ('0.2', '')
    """
    return "" if math.isnan(value) else format(value, form)


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


def print_grid(
    table: pd.DataFrame,
    along: str,
    cell: Callable[[Any], str],
    left: int,
    width: int,
    *,
    head: str = "",
    label: Callable[[Any], str] = str,
    by: str = "method",
    values: Sequence[Any] | None = None,
    title: str = "",
    below: Mapping[str, Callable[[Any], str]] | None = None,
) -> Iterator[str]:
    """Yield a row of heads, a rule, and a row of cells for each method.

    Parameters
    ----------
    table : DataFrame
        A row for each cell.
    along : str
        Column whose values are the heads. A method that has none, NaN, has one cell, the first.
    cell : callable
        Prints a row of the table, a named tuple.
    left, width : int
        Width of the labels, and of each cell.
    head : str
        Head of the labels.
    label : callable
        Prints a head.
    by : str
        Column of the labels.
    values : sequence, optional
        Values of `along` in their order; those of the table if None.
    title : str
        Line above the rule, which is then above the heads.
    below : mapping of str to callable, optional
        Labels of more rows below a method's own, and what prints their cells; a row of "" alone is
        left out.

    Examples
    --------
    >>> table = pd.DataFrame({"method": ["a", "a", "b"], "n": [5, 9, 9], "mse": [0.5, 0.25, 1.0]})
    >>> [line.strip("-") for line in print_grid(table, "n", "{0.mse:g}".format, 4, 5)]
    ['        5    9', '', 'a     0.5 0.25', 'b            1']
    """
    if values is None:
        values = table[along].dropna().unique().tolist()
    heads = print_row(head, map(label, values), left, width).rstrip()
    yield from [title, THIN, heads] if title else [heads, THIN]
    for name, rows in table.groupby(by, sort=False):
        for k, (text, show) in enumerate([(name, cell), *(below or {}).items()]):
            found = {getattr(row, along): show(row) for row in rows.itertuples()}
            cells = [found.get(value, "") for value in values]
            if rows[along].isna().all():
                cells = list(found.values())
            if k == 0 or any(cell.strip() for cell in cells):
                yield print_row(text, cells, left, width).rstrip()
