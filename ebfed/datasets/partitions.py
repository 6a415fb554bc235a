"""Partitions of labelled rows among clients by class or Dirichlet shares, and choice of opt-outs.

A partition is an integer array with the client of each row, and -1 for a row without a client. Fit
estimators to ``X[groups >= 0], y[groups >= 0], groups[groups >= 0]``. Each function also returns
its random choice, which deals other rows, such as test rows, in the same way.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ebfed.datasets.groups import is_integer

__all__ = []


def partition_classes(
    y: ArrayLike,
    n_clients: int,
    classes_per_client: int,
    *,
    rows_per_client: int | Literal["equal"] | None = None,
    classes: ArrayLike | None = None,
    random_state: Any = None,
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Deal rows to clients who hold a few classes each.

    Every class is held by the same number of clients (within one), chosen at random.

    Parameters
    ----------
    y : array-like of shape (n,)
        Class of each row.
    n_clients : int
        Number of clients, m.
    classes_per_client : int
        Number k of different classes that a client holds.
    rows_per_client : int, "equal" or None
        None: all rows of a class go to the clients who hold it, each the same number (within one),
        so that clients with large classes have more rows. "equal": all rows are dealt and every
        client gets n / m of them (within one), from its classes as evenly as that allows. A number:
        every client gets this number of rows, the same number (within one) of each of its classes,
        and the remaining rows are not used.
    classes : array-like of shape (n_clients, k), optional
        Classes of each client from an earlier call, to deal test rows like training rows. Drawn if
        None.
    random_state : int, Generator or None
        Seed.

    Returns
    -------
    groups : int ndarray of shape (n,)
        Client of each row, 0, ..., m - 1, or -1 for a row that is not used.
    classes : ndarray of shape (n_clients, k)
        Classes of each client, sorted.

    Raises
    ------
    ValueError
        If a number is out of range, `classes` does not fit, a class has too few rows, or the rows
        cannot be dealt equally to clients with these classes.

    References
    ----------
    Three classes for each of 50 clients: Ozkara, Girgis, Data, Diggavi (2023), section 5. Rows
    dealt evenly to owners with at most 8 of 10 classes: Huang, Jiang, Liu, Mahdian, Mao, Mirrokni
    (2023), *Learning across data owners with joint differential privacy*, section 4.1.

    Examples
    --------
    >>> y, y_test = np.repeat([0, 1, 2], 8), np.repeat([0, 1, 2], 4)
    >>> groups, classes = partition_classes(y, 6, 2, random_state=0)
    >>> np.bincount(groups).tolist()
    [4, 4, 4, 4, 4, 4]
    >>> bool(np.isin(y[groups == 5], classes[5]).all())
    True
    >>> for_test, _ = partition_classes(y_test, 6, 2, classes=classes, random_state=0)
    >>> np.bincount(for_test).tolist()
    [2, 2, 2, 2, 2, 2]
    """
    labels, codes, sizes = _read_labels(y)
    _check_at_least(1, n_clients=n_clients, classes_per_client=classes_per_client)
    rng = np.random.default_rng(random_state)
    if classes is None:
        if classes_per_client > len(labels):
            raise ValueError(
                f"classes_per_client must be at most the {len(labels)} classes of y; "
                f"got {classes_per_client}."
            )
        held = draw_classes(n_clients, classes_per_client, len(labels), rng)
    else:
        held = _read_classes(classes, n_clients, classes_per_client, labels)

    if rows_per_client is None:
        counts = deal_classes(held, sizes, rng)
    elif isinstance(rows_per_client, str):
        if rows_per_client != "equal":
            raise ValueError(
                f'rows_per_client must be a number of rows, "equal" or None; '
                f"got {rows_per_client!r}."
            )
        counts = deal_equally(held, sizes, rng)
    else:
        _check_at_least(0, rows_per_client=rows_per_client)
        counts = deal_a_number(held, rows_per_client, rng)
    asked = np.bincount(held.ravel(), weights=counts.ravel(), minlength=len(sizes)).astype(int)
    if np.any(asked > sizes):
        short = int(np.argmax(asked - sizes))
        raise ValueError(
            f"Class {labels[short]} has {sizes[short]} rows, and rows_per_client="
            f"{rows_per_client} for {n_clients} clients takes {asked[short]} of them: ask for "
            f"fewer rows or clients."
        )
    return hand_out(codes, sizes, held, counts, rng), labels[held]


