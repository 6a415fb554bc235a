"""Results for reading: tidy frames, the printed summary, pictures."""

from ebfed.report.plots import (
    new_axes,
    plot_by_fold,
    plot_curves,
    plot_formulas,
    plot_population,
    plot_shrinkage,
)
from ebfed.report.summary import summary_table
from ebfed.report.tidy import glance, tidy

__all__ = [
    "glance",
    "new_axes",
    "plot_by_fold",
    "plot_curves",
    "plot_formulas",
    "plot_population",
    "plot_shrinkage",
    "summary_table",
    "tidy",
]
