"""Learners on a Dask cluster, and on nodes that keep what is theirs on their own disks."""

import numpy as np
import pytest
from sklearn.base import clone

import ebfed as eb
from ebfed import wire
from ebfed.engines import Dask, join, journal
from ebfed.engines.flower import Node
from ebfed.models import MLP, Linear
from ebfed.streams import make_key

RNG = np.random.default_rng(11)
GROUPS = np.repeat(np.arange(30), RNG.integers(2, 9, 30))
X = RNG.normal(size=(len(GROUPS), 3))
Y = (X[:, 0] + RNG.normal(size=30)[GROUPS] > 0).astype(int)
PLACES = {"north": GROUPS < 11, "south": GROUPS >= 11}


def privacy(**settings):
    return eb.ClientPrivacy(noise_multiplier=1.0, **settings)


BUDGET = eb.ClientPrivacy(epsilon=1.0)
COMMON = {"n_rounds": 4, "random_state": 1}
BATCHES = COMMON | {"batch_size": 2, "local_steps": 2, "sample_rate": 0.5}
FITS = {
    "FedAvg": eb.learning.FedAvg(fine_tune=3, **BATCHES),
    "AdaPeD": eb.learning.AdaPeD(MLP(4), unsampled=True, **BATCHES),
    "PPSGD": eb.learning.PPSGD(
        Linear(), privacy=privacy(), sample_rate=0.5, batch_size=2, **COMMON
    ),
    "DPFedAvg": eb.learning.DPFedAvg(
        privacy=eb.ClientPrivacy(epsilon=1.0, clip_quantile=0.5), **BATCHES
    ),
    "DPFedAvg, nobody trusted": eb.learning.DPFedAvg(privacy=privacy(trust="none"), **BATCHES),
    "FeO2": eb.learning.FeO2(privacy=privacy(trust="none"), ratio=0.5, **BATCHES),
    "JointDPSGD": eb.learning.JointDPSGD(
        personal=["intercept"], privacy=BUDGET, sample_rate=0.3, **COMMON
    ),
}


@pytest.fixture(scope="module")
def cluster():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as it,
        distributed.Client(it) as client,
    ):
        yield client


@pytest.mark.slow
@pytest.mark.parametrize("name", FITS)
def test_dask(cluster, name):
    expected = clone(FITS[name]).fit(X, Y, groups=GROUPS)
    fitted = clone(FITS[name]).set_params(engine=Dask(cluster, 5)).fit(X, Y, groups=GROUPS)
    np.testing.assert_array_equal(fitted.parameters_, expected.parameters_)


class Federation:
    """Two nodes and a server that tell one another what Flower would carry."""

    def __init__(self, estimator, folder, **settings):
        self.server = clone(estimator)
        self.nodes = {
            name: Node(
                name,
                clone(estimator),
                lambda mine=mine: {"X": X[mine], "y": Y[mine], "groups": GROUPS[mine]},
                folder / name,
                **{"seed": 1, "budget": np.inf} | settings,
            )
            for name, mine in PLACES.items()
        }
        self.facts = [
            node.answer(1, {"exchange": "roll call"})["facts"] for node in self.nodes.values()
        ]

    def ask(self, sent, turn):
        first, messages = 0, []
        for node, facts in zip(self.nodes.values(), self.facts, strict=True):
            last = first + len(facts["n"])
            question = {"exchange": "round", "sent": sent, "turn": turn[first:last], "first": first}
            answer = node.answer(1, question)
            if "failure" in answer:
                raise RuntimeError(answer["failure"])
            self.server.protocol().check_message(answer["message"], facts, sent, turn[first:last])
            messages.append(answer["message"])
            first = last
        return join(messages)

    def hold(self):
        state = self.server.protocol().start(join(self.facts), make_key(1))
        while not state["done"]:
            sent = self.server.protocol().broadcast(state)
            message = self.ask(sent, state["turn"])
            again = self.ask(sent, state["turn"])  # as after a reply that was lost
            assert wire.pack(message) == wire.pack(again)
            state = self.server.protocol().update(state, message)
        sent = self.server.protocol().broadcast(state)
        for node in self.nodes.values():
            answer = node.answer(1, {"exchange": "result", "sent": sent, "used": True})
            assert "failure" not in answer
        return self.server.protocol().conclude(self.server.protocol().keep(state))


@pytest.mark.parametrize("name", FITS)
def test_nodes(name, tmp_path):
    """What two nodes have in the end is what one process would have computed."""
    expected = clone(FITS[name]).fit(X, Y, groups=GROUPS)
    server = Federation(FITS[name], tmp_path).hold()
    tables = [
        np.loadtxt(tmp_path / place / "run-1" / "estimate.csv", delimiter=",", skiprows=1)
        for place in PLACES
    ]
    np.testing.assert_array_equal(np.vstack(tables)[:, 2:], expected.parameters_)
    for shared, value in expected.shared_.items():
        np.testing.assert_array_equal(server.shared_[shared], value)
    assert str(server.summary())
    assert np.isfinite(server.predict_proba(X)).all() if name != "PPSGD" else True
    for place in PLACES:
        rows = journal.read(tmp_path / place / "ledger.jsonl")
        entered = {row["round"] for row in rows if row["kind"] == "release"}
        assert sorted(entered) == [0, 1, 2, 3], "every round is entered"


def test_a_budget_ends_a_federation(tmp_path):
    estimator = FITS["DPFedAvg, nobody trusted"]
    federation = Federation(estimator, tmp_path, budget=10.0)
    with pytest.raises(RuntimeError, match="ValueError"):
        federation.hold()
    for place in PLACES:  # refused before the first round
        assert [row["kind"] for row in journal.read(tmp_path / place / "ledger.jsonl")] == ["facts"]
