"""A cohort behind a grid that is not there: order, silence, duplicates, refusals."""

import itertools
import re
import shutil
import threading
import time

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError
from grids import Grid, as_in_a_run
from sklearn.base import clone

import ebfed as eb
from ebfed.channels import Gaussian
from ebfed.engines import flower, journal
from ebfed.engines.flower import FlowerCohort, Node, apps, cohort, load_fit, messages, serve
from ebfed.learning import ClientPrivacy, DPFedAvg, FedAvg, FeO2, JointDPSGD, Scaffold
from ebfed.models import Linear
from ebfed.wire import pack, unpack

rng = np.random.default_rng(1)
GROUPS = np.repeat([f"g{i:02d}" for i in range(40)], 4)
X = np.repeat(rng.normal(3, 1, 40), 4) + rng.normal(size=160)
Y = X + rng.normal(size=160)
NAMES = ("a", "b", "c", "d")
PRIVATE = Gaussian(epsilon=1.0, delta=1e-5, range="private")
GUESS = eb.channels.Guess(mean=(0, 6), spread=1)
IN_WAVES = eb.GaussianEB(channel=PRIVATE, guess=GUESS, variances=1.0, random_state=3)


def good(node, looks=0):
    def answer(message):
        content = messages.unpack(message)
        return [(looks, messages.make_reply(message, node.answer(1, content)))]

    return answer


@pytest.fixture(autouse=True)
def _as_in_a_run(monkeypatch):
    as_in_a_run(monkeypatch)


@pytest.fixture
def nodes(tmp_path):
    """Make nodes that answer as they should, each with a quarter of the groups."""

    def make(estimator, seed=0, names=NAMES):
        def node(name, rows):
            load = lambda: {"X": X[rows], "groups": GROUPS[rows]}  # noqa: E731
            return Node(name, estimator, load, tmp_path / name, seed=seed, budget=np.inf)

        blocks = np.array_split(np.arange(160), len(names))
        return [node(name, rows) for name, rows in zip(names, blocks, strict=True)]

    return make


def fit(estimator, grid, out, nodes=4, quorum=1.0, deadline=5.0, max_shift=None):
    terms = {"plan": {}, "fit": 1, "quorum": quorum, "deadline": deadline, "max_shift": max_shift}
    return serve(estimator, FlowerCohort(grid, estimator, nodes, **terms), out)


def participants(out):
    table = pd.read_csv(out / "participants.csv", keep_default_na=False)
    return {(row.exchange, row.node): (row.status, row.detail) for row in table.itertuples()}


@pytest.mark.parametrize(
    "estimator",
    [eb.GaussianEB(), eb.GaussianEB(share="sums"), IN_WAVES],
    ids=["exact", "sums", "private in waves"],
)
def test_is_the_fit_of_one_process(nodes, tmp_path, estimator):
    made = nodes(estimator, seed=3)
    # whoever comes first, nodes are taken by name
    order = [(11, made[2], 3), (2, made[0], 5), (35, made[3], 0), (4, made[1], 1)]
    grid = Grid({number: good(node, looks) for number, node, looks in order})
    fitted = fit(estimator, grid, tmp_path / "out")
    here = clone(estimator).fit(X, groups=GROUPS)
    np.testing.assert_allclose(fitted.prior_.mean_, here.prior_.mean_, rtol=1e-12)
    np.testing.assert_allclose(fitted.prior_.variance_, here.prior_.variance_, rtol=1e-12)
    tables = [pd.read_csv(tmp_path / name / "run-1" / "estimate.csv") for name in NAMES]
    expected = here.posterior().to_frame().reset_index(drop=True)
    pd.testing.assert_frame_equal(
        pd.concat(tables, ignore_index=True), expected, rtol=1e-12, check_dtype=False
    )
    assert {status for status, _ in participants(tmp_path / "out").values()} == {"answered"}


def test_a_mixture_is_the_fit_of_one_process(nodes, tmp_path):
    """Its history is a dict of columns, of which the log shows nothing."""
    estimator = eb.MixtureEB(2, random_state=0)
    grid = Grid(dict(enumerate(map(good, nodes(estimator)))))
    fitted, here = fit(estimator, grid, tmp_path / "out"), clone(estimator).fit(X, groups=GROUPS)
    np.testing.assert_allclose(fitted.prior_.mean_, here.prior_.mean_, rtol=1e-9)


def test_fit_can_be_loaded(nodes, tmp_path):
    estimator = IN_WAVES
    grid = Grid(dict(enumerate(map(good, nodes(estimator)))))
    fitted, loaded = fit(estimator, grid, tmp_path), load_fit(estimator, tmp_path)
    assert str(loaded.summary()) == str(fitted.summary())
    pd.testing.assert_frame_equal(loaded.privacy_, fitted.privacy_)
    np.testing.assert_array_equal(
        loaded.predict(X[:8], groups=GROUPS[:8]), fitted.predict(X[:8], groups=GROUPS[:8])
    )
    kept = unpack((tmp_path / "fit.ebfed").read_bytes())
    assert not {"messages", "key"} & kept.keys()


def silent(message):
    return []


def crash(message):
    """What a SuperLink says of a node: from itself, and quoting what it should not."""
    reply = Message(Error(8, "row 12 is of patient Quirin"), reply_to=message)
    reply.metadata.__dict__["_src_node_id"] = 1
    return [(0, reply)]


def babble(message):
    record = ConfigRecord({"packed": b"\x80\x04K\x01."})
    return [(0, Message(RecordDict({"ebfed": record}), reply_to=message))]


