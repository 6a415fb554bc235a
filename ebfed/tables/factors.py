"""Factors: the rows of many clients' regressions, each client's compressed to a triangle.

All that a linear model needs of a client's rows ``[X_i y_i]`` is their cross-product, which any
R_i with ``R_i' R_i = [X_i y_i]' [X_i y_i]`` gives. The triangular factor of a QR decomposition is
such an R_i of at most p rows, and loses no digits as squares would.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ebfed.tables.clients import LARGEST, SMALLEST, Clients, Summary, joined_ids, weighed_rows

__all__ = ["Factored", "Factors"]

# A column, of size 1, of which others leave less depends on them.
SINGULAR = 1e-4


class Factored:
    """Factors of the rows of clients, whose last axis has the columns of X, and y."""

    ids: NDArray
    n: Any
    rows: NDArray[np.float64]

    def totals(self) -> NDArray[np.int64]:
        """Return the number of rows of each client; see `Clients.totals`."""
        return self.n

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def n_features(self) -> int:
        """Number of columns of X."""
        return self.rows.shape[-1] - 1

    def products(self) -> NDArray[np.float64]:
        """Sum of ``X_i' [X_i y_i]`` over clients, shape (p, p + 1), of rows as they are."""
        flat = self.rows.reshape(-1, self.rows.shape[-1])
        return flat[:, :-1].T @ flat

    def take(self, index: NDArray | slice) -> Self:
        """Keep the clients in these positions (or where a mask is true)."""
        raise NotImplementedError

    def split(self, n_blocks: int) -> list[Self]:
        """Cut into at most `n_blocks` blocks of about as many clients each."""
        if n_blocks == 1 or len(self) < 2:
            return [self]
        places = np.array_split(np.arange(len(self)), min(n_blocks, len(self)))
        return [self.take(slice(place[0], place[-1] + 1)) for place in places]


@dataclass(frozen=True)
class Factors(Factored):
    """What a linear model needs of a block of clients.

    Attributes
    ----------
    ids : ndarray of shape (n_clients,)
    n : int64 ndarray of shape (n_clients,)
        Number of rows.
    rows : ndarray of shape (n_clients, r, d + 1)
        R_i, upper triangular, r at most d + 1; zero rows fill up.
    log_weight : ndarray of shape (n_clients,) or None
        Sums of the logarithms of the weights of rows, where these have some; R_i is then that of
        rows times the roots of their weights.

    Examples
    --------
    >>> clients = Clients.from_rows([[1.0], [2.0], [2.0]], [7, 7, 7], [3.0, 1.0, 0.0])
    >>> factors = Factors.of(clients)
    >>> factors.rows.shape, factors.rows[0].T @ factors.rows[0]
    ((1, 2, 2), array([[ 9.,  5.],
           [ 5., 10.]]))
    """

    ids: NDArray
    n: NDArray[np.int64]
    rows: NDArray[np.float64]
    log_weight: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, clients: Clients, weight: NDArray | None = None) -> Self:
        """Compress clients' rows.

        Parameters
        ----------
        clients : Clients
        weight : ndarray of shape (n_rows,), optional
            Weight of each row, in the order of the clients; rows of weight 0 are not counted.

        Raises
        ------
        ValueError
            If the values of a column are too large or too small to be squared.
        """
        from ebfed.kernels import with_column

        if clients.y is None:
            raise ValueError("y is missing: a regression needs it.")
        columns = (np.ascontiguousarray(each, np.float64) for each in (clients.X, clients.y))
        both = with_column(*columns)
        n, logs = np.diff(clients.indptr), None
        if weight is not None:
            both *= np.sqrt(weight)[:, None]
            n, logs = weighed_rows(np.repeat(np.arange(len(n)), n), weight, len(n))
        rows = _compressed(both, clients.indptr)
        _check_sizes(rows, both)
        return cls(clients.ids, n, rows, logs)

    @classmethod
    def from_moments(cls, summary: Summary, intercept: bool) -> Self:
        """Make factors of means and scatters of ``[X_i y_i]``.

        Parameters
        ----------
        summary : Summary
            With `scatter` of shape (n_clients, d + 1, d + 1).
        intercept : bool
            Whether to put a column of ones first.

        Examples
        --------
        >>> rows = np.array([[1.0, 3.0], [2.0, 1.0]])
        >>> moments = Summary(np.array([7]), np.array([2]), rows.mean(0, keepdims=True),
        ...                   np.cov(rows, rowvar=False, ddof=0)[None] * 2)
        >>> R = Factors.from_moments(moments, intercept=True).rows[0]
        >>> (R.T @ R).round(9)
        array([[ 2.,  3.,  4.],
               [ 3.,  5.,  5.],
               [ 4.,  5., 10.]])
        """
        m, width = summary.mean.shape
        # of columns of one size: in eigenvectors small columns lose the digits that large ones have
        sizes = np.sqrt(np.einsum("njj->nj", summary.scatter))
        over = 1 / np.where(sizes > 0, sizes, 1.0)
        root = _roots(summary.scatter * over[:, :, None] * over[:, None], summary.n)
        root *= sizes[:, None]
        size = np.sqrt(summary.size)[:, None]
        rows = np.zeros((m, width + 1, intercept + width))
        rows[:, 1:, intercept:] = root
        rows[:, 0, :intercept], rows[:, 0, intercept:] = size, size * summary.mean
        # of n rows the scatter has n - 1; what else there is has come of rounding
        kept = np.arange(width, -1, -1) < summary.n[:, None] - 1
        kept[:, 0] = summary.n > 0
        indptr = np.append(0, np.cumsum(kept.sum(axis=1)))
        logs = summary.sums["log_weight"][:, 0] if "log_weight" in summary.sums else None
        factors = _compressed(rows[kept], indptr)
        _check_sizes(factors, summary.mean)
        return cls(summary.ids, summary.n, factors, logs)

    def padded(self, size: int) -> NDArray[np.float64]:
        """Rows, with zeros up to `size` of them for each client."""
        if size == self.rows.shape[1]:
            return self.rows
        return np.pad(self.rows, [(0, 0), (0, size - self.rows.shape[1]), (0, 0)])

    def take(self, index: NDArray | slice) -> Self:
        logs = None if self.log_weight is None else self.log_weight[index]
        return type(self)(self.ids[index], self.n[index], self.rows[index], logs)

    def joined(self, ids: NDArray) -> Self:
        """Compress the rows of clients with one number to those of one client, with this label.

        Parameters
        ----------
        ids : ndarray of shape (n_clients,)
            Labels; `self.ids` are places in it.
        """
        has_data = self.rows.any(axis=2)
        owner = np.repeat(self.ids, has_data.sum(axis=1))
        order = np.argsort(owner, kind="stable")
        counts = np.bincount(owner, minlength=len(ids))
        indptr = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        n = np.bincount(self.ids, self.n, len(ids)).astype(np.int64)
        logs = None
        if self.log_weight is not None:
            logs = np.bincount(self.ids, self.log_weight, len(ids)).astype(float)
        return type(self)(ids, n, _compressed(self.rows[has_data][order], indptr), logs)

    def merge(self, other: Self) -> Self:
        """Compress the union of the rows behind two blocks, which may share clients.

        Raises
        ------
        ValueError
            If the two have different numbers of columns.
        """
        if self.n_features != other.n_features:
            raise ValueError(
                f"cannot merge regressions on {self.n_features} columns with some on "
                f"{other.n_features}."
            )
        ids, codes = joined_ids(self.ids, other.ids)
        size = max(self.rows.shape[1], other.rows.shape[1])
        logs = None
        if self.log_weight is not None or other.log_weight is not None:  # those of others are 1
            logs = np.concatenate(
                [np.zeros(len(x)) if x.log_weight is None else x.log_weight for x in (self, other)]
            )
        rows = np.concatenate([self.padded(size), other.padded(size)])
        return type(self)(codes, np.concatenate([self.n, other.n]), rows, logs).joined(ids)


