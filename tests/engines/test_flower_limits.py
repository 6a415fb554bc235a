"""Plans that ask a node for more than it has end soon, with an error that says which limit."""

import threading
import time

import numpy as np
import pandas as pd
import pytest

import ebfed as eb
from ebfed import channels, learning, models, priors
from ebfed.engines import portable
from ebfed.engines.flower import PlannedNode, Rules, plan_of_run
from ebfed.engines.flower.limits import COUNT, check_counts, limited
from ebfed.loading import METHODS
from ebfed.streams import make_key

RNG = np.random.default_rng(3)
TABLE = pd.DataFrame(
    {"ward": np.repeat(list("abcdef"), 8), "x": RNG.uniform(size=48), "y": RNG.normal(size=48)}
).assign(b=lambda t: (t["y"] > 0).astype(int))
MEANS = {"X": ["y"], "groups": "ward"}
LINES = {"X": ["x"], "y": "y", "groups": "ward"}
CLASSES = {"X": ["x"], "y": "b", "groups": "ward"}
# Small ones, in which each count is replaced by a huge one.
PLANS = [
    (eb.GaussianEB(channel=channels.Quantizer(4, range=(-3, 3))), MEANS),
    (eb.GaussianEB(channel=channels.UnaryEncoding(1.0, range=(-3, 3), levels=4)), MEANS),
    (eb.GaussianEB(channel=channels.DiscreteGaussian(1.0, 1e-5, range=(-3, 3))), MEANS),
    (eb.GaussianEB(prior=priors.Discrete(3)), MEANS),
    (eb.GaussianEB(prior=priors.GaussianMixture(2)), MEANS),
    (eb.GaussianEB(prior=priors.LogSpline(5)), MEANS),
    (eb.GaussianEB(participation=2), MEANS),
    (eb.MixtureEB(n_components=2), MEANS),
    (eb.LogisticEB(), CLASSES),
    (eb.GeneralizedEB("binomial"), CLASSES),
    (eb.LinearEB(covariance="spherical", solver="gradient"), LINES),
    (eb.AdaMix(2), LINES),
    (eb.MixtureLinearEB(2, n_rounds=3), LINES),
    (learning.FedAvg(models.MLP(hidden=3), n_rounds=2, local_steps=2, fine_tune=1), CLASSES),
    (learning.PFedMe(models.MLP(hidden=3), n_rounds=2, batch_size=4), CLASSES),
    (learning.FedRep(models.MLP(hidden=3), n_rounds=2, evaluate_every=1), CLASSES),
    (learning.HierarchicalEB(models.Softmax(), n_rounds=2), CLASSES),
    (learning.AdaPeD(models.MLP(hidden=3), n_rounds=2, refine=1), CLASSES),
    (learning.FedAvg(models.Softmax(), learning_rate=learning.RateSchedule(0.1, "step")), CLASSES),
]
# What a plan names that is a count: each of these was tried with 10**9 or more before.
COUNTS = {
    *("bits", "levels", "atoms", "max_atoms", "max_components", "n_init", "n_plausible", "df"),
    *("participation", "n_rounds", "n_steps", "n_components", "hidden", "heads"),
    *("local_steps", "batch_size", "fine_tune", "own_steps", "head_steps", "folds", "refine"),
    *("strength_rounds", "evaluate_every", "early_stopping", "warm_up", "every"),
}


def numbers_of(plan, name=""):
    """Places of numbers that are arguments, with their names."""
    if not isinstance(plan, dict):
        return
    for key, value in plan.items():
        if isinstance(value, dict):
            yield from ((key, *rest) for rest in numbers_of(value, key))
        elif value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
            yield (key,)


def replaced(plan, place, value):
    head, *rest = place
    return plan | {head: replaced(plan[head], rest, value) if rest else value}


def node_of(folder, more=""):
    TABLE.to_csv(folder / "rows.csv", index=False)
    rules = f"epsilon = inf\nmin_group_size = 1\n{more}[rows]\npath = 'rows.csv'\n"
    (folder / "node.toml").write_text(rules)
    return PlannedNode("north", folder, METHODS, seed=1)


@pytest.mark.parametrize("value", [10**9, 10**30, 5e7, float("inf")])
def test_counts_of_plans_are_limited(value, tmp_path):
    """Before, a node with `local_steps=10**9` or `heads=10**9` never answered."""
    node, tried, fit = node_of(tmp_path), set(), 0
    for estimator, rows in PLANS:
        plan = plan_of_run(estimator, rows)
        for place in numbers_of(plan["method"]["arguments"]):
            if place[-1] not in COUNTS:
                continue
            fit += 1
            method = plan["method"] | {
                "arguments": replaced(plan["method"]["arguments"], place, value)
            }
            request = {"exchange": "roll call", "plan": plan | {"method": method}, "fit": fit}
            assert "ValueError" in node.answer(0, request)["failure"]
            last = (tmp_path / "errors.log").read_text().strip().splitlines()[-1]
            assert last.startswith(f"ValueError: {place[-1]} of a plan must be at most 1,000,000")
            tried.add(place[-1])
    assert tried == COUNTS


