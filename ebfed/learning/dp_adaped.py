"""AdaPeD under differential privacy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ebfed.learning.adaped import AdaPeD
from ebfed.learning.privacy import PrivateLearner, shorten
from ebfed.privacy import events

__all__ = ["DPAdaPeD"]


@dataclass(eq=False, repr=False)
class DPAdaPeD(PrivateLearner, AdaPeD):
    r"""AdaPeD whose clients clip every gradient of what they send.

    The gradients h of mu are clipped to C_1 and those of psi, k, to C_2, in every local step. What
    a client sends in a round is eta_2 times a sum of tau clipped gradients: it has a norm of at
    most :math:`\tau \eta_2 C_1`, and that is what the noise is measured by. Personal predictors are
    never sent, and need no noise.

    Parameters
    ----------
    model, shared_model, n_rounds, local_steps, psi, ...
        As for `AdaPeD`.
    clip : float
        C_1.
    psi_clip : float
        C_2.
    epsilon, delta, noise_multiplier, trust, sample_rate, sampling
        The promise: see `ebfed.learning.privacy.PrivateLearner`, whose `clip_quantile`
        has no meaning here.

    Notes
    -----
    Theorem 5 of the paper takes the sum of tau clipped gradients to have the squared norm
    :math:`\tau C_1^2`; it is :math:`\tau^2 C_1^2`. The ledger holds the latter.

    References
    ----------
    Ozkara, Girgis, Data and Diggavi (2023), section 3.3.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(np.arange(200), 10)
    >>> X = rng.normal(size=(2000, 2))
    >>> y = X[:, 0] + rng.normal(size=200)[groups] > 0
    >>> est = DPAdaPeD(learning_rate=1.0, epsilon=1.0, psi=1.0, n_rounds=50, random_state=0)
    >>> est.fit(X, y, groups=groups).score(X, y, groups=groups)
    0.9...
    """

    psi_clip: float = 1.0

    def _settings(self) -> list[str]:
        return [*super()._settings(), "psi_clip"]

    def _check(self) -> None:
        super()._check()
        if self.clip_quantile is not None:
            raise ValueError("clip_quantile must be None: gradients are clipped step by step.")

    def _bound(self, gradient: NDArray, name: str) -> NDArray[np.float64]:
        return shorten(gradient, self.clip if name == "mu" else self.psi_clip)[0]

    def _limits(self, sent: dict) -> dict[str, float]:
        """Largest norm of each part of a message: that of tau steps."""
        tau = self.local_steps * self.decay ** sent["round"]
        # rounding may take a sum a little beyond
        mu = tau * self._step_of_mu * self.clip * (1 + 1e-9)
        return {"mu": mu, "psi": tau * self.psi_learning_rate * self.psi_clip * (1 + 1e-9)}

    def _split(self, m: int) -> tuple[float, float]:
        """Noise multiplier of each of the two parts, which are one release."""
        z, bits = super()._split(m)
        return (z and z / events.joint_multiplier([1.0, 1.0])), bits
