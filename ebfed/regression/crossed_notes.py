"""Remarks on fits of crossed factors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.inference.estimable import collinear_note
from ebfed.regression.levels import FIXED_TOO, NOISELESS

__all__ = ["UNFINISHED", "notes_of_crossed", "unidentified"]

LAPLACE = (
    "The likelihood is Laplace's approximation, as of glmer with nAGQ=1: spreads are "
    "underestimated where levels have few rows."
)
UNFINISHED = "The search for the variances did not converge; the fit is where it stopped."


def unidentified(fit: Any) -> list[str]:
    """Note what rows do not identify."""
    notes = [collinear_note(fit._estimable)] if fit._kept["null"].shape[1] else []
    own = zip(fit._names, fit._varying, fit._kept["fixed"], strict=True)
    named = [(name, [terms[j] for j in fixed]) for name, terms, fixed in own]
    return notes + [
        FIXED_TOO.format(terms=", ".join(terms), groups=f"levels of {name!r}")
        for name, terms in named
        if terms
    ]


def notes_of_crossed(fit: Any) -> list[str]:
    """Remarks on a fit whose variances and coefficients are set."""
    notes = [LAPLACE] * (fit.family != "gaussian") + [UNFINISHED] * (not fit.converged_)
    notes += [NOISELESS] * (fit.noise_variance_ == 0)
    known = [not len(fixed) for fixed in fit._kept["fixed"]]
    notes += unidentified(fit)
    notes += [
        f"The variance of {name!r} is zero: its levels do not differ beyond the noise."
        for (name, variance), identified in zip(fit.variances_.items(), known, strict=True)
        if identified and np.all(variance == 0)
    ]
    return notes + [
        f"The covariance of {name!r} is singular: a combination of its coefficients does not "
        "differ between levels beyond the noise."
        for (name, each), identified in zip(fit.covariances_.items(), known, strict=True)
        if identified and len(each) > 1 and each.any() and _singular(each)
    ]


def _singular(covariance: NDArray) -> bool:
    """Whether a combination of coefficients has no variance, in units of their own."""
    sd = np.sqrt(np.diag(covariance))
    if (sd == 0).any():
        return True
    return bool(np.linalg.eigvalsh(covariance / np.outer(sd, sd))[0] < 1e-8)
