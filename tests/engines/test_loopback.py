"""Real federations on this machine: the same numbers as in one process, and nodes that fail.

Slow: each exchange starts a process on every node.
"""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

pytest.importorskip("flwr")

from federations import running, write_nodes, write_project

import ebfed as eb
from ebfed import channels, learning
from ebfed.engines import Dask, Local, journal
from ebfed.engines.flower import load_fit
from ebfed.engines.loopback import Federation, _free_ports
from ebfed.models import Linear

pytestmark = pytest.mark.slow

NAMES = ["east", "north", "west"]
FITS = {
    "gaussian": "eb.GaussianEB()",
    "rates": "eb.BernoulliEB(channel=channels.TwoBit(epsilon=2.0), random_state=5)",
    "waves": "eb.GaussianEB(channel=channels.Gaussian(epsilon=2.0, delta=1e-5, range='private'),"
    " guess=eb.channels.Guess(mean=(0, 6), spread=1), variances=1.0, random_state=5)",
    "consent": "eb.OptOutMean(epsilon=1.0, delta=1e-5, range=(0, 6), random_state=5)",
}
ROWS = {key: {"X": ["score"], "groups": "group"} for key in ["gaussian", "waves"]}
ROWS |= {key: {"X": ["won"], "groups": "group"} for key in ["result", "rates"]}
ROWS["consent"] = {"X": ["score"], "groups": "group", "consent": "class"}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(2)
    means = np.repeat(rng.normal(3, 1, 45), 5)
    return pd.DataFrame(
        {
            "group": np.repeat([f"g{i:02d}" for i in range(45)], 5),
            "score": means + rng.normal(size=225),
            "won": (rng.random(225) < 1 / (1 + np.exp(3 - means))).astype(float),
            "class": np.repeat(np.where(rng.random(45) < 0.5, "private", "open"), 5),
        }
    )


def ebfed(*words):
    command = [sys.executable, "-m", "ebfed", "federate", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_numbers_are_those_of_one_process(tmp_path, rows):
    """In one process, in one block and in 13, and on a Dask cluster with two workers."""
    distributed = pytest.importorskip("distributed")
    nodes = write_nodes(tmp_path, rows, NAMES)
    words = {"nodes": 3, "quorum": 1.0, "deadline": 60.0}
    projects = [
        write_project(tmp_path / "apps", name, model=model, rows=ROWS[name], **words)
        for name, model in FITS.items()
    ]
    with Federation(tmp_path).up(nodes, seed=5) as federation, ThreadPoolExecutor() as pool:
        list(pool.map(federation.run, projects))
    cluster = distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=None)
    with cluster, distributed.Client(cluster) as client:
        for name, model in FITS.items():
            check_numbers(tmp_path, rows, name, model, (Local(1), Local(13), Dask(client)))


def test_what_the_commands_start(tmp_path, rows):
    for name, part in zip(NAMES, np.array_split(np.arange(225), 3), strict=True):
        rows.iloc[part].to_csv(tmp_path / f"{name}.csv", index=False)
    place = tmp_path / "trial"
    columns = ["--group", "group", "--value", "won", "--family", "binomial"]
    try:
        started = ebfed("up", place, "--data", tmp_path / "*.csv", *columns)
        assert started.returncode == 0, started.stderr
        groups = set(Federation(place).status().values())
        assert {row[2] for row in running(groups)} == groups
        again = ebfed("up", place)
        assert again.returncode == 2
        assert "take it down first" in again.stderr
        os.killpg(Federation(place).status()["north"], signal.SIGKILL)
        assert ebfed("restart", place, "north").stdout == "north is running.\n"
        os.killpg(Federation(place).status()["superlink"], signal.SIGKILL)
        assert ebfed("restart", place, "server").stdout == "server is running.\n"
        for path in (place / "flower").glob("superlink.db*"):
            assert path.stat().st_mode & 0o077 == 0
        done = ebfed("run", place)
        assert done.returncode == 0, done.stdout + done.stderr
        (wrote,) = (place / "result").glob("run-*")
        assert f"Wrote {wrote}" in done.stdout
        states = json.loads(ebfed("status", place, "--json").stdout)
        assert [state["node"] for state in states] == NAMES
        assert {state["process"] for state in states} < groups | {
            Federation(place).status()["north"]
        }
        for state in states:
            assert state["answered"].items() >= {"exchange": "result", "run": wrote.name}.items()
    finally:
        assert ebfed("down", place).returncode == 0
    assert not running(groups)
    assert all(line.split()[1] == "no" for line in ebfed("status", place).stdout.splitlines()[1:])
    assert not list((place / "flower").glob("superlink.db*"))
    down = ebfed("restart", place, "server")
    assert down.returncode == 2
    assert "nothing runs" in down.stderr
    nothing = ebfed("run", place)
    assert nothing.returncode == 2
    assert "nothing runs" in nothing.stderr
    here = eb.BernoulliEB().fit(rows[["won"]], groups=rows["group"])
    assert_allclose(load_fit(eb.BernoulliEB(), wrote).prior_.mean_, here.prior_.mean_, rtol=1e-12)


