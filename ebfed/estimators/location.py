"""Location: a parameter for every group, estimated in one round.

Clients send summaries through a channel, the server fits a prior to what the messages say, and
every client's posterior follows from its own exact data. A subclass names its `model`, the
likelihood of exact figures.
"""

from __future__ import annotations

import itertools
import warnings
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from ebfed.channels import Channel, Exact, Guess
from ebfed.channels.base import Message
from ebfed.channels.design import DEFAULT_GUESS, settle
from ebfed.channels.report import Report
from ebfed.clients import Clients, Summary, number_labels
from ebfed.estimators.base import Estimator
from ebfed.estimators.consent import classes_of
from ebfed.likelihoods import Likelihood, join
from ebfed.priors import IdentificationWarning, Posterior, Prior
from ebfed.privacy import PrivacyWarning, ledger
from ebfed.pushdown import Summarised, column_names, is_lazy, summarise
from ebfed.tabular import Style, frame, read, read_labels

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


class LocationEstimator(OneToOneFeatureMixin, TransformerMixin, Estimator):
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
    n_features_in_ : int
    """

    prior: Any
    channel: Channel | Mapping[Any, Channel] | None
    guess: Guess | None
    participation: Any

    prior_: Prior
    summaries_: Summary
    _reported: float | None
    _consent_name: str | None = None

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
        self, X: Any, y: Any = None, *, groups: Any = None, consent: Any = None
    ) -> tuple[Summary, dict[str, NDArray]]:
        """Summarise rows, and note which class each client chose."""
        self._channels()
        summary, labels, _, chosen = self._read(X, y, groups, True, consent)
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
        return summary, _blank(summary) | {"consent": chosen}

    def _default_consent(self, summary: Summary) -> NDArray[np.int8]:
        """Number of everybody's class where nobody said."""
        if len(self._channels()) > 1:
            classes = ", ".join(map(repr, self._channels()))
            raise ValueError(
                f"consent= must say which class of channel ({classes}) each group chose."
            )
        return np.zeros(len(summary), np.int8)

    def describe(self, clients: Summary, memory: dict) -> dict[str, NDArray]:
        """State numbers of rows, classes of consent, and columns."""
        names = getattr(self, "feature_names_in_", np.empty(0, str))
        return {
            "n": clients.n,
            "consent": memory["consent"],
            "n_features": np.array([clients.n_features]),
            "columns": np.array(["\n".join(names)]),
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
        return message, memory | {"clipped": clipped, "report": report}

    def releases(self, sent: dict, memory: dict, clients: Summary) -> list[dict[str, Any]]:
        """List what clients send in a round, class by class."""
        rows = []
        for index, (name, channel) in enumerate(self._channels(sent["settings"]).items()):
            mine = memory["consent"] == index
            asked = mine & (memory["turn"] == sent["round"])
            if not asked.any():
                continue
            when = [f"asked in round {sent['round'] + 1}"] if np.any(asked != mine) else []
            told = clients if asked.all() else clients.take(asked)
            rows.append(
                ledger.release(
                    ", ".join([name, *when] if name != EVERYONE else when) or EVERYONE,
                    channel,
                    clients=int(asked.sum()),
                    clipped=int(memory["clipped"][asked].sum()) if "clipped" in memory else None,
                    bits=float(channel.message_bits(told).sum()),
                    n_features=clients.n_features,
                )
            )
        return rows

    def finish(self, sent: dict, memory: dict, clients: Summary) -> Self:
        """Set the learned attributes of these clients' own copy."""
        self._learn(sent)
        self._elsewhere = False
        self.summaries_ = clients
        self._memory = memory
        self._ledger = self._write_ledger()
        return self

    # Server -----------------------------------------------------------------------------------

    def check_facts(self, facts: dict) -> None:
        """Raise a ValueError if that is not what clients may state."""
        kinds = {"n": "i", "consent": "i", "n_features": "i", "columns": "U"}
        sound = facts.keys() == kinds.keys() and all(
            isinstance(x, np.ndarray) and x.dtype.kind == kinds[name] and x.ndim == 1
            for name, x in facts.items()
        )
        sound = (
            sound
            and len(facts["n"]) == len(facts["consent"]) > 0
            and len(facts["n_features"]) == len(facts["columns"]) == 1
            and facts["n"].min() >= 0
            and 0 <= facts["consent"].min() <= facts["consent"].max() < len(self._channels())
            and facts["n_features"][0] > 0
        )
        if not sound:
            raise ValueError("facts must be numbers of rows, classes of consent, and columns.")

    def check_message(self, message: dict, facts: dict, sent: dict, turn: NDArray) -> None:
        """Raise a ValueError if that is no answer of the clients that stated these facts."""
        channels = self._channels(sent["settings"])
        if message.keys() != channels.keys():
            raise ValueError(f"a message must have the parts {', '.join(channels)}.")
        for index, (name, channel) in enumerate(channels.items()):
            n = facts["n"][(turn == sent["round"]) & (facts["consent"] == index)]
            nothing = np.zeros((len(n), int(facts["n_features"][0])))
            pattern = channel.encode(Summary(np.arange(len(n)), n, nothing, nothing), 0)
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
        for name in ("n_features", "columns"):
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
            "n": facts["n"],
            "consent": facts["consent"],
            "heard": [],
            "settings": [],
        }
        return self._settle(state | {"turn": self._turns(state)}, self.guess)

    def _settle(self, state: dict, guess: Guess | None) -> dict:
        """Choose what channels leave open for the next round."""
        arguments: dict[str, dict] = {}
        if guess is not None and not isinstance(guess, Guess):
            raise TypeError(f"guess must be an ebfed.channels.Guess; {guess!r} came.")
        for index, (name, channel) in enumerate(self._channels().items()):
            arguments[name] = {}
            n = state["n"][state["consent"] == index]
            if isinstance(channel, Report):
                told = n[n > 0]
                size = int(np.median(told)) if len(told) else 0
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
            mine = asked & (state["consent"] == index)
            if not _in_waves(channel):
                turns[mine] = 0
                continue
            order = rng.permutation(np.flatnonzero(mine))
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

    def update(self, state: dict, messages: dict[str, Message]) -> dict:
        """Fit the prior to what all messages say; before the last round, aim the next one."""
        state = state | {"heard": [*state["heard"], messages], "round": state["round"] + 1}
        if state["round"] == state["n_rounds"]:
            return self._done(state, self._fit_prior(state))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IdentificationWarning)
            fitted = self._fit_prior(state)
        return self._settle(state, self._sharpened(fitted, state["n_features"]))

    def _done(self, state: dict, prior: Prior) -> dict:
        """Add what was learned to the state, in plain numbers."""
        fitted = {name: value for name, value in vars(prior).items() if name.endswith("_")}
        told = self._log_likelihood_of_reports(state, prior)
        learned = {"prior": fitted, "log_likelihood": told, "n_clients": len(state["n"])}
        return state | {"done": True} | learned

    def conclude(self, state: dict) -> Self:
        """Set the learned attributes of the server's own copy.

        It estimates any group from rows it is given, and has a ledger of the clients it asked; of
        their own estimates it knows nothing.
        """
        self._learn(self.broadcast(state))
        self._elsewhere = True
        self.n_features_in_ = state["n_features"]
        if state["columns"]:
            self.feature_names_in_ = np.array(state["columns"].split("\n"), object)
        self._remember(Style(), True)
        n = state["n"]
        nothing = np.zeros((len(n), state["n_features"]))
        self.summaries_ = Summary(np.arange(len(n)), n, nothing, nothing)
        if self._reported is None:
            told = [message for heard in state["heard"] for message in heard.values()]
            figures = (np.concatenate([x[name] for x in told]) for name in ("n", "mean", "scatter"))
            shown = Summary(np.arange(sum(len(x["n"]) for x in told)), *figures)
            self._reported = float(self._log_evidence(shown).sum())
        self._memory = _blank(self.summaries_)
        self._memory |= {"turn": state["turn"], "consent": state["consent"]}
        del self._memory["clipped"]  # which clients count at home
        self._ledger = self._write_ledger()
        return self

    def _fit_prior(self, state: dict) -> Prior:
        return self._make_prior().fit(self._heard(state))

    def _heard(self, state: dict) -> Likelihood:
        """Likelihood of all messages so far."""
        told = [
            (channel, message[name])
            for settings, message in zip(state["settings"], state["heard"], strict=False)
            for name, channel in self._channels(settings).items()
        ]
        # not all classes answer in all rounds
        told = [(channel, message) for channel, message in told if len(message["n"])] or told[:1]
        return join([channel.likelihood(message, self.model) for channel, message in told])

    def _sharpened(self, prior: Prior, n_features: int) -> Guess:
        """Guess again, from an estimate and its standard errors."""
        error = np.sqrt(getattr(prior, "mean_variance_", prior.variance_ / 10))
        doubt = getattr(prior, "variance_variance_", prior.variance_**2)
        first = DEFAULT_GUESS if self.guess is None else self.guess
        before = np.array([first.column(j, n_features) for j in range(n_features)]).T
        heard = error > 0  # else nobody has spoken of this column yet
        # a variance that is not known better than its size is worth little
        squared = prior.variance_**2
        trust = np.where(squared > 0, squared / np.maximum(squared + doubt, 1e-300), 0.0) * heard
        variance = trust * prior.variance_ + (1 - trust) * before[2] ** 2
        centre = np.clip(prior.mean_, before[0], before[1])
        low, high = np.maximum(centre - error, before[0]), np.minimum(centre + error, before[1])
        mean = np.where(heard, low, before[0]), np.where(heard, high, before[1])
        return Guess(mean=mean, spread=np.sqrt(variance))

    def _channels(self, settings: Mapping[str, dict] | None = None) -> dict[str, Channel]:
        """Return a copy of the channel of each class, with what was left open settled."""
        channel = Exact() if self.channel is None else self.channel
        channels = channel if isinstance(channel, Mapping) else {EVERYONE: channel}
        named = {str(name): each for name, each in channels.items()}
        if not named or len(named) < len(channels):
            raise TypeError(f"channel must be one, or name classes differently; {channel!r} came.")
        for each in named.values():
            if not isinstance(each, Channel):
                raise TypeError(
                    "channel must be an ebfed.channels.Channel, or a dict of them by class of "
                    f"consent; {each!r} came."
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

    def fit(self, X: Any, y: Any = None, *, groups: Any = None, consent: Any = None) -> Self:
        """Learn the population from rows.

        Parameters
        ----------
        X : array-like, series or data frame of shape (n_rows, d) or (n_rows,), Clients or Summary
        y : ignored
        groups : array-like of shape (n_rows,) or str, optional
            Label of each row, or the column of the frame `X` that holds it. None: every row is a
            group of its own.
        consent : array-like of shape (n_rows,), str or dict, optional
            Which of the channels in `channel` each row's group chose: labels, the column of the
            frame `X` that holds them, or a dict from group to class.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            If rows are missing, infinite or of the wrong type, or labels do not fit them.
        """
        return self._fit(*self.prepare(X, y, groups=groups, consent=consent))

    def _fit(self, clients: Summary, memory: dict) -> Self:
        state, memory = self._converse_here(clients, memory)
        return self.finish(self.broadcast(state), memory, clients)

    @available_if(_has_one_channel)
    def partial_fit(self, X: Any, y: Any = None, *, groups: Any = None) -> Self:
        """Add a block of rows to what was fitted before; the answer is that of one `fit` on all.

        Blocks may share groups. Parameters are those of `fit`; without `groups`, the rows of a
        block are new groups, numbered on from those seen.
        """
        if not hasattr(self, "summaries_"):
            return self.fit(X, y, groups=groups)
        (channel,) = self._channels().values()
        if channel.guarantee()[0] < np.inf:
            raise ValueError(
                f"partial_fit would ask every client for a second report through {channel!r}, at "
                "twice the privacy; fit all rows at once."
            )
        summary = self._read(X, y, groups, reset=False)[0]
        if groups is None and not isinstance(X, Clients | Summary):
            if self.groups_.dtype.kind != "i":
                raise ValueError("groups must label the rows, as they did before.")
            start = self.groups_[-1] + 1
            summary = Summary(summary.ids + start, summary.n, summary.mean, summary.scatter)
        merged = self.summaries_.merge(summary)
        return self._fit(merged, _blank(merged))

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
        rows, counts = self._heard(state).compress()
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
            self._check_rows()
            summary = (
                self.summaries_
                if groups is None
                else self._known(number_labels(read_labels(groups))[0])
            )
            ids, style = summary.ids, self._style_
        else:
            summary, labels, style, _ = self._read(X, None, groups, reset=False)
            ids, summary = summary.ids, summary if labels is not None else _strangers(summary)
        likelihood = self._likelihood(summary)
        columns = {"n": summary.n, "local": likelihood.local}
        terms = getattr(self, "feature_names_in_", None)
        return self._posterior(summary, likelihood).labelled(
            ids, columns, self._output(style), None if terms is None else tuple(terms)
        )

    def _check_rows(self) -> None:
        """Refuse to speak of clients whose figures are elsewhere."""
        if self._elsewhere:
            raise ValueError(
                "the clients kept their figures, and have their estimates; give rows to estimate."
            )

    def _posterior_of_all(self) -> Posterior:
        """Posterior of the groups of the fit; its means are void if those are elsewhere."""
        return self._posterior(self.summaries_, self._likelihood(self.summaries_))

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
            codes = slice(None) if groups is None else number_labels(read_labels(groups))[1]
            return self.posterior(groups=groups).mean[codes]
        if is_lazy(X):
            raise ValueError(
                "estimates row by row need the rows in memory; posterior(X, groups=...) estimates "
                "the groups of X."
            )
        summary, labels, *_ = self._read(X, None, groups, reset=False)
        if labels is None:
            summary = _strangers(summary)
        mean = self._posterior(summary, self._likelihood(summary)).mean
        return mean if labels is None else mean[number_labels(labels)[1]]

    def fit_predict(
        self, X: Any, y: Any = None, *, groups: Any = None, consent: Any = None
    ) -> NDArray:
        """Fit, and estimate the group of each row; see `fit` and `predict`."""
        return self.fit(X, y, groups=groups, consent=consent).predict(X, groups=groups)

    def transform(self, X: Any, *, groups: Any = None) -> NDArray:
        """Replace each row by the estimate of its group, shape (n_rows, d)."""
        return self._predict(X, groups)

    def fit_transform(
        self, X: Any, y: Any = None, *, groups: Any = None, consent: Any = None
    ) -> NDArray:
        """Fit, and replace each row by the estimate of its group."""
        return self.fit(X, y, groups=groups, consent=consent).transform(X, groups=groups)

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
        summary, labels, style, _ = self._read(X, None, groups, reset=False)
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
        if self._elsewhere or len(self.summaries_) == self._n_clients:
            if self._reported is not None:  # what did not leave clients is not summed up either
                return self._reported
        else:  # a node's own: the likelihood is that of all nodes together
            return np.nan
        return float(self._log_evidence(self.summaries_).sum())

    @property
    def n_parameters_(self) -> int:
        """Number of fitted parameters of the population."""
        check_is_fitted(self, "prior_")
        return self.prior_.n_parameters_

    # Reading ----------------------------------------------------------------------------------

    def _read(
        self, X: Any, y: Any, groups: Any, reset: bool, consent: Any = None
    ) -> tuple[Summary, NDArray | None, Style, Any]:
        """Return summaries of the rows, labels (None: row by row), style, and choices."""
        if isinstance(X, Clients | Summary):
            if consent is not None and not isinstance(consent, Mapping):
                consent = read_labels(consent, "consent")
            return *self._read_summary(X, groups, reset), consent
        if isinstance(X, Summarised) or is_lazy(X):
            return self._read_table(X, groups, reset, consent)
        if y is not None and _ndim(X) == 1:
            raise ValueError(
                "X is one-dimensional and y was given. Observations go in X; if y holds the "
                "labels of the groups, pass them as groups=."
            )
        table = read(X, groups, self._consent_column(X, consent, reset))
        values = self._validate(table.X, reset)
        if table.labels is None:
            style = self._remember(table.style, reset)
            return Summary.each_row(values), None, style, table.consent
        summary = self._summarise(values, table.labels)
        return summary, table.labels, self._remember(table.style, reset), table.consent

    def _read_table(
        self, X: Any, groups: Any, reset: bool, consent: Any
    ) -> tuple[Summary, NDArray, Style, Any]:
        """Read a table whose rows are not in memory."""
        import pandas as pd

        if not isinstance(X, Summarised):
            if getattr(self, "binarize", None) is not None:
                raise ValueError(
                    "binarize cuts rows in memory; cut those of X where they are, to a column of "
                    "0 and 1."
                )
            header = pd.DataFrame(columns=column_names(X))
            consent = self._consent_column(header, consent, reset)
            X = summarise(X, groups, None if isinstance(consent, Mapping) else consent)
        validate_data(self, pd.DataFrame(columns=X.columns), skip_check_array=True, reset=reset)
        summary, labels, _ = self._read_summary(X.summary, None, reset)
        chosen = consent if X.consent is None else X.consent
        return summary, labels, self._remember(X.style, reset), chosen

    def _consent_column(self, X: Any, consent: Any, reset: bool) -> Any:
        """Remember the column that holds the choices, so that later frames may have it too."""
        if reset:
            self._consent_name = consent if isinstance(consent, str) else None
        elif self._consent_name in getattr(X, "columns", ()):
            return self._consent_name
        return consent

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
        if self._elsewhere:  # a server does not know who is who
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
            f"{self.prior!r} came."
        )


def _ndim(X: Any) -> int:
    return X.ndim if hasattr(X, "ndim") else np.asarray(X).ndim


def _blank(clients: Summary) -> dict[str, NDArray]:
    """What clients of one class keep before they have sent anything."""
    return {
        "consent": np.zeros(len(clients), np.int8),
        "clipped": np.zeros(len(clients), bool),
        "report": np.full(clients.mean.shape, np.nan),
    }


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


def _strangers(summary: Summary) -> Summary:
    """Rows without labels are none of the groups of the fit, whatever their number."""
    return replace(summary, ids=np.full(len(summary), None))
