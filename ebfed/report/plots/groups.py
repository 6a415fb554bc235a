"""What pictures need of the groups of a fit of means or rates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.report.plots.caterpillar import place_of
from ebfed.tables.clients import Summary

__all__ = ["Groups", "check_location", "check_rows", "even_steps", "read_groups"]


@dataclass(frozen=True)
class Groups:
    """Groups that have rows.

    Attributes
    ----------
    column : int
    labels : ndarray of shape (n,)
    n : int64 ndarray of shape (n,)
        Number of rows.
    local, estimate : ndarray of shape (n,)
        Local and personalised estimates of that column.
    summary : Summary
        Of these groups, all columns.
    covariates : ndarray of shape (n, k)
    """

    column: int
    labels: NDArray
    n: NDArray[np.int64]
    local: NDArray
    estimate: NDArray
    summary: Summary
    covariates: NDArray


def read_groups(estimator: Any, column: int | str | None) -> Groups:
    """Read the groups of a fit of means or rates.

    Raises
    ------
    ValueError
        If it is another fit, has no such column, or is a server's, to which groups told nothing.
    """
    check_location(estimator)
    summary = estimator.summaries_
    names = getattr(estimator, "feature_names_in_", None)
    numbered = [f"x{j}" for j in range(estimator.n_features_in_)]
    place = place_of(column, numbered if names is None else list(names))
    with_data = summary.n > 0
    kept = summary.take(with_data)
    estimate = estimator.posterior().mean[with_data, place]
    covariates = estimator._memory["covariates"][with_data]
    return Groups(place, kept.ids, kept.n, kept.mean[:, place], estimate, kept, covariates)


def check_location(estimator: Any) -> None:
    """Refuse a fit that has no means or rates of groups.

    Raises
    ------
    ValueError
        If it is another fit, or a server's.
    """
    if not (hasattr(estimator, "summaries_") and hasattr(estimator, "prior_")):
        kind = type(getattr(estimator, "estimator_", estimator)).__name__
        raise ValueError(
            f"{kind} is no fit of means or rates of groups; GaussianEB, BernoulliEB and MixtureEB "
            "are. Of regressions, plot_coefficients and plot_caterpillar draw the groups."
        )
    check_rows(estimator)


def check_rows(estimator: Any) -> None:
    """Refuse the fit of a server.

    Raises
    ------
    ValueError
        If the clients kept their rows.
    """
    if getattr(estimator, "_is_server", False):
        raise ValueError("the clients kept their rows and their estimates; draw this at a client.")


def even_steps(n: int, most: int) -> NDArray[np.int64]:
    """Places of at most so many of n groups, the first and the last among them."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(np.int64))
