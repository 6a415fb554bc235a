"""The command line: `ebfed fit`, `predict`, `county`, `audit`, `warm` and others.

Commands import what they need when they run, so that help and version are instant. Results are
printed to stdout; progress and errors to stderr. An error of the user ends with one line and exit
code 2.
"""

from __future__ import annotations

from typing import Annotated

import typer
import typer.core

import ebfed
from ebfed.cli import audit, budget, county, federate, fit, node, predict, warm

__all__ = ["app"]

# else Typer 0.20, which Flower needs, puts backslashes before brackets in plain help
typer.core.HAS_RICH = False

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog="""\b
Examples:
  ebfed fit scores.csv --group school --value score
  ebfed fit votes/*.parquet --group county --value won --family binomial --out rates.csv
  ebfed fit --help
  ebfed county --out results/
""",
)
app.command(epilog=fit.EXAMPLES)(fit.fit)
app.command(epilog=predict.EXAMPLES)(predict.predict)
app.command(epilog=county.EXAMPLES)(county.county)
app.command(epilog=audit.EXAMPLES)(audit.audit)
app.command()(warm.warm)
app.command(epilog=node.EXAMPLES)(node.node)
app.command(
    epilog=node.SUPERLINK_EXAMPLES,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)(node.superlink)
app.command()(node.login)
app.add_typer(federate.app, name="federate")
app.add_typer(budget.app, name="budget")


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

    Empirical Bayes for many groups with few rows each. The population of groups is learned from
    all of them, and the estimate of every group is shrunk towards it: the noisier the data of a
    group, the more.
    """
