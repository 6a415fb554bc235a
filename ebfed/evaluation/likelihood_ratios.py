"""Tests of nested models by the ratio of their likelihoods."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from ebfed.evaluation.comparison import criteria, view_by_name
from ebfed.families.base import LINKS
from ebfed.report.tidying import tidy
from ebfed.report.view import FitView, GroupView, LocationView
from ebfed.tables.frames import Style, frame

__all__ = ["anova"]

# Populations of location models that are normal, of which a smaller one is a larger one's boundary.
NORMAL = ("normal", "Normal", "NestedNormal", *(f"{link}-normal" for link in LINKS))
# Of the log likelihood, by which a larger model may lie below a smaller one: what optimisers leave.
ROUNDING = 1e-6


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
        raise ValueError("a likelihood ratio needs two fits; got one.")
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


TESTED = ("statistic", "df", "p.value", "reference")


def _ratio(smaller: Mapping[str, Any], larger: Mapping[str, Any], more: int) -> dict[str, Any]:
    """Test one fit against another, of which it has some variances more."""
    from scipy.stats import chi2

    statistic = smaller["deviance"] - larger["deviance"]
    df = float(larger["npar"] - smaller["npar"])
    if statistic < -2 * ROUNDING * max(1.0, abs(larger["logLik"])):
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
        # with 0 degrees of freedom the statistic is 0
        below = chi2.sf(statistic, df - 1) if df > 1 else float(statistic <= 0)
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
