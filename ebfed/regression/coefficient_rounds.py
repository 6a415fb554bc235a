"""Rounds in which clients send coefficients, through a channel, and the server clusters them.

What a client sends depends on the scheme: its own estimate in the first round, then what it makes
of that or draws given the population of the round before. The server fits a mixture to the messages
with the channel's variance as their noise. No likelihood is at hand, so the number of rounds is
fixed; every one of them is a release, and the ledger counts them all.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from ebfed.channels import Channel, Clip, Exact
from ebfed.channels.report import Report
from ebfed.privacy import PrivacyWarning, accountant, events, ledger
from ebfed.privacy.odometer import Plan
from ebfed.regression.evidence_rounds import start_mixture
from ebfed.regression.evidence_sources import rotated, rows_of
from ebfed.regression.mixture import MixtureSettings
from ebfed.regression.numerics.candidates import parameters_of
from ebfed.regression.numerics.evidence import MixturePopulation
from ebfed.regression.protocol import (
    MixtureMemory,
    MixtureResult,
    MixtureSent,
    MixtureState,
    RegressionFacts,
    RegressionState,
)
from ebfed.regression.rounds import RegressionRounds, mixture_population
from ebfed.regression.schemes import CoefficientScheme
from ebfed.tables.clients import LARGEST, Clients, Summary
from ebfed.tables.factors import Factors

__all__ = ["CoefficientRounds", "check_channel"]

UNSETTLED = (
    "In some rounds the messages hardly identified the components, and the mixture did not "
    "converge."
)


def check_channel(channel: Any) -> Channel:
    """Return the channel that clients send through, `Exact` for None.

    Raises
    ------
    TypeError, ValueError
        If it is no channel, or its range is not given.
    """
    channel = Exact() if channel is None else channel
    if not isinstance(channel, Channel):
        raise TypeError(f"channel must be an ebfed.channels.Channel; got {channel!r}.")
    ball = isinstance(channel, Clip) and channel.radius is not None
    if channel.left_open and not ball:
        raise ValueError(
            f"{', '.join(sorted(channel.left_open))} must be given: nothing public says how large "
            f"coefficients are; got {channel!r}."
        )
    return channel


@dataclass(frozen=True)
class CoefficientRounds(
    RegressionRounds[MixtureState, MixtureSent, MixtureMemory, dict[str, NDArray]]
):
    """A fixed number of rounds in which clients send coefficients.

    Parameters
    ----------
    settings : MixtureSettings
    scheme : CoefficientScheme
    channel : Channel or None
        Channel through which clients send; coefficients are sent exactly if None.
    """

    sends: ClassVar[str] = "coefficients"

    settings: MixtureSettings
    scheme: CoefficientScheme
    channel: Any

    def expected_rounds(self) -> int:
        """Return how many rounds there will be."""
        return self.settings.most_rounds

    def promises(self) -> bool:
        """Whether the channel protects clients."""
        return _composed(check_channel(self.channel), 1, 1) < np.inf

    # Clients ----------------------------------------------------------------------------------

    def block(
        self, clients: Clients | Factors, weight: NDArray[np.float64] | None = None
    ) -> Factors:
        """Return the clients' triangular factors."""
        return clients if isinstance(clients, Factors) else Factors.of(clients, weight)

    def local(
        self, sent: MixtureSent, memory: MixtureMemory, clients: Factors, rng: Any
    ) -> tuple[dict[str, NDArray], MixtureMemory]:
        """Send coefficients through the channel."""
        if "design" not in memory:
            memory = memory | rotated(clients.padded(sent["rank"]), clients.n)
            memory = memory | {"clipped": np.zeros(len(clients), bool)}
        rows, asked = rows_of(memory), sent["population"]
        if asked is None:
            theta = self.scheme.first(rows, rng)
        else:
            theta = self.scheme.next(rows, memory["theta"], MixturePopulation(**asked), rng)
        channel = check_channel(self.channel)
        summary = Summary(clients.ids, clients.n, theta, np.zeros_like(theta))
        message = channel.encode(summary, rng)
        clipped = memory["clipped"] | channel.clipped(summary)
        return message, memory | {"theta": theta, "clipped": clipped}

    def bits(self, sent: MixtureSent, clients: Factors) -> float:
        """Bits of the reports of a round."""
        nothing = np.zeros((len(clients), clients.n_features))
        shown = Summary(clients.ids, clients.n, nothing, nothing)
        return float(check_channel(self.channel).message_bits(shown).sum())

    def plan(self, sent: MixtureSent, memory: MixtureMemory, clients: Factors) -> list[Plan]:
        """State all that a run may take from clients: an answer in every round."""
        channel, times, p = check_channel(self.channel), self.expected_rounds(), clients.n_features
        with warnings.catch_warnings():  # the ledger says what the warning does
            warnings.simplefilter("ignore", PrivacyWarning)
            delta = channel.guarantee(p)[1]
        everyone, epsilon = np.ones(len(clients), bool), _composed(channel, p, times)
        if not np.isfinite(epsilon):
            return [Plan.exact("all clients", everyone, times)]
        event = events.repeated(channel.event(p), times)
        return [Plan("all clients", everyone, event, "replace_one", epsilon, delta, times)]

    def releases(
        self, sent: MixtureSent, memory: MixtureMemory, clients: Factors
    ) -> list[dict[str, Any]]:
        """List what clients send in a round."""
        return [
            ledger.release(
                "all clients",
                check_channel(self.channel),
                clients=len(clients),
                clipped=int(memory["clipped"].sum()) if "clipped" in memory else None,
                bits=self.bits(sent, clients),
                n_features=clients.n_features,
            )
        ]

    def ledger(
        self, sent: MixtureSent, memory: MixtureMemory, clients: Factors
    ) -> list[dict[str, Any]]:
        """List what clients sent in all rounds together."""
        times, result = sent["round"], sent["result"]
        total = _composed(check_channel(self.channel), result["means"].shape[1], times)
        return [
            row | {"epsilon": total, "bits": times * row["bits"]}
            for row in super().ledger(sent, memory, clients)
        ]

    def kept(self, memory: MixtureMemory) -> dict[str, Any]:
        """Return what clients keep: the coefficients that they sent last, and who was clipped."""
        return {name: x for name, x in memory.items() if name in ("theta", "clipped")}

    # Server -----------------------------------------------------------------------------------

    def begin(self, state: RegressionState, facts: RegressionFacts) -> MixtureState:
        self.settings.check()
        channel = check_channel(self.channel)
        started = start_mixture(self.settings, state, facts)
        if isinstance(channel, Report) and not channel.whole and started["p"] > 1:
            raise ValueError(
                f"channel must report on all of a client's {started['p']} coefficients: use "
                f"channels.Gaussian, Quantizer, Clip or AddNoise; got {channel!r}."
            )
        # checks the channel's arguments, and that there is an account, before anything is sent
        _composed(channel, started["p"], self.settings.most_rounds)
        return started | {"phase": "parameters", "population": None, "n_numbers": 0}

    def ask(self, state: MixtureState) -> MixtureSent:
        """Send the population of the round before."""
        return {
            "done": False,
            "round": state["round"],
            "phase": state["phase"],
            "rank": state["rank"],
            "population": state["population"],
        }

    def check_message(
        self, message: dict[str, NDArray], facts: RegressionFacts, sent: MixtureSent, turn: NDArray
    ) -> None:
        """Raise a ValueError if clients that stated these facts cannot have sent this."""
        n, channel = facts["n"], check_channel(self.channel)
        p = int(facts["n_features"][0]) + bool(self.settings.fit_intercept)
        nothing = np.zeros((len(n), p))
        pattern = channel.encode(Summary(np.arange(len(n)), n, nothing, nothing), 0)
        if message.keys() != pattern.keys():
            raise ValueError(f"a message must have the parts {', '.join(pattern)}.")
        for name, like in pattern.items():
            x = message[name]
            if not (isinstance(x, np.ndarray) and (x.dtype, x.shape) == (like.dtype, like.shape)):
                raise ValueError(f"{name} must be of type {like.dtype}, of shape {like.shape}.")
            if not (np.abs(x) < LARGEST).all():
                raise ValueError(f"{name} must be finite, and below {LARGEST:g} in size.")
        if not np.array_equal(message["n"], n):
            raise ValueError("a message must have the numbers of rows that were stated.")
        channel.check_message(message)

    def fitted_parameters(self, state: MixtureState) -> dict[str, tuple[NDArray, NDArray]]:
        """Return the moments of the mixture; see `mixture_population`."""
        return mixture_population(state)

    def update(self, state: MixtureState, messages: dict[str, NDArray]) -> MixtureState:
        """Cluster the coefficients."""
        has_data, channel = state["n"] > 0, check_channel(self.channel)
        values = channel.decode(messages)[has_data]
        seed = int(np.random.default_rng([*state["key"], state["round"]]).integers(2**31))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ConvergenceWarning)
            found = self.scheme.cluster(values, _average_variance(channel, values), seed)
        if any(issubclass(each.category, ConvergenceWarning) for each in caught):
            state = state | {"notes": list(dict.fromkeys([*state["notes"], UNSETTLED]))}
        before = state["population"]
        row = {f"weight_{j}": weight for j, weight in enumerate(found.weights)}
        moved = np.nan
        if before is not None and before["means"].shape == found.means.shape:
            moved = float(np.linalg.norm(found.means - before["means"]))
        state = state | {
            "round": state["round"] + 1,
            "population": parameters_of(found),
            "history": [*state["history"], {"change": moved} | row],
        }
        return self._end(state, found) if state["round"] == self.settings.most_rounds else state

    def _end(self, state: MixtureState, found: MixturePopulation) -> MixtureState:
        k, p = found.means.shape
        free = k * p + k - 1 + (found.variances.size if self.settings.has_variances else 0)
        result: MixtureResult = {
            "weights": found.weights,
            "means": found.means,
            "means_covariance": np.zeros((k, p, p)),
            "variances": np.broadcast_to(found.variances, (k, p)).copy(),
            "noise_variance": float(found.noise),
            "least_noise": 0.0,
            "n_parameters": free,
            "criterion": np.full(1, np.nan),
            "n_numbers": 0,
            "notes": state["notes"],
        }
        return state | {
            "done": True,
            "log_likelihood": np.nan,
            "population": None,
            "result": result,
        }