def test_magnitudes_are_no_counts():
    big = eb.GaussianEB(variances=10**9, prior=priors.Normal(mean=10**8))
    check_counts(portable.describe(big), METHODS)
    labels = eb.CategoricalEB(categories=[10**9, 10**9 + 1])
    check_counts(portable.describe(labels), METHODS)
    check_counts(portable.describe(learning.FedAvg(models.MLP(COUNT))), METHODS)


def asked(node, estimator, fit):
    """The answer of a node in the first round of a learner."""
    plan = plan_of_run(estimator, CLASSES)
    terms = {"plan": plan, "fit": fit}
    facts = node.answer(0, {"exchange": "roll call"} | terms)["facts"]
    small = learning.FedAvg(models.MLP(hidden=3), n_rounds=2)
    state = small.protocol().start(facts, make_key(1))
    request = {
        "exchange": "round",
        "sent": small.protocol().broadcast(state),
        "turn": state["turn"],
    }
    return node.answer(0, request | {"first": 0} | terms)


def test_an_answer_ends_in_time(tmp_path):
    """Also for a count within the limits: 10**6 steps of each of six clients."""
    node = node_of(tmp_path)
    asked(node, learning.FedAvg(models.MLP(hidden=3), n_rounds=2, batch_size=4), 0)  # compiles
    node = node_of(tmp_path, "max_seconds = 2\n")
    slow = learning.FedAvg(models.MLP(hidden=3), n_rounds=2, local_steps=COUNT, batch_size=4)
    assert "TimeoutError" in asked(node, slow, 1)["failure"]
    last = (tmp_path / "errors.log").read_text().strip().splitlines()[-1]
    assert last == "TimeoutError: an answer may take max_seconds=2, as node.toml says."
    # and the node goes on
    assert "message" in asked(node, learning.FedAvg(models.MLP(hidden=3), n_rounds=2), 2)


def test_an_answer_has_a_share_of_the_memory(tmp_path, monkeypatch):
    """Whatever asks for it, here numbers of rows that take 8 GB."""
    pytest.importorskip("resource")
    node = node_of(tmp_path, "max_memory = 1\n")
    request = {"exchange": "roll call", "plan": plan_of_run(eb.GaussianEB(), MEANS), "fit": 1}
    with monkeypatch.context() as patch:
        patch.setattr(PlannedNode, "_facts", lambda *_: {"n": np.ones(10**9)})
        assert "MemoryError" in node.answer(0, request)["failure"]
    assert "facts" in node.answer(0, request), "and the node goes on"


def test_limits_are_taken_back():
    import resource
    import signal

    before = resource.getrlimit(resource.RLIMIT_AS), signal.getsignal(signal.SIGALRM)
    with pytest.raises(MemoryError), limited(60.0, 0.25):
        np.ones(10**8)
    with pytest.raises(TimeoutError), limited(0.05, None):
        time.sleep(5)
    assert (resource.getrlimit(resource.RLIMIT_AS), signal.getsignal(signal.SIGALRM)) == before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0.0
    done = []

    def work():
        with limited(60.0, None):
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done, "also where signals do not arrive"


@pytest.mark.parametrize("rule", ["max_seconds", "max_memory"])
@pytest.mark.parametrize("value", [0, -1, "1", True, float("nan")])
def test_limits_are_numbers(rule, value):
    with pytest.raises(ValueError, match=rule):
        Rules(epsilon=1.0, **{rule: value})


@pytest.mark.parametrize("exchange", ["round", "result"])
@pytest.mark.parametrize("places", ["records", "evaluations"])
def test_places_of_records_are_limited(exchange, places, tmp_path):
    """Rounds that a server makes up allow no more places: 10**9 took 48 GB of six clients."""
    node, estimator = node_of(tmp_path), learning.FedAvg(models.Linear(), n_rounds=2)
    terms = {"plan": plan_of_run(estimator, LINES), "fit": 1}
    facts = node.answer(0, {"exchange": "roll call"} | terms)["facts"]
    state = estimator.protocol().start(facts, make_key(1))
    sent = estimator.protocol().broadcast(state)
    request = {"exchange": exchange, "turn": state["turn"], "first": 0, "used": True} | terms
    for wrong in ({places: 10**9}, {places: 10**9, "round": 10**9}, {"round": -1}, {"round": True}):
        assert "ValueError" in node.answer(0, request | {"sent": sent | wrong})["failure"]
