"""Real federations on this machine: the same numbers as in one process, and nodes that fail.

Slow: each exchange starts a process on every node.
"""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

pytest.importorskip("flwr")

import ebfed as eb
from ebfed import channels
from ebfed.cli.project import PROJECT
from ebfed.engines import Dask, Local
from ebfed.engines.flower import load_fit
from ebfed.engines.loopback import Federation, _processes

pytestmark = pytest.mark.slow

NAMES = ["east", "north", "west"]
FITS = {
    "gaussian": "eb.GaussianEB()",
    "rates": "eb.BernoulliEB(channel=channels.TwoBit(epsilon=2.0), random_state=5)",
    "waves": "eb.GaussianEB(channel=channels.Gaussian(epsilon=2.0, delta=1e-5, range='private'),"
    " guess=eb.Guess(mean=(0, 6), spread=1), variances=1.0, random_state=5)",
    "consent": "eb.OptOutMean(epsilon=1.0, delta=1e-5, range=(0, 6), random_state=5)",
}
APP = """\
import os, time
from pathlib import Path
import pandas as pd
import ebfed as eb
from ebfed import channels
from ebfed.engines.flower import client_app, server_app

def load(context):
    rows = pd.read_csv(context.node_config["data"])
    return {given}

estimator = {model}
"""
CLIENT = APP + "app = client_app(estimator, load, seed=5)\n"
SERVER = (
    APP
    + "app = server_app(estimator, {nodes}, quorum={quorum}, deadline={deadline}, out={out!r})\n"
)
GIVEN = dict.fromkeys(["gaussian", "waves"], "{'X': rows['score'], 'groups': rows['group']}")
GIVEN |= dict.fromkeys(["result", "rates"], "{'X': rows[['won']], 'groups': rows['group']}")
GIVEN["consent"] = "{'X': rows['score'], 'groups': rows['group'], 'consent': rows['class']}"


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


def write_nodes(folder, rows, names):
    nodes = {}
    for name, part in zip(names, np.array_split(np.arange(len(rows)), len(names)), strict=True):
        rows.iloc[part].to_csv(folder / f"{name}.csv", index=False)
        (folder / name).mkdir()
        (folder / name / "node.toml").write_text("epsilon = inf")
        nodes[name] = {"data": str(folder / f"{name}.csv"), "directory": str(folder / name)}
    return nodes


def write_project(folder, name, client=CLIENT, **words):
    (folder / name).mkdir(parents=True)
    (folder / name / "pyproject.toml").write_text(PROJECT.format(name=name))
    (folder / name / "client_app.py").write_text(client.format(**words))
    (folder / name / "server_app.py").write_text(SERVER.format(out=name, **words))
    return folder / name


def running(groups):
    """Members of process groups, the dead that nobody has collected left out."""
    return [row for row in _processes() if row[2] in groups and not row[3].startswith("Z")]


def ebfed(*words):
    command = [sys.executable, "-m", "ebfed", "federate", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_numbers_are_those_of_one_process(tmp_path, rows):
    """What the commands start, through TLS: their own project, and four others beside it.

    In one process, in one block and in 13, and on a Dask cluster with two workers, the numbers are
    the same.
    """
    distributed = pytest.importorskip("distributed")
    write_nodes(tmp_path, rows, NAMES)
    place = tmp_path / "trial"
    words = {"nodes": 3, "quorum": 1.0, "deadline": 150.0}
    projects = [
        write_project(tmp_path / "apps", name, model=model, given=GIVEN[name], **words)
        for name, model in FITS.items()
    ]
    columns = ["--group", "group", "--value", "won", "--family", "binomial"]
    try:
        started = ebfed("up", place, "--data", tmp_path / "*.csv", *columns, "--tls")
        assert started.returncode == 0, started.stderr
        groups = {int(line.split()[1]) for line in ebfed("status", place).stdout.splitlines()}
        assert {row[2] for row in running(groups)} == groups
        again = ebfed("up", place)
        assert again.returncode == 2
        assert "take it down first" in again.stderr
        with ThreadPoolExecutor() as pool:
            others = pool.map(Federation(place).run, projects)
            done = ebfed("run", place)
            list(others)
        assert done.returncode == 0, done.stdout + done.stderr
        (wrote,) = (place / "result").glob("run-*")
        assert f"Wrote {wrote}" in done.stdout
    finally:
        assert ebfed("down", place).returncode == 0
    assert not running(groups)
    assert ebfed("status", place).stdout == ""
    nothing = ebfed("run", place)
    assert nothing.returncode == 2
    assert "nothing runs" in nothing.stderr

    cluster = distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=None)
    with cluster, distributed.Client(cluster) as client:
        for name, model in {"result": "eb.BernoulliEB()", **FITS}.items():
            check_numbers(place, rows, name, model, (Local(1), Local(13), Dask(client)))


