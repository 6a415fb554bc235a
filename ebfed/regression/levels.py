"""What the numbers of groups within groups identify, for rounds of regressions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.priors.identification import ONE_GROUP
from ebfed.regression.columns import INTERCEPT
from ebfed.tables.levels import keys_of_parents

__all__ = [
    "FIXED_TOO",
    "NOISELESS",
    "check_levels",
    "confounded",
    "confounded_notes",
    "crowded_notes",
    "far_notes",
    "groups_of",
    "names_in",
    "open_levels",
    "sizes_of_levels",
    "stated_levels",
]

ONE_PARENT = (
    "Level {level!r} has one group with rows: its variance is not identified, and taken to be zero."
)
ALONE = (
    "Every {parent} has one group of level {level!r}: their variances are not identified apart, "
    "and taken to be that of the {parent} alone."
)
ONE_ROW = (
    "No group{of} has two rows: noise and spread between groups are not identified apart. The "
    "spread is taken to be zero, so that groups do not differ."
)

NOISELESS = (
    "Groups explain their rows without noise, which is taken to be zero: the likelihood has no "
    "maximum, and coefficients and variances are its limit as the noise goes to zero."
)


FIXED_TOO = (
    "The variance of {terms} between {groups} is not identified, as columns of X tell these groups "
    "apart: it is taken to be zero."
)


CROWDED = (
    "{m} groups have {q} coefficients each that may be correlated ({terms}): the covariance of "
    "more coefficients than groups is not identified, and the estimate is singular. "
    "covariance='diag' needs fewer groups."
)


FAR_FROM_ZERO = (
    "{term} is far from zero (its mean is {ratio:.0f} times its standard deviation), and where it "
    "is zero, its coefficient and the intercept are taken as independent between groups: so the "
    "fit depends on where that is. Subtract a value among those of {term}, or have the two "
    "correlated, by (1 + {term} | group) or covariance='full'."
)
# Mean of a column, in its standard deviations, from which zero is not among its values.
FAR = 10.0


def stated_levels(fit: Any, clients: Any) -> dict[str, NDArray]:
    """Names of the levels of a fit, and parents of clients, for what these state; empty for one."""
    if not fit._level_names:
        return {}
    parents = keys_of_parents(clients.ids, len(fit._level_names) - 1)
    return {"levels": np.array(["\n".join(fit._level_names)]), "parents": parents}


def check_levels(facts: Any) -> None:
    """Raise a ValueError if clients cannot have stated these levels."""
    if not facts.keys() & {"levels", "parents"}:
        return
    names, parents = facts.get("levels"), facts.get("parents")
    sound = isinstance(names, np.ndarray) and isinstance(parents, np.ndarray)
    if not (
        sound
        and names.dtype.kind == "U"
        and names.shape == (1,)
        and parents.dtype == np.float64
        and parents.shape == (len(facts["n"]), str(names[0]).count("\n"))
        and parents.shape[1] > 0
        and np.isfinite(parents).all()
    ):
        raise ValueError("facts must have the names of levels, and a number for each parent.")


def confounded(
    rows: NDArray,
    owners: Sequence[NDArray],
    places: Sequence[NDArray],
    intercept: bool,
    covariance: str,
    fixed: NDArray,
) -> list[NDArray[np.bool_]]:
    """Whether effects of columns are fixed too: in every group those of X have them in their span.

    X are the columns of fixed coefficients. A likelihood of what X leaves of the response does not
    depend on their variance then.

    Parameters
    ----------
    rows : ndarray of shape (n_groups, r, p + 1)
        Factors of ``[X_i y_i]`` of the groups of the lowest level.
    owners : sequence of int64 ndarray
        From the second level: the place of each group's parent in the level above.
    places : sequence of int64 ndarray
        Columns whose coefficients vary, of each level from the top.
    intercept : bool
        Whether the first column is all ones.
    covariance : {"spherical", "diag", "full"}
        If it is spherical, one coefficient determines the variance of all.
    fixed : int64 ndarray
        Columns that have a fixed coefficient.

    Examples
    --------
    >>> rows = np.zeros((2, 2, 4))
    >>> rows[:, :, 0], rows[1, :, 1], rows[:, :, 2] = 1, 1, np.arange(4).reshape(2, 2)
    >>> confounded(rows, [], [np.array([0, 2])], True, "diag", np.arange(3))
    [array([ True, False])]
    """
    owned = [np.arange(len(rows))]  # of each level, the places of its groups
    for owner in reversed(owners):
        owned.insert(0, owner[owned[0]])
    X, found = rows[:, :, :-1], [np.zeros(len(each), bool) for each in places]
    has_rows = X.any(axis=(1, 2))
    # more groups than columns are not within their span
    few = [len(np.unique(each[has_rows])) <= len(fixed) for each in owned]
    if not any(few):
        return found
    if intercept and 0 in fixed:
        ones = X[:, :, :1]
        centre = np.einsum("nrp,nr->p", X, ones[:, :, 0]) / np.sum(ones**2)
        centre[0] = 0.0
        X = X - ones * centre
    size = np.sqrt(np.einsum("nrp,nrp->p", X, X))
    X = X / np.where(size > 0, size, 1.0)
    products = X.swapaxes(1, 2) @ X
    inverse, known = np.zeros(products.shape[1:]), np.ix_(fixed, fixed)
    inverse[known] = np.linalg.pinv(products.sum(axis=0)[known], 1e-11, hermitian=True)
    if rows.any(axis=2).sum() <= np.linalg.matrix_rank(inverse, hermitian=True):
        return found  # the columns explain all rows, whatever the groups
    for level in np.flatnonzero(few).tolist():
        of_level = np.zeros((int(owned[level].max()) + 1, *products.shape[1:]))
        np.add.at(of_level, owned[level], products)
        own = of_level[:, places[level]]
        whole = np.einsum("gkk->gk", own[:, :, places[level]])
        left = whole - np.einsum("gkp,pq,gkq->gk", own, inverse, own)
        found[level] = (left <= 1e-9 * whole).all(axis=0)
        if covariance == "spherical":
            found[level][:] = found[level].all()
    return found


def confounded_notes(
    lost: Sequence[NDArray], places: Sequence[NDArray], terms: Sequence[str], levels: Sequence[str]
) -> list[str]:
    """Say which effects are fixed too; `levels` are names of groups, if these have any."""
    each = [[terms[j] for j in own[out]] for own, out in zip(places, lost, strict=True)]
    return [
        FIXED_TOO.format(terms=", ".join(own), groups=groups)
        for own, groups in zip(each, groups_of(levels), strict=True)
        if own
    ]


def groups_of(levels: Sequence[str]) -> list[str]:
    """Call the groups of each level, in notes; there may be one level without a name."""
    return [f"groups of level {level!r}" for level in levels] or ["groups"]


def crowded_notes(
    terms: Sequence[Sequence[NDArray]], sizes: Sequence[int], names: Sequence[str]
) -> list[str]:
    """Note terms of correlated coefficients that are more than the groups.

    Parameters
    ----------
    terms : sequence of sequence of ndarray
        Columns of each term that varies, of each level.
    sizes : sequence of int
        Number of groups with rows of each level.
    names : sequence of str
        Names of the columns.

    Examples
    --------
    >>> print(crowded_notes([[np.arange(3)]], [2], ["intercept", "x", "z"])[0])
    2 groups have 3 coefficients each that may be correlated (intercept, x, z): the covariance of \
