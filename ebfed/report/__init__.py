"""Reports of fits: tidy frames, the printed summary, plots, and the view that they read."""

from typing import TYPE_CHECKING

from ebfed.lazily import at_first_use

if TYPE_CHECKING:
    from ebfed.report.diagnostics import Check as Check
    from ebfed.report.diagnostics import Diagnostics as Diagnostics
    from ebfed.report.page import write_report as write_report
    from ebfed.report.plots.areas import plot_areas as plot_areas
    from ebfed.report.plots.arrows import plot_arrows as plot_arrows
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
    from ebfed.report.plots.residuals import plot_residual_quantiles as plot_residual_quantiles
    from ebfed.report.plots.residuals import plot_residuals as plot_residuals
    from ebfed.report.plots.residuals import plot_scale_location as plot_scale_location
    from ebfed.report.plots.responsibilities import plot_responsibilities as plot_responsibilities
    from ebfed.report.plots.shrinkage import plot_shrinkage as plot_shrinkage
    from ebfed.report.plots.studies import plot_by_fold as plot_by_fold
    from ebfed.report.plots.studies import plot_curves as plot_curves
    from ebfed.report.plots.studies import plot_formulas as plot_formulas
    from ebfed.report.plots.two_groups import plot_two_groups as plot_two_groups
    from ebfed.report.summary import summary_table as summary_table
    from ebfed.report.tidying import glance as glance
    from ebfed.report.tidying import tidy as tidy
    from ebfed.report.view import ChannelView as ChannelView
    from ebfed.report.view import Components as Components
    from ebfed.report.view import FitView as FitView
    from ebfed.report.view import GroupView as GroupView
    from ebfed.report.view import LearnerView as LearnerView
    from ebfed.report.view import LocationView as LocationView
    from ebfed.report.view import PopulationView as PopulationView
    from ebfed.report.view import RegressionView as RegressionView
    from ebfed.report.view import view_of as view_of

__getattr__ = at_first_use(__name__)
