"""Regressions whose coefficients are drawn from a few components: what the methods share.

Rounds. Clients first state the sizes of their columns, from which the server takes units. A few
rounds fit one component to all (`pool`); k-means on the clients' coefficients under that population
gives several starts. All of them are climbed at once for a few rounds, the likeliest until a round
gains nothing (`climb`). A client's message has, for every population that the server asks about,
the log evidence for each component and its slopes; see `evidence`. A step that loses likelihood is
taken back by halves, so that it never falls.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from ebfed.priors import IdentificationWarning
from ebfed.priors.kmeans import kmeans
from ebfed.regression.base import (
    Parameter,
    RegressionEstimator,
    fixed_parameters,
    residual_parameter,
)
from ebfed.regression.numerics.evidence import (
    Evidence,
    MixturePopulation,
    RotatedRows,
    information,
    make_grid,
    responsibilities,
    rotate,
    weigh,
)
from ebfed.regression.numerics.scoring import (
    FLOOR,
    MEMORY,
    accelerate,
    between,
    improve,
    invert,
    rank,
    ridged,
    shortest,
)
from ebfed.regression.posteriors.component import ComponentPosterior
from ebfed.report.view import Components, RegressionView
from ebfed.tables.clients import Clients
from ebfed.tables.factors import Factors
from ebfed.tables.frames import frame

__all__ = ["MixtureRegression"]

MOST_ROUNDS = 300
LEAST_ROUNDS = 3  # sizes of columns, one component for all, the components
POOL = 6  # rounds that fit one component, at most
SHORT = 4  # rounds after which the likeliest start goes on alone
SMALLEST_STEP = 1e-4  # share of a step that is still tried
SLOW = 1e-2  # gain of a round, per client, below which steps are extrapolated


class MixtureRegression(RegressionEstimator):
    """Coefficients from a mixture of Gaussians, or of points.

    Attributes
    ----------
    weights_ : ndarray of shape (k,)
    means_, variances_ : ndarray of shape (k, p)
        Of the components, sorted by their means; the intercept first.
    means_covariance_ : ndarray of shape (k, p, p)
        Sampling covariance of each component's mean, given who belongs to it.
    mean_, variance_ : ndarray of shape (p,)
        Of the population.
    noise_variance_ : float
    """

    RESULTS: ClassVar[tuple[str, ...]] = (
        "weights",
        "means",
        "means_covariance",
        "variances",
        "noise_variance",
        "least_noise",
        "n_parameters",
        "numbers",
        "notes",
    )

    SENT: ClassVar[str] = "slopes of the likelihood of each client's rows, as they are"

    n_components: int
    noise_variance: float | None
    n_init: int
    n_rounds: int | None
    tol: float

    # Hooks ------------------------------------------------------------------------------------

    # Whether components have variances, and rows noise.
    _has_variances: ClassVar[bool] = True
    _has_noise: ClassVar[bool] = True
    # Of posteriors.
    _kind: ClassVar[type[ComponentPosterior]] = ComponentPosterior
    # In units: the least variance looked for, and the least information on a mean.
    _least: ClassVar[float] = 0.0
    _ridge: ClassVar[float] = 0.0

    @property
    def _one_variance(self) -> bool:
        return True

    # Clients ----------------------------------------------------------------------------------

    def _block(self, clients: Clients) -> Any:
        return Factors.of(clients)

    def local(
        self, sent: dict, memory: dict, clients: Any, rng: Any
    ) -> tuple[dict[str, Any], dict]:
        """Send sizes of columns; then what the rows say of the populations asked about."""
        if sent["phase"] == "sizes":
            return {"n": clients.n, "squares": self._squares(clients)}, memory
        memory = self._prepared(sent, memory, clients)
        message = {}
        for name, asked in sent["populations"].items():
            population = MixturePopulation(**asked)
            found = self._found(sent, memory, clients, population)
            _, share = responsibilities(found.log, population.weights)
            grid = make_grid(sent["size"], population, sent["n_clients"])
            message[name] = found.messages() | {"information": information(found, share, grid)}
        return message, memory

    def _squares(self, clients: Any) -> NDArray:
        """Sums of squares of the columns of ``[X y]``, shape (n, p + 1)."""
        return (clients.rows**2).sum(axis=1)

    def _prepared(self, sent: dict, memory: dict, clients: Any) -> dict:
        """Return memory with what is needed in every round, in the units of the server."""
        if "design" in memory:
            return memory
        rows = rotate(clients.padded(sent["rank"]) / sent["units"], clients.n)
        return memory | rows._asdict()

    def _found(
        self, sent: dict, memory: dict, clients: Any, population: MixturePopulation
    ) -> Evidence:
        return weigh(RotatedRows(*(memory[name] for name in RotatedRows._fields)), population)

    # Server -----------------------------------------------------------------------------------

    def _check(self) -> None:
        for name in ("n_components", "n_init", "n_rounds"):
            value = getattr(self, name)
            whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
            if not (whole and value >= 1) and not (name == "n_rounds" and value is None):
                raise ValueError(f"{name} must be a whole number from 1; got {value!r}.")
        if not (isinstance(self.tol, Real) and 0 <= self.tol < np.inf):
            raise ValueError(f"tol must be a number from 0; got {self.tol!r}.")
        noise = self.noise_variance
        if noise is not None and not (isinstance(noise, Real) and 0 < noise < np.inf):
            raise ValueError(f"noise_variance must be above 0, or None; got {noise!r}.")

        if self.expected_rounds() is None and self._most_rounds() < LEAST_ROUNDS:
            raise ValueError(
                f"n_rounds must be at least {LEAST_ROUNDS}: one tells the sizes of columns, one "
                f"fits a single component, and one several; got {self.n_rounds!r}."
            )

    def _most_rounds(self) -> int:
        return MOST_ROUNDS if self.n_rounds is None else self.n_rounds

    def start(self, facts: dict, key: NDArray) -> dict:
        """Return the state before the first round."""
        self._check()
        state = super().start(facts, key)
        p = state["n_features"] + bool(self.fit_intercept)
        notes = []
        has_data = facts["n"][facts["n"] > 0]
        if len(has_data) and self.n_components > len(has_data):
            raise ValueError(
                f"n_components={self.n_components} is more than there are groups with rows: "
                f"n_samples={len(has_data)} of them."
            )
        if self._has_variances and len(has_data) == 1:
            notes.append(
                "Only one group has data: the spread of the population is not identified and "
                "taken to be zero."
            )
        elif self._has_variances and has_data.max(initial=0) <= 1:
            notes.append(
                "No group has two rows: noise and spread of the population are not identified "
                "apart. The spread is taken to be zero."
            )
        return state | {
            "phase": "sizes",
            "p": p,
            "rank": min(p + 1, int(facts["n"].max())),
            "spread": self._has_variances and not notes,
            "notes": notes,
            "candidates": [],
            "numbers": p + 1,
        }

    def _asked(self, state: dict) -> dict:
        if state["phase"] == "sizes":
            return {"phase": "sizes"}
        asked = {name: state[name] for name in ("phase", "rank", "units", "size")}
        tried = {str(i): each["tried"] for i, each in enumerate(state["candidates"])}
        return asked | {"populations": tried, "n_clients": len(state["n"])}

    def check_message(self, message: dict, facts: dict, sent: dict, turn: NDArray) -> None:
        """Raise a ValueError if that is no answer of the clients that stated these facts."""
        m = len(facts["n"])
        p = int(facts["n_features"][0]) + bool(self.fit_intercept)
        if sent["phase"] == "sizes":
            _check_arrays(message, {"n": (m,), "squares": (m, p + 1)})
            if not np.array_equal(message["n"], facts["n"]) or message["squares"].min() < 0:
                raise ValueError("a message must have the rows that were stated, and squares.")
            return
        if message.keys() != sent["populations"].keys():
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
            _check_arrays(message[name], shapes)

    def update(self, state: dict, messages: dict) -> dict:
        """Take the next step of each population, or make the first ones."""
        state = state | {"round": state["round"] + 1}
        if state["phase"] == "sizes":
            return self._measure(state, messages)
        candidates = [
            self._advance(state, each, messages[str(i)])
            for i, each in enumerate(state["candidates"])
        ]
        numbers = sum(x[0].size for i in messages for x in messages[i].values())
        state = state | {"candidates": candidates, "numbers": state["numbers"] + numbers}
        (first, *_) = candidates
        if state["phase"] == "pool":
            more = state["round"] < min(POOL + 1, self._most_rounds() - 1)
            if more and first["gain"] > 0.1 and not first["stuck"]:
                return state
            return self._begin(state, messages["0"])
        tired = state["round"] >= self._most_rounds()
        if len(candidates) > 1 and (tired or len(first["path"]) >= SHORT):
            candidates = [max(candidates, key=lambda each: each["path"][-1])]
            state = state | {"candidates": candidates}
        (first, *others) = candidates
        still = first["stuck"] or first["gain"] <= self.tol * len(state["n"])
        if tired and not still:
            gain = first["gain"]
            doing = (
                f"still gaining {gain:.3g} in log-likelihood"
                if gain < np.inf
                else "too few to tell what another gains"
            )
            warnings.warn(
                f"{type(self).__name__} stopped after {state['round']} rounds, {doing}; raise "
                "n_rounds.",
                ConvergenceWarning,
                stacklevel=5,
            )
        if tired or (still and not others):
            return self._done(state, first) | {"converged": bool(still)}
        return state

    def _measure(self, state: dict, messages: dict) -> dict:
        """Take units from the sizes of columns, and begin with one component for all."""
        squares, n_rows = messages["squares"], max(int(state["n"].sum()), 1)
        p = state["p"]
        mean_squares = squares.sum(axis=0) / n_rows
        if self._one_variance:  # the coefficients share a unit
            mean_squares[:p] = mean_squares[:p].mean()
        units = np.sqrt(np.where(mean_squares > 0, mean_squares, 1.0))
        v = 1 if self._one_variance else p
        noise = 0.5
        if self.noise_variance is not None:
            noise = self.noise_variance / units[-1] ** 2
        population = MixturePopulation(
            np.ones(1), np.zeros((1, p)), np.full((1, v), 0.5 / p), noise
        )
        return state | {
            "phase": "pool",
            "units": units,
            "size": np.sqrt(squares[:, :p].max(axis=0)) / units[:p],
            "columns_size": np.sqrt(squares[:, :p].sum(axis=0) / n_rows) / units[:p],
            "candidates": [_candidate(population)],
        }

    def _advance(self, state: dict, candidate: dict, received: dict) -> dict:
        """Accept the population tried, or go back half of the way."""
        tried = MixturePopulation(**candidate["tried"])
        grid = make_grid(state["size"], tried, len(state["n"]))
        known = received["information"].sum(axis=0) / _squares(grid)
        received = received | {"information": ridged(known, self._ridge)}
        value, target = improve(
            tried,
            received,
            state["n"] > 0,
            spread=state["spread"] or (state["phase"] == "pool" and state["rank"] > 1),
            noise=self.noise_variance is None,
        )
        target = target._replace(variances=np.maximum(target.variances, self._least))
        path, leap, reach = candidate["path"], candidate["leap"], candidate["reach"]
        if not path or value >= path[-1]:
            trail = [*candidate["trail"], (tried._asdict(), target._asdict())][-MEMORY:]
            gain = value - path[-1] if path else np.inf
            candidate = candidate | {
                "path": [*path, value],
                "weights": [*candidate["weights"], tried.weights],
                "gain": gain,
                "information": received["information"],
                "trail": trail,
                "tried": target._asdict(),
                "leap": 2 * leap if reach > 1 else leap,
                "reach": 1.0,
            }
            if gain > SLOW * len(state["n"]) or len(trail) < 2:
                return candidate
            pairs = [(MixturePopulation(**begin), MixturePopulation(**end)) for begin, end in trail]
            aim = accelerate(pairs, candidate["leap"])
            aim = aim._replace(variances=np.maximum(aim.variances, self._least))
            return candidate | {"tried": aim._asdict(), "reach": 2.0}
        # not beyond the step: the step itself; not that: half of it
        begin, end = (MixturePopulation(**x) for x in candidate["trail"][-1])
        return candidate | {
            "path": [*path, path[-1]],
            "weights": [*candidate["weights"], candidate["weights"][-1]],
            "tried": between(begin, end, reach / 2)._asdict(),
            "leap": leap / 4 if reach > 1 else leap,
            "reach": reach / 2,
            "lost": candidate["lost"] + 1,
            "stuck": reach / 2 < SMALLEST_STEP,
        }

    def _begin(self, state: dict, received: dict) -> dict:
        """Start from clusters of the clients' coefficients under one component for all."""
        (pooled,) = state["candidates"]
        one, k = MixturePopulation(**pooled["trail"][-1][0]), self.n_components
        if k == 1 and state["spread"]:
            return state | {"phase": "climb"}
        variances, noise = one.variances, one.noise
        if not state["spread"]:  # what they explained is noise now
            if self.noise_variance is None:
                per_column = state["columns_size"] ** 2
                noise = noise + float((variances * per_column).sum())
            variances = np.full_like(variances, self._least)
        tried = MixturePopulation(**pooled["tried"]) if pooled["lost"] else one
        has_data = state["n"] > 0
        values = (tried.means + tried.variances * received["mean"][:, 0])[has_data] * state[
            "columns_size"
        ]
        rng = np.random.RandomState(np.random.default_rng([*state["key"], 3]).integers(2**31))
        k = min(k, len(np.unique(values, axis=0)))
        if k < self.n_components:
            told_apart = (
                f"Groups have only {k} different estimate{'s' * (k > 1)}: of "
                f"{self.n_components} components {k} {'are' if k > 1 else 'is'} fitted."
            )
            state = state | {"notes": [*state["notes"], told_apart]}
        starts: dict[bytes, MixturePopulation] = {}
        for _ in range(self.n_init if k > 1 else 1):
            labels, centres = kmeans(values, k, rng)
            count = np.bincount(labels, minlength=k)
            order = np.lexsort(centres.T[::-1])
            size = np.where(state["columns_size"] > 0, state["columns_size"], 1.0)
            means = centres[order] / size
            # the same clusters found twice are one start
            starts.setdefault(
                np.sort(count).tobytes() + np.round(means, 6).tobytes(),
                MixturePopulation(
                    count[order] / count.sum(), means, np.repeat(variances, k, 0), noise
                ),
            )
        return state | {
            "phase": "climb",
            "candidates": [_candidate(each) for each in starts.values()],
        }

    def _done(self, state: dict, candidate: dict) -> dict:
        """Add what was learned to the state, in the units of the data."""
        found, units = MixturePopulation(**candidate["trail"][-1][0]), state["units"]
        unit, units = units[-1], units[:-1]
        n_rows = int(state["n"].sum())
        path = [value - n_rows * np.log(unit) for value in candidate["path"]]
        found = found._replace(
            means=shortest(found.means, candidate["information"].sum(axis=0)),
        )
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
        free = k * p + k - 1 + (self.noise_variance is None)
        free += found.variances.size if state["spread"] else 0
        variances = np.broadcast_to(found.variances, (k, p))[order]
        variances = np.where(variances > 2 * self._least, variances, 0.0)
        informations = candidate["information"][order]
        covariances = np.stack([invert(each) for each in informations])
        notes = [*state["notes"], *_undetermined(informations)]
        exact = self._has_noise and self.noise_variance is None and found.noise < 2 * FLOOR
        if exact:
            notes.append(EXACT)
            covariances = covariances * variances.any()  # noise is all that they would come from
        for note in notes:
            warnings.warn(note, IdentificationWarning, stacklevel=6)
        return state | {
            "done": True,
            "notes": notes,
            "history": history,
            "log_likelihood": np.nan if exact else path[-1],
            "weights": found.weights[order],
            "means": found.means[order] * unit / units,
            "means_covariance": covariances * np.outer(unit / units, unit / units),
            "variances": variances * (unit / units) ** 2,
            "noise_variance": 0.0 if exact else found.noise * unit**2,
            # what posteriors take for it
            "least_noise": found.noise * unit**2 if exact else 0.0,
            "n_parameters": free,
            "candidates": [],
        }

    # Learning ---------------------------------------------------------------------------------

    def _learn(self, sent: dict) -> None:
        for name in (
            "weights",
            "means",
            "means_covariance",
            "variances",
            "noise_variance",
            "notes",
        ):
            setattr(self, f"{name}_", sent[name])
        self._n_parameters, self._least_noise = sent["n_parameters"], sent["least_noise"]
        self.mean_ = self.weights_ @ self.means_
        self.variance_ = self.weights_ @ (self.variances_ + (self.means_ - self.mean_) ** 2)

    def finish(self, sent: dict, memory: dict, clients: Any) -> Any:
        """Set the learned attributes of these clients' own copy."""
        return super().finish(sent, {}, clients)

    def _bits(self, sent: dict, clients: Any) -> float:
        if not sent["done"]:  # what a round takes depends on how many populations it asks about
            return np.nan
        return 64.0 * sent["numbers"] * len(clients) / sent["round"]

    @property
    def n_parameters_(self) -> int:
        """Number of fitted parameters: weights, means, variances, noise."""
        check_is_fitted(self, "mean_")
        return self._n_parameters

    def _parameters(self) -> list[Parameter]:
        nothing = np.full(len(self.terms_), np.nan)
        rows = fixed_parameters(self.terms_, self.mean_, nothing)
        for j, weight in enumerate(self.weights_):
            name = f"component {j}"
            rows.append(("component", name, "weight", weight, np.nan))
            errors = np.sqrt(np.diag(self.means_covariance_[j]))
            rows += [
                ("component", name, *each)
                for each in zip(self.terms_, self.means_[j], errors, strict=True)
            ]
            if self._has_variances:
                shown = ["all"] if self._one_variance else self.terms_
                rows += [
                    ("component", name, f"sd__{term}", np.sqrt(variance), np.nan)
                    for term, variance in zip(shown, self.variances_[j], strict=False)
                ]
        return [*rows, residual_parameter(self.noise_variance_)] if self._has_noise else rows

    def _given_population(self) -> Any:
        return self._posterior(self.clients_)

    def _reliability(self) -> dict[str, NDArray]:
        return {}  # of a mixture it is not one share

    def view(self) -> RegressionView:
        """Return what reports and plots read of the fit."""
        components = Components(self.weights_, self.means_, self.variances_)
        return replace(super().view(), components=components)

    # Estimates --------------------------------------------------------------------------------

    def _posterior(self, block: Any) -> ComponentPosterior:
        variances = self.variances_[:, :1] if self._one_variance else self.variances_
        noise = max(self.noise_variance_, self._least_noise)
        population = MixturePopulation(self.weights_, self.means_, variances, noise)
        return self._kind(block, self._weigh, population, self.means_covariance_)

    def _weigh(self, block: Any, population: MixturePopulation) -> Evidence:
        """Evidence of a block's rows, in the units of the data."""
        return weigh(rotate(block.rows, block.n), population)

    def responsibilities(self, X: Any = None, y: Any = None, *, groups: Any = None) -> Any:
        """Probability that each group belongs to each component.

        Parameters
        ----------
        X, y, groups : as in `posterior`

        Returns
        -------
        DataFrame
            Group label, then ``component_0``, ``component_1``, …
        """
        posterior = self.posterior(X, y, groups=groups)
        assert isinstance(posterior, ComponentPosterior)
        columns = {f"component_{j}": x for j, x in enumerate(posterior.responsibilities.T)}
        return frame({self._style_.group: posterior._ids} | columns, self._style_)


