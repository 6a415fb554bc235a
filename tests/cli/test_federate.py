"""The commands of a federation, as far as nothing is started."""

import json
import os
import re
import runpy
import signal
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from typer.testing import CliRunner

from ebfed import GaussianEB, from_formula
from ebfed.cli import project
from ebfed.cli.app import app
from ebfed.engines import journal, loopback
from ebfed.engines.flower import Rules, server_app
from ebfed.engines.loopback import Federation
from ebfed.privacy import events, gaussian_sigma
from ebfed.privacy.odometer import Charge


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


def project_of(place, name):
    """Estimator of a project, and the arguments of fit that a node reads."""
    model = runpy.run_path(str(place / "app" / "model.py"))
    own = place / "nodes" / name
    return model["estimator"], Rules.read(own / "node.toml").rows.read(own, model["rows"]).arguments


@pytest.mark.parametrize("family", ["gaussian", "binomial", "poisson"])
def test_project_is_valid(started, tmp_path, family):
    place = tmp_path / "trial"
    assert ebfed("up", place, "--nodes", 2, "--family", family).exit_code == 0
    said = ebfed("up", place).stdout
    assert "What runs may take: no noise: exact sums of at least 5 rows each.\n" in said
    started.pop()
    tomllib.loads((place / "app" / "pyproject.toml").read_text())
    for file in place.glob("app/*.py"):
        compile(file.read_text(), file, "exec")
    nodes = {name: place / "nodes" / name for name in ("node-1", "node-2")}
    assert started == [(nodes, {"database": False})]
    estimator, rows = project_of(place, "node-2")
    assert len(estimator.fit(**rows).groups_) == 20


def test_project_reads_other_dialects(started, tmp_path):
    text = "schule;note\nKöln;1,5\nKöln;2,5\nBonn;3,5\nBonn;4\n"
    (tmp_path / "a.csv").write_bytes(text.encode("latin-1"))
    place = tmp_path / "trial"
    columns = ("--data", tmp_path / "*.csv", "--group", "schule", "--value", "note")
    assert "a.csv: the text is not in utf-8; give the enc" in refusal("up", place, *columns)
    columns = (*columns, "--encoding", "latin-1")
    line = refusal("up", place, *columns)
    assert "a.csv: rows have more fields than the header has names" in line
    assert line.endswith("give --sep ';'")
    columns = (*columns, "--sep", ";")
    line = refusal("up", place, *columns)
    assert line.endswith("'note' is not numeric; if this is a decimal comma, give --decimal ,")
    assert ebfed("up", place, *columns, "--decimal", ",").exit_code == 0
    _, rows = project_of(place, "a")
    assert rows["X"]["note"].tolist() == [1.5, 2.5, 3.5, 4.0]
    assert rows["groups"].tolist() == ["Köln", "Köln", "Bonn", "Bonn"]


def test_project_names_odd_columns(started, tmp_path):
    table = pd.DataFrame({'the "{group}"': ["01", "02"], "it's": [1.0, 2.0], "c": ["open"] * 2})
    for name in ("b", "a"):
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    words = ["--group", 'the "{group}"', "--value", "it's", "--consent", "c"]
    place = tmp_path / "trial"
    assert ebfed("up", place, "--data", tmp_path / "*.csv", *words).exit_code == 0
    assert list(started[0][0]) == ["a", "b"]
    estimator, rows = project_of(place, "a")
    assert list(rows["groups"]) == ["01", "02"]
    clients, memory = estimator.protocol().prepare(**rows)
    assert len(clients) == 2
    assert memory["consent"].tolist() == [1, 1]
    # started again, the project is as the user left it
    (place / "app" / "model.py").write_text("# edited")
    assert ebfed("up", place).exit_code == 0
    assert started[1] == started[0]
    assert (place / "app" / "model.py").read_text() == "# edited"
    assert "exists" in refusal("up", place, "--nodes", 2)


MODEL = """\
from ebfed import LinearEB
estimator = LinearEB(method="ml")
rows = {"X": ["age"], "y": "score", "groups": "ward"}
"""


