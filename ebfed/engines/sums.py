"""Sums over clients that are the same wherever the clients are, to the last bit.

Sums of floats depend on the order of their terms, and so on how clients are cut into blocks. Here
a sum is a function of its terms alone: the exact sum, rounded once (`total`). A block may send the
exact sum over its clients in their place (`add_up`); the server then adds the sums of blocks, and
has what it would have had from all clients.

An exact sum of arbitrary floats has more digits than a float. Of what each client sends, a thousand
numbers at a time, `fixed_point` cuts off digits far below those of the largest, and of the number
that the sum will move. What is left adds up without rounding in nearly every case, and is sent as
one float for each number. In the others a sum is sent as several rows, whose exact sum it is.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ebfed import kernels
from ebfed.kernels.sums import PIECE
from ebfed.kernels.threads import in_parts

__all__ = [
    "LARGEST_SUM",
    "MOST_ROWS",
    "Columns",
    "Share",
    "add_fixed",
    "add_up",
    "check_share",
    "check_sums",
    "fixed_point",
    "largest",
    "sums_of",
    "total",
    "totals_of",
]

Share = Literal["groups", "sums"]

# Sums of figures are smaller: squares of rows of any size that is read, of any number of them.
LARGEST_SUM = 1e150
# Integers of the size of floats, whose bits they can hold.
INTEGERS: dict[str, Any] = {"float64": np.int64, "float32": np.int32}
# Largest number of rows of an exact sum: all digits that a float may have, 53 in each.
MOST_ROWS = 64
# Digits of a float that a client's largest number may be above another client's; and that digits
# cut off are below those of the number that is moved.
ROOM, BELOW = 6, 51
# Largest number of digits that are kept free for the number of clients.
MOST_FREE = 20
# Columns that are computed, and added up, at once: whole pieces, few enough to stay in a cache. And
# how many numbers are worth a thread.
AT_ONCE, ENOUGH = 32 * PIECE, 2**17


class Columns(ABC):
    """A matrix with a row for each client, of which a few columns are computed at once.

    `np.asarray` makes an array of it.

    Attributes
    ----------
    shape : tuple of int
    dtype : dtype
    """

    shape: tuple[int, int]
    dtype: np.dtype

    @abstractmethod
    def compute(self, first: int, last: int) -> tuple[NDArray, int]:
        """Compute the columns from `first` to below `last`.

        Returns
        -------
        values : C-contiguous ndarray of shape (c, k)
        skip : int
            Which of its columns is the first one asked for.
        """

    def __len__(self) -> int:
        """How many rows there are."""
        return self.shape[0]

    @property
    def size(self) -> int:
        """How many numbers there are."""
        return math.prod(self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        """Compute all columns."""
        whole = np.empty(self.shape, self.dtype if dtype is None else dtype)
        for first in range(0, self.shape[1], AT_ONCE):
            last = min(first + AT_ONCE, self.shape[1])
            values, skip = self.compute(first, last)
            whole[:, first:last] = values[:, skip : skip + last - first]
        return whole


def fixed_point(
    values: NDArray[np.float64], n_clients: int, beside: float = 0.0, copy: bool = True
) -> NDArray[np.float64]:
    """Cut off the last digits of what clients send, so that sums over clients are exact floats.

    Digits are cut towards zero, so that no norm grows. A client's numbers are cut in pieces of
    `PIECE` columns, each beside its own largest number.

    Parameters
    ----------
    values : ndarray of shape (c, size)
        A row for each client.
    n_clients : int
        Number of clients of the whole federation.
    beside : float
        Size of the number that the sum moves: digits far below its own are cut off, too.
    copy : bool
        Whether `values` must stay as they are.

    Returns
    -------
    ndarray of shape (c, size)

    Examples
    --------
    >>> fixed_point(np.array([[1.0, 1e-20], [0.1, 3.0]]), 2)
    array([[1. , 0. ],
           [0.1, 3. ]])
    """
    values = np.array(values, np.float64, order="C", copy=copy or None)
    kernels.shorten_digits(values, *_digits(n_clients, beside))
    return values


def _digits(n_clients: int, beside: float) -> tuple[int, float]:
    """Return how many digits of a client's largest number are left, and the least one left."""
    free = min(math.ceil(math.log2(max(n_clients, 1))), MOST_FREE)
    least = 0.0
    if 0 < beside < math.inf:
        least = math.ldexp(1.0, max(math.frexp(beside)[1] - BELOW + free, -1022))
    return 53 - ROOM - free, least


