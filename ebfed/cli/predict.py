"""The command `ebfed predict`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ebfed.cli.fit import show, shrink, warnings_in_a_line
from ebfed.cli.options import Decimal, Encoding, NaValues, Separator, errors_of_the_user

__all__ = ["EXAMPLES", "predict"]

EXAMPLES = """\b
Examples:
  ebfed predict fit.json scores.csv
      estimates of the groups of a table, from its rows and the population of a fit
  ebfed predict fit.json deaths.csv --exposure years --out rates.csv
      of counts with exposures, written to a table
  ebfed predict past.json later.csv --group school --value effect --std-error se
      estimates with standard errors, by the population that fit --std-error saved
"""


class Predicted(StrEnum):
    """What is predicted of rows."""

    response = "response"
    rate = "rate"
    link = "link"


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
    std_error: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of standard errors, of a saved population."),
    ] = None,
    type: Annotated[
        Predicted,
        typer.Option(
            help="Of rows by a formula: the expected response as given, counts at their exposures "
            "and probabilities included; the rate, at an exposure of 1; or the linear predictor.",
        ),
    ] = Predicted.response,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write all to this .csv or .parquet.")
    ] = None,
    level: Annotated[float, typer.Option(metavar="SHARE", help="Probability of intervals.")] = 0.95,
    sep: Separator = ",",
    encoding: Encoding = "utf-8",
    decimal: Decimal = ".",
    na_values: NaValues = None,
) -> None:
    """Estimate groups of a table with a saved fit, or predict its rows.

    Means and rates of groups are estimated from the rows of the table and the population of the
    fit, so groups may be new. By a regression, rows are predicted with the coefficients of their
    groups in the fit, and of new groups with the mean of the population: the expected response of
    each row as given; of more than two classes without an order, the probability of each. A formula
    'y | group' asks for means of groups, 'y ~ 1 + (1 | group)' for those of rows.
    """
    from ebfed.designs.grammar import parse
    from ebfed.formula import FormulaFit
    from ebfed.loading import load_fit
    from ebfed.priors import Prior
    from ebfed.report.view import LocationView, view_of
    from ebfed.tables.dialect import Dialect
    from ebfed.tables.files import format_of, naming, read_rows

    with errors_of_the_user(), warnings_in_a_line(summarised=False):
        if out is not None:
            with naming(out):
                format_of(out)
        if not 0 < level < 1:
            raise ValueError(f"--level must lie between 0 and 1; got {level}")
        fit, dialect = load_fit(file), Dialect.checked(sep, encoding, decimal, na_values)
        if isinstance(fit, Prior) != (std_error is not None):
            raise ValueError("--std-error goes with a population that `fit --std-error` saved")
        if std_error is not None:
            if group is None or value is None:
                raise ValueError("--std-error goes with --group and --value")
            shrink(files, (group, value, std_error), fit, False, dialect, out, level)
            return
        view = view_of(fit)
        label = view.style.group if group is None else group
        by_formula = isinstance(fit, FormulaFit)
        # 'y | group', as the options --group and --value are written: columns may have other names
        of_groups = by_formula and "~" not in fit.formula and isinstance(view, LocationView)
        labels = parse(fit.formula).levels if by_formula and not of_groups else [label]
        rows = read_rows(files, labels, dialect)
        if by_formula and not of_groups:
            given = {"value": value, "exposure": exposure, "observed": observed, "weight": weight}
            for name, column in given.items():
                if column is not None:
                    raise ValueError(f"--{name} goes with a fit without a formula")
            if label != view.style.group:
                raise ValueError(f"the formula names the groups: {view.style.group!r}")
            found = fit.predict(rows, type=type.value)
            shares = {"prediction": found}
            if found.ndim == 2:  # probabilities of classes
                classes = map(str, fit.classes_.tolist())
                shares = {f"prediction_{k}": x for k, x in zip(classes, found.T, strict=True)}
            show(rows.assign(**shares), [], out, level)
            return
        if type is not Predicted.response:
            raise ValueError(
                "--type goes with a fit by --formula; other fits print rates of groups"
            )
        weighted = fit.get_params()["weights"] if by_formula else None
        names = [view.response] if by_formula else view.columns
        # of labels the fit has categories, and no name of their column
        own = names[0] if len(names) == 1 else value
        columns = {name: name for name in names} if value is None else {value: own}
        options = {"exposure": exposure, "observed": observed, "sample_weight": weight or weighted}
        known = {name: column for name, column in options.items() if column is not None}
        needed = [label, *columns, *known.values()]
        if missing := [name for name in needed if name not in rows]:
            with naming(*files):
                among = ", ".join(map(repr, rows.columns))
                raise ValueError(f"no column {missing[0]!r} among {among}")
        if by_formula:
            if weight is not None and weighted is None:
                raise ValueError("--weight goes with a fit that had one")
            columns |= {label: view.style.group} | ({weight: weighted} if weight else {})
            others = {new for old, new in columns.items() if new != old}
            rows = rows.drop(columns=others & set(rows)).rename(columns=columns)
        else:
            rows = rows[needed].rename(columns=columns)
        show(*_estimated(fit, rows, label, known, level), out, level)


def _estimated(
    fit: Any, rows: Any, label: str, given: dict[str, str], level: float
) -> tuple[Any, list[str]]:
    """Estimates of groups and the column of their labels, or the rows with their predictions."""
    from ebfed.formula import FormulaFit
    from ebfed.report.view import LocationView, view_of

    if not isinstance(view_of(fit), LocationView):
        if given:
            option = _option(next(iter(given)))
            raise ValueError(f"{option} goes with a fit of counts, durations or means")
        return rows.assign(prediction=fit.predict(rows, groups=label)), []
    takes = fit.protocol().family.of_rows
    for name in given:
        if name not in takes:
            raise ValueError(f"{_option(name)} is not for a fit of {type(fit).__name__}")
    if isinstance(fit, FormulaFit):
        return fit.posterior(rows).to_frame(level=level), [view_of(fit).style.group]
    return fit.posterior(rows, groups=label, **given).to_frame(level=level), [label]


def _option(name: str) -> str:
    """Return the option that has the column of an argument of `posterior`."""
    return "--weight" if name == "sample_weight" else f"--{name}"
