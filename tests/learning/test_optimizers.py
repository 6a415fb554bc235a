"""Optimizers of clients and of servers, against PyTorch's and against plain loops."""

import copy

import numpy as np
import pytest

import ebfed as eb
from ebfed.learning.optimizers import Descent
from ebfed.models import Linear

RNG = np.random.default_rng(5)
GROUPS = np.repeat(np.arange(4), [3, 7, 5, 11])
X = RNG.normal(size=(len(GROUPS), 2))
Y = X @ [1.0, -0.5] + RNG.normal(size=4)[GROUPS]
SOME = {"n_rounds": 4, "local_steps": 3, "learning_rate": 0.1, "random_state": 0}


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_steps_are_those_of_pytorch(optimizer):
    torch = pytest.importorskip("torch")
    start, slopes = RNG.normal(size=(3, 5)), RNG.normal(size=(8, 3, 5))
    theta = torch.tensor(start, requires_grad=True)
    reference = {
        "sgd": lambda: torch.optim.SGD([theta], lr=0.3),
        "momentum": lambda: torch.optim.SGD([theta], lr=0.3, momentum=0.9),
        "adam": lambda: torch.optim.Adam([theta], lr=0.3),
    }[optimizer]()
    descend, mine = Descent(optimizer, 0.3), start
    for slope in slopes:
        theta.grad = torch.tensor(slope)
        reference.step()
        mine = descend(mine, slope)
    np.testing.assert_allclose(mine, theta.detach().numpy(), rtol=1e-12, atol=1e-12)


def gradient(theta, i):
    A = np.column_stack([X, np.ones(len(X))])[i == GROUPS]
    return A.T @ (A @ theta - Y[i == GROUPS]) / len(A)


@pytest.mark.parametrize("server", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize("client", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize("rate", [0.05, 1.0])
def test_federated_averaging_with_optimizers(client, server, rate):
    """Hsu, Qi and Brown (2019); Reddi et al. (2021), Algorithm 2: moments of clients start anew."""
    w, first, second = np.zeros(3), np.zeros(3), np.full(3, 1e-6)
    for _ in range(4):
        after = []
        for i in range(4):
            theta, descend = w[None], Descent(client, 0.1)
            for _ in range(3):
                theta = descend(theta, gradient(theta[0], i)[None])
            after.append(theta[0])
        change = np.mean(after, axis=0) - w
        if server == "adam":
            first, second = 0.9 * first + 0.1 * change, 0.99 * second + 0.01 * change**2
            w = w + rate * first / (np.sqrt(second) + 1e-3)
        else:
            first = (0.9 if server == "momentum" else 0.0) * first + change
            w = w + rate * first
    settings = {"optimizer": client, "server_optimizer": server, "server_learning_rate": rate}
    est = eb.learning.FedAvg(Linear(), **SOME, **settings).fit(X, Y, groups=GROUPS)
    np.testing.assert_allclose(est.shared_["w"], w, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("server", ["sgd", "momentum", "adam"])
def test_a_server_writes_into_nothing_that_it_was_given(server):
    est = eb.learning.FedAvg(Linear(), **SOME, server_optimizer=server)
    clients, memory = est.protocol().prepare(X, Y, groups=GROUPS)
    state = est.protocol().start(est.protocol().describe(clients, memory), np.zeros(2, np.uint64))
    for _ in range(2):
        turn = {"turn": state["turn"]}
        message, memory = est.protocol().local(
            est.protocol().broadcast(state), memory | turn, clients, None
        )
        kept = copy.deepcopy((state, message))
        after = est.protocol().update(state, message)
        np.testing.assert_equal((state, message), kept)
        state = after


@pytest.mark.parametrize(
    "cls", [eb.learning.LocalOnly, eb.learning.Ditto, eb.learning.FedProx, eb.learning.DPFedAvg]
)
def test_other_learners_take_optimizers(cls):
    more = (
        {"privacy": eb.ClientPrivacy(noise_multiplier=0.0)} if cls is eb.learning.DPFedAvg else {}
    )
    plain, adam = (
        cls(Linear(), **SOME, **more, optimizer=optimizer).fit(X, Y, groups=GROUPS).parameters_
        for optimizer in ("sgd", "adam")
    )
    assert np.isfinite(adam).all()
    assert np.abs(plain - adam).max() > 1e-3


@pytest.mark.parametrize(
    ("learner", "words"),
    [
        (eb.learning.FedAvg(optimizer="newton"), "optimizer must be one of"),
        (eb.learning.FedAvg(server_optimizer="yogi"), "server_optimizer must be one of"),
        (eb.learning.FedAvg(server_learning_rate=0.0), "server_learning_rate must be"),
        (eb.learning.Scaffold(optimizer="adam"), "optimizer must be 'sgd' in Scaffold"),
        (eb.learning.PFedMe(optimizer="momentum"), "optimizer must be 'sgd' in PFedMe"),
    ],
)
def test_wrong_optimizers(learner, words):
    with pytest.raises(ValueError, match=words):
        learner.fit(X, Y > 0, groups=GROUPS)
