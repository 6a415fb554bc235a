"""Tidy frames of a fit, after R's broom.mixed: `tidy` the parameters, `glance` at the fit.

Functions take a fitted estimator and return plain columns; the estimator puts them in the user's
kind of frame. Names of columns are those of broom.mixed, as far as it has one:

- ``effect``: ``fixed``, of all groups; ``ran_pars``, how groups differ; ``component``, of a part of
  a mixture; ``ran_vals`` and ``ran_coefs``, of single groups
- ``group``: what the groups are called, ``Residual`` for the rows within them, or the component
- ``level``: the group's label
- ``term``: the coefficient; ``sd__x`` and ``cor__x.z`` for spreads and correlations of
  coefficients, ``sd__Observation`` for that of rows
- ``response``: the column that was estimated, of estimators that take several
- ``estimate``, ``std.error``, ``statistic``, ``conf.low``, ``conf.high``: the value, its standard
  error (NaN where none is known), their ratio, and an interval
- ``nobs``, ``npar``: numbers of rows and of parameters
- ``sigma``: standard deviation of rows within their group
- ``logLik``, ``AIC``, ``BIC``: marginal log-likelihood, and criteria; of a fit by REML at its
  estimates, where lme4 has the restricted one, which does not compare fits with other terms
- ``REMLcrit``: -2 restricted log-likelihood
- ``df.residual``: rows less parameters
- ``.fitted``, ``.resid``, ``.fixed``: of `augment`, what is predicted for a row, what it leaves
  over, and what would be predicted if nothing were known of its group

Not in broom.mixed: ``n_groups``, ``icc``, and of learners ``parameter``, ``rounds``, ``loss``,
``accuracy``, ``epsilon``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.priors.symmetric import Symmetric

__all__ = [
    "glance",
    "glance_learner",
    "glance_regression",
    "tidy",
    "tidy_learner",
    "tidy_regression",
]

FIXED, SPREAD, COMPONENT = "fixed", "ran_pars", "component"
# Whose spread that of rows within their groups is, and what it is called.
WITHIN = ("Residual", "sd__Observation")


def tidy(estimator: Any) -> dict[str, NDArray]:
    """Return the parameters of a population of means or rates, one row each.

    Returns
    -------
    dict of columns
        ``effect``, ``group``, ``term``, ``response``, ``estimate``, ``std.error``, ``statistic``.
        Terms: ``mean`` and ``sd__mean``, and the population's own parameters. With covariates,
        ``intercept`` and each covariate's name come in place of ``mean``; ``sd__intercept``, alpha
        and beta of a beta population are then those at average covariates. Populations symmetric
        around a mode have ``pi0``, the probability of the mode itself, and the ``scale`` of their
        one slab.
    """
    prior, group = estimator.prior_, estimator._style_.group
    names = getattr(estimator, "covariate_names_", [])
    noise = getattr(estimator, "noise_variance_", None)
    errors = np.sqrt(getattr(prior, "mean_variance_", np.full(len(prior.mean_), np.nan)))
    first = "intercept" if names else "mean"
    rows: list[tuple] = []
    for j, column in enumerate(estimator._response_names()):
        if names:
            figures = zip(prior.coefficients_[:, j], prior.coefficient_errors_[:, j], strict=True)
            rows += [
                (FIXED, "", term, column, *each)
                for term, each in zip([first, *names], figures, strict=True)
            ]
        else:
            rows.append((FIXED, "", first, column, prior.mean_[j], errors[j]))
        spread = np.sqrt(prior.variance_[j])
        rows.append((SPREAD, group, f"sd__{first}", column, spread, np.nan))
        if noise is not None:
            rows.append((SPREAD, *WITHIN, column, np.sqrt(noise[j]), np.nan))
        rows += [
            (SPREAD, group, name, column, getattr(prior, f"{name}_")[j], np.nan)
            for name in ("alpha", "beta")
            if hasattr(prior, f"{name}_")
        ]
        if isinstance(prior, Symmetric):
            rows += [(SPREAD, group, name, column, x, np.nan) for name, x in _shape(prior)]
    if hasattr(estimator, "means_"):
        rows += _components(estimator)
    titles = ("effect", "group", "term", "response", "estimate", "std.error")
    return _with_statistic(titles, rows)


def _with_statistic(titles: tuple[str, ...], rows: Iterable[tuple]) -> dict[str, NDArray]:
    columns = dict(zip(titles, map(np.asarray, zip(*rows, strict=True)), strict=True))
    with np.errstate(divide="ignore", invalid="ignore"):
        columns["statistic"] = columns["estimate"] / columns["std.error"]
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
        rows.append((COMPONENT, name, "weight", "", weight, np.nan))
        for column, mean, variance in zip(estimator._response_names(), *moments, strict=True):
            rows.append((COMPONENT, name, "mean", column, mean, np.nan))
            if np.any(estimator.variances_):
                rows.append((COMPONENT, name, "sd__mean", column, np.sqrt(variance), np.nan))
    return rows


def tidy_regression(estimator: Any) -> dict[str, NDArray]:
    """Return the parameters of a population of regressions, one row each.

    Returns
    -------
    dict of columns
        ``effect``, ``group``, ``term``, ``estimate``, ``std.error``, ``statistic``.
    """
    titles = ("effect", "group", "term", "estimate", "std.error")
    return _with_statistic(titles, estimator._parameters())


def glance(estimator: Any) -> dict[str, NDArray]:
    """Return the fit of a population of means or rates in one row.

    Returns
    -------
    dict of columns
        ``n_groups``, ``nobs``, ``npar``, ``logLik`` (marginal, of the rows), ``AIC``, ``BIC``,
        ``df.residual``; where rows have noise, ``sigma`` and ``icc``, the share of variance between
        groups (of the first column).
    """
    try:
        value = estimator.log_likelihood_
    except ValueError:  # rows without noise have no density
        value = np.nan
    columns = _criteria(estimator.summaries_.n, estimator.n_parameters_, value)
    noise = getattr(estimator, "noise_variance_", None)
    if noise is not None:
        columns |= _shares(estimator.prior_.variance_[0], noise[0])
    return _one_row(columns)


def glance_regression(estimator: Any) -> dict[str, NDArray]:
    """Return the fit of a population of regressions in one row.

    Returns
    -------
    dict of columns
        ``n_groups``, ``nobs``, ``npar``, ``logLik`` (marginal), ``AIC``, ``BIC``,
        ``df.residual``, and what the method adds: of `LinearEB` ``sigma``, ``REMLcrit`` if that was
        minimised, and ``icc`` if nothing but the intercept varies.
    """
    columns = _criteria(estimator._sizes(), estimator.n_parameters_, estimator.log_likelihood_)
    return _one_row(columns | estimator._facts())


def _criteria(sizes: NDArray, k: int, value: float) -> dict[str, Any]:
    n_rows = int(sizes.sum())
    return {
        "n_groups": len(sizes),
        "nobs": n_rows,
        "npar": k,
        "logLik": value,
        "AIC": 2 * k - 2 * value,
        "BIC": k * np.log(max(n_rows, 1)) - 2 * value,
        "df.residual": n_rows - k,
    }


def _shares(between: float, within: float) -> dict[str, float]:
    total = between + within
    return {"sigma": np.sqrt(within), "icc": between / total if total > 0 else np.nan}


def _one_row(columns: dict[str, Any]) -> dict[str, NDArray]:
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
        ``n_groups``, ``nobs``, ``npar`` (of one predictor), ``rounds``, ``loss`` and, of a
        classification, ``accuracy`` (of the last recorded round; NaN where rows are elsewhere),
        ``epsilon`` (the largest that is promised; infinite if anyone is without a promise).
    """
    sizes, rows = estimator._sizes(), estimator._history_rows()
    columns = {
        "n_groups": len(sizes),
        "nobs": int(sizes.sum()),
        "npar": estimator.parameters_.shape[1],
        "rounds": estimator.n_iter_,
    }
    for name in ("loss", "accuracy"):
        with_data = [row[name] for row in rows if name in row and np.isfinite(row[name])]
        if any(name in row for row in rows):
            columns[name] = with_data[-1] if with_data else np.nan
    columns["epsilon"] = max(row["epsilon"] for row in estimator._ledger)
    return _one_row(columns)
