"""Fits side by side: likelihood, criteria, risk, scores of held-out rows, and tests of them."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import hadamard
from sklearn.base import BaseEstimator, is_classifier

from ebfed.families.base import LINKS
from ebfed.location.shrinkage import posterior_from
from ebfed.priors import Posterior
from ebfed.report.tidying import glance, tidy
from ebfed.report.view import FitView, GroupView, LocationView, view_of
from ebfed.tables.frames import Style, frame

__all__ = ["anova", "compare", "criteria"]

# Of Stein's estimate: how far means are moved, in their own standard errors; number of means up to
# which moves are orthogonal; and number of moved means where there are more.
STEP, FEW, MOVES = 0.03, 64, 2000

Refit = Callable[..., NDArray]

# Populations of location models that are normal, of which a smaller one is a larger one's boundary.
NORMAL = ("normal", "Normal", "NestedNormal", *(f"{link}-normal" for link in LINKS))
# Of the log likelihood, by which a larger model may lie below or above a smaller one that is as
# likely: what optimisers leave.
ROUNDING = 1e-6
TESTED = ("statistic", "df", "p.value", "reference")


def compare(*fits: Any, held_out: Any = None, **named: Any) -> Any:
    """Compare fits to the same rows.

    Parameters
    ----------
    *fits, **named : fitted estimators or formulas, or posteriors of `posterior_from`
        Fits to compare. Those without a name are called by their formula, or their class and
        population.
    held_out : data frame or mapping, optional
        Rows to score all fits on: a frame for formulas, or a mapping of arguments of their `score`,
        ``{"X": …, "groups": …}``; of `posterior_from`, of its arguments,
        ``{"estimates": …, "std_errors": …, "data": …}``.

    Returns
    -------
    DataFrame
        One row for each fit: ``fit``, ``npar``, ``logLik``, ``likelihood``, ``AIC``, ``BIC``; and,
        averaged over the groups that have rows,

        - ``risk``: the mean squared error that the fit expects of its own estimates, which is right
          if its population is;
        - ``sure``: Stein's (1981) estimate of the same, for `GaussianEB` through an exact channel:
          the average of ``(theta_i^ - x_i)**2 - v_i + 2 v_i b_i``, where v_i is the sampling
          variance of the group's mean x_i and b_i the slope of theta_i^ in x_i when the population
          is fitted again. If rows are normal and v_i known it is unbiased, whatever the
          population. Slopes are found by fitting to means that are moved a little, at random if
          there are more than a few (Ramani et al. 2008); the draws are always the same;
        - ``local``: the same for the groups' own means, the average of v_i;
        - ``score``: the score on the held-out rows. For formulas it is R squared of the predicted
          responses, counts at their exposures and probabilities included, so that all formulas of
          one response compare (of variances, it is the log predictive density of a row). For
          estimators it is their own: the log predictive density of a row for means and rates, the
          share of labels that are predicted right for classifiers, else R squared;
        - ``density``: the log predictive density of a held-out row, or estimate, which compares
          populations, for means and rates.

        Columns that a method does not have are NaN. A smaller AIC is better. ``likelihood`` is
        the kind of ``logLik``, as in `glance`. Restricted likelihoods compare among fits by REML
        with the same columns and coefficients of the mean. Beside other fits, ``logLik``, ``AIC``
        and ``BIC`` of a fit by REML are those of the same model refitted by maximum likelihood, as
        lme4's ``anova`` has them; ``likelihood`` is then ``"ML (refitted)"``, and the other columns
        are of the fit as it is. Beside Laplace's approximations, as of crossed factors, other
        likelihoods of generalized models are of the same model refitted by it,
        ``"approximate (refitted)"``, as lme4 compares them. Likelihoods of rates are those of
        single rows of 0 and 1, so that beta and logit-normal populations compare.

    Raises
    ------
    TypeError
        If something is no fit.
    ValueError
        If there is nothing to compare, two fits have one name, or fits have different responses
        or numbers of rows or groups; if scores are of different kinds; or if a fit would have
        to be refitted whose rows are not all there, or to which a channel added noise.

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
    >>> compare(**fits)[["fit", "risk", "sure", "local"]].round(2)
          fit  risk  sure  local
    0  normal   0.2   0.2   0.24
    1   npmle   0.2   0.2   0.24
    """
    views = view_by_name(fits, named)
    rows = criteria(views)
    _check_sizes("n_groups", rows)
    every = {**_named(fits), **named}
    if held_out is not None:
        _check_scores({name: _measure(fit, views[name]) for name, fit in every.items()})
    for row, fit in zip(rows, every.values(), strict=True):
        row |= _scores(fit, views[row["fit"]], held_out)
    titles = ["fit", "npar", "logLik", "likelihood", "AIC", "BIC", "risk", "sure", "local"]
    titles += [] if held_out is None else ["score", "density"]
    columns = {name: np.array([row[name] for row in rows]) for name in titles}
    return frame(columns, Style(next(iter(views.values())).style.backend))


def view_by_name(fits: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, FitView]:
    """Return the views of fits by the names of the fits, which formulas and classes give to others.

    Raises
    ------
    TypeError, ValueError
        If something is no fit, there is none, or two have one name.
    """
    unnamed = _named(fits)
    if twice := sorted(unnamed.keys() & named.keys()):
        raise ValueError(f"two fits are called {twice[0]!r}; name them differently.")
    every = {**unnamed, **named}
    if not every:
        raise ValueError("there is no fit to compare.")
    return {name: _view(name, fit) for name, fit in every.items()}


def criteria(views: Mapping[str, FitView], *, keep_restricted: bool = True) -> list[dict[str, Any]]:
    """Return the criteria of fits to the same rows, with likelihoods of one kind.

    Parameters
    ----------
    views : mapping of str to FitView
        Fits by name.
    keep_restricted : bool
        Whether restricted likelihoods stay where all fits have one, with the same columns of the
        mean.

    Returns
    -------
    list of dict
        Of each fit: ``fit``, ``npar``, ``nobs``, ``n_groups``, ``logLik``, ``likelihood``,
        ``AIC``, ``BIC``.

    Raises
    ------
    ValueError
        If rows differ, or likelihoods do not compare: see `compare`.
    """
    _check_alike("the response", {name: _response(view) for name, view in views.items()})
    _check_alike("the likelihood", {name: _kind(view) for name, view in views.items()})
    rows = [_criteria(name, view) for name, view in views.items()]
    _check_sizes("nobs", rows)
    _align_likelihoods(rows, views, keep_restricted)
    return rows


def _check_sizes(what: str, rows: list[dict[str, Any]]) -> None:
    _check_alike(what, {row["fit"]: f"{row[what]:,}" for row in rows})


def _named(fits: tuple[Any, ...]) -> dict[str, Any]:
    """Name fits that have no name; equal names are numbered."""
    named: dict[str, Any] = {}
    seen: Counter[str] = Counter()
    for fit in fits:
        name = getattr(fit, "formula", None) or _title(_view("a fit", fit))
        seen[name] += 1
        named[name if seen[name] == 1 else f"{name} ({seen[name]})"] = fit
    return named


def _view(name: str, fit: Any) -> FitView:
    try:
        return view_of(fit)
    except TypeError:
        raise TypeError(f"{name!r} is no fitted estimator or formula; got {fit!r}.") from None


def _check_alike(what: str, values: Mapping[str, str | None]) -> None:
    """Refuse fits of which some have another value."""
    known = {name: value for name, value in values.items() if value is not None}
    if len(set(known.values())) > 1:
        listed = ", ".join(f"{value} in {name!r}" for name, value in known.items())
        raise ValueError(f"fits must be of the same rows; {what} is {listed}.")


def _response(view: FitView) -> str | None:
    """Response of a formula, without spaces."""
    return None if view.response is None else "".join(view.response.split())


def _measure(fit: Any, view: FitView) -> str:
    """What the score of a fit is."""
    others = ("variance", "duration")  # rows are not what is predicted
    if isinstance(fit, Posterior):
        return "the log predictive density of an estimate"
    own = isinstance(view, LocationView) and view.family.name in others
    if isinstance(view, LocationView) and (own or not hasattr(fit, "formula")):
        return "the log predictive density of a row"
    own = isinstance(fit, BaseEstimator) and is_classifier(fit)
    return "the share of right labels" if own else "R squared"


def _check_scores(measures: Mapping[str, str]) -> None:
    if len(set(measures.values())) > 1:
        listed = ", ".join(f"{value} for {name!r}" for name, value in measures.items())
        raise ValueError(
            f"held_out needs fits whose scores compare; the score is {listed}. Formulas of one "
            "response have one kind of score."
        )


def _kind(view: FitView) -> str | None:
    """What the likelihood of a row is: a density does not compare with a probability."""
    if not isinstance(view, GroupView):
        return None
    return "a density" if view.has_density else "a probability"


def _title(view: FitView) -> str:
    prior = f", {type(view.prior).__name__}" if isinstance(view, LocationView) else ""
    return view.title + prior


def _criteria(name: str, view: FitView) -> dict[str, Any]:
    facts = {key: values[0] for key, values in glance(view).items()}
    row = {"fit": name} | {key: facts[key] for key in ("npar", "nobs", "n_groups")}
    row |= {key: facts.get(key, np.nan) for key in ("logLik", "AIC", "BIC")}
    row["likelihood"] = facts["likelihood"] if np.isfinite(row["logLik"]) else ""
    return row


def _scores(fit: Any, view: FitView, held_out: Any) -> dict[str, float]:
    """Risk of a fit, and its score on held-out rows."""
    row = dict.fromkeys(("risk", "sure", "local"), np.nan)
    if isinstance(view, GroupView):
        row["risk"] = float((view.posterior().sd[view.sizes > 0] ** 2).mean())
    if isinstance(view, LocationView) and view.noise_variance is not None:
        row["local"] = float(_sampling_variance(view)[view.has_rows].mean())
        if view.refit is not None and view.all_exact:
            row["sure"] = _stein(view, view.refit)
    if held_out is not None and isinstance(fit, Posterior):
        others = view_of(posterior_from(**held_out, prior=fit.prior))
        assert isinstance(others, GroupView)
        row["score"] = row["density"] = others.log_likelihood() / others.n_rows
    elif held_out is not None:
        by_name = isinstance(held_out, Mapping)
        row["score"] = fit.score(**held_out) if by_name else fit.score(held_out)
        row["density"] = np.nan
        if isinstance(view, LocationView):
            row["density"] = row["score"]
            if hasattr(fit, "formula"):
                row["density"] = fit.log_density(*held_out.values() if by_name else [held_out])
    return row


def _align_likelihoods(
    rows: list[dict[str, Any]], views: Mapping[str, FitView], keep_restricted: bool
) -> None:
    """Put likelihoods of one kind into rows that have one.

    Raises
    ------
    ValueError
        If they cannot be of one kind.
    """
    kinds = {row["fit"]: row["likelihood"] for row in rows if row["likelihood"]}
    if "approximate" in kinds.values():
        for row in rows:
            if row["likelihood"] not in ("", "approximate"):
                _approximate(row, views[row["fit"]])
        return
    restricted = [name for name, kind in kinds.items() if kind == "REML"]
    alike = len(restricted) == len(kinds) and keep_restricted
    if alike and _have_one_design([views[name] for name in restricted]):
        return
    for row in rows:
        if row["fit"] not in restricted:
            continue
        view = views[row["fit"]]
        assert isinstance(view, GroupView)
        if view.maximum is None:
            raise ValueError(
                f"likelihoods must be of one kind; that of {row['fit']!r} is restricted (REML), "
                "and compares with fits by REML with the same columns of the mean alone. Refit it "
                "with method='ml'."
            )
        row |= _refitted(view, "ML (refitted)", view.maximum)


def _approximate(row: dict[str, Any], view: FitView) -> None:
    """Put Laplace's approximation in the place of a likelihood, to compare it with others'."""
    if not isinstance(view, GroupView) or view.approximation is None:
        raise ValueError(
            f"likelihoods must be of one kind; that of {row['fit']!r} is exact, and others are "
            "approximations. Compare the scores of the fits on held-out rows."
        )
    row |= _refitted(view, "approximate (refitted)", view.approximation)


def _refitted(view: GroupView, kind: str, log_likelihood: Callable[[], float]) -> dict[str, Any]:
    """Return the criteria of a fit with another likelihood of the same model."""
    refitted = replace(view, likelihood_kind=kind, log_likelihood=log_likelihood)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the first fit has warned already
        facts = {key: values[0] for key, values in glance(refitted).items()}
    return {key: facts[key] for key in ("logLik", "likelihood", "AIC", "BIC")}


def _have_one_design(views: list[FitView]) -> bool:
    """Whether the coefficients of the mean are of the same columns in all fits."""
    products = [view.design_products for view in views if isinstance(view, GroupView)]
    if len(products) < 2:
        return True
    if None in products:
        return False
    first, *others = [_scaled(each()) for each in products if each is not None]
    rounding = 1e-9 * np.abs(first).max(axis=0)
    return all(
        each.shape == first.shape and np.all(np.abs(each - first) <= rounding) for each in others
    )


def _scaled(products: NDArray) -> NDArray:
    """Products of columns of length 1 with all columns."""
    size = np.sqrt(np.diag(products))
    return products / np.where(size > 0, size, 1.0)[:, None]


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names))


def _sampling_variance(view: LocationView) -> NDArray:
    """Variance of each group's own mean; 0 where it has no rows."""
    size = view.summary.size[:, None]
    return np.where(size > 0, view.noise_variance / np.where(size > 0, size, 1), 0.0)


