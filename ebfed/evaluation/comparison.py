"""Fits side by side: likelihood, criteria, risk, and how they do on rows they have not seen."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import hadamard
from sklearn.base import clone

from ebfed.location import BernoulliEB, GaussianEB
from ebfed.regression import LogisticEB
from ebfed.report.effects import GroupEffects
from ebfed.tables.columns import first_row
from ebfed.tables.frames import Style, frame

__all__ = ["compare"]

# Of Stein's estimate: how far means are moved, in their own standard errors; up to how many means
# each is told apart from all others; and how many are moved in all where they are more.
STEP, FEW, MOVES = 0.03, 64, 2000


def compare(*fits: Any, held_out: Any = None, **named: Any) -> Any:
    """Compare fits to the same rows.

    Parameters
    ----------
    *fits, **named : fitted estimators or formulas
        Those without a name are called by their formula, or their class and population.
    held_out : data frame or mapping, optional
        Rows to score all fits on: a frame for formulas, or a mapping of arguments of their `score`,
        ``{"X": …, "groups": …}``.

    Returns
    -------
    DataFrame
        One row for each fit: ``fit``, ``npar``, ``logLik``, ``AIC``, ``BIC``; and, averaged over
        the groups that have rows,

        - ``risk``: the mean squared error that the fit expects of its own estimates, which is right
          if its population is;
        - ``sure``: Stein's (1981) estimate of the same, of `GaussianEB` through an exact channel:
          the average of ``(theta_i^ - x_i)**2 - v_i + 2 v_i b_i``, where v_i is the sampling
          variance of the group's mean x_i and b_i the slope of theta_i^ in x_i, the population
          being fitted anew. If rows are normal and v_i known it is unbiased, whatever the
          population. Slopes are found by fitting to means that are moved a little, at random if
          they are more than a few (Ramani et al. 2008); the draws are always the same;
        - ``local``: that of the groups' own means, the average of v_i;
        - ``score``: on the held-out rows. Of means and rates the log predictive density of a row,
          of `LinearEB` R squared, of classifiers the share of labels that are predicted right.

        What a method does not have is NaN. Likelihoods of fits by REML are those at its estimates,
        so that fits with other terms compare; a smaller AIC is better.

    Raises
    ------
    TypeError
        If something is no fit.
    ValueError
        If there is nothing to compare, a name came twice, or fits had other responses or other
        numbers of rows or groups.

    References
    ----------
    Stein (1981), Estimation of the mean of a multivariate normal distribution, Ann. Stat. 9.
    Ramani, Blu, Unser (2008), Monte-Carlo SURE: a black-box optimization of regularization
    parameters for general denoising algorithms, IEEE Trans. Image Process. 17.

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
    1   npmle    14  0.182  0.203   0.24
    """
    unnamed = _named(fits)
    if twice := sorted(unnamed.keys() & named.keys()):
        raise ValueError(f"two fits are called {twice[0]!r}; name them differently.")
    every = {**unnamed, **named}
    if not every:
        raise ValueError("there is no fit to compare.")
    _check_alike("the response", {name: _response(fit) for name, fit in every.items()})
    _check_alike("the likelihood", {name: _kind(fit) for name, fit in every.items()})
    rows = [_row(name, fit, held_out) for name, fit in every.items()]
    for what in ("nobs", "n_groups"):
        sizes = {name: f"{row[what]:,}" for name, row in zip(every, rows, strict=True)}
        _check_alike(what, sizes)
    titles = ["fit", "npar", "logLik", "AIC", "BIC", "risk", "sure", "local"]
    titles += [] if held_out is None else ["score"]
    columns = {name: np.array([row[name] for row in rows]) for name in titles}
    return frame(columns, Style(_backend(next(iter(every.values())))))


def _named(fits: tuple[Any, ...]) -> dict[str, Any]:
    """Names of fits that were given none; numbered where they would be the same."""
    named: dict[str, Any] = {}
    seen: Counter[str] = Counter()
    for fit in fits:
        name = getattr(fit, "formula", None) or _title(fit)
        seen[name] += 1
        named[name if seen[name] == 1 else f"{name} ({seen[name]})"] = fit
    return named


def _check_alike(what: str, values: Mapping[str, str | None]) -> None:
    """Refuse fits of which some have another value."""
    known = {name: value for name, value in values.items() if value is not None}
    if len(set(known.values())) > 1:
        listed = ", ".join(f"{value} in {name!r}" for name, value in known.items())
        raise ValueError(f"fits must be of the same rows; {what} is {listed}.")


def _response(fit: Any) -> str | None:
    """What a formula explains, without spaces."""
    return "".join(fit._model.response.split()) if hasattr(fit, "formula") else None


def _kind(fit: Any) -> str | None:
    """What the likelihood of a row is: a density does not compare with a probability."""
    estimator = getattr(fit, "estimator_", fit)
    if not isinstance(estimator, GroupEffects):
        return None
    rates = isinstance(estimator, BernoulliEB | LogisticEB)
    return "a probability of 0 or 1" if rates else "a density"


def _title(fit: Any) -> str:
    prior = getattr(fit, "prior_", None)
    return type(fit).__name__ + ("" if prior is None else f", {type(prior).__name__}")


def _backend(fit: Any) -> Any:
    return getattr(fit, "_style_", Style()).backend


def _row(name: str, fit: Any, held_out: Any) -> dict[str, Any]:
    estimator = getattr(fit, "estimator_", fit)
    if not hasattr(estimator, "glance"):
        raise TypeError(f"{name!r} is no fitted estimator or formula; got {fit!r}.")
    facts = first_row(estimator.glance())
    row = {"fit": name} | {key: facts[key] for key in ("npar", "nobs", "n_groups")}
    row |= {key: facts.get(key, np.nan) for key in ("logLik", "AIC", "BIC")}
    row |= dict.fromkeys(("risk", "sure", "local"), np.nan)
    if isinstance(estimator, GroupEffects):
        has_data = _sizes(estimator) > 0
        row["risk"] = float((estimator.posterior().sd[has_data] ** 2).mean())
        if isinstance(estimator, GaussianEB):
            row["local"] = float(_sampling_variance(estimator)[has_data].mean())
        if type(estimator) is GaussianEB and estimator._all_exact():
            row["sure"] = _stein(estimator)
    if held_out is not None:
        row["score"] = (
            fit.score(**held_out) if isinstance(held_out, Mapping) else fit.score(held_out)
        )
    return row


def _sizes(estimator: Any) -> NDArray:
    """Numbers of rows of the groups."""
    summary = getattr(estimator, "summaries_", None)
    return estimator._sizes() if summary is None else summary.n


def _sampling_variance(estimator: GaussianEB) -> NDArray:
    """Variance of each group's own mean; 0 where there is none."""
    n = estimator.summaries_.n[:, None]
    return np.where(n > 0, estimator.noise_variance_ / np.maximum(n, 1), 0.0)


