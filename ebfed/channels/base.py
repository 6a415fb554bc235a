"""Channels: what a client sends, and what the server concludes from it.

A `Channel` has these methods:

- `encode` turns a block of summaries into a message, a plain dict of arrays with one entry per
  client; labels are never sent, numbers of rows are;
- `decode` estimates each client's local mean from the message, without bias;
- `likelihood` gives the likelihood of each client's parameter, given its message and the family of
  its rows; the prior is fitted to that and to nothing else;
- `guarantee` gives epsilon and delta of a report, `event` the same for an accountant, and `bits`
  the size of a report.

A channel is a scikit-learn estimator without `fit`, so that its arguments can be searched over.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, TypedDict

import numpy as np
from numpy.typing import NDArray

from ebfed.arguments import WithArguments
from ebfed.families import Family
from ebfed.likelihoods import Likelihood
from ebfed.privacy import events
from ebfed.tables.clients import Summary

__all__ = ["Channel", "ChannelMessage", "Message", "bits_of", "public_figures"]


class ChannelMessage(TypedDict, total=False):
    """Arrays that the clients of a block send through a channel, one entry per client."""

    n: NDArray[np.int64]
    """Numbers of rows, shape (n_clients,)."""
    weight: NDArray[np.float64]
    """Exposures, of a family that has them, shape (n_clients,)."""
    mean: NDArray[np.float64]
    """Local means, exact or with Gaussian noise, shape (n_clients, d)."""
    scatter: NDArray[np.float64]
    """Sums of squared deviations from the local means, shape (n_clients, d)."""
    log_base: NDArray[np.float64]
    """Log base measures of counts of events, shape (n_clients, d)."""
    report: NDArray
    """Reports on the local means, shape (n_clients, d), or with more axes."""
    asked: NDArray[np.bool_]
    """Coordinate of each report, shape (n_clients, d); missing if it covers all of them."""
    covariates: NDArray[np.float64]
    """Covariates of the clients, shape (n_clients, k)."""


# A family may add sums of its own, so a message is typed as an open dict.
Message = dict[str, NDArray]


class Channel(WithArguments, ABC):
    """What a client sends of its summary."""

    identifies_spread: ClassVar[bool] = True
    """Whether messages of many clients carry the spread of a population, not only its mean."""
    is_exact: ClassVar[bool] = False
    """Whether a client sends its figures as they are."""
    keeps_means: ClassVar[bool] = False
    """Whether a message is the client's mean, as it is or with Gaussian noise."""
    of_shares: ClassVar[bool] = False
    """Whether a message is about answers of several categories, of which clients have shares."""

    @property
    def left_open(self) -> set[str]:
        """Names of the arguments that the server is to choose."""
        return set()

    @abstractmethod
    def encode(self, summary: Summary, rng: Any = None) -> Message:
        """Turn the summaries of a block of clients into what they send.

        Parameters
        ----------
        summary : Summary
        rng : Stream, int, Generator, None or "secure"
            A simulation draws from a reproducible stream; ``"secure"`` draws from the operating
            system through OpenDP, for clients whose privacy is real.
        """

    @abstractmethod
    def decode(self, message: Message) -> NDArray:
        """Estimate each client's local mean without bias, shape (n_clients, d)."""

    def check_message(self, message: Message) -> None:
        """Raise a ValueError if no clients can have sent this message, of the right shapes.

        Random noise is taken to stay within bounds that it leaves less than once in 1e20 reports.
        """
        self.decode(message)

    @abstractmethod
    def variance(self, summary: Summary) -> NDArray:
        """Variance of `decode` around each client's local mean, shape (n_clients, d)."""

    @abstractmethod
    def likelihood(self, message: Message, family: Family) -> Likelihood:
        """Return the likelihood of each client's parameter, given its message.

        Parameters
        ----------
        message : dict of arrays
        family : Family
            Family of the rows of the clients; it has the likelihood of exact figures.
        """

    def guarantee(self, n_features: int = 1) -> tuple[float, float]:
        """Return epsilon and delta of one report, whatever the client's data: local privacy."""
        return math.inf, 0.0

    def event(self, n_features: int = 1) -> Any:
        """Return one report as an event of dp-accounting, for any two clients exchanged."""
        return events.open_release()

    def clipped(self, summary: Summary) -> NDArray[np.bool_]:
        """Return which clients' local means the channel clips, shape (n_clients,)."""
        return np.zeros(len(summary), bool)

    @property
    @abstractmethod
    def bits(self) -> float:
        """Bits of one report on one coordinate; NaN where they depend on the number of rows."""

    def message_bits(self, summary: Summary) -> NDArray:
        """Bits that each client sends, the number of its rows not counted, shape (n_clients,).

        Those of its report, and 64 for each number that is sent as it is.
        """
        return self.report_bits(summary) + bits_of(public_figures(summary))

    def report_bits(self, summary: Summary) -> NDArray:
        """Bits of each client's report on all of its coordinates, shape (n_clients,)."""
        return np.full(len(summary), self.bits * summary.n_features)


def bits_of(figures: Mapping[str, NDArray]) -> float:
    """Count the bits of a client's figures as they are, the number of its rows not counted.

    Examples
    --------
    >>> bits_of({"n": np.array([3, 2]), "mean": np.zeros((2, 3))})
    192.0
    """
    return 64.0 * sum(math.prod(x.shape[1:]) for name, x in figures.items() if name != "n")


def public_figures(summary: Summary) -> Message:
    """Return what every channel sends as it is: numbers of rows, and exposures if there are any.

    Examples
    --------
    >>> public_figures(Summary.from_rows([1.0, 3.0, 8.0], groups=["a", "a", "b"]))
    {'n': array([2, 1])}
    """
    figures = {"n": summary.n}
    return figures if summary.weight is None else figures | {"weight": summary.weight}
