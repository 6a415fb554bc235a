"""Models that see rows through one matrix of parameters: linear ones, and a hidden layer."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ebfed import kernels
from ebfed.kernels.threads import in_parts
from ebfed.models.base import Model, Named
from ebfed.privacy.calibration import check_count

__all__ = ["MLP", "Layered", "Linear", "Softmax", "multiply"]

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


class _Affine(Layered):
    """Outputs that are linear in the features."""

    first = "coefficients"

    def __init__(self, fit_intercept: bool = True):
        self.fit_intercept = fit_intercept

    def shapes(self, n_features: int, n_outputs: int) -> dict[str, tuple[int, ...]]:
        shapes: dict[str, tuple[int, ...]] = {"coefficients": (n_features, n_outputs)}
        return shapes | ({"intercept": (1, n_outputs)} if self.fit_intercept else {})

    def start(self, parameters: Named, rng: np.random.Generator) -> None:
        """Start at zero: the loss is convex."""

    def above(self, parameters: Named, products: NDArray) -> tuple[NDArray, Any]:
        """Compute outputs from products, which become them."""
        if self.fit_intercept:
            products += parameters["intercept"]
        return products, None

    def below(self, parameters: Named, tape: Any, slope: NDArray, out: Named) -> NDArray:
        """Turn slopes in the outputs into slopes in the intercept; those in products are equal."""
        if self.fit_intercept:
            np.sum(slope, axis=1, keepdims=True, out=out["intercept"])
        return slope


class Linear(_Affine):
    """Linear regression: a number, with normal errors of variance 1.

    Parameters
    ----------
    fit_intercept : bool

    Examples
    --------
    >>> Linear().bind(n_features=3, n_outputs=1).blocks
    {'coefficients': slice(0, 3, None), 'intercept': slice(3, 4, None)}
    """

    classifies = False


class Softmax(_Affine):
    """Multinomial logistic regression: the probabilities of k classes.

    Parameters
    ----------
    fit_intercept : bool

    Examples
    --------
    >>> predictor = Softmax().bind(n_features=1, n_outputs=3)
    >>> predictor.predict(np.zeros((1, predictor.size)), np.ones((1, 1, 1)))
    array([[[0.3333, 0.3333, 0.3333]]])
    """


class MLP(Layered):
    r"""One hidden layer of rectified units, then a softmax.

    .. math:: \frac1H \sum_h \max(0, x^\top A + a)\, B_h + b_h

    Parameters
    ----------
    hidden : int
        How many units.
    heads : int
        H, how many output layers are averaged: with two, ``output`` and ``output_2``, one may be
        shared and the other personal.

    References
    ----------
    He, Zhang, Ren and Sun (2015), Delving deep into rectifiers, eq. (10): the starting values.

    Examples
    --------
    >>> MLP(hidden=50).bind(n_features=784, n_outputs=10).size
    39760
    """

    first = "hidden"

    def __init__(self, hidden: int = 50, heads: int = 1):
        self.hidden = hidden
        self.heads = heads

    def _outputs(self) -> list[str]:
        more = range(2, check_count("heads", self.heads) + 1)
        return ["output", *(f"output_{head}" for head in more)]

    def shapes(self, n_features: int, n_outputs: int) -> dict[str, tuple[int, ...]]:
        hidden = check_count("hidden", self.hidden)
        shapes: dict[str, tuple[int, ...]] = {
            "hidden": (n_features, hidden),
            "hidden_intercept": (1, hidden),
        }
        for name in self._outputs():
            shapes |= {name: (hidden, n_outputs), f"{name}_intercept": (1, n_outputs)}
        return shapes

    def start(self, parameters: Named, rng: np.random.Generator) -> None:
        """Draw weights that keep the size of what passes through them."""
        for name in ("hidden", *self._outputs()):
            shape = parameters[name].shape
            parameters[name][:] = rng.normal(0, np.sqrt(2 / shape[1]), shape)

    def above(self, parameters: Named, products: NDArray) -> tuple[NDArray, Any]:
        """Compute outputs from products, which become the units."""
        units = products
        kernels.rectify(units, parameters["hidden_intercept"])
        outputs = units @ parameters["output"]
        outputs += parameters["output_intercept"]
        for name in self._outputs()[1:]:
            outputs += units @ parameters[name]
            outputs += parameters[f"{name}_intercept"]
        if self.heads > 1:
            outputs /= self.heads
        return outputs, units

    def below(self, parameters: Named, tape: Any, slope: NDArray, out: Named) -> NDArray:
        """Turn slopes in the outputs into slopes in the products, and in other parameters."""
        slope = slope / self.heads if self.heads > 1 else slope
        inner = slope @ parameters["output"].swapaxes(1, 2)
        for name in self._outputs():
            np.matmul(tape.swapaxes(1, 2), slope, out=out[name])
            np.sum(slope, axis=1, keepdims=True, out=out[f"{name}_intercept"])
            if name != "output":
                inner += slope @ parameters[name].swapaxes(1, 2)
        kernels.gate(inner, tape, out["hidden_intercept"])
        return inner
