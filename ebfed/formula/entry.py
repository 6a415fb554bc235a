"""The door of formulas: `from_formula`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from numpy.typing import ArrayLike

from ebfed.formula.fit import FormulaFit, surroundings
from ebfed.priors import Prior

__all__ = ["from_formula"]


def from_formula(
    formula: str,
    data: Any,
    estimator: Any = None,
    *,
    family: Literal[
        "gaussian",
        "binomial",
        "categorical",
        "poisson",
        "negative_binomial",
        "variance",
        "gamma",
        "ordinal",
    ]
    | None = None,
    prior: str | Prior | None = None,
    weights: str | ArrayLike | None = None,
    dispersion: str | None = None,
    consent: str | None = None,
    subset: str | ArrayLike | None = None,
    na_action: Literal["raise", "drop", "exclude"] = "raise",
    context: Mapping[str, Any] | None = None,
    max_memory: float | None = None,
    **settings: Any,
) -> FormulaFit:
    """Fit a model written as a formula.

    - ``y ~ x + (1 + x | county)``: `LinearEB`, `LogisticEB` or `GeneralizedEB`; intercept and x
      differ between counties, and may be correlated.
    - ``y ~ x + z + (1 + x || county)``: not correlated; z is alike in all counties.
    - ``y ~ x + z | county``: the intercept and all slopes differ between counties; the argument
      `covariance` of the estimator says whether they are correlated (not, by default).
    - ``y ~ 1 + (1 | state/county)``: means of counties of states, see `GaussianEB`.
    - ``y ~ x + (1 + x | state/county)`` or ``y ~ x + (1 + x | state) + (1 | state:county)``: the
      same with coefficients, see `LinearEB`.
    - ``y ~ x + (1 | student) + (1 | lecturer)``: `CrossedEB`, an effect of every level of crossed
      factors; ``(1 | dept:service)`` is of pairs, and ``(1 + x | student)`` has
      slopes, of Gaussian rows.
    - ``y ~ 1 + (1 | county)`` or ``rate | county``: `GaussianEB` or `BernoulliEB`.
    - ``cbind(won, lost) | county``: `BernoulliEB` of successes and failures, as in R;
      ``cbind(won, trials=games)`` of successes and trials. The summary says which.

    Terms are formulaic's, which follow R: ``C(kind)``, ``C(kind, contr.sum)``, ``a:b``, ``a * b``,
    ``np.log(x)``, ``poly(x, 2)``, ``I(x + 1)``. A name that is no word is quoted: `` `a name` `` or
    ``Q('a name')``. Dates are days since 1970-01-01, and time spans are days; they keep their type
    in ``C(…)``, and where they are only compared. If `estimator` is a `GaussianEB`, `BernoulliEB`
    or `PoissonEB`, u in ``y ~ u + (1 | county)`` is a covariate of the groups: it must be constant
    within counties.

    Expressions may have arithmetic, comparisons and calls of formulaic's transformations, of
    NumPy's functions of single numbers, and of functions in `context`. Everything else is an error,
    before any code runs. So a formula of an untrusted user is safe if the functions in `context`
    are.

    Parameters
    ----------
    formula : str
    data : data frame
        Frame of pandas, polars or Arrow. Of a table of DuckDB, polars, Dask or Spark, the columns
        that the formula uses are read into memory.
    estimator : Estimator, optional
        Chosen by formula and family if None. It is copied; `varying` and `covariance` follow the
        formula where that has an ``( … | … )``.
    family : str, optional
        Family of the rows, ``"gaussian"``, ``"binomial"``, ``"categorical"``, ``"poisson"``,
        ``"negative_binomial"``, ``"gamma"``, ``"variance"`` or ``"ordinal"`` (classes 1, 2, …, or
        the categories of an ordered column); Gaussian if None, unless the response is
        ``cbind(…)``. For counts of events, ``offset(log(e))`` gives the exposure e; a model of
        binomial rows with an offset is `GeneralizedEB`. Of two labels, such as "no" and "yes", the
        second is the event: the second in sorted order, or the second level of a category.
    prior : str or Prior, optional
        The population: a value of the argument `prior` of the estimator, such as ``"npmle"`` or a
        `priors.Discrete`. If `estimator` is None and the rows are binomial or counts, `prior` also
        chooses the estimator. ``"beta"`` is `BernoulliEB` and ``"gamma"`` is `PoissonEB` or
        `NegativeBinomialEB`: rates of groups are beta or gamma, and covariates must be constant
        within groups.
        ``"logit-normal"`` is `LogisticEB` and ``"log-normal"`` is `GeneralizedEB`: coefficients of
        groups are normal on the scale of logits or of log rates, and covariates are of rows;
        ``y ~ 1 + (1 | county)`` has an intercept alone. If None it is beta or gamma for
        ``y ~ 1 + (1 | county)``, and logit-normal or log-normal where there are covariates; the
        summary says which.
    weights : str or array-like of shape (n_rows,), optional
        Weight of each row, or the column that has it: ``sample_weight=`` of the estimator. For
        means and variances it is a precision, as in lme4; for rates, counts and categories a whole
        number, of the rows that a row stands for. Where the response of binomial rows is a share,
        it is the number of trials, as in `glm` of R.
    dispersion : str, optional
        Column whose levels have a noise each, as ``"~ sex"``: `dispformula` of glmmTMB. It is
        ``dispersion=`` of `LinearEB`, and may be in the formula too.
    consent : str, optional
        Column that says what each group agreed to send, such as ``"private"`` or ``"open"``: a key
        of the estimator's `channel`.
    subset : str or array-like of bool of shape (n_rows,), optional
        Rows to fit: an expression of the columns, such as ``"year > 1990 & kind in ['a', 'b']"``,
        or a boolean for each row. A row where a comparison lacks a value is left out.
    na_action : {"raise", "drop", "exclude"}
        Treatment of rows that lack a value: R's ``na.fail``, ``na.omit`` and ``na.exclude``. Those
        left out are counted in the summary; of ``"exclude"``, `predict` and `augment` of the rows
        of the fit have these too, with missing predictions.
    context : mapping, optional
        Names of functions and variables that are not columns; those of the caller if None.
    max_memory : float, optional
        Most gibibytes that a fit of such a table may need; half the memory of the machine if None.
    **settings
        Arguments of the estimator: ``method="ml"``, ``channel=…``

    Returns
    -------
    FormulaFit
        An estimator of scikit-learn, with these arguments but `data`; clones have `fit(data)`.

    Raises
    ------
    TypeError, ValueError
        With the part of the formula, or the column, that is wrong.

    Examples
    --------
    >>> import statsmodels.api as sm
    >>> grunfeld = sm.datasets.grunfeld.load_pandas().data
    >>> fit = from_formula("invest ~ value + capital + (1 + value || firm)", grunfeld)
    >>> fit.fixef().round(3)
            term  estimate
    0  intercept   -21.598
    1      value     0.013
    2    capital     0.317
    >>> fit.predict(grunfeld.tail(2)).round(1)
    array([9.1, 9.9])
    """
    if context is None:
        context = surroundings()
    given: dict[str, Any] = {"family": family, "prior": prior, "weights": weights}
    given |= {"dispersion": dispersion, "consent": consent, "subset": subset}
    given |= {"na_action": na_action, "context": context, "max_memory": max_memory}
    return FormulaFit(formula, estimator, **given, **settings).fit(data)