def mistaken(message):
    return [(0, messages.make_reply(message, {"nobody": 1}))]


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (silent, ("silent", "")),
        (crash, ("failed", "Flower's error code 8")),
        (babble, ("failed", "an answer that cannot be read")),
        (mistaken, ("failed", "an answer to something else")),
    ],
)
@pytest.mark.parametrize("exchange", ["roll call", "round 1", "result"])
def test_survivors_are_fitted(nodes, tmp_path, kind, what, exchange):
    estimator = eb.GaussianEB()
    made = nodes(estimator)
    asked = []

    def fourth(message):
        asked.append(message.metadata.group_id)
        return (kind if message.metadata.group_id == exchange else good(made[3]))(message)

    grid = Grid({**dict(enumerate(map(good, made[:3]))), 3: fourth})
    fitted = fit(estimator, grid, tmp_path / "out", list(NAMES), quorum=3, deadline=0.3)
    others = slice(None) if exchange == "result" else slice(120)
    here = eb.GaussianEB().fit(X[others], groups=GROUPS[others])
    np.testing.assert_allclose(fitted.prior_.mean_, here.prior_.mean_, rtol=1e-12)
    said = participants(tmp_path / "out")
    if exchange == "roll call" and kind is not silent:  # whose it was is not known
        assert said[exchange, "node 3"] == what
        assert said[exchange, "d"] == ("silent", "")
    else:
        assert said[exchange, "d"] == what
    assert "Quirin" not in (tmp_path / "out" / "participants.csv").read_text()
    expected = ["roll call", "round 1", "result"]
    assert asked == (["roll call"] if exchange == "roll call" else expected)
    assert load_fit(estimator, tmp_path / "out").prior_.mean_ == fitted.prior_.mean_


@pytest.mark.parametrize(
    ("estimator", "first"),
    [(eb.GaussianEB(), 1), (eb.PoissonEB(), 1), (eb.LogisticEB(varying=["intercept"]), 2)],
    ids=["gaussian", "poisson", "logistic"],
)
def test_counts_and_criteria_are_of_the_nodes_that_answered(estimator, first, tmp_path):
    """BIC, too, has the rows whose likelihood it is of; and a note names the others."""
    counts = np.random.default_rng(3).poisson(np.exp(X / 3))
    values, more = counts[:, None] if first == 1 else X[:, None], {}
    if first == 2:
        more = {"y": (counts > 2).astype(int)}

    def given(rows):
        return {"X": values[rows], "groups": GROUPS[rows]} | {k: y[rows] for k, y in more.items()}

    blocks = np.array_split(np.arange(160), 4)
    made = [
        Node(name, estimator, lambda rows=rows: given(rows), tmp_path / name, budget=np.inf)
        for name, rows in zip(NAMES, blocks, strict=True)
    ]

    def absent(message):
        kind, _, number = message.metadata.group_id.partition(" ")
        away = kind == "round" and int(number) >= first
        return silent(message) if away else good(made[3])(message)

    out = tmp_path / "out"
    grid = Grid({**dict(enumerate(map(good, made[:3]))), 3: absent})
    found = fit(estimator, grid, out, quorum=3, deadline=0.4)
    expected = clone(estimator).fit(**given(np.arange(120))).glance().iloc[0]
    found.save(tmp_path / "fit.json")
    for copy in (found, load_fit(estimator, out), eb.load_fit(tmp_path / "fit.json")):
        glance = copy.glance().iloc[0]
        assert glance[["n_groups", "nobs", "df.residual"]].equals(
            expected[["n_groups", "nobs", "df.residual"]]
        )
        np.testing.assert_allclose(glance["BIC"], expected["BIC"], rtol=1e-6)
    assert "missed a round or were left out: d." in " ".join(str(found.summary()).split())


@pytest.mark.parametrize("exchange", ["roll call", "round 1"])
def test_below_quorum_nothing_is_estimated(nodes, tmp_path, exchange):
    estimator = eb.GaussianEB()
    made = nodes(estimator)

    def fourth(message):
        return (silent if message.metadata.group_id == exchange else good(made[3]))(message)

    grid = Grid({**dict(enumerate(map(good, made[:3]))), 3: fourth})
    with pytest.raises(RuntimeError, match=rf"{exchange}: 3 of 4 .* 4 are needed \(d silent\)"):
        fit(estimator, grid, tmp_path / "out", list(NAMES), deadline=0.2)
    written = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert written == ["exchanges.jsonl", "participants.csv"]
    assert participants(tmp_path / "out")[exchange, "d"] == ("silent", "")
    assert not list(tmp_path.rglob("estimate.csv"))


def test_a_node_that_fails_is_named_by_the_kind_of_failure(nodes, tmp_path):
    estimator = eb.GaussianEB()
    made = nodes(estimator)
    made[1]._load = lambda: {"X": ["secret"]}
    grid = Grid(dict(enumerate(map(good, made))))
    fit(estimator, grid, tmp_path / "out", quorum=3)
    status, said = participants(tmp_path / "out")["roll call", "b"]
    unfit = "rows that lack values, or have some that the model does not take"
    assert (status, said) == ("failed", f"{unfit}; the node's own errors.log says more")


def test_late_and_second_answers_are_ignored(nodes, tmp_path):
    estimator = IN_WAVES  # three rounds
    made = nodes(estimator, seed=3)

    def twice(message):
        ((_, reply),) = good(made[0])(message)
        other = messages.make_reply(message, {"name": "a", "message": {"all clients": {}}})
        return [(0, reply), (0, other), (3, reply)]

    late = []

    def slow(message):
        answers = good(made[3])(message)
        if message.metadata.group_id == "round 2":
            late.append(message)
            return [(400, answers[0][1])]
        return answers

    grid = Grid({0: twice, 1: good(made[1]), 2: good(made[2]), 3: slow})
    fitted = fit(estimator, grid, tmp_path / "out", quorum=3, deadline=0.2)
    said = participants(tmp_path / "out")
    assert said["round 2", "d"] == ("silent", "")
    assert ("round 3", "d") not in said
    assert said["result", "d"] == ("answered", "") or said["result", "d"] == ("silent", "")
    assert len(late) == 1
    assert fitted.privacy_["clients"].sum() == 40  # all that were invited


def test_two_nodes_of_one_name_are_refused(nodes, tmp_path):
    """Where no keys are registered, neither of them is known; the others go on."""
    made = nodes(eb.GaussianEB(), names=("a", "b", "b", "c"))
    grid = Grid(dict(enumerate(map(good, made))))
    with pytest.raises(RuntimeError, match=r"2 of 4 .*\(b failed \(two nodes have this name\)"):
        fit(eb.GaussianEB(), grid, tmp_path / "out", quorum=3)
    fit(eb.GaussianEB(), grid, tmp_path / "two", quorum=2)
    said = participants(tmp_path / "two")
    assert said["roll call", "b"] == ("failed", "two nodes have this name")
    assert [said["round 1", name][0] for name in "ac"] == ["answered"] * 2


