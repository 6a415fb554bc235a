"""Tidy frames of a fit, after R's broom: `tidy` the parameters, `glance` at the fit.

Functions take a fitted estimator and return plain columns; the estimator puts them in the user's
kind of frame.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.priors.symmetric import Symmetric

__all__ = [
    "glance",
    "glance_learner",
    "glance_regression",
    "terms",
    "tidy",
    "tidy_learner",
    "tidy_regression",
]


def terms(estimator: Any) -> list[str]:
    """Names of the columns that were fitted: those of the frame, else numbered."""
    names = getattr(estimator, "feature_names_in_", None)
    return [f"x{j}" for j in range(estimator.n_features_in_)] if names is None else list(names)


def tidy(estimator: Any) -> dict[str, NDArray]:
    """Return the population's parameters, one row each.

    Returns
    -------
    dict of columns
        ``term`` (``mean``, ``sd``, and the prior's own parameters), ``group`` (whose: the spread
        between groups or the residual one within, a component of a mixture), ``column`` (of `X`),
        ``estimate``, ``std_error`` (NaN where none is known). With covariates, ``intercept`` and
        each covariate's name come in place of ``mean``, and a last column, ``z``: estimate over
        error. The ``sd``, alpha and beta of a beta population are then those at average covariates.
        Populations symmetric around a mode have ``pi0``, the probability of the mode itself, and
        the ``scale`` of their one slab.
    """
    prior, group = estimator.prior_, estimator._style_.group
    names = getattr(estimator, "population_names_", [])
    noise = getattr(estimator, "noise_variance_", None)
    errors = np.sqrt(getattr(prior, "mean_variance_", np.full(len(prior.mean_), np.nan)))
    rows: list[tuple] = []
    for j, column in enumerate(terms(estimator)):
        if names:
            figures = zip(prior.coefficients_[:, j], prior.coefficient_errors_[:, j], strict=True)
            rows += [
                (term, "", column, *each)
                for term, each in zip(["intercept", *names], figures, strict=True)
            ]
        else:
            rows.append(("mean", "", column, prior.mean_[j], errors[j]))
        rows.append(("sd", group, column, np.sqrt(prior.variance_[j]), np.nan))
        if noise is not None:
            rows.append(("sd", "residual", column, np.sqrt(noise[j]), np.nan))
        rows += [
            (name, group, column, getattr(prior, f"{name}_")[j], np.nan)
            for name in ("alpha", "beta")
            if hasattr(prior, f"{name}_")
        ]
        if isinstance(prior, Symmetric):
            rows += [(name, group, column, value, np.nan) for name, value in _shape(prior)]
    if hasattr(estimator, "means_"):
        rows += _components(estimator)
    titles = ("term", "group", "column", "estimate", "std_error")
    columns = dict(zip(titles, map(np.asarray, zip(*rows, strict=True)), strict=True))
    if names:
        with np.errstate(divide="ignore"):
            columns["z"] = columns["estimate"] / columns["std_error"]
    return columns


def _shape(prior: Symmetric) -> list[tuple[str, float]]:
    """Probability of the mode itself, and scale of the slab, where a population has these."""
    shape = []
    if getattr(prior, "spike", True):
        shape.append(("pi0", prior.weights_[prior.scales_ == 0].sum()))
    if hasattr(prior, "scale_"):
        shape.append(("scale", prior.scale_))
    return shape


def _components(estimator: Any) -> list[tuple]:
    """Weight, centre and (where it has one) spread of each component of a mixture."""
    rows: list[tuple] = []
    components = zip(estimator.weights_, estimator.means_, estimator.variances_, strict=True)
    for j, (weight, *moments) in enumerate(components):
        name = f"component {j}"
        rows.append(("weight", name, "", weight, np.nan))
        for column, mean, variance in zip(terms(estimator), *moments, strict=True):
            rows.append(("mean", name, column, mean, np.nan))
            if np.any(estimator.variances_):
                rows.append(("sd", name, column, np.sqrt(variance), np.nan))
    return rows


def glance(estimator: Any) -> dict[str, NDArray]:
    """Return the fit in one row.

    Returns
    -------
    dict of columns
        ``n_groups``, ``n_rows``, ``n_parameters``, ``log_likelihood`` (marginal, of the rows),
        ``aic``, ``bic``; for a normal population ``icc``, the share of variance between groups
        (of the first column).
    """
    summary = estimator.summaries_
    n_rows = int(summary.n.sum())
    try:
        value = estimator.log_likelihood_
    except ValueError:  # rows without noise have no density
        value = np.nan
    k = estimator.n_parameters_
    columns = {
        "n_groups": len(summary),
        "n_rows": n_rows,
        "n_parameters": k,
        "log_likelihood": value,
        "aic": 2 * k - 2 * value,
        "bic": k * np.log(max(n_rows, 1)) - 2 * value,
    }
    noise = getattr(estimator, "noise_variance_", None)
    if noise is not None:
        total = estimator.prior_.variance_[0] + noise[0]
        columns["icc"] = estimator.prior_.variance_[0] / total if total > 0 else np.nan
    return {name: np.array([value]) for name, value in columns.items()}


def tidy_regression(estimator: Any) -> dict[str, NDArray]:
    """Return the parameters of a population of regressions, one row each.

    Returns
    -------
    dict of columns
        ``term`` (``mean``, ``sd``, ``cor``, ``weight``), ``group`` (whose spread: that between
        groups or the residual one within; or which component), ``column`` (the coefficient),
        ``estimate``, ``std_error`` (NaN where none is known).
    """
    names = ("term", "group", "column", "estimate", "std_error")
    columns = zip(*estimator._parameters(), strict=True)
    return {name: np.asarray(values) for name, values in zip(names, columns, strict=True)}


def glance_regression(estimator: Any) -> dict[str, NDArray]:
    """Return the fit of a population of regressions in one row.

    Returns
    -------
    dict of columns
        ``n_groups``, ``n_rows``, ``n_parameters``, ``log_likelihood`` (marginal), ``aic``, ``bic``.
    """
    sizes, k, value = estimator._sizes(), estimator.n_parameters_, estimator.log_likelihood_
    n_rows = int(sizes.sum())
    columns = {
        "n_groups": len(sizes),
        "n_rows": n_rows,
        "n_parameters": k,
        "log_likelihood": value,
        "aic": 2 * k - 2 * value,
        "bic": k * np.log(max(n_rows, 1)) - 2 * value,
    }
    return {name: np.array([value]) for name, value in columns.items()}


def tidy_learner(estimator: Any) -> dict[str, NDArray]:
    """Return the shared parameters of a learner, one row each.

    Returns
    -------
    dict of columns
        ``term`` (a name of `shared_`), ``parameter`` (one of `terms_`, or a number where these are
        not those of a predictor), ``estimate``.
    """
    shared, terms = estimator.shared_, estimator.terms_
    return {
        "term": np.repeat(list(shared), [len(values) for values in shared.values()]),
        "parameter": np.array(
            [
                name
                for x in shared.values()
                for name in (terms if len(x) == len(terms) else map(str, range(len(x))))
            ]
        ),
        "estimate": np.concatenate([*shared.values()]),
    }


def glance_learner(estimator: Any) -> dict[str, NDArray]:
    """Return what a learner has reached in one row.

    Returns
    -------
    dict of columns
        ``n_groups``, ``n_rows``, ``n_parameters`` (of one predictor), ``rounds``, ``loss`` and, of
        a classification, ``accuracy`` (of the last recorded round; NaN where rows are elsewhere),
        ``epsilon`` (the largest that is promised; infinite if anyone is without a promise).
    """
    sizes, rows = estimator._sizes(), estimator._history_rows()
    columns = {
        "n_groups": len(sizes),
        "n_rows": int(sizes.sum()),
        "n_parameters": estimator.parameters_.shape[1],
        "rounds": estimator.n_iter_,
    }
    for name in ("loss", "accuracy"):
        told = [row[name] for row in rows if name in row and np.isfinite(row[name])]
        if any(name in row for row in rows):
            columns[name] = told[-1] if told else np.nan
    columns["epsilon"] = max(row["epsilon"] for row in estimator._ledger)
    return {name: np.array([value]) for name, value in columns.items()}
