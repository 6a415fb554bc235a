"""Messages that a malicious node makes up, at random, and what becomes of everybody's fit.

The oracle is the fit of the honest nodes alone. A fit with the malicious node is that, if it was
left out, or is not far from that, or from the one with an honest node in its place; or it is an
error that names the node. It is always finite, and no error of the arithmetic is anonymous.
"""

import contextlib
import io
import re
import warnings
from functools import cache

import numpy as np
import pytest

pytest.importorskip("flwr")

from grids import Grid, as_in_a_run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.base import clone

import ebfed as eb
from ebfed.engines import robust
from ebfed.engines.flower import FlowerCohort, messages
from ebfed.engines.rounds import converse
from ebfed.learning import AdaPeD, FedAvg
from ebfed.location import LocationRounds
from ebfed.models import Linear
from ebfed.streams import Stream, make_key

RNG = np.random.default_rng(2)
NODES, GROUPS, ROWS = "abcde", 10, 4
LABELS = np.repeat(np.arange(len(NODES) * GROUPS), ROWS)
THETA = RNG.normal(size=len(NODES) * GROUPS)[LABELS]
X = RNG.normal(1.0, 1.0, (len(LABELS), 1))
NUMBERS = 3 + THETA + RNG.normal(size=len(LABELS))
LINES = 1 + THETA + 2 * X[:, 0] + RNG.normal(size=len(LABELS))
BITS = (RNG.uniform(size=len(LABELS)) < 1 / (1 + np.exp(-THETA))).astype(float)
COUNTS = RNG.poisson(np.exp(0.5 * THETA)).astype(float)
LIMIT = 10.0

MEANS, RATES, EVENTS = {"X": NUMBERS}, {"X": BITS}, {"X": COUNTS}
LINEAR, LOGISTIC, LOG = {"X": X, "y": LINES}, {"X": X, "y": BITS}, {"X": X, "y": COUNTS}
NOISE = eb.channels.Gaussian(epsilon=4.0, delta=1e-5, range=(-2.0, 8.0))
METHODS = {
    "GaussianEB": (eb.GaussianEB(), MEANS),
    "GaussianEB, by sums": (eb.GaussianEB(share="sums"), MEANS),
    "GaussianEB, noise": (eb.GaussianEB(1.0, channel=NOISE, random_state=0), MEANS),
    "GaussianEB, two bits": (
        eb.GaussianEB(1.0, channel=eb.channels.TwoBit(4.0, range=(-2.0, 8.0)), random_state=0),
        MEANS,
    ),
    "BernoulliEB": (eb.BernoulliEB(), RATES),
    "PoissonEB": (eb.PoissonEB(), EVENTS),
    "MixtureEB": (eb.MixtureEB(2, random_state=0), MEANS),
    "VarianceEB": (eb.VarianceEB(), MEANS),
    "LinearEB": (eb.LinearEB(), LINEAR),
    "LogisticEB": (eb.LogisticEB(), LOGISTIC),
    "GeneralizedEB": (eb.GeneralizedEB("poisson"), LOG),
    "AdaMix": (eb.AdaMix(1, random_state=0), LINEAR),
    "FedAvg": (FedAvg(Linear(), n_rounds=3, random_state=0), LINEAR),
    "AdaPeD": (AdaPeD(Linear(), n_rounds=3, random_state=0), LINEAR),
}


class Member:
    """A node as far as the server sees it: without files, rules or a ledger."""

    def __init__(self, name, estimator, rows):
        self.name, self.estimator = name, clone(estimator)
        self.clients, self.memory = self.estimator.protocol().prepare(**rows)
        self.facts = self.estimator.protocol().describe(self.clients, self.memory)

    def begin(self):
        self.now = self.memory
        return self

    def answer(self, message):
        return [(0, messages.make_reply(message, self.said(messages.unpack(message))))]

    def said(self, asked):
        if asked["exchange"] != "round":
            return {"name": self.name, "facts": self.facts}
        rng = Stream(make_key(5), asked["sent"]["round"], asked["first"])
        memory = self.now | {"turn": asked["turn"]}
        message, self.now = self.estimator.protocol().local(
            asked["sent"], memory, self.clients, rng
        )
        return {"name": self.name, "message": self.estimator.protocol().add_up(message)}


class Liar(Member):
    """A node that changes what it says, from some exchange on."""

    changes = ()

    def said(self, asked):
        try:
            said = super().said(asked)
        except Exception as error:  # its own lies have confused it
            return {"name": self.name, "failure": type(error).__name__}
        part = "facts" if "facts" in said else "message"
        for place, where, change in self.changes:
            now = 0 if part == "facts" else 1 + asked["sent"]["round"]
            if now == place or (place > 0 and now > place):
                said = said | {part: changed(said[part], where, change)}
        return said


def changed(said, where, change):
    """Change the array at a place among those of nested dicts."""
    paths = list(paths_of(said))
    if not paths:
        return said
    path = paths[where % len(paths)]

    def inner(part, path):
        if not path:
            with np.errstate(all="ignore"):
                return change(part) if isinstance(part, np.ndarray) else part
        return part | {path[0]: inner(part[path[0]], path[1:])}

    return inner(said, path)


def paths_of(said, before=()):
    for name, part in said.items():
        yield from paths_of(part, (*before, name)) if isinstance(part, dict) else [(*before, name)]


