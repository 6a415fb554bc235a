"""Fits side by side: likelihood, criteria, risk, and how they do on rows they have not seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.estimators import GaussianEB
from ebfed.estimators.effects import GroupEffects
from ebfed.tabular import Style, first_row, frame

__all__ = ["compare"]


def compare(*fits: Any, held_out: Any = None, **named: Any) -> Any:
    """Compare fits to the same rows.

    Parameters
    ----------
    *fits, **named : fitted estimators or formulas
        Those without a name are called by their formula, or their class and population.
    held_out : data frame or mapping, optional
        Rows to score all fits on: a frame for formulas, or a mapping of arguments of their `score`,
        ``{"X": …, "groups": …}``, which for means and rates is the log predictive density of a row,
        for regressions R squared.

    Returns
    -------
    DataFrame
        One row for each fit: ``fit``, ``npar``, ``logLik``, ``AIC``, ``BIC``; and

        - ``risk``: the mean squared error that the fit expects of its own estimates, which is right
          if its population is;
        - ``sure``: Stein's (1981) estimate of the same, which for means of normal rows is unbiased
          whatever the population, up to what was fitted: the average of ``(theta_i^ - x_i)**2 + (2
          b_i - 1) v_i``, where v_i is the sampling variance of x_i and b_i the slope of the
          estimate in it;
        - ``local``: that of the groups' own means, the average of v_i;
        - ``score``: on the held-out rows.

        What a method does not have is NaN. Likelihoods of fits by REML are those at its estimates,
        so that fits with other terms compare; a smaller AIC is better.

    Raises
    ------
    ValueError
        If there is nothing to compare, or fits had other numbers of rows or groups.

    References
    ----------
    Stein (1981), Estimation of the mean of a multivariate normal distribution, Ann. Stat. 9.

    Examples
    --------
    >>> import ebfed as eb
    >>> X, groups, theta = eb.datasets.make_gaussian_groups(300, 4, random_state=0)
    >>> fits = {prior: eb.GaussianEB(prior=prior) for prior in ("normal", "npmle")}
    >>> for est in fits.values():
    ...     _ = est.fit(X, groups=groups)
    >>> compare(**fits)[["fit", "npar", "risk", "sure", "local"]].round(3)
          fit  npar   risk   sure  local
    0  normal     3  0.196  0.195   0.24
    1   npmle    14  0.182  0.174   0.24
    """
    every = {**_named(fits), **named}
    if not every:
        raise ValueError("there is no fit to compare.")
    rows = [_row(name, fit, held_out) for name, fit in every.items()]
    for what in ("nobs", "n_groups"):
        sizes = {name: row[what] for name, row in zip(every, rows, strict=True)}
        if len(set(sizes.values())) > 1:
            listed = ", ".join(f"{size:,} in {name!r}" for name, size in sizes.items())
            raise ValueError(f"fits must be of the same rows; {what} is {listed}.")
    titles = ["fit", "npar", "logLik", "AIC", "BIC", "risk", "sure", "local"]
    titles += [] if held_out is None else ["score"]
    columns = {name: np.array([row[name] for row in rows]) for name in titles}
    return frame(columns, Style(_backend(next(iter(every.values())))))


def _named(fits: tuple[Any, ...]) -> dict[str, Any]:
    """Names of fits that were given none; numbered where they would be the same."""
    named: dict[str, Any] = {}
    for fit in fits:
        name = getattr(fit, "formula", None) or _title(fit)
        if name in named:
            name = f"{name} ({1 + sum(each.startswith(name) for each in named)})"
        named[name] = fit
    return named


def _title(fit: Any) -> str:
    prior = getattr(fit, "prior_", None)
    return type(fit).__name__ + ("" if prior is None else f", {type(prior).__name__}")


def _backend(fit: Any) -> Any:
    return getattr(fit, "_style_", Style()).backend


def _row(name: str, fit: Any, held_out: Any) -> dict[str, Any]:
    estimator = getattr(fit, "estimator_", fit)
    if not hasattr(estimator, "glance"):
        raise TypeError(f"{name!r} is no fitted estimator or formula; {fit!r} came.")
    facts = first_row(estimator.glance())
    row = {"fit": name} | {key: facts[key] for key in ("npar", "nobs", "n_groups")}
    row |= {key: facts.get(key, np.nan) for key in ("logLik", "AIC", "BIC")}
    row |= dict.fromkeys(("risk", "sure", "local"), np.nan)
    if isinstance(estimator, GroupEffects):
        posterior = estimator.posterior()
        row["risk"] = float((posterior.sd**2).mean())
        if isinstance(estimator, GaussianEB):
            row["sure"], row["local"] = _stein(estimator, posterior)
    if held_out is not None:
        row["score"] = (
            fit.score(**held_out) if isinstance(held_out, Mapping) else fit.score(held_out)
        )
    return row


def _stein(estimator: GaussianEB, posterior: Any) -> tuple[float, float]:
    """Stein's estimate of the risk, and that of the groups' own means."""
    summary = estimator.summaries_
    told = summary.n > 0
    variance = estimator.noise_variance_ / summary.n[told, None]
    shrunk, local = posterior.mean[told], summary.mean[told]
    if posterior.weight is not None:
        slope = posterior.weight[told]
    else:
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = np.where(variance > 0, posterior.sd[told] ** 2 / variance, 1.0)
    risk: NDArray = (shrunk - local) ** 2 + (2 * slope - 1) * variance
    return float(risk.mean()), float(variance.mean())
