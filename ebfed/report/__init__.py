"""Reports of fits: tidy frames, the printed summary, plots, and the view that they read."""

from typing import TYPE_CHECKING

from ebfed.lazily import at_first_use

if TYPE_CHECKING:
    from ebfed.report.diagnostics import Check, Diagnostics
    from ebfed.report.page import write_report
    from ebfed.report.plots import (
        new_axes,
        plot_areas,
        plot_arrows,
        plot_by_fold,
        plot_calibration,
        plot_caterpillar,
        plot_coefficients,
        plot_convergence,
        plot_counties,
        plot_curves,
        plot_dependence,
        plot_diagnostics,
        plot_effect_quantiles,
        plot_forest,
        plot_formulas,
        plot_funnel,
        plot_influence,
        plot_marginal,
        plot_population,
        plot_privacy,
        plot_ranks,
        plot_residual_quantiles,
        plot_residuals,
        plot_responsibilities,
        plot_scale_location,
        plot_shrinkage,
        plot_states,
        plot_two_groups,
    )
    from ebfed.report.summary import summary_table
    from ebfed.report.tidying import glance, tidy
    from ebfed.report.view import (
        ChannelView,
        Components,
        FitView,
        GroupView,
        LearnerView,
        LocationView,
        RegressionView,
        view_of,
    )

__all__ = [
    "ChannelView",
    "Check",
    "Components",
    "Diagnostics",
    "FitView",
    "GroupView",
    "LearnerView",
    "LocationView",
    "RegressionView",
    "glance",
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
    "summary_table",
    "tidy",
    "view_of",
    "write_report",
]

__getattr__ = at_first_use(__name__)
