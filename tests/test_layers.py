"""The contracts of imports: they find what is planted in a copy of the package."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINTER = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
GUARDED = ["flwr", "formulaic", "matplotlib", "narwhals", "numba", "torch"]


@pytest.fixture
def lint(tmp_path):
    """Run the contracts on a copy of the package with one more module."""

    def run(path, code):
        shutil.copytree(ROOT / "ebfed", tmp_path / "ebfed", ignore=lambda *_: ["__pycache__"])
        shutil.copy(ROOT / "pyproject.toml", tmp_path)
        (tmp_path / "ebfed" / path).write_text(f'"""A planted module."""\n\n{code}\n')
        tool = shutil.which("lint-imports", path=Path(sys.executable).parent)
        assert tool, "lint-imports is part of the extra 'test'"
        environment = {name: v for name, v in os.environ.items() if name != "PYTHONPATH"}
        command = [tool, "--no-cache"]
        return subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, env=environment
        )

    return run


def test_every_module_at_the_top_is_in_a_layer(lint):
    answer = lint("drawer.py", "")
    assert answer.returncode == 1
    assert "ebfed.drawer" in answer.stdout


@pytest.mark.parametrize(
    ("path", "code", "sentence"),
    [
        ("tables/planted.py", "import ebfed.location", "ebfed.tables is not allowed to import"),
        (
            "location/planted.py",
            "import ebfed.learning",
            "ebfed.location.planted -> ebfed.learning",
        ),
        *(
            ("tables/planted.py", f"import {name}", f"ebfed.tables.planted -> {name}")
            for name in GUARDED
        ),
    ],
    ids=["layer", "wing", *GUARDED],
)
def test_what_is_not_allowed_is_found(lint, path, code, sentence):
    answer = lint(path, code)
    assert answer.returncode == 1
    assert sentence in answer.stdout


def test_packages_from_outside_are_guarded_by_default():
    contracts = [each for each in LINTER["contracts"] if each["type"] == "protected"]
    protected = [name for each in contracts for name in each["protected_modules"]]
    assert set(GUARDED) <= set(protected)
    for each in contracts:
        assert all(name.startswith("ebfed.") for name in each["allowed_importers"])
        assert "ignore_imports" not in each
