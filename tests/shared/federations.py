"""Federations of real processes: nodes with their rows, projects, and kills."""

import os
import signal

import numpy as np

from ebfed.cli.project import PROJECT
from ebfed.engines.loopback import Federation, _processes

SERVER = """\
import ebfed as eb
from ebfed import channels
from ebfed.engines.flower import server_app
from ebfed.learning import ClientPrivacy, DPFedAvg
from ebfed.models import Linear

estimator = {model}
app = server_app(
    estimator, {nodes}, rows={rows}, quorum={quorum}, deadline={deadline}, out={out!r}
)
"""


def write_nodes(folder, rows, names, rules='path = "rows.csv"'):
    nodes = {}
    for name, part in zip(names, np.array_split(np.arange(len(rows)), len(names)), strict=True):
        nodes[name] = folder / name
        nodes[name].mkdir()
        rows.iloc[part].to_csv(nodes[name] / "rows.csv", index=False)
        (nodes[name] / "node.toml").write_text(
            f"epsilon = inf\nmin_group_size = 1\n[rows]\n{rules}\n"
        )
    return nodes


def write_project(folder, name, **words):
    (folder / name).mkdir(parents=True)
    (folder / name / "pyproject.toml").write_text(PROJECT.format(name=name))
    (folder / name / "server_app.py").write_text(SERVER.format(out=name, **words))
    return folder / name


def running(groups):
    """Members of process groups, the dead that nobody has collected left out."""
    return [row for row in _processes() if row[2] in groups and not row[3].startswith("Z")]


def program(federation: Federation) -> list[int]:
    """Numbers of the processes of the server's program, which are of the group of its starter."""
    group = federation.status().get("superexec")
    return [row[0] for row in running({group}) if row[0] != group]


def kill(federation: Federation, name: str) -> bool:
    """Kill a process; returns whether it was running. "program" is the server's program."""
    if name == "program":
        found = program(federation)
        for number in found:
            os.kill(number, signal.SIGKILL)
        return bool(found)
    os.killpg(federation.status()[name], signal.SIGKILL)
    return True
