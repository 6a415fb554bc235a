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
from ebfed.priors.base import FEWEST
from ebfed.priors.integrated import IntegratedPosterior
from ebfed.priors.normal import Normal
from ebfed.priors.posterior import NormalMarginals, Posterior, root_of
from ebfed.priors.regression import Design, RegressionTable
from ebfed.priors.variance_components import MomentTable

__all__ = ["CorrelatedPosterior", "IntegratedJointly", "shrink_jointly"]


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
        Variance t, which may be infinite, and ``Var(t)``.
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
        own = variance / total if variance < np.inf else np.ones_like(total)
        away = eigenvalues / total
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

    def _robust_ends(self, level: float) -> tuple[NDArray, NDArray]:
        raise ValueError(
            "robust intervals are for estimates that are not correlated: give standard errors in "
            "place of a covariance."
        )


class IntegratedJointly(IntegratedPosterior):
    """Posterior of all parameters together, whose population is one of several."""

    @property
    def covariance(self) -> NDArray:
        """Posterior covariance of the parameters, shape (n, n)."""
        parts, weights = self._mixture
        centre = self.expectation[:, 0]
        total = np.zeros((len(centre), len(centre)))
        for part, weight in zip(parts, weights[:, 0, 0], strict=True):
            assert isinstance(part, CorrelatedPosterior)
            away = part.mean[:, 0] - centre
            total += weight * (part.covariance + np.outer(away, away))
        return total


def shrink_jointly(
    prior: Normal,
    values: NDArray,
    covariance: NDArray,
    covariates: NDArray | None = None,
    integrate: bool = True,
) -> Posterior:
    """Fit a normal population to correlated estimates, and shrink these.

    Parameters
    ----------
    prior : Normal
        Population with the settings of its fit; it is fitted in place, unless it is of another fit
        and reused.
    values : ndarray of shape (n,)
    covariance : ndarray of shape (n, n)
        Covariance of the values, symmetric and positive definite.
    covariates : ndarray of shape (n, k), optional
    integrate : bool
        Whether what is not known of the population is part of standard deviations, intervals and
        draws, as in `Prior.posterior`.

    Returns
    -------
    CorrelatedPosterior or IntegratedJointly

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
    along = np.linalg.eigh(covariance)
    if not prior.is_reused_:
        _fit_jointly(prior, values, covariance, covariates, *along)
    rows = np.ones((len(values), 1))
    if covariates is not None:
        rows = np.hstack([rows, covariates - prior.covariates_mean_])

    def under(one: Normal) -> CorrelatedPosterior:
        beta, doubt = one.mean_, one.mean_variance_[:, None] * integrate
        if one.slopes_ is not None:
            beta = np.append(one.predictor_, one.slopes_)
            doubt = one.coefficients_covariance_[0] * integrate
        t, spread = float(one.variance_[0]), float(one.variance_variance_[0]) * integrate
        if prior.is_reused_:  # these estimates say something of coefficients too
            total = covariance + t * np.eye(len(values)) + rows @ doubt @ rows.T
            gain = np.linalg.solve(total, rows @ doubt).T
            centre = rows @ (beta + gain @ (values - rows @ beta))
            root = rows @ root_of(doubt - gain @ rows @ doubt)
        else:
            centre = rows @ beta
            root = rows @ np.linalg.cholesky(doubt) if doubt.any() else rows[:, :0]
        return CorrelatedPosterior(values, centre, *along, t, spread, root)

    fitted = under(prior)
    if integrate and prior.spread_is_unknown_:  # what the estimates say, no more
        alone = CorrelatedPosterior(values, values, *along, np.inf, 0.0, rows[:, :0])
        return IntegratedJointly(fitted, lambda: ([alone], np.ones((1, 1, 1))))
    if not integrate or not prior._has_others:
        return fitted

    def parts() -> tuple[list[CorrelatedPosterior], NDArray]:
        populations, weights = prior.populations()
        return [under(one) for one in populations], weights[:, None, :]

    return IntegratedJointly(fitted, parts)


def _fit_jointly(
    prior: Normal,
    values: NDArray,
    covariance: NDArray,
    covariates: NDArray | None,
    eigenvalues: NDArray,
    axes: NDArray,
) -> None:
    """Fit a normal population to estimates along the eigenvectors of their covariance."""
    prior._check()
    if covariates is not None and prior.mean is not None:
        raise ValueError("mean must be None with covariates, on which the mean depends.")
    prior.notes_, prior.noise_variance_, prior.slopes_ = [], None, None
    prior.plausible_ = None
    n = len(values)
    design = Design.of(covariates, np.ones(n, bool))
    shift = float(values.mean() if prior.mean is None else np.ravel(prior.mean)[0])
    rows = (eigenvalues, np.ones(n), axes.T @ (values - shift), np.zeros(n), None, 0)
    if prior.mean is None:
        table: MomentTable = RegressionTable(*rows, matrix=axes.T @ design.matrix, shift=shift)
    else:
        table = MomentTable(*rows, fixed_mean=0.0)
    prior._fit_tables([table], design)
    prior._leave_kurtosis_open()
    if prior.mean is not None:
        prior.mean_ = prior.mean_ + shift
        if prior.plausible_ is not None:
            prior.plausible_["mean_"] += shift
    prior._explain(Gaussian(values[:, None], np.diag(covariance)[:, None]), [table])
    prior.n_seen_ = n
    prior.spread_is_unknown_ = prior.estimates_spread and n < FEWEST
