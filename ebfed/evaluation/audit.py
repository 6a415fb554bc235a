"""The audit: lower bounds on the epsilon of every channel and every private learner.

Each registered channel with an epsilon reports on five clients of 14 rows on the range (0, 1): both
ends (counts 0 and 14), the middle, and values a thousand ranges outside, which must be clipped; in
one column, and in three with all coordinates alike (opposite corners). Of channels for categories
clients have 14 answers of one category each, or of all, of two categories and of three.
`ebfed.privacy.audit` distinguishes two of them by their simulated reports; how often this succeeds
bounds epsilon from below.

A channel passes if its bound is not above its claim. Broken channels fail; a channel that passes is
not proved to be private. The ratio of bound and claim measures how sharp the test is. With 200,000
reports it is 80 per cent and more where delta is 0, but 30 to 60 for Gaussian noise, whose epsilon
is reached only by events about as rare as delta. Too little Gaussian noise is detected at epsilon 1
and 4 if it is half of what it should be, at 0.5 if it is two fifths; a coin is detected if its
epsilon is 5 per cent too large. The page prints these ratios.

Learners are trained thousands of times with one client and without it
(`ebfed.evaluation.training_audit`): this tests clipping, sampling, noise and the account of all
rounds together. Or they are trained once, with many canaries (`ebfed.privacy.audit_one_run`), which
takes seconds and shows less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone

from ebfed.channels import Channel, Clip, Gaussian
from ebfed.channels.private import has_epsilon, make_private, registered
from ebfed.evaluation.study import each, records
from ebfed.evaluation.training_audit import Canary, audit_training
from ebfed.learning import PPSGD, ClientPrivacy, DPAdaPeD, DPFedAvg, FeO2, Learner
from ebfed.privacy import audit_one_run
from ebfed.privacy.audit import FEWEST, audit, largest_bound
from ebfed.privacy.calibration import check_count
from ebfed.report.summary import Text
from ebfed.tables.clients import Summary

__all__ = ["PrivacyAudit", "extremes", "run", "trials"]

EPSILONS = (0.5, 1.0, 4.0)
CANARIES = 1000  # of one training
WIDTH = 78
RULE = "-" * WIDTH
ONE_RUN_ERROR = 0.01  # of one training, which shows little at a smaller one


@dataclass(frozen=True)
class PrivacyAudit:
    """Results of the audit.

    Attributes
    ----------
    table : DataFrame
        A row for each channel, number of columns and epsilon, then for each learner: ``name``,
        ``channel`` (or learner, with all arguments), ``n_features``, the claimed ``epsilon`` and
        ``delta``, the bound ``lower``, the ``event`` behind it, and whether it ``passed``.
    not_private : tuple of str
        Channels without an epsilon.
    simulations : int
        Number of reports of each client.
    trainings : int
        Number of trainings of each learner with each of two inputs; 0 if learners were left out.
    one_run : bool
        Whether each learner was trained once, with many canaries, instead.
    n_learners : int
        Number of learners, the last rows of the table.
    too_few : tuple of str
        Learners left out: so few trainings cannot refute their claims.
    error : float
        Largest probability that any of the bounds exceeds the true epsilon, so that the audit of
        correct channels fails.
    """

    table: pd.DataFrame
    not_private: tuple[str, ...]
    simulations: int
    trainings: int
    one_run: bool
    n_learners: int
    too_few: tuple[str, ...]
    error: float

    @property
    def passed(self) -> bool:
        """Whether no claim was refuted."""
        return bool(self.table["passed"].all())

    def to_text(self) -> Text:
        """Return the results as a printed page."""
        rows = self.table.to_dict("records")
        channels = len(rows) - self.n_learners
        lines = [*_head(self.simulations), *(_line(row) for row in rows[:channels])]
        if self.n_learners:
            lines += _head_of_learners(self.trainings)
            lines += [_line(row) for row in rows[channels:]]
        return Text("\n".join([*lines, *self.conclusion()]))

    def conclusion(self) -> Iterator[str]:
        """Yield the last lines of the page: how strong the test was, and its result."""
        yield RULE
        yield "Strength of the test: how much of the claimed epsilon it has shown"
        count = len(self.table) - self.n_learners
        share = 100 * self.table["lower"] / self.table["epsilon"]
        channels, pure = self.table.index < count, self.table["delta"] == 0
        kinds = {
            "channels with delta 0": channels & pure,
            "channels with a delta": channels & ~pure,
            "learners": ~channels,
        }
        for kind, rows in kinds.items():
            if rows.any():
                low, high = share[rows].min(), share[rows].max()
                yield f"  {kind:<22} {low:.0f} to {high:.0f} %"
        yield "A mistake is noticed if it makes epsilon so large that the share exceeds 100 %."
        yield RULE
        failed = int((~self.table["passed"]).sum())
        if failed:
            yield f"{failed} of {len(self.table)} claims are refuted."
        else:
            yield f"None of {len(self.table)} claims is refuted, which does not prove them."
        yield f"All bounds hold together with probability {1 - self.error:g} or more."
        if self.too_few:
            yield f"Not tested, because trainings are too few: {', '.join(self.too_few)}."
        yield f"Not tested, because they have no epsilon: {', '.join(self.not_private)}."

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, lists and strings, ready for JSON."""
        return {
            "passed": self.passed,
            "simulations": self.simulations,
            "trainings": self.trainings,
            "one_run": self.one_run,
            "too_few": list(self.too_few),
            "error": self.error,
            "not_private": list(self.not_private),
            "table": records(self.table),
        }


