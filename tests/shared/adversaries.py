"""A malicious server and a curious reader, and the one oracle of what they may learn.

The oracle knows the rows and the rules of their owner. It asks the node's code nothing: what left
is searched for figures that no rule lets out, and the rows of one person after another are changed,
to see which numbers are of too few.
"""

from __future__ import annotations

import itertools
import math
import shutil
from collections import defaultdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.stats import norm

import ebfed as eb
from ebfed import learning
from ebfed.channels import AddNoise, Clip, Exact, Gaussian, Laplace, TwoBit
from ebfed.engines import journal
from ebfed.engines.base import join
from ebfed.engines.flower import PlannedNode, plan_of_run
from ebfed.loading import METHODS
from ebfed.models import Linear, Softmax
from ebfed.streams import make_key

RNG = np.random.default_rng(11)
SIZE, LEAST, EPSILON, DELTA = 24, 3, 1.0, 1e-5
TABLE = pd.DataFrame(
    {
        "person": [f"p{i // 2:02d}" for i in range(SIZE)],
        "ward": np.repeat(["a", "b", "c"], SIZE // 3),
        "team": np.tile(["red", "blue"], SIZE // 2),
        "illness": np.where(np.arange(SIZE) % 7, "none", "rare"),
        "agrees": np.where(np.arange(SIZE) < 2 * SIZE // 3, "no", "yes"),
        "open": "open",
        "income": RNG.normal(3.0, 1.0, SIZE),
        "share": RNG.uniform(0.1, 0.9, SIZE),
        "years": RNG.uniform(1.0, 9.0, SIZE),
        "events": RNG.poisson(3.0, SIZE),
        "event": np.repeat(RNG.integers(0, 2, SIZE // 2), 2),  # so that each change is seen
        "skewed": np.where(np.arange(SIZE) % 11, 1e-7, 1.0) * RNG.uniform(0.5, 1.0, SIZE),
    }
)
ROLES = f"""min_group_size = {LEAST}
[rows]
path = "rows.parquet"
person = "person"
groups = ["ward", "team"]
consent = {{column = "agrees", open = ["yes"]}}
exposure = ["years"]
"""
# The owner's rules: a budget, or exact figures of enough persons.
BUDGET = f"epsilon = {EPSILON}\n{ROLES}"
COUNTED = "epsilon = inf\n" + ROLES.replace(', "team"', ', "team", "person", "illness"').replace(
    'exposure = ["years"]\n', ""
)
LABELS = ["person", "ward", "team", "illness", "agrees", "open"]
NUMBERS = ["income", "share", "years", "events", "skewed"]
PRIVATE = [
    Gaussian(epsilon=0.3, delta=1e-6, range=(0, 6)),
    Laplace(0.3, (0, 6)),
    TwoBit(0.3, range=(0, 6)),
]
CHANNELS = [Exact(), Clip((0, 6)), AddNoise(1e-9), *PRIVATE]
LEARNERS = [learning.FedAvg, learning.FedProx, learning.Scaffold, learning.Ditto]
LEARNERS += [learning.PerFedAvg, learning.PFedMe, learning.AdaPeD, learning.HierarchicalEB]
LEARNERS += [learning.FedMutual, learning.QuPeD]


class MaliciousServer:
    """Makes up plans and broadcasts within the protocol; asks again what was answered before."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._answered: list[tuple] = []

    def _one(self, *among: Any) -> Any:
        return among[self._rng.integers(len(among))]

    def heard(self, plan: tuple) -> None:
        """Note a plan that was answered."""
        self._answered.append(plan)

    def plan(self) -> tuple:
        """A method, columns, and what is changed in what it broadcasts."""
        if self._answered and self._one(True, True, False):
            estimator, columns, lie = self._answered[-1]
            return estimator, columns | {"groups": self._one(*LABELS[:3])}, lie
        means, trained = [self._means] * 4, [self._trained] * 2
        estimator, columns = self._one(*means, *trained, self._slopes)()
        columns["groups"] = self._one(*["ward", "team"] * 4, "person", *LABELS)
        if self._one(True, *[False] * 5):
            columns["consent"] = self._one("agrees", "agrees", *LABELS, "income")
        lie = {
            "invited": self._one("all", "all", "first", "first", "none"),
            "change": self._one(None, None, None, 0.0, -1.0, 1e9, math.nan),
        }
        return estimator, columns, lie

    def _channel(self) -> Any:
        names = self._one(("open",), ("open",), ("no", "yes"), ("no", "yes"), ("open", "private"))
        several = {name: self._one(*CHANNELS) for name in names}
        return self._one(self._one(*CHANNELS), self._one(*PRIVATE), several, several)

    def _means(self) -> tuple:
        channel, trust = self._channel(), self._one("server", "none")
        noisy = {"epsilon": 0.3, "delta": 1e-6}
        estimator, columns = self._one(
            (eb.GaussianEB(1.0, channel=channel), {"X": ["income"]}),
            (eb.GaussianEB(share=self._one("groups", "sums")), {"X": ["income"]}),
            (eb.VarianceEB(channel=channel), {"X": ["income"]}),
            (eb.MixtureEB(2, variances=1.0, channel=channel), {"X": ["income"]}),
            (eb.OptOutMean(1.0, 1.0, range=(0, 6), trust=trust, **noisy), {"X": ["income"]}),
            (eb.PoissonEB(channel=channel), {"X": ["events"]}),
            (eb.BernoulliEB(channel=channel), {"X": ["event"]}),
        )
        if columns["X"] == ["events"] and self._one(True, True, False):
            columns["exposure"] = self._one("years", "years", *NUMBERS)
        elif self._one(True, False, False, False):
            columns["sample_weight"] = self._one("years", *NUMBERS)
        if isinstance(channel, dict) and "no" in channel and hasattr(estimator, "channel"):
            columns["consent"] = "agrees"
        return estimator, columns

    def _covariates(self) -> list[str]:
        return self._one(["share"], ["share", "years"])  # that all rows have: see Rules

    def _slopes(self) -> tuple:
        share = self._one("groups", "sums")
        estimator, y = self._one(
            (eb.LinearEB(share=share), "income"),
            (eb.LinearEB(varying=["intercept"], share=share), "income"),
            (eb.MixtureLinearEB(2, n_rounds=3), "income"),
            (eb.AdaMix(2, n_rounds=3), "income"),
            (eb.LogisticEB(share=share), "event"),
        )
        return estimator, {"X": self._covariates(), "y": y}

    def _trained(self) -> tuple:
        columns = {"X": self._covariates(), "y": "income"}
        if self._one(True, False, False):
            columns["sample_weight"] = self._one("years", *NUMBERS)
        settings = {
            "n_rounds": self._one(1, 2),
            "local_steps": self._one(1, 2),
            "batch_size": self._one(None, None, 1, 1, 3, 12),
            "validation_fraction": self._one(0.0, 0.0, 0.1, 0.5),
            "evaluate_every": self._one(None, None, 1),
        }
        epsilon, clip = self._one(0.3, 0.9), self._one(0.1, 1e9)
        trust = self._one("server", "none")
        privacy = learning.ClientPrivacy(epsilon=epsilon, clip=clip, trust=trust)
        kind = self._one("plain", "plain", "plain", "promised", "private", "classes")
        if kind == "classes":
            return learning.FedAvg(Softmax(), n_rounds=1), columns | {"y": "illness"}
        if kind == "private":
            method = self._one(learning.DPFedAvg, learning.FeO2, learning.JointDPSGD)
            return method(Linear(), privacy=privacy, n_rounds=1), columns
        method = self._one(*LEARNERS)
        given = {"privacy": privacy} if kind == "promised" else {}
        return method(Linear(), **given, **settings), columns

    @staticmethod
    def ask(node: PlannedNode, plan: tuple, fit: int, rounds: int = 2) -> list[dict]:
        """Facts, and messages of some rounds, of a node that is asked: what it lets out."""
        estimator, columns, lie = plan
        found: list[dict] = []
        try:
            terms = {"plan": plan_of_run(estimator, columns), "fit": fit}
            answer = node.answer(0, {"exchange": "roll call"} | terms)
            if "failure" in answer:
                return found
            found.append(answer["facts"])
            protocol = estimator.protocol()
            state = protocol.start(answer["facts"], make_key(fit))
            last = min(rounds, state.get("n_rounds", rounds)) - 1  # no fit follows from it here
            for round_ in range(rounds):
                sent = changed(protocol.broadcast(state), lie["change"])
                turn = state["turn"].copy()
                if lie["invited"] != "all":
                    turn[0 if lie["invited"] == "none" else 1 :] = -1
                request = {"exchange": "round", "sent": sent, "turn": turn, "first": 0}
                message = node.answer(0, request | terms).get("message")
                if message is None:
                    break
                found.append(message)
                if round_ == last:
                    break
                state = protocol.update(state, join([message]))
                if state["done"]:
                    break
        except (ValueError, TypeError, AttributeError, KeyError, ArithmeticError):
            pass  # of the server's own copy
        return found


class CuriousReader:
    """Who reads what a server keeps and shows of fits, of whatever plan was answered."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, nodes: list[PlannedNode], plan: tuple, fit: int) -> list[str] | None:
        """Fit a plan at nodes; return the texts of its result, or None if there is none."""
        estimator, columns, _ = plan
        terms = {"plan": plan_of_run(estimator, columns), "fit": fit}
        facts = [self._asked(node, {"exchange": "roll call"} | terms, "facts") for node in nodes]
        try:
            state = estimator.protocol().start(join(facts), make_key(fit))
            first = np.cumsum([0, *(len(each["n"]) for each in facts)])
            while not state["done"]:
                sent, messages = estimator.protocol().broadcast(state), []
                for node, start, stop in zip(nodes, first[:-1], first[1:], strict=True):
                    request = {"exchange": "round", "sent": sent, "first": int(start)}
                    request["turn"] = state["turn"][start:stop]
                    messages.append(self._asked(node, request | terms, "message"))
                state = estimator.protocol().update(state, join(messages))
            fitted = estimator.protocol().conclude(state)
        except (ValueError, TypeError, KeyError, ArithmeticError, RuntimeError):
            return None
        path = self._folder / "fit.json"
        fitted.save(path)
        return [path.read_text(), str(fitted.summary()), fitted.privacy_.to_csv(), repr(fitted)]

    @staticmethod
    def _asked(node: PlannedNode, request: dict, part: str) -> Any:
        answer = node.answer(0, request)
        if part not in answer:
            raise RuntimeError(answer["failure"])
        return answer[part]


def changed(sent: Any, change: float | None) -> Any:
    """Replace the numbers of a broadcast, but for its round."""
    if change is None or not isinstance(sent, dict):
        return sent
    return {
        name: np.full_like(x, change) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x
        for name, x in sent.items()
    }


def numbers_of(sent: Any) -> list:
    """All numbers, and texts, in what was sent."""
    if isinstance(sent, dict):
        return list(itertools.chain.from_iterable(map(numbers_of, sent.values())))
    if isinstance(sent, list):
        return list(itertools.chain.from_iterable(map(numbers_of, sent)))
    return np.asarray(sent).ravel().tolist()


def _has_noise(estimator: Any) -> bool:
    channel = getattr(estimator, "channel", None)
    channels = channel.values() if isinstance(channel, dict) else [channel]
    noisy = (*map(type, PRIVATE), AddNoise)
    return (
        any(isinstance(each, noisy) for each in channels)
        or getattr(estimator, "privacy", None) is not None
        or getattr(estimator, "epsilon", None) is not None
    )


def _floats(sent: Any) -> list[float]:
    return [x for x in numbers_of(sent) if isinstance(x, float)]


class Oracle:
    """What the owner's table allows, from the rows alone."""

    def __init__(self, rules: str) -> None:
        self.budget = rules == BUDGET
        self.secrets = self._secrets()

    def _secrets(self) -> np.ndarray:
        """Figures of rows, persons, and groups of too few, or that did not all agree."""
        found: list[float] = []
        for column in ("income", "share", "years", "skewed"):
            found += TABLE[column].tolist()
            for label in LABELS:
                by = TABLE.groupby(label)
                kept = by["person"].nunique() >= LEAST
                if self.budget:
                    kept &= by["agrees"].apply(lambda x: (x == "yes").all())
                figures = pd.concat([by[column].mean(), by[column].sum()])
                if column == "years" and label in ("ward", "team"):  # an exposure
                    continue
                found += figures[~figures.index.map(kept)].tolist()
        return np.unique(np.array(found, float))

    def leaks(self, sent: Any) -> list:
        """The secrets among what was sent, to seven digits, and labels that are not public."""
        flat = numbers_of(sent)
        found = np.array([x for x in flat if isinstance(x, float)])
        at = np.searchsorted(self.secrets, found)
        above = self.secrets[at.clip(0, len(self.secrets) - 1)]
        below = self.secrets[(at - 1).clip(0)]
        close = np.minimum(np.abs(above - found), np.abs(below - found)) <= 1e-7 * np.abs(found)
        texts = {x for x in flat if isinstance(x, str)}
        hidden = {*TABLE["person"], *(TABLE["illness"] if self.budget else ())}
        return [*found[close].tolist(), *(texts & hidden)]

    def of_few(self, folder: Path, rules: str, plan: tuple, sent: list[dict]) -> list[str]:
        """Numbers without noise of too few persons, or of some who did not agree.

        Numbers are without noise if their plan has none, or another noise does not change them.
        They are of the persons whose rows change them. A change below a thousandth of the largest
        one is none, and so is one of rounding. Whoever changes how many numbers there are has
        changed all of them. Whether responses of a group differ is of all its persons, although
        often one alone can change it.
        """
        sent = [self._figures(x) for x in sent]
        if not self.budget and plan[2]["change"] == 1e9:  # far from all data, few rows have weight
            return []
        was = [np.array(_floats(x)) for x in sent]
        scale = [np.nan_to_num(np.abs(x)).max(initial=0.0) for x in was]
        again = self._again(node_of(folder / "noise", rules, seed=2), plan, was)
        if not self.budget and not _has_noise(plan[0]):
            again = [np.zeros(len(x)) for x in was]
        if again is None:
            return []
        exact = [x <= 1e-7 * s for x, s in zip(again, scale, strict=True)]
        if not any(((x != 0) & same).any() for x, same in zip(was, exact, strict=True)):
            return []
        persons, changes = TABLE["person"].unique(), []
        for person in persons:
            its = (TABLE["person"] == person).to_numpy()
            other = TABLE.copy()
            is_public = self.budget and plan[1].get("exposure") == "years"
            other.loc[its, ["income", "share", *([] if is_public else ["years"])]] *= 1.07
            other.loc[its, "event"] = 1 - other.loc[its, "event"]
            other.loc[its, "events"] += 1
            found = self._again(node_of(folder / person, rules, other), plan, was)
            changes.append([np.full(len(x), np.inf) for x in was] if found is None else found)
        agreed = (TABLE.groupby("person")["agrees"].first() == "yes")[persons].to_numpy()
        found = []
        for i in range(len(was)):
            sizes = np.array([each[i] for each in changes])
            moves = sizes > np.maximum(1e-3 * sizes.max(axis=0, initial=0.0), 1e-12 * scale[i])
            wrong = moves[~agreed].any(axis=0) if self.budget else moves.sum(axis=0) < LEAST
            at = np.flatnonzero(exact[i] & moves.any(axis=0) & wrong)
            found += [f"number {j} of message {i} is of {moves[:, j].sum()} persons" for j in at]
        return found

    @staticmethod
    def _figures(sent: dict) -> dict:
        return {name: x for name, x in sent.items() if name != "mixed"}

    @staticmethod
    def _again(node: PlannedNode, plan: tuple, was: list) -> list | None:
        """Changes of numbers at another node, or None if there are others."""
        now = [np.array(_floats(Oracle._figures(x))) for x in MaliciousServer.ask(node, plan, 0)]
        if [len(x) for x in now] != [len(x) for x in was]:
            return None
        return [np.abs(np.nan_to_num(y - x)) for x, y in zip(was, now, strict=True)]

    @staticmethod
    def spent(plans: list[tuple[tuple, list[dict]]]) -> float:
        """The least epsilon that the most asked person has lost, by plans that were answered.

        Pure guarantees add up, and those of Gaussian noise by their distances.
        """
        pure, gaussian = defaultdict(float), defaultdict(float)
        for (estimator, columns, _), sent in plans:
            if len(sent) < 2:
                continue
            channel = getattr(estimator, "channel", None)
            persons = TABLE.groupby(columns["groups"])["person"].unique()
            for person in itertools.chain.from_iterable(persons):
                if hasattr(channel, "delta"):
                    gaussian[person] += distance(channel.epsilon, channel.delta) ** 2
                elif hasattr(channel, "epsilon"):
                    pure[person] += channel.epsilon
        most = math.sqrt(max(gaussian.values(), default=0.0))
        return max(max(pure.values(), default=0.0), epsilon_of(most, DELTA) if most else 0.0)


def delta_of(mu: float, epsilon: float) -> float:
    """The delta of Gaussian noise at a distance (Balle and Wang, 2018)."""
    low = norm.logcdf(-epsilon / mu - mu / 2)
    return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon + low)


@lru_cache
def distance(epsilon: float, delta: float) -> float:
    return brentq(lambda mu: delta_of(mu, epsilon) - delta, 1e-4, 10)


def epsilon_of(mu: float, delta: float) -> float:
    return brentq(lambda epsilon: delta_of(mu, epsilon) - delta, 0, 100)


def node_of(folder: Path, rules: str, table: pd.DataFrame = TABLE, seed: int = 1) -> PlannedNode:
    """Make a node of these rows, whose noise is that of a seed, and which was asked nothing yet."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    table.to_parquet(folder / "rows.parquet", index=False)
    (folder / "node.toml").write_text(rules)
    return PlannedNode("north", folder, METHODS, seed=seed)


def kinds_of(folder: Path) -> list[str]:
    return [row["kind"] for row in journal.read(folder / "ledger.jsonl")]
