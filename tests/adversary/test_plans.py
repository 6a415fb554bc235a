"""Plans that a malicious server makes up, at random, and what left of a node with a budget.

The oracle knows the rows. It does not ask the node's code who agreed, or what is exact: it looks
for the figures themselves in all that was sent, and for rows that no rule lets a plan name.
"""

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ebfed as eb
from ebfed.channels import AddNoise, Clip, Exact, Gaussian, Laplace, TwoBit
from ebfed.engines import journal
from ebfed.engines.flower import PlannedNode, gate, plan_of_run
from ebfed.learning import ClientPrivacy, DPFedAvg, FedAvg, FeO2
from ebfed.loading import METHODS
from ebfed.models import Linear, Softmax
from ebfed.streams import make_key

RNG = np.random.default_rng(11)
SIZE, LEAST, EPSILON = 36, 4, 1.0
TABLE = pd.DataFrame(
    {
        "person": [f"p{i // 2:02d}" for i in range(SIZE)],
        "ward": np.repeat(["a", "b", "c"], SIZE // 3),
        "team": np.tile(["red", "blue"], SIZE // 2),
        "illness": np.where(np.arange(SIZE) % 7, "none", "rare"),
        "agrees": np.where(np.arange(SIZE) < 2 * SIZE // 3, "no", "yes"),
        "open": "open",
        "income": RNG.normal(3.0, 1.0, SIZE),
        "share": RNG.uniform(0.1, 0.9, SIZE),
        "years": RNG.uniform(1.0, 9.0, SIZE),
        "events": RNG.poisson(3.0, SIZE),
    }
)
RULES = f"""epsilon = {EPSILON}
min_group_size = {LEAST}
[rows]
path = "rows.csv"
person = "person"
groups = ["ward", "team"]
consent = {{column = "agrees", open = ["yes"]}}
exposure = ["years"]
"""
LABELS = ["person", "ward", "team", "illness", "agrees", "open"]
NUMBERS = ["income", "share", "years", "events"]
PRIVATE = [
    Gaussian(epsilon=0.3, delta=1e-6, range=(0, 6)),
    Laplace(0.3, (0, 6)),
    TwoBit(0.3, range=(0, 6)),
]
CHANNELS = [Exact(), Clip((0, 6)), AddNoise(1e-9), *PRIVATE]
NAMES = ["open", "open", "private", "yes", "no"]

channels = st.one_of(
    st.sampled_from(CHANNELS),
    st.dictionaries(st.sampled_from(NAMES), st.sampled_from(CHANNELS), min_size=1, max_size=2),
    st.fixed_dictionaries(dict.fromkeys(["no", "yes"], st.sampled_from(CHANNELS))),
)
privacy = st.builds(
    ClientPrivacy,
    epsilon=st.sampled_from([0.3, 0.9]),
    clip=st.sampled_from([0.1, 1e9]),
    trust=st.sampled_from(["server", "none"]),
)
once = st.just(1)
means = st.builds(eb.GaussianEB, st.just(1.0), channel=channels)
counts = st.builds(eb.PoissonEB, channel=channels)
learners = st.one_of(
    st.builds(
        FedAvg,
        st.sampled_from([Linear(), Softmax()]),
        n_rounds=once,
        batch_size=st.sampled_from([None, 1, 3]),
    ),
    st.builds(DPFedAvg, st.just(Linear()), privacy=privacy, n_rounds=once),
    st.builds(FeO2, st.just(Linear()), privacy=privacy, n_rounds=once),
)


def columns(X, **more):
    """Columns of a plan: often those that rules allow, and any others."""
    groups = st.sampled_from(["ward", "ward", "team", "team", *LABELS])
    consent = st.sampled_from(["agrees", "agrees", "agrees", *LABELS, "income"])
    needed = {"X": st.just([X]), "groups": groups}
    needed |= {"y": st.sampled_from(["income", "illness"])} if X == "share" else {}
    more |= {"sample_weight": st.sampled_from(NUMBERS)} if X == "share" else {}
    return st.fixed_dictionaries(needed, optional={"consent": consent} | more)


plans = st.one_of(
    st.tuples(means, columns("income")),
    st.tuples(counts, columns("events", exposure=st.sampled_from(["years", *NUMBERS]))),
    st.tuples(learners, columns("share")),
)


def numbers_of(sent):
    """All numbers, and texts, in what was sent."""
    if isinstance(sent, dict):
        return itertools.chain.from_iterable(map(numbers_of, sent.values()))
    return np.asarray(sent).ravel().tolist()


def secrets():
    """Figures that no rule lets out: of rows, persons, and groups that did not all agree."""
    found = []
    for column in NUMBERS:
        found += TABLE[column].tolist()
        for label in LABELS:
            by = TABLE.groupby(label)
            kept = by["agrees"].apply(lambda x: (x == "yes").all())
            kept &= by["person"].nunique() >= LEAST
            figures = pd.concat([by[column].mean(), by[column].sum()])
            if column == "years" and label in ("ward", "team"):  # an exposure
                continue
            found += figures[~figures.index.map(kept)].tolist()
    found = np.unique(np.array(found, float))
    return found[found % 1 != 0]  # whole numbers are no secrets: counts look like them


SECRETS = secrets()


def leaks(sent):
    """The secrets among what was sent, to nine digits, and labels that are not public."""
    flat = list(numbers_of(sent))
    found = np.array([x for x in flat if isinstance(x, float)])
    near = SECRETS[np.searchsorted(SECRETS, found).clip(0, len(SECRETS) - 1)]
    other = SECRETS[(np.searchsorted(SECRETS, found) - 1).clip(0)]
    close = np.minimum(np.abs(near - found), np.abs(other - found)) < 1e-7
    texts = {x for x in flat if isinstance(x, str)}
    return [*found[close].tolist(), *(texts & {*TABLE["person"], *TABLE["illness"]})]


def sent_by(node, estimator, columns, fit):
    """Facts, and the message of a round, of a node that is asked."""
    try:
        terms = {"plan": plan_of_run(estimator, columns), "fit": fit}
        answer = node.answer(0, {"exchange": "roll call"} | terms)
        if "failure" in answer:
            return []
        facts = answer["facts"]
        state = estimator.start(facts, make_key(fit))
        sent = estimator.broadcast(state)
        request = {"exchange": "round", "sent": sent, "turn": state["turn"], "first": 0}
        return [facts, node.answer(0, request | terms).get("message", {})]
    except (ValueError, TypeError, AssertionError):  # of the server's own copy
        return [answer.get("facts", {})]


def node_of(folder):
    TABLE.to_csv(folder / "rows.csv", index=False)
    (folder / "node.toml").write_text(RULES)
    return PlannedNode("north", folder, METHODS, seed=1)


def attack(folder, n_plans):
    """Try so many plans, each at a node that was asked for nothing yet; returns what leaked."""
    node, found, answered = node_of(folder), [], []
    ledger = folder / "ledger.jsonl"

    @settings(max_examples=n_plans, database=None, suppress_health_check=list(HealthCheck))
    @given(plans)
    def every(plan):
        estimator, columns = plan
        ledger.unlink(missing_ok=True)
        fit = len(answered)
        sent = sent_by(node, estimator, columns, fit)
        answered.append(len(sent) == 2 and bool(sent[1]))
        if leaked := leaks({str(i): each for i, each in enumerate(sent)}):
            found.append((repr(estimator), columns, leaked))
        listed = [row["kind"] for row in journal.read(ledger)]
        assert ("facts" in listed) == bool(sent), "facts are in the ledger"
        assert ("release" in listed) == answered[-1], "and so are messages"
        for row in journal.read(ledger):
            assert row["kind"] != "plan" or (row["epsilon"] or 0.0) <= EPSILON

    every()
    return found, sum(answered)


@pytest.mark.filterwarnings("ignore")
def test_random_plans_leak_nothing(tmp_path):
    found, answered = attack(tmp_path, 1000)
    assert not found
    assert answered >= 10, "some plans are within the rules"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("hole", ["who agreed", "roles", "all agree"])
def test_a_hole_is_found(hole, tmp_path, monkeypatch):
    """A rule that is not applied any more is noticed within 200 plans."""
    made = gate.Gate.of

    def opened(*given):
        found = made(*given)
        return replace(
            found, opened=None if hole == "who agreed" else np.ones(len(found.rows), bool)
        )

    if hole == "roles":
        monkeypatch.setattr("ebfed.engines.flower.rows.OwnRows._check_roles", lambda *_: None)
    else:
        monkeypatch.setattr(gate.Gate, "of", opened)
    assert attack(tmp_path, 200)[0]
