"""Groups' generalized linear models by Gaussian approximations of their posteriors.

Laplace's (Tierney and Kadane, 1986) is of all families; any number of coefficients may differ
between groups, and groups may be within groups. Its slopes are exact; second derivatives are
differences of them. Expectation propagation (Minka, 2001) is of binomial rows of one level, where
groups of few rows have posteriors so skewed that Laplace's approximation fails: it takes wide
populations of more coefficients than rows to be far too likely.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from ebfed import kernels
from ebfed.regression.families import ResponseFamily, Responses
from ebfed.regression.posteriors.normal import NormalCoefficients
from ebfed.tables.clients import Clients
from ebfed.tables.trees import Tree

__all__ = ["Approximation", "GaussianRows", "Match"]

Approximation = Literal["ep", "laplace"]

MOST_STEPS = 200
# A client's propagation ends when nothing moves by more than this share of its deviation.
TOLERANCE = 1e-8
# Step of differences of slopes, where columns have unit size.
STEP = 1e-4


@dataclass(frozen=True)
class Match:
    """What an approximation finds.

    Attributes
    ----------
    mode : ndarray of shape (n_nodes, K)
        Modes, or means, of the standard normal coefficients of the path to each node.
    evidence : ndarray of shape (n_tops,)
    push : ndarray of shape (n_rows,)
    pull : ndarray of shape (n_rows, K)
        Slopes by rows; see `kernels.joint_modes`.
    bend : ndarray of shape (n_rows,)
        Minus the second derivatives of rows, or of what stands in for them.
    by_shape : ndarray of shape (n_rows, n_shapes)
        What rows add to slopes in shapes, or thresholds.
    sites : tuple of ndarray of shape (n_rows, 2)
        What stands in for rows; see `kernels.expectation_propagation`.
    """

    mode: NDArray
    evidence: NDArray
    push: NDArray
    pull: NDArray
    bend: NDArray
    by_shape: NDArray
    sites: tuple[NDArray, NDArray]


@dataclass(frozen=True)
class GaussianRows:
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
    how : {"ep", "laplace"}
    """

    responses: Responses
    family: ResponseFamily
    indptr: NDArray[np.int64]
    tree: Tree
    ends: NDArray[np.int64]
    how: Approximation

    @classmethod
    def of(
        cls,
        clients: Clients,
        responses: Responses,
        family: ResponseFamily,
        sizes: Sequence[int] | NDArray,
        how: Approximation,
    ) -> Self:
        """Return rows of groups with these numbers of coefficients, by level from the top."""
        tree = clients.tree(len(sizes))
        return cls(responses, family, clients.indptr, tree, np.cumsum([0, *sizes]), how)

    def find(
        self,
        X: NDArray,
        offset: NDArray,
        shapes: NDArray,
        start: NDArray | None = None,
        sites: tuple[NDArray, NDArray] | None = None,
    ) -> Match:
        """Find modes, or means.

        Parameters
        ----------
        X : ndarray of shape (n_rows, K)
            What multiplies the coefficients.
        offset : ndarray of shape (n_rows,)
            Linear predictor where these are zero.
        shapes : ndarray of shape (t,)
        start : ndarray of shape (n_clients, K), optional
            Coefficients of the path to each client, where the search starts.
        sites : tuple of ndarray of shape (n_rows, 2), optional
            What stands in for rows, where propagation starts.
        """
        tree, n = self.tree, len(offset)
        K = self.ends[-1]
        mode = np.zeros((len(tree.level), K)) if start is None else start[tree.first]
        found = Match(
            mode,
            np.empty(len(tree.tops) - 1),
            np.empty(n),
            np.empty((n, K)),
            np.empty(n),
            np.empty((n, len(shapes))),
            (np.empty((n, 2)), np.empty((n, 2))) if sites is None else sites,
        )
        if self.how == "ep":
            kernels.expectation_propagation(
                np.ascontiguousarray(X), offset, self.responses.y, self.responses.weight,
                self.indptr, TOLERANCE, MOST_STEPS, sites is None, *found.sites, found.mode,
                found.evidence, found.push, found.pull, found.bend,
            )  # fmt: skip
            return found
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

    def moments(self, X: NDArray, offset: NDArray) -> tuple[NDArray, NDArray, NDArray]:
        """Mean, covariance and evidence of clients of one level, as `find` finds them."""
        found = self.find(X, offset, np.zeros(0))
        information = self.sums(found.bend[:, None, None] * X[:, :, None] * X[:, None, :])
        return found.mode, np.linalg.inv(np.eye(X.shape[1]) + information), found.evidence

    def sums(self, values: NDArray) -> NDArray[np.float64]:
        """Sum rows by client."""
        flat = np.ascontiguousarray(values.reshape(len(values), math.prod(values.shape[1:])))
        total = kernels.sums_of_clients(flat, self.indptr)
        return total.reshape(len(total), *values.shape[1:])

    def derivatives(
        self,
        design: NDArray,
        mean: NDArray,
        root: NDArray,
        places: NDArray,
        entries: tuple[NDArray, NDArray],
        shapes: NDArray,
        start: NDArray | None,
        exact: bool,
    ) -> tuple[NDArray, NDArray, NDArray, NDArray]:
        """Approximation with derivatives in mean, entries of the root and shapes; and the modes.

        They are of clients; of groups within groups, the approximation is with the first client of
        each group of the top. Second derivatives are lower halves, (m, d (d + 1) / 2); of one level
        those in mean and root hold what stands in for rows, unless they are to be `exact`.
        """
        point = np.concatenate([mean, root[entries], shapes])
        r, k = len(mean), len(mean) + len(entries[0])

        def at(
            point: NDArray, start: NDArray | None, sites: tuple[NDArray, NDArray] | None = None
        ) -> tuple[Match, NDArray]:
            moved = root.copy()
            moved[entries], shapes = point[r:k], point[k:]
            # einsum: products of matrices round differently for blocks of different lengths
            X = np.einsum("nq,qk->nk", design[:, places], moved)
            offset = np.einsum("nr,r->n", design, point[:r]) + self.responses.offset
            found = self.find(X, offset, shapes, start, sites)
            by_root = design[:, places[entries[0]]] * found.pull[:, entries[1]]
            turn = self.family.turn(shapes)
            by_shape = found.by_shape if turn is None else found.by_shape @ turn
            by_rows = [design * found.push[:, None], by_root, by_shape]
            return found, self.sums(np.column_stack(by_rows))

        found, score = at(point, start)
        mode, sites = found.mode[self.tree.leaf], found.sites if self.how == "ep" else None
        square = np.zeros((len(score), len(point), len(point)))
        known = 0 if exact or len(self.ends) > 2 else k
        if known:
            square[:, :k, :k] = self._frozen(found, design, root, places, entries)
        for j in range(known, len(point)):  # sites follow the parameters from each to the next
            move = STEP * (np.arange(len(point)) == j)
            ahead, back = (at(point + each, mode, sites)[1] for each in (move, -move))
            square[:, j] = (ahead - back) / (2 * STEP)
        square[:, :known, known:] = square[:, known:, :known].swapaxes(1, 2)
        curvature = (square + square.swapaxes(1, 2)) / 2
        # one order in memory, whatever the number of blocks: sums over clients depend on it
        lower = np.ascontiguousarray(curvature[:, *np.tril_indices(len(point))])
        return self._first(found.evidence), score, lower, mode

    def _frozen(
        self,
        found: Match,
        design: NDArray,
        root: NDArray,
        places: NDArray,
        entries: tuple[NDArray, NDArray],
    ) -> NDArray[np.float64]:
        """Second derivatives of the evidence of what stands in for rows, (m, d, d).

        The stand-ins, or the second derivatives of rows, would move with the parameters: of the
        mean these are those of the evidence of propagation, of the root nearly so. With ``G = sum b
        x x'`` the information of a client's rows, s the sum of their slopes, a and V mean and
        covariance of its coefficients under the root L, and D' the
        part of what differs, slopes are s and ``D s a' - D G D' L V``. An entry (j, k) of the root
        moves a by ``V_k s_j - (V L' D G)_j a_k``.
        """
        rows, columns = entries
        at = places[rows]
        weighed = design * found.bend[:, None]
        G = self.sums(weighed[:, :, None] * design[:, None, :])
        s, a = self.sums(design * found.push[:, None]), found.mode
        W = G[:, :, places] @ root
        V = np.linalg.inv(np.eye(len(root)) + root.T @ W[:, places])
        B = W @ V
        move = V[:, columns] * s[:, at, None] - B[:, at] * a[:, columns, None]
        push = -G[:, at] * a[:, columns, None] - move @ W.swapaxes(1, 2)
        of_mean = B @ W.swapaxes(1, 2) - G
        pull = push[:, :, at] * a[:, None, columns] + move[:, :, columns] * s[:, None, at]
        pull += of_mean[:, at[:, None], at] * V[:, columns[:, None], columns]
        pull += B[:, at[:, None], columns] * B[:, at, columns[:, None]]
        return np.block([[of_mean, push.swapaxes(1, 2)], [push, pull]])

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