EXACT = (
    "The components explain all rows exactly: the noise is taken to be zero, where the likelihood "
    "has no bound."
)


def _undetermined(informations: NDArray) -> list[str]:
    """Say which coefficients rows leave open."""
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


def _candidate(population: MixturePopulation) -> dict[str, Any]:
    """Population that is to be tried, and nothing known of it."""
    return {
        "tried": population._asdict(),
        "path": [],
        "weights": [],
        "trail": [],
        "leap": 4.0,
        "reach": 1.0,
        "gain": np.inf,
        "lost": 0,
        "stuck": False,
    }


def _squares(grid: NDArray) -> NDArray:
    """Units of the information on the means, shape (k, p, p)."""
    return grid[:, :, None] * grid[:, None, :]


def _check_arrays(part: Any, shapes: dict[str, tuple[int, ...]]) -> None:
    if not isinstance(part, dict) or part.keys() != shapes.keys():
        raise ValueError(f"a message must have the parts {', '.join(shapes)}.")
    for name, shape in shapes.items():
        x = part[name]
        if not (isinstance(x, np.ndarray) and x.dtype.kind in "if" and x.shape == shape):
            raise ValueError(f"{name} must be numbers of shape {shape}.")
        if not np.isfinite(x).all():
            raise ValueError(f"{name} must be finite.")
