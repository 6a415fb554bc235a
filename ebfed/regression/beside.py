"""Predictions of regressions beside the rows of a lazy table, which its engine computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ebfed.regression.families.lazy_predictors import LazyPredictors
from ebfed.regression.posteriors.predictive import AT_LIMIT
from ebfed.tables.lazy import columns_beside
from ebfed.tables.of_rows import NOTHING, Predicted, wants_rate
from ebfed.tables.scans import FITTED, Beside, columns_of_classes, where

__all__ = ["groups_beside", "predicted_beside", "predictors_beside", "responses_beside"]


def groups_beside(estimator: Any, X: Any, groups: Any, **beside: Any) -> str:
    """Return the column of a lazy table with the labels of rows.

    Raises
    ------
    ValueError
        If it is no column, or the fit had levels of groups.
    """
    groups = estimator._roles.found(X, {"groups": groups}).get("groups")
    columns_beside(X, {"groups": groups} | beside)
    if estimator._level_names:
        raise ValueError("levels of groups need the rows of X in memory.")
    return groups


def predicted_beside(
    estimator: Any,
    X: Any,
    groups: str,
    columns: Mapping[str, Any] = NOTHING,
    offset: Any = 0.0,
) -> Any:
    """Return a lazy table with the linear predictor of its rows as a column.

    Parameters
    ----------
    estimator : RegressionEstimator
    X : lazy table
    groups : str
        Column of labels.
    columns : mapping of str to Expr
        Columns of the design, by name, that are not columns of `X`.
    offset : str, Expr or float
        Column of offsets, or one for all rows.
    """
    check_is_fitted(estimator, "mean_")
    population, ids = estimator._population(), estimator.groups_
    known = population.posterior_given_spread(estimator._rows_of(ids)).mean
    rows = Beside.of(X, groups, ids, known, population.centre)
    total = rows.total(_factors(estimator, columns)) + rows.column(offset)
    return rows.fitted({FITTED: total})


def predictors_beside(
    estimator: Any,
    X: Any,
    groups: str,
    columns: Mapping[str, Any] = NOTHING,
    offset: Any = 0.0,
) -> LazyPredictors:
    """Return the linear predictors of the rows of a lazy table, as `predict` averages over them.

    Parameters
    ----------
    estimator : LogisticEB or GeneralizedEB
    X, groups, columns : as in `predicted_beside`
    offset : str, Expr or float
        Column of offsets, or one for all rows.
    """
    check_is_fitted(estimator, "mean_")
    population, ids = estimator._population(), estimator.groups_
    known = population.posterior_given_spread(estimator._rows_of(ids))
    nobody = estimator._rows_of(np.zeros(1, np.int64), known=False)
    others = population.posterior_given_spread(nobody)
    p = known.mean.shape[1]
    pairs = [(j, k) for j in range(p) for k in range(j, p)]
    spreads, unseen = (
        np.column_stack([each.covariance[:, j, k] * (1 + (j < k)) for j, k in pairs])
        for each in (known, others)
    )
    figures = np.hstack([known.mean, spreads]), np.hstack([others.mean, unseen])
    rows = Beside.of(X, groups, ids, *figures)
    x = [rows.column(each) for each in _factors(estimator, columns)]
    products = [x[j] * x[k] for j, k in pairs]
    own = np.nan_to_num(estimator.mean_covariance_)
    of_mean = [
        product * float(own[j, k] * (1 + (j < k)))
        for (j, k), product in zip(pairs, products, strict=True)
    ]
    centre = rows.total(x) + rows.column(offset)
    variance = rows.total(products, first=p)
    kept = (variance > 0) & (sum(of_mean[1:], start=of_mean[0]) <= AT_LIMIT)
    return LazyPredictors(rows, centre, where(kept, variance, 0.0))


def responses_beside(
    estimator: Any,
    X: Any,
    groups: str,
    columns: Mapping[str, Any] = NOTHING,
    offset: Any = 0.0,
    type: Predicted = "response",
    classes: Sequence[Any] | None = None,
) -> Any:
    """Return a lazy table with the expected response of its rows as a column.

    Parameters
    ----------
    estimator, X, groups, columns, offset : as in `predictors_beside`
    type : as in `predict`
    classes : sequence, optional
        Labels whose probabilities are asked for, each in a column; none of numbers from 1.
    """
    population = estimator._population()
    family, shapes = population.family, population.shapes
    if wants_rate(type, family.link == "log", family.name, has_predictor=True):
        offset = 0.0
    rows = predictors_beside(estimator, X, groups, columns, offset)
    if type == "link":
        return rows.fitted({FITTED: rows.centre})
    if classes is None:
        return rows.fitted({FITTED: family.lazy_mean(rows, shapes)})
    return rows.fitted(columns_of_classes(classes, family.lazy_probabilities(rows, shapes)))


def _factors(estimator: Any, columns: Mapping[str, Any]) -> list[Any]:
    """Return the column of each coefficient, None of the intercept."""
    constant = bool(estimator.fit_intercept)
    return [None] * constant + [columns.get(x, x) for x in estimator.terms_[constant:]]
