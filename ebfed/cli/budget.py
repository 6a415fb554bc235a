"""The commands `ebfed budget …`: what a node has spent, what a run would cost, what is left."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ebfed.cli.options import errors_of_the_user

if TYPE_CHECKING:
    from ebfed.engines.flower.rules import Rules

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""See the privacy budget of a node.

    The owner of a node writes node.toml into its directory: the budget and other rules. The node
    writes ledger.jsonl beside it.""",
    epilog="""\b
Examples:
  ebfed budget show nodes/north
  ebfed budget plan nodes/north app
  ebfed budget export nodes/north > ledger.csv
""",
)

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="The node's own directory.")]


@app.command()
def show(directory: Directory) -> None:
    """Show the rules, what was spent in each run, and what is left."""
    with errors_of_the_user():
        from ebfed.engines.flower.account import Account
        from ebfed.privacy.ledger import NO_PROMISE, is_simulated

        account = Account(directory)
        releases = [row for row in account.entries if row["kind"] == "release"]
        fake = {row["run"] for row in releases if is_simulated([row])}
        typer.echo(_rules(account.rules))
        for row in account.runs:
            cost = f"epsilon {_figure(row['epsilon'])} at delta {row['delta']:g}"
            if row["run"] in fake:
                cost += f" with real noise; this was {NO_PROMISE}"
            typer.echo(
                f"Run {row['run']} ({row['time']}): {row['method']}, {row['groups']} groups "
                f"({row['who']}), {row['rounds']} rounds, {cost}."
            )
        if not account.spent:
            typer.echo("Nobody has spent anything.")
        else:
            typer.echo(
                f"Spent: {len(account.spent)} persons were asked. The one who has spent most has "
                f"spent epsilon {account.most:.4g}, all runs together."
            )
        if math.isfinite(account.rules.epsilon):
            typer.echo(f"Left: one more run of epsilon up to {account.left():.3g}, of everybody.")


@app.command()
def plan(
    directory: Directory,
    project: Annotated[
        Path, typer.Argument(metavar="APP", help="Folder of the server's model.py.")
    ],
) -> None:
    """Show what a run of a project would cost, and whether the node would take part.

    The rows are read as the node would read them. The exit code is 1 if the node would refuse.
    """
    with errors_of_the_user():
        from ebfed.engines.flower.account import Account, plan_of

        account = Account(directory)
        typer.echo(_rules(account.rules))
        gate, plans = plan_of(project, directory, account.rules)
        for each in plans:
            typer.echo(
                f"{gate.method} would take from {int(each.members.sum())} groups ({each.who}), in "
                f"{each.rounds or 'any number of'} rounds: epsilon {_figure(each.epsilon)} at "
                f"delta {each.delta:g}."
            )
        new = gate.charged(plans, 0)
        total = gate.total(new, account.entries)
        typer.echo(f"Together with earlier runs: epsilon {total:.4g} of {account.rules.epsilon:g}.")
        try:
            gate.check_plans(plans)
            gate.check_run(new)
        except ValueError as error:
            typer.echo(f"The node would refuse: {error}")
            raise typer.Exit(1) from None
        if total > account.rules.epsilon * (1 + 1e-9):
            typer.echo("The node would refuse: this is above the budget.")
            raise typer.Exit(1)
        typer.echo("The node would take part.")


@app.command()
def export(directory: Directory) -> None:
    """Print the ledger as a CSV file, a line for each plan and each release."""
    with errors_of_the_user():
        import pandas as pd

        from ebfed.engines.flower.account import Account
        from ebfed.tables.spreadsheets import without_formulas

        names = ["time", "run", "kind", "round", "method", "who", "what", "groups", "rounds"]
        names += ["epsilon", "delta", "relation", "assumptions", "bits"]
        rows = []
        for row in Account(directory).entries:
            count = len(row["groups"]) if row["kind"] == "plan" else row["clients"]
            cost = "inf" if row["epsilon"] is None else row["epsilon"]
            rows.append(row | {"groups": count, "epsilon": cost})
        table = pd.DataFrame(rows, columns=names)
        typer.echo(without_formulas(table).to_csv(index=False), nl=False)


def _rules(rules: Rules) -> str:
    from ebfed.engines.flower.threat import in_words

    if not math.isfinite(rules.epsilon):
        return f"Budget: no limit; {in_words(rules, spent=None)}."
    return f"Budget: epsilon {rules.epsilon:g} at delta {rules.delta:g} for each person, all runs."


def _figure(epsilon: float) -> str:
    return f"{epsilon:.4g}" if math.isfinite(epsilon) else "unlimited (no guarantee)"