MODEL = """\
from ebfed.learning import FedAvg
from ebfed.models import Linear

estimator = FedAvg(Linear(), n_rounds=8, random_state=3)
rows = {"X": ["won"], "y": "score", "groups": "group"}
"""


def test_a_run_that_is_interrupted(tmp_path, rows):
    """Ctrl-C stops the run, and no process but the server's program; the next run goes on."""
    for name, part in zip(NAMES, np.array_split(np.arange(225), 3), strict=True):
        rows.iloc[part].to_csv(tmp_path / f"{name}.csv", index=False)
    (tmp_path / "model.py").write_text(MODEL)
    place = tmp_path / "trial"
    words = ["--data", tmp_path / "*.csv", "--model", tmp_path / "model.py"]
    try:
        assert ebfed("up", place, *words).returncode == 0
        before = Federation(place).status()
        command = [sys.executable, "-m", "ebfed", "federate", "run", str(place)]
        pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        with subprocess.Popen(command, **pipe) as run:
            seen = ""
            while "round 2:" not in seen:
                seen += (line := run.stdout.readline())
                assert line, seen
            run.send_signal(signal.SIGINT)
            seen += run.stdout.read()
        assert run.returncode == 130, seen
        assert seen.endswith(f"The run was stopped; ebfed federate run {place} goes on with it.\n")
        assert "\x1b" not in seen
        assert Federation(place).status() == before
        assert {row[0] for row in running(set(before.values()))} == set(before.values())
        (out,) = place.glob("result/run-*")
        assert not (out / "fit.ebfed").exists()
        done = ebfed("run", place)
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"Wrote {out}" in done.stdout
        assert "round 1:" not in done.stdout
        assert "\x1b" not in done.stdout + done.stderr
    finally:
        ebfed("down", place)
    here = learning.FedAvg(Linear(), n_rounds=8, random_state=3)
    here.fit(rows[["won"]], rows["score"], groups=rows["group"])
    there = load_fit(here, out)
    assert_array_equal(there.shared_["w"], here.shared_["w"])
    pd.testing.assert_frame_equal(there.history_, here.history_, check_exact=True)
    assert f"round 8: loss {here.history_['loss'].iloc[-1]:.6g}\n" in done.stdout


def check_numbers(place, rows, name, model, engines):
    (out,) = (place / name).glob("run-*")
    there = load_fit(eval(model, {"eb": eb, "channels": channels}), out)
    tables = [pd.read_csv(place / node / out.name / "estimate.csv") for node in NAMES]
    for engine in engines:
        here = eval(model, {"eb": eb, "channels": channels}).set_params(engine=engine)
        here.fit(**{argument: rows[column] for argument, column in ROWS[name].items()})
        for part, value in vars(here.prior_).items():
            if isinstance(value, np.ndarray | float):
                assert_allclose(getattr(there.prior_, part), value, rtol=1e-12, err_msg=name)
        expected = here.posterior().to_frame().reset_index(drop=True)
        pd.testing.assert_frame_equal(
            pd.concat(tables, ignore_index=True), expected, rtol=1e-12, check_dtype=False
        )
        assert_array_equal(there.privacy_["clients"], here.privacy_["clients"])
        assert str(there.summary()) == (out / "summary.txt").read_text().rstrip("\n")


