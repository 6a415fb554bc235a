"""FeO2: federated learning in which clients may opt out of privacy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ebfed.learning.base import NOISE, Named, check_between
from ebfed.learning.ditto import Ditto
from ebfed.learning.privacy import PrivateLearner
from ebfed.privacy import ledger
from ebfed.tables.clients import Clients
from ebfed.tables.consent import classes_of

__all__ = ["FeO2"]

CLASSES = ("private", "open")


@dataclass(eq=False, repr=False)
class FeO2(PrivateLearner, Ditto):
    r"""Ditto, with noise on the messages of those who did not opt out, and less weight.

    .. math:: w \leftarrow w + \frac{1}{q (N_{np} + r N_p)} \Big[\sum_{i \in K_{np}} \Delta_i
        + r \Big\{\sum_{i \in K_p} \Delta_i + \mathcal N(0, z_\Delta^2 S^2 I)\Big\}\Big]

    where Delta_i are changes clipped to S. Both sums are divided by expected numbers of clients.

    Parameters
    ----------
    model, n_rounds, learning_rate, local_steps, batch_size, sample_rate and others
        As for `Ditto`, with `regularization` (lambda) and `own_learning_rate` (eta_p).
    ratio : float
        r, the weight of a private client beside 1 of an open one, in [0, 1]. With 0, private
        clients are not heard.
    epsilon, delta, noise_multiplier, clip, clip_quantile, clip_step, bit_noise, trust
        The promise to those who did not opt out: see `DPFedAvg`. The bits that move S are centred
        and part of it.

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
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(np.arange(400), 5)
    >>> X = rng.normal(size=(2000, 2))
    >>> y = X[:, 0] > 0
    >>> consent = {g: "open" if g < 20 else "private" for g in range(400)}
    >>> est = FeO2(n_rounds=20, ratio=0.1, epsilon=1.0, learning_rate=1.0, random_state=0)
    >>> est = est.fit(X, y, groups=groups, consent=consent)
    >>> est.privacy_[["who", "clients", "epsilon"]].round(2).values.tolist()
    [['private', 380, 1.0], ['open', 20, inf]]
    """

    ratio: float = 1.0

    def _check(self) -> None:
        super()._check()
        check_between("ratio", self.ratio, 0, 1)

    def fit(self, X: Any, y: Any = None, *, groups: Any = None, consent: Any = None) -> Self:
        """Learn from rows.

        Parameters
        ----------
        X, y, groups : as for every learner
        consent : array-like of shape (n_rows,), dict from group to choice, or str, optional
            ``"private"`` or ``"open"``, or the column of the frame `X` that holds it. None: nobody
            opted out.

        Returns
        -------
        self
        """
        return self._fit(*self.prepare(X, y, groups=groups, consent=consent))

    # Clients ----------------------------------------------------------------------------------

    def prepare(
        self, X: Any, y: Any = None, *, groups: Any = None, consent: Any = None
    ) -> tuple[Clients, dict[str, NDArray]]:
        """Read rows, as in `fit`."""
        self._declare()
        consent, X = self._aside(X, consent, "consent", reset=True)
        clients, labels = self._read(X, y, groups, reset=True)
        if consent is None:
            return clients, {"consent": np.zeros(len(clients), np.int8)}
        return clients, {"consent": classes_of(consent, CLASSES, clients.ids, labels)}

    def describe(self, clients: Clients, memory: dict) -> dict[str, NDArray]:
        """State numbers of rows, columns, classes, and who opted out."""
        return super().describe(clients, memory) | {"consent": memory["consent"]}

    def _protect(
        self, changes: Named, sent: dict, memory: dict, members: NDArray, rng: Any
    ) -> dict[str, NDArray]:
        """Return what leaves the clients, and of whom it is: who opted out is public."""
        message = super()._protect(changes, sent, memory, members, rng)
        return message | {"open": memory["consent"][members].astype(np.float64)[:, None]}

    def _message_shapes(self, sent: dict, c: int) -> dict[str, tuple[int, ...]]:
        return super()._message_shapes(sent, c) | {"open": (c, 1)}

    def _disturb(
        self, values: NDArray, scale: float, memory: dict, members: NDArray, rng: Any
    ) -> NDArray[np.float64]:
        noisy = super()._disturb(values, scale, memory, members, rng)
        return np.where((memory["consent"][members] == 0)[:, None], noisy, values)

    # Server -----------------------------------------------------------------------------------

    def check_facts(self, facts: dict) -> None:
        """Raise a ValueError if that is not what clients may state."""
        super().check_facts(facts)
        consent = facts.get("consent")
        if not (
            isinstance(consent, np.ndarray)
            and consent.dtype == np.int8
            and consent.shape == facts["n"].shape
            and np.isin(consent, (0, 1)).all()
        ):
            raise ValueError("consent must be 0 (private) or 1 (open) for each client.")

    def check_message(self, message: dict, facts: dict, sent: dict, turn: NDArray) -> None:
        """Raise a ValueError if that is no answer of the clients that stated these facts."""
        super().check_message(message, facts, sent, turn)
        if not np.array_equal(message["open"][:, 0], facts["consent"][turn == 0]):
            raise ValueError("open must be what the clients stated.")

    def start(self, facts: dict, key: NDArray) -> dict:
        """Return the state before the first round."""
        state = super().start(facts, key) | {"consent": facts["consent"]}
        if self.ratio == 0 and not facts["consent"].any():
            raise ValueError("ratio is 0, and nobody opted out: nobody would be heard.")
        return state | {"turn": self._invite(state)}

    def _invite(self, state: dict) -> NDArray[np.int8]:
        turn = super()._invite(state)
        if self.ratio == 0 and "consent" in state:  # whose answer would not be used is not asked
            turn = np.where(state["consent"] == 1, turn, -1).astype(np.int8)
        return turn

    def _average(self, state: dict, messages: dict) -> tuple[Named, dict]:
        """Average the two classes with their weights, noise in the sum of the private one."""
        m, rng = len(state["n"]), self._draw(state, NOISE)
        z, noise = self._split(m) if self.trust == "server" and self.ratio else (0.0, 0.0)
        opened = messages["open"][:, 0] == 1
        share = self._denominator(state["n"]) / m
        counts = share * np.bincount(state["consent"], minlength=2)
        if self.ratio == 0:
            counts[0] = 0.0

        def total(name: str, scale: float, weight: float) -> NDArray:
            private = self._noisy_sum(messages[name][~opened], scale, rng)
            return weight * private + messages[name][opened].sum(axis=0)

        weight = counts[1] + self.ratio * counts[0]
        limits = self._limits(self.broadcast(state))
        average = {
            name: total(name, z * limits[name], self.ratio) / weight for name in state["shared"]
        }
        if self.clip_quantile is None:
            return average, state
        bits = float(total("bit", noise, 1.0)[0]) / counts.sum()
        return average, state | {"clip": self._follow(state["clip"], bits)}

    def broadcast(self, state: dict) -> dict:
        """Return what clients need, and how many of them are of which class."""
        opened = int(state["consent"].sum())
        return super().broadcast(state) | {"opened": opened}

    def _go_on(self, clients: Clients, memory: dict, state: dict) -> tuple[dict, dict]:
        if not np.array_equal(memory["consent"], self._memory["consent"]):
            raise ValueError("consent must be that of the last fit, as warm_start is True.")
        return super()._go_on(clients, memory, state)

    def _terms(self) -> str:
        """Name all arguments on which the account rests: with a ratio of 0, it is of nothing."""
        return super()._terms() + repr(self.ratio)

    # Accounts ---------------------------------------------------------------------------------

    def _released(
        self, sent: dict, memory: dict, clients: Clients, rounds: int
    ) -> list[dict[str, Any]]:
        consent = memory.get("consent")
        if consent is None:  # a server's copy knows how many, and no more
            consent = np.repeat([0, 1], [sent["m"] - sent["opened"], sent["opened"]])
        rows = []
        for index, who in enumerate(CLASSES):
            members = np.flatnonzero(consent == index)
            if len(members) and index:
                rows.append(self._disclosure(who, sent, members, rounds))
            elif len(members) and self.ratio == 0:
                rows.append(ledger.silence(len(members)) | {"who": who})
            elif len(members):
                rows.append(self._row(who, sent, memory, members, rounds))
        return [row | {"assumptions": f"{row['assumptions']}; choices are public"} for row in rows]

    def _disclosure(self, who: str, sent: dict, members: NDArray, rounds: int) -> dict[str, Any]:
        size = sum(len(value) for value in sent["shared"].values())
        bits = 64.0 * size * self.sample_rate * len(members) * rounds
        row = ledger.disclosure("clipped changes, as they are", len(members), bits)
        return row | {"who": who, "times": rounds, "epsilon": math.inf}
