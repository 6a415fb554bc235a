"""FeO2: federated learning in which clients may opt out of privacy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ebfed.engines.protocol import LearningFacts, LearningMemory
from ebfed.learning.base import WithConsent
from ebfed.learning.checks import check_between
from ebfed.learning.ditto import Ditto, DittoRounds
from ebfed.learning.opting_out import OptOutExchange
from ebfed.learning.privacy import ClientPrivacy
from ebfed.tables.clients import Clients
from ebfed.tables.consent import classes_of, levels_of

__all__ = ["FeO2", "FeO2Rounds"]


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