def extremes(n_features: int = 1, n_rows: int = 14) -> Summary:
    """Return clients on the range (0, 1): at its ends, in its middle, and far outside.

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
    # all different, so that a report that depends on them identifies the client
    scatter = np.repeat(np.arange(5.0)[:, None], n_features, axis=1)
    return Summary(ids, np.full(5, n_rows), mean, scatter)


def one_sided(n_features: int, n_rows: int = 14) -> Summary:
    """Return clients all of whose answers are of one category, one for each, and one of all.

    Examples
    --------
    >>> one_sided(2).mean.tolist()
    [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]
    """
    ids = np.array([*(f"category {j}" for j in range(n_features)), "all"])
    counts = np.vstack([n_rows * np.eye(n_features), np.zeros(n_features)])
    counts[-1] = np.diff(np.linspace(0, n_rows, n_features + 1).astype(int))
    mean = counts / n_rows
    return Summary(ids, np.full(len(ids), n_rows), mean, n_rows * mean * (1 - mean))


def run(
    epsilons: Sequence[float] = EPSILONS,
    *,
    delta: float = 1e-5,
    simulations: int = 200_000,
    trainings: int = 0,
    one_run: bool = False,
    error: float = 1e-4,
    seed: int = 0,
    n_jobs: int = 1,
    show: Callable[[str], Any] = lambda line: None,
) -> PrivacyAudit:
    """Audit every registered channel at every epsilon, and every private learner at its own.

    Parameters
    ----------
    epsilons : sequence of float
    delta : float
        Delta of the channels that have one.
    simulations : int
        Number of reports of each client.
    trainings : int
        Number of trainings of each learner with each of two inputs, from 1,000 on; 0: no learners.
    one_run : bool
        Whether each learner is trained once with 1,000 canaries instead, at epsilon 4 and delta
        1e-5; each may fail with probability 0.01 more.
    error : float
        Probability that the audit of correct channels and learners fails, spread evenly over rows.
    seed : int
        Seed of all random numbers.
    n_jobs : int
        Number of processes for learners; -1: one for each core. Results do not depend on it.
    show : callable
        Called with each line of the page, but for its `conclusion`, as soon as it is known.

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
    claims = [trial for epsilon in epsilons for trial in _trials(epsilon, delta)]
    if not claims:
        raise ValueError("epsilons must name at least one epsilon.")
    claims.sort(key=lambda trial: (trial[0], trial[2], trial[1].guarantee(trial[2])[0]))
    if trainings and check_count("trainings", trainings) < FEWEST:
        raise ValueError(f"trainings must be 0, or at least {FEWEST:,}; got {trainings}.")
    if one_run:
        trainings = 0
    learners = list(trials()) if trainings or one_run else []
    common: dict[str, Any] = {"error": error / (len(claims) + len(learners)), "seed": seed}
    too_few = [
        name
        for name, learner, _ in learners
        if trainings and not _enough(learner, trainings, common["error"])
    ]
    learners = [trial for trial in learners if trial[0] not in too_few]
    rows: list[dict[str, Any]] = []
    for row in each(
        _audit_channel,
        [
            {"name": name, "channel": channel, "d": d, "simulations": simulations} | common
            for name, channel, d in claims
        ],
        label="channels",
    ):
        for line in [] if rows else _head(simulations):
            show(line)
        show(_line(row))
        rows.append(row)
    for line in _head_of_learners(trainings) if learners else []:
        show(line)
    for row in each(
        _audit_learner,
        [
            {"name": name, "learner": learner, "canary": canary, "simulations": trainings} | common
            for name, learner, canary in learners
        ],
        n_jobs=n_jobs,
        label="learners",
    ):
        show(_line(row))
        rows.append(row)
    everything = registered().values()
    return PrivacyAudit(
        table=pd.DataFrame(rows),
        not_private=tuple(sorted(cls.__name__ for cls in everything if not has_epsilon(cls))),
        simulations=int(simulations),
        trainings=int(trainings),
        one_run=one_run,
        n_learners=len(learners),
        too_few=tuple(too_few),
        error=error + (ONE_RUN_ERROR * len(learners) if one_run else 0.0),
    )


def _enough(learner: Learner, trainings: int, error: float) -> bool:
    """Whether so many trainings can show more than a learner claims."""
    privacy = learner.privacy
    assert privacy is not None
    assert privacy.epsilon is not None
    counted = trainings - trainings // 4
    return privacy.epsilon < largest_bound(counted, privacy.delta, error)