@pytest.mark.parametrize("kind", ["csv", "parquet", "duckdb"])
def test_a_model_of_the_user(started, tmp_path, kind):
    table = pd.DataFrame(
        {"ward": ["a", "a", "b"], "age": [1.0, 2.0, 3.0], "score": [1.0, 4.0, 2.0]}
    )
    file, more = tmp_path / f"north.{kind}", ()
    if kind == "csv":
        table.to_csv(file, index=False)
    elif kind == "parquet":
        pytest.importorskip("pyarrow")
        table.to_parquet(file)
    else:
        duckdb, more = pytest.importorskip("duckdb"), ("--table", "visits")
        with duckdb.connect(str(file)) as connection:
            connection.register("frame", table)
            connection.execute("CREATE TABLE visits AS SELECT * FROM frame")
    (tmp_path / "model.py").write_text(MODEL)
    words = ("--data", file, "--model", tmp_path / "model.py", *more)
    assert ebfed("up", tmp_path / "trial", *words).exit_code == 0
    estimator, rows = project_of(tmp_path / "trial", "north")
    assert estimator.get_params()["method"] == "ml"
    pd.testing.assert_frame_equal(rows["X"], table[["age"]])
    pd.testing.assert_series_equal(rows["y"], table["score"])


def test_models_that_are_refused(started, tmp_path):
    pd.DataFrame({"a": [1]}).to_csv(tmp_path / "north.csv", index=False)
    model = tmp_path / "model.py"
    words = ("up", tmp_path / "t", "--data", tmp_path / "*.csv", "--model", model)
    model.write_text("estimator = None\n")
    assert "defines no rows" in refusal(*words)
    model.write_text(MODEL.replace('"groups": "ward"', '"z": "ward"'))
    assert "rows must name columns for 'groups'" in refusal(*words)
    model.write_text(MODEL)
    assert "north.csv: no column 'age' (--model) among 'a'" in refusal(*words)
    assert "leave --consent out" in refusal(*words, "--consent", "a")
    assert "give --data FILES with --model" in refusal(
        "up", tmp_path / "t", "--nodes", 2, *words[4:]
    )
    assert not (tmp_path / "t").exists()


FORMULAS = {
    "score ~ age + (1 | ward)": ("gaussian", "LinearEB(varying=['intercept'])"),
    "score ~ `body mass` + age + (1 + age | ward)": (
        "gaussian",
        "LinearEB(covariance='full', varying=['intercept', 'age'])",
    ),
    "score ~ age | ward": ("gaussian", "LinearEB()"),
    "score ~ 0 + age + (0 + age | ward)": ("gaussian", "LinearEB(fit_intercept=False)"),
    "died ~ age + (1 | ward)": ("binomial", "LogisticEB(varying=['intercept'])"),
    "falls ~ age + (1 | ward)": ("poisson", "GeneralizedEB(varying=['intercept'])"),
    "score ~ 1 + (1 | ward)": ("gaussian", "LinearEB()"),
    "died ~ (1 | ward)": ("binomial", "LogisticEB()"),
    "score | ward": ("gaussian", "GaussianEB()"),
    "score ~ age + (1 + days || ward)": (
        "gaussian",
        "LinearEB(fixed=['intercept', 'age'], varying=['intercept', 'days'])",
    ),
    "died | ward": ("binomial", "BernoulliEB()"),
    "falls ~ offset(log(days)) | ward": ("poisson", "PoissonEB()"),
}


