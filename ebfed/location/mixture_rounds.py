"""How mixtures are fitted: EM on messages, clustering in rounds, or EM by a trusted server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ebfed.channels import Clip, secure
from ebfed.channels.report import Box
from ebfed.engines.protocol import (
    LocationFacts,
    LocationMemory,
    LocationSent,
    LocationState,
    Message,
)
from ebfed.families import Gaussian
from ebfed.location.consent import settled
from ebfed.location.learned import Learned
from ebfed.location.noisy_em import noisy_em, spread_out
from ebfed.location.rounds import RESULTS, LocationRounds
from ebfed.priors import Discrete, Prior
from ebfed.priors.mixture_em import kmeans
from ebfed.priors.n_components import RULES, check_n_components
from ebfed.privacy import check_delta, check_epsilon, events, gaussian_sigma, ledger
from ebfed.privacy.calibration import check_count
from ebfed.privacy.odometer import Plan
from ebfed.tables.clients import Summary

__all__ = ["CentralRounds", "ClusteringRounds", "EMRounds", "MixtureRounds"]

MESSAGES = "message_log_likelihood"  # column of the history
FEW = "Groups are too few, or too much alike: of {} components, {} fitted."
DRIFTS = (
    "Clustering assigns estimates to their nearest centres and takes no account of their errors: "
    "where components overlap, centres drift apart from round to round and estimates get worse. "
    "solver='em' does not."
)


class MixtureRounds(LocationRounds):
    """What all fits of mixtures have in common."""

    results = (*RESULTS, "history")

    def check_covariates(self) -> None:
        """Refuse covariates."""
        raise ValueError("MixtureEB has no covariates; GaussianEB takes covariates=.")

    @property
    def k(self) -> int:
        """Number of components; 0 if it is to be chosen."""
        k = self.estimator.n_components
        return int(k) if isinstance(k, int | np.integer) else 0

    @property
    def is_central(self) -> bool:
        """Whether noise protects what the server releases, not what it is sent."""
        return bool(self.estimator.trust == "server")

    def start(self, facts: LocationFacts, key: NDArray) -> LocationState:
        self.check_arguments()
        return super().start(facts, key)

    def plan(self, sent: LocationSent, memory: LocationMemory, clients: Summary) -> list[Plan]:
        """State all that a run may take from clients, by arguments that a server need not check."""
        self.check_arguments()
        return super().plan(sent, memory, clients)

    def check_arguments(self) -> None:
        """Raise a ValueError if an argument is wrong, or does not go with another."""
        channels, given = self.channels, self.estimator
        for name, known in (
            ("components", ("points", "spherical", "diag")),
            ("solver", ("em", "clustering")),
            ("trust", ("none", "server")),
        ):
            if getattr(given, name) not in known:
                raise ValueError(
                    f"{name} must be {', '.join(map(repr, known))}; got {getattr(given, name)!r}."
                )
        check_n_components(given.n_components, given.max_components)
        for name in ("max_components", "n_init", "n_rounds"):
            check_count(name, getattr(given, name))
        if given.components != "points" and not all(
            channel.keeps_means for channel in channels.values()
        ):
            raise ValueError(
                f"components={given.components!r} is for messages that are exact or have Gaussian "
                "noise (channels.Exact, channels.AddNoise). Through channels that clip or round, "
                "fit components='points'."
            )
        if given.solver == "clustering" and not (
            all(channel.is_exact for channel in channels.values())
            and len(channels) == 1
            and given.trust == "none"
        ):
            raise ValueError("solver='clustering' sends estimates as they are: leave channel None.")
        if given.solver == "clustering" or self.is_central:
            if given.n_components in RULES:
                raise ValueError(
                    "n_components must be a whole number, except for EM by a server that receives "
                    f"all messages; got {given.n_components!r}."
                )
            if given.components != "points":
                raise ValueError("components must be 'points', except for EM without epsilon.")
        if self.is_central:
            _check_central(given)
        elif given.epsilon is not None or given.delta is not None:
            raise ValueError(
                "epsilon and delta are for trust='server'; for privacy against the server, give "
                "a channel: Clip(radius=...) | Gaussian(epsilon, delta)."
            )

    def learned(self, sent: LocationSent, summaries: Summary, memory: LocationMemory) -> Learned:
        """Return what a fit has learned, from the last broadcast; keep its history."""
        self.estimator._history = sent["history"]
        return super().learned(sent, summaries, memory)


class EMRounds(MixtureRounds):
    """EM on the messages of all clients; keeps its path."""

    def finished(self, state: LocationState, prior: Prior) -> LocationState:
        """Return the last state, with notes on components that are hard to distinguish."""
        for note in self._doubts(state, prior):
            prior._add_note(note)
        path = getattr(prior, "path_", np.empty(0))
        history = {"step": np.arange(len(path)), MESSAGES: path}
        return cast(LocationState, super().finished(state, prior) | {"history": history})

    def _doubts(self, state: LocationState, prior: Any) -> list[str]:
        """Note if there are too few groups, or reports too noisy, to distinguish components."""
        centres = prior.centres_
        away = np.sqrt(((centres[:, None] - centres) ** 2).sum(axis=2))
        few = []
        if len(centres) < self.k:
            few = [FEW.format(self.k, len(centres))]
        gap = (away + np.diag(np.full(len(away), np.inf))).min() if len(away) > 1 else 0.0
        mean = prior.mean_[None]
        middle = Summary(np.zeros(1), np.ones(1, int), mean, np.zeros_like(mean))
        channels = settled(self.channels, state["settings"][-1]).values()
        noise = max(float(np.sqrt(channel.variance(middle).max())) for channel in channels)
        if gap >= 2 * noise:
            return few
        return [
            *few,
            f"Reports carry noise of standard deviation up to {noise:.3g}. Components nearer to "
            "one another than twice that are hard to distinguish, and estimates drawn to wrong "
            "centres can be worse than the groups' own means. More epsilon, a smaller radius or "
            "trust='server' would tell them.",
        ]


# Clustering in rounds -------------------------------------------------------------------------


class ClusteringRounds(MixtureRounds):
    """Clients send posterior means in turn with their clusters by the server."""

    adds_up = False

    def local(
        self, sent: LocationSent, memory: LocationMemory, clients: Summary, rng: Any
    ) -> tuple[dict[str, Message], LocationMemory]:
        """Send own means, or posterior means given the centres so far."""
        if "centres" in sent:
            own = Gaussian(sent["noise"], learned=True).likelihood(Gaussian.figures(clients))
            theta = Discrete.known(sent["centres"], sent["shares"]).posterior(own).mean
            clients = replace(clients, mean=theta, scatter=np.zeros_like(theta))
        return super().local(once(sent), memory, clients, rng)

    def plan(self, sent: LocationSent, memory: LocationMemory, clients: Summary) -> list[Plan]:
        """State all that a run may take from clients: an answer in every round."""
        plans = super().plan(once(sent), memory, clients)
        return [replace(each, rounds=self.estimator.n_rounds) for each in plans]

    def releases(
        self, sent: LocationSent, memory: LocationMemory, clients: Summary
    ) -> list[dict[str, Any]]:
        return super().releases(once(sent), memory, clients)

    def ledger(
        self, settings: list[dict], memory: LocationMemory, clients: Summary
    ) -> list[dict[str, Any]]:
        """List what clients sent in all rounds."""
        times = self.estimator.n_rounds
        return [
            row | {"times": row["times"] * times, "bits": row["bits"] * times}
            for row in super().ledger(settings, memory, clients)
        ]

    def check_message(
        self, message: dict[str, Message], facts: LocationFacts, sent: LocationSent, turn: NDArray
    ) -> None:
        """Raise a ValueError if that is not an answer; clients of the first round answer in all."""
        super().check_message(message, facts, once(sent), turn)

    def broadcast(self, state: LocationState) -> LocationSent:
        """Return how to report, and the centres so far; in the end, the population."""
        sent = super().broadcast(state)
        if state["done"] or "centres" not in state:
            return sent
        sent |= {"centres": state["centres"], "shares": state["shares"], "noise": state["noise"]}
        return sent

    def update(self, state: LocationState, messages: dict[str, Message]) -> LocationState:
        """Cluster what clients sent: one round."""  # [E] Algorithm 3
        (message,) = messages.values()
        first = state["round"] == 0
        own = message if first else next(iter(state["messages"][0].values()))
        self.fitted_family.check_figures(own)
        has_data = message["n"] > 0
        starts = self.k, self.estimator.n_init, state["key"]
        centres, shares = _k_means(message["mean"][has_data], *starts)
        prior = Discrete.known(centres, shares)
        exact = prior._settled(self.fitted_family.likelihood(own))
        log = float(prior.log_marginal(exact).sum())
        past = {"round": np.empty(0, int), MESSAGES: np.empty(0)}
        past = past if first else state["history"]
        changed = {
            "round": state["round"] + 1,
            "messages": [messages] if first else state["messages"],
            "history": {
                "round": np.append(past["round"], state["round"] + 1),
                MESSAGES: np.append(past[MESSAGES], log),
            },
        }
        state = cast(LocationState, state | changed)
        if state["round"] < self.estimator.n_rounds:
            noise = prior.noise_variance_
            if noise is None:
                noise = self.fitted_family.noise_variance(state["n_features"])
            return cast(
                LocationState, state | {"centres": centres, "shares": shares, "noise": noise}
            )
        if len(centres) < self.k:
            prior._add_note(FEW.format(self.k, len(centres)))
        prior._add_note(DRIFTS)
        path = state["history"][MESSAGES]
        if (best := int(np.argmax(path))) < len(path) - 1:
            prior._add_note(
                f"Here it has: after round {best + 1} the messages lost "
                f"{path[best] - path[-1]:.3g} in log-likelihood."
            )
        prior.n_parameters_ = centres.size + len(centres) - 1
        return self.finished(state, prior)


def once(sent: LocationSent) -> LocationSent:
    """In clustering, clients that answer in the first round answer in all."""
    return sent | {"round": 0}


# A trusted server -----------------------------------------------------------------------------


class CentralRounds(MixtureRounds):
    """EM by a server that is trusted with clipped means, and releases noisy sums and counts."""

    adds_up = False
    server_adds_noise = True

    @property
    def budget(self) -> tuple[float, float]:
        """Epsilon and delta of the server's noise."""
        return check_epsilon(self.estimator.epsilon), check_delta(self.estimator.delta)

    @property
    def sigma(self) -> float:
        """Noise of each round: n_rounds releases of sensitivity 2 are worth one of 2 sqrt(n)."""
        return float(gaussian_sigma(*self.budget, 2 * np.sqrt(self.estimator.n_rounds)))

    def plan(self, sent: LocationSent, memory: LocationMemory, clients: Summary) -> list[Plan]:
        """State all that a run may take from clients: the noise is the server's."""
        event = events.gaussian(gaussian_sigma(*self.budget, 2.0))
        return [
            replace(each, event=event, trusts_server=True, of_sum=True)
            for each in super().plan(sent, memory, clients)
        ]

    def releases(
        self, sent: LocationSent, memory: LocationMemory, clients: Summary
    ) -> list[dict[str, Any]]:
        """List what clients send, and its guarantee."""
        rows = super().releases(sent, memory, clients)
        for row in rows:
            if row["times"]:
                row["epsilon"], row["delta"] = self.budget
                row["relation"] = ledger.LOCAL
                row["assumptions"] = (
                    "numbers of rows are public; the server is trusted with clipped means, and "
                    f"releases only sums and counts of {self.k} components with noise, "
                    f"{self.estimator.n_rounds} times"
                )
        return rows

    def guarantee(self, name: str, settings: list[dict], n_features: int) -> tuple[float, float]:
        return self.budget

    @property
    def kind_of_privacy(self) -> str:
        return "central differential privacy against readers of the population"

    def broadcast(self, state: LocationState) -> LocationSent:
        """Return how to report; in the end, the population."""
        secure.check(state)
        return super().broadcast(state)

    def shifts(
        self, before: LocationState, after: LocationState, messages: Sequence[Any]
    ) -> NDArray[np.float64]:
        """Return NaN: readers see noisy sums only, and clipping bounds what a client can do."""
        return np.full(len(messages), np.nan)

    def update(self, state: LocationState, messages: dict[str, Message]) -> LocationState:
        """Release noisy sums and counts, and nothing else that depends on what clients sent."""
        (channel,), (message,) = self.channels.values(), messages.values()
        has_data = message["n"] > 0
        box, n = _box(channel, state["n_features"]), message["n"][has_data]
        means = channel.decode(message)[has_data]
        row_noise = self.fitted_family.noise_variance(state["n_features"])
        assert row_noise is not None
        noise = row_noise / box.half**2
        rng = secure.noise(state, 2)
        start = np.random.default_rng([*state["key"], 2]) if isinstance(rng, str) else rng
        centres, shares, moved = noisy_em(
            (means - box.centre) / box.half,
            noise / n[:, None],
            # sizes are public: who has more rows says more, up to the middle client
            np.minimum(n / np.median(n), 1.0) if len(n) else n,
            spread_out(self.k, state["n_features"], start),
            self.estimator.n_rounds,
            self.sigma,
            rng,
        )
        prior = Discrete.known(box.centre + box.half * centres, shares)
        prior._add_note(
            "Weights and centres have noise for privacy; posteriors take them as exact."
        )
        prior.n_parameters_ = centres.size + len(centres) - 1
        history = {"round": np.arange(1, len(moved) + 1), "moved": moved * box.half[0]}
        state = self.received(state, messages)
        return self.finished(cast(LocationState, state | {"history": history}), prior)

    def log_likelihood(self, state: LocationState, prior: Prior) -> float | None:
        """NaN: it is not released."""
        return np.nan


