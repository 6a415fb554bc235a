"""The command `ebfed county`."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import Annotated

import typer

from ebfed.cli.options import Json, errors_of_the_user

__all__ = ["county"]

EXAMPLES = """\b
Examples:
  ebfed county                          print the results
  ebfed county --out results/           also write tables (CSV) and figures (PNG)
  ebfed county --json | jq .table       results for other programs
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
        from ebfed.evaluation.county import run

        results = run()
        typer.echo(json_format.dumps(results.to_dict(), indent=2) if json else results.to_text())
        for path in results.save(out) if out is not None else ():
            typer.echo(f"Wrote {path}", err=json)
