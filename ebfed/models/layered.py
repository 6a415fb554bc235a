"""Models that see rows through one matrix of parameters."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ebfed.kernels.threads import in_parts
from ebfed.models.base import Model, Named

__all__ = ["Layered", "multiply"]

# Most multiplications of a product for which BLAS makes no copy of its factors, and columns of it.
SMALL, COLUMNS = 10**6, 64
# Least multiplications for which another thread is worth its while.
MANY = 4 * 10**6


def multiply(X: NDArray, A: NDArray) -> NDArray:
    """Multiply the rows of each client by a matrix.

    BLAS copies a large matrix before each product. That takes as long as a product with ten rows,
    so with few rows products are of some columns at a time, small enough for it to copy nothing.
    What a client gets depends on its own rows and matrix alone.

    Parameters
    ----------
    X : ndarray of shape (c, n, d)
    A : ndarray of shape (c, d, h), or (1, d, h) for the same of all clients

    Returns
    -------
    ndarray of shape (c, n, h)
    """
    (c, n, d), h = X.shape, A.shape[2]
    product = np.empty((c, n, h), X.dtype)
    columns = min(SMALL // max(n * d, 1), COLUMNS) // 32 * 32 or max(h, 1)

    def work(first: int, last: int) -> None:
        rows, matrix = X[first:last], A[first:last] if len(A) > 1 else A
        for start in range(0, h, columns):
            some = slice(start, start + columns)
            np.matmul(rows, matrix[:, :, some], out=product[first:last, :, some])

    in_parts(work, c, -(-MANY // max(n * d * h, 1)))
    return product


class Layered(Model):
    r"""Models whose outputs depend on rows X through products X A with a matrix of parameters.

    The gradient in A is :math:`X^\top S`, with S the gradient in the products. So steps from A lead
    to :math:`A + X^\top D`, where products are :math:`X A + (X X^\top) D`: many steps on few rows
    need no product with all features.

    Attributes
    ----------
    first : str
        Name of the block A, of shape (d, h).
    """

    first: ClassVar[str]

    @abstractmethod
    def above(self, parameters: Named, products: NDArray) -> tuple[NDArray, Any]:
        """Compute outputs from products.

        Parameters
        ----------
        parameters : dict of ndarrays of shape (c, ...), or (1, ...) for the same of all clients
            All blocks but A.
        products : ndarray of shape (c, n, h)
            Which may be overwritten.

        Returns
        -------
        outputs : ndarray of shape (c, n, k)
        tape : object
            Further values that `below` needs.
        """

    @abstractmethod
    def below(self, parameters: Named, tape: Any, slope: NDArray, out: Named) -> NDArray:
        """Turn slopes in the outputs into slopes in the products, and in all blocks but A.

        Parameters
        ----------
        parameters, tape
            As in `above`.
        slope : ndarray of shape (c, n, k)
        out : dict of ndarrays of shape (c, ...)
            Arrays for slopes in the blocks, which are overwritten.

        Returns
        -------
        ndarray of shape (c, n, h)
        """

    def forward(self, parameters: Named, X: NDArray) -> tuple[NDArray, Any]:
        return self.above(parameters, multiply(X, parameters[self.first]))

    def backward(
        self, parameters: Named, X: NDArray, tape: Any, slope: NDArray, out: Named
    ) -> None:
        inner = self.below(parameters, tape, slope, out)
        np.matmul(X.swapaxes(1, 2), inner, out=out[self.first])
