"""Reports that are epsilon-private by themselves."""

from __future__ import annotations

from typing import Any

from ebfed.channels.report import Report
from ebfed.likelihoods.reported_categories import CERTAIN
from ebfed.privacy import events
from ebfed.privacy.calibration import check_epsilon

__all__ = ["PureReport", "check_report_epsilon"]

# Beyond these, differences of probabilities and squares of noise lose their digits.
LEAST, MOST = 1e-6, 1e9


class PureReport(Report):
    """A report whose probability moves by at most ``e**epsilon`` with the client's data."""

    def __init__(self, epsilon: float, range: Any = None):
        self.epsilon = epsilon
        self.range = range

    def _epsilon(self) -> float:
        return check_report_epsilon(self.epsilon)

    def _odds(self) -> float:
        """Return the epsilon by which reports are drawn: no larger than makes a difference."""
        return min(self._epsilon(), CERTAIN)

    def guarantee(self, n_features: int = 1) -> tuple[float, float]:
        """Return epsilon, and delta = 0."""
        return self._epsilon(), 0.0

    def event(self, n_features: int = 1) -> Any:
        return events.pure(self._epsilon())


def check_report_epsilon(epsilon: Any) -> float:
    """Return the epsilon of one report, within what can be drawn and decoded.

    Raises
    ------
    ValueError

    Examples
    --------
    >>> check_report_epsilon(1)
    1.0
    """
    if not LEAST <= check_epsilon(epsilon) <= MOST:
        raise ValueError(
            f"epsilon of a report must lie between {LEAST:g} and {MOST:g}; got {epsilon!r}."
        )
    return float(epsilon)
