"""Total times of durations that all ended with the event, as they are or through a channel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ebfed.likelihoods.poisson import Poisson
from ebfed.likelihoods.reported import ReportLaw
from ebfed.likelihoods.reported_numbers import ReportedNumbers

__all__ = ["Durations", "ReportedRates"]


@dataclass(frozen=True)
class Durations(Poisson):
    """Client i's message is a total time ``exposure[i] ~ Gamma(counts[i], rate theta_i)``.

    That is the sum of ``counts[i]`` exponential durations. Its likelihood is that of a Poisson
    number of events in this time; draws and reports are of the time, as the number is public.

    Examples
    --------
    >>> messages = Durations(np.array([[2], [1]]), np.array([4.0, 0.5]))
    >>> messages.local.ravel()
    array([0.5, 2. ])
    """

    def resampled(self, theta: NDArray, rng: np.random.Generator) -> Durations:
        """Draw total times of the same numbers of durations.

        Examples
        --------
        >>> events = Durations(np.array([[10**6], [0]]), np.ones(2))
        >>> again = events.resampled(np.array([[2.0], [1.0]]), np.random.default_rng(0))
        >>> again.local.ravel().round(1)
        array([ 2., nan])
        """
        number = self.counts[:, 0]
        time = rng.standard_gamma(np.maximum(number, 1)) / theta[:, 0]
        return Durations(self.counts, np.where(number > 0, time, 0.0))

    def sampling_variance(self, mean: float, variance: float) -> NDArray:
        """``E theta**2 / n``, of many durations."""
        with np.errstate(divide="ignore"):
            return (mean**2 + variance) / self.counts[:, 0]

    def through(  # type: ignore[override]
        self, law: ReportLaw, reports: NDArray, has_data: NDArray, centre: NDArray, half: NDArray
    ) -> ReportedRates:
        """Likelihood of reports about these clients' rates ``counts / exposure``.

        Raises
        ------
        TypeError
            If reports are the values themselves.
        """
        if not law.hides:
            raise TypeError("Clip sends rates as they are: use channels.Exact.")
        number = self.counts[:, 0]
        has_data = has_data & (number > 0)[:, None]
        sizes = np.zeros(len(self), np.int64)  # no report is a count of rows
        return ReportedRates(law, reports, has_data, sizes, centre, half, number)


@dataclass(frozen=True)
class ReportedRates(ReportedNumbers):
    """Reports about rates ``x_i = n_i / T_i``, with ``theta_i T_i ~ Gamma(n_i, 1)``.

    Parameters
    ----------
    law, reports, has_data, sizes, centre, half :
        See `Reported`.
    degrees : int64 ndarray of shape (n,)
        Numbers ``n_i`` of durations, which are public.
    """

    support: ClassVar[tuple[float, float]] = (0.0, np.inf)

    def _density(self, theta: NDArray, j: int) -> NDArray:
        from scipy.special import gammaincc

        def below(edges: NDArray, number: float) -> NDArray:
            rate = np.maximum(edges, 0.0)[:, None]
            with np.errstate(divide="ignore", invalid="ignore"):
                time = np.where(rate > 0, number * theta / rate, np.inf)
            return gammaincc(number, time)

        return self._mixed(below, len(theta), j)

    def _averaged(self, j: int, mean: float, variance: float) -> NDArray:
        """Average of the density of reports over a gamma of shape a.

        ``T theta`` over ``theta`` in units of its mean is a ratio of gammas: ``P(T mean <= t)`` is
        the regularised incomplete beta function of ``t / (a + t)``.
        """
        from scipy.special import betainc

        a = mean**2 / variance if variance > 0 else np.inf
        if not a < 1e12:
            return self._density(np.array([mean]), j)[:, 0]

        def below(edges: NDArray, number: float) -> NDArray:
            at = np.maximum(edges, 0.0)
            share = a * at / (a * at + number * mean)  # one less the argument for T
            return betainc(a, number, share)[:, None]

        return self._mixed(below, 1, j)[:, 0]

    def nodes(self, k: int) -> NDArray:
        """``t**2`` for even t, to the end of the range and some errors beyond."""
        high = max(float(self.centre[0] + self.half[0]), 0.0)
        number = self.degrees[self.has_data[:, 0]]
        relative = 1 / np.sqrt(number) if len(number) else np.ones(1)  # error of a rate
        top = np.sqrt(high * (1 + 4 * float(np.median(relative))))
        fine = max(float(np.quantile(relative, 0.05)) * np.sqrt(high) / 2, top / 500)
        k = int(max(k, min(4 * top / fine, 2000)))
        return np.linspace(1e-6 * top, top, k) ** 2