more coefficients than groups is not identified, and the estimate is singular. covariance='diag' \
needs fewer groups.
    """
    return [
        CROWDED.format(m=m, q=len(term), terms=", ".join(names[j] for j in term))
        for own, m in zip(terms, sizes, strict=True)
        for term in own
        if 1 < m < len(term)
    ]


def far_notes(
    blocks: NDArray[np.int64],
    terms: Sequence[str],
    squares: Callable[[], NDArray],
    spherical: bool = False,
) -> list[str]:
    """Note columns that are far from zero, where that is part of the model.

    Parameters
    ----------
    blocks : int64 ndarray of shape (n_levels, p)
        Block of the covariance that each coefficient is in, of each level; -1 if it is alike.
        Those of different blocks are independent.
    terms : sequence of p str
        Names of the columns, the first that of the intercept.
    squares : callable
        Sums of the products of columns, shape (p, p).
    spherical : bool
        Whether coefficients of one block are independent, too.

    Examples
    --------
    >>> years = np.array([[2.0, 4001.0], [4001.0, 8004001.0]])  # 2000 and 2001
    >>> print(far_notes(np.array([[0, 1]]), ["intercept", "year"], lambda: years)[0][:75])
    year is far from zero (its mean is 4001 times its standard deviation), and
    >>> far_notes(np.array([[0, 0]]), ["intercept", "year"], lambda: years)
    []
    """
    if spherical:
        blocks = np.where(blocks >= 0, np.arange(len(terms)), -1)
    ones = blocks[:, :1]
    apart = ((ones >= 0) & (blocks >= 0) & (blocks != ones)).any(axis=0)
    if not (apart.any() and terms[0] == INTERCEPT):
        return []
    found = squares()
    mean = found[0] / found[0, 0]
    variance = np.diag(found) / found[0, 0] - mean**2
    differs = apart & (variance > 1e-12 * mean**2)
    ratio = np.abs(mean) / np.sqrt(np.where(differs, variance, np.inf))
    return [
        FAR_FROM_ZERO.format(term=term, ratio=times)
        for term, times in zip(terms, ratio, strict=True)
        if times > FAR
    ]


def open_levels(
    n: NDArray,
    parents: Sequence[NDArray],
    levels: Sequence[str],
    varying: Sequence[NDArray],
    alone: bool = False,
) -> list[str]:
    """Note what the numbers of groups do not identify of each level; empty if nothing.

    Parameters
    ----------
    n : ndarray of shape (n_groups,)
        Number of rows of each group of the lowest level.
    parents : sequence of ndarray
        Place of each group's parent, from the second level.
    levels : sequence of str
        Names; none of groups of one level.
    varying : sequence of ndarray
        Columns whose coefficients differ, of each level.
    alone : bool
        Whether one row of a group is enough, as a count, whose noise is known.

    Examples
    --------
    >>> one, names = [np.arange(1)] * 2, ["lea", "school"]
    >>> open_levels(np.full(4, 5), [np.array([0, 0, 1, 1])], names, one)
    ['', '']
    >>> print(open_levels(np.full(2, 5), [np.array([0, 1])], names, one)[1])
    Every lea has one group of level 'school': their variances are not identified apart, and taken \
