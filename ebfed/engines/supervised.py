"""Learning a response from rows of many groups: reading them, what methods report, and rounds."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

from ebfed.arguments import check_single
from ebfed.engines.protocol import Rounds
from ebfed.engines.publishing import Published, name_columns
from ebfed.privacy import ledger
from ebfed.tables.clients import LARGEST, Clients, order_of_rows
from ebfed.tables.features import check_finite, validated
from ebfed.tables.frames import Style, frame, indexed_like
from ebfed.tables.lazy import is_lazy
from ebfed.tables.levels import check_depth, names_of_levels
from ebfed.tables.of_rows import NOTHING, of_rows
from ebfed.tables.roles import Roles
from ebfed.tables.rows import Rows
from ebfed.tables.unseen import warn_of_blanks
from ebfed.tables.values import numbers, of_one_type

__all__ = ["SupervisedEstimator", "SupervisedRounds", "check_size"]

# Roles that do not go with each row by itself.
OTHERS = ("y", "groups", "covariates")


class SupervisedEstimator(Published):
    """A method whose clients have features and a response, and are labelled by group."""

    clients_: Any
    _history: list[dict]
    _ledger: list[dict]
    # Columns of the frame of the fit that are no features.
    _roles: Roles = Roles()
    # Whether groups may be of several levels.
    _takes_levels: bool = False
    # Names of the levels of the fit, from the outermost; none where there is one. None: no fit yet.
    _level_names: tuple[str, ...] | None = None
    # Whether this copy is a server's, and the rows stay with clients.
    _is_server: bool = False
    # Whether the response is a number, rather than a class.
    _numeric: bool = True
    # Classes that are declared before the rows are read.
    _declared: NDArray | None = None
    # Groups reach these methods where scikit-learn's metadata routing is enabled.
    __metadata_request__fit: ClassVar = {"groups": True}
    __metadata_request__partial_fit: ClassVar = {"groups": True}
    __metadata_request__predict: ClassVar = {"groups": True}
    __metadata_request__predict_proba: ClassVar = {"groups": True}
    __metadata_request__predict_log_proba: ClassVar = {"groups": True}
    __metadata_request__score: ClassVar = {"groups": True}

    def _encode(self, y: NDArray, reset: bool) -> NDArray:
        """Return numbers, or labels of classes; with `reset`, learn which there are."""
        if self._numeric:
            return y
        if y.dtype.kind == "O":
            y = of_one_type(y, "y")
        with np.errstate(invalid="ignore"):  # of huge numbers, as whole ones
            check_classification_targets(y)
        classes = np.unique(y)
        if reset:
            if self._declared is not None:
                try:
                    classes = np.union1d(classes, self._declared)
                except TypeError:
                    raise ValueError(
                        f"classes must be labels like those of y; got {self._declared.tolist()!r}."
                    ) from None
            self._check_classes(classes)
            self.classes_ = classes
        elif not np.isin(classes, self.classes_).all():
            unknown = classes[~np.isin(classes, self.classes_)].tolist()
            raise ValueError(f"y has labels that the fit had not: {unknown}.")
        return y

    def _check_classes(self, classes: NDArray) -> None:
        """Raise a ValueError if these are not the classes that can be learned."""

    @abstractmethod
    def protocol(self) -> Any:
        """Return what clients and server do, by these arguments; see `ebfed.engines.Rounds`."""

    def _become_server(self, state: Any, kept: dict[str, Any]) -> None:
        """Take over the columns of clients whose rows stay with them."""
        self._is_server, self._kept = True, kept
        name_columns(self, state)
        self._style_ = Style()

    # Learning ---------------------------------------------------------------------------------

    @abstractmethod
    def _fit(self, clients: Any, memory: dict) -> Self:
        """Learn from clients that were read."""

    # Reports ----------------------------------------------------------------------------------

    @property
    def groups_(self) -> NDArray:
        """Labels of the groups that were fitted, sorted."""
        check_is_fitted(self, "clients_")
        return self.clients_.ids

    def _column_names(self) -> list[str]:
        names = getattr(self, "feature_names_in_", None)
        return [f"x{j}" for j in range(self.n_features_in_)] if names is None else list(names)

    @property
    def history_(self) -> Any:
        """What each round or step reached: a frame."""
        check_is_fitted(self, "clients_")
        rows = self._history_rows()
        columns: dict[str, Any] = {"round": np.arange(1, len(rows) + 1)}
        columns |= {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}
        return frame(columns, self._style_)

    def _history_rows(self) -> list[dict]:
        return self._history

    @property
    def privacy_(self) -> Any:
        """Ledger of what clients sent: a frame with one row for each kind of release."""
        check_is_fitted(self, "clients_")
        return frame(ledger.columns(self._ledger), self._style_)

    def _sizes(self) -> NDArray:
        return self._n if self._is_server else self.clients_.n

    def score(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        **options: Any,
    ) -> float:
        """R**2 of predicted numbers, or share of rows whose class is predicted.

        Parameters
        ----------
        X, y, groups : as in `fit`
        sample_weight : array-like of shape (n_rows,), optional
        **options
            Arguments of `predict`.
        """
        beside = {} if sample_weight is None else {"sample_weight": sample_weight}
        rows = self._rows(X, y, groups, beside=beside)
        if rows.y is None:
            raise ValueError(f"y is missing: score compares predictions with it{self._hint()}.")
        predicted = self.predict(X, groups=groups, **options)
        return _score_of(rows.y, predicted, rows.beside.get("sample_weight"), self._numeric)

    def augment(self, X: Any, y: Any = None, *, groups: Any = None, **options: Any) -> Any:
        """Return the rows with their predictions and residuals.

        Parameters
        ----------
        X, y, groups : as in `fit`
        **options
            Arguments of `predict`.

        Returns
        -------
        DataFrame
            Group label, the columns of `X`, ``y``, then ``.fitted`` and, of numbers, ``.resid`` and
            ``.fixed``: the prediction for a group that is not known. Of a pandas frame,
            with its index.
        """
        check_is_fitted(self, "clients_")
        rows = self._rows(X, y, groups)
        values, response = self._validated(rows, reset=False)
        labels = np.arange(len(values)) if rows.labels is None else rows.labels
        fitted = self.predict(X, groups=groups, **options)
        columns: dict[str, Any] = dict(zip(self._column_names(), values.T, strict=True))
        name = str(self._roles.columns.get("y") or "y")
        columns[name] = response
        columns[".fitted"] = fitted
        if self._numeric:
            columns[".resid"] = response - fitted
            columns |= self._expected_of_rows(X, groups, **options)
        style = rows.style.avoiding(columns)
        return indexed_like(frame({style.group: labels} | columns, style), X)

    def _expected_of_rows(self, X: Any, groups: Any, **options: Any) -> dict[str, NDArray]:
        """Column of what would be fitted if nothing were known of the groups, where that is."""
        return {}

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, RegressorTags

        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        if self._numeric:
            tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags()
        else:
            tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags()
        return tags

    # Reading ----------------------------------------------------------------------------------

    def _read(
        self,
        X: Any,
        y: Any,
        groups: Any,
        reset: bool,
        covariates: Any = None,
        beside: Mapping[str, Any] = NOTHING,
    ) -> tuple[Clients, NDArray[np.int64] | None, Mapping[str, NDArray]]:
        """Return clients with sorted labels, the number of each row's, and what goes with rows."""
        if isinstance(X, Clients):
            found = {name: of_rows(each, name) for name, each in beside.items()}
            return *self._read_clients(X, groups, reset, covariates), found
        if reset:
            check_single(self)
            roles = {"y": y, "groups": groups, "covariates": covariates}
            self._roles, self._level_names = self._roles.learned(X, roles), None
        rows = self._rows(X, y, groups, beside=beside)
        if reset:
            self._level_names = names_of_levels(rows.style)
        values, response = self._validated(rows, reset)
        response = self._encode(response, reset)
        if reset:
            self._style_ = rows.style
        design = self._extended(self._design(values), X, rows, covariates, reset)
        if not rows.levels:
            edges = np.arange(len(values) + 1)
            return Clients(edges[:-1], edges, design, response), None, rows.beside
        ids, codes = rows.numbered
        if reset:
            warn_of_blanks(ids)
        clients = Clients.from_codes(design, ids, codes, response)
        if rows.times is not None:
            clients = replace(clients, weight=rows.times[order_of_rows(codes)])
        return clients, codes, rows.beside

    def _read_clients(
        self, X: Clients, groups: Any, reset: bool, covariates: Any
    ) -> tuple[Clients, NDArray[np.int64] | None]:
        if groups is not None:
            raise ValueError("groups must be None: clients carry their labels.")
        if X.y is None:
            raise ValueError("y is missing: it is what is to be learned.")
        labels = np.repeat(X.ids, X.n)
        clients, codes, _ = self._read(X.X, X.y, labels, reset, covariates)
        if not X.n.all():  # clients without rows are clients too
            silent = X.ids[X.n == 0]
            nothing = np.zeros((0, clients.X.shape[1])), np.asarray(clients.y)[:0]
            empty = type(clients)(silent, np.zeros(len(silent) + 1, np.int64), *nothing)
            clients = clients.merge(empty)
        return clients, codes

    def _hint(self) -> str:
        name = self._roles.columns.get("y")
        return "" if name is None else f"; in the fit it was the column {name!r}"

    def _rows(
        self,
        X: Any,
        y: Any,
        groups: Any,
        *,
        beside: Mapping[str, Any] = NOTHING,
    ) -> Rows:
        """Read rows; known names are looked for in frames."""
        if is_lazy(X):
            raise ValueError(
                "X is a table whose rows are not in memory, which only LinearEB can be fitted to; "
                "collect its rows first."
            )
        found = self._roles.found(X, {"y": y, "groups": groups})
        rows = Rows.read(
            X,
            found.get("groups"),
            y=found.get("y"),
            beside=beside,
            aside=self._roles.names,
            numeric=self._numeric,
            several=self._takes_levels,
            tuples=bool(self._level_names),
        )
        check_depth(self._level_names, rows.levels)
        return rows

    def _values(self, rows: Rows, reset: bool) -> NDArray[np.float64]:
        """Check features as scikit-learn does."""
        values = validated(self, rows.X, rows.columns, reset=reset)
        check_size(values)
        return values

    def _validated(self, rows: Rows, reset: bool) -> tuple[NDArray, NDArray]:
        """Check features and response as scikit-learn does, which misses missing labels."""
        y = rows.y
        if y is None:
            raise ValueError(
                f"y is missing: it is what is to be learned{self._hint()} "
                "(requires y to be passed, but the target y is None)."
            )
        if y.ndim > 2 or (y.ndim == 2 and y.shape[1] != 1):
            raise ValueError(f"y must be one response for each row; got shape {y.shape}.")
        values = self._values(rows, reset)
        if y.ndim != 1:
            y = column_or_1d(y, warn=True)
        if y.dtype.kind == "f":
            check_finite(y, "y")
            check_size(y, "y")
        elif y.dtype.kind in "OMm" and (missing := pd.isna(y)).any():
            raise ValueError(
                f"y contains missing values, the first in row {int(np.argmax(missing))}."
            )
        check_consistent_length(values, y)
        return values, y

    def _read_design(
        self, X: Any, groups: Any, covariates: Any = None
    ) -> tuple[NDArray, NDArray | None]:
        """Return rows and labels, for prediction."""
        check_is_fitted(self, "clients_")
        rows = self._rows(X, None, groups)
        design = self._design(self._values(rows, False))
        return self._extended(design, X, rows, covariates, False), rows.labels

    def _known_beside(self, X: Any, given: Mapping[str, Any], reset: bool) -> dict[str, Any]:
        """Return what goes with rows: what is given, and columns of the fit that later frames have.

        With `reset`, remember which columns these are.
        """
        if reset:
            self._roles = self._roles.learned(X, given)
        found = self._roles.found(X, given)
        return {role: each for role, each in found.items() if role not in OTHERS}

    def _extended(
        self, design: NDArray, X: Any, rows: Rows, covariates: Any, reset: bool
    ) -> NDArray:
        """Return the design with what covariates of groups add."""
        return design

    def _design(self, values: NDArray) -> NDArray:
        """Return the features as the method needs them."""
        return values


