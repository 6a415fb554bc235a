"""Location: a parameter for every group, estimated in one round.

Clients send summaries through a channel, the server fits a prior to what the messages say, and
every client's posterior follows from its own exact data. A subclass names its `model`, the
likelihood of exact figures.
"""

from __future__ import annotations

import itertools
import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from ebfed.channels import Channel, Exact, Guess
from ebfed.channels.base import Message
from ebfed.channels.design import DEFAULT_GUESS, settle
from ebfed.channels.report import Report
from ebfed.engines.rounds import converse_here, without_messages
from ebfed.likelihoods import Likelihood, join
from ebfed.priors import IdentificationWarning, Posterior, Prior
from ebfed.priors.regression import check_covariates
from ebfed.privacy import PrivacyWarning, ledger
from ebfed.report.effects import GroupEffects
from ebfed.tables.clients import Clients, Summary
from ebfed.tables.consent import classes_of
from ebfed.tables.covariates import named_columns, read_covariates
from ebfed.tables.frames import (
    Style,
    drop_columns,
    frame,
    indexed_like,
    is_frame,
    read,
    read_labels,
)
from ebfed.tables.labels import number_labels
from ebfed.tables.lazy import Summarised, column_names, is_lazy, summarise

__all__ = ["LocationEstimator"]

# What a state holds in the end that clients are told.
RESULTS = ("settings", "prior", "log_likelihood", "n_clients")

# Who the ledger says it was, where all clients have one channel.
EVERYONE = "all clients"

# Shares of the clients that report in each round, where each round aims the next.
WAVES = (0.05, 0.15, 0.8)


def _has_one_channel(estimator: Any) -> bool:
    if isinstance(estimator.channel, Mapping):
        raise AttributeError("partial_fit is for one channel; fit all rows with consent= at once.")
    return True


@dataclass(frozen=True)
class _Rows:
    """What was read.

    Attributes
    ----------
    summary : Summary
        Of the groups, sorted by label; of each row, if these have none.
    labels : ndarray of shape (n_rows,) or None
    style : Style
    consent : what was given, read
    covariates : ndarray of shape (n_groups, k)
        Covariates that were given.
    """

    summary: Summary
    labels: NDArray | None
    style: Style
    consent: Any
    covariates: NDArray

    @property
    def clients(self) -> Summary:
        """The summary; rows without labels are none of the groups of the fit."""
        if self.labels is not None:
            return self.summary
        return replace(self.summary, ids=np.full(len(self.summary), None))


