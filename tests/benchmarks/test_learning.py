"""A round of federated averaging beside the matrix products it is made of, and a loop over clients.

1,000 clients with 60 rows of 784 features and ten classes, of whom 100 take part in a round: one
full-batch step of multinomial logistic regression each. "matrix products" are the two batched ones
that no implementation can do without: outputs, and gradients.
"""

from functools import cache

import numpy as np
import pytest
from test_speed import Contender

import ebfed as eb
from ebfed.kernels.threads import one_thread
from ebfed.models import Softmax

CLIENTS, COHORT, ROWS, FEATURES, CLASSES = 1000, 100, 60, 784, 10
ROUNDS = 20


@cache
def table():
    rng = np.random.default_rng(0)
    X = rng.random((CLIENTS * ROWS, FEATURES))
    y = rng.integers(0, CLASSES, CLIENTS * ROWS)
    return X, y, np.repeat(np.arange(CLIENTS), ROWS)


@cache
def prepared():
    """Return an estimator, its clients, and what a round begins with."""
    X, y, groups = table()
    est = eb.learning.FedAvg(
        Softmax(), n_rounds=10**6, sample_rate=COHORT / CLIENTS, random_state=0
    )
    clients, memory = est.protocol().prepare(X, y, groups=groups)
    state = est.protocol().start(est.protocol().describe(clients, memory), np.zeros(2, np.uint64))
    return est, clients, memory, state


def rounds():
    """Rounds as `fit` makes them, between its reading of rows and its last words."""
    est, clients, memory, state = prepared()
    with one_thread():
        for _ in range(ROUNDS):
            sent = est.protocol().broadcast(state)
            message, memory = est.protocol().local(
                sent, memory | {"turn": state["turn"]}, clients, None
            )
            state = est.protocol().update(state, message)
    return state


def products():
    """Both products for each of the cohort, on arrays that lie ready."""
    X = table()[0][: COHORT * ROWS].reshape(COHORT, ROWS, FEATURES)
    W = np.zeros((1, FEATURES, CLASSES))
    gradient = np.empty((COHORT, FEATURES, CLASSES))
    with one_thread():
        for _ in range(ROUNDS):
            slope = X @ W
            np.matmul(X.swapaxes(1, 2), slope, out=gradient)


def torch_loop():
    """The same rounds as a plain loop over clients in PyTorch, in float64 as ours."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    X, y, _ = table()
    data = torch.from_numpy(X).reshape(CLIENTS, ROWS, FEATURES)
    target = torch.from_numpy(y).reshape(CLIENTS, ROWS)
    shared = torch.nn.Linear(FEATURES, CLASSES).double()
    rng = np.random.default_rng(0)
    for _ in range(ROUNDS):
        start = [p.detach().clone() for p in shared.parameters()]
        change = [torch.zeros_like(p) for p in start]
        for i in rng.permutation(CLIENTS)[:COHORT]:
            model = torch.nn.Linear(FEATURES, CLASSES).double()
            with torch.no_grad():
                for p, q in zip(model.parameters(), start, strict=True):
                    p.copy_(q)
            optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
            torch.nn.functional.cross_entropy(model(data[i]), target[i]).backward()
            optimiser.step()
            for c, p, q in zip(change, model.parameters(), start, strict=True):
                c += p.detach() - q
        with torch.no_grad():
            for p, c in zip(shared.parameters(), change, strict=True):
                p += c / COHORT


WORKLOADS = {
    "20 rounds, 100 of 1,000 clients": [
        Contender("ebfed", rounds),
        Contender("numpy matrix products", products, 3.0),
        Contender("torch loop over clients", torch_loop),
    ]
}


CASES = [(workload, each) for workload, contenders in WORKLOADS.items() for each in contenders]


@pytest.mark.parametrize(
    ("workload", "contender"), CASES, ids=[f"{workload}-{each.name}" for workload, each in CASES]
)
def test_learning(benchmark, workload, contender):
    benchmark.group = workload
    benchmark.extra_info = {
        "contender": contender.name,
        "target": contender.target,
        "statistic": "median",
    }
    benchmark.pedantic(contender.run, rounds=5, warmup_rounds=1)