def test_strangers_are_not_listened_to(nodes, tmp_path):
    estimator = eb.GaussianEB()
    grid = Grid(dict(enumerate(map(good, nodes(estimator)))))
    fit(estimator, grid, tmp_path / "out", ["a", "c"])
    said = participants(tmp_path / "out")
    assert said["roll call", "b"] == ("not invited", "")
    assert ("round 1", "b") not in said
    assert not list((tmp_path / "b" / "run-1").glob("round-*"))


def test_nodes_that_come_later_are_asked(nodes, tmp_path):
    estimator = eb.GaussianEB()
    made = nodes(estimator)
    grid = Grid({0: good(made[0])})
    looks = itertools.count()

    def there():
        if next(looks) == 5:
            grid.nodes |= {i: good(made[i]) for i in (1, 2, 3)}
        return list(grid.nodes)

    grid.get_node_ids = there
    assert fit(estimator, grid, tmp_path / "out").prior_.n_parameters_


def test_more_nodes_than_invited_are_welcome(nodes, tmp_path):
    made = nodes(eb.GaussianEB())
    grid = Grid({i: good(node, looks=10 * (i == 0)) for i, node in enumerate(made)})
    fitted = fit(eb.GaussianEB(), grid, tmp_path / "out", nodes=2)
    here = eb.GaussianEB().fit(X, groups=GROUPS)
    np.testing.assert_allclose(fitted.prior_.mean_, here.prior_.mean_, rtol=1e-12)


def test_missing_nodes_are_counted(nodes, tmp_path):
    grid = Grid(dict(enumerate(map(good, nodes(eb.GaussianEB())[:2]))))
    with pytest.raises(RuntimeError, match=r"2 of 4 nodes .* never connected \(1\) silent"):
        fit(eb.GaussianEB(), grid, tmp_path / "out", deadline=0.1)


def test_the_server_app_is_made():
    from flwr.serverapp import ServerApp

    terms = {"rows": {"X": ["a"], "groups": "g"}, "deadline": 5.0, "out": "result"}
    assert isinstance(flower.server_app(eb.GaussianEB(), 3, quorum=1.0, **terms), ServerApp)
    with pytest.raises(ValueError, match="quorum must be"):
        flower.server_app(eb.GaussianEB(), 3, quorum=7, **terms)
    with pytest.raises(ValueError, match="rows must name columns for 'groups'"):
        flower.server_app(eb.GaussianEB(), 3, quorum=1.0, **terms | {"rows": {"X": ["a"]}})


def test_pack_of_a_request_is_small(nodes):
    """Each node gets its own turns, not those of all."""
    answer = nodes(eb.GaussianEB())[0].answer(1, {"exchange": "roll call"})
    assert len(pack(answer)) < 1000


def spoilt(node, exchange, spoil):
    """Answer with a change to what is good."""

    def answer(message):
        content = messages.unpack(message)
        reply = node.answer(1, content)
        if content["exchange"] == exchange:
            reply = spoil(reply)
        return [(0, messages.make_reply(message, reply))]

    return answer


def told(**changes):
    def spoil(reply):
        return reply | {"facts": reply["facts"] | changes}

    return spoil


def sent(**changes):
    def spoil(reply):
        part = reply["message"]["all clients"]
        return reply | {"message": {"all clients": part | changes}}

    return spoil


BAD = {
    "no facts": ("roll call", lambda reply: reply | {"facts": {}}),
    "negative numbers of rows": ("roll call", told(n=np.full(10, -1))),
    "numbers as text": ("roll call", told(n=np.array(["4"] * 10))),
    "numbers that are none": ("roll call", told(n=np.full(10, np.nan))),
    "a class that is not there": ("roll call", told(consent=np.full(10, 9, np.int8))),
    "more choices than clients": ("roll call", told(consent=np.zeros(11, np.int8))),
    "no message": ("round", lambda reply: reply | {"message": {}}),
    "NaN": ("round", sent(mean=np.full((10, 1), np.nan))),
    "infinity": ("round", sent(scatter=np.full((10, 1), np.inf))),
    "a scatter below zero": ("round", sent(scatter=np.full((10, 1), -1.0))),
    "other numbers of rows": ("round", sent(n=np.full(10, 10**9))),
    "too many clients": (
        "round",
        sent(n=np.full(99, 4), mean=np.ones((99, 1)), scatter=np.ones((99, 1))),
    ),
    "two columns": ("round", sent(mean=np.ones((10, 2)))),
    "objects": ("round", sent(mean="17")),
}


@pytest.mark.parametrize("what", BAD)
def test_a_node_that_lies_is_left_out(what, nodes, tmp_path):
    made = nodes(eb.GaussianEB())
    exchange, spoil = BAD[what]
    liar = {3: spoilt(made[3], exchange, spoil)}
    grid = Grid({i: good(node) for i, node in enumerate(made)} | liar)
    fitted = fit(eb.GaussianEB(), grid, tmp_path / "out", quorum=3)
    honest = eb.GaussianEB().fit(X[:120], groups=GROUPS[:120])
    np.testing.assert_allclose(fitted.prior_.mean_, honest.prior_.mean_, rtol=1e-12)
    title = "roll call" if exchange == "roll call" else "round 1"
    status, why = participants(tmp_path / "out")[title, "d"]
    assert status == "failed"
    assert why.startswith("an answer that does not fit the question")


OTHER = {
    "a column more": (told(n_features=np.array([2])), "n_features is 2 rather than 1"),
    "another name": (told(columns=np.array(["age"])), "columns is age rather than "),
    "whole numbers as unsigned ones": (
        told(consent=np.zeros(10, np.uint8)),
        "an answer that does not fit the question",
    ),
}


@pytest.mark.parametrize("what", OTHER)
def test_a_node_with_other_columns_is_left_out(what, nodes, tmp_path):
    """And not everybody's fit ended, where three of four are enough."""
    made, (spoil, said) = nodes(eb.GaussianEB()), OTHER[what]
    grid = Grid({i: good(node) for i, node in enumerate(made)})
    grid.nodes[1] = spoilt(made[1], "roll call", spoil)
    fitted = fit(eb.GaussianEB(), grid, tmp_path / "out", quorum=3)
    kept = np.r_[0:40, 80:160]
    honest = eb.GaussianEB().fit(X[kept], groups=GROUPS[kept])
    np.testing.assert_allclose(fitted.prior_.mean_, honest.prior_.mean_, rtol=1e-12)
    status, why = participants(tmp_path / "out")["roll call", "b"]
    assert status == "failed"
    assert said in why


