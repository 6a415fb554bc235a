"""Regressors whose predictions are for rows that they were not fitted to.

With `mean_model=` the mean of a population is what a regressor predicts from covariates. A
regressor that has seen a group predicts it too well, so that the population around its predictions
would seem too narrow, and estimates would follow their own noise. So each group is predicted by a
regressor that was fitted to other groups (Ignatiadis and Wager, 2019).

Estimators of groups take the prediction as a covariate: the mean of the population is ``a + b x``
of it, a normal population's as it is, of rates on the scale of the link. a, b and the spread that
remains are fitted together, with the uncertainty of each, by what fits any covariates. If b is not
larger than its standard error, predictions would cost more than they explain: they say nothing of
groups that they were not fitted to, and the population has one mean, as without covariates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier
from sklearn.utils.validation import has_fit_parameter

from ebfed.engines.protocol import LocationMemory
from ebfed.families.base import IDENTITY, Link
from ebfed.location.consent import named_channels
from ebfed.priors import Prior
from ebfed.tables.clients import LARGEST, Summary

__all__ = [
    "N_FOLDS",
    "USELESS",
    "Groups",
    "Predicted",
    "check_mean_model",
    "check_no_regressor",
    "cross_predictions",
    "deal",
    "predict_groups",
    "regressor_of",
    "with_predictions",
]

# Parts that groups are cut in.
N_FOLDS = 5
# Standard deviations of the population, on the scale of the link, by which a prediction may differ
# from its mean: a rate that is predicted as 0 would weigh more than all others.
MOST_DEVIATIONS = 4.0
USELESS = (
    "The predictions of mean_model say nothing of groups that it was not fitted to: the population "
    "has one mean, as without covariates."
)


# Folds --------------------------------------------------------------------------------------------


def deal(n_rows: int, n_folds: int, random_state: Any) -> NDArray[np.int64]:
    """Deal rows into folds of nearly equal size, at random.

    Examples
    --------
    >>> np.bincount(deal(7, 3, 0)).tolist()
    [3, 2, 2]
    """
    folds = np.tile(np.arange(n_folds), -(-n_rows // n_folds))[:n_rows]
    np.random.default_rng(random_state).shuffle(folds)
    return folds


def regressor_of(
    model: Any, rows: pd.DataFrame, values: NDArray, weights: NDArray | None
) -> Callable[[NDArray], Any]:
    """Return a function that fits a copy of a regressor to the rows of a mask.

    Weights are for regressors whose `fit` has `sample_weight`.
    """

    def fit(mask: NDArray) -> Any:
        fresh, given = clone(model), {}
        if weights is not None and has_fit_parameter(fresh, "sample_weight"):
            given = {"sample_weight": weights[mask]}
        return fresh.fit(rows[mask], values[mask], **given)

    return fit


def cross_predictions(
    fit: Callable[[NDArray], Any],
    covariates: Any,
    folds: NDArray[np.int64],
    n_folds: int,
    nested: bool,
) -> NDArray:
    """Predict every row by models that were fitted without it.

    Row f of the result is for a fit on all folds but f: a row of another fold g is predicted by the
    model fitted without f and g, a row of fold f by the model fitted without f. The last row is for
    a fit on all folds. One model serves both orders of a pair, so that there are ``n_folds
    (n_folds + 1) / 2`` of them.

    Parameters
    ----------
    fit : callable
        Function that fits a regressor to the rows of a mask.
    covariates : pandas DataFrame of n_rows rows
    folds : int64 ndarray of shape (n_rows,)
    n_folds : int
    nested : bool
        Whether all rows of the result are wanted; else the last alone is computed.

    Returns
    -------
    ndarray of shape (n_folds + 1, n_rows)
    """
    predictions = np.full((n_folds + 1, len(folds)), np.nan)
    for f in range(n_folds):
        own = folds == f
        predictions[f, own] = predictions[-1, own] = fit(~own).predict(covariates[own])
        for g in range(f) if nested else ():
            other = folds == g
            model = fit(~own & ~other)
            predictions[f, other] = model.predict(covariates[other])
            predictions[g, own] = model.predict(covariates[own])
    return predictions


# Groups -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Predicted:
    """Covariates of groups as a regressor reads them, and as the population has them.

    Attributes
    ----------
    model : regressor or None
        Fitted to all groups; None if its predictions are of no use.
    names : list of k str
        Names of the covariates.
    link : Link
        Scale of the population's mean.
    ends : (float, float)
        Predictions beyond them are cut.
    """

    model: Any
    names: list[str]
    link: Link = IDENTITY
    ends: tuple[float, float] = (-LARGEST, LARGEST)

    @property
    def terms(self) -> list[str]:
        """Names of what the population has: one prediction, or nothing."""
        shown = ", ".join(self.names if len(self.names) < 4 else [*self.names[:2], "…"])
        return [] if self.model is None else [f"mean_model({shown})"]

    def frame(self, covariates: NDArray) -> pd.DataFrame:
        """Return covariates, shape (n, k), with their names."""
        return pd.DataFrame(covariates, columns=self.names)

    def __call__(self, covariates: NDArray) -> NDArray:
        """Predict groups by the regressor that was fitted to all, shape (n, 1), or (n, 0)."""
        if self.model is None or not covariates.size:
            return np.empty((len(covariates), 0))
        return self.scaled(self.model.predict(self.frame(covariates)))

    def scaled(self, predictions: Any) -> NDArray:
        """Put predictions on the scale of the link, shape (n, 1)."""
        found = np.asarray(predictions, float).reshape(-1, 1)
        if not np.isfinite(found).all():
            raise ValueError("mean_model predicts values that are missing or infinite.")
        return self.link.to_line(np.clip(found, *self.ends))


class Groups(NamedTuple):
    """What a regressor is fitted to.

    Attributes
    ----------
    covariates : ndarray of shape (m, k)
    names : list of k str
    own : ndarray of shape (m,)
        Own estimate of each group.
    variance : ndarray of shape (m,)
        Its sampling variance; infinite for groups without rows.
    link : Link
    """

    covariates: NDArray
    names: list[str]
    own: NDArray
    variance: NDArray
    link: Link = IDENTITY


def check_mean_model(model: Any, covariates: Any) -> None:
    """Refuse what is no regressor, and one without covariates."""
    if model is None:
        return
    if not (hasattr(model, "fit") and hasattr(model, "predict")) or is_classifier(model):
        raise TypeError(f"mean_model must be a regressor of scikit-learn; got {model!r}.")
    if covariates is None:
        raise ValueError("give both mean_model and covariates, or neither.")


def check_no_regressor(estimator: Any) -> None:
    """Refuse a server's copy, and a node's: regressors are where the figures of all groups are."""
    if estimator.mean_model is not None and estimator._intake.predicted is None:
        raise ValueError(
            "mean_model is fitted to the figures of all groups, where they are together: nodes of "
            "a federation and copies of a server have no regressor. Use covariates= without it."
        )


def predict_groups(
    model: Any,
    groups: Groups,
    plain: Prior,
    fit: Callable[[NDArray], Prior],
    random_state: Any,
) -> tuple[NDArray, Predicted]:
    """Predict each group from its covariates, by regressors fitted to groups of other folds.

    Weights of groups are the precisions of their own estimates around one mean, ``1 / (variance of
    the population + sampling variance)``.

    Parameters
    ----------
    model : regressor
    groups : Groups
    plain : Prior
        Population of these groups, fitted without covariates.
    fit : callable
        Function that fits the population with covariates, shape (m, 1).
    random_state : int, Generator or None
        Seed of the folds.

    Returns
    -------
    predictions : ndarray of shape (m, 1), or (m, 0) if they are of no use
    predicted : Predicted
    """
    has_data = np.isfinite(groups.variance)
    if has_data.sum() < 2 * N_FOLDS:
        raise ValueError(
            f"mean_model is fitted to parts of the groups, and needs at least {2 * N_FOLDS} groups "
            f"with rows; there are {int(has_data.sum())}."
        )
    mean, spread = float(plain.mean_[0]), float(plain.variance_[0])
    total = groups.variance[has_data] + spread
    weights = 1 / np.maximum(total, 1e-12 * total.max()) if total.max() > 0 else None
    predicted = Predicted(None, groups.names, groups.link)
    if groups.link is not IDENTITY:
        centre = groups.link.to_line(mean)
        reach = MOST_DEVIATIONS * np.sqrt(spread) * groups.link.slope(mean)
        low, high = groups.link.from_line(np.array([centre - reach, centre + reach]))
        predicted = replace(predicted, ends=(low, high))
    useless = np.empty((len(has_data), 0)), predicted
    rows = predicted.frame(groups.covariates)[has_data]
    fit_to = regressor_of(model, rows, groups.own[has_data], weights)
    folds = deal(len(rows), N_FOLDS, random_state)
    found = cross_predictions(fit_to, rows, folds, N_FOLDS, False)[-1]
    predicted = replace(predicted, model=fit_to(np.ones(len(rows), bool)))
    predictions = predicted(groups.covariates)
    predictions[has_data] = predicted.scaled(found)
    inside = predictions[has_data, 0]
    if np.ptp(inside) <= 1e-9 * np.abs(inside).max():
        return useless
    around = fit(predictions)
    slope, error = around.coefficients_[1, 0], around.coefficient_errors_[1, 0]
    return (predictions, predicted) if slope > error else useless


# Estimators ---------------------------------------------------------------------------------------


def with_predictions(
    estimator: Any, summary: Summary, memory: LocationMemory
) -> tuple[LocationMemory, list[str]]:
    """Put predictions in the place of covariates, for `fit` of a `LocationEstimator`.

    The estimator reads covariates of other groups in the same way from now on.

    Returns
    -------
    memory : LocationMemory
    notes : list of str
    """
    if not all(each.is_exact for each in named_channels(estimator.channel).values()):
        raise ValueError(
            "mean_model is fitted to the groups' own figures: channel must be channels.Exact(); "
            f"got {estimator.channel!r}."
        )
    if estimator.participation is not None:
        raise ValueError("participation must be None with mean_model, which is fitted to all rows.")
    if estimator.protocol().prior.is_fitted:
        raise ValueError(
            f"prior={estimator.prior!r} was fitted, and is used as it is; with mean_model the "
            "population is fitted, prior.unfitted()."
        )
    if summary.n_features > 1:
        raise ValueError(
            f"mean_model is for one column; X has {summary.n_features}. Fit one after the other."
        )
    intake = estimator._intake
    settings = {"mean_model": None, "channel": None, "engine": None}
    alone = clone(estimator).set_params(**settings)
    plain = clone(alone).fit(summary)
    prior, family = plain.prior_, plain._learned.family
    with np.errstate(divide="ignore"):
        variance = family.sampling_variance(prior.mean_[0], family.averaged_over(summary))
    groups = Groups(
        memory["covariates"],
        intake.covariate_names,
        summary.mean[:, 0],
        np.where(summary.n > 0, variance, np.inf),
        family.link,
    )
    covariates, intake.predicted = predict_groups(
        estimator.mean_model,
        groups,
        prior,
        lambda given: clone(alone).fit(summary, covariates=given).prior_,
        estimator.random_state,
    )
    estimator.mean_model_, intake.covariate_names = intake.predicted.model, intake.predicted.terms
    notes = [] if covariates.size else [USELESS]
    return memory | {"covariates": covariates}, notes
