"""The audit: every channel's and every private learner's epsilon, measured from below.

Each registered channel that promises an epsilon is given five clients of 14 rows on the range
(0, 1): both ends (counts 0 and 14), the middle, and values a thousand ranges outside, which must be
clipped; in one column, and in three with all coordinates alike (opposite corners). From simulated
reports, `ebfed.privacy.audit` learns to tell two of them apart, and how often that succeeds bounds
epsilon from below.

A channel passes if its bound is not above its promise. Broken channels fail; that one passes does
not prove it sound. How much of the promise the bound reaches says how sharp the test is. With
200,000 reports it is 80 per cent and more where delta is 0, but 30 to 60 for Gaussian noise, whose
epsilon is reached only by events about as rare as delta. Such noise is found out at epsilon 1 and 4
if it is half of what it should be, at 0.5 if it is two fifths; a coin, if its epsilon is 5 per cent
too large.

Learners are trained thousands of times with one client and without it
(`ebfed.studies.training_audit`), which puts clipping, sampling, noise and the account of all rounds
to the test together.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ebfed import channels
from ebfed.channels import Channel, Clip, Gaussian
from ebfed.privacy.audit import audit
from ebfed.privacy.calibration import check_count
from ebfed.report.summary import Text
from ebfed.studies.scaffold import each, records
from ebfed.studies.training_audit import Canary, audit_training, trials
from ebfed.tables.clients import Summary

__all__ = ["PrivacyAudit", "extremes", "run"]

EPSILONS = (0.5, 1.0, 4.0)


@dataclass(frozen=True)
class PrivacyAudit:
    """Results of the audit.

    Attributes
    ----------
    table : DataFrame
        A row for each channel, number of columns and epsilon, then for each learner: ``name``,
        ``channel`` (or learner, with all arguments), ``n_features``, the promise ``epsilon`` and
        ``delta``, the bound ``lower``, the ``event`` that it rests on, and whether it ``passed``.
    unpromised : tuple of str
        Channels that promise nothing.
    simulations : int
        Reports of each client.
    trainings : int
        Of each learner, with each of two inputs; 0 if learners were left out.
    error : float
        Probability, at most, with which any of the bounds exceeds the true epsilon: that the audit
        of sound channels fails.
    """

    table: pd.DataFrame
    unpromised: tuple[str, ...]
    simulations: int
    trainings: int
    error: float

    @property
    def passed(self) -> bool:
        """Whether no promise was refuted."""
        return bool(self.table["passed"].all())

    def to_text(self) -> Text:
        """Return the results as a printed page."""
        rule = "-" * 98
        lines = [
            f"Privacy from below: what {self.simulations:,} reports of each client show of epsilon",
            "=" * 98,
            f"{'channel':<19}{'columns':>7}{'epsilon':>9}{'delta':>8}{'at least':>10}{'':10}"
            "probability of an event",
            rule,
        ]
        learners = len(self.table) - len(list(trials())) if self.trainings else -1
        for row in self.table.itertuples():
            if row.Index == learners:
                lines += [rule, f"learners, {self.trainings:,} trainings with either input", rule]
            lines.append(
                f"{row.name:<19}{row.n_features:>7}{row.epsilon:>9g}{row.delta:>8g}"
                f"{row.lower:>10.3f}  {'' if row.passed else 'FAILED':<8}{row.event}"
            )
        failed = int((~self.table["passed"]).sum())
        verdict = f"{failed} of {len(self.table)} promises are refuted."
        if not failed:
            verdict = f"None of {len(self.table)} promises is refuted, which does not prove them."
        lines += [
            rule,
            verdict,
            f"All bounds hold together with probability {1 - self.error:g} or more.",
            f"Promising nothing: {', '.join(self.unpromised)}.",
        ]
        return Text("\n".join(lines))

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, lists and strings, ready for JSON."""
        return {
            "passed": self.passed,
            "simulations": self.simulations,
            "trainings": self.trainings,
            "error": self.error,
            "unpromised": list(self.unpromised),
            "table": records(self.table),
        }


