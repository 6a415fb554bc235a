"""Tests of coefficients and of terms, as columns of a frame, alone and looked at together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ebfed.inference.degrees_of_freedom import Inference
from ebfed.report.tidying import p_values

__all__ = [
    "Adjustment",
    "adjusted_p_values",
    "check_adjustment",
    "contrast_tests",
    "critical_values",
    "term_tests",
]


def contrast_tests(inference: Inference, contrasts: NDArray) -> dict[str, NDArray]:
    """Test each of some contrasts of the mean, by Student's t.

    Parameters
    ----------
    inference : Inference
    contrasts : ndarray of shape (n, p)

    Returns
    -------
    dict of ndarrays of shape (n,)
        ``estimate``, ``std.error``, ``df``, ``statistic``, ``p.value``; NaN, with a warning, where
        rows do not identify a contrast.
    """
    if inference.estimable is not None:
        known = inference.estimable.masked(contrasts, "contrasts")
        lost = np.isnan(known).any(axis=1)
    else:
        lost = np.zeros(len(contrasts), bool)
    estimate, df, error = (
        np.where(lost, np.nan, each)
        for each in (
            contrasts @ inference.mean,
            inference.df(contrasts),
            inference.std_error(contrasts),
        )
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        statistic = estimate / error
    return {
        "estimate": estimate,
        "std.error": error,
        "df": df,
        "statistic": statistic,
        "p.value": p_values(statistic, df),
    }


def term_tests(
    inference: Inference, terms: Mapping[str, NDArray] | Mapping[str, Sequence]
) -> dict[str, NDArray]:
    """Test that all contrasts of a term are zero, by F.

    Parameters
    ----------
    inference : Inference
    terms : mapping of str to ndarray of shape (n, p)

    Returns
    -------
    dict of ndarrays
        ``term``, ``num.df``, ``den.df``, ``statistic``, ``p.value``.
    """
    found = [inference.joint(np.asarray(contrasts)) for contrasts in terms.values()]
    return {
        "term": np.array(list(terms), object),
        "num.df": np.array([each.num_df for each in found], np.int64),
        "den.df": np.array([each.den_df for each in found]),
        "statistic": np.array([each.statistic for each in found]),
        "p.value": np.array([each.p_value for each in found]),
    }


Adjustment = Literal["none", "bonferroni", "holm", "tukey"]


def check_adjustment(adjust: str) -> None:
    """Raise a ValueError if there is no such adjustment."""
    if adjust not in get_args(Adjustment):
        raise ValueError(
            f"adjust must be {', '.join(map(repr, get_args(Adjustment)))}; got {adjust!r}."
        )


def adjusted_p_values(
    statistic: NDArray, df: NDArray, p_value: NDArray, adjust: Adjustment, n_means: int
) -> NDArray[np.float64]:
    """Return p-values so adjusted that any is small by chance with the probability it states.

    Parameters
    ----------
    statistic, df, p_value : ndarray of shape (n,)
        Student's t, its degrees of freedom, and the p-value of each contrast alone.
    adjust : {"none", "bonferroni", "holm", "tukey"}
        Bonferroni's: times n. Holm's (1979): the smallest times n, the next times n - 1, and so on.
        Tukey's (1949): of all differences between `n_means` means, by the studentised range.
    n_means : int

    Examples
    --------
    >>> p = np.array([0.01, 0.2, 0.03])
    >>> adjusted_p_values(np.ones(3), np.full(3, 9.0), p, "holm", 3)
    array([0.03, 0.2 , 0.06])
    """
    known = np.isfinite(p_value)
    n, found = int(known.sum()), p_value.astype(float).copy()
    if adjust == "tukey":
        from scipy.stats import studentized_range

        t = np.abs(statistic[known]) * np.sqrt(2)
        found[known] = studentized_range.sf(t, n_means, df[known])
    elif adjust == "bonferroni":
        found[known] = np.minimum(p_value[known] * n, 1.0)
    elif adjust == "holm":
        order = np.argsort(p_value[known], kind="stable")
        grown = np.maximum.accumulate(p_value[known][order] * np.arange(n, 0, -1))
        found[np.flatnonzero(known)[order]] = np.minimum(grown, 1.0)
    return found


def critical_values(
    df: NDArray, level: float, adjust: Adjustment, n_means: int
) -> NDArray[np.float64]:
    """Return how many standard errors an interval goes to each side.

    Intervals of Holm's adjustment are Bonferroni's, as it has none of its own.

    Parameters
    ----------
    df : ndarray of shape (n,)
    level : float
        Probability that all intervals hold their contrasts.
    adjust : {"none", "bonferroni", "holm", "tukey"}
    n_means : int
    """
    from scipy.special import ndtri
    from scipy.stats import studentized_range, t

    known = np.isfinite(df)
    if adjust == "tukey":
        found = np.full(len(df), np.nan)
        counted = ~np.isnan(df)
        found[counted] = studentized_range.ppf(level, n_means, df[counted]) / np.sqrt(2)
        return found
    tail = (1 - level) / 2 / (1 if adjust == "none" else max(len(df), 1))
    found = np.where(known, t.isf(tail, np.where(known, df, 1.0)), -ndtri(tail))
    return np.where(np.isnan(df), np.nan, found)