def _stein(estimator: GaussianEB) -> float:
    """Stein's estimate of the risk, its divergence by moving all means at once.

    Moves there and back cancel what is curved. Estimates of discrete populations bend within the
    reach of one error: a thirtieth of that is small, and still far above what optimizers leave.
    """
    summary, variance = estimator.summaries_, _sampling_variance(estimator)
    has_data, error = summary.n > 0, np.sqrt(variance)
    slopes = []
    for signs in _signs(summary.mean.shape):
        ahead, back = (_moved(estimator, step * signs * error) for step in (STEP, -STEP))
        slopes.append(signs * error * (ahead - back) / (2 * STEP))
    kept = (estimator.posterior().mean - summary.mean) ** 2 - variance
    return float((kept + 2 * np.mean(slopes, axis=0))[has_data].mean())


def _signs(shape: tuple[int, ...]) -> NDArray:
    """Directions of moves, by which each mean answers for its own move alone, shape (k, *shape).

    On average, since signs are independent; of few means exactly, since those of a Hadamard matrix
    are orthogonal.
    """
    size = int(np.prod(shape))
    if size <= FEW:
        return hadamard(1 << (size - 1).bit_length())[:, :size].reshape(-1, *shape)
    return np.random.default_rng(0).choice([-1.0, 1.0], size=(-(-MOVES // shape[0]), *shape))


def _moved(estimator: GaussianEB, moves: NDArray) -> NDArray:
    """Estimates that the same fit would have made of other means."""
    covariates = estimator._memory["covariates"]
    asked = {"participation": estimator._memory["turn"] >= 0}
    again = clone(estimator).set_params(channel=None, engine=None, **asked)
    summary = replace(estimator.summaries_, mean=estimator.summaries_.mean + moves)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the fit itself has said it
        again.fit(summary, covariates=covariates if covariates.shape[1] else None)
    return again.posterior().mean
