"""Privacy: the noise that a guarantee needs, and the guarantee of a sequence of releases."""

from typing import TYPE_CHECKING

from ebfed.lazily import at_first_use

if TYPE_CHECKING:
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
    from ebfed.privacy.distributed_gaussian import distributed_multiplier, distributed_sigma
    from ebfed.privacy.one_run import OneRunAudit, audit_one_run, one_run_limit

__all__ = [
    "OneRunAudit",
    "PrivacyWarning",
    "accountant",
    "audit_one_run",
    "check_delta",
    "check_epsilon",
    "discrete_gaussian_delta",
    "discrete_gaussian_sigma",
    "distributed_multiplier",
    "distributed_sigma",
    "events",
    "gaussian_delta",
    "gaussian_sigma",
    "ledger",
    "one_run_limit",
    "paper_delta",
    "paper_sigma",
]

__getattr__ = at_first_use(__name__)
