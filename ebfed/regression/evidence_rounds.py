"""Rounds in which clients send the evidence of their rows for a mixture of regressions.

Clients first state the sizes of their columns, from which the server takes units. A few rounds fit
one component to all (`pool`); k-means on the clients' coefficients under that population gives
several starts. All of them are climbed at once for a few rounds, the likeliest until a round gains
nothing (`climb`). A client's message has, for every population that the server asks about, the log
evidence for each component and its slopes; see `evidence`. A step that loses likelihood is taken
back by halves, so that it never falls.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from ebfed.engines.robust import alone_in_units, shifts_of_steps
from ebfed.priors import IdentificationWarning
from ebfed.priors.mixture_em import kmeans
from ebfed.priors.n_components import FOLDS, bic, fewest_as_good, make_folds
from ebfed.regression.classes import check_not_one_class
from ebfed.regression.evidence_sources import EvidenceSource
from ebfed.regression.mixture import MixtureSettings
from ebfed.regression.numerics.candidates import Steps, new_candidate
from ebfed.regression.numerics.evidence import (
    MixturePopulation,
    information,
    make_grid,
    responsibilities,
)
from ebfed.regression.numerics.scoring import (
    FLOOR,
    invert,
    rank,
    ridged,
    shortest,
)
from ebfed.regression.protocol import (
    Candidate,
    EvidenceMessage,
    MixtureMemory,
    MixtureParameters,
    MixtureResult,
    MixtureSent,
    MixtureState,
    RegressionFacts,
    RegressionState,
    SizesMessage,
)
from ebfed.regression.rounds import (
    RegressionRounds,
    check_products,
    check_shapes,
    mixture_population,
)
from ebfed.tables.clients import Clients

__all__ = ["EvidenceRounds", "start_mixture"]

LEAST_ROUNDS = 3  # sizes of columns, one component for all, the components
POOL = 6  # rounds that fit one component, at most
SHORT = 4  # rounds after which the likeliest start of each number of components goes on alone
CHOICE = 60  # rounds after which a number of components is chosen, at the latest
CLOSE = 0.01  # gain of log-likelihood in a round from which on no choice depends on more


@dataclass(frozen=True)
class EvidenceRounds(
    RegressionRounds[
        MixtureState, MixtureSent, MixtureMemory, SizesMessage | dict[str, EvidenceMessage]
    ]
):
    """Maximum likelihood for a mixture of regressions.

    Parameters
    ----------
    settings : MixtureSettings
    source : EvidenceSource
    """

    sends: ClassVar[str] = "slopes of the likelihood of each client's rows, as they are"

    settings: MixtureSettings
    source: EvidenceSource

    # Clients ----------------------------------------------------------------------------------

    def block(self, clients: Clients, weight: NDArray[np.float64] | None = None) -> Any:
        """Return what is kept of clients' rows, which may have weights."""
        return self.source.block(clients, weight)

    def local(
        self, sent: MixtureSent, memory: MixtureMemory, clients: Any, rng: Any
    ) -> tuple[SizesMessage | dict[str, EvidenceMessage], MixtureMemory]:
        """Send sizes of columns; then what the rows say of the populations asked about."""
        if sent["phase"] == "sizes":
            return {"n": clients.n, "squares": self.source.squares(clients)}, memory
        memory = self.source.prepare(sent, memory, clients)
        message: dict[str, EvidenceMessage] = {}
        for name, asked in sent["populations"].items():
            population = MixturePopulation(**asked)
            found = self.source.weigh(sent, memory, clients, population)
            _, share = responsibilities(found.log, population.weights)
            grid = make_grid(sent["size"], population, sent["n_clients"])
            more = {"information": information(found, share, grid)}
            message[name] = cast(EvidenceMessage, found.messages() | more)
        return message, memory

    def bits(self, sent: MixtureSent, clients: Any) -> float:
        """Bits of a round, on average; NaN before the last, for they depend on the round."""
        if not sent["done"]:
            return np.nan
        result: MixtureResult = sent["result"]
        return 64.0 * result["n_numbers"] * len(clients) / sent["round"]

    # Server -----------------------------------------------------------------------------------

    def begin(self, state: RegressionState, facts: RegressionFacts) -> MixtureState:
        self.settings.check()
        if self.settings.most_rounds < LEAST_ROUNDS:
            raise ValueError(
                f"n_rounds must be at least {LEAST_ROUNDS}: one for the sizes of columns, one to "
                f"fit a single component, and one for several; got {self.settings.n_rounds!r}."
            )
        classes = np.unique(facts["classes"]) if "classes" in facts else None
        if classes is not None:
            check_not_one_class(classes)
        started = start_mixture(self.settings, state, facts)
        started = started | {"p": started["p"] * self.source.n_responses(classes)}
        return started if classes is None else started | {"classes": classes}

    def ask(self, state: MixtureState) -> MixtureSent:
        """Ask for sizes of columns, or about populations."""
        sent: MixtureSent = {"done": False, "round": state["round"], "phase": state["phase"]}
        if "classes" in state:
            sent = sent | {"classes": state["classes"]}
        if state["phase"] == "sizes":
            return sent
        asked = enumerate(state["candidates"])
        tried = {str(i): each["tried"] for i, each in asked if not self._rests(state, each)}
        return sent | {
            "rank": state["rank"],
            "units": state["units"],
            "size": state["size"],
            "populations": tried,
            "n_clients": len(state["n"]),
        }

    def check_message(
        self,
        message: SizesMessage | dict[str, EvidenceMessage],
        facts: RegressionFacts,
        sent: MixtureSent,
        turn: NDArray,
    ) -> None:
        """Raise a ValueError if clients that stated these facts cannot have sent this."""
        m = len(facts["n"])
        if sent["phase"] == "sizes":
            p = int(facts["n_features"][0]) + bool(self.settings.fit_intercept)
            check_shapes(message, {"n": (m,), "squares": (m, p + 1)})
            sizes = cast(SizesMessage, message)
            if not np.array_equal(sizes["n"], facts["n"]) or sizes["squares"].min() < 0:
                raise ValueError(
                    "a message must have the numbers of rows that were stated, and squares."
                )
            return
        parts = cast(dict[str, EvidenceMessage], message)
        if parts.keys() != sent["populations"].keys():
            raise ValueError("a message must answer for every population.")
        for name, asked in sent["populations"].items():
            (k, p), v = asked["means"].shape, asked["variances"].shape[1]
            shapes: dict[str, tuple[int, ...]] = {
                "log": (m, k),
                "mean": (m, k, p),
                "variance": (m, k, v),
                "variance_information": (m, k, v),
                "variance_rest": (m, k, v),
                "crossed": (m, k, v),
                "noise": (m, k),
                "noise_information": (m, k),
                "information": (1, k, p, p),
            }
            check_shapes(parts[name], shapes)
            check_products("information", parts[name]["information"][0])
            for each in ("variance_information", "noise_information"):
                if cast(dict[str, NDArray], parts[name])[each].min(initial=0.0) < 0:
                    raise ValueError(f"{each} must not be negative.")

    def fitted_parameters(self, state: MixtureState) -> dict[str, tuple[NDArray, NDArray]]:
        """Return the moments of the mixture; see `mixture_population`."""
        return mixture_population(state)

    def shifts(
        self, before: MixtureState, after: MixtureState, messages: Any
    ) -> NDArray[np.float64]:
        """Return how far the population moves by each node, by a step of scoring without it.

        NaN before the last round, but infinite where a node decides alone on the units of columns.
        """
        if before["phase"] == "sizes":
            return alone_in_units(np.array([each["squares"].sum(axis=0) for each in messages]))
        if not after["done"]:
            return np.full(len(messages), np.nan)
        paths = [(each["path"] or [-np.inf])[-1] for each in before["candidates"]]
        best = int(np.argmax(paths))
        if len(paths) > 1 and self.settings.chooses:  # the last round was the one that chose
            return np.full(len(messages), np.nan)
        tried = MixturePopulation(**before["candidates"][best]["tried"])
        grid = make_grid(before["size"], tried, len(before["n"]))
        sums = [scores_of(each[str(best)], tried.weights, grid) for each in messages]

        def step(chosen: NDArray) -> tuple[NDArray, NDArray]:
            parts = [sums[i] for i in chosen]
            slope, information, score, known = (sum(each) for each in zip(*parts, strict=True))
            inverse = np.linalg.pinv(ridged(information, self.settings.ridge), hermitian=True)
            means = np.einsum("kij,kj->ki", inverse, slope)
            free = np.where(known > 0, known, np.nan)
            errors = np.concatenate([np.einsum("kii->ki", inverse).ravel(), 1 / free])
            moves = np.concatenate([means.ravel(), score / free])
            return moves, np.sqrt(np.maximum(errors, 0.0))

        return shifts_of_steps(len(messages), step)

    def update(
        self, state: MixtureState, messages: SizesMessage | dict[str, EvidenceMessage]
    ) -> MixtureState:
        """Take the next step of each population, or make the first ones."""
        state = state | {"round": state["round"] + 1}
        if state["phase"] == "sizes":
            return self._measure(state, cast(SizesMessage, messages))
        answers = cast(dict[str, EvidenceMessage], messages)
        count = len(next(iter(answers.values()))["log"])
        if count != len(state["n"]):  # candidates are compared client by client
            raise ValueError(
                f"a mixture needs the answers of all clients in every round; {count} of "
                f"{len(state['n'])} answered."
            )
        pooling = state["phase"] == "pool"
        steps = Steps(
            state["size"],
            state["n"] > 0,
            state["folds"],
            self.settings.ridge,
            self.settings.least_variance,
            spread=state["estimates_spread"] or (pooling and state["rank"] > 1),
            noise=self.settings.noise_variance is None,
        )
        candidates = [
            steps.advance(each, answers[str(i)]) if str(i) in answers else steps.rest(each)
            for i, each in enumerate(state["candidates"])
        ]
        state = state | {
            "candidates": candidates,
            "n_numbers": state["n_numbers"] + sum(map(_numbers, answers.values())),
        }
        (first, *_) = candidates
        if pooling:
            more = state["round"] < min(POOL + 1, self.settings.most_rounds - 1)
            if more and first["gain"] > 0.1 and not first["stuck"]:
                return state
            return self._begin(state, answers["0"])
        last = state["round"] >= self.settings.most_rounds
        state = self._narrowed(state, last)
        (first, *others) = state["candidates"]
        arrived = first["stuck"] or first["gain"] <= self.settings.tol * len(state["n"])
        if last and not arrived:
            gain = first["gain"]
            doing = (
                f"still gaining {gain:.3g} in log-likelihood"
                if gain < np.inf
                else "too few to tell what another gains"
            )
            warnings.warn(
                f"{self.settings.title} stopped after {state['round']} rounds, {doing}; raise "
                "n_rounds.",
                ConvergenceWarning,
                stacklevel=6,
            )
        if last or (arrived and not others):
            return self._done(state, first) | {"converged": bool(arrived)}
        return state

    def _measure(self, state: MixtureState, messages: SizesMessage) -> MixtureState:
        """Take units from the sizes of columns, and begin with one component for all."""
        squares, n_rows = messages["squares"], max(int(state["n"].sum()), 1)
        if (k := self.source.n_responses(state.get("classes"))) > 1:
            squares = np.hstack([np.tile(squares[:, :-1], k), squares[:, -1:]])
        p = state["p"]
        mean_squares = squares.sum(axis=0) / n_rows
        if self.settings.one_variance:  # the coefficients share a unit
            mean_squares[:p] = mean_squares[:p].mean()
        units = np.sqrt(np.where(mean_squares > 0, mean_squares, 1.0))
        v = 1 if self.settings.one_variance else p
        noise = 0.5
        if self.settings.noise_variance is not None:
            noise = self.settings.noise_variance / units[-1] ** 2
        population = MixturePopulation(
            np.ones(1), np.zeros((1, p)), np.full((1, v), 0.5 / p), noise
        )
        return state | {
            "phase": "pool",
            "units": units,
            "size": np.sqrt(squares[:, :p].max(axis=0)) / units[:p],
            "columns_size": np.sqrt(squares[:, :p].sum(axis=0) / n_rows) / units[:p],
            "candidates": [new_candidate(population)],
        }

    def _begin(self, state: MixtureState, received: EvidenceMessage) -> MixtureState:
        """Start from clusters of the clients' coefficients under one component for all."""
        (pooled,) = state["candidates"]
        one, numbers = MixturePopulation(**pooled["trail"][-1][0]), self.settings.numbers
        if len(numbers) == 1 == numbers[0] and state["estimates_spread"]:
            return state | {"phase": "climb"}
        variances, noise = one.variances, one.noise
        if not state["estimates_spread"]:  # what they explained is noise now
            if self.settings.noise_variance is None:
                per_column = state["columns_size"] ** 2
                noise = noise + float((variances * per_column).sum())
            variances = np.full_like(variances, self.settings.least_variance)
        tried = MixturePopulation(**pooled["tried"]) if pooled["lost"] else one
        has_data = state["n"] > 0
        values = (tried.means + tried.variances * received["mean"][:, 0])[has_data] * state[
            "columns_size"
        ]
        rng = np.random.RandomState(np.random.default_rng([*state["key"], 3]).integers(2**31))
        most = len(np.unique(values, axis=0))
        if not self.settings.chooses and most < numbers[0]:
            few = (
                f"Groups have only {most} different estimate{'s' * (most > 1)}: of "
                f"{numbers[0]} components {most} {'are' if most > 1 else 'is'} fitted."
            )
            state = state | {"notes": [*state["notes"], few]}
        size = np.where(state["columns_size"] > 0, state["columns_size"], 1.0)
        folds = [-1]
        if self.settings.n_components == "heldout":
            generator = np.random.default_rng([*state["key"], 4])
            state = state | {"folds": make_folds(len(has_data), generator)}
            folds += [fold for fold in range(FOLDS) if (has_data & (state["folds"] != fold)).any()]
        own = state["folds"][has_data]
        most = min(len(np.unique(values[own != fold], axis=0)) for fold in folds)
        candidates = list[Candidate]()
        for k in dict.fromkeys(min(k, most) for k in numbers):
            for fold in folds:
                found = self._starts(values[own != fold], k, rng)
                candidates += [
                    new_candidate(
                        MixturePopulation(share, means / size, np.repeat(variances, k, 0), noise),
                        fold,
                    )
                    for share, means in found
                ]
        return state | {"phase": "climb", "candidates": candidates}

    def _starts(self, values: NDArray, k: int, rng: Any) -> list[tuple[NDArray, NDArray]]:
        """Shares and centres of several clusterings; the same found twice is one."""
        starts: dict[bytes, tuple[NDArray, NDArray]] = {}
        for _ in range(self.settings.n_init if k > 1 else 1):
            labels, centres = kmeans(values, k, rng)
            count = np.bincount(labels, minlength=k)
            order = np.lexsort(centres.T[::-1])
            name = np.sort(count).tobytes() + np.round(centres[order], 6).tobytes()
            starts.setdefault(name, (count[order] / count.sum(), centres[order]))
        return list(starts.values())

    # Choosing ---------------------------------------------------------------------------------

    def _rests(self, state: MixtureState, candidate: Candidate) -> bool:
        """Whether a candidate has come close enough for a choice; the chosen one goes on."""
        close = candidate["stuck"] or candidate["gain"] <= CLOSE
        return len(state["candidates"]) > 1 and len(candidate["path"]) >= SHORT and close

    def _narrowed(self, state: MixtureState, last: bool) -> MixtureState:
        """Keep the likeliest start of each number, then the number that the rule chooses."""
        candidates = state["candidates"]
        if len(candidates) == 1 or not (last or len(candidates[0]["path"]) >= SHORT):
            return state
        best: dict[tuple[int, int], Candidate] = {}
        for each in candidates:
            name = len(each["tried"]["weights"]), each["fold"]
            if name not in best or each["path"][-1] > best[name]["path"][-1]:
                best[name] = each
        state = state | {"candidates": list(best.values())}
        waiting = any(not self._rests(state, each) for each in best.values())
        if len(best) > 1 and waiting and not last and len(candidates[0]["path"]) < CHOICE:
            return state
        if not self.settings.chooses:
            (only,) = best.values()
            return state | {"candidates": [only]}
        numbers = sorted({k for k, _ in best})
        place, criterion = self._chosen(state, best, numbers)
        return state | {"candidates": [best[numbers[place], -1]], "criterion": criterion}

    def _chosen(
        self, state: MixtureState, best: dict[tuple[int, int], Candidate], numbers: list[int]
    ) -> tuple[int, NDArray]:
        """Return which of several numbers of components is chosen, and the criterion of each."""
        has_data, folds = state["n"] > 0, state["folds"]
        if self.settings.n_components != "heldout":
            free = [self._n_free(state, best[k, -1]["tried"]) for k in numbers]
            logs = [best[k, -1]["path"][-1] for k in numbers]
            pairs = zip(logs, free, strict=True)
            criterion = np.array([bic(*each, has_data.sum()) for each in pairs])
            return int(np.argmin(criterion)), criterion
        held_out = np.zeros((len(numbers), len(folds)))
        for row, k in zip(held_out, numbers, strict=True):
            for fold in range(FOLDS):
                if (k, fold) in best:
                    row[folds == fold] = best[k, fold]["evidence"][folds == fold]
        held_out = held_out[:, has_data]
        return fewest_as_good(held_out, np.ones(held_out.shape[1])), -2 * held_out.sum(axis=1)

    def _n_free(self, state: MixtureState, tried: MixtureParameters) -> int:
        """Number of fitted parameters: weights, means, variances, noise."""
        k, p = tried["means"].shape
        free = k * p + k - 1 + (self.settings.noise_variance is None)
        return free + (tried["variances"].size if state["estimates_spread"] else 0)

    def _done(self, state: MixtureState, candidate: Candidate) -> MixtureState:
        """Add what was learned to the state, in the units of the data."""
        found, units = MixturePopulation(**candidate["trail"][-1][0]), state["units"]
        unit, units = units[-1], units[:-1]
        n_rows = int(state["n"].sum())
        # of rows, not of rows in the units of the server times the roots of their weights
        shift = n_rows * np.log(unit) - state["log_weight"] / 2
        path = [value - shift for value in candidate["path"]]
        found = found._replace(
            means=shortest(found.means, candidate["information"].sum(axis=0)),
        )
        free = self._n_free(state, candidate["tried"])
        criterion = state["criterion"] + 2 * shift
        if not self.settings.chooses:
            criterion = np.array([bic(path[-1], free, max((state["n"] > 0).sum(), 1))])
        order = np.lexsort(found.means.T[::-1])
        k, p = found.means.shape
        # rounds before the candidate's first have no likelihood of it
        early = state["round"] - len(path)
        path = [*[np.nan] * early, *path]
        shares = [*[np.full(k, np.nan)] * early, *candidate["weights"]]
        history = [
            {"log_likelihood": value, "change": value - before}
            | {f"weight_{j}": weights[each] for j, each in enumerate(order)}
            for value, before, weights in zip(path, [np.nan, *path], shares, strict=False)
        ]
        variances = np.broadcast_to(found.variances, (k, p))[order]
        variances = np.where(variances > 2 * self.settings.least_variance, variances, 0.0)
        informations = candidate["information"][order]
        covariances = np.stack([invert(each) for each in informations])
        notes = [*state["notes"], *_undetermined(informations)]
        estimated = self.settings.has_noise and self.settings.noise_variance is None
        exact = estimated and found.noise < 2 * FLOOR
        if exact:
            notes.append(EXACT)
            covariances = covariances * variances.any()  # noise is all that they would come from
        for note in notes:
            warnings.warn(note, IdentificationWarning, stacklevel=7)
        result: MixtureResult = {
            "weights": found.weights[order],
            "means": found.means[order] * unit / units,
            "means_covariance": covariances * np.outer(unit / units, unit / units),
            "variances": variances * (unit / units) ** 2,
            "noise_variance": 0.0 if exact else found.noise * unit**2,
            "least_noise": found.noise * unit**2 if exact else 0.0,
            "n_parameters": free,
            "criterion": criterion,
            "n_numbers": state["n_numbers"],
            "notes": notes,
        }
        if "classes" in state:
            result = result | {"classes": state["classes"]}
        return state | {
            "done": True,
            "history": history,
            "log_likelihood": np.nan if exact else path[-1],
            "candidates": [],
            "result": result,
        }


