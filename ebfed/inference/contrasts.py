"""Tests of coefficients and of terms, as columns of a frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ebfed.inference.degrees_of_freedom import Inference

__all__ = ["contrast_tests", "p_values", "term_tests"]


def p_values(statistic: NDArray, df: NDArray) -> NDArray:
    """Return two-sided p-values of t statistics; those of z where df is infinite."""
    from scipy.special import ndtr
    from scipy.stats import t

    size = np.abs(statistic)
    known = np.isfinite(df)
    return np.where(known, 2 * t.sf(size, np.where(known, df, 1.0)), 2 * ndtr(-size))


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
