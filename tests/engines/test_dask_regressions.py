"""Regressions on a Dask cluster, and on nodes that answer in many rounds."""

import numpy as np
import pytest
from sklearn.base import clone

import ebfed as eb
from ebfed.channels import Gaussian
from ebfed.engines import Dask, journal
from ebfed.engines.flower import Node

RNG = np.random.default_rng(9)
GROUPS = np.repeat(np.arange(80), RNG.integers(4, 9, 80))
X = RNG.normal(size=(len(GROUPS), 2))
THETA = RNG.normal(0, 0.5, (80, 3)) + np.where(np.arange(80) % 2, 2.0, -2.0)[:, None]
PREDICTOR = np.einsum("np,np->n", np.column_stack([np.ones(len(X)), X]), THETA[GROUPS])
Y = PREDICTOR + RNG.normal(size=len(X))

PRIVATE = eb.AdaMix(
    2,
    noise_variance=1.0,
    channel=Gaussian(2.0, 1e-6, (-5.0, 5.0)),
    n_rounds=3,
    random_state=1,
)
FITS = {
    "linear": (eb.LinearEB(), Y),
    "logistic": (eb.LogisticEB(random_state=1), Y > 0),
    "mixture of regressions": (eb.MixtureLinearEB(2, random_state=1), Y),
    "AdaMix": (eb.AdaMix(2, random_state=1), Y),
    "AdaMix through noise": (PRIVATE, Y),
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
    estimator, y = FITS[name]
    expected = clone(estimator).fit(X, y, groups=GROUPS)
    fitted = clone(estimator).set_params(engine=Dask(cluster, 5)).fit(X, y, groups=GROUPS)
    np.testing.assert_array_equal(fitted.posterior().mean, expected.posterior().mean)
    np.testing.assert_array_equal(
        fitted.predict(X, groups=GROUPS), expected.predict(X, groups=GROUPS)
    )


def hold(estimator, y, node):
    """Hold a fit with one node; returns what the server told it in the end."""
    facts = node.answer(1, {"exchange": "roll call"})["facts"]
    server = clone(estimator)
    state = server.protocol().start(facts, np.array([1, 2], np.uint64))
    while not state["done"]:
        sent = server.protocol().broadcast(state)
        question = {"exchange": "round", "sent": sent, "turn": state["turn"], "first": 0}
        answer = node.answer(1, question)
        if "failure" in answer:
            return answer
        server.protocol().check_message(answer["message"], facts, sent, state["turn"])
        state = server.protocol().update(state, answer["message"])
    sent = server.protocol().broadcast(state)
    return node.answer(1, {"exchange": "result", "sent": sent, "used": True})


@pytest.mark.parametrize("name", FITS)
def test_node(tmp_path, name):
    estimator, y = FITS[name]
    node = Node(
        "north",
        estimator,
        lambda: {"X": X, "y": y, "groups": GROUPS},
        tmp_path,
        seed=1,
        budget=np.inf,
    )
    assert "failure" not in hold(estimator, y, node)
    folder = tmp_path / "run-1"
    lines = (folder / "estimate.csv").read_text().splitlines()
    assert len(lines) == 1 + 80 * 3
    assert type(estimator).__name__ in (folder / "summary.txt").read_text()
    assert (tmp_path / "ledger.jsonl").exists()


def test_rounds_add_up_in_a_budget(tmp_path):
    """Three rounds at epsilon 2 cost more than 3, and less than 4, as their noise is composed."""
    data = {"X": X, "y": Y, "groups": GROUPS}
    node = Node("north", PRIVATE, lambda: data, tmp_path / "a", seed=1, budget=3.0)
    assert "failure" in hold(PRIVATE, Y, node)
    (row,) = journal.read(tmp_path / "a" / "ledger.jsonl")  # refused before the first round
    assert row["kind"] == "facts"
    node = Node("north", PRIVATE, lambda: data, tmp_path / "b", seed=1, budget=4.0)
    assert "failure" not in hold(PRIVATE, Y, node)
