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

import itertools
import warnings
from abc import ABC, abstractmethod
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.validation import check_is_fitted, validate_data

from ebfed.channels import Channel, Exact, Guess
from ebfed.channels.base import Message
from ebfed.channels.design import DEFAULT_GUESS, settle
from ebfed.channels.report import Report
from ebfed.clients import Clients, Summary, number_labels
from ebfed.engines import Engine, Local
from ebfed.likelihoods import Joined, Likelihood
from ebfed.priors import IdentificationWarning, Posterior, Prior
from ebfed.privacy import ledger
from ebfed.streams import Stream, make_key
from ebfed.tabular import Style, frame, read

__all__ = ["Estimator", "LocationEstimator"]

# Shares of the clients that report in each round, where each round aims the next.
WAVES = (0.05, 0.15, 0.8)


class Estimator(BaseEstimator, ABC):
    """A method that learns from clients in rounds."""

    engine: Any
    random_state: Any

    @abstractmethod
    def start(self, n_features: int, n_clients: int, size: int) -> dict:
        """Return the state before the first round.

        Parameters
        ----------
        n_features, n_clients : int
        size : int
            Rows of a typical client. What is in the arguments is public.
        """

    def broadcast(self, state: dict) -> dict:
        """Return the part of the state that clients need."""
        return state

    @abstractmethod
    def local(self, state: dict, memory: Any, clients: Any, stream: Stream) -> tuple[Message, Any]:
        """Compute the messages of a block of clients, and what they keep.

        `memory` begins as ``{"turn": turns}``: the round in which each client is to answer, -1 for
        never.
        """

    @abstractmethod
    def update(self, state: dict, messages: Message) -> dict:
        """Return the next state, ``done`` if it is the last."""

    def _turns(self, n_clients: int, n_rounds: int, key: NDArray) -> NDArray:
        """Round in which each client is to answer."""
        return np.zeros(n_clients, np.int8)

    def _run(self, clients: Clients | Summary, n_features: int, size: int) -> tuple[dict, dict]:
        """Hold the conversation; returns the last state, and what all clients keep."""
        engine = Local() if self.engine is None else self.engine
        if not isinstance(engine, Engine):
            raise TypeError(f"engine must be an ebfed.engines.Engine; {engine!r} came.")
        key = make_key(self.random_state)
        state = self.start(n_features, len(clients), size)
        turns = self._turns(len(clients), state["n_rounds"], key)
        blocks = clients.split(engine.n_blocks)
        firsts = np.cumsum([0, *map(len, blocks)])
        memories: list[Any] = [
            {"turn": turns[first:last]} for first, last in itertools.pairwise(firsts)
        ]
        while not state["done"]:
            sent = self.broadcast(state)
            streams = [Stream(key, state["round"], int(first)) for first in firsts[:-1]]
            calls = [(sent, *call) for call in zip(memories, blocks, streams, strict=True)]
            answers = engine.map(self.local, calls)
            memories = [memory for _, memory in answers]
            state = self.update(state, _join([message for message, _ in answers]))
        return state, _join(memories)


def _join(messages: list[Message]) -> Message:
    if len(messages) == 1:
        return messages[0]
    return {name: np.concatenate([block[name] for block in messages]) for name in messages[0]}


