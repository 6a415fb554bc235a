"""Groups simulated from known populations: plain arrays, and the parameters that made them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def make_gaussian_groups(
    n_groups: int = 100,
    n_rows: int | ArrayLike = 5,
    *,
    n_features: int = 1,
    mean: float = 0.0,
    group_variance: float = 1.0,
    noise_variance: float = 1.0,
    random_state: Any = None,
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
    """Simulate groups whose means come from one normal population.

    theta_i ~ N(mean, group_variance I) and X_ij ~ N(theta_i, noise_variance I).

    Parameters
    ----------
    n_groups : int
        Number of groups, m.
    n_rows : int or array-like of int of shape (n_groups,)
        Rows of each group. A group may have none.
    n_features : int
        Length d of a row.
    mean : float
        Mean of the population, in each feature.
    group_variance, noise_variance : float
        Variance between groups and between the rows of a group, in each feature.
    random_state : int, Generator or None
        Seed.

    Returns
    -------
    X : ndarray of shape (N,), or (N, n_features) if there are several features
        Rows, sorted by group.
    groups : int ndarray of shape (N,)
        Group of each row, a number below `n_groups`.
    theta : ndarray of shape (n_groups,), or (n_groups, n_features)
        Means of the groups.

    Raises
    ------
    ValueError
        If a number of groups, rows or features is out of range, or a variance is negative.

    References
    ----------
    Ozkara, Girgis, Data, Diggavi (2023), section 2.1.

    Examples
    --------
    >>> X, groups, theta = make_gaussian_groups(4, [2, 0, 1, 3], random_state=0)
    >>> groups.tolist()
    [0, 0, 2, 3, 3, 3]
    >>> X.shape, theta.shape
    ((6,), (4,))
    >>> make_gaussian_groups(4, n_features=3)[0].shape
    (20, 3)
    """
    groups = number_rows(n_groups, n_rows)
    if not is_integer(n_features) or n_features < 1:
        raise ValueError(f"n_features must be a positive integer; got {n_features!r}.")
    if not np.isfinite(mean):
        raise ValueError(f"mean must be finite; got {mean!r}.")
    variances = {"group_variance": group_variance, "noise_variance": noise_variance}
    for name, variance in variances.items():
        if not 0 <= variance < np.inf:
            raise ValueError(f"{name} must be finite and not negative; got {variance!r}.")
    rng = np.random.default_rng(random_state)
    theta = rng.normal(mean, np.sqrt(group_variance), (n_groups, n_features))
    X = theta[groups] + np.sqrt(noise_variance) * rng.standard_normal((len(groups), n_features))
    if n_features == 1:
        return X[:, 0], groups, theta[:, 0]
    return X, groups, theta


def make_bernoulli_groups(
    n_groups: int = 100,
    n_rows: int | ArrayLike = 14,
    *,
    population: str | Callable[[int, np.random.Generator], ArrayLike] = "beta",
    random_state: Any = None,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Simulate groups of yes-or-no rows whose rates come from one population.

    p_i ~ population and y_ij ~ Bernoulli(p_i).

    Parameters
    ----------
    n_groups : int
        Number of groups, m.
    n_rows : int or array-like of int of shape (n_groups,)
        Rows of each group. A group may have none.
    population : {"normal", "uniform", "spikes", "beta"} or callable
        Where the rates come from: N(1/2, .15²) given that it lies in [0, 1]; all of [0, 1] alike;
        1/4, 1/2 and 3/4 with equal weights; Beta(4, 4); or ``population(size, rng)``, which returns
        `size` numbers in [0, 1].
    random_state : int, Generator or None
        Seed.

    Returns
    -------
    y : int ndarray of shape (N,)
        Rows, 0 or 1, sorted by group.
    groups : int ndarray of shape (N,)
        Group of each row, a number below `n_groups`.
    p : ndarray of shape (n_groups,)
        Rates of the groups.

    Raises
    ------
    ValueError
        If a number of groups or rows is out of range, `population` is not known, or it returns
        something other than rates.

    References
    ----------
    Ozkara, Girgis, Data, Diggavi (2023), section K.2; the first three after Tian, Kong and Valiant
    (2017), *Learning populations of parameters*.

    Examples
    --------
    >>> y, groups, p = make_bernoulli_groups(3, 2, population="spikes", random_state=0)
    >>> p.tolist()
    [0.75, 0.5, 0.5]
    >>> groups.tolist()
    [0, 0, 1, 1, 2, 2]
    >>> p = make_bernoulli_groups(3, population=lambda size, rng: rng.beta(1, 9, size))[2]
    >>> p.shape
    (3,)
    """
    groups = number_rows(n_groups, n_rows)
    if callable(population):
        draw = population
    elif population in _POPULATIONS:
        draw = _POPULATIONS[population]
    else:
        raise ValueError(
            f"population must be a callable or one of {sorted(_POPULATIONS)}; got {population!r}."
        )
    rng = np.random.default_rng(random_state)
    p = np.asarray(draw(n_groups, rng), dtype=float)
    if p.shape != (n_groups,) or not np.all((p >= 0) & (p <= 1)):
        raise ValueError(f"population must return {n_groups} numbers in [0, 1].")
    return (rng.random(len(groups)) < p[groups]).astype(np.int64), groups, p


def _truncated_normal(size: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw from N(1/2, .15²) until all draws lie in [0, 1]."""
    p = rng.normal(0.5, 0.15, size)
    while (outside := (p < 0) | (p > 1)).any():
        p[outside] = rng.normal(0.5, 0.15, outside.sum())
    return p


_POPULATIONS: dict[str, Callable[[int, np.random.Generator], NDArray[np.float64]]] = {
    "normal": _truncated_normal,
    "uniform": lambda size, rng: rng.random(size),
    "spikes": lambda size, rng: rng.choice([0.25, 0.5, 0.75], size),
    "beta": lambda size, rng: rng.beta(4, 4, size),
}


def number_rows(n_groups: int, n_rows: int | ArrayLike) -> NDArray[np.int64]:
    """Number the group of each row: 0, ..., 0, 1, ..., 1, ..."""
    if not is_integer(n_groups) or n_groups < 1:
        raise ValueError(f"n_groups must be a positive integer; got {n_groups!r}.")
    rows = np.asarray(n_rows)
    if rows.dtype.kind not in "iu" or rows.shape not in [(), (n_groups,)] or np.any(rows < 0):
        raise ValueError(
            f"n_rows must be an integer or {n_groups} integers, one for each group, none negative."
        )
    return np.repeat(np.arange(n_groups), rows.astype(int))


def is_integer(value: object) -> bool:
    """Return whether a value is an integer of any width; True is not."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
