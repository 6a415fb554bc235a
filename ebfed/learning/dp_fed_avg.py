"""Federated averaging under differential privacy."""

from __future__ import annotations

from typing import ClassVar

from ebfed.learning.fed_avg import FedAvg

__all__ = ["DPFedAvg"]


class DPFedAvg(FedAvg):
    r"""Federated averaging of clipped changes, with noise.

    .. math:: w \leftarrow w + \frac{1}{qm} \Big\{\sum_{i \in K} (\theta_i - w)
        \min\Big(1, \frac{C}{\|\theta_i - w\|}\Big) + \mathcal N(0, z^2 C^2 I)\Big\}

    Parameters
    ----------
    model, n_rounds, learning_rate, local_steps, batch_size, sample_rate and others
        As for `FedAvg`. Clients join a round independently of one another unless
        ``sampling="fixed"``, which is accounted for as what it is and costs more.
    privacy : ClientPrivacy
        Differential privacy of what clients send; it must be given.

    References
    ----------
    McMahan, Ramage, Talwar and Zhang (2018), Learning differentially private recurrent language
    models, Algorithm 1. Andrew, Thakkar, McMahan and Ramaswamy (2021), Differentially private
    learning with adaptive clipping, Algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> from ebfed.learning import ClientPrivacy
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(np.arange(500), 5)
    >>> X = rng.normal(size=(2500, 2))
    >>> y = X[:, 0] > 0
    >>> privacy = ClientPrivacy(epsilon=1.0)
    >>> est = DPFedAvg(privacy=privacy, n_rounds=20, learning_rate=1.0, random_state=0)
    >>> est.fit(X, y, groups=groups).score(X, y, groups=groups)
    0.9...
    >>> est.privacy_[["times", "epsilon", "relation"]].round(3).to_dict("list")
    {'times': [20], 'epsilon': [1.0], 'relation': ['the rows of one client, or none']}
    """

    requires_privacy: ClassVar[bool] = True