def _check_central(given: Any) -> None:
    check_epsilon(given.epsilon)
    check_delta(given.delta)
    if not isinstance(given.channel, Clip) or given.channel.radius is None:
        raise ValueError(f"trust='server' needs channel=Clip(radius=...); got {given.channel!r}.")
    if given.variances is None:
        raise ValueError(
            "variances must be given with trust='server': the scatter within groups is not "
            "released."
        )


def _box(channel: Any, n_features: int) -> Box:
    return channel._box(n_features)


def _k_means(values: NDArray, k: int, n_init: int, key: NDArray) -> tuple[NDArray, NDArray]:
    """Lloyd's centres from the best of several k-means++ starts, and shares of the clients."""
    if not len(values):
        return np.zeros((1, values.shape[1])), np.ones(1)
    values = values[np.lexsort(values.T)]  # whatever the order of clients
    k = min(k, len(np.unique(values, axis=0)))
    rng = np.random.RandomState(np.random.default_rng([*key, 3]).integers(2**31))
    runs = [kmeans(values, k, rng) for _ in range(n_init)]
    nearest, centres = min(runs, key=lambda run: ((values - run[1][run[0]]) ** 2).sum())
    shares = np.bincount(nearest, minlength=k) / len(values)
    return centres[shares > 0], shares[shares > 0]
