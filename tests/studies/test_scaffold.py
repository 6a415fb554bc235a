"""Simulated studies at the command line and as files; what they share."""

import json
from dataclasses import replace
from importlib import import_module

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from ebfed.cli.app import app
from ebfed.studies import STUDIES, bits
from ebfed.studies.scaffold import average, doubts, replicate


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def draw(seed, scale):
    rng = np.random.default_rng(seed)
    return [{"method": name, "mse": scale * rng.random()} for name in ("a", "b")]


def test_replicate_and_average():
    runs = replicate(
        draw,
        [{"scale": 1.0}, {"scale": 2.0}],
        reps=5,
        seed=7,
        n_jobs=1,
        progress=False,
        label="",
    )
    assert runs.columns.tolist() == ["scale", "run", "method", "mse"]
    assert len(runs) == 20
    third = runs[(runs["run"] == 3) & (runs["scale"] == 2)]
    assert third["mse"].tolist() == [row["mse"] for row in draw((7, 3), 2.0)]
    table = average(runs, ["scale", "method"], ["mse"])
    first = runs.loc[(runs["scale"] == 1) & (runs["method"] == "a"), "mse"]
    assert table["mse"][0] == pytest.approx(first.mean())
    assert table["mse_sd"][0] == pytest.approx(first.std(ddof=1))
    assert table["mse_se"][0] == pytest.approx(first.std(ddof=1) / np.sqrt(5))


def errors(**risks):
    """Errors of methods, ± .001, against bits; NaN: none."""
    rows = [
        {"m": 500, "method": method, "bits": bits, "mse": mse, "mse_se": 0.001}
        for method, line in risks.items()
        for bits, mse in line.items()
    ]
    return pd.DataFrame(rows)


LOCAL = {np.nan: 0.05}


def test_a_line_that_rises_with_information_is_doubtful():
    table = errors(local=LOCAL, known={1: 0.02, 2: 0.01}, learned={2: 0.0096, 4: 0.0159, 8: 0.009})
    told = "learned, bits 4, m 500: above its own error at bits 2"
    assert doubts(table, "bits") == ["", "", "", "", told, ""]


def test_a_risk_above_that_of_local_estimates_is_doubtful():
    table = errors(local=LOCAL, learned={2: 0.056, 4: 0.009})
    told = "learned, bits 2, m 500: above the error of local estimates"
    assert doubts(table, "bits") == ["", told, ""]


@pytest.mark.parametrize("risk", [0.0101, 0.0104, 0.009])
def test_chance_is_no_doubt(risk):
    """Neither where the error is small, nor less than one error or 5 % above."""
    assert not any(doubts(errors(local=LOCAL, learned={2: 0.01, 4: risk}), "bits"))
    table = errors(local=LOCAL, learned={2: 0.01, 4: 0.0112})
    assert not any(doubts(table, "bits"))
    assert any(doubts(table.assign(mse_se=1e-4), "bits"))


class Broken:
    """A task that is interrupted when it is called once more than so many times."""

    def __init__(self, task, times):
        self.task, self.times, self.calls = task, times, 0

    def __call__(self, **arguments):
        self.calls += 1
        if self.calls > self.times:
            raise KeyboardInterrupt
        return self.task(**arguments)


def test_interrupted_runs_go_on(tmp_path):
    cells = [{"scale": 1.0}, {"scale": np.nan}, {"scale": 3.0}]
    settings = {"reps": 3, "seed": 7, "n_jobs": 1, "progress": False, "label": "draw"}
    unbroken = replicate(draw, cells, **settings)
    with pytest.raises(KeyboardInterrupt):
        replicate(Broken(draw, 4), cells, keep=tmp_path, **settings)
    rest = Broken(draw, 5)
    pd.testing.assert_frame_equal(replicate(rest, cells, keep=tmp_path, **settings), unbroken)
    assert rest.calls == 5
    # nothing is taken from another seed, cell, study or number of runs
    again = Broken(draw, 3)
    more = replicate(again, cells, keep=tmp_path, **settings | {"reps": 4})
    assert again.calls == 3
    pd.testing.assert_frame_equal(more[:18], unbroken)
    for change in ({"seed": 8}, {"label": "other"}):
        other = Broken(draw, 9)
        replicate(other, cells, keep=tmp_path, **settings | change)
        assert other.calls == 9


