"""The command line: `ebfed county`, `study NAME`, `fit FILES`, `audit` and `warm`.

Commands import what they need when they run, so that help and version are instant. Results go to
stdout; what happened on the way, and errors, to stderr. A mistake of the user ends with one line
and exit code 2.
"""

from __future__ import annotations

import importlib
import json as json_format
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import ebfed
from ebfed.cli import federate
from ebfed.cli.federate import Model

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

__all__ = ["app"]

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog="""\b
Examples:
  ebfed county --out results/
  ebfed study private-means --quick
  ebfed fit scores.csv --group school --value score
  ebfed fit votes/*.parquet --group county --value won --model bernoulli --out rates.csv
  ebfed fit --help
""",
)
app.add_typer(federate.app, name="federate")


class Population(StrEnum):
    """Families of populations to fit."""

    normal = "normal"
    beta = "beta"
    npmle = "npmle"


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ebfed {ebfed.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Estimate every group as well as if the population were known.

    Empirical Bayes for many groups with little data in each: the population that groups come from
    is learned from all of them, and every group's own estimate is drawn towards it by as much as
    its data are noisy.
    """


@app.command(
    epilog="""\b
Examples:
  ebfed county                          print the results
  ebfed county --out results/           also write tables (CSV) and figures (PNG)
  ebfed county --json | jq .table       results for other programs
"""
)
def county(
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write tables and figures to this directory.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print nothing but JSON.")] = False,
) -> None:
    """Run the study of county elections.

    Each of six presidential elections in 3,111 counties of the United States is predicted from the
    other five: by the share of them that the Republican won, and by empirical Bayes estimates. The
    data come with the package.
    """
    with _errors_of_the_user():
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
        from ebfed.studies.county import run

        study = run()
        typer.echo(json_format.dumps(study.to_dict(), indent=2) if json else study.to_text())
        if out is not None:
            for path in study.save(out):
                typer.echo(f"Wrote {path}", err=json)


@app.command(
    epilog="""\b
Examples:
  ebfed study                           list the studies
  ebfed study bits --out results/       also write tables (CSV) and a figure (PNG)
  ebfed study private-means --quick     a small version, in seconds
  ebfed study private-rates --reps 50 --seed 1 --json | jq .table
"""
)
def study(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Which study; without it, a list of them.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small version of it.")] = False,
    reps: Annotated[
        int | None, typer.Option(metavar="COUNT", help="Runs, each with new simulated clients.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(metavar="NUMBER", help="Of all random numbers; 0 if not given.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write tables and figures to this directory; a study that was interrupted goes on "
            "from what is there.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print nothing but JSON.")] = False,
) -> None:
    """Run a published experiment again.

    Results are the same for the same seed and number of runs, on any number of processor cores.
    """
    from ebfed.studies import STUDIES

    if name is None:
        for each, about in STUDIES.items():
            typer.echo(f"{each:<16} {about}")
        return
    with _errors_of_the_user():
        if name not in STUDIES:
            raise ValueError(f"no study {name!r}; there are {', '.join(STUDIES)}")
        if name == "county":
            if quick or reps is not None or seed is not None:
                raise ValueError("county draws nothing at random: no --quick, --reps, --seed")
            county(out, json)
            return
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
        module = importlib.import_module(f"ebfed.studies.{name.replace('-', '_')}")
        results = module.run(reps, 0 if seed is None else seed, quick=quick, keep=out)
        typer.echo(json_format.dumps(results.to_dict(), indent=2) if json else results.to_text())
        if out is not None:
            for path in results.save(out):
                typer.echo(f"Wrote {path}", err=json)


@app.command(
    epilog="""\b
Examples:
  ebfed fit scores.csv --group school --value score
      means of schools, a normal population; prints the fit and the first schools
  ebfed fit votes.csv --group county --value won --model bernoulli --out rates.csv
      rates of counties from rows of 0 and 1, written to a table
  ebfed fit scores.csv --group school --value score --prior npmle --level .9
      a population of any shape, and intervals that hold 90 %
  ebfed fit scores.csv --formula "score ~ hours + (1 + hours | school)" --report fit.html
      a regression for every school; all about it on one page, to open in a browser

\b
The table has a row for each group:
  n         rows of the group          local        its own mean
  estimate  empirical Bayes estimate   sd           its posterior standard deviation
  lower, upper  interval of the given level
  weight    share of the group's own mean in the estimate (normal and beta)
"""
)
def fit(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Rows in .csv or .parquet files, of any size."),
    ],
    group: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The column of group labels.")
    ] = None,
    value: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The column of values.")
    ] = None,
    formula: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="In place of --group and --value: 'y ~ x + (1 + x | group)', as in R's lme4. All "
            "rows are read into memory.",
        ),
    ] = None,
    model: Annotated[
        Model, typer.Option(help="gaussian: values around a mean; bernoulli: 0 or 1 with a rate.")
    ] = Model.gaussian,
    prior: Annotated[
        Population | None,
        typer.Option(
            help="The population; normal for gaussian and beta for bernoulli if not given. npmle: "
            "of any shape.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write all groups to this .csv or .parquet.")
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write summary, pictures and groups to this .html."),
    ] = None,
    level: Annotated[
        float, typer.Option(metavar="SHARE", help="Probability that an interval holds.")
    ] = 0.95,
    drop_missing: Annotated[
        bool, typer.Option("--drop-missing", help="Leave out rows without a label or a value.")
    ] = False,
) -> None:
    """Estimate the mean or rate of every group of a table.

    The table may be in many files and larger than memory: only the groups must fit into it.

    Labels in CSV files keep their leading zeros: they are numbers only if every one is written as
    a number would be, and text otherwise. A blank label is missing, and so is a value that is
    blank or NA.
    """
    from ebfed.tables.files import format_of, naming

    with _errors_of_the_user():
        for path in (out, report):
            if path is not None:
                with naming(path):
                    if not path.parent.is_dir():
                        raise ValueError("no such directory")
                    if path is out:
                        format_of(path)
                    elif path.suffix not in (".html", ".htm"):
                        raise ValueError("a report is an .html file")
        if not 0 < level < 1:
            raise ValueError(f"--level must lie between 0 and 1; got {level}")
        if formula is not None:
            if group is not None or value is not None:
                raise ValueError("--formula names the columns: give no --group and no --value")
            estimator = _fit_formula(files, formula, model, prior, drop_missing)
        elif group is None or value is None:
            raise ValueError("give --group and --value, or --formula")
        elif group == value:
            raise ValueError(f"--group and --value both name the column {group!r}")
        else:
            estimator = _fit_groups(files, group, value, model, prior, drop_missing)
        estimates = estimator.posterior().to_frame(level=level)
        typer.echo(estimator.summary())
        if report is not None:
            from ebfed.report import write_report

            title = f"{formula or f'{value} by {group}'}, {', '.join(file.name for file in files)}"
            write_report(estimator, report, title=title, level=level)
            typer.echo(f"Wrote {report}")
        if out is not None:
            _write(estimates, out)
            typer.echo(f"Wrote {estimates[estimates.columns[0]].nunique():,} groups to {out}")
        elif report is None:
            typer.echo(_first_rows(estimates))


def _fit_groups(
    files: list[Path],
    group: str,
    value: str,
    model: Model,
    prior: Population | None,
    drop_missing: bool,
) -> Any:
    """Estimate means or rates, reading files batch by batch."""
    from ebfed.location import BernoulliEB, GaussianEB
    from ebfed.tables.files import summarise

    with _progress(files) as progress:
        table, left_out = summarise(
            files,
            group,
            value,
            drop_missing=drop_missing,
            binary=model is Model.bernoulli,
            progress=progress,
        )
    if left_out.rows:
        parts = left_out.describe(group, value)
        typer.echo(f"Left out {left_out.rows:,} of {left_out.total:,} rows ({parts}).", err=True)
    learners: dict[Model, Any] = {Model.gaussian: GaussianEB, Model.bernoulli: BernoulliEB}
    learner = learners[model]
    estimator = learner() if prior is None else learner(prior=prior.value)
    with _warnings_in_a_line():
        return estimator.fit(table)


def _fit_formula(
    files: list[Path], formula: str, model: Model, prior: Population | None, drop_missing: bool
) -> Any:
    """Fit a formula to all rows of files."""
    from ebfed.formula import from_formula, parse
    from ebfed.tables.files import read_rows

    settings: dict[str, Any] = {} if prior is None else {"prior": prior.value}
    settings |= {"missing": "drop" if drop_missing else "raise", "context": {}}
    family: Any = "binomial" if model is Model.bernoulli else None
    rows = read_rows(files, parse(formula).group)
    with _warnings_in_a_line():
        return from_formula(formula, rows, family=family, **settings)


@app.command(
    epilog="""\b
Examples:
  ebfed audit                           every channel at epsilon 0.5, 1 and 4, and all learners
  ebfed audit --epsilon 2 --seed 7      channels at another, by other random numbers
  ebfed audit --trainings 0             channels only, in seconds
  ebfed audit --json | jq .passed       results for other programs
"""
)
def audit(
    epsilon: Annotated[
        list[float] | None,
        typer.Option(metavar="NUMBER", help="A promise to test; may be repeated."),
    ] = None,
    delta: Annotated[
        float, typer.Option(metavar="NUMBER", help="Of channels that have one.")
    ] = 1e-5,
    simulations: Annotated[
        int, typer.Option(metavar="COUNT", help="Reports of each client.")
    ] = 200_000,
    trainings: Annotated[
        int,
        typer.Option(
            metavar="COUNT",
            help="Of each learner, with one client and without it: about a minute; 0 for none.",
        ),
    ] = 4_000,
    seed: Annotated[int, typer.Option(metavar="NUMBER", help="Of the random numbers.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print nothing but JSON.")] = False,
) -> None:
    """Measure the privacy of every channel, and of training, from below.

    Clients at the ends of the range and far outside it send simulated reports. How well their
    reports can be told apart bounds epsilon from below. Private learners are trained with one
    client and without it, thousands of times; how well that can be told from what is published
    bounds the epsilon of clipping, sampling, noise and all rounds together. The exit code is 1 if
    a bound exceeds what is promised: that promise is refuted. The others are not, but not proved
    either.
    """
    with _errors_of_the_user():
        from ebfed.studies.audit import EPSILONS, run

        found = run(
            epsilon or EPSILONS,
            delta=delta,
            simulations=simulations,
            trainings=trainings,
            seed=seed,
            n_jobs=-1,
        )
    typer.echo(json_format.dumps(found.to_dict(), indent=2) if json else found.to_text())
    if not found.passed:
        raise typer.Exit(1)


@app.command()
def warm() -> None:
    """Compile ahead, so that the first fit does not wait.

    Compiled code is kept on disk: run this once after installing, or while an image is built.
    The environment variable NUMBA_CACHE_DIR says where, if the package's own folder is read-only.
    """
    from ebfed import kernels

    everything = [getattr(kernels, name) for name in kernels.__all__]
    compiled = [kernel for kernel in everything if hasattr(kernel, "stats")]
    if not compiled:
        typer.echo("Nothing to compile: NUMBA_DISABLE_JIT switches compilation off.")
        return
    start = time.perf_counter()
    _fit_every_kind()
    seconds = time.perf_counter() - start
    new = sum(sum(kernel.stats.cache_misses.values()) for kernel in compiled)
    ready = sum(len(kernel.signatures) for kernel in compiled)
    typer.echo(f"{ready} compiled functions are ready, {new} of them new, after {seconds:.1f} s.")
    for path in sorted({kernel.stats.cache_path for kernel in compiled}):
        typer.echo(f"Cache: {path}")


@contextmanager
def _errors_of_the_user() -> Iterator[None]:
    """Say what was wrong with files and columns in one line, and end with code 2."""
    try:
        yield
    except (OSError, ValueError) as error:
        typer.echo(f"ebfed: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(2) from None


@contextmanager
def _warnings_in_a_line() -> Iterator[None]:
    """Show warnings without the place in the code that they come from."""
    from ebfed.priors import IdentificationWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        warnings.simplefilter("ignore", IdentificationWarning)  # the summary has a note of it
        yield
    for warning in caught:
        typer.echo(f"Warning: {warning.message}", err=True)


@contextmanager
def _progress(files: list[Path], delay: float = 2) -> Iterator[Callable[[float], Any]]:
    """Show how much of the files has been read, on a terminal and if it takes a while."""
    from tqdm import tqdm

    size = sum(file.stat().st_size for file in files if file.is_file())
    shown: dict[str, Any] = {"unit": "B", "unit_scale": True, "leave": False, "delay": delay}
    with tqdm(total=size, disable=None, **shown) as bar:
        yield bar.update


def _first_rows(estimates: pd.DataFrame, size: int = 10) -> str:
    """Print the head of a table, and say how much more there is."""
    shown = estimates.head(size).to_string(index=False, float_format="{:.6g}".format)
    more = len(estimates) - size
    return (
        shown if more <= 0 else f"{shown}\n… and {more:,} more groups; --out FILE writes them all."
    )


def _write(estimates: pd.DataFrame, out: Path) -> None:
    from ebfed.tables.files import format_of

    if format_of(out) == "csv":
        estimates.to_csv(out, index=False)
    else:
        estimates.to_parquet(out, index=False, engine="pyarrow")


def _fit_every_kind() -> None:
    """Fit tiny tables of every kind of label and value that kernels are compiled for."""
    import numpy as np

    from ebfed.location import BernoulliEB, GaussianEB, posterior_from
    from ebfed.regression import AdaMixClassifier, LinearEB, LogisticEB
    from ebfed.streams import Stream, make_key
    from ebfed.tables.files import Tally

    def frozen(array: NDArray) -> NDArray:
        array = array.copy()
        array.flags.writeable = False
        return array

    values = np.tile([0.0, 1.0, 1.0], 4)
    near = np.repeat(np.arange(4), 3)
    far = near * 10**9  # too far apart to be tabulated: they are hashed
    words = near.astype(str).astype(object)
    # columns of frames are read-only, which is another type to the compiler
    for X in (values, frozen(values)):
        for groups in (near, frozen(near), far, frozen(far), words):
            GaussianEB().fit(X, groups=groups)
            GaussianEB().fit(np.column_stack([X, X]), groups=groups).predict()
        BernoulliEB().fit(X, groups=near).predict()
        BernoulliEB().fit(X, groups=near, covariates=[0.0, 1.0, 3.0, 4.0])
    for groups in (near, frozen(near), far, frozen(far)):  # as files are read
        for X in (values, frozen(values)):
            Tally().add(groups, X)
    stream = Stream(make_key(0), 0)
    stream.uniforms(1), stream.normals(1), stream.bernoulli([0.5]), stream.add_normals([1.0], 1.0)
    for prior in ("npmle", "point_normal", "laplace", "point_laplace", "scale_mixture"):
        shrunk = posterior_from(stream.normals(24)[:, 0], np.ones(24), prior=prior)
        shrunk.interval(), shrunk.local_false_sign_rate()
    X, groups = stream.normals(60, 1), np.repeat(np.arange(6), 10)
    y = X[:, 0] + stream.normals(60)[:, 0]
    LinearEB("full").fit(X, y, groups=groups)
    with warnings.catch_warnings():  # of what so few rows cannot tell
        warnings.simplefilter("ignore")
        for method in ("ep", "polya-gamma", "laplace"):
            LogisticEB(method=method).fit(X, y > 0, groups=groups).predict(X, groups=groups)
        kinds = np.digitize(y, [-0.5, 0.5])
        AdaMixClassifier(1, n_rounds=3).fit(X, kinds, groups=groups).predict(X, groups=groups)
