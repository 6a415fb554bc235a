"""Joint differential privacy between owners: noise only on what they share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from ebfed.clients import Clients, number_labels
from ebfed.estimators.learner import NOISE, Named
from ebfed.estimators.minibatches import CELLS, Uniforms, width_of
from ebfed.estimators.private_learner import PrivateLearner, Round, shorten
from ebfed.models import Batch, Predictor

__all__ = ["JointDPSGD"]


@dataclass(eq=False, repr=False)
class JointDPSGD(PrivateLearner):
    r"""Noisy SGD for joint differential privacy.

    Owner j predicts by shared parameters u and its own x_j. In each round every user of every owner
    is included independently with probability q; with :math:`g = (g^u, g^x)` the mean gradient over
    the rows of an included user, scaled down to a norm of at most C,

    .. math:: u \leftarrow \Pi\Big[u - \frac{\eta}{qN} \Big\{\sum_{j, i} g^u_{ij}
        + \mathcal N(0, z^2 C^2 I)\Big\}\Big], \qquad
        x_j \leftarrow \Pi\Big[x_j - \frac{\eta_x}{q N_j} \sum_i g^x_{ij}\Big]

    with N users in all and N_j of owner j. All that others ever see of an owner is in u, which is
    differentially private with respect to each of its users.

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
    protect : {"shared", "all"}
        Whether noise is on u alone, or, for full differential privacy, also on every x_j.
    radius, own_radius : float, optional
        Of the balls that u and x_j are projected to.
    average : bool
        Whether the result is the average over rounds, rather than what the last round gave.
    epsilon, delta, noise_multiplier, clip, trust
        The promise: see `DPFedAvg`; about one user more or less.

    Notes
    -----
    The algorithm of the paper draws one record of one owner in each step. Under joint differential
    privacy that amplifies by the owner's number of records alone, since the other owners know when
    they are not at work; and its constant is too small. Independent inclusion, with noise that an
    accountant finds for its true rate, keeps the promise.

    References
    ----------
    Huang, Jiang, Liu, Mahdian, Mao and Mirrokni (2023), Learning across data owners with joint
    differential privacy, Algorithm 1.

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
    radius: float | None = None
    own_radius: float | None = None
    average: bool = False

    def _settings(self) -> list[str]:
        names = ("own_learning_rate", "radius", "own_radius")
        given = [name for name in names if getattr(self, name) is not None]
        return [*super()._settings(), *given]

    def _check(self) -> None:
        super()._check()
        if self.sampling != "poisson":
            raise ValueError(f"sampling must be 'poisson'; {self.sampling!r} came.")
        if self.clip_quantile is not None:
            raise ValueError("clip_quantile must be None: gradients of users are clipped.")
        if self.protect not in ("shared", "all"):
            raise ValueError(f"protect must be 'shared' or 'all'; {self.protect!r} came.")

    def fit(self, X: Any, y: Any = None, *, groups: Any = None, users: Any = None) -> Self:
        """Learn from rows.

        Parameters
        ----------
        X, y, groups : as for every learner
            A group is an owner.
        users : array-like of shape (n_rows,), optional
            Label of the user that each row is of; users of different owners are different. None:
            every row is of a user of its own.

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
                    f"of a linear one; {name!r} came."
                )
        if own.all():
            raise ValueError("personal names all parameters, and nothing is shared: use LocalOnly.")
        return np.flatnonzero(~own), np.flatnonzero(own)

    def _columns(self, sent: dict) -> list[str]:
        if sent["columns"]:
            return sent["columns"].split("\n")
        return [f"x{j}" for j in range(sent["n_features"])]

    def _share(self, facts: dict, rng: np.random.Generator) -> Named:
        net = self._predictor(facts)
        columns = self._columns(
            {"columns": str(facts["columns"][0]), "n_features": int(facts["n_features"][0])}
        )
        return {"u": net.start(rng)[self._places(net, columns)[0]]}

    def _own(self, shared: Named, facts: dict) -> Named:
        net = self._predictor(facts)
        columns = self._columns(
            {"columns": str(facts["columns"][0]), "n_features": int(facts["n_features"][0])}
        )
        x = net.start(np.random.default_rng(net.size))[self._places(net, columns)[1]]
        return {"x": x} | ({"x_average": np.zeros_like(x)} if self.average else {})

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
        """Sum clipped gradients over the users of each owner, and move what is its own."""
        now, users = self._now(sent), Users.of(clients)
        shared, own = self._places(now.net, self._columns(sent))
        total = np.zeros((len(clients), len(shared)))
        slope, count = np.zeros((len(clients), len(own))), np.zeros(len(clients))
        loss, score = np.zeros(len(clients)), np.zeros(len(clients))
        for chosen in users.batches(users.draw(self.sample_rate, rng), now.net):
            owner = users.owner[chosen]
            theta = np.empty((len(chosen), now.net.size))
            theta[:, shared] = sent["shared"]["u"]
            theta[:, own] = memory["x"][owner]
            y = self._codes(sent)
            step = now.net.gradient(theta, users.gather(clients, chosen, y))
            gradient = step.gradient + self.weight_decay * theta
            short, norm = shorten(gradient, self.clip)
            np.add.at(total, owner, short[:, shared])
            np.add.at(slope, owner, short[:, own])
            for name, values in ((count, np.ones(len(owner))), (loss, step.loss)):
                np.add.at(name, owner, values)
            np.add.at(score, owner, step.score)
            memory["clipped"][owner[norm > self.clip]] = True
        if self.protect == "all":
            scale = self._multiplier(sent["m"]) * self.clip
            slope = self._disturb(slope, scale, memory, members, rng)
        eta = self.learning_rate if self.own_learning_rate is None else self.own_learning_rate
        expected = np.maximum(self.sample_rate * users.count, 1e-300)[:, None]
        memory["x"][:] = project(memory["x"] - now.rate * eta * slope / expected, self.own_radius)
        if self.average:
            done = sent["round"] - sent["began"] + 1
            memory["x_average"] += (memory["x"] - memory["x_average"]) / done
        if sent["record"] >= 0:
            with np.errstate(invalid="ignore", divide="ignore"):
                memory["loss"][:, sent["record"]] = loss / count
                memory["score"][:, sent["record"]] = score / count
        return {"u": total}

    def _protect(
        self, changes: Named, sent: dict, memory: dict, members: NDArray, rng: Any
    ) -> dict[str, NDArray]:
        """Add noise where nobody is trusted; gradients are clipped already."""
        memory["answered"][members] += 1
        if self.trust == "server":
            return changes
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

    def _stranger(self, shared: Named) -> NDArray[np.float64]:
        return self._assemble(shared["u"], self._x[None])[0]

    def _take(self, sent: dict) -> None:
        super()._take(sent)
        self._where = self._places(self._net, self._columns(sent))
        self._x = sent["own"]["x"]

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
        return state | {
            "users": int(facts["users"].sum()),
            "mean": np.zeros_like(state["shared"]["u"]),
        }

    def _invite(self, state: dict) -> NDArray[np.int8]:
        """Invite every owner: it is users that are drawn."""
        return np.zeros(len(state["n"]), np.int8)

    def broadcast(self, state: dict) -> dict:
        """Return what owners need."""
        return super().broadcast(state) | {"columns": state["columns"]}

    def _average(self, state: dict, messages: dict) -> tuple[Named, dict]:
        """Sum over users with noise, divided by how many were expected."""
        z = self._multiplier(len(state["n"])) if self.trust == "server" else 0.0
        total = self._noisy_sum(messages["u"], z * self.clip, self._draw(state, NOISE))
        return {"u": total / max(self.sample_rate * state["users"], 1e-300)}, state

    def _move(self, shared: Named, average: Named, state: dict) -> Named:
        step = self.decay ** state["round"] * self.learning_rate
        return {"u": project((shared["u"] - step * average["u"])[None], self.radius)[0]}

    def update(self, state: dict, messages: dict) -> dict:
        """Move the shared parameters; the last state holds their average, if that is asked for."""
        state = super().update(state, messages)
        u, count = state["shared"]["u"], state["round"] - state["began"]
        mean = state["mean"] + (u - state["mean"]) / count
        if self.average and state["done"]:
            u = mean
        return state | {"mean": mean, "shared": {"u": u}}

    # Accounts ---------------------------------------------------------------------------------

    def _round(self, m: int) -> Round:
        """Inclusion is drawn by owners, so that it amplifies whoever adds the noise."""
        return Round(float(self.sample_rate), m, "poisson", "server")

    def _promise(self, m: int) -> str:
        if not self.personal or self.protect == "all":
            return "one user more or less"
        return "one user more or less, seen by all but its owner"


@dataclass(frozen=True)
class Users:
    """Which rows of owners are whose.

    Attributes
    ----------
    owner : ndarray of shape (n_users,)
        Position of each user's owner.
    size, first : ndarrays of shape (n_users,)
        How many rows a user has, and where they begin in `rows`.
    rows : ndarray of shape (n_rows,)
    count : ndarray of shape (n_owners,)
        Users of each owner.
    """

    owner: NDArray[np.int64]
    size: NDArray[np.int64]
    first: NDArray[np.int64]
    rows: NDArray[np.int64]
    count: NDArray[np.int64]

    @classmethod
    def of(cls, clients: Clients) -> Self:
        """Find the users of owners, whose numbers are the last column of the rows."""
        owner = np.repeat(np.arange(len(clients)), clients.n)
        user = clients.X[:, -1]
        rows = np.lexsort((user, owner))
        new = np.ones(len(rows), bool)
        new[1:] = (np.diff(owner[rows]) != 0) | (np.diff(user[rows]) != 0)
        first = np.flatnonzero(new)
        size = np.diff(np.append(first, len(rows)))
        count = np.bincount(owner[rows][first], minlength=len(clients)).astype(np.int64)
        return cls(owner[rows][first], size, first, rows, count)

    def draw(self, rate: float, rng: Any) -> NDArray[np.int64]:
        """Include each user independently with that probability."""
        uniforms = Uniforms(rng)
        drawn = [uniforms.draw(owner, n) for owner, n in enumerate(self.count.tolist())]
        return np.flatnonzero(np.concatenate([*drawn, np.zeros(0)]) < rate)

    def batches(self, users: NDArray[np.int64], net: Predictor) -> Iterator[NDArray[np.int64]]:
        """Cut users into sets of about as many rows that are computed together."""
        width = width_of(self.size[users])
        for each in np.unique(width).tolist():
            chosen = users[width == each]
            step = max(1, CELLS // max(each * net.n_features, net.size))
            yield from (chosen[k : k + step] for k in range(0, len(chosen), step))

    def gather(self, clients: Clients, users: NDArray[np.int64], encode: Any) -> Batch:
        """Return the rows of users, each with an even share in the mean of its user."""
        size = self.size[users][:, None]
        place = np.arange(width_of(self.size[users])[0])
        rows = self.rows[self.first[users][:, None] + np.minimum(place, size - 1)]
        weight = (place < size) / size
        return Batch(clients.X[rows][..., :-1], encode(np.asarray(clients.y)[rows]), weight)


def project(vectors: NDArray, radius: float | None) -> NDArray[np.float64]:
    """Project vectors, shape (m, size), to a ball.

    Examples
    --------
    >>> project(np.array([[3.0, 4.0], [0.3, 0.4]]), 1.0)
    array([[0.6, 0.8],
           [0.3, 0.4]])
    """
    return vectors if radius is None else shorten(vectors, radius)[0]
