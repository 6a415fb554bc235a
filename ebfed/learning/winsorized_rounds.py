"""Rounds in which every owner releases a winsorized mean over its own users."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ebfed.channels.secure import add_gaussian
from ebfed.learning.accounts import Round
from ebfed.privacy import accountant, events
from ebfed.privacy.winsorized_mean import WinsorizedMean
from ebfed.streams import Stream

__all__ = ["WinsorizedRound", "generators", "release", "warn_of_few"]


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
