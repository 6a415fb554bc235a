"""The command `ebfed predict`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ebfed.cli.errors import errors_of_the_user
from ebfed.cli.fit import show, warnings_in_a_line
from ebfed.cli.options import Decimal, Encoding, Separator

__all__ = ["EXAMPLES", "predict"]

EXAMPLES = """\b
Examples:
  ebfed predict fit.json scores.csv
      estimates of the groups of a table, from its rows and the population of a fit
  ebfed predict fit.json deaths.csv --exposure years --out rates.csv
      of counts with exposures, written to a table
"""


class Predicted(StrEnum):
    """What is predicted of rows."""

    response = "response"
    rate = "rate"


def predict(
    file: Annotated[Path, typer.Argument(metavar="FIT", help="A .json of `ebfed fit --save`.")],
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Rows in .csv or .parquet files.")
    ],
    group: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of group labels, if not that of the fit."),
    ] = None,
    value: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of values, if not that of the fit."),
    ] = None,
    exposure: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of exposures of counts.")
    ] = None,
    observed: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of 0 for censored durations, else 1."),
    ] = None,
    weight: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of weights of rows.")
    ] = None,
    type: Annotated[
        Predicted,
        typer.Option(
            help="Of rows by a formula: the expected response as given, counts at their exposures "
            "and probabilities included; or the rate, at an exposure of 1.",
        ),
    ] = Predicted.response,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write all to this .csv or .parquet.")
    ] = None,
    level: Annotated[float, typer.Option(metavar="SHARE", help="Probability of intervals.")] = 0.95,
    sep: Separator = ",",
    encoding: Encoding = "utf-8",
    decimal: Decimal = ".",
) -> None:
    """Estimate groups of a table with a saved fit, or predict its rows.

    Means and rates of groups are estimated from the rows of the table and the population of the
    fit, so groups may be new. By a regression, rows are predicted with the coefficients of their
    groups in the fit, and of new groups with the mean of the population: the expected response of
    each row as given.
    """
    from ebfed.formula import FormulaFit
    from ebfed.formula.grammar import parse
    from ebfed.loading import load_fit
    from ebfed.tables.dialect import Dialect
    from ebfed.tables.files import format_of, naming, read_rows

    with errors_of_the_user(), warnings_in_a_line(summarised=False):
        if out is not None:
            with naming(out):
                format_of(out)
        if not 0 < level < 1:
            raise ValueError(f"--level must lie between 0 and 1; got {level}")
        fit = load_fit(file)
        view = fit.view()
        label = view.style.group if group is None else group
        labels = parse(fit.formula).levels if isinstance(fit, FormulaFit) else [label]
        rows = read_rows(files, labels, Dialect.checked(sep, encoding, decimal))
        if isinstance(fit, FormulaFit):
            given = {"value": value, "exposure": exposure, "observed": observed, "weight": weight}
            for name, column in given.items():
                if column is not None:
                    raise ValueError(f"--{name} goes with a fit without a formula")
            if label != view.style.group:
                raise ValueError(f"the formula names the groups: {view.style.group!r}")
            found = rows.assign(prediction=fit.predict(rows, type=type.value))
            show(found, [], out, level)
            return
        if type is not Predicted.response:
            raise ValueError(
                "--type goes with a fit by --formula; other fits print rates of groups"
            )
        # counts are fitted by a formula, in which names are quoted
        quoted = {name.strip("`"): name for name in view.columns}
        if value is not None:  # of labels the fit has categories, and no name of their column
            quoted = {value: view.columns[0] if len(view.columns) == 1 else value}
        options = {"exposure": exposure, "observed": observed, "sample_weight": weight}
        known = {name: column for name, column in options.items() if column is not None}
        needed = [label, *quoted, *known.values()]
        if missing := [name for name in needed if name not in rows]:
            with naming(*files):
                among = ", ".join(map(repr, rows.columns))
                raise ValueError(f"no column {missing[0]!r} among {among}")
        rows = rows[needed].rename(columns=quoted)
        show(*_estimated(fit, rows, label, known, level), out, level)


def _estimated(
    fit: Any, rows: Any, label: str, given: dict[str, str], level: float
) -> tuple[Any, list[str]]:
    """Estimates of groups and the column of their labels, or the rows with their predictions."""
    from ebfed.report.view import LocationView

    if isinstance(fit.view(), LocationView):
        takes = fit.family().of_rows
        for name in given:
            if name not in takes:
                raise ValueError(f"{_option(name)} is not for a fit of {type(fit).__name__}")
        if fit.family().name == "binomial":
            rows = rows.assign(**{name: _events(rows[name]) for name in fit.feature_names_in_})
        return fit.posterior(rows, groups=label, **given).to_frame(level=level), [label]
    if given:
        option = _option(next(iter(given)))
        raise ValueError(f"{option} goes with a fit of counts, durations or means")
    return rows.assign(prediction=fit.predict(rows, groups=label)), []


def _events(values: Any) -> Any:
    """Return two labels as 0 and 1, the second in sorted order being the event, as in the fit."""
    if values.dtype.kind in "biuf":
        return values
    labels = sorted(values.dropna().astype(str).unique())
    if len(labels) != 2:
        raise ValueError(
            f"column {values.name!r} must hold 0 and 1, or two labels; it has {len(labels)}: "
            f"{', '.join(map(repr, labels[:5]))}"
        )
    return (values.astype(str) == labels[1]).astype(int).where(values.notna())


def _option(name: str) -> str:
    """Return the option that has the column of an argument of `posterior`."""
    return "--weight" if name == "sample_weight" else f"--{name}"