def _roots(products: NDArray, n: NDArray) -> NDArray[np.float64]:
    """Return matrices R with R'R = these, of columns of size 1 or 0, added up over n rows each.

    Those of eigenvectors have rows in order of size. Triangular ones take a tenth of the time, and
    are had where no column depends on others.
    """
    m, width = products.shape[:2]
    root, rest = np.empty_like(products), np.ones(m, bool)
    full = n > width
    alone = np.eye(width) * (np.einsum("njj->nj", products)[full] == 0)[:, None]
    with suppress(np.linalg.LinAlgError):
        found = np.linalg.cholesky(products[full] + alone).swapaxes(1, 2)
        clear = np.einsum("njj->nj", found).min(axis=1) > SINGULAR
        root[np.flatnonzero(full)[clear]] = found[clear]
        rest[np.flatnonzero(full)[clear]] = False
    values, vectors = np.linalg.eigh(products[rest])
    root[rest] = np.sqrt(np.maximum(values, 0))[:, :, None] * vectors.swapaxes(1, 2)
    return root


def _check_sizes(rows: NDArray, columns: NDArray) -> None:
    """Refuse compressed rows of which the squares, added up, leave the range of numbers.

    `columns` has what the last columns were compressed from.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        flat = rows.reshape(-1, rows.shape[2])
        sizes = np.sqrt(np.einsum("np,np->p", flat, flat))
    lost = sizes == 0
    small = (sizes < SMALLEST) & ~lost
    if lost.any():  # squares may have been too small to be counted
        first = len(sizes) - columns.shape[1]
        small[first:] |= lost[first:] & columns.any(axis=0)
    if small.any() or not np.all(sizes < LARGEST):
        raise ValueError(
            f"the values of a column of X or y must not be larger than {LARGEST:g}, or all "
            f"smaller than {SMALLEST:g} and not 0: their squares leave the range of float64. "
            "Rescale the data."
        )


def _compressed(rows: NDArray, indptr: NDArray[np.int64]) -> NDArray[np.float64]:
    from ebfed.kernels import triangular_factors

    size = min(rows.shape[1], int(np.diff(indptr).max(initial=0)))
    return triangular_factors(rows, indptr, size)
