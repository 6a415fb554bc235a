"""Channels: what may leave a client.

A `Channel` says what a client sends of its summary and what the server may conclude from it:

- `encode` turns a block of summaries into a message, a plain dict of arrays with one entry per
  client; labels never leave;
- `decode` estimates each client's local mean from the message, without bias;
- `likelihood` says what the message tells about each client's parameter under a model of its
  data; the prior is fitted to that and to nothing else.

A channel is a scikit-learn estimator without `fit`, so that its arguments can be searched over.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from ebfed.clients import Summary
from ebfed.likelihoods import Likelihood

__all__ = ["Channel", "Message"]

Message = dict[str, NDArray]


class Channel(BaseEstimator, ABC):
    """What may leave a client."""

    @abstractmethod
    def encode(self, summary: Summary, rng: np.random.Generator) -> Message:
        """Turn the summaries of a block of clients into what they send."""

    @abstractmethod
    def decode(self, message: Message) -> NDArray:
        """Estimate each client's local mean without bias, shape (n_clients, d)."""

    @abstractmethod
    def likelihood(self, message: Message, model: Callable[[Message], Likelihood]) -> Likelihood:
        """Say what the message tells about each client's parameter.

        Parameters
        ----------
        message : dict of arrays
        model : callable
            The likelihood of exact figures ``n``, ``mean``, ``scatter``.
        """
