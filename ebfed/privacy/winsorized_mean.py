r"""Private means of vectors that are close to one another.

A mean of r vectors, clipped to a norm B, changes by up to 2 B / r if one of them is exchanged, and
needs noise in proportion. If all lie within tau of an unknown point, they may be clipped to a small
window around it. The window is first found privately:

1. Rotate: pad with zeros to D coordinates, a power of two, change signs at random, and multiply by
   the normalised Hadamard matrix. Deviations of a norm of at most tau then have coordinates of at
   most

   .. math:: \tau' = \tau \min\Big(1, \sqrt{2 \log(2 D r / \gamma) / D}\Big)

   except with probability gamma (Hoeffding's inequality, for r vectors of D coordinates).
2. In each coordinate, cut [-B, B] into bins of width 2 tau', and draw one by the exponential
   mechanism: with probability proportional to :math:`\exp(-\varepsilon_w u / 2)`, where u is the
   larger of the numbers of vectors below the bin and above it.
3. Clip each coordinate to 3 tau' on both sides of the bin's middle. If the bin holds one vector,
   this window holds all. With 2 tau', as published, up to half of them may be clipped: if the bin
   begins at the upper half of the vectors, the lower half is outside.
4. Release the average with Gaussian noise, and rotate back.

*Neighbours.* One vector is exchanged for another; r is fixed and public.

*Cost.* Exchanging a vector changes u by at most 1, so each choice of a bin has a log-likelihood
ratio of bounded range :math:`\varepsilon_w`, which is :math:`\varepsilon_w^2 / 8`-zCDP. Given the
windows, the average changes by at most

.. math:: \Delta = \frac{1}{r} \min\big(2 B,\; 6 \tau' \sqrt{D}\big)

(clipping to a box increases no distance), and noise of standard deviation sigma is
:math:`\Delta^2 / (2 \sigma^2)`-zCDP. The total is

.. math:: \rho = D\, \frac{\varepsilon_w^2}{8} + \frac{\Delta^2}{2 \sigma^2},

for any vectors. Only the *accuracy* depends on their concentration.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ebfed.privacy import accountant, events
from ebfed.privacy.calibration import check_count, check_positive
from ebfed.privacy.clipping import shorten

__all__ = ["WinsorizedMean", "rotate", "rotate_back"]

# Bins of all coordinates in one step.
CELLS = 2**20
# Bins of one coordinate.
MOST = 10**7


@dataclass(frozen=True)
class WinsorizedMean:
    r"""Private mean of concentrated vectors, rho-zCDP when one of them is exchanged.

    Parameters
    ----------
    bound : float
        Norm B to which longer vectors are scaled down. The mean is sought in that ball.
    concentration : float
        Distance tau within which most vectors lie from some point, in the units of the vectors.
    rho : float
        Cost of one release.
    share : float
        Share of rho for the windows; the rest is for the average.
    failure : float
        Probability gamma that a vector within tau is clipped although the windows are correct.

    Raises
    ------
    ValueError
        If an argument is invalid.

    Warnings
    --------
    Many vectors are needed to find the windows: `fewest` is their number, which grows with the root
    of D / rho. With fewer, the released point is almost arbitrary, and a mean of vectors clipped to
    B with Gaussian noise is better by up to orders of magnitude. That mean is also slightly better
    unless tau is a small part of B, about a twentieth. The examples measure both.

    References
    ----------
    Levy, Sun, Amin, Kale, Kulesza, Mohri and Suresh (2021), Learning with user-level privacy,
    Algorithms 1 and 2. Cesar and Rogers (2021), Bounding, concentrating, and truncating, on the
    exponential mechanism. Bun and Steinke (2016), Concentrated differential privacy.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> mean = WinsorizedMean(bound=1.0, concentration=0.01, rho=0.1)
    >>> mean.fewest(16)
    304
    >>> vectors = 0.2 + 0.01 * rng.normal(size=(10_000, 16)) / 4
    >>> mean.release(vectors, rng).round(3)[:4]
    array([0.2, 0.2, 0.2, 0.2])

    The ratio of its error to that of a mean with Gaussian noise at the same cost: with enough
    vectors; with too few, which is worst for many coordinates; and with tau equal to half of B:

    >>> def ratio(mean, r, d, repeats=2):
    ...     vectors = np.eye(1, d) / 5 + mean.concentration * rng.normal(size=(r, d)) / np.sqrt(d)
    ...     errors = [mean.release(vectors, rng) - vectors.mean(axis=0) for _ in range(repeats)]
    ...     gaussian = 2 * mean.bound / r / np.sqrt(2 * mean.rho)
    ...     return float(np.sqrt(np.mean(np.square(errors))) / gaussian)
    >>> ratio(mean, 10_000, 16), ratio(mean, 1000, 2048)
    (0.2, 101.6)
    >>> ratio(WinsorizedMean(bound=1.0, concentration=0.5, rho=0.1), 10_000, 16)
    1.7
    """

    bound: float
    concentration: float
    rho: float
    share: float = 0.5
    failure: float = 0.01

    def __post_init__(self) -> None:
        for name in ("bound", "concentration", "rho"):
            check_positive(name, getattr(self, name))
        for name in ("share", "failure"):
            value = getattr(self, name)
            if not (isinstance(value, (int, float)) and 0 < value < 1):
                raise ValueError(f"{name} must lie between 0 and 1, such as 0.5; got {value!r}.")

    @classmethod
    def from_budget(
        cls,
        bound: float,
        concentration: float,
        *,
        epsilon: float,
        delta: float,
        times: int = 1,
        share: float = 0.5,
        failure: float = 0.01,
    ) -> Self:
        """Spend a budget on a number of releases.

        Parameters
        ----------
        bound, concentration, share, failure : float
        epsilon, delta : float
            Guarantee of all releases together, if one vector is exchanged.
        times : int

        Returns
        -------
        WinsorizedMean

        Examples
        --------
        >>> WinsorizedMean.from_budget(1.0, 0.01, epsilon=1.0, delta=1e-6, times=10).rho
        0.0024...
        """
        check_count("times", times)
        z = accountant.noise_multiplier(
            lambda z: events.repeated(events.concentrated(2 / z**2), times),
            epsilon,
            delta,
            relation="replace_one",
            method="rdp",
        )
        return cls(bound, concentration, 2 / z**2, share, failure)

    @property
    def event(self) -> events.Event:
        """The release, for an account by ``relation="replace_one", method="rdp"``."""
        return events.concentrated(self.rho)

    def deviation(self, count: int, size: int) -> float:
        """Return tau', the distance of coordinates of rotated vectors from those of the point."""
        padded = _power_of_two(size)
        log = math.log(2 * padded * count / self.failure)
        return self.concentration * min(1.0, math.sqrt(2 * log / padded))

    def window_epsilon(self, size: int) -> float:
        """Return epsilon_w, of the choice of each window."""
        return math.sqrt(8 * self.share * self.rho / _power_of_two(size))

    def sensitivity(self, count: int, size: int) -> float:
        """Return Delta, the largest change of the average if a vector is exchanged."""
        width = 6 * self.deviation(count, size)
        return min(2 * self.bound, width * math.sqrt(_power_of_two(size))) / count

    def sigma(self, count: int, size: int) -> float:
        """Return the standard deviation of the noise in each coordinate of the average."""
        return self.sensitivity(count, size) / math.sqrt(2 * (1 - self.share) * self.rho)

    def fewest(self, size: int) -> int:
        r"""Return the number of vectors that is enough to find the windows.

        .. math:: r \ge \frac{4}{\varepsilon_w} \log\frac{K D}{\gamma}

        with K bins. A bin with the median has u at most r / 2, and a bin beyond all vectors has u
        equal to r. This number makes the latter improbable in all coordinates together.

        Parameters
        ----------
        size : int
            Length of the vectors.
        """
        bins = self._bins(1, size)  # there are fewer where there are more vectors
        log = math.log(bins * _power_of_two(size) / self.failure)
        return math.ceil(4 / self.window_epsilon(size) * log)

    def release(
        self,
        vectors: ArrayLike,
        rng: np.random.Generator,
        add_noise: Callable[[NDArray, float], NDArray] | None = None,
    ) -> NDArray[np.float64]:
        """Release the mean.

        Parameters
        ----------
        vectors : array-like of shape (r, d)
            Vectors; one that is not finite counts as zero.
        rng : Generator
            Generator of the rotation, the windows and the noise. A known seed gives no privacy, and
            the proof does not cover the last digits of floats.
        add_noise : callable, optional
            Function that adds Gaussian noise of a given standard deviation, instead of NumPy.

        Returns
        -------
        ndarray of shape (d,)

        Raises
        ------
        ValueError
            If there is no vector, or they have no coordinates.
        """
        x = np.asarray(vectors, np.float64)
        if x.ndim != 2 or 0 in x.shape:
            raise ValueError(
                "vectors must have shape (r, d) with at least one vector and one coordinate; "
                f"got {x.shape}."
            )
        count, size = x.shape
        if not isinstance(rng, np.random.Generator):
            raise TypeError(f"rng must be a numpy.random.Generator; got {rng!r}.")
        signs = rng.choice([-1.0, 1.0], _power_of_two(size))
        average = _clipped_average(
            rotate(shorten(x, self.bound)[0], signs),
            self._bins(count, size),
            self.deviation(count, size),
            self.window_epsilon(size),
            rng,
        )
        sigma = self.sigma(count, size)
        if add_noise is None:
            average += sigma * rng.standard_normal(len(average))
        else:
            average = add_noise(average, sigma)
        return rotate_back(average[None], signs)[0, :size]

    def _bins(self, count: int, size: int) -> int:
        """Return K, the number of bins of a coordinate."""
        bins = self.bound / self.deviation(count, size)
        if bins > MOST:
            raise ValueError(
                f"concentration must be large enough for at most {MOST:,} bins within "
                f"bound={self.bound:g}; got {self.concentration!r}, which gives {bins:.3g}."
            )
        return math.ceil(bins)


