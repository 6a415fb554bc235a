"""The channel that hides nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ebfed.channels.base import Channel, Message
from ebfed.clients import Summary
from ebfed.likelihoods import Likelihood

__all__ = ["Exact"]


class Exact(Channel):
    """Send number of rows, mean and scatter as they are.

    Examples
    --------
    >>> summary = Summary.from_rows([1.0, 3.0, 8.0], groups=["a", "a", "b"])
    >>> channel = Exact()
    >>> channel.decode(channel.encode(summary, np.random.default_rng())).ravel()
    array([2., 8.])
    """

    def encode(self, summary: Summary, rng: np.random.Generator) -> Message:
        """Send ``n``, ``mean`` and ``scatter``; the generator is not used."""
        return {"n": summary.n, "mean": summary.mean, "scatter": summary.scatter}

    def decode(self, message: Message) -> NDArray:
        """Return the means."""
        return message["mean"]

    def likelihood(self, message: Message, model: Callable[[Message], Likelihood]) -> Likelihood:
        """Return the likelihood of the clients' own data."""
        return model(message)
