"""The loop of rounds: whose noise is real, and which keys are new."""

import numpy as np
import pytest
from sklearn.base import clone

import ebfed as eb
from ebfed.channels import Clip, secure
from ebfed.engines import Cohort, converse
from ebfed.learning.dp_fed_avg import DPFedAvgRounds
from ebfed.models import Linear
from ebfed.report.view import view_of

RNG = np.random.default_rng(4)
GROUPS = np.repeat(np.arange(12), 5)
X, NOISE = RNG.normal(size=(60, 2)), eb.ClientPrivacy(noise_multiplier=1.0)
Y = X[:, 0] + RNG.normal(size=60)
WIDE = (-4.0, 4.0)


class Node(Cohort):
    """One node of a federation, some of whose clients do not answer."""

    def __init__(self, estimator, silent=0, **rows):
        self.node = clone(estimator)
        self.clients, self.memory = self.node.protocol().prepare(**rows)
        self.facts, self.silent = [self.node.protocol().describe(self.clients, self.memory)], silent

    def ask(self, sent, round_, turn):
        turn = turn.copy()
        turn[: self.silent] = -1
        memory = self.memory | {"turn": turn}
        message, self.memory = self.node.protocol().local(sent, memory, self.clients, "secure")
        return [message]


SERVERS = {
    "sums": (eb.learning.DPFedAvg(Linear(), n_rounds=2, privacy=NOISE), 2 * 3, 0),
    "classes": (eb.learning.FeO2(Linear(), n_rounds=2, privacy=NOISE, ratio=0.5), 2 * 3, 0),
    "users": (eb.learning.JointDPSGD(Linear(), n_rounds=2, privacy=NOISE), 2 * 3, 0),
    "mixture": (
        eb.MixtureEB(
            2,
            channel=Clip(radius=3.0),
            variances=1.0,
            trust="server",
            epsilon=2.0,
            delta=1e-5,
            n_rounds=2,
        ),
        2 * 4,
        0,
    ),
    "opt-out": (eb.OptOutMean(1.0, 1.0, epsilon=1.0, delta=1e-5, range=WIDE), 1, 2),
}


@pytest.mark.parametrize("name", SERVERS)
def test_where_privacy_is_real_a_server_draws_through_opendp(name, monkeypatch):
    pytest.importorskip("opendp")
    inner, drawn = secure.add_gaussian, []

    def add_gaussian(values, scale, rng):
        drawn.append((rng, values.size))
        return inner(values, scale, rng)

    for module in ("learning.privacy", "location.noisy_em", "location.opt_out_rounds"):
        module = __import__(f"ebfed.{module}", fromlist=["secure"])
        if hasattr(module, "secure"):
            monkeypatch.setattr(module.secure, "add_gaussian", add_gaussian)
        else:
            monkeypatch.setattr(module, "add_gaussian", add_gaussian)
    estimator, size, silent = SERVERS[name]
    rows = {"X": Y, "groups": GROUPS}
    if not isinstance(estimator, eb.MixtureEB | eb.OptOutMean):
        rows = {"X": X, "y": Y, "groups": GROUPS}

    server = clone(estimator)
    state = converse(server.protocol(), Node(estimator, silent, **rows))
    assert [rng for rng, _ in drawn] == ["secure"] * len(drawn)
    assert sum(count for _, count in drawn) == size
    assert not {"secure", "key"} & server.protocol().keep(state).keys()
    ledger = view_of(server.protocol().conclude(server.protocol().keep(state))).ledger
    assert not any("simulated" in row["assumptions"] for row in ledger)

    for seed, key in ((7, None), (None, np.array([1, 2], np.uint64))):
        drawn.clear()
        server = clone(estimator).set_params(random_state=seed)
        state = converse(server.protocol(), Node(estimator, silent, **rows), key)
        assert all(isinstance(rng, np.random.Generator) for rng, _ in drawn)
        assert sum(count for _, count in drawn) == size


def test_a_server_says_that_its_own_noise_is_simulated():
    pytest.importorskip("opendp")
    for trust in ("server", "none"):
        est = eb.learning.DPFedAvg(Linear(), n_rounds=2, random_state=0, privacy=clone(NOISE))
        est.set_params(privacy__trust=trust)
        state = converse(est.protocol(), Node(est, X=X, y=Y, groups=GROUPS))
        (row,) = est.protocol().conclude(est.protocol().keep(state)).privacy_.to_dict("records")
        assert row["assumptions"].startswith("simulated noise") == (trust == "server")


def test_a_generator_of_a_server_makes_a_new_key():
    class Noted(DPFedAvgRounds):
        def start(self, facts, key):
            keys.append(tuple(key))
            return super().start(facts, key)

    class Key(eb.learning.DPFedAvg):
        def protocol(self):
            return Noted(self)

    pytest.importorskip("opendp")
    keys = []
    for seed in (np.random.default_rng(0), np.random.default_rng(0), 5, 5, None, None):
        est = Key(Linear(), n_rounds=1, random_state=seed, privacy=NOISE)
        converse(
            est.protocol(),
            Node(eb.learning.DPFedAvg(Linear(), privacy=NOISE), X=X, y=Y, groups=GROUPS),
        )
    assert keys[2] == keys[3]
    assert len(set(keys)) == 5