def rotate(vectors: NDArray, signs: NDArray) -> NDArray[np.float64]:
    r"""Change signs and multiply by the normalised Hadamard matrix, in O(D log D) for each vector.

    .. math:: y = D^{-1/2} H \,\mathrm{diag}(s)\, x

    Parameters
    ----------
    vectors : ndarray of shape (r, d)
        Vectors; padded with zeros if d is less than D.
    signs : ndarray of shape (D,)
        Signs, 1 or -1; D is a power of two.

    Returns
    -------
    ndarray of shape (r, D)

    Examples
    --------
    >>> rotate(np.array([[3.0, 4.0]]), np.array([1.0, -1.0]))
    array([[-0.7071, 4.9497]])
    """
    y = np.zeros((len(vectors), len(signs)))
    y[:, : vectors.shape[1]] = vectors
    return _hadamard(y * signs)


def rotate_back(vectors: NDArray, signs: NDArray) -> NDArray[np.float64]:
    """Undo `rotate`, for vectors of shape (r, D).

    Examples
    --------
    >>> signs = np.array([1.0, -1.0])
    >>> rotate_back(rotate(np.array([[3.0, 4.0]]), signs), signs)
    array([[3., 4.]])
    """
    return _hadamard(vectors) * signs


def _hadamard(y: NDArray) -> NDArray[np.float64]:
    """Multiply vectors by the normalised Hadamard matrix: sums and differences of halves."""
    count, size = y.shape
    half = 1
    while half < size:
        pairs = y.reshape(count, -1, 2, half)
        first, second = pairs[:, :, 0], pairs[:, :, 1]
        y = np.stack([first + second, first - second], axis=2).reshape(count, size)
        half *= 2
    return y / math.sqrt(size)


