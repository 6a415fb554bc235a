"""Learners against their algorithm boxes, written plainly: one client after another, in loops.

Four clients with 3, 7, 5 and 11 rows, all rows in every step, three rounds. Both sides make the
same sums in another order, of some hundred numbers near 1: 1e-12 is thousands of roundings.
"""

import tracemalloc

import numpy as np
import pytest
from sklearn.metrics import log_loss

import ebfed as eb
from ebfed import learning
from ebfed.learning.schedule import INVITE, draw
from ebfed.models import MLP, Batch, Linear, Softmax

ROUNDS, TAU, RATE = 3, 2, 0.3
SIZES = [3, 7, 5, 11]
GROUPS = np.repeat(np.arange(4), SIZES)
RNG = np.random.default_rng(11)
FEATURES = RNG.normal(size=(len(GROUPS), 2))
NUMBERS = FEATURES @ [1.0, -0.5] + RNG.normal(size=4)[GROUPS] + 0.5 * RNG.normal(size=len(GROUPS))
CLASSES = np.digitize(NUMBERS, [-0.5, 0.7])
SOME = {"n_rounds": ROUNDS, "local_steps": TAU, "learning_rate": RATE, "random_state": 0}
CLOSE = {"rtol": 1e-12, "atol": 1e-12}


def rows_of(i):
    """Design with an intercept at the end, numbers and classes of a client."""
    mine = i == GROUPS
    design = np.column_stack([FEATURES[mine], np.ones(mine.sum())])
    return design, NUMBERS[mine], CLASSES[mine]


def softmax(outputs):
    p = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


class Squares:
    """Half the mean squared error of linear predictions."""

    model, response, start = Linear(), NUMBERS, np.zeros(3)

    @staticmethod
    def gradient(theta, i):
        A, y, _ = rows_of(i)
        return A.T @ (A @ theta - y) / len(y)

    @staticmethod
    def kd(theta, mu, i):
        """Divergence of the predictions by theta from those by mu, and gradients in both."""
        A = rows_of(i)[0]
        gap = A @ (theta - mu)
        slope = A.T @ gap / len(A)
        return gap @ gap / (2 * len(A)), slope, -slope


class Logits:
    """Cross-entropy of three classes; parameters are those of each feature, then intercepts."""

    model, response, start = Softmax(), CLASSES, np.zeros(9)

    @staticmethod
    def gradient(theta, i):
        A, _, y = rows_of(i)
        p = softmax(A @ theta.reshape(3, 3))
        return (A.T @ (p - np.eye(3)[y]) / len(y)).ravel()

    @staticmethod
    def kd(theta, mu, i):
        A = rows_of(i)[0]
        p, q = softmax(A @ theta.reshape(3, 3)), softmax(A @ mu.reshape(3, 3))
        each = (q * np.log(q / p)).sum(axis=1)
        towards = A.T @ (p - q) / len(A)
        # d/dz_k of sum_l q_l log(q_l / p_l) is q_k (log(q_k / p_k) - each)
        away = A.T @ (q * (np.log(q / p) - each[:, None])) / len(A)
        return each.mean(), towards.ravel(), away.ravel()


both = pytest.mark.parametrize("loss", [Squares, Logits], ids=["squares", "logits"])


NAMES = eb.ClientPrivacy().get_params().keys()


def make(learner, *models, **settings):
    """A learner, and those of the settings that are of its privacy."""
    privacy = eb.ClientPrivacy(**{name: settings.pop(name) for name in NAMES & settings.keys()})
    return learner(*models, privacy=privacy, **settings)


def fit(learner, loss, **more):
    private = learner in (
        eb.learning.DPFedAvg,
        eb.learning.DPAdaPeD,
        eb.learning.FeO2,
        eb.learning.PPSGD,
    )
    settings = SOME | more
    est = make(learner, loss.model, **settings) if private else learner(loss.model, **settings)
    return est.fit(FEATURES, loss.response, groups=GROUPS)


def compare(est, own, **shared):
    np.testing.assert_allclose(est.parameters_, own, **CLOSE)
    for name, value in shared.items():
        np.testing.assert_allclose(est.shared_[name], np.atleast_1d(value), **CLOSE)


def test_gradients_of_these_tests_are_right():
    """A check of the check, by central differences; their error is 1e-10 or so."""
    theta, mu = RNG.normal(size=(2, 9))
    for j, e in enumerate(1e-5 * np.eye(9)):
        p, m = (Logits.kd(theta + s * e, mu, 1)[0] for s in (1, -1))
        assert Logits.kd(theta, mu, 1)[1][j] == pytest.approx((p - m) / 2e-5, abs=1e-8)
        p, m = (Logits.kd(theta, mu + s * e, 1)[0] for s in (1, -1))
        assert Logits.kd(theta, mu, 1)[2][j] == pytest.approx((p - m) / 2e-5, abs=1e-8)


def descend(loss, theta, i, steps=TAU, rate=RATE, weight=0.0):
    """Gradient steps of client i, with weight decay."""
    for _ in range(steps):
        theta = theta - rate * (loss.gradient(theta, i) + weight * theta)
    return theta


@both
@pytest.mark.parametrize("more", [{}, {"decay": 0.5, "weight_decay": 0.2}], ids=["", "decays"])
def test_federated_averaging(loss, more):
    """McMahan et al. (2017), Algorithm 1, where clients count alike; then fine-tuning."""
    w, decay, weight = loss.start, more.get("decay", 1.0), more.get("weight_decay", 0.0)
    for t in range(ROUNDS):
        w = np.mean([descend(loss, w, i, TAU, RATE * decay**t, weight) for i in range(4)], axis=0)
    compare(fit(eb.learning.FedAvg, loss, **more), [w] * 4, w=w)
    tuned = [descend(loss, w, i, 5, RATE * decay**ROUNDS, weight) for i in range(4)]
    compare(fit(eb.learning.FedAvg, loss, fine_tune=5, **more), tuned, w=w)