def extremes(n_features: int = 1, n_rows: int = 14) -> Summary:
    """Clients to tell apart on the range (0, 1): its ends, its middle, and far outside.

    Parameters
    ----------
    n_features, n_rows : int

    Returns
    -------
    Summary of five clients

    Examples
    --------
    >>> extremes().mean.ravel()
    array([-1.000e+03,  0.000e+00,  5.000e-01,  1.000e+00,  1.001e+03])
    """
    ids = np.array(["far below", "low", "middle", "high", "far above"])
    places = np.array([-1000.0, 0.0, 0.5, 1.0, 1001.0])
    mean = np.repeat(places[:, None], n_features, axis=1)
    # all different, so that a report that gives them away gives the client away
    scatter = np.repeat(np.arange(5.0)[:, None], n_features, axis=1)
    return Summary(ids, np.full(5, n_rows), mean, scatter)


def run(
    epsilons: Sequence[float] = EPSILONS,
    *,
    delta: float = 1e-5,
    simulations: int = 200_000,
    trainings: int = 0,
    error: float = 1e-4,
    seed: int = 0,
    n_jobs: int = 1,
) -> PrivacyAudit:
    """Audit every registered channel at every epsilon, and every private learner at its own.

    Parameters
    ----------
    epsilons : sequence of float
    delta : float
        Of the channels that have one.
    simulations : int
        Reports of each client.
    trainings : int
        Of each learner, with each of two inputs: 4,000 take about a minute. 0: no learners.
    error : float
        Probability with which the audit of what is sound may fail, spread evenly over all rows.
    seed : int
    n_jobs : int
        Processes for learners; -1: one for each core. Results do not depend on it.

    Returns
    -------
    PrivacyAudit

    Raises
    ------
    ValueError
        If an argument is out of range, or an epsilon is too large to be refuted.

    Examples
    --------
    >>> run([1.0], simulations=2000).passed
    True
    """
    channels_ = [trial for epsilon in epsilons for trial in _trials(epsilon, delta)]
    if not channels_:
        raise ValueError("epsilons must name at least one epsilon.")
    if trainings:
        check_count("trainings", trainings)
    learners = list(trials()) if trainings else []
    common: dict[str, Any] = {"error": error / (len(channels_) + len(learners)), "seed": seed}
    rows = list(
        each(
            _audit_channel,
            [
                {"name": name, "channel": channel, "d": d, "simulations": simulations} | common
                for name, channel, d in channels_
            ],
            label="audits of channels",
        )
    )
    rows.sort(key=lambda row: (row["name"], row["n_features"], row["epsilon"]))
    rows += each(
        _audit_learner,
        [
            {"name": name, "learner": learner, "canary": canary, "simulations": trainings} | common
            for name, learner, canary in learners
        ],
        n_jobs=n_jobs,
        label="audits of learners",
    )
    unpromised = tuple(sorted(cls.__name__ for cls in _registered() if not _promises(cls)))
    return PrivacyAudit(pd.DataFrame(rows), unpromised, int(simulations), int(trainings), error)


def _audit_channel(
    name: str, channel: Channel, d: int, simulations: int, error: float, seed: int
) -> dict[str, Any]:
    found = audit(channel, extremes(d), simulations=simulations, error=error, rng=seed)
    return {"name": name} | found.row()


def _audit_learner(
    name: str, learner: Any, canary: Canary, simulations: int, error: float, seed: int
) -> dict[str, Any]:
    found = audit_training(learner, canary=canary, simulations=simulations, error=error, rng=seed)
    return {"name": name} | found.row()


def _registered() -> list[type[Channel]]:
    found = [getattr(channels, name) for name in channels.__all__]
    return [
        cls
        for cls in found
        if isinstance(cls, type) and issubclass(cls, Channel) and not inspect.isabstract(cls)
    ]


def _promises(cls: type[Channel]) -> bool:
    return "epsilon" in inspect.signature(cls).parameters


def _trials(epsilon: float, delta: float) -> Iterator[tuple[str, Channel, int]]:
    """Yield name, channel and number of columns of all audits at one epsilon."""
    arguments = {"epsilon": epsilon, "delta": delta, "range": (0, 1)}
    for cls in filter(_promises, _registered()):
        names = arguments.keys() & inspect.signature(cls).parameters.keys()
        channel = cls(**{name: arguments[name] for name in names})
        for d in (1, 3):
            if math.isfinite(channel.guarantee(d)[0]):
                yield cls.__name__, channel, d
    yield "Gaussian, ball", Clip(radius=0.5, centre=0.5) | Gaussian(epsilon, delta), 3