def partition_single_class(
    y: ArrayLike,
    n_clients: int,
    *,
    rows_per_client: int | None = None,
    random_state: Any = None,
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Deal rows to clients who hold one class each.

    The number of clients of a class is proportional to its rows, which are dealt evenly to them. So
    all clients have nearly the same number of rows, also if classes differ in size.

    Parameters
    ----------
    y : array-like of shape (n,)
        Class of each row.
    n_clients : int
        Number of clients, m; at least as many as classes.
    rows_per_client : int, optional
        Rows of a client, or one fewer if the rows of a class do not divide evenly. All rows are
        dealt if None.
    random_state : int, Generator or None
        Seed.

    Returns
    -------
    groups : int ndarray of shape (n,)
        Client of each row, 0, ..., m - 1, or -1 for a row that is not used.
    classes : ndarray of shape (n_clients, 1)
        The class of each client. ``partition_classes(y_test, n_clients, 1, classes=classes)`` deals
        test rows alike.

    Raises
    ------
    ValueError
        If a number is out of range or there are too few rows.

    References
    ----------
    2,000 clients with 30 images of one digit: Aldaghri, Mahdavifar, Beirami (2021), section 5.1.

    Examples
    --------
    >>> y = np.repeat([7, 3], [61, 33])
    >>> groups, classes = partition_single_class(y, 3, rows_per_client=30, random_state=0)
    >>> np.bincount(groups + 1).tolist()
    [4, 30, 30, 30]
    >>> sorted(classes[:, 0].tolist())
    [3, 7, 7]
    """
    labels, codes, sizes = _read_labels(y)
    _check_at_least(1, n_clients=n_clients)
    if n_clients < len(labels):
        raise ValueError(
            f"n_clients must be at least the {len(labels)} classes of y; got {n_clients}."
        )
    rng = np.random.default_rng(random_state)
    holders = apportion(sizes, n_clients)
    held = rng.permutation(np.repeat(np.arange(len(sizes)), holders))[:, None]
    counts = deal_classes(held, sizes, rng)
    if rows_per_client is not None:
        _check_at_least(1, rows_per_client=rows_per_client)
        if (fewest := counts.min()) < rows_per_client - 1:
            raise ValueError(
                f"rows_per_client must be at most {fewest + 1} for {n_clients} clients with one "
                f"class each and {len(codes)} rows; got {rows_per_client}."
            )
        counts = np.minimum(counts, rows_per_client)
    return hand_out(codes, sizes, held, counts, rng), labels[held]


def partition_dirichlet(
    y: ArrayLike,
    n_clients: int,
    concentration: float,
    *,
    min_rows: int = 1,
    shares: ArrayLike | None = None,
    random_state: Any = None,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Deal the rows of each class in shares drawn from a Dirichlet distribution.

    (s_1c, ..., s_mc) ~ Dirichlet(a, ..., a) for each class c, and client i gets the share s_ic of
    its rows. All rows are dealt. A client who gets fewer than `min_rows` is given rows of others,
    drawn at random from those that the others can spare.

    Parameters
    ----------
    y : array-like of shape (n,)
        Class of each row.
    n_clients : int
        Number of clients, m.
    concentration : float
        Parameter a, above 0. Small: few clients hold most of a class. Large: all hold equal shares.
    min_rows : int
        Fewest rows of a client.
    shares : array-like of shape (n_clients, n_classes), optional
        Shares from an earlier call, to deal test rows like training rows. Drawn if None.
    random_state : int, Generator or None
        Seed.

    Returns
    -------
    groups : int ndarray of shape (n,)
        Client of each row, 0, ..., m - 1.
    shares : ndarray of shape (n_clients, n_classes)
        s_ic, for the classes of `y` in order; each column adds up to 1.

    Raises
    ------
    ValueError
        If a number is out of range, `shares` does not fit, or `min_rows` for each client are more
        than there are.

    References
    ----------
    M. Yurochkin, M. Agarwal, S. Ghosh, K. Greenewald, N. Hoang and Y. Khazaeni (2019), *Bayesian
    nonparametric federated learning of neural networks*, section 4.

    Examples
    --------
    >>> y = np.repeat([0, 1], 50)
    >>> groups, shares = partition_dirichlet(y, 4, 0.3, min_rows=5, random_state=0)
    >>> shares.shape, bool(np.bincount(groups).min() >= 5)
    ((4, 2), True)
    """
    labels, codes, sizes = _read_labels(y)
    _check_at_least(1, n_clients=n_clients)
    _check_at_least(0, min_rows=min_rows)
    if not 0 < concentration < np.inf:
        raise ValueError(
            f"concentration must be a finite number above 0, such as 0.5; got {concentration!r}."
        )
    if n_clients * min_rows > len(codes):
        raise ValueError(
            f"min_rows={min_rows} for {n_clients} clients are more than the {len(codes)} rows of y."
        )
    rng = np.random.default_rng(random_state)
    if shares is None:
        drawn = rng.dirichlet(np.full(n_clients, float(concentration)), len(labels)).T
    else:
        drawn = _read_shares(shares, n_clients, len(labels))

    # Cut each class, in random order, where the shares before a client add up.
    cuts = np.rint(np.cumsum(drawn, axis=0) * sizes).astype(int)
    cuts[-1] = sizes
    counts = np.diff(cuts, axis=0, prepend=0)
    held = np.broadcast_to(np.arange(len(labels)), counts.shape)
    groups = hand_out(codes, sizes, held, counts, rng)

    missing = np.maximum(min_rows - np.bincount(groups, minlength=n_clients), 0)
    if missing.any():
        order = rng.permutation(len(groups))
        order = order[np.argsort(groups[order], kind="stable")]
        spare = order[count_up(np.bincount(groups, minlength=n_clients)) >= min_rows]
        given = rng.permutation(spare)[: missing.sum()]
        groups[given] = np.repeat(np.arange(n_clients), missing)
    return groups, drawn


def choose_opted_out(
    client_classes: ArrayLike,
    share: float,
    *,
    skewed_to: Any = None,
    random_state: Any = None,
) -> NDArray[np.bool_]:
    """Choose the clients that opt out of privacy.

    Parameters
    ----------
    client_classes : array-like of shape (n_clients,) or (n_clients, k)
        Classes of each client, as `partition_classes` and `partition_single_class` return them.
    share : float
        Share of clients that opt out, in [0, 1]; rounded to a number of clients.
    skewed_to : label, optional
        Class of the clients that may opt out. All may if None.
    random_state : int, Generator or None
        Seed.

    Returns
    -------
    opted_out : bool ndarray of shape (n_clients,)
        True for those who opt out.

    Raises
    ------
    ValueError
        If `share` is not in [0, 1], or fewer clients than that hold the class.

    References
    ----------
    Aldaghri, Mahdavifar, Beirami (2021), section 5: 5 % of all clients, or as many of those who
    hold the digit 7.

    Examples
    --------
    >>> classes = np.repeat(np.arange(10), 20)
    >>> opted_out = choose_opted_out(classes, 0.05, skewed_to=7, random_state=0)
    >>> int(opted_out.sum()), set(classes[opted_out].tolist())
    (10, {7})
    """
    classes = np.asarray(client_classes)
    if classes.ndim not in (1, 2) or not len(classes):
        raise ValueError(
            f"client_classes must have a row for each client; got an array of "
            f"shape {classes.shape}."
        )
    if not 0 <= share <= 1:
        raise ValueError(f"share must be in [0, 1], such as 0.05; got {share!r}.")
    n_clients = len(classes)
    n_opted_out = round(share * n_clients)
    candidates = np.arange(n_clients)
    if skewed_to is not None:
        holds = classes.reshape(n_clients, -1) == skewed_to
        candidates = np.flatnonzero(holds.any(axis=1))
        if len(candidates) < n_opted_out:
            raise ValueError(
                f"{n_opted_out} clients are to opt out, and {len(candidates)} hold the class "
                f"{skewed_to!r}: share must be at most {len(candidates) / n_clients:.3g}."
            )
    opted_out = np.zeros(n_clients, dtype=bool)
    opted_out[np.random.default_rng(random_state).permutation(candidates)[:n_opted_out]] = True
    return opted_out


def _read_labels(y: ArrayLike) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64]]:
    """Return the classes in order, the number of each row's class, and the rows of each class."""
    y = np.asarray(y)
    if y.ndim != 1 or not len(y):
        raise ValueError(f"y must be a label for each row; got an array of shape {y.shape}.")
    labels, codes, sizes = np.unique(y, return_inverse=True, return_counts=True)
    return labels, codes, sizes


