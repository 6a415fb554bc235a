"""Logistic regression in every group, the coefficients drawn from a normal population."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin

from ebfed.engines import Engine
from ebfed.engines.sums import Share
from ebfed.priors import Posterior
from ebfed.regression.base import RegressionEstimator
from ebfed.regression.beside import groups_beside, predictors_beside, responses_beside
from ebfed.regression.classes import ClassRegression, check_two_classes
from ebfed.regression.columns import Varying
from ebfed.regression.diagnosis import rows_of_clients
from ebfed.regression.families import Binomial, Responses
from ebfed.regression.generalized_base import ResponseRegression
from ebfed.regression.generalized_rounds import GeneralizedRounds
from ebfed.regression.numerics.quadrature_population import Covariance
from ebfed.regression.posteriors.predictive import (
    predictive_interval,
)
from ebfed.regression.protocol import GeneralizedResult
from ebfed.regression.reading import IntervalKind, check_interval, weighed_clients
from ebfed.report.diagnostics import Diagnostics
from ebfed.tables.clients import Clients
from ebfed.tables.lazy import is_lazy
from ebfed.tables.scans import FITTED, where

__all__ = ["LogisticEB"]


@dataclass(eq=False, repr=False)
class LogisticEB(ClassifierMixin, ClassRegression, ResponseRegression):
    """Empirical Bayes logistic regression: a coefficient vector for every group.

    Rows of group i are ``y_ij ~ Bernoulli(1 / (1 + exp(-x_ij' theta_i)))``, and ``theta_i ~ N(mean,
    covariance)``. This is ``GeneralizedEB("binomial")`` of two classes with any labels, which it
    predicts: the mixed model ``y ~ x + (1 + x || group)`` with a binomial response.

    Parameters
    ----------
    covariance, varying, fixed, fit_intercept, share, engine, verbose, random_state :
        As of `GeneralizedEB`.
    method : {"auto", "aghq", "ep", "laplace", "gradient"}
        As of `GeneralizedEB`; or ``"gradient"``, Algorithm 5 of Ozkara et al. with its signs
        corrected: gradient descent on all theta_i, mean and log-variance together, with covariance
        ``"spherical"``. For replication: that objective has no maximum.
    n_rounds : int
        Largest number of rounds; the exact number for ``"gradient"``.
    learning_rate : float
        Learning rate of ``"gradient"``.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        The labels of `y`, sorted; the model is of the probability of the second.
    method_, mean_, covariance_, covariance_above_ :
        See `GeneralizedEB`.
    mean_covariance_ : ndarray of shape (p, p)
        Sampling covariance of `mean_`, from the second derivatives of the log-likelihood; NaN for
        ``"gradient"``. If columns are collinear, it is singular: ``c' mean_covariance_ c`` holds
        for combinations c of coefficients that are identified, and the standard errors of single
        ones that are not are NaN in `tidy`.
    clients_, groups_, terms_, history_, privacy_, notes_ :
        See `RegressionEstimator`.

    References
    ----------
    Ozkara, Girgis, Data, Diggavi (2023), A statistical framework for personalized federated
    learning and estimation, appendix F; and those of `GeneralizedEB`.

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
    varying: Varying = None
    fixed: Sequence[str | int] | None = None
    method: Literal["auto", "aghq", "ep", "laplace", "gradient"] = "auto"
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

    @property
    def _family(self) -> Binomial:
        return Binomial()

    def _check_classes(self, classes: NDArray) -> None:
        check_two_classes(classes)

    def protocol(self) -> GeneralizedRounds:
        rounds = super().protocol()
        if str(self.method) != "gradient":
            return rounds
        from ebfed.regression.joint_descent import logistic_descent

        return logistic_descent(rounds, self.learning_rate)

    def _observed(self, clients: Clients) -> Responses:
        return Responses.of(clients, np.unique(np.asarray(clients.y))[[-1, -1]])

    def _learn(self, result: GeneralizedResult) -> None:
        super()._learn(result)
        self.classes_ = result["classes"]

    def posterior(
        self,
        X: Any = None,
        y: Any = None,
        *,
        groups: Any = None,
        sample_weight: Any = None,
        level: str | None = None,
    ) -> Posterior:
        """Posterior of each group's coefficients; see `GeneralizedEB.posterior`.

        Parameters
        ----------
        X, y, groups, sample_weight, level
            As there; weights are frequencies, as in `fit`.

        Returns
        -------
        Posterior
        """
        return self._posterior_at(self._asked_for(X, y, groups, sample_weight=sample_weight), level)

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
        found = self._without_offset(X, groups, False)
        return predictive_interval(self._family, np.zeros(0), *found, level, kind == "row")

    score = RegressionEstimator.score  # the mixin's has no groups

    def diagnostics(
        self, X: Any, y: Any = None, *, groups: Any = None, sample_weight: Any = None
    ) -> Diagnostics:
        """Return rows with what the fit says of them: residuals, and checks.

        Parameters
        ----------
        X, y, groups, sample_weight : as in `fit`

        Returns
        -------
        Diagnostics
            Responses are 1 for the second class, and 0 for the first.
        """
        clients, codes, found = weighed_clients(
            self, X, y, groups, False, sample_weight=sample_weight
        )
        weight = found.get("sample_weight", np.ones(len(clients.X)))
        return rows_of_clients(self, clients, codes, weight, bool((weight == 1).all()))

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
        return self._family.log_probabilities(*self._without_offset(X, groups, True))
