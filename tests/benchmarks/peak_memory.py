"""Peak memory of federated averaging beyond its rows, and rounds beside plain loops in PyTorch.

python tests/benchmarks/peak_memory.py [threads]

A thousand clients, of whom ten take part in a round; a network of 1e6 parameters. Then rounds of
ten clients, with steps on all rows or on batches: ten rounds of ours and ten of a loop over clients
in PyTorch in turn. What is printed is the median of ratios of neighbours, of processor time with
one thread, which other work on the machine disturbs less, and of time that passes with more. An aim
that is missed is printed as MISSED, and nothing fails.
"""

import sys
import time
import tracemalloc

import numpy as np
import torch
from threadpoolctl import threadpool_limits

import ebfed as eb
from ebfed.kernels.threads import one_thread
from ebfed.models import MLP, Torch
from ebfed.models.torch import lenet

CLIENTS, COHORT, PAIRS, ROUNDS = 1000, 10, 9, 10


def told(name, value, aim, unit=""):
    missed = "" if aim is None else f"  aim {aim:g}{'  MISSED' if value > aim else ''}"
    print(f"{name:<54}{value:8.2f}{unit}{missed}", flush=True)


def table(rows, features, clients, dtype):
    rng = np.random.default_rng(0)
    X = rng.random((clients * rows, features)).astype(dtype)
    return X, rng.integers(0, 10, len(X)), np.repeat(np.arange(clients), rows)


def memory(dtype):
    """Peak of a fit of three rounds, in MB, beyond rows that were read."""
    X, y, groups = table(2, 1000, CLIENTS, dtype)
    some = {"n_rounds": 3, "sample_rate": COHORT / CLIENTS, "dtype": dtype, "random_state": 0}
    est = eb.learning.FedAvg(MLP(990), **some)
    clients, kept = est.protocol().prepare(X, y, groups=groups)
    tracemalloc.start()
    est._fit(clients, kept)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def ours(model, rows, features, dtype, steps=1, size=None):
    """Return a function that makes a round; `size` is the number of rows of a batch."""
    X, y, groups = table(rows, features, COHORT, dtype)
    some = {"dtype": dtype, "local_steps": steps, "batch_size": size, "random_state": 0}
    est = eb.learning.FedAvg(model, n_rounds=10**6, **some)
    clients, kept = est.protocol().prepare(X, y, groups=groups)
    now = {
        "state": est.protocol().start(
            est.protocol().describe(clients, kept), np.zeros(2, np.uint64)
        ),
        "kept": kept,
    }

    def step():
        state = now["state"]
        turn = {"turn": state["turn"]}
        message, now["kept"] = est.protocol().local(
            est.protocol().broadcast(state), now["kept"] | turn, clients, None
        )
        now["state"] = est.protocol().update(state, message)

    return step


def loop(module, rows, features, layout, dtype, steps=1, size=None):
    """Return a function that makes the same round as a loop over clients."""
    size = size or rows
    X, y, _ = table(rows, features, COHORT, dtype)
    data = torch.from_numpy(X).reshape(COHORT, rows, *layout)
    target = torch.from_numpy(y).reshape(COHORT, rows)
    start = [p.detach().clone() for p in module.parameters()]

    def step():
        change = [torch.zeros_like(p) for p in start]
        for i in range(COHORT):
            with torch.no_grad():
                for p, q in zip(module.parameters(), start, strict=True):
                    p.copy_(q)
            optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
            order = torch.randperm(rows) if size < rows else None
            for k in range(steps):
                some = (
                    ... if order is None else order[torch.arange(k * size, (k + 1) * size) % rows]
                )
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(module(data[i][some]), target[i][some])
                loss.backward()
                optimizer.step()
            for c, p, q in zip(change, module.parameters(), start, strict=True):
                c += p.detach() - q
        for q, c in zip(start, change, strict=True):
            q += c / COHORT

    return step


def layers(features, hidden, dtype):
    nn = torch.nn
    network = nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, 10))
    return network.to(getattr(torch, dtype))


def ratio(one, other, clock):
    """Return the median over pairs of the time of rounds of one by that of the other."""
    ratios = []
    for pair in range(PAIRS + 1):
        times = []
        for step in (one, other):
            began = clock()
            for _ in range(ROUNDS):  # one after the other, as in a fit
                step()
            times.append(clock() - began)
        if pair:
            ratios.append(times[0] / times[1])
    return float(np.median(ratios))


def main(threads):
    torch.set_num_threads(threads)
    clock = time.process_time if threads == 1 else time.perf_counter
    for dtype in ("float64", "float32"):
        told(f"peak memory, 1e6 parameters, {dtype}", memory(dtype), 200, " MB")
    print(f"threads of both: {threads}")
    with threadpool_limits(threads, user_api="blas"), one_thread():
        image = (1, 28, 28)
        cnn = ours(Torch(lenet(), image), 60, 784, "float32")
        plain = loop(lenet(), 60, 784, image, "float32")
        told("round of a CNN", ratio(cnn, plain, clock), 1.3)
        module = ours(Torch(layers(784, 50, "float32")), 60, 784, "float32")
        plain = loop(layers(784, 50, "float32"), 60, 784, (784,), "float32")
        told("round of MLP(50) as a module", ratio(module, plain, clock), None)
        for steps, size in ((1, None), (5, None), (10, 20)):
            for hidden, features, rows in ((50, 784, 60), (990, 1000, 60 if size else 10)):
                for dtype in ("float64", "float32"):
                    network = layers(features, hidden, dtype)
                    plain = loop(network, rows, features, (features,), dtype, steps, size)
                    mine = ours(MLP(hidden), rows, features, dtype, steps, size)
                    what = f"MLP({hidden}), {dtype}, {steps} step{'s' * (steps > 1)}"
                    what += f" of {size or rows} of {rows} rows"
                    told(what, ratio(mine, plain, clock), 0.4)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
