"""Logistic regression in every group, the coefficients drawn from a normal population."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin

from ebfed.engines import Engine
from ebfed.engines.sums import Share
from ebfed.regression.base import RegressionEstimator
from ebfed.regression.beside import groups_beside, predictors_beside, responses_beside
from ebfed.regression.classes import ClassRegression, check_two_classes
from ebfed.regression.diagnosis import diagnostics_of_logistic, residuals_of_rows
from ebfed.regression.families import Binomial, Responses
from ebfed.regression.generalized_inference import inference_of_generalized
from ebfed.regression.generalized_intervals import ends_of_generalized
from ebfed.regression.generalized_population import nodes_of
from ebfed.regression.inferring import (
    coefficient_tests,
    errors_and_degrees,
)
from ebfed.regression.influence import influence_of_generalized
from ebfed.regression.intervals import confint_of_rows
from ebfed.regression.logistic_population import LogisticPopulation
from ebfed.regression.logistic_rounds import LogisticRounds, Method
from ebfed.regression.numerics.normal_population import Covariance
from ebfed.regression.posteriors.logistic import (
    NormalCoefficients,
    log_probabilities,
)
from ebfed.regression.posteriors.predictive import predictive_interval
from ebfed.regression.protocol import LogisticResult
from ebfed.regression.reading import IntervalKind, check_interval, posterior_of_rows
from ebfed.regression.separation import endless_terms
from ebfed.report.view import RegressionView
from ebfed.tables.lazy import is_lazy
from ebfed.tables.scans import FITTED, where

__all__ = ["LogisticEB"]


@dataclass(eq=False, repr=False)
class LogisticEB(ClassifierMixin, ClassRegression):
    """Empirical Bayes logistic regression: a coefficient vector for every group.

    Rows of group i are ``y_ij ~ Bernoulli(1 / (1 + exp(-x_ij' theta_i)))``, and ``theta_i ~ N(mean,
    covariance)``. The population maximises the marginal likelihood: in every round clients send the
    log-likelihood of their rows under a population, with its derivatives, and the server takes a
    step. This is the mixed model ``y ~ x + (1 + x || group)`` with a binomial response.

    Parameters
    ----------
    covariance : {"diag", "spherical", "full"}
        Covariance of the coefficients: a variance for each, one for all, or any.
    varying : sequence of str or int, optional
        Columns of `X` (or ``"intercept"``) whose coefficients differ between groups, with
        covariance ``"diag"``; the others have one coefficient for all. All, if None.
    method : {"auto", "aghq", "ep", "laplace", "gradient"}
        Method by which the population is fitted and clients' posteriors are found. ``"aghq"``
        computes the likelihood to numerical precision. With the others, `log_likelihood_` is an
        approximation.

        - ``"auto"``: ``"aghq"`` if at most three coefficients differ between groups, otherwise
          ``"ep"``. (If columns are collinear and the covariance is ``"full"``, their rank counts,
          not their number.)
        - ``"aghq"``: adaptive Gauss-Hermite quadrature, as in `glmer` with many nodes: integrals
          around the mode of each client's posterior, 15 to 201 nodes for one coefficient, 11 to 45
          on each axis for two, 7 to 31 for three, more where posteriors are wider. Clients send
          first and second derivatives of their log-likelihood, and the server takes Newton's steps
          to the maximum. Standard deviations of posteriors have what not knowing the spread of the
          population adds, which those of other methods do not.
        - ``"ep"``: expectation propagation. With up to four coefficients it is corrected by
          importance weights at a fixed set of points, so it does not depend on a seed. Clients send
          mean and covariance of their posteriors, and the server takes steps of Fisher's scoring
          (see `NormalPopulation`).
          `covariance_` and `log_likelihood_` are somewhat too large where groups have few rows.
        - ``"laplace"``: mode and curvature, as in penalized quasi-likelihood. Underestimates the
          spread of the population for few binary rows per group.
        - ``"gradient"``: Algorithm 5 of Ozkara et al. with its signs corrected: gradient descent on
          all theta_i, mean and log-variances together. For replication: that objective has no
          maximum.
    share : {"groups", "sums"}
        What a block of clients sends: figures of each client, or, with method ``"aghq"``, only
        their sums over its clients. The fit is the same. A sum over one client is that client's
        figure, and sums at many populations together may say much of few clients: it is less that
        leaves, not a guarantee of privacy.
    fit_intercept : bool
        Whether to put a column of ones first.
    n_rounds : int
        Largest number of rounds; the exact number for ``"gradient"``.
    learning_rate : float
        Learning rate of ``"gradient"``.
    engine : Engine, optional
        Engine on which clients compute; `engines.Local()` if None.
    verbose : int
        1 shows a progress bar over rounds.
    random_state : ignored

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        The labels of `y`, sorted; the model is of the probability of the second.
    method_ : str
        Method of the fit: ``"aghq"`` or ``"ep"`` for ``"auto"``.
    mean_ : ndarray of shape (p,)
        Mean of the population, the intercept first.
    mean_covariance_ : ndarray of shape (p, p)
        Sampling covariance of `mean_`: of ``"aghq"`` from the second derivatives of the
        log-likelihood, NaN for ``"gradient"``. If columns are collinear, it is singular:
        ``c' mean_covariance_ c`` holds for combinations c of coefficients that are identified, and
        the standard errors of single ones that are not are NaN in `tidy`.
    covariance_ : ndarray of shape (p, p)
        Covariance of the population.
    clients_, groups_, terms_, history_, privacy_, notes_ :
        See `RegressionEstimator`.

    References
    ----------
    Ozkara, Girgis, Data, Diggavi (2023), A statistical framework for personalized federated
    learning and estimation, appendix F; Liu, Pierce (1994), A note on Gauss-Hermite quadrature,
    Biometrika 81; Pinheiro, Bates (1995), Approximations to the log-likelihood function in the
    nonlinear mixed-effects model, J. Comput. Graph. Stat. 4; Minka (2001), Expectation propagation
    for approximate Bayesian inference.

    Examples
    --------
    >>> import ebfed as eb
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(np.arange(500), 10)
    >>> x = rng.normal(size=5000)
    >>> logit = rng.normal(1, 0.5, 500)[groups] + rng.normal(-1, 1, 500)[groups] * x
    >>> y = rng.random(5000) < 1 / (1 + np.exp(-logit))
    >>> est = eb.LogisticEB().fit(x[:, None], y, groups=groups)
    >>> est.mean_.round(1), np.sqrt(np.diag(est.covariance_)).round(1)
    (array([ 1., -1.]), array([0.6, 0.9]))
    >>> est.predict_proba(x[:2, None], groups=groups[:2]).shape
    (2, 2)
    """

    covariance: Covariance = "diag"
    _: KW_ONLY
    varying: Sequence[str | int] | None = None
    method: Method = "auto"
    share: Share = "groups"
    fit_intercept: bool = True
    n_rounds: int = 200
    learning_rate: float = 0.1
    engine: Engine | None = None
    verbose: int = 0
    random_state: Any = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _check_classes(self, classes: NDArray) -> None:
        check_two_classes(classes)

    def protocol(self) -> LogisticRounds:
        """Return what clients and server do, by these arguments."""
        return LogisticRounds(
            family=Binomial(),
            covariance=self.covariance,
            varying=self.varying,
            method=self.method,
            fit_intercept=self.fit_intercept,
            n_rounds=self.n_rounds,
            learning_rate=self.learning_rate,
            share=self.share,
            endless=self._endless,
            estimator=self,
        )

    def _fit(self, clients: Any, memory: Any) -> Self:
        y = (clients.y == np.unique(clients.y)[-1]).astype(float)
        rows = Responses(y, np.ones(len(y)), np.zeros(len(y)))
        self._endless = endless_terms(Binomial(), clients.X, rows, self._columns().terms)
        try:
            return super()._fit(clients, memory)
        finally:
            self._endless = None

    # Learning ---------------------------------------------------------------------------------

    def _learn(self, result: LogisticResult) -> None:
        self._result = result
        self.classes_, self.notes_ = result["classes"], result["notes"]
        self.method_ = cast(Method, result["method"])
        self.mean_, self.covariance_ = result["mean"], result["covariance"]
        self.mean_covariance_ = result["mean_covariance"]

    def _population(self) -> LogisticPopulation:
        result = self._result
        return LogisticPopulation(
            columns=self._columns(),
            family=Binomial(),
            shapes=np.zeros(0),
            shape_covariance=self.mean_covariance_,
            classes=self.classes_,
            mean=self.mean_,
            # gradient descent has no error of the mean
            mean_covariance=np.nan_to_num(self.mean_covariance_),
            estimable=self._estimable,
            covariance=self.covariance_,
            root=result["root"],
            kind=self.covariance,
            method=self.method_,
            **nodes_of(result),
        )

    def predict_interval(
        self,
        X: Any,
        *,
        groups: Any = None,
        level: float = 0.95,
        kind: IntervalKind = "row",
    ) -> tuple[NDArray, NDArray]:
        """Interval for each row's probability of the second class, or for the class.

        Parameters
        ----------
        X, groups : as in `predict`
        level : float in (0, 1)
        kind : {"row", "mean"}
            Whether the interval is to hold a new response, 0 or 1, or its probability given the
            coefficients of the row's group. It includes uncertainty in the spread of the
            population.

        Returns
        -------
        lower, upper : ndarray of shape (n_rows,)
        """
        check_interval(level, kind, False, "binomial")
        rows, codes, posterior = posterior_of_rows(self, X, groups)
        mean = np.einsum("np,np->n", rows, posterior.mean[codes])
        found = mean, posterior.variance_along(rows, codes)
        return predictive_interval(Binomial(), np.zeros(0), *found, level, kind == "row")

    score = RegressionEstimator.score  # the mixin's has no groups

    diagnostics = diagnostics_of_logistic
    residuals = residuals_of_rows
    influence = influence_of_generalized
    inference = inference_of_generalized
    tests = coefficient_tests
    confint = confint_of_rows
    _ends = ends_of_generalized

    def __ebfed_view__(self) -> RegressionView:
        """Return what reports and plots read of the fit."""
        return replace(super().__ebfed_view__(), degrees=errors_and_degrees(self))

    def predict(self, X: Any, *, groups: Any = None) -> NDArray:
        """Predict each row's label; of a lazy table, that table with a column ``.fitted``.

        Parameters
        ----------
        X, groups
            As in `ClassRegression.predict`.
        """
        if not is_lazy(X):
            return super().predict(X, groups=groups)
        rows = predictors_beside(self, X, groups_beside(self, X, groups))
        first, second = self.classes_.tolist()
        # an average over a symmetric law is above one half where its centre is above zero
        return rows.fitted({FITTED: where(rows.centre > 0, second, first)})

    def predict_proba(self, X: Any, *, groups: Any = None) -> NDArray:
        """Probability of each class; of a lazy table, that table with a column for each.

        Parameters
        ----------
        X, groups
            As in `predict`. Columns have names such as ``.fitted_yes``.
        """
        if not is_lazy(X):
            return super().predict_proba(X, groups=groups)
        given = X, groups_beside(self, X, groups)
        return responses_beside(self, *given, classes=self.classes_.tolist())

    def predict_log_proba(self, X: Any, *, groups: Any = None) -> NDArray:
        """Logarithm of `predict_proba`, with digits where that is 0 or 1."""
        rows, codes, posterior = posterior_of_rows(self, X, groups, given_spread=True)
        assert isinstance(posterior, NormalCoefficients)
        return log_probabilities(posterior, rows, codes, self.mean_covariance_)
