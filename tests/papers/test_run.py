"""The command that runs the studies of the papers, and what all of these have in common."""

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

import run
from ozkara2023 import bits

NAMES = list(run.FOLDERS)


def invoke(*arguments):
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = run.main([str(argument) for argument in arguments])
        except SystemExit as stop:
            code = stop.code
    return SimpleNamespace(exit_code=code, stdout=out.getvalue(), stderr=err.getvalue())


class Broken:
    """A task that is interrupted when it is called once more than so many times."""

    def __init__(self, task, times):
        self.task, self.times, self.calls = task, times, 0

    def __call__(self, **arguments):
        self.calls += 1
        if self.calls > self.times:
            raise KeyboardInterrupt
        return self.task(**arguments)


def test_interrupted_study_goes_on(tmp_path, monkeypatch):
    """At the command line, to the same page, doing only what was not done."""
    arguments = ("bits", "--quick", "--reps", 2)
    unbroken = invoke(*arguments).stdout
    task = bits.BitsStudy.one_run
    monkeypatch.setattr(bits.BitsStudy, "one_run", Broken(task, 3))
    with pytest.raises(KeyboardInterrupt):
        invoke(*arguments, "--out", tmp_path)
    assert not (tmp_path / "bits.txt").exists()
    rest = Broken(task, 5)
    monkeypatch.setattr(bits.BitsStudy, "one_run", rest)
    resumed = invoke(*arguments, "--out", tmp_path)
    assert rest.calls == 5
    assert resumed.stdout.startswith(unbroken)
    assert (tmp_path / "bits.txt").read_text(encoding="utf-8") == unbroken


def test_progress_goes_to_stderr(capsys):
    bits.BitsStudy.run(2, quick=True, progress=True)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "bits" in shown.err


def test_list_of_studies():
    result = invoke()
    assert result.exit_code == 0
    named = [line.split()[0] for line in result.stdout.splitlines() if line[:1] == " "]
    assert named == NAMES
    assert invoke("list").stdout == result.stdout


def test_script():
    """From a clone, in any folder, with ebfed installed."""
    script = Path(run.__file__)
    answer = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert answer.stdout == invoke("list").stdout, answer.stderr


def test_every_paper_has_its_studies():
    folders = {path.parent.name for path in Path(run.__file__).parent.glob("*/__init__.py")}
    assert folders == run.PAPERS.keys() - {"ebfed.evaluation"}
    assert run.PAPERS.keys() == run.STUDIES.keys()
    references = (Path(run.__file__).parents[1] / "paper" / "paper.bib").read_text()
    for folder in folders - {"beyond"}:
        assert f"{{{folder}," in references


def test_all_studies_in_their_order(monkeypatch, tmp_path):
    seen = []

    class Study:
        @staticmethod
        def run(reps, seed, quick, keep):
            seen.append((reps, seed, quick, keep))
            return SimpleNamespace(to_text=lambda: f"study {len(seen)}", save=lambda out: [out])

    monkeypatch.setattr(run, "find", lambda name: Study)
    result = invoke("--all", "--quick", "--reps", 4, "--out", tmp_path)
    assert result.exit_code == 0
    assert seen == [(4, 0, True, tmp_path)] * len(NAMES)
    assert [line for line in result.stdout.splitlines() if line[:5] == "study"][-1] == (
        f"study {len(NAMES)}"
    )
    timed = result.stderr.splitlines()
    assert [line.split()[0] for line in timed] == [*NAMES, "all"]
    assert all(line.endswith(" minutes") for line in timed)


def test_folder_of_data(monkeypatch, tmp_path):
    monkeypatch.setenv("EBFED_DATA", "before")
    monkeypatch.setattr(bits.BitsStudy, "run", lambda *_, **__: os.environ["EBFED_DATA"].shout)
    with pytest.raises(AttributeError):
        invoke("bits", "--data", tmp_path)
    assert os.environ["EBFED_DATA"] == str(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "no study 'nothing'; there are private-means, private-rates, bits"),
        (["bits", "--all"], "give a name or --all, not both; got bits"),
        (["bits", "--quick", "--reps", 1], "reps must be at least 2"),
        (["bits", "--quick", "--seed", -1], "seed must not be negative"),
        (["bits", "--quick", "--only", "bits=3"], "only must be values of cells of bits; got"),
        (["bits", "--quick", "--only", "bits"], "--only is NAME=VALUE; got bits"),
        (["bits", "--quick", "--model", "cnn"], "bits has no choice of a model"),
    ],
)
def test_refusals(arguments, message):
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("run.py: ")
    assert message in line


def test_some_cells_alone():
    result = invoke("bits", "--quick", "--only", "bits=2")
    assert result.exit_code == 0
    assert "variances known" in result.stdout
    assert "non-private " not in result.stdout
    assert "nan" not in result.stdout
    table = bits.BitsStudy.run(2, quick=True, only={"bits": "nan,2"}).table
    assert table["bits"].dropna().unique().tolist() == [2]
    assert "non-private" in table["method"].tolist()


def test_help():
    result = invoke("--help")
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 100


def test_text_is_the_default():
    result = invoke("bits", "--quick", "--reps", 2)
    assert result.exit_code == 0, result.output
    assert result.stdout == bits.BitsStudy.run(2, quick=True).to_text() + "\n"
    assert invoke("bits", "--quick", "--reps", 2, "--seed", 1).stdout != result.stdout


@pytest.mark.parametrize("name", NAMES)
def test_results_are_the_same_for_a_seed(name, quick_studies, tmp_path, monkeypatch):
    """The command line gives what `run` gave, in numbers and files, and so does what it kept."""
    study = quick_studies[name]
    out = tmp_path / "deep" / "results"
    result = invoke(name, "--quick", "--reps", 2, "--seed", 3, "--json", "--out", out)
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
    monkeypatch.setattr(type(study), "one_run", Broken(type(study).one_run, 0))
    kept = run.find(name).run(2, 3, quick=True, keep=out).runs
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
    "private-frequencies",
    "private-rates",
}


@pytest.mark.parametrize("name", NAMES)
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
@pytest.mark.parametrize("name", NAMES)
def test_processes_make_no_difference(name, quick_studies):
    runs = run.find(name).run(2, 3, quick=True, n_jobs=2).runs
    pd.testing.assert_frame_equal(runs, quick_studies[name].runs)