def scores_of(
    message: EvidenceMessage, weights: NDArray, grid: NDArray
) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """Return slopes in the means and information on them, and the same of variances and noise."""
    share = responsibilities(message["log"], weights)[1]

    def total(name: str) -> NDArray:
        values = cast(dict[str, NDArray], message)[name]
        return np.einsum("mk,mk...->k...", share, values)

    units = grid[:, :, None] * grid[:, None, :]
    spreads = total("variance").ravel(), np.array([total("noise").sum()])
    known = total("variance_information").ravel(), np.array([total("noise_information").sum()])
    information = message["information"].sum(axis=0) / units
    return total("mean"), information, np.concatenate(spreads), np.concatenate(known)


def _numbers(message: EvidenceMessage) -> int:
    """Count the numbers that a client sends for one population."""
    return sum(x[0].size for x in cast(dict[str, NDArray], message).values())


def start_mixture(
    settings: MixtureSettings, state: RegressionState, facts: RegressionFacts
) -> MixtureState:
    """Return the state before the first round of a mixture."""
    p = state["n_features"] + bool(settings.fit_intercept)
    notes = settings.open_questions(facts)
    return {
        **state,
        "phase": "sizes",
        "p": p,
        "rank": min(p + 1, int(facts["n"].max())),
        "estimates_spread": settings.has_variances and not notes,
        "notes": notes,
        "candidates": [],
        "folds": np.zeros(len(facts["n"]), np.int64),
        "criterion": np.full(1, np.nan),
        "n_numbers": p + 1,
        "log_weight": float(facts.get("log_weight", np.zeros(1)).sum()),
    }


EXACT = (
    "The components explain all rows exactly: the noise is taken to be zero, where the likelihood "
    "has no bound."
)


def _undetermined(informations: NDArray) -> list[str]:
    """Note coefficients that the rows do not identify."""
    p, notes = informations.shape[1], []
    n_identified = rank(informations.sum(axis=0))
    if n_identified < p:
        notes.append(
            f"Columns of X are collinear: of {p} coefficients of a mean only {n_identified} "
            "combinations are identified. Predictions for rows like those of the fit are right; "
            "single coefficients and their standard errors mean nothing."
        )
    for j, each in enumerate(informations):
        if (own := rank(each)) < n_identified:
            notes.append(
                f"The groups of component {j} identify only {own} combinations of the {p} "
                "coefficients of its mean."
            )
    return notes
