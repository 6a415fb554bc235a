"""Linear shrinkage of Gaussian estimates: intervals that need moments of the population only.

Every fitted population, whatever its shape, goes with a straight line

    theta_hat_i = mean + a_i (x_i - mean),    a_i = mu_2 / (mu_2 + s_i**2),

where the mean and the second and fourth moments around it are those that the messages show. Robust
intervals (`ebfed.priors.robust`) hold for such a line, and not for the curve that a posterior mean
is under another population than the normal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ebfed.priors import robust

if TYPE_CHECKING:
    from ebfed.likelihoods import Gaussian

__all__ = ["LinearShrinkage", "half_widths", "moments_around", "moments_of"]


def moments_of(likelihood: Gaussian) -> dict[str, NDArray] | None:
    """Learn the moments of a population from messages, each column alone.

    The mean is weighted by ``1 / (t + s_i**2)``, with t of Paule and Mandel: the sum of the squared
    deviations so weighted is its expectation n - 1.

    Returns
    -------
    dict of ndarray of shape (d,), or None
        Mean, ``mean_variance`` (the sampling variance of the mean), ``second`` central moment and
        ``kurtosis``. None where a column has no message with an error that is neither zero nor
        infinite.

    References
    ----------
    R. C. Paule and J. Mandel (1982), Consensus values and weighting factors, Journal of Research of
    the National Bureau of Standards 87, 377-385.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> theta = rng.choice([1.0, 5.0], (5000, 1))  # variance 4, kurtosis 1
    >>> from ebfed.likelihoods import Gaussian
    >>> messages = Gaussian(theta + rng.standard_normal((5000, 1)), np.ones((5000, 1)))
    >>> {name: round(x.item(), 1) for name, x in moments_of(messages).items()}
    {'mean': 3.0, 'mean_variance': 0.0, 'second': 4.0, 'kurtosis': 1.0}
    """
    variances = np.broadcast_to(likelihood.variances, likelihood.values.shape)
    columns = []
    both = (np.ascontiguousarray(each.T) for each in (likelihood.values, variances))
    for values, variance in zip(*both, strict=True):
        has_data = np.isfinite(variance) & (variance > 0)
        if not has_data.any():
            return None
        if not has_data.all():
            values, variance = values[has_data], variance[has_data]
        mean, weights = _centre(values, variance)
        second, kurtosis = moments_around(values - mean, variance)
        columns.append((mean, weights**2 @ (second + variance), second, kurtosis))
    names = ("mean", "mean_variance", "second", "kurtosis")
    return dict(zip(names, np.array(columns).T, strict=True))


def _centre(values: NDArray, variances: NDArray) -> tuple[float, NDArray]:
    """Weighted mean of values, and the weights, which sum to one."""
    spread, n = 0.0, len(values)
    for _ in range(50):
        weights = 1 / (spread + variances)
        total = float(weights.sum())
        mean = float(weights @ values) / total
        ratios = weights * (values - mean) ** 2
        excess = float(ratios.sum()) / max(n - 1, 1)
        if excess < 1 + 1e-3:
            break
        # Newton's method for 1 / excess = 1, as in `robust`
        spread += excess * (excess - 1) * (n - 1) / float(ratios @ weights)
    return mean, weights / total


def moments_around(deviations: NDArray, variances: NDArray) -> tuple[float, float]:
    """Second moment and kurtosis of a population, each raised by its standard error."""
    unit = variances.max()  # keeps fourth powers within range
    second, kurtosis = robust.gaussian_moments(
        deviations / np.sqrt(unit), variances / unit, margin=1.0
    )
    return float(unit * second), kurtosis


def half_widths(
    own: NDArray, away: NDArray, moments: dict[str, NDArray], level: float
) -> NDArray[np.float64]:
    """Half-widths ``s cva((1 - a)**2 mu_2 / s**2, kappa)`` of robust intervals, shape (n, d).

    Parameters
    ----------
    own : ndarray of shape (n, d)
        Variance ``a**2 s_i**2`` of the own estimate's part.
    away : ndarray of shape (n, d)
        Weight ``1 - a`` of the mean.
    moments : dict
        As of `moments_of`; ``mean_variance`` may have shape (n, d).
    level : float
    """
    bias = away**2 * moments["second"]
    # the floor keeps the ratio finite where the estimate is all mean
    variance = np.maximum(own + away**2 * moments["mean_variance"], 1e-6 * bias)
    ratio = np.divide(bias, variance, out=np.zeros_like(bias), where=variance > 0)
    critical = [
        robust.gaussian_critical_value(column, kurtosis, level)
        for column, kurtosis in zip(ratio.T, moments["kurtosis"], strict=True)
    ]
    return np.sqrt(variance) * np.stack(critical, axis=1)


@dataclass(frozen=True)
class LinearShrinkage:
    """Estimates shrunk along a line.

    Parameters
    ----------
    moments : dict
        Moments of the population, as of `moments_of`.
    likelihood : Gaussian
        Estimates of n clients. A variance of 0 returns the value, an infinite one the mean.
    """

    moments: dict[str, NDArray]
    likelihood: Gaussian

    def interval(self, level: float) -> tuple[NDArray, NDArray]:
        """Interval that covers a share `level` of clients from any population of these moments.

        Returns
        -------
        lower, upper : ndarray of shape (n, d)

        References
        ----------
        T. B. Armstrong, M. Kolesár and M. Plagborg-Møller (2022), Robust empirical Bayes confidence
        intervals, Econometrica 90, 2567-2602, section 3.

        Examples
        --------
        >>> exact = {"mean": 0.0, "mean_variance": 0.0, "second": 1.0, "kurtosis": 3.0}
        >>> exact = {name: np.array([x]) for name, x in exact.items()}
        >>> from ebfed.likelihoods import Gaussian
        >>> x = Gaussian(np.array([[2.0], [2.0]]), np.array([[1.0], [0.0]]))
        >>> lower, upper = LinearShrinkage(exact, x).interval(0.95)
        >>> lower.ravel().round(2), upper.ravel().round(2)
        (array([-0.41,  2.  ]), array([2.41, 2.  ]))
        """
        values, mean = self.likelihood.values, self.moments["mean"]
        variances = np.broadcast_to(self.likelihood.variances, values.shape)
        has_data = np.isfinite(variances)
        finite = np.where(has_data, variances, 0.0)
        away = np.where(has_data, finite / (finite + self.moments["second"]), 1.0)
        centre = np.where(has_data, values, mean)
        centre = centre - away * (centre - mean)
        half = half_widths((1 - away) ** 2 * finite, away, self.moments, level)
        return centre - half, centre + half