def largest(values: NDArray[np.float64]) -> float:
    """Return the size of the largest number of an array; it is finite if all are.

    Examples
    --------
    >>> largest(np.array([1.0, -3.0]))
    3.0
    """
    digits = np.ascontiguousarray(values, np.float64).reshape(-1).view(np.int64)
    top = kernels.largest_size(digits, np.int64(np.iinfo(np.int64).min))
    return float(np.int64(top).view(np.float64))


def total(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Add up the rows of an array exactly, and round once: no order of rows gives another sum.

    Parameters
    ----------
    values : ndarray of shape (n, size)

    Returns
    -------
    ndarray of shape (size,)
        Sums that are not finite where terms, or sums, are not; a view of the row if there is one.

    Examples
    --------
    >>> total(np.array([[1e16], [1.0], [-1e16]]))
    array([1.])
    """
    if len(values) == 1:
        return np.asarray(values[0], np.float64)
    sums, exact = _sums(values)
    return sums if exact else _rounded(_parts(values))


def add_fixed(
    values: NDArray | Columns,
    before: NDArray[np.float64] | None,
    n_clients: int,
    beside: float = 0.0,
) -> NDArray[np.float64]:
    """Add rows to an exact sum, as `fixed_point` would leave them.

    Parameters
    ----------
    values : ndarray or Columns of shape (c, size)
        Of 64 or 32 bits.
    before : ndarray of shape (k, size) or None
        What was added up before.
    n_clients, beside
        As in `fixed_point`.

    Returns
    -------
    ndarray of shape (l, size)
        As `add_up` returns it.

    Examples
    --------
    >>> add_fixed(np.array([[1.0, 1e-20]]), np.array([[2.0, 3.0]]), 2)
    array([[3., 3.]])
    """
    if before is None or len(before) == 1:
        sums = _added(values, before, *_digits(n_clients, beside))
        if sums is not None:
            return sums[None]
    return add_up(fixed_point(np.asarray(values), n_clients, beside), before)


def _added(
    values: NDArray | Columns, before: NDArray[np.float64] | None, bits: int, least: float
) -> NDArray[np.float64] | None:
    """Add rows of which digits are cut off, and one before; None unless nothing is rounded."""
    integer = INTEGERS.get(values.dtype.name)
    if integer is None:
        return None
    if isinstance(values, np.ndarray):
        values = np.ascontiguousarray(values)
    sign, sums = integer(np.iinfo(integer).min), np.empty(values.shape[1])
    start = _start(before)

    def add(begin: int, end: int) -> bool:
        stop = min(end * AT_ONCE, len(sums))
        firsts = range(begin * AT_ONCE, stop, AT_ONCE)
        return all(add_some(first, min(first + AT_ONCE, stop)) for first in firsts)

    def add_some(first: int, last: int) -> bool:
        some, skip = values.compute(first, last) if isinstance(values, Columns) else (values, first)
        kind = some, some.view(integer), sign, bits, least, skip
        return kernels.add_shortened(*kind, start[first:last], sums[first:last])

    # columns that are computed together are the same for any number of threads
    enough = -(-ENOUGH // max(len(values) * AT_ONCE, 1))
    return sums if all(in_parts(add, -(-len(sums) // AT_ONCE), enough)) else None


def add_up(
    values: NDArray[np.float64], before: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Add up the rows of an array exactly, into as few rows as have the same exact sum.

    Parameters
    ----------
    values : ndarray of shape (n, size)
    before : ndarray of shape (k, size), optional
        What was added up before: the sum is of these rows, too.

    Returns
    -------
    ndarray of shape (k, size)
        The rounded sum, then what rounding has left of it, and so on; k is 1 if the sum is a float,
        and 0 if there are no rows.

    Examples
    --------
    >>> add_up(np.array([[1e16], [1.0], [1.0]]))
    array([[1.e+16]])
    >>> add_up(np.array([[1e16], [1.0]]))
    array([[1.e+16],
           [1.e+00]])
    """
    if before is not None and len(before) != 1:
        values, before = np.vstack([before, values]), None
    if before is None and len(values) < 2:
        return values
    sums, exact = _sums(values, before)
    if exact:
        return sums[None]
    values = values if before is None else np.vstack([before, values])
    parts, rows = _parts(values), [_rounded(_parts(values))]
    while (rest := _rounded(np.vstack([parts, *(-row[None] for row in rows)]))).any():
        rows.append(rest)
    return np.array(rows)


def sums_of(parts: dict[str, NDArray]) -> dict[str, NDArray[np.float64]]:
    """Return the exact sums over clients, by name, of arrays with an entry for each client.

    Returns
    -------
    dict of ndarrays of shape (k, size)
        Also ``"clients"``, how many they are.
    """
    n = len(next(iter(parts.values())))
    sums = {name: add_up(values.reshape(n, -1)) for name, values in parts.items()}
    return sums | {"clients": np.array([[float(n)]])}


def totals_of(
    message: dict[str, NDArray], shapes: dict[str, tuple[int, ...]], n_clients: int
) -> dict[str, NDArray[np.float64]]:
    """Return the sums over all blocks, in their shapes, of what `sums_of` returned for each.

    Raises
    ------
    ValueError
        If they are not sums over all clients: those of one round would not fit another's.
    """
    if (count := int(total(message["clients"])[0])) != n_clients:
        raise ValueError(
            f"share='sums' needs the answers of all clients in every round; {count} of {n_clients} "
            "answered. Use share='groups' where nodes may be silent."
        )
    return {name: total(message[name]).reshape(shape) for name, shape in shapes.items()}


def check_sums(message: Any, shapes: dict[str, tuple[int, ...]], n_clients: int) -> None:
    """Raise a ValueError if a message does not have sums over clients of these shapes."""
    shapes = {**shapes, "clients": ()}
    if not isinstance(message, dict) or message.keys() != shapes.keys():
        raise ValueError(f"a message must have the parts {', '.join(shapes)}.")
    for name, shape in shapes.items():
        sums: Any = message[name]
        size = math.prod(shape)
        sound = isinstance(sums, np.ndarray) and sums.dtype == np.float64 and sums.ndim == 2
        if not (sound and min(n_clients, 1) <= len(sums) <= MOST_ROWS and sums.shape[1] == size):
            raise ValueError(f"{name} must be at most {MOST_ROWS} rows of {size} sums.")
        if not (np.abs(sums) < LARGEST_SUM).all():
            raise ValueError(f"{name} must be finite, and below {LARGEST_SUM:g} in size.")
    if message["clients"].tolist() != [[n_clients]]:
        raise ValueError(f"clients must be the {n_clients} of the block.")


def check_share(share: object) -> None:
    """Raise a ValueError if that is no way of sharing.

    Examples
    --------
    >>> check_share("rows")
    Traceback (most recent call last):
    ...
    ValueError: share must be 'groups' or 'sums'; got 'rows'.
    """
    if share not in get_args(Share):
        raise ValueError(f"share must be 'groups' or 'sums'; got {share!r}.")


def _start(before: NDArray | None) -> NDArray[np.float64]:
    """Return the row that was added up before, or an empty one."""
    return np.zeros(0) if before is None else np.require(before[0], np.float64, "W")


def _sums(values: NDArray, before: NDArray | None = None) -> tuple[NDArray[np.float64], bool]:
    """Add up rows; say whether the sums are exact, or not finite, so that nothing can be done."""
    values = np.require(values, np.float64, ["C", "W"])
    sums = np.empty(values.shape[1])
    exact = kernels.column_sums(values, _start(before), sums)
    return sums, exact or not np.isfinite(sums).all()


def _parts(values: NDArray) -> NDArray[np.float64]:
    """Return few rows with the same exact sum, by taking the leading digits of all terms again.

    Rump, Ogita and Oishi (2008), Accurate floating-point summation, Algorithm 3.2.
    """
    rest, parts = np.array(values), list[NDArray]()
    room = math.ceil(math.log2(len(values) + 2))
    while rest.any():
        top = np.abs(rest).max(axis=0)
        with np.errstate(over="ignore"):
            sigma = np.where(top > 0, np.ldexp(1.0, np.frexp(top)[1] + room), 0.0)
        if not np.isfinite(sigma).all():
            return np.vstack([*parts, *rest])
        leading = (sigma + rest) - sigma
        parts.append(leading.sum(axis=0))
        rest -= leading
    return np.array(parts)


def _rounded(parts: NDArray) -> NDArray[np.float64]:
    """Round exact sums of the columns of a few rows."""
    return np.array([math.fsum(column) for column in parts.T.tolist()])
