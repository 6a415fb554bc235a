"""Shrink given estimates: a table of them, or coefficients of one regression."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from ebfed.engines import portable
from ebfed.likelihoods import Gaussian, StudentT
from ebfed.location.cross_fitting import USELESS, Groups, check_mean_model, predict_groups
from ebfed.location.estimates import Estimates
from ebfed.location.gaussian import GaussianEB
from ebfed.location.learned import method_of
from ebfed.priors import LocationScale, Normal, Posterior, Prior
from ebfed.priors.correlated import shrink_jointly
from ebfed.priors.regression import check_covariates
from ebfed.priors.variance_components import informative
from ebfed.report.effects import Face
from ebfed.report.view import PopulationView
from ebfed.tables.clients import LARGEST

__all__ = ["posterior_from", "shrink"]

INTERCEPTS = ("Intercept", "const", "(Intercept)", "intercept")
# Contrasts other than with a reference level, as patsy and formulaic name their coefficients.
CONTRASTS = re.compile(
    r"C\([^,]*,\s*(?:\w+\s*=\s*)?(?:Sum|Diff|Helmert|Poly)\b"
    r"|\bcontr\.(?:sum|diff|helmert|poly)\b.*\[[SDH]?\."
)


def posterior_from(
    estimates: Any,
    std_errors: ArrayLike | None = None,
    prior: str | Prior = "normal",
    mean: Any = None,
    spread: Any = None,
    *,
    data: Any = None,
    df: ArrayLike | None = None,
    labels: Any = None,
    terms: str | Sequence[str] | None = None,
    mean_model: Any = None,
    integrate: bool = True,
    fit_prior: bool = False,
) -> Posterior:
    """Shrink any table of estimates, or the coefficients of any regression.

    Estimates are taken as ``x_i ~ N(theta_i, std_errors_i**2)``. With `df`, standard errors are
    themselves estimates and ``(x_i - theta_i) / std_errors_i`` has a t distribution: large z-values
    of few degrees of freedom say less, and are shrunk more. The population of theta is fitted
    to the estimates with a positive, finite standard error. If there are none, it is fitted to the
    estimates with a standard error of 0.

    Estimates of one regression are correlated: ``x ~ N(theta, V)``. With ``theta ~ N(W beta, t I)``
    t is fitted by REML (or as the `prior` says) and beta by generalised least squares; see
    `priors.normal.CorrelatedPosterior`. Posteriors are averages over plausible t.

    If a factor is coded against a reference level, each coefficient is a difference from it,
    ``theta_k = alpha_k - alpha_0``, and all of them share the error of that level. This function
    allows for it: V contains the shared error, and the mean of the differences is estimated. The
    same result follows if every level is coded (``0 + C(school)``), the reference level has its own
    mean, and differences are taken. So the reference level is not shrunk, and does not help to fit
    the population. To shrink all levels, code every level. Coefficients of other contrasts (sum,
    difference, Helmert, polynomial) are refused.

    Pandas inputs are matched by their index, and the result has the order of the first of them
    (`ebfed.tables.alignment`).

    Parameters
    ----------
    estimates : array-like or series of shape (n,), or a fitted regression
        An estimate may be NaN or masked if its standard error is too. A regression has its
        coefficients in `params` and their covariance in `cov_params()` or `cov`, as those of
        statsmodels and linearmodels, or is one of pyfixest. The covariance is taken as it is,
        robust or clustered.
    std_errors : float, array-like or series of shape (n,), or array-like or frame of shape (n, n)
        Standard errors; a number is that of all. If one is 0, the posterior is the estimate itself.
        If it is infinite, NaN or masked, the posterior is the fitted population. Two dimensions are
        a covariance; populations other than the normal use its diagonal, and `prior.notes_` says
        so. Left out with a regression.
    prior : str or Prior
        The population: ``"normal"``, ``"point_normal"``, ``"laplace"``, ``"point_laplace"``,
        ``"scale_mixture"``, ``"log_spline"`` or ``"npmle"``. If most
        effects are small or zero, use one with a point at 0, or the scale mixture, which can take
        any symmetric shape with its peak at 0. Otherwise use the log-spline for a smooth
        population, or the npmle. A fitted `Prior`, such as `prior` of an earlier result or `prior_`
        of an estimator, is used as it is: the estimates are shrunk to that population, with those
        that its own fit left plausible, by its own formulas where `mean` and `spread` are None.
    mean : str, data frame or array-like of shape (n, k) or (n,), optional
        What the mean of the population depends on, besides an intercept (Fay and Herriot, 1979):
        a formula of columns of `data` and of ``se``, the standard errors, such as
        ``"~ log(se) + x"``; or the columns themselves, row by row those of the estimates.
    spread : str, data frame or array-like of shape (n, k) or (n,), optional
        What the logarithm of the standard deviation of the population depends on, as `mean`. The
        population is ``theta_i = m_i + s_i tau_i``, the tau_i of the shape that `prior` says
        (`priors.LocationScale`); so it is with a `mean` and another prior than the normal.
    data : data frame, optional
        Columns that the formulas use, row by row those of the estimates.
    df : float, or array-like or series of shape (n,), optional
        Degrees of freedom of the standard errors, from 0.1 to 1e10; infinite ones are those of
        normal errors, as all are if None. With one mean of each group, the number of its rows less
        one; with one regression, its residual degrees of freedom. With few degrees some estimates
        are very far off, and the likelihood is highest if each of these is a group of its own, as
        it is under ``"npmle"``. With fewer than 8 degrees ``"log_spline"`` and ``"scale_mixture"``
        follow such estimates too: where the population has heavy tails, their squared errors may be
        more than 1 % above those under the true population. From 20,000 estimates on, fits and
        posteriors are sums and interpolations over fewer that stand for all; posterior means are
        exact to 1e-5 standard errors.
    labels : array-like or series of shape (n,), optional
        Labels of the estimates. They only name the rows of the result: each estimate has a
        parameter of its own, also where several have one label, such as two studies of an author.
        If None, the index of a pandas series, unless it is the default one (0, 1, 2, …); or the
        names of the coefficients (the levels, if all are of one factor).
    terms : str or sequence of str, optional
        Which coefficients to shrink: their names; or a factor, ``"C(school)"`` or ``"school"``; or
        its slopes, ``"C(school):x"``, as the regression names them; or a regular expression that
        matches whole names. None: all except the intercept; an error if they are not of one factor.
        Factors that were absorbed (``y ~ x | school``) cannot be shrunk: the regression has no
        covariance of them.
    mean_model : regressor of scikit-learn, optional
        The mean of the population is a function of the columns of `mean` that this regressor
        learns, instead of a linear one: each estimate is predicted by a regressor that was fitted
        to others (five parts, the same in each call), and the population's mean is ``a + b x`` of
        the prediction x; see `GaussianEB`. For a normal population of constant spread, and
        independent errors: no covariance.
    integrate : bool
        Whether standard deviations, intervals, probabilities and draws include the uncertainty of
        the fitted population.
    fit_prior : bool
        Whether a fitted `prior` is fitted anew, to these estimates.

    Returns
    -------
    Posterior
        Posterior with the attributes `prior`, the fitted population, and `notes`, remarks on the
        fit: for example, that the variance is estimated as zero.

    Raises
    ------
    TypeError
        If estimates are neither numbers nor a regression with a covariance.
    ValueError
        If lengths differ, or the labels of pandas; if a standard error is negative, or an estimate
        is infinite or NaN though its standard error is not; if `df` is NaN, not positive or out of
        range, or is given for a covariance; if a covariance is not finite,
        symmetric and positive definite; if a formula has an unknown term, or no intercept; if
        columns of `mean` or `spread` are missing, constant or collinear; if
        `terms` picks less than two coefficients, one that was not estimated, or contrasts other
        than with a reference level.

    References
    ----------
    Chen (2024), Empirical Bayes when estimation precision predicts parameters; Fay and Herriot
    (1979), Estimates of income for small places; Ignatiadis and Wager (2019),
    Covariate-powered empirical Bayes estimation; Prasad and Rao (1990), The
    estimation of the mean squared error of small-area estimators.

    Examples
    --------
    >>> posterior = posterior_from([28, 8, -3, 7, -1, 1, 18, 12], [15, 10, 16, 11, 9, 11, 10, 18])
    >>> posterior.mean.ravel().round(2)
    array([7.69, 7.69, 7.69, 7.69, 7.69, 7.69, 7.69, 7.69])
    >>> posterior_from([0.0, 4.0, 9.0], [1.0, 1.0, 0.0]).to_frame()[["local", "estimate"]]
       local  estimate
    0    0.0      0.25
    1    4.0      3.75
    2    9.0      9.00

    Which effects are something, and of which sign?

    >>> effects = [0.3, -0.6, 5.1, 0.2, -0.9, 0.4, -4.2, 0.8]
    >>> posterior = posterior_from(effects, [1.0] * 8, prior="point_normal")
    >>> posterior.mean.ravel().round(2)
    array([ 0.04, -0.08,  4.77,  0.02, -0.14,  0.05, -3.92,  0.12])
    >>> posterior.local_false_sign_rate().ravel().round(3)
    array([0.817, 0.775, 0.   , 0.829, 0.725, 0.804, 0.002, 0.743])

    Eight means of four rows each have standard errors with three degrees of freedom. An estimate
    four errors from the others is hardly surprising then, and it is shrunk:

    >>> x = [0.1, -0.6, 4.0, 0.2, -0.9, 0.4, 0.5, -0.3]
    >>> [posterior_from(x, [1.0] * 8, df=df).mean[2].round(2) for df in (None, 3)]
    [array([2.46]), array([0.04])]

    A new experiment comes from the population of those before it:

    >>> past = posterior_from([0.1, -0.6, 0.4, 0.2, -0.9, 0.6, 0.5, -0.3], [0.3] * 8)
    >>> posterior_from([2.0], [0.3], prior=past.prior).mean.round(2)
    array([[1.5]])

    Busy players hit better: rates, on a scale where their errors are known, by numbers of at-bats

    >>> import ebfed as eb
    >>> rows = eb.datasets.load_batting().query("at_bats >= 11")
    >>> rate = np.arcsin(np.sqrt((rows.hits + 0.25) / (rows.at_bats + 0.5)))
    >>> error = 0.5 / np.sqrt(rows.at_bats)
    >>> fit = posterior_from(rate, error, mean="~ log(se)", spread="~ log(se)").prior
    >>> fit.coefficients_.ravel().round(3), fit.spread_coefficients_.ravel().round(1)
    (array([ 0.214, -0.087]), array([-0.7,  0.9]))

    Investment of firms, beyond what their value and capital explain:

    >>> import statsmodels.api as sm
    >>> rows = sm.datasets.grunfeld.load_pandas().data
    >>> fit = sm.OLS.from_formula("invest ~ 0 + C(firm) + value + capital", rows).fit()
    >>> firms = posterior_from(fit, terms="firm")
    >>> firms.to_frame()[["firm", "local", "std_error", "estimate", "sd"]].head(3).round(1)
                    firm  local  std_error  estimate    sd
    0     American Steel  -20.6       11.3     -21.0  11.2
    1  Atlantic Refining -114.6       13.5    -112.4  13.4
    2           Chrysler  -27.8       13.4     -27.5  13.0
    """
    if _is_regression(estimates):
        if std_errors is not None:
            raise ValueError("std_errors must be left out: a regression has its covariance.")
        estimates, std_errors = _coefficients(estimates, terms)
        terms = None
    population = GaussianEB(prior=prior).protocol().prior
    if fit_prior:
        population = population.unfitted()
    past = population.formulas_ if population.is_fitted else (None, None)
    mean, spread = (
        f"~ {formula.text}" if each is None and formula is not None else each
        for each, formula in zip((mean, spread), past, strict=True)
    )
    given = Estimates.read(
        estimates,
        std_errors,
        None,
        labels,
        df,
        mean=mean,
        spread=spread,
        data=data,
        formulas=past,
    )
    if terms is not None:
        raise ValueError("terms is for coefficients of a fitted regression; estimates are numbers.")
    check_mean_model(mean_model, mean)
    if mean_model is not None and not (spread is None and isinstance(population, Normal)):
        raise TypeError(
            "mean_model is for a normal population of constant spread: leave out spread=, and "
            f"choose prior='normal'; got prior={population!r}."
        )
    notes: list[str] = []
    if mean_model is not None:
        given, notes = _with_predictions(mean_model, population, given)
    posterior = shrink(population, given, integrate)
    for note in notes:
        posterior.prior._add_note(note)
    return posterior


def shrink(prior: Any, given: Estimates, integrate: bool = True) -> Posterior:
    """Shrink estimates to a population: one to be fitted to them, or a fitted one as it is.

    Examples
    --------
    >>> shrink(Normal(), Estimates.read([0.0, 4.0, 9.0], [1.0, 1.0, 0.0])).mean.ravel()
    array([0.25, 3.75, 9.  ])
    """
    normal, likelihood = _likelihoods(given)
    covariates, covariance = given.covariates, given.covariance
    if prior.is_fitted:
        prior = prior.reused_for(likelihood, covariates)
    elif covariates is not None:
        prior = _modelled(prior, given)
        known = covariates[informative(normal, 0, True)[0]]
        for name, places in (("mean", given.of_mean), ("spread", given.of_spread or ())):
            names = [given.names[j] for j in places]
            check_covariates(known[:, places], names, f"covariates of {name}")
        prior.formulas_ = given.formulas
    if covariance is not None and isinstance(prior, Normal):
        posterior: Posterior = shrink_jointly(
            prior, given.values, covariance, covariates, integrate
        )
    else:
        if not prior.is_reused_:
            prior.fit(likelihood, covariates)
        there = prior if covariates is None else prior.at(covariates)
        of = there.posterior_of_others if prior.is_reused_ else there.posterior
        posterior = of(likelihood, integrate)
        if covariance is not None:
            prior._add_note("Of the covariance, only the diagonal was used.")
    posterior.prior = prior
    posterior._population = prior if covariates is None else prior.at(covariates)
    if covariance is None:
        posterior._face = Shrunk(posterior, given)
    columns = {"local": given.values, "std_error": given.errors}
    return posterior.labelled(given.labels, columns, given.style)


class Shrunk(Face):
    """Frames and the summary of a posterior of independent estimates.

    Parameters
    ----------
    posterior : Posterior
    given : Estimates
    """

    def __init__(self, posterior: Posterior, given: Estimates):
        self.posterior, self.given = posterior, given

    def save(self, path: str | Path) -> None:
        """Write the population to a file."""
        portable.save_population(self.posterior.prior, path)

    def __ebfed_view__(self) -> PopulationView:
        """Return what tables and comparisons read."""
        posterior, given, prior = self.posterior, self.given, self.posterior.prior
        formulas = zip(("mean", "spread"), prior.formulas_, strict=True)
        modelled = [f"{name} ~ {each.text}" for name, each in formulas if each is not None]
        restricted = prior.restriction_ is not None
        shape = prior.shape_ if isinstance(prior, LocationScale) else prior
        return PopulationView(
            title=", ".join(["posterior_from", type(shape).__name__, *modelled]),
            style=given.style,
            is_server=False,
            sizes=given.has_data.astype(np.int64),
            columns=given.names,
            ledger=[],
            notes=posterior.notes,
            terms=["estimate"],
            varies=np.ones(1, bool),
            method=method_of(prior),
            n_parameters=prior.n_parameters_,
            posterior=lambda: posterior,
            posterior_given_population=lambda: posterior._population.posterior(
                _likelihoods(given)[1], False
            ),
            expected=lambda: np.broadcast_to(posterior._population.mean_, (len(posterior), 1)),
            log_likelihood=lambda: _log_likelihood(posterior, given),
            has_density=True,
            population=type(shape).__name__,
            likelihood_kind="REML" if restricted else "ML",
            maximum=(lambda: _maximum(prior, given)) if restricted else None,
            prior=prior,
            covariate_names=prior.split(given.names),
            noise_variance=None,
            weight=lambda: posterior.weight,
        )


def _log_likelihood(posterior: Posterior, given: Estimates) -> float:
    densities = posterior._population.log_marginal(_likelihoods(given)[1])
    return float(densities[given.has_data].sum()) + (posterior.prior.restriction_ or 0.0)


def _maximum(prior: Any, given: Estimates) -> float:
    """Log-likelihood of the same normal population, fitted by maximum likelihood."""
    again = prior.unfitted()
    if isinstance(prior, LocationScale):
        again.set_params(shape=Normal(method="ml"))
    else:
        again.set_params(method="ml")
    return _log_likelihood(shrink(again, given), given)


def _modelled(prior: Prior, given: Estimates) -> Prior:
    """Let a population of one shape have a location and a spread that depend on covariates."""
    if isinstance(prior, LocationScale) or (prior.takes_covariates and given.of_spread is None):
        return prior
    return LocationScale(prior, mean=given.of_mean, spread=given.of_spread or ())


def _likelihoods(given: Estimates) -> tuple[Gaussian, Gaussian | StudentT]:
    """Return what independent estimates say: with normal errors, and with the errors they have."""
    values, variances = given.messages
    normal = Gaussian(values[:, None], variances[:, None])
    has_noise = given.has_data & (given.errors > 0)
    if given.degrees is None or not np.isfinite(given.degrees[has_noise]).any():
        return normal, normal
    return normal, StudentT(values[:, None], variances[:, None], given.degrees)


def _with_predictions(model: Any, prior: Prior, given: Estimates) -> tuple[Estimates, list[str]]:
    """Put predictions in the place of covariates; see `posterior_from`."""
    if given.covariance is not None:
        raise ValueError(
            "mean_model predicts each estimate from others: std_errors must be independent, and "
            "no covariance."
        )
    assert given.covariates is not None
    values, variances = given.messages
    _, likelihood = _likelihoods(given)
    groups = Groups(given.covariates, given.names, values, variances)
    found, predicted = predict_groups(
        model,
        groups,
        clone(prior).fit(likelihood),
        lambda covariates: clone(prior).fit(likelihood, covariates),
        0,
    )
    if not found.size:
        return replace(given, covariates=None, names=[], of_mean=()), [USELESS]
    places = tuple(range(found.shape[1]))
    return replace(given, covariates=found, names=predicted.terms, of_mean=places), []


# --- regressions ---------------------------------------------------------------------------------


class _Coefficient(NamedTuple):
    """Parts of a name like ``C(school)[T.a]:x``.

    Attributes
    ----------
    term : str
        Name without its level: ``C(school):x``.
    variable, level : str
        Variable and level: ``school`` and ``T.a``.
    """

    term: str
    variable: str
    level: str

    @classmethod
    def read(cls, name: str) -> _Coefficient | None:
        """Read a name as statsmodels, linearmodels and pyfixest write it; None without a level."""
        factor = r"(?P<before>(?:[^\[\]:()]+:)?)(?P<factor>[^\[\]]+?)"
        rest = r"(?P<rest>(?::[^\[\]:]+)?)"
        found = re.fullmatch(rf"{factor}\[(?P<level>(?:(?!\]:).)*)\]{rest}", name) or re.fullmatch(
            rf"{factor}::(?P<level>[^:]*){rest}", name
        )
        if found is None:
            return None
        before, factor, level, rest = found.group("before", "factor", "level", "rest")
        inside = re.match(r"C\(\s*(?:Q\(['\"])?([^,'\")]+)", factor)
        return cls(before + factor + rest, inside[1].strip() if inside else factor, level)

    def is_called(self, term: str) -> bool:
        """Whether a term is this one; ``school`` and ``C(school)`` are the same term."""
        slope = ":" in re.sub(r"\(.*\)", "", self.term)
        return term == self.term or (not slope and term in (self.variable, f"C({self.variable})"))


def _is_regression(estimates: Any) -> bool:
    if hasattr(estimates, "__array__"):  # a series may have any attribute
        return False
    if hasattr(estimates, "params"):
        return hasattr(estimates, "cov_params") or hasattr(estimates, "cov")
    return hasattr(estimates, "coef") and hasattr(estimates, "_vcov")


def _coefficients(results: Any, terms: Any) -> tuple[Any, NDArray]:
    """Return the picked coefficients, a series with their labels, and their covariance."""
    import pandas as pd

    names, values, covariance = _all_coefficients(results)
    for factor in re.findall(r"[^+\s]+", getattr(results, "_fixef", None) or ""):  # of pyfixest
        if terms in (factor, f"C({factor})"):
            raise ValueError(
                f"terms={terms!r} was absorbed, and its effects have no covariance; fit it as "
                f"'y ~ x + C({factor})' or 'y ~ x + i({factor})'."
            )
    chosen = _pick(names, terms)
    _check_contrasts(chosen)
    if len(chosen) < 2:
        raise ValueError(
            f"terms picks one coefficient, {chosen[0]!r}; a population needs at least two."
        )
    twice = [name for name in chosen if names.count(name) > 1]
    if twice:
        raise ValueError(f"the regression has {names.count(twice[0])} coefficients {twice[0]!r}.")
    place = [names.index(name) for name in chosen]
    values, covariance = values[place], covariance[np.ix_(place, place)]
    lost = np.isnan(values) | np.isnan(np.diag(covariance))
    if lost.any():
        raise ValueError(
            f"the regression has no estimate of {_shown(np.array(chosen, object)[lost])}: are they "
            "collinear with others? Leave them out of terms."
        )
    errors, size = np.sqrt(np.maximum(np.diag(covariance), 0.0)), np.abs(values).max()
    if size < LARGEST and np.any(errors < 1e-10 * size):
        raise ValueError(
            "standard errors of the regression are zero up to rounding, as those clustered by the "
            "effects themselves are; fit it with another covariance."
        )
    read = [_Coefficient.read(name) for name in chosen]
    if len({each and each.term for each in read}) == 1 and read[0] is not None:
        levels = [each.level for each in read if each is not None]
        if all(level.startswith("T.") for level in levels):
            levels = [level.removeprefix("T.") for level in levels]
        return pd.Series(values, pd.Index(levels, name=read[0].variable)), covariance
    return pd.Series(values, pd.Index(chosen, name="term")), covariance


def _check_contrasts(names: list[str]) -> None:
    """Refuse contrasts that are not independent draws given the reference level."""
    named = [name for name in names if CONTRASTS.search(name)]
    levels = [each.level for each in map(_Coefficient.read, names) if each is not None]
    for prefix in ("S.", "D.", "H."):
        if len(levels) == len(names) and all(level.startswith(prefix) for level in levels):
            named = names
    if named:
        raise ValueError(
            f"terms picks {named[0]!r}, a contrast whose coefficients are no draws from one "
            "population, even where the levels are. Code every level, as in '0 + C(school)', or "
            "against a reference level, as in 'C(school)'."
        )


def _all_coefficients(results: Any) -> tuple[list[str], NDArray, NDArray]:
    if hasattr(results, "params"):
        coefficients = results.params
        covariance = results.cov_params if hasattr(results, "cov_params") else results.cov
        covariance = covariance() if callable(covariance) else covariance
    else:
        coefficients, covariance = results.coef(), results._vcov
    values, covariance = np.asarray(coefficients, float), np.asarray(covariance, float)
    names = getattr(coefficients, "index", None)
    if names is None:
        names = getattr(getattr(results, "model", None), "exog_names", None)
    if values.ndim != 1 or names is None or len(names) != len(values):
        raise TypeError(
            f"the coefficients of {type(results).__name__} must be one-dimensional and have names; "
            "pass numbers and their covariance."
        )
    if covariance.shape != (len(values), len(values)):
        raise TypeError(
            f"the covariance of {type(results).__name__} has shape {covariance.shape} for "
            f"{len(values)} coefficients."
        )
    return [str(name) for name in names], values, covariance


def _pick(names: list[str], terms: Any) -> list[str]:
    """Return the names of the coefficients that `terms` means."""
    read = {name: _Coefficient.read(name) for name in names}
    if terms is None:
        chosen = [name for name in names if name not in INTERCEPTS]
        families = {each and each.term for each in map(read.get, chosen)}
        if len(families) != 1 or None in families:
            raise ValueError(
                "terms must say which coefficients come from one population, for they are not all "
                f"of one factor: {_shown(chosen)}."
            )
        return chosen
    if isinstance(terms, str):
        chosen = [name for name, each in read.items() if each and each.is_called(terms)]
        chosen = chosen or [name for name in names if _fits(terms, name)]
        unknown = [] if chosen else [terms]
    else:
        chosen = list(terms)
        unknown = [name for name in chosen if name not in names] if chosen else [terms]
    if unknown:
        raise ValueError(
            f"terms={unknown[0]!r} matches no coefficient; the regression has {_shown(names)}."
        )
    twice = [name for name in chosen if chosen.count(name) > 1]
    if twice:
        raise ValueError(f"terms must all be different; {twice[0]!r} is there twice.")
    return chosen


def _fits(pattern: str, name: str) -> bool:
    try:
        return re.fullmatch(pattern, name) is not None
    except re.error:
        return False


def _shown(names: Sequence[str] | NDArray) -> str:
    return ", ".join(map(repr, names[:5])) + ", …" * (len(names) > 5)
