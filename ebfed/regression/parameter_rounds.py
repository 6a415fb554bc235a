"""Rounds in which clients send coefficients, through a channel, and the server clusters them.

What a client sends depends on the method: its own estimate in the first round, then what it makes
of that or draws given the population of the round before. The server fits a mixture to the messages
with the channel's variance as their noise. No likelihood is at hand, so the number of rounds is
fixed; every one of them is a release, and the ledger counts them all.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.exceptions import ConvergenceWarning

from ebfed.channels import Channel, Clip, Exact
from ebfed.channels.report import Report
from ebfed.privacy import PrivacyWarning, accountant, events, ledger
from ebfed.regression.mixture_regression import MixtureRegression
from ebfed.regression.numerics.evidence import (
    MixturePopulation,
    RotatedRows,
    responsibilities,
    rotate,
    weigh,
)
from ebfed.streams import Stream
from ebfed.tables.clients import Summary
from ebfed.tables.factors import Factors

__all__ = ["ParameterRounds", "draw", "least_squares"]

UNSETTLED = (
    "In some rounds the messages hardly told the components apart, and the mixture had not settled."
)


class ParameterRounds(RegressorMixin, MixtureRegression):
    """A mixture of regressions that can also be fitted to coefficients alone."""

    @property
    @abstractmethod
    def _sends_parameters(self) -> bool:
        """Whether clients send coefficients, rather than slopes of the likelihood."""

    @abstractmethod
    def _next(
        self, rows: RotatedRows, theta: NDArray, population: MixturePopulation, rng: Any
    ) -> NDArray[np.float64]:
        """What clients send once there is a population, given what they sent before."""

    def _first(self, rows: RotatedRows, rng: Any) -> NDArray[np.float64]:
        """What clients send in the first round."""
        return least_squares(rows)

    @abstractmethod
    def _cluster(self, values: NDArray, variances: NDArray, seed: int) -> MixturePopulation:
        """Fit components to coefficients (n, p) that have noise of these variances."""

    def _channel(self) -> Channel:
        channel = getattr(self, "channel", None)
        channel = Exact() if channel is None else channel
        if not isinstance(channel, Channel):
            raise TypeError(f"channel must be an ebfed.channels.Channel; got {channel!r}.")
        ball = isinstance(channel, Clip) and channel.radius is not None
        if channel.left_open and not ball:
            raise ValueError(
                f"{channel!r} leaves {', '.join(sorted(channel.left_open))} open: nothing public "
                "tells the size of coefficients, so it must be given."
            )
        return channel

    def expected_rounds(self) -> int | None:
        """Return how many rounds there will be, if that is fixed."""
        return self._most_rounds() if self._sends_parameters else None

    # Clients ----------------------------------------------------------------------------------

    def local(
        self, sent: dict, memory: dict, clients: Factors, rng: Any
    ) -> tuple[dict[str, Any], dict]:
        """Send coefficients through the channel."""
        if sent["phase"] != "parameters":
            return super().local(sent, memory, clients, rng)
        if "design" not in memory:
            rows = rotate(clients.padded(sent["rank"]), clients.n)
            memory = memory | rows._asdict() | {"clipped": np.zeros(len(clients), bool)}
        rows = RotatedRows(*(memory[name] for name in RotatedRows._fields))
        if sent["population"] is None:
            theta = self._first(rows, rng)
        else:
            theta = self._next(rows, memory["theta"], MixturePopulation(**sent["population"]), rng)
        channel = self._channel()
        summary = Summary(clients.ids, clients.n, theta, np.zeros_like(theta))
        message = channel.encode(summary, rng)
        clipped = memory["clipped"] | channel.clipped(summary)
        return message, memory | {"theta": theta, "clipped": clipped}

    def releases(self, sent: dict, memory: dict, clients: Factors) -> list[dict[str, Any]]:
        """List what clients send in a round."""
        if not self._sends_parameters:
            return super().releases(sent, memory, clients)
        p = clients.n_features
        nothing = np.zeros((len(clients), p))
        return [
            ledger.release(
                "all clients",
                self._channel(),
                clients=len(clients),
                clipped=int(memory["clipped"].sum()) if "clipped" in memory else None,
                bits=float(
                    self._channel()
                    .message_bits(Summary(clients.ids, clients.n, nothing, nothing))
                    .sum()
                ),
                n_features=p,
            )
        ]

    def _write_ledger(self, sent: dict) -> list[dict]:
        """List what clients sent in all rounds together."""
        rows = super()._write_ledger(sent)
        if not self._sends_parameters:
            return rows
        times = sent["round"]
        total = _composed(self._channel(), len(self.mean_), times)
        return [row | {"epsilon": total, "bits": times * row["bits"]} for row in rows]

    def finish(self, sent: dict, memory: dict, clients: Factors) -> Any:
        """Set the learned attributes of these clients' own copy."""
        super().finish(sent, memory, clients)
        self._memory = {name: x for name, x in memory.items() if name in ("theta", "clipped")}
        self._ledger = self._write_ledger(sent)
        return self

    score = MixtureRegression.score  # not the mixin's, which knows no groups

    # Server -----------------------------------------------------------------------------------

    def start(self, facts: dict, key: NDArray) -> dict:
        """Return the state before the first round."""
        state = super().start(facts, key)
        if not self._sends_parameters:
            return state
        channel = self._channel()
        channel.guarantee(state["p"])  # checks its arguments
        if isinstance(channel, Report) and not channel.whole and state["p"] > 1:
            raise ValueError(
                f"{channel!r} reports on one of a client's {state['p']} coefficients; mixtures "
                "need all of them: use channels.Gaussian, Quantizer, Clip or AddNoise."
            )
        return state | {"phase": "parameters", "population": None, "numbers": 0}

    def _asked(self, state: dict) -> dict:
        if state["phase"] != "parameters":
            return super()._asked(state)
        return {name: state[name] for name in ("phase", "rank", "population")}

    def check_message(self, message: dict, facts: dict, sent: dict, turn: NDArray) -> None:
        """Raise a ValueError if that is no answer of the clients that stated these facts."""
        if sent["phase"] != "parameters":
            return super().check_message(message, facts, sent, turn)
        n, channel = facts["n"], self._channel()
        p = int(facts["n_features"][0]) + bool(self.fit_intercept)
        nothing = np.zeros((len(n), p))
        pattern = channel.encode(Summary(np.arange(len(n)), n, nothing, nothing), 0)
        if message.keys() != pattern.keys():
            raise ValueError(f"a message must have the parts {', '.join(pattern)}.")
        for name, like in pattern.items():
            x = message[name]
            if not (isinstance(x, np.ndarray) and (x.dtype, x.shape) == (like.dtype, like.shape)):
                raise ValueError(f"{name} must be of type {like.dtype}, of shape {like.shape}.")
            if not np.isfinite(x).all():
                raise ValueError(f"{name} must be finite.")
        if not np.array_equal(message["n"], n):
            raise ValueError("a message must have the rows that were stated.")
        channel.decode(message)
        return None

    def update(self, state: dict, messages: dict) -> dict:
        """Cluster the coefficients."""
        if state["phase"] != "parameters":
            return super().update(state, messages)
        has_data, channel = state["n"] > 0, self._channel()
        values = channel.decode(messages)[has_data]
        seed = int(np.random.default_rng([*state["key"], state["round"]]).integers(2**31))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ConvergenceWarning)
            found = self._cluster(values, _average_variance(channel, values), seed)
        if any(issubclass(each.category, ConvergenceWarning) for each in caught):
            state = state | {"notes": list(dict.fromkeys([*state["notes"], UNSETTLED]))}
        before = state["population"]
        row = {f"weight_{j}": weight for j, weight in enumerate(found.weights)}
        moved = np.nan
        if before is not None and before["means"].shape == found.means.shape:
            moved = float(np.linalg.norm(found.means - before["means"]))
        state = state | {
            "round": state["round"] + 1,
            "population": found._asdict(),
            "history": [*state["history"], {"change": moved} | row],
        }
        return self._end(state) if state["round"] == self._most_rounds() else state

    def _end(self, state: dict) -> dict:
        found = MixturePopulation(**state["population"])
        k, p = found.means.shape
        return state | {
            "done": True,
            "log_likelihood": np.nan,
            "weights": found.weights,
            "means": found.means,
            "means_covariance": np.zeros((k, p, p)),
            "variances": np.broadcast_to(found.variances, (k, p)).copy(),
            "noise_variance": float(found.noise),
            "least_noise": 0.0,
            "n_parameters": k * p + k - 1 + (found.variances.size if self._has_variances else 0),
            "population": None,
        }


