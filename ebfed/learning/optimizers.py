"""Steps along gradients, of clients, and along average changes, of a server."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ebfed import kernels
from ebfed.engines.protocol import Named

__all__ = ["Descent", "Optimizer", "check_optimizer", "server_step"]

Optimizer = Literal["sgd", "momentum", "adam"]
MOMENTUM = 0.9


def check_optimizer(name: str, value: str) -> None:
    """Raise a ValueError if an argument is no optimizer."""
    if value not in get_args(Optimizer):
        raise ValueError(f"{name} must be one of {get_args(Optimizer)}; got {value!r}.")


class Descent:
    """Steps of clients down their gradients: `torch.optim.SGD`, with momentum 0.9, or `Adam`.

    Parameters
    ----------
    optimizer : {"sgd", "momentum", "adam"}
    rate : float, or ndarray of shape (c, 1)
        Learning rate, or that of each client.

    Examples
    --------
    >>> descend = Descent("momentum", 0.1)
    >>> theta = descend(np.array([[1.0]]), np.array([[1.0]]))
    >>> theta, descend(theta, np.array([[1.0]]))
    (array([[0.9]]), array([[0.71]]))
    """

    def __init__(self, optimizer: Optimizer, rate: float | NDArray[np.float64]):
        self._optimizer, self._rate, self._count = optimizer, rate, 0
        # of the lesser precision, so that moments have that of gradients
        self._first: NDArray = np.zeros(1, np.float32)
        self._second: NDArray = np.zeros(1, np.float32)

    def __call__(self, theta: NDArray, gradient: NDArray) -> NDArray[np.float64]:
        """Return parameters, shape (c, p), after a step down their gradients.

        The memory of the gradients, which is lost, holds the result where it can.
        """
        if self._fits(theta, gradient):
            kernels.step_down(theta, gradient, gradient.dtype.type(self._rate))
            return gradient
        return theta - self._step(gradient)

    def change(self, theta: NDArray, gradient: NDArray, start: NDArray) -> NDArray[np.float64]:
        """Return how far parameters are from a start, shape (1, p), after such a step."""
        if self._fits(theta, gradient):
            kernels.move_down(theta, gradient, gradient.dtype.type(self._rate), start)
            return gradient
        return self(theta, gradient) - start

    def _fits(self, theta: NDArray, gradient: NDArray) -> bool:
        """Whether a step is plain, and of one precision."""
        same = theta.dtype == gradient.dtype
        return same and self._optimizer == "sgd" and np.ndim(self._rate) == 0

    def _step(self, gradient: NDArray) -> NDArray[np.float64]:
        if self._optimizer == "sgd":
            return self._rate * gradient
        if self._optimizer == "momentum":
            self._first = MOMENTUM * self._first + gradient
            return self._rate * self._first
        self._count += 1
        self._first = 0.9 * self._first + 0.1 * gradient
        self._second = 0.999 * self._second + 0.001 * gradient**2
        size = np.sqrt(self._second / (1 - 0.999**self._count)) + 1e-8
        return self._rate / (1 - 0.9**self._count) * self._first / size


def server_step(optimizer: Optimizer, average: NDArray, moments: Named) -> tuple[NDArray, Named]:
    r"""Return the step of a server along an average change, for a learning rate of 1.

    ``"momentum"`` is FedAvgM of Hsu, Qi and Brown (2019), :math:`v \leftarrow 0.9 v + \Delta`;
    ``"adam"`` is FedAdam of Reddi et al. (2021), Algorithm 2, with 0.9, 0.99 and tau = 0.001.

    Parameters
    ----------
    optimizer : {"sgd", "momentum", "adam"}
    average : ndarray of shape (p,)
    moments : dict of ndarrays of shape (p,)
        What the server kept of the rounds before; empty in the first.

    Examples
    --------
    >>> step, moments = server_step("momentum", np.ones(1), {})
    >>> server_step("momentum", np.ones(1), moments)[0]
    array([1.9])
    """
    if optimizer == "sgd":
        return average, moments
    first = moments.get("first", np.zeros_like(average))
    if optimizer == "momentum":
        first = MOMENTUM * first + average
        return first.copy(), {"first": first}
    least = 1e-3
    second = moments.get("second", np.full_like(average, least**2))
    first, second = 0.9 * first + 0.1 * average, 0.99 * second + 0.01 * average**2
    return first / (np.sqrt(second) + least), {"first": first, "second": second}
