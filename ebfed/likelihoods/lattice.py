"""Estimates at nodes of cells, which stand for those of many clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ebfed.kernels import lattice_errors, lattice_sums, lattice_values
from ebfed.likelihoods.distinct import number_rows, repeats

__all__ = ["Lattice"]

# Nodes of a cell in the direction of values, and in those of variances and degrees of freedom;
# width of a cell, in errors and in logarithms of errors and of degrees.
ORDER, FEWER = 12, 6
WIDTH, LEVEL = 1.0, 0.4
FAR = 2.0**40  # cells beyond which places lose their digits
MOST_DEGREES = 1e12  # those of normal errors count as these


class _Axis(NamedTuple):
    """Cells in one direction.

    Attributes
    ----------
    at : ndarray of shape (n,)
        Coordinates.
    cells : int64 ndarray of shape (n,)
    nodes : ndarray of shape (c, FEWER)
    sizes : int64 ndarray of shape (c,)
        Number of nodes of each cell.
    even : bool ndarray of shape (c,)
        Whether its nodes are Chebyshev's; else they are all values that there are.
    """

    at: NDArray
    cells: NDArray
    nodes: NDArray
    sizes: NDArray
    even: NDArray

    @classmethod
    def of(cls, at: NDArray) -> _Axis:
        low = float(at.min())
        cells = np.floor((at - low) / LEVEL).astype(np.int64)
        n_cells = int(cells.max()) + 1
        nodes = low + LEVEL * (np.arange(n_cells)[:, None] + (1 + _chebyshev(FEWER)) / 2)
        sizes, even = np.full(n_cells, FEWER), np.ones(n_cells, bool)
        if repeats(at):
            values = np.unique(at)
            of = np.floor((values - low) / LEVEL).astype(np.int64)
            n_values = np.bincount(of, minlength=n_cells)
            for cell in np.flatnonzero((n_values > 0) & (n_values <= FEWER)):
                own = values[of == cell]
                sizes[cell], even[cell] = len(own), False
                nodes[cell, : len(own)] = own
        return cls(at, cells, nodes, sizes, even)

    @property
    def lowest(self) -> NDArray:
        """Start of each cell."""
        return float(self.at.min()) + LEVEL * np.arange(len(self.nodes))


class _Axes(NamedTuple):
    """Nodes of all directions, as the kernels take them; the last are those of values.

    Attributes
    ----------
    nodes, factors : ndarray of shape (3, c, ORDER)
        Nodes and their barycentric weights.
    sizes : int64 ndarray of shape (3, c)
    ends : ndarray of shape (3, c, 4, ORDER)
        See `lattice_errors`.
    """

    nodes: NDArray
    factors: NDArray
    sizes: NDArray
    ends: NDArray


@dataclass(frozen=True)
class Lattice:
    r"""Nodes that stand for estimates ``x_i`` with errors ``s_i`` of ``df_i`` degrees of freedom.

    A cell is an interval of values, of log errors and of log degrees. In each direction it has
    Chebyshev's nodes, or all values that occur if these are few. For functions F of an estimate,
    its error and its degrees, with I the polynomial that has the same values at the nodes,

    .. math:: \sum_i c_i F(x_i, s_i, df_i) \approx \sum_i c_i I(x_i, s_i, df_i)
              = \sum_k W_k F(\text{node}_k).

    The weights W do not depend on F; some are negative. Log-likelihoods of populations, likelihoods
    and posterior moments are analytic in x as far as about an error from the line, so that ``|F -
    I|`` falls geometrically with the number of nodes (Trefethen 2013, Approximation Theory and
    Approximation Practice, theorem 8.2): 12 nodes on an error, and 6 on a factor of 1.5 in s. Cells
    with fewer estimates than nodes keep their estimates.

    Attributes
    ----------
    values, variances, degrees : ndarray of shape (k,)
        The nodes.
    """

    values: NDArray
    variances: NDArray
    degrees: NDArray
    _place: NDArray
    _cells: NDArray
    _first: NDArray
    _points: NDArray
    _which: NDArray
    _axes: _Axes

    @classmethod
    def of(cls, values: NDArray, variances: NDArray, degrees: NDArray) -> Lattice | None:
        """Lay a lattice over estimates, shape (n,) each; None if it has more than n / 2 nodes.

        Examples
        --------
        >>> x = np.random.default_rng(0).normal(0, 2, 30_000)
        >>> lattice = Lattice.of(x, np.ones(30_000), np.full(30_000, 5.0))
        >>> weights = lattice.weights(np.ones(30_000))
        >>> error = weights @ np.log1p(lattice.values**2) - np.log1p(x**2).sum()
        >>> len(lattice) < 500, bool(abs(error) < 1e-3)
        (True, True)
        """
        errors = _Axis.of(0.5 * np.log(variances))
        freedom = _Axis.of(np.log(np.minimum(degrees, MOST_DEGREES)))
        width = WIDTH * np.exp(errors.lowest)[errors.cells]
        away = (values - values.min()) / width
        if not away.max() < FAR:
            return None
        column = np.floor(away).astype(np.int64)
        cells, one, counts = number_rows([column, errors.cells, freedom.cells])
        which = np.array([freedom.cells[one], errors.cells[one], np.zeros(len(one), np.int64)])
        sizes = ORDER * errors.sizes[which[1]] * freedom.sizes[which[0]]
        whole = counts > sizes
        kept = ~whole[cells]
        size = int(sizes[whole].sum())
        if 2 * (size + kept.sum()) > len(values):
            return None
        first = np.full(len(one), -1)
        first[whole] = np.cumsum(sizes[whole]) - sizes[whole]
        place = np.full(len(values), -1)
        place[kept] = size + np.arange(kept.sum())
        axes = _together(freedom, errors)
        at = np.concatenate(
            [
                _products(axes.nodes[0, d, :n_d], axes.nodes[1, s, :n_s], axes.nodes[2, 0])
                for (d, s, _), n_d, n_s in zip(
                    which[:, whole].T,
                    freedom.sizes[which[0, whole]],
                    errors.sizes[which[1, whole]],
                    strict=True,
                )
            ]
        )
        start, unit = (
            np.repeat(each[one][whole], sizes[whole])
            for each in (values.min() + column * width, width)
        )
        finite = np.exp(at[:, 0])
        return cls(
            np.append(start + unit * (1 + at[:, 2]) / 2, values[kept]),
            np.append(np.exp(2 * at[:, 1]), variances[kept]),
            np.append(np.where(finite > 0.1 * MOST_DEGREES, np.inf, finite), degrees[kept]),
            place,
            cells,
            first,
            np.array([freedom.at, errors.at, 2 * (away - column) - 1]),
            which,
            axes,
        )

    def __len__(self) -> int:
        """Count the nodes."""
        return len(self.values)

    def weights(self, counts: NDArray) -> NDArray:
        """Weights of the nodes that stand for estimates with these weights, shape (k,)."""
        counts = np.ascontiguousarray(counts, float)
        axes = self._axes.nodes, self._axes.factors, self._axes.sizes
        return lattice_sums(counts, *self._stencil, *axes, len(self))

    def interpolate(self, figures: NDArray) -> NDArray:
        """Figures of the estimates, shape (n, r), from those of the nodes, shape (k, r)."""
        axes = self._axes.nodes, self._axes.factors, self._axes.sizes
        return lattice_values(np.ascontiguousarray(figures), *self._stencil, *axes)

    def errors(self, figures: NDArray) -> NDArray:
        """Sizes of what `interpolate` leaves out, shape (n, r); see `lattice_errors`."""
        figures = np.ascontiguousarray(figures.T)
        axes = self._axes.sizes, self._axes.ends
        found = lattice_errors(figures, self._first, self._which, *axes)
        return found[self._cells]

    @property
    def _stencil(self) -> tuple[NDArray, NDArray, NDArray, NDArray, NDArray]:
        return self._place, self._cells, self._first, self._points, self._which


def _products(*columns: NDArray) -> NDArray:
    """All combinations of entries, the last one moving fastest, shape (k, 3)."""
    return np.stack(np.meshgrid(*columns, indexing="ij"), axis=-1).reshape(-1, len(columns))


def _together(freedom: _Axis, errors: _Axis) -> _Axes:
    """Nodes of the cells in all directions."""
    most = max(len(freedom.nodes), len(errors.nodes))
    nodes, factors = np.ones((2, 3, most, ORDER))
    sizes, ends = np.ones((3, most), np.int64), np.zeros((3, most, 4, ORDER))
    nodes[2], sizes[2] = _chebyshev(ORDER), ORDER
    ends[2] = _last_four(ORDER)
    for axis, each in enumerate((freedom, errors)):
        for cell, (own, size, even) in enumerate(
            zip(each.nodes, each.sizes, each.even, strict=True)
        ):
            nodes[axis, cell, :size], sizes[axis, cell] = own[:size], size
            if even:
                ends[axis, cell, :, :size] = _last_four(size)
    for axis, cell in np.ndindex(sizes.shape):
        own = nodes[axis, cell, : sizes[axis, cell]]
        gaps = (own[:, None] - own) / (np.ptp(own) or 1.0) + np.eye(len(own))
        factors[axis, cell, : len(own)] = 1 / gaps.prod(axis=1)
    return _Axes(nodes, factors, sizes, ends)


def _chebyshev(order: int) -> NDArray:
    """Chebyshev's nodes on [-1, 1]."""
    return -np.cos((np.arange(order) + 0.5) * np.pi / order)


def _last_four(order: int) -> NDArray:
    """What values at Chebyshev's nodes are multiplied by for the last four coefficients."""
    degrees = order - np.arange(1, 5)
    return 2 / order * np.cos(degrees[:, None] * np.arccos(_chebyshev(order)))
