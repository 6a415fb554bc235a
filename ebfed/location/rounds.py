"""The rounds of a location estimator: what clients report, and a prior fitted to what they say.

Clients state public facts and report through the channel of their class of consent. The server
settles what channels leave open, and fits the prior to the messages.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Unpack, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from ebfed.arguments import check_single
from ebfed.channels import Channel, Guess
from ebfed.channels.design import DEFAULT_GUESS, settle
from ebfed.channels.report import Report
from ebfed.engines.protocol import (
    LocationFacts,
    LocationMemory,
    LocationSent,
    LocationState,
    Message,
    Rounds,
)
from ebfed.engines.publishing import name_columns
from ebfed.engines.robust import pair
from ebfed.families import Family
from ebfed.likelihoods import Likelihood, join
from ebfed.location import matching
from ebfed.location.consent import ALL_CLIENTS, check_channels, named_channels, settled
from ebfed.location.cross_fitting import check_mean_model, check_no_regressor
from ebfed.location.learned import Learned
from ebfed.location.levels import check_levels, population_within
from ebfed.location.matching import summary_of
from ebfed.priors import IdentificationWarning, Prior
from ebfed.priors.regression import check_covariates
from ebfed.privacy import PrivacyWarning, ledger
from ebfed.privacy.ledger import simulated
from ebfed.privacy.odometer import Plan
from ebfed.report.view import ChannelView
from ebfed.streams import is_fixed
from ebfed.tables.alignment import counts_only
from ebfed.tables.clients import LARGEST, Summary
from ebfed.tables.consent import classes_of
from ebfed.tables.intake import Intake
from ebfed.tables.levels import names_of_parents
from ebfed.tables.of_rows import OfRows
from ebfed.tables.roles import Roles

__all__ = ["RESULTS", "LocationRounds", "lines"]

# Shares of the clients that report in each round, where a round chooses the next questions.
WAVES = (0.05, 0.15, 0.8)

# Largest number of rows or events of a group, up to which floats have all whole numbers.
COUNTABLE = 2**53

# Keys of the last state that are broadcast.
RESULTS = ("settings", "prior", "log_likelihood", "n_clients")


class LocationRounds(Rounds):
    """The protocol of a location estimator; see `ebfed.engines.protocol.Rounds`.

    Parameters
    ----------
    estimator : LocationEstimator
        Its arguments are read, and what was learned is set on it.
    family : Family
        Family of the rows of the clients.
    prior : Prior
        Population: to be fitted, or fitted, to be used as it is.
    """

    answers_every_round: ClassVar[bool] = False
    # Keys of the last state that are broadcast.
    results: ClassVar[tuple[str, ...]] = RESULTS
    # Whether the server needs no more than summaries of groups.
    adds_up: ClassVar[bool] = True
    # Whether the noise that protects clients is the server's.
    server_adds_noise: ClassVar[bool] = False

    merge_facts = staticmethod(matching.merged_facts)

    def __init__(self, estimator: Any, family: Family, prior: Prior):
        self.estimator, self.family, self.prior = estimator, family, prior
        self._latest: list[Any] = []

    @cached_property
    def channels(self) -> dict[str, Channel]:
        """Channels by class of consent; the broadcast has their open arguments."""
        return named_channels(self.estimator.channel)

    @cached_property
    def fitted_family(self) -> Family:
        """Family of the rows that the prior is fitted to; a fitted one knows their noise."""
        if self.prior.is_fitted and self.family.needs_scatter:
            return self.family.settled(self.prior.noise_variance_)
        return self.family

    # Clients ----------------------------------------------------------------------------------

    def prepare(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        consent: Any = None,
        covariates: Any = None,
        **of_rows: Unpack[OfRows],
    ) -> tuple[Summary, LocationMemory]:
        """Summarise rows, and note covariates and which class each client chose."""
        fit = self.estimator
        check_single(fit)
        check_mean_model(fit.mean_model, covariates)
        check_channels(self.family, fit.channel)
        if covariates is not None:
            self.check_covariates()
        fit._intake = Intake()
        given = {"y": y, "consent": consent, "covariates": covariates}
        rows = fit._read(X, groups, learn=True, **given, **of_rows)
        check_levels(self, fit._intake.covariate_names)
        if rows.consent is None:
            chosen = self.default_consent(rows.summary)
        elif not isinstance(fit.channel, Mapping):
            raise ValueError(
                "consent has no meaning with one channel for all: give channel= a dict of them, "
                "by class of consent."
            )
        else:
            classes = list(fit.channel)
            chosen = classes_of(rows.consent, classes, rows.summary.ids, rows.labels)
        memory = self.blank(rows.summary)
        memory["consent"], memory["covariates"] = chosen, rows.covariates
        return rows.summary, memory

    def default_consent(self, summary: Summary) -> NDArray[np.int8]:
        """Return the number of the class of each client where no choices were given."""
        if len(self.channels) > 1:
            classes = ", ".join(map(repr, self.channels))
            raise ValueError(
                f"consent= must say which class of channel ({classes}) each group chose."
            )
        return np.zeros(len(summary), np.int8)

    def check_covariates(self) -> None:
        """Refuse covariates that the prior or the channels cannot take, before anything is sent."""
        channels = self.channels.values()
        if not self.prior.takes_covariates:
            raise TypeError(
                f"prior={self.estimator.prior!r} is one population for all clients; covariates= is "
                "for priors.Normal ('normal'), priors.Beta ('beta') and priors.Gamma ('gamma'), "
                "and, where the spread depends on them too, for priors.LocationScale(shape)."
            )
        linear = self.family.has_density and all(channel.keeps_means for channel in channels)
        if not (linear or all(channel.is_exact for channel in channels)):
            raise ValueError(
                "covariates= needs messages that keep the model linear: channels.Exact, and for "
                f"means channels.AddNoise too; got {self.estimator.channel!r}."
            )

    def rows_shown(
        self, clients: Summary, memory: LocationMemory
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return the numbers of rows of clients, and whether their channel gives no guarantee."""
        exact = np.array([not self.protects(name) for name in self.channels])
        return clients.n.astype(float), exact[memory["consent"]]

    def describe(self, clients: Summary, memory: LocationMemory) -> LocationFacts:
        """State numbers of rows, classes of consent, columns, exposures and covariates."""
        check_no_regressor(self.estimator)
        facts: LocationFacts = {
            "n": clients.n,
            "consent": memory["consent"],
            "n_features": np.array([clients.n_features]),
            "columns": np.array(["\n".join(getattr(self.estimator, "feature_names_in_", ()))]),
            "covariates": memory["covariates"].ravel(),
            "covariate_names": np.array(["\n".join(self.estimator._intake.covariate_names)]),
        }
        if clients.weight is not None:
            facts["weight"] = clients.weight
        return facts

    def local(
        self, sent: LocationSent, memory: LocationMemory, clients: Summary, rng: Any
    ) -> tuple[dict[str, Message], LocationMemory]:
        """Send the summaries of the clients whose turn it is, each through its own channel."""
        message: dict[str, Message] = {}
        clipped, report = memory["clipped"].copy(), memory["report"].copy()
        for index, (name, channel) in enumerate(settled(self.channels, sent["settings"]).items()):
            asked = (memory["turn"] == sent["round"]) & (memory["consent"] == index)
            if isinstance(rng, str):  # draws of the operating system have no order to keep
                message[name] = channel.encode(clients.take(asked), rng)
            else:
                message[name] = channel.encode(clients, rng)
                if not asked.all():
                    message[name] = {part: x[asked] for part, x in message[name].items()}
            clipped |= channel.clipped(clients) & asked
            report[asked] = channel.decode(message[name])
            if memory["covariates"].size:  # not all clients that stated covariates will answer
                message[name]["covariates"] = memory["covariates"][asked]
        kept = cast(LocationMemory, memory | {"clipped": clipped, "report": report})
        return message, kept

    def plan(self, sent: LocationSent, memory: LocationMemory, clients: Summary) -> list[Plan]:
        """State all that a run may take from clients, class by class: one answer of each."""
        settings, d = [sent["settings"]], clients.n_features
        plans = []
        for index, (name, channel) in enumerate(settled(self.channels, settings[0]).items()):
            members = memory["consent"] == index
            if members.any():
                event, guarantee = channel.event(d), self.guarantee(name, settings, d)
                plans.append(Plan(name, members, event, "replace_one", *guarantee))
        return plans

    def releases(
        self, sent: LocationSent, memory: LocationMemory, clients: Summary
    ) -> list[dict[str, Any]]:
        """List what clients send in a round, class by class."""
        rows = []
        for index, (name, channel) in enumerate(settled(self.channels, sent["settings"]).items()):
            own = memory["consent"] == index
            asked = own & (memory["turn"] == sent["round"])
            if not asked.any():
                continue
            when = [f"asked in round {sent['round'] + 1}"] if np.any(asked != own) else []
            reporting = clients if asked.all() else clients.take(asked)
            rows.append(
                ledger.release(
                    ", ".join([name, *when] if name != ALL_CLIENTS else when) or ALL_CLIENTS,
                    channel,
                    clients=int(asked.sum()),
                    clipped=int(memory["clipped"][asked].sum()) if "clipped" in memory else None,
                    bits=float(channel.message_bits(reporting).sum()),
                    n_features=clients.n_features,
                    exposures=clients.weight is not None,
                )
            )
        if sent["round"] == 0 and memory["covariates"].size:
            rows.append(ledger.covariates(self.estimator._intake.covariate_names, len(clients)))
        return rows

    def shown_channels(self, settings: list[dict], n_features: int) -> list[ChannelView]:
        """Return the channel of each class and its guarantee, as a summary shows them."""
        return [
            ChannelView(
                name, channel, *self.guarantee(name, settings, n_features), self.kind_of_privacy
            )
            for name, channel in self.shown(settings).items()
        ]

    def shown(self, settings: list[dict]) -> dict[str, Channel]:
        """Return channels as a summary is to show them."""
        return self.channels

    def guarantee(self, name: str, settings: list[dict], n_features: int) -> tuple[float, float]:
        """Epsilon and delta of each client of a class."""
        channel = settled(self.channels, settings[0])[name]
        with warnings.catch_warnings():  # of the paper's calibration: fit has warned already
            warnings.simplefilter("ignore", PrivacyWarning)
            return channel.guarantee(n_features)

    def promises(self) -> bool:
        """Whether the privacy of some class is protected; that of wrong arguments may be."""
        return any(self.protects(name) for name in self.channels)

    def protects(self, name: str) -> bool:
        """Whether the privacy of a class is protected; that of wrong arguments may be."""
        try:
            return self.guarantee(name, [{}], 1)[0] < np.inf
        except (TypeError, ValueError):  # `start` says what is wrong
            return True

    @property
    def kind_of_privacy(self) -> str:
        """Kind of privacy, in words."""
        return "local differential privacy"

    def ledger(
        self, settings: list[dict], memory: LocationMemory, clients: Summary
    ) -> list[dict[str, Any]]:
        """List what clients sent in a fit, round by round and class by class."""
        rows: list[dict[str, Any]] = []
        for number, each in enumerate(settings):
            sent: LocationSent = {"done": False, "round": number, "settings": each}
            rows += self.releases(sent, memory, clients)
        silent = int((memory["turn"] < 0).sum())
        return [*rows, *([ledger.silence(silent)] if silent else [])]

    @staticmethod
    def blank(clients: Summary) -> LocationMemory:
        """Return what clients of one class keep before they have sent anything."""
        return {
            "consent": np.zeros(len(clients), np.int8),
            "clipped": np.zeros(len(clients), bool),
            "report": np.full(clients.mean.shape, np.nan),
            "covariates": np.empty((len(clients), 0)),
        }

    def finish(self, sent: LocationSent, memory: LocationMemory, clients: Summary) -> Any:
        if len(clients) < sent["n_clients"]:  # of one node of several
            self.estimator._totals = sent["n_clients"], sent["n_rows"]
        return self.taken(self.learned(sent, clients, memory))

    def learned(self, sent: LocationSent, summaries: Summary, memory: LocationMemory) -> Learned:
        """Return what a fit has learned, from the last broadcast."""
        names, d = self.estimator._intake.covariate_names, self.estimator.n_features_in_
        prior = clone(population_within(self.prior, names))
        prior.__dict__.update(sent["prior"])
        numbered = ["value"] if d == 1 else [f"x{j}" for j in range(d)]
        return Learned(
            prior,
            self.family.settled(prior.noise_variance_),
            self.channels,
            sent["settings"],
            summaries,
            memory,
            names,
            sent["n_clients"],
            sent["log_likelihood"],
            list(getattr(self.estimator, "feature_names_in_", [])) or numbered,
        )

    def taken(self, learned: Learned) -> Any:
        """Set the attributes that users know from what was learned; returns the estimator."""
        fit = self.estimator
        fit._learned = learned
        fit.prior_, fit.summaries_ = learned.prior, learned.summaries
        fit.covariate_names_ = learned.covariate_names
        rows = self.ledger(learned.settings, learned.memory, learned.summaries)
        by_server = learned.is_server and self.server_adds_noise and is_fixed(fit.random_state)
        learned.ledger = simulated(rows) if fit._simulated or by_server else rows
        return fit

    # The same group at two nodes --------------------------------------------------------------

    def merge(
        self, messages: Sequence[dict[str, Message]], codes: Sequence[NDArray[np.int64]]
    ) -> dict[str, Message]:
        """Merge exact messages about groups with these numbers."""
        (name,) = messages[0]
        parts = [message[name] for message in messages]
        return {name: matching.merged(parts, codes, self.fitted_family)}

    def with_merged(
        self, message: dict[str, Message], clients: Summary, memory: LocationMemory
    ) -> tuple[Summary, LocationMemory]:
        (part,) = message.values()
        merged = matching.checked_part(part, clients)
        return merged, memory | {"report": merged.mean}

    # Checks -----------------------------------------------------------------------------------

    def check_facts(self, facts: LocationFacts) -> None:
        kinds = {"n": "i", "consent": "i", "n_features": "i", "columns": "U"}
        kinds |= {"covariates": "f", "covariate_names": "U"}
        given = cast(Mapping[str, Any], facts)
        weighed = self.fitted_family.weights == "precision" and "weight" in given
        if self.fitted_family.takes_exposure or weighed:
            kinds |= {"weight": "f"}
        sound: bool = given.keys() == kinds.keys() and all(
            isinstance(x, np.ndarray) and x.dtype.kind == kinds[name] and x.ndim == 1
            for name, x in given.items()
        )
        sound = bool(
            sound
            and len(facts["n"]) == len(facts["consent"]) > 0
            and all(len(given[x]) == 1 for x in ("n_features", "columns", "covariate_names"))
            and len(facts["covariates"])
            == len(facts["n"]) * len(lines(facts["covariate_names"][0]))
            and np.isfinite(facts["covariates"]).all()
            and 0 <= facts["n"].min() <= facts["n"].max() <= COUNTABLE
            and 0 <= facts["consent"].min() <= facts["consent"].max() < len(self.channels)
            and facts["n_features"][0] > 0
        )
        if sound and "weight" in facts:
            weight = facts["weight"]
            sound = len(weight) == len(facts["n"]) and bool(np.isfinite(weight).all())
            sound = sound and np.array_equal(weight > 0, facts["n"] > 0)
        if not sound:
            raise ValueError(
                "facts must be numbers of rows, classes of consent, columns, and covariates."
            )

    def check_message(
        self,
        message: dict[str, Message],
        facts: LocationFacts,
        sent: LocationSent,
        turn: NDArray,
    ) -> None:
        channels = settled(self.channels, sent["settings"])
        if message.keys() != channels.keys():
            raise ValueError(f"a message must have the parts {', '.join(channels)}.")
        covariates = facts["covariates"].reshape(len(facts["n"]), -1)
        weight = facts.get("weight")
        for index, (name, channel) in enumerate(channels.items()):
            asked = (turn == sent["round"]) & (facts["consent"] == index)
            n, d = facts["n"][asked], int(facts["n_features"][0])
            blank = self.fitted_family.blank(n, d, None if weight is None else weight[asked])
            pattern = channel.encode(blank, 0)
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
            if "weight" in pattern and not np.array_equal(part["weight"], pattern["weight"]):
                raise ValueError(f"{name} must have the exposures that were stated.")
            if covariates.size and not np.array_equal(part["covariates"], covariates[asked]):
                raise ValueError(f"{name} must have the covariates that were stated.")
            channel.check_message(part)
            if channel.is_exact:
                self._check_figures(name, part)

    def _check_figures(self, name: str, part: Message) -> None:
        """Raise a ValueError if these are no figures of rows that an estimator reads."""
        for each, values in part.items():
            limit = LARGEST if each in ("mean", "centre", "covariates") else LARGEST**2
            if not (np.abs(values) < limit).all():
                raise ValueError(f"{each} of {name} must be below {limit:g} in size.")
        summary = summary_of(part, np.arange(len(part["n"])))
        nothing = part["n"] == 0
        if np.any(part["mean"][nothing]) or np.any(part["scatter"][nothing]):
            raise ValueError(f"{name} must have means and scatters of 0 where there are no rows.")
        counts = not self.family.has_density
        if counts and np.any(summary.size[:, None] * part["mean"] > COUNTABLE):
            raise ValueError(f"{name} must have sums of at most {COUNTABLE}.")
        self.fitted_family.check_summary(summary)

    def check_identified(self, facts: LocationFacts) -> None:
        """Refuse, before anything is sent, a fit whose messages cannot carry what it estimates.

        Raises
        ------
        ValueError
            If no client would show the noise within groups, or the spread of the population.
        """
        family = self.fitted_family
        if family.needs_scatter and not self.all_exact and not self.shows_scatter(facts):
            raise ValueError(
                f"{family.open_parameter} must be given: these channels report on the means "
                "alone, and no client with an Exact channel has two rows to show the noise within "
                "groups."
            )

    @property
    def matches(self) -> bool:
        """Whether messages about one group from several nodes can be merged.

        They can where all are exact summaries. Two private reports about a group are two releases,
        and each has the cost of one: they are not merged.
        """
        whole = len(self.channels) == 1 and self.estimator.participation is None
        return self.adds_up and whole and self.all_exact

    @property
    def pools_noise(self) -> bool:
        """Whether parameters of rows are estimated before the population, and not with it."""
        family = self.fitted_family
        return family.needs_scatter and (family.pools_first or not self.all_exact)

    @property
    def all_exact(self) -> bool:
        """Whether every client sends its figures as they are."""
        return all(channel.is_exact for channel in self.channels.values())

    def shows_scatter(self, facts: LocationFacts) -> bool:
        """Return whether some client sends the scatter of two rows or more as it is."""
        exact = [channel.is_exact for channel in self.channels.values()]
        return bool(np.any(np.array(exact)[facts["consent"]] & (facts["n"] > 1)))

    # Rounds -----------------------------------------------------------------------------------

    def start(self, facts: LocationFacts, key: NDArray) -> LocationState:
        """Return the state before the first round: how clients are to report.

        Raises
        ------
        ValueError
            If clients have different columns, or the channels say nothing about something that is
            to be estimated; no client has sent anything then.
        """
        self.check_identified(facts)
        given = cast(Mapping[str, Any], facts)
        for name in ("n_features", "columns", "covariate_names"):
            if np.any(given[name] != given[name][0]):
                different = np.unique(given[name]).tolist()
                hint = "; give all by categories=" if self.family.name == "categorical" else ""
                raise ValueError(f"clients have different columns: {different}{hint}.")
        spread = any(
            channel.identifies_spread and np.any(facts["consent"] == index)
            for index, channel in enumerate(self.channels.values())
        )
        if self.prior.is_fitted:
            names = lines(str(facts["covariate_names"][0]))
            reused = population_within(self.prior, names)
            reused.check_reuse(int(facts["n_features"][0]), len(names))
        elif self.prior.estimates_spread and not spread and not self.prior.fits_raw_reports:
            shown = self.channels if len(self.channels) > 1 else next(iter(self.channels.values()))
            raise ValueError(
                f"{shown!r} sends one bit per client, which carries nothing about the "
                "spread of a population. Use channels.TwoBit, or a prior whose spread is given."
            )
        waves = any(map(_in_waves, self.channels.values()))
        state: LocationState = {
            "round": 0,
            "n_rounds": len(WAVES) if waves else 1,
            "done": False,
            "key": key,
            "n_features": int(facts["n_features"][0]),
            "columns": str(facts["columns"][0]),
            "covariate_names": str(facts["covariate_names"][0]),
            "covariates": facts["covariates"].reshape(len(facts["n"]), -1),
            "n": facts["n"],
            "weight": facts.get("weight"),
            "consent": facts["consent"],
            "turn": np.zeros(0, np.int8),
            "messages": [],
            "settings": [],
        }
        state["turn"] = self._turns(state)
        names = lines(state["covariate_names"])
        learns = state["covariates"].size and not self.prior.is_fitted
        if learns and not names_of_parents(names):
            reporting = (state["n"] > 0) & (state["turn"] >= 0)
            check_covariates(state["covariates"][reporting], names)
        return self.settle(state, self.estimator.guess)

    def settle(self, state: LocationState, guess: Guess | None) -> LocationState:
        """Choose what channels leave open for the next round."""
        arguments: dict[str, dict[str, Any]] = {}
        if guess is not None and not isinstance(guess, Guess):
            raise TypeError(f"guess must be an ebfed.channels.Guess; got {guess!r}.")
        size = state["n"] if state["weight"] is None else state["weight"]
        for index, (name, channel) in enumerate(self.channels.items()):
            arguments[name] = {}
            if isinstance(channel, Report):
                sizes = size[state["consent"] == index]
                some = sizes[sizes > 0]
                typical = float(np.median(some)) if len(some) else 0.0
                typical = typical if self.fitted_family.takes_exposure else int(typical)
                public = state["n_features"], len(sizes), typical
                arguments[name] = settle(channel, self.fitted_family, *public, guess)
                clone(channel).set_params(**arguments[name]).guarantee(state["n_features"])
        return cast(LocationState, state | {"settings": [*state["settings"], arguments]})

    def broadcast(self, state: LocationState) -> LocationSent:
        """Return which round it is and how to report; in the end, the fitted population."""
        if not state["done"]:
            return {"done": False, "round": state["round"], "settings": state["settings"][-1]}
        results = {name: cast(Mapping[str, Any], state)[name] for name in self.results}
        done = {"done": True, "round": state["round"], "n_rows": int(state["n"].sum())}
        return cast(LocationSent, done | results)

    def update(self, state: LocationState, messages: dict[str, Message]) -> LocationState:
        """Fit the prior to all messages; before the last round, choose the next questions."""
        state = self.received(state, messages)
        if state["round"] == state["n_rounds"]:
            return self.finished(state, self.fit_prior(state))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IdentificationWarning)
            fitted = self.fit_prior(state)
        return self.settle(state, self._sharpened(fitted, state["n_features"]))

    def fitted_parameters(self, state: LocationState) -> dict[str, tuple[NDArray, NDArray]]:
        """Return the parameters of the population, with standard errors; see `population_of`."""
        return population_of(state)

    def conclude(self, state: LocationState) -> Any:
        """Return the estimator, fitted as the server's own copy.

        It estimates any given rows, and has the ledger of the clients, but not their estimates.
        """
        fit = self.estimator
        check_no_regressor(fit)
        fit._intake = Intake()
        fit._intake.covariate_names = lines(state["covariate_names"])
        fit._intake.roles = Roles(self._given(state))
        name_columns(fit, state)
        summaries = self.family.blank(state["n"], state["n_features"], state["weight"])
        memory: LocationMemory = {
            "turn": state["turn"],
            "consent": state["consent"],
            "report": np.full(summaries.mean.shape, np.nan),
            "covariates": state["covariates"],
        }
        learned = self.learned(self.broadcast(state), summaries, memory)
        learned.is_server = True
        if learned.reported is None:
            stated = self.exact_summary(state), self.stated_covariates(state)
            learned.reported = learned.log_likelihood_of(*stated)
        fit._kept = self.keep(state) | {"log_likelihood": learned.reported}
        return self.taken(learned)

    def _given(self, state: LocationState) -> dict[str, None]:
        """Return what rows of clients had, as their facts show, and later rows must have."""
        weight = state["weight"]
        if weight is None or np.array_equal(weight, state["n"]):
            return {}
        if "exposure" in self.family.of_rows:
            return {"exposure": None}
        return {"sample_weight": None} if self.family.weights == "precision" else {}

    @staticmethod
    def received(state: LocationState, messages: dict[str, Message]) -> LocationState:
        """Return the state with the messages of one more round."""
        all_messages = [*state["messages"], messages]
        return state | {"messages": all_messages, "round": state["round"] + 1}

    def finished(self, state: LocationState, prior: Prior) -> LocationState:
        """Return the last state, what was learned in plain numbers."""
        fitted = {name: value for name, value in vars(prior).items() if name.endswith("_")}
        learned = {
            "done": True,
            "prior": fitted,
            "log_likelihood": self.log_likelihood(state, prior),
            "n_clients": len(state["n"]),
        }
        return cast(LocationState, state | learned)

    # Fitting ----------------------------------------------------------------------------------

    def fit_prior(self, state: LocationState) -> Prior:
        """Fit the prior by maximum likelihood; or as a paper does; or use a fitted one as it is."""
        prior = clone(population_within(self.prior, lines(state["covariate_names"])))
        stated = self.stated_covariates(state)
        covariates = stated if stated.shape[1] else None
        if prior.is_fitted:
            prior = prior.reused_for(self.likelihood(state), covariates)
        elif prior.fits_raw_reports and not self.all_exact:
            return prior.fit_raw_reports(self._raw_reports(state))
        else:
            prior.fit(self.likelihood(state), covariates)
        if self.pools_noise:
            prior.noise_variance_ = self.pooled(state)
            if prior.noise_variance_ is None and self.fitted_family.pools_first:
                prior._add_note(self.fitted_family.unidentified, True)
        return prior

    def likelihood(self, state: LocationState) -> Likelihood:
        """Likelihood of all messages so far; unknown noise from those that show their scatter."""
        return self._once(state, self._likelihood)

    def _once(self, state: LocationState, compute: Callable[[LocationState], Any]) -> Any:
        """Compute something of all messages so far; a fit asks for it twice."""
        messages = state["messages"]
        if not (self._latest and self._latest[0] is messages):
            self._latest[:] = [messages, {}]
        known = self._latest[1]
        if compute.__name__ not in known:
            known[compute.__name__] = compute(state)
        return known[compute.__name__]

    def _likelihood(self, state: LocationState) -> Likelihood:
        family = self.fitted_family
        if self.pools_noise:
            family = family.settled(self.pooled(state))
        parts = [
            (channel, message[name])
            for settings, message in zip(state["settings"], state["messages"], strict=False)
            for name, channel in settled(self.channels, settings).items()
        ]
        # not all classes answer in all rounds
        parts = [(channel, message) for channel, message in parts if len(message["n"])] or parts[:1]
        return join([channel.likelihood(message, family) for channel, message in parts])

    def pooled(self, state: LocationState) -> NDArray | None:
        """Parameters of rows that clients with an exact channel show; None if none of them does."""
        return self._once(state, self._pooled)

    def _pooled(self, state: LocationState) -> NDArray | None:
        return self.fitted_family.pooled(
            [
                message[name]
                for message in state["messages"]
                for name, channel in self.channels.items()
                if channel.is_exact
            ]
        )

    def log_likelihood(self, state: LocationState, prior: Prior) -> float | None:
        """Log-likelihood of what was sent; None where that is the rows' own figures."""
        if self.all_exact:
            return None
        rows, counts = self.likelihood(state).compress()
        if prior.joint_log_marginal_ is not None:
            return prior.joint_log_marginal_ + (prior.restriction_ or 0.0)
        value = float(counts @ prior.log_marginal(rows)) if len(rows) else 0.0
        return value + (prior.restriction_ or 0.0)

    @staticmethod
    def stated_covariates(state: LocationState) -> NDArray:
        """Covariates of the clients that answered, in the order of `likelihood`, shape (n, k)."""
        parts = [part for message in state["messages"] for part in message.values()]
        stated = [part["covariates"] for part in parts if "covariates" in part]
        if stated:
            return np.concatenate(stated)
        return np.empty((sum(len(part["n"]) for part in parts), 0))

    @staticmethod
    def exact_summary(state: LocationState) -> Summary:
        """Summarise all messages, where every client sent its figures as they are."""
        parts = [part for message in state["messages"] for part in message.values()]
        joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return summary_of(joined, np.arange(len(joined["n"])))

    def _raw_reports(self, state: LocationState) -> NDArray:
        """Unbiased estimates of the means of the clients that have data, shape (n, d)."""
        return np.concatenate(
            [
                channel.decode(message[name])[message[name]["n"] > 0]
                for settings, message in zip(state["settings"], state["messages"], strict=False)
                for name, channel in settled(self.channels, settings).items()
            ]
        )

    def _sharpened(self, prior: Prior, n_features: int) -> Guess:
        """Return a new guess, from an estimate and its standard errors."""
        error = np.sqrt(getattr(prior, "mean_variance_", prior.variance_ / 10))
        doubt = getattr(prior, "variance_variance_", prior.variance_**2)
        first = DEFAULT_GUESS if self.estimator.guess is None else self.estimator.guess
        before = np.array([first.column(j, n_features) for j in range(n_features)]).T
        reported = error > 0  # else no report on this column has arrived yet
        # a variance with a relative error of one or more says little
        squared = prior.variance_**2
        trust = np.where(squared > 0, squared / np.maximum(squared + doubt, 1e-300), 0.0) * reported
        variance = trust * prior.variance_ + (1 - trust) * before[2] ** 2
        centre = np.clip(prior.mean_, before[0], before[1])
        low, high = np.maximum(centre - error, before[0]), np.minimum(centre + error, before[1])
        mean = np.where(reported, low, before[0]), np.where(reported, high, before[1])
        return Guess(mean=mean, spread=np.sqrt(variance))

    # Who reports ------------------------------------------------------------------------------

    def _turns(self, state: LocationState) -> NDArray[np.int8]:
        """Give each client one round, at random; -1 where it does not take part."""
        asked = self._participants(len(state["n"]), state["key"])
        turns = np.where(asked, 0, -1).astype(np.int8)
        waves = [index for index, each in enumerate(self.channels.values()) if _in_waves(each)]
        if waves:
            rng = np.random.default_rng([*state["key"], 1])
        for index in waves:
            order = rng.permutation(np.flatnonzero(asked & (state["consent"] == index)))
            sizes = (np.cumsum(WAVES) * len(order)).round().astype(int)
            for wave, (first, last) in enumerate(itertools.pairwise([0, *sizes])):
                turns[order[first:last]] = wave
        return turns

    def _participants(self, n_clients: int, key: NDArray) -> NDArray:
        """Return which clients are asked to report."""
        wanted: Any = self.estimator.participation
        if wanted is None:
            return np.ones(n_clients, bool)
        try:
            single = np.ndim(wanted) == 0
        except ValueError:
            raise ValueError("participation must be a number of clients, or a mask.") from None
        if single:
            whole = isinstance(wanted, int | np.integer) and not isinstance(wanted, bool)
            if not (whole and 1 <= wanted <= n_clients):
                raise ValueError(
                    f"participation must be a number of clients from 1 to {n_clients}, or a mask; "
                    f"got {wanted!r}."
                )
            asked = np.zeros(n_clients, bool)
            asked[np.random.default_rng([*key, 0]).permutation(n_clients)[:wanted]] = True
            return asked
        if not counts_only(wanted):
            raise ValueError(
                "participation must be in the order of the sorted labels of groups; got a series "
                "with an index of its own: sort it by label, and pass its .to_numpy()."
            )
        asked = np.asarray(wanted)
        if asked.dtype != bool or asked.shape != (n_clients,) or not asked.any():
            raise ValueError(
                f"participation must be a number of clients or a mask of booleans, one for each of "
                f"the {n_clients} groups in sorted order, not all false; got {wanted!r}."
            )
        return asked


