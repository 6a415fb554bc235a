"""What is not known of the spread of a population that is fitted to few groups.

Estimates of n groups that differ with variance v, each with sampling variance d, have sums of
squares that are ``v + d`` times a chi-squared number of n - k degrees of freedom, where k
coefficients of the mean are fitted to them. With T the likeliest ``v + d``, the log-likelihood of
``u = log(v + d)`` is ``-n (u + T e^-u) / 2``, and integrated over the k coefficients
``-((n - k) u + n T e^-u) / 2``. A flat density of u where v is positive is Jeffreys' prior (Box and
Tiao 1973, section 5.2). The scale is one in which the likelihood is nearly normal, and which is as
well defined where v is estimated as zero.

Here d is that for which the second derivative at the estimate is that of the log-likelihood of the
fit. At an estimate of zero the likelihood has a slope in v instead, which says T; and d is n over
the information on the mean of that coefficient.

References
----------
Box, Tiao (1973), Bayesian Inference in Statistical Analysis; Morris (1983), Parametric empirical
Bayes inference, J. Am. Stat. Assoc. 78.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ebfed.inference.trust_region import uncertainty
from ebfed.regression.numerics.quadrature_population import QuadraturePopulation

__all__ = ["MANY", "excess_noise", "normal_figures", "spread_nodes", "variance_nodes"]

# Of more groups, the doubt adds less than a thousandth to standard deviations.
MANY = 2000
# A variance is zero below this share of the sampling variance; and the least share that the
# likeliest total variance is of it.
ZERO, LEAST = 1e-3, 0.05
# Points at which a density is computed, and its width on either side.
POINTS, WIDTH = 800, 6.0


def variance_nodes(
    noise: float, total: float, n: float, lost: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Three values of a variance, and their weights: Gauss quadrature over ``log(v + d)``.

    Parameters
    ----------
    noise : float
        d, the sampling variance of a group's own coefficient.
    total : float
        T, the likeliest sum of the variance and the noise.
    n : float
        Number of groups that the estimate is worth.
    lost : float
        k, the number of coefficients of the mean that are fitted to them.

    Examples
    --------
    Of eight groups a variance of 0.5 may be much larger; of 800 it is known.

    >>> variance_nodes(0.2, 0.7, 8, 1)[0].round(2)
    array([0.27, 0.96, 3.98])
    >>> variance_nodes(0.2, 0.7, 800, 1)[0].round(2)
    array([0.45, 0.5 , 0.57])
    """
    left, middle = max(n - lost, 1.0), np.log(total)
    low = max(middle - WIDTH, np.log(noise) if noise > 0 else -np.inf)
    high = max(low, middle) + WIDTH * min(1.0, 3 / np.sqrt(left))
    low = max(low, middle - WIDTH * min(1.0, 3 / np.sqrt(left)))
    u = np.linspace(low, high, POINTS)
    log_density = -(left * u + n * total * np.exp(-u)) / 2
    weights = np.exp(log_density - log_density.max())
    nodes, weights = _gauss(u, weights / weights.sum())
    return np.maximum(np.exp(nodes) - noise, 0.0), weights


def excess_noise(degrees: int) -> float:
    """What the average noise variance that rows allow is above the fitted one, as its share.

    Given all other variances it is the fitted one times the degrees of freedom, rows less
    coefficients, over a chi-squared number of so many.

    Examples
    --------
    >>> excess_noise(22)
    0.1
    """
    return 2 / max(degrees - 2, 1)


def _gauss(x: NDArray, weights: NDArray, size: int = 3) -> tuple[NDArray, NDArray]:
    """Nodes and weights of the Gauss quadrature of a distribution (Golub and Welsch, 1969)."""
    centre = weights @ x
    scale = np.sqrt(weights @ (x - centre) ** 2)
    z = (x - centre) / scale
    inside, beside = np.zeros(size), np.zeros(size)
    before, now = np.zeros_like(z), np.ones_like(z)
    for j in range(size):
        following = z * now - (beside[j - 1] if j else 0.0) * before
        inside[j] = (weights * now) @ following
        following = following - inside[j] * now
        beside[j] = np.sqrt(weights @ following**2)
        before, now = now, following / beside[j]
    jacobi = np.diag(inside) + np.diag(beside[:-1], 1) + np.diag(beside[:-1], -1)
    values, vectors = np.linalg.eigh(jacobi)
    return centre + scale * values, vectors[0] ** 2


