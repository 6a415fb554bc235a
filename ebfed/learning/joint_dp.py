"""Joint differential privacy between owners: noise only on what they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self, get_args

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
from ebfed.learning.base import Learner
from ebfed.learning.checks import check_between
from ebfed.learning.owner_exchange import OwnerExchange, OwnerTraining, PrivateMean, warn_of_few
from ebfed.learning.rounds import LearnerRounds
from ebfed.learning.training import Task
from ebfed.learning.users import Split, Users
from ebfed.models import Predictor
from ebfed.privacy.calibration import check_positive
from ebfed.privacy.clipping import project
from ebfed.tables.clients import LARGEST, Clients
from ebfed.tables.labels import number_labels

__all__ = ["JointDPSGD", "JointDPSGDRounds"]


@dataclass(eq=False, repr=False)
class JointDPSGD(Learner):
    r"""Noisy SGD for joint differential privacy.

    Owner j predicts by shared parameters u and its own x_j. In each round every user of every owner
    is included independently with probability q; with :math:`g = (g^u, g^x)` the mean gradient over
    the rows of an included user, each times its weight, at u and a guide :math:`\tilde x_j`, scaled
    down to a norm of at most C,

    .. math:: u \leftarrow \Pi\Big[u - \frac{\eta}{qN} \Big\{\sum_{j, i} g^u_{ij}
        + \mathcal N(0, z^2 C^2 I)\Big\}\Big], \qquad
        \tilde x_j \leftarrow \Pi\Big[\tilde x_j - \frac{\eta_x}{q N_j} \Big\{\sum_i g^x_{ij}
        + \mathcal N(0, z^2 C^2 I)\Big\}\Big]

    with N users in all and N_j of owner j. Both are one Gaussian release. The owner's own x_j moves
    like its guide but without noise, by gradients at u and x_j; it predicts for the owner, and
    nothing that the owner sends depends on it. Others see of an owner only what it adds to u, which
    is differentially private with respect to each of its users.

    With ``private_mean="winsorized"`` it is owners that take part in a round with probability q,
    with all their users. Each sends everyone a private mean :math:`m_j` of the gradients of its
    users, and

    .. math:: u \leftarrow \Pi\Big[u - \eta \frac{\sum_j N_j m^u_j}{\sum_j N_j}\Big], \qquad
        \tilde x_j \leftarrow \Pi\big[\tilde x_j - \eta_x m^x_j\big]

    over the owners that take part.

    Parameters
    ----------
    model, n_rounds, learning_rate, ...
        As for every learner; a round is a step.
    personal : sequence of str
        Parameters that are an owner's own: names of blocks of the model's parameters, or columns of
        a linear model. An empty list is full differential privacy: one predictor for all.
    sample_rate : float
        Probability q that a user is included. The owner draws it in secret, so that it amplifies
        privacy also against other owners.
    own_learning_rate : float, optional
        Learning rate eta_x of x_j; `learning_rate` if None. Where the algorithm of the paper has
        one eta for all, x_j makes steps of eta over the number of owners.
    guide_learning_rate : float, optional
        Learning rate of the guides; that of x_j if None. Their noise grows with it, and where
        owners have few users they learn nothing: with 0 they stay where they begin, and x_j may
        learn at any rate.
    protect : {"shared", "all"}
        Whether owners predict by x_j, for joint differential privacy, or, for full differential
        privacy, by their guides.
    radius, own_radius : float, optional
        Radii of the balls that u and x_j are projected to.
    average : bool
        Whether the result is the average over rounds, rather than what the last round gave.
    private_mean : {"gaussian", "winsorized"}
        Whether gradients of users are added up with Gaussian noise for the norm C, or averaged by
        each owner by `ebfed.privacy.winsorized_mean.WinsorizedMean`, with noise for how far they
        are from one another. The latter needs many users in every owner, and ``trust="none"``.
    concentration : float, optional
        Distance tau of clipped gradients of an owner's users from some point, for
        ``private_mean="winsorized"``. Accuracy depends on it, privacy does not.
    privacy : ClientPrivacy
        Differential privacy of one user more or less; it must be given. With `clip_quantile`, C
        follows that quantile of the norms of users' gradients, and owners send sums of their users'
        bits. With ``private_mean="winsorized"`` it is about one user exchanged for another;
        a round costs an owner that takes part :math:`\rho = 2 / z^2` (zero-concentrated), as
        Gaussian noise would.

    Warns
    -----
    UserWarning
        If owners have too few users for ``private_mean="winsorized"``. It is then many times worse
        than "gaussian": `WinsorizedMean` has measured a hundred times.

    Notes
    -----
    The algorithm of the paper keeps no such promise, for three reasons. It has gradients of u at an
    x_j that was learned without noise: one user of an owner moves x_j, and thereby what all other
    users of the owner add to u, however many they are and however small C is. Hence the guides. It
    draws one record of one owner in each step, which under joint differential privacy amplifies by
    the owner's number of records alone, since the other owners know when they are not at work; and
    its constant is too small. Independent inclusion, with noise that an accountant finds for its
    true rate, amplifies against every observer.

    References
    ----------
    Huang, Jiang, Liu, Mahdian, Mao and Mirrokni (2023), Learning across data owners with joint
    differential privacy, Algorithm 1; Algorithm 2 for winsorized means, where owners that are drawn
    are known to the others, so that drawing them amplifies nothing.

    Examples
    --------
    >>> from ebfed.learning import ClientPrivacy
    >>> from ebfed.models import Linear
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(np.arange(50), 40)
    >>> X = rng.normal(size=(2000, 2))
    >>> y = X @ [3.0, -1.0] + rng.normal(size=50)[groups] + 0.1 * rng.normal(size=2000)
    >>> privacy = ClientPrivacy(epsilon=1.0, clip=5.0)
    >>> est = JointDPSGD(Linear(), personal=["intercept"], sample_rate=0.1, privacy=privacy)
    >>> est = est.set_params(random_state=0).fit(X, y, groups=groups)
    >>> est.score(X, y, groups=groups)
    0.99...
    >>> est.privacy_["relation"].iloc[0]
    'one user more or less, seen by all but its owner'
    """

    personal: Sequence[str] = ()
    protect: Literal["shared", "all"] = "shared"
    own_learning_rate: float | None = None
    guide_learning_rate: float | None = None
    radius: float | None = None
    own_radius: float | None = None
    average: bool = False
    private_mean: PrivateMean = "gaussian"
    concentration: float | None = None
    # A round is one step over the users that are included, and has no batches.
    local_steps: int = field(default=1, init=False)
    batch_size: int | None = field(default=None, init=False)
    shuffle: bool = field(default=True, init=False)
    # Rows hold numbers of users, which may not be rounded.
    dtype: Literal["float64", "float32"] = field(default="float64", init=False)

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        sample_weight: Any = None,
        users: Any = None,
    ) -> Self:
        """Learn from rows.

        Parameters
        ----------
        X, y, groups : as for every learner
            A group is an owner.
        sample_weight : array-like of shape (n_rows,) or str, optional
            Weight of each row, 0 or more, or the column of the frame `X` that holds it: the
            gradient of a row is multiplied by it before the mean over the rows of its user is
            scaled down to C. So no user moves more than C whatever its weights, which are as
            private as its rows. They are no frequencies: a row of weight 2 is not the row twice,
            and a user all of whose rows have weight 0 still counts in N and N_j, which are public.
        users : array-like of shape (n_rows,) or str, optional
            Label of each row's user, or the column of the frame `X` that holds it; users of
            different owners are different. None: every row is of a user of its own.

        Returns
        -------
        self
        """
        given = {"groups": groups, "sample_weight": sample_weight, "users": users}
        return self._fit(*self.protocol().prepare(X, y, **given))

    def _extended(self, design: NDArray, X: Any, table: Any, covariates: Any, reset: bool) -> Any:
        """Return the features, in the fit with one more column: the user's number."""
        if not reset:
            return design
        users = np.arange(len(design))
        if "users" in table.beside:
            users = number_labels(table.beside["users"], "users")[1]
        return np.column_stack([design, users])

    def protocol(self) -> JointDPSGDRounds:
        return JointDPSGDRounds(self)


