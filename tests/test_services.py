"""Services of the documentation: their files can be read, and programs have the options given."""

import re
import shlex
import shutil
import subprocess
import sys
from configparser import ConfigParser
from functools import cache
from pathlib import Path

import pytest
import typer

from ebfed.cli.app import app

FOLDER = Path(__file__).parents[1] / "vignettes/site/pages/owners/services"
UNITS = sorted(path.name for path in FOLDER.glob("*.service"))


def unit(name):
    parser = ConfigParser(interpolation=None)
    parser.optionxform = str
    parser.read_string((FOLDER / name).read_text())
    return parser


def services():
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]


def commands():
    """Words of every command line."""
    lines = [unit(name)["Service"]["ExecStart"].replace("\\\n", " ") for name in UNITS]
    return [shlex.split(line) for line in [*lines, *(x["command"] for x in services().values())]]


@cache
def help_of(program):
    path = shutil.which(program, path=str(Path(sys.executable).parent))
    return subprocess.run([path, "--help"], capture_output=True, text=True, check=True).stdout


def test_there_is_a_service_for_each_process():
    programs = sorted(" ".join(words[:2]).rpartition("/")[2] for words in commands())
    one = ["ebfed node", "ebfed superlink", "flower-superexec --runtime-api-address"]
    assert programs == sorted(2 * one)
    assert UNITS == ["ebfed-node.service", "ebfed-superexec.service", "ebfed-superlink.service"]


def test_programs_take_the_arguments():
    """Ours parse them; those of Flower, and arguments that are passed on to it, are in its help."""
    pytest.importorskip("flwr")
    own = typer.main.get_command(app).commands
    for words in commands():
        program, options = Path(words[0]).name, [word for word in words if word.startswith("--")]
        if program == "ebfed":
            context = own[words[1]].make_context(words[1], words[2:])
            if words[1] == "node":
                assert str(context.params["root_certificates"]) == "ca.crt"
                continue
            program, options = "flower-superlink", [x for x in context.args if x.startswith("--")]
        assert options
        assert set(options) <= set(re.findall(r"--[\w-]+", help_of(program))), program


def test_nothing_is_unprotected():
    for words in commands():
        assert "--insecure" not in words
    for name in UNITS:
        section = unit(name)["Service"]
        assert section["User"] != "root"
        assert section["ReadWritePaths"] == section["WorkingDirectory"]
        assert (section["ProtectSystem"], section["NoNewPrivileges"]) == ("strict", "yes")
    for service in services().values():
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]


def test_the_page_names_each_file():
    page = (FOLDER.parent / "deployment.md").read_text()
    for path in FOLDER.iterdir():
        assert f"(services/{path.name})" in page
