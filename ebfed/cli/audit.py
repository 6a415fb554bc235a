"""The command `ebfed audit`."""

from __future__ import annotations

import json as json_format
from typing import Annotated

import typer

from ebfed.cli.errors import errors_of_the_user
from ebfed.cli.options import Json

__all__ = ["audit"]

EXAMPLES = """\b
Examples:
  ebfed audit                           every channel at epsilon 0.5, 1 and 4, and all learners
  ebfed audit --epsilon 2 --seed 7      channels at another epsilon, with another seed
  ebfed audit --one-run                 learners by one training each, in about a minute
  ebfed audit --trainings 0             channels only, in seconds
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
            help="Number of trainings of each learner with one client, and without it: about a "
            "minute; 0 for none.",
        ),
    ] = 4_000,
    one_run: Annotated[
        bool,
        typer.Option(
            "--one-run",
            help="Train each learner once with 1,000 canaries, in place of --trainings: faster, "
            "and shows less.",
        ),
    ] = False,
    seed: Annotated[int, typer.Option(metavar="NUMBER", help="Seed of all random numbers.")] = 0,
    json: Json = False,
) -> None:
    """Measure the privacy of every channel and every private learner, as a lower bound.

    Clients at the ends of the range and far outside it send simulated reports. An attacker
    distinguishes them by their reports; how often this succeeds bounds epsilon from below. Private
    learners are trained thousands of times with one client and without it; an attacker who sees
    what is published bounds the epsilon of clipping, sampling, noise and all rounds together. With
    --one-run each is trained once, with many such clients. The exit code is 1 if a bound is above
    the claimed epsilon: that claim is then wrong. A claim that passes is not proved.
    """
    with errors_of_the_user():
        from ebfed.studies.audit import EPSILONS, run

        found = run(
            epsilon or EPSILONS,
            delta=delta,
            simulations=simulations,
            trainings=trainings,
            one_run=one_run,
            seed=seed,
            n_jobs=-1,
        )
    typer.echo(json_format.dumps(found.to_dict(), indent=2) if json else found.to_text())
    if not found.passed:
        raise typer.Exit(1)
