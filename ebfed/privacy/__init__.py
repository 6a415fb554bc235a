"""Privacy: the noise that a guarantee needs, and the guarantee of a sequence of releases."""

from ebfed.privacy import accountant, events, ledger
from ebfed.privacy.calibration import (
    PrivacyWarning,
    check_delta,
    check_epsilon,
    gaussian_delta,
    gaussian_sigma,
    paper_delta,
    paper_sigma,
)
from ebfed.privacy.discrete_gaussian import discrete_gaussian_delta, discrete_gaussian_sigma

__all__ = [
    "PrivacyWarning",
    "accountant",
    "check_delta",
    "check_epsilon",
    "discrete_gaussian_delta",
    "discrete_gaussian_sigma",
    "events",
    "gaussian_delta",
    "gaussian_sigma",
    "ledger",
    "paper_delta",
    "paper_sigma",
]
