"""AdaPeD under differential privacy."""

from __future__ import annotations

from typing import ClassVar

from ebfed.learning.adaped import AdaPeD, AdaPeDRounds

__all__ = ["DPAdaPeD", "DPAdaPeDRounds"]


class DPAdaPeD(AdaPeD):
    r"""AdaPeD with differential privacy, which must be given.

    Parameters
    ----------
    model, shared_model, n_rounds, local_steps, psi, psi_clip, privacy, ...
        As for `AdaPeD`.

    References
    ----------
    Ozkara, Girgis, Data and Diggavi (2023), section 3.3.

    Examples
    --------
    >>> import numpy as np
    >>> from ebfed.learning import ClientPrivacy
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(np.arange(200), 10)
    >>> X = rng.normal(size=(2000, 2))
    >>> y = X[:, 0] + rng.normal(size=200)[groups] > 0
    >>> privacy = ClientPrivacy(epsilon=1.0)
    >>> est = DPAdaPeD(privacy=privacy, learning_rate=1.0, psi=1.0, n_rounds=50, random_state=0)
    >>> est.fit(X, y, groups=groups).score(X, y, groups=groups)
    0.9...
    """

    def protocol(self) -> DPAdaPeDRounds:
        return DPAdaPeDRounds(self)


class DPAdaPeDRounds(AdaPeDRounds):
    """What clients and server of `DPAdaPeD` do."""

    requires_privacy: ClassVar[bool] = True
