"""Private rounds without a trusted server: the noise of one, and its accuracy."""

import numpy as np
import pytest
from sklearn.base import clone

import ebfed as eb
from ebfed.engines import join
from ebfed.engines.secure_sum import LocalNodes, secure_sum, terms
from ebfed.learning.node_sums import NodeSums
from ebfed.streams import Stream, make_key

NAMES = ["east", "north", "south"]
RNG = np.random.default_rng(5)
GROUPS = np.repeat(np.arange(300), 8)
X = RNG.normal(size=(len(GROUPS), 4))
Y = X @ [1.5, -1.0, 0.5, 0.0] + 0.5 * RNG.normal(size=len(GROUPS)) > 0


def rows_of(i, hospital=GROUPS % 3):
    own = hospital == i
    return {"X": X[own], "y": Y[own], "groups": GROUPS[own]}


class Hospitals:
    """Three nodes with 100 clients each, and a server that no node trusts."""

    def __init__(self, learner, survivors=2):
        self.learner, self.survivors = learner, survivors
        # the server's copy adds no noise: the sum has it
        self.server = clone(learner).set_params(privacy=learner.privacy.silenced())
        self.nodes = {name: [clone(learner)] for name in NAMES}
        for name, node in self.nodes.items():
            node += node[0].protocol().prepare(**rows_of(NAMES.index(name)))
        facts = join([node.protocol().describe(*own) for node, *own in self.nodes.values()])
        self.state = self.server.protocol().start(facts, make_key(0))
        self.sums = []

    def round(self, last=None):
        """Hold a round; `last` names lost nodes, with the last step that each answers."""
        sent, turn = self.server.protocol().broadcast(self.state), self.state["turn"]
        exchange = self.learner.protocol().exchange(300)
        sums = NodeSums(exchange, sent, nodes=3, rows=100, survivors=self.survivors)
        vectors = {}
        for i, (name, node) in enumerate(self.nodes.items()):
            estimator, clients, memory = node
            memory = memory | {"turn": turn[100 * i : 100 * (i + 1)]}
            stream = Stream(make_key(1), sent["round"], 100 * i)
            message, node[2] = estimator.protocol().local(sent, memory, clients, stream)
            vectors[name] = sums.encode(message, np.random.default_rng([sent["round"], i]))
        agreed = terms(f"run {sent['round']}", NAMES, sums.grid.size)
        found = secure_sum(agreed, sent["round"], LocalNodes(agreed, vectors, last).ask)
        self.state = self.server.protocol().update(self.state, sums.decode(found.total))
        self.sums.append(found)
        return sums

    def fit(self, rounds, lost=None):
        """Hold rounds; `lost` has lost nodes by round."""
        for round_ in range(rounds):
            self.round((lost or {}).get(round_))
        w = self.state["shared"]["w"]
        predicted = self.server.protocol().predictor(self.state).predict(w[None], X[None])
        return np.mean(predicted[0].argmax(axis=1) == Y)


def learner(**privacy):
    return eb.learning.FedAvg(
        n_rounds=20,
        local_steps=3,
        learning_rate=0.5,
        privacy=eb.ClientPrivacy(**privacy),
        sampling="poisson",
        random_state=0,
    )


def test_a_round_is_that_of_a_trusted_server_without_noise():
    """No noise: the sum over nodes is the sum over clients, up to the grid."""
    est = learner(noise_multiplier=0)
    hospitals = Hospitals(est)
    start = {name: x.copy() for name, x in hospitals.state["shared"].items()}
    sums = hospitals.round()
    central = Hospitals(est)
    messages = []
    sent, turn = central.server.protocol().broadcast(central.state), central.state["turn"]
    for i, (node, clients, memory) in enumerate(central.nodes.values()):
        memory = memory | {"turn": turn[100 * i : 100 * (i + 1)]}
        messages.append(
            node.protocol().local(sent, memory, clients, Stream(make_key(1), 0, 100 * i))[0]
        )
    state = central.server.protocol().update(central.state, join(messages))
    for name, expected in state["shared"].items():
        found = hospitals.state["shared"][name]
        # rounding of 300 rows to the grid, divided by the number of clients
        tolerance = 6 * np.sqrt(300) / 2 * sums.grid.step * sums._units[name][1] / 300
        np.testing.assert_allclose(found, expected, atol=tolerance)
        assert np.abs(found - start[name]).max() > 1000 * tolerance


