"""`ebfed audit`: what it prints, and how it ends."""

import json
import re
from itertools import pairwise

import pytest
from typer.testing import CliRunner

from ebfed import channels
from ebfed.channels.one_bit import Coin
from ebfed.cli.app import app
from ebfed.evaluation import audit
from ebfed.privacy.audit import Audit

runner = CliRunner()


def invoke(*arguments, trainings=0):
    given = ["audit", "--trainings", trainings, *arguments]
    return runner.invoke(app, [str(argument) for argument in given])


def test_audit_prints_a_table():
    result = invoke("--epsilon", 1, "--epsilon", 2, "--simulations", 3000)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 100
    assert sum(line.startswith("OneBit ") for line in lines) == 4
    assert lines[-3].startswith("None of 42 claims is refuted")
    assert "probability 0.9999" in lines[-2]
    assert lines[-1].startswith("Not tested, because they have no epsilon: ")
    assert lines[-1].endswith(": AddNoise, Clip, Exact, Quantizer.")
    assert any(re.fullmatch(r"  channels with delta 0  +\d+ to \d+ %", line) for line in lines)
    assert "learners" not in result.stdout
    assert "FAILED" not in result.stdout
    assert result.stderr == ""


def test_each_verdict_is_printed_when_it_is_known(monkeypatch):
    """The first line is there before the second channel is audited."""
    printed, before = [], []
    audited = audit._audit_channel

    def watched(**settings):
        before.append(len(printed))
        return audited(**settings)

    monkeypatch.setattr(audit, "_audit_channel", watched)
    found = audit.run([1.0], simulations=1000, show=printed.append)
    assert before[0] == 0
    steps = [later - earlier for earlier, later in pairwise(before)]
    assert steps[1:] == [1] * (len(before) - 2)
    assert "\n".join([*printed, *found.conclusion()]) == found.to_text()


def test_a_claim_about_which_nothing_was_shown_does_not_pass_in_words():
    """1,000 reports cannot distinguish Gaussian noise of epsilon 0.1, whose delta is 1e-5."""
    printed = []
    audit.run([0.1], simulations=1000, show=printed.append)
    lines = [line for line in printed if line.startswith("Gaussian ")]
    assert lines
    assert all(line.endswith("0.000   nothing shown") for line in lines)


def test_audit_as_json():
    result = invoke("--epsilon", 1, "--simulations", 3000, "--delta", 1e-4, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["passed"] is True
    assert found["simulations"] == 3000
    assert found["trainings"] == 0
    assert found["one_run"] is False
    assert found["not_private"] == ["AddNoise", "Clip", "Exact", "Quantizer"]
    rows = {row["name"]: row for row in found["table"]}
    assert rows["Gaussian"]["delta"] == 1e-4
    assert rows["OneBit"]["channel"] == "OneBit(epsilon=1.0, range=(0, 1))"
    assert 0 < rows["OneBit"]["lower"] <= 1
    other = invoke("--epsilon", 1, "--simulations", 3000, "--delta", 1e-4, "--json", "--seed", 1)
    assert json.loads(other.stdout) != found


def test_a_refuted_promise_ends_with_code_1(monkeypatch):
    class Biased(channels.OneBit):
        def _law(self, n_features):
            return Coin(2 * self.epsilon)

    monkeypatch.setattr(channels, "OneBit", Biased)
    result = invoke("--epsilon", 1, "--simulations", 3000)
    assert result.exit_code == 1, result.output
    failed = [line for line in result.stdout.splitlines() if "FAILED" in line]
    assert len(failed) == 2
    evidence = (
        r"    an event is seen in [\d.]+ % of runs if the client is [a-z ]+, in [\d.]+ % if [a-z ]+"
    )
    lines = result.stdout.splitlines()
    assert all(re.fullmatch(evidence, lines[lines.index(line) + 1]) for line in failed)
    assert all(line.startswith("Biased ") for line in failed)
    assert "2 of 21 claims are refuted." in result.stdout
    result = invoke("--epsilon", 1, "--simulations", 3000, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["passed"] is False


@pytest.mark.slow
def test_learners_stand_below_channels(monkeypatch):
    first = next(audit.trials())
    monkeypatch.setattr(audit, "trials", lambda: iter([first]))
    result = invoke("--epsilon", 1, "--simulations", 3000, trainings=1500)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    place = lines.index("learners, 1,500 trainings with each of two inputs")
    assert lines[place + 2].startswith("DPFedAvg  ")
    assert max(map(len, lines)) <= 100
    assert "None of 20 claims is refuted" in result.stdout


def test_learners_that_so_few_trainings_cannot_refute_are_named(monkeypatch):
    some = [trial for trial in audit.trials() if trial[0] in ("DPFedAvg 5 of 10", "FeO2")]
    tested = []

    def trained(name, learner, canary, simulations, error, seed):
        tested.append(name)
        found = Audit("FeO2()", 2, 3.0, 0.1, 1.0, "present", "absent", 0.5, 0.1, simulations, error)
        return {"name": name} | found.row()

    monkeypatch.setattr(audit, "trials", lambda: iter(some))
    monkeypatch.setattr(audit, "_audit_learner", trained)
    found = audit.run([1.0], simulations=1000, trainings=1000)
    assert tested == ["FeO2"]
    assert found.to_dict()["too_few"] == ["DPFedAvg 5 of 10"]
    text = found.to_text()
    assert "Not tested, because trainings are too few: DPFedAvg 5 of 10." in text
    assert "learners               33 to 33 %" in text
    tested.clear()
    assert audit.run([1.0], simulations=1000, trainings=4000).too_few == ()
    assert tested == ["DPFedAvg 5 of 10", "FeO2"]


def test_learners_are_trained_once(monkeypatch):
    first = next(audit.trials())
    monkeypatch.setattr(audit, "trials", lambda: iter([first]))
    run = audit.run
    monkeypatch.setattr(audit, "run", lambda *args, **more: run(*args, **more | {"n_jobs": 1}))
    result = invoke("--epsilon", 1, "--simulations", 3000, "--one-run")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    place = lines.index("learners, one training with 1,000 canaries")
    assert lines[place + 2].startswith("DPFedAvg  ")
    assert "passed" in lines[place + 2]
    assert max(map(len, lines)) <= 100
    assert "probability 0.9899" in lines[-2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epsilon", 0], "epsilon must be a finite number above 0"),
        (["--epsilon", 20], "cannot be refuted by 200,000 simulations"),
        (["--delta", 2], "delta must lie between 0 and 1"),
        (["--simulations", 10], "simulations must be at least 1,000"),
        (["--trainings", -1], "trainings must be"),
        (["--trainings", 10], "trainings must be 0, or at least 1,000; got 10"),
        (["--seed", -1], "non-negative"),
    ],
)
def test_mistakes(arguments, message):
    result = invoke(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("ebfed: ")
    assert message in line


def test_help():
    result = invoke("--help")
    assert result.exit_code == 0
    assert "ebfed audit --epsilon 2" in result.stdout
    assert "--trainings" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 100