def test_nodes_of_which_most_do_not_agree_are_named(nodes, tmp_path):
    made = nodes(eb.GaussianEB())
    grid = Grid({i: good(node) for i, node in enumerate(made)})
    for number in (2, 3):
        grid.nodes[number] = spoilt(made[number], "roll call", told(columns=np.array(["age"])))
    with pytest.raises(ValueError, match=r"a, b: columns is ; c, d: columns is age"):
        fit(eb.GaussianEB(), grid, tmp_path / "out", quorum=2)


def test_a_node_with_whose_facts_no_fit_begins_is_left_out(tmp_path):
    """One with a third class, as the method has two."""
    learner = eb.LogisticEB()
    blocks = np.array_split(np.arange(160), 4)
    y = np.greater(Y, Y.mean()).astype(int)
    made = [
        Node(
            name,
            learner,
            lambda own=own: {"X": X[own][:, None], "y": y[own], "groups": GROUPS[own]},
            tmp_path / name,
            seed=0,
            budget=np.inf,
        )
        for name, own in zip(NAMES, blocks, strict=True)
    ]
    grid = Grid({i: good(node) for i, node in enumerate(made)})
    grid.nodes[2] = spoilt(made[2], "roll call", told(classes=np.array([0, 1, 2])))
    fitted = fit(learner, grid, tmp_path / "out", quorum=3)
    kept = np.r_[0:80, 120:160]
    honest = eb.LogisticEB().fit(X[kept][:, None], y[kept], groups=GROUPS[kept])
    np.testing.assert_allclose(fitted.mean_, honest.mean_, rtol=1e-6)
    said = participants(tmp_path / "out")
    assert said["roll call", "c"][0] == "failed"
    assert "the fit cannot begin with its facts" in said["roll call", "c"][1]
    with pytest.raises(RuntimeError, match=r"c failed \(the fit cannot begin with its facts"):
        fit(learner, grid, tmp_path / "all")


def full(value):
    return {"mean": np.full((10, 1), value)}


FAR = {
    "means of 1e6": sent(**full(1e6)),
    "no noise": sent(scatter=np.zeros((10, 1)), **full(20.0)),
    "scatters of 1e12": sent(scatter=np.full((10, 1), 1e12)),
}


@pytest.mark.parametrize("what", FAR)
def test_a_node_that_moves_the_fit_too_far_is_left_out(what, nodes, tmp_path, capsys):
    """1e6 moved the mean to 250,003; scatters of 1e12 shrank all groups; and nothing was said."""
    made = nodes(eb.GaussianEB())
    grid = Grid({i: good(node) for i, node in enumerate(made)})
    grid.nodes[3] = spoilt(made[3], "round", FAR[what])
    shown = fit(eb.GaussianEB(), grid, tmp_path / "shown", quorum=3)
    assert shown.prior_.mean_[0] > 5 or shown.prior_.variance_[0] < 1e-3
    assert "round 1: d moves it most, by" in capsys.readouterr().out
    grid = Grid({i: good(node) for i, node in enumerate(made)})
    grid.nodes[3] = spoilt(made[3], "round", FAR[what])
    fitted = fit(eb.GaussianEB(), grid, tmp_path / "out", quorum=3, max_shift=8.0)
    honest = eb.GaussianEB().fit(X[:120], groups=GROUPS[:120])
    np.testing.assert_allclose(fitted.prior_.mean_, honest.prior_.mean_, rtol=1e-12)
    status, why = participants(tmp_path / "out")["round 1", "d"]
    assert status == "left out"
    assert "max_shift is 8" in why
    with pytest.raises(RuntimeError, match="d: it moves the fit by"):
        fit(eb.GaussianEB(), grid, tmp_path / "all", max_shift=8.0)


def test_the_node_that_is_left_out_of_a_result_estimates_without_its_message(nodes, tmp_path):
    made = nodes(eb.GaussianEB())
    grid = Grid({i: good(node) for i, node in enumerate(made)})
    grid.nodes[3] = spoilt(made[3], "round", FAR["means of 1e6"])
    fit(eb.GaussianEB(), grid, tmp_path / "out", quorum=3, max_shift=8.0)
    assert len(pd.read_csv(tmp_path / "d" / "run-1" / "estimate.csv")) == 10


def test_shifts_are_those_of_fits_without_each_node(nodes, tmp_path):
    grid = Grid(dict(enumerate(map(good, nodes(eb.GaussianEB())))))
    whole = fit(eb.GaussianEB(), grid, tmp_path / "out").prior_
    table = pd.read_csv(tmp_path / "out" / "participants.csv")
    shifts = table[table["exchange"] == "round 1"].set_index("node")["shift"]
    for name, block in zip(NAMES, np.array_split(np.arange(160), 4), strict=True):
        others = np.delete(np.arange(160), block)
        prior = eb.GaussianEB().fit(X[others], groups=GROUPS[others]).prior_
        degrees = len(others) - len(others) // 4
        moves = {
            "mean": (whole.mean_ - prior.mean_) / np.sqrt(prior.mean_variance_),
            "variance": (whole.variance_ - prior.variance_) / np.sqrt(prior.variance_variance_),
            "noise": (whole.noise_variance_ / prior.noise_variance_ - 1) / np.sqrt(2 / degrees),
        }
        largest = max(abs(each.item()) for each in moves.values())
        assert shifts[name] == pytest.approx(largest, rel=1e-9)
    assert table[table["exchange"] == "roll call"]["shift"].isna().all()


@pytest.mark.parametrize("part", ["mean", "scatter"])
def test_a_node_is_left_out_of_the_first_sums(part, nodes, tmp_path):
    """Sums need all clients in all rounds: the fit begins again with the facts of the others."""
    estimator = eb.GaussianEB(share="sums")
    made = nodes(estimator)

    def spoil(reply):
        message = reply["message"]
        return reply | {"message": message | {part: message[part] * 1e7}}

    grid = Grid({i: good(node) for i, node in enumerate(made)})
    grid.nodes[3] = spoilt(made[3], "round", spoil)
    fitted = fit(estimator, grid, tmp_path / "out", quorum=3, max_shift=8.0)
    honest = eb.GaussianEB().fit(X[:120], groups=GROUPS[:120])
    np.testing.assert_allclose(fitted.prior_.mean_, honest.prior_.mean_, rtol=1e-9)
    said = participants(tmp_path / "out")
    assert said["round 1", "d"][0] == "left out"
    assert ("round 2", "d") not in said
    assert said["result", "d"][0] == "answered"


