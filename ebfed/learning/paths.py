"""Coordinates of the steps that clients make from given parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed import kernels
from ebfed.engines.protocol import Named
from ebfed.engines.sums import AT_ONCE, Columns
from ebfed.learning.minibatches import Picked
from ebfed.learning.optimizers import Optimizer
from ebfed.models import Layered, Predictor
from ebfed.models.layered import multiply

__all__ = ["Path", "RowChange", "RowPath", "path_of", "saves_products"]


class Path:
    """Steps of c clients in their parameters.

    Parameters
    ----------
    task : Task
    theta : ndarray of shape (c, p), or (1, p) for the same of all clients
        Parameters to begin with.

    Attributes
    ----------
    start : ndarray of shape (c, q) or (1, q)
        Coordinates to begin with: here q = p, and they are the parameters.
    blocks : dict of slices
        Coordinates of each block of parameters.
    """

    def __init__(self, task: Any, theta: NDArray):
        self._task, self.start, self.blocks = task, theta, task.net.blocks

    @staticmethod
    def cells(net: Predictor, n: int) -> int:
        """How many numbers of a client with n rows are held at once."""
        return net.size

    def batches(self, count: int) -> Iterator[Any]:
        """Yield the batches of that many steps, for `gradient`."""
        return self._task.batches(count)

    def gradient(self, place: NDArray, batch: Any, out: NDArray | None = None) -> NDArray:
        """Return the gradient of the loss of a batch in coordinates; see `Task.gradient`.

        Parameters
        ----------
        place : ndarray of shape (c, q)
        batch : object
        out : ndarray of shape (c, q), optional
            Array for the gradient, whose values are lost.
        """
        return self._task.gradient(place, batch, out)

    def change(self, offset: NDArray) -> NDArray | Columns:
        """Return the change of the parameters, (c, p), of a change of the coordinates, (c, q)."""
        return offset

    def parameters(self, place: NDArray) -> NDArray:
        """Return the parameters of coordinates, shape (c, p)."""
        return place


class RowPath(Path):
    r"""Steps of a layered model in coordinates along the n rows of a client.

    Whatever rows a step sees, gradients and weight decay lead from A to :math:`a A + X^\top D`.
    The coordinates are D and a, as one matrix of shape (n + 1, h), and all other parameters. The
    gradient in D is that in the products X A, of which those at any step are
    :math:`a X A + (X X^\top) D`. So steps are those in the parameters, but for rounding, and one on
    b rows needs about b n h multiplications, rather than 2 b d h.
    """

    def __init__(self, task: Any, theta: NDArray):
        model = task.net.model
        assert isinstance(model, Layered)
        self._task, self._model, self._theta = task, model, theta
        # laid out as the parameters would be with n + 1 features
        self._net = model.bind(task.width + 1, task.net.n_outputs)
        self.blocks = self._net.blocks
        self.start = np.empty((len(task), self._net.size), theta.dtype)
        named = self._net.named(self.start)
        for name, value in task.net.named(theta).items():
            named[name][:] = 0.0 if name == model.first else value
        named[model.first][:, -1] = 1.0
        self._matrix = task.net.named(theta)[model.first]
        self._rows: NDArray | None = None  # X, and X A, from the first step
        self._squares: NDArray | None = None  # X X^T, from the first one away from the start

    @staticmethod
    def cells(net: Predictor, n: int) -> int:
        """How many numbers of a client with n rows are held at once, until it has changed."""
        return max(net.model.bind(n + 1, net.n_outputs).size, min(AT_ONCE, net.size))

    def batches(self, count: int) -> Iterator[Picked]:
        return self._task.picked(count)

    def gradient(self, place: NDArray, batch: Picked, out: NDArray | None = None) -> NDArray:
        out = np.empty_like(place) if out is None else out
        named, slopes = self._net.named(place), self._net.named(out)
        outputs, tape = self._model.above(named, self._products(place, batch.places))
        loss, slope = self._net.loss.of(outputs, batch.y, batch.weight)
        inner, first = self._model.below(named, tape, slope, slopes), slopes[self._model.first]
        if batch.places is None:
            first[:, :-1] = inner
            first[:, -1] = 0.0
        else:
            first[:] = 0.0
            kernels.scatter_rows(inner, batch.places, first)
        self._task.note(loss, self._net.loss.score(outputs, batch.y, batch.weight))
        return self._task.decayed(out, place)

    def _products(self, place: NDArray, which: NDArray[np.int64] | None) -> NDArray:
        """Return the products of some rows with the matrix at coordinates, as an array to keep."""
        if self._rows is None:
            self._rows = self._task.rows()
            self._base = multiply(self._rows, self._matrix)
        base = _at(self._base, which)
        if place is self.start:
            return base.copy() if which is None else base
        if self._squares is None:
            self._squares = multiply(self._rows, self._rows.swapaxes(1, 2))
        first = self._net.named(place)[self._model.first]
        products = _at(self._squares, which) @ first[:, :-1]
        products += base * first[:, -1:]
        return products

    def change(self, offset: NDArray) -> NDArray | Columns:
        """Return the change of the parameters of a change of the coordinates."""
        net, model = self._task.net, self._model
        if self._rows is None:  # no step was made
            return np.zeros((len(offset), net.size), offset.dtype)
        parts = self._net.named(offset)
        inner = parts.pop(model.first)
        return RowChange(net, model.first, self._rows, inner, self._matrix, parts)

    def parameters(self, place: NDArray) -> NDArray:
        theta = np.asarray(self.change(place - self.start))
        theta += self._theta
        return theta


class RowChange(Columns):
    r"""Changes :math:`X^\top D + (a - 1) A` of one matrix, and others of the other blocks.

    Parameters
    ----------
    net : Predictor
    first : str
        Block of the matrix.
    X : ndarray of shape (c, n, d)
    inner : ndarray of shape (c, n + 1, h)
        D, then a - 1.
    A : ndarray of shape (c, d, h) or (1, d, h)
    others : dict of ndarrays
        Changes of the other blocks.
    """

    def __init__(
        self, net: Predictor, first: str, X: NDArray, inner: NDArray, A: NDArray, others: Named
    ):
        self.shape, self.dtype = (len(inner), net.size), inner.dtype
        self._blocks = {name: range(net.size)[place] for name, place in net.blocks.items()}
        self._first, self._others = first, others
        self._features, self._matrix = X.swapaxes(1, 2), A
        self._slopes, self._factors = inner[:, :-1], inner[:, -1:]
        self._shrinks = bool(self._factors.any())

    def compute(self, first: int, last: int) -> tuple[NDArray, int]:
        """Compute some columns, and all of a feature's if only the matrix has them."""
        block = self._blocks[self._first]
        if block.start <= first and last <= block.stop:
            return self._product(first - block.start, last - block.start)
        whole = np.empty((len(self), last - first), self.dtype)
        for name, block in self._blocks.items():
            begin, end = max(first, block.start), min(last, block.stop)
            if begin >= end:
                continue
            some = begin - block.start, end - block.start
            if name == self._first:
                values, skip = self._product(*some)
            else:
                values, skip = self._others[name].reshape(len(self), -1), some[0]
            whole[:, begin - first : end - first] = values[:, skip : skip + end - begin]
        return whole, 0

    def _product(self, first: int, last: int) -> tuple[NDArray, int]:
        """Compute the change of those rows of the matrix that some of its numbers are in."""
        h = self._slopes.shape[2]
        features = slice(first // h, -(-last // h))
        with np.errstate(over="ignore", invalid="ignore"):  # the server checks what it gets
            product = self._features[:, features] @ self._slopes
            if self._shrinks:
                product += self._matrix[:, features] * self._factors
        return product.reshape(len(self), -1), first - features.start * h


def _at(values: NDArray, places: NDArray[np.int64] | None) -> NDArray:
    """Return the rows of each client's matrix at these places, or all."""
    return values if places is None else values[np.arange(len(values))[:, None], places]


def path_of(
    net: Predictor, n: int, steps: int, size: int | None, optimizer: Optimizer
) -> type[Path]:
    """Return the coordinates in which steps need the fewest products.

    Parameters
    ----------
    net, n, steps, size
        As in `saves_products`.
    optimizer : str
    """
    return RowPath if optimizer != "adam" and saves_products(net, n, steps, size) else Path


def saves_products(net: Predictor, n: int, steps: int, size: int | None = None) -> bool:
    """Return whether `RowPath` needs fewer multiplications.

    Parameters
    ----------
    net : Predictor
    n, steps : int
        Number of rows of a client, and of steps.
    size : int, optional
        Number of rows of a step, n if None.

    Examples
    --------
    >>> from ebfed.models import MLP
    >>> net = MLP(50).bind(n_features=784, n_outputs=10)
    >>> saves_products(net, n=60, steps=5), saves_products(net, n=2000, steps=5)
    (True, False)
    """
    if not isinstance(net.model, Layered):
        return False
    size = n if size is None else size
    d = net.n_features
    h = len(range(net.size)[net.blocks[net.model.first]]) // d
    squares = n * n * d if steps > 1 else 0
    along = 2 * n * d * h + squares + (steps - 1) * size * n * h
    return along <= steps * 2 * size * d * h
