"""Per-FedAvg: shared parameters from which one step personalises."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ebfed.learning.base import Named, Now
from ebfed.learning.local_training import LocalTraining
from ebfed.learning.minibatches import Minibatches
from ebfed.models import Batch

__all__ = ["PerFedAvg"]


@dataclass(eq=False, repr=False)
class PerFedAvg(LocalTraining):
    r"""Shared parameters whose loss is small after each client has made one step of its own.

    .. math:: w_i \leftarrow w_i - \eta\, (I - \alpha \nabla^2 f_i(w_i))\,
        \nabla f_i(w_i - \alpha \nabla f_i(w_i))

    The two gradients are taken on different batches if there are several (``local_steps > 1``). The
    product with the Hessian is a difference of two gradients ("HF" of the paper), or left out
    ("FO").

    Parameters
    ----------
    model, n_rounds, learning_rate, local_steps, batch_size, sample_rate and others
        As for every learner: see `ebfed.learning.local_training.LocalTraining` and
        `ebfed.learning.base.Learner`.
    own_learning_rate : float
        alpha, of the step that personalises.
    hessian : bool
        Whether the Hessian is in the product.

    References
    ----------
    Fallah, Mokhtari and Ozdaglar (2020), Personalized federated learning with theoretical
    guarantees: a model-agnostic meta-learning approach, Algorithm 1, eq. (13).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(np.arange(20), 10)
    >>> X = rng.normal(size=(200, 2))
    >>> y = X[:, 0] + rng.normal(size=20)[groups] > 0
    >>> est = PerFedAvg(learning_rate=1.0, own_learning_rate=5.0, local_steps=2, random_state=0)
    >>> est.fit(X, y, groups=groups).score(X, y, groups=groups)
    0.9...
    """

    own_learning_rate: float = 0.01
    hessian: bool = True

    def _settings(self) -> list[str]:
        return [*super()._settings(), "own_learning_rate"]

    def _train(self, shared: Named, own: Named, rows: Minibatches, now: Now) -> tuple[Named, Named]:
        w, alpha = shared["w"], self.own_learning_rate
        batches = list(rows)
        for batch, other in zip(batches, [*batches[1:], batches[0]], strict=True):
            adapted = w - alpha * self._slope(w, batch, rows, now)
            slope = self._slope(adapted, other, rows, now)
            if self.hessian:
                slope = slope - alpha * self._curvature(w, slope, batch, rows, now)
            w = w - now.rate * self.learning_rate * slope
        return {"w": w - shared["w"]}, own

    def _curvature(
        self, w: NDArray, direction: NDArray, batch: Batch, rows: Minibatches, now: Now
    ) -> NDArray[np.float64]:
        """Product of the Hessian with a direction, by a central difference of gradients."""
        size = np.linalg.norm(direction, axis=1, keepdims=True)
        length = 1e-4 * (1 + np.linalg.norm(w, axis=1, keepdims=True))
        step = length * direction / np.maximum(size, 1e-300)
        ahead, behind = (self._slope(w + sign * step, batch, rows, now) for sign in (1, -1))
        return (ahead - behind) * size / (2 * length)

    def _last_steps(self) -> int:
        return 1

    def _personal(
        self, shared: Named, own: Named, rows: Minibatches, now: Now
    ) -> NDArray[np.float64]:
        (batch,) = rows
        return shared["w"] - self.own_learning_rate * self._slope(shared["w"], batch, rows, now)
