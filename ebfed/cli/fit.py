"""The command `ebfed fit`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ebfed.cli.options import (
    Decimal,
    Encoding,
    FamilyName,
    FamilyOption,
    NaValues,
    Separator,
    errors_of_the_user,
)

if TYPE_CHECKING:
    import pandas as pd

    from ebfed.tables.dialect import Dialect

__all__ = ["EXAMPLES", "fit", "show", "shrink", "warnings_in_a_line"]

EXAMPLES = """\b
Examples:
  ebfed fit scores.csv --group school --value score
      means of schools, a normal population; prints the first schools and the fit
  ebfed fit votes.csv --group county --value won --family binomial --out rates.csv
      rates of counties from rows of 0 and 1, written to a table
      of yes and no too: of two labels the second in sorted order is the event
  ebfed fit deaths.csv --group county --value deaths --family poisson --exposure expected
      rates of events per exposure; --family negative_binomial if rows scatter more than Poisson's
  ebfed fit answers.csv --group ward --value party --family categorical
      shares of every answer, from rows of labels
  ebfed fit pumps.csv --group pump --value hours --family duration --observed failed
      rates of events from durations, of which those with failed = 0 are censored
  ebfed fit genes.csv --group gene --value expression --family variance
      variances within groups
  ebfed fit claims.csv --group state --value ratio --weight claims
      means of weighted rows, as in credibility theory
  ebfed fit scores.csv --group school --value score --prior npmle --level .9
      a population of any shape, and intervals that hold 90 %
  ebfed fit scores.csv --formula "score ~ hours + (1 + hours | school)" --report fit.html
      a regression for every school, with a page of results for a browser
  ebfed fit visits.csv --formula "visits ~ age + offset(log(years)) + (1 | practice)"
      --family negative_binomial   counts that columns explain; also poisson, gamma, binomial
  ebfed fit trials.csv --group trial --value effect --std-error se
      a table with one row for each trial: an estimate and its standard error
  ebfed fit scores.csv --group school --value score --save fit.json
      the fit as JSON, for `ebfed predict` and `ebfed.load_fit`
  ebfed fit noten.csv --group schule --value note --sep ';' --decimal , --encoding latin-1
      a table as a German spreadsheet writes it

\b
The table has a row for each group:
  n         rows of the group          local        its own mean
  estimate  empirical Bayes estimate   sd           its posterior standard deviation
  lower, upper  interval of the given level
  weight    share of the group's own mean in the estimate (normal and beta)
