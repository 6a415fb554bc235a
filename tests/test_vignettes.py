"""Every vignette and every page of the site runs from top to bottom, with the extras it names."""

import ast
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from typer.testing import CliRunner

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "vignettes"
PAGES = FOLDER / "site" / "pages"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
RUNNING = [path for path in sorted(PAGES.rglob("*.md")) if "```python" in path.read_text()]
# What is slow, and the package that it needs.
SLOW = {"federating": "flwr"}
VIGNETTES = [
    pytest.param(path, marks=pytest.mark.slow if path.stem in SLOW else ())
    for path in sorted(FOLDER.glob("*.py"))
]


@pytest.mark.parametrize("path", VIGNETTES, ids=lambda path: path.stem)
def test_vignette(path, tmp_path, monkeypatch, capsys):
    if path.stem in SLOW:
        pytest.importorskip(SLOW[path.stem])
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(path))
    assert names["eb"].__name__ == "ebfed"
    assert capsys.readouterr().out
    assert plt.get_fignums(), "a vignette has pictures"
    plt.close("all")


def blocks(path):
    """Code blocks of a page, each with its kind."""
    return BLOCK.findall(path.read_text())


def code(path):
    """The Python of a vignette or of a page."""
    if path.suffix == ".py":
        return path.read_text()
    return "\n".join(block for kind, block in blocks(path) if kind == "python")


@pytest.mark.parametrize("path", RUNNING, ids=lambda path: path.stem)
def test_page(path, tmp_path, monkeypatch, capsys):
    if "duckdb" in code(path):
        pytest.importorskip("duckdb")
    monkeypatch.chdir(tmp_path)
    names = {}
    for kind, block in blocks(path):
        if kind == "python":
            exec(block, names)
        elif kind == "console" and block.startswith("$ ebfed "):
            from ebfed.cli.app import app

            result = CliRunner().invoke(app, shlex.split(block.removeprefix("$ ebfed")))
            assert result.exit_code == 0, result.output
            assert result.stdout
    assert capsys.readouterr().out
    plt.close("all")


@pytest.mark.parametrize("path", RUNNING, ids=lambda path: path.stem)
def test_no_output_of_a_page_is_typed_by_hand(path):
    """Outputs are those of the build: a page has neither text blocks nor lines below commands."""
    for kind, block in blocks(path):
        assert kind in ("python", "console", "sh"), kind
        assert kind != "console" or block.count("\n") == 1, block


@pytest.mark.parametrize("path", [*sorted(FOLDER.glob("*.py")), *RUNNING], ids=lambda p: p.stem)
def test_imports_are_those_of_the_extras_named(path):
    """What a page imports is needed by the package, or by an extra that the page names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = list(project["dependencies"])
    for extras in re.findall(r'needs `pip install "\.\[([\w,]+)\]"`', path.read_text()):
        for extra in extras.split(","):
            needed += project["optional-dependencies"][extra]
    packages = {re.split(r"[^\w-]", line)[0].replace("scikit-learn", "sklearn") for line in needed}
    imported = set()
    for node in ast.walk(ast.parse(code(path))):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module)
    outside = {name.split(".")[0] for name in imported} - set(sys.stdlib_module_names)
    outside -= {"ebfed", "model"}  # the second is written by a vignette
    assert outside <= packages, outside - packages


@pytest.mark.slow
def test_from_r(tmp_path):
    """R's script ends with an error where its numbers are not those of lme4."""
    if shutil.which("Rscript") is None:
        pytest.skip("needs R")
    if subprocess.run(["Rscript", "-e", "library(reticulate)"], capture_output=True).returncode:
        pytest.skip("needs R's package reticulate")
    run = subprocess.run(
        ["Rscript", str(FOLDER / "from_r.R")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"RETICULATE_PYTHON": sys.executable},
    )
    assert run.returncode == 0, run.stderr
    assert "ebfed agree" in run.stdout or "lme4 is not installed" in run.stdout