def test_interrupted_study_goes_on(tmp_path, monkeypatch):
    """At the command line, to the same page, doing only what was not done."""
    arguments = ("study", "bits", "--quick", "--reps", 2)
    unbroken = invoke(*arguments).stdout
    task = bits.STUDY.one_run
    monkeypatch.setattr(bits, "run", replace(bits.STUDY, one_run=Broken(task, 3)).run)
    broken = invoke(*arguments, "--out", tmp_path)
    assert broken.exit_code != 0
    assert not (tmp_path / "bits.txt").exists()
    rest = Broken(task, 5)
    monkeypatch.setattr(bits, "run", replace(bits.STUDY, one_run=rest).run)
    resumed = invoke(*arguments, "--out", tmp_path)
    assert rest.calls == 5
    assert resumed.stdout.startswith(unbroken)
    assert (tmp_path / "bits.txt").read_text(encoding="utf-8") == unbroken


def test_progress_goes_to_stderr(capsys):
    bits.run(2, quick=True, progress=True)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "bits" in shown.err


def test_list_of_studies():
    result = invoke("study")
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.splitlines()] == list(STUDIES)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "no study 'nothing'; there are county, private-means, private-rates, bits"),
        (["county", "--seed", 1], "county draws nothing at random"),
        (["bits", "--quick", "--reps", 1], "reps must be at least 2"),
        (["bits", "--quick", "--seed", -1], "seed must not be negative"),
    ],
)
def test_refusals(arguments, message):
    result = invoke("study", *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("ebfed: ")
    assert message in line


def test_help():
    result = invoke("study", "--help")
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 100


def test_text_is_the_default():
    result = invoke("study", "bits", "--quick", "--reps", 2)
    assert result.exit_code == 0, result.output
    assert result.stdout == bits.run(2, quick=True).to_text() + "\n"
    assert invoke("study", "bits", "--quick", "--reps", 2, "--seed", 1).stdout != result.stdout


@pytest.mark.parametrize("name", [name for name in STUDIES if name != "county"])
def test_results_are_the_same_for_a_seed(name, quick_studies, tmp_path):
    """The command line gives what `run` gave, in numbers and files, and so does what it kept."""
    study = quick_studies[name]
    out = tmp_path / "deep" / "results"
    result = invoke("study", name, "--quick", "--reps", 2, "--seed", 3, "--json", "--out", out)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == study.to_dict()
    stem = name.replace("-", "_")
    kinds = ("table", "runs", *(["gains"] if name == "opt-out" else []))
    files = {f"{stem}_{kind}.csv" for kind in kinds} | {f"{stem}.txt", f"{stem}.png"}
    assert {path.name for path in out.iterdir()} == files | {"cells"}
    assert result.stderr.count("Wrote ") == len(files)
    assert (out / f"{stem}.png").stat().st_size > 10_000
    assert (out / f"{stem}.txt").read_text(encoding="utf-8") == study.to_text() + "\n"
    for kind in kinds:
        text = {"figure": str, "panel": str, "doubt": str}
        stored = pd.read_csv(out / f"{stem}_{kind}.csv", dtype=text)
        # a figure of one panel gives it no name
        empty = stored.columns.intersection(["panel", "doubt"])
        stored[empty] = stored[empty].fillna("")
        pd.testing.assert_frame_equal(stored, getattr(study, kind))
    declared = import_module(f"ebfed.studies.{stem}").STUDY
    kept = replace(declared, one_run=Broken(declared.one_run, 0))
    kept = kept.run(2, 3, quick=True, keep=out).runs
    pd.testing.assert_frame_equal(kept, study.runs, check_exact=True)


# Studies that print values of epsilon.
PRIVATE = {
    "coverage",
    "joint-dp",
    "mixture",
    "opt-out-learning",
    "personalization",
    "ppsgd",
    "private-means",
    "private-rates",
}


@pytest.mark.parametrize("name", [name for name in STUDIES if name != "county"])
def test_page_is_narrow_and_whole(name, quick_studies):
    study = quick_studies[name]
    text = study.to_text()
    assert max(map(len, text.splitlines())) <= 96
    assert "nan" not in text
    for method in study.table["prior" if name == "coverage" else "method"].unique():
        assert method in text
    flat = " ".join(text.split())
    assert ("Noise is simulated from the seed, and protects nobody." in flat) == (name in PRIVATE)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in STUDIES if name != "county"])
def test_processes_make_no_difference(name, quick_studies):
    module = import_module(f"ebfed.studies.{name.replace('-', '_')}")
    runs = module.run(2, 3, quick=True, n_jobs=2).runs
    pd.testing.assert_frame_equal(runs, quick_studies[name].runs)