@pytest.mark.parametrize("quantile", [None, 0.5])
def test_noise_and_account_are_those_of_a_trusted_server(quantile):
    est = learner(epsilon=4.0, clip_quantile=quantile)
    hospitals = Hospitals(est, survivors=None)
    sums, exchange = hospitals.round(), est.protocol().exchange(300)
    assert sums.grid.multiplier == pytest.approx(exchange.multiplier, rel=1e-12)
    scales, bit = exchange.scales(sums.sent)
    assert sums.grid.noise(3) == pytest.approx(1.0, rel=1e-4)  # in units of each part's noise
    assert {name: scale for name, (_, scale) in sums._units.items()} == scales | (
        {} if quantile is None else {"bit": bit}
    )


def test_decoded_parts_have_the_noise_of_each():
    """Of clients that send nothing, the sum is noise: that of changes, and that of bits."""
    est = learner(epsilon=4.0, clip_quantile=0.5, clip=0.3)
    hospitals = Hospitals(est)
    sent = hospitals.server.protocol().broadcast(hospitals.state)
    sums = NodeSums(est.protocol().exchange(300), sent, nodes=3, rows=100)
    size = len(sent["shared"]["w"])
    nothing = {"changes": {"w": np.zeros((100, size))}, "bit": np.zeros((100, 1))}
    rng = np.random.default_rng(0)
    drawn = [sums.decode(sum(sums.encode(nothing, rng) for _ in range(3))) for _ in range(400)]
    scales, bit = est.protocol().exchange(300).scales(sent)
    changes = np.concatenate([each["changes"]["w"].ravel() for each in drawn])
    # the error of a standard deviation is 3.5 % of 400 numbers, and less of more
    assert changes.std() == pytest.approx(scales["w"], rel=5 * 0.71 / np.sqrt(changes.size))
    assert np.std([each["bit"] for each in drawn]) == pytest.approx(bit, rel=0.18)


def test_it_learns_as_with_a_trusted_server_and_when_nodes_are_lost():
    """Twenty rounds; a node is lost before its vector in two rounds, and after it in two."""
    est = learner(epsilon=4.0)
    central = clone(est).fit(X, Y, groups=GROUPS).score(X, Y, groups=GROUPS)
    lost = {3: {"south": "masked"}, 4: {"south": ""}, 5: {"south": "shares"}, 9: {"east": "masked"}}
    hospitals = Hospitals(est)
    found = hospitals.fit(20, lost)
    assert central > 0.85
    assert found == pytest.approx(central, abs=0.02)  # other noise
    assert [len(each.counted) for each in hospitals.sums].count(2) == 2


def test_noise_that_is_not_of_one_sum_is_refused():
    est = eb.learning.FeO2(privacy=eb.ClientPrivacy(epsilon=4.0), n_rounds=2)
    with pytest.raises(ValueError, match="got OptOutExchange"):
        NodeSums(est.protocol().exchange(10), {}, nodes=2, rows=5)


def test_rows_that_are_not_clipped_are_refused():
    est = learner(epsilon=4.0)
    hospitals = Hospitals(est)
    sent = hospitals.server.protocol().broadcast(hospitals.state)
    sums = NodeSums(est.protocol().exchange(300), sent, nodes=3, rows=100)
    long = {"changes": {"w": np.ones((1, len(sent["shared"]["w"])))}}
    with pytest.raises(ValueError, match="rows must be finite, of norms"):
        sums.encode(long, np.random.default_rng(0))