def _score_of(response: Any, predicted: NDArray, weights: Any, numeric: bool) -> float:
    """Return R**2 of predicted numbers, or the share of rows whose class is predicted."""
    from sklearn.metrics import accuracy_score, r2_score

    measure = r2_score if numeric else accuracy_score
    if numeric:
        check_size(numbers(response, "y"), "y")
        if np.isnan(predicted).any():  # of rows that the fit does not identify, with a warning
            return np.nan
    try:
        with np.errstate(invalid="ignore"):  # of huge numbers, as whole ones
            return float(measure(response, predicted, sample_weight=weights))
    except (TypeError, ValueError, OverflowError) as error:
        if re.search(r"\by\b|sample_weight", str(error)):
            raise
        raise ValueError(f"y must be what the fit learned from, in each row: {error}") from None


def check_size(values: NDArray, name: str = "X") -> None:
    """Refuse values whose squares would leave the range of float64."""
    if np.abs(values).max(initial=0.0) > LARGEST:
        raise ValueError(
            f"Input {name} holds a value too large for float64 arithmetic (up to "
            f"{np.abs(values).max():.3g}): its square overflows. Rescale the data."
        )


class SupervisedRounds(Rounds):
    """What the protocols of supervised methods have in common."""

    # Nor is it kept who took part in the last round.
    forgets: ClassVar[tuple[str, ...]] = (*Rounds.forgets, "turn")

    def describe(self, clients: Any, memory: Any) -> Any:
        """State numbers of rows, and columns."""
        return {
            "n": clients.n,
            "n_features": np.array([self.estimator.n_features_in_]),
            "columns": np.array(["\n".join(getattr(self.estimator, "feature_names_in_", ()))]),
        }

    def check_facts(self, facts: Any) -> None:
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
            and facts["n_features"][0] + getattr(self.estimator, "fit_intercept", 0) > 0
        ):
            raise ValueError("facts must be numbers of rows, and columns.")

    def first_state(self, facts: Any, key: NDArray) -> Any:
        """Return what all methods keep before the first round."""
        check_single(self.estimator)
        for name in ("n_features", "columns"):
            different = sorted(set(facts[name].tolist()))
            if len(different) > 1:
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
            "converged": None,
        }
