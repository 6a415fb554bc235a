"""What the server of a location estimator does: settle channels, and fit a prior to messages."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from ebfed.channels import Channel, Guess
from ebfed.channels.design import DEFAULT_GUESS, settle
from ebfed.channels.report import Report
from ebfed.engines.protocol import LocationFacts, LocationSent, LocationState, Message
from ebfed.engines.robust import pair
from ebfed.families import Family
from ebfed.likelihoods import Likelihood, join
from ebfed.location.client import settled
from ebfed.location.levels import population_within
from ebfed.location.matching import summary_of
from ebfed.priors import IdentificationWarning, Prior
from ebfed.priors.regression import check_covariates
from ebfed.tables.alignment import counts_only
from ebfed.tables.clients import LARGEST, Summary
from ebfed.tables.levels import names_of_parents

__all__ = ["Server", "lines", "population_of"]

# Shares of the clients that report in each round, where a round chooses the next questions.
WAVES = (0.05, 0.15, 0.8)

# Largest number of rows or events of a group, up to which floats have all whole numbers.
COUNTABLE = 2**53

# Keys of the last state that are broadcast.
RESULTS = ("settings", "prior", "log_likelihood", "n_clients")


@dataclass(frozen=True)
class Server:
    """The server's side of a location estimator.

    Parameters
    ----------
    channels : dict of Channel
        Channels by class of consent.
    family : Family
        Family of the rows of the clients.
    prior : Prior
        Population to fit.
    guess : Guess, optional
        Public guess of the population.
    participation : int or mask, optional
        Number of clients that report, or which ones.
    """

    channels: dict[str, Channel]
    family: Family
    prior: Prior
    guess: Guess | None = None
    participation: int | ArrayLike | None = None
    results: tuple[str, ...] = field(default=RESULTS, repr=False)

    # Whether the server needs no more than summaries of groups.
    adds_up: ClassVar[bool] = True
    _latest: list[Any] = field(default_factory=list, init=False, repr=False, compare=False)

    # Checks -----------------------------------------------------------------------------------

    def check_facts(self, facts: LocationFacts) -> None:
        """Raise a ValueError if that is not what clients may state."""
        kinds = {"n": "i", "consent": "i", "n_features": "i", "columns": "U"}
        kinds |= {"covariates": "f", "covariate_names": "U"}
        given = cast(Mapping[str, Any], facts)
        weighed = self.family.weights == "precision" and "weight" in given
        if self.family.takes_exposure or weighed:
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
        """Raise a ValueError if that is not an answer of the clients that stated these facts."""
        channels = settled(self.channels, sent["settings"])
        if message.keys() != channels.keys():
            raise ValueError(f"a message must have the parts {', '.join(channels)}.")
        covariates = facts["covariates"].reshape(len(facts["n"]), -1)
        weight = facts.get("weight")
        for index, (name, channel) in enumerate(channels.items()):
            asked = (turn == sent["round"]) & (facts["consent"] == index)
            n, d = facts["n"][asked], int(facts["n_features"][0])
            blank = self.family.blank(n, d, None if weight is None else weight[asked])
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
        if not self.family.has_density and np.any(summary.size[:, None] * part["mean"] > COUNTABLE):
            raise ValueError(f"{name} must have sums of at most {COUNTABLE}.")
        self.family.check_summary(summary)

    def check_identified(self, facts: LocationFacts) -> None:
        """Refuse, before anything is sent, a fit whose messages cannot carry what it estimates.

        Raises
        ------
        ValueError
            If no client would show the noise within groups, or the spread of the population.
        """
        if self.family.needs_scatter and not self.all_exact and not self.shows_scatter(facts):
            raise ValueError(
                f"{self.family.open_parameter} must be given: these channels report on the means "
                "alone, and no client with an Exact channel has two rows to show the noise within "
                "groups."
            )

    @property
    def merges(self) -> bool:
        """Whether messages about one group from several nodes can be merged.

        They can where all are exact summaries. Two private reports about a group are two releases,
        and each has the cost of one: they are not merged.
        """
        whole = len(self.channels) == 1 and self.participation is None
        return self.adds_up and whole and self.all_exact

    @property
    def pools_noise(self) -> bool:
        """Whether parameters of rows are estimated before the population, and not with it."""
        family = self.family
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
            if len(np.unique(given[name])) > 1:
                different = np.unique(given[name]).tolist()
                raise ValueError(f"clients have different columns: {different}.")
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
        return self.settle(state, self.guess)

    def settle(self, state: LocationState, guess: Guess | None) -> LocationState:
        """Choose what channels leave open for the next round."""
        arguments: dict[str, dict[str, Any]] = {}
        if guess is not None and not isinstance(guess, Guess):
            raise TypeError(f"guess must be an ebfed.channels.Guess; got {guess!r}.")
        size = state["n"] if state["weight"] is None else state["weight"]
        for index, (name, channel) in enumerate(settled(self.channels).items()):
            arguments[name] = {}
            if isinstance(channel, Report):
                sizes = size[state["consent"] == index]
                some = sizes[sizes > 0]
                typical = float(np.median(some)) if len(some) else 0.0
                typical = typical if self.family.takes_exposure else int(typical)
                public = state["n_features"], len(sizes), typical
                arguments[name] = settle(channel, self.family, *public, guess)
                channel.set_params(**arguments[name]).guarantee(state["n_features"])
        return cast(LocationState, state | {"settings": [*state["settings"], arguments]})

    def broadcast(self, state: LocationState) -> LocationSent:
        """Return which round it is and how to report; in the end, the fitted population."""
        if not state["done"]:
            return {"done": False, "round": state["round"], "settings": state["settings"][-1]}
        results = {name: cast(Mapping[str, Any], state)[name] for name in self.results}
        return cast(LocationSent, {"done": True, "round": state["round"]} | results)

    def update(self, state: LocationState, messages: dict[str, Message]) -> LocationState:
        """Fit the prior to all messages; before the last round, choose the next questions."""
        state = self.received(state, messages)
        if state["round"] == state["n_rounds"]:
            return self.finished(state, self.fit_prior(state))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IdentificationWarning)
            fitted = self.fit_prior(state)
        return self.settle(state, self._sharpened(fitted, state["n_features"]))

    def shifts(
        self, before: LocationState, after: LocationState, messages: Sequence[Any]
    ) -> NDArray[np.float64] | None:
        """Return None: the last round can be taken without a node."""
        return None

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
            if prior.noise_variance_ is None and self.family.pools_first:
                prior._add_note(self.family.unidentified, True)
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
        family = self.family
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
        return self.family.pooled(
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
        first = DEFAULT_GUESS if self.guess is None else self.guess
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
        turns = np.full(len(state["n"]), -1, np.int8)
        rng = np.random.default_rng([*state["key"], 1])
        for index, channel in enumerate(self.channels.values()):
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
        """Return which clients are asked to report."""
        wanted: Any = self.participation
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
