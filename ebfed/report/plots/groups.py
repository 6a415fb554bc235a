"""What plots need of the groups of a fit of means or rates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.likelihoods import Likelihood
from ebfed.priors import Prior
from ebfed.report.plots.caterpillar import place_of
from ebfed.report.plots.prior_curves import central
from ebfed.report.view import FitView, LocationView, view_of

__all__ = ["Groups", "bar_edges", "check_rows", "even_steps", "few_outcomes", "read_groups"]

MOST_BARS = 40


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
    size : ndarray of shape (n,)
        Number of rows, sum of their weights, or exposure.
    local, estimate : ndarray of shape (n,)
        Local and personalised estimates of that column.
    covariates : ndarray of shape (n, k)
    """

    view: LocationView
    column: int
    labels: NDArray
    size: NDArray
    local: NDArray
    estimate: NDArray
    covariates: NDArray

    @cached_property
    def population(self) -> Prior:
        """Population of that column: at the covariates of each group, if there are any."""
        prior = self.view.prior
        if self.covariates.size:
            prior = prior.at(self.covariates)
        return prior.column(self.column)

    def likelihood(self, local: NDArray, size: NDArray) -> Likelihood:
        """Likelihood of that column for groups with other local estimates and sizes."""
        family, d = self.view.family, len(self.view.columns)
        summary = replace(family.blank(size, d), mean=np.repeat(local[:, None], d, axis=1))
        return family.likelihood(family.figures(summary)).column(self.column)


def read_groups(fit: Any, column: int | str | None) -> Groups:
    """Read the groups of a fit of means or rates.

    Raises
    ------
    ValueError
        If it is another fit, has no such column, or is a server's.
    """
    view = location_of(fit)
    place = place_of(column, view.columns)
    has_rows = view.has_rows
    summary = view.summary.take(has_rows)
    estimate = view.posterior().mean[has_rows, place]
    local, covariates = summary.mean[:, place], view.covariates[has_rows]
    return Groups(
        view, place, summary.ids, view.family.averaged_over(summary), local, estimate, covariates
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


def few_outcomes(groups: Groups) -> NDArray | None:
    """Return the own estimates that are possible, if all groups have the same few of them."""
    family, size = groups.view.family, groups.size
    if family.has_density or size.min() < size.max():
        return None
    possible = family.outcomes(size[0], groups.local.max())
    return possible if len(possible) <= MOST_BARS + 1 else None


def bar_edges(groups: Groups) -> NDArray:
    """Return the edges of a bar for each possible estimate, if these are few, else of even bars."""
    possible = few_outcomes(groups)
    if possible is not None:
        half = 0.5 / groups.size[0]
        return np.append(possible - half, possible[-1] + half)
    low, most = groups.view.family.support
    high = max(float(groups.local.max()), central(groups.population)[1]) or 1.0
    if 2 * high > most:  # else most of the axis would be empty
        high = most
    edges = np.linspace(low, high, int(np.clip(np.sqrt(len(groups.local)), 5, 40)) + 1)
    edges[1:-1] -= 1e-9 * high  # on no possible rate, which rounding could put on either side
    return edges
