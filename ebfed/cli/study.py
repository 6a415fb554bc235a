"""The commands `ebfed county` and `ebfed study`."""

from __future__ import annotations

import importlib
import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ebfed.cli.errors import errors_of_the_user
from ebfed.cli.options import Json

if TYPE_CHECKING:
    from ebfed.studies.scaffold import Results

__all__ = ["county", "study"]

COUNTY_EXAMPLES = """\b
Examples:
  ebfed county                          print the results
  ebfed county --out results/           also write tables (CSV) and figures (PNG)
  ebfed county --json | jq .table       results for other programs
"""

EXAMPLES = """\b
Examples:
  ebfed study                           list the studies
  ebfed study bits --out results/       also write tables (CSV) and a figure (PNG)
  ebfed study private-means --quick     a small version, in seconds
  ebfed study private-rates --reps 50 --seed 1 --json | jq .table
"""


def county(
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write tables and figures to this directory.")
    ] = None,
    json: Json = False,
) -> None:
    """Run the study of county elections.

    Each of six presidential elections in 3,111 counties of the United States is predicted from the
    other five: by the share that the Republican won, and by empirical Bayes estimates. The data are
    part of the package.
    """
    with errors_of_the_user():
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
        from ebfed.studies.county import run

        _show(run(), out, json)


def study(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name of the study; without it, a list.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Run a small version.")] = False,
    reps: Annotated[
        int | None,
        typer.Option(metavar="COUNT", help="Number of runs, each with new simulated clients."),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(metavar="NUMBER", help="Seed of all random numbers; 0 if not given."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write tables and figures to this directory; an interrupted study continues from "
            "there.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Run a published experiment again, or measure the coverage of intervals.

    Results are the same for the same seed and number of runs, on any number of processor cores.
    """
    from ebfed.studies import STUDIES

    if name is None:
        for each, about in STUDIES.items():
            typer.echo(f"{each:<16} {about}")
        return
    with errors_of_the_user():
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
        _show(module.run(reps, 0 if seed is None else seed, quick=quick, keep=out), out, json)


def _show(results: Results, out: Path | None, json: bool) -> None:
    """Print the results, and write them to a directory."""
    typer.echo(json_format.dumps(results.to_dict(), indent=2) if json else results.to_text())
    if out is not None:
        for path in results.save(out):
            typer.echo(f"Wrote {path}", err=json)
