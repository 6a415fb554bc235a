"""Local predictors of many clients at once.

A `Model` computes outputs from parameters and rows, and gradients in the parameters from gradients
in the outputs. Clients are the first axis of every array, so a step of all clients is a few batched
matrix products. A `Predictor` is a model for data of a given shape: it keeps the parameters of a
client in one vector, and has the loss.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ebfed.arguments import WithArguments, check_single
from ebfed.models.losses import CrossEntropy, Loss, SquaredError

__all__ = ["Batch", "Model", "Predictor", "Slope"]

Named = dict[str, NDArray[np.float64]]


class Batch(NamedTuple):
    """Rows of c clients; clients with fewer rows are padded with rows of weight 0.

    Attributes
    ----------
    X : ndarray of shape (c, n, d)
    y : ndarray of shape (c, n)
        Responses, or numbers of classes.
    weight : ndarray of shape (c, n)
        Weight of each row in the loss of its client: 1 / n for the mean of n rows.
    """

    X: NDArray[np.float64]
    y: NDArray
    weight: NDArray[np.float64]


class Slope(NamedTuple):
    """Loss of each client and its gradient in the client's parameters.

    Attributes
    ----------
    gradient : ndarray of shape (c, p)
    loss : ndarray of shape (c,)
    score : ndarray of shape (c,)
        Weight of the rows whose class has the largest probability; NaN for a regression.
    """

    gradient: NDArray[np.float64]
    loss: NDArray[np.float64]
    score: NDArray[np.float64]


class Model(WithArguments, ABC):
    """A family of predictors, with parameters by name; subclasses define it."""

    # Whether the response is a class, rather than a number.
    classifies: bool = True

    @abstractmethod
    def shapes(self, n_features: int, n_outputs: int) -> dict[str, tuple[int, ...]]:
        """Return the shape of each block of parameters.

        Parameters
        ----------
        n_features : int
            Number d of features.
        n_outputs : int
            Number k of classes, or 1.
        """

    @abstractmethod
    def start(self, parameters: Named, rng: np.random.Generator) -> None:
        """Write starting values of one client into blocks of zeros, each of shape (1, ...)."""

    @abstractmethod
    def forward(self, parameters: Named, X: NDArray) -> tuple[NDArray, Any]:
        """Compute outputs.

        Parameters
        ----------
        parameters : dict of ndarrays of shape (c, ...), or (1, ...) for the same of all clients
        X : ndarray of shape (c, n, d)

        Returns
        -------
        outputs : ndarray of shape (c, n, k)
        tape : object
            Further values that `backward` needs.
        """

    @abstractmethod
    def backward(
        self, parameters: Named, X: NDArray, tape: Any, slope: NDArray, out: Named
    ) -> None:
        """Turn slopes in the outputs into slopes in the parameters.

        Parameters
        ----------
        parameters, X, tape
            As in `forward`.
        slope : ndarray of shape (c, n, k)
        out : dict of ndarrays of shape (c, ...)
            Arrays for the result, which are overwritten.
        """

    def loss_of_outputs(self) -> Loss:
        """Return the loss of outputs."""
        return CrossEntropy() if self.classifies else SquaredError()

    def numbers(self, n_features: int) -> int:
        """Return how many numbers with normal errors the loss of a row adds up: 1."""
        return 1

    def exported(self, parameters: Named) -> dict[str, Any]:
        """Return parameters of one client as the libraries of the model take them: here arrays."""
        return parameters

    def bind(self, n_features: int, n_outputs: int) -> Predictor:
        """Return the predictor for data of that shape.

        Examples
        --------
        >>> from ebfed.models import Softmax
        >>> Softmax().bind(n_features=4, n_outputs=3).size
        15
        """
        check_single(self)
        return Predictor(self, n_features, n_outputs)


class Predictor:
    """A model for data of a given shape, its parameters in one vector for each client.

    Parameters
    ----------
    model : Model
    n_features, n_outputs : int

    Attributes
    ----------
    size : int
        Number p of parameters of a client.
    blocks : dict of slices
        Position of each block of parameters.
    loss : Loss
    """

    def __init__(self, model: Model, n_features: int, n_outputs: int):
        self.model, self.n_features, self.n_outputs = model, n_features, n_outputs
        self._shapes = model.shapes(n_features, n_outputs)
        edges = np.cumsum([0, *map(math.prod, self._shapes.values())]).tolist()
        self.blocks = dict(
            zip(
                self._shapes, map(slice, *zip(*itertools.pairwise(edges), strict=True)), strict=True
            )
        )
        self.size = edges[-1]
        self.loss: Loss = model.loss_of_outputs()

    def named(self, theta: NDArray) -> Named:
        """Return views of blocks of parameters of shape (c, p)."""
        return {
            name: theta[:, place].reshape(len(theta), *self._shapes[name])
            for name, place in self.blocks.items()
        }

    def start(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return starting values, shape (p,)."""
        theta = np.zeros((1, self.size))
        self.model.start(self.named(theta), rng)
        return theta[0]

    def outputs(self, theta: NDArray, X: NDArray) -> NDArray:
        """Return outputs of shape (c, n, k) for parameters of shape (c, p) or (1, p)."""
        return self.model.forward(self.named(theta), X)[0]

    def pull(
        self, theta: NDArray, X: NDArray
    ) -> tuple[NDArray, Callable[..., NDArray[np.float64]]]:
        """Return outputs, and a function from gradients in them to gradients in the parameters.

        Parameters
        ----------
        theta : ndarray of shape (c, p) or (1, p)
        X : ndarray of shape (c, n, d)

        Returns
        -------
        outputs : ndarray of shape (c, n, k)
        back : callable
            Function from (c, n, k) to (c, p), which may be given the array for its result.
        """
        parameters = self.named(theta)
        outputs, tape = self.model.forward(parameters, X)

        def back(slope: NDArray, out: NDArray | None = None) -> NDArray[np.float64]:
            gradient = np.empty((len(X), self.size), X.dtype) if out is None else out
            self.model.backward(parameters, X, tape, slope, self.named(gradient))
            return gradient

        return outputs, back

    def gradient(self, theta: NDArray, batch: Batch, out: NDArray | None = None) -> Slope:
        r"""Return the loss of each client's rows and its gradient.

        .. math:: f_i(\theta) = \sum_j w_{ij}\, \ell(\theta; x_{ij}, y_{ij})

        Parameters
        ----------
        theta : ndarray of shape (c, p) or (1, p)
        batch : Batch
        out : ndarray of shape (c, p), optional
            Array for the gradient, of the type of the rows; a new one if None.

        Returns
        -------
        Slope

        Examples
        --------
        >>> from ebfed.models import Linear
        >>> rows = Batch(np.array([[[1.0], [2.0]]]), np.array([[1.0, 3.0]]), np.full((1, 2), 0.5))
        >>> Linear(fit_intercept=False).bind(1, 1).gradient(np.array([[1.0]]), rows)
        Slope(gradient=array([[-1.]]), loss=array([0.25]), score=array([nan]))
        """
        outputs, back = self.pull(theta, batch.X)
        loss, slope = self.loss.of(outputs, batch.y, batch.weight)
        return Slope(back(slope, out), loss, self.loss.score(outputs, batch.y, batch.weight))

    def predict(self, theta: NDArray, X: NDArray) -> NDArray:
        """Return class probabilities, or the expected response, shape (c, n, k)."""
        return self.loss.mean(self.outputs(theta, X))
