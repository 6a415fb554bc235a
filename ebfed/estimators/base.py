"""Estimators: scikit-learn objects whose fit is a conversation between clients and a server.

Every method is a loop of rounds. The server `start`s a state and broadcasts it; each block of
clients runs `local` on its own data, keeps `memory` to itself and returns messages; the server
`update`s the state with the messages of all, until the state says ``done``. State, memory and
messages are plain dicts of arrays and numbers, so the same object runs in this process and
anywhere an engine can carry a dict. One-round estimation is the loop of one round.

`LocationEstimator` is that one round: clients send summaries through a channel, the server fits a
prior to what the messages say, and every client's posterior follows from its own exact data. A
subclass names its `model`, the likelihood of exact figures.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.validation import check_is_fitted, validate_data

from ebfed.channels import Channel, Exact
from ebfed.channels.base import Message
from ebfed.clients import Clients, Summary, number_labels
from ebfed.engines import Engine, Local
from ebfed.likelihoods import Likelihood
from ebfed.priors import Posterior, Prior
from ebfed.tabular import Style, frame, read

__all__ = ["Estimator", "LocationEstimator"]


class Estimator(BaseEstimator, ABC):
    """A method that learns from clients in rounds."""

    engine: Any
    random_state: Any

    @abstractmethod
    def start(self, n_features: int) -> dict:
        """Return the state before the first round."""

    @abstractmethod
    def local(
        self, state: dict, memory: Any, clients: Any, rng: np.random.Generator
    ) -> tuple[Message, Any]:
        """Compute the messages of a block of clients, and what they keep."""

    @abstractmethod
    def update(self, state: dict, messages: Message) -> dict:
        """Return the next state, ``done`` if it is the last."""

    def _run(self, clients: Clients | Summary, n_features: int) -> dict:
        engine = Local() if self.engine is None else self.engine
        if not isinstance(engine, Engine):
            raise TypeError(f"engine must be an ebfed.engines.Engine; {engine!r} came.")
        blocks = clients.split(engine.n_blocks)
        memories: list[Any] = [None] * len(blocks)
        try:
            rng = np.random.default_rng(self.random_state)
        except (TypeError, ValueError) as error:
            raise ValueError(f"random_state={self.random_state!r} is no seed: {error}.") from None
        state = self.start(n_features)
        while not state["done"]:
            streams = rng.spawn(len(blocks))
            calls = [(state, *call) for call in zip(memories, blocks, streams, strict=True)]
            answers = engine.map(self.local, calls)
            memories = [memory for _, memory in answers]
            state = self.update(state, _join([message for message, _ in answers]))
        return state


def _join(messages: list[Message]) -> Message:
    return {name: np.concatenate([block[name] for block in messages]) for name in messages[0]}


class LocationEstimator(OneToOneFeatureMixin, TransformerMixin, Estimator):
    """One round: summaries through a channel, a prior fitted to them, posteriors at home.

    Attributes
    ----------
    prior_ : Prior
        The fitted population.
    summaries_ : Summary
        The clients' own figures (which, in a real federation, stay with them).
    groups_ : ndarray of shape (n_groups,)
        Labels, sorted.
    notes_ : list of str
        What a reader should know of the fit: what was not identified, or is at a boundary.
    n_features_in_ : int
    """

    prior: Any
    channel: Channel | None

    prior_: Prior
    summaries_: Summary

    @abstractmethod
    def model(self, message: Message) -> Likelihood:
        """Likelihood of exact figures ``n``, ``mean``, ``scatter`` while fitting."""

    @abstractmethod
    def _likelihood(self, summary: Summary) -> Likelihood:
        """Likelihood of a client's own data, with what the fit has learned."""

    @abstractmethod
    def _log_rows(self, summary: Summary) -> NDArray:
        """Log-density of the rows given their summary: ``logpdf`` plus this is that of the rows."""

    @abstractmethod
    def _make_prior(self) -> Prior:
        """Return an unfitted prior for the argument `prior`."""

    # The round --------------------------------------------------------------------------------

    def start(self, n_features: int) -> dict:
        """Return the state before the round: nothing to broadcast."""
        return {"done": False, "n_features": n_features}

    def local(
        self, state: dict, memory: Any, clients: Summary, rng: np.random.Generator
    ) -> tuple[Message, Any]:
        """Send each client's summary through the channel."""
        return self._channel().encode(clients, rng), memory

    def update(self, state: dict, messages: Message) -> dict:
        """Fit the prior to what the messages say."""
        prior = self._make_prior().fit(self._channel().likelihood(messages, self.model))
        return state | {"prior": prior, "done": True}

    def _channel(self) -> Channel:
        channel = Exact() if self.channel is None else self.channel
        if not isinstance(channel, Channel):
            raise TypeError(f"channel must be an ebfed.channels.Channel; {channel!r} came.")
        return channel

    # Learning ---------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, *, groups: Any = None) -> Self:
        """Learn the population from rows.

        Parameters
        ----------
        X : array-like, series or data frame of shape (n_rows, d) or (n_rows,), Clients or Summary
        y : ignored
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
        return self._learn(self._read(X, y, groups, reset=True)[0])

    def partial_fit(self, X: Any, y: Any = None, *, groups: Any = None) -> Self:
        """Add a block of rows to what was fitted before; the answer is that of one `fit` on all.

        Blocks may share groups. Parameters are those of `fit`; without `groups`, the rows of a
        block are new groups, numbered on from those seen.
        """
        if not hasattr(self, "summaries_"):
            return self.fit(X, y, groups=groups)
        summary = self._read(X, y, groups, reset=False)[0]
        if groups is None and not isinstance(X, Clients | Summary):
            if self.groups_.dtype.kind != "i":
                raise ValueError("groups must label the rows, as they did before.")
            start = self.groups_[-1] + 1
            summary = Summary(summary.ids + start, summary.n, summary.mean, summary.scatter)
        return self._learn(self.summaries_.merge(summary))

    def _learn(self, summary: Summary) -> Self:
        state = self._run(summary, summary.n_features)
        self.summaries_ = summary
        self.prior_ = state["prior"]
        return self

    @property
    def groups_(self) -> NDArray:
        """Labels of the groups that were fitted, sorted."""
        check_is_fitted(self, "summaries_")
        return self.summaries_.ids

    @property
    def notes_(self) -> list[str]:
        """What a reader should know of the fit."""
        check_is_fitted(self, "prior_")
        return self.prior_.notes_

    # Estimates --------------------------------------------------------------------------------

    def posterior(self, X: Any = None, *, groups: Any = None) -> Posterior:
        """Posterior of each group's parameter.

        Parameters
        ----------
        X : as in `fit`, optional
            Rows that the posterior is to use instead of those of the fit. Groups that were not
            fitted are as good as any.
        groups : as in `fit`, optional
            Without `X`: the groups asked for, each with its rows of the fit; a group that was not
            in the fit has none and gets the population.

        Returns
        -------
        Posterior
            One entry per distinct group, in the order of the sorted labels.
        """
        check_is_fitted(self, "prior_")
        if X is None:
            summary = self.summaries_ if groups is None else self._known(read_labels(groups)[0])
            style = self._style_
        else:
            summary, _, style = self._read(X, None, groups, reset=False)
        likelihood = self._likelihood(summary)
        columns = {"n": summary.n, "local": likelihood.local}
        terms = getattr(self, "feature_names_in_", None)
        return self._posterior(summary, likelihood).labelled(
            summary.ids, columns, self._output(style), None if terms is None else tuple(terms)
        )

    def _posterior(self, summary: Summary, likelihood: Likelihood) -> Posterior:
        return self.prior_.posterior(likelihood)

    def predict(self, X: Any = None, *, groups: Any = None) -> NDArray:
        """Personalised estimate of each row's group.

        Parameters
        ----------
        X, groups : as in `posterior`

        Returns
        -------
        ndarray of shape (n_rows,) or (n_rows, d)
            Without `X`, one entry for each label in `groups`, or each group of the fit.
        """
        mean = self._predict(X, groups)
        return mean[:, 0] if mean.shape[1] == 1 else mean

    def _predict(self, X: Any, groups: Any) -> NDArray:
        check_is_fitted(self, "prior_")
        if X is None:
            codes = slice(None) if groups is None else read_labels(groups)[1]
            return self.posterior(groups=groups).mean[codes]
        summary, labels, _ = self._read(X, None, groups, reset=False)
        mean = self._posterior(summary, self._likelihood(summary)).mean
        return mean if labels is None else mean[number_labels(labels)[1]]

    def fit_predict(self, X: Any, y: Any = None, *, groups: Any = None) -> NDArray:
        """Fit, and estimate the group of each row; see `fit` and `predict`."""
        return self.fit(X, y, groups=groups).predict(X, groups=groups)

    def transform(self, X: Any, *, groups: Any = None) -> NDArray:
        """Replace each row by the estimate of its group, shape (n_rows, d)."""
        return self._predict(X, groups)

    def fit_transform(self, X: Any, y: Any = None, *, groups: Any = None) -> NDArray:
        """Fit, and replace each row by the estimate of its group."""
        return self.fit(X, y, groups=groups).transform(X, groups=groups)

    def score(self, X: Any, y: Any = None, *, groups: Any = None) -> float:
        """Held-out log predictive density, per row.

        The density of the rows of each group given the rows of that group in the fit (none, if it
        is a new group) and the fitted population. Higher is better; comparable between priors.

        Returns
        -------
        float
        """
        check_is_fitted(self, "prior_")
        summary, *_ = self._read(X, y, groups, reset=False)
        anonymous = groups is None and not isinstance(X, Clients | Summary)
        if anonymous:
            return float(self._log_evidence(summary).sum() / summary.n.sum())
        seen = self._known(summary.ids)
        gain = self._log_evidence(seen.merge(summary)) - self._log_evidence(seen)
        return float(gain.sum() / summary.n.sum())

    def _log_evidence(self, summary: Summary) -> NDArray:
        """Log marginal density of each group's rows."""
        return self.prior_.log_marginal(self._likelihood(summary)) + self._log_rows(summary)

    # Reports ----------------------------------------------------------------------------------

    def summary(self) -> Any:
        """Return the fit as a printed table."""
        from ebfed.report import summary_table

        check_is_fitted(self, "prior_")
        return summary_table(self)

    def tidy(self) -> Any:
        """Return the population's parameters, one row each."""
        from ebfed.report import tidy

        check_is_fitted(self, "prior_")
        return frame(tidy(self), self._output(self._style_))

    def glance(self) -> Any:
        """Return the fit in one row: sizes, log-likelihood, information criteria."""
        from ebfed.report import glance

        check_is_fitted(self, "prior_")
        return frame(glance(self), self._output(self._style_))

    def augment(self, X: Any, *, groups: Any = None) -> Any:
        """Return the rows with the estimate of their group and what it leaves over.

        Parameters
        ----------
        X, groups : as in `predict`

        Returns
        -------
        DataFrame
            Group label, the columns of `X`, then ``fitted`` and ``residual`` (of each column).
        """
        check_is_fitted(self, "prior_")
        summary, labels, style = self._read(X, None, groups, reset=False)
        if labels is None:
            labels = summary.ids
        fitted = self._predict(X, groups)
        values = self._values(X, groups)
        names = getattr(self, "feature_names_in_", None)
        if names is None:
            names = ["value"] if values.shape[1] == 1 else [f"x{j}" for j in range(values.shape[1])]
        plain = len(names) == 1 and names[0] not in ("fitted", "residual")
        columns = {name: values[:, j] for j, name in enumerate(names)}
        for j, name in enumerate(names):
            suffix = "" if plain else f"_{name}"
            columns["fitted" + suffix] = fitted[:, j]
            columns["residual" + suffix] = values[:, j] - fitted[:, j]
        style = self._output(style).avoiding(columns)
        return frame({style.group: labels} | columns, style)

    @property
    def log_likelihood_(self) -> float:
        """Log marginal likelihood of all rows at the fitted parameters."""
        check_is_fitted(self, "prior_")
        return float(self._log_evidence(self.summaries_).sum())

    @property
    def n_parameters_(self) -> int:
        """Number of fitted parameters of the population."""
        check_is_fitted(self, "prior_")
        return self.prior_.n_parameters_

    # Reading ----------------------------------------------------------------------------------

    def _read(
        self, X: Any, y: Any, groups: Any, reset: bool
    ) -> tuple[Summary, NDArray | None, Style]:
        """Return the summaries of the rows, their labels (None: row by row), and the style."""
        if isinstance(X, Clients | Summary):
            return self._read_summary(X, groups, reset)
        if y is not None and _ndim(X) == 1:
            raise ValueError(
                "X is one-dimensional and y was given. Observations go in X; if y holds the "
                "labels of the groups, pass them as groups=."
            )
        table = read(X, groups)
        values = self._validate(table.X, reset)
        if table.labels is None:
            return Summary.each_row(values), None, self._remember(table.style, reset)
        summary = self._summarise(values, table.labels)
        return summary, table.labels, self._remember(table.style, reset)

    def _validate(self, X: Any, reset: bool) -> NDArray:
        if _ndim(X) == 1 and (reset or self.n_features_in_ == 1):
            X = np.asarray(X).reshape(-1, 1)
        try:
            return validate_data(self, X, dtype=np.float64, reset=reset)
        except (TypeError, ValueError) as error:
            if "could not convert" in str(error) or "argument must be" in str(error):
                raise type(error)(f"X must hold numbers: {error}") from None
            raise

    def _values(self, X: Any, groups: Any) -> NDArray:
        if isinstance(X, Clients | Summary):
            raise TypeError("augment needs the rows themselves; a summary came.")
        return self._validate(read(X, groups).X, reset=False)

    def _summarise(self, values: NDArray, labels: NDArray) -> Summary:
        return Summary.from_rows(values, labels)

    def _read_summary(
        self, X: Clients | Summary, groups: Any, reset: bool
    ) -> tuple[Summary, NDArray, Style]:
        if groups is not None:
            raise ValueError("groups must be None: clients and summaries carry their labels.")
        summary = X.summarise() if isinstance(X, Clients) else X
        if not len(summary):
            raise ValueError("X holds no clients.")
        labels = summary.ids
        ids, codes = number_labels(labels, "ids")
        if len(ids) < len(labels):
            raise ValueError("ids must be all different; merge the summaries of one client.")
        summary = summary.take(np.argsort(codes))
        if reset:
            self.n_features_in_ = summary.n_features
        elif summary.n_features != self.n_features_in_:
            raise ValueError(
                f"X has {summary.n_features} features, but {type(self).__name__} was fitted with "
                f"{self.n_features_in_}."
            )
        return summary, labels, self._remember(Style(), reset)

    def _remember(self, style: Style, reset: bool) -> Style:
        if reset:
            self._style_ = style
        return style

    def _output(self, style: Style) -> Style:
        """Apply what `set_output` asks for."""
        wanted = _get_output_config("transform", self)["dense"]
        return style if wanted == "default" else style.using(wanted)

    def _known(self, ids: NDArray) -> Summary:
        """Summaries of these groups in the fit, empty for groups that were not in it."""
        import pandas as pd

        place = pd.Index(self.summaries_.ids).get_indexer(pd.Index(ids))
        found = self.summaries_.take(np.maximum(place, 0))
        seen = place >= 0
        return Summary(
            ids,
            np.where(seen, found.n, 0),
            np.where(seen[:, None], found.mean, 0.0),
            np.where(seen[:, None], found.scatter, 0.0),
        )

    def _prior_instance(self, names: dict[str, Prior]) -> Prior:
        """Return the prior that the argument names, or a copy of the one it is."""
        if isinstance(self.prior, Prior):
            return clone(self.prior)
        if isinstance(self.prior, str) and self.prior in names:
            return names[self.prior]
        raise ValueError(
            f"prior must be {', '.join(map(repr, names))} or an ebfed.priors.Prior; "
            f"{self.prior!r} came."
        )


def _ndim(X: Any) -> int:
    return X.ndim if hasattr(X, "ndim") else np.asarray(X).ndim


def read_labels(groups: Any) -> tuple[NDArray, NDArray]:
    """Number the labels of groups asked for: sorted labels, and the place of each in them."""
    if isinstance(groups, str) or not np.iterable(groups):
        raise TypeError(f"groups must be a sequence of labels; {groups!r} came.")
    return number_labels(cast(NDArray, read(np.zeros(0), groups).labels))