def _stein(view: LocationView, refit: Refit) -> float:
    """Stein's estimate of the risk, its divergence by moving all means at once.

    Moves ahead and back cancel the curvature. Estimates of discrete populations bend within the
    reach of one error: a thirtieth of that is small, and still far above the error of optimizers.
    """
    summary, variance = view.summary, _sampling_variance(view)
    error = np.sqrt(variance)
    settings = {"channel": None, "engine": None, "participation": view.reports}

    def moved(moves: NDArray) -> NDArray:
        """Estimates that the same fit would have made of other means."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the first fit has warned already
            return refit(replace(summary, mean=summary.mean + moves), **settings)

    slopes = []
    for signs in _signs(summary.mean.shape):
        ahead, back = (moved(step * signs * error) for step in (STEP, -STEP))
        slopes.append(signs * error * (ahead - back) / (2 * STEP))
    residual = (view.posterior().mean - summary.mean) ** 2 - variance
    return float((residual + 2 * np.mean(slopes, axis=0))[view.has_rows].mean())


def _signs(shape: tuple[int, ...]) -> NDArray:
    """Signs of moves that do not mix the slopes of different means, shape (k, *shape).

    They are those of a Hadamard matrix, which are orthogonal, for few means; independent ones,
    orthogonal on average, for more.
    """
    size = int(np.prod(shape))
    if size <= FEW:
        return hadamard(1 << (size - 1).bit_length())[:, :size].reshape(-1, *shape)
    return np.random.default_rng(0).choice([-1.0, 1.0], size=(-(-MOVES // shape[0]), *shape))


def anova(*fits: Any, boundary: bool = True, refit: bool = True, **named: Any) -> Any:
    """Test nested models by the ratio of their likelihoods, as lme4's ``anova``.

    Each fit is tested against the fit with the next smaller number of parameters:
    ``statistic = 2 (logLik - logLik_smaller)``, which has a chi-squared distribution of
    ``df = npar - npar_smaller`` degrees of freedom if the smaller model is true.

    A variance cannot be negative. Where the larger model has one variance more, the smaller model
    lies on the boundary, and the statistic is a mixture, in equal parts, of chi-squared variables
    of ``df - 1`` and ``df`` degrees of freedom (Self and Liang 1987, case 6; Stram and Lee 1994).
    P-values are then those of the mixture. Where it has several variances more, the weights of the
    mixture are not known in general; the p-value of chi-squared with ``df`` degrees of freedom is
    reported, which is too large.

    Parameters
    ----------
    *fits, **named : fitted estimators or formulas
        Two fits or more with normal random effects, to the same rows. They must be nested: this is
        not checked beyond the numbers of parameters and the likelihoods.
    boundary : bool
        Whether to use the mixture. Without it p-values are those of lme4.
    refit : bool
        Whether fits by REML are refitted by maximum likelihood, as by lme4. Otherwise fits whose
        means have the same columns are compared by their restricted likelihoods.

    Returns
    -------
    DataFrame
        One row for each fit, in the order of their numbers of parameters: ``fit``, ``npar``,
        ``AIC``, ``BIC``, ``logLik``, ``deviance`` (``-2 logLik``), ``statistic``, ``df``,
        ``p.value`` and ``reference``, the distribution of the statistic: ``"chi2"``,
        ``"mixture"``, or ``"chi2 (conservative)"``. The first row has no test.

    Raises
    ------
    TypeError
        If something is no fit.
    ValueError
        If there are fewer than two fits; if their rows differ or their likelihoods do not compare
        (see `compare`), or if populations are not normal, as numbers of parameters then have no
        chi-squared distribution.

    Warns
    -----
    UserWarning
        If a larger model has a smaller likelihood: the two are not nested, or a fit has not
        converged.

    References
    ----------
    Self, Liang (1987), Asymptotic properties of maximum likelihood estimators and likelihood ratio
    tests under nonstandard conditions, J. Am. Stat. Assoc. 82.
    Stram, Lee (1994), Variance components testing in the longitudinal mixed effects model,
    Biometrics 50.

    Examples
    --------
    >>> import ebfed as eb
    >>> import pandas as pd
    >>> rng = np.random.default_rng(0)
    >>> rows = pd.DataFrame({"g": np.repeat(np.arange(30), 6), "x": rng.normal(size=180)})
    >>> slopes = 1 + rng.normal(0, 0.5, 30)
    >>> rows["y"] = slopes[rows["g"]] * rows["x"] + rng.normal(size=180)
    >>> one = eb.from_formula("y ~ x + (1 | g)", rows)
    >>> two = eb.from_formula("y ~ x + (x | g)", rows)
    >>> table = anova(one, two)
    >>> table[["npar", "statistic", "df"]].round(1)
       npar  statistic   df
    0     4        NaN  NaN
    1     6       19.4  2.0
    >>> table["reference"].tolist()
    ['', 'mixture']
    """
    views = view_by_name(fits, named)
    if len(views) < 2:
        raise ValueError(
            "a likelihood ratio needs two fits; got one. fit.tests(type='III') tests the terms of "
            "one fit of a formula."
        )
    for name, view in views.items():
        _check_normal(name, view)
    rows = sorted(criteria(views, keep_restricted=not refit), key=lambda row: row["npar"])
    for row in rows:
        row["deviance"] = -2 * row["logLik"]
        row |= dict(zip(TESTED, (np.nan, np.nan, np.nan, ""), strict=True))
    for smaller, larger in pairwise(rows):
        more = _variances(views[larger["fit"]]) - _variances(views[smaller["fit"]])
        larger |= _ratio(smaller, larger, more if boundary else 0)
    titles = ["fit", "npar", "AIC", "BIC", "logLik", "deviance", *TESTED]
    columns = {name: np.array([row[name] for row in rows]) for name in titles}
    return frame(columns, Style(next(iter(views.values())).style.backend))


def _ratio(smaller: Mapping[str, Any], larger: Mapping[str, Any], more: int) -> dict[str, Any]:
    """Test one fit against another, of which it has some variances more."""
    from scipy.stats import chi2

    statistic = smaller["deviance"] - larger["deviance"]
    df = float(larger["npar"] - smaller["npar"])
    rounding = 2 * ROUNDING * max(1.0, abs(larger["logLik"]))
    if statistic < -rounding:
        warnings.warn(
            f"{larger['fit']!r} has more parameters than {smaller['fit']!r} and a smaller "
            "likelihood: they are not nested, or one has not converged.",
            UserWarning,
            stacklevel=3,
        )
    statistic = max(statistic, 0.0)
    if not df:
        return dict(zip(TESTED, (statistic, df, np.nan, ""), strict=True))
    p, reference = chi2.sf(statistic, df), "chi2"
    if more == 1:
        # with 0 degrees of freedom the statistic is 0, up to what optimisers leave
        below = chi2.sf(statistic, df - 1) if df > 1 else float(statistic <= rounding)
        p, reference = (p + below) / 2, "mixture"
    elif more > 1:
        reference = "chi2 (conservative)"
    return dict(zip(TESTED, (statistic, df, float(p), reference), strict=True))


def _check_normal(name: str, view: FitView) -> None:
    """Raise a ValueError if the population of a fit is not normal."""
    if not isinstance(view, GroupView):
        raise ValueError(f"{name!r} has no likelihood; it is a {view.title}.")
    normal = view.population in NORMAL or view.population.startswith("normal effects ")  # crossed
    if not normal or view.components is not None:
        raise ValueError(
            f"likelihood ratios are of fits with normal populations; that of {name!r} is "
            f"{view.population}. Compare such fits by eb.compare."
        )


def _variances(view: FitView) -> int:
    """Return the number of variances that may be zero: between groups, and beyond Poisson's."""
    assert isinstance(view, GroupView)
    columns = tidy(view)
    spreads = np.char.startswith(columns["term"].astype(str), "sd__")
    between = spreads & (columns["group"] != "Residual") & (columns["effect"] == "ran_pars")
    beyond = columns["term"] == "dispersion"
    return int((between | beyond).sum()) // _responses(view)


def _responses(view: GroupView) -> int:
    """Return the number of columns that a location model estimates side by side."""
    return len(view.terms) if isinstance(view, LocationView) else 1
