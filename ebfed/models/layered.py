"""Models that see rows through one matrix of parameters."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ebfed.models.base import Model, Named

__all__ = ["Layered"]


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
        """Compute outputs."""
        return self.above(parameters, X @ parameters[self.first])

    def backward(
        self, parameters: Named, X: NDArray, tape: Any, slope: NDArray, out: Named
    ) -> None:
        """Turn slopes in the outputs into slopes in the parameters."""
        inner = self.below(parameters, tape, slope, out)
        np.matmul(X.swapaxes(1, 2), inner, out=out[self.first])