# Nodes and servers that come back ---------------------------------------------------------------

LEARNER = DPFedAvg(
    Linear(), privacy=ClientPrivacy(epsilon=8.0, delta=1e-5), n_rounds=6, random_state=3
)


def make_learners(folder, learner=LEARNER):
    blocks = np.array_split(np.arange(160), 4)
    rows = [{"X": X[block][:, None], "y": Y[block], "groups": GROUPS[block]} for block in blocks]
    return [
        Node(name, learner, lambda own=own: own, folder / name, seed=0, budget=np.inf)
        for name, own in zip(NAMES, rows, strict=True)
    ]


@pytest.fixture
def learners(tmp_path):
    return make_learners(tmp_path)


@pytest.fixture
def undisturbed(tmp_path):
    """What is learned when nothing fails."""
    grid = Grid(dict(enumerate(map(good, make_learners(tmp_path / "others")))))
    return shared(fit(LEARNER, grid, tmp_path / "undisturbed"))


def rounds_of(folder, numbers):
    """What each node has of some rounds, from 0."""
    return [
        [unpack((folder / x / "run-1" / f"round-{k}.ebfed").read_bytes()) for x in NAMES]
        for k in numbers
    ]


def exchanges(out):
    return journal.read(out / "exchanges.jsonl")


def shared(fitted):
    return np.concatenate([each.ravel() for each in fitted.shared_.values()])


def test_a_request_that_was_lost_is_sent_again(learners, tmp_path, monkeypatch, undisturbed):
    monkeypatch.setattr(cohort, "AGAIN", 0.05)
    lost = set()

    def forgetful(message):
        title = message.metadata.group_id
        if title not in lost:  # as of a node that was killed with the request
            lost.add(title)
            return crash(message) if title == "round 2" else silent(message)
        return good(learners[3])(message)

    grid = Grid({**dict(enumerate(map(good, learners[:3]))), 3: forgetful})
    found = fit(LEARNER, grid, tmp_path / "out")
    assert len(lost) == 8
    np.testing.assert_array_equal(shared(found), undisturbed)
    assert {status for status, _ in participants(tmp_path / "out").values()} == {"answered"}


def test_what_is_shown_of_each_round(tmp_path, capsys):
    """Seconds, bytes and the loss, which is that of one process; what is private is not sent."""
    learner = FedAvg(Linear(), n_rounds=3, sample_rate=0.5, random_state=0)
    grid = Grid(dict(enumerate(map(good, make_learners(tmp_path, learner)))))
    history = fit(learner, grid, tmp_path / "out").history_
    here = clone(learner).fit(X[:, None], Y, groups=GROUPS).history_
    pd.testing.assert_frame_equal(history, here, check_exact=True)
    shown = capsys.readouterr().out
    for row in here.itertuples():
        line = rf"round {row.round}: 4 of 4 nodes answered \(\d+\.\d s, \d\.\d kB\)\n"
        assert re.search(line + f"round {row.round}: loss {row.loss:.6g}\n", shown)
    grid = Grid(dict(enumerate(map(good, make_learners(tmp_path / "private")))))
    assert np.isnan(fit(LEARNER, grid, tmp_path / "other").history_["loss"]).all()
    assert "loss" not in capsys.readouterr().out


def test_a_node_that_missed_a_round_comes_back(learners, tmp_path):
    def absent(message):
        missed = message.metadata.group_id in ("round 2", "round 3")
        return silent(message) if missed else good(learners[3])(message)

    grid = Grid({**dict(enumerate(map(good, learners[:3]))), 3: absent})
    fit(LEARNER, grid, tmp_path / "out", quorum=3, deadline=0.4)
    said = participants(tmp_path / "out")
    assert [said[f"round {i}", "d"][0] for i in range(1, 7)] == [
        *["answered", "silent", "silent", "answered", "answered", "answered"]
    ]
    lines = exchanges(tmp_path / "out")
    assert [line["exchange"] for line in lines][:2] == ["roll call", "round 1"]
    # one that is missing is waited for once
    assert lines[2]["seconds"] > 0.4 > lines[3]["seconds"]
    assert lines[2]["bytes"].keys() == {"a", "b", "c"}
    assert min(lines[1]["bytes"].values()) > 50


@pytest.mark.parametrize("sample_rate", [1.0, 0.5])
def test_what_a_lost_answer_held_is_counted_once(tmp_path, sample_rate):
    """The shared control variate is the mean of the clients', of a node that was silent, too."""
    learner = Scaffold(Linear(), n_rounds=9, sample_rate=sample_rate, sampling="poisson")
    learner = learner.set_params(learning_rate=0.05, local_steps=3, random_state=3)
    made = make_learners(tmp_path, learner)

    def absent(message):
        answers = good(made[3])(message)
        return answers if message.metadata.group_id not in ("round 3", "round 4") else []

    def silent_too(message):
        return silent(message) if message.metadata.group_id == "round 3" else good(made[2])(message)

    grid = Grid({**dict(enumerate(map(good, made[:2]))), 2: silent_too, 3: absent})
    found = fit(learner, grid, tmp_path / "out", quorum=2, deadline=0.4)
    said = participants(tmp_path / "out")
    assert [said[f"round {i}", "d"][0] for i in (2, 3, 4, 5)] == [
        *("answered", "silent", "silent", "answered")
    ]
    asked = [
        sum(int((answer["memory"]["turn"] == 0).sum()) for answer in answers)
        for answers in rounds_of(tmp_path, [7, 8])
    ]
    assert found.history_["clients"].tolist()[7:] == asked
    if sample_rate == 1:  # the history counts those who answered
        assert found.history_["clients"].tolist()[1:5] == [40, 20, 30, 40]
    # all nodes answer the last round, and with a rate of a half not all clients do after the loss
    (last,) = rounds_of(tmp_path, [8])
    controls = np.concatenate([each["memory"]["own"]["control"] for each in last])
    owed = np.concatenate([each["memory"]["own"]["owed"] for each in last])
    sent = np.concatenate([each["memory"]["turn"] for each in last]) == 0
    controls -= np.where(sent[:, None], 0.0, owed)
    np.testing.assert_allclose(found.shared_["c"], controls.mean(axis=0), atol=1e-10)


