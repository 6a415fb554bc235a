"""Tests of the terms of a formula."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ebfed.formula.design import contrasts_of_terms
from ebfed.inference.contrasts import term_tests
from ebfed.location import GaussianEB
from ebfed.location.base import LocationEstimator
from ebfed.regression import LinearEB
from ebfed.regression.inferring import Tested, check_type
from ebfed.tables.frames import frame

if TYPE_CHECKING:
    from ebfed.formula.fit import FormulaFit

__all__ = ["confint_of_formula", "formula_tests", "with_tests"]


def with_tests(fit: FormulaFit) -> FormulaFit:
    """Return the fit; a formula's means of groups as the same model by `LinearEB`, which has tests.

    The two have the same likelihood. Populations that are not normal, and an estimator that was
    given, stay as they are.

    Raises
    ------
    ValueError
        If this is a copy of the fit without its rows.
    """
    own = fit.estimator_
    if fit._given["estimator"] is not None or not isinstance(own, LocationEstimator):
        return fit
    if own.protocol().family.name != "gaussian":
        return fit
    if own.method == "moments" or fit.design_.names:
        return fit
    if own.get_params() != GaussianEB(method=own.method).get_params():
        return fit
    if np.size(own.prior_.mean_) > 1:
        return fit
    fit._frame(None)  # a copy without rows says so
    settings = {"weights": fit._rows.weighed, "context": fit._given["context"]}
    twin = type(fit)(fit.formula, LinearEB(method=own.method), **settings)
    return twin.fit(fit._rows.data)


def confint_of_formula(self: FormulaFit, *args: Any, **options: Any) -> Any:
    """Return intervals for the parameters: see `confint` of the estimator.

    Profiles of the likelihood, the bootstrap, and intervals by t of means of groups, ``y ~ 1 + (1 |
    g)``, are those of the same model by `LinearEB`.

    Parameters
    ----------
    *args, **options
        As of the estimator.
    """
    wald = options.get("method", "wald") == "wald"
    plain = wald and options.get("ddf") in (None, "asymptotic")
    return (self if plain else with_tests(self)).estimator_.confint(*args, **options)


def formula_tests(self: FormulaFit, *, ddf: Any = None, type: Tested | None = None) -> Any:
    """Test the coefficients of the population's mean, or the terms of the formula.

    Parameters
    ----------
    ddf : {"satterthwaite", "kenward-roger", "residual", "asymptotic"}, optional
        Degrees of freedom; see `LinearEB.tests`.
    type : {"III", "wald"}, optional
        None: each coefficient, by t. ``"III"``: each term by F, as `anova` of lmerTest does: other
        factors are averaged over with equal weights, however they are coded. ``"wald"``: the
        coefficients of each term's own columns are zero, which depends on the coding of factors
        that are in several terms.

    Returns
    -------
    DataFrame
        ``term``, ``estimate``, ``std.error``, ``df``, ``statistic``, ``p.value``; of terms,
        ``term``, ``num.df``, ``den.df``, ``statistic``, ``p.value``.

    Raises
    ------
    TypeError
        If the estimator has no tests.

    Examples
    --------
    >>> import ebfed as eb
    >>> import statsmodels.api as sm
    >>> grunfeld = sm.datasets.grunfeld.load_pandas().data
    >>> fit = eb.from_formula("invest ~ value + capital + (1 | firm)", grunfeld)
    >>> fit.tests(ddf="kenward-roger")[["term", "df", "statistic"]].round(1)
            term     df  statistic
    0  intercept   11.7       -2.0
    1      value  127.6       10.6
    2    capital  213.1       18.8
    """
    estimator = with_tests(self).estimator_
    if not hasattr(estimator, "inference"):
        raise TypeError(f"{estimator.__class__.__name__} has no tests of coefficients.")
    if type is None:
        return estimator.tests(ddf=ddf)
    check_type(type)
    found = estimator.inference() if ddf is None else estimator.inference(ddf)
    terms = contrasts_of_terms(self.design_, self._frame(None), type)
    return frame(term_tests(found, terms), self.view().style)
