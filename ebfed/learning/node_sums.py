"""What the clients of a node send in a private round, as one vector of integers.

With this a learner needs no trusted server. Each node clips the changes of its clients, as for a
trusted server, and encodes them with its share of the noise; the sum over nodes is formed by
`ebfed.engines.secure_sum`; the server decodes what a trusted server would have computed.

Parts of a message have noise of their own. Here each is divided by the standard deviation of its
noise, so that together they are one vector with noise 1, of the noise multiplier of the exchange.

*Who takes part.* The server invites clients, so that it knows who is in a sum. A random sample does
not amplify privacy against it: its account is that of rounds in which all take part. Readers of
what the server publishes have the account of a trusted server.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.channels.integer_sum import IntegerSum
from ebfed.engines.protocol import LearningMessage, LearningSent
from ebfed.learning.privacy import PrivateExchange

__all__ = ["NodeSums"]


@dataclass(frozen=True)
class NodeSums:
    """Messages of private rounds as integers, whose sums have the noise of a trusted server.

    Parameters
    ----------
    exchange : PrivateExchange
        Of a learner with ``privacy=ClientPrivacy(trust="server")``: nodes call
        `LearnerRounds.local` as for a trusted server, and encode the message before it is sent.
    sent : dict
        What the server broadcast in this round.
    nodes : int
        Number of nodes.
    rows : int
        Largest number of clients of one node.
    survivors, bits
        As in `ebfed.channels.integer_sum.IntegerSum`.

    Raises
    ------
    ValueError
        If the noise of the exchange is not that of one sum over all clients.

    Examples
    --------
    >>> import ebfed as eb
    >>> learner = eb.learning.FedAvg(privacy=eb.ClientPrivacy(noise_multiplier=0.01, clip=2.0))
    >>> sent = {"shared": {"w": np.zeros(2)}, "clip": 2.0}
    >>> sums = NodeSums(learner.protocol().exchange(n_clients=6), sent, nodes=2, rows=3)
    >>> rng = np.random.default_rng(0)
    >>> message = {"changes": {"w": np.array([[0.5, 1.0], [0.5, -1.5], [0.0, 0.0]])}}
    >>> sums.decode(sums.encode(message, rng) + sums.encode(message, rng))["changes"]["w"].round(1)
    array([[ 2., -1.]])
    """

    exchange: PrivateExchange
    sent: LearningSent
    nodes: int
    rows: int
    survivors: int | None = None
    bits: int = 32

    def __post_init__(self) -> None:
        if type(self.exchange) is not PrivateExchange:
            raise ValueError(
                "exchange must be a PrivateExchange, whose noise is that of one sum over all "
                f"clients; got {type(self.exchange).__name__}."
            )

    @cached_property
    def _units(self) -> dict[str, tuple[int, float]]:
        """Length of each part of a message, and what it is divided by."""
        exchange, sent = self.exchange, self.sent
        scales, bit = exchange.scales(sent)
        if exchange.multiplier == 0:
            scales, bit = exchange.limits(sent), 1.0
        units = {name: (len(value), scales[name]) for name, value in sent["shared"].items()}
        return units | ({} if exchange.privacy.clip_quantile is None else {"bit": (1, bit)})

    @cached_property
    def grid(self) -> IntegerSum:
        """How the vector becomes integers; its noise has a standard deviation of 1."""
        ratios = [
            limit / self._units[names[0]][1] for names, limit in self.exchange.clipped(self.sent)
        ]
        if self.exchange.privacy.clip_quantile is not None:
            ratios.append(0.5 / self._units["bit"][1])
        norm = math.hypot(*ratios)
        multiplier = 1 / norm if self.exchange.multiplier else 0.0
        size = sum(size for size, _ in self._units.values())
        return IntegerSum(
            norm, size, self.nodes, self.rows, multiplier, survivors=self.survivors, bits=self.bits
        )

    def encode(self, message: LearningMessage, rng: Any) -> NDArray[np.int64]:
        """Return the vector of a node.

        Parameters
        ----------
        message : dict
            A row for each client of the node that takes part, clipped: what `LearnerRounds.local`
            returned.
        rng : Generator or "secure"
            Generator for a simulation; ``"secure"`` draws noise from the operating system.

        Returns
        -------
        int64 ndarray of shape (grid.size,)
        """
        parts = [message["changes"][name] for name in self.sent["shared"]]
        if "bit" in message:
            parts.append(message["bit"])
        scales = (scale for _, scale in self._units.values())
        return self.grid.encode(
            np.hstack([part / scale for part, scale in zip(parts, scales, strict=True)]), rng
        )

    def decode(self, total: NDArray[np.int64]) -> LearningMessage:
        """Return the sum over all clients, noise included, as the message of one client.

        Parameters
        ----------
        total : int64 ndarray of shape (grid.size,)
            Sum of the vectors of the nodes.

        Returns
        -------
        dict
            Arrays of shape (1, size). The server's update adds no more noise
            (`ClientPrivacy.silenced`).
        """
        edges = np.cumsum([size for size, _ in self._units.values()])[:-1]
        parts = np.split(self.grid.decode(total)[None], edges, axis=1)
        whole = {
            name: part * scale
            for (name, (_, scale)), part in zip(self._units.items(), parts, strict=True)
        }
        message: LearningMessage
        message = {
            "nodes": np.full((1, 1), float(self.nodes)),
            "changes": {name: whole[name] for name in self.sent["shared"]},
        }
        if "bit" in whole:
            message["bit"] = whole["bit"]
        return message