In a .csv, text that a spreadsheet would compute (such as =1+1) has a quote (') before it;
a .parquet holds it as it is.
"""


# Families whose rows may have exposures, and families whose rows are read into memory by a formula.
WITH_EXPOSURE = (FamilyName.poisson, FamilyName.negative_binomial)
BY_FORMULA = (*WITH_EXPOSURE, FamilyName.categorical, FamilyName.gamma, FamilyName.ordinal)


class NaAction(StrEnum):
    """What is done with rows that lack a value."""

    fail = "raise"
    drop = "drop"


class PriorName(StrEnum):
    """Populations to fit."""

    normal = "normal"
    beta = "beta"
    gamma = "gamma"
    inverse_gamma = "inverse_gamma"
    dirichlet = "dirichlet"
    logit_normal = "logit-normal"
    point_normal = "point_normal"
    point_laplace = "point_laplace"
    laplace = "laplace"
    scale_mixture = "scale_mixture"
    log_spline = "log_spline"
    npmle = "npmle"


def fit(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Rows in .csv or .parquet files, of any size."),
    ],
    group: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of group labels.")
    ] = None,
    value: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of values.")] = None,
    exposure: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of exposures of counts, with --family poisson or negative_binomial.",
        ),
    ] = None,
    observed: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of 1 where the event ended a duration and 0 where that is censored, with "
            "--family duration.",
        ),
    ] = None,
    weight: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of weights of rows: precisions of means, or how many rows a row of 0 and "
            "1, or of a count, stands for. All rows are read into memory.",
        ),
    ] = None,
    formula: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="In place of --group and --value: 'y ~ x + (1 + x | group)', as in R's lme4. All "
            "rows are read into memory.",
        ),
    ] = None,
    std_error: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of standard errors: each row is an estimate, --value, and --group is its "
            "label.",
        ),
    ] = None,
    family: FamilyOption = FamilyName.gaussian,
    prior: Annotated[
        PriorName | None,
        typer.Option(
            metavar="NAME",
            help="Population of groups: normal, beta, gamma, inverse_gamma, dirichlet or "
            "logit-normal; point_normal or point_laplace: some are exactly zero; laplace, or "
            "scale_mixture: one mode; log_spline: any smooth shape; npmle: any shape. If not "
            "given, normal for gaussian, beta for binomial, gamma for counts and durations, "
            "dirichlet for categorical and inverse_gamma for variance.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write all groups to this .csv or .parquet.")
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write summary, pictures and groups to this .html."),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the fit to this .json, for `ebfed predict`; of --std-error the population.",
        ),
    ] = None,
    groups: Annotated[
        bool,
        typer.Option(
            help="Whether --save writes the groups, or nothing of any one group.",
        ),
    ] = True,
    level: Annotated[float, typer.Option(metavar="SHARE", help="Probability of intervals.")] = 0.95,
    subset: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Rows to fit, with --formula: an expression such as 'year > 1990 & age >= 18'.",
        ),
    ] = None,
    na_action: Annotated[
        NaAction, typer.Option(help="Whether to drop rows without a label or a value.")
    ] = NaAction.fail,
    sep: Separator = ",",
    encoding: Encoding = "utf-8",
    decimal: Decimal = ".",
    na_values: NaValues = None,
) -> None:
    """Estimate the mean, rate, shares or variance of every group of a table.

    The estimates are printed first, then the fitted population. The table may be in many files and
    larger than memory; the groups must fit into memory.

    Labels in CSV files keep their leading zeros. Labels are numbers if all of them are written as
    numbers, and text otherwise. A blank cell is missing; NA, NaN, NULL and None are so in columns
    of numbers, and are text in columns of labels and other text, unless --na-values says so.
    """
    from ebfed.tables.dialect import Dialect
    from ebfed.tables.files import format_of, naming

    with errors_of_the_user():
        dialect = Dialect.checked(sep, encoding, decimal, na_values)
        for path in (out, report, save):
            if path is not None:
                with naming(path):
                    if not path.parent.is_dir():
                        raise ValueError("no such directory")
                    if path is out:
                        format_of(path)
                    elif path is report and path.suffix not in (".html", ".htm"):
                        raise ValueError("a report is an .html file")
                    elif path is save and path.suffix != ".json":
                        raise ValueError("a saved fit is a .json file")
                    if any(path.exists() and file.samefile(path) for file in files):
                        raise ValueError("this is a file of the data; write to another one")
        if not groups and save is None:
            raise ValueError("--no-groups goes with --save")
        if not 0 < level < 1:
            raise ValueError(f"--level must lie between 0 and 1; got {level}")
        if std_error is not None:
            if group is None or value is None or family is not FamilyName.gaussian:
                raise ValueError("--std-error goes with --group, --value and --family gaussian")
            if report is not None:
                raise ValueError("--report needs rows of observations; --std-error has none")
        if exposure is not None and (family not in WITH_EXPOSURE or formula is not None):
            raise ValueError(
                "--exposure goes with --group, --value and --family poisson or negative_binomial"
            )
        if observed is not None and family is not FamilyName.duration:
            raise ValueError("--observed goes with --family duration")
        if family is FamilyName.duration and formula is not None:
            raise ValueError("--family duration goes with --group and --value, not --formula")
        if weight is not None and std_error is not None:
            raise ValueError("--weight goes with rows of observations; --std-error has none")
        if prior is PriorName.logit_normal and formula is None:
            raise ValueError("--prior logit-normal goes with --formula and --family binomial")
        drop_missing = na_action is NaAction.drop
        if subset is not None and formula is None:
            raise ValueError("--subset goes with --formula")
        if formula is not None:
            if group is not None or value is not None:
                raise ValueError("--formula names the columns: give no --group and no --value")
            estimator = _fit_formula(
                files, formula, family, prior, weight, drop_missing, dialect, subset
            )
        elif group is None or value is None:
            raise ValueError("give --group and --value, or --formula")
        elif group == value:
            raise ValueError(f"--group and --value both name the column {group!r}")
        elif std_error is not None:
            columns = (group, value, std_error)
            name = "normal" if prior is None else prior.value
            posterior = shrink(files, columns, name, drop_missing, dialect, out, level)
            if save is not None:
                posterior.save(save)
                typer.echo(f"Wrote the population to {save}")
            typer.echo(f"\n{posterior.summary()}")
            return
        elif family is FamilyName.duration:
            estimator = _fit_durations(
                files, group, value, observed, prior, weight, drop_missing, dialect
            )
        elif (
            family in BY_FORMULA or weight is not None or _has_labels(files, family, value, dialect)
        ):
            formula = f"`{value}` | `{group}`"
            if exposure is not None:
                formula = f"`{value}` ~ offset(log(`{exposure}`)) | `{group}`"
            estimator = _fit_formula(files, formula, family, prior, weight, drop_missing, dialect)
        else:
            estimator = _fit_groups(files, group, value, family, prior, drop_missing, dialect)
        show(*_estimates(estimator, level), out, level)
        if report is not None:
            from ebfed.report import write_report

            title = f"{formula or f'{value} by {group}'}, {', '.join(file.name for file in files)}"
            write_report(estimator, report, title=title, level=level)
            typer.echo(f"Wrote {report}")
        if save is not None:
            from ebfed.report.view import LocationView, view_of

            # options may be fitted as a formula of means, which alone knows the event of two labels
            fit = estimator
            if value is not None and isinstance(view_of(fit), LocationView):
                by_formula = hasattr(fit, "estimator_") and not fit.response.levels
                fit = fit.estimator_ if by_formula else fit
            fit.save(save, groups=groups)
            typer.echo(f"Wrote the fit to {save}")
        typer.echo(f"\n{estimator.summary()}")


def _has_labels(files: list[Path], family: FamilyName, value: str, dialect: Dialect) -> bool:
    """Tell whether values are labels of two, such as yes and no."""
    from ebfed.tables.files import holds_labels, naming

    if family is not FamilyName.binomial:
        return False
    with naming(files[0]):
        return holds_labels(files[0], value, dialect)


def show(estimates: pd.DataFrame, labels: list[str], out: Path | None, level: float) -> None:
    """Write a table, or print its first rows.

    `labels` are the columns that say which group a row is of; none if rows are only rows.
    """
    if out is None:
        shown = _first_rows(estimates, labels)
        typer.echo(f"Estimates, with intervals of {100 * level:g} %:\n{shown}")
    else:
        _write(estimates, out)
        count = len(estimates[labels].drop_duplicates()) if labels else len(estimates)
        typer.echo(f"Wrote {count:,} {'groups' if labels else 'rows'} to {out}")


def _estimates(estimator: Any, level: float) -> tuple[pd.DataFrame, list[str]]:
    """Estimates of all groups, or of all levels of crossed factors, and columns of labels."""
    import pandas as pd

    from ebfed.regression import CrossedEB
    from ebfed.report.view import view_of

    if not isinstance(getattr(estimator, "estimator_", None), CrossedEB):
        style = view_of(estimator).style
        shown = estimator.posterior().to_frame(level=level)
        return shown, [each.group for each in (*style.above, style)]
    frames = []
    for name in estimator.levels_:
        own = estimator.posterior(level=name).to_frame(level=level)
        frames.append(own.rename(columns={name: "level"}).astype({"level": str}))
        frames[-1].insert(0, "factor", name)
    return pd.concat(frames, ignore_index=True), ["factor", "level"]


def shrink(
    files: list[Path],
    columns: tuple[str, str, str],
    prior: Any,
    drop_missing: bool,
    dialect: Dialect,
    out: Path | None,
    level: float,
) -> Any:
    """Shrink a table of estimates to a population, fitted or to be fitted, and show it."""
    from ebfed.location import posterior_from
    from ebfed.tables.files import naming

    options = dict(zip(("--group", "--value", "--std-error"), columns, strict=True))
    rows = _read_columns(files, options, drop_missing, dialect)
    with naming(*files):
        value, error = (rows[column].to_numpy() for column in columns[1:])
        with warnings_in_a_line():
            posterior = posterior_from(value, error, prior, labels=rows[columns[0]])
    shown = posterior.to_frame(level=level)
    show(shown, list(shown)[:1], out, level)
    return posterior


def _fit_durations(
    files: list[Path],
    group: str,
    value: str,
    observed: str | None,
    prior: PriorName | None,
    weight: str | None,
    drop_missing: bool,
    dialect: Dialect,
) -> Any:
    """Estimate rates of events from durations, reading all rows into memory."""
    from ebfed.location import DurationEB
    from ebfed.tables.files import naming

    options = {"--group": group, "--value": value}
    options |= {} if observed is None else {"--observed": observed}
    options |= {} if weight is None else {"--weight": weight}
    rows = _read_columns(files, options, drop_missing, dialect)
    with naming(*files), warnings_in_a_line():
        estimator = DurationEB() if prior is None else DurationEB(prior=prior.value)
        return estimator.fit(rows, groups=group, observed=observed, sample_weight=weight)


def _read_columns(
    files: list[Path], options: dict[str, str], drop_missing: bool, dialect: Dialect
) -> pd.DataFrame:
    """Read the columns that options name, the first of labels and the others of numbers."""
    from ebfed.tables.columns import Columns
    from ebfed.tables.files import naming, read_rows

    columns = list(options.values())
    if len(set(columns)) < len(columns):
        names = [*options]
        raise ValueError(f"{', '.join(names[:-1])} and {names[-1]} must name different columns")
    rows = read_rows(files, columns[:1], dialect)
    with naming(*files):
        for option, column in options.items():
            if column not in rows:
                among = ", ".join(map(repr, rows.columns))
                raise ValueError(f"no column {column!r} ({option}) among {among}")
        complete, text = Columns.of(rows).lacking(columns)
        if text and not drop_missing:
            raise ValueError(f"{text}; fill them in, or drop them with --na-action drop")
        if text:
            typer.echo(f"Left out {(~complete).sum():,} of {len(rows):,} rows.", err=True)
        rows = rows.loc[complete, columns].infer_objects()  # true and false, without missing ones
        for column in columns[1:]:
            if rows[column].dtype.kind not in "biuf":
                raise ValueError(f"column {column!r} is not numeric")
    return rows


def _fit_groups(
    files: list[Path],
    group: str,
    value: str,
    family: FamilyName,
    prior: PriorName | None,
    drop_missing: bool,
    dialect: Dialect,
) -> Any:
    """Estimate means, rates or variances, reading files batch by batch."""
    from ebfed.location import BernoulliEB, GaussianEB, VarianceEB
    from ebfed.tables.files import summarise

    with _progress(files) as progress:
        table, left_out = summarise(
            files,
            group,
            value,
            drop_missing=drop_missing,
            binary=family is FamilyName.binomial,
            dialect=dialect,
            progress=progress,
        )
    if left_out.rows:
        parts = left_out.describe(group, value)
        typer.echo(f"Left out {left_out.rows:,} of {left_out.total:,} rows ({parts}).", err=True)
    learners = {FamilyName.binomial: BernoulliEB, FamilyName.variance: VarianceEB}
    learner: Any = learners.get(family, GaussianEB)
    estimator = learner() if prior is None else learner(prior=prior.value)
    with warnings_in_a_line():
        return estimator.fit(table)


def _fit_formula(
    files: list[Path],
    formula: str,
    family: FamilyName,
    prior: PriorName | None,
    weight: str | None,
    drop_missing: bool,
    dialect: Dialect,
    subset: str | None = None,
) -> Any:
    """Fit a formula to rows of files."""
    from ebfed.designs.grammar import parse
    from ebfed.formula import from_formula
    from ebfed.tables.files import read_rows

    settings: dict[str, Any] = {} if prior is None else {"prior": prior.value}
    settings |= {"na_action": "drop" if drop_missing else "raise", "subset": subset}
    settings |= {"context": {}, "weights": weight}
    used = " ".join([formula, subset or "", weight or ""])
    rows = read_rows(files, parse(formula).levels, dialect, used)
    # a response of counts chooses its own family
    name: Any = None if family is FamilyName.gaussian else family.value
    try:
        with warnings_in_a_line():
            return from_formula(formula, rows, family=name, **settings)
    except ValueError as error:
        for column in rows.select_dtypes(exclude="number"):
            if advice := dialect.other_decimal(str(rows[column].dropna().iloc[:1].squeeze())):
                raise ValueError(f"{str(error).rstrip('.')}; column {column!r}{advice}") from None
        raise


@contextmanager
def warnings_in_a_line(*, summarised: bool = True) -> Iterator[None]:
    """Show each warning in one line, without its place in the code.

    Where a summary follows, it has a note on what is not identified.
    """
    from ebfed.priors import IdentificationWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        if summarised:
            warnings.simplefilter("ignore", IdentificationWarning)
        yield
    for warning in caught:
        typer.echo(f"Warning: {warning.message}", err=True)


@contextmanager
def _progress(files: list[Path], delay: float = 2) -> Iterator[Callable[[float], Any]]:
    """Show which part of the files has been read, on a terminal and after a delay in seconds."""
    from tqdm import tqdm

    size = sum(file.stat().st_size for file in files if file.is_file())
    shown: dict[str, Any] = {"unit": "B", "unit_scale": True, "leave": False, "delay": delay}
    with tqdm(total=size, disable=None, **shown) as bar:
        yield bar.update


def _first_rows(estimates: pd.DataFrame, labels: list[str], size: int = 10) -> str:
    """Print the first rows of a table, and the number of groups, or rows, that are not shown."""
    text = estimates.head(size).to_string(index=False, float_format="{:.6g}".format)
    left, what = len(estimates) - size, "row"
    if labels:  # a group may have a row for each coefficient
        left = len(estimates[labels].drop_duplicates())
        left, what = left - len(estimates[labels].head(size).drop_duplicates()), "group"
    if len(estimates) <= size:
        return text
    more = f"and {left:,} more {what}{'s' * (left != 1)}" if left else "and the rest of this group"
    return f"{text}\n… {more}; --out FILE writes them all."


def _write(estimates: pd.DataFrame, out: Path) -> None:
    from ebfed.tables.files import format_of
    from ebfed.tables.replacing import replaced
    from ebfed.tables.spreadsheets import write_csv

    with replaced(out) as new:
        if format_of(out) == "csv":
            write_csv(estimates, new)
        else:
            estimates.to_parquet(new, index=False, engine="pyarrow")
