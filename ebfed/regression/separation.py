"""Coefficients of generalized linear models whose likelihood rises without end.

The log-likelihoods of rows do not fall along a direction d of the coefficients if ``x'd >= 0``
where a row bounds its linear predictor from below, as a success does, and ``x'd <= 0`` where it
bounds it from above. With some inequality strict, the likelihood has no maximum. So has one that
is averaged over effects of groups, for it rises with each row's. Whether there is such a direction
is a linear programme (Konis, 2007). Most often weights show that there is none: where positive
multiples of all rows add up to zero, no row can be strict (Stiemke's lemma).

References
----------
Albert and Anderson (1984), On the existence of maximum likelihood estimates in logistic regression
models, Biometrika 71; Konis (2007), Linear programming algorithms for detecting separated data in
binary logistic regression models, University of Oxford.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ebfed.regression.families import ResponseFamily, Responses

__all__ = ["Endless", "bounds_of", "direction_without_end", "endless_terms", "unlimited_forms"]

# Rows that are looked at first: if these have no such direction, all have none.
SOME = 1000
# Directions along which rows hardly differ, and inequalities that are strict.
FLAT, STRICT = 1e-10, 1e-6
# Steps in which weights are sought.
STEPS = 12


@dataclass(frozen=True)
class Endless:
    """Terms whose coefficients have no finite estimate.

    Attributes
    ----------
    terms : tuple of str
        Empty: all coefficients have one.
    complete : bool
        Whether the likelihood of every row rises.
    """

    terms: tuple[str, ...] = ()
    complete: bool = False


def endless_terms(
    family: ResponseFamily, X: NDArray, rows: Responses, terms: Sequence[str]
) -> Endless:
    """Find the terms whose coefficients have no finite estimate, whatever the groups.

    Parameters
    ----------
    family : ResponseFamily
    X : ndarray of shape (n_rows, p)
    rows : Responses
    terms : sequence of p str
    """
    bounds = bounds_of(family, X, rows)
    found = None if bounds is None else direction_without_end(bounds)
    if found is None:
        return Endless()
    direction, complete = found
    moved = np.abs(direction[: len(terms)]) > STRICT * np.abs(direction).max()
    return Endless(tuple(term for term, own in zip(terms, moved, strict=True) if own), complete)


def bounds_of(family: ResponseFamily, X: NDArray, rows: Responses) -> NDArray[np.float64] | None:
    """Return B: likelihoods of rows do not fall along d if ``B d >= 0``; see `bounds` of families.

    Parameters
    ----------
    family : ResponseFamily
    X : ndarray of shape (n_rows, p)
    rows : Responses
        Those without weight are left out.
    """
    seen = rows.weight > 0
    if not seen.all():
        X, rows = X[seen], rows.take(seen)
    return family.bounds(X, rows)


def direction_without_end(bounds: NDArray) -> tuple[NDArray[np.float64], bool] | None:
    """Find d with ``bounds @ d >= 0``, and larger in some row; None if there is none.

    Parameters
    ----------
    bounds : ndarray of shape (r, p)

    Returns
    -------
    direction : ndarray of shape (p,)
        Times the columns' sizes, their root mean squares.
    complete : bool
        Whether it is larger in every row.

    Examples
    --------
    >>> direction_without_end(np.array([[1.0, 0.0], [-1.0, 0.0], [1.0, 1.0]]))
    (array([0., 1.]), False)
    >>> direction_without_end(np.array([[1.0, 0.0], [-1.0, 0.0], [1.0, 1.0], [-1.0, -1.0]]))
    """
    if not len(bounds):
        return None
    if len(bounds) > 2 * SOME:
        some = bounds[:: len(bounds) // SOME]
        Q, back = _upright(some)
        if len(back.T) == bounds.shape[1] and _adds_to_zero(Q):
            return None
    Q, back = _upright(bounds)
    if _adds_to_zero(Q):
        return None
    from scipy.optimize import linprog

    distinct = np.unique(Q, axis=0)
    found = linprog(-distinct.sum(axis=0), -distinct, np.zeros(len(distinct)), bounds=(-1, 1))
    if found.x is None:
        return None
    rise = distinct @ found.x
    if not rise.max() > STRICT or rise.min() < -STRICT:
        return None
    # the largest that all rows rise by
    both = np.column_stack([-distinct, np.ones(len(distinct))])
    goal = np.append(np.zeros(Q.shape[1]), -1.0)
    most = linprog(goal, both, np.zeros(len(distinct)), bounds=(-1, 1))
    complete = most.x is not None and most.x[-1] > STRICT
    direction = back @ (most.x[:-1] if complete else found.x)
    direction = np.where(np.abs(direction) > STRICT * np.abs(direction).max(), direction, 0.0)
    return direction / np.abs(direction).max(), bool(complete)


def unlimited_forms(bounds: NDArray, forms: NDArray) -> NDArray[np.bool_]:
    """Whether combinations of coefficients may go to either infinity while no likelihood falls.

    Parameters
    ----------
    bounds : ndarray of shape (r, p)
    forms : ndarray of shape (k, p)

    Returns
    -------
    bool ndarray of shape (k, 2)
        Whether there is d with ``bounds @ d >= 0`` for which ``forms @ d`` is negative, and
        positive.

    Examples
    --------
    >>> unlimited_forms(np.array([[1.0, 0.0], [-1.0, 0.0], [1.0, 1.0]]), np.eye(2)).tolist()
    [[False, False], [False, True]]
    """
    found = np.zeros((len(forms), 2), bool)
    if direction_without_end(bounds) is None:
        return found
    from scipy.optimize import linprog

    Q, back = _upright(bounds)
    distinct, goals = np.unique(Q, axis=0), forms @ back
    for goal, ends in zip(goals, found, strict=True):
        size = np.linalg.norm(goal)
        for end, sign in enumerate((-1.0, 1.0) if size > 0 else ()):
            best = linprog(-sign * goal / size, -distinct, np.zeros(len(distinct)), bounds=(-1, 1))
            ends[end] = best.x is not None and -best.fun > STRICT
    return found


def _upright(bounds: NDArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return rows in coordinates in which columns are orthogonal, of mean square 1; and back."""
    size = np.sqrt(np.mean(bounds**2, axis=0))
    scaled = bounds / np.where(size > 0, size, 1.0)
    values, vectors = np.linalg.eigh(scaled.T @ scaled / len(bounds))
    kept = values > FLAT * max(values.max(initial=0.0), FLAT)
    back = vectors[:, kept] / np.sqrt(values[kept])
    return scaled @ back, back


def _adds_to_zero(Q: NDArray) -> bool:
    """Whether positive multiples of rows were found that add up to zero.

    With weights w of a logistic regression, whose sum of rows is s, they are ``w_i (1 - q_i'a)``
    where ``sum w q q' a = s``.
    """
    b = np.zeros(Q.shape[1])
    for _ in range(STEPS):
        with np.errstate(over="ignore"):
            weight = 1 / (1 + np.exp(Q @ b))
        total, weighed = weight @ Q, Q * weight[:, None]
        try:
            a = np.linalg.solve(weighed.T @ Q, total)
            step = np.linalg.solve(weighed.T @ (Q * (1 - weight)[:, None]), total)
        except np.linalg.LinAlgError:
            return False
        if np.abs(Q @ a).max() < 0.99:
            return True
        b = b + step * min(1.0, 4 / max(np.abs(Q @ step).max(), 1e-300))
    return False