to be that of the lea alone.
    """
    sizes, notes = sizes_of_levels(parents, n), []
    for j, (size, places) in enumerate(zip(sizes, varying, strict=True)):
        note, level = "", levels[j] if levels else ""
        if size < 2:
            note = ONE_PARENT.format(level=level) if levels else ONE_GROUP
        elif size >= n.sum() and not alone:
            note = ONE_ROW.format(of=f" of level {level!r}" if levels else "")
        elif j and size <= sizes[j - 1] and len(varying[j - 1]):
            note = ALONE.format(level=level, parent=levels[j - 1])
        notes.append(note if len(places) else "")
    return notes


def sizes_of_levels(parents: Sequence[NDArray], n: NDArray) -> list[int]:
    """Return the number of groups with rows of each level, from the top.

    Parameters
    ----------
    parents : sequence of ndarray
        Place of each group's parent, from the second level; see `numbered`.
    n : ndarray of shape (n_groups,)
        Number of rows of each group of the lowest level.

    Examples
    --------
    >>> sizes_of_levels([np.array([0, 1, 1])], np.array([3, 0, 2]))
    [2, 2]
    """
    places = [np.flatnonzero(n > 0)]
    for each in reversed(parents):
        places.insert(0, each[places[0]])
    return [int(np.count_nonzero(np.bincount(each))) for each in places]


def names_in(facts: Any) -> str:
    """Return the names of levels that all clients state, one to a line; empty where there is one.

    Raises
    ------
    ValueError
        If clients state different levels.
    """
    levels = sorted(set(facts["levels"].tolist())) if "levels" in facts else [""]
    if len(levels) > 1:
        raise ValueError(f"clients have different levels of groups: {levels}.")
    return levels[0]
