"""Means of groups by sums: a normal population is fitted to sums over groups alone.

First clients send the sums of their means and of their scatters. Then the server searches for the
variances as it does with the means of all groups, and asks for the sums at each ratio of variances
that it comes to; see `ebfed.priors.variance_components`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypedDict, cast

import numpy as np
from numpy.typing import NDArray

from ebfed.engines.protocol import (
    LocationFacts,
    LocationMemory,
    LocationSent,
    LocationState,
    Message,
)
from ebfed.engines.robust import largest_move
from ebfed.engines.sums import check_sums, sums_of, total, totals_of
from ebfed.families import Gaussian
from ebfed.location.rounds import LocationRounds
from ebfed.priors import Normal, Prior
from ebfed.priors.search import Unanswered
from ebfed.priors.variance_components import SummedGaussian
from ebfed.privacy import ledger
from ebfed.privacy.odometer import Plan
from ebfed.tables.clients import Summary

__all__ = ["Question", "SumRounds"]

# Largest number of rounds: a search of one column takes some twenty.
MOST_ROUNDS = 100
# Least standard error of averages of weighted squares, as a share.
FLOOR = 0.25
# Entry of the last settings: how many rounds there were, and how many sums of each block.
ASKED_FOR = "asked for"
SENDS = "sums over groups of their means and squares, weighted for the population, as they are"


class Question(TypedDict):
    """What sums the server of a location estimator asks for.

    Attributes
    ----------
    columns, ratios : ndarrays of shape (k,)
        Columns, and ratios of the variance between groups to that of rows; none in the first round.
    units, centre : ndarrays of shape (d,)
        Variance of a row, in which ratios are, and what is subtracted from means.
    """

    columns: NDArray[np.int64]
    ratios: NDArray[np.float64]
    units: NDArray[np.float64]
    centre: NDArray[np.float64]


class SumRounds(LocationRounds):
    """Clients send sums; the server searches for the variances of a normal population."""

    begins_again = True

    def local(
        self, sent: LocationSent, memory: LocationMemory, clients: Summary, rng: Any
    ) -> tuple[dict[str, Message], LocationMemory]:
        """Send sums over the clients that are asked."""
        asked = memory["turn"] == 0
        report = memory["report"].copy()
        report[asked] = clients.mean[asked]
        parts = _figures(clients.take(asked), sent["question"])
        return cast(Any, sums_of(parts)), memory | {"report": report}

    def plan(self, sent: LocationSent, memory: LocationMemory, clients: Summary) -> list[Plan]:
        """State all that a run may take from clients: an answer in every round."""
        plans = super().plan(sent, memory, clients)
        return [replace(each, rounds=MOST_ROUNDS) for each in plans]

    def releases(
        self, sent: LocationSent, memory: LocationMemory, clients: Summary
    ) -> list[dict[str, Any]]:
        row = ledger.disclosure(SENDS, int((memory["turn"] == 0).sum()), 0.0)
        if "question" in sent:
            shapes = _shapes(sent["question"], clients.n_features)
            return [row | {"bits": 64.0 * sum(math.prod(shape) for shape in shapes.values())}]
        whole = sent["settings"][ASKED_FOR]
        return [row | {"times": whole["rounds"], "bits": 64.0 * whole["numbers"]}]

    def start(self, facts: LocationFacts, key: NDArray) -> LocationState:
        """Return the state before the first round.

        Raises
        ------
        ValueError
            If the population or a channel needs the message of each group.
        """
        searched = isinstance(self.prior, Normal) and self.prior.variance is None
        searched = searched and not self.prior.is_fitted
        if not searched or len(self.channels) > 1 or not self.all_exact:
            first, *more = self.channels.values()
            channels = self.channels if more else first
            raise ValueError(
                "share must be 'groups', unless prior is 'normal' with an open variance, and "
                "channel is channels.Exact(): others need a message of each group; got "
                f"share='sums', {self.prior!r} and {channels!r}."
            )
        state = super().start(facts, key)
        if state["covariates"].size:
            raise ValueError("share must be 'groups' with covariates or levels; got 'sums'.")
        if state["weight"] is not None:
            raise ValueError("share must be 'groups' where rows have weights; got 'sums'.")
        d = state["n_features"]
        question: Question = {
            "columns": np.zeros(0, np.int64),
            "ratios": np.zeros(0),
            "units": np.ones(d),
            "centre": np.zeros(d),
        }
        return state | {"question": question, "answers": {}}

    def broadcast(self, state: LocationState) -> LocationSent:
        """Return what is asked; in the end, the fitted population."""
        sent = super().broadcast(state)
        return sent if state["done"] else sent | {"question": state["question"]}

    def check_message(
        self,
        message: dict[str, Message],
        facts: LocationFacts,
        sent: LocationSent,
        turn: NDArray,
    ) -> None:
        shapes = _shapes(sent["question"], int(facts["n_features"][0]))
        check_sums(message, shapes, int((turn == 0).sum()))

    def update(self, state: LocationState, messages: dict[str, Message]) -> LocationState:
        """Go on with the search, to the next question or to the end."""
        question, answers = state["question"], dict(state["answers"])
        shapes = _shapes(question, state["n_features"])
        asked = int((state["turn"] == 0).sum())
        answers |= totals_of(cast(Any, messages), shapes, asked) if not answers else {}
        if len(question["ratios"]):
            sums = totals_of(cast(Any, messages), shapes, asked)["sums"]
            for name, values in (*question.items(), ("sums", sums)):
                if name in ("columns", "ratios", "sums"):
                    before = [answers[name]] if name in answers else []
                    answers[name] = np.concatenate([*before, cast(NDArray, values)])
        state = state | {"answers": answers, "round": state["round"] + 1}
        try:
            prior = self.fit_prior(state)
        except Unanswered as open_:
            if state["round"] >= MOST_ROUNDS:
                raise RuntimeError(f"the search did not end in {MOST_ROUNDS} rounds.") from open_
            return state | {"question": self._next(state, sorted(set(open_.question)))}
        numbers = 3 * state["n_features"] + 4 * len(answers.get("ratios", ()))
        asked_for = {"rounds": state["round"], "numbers": numbers}
        settings = [state["settings"][0] | {ASKED_FOR: asked_for}]
        ended = self.finished(cast(LocationState, state | {"settings": settings}), prior)
        return cast(
            LocationState, {k: x for k, x in ended.items() if k not in ("question", "answers")}
        )

    def shifts(
        self, before: LocationState, after: LocationState, messages: Sequence[Any]
    ) -> NDArray[np.float64]:
        """Return how far each node moves the averages of a round, in standard errors of others'.

        Later sums depend on numbers of rows: what their squares may differ by has a floor.
        """
        counts = np.array([each["clients"].sum() for each in messages])
        shapes = _shapes(before["question"], before["n_features"])
        sums = {
            name: np.array([total(each[name]).reshape(shape) for each in messages])
            for name, shape in shapes.items()
        }
        if "sums" in sums:
            first, second, _, fourth = np.moveaxis(sums["sums"], 2, 0)
            return np.fmax(
                _shifts_of_sums(first, counts, fourth), _shifts_of_sums(second, counts, least=FLOOR)
            )
        asked = np.split(before["n"][before["turn"] == 0], np.cumsum(counts)[:-1].astype(int))
        degrees = np.array([np.maximum(n - 1, 0).sum() for n in asked], float)
        means = _shifts_of_sums(sums["mean"], counts, sums["square"])
        return np.fmax(means, _shifts_of_sums(sums["scatter"], degrees))

    def _next(self, state: LocationState, asked: list[tuple[int, float]]) -> Question:
        likelihood = self.likelihood(state)
        columns, ratios = zip(*asked, strict=True)
        return {
            "columns": np.array(columns, np.int64),
            "ratios": np.array(ratios),
            "units": self._units(state),
            "centre": likelihood.centre,
        }

    def _units(self, state: LocationState) -> NDArray[np.float64]:
        """Variance of a row, in which ratios are: 1 where it is learned, 0 where there is none."""
        if self.fitted_family.needs_scatter:
            return (state["answers"]["scatter"] > 0).astype(float)
        return cast(Gaussian, self.fitted_family).noise_variance(state["n_features"])

    def likelihood(self, state: LocationState) -> SummedGaussian:
        """Likelihood of all means, of which sums are known."""
        answers, n = state["answers"], np.where(state["turn"] == 0, state["n"], 0)
        has_data = max(int((n > 0).sum()), 1)
        figures = {"n": n, "mean": np.full((len(n), state["n_features"]), np.nan)}
        figures["scatter"] = np.zeros_like(figures["mean"])
        plain = cast(Gaussian, self.fitted_family).likelihood(figures)
        known = {}
        if "sums" in answers:
            keys = zip(answers["columns"].tolist(), answers["ratios"].tolist(), strict=True)
            known = dict(zip(keys, answers["sums"], strict=True))
        return SummedGaussian(
            plain.values,
            plain.variances,
            answers["scatter"] if plain.scatter is not None else None,
            plain.degrees,
            answers["mean"] / has_data,
            known,
        )

    def fit_prior(self, state: LocationState) -> Prior:
        """Fit the prior to what is known, or come to the next question."""
        prior = type(self.prior)(**self.prior.get_params(deep=False))
        return prior.fit(self.likelihood(state))

    def log_likelihood(self, state: LocationState, prior: Prior) -> float:
        """Log-likelihood of all rows."""
        family = cast(Gaussian, self.fitted_family).settled(prior.noise_variance_)
        likelihood = self.likelihood(state)
        noise = family.noise_variance(state["n_features"])
        n = np.where(state["turn"] == 0, state["n"], 0)
        if np.any(noise == 0):
            return math.nan
        blank = family.blank(n, state["n_features"], None)
        value = float(family.log_base_measure(blank).sum())
        value -= float((state["answers"]["scatter"] / noise).sum()) / 2
        scale = noise if likelihood.scatter is not None else np.ones(len(noise))
        variances = np.broadcast_to(likelihood.variances, likelihood.values.shape)[n > 0]
        for j, ratio in enumerate(prior.variance_ / scale):
            total = scale[j] * (variances[:, j] + ratio)
            # the ratio of the search, which a product and a quotient may have rounded
            ratio = min((r for k, r in likelihood.sums if k == j), key=lambda r: abs(r - ratio))
            first, second, *_ = likelihood.sums[j, ratio]
            away = prior.mean_[j] - likelihood.centre[j]
            weight = (1 / (variances[:, j] + ratio)).sum()
            square = (second - 2 * away * first + away**2 * weight) / scale[j]
            value -= 0.5 * (np.log(2 * np.pi * total).sum() + square)
        return value + (prior.restriction_ or 0.0)


def _shifts_of_sums(
    sums: NDArray, counts: NDArray, squares: NDArray | None = None, least: float = 0.0
) -> NDArray[np.float64]:
    """Return how far each node moves an average, in standard errors of the average of the others.

    Parameters
    ----------
    sums : ndarray of shape (k, d)
    counts : ndarray of shape (k,)
        What sums are divided by: numbers of groups, or degrees of freedom.
    squares : ndarray of shape (k, d), optional
        Sums of squares of the same; None: those are sums of squares of normal deviates.
    least : float
        Least standard error, as a share of the average.
    """
    k, shifts = len(sums), np.full(len(sums), np.nan)
    for i in range(k):
        rest, others = counts.sum() - counts[i], np.arange(k) != i
        if not rest > 0:
            continue
        mean = sums[others].sum(axis=0) / rest
        if squares is None:
            variance = 2 * mean**2
        else:
            variance = np.maximum(squares[others].sum(axis=0) / rest - mean**2, 0.0)
        errors = np.maximum(np.sqrt(variance / rest), least * np.abs(mean))
        shifts[i] = largest_move(sums.sum(axis=0) / counts.sum() - mean, errors)
    return shifts


def _shapes(question: Question, n_features: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the sums that answer a question."""
    if not len(question["ratios"]):
        return dict.fromkeys(("mean", "square", "scatter"), (n_features,))
    return {"sums": (len(question["ratios"]), 4)}


def _figures(clients: Summary, question: Question) -> dict[str, NDArray[np.float64]]:
    """Return figures of each client, of which an answer is the sums; zero without rows."""
    has_data = (clients.n > 0)[:, None]
    if not len(question["ratios"]):
        mean = np.where(has_data, clients.mean, 0.0)
        scatter = np.where(has_data, clients.scatter, 0.0)
        return {"mean": mean, "square": mean**2, "scatter": scatter}
    columns = question["columns"]
    away = np.where(has_data, clients.mean - question["centre"], 0.0)[:, columns]
    variance = question["units"][columns] / np.maximum(clients.n, 1)[:, None] + question["ratios"]
    weight = 1 / np.where(variance > 0, variance, 1.0)  # of equal means without noise, 1
    sums = [weight * away, weight * away**2, weight**2 * away, weight**2 * away**2]
    return {"sums": np.stack(sums, axis=2)}
