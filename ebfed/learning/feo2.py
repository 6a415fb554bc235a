"""FeO2: federated learning in which clients may opt out of privacy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.linalg import norm
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from ebfed.engines.protocol import (
    LearningFacts,
    LearningMemory,
    LearningMessage,
    LearningSent,
    LearningState,
    Named,
)
from ebfed.learning.base import WithConsent
from ebfed.learning.checks import check_between
from ebfed.learning.ditto import Ditto, DittoRounds
from ebfed.learning.exchange import Senders, size_of
from ebfed.learning.privacy import ClientPrivacy, PrivateExchange, noisy_sum
from ebfed.privacy import ledger
from ebfed.privacy.odometer import Plan
from ebfed.tables.clients import Clients
from ebfed.tables.consent import classes_of, levels_of

__all__ = ["FeO2", "FeO2Rounds", "OptOutExchange"]


@dataclass(eq=False, repr=False)
class FeO2(WithConsent, Ditto):
    r"""Ditto, with noise on the messages of clients that did not opt out, and less weight.

    .. math:: w \leftarrow w + \frac{1}{q (N_{np} + r N_p)} \Big[\sum_{i \in K_{np}} \Delta_i
        + r \Big\{\sum_{i \in K_p} \Delta_i + \mathcal N(0, z_\Delta^2 S^2 I)\Big\}\Big]

    where Delta_i are changes clipped to S. Both sums are divided by expected numbers of clients.

    Parameters
    ----------
    model, n_rounds, learning_rate, local_steps, batch_size, sample_rate and others
        As for `Ditto`, with `regularization` (lambda) and `own_learning_rate` (eta_p).
    ratio : float or "optimal"
        Weight r of a private client beside 1 of an open one, in [0, 1]. With 0, private clients are
        never invited. ``"optimal"``: that of Lemma 1, for the noise that is left in the mean of all
        rounds, and for changes of clients as long as S: see `ratio_`.
    privacy : ClientPrivacy
        Differential privacy of clients that did not opt out; it must be given. S is its `clip`; the
        bits that move S are centred and part of the promise. There may be several levels, each with
        its name: ``ClientPrivacy(epsilon={"strict": 0.5, "lax": 4.0})``, or such a dict of
        `noise_multiplier`. Clients choose one of these or ``"open"``, and each level has noise and
        a weight of its own.

    Attributes
    ----------
    ratio_ : float, or ndarray of shape (n_levels,)
        The weight r, of each level if there are several. For p parameters, T rounds and N_p private
        clients (of the level) ``"optimal"`` is

        .. math:: r^* = \Big(1 + \frac{p\, z_\Delta^2}{T q^2 N_p}\Big)^{-1}

        with z in place of z / sqrt(q N_p) where each client adds noise of its own. All of this is
        public, so that it costs no privacy. The lemma is of one round with unbounded messages: its
        noise is that of all rounds here, and its variance between clients is S^2 / p.

    Notes
    -----
    Noise in the sum protects from readers of the result, not from the server; with ``trust="none"``
    each private client adds noise of its own.

    References
    ----------
    Aldaghri, Mahdavifar and Beirami (2021), FeO2: federated learning with opt-out differential
    privacy, Algorithm 1; realised counts in its denominators are replaced by expected ones, bits
    are centred, and their noise is accounted for.

    Examples
    --------
    >>> from ebfed.learning import ClientPrivacy
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(np.arange(400), 5)
    >>> X = rng.normal(size=(2000, 2))
    >>> y = X[:, 0] > 0
    >>> consent = {g: "open" if g < 20 else "private" for g in range(400)}
    >>> privacy = ClientPrivacy(epsilon=1.0)
    >>> est = FeO2(privacy=privacy, ratio="optimal", n_rounds=20, random_state=0)
    >>> est = est.set_params(learning_rate=1.0).fit(X, y, groups=groups, consent=consent)
    >>> round(est.ratio_, 2)
    0.82
    >>> est.privacy_[["who", "clients", "epsilon"]].round(2).values.tolist()
    [['private', 380, 1.0], ['open', 20, inf]]

    Two levels of privacy:

    >>> est = est.set_params(privacy__epsilon={"strict": 0.5, "lax": 2.0})
    >>> consent = {g: "strict" if g < 200 else "lax" for g in range(400)}
    >>> est.fit(X, y, groups=groups, consent=consent).ratio_.round(2)
    array([0.4 , 0.89])
    """

    ratio: float | Literal["optimal"] = 1.0

    @property
    def ratio_(self) -> float | NDArray[np.float64]:
        """Weight of a private client beside 1 of an open one, of each level if there are many."""
        check_is_fitted(self, "clients_")
        state: Any = self._kept
        ratio = self.protocol().broadcast(state)["ratio"]
        return ratio if len(ratio) > 1 else float(ratio[0])

    def protocol(self) -> FeO2Rounds:
        return FeO2Rounds(self)


class FeO2Rounds(DittoRounds):
    """What clients and server of `FeO2` do."""

    requires_privacy: ClassVar[bool] = True
    takes_consent: ClassVar[bool] = True

    def check(self) -> None:
        given = self.estimator
        super().check()
        if isinstance(given.ratio, str) and given.ratio != "optimal":
            raise ValueError(
                f"ratio must be 'optimal' or a number from 0 to 1; got {given.ratio!r}."
            )
        if given.ratio != "optimal":
            check_between("ratio", given.ratio, 0, 1)

    def chosen(self, clients: Clients, codes: NDArray | None, consent: Any) -> LearningMemory:
        """Return the level that each client chose, that of all if there is one."""
        classes = [*self.levels, "open"]
        if consent is not None:
            return {"consent": classes_of(consent, classes, clients.ids, codes)}
        if len(classes) > 2:
            raise ValueError(
                f"consent= must say which level of privacy ({', '.join(map(repr, classes))}) each "
                "group chose."
            )
        return {"consent": np.zeros(len(clients), np.int8)}

    def describe(self, clients: Clients, memory: LearningMemory) -> LearningFacts:
        """State numbers of rows, columns, classes, and who opted out."""
        return super().describe(clients, memory) | {"consent": memory["consent"]}

    def check_facts(self, facts: LearningFacts) -> None:
        super().check_facts(facts)
        consent = facts.get("consent")
        if not (
            isinstance(consent, np.ndarray)
            and consent.dtype == np.int8
            and consent.shape == facts["n"].shape
            and np.isin(consent, range(len(self.levels) + 1)).all()
        ):
            last = len(self.levels)
            raise ValueError(f"consent must be from 0 to {last} (open) for each client.")

    def exchange(self, n_clients: int) -> OptOutExchange:
        """Protect the messages of private clients, and weigh them."""
        given = self.estimator
        assert given.privacy is not None
        common = self.schedule, n_clients, given.privacy, self.message_bounds
        return OptOutExchange(*common, given.ratio, self.levels)

    @property
    def levels(self) -> dict[str, ClientPrivacy]:
        privacy = self.estimator.privacy
        if privacy is None:  # which is refused later
            return super().levels
        name = "epsilon" if privacy.epsilon is not None else "noise_multiplier"
        common = privacy.get_params(deep=False)
        return {
            level: ClientPrivacy(**common | {name: number})
            for level, number in levels_of(name, common[name]).items()
        }


@dataclass(frozen=True)
class OptOutExchange(PrivateExchange):
    """Clipped messages, with noise and less weight where clients did not opt out.

    Parameters
    ----------
    schedule, n_clients, privacy, bounds
        As in `PrivateExchange`.
    ratio : float or "optimal"
        Weight of a private client beside 1 of an open one; see `optimal`.
    promised : dict from str to ClientPrivacy
        Levels of privacy that clients choose from; they differ in their noise alone.
    """

    ratio: float | Literal["optimal"]
    promised: Mapping[str, ClientPrivacy]

    @property
    def levels(self) -> dict[str, PrivateExchange]:
        """The exchange of each level of privacy, as if there were no other."""
        common = self.schedule, self.n_clients
        return {
            name: PrivateExchange(*common, privacy, self.bounds)
            for name, privacy in self.promised.items()
        }

    @property
    def promises(self) -> bool:
        """Whether clients of some level are protected by noise."""
        return any(level.promises for level in self.levels.values())

    @property
    def terms(self) -> tuple:
        """Arguments on which the account rests: with a ratio of 0, it is of nothing."""
        return (self.ratio,)

    def split(self) -> tuple[Any, Any]:
        """Return the noise multipliers of changes, and standard deviations of bits' noise."""
        z, bits = zip(*(level.split() for level in self.levels.values()), strict=True)
        return np.array(z), np.array(bits)

    def optimal(self, chosen: NDArray[np.int64], size: int) -> NDArray[np.float64]:
        r"""Return the weights that make the variance of the sum of all rounds least.

        .. math:: r_l^* = \frac{\sigma^2}{\sigma^2 + N_l \gamma_l^2}, \qquad
            \sigma^2 = \frac{S^2}{p}, \qquad
            N_l \gamma_l^2 = \frac{z_l^2 S^2}{T q^2 N_l}

        The variance sigma^2 of changes of different clients is, in each of p coordinates, that of
        changes as long as S. The noise of T rounds averages out, and what clients have of their own
        does not: N_l gamma_l^2 is the noise of a client's share in the mean of all rounds, where
        the sum of its level l has noise of its own. Where clients add the noise themselves, it is
        :math:`z_l^2 S^2 / (T q)`.

        Parameters
        ----------
        chosen : ndarray of shape (n_levels,)
            Number N_l of clients of each level.
        size : int
            Number p of shared parameters.
        """
        z, _ = self.split()
        number = np.maximum(chosen, 1)
        invited = self.schedule.sample_rate * number
        noise = z**2 * (invited if self.privacy.trust == "none" else 1.0)
        # each in units of S ** 2
        share = number * noise / (self.schedule.n_rounds * invited**2)
        return 1 / (1 + size * share)

    # Clients ----------------------------------------------------------------------------------

    def send(self, changes: Named, who: Senders) -> LearningMessage:
        """Return what clients send: changes times their weights, so that their sum is enough."""
        message = super().send(changes, who)
        weights = self.weights(who.memory["consent"][who.members], who.sent)[:, None]
        changes = {name: weights * values for name, values in message["changes"].items()}
        return message | {"changes": changes}

    def weights(self, consent: NDArray[np.int8], sent: LearningSent) -> NDArray[np.float64]:
        """Return the weight of each client, by its choice."""
        return np.append(sent["ratio"], 1.0)[consent]

    def disturb(self, values: NDArray, scale: ArrayLike, who: Senders) -> NDArray[np.float64]:
        own = np.append(scale, 0.0)[who.memory["consent"][who.members], None]
        return super().disturb(values, own, who)

    def opened(self, memory: LearningMemory, m: int) -> NDArray[np.bool_]:
        """Return which clients are to send something that no noise protects."""
        silent = [not level.promises for level in self.levels.values()]
        return np.array([*silent, True])[memory["consent"]]

    def plan(self, memory: LearningMemory, m: int) -> list[Plan]:
        """State all that a run may take from m clients, by their choice."""
        opened = memory["consent"] == len(self.promised)
        plans = [Plan.exact("open", opened, self.schedule.n_rounds)] if opened.any() else []
        for index, (who, level) in enumerate(self.levels.items()):
            members = memory["consent"] == index
            if members.any() and self.ratio != 0:
                plans.append(level.plan_of(who, members))
        return plans

    def released(
        self, sent: LearningSent, memory: LearningMemory | None, m: int, rounds: int
    ) -> list[dict[str, Any]]:
        """Return the ledger, a row for each choice."""
        if memory is None:  # a server's copy knows how many, and no more
            choices = np.arange(len(sent["chosen"]), dtype=np.int8)
            consent = np.repeat(choices, sent["chosen"])
        else:
            consent = memory["consent"]
        rows = []
        for index, (who, level) in enumerate((self.levels | {"open": None}).items()):
            members = np.flatnonzero(consent == index)
            if len(members) and level is None:
                rows.append(self._disclosure(who, sent, members, rounds))
            elif len(members) and self.ratio == 0:
                rows.append(ledger.silence(len(members)) | {"who": who})
            elif len(members) and level is not None:
                rows.append(level.row(who, sent, memory, members, rounds))
        return [row | {"assumptions": f"{row['assumptions']}; choices are public"} for row in rows]

    def spent(self, n_rounds: int, rows: list[dict[str, Any]]) -> list[float] | None:
        """Return epsilon after one round, two, ..., of the level that spends most."""
        found = [
            level.spent(n_rounds, [row for row in rows if row["who"] == who])
            for who, level in self.levels.items()
        ]
        known = [each for each in found if each is not None]
        return np.max(known, axis=0).tolist() if known else None

    def _disclosure(
        self, who: str, sent: LearningSent, members: NDArray[np.int64], rounds: int
    ) -> dict[str, Any]:
        bits = 64.0 * size_of(sent) * self.schedule.sample_rate * len(members) * rounds
        row = ledger.disclosure("clipped changes, as they are", len(members), bits)
        return row | {"who": who, "times": rounds, "epsilon": math.inf}

    # Server -----------------------------------------------------------------------------------

    def longest(self, sent: LearningSent, facts: LearningFacts, turn: NDArray) -> list[Any]:
        """Return the largest norm that each bounded part of each message may have."""
        weights = self.weights(facts["consent"][turn == 0], sent)
        return [limit * weights for limit in super().longest(sent, facts, turn)]

    def start(self, state: LearningState, facts: LearningFacts) -> LearningState:
        """Return the first state, with the choices of clients."""
        opened = facts["consent"] == len(self.promised)
        if self.ratio == 0 and not opened.any():
            raise ValueError("ratio is 0, and no client opted out: none would be invited.")
        return super().start(state, facts) | {"consent": facts["consent"]}

    def invite(self, state: LearningState, rng: np.random.Generator) -> NDArray[np.int8]:
        """Draw who is invited to a round: no client whose answer would have no weight."""
        turn = super().invite(state, rng)
        if self.ratio == 0:
            opened = state["consent"] == len(self.promised)
            turn = np.where(opened, turn, -1).astype(np.int8)
        return turn

    def broadcast(self, state: LearningState, sent: LearningSent) -> LearningSent:
        """Return what is broadcast, with how many clients chose each level, and their weight."""
        chosen = np.bincount(state["consent"], minlength=len(self.promised) + 1)
        if isinstance(self.ratio, str):
            size = sum(len(value) for value in sent["shared"].values())
            ratio = self.optimal(chosen[:-1], size)
        else:
            ratio = np.full(len(self.promised), float(self.ratio))
        return super().broadcast(state, sent) | {"chosen": chosen, "ratio": ratio}

    def average(
        self,
        state: LearningState,
        sent: LearningSent,
        message: LearningMessage,
        rng: Any,
    ) -> tuple[Named, LearningState]:
        """Add up what was weighted, with the noise of each level times its weight."""
        scales, noise = self.server_scales(sent)
        there = state["consent"][state.get("answering", slice(None))]
        number = np.bincount(there, minlength=len(sent["chosen"]))
        counts = sent["expected"] / self.n_clients * number
        if self.ratio == 0:
            counts[:-1] = 0.0
        weight = counts @ np.append(sent["ratio"], 1.0)  # [O] Algorithm 1
        noises = [norm(sent["ratio"] * scales[name]) for name in sent["shared"]]
        average = {
            name: noisy_sum(message["changes"][name], float(scale), rng) / weight
            for name, scale in zip(sent["shared"], noises, strict=True)
        }
        if self.privacy.clip_quantile is None:
            return average, state
        # one sum of bits, with the noise that the strictest level needs
        bits = float(noisy_sum(message["bit"], np.max(noise), rng)[0]) / counts.sum()
        return average, self.follow(state, bits)

    def server_scales(self, sent: LearningSent) -> tuple[dict[str, Any], Any]:
        """Return the standard deviations of the noise that the server adds for each level."""
        if self.ratio == 0:  # nothing needs noise
            return dict.fromkeys(sent["shared"], 0.0), 0.0
        return super().server_scales(sent)

    def check_resume(
        self, state: LearningState, memory: LearningMemory, kept: LearningMemory
    ) -> None:
        if not np.array_equal(memory["consent"], kept["consent"]):
            raise ValueError("consent must be that of the last fit, as warm_start is True.")
        super().check_resume(state, memory, kept)
