"""The rounds of a logistic regression by other methods than quadrature.

Clients send posterior moments, and the server takes a step of scoring (see
`NormalPopulation.step`). Rounds by quadrature are those of any family; see `GeneralizedRounds`.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from ebfed.engines.base import join
from ebfed.engines.robust import shifts_of_means, shifts_of_steps
from ebfed.priors import IdentificationWarning
from ebfed.regression.classes import check_not_one_class, check_two_classes
from ebfed.regression.families import Responses
from ebfed.regression.generalized_notes import (
    JOINT,
    LAPLACE,
    LITTLE,
    NO_SPREAD,
    UNBOUNDED,
    UNCENTRED,
    warn_of_unending,
    warn_unfinished,
)
from ebfed.regression.generalized_rounds import GeneralizedRounds, too_many
from ebfed.regression.numerics.joint_logistic_descent import joint_step
from ebfed.regression.numerics.normal_population import CAUTION, LOW, NormalPopulation, Step
from ebfed.regression.posteriors import quadrature
from ebfed.regression.posteriors.logistic import MOST_CORRECTED, TOLERANCE, WhiteRows
from ebfed.regression.protocol import (
    LogisticMessage,
    LogisticPhase,
    LogisticResult,
    LogisticSent,
    LogisticState,
    RegressionFacts,
    RegressionState,
)
from ebfed.regression.separation import Endless
from ebfed.tables.clients import Clients

__all__ = ["METHODS", "LogisticRounds", "Method"]

Method = Literal["auto", "aghq", "ep", "laplace", "gradient"]
METHODS: tuple[str, ...] = get_args(Method)

# A fit is done when the next step is expected to gain no more log-likelihood.
PROMISE = 1e-9
# Expected gain below which the correction of expectation propagation begins.
ENOUGH = 1e-3
# Tolerance of expectation propagation until then: evidence is stationary, and right to its square.
ROUGH = 1e-4
# Remaining step that is allowed: less than half a standard error.
MOST_LEFT = 0.1
# Coordinates more oblique than this would magnify the noise of importance sampling.
OBLIQUE = 30.0
# And more oblique than this, variances lie on ridges where a search may stop short.
FAR = 500.0
# Steps so much shorter than the largest are no steps.
SHORTEST = 1e-4


@dataclass(frozen=True, kw_only=True)
class LogisticRounds(GeneralizedRounds):
    """Logistic regression in rounds; parameters are those of `LogisticEB`."""

    method: Method
    learning_rate: float

    # Clients ----------------------------------------------------------------------------------

    def responses(self, clients: Clients, sent: Any) -> Responses:
        """Return 1 for rows of the second class, and 0 for the others."""
        y = (np.asarray(clients.y) == sent["classes"][1]).astype(float)
        return Responses(y, np.ones(len(y)), np.zeros(len(y)))

    def _figures(self, sent: Any, memory: Any, clients: Clients) -> tuple[Any, Any]:
        """Return what quadrature asks for; else posterior moments, or a step of descent."""
        if sent["phase"] in ("centre", "size", "coarse", "fine"):
            return super()._figures(sent, memory, clients)
        second, mean, root = sent["classes"][1], sent["mean"], sent["root"]
        if sent["phase"] == "gradient":
            theta = memory.get("theta", np.zeros((len(clients), len(mean))))
            theta, message = joint_step(
                clients, second, mean, root[0, 0] ** 2, theta, self.learning_rate
            )
            return message, memory | {"theta": theta}
        rows = WhiteRows.of(clients, NormalPopulation(mean, root, np.ones(len(mean))), second)
        mean, covariance, evidence = rows.approximate(
            sent["phase"], start=memory.get("mode"), tolerance=sent["tolerance"]
        )
        message = {"mean": mean, "covariance": covariance, "evidence": evidence}
        return message, memory | {"mode": mean}

    def bits(self, sent: Any, clients: Clients) -> float:
        """Bits of derivatives, of posterior moments, or of a step of gradient descent."""
        exact = sent["result"]["method"] == "aghq" if sent["done"] else "places" in sent
        if exact or "centre" in sent:
            return super().bits(sent, clients)
        p = clients.X.shape[1]
        numbers = 2 * p if self.method == "gradient" else 1 + p + p * (p + 1) // 2
        return 64.0 * len(clients) * numbers

    # Server -----------------------------------------------------------------------------------

    def begin(self, state: RegressionState, facts: RegressionFacts) -> LogisticState:
        """Check the arguments, and return the state before the first round."""
        classes = np.unique(facts["classes"])
        state = super().begin(state, facts)
        check_two_classes(classes)
        check_not_one_class(classes)
        return cast(LogisticState, state | {"classes": classes})

    def _check_arguments(self) -> None:
        super()._check_arguments()
        if self.share == "sums" and self.method not in ("auto", "aghq"):
            raise ValueError(
                "share must be 'groups', unless method is 'aghq': other methods need figures of "
                f"each group; got share='sums' and method={self.method!r}."
            )
        if self.method not in METHODS:
            raise ValueError(f"method must be one of {METHODS}; got {self.method!r}.")
        if not 0 < self.learning_rate < np.inf:
            raise ValueError(f"learning_rate must be positive; got {self.learning_rate!r}.")

    def _check_varying(self, varies: NDArray) -> None:
        if not varies.all() and (self.covariance != "diag" or self.method == "gradient"):
            raise ValueError(
                "varying must name all columns, unless covariance='diag' and method is not "
                f"'gradient'; got {list(self.varying or ())!r}."
            )

    def ask(self, state: Any) -> LogisticSent:
        """Ask for sizes of columns, or for what a population is to be judged by."""
        sent = cast(LogisticSent, super().ask(state) | {"classes": state["classes"]})
        if "point" in state or "frame" not in state:
            return sent
        frame = state["frame"]
        # what is corrected later shows by then only where the correction is to begin
        rough = state["phase"] == "ep" and state["can_correct"]
        return sent | {
            "mean": frame @ state["mean"],
            "root": frame @ state["root"],
            "tolerance": ROUGH if rough else TOLERANCE,
        }

    def _parts(self, sent: Any, n_features: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of what a client sends."""
        if sent["phase"] == "gradient":
            return {"mean": sent["mean"].shape, "log_variance": ()}
        if sent["phase"] in ("centre", "size") or "places" in sent:
            return super()._parts(sent, n_features)
        k = sent["root"].shape[1]
        return {"mean": (k,), "covariance": (k, k), "evidence": ()}

    def shifts(self, before: Any, after: Any, messages: Any) -> NDArray[np.float64]:
        """Return how far the mean moves by each node, by a step of scoring without it."""
        if not after["done"] or "point" in before or len(messages) < 2:
            return super().shifts(before, after, messages)
        if before["phase"] == "gradient":
            sums = np.array([each["mean"].sum(axis=0) for each in messages])
            return shifts_of_means(sums, np.array([float(len(x["mean"])) for x in messages]))

        def step(chosen: NDArray) -> tuple[NDArray, NDArray]:
            some = [messages[i] for i in chosen]
            found = self._score(before, cast(LogisticMessage, join(some)), 1.0)
            return found.population.mean, np.sqrt(np.diag(found.mean_covariance))

        return shifts_of_steps(len(messages), step)

    def _step(self, state: Any, messages: Any) -> LogisticState:
        if state["phase"] == "gradient":
            return self._average(state, messages)
        if state["phase"] in ("centre", "size") or "point" in state:
            return cast(LogisticState, super()._step(state, messages))
        return self._climb(state, messages)

    def _begin(self, state: Any, messages: Any) -> LogisticState:
        """Choose units from the sizes of columns, and a method."""
        found, start = self._coordinates(state, messages)
        state = cast(LogisticState, found)
        if self.method == "laplace":  # its approximation to the likelihood has a maximum
            state["unlimited"] = False
        if self.method in ("auto", "aghq"):
            varying = len(start.places)
            if varying <= quadrature.MOST_INTEGRATED:
                state["method"] = "aghq"
                return cast(LogisticState, self._first(state, start, messages))
            if self.method == "aghq" or self.share == "sums":
                raise ValueError(
                    f"{too_many(varying)} Use method='ep' with share='groups', or name "
                    "fewer columns in varying."
                )
        return self._begin_scoring(state)

    def _one_unit(self) -> bool:
        return self.covariance == "spherical" or self.method == "gradient"

    def _begin_scoring(self, state: LogisticState) -> LogisticState:
        """Ask about the first population of steps of scoring."""
        unit, ways, empty = state["unit"], state["directions"], state["empty"]
        notes = list(state["notes"])
        frame = np.eye(len(unit))
        flat = empty | ~state["varies"] if state["estimates_spread"] else np.ones(len(unit), bool)
        if self.covariance == "full" and self.method != "gradient":
            # any covariance may be learned in any coordinates: in those in which columns are
            # centred, of unit size, and say different things
            frame, ways, unit = ways, np.eye(ways.shape[1]), np.ones(ways.shape[1])
            flat = np.full(len(unit), not state["estimates_spread"])
        root = np.diag(np.where(flat, np.sqrt(LOW), 1.0) * unit)
        # squares of scores are information where scores are those of the likelihood
        exact = state["estimates_spread"] and self.method != "laplace"
        oblique = np.linalg.cond(ways[:, ways.any(axis=0)] / unit[:, None])
        if oblique > FAR and self.covariance != "full" and self.method != "gradient":
            notes += [UNCENTRED]
            warnings.warn(UNCENTRED, ConvergenceWarning, stacklevel=7)
        phase: LogisticPhase = "ep"
        if self.method == "laplace" or self.method == "gradient":
            phase = self.method
        return state | {
            "method": "ep" if self.method == "auto" else self.method,
            "phase": phase,
            "reach": 1.0,
            "mean": np.zeros(len(unit)),
            "root": root,
            "unit": unit,
            "frame": frame,
            "directions": ways,
            "can_correct": len(unit) <= MOST_CORRECTED and oblique < OBLIQUE,
            "notes": notes,
            "caution": CAUTION if exact else np.inf,
        }

    def _population(self, state: LogisticState) -> NormalPopulation:
        return NormalPopulation(state["mean"], state["root"], state["unit"])

    def _climb(self, state: Any, messages: LogisticMessage) -> LogisticState:
        """Take a step of scoring, or a quarter of the last if that led down."""
        here, value = self._population(state), float(messages["evidence"].sum())
        _, root = here.seen_from(state["frame"])
        tried = {"log_likelihood": value, "sd": np.sqrt((root**2).sum(axis=1)).mean()}
        state = state | {"history": [*state["history"], tried]}
        slack = PROMISE * (1 + abs(value))
        # these approximations have the slopes of their evidence
        climbs = state["phase"] == "ep" or not state["estimates_spread"]
        if climbs and value < state["log_likelihood"] - slack:
            best = NormalPopulation(state["best_mean"], state["best_root"], state["unit"])
            return _asked(state, best.toward(here, 0.25)) | {
                "caution": 10 * state["caution"],
                "reach": state["reach"] / 2,
            }
        step, asked = self._score(state, messages, state["reach"]), state
        # without an evidence to climb, steps that come to nothing get shorter
        vain = not climbs and step.gain > state["gain"]
        reach, caution = state["reach"] * (0.5 if vain else 1.0), state["caution"]
        if climbs:
            reach, caution = min(2 * state["reach"], 1.0), max(state["caution"] / 10, CAUTION)
        state = state | {
            "log_likelihood": value,
            "reach": reach,
            "caution": caution,
            "gain": step.gain,
            "best_mean": here.mean,
            "best_root": here.root,
            "mean_covariance": state["frame"] @ step.mean_covariance @ state["frame"].T,
        }
        settled = step.gain <= slack or state["reach"] < SHORTEST
        near = settled or step.gain <= ENOUGH
        if near and state["phase"] == "ep" and state["can_correct"]:
            return _asked(state, step.population) | {"phase": "corrected", "reach": 1.0}
        if value > state["perfect"] or (state["unlimited"] and step.gain <= LITTLE):
            return state | {"phase": "end"}
        if settled:
            left = self._score(asked, messages, 1.0).gain
            if left > MOST_LEFT + slack:
                warn_unfinished(
                    f"after {state['round']} rounds no step was better, but", left, "Rescale X."
                )
            return state | {"phase": "end", "converged": left <= MOST_LEFT + slack}
        if state["round"] >= self.n_rounds:
            if not state["unlimited"]:  # there is nothing to converge to
                warn_unfinished(f"after {state['round']} rounds", step.gain, "Raise n_rounds.")
            converged = None if state["unlimited"] else False
            return state | {"phase": "end", "converged": converged}
        return _asked(state, step.population)

    def _score(self, state: Any, messages: LogisticMessage, reach: float) -> Step:
        return self._population(state).step(
            messages["mean"],
            messages["covariance"],
            self.covariance,
            ways=state["directions"],
            spread=state["estimates_spread"],
            varies=state["varies"],
            caution=state["caution"],
            reach=reach,
        )

    def _average(self, state: Any, messages: LogisticMessage) -> LogisticState:
        """Average what clients made of mean and variance."""
        log_variance = float(messages["log_variance"].mean())
        mean = messages["mean"].mean(axis=0)
        if not np.isfinite([log_variance, *mean]).all():
            raise ValueError(
                f"gradient descent diverged after {state['round']} rounds; lower "
                f"learning_rate={self.learning_rate!r}, or rescale X."
            )
        # the step on theta is stable down to here
        variance = max(np.exp(min(log_variance, 50.0)), self.learning_rate)
        state = state | {
            "mean": mean,
            "root": np.sqrt(variance) * np.eye(len(mean)),
            "log_likelihood": np.nan,
            "mean_covariance": np.full((len(mean), len(mean)), np.nan),
            "history": [*state["history"], {"variance": variance}],
        }
        return state | {"phase": "end"} if state["round"] >= self.n_rounds else state

    def _end(self, state: Any) -> LogisticState:
        """Add what was learned, in plain numbers."""
        more = {"classes": state["classes"], "method": state["method"]}
        if "point" in state:
            ended = super()._end(state)
            return cast(LogisticState, ended | {"result": ended["result"] | more})
        notes = list(state["notes"])
        population, frame = self._population(state), state["frame"]
        mean, root = population.seen_from(frame)
        varies = np.ones(len(population.mean), bool)
        if self.covariance == "diag":
            varies = state["varies"]
        low, high = population.at_bounds(varies)
        if self.method == "gradient":
            notes += [JOINT]
            warnings.warn(JOINT, IdentificationWarning, stacklevel=7)
        elif high or state["unlimited"]:
            notes += [UNBOUNDED]
            warnings.warn(UNBOUNDED, IdentificationWarning, stacklevel=7)
        elif low and state["estimates_spread"]:
            notes += [NO_SPREAD]
        if self.method != "gradient" and self.endless is not None and self.endless.terms:
            notes += warn_of_unending(self.endless)
        elif self.endless is None and state["log_likelihood"] > state["perfect"]:
            notes += warn_of_unending(Endless(complete=True))
        if self.method == "laplace":
            notes += [LAPLACE]
        result: LogisticResult = {
            **more,  # type: ignore[typeddict-item]
            "mean": mean,
            "mean_covariance": state["mean_covariance"],
            "covariance": root @ root.T,
            # for posteriors no variance is zero: what depends on the mean depends on no coordinates
            "root": frame @ population.root,
            "null": state["null"],
            "shapes": np.zeros(0),
            "shape_covariance": state["mean_covariance"],
            "notes": notes,
        }
        return state | {"done": True, "result": result}


def _asked(state: LogisticState, population: NormalPopulation) -> LogisticState:
    """Return the state that asks clients about a population."""
    return state | {"mean": population.mean, "root": population.root}
