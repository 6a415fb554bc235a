r"""Private means of vectors that are close to one another, wherever that is.

A mean of r vectors, clipped to a norm B, moves by up to 2 B / r if one of them is exchanged, and
needs noise for that. If all lie within tau of some unknown point, they may be clipped to a small
window around it, which is found privately first:

1. Rotate: pad with zeros to D coordinates, a power of two, change signs at random, and multiply by
   the normalised Hadamard matrix. Deviations of a norm of at most tau then have coordinates of at
   most

   .. math:: \tau' = \tau \min\Big(1, \sqrt{2 \log(2 D r / \gamma) / D}\Big)

   but for a probability gamma (Hoeffding's inequality, for r vectors of D coordinates).
2. In each coordinate, cut [-B, B] into bins of width 2 tau', and draw one by the exponential
   mechanism: with probability proportional to :math:`\exp(-\varepsilon_w u / 2)`, where u is the
   number of vectors below the bin or above it, whichever is larger.
3. Clip each coordinate to 3 tau' on both sides of the bin's middle. A bin that holds one vector has
   all of them there. With 2 tau', as published, up to half of them may be clipped: a bin that
   begins where the upper half of the vectors lies has the lower half outside.
4. Release the average with Gaussian noise, and rotate back.

*Who is a neighbour.* One vector is exchanged for another; r is fixed and public.

*What it costs.* Exchanging a vector changes u by at most 1, so that each choice of a bin has a
log-likelihood ratio of bounded range :math:`\varepsilon_w`, which is
:math:`\varepsilon_w^2 / 8`-zCDP. Given the windows, the average moves by at most

.. math:: \Delta = \frac{1}{r} \min\big(2 B,\; 6 \tau' \sqrt{D}\big)

(clipping to a box brings no two points further apart), and noise of standard deviation sigma is
:math:`\Delta^2 / (2 \sigma^2)`-zCDP. All in all

.. math:: \rho = D\, \frac{\varepsilon_w^2}{8} + \frac{\Delta^2}{2 \sigma^2},

for any vectors at all. That they are concentrated is what the *accuracy* rests on.
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

__all__ = ["WinsorizedMean", "rotate", "rotate_back"]

# Bins of all coordinates that are weighed at once.
CELLS = 2**20
# Bins of one coordinate.
MOST = 10**7


@dataclass(frozen=True)
class WinsorizedMean:
    r"""Private mean of concentrated vectors, rho-zCDP when one of them is exchanged.

    Parameters
    ----------
    bound : float
        B: longer vectors are scaled down to this norm. The mean is looked for in that ball.
    concentration : float
        tau: how far vectors are from some point, most probably. In the units of the vectors.
    rho : float
        What one release costs.
    share : float
        Of rho, what the windows cost; the rest pays for the average.
    failure : float
        gamma: probability with which a vector within tau is clipped all the same, if the windows
        are where the vectors are.

    Raises
    ------
    ValueError
        If an argument is none of these.

    Warnings
    --------
    Windows are found only where there are many vectors: `fewest` says how many, which grows with
    the root of D / rho. With fewer, what is released is a point almost anywhere, and a mean of
    vectors clipped to B with Gaussian noise is better, by up to orders of magnitude. It is better
    by a small factor, too, unless tau is a small part of B, a twentieth or so. The examples measure
    both.

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

    Its error over that of a mean with Gaussian noise that costs as much: with enough vectors; with
    too few, which is worst where there are many coordinates; and where tau is half of B:

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
        """Spend a budget on so many releases.

        Parameters
        ----------
        bound, concentration, share, failure : float
        epsilon, delta : float
            Of all releases together, when one vector is exchanged.
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
        """Return tau': how far coordinates of rotated vectors are from those of the point."""
        padded = _power_of_two(size)
        log = math.log(2 * padded * count / self.failure)
        return self.concentration * min(1.0, math.sqrt(2 * log / padded))

    def window_epsilon(self, size: int) -> float:
        """Return epsilon_w, of the choice of each window."""
        return math.sqrt(8 * self.share * self.rho / _power_of_two(size))

    def sensitivity(self, count: int, size: int) -> float:
        """Return Delta, by which the average moves at most if a vector is exchanged."""
        width = 6 * self.deviation(count, size)
        return min(2 * self.bound, width * math.sqrt(_power_of_two(size))) / count

    def sigma(self, count: int, size: int) -> float:
        """Return the standard deviation of the noise in each coordinate of the average."""
        return self.sensitivity(count, size) / math.sqrt(2 * (1 - self.share) * self.rho)

    def fewest(self, size: int) -> int:
        r"""Return how many vectors are enough to find the windows.

        .. math:: r \ge \frac{4}{\varepsilon_w} \log\frac{K D}{\gamma}

        with K bins: a bin that holds the median has a u of at most r / 2, one beyond all vectors
        has r, and this makes the latter improbable in all coordinates together.

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
            What is not finite counts as zero.
        rng : Generator
            Of the rotation, the windows and the noise. A seed that is known protects nobody, and
            the last digits of floats are not covered by the proof.
        add_noise : callable, optional
            Returns an array with Gaussian noise of a standard deviation, in place of NumPy's.

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
            rotate(_shortened(x, self.bound), signs),
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
        """Return K, how many bins a coordinate has."""
        bins = self.bound / self.deviation(count, size)
        if bins > MOST:
            raise ValueError(
                f"concentration must not be so small beside bound={self.bound:g} that there are "
                f"more than {MOST:,} bins; {self.concentration!r} makes {bins:.3g}."
            )
        return math.ceil(bins)


def rotate(vectors: NDArray, signs: NDArray) -> NDArray[np.float64]:
    r"""Change signs and multiply by the normalised Hadamard matrix, in O(D log D) for each vector.

    .. math:: y = D^{-1/2} H \,\mathrm{diag}(s)\, x

    Parameters
    ----------
    vectors : ndarray of shape (r, d)
        Filled up with zeros if d is less than D.
    signs : ndarray of shape (D,)
        1 or -1; D is a power of two.

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


def _shortened(x: NDArray, bound: float) -> NDArray[np.float64]:
    """Scale vectors down to a norm; what is not finite becomes zero."""
    with np.errstate(over="ignore", invalid="ignore"):
        norm = np.sqrt(np.einsum("ij,ij->i", x, x))[:, None]
        sound = np.isfinite(norm)
        short = x * np.minimum(1.0, bound / np.maximum(norm, bound))
    return np.where(sound, short, 0.0)


def _power_of_two(size: Any) -> int:
    """Return D, the power of two to which vectors are padded."""
    return 1 << (check_count("size", size) - 1).bit_length()
