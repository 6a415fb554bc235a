"""Joint differential privacy between owners: noise only on what they share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from ebfed.learning.base import NOISE, Named, check_between
from ebfed.learning.privacy import PrivateLearner, Round, shorten
from ebfed.learning.users import Sums, Users, project
from ebfed.learning.winsorized_rounds import (
    WinsorizedRound,
    generators,
    release,
    warn_of_few,
)
from ebfed.models import Predictor, Slope
from ebfed.privacy.calibration import check_positive
from ebfed.privacy.winsorized_mean import WinsorizedMean
from ebfed.streams import Stream
from ebfed.tables.clients import LARGEST, Clients
from ebfed.tables.labels import number_labels

__all__ = ["JointDPSGD"]

PrivateMean = Literal["gaussian", "winsorized"]


@dataclass(eq=False, repr=False)
class JointDPSGD(PrivateLearner):
    r"""Noisy SGD for joint differential privacy.

    Owner j predicts by shared parameters u and its own x_j. In each round every user of every owner
    is included independently with probability q; with :math:`g = (g^u, g^x)` the mean gradient over
    the rows of an included user, at u and a guide :math:`\tilde x_j`, scaled down to a norm of at
    most C,

    .. math:: u \leftarrow \Pi\Big[u - \frac{\eta}{qN} \Big\{\sum_{j, i} g^u_{ij}
        + \mathcal N(0, z^2 C^2 I)\Big\}\Big], \qquad
        \tilde x_j \leftarrow \Pi\Big[\tilde x_j - \frac{\eta_x}{q N_j} \Big\{\sum_i g^x_{ij}
        + \mathcal N(0, z^2 C^2 I)\Big\}\Big]

    with N users in all and N_j of owner j. Both are one Gaussian release. The owner's own x_j moves
    like its guide but without noise, by gradients at u and x_j; it predicts for the owner, and
    nothing that leaves the owner depends on it. All that others ever see of an owner is in u, which
    is differentially private with respect to each of its users.

    With ``private_mean="winsorized"`` it is owners that take part in a round with probability q,
    with all their users. Each tells everyone a private mean :math:`m_j` of the gradients of its
    users, and

    .. math:: u \leftarrow \Pi\Big[u - \eta \frac{\sum_j N_j m^u_j}{\sum_j N_j}\Big], \qquad
        \tilde x_j \leftarrow \Pi\big[\tilde x_j - \eta_x m^x_j\big]

    over the owners that take part.

    Parameters
    ----------
    model, n_rounds, learning_rate, ...
        As for every learner; a round is a step.
    personal : sequence of str
        What is an owner's own: names of blocks of the model's parameters, or columns of a linear
        model. None is full differential privacy: one predictor for all.
    sample_rate : float
        q. Who is included is drawn by the owner and known to nobody else, so that it amplifies
        privacy also where other owners look on.
    own_learning_rate : float, optional
        eta_x; `learning_rate` if None. Where the algorithm of the paper has one eta for all, x_j
        makes steps of eta over the number of owners.
    guide_learning_rate : float, optional
        Of the guides; that of x_j if None. Their noise grows with it, and where owners have few
        users they learn nothing: 0 leaves them where they begin, and x_j free to learn at any rate.
    protect : {"shared", "all"}
        Whether owners predict by x_j, for joint differential privacy, or, for full differential
        privacy, by their guides.
    radius, own_radius : float, optional
        Of the balls that u and x_j are projected to.
    average : bool
        Whether the result is the average over rounds, rather than what the last round gave.
    private_mean : {"gaussian", "winsorized"}
        Whether gradients of users are added up with Gaussian noise for the norm C, or averaged by
        each owner by `ebfed.privacy.winsorized_mean.WinsorizedMean`, with noise for how far they
        are from one another. The latter needs many users in every owner, and ``trust="none"``.
    concentration : float, optional
        tau, for ``private_mean="winsorized"``: how far clipped gradients of an owner's users are
        from some point. Accuracy depends on it, privacy does not.
    epsilon, delta, noise_multiplier, clip, trust
        The promise: see `ebfed.learning.privacy.PrivateLearner`; about one user more or
        less. With
        ``private_mean="winsorized"`` about one user exchanged for another; a round costs an owner
        that takes part :math:`\rho = 2 / z^2` (zero-concentrated), as Gaussian noise would.

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
    true rate, amplifies whoever looks on.

    References
    ----------
    Huang, Jiang, Liu, Mahdian, Mao and Mirrokni (2023), Learning across data owners with joint
    differential privacy, Algorithm 1; Algorithm 2 for winsorized means, where owners that are drawn
    are known to the others, so that drawing them amplifies nothing.

    Examples
    --------
    >>> from ebfed.models import Linear
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(np.arange(50), 40)
    >>> X = rng.normal(size=(2000, 2))
    >>> y = X @ [3.0, -1.0] + rng.normal(size=50)[groups] + 0.1 * rng.normal(size=2000)
    >>> est = JointDPSGD(Linear(), personal=["intercept"], sample_rate=0.1, clip=5.0, epsilon=1.0)
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

    def _settings(self) -> list[str]:
        names = ("own_learning_rate", "radius", "own_radius")
        given = [name for name in names if getattr(self, name) is not None]
        return [*super()._settings(), *given]

    def _check(self) -> None:
        super()._check()
        if self.sampling != "poisson":
            raise ValueError(f"sampling must be 'poisson'; got {self.sampling!r}.")
        if self.clip_quantile is not None:
            raise ValueError("clip_quantile must be None: gradients of users are clipped.")
        if self.protect not in ("shared", "all"):
            raise ValueError(f"protect must be 'shared' or 'all'; got {self.protect!r}.")
        if isinstance(self.personal, str):
            raise TypeError(f"personal must be a list of names; got the string {self.personal!r}.")
        if self.guide_learning_rate is not None:
            check_between("guide_learning_rate", self.guide_learning_rate, 0, LARGEST)
            if self.protect == "all":
                raise ValueError("guide_learning_rate must be None where owners predict by guides.")
        self._check_mean()

    def _check_mean(self) -> None:
        if self.private_mean not in get_args(PrivateMean):
            raise ValueError(
                f"private_mean must be one of {get_args(PrivateMean)}; got {self.private_mean!r}."
            )
        if self.private_mean == "gaussian":
            if self.concentration is not None:
                raise ValueError(
                    "concentration must be None, unless private_mean is 'winsorized'; "
                    f"got {self.concentration!r}."
                )
            return
        if self.concentration is None:
            raise ValueError(
                "concentration must be given with private_mean='winsorized': how far gradients of "
                f"users are from one another, such as {self.clip / 20:g}, a twentieth of clip."
            )
        check_positive("concentration", self.concentration)
        if self.trust != "none":
            raise ValueError(
                "trust must be 'none' with private_mean='winsorized': owners add the noise; "
                f"got {self.trust!r}."
            )

    def fit(self, X: Any, y: Any = None, *, groups: Any = None, users: Any = None) -> Self:
        """Learn from rows.

        Parameters
        ----------
        X, y, groups : as for every learner
            A group is an owner.
        users : array-like of shape (n_rows,) or str, optional
            Label of the user that each row is of, or the column of the frame `X` that holds it;
            users of different owners are different. None: every row is of a user of its own.

        Returns
        -------
        self
        """
        clients, memory = self.prepare(X, y, groups=groups, users=users)
        return self._fit(clients, memory)

    # What is whose ----------------------------------------------------------------------------

    def _places(self, net: Predictor, columns: Sequence[str]) -> tuple[NDArray, NDArray]:
        """Return where shared and own parameters lie in a predictor's."""
        own = np.zeros(net.size, bool)
        for name in self.personal:
            if name in net.blocks:
                own[net.blocks[name]] = True
            elif name in columns and "coefficients" in net.blocks:
                start = net.blocks["coefficients"].start + columns.index(name) * net.n_outputs
                own[start : start + net.n_outputs] = True
            else:
                raise ValueError(
                    f"personal must name blocks of the model ({', '.join(net.blocks)}) or columns "
                    f"of a linear one; got {name!r}."
                )
        if own.all():
            raise ValueError("personal names all parameters, and nothing is shared: use LocalOnly.")
        return np.flatnonzero(~own), np.flatnonzero(own)

    def _columns(self, sent: dict) -> list[str]:
        if sent["columns"]:
            return str(sent["columns"]).split("\n")
        return [f"x{j}" for j in range(sent["n_features"])]

    def _share(self, facts: dict, rng: np.random.Generator) -> Named:
        net = self._predictor(facts)
        columns = self._columns({name: facts[name][0] for name in ("columns", "n_features")})
        return {"u": net.start(rng)[self._places(net, columns)[0]]}

    def _own(self, shared: Named, facts: dict) -> Named:
        net = self._predictor(facts)
        columns = self._columns({name: facts[name][0] for name in ("columns", "n_features")})
        x = net.start(np.random.default_rng(net.size))[self._places(net, columns)[1]]
        own = {"x": x}
        if self._guided(x):
            own["guide"] = x
        if self.average:
            own["x_average"] = np.zeros_like(x)
        return own

    def _guided(self, own: NDArray) -> bool:
        """Whether gradients of shared parameters are at other own parameters than predictions."""
        return self.protect == "shared" and len(own) > 0

    # Clients ----------------------------------------------------------------------------------

    def prepare(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        consent: Any = None,
        users: Any = None,
    ) -> tuple[Clients, dict[str, NDArray]]:
        """Read rows, as in `fit`."""
        users, X = self._aside(X, users, "users", reset=True)
        self._users = None if users is None else number_labels(users, "users")[1]
        try:
            clients, memory = super().prepare(X, y, groups=groups, consent=consent)
        finally:
            del self._users
        return clients, memory

    def _extended(self, design: NDArray, X: Any, table: Any, population: Any, reset: bool) -> Any:
        """Return the features, in the fit with one more column: the user's number."""
        if not reset:
            return design
        users = np.arange(len(design)) if self._users is None else self._users
        if len(users) != len(design):
            raise ValueError(f"users has {len(users)} entries for the {len(design)} rows of X.")
        return np.column_stack([design, users])

    def describe(self, clients: Clients, memory: dict) -> dict[str, NDArray]:
        """State numbers of rows and of users, columns and classes."""
        return super().describe(clients, memory) | {"users": Users.of(clients).count}

    def _work(
        self, sent: dict, memory: dict, clients: Clients, members: NDArray[np.int64], rng: Any
    ) -> Named:
        """Sum gradients over the users of each owner, and move what is its own."""
        users = Users.of(clients)
        shared, own = self._places(self._predictor(sent), self._columns(sent))
        guided = self._guided(own)
        at = memory["guide" if guided else "x"]
        if self.private_mean == "gaussian":
            chosen, share = users.draw(self.sample_rate, rng), self.sample_rate
            sums = self._sum(sent, memory, clients, users, chosen, at)
            slope = self._noisy(sums.total[:, own], sent, memory, members, rng)
        else:
            chosen, share = np.flatnonzero(np.isin(users.owner, members)), 1.0
            sums = self._sum_means(sent, memory, clients, users, members, at, rng)
            slope = sums.total[:, own]
        message = sums.total[:, shared]
        expected = np.maximum(share * users.count, 1e-300)[:, None]
        eta = self.learning_rate if self.own_learning_rate is None else self.own_learning_rate
        rate = self._now(sent).rate * eta
        if guided:
            # before the guide moves, so that without noise both are the same
            sums = self._sum(sent, memory, clients, users, chosen, memory["x"])
            own_step = rate * sums.total[:, own] / expected
            memory["x"][:] = project(memory["x"] - own_step, self.own_radius)
            if self.guide_learning_rate is not None:
                rate = self._now(sent).rate * self.guide_learning_rate
        at[:] = project(at - rate * slope / expected, self.own_radius)
        if self.average:
            done = sent["round"] - sent["began"] + 1
            memory["x_average"] += (memory["x"] - memory["x_average"]) / done
        if sent["record"] >= 0:
            with np.errstate(invalid="ignore", divide="ignore"):
                memory["loss"][:, sent["record"]] = sums.loss / sums.count
                memory["score"][:, sent["record"]] = sums.score / sums.count
        return {"u": message[members]}

    def _gradients(
        self,
        sent: dict,
        memory: dict,
        clients: Clients,
        users: Users,
        chosen: NDArray[np.int64],
        x: NDArray,
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64], Slope]]:
        """Compute clipped gradients of users at own parameters x, shape (m, k), part by part."""
        net = self._predictor(sent)
        shared, own = self._places(net, self._columns(sent))
        y = self._codes(sent)
        for part in users.batches(chosen, net):
            owner = users.owner[part]
            theta = np.empty((len(part), net.size))
            theta[:, shared], theta[:, own] = sent["shared"]["u"], x[owner]
            step = net.gradient(theta, users.gather(clients, part, y))
            short, norm = shorten(step.gradient + self.weight_decay * theta, self.clip)
            memory["clipped"][owner[norm > self.clip]] = True
            yield part, short, step

    def _sum(
        self,
        sent: dict,
        memory: dict,
        clients: Clients,
        users: Users,
        chosen: NDArray[np.int64],
        x: NDArray,
    ) -> Sums:
        """Sum clipped gradients over users of each owner."""
        sums = Sums(len(clients), self._predictor(sent).size)
        for part, short, step in self._gradients(sent, memory, clients, users, chosen, x):
            sums.add(users.owner[part], short, step)
        return sums

    def _sum_means(
        self,
        sent: dict,
        memory: dict,
        clients: Clients,
        users: Users,
        members: NDArray[np.int64],
        x: NDArray,
        rng: Any,
    ) -> Sums:
        """Take private means over the users of each owner, times their number."""
        sums = Sums(len(clients), self._predictor(sent).size)
        mean, secure = self._mean(sent["m"]), not isinstance(rng, Stream)
        ends = np.cumsum(users.count)
        for owner, own_rng in zip(members.tolist(), generators(rng, members), strict=True):
            first, count = ends[owner] - users.count[owner], users.count[owner]
            vectors = np.empty((count, sums.total.shape[1]))
            chosen = np.arange(first, ends[owner])
            for part, short, step in self._gradients(sent, memory, clients, users, chosen, x):
                vectors[part - first] = short
                sums.add(users.owner[part], short, step)
            sums.total[owner] = count * release(mean, vectors, own_rng, secure)
        return sums

    def _mean(self, m: int) -> WinsorizedMean | None:
        """Return what averages the users of an owner; None if there is no noise."""
        z = self._multiplier(m)
        assert self.concentration is not None
        if z == 0:
            return None
        return WinsorizedMean(self.clip, self.concentration, WinsorizedRound.rho(z))

    def _noisy(
        self, values: NDArray, sent: dict, memory: dict, members: NDArray, rng: Any
    ) -> NDArray[np.float64]:
        """Add the noise of what stays with the owners."""
        if not values.size:
            return values
        scale = self._multiplier(sent["m"]) * self.clip
        return self._disturb(values, scale, memory, members, rng)

    def _protect(
        self, changes: Named, sent: dict, memory: dict, members: NDArray, rng: Any
    ) -> dict[str, NDArray]:
        """Add noise where the server is not trusted; gradients are clipped already."""
        memory["answered"][members] += 1
        if self.trust == "server" or self.private_mean == "winsorized":
            return changes  # noise comes later, or is there already
        scale = self._multiplier(sent["m"]) * self.clip
        return {"u": self._disturb(changes["u"], scale, memory, members, rng)}

    def _predictors(self, sent: dict, memory: dict, clients: Clients) -> NDArray[np.float64]:
        x = memory["x_average" if self.average else "x"]
        return self._assemble(sent["shared"]["u"], x)

    def _assemble(self, u: NDArray, x: NDArray) -> NDArray[np.float64]:
        """Put shared and own parameters together, shape (m, p)."""
        shared, own = self._where
        theta = np.empty((len(x), self._net.size))
        theta[:, shared], theta[:, own] = u, x
        return theta

    def _unseen(self, shared: Named) -> NDArray[np.float64]:
        return self._assemble(shared["u"], self._x[None])[0]

    def _take(self, sent: dict) -> None:
        super()._take(sent)
        self._where = self._places(self._net, self._columns(sent))
        self._x = sent["own"]["x"]

    def finish(self, sent: dict, memory: dict, clients: Clients) -> Self:
        """Set the learned attributes of these owners' own copy; numbers of users are no feature."""
        return super().finish(sent, memory, replace(clients, X=clients.X[:, :-1]))

    # Server -----------------------------------------------------------------------------------

    def check_facts(self, facts: dict) -> None:
        """Raise a ValueError if that is not what clients may state."""
        super().check_facts(facts)
        users = facts.get("users")
        if not (
            isinstance(users, np.ndarray)
            and users.dtype.kind == "i"
            and users.shape == facts["n"].shape
            and np.all((users >= 0) & (users <= facts["n"]))
        ):
            raise ValueError("facts must hold the number of users of each owner.")

    def start(self, facts: dict, key: NDArray) -> dict:
        """Return the state before the first round."""
        state = super().start(facts, key)
        if self.private_mean == "winsorized":
            mean = self._mean(len(state["n"]))
            if mean is not None:
                warn_of_few(mean, self._predictor(state).size, facts["users"])
        u = state["shared"]["u"]
        return state | {"users": facts["users"], "mean": np.zeros_like(u), "last": u}

    def _longest(self, sent: dict, facts: dict, turn: NDArray) -> dict[str, Any]:
        return {"u": self.clip * facts["users"][turn == 0]}

    def _invite(self, state: dict) -> NDArray[np.int8]:
        """Invite every owner, unless it is owners that are drawn, rather than users."""
        if self.private_mean == "winsorized":
            return super()._invite(state)
        return np.zeros(len(state["n"]), np.int8)

    def broadcast(self, state: dict) -> dict:
        """Return what owners need."""
        return super().broadcast(state) | {"columns": state["columns"]}

    def _average(self, state: dict, messages: dict) -> tuple[Named, dict]:
        """Sum over users with noise, divided by how many were expected, or are known to be in."""
        z = self._multiplier(len(state["n"])) if self.trust == "server" else 0.0
        total = self._noisy_sum(messages["u"], z * self.clip, self._draw(state, NOISE))
        if self.private_mean == "winsorized":
            expected = float(state["users"][state["turn"] == 0].sum())
        else:
            expected = self.sample_rate * float(state["users"].sum())
        return {"u": total / max(expected, 1e-300)}, state

    def _move(self, shared: Named, average: Named, state: dict) -> Named:
        step = self.decay ** state["round"] * self.learning_rate
        return {"u": project((shared["u"] - step * average["u"])[None], self.radius)[0]}

    def update(self, state: dict, messages: dict) -> dict:
        """Move the shared parameters; the last state holds their average, if that is asked for."""
        state = super().update(state, messages)
        u, count = state["shared"]["u"], state["round"] - state["began"]
        mean = state["mean"] + (u - state["mean"]) / count
        shared = mean if self.average and state["done"] else u
        return state | {"mean": mean, "last": u, "shared": {"u": shared}}

    def _go_on(self, clients: Clients, memory: dict, state: dict) -> tuple[dict, dict]:
        state, memory = super()._go_on(clients, memory, state)
        return state | {"shared": {"u": state["last"]}}, memory  # not from the average

    def _terms(self) -> str:
        """Name all arguments on which the account rests."""
        more = ("personal", "protect", "private_mean", "concentration")
        return super()._terms() + repr([getattr(self, name) for name in more])

    # Accounts ---------------------------------------------------------------------------------

    def _round(self, m: int) -> Round:
        if self.private_mean == "winsorized":
            return WinsorizedRound(float(self.sample_rate), m, "poisson", "none")
        # inclusion is drawn by owners, so that it amplifies whoever adds the noise
        return Round(float(self.sample_rate), m, "poisson", "server")

    def _promise(self, m: int) -> str:
        exchanged = self.private_mean == "winsorized"
        change = "one user exchanged for another" if exchanged else "one user more or less"
        if not self.personal or self.protect == "all":
            return change
        return f"{change}, seen by all but its owner"

    def _row(
        self, who: str, sent: dict, memory: dict, members: NDArray, rounds: int
    ) -> dict[str, Any]:
        """Describe what these owners released in so many rounds."""
        row = super()._row(who, sent, memory, members, rounds)
        z, q = self._multiplier(sent["m"]), self.sample_rate
        size = sum(len(value) for value in sent["shared"].values())
        if self.private_mean == "gaussian":
            by = "the server" if self.trust == "server" else "each owner"
            users = "all users" if q == 1 else f"users drawn by their owners, q={q:g}"
            row["what"] = f"clipped gradients, Gaussian noise z={z:.4g} added by {by}, {users}"
            row["bits"] = 64.0 * size * len(members) * rounds
        else:
            cost = f"rho={WinsorizedRound.rho(z):.4g}" if z else "no noise"
            row["what"] = f"winsorized means over users, {cost} in each round, by each owner"
        trust = "the server is trusted"
        if self.trust == "none" and np.isfinite(row["epsilon"]):
            trust = "nobody but the owner need be trusted"
        public = "numbers of owners, of their users and rows, columns and classes are public"
        return row | {"assumptions": f"{trust}; {public}"}
