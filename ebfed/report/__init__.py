"""Results for reading: tidy frames, the printed summary, pictures."""

from ebfed.report.plots import (
    new_axes,
    plot_by_fold,
    plot_curves,
    plot_formulas,
    plot_population,
    plot_shrinkage,
)
from ebfed.report.summary import learner_table, regression_table, summary_table
from ebfed.report.tidy import (
    glance,
    glance_learner,
    glance_regression,
    tidy,
    tidy_learner,
    tidy_regression,
)

__all__ = [
    "glance",
    "glance_learner",
    "glance_regression",
    "learner_table",
    "new_axes",
    "plot_by_fold",
    "plot_curves",
    "plot_formulas",
    "plot_population",
    "plot_shrinkage",
    "regression_table",
    "summary_table",
    "tidy",
    "tidy_learner",
    "tidy_regression",
]
