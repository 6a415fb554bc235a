"""Gaussian noise of a given size, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.channels import secure
from ebfed.channels.base import Channel, Message, public_figures
from ebfed.channels.report import box
from ebfed.families import Family
from ebfed.likelihoods import Likelihood
from ebfed.privacy.calibration import as_float
from ebfed.streams import Stream, make_key
from ebfed.tables.clients import LARGEST, Summary

__all__ = ["AddNoise"]


class AddNoise(Channel):
    """Send the local mean plus Gaussian noise of a given standard deviation.

    One such message has no guarantee of privacy; a sum of many may have one (see `OptOutMean`). The
    likelihood of a message is Gaussian, so that normal populations are fitted to it in closed form.

    Parameters
    ----------
    sd : float, optional
        Standard deviation of the noise on each column. If None, an estimator sets it.
    range : (low, high), optional
        Range to which means are clipped first, which bounds the effect of one client on a sum. The
        likelihood ignores clipping: choose a range that hardly any mean exceeds (the ledger counts
        them).

    Examples
    --------
    >>> summary = Summary.from_rows([1.0, 3.0, 8.0], groups=["a", "a", "b"])
    >>> AddNoise(0.0).encode(summary)["mean"].ravel()
    array([2., 8.])
    """

    keeps_means = True

    def __init__(self, sd: float | None = None, range: Any = None):
        self.sd = sd
        self.range = range

    def encode(self, summary: Summary, rng: Any = None) -> Message:
        """Send ``n`` and the noisy ``mean``."""
        means = self._clip(summary.mean)
        if isinstance(rng, str):
            if rng != "secure":
                raise ValueError(f"rng must be a seed, a Stream or 'secure'; got {rng!r}.")
            noise = np.vectorize(lambda u: secure.gaussian(u, self._scale()), otypes=[float])
            return public_figures(summary) | {"mean": noise(means) if means.size else means}
        stream = rng if isinstance(rng, Stream) else Stream(make_key(rng), 0)
        return public_figures(summary) | {"mean": stream.add_normals(means, self._scale())}

    def decode(self, message: Message) -> NDArray:
        """Return the noisy means."""
        return message["mean"]

    def check_message(self, message: Message) -> None:
        """Raise a ValueError if a mean is further from the range than noise carries it."""
        mean = message["mean"]
        reach = LARGEST if self.range is None else 20 * self._scale()
        if not (np.abs(mean - self._clip(mean)) <= reach).all() or np.any(np.abs(mean) > LARGEST):
            raise ValueError("mean must be within the range of the channel, and noise of it.")

    def variance(self, summary: Summary) -> NDArray:
        """``sd**2``."""
        return np.full(summary.mean.shape, self._scale() ** 2)

    def likelihood(self, message: Message, family: Family) -> Likelihood:
        """Return the likelihood of the clients' data, blurred."""
        nothing = np.zeros_like(message["mean"])
        exact = family.likelihood(message | {"scatter": nothing})
        return exact.blurred(np.array([self._scale() ** 2]))

    def clipped(self, summary: Summary) -> NDArray[np.bool_]:
        return np.any(self._clip(summary.mean) != summary.mean, axis=1)

    @property
    def bits(self) -> float:
        """Bits of one number."""
        return 64.0

    @property
    def left_open(self) -> set[str]:
        """Name of the argument `sd`, where it is not given."""
        return {"sd"} if self.sd is None else set()

    def _scale(self) -> float:
        sd = as_float(self.sd)
        if not 0 <= sd <= LARGEST:
            raise ValueError(f"sd must be a number from 0 to {LARGEST:g}; got {self.sd!r}.")
        return sd

    def _clip(self, means: NDArray) -> NDArray:
        if self.range is None:
            return means
        where = box(self.range, means.shape[1])
        return np.clip(means, where.centre - where.half, where.centre + where.half)