LOAD = """\
import os, time
from pathlib import Path
import pandas as pd

def load(rows):
    own = Path(__file__).parent
    if own.name == "b":
        raise ValueError("the row of patient Quirin")
    if own.name == "c":
        (own / "hangs").touch()
        time.sleep(1000)
    table = pd.read_csv(own / "rows.csv")
    return {name: table[column] for name, column in rows.items()}
"""


def test_nodes_that_fail(tmp_path, rows):
    nodes = write_nodes(tmp_path, rows, list("abcd"), "load = 'own:load'")
    for directory in nodes.values():
        (directory / "own.py").write_text(LOAD)
    words = {"model": "eb.GaussianEB()", "rows": ROWS["waves"], "nodes": list("abcd")}
    enough = write_project(tmp_path / "apps", "enough", quorum=0.5, deadline=15.0, **words)
    refused = write_project(tmp_path / "apps", "refused", quorum=4, deadline=5.0, **words)
    with Federation(tmp_path).up(nodes) as federation:
        groups = set(federation.status().values())
        with ThreadPoolExecutor(1) as pool:
            run = pool.submit(federation.run, enough)
            while not (tmp_path / "c" / "hangs").exists() and not run.done():
                time.sleep(0.1)
            os.killpg(federation.status()["c"], signal.SIGKILL)
            run.result()
        assert "c" not in federation.status()
        federation.run(refused)
    assert not running(groups)

    (out,) = (tmp_path / "enough").glob("run-*")
    said = pd.read_csv(out / "participants.csv", keep_default_na=False)
    said = {(row.exchange, row.node): (row.status, row.detail) for row in said.itertuples()}
    assert {said["roll call", node][0] for node in "ad"} == {"answered"}
    assert said["roll call", "b"] == ("failed", "ValueError; the node's own errors.log says more")
    assert said["roll call", "c"][0] == "silent"
    survivors = pd.concat([pd.read_csv(nodes[node] / "rows.csv") for node in "ad"])
    here = eb.GaussianEB().fit(survivors["score"], groups=survivors["group"])
    there = load_fit(eb.GaussianEB(), out)
    assert_allclose(there.prior_.mean_, here.prior_.mean_, rtol=1e-12)
    assert_allclose(there.prior_.variance_, here.prior_.variance_, rtol=1e-12)
    tables = [pd.read_csv(tmp_path / node / out.name / "estimate.csv") for node in "ad"]
    assert_allclose(pd.concat(tables)["estimate"], here.posterior().mean[:, 0], rtol=1e-12)

    (refused,) = (tmp_path / "refused").glob("run-*")
    written = sorted(path.name for path in refused.iterdir())
    assert written == ["exchanges.jsonl", "lock", "participants.csv"]
    assert not list(tmp_path.glob(f"*/{refused.name}/estimate.csv"))
    log = (tmp_path / "logs" / "superlink.log").read_text()
    for path in [*out.iterdir(), *refused.iterdir()]:
        assert b"Quirin" not in path.read_bytes()
    assert "Quirin" not in log
    assert "Quirin" in (tmp_path / "b" / "errors.log").read_text()


