"""A round's work of owners: sums of clipped gradients over their users."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.engines.protocol import LearningMemory, LearningSent
from ebfed.learning.clipping import project, shorten
from ebfed.learning.minibatches import encoder
from ebfed.learning.training import LocalTraining, Work
from ebfed.learning.users import Sums, Users
from ebfed.learning.winsorized_rounds import generators, release
from ebfed.models import Slope
from ebfed.streams import Stream
from ebfed.tables.clients import Clients

__all__ = ["OwnerTraining"]


class OwnerTraining(LocalTraining):
    """Rounds in which owners add up gradients of their users.

    Parameters
    ----------
    rounds : LearnerRounds
    """

    def work(
        self,
        sent: LearningSent,
        memory: LearningMemory,
        clients: Clients,
        members: NDArray[np.int64],
        rng: Any,
    ) -> Work:
        """Sum gradients over the users of each owner, and move its own parameters."""
        given, rounds = self._given, self._rounds
        users, kept = Users.of(clients), memory["own"]
        places = rounds.split(sent)
        guided = rounds.guided(places.own)
        at = kept["guide" if guided else "x"]
        if given.private_mean == "gaussian":  # [J] Algorithm 1
            chosen, share = (
                users.draw(given.sample_rate, rng),
                given.sample_rate,
            )
            sums = self._sum(sent, memory, clients, users, chosen, at)
            slope = self.noisy(sums.total[:, places.own], sent, memory, members, rng)
        else:
            chosen, share = np.flatnonzero(np.isin(users.owner, members)), 1.0
            sums = self._sum_means(sent, memory, clients, users, members, at, rng)
            slope = sums.total[:, places.own]
        shared = sums.total[:, places.shared][members]
        bits = sums.bits[members, None]
        expected = np.maximum(share * users.count, 1e-300)[:, None]
        own_rate = given.own_learning_rate
        eta = rounds.peak_rate if own_rate is None else own_rate
        rate = rounds.schedule.rate(sent["round"]) * eta
        if guided:
            # before the guide moves, so that without noise both are the same
            sums = self._sum(sent, memory, clients, users, chosen, kept["x"])
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
                memory["loss"][:, sent["record"]] = sums.loss / sums.count
                memory["score"][:, sent["record"]] = sums.score / sums.count
        assert given.privacy is not None
        adaptive = given.privacy.clip_quantile is not None
        changes = {"u": shared} | ({"bit": bits} if adaptive else {})
        yield np.arange(len(members)), changes

    def predictors(
        self, sent: LearningSent, memory: LearningMemory, clients: Clients
    ) -> NDArray[np.float64]:
        """Return the parameters of each owner's predictor in the end, shape (m, p)."""
        x = memory["own"]["x_average" if self._given.average else "x"]
        theta = self._rounds.split(sent).assemble(sent["shared"]["u"], x)
        return self.tuned(sent, memory, clients, np.arange(len(clients)), theta)

    def _gradients(
        self,
        sent: LearningSent,
        memory: LearningMemory,
        clients: Clients,
        users: Users,
        chosen: NDArray[np.int64],
        x: NDArray,
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64], Slope, NDArray[np.float64]]]:
        """Compute clipped gradients of users at own parameters x, shape (m, k), part by part."""
        net, places = self._rounds.predictor(sent), self._rounds.split(sent)
        y = encoder(self._rounds, sent)
        for part in users.batches(chosen, net):
            owner = users.owner[part]
            theta = places.assemble(sent["shared"]["u"], x[owner])
            step = net.gradient(theta, users.gather(clients, part, y))
            gradient = step.gradient + self._given.weight_decay * theta
            short, norm = shorten(gradient, sent["clip"])
            memory["clipped"][owner[norm > sent["clip"]]] = True
            yield part, short, step, norm

    def _sum(
        self,
        sent: LearningSent,
        memory: LearningMemory,
        clients: Clients,
        users: Users,
        chosen: NDArray[np.int64],
        x: NDArray,
    ) -> Sums:
        """Sum clipped gradients over users of each owner."""
        sums = Sums(len(clients), self._rounds.predictor(sent).size)
        for part, short, step, norm in self._gradients(sent, memory, clients, users, chosen, x):
            sums.add(users.owner[part], short, step)
            bits = np.where(norm <= sent["clip"], 0.5, -0.5) * (norm > 0)
            np.add.at(sums.bits, users.owner[part], bits)
        return sums

    def _sum_means(
        self,
        sent: LearningSent,
        memory: LearningMemory,
        clients: Clients,
        users: Users,
        members: NDArray[np.int64],
        x: NDArray,
        rng: Any,
    ) -> Sums:
        """Take private means over the users of each owner, times their number."""
        sums = Sums(len(clients), self._rounds.predictor(sent).size)
        mean = self._rounds.exchange(sent["n_clients"]).winsorized_mean
        ends, secure = np.cumsum(users.count), not isinstance(rng, Stream)
        # [J] Algorithm 2
        for owner, own_rng in zip(members.tolist(), generators(rng, members), strict=True):
            first, count = ends[owner] - users.count[owner], users.count[owner]
            vectors = np.empty((count, sums.total.shape[1]))
            chosen = np.arange(first, ends[owner])
            for part, short, step, _ in self._gradients(sent, memory, clients, users, chosen, x):
                vectors[part - first] = short
                sums.add(users.owner[part], short, step)
            sums.total[owner] = count * release(mean, vectors, own_rng, secure)
        return sums

    def noisy(
        self,
        values: NDArray,
        sent: LearningSent,
        memory: LearningMemory,
        members: NDArray[np.int64],
        rng: Any,
    ) -> NDArray[np.float64]:
        """Add the noise of sums that stay with the owners: the guides depend on them."""
        if not values.size:
            return values
        exchange = self._rounds.exchange(sent["n_clients"])
        return exchange.disturb(values, exchange.scales(sent)[0]["u"], memory, members, rng)