def spread_nodes(
    fitted: QuadraturePopulation,
    curvature: NDArray,
    information: NDArray,
    groups: Sequence[int] | NDArray,
    between: int,
    intercept: bool,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
    """Populations near a fitted one, and their weights.

    The weights of those along one variance sum to 1; along a covariance, the fitted population has
    the rest. The coefficients of the mean move
    with the parameter, as the second derivatives say.

    Parameters
    ----------
    fitted : QuadraturePopulation
    curvature : ndarray of shape (d, d)
        Second derivatives of the log-likelihood in the parameters.
    information : ndarray of shape (q,)
        Minus the second derivatives in the mean of the coefficients that differ.
    groups : sequence of int
        Number of groups of each level, from the top.
    between : int
        Number of columns that differ between groups alone, and have one coefficient for all.
    intercept : bool
        Whether the first coefficient is the intercept.

    Returns
    -------
    weights : ndarray of shape (k,)
    points : ndarray of shape (k, d)
    parameters : int64 ndarray of shape (k,)
        Parameter of the root along which each is.
    ratios : ndarray of shape (k,)
        Variance of groups' own coefficients, that of their rows included, over that as fitted.
    """
    known, turn = uncertainty(curvature), fitted.turn
    first, n_entries = fitted.ways.shape[1], turn.shape[1]
    spread = slice(first, first + n_entries)
    slopes = known[:first, spread] @ np.linalg.pinv(known[spread, spread])
    rows, columns = fitted.entries
    level = np.repeat(np.arange(len(fitted.sizes)), fitted.sizes)[rows]
    weights: list[float] = []
    points: list[NDArray] = []
    parameters: list[int] = []
    ratios: list[float] = []
    for j in range(n_entries):
        own, value, variance = turn[:, j] != 0, fitted.point[first + j], known[first + j, first + j]
        inside = rows[own]
        n = int(groups[level[own][0]]) * len(inside)
        if not variance > 0 or n >= MANY:
            continue
        if (inside != columns[own]).any():
            values = value + np.sqrt(3 * variance) * np.array([-1.0, 1.0])
            some, ratio = np.full(2, 1 / 6), np.ones(2)
        else:
            of_intercept = intercept and bool((fitted.places[inside] == 0).any())
            said = information[inside].sum()
            above = _variances_above(fitted, fitted.places[inside], int(level[own][0]))
            for size, each in zip(groups, above, strict=False):
                said = said / max(1 - each * said / size, LEAST)
            figures = normal_figures(value**2, variance, n, n / said)
            squares, some = variance_nodes(*figures, len(inside) + between * of_intercept)
            values = np.copysign(np.sqrt(squares), value)
            ratio = np.maximum(1 + (squares - value**2) * said / n, 0.0)
        ratios += ratio.tolist()
        for each, weight in zip(values, some, strict=True):
            point = fitted.point.copy()
            point[first + j] = each
            point[:first] += slopes[:, j] * (each - value)
            points.append(point)
            weights.append(float(weight))
            parameters.append(j)
    whole = np.reshape(points, (len(points), len(fitted.point)))
    return np.array(weights), whole, np.array(parameters, np.int64), np.array(ratios)


def _variances_above(fitted: QuadraturePopulation, places: NDArray, level: int) -> list[float]:
    """Average variance of these coefficients in each of the levels above one."""
    ends = np.cumsum([0, *fitted.sizes])
    square = np.diag(fitted.root @ fitted.root.T)
    found = []
    for first, last in itertools.pairwise(ends[: level + 1]):
        same = np.isin(fitted.places[first:last], places)
        found.append(float(square[first:last][same].sum()) / len(places))
    return found


def normal_figures(
    square: float, variance: float, n: int, noise: float
) -> tuple[float, float, float]:
    """Noise, likeliest total, and number of groups, of a variance.

    Parameters
    ----------
    square : float
        The estimate.
    variance : float
        Sampling variance of its root, or at zero minus the inverse of the second derivative in it.
    n : int
        Number of groups.
    noise : float
        Sampling variance of a group's own coefficient if the estimate is zero.
    """
    if square < ZERO * noise:
        return noise, noise * max(1 - noise / (n * variance), LEAST), n
    error = 4 * square * variance
    noise = max(np.sqrt(n * error / 2) - square, 0.0)
    return noise, square + noise, 2 * (square + noise) ** 2 / error
