"""Client-level differential privacy of a learner: clip, sum, add noise, account.

Each client's message is scaled down to a norm of at most C. The server releases a sum with Gaussian
noise of standard deviation z C, divided by the *expected* number of clients. If C follows a
quantile of the norms, one bit of each client, whether it was below, is released in the same way.
Both together are one Gaussian release, of multiplier z.

*Digits.* What a client sends is cut, towards zero, to digits whose sums over clients are exact
(`ebfed.engines.sums`): no norm grows, and noise of its own is in it already.

*Who is trusted.* With ``trust="server"`` the server sees messages as they are and adds the noise;
the promise is to everyone who sees what it publishes, the other clients among them, and is about a
data set with or without one client. With ``trust="none"`` each client adds noise to its own
message, and the promise holds for every message, against anyone; it is about any two data sets of
one client. Sampling amplifies the former if clients join independently and nobody learns who did;
the latter it does not. Samples of a fixed size amplify it towards outsiders only: all other clients
together would know whether the last one was invited.

*What is public.* Numbers of clients and of rows, columns and classes.

*What may be published.* The shared parameters, the norm C and the copy of `conclude`. A fit in this
process also has losses and counts of its history, numbers clipped, and own parameters: these are
for the holder of the rows.

*Randomness.* In a federation without a seed, noise is drawn by OpenDP from the operating system,
also the server's. In this process it comes from NumPy's generator, whose key is new in every fit
and at every warm start; the last digits of floats are not covered by the proof. A fixed seed is for
simulations: it protects nobody, and the ledger says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

from ebfed import kernels
from ebfed.channels import secure
from ebfed.engines.protocol import (
    LearningFacts,
    LearningMemory,
    LearningMessage,
    LearningSent,
    LearningState,
    Named,
)
from ebfed.engines.sums import total
from ebfed.learning.accounts import Round, Trust
from ebfed.learning.checks import check_between
from ebfed.learning.exchange import Exchange, Senders, size_of, unmoved
from ebfed.learning.memory import writable
from ebfed.privacy import events
from ebfed.privacy.calibration import check_delta, check_epsilon, check_positive
from ebfed.privacy.clipping import shorten
from ebfed.privacy.odometer import Plan
from ebfed.streams import Stream
from ebfed.tables.clients import LARGEST, SMALLEST

__all__ = ["ClientPrivacy", "PrivateExchange"]

Bounds = Callable[[LearningSent], dict[str, float]]


@dataclass(eq=False, repr=False)
class ClientPrivacy(BaseEstimator):
    """Differential privacy of what each client sends, over the whole training.

    An argument of every learner that sends anything, such as
    ``FedAvg(privacy=ClientPrivacy(epsilon=8))``. Either `epsilon` or `noise_multiplier` must be
    given. Learners that draw a sample of clients in each round need dp-accounting to account for
    it: ``pip install "ebfed[accounting]"``.

    Parameters
    ----------
    epsilon : float or dict, optional
        Epsilon of the whole fit. The noise is computed from it. For `FeO2` it may be a dict, from
        levels of privacy that clients choose from to the epsilon of each; so may
        `noise_multiplier`.
    delta : float
        Probability with which epsilon may be exceeded.
    noise_multiplier : float or dict, optional
        Number z, instead of `epsilon`: the noise has standard deviation z C. `privacy_` then has
        the epsilon that results. 0 means no noise and no privacy.
    clip : float
        Bound C on the norm of a message. Longer messages are scaled down to it. With
        `clip_quantile`, C changes from round to round, and this is the first value.
    clip_quantile : float, optional
        C is moved until this share kappa of the messages has a norm below C.
    clip_step : float
        Learning rate of the logarithm of C.
    bit_noise : float, optional
        With `clip_quantile`, each client also sends a bit: whether its message is below C. The sum
        of these bits gets noise of this standard deviation. None: a twentieth of the expected
        number of clients, or z if that is larger.
    trust : {"server", "none", "nobody"}
        ``"server"``: the server adds the noise and must be trusted. ``"none"``: each client adds
        noise, and the server need not be trusted. ``"nobody"``: over Flower, nodes share the
        noise, and the server sees only the sum over nodes; see `ebfed.learning.node_sums`.

    References
    ----------
    McMahan, Ramage, Talwar and Zhang (2018), Learning differentially private recurrent language
    models. Andrew, Thakkar, McMahan and Ramaswamy (2021), Differentially private learning with
    adaptive clipping, Algorithm 1.

    Examples
    --------
    >>> from ebfed.learning import FedAvg
    >>> est = FedAvg(privacy=ClientPrivacy(epsilon=8))
    >>> est.set_params(privacy__epsilon=4).privacy
    ClientPrivacy(epsilon=4)
    """

    epsilon: Any = None
    delta: float = 1e-5
    _: KW_ONLY
    noise_multiplier: Any = None
    clip: float = 1.0
    clip_quantile: float | None = None
    clip_step: float = 0.2
    bit_noise: float | None = None
    trust: Trust = "server"

    def check(self) -> None:
        """Raise a ValueError if an argument is wrong."""
        clip = check_positive("clip", self.clip)
        if not SMALLEST <= clip <= LARGEST:  # noise and sums must not lose their digits
            raise ValueError(
                f"clip must lie between {SMALLEST:g} and {LARGEST:g}; got {self.clip!r}."
            )
        check_positive("clip_step", self.clip_step)
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
            check_between("noise_multiplier", self.noise_multiplier, SMALLEST, LARGEST)
        if self.clip_quantile is not None:
            check_between("clip_quantile", self.clip_quantile, 0, 1)
            if self.clip_quantile in (0, 1):
                raise ValueError(f"clip_quantile must be in (0, 1); got {self.clip_quantile!r}.")
        if self.bit_noise is not None:
            check_positive("bit_noise", self.bit_noise)
        if self.trust not in get_args(Trust):
            raise ValueError(f"trust must be one of {get_args(Trust)}; got {self.trust!r}.")

    def silenced(self) -> ClientPrivacy:
        """Return the same clipping without noise, and without a promise."""
        silent = {"epsilon": None, "noise_multiplier": 0.0}
        return type(self)(**self.get_params(deep=False) | silent)


@dataclass(frozen=True)
class PrivateExchange(Exchange):
    """Clipped messages with noise.

    Parameters
    ----------
    schedule : Schedule
    n_clients : int
    privacy : ClientPrivacy
    bounds : callable
        `Learner.message_bounds`.
    shares : mapping of str to float
        Of what a round costs, the share of each part that has a bound of its own, and that of the
        parts that are clipped together; they add up to 1.
    """

    adds_portions: ClassVar[bool] = False
    sends_losses: ClassVar[bool] = False
    counts_clients: ClassVar[bool] = False

    privacy: ClientPrivacy
    bounds: Bounds
    shares: Mapping[str, float] = field(default_factory=dict, kw_only=True)

    # The promise ------------------------------------------------------------------------------

    @property
    def promises(self) -> bool:
        return self.privacy.noise_multiplier != 0

    @property
    def server_adds_noise(self) -> bool:
        return self.privacy.trust == "server"

    @property
    def clients_add_noise(self) -> bool:
        """Whether noise is added to what each client sends."""
        return self.privacy.trust == "none"

    @property
    def limit(self) -> float:
        """What each number of a message is below in size; infinite where norms are bounded."""
        return LARGEST if self.privacy.trust == "none" else math.inf

    @property
    def round(self) -> Round:
        """What the account must know of a round."""
        schedule = self.schedule
        counted = schedule.sampling == "fixed" and schedule.sample_rate < 1
        m = self.n_clients if counted else 0
        return Round(float(schedule.sample_rate), m, schedule.sampling, self.privacy.trust)

    @property
    def terms(self) -> tuple:
        """Arguments of the learner on which the account rests, besides its schedule."""
        return ()

    @property
    def relation(self) -> str:
        """Which inputs are neighbours, in words."""
        return self.round.promise

    @property
    def multiplier(self) -> float:
        """Noise multiplier of all that a client sends in a round."""
        privacy = self.privacy
        if privacy.noise_multiplier is not None:
            return float(privacy.noise_multiplier)
        assert privacy.epsilon is not None
        return self.round.multiplier(privacy.epsilon, self.schedule.n_rounds, privacy.delta)

    def split(self) -> tuple[float, float]:
        """Return the noise multiplier of the changes, and the standard deviation of bits' noise."""
        z, privacy = self.multiplier, self.privacy
        if z == 0:
            return 0.0, 0.0
        if privacy.clip_quantile is None:
            return z, 0.0
        local = privacy.trust == "none"
        # the changes have at most 1.16 z
        default = 2 * z if local else max(self.schedule.sample_rate * self.n_clients / 20, z)
        noise = default if privacy.bit_noise is None else privacy.bit_noise
        if noise <= z / 2:
            raise ValueError(
                f"bit_noise must be above half the noise multiplier, {z / 2:.4g}; got {noise:g}."
            )
        return events.split_multiplier(z, [2 * noise]), noise

    def limits(self, sent: LearningSent) -> dict[str, float]:
        """Return the largest norm of each part of the changes, on which its noise is scaled."""
        limits = dict.fromkeys(sent["shared"], sent["clip"]) | self.bounds(sent)
        for name, limit in limits.items():
            if not SMALLEST <= limit <= LARGEST:
                raise ValueError(
                    "clip and learning_rate must limit what is sent to a norm between "
                    f"{SMALLEST:g} and {LARGEST:g}; the limit of {name!r} is {limit!r}."
                )
        return limits

    def scales(self, sent: LearningSent) -> tuple[dict[str, float], float]:
        """Return the standard deviation of the noise in each part of a sum, and in bits."""
        # a part of multiplier y costs 1 / y**2, and all together cost 1 / z**2
        z, bits = self.split()
        return {
            name: z / math.sqrt(self.shares.get(name, 1.0)) * limit
            for name, limit in self.limits(sent).items()
        }, bits

    # Clients ----------------------------------------------------------------------------------

    def remember(self, memory: LearningMemory, m: int) -> LearningMemory:
        return memory | {
            "clipped": writable(memory.get("clipped", np.zeros(m, bool))),
            "answered": writable(memory.get("answered", np.zeros(m, np.int64))),
        }

    def send(self, changes: Named, who: Senders) -> LearningMessage:
        """Clip, and add noise where the server is not trusted."""
        message = self.shortened(changes, who)
        who.memory["answered"][who.members] += 1
        if self.clients_add_noise:
            scales, noise = self.scales(who.sent)
            message["changes"] = {
                name: self.disturb(values, scales[name], who)
                for name, values in message["changes"].items()
            }
            if "bit" in message:
                message["bit"] = self.disturb(message["bit"], noise, who)
        return message

    def shortened(self, changes: Named, who: Senders) -> LearningMessage:
        """Shorten changes to their limits; say in a bit whether C was more than needed."""
        sent, memory, members = who.sent, who.memory, who.members
        self.limits(sent)  # which are checked
        norm, short = np.zeros(len(members)), dict[str, NDArray]()
        for (names, limit), whole in zip(
            self.clipped(sent), self.joined(changes, sent), strict=True
        ):
            whole, length = shorten(whole, limit)
            memory["clipped"][members] |= length > limit
            norm = length if names[0] not in self.bounds(sent) else norm
            edges = np.cumsum([changes[name].shape[1] for name in names])[:-1]
            short |= zip(names, np.split(whole, edges, axis=1), strict=True)
        message: LearningMessage = {"changes": {name: short[name] for name in changes}}
        if self.privacy.clip_quantile is not None:  # 0 for a client that changes nothing
            bit = np.where(norm <= sent["clip"], 0.5, -0.5) * (norm > 0)
            message["bit"] = bit[:, None]
        return message

    def clipped(self, sent: LearningSent) -> list[tuple[list[str], float]]:
        """Return which parts are clipped together, and to which norm: C is that of the first."""
        bounds = self.bounds(sent)
        together = [name for name in sent["shared"] if name not in bounds]
        return [(together, sent["clip"])] * bool(together) + [([n], x) for n, x in bounds.items()]

    def joined(self, changes: Named, sent: LearningSent) -> list[NDArray]:
        """Return parts that are clipped together as one array each."""
        return [np.hstack([changes[name] for name in names]) for names, _ in self.clipped(sent)]

    def disturb(self, values: NDArray, scale: ArrayLike, who: Senders) -> NDArray[np.float64]:
        """Add the noise that each client draws for itself."""
        if not np.any(scale):
            return values
        scale = np.asarray(scale, np.float64)
        if isinstance(who.rng, Stream):
            key, tag, start = who.rng.words(values.shape[1])  # each client has a range of its own
            noise = np.empty_like(values)
            for row, member in zip(noise, who.members.tolist(), strict=True):
                first = start + np.uint64(member * values.shape[1])
                kernels.fill_normals(row, key, tag, first)
            return values + scale * noise
        return secure.add_gaussian(values, scale, who.rng)

    # Server -----------------------------------------------------------------------------------

    def shapes(self, sent: LearningSent, c: int) -> dict[str, tuple[int, ...]]:
        bit = {} if self.privacy.clip_quantile is None else {"bit": (c, 1)}
        return super().shapes(sent, c) | bit

    def check(
        self, message: LearningMessage, facts: LearningFacts, sent: LearningSent, turn: NDArray
    ) -> None:
        super().check(message, facts, sent, turn)
        if self.privacy.trust == "none":  # with its noise, a message may have any length
            return
        changes, c, bit = message["changes"], int((turn == 0).sum()), message.get("bit")
        if sums := "clients" in message:
            changes = {name: total(change)[None] for name, change in changes.items()}
        for (names, _), change, limit in zip(
            self.clipped(sent),
            self.joined(changes, sent),
            self.longest(sent, facts, turn),
            strict=True,
        ):
            with np.errstate(over="ignore"):
                norm = np.linalg.norm(change, axis=1)
            most = np.sum(np.broadcast_to(limit, c)) if sums else limit
            if np.any(norm > np.multiply(most, 1 + 1e-9)):
                raise ValueError(
                    f"changes of {', '.join(names)} must have norms of at most {np.max(most):g}."
                )
        if bit is None:
            return
        halves = self.halves(facts, turn)
        if sums and not abs(total(bit)[0]) <= halves.sum() / 2:
            raise ValueError(f"bit must be a sum of at most {halves.sum() / 2:g}.")
        if not sums and not np.all((np.abs(2 * bit[:, 0]) <= halves) & (2 * bit[:, 0] % 1 == 0)):
            raise ValueError("bit must be a half, minus a half, or 0, for each that is clipped.")

    def longest(self, sent: LearningSent, facts: LearningFacts, turn: NDArray) -> list[Any]:
        """Return the largest norm that each part that is clipped may have, of each message."""
        return [limit for _, limit in self.clipped(sent)]

    def halves(self, facts: LearningFacts, turn: NDArray) -> NDArray[np.int64]:
        """Return how many halves the bit of each message may have."""
        return np.ones(int((turn == 0).sum()), np.int64)

    def start(self, state: LearningState, facts: LearningFacts) -> LearningState:
        """Return the first state; solves for the noise, or says why there is none."""
        self.split()
        if self.privacy.trust == "nobody" and type(self) is not PrivateExchange:
            raise ValueError(
                'trust="nobody" needs noise that is that of one sum over all clients; give '
                'trust="server" or "none".'
            )
        return state | {"clip": float(self.privacy.clip), "promise": self._promise()}

    def broadcast(self, state: LearningState, sent: LearningSent) -> LearningSent:
        """Return what is broadcast, with the norm to clip to."""
        if self.promises and self.server_adds_noise:
            secure.check(state)
        return sent | {"clip": state["clip"]}

    def average(
        self,
        state: LearningState,
        sent: LearningSent,
        message: LearningMessage,
        rng: Any,
    ) -> tuple[Named, LearningState]:
        """Average with noise; divided by how many clients were expected, which is public."""
        scales, noise = self.server_scales(sent)
        if "nodes" in message:  # a secure sum has its noise; clients of this process have none
            scales, noise = dict.fromkeys(scales, 0.0), 0.0
        expected, changes = self.expected(state, sent), message["changes"]
        if expected == 0:  # as where all budgets are spent
            return unmoved(state), state
        average = {
            name: noisy_sum(changes[name], scales[name], rng)
            / (sent["expected"] if name in self.totals else expected)
            for name in sent["shared"]
        }
        if self.privacy.clip_quantile is None:
            return average, state
        bits = float(noisy_sum(message["bit"], noise, rng)[0]) / expected
        return average, self.follow(state, bits)

    def expected(self, state: LearningState, sent: LearningSent) -> float:
        """Return what a sum is divided by: what is expected of the clients at nodes that answered.

        Which nodes these are is no secret; how many of their clients were invited is one.
        """
        if "answering" not in state or not sent["expected"]:
            return sent["expected"]
        weights = self.schedule.weights(state["n"], sent["largest"]) * self.active(state)
        return sent["expected"] * float(weights[state["answering"]].sum() / weights.sum())

    def active(self, state: LearningState) -> NDArray[np.bool_]:
        """Return which clients may be invited to a round."""
        return np.ones(len(state["n"]), bool)

    def server_scales(self, sent: LearningSent) -> tuple[dict[str, float], float]:
        """Return the standard deviations of the noise that the server adds."""
        if self.privacy.trust != "none":
            return self.scales(sent)
        return dict.fromkeys(sent["shared"], 0.0), 0.0

    def follow(self, state: LearningState, bits: float) -> LearningState:
        """Move C towards the quantile: `bits` is the share below it, less a half."""
        kappa = self.privacy.clip_quantile
        assert kappa is not None
        step = np.clip(self.privacy.clip_step * (bits + 0.5 - kappa), -50, 50)
        return state | {"clip": min(max(state["clip"] * math.exp(-step), SMALLEST), LARGEST)}

    def note(
        self, state: LearningState, message: LearningMessage, row: dict[str, float]
    ) -> dict[str, float]:
        """Add C to a round's row of the history; how many took part stays secret."""
        return row | {"clip": state["clip"]}

    def check_resume(
        self, state: LearningState, memory: LearningMemory, kept: LearningMemory
    ) -> None:
        if self.privacy.epsilon is not None and not state["done"]:
            raise ValueError(
                "epsilon was given, and the noise chosen for fewer rounds: give noise_multiplier "
                "to go on with warm_start."
            )
        if state.get("promise") != self._promise():
            raise ValueError("with warm_start, arguments that promise privacy must not change.")

    def _promise(self) -> str:
        """Name all arguments on which the account rests."""
        privacy, schedule = self.privacy, self.schedule
        own = (privacy.epsilon, privacy.delta, privacy.noise_multiplier, privacy.trust)
        more = (privacy.clip_quantile, privacy.bit_noise)
        return repr((*own, *more, schedule.sample_rate, schedule.sampling, *self.terms))

    # Accounts ---------------------------------------------------------------------------------

    def plan(self, memory: LearningMemory, m: int) -> list[Plan]:
        """State all that a run may take from m clients: an answer in every round."""
        return [self.plan_of("all clients", np.ones(m, bool))]

    def plan_of(self, who: str, members: NDArray[np.bool_], times: int | None = None) -> Plan:
        """State all that a run may take from these clients in `times` rounds; in all, if None."""
        round_, rounds, delta = self.round, self.schedule.n_rounds, self.privacy.delta
        if self.multiplier == 0:
            return Plan.exact(who, members, rounds)
        times = rounds if times is None else times
        event, epsilon = round_.whole(self.multiplier, times, delta), self.total(times)
        return Plan(
            who,
            members,
            event,
            round_.relation,
            epsilon,
            delta,
            rounds,
            trusts_server=self.server_adds_noise,
            of_sum=not self.clients_add_noise,
        )

    def total(self, times: int) -> float:
        """Epsilon of `times` rounds, at most the epsilon for which the noise was chosen."""
        promised = math.inf if self.privacy.epsilon is None else float(self.privacy.epsilon)
        return min(self.round.epsilon(self.multiplier, times, self.privacy.delta), promised)

    def released(
        self, sent: LearningSent, memory: LearningMemory | None, m: int, rounds: int
    ) -> list[dict[str, Any]]:
        return [self.row("all clients", sent, memory, np.arange(m), rounds)]

    def row(
        self,
        who: str,
        sent: LearningSent,
        memory: LearningMemory | None,
        members: NDArray[np.int64],
        rounds: int,
    ) -> dict[str, Any]:
        """Describe what these clients released in so many rounds."""
        round_, privacy, z, times = self.round, self.privacy, self.multiplier, rounds
        kept: Any = {} if memory is None else memory
        if round_.trust == "none" and sent["done"] and "answered" in kept:
            times = int(kept["answered"][members].max(initial=0))
        epsilon = self.total(times) if times else 0.0
        size = size_of(sent) + (privacy.clip_quantile is not None)
        private = math.isfinite(epsilon)
        by = {"server": "the server", "nobody": "the nodes together"}.get(
            round_.trust, "each client"
        )
        sample = "everyone" if round_.rate == 1 else f"{round_.sampling} samples, q={round_.rate:g}"
        public = "numbers of clients and rows, columns and classes are public"
        trust = {
            "server": "the server is trusted",
            "none": "nobody need be trusted",
            "nobody": "the server follows the protocol of secure sums, and enough nodes are honest",
        }[round_.trust]
        if round_.trust == "server" and round_.rate < 1:
            trust += ", and who took part is known to it alone"
        return {
            "who": who,
            "what": f"clipped changes, Gaussian noise z={z:.4g} added by {by}, {sample}",
            "clients": len(members),
            "times": times,
            "epsilon": epsilon,
            "delta": privacy.delta if private and times else 0.0,
            "relation": self.relation if private else "none",
            "assumptions": f"{trust if private else 'the server is trusted'}; {public}",
            "bits": 64.0 * size * round_.rate * len(members) * rounds,
            "clipped": int(kept["clipped"][members].sum()) if "clipped" in kept else math.nan,
        }

    def spent(self, n_rounds: int, rows: list[dict[str, Any]]) -> list[float] | None:
        z = self.multiplier
        most = max((row["epsilon"] for row in rows if row["epsilon"] < math.inf), default=0)
        if not n_rounds or z == 0:
            return None
        return np.minimum(self.round.spent(z, n_rounds, self.privacy.delta), most).tolist()


def noisy_sum(values: NDArray, scale: float, rng: Any) -> NDArray[np.float64]:
    """Add up the rows of an array, and noise; see `secure.add_gaussian`."""
    return secure.add_gaussian(total(values), scale, rng)
