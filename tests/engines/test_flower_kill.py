"""A node that is killed, or whose disk is full: nothing is sent that is not in the ledger."""

import multiprocessing
import os
import resource
import signal
import time

import numpy as np
import pytest
from forks import fork

from ebfed import wire
from ebfed.engines import journal
from ebfed.engines.flower import Node
from ebfed.learning import ClientPrivacy, DPFedAvg
from ebfed.models import Linear
from ebfed.streams import make_key

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

ROUNDS = 12
RNG = np.random.default_rng(5)
ROWS = {
    "X": RNG.normal(size=(40, 2)),
    "y": RNG.normal(size=40),
    "groups": np.repeat(np.arange(20), 2),
}
LEARNER = DPFedAvg(
    Linear(), privacy=ClientPrivacy(noise_multiplier=2.0, trust="none"), n_rounds=ROUNDS
)


def work(folder, pipe, seed, most=None):
    """Answer all rounds, and say so of each one; files of more than `most` bytes do not fit."""
    if most is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    node = Node("north", LEARNER, lambda: ROWS, folder, seed=seed, budget=np.inf)
    facts = node.answer(1, {"exchange": "roll call"}).get("facts")
    pipe.send("ready")
    if facts is None:
        return
    sent = LEARNER.protocol().broadcast(LEARNER.protocol().start(facts, make_key(1)))
    for round_ in range(ROUNDS):
        asked = sent | {"round": round_}
        turn = np.zeros(20, np.int8)
        answer = node.answer(1, {"exchange": "round", "sent": asked, "turn": turn, "first": 0})
        if "message" in answer:
            pipe.send((round_, wire.pack(answer["message"])))


def run(folder, seed, patience=None, most=None):
    """Let a process work, and kill it after so many seconds; returns what it has sent."""
    here, there = multiprocessing.Pipe(duplex=False)
    child = fork(lambda: work(folder, there, seed, most))
    there.close()
    got = []
    try:
        got.append(here.recv())
        if patience is not None:
            time.sleep(patience)
            os.kill(child, signal.SIGKILL)
        while True:
            got.append(here.recv())
    except EOFError:
        os.waitpid(child, 0)
    return dict(each for each in got if each != "ready")


def check(folder, known, sent):
    """What was sent is in the ledger, once, and the same whenever it was sent."""
    for round_, message in sent.items():
        assert known.setdefault(round_, message) == message, "noise was drawn again"
    entries = journal.read(folder / "ledger.jsonl")
    listed = [row["round"] for row in entries if row["kind"] == "release"]
    assert len(set(listed)) == len(listed)
    assert known.keys() <= set(listed)
    assert sum(row["kind"] == "plan" for row in entries) <= 1
    for file in folder.glob("run-1/*.ebfed"):
        if not file.name.startswith("."):  # that a kill left unfinished
            wire.unpack(file.read_bytes())


def kill(folder, times, rng):
    known = {}
    for each in ("first", "second"):  # the first one reads compiled code
        began = time.monotonic()
        assert len(run(folder / each, seed=0)) == ROUNDS
        longest = time.monotonic() - began
    for i in range(times):
        place = folder / str(i // 5)  # five kills on the way through a run
        known = known if i % 5 else {}
        check(place, known, run(place, seed=i, patience=rng.uniform(0, longest / 5)))
        if i % 5 == 4 or i == times - 1:
            check(place, known, run(place, seed=i + 1000))
            assert len(known) == ROUNDS


def test_kills(tmp_path):
    kill(tmp_path, 5, np.random.default_rng(1))


@pytest.mark.slow
def test_many_kills(tmp_path):
    kill(tmp_path, 50, np.random.default_rng(2))


def test_a_full_disk(tmp_path):
    """Whatever does not fit, nothing is sent that is not listed; with room, the run goes on."""
    known = {}
    for most in (0, 40, 100, 600, 1500, 2500, 4000):
        check(tmp_path, known, run(tmp_path, seed=most, most=most))
    check(tmp_path, known, run(tmp_path, seed=9))
    assert len(known) == ROUNDS
