"""Laplace (double exponential) population: the lasso's."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ebfed.likelihoods import Gaussian
from ebfed.priors.slabs import LaplaceSlab
from ebfed.priors.spike_and_slab import SpikeAndSlab

__all__ = ["Laplace"]


class Laplace(SpikeAndSlab):
    """Population ``p(theta) = exp(-|theta - mean| / scale) / (2 scale)``.

    Heavier tails than the normal, and a peak. Under a message ``x ~ N(theta, s**2)`` the posterior
    is a mixture of two half-line normals, ``N(x - s**2 / scale, s**2)`` above the mean and ``N(x +
    s**2 / scale, s**2)`` below (Pericchi and Smith 1992); its mode is the soft threshold. Mean and
    scale maximise the marginal likelihood, and never the joint one with the parameters, which is
    unbounded. Intervals average over plausible means and scales, under a prior that is flat in the
    mean and, times the fifth root of ``scale**2 / (scale**2 + s**2)`` with s a typical error, in
    the scale.

    Parameters
    ----------
    mean : float or None
        Estimated if None.

    Attributes
    ----------
    scale_, mode_ : float
    mean_, variance_ : ndarray of shape (1,)

    References
    ----------
    Pericchi and Smith (1992), J. R. Statist. Soc. B 54, 793-804; Park and Casella (2008); Ozkara,
    Girgis, Data, Diggavi (2023), section 3.

    Examples
    --------
    >>> from ebfed.likelihoods import Gaussian
    >>> x = np.array([[-3.0], [-0.5], [0.0], [0.5], [1.0], [8.0]])
    >>> messages = Gaussian(x, np.full((6, 1), 1.0))
    >>> prior = Laplace(mean=0.0).fit(messages)
    >>> prior.scale_
    2.18
    >>> prior.posterior(messages).mean.ravel().round(2)
    array([-2.55, -0.35,  0.  ,  0.35,  0.73,  7.54])
    >>> prior.posterior_mode(messages).ravel().round(2)
    array([-2.54, -0.04,  0.  ,  0.04,  0.54,  7.54])
    """

    slab: ClassVar[type[LaplaceSlab]] = LaplaceSlab
    spike: ClassVar[bool] = False

    def __init__(self, mean: float | None = None):
        self.mean = mean

    @property
    def mode(self) -> float | None:  # type: ignore[override]
        """The mean, which is the mode."""
        return self.mean

    def posterior_mode(self, likelihood: Gaussian) -> NDArray:
        """Soft threshold ``mean + sign(u) max(|u| - s**2 / scale, 0)``, ``u = x - mean``.

        Parameters
        ----------
        likelihood : Gaussian

        Returns
        -------
        ndarray of shape (n, 1)
        """
        check_is_fitted(self, "mean_")
        u = likelihood.values - self.mode_
        with np.errstate(divide="ignore", invalid="ignore"):
            threshold = np.where(likelihood.variances > 0, likelihood.variances / self.scale_, 0.0)
        return self.mode_ + np.sign(u) * np.maximum(np.abs(u) - threshold, 0)
