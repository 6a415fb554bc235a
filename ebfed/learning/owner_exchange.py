"""What owners do in a round, each user of whom is protected, and what passes between them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ebfed.channels.secure import add_gaussian
from ebfed.engines.protocol import (
    LearningFacts,
    LearningMemory,
    LearningMessage,
    LearningSent,
    LearningState,
    Named,
)
from ebfed.learning.accounts import Round
from ebfed.learning.exchange import Senders, size_of
from ebfed.learning.minibatches import encoder
from ebfed.learning.privacy import PrivateExchange
from ebfed.learning.training import LocalTraining, Work
from ebfed.learning.users import Sums, Users
from ebfed.models import Slope
from ebfed.privacy import accountant, events
from ebfed.privacy.clipping import project, shorten
from ebfed.privacy.winsorized_mean import WinsorizedMean
from ebfed.streams import Stream

__all__ = [
    "OwnerExchange",
    "OwnerTraining",
    "PrivateMean",
    "WinsorizedRound",
    "generators",
    "release",
    "warn_of_few",
]

PrivateMean = Literal["gaussian", "winsorized"]


@dataclass(frozen=True)
class OwnerExchange(PrivateExchange):
    """Sums of clipped gradients of users, with noise.

    Parameters
    ----------
    schedule, n_clients, privacy, bounds
        As in `PrivateExchange`.
    personal, protect, private_mean, concentration
        As in `JointDPSGD`.
    """

    personal: tuple[str, ...]
    protect: str
    private_mean: PrivateMean
    concentration: float | None

    @property
    def terms(self) -> tuple:
        return self.personal, self.protect, self.private_mean, self.concentration

    @property
    def round(self) -> Round:
        rate = float(self.schedule.sample_rate)
        if self.private_mean == "winsorized":
            return WinsorizedRound(rate, self.n_clients, "poisson", "none")
        # inclusion is drawn by owners, so that it amplifies with either trust
        return Round(rate, self.n_clients, "poisson", "server")

    @property
    def relation(self) -> str:
        exchanged = self.private_mean == "winsorized"
        change = "one user exchanged for another" if exchanged else "one user more or less"
        if not self.personal or self.protect == "all":
            return change
        return f"{change}, seen by all but its owner"

    @property
    def winsorized_mean(self) -> WinsorizedMean | None:
        """What averages the users of an owner; None for Gaussian noise, or none."""
        z = self.multiplier
        if self.private_mean == "gaussian" or z == 0:
            return None
        assert self.concentration is not None
        return WinsorizedMean(self.privacy.clip, self.concentration, WinsorizedRound.rho(z))

    # Clients ----------------------------------------------------------------------------------

    @property
    def clients_add_noise(self) -> bool:
        """Whether noise is added to what each owner sends: winsorized means have it already."""
        return super().clients_add_noise and self.private_mean != "winsorized"

    def shortened(self, changes: Named, who: Senders) -> LearningMessage:
        """Return sums over users, of gradients that are clipped already, and of their bits."""
        message: LearningMessage = {"changes": {"u": changes["u"]}}
        return message | {"bit": changes["bit"]} if "bit" in changes else message

    # Server -----------------------------------------------------------------------------------

    def longest(self, sent: LearningSent, facts: LearningFacts, turn: NDArray) -> list[Any]:
        """Return the largest norm of each owner's sum."""
        return [sent["clip"] * facts["users"][turn == 0]]

    def halves(self, facts: LearningFacts, turn: NDArray) -> NDArray[np.int64]:
        """Return the number of users of each owner, each of whom has a bit."""
        return facts["users"][turn == 0]

    def invite(self, state: LearningState, rng: np.random.Generator) -> NDArray[np.int8]:
        """Invite every owner, unless it is owners that are drawn, rather than users."""
        if self.private_mean == "winsorized":
            return super().invite(state, rng)
        return np.zeros(self.n_clients, np.int8)

    def expected(self, state: LearningState, sent: LearningSent) -> float:
        """Return how many users were expected, or are known to be in."""
        users = state["users"] * state.get("answering", True)
        if self.private_mean == "winsorized":
            return float(users[state["turn"] == 0].sum())
        return self.schedule.sample_rate * float(users.sum())

    # Accounts ---------------------------------------------------------------------------------

    def row(
        self,
        who: str,
        sent: LearningSent,
        memory: LearningMemory | None,
        members: NDArray[np.int64],
        rounds: int,
    ) -> dict[str, Any]:
        """Describe what these owners released in so many rounds."""
        row = super().row(who, sent, memory, members, rounds)
        z, q = self.multiplier, self.schedule.sample_rate
        if self.private_mean == "gaussian":
            by = "the server" if self.privacy.trust == "server" else "each owner"
            users = "all users" if q == 1 else f"users drawn by their owners, q={q:g}"
            row["what"] = f"clipped gradients, Gaussian noise z={z:.4g} added by {by}, {users}"
            size = size_of(sent) + (self.privacy.clip_quantile is not None)
            row["bits"] = 64.0 * size * len(members) * rounds
        else:
            cost = f"rho={WinsorizedRound.rho(z):.4g}" if z else "no noise"
            row["what"] = f"winsorized means over users, {cost} in each round, by each owner"
        trust = "the server is trusted"
        if self.privacy.trust == "none" and np.isfinite(row["epsilon"]):
            trust = "nobody but the owner need be trusted"
        public = "numbers of owners, of their users and rows, columns and classes are public"
        return row | {"assumptions": f"{trust}; {public}"}