class LocationEstimator(GroupEffects, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """One round: summaries through a channel, a prior fitted to them, posteriors at home.

    Attributes
    ----------
    prior_ : Prior
        The fitted population.
    summaries_ : Summary
        The clients' own figures (which, in a real federation, stay with them).
    settings_ : list of dict
        What channels were left to choose: for each round, arguments by class of consent.
    privacy_ : DataFrame
        Ledger of what left the clients.
    groups_ : ndarray of shape (n_groups,)
        Labels, sorted.
    notes_ : list of str
        What a reader should know of the fit: what was not identified, or is at a boundary.
    covariate_names_ : list of k str
        The covariates, none if the population was fitted without.
    coef_, intercept_ : ndarray of shape (k,) or (d, k), and float or (d,)
        How the mean of the population (of rates: its logit) depends on them.
    n_features_in_ : int
    """

    answers_every_round: ClassVar[bool] = False

    prior: Any
    channel: Channel | Mapping[Any, Channel] | None
    guess: Guess | None
    participation: Any

    prior_: Prior
    summaries_: Summary
    _reported: float | None
    _consent_name: str | None = None
    _group_name: str | None = None
    _covariate_columns: Sequence[str] = ()

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

    # Clients ----------------------------------------------------------------------------------

    def prepare(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        consent: Any = None,
        covariates: Any = None,
    ) -> tuple[Summary, dict[str, NDArray]]:
        """Summarise rows, and note covariates and which class each client chose."""
        self._channels()
        if covariates is not None:
            self._check_covariates()
        rows = self._read(X, y, groups, True, consent, covariates)
        summary, labels, chosen = rows.summary, rows.labels, rows.consent
        classes = list(self.channel) if isinstance(self.channel, Mapping) else []
        if chosen is None:
            chosen = self._default_consent(summary)
        elif not classes:
            raise ValueError(
                "consent has no meaning with one channel for all: give channel= a dict of them, "
                "by class of consent."
            )
        else:
            chosen = classes_of(chosen, classes, summary.ids, labels)
        return summary, _blank(summary) | {"consent": chosen, "covariates": rows.covariates}

    def _check_covariates(self) -> None:
        """Refuse covariates that the prior or the channels cannot take, before anything is sent."""
        prior = self._make_prior()
        if not prior.takes_covariates:
            raise TypeError(
                f"prior={self.prior!r} is one population for all clients; covariates= is for "
                "priors.Normal ('normal') and priors.Beta ('beta')."
            )
        if not self._is_linear():
            raise ValueError(
                "covariates= needs messages that keep the model linear: channels.Exact, and for "
                f"means channels.AddNoise too; got {self.channel!r}."
            )

    def _is_linear(self) -> bool:
        """Whether messages are such that a mean with covariates can be fitted to them."""
        return self._all_exact()

    def _default_consent(self, summary: Summary) -> NDArray[np.int8]:
        """Number of everybody's class where nobody said."""
        if len(self._channels()) > 1:
            classes = ", ".join(map(repr, self._channels()))
            raise ValueError(
                f"consent= must say which class of channel ({classes}) each group chose."
            )
        return np.zeros(len(summary), np.int8)

    def describe(self, clients: Summary, memory: dict) -> dict[str, NDArray]:
        """State numbers of rows, classes of consent, columns, and covariates as they are."""
        names = getattr(self, "feature_names_in_", np.empty(0, str))
        return {
            "n": clients.n,
            "consent": memory["consent"],
            "n_features": np.array([clients.n_features]),
            "columns": np.array(["\n".join(names)]),
            "covariates": memory["covariates"].ravel(),
            "covariate_names": np.array(["\n".join(self.covariate_names_)]),
        }

    def local(
        self, sent: dict, memory: dict, clients: Summary, rng: Any
    ) -> tuple[dict[str, Message], dict[str, NDArray]]:
        """Send the summaries of the clients whose turn it is, each through its own channel."""
        message = {}
        clipped, report = memory["clipped"].copy(), memory["report"].copy()
        for index, (name, channel) in enumerate(self._channels(sent["settings"]).items()):
            asked = (memory["turn"] == sent["round"]) & (memory["consent"] == index)
            if isinstance(rng, str):  # draws of the operating system have no order to keep
                message[name] = channel.encode(clients.take(asked), rng)
            else:
                message[name] = channel.encode(clients, rng)
                if not asked.all():
                    message[name] = {part: x[asked] for part, x in message[name].items()}
            clipped |= channel.clipped(clients) & asked
            report[asked] = channel.decode(message[name])
            if memory["covariates"].size:  # not all clients that stated theirs will answer
                message[name]["covariates"] = memory["covariates"][asked]
        return message, memory | {"clipped": clipped, "report": report}

    def releases(self, sent: dict, memory: dict, clients: Summary) -> list[dict[str, Any]]:
        """List what clients send in a round, class by class."""
        rows = []
        for index, (name, channel) in enumerate(self._channels(sent["settings"]).items()):
            own = memory["consent"] == index
            asked = own & (memory["turn"] == sent["round"])
            if not asked.any():
                continue
            when = [f"asked in round {sent['round'] + 1}"] if np.any(asked != own) else []
            has_data = clients if asked.all() else clients.take(asked)
            rows.append(
                ledger.release(
                    ", ".join([name, *when] if name != EVERYONE else when) or EVERYONE,
                    channel,
                    clients=int(asked.sum()),
                    clipped=int(memory["clipped"][asked].sum()) if "clipped" in memory else None,
                    bits=float(channel.message_bits(has_data).sum()),
                    n_features=clients.n_features,
                )
            )
        if sent["round"] == 0 and memory["covariates"].size:
            rows.append(ledger.covariates(self.covariate_names_, len(clients)))
        return rows

    def finish(self, sent: dict, memory: dict, clients: Summary) -> Self:
        """Set the learned attributes of these clients' own copy."""
        self._learn(sent)
        self._is_server = False
        self.summaries_ = clients
        self._memory = memory
        self._ledger = self._write_ledger()
        return self

    # Server -----------------------------------------------------------------------------------

    def check_facts(self, facts: dict) -> None:
        """Raise a ValueError if that is not what clients may state."""
        kinds = {"n": "i", "consent": "i", "n_features": "i", "columns": "U"}
        kinds |= {"covariates": "f", "covariate_names": "U"}
        sound = facts.keys() == kinds.keys() and all(
            isinstance(x, np.ndarray) and x.dtype.kind == kinds[name] and x.ndim == 1
            for name, x in facts.items()
        )
        sound = (
            sound
            and len(facts["n"]) == len(facts["consent"]) > 0
            and len(facts["n_features"])
            == len(facts["columns"])
            == len(facts["covariate_names"])
            == 1
            and len(facts["covariates"])
            == len(facts["n"]) * len(_lines(facts["covariate_names"][0]))
            and np.isfinite(facts["covariates"]).all()
            and facts["n"].min() >= 0
            and 0 <= facts["consent"].min() <= facts["consent"].max() < len(self._channels())
            and facts["n_features"][0] > 0
        )
        if not sound:
            raise ValueError(
                "facts must be numbers of rows, classes of consent, columns, and covariates."
            )

    def check_message(self, message: dict, facts: dict, sent: dict, turn: NDArray) -> None:
        """Raise a ValueError if that is no answer of the clients that stated these facts."""
        channels = self._channels(sent["settings"])
        if message.keys() != channels.keys():
            raise ValueError(f"a message must have the parts {', '.join(channels)}.")
        covariates = facts["covariates"].reshape(len(facts["n"]), -1)
        for index, (name, channel) in enumerate(channels.items()):
            asked = (turn == sent["round"]) & (facts["consent"] == index)
            n = facts["n"][asked]
            nothing = np.zeros((len(n), int(facts["n_features"][0])))
            pattern = channel.encode(Summary(np.arange(len(n)), n, nothing, nothing), 0)
            if covariates.size:
                pattern["covariates"] = covariates[asked]
            part = message[name]
            if part.keys() != pattern.keys():
                raise ValueError(f"{name} must have the parts {', '.join(pattern)}.")
            for each, like in pattern.items():
                x = part[each]
                if not (isinstance(x, np.ndarray) and x.shape == like.shape):
                    raise ValueError(f"{each} of {name} must have shape {like.shape}.")
                if x.dtype != like.dtype or not np.isfinite(x).all():
                    raise ValueError(f"{each} of {name} must be finite, of type {like.dtype}.")
            if not np.array_equal(part["n"], n) or np.any(part.get("scatter", np.zeros(1)) < 0):
                raise ValueError(f"{name} must have the rows that were stated.")
            if covariates.size and not np.array_equal(part["covariates"], covariates[asked]):
                raise ValueError(f"{name} must have the covariates that were stated.")
            channel.decode(part)

    def start(self, facts: dict, key: NDArray) -> dict:
        """Return the state before the first round: how clients are to report.

        Raises
        ------
        ValueError
            If the channel says nothing about something that is to be estimated; nothing has left a
            client then.
        """
        channels, prior = self._channels(), self._make_prior()
        for name in ("n_features", "columns", "covariate_names"):
            if len(np.unique(facts[name])) > 1:
                different = np.unique(facts[name]).tolist()
                raise ValueError(f"clients have different columns: {different}.")
        spread = any(
            channel.identifies_spread and np.any(facts["consent"] == index)
            for index, channel in enumerate(channels.values())
        )
        if prior.estimates_spread and not spread and not self._replicates():
            raise ValueError(
                f"{self.channel!r} sends one bit per client, which carries nothing about the "
                "spread of a population. Use channels.TwoBit, or a prior whose spread is given."
            )
        waves = any(map(_in_waves, channels.values()))
        state = {
            "round": 0,
            "n_rounds": len(WAVES) if waves else 1,
            "done": False,
            "key": key,
            "n_features": int(facts["n_features"][0]),
            "columns": str(facts["columns"][0]),
            "covariate_names": str(facts["covariate_names"][0]),
            "covariates": facts["covariates"].reshape(len(facts["n"]), -1),
            "n": facts["n"],
            "consent": facts["consent"],
            "messages": [],
            "settings": [],
        }
        state["turn"] = self._turns(state)
        if state["covariates"].size:
            has_data = (state["n"] > 0) & (state["turn"] >= 0)
            check_covariates(state["covariates"][has_data], _lines(state["covariate_names"]))
        return self._settle(state, self.guess)

    def _settle(self, state: dict, guess: Guess | None) -> dict:
        """Choose what channels leave open for the next round."""
        arguments: dict[str, dict] = {}
        if guess is not None and not isinstance(guess, Guess):
            raise TypeError(f"guess must be an ebfed.channels.Guess; got {guess!r}.")
        for index, (name, channel) in enumerate(self._channels().items()):
            arguments[name] = {}
            n = state["n"][state["consent"] == index]
            if isinstance(channel, Report):
                has_data = n[n > 0]
                size = int(np.median(has_data)) if len(has_data) else 0
                public = state["n_features"], len(n), size
                arguments[name] = settle(channel, self.model, *public, guess)
                channel.set_params(**arguments[name]).guarantee(state["n_features"])
        return state | {"settings": [*state["settings"], arguments]}

    def broadcast(self, state: dict) -> dict:
        """Return which round it is and how to report; in the end, the fitted population."""
        if not state["done"]:
            return {"done": False, "round": state["round"], "settings": state["settings"][-1]}
        return {"done": True} | {name: state[name] for name in RESULTS}

    def _turns(self, state: dict) -> NDArray[np.int8]:
        """Give each client one round, at random; -1 where it does not take part."""
        asked = self._participants(len(state["n"]), state["key"])
        turns = np.full(len(state["n"]), -1, np.int8)
        rng = np.random.default_rng([*state["key"], 1])
        for index, channel in enumerate(self._channels().values()):
            own = asked & (state["consent"] == index)
            if not _in_waves(channel):
                turns[own] = 0
                continue
            order = rng.permutation(np.flatnonzero(own))
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
                    f"got {wanted!r}."
                )
            asked = np.zeros(n_clients, bool)
            asked[np.random.default_rng([*key, 0]).permutation(n_clients)[:wanted]] = True
            return asked
        asked = np.asarray(wanted)
        if asked.dtype != bool or asked.shape != (n_clients,) or not asked.any():
            raise ValueError(
                f"participation must be a number of clients or a mask of booleans, one for each of "
                f"the {n_clients} groups in sorted order, not all false; got {wanted!r}."
            )
        return asked

    def update(self, state: dict, messages: dict[str, Message]) -> dict:
        """Fit the prior to what all messages say; before the last round, aim the next one."""
        state = state | {"messages": [*state["messages"], messages], "round": state["round"] + 1}
        if state["round"] == state["n_rounds"]:
            return self._done(state, self._fit_prior(state))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IdentificationWarning)
            fitted = self._fit_prior(state)
        return self._settle(state, self._sharpened(fitted, state["n_features"]))

    def keep(self, state: dict) -> dict[str, Any]:
        """Return what is to be kept of the last state: neither messages nor the key of noise."""
        return without_messages(state)

    def expected_rounds(self) -> int | None:
        """Return the most rounds there can be, if that is known."""
        return None

    def _done(self, state: dict, prior: Prior) -> dict:
        """Add what was learned to the state, in plain numbers."""
        fitted = {name: value for name, value in vars(prior).items() if name.endswith("_")}
        has_data = self._log_likelihood_of_reports(state, prior)
        learned = {"prior": fitted, "log_likelihood": has_data, "n_clients": len(state["n"])}
        return state | {"done": True} | learned

    def conclude(self, state: dict) -> Self:
        """Set the learned attributes of the server's own copy.

        It estimates any group from rows it is given, and has a ledger of the clients it asked; of
        their own estimates it knows nothing.
        """
        self._learn(self.broadcast(state))
        self._is_server = True
        self.n_features_in_ = state["n_features"]
        if state["columns"]:
            self.feature_names_in_ = np.array(state["columns"].split("\n"), object)
        self.covariate_names_ = _lines(state["covariate_names"])
        self._remember(Style(), True)
        n = state["n"]
        nothing = np.zeros((len(n), state["n_features"]))
        self.summaries_ = Summary(np.arange(len(n)), n, nothing, nothing)
        if self._reported is None:
            has_data = [message for received in state["messages"] for message in received.values()]
            figures = (
                np.concatenate([x[name] for x in has_data]) for name in ("n", "mean", "scatter")
            )
            shown = Summary(np.arange(sum(len(x["n"]) for x in has_data)), *figures)
            self._reported = float(self._log_evidence(shown, self._stated(state)).sum())
        self._memory = _blank(self.summaries_)
        self._memory |= {name: state[name] for name in ("turn", "consent", "covariates")}
        del self._memory["clipped"]  # which clients count at home
        self._ledger = self._write_ledger()
        return self

    def _fit_prior(self, state: dict) -> Prior:
        covariates = self._stated(state)
        return self._make_prior().fit(
            self._joined_likelihood(state), covariates if covariates.shape[1] else None
        )

    def _stated(self, state: dict) -> NDArray:
        """Covariates of the clients that were heard, in the order of `_heard`, shape (n, k)."""
        has_data = [
            part["covariates"]
            for message in state["messages"]
            for part in message.values()
            if "covariates" in part
        ]
        nothing = sum(len(part["n"]) for message in state["messages"] for part in message.values())
        return np.concatenate(has_data) if has_data else np.empty((nothing, 0))

    def _joined_likelihood(self, state: dict) -> Likelihood:
        """Likelihood of all messages so far."""
        parts = [
            (channel, message[name])
            for settings, message in zip(state["settings"], state["messages"], strict=False)
            for name, channel in self._channels(settings).items()
        ]
        # not all classes answer in all rounds
        parts = [(channel, message) for channel, message in parts if len(message["n"])] or parts[:1]
        return join([channel.likelihood(message, self.model) for channel, message in parts])

    def _sharpened(self, prior: Prior, n_features: int) -> Guess:
        """Guess again, from an estimate and its standard errors."""
        error = np.sqrt(getattr(prior, "mean_variance_", prior.variance_ / 10))
        doubt = getattr(prior, "variance_variance_", prior.variance_**2)
        first = DEFAULT_GUESS if self.guess is None else self.guess
        before = np.array([first.column(j, n_features) for j in range(n_features)]).T
        received = error > 0  # else nobody has spoken of this column yet
        # a variance that is not known better than its size is worth little
        squared = prior.variance_**2
        trust = np.where(squared > 0, squared / np.maximum(squared + doubt, 1e-300), 0.0) * received
        variance = trust * prior.variance_ + (1 - trust) * before[2] ** 2
        centre = np.clip(prior.mean_, before[0], before[1])
        low, high = np.maximum(centre - error, before[0]), np.minimum(centre + error, before[1])
        mean = np.where(received, low, before[0]), np.where(received, high, before[1])
        return Guess(mean=mean, spread=np.sqrt(variance))

    def _channels(self, settings: Mapping[str, dict] | None = None) -> dict[str, Channel]:
        """Return a copy of the channel of each class, with what was left open settled."""
        channel = Exact() if self.channel is None else self.channel
        channels = channel if isinstance(channel, Mapping) else {EVERYONE: channel}
        named = {str(name): each for name, each in channels.items()}
        if not named or len(named) < len(channels):
            raise TypeError(f"channel must be one, or name classes differently; got {channel!r}.")
        for each in named.values():
            if not isinstance(each, Channel):
                raise TypeError(
                    "channel must be an ebfed.channels.Channel, or a dict of them by class of "
                    f"consent; got {each!r}."
                )
        return {
            name: _settled(each, (settings or {}).get(name, {})) for name, each in named.items()
        }

    def _all_exact(self) -> bool:
        """Whether every client sends its figures as they are."""
        return all(isinstance(channel, Exact) for channel in self._channels().values())

    def _shown_channels(self) -> dict[str, Channel]:
        """Return the channels as a summary is to name them."""
        return self._channels()

    def _promise(self, name: str) -> tuple[float, float]:
        """Epsilon and delta of each client of this class."""
        channel = self._channels(self.settings_[0])[name]
        with warnings.catch_warnings():  # of the paper's calibration: fit has said it
            warnings.simplefilter("ignore", PrivacyWarning)
            return channel.guarantee(self.n_features_in_)

    def _against(self) -> str:
        """Say against whom the promise holds."""
        return "against everyone"

    def _replicates(self) -> bool:
        """Whether a formula of a paper is wanted even where it cannot work."""
        return False

    # Learning ---------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        consent: Any = None,
        covariates: Any = None,
    ) -> Self:
        """Learn the population from rows.

        Parameters
        ----------
        X : array-like, series or data frame of shape (n_rows, d) or (n_rows,), Clients or Summary
        y : ignored
        groups : array-like of shape (n_rows,) or str, optional
            Label of each row, or the column of the frame `X` that holds it. None: every row is a
            group of its own. Later frames with the column named here need not name it again.
        consent : array-like of shape (n_rows,), str or dict, optional
            Which of the channels in `channel` each row's group chose: labels, the column of the
            frame `X` that holds them, or a dict from group to class.
        covariates : list of str, data frame or array-like, optional
            Covariates of the groups, on which the mean of the population depends, besides an
            intercept: columns of the frame `X` that are constant within groups; a frame with a row
            for each group and the column (in pandas, or the index) of labels (called as in
            `groups`, else ``"group"``), in any order; a pandas series with labels in its index; or
            numbers of shape (n_groups, k), in the order of sorted labels. An index that only counts
            rows from 0, where labels are others, is no index of labels. In a federation covariates
            are public: clients state them as they are.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            If rows are missing, infinite or of the wrong type, or labels do not fit them; if
            covariates are not numbers, missing, vary within a group, are constant or collinear, or
            are too many for so few groups.
        """
        return self._fit(*self.prepare(X, y, **_given(groups, consent, covariates)))

    def _fit(self, clients: Summary, memory: dict) -> Self:
        state, memory = converse_here(self, clients, memory)
        return self.finish(self.broadcast(state), memory, clients)

    @available_if(_has_one_channel)
    def partial_fit(
        self, X: Any, y: Any = None, *, groups: Any = None, covariates: Any = None
    ) -> Self:
        """Add a block of rows to what was fitted before; the answer is that of one `fit` on all.

        Blocks may share groups. Parameters are those of `fit`; without `groups`, the rows of a
        block are new groups, numbered on from those seen.
        """
        if not hasattr(self, "summaries_"):
            return self.fit(X, y, **_given(groups, covariates=covariates))
        (channel,) = self._channels().values()
        if channel.guarantee()[0] < np.inf:
            raise ValueError(
                f"partial_fit would ask every client for a second report through {channel!r}, at "
                "twice the privacy; fit all rows at once."
            )
        rows = self._read(X, y, groups, False, covariates=covariates)
        summary = rows.summary
        if rows.labels is None:
            if self.groups_.dtype.kind != "i":
                raise ValueError("groups must label the rows, as they did before.")
            start = self.groups_[-1] + 1
            summary = Summary(summary.ids + start, summary.n, summary.mean, summary.scatter)
        merged = self.summaries_.merge(summary)
        covariates = self._covariates(summary.ids, rows.covariates)
        if covariates.shape[1]:
            both = number_labels(np.concatenate([self.groups_, summary.ids]))[1]
            _, first = np.unique(both, return_index=True)
            covariates = np.concatenate([self._memory["covariates"], covariates])[first]
        return self._fit(merged, _blank(merged) | {"covariates": covariates})

    def _learn(self, sent: dict) -> None:
        """Take over the fitted population from the last broadcast."""
        self.prior_ = self._make_prior()
        self.prior_.__dict__.update(sent["prior"])
        self.settings_ = sent["settings"]
        self._reported, self._n_clients = sent["log_likelihood"], sent["n_clients"]

    def _log_likelihood_of_reports(self, state: dict, prior: Prior) -> float | None:
        """Log marginal likelihood of what was sent; None where that is the rows' own figures."""
        if self._all_exact():
            return None
        rows, counts = self._joined_likelihood(state).compress()
        return float(counts @ prior.log_marginal(rows)) if len(rows) else 0.0

    def _write_ledger(self) -> list[dict]:
        """List what the clients of the fit sent, round by round and class by class."""
        rounds = [{"round": i, "settings": each} for i, each in enumerate(self.settings_)]
        rows = [self.releases(sent, self._memory, self.summaries_) for sent in rounds]
        silent = int((self._memory["turn"] < 0).sum())
        return [*itertools.chain(*rows), *([ledger.silence(silent)] if silent else [])]

    @property
    def privacy_(self) -> Any:
        """Ledger of what left the clients: a frame with one row for each kind of release.

        Columns: ``who``; ``what`` they sent; how many ``clients``, and how many ``times`` each;
        ``epsilon`` and ``delta`` of all that one client sent, under the `relation` named, given
        the ``assumptions``; ``bits`` sent in all; and how many clients' means were ``clipped``,
        which is counted at home and not sent (NaN in a server's own copy).
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

    @property
    def coef_(self) -> NDArray:
        """Coefficients of the covariates, shape (k,), or (d, k) if X has several columns."""
        coefficients = self.prior_.coefficients_[1:].T
        return coefficients[0] if len(coefficients) == 1 else coefficients

    @property
    def intercept_(self) -> Any:
        """Intercept of the population's mean, a number, or shape (d,)."""
        intercept = self.prior_.coefficients_[0]
        return float(intercept[0]) if len(intercept) == 1 else intercept

    def posterior(self, X: Any = None, *, groups: Any = None, covariates: Any = None) -> Posterior:
        """Posterior of each group's parameter.

        Parameters
        ----------
        X : as in `fit`, optional
            Rows that the posterior is to use instead of those of the fit. Groups that were not
            fitted are as good as any.
        groups : as in `fit`, optional
            Without `X`: the groups asked for, each with its rows of the fit; a group that was not
            in the fit has none and gets the population.
        covariates : as in `fit`, optional
            Covariates of the groups of `X` or `groups`, needed where the fit had some and a group
            was not in it; the groups of the fit keep theirs.

        Returns
        -------
        Posterior
            One entry per distinct group, in the order of the sorted labels.
        """
        check_is_fitted(self, "prior_")
        if X is None:
            self._check_rows()
            style, summary = self._style_, self.summaries_
            if groups is not None:
                summary = self._known(number_labels(read_labels(groups))[0])
            ids, clients = summary.ids, summary
            given = self._read_covariates(covariates, None, None, ids, style, False)
        else:
            rows = self._read(X, None, groups, False, covariates=covariates)
            style, summary, clients, given = rows.style, rows.summary, rows.clients, rows.covariates
            ids = summary.ids
        covariates = self._covariates(clients.ids, given)
        likelihood = self._likelihood(summary)
        columns = {"n": summary.n, "local": likelihood.local}
        terms = getattr(self, "feature_names_in_", None)
        return self._posterior(clients, likelihood, self._population(covariates)).labelled(
            ids, columns, self._output(style), None if terms is None else tuple(terms)
        )

    def _check_rows(self) -> None:
        """Refuse to speak of clients whose figures are elsewhere."""
        if self._is_server:
            raise ValueError(
                "the clients kept their figures, and have their estimates; give rows to estimate."
            )

    def _posterior_of_all(self) -> Posterior:
        """Posterior of the groups of the fit; its means are void if those are elsewhere."""
        population = self._population(self._memory["covariates"])
        return self._posterior(self.summaries_, self._likelihood(self.summaries_), population)

    def _posterior(self, summary: Summary, likelihood: Likelihood, prior: Prior) -> Posterior:
        """Posterior of clients, from what they know and the population they come from."""
        return prior.posterior(likelihood)

    def _population(self, covariates: NDArray) -> Prior:
        """Return the fitted population, of clients with these covariates if it has some."""
        return self.prior_.at(covariates) if covariates.shape[1] else self.prior_

    def _covariates(self, ids: NDArray, given: NDArray) -> NDArray:
        """Covariates of these groups: those of the fit or, for others, the given ones."""
        fitted = self._memory["covariates"]
        if not fitted.shape[1]:
            return np.empty((len(ids), 0))
        place = self._places(ids)
        unknown = place < 0
        if not unknown.any():
            return fitted[place]
        if not given.shape[1]:
            raise ValueError(
                f"covariates= must give the covariates {', '.join(self.covariate_names_)} of "
                f"{int(unknown.sum())} groups that were not in the fit."
            )
        return np.where(unknown[:, None], given, fitted[np.maximum(place, 0)])

    def estimates(self, backend: str | None = None) -> Any:
        """Return the posterior of each group as a frame, of some library if that is named."""
        posterior = self.posterior()
        return (posterior if backend is None else posterior.using(backend)).to_frame()

    def predict(self, X: Any = None, *, groups: Any = None, covariates: Any = None) -> NDArray:
        """Personalised estimate of each row's group.

        Parameters
        ----------
        X, groups, covariates : as in `posterior`

        Returns
        -------
        ndarray of shape (n_rows,) or (n_rows, d)
            Without `X`, one entry for each label in `groups`, or each group of the fit.
        """
        mean = self._predict(X, groups, covariates)
        return mean[:, 0] if mean.shape[1] == 1 else mean

    def _predict(self, X: Any, groups: Any, covariates: Any) -> NDArray:
        check_is_fitted(self, "prior_")
        if X is None:
            codes = slice(None) if groups is None else number_labels(read_labels(groups))[1]
            return self.posterior(groups=groups, covariates=covariates).mean[codes]
        if is_lazy(X):
            raise ValueError(
                "estimates row by row need the rows in memory; posterior(X, groups=...) estimates "
                "the groups of X."
            )
        rows = self._read(X, None, groups, False, covariates=covariates)
        prior = self._population(self._covariates(rows.clients.ids, rows.covariates))
        mean = self._posterior(rows.clients, self._likelihood(rows.summary), prior).mean
        return mean if rows.labels is None else mean[number_labels(rows.labels)[1]]

    def fit_predict(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        consent: Any = None,
        covariates: Any = None,
    ) -> NDArray:
        """Fit, and estimate the group of each row; see `fit` and `predict`."""
        self.fit(X, y, **_given(groups, consent, covariates))
        return self.predict(X, **_given(groups, covariates=covariates))

    def transform(self, X: Any, *, groups: Any = None, covariates: Any = None) -> NDArray:
        """Replace each row by the estimate of its group, shape (n_rows, d)."""
        return self._predict(X, groups, covariates)

    def fit_transform(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        consent: Any = None,
        covariates: Any = None,
    ) -> NDArray:
        """Fit, and replace each row by the estimate of its group."""
        self.fit(X, y, **_given(groups, consent, covariates))
        return self.transform(X, **_given(groups, covariates=covariates))

    def score(self, X: Any, y: Any = None, *, groups: Any = None, covariates: Any = None) -> float:
        """Held-out log predictive density, per row.

        The density of the rows of each group given the rows of that group in the fit (none, if it
        is a new group) and the fitted population. Higher is better; comparable between priors.

        Returns
        -------
        float
        """
        check_is_fitted(self, "prior_")
        rows = self._read(X, y, groups, False, covariates=covariates)
        summary, covariates = rows.summary, self._covariates(rows.clients.ids, rows.covariates)
        if rows.labels is None:
            return float(self._log_evidence(summary, covariates).sum() / summary.n.sum())
        seen = self._known(summary.ids)
        gain = self._log_evidence(seen.merge(summary), covariates)
        gain -= self._log_evidence(seen, covariates)
        return float(gain.sum() / summary.n.sum())

    def _log_evidence(self, summary: Summary, covariates: NDArray) -> NDArray:
        """Log marginal density of each group's rows."""
        fitted = self._population(covariates)
        return fitted.log_marginal(self._likelihood(summary)) + self._log_rows(summary)

    # Reports ----------------------------------------------------------------------------------

    def summary(self) -> Any:
        """Return the fit as a printed table."""
        from ebfed.report import summary_table

        check_is_fitted(self, "prior_")
        return summary_table(self)

    def _tidy(self) -> dict[str, NDArray]:
        from ebfed.report import tidy

        check_is_fitted(self, "prior_")
        return tidy(self)

    def _style(self) -> Style:
        return self._output(self._style_)

    def _coordinates(self) -> tuple[list[str], NDArray]:
        names = self._response_names()
        return names, np.ones(len(names), bool)

    def _expected_of_groups(self) -> NDArray:
        mean = self._population(self._memory["covariates"]).mean_
        return np.broadcast_to(mean, (len(self.groups_), self.n_features_in_))

    def _given_population(self) -> Posterior:
        known = copy(self._population(self._memory["covariates"]))
        for doubt in ("mean_variance_", "variance_variance_"):
            if hasattr(known, doubt):
                setattr(known, doubt, np.zeros_like(getattr(known, doubt)))
        return self._posterior(self.summaries_, self._likelihood(self.summaries_), known)

    def _response_names(self) -> list[str]:
        names = getattr(self, "feature_names_in_", None)
        if names is not None:
            return list(names)
        d = self.n_features_in_
        return ["value"] if d == 1 else [f"x{j}" for j in range(d)]

    def glance(self) -> Any:
        """Return the fit in one row: sizes, log-likelihood, information criteria."""
        from ebfed.report import glance

        check_is_fitted(self, "prior_")
        return frame(glance(self), self._output(self._style_))

    def augment(self, X: Any, *, groups: Any = None, covariates: Any = None) -> Any:
        """Return the rows with the estimate of their group and what it leaves over.

        Parameters
        ----------
        X, groups, covariates : as in `predict`

        Returns
        -------
        DataFrame
            Group label, the columns of `X`, then ``.fitted``, ``.resid`` and ``.fixed``, what would
            be fitted if nothing were known of the group (each with the name of the column, where
            there are several). Of a pandas frame, with its index.
        """
        check_is_fitted(self, "prior_")
        rows = self._read(X, None, groups, False, covariates=covariates)
        labels = rows.summary.ids if rows.labels is None else rows.labels
        fitted = self._predict(X, groups, covariates)
        expected = self._population(self._covariates(rows.clients.ids, rows.covariates)).mean_
        expected = np.broadcast_to(expected, (len(rows.clients.ids), fitted.shape[1]))
        if rows.labels is not None:
            expected = expected[number_labels(rows.labels)[1]]
        values = self._values(X, groups)
        names = self._response_names()
        columns = {name: values[:, j] for j, name in enumerate(names)}
        for j, name in enumerate(names):
            suffix = "" if len(names) == 1 else f"_{name}"
            columns[".fitted" + suffix] = fitted[:, j]
            columns[".resid" + suffix] = values[:, j] - fitted[:, j]
            columns[".fixed" + suffix] = expected[:, j]
        style = self._output(rows.style).avoiding(columns)
        return indexed_like(frame({style.group: labels} | columns, style), X)

    @property
    def log_likelihood_(self) -> float:
        """Log marginal likelihood at the fitted parameters: of all rows, or of clients' reports."""
        check_is_fitted(self, "prior_")
        if self._is_server or len(self.summaries_) == self._n_clients:
            if self._reported is not None:  # what did not leave clients is not summed up either
                return self._reported
        else:  # a node's own: the likelihood is that of all nodes together
            return np.nan
        return float(self._log_evidence(self.summaries_, self._memory["covariates"]).sum())

    @property
    def n_parameters_(self) -> int:
        """Number of fitted parameters of the population."""
        check_is_fitted(self, "prior_")
        return self.prior_.n_parameters_

    # Reading ----------------------------------------------------------------------------------

    def _read(
        self,
        X: Any,
        y: Any,
        groups: Any,
        reset: bool,
        consent: Any = None,
        covariates: Any = None,
    ) -> _Rows:
        """Summarise rows by group, and read what goes with them."""
        if isinstance(X, Clients | Summary):
            if consent is not None and not isinstance(consent, Mapping):
                consent = read_labels(consent, "consent")
            summary, labels, style = self._read_summary(X, groups, reset)
            covariates = self._read_covariates(covariates, None, None, summary.ids, style, reset)
            return _Rows(summary, labels, style, consent, covariates)
        if isinstance(X, Summarised) or is_lazy(X):
            return self._read_table(X, groups, reset, consent, covariates)
        if y is not None and _ndim(X) == 1:
            raise ValueError(
                "X is one-dimensional and y was given. Observations go in X; if y holds the "
                "labels of the groups, pass them as groups=."
            )
        groups = self._group_column(X, groups, reset)
        whole, X, covariates = X, *self._without_covariates(X, covariates, reset)
        table = read(X, groups, self._consent_column(X, consent, reset))
        values = self._validate(table.X, reset)
        style = self._remember(table.style, reset)
        if table.labels is None:
            summary = Summary.each_row(values)
        else:
            summary = self._summarise(values, table.labels)
        covariates = self._read_covariates(
            covariates, whole, table.labels, summary.ids, style, reset
        )
        return _Rows(summary, table.labels, style, table.consent, covariates)

    def _without_covariates(self, X: Any, covariates: Any, reset: bool) -> tuple[Any, Any]:
        """Return X without columns of covariates, and which covariates to read.

        Later frames may have the columns of the fit too.
        """
        named = named_columns(covariates)
        if reset:
            self._covariate_columns = named
        there = column_names(X) if self._covariate_columns and is_frame(X) else []
        own = [name for name in self._covariate_columns if name in there]
        if covariates is None and len(own) == len(self._covariate_columns) > 0:
            covariates = own
        return (drop_columns(X, own) if own else X), covariates

    def _read_covariates(
        self,
        covariates: Any,
        X: Any,
        labels: NDArray | None,
        ids: NDArray,
        style: Style,
        reset: bool,
    ) -> NDArray:
        """Covariates that were given, shape (n_groups, k)."""
        if reset:
            covariates, self.covariate_names_ = read_covariates(
                covariates, X, labels, ids, style.group
            )
            return covariates
        if covariates is not None and not self.covariate_names_:
            raise ValueError("covariates= was given, but the fit had no covariates.")
        names = self.covariate_names_
        return read_covariates(covariates, X, labels, ids, style.group, names)[0]

    def _read_table(self, X: Any, groups: Any, reset: bool, consent: Any, covariates: Any) -> _Rows:
        """Read a table whose rows are not in memory."""
        import pandas as pd

        if not isinstance(X, Summarised):
            if getattr(self, "binarize", None) is not None:
                raise ValueError(
                    "binarize cuts rows in memory; cut those of X where they are, to a column of "
                    "0 and 1."
                )
            header = pd.DataFrame(columns=column_names(X))
            groups = self._group_column(header, groups, reset)
            consent = self._consent_column(header, consent, reset)
            X = summarise(X, groups, None if isinstance(consent, Mapping) else consent)
        if named_columns(covariates):
            raise ValueError(
                "covariates= must be a frame or an array with a row for each group, where the rows "
                "of X are not in memory; leave its columns out of X."
            )
        validate_data(self, pd.DataFrame(columns=X.columns), skip_check_array=True, reset=reset)
        summary, labels, _ = self._read_summary(X.summary, None, reset)
        chosen = consent if X.consent is None else X.consent
        style = self._remember(X.style, reset)
        covariates = self._read_covariates(covariates, None, None, summary.ids, style, reset)
        return _Rows(summary, labels, style, chosen, covariates)

    def _consent_column(self, X: Any, consent: Any, reset: bool) -> Any:
        """Remember the column that holds the choices, so that later frames may have it too."""
        if reset:
            self._consent_name = consent if isinstance(consent, str) else None
        elif self._consent_name in getattr(X, "columns", ()):
            return self._consent_name
        return consent

    def _group_column(self, X: Any, groups: Any, reset: bool) -> Any:
        """Remember the column of labels, which later frames that have it need not name."""
        if reset:
            self._group_name = groups if isinstance(groups, str) else None
        elif groups is None and is_frame(X) and self._group_name in column_names(X):
            return self._group_name
        return groups

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
            raise TypeError("augment needs the rows themselves; got a summary.")
        groups = self._group_column(X, groups, False)
        X, _ = self._without_covariates(X, None, False)
        return self._validate(read(X, groups, self._consent_column(X, None, False)).X, reset=False)

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
        if self._is_server:  # a server does not know who is who
            return np.full(len(ids), -1)
        return pd.Index(self.summaries_.ids).get_indexer(pd.Index(ids))

    def _prior_instance(self, names: dict[str, Prior]) -> Prior:
        """Return the prior that the argument names, or a copy of the one it is."""
        if isinstance(self.prior, Prior):
            return clone(self.prior)
        if isinstance(self.prior, str) and self.prior in names:
            return names[self.prior]
        raise ValueError(
            f"prior must be {', '.join(map(repr, names))} or an ebfed.priors.Prior; "
            f"got {self.prior!r}."
        )


