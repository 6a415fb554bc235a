"""A model written as a formula, fitted to a frame, and its predictions for other frames."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from ebfed.engines import portable
from ebfed.engines.publishing import deep_copied, shallow_copied
from ebfed.formula.choice import (
    FAMILIES,
    check_location,
    check_settings,
    choose,
    following,
    other_population,
    terms_of_factors,
)
from ebfed.formula.design import (
    SHARED,
    Context,
    Design,
    required,
    response_of,
)
from ebfed.formula.diagnosis import (
    diagnostics_of_formula,
    influence_of_formula,
    more_columns,
    residuals_of_formula,
)
from ebfed.formula.grammar import FormulaTerms, parse
from ebfed.formula.inferring import formula_tests
from ebfed.formula.margins import margins
from ebfed.formula.rows import (
    WEIGHTS,
    CompleteRows,
    column_of_dispersion,
    labels_of,
    labels_of_factors,
    number_groups,
    responses,
    style_of,
    with_weights,
)
from ebfed.formula.subset import chosen_rows
from ebfed.location.base import LocationEstimator
from ebfed.priors import Posterior, Prior
from ebfed.privacy.promises import is_private
from ebfed.regression import CrossedEB, GeneralizedEB, LinearEB, LogisticEB
from ebfed.report.view import FitView, GroupView
from ebfed.tables.clients import Summary
from ebfed.tables.columns import column_of, levels_of, take
from ebfed.tables.covariates import read_covariates
from ebfed.tables.frames import Style, beside, drop_columns, frame, read_labels
from ebfed.tables.lazy import Summarised, column_names
from ebfed.tables.levels import split_levels
from ebfed.tables.of_rows import check_whole
from ebfed.tables.unseen import UnseenGroupWarning, warn_of_mistyped

__all__ = ["FormulaFit", "from_formula"]


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
    ``np.log(x)``, ``poly(x, 2)``, ``I(x + 1)``. If `estimator` is a `GaussianEB`, `BernoulliEB` or
    `PoissonEB`, u in ``y ~ u + (1 | county)`` is a covariate of the groups: it must be constant
    within counties.

    Expressions may have arithmetic, comparisons and calls of formulaic's transformations, of
    NumPy's functions of single numbers, and of functions in `context`. Everything else is an error,
    before any code runs. So a formula of an untrusted user is safe if the functions in `context`
    are.

    Parameters
    ----------
    formula : str
    data : data frame
        Frame of pandas, polars or Arrow.
    estimator : Estimator, optional
        Chosen by formula and family if None. It is copied; `varying` and `covariance` follow the
        formula where that has an ``( … | … )``.
    family : str, optional
        Family of the rows, ``"gaussian"``, ``"binomial"``, ``"categorical"``, ``"poisson"``,
        ``"negative_binomial"``, ``"gamma"``, ``"variance"`` or ``"ordinal"`` (classes 1, 2, …, or
        the categories of an ordered column); Gaussian if None, unless the response is
        ``cbind(…)``. For counts of events, ``offset(log(e))`` gives the exposure e; a model of
        binomial rows with an offset is `GeneralizedEB`.
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
        number, of the rows that a row stands for.
    dispersion : str, optional
        Column whose levels have a noise each, as ``"~ sex"``: `dispformula` of glmmTMB. It is
        ``dispersion=`` of `LinearEB`, and may be in the formula too.
    consent : str, optional
        Column that says what each group agreed to send, such as ``"private"`` or ``"open"``: a key
        of the estimator's `channel`.
    subset : str or array-like of bool of shape (n_rows,), optional
        Rows to fit: an expression of the columns, such as ``"year > 1990 & kind in ['a', 'b']"``,
        or whether each row is one. A row for which a comparison lacks a value is none.
    na_action : {"raise", "drop", "exclude"}
        Treatment of rows that lack a value: R's ``na.fail``, ``na.omit`` and ``na.exclude``. Those
        left out are counted in the summary; of ``"exclude"``, `predict` and `augment` of the rows
        of the fit have these too, with missing predictions.
    context : mapping, optional
        Names of functions and variables that are not columns; those of the caller if None.
    **settings
        Arguments of the estimator: ``method="ml"``, ``channel=…``

    Returns
    -------
    FormulaFit

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
    model = parse(formula)
    if context is None:
        context = _surroundings()
    if weights is not None and not isinstance(weights, str):
        data, weights = with_weights(data, weights), WEIGHTS
    if subset is not None:
        data = take(data, chosen_rows(data, subset, context), column_names(data))
    by = column_of_dispersion(dispersion)
    rows = CompleteRows.of(model, data, consent, na_action, weights, by)
    design, columns = Design.learn(model.fixed, rows.data, context, column_names(data))
    if family is not None and family not in FAMILIES:
        raise ValueError(f"family must be {', '.join(map(repr, FAMILIES))}; got {family!r}.")
    if estimator is None:
        estimator = choose(model, design, family, prior)
        if isinstance(estimator, LogisticEB | GeneralizedEB):
            prior = None
    elif family is not None:
        raise ValueError("family chooses an estimator; give one of the two.")
    estimator = clone(estimator)
    settings |= {} if prior is None else {"prior": prior}
    check_settings(estimator, settings)
    estimator.set_params(**settings)
    kept = Context.of(responses(model, column_names(rows.data)), rows.data, context)
    varying = None
    if model.varying is not None:
        bars = zip(model.terms_of_levels, model.levels, strict=True)
        varying = [design.names_in(text, rows.data, f"({text} | {name})") for text, name in bars]
    if model.slopes:
        varying = terms_of_factors(model, design, rows.data)
    of_rows = isinstance(estimator, LinearEB | LogisticEB | GeneralizedEB)
    if of_rows and not design.names and design.constant:
        design, columns = design.of_constant(), np.ones((len(columns), 1))
    fit = FormulaFit(model, design, kept, rows)
    if isinstance(estimator, LocationEstimator):
        check_location(estimator, model, design, varying)
    else:
        estimator = following(estimator, model, design, varying)
    return fit._fit(estimator, columns)


def _surroundings() -> dict[str, Any]:
    """Return what the caller of `from_formula` can see; nothing, if that is not Python."""
    try:
        caller = sys._getframe(2)
    except ValueError:
        return {}
    return {**caller.f_globals, **caller.f_locals}


# Notes on the populations of rates.
RATES = {
    "Beta": "The population of rates is beta. prior='logit-normal' makes their logits normal "
    "instead, as in formulas with covariates of rows.",
    "logit-normal": "The population is logit-normal: the coefficients of groups are normal. "
    "prior='beta' makes rates beta instead, and takes covariates of groups alone.",
    "log-normal": "The population is log-normal: the coefficients of groups are normal, on the "
    "scale of log rates. prior='gamma' makes rates gamma instead, and takes covariates of groups "
    "alone.",
}


class FormulaFit:
    """A fitted model, and its formula.

    Frames need the columns that the formula uses. They are read with the categories, contrasts and
    means of the rows of the fit. All other methods are those of the estimator: `summary`, `tidy`,
    `glance`, `fixef`, `ranef`, `coef`, `confint`, `ranks`, `privacy_` …

    Attributes
    ----------
    formula : str
    estimator_ : Estimator
        The fitted estimator.
    design_ : Design
        The columns of the terms.
    """

    estimator_: Any

    def __init__(self, model: FormulaTerms, design: Design, context: Context, rows: CompleteRows):
        self.formula, self._model, self.design_ = model.text, model, design
        self._context, self._rows = context, rows

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "estimator_" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.estimator_, name)

    def __dir__(self) -> list[str]:
        """List the names of the estimator too, which tab completion shows."""
        of_estimator = dir(self.__dict__.get("estimator_"))
        return sorted({*super().__dir__(), *(n for n in of_estimator if not n.startswith("_"))})

    def __repr__(self) -> str:
        return f"<{type(self.estimator_).__name__} of {self.formula!r}>"

    # Copies -----------------------------------------------------------------------------------

    @property
    def keep_rows(self) -> bool:
        """Whether the pickle of a private fit has the rows."""
        return self.estimator_.keep_rows

    @keep_rows.setter
    def keep_rows(self, keep: bool) -> None:
        self.estimator_.keep_rows = keep

    def published(self) -> Self:
        """Return a copy with nothing in it that did not leave the clients: that of a server.

        A private fit is pickled like this, unless ``fit.keep_rows = True`` was set before.

        Raises
        ------
        ValueError
            If terms of private columns, such as ``poly(x, 2)``, keep figures of the rows.
        """
        self._check_figures()
        twin = shallow_copied(self)
        twin.estimator_ = self.estimator_.published()
        twin._rows = CompleteRows.none(self._model, **self._rows.as_data())
        return twin

    def _check_figures(self) -> None:
        """Refuse terms whose figures did not leave the clients."""
        if self.design_.figures and not isinstance(self.estimator_, LocationEstimator):
            raise ValueError(
                f"{self.design_.figures[0]!r} keeps figures of the rows, which did not leave the "
                "clients: set keep_rows = True to pickle it with the rows, or pickle "
                "estimator_.published()."
            )

    def save(self, path: Any, *, groups: bool = True) -> None:
        """Write the fit to a file, which `ebfed.load_fit` reads; see the estimator's `save`.

        The rows themselves are not in the file: a fit from a file predicts frames that are given.

        Parameters
        ----------
        path : str or Path
        groups : bool, default True
            Whether to write the figures of groups.

        Raises
        ------
        TypeError
            If the formula uses functions of the caller, or `context`.
        ValueError
            As the estimator's `save`; and if terms of private columns keep figures of the rows.
        """
        if not self.keep_rows and is_private(self.estimator_.view().ledger):
            self._check_figures()
        formula = {
            "text": self.formula,
            "rows": self._rows.as_data(),
            "values": self._context.as_data() | self.design_.context.as_data(),
            "design": self.design_.as_data(),
        }
        portable.save(self.estimator_, path, groups, formula)

    @classmethod
    def of_data(cls, estimator: Any, data: Mapping[str, Any]) -> Self:
        """Make a fit of a fitted estimator, and of what a file says of its formula."""
        model = parse(data["text"])
        rows = CompleteRows.none(model, **data["rows"])
        texts = [model.fixed], responses(model, column_names(rows.data))
        both = [Context.of(each, rows.data, SHARED | data["values"]) for each in texts]
        fit = cls(model, Design.of_data(model.fixed, both[0], data["design"]), both[1], rows)
        fit.estimator_ = estimator
        return fit

    def __getstate__(self) -> dict[str, Any]:
        fitted = self.__dict__.get("estimator_")
        if fitted is None or fitted.keep_rows or fitted.view().is_server:
            return self.__dict__
        return vars(self.published()) if is_private(fitted.view().ledger) else self.__dict__

    __deepcopy__ = deep_copied

    # Rows -------------------------------------------------------------------------------------

    def _fit(self, estimator: Any, columns: NDArray) -> Self:
        self.estimator_ = estimator
        if self._rows.by is not None and not has_fit_parameter(estimator, "dispersion"):
            raise ValueError(
                f"{type(estimator).__name__} takes no dispersion; LinearEB does, for numbers."
            )
        arguments, options = self._arguments(self._rows, columns)
        if self._rows.consent is not None:
            options["consent"] = self._consent(estimator)
        estimator.fit(*arguments, **options)
        return self

    def _consent(self, estimator: Any) -> dict[Any, Any]:
        """Each group's class of consent."""
        if not has_fit_parameter(estimator, "consent"):
            raise ValueError(f"{type(estimator).__name__} has no classes of consent.")
        ids, codes = number_groups(self._rows.labels)
        labels = ids[codes].tolist()
        chosen = read_labels(self._rows.consent, "consent").tolist()
        classes = dict(zip(labels, chosen, strict=True))
        for label, one in zip(labels, chosen, strict=True):
            if classes[label] != one:
                raise ValueError(
                    f"consent must be one class for each group; {label!r} has {one!r} and "
                    f"{classes[label]!r}."
                )
        return classes

    def _arguments(self, rows: CompleteRows, columns: NDArray) -> tuple[tuple, dict[str, Any]]:
        """Rows with their response, as the estimator takes them."""
        if isinstance(self.estimator_, LocationEstimator):
            return self._of_location(rows, columns)
        labels, style = rows.labels, style_of(rows.labels)
        if self._model.factors:
            labels = labels_of_factors(self._model, labels)
        if rows.weights is not None and not has_fit_parameter(self.estimator_, "sample_weight"):
            raise ValueError(f"{type(self.estimator_).__name__} takes no weights of rows.")
        generalized = isinstance(self.estimator_, GeneralizedEB | CrossedEB)
        if generalized or not self._model.counts:
            options = {"groups": labels, "sample_weight": rows.weights}
            if self._model.counts:
                response, options["trials"] = self._counts(rows.data)
            else:
                response = self._response(rows.data)
            options |= self._offset(rows.data) | {"dispersion": rows.dispersion}
            given = {name: value for name, value in options.items() if value is not None}
            return (self._table(columns, style), response), given
        won, trials = self._counts(rows.data)
        times = np.column_stack([won, trials - won]).ravel()
        row = np.repeat(np.repeat(np.arange(len(won)), 2), times)
        response = np.repeat(np.tile([1.0, 0.0], len(won)), times)
        each = frame({style.group: read_labels(labels)[row]}, style)
        options = {"groups": column_of(each, style.group)}
        if rows.weights is not None:
            options["sample_weight"] = rows.weights[row]
        return (self._table(columns[row], style), response), options

    def _offset(self, data: Any) -> dict[str, NDArray]:
        """Offset of rows, as the estimator takes it."""
        offset = self._model.offset
        return {"offset": response_of(offset, data, self._context)} if offset else {}

    def _of_location(self, rows: CompleteRows, columns: NDArray) -> tuple[tuple, dict[str, Any]]:
        model, style = self._model, style_of(rows.labels)
        ids, codes = number_groups(rows.labels)
        options: dict[str, Any] = {}
        if self.design_.names:
            options["covariates"] = self._covariates(columns, ids[codes], ids)
        if model.counts:
            times = np.ones(len(codes)) if rows.weights is None else rows.weights
            check_whole(times, "binomial")
            won, trials = (np.bincount(codes, times * each) for each in self._counts(rows.data))
            counted = Summary.from_counts(won, trials, ids)
            return (Summarised(counted, style, [model.response]),), options
        values = self._response(rows.data)
        options["groups"] = rows.labels
        if rows.weights is not None:
            options["sample_weight"] = rows.weights
        if model.offset:
            options["exposure"] = np.exp(response_of(model.offset, rows.data, self._context))
        return (frame({model.response: values}, Style(style.backend)),), options

    def _response(self, data: Any) -> NDArray:
        """Values of the response, numbers where these are needed."""
        response = response_of(self._model.response, data, self._context)
        name = self._model.response.strip("`")
        ordered = levels_of(data, name) if name in column_names(data) else None
        if ordered is not None and getattr(self.estimator_, "family", None) == "ordinal":
            values, place = np.unique(response, return_inverse=True)
            return np.array([1.0 + ordered.index(value) for value in values])[place]
        labels = not getattr(self.estimator_, "_numeric", True)
        if response.dtype.kind in "OUSmM" and not labels:
            raise ValueError(
                f"response {self._model.response!r} must be numbers for "
                f"{type(self.estimator_).__name__}; got {str(response[0])!r}. A label of two is "
                "modelled by family='binomial', or made 0 and 1."
            )
        return response

    def _labels(self, data: Any) -> Any:
        """Labels of the rows of another frame, of the kind that the fit had."""
        series = labels_of(self._model, data)
        if self._model.above:
            return series
        known = self.estimator_.groups_
        text = [labels.dtype.kind in "OUS" for labels in (read_labels(series), known)]
        if text[0] != text[1] and not self.estimator_.view().is_server:
            raise ValueError(
                f"labels in {self._model.group!r} are {'text' if text[0] else 'numbers'}, and were "
                f"{'text' if text[1] else 'numbers'} in the fit; convert them."
            )
        return series

    def _covariates(self, columns: NDArray, labels: NDArray, ids: NDArray) -> Any:
        """Covariates of groups, from those of their rows."""
        names = self.design_.names
        try:
            found, _ = read_covariates(names, self._table(columns, Style()), labels, ids)
        except ValueError as error:
            other = other_population(self.estimator_)
            raise ValueError(f"in {self.formula!r}: {error}{other}") from None
        group = self._model.group
        return frame({group: ids} | dict(zip(names, found.T, strict=True)), Style(group=group))

    def _table(self, columns: NDArray, style: Style) -> Any:
        if not self.design_.names:
            return np.empty((len(columns), 0))
        return frame(dict(zip(self.design_.names, columns.T, strict=True)), Style(style.backend))

    def _counts(self, data: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Successes and trials of each row."""
        model = self._model
        second = model.failures or model.trials
        won, total = (response_of(text, data, self._context) for text in (model.response, second))
        for name, counts in ((model.response, won), (second, total)):
            if counts.dtype.kind not in "iuf" or np.any((counts < 0) | (counts % 1 != 0)):
                raise ValueError(f"{name!r} must be counts: whole numbers, not negative.")
        won, total = won.astype(np.int64), total.astype(np.int64)
        trials = total if model.trials else won + total
        if np.any(won > trials):
            row = int(np.argmax(won > trials))
            raise ValueError(
                f"{model.response!r} exceeds its trials {second!r}, first in row {row}. If "
                f"{second!r} counts failures, write cbind({model.response}, {second})."
            )
        return won, trials

    # Reports ----------------------------------------------------------------------------------

    def view(self) -> FitView:
        """Return what reports and plots read of the fit."""
        left = self._rows.dropped
        also = f" ({left:,} rows with missing values left out)" if left else ""
        view = self.estimator_.view()
        if self._model.counts:
            view = replace(view, notes=[*view.notes, self._model.counted])
        if isinstance(view, GroupView) and not view.has_density and view.population in RATES:
            view = replace(view, notes=[*view.notes, RATES[view.population]])
        return replace(view, formula=self.formula + also, response=self._model.response)

    def summary(self) -> Any:
        """Return the fit as a printed table."""
        from ebfed.report import summary_table

        return summary_table(self.view())

    diagnostics = diagnostics_of_formula
    residuals = residuals_of_formula
    influence = influence_of_formula
    tests = formula_tests
    margins = margins

    # Other frames -----------------------------------------------------------------------------

    def _frame(self, data: Any) -> Any:
        """Return a frame that was given, or else the rows of the fit."""
        if data is not None:
            return data
        if not len(split_levels(self._rows.labels)[-1]):
            raise ValueError("this copy of the fit has no rows; give a frame.")
        return self._rows.data

    def _read(self, data: Any) -> tuple[Any, Any]:
        """Return the columns of the design as the estimator takes them, and labels if there are."""
        data = self._frame(data)
        has_labels = set(self._model.levels) <= set(column_names(data))
        labels = self._labels(data) if has_labels else None
        style = Style() if labels is None else style_of(labels)
        if labels is not None and self._model.factors:
            labels = labels_of_factors(self._model, labels)
        return self._table(self.design_.of(data), style), labels

    def predict(self, data: Any = None) -> NDArray:
        """Predict the response of rows with what is known of their groups; of counts, the rate.

        Parameters
        ----------
        data : data frame, optional
            The rows of the fit if None. Groups that were not in the fit are predicted by the
            population; so is everything if the column of groups is missing.

        Returns
        -------
        ndarray of shape (n_rows,)
        """
        if isinstance(self.estimator_, LocationEstimator):
            mean, codes = self._locate(data)
            return self._rows.padded(mean[codes, 0], data)
        if self._model.counts and not isinstance(self.estimator_, GeneralizedEB):
            return self.predict_proba(data)[:, 1]
        table, labels = self._read(data)
        offset = self._offset(self._frame(data))
        return self._rows.padded(self.estimator_.predict(table, groups=labels, **offset), data)

    def _locate(self, data: Any) -> tuple[NDArray, NDArray]:
        """Means of the groups of rows, and which each row's is."""
        data = self._frame(data)
        columns = self.design_.of(data)
        n = len(columns)
        if not set(self._model.levels) <= set(column_names(data)):
            prior = self.estimator_.prior_
            mean = prior.at(columns).mean_ if columns.shape[1] else prior.mean_
            return np.broadcast_to(mean, (n, 1)), np.arange(n)
        ids, codes = number_groups(self._labels(data))
        covariates = self._covariates(columns, ids[codes], ids) if self.design_.names else None
        warn_of_mistyped(ids, self.estimator_.groups_)
        with warnings.catch_warnings():  # of labels that were asked for by name
            warnings.simplefilter("ignore", UnseenGroupWarning)
            return self.estimator_.posterior(groups=ids, covariates=covariates).mean, codes

    def predict_proba(self, data: Any = None) -> NDArray:
        """Probabilities of the classes for rows, as `predict`; shape (n_rows, n_classes)."""
        table, labels = self._read(data)
        return self._rows.padded(self.estimator_.predict_proba(table, groups=labels), data)

    def predict_interval(self, data: Any = None, **options: Any) -> tuple[NDArray, NDArray]:
        """Intervals for the responses of rows: see `LinearEB.predict_interval`."""
        if not hasattr(self.estimator_, "predict_interval"):
            raise TypeError(f"{type(self.estimator_).__name__} has no intervals for rows.")
        table, labels = self._read(data)
        options |= self._offset(self._frame(data))
        by = self._rows.by
        if by is not None and by in column_names(self._frame(data)):
            options.setdefault("dispersion", column_of(self._frame(data), by))
        low, high = self.estimator_.predict_interval(table, groups=labels, **options)
        return self._rows.padded(low, data), self._rows.padded(high, data)

    def posterior(self, data: Any = None, *, groups: Any = None, **options: Any) -> Posterior:
        """Posterior of groups: of the fit, or of a frame with rows of their own.

        Parameters
        ----------
        data : data frame, optional
            Rows with the response.
        groups : array-like, optional
            Groups of the fit, if there is no `data`. Others get the population, with an
            `UnseenGroupWarning`.
        **options
            Arguments of the estimator's method, such as ``level="state"`` of `LinearEB`; of
            `CrossedEB` it has ``level=`` alone.
        """
        if isinstance(self.estimator_, CrossedEB) and (data is not None or groups is not None):
            raise ValueError(
                "a posterior of crossed factors is of all levels of one of them: give level= alone."
            )
        if data is None:
            given = {} if groups is None else {"groups": groups}
            return self.estimator_.posterior(**given, **options)
        rows = self._rows.of_others(self._model, data)
        arguments, given = self._arguments(rows, self.design_.of(rows.data))
        return self.estimator_.posterior(*arguments, **given, **options)

    def score(self, data: Any) -> float:
        """Score the estimator on rows of a frame, held out or not."""
        rows = self._rows.of_others(self._model, data, scored=True)
        arguments, options = self._arguments(rows, self.design_.of(rows.data))
        return self.estimator_.score(*arguments, **options)

    def augment(self, data: Any = None) -> Any:
        """Return a frame with its columns and ``.fitted``, ``.resid``, ``.fixed``.

        Parameters
        ----------
        data : data frame, optional
            The rows of the fit if None, with the columns that were used. Without the response it
            gets no ``.resid``. Of more than two classes the likeliest is ``.fitted``. The rows of
            the fit of a linear model have leverages ``.hat`` and Cook's distances ``.cooksd`` too.
        """
        given, data = data, self._frame(data)
        labels = [name for name in self._model.levels if name in column_names(data)]
        alone = drop_columns(data, labels) if labels else data
        new = {".fitted": self._expect(data), ".fixed": self._expect(alone)}
        response = self._observed(data)
        if response is not None and new[".fitted"].dtype.kind == "f":
            new[".resid"] = response - new[".fitted"]
        if given is None:
            new |= more_columns(self)
        if given is None and self._rows.whole is not None:
            data, new = self._rows.whole[0], {k: self._rows.padded(x) for k, x in new.items()}
        return beside(data, new)

    def _expect(self, data: Any) -> NDArray:
        return self.predict_proba(data)[:, 1] if self._rates() else self.predict(data)

    def _rates(self) -> bool:
        return len(getattr(self.estimator_, "classes_", ())) == 2

    def _observed(self, data: Any) -> NDArray | None:
        """Numbers that predictions are to be compared with, if the frame has them."""
        model = self._model
        there = column_names(self._rows.data)
        needed = required(responses(model, there), there)
        if not set(needed) <= set(column_names(data)):
            return None
        if model.counts:
            won, trials = self._counts(data)
            return won / np.maximum(trials, 1)
        observed = response_of(model.response, data, self._context)
        if self._rates():
            return (observed == self.estimator_.classes_[1]).astype(float)
        return observed.astype(float) if observed.dtype.kind in "iufb" else None