@pytest.fixture
def visits(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"ward": np.repeat([f"w{i:02d}" for i in range(12)], 8)})
    for name in ("age", "body mass", "score"):
        table[name] = rng.normal(table.index // 8, 1.0).round(3)
    table["died"], table["falls"] = rng.integers(0, 2, 96), rng.poisson(2.0, 96)
    table["days"], table["kind"] = rng.integers(1, 9, 96), "new"
    table.to_csv(tmp_path / "north.csv", index=False)
    return table


@pytest.mark.parametrize("formula", FORMULAS)
def test_a_model_as_a_formula(started, tmp_path, visits, formula):
    """The fit is that of the formula, to a table of the columns."""
    family, made = FORMULAS[formula]
    words = ("--data", tmp_path / "north.csv", "--model", formula, "--family", family)
    assert ebfed("up", tmp_path / "trial", *words).exit_code == 0
    estimator, rows = project_of(tmp_path / "trial", "north")
    assert " ".join(repr(estimator).split()) == made
    here = from_formula(formula, visits, family=family, context={"log": np.log})
    assert_allclose(estimator.fit(**rows).posterior().mean, here.posterior().mean, rtol=1e-12)
    allowed = Rules.read(tmp_path / "trial" / "nodes" / "north" / "node.toml").rows.columns
    assert all(name in formula for name in allowed)


@pytest.mark.parametrize(
    ("formula", "family", "wrong"),
    [
        ("score ~ log(age) + (1 | ward)", "gaussian", "term 'log(age)' is no column: nodes read"),
        ("score ~ age + age:died + (1 | ward)", "gaussian", "term 'age:died' is no column"),
        ("score ~ C(kind) + (1 | ward)", "gaussian", "term 'C(kind)' is no column"),
        ("log(score) ~ age + (1 | ward)", "gaussian", "'log(score)' is no column"),
        ("cbind(died, falls) | ward", "binomial", "each row has an outcome of its own"),
        ("falls ~ age + offset(log(days)) + (1 | ward)", "poisson", "nodes take no offset beside"),
        ("score ~ 1 + offset(days) + (1 | ward)", "gaussian", "nodes take no offset beside"),
        ("score ~ age", "gaussian", "no part that says who the groups are"),
        ("score ~ sex + (1 | ward)", "gaussian", "north.csv: no column 'sex' (--model) among"),
        ("score ~ age + (1 | clinic)", "gaussian", "north.csv: no column 'clinic' (--model) among"),
        ("score ~ kind + (1 | ward)", "gaussian", "north.csv: column 'kind' is not numeric"),
        ("falls ~ age + (1 | ward)", "binomial", "column 'falls' must hold only 0 and 1"),
    ],
)
def test_formulas_that_are_refused(started, tmp_path, visits, formula, family, wrong):
    words = ("--data", tmp_path / "north.csv", "--model", formula, "--family", family)
    assert wrong in refusal("up", tmp_path / "t", *words)
    assert not (tmp_path / "t").exists()
    assert not started


@pytest.fixture
def blank(tmp_path):
    """Tables of two nodes, one of which lacks a value."""
    table = pd.DataFrame({"ward": list("aabbcc"), "score": [1.0, 2, 3, 4, 5, 6]})
    table.to_csv(tmp_path / "north.csv", index=False)
    table.assign(score=table["score"].mask(table.index == 3)).to_csv(
        tmp_path / "south.csv", index=False
    )
    return ["--data", tmp_path / "*.csv", "--group", "ward", "--value", "score"]


LACKING = (
    "south.csv: 1 of 6 rows are incomplete (column 'score' has 1 missing values, the first in row "
    "3)"
)


def test_a_blank_is_said_before_anything_starts(started, tmp_path, blank):
    line = refusal("up", tmp_path / "t", *blank)
    assert LACKING in line
    assert "na_action = 'drop'" in line
    assert not started
    assert not (tmp_path / "t").exists()


def test_blanks_can_be_left_out(started, tmp_path, blank):
    place = tmp_path / "t"
    result = ebfed("up", place, *blank, "--na-action", "drop")
    said = f"{LACKING}; they are"
    assert result.stdout.startswith(f"{said} left out.\nA server")
    assert len(project_of(place, "south")[1]["X"]) == 5
    assert len(project_of(place, "north")[1]["X"]) == 6
    assert f"south{said[9:]}" in ebfed("up", place).stdout, "and when it is started again"
    assert "na_action must be" in refusal("up", tmp_path / "u", *blank, "--na-action", "fill")


def test_values_of_another_family_are_said_before_anything_starts(started, tmp_path, visits):
    model = tmp_path / "model.py"
    model.write_text(
        "from ebfed import BernoulliEB\nestimator = BernoulliEB()\n"
        'rows = {"X": ["age"], "groups": "ward"}\n'
    )
    line = refusal("up", tmp_path / "t", "--data", tmp_path / "*.csv", "--model", model)
    assert "north.csv: X must" in line
    model.write_text(model.read_text().replace("age", "died"))
    assert (
        ebfed("up", tmp_path / "t", "--data", tmp_path / "*.csv", "--model", model).exit_code == 0
    )
    rows = pd.read_csv(tmp_path / "north.csv")
    rows.assign(died=rows["died"] + 0.5).to_csv(tmp_path / "north.csv", index=False)
    assert "north: X must" in refusal("up", tmp_path / "t"), "also when it is started again"


def test_serve_and_register_refuse(started, tmp_path):
    assert "HOST must be a name or number of this machine; got 'a b'" in refusal(
        "serve", tmp_path, "a b"
    )
    assert "nothing runs" in refusal("register", tmp_path, "north", tmp_path / "key.pub")
    assert ebfed("serve", tmp_path, "fits.example.org").exit_code == 0
    assert started == [({}, {"database": True, "host": "fits.example.org", "port": 8000})]


def test_up_refuses(started, tmp_path):
    assert "give --nodes COUNT or --data FILES" in refusal("up", tmp_path / "t")
    assert "names no file" in refusal("up", tmp_path / "t", "--data", tmp_path / "*.csv")
    assert not (tmp_path / "t").exists()


def test_needs_flower(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert 'pip install "ebfed[flower]"' in refusal("up", tmp_path / "t", "--nodes", 2)
    rows = {"X": ["a"], "groups": "g"}
    with pytest.raises(ImportError, match=r'pip install "ebfed\[flower\]"'):
        server_app(GaussianEB(), 2, rows=rows, quorum=1, deadline=1.0, out="x")


def test_nothing_runs(tmp_path):
    (tmp_path / "federation.json").write_text('["north"]')
    assert "nodes are north; not 'south'" in refusal("restart", tmp_path, "south")
    assert "nothing runs" in refusal("run", tmp_path)
    assert ebfed("down", tmp_path).stdout == "Ended 0 process groups.\n"


def test_status(started, tmp_path, monkeypatch):
    place = tmp_path / "trial"
    assert "no federation was started in" in refusal("status", place)
    assert ebfed("up", place, "--nodes", 3).exit_code == 0
    rules = place / "nodes" / "node-1" / "node.toml"
    rules.write_text(rules.read_text().replace("epsilon = inf", "epsilon = 3.0"))
    private = Charge(events.gaussian(gaussian_sigma(1.5, 1e-5, 2.0)), "replace_one", 1.5, 1e-5)
    exact = {"event": {"kind": "NonPrivateDpEvent"}, "relation": "replace_one", "epsilon": None}
    for name, charge in (("node-1", private.to_dict()), ("node-2", exact | {"delta": 0.0})):
        plan = {"time": "t", "run": "1", "kind": "plan", "method": "GaussianEB"}
        plan |= {"groups": ["a"], "people": ["a"]}
        plan |= {"who": "all clients", "rounds": 1} | charge
        journal.append(place / "nodes" / name / "ledger.jsonl", [plan])
    for run, hour, names in ((1, 10, ["node-1", "node-2"]), (2, 11, ["node-1"])):
        (place / "result" / f"run-{run}").mkdir(parents=True)
        line = {"time": f"2026-01-01T{hour}:00:00+00:00", "exchange": "round 1", "seconds": 0.1}
        line |= {"answered": names, "bytes": {"node-3": 9}}
        journal.append(place / "result" / f"run-{run}" / "exchanges.jsonl", [line])
    monkeypatch.setattr(Federation, "status", lambda self: {"superlink": 5, "node-1": 7})
    budget = "epsilon 3 per row over all runs, 1.5 spent"
    exact = "no noise: exact sums of at least 5 rows each"
    assert [re.split("  +", line) for line in ebfed("status", place).stdout.splitlines()] == [
        ["node", "running", "last answer", "what runs may take"],
        ["node-1", "yes", "round 1 of run-2, 2026-01-01T11:00:00+00:00", budget],
        ["node-2", "no", "round 1 of run-1, 2026-01-01T10:00:00+00:00", exact],
        ["node-3", "no", "none", exact],
    ]
    one, two, three = json.loads(ebfed("status", place, "--json").stdout)
    assert one == {
        "node": "node-1",
        "running": True,
        "process": 7,
        "answered": {"exchange": "round 1", "run": "run-2", "time": "2026-01-01T11:00:00+00:00"},
        "spent": pytest.approx(1.5, rel=1e-3),  # composed again, on a grid
        "budget": 3.0,
        "exact": False,
        "privacy": budget,
    }
    assert (two["spent"], two["budget"], two["exact"]) == (0.0, None, True)
    assert two["answered"]["run"] == "run-1"
    assert (three["running"], three["answered"], three["spent"]) == (False, None, 0.0)


def test_threats_of_each_node(started, tmp_path):
    place = tmp_path / "trial"
    assert "holds no node.toml" in refusal("threat", place)
    assert ebfed("up", place, "--nodes", 2).exit_code == 0
    whole = ebfed("threat", place).stdout
    assert whole.count("Who has the token of the server\n") == 2
    one = ebfed("threat", place / "nodes" / "node-2").stdout
    assert one.startswith("node-2: no noise: exact sums of at least 5 rows each\n")
    assert one in whole
    assert "reads exact figures of each group of at least 5 rows" in one
    rules = place / "nodes" / "node-2" / "node.toml"
    rules.write_text(rules.read_text().replace("epsilon = inf", "epsilon = 3.0"))
    two = ebfed("threat", rules.parent).stdout
    assert "learns of each row by messages with noise at most epsilon 3 (delta 1e-05)" in two
    assert "reads exact figures of each group" not in two


@pytest.mark.parametrize("name", ["superlink", "superexec", "a b", "../a", ""])
def test_names_of_nodes(tmp_path, name):
    with pytest.raises(ValueError, match="names of nodes"):
        Federation(tmp_path).up({name: tmp_path})


def test_settings_are_written_as_flower_reads_them():
    words = loopback._words({"a": 1, "b": 0.5, "c": True, "d": "x y", "e": "ä"})
    assert words == 'a=1 b=0.5 c=true d="x y" e="ä"'
    with pytest.raises(ValueError, match="e must hold no quotes"):
        loopback._words({"e": 'x"y'})


def test_a_number_given_to_another_process_is_not_ours(tmp_path):
    """The process of that number began at another time: it keeps running."""
    group = os.getpgid(0)
    (tmp_path / "processes.json").write_text(json.dumps({"superlink": [os.getpid(), "never"]}))
    assert Federation(tmp_path).status() == {}
    Federation(tmp_path).down(0.1)
    assert os.getpgid(0) == group


FLWR = """\
#!{python}
import os, sys, time
word = sys.argv[1]
bold = "\\x1b[1m" if os.environ.get("FORCE_COLOR") else ""
with open({log!r}, "a") as file:
    print(*sys.argv[1:], file=file)
if word == "log":
    print("\\x1b[92mINFO \\x1b[0m: Start", "Using SuperLink: x", "round 1", sep="\\n")
    print("", flush=True)
    if {fails}:
        print("ERROR :  ServerApp", "Traceback (most recent call last):", "  line 1", sep="\\n")
        print("RuntimeError: south failed.", "ERROR :  Exit Code: 201", "", "A text.", sep="\\n")
    time.sleep({seconds})
elif word == "run" and {refuses}:
    print('{{"success": false, "error-message": "\\\\u001b[31mno app"}}')
else:
    time.sleep(0.3)
    print(bold + '{{"success": true, "run-id": "7"}}')
"""


def fake_flower(place, monkeypatch, seconds=0, refuses=False, fails=False):
    program, log = place / "flwr", place / "words"
    words = {"seconds": seconds, "refuses": refuses, "fails": fails}
    text = FLWR.format(python=sys.executable, log=str(log), **words)
    program.write_text(text)
    program.chmod(0o700)
    monkeypatch.setattr(loopback, "_program", lambda name: str(program))
    return log


@pytest.mark.parametrize("colours", ["", "1"])
def test_output_of_flower_has_no_colours(tmp_path, monkeypatch, capfd, colours):
    """Also where the environment asks for colours, as in Jupyter."""
    monkeypatch.setenv("FORCE_COLOR", colours)
    log = fake_flower(tmp_path, monkeypatch)
    Federation(tmp_path).run("app", {"a": 1})
    assert capfd.readouterr() == ("round 1\n\n", "")
    started, followed = log.read_text().splitlines()
    assert started == "run app loopback --run-config a=1 --format json"
    assert followed == "log 7 loopback --stream"


def test_an_error_of_a_run_is_one_line(tmp_path, monkeypatch, capfd):
    """Before, a traceback and "Exit Code: 201" came after it; they are in the log."""
    fake_flower(tmp_path, monkeypatch, fails=True)
    Federation(tmp_path).run("app")
    assert capfd.readouterr() == ("round 1\n\nsouth failed.\n", "")
    log = (tmp_path / "logs" / "server.log").read_text()
    assert all(text in log for text in ("INFO : Start", "Traceback", "Exit Code: 201"))


def test_a_run_that_flower_refuses(tmp_path, monkeypatch):
    fake_flower(tmp_path, monkeypatch, refuses=True)
    with pytest.raises(RuntimeError, match="flwr run: no app"):
        Federation(tmp_path).run("app")


@pytest.mark.parametrize("early", [False, True])
def test_ctrl_c_stops_the_run(tmp_path, monkeypatch, early):
    """Also if it is pressed before the number of the run is known."""
    log = fake_flower(tmp_path, monkeypatch, seconds=60)
    # a process in the background of a shell ignores the signal
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def press():
        while not log.exists() or ("log" not in log.read_text() and not early):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    try:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(press)
            with pytest.raises(KeyboardInterrupt):
                Federation(tmp_path).run("app")
    finally:
        signal.signal(signal.SIGINT, before)
    assert log.read_text().splitlines()[-1] == "stop 7 loopback --format json"


def test_templates_hold_no_other_names():
    assert "{" not in project.README
