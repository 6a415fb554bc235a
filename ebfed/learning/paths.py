"""Coordinates of the steps that clients make from given parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ebfed.models import Batch, Predictor
from ebfed.models.layered import Layered

if TYPE_CHECKING:
    from ebfed.learning.training import Task

__all__ = ["Path", "RowPath", "saves_products"]


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

    def __init__(self, task: Task, theta: NDArray):
        self._task, self.start, self.blocks = task, theta, task.net.blocks

    def gradient(self, place: NDArray, batch: Batch, out: NDArray | None = None) -> NDArray:
        """Return the gradient of the loss of a batch in coordinates; see `Task.gradient`.

        Parameters
        ----------
        place : ndarray of shape (c, q)
        batch : Batch
        out : ndarray of shape (c, q), optional
            Array for the gradient, whose values are lost.
        """
        return self._task.gradient(place, batch, out)

    def change(self, offset: NDArray) -> NDArray:
        """Return the change of the parameters, (c, p), of a change of the coordinates, (c, q)."""
        return offset

    def parameters(self, place: NDArray) -> NDArray:
        """Return the parameters of coordinates, shape (c, p)."""
        return place


class RowPath(Path):
    r"""Plain steps of a layered model on the same n rows, in coordinates along these rows.

    From A, gradients lead to :math:`A + X^\top D`; the coordinates are D, of shape (n, h), and the
    change of all other parameters. The gradient in D is that in the products X A, so that steps are
    those in the parameters, but for rounding. One needs about :math:`n^2 h` multiplications, rather
    than :math:`2 n d h`.
    """

    def __init__(self, task: Task, theta: NDArray):
        model = task.net.model
        assert isinstance(model, Layered)
        self._task, self._model, self._theta = task, model, theta
        # D is laid out as A would be with n features
        self._net = model.bind(task.width, task.net.n_outputs)
        self.blocks = self._net.blocks
        self.start = np.zeros((len(task), self._net.size), theta.dtype)
        self._above = task.net.named(theta)
        self._matrix = self._above.pop(model.first)
        self._X: NDArray | None = None  # of the first step
        self._squares: NDArray | None = None  # X X^T, from the second

    def gradient(self, place: NDArray, batch: Batch, out: NDArray | None = None) -> NDArray:
        """Return the gradient of the loss of a batch in coordinates."""
        out = np.empty_like(place) if out is None else out
        named, slopes = self._net.named(place), self._net.named(out)
        products = self._products(batch.X, named[self._model.first])
        parameters = {name: value + named[name] for name, value in self._above.items()}
        outputs, tape = self._model.above(parameters, products)
        loss, slope = self._net.loss.of(outputs, batch.y, batch.weight)
        slopes[self._model.first][:] = self._model.below(parameters, tape, slope, slopes)
        self._task.note(loss, self._net.loss.score(outputs, batch.y, batch.weight))
        return out

    def _products(self, X: NDArray, along: NDArray) -> NDArray:
        """Return the products of rows with A after a change, of which `along` is D."""
        if self._X is None:  # D is 0
            self._X, self._products_before = X, X @ self._matrix
            return self._products_before.copy()
        if self._squares is None:
            self._squares = X @ X.swapaxes(1, 2)
        products = self._squares @ along
        products += self._products_before
        return products

    def change(self, offset: NDArray) -> NDArray:
        """Return the change of the parameters of a change of the coordinates."""
        net = self._task.net
        if self._X is None:  # no step was made
            return np.zeros((len(offset), net.size), offset.dtype)
        whole = np.empty((len(offset), net.size), offset.dtype)
        named, parts = net.named(whole), self._net.named(offset)
        along = parts.pop(self._model.first)
        np.matmul(self._X.swapaxes(1, 2), along, out=named[self._model.first])
        for name, value in parts.items():
            named[name][:] = value
        return whole

    def parameters(self, place: NDArray) -> NDArray:
        """Return the parameters of coordinates."""
        theta = self.change(place)
        theta += self._theta
        return theta


def saves_products(net: Predictor, n: int, steps: int) -> bool:
    """Return whether `RowPath` needs fewer multiplications for so many steps on n rows.

    Examples
    --------
    >>> from ebfed.models import MLP
    >>> net = MLP(50).bind(n_features=784, n_outputs=10)
    >>> saves_products(net, n=60, steps=5), saves_products(net, n=2000, steps=5)
    (True, False)
    """
    if not isinstance(net.model, Layered):
        return False
    if steps <= 1:
        return True
    d = net.n_features
    h = len(range(net.size)[net.blocks[net.model.first]]) // d
    along = 2 * n * d * h + n * n * d + (steps - 1) * n * n * h
    return along < steps * 2 * n * d * h
