"""How a mean is fitted to private clients and to clients that opted out: both sides, posteriors."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ebfed.channels import AddNoise, Channel, Exact, Gaussian, Guess, secure
from ebfed.channels.report import box
from ebfed.engines.protocol import (
    LocationFacts,
    LocationMemory,
    LocationSent,
    LocationState,
    Message,
)
from ebfed.families import Gaussian as GaussianRows
from ebfed.likelihoods import Gaussian as GaussianLikelihood
from ebfed.likelihoods import Likelihood, join
from ebfed.location.consent import settled
from ebfed.location.learned import Learned
from ebfed.location.rounds import RESULTS, LocationRounds
from ebfed.priors import Normal, Posterior, Prior
from ebfed.priors.normal import NormalPosterior
from ebfed.privacy import events, gaussian_sigma, ledger
from ebfed.privacy.calibration import as_float
from ebfed.privacy.odometer import Plan
from ebfed.tables.clients import Summary
from ebfed.tables.consent import levels_of
from ebfed.theory import opt_out as theory

__all__ = ["OptOutLearned", "OptOutRounds"]


class OptOutRounds(LocationRounds):
    """Clients send means with the noise that they need; the server weighs private ones less.

    Parameters
    ----------
    estimator : OptOutMean
    family : Family
    prior : Prior
    """

    adds_up = False
    results = (*RESULTS, "theta")

    @property
    def levels(self) -> dict[str, Any]:
        """Levels of privacy, with the epsilon or gamma2 of each."""
        given = self.estimator
        if given.gamma2 is None:
            return levels_of("epsilon", given.epsilon)
        return levels_of("gamma2", given.gamma2)

    @cached_property
    def channels(self) -> dict[str, Channel]:
        """Channel of each class of consent: of each level, and of clients that opted out."""
        given = self.estimator
        private = dict[str, Channel]()
        for name, level in self.levels.items():
            private[name] = AddNoise(range=given.range)
            if given.trust == "none" and given.epsilon is not None and given.delta is not None:
                private[name] = Gaussian(level, given.delta, given.range)
        return private | {"open": Exact()}

    @property
    def is_central(self) -> bool:
        """Whether noise protects the sum of private messages, not each of them."""
        given = self.estimator
        return given.trust == "server" and given.epsilon is not None

    def _check(self) -> None:
        """Raise a ValueError if an argument is wrong, or does not go with another."""
        given = self.estimator
        levels = self.levels.values()
        variances = [] if given.gamma2 is None else list(levels)
        for name, value in (
            *(("tau2", given.tau2), ("alpha2", given.alpha2)),
            *(("gamma2", value) for value in variances),
        ):
            if value is not None and not _is_weight(value):
                raise ValueError(f"{name} must be a variance; got {value!r}.")
        if given.alpha2 == 0 and given.tau2 == 0:
            raise ValueError("alpha2 and tau2 must not both be 0.")
        bounded = [x is not None for x in (given.epsilon, given.delta, given.range)]
        if given.gamma2 is None and not all(bounded):
            raise ValueError("give gamma2, or epsilon, delta and range.")
        if given.gamma2 is not None and (bounded[0] or bounded[1]):
            raise ValueError("give gamma2, or epsilon and delta, not both.")
        ratio = given.ratio
        if not (ratio in ("optimal", "fedavg") if isinstance(ratio, str) else _is_weight(ratio)):
            raise ValueError(
                f"ratio must be 'optimal', 'fedavg' or a weight from 0; got {ratio!r}."
            )
        if given.personalize == "paper" and list(self.levels) != ["private"]:
            raise ValueError(
                "personalize='paper' is for a single level of privacy; got "
                f"{', '.join(self.levels)}: give 'bayes' or 'ditto'."
            )
        for name, known in (
            ("personalize", ("bayes", "ditto", "paper")),
            ("trust", ("server", "none")),
        ):
            if getattr(given, name) not in known:
                raise ValueError(
                    f"{name} must be {' or '.join(map(repr, known))}; got {getattr(given, name)!r}."
                )

    def least_noise(self, n_private: int, n_features: int, level: str = "private") -> float:
        """Standard deviation of each client's noise at which theta has the guarantee of a level.

        A reader of theta may be a private client that knows its own noise, so the noise of the
        others of its level alone must be enough.
        """
        given = self.estimator
        diameter = 2 * float(np.linalg.norm(box(given.range, n_features).half))
        sigma = float(gaussian_sigma(self.levels[level], given.delta, diameter))
        return sigma / np.sqrt(max(n_private - 1, 1))

    def default_consent(self, summary: Summary) -> NDArray[np.int8]:
        """Return the class of clients that did not opt out, for all, if there is one level."""
        if len(self.levels) > 1:
            return super().default_consent(summary)
        return np.zeros(len(summary), np.int8)

    def check_covariates(self) -> None:
        """Refuse covariates."""
        raise ValueError("OptOutMean is about one global mean; GaussianEB takes covariates=.")

    def start(self, facts: LocationFacts, key: NDArray) -> LocationState:
        """Return the state before the round: how much noise private clients are to add."""
        self._check()
        return super().start(facts, key)

    def local(
        self, sent: LocationSent, memory: LocationMemory, clients: Summary, rng: Any
    ) -> tuple[dict[str, Message], LocationMemory]:
        """Send means, if the noise that the server asks for satisfies the guarantee.

        Raises
        ------
        ValueError
            If it is too little for that many private clients.
        """
        self._check_noise(sent, clients)
        return super().local(sent, memory, clients, rng)

    def _check_noise(self, sent: LocationSent, clients: Summary) -> None:
        if not self.is_central:
            return
        for level, n_private in sent["n_private"].items():
            least = self.least_noise(n_private, clients.n_features, level)
            if not sent["settings"][level]["sd"] >= least * (1 - 1e-12):
                raise ValueError(
                    f"the server asks for noise of {sent['settings'][level]['sd']!r}; epsilon "
                    f"needs {least:.6g} from each of {n_private} {level} clients."
                )

    def plan(self, sent: LocationSent, memory: LocationMemory, clients: Summary) -> list[Plan]:
        """State what clients send; that noise is enough may rest on their number."""
        self._check()  # a server need not
        self._check_noise(sent, clients)
        plans = super().plan(sent, memory, clients)
        if not self.is_central:
            return plans
        half = float(np.linalg.norm(box(self.estimator.range, clients.n_features).half))
        found = []
        for each in plans:
            if each.who in self.levels:
                guarantee = self.guarantee(each.who, [], clients.n_features)
                event = events.gaussian(gaussian_sigma(*guarantee, 2.0))
                noise = sent["settings"][each.who]["sd"] / half
                each = replace(each, event=event, noise=noise, trusts_server=True, of_sum=True)
            found.append(each)
        return found

    def releases(
        self, sent: LocationSent, memory: LocationMemory, clients: Summary
    ) -> list[dict[str, Any]]:
        """List what clients send, and its guarantee."""
        rows = super().releases(sent, memory, clients)
        for row in rows if self.is_central else ():
            # a row of some of a level's clients names the level first
            found = [x for x in self.levels if f"{row['who']}, asked".startswith(f"{x}, asked")]
            if found:
                row["epsilon"], row["delta"] = self.guarantee(found[0], [], 0)
                row["relation"] = ledger.LOCAL
                row["assumptions"] = (
                    "numbers of rows are public; the server is trusted with noisy means and with "
                    "the number of private clients, and publishes their weighted mean only; "
                    "private clients do not collude"
                )
        return rows

    def shown(self, settings: list[dict]) -> dict[str, Channel]:
        """Return channels with the noise that was added."""
        return settled(self.channels, settings[0])

    def guarantee(self, name: str, settings: list[dict], n_features: int) -> tuple[float, float]:
        given = self.estimator
        if name in self.levels and self.is_central:
            return float(self.levels[name]), float(cast(float, given.delta))
        return super().guarantee(name, settings, n_features)

    @property
    def kind_of_privacy(self) -> str:
        if not self.is_central:
            return super().kind_of_privacy
        return "central differential privacy against readers of theta"

    def check_identified(self, facts: LocationFacts) -> None:
        """Refuse where no client shows the variances that are to be estimated."""
        given = self.estimator
        if given.alpha2 is None and not self.shows_scatter(facts):
            raise ValueError(
                "alpha2 must be given: no client that opted out (consent 'open') has two rows to "
                "estimate it from."
            )
        has_data = facts["n"] > 0
        opened = facts["consent"] == len(self.levels)
        shown = has_data & opened if given.trust == "server" else has_data
        if given.tau2 is None and shown.sum() < 2:
            raise ValueError(
                "tau2 must be given: with trust='server' it is estimated from clients that opted "
                "out (consent 'open'), and there are fewer than two."
            )

    def settle(self, state: LocationState, guess: Guess | None) -> LocationState:
        """Choose how much noise private clients are to add."""
        settings: dict[str, dict] = {name: {} for name in self.channels}
        for level, n_private in self._n_private(state).items():
            if "sd" in self.channels[level].left_open:
                settings[level]["sd"] = self._noise(level, n_private, state["n_features"])
        return cast(LocationState, state | {"settings": [settings]})

    def _noise(self, level: str, n_private: int, n_features: int) -> float:
        """Standard deviation of the noise of each client of a level, for so many of them."""
        if self.estimator.gamma2 is not None:
            return float(np.sqrt(n_private * self.levels[level]))
        return self.least_noise(n_private, n_features, level)

    def _n_private(self, state: LocationState) -> dict[str, int]:
        """Number of clients with rows of each level."""
        has_data = state["n"] > 0
        levels = enumerate(self.levels)
        return {name: int((has_data & (state["consent"] == i)).sum()) for i, name in levels}

    def broadcast(self, state: LocationState) -> LocationSent:
        """Return how to report; in the end, theta and what a client's weight in it follows from."""
        sent = super().broadcast(state)
        if not state["done"]:
            if self.is_central:
                secure.check(state)
            sent["n_private"] = self._n_private(state)
        return sent

    def update(self, state: LocationState, messages: dict[str, Message]) -> LocationState:
        """Average the messages."""
        state = self.received(state, messages)
        channels = settled(self.channels, state["settings"][0])
        sizes = state["n"][state["n"] > 0]
        noise = self._row_variance(state, sizes)
        means, q = {}, {}
        for name, channel in channels.items():
            message = messages[name]
            with np.errstate(divide="ignore"):
                own = GaussianLikelihood(channel.decode(message), 1 / message["n"][:, None])
            anyone = np.zeros((1, len(noise)))
            means[name] = own.scaled(noise)
            q[name] = channel.variance(Summary(np.zeros(1), np.ones(1, int), anyone, anyone))[0]
        blurred = {name: means[name].blurred(q[name]) for name in channels}
        # a server that is trusted with noisy means may publish theta only
        shown = [blurred["open"]] if self.estimator.trust == "server" else list(blurred.values())
        tau2 = self.estimator.tau2
        prior = Normal() if tau2 is None else Normal.known(np.full(len(noise), tau2))
        if tau2 is None:
            prior.fit(join(shown))
        alpha2 = noise * np.mean(1 / sizes)
        theta = self._average(state, prior.variance_, alpha2, means, q)
        theta |= {"noise": noise, "alpha2": alpha2, "q": q}
        prior.mean_, prior.mean_variance_ = theta.pop("mean"), theta.pop("variance")
        return cast(LocationState, self.finished(state, prior) | {"theta": theta})

    def _row_variance(self, state: LocationState, sizes: NDArray) -> NDArray:
        """Variance of one row, shape (d,): alpha2 times the (harmonic) mean number of rows."""
        if not len(sizes):
            raise ValueError("no client has data.")
        if self.estimator.alpha2 is not None:
            return np.full(state["n_features"], self.estimator.alpha2 / np.mean(1 / sizes))
        noise = self.pooled(state)
        if noise is None:  # the clients with rows did not answer
            raise ValueError("alpha2 must be given: no client that opted out showed two rows.")
        return noise

    def _average(
        self, state: LocationState, tau2: NDArray, alpha2: NDArray, means: dict, q: dict
    ) -> dict[str, Any]:
        """Weigh the messages; returns theta, its variance around phi, and the weights."""
        total, top, square = (np.zeros(state["n_features"]) for _ in range(3))
        fixed, counts, typical = {}, {}, {}
        n_private = self._n_private(state)
        for index, (name, own) in enumerate(means.items()):
            spread = tau2 + own.variances + q[name]
            has_data = np.isfinite(own.variances[:, :1])
            if np.any(has_data & (spread <= 0)):
                raise ValueError(
                    "tau2 and alpha2 leave means without any variance: give them, above 0."
                )
            weight = np.where(has_data, 1 / spread, 0.0)
            fixed[name] = self._fixed_weight(name, weight, has_data)
            if fixed[name] is not None:
                weight = has_data * fixed[name]
            counts[name] = int(has_data.sum())
            typical[name] = weight.sum(axis=0) / max(counts[name], 1)
            if not counts[name]:  # what one such client would weigh
                nominal = 1 / (tau2 + alpha2 + q[name])
                typical[name] = nominal if fixed[name] is None else fixed[name]
            total += weight.sum(axis=0)
            top += (weight * own.values).sum(axis=0)
            square += (weight**2 * np.where(has_data, spread, 0.0)).sum(axis=0)
            if name in n_private and self.is_central:
                # clients that were to add noise and did not answer
                missing = n_private[name] - counts[name]
                sd = np.sqrt(missing) * state["settings"][0][name]["sd"]
                top = secure.add_gaussian(top, typical[name] * sd, secure.noise(state, 2 + index))
                square += typical[name] ** 2 * sd**2
        if not np.all(total > 0):
            raise ValueError("no message has a weight: ratio is 0 and no client opted out.")
        return {
            "mean": top / total,
            "variance": square / total**2,
            "total": total,
            "fixed": fixed,
            "counts": counts,
            "typical": typical,
        }

    def _fixed_weight(self, name: str, weight: NDArray, has_data: NDArray) -> NDArray | None:
        """Weight that all clients of a class share; None where they weigh by precision."""
        if self.estimator.ratio == "optimal":  # [O] Lemma 1
            if name == "open" or not self.is_central or not has_data.any():
                return None
            # noise calibrated to a sum covers all clients alike if their weights are equal
            with np.errstate(divide="ignore"):
                return has_data.sum() / np.where(has_data, 1 / weight, 0.0).sum(axis=0)
        ratio = 1.0 if self.estimator.ratio == "fedavg" else float(self.estimator.ratio)
        return np.full(weight.shape[1], 1.0 if name == "open" else ratio)

    def log_likelihood(self, state: LocationState, prior: Prior) -> float | None:
        """NaN: it would show more of private messages than theta does, or is not computed."""
        return np.nan

    def learned(self, sent: LocationSent, summaries: Summary, memory: LocationMemory) -> Learned:
        theta, plain = sent["theta"], vars(super().learned(sent, summaries, memory))
        plain = plain | {"family": GaussianRows(theta["noise"], learned=True)}
        return OptOutLearned(**plain, theta=theta, personalize=self.estimator.personalize)

    def taken(self, learned: Any) -> Any:
        """Set theta and what follows from it, too."""
        theta, fit = learned.theta, self.estimator
        fit.global_, fit.server_variance_ = learned.prior.mean_, learned.prior.mean_variance_
        fit.tau2_, fit.alpha2_ = learned.prior.variance_, theta["alpha2"]
        levels = list(self.levels)
        gamma2 = np.array([theta["q"][x] / max(theta["counts"][x], 1) for x in levels])
        ratio = np.array([theta["typical"][x] / theta["typical"]["open"] for x in levels])
        one = len(levels) == 1
        fit.gamma2_, fit.ratio_ = (gamma2[0], ratio[0]) if one else (gamma2, ratio)
        return super().taken(learned)

    def finish(self, sent: LocationSent, memory: LocationMemory, clients: Summary) -> Any:
        """Return the estimator, these clients' own copy, with the weight of each."""
        fit = super().finish(sent, memory, clients)
        weight = np.asarray(fit._learned.posterior_of_all().weight)
        with np.errstate(divide="ignore"):
            fit.lambda_ = (1 - weight) / weight
        return fit


