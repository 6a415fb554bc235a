"""Clients' generalized linear models by Laplace's approximation (Tierney and Kadane, 1986).

Any number of coefficients may differ between clients. Slopes are exact; second derivatives are
differences of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ebfed import kernels
from ebfed.regression.families import ResponseFamily, Responses
from ebfed.tables.clients import Clients

__all__ = ["JointRows", "Modes", "second_derivatives"]

MOST_STEPS = 200
# Steps of differences, where columns have unit size: of slopes, and of log-likelihoods.
STEP, SHAPE_STEP = 1e-4, 1e-3


@dataclass(frozen=True)
class Modes:
    """What Laplace's approximation finds.

    Attributes
    ----------
    mode : ndarray of shape (n_coefficients,)
        Modes of all clients' standard normal coefficients, client after client.
    evidence : ndarray of shape (n_clients,)
    push : ndarray of shape (n_rows,)
    pull : ndarray of shape (n_rows, k)
        Slopes by rows; see `kernels.joint_modes`.
    bend : ndarray of shape (n_rows,)
        Minus the second derivatives of rows.
    spread : ndarray of shape (n_squares,)
        Inverse curvatures, client after client.
    """

    mode: NDArray
    evidence: NDArray
    push: NDArray
    pull: NDArray
    bend: NDArray
    spread: NDArray


@dataclass(frozen=True)
class JointRows:
    """Rows, and which coefficients of their client they have.

    Attributes
    ----------
    responses : Responses
    family : ResponseFamily
    indptr, starts, squares : int64 ndarray of shape (n_clients + 1,)
        Ends of clients in rows, coefficients, and squares of numbers of coefficients.
    slot : int64 ndarray of shape (n_rows, k)
        Which of its client's coefficients a row has.
    """

    responses: Responses
    family: ResponseFamily
    indptr: NDArray[np.int64]
    starts: NDArray[np.int64]
    squares: NDArray[np.int64]
    slot: NDArray[np.int64]

    @classmethod
    def of(cls, clients: Clients, responses: Responses, family: ResponseFamily, q: int) -> Self:
        """Return rows whose clients have q coefficients each."""
        m, n = len(clients), len(responses.y)
        slot = np.ascontiguousarray(np.broadcast_to(np.arange(q), (n, q)))
        line = np.arange(m + 1)
        return cls(responses, family, clients.indptr, line * q, line * q * q, slot)

    def find(
        self, X: NDArray, offset: NDArray, shapes: NDArray, start: NDArray | None = None
    ) -> Modes:
        """Find the modes.

        Parameters
        ----------
        X : ndarray of shape (n_rows, k)
            What multiplies the coefficients.
        offset : ndarray of shape (n_rows,)
            Linear predictor where these are zero.
        shapes : ndarray of shape (t,)
        start : ndarray of shape (n_coefficients,), optional
        """
        n, m = len(offset), len(self.indptr) - 1
        mode = np.zeros(self.starts[-1]) if start is None else start.copy()
        found = Modes(
            mode,
            np.empty(m),
            np.empty(n),
            np.empty(X.shape),
            np.empty(n),
            np.empty(self.squares[-1]),
        )
        rows = self.responses
        kernels.joint_modes(
            np.ascontiguousarray(X), self.slot, offset, rows.y, rows.weight, self.indptr,
            self.starts, self.squares, self.family.kind, self.family.in_kernel(shapes), MOST_STEPS,
            found.mode, found.evidence, found.push, found.pull, found.bend, found.spread,
        )  # fmt: skip
        return found

    def sums(self, values: NDArray) -> NDArray[np.float64]:
        """Sum rows by client."""
        total = np.zeros((len(self.indptr) - 1, values.shape[1]))
        np.add.at(total, np.repeat(np.arange(len(total)), np.diff(self.indptr)), values)
        return total

    def slopes(
        self,
        design: NDArray,
        mean: NDArray,
        root: NDArray,
        places: NDArray,
        entries: tuple[NDArray, NDArray],
        shapes: NDArray,
        start: NDArray | None,
    ) -> tuple[NDArray, NDArray, NDArray]:
        """Approximation, its slopes in mean, entries of the root and shapes, and the modes."""
        X = design[:, places] @ root
        offset = design @ mean + self.responses.offset
        found = self.find(X, offset, shapes, start)
        by_root = design[:, places[entries[0]]] * found.pull[:, entries[1]]
        score = self.sums(np.column_stack([design * found.push[:, None], by_root]))
        by_shape = []
        for move in SHAPE_STEP * np.eye(len(shapes)):
            ends = [self.find(X, offset, shapes + s * move, found.mode).evidence for s in (1, -1)]
            by_shape.append((ends[0] - ends[1]) / (2 * SHAPE_STEP))
        score = np.column_stack([score, *by_shape])
        return found.evidence, score, found.mode


def second_derivatives(slopes: Callable[[NDArray], NDArray], point: NDArray) -> NDArray[np.float64]:
    """Lower halves (m, d (d + 1) / 2) of differences of slopes, which are (m, d)."""
    d = len(point)
    whole = np.stack(
        [(slopes(point + move) - slopes(point - move)) / (2 * STEP) for move in STEP * np.eye(d)],
        axis=1,
    )
    rows, columns = np.tril_indices(d)
    return (whole[:, rows, columns] + whole[:, columns, rows]) / 2