def _read_classes(
    classes: ArrayLike, n_clients: int, classes_per_client: int, labels: NDArray[Any]
) -> NDArray[np.int64]:
    """Return the given classes as positions among the labels of y."""
    given = np.asarray(classes)
    if given.shape != (n_clients, classes_per_client):
        raise ValueError(
            f"classes must have the shape {(n_clients, classes_per_client)}, the classes of each "
            f"client; got {given.shape}."
        )
    if not np.isin(given, labels).all():
        unknown = np.setdiff1d(given, labels)[0]
        raise ValueError(f"classes must be labels of y; {unknown} is not among them.")
    held = np.sort(np.searchsorted(labels, given), axis=1)
    if np.any(held[:, 1:] == held[:, :-1]):
        raise ValueError("classes of one client must differ.")
    return held


def _read_shares(shares: ArrayLike, n_clients: int, n_classes: int) -> NDArray[np.float64]:
    """Check that the columns are shares."""
    given = np.asarray(shares, dtype=float)
    if given.shape != (n_clients, n_classes):
        raise ValueError(
            f"shares must have the shape {(n_clients, n_classes)}, a column for each class; "
            f"got {given.shape}."
        )
    if not np.all(given >= 0) or not np.allclose(given.sum(axis=0), 1):
        raise ValueError("shares must be 0 or more and add up to 1 in each column.")
    return given


def _check_at_least(least: int, **numbers: object) -> None:
    """Check integers by their names."""
    for name, number in numbers.items():
        if not is_integer(number) or number < least:  # type: ignore[operator]
            raise ValueError(f"{name} must be an integer, {least} or more; got {number!r}.")


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
