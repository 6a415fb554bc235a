"""Plots of fits and studies: one file for each kind.

Functions draw on `ax` and return it; without one they open a figure of pyplot, which a notebook
shows. `new_axes` gives axes outside pyplot, for files: they need no display and no closing. Plots
can be read without colours. Those of fits take an estimator, a formula or its `view`.
"""

from typing import TYPE_CHECKING

from ebfed.lazily import at_first_use

if TYPE_CHECKING:
    from ebfed.report.plots.areas import plot_areas as plot_areas
    from ebfed.report.plots.arrows import plot_arrows as plot_arrows
    from ebfed.report.plots.axes import BLACK as BLACK
    from ebfed.report.plots.axes import BLUE as BLUE
    from ebfed.report.plots.axes import COLOURS as COLOURS
    from ebfed.report.plots.axes import GREEN as GREEN
    from ebfed.report.plots.axes import GREY as GREY
    from ebfed.report.plots.axes import LINES as LINES
    from ebfed.report.plots.axes import MARKERS as MARKERS
    from ebfed.report.plots.axes import ORANGE as ORANGE
    from ebfed.report.plots.axes import PURPLE as PURPLE
    from ebfed.report.plots.axes import SKY as SKY
    from ebfed.report.plots.axes import VERMILLION as VERMILLION
    from ebfed.report.plots.axes import new_axes as new_axes
    from ebfed.report.plots.calibration import plot_calibration as plot_calibration
    from ebfed.report.plots.caterpillar import plot_caterpillar as plot_caterpillar
    from ebfed.report.plots.coefficients import plot_coefficients as plot_coefficients
    from ebfed.report.plots.convergence import plot_convergence as plot_convergence
    from ebfed.report.plots.counties import plot_counties as plot_counties
    from ebfed.report.plots.counties import plot_states as plot_states
    from ebfed.report.plots.dependence import plot_dependence as plot_dependence
    from ebfed.report.plots.forest import plot_forest as plot_forest
    from ebfed.report.plots.forest import plot_funnel as plot_funnel
    from ebfed.report.plots.influence import plot_influence as plot_influence
    from ebfed.report.plots.marginal import plot_marginal as plot_marginal
    from ebfed.report.plots.population import plot_population as plot_population
    from ebfed.report.plots.privacy import plot_privacy as plot_privacy
    from ebfed.report.plots.ranks import plot_ranks as plot_ranks
    from ebfed.report.plots.residuals import plot_diagnostics as plot_diagnostics
    from ebfed.report.plots.residuals import plot_effect_quantiles as plot_effect_quantiles
    from ebfed.report.plots.residuals import (
        plot_residual_quantiles as plot_residual_quantiles,
    )
    from ebfed.report.plots.residuals import plot_residuals as plot_residuals
    from ebfed.report.plots.residuals import plot_scale_location as plot_scale_location
    from ebfed.report.plots.responsibilities import plot_responsibilities as plot_responsibilities
    from ebfed.report.plots.shrinkage import plot_shrinkage as plot_shrinkage
    from ebfed.report.plots.studies import plot_by_fold as plot_by_fold
    from ebfed.report.plots.studies import plot_curves as plot_curves
    from ebfed.report.plots.studies import plot_formulas as plot_formulas
    from ebfed.report.plots.two_groups import plot_two_groups as plot_two_groups

__getattr__ = at_first_use(__name__)
