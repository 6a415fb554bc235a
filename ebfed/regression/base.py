"""Regression: coefficients for every group, estimated together.

An estimator reads rows, and returns frames. What clients and server compute in rounds is in an
object of `ebfed.regression.rounds`, made from the estimator's arguments; what a fit says of groups
is in an object of `ebfed.regression.population`, made from its learned attributes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ebfed.engines.rounds import converse_here
from ebfed.engines.supervised import SupervisedEstimator
from ebfed.inference.estimable import Estimable
from ebfed.priors import Posterior
from ebfed.regression.columns import INTERCEPT, Columns, Varying
from ebfed.regression.files import RegressionFile
from ebfed.regression.population import FittedPopulation
from ebfed.regression.protocol import RegressionSent
from ebfed.regression.reading import (
    as_read,
    fit_with_block,
    predicted_numbers,
    weighed_clients,
)
from ebfed.regression.rounds import RegressionRounds
from ebfed.report.effects import GroupEffects
from ebfed.report.view import RegressionView
from ebfed.tables.clients import Clients
from ebfed.tables.frames import frame
from ebfed.tables.labels import number_labels
from ebfed.tables.levels import check_depth, number_levels, split_levels
from ebfed.tables.rows import Rows
from ebfed.tables.unseen import warn_of_mistyped, warn_of_unseen
from ebfed.tables.values import read_labels

__all__ = ["RegressionEstimator"]


class RegressionEstimator(GroupEffects, SupervisedEstimator):
    """Coefficients theta_i of every group i, drawn from a population that the fit learns.

    A block of clients is a `Clients` with sorted labels (or what `RegressionRounds.block` makes of
    one), the column of the intercept first.

    Attributes
    ----------
    clients_ : block of clients
        Rows of the groups; in a real federation they stay with the clients.
    groups_ : ndarray of shape (n_groups,)
        Labels, sorted.
    terms_ : list of str
        Names of the p coefficients, the intercept first.
    mean_ : ndarray of shape (p,)
        Mean of the population.
    log_likelihood_ : float
        Log marginal likelihood at the fitted parameters, of all clients of the fit; of a fit by
        REML the restricted one, as lme4 has it.
    likelihood_kind_ : {"ML", "REML", "approximate"}
        Kind of that likelihood: exact, restricted, or an approximation of the exact one.
    n_parameters_ : int
        Number of fitted parameters of the population.
    history_ : DataFrame
        One row for each round or step.
    converged_ : bool or None
        Whether the fit reached its goal; None where it has a fixed number of steps.
    notes_ : list of str
        Remarks on the fit: what was not identified, or is at a boundary.
    privacy_ : DataFrame
        Ledger of what clients sent.
    n_features_in_ : int
    """

    fit_intercept: bool
    # Columns whose coefficients differ between groups; all if None.
    varying: Varying = None
    # Shape of what a block has of the response of a row.
    _per_row: ClassVar[tuple[int, ...]] = ()
    # What a file has of the fit.
    _file: ClassVar = RegressionFile()

    mean_: NDArray
    notes_: list[str]
    # Covariance of each level above the groups, where there are several.
    covariance_above_: dict[str, NDArray]
    # Coefficients that rows separate, while these are fitted.
    _endless: Any = None
    # What a fit to other responses of the rows has learned, from which the next search begins.
    _begun: Any = None

    # Hooks ------------------------------------------------------------------------------------

    @abstractmethod
    def protocol(self) -> RegressionRounds[Any, Any, Any, Any]:
        """Return what clients and server do, by these arguments."""

    @abstractmethod
    def _learn(self, result: Any) -> None:
        """Set learned attributes from what the server has learned, `mean_` and `notes_` too."""

    @abstractmethod
    def _population(self) -> FittedPopulation:
        """Return what the learned attributes say of groups."""

    # Reading ----------------------------------------------------------------------------------

    def _read_block(
        self,
        X: Any,
        y: Any,
        groups: Any,
        reset: bool,
        covariates: Any = None,
        **beside: Any,
    ) -> tuple[Any, NDArray | None]:
        """Return a block of clients, and the number of each row's group."""
        clients, codes, found = weighed_clients(self, X, y, groups, reset, covariates, **beside)
        return self.protocol().block(clients, found.get("sample_weight")), codes

    # Rows of clients as the population takes them.
    _weighed = staticmethod(as_read)

    def _values(self, rows: Rows, reset: bool) -> NDArray[np.float64]:
        """Check features; there may be none where the fit adds an intercept."""
        if rows.columns != [] or not self.fit_intercept:
            return super()._values(rows, reset)
        if reset:
            self.n_features_in_ = 0
            self.__dict__.pop("feature_names_in_", None)
        elif self.n_features_in_:
            raise ValueError(f"X has 0 features; the fit had {self.n_features_in_}.")
        return rows.X

    def _become_server(self, state: Any, kept: dict[str, Any]) -> None:
        super()._become_server(state, kept)
        self._n = state["n"]

    def _take(self, sent: RegressionSent, memory: Any, clients: Any) -> None:
        """Set learned attributes from the last broadcast; a server has no clients' rows."""
        self._is_server, self._memory = clients is None, memory
        if clients is not None:
            self.clients_ = clients
        self.n_iter_, self._history = sent["round"], sent["history"]
        self.converged_ = sent["converged"]
        self.log_likelihood_, self._n_clients = sent["log_likelihood"], sent["n_clients"]
        self._learn(sent["result"])
        if clients is None:
            self.clients_ = self._rows_of(np.arange(len(self._n)))
        elif len(clients) < sent["n_clients"]:  # of one node of several
            self._totals = sent["n_clients"], sent["n_rows"]

    @property
    def n_parameters_(self) -> int:
        """Number of fitted parameters."""
        return self._population().n_parameters

    @property
    def likelihood_kind_(self) -> str:
        """Kind of the log-likelihood."""
        return self._population().likelihood_kind

    # Learning ---------------------------------------------------------------------------------

    def _fit(self, clients: Any, memory: Any) -> Self:
        protocol = self.protocol()
        state, memory = converse_here(protocol, clients, memory, private=protocol.promises())
        self._kept, self._begun = protocol.keep(state), None
        return protocol.finish(protocol.broadcast(state), memory, clients)

    def _beginning_at(self, fit: Self) -> Self:
        """Return this estimator, whose next search begins at a fit to other responses."""
        self._begun = getattr(fit, "_result", None)
        return self

    def fit(self, X: Any, y: Any = None, *, groups: Any = None, sample_weight: Any = None) -> Self:
        """Learn from rows.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, d)
        y : array-like or series of shape (n_rows,), or str
            The response, or the column of the frame `X` that holds it.
        groups : array-like of shape (n_rows,) or str, optional
            Label of each row, or the column of the frame `X` that holds it. None: every row is a
            group of its own.
        sample_weight : array-like of shape (n_rows,) or str, optional
            Weight of each row, or the column of the frame `X` that holds it. Where the response is
            a number, it is a precision: the variance of a row is that of the noise over the weight.
            Where it is a class, it is a frequency, a whole number: the row stands for so many equal
            ones of its group, which are repeated in memory. A row of weight 0 is left out.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            If rows are missing, infinite or of the wrong type, labels or weights do not fit them,
            or an argument is wrong.

        Notes
        -----
        Pandas series and frames pair by label, not by position as in scikit-learn: `y` and `groups`
        in another order than `X` are put in its order, and other labels are refused. An index that
        only counts rows (0, 1, …) holds no labels (`ebfed.tables.alignment`).
        """
        return self._fit(*self.protocol().prepare(X, y, groups=groups, sample_weight=sample_weight))

    def partial_fit(
        self, X: Any, y: Any = None, *, groups: Any = None, sample_weight: Any = None
    ) -> Self:
        """Add a block of rows to those fitted before; the answer is that of one `fit` on all.

        Blocks may share groups. Parameters are those of `fit`; without `groups`, the rows of a
        block are new groups, with numbers after those of the groups before.
        """
        return self._fit_more(X, y, groups, sample_weight=sample_weight)

    def _fit_more(self, X: Any, y: Any, groups: Any, **beside: Any) -> Self:
        """Add a block of rows, and what goes with them, to those fitted before."""
        if not hasattr(self, "clients_"):
            return self.fit(X, y, groups=groups, **beside)
        if self.protocol().promises():
            raise ValueError(
                "partial_fit would ask every client for more reports, at more privacy; fit all "
                "rows at once."
            )
        return fit_with_block(self, *self._read_block(X, y, groups, False, None, **beside))

    def _joined(self, block: Any) -> Any:
        """Return the rows fitted before together with those of a block."""
        return self.clients_.merge(block)

    # Estimates --------------------------------------------------------------------------------

    def _columns(self) -> Columns:
        names = "\n".join(getattr(self, "feature_names_in_", ()))
        levels = self._level_names or ()
        given = bool(self.fit_intercept), self.varying, levels, getattr(self, "fixed", None)
        return Columns(self.n_features_in_, names, *given)

    def _design(self, values: NDArray) -> NDArray:
        return self._columns().design(values)

    @property
    def terms_(self) -> list[str]:
        """Names of the coefficients."""
        return self._columns().terms

    def posterior(
        self,
        X: Any = None,
        y: Any = None,
        *,
        groups: Any = None,
        sample_weight: Any = None,
    ) -> Posterior:
        """Posterior of each group's coefficients.

        Parameters
        ----------
        X, y, sample_weight : as in `fit`, optional
            Rows that the posterior is to use instead of those of the fit.
        groups : as in `fit`, optional
            Groups asked for, without `X`: each with its rows of the fit. A group that was not in
            the fit has none, and gets the population, with an `UnseenGroupWarning`.

        Returns
        -------
        Posterior
            One entry per distinct group, in the order of the sorted labels, and p coordinates.
        """
        return self._posterior_of(self._asked_for(X, y, groups, sample_weight=sample_weight))

    def _posterior_of(self, block: Any) -> Posterior:
        """Posterior of the coefficients of the clients of a block."""
        posterior = self._population().posterior(block)
        return posterior.labelled(
            block.ids, {"n": block.totals()}, self._style_, tuple(self.terms_)
        )

    def reliability(self) -> Any:
        """Return the share of each coefficient's variance that a group's own rows explain.

        It is ``1 - condVar / T_kk``, of the variance of a group's effect given its rows and the
        population, and the variance of effects between groups: near 1 for a group with many rows, 0
        for a group without any. Of groups within groups, effects are differences from the parent.

        Returns
        -------
        DataFrame
            Group label, and a column for each coefficient that differs between groups. Of a
            mixture there is none: coefficients have no single variance there.
        """
        check_is_fitted(self, "mean_")
        columns = self.__ebfed_view__().reliability()
        style = self._style_.avoiding(columns)
        return frame({style.group: self.groups_} | columns, style)

    def _asked_for(self, X: Any, y: Any, groups: Any, covariates: Any = None, **beside: Any) -> Any:
        """Return the block of clients that a posterior is asked for."""
        check_is_fitted(self, "clients_")
        if X is not None:
            block = self._read_block(X, y, groups, False, covariates, **beside)[0]
            return self._weighed(block)
        if self._is_server:
            raise ValueError(
                "X must be given: the rows of the fit are with the clients, who have their "
                "estimates."
            )
        if groups is None:
            return self._weighed(self.clients_)
        levels = split_levels(groups, tuples=bool(self._level_names))
        check_depth(self._level_names, levels)
        columns = [read_labels(each) for each in levels]
        ids, _ = number_levels(columns) if len(columns) > 1 else number_labels(columns[0])
        return self._rows_of(ids, warn=warn_of_unseen)

    def _rows_of(
        self,
        ids: NDArray,
        known: bool = True,
        warn: Callable[[NDArray, NDArray], None] = warn_of_mistyped,
    ) -> Any:
        """Rows of these groups in the fit; none for groups that were not in it."""
        columns = np.zeros((0, self._population().n_columns))
        response = np.zeros((0, *self._per_row)) if self._numeric else self.classes_[:0]
        none = Clients(ids, np.zeros(len(ids) + 1, np.int64), columns, response)
        without = self.protocol().block(none)
        if self._is_server or not known:  # a server does not have the rows of groups
            return without
        warn(ids, self.clients_.ids)
        known_ids, asked = (pd.Index(x, tupleize_cols=False) for x in (self.clients_.ids, ids))
        place = known_ids.get_indexer(asked)
        if not (place >= 0).any():  # labels may be of another type
            return without
        seen = self._weighed(self.clients_.take(place[place >= 0]))
        return seen if (place >= 0).all() else without.merge(seen)

    def predict(self, X: Any, *, groups: Any = None) -> NDArray:
        """Predict each row's response with the coefficients of its group.

        Parameters
        ----------
        X : as in `fit`
        groups : as in `fit`, optional
            Label of each row. A group that was not in the fit is predicted by the population's
            mean; so are all rows if None (unless `X` has the column that held them in the fit).

        Returns
        -------
        ndarray of shape (n_rows,)
        """
        return predicted_numbers(self, X, groups)

    @property
    def coef_(self) -> NDArray:
        """Mean of the population without the intercept, shape (d,)."""
        check_is_fitted(self, "mean_")
        return self.mean_[int(self.terms_[0] == INTERCEPT) :]

    @property
    def intercept_(self) -> Any:
        """Mean of the population's intercepts: the coefficient of that name, which is first."""
        check_is_fitted(self, "mean_")
        return float(self.mean_[0]) if self.terms_[0] == INTERCEPT else 0.0

    # Reports ----------------------------------------------------------------------------------

    def __ebfed_view__(self) -> RegressionView:
        """Return what reports and plots read of the fit."""
        check_is_fitted(self, "clients_")
        population, terms = self._population(), self.terms_
        varies = np.ones(len(terms), bool) if self.varying is None else self._columns().varies()
        return RegressionView(
            title=type(self).__name__,
            style=self._style_,
            is_server=self._is_server,
            sizes=self._sizes(),
            totals=self._totals,
            columns=self._column_names(),
            ledger=self._ledger,
            notes=[*self.notes_, *self._remarks],
            terms=terms,
            varies=varies,
            method=population.fitted_by,
            n_parameters=self.n_parameters_,
            posterior=self.posterior,
            posterior_given_population=lambda: population.posterior_given_population(
                self._weighed(self.clients_)
            ),
            expected=lambda: np.broadcast_to(self.mean_, (len(self.groups_), len(self.mean_))),
            log_likelihood=lambda: self.log_likelihood_,
            likelihood_kind=self.likelihood_kind_,
            population=population.population,
            has_density=self._numeric,
            components=population.components,
            parameters=lambda: population.parameters(terms, self._style_.group),
            figures=population.figures,
            between=population.between,
            converged=self.converged_,
            n_rounds=self.n_iter_,
            n_steps=len(self._history),
            has_offset="offset" in self._roles.columns,
        )

    @property
    def _estimable(self) -> Estimable:
        """Combinations of the mean's coefficients that rows of the fit identify."""
        terms = self._columns().of_mean(getattr(self, "covariate_names_", ()))
        return Estimable(self._result.get("null", np.zeros((len(terms), 0))), terms)

    def _total_spread(self) -> NDArray[np.float64]:
        """Covariance of the coefficients of a new group, over all levels, (p, p)."""
        within = np.asarray(self.covariance_)
        p = len(within)
        return within + sum(np.asarray(each)[:p, :p] for each in self._result.get("above", ()))

    @property
    def _of_mean(self) -> NDArray[np.int64]:
        """Places of the coefficients whose mean is not zero, among all that have one."""
        return self._columns().fixed_places(len(getattr(self, "covariate_names_", ())))

    def _read_design(
        self, X: Any, groups: Any, covariates: Any = None
    ) -> tuple[NDArray, NDArray | None]:
        rows, labels = super()._read_design(X, groups, covariates)
        return self._estimable.masked(rows, "rows"), labels

    def _expected_of_rows(self, X: Any, groups: Any, **options: Any) -> dict[str, NDArray]:
        return {".fixed": self._read_design(X, groups)[0] @ self._population().centre}
