"""A node: what it answers, keeps and writes down, without any network."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest

import ebfed as eb
from ebfed.channels import Gaussian
from ebfed.engines import journal
from ebfed.engines.flower import Node
from ebfed.engines.flower import node as node_module
from ebfed.engines.flower.cohort import check_invitation
from ebfed.wire import pack, unpack

ROWS = {"X": np.array([1.0, 2.0, 4.0, 5.0]), "groups": np.array(["a", "a", "b", "b"])}
PRIVATE = Gaussian(epsilon=1.0, delta=1e-5, range=(0.0, 10.0))


def node(path, estimator=None, load=lambda: ROWS, seed=0, budget=np.inf):
    estimator = eb.GaussianEB(channel=PRIVATE) if estimator is None else estimator
    return Node("north", estimator, load, path, seed=seed, budget=budget)


def question(round_=0, **others):
    sent = {"round": round_, "done": False, "settings": {"all clients": {}}}
    turn = np.zeros(2, np.int8)
    return {"exchange": "round", "sent": sent, "turn": turn, "first": 0} | others


def ledger(path, kind="release"):
    return [row for row in journal.read(path / "ledger.jsonl") if row["kind"] == kind]


def test_states_facts(tmp_path):
    answer = node(tmp_path).answer(1, {"exchange": "roll call"})
    assert answer["name"] == "north"
    assert answer["facts"]["n"].tolist() == [2, 2]
    assert pack(node(tmp_path).answer(1, {"exchange": "roll call"})) == pack(answer)
    (row,) = journal.read(tmp_path / "ledger.jsonl")
    assert row["kind"] == "facts"
    assert row["what"].startswith("numbers of rows, consent, n features")


def test_never_draws_twice_for_a_question(tmp_path):
    first = node(tmp_path, seed=None if _opendp() else 0).answer(7, question())
    # as after a restart, asked again with other words
    again = node(tmp_path, seed=5).answer(7, question(first=3, turn=np.full(2, -1, np.int8)))
    assert pack(first) == pack(again)
    assert len(ledger(tmp_path)) == 1
    # another run is another question
    assert pack(node(tmp_path, seed=5).answer(8, question())) != pack(first)
    assert [row["run"] for row in ledger(tmp_path)] == ["7", "8"]


def _opendp():
    try:
        import opendp  # noqa: F401
    except ImportError:
        return False
    return True


def test_ledger_says_what_was_promised(tmp_path):
    node(tmp_path).answer(7, question())
    (row,) = ledger(tmp_path)
    assert row["epsilon"] == 1.0
    assert row["delta"] == 1e-5
    assert row["clients"] == 2
    assert "Gaussian" in row["what"]
    assert row["assumptions"].startswith("simulated noise: no promise")


def test_nothing_is_sent_that_is_not_kept(tmp_path, monkeypatch):
    write = node_module.write

    def full(path, content):
        if path.name.startswith("round"):
            raise OSError("disk full")
        write(path, content)

    monkeypatch.setattr(node_module, "write", full)
    answer = node(tmp_path).answer(7, question())
    assert answer.keys() == {"name", "failure"}
    assert len(ledger(tmp_path, "plan")) == 1
    assert not ledger(tmp_path)


def test_a_failure_says_nothing_of_data(tmp_path):
    def load():
        raise KeyError("patient 4711 has 12.5")

    answer = node(tmp_path, load=load).answer(7, {"exchange": "roll call"})
    assert answer == {
        "name": "north",
        "failure": "KeyError; the node's own errors.log says more",
    }
    assert "patient 4711" in (tmp_path / "errors.log").read_text()


def test_a_server_cannot_loosen_a_promise(tmp_path):
    request = question()
    request["sent"]["settings"] = {"all clients": {"epsilon": 50.0}}
    answer = node(tmp_path).answer(7, request)
    assert answer["failure"].startswith("ValueError")
    assert not (tmp_path / "ledger.jsonl").exists()


def test_rows_that_changed_are_noticed(tmp_path):
    answer = node(tmp_path).answer(7, question(turn=np.zeros(5, np.int8)))
    assert answer["failure"].startswith("ValueError")


@pytest.mark.parametrize("request_", [{}, {"exchange": "rows"}, {"exchange": "round"}])
def test_questions_that_make_no_sense_are_failures(tmp_path, request_):
    assert "failure" in node(tmp_path).answer(7, request_)


def test_result_is_written_at_home(tmp_path):
    estimator = eb.GaussianEB()
    clients, memory = estimator.protocol().prepare(**ROWS)
    here = node(tmp_path, estimator)
    message = here.answer(7, question())["message"]
    state = estimator.protocol().start(
        estimator.protocol().describe(clients, memory), np.zeros(2, np.uint64)
    )
    sent = estimator.protocol().broadcast(estimator.protocol().update(state, message))
    assert here.answer(7, {"exchange": "result", "used": True, "sent": unpack(pack(sent))}) == {
        "name": "north"
    }
    table = pd.read_csv(tmp_path / "run-7" / "estimate.csv")
    expected = eb.GaussianEB().fit(**ROWS).posterior().to_frame()
    np.testing.assert_allclose(table["estimate"], expected["estimate"], rtol=1e-12)
    assert "GaussianEB" in (tmp_path / "run-7" / "summary.txt").read_text()
    assert not list(tmp_path.rglob("*.new"))


@pytest.mark.parametrize(
    ("nodes", "quorum", "deadline", "what"),
    [
        (0, 1, 1, "nodes must be"),
        (True, 1, 1, "nodes must be"),
        ("abc", 1, 1, "nodes must be"),
        (["a", "a"], 1, 1, "nodes must be"),
        ([], 1, 1, "nodes must be"),
        (3, 4, 1, "quorum must be a number of nodes from 1 to 3"),
        (3, 0, 1, "quorum must be"),
        (3, 1.5, 1, "quorum must be"),
        (3, True, 1, "quorum must be"),
        (3, 1, 0, "deadline must be"),
        (3, 1, np.inf, "deadline must be"),
        (3, 1, np.nan, "deadline must be"),
    ],
)
def test_arguments(nodes, quorum, deadline, what):
    with pytest.raises(ValueError, match=what):
        check_invitation(nodes, quorum, deadline)


@pytest.mark.parametrize(
    ("nodes", "quorum", "needed"),
    [(5, 1.0, 5), (5, 1, 1), (5, 0.5, 3), (100, 0.55, 55)],
)
def test_quorum(nodes, quorum, needed):
    assert check_invitation(nodes, quorum, 1)[1] == needed


def test_nobody_answers_twice_in_a_run(tmp_path):
    """A server that tells a client another turn in the next round gets nothing of it."""
    first = node(tmp_path).answer(7, question())
    assert len(first["message"]["all clients"]["n"]) == 2
    again = node(tmp_path).answer(7, question(1, turn=np.ones(2, np.int8)))
    assert len(again["message"]["all clients"]["n"]) == 0
    assert len(ledger(tmp_path)) == 1


def test_a_budget_ends_what_runs_may_ask(tmp_path):
    for run in (1, 2):
        assert "message" in node(tmp_path, budget=1.6).answer(run, question())
    refused = node(tmp_path, budget=1.6).answer(3, question())
    assert refused.keys() == {"name", "failure"}
    assert "of 3 runs would exceed budget 1.6" in (tmp_path / "errors.log").read_text()
    assert [row["run"] for row in ledger(tmp_path)] == ["1", "2"]
    # what was sent before is sent again: it costs nothing
    assert "message" in node(tmp_path, budget=1.6).answer(2, question())


@pytest.mark.parametrize(
    ("round_", "turn"),
    [
        (0, np.zeros(2)),
        (0, np.full(2, 65504, np.float16)),
        (0, np.zeros(2, np.int64)),
        (0, np.zeros(3, np.int8)),
        (0.0, np.zeros(2, np.int8)),
        (True, np.zeros(2, np.int8)),
        (-1, np.full(2, -1, np.int8)),
        (2**53, np.zeros(2, np.int8)),
    ],
)
def test_rounds_and_turns_are_small_integers(tmp_path, round_, turn):
    """Numbers of other types can equal one another in more than one round."""
    assert "failure" in node(tmp_path).answer(7, question(round_, turn=turn))
    assert not (tmp_path / "ledger.jsonl").exists()


@pytest.mark.parametrize(
    "now",
    [
        {"X": ROWS["X"], "groups": np.array(["b", "b", "c", "c"])},
        {"X": ROWS["X"][:3], "groups": ROWS["groups"][:3]},
        {"X": ROWS["X"], "groups": ROWS["groups"], "consent": ["p", "p", "p", "p"]},
    ],
)
def test_what_was_stated_holds_for_the_run(tmp_path, now):
    both = eb.GaussianEB(1.0, channel={"p": PRIVATE, "o": eb.channels.Exact()})
    before = ROWS | {"consent": ["o", "o", "p", "p"]}
    now = {"consent": ["o"] * len(now["X"])} | now
    node(tmp_path, both, lambda: before).answer(7, {"exchange": "roll call"})
    changed = node(tmp_path, both, lambda: now).answer(7, question())
    assert "failure" in changed
    assert "have changed since the roll call" in (tmp_path / "errors.log").read_text()


def test_questions_at_once_are_answered_one_by_one(tmp_path):
    with ThreadPoolExecutor(4) as pool:
        same = list(pool.map(lambda _: node(tmp_path, seed=0).answer(7, question()), range(4)))
    assert len({pack(answer) for answer in same}) == 1
    assert len(ledger(tmp_path)) == 1
    others = tmp_path / "others"
    with ThreadPoolExecutor(4) as pool:
        runs = pool.map(lambda run: node(others, budget=1.6).answer(run, question()), range(4))
        assert sum("message" in answer for answer in runs) == 2


def test_a_report_that_came_too_late_is_in_no_result(tmp_path):
    """Then nothing of it is in the mean, and nothing is taken out of it."""
    rows = {"X": np.arange(8.0), "groups": np.repeat(["a", "b", "c", "d"], 2)}
    estimator = eb.GaussianEB(1.0, channel=eb.channels.AddNoise(0.5))
    clients, memory = estimator.protocol().prepare(**rows)
    key = np.zeros(2, np.uint64)
    state = estimator.protocol().start(estimator.protocol().describe(clients, memory), key)
    asked = question(turn=np.zeros(4, np.int8)) | {"sent": estimator.protocol().broadcast(state)}
    predictions = []
    for used in (True, False):
        here = node(tmp_path / str(used), estimator, lambda: rows)
        message = here.answer(7, asked)["message"]
        sent = estimator.protocol().broadcast(estimator.protocol().update(state, message))
        here.answer(7, {"exchange": "result", "used": used, "sent": sent})
        (table,) = (tmp_path / str(used)).glob("run-7/estimate.csv")
        predictions.append(pd.read_csv(table)["estimate"].to_numpy())
    new = (
        estimator.protocol()
        .conclude(estimator.protocol().update(state, message))
        .predict(**rows)[::2]
    )
    np.testing.assert_allclose(predictions[1], new)
    assert np.abs(predictions[0] - new).max() > 1e-3


def test_too_little_noise_is_not_added(tmp_path):
    rows = ROWS | {"consent": ["private"] * 4}
    estimator = eb.OptOutMean(1.0, 1.0, epsilon=1, delta=1e-5, range=(0, 10))
    sent = {
        "round": 0,
        "n_private": {"private": 2},
        "settings": {"private": {"sd": 0.0}, "open": {}},
    }
    refused = node(tmp_path, estimator, lambda: rows).answer(7, question() | {"sent": sent})
    assert "failure" in refused
    assert "epsilon needs" in (tmp_path / "errors.log").read_text()
    assert not (tmp_path / "ledger.jsonl").exists()


def test_only_the_last_messages_are_kept(tmp_path):
    """The ledger lists all; a message that is asked for again is the one that was sent."""
    rng = np.random.default_rng(0)
    rows = {"X": rng.normal(size=(40, 2)), "y": np.tile([0, 1], 20), "groups": np.arange(40) // 10}
    learner = eb.learning.FedAvg(n_rounds=40, random_state=0)
    federate = node(tmp_path, learner, lambda: rows)
    clients, memory = learner.protocol().prepare(**rows)
    state = learner.protocol().start(
        learner.protocol().describe(clients, memory), np.array([0, 1], np.uint64)
    )
    answers, largest = [], 0
    while not state["done"]:
        request = {
            "exchange": "round",
            "sent": learner.protocol().broadcast(state),
            "turn": state["turn"],
        }
        answers.append(federate.answer(7, request | {"first": 0}))
        assert pack(federate.answer(7, request | {"first": 3})) == pack(answers[-1])
        state = learner.protocol().update(state, answers[-1]["message"])
        files = list((tmp_path / "run-7").glob("round-*"))
        largest = max(largest, sum(file.stat().st_size for file in files))
    assert sorted(file.name for file in files) == ["round-38.ebfed", "round-39.ebfed"]
    assert [row["round"] for row in ledger(tmp_path)] == list(range(40))
    assert largest < 10_000
    here = eb.learning.FedAvg(n_rounds=40, random_state=0).fit(**rows)
    assert federate.answer(
        7, {"exchange": "result", "sent": learner.protocol().broadcast(state), "used": True}
    )
    written = pd.read_csv(tmp_path / "run-7" / "estimate.csv")
    np.testing.assert_allclose(
        written.iloc[:, 2:], here.protocol().estimates().iloc[:, 2:], rtol=1e-3
    )
    first = {
        "exchange": "round",
        "sent": learner.protocol().broadcast(state) | {"round": 3, "done": False},
    }
    again = federate.answer(7, first | {"turn": np.zeros(4, np.int8), "first": 0})
    assert again["failure"].startswith("ValueError")
    assert "round 4 was answered, and its file is gone" in (tmp_path / "errors.log").read_text()
