"""Empirical Bayes over how far clients' predictors are from the shared one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax
from sklearn.utils.validation import check_is_fitted

from ebfed.engines.protocol import (
    LearningFacts,
    LearningMessage,
    LearningSent,
    LearningState,
    Named,
)
from ebfed.learning.checks import check_between
from ebfed.learning.fed_avg import FedAvg, FedAvgRounds
from ebfed.learning.training import LocalTraining, Task, Work
from ebfed.models import Predictor
from ebfed.privacy.calibration import as_float, check_count

__all__ = [
    "GRID",
    "N_POPULATIONS",
    "HierarchicalEB",
    "HierarchicalEBRounds",
    "StrengthTraining",
    "evidence",
    "moved",
    "own_temperatures",
    "responsibilities",
    "unit_of",
]

# The least weight of a strength: one that noise made 0 would never be met again.
FLOOR = 1e-3
# Temperatures that are compared.
GRID = np.exp(np.linspace(-1.5, 1.5, 21))
# Spreads of log-temperatures between clients; their means are those of the grid.
SPREADS = (0.05, 0.2, 0.5)
# Means are normal around 0, with this spread: a few rows say too little to be followed.
BELIEF = 0.3
N_POPULATIONS = len(GRID) * len(SPREADS)
_LOGS = np.log(GRID)
_LAWS = np.concatenate([-((_LOGS - _LOGS[:, None]) ** 2) / (2 * tau**2) for tau in SPREADS])
_LAWS -= logsumexp(_LAWS, axis=1, keepdims=True)
_PRIOR = np.tile(-(_LOGS**2) / (2 * BELIEF**2), len(SPREADS))


@dataclass(eq=False, repr=False)
class HierarchicalEB(FedAvg):
    r"""Own predictors near the shared one, how near being learned from all clients.

    A client's parameters are normal around shared ones w, with a variance that is one of a few, and
    is not the same for all clients: a scale mixture of normals, as in `ebfed.priors`.

    .. math:: \theta_i \sim \sum_g \pi_g\, \mathcal N(w, s_g T), \qquad
        \theta_i(g) = \arg\min_\theta n_i f_i(\theta) + \sum_l \frac{|\theta - w|_l^2}{2 s_g t_l}

    T has the mean square t_l of w in each block l of parameters, such as a layer. The strengths s_g
    of personalisation go from 0, one predictor for all, to infinity, a predictor of own rows.

    First w is learned by federated averaging. In the last rounds it does not change, and the
    weights of strengths are learned. A client finds the log-likelihood :math:`L_i(g)` of each part
    of its rows under the predictors trained on its other rows, and sends by how much its own
    weights differ from those of all:

    .. math:: r_i(g) = \frac{\pi_g e^{L_i(g)}}{\sum_h \pi_h e^{L_i(h)}}, \qquad
        \pi \leftarrow \pi + \frac{1}{\sqrt t} \cdot \frac1{|K|} \sum_{i \in K} (r_i - \pi)

    In the end :math:`\theta_i = \sum_g r_i(g)\, \theta_i(g)`, also for clients that were never
    invited. So clients with few or wrong responses keep near w, others leave it, and nothing has to
    be tuned.

    With `validation_fraction`, clients hold rows back, on which w is not trained, and learn from
    them how sure predictions are. Outputs of client i are divided by a temperature T_i, with
    :math:`\log T_i \sim N(\mu, \tau^2)`. A client sends the logarithm of its marginal likelihood
    for a grid of (mu, tau), and the server averages these. The logarithm of a temperature is its
    posterior mean, also over (mu, tau), given the mean times the number of clients that the last
    rounds are expected to invite; before rows are seen, mu is N(0, .3^2). In the end steps
    are made on all rows.

    Parameters
    ----------
    model, n_rounds, learning_rate, local_steps, weights, sample_rate and others
        As for `FedAvg`.
    fine_tune : int
        Number of steps towards each :math:`\theta_i(g)`. They begin at the last smaller strength,
        the first at w, so that larger strengths also have made more steps.
    fine_tune_rate : float, optional
        Learning rate of these steps, which does not decay; `learning_rate` if None.
    strengths : sequence of float
        Strengths s_g, increasing, from 0 or more up to ``inf``.
    folds : int
        Number of parts of a client's rows.
    strength_rounds : int
        Number of rounds, the last ones, in which weights of strengths are learned; at most half of
        all rounds.
    averaged : float
        Share of the other rounds, the last ones, of which w is the average; 0 for w of the last.

    Attributes
    ----------
    shared_ : dict of ndarrays
        ``"w"``, and ``"strengths"``: the weights of the strengths. With rows that are held back,
        and without `privacy`, ``"temperatures"``: the mean evidence for each pair of mu and tau.

    Notes
    -----
    *Why not marginal likelihoods.* For networks, a normal approximation at each :math:`\theta_i`
    with diagonal curvature gives spreads that do not move from where they begin, or that become 0.
    Predictive likelihoods of rows that were left out need no such approximation. They are not
    quite those of new rows, since w has seen all rows: small strengths are favoured a little.

    *Numbers.* The likelihood of a response that is a number has a variance of each client's own,
    integrated out: :math:`L_i = -\frac{n_i}2 \log` of the sum of squared errors.

    *Costs.* A client trains ``folds * fine_tune`` steps for each strength above 0 once, when it is
    first invited to one of the last rounds, or in the end; and ``fine_tune`` of them in the end. It
    keeps the log-likelihoods, and its parameters in the end.

    *Privacy.* In the last rounds messages are made as long as `privacy` allows, so that they have
    the noise multiplier of all rounds. Noise in what is not learned in a round is not used.
    Nothing is sent of temperatures: those of each client are learned from its own rows alone, with
    equal weights of the pairs (mu, tau) but for the law of mu. Evidence has no bound, and was worse
    than none at any epsilon that protects: cut, it is biased, and its noise is that of a
    log-likelihood.

    *Calibration.* Without rows that are held back, predictions are too sure where w is trained
    until it knows its rows by heart. Rows of `folds` do not show that: w knows them, and would make
    predictions surer still. Temperatures are right for responses that have as many errors as those
    that were held back; where only the training has errors, predictions are not sure enough.
    With few such rows, of all clients together, temperatures stay near 1.

    References
    ----------
    Stephens (2017), False discovery rates: a new deal (scale mixtures); Cappé and Moulines (2009),
    On-line expectation-maximization algorithm for latent data models (steps); Li, Hu, Beirami and
    Smith (2021), Ditto, whose strength is one, and chosen by the user.

    Examples
    --------
    Where clients are alike, most of the weight is that of strength 0; where they have nothing in
    common, that of infinity:

    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(np.arange(20), 40)
    >>> X = rng.normal(size=(800, 2))
    >>> est = HierarchicalEB(learning_rate=1.0, random_state=0)
    >>> y = X[:, 0] + 0.3 * rng.normal(size=800) > 0
    >>> est.fit(X, y, groups=groups).shared_["strengths"].round(1)
    array([0.8, 0.1, 0. , 0. , 0. , 0. ])
    >>> y = X[:, 0] + 5 * rng.normal(size=20)[groups] * X[:, 1] > 0
    >>> est.fit(X, y, groups=groups).shared_["strengths"].round(1)
    array([0., 0., 0., 0., 0., 1.])
    >>> est.score(X, y, groups=groups)
    0.9...
    """

    fine_tune: int = 50
    strengths: Sequence[float] = (0.0, 0.1, 1.0, 10.0, 100.0, math.inf)
    folds: int = 5
    strength_rounds: int = 10
    averaged: float = 0.3

    @property
    def temperatures_(self) -> NDArray[np.float64] | None:
        """Temperatures T_i of each group, shape (n_groups,); None without rows that are held back.

        It is None of a published copy too, which has no rows.
        """
        check_is_fitted(self, "clients_")
        own = {} if self._memory is None else self._memory["own"]
        return own["temperature"][:, 0] if "temperature" in own else None

    @property
    def responsibilities_(self) -> NDArray[np.float64]:
        """Weights r_i of strengths of each group, shape (n_groups, n_strengths)."""
        check_is_fitted(self, "clients_")
        weights = self.shared_["strengths"]
        if self._memory is None:  # of a server, which knows those of all groups
            return np.broadcast_to(weights, (len(self.parameters_), len(weights)))
        return responsibilities(self._memory["own"]["scores"], weights)

    def protocol(self) -> HierarchicalEBRounds:
        return HierarchicalEBRounds(self)


class HierarchicalEBRounds(FedAvgRounds):
    """What clients and server of `HierarchicalEB` do."""

    def check(self) -> None:
        given = self.estimator
        super().check()
        for name in ("fine_tune", "folds", "strength_rounds"):
            check_count(name, getattr(given, name))
        if given.folds < 2:
            raise ValueError(f"folds must be at least 2; got {given.folds!r}.")
        check_between("averaged", given.averaged, 0, 1)
        if given.early_stopping is not None:
            raise ValueError(
                "early_stopping is not for HierarchicalEB, whose last rounds weigh strengths; give "
                "fewer rounds."
            )
        if not np.iterable(given.strengths) or isinstance(given.strengths, str):
            raise TypeError(f"strengths must be a sequence of numbers; got {given.strengths!r}.")
        grid = [as_float(strength) for strength in given.strengths]
        if not grid or not grid[0] >= 0 or not np.all(np.diff(grid) > 0):
            raise ValueError(
                "strengths must be increasing numbers from 0 or more, such as "
                f"(0, 0.1, 1, 10, inf); got {given.strengths!r}."
            )

    @property
    def shared_rounds(self) -> int:
        """Number of rounds in which w is learned; the weights of strengths are in the others."""
        given = self.estimator
        return given.n_rounds - min(given.strength_rounds, given.n_rounds // 2)

    def shared_parameters(self, facts: LearningFacts, rng: np.random.Generator) -> Named:
        """Return w, and equal weights of strengths."""
        given = self.estimator
        even = np.full(len(given.strengths), 1 / len(given.strengths))
        shared = super().shared_parameters(facts, rng) | {"strengths": even}
        if self._heats and given.privacy is None:
            shared["temperatures"] = np.zeros(N_POPULATIONS)
        return shared

    def own_parameters(
        self, shared: Named, facts: LearningFacts, rng: np.random.Generator
    ) -> Named:
        """Return log-likelihoods, and for the w of which round they are: of none."""
        own = {"scores": np.zeros(len(self.estimator.strengths)), "scored": np.full(1, -1.0)}
        if self._heats:
            own["temperature"] = np.ones(1)
        if "temperatures" in shared:
            own["held"] = np.zeros(len(GRID))
        return own

    def expected_invited(self, n_clients: int) -> float:
        """Return how many of all clients one of the last rounds is expected to invite."""
        rounds, schedule = self.estimator.n_rounds - self.shared_rounds, self.schedule
        share = min(schedule.clients(n_clients) / n_clients, 1.0)
        return n_clients * (1 - (1 - share) ** rounds)

    @property
    def _heats(self) -> bool:
        """Whether outputs are divided by temperatures."""
        return self.estimator.validation_fraction > 0 and not self.numeric

    def local_training(self, *block: Any) -> StrengthTraining:
        """Return what trains w, and then weighs strengths."""
        return StrengthTraining(self, *block)

    def move(self, shared: Named, average: Named, round_: int) -> Named:
        """Move w, or the weights of strengths and what is known of temperatures."""
        moving = {"w"} if round_ < self.shared_rounds else shared.keys() - {"w"}
        return shared | {name: shared[name] + average[name] for name in moving}

    def update(self, state: LearningState, messages: LearningMessage) -> LearningState:
        """Move the shared parameters; w becomes its average before strengths are weighed."""
        before, unit = state["shared"], unit_of(self.broadcast(state))
        round_, last = state["round"], self.shared_rounds - 1
        state = super().update(state, messages)
        shared = state["shared"]
        first = math.ceil((1 - self.estimator.averaged) * (last + 1))
        if first <= round_ <= last:
            mean = shared["w"]
            if round_ > max(first, state["began"]):
                mean = state["mean"]["w"]
                mean = mean + (shared["w"] - mean) / (round_ - max(first, state["began"]) + 1)
            state = state | {"mean": {"w": mean}}
            shared = shared | ({"w": mean} if round_ == last else {})
        elif round_ > last:
            change = {name: (shared[name] - before[name]) / unit for name in shared}
            count = round_ - last
            after = moved(before["strengths"], change["strengths"], count)
            shared = shared | {"strengths": after}
            if "temperatures" in shared:  # the mean of rounds
                mean = before["temperatures"]
                shared["temperatures"] = mean + (change["temperatures"] - mean) / count
        return state | {"shared": shared}


def responsibilities(scores: NDArray, weights: NDArray) -> NDArray[np.float64]:
    """Return how likely each strength is for each client.

    Parameters
    ----------
    scores : ndarray of shape (c, k)
        Log-likelihoods; minus infinity for a strength whose training failed.
    weights : ndarray of shape (k,)
        Of strengths, for all clients.

    Returns
    -------
    ndarray of shape (c, k)

    Examples
    --------
    >>> responsibilities(np.log([[1.0, 3.0], [1.0, 1.0]]), np.array([0.5, 0.5]))
    array([[0.25, 0.75],
           [0.5 , 0.5 ]])
    """
    best = scores.max(axis=1, keepdims=True)
    gap = scores - np.where(np.isfinite(best), best, 0.0)
    r = weights * np.exp(np.where(np.isfinite(best), gap, 0.0))
    return r / r.sum(axis=1, keepdims=True)


def moved(weights: NDArray, change: NDArray, count: int) -> NDArray[np.float64]:
    """Return the weights of strengths after a round.

    Parameters
    ----------
    weights, change : ndarrays of shape (k,)
        Weights before the round, and the mean difference of clients' own from them.
    count : int
        Number of the round: 1 for the first in which weights move.

    Examples
    --------
    >>> moved(np.array([0.5, 0.5]), np.array([0.2, -0.2]), 1)
    array([0.7, 0.3])
    """
    after = np.maximum(weights + change / np.sqrt(count), FLOOR)
    return after / after.sum()


def unit_of(sent: LearningSent) -> float:
    """Return what changes of weights are multiplied by, so that none is clipped.

    They have norms of at most the root of 2.
    """
    return sent["clip"] / np.sqrt(2) if "clip" in sent else 1.0


class StrengthTraining(LocalTraining):
    """Rounds that train the shared parameters, then rounds that weigh strengths."""

    def work(self, members: NDArray[np.int64], rng: Any) -> Work:
        """Let members of the block work for a round; see `LocalTraining.work`."""
        sent, own = self.sent, self.memory["own"]
        if sent["round"] < self.rounds.shared_rounds:
            yield from super().work(members, rng)
            return
        if sent["record"] >= 0:  # how well w predicts the first batch
            for places, task in self.tasks(members, rng):
                task.gradient(self.shared["w"], next(iter(task)))
                self.record(members[places], task)
        self._score(members, rng)
        self._evaluate(members)
        weights, empty = sent["shared"]["strengths"], self.clients.n[members] == 0
        change = responsibilities(own["scores"][members], weights) - weights
        change[empty] = 0.0
        none = np.zeros((len(members), len(sent["shared"]["w"])))
        changes = {"w": none, "strengths": unit_of(sent) * change}
        if "temperatures" in sent["shared"]:
            found = evidence(own["held"][members].astype(float))
            found[empty] = 0.0
            changes["temperatures"] = found
        yield np.arange(len(members)), changes

    def predictors(self) -> NDArray[np.float64]:
        """Return the weighted average over strengths of each client's parameters, shape (m, p)."""
        everyone, sent, own = self.everyone, self.sent, self.memory["own"]
        self._score(everyone, None)
        # those that no round invited have their own predictors, too
        self.memory["trained"][self.clients.n > 0] = True
        heats = "temperature" in own
        if heats:
            population = sent["shared"].get("temperatures", np.zeros(N_POPULATIONS))
            invited = self.rounds.expected_invited(sent["n_clients"])
            own["temperature"][:, 0] = own_temperatures(self._held(everyone), population, invited)
        return self._average(everyone, own["scores"], heats)

    def _predictors_now(self, members: NDArray[np.int64]) -> NDArray[np.float64]:
        scores = self.memory["own"]["scores"][members]
        if self.sent["round"] < self.rounds.shared_rounds:  # of another w, or none
            for places, task in self.tasks(members, None):
                scores[places] = self._likelihoods(self.shared["w"], task)
        return self._average(members, scores)

    def _average(
        self, members: NDArray[np.int64], scores: NDArray, whole: bool = False
    ) -> NDArray[np.float64]:
        """Return the weighted average over strengths of members' parameters, shape (c, p)."""
        r = responsibilities(scores, self.sent["shared"]["strengths"])
        w = self.shared["w"]
        theta = np.zeros((len(members), w.shape[1]), w.dtype)
        for who, task in self.tasks(members, None, whole):
            for near, weight in zip(self._paths(w, task), r[who].T, strict=True):
                part = weight[:, None].astype(w.dtype)
                theta[who] += np.where(part > 0, part * near, 0.0)
        return theta

    def _held(self, members: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return log-likelihoods of rows that members hold back, for each temperature."""
        with np.errstate(over="ignore", invalid="ignore"):
            theta = self._average(members, self.memory["own"]["scores"][members])
            return held_likelihoods(self, members, theta)

    def _score(self, members: NDArray[np.int64], rng: Any) -> None:
        """Find the log-likelihoods of members that have none for the w that is now shared."""
        own, round_ = self.memory["own"], self.rounds.shared_rounds
        missing = members[own["scored"][members, 0] != round_]
        for places, task in self.tasks(missing, rng):
            own["scores"][missing[places]] = self._likelihoods(self.shared["w"], task)
        if "temperatures" in self.sent["shared"] and self.sent["round"] < self.given.n_rounds:
            own["held"][missing] = self._held(missing)
        own["scored"][missing] = round_

    def _likelihoods(self, w: NDArray, task: Task) -> NDArray[np.float64]:
        """Return the log-likelihoods of rows that were left out, shape (c, n_strengths)."""
        losses = np.zeros((len(task), len(self.given.strengths)))
        with np.errstate(over="ignore", invalid="ignore"):
            for part, held in task.folds(self.given.folds):
                for g, theta in enumerate(self._paths(w, part)):
                    outputs = task.net.outputs(theta, held.X)
                    losses[:, g] += task.net.loss.of(outputs, held.y, held.weight)[0]
        if not task.net.model.classifies:
            size = task.totals[:, None] * task.net.model.numbers(task.net.n_features)
            losses = size / 2 * np.log(np.maximum(losses, 1e-300))
        return np.where(np.isfinite(losses), -losses, -np.inf)

    def _paths(self, w: NDArray, task: Task) -> Iterator[NDArray[np.float64]]:
        """Yield the parameters of clients for each strength, shape (c, p), or w for strength 0."""
        options = self.given
        strengths = np.asarray(options.strengths, float)
        eta = self.rounds.rate_of("fine_tune_rate")
        steps = options.fine_tune * int((strengths > 0).sum())
        path = task.path(w, steps)
        batches = path.batches(steps)
        total = np.where(task.n > 0, task.totals, 1)[:, None].astype(w.dtype)
        spread = _mean_squares(task.net, w[0], path.blocks) * total
        place = path.start
        for strength in strengths.tolist():
            if strength > 0:
                near = 1 / (1 + eta / (strength * spread))
                for _ in range(options.fine_tune):
                    ahead = place - eta * path.gradient(place, next(batches))
                    place = path.start + near * (ahead - path.start)
            yield path.parameters(place)


def _mean_squares(net: Predictor, w: NDArray, places: dict[str, slice]) -> NDArray[np.float64]:
    """Return the mean square of w in the block of each place, or overall if that is larger."""
    overall = np.mean(w**2) or 1.0
    squares = np.empty(max(place.stop for place in places.values()), w.dtype)
    for name, place in places.items():
        squares[place] = max(np.mean(w[net.blocks[name]] ** 2), overall)
    return squares


def evidence(scores: NDArray) -> NDArray[np.float64]:
    r"""Return how well each population explains clients, less its mean over populations.

    .. math:: \ell_i(\mu, \tau) = \log \sum_T N(\log T; \mu, \tau^2)\, e^{L_i(T)}

    Parameters
    ----------
    scores : ndarray of shape (c, len(GRID))
        Log-likelihoods L_i(T) of rows that were held back.

    Returns
    -------
    ndarray of shape (c, N_POPULATIONS)

    Examples
    --------
    >>> evidence(np.zeros((1, len(GRID)))).round(6).any()
    np.False_
    """
    found = logsumexp(scores[:, None, :] + _LAWS, axis=2)
    return found - found.mean(axis=1, keepdims=True)


def own_temperatures(scores: NDArray, population: NDArray, n_clients: float) -> NDArray[np.float64]:
    r"""Return :math:`\exp E(\log T_i)` of each client.

    .. math:: E(\log T_i) = \sum_{\mu, \tau} p(\mu, \tau)\, E(\log T_i \mid \mu, \tau), \qquad
        p(\mu, \tau) \propto N(\mu; 0, 0.3^2)\, e^{m \bar\ell(\mu, \tau)}

    Parameters
    ----------
    scores : ndarray of shape (c, len(GRID))
    population : ndarray of shape (N_POPULATIONS,)
        Mean evidence.
    n_clients : float
        Number of clients m that the mean is of.

    Returns
    -------
    ndarray of shape (c,)

    Examples
    --------
    A client that holds nothing back has the temperature of the population:

    >>> scores = np.array([np.zeros(21), -8 * (np.log(GRID) - 0.6) ** 2])
    >>> own_temperatures(scores, evidence(scores[1:])[0], n_clients=50).round(1)
    array([1.8, 1.8])
    """
    likely = softmax(n_clients * population + _PRIOR)
    given = softmax(scores[:, None, :] + _LAWS, axis=2) @ _LOGS
    return np.exp(given @ likely)


def held_likelihoods(training: Any, members: NDArray[np.int64], theta: NDArray) -> NDArray:
    """Return log-likelihoods of the rows that members hold back, shape (len(members), len(GRID)).

    Parameters
    ----------
    training : LocalTraining
    members : ndarray of positions of clients
    theta : ndarray of shape (len(members), p)
        Parameters that were trained on the other rows.
    """
    scores, net = np.zeros((len(members), len(GRID))), training.net
    for some, rows in training.held_back(members, total=True):
        batch = rows.all()
        outputs = net.outputs(theta[some], batch.X)
        for k, temperature in enumerate(GRID):
            loss = net.loss.of(outputs / temperature, batch.y, batch.weight)[0]
            scores[some, k] = np.where(rows.n > 0, -loss, 0.0)
    return np.where(np.isfinite(scores).all(axis=1, keepdims=True), scores, 0.0)
