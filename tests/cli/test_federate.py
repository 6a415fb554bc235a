"""The commands of a federation, as far as nothing is started."""

import json
import tomllib

import pandas as pd
import pytest
from typer.testing import CliRunner

from ebfed.cli import project
from ebfed.cli.app import app
from ebfed.engines import loopback
from ebfed.engines.flower import client_app, server_app
from ebfed.engines.loopback import Federation


@pytest.fixture
def started(monkeypatch):
    """What would be started."""
    calls = []
    monkeypatch.setattr(Federation, "up", lambda self, *given, **more: calls.append((*given, more)))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    return calls


def ebfed(*words):
    return CliRunner().invoke(app, ["federate", *map(str, words)])


def refusal(*words):
    result = ebfed(*words)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("ebfed: ")
    return line


@pytest.mark.parametrize("family", ["gaussian", "binomial", "poisson"])
def test_project_is_valid(started, tmp_path, family):
    place = tmp_path / "trial"
    assert ebfed("up", place, "--nodes", 2, "--family", family).exit_code == 0
    tomllib.loads((place / "app" / "pyproject.toml").read_text())
    for file in place.glob("app/*.py"):
        compile(file.read_text(), file, "exec")
    ((nodes, more),) = started
    assert more == {"tls": False}
    assert list(nodes) == ["node-1", "node-2"]
    namespace = {}
    exec((place / "app" / "client_app.py").read_text().split("\n\n\napp =")[0].replace(
        "from model import estimator", ""), namespace)  # fmt: skip
    context = type("Context", (), {"node_config": nodes["node-2"]})
    rows = namespace["load"](context)
    exec((place / "app" / "model.py").read_text(), namespace)
    assert len(namespace["estimator"].fit(**rows).groups_) == 20


def test_project_reads_other_dialects(started, tmp_path):
    text = "schule;note\nKöln;1,5\nKöln;2,5\nBonn;3,5\nBonn;4\n"
    (tmp_path / "a.csv").write_bytes(text.encode("latin-1"))
    place = tmp_path / "trial"
    columns = ("--data", tmp_path / "*.csv", "--group", "schule", "--value", "note")
    assert "a.csv: the text is not in utf-8; give the enc" in refusal("up", place, *columns)
    columns = (*columns, "--encoding", "latin-1")
    assert "a.csv: no column 'schule' (--group)" in (line := refusal("up", place, *columns))
    assert line.endswith("give --sep ';'")
    columns = (*columns, "--sep", ";")
    line = refusal("up", place, *columns)
    assert line.endswith("'note' is not numeric; if this is a decimal comma, give --decimal ,")
    assert ebfed("up", place, *columns, "--decimal", ",").exit_code == 0
    ((nodes, _),) = started
    namespace = {}
    exec((place / "app" / "client_app.py").read_text().split("\n\n\napp =")[0].replace(
        "from model import estimator", ""), namespace)  # fmt: skip
    rows = namespace["load"](type("Context", (), {"node_config": nodes["a"]}))
    assert rows["X"]["note"].tolist() == [1.5, 2.5, 3.5, 4.0]
    assert rows["groups"].tolist() == ["Köln", "Köln", "Bonn", "Bonn"]


def test_project_names_odd_columns(started, tmp_path):
    table = pd.DataFrame({'the "{group}"': ["01", "02"], "it's": [1.0, 2.0], "c": ["open"] * 2})
    for name in ("b", "a"):
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    words = ["--group", 'the "{group}"', "--value", "it's", "--consent", "c", "--tls"]
    place = tmp_path / "trial"
    assert ebfed("up", place, "--data", tmp_path / "*.csv", *words).exit_code == 0
    assert list(started[0][0]) == ["a", "b"]
    text = (place / "app" / "client_app.py").read_text()
    namespace = {}
    exec(text.split("\n\n\napp =")[0].replace("from model import estimator", ""), namespace)
    context = type("Context", (), {"node_config": started[0][0]["a"]})
    rows = namespace["load"](context)
    assert list(rows["groups"]) == ["01", "02"]
    assert list(rows["consent"]) == ["open", "open"]
    exec((place / "app" / "model.py").read_text(), namespace)
    clients, memory = namespace["estimator"].prepare(**rows)
    assert len(clients) == 2
    assert memory["consent"].tolist() == [1, 1]
    # started again, the project is as the user left it
    (place / "app" / "client_app.py").write_text("# edited")
    assert ebfed("up", place).exit_code == 0
    assert started[1] == started[0]
    assert started[1][1] == {"tls": True}
    assert (place / "app" / "client_app.py").read_text() == "# edited"
    assert "exists" in refusal("up", place, "--nodes", 2)


def test_up_refuses(started, tmp_path):
    assert "give --nodes COUNT or --data FILES" in refusal("up", tmp_path / "t")
    assert "names no file" in refusal("up", tmp_path / "t", "--data", tmp_path / "*.csv")
    assert not (tmp_path / "t").exists()


def test_needs_flower(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert 'pip install "ebfed[flower]"' in refusal("up", tmp_path / "t", "--nodes", 2)
    with pytest.raises(ImportError, match=r'pip install "ebfed\[flower\]"'):
        client_app(None, dict)
    with pytest.raises(ImportError, match=r'pip install "ebfed\[flower\]"'):
        server_app(None, 2, quorum=1, deadline=1.0, out="x")


def test_nothing_runs(tmp_path):
    assert "nothing runs" in refusal("run", tmp_path)
    assert ebfed("status", tmp_path).stdout == ""
    assert ebfed("down", tmp_path).stdout == "Ended 0 process groups.\n"


@pytest.mark.parametrize("name", ["superlink", "a b", "../a", ""])
def test_names_of_nodes(tmp_path, name):
    with pytest.raises(ValueError, match="names of nodes"):
        Federation(tmp_path).up({name: {}})


def test_settings_are_written_as_flower_reads_them():
    words = loopback._words({"a": 1, "b": 0.5, "c": True, "d": "x y", "e": "ä"})
    assert words == 'a=1 b=0.5 c=true d="x y" e="ä"'
    with pytest.raises(ValueError, match="e must hold no quotes"):
        loopback._words({"e": 'x"y'})


def test_a_number_given_to_another_process_is_not_ours(tmp_path):
    """The process of that number began at another time: it keeps running."""
    import os

    group = os.getpgid(0)
    (tmp_path / "processes.json").write_text(json.dumps({"superlink": [os.getpid(), "never"]}))
    assert Federation(tmp_path).status() == {}
    Federation(tmp_path).down(0.1)
    assert os.getpgid(0) == group


def test_templates_hold_no_other_names():
    assert "{" not in project.README