def test_without_a_key(tmp_path, rows):
    """Who has the address, the certificate and a key of one's own can neither run nor connect."""
    from ebfed.engines.flower.connection import make_key_pair

    nodes = write_nodes(tmp_path, rows, NAMES[:1])
    project = write_project(
        *[tmp_path / "apps", "x"],
        **{"model": "eb.GaussianEB()", "rows": ROWS["waves"], "nodes": 1, "quorum": 1},
        deadline=5.0,
    )
    own = tmp_path / "stranger"
    own.mkdir()
    public = make_key_pair(own / "node-key")
    with Federation(tmp_path).up(nodes) as federation:
        address = (tmp_path / "flower" / "address").read_text()
        root = tmp_path / "certificates" / "ca.crt"
        (own / "config.toml").write_text(
            f'[superlink.x]\naddress = "{address}"\nroot-certificates = "{root}"\n'
        )
        environment = federation._environment() | {"FLWR_HOME": str(own)}

        def attack(*words, seconds=60):
            try:
                done = subprocess.run(
                    [str(Path(sys.executable).parent / words[0]), *map(str, words[1:])],
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=seconds,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return "still trying"
            return done.stdout + done.stderr

        for words in (
            ["run", project, "x"],
            ["ls", "x"],
            ["supernode", "ls", "x"],
            ["supernode", "register", public, "x"],
        ):
            assert "Authentication failed" in attack("flwr", *words)
        assert not list(tmp_path.glob("x/run-*"))
        arguments = ["--root-certificates", root, "--superlink", address]
        attack("flower-supernode", *arguments, "--auth-supernode-private-key", own / "node-key",
               seconds=15)  # fmt: skip
        attack("flower-superexec", "--runtime-api-address", address, *arguments[:2], seconds=15)
        # the token and the node's key are for their owner only
        for path in (tmp_path / "flower" / "token", nodes[NAMES[0]] / "node-key"):
            assert path.stat().st_mode & 0o077 == 0
        assert (tmp_path / "flower").stat().st_mode & 0o077 == 0
        federation.run(project)
    (out,) = tmp_path.glob("x/run-*")
    said = pd.read_csv(out / "participants.csv")
    assert said["node"].unique().tolist() == [NAMES[0]]


def test_nodes_with_a_budget_send_no_exact_figures(tmp_path, rows):
    """To a plan that calls everybody "open", over a SuperLink with authentication."""
    nodes = write_nodes(tmp_path, rows, NAMES)
    for directory in nodes.values():
        (directory / "node.toml").write_text(
            'epsilon = 0.1\nrun_epsilon = 0.1\n[rows]\npath = "rows.csv"\nperson = "row"\n'
            'groups = ["group"]\n'
        )
    words = {"rows": ROWS["gaussian"], "nodes": 3, "quorum": 1, "deadline": 20.0}
    model = "eb.GaussianEB(1.0, channel={'open': channels.AddNoise(1e-9)})"
    project = write_project(tmp_path / "apps", "open", model=model, **words)
    with Federation(tmp_path).up(nodes) as federation:
        federation.run(project)
    assert not list(tmp_path.glob("open/run-*/fit.ebfed"))
    for directory in nodes.values():
        assert "send figures without a guarantee" in (directory / "errors.log").read_text()
        assert not any(row["kind"] == "release" for row in journal.read(directory / "ledger.jsonl"))


def test_a_node_that_gives_the_name_of_another(tmp_path, rows):
    """It is left out by name, and the others are fitted; also where the other one is away."""
    nodes = write_nodes(tmp_path, rows, NAMES)
    words = {"model": "eb.GaussianEB()", "rows": ROWS["gaussian"], "deadline": 10.0}
    apps = tmp_path / "apps"
    number = write_project(apps, "number", nodes=3, quorum=2, **words)
    named = write_project(apps, "named", nodes=NAMES, quorum=1, **words)
    with Federation(tmp_path).up(nodes) as federation:
        federation._end({"west"})
        address = (tmp_path / "flower" / "address").read_text()
        root = tmp_path / "certificates" / "ca.crt"
        command = ["ebfed", "node", nodes["west"], "--name", "east", "--superlink", address]
        federation._start("west", *map(str, command), "--root-certificates", str(root))
        while not federation._has_logged("west", "Connected as node"):
            time.sleep(0.1)
        federation.run(number)
        federation._end({"east"})
        federation.run(named)
    gives = "gives the name 'east', which is not that of its key"
    for name, there, east in (
        ("number", ["east", "north"], "answered"),
        ("named", ["north"], "silent"),
    ):
        (out,) = (tmp_path / name).glob("run-*")
        said = pd.read_csv(out / "participants.csv", keep_default_na=False)
        said = said[said["exchange"] == "roll call"].set_index("node")
        assert said.loc["west", "detail"] == gives
        assert said.loc["east", "status"] == east
        left = pd.concat([pd.read_csv(nodes[each] / "rows.csv") for each in there])
        here = eb.GaussianEB().fit(left["score"], groups=left["group"])
        assert_allclose(load_fit(here, out).prior_.mean_, here.prior_.mean_, rtol=1e-12)


def test_a_server_for_other_machines(tmp_path, rows):
    """Steps of the page on deployment; the server that is started again knows its nodes."""
    rows = rows.rename(columns={"score": "value"})
    place, names, nodes = tmp_path / "fits", ["node-1", "node-2"], []
    assert ebfed("up", place, "--nodes", 2).returncode == 0
    assert ebfed("down", place).returncode == 0
    assert "nothing runs" in ebfed("register", place, "node-1", "key.pub").stderr
    port = str(_free_ports(1)[0])
    assert ebfed("serve", place, "localhost", "--port", port).returncode == 0
    try:
        for name, part in zip(names, np.array_split(np.arange(225), 2), strict=True):
            own = tmp_path / name
            own.mkdir()
            rows.iloc[part].to_csv(own / "rows.csv", index=False)
            (own / "node.toml").write_text(
                "epsilon = inf\nmin_group_size = 1\n[rows]\npath = 'rows.csv'\n"
            )
            words = ["--name", name, "--superlink", f"localhost:{port}", "--root-certificates"]
            command = [sys.executable, "-m", "ebfed", "node", own, *words]
            with open(own / "log", "w") as log:
                certificate = place / "certificates" / "ca.crt"
                nodes.append(subprocess.Popen([*command, certificate], stdout=log, stderr=log))
            while not (own / "node-key.pub").exists():
                assert nodes[-1].poll() is None
                time.sleep(0.1)
            assert ebfed("register", place, name, own / "node-key.pub").returncode == 0
        other = tmp_path / "node-2" / "node-key.pub"
        assert "is another key of 'node-1'" in ebfed("register", place, "node-1", other).stderr
        certificate = (place / "certificates" / "ca.crt").read_bytes()
        for _ in range(2):
            done = ebfed("run", place)
            assert done.returncode == 0, done.stdout + done.stderr
            assert "result: 2 of 2 nodes answered" in done.stdout
            assert "INFO" not in done.stdout
            assert not done.stderr
            assert ebfed("down", place).returncode == 0
            assert ebfed("serve", place, "localhost", "--port", port).returncode == 0
            assert (place / "certificates" / "ca.crt").read_bytes() == certificate
    finally:
        ebfed("down", place)
        for node in nodes:
            node.terminate()
            node.wait()
    out = max(place.glob("result/run-*"))
    groups = np.where(np.arange(225) < 113, "1", "2") + rows["group"]  # labels are not matched
    here = eb.GaussianEB().fit(rows["value"], groups=groups)
    assert_allclose(load_fit(eb.GaussianEB(), out).prior_.mean_, here.prior_.mean_, rtol=1e-12)


def test_the_same_group_at_three_nodes_is_one(tmp_path, rows):
    """Each node has rows of all groups, and its owner the key."""
    mixed = rows.iloc[np.argsort(np.arange(len(rows)) % 5 % 3, kind="stable")]
    nodes = write_nodes(tmp_path, mixed, NAMES)
    for name in NAMES:
        (tmp_path / name / "labels.key").write_text("5a" * 32)
        rules = (tmp_path / name / "node.toml").read_text()
        more = 'match_key = "labels.key"\n'
        (tmp_path / name / "node.toml").write_text(more + rules)
    words = {"model": FITS["gaussian"], "rows": ROWS["gaussian"], "nodes": 3}
    app = write_project(tmp_path / "apps", "shared", quorum=3, deadline=60.0, **words)
    with Federation(tmp_path).up(nodes) as federation:
        federation.run(app)
    (out,) = (tmp_path / "shared").glob("run-*")
    here = eb.GaussianEB().fit(rows["score"], groups=rows["group"])
    assert_allclose(load_fit(eb.GaussianEB(), out).prior_.mean_, here.prior_.mean_, rtol=1e-12)
    expected = here.posterior().to_frame().set_index("group")
    for name in NAMES:
        (path,) = (tmp_path / name).glob("run-*/estimate.csv")
        table = pd.read_csv(path, index_col="group")
        assert_allclose(table, expected.loc[table.index], rtol=1e-12)
    assert b"5a5a" not in b"".join(path.read_bytes() for path in out.iterdir())


def test_up_that_fails_leaves_nothing(tmp_path, monkeypatch, rows):
    federation = Federation(tmp_path)
    seen = []
    wait = federation._wait

    def interrupted(name, *others):
        seen.extend(federation.status().values())
        if name == "north":
            raise KeyboardInterrupt
        wait(name, *others)

    monkeypatch.setattr(federation, "_wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        federation.up(write_nodes(tmp_path, rows, ["south", "north"]))
    assert len(set(seen)) == 4
    assert not running(set(seen))
