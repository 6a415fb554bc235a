"""Remarks of mixed models on their fits: what is at a boundary, and when there is no maximum."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from ebfed.inference.estimable import collinear_note
from ebfed.priors.identification import IdentificationWarning
from ebfed.regression.columns import INTERCEPT
from ebfed.regression.levels import FIXED_TOO, NOISELESS
from ebfed.regression.separation import Endless

__all__ = [
    "JOINT",
    "LAPLACE",
    "LITTLE",
    "NO_INFORMATION",
    "PERFECT",
    "UNBOUNDED",
    "UNFINISHED",
    "boundary_notes",
    "notes_of_crossed",
    "unending",
    "unidentified",
    "warn_of_unending",
    "warn_unfinished",
]

# A log-likelihood of a row that is as good as that of certainty.
PERFECT = -0.01
# Information on a mean coefficient, in units of its column, that is as good as none.
NO_INFORMATION = 1e-4
# A gain that is little where there is no end.
LITTLE = 0.5
# Eigenvalue of a correlation matrix that is rounding. That of intercept and slope is about
# ``1 / (2 d**2)`` with a covariate d of its standard deviations from zero.
SINGULAR = 1e-12

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
LAPLACE_OF_CROSSED = (
    "The likelihood is Laplace's approximation, as of glmer with nAGQ=1: spreads are "
    "underestimated where levels have few rows."
)
UNFINISHED = "The search for the variances did not converge; the fit is where it stopped."
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


def boundary_notes(levels: Iterable[tuple[str, Sequence[str], NDArray]]) -> list[str]:
    """Note variances that are zero, and covariances that are singular.

    Parameters
    ----------
    levels : iterable of (str, sequence of k str, ndarray of shape (k, k))
        Groups of each level, or levels of each factor; their terms; and the covariance of these.

    Examples
    --------
    >>> print(*boundary_notes([("groups", ["x", "z"], np.diag([1.0, 0.0]))]))
    Estimated variance between groups is zero for z: they differ there no more than noise explains.
    """
    notes = []
    for groups, terms, covariance in levels:
        sd = np.sqrt(np.diag(covariance))
        apart = sd > 0
        if not apart.all():
            flat = ", ".join(term for term, own in zip(terms, apart, strict=True) if not own)
            notes.append(
                f"Estimated variance between {groups} is zero for {flat}: they differ there no "
                "more than noise explains."
            )
        scaled = covariance[np.ix_(apart, apart)] / np.outer(sd[apart], sd[apart])
        if len(scaled) > 1 and np.linalg.eigvalsh(scaled)[0] < SINGULAR:
            own = ", ".join(term for term, own in zip(terms, apart, strict=True) if own)
            notes.append(
                f"The covariance of {own} between {groups} is singular: a combination of these "
                "does not differ beyond the noise."
            )
    return notes


def unidentified(fit: Any) -> list[str]:
    """Note what rows of crossed factors do not identify."""
    notes = [collinear_note(fit._estimable)] if fit._kept["null"].shape[1] else []
    own = zip(fit._names, fit._varying, fit._kept["fixed"], strict=True)
    named = [(name, [terms[j] for j in fixed]) for name, terms, fixed in own]
    return notes + [
        FIXED_TOO.format(terms=", ".join(terms), groups=f"levels of {name!r}")
        for name, terms in named
        if terms
    ]


def notes_of_crossed(fit: Any) -> list[str]:
    """Remarks on a fit of crossed factors whose variances and coefficients are set."""
    notes = [LAPLACE_OF_CROSSED] * (fit.family != "gaussian") + [UNFINISHED] * (not fit.converged_)
    notes += [NOISELESS] * (fit.noise_variance_ == 0) + unidentified(fit)
    levels, parts = [], zip(fit.covariances_.items(), fit._varying, fit._kept["fixed"], strict=True)
    for (name, each), terms, fixed in parts:
        own = np.delete(np.arange(len(terms)), fixed)
        levels.append((f"levels of {name!r}", [terms[j] for j in own], each[np.ix_(own, own)]))
    return notes + boundary_notes(levels)