@both
def test_fedprox(loss):
    """Li et al. (2020), Algorithm 2, with gradient steps as its inexact solver."""
    lam, w = 0.7, loss.start
    for _ in range(ROUNDS):
        after = []
        for i in range(4):
            theta = w
            for _ in range(TAU):
                theta = theta - RATE * (loss.gradient(theta, i) + lam * (theta - w))
            after.append(theta)
        w = np.mean(after, axis=0)
    compare(fit(eb.learning.FedProx, loss, regularization=lam), [w] * 4, w=w)


@both
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_scaffold(loss, share):
    """Karimireddy et al. (2020), Algorithm 1, option II."""
    rate, decay = 0.8, 0.9
    options = {"decay": decay, "sample_rate": share, "warm_start": True}  # which keeps the key
    est = fit(eb.learning.Scaffold, loss, server_learning_rate=rate, **options)
    w, c, own = loss.start, np.zeros_like(loss.start), [np.zeros_like(loss.start)] * 4
    for t, invited in enumerate(invitations(est)):
        moves, renewals, eta = [], [], RATE * decay**t
        for i in invited:
            theta = w
            for _ in range(TAU):
                theta = theta - eta * (loss.gradient(theta, i) - own[i] + c)
            new = own[i] - c + (w - theta) / (TAU * eta)
            moves.append(theta - w)
            renewals.append(new - own[i])
            own[i] = new
        w = w + rate * np.mean(moves, axis=0)
        c = c + np.sum(renewals, axis=0) / 4
    compare(est, [w] * 4, w=w, c=c)
    np.testing.assert_allclose(est._memory["own"]["control"], own, **CLOSE)


def invitations(est):
    """Clients that each round of a fit of four clients invited."""
    for t in range(ROUNDS):
        turn = est.protocol().schedule.invite(4, draw(np.asarray(est._state["key"]), INVITE, t))
        yield np.flatnonzero(turn == 0)


