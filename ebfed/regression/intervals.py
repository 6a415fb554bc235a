"""Intervals of the parameters of mixed models, spreads included: Wald's, by profile, and bootstrap.

Of every fit here, `MixedModel._criterion` is its deviance as a function of the parameters, of which
`ebfed.inference.profiles` takes profiles, and `MixedModel._redraws` draws responses and fits again.

The bootstrap of a linear model draws factors of rows from the fit rather than rows: the projections
of responses on the columns of a group are normal, and what is left of them is ``noise`` times a
chi-squared number (Cochran's theorem).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from ebfed.inference.profiles import Held, Profile
from ebfed.inference.sums import LinearMixedFit
from ebfed.priors.identification import IdentificationWarning
from ebfed.regression.families import ResponseFamily, Responses
from ebfed.report.view import Parameter
from ebfed.tables.frames import Style, frame

__all__ = [
    "IntervalMethod",
    "bootstrapped",
    "check_drawn",
    "check_not_restricted",
    "drawn",
    "frame_of_ends",
    "profiled",
]

IntervalMethod = Literal["wald", "profile", "restricted", "bootstrap"]


def frame_of_ends(rows: Sequence[Parameter], ends: NDArray, style: Style) -> Any:
    """Return a frame of parameters and the ends of their intervals, shape (k, 2)."""
    columns = {
        name: np.array([row[j] for row in rows])
        for j, name in enumerate(("effect", "group", "term", "estimate"))
    }
    return frame(columns | {"conf.low": ends[:, 0], "conf.high": ends[:, 1]}, style)


def profiled(
    profile: Profile, every: Sequence[Held | None], level: float, progress: bool
) -> NDArray[np.float64]:
    """Ends of intervals by profile, shape (k, 2)."""
    from scipy.special import ndtri
    from tqdm import tqdm

    if refusal := profile.criterion.refusal():
        raise ValueError(refusal)
    z = float(ndtri((1 + level) / 2))
    ends = np.full((len(every), 2), np.nan)
    while True:
        before = profile.best[0]
        for j, held in enumerate(tqdm(every, "profiles", disable=not progress)):
            if held is not None:
                ends[j] = profile.interval(held, z)
        if profile.settled(before):  # else a profile has led to a lower minimum
            return ends


def bootstrapped(
    redraws: Callable[[], Any],
    rows: Sequence[Parameter],
    level: float,
    n_boot: int,
    progress: bool,
) -> NDArray[np.float64]:
    """Ends of intervals by quantiles of fits to drawn responses, shape (k, 2)."""
    from tqdm import trange

    found = []
    for _ in trange(n_boot, desc="bootstrap", disable=not progress):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IdentificationWarning)
            warnings.simplefilter("ignore", ConvergenceWarning)
            again = redraws()
        found.append([row[3] for row in again.__ebfed_view__().parameters()])
    values, ends = np.array(found), np.full((len(rows), 2), np.nan)
    known, tail = ~np.isnan(values).all(axis=0), (1 - level) / 2
    ends[known] = np.nanquantile(values[:, known], [tail, 1 - tail], axis=0).T
    return ends


def check_drawn(family: ResponseFamily, responses: Responses) -> None:
    """Refuse rows whose responses have no distribution, or cannot be fitted again.

    Raises
    ------
    ValueError
    """
    weight = responses.weight
    whole = np.array_equal(weight, np.rint(weight))
    if family.classes or not (whole if family.name == "binomial" else (weight == 1).all()):
        raise ValueError(
            "method='bootstrap' takes no ordered classes, of which a draw may have no row, and no "
            "sample_weight; use method='profile'."
        )


def check_not_restricted(method: str) -> None:
    """Refuse ``"restricted"`` of rows of families: restricted likelihoods are of Gaussian rows.

    Raises
    ------
    ValueError
    """
    if method == "restricted":
        raise ValueError(
            "method='restricted' is of Gaussian rows; others have no restricted likelihood. Use "
            "method='profile'."
        )


def drawn(fit: LinearMixedFit, rng: np.random.Generator) -> Callable[[], NDArray]:
    """Return a function that draws the responses of all groups from a fit.

    Parameters
    ----------
    fit : LinearMixedFit
    rng : Generator

    Returns
    -------
    callable
        Without arguments; returns factors of rows with other responses.
    """
    m, _, width = fit.rows.shape
    p = width - 1
    upper = np.asarray(np.linalg.qr(fit.rows[:, :, :-1], mode="r"))
    r = upper.shape[1]
    # directions of a group's columns that its rows do have
    rank = np.linalg.matrix_rank(upper)
    left, inside = np.maximum(fit.n - rank, 0), np.arange(r) < rank[:, None]
    _, s, Vt = np.linalg.svd(upper, full_matrices=False)
    X = s[:, :, None] * Vt
    values = [np.linalg.eigh(G) for G in fit.covariances]
    halves = [vectors * np.sqrt(np.maximum(x, 0)) for x, vectors in values]

    def draw() -> NDArray[np.float64]:
        coefficients = np.zeros((1, p))
        for owner, places, half in zip(fit.owners, fit.places, halves, strict=True):
            coefficients = coefficients[owner]
            coefficients[:, places] += rng.normal(size=(len(owner), len(places))) @ half.T
        coefficients = coefficients + fit.mean
        noise = np.sqrt(fit.noise)
        z = np.einsum("nrp,np->nr", X, coefficients) + noise * rng.normal(size=(m, r)) * inside
        rest = noise * np.sqrt(rng.chisquare(np.maximum(left, 1)) * (left > 0))
        rows = np.zeros((m, r + 1, p + 1))
        rows[:, :r, :p], rows[:, :r, p], rows[:, r, p] = X, z, rest
        return np.asarray(np.linalg.qr(rows, mode="r"))

    return draw
