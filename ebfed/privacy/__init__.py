"""Privacy: the noise that a guarantee needs, and the guarantee of a sequence of releases."""

from typing import TYPE_CHECKING

from ebfed.lazily import at_first_use

if TYPE_CHECKING:
    from ebfed.privacy import accountant as accountant
    from ebfed.privacy import events as events
    from ebfed.privacy import ledger as ledger
    from ebfed.privacy.calibration import PrivacyWarning as PrivacyWarning
    from ebfed.privacy.calibration import check_delta as check_delta
    from ebfed.privacy.calibration import check_epsilon as check_epsilon
    from ebfed.privacy.calibration import gaussian_delta as gaussian_delta
    from ebfed.privacy.calibration import gaussian_sigma as gaussian_sigma
    from ebfed.privacy.calibration import paper_delta as paper_delta
    from ebfed.privacy.calibration import paper_sigma as paper_sigma
    from ebfed.privacy.discrete_gaussian import discrete_gaussian_delta as discrete_gaussian_delta
    from ebfed.privacy.discrete_gaussian import discrete_gaussian_sigma as discrete_gaussian_sigma
    from ebfed.privacy.discrete_gaussian import distributed_multiplier as distributed_multiplier
    from ebfed.privacy.discrete_gaussian import distributed_sigma as distributed_sigma
    from ebfed.privacy.one_run import OneRunAudit as OneRunAudit
    from ebfed.privacy.one_run import audit_one_run as audit_one_run
    from ebfed.privacy.one_run import one_run_limit as one_run_limit

__getattr__ = at_first_use(__name__)