def _average_variance(channel: Channel, values: NDArray) -> NDArray:
    """Variance of what a channel makes of coefficients, on average over their range, shape (1, p).

    At a message itself it would be wrong: a `Quantizer` sends the values that it need not round.
    """
    points = np.linspace(values.min(axis=0), values.max(axis=0), 101)
    nothing = np.zeros_like(points)
    shown = Summary(np.arange(len(points)), np.ones(len(points), np.int64), points, nothing)
    return channel.variance(shown).mean(axis=0, keepdims=True)


def _composed(channel: Channel, p: int, times: int) -> float:
    """Epsilon of so many reports of one client, at the delta of one."""
    with warnings.catch_warnings():  # the row says what the warning does
        warnings.simplefilter("ignore", PrivacyWarning)
        epsilon, delta = channel.guarantee(p)
    if not np.isfinite(epsilon) or times == 1:
        return epsilon
    if delta == 0:
        return times * epsilon
    return _epsilon(channel.event(p), times, delta)


@lru_cache(maxsize=64)  # asked before the first round and after the last
def _epsilon(event: Any, times: int, delta: float) -> float:
    # no distribution of the privacy loss is known of concentrated privacy, only Rényi divergences
    method: accountant.Method = "rdp" if hasattr(event, "rho") else "pld"
    repeated = events.repeated(event, times)
    return accountant.epsilon(repeated, delta, relation="replace_one", method=method)
