"""Plots of fits and studies: one file for each kind.

Functions draw on `ax` and return it; without one they open a figure of pyplot, which a notebook
shows. `new_axes` gives axes outside pyplot, for files: they need no display and no closing. Plots
can be read without colours. Those of fits take an estimator, a formula or its `view`.
"""

from typing import TYPE_CHECKING

from ebfed.lazily import at_first_use

if TYPE_CHECKING:
    from ebfed.report.plots.areas import plot_areas
    from ebfed.report.plots.arrows import plot_arrows
    from ebfed.report.plots.axes import (
        BLACK,
        BLUE,
        COLOURS,
        GREEN,
        GREY,
        LINES,
        MARKERS,
        ORANGE,
        PURPLE,
        SKY,
        VERMILLION,
        new_axes,
    )
    from ebfed.report.plots.calibration import plot_calibration
    from ebfed.report.plots.caterpillar import plot_caterpillar
    from ebfed.report.plots.coefficients import plot_coefficients
    from ebfed.report.plots.convergence import plot_convergence
    from ebfed.report.plots.counties import plot_counties
    from ebfed.report.plots.dependence import plot_dependence
    from ebfed.report.plots.diagnostics import plot_diagnostics
    from ebfed.report.plots.effect_quantiles import plot_effect_quantiles
    from ebfed.report.plots.forest import plot_forest
    from ebfed.report.plots.funnel import plot_funnel
    from ebfed.report.plots.influence import plot_influence
    from ebfed.report.plots.marginal import plot_marginal
    from ebfed.report.plots.population import plot_population
    from ebfed.report.plots.privacy import plot_privacy
    from ebfed.report.plots.ranks import plot_ranks
    from ebfed.report.plots.residual_quantiles import plot_residual_quantiles
    from ebfed.report.plots.residuals import plot_residuals
    from ebfed.report.plots.responsibilities import plot_responsibilities
    from ebfed.report.plots.scale_location import plot_scale_location
    from ebfed.report.plots.shrinkage import plot_shrinkage
    from ebfed.report.plots.states import plot_states
    from ebfed.report.plots.studies import plot_by_fold, plot_curves, plot_formulas
    from ebfed.report.plots.two_groups import plot_two_groups

__all__ = [
    "BLACK",
    "BLUE",
    "COLOURS",
    "GREEN",
    "GREY",
    "LINES",
    "MARKERS",
    "ORANGE",
    "PURPLE",
    "SKY",
    "VERMILLION",
    "new_axes",
    "plot_areas",
    "plot_arrows",
    "plot_by_fold",
    "plot_calibration",
    "plot_caterpillar",
    "plot_coefficients",
    "plot_convergence",
    "plot_counties",
    "plot_curves",
    "plot_dependence",
    "plot_diagnostics",
    "plot_effect_quantiles",
    "plot_forest",
    "plot_formulas",
    "plot_funnel",
    "plot_influence",
    "plot_marginal",
    "plot_population",
    "plot_privacy",
    "plot_ranks",
    "plot_residual_quantiles",
    "plot_residuals",
    "plot_responsibilities",
    "plot_scale_location",
    "plot_shrinkage",
    "plot_states",
    "plot_two_groups",
]

__getattr__ = at_first_use(__name__)
