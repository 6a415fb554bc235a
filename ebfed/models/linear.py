"""Linear predictors: least squares and multinomial logistic regression."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.models.base import Named
from ebfed.models.layered import Layered

__all__ = ["Linear", "Softmax"]


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