class OwnerTraining(LocalTraining):
    """Rounds in which owners add up clipped gradients of their users."""

    def __init__(self, *block: Any):
        super().__init__(*block)
        self.users, self.places = Users.of(self.clients), self.rounds.split(self.sent)
        self.exchange = self.rounds.exchange(self.sent["n_clients"])

    def work(self, members: NDArray[np.int64], rng: Any) -> Work:
        """Sum gradients over the users of each owner, and move its own parameters."""
        given, rounds, sent, users = self.given, self.rounds, self.sent, self.users
        kept, places = self.memory["own"], self.places
        guided = rounds.guided(places.own)
        at = kept["guide" if guided else "x"]
        if given.private_mean == "gaussian":  # [J] Algorithm 1
            chosen, share = users.draw(given.sample_rate, rng), given.sample_rate
            sums = self._sum(chosen, at)
            slope = self.noisy(sums.total[:, places.own], members, rng)
        else:
            chosen, share = np.flatnonzero(np.isin(users.owner, members)), 1.0
            sums = self._sum_means(members, at, rng)
            slope = sums.total[:, places.own]
        shared = sums.total[:, places.shared][members]
        bits = sums.bits[members, None]
        expected = np.maximum(share * users.count, 1e-300)[:, None]
        rate = rounds.schedule.rate(sent["round"]) * rounds.rate_of("own_learning_rate")
        if guided:
            # before the guide moves, so that without noise both are the same
            sums = self._sum(chosen, kept["x"])
            own_step = rate * sums.total[:, places.own] / expected
            kept["x"][:] = project(kept["x"] - own_step, given.own_radius)
            if given.guide_learning_rate is not None:
                rate = rounds.schedule.rate(sent["round"]) * given.guide_learning_rate
        at[:] = project(at - rate * slope / expected, given.own_radius)
        if given.average:
            done = sent["round"] - sent["began"] + 1
            kept["x_average"] += (kept["x"] - kept["x_average"]) / done
        if sent["record"] >= 0:
            with np.errstate(invalid="ignore", divide="ignore"):
                self.memory["loss"][:, sent["record"]] = sums.loss / sums.count
                self.memory["score"][:, sent["record"]] = sums.score / sums.count
        adaptive = given.privacy.clip_quantile is not None
        changes = {"u": shared} | ({"bit": bits} if adaptive else {})
        yield np.arange(len(members)), changes

    def predictors(self) -> NDArray[np.float64]:
        x = self.memory["own"]["x_average" if self.given.average else "x"]
        theta = self.places.assemble(self.sent["shared"]["u"], x)
        return self.tuned(self.everyone, theta)

    def _gradients(
        self, chosen: NDArray[np.int64], x: NDArray
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64], Slope, NDArray[np.float64]]]:
        """Compute clipped gradients of users at own parameters x, shape (m, k), part by part."""
        users, sent, y = self.users, self.sent, encoder(self.rounds, self.sent)
        for part in users.batches(chosen, self.net):
            owner = users.owner[part]
            theta = self.places.assemble(sent["shared"]["u"], x[owner])
            step = self.net.gradient(theta, users.gather(self.clients, part, y))
            gradient = step.gradient + self.given.weight_decay * theta
            short, norm = shorten(gradient, sent["clip"])
            self.memory["clipped"][owner[norm > sent["clip"]]] = True
            yield part, short, step, norm

    def _sum(self, chosen: NDArray[np.int64], x: NDArray) -> Sums:
        """Sum clipped gradients over users of each owner."""
        sums, owner = Sums(len(self.clients), self.net.size), self.users.owner
        for part, short, step, norm in self._gradients(chosen, x):
            sums.add(owner[part], short, step)
            bits = np.where(norm <= self.sent["clip"], 0.5, -0.5) * (norm > 0)
            np.add.at(sums.bits, owner[part], bits)
        return sums

    def _sum_means(self, members: NDArray[np.int64], x: NDArray, rng: Any) -> Sums:
        """Take private means over the users of each owner, times their number."""
        sums, users = Sums(len(self.clients), self.net.size), self.users
        mean = self.exchange.winsorized_mean
        ends, secure = np.cumsum(users.count), not isinstance(rng, Stream)
        # [J] Algorithm 2
        for owner, own_rng in zip(members.tolist(), generators(rng, members), strict=True):
            first, count = ends[owner] - users.count[owner], users.count[owner]
            vectors = np.empty((count, sums.total.shape[1]))
            for part, short, step, _ in self._gradients(np.arange(first, ends[owner]), x):
                vectors[part - first] = short
                sums.add(users.owner[part], short, step)
            sums.total[owner] = count * release(mean, vectors, own_rng, secure)
        return sums

    def noisy(self, values: NDArray, members: NDArray[np.int64], rng: Any) -> NDArray[np.float64]:
        """Add the noise of sums that stay with the owners: the guides depend on them."""
        if not values.size:
            return values
        scale = self.exchange.scales(self.sent)[0]["u"]
        return self.exchange.disturb(values, scale, Senders(self.sent, self.memory, members, rng))


