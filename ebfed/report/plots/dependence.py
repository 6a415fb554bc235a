"""Estimates and the population that they were shrunk to, against precision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ebfed.report.plots.axes import BLUE, GREY, VERMILLION, finish, open_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_dependence"]


def plot_dependence(result: Any, *, ax: Axes | None = None) -> Axes:
    """Draw estimates against standard errors, precise ones at the right, and their population.

    The band is the mean of the population, and two standard deviations on either side: level where
    one population is that of all. The dashed lines add the noise of an estimate. If precision says
    nothing of the parameter, estimates lie evenly about a level band.

    Parameters
    ----------
    result : Dependence
        As `ebfed.location.dependence` gives it.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import ebfed as eb
    >>> errors = np.linspace(0.5, 2, 20)
    >>> posterior = eb.posterior_from(np.sin(np.arange(20.0)) + errors, errors)
    >>> ax = plot_dependence(eb.location.dependence(posterior), ax=eb.report.new_axes()[0])
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('standard error', 'estimate')
    """
    ax = open_axes(ax)
    order = np.argsort(result.errors, kind="stable")
    errors = result.errors[order]
    mean, sd = (each[order] for each in result.band)
    ax.plot(result.errors, result.values, "o", color=GREY, ms=3, mew=0, alpha=0.6, label="given")
    ax.plot(result.errors, result.estimates, "o", color=BLUE, ms=3, mew=0, label="shrunk")
    ax.fill_between(
        errors, mean - 2 * sd, mean + 2 * sd, color=VERMILLION, alpha=0.2, lw=0, label="population"
    )
    ax.plot(errors, mean, color=VERMILLION, lw=1.2)
    both = 2 * np.hypot(sd, errors)
    for side, label in ((-1, "with noise"), (1, "_")):
        ax.plot(errors, mean + side * both, color=VERMILLION, lw=0.8, ls="--", label=label)
    finish(ax, xscale="log", xlabel="standard error", ylabel="estimate")
    ax.invert_xaxis()
    ax.legend(frameon=False, fontsize="small", ncols=4, loc="lower left", bbox_to_anchor=(0, 1))
    return ax