@dataclass
class OptOutLearned(Learned):
    """Theta, and personal estimates between it and each client's own mean."""

    theta: dict[str, Any] = field(default_factory=dict)
    personalize: str = "bayes"

    def shrink(self, summary: Summary, likelihood: Likelihood, prior: Prior) -> Posterior:
        """Combine each client's own mean with theta."""
        own = self.own_reports(summary)
        fixed = any(weight is not None for weight in self.theta["fixed"].values())
        return NormalPosterior(
            cast(Normal, self.prior),
            cast(GaussianLikelihood, likelihood),
            own.variance,
            own.error if self.personalize == "bayes" else None,
            share=self.share(summary, own.variance) if fixed else None,
            weight=self._paper_weight(summary) if self.personalize == "paper" else None,
        )

    @property
    def keeps_means(self) -> bool:
        """Noise is Gaussian, whatever the channel."""
        return True

    def share(self, summary: Summary, own: NDArray) -> NDArray:
        """Weight of each client's message in theta, shape (n, d)."""
        consent = self._consent_of(summary)
        with np.errstate(divide="ignore"):
            noise = self.theta["noise"] / summary.n[:, None]
            precision = 1 / (self.prior.variance_ + noise + own)
        share = precision.copy()
        for index, name in enumerate(self.channels):
            fixed = self.theta["fixed"][name]
            if fixed is not None:
                share[consent == index] = fixed
        share[np.isinf(own)] = 0.0
        return share / self.theta["total"]

    def _consent_of(self, summary: Summary) -> NDArray[np.int8]:
        """Class of each client; the first, where a file has no groups."""
        if not len(self.summaries):
            return np.zeros(len(summary), np.int8)
        return self.memory["consent"][np.maximum(self.places(summary.ids), 0)]

    def _paper_weight(self, summary: Summary) -> NDArray:
        """``1 / (1 + lambda)`` with the lambda of Lemma 3."""
        private = self._consent_of(summary) == 0
        counts, q = self.theta["counts"], self.theta["q"]
        known = self.prior.variance_, self.theta["alpha2"], 1, q["private"]
        numbers = counts["private"], counts["open"]
        return 1 / (1 + theory.feo2_penalty(*known, *numbers, private=private[:, None]))


def _is_weight(value: Any) -> bool:
    return 0 <= as_float(value) < np.inf
