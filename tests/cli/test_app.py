"""The command line as a whole: help and version."""

import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

import ebfed as eb
from ebfed.cli.app import app


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_help_loads_nothing_heavy():
    command = [sys.executable, "-X", "importtime", "-m", "ebfed", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = {
        line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()
    }
    assert "typer" in loaded
    assert not loaded & {"numpy", "pandas", "numba", "sklearn", "scipy", "matplotlib", "narwhals"}
    for command in ("county", "fit", "warm"):
        assert command in done.stdout


def test_version():
    assert invoke("--version").stdout == f"ebfed {eb.__version__}\n"


def commands(command, *names):
    yield names
    for name, each in getattr(command, "commands", {}).items():
        yield from commands(each, *names, name)


@pytest.mark.parametrize("names", list(commands(typer.main.get_command(app))), ids=" ".join)
def test_help_of_commands(names):
    """It is plain text: neither markup nor codes of a terminal."""
    result = invoke(*names, "--help")
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 100
    assert "\x1b" not in result.output
    assert "\\" not in result.output