def _ndim(X: Any) -> int:
    return X.ndim if hasattr(X, "ndim") else np.asarray(X).ndim


def _blank(clients: Summary) -> dict[str, NDArray]:
    """What clients of one class keep before they have sent anything."""
    return {
        "consent": np.zeros(len(clients), np.int8),
        "clipped": np.zeros(len(clients), bool),
        "report": np.full(clients.mean.shape, np.nan),
        "covariates": np.empty((len(clients), 0)),
    }


def _given(groups: Any, consent: Any = None, covariates: Any = None) -> dict[str, Any]:
    """Arguments of `fit` that were given: subclasses need not know them all."""
    every = {"groups": groups, "consent": consent, "covariates": covariates}
    return {name: value for name, value in every.items() if value is not None}


def _lines(text: str) -> list[str]:
    """Names that came in one string."""
    return str(text).split("\n") if text else []


def _in_waves(channel: Channel) -> bool:
    """Whether some clients report first, to aim what the others are asked."""
    return isinstance(channel, Report) and isinstance(channel.range, str)


def _settled(channel: Channel, arguments: Mapping[str, Any]) -> Channel:
    """Return a copy of a channel with what it left open settled.

    Raises
    ------
    ValueError
        If an argument was not left open: a server must not loosen what a client set.
    """
    fixed = set(arguments) - channel.left_open
    if fixed:
        raise ValueError(f"{min(fixed)} of {channel!r} is not the server's to choose.")
    return clone(channel).set_params(**arguments)
