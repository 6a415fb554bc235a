"""Regression with the effects of crossed factors: rows of students and of lecturers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from itertools import pairwise
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import ndtri
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from ebfed.arguments import check_choice
from ebfed.engines.supervised import check_size
from ebfed.inference.degrees_of_freedom import FixedDegrees, Inference, Method
from ebfed.inference.estimable import Estimable
from ebfed.inference.spread_degrees import SpreadDegrees
from ebfed.priors.identification import IdentificationWarning
from ebfed.priors.posterior import IndependentNormals, Posterior
from ebfed.regression.columns import INTERCEPT, Columns
from ebfed.regression.criteria import CrossedCriterion, CrossedLaplaceCriterion
from ebfed.regression.crossed_checks import (
    check_factors,
    columns_at,
    fixed_too,
    independent_columns,
    places_of,
    varying_of,
)
from ebfed.regression.crossed_files import CrossedFile
from ebfed.regression.crossed_fitting import (
    CrossedFit,
    CrossedProblem,
    check_noise,
    has_noise,
)
from ebfed.regression.crossed_inference import crossed_kenward_roger, crossed_satterthwaite
from ebfed.regression.crossed_influence import changes_of_crossed
from ebfed.regression.diagnosis import rows_of_crossed
from ebfed.regression.families import BinomialLink, ResponseFamily, Responses, family_named
from ebfed.regression.families.base import counts_rows
from ebfed.regression.intervals import check_drawn, check_not_restricted
from ebfed.regression.levels import far_notes
from ebfed.regression.mixed import LeftOut, MixedModel
from ebfed.regression.notes import (
    UNFINISHED,
    notes_of_crossed,
    unidentified,
    warn_of_unending,
)
from ebfed.regression.population import fixed_parameters, residual_parameter, spread_parameters
from ebfed.regression.posteriors.normal import NormalCoefficients
from ebfed.regression.posteriors.predictive import averaged_variance
from ebfed.regression.reading import (
    OF_WEIGHT_ONE,
    CrossedRows,
    of_weights,
)
from ebfed.regression.row_predictions import RowPredictions
from ebfed.regression.separation import endless_terms
from ebfed.report.diagnostics import Diagnostics
from ebfed.report.view import Parameter, RegressionView, reliability
from ebfed.tables.features import validated
from ebfed.tables.frames import Style, frame
from ebfed.tables.lazy import column_names
from ebfed.tables.roles import Roles
from ebfed.tables.unseen import warn_of_blanks

__all__ = ["CrossedEB"]

Family = Literal["gaussian", "binomial", "poisson", "negative_binomial", "gamma", "ordinal"]
METHODS = {"gaussian": ("auto", "reml", "ml"), "others": ("auto", "laplace")}


class _OfLevels(NamedTuple):
    """Numbers of the levels of a factor, shape (n_levels, k), one column for each term."""

    terms: tuple[str, ...]
    estimate: NDArray
    std_error: NDArray


def _blocks(varying: Sequence[Sequence[Sequence[str]]], terms: list[str]) -> NDArray[np.int64]:
    """Block of the covariance of each factor that each term is in; -1 if it is in none."""
    found = np.full((len(varying), len(terms)), -1)
    for own, blocks in zip(found, varying, strict=True):
        for number, block in enumerate(blocks):
            own[[place for place in places_of(block, terms) if place >= 0]] = number
    return found


class CrossedEB(RowPredictions, RegressorMixin, MixedModel, BaseEstimator):
    """Empirical Bayes regression with an effect of every level of crossed factors.

    A row of student s and lecturer d is ``y = x' beta + u_s + v_d + e``, with ``u_s ~ N(0, a)``,
    ``v_d ~ N(0, b)``, and ``e ~ N(0, noise)``, or noise over the weight of the row; for two factors
    or more. This is lme4's ``y ~ x + (1 | s) + (1 | d)``. Factors may be crossed, nested, or
    partly so. The likelihood is exact, restricted or not: the factor with the most levels is
    eliminated, and the levels of all others are one system of equations. That is dense, of up to
    6,000 levels; if factors are nearly nested, as pupils in classes of schools, it has few entries,
    and may be larger. Its cost does not depend on the number of rows after these are added up once.

    Slopes may differ between levels too: with `varying` a level of factor k has the coefficients
    ``u ~ N(0, Sigma_k)`` of some columns of x, as of ``(1 + x | d)``. All of the above holds of
    coefficients instead of levels.

    Of rows of other families, ``x' beta + u_s + v_d`` is the logit or the logarithm of the mean, as
    in lme4's `glmer`. The likelihood is then Laplace's approximation (``nAGQ=1``), maximised over
    the covariances, beta, and a dispersion, shape or thresholds; its value and its slope are
    computed without further approximation. Standard errors of beta come from its second
    derivatives; `tests` and `confint` are by Student's t, over spreads that the rows do not tell
    from the likeliest ones. Posteriors
    of effects are normal around their joint mode. Spreads are underestimated where levels have few
    rows.

    All rows are read at one place: levels of crossed factors share rows, so that no factor divides
    them between clients. `LinearEB` fits groups of clients, and groups within groups.

    Parameters
    ----------
    method : {"auto", "reml", "ml", "laplace"}
        What is maximised: of Gaussian rows the likelihood, restricted (``"reml"``, and if
        ``"auto"``) or not (``"ml"``); of others ``"laplace"``, which ``"auto"`` is too.
    family : {"gaussian", "binomial", "poisson", "negative_binomial", "gamma", "ordinal"}
        Family of the rows; see `GeneralizedEB`.
    link : {"logit", "probit", "cloglog"}, optional
        Link of binomial rows; see `GeneralizedEB`.
    fit_intercept : bool
        Whether to put a column of ones first.
    varying : dict of list of str, optional
        Terms of X that differ between the levels of a factor, by its name: ``{"lecturer":
        ["intercept", "x"]}`` is lme4's ``(1 + x | lecturer)``. Of lists in a list the coefficients
        of each may be correlated, with no others: ``[["intercept", "x"], ["z"]]`` is ``(1 + x |
        lecturer) + (0 + z | lecturer)``. Other factors have an intercept.
    covariance : {"full", "diag"}, or dict of these by factor
        Whether the coefficients of a level may be correlated, or are not, as of lme4's ``||``.
    fixed : sequence of str or int, optional
        Terms, or numbers of columns of X, that have a coefficient of all rows; others, which must
        vary, are those of levels alone, as x of ``1 + (1 + x | d)``. All, if None.

    Attributes
    ----------
    mean_ : ndarray of shape (p,)
        Coefficients beta, the intercept first; zero of terms that are not `fixed`.
    mean_covariance_ : ndarray of shape (p, p)
        Their sampling covariance.
    terms_ : list of p str
    variances_ : dict of float
        Variance of the effects of each factor, by its name; of a factor with slopes, an ndarray of
        those of its coefficients.
    covariances_ : dict of ndarray of shape (k, k)
        Covariance of the k coefficients of a level, of each factor.
    noise_variance_ : float
        Variance of Gaussian rows; 1 for other families, which have none.
    levels_ : dict of ndarray
        Labels of the levels of each factor, sorted.
    criterion_ : float
        -2 log-likelihood (restricted for REML), as lme4 has it.
    log_likelihood_ : float
    converged_ : bool
    notes_ : list of str
        Remarks on the fit.

    References
    ----------
    Bates, Maechler, Bolker, Walker (2015), Fitting linear mixed-effects models using lme4, J. Stat.
    Softw. 67, section 3; Gilmour, Thompson, Cullis (1995), Average information REML, Biometrics 51.

    Examples
    --------
    >>> import ebfed as eb
    >>> import pandas as pd
    >>> rng = np.random.default_rng(0)
    >>> rows = pd.DataFrame(rng.integers(0, (200, 50), (3000, 2)), columns=["student", "lecturer"])
    >>> rows["x"] = rng.normal(size=3000)
    >>> effects = rng.normal(0, 2, 200)[rows["student"]] + rng.normal(0, 1, 50)[rows["lecturer"]]
    >>> rows["y"] = 2 * rows["x"] + effects + rng.normal(size=3000)
    >>> est = eb.CrossedEB().fit(rows, "y", groups=["student", "lecturer"])
    >>> {name: round(variance**0.5, 1) for name, variance in est.variances_.items()}
    {'student': 1.9, 'lecturer': 1.1}
    >>> est.posterior("lecturer").to_frame().columns.tolist()
    ['lecturer', 'n', 'estimate', 'sd', 'lower', 'upper']
    """

    # Nothing is private, so that a pickle has all.
    keep_rows = True
    _simulated = False
    _kept: Any = None
    # rows of the fit, which no file has
    _problem: CrossedProblem | None = None
    _file = CrossedFile()
    n_features_in_: int
    __metadata_request__fit = {"groups": True}  # noqa: RUF012
    __metadata_request__predict = {"groups": True}  # noqa: RUF012

    def __init__(
        self,
        method: Literal["auto", "reml", "ml", "laplace"] = "auto",
        *,
        family: Family = "gaussian",
        link: BinomialLink | None = None,
        fit_intercept: bool = True,
        varying: Mapping[str, Sequence[Any]] | None = None,
        covariance: Literal["full", "diag"] | Mapping[str, str] = "full",
        fixed: Sequence[str | int] | None = None,
    ):
        self.method = method
        self.family = family
        self.link = link
        self.fit_intercept = fit_intercept
        self.varying = varying
        self.covariance = covariance
        self.fixed = fixed

    # Learning ---------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        sample_weight: Any = None,
        offset: Any = None,
        trials: Any = None,
    ) -> Self:
        """Learn from rows.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, d)
            Columns; d may be 0.
        y : array-like or series of shape (n_rows,), or str
            The response, or the column of the frame `X` that holds it.
        groups : list of array-like of shape (n_rows,) or of str, or data frame
            The labels of each factor; or the columns of the frame `X` that hold them.
        sample_weight : array-like of shape (n_rows,) or str, optional
            Precision of each row, as ``weights=`` of lme4; of binomial and Poisson rows, the number
            by which its log-likelihood is multiplied. Whole ones of rows that are 0 or 1 are
            frequencies, as in `LogisticEB`: the fit has as many rows. A row of weight 0 is left
            out.
        offset : array-like of shape (n_rows,) or str, optional
            Known part of the linear predictor of each row, such as the logarithm of an exposure.
        trials : array-like of shape (n_rows,) or str, optional
            Number of trials of each binomial row, of which `y` are successes; 1 if None.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            If there are fewer than two factors, a factor has one level, or as many as rows, or too
            many; rows are missing or infinite; columns are collinear; or nothing varies.
        """
        known = METHODS["gaussian" if str(self.family) == "gaussian" else "others"]
        if str(self.method) not in known:
            names = " or ".join(map(repr, known))
            raise ValueError(f"method of {self.family} rows must be {names}; got {self.method!r}.")
        if not isinstance(self.fit_intercept, bool | np.bool_):
            raise ValueError(f"fit_intercept must be True or False; got {self.fit_intercept!r}.")
        family = self._family
        options = {"sample_weight": sample_weight, "offset": offset, "trials": trials}
        roles = Roles().learned(X, {"y": y, "groups": groups} | options)
        rows = CrossedRows.of(X, y, groups, options)
        design, found = self._design(rows, reset=True), rows.responses(family)
        keep = found.weight > 0
        design, found, numbered = design[keep], found.take(keep), rows.numbers_of(keep)
        ids, codes = [each[0] for each in numbered], [each[1] for each in numbered]
        for style, own in zip(rows.styles, ids, strict=True):
            warn_of_blanks(own, f"groups {style.group!r}")
        check_size(design)
        read = {
            "names": [style.group for style in rows.styles],
            "roles": dict(roles.columns),
            "has_offset": "offset" in rows.beside,
            "has_weights": "sample_weight" in rows.beside,
            "counts_rows": counts_rows(found, rows.beside, family),
        }
        return self._fit_rows(design, found, codes, ids, rows.styles, read)

    def _fit_rows(
        self,
        design: NDArray,
        found: Responses,
        codes: list[NDArray],
        ids: list[NDArray],
        styles: list[Style],
        read: dict[str, Any],
    ) -> Self:
        """Fit rows with the level of each factor, and what was read of them."""
        family, names, sizes = self._family, read["names"], [len(each) for each in ids]
        terms = self.terms_
        varying = varying_of(self.varying, self.covariance, names, terms)
        every = [[term for block in own for term in block] for own in varying]
        differ = {term for own in every for term in own}
        own = self._all_terms([term for term in terms if term in differ]).fixed_places()
        some, none = independent_columns(design[:, own] * np.sqrt(found.weight)[:, None])
        columns, null = own[some], np.zeros((len(terms), none.shape[1]))
        null[own] = none
        alone = family is not None and family.alone(found)
        check_factors(names, sizes, list(map(len, every)), len(design), alone)
        effects = [size * len(own) for size, own in zip(sizes, every, strict=True)]
        order = np.argsort([-each for each in effects], kind="stable").tolist()
        bases = [columns_at(design, places_of(own, terms)) for own in every]
        fixed = fixed_too(design[:, columns], found.weight, codes, bases)
        columns_of = codes, names, sizes, varying, fixed
        first = [[each[k] for k in order] for each in columns_of]
        given: list[Any] = [*first, design, terms, columns, found]
        self._problem = CrossedProblem(*given)
        fit = self._problem.fit(family, self._restricted)
        kept: dict[str, Any] = read | {
            "order": order,
            "varying": varying,
            "own": own,
            "null": null,
            "fixed": [np.flatnonzero(each) for each in fixed],
        }
        times = found.weight.astype(np.int64) if read["counts_rows"] else np.ones(len(design), int)
        sums = zip(codes, sizes, strict=True)
        n = [np.bincount(own, times, size).astype(np.int64) for own, size in sums]
        if not fit.converged:
            warnings.warn(UNFINISHED, ConvergenceWarning, stacklevel=3)
        self._learn(fit, kept, styles, ids, n)
        for note in unidentified(self):
            warnings.warn(note, IdentificationWarning, stacklevel=3)
        self.notes_ += far_notes(_blocks(varying, terms), terms, lambda: design.T @ design)
        if family is not None:
            endless = endless_terms(family, design, found, terms)
            self.notes_ += warn_of_unending(endless if endless.terms else None)
        return self

    def _learn(
        self,
        fit: CrossedFit,
        kept: dict[str, Any],
        styles: list[Style],
        ids: list[NDArray],
        n: list[NDArray],
    ) -> Self:
        """Set learned attributes."""
        self._fit, self._kept, self._styles, self._ids, self._n = fit, kept, styles, ids, n
        self._names, self._order = kept["names"], kept["order"]
        self._columns, p = fit.fixed_columns, len(self.terms_)
        self.mean_, self.mean_covariance_ = np.zeros(p), np.zeros((p, p))
        self.mean_[self._columns] = fit.mean
        self.mean_covariance_[np.ix_(self._columns, self._columns)] = fit.mean_covariance
        self.criterion_, self.log_likelihood_ = fit.criterion, -fit.criterion / 2
        self.noise_variance_, self.converged_ = fit.noise, fit.converged
        own = map(fit.population, np.argsort(self._order).tolist())
        self.covariances_ = dict(zip(self._names, own, strict=True))
        self.variances_: dict[str, Any] = {
            name: float(each[0, 0]) if terms == [INTERCEPT] else np.diag(each)
            for (name, each), terms in zip(self.covariances_.items(), self._varying, strict=True)
        }
        self.levels_ = dict(zip(self._names, ids, strict=True))
        self.notes_ = notes_of_crossed(self)
        return self

    @property
    def _estimable(self) -> Estimable:
        """Combinations of the coefficients that the rows of the fit identify."""
        check_is_fitted(self, "mean_")
        return Estimable(self._kept["null"], self.terms_)

    @property
    def _varying(self) -> list[list[str]]:
        """Terms that differ between the levels of each factor, one block after the other."""
        check_is_fitted(self, "mean_")
        return [[term for block in own for term in block] for own in self._kept["varying"]]

    @property
    def _of_mean(self) -> NDArray[np.int64]:
        """Places of the coefficients whose mean is not zero."""
        check_is_fitted(self, "mean_")
        return self._kept["own"]

    def _total_spread(self) -> NDArray[np.float64]:
        """Covariance of the coefficients of new levels of all factors, (p, p)."""
        total = np.zeros((len(self.terms_),) * 2)
        for terms, each in zip(self._varying, self.covariances_.values(), strict=True):
            own = places_of(terms, self.terms_)
            if min(own) < 0:
                raise ValueError("group='new' needs a column for every term that differs.")
            total[np.ix_(own, own)] += each
        return total

    def _all_terms(self, varying: Sequence[str] | None = None) -> Columns:
        """Columns of X, some of which vary between levels; all, if None."""
        names = "\n".join(getattr(self, "feature_names_in_", ()))
        given = bool(self.fit_intercept), varying
        return Columns(self.n_features_in_, names, *given, fixed=self.fixed)

    def _within(self, design: NDArray) -> NDArray:
        """Return columns, NaN in rows that those of the fit do not identify."""
        return self._estimable.masked(design, "rows")

    @property
    def _restricted(self) -> bool:
        """Whether the likelihood is that of Gaussian rows, restricted."""
        return str(self.family) == "gaussian" and str(self.method) != "ml"

    @property
    def _family(self) -> ResponseFamily | None:
        """Family of the rows; None if they are Gaussian."""
        if str(self.family) != "gaussian":
            return family_named(self.family, self.link)
        if self.link is not None:
            raise ValueError(f"link of gaussian rows must be None; got {self.link!r}.")
        return None

    def _design(self, rows: CrossedRows, reset: bool) -> NDArray:
        """Columns of rows, that of the intercept first."""
        X = rows.X
        if np.ndim(X) == 2 and np.shape(X)[1] == 0:
            if not reset and self.n_features_in_:
                raise ValueError(f"X has 0 features; the fit had {self.n_features_in_}.")
            values, self.n_features_in_ = np.empty((len(X), 0)), 0
            self.__dict__.pop("feature_names_in_", None)
        else:
            values = validated(self, X, rows.columns, reset=reset)
        return self._all_terms().design(values)

    @property
    def terms_(self) -> list[str]:
        """Names of the coefficients."""
        return self._all_terms().terms

    @property
    def history_(self) -> Any:
        """Deviance, expected fall and noise at each step: a frame."""
        check_is_fitted(self, "mean_")
        rows = self._fit.history
        columns = {"round": np.arange(1, len(rows) + 1)}
        columns |= {name: np.array([row[name] for row in rows]) for name in rows[0]}
        return frame(columns, self._style_)

    @property
    def _style_(self) -> Any:
        return self._styles[0]

    # Effects ----------------------------------------------------------------------------------

    def _number_of(self, level: str | None) -> int:
        """Return the number of a factor."""
        check_is_fitted(self, "mean_")
        check_choice("level", level, self._names)
        return self._names.index(level)

    def _effects(self, level: str | None, given_mean: bool = False) -> Posterior:
        """Posterior of the effects of the levels of a factor."""
        number = self._number_of(level)
        place = self._order.index(number)
        covariance = self._fit.covariances(place, given_mean)
        mean = self._fit.effects(place)
        posterior: Posterior
        if mean.shape[1] == 1:
            posterior = IndependentNormals(mean, np.sqrt(covariance[:, :, 0]))
        else:  # the coefficients of X are in the covariance
            none = np.zeros_like(covariance)
            posterior = NormalCoefficients(mean, covariance, none, none[0])
        counts, style = {"n": self._n[number]}, self._styles[number]
        return posterior.labelled(self._ids[number], counts, style, tuple(self._varying[number]))

    def posterior(self, level: str | None = None) -> Posterior:
        """Posterior of the effects of the levels of a factor.

        Parameters
        ----------
        level : str
            Name of the factor, which must be given: a posterior is of the levels of one. `ranef`
            and `coef` have the levels of all.

        Returns
        -------
        Posterior
            One entry per level, in the order of the sorted labels, with what is not known of the
            coefficients of X and of the variances (see `ebfed.regression.numerics.crossed_doubt`);
            the estimates are those at the fitted ones.

        Raises
        ------
        ValueError
            If there is no such factor.
        """
        return self._effects(level)

    def ranef(self, level: str | None = None) -> Any:
        """Return the effects of levels, with standard deviations given the coefficients of X.

        These are lme4's conditional modes and conditional standard deviations.

        Parameters
        ----------
        level : str, optional
            Name of a factor. None: all, one after the other.

        Returns
        -------
        DataFrame
            Of one factor: its labels, ``estimate`` and ``std.error``; of all: ``group``, the name
            of the factor, ``level``, the label as text, ``estimate`` and ``std.error``. Of factors
            with slopes a row for each coefficient, which ``term`` names.

        Raises
        ------
        ValueError
            If there is no such factor.
        """
        return self._frame_of(level, self._of_effects, named=False)

    def _of_effects(self, name: str) -> _OfLevels:
        found = self._effects(name, given_mean=True)
        return _OfLevels(found.terms, found.mean, found.sd)

    def coef(self, level: str | None = None) -> Any:
        """Return the coefficients of levels: those of all rows, and how each differs.

        Parameters
        ----------
        level : str, optional
            Name of a factor. None: all, one after the other, as lme4's ``coef`` has a list of them.

        Returns
        -------
        DataFrame
            A row for each level and each term that differs: the label, ``term``, ``estimate`` and
            ``std.error``, which has what is not known of both. Of all factors, ``group`` and
            ``level``, the name of the factor and the label as text, are in the place of the label.

        Raises
        ------
        ValueError
            If there is no such factor.
        """
        return self._frame_of(level, self._of_coefficients, named=True)

    def _of_coefficients(self, name: str) -> _OfLevels:
        found = self._effects(name)
        place = self._order.index(self._names.index(name))
        own = [[float(term == each) for each in self.terms_] for term in found.terms]
        design = self._within(np.array(own))
        errors = self._fit.errors_with(place, design)
        return _OfLevels(found.terms, found.mean + self._fit.fixed(design), errors)

    def _tidy_groups(self, effect: str, conf_int: bool, level: float) -> Any:
        """Return a row for each level and term of all factors, as `ranef` or `coef` has them."""
        own = self._of_effects if effect == "ran_vals" else self._of_coefficients
        columns = self._columns_of(None, own, named=True)
        columns = {"effect": np.full(len(columns["term"]), effect)} | columns
        if conf_int:
            reach = ndtri((1 + level) / 2) * columns["std.error"]
            columns |= {"conf.low": columns["estimate"] - reach}
            columns |= {"conf.high": columns["estimate"] + reach}
        return frame(columns, self._style_.unlabelled())

    def reliability(self, level: str | None = None) -> Any:
        """Return the share of each effect's variance that the rows of its level explain.

        It is ``1 - condVar / variance``, of the variance of an effect given its rows and
        coefficients of X, and that of all effects of the factor.

        Parameters
        ----------
        level : str, optional
            Name of a factor; the first if None.

        Returns
        -------
        DataFrame
            Labels, and a column for each term that differs between levels.
        """
        check_is_fitted(self, "mean_")
        name = self._names[0] if level is None else level
        effects = self._effects(name, given_mean=True)
        shares = reliability(effects.terms, effects.sd, self.covariances_[name])
        style = self._styles[self._names.index(name)].avoiding(shares)
        return frame({style.group: self.levels_[name]} | shares, style)

    def _frame_of(self, level: str | None, found: Callable[[str], _OfLevels], named: bool) -> Any:
        """Put the numbers of one factor or of all into a frame."""
        columns = self._columns_of(level, found, named)
        one = None if level is None else self._styles[self._names.index(level)]
        return frame(columns, self._style_.unlabelled() if one is None else one)

    def _columns_of(
        self, level: str | None, found: Callable[[str], _OfLevels], named: bool
    ) -> dict[str, NDArray]:
        """Return labels and numbers of one factor or of all, one after the other.

        `named` is whether to name the terms also where only the intercept differs.
        """
        check_is_fitted(self, "mean_")
        names = self._names if level is None else [level]
        parts = [found(name) for name in names]
        columns: dict[str, NDArray] = {}
        if level is None:
            sizes = [part.estimate.size for part in parts]
            columns["group"] = np.repeat(np.array(names, object), sizes)
            labels = [
                np.repeat(np.array(list(map(str, ids.tolist())), object), len(part.terms))
                for ids, part in zip(self._ids, parts, strict=True)
            ]
            columns["level"] = np.concatenate(labels)
        else:
            style = self._styles[self._names.index(level)]
            columns[style.group] = np.repeat(self.levels_[level], len(parts[0].terms))
        if named or any(part.terms != (INTERCEPT,) for part in parts):
            terms = [np.tile(np.array(each.terms, object), len(each.estimate)) for each in parts]
            columns["term"] = np.concatenate(terms)
        columns["estimate"] = np.concatenate([part.estimate.ravel() for part in parts])
        columns["std.error"] = np.concatenate([part.std_error.ravel() for part in parts])
        return columns

    def to_sql(self, *args: Any, **options: Any) -> str:
        """Raise a ValueError: a row has effects of several factors, of which there is no SQL."""
        raise ValueError(f"{type(self).__name__} has no SQL: rows have effects of several factors.")

    # Predictions ------------------------------------------------------------------------------

    def _placed(self, X: Any, groups: Any, offset: Any) -> tuple[NDArray, NDArray, NDArray]:
        """Columns of rows, their offsets, and the level of each factor, -1 if it is unseen."""
        check_is_fitted(self, "mean_")
        rows = self._rows(X, groups=groups, offset=offset)
        if self._kept["has_offset"] and "offset" not in rows.beside:
            raise ValueError("offset= must give the offset of each row, as in the fit.")
        codes = np.full((len(rows), len(self._names)), -1)
        if rows.levels and len(rows.levels) != len(self._names):
            raise ValueError(
                f"groups has {len(rows.levels)} factors; the fit had {len(self._names)}."
            )
        if rows.levels:
            codes = rows.codes_among([self._ids[k] for k in self._order], self._order)
        return self._within(self._design(rows, reset=False)), rows.offset, codes

    def _rows(self, X: Any, **given: Any) -> CrossedRows:
        """Read rows; what is None may be in columns of a frame, as it was in the fit."""
        found = Roles(self._kept["roles"]).found(X, given)
        asked = {role: found.get(role) for role in given}
        y, groups = asked.pop("y", None), asked.pop("groups", None)
        features = set(getattr(self, "feature_names_in_", ()))
        aside = [str(name) for name in column_names(X) if str(name) not in features]
        named = bool(features) or not self.n_features_in_
        return CrossedRows.of(X, y, groups, asked, aside if named else ())

    @property
    def _shapes(self) -> NDArray[np.float64]:
        return self._fit.shapes

    def _predictors(
        self, X: Any, groups: Any, offset: Any, averaged: bool | None
    ) -> tuple[NDArray, NDArray]:
        """Posterior means of the linear predictors of rows, and variances, to average over."""
        design, offsets, codes = self._placed(X, groups, offset)
        if averaged is None:
            return self._fit.predictor(design, codes) + offsets, np.zeros(0)
        if averaged:
            variance = self._averaged(design, codes)
        else:
            variance = self._fit.variance(design, codes, given=False)
        return self._fit.predictor(design, codes) + offsets, variance

    def _averaged(self, design: NDArray, codes: NDArray) -> NDArray:
        """Variance of linear predictors over which responses are averaged."""
        fit = self._fit
        own = fit.variance(design, np.full_like(codes, -1)) - fit.spread(design)
        return averaged_variance(fit.variance(design, codes), own)

    def std_errors(self, X: Any, *, groups: Any = None) -> NDArray:
        """Return the standard error of each row's linear predictor.

        Effects of levels that were not in the fit vary by their population.

        Parameters
        ----------
        X, groups : as in `predict`

        Returns
        -------
        ndarray of shape (n_rows,)
        """
        check_is_fitted(self, "mean_")
        none = 0.0 if self._kept["has_offset"] else None
        design, _, codes = self._placed(X, groups, none)
        return np.sqrt(self._fit.variance(design, codes, given=False))

    def _noise(self, X: Any, sample_weight: Any) -> NDArray | float:
        noise = (1 + self._fit.excess_noise) * self.noise_variance_
        if sample_weight is None and not self._kept["has_weights"]:
            return noise
        weight = self._rows(X, sample_weight=sample_weight).beside.get("sample_weight")
        if weight is None:
            warnings.warn(OF_WEIGHT_ONE, stacklevel=3)
        return of_weights(noise, weight)

    # Reports ----------------------------------------------------------------------------------

    def _inference(self, ddf: Method | None) -> Inference:
        counts = self.family != "gaussian"
        of_numbers = () if counts else ("kenward-roger",)
        known = "satterthwaite", *of_numbers, "asymptotic"
        if ddf not in (None, *known):
            raise ValueError(
                f"ddf must be {' or '.join(map(repr, known))} for CrossedEB of {self.family} rows; "
                f"got {ddf!r}."
            )
        nearby = None if ddf == "asymptotic" else self._fit.surroundings.found[0]
        if counts and nearby is None and ddf == "satterthwaite":
            raise ValueError(
                f"ddf={ddf!r} needs a fit that converged to a maximum of the likelihood; "
                "'asymptotic' is for z tests."
            )
        check_noise(self, "tests")
        if ddf == "asymptotic" or (counts and nearby is None):
            return FixedDegrees(self.mean_, self.mean_covariance_, np.inf)
        if nearby is not None:
            return SpreadDegrees(self.mean_, nearby.turned(self._all_columns))
        triangle = self._fit.triangle
        back = solve_triangular(triangle, np.eye(len(triangle)), lower=False)
        back = self._all_columns @ back
        made = crossed_kenward_roger if ddf == "kenward-roger" else crossed_satterthwaite
        return made(self.mean_, self._fit.system, back, self._fit.blocks)

    def _of_shapes(self, mean: NDArray) -> list[Parameter]:
        """Rows of `tidy` for a dispersion, shape or thresholds."""
        family, t = self._family, len(self._fit.shapes)
        assert family is not None
        p = len(mean)
        turn = np.eye(p + t)[:, [*self._columns, *range(p, p + t)]]
        return family.parameters(mean, self._fit.shapes, turn @ self._fit.known @ turn.T)

    @property
    def _all_columns(self) -> NDArray:
        """Map from coefficients of the columns of the fit to those of all columns."""
        return np.eye(len(self.terms_))[:, self._columns]

    def _diagnosed(self, X: Any, y: Any, groups: Any, options: Mapping[str, Any]) -> Diagnostics:
        return rows_of_crossed(self, X, y, groups, options)

    def _has_degrees(self) -> bool:
        return has_noise(self)

    def _criterion(self, method: str) -> CrossedCriterion | CrossedLaplaceCriterion:
        """Return the deviance of the fit as a function of its parameters."""
        check_noise(self, f"intervals by {method!r}")
        if self._family is None:
            return CrossedCriterion(self, method == "restricted")
        check_not_restricted(method)
        self._rows_of_fit(f"intervals by {method!r}")
        if self._family.classes and (not self.fit_intercept or 0 not in self._columns):
            raise ValueError(f"method={method!r} of ordered classes needs an intercept.")
        return CrossedLaplaceCriterion(self)

    def _redraws(self, rng: np.random.Generator) -> Callable[[], CrossedEB]:
        """Return a function that draws responses of the rows of the fit, and fits again."""
        problem = self._rows_of_fit("intervals by 'bootstrap'")
        family, fit = self._family, self._fit
        if family is not None:
            check_drawn(family, problem.responses)

        def again() -> CrossedEB:
            found = problem.drawn(fit, family, rng).fit(family, self._restricted)
            return copy(self)._learn(found, self._kept, self._styles, self._ids, self._n)

        return again

    def _rows_of_fit(self, what: str) -> CrossedProblem:
        if self._problem is None:
            raise ValueError(f"the rows of the fit are needed for {what}; a file has none.")
        return self._problem

    def _groups_of(self, level: str | None) -> LeftOut:
        """Return the levels of a factor, and the level of each row."""
        problem = self._rows_of_fit("leaving levels out")
        number = self._number_of(self._names[0] if level is None else level)
        place = self._order.index(number)
        figures = self._ids[number], self._n[number], self._styles[number]
        return LeftOut(place, problem.codes[place], *figures)

    def _changes_without(self, groups: LeftOut) -> NDArray[np.float64] | None:
        """Changes of the coefficients at the variances of the fit; None of other families."""
        if self._family is not None:
            return None
        check_noise(self, "influences")
        problem = self._rows_of_fit("leaving levels out")
        return changes_of_crossed(self._fit, problem, groups.place) @ self._all_columns.T

    def _without(self, out: NDArray[np.bool_]) -> CrossedEB:
        """Fit again without some rows."""
        problem = self._rows_of_fit("leaving levels out")
        codes = [problem.codes[self._order.index(k)][~out] for k in range(len(self._ids))]
        numbered = [np.unique(own, return_inverse=True) for own in codes]
        ids = [every[there] for every, (there, _) in zip(self._ids, numbered, strict=True)]
        rows = problem.design[~out], problem.responses.take(~out), [own for _, own in numbered]
        return copy(self)._fit_rows(*rows, ids, self._styles, self._kept)

    def _products(self) -> NDArray[np.float64]:
        """Products of the columns of the mean with themselves and the response; see `GroupView`."""
        problem = self._rows_of_fit("comparing restricted likelihoods")
        X, rows = problem.design[:, self._of_mean], problem.responses
        return (X * rows.weight[:, None]).T @ np.column_stack([X, rows.y - rows.offset])

    def __ebfed_view__(self) -> RegressionView:
        """Return what reports and plots read of the fit: of groups, those of the first factor."""
        check_is_fitted(self, "mean_")
        first = self._names[0]
        counts = ", ".join(f"{name} ({len(ids):,})" for name, ids in self.levels_.items())
        known = self._estimable.coefficients
        errors = np.where(known, np.sqrt(np.diag(self.mean_covariance_)), np.nan)
        means = np.where(known, self.mean_, np.nan)
        own = self._kept["own"]
        found = fixed_parameters([self.terms_[j] for j in own], means[own], errors[own])
        n_more = len(self._columns) - len(found) - sum(map(len, self._kept["fixed"]))
        gaussian = self.family == "gaussian"
        for (name, each), own in zip(self.covariances_.items(), self._kept["varying"], strict=True):
            ends = np.cumsum([0, *map(len, own)])
            blocks = [np.arange(i, j) for i, j in pairwise(ends)]
            terms = [term for block in own for term in block]
            found += spread_parameters(name, terms, each, blocks, correlated=True)
        if gaussian:
            found.append(residual_parameter(self.noise_variance_))
        else:
            found += self._of_shapes(means)
        given, terms = self._effects(first, given_mean=True), self._varying[0]
        name = "REML" if self._restricted else "ML"
        family = self.family if self.link is None else f"{self.family} ({self.link})"
        figures = {"sigma": float(np.sqrt(self.noise_variance_))} if gaussian else {}
        if gaussian and self._restricted:
            figures["REMLcrit"] = self.criterion_
        return RegressionView(
            title=type(self).__name__,
            style=self._style_,
            is_server=False,
            sizes=self._n[0],
            columns=[term for term in self.terms_ if term != INTERCEPT],
            ledger=[],
            notes=self.notes_,
            terms=terms,
            varies=np.ones(len(terms), bool),
            method=f"{name}, exact" if gaussian else f"{family}, Laplace",
            n_parameters=len(found) + n_more,
            posterior=lambda: self.posterior(first),
            posterior_given_population=lambda: given,
            expected=lambda: np.zeros(given.mean.shape),
            log_likelihood=lambda: self.log_likelihood_,
            likelihood_kind=name if gaussian else "approximate",
            maximum=self._fit.maximum if gaussian else None,
            design_products=self._products if gaussian and self._problem is not None else None,
            population=f"normal effects of the levels of {counts}",
            has_density=gaussian,
            parameters=lambda: found,
            figures=lambda: figures,
            between=self.covariances_[first],
            converged=self.converged_,
            n_rounds=len(self._fit.history),
            n_steps=len(self._fit.history),
            degrees=self._degrees(),
            has_offset=bool(self._kept["has_offset"]),
        )
