"""A network with one hidden layer."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed import kernels
from ebfed.models.base import Named
from ebfed.models.layered import Layered
from ebfed.privacy.calibration import check_count

__all__ = ["MLP"]


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
