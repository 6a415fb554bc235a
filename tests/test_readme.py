"""Every code block of the README runs and prints what the README says it prints."""

import contextlib
import io
import json
import os
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(python|text|console)\n(.*?)```", README, flags=re.DOTALL)


def test_readme_has_code():
    kinds = [kind for kind, _ in BLOCKS]
    assert kinds.count("python") >= 2
    assert kinds.count("console") >= 1


def test_python_blocks_print_what_stands_below_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for (kind, code), (after, expected) in zip(BLOCKS, [*BLOCKS[1:], ("", "")], strict=True):
        if kind != "python":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, names)
        shown = expected if after == "text" else ""
        assert printed.getvalue().rstrip() == shown.rstrip()


COMMANDS = [block for kind, block in BLOCKS if kind == "console" and block.startswith("$ ebfed")]


@pytest.mark.parametrize("block", COMMANDS)
def test_console_blocks_print_what_stands_below_them(block, tmp_path, monkeypatch):
    from ebfed.cli.app import app

    monkeypatch.chdir(tmp_path)
    command, _, expected = block.partition("\n")
    command, _, lines = command.partition(" | head -")
    arguments = shlex.split(command.removeprefix("$ ebfed"))
    result = CliRunner().invoke(app, arguments, env=dict(os.environ, COLUMNS="100"))
    assert result.exit_code == 0, result.output
    printed = result.stdout.splitlines()[: int(lines) if lines else None]
    assert "\n".join(printed).rstrip() == expected.rstrip()


def test_times_are_those_of_the_last_run_of_the_benchmarks():
    files = json.loads((ROOT / "tests" / "benchmarks" / "results.json").read_text())["files"]
    known = {
        (workload["name"], peer["name"]): f"{peer['ratio']:.2g}"
        for workloads in files.values()
        for workload in workloads
        for peer in workload["peers"]
        if "ratio" in peer
    }
    table = README.partition("| workload | peer |")[2].partition("\n\n")[0]
    rows = [line.replace("\\|", "\0").split("|")[1:-1] for line in table.splitlines()[2:]]
    assert len(rows) >= 4
    for row in rows:
        workload, peer, ratio = (cell.strip().replace("\0", "|") for cell in row)
        assert known[workload, peer] == ratio


def test_the_first_screen_is_short():
    assert len(README.splitlines()) <= 150
    assert 'pip install "ebfed[' not in README, "the package is on no index"