def _clipped_average(
    y: NDArray, bins: int, deviation: float, epsilon: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Average each column within its window."""
    middle = _middles(y, bins, deviation, epsilon, rng)
    return np.clip(y, middle - 3 * deviation, middle + 3 * deviation).mean(axis=0)


def _middles(
    y: NDArray, bins: int, deviation: float, epsilon: float, rng: np.random.Generator
) -> NDArray:
    """Draw the middle of a bin for each column by the exponential mechanism, epsilon each."""
    count, size = y.shape
    edge = bins * deviation
    drawn = np.empty(size, np.int64)
    step = max(1, CELLS // max(bins, count))
    for start in range(0, size, step):
        part = y[:, start : start + step]
        columns = np.arange(part.shape[1])
        # min: a value at the upper end belongs to the last bin
        bin_ = np.minimum((part + edge) // (2 * deviation), bins - 1).astype(np.int64)
        bin_ = np.maximum(bin_, 0)
        inside = np.bincount((columns * bins + bin_).ravel(), minlength=len(columns) * bins)
        upto = inside.reshape(len(columns), bins).cumsum(axis=1)
        below = np.zeros_like(upto)
        below[:, 1:] = upto[:, :-1]
        farther = np.maximum(below, count - upto)
        # the largest of these is a draw with such weights
        score = rng.gumbel(size=farther.shape) - epsilon / 2 * farther
        drawn[start : start + step] = score.argmax(axis=1)
    return (2 * drawn + 1) * deviation - edge


def _power_of_two(size: Any) -> int:
    """Return D, the power of two to which vectors are padded."""
    return 1 << (check_count("size", size) - 1).bit_length()
