"""A node sends its sum over clients, and nothing else changes."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import ebfed as eb
from ebfed import wire
from ebfed.learning.exchange import Exchange
from ebfed.learning.fed_avg import FedAvgRounds
from ebfed.models import MLP, Linear, Softmax
from ebfed.streams import Stream
from ebfed.testing.nodes import fit_on_nodes

RNG = np.random.default_rng(2)
GROUPS = np.repeat(np.arange(20), 6)
X = RNG.normal(size=(120, 4)) * np.exp(RNG.normal(size=20))[GROUPS, None]
Y = (X[:, 0] + RNG.normal(size=20)[GROUPS] > 0).astype(int)
NODES = (range(3), range(3, 4), range(4, 20))
NOISE = {"noise_multiplier": 0.5, "clip": 0.3}
COMMON = {"n_rounds": 4, "learning_rate": 0.5, "random_state": 0}
LEARNERS = {
    "FedAvg": eb.learning.FedAvg(MLP(5), local_steps=2, sample_rate=0.5, **COMMON),
    "Ditto": eb.learning.Ditto(Softmax(), **COMMON),
    "PFedMe": eb.learning.PFedMe(Linear(), **COMMON),
    "PerFedAvg": eb.learning.PerFedAvg(Softmax(), **COMMON),
    "FedProx": eb.learning.FedProx(Softmax(), **COMMON),
    "Scaffold": eb.learning.Scaffold(Softmax(), local_steps=2, sample_rate=0.5, **COMMON),
    "HierarchicalEB": eb.learning.HierarchicalEB(MLP(5), fine_tune=4, sample_rate=0.5, **COMMON),
    "HierarchicalEB, private": eb.learning.HierarchicalEB(
        Softmax(),
        fine_tune=4,
        privacy=eb.ClientPrivacy(**NOISE, clip_quantile=0.5),
        sample_rate=0.5,
        **COMMON,
    ),
    "FedMutual": eb.learning.FedMutual(Softmax(), **COMMON),
    "QuPeD": eb.learning.QuPeD(Softmax(), **COMMON),
    "AdaPeD": eb.learning.AdaPeD(Softmax(), **COMMON),
    "DPFedAvg": eb.learning.DPFedAvg(
        Softmax(), privacy=eb.ClientPrivacy(**NOISE, clip_quantile=0.5), sample_rate=0.5, **COMMON
    ),
    "DPFedAvg, noise of clients": eb.learning.DPFedAvg(
        Softmax(), privacy=eb.ClientPrivacy(**NOISE, trust="none"), **COMMON
    ),
    "FeO2": eb.learning.FeO2(Softmax(), privacy=eb.ClientPrivacy(**NOISE), ratio=0.3, **COMMON),
    "PPSGD": eb.learning.PPSGD(Softmax(), privacy=eb.ClientPrivacy(**NOISE), **COMMON),
    "JointDPSGD": eb.learning.JointDPSGD(
        Softmax(),
        personal=["intercept"],
        privacy=eb.ClientPrivacy(**NOISE),
        sample_rate=0.5,
        n_rounds=4,
        random_state=0,
    ),
}


def begin(est):
    clients, memory = est.protocol().prepare(X, Y, groups=GROUPS)
    facts = est.protocol().describe(clients, memory)
    state = est.protocol().start(facts, np.array([0, 1], np.uint64))
    sent = est.protocol().broadcast(state)
    message, _ = est.protocol().local(
        sent, memory | {"turn": state["turn"]}, clients, Stream(state["key"], state["round"])
    )
    return state, sent, facts, message


@pytest.mark.parametrize("name", LEARNERS)
def test_nodes_of_any_size_give_the_fit_of_one_process(name):
    est = LEARNERS[name]
    rows = [np.isin(GROUPS, list(node)) for node in NODES]
    nodes, *_ = fit_on_nodes(est, [{"X": X[i], "y": Y[i], "groups": GROUPS[i]} for i in rows])
    here = clone(est).fit(X, Y, groups=GROUPS)
    for name, value in here.shared_.items():
        np.testing.assert_array_equal(nodes[0].shared_[name], value)
    parameters = np.vstack([node.parameters_ for node in nodes])
    np.testing.assert_array_equal(parameters, here.parameters_)


@pytest.mark.parametrize("name", LEARNERS)
def test_a_node_sends_one_row(name):
    est = clone(LEARNERS[name])
    state, sent, facts, message = begin(est)
    sums = est.protocol().add_up(message)
    invited = (state["turn"] == 0).sum()
    assert sums["clients"].tolist() == [[invited]]
    assert {len(values) for values in sums["changes"].values()} == {1}
    est.protocol().check_message(sums, facts, sent, state["turn"])
    size = sum(value.size for value in sent["shared"].values())
    # besides the numbers there are their names, a few hundred bytes whatever their number
    assert len(wire.pack(sums)) < 8 * size + 600
    after, before = (est.protocol().update(state, each)["shared"] for each in (sums, message))
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value)


@pytest.mark.parametrize("name", LEARNERS)
def test_clients_may_be_added_up_one_after_the_other(name, monkeypatch):
    """What is kept of them at once changes nothing, to the last bit."""
    at_once = clone(LEARNERS[name]).fit(X, Y, groups=GROUPS)
    monkeypatch.setattr("ebfed.learning.rounds.KEPT", 1)
    monkeypatch.setattr("ebfed.learning.minibatches.CELLS", 1)
    one_by_one = clone(LEARNERS[name]).fit(X, Y, groups=GROUPS)
    for part, value in at_once.shared_.items():
        np.testing.assert_array_equal(one_by_one.shared_[part], value)
    np.testing.assert_array_equal(one_by_one.parameters_, at_once.parameters_)
    pd.testing.assert_frame_equal(one_by_one.history_, at_once.history_)


def test_sums_of_small_portions_are_one_row(monkeypatch):
    monkeypatch.setattr("ebfed.learning.rounds.KEPT", 1)
    monkeypatch.setattr("ebfed.learning.minibatches.CELLS", 1)
    est = clone(LEARNERS["FedAvg"])
    state, sent, facts, message = begin(est)
    assert len(message["changes"]["w"]) == 1
    assert message["clients"] == (state["turn"] == 0).sum()
    assert est.protocol().add_up(message) is message
    est.protocol().check_message(message, facts, sent, state["turn"])


def test_changes_that_differ_a_lot_are_added_up_exactly():
    """They need two rows, and the result is the same."""
    est = clone(LEARNERS["FedAvg"])
    state, sent, facts, message = begin(est)
    scale = 10.0 ** np.arange(len(message["changes"]["w"]))[:, None]
    message = message | {"changes": {"w": message["changes"]["w"] / 3 * scale}}
    sums = est.protocol().add_up(message)
    assert 1 < len(sums["changes"]["w"]) < 4
    est.protocol().check_message(sums, facts, sent, state["turn"])
    after, before = (est.protocol().update(state, each)["shared"]["w"] for each in (sums, message))
    np.testing.assert_array_equal(after, before)


def test_wrong_sums_are_refused():
    est = clone(LEARNERS["DPFedAvg"])
    state, sent, facts, message = begin(est)
    sums = est.protocol().add_up(message)
    w, clip = sums["changes"]["w"], sent["clip"]
    c = float(sums["clients"][0, 0])
    long = np.zeros_like(w)
    long[0, 0] = c * clip * 1.001

    def refused(why, **parts):
        with pytest.raises(ValueError, match=why):
            est.protocol().check_message(sums | parts, facts, sent, state["turn"])

    refused("clients must be", clients=np.array([[c + 1]]))
    refused("clients must be", clients=np.array([[c], [0.0]]))
    refused("norms of at most", changes={"w": long})
    refused("norms of at most", changes={"w": np.vstack([long / 2, long / 2])})
    refused("w must be a sum", changes={"w": np.zeros((0, w.shape[1]))})
    refused("w must be a sum", changes={"w": np.zeros((65, w.shape[1]))})
    refused("w must be float64", changes={"w": w[:, :-1]})
    refused("w must be finite", changes={"w": w * np.nan})
    refused("bit must be a sum", bit=np.array([[c / 2 + 0.5]]))
    refused("must have the parts", more=w)


def test_a_sum_may_be_as_long_as_all_its_clients_allow():
    est = clone(LEARNERS["DPFedAvg"])
    state, sent, facts, message = begin(est)
    sums = est.protocol().add_up(message)
    w = np.zeros_like(sums["changes"]["w"])
    w[0, 0] = sums["clients"][0, 0] * sent["clip"]
    est.protocol().check_message(sums | {"changes": {"w": w}}, facts, sent, state["turn"])


class Median(Exchange):
    """Needs each client's change."""

    needs_sums = False

    def average(self, state, sent, message, rng):
        return {name: np.median(x, axis=0) for name, x in message["changes"].items()}, state


