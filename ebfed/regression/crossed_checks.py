"""What may be asked of crossed factors: columns, coefficients of levels, and their covariances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.regression.columns import INTERCEPT

__all__ = [
    "check_factors",
    "columns_at",
    "fixed_too",
    "independent_columns",
    "places_of",
    "varying_of",
]

# Share of a column's length, less which it follows from others.
LEAST = 1e-10


def varying_of(
    varying: Any, covariance: Any, names: Sequence[str], terms: Sequence[str]
) -> list[list[list[str]]]:
    """Return the terms that differ between the levels of each factor, by blocks.

    Coefficients of a block are correlated with each other, and with no others.

    Parameters
    ----------
    varying : mapping of str to sequence of str, or of sequences of str; or None
        The argument of the estimator; a factor that is not in it has an intercept.
    covariance : str or mapping of str to str
        Of factors whose terms are no sequences.
    names : list of str
        Names of the factors.
    terms : list of str
        Names of the coefficients.

    Raises
    ------
    TypeError, ValueError
        If it names no factor, or no terms.
    """
    if varying is not None and not isinstance(varying, Mapping):
        raise TypeError(
            f"varying must be a mapping of factors to lists of terms; got {type(varying).__name__}."
        )
    if unknown := [each for each in varying or {} if each not in names]:
        raise ValueError(
            f"varying must have factors of {', '.join(map(repr, names))}; got {unknown[0]!r}."
        )
    correlated = _correlated(covariance, names)
    known, found = [INTERCEPT, *(each for each in terms if each != INTERCEPT)], []
    for name, full in zip(names, correlated, strict=True):
        own = (varying or {}).get(name, [INTERCEPT])
        several = not isinstance(own, str) and all(isinstance(each, list | tuple) for each in own)
        blocks = [own] if full else [[each] for each in own]
        blocks = [list(each) for each in own] if several else blocks
        every = [term for block in blocks for term in block]
        if isinstance(own, str) or not all(blocks) or len(set(every)) < max(len(every), 1):
            raise ValueError(
                f"varying[{name!r}] must be a list of different terms, at least one; got {own!r}."
            )
        if wrong := [term for term in every if term not in known]:
            raise ValueError(
                f"varying[{name!r}] must be of {', '.join(map(repr, known))}; got {wrong[0]!r}."
            )
        found.append([list(block) for block in blocks])
    return found


def _correlated(covariance: Any, names: Sequence[str]) -> list[bool]:
    """Whether the coefficients of the levels of each factor are correlated.

    Raises
    ------
    ValueError
        If it is neither "full" nor "diag", nor a mapping of factors to these.
    """
    each = covariance if isinstance(covariance, Mapping) else dict.fromkeys(names, covariance)
    if not set(each) <= set(names) or not set(each.values()) <= {"full", "diag"}:
        raise ValueError(
            "covariance must be 'full' or 'diag', or a mapping of factors to these; got "
            f"{covariance!r}."
        )
    return [each.get(name, "full") == "full" for name in names]


def check_factors(
    names: Sequence[str], sizes: Sequence[int], widths: Sequence[int], n_rows: int, alone: bool
) -> None:
    """Refuse factors whose variances rows cannot tell, or that are too large.

    A level of one row is enough where `alone`: the noise of a count is known.

    Parameters
    ----------
    names : list of str
    sizes, widths : list of int
        Numbers of levels, and of coefficients of a level.
    n_rows : int
    alone : bool

    Raises
    ------
    ValueError
    """
    if not names:
        raise ValueError("groups must be of two factors or more, such as ['student', 'lecturer'].")
    if twice := {name for name in names if list(names).count(name) > 1}:
        raise ValueError(f"factors must have different names; {min(twice)!r} is there twice.")
    counts = [size * width for size, width in zip(sizes, widths, strict=True)]
    for name, size, width, count in zip(names, sizes, widths, counts, strict=True):
        if size < 2:
            raise ValueError(f"factor {name!r} must have two levels or more; it has {size}.")
        if count >= n_rows and not alone:
            many = (
                f"{size:,} levels" if width == 1 else f"{count:,} coefficients of {size:,} levels"
            )
            raise ValueError(
                f"factor {name!r} has {many} for {n_rows:,} rows: its effects and the noise are "
                "the same."
            )


def places_of(varying: Sequence[str], terms: Sequence[str]) -> list[int]:
    """Places of terms among columns; -1 for an intercept that is not among them."""
    return [list(terms).index(term) if term in terms else -1 for term in varying]


def columns_at(design: NDArray, places: Sequence[int]) -> NDArray[np.float64]:
    """Columns of X, of which -1 is that of ones, shape (n, k)."""
    ones = np.ones((len(design), 1))
    return np.hstack([ones if place < 0 else design[:, [place]] for place in places])


def independent_columns(design: NDArray) -> tuple[NDArray[np.int64], NDArray]:
    """Find columns that do not follow from those before them, as lme4 keeps them.

    Returns
    -------
    kept : int64 ndarray of shape (rank,)
    null : ndarray of shape (p, p - rank)
        Combinations of columns that are zero in all rows: each of a column left out and those kept.

    Examples
    --------
    >>> x = np.array([1.0, 2.0, 4.0])
    >>> kept, null = independent_columns(np.column_stack([np.ones(3), x, 2 * x + 1]))
    >>> kept, null.round(6).ravel()
    (array([0, 1]), array([-1., -2.,  1.]))
    """
    R: Any = np.linalg.qr(design, mode="r")
    p, kept, axes, out = design.shape[1], [], np.zeros((len(R), 0)), []
    for j, column in enumerate(R.T):
        left = column
        for _ in range(2):  # once more, for digits
            left = left - axes @ (axes.T @ left)
        size = np.linalg.norm(left)
        if size > LEAST * np.linalg.norm(column):
            kept.append(j)
            axes = np.column_stack([axes, left / size])
        else:
            out.append(j)
    null = np.zeros((p, len(out)))
    null[out, np.arange(len(out))] = 1.0
    if kept and out:
        found, sizes = np.linalg.lstsq(R[:, kept], R[:, out])[0], np.linalg.norm(R, axis=0)
        rounding = np.abs(found) * sizes[kept, None] <= LEAST * sizes[out]
        null[kept] = -np.where(rounding, 0.0, found)
    return np.array(kept, np.int64), null


def fixed_too(
    design: NDArray, weight: NDArray, codes: Sequence[NDArray], bases: Sequence[NDArray]
) -> list[NDArray[np.bool_]]:
    """Whether effects of factors are fixed too: at every level they lie within the span of X.

    The rows do not tell the variance of such effects.

    Parameters
    ----------
    design : ndarray of shape (n, p)
        Columns that are not collinear.
    weight : ndarray of shape (n,)
    codes : sequence of int64 ndarray of shape (n,)
        Level of each row of each factor.
    bases : sequence of ndarray of shape (n, q_k)
        Columns whose coefficients differ between levels.
    """
    found = [np.zeros(basis.shape[1], bool) for basis in bases]
    sizes = [int(own.max()) + 1 for own in codes]
    if min(sizes) > design.shape[1]:  # more levels than columns are not within their span
        return found
    root = np.sqrt(weight)[:, None]
    Q = np.linalg.qr(design * root)[0]
    for own, basis, size, lost in zip(codes, bases, sizes, found, strict=True):
        for j, column in enumerate((basis * root).T if size <= design.shape[1] else ()):
            whole = np.bincount(own, column**2, size)
            along = np.zeros((size, Q.shape[1]))
            np.add.at(along, own, column[:, None] * Q)
            lost[j] = (whole - np.sum(along**2, axis=1) <= 1e-9 * whole).all()
    return found
