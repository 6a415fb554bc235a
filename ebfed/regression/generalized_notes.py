"""What a generalized linear model says of its fit, and when there is none to find."""

from __future__ import annotations

import warnings

from sklearn.exceptions import ConvergenceWarning

from ebfed.priors.identification import IdentificationWarning
from ebfed.regression.columns import INTERCEPT
from ebfed.regression.separation import Endless

__all__ = [
    "JOINT",
    "LAPLACE",
    "LITTLE",
    "NO_INFORMATION",
    "NO_SPREAD",
    "PERFECT",
    "UNBOUNDED",
    "UNCENTRED",
    "unending",
    "warn_of_unending",
    "warn_unfinished",
]

# A log-likelihood of a row that is as good as that of certainty.
PERFECT = -0.01
# Information on a mean coefficient, in units of its column, that is as good as none.
NO_INFORMATION = 1e-4
# A gain that is little where there is no end.
LITTLE = 0.5

UNCENTRED = (
    "Columns of X lie far from zero against their spread. With one variance for each coefficient, "
    "that of the intercept is then hardly identified, and the fit may have stopped short: centre "
    "them, or fit covariance='full', which does not depend on where zero is."
)
NO_SPREAD = (
    "An estimated variance between groups is zero: groups differ no more than chance explains."
)
SEPARATED = (
    "The classes are separated without error{of}: the likelihood has no maximum, and coefficients "
    "are those at which the search stopped."
)
ENDLESS = (
    "The likelihood rises without end as a coefficient grows{of}, as where rows of one kind have "
    "no event: it is where the search stopped, and its standard error means nothing."
)
UNBOUNDED = (
    "The likelihood rises as a variance between groups grows without bound: rows are too few, or "
    "groups all of one class. The variance is that at which the search stopped."
)
LAPLACE = (
    "Laplace's approximation underestimates the spread of the population where groups have few "
    "rows, and so shrinks too much; quadrature, of one level of groups and over three coefficients "
    "or fewer, does not, and of binomial rows method='ep' less."
)
JOINT = (
    "method='gradient' maximises jointly over all coefficients and the variance of their "
    "population, which has no maximum: the variance is that of the last round."
)


def unending(found: Endless) -> str:
    """Note which coefficients have no finite estimate.

    Examples
    --------
    >>> unending(Endless(("x", "z")))[:70]
    "The likelihood rises without end as a coefficient grows (of 'x', 'z'),"
    """
    text = SEPARATED if found.complete else ENDLESS
    terms = [term for term in found.terms if term != INTERCEPT] or found.terms
    return text.format(of=f" (of {', '.join(map(repr, terms))})" if terms else "")


def warn_of_unending(found: Endless | None) -> list[str]:
    """Warn of coefficients without a finite estimate; return the note of them, if there are any."""
    if found is None:
        return []
    note = unending(found)
    warnings.warn(note, IdentificationWarning, stacklevel=9)
    return [note]


def warn_unfinished(how: str, gain: float, advice: str) -> None:
    """Warn that a search ended before it converged."""
    warnings.warn(
        f"not converged: {how} the next step was to raise the log-likelihood by {gain:.2g}. "
        f"{advice}",
        ConvergenceWarning,
        stacklevel=8,
    )