class JointDPSGDRounds(LearnerRounds):
    """What clients and server of `JointDPSGD` do."""

    requires_privacy: ClassVar[bool] = True
    # How many rows and users there are is public, and must not depend on weights.
    drops_weightless: ClassVar[bool] = False

    def check(self) -> None:
        given = self.estimator
        super().check()
        assert given.privacy is not None
        for name in ("own_learning_rate", "radius", "own_radius"):
            if getattr(given, name) is not None:
                check_positive(name, getattr(given, name))
        if not np.iterable(given.personal):
            raise TypeError(f"personal must be a sequence of names; got {given.personal!r}.")
        if self.schedule.sampling != "poisson":
            raise ValueError(f"sampling must be 'poisson'; got {given.sampling!r}.")
        if given.validation_fraction:
            raise ValueError("validation_fraction must be 0: owners learn from all their users.")
        if given.protect not in ("shared", "all"):
            raise ValueError(f"protect must be 'shared' or 'all'; got {given.protect!r}.")
        if given.fine_tune and given.protect == "all":
            raise ValueError(
                "fine_tune must be 0 with protect='all': its steps have no noise; "
                f"got {given.fine_tune!r}."
            )
        if isinstance(given.personal, str):
            raise TypeError(f"personal must be a list of names; got the string {given.personal!r}.")
        if given.guide_learning_rate is not None:
            check_between("guide_learning_rate", given.guide_learning_rate, 0, LARGEST)
            if given.protect == "all":
                raise ValueError("guide_learning_rate must be None where owners predict by guides.")
        if given.private_mean not in get_args(PrivateMean):
            raise ValueError(
                f"private_mean must be one of {get_args(PrivateMean)}; got {given.private_mean!r}."
            )
        if given.private_mean == "winsorized":
            self._check_winsorized(given.privacy.clip, given.privacy.trust)
        elif given.concentration is not None:
            raise ValueError(
                "concentration must be None, unless private_mean is 'winsorized'; "
                f"got {given.concentration!r}."
            )

    def _check_winsorized(self, clip: float, trust: str) -> None:
        given = self.estimator
        assert given.privacy is not None
        if given.privacy.clip_quantile is not None:
            raise ValueError(
                "clip_quantile must be None with private_mean='winsorized', whose noise is for how "
                "far gradients are from one another, not for their norm."
            )
        if given.concentration is None:
            raise ValueError(
                "concentration must be given with private_mean='winsorized': how far gradients of "
                f"users are from one another, such as {clip / 20:g}, a twentieth of clip."
            )
        check_positive("concentration", given.concentration)
        if trust != "none":
            raise ValueError(
                "trust must be 'none' with private_mean='winsorized': owners add the noise; "
                f"got {trust!r}."
            )

    def split(self, facts: LearningFacts | LearningSent) -> Split:
        """Return where shared and own parameters lie in a predictor's."""
        columns, net = str(np.ravel(facts["columns"])[0]), self.predictor(facts)
        names = columns.split("\n") if columns else [f"x{j}" for j in range(net.n_features)]
        return Split.of(self.estimator.personal, net, names)

    def shared_parameters(self, facts: LearningFacts, rng: np.random.Generator) -> Named:
        """Return u."""
        return {"u": self.predictor(facts).start(rng)[self.split(facts).shared]}

    def own_parameters(
        self, shared: Named, facts: LearningFacts, rng: np.random.Generator
    ) -> Named:
        """Return x_j, its guide where it has one, and its average over rounds."""
        net = self.predictor(facts)
        x = net.start(rng)[self.split(facts).own]
        own = {"x": x}
        if self.guided(x):
            own["guide"] = x
        if self.estimator.average:
            own["x_average"] = np.zeros_like(x)
        return own

    def guided(self, own: NDArray) -> bool:
        """Whether gradients of u are at other own parameters than predictions."""
        return self.estimator.protect == "shared" and len(own) > 0

    def local_training(self, *block: Any) -> OwnerTraining:
        """Return what adds up gradients over users."""
        return OwnerTraining(self, *block)

    def train(self, shared: Named, own: Named, task: Task) -> tuple[Named, Named]:
        """Not used: a round has no batches."""
        raise NotImplementedError

    def exchange(self, n_clients: int) -> OwnerExchange:
        """Protect each user of an owner."""
        given = self.estimator
        assert given.privacy is not None
        common = self.schedule, n_clients, given.privacy, self.message_bounds
        own = (
            tuple(given.personal),
            given.protect,
            given.private_mean,
            given.concentration,
        )
        return OwnerExchange(*common, *own)

    def move(self, shared: Named, average: Named, round_: int) -> Named:
        """Make a step of u, and project it."""
        step = self.schedule.rate(round_) * self.peak_rate
        return {"u": project((shared["u"] - step * average["u"])[None], self.estimator.radius)[0]}

    def unseen_predictor(self, sent: LearningSent) -> tuple[Predictor, NDArray[np.float64]]:
        """Return the predictor of u, and of x_j as it begins."""
        x = sent["own"]["x"]
        return self.predictor(sent), self.split(sent).assemble(sent["shared"]["u"], x[None])[0]

    def describe(self, clients: Clients, memory: LearningMemory) -> LearningFacts:
        """State numbers of rows and of users, columns and classes."""
        return super().describe(clients, memory) | {"users": Users.of(clients).count}

    def finish(self, sent: LearningSent, memory: LearningMemory, clients: Clients) -> Any:
        """Set the learned attributes of these owners' own copy; numbers of users are no feature."""
        return super().finish(sent, memory, replace(clients, X=clients.X[:, :-1]))

    def check_facts(self, facts: LearningFacts) -> None:
        super().check_facts(facts)
        users = facts.get("users")
        if not (
            isinstance(users, np.ndarray)
            and users.dtype.kind == "i"
            and users.shape == facts["n"].shape
            and np.all((users >= 0) & (users <= facts["n"]))
        ):
            raise ValueError("facts must hold the number of users of each owner.")

    def start(self, facts: LearningFacts, key: NDArray) -> LearningState:
        state = super().start(facts, key)
        mean = self.exchange(len(state["n"])).winsorized_mean
        if mean is not None:
            warn_of_few(mean, self.predictor(state).size, facts["users"])
        zero = {name: np.zeros_like(value) for name, value in state["shared"].items()}
        return state | {"users": facts["users"], "mean": zero}

    def update(self, state: LearningState, messages: LearningMessage) -> LearningState:
        """Move the shared parameters, and their average over rounds."""
        state = super().update(state, messages)
        count = state["round"] - state["began"]
        mean = {
            name: mean + (state["shared"][name] - mean) / count
            for name, mean in state["mean"].items()
        }
        return state | {"mean": mean}

    def broadcast(self, state: LearningState) -> LearningSent:
        """Return what owners need; in the end the average of u, if that is asked for."""
        sent = super().broadcast(state)
        return (
            sent | {"shared": state["mean"]} if self.estimator.average and state["done"] else sent
        )