def population_of(state: LocationState) -> dict[str, tuple[NDArray, NDArray]]:
    """Return mean, variance, noise and coefficients of a last state, with their standard errors.

    A variance may be infinite, as of a population with heavy tails, and is left out then.
    """
    prior = state["prior"]

    def known(name: str) -> tuple[NDArray, NDArray]:
        squares = prior.get(name.replace("_", "_variance_"), np.nan)
        alike = np.shape(squares) == np.shape(prior[name])
        return pair(prior[name], squares if alike else np.nan)

    found = {"mean": known("mean_")}
    if not np.isinf(prior["variance_"]).any():
        found["variance"] = known("variance_")
    if (noise := prior.get("noise_variance_")) is not None:
        parts = [part["n"] for message in state["messages"] for part in message.values()]
        degrees = sum(int(np.maximum(n - 1, 0).sum()) for n in parts or [state["n"]])
        found["noise variance"] = pair(noise, 2 * np.asarray(noise) ** 2 / max(degrees, 1))
    if (coefficients := prior.get("coefficients_")) is not None:
        errors = prior.get("coefficient_errors_", np.nan)  # none of a log-spline, a density
        found["coefficients"] = pair(coefficients, np.square(errors))
    return found


def lines(text: str) -> list[str]:
    """Names that stand one to a line."""
    return str(text).split("\n") if text else []


def _in_waves(channel: Channel) -> bool:
    """Return whether some clients report first, to choose the questions of the others."""
    return isinstance(channel, Report) and isinstance(channel.range, str)
