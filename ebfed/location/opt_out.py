"""Federated point estimation where clients may opt out of privacy."""

from __future__ import annotations

from dataclasses import replace
from numbers import Real
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from ebfed.channels import AddNoise, Channel, Exact, Gaussian
from ebfed.channels.base import Message
from ebfed.channels.report import box
from ebfed.engines import Engine
from ebfed.likelihoods import Gaussian as GaussianLikelihood
from ebfed.likelihoods import Likelihood, join
from ebfed.location.gaussian import GaussianEB
from ebfed.priors import Normal, Posterior, Prior
from ebfed.priors.normal import NormalPosterior
from ebfed.privacy import ledger
from ebfed.privacy.calibration import gaussian_sigma
from ebfed.report.view import LocationView
from ebfed.tables.clients import Summary
from ebfed.theory import opt_out as theory

__all__ = ["OptOutMean"]


class OptOutMean(GaussianEB):
    """A global mean and personal ones, from clients that are private and clients that opted out.

    Client j's own mean is ``phi_j^ ~ N(phi_j, alpha2)`` with ``phi_j ~ N(phi, tau2)``. It sends
    ``psi_j = phi_j^`` if it opted out, and ``psi_j = phi_j^ + N(0, N_p gamma2)`` if it is one of
    the N_p private clients, so that the average over private clients carries noise of variance
    gamma2. The server averages with weight 1 for those that opted out and r for the private,

        theta = (sum_np psi_j + r sum_p psi_j) / (N_np + r N_p),
        r* = (alpha2 + tau2) / (alpha2 + tau2 + N_p gamma2),

    where r* weighs by precision: it is `GaussianEB` with a channel for each class. Each client then
    finds its own estimate between its own mean and theta, as Ditto does,

        phi_j~ = (phi_j^ + lambda_j theta) / (1 + lambda_j).

    Who chose what is told to ``fit(X, groups=…, consent=…)``, by the labels ``"private"`` and
    ``"open"``; without it, everybody is private.

    Parameters
    ----------
    tau2, alpha2 : float, optional
        Variance of the population, and of a client's own mean (on average: that of a client is by
        its number of rows). Estimated if None; with ``trust="server"``, from the clients that opted
        out alone.
    gamma2 : float, optional
        Variance of the noise on the average of the private clients. Without a `range` means are not
        clipped, so nothing is promised for it.
    epsilon, delta : float, optional
        Instead of `gamma2`: the noise that makes `trust` true for means clipped to `range`.
    range : (low, high), optional
        Where the means of private clients are clipped.
    ratio : "optimal", "fedavg" or float
        r, the weight of a private client; ``"fedavg"`` is 1.
    personalize : {"bayes", "ditto", "paper"}
        ``"bayes"``: each private client first takes its own noise out of theta, and lambda is then
        optimal. ``"ditto"``: theta as it is, with the lambda that is best for that. ``"paper"``:
        the lambda of Lemma 3, one for each class, which forgets the client's own noise in theta
        and is not optimal.
    trust : {"server", "none"}
        Whom `epsilon` protects against: readers of theta, other clients among them, where the
        server is trusted with each noisy mean and private clients do not collude; or everyone, the
        server included (about N_p times as much noise).
    engine : Engine, optional
    random_state : int, Generator or None
        Of the noise.

    Attributes
    ----------
    global_ : ndarray of shape (d,)
        theta.
    server_variance_ : ndarray of shape (d,)
        Of theta around phi.
    ratio_ : ndarray of shape (d,)
        r; for unequal numbers of rows, mean weight of private clients over that of the others.
    lambda_ : ndarray of shape (n_groups, d)
    tau2_, alpha2_, gamma2_ : ndarray of shape (d,)
        As given or estimated.
    prior_, summaries_, groups_, notes_, privacy_ :
        See `LocationEstimator`.

    References
    ----------
    Aldaghri, Mahdavifar and Beirami (2021), FeO2: Federated learning with opt-out differential
    privacy, section 4 (Lemmas 1 and 3) and appendix.

    Examples
    --------
    Five clients, of which one opted out:

    >>> est = OptOutMean(tau2=0.01, alpha2=1, gamma2=1, random_state=0)
    >>> choice = ["private", "private", "private", "private", "open"]
    >>> est = est.fit([0.3, -1.1, 0.4, 1.2, 0.7], consent=choice)
    >>> est.ratio_.round(4), est.server_variance_.round(3)
    (array([0.2016]), array([0.559]))
    >>> est.lambda_.ravel().round(3)
    array([  2.191,   2.191,   2.191,   2.191, 100.   ])
    """

    method = "reml"
    prior = "normal"
    variances = None
    guess = None
    participation = None

    def __init__(
        self,
        tau2: float | None = None,
        alpha2: float | None = None,
        gamma2: float | None = None,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        range: Any = None,
        ratio: Literal["optimal", "fedavg"] | float = "optimal",
        personalize: Literal["bayes", "ditto", "paper"] = "bayes",
        trust: Literal["server", "none"] = "server",
        engine: Engine | None = None,
        random_state: Any = None,
    ):
        self.tau2 = tau2
        self.alpha2 = alpha2
        self.gamma2 = gamma2
        self.epsilon = epsilon
        self.delta = delta
        self.range = range
        self.ratio = ratio
        self.personalize = personalize
        self.trust = trust
        self.engine = engine
        self.random_state = random_state

    # Arguments --------------------------------------------------------------------------------

    @property
    def channel(self) -> dict[str, Channel]:  # type: ignore[override]
        """What leaves clients of each class."""
        private: Channel = AddNoise(range=self.range)
        if self.trust == "none" and self.epsilon is not None and self.delta is not None:
            private = Gaussian(self.epsilon, self.delta, self.range)
        return {"private": private, "open": Exact()}

    def _check(self) -> None:
        for name in ("tau2", "alpha2", "gamma2"):
            value = getattr(self, name)
            if value is not None and not _is_weight(value):
                raise ValueError(f"{name} must be a variance; got {value!r}.")
        if self.alpha2 == 0 and self.tau2 == 0:
            raise ValueError("alpha2 and tau2 must not both be 0.")
        bounded = [x is not None for x in (self.epsilon, self.delta, self.range)]
        if self.gamma2 is None and not all(bounded):
            raise ValueError("give gamma2, or epsilon, delta and range.")
        if self.gamma2 is not None and (bounded[0] or bounded[1]):
            raise ValueError("give gamma2, or epsilon and delta, not both.")
        ratio = self.ratio
        if not (ratio in ("optimal", "fedavg") if isinstance(ratio, str) else _is_weight(ratio)):
            raise ValueError(
                f"ratio must be 'optimal', 'fedavg' or a weight from 0; got {ratio!r}."
            )
        for name, known in (
            ("personalize", ("bayes", "ditto", "paper")),
            ("trust", ("server", "none")),
        ):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name} must be {' or '.join(map(repr, known))}; got {getattr(self, name)!r}."
                )

    def _shown_channels(self) -> dict[str, Channel]:
        return self._channels(self.settings_[0])

    def _default_consent(self, summary: Summary) -> NDArray[np.int8]:
        """Nobody opted out."""
        return np.zeros(len(summary), np.int8)

    def _check_noise(self, facts: dict) -> None:
        if self.alpha2 is None and not self._shows_noise(facts):
            raise ValueError(
                "alpha2 must be given: no client that opted out (consent 'open') has two rows to "
                "estimate it from."
            )
        has_data = facts["n"] > 0
        shown = has_data & (facts["consent"] == 1) if self.trust == "server" else has_data
        if self.tau2 is None and shown.sum() < 2:
            raise ValueError(
                "tau2 must be given: with trust='server' it is estimated from clients that opted "
                "out (consent 'open'), and there are fewer than two."
            )

    def _sends_gaussians(self) -> bool:
        return True

    def _check_covariates(self) -> None:
        raise ValueError("OptOutMean is about one global mean; GaussianEB takes covariates=.")

    # Server -----------------------------------------------------------------------------------

    def start(self, facts: dict, key: NDArray) -> dict:
        """Return the state before the round: how much noise private clients are to add."""
        self._check()
        return super().start(facts, key)

    def _settle(self, state: dict, guess: Any) -> dict:
        settings: dict[str, dict] = {"private": {}, "open": {}}
        if "sd" in self.channel["private"].left_open:
            settings["private"]["sd"] = self._noise(state)
        return state | {"settings": [settings]}

    def _noise(self, state: dict) -> float:
        """Standard deviation of each private client's noise, for so many of them."""
        n_private = int(((state["consent"] == 0) & (state["n"] > 0)).sum())
        if self.gamma2 is not None:
            return float(np.sqrt(n_private * self.gamma2))
        return self._least_noise(n_private, state["n_features"])

    def _least_noise(self, n_private: int, n_features: int) -> float:
        """Standard deviation that keeps the promise for theta.

        Who reads theta may be a private client, who knows its own noise: that of the others is to
        suffice.
        """
        assert self.epsilon is not None
        assert self.delta is not None
        diameter = 2 * float(np.linalg.norm(box(self.range, n_features).half))
        sigma = float(gaussian_sigma(self.epsilon, self.delta, diameter))
        return sigma / np.sqrt(max(n_private - 1, 1))

    def broadcast(self, state: dict) -> dict:
        """Return how to report; in the end, theta and what a client's weight in it follows from."""
        if state["done"]:
            return super().broadcast(state) | {"theta": state["theta"]}
        n_private = int(((state["consent"] == 0) & (state["n"] > 0)).sum())
        return super().broadcast(state) | {"n_private": n_private}

    def update(self, state: dict, messages: dict[str, Message]) -> dict:
        """Average the messages."""
        state = state | {"messages": [messages], "round": 1}
        channels = self._channels(state["settings"][0])
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
        # a server that is trusted with noisy means may publish theta, not what else they tell
        shown = [blurred["open"]] if self.trust == "server" else list(blurred.values())
        prior = Normal() if self.tau2 is None else Normal.known(np.full(len(noise), self.tau2))
        if self.tau2 is None:
            prior.fit(join(shown))
        alpha2 = noise * np.mean(1 / sizes)
        theta = self._average(state, prior.variance_, alpha2, means, q)
        theta |= {"noise": noise, "alpha2": alpha2, "q": q["private"]}
        prior.mean_, prior.mean_variance_ = theta.pop("mean"), theta.pop("variance")
        return self._done(state, prior) | {"theta": theta}

    def _row_variance(self, state: dict, sizes: NDArray) -> NDArray:
        """Variance of one row, shape (d,): alpha2 times the (harmonic) mean number of rows."""
        if not len(sizes):
            raise ValueError("no client has data.")
        if self.alpha2 is not None:
            return np.full(state["n_features"], self.alpha2 / np.mean(1 / sizes))
        noise = self._pooled(state)
        if noise is None:  # who had them did not answer
            raise ValueError("alpha2 must be given: no client that opted out showed two rows.")
        return noise

    def _average(self, state: dict, tau2: NDArray, alpha2: NDArray, means: dict, q: dict) -> dict:
        """Weigh the messages; returns theta, its variance around phi, and the weights."""
        total, top, square = (np.zeros(state["n_features"]) for _ in range(3))
        fixed, counts, typical = {}, {}, {}
        for name, own in means.items():
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
            if name == "private" and self._is_central():
                # clients that were to add noise and did not answer
                missing = ((state["consent"] == 0) & (state["n"] > 0)).sum() - counts[name]
                sd = np.sqrt(missing) * state["settings"][0]["private"]["sd"]
                noise = np.random.default_rng([*state["key"], 2]).normal(size=len(total))
                top += typical[name] * sd * noise
                square += typical[name] ** 2 * sd**2
        if not np.all(total > 0):
            raise ValueError("no message has a weight: ratio is 0 and nobody opted out.")
        return {
            "mean": top / total,
            "variance": square / total**2,
            "total": total,
            "fixed": fixed,
            "counts": counts,
            "typical": typical,
        }

    def _is_central(self) -> bool:
        """Whether noise protects the sum of private messages, not each of them."""
        return self.trust == "server" and self.epsilon is not None

    def _fixed_weight(self, name: str, weight: NDArray, has_data: NDArray) -> NDArray | None:
        """Weight that all clients of a class share; None where they weigh by precision."""
        if self.ratio == "optimal":
            if name == "open" or not self._is_central() or not has_data.any():
                return None
            # noise calibrated to a sum covers all clients alike if their weights are equal
            with np.errstate(divide="ignore"):
                return has_data.sum() / np.where(has_data, 1 / weight, 0.0).sum(axis=0)
        ratio = 1.0 if self.ratio == "fedavg" else float(self.ratio)
        return np.full(weight.shape[1], 1.0 if name == "open" else ratio)

    def _log_likelihood_of_reports(self, state: dict, prior: Prior) -> float | None:
        """NaN: it would tell more of private messages than theta does, or is not computed."""
        return np.nan

    # Clients ----------------------------------------------------------------------------------

    def _learn(self, sent: dict) -> None:
        super()._learn(sent)
        theta = self._theta = sent["theta"]
        self.global_, self.server_variance_ = self.prior_.mean_, self.prior_.mean_variance_
        self.tau2_, self.alpha2_ = self.prior_.variance_, theta["alpha2"]
        self.gamma2_ = theta["q"] / max(theta["counts"]["private"], 1)
        self.ratio_ = theta["typical"]["private"] / theta["typical"]["open"]

    def _make_prior(self) -> Prior:
        return Normal(variance=self.tau2)

    @property
    def noise_variance_(self) -> NDArray:
        """Variance of a row around its group's parameter, shape (d,)."""
        return self._theta["noise"]

    def finish(self, sent: dict, memory: dict, clients: Summary) -> Self:
        """Set the learned attributes of these clients' own copy."""
        super().finish(sent, memory, clients)
        weight = np.asarray(self._posterior_of_all().weight)
        with np.errstate(divide="ignore"):
            self.lambda_ = (1 - weight) / weight
        return self

    def _share(self, summary: Summary, own: NDArray) -> NDArray:
        """Weight of each client's message in theta, shape (n, d)."""
        place = np.maximum(self._places(summary.ids), 0)
        consent = self._memory["consent"][place]
        with np.errstate(divide="ignore"):
            precision = 1 / (self.tau2_ + self.noise_variance_ / summary.n[:, None] + own)
        share = precision.copy()
        for index, name in enumerate(self.channel):
            fixed = self._theta["fixed"][name]
            if fixed is not None:
                share[consent == index] = fixed
        share[np.isinf(own)] = 0.0
        return share / self._theta["total"]

    def _posterior(self, summary: Summary, likelihood: Likelihood, prior: Prior) -> Posterior:
        """Combine each client's own mean with theta."""
        assert isinstance(likelihood, GaussianLikelihood)
        own, noise = self._own(summary)
        return NormalPosterior(
            self.prior_,
            likelihood,
            own,
            noise if self.personalize == "bayes" else None,
            share=self._share(summary, own) if self._has_fixed_weights() else None,
            weight=self._paper_weight(summary) if self.personalize == "paper" else None,
        )

    def _has_fixed_weights(self) -> bool:
        return any(fixed is not None for fixed in self._theta["fixed"].values())

    def _paper_weight(self, summary: Summary) -> NDArray:
        """``1 / (1 + lambda)`` with the lambda of Lemma 3."""
        private = self._memory["consent"][np.maximum(self._places(summary.ids), 0)] == 0
        counts, q = self._theta["counts"], self._theta["q"]
        known = self.tau2_, self.alpha2_, 1, q, counts["private"], counts["open"]
        return 1 / (1 + theory.feo2_penalty(*known, private=private[:, None]))

    # Ledger -----------------------------------------------------------------------------------

    def _promise(self, name: str) -> tuple[float, float]:
        if name == "private" and self._is_central():
            return float(self.epsilon), float(self.delta)  # type: ignore[arg-type]
        return super()._promise(name)

    def _privacy_kind(self) -> str:
        if not self._is_central():
            return super()._privacy_kind()
        return "central differential privacy against readers of theta"

    def view(self) -> LocationView:
        """Return what reports and plots read of the fit."""
        return replace(super().view(), refit=None)

    def local(self, sent: dict, memory: dict, clients: Summary, rng: Any) -> tuple[dict, dict]:
        """Send means, if the noise that the server asks for keeps the promise.

        Raises
        ------
        ValueError
            If it is too little for that many private clients.
        """
        if self._is_central():
            least = self._least_noise(sent["n_private"], clients.n_features)
            if not sent["settings"]["private"]["sd"] >= least * (1 - 1e-12):
                raise ValueError(
                    f"the server asks for noise of {sent['settings']['private']['sd']!r}; epsilon "
                    f"needs {least:.6g} from each of {sent['n_private']} private clients."
                )
        return super().local(sent, memory, clients, rng)

    def releases(self, sent: dict, memory: dict, clients: Summary) -> list[dict[str, Any]]:
        """List what clients send, and what is promised for it."""
        rows = super().releases(sent, memory, clients)
        for row in rows:
            if row["who"].startswith("private") and self._is_central():
                row["epsilon"], row["delta"] = self._promise("private")
                row["relation"] = ledger.LOCAL
                row["assumptions"] = (
                    "numbers of rows are public; the server is trusted with noisy means and with "
                    "the number of private clients, and publishes their weighted mean only; "
                    "private clients do not collude"
                )
        return rows


def _is_weight(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and 0 <= float(value) < np.inf
