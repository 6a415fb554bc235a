"""Regression: coefficients for every group, estimated together.

A subclass says what clients tell and what the server makes of it (`start`, `local`, `update`), how
to take over what was learned (`_learn`), and what the population then says of a block of clients
(`_posterior`). Reading, predicting and reporting are here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ebfed.engines.rounds import converse_here
from ebfed.engines.supervised import SupervisedEstimator
from ebfed.priors import Posterior
from ebfed.privacy import ledger
from ebfed.report.effects import GroupEffects
from ebfed.report.view import Parameter, RegressionView
from ebfed.tables.clients import Clients
from ebfed.tables.frames import read_labels
from ebfed.tables.labels import number_labels

__all__ = [
    "INTERCEPT",
    "Parameter",
    "RegressionEstimator",
    "fixed_parameters",
    "residual_parameter",
    "spread_parameters",
]

INTERCEPT = "intercept"


class RegressionEstimator(GroupEffects, SupervisedEstimator):
    """Coefficients theta_i of every group i, drawn from a population that the fit learns.

    A block of clients is a `Clients` with sorted labels (or what `_block` makes of one), the column
    of the intercept first.

    Attributes
    ----------
    clients_ : block of clients
        Their rows (which, in a real federation, stay with them).
    groups_ : ndarray of shape (n_groups,)
        Labels, sorted.
    terms_ : list of str
        Names of the p coefficients, the intercept first.
    mean_ : ndarray of shape (p,)
        Mean of the population.
    history_ : DataFrame
        One row for each round or step.
    converged_ : bool or None
        Whether what was to be found was; None where steps are given rather than a goal.
    notes_ : list of str
        What a reader should know of the fit: what was not identified, or is at a boundary.
    privacy_ : DataFrame
        Ledger of what left the clients.
    n_features_in_ : int
    """

    # What a state holds in the end that clients are told.
    RESULTS: ClassVar[tuple[str, ...]] = ()
    # What the ledger says clients send.
    SENT: ClassVar[str] = "figures of each client's rows, as they are"

    fit_intercept: bool
    # Columns whose coefficients differ between groups; all if None.
    varying: Sequence[str | int] | None = None

    mean_: NDArray
    notes_: list[str]

    # Hooks ------------------------------------------------------------------------------------

    def _block(self, clients: Clients) -> Any:
        """Return what is kept of clients' rows: a block with `ids`, `n`, `split` and `merge`."""
        return clients

    @abstractmethod
    def _learn(self, sent: dict) -> None:
        """Set learned attributes from the last broadcast, `mean_` and `notes_` among them."""

    @abstractmethod
    def _posterior(self, block: Any) -> Posterior:
        """Posterior of the coefficients of each client of a block."""

    def _empty(self, ids: NDArray) -> Any:
        """Return a block of clients without rows."""
        nothing = np.zeros((0, len(self._centre())))
        return self._block(Clients(ids, np.zeros(len(ids) + 1, np.int64), nothing, np.zeros(0)))

    @abstractmethod
    def _fitted_by(self) -> str:
        """Name the method, in a few words."""

    @abstractmethod
    def _parameters(self) -> list[Parameter]:
        """Rows of `tidy`."""

    def _facts(self) -> dict[str, float]:
        """Return what `glance` is to have besides."""
        return {}

    def _reliability(self) -> dict[str, NDArray]:
        """Share of each coefficient's variance between groups that their own rows explain."""
        variances = np.diag(self.covariance_)
        if self._is_server:
            return {}
        left = self.posterior().sd ** 2
        return {
            term: np.clip(1 - left[:, j] / variances[j], 0, 1)
            for j, term in enumerate(self.terms_)
            if variances[j] > 0
        }

    # Clients ----------------------------------------------------------------------------------

    def prepare(
        self, X: Any, y: Any = None, *, groups: Any = None, consent: Any = None
    ) -> tuple[Any, dict[str, NDArray]]:
        """Read rows, as in `fit`."""
        if consent is not None:
            raise ValueError(f"{type(self).__name__} has no classes of consent.")
        clients, _ = self._read(X, y, groups, reset=True)
        block = self._block(clients)
        return block, {}

    def releases(self, sent: dict, memory: dict, clients: Any) -> list[dict[str, Any]]:
        """List what clients send in a round: figures as they are."""
        return [ledger.disclosure(self.SENT, len(clients), self._bits(sent, clients))]

    @abstractmethod
    def _bits(self, sent: dict, clients: Any) -> float:
        """Bits of the messages of a block of clients in one round."""

    def finish(self, sent: dict, memory: dict, clients: Any) -> Self:
        """Set the learned attributes of these clients' own copy."""
        self._take(sent)
        self._is_server = False
        self.clients_, self._memory = clients, memory
        self._ledger = self._write_ledger(sent)
        return self

    # Server -----------------------------------------------------------------------------------

    def check_message(self, message: dict, facts: dict, sent: dict, turn: NDArray) -> None:
        """Raise a ValueError if that is no answer of the clients that stated these facts."""
        m = len(facts["n"])
        for name, part in message.items():
            if not (isinstance(part, np.ndarray) and part.ndim and len(part) == m):
                raise ValueError(f"{name} must have an entry for each of {m} clients.")
            if part.dtype.kind not in "if" or not np.isfinite(part).all():
                raise ValueError(f"{name} must be finite numbers.")

    def broadcast(self, state: dict) -> dict:
        """Return which round it is and what clients need for it; in the end, the population."""
        if not state["done"]:
            return {"done": False, "round": state["round"]} | self._asked(state)
        names = ("round", "history", "log_likelihood", "converged", *self.RESULTS)
        results = {name: state[name] for name in names}
        return {"done": True, "n_clients": len(state["n"])} | results

    def _asked(self, state: dict) -> dict:
        """Return what clients need for the next round."""
        return {}

    def conclude(self, state: dict) -> Self:
        """Set the learned attributes of the server's own copy, which holds no client's rows."""
        self._become_server(state)
        sent = self.broadcast(state)
        self._take(sent)
        self.clients_ = self._empty(np.arange(len(state["n"])))
        self._n = state["n"]
        self._memory = {}
        self._ledger = self._write_ledger(sent)
        return self

    def _take(self, sent: dict) -> None:
        self.n_iter_, self._history = sent["round"], sent["history"]
        self.converged_ = sent["converged"]
        self._log_likelihood, self._n_clients = sent["log_likelihood"], sent["n_clients"]
        self._learn(sent)

    def _write_ledger(self, sent: dict) -> list[dict]:
        rows = self.releases(sent, self._memory, self.clients_)
        return [row | {"times": sent["round"]} for row in rows]

    # Columns ----------------------------------------------------------------------------------

    def _shape(self) -> dict[str, Any]:
        """Return what a state says of the columns."""
        names = "\n".join(getattr(self, "feature_names_in_", ()))
        return {"n_features": self.n_features_in_, "columns": names}

    def _names(self, state: dict) -> list[str]:
        d = state["n_features"]
        names = state["columns"].split("\n") if state["columns"] else [f"x{j}" for j in range(d)]
        return [INTERCEPT] * bool(self.fit_intercept) + names

    def _varying(self, state: dict) -> NDArray[np.int64]:
        """Positions of the coefficients that differ between groups."""
        names = self._names(state)
        first = int(self.fit_intercept)
        places: dict[Any, int] = {j: first + j for j in range(state["n_features"])}
        places |= {name: j for j, name in enumerate(names)}
        if self.varying is None:
            return np.arange(len(names))
        if isinstance(self.varying, str) or not np.iterable(self.varying):
            raise TypeError(f"varying must be a sequence of columns; got {self.varying!r}.")
        if self.fit_intercept and INTERCEPT in names[1:]:
            raise ValueError(
                f"a column of X is called {INTERCEPT!r}, as is the one that fit_intercept adds; "
                "rename it."
            )
        if any(isinstance(name, bool | np.bool_) for name in self.varying):
            raise TypeError(f"varying must name columns, not mark them; got {self.varying!r}.")
        unknown = [name for name in self.varying if name not in places]
        if unknown:
            known = ", ".join(map(repr, names))
            raise ValueError(f"varying has {unknown[0]!r}, which is none of {known}.")
        return np.unique([places[name] for name in self.varying]).astype(np.int64)

    # Learning ---------------------------------------------------------------------------------

    def _fit(self, clients: Any, memory: dict) -> Self:
        state, memory = converse_here(self, clients, memory)
        return self.finish(self.broadcast(state), memory, clients)

    def partial_fit(self, X: Any, y: Any = None, *, groups: Any = None) -> Self:
        """Add a block of rows to what was fitted before; the answer is that of one `fit` on all.

        Blocks may share groups. Parameters are those of `fit`; without `groups`, the rows of a
        block are new groups, numbered on from those seen.
        """
        if not hasattr(self, "clients_"):
            return self.fit(X, y, groups=groups)
        clients, labels = self._read(X, y, groups, reset=False)
        if labels is None:
            if self.groups_.dtype.kind != "i":
                raise ValueError("groups must label the rows, as they did before.")
            shifted = clients.ids + self.groups_[-1] + 1
            clients = Clients(shifted, clients.indptr, clients.X, clients.y)
        merged = self.clients_.merge(self._block(clients))
        return self._fit(merged, {})

    # Estimates --------------------------------------------------------------------------------

    @property
    def terms_(self) -> list[str]:
        """Names of the coefficients."""
        return [INTERCEPT] * bool(self.fit_intercept) + self._column_names()

    def posterior(self, X: Any = None, y: Any = None, *, groups: Any = None) -> Posterior:
        """Posterior of each group's coefficients.

        Parameters
        ----------
        X, y : as in `fit`, optional
            Rows that the posterior is to use instead of those of the fit.
        groups : as in `fit`, optional
            Without `X`: the groups asked for, each with its rows of the fit; a group that was not
            in the fit has none and gets the population.

        Returns
        -------
        Posterior
            One entry per distinct group, in the order of the sorted labels, and p coordinates.
        """
        block = self._asked_for(X, y, groups)
        return self._labelled(self._posterior(block), block)

    def estimates(self, backend: str | None = None) -> Any:
        """Return the posterior of each group as a frame, of some library if that is named."""
        posterior = self.posterior()
        return (posterior if backend is None else posterior.using(backend)).to_frame()

    def _asked_for(self, X: Any, y: Any, groups: Any, population: Any = None) -> Any:
        """Return the block of clients that a posterior is asked for."""
        check_is_fitted(self, "clients_")
        if X is not None:
            return self._block(self._read(X, y, groups, False, population)[0])
        if self._is_server:
            raise ValueError(
                "the clients kept their rows, and have their estimates; give rows to estimate."
            )
        if groups is None:
            return self.clients_
        return self._known(number_labels(read_labels(groups))[0])

    def _labelled(self, posterior: Posterior, block: Any) -> Posterior:
        return posterior.labelled(block.ids, {"n": block.n}, self._style_, tuple(self.terms_))

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
        return self._linear(X, groups)

    def _linear(self, X: Any, groups: Any, population: Any = None) -> NDArray:
        """Linear predictor at the posterior mean of each row's group, shape (n_rows,)."""
        rows, labels = self._read_design(X, groups, population)
        if labels is None:
            return rows @ self._centre()
        ids, codes = number_labels(labels)
        return np.einsum("np,np->n", rows, self._known_posterior(ids).mean[codes])

    def _centre(self) -> NDArray:
        """Coefficients of a group of which nothing is known."""
        return self.mean_

    def _known_posterior(self, ids: NDArray) -> Posterior:
        return self._posterior(self._known(ids))

    def _known(self, ids: NDArray) -> Any:
        """Rows of these groups in the fit, none for groups that were not in it."""
        import pandas as pd

        if self._is_server:  # a server does not know who is who
            return self._empty(ids)
        place = pd.Index(self.clients_.ids).get_indexer(pd.Index(ids))
        seen = self.clients_.take(place[place >= 0])
        if (place >= 0).all():
            return seen
        return self._empty(ids).merge(seen)

    def score(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, groups: Any = None
    ) -> float:
        """R**2 of the predictions of rows by the coefficients of their groups.

        Parameters
        ----------
        X, y, groups : as in `fit`
        sample_weight : array-like of shape (n_rows,), optional
        """
        fitted = self.predict(X, groups=groups)
        return self._share_explained(X, y, sample_weight, groups, fitted)

    def _share_explained(
        self, X: Any, y: Any, sample_weight: Any, groups: Any, fitted: NDArray
    ) -> float:
        from sklearn.metrics import r2_score

        response = self._table(self._features(X, None, False), y, groups).y
        if response is None:
            raise ValueError(f"y is missing: score compares predictions with it{self._hint()}.")
        return float(r2_score(response, fitted, sample_weight=sample_weight))

    # Reports ----------------------------------------------------------------------------------

    def view(self) -> RegressionView:
        """Return what reports and plots read of the fit."""
        check_is_fitted(self, "clients_")
        terms = self.terms_
        return RegressionView(
            title=type(self).__name__,
            style=self._style_,
            is_server=self._is_server,
            sizes=self._sizes(),
            columns=self._column_names(),
            ledger=self._ledger,
            notes=self.notes_,
            terms=terms,
            varies=np.isin(np.arange(len(terms)), self._varying(self._shape())),
            method=self._fitted_by(),
            n_parameters=self.n_parameters_,
            posterior=self.posterior,
            posterior_given_population=self._given_population,
            expected=self._expected_of_groups,
            log_likelihood=lambda: self.log_likelihood_,
            has_density=self._numeric,
            parameters=self._parameters,
            figures=self._facts,
            reliability=self._reliability,
            converged=self.converged_,
            n_rounds=self.n_iter_,
            n_steps=len(self._history),
        )

    def _given_population(self) -> Posterior:
        return self._posterior(self.clients_)

    def _expected_of_groups(self) -> NDArray:
        return np.broadcast_to(self.mean_, (len(self.groups_), len(self.mean_)))

    def _expected_of_rows(self, X: Any, groups: Any) -> dict[str, NDArray]:
        return {".fixed": self._read_design(X, groups)[0] @ self._centre()}

    @property
    def coef_(self) -> NDArray:
        """Mean of the population without the intercept, shape (d,)."""
        check_is_fitted(self, "mean_")
        return self.mean_[1:] if self.fit_intercept else self.mean_

    @property
    def intercept_(self) -> float:
        """Mean of the population's intercepts."""
        check_is_fitted(self, "mean_")
        return float(self.mean_[0]) if self.fit_intercept else 0.0

    @property
    def log_likelihood_(self) -> float:
        """Log marginal likelihood at the fitted parameters, of all clients of the fit."""
        check_is_fitted(self, "mean_")
        return self._log_likelihood

    @property
    def n_parameters_(self) -> int:
        """Number of fitted parameters of the population."""
        return len(self._parameters())

    def _report(self) -> tuple[Callable, Callable, Callable]:
        from ebfed import report

        return report.tidy, report.glance, report.summary_table

    def _design(self, values: NDArray) -> NDArray:
        """Return the features, the column of the intercept first."""
        first = int(self.fit_intercept)
        design = np.ones((len(values), first + values.shape[1]))
        design[:, first:] = values
        return design


def fixed_parameters(terms: Sequence[str], mean: NDArray, errors: NDArray) -> list[Parameter]:
    """Rows of `tidy` for the means of coefficients."""
    figures = zip(terms, mean, errors, strict=True)
    return [("fixed", "", term, value, error) for term, value, error in figures]


def spread_parameters(
    group: str, terms: Sequence[str], covariance: NDArray, varying: NDArray, *, correlated: bool
) -> list[Parameter]:
    """Rows of `tidy` for the spread of coefficients between groups."""
    spreads = np.sqrt(np.diag(covariance))
    rows = [("ran_pars", group, f"sd__{terms[j]}", spreads[j], np.nan) for j in varying]
    if not correlated:
        return rows
    for a, j in enumerate(varying):
        for k in varying[:a]:
            both = spreads[j] * spreads[k]
            value = covariance[j, k] / both if both > 0 else np.nan
            rows.append(("ran_pars", group, f"cor__{terms[k]}.{terms[j]}", value, np.nan))
    return rows


def residual_parameter(noise_variance: float) -> Parameter:
    """Row of `tidy` for what rows leave over."""
    return "ran_pars", "Residual", "sd__Observation", float(np.sqrt(noise_variance)), np.nan
