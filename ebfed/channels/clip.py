"""Clipping: a range for other channels, or a channel of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from ebfed.channels.law import Law
from ebfed.channels.report import Box, Report, box
from ebfed.privacy.calibration import check_positive
from ebfed.streams import Stream
from ebfed.tables.clients import LARGEST, SMALLEST
from ebfed.tables.values import numbers

__all__ = ["Clip"]


class Clip(Report):
    """Clip the local mean to a range or, for vectors, to a ball.

    ``Clip(...) | channel`` is that channel on this range. By itself it sends the clipped mean,
    which bounds what one client can do to the fit and hides nothing else. Norms are clipped for
    `Gaussian` and `Clip`; the likelihood of a vector treats its coordinates as if none had been
    clipped, so choose a radius that hardly any mean exceeds (the ledger counts them).

    Parameters
    ----------
    range : (low, high), optional
        Ends of the range, each a number or one per column.
    radius : float, optional
        Largest distance from `centre`, instead of a range.
    centre : array-like of shape (d,) or float

    Examples
    --------
    >>> from ebfed.channels import Gaussian
    >>> channel = Clip((0, 1)) | Gaussian(epsilon=1, delta=1e-6)
    >>> channel.range
    Clip(range=(0, 1))
    """

    whole = True

    def __init__(self, range: Any = None, *, radius: float | None = None, centre: ArrayLike = 0.0):
        self.range = range
        self.radius = radius
        self.centre = centre

    def __or__(self, channel: Report) -> Report:
        """Return a copy of that channel on this range."""
        if not isinstance(channel, Report):
            raise TypeError(f"Clip(...) | channel needs a channel with a range; got {channel!r}.")
        if channel.range is not None:
            raise ValueError(f"the channel has a range already: {channel!r}.")
        if self.radius is not None and not channel.clips_norms:
            raise ValueError(
                f"{type(channel).__name__} clips coordinate by coordinate; norms are clipped for "
                "Gaussian. Give Clip a range instead of a radius."
            )
        return clone(channel).set_params(range=clone(self))

    clips_norms = True

    def _box(self, n_features: int) -> Box:
        if (self.range is None) == (self.radius is None):
            raise ValueError("give Clip a range or a radius, one of them.")
        if self.radius is None:
            return box(self.range, n_features)
        radius = check_positive("radius", self.radius)
        if not SMALLEST <= radius <= LARGEST:
            raise ValueError(
                f"radius must lie between {SMALLEST:g} and {LARGEST:g}; got {self.radius!r}."
            )
        try:
            centre = np.broadcast_to(numbers(self.centre, "centre"), n_features)
        except (TypeError, ValueError):
            centre = np.full(n_features, np.nan)
        if not np.isfinite(centre).all():
            raise ValueError(
                f"centre must be a finite number or one per column ({n_features}); "
                f"got {self.centre!r}."
            )
        return Box(centre, np.full(n_features, radius), ball=True)

    def _law(self, n_features: int) -> Law:
        return Censoring()


@dataclass(frozen=True)
class Censoring(Law):
    """``y = clip(u)``."""

    hides: ClassVar[bool] = False

    def draw(self, u: NDArray, sizes: NDArray, stream: Stream) -> NDArray:
        """Send the value."""
        return u

    def secure(self, u: float, size: int) -> float:
        """Send the value."""
        return u

    def variance(self, u: NDArray, sizes: NDArray) -> NDArray:
        """Zero."""
        return np.zeros_like(u)

    def density(self, reports: NDArray, u: NDArray, sizes: NDArray) -> NDArray:
        """One where the value is the report."""
        return (np.abs(reports[:, None] - np.clip(u, -1, 1)) < 1e-9).astype(float)

    def average(
        self, reports: NDArray, means: NDArray, variances: NDArray, sizes: NDArray
    ) -> NDArray:
        """Normal density inside the range, mass of the tail at its ends."""
        from scipy.special import ndtr

        y, sd = reports[:, None], np.sqrt(variances)[:, None]
        density = np.exp(-0.5 * ((y - means) / sd) ** 2) / (np.sqrt(2 * np.pi) * sd)
        density = np.where(y <= -1, ndtr((-1 - means) / sd), density)
        return np.where(y >= 1, ndtr((means - 1) / sd), density)

    def outcomes(self, size: int) -> tuple[NDArray, NDArray]:
        """Counts if there are any; else midpoints of even steps, and both ends."""
        if size:
            return 2 * np.arange(size + 1) / size - 1, np.ones(size + 1)
        count = 20_000
        inside = (np.arange(count) + 0.5) / count * 2 - 1
        weights = np.concatenate(([1.0], np.full(count, 2 / count), [1.0]))
        return np.concatenate(([-1.0], inside, [1.0])), weights
