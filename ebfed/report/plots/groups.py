"""What plots need of the groups of a fit of means or rates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.report.plots.caterpillar import place_of
from ebfed.report.view import FitView, LocationView, view_of
from ebfed.tables.clients import Summary

__all__ = ["Groups", "check_rows", "even_steps", "location_of", "read_groups"]


@dataclass(frozen=True)
class Groups:
    """Groups that have rows.

    Attributes
    ----------
    view : LocationView
        The fit.
    column : int
        Place of the column.
    labels : ndarray of shape (n,)
    n : int64 ndarray of shape (n,)
        Number of rows.
    local, estimate : ndarray of shape (n,)
        Local and personalised estimates of that column.
    summary : Summary
        Summary of these groups, all columns.
    covariates : ndarray of shape (n, k)
    """

    view: LocationView
    column: int
    labels: NDArray
    n: NDArray[np.int64]
    local: NDArray
    estimate: NDArray
    summary: Summary
    covariates: NDArray


def read_groups(fit: Any, column: int | str | None) -> Groups:
    """Read the groups of a fit of means or rates.

    Raises
    ------
    ValueError
        If it is another fit, has no such column, or is a server's, which has no rows.
    """
    view = location_of(fit)
    place = place_of(column, view.columns)
    has_rows = view.has_rows
    summary = view.summary.take(has_rows)
    estimate = view.posterior().mean[has_rows, place]
    covariates = view.covariates[has_rows]
    return Groups(
        view, place, summary.ids, summary.n, summary.mean[:, place], estimate, summary, covariates
    )


def location_of(fit: Any) -> LocationView:
    """Return the view of a fit of means or rates of groups.

    Raises
    ------
    ValueError
        If it is another fit, or a server's.
    """
    view = view_of(fit)
    if not isinstance(view, LocationView):
        raise ValueError(
            f"{view.title} is no fit of means or rates of groups; GaussianEB, BernoulliEB and "
            "MixtureEB are. Of regressions, plot_coefficients and plot_caterpillar draw the groups."
        )
    check_rows(view)
    return view


def check_rows(view: FitView) -> None:
    """Refuse the fit of a server.

    Raises
    ------
    ValueError
        If the rows are with the clients.
    """
    if view.is_server:
        raise ValueError("the clients kept their rows and their estimates; draw this at a client.")


def even_steps(n: int, most: int) -> NDArray[np.int64]:
    """Places of at most so many of n groups, the first and the last among them."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(np.int64))
