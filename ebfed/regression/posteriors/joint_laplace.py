"""Groups' generalized linear models by Laplace's approximation (Tierney and Kadane, 1986).

Any number of coefficients may differ between groups, and groups may be within groups. Slopes are
exact; second derivatives are differences of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ebfed import kernels
from ebfed.regression.families import ResponseFamily, Responses
from ebfed.regression.posteriors.logistic import NormalCoefficients
from ebfed.tables.clients import Clients
from ebfed.tables.trees import Tree

__all__ = ["JointRows", "Modes", "second_derivatives"]

MOST_STEPS = 200
# Step of differences of slopes, where columns have unit size.
STEP = 1e-4


@dataclass(frozen=True)
class Modes:
    """What Laplace's approximation finds.

    Attributes
    ----------
    mode : ndarray of shape (n_nodes, K)
        Modes of the standard normal coefficients of the path to each node.
    evidence : ndarray of shape (n_tops,)
    push : ndarray of shape (n_rows,)
    pull : ndarray of shape (n_rows, K)
        Slopes by rows; see `kernels.joint_modes`.
    bend : ndarray of shape (n_rows,)
        Minus the second derivatives of rows.
    by_shape : ndarray of shape (n_rows, n_shapes)
        What rows add to slopes in shapes, or thresholds.
    """

    mode: NDArray
    evidence: NDArray
    push: NDArray
    pull: NDArray
    bend: NDArray
    by_shape: NDArray


@dataclass(frozen=True)
class JointRows:
    """Rows of clients, which are the groups of the lowest level.

    Attributes
    ----------
    responses : Responses
    family : ResponseFamily
    indptr : int64 ndarray of shape (n_clients + 1,)
        Ends of clients in rows.
    tree : Tree
    ends : int64 ndarray of shape (n_levels + 1,)
        Ends of levels in the K coefficients of a path.
    """

    responses: Responses
    family: ResponseFamily
    indptr: NDArray[np.int64]
    tree: Tree
    ends: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        clients: Clients,
        responses: Responses,
        family: ResponseFamily,
        sizes: Sequence[int] | NDArray,
    ) -> Self:
        """Return rows of groups with these numbers of coefficients, by level from the top."""
        tree = clients.tree(len(sizes))
        return cls(responses, family, clients.indptr, tree, np.cumsum([0, *sizes]))

    def find(
        self, X: NDArray, offset: NDArray, shapes: NDArray, start: NDArray | None = None
    ) -> Modes:
        """Find the modes.

        Parameters
        ----------
        X : ndarray of shape (n_rows, K)
            What multiplies the coefficients.
        offset : ndarray of shape (n_rows,)
            Linear predictor where these are zero.
        shapes : ndarray of shape (t,)
        start : ndarray of shape (n_clients, K), optional
            Coefficients of the path to each client, where the search starts.
        """
        tree, n = self.tree, len(offset)
        K = self.ends[-1]
        mode = np.zeros((len(tree.level), K)) if start is None else start[tree.first]
        found = Modes(
            mode,
            np.empty(len(tree.tops) - 1),
            np.empty(n),
            np.empty((n, K)),
            np.empty(n),
            np.empty((n, len(shapes))),
        )
        own = np.zeros(len(tree.level) + 1, np.int64)
        own[tree.leaf + 1] = np.diff(self.indptr)
        rows = self.responses
        kernels.joint_modes(
            np.ascontiguousarray(X), offset, rows.y, rows.weight, np.cumsum(own), tree.parent,
            tree.level, tree.tops, self.ends, self.family.kind, self.family.in_kernel(shapes),
            MOST_STEPS, found.mode, found.evidence, found.push, found.pull, found.bend,
            found.by_shape,
        )  # fmt: skip
        return found

    def sums(self, values: NDArray) -> NDArray[np.float64]:
        """Sum rows by client."""
        total = np.zeros((len(self.indptr) - 1, *values.shape[1:]))
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
        """Approximation, its slopes in mean, entries of the root and shapes, and the modes.

        They are of clients; of groups within groups, the approximation is with the first client of
        each group of the top.
        """
        X = design[:, places] @ root
        offset = design @ mean + self.responses.offset
        found = self.find(X, offset, shapes, start)
        by_root = design[:, places[entries[0]]] * found.pull[:, entries[1]]
        turn = self.family.turn(shapes)
        by_shape = found.by_shape if turn is None else found.by_shape @ turn
        score = self.sums(np.column_stack([design * found.push[:, None], by_root, by_shape]))
        return self._first(found.evidence), score, found.mode[self.tree.leaf]

    def _first(self, of_tops: NDArray) -> NDArray[np.float64]:
        """Figures of the groups of the top, with the first client of each."""
        out = np.zeros(len(self.tree.leaf))
        out[self.tree.first[self.tree.tops[:-1]]] = of_tops
        return out

    def posteriors(
        self,
        design: NDArray,
        shapes: NDArray,
        mean: NDArray,
        roots: Sequence[NDArray],
        mean_covariance: NDArray,
    ) -> list[NormalCoefficients]:
        """Posteriors of the coefficients of the groups of each level, from the top.

        With R the root of the covariance of a level, and S a group's information ``sum x W x'``
        from its rows, given its parent the covariance is ``R (1 + R' S R)^-1 R'``, and the slope A
        in the parent's coefficients is ``1 - R (1 + R' S R)^-1 R' S``. Of its parent a group says
        ``S A``.

        Parameters
        ----------
        design : ndarray of shape (n_rows, p)
        shapes : ndarray of shape (t,)
        mean : ndarray of shape (p,)
        roots : sequence of ndarray of shape (p, q)
            Roots of the covariances of levels, from the top.
        mean_covariance : ndarray of shape (p, p)
            Sampling covariance of `mean`.
        """
        tree, p, path = self.tree, len(mean), np.column_stack(roots)
        offset = design @ mean + self.responses.offset
        found = self.find(design @ path, offset, shapes)
        of_level = [tree.nodes(level) for level in range(len(roots))]
        known = self.sums(found.bend[:, None, None] * design[:, :, None] * design[:, None, :])
        parts: list[tuple[NDArray, NDArray]] = []
        for level in range(len(roots) - 1, -1, -1):
            root = roots[level]
            own = np.eye(root.shape[1]) + root.T @ known @ root
            own = root @ np.linalg.solve(own, np.broadcast_to(root.T, (len(own), *root.T.shape)))
            away = np.eye(p) - own @ known
            parts.insert(0, (own, away))
            if level:
                above = of_level[level - 1]
                places = np.searchsorted(above, tree.parent[of_level[level]])
                whole = np.zeros((len(above), p, p))
                np.add.at(whole, places, known @ away)
                known = (whole + whole.swapaxes(1, 2)) / 2
        posteriors: list[NormalCoefficients] = []
        for level, (own, away) in enumerate(parts):
            nodes, k = of_level[level], self.ends[level + 1]
            centre = mean + found.mode[nodes, :k] @ path[:, :k].T
            parents = None
            if level:
                places = np.searchsorted(of_level[level - 1], tree.parent[nodes])
                parents = posteriors[-1], places
            posteriors.append(NormalCoefficients(centre, own, away, mean_covariance, parents))
        return posteriors


def second_derivatives(slopes: Callable[[NDArray], NDArray], point: NDArray) -> NDArray[np.float64]:
    """Lower halves (m, d (d + 1) / 2) of differences of slopes, which are (m, d)."""
    d = len(point)
    whole = np.stack(
        [(slopes(point + move) - slopes(point - move)) / (2 * STEP) for move in STEP * np.eye(d)],
        axis=1,
    )
    rows, columns = np.tril_indices(d)
    return (whole[:, rows, columns] + whole[:, columns, rows]) / 2