def _average_variance(channel: Channel, values: NDArray) -> NDArray:
    """Variance of what a channel makes of coefficients, on average over their range, shape (1, p).

    At a message itself it would be wrong: a `Quantizer` sends the values that it need not round.
    """
    points = np.linspace(values.min(axis=0), values.max(axis=0), 101)
    nothing = np.zeros_like(points)
    shown = Summary(np.arange(len(points)), np.ones(len(points), np.int64), points, nothing)
    return channel.variance(shown).mean(axis=0, keepdims=True)


def least_squares(rows: RotatedRows) -> NDArray:
    """Least-squares coefficients of each client, of least norm, shape (n, p)."""
    least = 1e-20 * rows.squares.max(axis=1, initial=0.0)[:, None]
    has_data = rows.squares > least
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(has_data, rows.response / rows.squares, 0.0)
    return (rows.design.swapaxes(1, 2) @ share[:, :, None])[:, :, 0]


def draw(rows: RotatedRows, population: MixturePopulation, rng: Any) -> NDArray:
    """Draw coefficients of each client from their posterior, shape (n, p).

    Coefficients and rows are drawn from the component, and the coefficients then moved by what the
    rows of the client are away from those drawn (Matheron's rule).

    Parameters
    ----------
    rows : RotatedRows
    population : MixturePopulation
    rng : Stream, or "secure" for numbers that nobody can repeat
    """
    (n, q, p), noise = rows.design.shape, population.noise
    if isinstance(rng, Stream):
        normals, uniforms = rng.normals(n, p + q), rng.uniforms(n)
    else:
        own = np.random.default_rng()
        normals, uniforms = own.standard_normal((n, p + q)), own.random((n, 1))
    share = responsibilities(weigh(rows, population).log, population.weights)[1]
    picked = (uniforms > np.cumsum(share, axis=1)[:, :-1]).sum(axis=1)
    theta = np.empty((n, p))
    for j, (mean, variance) in enumerate(zip(population.means, population.variances, strict=True)):
        drawn = np.sqrt(variance) * normals[:, :p]
        error = np.sqrt(noise) * normals[:, p:]
        response = rows.response - (rows.design @ drawn[:, :, None])[:, :, 0] - error
        one = MixturePopulation(np.ones(1), mean[None], variance[None], noise)
        slope = weigh(rows._replace(response=response), one).mean[:, 0]
        theta = np.where((picked == j)[:, None], mean + drawn + variance * slope, theta)
    return theta


def _composed(channel: Channel, p: int, times: int) -> float:
    """Epsilon of so many reports of one client, at the delta of one."""
    with warnings.catch_warnings():  # the row says what the warning does
        warnings.simplefilter("ignore", PrivacyWarning)
        epsilon, delta = channel.guarantee(p)
    if not np.isfinite(epsilon) or times == 1:
        return epsilon
    if delta == 0:
        return times * epsilon
    event = events.repeated(channel.event(p), times)
    return accountant.epsilon(event, delta, relation="replace_one")
