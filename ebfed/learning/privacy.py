"""Learning by gradients under client-level differential privacy: clip, sum, add noise, account.

Each client's message is scaled down to a norm of at most C, and what is released is a sum with
Gaussian noise of standard deviation z C, divided by the *expected* number of clients. If C follows
a quantile of the norms, one bit of each client, whether it was below, is released in the same way.
Both together are one Gaussian release, of multiplier z.

*Who is trusted.* With ``trust="server"`` the server sees messages as they are and adds the noise;
the promise is to everyone who sees what it publishes, the other clients among them, and is about a
data set with or without one client. With ``trust="none"`` each client adds noise to its own
message, and the promise holds for every message, against anyone; it is about any two data sets of
one client. Sampling amplifies the former if clients join independently and nobody learns who did;
the latter it does not. Samples of a fixed size amplify it towards outsiders only: all other clients
together would know whether the last one was invited.

*What is public.* Numbers of clients and of rows, columns and classes.

*What may be published.* The shared parameters, the norm C and the copy of `conclude`. What a fit in
this process has besides, losses and counts of its history, numbers clipped, and own parameters, is
for who holds the rows.

*Randomness.* A server's noise comes from NumPy's generator, seeded by the operating system where
``random_state=None``. A seed that is known, or used for a second fit, protects nobody, and the last
digits of floats are not covered by the proof.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ebfed import kernels
from ebfed.learning.base import NOISE, Learner, Named, check_between
from ebfed.privacy import accountant, events
from ebfed.privacy.calibration import (
    check_delta,
    check_epsilon,
    check_positive,
    gaussian_epsilon,
    gaussian_sigma,
)
from ebfed.privacy.ledger import LOCAL
from ebfed.streams import Stream
from ebfed.tables.clients import Clients

__all__ = ["PrivateLearner", "Round", "Trust"]

Trust = Literal["server", "none"]


@dataclass(frozen=True)
class Round:
    """One round of a private learner, as far as an account needs to know it.

    Attributes
    ----------
    rate : float
        Share of the clients that is invited.
    clients : int
        How many there are, where samples have a fixed size.
    sampling : {"poisson", "fixed"}
    trust : {"server", "none"}
    """

    rate: float
    clients: int
    sampling: str
    trust: Trust

    @property
    def relation(self) -> accountant.Relation:
        """Which inputs are neighbours."""
        exchange = self.trust == "none" or (self.rate < 1 and self.sampling == "fixed")
        return "replace_one" if exchange else "add_or_remove"

    @property
    def promise(self) -> str:
        """Which inputs are neighbours, in words."""
        if self.trust == "none":
            return LOCAL
        if self.relation == "replace_one":
            return "one client exchanged for another"
        return "the rows of one client, or none"

    @property
    def unsampled(self) -> bool:
        """Whether nothing is amplified, so that there is a closed form."""
        return self.trust == "none" or self.rate == 1

    @property
    def sensitivity(self) -> float:
        """By how much, in units of C, a sum changes between neighbours."""
        return 2.0 if self.relation == "replace_one" else 1.0

    @property
    def accounts(self) -> list[tuple[accountant.Method, Callable[[float], events.Event]]]:
        """Return bounds of what it costs, of which the least holds.

        The one account of samples of a fixed size is loose, and may be above that of no sampling.
        """
        if self.sampling == "fixed" and self.rate < 1 and self.trust == "server":
            return [("rdp", self.event), ("pld", events.gaussian)]
        return [("pld", self.event)]

    def event(self, multiplier: float) -> events.Event:
        """Describe the release."""
        release = events.gaussian(multiplier)
        if self.trust == "none" or self.rate == 1:
            return release
        if self.sampling == "poisson":
            return events.poisson(self.rate, release)
        return events.fixed_size(self.clients, self.expected, release)

    @property
    def expected(self) -> int:
        """How many clients a round of a fixed size has."""
        return max(1, round(self.rate * self.clients))

    def spent(self, multiplier: float, rounds: int, delta: float) -> NDArray[np.float64]:
        """Epsilon after one round, two, ..., that many: upper bounds."""
        return np.array(_spent(self, multiplier, rounds, delta))

    def epsilon(self, multiplier: float, rounds: int, delta: float) -> float:
        """Epsilon of so many rounds."""
        return _epsilon(self, multiplier, rounds, delta)

    def multiplier(self, epsilon: float, rounds: int, delta: float) -> float:
        """Noise multiplier with which so many rounds are worth epsilon."""
        return _multiplier(self, epsilon, rounds, delta)


@lru_cache(maxsize=256)
def _epsilon(round_: Round, multiplier: float, rounds: int, delta: float) -> float:
    if multiplier == 0:
        return math.inf
    if round_.unsampled:  # T releases of multiplier z are one of z / root T
        sigma = multiplier / math.sqrt(rounds)
        return gaussian_epsilon(sigma, delta, round_.sensitivity)
    whole = events.repeated(round_.event(multiplier), rounds)
    rough = accountant.epsilon(whole, delta, relation=round_.relation, method="rdp")
    return min(
        accountant.epsilon(
            events.repeated(event(multiplier), rounds),
            delta,
            relation=round_.relation,
            method=method,
            interval=_interval(rounds, rough),
        )
        for method, event in round_.accounts
    )


def _interval(rounds: int, epsilon: float) -> float:
    """How finely losses are discretised: any is valid, a large epsilon needs no small ones."""
    return (1e-3 if rounds < 1000 else 1e-4) * max(1.0, epsilon / 10)


@lru_cache(maxsize=64)
def _spent(round_: Round, multiplier: float, rounds: int, delta: float) -> tuple[float, ...]:
    event = round_.event(multiplier)
    bounds = accountant.epsilons(event, rounds, delta, relation=round_.relation)
    return tuple(np.minimum(bounds, _epsilon(round_, multiplier, rounds, delta)).tolist())


@lru_cache(maxsize=256)
def _multiplier(round_: Round, epsilon: float, rounds: int, delta: float) -> float:
    if round_.unsampled:
        return math.sqrt(rounds) * gaussian_sigma(epsilon, delta, round_.sensitivity)

    def enough(method: accountant.Method, event: Callable[[float], events.Event]) -> float:
        return accountant.noise_multiplier(
            lambda z: events.repeated(event(z), rounds),
            epsilon,
            delta,
            relation=round_.relation,
            method=method,
            interval=_interval(rounds, epsilon),
        )

    return min(enough(*account) for account in round_.accounts)


@dataclass(eq=False, repr=False)
class PrivateLearner(Learner):
    """A learner whose clients' messages are protected.

    Parameters
    ----------
    epsilon : float, optional
        Budget of the whole fit: the noise is chosen to keep it.
    delta : float
    noise_multiplier : float, optional
        z, in place of a budget: the ledger says what it is worth. 0 for no noise and no promise.
    clip : float
        C, the largest norm of a message; what it begins with, if it follows a quantile.
    clip_quantile : float, optional
        kappa, the share of messages that should be below C.
    clip_step : float
        eta_b, how fast C follows, in logarithms.
    bit_noise : float, optional
        Standard deviation of the noise in the sum of bits that say who is below C; if None, a
        twentieth of the expected number of clients, and not below z.
    trust : {"server", "none"}
        Whether the server adds the noise, or each client does.

    References
    ----------
    McMahan, Ramage, Talwar and Zhang (2018), Learning differentially private recurrent language
    models. Andrew, Thakkar, McMahan and Ramaswamy (2021), Differentially private learning with
    adaptive clipping, Algorithm 1.
    """

    sampling: Literal["poisson", "fixed"] = "poisson"
    epsilon: float | None = None
    delta: float = 1e-5
    noise_multiplier: float | None = None
    clip: float = 1.0
    clip_quantile: float | None = None
    clip_step: float = 0.2
    bit_noise: float | None = None
    trust: Trust = "server"

    # What is promised -------------------------------------------------------------------------

    def _settings(self) -> list[str]:
        return [*super()._settings(), "clip", "clip_step"]

    def _check(self) -> None:
        super()._check()
        check_delta(self.delta)
        if (self.epsilon is None) == (self.noise_multiplier is None):
            raise ValueError(
                "either epsilon or noise_multiplier must be given, such as epsilon=1.0; "
                f"got {self.epsilon!r} and {self.noise_multiplier!r}."
            )
        if self.epsilon is not None:
            check_epsilon(self.epsilon)
        elif self.noise_multiplier != 0:
            check_positive("noise_multiplier", self.noise_multiplier)
        if self.clip_quantile is not None:
            check_between("clip_quantile", self.clip_quantile, 0, 1)
            if self.clip_quantile in (0, 1):
                raise ValueError(f"clip_quantile must be in (0, 1); got {self.clip_quantile!r}.")
        if self.bit_noise is not None:
            check_positive("bit_noise", self.bit_noise)
        if self.trust not in get_args(Trust):
            raise ValueError(f"trust must be one of {get_args(Trust)}; got {self.trust!r}.")

    def _round(self, m: int) -> Round:
        counted = self.sampling == "fixed" and self.sample_rate < 1
        return Round(float(self.sample_rate), m if counted else 0, self.sampling, self.trust)

    def _multiplier(self, m: int) -> float:
        """Noise multiplier of all that a client sends in a round."""
        if self.noise_multiplier is not None:
            return float(self.noise_multiplier)
        assert self.epsilon is not None
        return self._round(m).multiplier(self.epsilon, self.n_rounds, self.delta)

    def _split(self, m: int) -> tuple[float, float]:
        """Noise multiplier of the changes, and standard deviation of the noise of bits."""
        z = self._multiplier(m)
        if self.clip_quantile is None or z == 0:
            return z, 0.0
        local = self.trust == "none"
        # the changes have at most 1.16 z
        default = 2 * z if local else max(self.sample_rate * m / 20, z)
        noise = default if self.bit_noise is None else self.bit_noise
        if noise <= z / 2:
            raise ValueError(
                f"bit_noise must be above half the noise multiplier, {z / 2:.4g}; got {noise:g}."
            )
        return events.split_multiplier(z, [2 * noise]), noise

    # Clients ----------------------------------------------------------------------------------

    def _limits(self, sent: dict) -> dict[str, float]:
        """Largest norm of each part of a message."""
        return dict.fromkeys(sent["shared"], check_positive("clip", sent["clip"]))

    def _remember(self, sent: dict, memory: dict, m: int) -> dict:
        memory = super()._remember(sent, memory, m)
        for name, kind in (("clipped", bool), ("answered", np.int64)):
            value = memory.get(name, np.zeros(m, kind))
            memory = memory | {name: value if value.flags.writeable else value.copy()}
        return memory

    def _protect(
        self, changes: Named, sent: dict, memory: dict, members: NDArray, rng: Any
    ) -> dict[str, NDArray]:
        """Clip, say whether that was needed, and add noise where nobody is trusted."""
        message: dict[str, NDArray] = {}
        limits = self._limits(sent)
        for name, change in changes.items():
            message[name], norm = shorten(change, limits[name])
            memory["clipped"][members] |= norm > limits[name]
            if self.clip_quantile is not None:  # whoever changes nothing says nothing
                bit = np.where(norm <= limits[name], 0.5, -0.5) * (norm > 0)
                message["bit"] = bit[:, None]
        memory["answered"][members] += 1
        if self.trust == "none":
            z, noise = self._split(sent["m"])
            scales = {name: z * limit for name, limit in limits.items()} | {"bit": noise}
            for name, values in message.items():
                message[name] = self._disturb(values, scales[name], memory, members, rng)
        return message

    def _disturb(
        self, values: NDArray, scale: float, memory: dict, members: NDArray, rng: Any
    ) -> NDArray[np.float64]:
        """Add the noise that each client draws for itself."""
        if scale == 0:
            return values
        if isinstance(rng, Stream):
            key, tag, start = rng.words(values.shape[1])  # each client has a range of its own
            noise = np.empty_like(values)
            for row, member in zip(noise, members.tolist(), strict=True):
                first = start + np.uint64(member * values.shape[1])
                kernels.fill_normals(row, key, tag, first)
            return values + scale * noise
        from ebfed.channels.secure import gaussian

        noisy = [gaussian(value, scale) for value in values.ravel().tolist()]
        return np.array(noisy).reshape(values.shape)

    def _message_shapes(self, sent: dict, c: int) -> dict[str, tuple[int, ...]]:
        bit = {} if self.clip_quantile is None else {"bit": (c, 1)}
        return super()._message_shapes(sent, c) | bit

    # Server -----------------------------------------------------------------------------------

    def check_message(self, message: dict, facts: dict, sent: dict, turn: NDArray) -> None:
        """Raise a ValueError if that is no answer of the clients that stated these facts."""
        super().check_message(message, facts, sent, turn)
        if self.trust == "none":  # noise may make a message as long as it likes
            return
        for name, limit in self._longest(sent, facts, turn).items():
            with np.errstate(over="ignore"):
                norm = np.linalg.norm(message[name], axis=1)
            if np.any(norm > np.multiply(limit, 1 + 1e-9)):
                raise ValueError(f"{name} must have norms of at most {np.max(limit):g}.")
        if "bit" in message and not np.isin(message["bit"], (-0.5, 0.0, 0.5)).all():
            raise ValueError("bit must be a half, minus a half, or 0.")

    def _longest(self, sent: dict, facts: dict, turn: NDArray) -> dict[str, Any]:
        """Largest norm that a part of each message may have."""
        return self._limits(sent)

    def start(self, facts: dict, key: NDArray) -> dict:
        """Return the state before the first round."""
        state = super().start(facts, key) | {"clip": float(self.clip)}
        self._split(len(facts["n"]))  # solves for the noise, or says why not
        return state | {"promise": self._terms()}

    def broadcast(self, state: dict) -> dict:
        """Return the shared parameters, which round it is, and the norm to clip to."""
        return super().broadcast(state) | {"clip": state["clip"], "m": len(state["n"])}

    def keep(self, state: dict) -> dict:
        """Return what is to be kept of the last state; not who came to its last round."""
        return {name: x for name, x in super().keep(state).items() if name != "turn"}

    def _count(self, state: dict) -> dict[str, float]:
        """Return nothing: that nobody knows who joined is what a sample protects by."""
        return {}

    def _average(self, state: dict, messages: dict) -> tuple[Named, dict]:
        """Average with noise; divided by how many clients were expected, which is public."""
        m, rng = len(state["n"]), self._draw(state, NOISE)
        z, noise = self._split(m) if self.trust == "server" else (0.0, 0.0)
        expected = self._denominator(state["n"])
        limits = self._limits(self.broadcast(state))
        average = {
            name: self._noisy_sum(messages[name], z * limits[name], rng) / expected
            for name in state["shared"]
        }
        if self.clip_quantile is None:
            return average, state
        bits = float(self._noisy_sum(messages["bit"], noise, rng)[0]) / expected
        return average, state | {"clip": self._follow(state["clip"], bits)}

    @staticmethod
    def _noisy_sum(values: NDArray, scale: float, rng: np.random.Generator) -> NDArray:
        return values.sum(axis=0) + scale * rng.standard_normal(values.shape[1])

    def _follow(self, clip: float, bits: float) -> float:
        """Move C towards the quantile: `bits` is the share below it, less a half."""
        assert self.clip_quantile is not None
        return clip * math.exp(-self.clip_step * (bits + 0.5 - self.clip_quantile))

    def _note(self, state: dict) -> dict[str, float]:
        return super()._note(state) | {"clip": state["clip"]}

    def _go_on(self, clients: Clients, memory: dict, state: dict) -> tuple[dict, dict]:
        state, memory = super()._go_on(clients, memory, state)
        if self.epsilon is not None and not state["done"]:
            raise ValueError(
                "epsilon was given, and the noise chosen for fewer rounds: give noise_multiplier "
                "to go on with warm_start."
            )
        if state["promise"] != self._terms():
            raise ValueError("with warm_start, arguments that promise privacy must not change.")
        return state, memory

    def _terms(self) -> str:
        """Name all arguments on which the account rests."""
        names = ("epsilon", "delta", "noise_multiplier", "sample_rate", "sampling", "trust")
        more = ("clip_quantile", "bit_noise")
        return repr([getattr(self, name) for name in (*names, *more)])

    # Accounts ---------------------------------------------------------------------------------

    def _released(
        self, sent: dict, memory: dict, clients: Clients, rounds: int
    ) -> list[dict[str, Any]]:
        return [self._row("all clients", sent, memory, np.arange(len(clients)), rounds)]

    def _row(
        self, who: str, sent: dict, memory: dict, members: NDArray, rounds: int
    ) -> dict[str, Any]:
        """Describe what these clients released in so many rounds."""
        round_ = self._round(sent["m"])
        z = self._multiplier(sent["m"])
        times = rounds
        if round_.trust == "none" and sent["done"] and "answered" in memory:
            times = int(memory["answered"][members].max(initial=0))
        epsilon = round_.epsilon(z, times, self.delta) if times else 0.0
        if self.epsilon is not None:  # which the noise was chosen to keep, for all rounds
            epsilon = min(epsilon, self.epsilon)
        size = sum(len(value) for value in sent["shared"].values())
        size += self.clip_quantile is not None
        private = math.isfinite(epsilon)
        by = "the server" if round_.trust == "server" else "each client"
        sample = "everyone" if round_.rate == 1 else f"{round_.sampling} samples, q={round_.rate:g}"
        public = "numbers of clients and rows, columns and classes are public"
        trust = "the server is trusted" if round_.trust == "server" else "nobody need be trusted"
        if round_.trust == "server" and round_.rate < 1:
            trust += ", and who took part is known to it alone"
        return {
            "who": who,
            "what": f"clipped changes, Gaussian noise z={z:.4g} added by {by}, {sample}",
            "clients": len(members),
            "times": times,
            "epsilon": epsilon,
            "delta": self.delta if private and times else 0.0,
            "relation": self._promise(sent["m"]) if private else "none",
            "assumptions": f"{trust if private else 'the server is trusted'}; {public}",
            "bits": 64.0 * size * round_.rate * len(members) * rounds,
            "clipped": int(memory["clipped"][members].sum()) if "clipped" in memory else math.nan,
        }

    def _promise(self, m: int) -> str:
        return self._round(m).promise

    def _history_rows(self) -> list[dict]:
        """Rows of the history, with the epsilon that was spent until then."""
        rows = super()._history_rows()
        z, round_ = self._multiplier(self._n_clients), self._round(self._n_clients)
        most = max((row["epsilon"] for row in self._ledger if row["epsilon"] < math.inf), default=0)
        if not rows or z == 0:
            return rows
        spent = np.minimum(round_.spent(z, len(rows), self.delta), most).tolist()
        return [row | {"epsilon": epsilon} for row, epsilon in zip(rows, spent, strict=True)]


def shorten(change: NDArray, limit: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Scale vectors down to a norm; what is not finite becomes zero.

    Parameters
    ----------
    change : ndarray of shape (c, size)
    limit : float

    Returns
    -------
    shortened : ndarray of shape (c, size)
    norm : ndarray of shape (c,)
        Before; infinite where it was not finite.

    Examples
    --------
    >>> shorten(np.array([[3.0, 4.0], [0.3, 0.4], [np.nan, 0.0]]), 1.0)
    (array([[0.6, 0.8],
           [0.3, 0.4],
           [0. , 0. ]]), array([5. , 0.5, inf]))
    """
    with np.errstate(over="ignore", invalid="ignore"):
        norm = np.sqrt(np.einsum("ij,ij->i", change, change))
        norm = np.where(np.isfinite(norm), norm, np.inf)
        short = change * np.minimum(1.0, limit / np.maximum(norm, max(limit, 1e-300)))[:, None]
    return np.where(np.isfinite(norm)[:, None], short, 0.0), norm
