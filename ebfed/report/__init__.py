"""Results for reading: tidy frames, the printed summary, pictures."""

from ebfed.report.summary import summary_table
from ebfed.report.tidy import glance, tidy

__all__ = ["glance", "summary_table", "tidy"]
