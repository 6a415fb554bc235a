"""A network with one hidden layer."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.models.base import Model, Named
from ebfed.privacy.calibration import check_count

__all__ = ["MLP"]


class MLP(Model):
    r"""One hidden layer of rectified units, then a softmax.

    .. math:: \max(0, x^\top A + a)\, B + b

    Parameters
    ----------
    hidden : int
        How many units.

    References
    ----------
    He, Zhang, Ren and Sun (2015), Delving deep into rectifiers, eq. (10): the starting values.

    Examples
    --------
    >>> MLP(hidden=50).bind(n_features=784, n_outputs=10).size
    39760
    """

    def __init__(self, hidden: int = 50):
        self.hidden = hidden

    def shapes(self, n_features: int, n_outputs: int) -> dict[str, tuple[int, ...]]:
        """Return the shape of each block of parameters."""
        hidden = check_count("hidden", self.hidden)
        return {
            "hidden": (n_features, hidden),
            "hidden_intercept": (1, hidden),
            "output": (hidden, n_outputs),
            "output_intercept": (1, n_outputs),
        }

    def start(self, parameters: Named, rng: np.random.Generator) -> None:
        """Draw weights that keep the size of what passes through them."""
        for name in ("hidden", "output"):
            shape = parameters[name].shape
            parameters[name][:] = rng.normal(0, np.sqrt(2 / shape[1]), shape)

    def forward(self, parameters: Named, X: NDArray) -> tuple[NDArray, Any]:
        """Compute outputs."""
        units = X @ parameters["hidden"]
        units += parameters["hidden_intercept"]
        np.maximum(units, 0, out=units)
        outputs = units @ parameters["output"]
        outputs += parameters["output_intercept"]
        return outputs, units

    def backward(
        self, parameters: Named, X: NDArray, tape: Any, slope: NDArray, out: Named
    ) -> None:
        """Turn slopes in the outputs into slopes in the parameters."""
        np.matmul(tape.swapaxes(1, 2), slope, out=out["output"])
        np.sum(slope, axis=1, keepdims=True, out=out["output_intercept"])
        inner = slope @ parameters["output"].swapaxes(1, 2)
        inner *= tape > 0
        np.matmul(X.swapaxes(1, 2), inner, out=out["hidden"])
        np.sum(inner, axis=1, keepdims=True, out=out["hidden_intercept"])