def check_numbers(place, rows, name, model, engines):
    (out,) = (place / name).glob("run-*")
    there = load_fit(eval(model, {"eb": eb, "channels": channels}), out)
    tables = [pd.read_csv(place / "nodes" / node / out.name / "estimate.csv") for node in NAMES]
    for engine in engines:
        here = eval(model, {"eb": eb, "channels": channels}).set_params(engine=engine)
        here.fit(**eval(GIVEN[name], {"rows": rows}))
        for part, value in vars(here.prior_).items():
            if isinstance(value, np.ndarray | float):
                assert_allclose(getattr(there.prior_, part), value, rtol=1e-12, err_msg=name)
        expected = here.posterior().to_frame().reset_index(drop=True)
        pd.testing.assert_frame_equal(
            pd.concat(tables, ignore_index=True), expected, rtol=1e-12, check_dtype=False
        )
        assert_array_equal(there.privacy_["clients"], here.privacy_["clients"])
        assert str(there.summary()) == (out / "summary.txt").read_text().rstrip("\n")


FAILING = (
    APP
    + """
def load_or_fail(context):
    name = context.node_config["name"]
    began = Path(context.node_config["directory"]) / f"began-{{context.run_id}}"
    if not began.exists():  # the roll call
        began.parent.mkdir(exist_ok=True)
        began.touch()
    elif name == "b":
        raise ValueError("the row of patient Quirin")
    elif name in "cd":
        (began.parent / "hangs").touch()
        time.sleep(1000)
    return load(context)

app = client_app(estimator, load_or_fail)
"""
)


def test_nodes_that_fail(tmp_path, rows):
    nodes = write_nodes(tmp_path, rows, list("abcde"))
    words = {"model": "eb.GaussianEB()", "given": GIVEN["waves"], "nodes": list("abcde")}
    words |= {"client": FAILING}
    enough = write_project(tmp_path / "apps", "enough", quorum=0.4, deadline=35.0, **words)
    refused = write_project(tmp_path / "apps", "refused", quorum=5, deadline=20.0, **words)
    with Federation(tmp_path).up(nodes) as federation:
        groups = set(federation.status().values())
        with ThreadPoolExecutor(1) as pool:
            run = pool.submit(federation.run, enough)
            while not (tmp_path / "c" / "hangs").exists() and not run.done():
                time.sleep(0.1)
            start = time.monotonic()
            os.killpg(federation.status()["c"], signal.SIGKILL)
            federation.run(refused)
            run.result()
        assert time.monotonic() - start < 35 + 55
        assert "c" not in federation.status()
    assert not running(groups)

    (out,) = (tmp_path / "enough").glob("run-*")
    said = pd.read_csv(out / "participants.csv", keep_default_na=False)
    said = {(row.exchange, row.node): (row.status, row.detail) for row in said.itertuples()}
    assert {said["roll call", node] for node in "abcde"} == {("answered", "")}
    first = [said["round 1", node] for node in "abcde"]
    assert [status for status, _ in first] == [
        *["answered", "failed", "silent", "silent", "answered"]
    ]
    assert first[1][1] == "ValueError; the node's own errors.log says more"
    survivors = pd.concat([pd.read_csv(tmp_path / f"{node}.csv") for node in "ae"])
    here = eb.GaussianEB().fit(survivors["score"], groups=survivors["group"])
    there = load_fit(eb.GaussianEB(), out)
    assert_allclose(there.prior_.mean_, here.prior_.mean_, rtol=1e-12)
    assert_allclose(there.prior_.variance_, here.prior_.variance_, rtol=1e-12)
    tables = [pd.read_csv(tmp_path / node / out.name / "estimate.csv") for node in "ae"]
    assert_allclose(pd.concat(tables)["estimate"], here.posterior().mean[:, 0], rtol=1e-12)

    (refused,) = (tmp_path / "refused").glob("run-*")
    said = pd.read_csv(refused / "participants.csv", index_col="node")
    assert said.loc["c", "status"] == "silent"
    assert [path.name for path in refused.iterdir()] == ["participants.csv"]
    assert not list(tmp_path.glob(f"*/{refused.name}/estimate.csv"))
    log = (tmp_path / "logs" / "superlink.log").read_text()
    for path in [*out.iterdir(), *refused.iterdir()]:
        assert b"Quirin" not in path.read_bytes()
    assert "Quirin" not in log
    assert "Quirin" in (tmp_path / "b" / "errors.log").read_text()


def test_up_that_fails_leaves_nothing(tmp_path, monkeypatch):
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
        federation.up({"south": {}, "north": {}})
    assert len(set(seen)) == 3
    assert not running(set(seen))
