"""Gradient descent on coefficients, mean and variances together, for replication.

Algorithms 4 and 5 of Ozkara et al. (2023), of linear and of logistic regression. Their objective,
eq. (54) per client,

    n log(s_x**2) / 2 + |y_i - X_i theta_i|**2 / (2 s_x**2)
    + d log(s_t**2) / 2 + |theta_i - mu|**2 / (2 s_t**2),

or with the logistic loss in place of its first line, is unbounded below: it falls for ever as all
theta_i go to mu and s_t**2 to zero. The result of descent depends on its start and on the number of
steps. (The marginal likelihood, where the theta_i are integrated out, has a maximum.)
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning

from ebfed.arguments import check_choice
from ebfed.engines.robust import shifts_of_means
from ebfed.priors import IdentificationWarning
from ebfed.privacy.calibration import check_count, check_positive
from ebfed.regression.generalized_rounds import GeneralizedRounds, sums_of_clients
from ebfed.regression.linear_rounds import LinearRounds
from ebfed.regression.notes import JOINT
from ebfed.regression.protocol import GeneralizedResult, LinearResult
from ebfed.tables.clients import Clients

__all__ = ["LinearDescent", "LogisticDescent", "linear_descent", "logistic_descent"]


@dataclass(frozen=True, kw_only=True)
class LinearDescent(LinearRounds):
    """Algorithm 4 of Ozkara et al. (2023), on the logarithms of the variances.

    Its clients' steps need no more of their rows than the factors, and its server averages, so
    that it is run where the factors are. Coefficients start at zero, variances at the mean square
    of y.
    """

    learning_rate: float
    n_steps: int

    def update(self, state: Any, messages: Any) -> Any:
        """Run all steps, of factors of ``[X_i y_i]``, shape (n_clients, r, p + 1)."""
        rows, n, rate = messages["factor"], messages["n"], self.learning_rate
        X, y = np.ascontiguousarray(rows[:, :, :-1]), rows[:, :, -1]
        m, p = len(rows), X.shape[2]
        theta, mu = np.zeros((m, p)), np.zeros(p)
        start = max(float((y**2).sum() / max(n.sum(), 1)), 1e-300)
        log_noise = log_spread = np.log(start)
        path = []
        for _ in range(self.n_steps):
            noise, spread = np.exp([log_noise, log_spread])
            left = y - np.einsum("mrp,mp->mr", X, theta)
            away = mu - theta
            squares, distances = (left**2).sum(axis=1), (away**2).sum(axis=1)
            # [E] Equation 54
            each = n * log_noise + squares / noise + p * log_spread + distances / spread
            path.append(float(each.mean() / 2))
            # [E] Algorithm 4
            theta = theta + rate * (np.einsum("mrp,mr->mp", X, left) / noise + away / spread)
            mu = mu - rate * away.mean(axis=0) / spread
            log_noise -= rate * float((n / 2 - squares / (2 * noise)).mean())
            log_spread -= rate * float((p / 2 - distances / (2 * spread)).mean())
            if not np.isfinite([log_noise, log_spread]).all() or not np.isfinite(theta).all():
                raise ValueError(
                    f"gradient descent diverged after {len(path)} steps; lower learning_rate from "
                    f"{rate:g}."
                )
        return self._last(state, mu, float(np.exp(log_spread)), float(np.exp(log_noise)), path)

    # Beside the algorithm ---------------------------------------------------------------------

    def begin(self, state: Any, facts: Any) -> Any:
        if self.covariance != "spherical" or self.varying is not None or self.fixed is not None:
            raise ValueError(
                "solver='gradient' needs covariance='spherical', varying=None and fixed=None."
            )
        if self.share == "sums":
            raise ValueError("solver='gradient' needs share='groups': a factor of each group.")
        check_positive("learning_rate", self.learning_rate)
        check_count("n_steps", self.n_steps)
        for name, text in (("levels", "levels of groups need"), ("dispersion", "dispersion needs")):
            if name in facts:
                raise ValueError(f"{text} share='groups' and solver='marginal'; got 'gradient'.")
        return super().begin(state, facts)

    def _last(
        self, state: Any, mean: NDArray, variance: float, noise: float, path: list[float]
    ) -> Any:
        p = len(mean)
        note = (
            "Gradient descent on coefficients and variances together has no minimum to converge "
            f"to; the variances are those after {self.n_steps} steps, and say little about the "
            "population. solver='marginal' estimates them."
        )
        warnings.warn(note, ConvergenceWarning, stacklevel=8)
        result: LinearResult = {
            "mean": mean,
            "mean_covariance": np.zeros((p, p)),
            "null": np.zeros((p, 0)),
            "covariance": variance * np.eye(p),
            "covariance_error": np.zeros((p, p)),
            "noise_variance": noise,
            "criterion": np.nan,
            "n_parameters": p + 2,
            "notes": [note],
            "n_sums": 0,
            "covariates": state["covariates"],
        }
        return state | {
            "round": 1,
            "done": True,
            "history": [{"objective": value} for value in path],
            "log_likelihood": np.nan,
            "converged": None,
            "result": result,
        }


def linear_descent(
    rounds: LinearRounds, solver: str, learning_rate: float, n_steps: int
) -> LinearDescent:
    """Return Algorithm 4 with the arguments of other rounds.

    Raises
    ------
    ValueError
        If the solver is another.
    """
    check_choice("solver", solver, ("marginal", "gradient"))
    return LinearDescent(**_arguments(rounds), learning_rate=learning_rate, n_steps=n_steps)


def _arguments(rounds: Any) -> dict[str, Any]:
    return {each.name: getattr(rounds, each.name) for each in fields(rounds)}


@dataclass(frozen=True, kw_only=True)
class LogisticDescent(GeneralizedRounds):
    """Algorithm 5 of Ozkara et al. (2023), on the logarithm of the variance.

    The prior's pull on theta is ``(theta - mean) / variance``, which the paper has with the other
    sign. Coefficients start at zero, the variance at one.
    """

    learning_rate: float

    def local(self, sent: Any, memory: Any, clients: Clients, rng: Any) -> tuple[Any, Any]:
        """Take a step of clients' coefficients; send what each makes of mean and variance."""
        mean, variance, rate = sent["mean"], sent["variance"], self.learning_rate
        theta = memory.get("theta", np.zeros((len(clients), len(mean))))
        # [E] Algorithm 5
        away = (theta - mean) / variance
        rows = self.responses(clients, sent)
        signs = 2 * rows.y - 1
        logit = np.einsum("np,np->n", clients.X, np.repeat(theta, clients.n, axis=0))
        # [E] Equation 55
        slope = sums_of_clients(
            clients.X * (-rows.weight * signs * expit(-signs * logit))[:, None], clients
        )
        by_log_variance = len(mean) / 2 - 0.5 * variance * (away**2).sum(axis=1)
        with np.errstate(over="ignore", invalid="ignore"):  # the server checks for divergence
            message = {
                "mean": mean + rate * away,
                "log_variance": np.log(variance) - rate * by_log_variance,
            }
            return message, memory | {"theta": theta - rate * (slope + away)}

    def _step(self, state: Any, messages: Any) -> Any:
        """Average what clients made of mean and variance."""
        log_variance, mean = float(messages["log_variance"].mean()), messages["mean"].mean(axis=0)
        if not np.isfinite([log_variance, *mean]).all():
            raise ValueError(
                f"gradient descent diverged after {state['round']} rounds; lower "
                f"learning_rate={self.learning_rate!r}, or rescale X."
            )
        # the step on theta is stable down to here
        variance = max(float(np.exp(min(log_variance, 50.0))), self.learning_rate)
        history = [*state["history"], {"variance": variance}]
        phase = "end" if state["round"] >= self.n_rounds else "gradient"
        return state | {"phase": phase, "mean": mean, "variance": variance, "history": history}

    def _end(self, state: Any) -> Any:
        """Add what was learned: nothing is known of its errors."""
        warnings.warn(JOINT, IdentificationWarning, stacklevel=8)
        p = len(state["mean"])
        root, unknown = np.sqrt(state["variance"]) * np.eye(p), np.full((p, p), np.nan)
        result: GeneralizedResult = {
            "mean": state["mean"],
            "mean_covariance": unknown,
            "covariance": root @ root.T,
            "root": root,
            "null": np.zeros((p, 0)),
            "shapes": np.zeros(0),
            "shape_covariance": unknown,
            "notes": [*state["notes"], JOINT],
            "method": "gradient",
            "classes": state["classes"],
        }
        return state | {"done": True, "log_likelihood": np.nan, "result": result}

    # Beside the algorithm ---------------------------------------------------------------------

    def begin(self, state: Any, facts: Any) -> Any:
        state = super().begin(state, facts)
        p = len(state["varies"])
        return state | {"phase": "gradient", "mean": np.zeros(p), "variance": 1.0}

    def _check_method(self) -> None:
        one = self.varying is None and self.fixed is None and not self.estimator._level_names
        if self.covariance != "spherical" or self.share != "groups" or not one:
            raise ValueError(
                "method='gradient' needs covariance='spherical', share='groups', varying=None, "
                "fixed=None and groups of one level."
            )
        if not 0 < self.learning_rate < np.inf:
            raise ValueError(f"learning_rate must be positive; got {self.learning_rate!r}.")

    def ask(self, state: Any) -> Any:
        """Send mean and variance."""
        names = "round", "phase", "classes", "mean", "variance"
        return {"done": False} | {name: state[name] for name in names}

    def bits(self, sent: Any, clients: Clients) -> float:
        """Bits of a mean and a variance of each client."""
        return 64.0 * len(clients) * (clients.X.shape[1] + 1)

    def _parts(self, sent: Any, n_features: int) -> dict[str, tuple[int, ...]]:
        return {"mean": sent["mean"].shape, "log_variance": ()}

    def shifts(self, before: Any, after: Any, messages: Any) -> NDArray[np.float64]:
        """Return how far the last average moves without each node."""
        if not after["done"] or len(messages) < 2:
            return np.full(len(messages), np.nan)
        sums = np.array([each["mean"].sum(axis=0) for each in messages])
        return shifts_of_means(sums, np.array([float(len(each["mean"])) for each in messages]))


def logistic_descent(rounds: GeneralizedRounds, learning_rate: float) -> LogisticDescent:
    """Return Algorithm 5 with the arguments of other rounds."""
    return LogisticDescent(**_arguments(rounds), learning_rate=learning_rate)
