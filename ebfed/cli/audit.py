"""The command `ebfed audit`."""

from __future__ import annotations

import json as json_format
from typing import Annotated

import typer

from ebfed.cli.options import Json, errors_of_the_user

__all__ = ["audit"]

EXAMPLES = """\b
Examples:
  ebfed audit                           every channel at epsilon 0.5, 1 and 4, and all learners
  ebfed audit --trainings 4000          the same; shows more of learners, in four times the time
  ebfed audit --epsilon 2 --seed 7      channels at another epsilon, with another seed
  ebfed audit --trainings 0             channels only, in seconds
  ebfed audit --one-run                 learners by one training each
  ebfed audit --json | jq .passed       results for other programs
"""


def audit(
    epsilon: Annotated[
        list[float] | None,
        typer.Option(metavar="NUMBER", help="Epsilon to test; may be repeated."),
    ] = None,
    delta: Annotated[
        float, typer.Option(metavar="NUMBER", help="Delta of channels that have one.")
    ] = 1e-5,
    simulations: Annotated[
        int, typer.Option(metavar="COUNT", help="Number of reports of each client.")
    ] = 200_000,
    trainings: Annotated[
        int,
        typer.Option(
            metavar="COUNT",
            help="Number of trainings of each learner with one client, and without it, from 1000 "
            "on; 0 for none.",
        ),
    ] = 1_000,
    one_run: Annotated[
        bool,
        typer.Option(
            "--one-run",
            help="Train each learner once, with 1,000 canaries, in place of --trainings: shows "
            "less.",
        ),
    ] = False,
    seed: Annotated[int, typer.Option(metavar="NUMBER", help="Seed of all random numbers.")] = 0,
    json: Json = False,
) -> None:
    """Test the privacy of every channel and every private learner.

    An attacker sees simulated reports of two clients and has to tell whose they are. The clients
    are at the ends of the range and far outside it. How often the attacker succeeds proves that
    epsilon is at least some number. If this number is above the claimed epsilon, the claim is
    wrong: the line says FAILED, and the exit code is 1. A claim that passes is not proved.

    Learners are trained many times with one client and without it, and the attacker sees what is
    published. This tests clipping, sampling, noise and all rounds together. With --one-run each is
    trained once, with many such clients.
    """
    with errors_of_the_user():
        from ebfed.evaluation.audit import EPSILONS, run

        found = run(
            epsilon or EPSILONS,
            delta=delta,
            simulations=simulations,
            trainings=trainings,
            one_run=one_run,
            seed=seed,
            n_jobs=-1,
            show=(lambda line: None) if json else _show,
        )
        if json:
            typer.echo(json_format.dumps(found.to_dict(), indent=2))
        else:
            typer.echo("\n".join(found.conclusion()))
    if not found.passed:
        raise typer.Exit(1)


def _show(line: str) -> None:
    """Print a line at once, above the progress bar."""
    from tqdm import tqdm

    with tqdm.external_write_mode():
        typer.echo(line)