NOISY = ClientPrivacy(
    noise_multiplier=0.1, clip_quantile=0.9, bit_noise=0.5, clip=0.5, clip_step=1.0
)


@pytest.mark.parametrize(
    ("learner", "consent"),
    [
        (FedAvg(Linear(), privacy=NOISY), None),
        (
            FedAvg(Linear(), privacy=clone(NOISY).set_params(clip_quantile=None), weights="rows"),
            None,
        ),
        (
            DPFedAvg(
                Linear(), privacy=clone(NOISY).set_params(noise_multiplier=3.0, bit_noise=5.0)
            ),
            (1.5, 4.0),
        ),
        (FeO2(Linear(), privacy=NOISY, ratio=0.5), ("open", "private")),
        (JointDPSGD(Linear(), privacy=NOISY), None),
    ],
    ids=["clients", "rows", "budgets", "opt-out", "users"],
)
def test_private_sums_are_divided_by_what_those_that_answer_are_expected_to_be(
    tmp_path, learner, consent
):
    """The fit is that without the node that is away, its clip, too."""
    learner = clone(learner).set_params(n_rounds=4, learning_rate=0.1, random_state=3)
    rows = {"X": X[:, None], "y": Y, "groups": GROUPS}
    if consent is not None:
        rows["consent"] = np.where(np.arange(160) // 4 % 3 == 0, *consent)
    blocks = [{k: v[block] for k, v in rows.items()} for block in np.split(np.arange(160), 4)]
    made = [
        Node(name, learner, lambda own=own: own, tmp_path / name, seed=0, budget=np.inf)
        for name, own in zip(NAMES, blocks, strict=True)
    ]

    def absent(message):
        away = message.metadata.group_id.startswith("round")
        return silent(message) if away else good(made[3])(message)

    grid = Grid({**dict(enumerate(map(good, made[:3]))), 3: absent})
    found = fit(learner, grid, tmp_path / "out", quorum=3, deadline=0.3)
    here = clone(learner).fit(**{k: v[:120] for k, v in rows.items()})
    np.testing.assert_allclose(shared(found), shared(here), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.history_["clip"], here.history_["clip"], rtol=1e-9)


@pytest.mark.parametrize("last", [1, 4, 6])
def test_a_server_that_was_killed_goes_on(learners, tmp_path, last, undisturbed):
    """The result is that of a fit without interruption, to the last bit."""
    grid, out = Grid(dict(enumerate(map(good, learners)))), tmp_path / "out"

    def killed(message):
        if message.metadata.group_id == f"round {last}":
            raise KeyboardInterrupt
        return good(learners[2])(message)

    grid.nodes[2] = killed
    with pytest.raises(KeyboardInterrupt):
        fit(LEARNER, grid, out)
    assert (out / "state.ebfed").exists()
    grid.nodes[2] = good(learners[2])
    found = fit(LEARNER, grid, out)
    np.testing.assert_array_equal(shared(found), undisturbed)
    rounds = [line["exchange"] for line in exchanges(out) if line["exchange"] != "roll call"]
    assert rounds == [*(f"round {i}" for i in range(1, 7)), "result"]
    assert not (out / "state.ebfed").exists()
    assert (out / "fit.ebfed").stat().st_mode & 0o077 == 0


def test_shifts_of_waves_need_the_messages_of_earlier_rounds(nodes, tmp_path):
    """Which an interrupted fit keeps; noise of another seed gives other reports."""
    made = nodes(IN_WAVES, seed=3)
    grid = Grid(dict(enumerate(map(good, made))))
    fit(IN_WAVES, grid, tmp_path / "whole")

    def killed(message):
        if message.metadata.group_id == "round 3":
            raise KeyboardInterrupt
        return good(again[1])(message)

    for name in NAMES:
        shutil.rmtree(tmp_path / name)
    again = nodes(IN_WAVES, seed=3)
    grid = Grid(dict(enumerate(map(good, again))))
    grid.nodes[1] = killed
    with pytest.raises(KeyboardInterrupt):
        fit(IN_WAVES, grid, tmp_path / "out")
    grid.nodes[1] = good(again[1])
    fit(IN_WAVES, grid, tmp_path / "out")
    tables = [pd.read_csv(tmp_path / out / "participants.csv") for out in ("whole", "out")]
    shifts = [table[table["exchange"] == "round 3"]["shift"] for table in tables]
    assert (shifts[0] > 0).all()
    np.testing.assert_allclose(shifts[1], shifts[0], rtol=1e-12)


def test_secure_sums_show_no_shifts_and_have_no_limit_of_them(tmp_path, capsys):
    """The limit is refused before a node has sent anything but facts."""
    learner = FedAvg(n_rounds=2, privacy=ClientPrivacy(epsilon=8, trust="nobody"), random_state=0)
    rules = flower.Rules(min_group_size=1, partners=list(NAMES))

    def made(folder):
        nodes = []
        for name, own in zip(NAMES, np.array_split(np.arange(160), 4), strict=True):
            rows = {"X": X[own][:, None], "y": Y[own] > Y.mean(), "groups": GROUPS[own]}
            load = lambda rows=rows: rows  # noqa: E731
            nodes.append(Node(name, learner, load, folder / name, seed=0, budget=rules))
        return Grid(dict(enumerate(map(good, nodes))))

    fit(learner, made(tmp_path), tmp_path / "out")
    assert capsys.readouterr().out.count("shifts of nodes are not visible in secure sums") == 1
    assert pd.read_csv(tmp_path / "out" / "participants.csv")["shift"].isna().all()
    with pytest.raises(ValueError, match="max_shift must be None with secure sums"):
        fit(learner, made(tmp_path / "other"), tmp_path / "limited", max_shift=8.0)
    assert not list((tmp_path / "other").rglob("round-*"))


def test_a_fit_that_goes_on_has_its_nodes(learners, tmp_path):
    """A node that is absent then is missing; its place is not another's."""
    grid, out = Grid(dict(enumerate(map(good, learners)))), tmp_path / "out"
    grid.nodes[2] = lambda message: (
        silent(message) if message.metadata.group_id == "round 4" else good(learners[2])(message)
    )
    with pytest.raises(RuntimeError, match="round 4: 3 of 4"):
        fit(LEARNER, grid, out, deadline=0.3)
    del grid.nodes[2]
    found = fit(LEARNER, grid, out, nodes=list(NAMES), quorum=3, deadline=0.3)
    assert len(found.groups_) == 40
    assert participants(out)["roll call", "c"] == ("silent", "")


def test_a_node_that_was_absent_joins_again(learners, tmp_path, monkeypatch):
    """Under a new number, as after a SuperLink has lost its database; the fit goes on meanwhile."""
    monkeypatch.setattr(cohort, "AGAIN", 0.01)
    grid, out = Grid(dict(enumerate(map(good, learners)))), tmp_path / "out"

    def killed(message):
        if message.metadata.group_id == "round 2":
            raise KeyboardInterrupt
        return good(learners[0])(message)

    grid.nodes[0] = killed
    with pytest.raises(KeyboardInterrupt):
        fit(LEARNER, grid, out)
    third = grid.nodes.pop(2)

    def come_back(message):
        if message.metadata.group_id == "round 4":
            grid.nodes[77] = third
        return good(learners[0])(message)

    grid.nodes[0] = come_back
    fit(LEARNER, grid, out, nodes=list(NAMES), quorum=3, deadline=0.4)
    said = participants(out)
    of_c = [said[f"round {i}", "c"][0] for i in range(1, 7)]
    assert of_c[:4] == ["answered", "silent", "silent", "silent"]
    assert of_c[5] == "answered"
    assert said["result", "c"] == ("answered", "")
    # the record is that of both runs
    assert [said["round 1", name][0] for name in NAMES] == ["answered"] * 4


def test_a_late_answer_shows_that_a_node_is_back(learners, tmp_path):
    """A node that is slower than others, and missed a round, is waited for in a later one."""

    def slow(message):
        missed = message.metadata.group_id == "round 2"
        return silent(message) if missed else good(learners[3], looks=3)(message)

    grid = Grid({**dict(enumerate(map(good, learners[:3]))), 3: slow})
    fit(LEARNER, grid, tmp_path / "out", quorum=3, deadline=0.5)
    said = participants(tmp_path / "out")
    of_d = [said[f"round {i}", "d"][0] for i in range(1, 7)]
    assert of_d[:3] == ["answered", "silent", "silent"]
    assert of_d[-1] == "answered"


def test_a_search_that_does_not_end_is_not_waited_for(learners, tmp_path, monkeypatch, undisturbed):
    """As when a node was killed while it sent its answer."""
    monkeypatch.setattr(cohort, "AGAIN", 0.1)
    grid, stuck = Grid(dict(enumerate(map(good, learners)))), []
    pull, ends = grid.pull_messages, threading.Event()

    def pull_or_wait(names):
        arrived = list(pull(names))
        if any(reply.metadata.group_id == "round 3" for reply in arrived) and not stuck:
            stuck.append(arrived)
            ends.wait(20)
        return arrived

    grid.pull_messages = pull_or_wait
    began = time.monotonic()
    found = fit(LEARNER, grid, tmp_path / "out", deadline=10.0)
    ends.set()
    assert stuck
    assert time.monotonic() - began < 10
    np.testing.assert_array_equal(shared(found), undisturbed)


def test_time_without_a_superlink_is_not_counted(learners, tmp_path, monkeypatch, undisturbed):
    """Flower's calls wait until it is back; nodes then have the time that they had."""
    monkeypatch.setattr(cohort, "AGAIN", 0.4)
    grid, away = Grid(dict(enumerate(map(good, learners)))), []
    push = grid.push_messages

    def push_when_it_is_back(sent):
        for message in sent:
            if message.metadata.group_id == "round 3" and not away:
                away.append(message)
                time.sleep(1.5)
            if message.metadata.group_id == "round 5" and len(away) == 1:
                away.append(message)
                raise ObjectPushError("o", 1, "s")  # it has a part of the request already
            yield from push([message])

    grid.push_messages = push_when_it_is_back
    grid.nodes[0] = good(learners[0], looks=2)
    found = fit(LEARNER, grid, tmp_path / "out", deadline=1.0)
    assert len(away) == 2
    np.testing.assert_array_equal(shared(found), undisturbed)


def test_an_error_of_a_search_ends_the_fit(learners, tmp_path):
    grid = Grid(dict(enumerate(map(good, learners))))

    def refused(names):
        raise PermissionError("the run was stopped")

    grid.pull_messages = refused
    with pytest.raises(PermissionError, match="was stopped"):
        fit(LEARNER, grid, tmp_path / "out")


def test_a_fit_without_a_round_does_not_go_on(learners, tmp_path):
    grid, out = Grid(dict(enumerate(map(good, learners)))), tmp_path / "out"
    grid.nodes[2] = lambda message: (
        silent(message) if message.metadata.group_id == "round 1" else good(learners[2])(message)
    )
    with pytest.raises(RuntimeError, match="round 1: 3 of 4"):
        fit(LEARNER, grid, out, deadline=0.3)
    assert not (out / "state.ebfed").exists()
    assert participants(out)["round 1", "c"] == ("silent", "")


def test_two_runs_of_one_fit(learners, tmp_path, capsys, undisturbed):
    """The second one waits, and has the result of the first."""
    grid, out = Grid(dict(enumerate(map(good, learners)))), tmp_path / "out"
    rows = {"X": ["a"], "y": "b", "groups": "g"}
    terms = {"rows": rows, "quorum": 1.0, "deadline": 5.0, "out": out}
    app = flower.server_app(LEARNER, 4, **terms)
    second = threading.Thread(target=lambda: app(grid, Context(2)))

    def slow(message):
        if message.metadata.group_id == "round 3" and second.ident is None:
            second.start()
            time.sleep(0.3)
        return good(learners[0])(message)

    grid.nodes[0] = slow
    capsys.readouterr()
    app(grid, Context(1))
    second.join(20)
    assert not second.is_alive()
    (folder,) = out.glob("run-*")
    assert folder.name == "run-1"
    np.testing.assert_array_equal(shared(load_fit(LEARNER, folder)), undisturbed)
    said = capsys.readouterr().out
    assert said.count("round 4:") == 1
    assert said.count("DPFedAvg") == 2


class Context:
    def __init__(self, run):
        self.run_id = run


def test_the_last_unfinished_fit_of_a_plan(tmp_path):
    plan = flower.plan_of_run(eb.GaussianEB(), {"X": ["a"], "groups": "g"})
    assert apps.unfinished(tmp_path, plan) is None
    for number, kept in ((3, plan), (5, plan | {"rows": {"X": ["b"], "groups": "g"}})):
        folder = tmp_path / f"run-{number}"
        folder.mkdir()
        (folder / "state.ebfed").write_bytes(pack({"plan": kept}))
    assert apps.unfinished(tmp_path, plan) == 3


SHARED = np.arange(160) % 4  # each group has a row at each node


@pytest.fixture
def sharing(tmp_path):
    """Make nodes that share all groups, with keys of their owners; None: an owner without."""

    def make(estimator, keys):
        nodes = {}
        for number, (name, key) in enumerate(zip(NAMES, keys, strict=True)):
            own = {"X": X[number == SHARED], "groups": GROUPS[number == SHARED]}
            (tmp_path / name).mkdir()
            rules = "epsilon = inf\nmin_group_size = 1\n"
            if key is not None:
                (tmp_path / name / "labels.key").write_text(key.hex())
                rules += 'match_key = "labels.key"\n'
            (tmp_path / name / "node.toml").write_text(rules)
            node = Node(name, estimator, lambda own=own: own, tmp_path / name, seed=0)
            nodes[number] = good(node)
        return Grid(nodes)

    return make


KEY = bytes(range(32))


def test_the_same_group_at_four_nodes_is_one_group(sharing, tmp_path):
    estimator = eb.GaussianEB()
    fitted = fit(estimator, sharing(estimator, [KEY] * 4), tmp_path / "out")
    here = eb.GaussianEB().fit(X, groups=GROUPS)
    np.testing.assert_allclose(fitted.prior_.variance_, here.prior_.variance_, rtol=1e-12)
    expected = here.posterior().to_frame().reset_index(drop=True)
    for name in NAMES:
        table = pd.read_csv(tmp_path / name / "run-1" / "estimate.csv")
        pd.testing.assert_frame_equal(table, expected, rtol=1e-12, check_dtype=False)
        assert "not matched" not in (tmp_path / name / "run-1" / "summary.txt").read_text()
        rows = journal.read(tmp_path / name / "ledger.jsonl")
        assert [row["kind"] for row in rows] == ["facts", "digests", "plan", "release"]
        assert rows[1]["clients"] == 40
    assert len(fitted.summaries_) == 40
    assert "not matched" not in str(fitted.summary())


def test_a_silent_node_is_left_out_of_sums(sharing, tmp_path):
    estimator = eb.GaussianEB()
    grid = sharing(estimator, [KEY] * 4)
    fourth = grid.nodes[3]
    grid.nodes[3] = lambda message: (
        [] if messages.unpack(message)["exchange"] == "round" else fourth(message)
    )
    fitted = fit(estimator, grid, tmp_path / "out", quorum=3, deadline=0.5)
    three = SHARED < 3
    here = eb.GaussianEB().fit(X[three], groups=GROUPS[three])
    np.testing.assert_allclose(fitted.prior_.variance_, here.prior_.variance_, rtol=1e-12)
    table = pd.read_csv(tmp_path / "a" / "run-1" / "estimate.csv")
    np.testing.assert_allclose(table["estimate"], here.posterior().mean[:, 0], rtol=1e-12)


@pytest.mark.parametrize("keys", [[None] * 4, [KEY, KEY, KEY, None]])
def test_labels_that_are_not_matched_are_noted(sharing, tmp_path, keys, capsys):
    estimator = eb.GaussianEB(1.0)
    fitted = fit(estimator, sharing(estimator, keys), tmp_path / "out")
    summaries = [str(fitted.summary()), str(load_fit(estimator, tmp_path / "out").summary())]
    summaries += [(tmp_path / name / "run-1" / "summary.txt").read_text() for name in NAMES]
    for summary in summaries:
        assert "labels were not matched" in " ".join(summary.split())
    assert ("no match_key at d" in capsys.readouterr().out) == (keys[0] is not None)
    refitted = fitted.fit(X, groups=GROUPS)
    assert "not matched" not in str(refitted.summary())


def test_nodes_with_private_channels_send_no_digests(sharing, tmp_path):
    estimator = eb.GaussianEB(1.0, channel=Gaussian(1.0, 1e-5, range=(0.0, 6.0)), random_state=3)
    grid = sharing(estimator, [KEY] * 4)
    sent = []
    for number, node in list(grid.nodes.items()):
        grid.nodes[number] = lambda message, node=node: (
            sent.append(replies := node(message)) or replies
        )
    fitted = fit(estimator, grid, tmp_path / "out")
    assert "not matched" in " ".join(str(fitted.summary()).split())
    answers = [messages.unpack(reply) for replies in sent for _, reply in replies]
    assert answers
    assert not any("digests" in answer for answer in answers)


def test_keys_that_differ_end_a_fit(sharing, tmp_path):
    estimator = eb.GaussianEB()
    grid = sharing(estimator, [KEY, KEY, KEY, KEY[::-1]])
    with pytest.raises(ValueError, match="match_key must be the same"):
        fit(estimator, grid, tmp_path / "out")


def test_a_node_with_another_match_key_is_left_out(sharing, tmp_path):
    estimator = eb.GaussianEB()
    grid = sharing(estimator, [KEY, KEY, KEY, KEY[::-1]])
    fitted = fit(estimator, grid, tmp_path / "out", quorum=3)
    three = SHARED < 3
    here = eb.GaussianEB().fit(X[three], groups=GROUPS[three])
    np.testing.assert_allclose(fitted.prior_.variance_, here.prior_.variance_, rtol=1e-12)
    what = "its match_key is not that of most nodes"
    assert participants(tmp_path / "out")["roll call", "d"] == ("failed", what)
