"""The rounds of a logistic regression: clients say how likely a population is, the server steps.

In the first round clients send the sizes of their columns, from which the server chooses units.
(With ``share="sums"`` sizes are about the mean of all rows, which is asked for before.) Then each
round asks about a population. By quadrature, clients send the log-likelihood of their
rows with its derivatives, and the server takes a step of Newton's (see `climb`). By other methods
they send posterior moments, and the server a step of scoring (see `NormalPopulation.step`).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from ebfed.engines.sums import Share, check_share, check_sums, sums_of, totals_of
from ebfed.priors import IdentificationWarning
from ebfed.regression.classes import check_not_one_class, check_two_classes
from ebfed.regression.columns import Columns, Varying
from ebfed.regression.logistic_ascent import ascend, begin, coordinates, population_of
from ebfed.regression.logistic_notes import (
    COLLINEAR,
    JOINT,
    LAPLACE,
    LITTLE,
    NO_SPREAD,
    PERFECT,
    SEPARATED,
    UNBOUNDED,
    UNCENTRED,
    open_questions,
    warn_unfinished,
)
from ebfed.regression.numerics.directions import find_directions
from ebfed.regression.numerics.joint_logistic_descent import joint_step, sums_of_clients
from ebfed.regression.numerics.normal_population import (
    CAUTION,
    LOW,
    Covariance,
    NormalPopulation,
    Step,
)
from ebfed.regression.numerics.quadrature_population import entries_of
from ebfed.regression.posteriors import quadrature
from ebfed.regression.posteriors.logistic import MOST_CORRECTED, TOLERANCE, WhiteRows
from ebfed.regression.protocol import (
    LogisticMemory,
    LogisticMessage,
    LogisticPhase,
    LogisticResult,
    LogisticSent,
    LogisticState,
    RegressionFacts,
    RegressionState,
)
from ebfed.regression.rounds import Rounds, check_parts
from ebfed.tables.clients import Clients

__all__ = ["METHODS", "LogisticRounds", "Method"]

Method = Literal["auto", "aghq", "ep", "polya-gamma", "laplace", "gradient"]
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


@dataclass(frozen=True)
class LogisticRounds(Rounds[LogisticState, LogisticSent, LogisticMemory, LogisticMessage]):
    """Logistic regression in rounds; parameters are those of `LogisticEB`."""

    covariance: Covariance
    varying: Varying
    method: Method
    fit_intercept: bool
    n_rounds: int
    learning_rate: float
    n_draws: int
    share: Share = "groups"

    @property
    def sends(self) -> str:  # type: ignore[override]
        """What the ledger says clients send."""
        if self.share == "sums":
            return "sums over groups of derivatives of their log-likelihoods, as they are"
        return "figures of each client's rows, as they are"

    # Clients ----------------------------------------------------------------------------------

    def local(
        self, sent: LogisticSent, memory: LogisticMemory, clients: Clients, rng: Any
    ) -> tuple[LogisticMessage, LogisticMemory]:
        """Send figures of each client, or their sums."""
        message, memory = self._figures(sent, memory, clients)
        if self.share == "sums":
            message = cast(LogisticMessage, sums_of(cast(dict, message)))
        return message, memory

    def _figures(
        self, sent: LogisticSent, memory: LogisticMemory, clients: Clients
    ) -> tuple[LogisticMessage, LogisticMemory]:
        """Return sizes of columns; then posterior moments, or a step of gradient descent."""
        second = sent["classes"][1]
        if sent["phase"] == "centre":
            return {"centre": sums_of_clients(clients.X, clients)}, memory
        if sent["phase"] == "size":
            return _measure(clients, second, sent.get("centre")), memory
        mean, root = sent["mean"], sent["root"]
        if sent["phase"] == "coarse" or sent["phase"] == "fine":
            evidence, score, curvature, mode = quadrature.derivatives(
                clients,
                second,
                frame=sent["frame"],
                mean=mean,
                root=root,
                places=sent["places"],
                entries=entries_of(self.covariance, len(root)),
                accuracy=sent["phase"],
                start=memory.get("mode"),
            )
            message: LogisticMessage = {
                "evidence": evidence,
                "score": score,
                "curvature": curvature,
            }
            return message, memory | {"mode": mode}
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

    def bits(self, sent: LogisticSent, clients: Clients) -> float:
        """Bits of derivatives, of posterior moments, or of a step of gradient descent."""
        p = clients.X.shape[1]
        numbers = 2 * p if self.method == "gradient" else 1 + p + p * (p + 1) // 2
        exact = sent["result"]["method"] == "aghq" if sent["done"] else "places" in sent
        if exact:
            q = (sent["result"] if sent["done"] else sent)["root"].shape[1]
            d = p + len(entries_of(self.covariance, q)[0])
            numbers = 1 + d + d * (d + 1) // 2
        return 64.0 * (1 if self.share == "sums" else len(clients)) * numbers

    # Server -----------------------------------------------------------------------------------

    def start(self, state: RegressionState, facts: RegressionFacts) -> LogisticState:
        """Check the arguments, and return the state before the first round."""
        self._check_arguments()
        classes = np.unique(facts["classes"])
        check_two_classes(classes)
        check_not_one_class(classes)
        notes = open_questions(state["n"])
        columns = Columns(
            state["n_features"], state["columns"], bool(self.fit_intercept), self.varying
        )
        varies = columns.varies()
        if not varies.all() and (self.covariance != "diag" or self.method == "gradient"):
            raise ValueError(
                "varying must name all columns, unless covariance='diag' and method is not "
                f"'gradient'; got {list(self.varying or ())!r}."
            )
        for note in notes:
            warnings.warn(note, IdentificationWarning, stacklevel=7)
        return {
            **state,
            "phase": "centre" if self.share == "sums" else "size",
            "classes": classes,
            "estimates_spread": not notes,
            "varies": varies,
            "notes": notes,
            "seed": int(np.random.default_rng([*state["key"], 2]).integers(2**31)),
            "log_likelihood": -np.inf,
        }

    def _check_arguments(self) -> None:
        check_share(self.share)
        if self.share == "sums" and self.method not in ("auto", "aghq"):
            raise ValueError(
                "share must be 'groups', unless method is 'aghq': other methods need figures of "
                f"each group; got share='sums' and method={self.method!r}."
            )
        for name, values in (
            ("covariance", ("diag", "spherical", "full")),
            ("method", METHODS),
        ):
            if getattr(self, name) not in values:
                raise ValueError(f"{name} must be one of {values}; got {getattr(self, name)!r}.")
        for name in ("n_rounds", "n_draws"):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or value < 1:
                raise ValueError(f"{name} must be a whole number from 1; got {value!r}.")
        if not 0 < self.learning_rate < np.inf:
            raise ValueError(f"learning_rate must be positive; got {self.learning_rate!r}.")

    def ask(self, state: LogisticState) -> LogisticSent:
        """Ask for sizes of columns, or for what a population is to be judged by."""
        assert state["phase"] != "end"
        sent: LogisticSent = {
            "done": False,
            "round": state["round"],
            "phase": state["phase"],
            "classes": state["classes"],
        }
        if "centre" in state and "frame" not in state:
            sent["centre"] = state["centre"]
        if "frame" not in state:
            return sent
        if "point" in state:
            asked = population_of(state, self.covariance)
            return sent | {
                "frame": asked.frame,
                "places": asked.places,
                "mean": asked.mean,
                "root": asked.root,
            }
        frame = state["frame"]
        # what is corrected later shows by then only where the correction is to begin
        rough = state["phase"] == "ep" and state["can_correct"]
        return sent | {
            "mean": frame @ state["mean"],
            "root": frame @ state["root"],
            "tolerance": ROUGH if rough else TOLERANCE,
        }

    def check_message(
        self, message: LogisticMessage, facts: RegressionFacts, sent: LogisticSent
    ) -> None:
        """Raise a ValueError if clients that stated these facts cannot have sent this."""
        m, shapes = len(facts["n"]), self._shapes(sent, int(facts["n_features"][0]))
        if self.share == "sums":
            return check_sums(message, shapes, m)
        check_parts(message, m)
        shapes = {name: (m, *shape) for name, shape in shapes.items()}
        if {name: np.shape(cast(NDArray, part)) for name, part in message.items()} != shapes:
            raise ValueError(f"a message must have the shapes {shapes}.")

    def _shapes(self, sent: LogisticSent, n_features: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of what a client sends."""
        p = n_features + bool(self.fit_intercept)
        if sent["phase"] == "centre":
            return {"centre": (p,)}
        if sent["phase"] == "size":
            return {"products": (p, p), "mixed": ()} | (
                {} if "centre" in sent else {"centre": (p,)}
            )
        if sent["phase"] == "gradient":
            return {"mean": (p,), "log_variance": ()}
        if "places" in sent:
            d = len(sent["mean"]) + len(entries_of(self.covariance, len(sent["root"]))[0])
            return {"evidence": (), "score": (d,), "curvature": (d * (d + 1) // 2,)}
        k = sent["root"].shape[1]
        return {"mean": (k,), "covariance": (k, k), "evidence": ()}

    def update(self, state: LogisticState, messages: LogisticMessage) -> LogisticState:
        """Take a step of the population's parameters."""
        if self.share == "sums":  # as if all rows were one client's
            shapes = self._shapes(self.ask(state), state["n_features"])
            sums = totals_of(cast(dict, messages), shapes, len(state["n"]))
            messages = cast(LogisticMessage, {name: x[None] for name, x in sums.items()})
        if state["phase"] == "centre":
            centre = messages["centre"][0] / max(int(state["n"].sum()), 1)
            state = state | {"phase": "size", "centre": centre}
        elif state["phase"] == "size":
            state = self._begin(state, messages)
        elif state["phase"] == "gradient":
            state = self._average(state, messages)
        elif "point" in state:
            state = ascend(state, messages, self.covariance, self.n_rounds)
        else:
            state = self._climb(state, messages)
        state = state | {"round": state["round"] + 1}
        return self._end(state) if state["phase"] == "end" else state

    def _begin(self, state: LogisticState, messages: LogisticMessage) -> LogisticState:
        """Choose units from the sizes of columns."""
        n, centre = state["n"], messages.get("centre")
        N = max(int(n.sum()), 1)
        if centre is None:
            n, centre = np.array([N]), state["centre"][None]
        within = messages["products"].sum(axis=0) / N
        square = np.diag(within) + n @ centre**2 / N
        if self.covariance == "spherical" or self.method == "gradient":
            square = np.full(len(square), square.mean())
        empty = square == 0
        unit = 1 / np.sqrt(np.where(empty, 1.0, square))
        ways, identified = find_directions(within, centre, n / N, self.fit_intercept)
        notes = list(state["notes"])
        if not identified.all():
            notes += [COLLINEAR.format(len(unit), ways.shape[1])]
        state = state | {
            "identified": identified,
            "notes": notes,
            "reach": 1.0,
            "gain": np.inf,
            # where the likelihood has no maximum; Laplace's approximation to it has
            "one_class_groups": state["estimates_spread"]
            and self.method != "laplace"
            and not messages["mixed"].any(),
        }
        if self.method in ("auto", "aghq"):
            start = coordinates(
                state, ways, unit, empty, n @ centre / N, self.covariance, bool(self.fit_intercept)
            )
            most, varying = quadrature.MOST_INTEGRATED, len(start.places)
            if varying <= most:
                return begin(state, start)
            if self.method == "aghq" or self.share == "sums":
                raise ValueError(
                    f"method='aghq' integrates over at most {most} coefficients that differ "
                    f"between groups; got {varying}. Use method='ep' with share='groups', or name "
                    "fewer columns in varying."
                )
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

    def _climb(self, state: LogisticState, messages: LogisticMessage) -> LogisticState:
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
        step, asked = self._step(state, messages, state["reach"]), state
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
        if value > PERFECT * state["n"].sum() or (
            state["one_class_groups"] and step.gain <= LITTLE
        ):
            return state | {"phase": "end"}
        if settled:
            left = self._step(asked, messages, 1.0).gain
            if left > MOST_LEFT + slack:
                warn_unfinished(
                    f"after {state['round']} rounds no step was better, but", left, "Rescale X."
                )
            return state | {"phase": "end", "converged": left <= MOST_LEFT + slack}
        if state["round"] >= self.n_rounds:
            if not state["one_class_groups"]:  # there is nothing to converge to
                warn_unfinished(f"after {state['round']} rounds", step.gain, "Raise n_rounds.")
            converged = None if state["one_class_groups"] else False
            return state | {"phase": "end", "converged": converged}
        return _asked(state, step.population)

    def _step(self, state: LogisticState, messages: LogisticMessage, reach: float) -> Step:
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

    def _average(self, state: LogisticState, messages: LogisticMessage) -> LogisticState:
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

    def _end(self, state: LogisticState) -> LogisticState:
        """Add what was learned, in plain numbers."""
        notes = list(state["notes"])
        if "point" in state:
            fitted = population_of(state, self.covariance)
            mean, root = fitted.seen()
            low, high = fitted.at_bounds()
            kept = root
        else:
            population, frame = self._population(state), state["frame"]
            mean, root = population.seen_from(frame)
            varies = np.ones(len(population.mean), bool)
            if self.covariance == "diag":
                varies = state["varies"]
            low, high = population.at_bounds(varies)
            # for posteriors no variance is zero: what depends on the mean depends on no coordinates
            kept = frame @ population.root
        if self.method == "gradient":
            notes += [JOINT]
            warnings.warn(JOINT, IdentificationWarning, stacklevel=7)
        elif high or state["one_class_groups"]:
            notes += [UNBOUNDED]
            warnings.warn(UNBOUNDED, IdentificationWarning, stacklevel=7)
        elif state["log_likelihood"] > PERFECT * state["n"].sum():
            notes += [SEPARATED]
        elif low and state["estimates_spread"]:
            notes += [NO_SPREAD]
        if self.method == "laplace":
            notes += [LAPLACE]
        result: LogisticResult = {
            "classes": state["classes"],
            "method": state["method"],
            "mean": mean,
            "mean_covariance": state["mean_covariance"],
            "covariance": root @ root.T,
            "root": kept,
            "identified": state["identified"],
            "notes": notes,
            "seed": state["seed"],
        }
        return state | {"done": True, "result": result}


def _asked(state: LogisticState, population: NormalPopulation) -> LogisticState:
    """Return the state that asks clients about a population."""
    return state | {"mean": population.mean, "root": population.root}


def _measure(clients: Clients, second: Any, about: NDArray | None) -> LogisticMessage:
    """Products of each client's rows, and whether it has both classes.

    They are about a given centre, or the client's own, which is sent with them.
    """
    n, p = np.maximum(clients.n, 1), clients.X.shape[1]
    if about is None:
        centre = sums_of_clients(clients.X, clients) / n[:, None]
        away = clients.X - np.repeat(centre, clients.n, axis=0)
    else:
        away = clients.X - about
    products = sums_of_clients((away[:, :, None] * away[:, None, :]).reshape(-1, p * p), clients)
    ones = (np.asarray(clients.y) == second).astype(float)[:, None]
    ones = sums_of_clients(ones, clients)[:, 0]
    message: LogisticMessage = {
        "products": products.reshape(-1, p, p),
        "mixed": ((ones > 0) & (ones < clients.n)).astype(float),
    }
    return message if about is not None else message | {"centre": centre}
