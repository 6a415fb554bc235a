"""AdaMix for classes: logistic regressions whose coefficients come from a Gaussian mixture."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin

from ebfed.arguments import check_choice
from ebfed.regression.base import RegressionEstimator
from ebfed.regression.classes import ClassRegression
from ebfed.regression.evidence_rounds import EvidenceRounds
from ebfed.regression.evidence_sources import ClassEvidence, weigh_classes
from ebfed.regression.mixture import FittedMixture, MixtureRegression, MixtureSettings
from ebfed.regression.numerics.evidence import Evidence, MixturePopulation
from ebfed.regression.numerics.quadrature_population import LOW
from ebfed.regression.posteriors.softmax import SoftmaxPosterior
from ebfed.regression.protocol import MixtureResult
from ebfed.regression.reading import posterior_of_rows
from ebfed.tables.clients import Clients

__all__ = ["AdaMixClassifier"]


@dataclass(eq=False, repr=False)
class AdaMixClassifier(ClassifierMixin, ClassRegression, MixtureRegression):
    """Empirical Bayes logistic regression with a Gaussian mixture for a population.

    Rows of group i have class c with probability ``exp(x_ij' theta_ic) / sum_k exp(x_ij'
    theta_ik)``, where theta_i of the first class is zero, and the coefficients of the C - 1 others

        theta_i ~ sum_l w_l N(mu_l, s_l**2 I)

    (Ozkara et al. 2023, section 3.1, for the logistic loss). The population maximises the marginal
    likelihood as for `AdaMix`. That of a client in one component is found for two classes by
    expectation propagation, as in `LogisticEB`, which this is with one component; for more by
    Laplace's method: the log-posterior at its mode and half the log-determinant of the inverse V of
    its curvature. Slopes are those of this approximation, so that no round loses any of it;
    posteriors have covariance V and, for a mean, the mode and what skewness adds to it to first
    order (Tierney and Kadane 1986). Laplace's method underestimates the spread of the population
    where groups have few rows, in trials of 3 to 20 by up to 5 percent. The first class is the one
    whose coefficients do not vary: its choice is part of the model.

    Parameters
    ----------
    n_components, max_components, covariance, fit_intercept, n_rounds, n_init, tol :
        As of `AdaMix` with ``solver="em"``.
    engine, verbose :
        As of `AdaMix`.
    random_state : int, Generator or None
        Seed of the starts.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        The labels of `y`, sorted.
    n_components_, criterion_, weights_ :
        See `AdaMix`.
    means_, variances_ : ndarray of shape (k, q)
        Means and variances of the components, sorted by their means; ``q = p (C - 1)``, class by
        class from the second on, the intercept first.
    means_covariance_ : ndarray of shape (k, q, q)
        Sampling covariance of each component's mean, given who belongs to it.
    mean_, variance_ : ndarray of shape (q,)
        Mean and variance of the population.
    terms_ : list of str
        Names of the coefficients; with more than two classes, ``"x0[b]"`` is that of x0 for b.
    clients_, groups_, history_, privacy_, notes_ :
        See `RegressionEstimator`.

    References
    ----------
    Ozkara, Girgis, Data, Diggavi (2023), A statistical framework for personalized federated
    learning and estimation, section 3.1; Minka (2001), Expectation propagation for approximate
    Bayesian inference; Tierney and Kadane (1986), Accurate approximations for posterior moments and
    marginal densities, J. Am. Stat. Assoc. 81.

    Examples
    --------
    >>> import ebfed as eb
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(np.arange(600), 20)
    >>> slope = np.where(rng.random(600) < 0.3, -2, 2)[groups]
    >>> x = rng.normal(size=12000)
    >>> y = rng.random(12000) < 1 / (1 + np.exp(-slope * x))
    >>> est = eb.AdaMixClassifier(2, fit_intercept=False, random_state=0)
    >>> est = est.fit(x[:, None], y, groups=groups)
    >>> est.weights_.round(1), est.means_.ravel().round(0)
    (array([0.3, 0.7]), array([-2.,  2.]))
    """

    _: KW_ONLY
    covariance: Literal["spherical", "diag"] = "spherical"

    @property
    def _many(self) -> bool:
        """Whether there are more than two classes."""
        return len(self.classes_) > 2

    def _settings(self) -> MixtureSettings:
        return self._with_settings(
            noise_variance=1.0,
            one_variance=self.covariance == "spherical",
            has_noise=False,
            least_variance=LOW,
            # where rows are separable, means run away: no mean is known less than from a tenth of
            # a row
            ridge=0.01,
        )

    def protocol(self) -> EvidenceRounds:
        check_choice("covariance", self.covariance, ("spherical", "diag"))
        return EvidenceRounds(self._settings(), ClassEvidence(), estimator=self)

    # Learning ---------------------------------------------------------------------------------

    def _learn(self, result: MixtureResult) -> None:
        super()._learn(result)
        self.classes_ = result["classes"]
        if self._many:
            self.notes_ = [*self.notes_, LAPLACE]

    def _population(self) -> FittedMixture:
        classes = self.classes_

        def weigh(block: Clients, population: MixturePopulation) -> Evidence:
            units = np.ones(population.means.shape[1])
            return weigh_classes(block, population, units, classes)

        how = "Laplace" if self._many else "expectation propagation"
        return self._mixture(how, weigh, SoftmaxPosterior, "approximate")

    score = RegressionEstimator.score  # the mixin's has no groups

    # Estimates --------------------------------------------------------------------------------

    @property
    def terms_(self) -> list[str]:
        terms = super().terms_
        if not self._many:
            return terms
        return [f"{term}[{label}]" for label in self.classes_[1:] for term in terms]

    @property
    def coef_(self) -> NDArray:
        """Mean of the population without the intercept: (d,), or (C - 1, d) of many classes."""
        if not self._many:
            return super().coef_
        return self.mean_.reshape(len(self.classes_) - 1, -1)[:, bool(self.fit_intercept) :]

    @property
    def intercept_(self) -> Any:
        """Mean of the population's intercepts: a number, or (C - 1,) of many classes."""
        if not self._many:
            return super().intercept_
        intercepts = self.mean_.reshape(len(self.classes_) - 1, -1)[:, 0]
        return intercepts if self.fit_intercept else np.zeros_like(intercepts)

    def predict_log_proba(self, X: Any, *, groups: Any = None) -> NDArray:
        rows, codes, posterior = posterior_of_rows(self, X, groups)
        assert isinstance(posterior, SoftmaxPosterior)
        return posterior.log_probabilities(rows, codes)


LAPLACE = (
    "Laplace's approximation, by which more than two classes are fitted, underestimates the spread "
    "of the population where groups have few rows: in trials, by up to 5 percent."
)
