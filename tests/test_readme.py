"""Every code block of the README runs and prints what the README says it prints."""

import contextlib
import io
import os
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

README = (Path(__file__).parents[1] / "README.md").read_text()
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
    arguments = shlex.split(command.removeprefix("$ ebfed"))
    result = CliRunner().invoke(app, arguments, env=dict(os.environ, COLUMNS="100"))
    assert result.exit_code == 0, result.output
    assert result.stdout.rstrip() == expected.rstrip()
