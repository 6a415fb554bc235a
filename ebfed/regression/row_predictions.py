"""Predictions of rows: of a mixed model of any family, of nested groups or of crossed factors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.metaestimators import available_if

from ebfed.regression.classes import has_ordered_classes
from ebfed.regression.families import ResponseFamily
from ebfed.regression.posteriors.predictive import predictive_interval
from ebfed.regression.reading import IntervalKind, check_interval
from ebfed.report.diagnostics import Diagnostics
from ebfed.tables.lazy import is_lazy
from ebfed.tables.of_rows import Predicted, wants_rate

__all__ = ["RowPredictions"]


class RowPredictions:
    """What follows from the posterior of the linear predictors of rows."""

    family: Any

    @property
    @abstractmethod
    def _family(self) -> ResponseFamily | None:
        """Family of rows; None if they are Gaussian."""

    @property
    @abstractmethod
    def _shapes(self) -> NDArray[np.float64]:
        """Shapes of the family."""

    @abstractmethod
    def _predictors(
        self, X: Any, groups: Any, offset: Any, averaged: bool | None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Posterior mean and variance of the linear predictor of each row.

        `averaged` is whether responses are averaged over them, the spread of the population being
        as fitted; None: variances are not asked for.
        """

    @abstractmethod
    def _diagnosed(self, X: Any, y: Any, groups: Any, options: Mapping[str, Any]) -> Diagnostics:
        """Return what `diagnostics` does; `options` go with rows."""

    def _noise(self, X: Any, sample_weight: Any) -> NDArray | float:
        """Noise variance of new rows, if they are Gaussian."""
        raise NotImplementedError

    def _beside(
        self, X: Any, groups: Any, offset: Any, type: Predicted = "response", classes: Any = None
    ) -> Any:
        """Return a lazy table with predictions as columns."""
        raise ValueError(f"predictions of {self.__class__.__name__} need the rows of X in memory.")

    @property
    def _has_rates(self) -> bool:
        return self._family is not None and self._family.link == "log"

    def predict(
        self, X: Any, *, groups: Any = None, offset: Any = None, type: Predicted = "response"
    ) -> NDArray:
        """Expected response of each row as given, averaged over the posterior of its groups.

        Not knowing the coefficients of a group adds to the mean of a log link: it is ``e^(m + v /
        2)`` where the linear predictor has mean m and variance v. The spread of the population is
        taken to be as fitted: averaged over all that few groups allow, that mean would be of the
        largest spreads.

        Parameters
        ----------
        X : as in `fit`
        groups : as in `fit`, optional
            Labels of each row. A group, or level of a factor, that was not in the fit is predicted
            by the population, or by its parent's coefficients if that was in the fit; by the
            population so are all rows if None (unless `X` has the columns that held them in the
            fit).
        offset : as in `fit`, or one number for all rows, optional
            Needed if the fit had offsets.
        type : {"response", "rate", "link"}
            Of a log link, ``"rate"`` is the mean response where the offset is zero: at an exposure
            of 1. It needs no offset. ``"link"`` is the posterior mean of the linear predictor, such
            as a logit.

        Returns
        -------
        ndarray of shape (n_rows,), or lazy table
            Numbers; expected counts; of binomial rows, the probability of a success; of ordinal
            rows, the mean of the number of the class. Of a table of another engine, that table with
            a column ``.fitted``, computed when it is read. (For probabilities the largest variance
            of a linear predictor is read at once.)
        """
        if wants_rate(type, self._has_rates, self.family, has_predictor=True):
            offset = 0.0
        if is_lazy(X):
            return self._beside(X, groups, offset, type)
        family = self._family
        if family is None:
            return self._predictors(X, groups, offset, None)[0]
        mean, variance = self._predictors(X, groups, offset, True)
        return mean if type == "link" else family.mean(mean, variance, self._shapes)

    @available_if(has_ordered_classes)
    def predict_proba(self, X: Any, *, groups: Any = None, offset: Any = None) -> NDArray:
        """Probability of each class, averaged over the posterior of the row's groups.

        With ``family="ordinal"`` alone.

        Parameters
        ----------
        X, groups, offset : as in `predict`

        Returns
        -------
        ndarray of shape (n_rows, n_classes), or lazy table
            Of classes 1, 2, …. Of a table of another engine, that table with columns
            ``.fitted_1``, ``.fitted_2``, ….
        """
        if is_lazy(X):
            return self._beside(X, groups, offset, classes=[])
        family = self._family
        assert family is not None
        return family.probabilities(*self._predictors(X, groups, offset, True), self._shapes)

    def predict_interval(
        self,
        X: Any,
        *,
        groups: Any = None,
        offset: Any = None,
        sample_weight: Any = None,
        level: float = 0.95,
        kind: IntervalKind = "row",
    ) -> tuple[NDArray, NDArray]:
        """Interval for each row's response, for its mean, or for its rate.

        Parameters
        ----------
        X, groups, offset : as in `predict`
        sample_weight : as in `fit`, optional
            Weight of each new response of ``family="gaussian"``, whose noise is that of the fit
            over it; 1 if None.
        level : float in (0, 1)
        kind : {"row", "mean", "rate"}
            Whether the interval is to hold a new response, of one trial (quantiles of the
            predictive distribution, in which the linear predictor is normal), or the mean response
            of a row whose coefficients are those of its groups; of a log link, ``"rate"`` is that
            mean at an exposure of 1. All include uncertainty in the spread of the population.

        Returns
        -------
        lower, upper : ndarray of shape (n_rows,)
        """
        from scipy.special import ndtri

        family = self._family
        if sample_weight is not None and family is not None:
            raise ValueError(f"sample_weight must be None: responses are {self.family} here.")
        if check_interval(level, kind, self._has_rates, self.family):
            offset = 0.0
        mean, variance = self._predictors(X, groups, offset, False)
        if family is not None:
            of_row = kind == "row"
            return predictive_interval(family, self._shapes, mean, variance, level, of_row)
        noise = self._noise(X, sample_weight) if kind == "row" else 0.0
        reach = ndtri((1 + level) / 2) * np.sqrt(variance + noise)
        return mean - reach, mean + reach

    def diagnostics(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        sample_weight: Any = None,
        offset: Any = None,
        trials: Any = None,
    ) -> Diagnostics:
        """Return rows with what the fit says of them: residuals, and checks.

        Parameters
        ----------
        X, y, groups, sample_weight, offset, trials : as in `fit`
            Gaussian rows have leverages: those of these rows in the fit, of no use for other rows.

        Returns
        -------
        Diagnostics
            Binomial responses are shares of trials.
        """
        options = {"sample_weight": sample_weight, "offset": offset, "trials": trials}
        return self._diagnosed(X, y, groups, options)

    def score(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        offset: Any = None,
        trials: Any = None,
    ) -> float:
        """R**2 of the predictions of rows by the coefficients of their groups.

        Parameters
        ----------
        X, y, sample_weight, groups, offset, trials : as in `fit`
        """
        from sklearn.metrics import r2_score

        options = {"sample_weight": sample_weight, "offset": offset, "trials": trials}
        found = self.diagnostics(X, y, groups=groups, **options)
        keep = found.law.weight > 0
        weight = found.law.weight[keep]
        return float(r2_score(found.response[keep], found.fitted[keep], sample_weight=weight))
