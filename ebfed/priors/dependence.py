"""Tests of whether mean and spread of a population depend on precision, or on covariates."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

from ebfed.likelihoods import Gaussian

__all__ = [
    "FEWEST_TO_TEST",
    "SURELY",
    "ScoreTest",
    "dependence_tests",
    "estimates_of",
    "note_of_dependence",
]

# p-value below which a fit notes dependence on precision.
SURELY = 1e-3
# Least number of messages that are tested.
FEWEST_TO_TEST = 10


class ScoreTest(NamedTuple):
    """A chi-squared statistic, its degrees of freedom and its p-value."""

    statistic: float
    df: int
    p_value: float


def dependence_tests(
    values: NDArray, variances: NDArray, covariates: NDArray, spread: float
) -> tuple[ScoreTest, ScoreTest]:
    r"""Test whether mean and spread of a population depend on covariates.

    With :math:`v_i = t + s_i^2` and an estimate t of a constant variance, the scores are

    .. math:: \sum_i \tilde w_i (x_i - m) / v_i, \qquad
              \sum_i \tilde w_i \{(x_i - w_i'b)^2 - s_i^2 - t\} / v_i^2,

    where the covariates are less their averages weighted by :math:`1 / v_i` and
    :math:`1 / v_i^2`. The second allows for a mean that depends on them. Variances of scores are
    sums of their squares, so that the shape of the population does not matter.

    Parameters
    ----------
    values, variances : ndarray of shape (n,)
        Estimates and the variances of their errors, finite and not all zero.
    covariates : ndarray of shape (n, k)
    spread : float
        Variance t.

    Returns
    -------
    mean, spread : ScoreTest

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> error = np.exp(rng.normal(size=500) / 2)
    >>> x = np.log(error) + rng.standard_normal(500) * (1 + error)
    >>> mean, spread = dependence_tests(x, error**2, np.log(error)[:, None], 1.0)
    >>> mean.df, mean.p_value < 0.001, spread.p_value < 0.1
    (1, True, True)
    """
    inverse = 1 / (spread + variances)
    of_mean, away = (_centred(each, inverse) for each in (covariates, values))
    scores = of_mean * (away * inverse)[:, None]
    slopes = np.linalg.lstsq((of_mean.T * inverse) @ of_mean, scores.sum(axis=0))[0]
    squares = (away - of_mean @ slopes) ** 2 - variances
    # the spread around that mean is less
    spread = max(float(np.average(squares, weights=inverse**2)), 0.0)
    weights = (spread + np.maximum(variances, 1e-6 * np.median(variances))) ** -2.0
    scores_of_spread = (
        _centred(covariates, weights) * (weights * _centred(squares, weights))[:, None]
    )
    return _test(scores), _test(scores_of_spread)


def note_of_dependence(
    values: NDArray, variances: NDArray, noise: float, spread: float
) -> list[str]:
    """Return a note where mean or spread surely depend on the precision of estimates.

    Parameters
    ----------
    values, variances : ndarray of shape (n,)
    noise : float
        Number that multiplies all variances.
    spread : float
        Variance of the population.
    """
    seen = np.isfinite(variances) & (variances > 0) & (noise > 0)
    if not seen.all():
        values, variances = values[seen], variances[seen]
    variances = noise * variances
    if len(values) < FEWEST_TO_TEST or variances.max() < 1.0001 * variances.min():
        return []
    tests = dependence_tests(values, variances, 0.5 * np.log(variances)[:, None], spread)
    both = zip(("mean", "spread"), tests, strict=True)
    sure = [(name, test.p_value) for name, test in both if test.p_value < SURELY]
    if not sure:
        return []
    which = " and ".join(name for name, _ in sure)
    return [
        f"The {which} of the population depend{'s' * (len(sure) == 1)} on the precision of the "
        f"estimates (p = {max(p for _, p in sure):.1g}), and here one population is that of all: "
        "see location.dependence, and mean= and spread= of posterior_from."
    ]


def estimates_of(likelihood: object) -> tuple[NDArray, NDArray] | None:
    """Return estimates of one column and their variances, shape (n,); None without known ones."""
    if type(likelihood) is not Gaussian or likelihood.n_features > 1:
        return None
    return likelihood.values[:, 0], likelihood.variances[:, 0]


def _centred(values: NDArray, weights: NDArray) -> NDArray:
    return values - weights @ values / weights.sum()


def _test(scores: NDArray) -> ScoreTest:
    """Test that scores of shape (n, k) have mean zero."""
    scores = scores / np.maximum(np.abs(scores).max(axis=0), 1e-300)
    total, k = scores.sum(axis=0), scores.shape[1]
    statistic = float(total @ np.linalg.lstsq(scores.T @ scores, total)[0])
    return ScoreTest(statistic, k, float(chdtrc(k, statistic)))
