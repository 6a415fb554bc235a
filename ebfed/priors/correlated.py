"""Normal population of parameters whose estimates are correlated, as those of one regression are.

With ``x ~ N(theta, V)`` and ``theta ~ N(W beta, t I)`` the eigenvectors U of V turn everything into
independent rows: ``U'x ~ N(U'theta, diag(l))`` and ``U'theta ~ N(U'W beta, t I)``. So
`RegressionTable` fits t; it needs no column of ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.likelihoods import Gaussian
from ebfed.priors.normal import Normal
from ebfed.priors.posterior import NormalMarginals
from ebfed.priors.regression import Design, RegressionTable
from ebfed.priors.variance_components import MomentTable, fit_components

__all__ = ["CorrelatedPosterior", "shrink_jointly"]


class CorrelatedPosterior(NormalMarginals):
    """Normal posterior of all parameters together, the population's uncertainty included.

    With ``A = t (t I + V)^-1`` and ``D = I - A``, the mean is ``A x + D W beta`` and the covariance

        A V  +  D W Cov(beta) W' D'  +  2 Var(t) D (t I + V)^-1 D',

    which for a diagonal V are the figures of `NormalPosterior`: the last term is what not knowing t
    adds, and counts twice (Prasad and Rao, 1990).

    Parameters
    ----------
    values : ndarray of shape (n,)
        Estimates x.
    centre : ndarray of shape (n,)
        Means ``W beta``.
    eigenvalues : ndarray of shape (n,)
        Eigenvalues of V, all positive.
    axes : ndarray of shape (n, n)
        Eigenvectors of V.
    variance, doubt : float
        Variance t and ``Var(t)``.
    root : ndarray of shape (n, p)
        Root ``W Cov(beta)**(1/2)``.

    Attributes
    ----------
    covariance : ndarray of shape (n, n)
    weight : ndarray of shape (n, 1)
        Diagonal of A: the weight of an estimate in its own posterior mean.
    """

    def __init__(
        self,
        values: NDArray,
        centre: NDArray,
        eigenvalues: NDArray,
        axes: NDArray,
        variance: float,
        doubt: float,
        root: NDArray,
    ):
        total = variance + eigenvalues
        own, away = variance / total, eigenvalues / total
        self._axes = axes
        self._spread = own * eigenvalues + 2 * doubt * away**2 / total
        self._common = axes @ (away[:, None] * (axes.T @ root))
        self.mean = (centre + axes @ (own * (axes.T @ (values - centre))))[:, None]
        self.weight = (axes**2 @ own)[:, None]
        variances = axes**2 @ self._spread + (self._common**2).sum(axis=1)
        self.sd = np.sqrt(variances)[:, None]

    @property
    def covariance(self) -> NDArray:
        """Posterior covariance of the parameters, shape (n, n)."""
        return (self._axes * self._spread) @ self._axes.T + self._common @ self._common.T

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        """Draw `size` vectors of all parameters, shape (size, n, 1)."""
        loadings = np.hstack([self._axes * np.sqrt(self._spread), self._common])
        noise = np.random.default_rng(random_state).standard_normal((size, loadings.shape[1]))
        return (self.mean[:, 0] + noise @ loadings.T)[:, :, None]

    def _robust_half_width(self, level: float) -> NDArray:
        raise ValueError("robust intervals are for estimates that are not correlated.")


class _RotatedTable(RegressionTable):
    """Rows along the eigenvectors: two of one variance still differ in their design."""

    def coarse(self) -> MomentTable:
        return self


def shrink_jointly(
    prior: Normal, values: NDArray, covariance: NDArray, covariates: NDArray | None = None
) -> CorrelatedPosterior:
    """Fit a normal population to correlated estimates, and shrink these.

    Parameters
    ----------
    prior : Normal
        Population with the settings of its fit; it is fitted in place.
    values : ndarray of shape (n,)
    covariance : ndarray of shape (n, n)
        Covariance of the values, symmetric and positive definite.
    covariates : ndarray of shape (n, k), optional

    Raises
    ------
    ValueError
        If `prior` has a mean of its own besides covariates.

    Examples
    --------
    Three contrasts with one reference, each level with an error variance of 1:

    >>> prior, V = Normal(variance=3.0), np.eye(3) + 1
    >>> shrink_jointly(prior, np.array([0.0, 2.0, 4.0]), V).mean.ravel()
    array([0.5, 2. , 3.5])
    >>> prior.mean_, prior.mean_variance_.round(2)
    (array([2.]), array([2.33]))
    """
    prior._check()
    if covariates is not None and prior.mean is not None:
        raise ValueError("mean must be None with covariates, on which the mean depends.")
    n = len(values)
    prior.notes_, prior.noise_variance_, prior.slopes_ = [], None, None
    eigenvalues, axes = np.linalg.eigh(covariance)
    design = None if covariates is None else Design.of(covariates, np.ones(n, bool))
    matrix = np.ones((n, 1)) if design is None else design.matrix
    shift = values.mean()
    if prior.mean is not None:
        shift = np.broadcast_to(np.asarray(prior.mean, float), 1)[0]
    rows = (eigenvalues, np.ones(n), axes.T @ (values - shift), np.zeros(n), None, 0)
    if prior.mean is None:
        table: MomentTable = _RotatedTable(*rows, matrix=axes.T @ matrix, shift=shift)
    else:
        table = MomentTable(*rows, fixed_mean=0.0)
    learned = prior.variance is None
    t = np.broadcast_to(np.asarray(prior.variance, float), 1)[0]
    if learned:
        t, _ = fit_components([table], prior.method)
    profile: Any = table.profile(float(t))
    doubt = 1 / profile.information if learned and n > 1 else 0.0
    prior.variance_, prior.variance_variance_ = np.array([t], float), np.array([doubt])
    if prior.mean is None:
        prior.mean_, prior.mean_variance_ = np.array([profile.mean]), profile.covariance[:1, 0]
        centre = matrix @ profile.coefficients
        root = matrix @ np.linalg.cholesky(profile.covariance)
    else:
        prior.mean_, prior.mean_variance_ = np.array([shift], float), np.zeros(1)
        centre, root = np.full(n, shift), np.zeros((n, 0))
    if design is not None:
        prior._learn_coefficients(design, [profile], np.ones(1))
    # the fourth moment is not known, the second has its standard error
    prior.kurtosis_ = np.full(1, np.inf)
    prior.second_moment_ = prior.variance_ + np.sqrt(prior.variance_variance_)
    prior.n_parameters_ = root.shape[1] + learned
    prior._explain(Gaussian(values[:, None], np.diag(covariance)[:, None]), [table])
    return CorrelatedPosterior(values, centre, eigenvalues, axes, float(t), doubt, root)
