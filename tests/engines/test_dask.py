"""What passes between a fit and a Dask cluster, and what happens if a worker is lost."""

import os
import signal
import threading
import time

import numpy as np
import pytest

import ebfed as eb
from ebfed.engines import Dask

MEETING = threading.Barrier(2, timeout=30)


class Pupil:
    """A block that is no block of clients."""

    def __init__(self):
        self.seen = 0

    def meet(self):
        MEETING.wait()
        return threading.get_ident()

    def count(self, number):
        self.seen += number
        return self.seen

    def fail(self, error):
        raise error

    def rest(self, seconds):
        time.sleep(seconds)
        return os.getpid()


@pytest.fixture
def here():
    """Two workers with two threads each in this process, which speak TCP."""
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=2,
            processes=False,
            protocol="tcp",
            dashboard_address=None,
        ) as cluster,
        distributed.Client(cluster, direct_to_workers=True) as client,
    ):
        yield client


@pytest.fixture
def sent(here, monkeypatch):
    """Sizes of all that is sent over TCP, by whomever."""
    from distributed.comm.tcp import TCP

    write, sizes = TCP.write, []

    async def counted(self, *arguments, **options):
        sizes.append(await write(self, *arguments, **options))
        return sizes[-1]

    monkeypatch.setattr(TCP, "write", counted)
    return sizes


class NoWorkers:
    """A client of a cluster without workers."""

    def gather(self, futures):
        raise AssertionError

    def nthreads(self):
        return {}


def test_a_cluster_without_workers():
    engine = Dask(NoWorkers())
    with pytest.raises(RuntimeError, match="no workers"):
        eb.GaussianEB(engine=engine).fit(np.arange(6.0), groups=[0, 0, 1, 1, 2, 2])


@pytest.mark.slow
def test_blocks_stay_and_remember(here):
    engine = Dask(here, 3)
    placed = engine.place([Pupil() for _ in range(3)])
    for total in (1, 2, 3):
        assert engine.call(placed, "count", [(1,), (2,), (3,)]) == [total, 2 * total, 3 * total]
    del placed
    for _ in range(100):
        if not here.run_on_scheduler(_tasks):
            return
        time.sleep(0.1)
    raise AssertionError("workers hold blocks that were forgotten")


@pytest.mark.slow
def test_an_error_of_a_block_is_raised_as_it_is(here):
    placed = Dask(here, 1).place([Pupil()])
    with pytest.raises(TimeoutError, match="own"):
        Dask(here).call(placed, "fail", [(TimeoutError("own"),)])


@pytest.mark.slow
def test_blocks_of_one_worker_compute_at_a_time(here):
    placed = Dask(here).place([Pupil() for _ in range(4)])[:2]
    assert placed[0].address == placed[1].address, "two threads, two blocks"
    assert len(set(Dask(here).call(placed, "meet", [(), ()]))) == 2


@pytest.mark.slow
@pytest.mark.parametrize("learner", [eb.learning.FedAvg, eb.learning.AdaPeD])
def test_traffic(here, sent, learner):
    """Rows and memory pass once, and in each round the broadcast and a sum of each block."""
    rng = np.random.default_rng(0)
    m, p, rounds, blocks = 200, 20, 20, 2
    groups = np.repeat(np.arange(m), 100)
    X = rng.normal(size=(len(groups), p))
    y = (X[:, 0] + rng.normal(size=len(groups)) > 0).astype(int)
    settings = {"n_rounds": rounds, "batch_size": 10, "local_steps": 1, "random_state": 0}
    fit = learner(engine=Dask(here, blocks), **settings)
    del sent[:]
    fit.fit(X, y, groups=groups)
    traffic = sum(sent)
    size = 8 * sum(values.size for values in fit.shared_.values())
    memory = 2 * (
        m * size + 2 * m * rounds * 4
    )  # own parameters, losses and scores, there and back
    state = rounds * (2 * blocks * size + m)  # broadcasts, sums, and whose turn it is
    assert traffic > X.nbytes, "something must be counted"
    assert traffic < 1.3 * (X.nbytes + y.nbytes + memory + state)


@pytest.mark.slow
@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("moment", ["before", "during"])
def test_a_worker_that_is_lost(moment, direct):
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster, direct_to_workers=direct) as client,
    ):
        engine = Dask(client)
        placed = engine.place([Pupil(), Pupil()])
        first, _ = engine.call(placed, "rest", [(0,), (0,)])
        kill = threading.Timer(1.0 if moment == "during" else 0.0, os.kill, (first, signal.SIGKILL))
        kill.start()
        if moment == "before":
            kill.join()
        with pytest.raises(RuntimeError, match=f"{placed[0].address} is lost.*checkpoint"):
            engine.call(placed, "rest", [(60,), (0,)])


def _tasks(dask_scheduler):
    return list(dask_scheduler.tasks)