class LocationEstimator(OneToOneFeatureMixin, TransformerMixin, Estimator):
    """One round: summaries through a channel, a prior fitted to them, posteriors at home.

    Attributes
    ----------
    prior_ : Prior
        The fitted population.
    summaries_ : Summary
        The clients' own figures (which, in a real federation, stay with them).
    settings_ : list of dict
        What the channel was left to choose, round by round.
    privacy_ : DataFrame
        Ledger of what left the clients.
    groups_ : ndarray of shape (n_groups,)
        Labels, sorted.
    notes_ : list of str
        What a reader should know of the fit: what was not identified, or is at a boundary.
    n_features_in_ : int
    """

    prior: Any
    channel: Channel | None
    guess: Guess | None
    participation: Any

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

    # The rounds -------------------------------------------------------------------------------

    def start(self, n_features: int, n_clients: int, size: int) -> dict:
        """Return the state before the first round: how clients are to report.

        Raises
        ------
        ValueError
            If the channel says nothing about something that is to be estimated; nothing has left a
            client then.
        """
        channel = self._channel()
        prior = self._make_prior()
        if prior.estimates_spread and not channel.identifies_spread and not self._replicates():
            raise ValueError(
                f"{channel!r} sends one bit per client, which carries nothing about the spread of "
                "a population. Use channels.TwoBit, or a prior whose spread is given."
            )
        waves = isinstance(channel, Report) and isinstance(channel.range, str)
        state = {
            "round": 0,
            "n_rounds": len(WAVES) if waves else 1,
            "done": False,
            "n_features": n_features,
            "n_clients": n_clients,
            "size": size,
            "heard": [],
            "settings": [],
        }
        return self._settle(state, self.guess)

    def _settle(self, state: dict, guess: Guess | None) -> dict:
        """Choose what the channel leaves open for the next round."""
        channel, arguments = self._channel(), {}
        if guess is not None and not isinstance(guess, Guess):
            raise TypeError(f"guess must be an ebfed.channels.Guess; {guess!r} came.")
        if isinstance(channel, Report):
            public = state["n_features"], state["n_clients"], state["size"]
            arguments = settle(channel, self.model, *public, guess)
            clone(channel).set_params(**arguments).guarantee(state["n_features"])
        return state | {"settings": [*state["settings"], arguments]}

    def broadcast(self, state: dict) -> dict:
        """Return which round it is and how to report."""
        return {"round": state["round"], "settings": state["settings"][-1]}

    def _turns(self, n_clients: int, n_rounds: int, key: NDArray) -> NDArray:
        """Give each client one round, at random; -1 where it does not take part."""
        asked = self._participants(n_clients, key)
        turns = np.full(n_clients, -1, np.int8)
        if n_rounds == 1:
            turns[asked] = 0
            return turns
        order = np.random.default_rng([*key, 1]).permutation(np.flatnonzero(asked))
        sizes = (np.cumsum(WAVES) * len(order)).round().astype(int)
        for wave, (first, last) in enumerate(itertools.pairwise([0, *sizes])):
            turns[order[first:last]] = wave
        return turns

    def _participants(self, n_clients: int, key: NDArray) -> NDArray:
        """Tell which clients are asked to take part."""
        wanted = self.participation
        if wanted is None:
            return np.ones(n_clients, bool)
        if np.ndim(wanted) == 0:
            whole = isinstance(wanted, int | np.integer) and not isinstance(wanted, bool)
            if not (whole and 1 <= wanted <= n_clients):
                raise ValueError(
                    f"participation must be a number of clients from 1 to {n_clients}, or a mask; "
                    f"{wanted!r} came."
                )
            asked = np.zeros(n_clients, bool)
            asked[np.random.default_rng([*key, 0]).permutation(n_clients)[:wanted]] = True
            return asked
        asked = np.asarray(wanted)
        if asked.dtype != bool or asked.shape != (n_clients,) or not asked.any():
            raise ValueError(
                f"participation must be a number of clients or a mask of booleans, one for each of "
                f"the {n_clients} groups in sorted order, not all false; {wanted!r} came."
            )
        return asked

    def local(
        self, state: dict, memory: Any, clients: Summary, stream: Stream
    ) -> tuple[Message, Any]:
        """Send the summaries of the clients whose turn it is through the channel."""
        channel = clone(self._channel()).set_params(**state["settings"])
        asked = memory["turn"] == state["round"]
        message = channel.encode(clients, stream)
        outside = channel.clipped(clients) & asked
        if "clipped" in memory:
            outside |= memory["clipped"]
        if not asked.all():
            message = {name: values[asked] for name, values in message.items()}
        return message, memory | {"clipped": outside}

    def update(self, state: dict, messages: Message) -> dict:
        """Fit the prior to what all messages say; before the last round, aim the next one."""
        state = state | {"heard": [*state["heard"], messages], "round": state["round"] + 1}
        if state["round"] == state["n_rounds"]:
            return state | {"prior": self._fit_prior(state), "done": True}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IdentificationWarning)
            fitted = self._fit_prior(state)
        return self._settle(state, self._sharpened(fitted, state["n_features"]))

    def _fit_prior(self, state: dict) -> Prior:
        return self._make_prior().fit(self._heard(state))

    def _heard(self, state: dict) -> Likelihood:
        """Likelihood of all messages so far."""
        parts = tuple(
            clone(self._channel()).set_params(**settings).likelihood(message, self.model)
            for settings, message in zip(state["settings"], state["heard"], strict=False)
        )
        return parts[0] if len(parts) == 1 else Joined(parts)

    def _sharpened(self, prior: Prior, n_features: int) -> Guess:
        """Guess again, from an estimate and its standard errors."""
        error = np.sqrt(getattr(prior, "mean_variance_", prior.variance_ / 10))
        doubt = getattr(prior, "variance_variance_", prior.variance_**2)
        first = DEFAULT_GUESS if self.guess is None else self.guess
        before = np.array([first.column(j, n_features) for j in range(n_features)]).T
        # a variance that is not known better than its size is worth little
        trust = np.where(doubt > 0, prior.variance_**2 / (prior.variance_**2 + doubt), 1.0)
        variance = trust * prior.variance_ + (1 - trust) * before[2] ** 2
        centre = np.clip(prior.mean_, before[0], before[1])
        low, high = np.maximum(centre - error, before[0]), np.minimum(centre + error, before[1])
        return Guess(mean=(low, high), spread=np.sqrt(variance))

    def _channel(self) -> Channel:
        channel = Exact() if self.channel is None else self.channel
        if not isinstance(channel, Channel):
            raise TypeError(f"channel must be an ebfed.channels.Channel; {channel!r} came.")
        return channel

    def _replicates(self) -> bool:
        """Whether a formula of a paper is wanted even where it cannot work."""
        return False

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
        if self._channel().guarantee()[0] < np.inf:
            raise ValueError(
                f"partial_fit would ask every client for a second report through "
                f"{self._channel()!r}, at twice the privacy; fit all rows at once."
            )
        summary = self._read(X, y, groups, reset=False)[0]
        if groups is None and not isinstance(X, Clients | Summary):
            if self.groups_.dtype.kind != "i":
                raise ValueError("groups must label the rows, as they did before.")
            start = self.groups_[-1] + 1
            summary = Summary(summary.ids + start, summary.n, summary.mean, summary.scatter)
        return self._learn(self.summaries_.merge(summary))

    def _learn(self, summary: Summary) -> Self:
        told = summary.n[summary.n > 0]
        size = int(np.median(told)) if len(told) else 0
        state, memory = self._run(summary, summary.n_features, size)
        self.summaries_ = summary
        self.prior_ = state["prior"]
        self.settings_ = state["settings"]
        self._turn = memory["turn"]
        self._reported = self._log_likelihood_of_reports(state)
        self._ledger = self._write_ledger(memory["clipped"])
        return self

    def _log_likelihood_of_reports(self, state: dict) -> float | None:
        """Log marginal likelihood of what was sent; None where that is the rows' own figures."""
        if not isinstance(self._channel(), Report):
            return None
        rows, counts = self._heard(state).compress()
        return float(counts @ state["prior"].log_marginal(rows)) if len(rows) else 0.0

    def _settled(self) -> list[Channel]:
        """The channel of each round, with nothing left open."""
        return [clone(self._channel()).set_params(**settings) for settings in self.settings_]

    def _write_ledger(self, clipped: NDArray) -> list[dict]:
        rows = []
        for wave, channel in enumerate(self._settled()):
            asked = self._turn == wave
            told = self.summaries_ if asked.all() else self.summaries_.take(asked)
            rows.append(
                ledger.release(
                    "all clients" if told is self.summaries_ else f"asked in round {wave + 1}",
                    channel,
                    clients=int(asked.sum()),
                    clipped=int((clipped & asked).sum()),
                    bits=float(channel.message_bits(told).sum()),
                    n_features=self.summaries_.n_features,
                )
            )
        silent = int((self._turn < 0).sum())
        return [*rows, ledger.silence(silent)] if silent else rows

    @property
    def privacy_(self) -> Any:
        """Ledger of what left the clients: a frame with one row for each kind of release.

        Columns: ``who``; ``what`` they sent; how many ``clients``, and how many ``times`` each;
        ``epsilon`` and ``delta`` of all that one client sent, under the `relation` named, given
        the ``assumptions``; ``bits`` sent in all; and how many clients' means were ``clipped``,
        which is counted at home and not sent.
        """
        check_is_fitted(self, "prior_")
        return frame(ledger.columns(self._ledger), self._output(self._style_))

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
        """Log marginal likelihood at the fitted parameters: of all rows, or of clients' reports."""
        check_is_fitted(self, "prior_")
        if self._reported is not None:  # what did not leave the clients is not summed up either
            return self._reported
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
        place = self._places(ids)
        found = self.summaries_.take(np.maximum(place, 0))
        seen = place >= 0
        return Summary(
            ids,
            np.where(seen, found.n, 0),
            np.where(seen[:, None], found.mean, 0.0),
            np.where(seen[:, None], found.scatter, 0.0),
        )

    def _places(self, ids: NDArray) -> NDArray:
        """Where these groups are among those of the fit, -1 if they were not in it."""
        import pandas as pd

        if ids is self.summaries_.ids:
            return np.arange(len(ids))
        return pd.Index(self.summaries_.ids).get_indexer(pd.Index(ids))

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
