"""Losses of outputs, and divergences between predictions.

A loss is minus the log-density of a predictive distribution, up to a constant: the multinomial
logistic, or the normal of variance 1. So there is also a divergence between the predictions of two
models of any kind, the Kullback-Leibler divergence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from ebfed import kernels

__all__ = ["CrossEntropy", "Loss", "SquaredError"]


class Loss(ABC):
    """Minus the log-density of responses given outputs; c clients with n rows and k outputs."""

    @abstractmethod
    def of(self, outputs: NDArray, y: NDArray, weight: NDArray) -> tuple[NDArray, NDArray]:
        """Return the weighted loss of each client, (c,), and its slope, (c, n, k)."""

    @abstractmethod
    def divergence(
        self, outputs: NDArray, reference: NDArray, weight: NDArray
    ) -> tuple[NDArray, NDArray, NDArray]:
        r"""Return the weighted divergence of each client from a reference, and its slopes.

        .. math:: \sum_j w_{ij}\, D(p_{\mathrm{reference}}(\cdot | x_{ij}) \,\|\, p(\cdot | x_{ij}))

        Returns
        -------
        value : ndarray of shape (c,)
        slope, reference_slope : ndarrays of shape (c, n, k)
            Gradients in `outputs` and in `reference`.
        """

    @abstractmethod
    def mean(self, outputs: NDArray) -> NDArray:
        """Return the mean of the predictive distribution: probabilities, or a number."""

    @abstractmethod
    def score(self, outputs: NDArray, y: NDArray, weight: NDArray) -> NDArray:
        """Return the weight of each client's correctly predicted rows, shape (c,)."""


class CrossEntropy(Loss):
    r"""Multinomial logistic loss of classes, :math:`-\log p_y`, with p the softmax of outputs.

    Examples
    --------
    >>> outputs = np.log([[[1.0, 3.0]]])
    >>> loss, slope = CrossEntropy().of(outputs, np.array([[1]]), np.ones((1, 1)))
    >>> loss, slope
    (array([0.2877]), array([[[ 0.25, -0.25]]]))
    >>> CrossEntropy().divergence(outputs, outputs[..., ::-1], np.ones((1, 1)))[0]
    array([0.5493])
    """

    def of(self, outputs: NDArray, y: NDArray, weight: NDArray) -> tuple[NDArray, NDArray]:
        if y.size and not 0 <= y.min() <= y.max() < outputs.shape[2]:
            raise IndexError(f"y must hold numbers of {outputs.shape[2]} classes.")
        loss, slope = np.empty(len(outputs), outputs.dtype), np.empty_like(outputs)
        kernels.cross_entropy(outputs, y, weight, loss, slope)
        return loss, slope

    def divergence(
        self, outputs: NDArray, reference: NDArray, weight: NDArray
    ) -> tuple[NDArray, NDArray, NDArray]:
        log_p, log_q = _log_softmax(outputs), _log_softmax(reference)
        p, q = np.exp(log_p), np.exp(log_q)
        ratio = log_q - log_p
        each = (q * ratio).sum(axis=2)
        w = weight[:, :, None]
        return (each * weight).sum(axis=1), w * (p - q), w * q * (ratio - each[:, :, None])

    def mean(self, outputs: NDArray) -> NDArray:
        """Return probabilities."""
        return np.exp(_log_softmax(outputs))

    def score(self, outputs: NDArray, y: NDArray, weight: NDArray) -> NDArray:
        """Return the weight of each client's rows whose class has the largest probability."""
        return ((outputs.argmax(axis=2) == y) * weight).sum(axis=1)


class SquaredError(Loss):
    r"""Half the squared error of a number, :math:`(y - \hat y)^2 / 2`.

    Examples
    --------
    >>> SquaredError().of(np.array([[[1.0]]]), np.array([[3.0]]), np.ones((1, 1)))
    (array([2.]), array([[[-2.]]]))
    """

    def of(self, outputs: NDArray, y: NDArray, weight: NDArray) -> tuple[NDArray, NDArray]:
        residual = outputs[:, :, 0] - y
        slope = weight * residual
        return 0.5 * (slope * residual).sum(axis=1), slope[:, :, None]

    def divergence(
        self, outputs: NDArray, reference: NDArray, weight: NDArray
    ) -> tuple[NDArray, NDArray, NDArray]:
        value, slope = self.of(outputs, reference[:, :, 0], weight)
        return value, slope, -slope

    def mean(self, outputs: NDArray) -> NDArray:
        """Return the expected response."""
        return outputs

    def score(self, outputs: NDArray, y: NDArray, weight: NDArray) -> NDArray:
        """Return NaN: the score is for classes only."""
        return np.full(len(outputs), np.nan)


def _log_softmax(outputs: NDArray) -> NDArray:
    shifted = outputs - outputs.max(axis=2, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=2, keepdims=True))
    return shifted
