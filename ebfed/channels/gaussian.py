"""Gaussian noise on the clipped local mean."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ebfed.channels import secure
from ebfed.channels.law import Law
from ebfed.channels.report import Report, check_report_epsilon
from ebfed.privacy import events
from ebfed.privacy.calibration import (
    PrivacyWarning,
    check_delta,
    gaussian_sigma,
    paper_delta,
    paper_sigma,
)
from ebfed.streams import Stream

__all__ = ["Gaussian"]


class Gaussian(Report):
    """Clip the local mean and add Gaussian noise: (epsilon, delta)-private by itself.

    The noise is calibrated to the distance between any two clipped means: the width of the range
    for one column, the diagonal of the box for d columns, or the diameter of a ball where norms
    are clipped (``Clip(radius=...) | Gaussian(...)``), which needs less noise for many columns.

    Parameters
    ----------
    epsilon, delta : float
    range : (low, high), Clip or "private", optional
        Range to which local means are clipped.
    calibration : {"exact", "paper"}
        ``"exact"``: the analytic Gaussian mechanism. ``"paper"``: ``b sqrt(8 log(2/delta)) /
        epsilon`` on each coordinate, for replication. Where the true delta is larger, there is a
        warning, and the ledger has the true delta.

    References
    ----------
    Balle and Wang (2018), Improving the Gaussian mechanism for differential privacy; Ozkara,
    Girgis, Data, Diggavi (2023), Theorem 2.

    Examples
    --------
    >>> from ebfed import Summary
    >>> channel = Gaussian(epsilon=1, delta=1e-6, range=(0, 1))
    >>> channel.variance(Summary.from_rows([0.5], groups=[0])).ravel()
    array([17.8479])
    """

    whole = True
    clips_norms = True

    def __init__(
        self,
        epsilon: float,
        delta: float,
        range: Any = None,
        *,
        calibration: Literal["exact", "paper"] = "exact",
    ):
        self.epsilon = epsilon
        self.delta = delta
        self.range = range
        self.calibration = calibration

    def _law(self, n_features: int) -> Law:
        epsilon, delta = check_report_epsilon(self.epsilon), check_delta(self.delta)
        if self.calibration == "exact":
            return Noise(gaussian_sigma(epsilon, delta, 2 * self._norm(n_features)))
        if self.calibration != "paper":
            raise ValueError(f"calibration must be 'exact' or 'paper'; got {self.calibration!r}.")
        with warnings.catch_warnings():  # `guarantee` warns once for a fit
            warnings.simplefilter("ignore", PrivacyWarning)
            return Noise(paper_sigma(epsilon, delta, 1.0))

    def _norm(self, n_features: int) -> float:
        """Largest norm of a clipped mean, in units of the range."""
        ball = self.range is not None and not isinstance(self.range, str)
        ball = ball and self._box(n_features).ball
        return 1.0 if ball else math.sqrt(n_features)

    def guarantee(self, n_features: int = 1) -> tuple[float, float]:
        """Return epsilon and the true delta."""
        epsilon, delta = check_report_epsilon(self.epsilon), check_delta(self.delta)
        if self.calibration == "paper":
            paper_sigma(epsilon, delta, 1.0, n_features)  # warns
            delta = paper_delta(epsilon, delta, n_features)
        return epsilon, delta

    def event(self, n_features: int = 1) -> Any:
        law = self._law(n_features)
        assert isinstance(law, Noise)
        return events.gaussian(law.sigma / self._norm(n_features))


@dataclass(frozen=True)
class Noise(Law):
    """``y = clip(u) + sigma N(0, 1)``."""

    adds_noise: ClassVar[bool] = True

    sigma: float

    def draw(self, u: NDArray, sizes: NDArray, stream: Stream) -> NDArray:
        """Add noise."""
        return stream.add_normals(u, self.sigma)

    def secure(self, u: float, size: int) -> float:
        """Add noise on a grid of floats that leaks nothing."""
        return secure.gaussian(u, self.sigma)

    def variance(self, u: NDArray, sizes: NDArray) -> NDArray:
        """``sigma**2``, everywhere."""
        return np.full(u.shape, self.sigma**2)

    def rounded(self, reports: NDArray) -> NDArray:
        """Round to a fiftieth of the noise: adds 1/30,000 to its variance."""
        return np.rint(reports / (self.sigma / 50)) * (self.sigma / 50)

    def density(self, reports: NDArray, u: NDArray, sizes: NDArray) -> NDArray:
        """Normal density around the clipped value."""
        return self._normal(reports[:, None] - np.clip(u, -1, 1), self.sigma**2)

    def average(
        self, reports: NDArray, means: NDArray, variances: NDArray, sizes: NDArray
    ) -> NDArray:
        """Average over a normal u: two clipped tails, and a normal product cut at the range."""
        from scipy.special import ndtr

        y, v, s2 = reports[:, None], variances[:, None], self.sigma**2
        sd = np.sqrt(v)
        # clients with the same number of rows stand together, and have the same tails
        first = np.flatnonzero(np.append(True, np.diff(variances) != 0))[: len(variances)]
        times = np.diff(np.append(first, len(variances)))
        below, above = (
            np.repeat(ndtr((each - 1) / sd[first]), times, axis=0) for each in (-means, means)
        )
        tails = below * self._normal(y + 1, s2) + above * self._normal(y - 1, s2)
        centre = (means * s2 + y * v) / (v + s2)  # of u given the report
        spread = self.sigma * sd / np.sqrt(v + s2)
        inside = ndtr((1 - centre) / spread) - ndtr((-1 - centre) / spread)
        return tails + inside * self._normal(y - means, v + s2)

    @staticmethod
    def _normal(away: NDArray, variance: NDArray | float) -> NDArray:
        return np.exp(-0.5 * away**2 / variance) / np.sqrt(2 * np.pi * variance)

    def outcomes(self, size: int) -> tuple[NDArray, NDArray]:
        """Even steps: the sum of a smooth density over them converges exponentially."""
        reach = 1 + 9 * self.sigma
        step = min(self.sigma / 4, reach / 200)
        reports = np.arange(-reach, reach + step, step)
        return reports, np.full(len(reports), step)
