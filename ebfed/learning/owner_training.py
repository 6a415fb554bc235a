"""A round's work of owners: sums of clipped gradients over their users."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.learning.clipping import project, shorten
from ebfed.learning.exchange import Senders
from ebfed.learning.minibatches import encoder
from ebfed.learning.training import LocalTraining, Work
from ebfed.learning.users import Sums, Users
from ebfed.learning.winsorized_rounds import generators, release
from ebfed.models import Slope
from ebfed.streams import Stream

__all__ = ["OwnerTraining"]


class OwnerTraining(LocalTraining):
    """Rounds in which owners add up gradients of their users."""

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
        own_rate = given.own_learning_rate
        eta = rounds.peak_rate if own_rate is None else own_rate
        rate = rounds.schedule.rate(sent["round"]) * eta
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
        """Return the parameters of each owner's predictor in the end, shape (m, p)."""
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