def number(function, value):
    def change(x):
        kept = x.dtype.kind in "f" or (np.isfinite(value) and abs(value) < 1e15)
        return function(x, value).astype(x.dtype) if kept and x.dtype.kind in "iuf" else x

    return change


def one_entry(x, value):
    x = x.astype(float)
    x.flat[:1] = value
    return x


VALUES = [0.0, -1.0, 1e-300, 1e-6, 30.0, 1e3, 1e6, 1e12, 1e59, 1e149, 1e300, np.inf, np.nan]
FUNCTIONS = [
    lambda x, value: x * value,
    lambda x, value: np.full(x.shape, value),
    lambda x, value: x + value,
    one_entry,
]
OTHER_SHAPES = [
    lambda x: x[:-1],
    lambda x: np.concatenate([x, x]),
    lambda x: x[None],
    lambda x: x.ravel(),
    lambda x: x.astype("U"),
    lambda x: x.astype(np.float32) if x.dtype.kind == "f" else x.astype(float),
    lambda x: x[::-1].copy(),
    lambda x: "17",
    lambda x: {},
]
change = st.one_of(
    st.builds(number, st.sampled_from(FUNCTIONS), st.sampled_from(VALUES)),
    st.sampled_from(OTHER_SHAPES),
)
lies = st.lists(
    st.tuples(st.sampled_from([0, 1, 1, 1, 2, 3]), st.integers(0, 12), change),
    min_size=1,
    max_size=3,
)


@pytest.fixture(scope="module", autouse=True)
def _as_in_a_run():
    with pytest.MonkeyPatch.context() as patch:
        as_in_a_run(patch)
        yield


def fitted(estimator, nodes, **terms):
    """Parameters of the population by name, and who took part in the last round."""
    estimator = clone(estimator)
    grid = Grid({i: node.begin().answer for i, node in enumerate(nodes)})
    terms = {"quorum": 3, "deadline": 30.0, "max_shift": LIMIT} | terms
    cohort = FlowerCohort(grid, estimator, len(nodes), plan={}, fit=1, **terms)
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cohort.call_roll()
        state = converse(estimator.protocol(), cohort, make_key(5))
    return estimator.protocol().fitted_parameters(state), cohort


class Case:
    """A method with honest nodes, a liar, and the fits of honest nodes."""

    def __init__(self, name):
        self.estimator, columns = METHODS[name]
        blocks = np.array_split(np.arange(len(LABELS)), len(NODES))
        rows = [
            {key: x[block] for key, x in columns.items()} | {"groups": LABELS[block]}
            for block in blocks
        ]
        made = zip(NODES, rows, strict=True)
        *self.honest, self.liar = (
            (Liar if name == NODES[-1] else Member)(name, self.estimator, each)
            for name, each in made
        )
        self.without = fitted(self.estimator, self.honest, max_shift=None)[0]
        self.whole = self.fit([])[0]

    def fit(self, lies):
        self.liar.changes = lies
        return fitted(self.estimator, [*self.honest, self.liar])


case_of = cache(Case)


def distance(found, honest):
    """Largest difference of means in standard errors; of others, in shares of their size."""
    far = 0.0
    for name, (values, errors) in honest.items():
        away = np.abs(found[name][0] - values)
        size = np.linalg.norm(values) + 1e-3
        scale = np.where(errors > 0, errors, size)
        far = max(far, float((away / scale).max(initial=0.0)))
    return far


def judge(case, lies):
    """Return what is wrong with a fit among lies, empty if nothing is."""
    try:
        found, cohort = case.fit(lies)
    except Exception as error:
        named = re.search(r"\be\b", str(error)) is not None
        return "" if named and type(error) in (ValueError, RuntimeError) else f"{error!r}"
    if not all(np.isfinite(x).all() for x, _ in found.values()):
        return f"not finite: {found}"
    out = {row["exchange"] for row in cohort.records if row["status"] in ("failed", "left out")}
    if out & {"roll call", "round 1"} and not isinstance(case.estimator, eb.learning.Learner):
        away = distance(found, case.without)
        return "" if away < 1e-6 else f"not the fit without the node: {away:.3g}"
    honest = min(distance(found, case.without), distance(found, case.whole))
    return "" if honest <= 3 * LIMIT else f"far away: {honest:.3g}, {cohort.shifts}"


@pytest.mark.parametrize("name", METHODS)
def test_an_honest_node_is_not_left_out(name):
    case = case_of(name)
    _, cohort = case.fit([])
    assert {row["status"] for row in cohort.records} == {"answered"}


def attack(name, n_lies):
    """Return what is wrong with fits among so many lies at random."""
    case, wrong = case_of(name), []

    @settings(
        max_examples=n_lies,
        database=None,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(lies)
    def every(told):
        if what := judge(case, told):
            wrong.append(what)

    every()
    return wrong


@pytest.mark.parametrize("name", METHODS)
def test_lies_at_random_are_named_or_harmless(name):
    slow = "noise" in name or "bits" in name or name == "MixtureEB"
    assert attack(name, 10 if slow else 60) == []


@pytest.mark.parametrize("hole", ["messages are not checked", "no limit"])
def test_a_hole_is_found(hole, monkeypatch):
    """A check that is not made any more is noticed."""
    if hole == "no limit":
        monkeypatch.setattr(robust, "_most", lambda shifts: 0.0)
    else:
        monkeypatch.setattr(LocationRounds, "check_message", lambda *_: None)
        monkeypatch.setattr(robust, "_guilty", raised)
    assert attack("GaussianEB", 100)


def raised(names, fits, error):
    raise error
