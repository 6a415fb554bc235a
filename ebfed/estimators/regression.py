"""Regression: coefficients for every group, estimated together.

A subclass says what clients tell and what the server makes of it (`start`, `local`, `update`), how
to take over what was learned (`_learn`), and what the population then says of a block of clients
(`_posterior`). Reading, predicting and reporting are here.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from ebfed.clients import LARGEST, Clients, number_labels
from ebfed.estimators.base import Estimator
from ebfed.priors import Posterior
from ebfed.privacy import ledger
from ebfed.pushdown import is_lazy
from ebfed.tabular import Style, Table, frame, read, read_labels

__all__ = ["INTERCEPT", "RegressionEstimator"]

INTERCEPT = "intercept"


class RegressionEstimator(Estimator):
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
    notes_ : list of str
        What a reader should know of the fit: what was not identified, or is at a boundary.
    privacy_ : DataFrame
        Ledger of what left the clients.
    n_features_in_ : int
    """

    answers_every_round: ClassVar[bool] = True
    # What a state holds in the end that clients are told.
    RESULTS: ClassVar[tuple[str, ...]] = ()
    # What the ledger says clients send.
    TOLD: ClassVar[str] = "figures of each client's rows, as they are"

    fit_intercept: bool

    mean_: NDArray
    notes_: list[str]
    clients_: Any
    _y_name: str | None = None
    _group_name: str | None = None
    _elsewhere: bool = False

    # Hooks ------------------------------------------------------------------------------------

    def _block(self, clients: Clients) -> Any:
        """Return what is kept of clients' rows: a block with `ids`, `n`, `split` and `merge`."""
        return clients

    def _encode(self, y: NDArray, reset: bool) -> NDArray:
        """Return the response as numbers; with `reset`, learn how."""
        return y

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
    def _parameters(self) -> list[tuple[str, str, str, float, float]]:
        """Rows of `tidy`: term, group, column, estimate, standard error."""

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

    def describe(self, clients: Any, memory: dict) -> dict[str, NDArray]:
        """State numbers of rows, and columns."""
        return {
            "n": clients.n,
            "n_features": np.array([self.n_features_in_]),
            "columns": np.array(["\n".join(getattr(self, "feature_names_in_", ()))]),
        }

    def releases(self, sent: dict, memory: dict, clients: Any) -> list[dict[str, Any]]:
        """List what clients send in a round: figures as they are."""
        return [ledger.disclosure(self.TOLD, len(clients), self._bits(sent, clients))]

    @abstractmethod
    def _bits(self, sent: dict, clients: Any) -> float:
        """Bits of the messages of a block of clients in one round."""

    def finish(self, sent: dict, memory: dict, clients: Any) -> Self:
        """Set the learned attributes of these clients' own copy."""
        self._take(sent)
        self._elsewhere = False
        self.clients_, self._memory = clients, memory
        self._ledger = self._write_ledger(sent)
        return self

    # Server -----------------------------------------------------------------------------------

    def check_facts(self, facts: dict) -> None:
        """Raise a ValueError if that is not what clients may state."""
        kinds = {"n": "i", "n_features": "i", "columns": "U"}
        sound = facts.keys() >= kinds.keys() and all(
            isinstance(facts[name], np.ndarray)
            and facts[name].dtype.kind == kind
            and facts[name].ndim == 1
            for name, kind in kinds.items()
        )
        if not (
            sound
            and len(facts["n"]) > 0
            and len(facts["n_features"]) == len(facts["columns"]) == 1
            and facts["n"].min() >= 0
            and facts["n_features"][0] > 0
        ):
            raise ValueError("facts must be numbers of rows, and columns.")

    def check_message(self, message: dict, facts: dict, sent: dict, turn: NDArray) -> None:
        """Raise a ValueError if that is no answer of the clients that stated these facts."""
        m = len(facts["n"])
        for name, part in message.items():
            if not (isinstance(part, np.ndarray) and part.ndim and len(part) == m):
                raise ValueError(f"{name} must have an entry for each of {m} clients.")
            if part.dtype.kind not in "if" or not np.isfinite(part).all():
                raise ValueError(f"{name} must be finite numbers.")

    def start(self, facts: dict, key: NDArray) -> dict:
        """Return the state before the first round."""
        for name in ("n_features", "columns"):
            if len(np.unique(facts[name])) > 1:
                different = np.unique(facts[name]).tolist()
                raise ValueError(f"clients have different columns: {different}.")
        return {
            "round": 0,
            "done": False,
            "turn": np.zeros(len(facts["n"]), np.int8),
            "key": key,
            "n": facts["n"],
            "n_features": int(facts["n_features"][0]),
            "columns": str(facts["columns"][0]),
            "history": [],
        }

    def broadcast(self, state: dict) -> dict:
        """Return which round it is and what clients need for it; in the end, the population."""
        if not state["done"]:
            return {"done": False, "round": state["round"]} | self._asked(state)
        names = ("round", "history", "log_likelihood", *self.RESULTS)
        results = {name: state[name] for name in names}
        return {"done": True, "n_clients": len(state["n"])} | results

    def _asked(self, state: dict) -> dict:
        """Return what clients need for the next round."""
        return {}

    def conclude(self, state: dict) -> Self:
        """Set the learned attributes of the server's own copy, which holds no client's rows."""
        self._elsewhere = True
        self.n_features_in_ = state["n_features"]
        if state["columns"]:
            self.feature_names_in_ = np.array(state["columns"].split("\n"), object)
        self._style_ = Style()
        sent = self.broadcast(state)
        self._take(sent)
        self.clients_ = self._empty(np.arange(len(state["n"])))
        self._n = state["n"]
        self._memory = {}
        self._ledger = self._write_ledger(sent)
        return self

    def _take(self, sent: dict) -> None:
        self.n_iter_, self._history = sent["round"], sent["history"]
        self._log_likelihood, self._n_clients = sent["log_likelihood"], sent["n_clients"]
        self._learn(sent)

    def _write_ledger(self, sent: dict) -> list[dict]:
        rows = self.releases(sent, self._memory, self.clients_)
        return [row | {"times": sent["round"]} for row in rows]

    # Learning ---------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, *, groups: Any = None) -> Self:
        """Learn the population from rows.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, d)
        y : array-like or series of shape (n_rows,), or str
            The response, or the column of the frame `X` that holds it.
        groups : array-like of shape (n_rows,) or str, optional
            Label of each row, or the column of the frame `X` that holds it. None: every row is a
            group of its own.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            If rows are missing, infinite or of the wrong type, or labels do not fit them.
        """
        return self._fit(*self.prepare(X, y, groups=groups))

    def _fit(self, clients: Any, memory: dict) -> Self:
        state, memory = self._converse_here(clients, memory)
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
    def groups_(self) -> NDArray:
        """Labels of the groups that were fitted, sorted."""
        check_is_fitted(self, "clients_")
        return self.clients_.ids

    @property
    def terms_(self) -> list[str]:
        """Names of the coefficients."""
        return [INTERCEPT] * bool(self.fit_intercept) + self._column_names()

    def _column_names(self) -> list[str]:
        names = getattr(self, "feature_names_in_", None)
        return [f"x{j}" for j in range(self.n_features_in_)] if names is None else list(names)

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

    def _asked_for(self, X: Any, y: Any, groups: Any, population: Any = None) -> Any:
        """Return the block of clients that a posterior is asked for."""
        check_is_fitted(self, "clients_")
        if X is not None:
            return self._block(self._read(X, y, groups, False, population)[0])
        if self._elsewhere:
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

        if self._elsewhere:  # a server does not know who is who
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
    def history_(self) -> Any:
        """What each round or step reached: a frame."""
        check_is_fitted(self, "mean_")
        names = self._history[0] if self._history else ()
        columns: dict[str, Any] = {"round": np.arange(1, len(self._history) + 1)}
        columns |= {name: [row[name] for row in self._history] for name in names}
        return frame(columns, self._style_)

    @property
    def privacy_(self) -> Any:
        """Ledger of what left the clients: a frame with one row for each kind of release."""
        check_is_fitted(self, "mean_")
        return frame(ledger.columns(self._ledger), self._style_)

    @property
    def log_likelihood_(self) -> float:
        """Log marginal likelihood at the fitted parameters, of all clients of the fit."""
        check_is_fitted(self, "mean_")
        return self._log_likelihood

    @property
    def n_parameters_(self) -> int:
        """Number of fitted parameters of the population."""
        return len(self._parameters())

    def tidy(self) -> Any:
        """Return the population's parameters, one row each."""
        from ebfed.report import tidy_regression

        check_is_fitted(self, "mean_")
        return frame(tidy_regression(self), self._style_)

    def glance(self) -> Any:
        """Return the fit in one row: sizes, log-likelihood, information criteria."""
        from ebfed.report import glance_regression

        check_is_fitted(self, "mean_")
        return frame(glance_regression(self), self._style_)

    def _sizes(self) -> NDArray:
        return self._n if self._elsewhere else self.clients_.n

    def summary(self) -> Any:
        """Return the fit as a printed table."""
        from ebfed.report import regression_table

        check_is_fitted(self, "mean_")
        return regression_table(self)

    def augment(self, X: Any, y: Any = None, *, groups: Any = None) -> Any:
        """Return the rows with what is predicted for them and what it leaves over.

        Parameters
        ----------
        X, y, groups : as in `fit`

        Returns
        -------
        DataFrame
            Group label, the columns of `X`, ``y``, then ``fitted`` and ``residual``.
        """
        check_is_fitted(self, "mean_")
        table = self._table(self._features(X, None, False), y, groups)
        values, response = self._validated(table, reset=False)
        labels = np.arange(len(values)) if table.labels is None else table.labels
        fitted = self.predict(X, groups=groups)
        columns: dict[str, Any] = dict(zip(self._column_names(), values.T, strict=True))
        name = self._y_name or "y"
        columns[name] = response
        columns["fitted"] = fitted
        if response.dtype.kind == "f":
            columns["residual"] = response - fitted
        style = table.style.avoiding(columns)
        return frame({style.group: labels} | columns, style)

    # Reading ----------------------------------------------------------------------------------

    def _read(
        self, X: Any, y: Any, groups: Any, reset: bool, population: Any = None
    ) -> tuple[Clients, NDArray | None]:
        """Return clients with sorted labels, the column of the intercept first; and labels."""
        if isinstance(X, Clients):
            return self._read_clients(X, groups, reset, population)
        if reset:
            self._y_name = y if isinstance(y, str) else None
            self._group_name = groups if isinstance(groups, str) else None
        table = self._table(self._features(X, population, reset), y, groups)
        values, response = self._validated(table, reset)
        response = self._encode(response, reset)
        if reset:
            self._style_ = table.style
        design = self._extended(self._design(values), X, table, population, reset)
        if table.labels is None:
            ids = np.arange(len(values))
            return Clients(ids, np.arange(len(values) + 1), design, response), None
        return Clients.from_rows(design, table.labels, response), table.labels

    def _read_clients(
        self, X: Clients, groups: Any, reset: bool, population: Any
    ) -> tuple[Clients, NDArray | None]:
        if groups is not None:
            raise ValueError("groups must be None: clients carry their labels.")
        if X.y is None:
            raise ValueError("y is missing: a regression needs it.")
        labels = np.repeat(X.ids, X.n)
        clients, _ = self._read(X.X, X.y, labels, reset, population)
        if not X.n.all():  # clients without rows are clients too
            silent = X.ids[X.n == 0]
            nothing = np.zeros((0, clients.X.shape[1])), np.asarray(clients.y)[:0]
            empty = type(clients)(silent, np.zeros(len(silent) + 1, np.int64), *nothing)
            clients = clients.merge(empty)
        return clients, labels

    def _hint(self) -> str:
        return "" if self._y_name is None else f"; in the fit it was the column {self._y_name!r}"

    def _table(self, X: Any, y: Any, groups: Any) -> Table:
        """Separate features, response and labels; known names are looked for in frames."""
        if is_lazy(X):
            raise ValueError(
                "X is a table whose rows are not in memory, which only LinearEB can be fitted to; "
                "collect its rows first."
            )
        columns = getattr(X, "columns", ())
        if y is None and self._y_name is not None and self._y_name in columns:
            y = self._y_name
        if groups is None and self._group_name is not None and self._group_name in columns:
            groups = self._group_name
        return read(X, groups, y=y)

    def _validated(self, table: Table, reset: bool) -> tuple[NDArray, NDArray]:
        """Check features and response as scikit-learn does."""
        values, response = validate_data(
            self, table.X, table.y, dtype=np.float64, reset=reset, y_numeric=self._numeric
        )
        _check_size(values)
        if self._numeric:
            try:
                response = response.astype(np.float64)
            except (TypeError, ValueError):
                raise ValueError(f"y must be numbers; {response[0]!r} came.") from None
        return values, response

    # Whether the response is a number, rather than a class.
    _numeric: ClassVar[bool] = True

    def _read_design(
        self, X: Any, groups: Any, population: Any = None
    ) -> tuple[NDArray, NDArray | None]:
        """Return rows with the intercept, and labels, for prediction."""
        check_is_fitted(self, "mean_")
        table = self._table(self._features(X, population, False), None, groups)
        values = validate_data(self, table.X, dtype=np.float64, reset=False)
        _check_size(values)
        if table.labels is not None and len(table.labels) != len(values):
            raise ValueError(
                f"groups has {len(table.labels)} entries for the {len(values)} rows of X."
            )
        design = self._extended(self._design(values), X, table, population, False)
        return design, table.labels

    def _features(self, X: Any, population: Any, reset: bool) -> Any:
        """Return `X` without what is no feature."""
        return X

    def _extended(
        self, design: NDArray, X: Any, table: Table, population: Any, reset: bool
    ) -> NDArray:
        """Return the design with what covariates of groups add."""
        return design

    def _design(self, values: NDArray) -> NDArray:
        first = int(self.fit_intercept)
        design = np.ones((len(values), first + values.shape[1]))
        design[:, first:] = values
        return design


def _check_size(values: NDArray) -> None:
    """Refuse values whose squares would leave the range of float64."""
    if np.abs(values).max(initial=0.0) > LARGEST:
        raise ValueError(
            f"Input X holds a value too large for float64 arithmetic (up to "
            f"{np.abs(values).max():.3g}): its square overflows. Rescale the data."
        )
