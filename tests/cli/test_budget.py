"""The commands `ebfed budget`: figures of a node's ledger."""

import csv
import io

import numpy as np
import pytest
from typer.testing import CliRunner

import ebfed as eb
from ebfed.channels import Gaussian
from ebfed.cli.app import app
from ebfed.engines.flower import Node

MODEL = """
from ebfed import GaussianEB
from ebfed.channels import Gaussian
estimator = GaussianEB(1.0, channel=Gaussian(epsilon={epsilon}, delta=1e-5, range=(0, 10)))
rows = {{"X": ["value"], "groups": "group"}}
"""
RULES = (
    "epsilon = 2.0\ndelta = 1e-5\n[rows]\npath = 'rows.csv'\nperson = 'group'\ngroups = ['group']\n"
)


def budget(*words):
    return CliRunner().invoke(app, ["budget", *map(str, words)])


@pytest.fixture
def directory(tmp_path):
    """A node that has answered two runs."""
    (tmp_path / "node.toml").write_text(RULES)
    estimator = eb.GaussianEB(1.0, channel=Gaussian(epsilon=1.0, delta=1e-5, range=(0, 10)))
    rows = {"X": np.arange(6.0), "groups": ["a", "a", "b", "b", "c", "c"]}
    node = Node("north", estimator, lambda: rows, tmp_path, seed=1)
    sent = {"round": 0, "done": False, "settings": {"all clients": {}}}
    for run in (1, 2):
        ask = {"exchange": "round", "sent": sent, "turn": np.zeros(3, np.int8), "first": 0}
        assert "message" in node.answer(run, ask)
    return tmp_path


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "model.py").write_text(MODEL.format(epsilon=0.3))
    (tmp_path / "rows.csv").write_text("group,value\na,1\na,2\nb,3\nb,4\nd,5\nd,5\n")
    return folder


def test_show(directory):
    lines = budget("show", directory).stdout.splitlines()
    assert lines[0] == "Budget: epsilon 2 at delta 1e-05 for each person, all runs."
    assert "GaussianEB, 3 groups (all clients), 1 of any rounds, epsilon 1 at" in lines[1]
    assert all(line.endswith("this was simulated noise: no promise.") for line in lines[1:3])
    assert len(lines) == 5
    spent = float(lines[3].split("spent epsilon ")[1].split(",")[0])
    assert 1.0 < spent < 2.0
    left = float(lines[4].split("up to ")[1].split(",")[0])
    assert 0 < left < 2.0 - spent + 1.0


def test_plan(directory, project):
    fits = budget("plan", directory, project)
    assert fits.exit_code == 0, fits.output
    assert "GaussianEB would take from 3 groups (all clients)" in fits.stdout
    assert "epsilon 0.3 at delta 1e-05" in fits.stdout
    assert fits.stdout.endswith("The node would take part.\n")
    (project / "model.py").write_text(MODEL.format(epsilon=1.9))
    above = budget("plan", directory, project)
    assert above.exit_code == 1
    assert above.stdout.endswith("The node would refuse: this is above the budget.\n")


def test_export(directory):
    rows = list(csv.DictReader(io.StringIO(budget("export", directory).stdout)))
    assert [row["kind"] for row in rows] == ["plan", "release"] * 2
    assert {row["groups"] for row in rows} == {"3"}
    assert {row["epsilon"] for row in rows} == {"1.0"}


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["show", "nowhere"], "node.toml"),
        (["plan", "here", "nowhere"], "holds no model.py"),
    ],
)
def test_errors_are_one_line(directory, project, words, what):
    places = {"here": directory, "app": project, "nowhere": directory / "nowhere"}
    result = budget(*[places.get(word, word) for word in words])
    assert result.exit_code == 2
    assert what in result.stderr
    assert len(result.stderr.splitlines()) == 1
