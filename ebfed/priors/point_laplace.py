"""Point-Laplace population: some parameters are the mode, the others Laplace around it."""

from __future__ import annotations

from typing import ClassVar

from ebfed.priors.slabs import LaplaceSlab
from ebfed.priors.spike_and_slab import SpikeAndSlab

__all__ = ["PointLaplace"]


class PointLaplace(SpikeAndSlab):
    """Population ``pi0 delta(mode) + (1 - pi0) exp(-|theta - mode| / scale) / (2 scale)``.

    As `PointNormal`, for sparse effects of which a few are large: these are shrunk by a constant,
    ``s_i**2 / scale``, where a normal slab shrinks in proportion. Posteriors are a point and two
    half-line normals, and intervals average over populations as there.

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
    Johnstone and Silverman (2004), Annals of Statistics 32, 1594-1649.

    Examples
    --------
    >>> import numpy as np
    >>> from ebfed.likelihoods import Gaussian
    >>> x = np.array([0.1, -0.3, 0.2, 6.0, -5.0, 0.0, -0.1, 0.4])
    >>> messages = Gaussian(x[:, None], np.full((8, 1), 0.25))
    >>> prior = PointLaplace().fit(messages)
    >>> round(prior.pi0_, 2), round(prior.scale_, 1)
    (0.71, 4.8)
    """

    slab: ClassVar[type[LaplaceSlab]] = LaplaceSlab

    def __init__(self, mode: float | None = 0.0):
        self.mode = mode