def _head(simulations: int) -> list[str]:
    """Return the first lines of the page."""
    return [
        "Audit of privacy: what can an attacker learn of one client?",
        f"The attacker sees {simulations:,} simulated reports of each of two clients, and has to",
        "tell whose they are. Success proves that epsilon is at least the number shown.",
        "=" * WIDTH,
        _cells("channel", "columns", "epsilon", "delta", "shown", "verdict"),
        RULE,
    ]


def _head_of_learners(trainings: int) -> list[str]:
    """Return the line between channels and learners."""
    how = f"{trainings:,} trainings with each of two inputs"
    if not trainings:
        how = f"one training with {CANARIES:,} canaries"
    return [RULE, f"learners, {how}", RULE]


def _line(row: dict[str, Any]) -> str:
    """Return a line for one claim; a failure has a second line, which says how it was shown."""
    verdict = ("passed" if row["lower"] > 0 else "nothing shown") if row["passed"] else "FAILED"
    numbers = (str(row["n_features"]), f"{row['epsilon']:.4g}", f"{row['delta']:g}")
    line = _cells(row["name"], *numbers, f"{row['lower']:.3f}", verdict)
    return line if row["passed"] else f"{line}\n    {row['event']}"


def _cells(name: str, columns: str, epsilon: str, delta: str, shown: str, verdict: str) -> str:
    return f"{name:<19}{columns:>9}{epsilon:>11}{delta:>10}{shown:>11}   {verdict}"


def _audit_channel(
    name: str, channel: Channel, d: int, simulations: int, error: float, seed: int
) -> dict[str, Any]:
    clients = one_sided(d) if channel.of_shares else extremes(d)
    found = audit(channel, clients, simulations=simulations, error=error, rng=seed)
    return {"name": name} | found.row()


def _audit_learner(
    name: str, learner: Any, canary: Canary, simulations: int, error: float, seed: int
) -> dict[str, Any]:
    if not simulations:
        # one training shows nothing at a delta of 0.1
        privacy = {"privacy__epsilon": 4.0, "privacy__delta": 1e-5, "privacy__bit_noise": None}
        learner = clone(learner).set_params(**privacy)
        once = audit_one_run(learner, canaries=CANARIES, error=ONE_RUN_ERROR, rng=seed)
        return {"name": name} | once.row()
    found = audit_training(learner, canary=canary, simulations=simulations, error=error, rng=seed)
    return {"name": name} | found.row()


def trials() -> Iterator[tuple[str, Learner, Canary]]:
    """Yield name, learner and canary of all audits: every private learner, and who is trusted.

    Examples
    --------
    >>> [name for name, _, _ in trials()][:3]
    ['DPFedAvg', 'DPFedAvg q=.2', 'DPFedAvg 5 of 10']
    """
    common: dict[str, Any] = {"n_rounds": 5, "learning_rate": 0.01}
    budget = ClientPrivacy(epsilon=3.0, delta=0.1)
    moved: dict[str, Any] = {"epsilon": 3.0, "delta": 0.1, "clip_quantile": 0.5, "clip_step": 0.02}
    local = ClientPrivacy(epsilon=3.0, delta=0.1, trust="none")
    yield "DPFedAvg", DPFedAvg(privacy=budget, **common), "beyond"
    yield "DPFedAvg q=.2", DPFedAvg(privacy=budget, **common, sample_rate=0.2), "beyond"
    less = ClientPrivacy(epsilon=5.0, delta=0.02)
    half = DPFedAvg(privacy=less, **common, sampling="fixed", sample_rate=0.5)
    yield "DPFedAvg 5 of 10", half, "beyond"
    # little more noise on bits than they need, so that they tell as much as they may
    bits = ClientPrivacy(**moved, bit_noise=0.5)
    yield "DPFedAvg bits", DPFedAvg(privacy=bits, **common, sample_rate=0.5), "beyond"
    yield "DPFedAvg no trust", DPFedAvg(privacy=local, **common), "beyond"
    yield "FeO2", FeO2(privacy=budget, **common, sample_rate=0.5, ratio=0.5), "beyond"
    more = ClientPrivacy(**moved, bit_noise=0.75)
    yield "FeO2 bits", FeO2(privacy=more, **common, ratio=0.5), "within"
    yield "FeO2 no trust", FeO2(privacy=local, **common), "beyond"
    published: dict[str, Any] = {"variant": "paper", "local_steps": 5, "psi_clip": 0.01}
    yield "DPAdaPeD", DPAdaPeD(privacy=budget, **common, **published), "beyond"
    yield "PPSGD q=.2", PPSGD(privacy=budget, **common, sample_rate=0.2), "beyond"
    yield "PPSGD no trust", PPSGD(privacy=local, **common, objective="rows"), "beyond"


def _trials(epsilon: float, delta: float) -> Iterator[tuple[str, Channel, int]]:
    """Yield name, channel and number of columns of all audits at one epsilon."""
    for cls in filter(has_epsilon, registered().values()):
        channel = make_private(cls, epsilon, delta=delta, range=(0, 1))
        for d in (2, 3) if cls.of_shares else (1, 3):
            if math.isfinite(channel.guarantee(d)[0]):
                yield cls.__name__, channel, d
    yield "Gaussian, ball", Clip(radius=0.5, centre=0.5) | Gaussian(epsilon, delta), 3
