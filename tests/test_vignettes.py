"""Every vignette and every page of the site runs from top to bottom, with the extras it names."""

import ast
import builtins
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
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
# What is slow, and the package that it needs.
SLOW = {"federating": "flwr"}
NEEDED = SLOW | {"own_module": "torch"}
VIGNETTES = [
    pytest.param(path, marks=pytest.mark.slow if path.stem in SLOW else ())
    for path in sorted(FOLDER.glob("*.py"))
]


def packages(requirements):
    """The names under which the packages of some requirements are imported."""
    names = {re.split(r"[^\w-]", line)[0] for line in requirements}
    return {name.replace("scikit-learn", "sklearn").replace("-", "_") for name in names}


def needed(path):
    """Packages that a page may import: those of ebfed, and of the extras that the page names."""
    lines = list(PROJECT["dependencies"])
    for extras in re.findall(r'needs `pip install "\.\[([\w,]+)\]"`', path.read_text()):
        for extra in extras.split(","):
            lines += EXTRAS[extra]
    return packages(lines)


def hide_other_extras(path, monkeypatch):
    """Refuse imports, by the page or by ebfed, from extras that the page does not name."""
    tools = ("bench", "docs", "test")
    lines = [line for extra, lines in EXTRAS.items() if extra not in tools for line in lines]
    hidden = packages(lines) - needed(path)

    def imported(name, names=None, *rest, **named):
        importer = (names or {}).get("__name__", "ebfed")  # a page has no name
        if name.split(".")[0] in hidden and importer.split(".")[0] in ("ebfed", "<run_path>"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return original(name, names, *rest, **named)

    original = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", imported)


@pytest.mark.parametrize("path", VIGNETTES, ids=lambda path: path.stem)
def test_vignette(path, tmp_path, monkeypatch, capsys):
    if path.stem in NEEDED:
        pytest.importorskip(NEEDED[path.stem])
    hide_other_extras(path, monkeypatch)
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(path))
    assert names["eb"].__name__ == "ebfed"
    assert capsys.readouterr().out
    assert plt.get_fignums(), "a vignette has pictures"
    plt.close("all")


def blocks(path):
    """Code blocks of a page, each with its kind."""
    return BLOCK.findall(path.read_text())


def test_other_extras_are_hidden(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text('This needs `pip install ".[parquet]"`.')
    hide_other_extras(page, monkeypatch)
    pytest.importorskip("pyarrow")
    pytest.importorskip("duckdb")  # of this test, which may import it
    exec("import pyarrow", {})
    with pytest.raises(ModuleNotFoundError, match="duckdb"):
        exec("import duckdb", {})


def code(path):
    """The Python of a vignette or of a page."""
    if path.suffix == ".py":
        return path.read_text()
    return "\n".join(block for kind, block in blocks(path) if kind == "python")


@pytest.mark.parametrize("path", RUNNING, ids=lambda path: path.stem)
def test_page(path, tmp_path, monkeypatch, capsys):
    if "duckdb" in code(path):
        pytest.importorskip("duckdb")
    hide_other_extras(path, monkeypatch)
    monkeypatch.chdir(tmp_path)
    names = {"__file__": str(path)}
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
    """Outputs are those of the build: a page has neither text blocks nor lines below commands.

    The build executes blocks of all other languages, so commands that it should not are indented.
    """
    for kind, block in blocks(path):
        assert kind in ("python", "console"), kind
        assert kind != "console" or block.count("\n") == 1, block


@pytest.mark.parametrize("path", [*sorted(FOLDER.glob("*.py")), *RUNNING], ids=lambda p: p.stem)
def test_imports_are_those_of_the_extras_named(path):
    """What a page imports is needed by the package, or by an extra that the page names."""
    imported = set()
    for node in ast.walk(ast.parse(code(path))):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module)
    outside = {name.split(".")[0] for name in imported} - set(sys.stdlib_module_names)
    outside -= {"ebfed", "model", "beyond"}  # a vignette writes the second; the third is beside it
    assert outside <= needed(path), outside - needed(path)


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
