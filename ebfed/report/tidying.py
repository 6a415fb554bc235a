"""Tidy frames of a fit, after R's broom.mixed: `tidy` the parameters, `glance` at the fit.

Functions take a fit or its view and return plain columns; the estimator returns them as a frame of
the user's library. Names of columns are those of broom.mixed, as far as it has one:

- ``effect``: ``fixed``, of all groups; ``ran_pars``, how groups differ; ``component``, of a part of
  a mixture; ``ran_vals`` and ``ran_coefs``, of single groups
- ``group``: the name of the grouping column, ``Residual`` for rows within groups, or the component
- ``level``: the group's label
- ``term``: the coefficient; ``sd__x`` and ``cor__x.z`` for spreads and correlations of
  coefficients, ``sd__Observation`` for that of rows, ``sd__Observation.a`` of rows of level a
- ``response``: the column that was estimated, of estimators that take several
- ``estimate``, ``std.error``, ``statistic``, ``conf.low``, ``conf.high``: the value, its standard
  error (NaN where none is known), their ratio, and an interval
- ``df``, ``p.value``: degrees of freedom of Student's t (infinite for z), and the two-sided p-value
- ``nobs``, ``npar``: numbers of rows and of parameters
- ``sigma``: standard deviation of rows within their group
- ``logLik``, ``AIC``, ``BIC``: the log-likelihood that was maximised, and criteria from it; of a
  fit by REML the restricted one, as in lme4, which does not compare fits with other terms
- ``REMLcrit``: -2 restricted log-likelihood
- ``df.residual``: rows less parameters
- ``.fitted``, ``.resid``, ``.fixed``: of `augment`, the prediction of a row, its residual, and the
  prediction if nothing were known of its group

Not in broom.mixed: ``n_groups``, ``icc``, ``likelihood`` (the kind of ``logLik``: ``"ML"``,
``"REML"`` or ``"approximate"``), and of learners ``parameter``, ``rounds``, ``loss``, ``accuracy``,
``epsilon``, ``simulated``.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.privacy.ledger import is_simulated
from ebfed.report.view import (
    GroupView,
    LearnerView,
    PopulationView,
    RegressionView,
    view_with,
)

__all__ = ["components_of", "glance", "p_values", "tidy", "variance_components", "with_intervals"]

FIXED, SPREAD, COMPONENT = "fixed", "ran_pars", "component"
# Whose spread that of rows within their groups is, and its name.
WITHIN = ("Residual", "sd__Observation")


@singledispatch
def tidy(fit: Any) -> dict[str, NDArray]:
    """Return the parameters of all groups together, one row each.

    Parameters
    ----------
    fit : fitted estimator or formula, or a view

    Returns
    -------
    dict of columns
        Columns. For means and rates: ``effect``, ``group``, ``term``, ``response``, ``estimate``,
        ``std.error``, ``statistic``. Terms are ``mean`` and ``sd__mean``, and the population's own
        parameters. With covariates, terms are ``intercept`` and each covariate's name in place of
        ``mean``; ``sd__intercept``, and alpha and beta of a beta population, are then those at
        average covariates; ``log_sd__x`` is the coefficient of x in the logarithm of the spread.
        Populations symmetric around a mode have ``pi0``, the probability of the mode itself, and
        the ``scale`` of their one slab.

        For regressions the same without ``response``. For learners ``term`` (a name of `shared_`),
        ``parameter`` (one of `terms_`, or a number where these are not those of a predictor) and
        ``estimate``.
    """
    return tidy(view_with(fit, "table of parameters"))


@tidy.register
def _(view: PopulationView) -> dict[str, NDArray]:
    prior, group, noise = view.prior, view.style.group, view.noise_variance
    errors = prior.mean_error()
    of_mean, of_spread = view.covariate_names
    first = "intercept" if of_mean or of_spread else "mean"
    rows: list[tuple] = []
    for j, column in enumerate(view.terms):
        if of_mean or of_spread:
            figures = zip(prior.coefficients_[:, j], prior.coefficient_errors_[:, j], strict=True)
            rows += [
                (FIXED, "", term, column, *each)
                for term, each in zip([first, *of_mean], figures, strict=True)
            ]
        else:
            rows.append((FIXED, "", first, column, prior.mean_[j], errors[j]))
        for level, spreads in (prior.spreads_above_ or {}).items():
            rows.append((SPREAD, level, f"sd__{first}", column, spreads[j], np.nan))
        spread = np.sqrt(prior.variance_[j])
        rows.append((SPREAD, group, f"sd__{first}", column, spread, np.nan))
        if of_spread:
            both = prior.spread_coefficients_[:, j], prior.spread_coefficient_errors_[:, j]
            rows += [
                (SPREAD, group, f"log_sd__{term}", column, *each)
                for term, *each in zip([first, *of_spread], *both, strict=True)
            ]
        if noise is not None:
            rows.append((SPREAD, *WITHIN, column, np.sqrt(noise[j]), np.nan))
        own = prior.parameters(j)
        rows += [(SPREAD, group, name, column, x, np.nan) for name, x in own.items()]
    rows += _components(view)
    titles = ("effect", "group", "term", "response", "estimate", "std.error")
    return _with_statistic(titles, rows)


@tidy.register
def _(view: RegressionView) -> dict[str, NDArray]:
    titles = ("effect", "group", "term", "estimate", "std.error")
    return _with_statistic(titles, view.parameters())


@tidy.register
def _(view: LearnerView) -> dict[str, NDArray]:
    shared, terms = view.shared, view.terms()
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


def _with_statistic(titles: tuple[str, ...], rows: Iterable[tuple]) -> dict[str, NDArray]:
    columns = dict(zip(titles, map(np.asarray, zip(*rows, strict=True)), strict=True))
    return columns | {"statistic": _statistic(columns["estimate"], columns["std.error"])}


def _statistic(estimate: NDArray, error: NDArray) -> NDArray:
    """Return estimates over their errors, where these are not zero."""
    return estimate / np.where(error > 0, error, np.nan)


def _tested(view: RegressionView) -> dict[str, NDArray]:
    """Return the columns of `tidy` with tests of the coefficients of the mean.

    Returns
    -------
    dict of columns
        Those of `tidy`, and ``df`` and ``p.value``, NaN of spreads. Of fits of counts and
        classes, standard errors of the mean are larger than those of `tidy` by what is not known of
        the spreads.
    """
    columns = tidy(view)
    fixed, error = columns["effect"] == FIXED, columns["std.error"].copy()
    df = np.where(fixed | (columns["effect"] == COMPONENT), np.inf, np.nan)
    if view.degrees is not None:
        errors, df[fixed] = view.degrees()
        error[fixed] = np.where(np.isfinite(error[fixed]), errors, np.nan)
    statistic = _statistic(columns["estimate"], error)
    found = {"std.error": error, "df": df, "statistic": statistic}
    return columns | found | {"p.value": p_values(statistic, df)}


def p_values(statistic: NDArray, df: NDArray) -> NDArray:
    """Return two-sided p-values of t statistics; those of z where df is infinite.

    Examples
    --------
    >>> p_values(np.array([2.0, -2.0, 2.0]), np.array([5.0, np.inf, np.nan])).round(4)
    array([0.1019, 0.0455,    nan])
    """
    from scipy.special import ndtr, stdtr

    size, z = -np.abs(statistic), np.isinf(df)
    return 2 * np.where(z, ndtr(size), stdtr(np.where(z, 1.0, df), size))


def with_intervals(view: GroupView, level: float) -> dict[str, NDArray]:
    """Return the columns of `tidy` with Wald's intervals, and tests of regressions.

    Spreads have no interval; others are on the scale of the link. At the ends of its support a rate
    has no link, where a fit is at the boundary the curvature of its likelihood says little, and
    noisy reports leave several populations plausible: there the interval is that of the plausible
    populations.
    """
    from scipy.special import ndtri, stdtrit

    columns = _tested(view) if isinstance(view, RegressionView) else tidy(view)
    estimate, error, link = columns["estimate"], columns["std.error"], view.link
    of_mean, share = np.isin(columns["effect"], ("fixed", "component")), (1 + level) / 2
    df = columns.get("df", np.where(of_mean, np.inf, np.nan))
    z = np.isinf(df)
    # spreads are no means; and the interval of a rate that is hardly known may have no end
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        middle = link.to_line(estimate)
        error = np.where(np.isfinite(middle), error * link.slope(estimate), np.nan)
        quantile = np.where(z, ndtri(share), stdtrit(np.where(z, 1.0, df), share))
        reach = quantile * error
        ends = [link.from_line(each) for each in (middle - reach, middle + reach)]
    if isinstance(view, PopulationView):
        several = view.prior.averages_ and view.prior.plausible_ is not None
        open_ = (columns["effect"] == "fixed") & (several | ~np.isfinite(middle))
        if open_.any():
            column = np.cumsum(columns["effect"] == "fixed")[open_] - 1
            for values, plausible in zip(ends, view.prior.mean_interval(level), strict=True):
                values[open_] = plausible[column]
        if any(view.covariate_names):
            _bound_coefficients(
                view.prior, np.flatnonzero(columns["effect"] == "fixed"), ends, level
            )
    return columns | dict(zip(("conf.low", "conf.high"), ends, strict=True))


def _bound_coefficients(prior: Any, rows: NDArray, ends: list[NDArray], level: float) -> None:
    """Take intervals of coefficients at the boundary from the plausible populations."""
    if getattr(prior, "at_boundary_", None) is None or prior.plausible_ is None:
        return
    held = np.repeat(prior.at_boundary_, len(prior.coefficients_))
    for values, plausible in zip(ends, prior.coefficient_interval(level), strict=True):
        values[rows[held]] = plausible.T.ravel()[held]


def _components(view: PopulationView) -> list[tuple]:
    """Weight, centre and (where it has one) spread of each component of a mixture."""
    rows: list[tuple] = []
    if view.components is None:
        return rows
    spread = np.any(view.components.variances)
    for j, (weight, *moments) in enumerate(zip(*view.components, strict=True)):
        name = f"component {j}"
        rows.append((COMPONENT, name, "weight", "", weight, np.nan))
        for column, mean, variance in zip(view.terms, *moments, strict=True):
            rows.append((COMPONENT, name, "mean", column, mean, np.nan))
            if spread:
                rows.append((COMPONENT, name, "sd__mean", column, np.sqrt(variance), np.nan))
    return rows


@singledispatch
def glance(fit: Any) -> dict[str, NDArray]:
    """Return a fit in one row.

    Parameters
    ----------
    fit : fitted estimator or formula, or a view

    Returns
    -------
    dict of columns
        ``n_groups``, ``nobs``, ``npar``, ``logLik``, ``likelihood``, ``AIC``, ``BIC``,
        ``df.residual``; where rows have noise, ``sigma`` and ``icc``, the share of variance between
        groups (of the first column). Of `LinearEB` ``REMLcrit`` if that was minimised, and ``icc``
        if nothing but the intercept varies.

        ``logLik`` is the log marginal likelihood of the rows if ``likelihood`` is ``"ML"``, the
        restricted one if it is ``"REML"``, and an approximation if it is ``"approximate"``. Of
        rates it is that of single rows of 0 and 1, whatever the population: it has no binomial
        coefficients, which R counts for ``cbind(…)``. ``AIC`` is ``2 npar - 2 logLik``, ``BIC``
        ``log(nobs) npar - 2 logLik``.

        For learners ``n_groups``, ``nobs``, ``npar`` (of one predictor), ``rounds``, ``loss`` and,
        of a classification, ``accuracy`` (of the last recorded round; NaN on the server),
        ``epsilon`` (the largest of all clients; infinite if anyone has no privacy) and
        ``simulated`` (whether noise follows from a fixed seed, so that epsilon is no promise).
    """
    return glance(view_with(fit, "table of figures"))


@glance.register
def _(view: GroupView) -> dict[str, NDArray]:
    return _one_row(_criteria(view, view.n_parameters, view.log_likelihood()))


@glance.register
def _(view: PopulationView) -> dict[str, NDArray]:
    try:
        value = view.log_likelihood()
    except ValueError:  # rows without noise have no density
        value = np.nan
    columns = _criteria(view, view.n_parameters, value)
    if view.noise_variance is not None:
        above = sum(spreads[0] ** 2 for spreads in (view.prior.spreads_above_ or {}).values())
        columns |= _shares(view.prior.variance_[0] + above, view.noise_variance[0])
    return _one_row(columns)


@glance.register
def _(view: RegressionView) -> dict[str, NDArray]:
    return _one_row(_criteria(view, view.n_parameters, view.log_likelihood()) | view.figures())


@glance.register
def _(view: LearnerView) -> dict[str, NDArray]:
    columns: dict[str, Any] = {
        "n_groups": view.n_groups,
        "nobs": view.n_rows,
        "npar": view.n_parameters,
        "rounds": view.n_rounds,
    }
    rows = view.history()
    for name in ("loss", "accuracy"):
        values = [row[name] for row in rows if name in row]
        if values:
            finite = [value for value in values if np.isfinite(value)]
            columns[name] = finite[-1] if finite else np.nan
    columns["epsilon"] = max(row["epsilon"] for row in view.ledger)
    columns["simulated"] = is_simulated(view.ledger)
    return _one_row(columns)


def _criteria(view: GroupView, k: int, value: float) -> dict[str, Any]:
    n_rows = view.n_rows
    return {
        "n_groups": view.n_groups,
        "nobs": n_rows,
        "npar": k,
        "logLik": value,
        "likelihood": view.likelihood_kind,
        "AIC": 2 * k - 2 * value,
        "BIC": k * np.log(max(n_rows, 1)) - 2 * value,
        "df.residual": n_rows - k,
    }


def _shares(between: float, within: float) -> dict[str, float]:
    total = between + within
    return {"sigma": np.sqrt(within), "icc": between / total if total > 0 else np.nan}


def _one_row(columns: dict[str, Any]) -> dict[str, NDArray]:
    return {name: np.array([value]) for name, value in columns.items()}


def variance_components(fit: Any) -> dict[str, NDArray]:
    """Return variances and covariances between groups, and of rows, as `VarCorr` of lme4.

    Returns
    -------
    dict of columns
        Columns ``grp``, ``var1``, ``var2`` (of a covariance, else empty), ``vcov``, ``sdcor``.
    """
    return components_of(tidy(fit))


def components_of(found: dict[str, NDArray]) -> dict[str, NDArray]:
    """Return `variance_components` of the columns of `tidy`."""
    spreads: dict[tuple[str, str], float] = {}
    rows: list[tuple] = []
    for effect, group, term, value in zip(
        *(found[name] for name in ("effect", "group", "term", "estimate")), strict=True
    ):
        kind, _, name = term.partition("__")
        if effect != SPREAD or kind not in ("sd", "cor"):
            continue
        if kind == "sd":
            spreads[group, name] = value
            within = name.removeprefix("Observation").removeprefix(".")
            rows.append((group, within if group == WITHIN[0] else name, "", value**2, value))
            continue
        own = [each for of, each in spreads if of == group]  # which may have points
        pair = next((one, two) for one in own for two in own if f"{one}.{two}" == name)
        both = spreads[group, pair[0]] * spreads[group, pair[1]]
        rows.append((group, *pair, value * both if both > 0 else 0.0, value))
    titles = {"grp": object, "var1": object, "var2": object, "vcov": float, "sdcor": float}
    return {
        name: np.array([row[j] for row in rows], kind)
        for j, (name, kind) in enumerate(titles.items())
    }
