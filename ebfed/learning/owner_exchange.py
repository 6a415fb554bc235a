"""What passes in a round between owners, each user of whom is protected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ebfed.engines.protocol import (
    LearningFacts,
    LearningMemory,
    LearningMessage,
    LearningSent,
    LearningState,
    Named,
)
from ebfed.learning.accounts import Round
from ebfed.learning.exchange import Senders, size_of
from ebfed.learning.privacy import PrivateExchange
from ebfed.learning.winsorized_rounds import WinsorizedRound
from ebfed.privacy.winsorized_mean import WinsorizedMean

__all__ = ["OwnerExchange", "PrivateMean"]

PrivateMean = Literal["gaussian", "winsorized"]


@dataclass(frozen=True)
class OwnerExchange(PrivateExchange):
    """Sums of clipped gradients of users, with noise.

    Parameters
    ----------
    schedule, n_clients, privacy, bounds
        As in `PrivateExchange`.
    personal, protect, private_mean, concentration
        As in `JointDPSGD`.
    """

    personal: tuple[str, ...]
    protect: str
    private_mean: PrivateMean
    concentration: float | None

    @property
    def terms(self) -> tuple:
        return self.personal, self.protect, self.private_mean, self.concentration

    @property
    def round(self) -> Round:
        rate = float(self.schedule.sample_rate)
        if self.private_mean == "winsorized":
            return WinsorizedRound(rate, self.n_clients, "poisson", "none")
        # inclusion is drawn by owners, so that it amplifies with either trust
        return Round(rate, self.n_clients, "poisson", "server")

    @property
    def relation(self) -> str:
        exchanged = self.private_mean == "winsorized"
        change = "one user exchanged for another" if exchanged else "one user more or less"
        if not self.personal or self.protect == "all":
            return change
        return f"{change}, seen by all but its owner"

    @property
    def winsorized_mean(self) -> WinsorizedMean | None:
        """What averages the users of an owner; None for Gaussian noise, or none."""
        z = self.multiplier
        if self.private_mean == "gaussian" or z == 0:
            return None
        assert self.concentration is not None
        return WinsorizedMean(self.privacy.clip, self.concentration, WinsorizedRound.rho(z))

    # Clients ----------------------------------------------------------------------------------

    @property
    def clients_add_noise(self) -> bool:
        """Whether noise is added to what each owner sends: winsorized means have it already."""
        return super().clients_add_noise and self.private_mean != "winsorized"

    def shortened(self, changes: Named, who: Senders) -> LearningMessage:
        """Return sums over users, of gradients that are clipped already, and of their bits."""
        message: LearningMessage = {"changes": {"u": changes["u"]}}
        return message | {"bit": changes["bit"]} if "bit" in changes else message

    # Server -----------------------------------------------------------------------------------

    def longest(self, sent: LearningSent, facts: LearningFacts, turn: NDArray) -> list[Any]:
        """Return the largest norm of each owner's sum."""
        return [sent["clip"] * facts["users"][turn == 0]]

    def halves(self, facts: LearningFacts, turn: NDArray) -> NDArray[np.int64]:
        """Return the number of users of each owner, each of whom has a bit."""
        return facts["users"][turn == 0]

    def invite(self, state: LearningState, rng: np.random.Generator) -> NDArray[np.int8]:
        """Invite every owner, unless it is owners that are drawn, rather than users."""
        if self.private_mean == "winsorized":
            return super().invite(state, rng)
        return np.zeros(self.n_clients, np.int8)

    def expected(self, state: LearningState, sent: LearningSent) -> float:
        """Return how many users were expected, or are known to be in."""
        if self.private_mean == "winsorized":
            return float(state["users"][state["turn"] == 0].sum())
        return self.schedule.sample_rate * float(state["users"].sum())

    # Accounts ---------------------------------------------------------------------------------

    def row(
        self,
        who: str,
        sent: LearningSent,
        memory: LearningMemory | None,
        members: NDArray[np.int64],
        rounds: int,
    ) -> dict[str, Any]:
        """Describe what these owners released in so many rounds."""
        row = super().row(who, sent, memory, members, rounds)
        z, q = self.multiplier, self.schedule.sample_rate
        if self.private_mean == "gaussian":
            by = "the server" if self.privacy.trust == "server" else "each owner"
            users = "all users" if q == 1 else f"users drawn by their owners, q={q:g}"
            row["what"] = f"clipped gradients, Gaussian noise z={z:.4g} added by {by}, {users}"
            size = size_of(sent) + (self.privacy.clip_quantile is not None)
            row["bits"] = 64.0 * size * len(members) * rounds
        else:
            cost = f"rho={WinsorizedRound.rho(z):.4g}" if z else "no noise"
            row["what"] = f"winsorized means over users, {cost} in each round, by each owner"
        trust = "the server is trusted"
        if self.privacy.trust == "none" and np.isfinite(row["epsilon"]):
            trust = "nobody but the owner need be trusted"
        public = "numbers of owners, of their users and rows, columns and classes are public"
        return row | {"assumptions": f"{trust}; {public}"}
