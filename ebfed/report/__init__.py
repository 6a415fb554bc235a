"""Reports of fits: tidy frames, the printed summary, plots, and the view that they read."""

from typing import TYPE_CHECKING

from ebfed.lazily import at_first_use
from ebfed.report import plots

if TYPE_CHECKING:
    from ebfed.report.diagnostics import Check, Diagnostics
    from ebfed.report.page import write_report
    from ebfed.report.plots import *  # noqa: F403
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
    "summary_table",
    "tidy",
    "view_of",
    "write_report",
    *(name for name in plots.__all__ if name.islower()),
]

__getattr__ = at_first_use(__name__)
