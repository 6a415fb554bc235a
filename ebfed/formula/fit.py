"""A model written as a formula, fitted to a frame, and its predictions for other frames."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import has_fit_parameter

from ebfed.arguments import check_choice
from ebfed.designs.design import SHARED, Context, Design, contrasts_of_terms
from ebfed.designs.grammar import FormulaTerms, column_name, parse, spelled_out
from ebfed.designs.terms import required
from ebfed.engines import portable
from ebfed.engines.publishing import deep_copied, shallow_copied
from ebfed.formula.choice import (
    RATES,
    REGRESSION,
    check_location,
    chosen,
    family_of,
    following,
    is_a,
    other_population,
)
from ebfed.formula.in_place import (
    CountedRows,
    LazyRows,
    chosen_in_place,
    predicted_in_place,
    sums_of,
)
from ebfed.formula.response import Response
from ebfed.formula.rows import CompleteRows, labelled, responses
from ebfed.privacy.calibration import check_count
from ebfed.privacy.ledger import is_private
from ebfed.report.view import FitView, GroupView, view_of
from ebfed.tables.clients import Summary
from ebfed.tables.columns import Columns
from ebfed.tables.covariates import read_covariates
from ebfed.tables.frames import Style, beside, frame, indexed_like
from ebfed.tables.lazy import Summarised, column_names, is_lazy
from ebfed.tables.of_rows import Predicted, check_whole, wants_rate
from ebfed.tables.rows import Rows
from ebfed.tables.scans import NotPushedError, blanked, collected, has_rows, named_in
from ebfed.tables.unseen import UnseenGroupWarning, warn_of_mistyped
from ebfed.tables.values import numbers

if TYPE_CHECKING:
    from ebfed.formula.margins import Margins
    from ebfed.priors import Posterior, Prior
    from ebfed.regression.inferring import Tested
    from ebfed.report.diagnostics import Diagnostics, ResidualKind

__all__ = ["FormulaFit", "from_formula"]

# Arguments of `from_formula` that say which rows there are, and what goes with them.
OF_ROWS = ("na_values", "weights", "subset", "dispersion", "consent", "na_action")
LACKING = {
    "consent": "has no classes of consent",
    "dispersion": "takes no dispersion; LinearEB does, for numbers",
}


def _are_text(labels: NDArray) -> bool:
    """Tell whether labels are text: objects may be others, such as ``Decimal``."""
    return labels.dtype.kind in "US" or (
        labels.dtype.kind == "O" and any(isinstance(each, str) for each in labels[:1].tolist())
    )


def surroundings() -> dict[str, Any]:
    """Return what the caller of the caller can see; nothing, if that is not Python."""
    try:
        caller = sys._getframe(2)
    except ValueError:
        return {}
    return {**caller.f_globals, **caller.f_locals}


class FormulaFit:
    """A model written as a formula: an estimator with the arguments of `from_formula` but `data`.

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
    design_: Design
    response: Response
    _model: FormulaTerms
    _rows: CompleteRows

    def __init__(self, formula: str, estimator: Any = None, **given: Any):
        self.formula = formula
        self._given: dict[str, Any] = {"estimator": estimator} | DEFAULTS | given

    def fit(self, data: Any, y: Any = None) -> Self:
        """Fit the formula to the rows of a frame.

        Parameters
        ----------
        data : data frame
            Frame of pandas, polars or Arrow, or a table of DuckDB, polars, Dask or Spark, which
            adds up what a linear model and one of a number for each group need; of others, the
            columns in use are read.
        y : ignored

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            As `from_formula`.
        """
        given = dict(self._given)
        max_memory = given.pop("max_memory")
        if given["context"] is None:
            given["context"] = surroundings()
        beside = [given[name] for name in ("weights", "dispersion", "consent", "subset")]
        beside = [each for each in beside if isinstance(each, str)]
        self.formula = spelled_out(self.formula, lambda: column_names(data), beside)
        if is_lazy(data):
            return self._fit_lazily(data, given, beside, max_memory)
        return self._fit(CompleteRows, data, given)

    def _fit_lazily(
        self, data: Any, given: dict[str, Any], beside: Sequence[str], max_memory: float | None
    ) -> Self:
        """Fit to sums of the rows of a lazy table, to numbers of equal ones, or to all of them."""
        if given["na_values"] is not None:
            data, given["na_values"] = blanked(data, given["na_values"]), None
        subset, every = given["subset"], data
        if isinstance(subset, str):
            with suppress(NotPushedError):
                data = chosen_in_place(data, subset, given["context"])
                given["subset"] = None
        try:
            for kind in (LazyRows, CountedRows):
                with suppress(NotPushedError):
                    return self._fit(kind, data, given)
            data = collected(data, named_in(data, [self.formula, *beside]), max_memory)
            return self._fit(CompleteRows, data, given)
        except ValueError:
            if every is not data and is_lazy(data) and not has_rows(data) and has_rows(every):
                raise ValueError(f"subset={subset!r} chooses no row.") from None
            raise

    def _fit(self, kind: type[CompleteRows], data: Any, given: dict[str, Any]) -> Self:
        """Fit to rows of a kind, or to the sums that the engine of a lazy table computes."""
        settings, model, context = dict(given), parse(self.formula), given["context"]
        rows = kind.read(model, data, context, **{name: settings.pop(name) for name in OF_ROWS})
        with rows.learning():
            columns = self._learn(rows, model, settings)
        with rows.explained():
            if isinstance(rows, LazyRows):
                read, options = sums_of(rows, self.design_, self.response, self.estimator_)
            else:
                read, options = self._arguments(rows, columns)
            self.estimator_.fit(read, **options)
        subset = self._given["subset"]
        text = f"{self.formula} {subset}" if isinstance(subset, str) else self.formula
        self._given["context"] = Context.named_in(text, rows.there, context)
        self._rows = rows.kept()
        return self

    def _learn(
        self, rows: CompleteRows, model: FormulaTerms, settings: dict[str, Any]
    ) -> NDArray[np.float64]:
        """Learn the design and the response of rows, and choose an estimator; returns columns."""
        context = settings.pop("context")
        design, columns = Design.learn(model.fixed, rows.data, context, rows.there)
        varying = None
        if differing := model.varying or model.slopes:
            varying = [
                [design.names_in(text, rows.data, context) for text, _ in terms]
                for terms in differing
            ]
        weighed = rows.weights
        fractions = weighed is not None and bool((weighed != np.floor(weighed)).any())
        response = Response.of_rows(model, rows, context)
        said: dict[str, Any] = {"trials": response.has_trials(rows), "fractions": fractions}
        estimator, family, prior = map(settings.pop, ("estimator", "family", "prior"))
        estimator = chosen(model, design, estimator, family, prior, varying, settings, **said)
        if design.without_mean:
            columns = design.of(rows.data)
        if is_a(estimator, "LocationEstimator"):
            check_location(estimator, model, design, varying)
        else:
            estimator = following(estimator, model, design, varying)
        self.formula, self._model, self.design_ = model.text, model, design
        self.response, self.estimator_ = response.learned(rows, estimator), estimator
        return columns

    # Arguments ----------------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the arguments of `from_formula`, without the data.

        Parameters
        ----------
        deep : bool
            Whether to return those of the estimator that was given too, as ``estimator__…``.
        """
        given = {"formula": self.formula} | self._given
        own = given["estimator"]
        if deep and own is not None:
            given |= {f"estimator__{name}": value for name, value in own.get_params().items()}
        return given

    def set_params(self, **params: Any) -> Self:
        """Set arguments of `from_formula`, for the next `fit`.

        Parameters
        ----------
        **params
            Those of the estimator that was given have names like ``estimator__…``; others that
            `from_formula` does not have are settings of the estimator, as there.
        """
        for name, value in params.items():
            if name == "formula":
                self.formula = value
            elif name.startswith("estimator__"):
                self._given["estimator"].set_params(**{name.removeprefix("estimator__"): value})
            else:
                self._given[name] = value
        return self

    def __sklearn_clone__(self) -> Self:
        given = self.get_params(deep=False)
        own = {
            name: clone(value)
            for name, value in given.items()
            if hasattr(value, "get_params") and not isinstance(value, type)
        }
        return type(self)(**(given | own))

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import RegressorTags, Tags, TargetTags

        target = TargetTags(required=False)
        return Tags(estimator_type="regressor", target_tags=target, regressor_tags=RegressorTags())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "formula" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if "estimator_" not in self.__dict__:
            raise NotFittedError(f"{self!r}: call fit with the rows of a frame first.")
        return getattr(self.estimator_, name)

    def __dir__(self) -> list[str]:
        """List the names of the estimator too, which tab completion shows."""
        of_estimator = dir(self.__dict__.get("estimator_"))
        return sorted({*super().__dir__(), *(n for n in of_estimator if not n.startswith("_"))})

    def __repr__(self) -> str:
        if "estimator_" not in self.__dict__:
            return f"<FormulaFit of {self.formula!r}, not fitted>"
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
        # what was given for single rows is not for others
        of_rows = {"weights": self._rows.weighed, "subset": None}
        twin._given = self._given | {
            name: value
            for name, value in of_rows.items()
            if not isinstance(self._given[name], str | None)
        }
        return twin

    def _check_figures(self) -> None:
        """Refuse terms whose figures did not leave the clients."""
        of_rows = not is_a(self.estimator_, "LocationEstimator")  # whose covariates are public
        if kept := [*self.response.figures, *(self.design_.figures if of_rows else [])]:
            raise ValueError(
                f"{kept[0]!r} keeps figures of the rows, which did not leave the "
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
        if not self.keep_rows and is_private(view_of(self.estimator_).ledger):
            self._check_figures()
        formula = {
            "text": self.formula,
            "rows": self._rows.as_data(),
            "values": self.response.context.as_data() | self.design_.context.as_data(),
            "design": self.design_.as_data(),
            "response": self.response.as_data(),
        }
        portable.save(self.estimator_, path, groups, formula)

    @classmethod
    def of_data(cls, estimator: Any, data: Mapping[str, Any]) -> Self:
        """Make a fit of a fitted estimator, and of what a file says of its formula."""
        model = parse(data["text"])
        rows = CompleteRows.none(model, **data["rows"])
        texts = model.texts, responses(model, rows.data.names)
        both = [Context.of(each, rows.data, SHARED | data["values"]) for each in texts]
        fit = cls(model.text, clone(estimator), weights=rows.weighed, dispersion=rows.by)
        fit._model, fit._rows, fit.estimator_ = model, rows, estimator
        fit.design_ = Design.of_data(model.fixed, both[0], data["design"])
        fit.response = Response.of_data(model, both[1], data["response"])
        return fit

    def __getstate__(self) -> dict[str, Any]:
        fitted = self.__dict__.get("estimator_")
        if fitted is None or fitted.keep_rows or view_of(fitted).is_server:
            return self.__dict__
        return vars(self.published()) if is_private(view_of(fitted).ledger) else self.__dict__

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return deep_copied(self, memo)

    # Rows -------------------------------------------------------------------------------------

    def _arguments(self, rows: CompleteRows, columns: NDArray) -> tuple[Any, dict[str, Any]]:
        """Rows with their response, as the estimator takes them, and its other arguments."""
        read = labelled(self._model, rows.data, columns, self.design_.names)
        if rows.times is not None:
            self._check_counted()
            read = replace(read, times=rows.times)
        for name, asked in {"consent": rows.consent, "dispersion": rows.by}.items():
            if asked is not None and not has_fit_parameter(self.estimator_, name):
                raise ValueError(f"{type(self.estimator_).__name__} {LACKING[name]}.")
        if is_a(self.estimator_, "LocationEstimator"):
            return self._of_location(rows, read)
        if rows.weights is not None and not has_fit_parameter(self.estimator_, "sample_weight"):
            raise ValueError(f"{type(self.estimator_).__name__} takes no weights of rows.")
        binomial = family_of(self.estimator_) == "binomial"
        counts = self.response.counts(rows.data, rows.weights if binomial else None)
        noise = None if rows.by is None else rows.data.series(rows.by)
        consent = None if rows.consent is None else rows.classes_of_consent(read)
        options = {"sample_weight": rows.weights, "dispersion": noise, "consent": consent}
        options["offset"] = self.response.offset(rows.data)
        if counts is None:
            response = self.response.of(rows.data, self.estimator_)
        else:
            response, options["trials"] = counts
            if not self._model.counts:  # of shares weights are the trials
                options["sample_weight"] = None
        given = {name: value for name, value in options.items() if value is not None}
        return replace(read, y=response), given

    def _check_counted(self) -> None:
        """Refuse rows that stand for others where each of these counts.

        Raises
        ------
        NotPushedError
            If the estimator has no frequencies, or a term keeps figures of all rows.
        """
        own, context = self.estimator_, self.design_.context | self.response.context
        location = is_a(own, "LocationEstimator")
        known = own.protocol().family.weights == "frequency" if location else False
        of_caller = any(callable(each) for name, each in context.items() if name not in SHARED)
        figures = [*self.design_.figures, *self.response.figures]
        if figures or of_caller or not (known or is_a(own, "LogisticEB", "GeneralizedEB")):
            raise NotPushedError(self.formula)

    def _of_location(self, rows: CompleteRows, read: Rows) -> tuple[Any, dict[str, Any]]:
        model, name = self._model, column_name(self._model.response)
        ids, codes = read.numbered
        options: dict[str, Any] = {}
        if rows.consent is not None:
            options["consent"] = rows.classes_of_consent(read)
        if self.design_.names:
            options["covariates"] = self._covariates(read)
        if model.counts:
            times = rows.frequencies()
            times = np.ones(len(codes)) if times is None else times
            check_whole(times, "binomial")
            counts = self.response.counts(rows.data, None)
            assert counts is not None
            won, trials = (np.bincount(codes, times * each) for each in counts)
            return Summarised(Summary.from_counts(won, trials, ids), read.style, [name]), options
        values = self.response.of(rows.data, self.estimator_)
        if (times := rows.frequencies()) is not None:
            options["sample_weight"] = times
        offset = self.response.offset(rows.data)
        if offset is not None:
            options["exposure"] = np.exp(offset)
        if family_of(self.estimator_) != "labels":
            values = numbers(values, "X", booleans=True)[:, None]
        return replace(read, X=values, columns=[name]), options

    def _labelled(self, data: Columns) -> Rows:
        """Columns of the design of another frame, with its labels, of the kind that the fit had."""
        rows = labelled(self._model, data, self.design_.of(data), self.design_.names)
        if self._model.above or not rows.levels or view_of(self.estimator_).is_server:
            return rows
        text = [_are_text(each) for each in (*rows.levels, self.estimator_.groups_)]
        if text[0] != text[1]:
            raise ValueError(
                f"labels in {self._model.group!r} are {'text' if text[0] else 'numbers'}, and were "
                f"{'text' if text[1] else 'numbers'} in the fit; convert them."
            )
        return rows

    def _covariates(self, rows: Rows) -> Any:
        """Covariates of groups, from those of their rows."""
        names, (ids, codes) = self.design_.names, rows.numbered
        table = frame(dict(zip(names, rows.X.T, strict=True)))
        try:
            found, _ = read_covariates(names, table, ids[codes], ids)
        except ValueError as error:
            other = other_population(self.estimator_)
            raise ValueError(f"in {self.formula!r}: {error}{other}") from None
        group = self._model.group
        return frame({group: ids} | dict(zip(names, found.T, strict=True)), Style(group=group))

    # Reports ----------------------------------------------------------------------------------

    def __ebfed_view__(self) -> FitView:
        """Return what reports and plots read of the fit."""
        left = self._rows.dropped
        also = f" ({left:,} rows with missing values left out)" if left else ""
        view = view_of(self.estimator_)
        view = replace(view, notes=[*view.notes, *self.response.notes])
        several = len(getattr(self.estimator_, "classes_", ())) > 2
        several = several or family_of(self.estimator_) == "ordinal"
        if isinstance(view, GroupView) and not (view.has_density or several):
            rates = [RATES[view.population]] if view.population in RATES else []
            view = replace(view, notes=[*view.notes, *rates])
        return replace(
            view, formula=self.formula + also, response=column_name(self._model.response)
        )

    def summary(self) -> Any:
        """Return the fit as a printed table."""
        from ebfed.report import summary_table

        return summary_table(self.__ebfed_view__())

    def to_sql(self, dialect: str = "duckdb", **options: Any) -> str:
        """Write SQL that estimates groups, or predicts rows, in a database.

        Parameters
        ----------
        dialect : {"duckdb", "sqlite", "postgres", "spark", "bigquery"}
        **options
            As of the estimator's `to_sql`: ``table=``, ``columns=``, …

        Returns
        -------
        str

        Raises
        ------
        ValueError, TypeError, ImportError
            As the estimator's `to_sql`.
        """
        return self.estimator_.to_sql(dialect, **options)

    def _check_has(self, method: str, what: str) -> None:
        """Raise a TypeError if the estimator has no such method."""
        own = self.estimator_
        if not hasattr(own, method):
            mixed = is_a(own, "LocationEstimator") and family_of(own) in REGRESSION
            advice = f"; the mixed model 'y ~ 1 + (1 | {self._model.group})' has" if mixed else ""
            raise TypeError(f"{type(own).__name__} has no {what}{advice}.")

    def tests(self, *, ddf: Any = None, type: Tested | None = None) -> Any:
        """Test the coefficients of the population's mean, or the terms of the formula.

        Parameters
        ----------
        ddf : {"satterthwaite", "kenward-roger", "residual", "asymptotic"}, optional
            Degrees of freedom; see `LinearEB.tests`.
        type : {"II", "III", "wald"}, optional
            None: each coefficient, by t. ``"III"``: each term by F, as `anova` of lmerTest does:
            other factors are averaged over with equal weights, however they are coded. ``"II"``: by
            what a term explains beyond all terms that do not contain it, as of lmerTest and SAS; a
            term contains another if it has all its factors, more of them, and the same numbers.
            ``"wald"``: the coefficients of each term's own columns are zero, which depends on the
            coding of factors that are in several terms.

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
        self._check_has("inference", "tests of coefficients")
        estimator = self.estimator_
        if type is None:
            return estimator.tests(ddf=ddf)
        from ebfed.inference.contrasts import term_tests
        from ebfed.regression.inferring import Tested, contrasts_of_mean

        check_choice("type", type, get_args(Tested))
        found = estimator.inference() if ddf is None else estimator.inference(ddf)
        coefficients = contrasts_of_mean(estimator)
        terms = {
            name: own @ coefficients
            for name, own in contrasts_of_terms(self.design_, self._frame(None), type).items()
        }
        return frame(term_tests(found, terms), self.__ebfed_view__().style)

    def margins(
        self,
        terms: str | Sequence[str] = (),
        *,
        at: Mapping[str, Any] | None = None,
        slope: str | None = None,
        weights: Literal["equal", "proportional"] = "equal",
        group: Literal["typical", "new"] = "typical",
        ddf: Any = None,
        data: Any = None,
    ) -> Margins:
        """Estimate marginal means or slopes, as emmeans does.

        Means are those of the linear predictor at each combination of the levels of `terms`; other
        factors, and columns of true and false, are averaged over, other numbers are at their
        means over rows, and an offset is zero, so that counts are at an exposure of 1 (Searle,
        Speed, Milliken 1980).

        Parameters
        ----------
        terms : str or sequence of str
            Columns of which each combination of levels has a mean. Of a number it is the mean of
            the rows, unless `at` has others. None of them: one mean of all.
        at : mapping of str to value or sequence, optional
            Values of columns.
        slope : str, optional
            Column: slopes of the linear predictor in it, as ``emtrends``, in place of means.
        weights : {"equal", "proportional"}
            Weights of levels that are averaged over: equal, or as often as rows have them.
        group : {"typical", "new"}
            Whether intervals are of a group whose coefficients are the mean of all, or of one new
            group drawn from the population. The variance between groups is then added, which is
            taken as known; degrees of freedom are those of the mean, as is exact for balanced
            groups.
        ddf : {"satterthwaite", "kenward-roger", "residual", "asymptotic"}, optional
            Degrees of freedom; see `tests`.
        data : data frame, optional
            Rows that have the levels, means and frequencies; those of the fit if None.

        Returns
        -------
        Margins
            With `frame`, `pairs` and `contrast`.

        Raises
        ------
        TypeError
            If the estimator has no tests.
        ValueError
            If a column is not one of the formula, or an argument has no such value.

        References
        ----------
        Searle, Speed, Milliken (1980), Population marginal means in the linear model: an
        alternative to least squares means, Am. Stat. 34.
        Kramer (1956), Extension of multiple range tests to group means with unequal numbers of
        replications, Biometrics 12.

        Examples
        --------
        >>> import ebfed as eb
        >>> import statsmodels.api as sm
        >>> grunfeld = sm.datasets.grunfeld.load_pandas().data
        >>> years = grunfeld["year"].between(1940, 1945)
        >>> grunfeld["war"] = years.map({True: "war", False: "peace"})
        >>> fit = eb.from_formula("invest ~ value + war + (1 | firm)", grunfeld)
        >>> fit.margins("war").frame().round(0)
             war  estimate  std.error    df  conf.low  conf.high
        0  peace     140.0       25.0   8.0      82.0      197.0
        1    war     118.0       26.0  10.0      60.0      177.0
        """
        self._check_has("inference", "tests of coefficients")
        from ebfed.families.base import IDENTITY
        from ebfed.formula.margins import Margins, ReferenceGrid
        from ebfed.regression.inferring import link_of

        if group not in ("typical", "new"):
            raise ValueError(f"group must be 'typical' or 'new'; got {group!r}.")
        own, named = self.estimator_, [terms] if isinstance(terms, str) else list(terms)
        grid = ReferenceGrid(self.design_, self._frame(data), at or {})
        labels, contrasts = grid.contrasts(named, weights, slope)
        return Margins(
            labels or {"mean": np.array(["all"], object)},
            contrasts,
            own.inference() if ddf is None else own.inference(ddf),
            IDENTITY if slope is not None else link_of(own),
            own._total_spread() if group == "new" else None,
            Style(self.__ebfed_view__().style.backend),
        )

    def diagnostics(self, data: Any = None) -> Diagnostics:
        """Return rows with what the fit says of them: residuals, leverages and checks.

        Parameters
        ----------
        data : data frame, optional
            Rows with the response, and with weights where the fit had some: in the same column, or
            in ``"(weights)"`` if those were numbers. Those of the fit if None.

        Returns
        -------
        Diagnostics

        Raises
        ------
        TypeError
            If the estimator is no `LinearEB`, `LogisticEB`, `GeneralizedEB` or `CrossedEB`.

        Examples
        --------
        >>> import ebfed as eb
        >>> import statsmodels.api as sm
        >>> grunfeld = sm.datasets.grunfeld.load_pandas().data
        >>> fit = eb.from_formula("invest ~ value + capital + (1 | firm)", grunfeld)
        >>> fit.diagnostics()
        <Diagnostics of 220 rows>
        """
        self._check_has("diagnostics", "residuals of this kind")
        read, options = self._read(data)
        found = self.estimator_.diagnostics(read, **options)
        return found if data is None else replace(found, leverage=None)

    def residuals(
        self,
        data: Any = None,
        *,
        kind: ResidualKind = "response",
        conditional: bool = True,
        random_state: Any = 0,
    ) -> NDArray[np.float64]:
        """Return a residual of each row: see `Diagnostics.residuals`.

        Parameters
        ----------
        data : data frame, optional
            Rows with the response; those of the fit if None.
        kind : {"response", "pearson", "deviance", "standardized", "quantile"}
        conditional : bool
            Whether effects of groups are given; else those of new groups.
        random_state : int, Generator or None
            Seed of quantile residuals.

        Returns
        -------
        ndarray of shape (n_rows,)
            NaN for rows that ``na_action="exclude"`` left out.
        """
        found = self.diagnostics(data)
        values = found.residuals(kind, conditional=conditional, random_state=random_state)
        return self._rows.padded(values, data)

    def influence(self, level: str | None = None, **options: Any) -> Any:
        """Return how much the coefficients depend on each group, by leaving it out.

        Parameters
        ----------
        level : str, optional
            Name of the level of groups, or of the factor; the lowest, or the first factor, if None.
        **options
            ``refit=True`` of linear models fits again without each group; see `LinearEB.influence`.

        Returns
        -------
        DataFrame

        Raises
        ------
        TypeError
            If the estimator has no influence of groups.
        """
        self._check_has("influence", "influence of groups")
        return self.estimator_.influence(level, **options)

    def _of_linear_rows(self) -> dict[str, NDArray]:
        """Columns of `augment` of rows of the fit: of linear models ``.hat`` and ``.cooksd``."""
        if not is_a(self.estimator_, "LinearEB", "CrossedEB"):
            return {}
        found = self.diagnostics()
        if found.leverage is None or not np.all(found.law.spread(found.fitted) > 0):
            return {}
        hat = found.leverage()
        pearson = found.residuals("pearson")
        left = np.where(1 - hat > 1e-12, 1 - hat, np.nan)
        return {".hat": hat, ".cooksd": (pearson / left) ** 2 * hat / max(found.rank(), 1)}

    # Components, and other responses ----------------------------------------------------------

    def VarCorr(self) -> Any:
        """Return variances and covariances of coefficients between groups, and of the noise.

        Returns
        -------
        DataFrame
            As ``as.data.frame(VarCorr(fit))`` of lme4: ``grp``; ``var1``, and ``var2`` of a
            covariance, empty otherwise; ``vcov``, and ``sdcor``, the standard deviation or the
            correlation.

        Examples
        --------
        >>> import ebfed as eb
        >>> import statsmodels.api as sm
        >>> grunfeld = sm.datasets.grunfeld.load_pandas().data
        >>> fit = eb.from_formula("invest ~ value + (1 | firm)", grunfeld)
        >>> fit.VarCorr().round(1)
                grp       var1 var2    vcov  sdcor
        0      firm  intercept       6574.7   81.1
        1  Residual                  6830.9   82.6
        """
        from ebfed.report.tidying import variance_components

        view = self.__ebfed_view__()
        return frame(variance_components(view), view.style)

    def vcov(self) -> Any:
        """Return the covariance of the coefficients of the mean, given the spreads.

        Returns
        -------
        DataFrame of shape (p, 1 + p)
            ``term``, and a column for each coefficient, as ``vcov(fit)`` of lme4; NaN where
            `tidy` has no standard error.

        Raises
        ------
        TypeError
            If the estimator is no `LinearEB`, `LogisticEB`, `GeneralizedEB` or `CrossedEB`.

        Examples
        --------
        >>> import ebfed as eb
        >>> import statsmodels.api as sm
        >>> grunfeld = sm.datasets.grunfeld.load_pandas().data
        >>> eb.from_formula("invest ~ value + (1 | firm)", grunfeld).vcov().round(4)
                term  intercept   value
        0  intercept   796.1998 -0.1694
        1      value    -0.1694  0.0002
        """
        from ebfed.report import tidy

        self._check_has("inference", "covariance of coefficients")
        own, view = self.estimator_, self.__ebfed_view__()
        found = tidy(view)
        fixed = found["effect"] == "fixed"
        names, known = found["term"][fixed], np.isfinite(found["std.error"][fixed])
        covariance = own._of_all("mean_covariance")[np.ix_(own._of_mean, own._of_mean)]
        covariance = np.where(np.outer(known, known), covariance, np.nan)
        columns = dict(zip(names.tolist(), covariance.T, strict=True))
        return frame({"term": names.astype(object)} | columns, view.style)

    def sigma(self) -> float:
        """Return the standard deviation of rows within their groups, as ``sigma(fit)`` of lme4.

        Raises
        ------
        TypeError
            If rows are counts or classes, or have a variance for each level of a column.
        """
        from ebfed.report import glance

        found = glance(self.__ebfed_view__()).get("sigma", [np.nan])[0]
        if np.isnan(found):
            rows = family_of(self.estimator_)
            raise TypeError(f"there is no one standard deviation of rows; they are {rows} here.")
        return float(found)

    def simulate(self, n: int = 1, *, conditional: bool = False, random_state: Any = 0) -> Any:
        """Draw responses of the rows of the fit from the fitted model.

        Parameters
        ----------
        n : int
            Number of responses of each row.
        conditional : bool
            Whether groups keep the effects that the fit has of them, as of lme4's ``re.form=NULL``;
            else each draw has new groups, ``re.form=NA``.
        random_state : int, Generator or None
            Seed.

        Returns
        -------
        DataFrame
            With the index of the rows of the fit: a column ``sim_1``, ``sim_2``, … for each draw,
            of what `refit` takes: values of the left side of the formula, the labels where it has
            labels, and successes of ``cbind(…)``. Rows that ``na_action="exclude"`` left out are
            missing.

        Raises
        ------
        TypeError
            If the estimator is of one parameter for each group.
        ValueError
            If `n` is no positive whole number, or rows have weights and no distribution.

        Examples
        --------
        >>> import ebfed as eb
        >>> import statsmodels.api as sm
        >>> grunfeld = sm.datasets.grunfeld.load_pandas().data
        >>> fit = eb.from_formula("invest ~ value + (1 | firm)", grunfeld)
        >>> drawn = fit.simulate(3, random_state=1)
        >>> drawn.columns.tolist(), len(drawn) == len(grunfeld)
        (['sim_1', 'sim_2', 'sim_3'], True)
        >>> [round(fit.refit(drawn[name]).estimator_.noise_variance_) for name in drawn]
        [6228, 5567, 8157]
        """
        check_count("n", n)
        found, rng = self.diagnostics(), np.random.default_rng(random_state)
        drawn = {}
        for j in range(1, n + 1):
            predictor = found.predictor if conditional else found.renewed(rng)
            values = self.response.as_given(found.law.draw(predictor, rng), self._rows.data)
            drawn[f"sim_{j}"] = self._rows.padded(values)
        rows = self._rows.data if self._rows.whole is None else self._rows.whole[0]
        return indexed_like(frame(drawn, Style(self._rows.backend)), rows.native)

    def refit(self, response: ArrayLike) -> Self:
        """Fit the same model to other responses of the rows of the fit.

        The design, the order of labels, weights, offsets and numbers of trials stay.

        Parameters
        ----------
        response : array-like or series of shape (n_rows,)
            As `simulate` draws it: values of the left side of the formula, such as of ``log(y)``;
            of ``cbind(…)`` the successes.

        Returns
        -------
        FormulaFit

        Raises
        ------
        ValueError
            If it is not one value for each row, or this copy of the fit has no rows.
        """
        self._frame(None)  # a copy without rows says so
        twin = shallow_copied(self)
        twin._rows = self.response.replaced(self._rows, response)
        rows, options = twin._arguments(twin._rows, self.design_.of(twin._rows.data))
        own = clone(self.estimator_)
        if is_a(own, "RegressionEstimator"):
            own = own._beginning_at(self.estimator_)
        twin.estimator_ = own.fit(rows, **options)
        return twin

    # Other frames -----------------------------------------------------------------------------

    def _frame(self, data: Any) -> Columns:
        """Return a frame that was given, or else the rows of the fit."""
        if data is not None:
            return Columns.of_rows(data)
        if not len(self._rows.data):
            raise ValueError("this copy of the fit has no rows; give a frame.")
        return self._rows.data

    def _read(self, data: Any, *, scored: bool = False) -> tuple[Any, dict[str, Any]]:
        """Rows with their response, as the estimator takes them; those of the fit if None."""
        given = self._frame(data)  # a copy without rows says so
        rows = self._rows if data is None else self._rows.of_others(given, scored=scored)
        return self._arguments(rows, self.design_.of(rows.data))

    def predict(self, data: Any = None, *, type: Predicted = "response") -> NDArray:
        """Predict the expected response of rows as given, with what is known of their groups.

        It is the mean of numbers, the expected count at the exposure that the offset says, and the
        probability of a row of two classes or of one trial. Of two labels this is the probability
        of the second: the summary says which.

        Parameters
        ----------
        data : data frame, mapping, series or lazy table, optional
            The rows of the fit if None. A mapping has columns or single values, and a series of
            pandas is one row. Groups that were not in the fit are predicted by the population; so
            is everything if the column of groups is missing.
        type : {"response", "rate", "link"}
            Of counts, ``"rate"`` is the response at an exposure of 1, which needs no offset. Of
            mixed models ``"link"`` is the linear predictor, such as a logit: `predict` of glmer.

        Returns
        -------
        ndarray of shape (n_rows,) or (n_rows, n_classes), or lazy table
            Probabilities of all classes, if there are more than two without an order. Of a table
            of DuckDB, polars, Dask or Spark, that table with a column ``.fitted``.
        """
        estimator = self.estimator_
        if is_lazy(data):
            return self._predict_in_place(data, type)
        rows = self._frame(data)
        if not len(rows):
            classes = getattr(estimator, "classes_", ())
            return np.empty((0, len(classes)) if len(classes) > 2 else 0)
        if is_a(estimator, "LocationEstimator"):
            family = estimator.protocol().family
            rate = wants_rate(type, family.has_rates, family.name)
            found = self._estimates(rows)
            if family.has_rates and not rate:
                found = found * self._exposure(rows)[:, None]
            return self._rows.padded(found[:, 0] if found.shape[1] == 1 else found, data)
        if is_a(estimator, "LogisticEB") and type == "link":
            found, _ = estimator._without_offset(self._labelled(rows), None, True)
            return self._rows.padded(found, data)
        if is_classifier(estimator):
            wants_rate(type, False, "classes")
            found = self.predict_proba(None if data is None else rows)
            return found[:, 1] if found.shape[1] == 2 else found
        if not is_a(estimator, "GeneralizedEB", "CrossedEB"):
            wants_rate(type, False, "gaussian", has_predictor=True)
            type = "response"
        found = estimator.predict(self._labelled(rows), **self._options(rows, type))
        return self._rows.padded(found, data)

    def _predict_in_place(self, data: Any, type: Predicted, classes: Any = None) -> Any:
        """Return a lazy table with predictions as columns."""
        learned = self.design_, self.response, self.estimator_
        return predicted_in_place(data, type, *learned, classes)

    def _options(self, data: Columns, type: Predicted) -> dict[str, Any]:
        """Arguments of `predict` of a regression."""
        if type == "rate":
            return {"type": type}
        offset = self.response.offset(data)
        given: dict[str, Any] = {} if type == "response" else {"type": type}
        return given if offset is None else given | {"offset": offset}

    def _exposure(self, data: Columns) -> NDArray:
        """Exposures of rows, or times in which events are counted."""
        if is_a(self.estimator_, "DurationEB"):
            return self.response.of(data, self.estimator_)
        offset = self.response.offset(data)
        return np.ones(1) if offset is None else np.exp(offset)

    def _estimates(self, data: Columns) -> NDArray:
        """Means of the groups of rows, shape (n_rows, d)."""
        rows = self._labelled(data)
        if not rows.levels:
            prior = self.estimator_.prior_
            mean = prior.at(rows.X).mean_ if rows.X.shape[1] else prior.mean_
            return np.broadcast_to(mean, (len(rows), mean.shape[-1]))
        ids, codes = rows.numbered
        covariates = self._covariates(rows) if self.design_.names else None
        warn_of_mistyped(ids, self.estimator_.groups_)
        with warnings.catch_warnings():  # of labels that were asked for by name
            warnings.simplefilter("ignore", UnseenGroupWarning)
            return self.estimator_.posterior(groups=ids, covariates=covariates).mean[codes]

    def predict_proba(self, data: Any = None) -> NDArray:
        """Probabilities of the classes for rows, as `predict`; shape (n_rows, n_classes).

        They are in the order of `classes_`: of two, that of the event is last. Of a lazy table,
        that table with a column for each class, such as ``.fitted_yes``.
        """
        estimator = self.estimator_
        family = family_of(estimator)
        if is_lazy(data):
            return self._predict_in_place(data, "response", self._labels_of_classes(family))
        if family == "binomial":
            found = self.predict(data)
            return np.column_stack([1 - found, found])
        if family == "labels" and is_a(estimator, "LocationEstimator"):
            return self.predict(data)
        rows, of_classes = self._frame(data), is_classifier(estimator)
        if not len(rows) and (of_classes or self.response.levels):
            return np.empty((0, len(self.classes_)))
        options = {} if of_classes else self._options(rows, "response")
        found = estimator.predict_proba(self._labelled(rows), **options)
        return self._rows.padded(found, data)

    def _labels_of_classes(self, family: str) -> list[Any]:
        """Labels of the classes; none of those that are numbers from 1."""
        if self.response.levels:
            return list(self.response.levels)
        if family == "labels":
            return list(self.estimator_.classes_.tolist())
        if family == "binomial":
            return [0, 1]
        if family == "ordinal":
            return []
        raise ValueError(f"predict_proba is of classes; rows are {family} here.")

    @property
    def classes_(self) -> NDArray:
        """Labels of the response, of which there are probabilities."""
        if self.response.kind in ("events", "classes"):
            return np.array(self.response.levels)
        return self.estimator_.classes_

    def predict_interval(self, data: Any = None, **options: Any) -> tuple[NDArray, NDArray]:
        """Intervals for the responses of rows: see `predict_interval` of the estimator.

        ``kind="mean"`` is of the expected response, and ``kind="rate"`` of that at an exposure of
        1.
        """
        if not hasattr(self.estimator_, "predict_interval"):
            raise ValueError(
                f"{type(self.estimator_).__name__} has no intervals for rows; predict gives "
                "their expected response, and posterior().interval() intervals for groups."
            )
        rows, own = self._frame(data), self.estimator_
        if not len(rows):
            return np.empty(0), np.empty(0)
        if options.get("kind") != "rate":
            options |= self._options(rows, "response")
        by, weighed = self._rows.by, self._rows.weighed
        if by is not None and by in rows.names:
            options.setdefault("dispersion", rows.series(by))
        precisions = is_a(own, "LinearEB", "CrossedEB") and family_of(own) == "gaussian"
        if precisions and weighed is not None and weighed in rows.names:
            options.setdefault("sample_weight", rows.series(weighed))
        low, high = own.predict_interval(self._labelled(rows), **options)
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
        if is_a(self.estimator_, "CrossedEB") and (data is not None or groups is not None):
            raise ValueError(
                "a posterior of crossed factors is of all levels of one of them: give level= alone."
            )
        if data is None:
            given = {} if groups is None else {"groups": groups}
            return self.estimator_.posterior(**given, **options)
        read, given = self._read(data)
        return self.estimator_.posterior(read, **given, **options)

    def score(self, data: Any, y: Any = None) -> float:
        """R squared of the predictions of rows, held out or not.

        Of rows of two classes it is that of probabilities, whose squared errors are Brier's score;
        of more classes, that of all their probabilities together. Rows count by their trials, and
        by weights if those of the fit were a column, or are in a column ``(weights)``. So scores
        of all formulas of one response compare; of variances and durations, which are not what is
        predicted, it is the log predictive density: see `log_density`.

        Parameters
        ----------
        data : data frame
            Rows with the response.
        y : ignored
        """
        from sklearn.metrics import r2_score

        if is_a(self.estimator_, "VarianceEB", "DurationEB"):
            return self.log_density(data)
        rows = self._rows.of_others(data, scored=True)
        observed = self._observed(rows.data)
        assert observed is not None
        weight = rows.weights
        if self._model.counts:
            counts = self.response.counts(rows.data, None)
            assert counts is not None
            weight = counts[1] * (1.0 if weight is None else weight)
        averaged = "variance_weighted" if observed.ndim == 2 else "uniform_average"
        predicted = self.predict(rows.data)
        if np.isnan(predicted).any():  # of rows that the fit does not identify, with a warning
            return np.nan
        return float(r2_score(observed, predicted, sample_weight=weight, multioutput=averaged))

    def log_density(self, data: Any) -> float:
        """Log predictive density of rows of a frame, per row, given the rows of the fit.

        Of estimators of one parameter for each group; see `LocationEstimator.score`. It compares
        populations, which may differ where their predictions hardly do.

        Raises
        ------
        TypeError
            If the estimator has no such density.
        """
        if not is_a(self.estimator_, "LocationEstimator"):
            name = self.estimator_.__class__.__name__
            raise TypeError(f"{name} has no log predictive density; score is R squared.")
        read, options = self._read(data, scored=True)
        return self.estimator_.score(read, **options)

    def augment(self, data: Any = None) -> Any:
        """Return a frame with its columns and ``.fitted``, ``.resid``, ``.fixed``.

        Parameters
        ----------
        data : data frame, optional
            The rows of the fit if None, with the columns that were used. Without the response it
            gets no ``.resid``. ``.fitted`` is what `predict` says; of more than two classes, the
            likeliest. The rows of the fit of a linear model have leverages ``.hat`` and Cook's
            distances ``.cooksd`` too, NaN of a row that alone determines a coefficient.
        """
        given, data = data, self._frame(data)
        used = required(self.design_.texts, data.names)
        labels = [name for name in self._model.levels if name in data.names and name not in used]
        alone = data.take(None, [name for name in data.names if name not in labels])
        new = {".fitted": self.predict(data), ".fixed": self.predict(alone)}
        classes = np.asarray(getattr(self.estimator_, "classes_", ()))
        if new[".fitted"].ndim == 2 or len(classes) == 1:
            shares = {name: each.reshape(len(each), -1) for name, each in new.items()}
            new = {name: classes[np.argmax(each, axis=1)] for name, each in shares.items()}
        elif (response := self._observed(data)) is not None:
            new[".resid"] = response - new[".fitted"]
        if given is None:
            new |= self._of_linear_rows()
        if given is None and self._rows.whole is not None:
            data, new = self._rows.whole[0], {k: self._rows.padded(x) for k, x in new.items()}
        return beside(data.native, new)

    def _observed(self, data: Columns) -> NDArray | None:
        """Numbers that predictions are compared with, if the frame has them."""
        classes = getattr(self.estimator_, "classes_", None)
        found = self.response.observed(data, self._rows.data.names, classes)
        events = found is not None and is_a(self.estimator_, "DurationEB")
        return np.ones_like(found) if events else found  # which end all durations


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
    na_values: Sequence[Any] | None = None,
    context: Mapping[str, Any] | None = None,
    max_memory: float | None = None,
    **settings: Any,
) -> FormulaFit:
    """Fit a model written as a formula.

    - ``y ~ x + (1 + x | county)``: `LinearEB`, `LogisticEB` or `GeneralizedEB`; intercept and x
      differ between counties, and may be correlated.
    - ``y ~ x + z + (1 + x || county)``: not correlated; z is alike in all counties. So are terms
      apart: ``(1 | county) + (0 + x + z | county)`` has slopes that are correlated with each other,
      and not with the intercept.
    - ``y ~ 1 + (x | county)``, ``y ~ 0 + C(kind) + (1 | county)``: the mean of what differs between
      counties alone is zero, in `LinearEB`.
    - ``y ~ x + z | county``: the intercept and all slopes differ between counties; the argument
      `covariance` of the estimator says whether they are correlated (not, by default).
    - ``y ~ 1 + (1 | county)`` or ``y ~ (1 | state/county)``: the null models of these, an intercept
      that differs, so that `anova` compares it with covariates.
    - ``y ~ x + (1 | state:county)``: counties of states differ, and states do not.
    - ``y ~ x + (1 + x | state/county)`` or ``y ~ x + (1 + x | state) + (1 | state:county)``: the
      same with coefficients, see `LinearEB`.
    - ``y ~ x + (1 | student) + (1 | lecturer)``: `CrossedEB`, an effect of every level of crossed
      factors; ``(1 | dept:service)`` is of pairs, and ``(1 + x | student)`` has
      slopes.
    - ``rate | county``: a number for each county, `GaussianEB`, `BernoulliEB` or `PoissonEB`; so is
      ``y ~ 1 + (1 | county)`` with `prior`, or where groups send reports through a `channel`.
    - ``cbind(won, lost) | county``: `BernoulliEB` of successes and failures, as in R;
      ``cbind(won, trials=games)`` of successes and trials. The summary says which.

    Terms are formulaic's, which follow R: ``C(kind)``, ``C(kind, contr.sum)``, ``a:b``, ``a * b``,
    ``log(x)``, ``poly(x, 2)``, ``ns(x, df=3)``, ``I(x + 1)``; ``.`` stands for the columns that
    have no other role. A name that is no word is quoted: `` `a name` `` or
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
        Frame of pandas, polars or Arrow. Or a table of DuckDB, polars, Dask or Spark: a model of
        numbers, and one of a number for each group, reads sums of products for each group, which
        the engine computes; the columns of other models are read into memory.
    estimator : Estimator, optional
        Chosen by formula and family if None. It is copied; `varying` and `covariance` follow the
        formula where that has an ``( … | … )``.
    family : str, optional
        Family of the rows, ``"gaussian"``, ``"binomial"``, ``"categorical"``, ``"poisson"``,
        ``"negative_binomial"``, ``"gamma"``, ``"variance"`` or ``"ordinal"`` (classes 1, 2, …, or
        the categories of an ordered column); Gaussian if None, unless the response is
        ``cbind(…)``. A term ``offset(z)`` is a known part of the linear predictor; of counts of
        events, ``offset(log(e))`` gives the exposure e. A model of binomial rows with an offset is
        `GeneralizedEB`. Of two labels, such as "no" and "yes", the
        second is the event: the second in sorted order, or the second level of a category.
    prior : str or Prior, optional
        The population: a value of the argument `prior` of the estimator, such as ``"npmle"`` or a
        `priors.Discrete`, which in ``y ~ 1 + (1 | county)`` is `GaussianEB`. Of binomial rows and
        counts, ``"beta"`` is `BernoulliEB` and ``"gamma"`` is `PoissonEB` or
        `NegativeBinomialEB`: rates of groups are beta or gamma, and covariates must be constant
        within groups.
        ``"logit-normal"`` is `LogisticEB` and ``"log-normal"`` is `GeneralizedEB`: coefficients of
        groups are normal on the scale of logits or of log rates, and covariates are of rows;
        ``y ~ 1 + (1 | county)`` has an intercept alone. If None it is logit-normal or log-normal;
        but beta or gamma for ``y | county``, and where groups send reports through a `channel`.
        The summary says which.
    weights : str or array-like of shape (n_rows,), optional
        Weight of each row, or the column that has it: ``sample_weight=`` of the estimator. For
        means and variances it is a precision, as in lme4; for rates, counts and categories a whole
        number, of the rows that a row stands for. In mixed models of classes and counts it may be
        any number, by which the log-likelihood of the row is multiplied. Where the response of
        binomial rows is a share, it is the number of trials, as in `glm` of R.
    dispersion : str, optional
        Column whose levels have a noise each, as ``"~ sex"``: `dispformula` of glmmTMB. It is
        ``dispersion=`` of `LinearEB`, and may be in the formula too.
    consent : str, optional
        Column that says what each group agreed to send, such as ``"private"`` or ``"open"``: a key
        of the estimator's `channel`.
    subset : str or array-like of bool of shape (n_rows,), optional
        Rows to fit: an expression of the columns, such as ``"year > 1990 & kind in ['a', 'b']"``,
        or a boolean for each row. A row where a comparison, or the boolean, lacks a value is left
        out. Dates are compared with text, such as ``"day > '2024-01-31'"``.
    na_action : {"raise", "drop", "exclude"}
        Treatment of rows that lack a value: R's ``na.fail``, ``na.omit`` and ``na.exclude``. Those
        left out are counted in the summary; of ``"exclude"``, `predict` and `augment` of the rows
        of the fit have these too, with missing predictions.
    na_values : sequence or set of str and numbers, optional
        Cells that are missing in every column, such as ``["NA", -99]``. If None, words such as
        "NA" and "null" are missing among numbers, and are text in columns of text,
        as `ebfed fit` reads files.
    context : mapping, optional
        Names of functions and variables that are not columns; those of the caller if None.
    max_memory : float, optional
        Most gibibytes that a fit of such a table may need; half the memory of the machine if None.
    **settings
        Arguments of the estimator: ``method="ml"``, ``link="probit"``, ``channel=…``

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
    given |= {"na_action": na_action, "na_values": na_values}
    given |= {"context": context, "max_memory": max_memory}
    fit = FormulaFit(formula, estimator, **given, **settings)
    return fit.fit(data)


# Arguments of `from_formula` besides the data and the estimator, and what they are if not given.
DEFAULTS = {
    name: each.default
    for name, each in signature(from_formula).parameters.items()
    if each.kind is each.KEYWORD_ONLY
}
