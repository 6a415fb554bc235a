"""Point-normal population: some parameters are the mode, the others normal around it."""

from __future__ import annotations

from typing import ClassVar

from ebfed.priors.slabs import NormalSlab
from ebfed.priors.spike_and_slab import SpikeAndSlab

__all__ = ["PointNormal"]


class PointNormal(SpikeAndSlab):
    """Population ``theta ~ pi0 delta(mode) + (1 - pi0) N(mode, scale**2)``.

    For sparse effects: most are nothing, some are something. Fitted to Gaussian messages ``x_i ~
    N(theta_i, s_i**2)`` by maximising

        sum_i log [pi0 N(x_i; mode, s_i**2) + (1 - pi0) N(x_i; mode, scale**2 + s_i**2)]

    (Johnstone and Silverman 2004, with a normal slab); posteriors are a point and a normal. Reports
    of a channel are fitted by their exact marginal likelihood, integrated on a grid. Intervals
    average over plausible modes, weights and scales, under a prior that is flat in the mode, in the
    fourth root of ``pi0`` and, times the fifth root of ``scale**2 / (scale**2 + s**2)`` with s a
    typical error, in the scale; from 2000 clients on, the population is taken as known where
    it is known well.

    Parameters
    ----------
    mode : float or None
        Estimated if None.

    Attributes
    ----------
    pi0_, scale_, mode_ : float
    mean_, variance_ : ndarray of shape (1,)

    References
    ----------
    Johnstone and Silverman (2004), Annals of Statistics 32, 1594-1649; Willwerscheid, Carbonetto,
    Stephens (2025), ebnm, Journal of Statistical Software 114.

    Examples
    --------
    >>> import numpy as np
    >>> from ebfed.likelihoods import Gaussian
    >>> x = np.array([0.1, -0.3, 0.2, 6.0, -5.0, 0.0, -0.1, 0.4])
    >>> messages = Gaussian(x[:, None], np.full((8, 1), 0.25))
    >>> prior = PointNormal().fit(messages)
    >>> round(prior.pi0_, 2), round(prior.scale_, 1)
    (0.72, 5.2)
    >>> prior.posterior(messages).mean.ravel().round(2)
    array([ 0.  , -0.01,  0.01,  5.94, -4.95,  0.  , -0.  ,  0.02])
    """

    slab: ClassVar[type[NormalSlab]] = NormalSlab

    def __init__(self, mode: float | None = 0.0):
        self.mode = mode
