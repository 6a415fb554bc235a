"""Mixture of linear regressions: a few coefficient vectors that all groups share."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal

from sklearn.base import RegressorMixin

from ebfed.arguments import check_choice
from ebfed.regression.base import RegressionEstimator
from ebfed.regression.coefficient_rounds import CoefficientRounds
from ebfed.regression.evidence_rounds import EvidenceRounds
from ebfed.regression.evidence_sources import NumberEvidence
from ebfed.regression.mixture import FittedMixture, MixtureRegression, MixtureSettings
from ebfed.regression.schemes import PosteriorMeans

__all__ = ["MixtureLinearEB"]


@dataclass(eq=False, repr=False)
class MixtureLinearEB(RegressorMixin, MixtureRegression):
    """Mixture of regressions: every group has one of k coefficient vectors.

    Rows of group i are ``y_ij = x_ij' theta_i + e_ij``, ``e_ij ~ N(0, noise)``, with ``theta_i =
    mu_l`` with probability w_l: the population of `AdaMix` without variances. Each group's estimate
    is its posterior mean

        theta_i^ = sum_l alpha_il mu_l,   alpha_il ∝ w_l exp(-|y_i - X_i mu_l|**2 / (2 noise)).

    Parameters
    ----------
    n_components, max_components, fit_intercept, n_init, tol, engine, verbose :
        As of `AdaMix`.
    noise_variance : float, optional
        Variance of the noise of rows, estimated if None. Must be given for ``"clustering"``.
    solver : {"em", "clustering"}
        ``"em"``: maximum likelihood; every step solves the weighted least squares of all groups.
        ``"clustering"`` is Algorithm 6 of Ozkara et al.: clients send theta_i^, which the server
        clusters by k-means. For replication.
    n_rounds : int, optional
        Number of rounds, at most, from 3 on; 300 if None. Their exact number for ``"clustering"``
        (10 if None).
    random_state : int, Generator or None
        Seed of the starts.

    Attributes
    ----------
    n_components_, criterion_, weights_, mean_, variance_, noise_variance_, history_ :
        See `AdaMix`.
    means_ : ndarray of shape (k, p)
        The coefficient vectors, sorted; the intercept first.
    means_covariance_ : ndarray of shape (k, p, p)
        Sampling covariance of each, given who has it.
    log_likelihood_ : float
        NaN where the rows are explained exactly, so that it has no bound, and of ``"clustering"``.
    clients_, groups_, terms_, privacy_, notes_ :
        See `RegressionEstimator`.

    References
    ----------
    Ozkara, Girgis, Data, Diggavi (2023), A statistical framework for personalized federated
    learning and estimation, Algorithm 6; Marfoq, Neglia, Bellet, Kameni and Vidal (2021), Federated
    multi-task learning under a mixture of distributions; DeSarbo and Cron (1988), A maximum
    likelihood methodology for clusterwise linear regression.

    Examples
    --------
    >>> import ebfed as eb
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(np.arange(300), 6)
    >>> x = rng.normal(size=1800)
    >>> y = np.where(groups % 3, 1, -2) * x + 0.5 * rng.normal(size=1800)
    >>> est = eb.MixtureLinearEB(2, fit_intercept=False, random_state=0)
    >>> est = est.fit(x[:, None], y, groups=groups)
    >>> est.weights_.round(2), est.means_.ravel().round(1)
    (array([0.33, 0.67]), array([-2.,  1.]))
    """

    _: KW_ONLY
    noise_variance: float | None = None
    solver: Literal["em", "clustering"] = "em"

    def _settings(self) -> MixtureSettings:
        return self._with_settings(
            noise_variance=self.noise_variance,
            has_variances=False,
            default_rounds=10 if self.solver == "clustering" else 300,
        )

    def protocol(self) -> EvidenceRounds | CoefficientRounds:
        check_choice("solver", self.solver, ("em", "clustering"))
        if self.solver == "em":
            return EvidenceRounds(self._settings(), NumberEvidence(), estimator=self)
        if self.noise_variance is None:
            raise ValueError("noise_variance must be given with solver='clustering'.")
        settings = self._settings()
        scheme = PosteriorMeans(settings.given_number, self.noise_variance)
        return CoefficientRounds(settings, scheme, None, estimator=self)

    score = RegressionEstimator.score  # the mixin's has no groups

    def _population(self) -> FittedMixture:
        name = "k-means" if self.solver == "clustering" else "ML"
        return self._mixture(name)
