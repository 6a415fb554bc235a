"""Deals of rows to clients: the classes of each client, and the rows of each class."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "apportion",
    "count_up",
    "deal_a_number",
    "deal_classes",
    "deal_equally",
    "draw_classes",
    "hand_out",
]


def draw_classes(
    n_clients: int, k: int, n_classes: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw k different classes for each client so that all classes are held equally often."""
    held = np.empty((n_clients, k), dtype=int)
    n_holders = np.zeros(n_classes, dtype=int)
    ties = rng.random((n_clients, n_classes))
    for client in range(n_clients):
        least_held = np.argsort(n_holders + ties[client])[:k]
        n_holders[least_held] += 1
        held[client] = np.sort(least_held)
    return rng.permutation(held)


def apportion(sizes: NDArray[np.int64], n_clients: int) -> NDArray[np.int64]:
    """Divide clients among classes by size: one each, then by largest remainders."""
    quota = n_clients * sizes / sizes.sum()
    holders = np.maximum(np.floor(quota).astype(int), 1)
    while (left := n_clients - holders.sum()) != 0:
        if left > 0:
            holders[np.argsort(holders - quota, kind="stable")[:left]] += 1
        else:  # a class too small for one client took one from the others
            holders[np.argmax(np.where(holders > 1, holders - quota, -np.inf))] -= 1
    return holders


def deal_classes(
    held: NDArray[np.int64], sizes: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Deal each class evenly to its holders; a random few of them get one row more."""
    n_holders = np.bincount(held.ravel(), minlength=len(sizes))
    each, more = np.divmod(sizes, np.maximum(n_holders, 1))
    order = rng.permutation(held.size)
    order = order[np.argsort(held.ravel()[order], kind="stable")]
    rank = np.empty(held.size, dtype=int)  # of a holder among those of its class
    rank[order] = count_up(n_holders)
    return each[held] + (rank.reshape(held.shape) < more[held])


def deal_a_number(
    held: NDArray[np.int64], n_rows: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Take the same number of rows of each class; a few random classes give one more."""
    each, more = divmod(n_rows, held.shape[1])
    rank = rng.permuted(np.tile(np.arange(held.shape[1]), (len(held), 1)), axis=1)
    return each + (rank < more)


def deal_equally(
    held: NDArray[np.int64], sizes: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Deal all rows so that clients have equal numbers, as evenly over classes as possible.

    This is a transport problem, clients by classes; with integer bounds its vertices are integers.
    Bisection minimises the largest distance from an even deal.
    """
    from scipy import sparse
    from scipy.optimize import linprog

    n_clients, k = held.shape
    each, more = divmod(int(sizes.sum()), n_clients)
    totals = each + (rng.permutation(n_clients) < more)
    entry = np.arange(held.size)
    sums = sparse.csr_array(
        (
            np.ones(2 * held.size),
            (np.concatenate([entry // k, n_clients + held.ravel()]), np.tile(entry, 2)),
        ),
        shape=(n_clients + len(sizes), held.size),
    )
    wanted = np.concatenate([totals, sizes])
    even = np.repeat(totals / k, k)
    costs = rng.random(held.size)

    def deal(distance: int) -> Any:
        lower, upper = np.maximum(np.floor(even) - distance, 0), np.ceil(even) + distance
        bounds = np.column_stack([lower, upper])
        return linprog(costs, A_eq=sums, b_eq=wanted, bounds=bounds, method="highs")

    too_small, distance = -1, 0
    while not (best := deal(distance)).success:
        if distance > sizes.max():
            raise ValueError(
                f'rows_per_client="equal" is impossible with {n_clients} clients of {k} classes '
                "each: some classes are too large, too small, or without a client. Use more "
                "classes for each client, or rows_per_client=None."
            )
        too_small, distance = distance, max(1, 2 * distance)
    while distance - too_small > 1:
        middle = (too_small + distance) // 2
        if (solution := deal(middle)).success:
            best, distance = solution, middle
        else:
            too_small = middle
    return np.rint(best.x).astype(int).reshape(held.shape)


def count_up(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count 0, 1, ... in each run of the given lengths: [2, 3] gives 0, 1, 0, 1, 2."""
    return np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def hand_out(
    codes: NDArray[np.int64],
    sizes: NDArray[np.int64],
    held: NDArray[np.int64],
    counts: NDArray[np.int64],
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Give each client its number of rows of each of its classes, drawn at random."""
    by_class = rng.permutation(len(codes))
    by_class = by_class[np.argsort(codes[by_class], kind="stable")]
    entries = np.argsort(held.ravel(), kind="stable")  # class after class
    n_given = counts.ravel()[entries]
    starts = np.cumsum(sizes) - sizes
    taken = np.bincount(held.ravel(), weights=counts.ravel(), minlength=len(sizes)).astype(int)
    places = np.repeat(starts, taken) + count_up(taken)
    groups = np.full(len(codes), -1)
    groups[by_class[places]] = np.repeat(entries // held.shape[1], n_given)
    return groups
