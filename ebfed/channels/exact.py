"""The channel that hides nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.channels.base import Channel, Message, bits_of, public_figures
from ebfed.families import Family
from ebfed.likelihoods import Likelihood
from ebfed.tables.clients import Summary

__all__ = ["Exact"]


class Exact(Channel):
    """Send number of rows, mean and scatter as they are.

    Examples
    --------
    >>> summary = Summary.from_rows([1.0, 3.0, 8.0], groups=["a", "a", "b"])
    >>> channel = Exact()
    >>> channel.decode(channel.encode(summary)).ravel()
    array([2., 8.])
    """

    is_exact = True
    keeps_means = True

    def encode(self, summary: Summary, rng: Any = None) -> Message:
        """Send ``n``, ``mean``, ``scatter`` and what else is summed up; nothing is drawn."""
        return Family.figures(summary)

    def decode(self, message: Message) -> NDArray:
        """Return the means."""
        return message["mean"]

    def variance(self, summary: Summary) -> NDArray:
        """Zero."""
        return np.zeros_like(summary.mean)

    def likelihood(self, message: Message, family: Family) -> Likelihood:
        """Return the likelihood of the clients' own data."""
        family.check_figures(message)
        return family.likelihood(message)

    @property
    def bits(self) -> float:
        """Two numbers of 64 bits: mean and scatter."""
        return 128.0

    def report_bits(self, summary: Summary) -> NDArray:
        """64 for each number but exposures: means, scatters, and the family's sums."""
        public = bits_of(public_figures(summary))
        return np.full(len(summary), bits_of(self.encode(summary)) - public)