@dataclass(frozen=True)
class WinsorizedRound(Round):
    """A round in which an owner's users are one private mean, seen by everyone.

    Its cost is stated as a noise multiplier z, like that of other rounds: that of Gaussian noise of
    standard deviation z C in a sum of vectors of norms up to C, of which one is exchanged.
    """

    gaussian: ClassVar[bool] = False

    @staticmethod
    def rho(multiplier: float) -> float:
        """Return what one release costs: (2 C)**2 / (2 (z C)**2)."""
        return 2 / multiplier**2

    @property
    def relation(self) -> accountant.Relation:
        return "replace_one"

    @property
    def unsampled(self) -> bool:
        """Whether there is a closed form: there is none of windows."""
        return False

    @property
    def accounts(self) -> list[tuple[accountant.Method, Callable[[float], events.Event]]]:
        """Return how it is accounted: choices of windows are bounded by zCDP."""
        return [("rdp", self.event)]

    def event(self, multiplier: float) -> events.Event:
        return events.concentrated(self.rho(multiplier))


def generators(rng: Any, owners: NDArray[np.int64]) -> list[np.random.Generator]:
    """Return a generator for each owner, the same wherever blocks are cut.

    Parameters
    ----------
    rng : Stream, or "secure" for numbers that cannot be repeated
    owners : int ndarray
        Positions in the block.
    """
    if not isinstance(rng, Stream):
        return [np.random.default_rng() for _ in owners]
    key, tag, first = map(int, rng.words(1))
    return [np.random.default_rng([key, tag, first + owner]) for owner in owners.tolist()]


def release(mean: WinsorizedMean | None, vectors: NDArray, rng: Any, secure: bool) -> NDArray:
    """Return the mean of an owner's vectors, shape (r, d): private, or as it is if `mean` is None.

    An owner without users has the mean zero; that it has none is public.
    """
    if 0 in vectors.shape:
        return np.zeros(vectors.shape[1])
    if mean is None:
        return vectors.mean(axis=0)
    return mean.release(vectors, rng, _securely if secure else None)


def _securely(values: NDArray, scale: float) -> NDArray[np.float64]:
    return add_gaussian(values, scale, "secure")


def warn_of_few(mean: WinsorizedMean, size: int, users: NDArray[np.int64]) -> None:
    """Warn if owners have too few users for their windows to be found."""
    fewest = mean.fewest(size)
    few = int((users < fewest).sum())
    if few:
        warnings.warn(
            f"{few} of {len(users)} owners have fewer than {fewest:,} users, too few to find the "
            f"windows of {size} parameters: their means will be far off. Choose "
            "private_mean='gaussian', fewer rounds, or a larger epsilon.",
            UserWarning,
            stacklevel=2,
        )
