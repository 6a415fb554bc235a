"""Reports that are epsilon-private by themselves."""

from __future__ import annotations

from typing import Any

from ebfed.channels.report import Report
from ebfed.privacy import events
from ebfed.privacy.calibration import check_epsilon

__all__ = ["PureReport"]


class PureReport(Report):
    """A report whose probability moves by at most ``e**epsilon`` with the client's data."""

    epsilon: float

    def _epsilon(self) -> float:
        return check_epsilon(self.epsilon)

    def guarantee(self, n_features: int = 1) -> tuple[float, float]:
        """Return epsilon, and delta = 0."""
        return self._epsilon(), 0.0

    def event(self, n_features: int = 1) -> Any:
        """Return one report as an event of dp-accounting."""
        return events.pure(self._epsilon())
