"""What data do not identify: the warning, and sentences that several populations share."""

__all__ = ["NO_SPREAD", "ONE_GROUP", "ONE_ROW", "UNKNOWN_NOISE", "IdentificationWarning"]

UNKNOWN_NOISE = (
    "No group has two rows: noise and spread of the population are not identified apart. The noise "
    "is taken to be zero, so estimates are the local ones. To shrink them, give `variances`, or "
    "standard errors to `posterior_from` (at the command line --std-error)."
)

ONE_ROW = (
    "There is one row: the noise is not identified and taken to be zero, so that intervals have no "
    "length, and say nothing."
)
ONE_GROUP = (
    "Only one group has data: the spread of the population is not identified and taken to be zero."
)

NO_SPREAD = (
    "Estimated variance between groups is zero: groups differ no more than their noise explains, "
    "and every estimate is the population mean."
)


class IdentificationWarning(UserWarning):
    """The data do not identify something that was to be estimated."""