def test_fedrep():
    """Collins et al. (2021), Algorithm 1, of a network with one hidden layer, by its own slopes."""
    est = eb.learning.FedRep(MLP(4), **SOME, head_steps=3, sample_rate=0.25)
    clients, memory = est.protocol().prepare(FEATURES, CLASSES, groups=GROUPS)
    key = np.array([3, 4], np.uint64)
    state = est.protocol().start(est.protocol().describe(clients, memory), key)
    w, heads, invited = state["shared"]["w"], [state["own"]["head"]] * 4, set()
    assert w.shape == (12,)
    assert heads[0].shape == (15,)
    while not state["done"]:
        bodies = []
        for i in np.flatnonzero(state["turn"] == 0):
            heads[i] = head_steps(w, heads[i], i, 3)
            body = w
            for _ in range(TAU):
                body = body - RATE * slopes_of_network(body, heads[i], i)[0]
            bodies.append(body)
            invited.add(i)
        w = np.mean(bodies, axis=0)
        stream, turn = eb.streams.Stream(key, state["round"]), {"turn": state["turn"]}
        message, memory = est.protocol().local(
            est.protocol().broadcast(state), memory | turn, clients, stream
        )
        state = est.protocol().update(state, message)
    est.protocol().finish(est.protocol().broadcast(state), memory, clients)
    assert len(invited) < 4
    own = [np.append(w, head_steps(w, head, i, 3)) for i, head in enumerate(heads)]
    np.testing.assert_allclose(est.parameters_, own, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(est.shared_["w"], w, rtol=1e-10, atol=1e-10)
    assert not est._without_own.any(), "heads of clients without a round are fitted in the end"


def head_steps(w, head, i, steps):
    for _ in range(steps):
        head = head - RATE * slopes_of_network(w, head, i)[1]
    return head


def slopes_of_network(w, head, i):
    """Gradients of the cross-entropy of four hidden units in body and head."""
    A, _, y = rows_of(i)
    inner = A @ np.vstack([w[:8].reshape(2, 4), w[8:]])
    units = np.column_stack([np.maximum(inner, 0), np.ones(len(A))])
    B = head.reshape(5, 3)
    slope = (softmax(units @ B) - np.eye(3)[y]) / len(y)
    return (A.T @ ((slope @ B[:4].T) * (inner > 0))).ravel(), (units.T @ slope).ravel()


@both
def test_on_its_own(loss):
    own = [loss.start] * 4
    for i in range(4):
        for _ in range(ROUNDS * TAU):
            own[i] = own[i] - RATE * loss.gradient(own[i], i)
    compare(fit(eb.learning.LocalOnly, loss), own, w=loss.start)


@both
def test_ditto(loss):
    """Li et al. (2021), Algorithm 1: own steps towards what the server sent, not what it gets."""
    w, own, lam, eta = loss.start, [loss.start] * 4, 0.7, 0.2
    for _ in range(ROUNDS):
        after = [descend(loss, w, i) for i in range(4)]
        for i in range(4):
            for _ in range(TAU):
                own[i] = own[i] - eta * (loss.gradient(own[i], i) + lam * (own[i] - w))
        w = np.mean(after, axis=0)
    compare(fit(eb.learning.Ditto, loss, regularization=lam, own_learning_rate=eta), own, w=w)


@both
def test_pfedme(loss):
    """Dinh et al. (2020), Algorithm 1."""
    lam, eta, beta, K = 2.0, 0.15, 0.6, 4

    def nearby(w, i):
        theta = w
        for _ in range(K):
            theta = theta - eta * (loss.gradient(theta, i) + lam * (theta - w))
        return theta

    w = loss.start
    for _ in range(ROUNDS):
        copies = []
        for i in range(4):
            copy = w
            for _ in range(TAU):
                copy = copy - RATE * lam * (copy - nearby(copy, i))
            copies.append(copy)
        w = (1 - beta) * w + beta * np.mean(copies, axis=0)
    own = [nearby(w, i) for i in range(4)]
    more = {"regularization": lam, "own_learning_rate": eta, "own_steps": K, "mixing": beta}
    compare(fit(eb.learning.PFedMe, loss, **more), own, w=w)


@pytest.mark.parametrize("hessian", [True, False])
def test_per_fed_avg(hessian):
    """Fallah et al. (2020), Algorithm 1; the Hessian of least squares is known.

    Of a quadratic, a central difference is exact but for rounding, 1e-16 / 1e-4.
    """
    alpha, w = 0.4, Squares.start
    for _ in range(ROUNDS):
        copies = []
        for i in range(4):
            A, copy = rows_of(i)[0], w
            H = A.T @ A / len(A) if hessian else np.zeros((3, 3))
            for _ in range(TAU):
                adapted = copy - alpha * Squares.gradient(copy, i)
                copy = copy - RATE * (np.eye(3) - alpha * H) @ Squares.gradient(adapted, i)
            copies.append(copy)
        w = np.mean(copies, axis=0)
    own = [w - alpha * Squares.gradient(w, i) for i in range(4)]
    est = fit(eb.learning.PerFedAvg, Squares, own_learning_rate=alpha, hessian=hessian)
    np.testing.assert_allclose(est.parameters_, own, rtol=0, atol=1e-10)
    np.testing.assert_allclose(est.shared_["w"], w, rtol=0, atol=1e-10)


def test_per_fed_avg_of_classes_has_the_hessian():
    """Beside a Hessian by differences of steps of 1e-6: both err by 1e-8 or so."""
    alpha, w = 0.4, Logits.start
    for _ in range(ROUNDS):
        copies = []
        for i in range(4):
            slope = Logits.gradient(w - alpha * Logits.gradient(w, i), i)
            h = 1e-6 * slope
            product = (Logits.gradient(w + h, i) - Logits.gradient(w - h, i)) / 2e-6
            copies.append(w - RATE * (slope - alpha * product))
        w = np.mean(copies, axis=0)
    est = fit(eb.learning.PerFedAvg, Logits, own_learning_rate=alpha, local_steps=1)
    np.testing.assert_allclose(est.shared_["w"], w, rtol=0, atol=1e-7)


@both
def test_quped(loss):
    """Ozkara et al. (2021), Algorithm 2 in full precision: theta first, w on the new theta."""
    lam, eta, w, own = 0.4, 0.9, loss.start, [loss.start] * 4
    for _ in range(ROUNDS):
        copies = []
        for i in range(4):
            copy = w
            for _ in range(TAU):
                towards = loss.kd(own[i], copy, i)[1]
                own[i] = own[i] - RATE * ((1 - lam) * loss.gradient(own[i], i) + lam * towards)
                copy = copy - eta * lam * loss.kd(own[i], copy, i)[2]
            copies.append(copy)
        w = np.mean(copies, axis=0)
    compare(fit(eb.learning.QuPeD, loss, distillation=lam, shared_learning_rate=eta), own, w=w)


@both
def test_federated_mutual_learning(loss):
    """Shen et al. (2020), (3) and (4): both move at once."""
    a, b, w, own = 0.3, 0.8, loss.start, [loss.start] * 4
    for _ in range(ROUNDS):
        copies = []
        for i in range(4):
            copy = w
            for _ in range(TAU):
                g = a * loss.gradient(own[i], i) + (1 - a) * loss.kd(own[i], copy, i)[1]
                h = b * loss.gradient(copy, i) + (1 - b) * loss.kd(copy, own[i], i)[1]
                own[i], copy = own[i] - RATE * g, copy - RATE * h
            copies.append(copy)
        w = np.mean(copies, axis=0)
    compare(fit(eb.learning.FedMutual, loss, own_weight=a, shared_weight=b), own, w=w)


def adaped(loss, turns, *, eta2, eta3, psi, floor, tau, unsampled):
    """Ozkara et al. (2023), Algorithms 2 and 7, of rounds with these clients."""
    mu, own = loss.start, [loss.start] * 4
    heard = [(mu, max(psi, floor))] * 4
    for invited in turns:
        told = []
        for i in range(4):
            if i in invited:
                m, s = mu, max(psi, floor)
                heard[i] = (m, s)
                for _ in range(tau):
                    towards = loss.kd(own[i], m, i)[1]
                    own[i] = own[i] - RATE * (loss.gradient(own[i], i) + towards / (2 * s))
                    m = m - eta2 * loss.kd(own[i], m, i)[2] / (2 * s)
                    divergence = loss.kd(own[i], m, i)[0]
                    s = max(s - eta3 * (1 / (2 * s) - divergence / (2 * s**2)), floor)
                told.append((m, s))
            elif unsampled:
                m, s = heard[i]
                for _ in range(tau):
                    towards = loss.kd(own[i], m, i)[1]
                    own[i] = own[i] - RATE * (loss.gradient(own[i], i) + towards / (2 * s))
        if told:
            mu = np.mean([m for m, _ in told], axis=0)
            psi = np.mean([s for _, s in told])
    return mu, psi, own


@both
@pytest.mark.parametrize("floor", [0.4, 0.95])
def test_adaped(loss, floor):
    more = {"psi": 1.0, "psi_floor": floor, "local_steps": 3, "variant": "paper"}
    mu, psi, own = adaped(
        loss, [range(4)] * 3, eta2=0.5, eta3=0.2, psi=1.0, floor=floor, tau=3, unsampled=False
    )
    est = fit(eb.learning.AdaPeD, loss, **more, shared_learning_rate=0.5, psi_learning_rate=0.2)
    compare(est, own, mu=mu, psi=psi)
    assert psi != 1.0


@both
@pytest.mark.parametrize("unsampled", [True, False])
def test_adaped_of_samples(loss, unsampled):
    """The conversation is held here, to see who was invited."""
    more = {"psi": 1.0, "psi_floor": 0.4, "local_steps": 3, "n_rounds": 6, "sample_rate": 0.5}
    more |= {"shared_learning_rate": 0.5, "psi_learning_rate": 0.2, "unsampled": unsampled}
    more |= {"variant": "paper"}
    est = eb.learning.AdaPeD(loss.model, **(SOME | more))
    clients, memory = est.protocol().prepare(FEATURES, loss.response, groups=GROUPS)
    key, turns = np.array([3, 4], np.uint64), []
    state = est.protocol().start(est.protocol().describe(clients, memory), key)
    while not state["done"]:
        turns.append(np.flatnonzero(state["turn"] == 0).tolist())
        stream = eb.streams.Stream(key, state["round"])
        sent, memory = est.protocol().broadcast(state), memory | {"turn": state["turn"]}
        message, memory = est.protocol().local(sent, memory, clients, stream)
        state = est.protocol().update(state, message)
    est.protocol().finish(est.protocol().broadcast(state), memory, clients)
    assert {len(turn) for turn in turns} == {2}, "rounds have a fixed size"
    assert len(set(map(tuple, turns))) > 1
    mu, psi, own = adaped(
        loss, turns, eta2=0.5, eta3=0.2, psi=1.0, floor=0.4, tau=3, unsampled=unsampled
    )
    compare(est, own, mu=mu, psi=psi)


def test_adaped_may_share_another_model():
    """Personal predictors are linear in the logits; strangers meet the shared network."""
    net = MLP(5)
    est = eb.learning.AdaPeD(Softmax(), shared_model=net, **SOME)
    est.fit(FEATURES, CLASSES, groups=GROUPS)
    assert est.parameters_.shape == (4, 9)
    assert est.shared_["mu"].shape == (3 * 5 + 6 * 3,)
    p = est.predict_proba(FEATURES, groups=GROUPS)
    for i in range(4):
        expected = softmax(rows_of(i)[0] @ est.parameters_[i].reshape(3, 3))
        np.testing.assert_allclose(p[i == GROUPS], expected, rtol=0, atol=1e-12)
    mixed = np.where(GROUPS == 2, 99, GROUPS)
    mu = est.shared_["mu"][None]
    known, stranger = GROUPS != 2, GROUPS == 2
    q = est.predict_proba(FEATURES, groups=mixed)
    np.testing.assert_allclose(q[known], p[known], rtol=0, atol=1e-12)
    shared = net.bind(2, 3).predict(mu, FEATURES[None])[0]
    np.testing.assert_allclose(q[stranger], shared[stranger], rtol=0, atol=1e-12)
    np.testing.assert_allclose(est.predict_proba(FEATURES), shared, rtol=0, atol=1e-12)


# PPSGD


def ppsgd(loss, alpha, rounds, Q, clip, total=False):
    """Bietti et al. (2022): Algorithm 1; with `total`, Algorithm 2 with all its rows."""
    w, own = loss.start, [loss.start] * 4
    for _ in range(rounds):
        pushes = []
        for i in range(4):
            g = loss.gradient(w + own[i], i) * (SIZES[i] if total else 1)
            own[i] = own[i] - RATE / Q * g
            pushes.append(g * min(1, clip / np.linalg.norm(g)))
        w = w - alpha * RATE * np.sum(pushes, axis=0) / Q
    return w, w + np.array(own)


STEPS = {"n_rounds": 8, "local_steps": 1, "noise_multiplier": 0.0}


@both
@pytest.mark.parametrize("objective", ["clients", "rows"])
@pytest.mark.parametrize("clip", [0.5, 1e9])
def test_ppsgd(loss, objective, clip):
    total = objective == "rows"
    Q = len(GROUPS) if total else 4
    w, own = ppsgd(loss, 0.6, 8, Q, clip, total)
    est = fit(eb.learning.PPSGD, loss, alpha=0.6, clip=clip, objective=objective, **STEPS)
    compare(est, own, w=w)


def test_ppsgd_of_equal_clients_minimises_the_same_by_clients_and_by_rows():
    """Algorithm 1 is Algorithm 2 where clients have equally many rows."""
    X, y = FEATURES[:24], NUMBERS[:24]
    groups = np.repeat(np.arange(4), 6)
    fits = [
        make(eb.learning.PPSGD, Linear(), objective=objective, clip=1e9, **(SOME | STEPS)).fit(
            X, y, groups=groups
        )
        for objective in ("clients", "rows")
    ]
    np.testing.assert_allclose(fits[0].parameters_, fits[1].parameters_, **CLOSE)


@both
@pytest.mark.parametrize("batch_size", [None, 2])
def test_ppsgd_between_local_and_global(loss, batch_size):
    """alpha = 0 is every client alone, alpha = infinity one step of federated averaging."""
    more = STEPS | {"batch_size": batch_size}
    alone = fit(
        eb.learning.PPSGD, loss, **(more | {"learning_rate": 4 * RATE}), alpha=0.0, clip=0.1
    )
    del more["noise_multiplier"]
    local = fit(eb.learning.LocalOnly, loss, **more)
    compare(alone, local.parameters_, w=loss.start)
    shared = fit(eb.learning.PPSGD, loss, **more, noise_multiplier=0.0, alpha=np.inf, clip=1e9)
    average = fit(eb.learning.FedAvg, loss, **more)
    compare(shared, average.parameters_, w=average.shared_["w"])


# Private learners without noise


@both
def test_private_averaging_without_noise(loss):
    """Where nothing is clipped and everybody comes, it is federated averaging."""
    private = fit(eb.learning.DPFedAvg, loss, noise_multiplier=0.0, clip=1e9, fine_tune=2)
    plain = fit(eb.learning.FedAvg, loss, fine_tune=2)
    compare(private, plain.parameters_, w=plain.shared_["w"])


def test_private_averages_are_divided_by_expected_numbers():
    """Poisson samples of 4 at rate 1/2: a sum over however many are sampled, divided by 2."""
    est = make(
        eb.learning.DPFedAvg, Linear(), **(SOME | {"n_rounds": 1}), noise_multiplier=0.0, clip=1e9
    )
    est.set_params(sample_rate=0.5)
    clients, memory = est.protocol().prepare(FEATURES, NUMBERS, groups=GROUPS)
    counts = set()
    for seed in range(12):
        state = est.protocol().start(
            est.protocol().describe(clients, memory), np.array([seed, 0], np.uint64)
        )
        sampled = np.flatnonzero(state["turn"] == 0)
        counts.add(len(sampled))
        rng = eb.streams.Stream(state["key"], 0)
        turn = {"turn": state["turn"]}
        message, _ = est.protocol().local(
            est.protocol().broadcast(state), memory | turn, clients, rng
        )
        changes = np.zeros(3)
        for i in sampled:
            changes += descend(Squares, np.zeros(3), i)
        np.testing.assert_allclose(
            est.protocol().update(state, message)["shared"]["w"], changes / 2, **CLOSE
        )
    assert len(counts) > 2


@pytest.mark.parametrize("ratio", [1.0, 0.3, 0.0])
def test_feo2(ratio):
    """Aldaghri et al. (2021), Algorithm 1 at q = 1: two open clients, two private, all clipped."""
    clip, lam = 0.3, 0.7
    w, own, weight = np.zeros(3), [np.zeros(3)] * 4, np.array([1.0, ratio, ratio, 1.0])
    for _ in range(ROUNDS):
        changes = []
        for i in range(4):
            change = descend(Squares, w, i) - w
            changes.append(change * min(1, clip / np.linalg.norm(change)))
            if weight[i] > 0:  # who is not heard is not asked, and does not train
                for _ in range(TAU):
                    own[i] = own[i] - RATE * (Squares.gradient(own[i], i) + lam * (own[i] - w))
        w = w + weight @ np.array(changes) / weight.sum()
    est = make(eb.learning.FeO2, Linear(), **SOME, noise_multiplier=0.0, ratio=ratio, clip=clip)
    est.set_params(regularization=lam)
    consent = dict(enumerate(["open", "private", "private", "open"]))
    est.fit(FEATURES, NUMBERS, groups=GROUPS, consent=consent)
    if ratio == 0:  # who never trained predicts by what is shared
        own[1] = own[2] = w
    compare(est, own, w=w)


def test_feo2_divides_by_expected_numbers_of_both_classes():
    """q (N_np + r N_p), whoever is sampled."""
    est = make(
        eb.learning.FeO2,
        Linear(),
        **(SOME | {"n_rounds": 1}),
        noise_multiplier=0.0,
        clip=1e9,
        ratio=0.2,
    )
    est.set_params(sample_rate=0.5)
    consent = dict(enumerate(["open", "private", "private", "private"]))
    clients, memory = est.protocol().prepare(FEATURES, NUMBERS, groups=GROUPS, consent=consent)
    weight, kinds = np.array([1.0, 0.2, 0.2, 0.2]), set()
    for seed in range(12):
        state = est.protocol().start(
            est.protocol().describe(clients, memory), np.array([seed, 1], np.uint64)
        )
        sampled = np.flatnonzero(state["turn"] == 0)
        kinds.add((0 in sampled, len(sampled) > 1))
        changes = {"w": RNG.normal(size=(len(sampled), 3))}
        message = {"changes": {"w": weight[sampled, None] * changes["w"]}}
        expected = weight[sampled] @ changes["w"] / (0.5 * (1 + 0.2 * 3))
        np.testing.assert_allclose(
            est.protocol().update(state, message)["shared"]["w"], expected, **CLOSE
        )
    assert len(kinds) >= 3, "rounds with and without the open client, and nearly empty ones"


def test_adaped_with_clipped_gradients():
    """Every step is clipped, by itself: 2 tau steps of which none is longer than its bound."""
    more = {"psi": 1.0, "psi_floor": 0.1, "shared_learning_rate": 0.5, "psi_learning_rate": 0.2}
    more |= {"variant": "paper"}
    plain = fit(eb.learning.AdaPeD, Logits, **more)
    paper = more | {"noise_multiplier": 0.0}
    loose = fit(eb.learning.DPAdaPeD, Logits, **paper, clip=1e9, psi_clip=1e9)
    compare(loose, plain.parameters_, **plain.shared_)
    mu, psi, own = Logits.start, 1.0, [Logits.start] * 4
    c1, c2 = 0.02, 0.3
    for _ in range(ROUNDS):
        told = []
        for i in range(4):
            m, s = mu, psi
            for _ in range(TAU):
                towards = Logits.kd(own[i], m, i)[1]
                own[i] = own[i] - RATE * (Logits.gradient(own[i], i) + towards / (2 * s))
                h = Logits.kd(own[i], m, i)[2] / (2 * s)
                m = m - 0.5 * h * min(1, c1 / np.linalg.norm(h))
                k = 1 / (2 * s) - Logits.kd(own[i], m, i)[0] / (2 * s**2)
                s = max(s - 0.2 * k * min(1, c2 / abs(k)), 0.1)
            told.append((m, s))
        mu, psi = np.mean([m for m, _ in told], axis=0), np.mean([s for _, s in told])
    tight = fit(eb.learning.DPAdaPeD, Logits, **paper, clip=c1, psi_clip=c2)
    compare(tight, own, mu=mu, psi=psi)
    assert np.abs(plain.shared_["mu"] - mu).max() > 1e-3
    assert abs(plain.shared_["psi"][0] - psi) > 1e-3


def test_adaped_with_clipped_changes():
    """A change is clipped as a whole, and C of mu follows a quantile of the norms."""
    more = {"psi": 1.0, "psi_floor": 0.1, "shared_learning_rate": 0.5, "psi_learning_rate": 0.2}
    more |= {"local_steps": 3, "noise_multiplier": 0.0, "clip": 0.02, "psi_clip": 0.3, "refine": 0}
    mu, psi, own, clip = Logits.start, 1.0, [Logits.start] * 4, 0.02
    for _ in range(ROUNDS):
        changes, below = [], []
        for i in range(4):
            start = mu, np.atleast_1d(psi)
            m, s, theta = adaped_steps(Logits, own[i], *start, i, eta2=0.5, eta3=0.2, floor=0.1)
            own[i] = theta
            moves = [(m - mu, clip), (s - psi, 3 * 0.2 * 0.3)]
            changes.append([x * min(1, c / np.linalg.norm(x)) for x, c in moves])
            below.append(np.linalg.norm(m - mu) <= clip)
        mu = mu + np.mean([m for m, _ in changes], axis=0)
        psi = psi + np.mean([s for _, s in changes])
        clip *= np.exp(-0.2 * (np.mean(below) - 0.5))
    est = fit(eb.learning.DPAdaPeD, Logits, **more, clip_quantile=0.5)
    compare(est, own, mu=mu, psi=psi)
    assert est.history_["clip"].iloc[-1] == pytest.approx(clip, rel=1e-12)
    assert clip > 0.02


def adaped_steps(loss, theta, mu, psi, i, *, eta2, eta3, floor, tau=3):
    """The local steps of Ozkara et al. (2023), Algorithm 2, but those of mu are not over 2 psi."""
    psi = max(psi[0], floor)
    for _ in range(tau):
        towards = loss.kd(theta, mu, i)[1]
        theta = theta - RATE * (loss.gradient(theta, i) + towards / (2 * psi))
        mu = mu - eta2 * loss.kd(theta, mu, i)[2]
        psi = max(psi - eta3 * (1 / (2 * psi) - loss.kd(theta, mu, i)[0] / (2 * psi**2)), floor)
    return mu, np.atleast_1d(psi), theta


# Rows of a client, step by step


@pytest.mark.parametrize("batch_size", [1, 3, 5, 8, 11, 40])
def test_batches_of_rows_in_order(batch_size):
    """With shuffle=False rows are taken on and on, from round to round; few are all taken."""
    w = np.zeros(3)
    for t in range(ROUNDS):
        copies = []
        for i in range(4):
            A, y, _ = rows_of(i)
            theta = w
            for step in range(t * TAU, (t + 1) * TAU):
                here = np.arange(len(y))
                if batch_size < len(y):
                    here = (step * batch_size + np.arange(batch_size)) % len(y)
                a, b = A[here], y[here]
                theta = theta - RATE * a.T @ (a @ theta - b) / len(b)
            copies.append(theta)
        w = np.mean(copies, axis=0)
    est = fit(eb.learning.FedAvg, Squares, batch_size=batch_size, shuffle=False)
    np.testing.assert_allclose(est.shared_["w"], w, **CLOSE)


def test_an_epoch_of_shuffled_batches_sees_every_row_once():
    """The mean of an epoch's gradients, taken without moving, is the whole gradient."""
    sizes = [12, 24]
    groups = np.repeat([0, 1], sizes)
    X, y = RNG.normal(size=(36, 2)), RNG.normal(size=36)
    tiny = {"learning_rate": 1e-9, "n_rounds": 1, "random_state": 3}
    for i, n in enumerate(sizes):
        mine = groups == i
        epoch = eb.learning.LocalOnly(Linear(), **tiny, batch_size=4, local_steps=n // 4)
        whole = eb.learning.LocalOnly(Linear(), **tiny, local_steps=n // 4)
        a, b = (e.fit(X[mine], y[mine], groups=groups[mine]).parameters_ for e in (epoch, whole))
        # steps of 1e-9 move the gradient by as much
        np.testing.assert_allclose(a, b, rtol=1e-7)


def test_rounds_are_recorded_before_they_train():
    """Means over clients, of the first batch."""
    est = fit(eb.learning.FedAvg, Logits, local_steps=1)
    assert est.history_["loss"].iloc[0] == pytest.approx(np.log(3), rel=1e-6)  # noted as float32
    one = fit(eb.learning.FedAvg, Logits, local_steps=1, n_rounds=1).shared_["w"].reshape(3, 3)
    losses, hits = [], []
    for i in range(4):
        A, _, y = rows_of(i)
        p = softmax(A @ one)
        losses.append(-np.log(p[np.arange(len(y)), y]).mean())
        hits.append((p.argmax(axis=1) == y).mean())
    assert est.history_["loss"].iloc[1] == pytest.approx(np.mean(losses), rel=1e-6)
    assert est.history_["accuracy"].iloc[1] == pytest.approx(np.mean(hits), rel=1e-6)


def test_the_ledger_of_what_is_not_protected():
    est = fit(eb.learning.FedAvg, Logits)
    assert est.privacy_["epsilon"].tolist() == [np.inf]
    assert est.privacy_["times"].tolist() == [ROUNDS]
    assert est.privacy_["bits"].tolist() == [64.0 * (9 + 3) * 4 * ROUNDS]
    by_rows = fit(eb.learning.FedAvg, Logits, weights="rows")  # a client's weight is a number more
    assert by_rows.privacy_["bits"].tolist() == [64.0 * (9 + 3 + 1) * 4 * ROUNDS]
    assert fit(eb.learning.LocalOnly, Logits).privacy_["epsilon"].tolist() == [0.0]


@pytest.mark.parametrize("rate", [1e200, 1e308])
@pytest.mark.parametrize(
    "learner", [eb.learning.FedAvg, eb.learning.AdaPeD, eb.learning.FedRep, eb.learning.PerFedAvg]
)
def test_steps_that_are_far_too_long_are_named(learner, rate):
    """Changes overflow, with either sign: their mean is refused, without a warning from NumPy."""
    est = learner(Linear(), n_rounds=2, learning_rate=rate, random_state=0)
    with pytest.raises(ValueError, match="choose a smaller learning_rate than 1e"):
        est.fit(FEATURES, NUMBERS, groups=GROUPS)


@pytest.mark.parametrize("rate", [1e-320, 1e-10, 0.0, 1.5, np.nan])
def test_a_rate_at_which_nobody_takes_part_is_refused(rate):
    with pytest.raises(ValueError, match="sample_rate must be"):
        eb.learning.FedAvg(sample_rate=rate).fit(FEATURES, CLASSES, groups=GROUPS)


def test_rounds_may_be_any_integer():
    few, plain = (
        eb.learning.FedAvg(n_rounds=n, random_state=0).fit(FEATURES, CLASSES, groups=GROUPS)
        for n in (np.int8(3), 3)
    )
    np.testing.assert_array_equal(few.shared_["w"], plain.shared_["w"])


# Clients that no round invited ---------------------------------------------------------------


@pytest.mark.parametrize(
    "cls", [learning.AdaPeD, learning.QuPeD, learning.FedMutual, learning.PFedMe, learning.Ditto]
)
def test_clients_that_were_never_invited_are_predicted_by_the_shared_parameters(cls):
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(60), 10)
    X = rng.normal(size=(600, 3))
    y = X @ [2.0, -1.0, 0.5] > 0
    est = cls(sample_rate=0.05, sampling="poisson", n_rounds=20, local_steps=5, learning_rate=1.0)
    if cls is learning.AdaPeD:
        est.set_params(refine=0)
    est.set_params(random_state=1).fit(X, y, groups=groups)
    new = ~est._memory["trained"]
    assert 10 < new.sum() < 40
    if cls is learning.PFedMe:  # their own rows count too
        assert not (est.parameters_[new] == est._unseen[1]).all()
    else:
        np.testing.assert_array_equal(
            est.parameters_[new], np.broadcast_to(est._unseen[1], (new.sum(), 8))
        )
        assert f"{new.sum()} of 60 groups were never invited" in str(est.summary())
    theirs = np.isin(groups, est.groups_[new])
    expected = est.score(X[theirs], y[theirs])  # by the shared parameters
    assert expected > 0.8
    assert est.score(X[theirs], y[theirs], groups=groups[theirs]) >= expected - 0.02


INVITING = [
    each
    for each in (getattr(learning, name) for name in learning.__all__)
    if issubclass(each, learning.Learner)
    and each not in (learning.Learner, learning.LocalOnly, learning.JointDPSGD)
]


@pytest.mark.parametrize("cls", INVITING)
def test_no_learner_predicts_clients_worse_that_were_never_invited(cls):
    """One of 60 is invited; the others are predicted no worse than by what is shared."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(60), 10)
    X = rng.normal(size=(600, 3))
    y = X @ [2.0, -1.0, 0.5] > 0
    est = cls(sample_rate=1 / 60, sampling="fixed", n_rounds=1, learning_rate=1.0, random_state=1)
    if cls in (learning.FedBN, learning.FedRep):
        est.set_params(personal=["intercept"])
    if cls().protocol().requires_privacy:
        est.set_params(privacy=learning.ClientPrivacy(noise_multiplier=0.0, clip=100.0))
    est.fit(X, y, groups=groups)
    own, shared = est.predict_proba(X, groups=groups), est.predict_proba(X)
    assert log_loss(y, own) <= log_loss(y, shared) + 0.01


def test_a_shared_model_of_another_kind_predicts_for_clients_that_were_never_invited(tmp_path):
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(60), 10)
    X = rng.normal(size=(600, 3))
    y = X @ [2.0, -1.0, 0.5] > 0
    options = {"sample_rate": 0.05, "n_rounds": 20, "local_steps": 5, "learning_rate": 1.0}
    est = learning.AdaPeD(shared_model=MLP(4), random_state=1, **options).fit(X, y, groups=groups)
    new = ~est._memory["trained"]
    assert 10 < new.sum() < 40
    theirs = np.isin(groups, est.groups_[new])
    p = est.predict_proba(X[theirs], groups=groups[theirs])
    np.testing.assert_array_equal(p, est.predict_proba(X[theirs]))
    est.save(tmp_path / "fit.json")
    again = eb.load_fit(tmp_path / "fit.json")
    np.testing.assert_array_equal(again.predict_proba(X[theirs], groups=groups[theirs]), p)


def test_pfedme_predicts_by_the_minimum_near_the_final_shared_parameters():
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(6), 20)
    X = rng.normal(size=(120, 2))
    y = X[:, 0] + rng.normal(size=6)[groups] > 0
    est = learning.PFedMe(n_rounds=7, own_steps=2000, own_learning_rate=0.5, random_state=0)
    est.fit(X, y, groups=groups)
    w, theta = est.shared_["w"], est.parameters_
    rows = Batch(X.reshape(6, 20, 2), y.reshape(6, 20) * 1, np.full((6, 20), 1 / 20))
    slope = est._net.gradient(theta, rows).gradient + est.regularization * (theta - w)
    np.testing.assert_allclose(slope, 0, atol=1e-10)


# Weights of clients in averages ---------------------------------------------------------------


@both
def test_averages_may_count_rows(loss):
    """McMahan et al. (2017), Algorithm 1: clients count in proportion to their rows."""
    n, w = np.array(SIZES), loss.start
    for _ in range(ROUNDS):
        w = n @ np.array([descend(loss, w, i) for i in range(4)]) / n.sum()
    compare(fit(eb.learning.FedAvg, loss, weights="rows"), [w] * 4, w=w)


def test_an_average_by_rows_is_over_the_clients_of_the_round():
    """One client in each round, with all rows in a step: its change moves w as a whole."""
    options = {"sample_rate": 0.25, "n_rounds": 1, "learning_rate": 0.3, "random_state": 5}
    for cls in (eb.learning.FedAvg, learning.PerFedAvg):
        assert ("weights" in cls().get_params()) == (cls is eb.learning.FedAvg)
    by_rows = eb.learning.FedAvg(weights="rows", **options).fit(FEATURES, CLASSES, groups=GROUPS)
    alike = eb.learning.FedAvg(**options).fit(FEATURES, CLASSES, groups=GROUPS)
    np.testing.assert_allclose(by_rows.shared_["w"], alike.shared_["w"], **CLOSE)


def test_private_averages_by_rows_are_over_the_expected_weights():
    privacy = learning.ClientPrivacy(noise_multiplier=0.0, clip=0.05)
    options = {"n_rounds": 1, "learning_rate": 0.3, "random_state": 5, "weights": "rows"}
    est = learning.DPFedAvg(privacy=privacy, **options).fit(FEATURES, CLASSES, groups=GROUPS)
    n, moves = np.array(SIZES), []
    for i in range(4):
        move = -0.3 * Logits.gradient(Logits.start, i) * n[i] / n.max()
        moves.append(move * min(1, 0.05 / np.linalg.norm(move)))
    np.testing.assert_allclose(est.shared_["w"], np.sum(moves, 0) / (n / n.max()).sum(), **CLOSE)
    budgets = {0: 0.5, 1: 1.0, 2: 1.0, 3: 1.0}
    est.set_params(privacy=learning.ClientPrivacy(epsilon=1.0), n_rounds=3)
    est.fit(FEATURES, CLASSES, groups=GROUPS, consent=budgets)
    with pytest.raises(ValueError, match="weights='rows' needs a fixed clip"):
        est.set_params(privacy__clip_quantile=0.5).fit(FEATURES, CLASSES, groups=GROUPS)
    with pytest.raises(ValueError, match="weights must be 'clients' or 'rows'"):
        eb.learning.FedAvg(weights="size").fit(FEATURES, CLASSES, groups=GROUPS)


@pytest.mark.parametrize("cls", [learning.AdaPeD, learning.JointDPSGD])
def test_own_parameters_start_as_the_seed_says(cls):
    options = {"n_rounds": 1, "learning_rate": 1e-300, "model": MLP(3)}
    if cls is learning.AdaPeD:
        options["shared_model"] = Softmax()
    else:
        privacy = learning.ClientPrivacy(noise_multiplier=1.0, trust="none")
        options |= {"personal": ["hidden"], "privacy": privacy}
    starts = [
        cls(random_state=seed, **options).fit(FEATURES, CLASSES, groups=GROUPS)._kept["own"]
        for seed in (0, 0, 1)
    ]
    name = "theta" if cls is learning.AdaPeD else "x"
    np.testing.assert_array_equal(starts[0][name], starts[1][name])
    assert not np.array_equal(starts[0][name], starts[2][name])


def test_federated_averaging_holds_one_model_and_those_of_a_round():
    """300 clients, 3 invited: a model of 1e5 parameters is 0.8 MB, and one for each client 240."""
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(600, 50)), np.repeat(np.arange(300), 2)
    y = rng.integers(0, 4, 600)
    est = eb.learning.FedAvg(MLP(1820), n_rounds=2, sample_rate=0.01, random_state=0)
    tracemalloc.start()
    try:
        est.fit(X, y, groups=groups)
        est.predict(X[:100], groups=groups[:100])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert est._net.size == 100_104
    assert peak < 20e6


@pytest.mark.parametrize(
    ("learner", "options"),
    [
        (eb.learning.Ditto, {"own_learning_rate": 0.1}),
        (eb.learning.Ditto, {"own_learning_rate": 0.19, "optimizer": "momentum"}),
        (eb.learning.FedProx, {"learning_rate": 0.1, "local_steps": 5}),
        (eb.learning.PFedMe, {"learning_rate": 0.01, "own_learning_rate": 0.1}),
        (eb.learning.PFedMe, {"learning_rate": 0.1, "own_learning_rate": 0.01}),
    ],
)
def test_steps_do_not_overshoot_what_they_are_pulled_to(learner, options):
    """Distances are multiplied by 1 - .1 * 20, or more, in each step."""
    est = learner(**({"n_rounds": 3, "random_state": 0} | options), regularization=20.0)
    with pytest.raises(ValueError, match="regularization must be below"):
        est.fit(FEATURES, CLASSES, groups=GROUPS)
    near = est.set_params(regularization=18.0).fit(FEATURES, CLASSES, groups=GROUPS)
    assert np.abs(near.parameters_ - near.shared_["w"]).max() < 1.0


@pytest.mark.parametrize("options", [{}, {"optimizer": "momentum", "learning_rate": 0.19}], ids=str)
def test_weight_decay_does_not_overshoot(options):
    est = eb.learning.LocalOnly(
        **({"n_rounds": 3, "learning_rate": 0.1} | options), weight_decay=20.0
    )
    with pytest.raises(ValueError, match="weight_decay must be below 20"):
        est.fit(FEATURES, CLASSES, groups=GROUPS)
    small = est.set_params(weight_decay=18.0).fit(FEATURES, CLASSES, groups=GROUPS)
    assert np.abs(small.parameters_).max() < 1.0


def test_steps_of_adam_do_not_grow_with_what_pulls():
    est = eb.learning.Ditto(optimizer="adam", regularization=1e6, n_rounds=3, random_state=0)
    theta = est.fit(FEATURES, CLASSES, groups=GROUPS).parameters_
    assert np.abs(theta - est.shared_["w"]).max() < 1.0
