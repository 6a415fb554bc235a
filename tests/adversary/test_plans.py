"""Plans that a malicious server makes up, at random, and what left of a node with rules."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from adversaries import (
    BUDGET,
    COUNTED,
    EPSILON,
    MaliciousServer,
    Oracle,
    kinds_of,
    node_of,
    numbers_of,
)

from ebfed.engines.flower import gate

pytestmark = pytest.mark.filterwarnings("ignore")


def attack(folder, rules, n_plans, first=0, stop=False):
    """Try so many plans, twelve at a node; returns what leaked, and how often methods answered.

    With `stop`, no more nodes are attacked after one from which something leaked. The plans are
    those of the seeds from `first` on.
    """
    oracle, found, answered, tried = Oracle(rules), [], Counter(), Counter()
    for i in range(first, first + n_plans // 12 + 1):
        node, server, asked = node_of(folder, rules), MaliciousServer(i), []
        for fit in range(12):
            before = len(kinds_of(folder))
            plan = server.plan()
            sent = MaliciousServer.ask(node, plan, 12 * i + fit)
            name, messages = type(plan[0]).__name__, numbers_of(sent[1:])
            tried[name] += 1
            asked.append((plan, sent))
            leaked = oracle.leaks(sent)
            if messages:
                server.heard(plan)
                answered[name] += 1
                leaked += oracle.of_few(folder, rules, plan, sent)
            if leaked:
                found.append((plan, leaked))
            listed = kinds_of(folder)[before:]
            assert ("facts" in listed) == bool(sent), "facts are in the ledger"
            assert ("release" in listed) or not messages, "and so are messages"
        if oracle.budget and (spent := oracle.spent(asked)) > EPSILON * 1.001:
            found.append((asked, spent))
        if found and stop:
            break
    return found, answered, tried


@pytest.mark.parametrize(
    ("rules", "first"),
    [*((BUDGET, 50 * i) for i in range(8)), (COUNTED, 0)],
)
def test_random_plans_leak_nothing(rules, first, tmp_path):
    """Of 4,896 plans at nodes with a budget, and 612 at nodes of exact figures, none leaks."""
    n_plans = 600
    found, answered, tried = attack(tmp_path, rules, n_plans, first)
    assert not found
    assert tried.total() >= n_plans
    assert len(tried) >= 20, "methods are tried"
    assert answered.total() >= 0.05 * n_plans, "plans are within the rules"
    assert len(answered) >= 5, "of several methods"


# Each with one rule of the gate left out.
HOLES = {
    "who agreed": (BUDGET, lambda found: {"opened": None}),
    "all agree": (BUDGET, lambda found: {"opened": np.ones(len(found.labels), bool)}),
    "roles": (BUDGET, lambda found: {}),
    "charges": (BUDGET, lambda found: {"people": [np.array([x]) for x in found.labels]}),
    "weights": (COUNTED, lambda found: {"rows": np.array([len(x) for x in found.people])}),
    "sizes": (COUNTED, lambda found: {"rows": found.rows * 9}),
}


@pytest.mark.parametrize("hole", HOLES)
def test_a_hole_is_found(hole, tmp_path, monkeypatch):
    """A rule that is not applied any more is noticed within 200 plans."""
    rules, change = HOLES[hole]
    made = gate.Gate.of

    def opened(*given):
        found = made(*given)
        return replace(found, **change(found))

    monkeypatch.setattr(gate.Gate, "of", opened)
    if hole == "roles":
        monkeypatch.setattr("ebfed.engines.flower.rows.OwnRows._check_roles", lambda *_: None)
    assert attack(tmp_path, rules, 190, stop=True)[0]