class MedianRounds(FedAvgRounds):
    def exchange(self, n_clients):
        return Median(self.schedule, n_clients)


class MedianFedAvg(eb.learning.FedAvg):
    def protocol(self):
        return MedianRounds(self)


def test_a_method_that_needs_rows_has_them():
    est = MedianFedAvg(Softmax(), **COMMON)
    state, sent, facts, message = begin(est)
    assert est.protocol().add_up(message) is message
    with pytest.raises(ValueError, match="must have the parts"):
        est.protocol().check_message(
            clone(LEARNERS["Ditto"]).protocol().add_up(message), facts, sent, state["turn"]
        )


def test_a_method_that_sends_nothing_adds_up_nothing():
    est = eb.learning.LocalOnly(Softmax(), **COMMON)
    state, sent, facts, message = begin(est)
    assert est.protocol().add_up(message) == {"changes": {}}
    est.protocol().check_message(est.protocol().add_up(message), facts, sent, state["turn"])


def test_a_node_without_invited_clients_adds_nothing():
    est = eb.learning.FedAvg(Softmax(), **COMMON)
    clients, memory = est.protocol().prepare(X, Y, groups=GROUPS)
    facts = est.protocol().describe(clients, memory)
    state = est.protocol().start(facts, np.array([0, 1], np.uint64))
    sent, nobody = est.protocol().broadcast(state), np.full(20, -1, np.int8)
    message, _ = est.protocol().local(
        sent, memory | {"turn": nobody}, clients, Stream(state["key"], 0)
    )
    sums = est.protocol().add_up(message)
    est.protocol().check_message(sums, facts, sent, nobody)
    after = est.protocol().update(state | {"turn": nobody}, sums)
    np.testing.assert_array_equal(after["shared"]["w"], state["shared"]["w"])
