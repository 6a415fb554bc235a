"""The package as a whole: what importing loads, who imports whom, style, types."""

import ast
import importlib
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import ebfed

ROOT = Path(__file__).parents[1]
HEAVY = [
    "torch",
    "sklearn",
    "scipy.stats",
    "pandas",
    "statsmodels",
    "matplotlib",
    "numba",
    "narwhals",
    "formulaic",
    "polars",
    "pyarrow",
    "duckdb",
    "dask",
    "distributed",
    "pyspark",
    "flwr",
    "pooch",
    "dp_accounting",
    "sqlglot",
    "typer",
]


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, **options)


def test_import_loads_nothing_heavy():
    code = f"import ebfed, sys; print([m for m in {HEAVY} if m in sys.modules])"
    answer = run(sys.executable, "-c", code)
    assert answer.stdout.strip() == "[]", answer.stdout + answer.stderr


# What a fit of arrays, and one of a formula of a frame, have no use for.
OF_OTHERS = [
    "ebfed.location",
    "ebfed.learning",
    "ebfed.evaluation.study",
    "ebfed.report.plots",
    "ebfed.report.page",
    "ebfed.report.sql",
    "ebfed.priors.base",
    "ebfed.priors.normal",
    "ebfed.priors.beta",
    "ebfed.channels.base",
    "ebfed.likelihoods.base",
    "ebfed.kernels.student",
    "ebfed.regression.families.poisson",
    "ebfed.regression.crossed",
    "ebfed.regression.generalized",
    "ebfed.regression.logistic",
    "ebfed.regression.adamix",
    "sklearn.metrics",
    "sklearn.model_selection",
    "sklearn.linear_model",
    "statsmodels",
    "matplotlib",
    "polars",
    "dask",
    "torch",
    "dp_accounting",
    "sqlglot",
]
ROWS = (
    "import numpy as np; g = np.repeat(np.arange(9), 5); x = np.arange(45.0) % 7; y = np.sin(x) + g"
)
FITS = {
    "arrays": "eb.LinearEB().fit(x[:, None], y, groups=g)",
    "formula": "import pandas as pd; eb.from_formula('y ~ x + (1 | g)', "
    "pd.DataFrame({'x': x, 'y': y, 'g': g}))",
}


@pytest.mark.parametrize("fit", FITS)
def test_a_fit_imports_what_it_needs(fit):
    absent = OF_OTHERS + ["formulaic", "ebfed.formula"] * (fit == "arrays")
    code = f"import ebfed as eb, sys; {ROWS}; {FITS[fit]}; print([m for m in {absent} "
    answer = run(sys.executable, "-c", code + "if m in sys.modules])")
    assert answer.stdout.strip() == "[]", answer.stdout + answer.stderr


def test_formulas_are_public_before_formulaic_is_loaded():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert any(name.startswith("formulaic") for name in project["dependencies"])
    code = "import ebfed; ebfed.from_formula; import sys; assert 'formulaic' not in sys.modules"
    answer = run(sys.executable, "-c", code)
    assert answer.returncode == 0, answer.stderr


def test_the_oldest_versions_are_those_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    allowed = project["dependencies"] + project["optional-dependencies"]["test"]
    floors = {re.split(r"[\[<>=]", each)[0]: re.search(r">=([\d.]+)", each) for each in allowed}
    lines = (ROOT / "tests/oldest.txt").read_text().split("\n\n")[0].splitlines()
    oldest = dict(line.removesuffix(".*").split("==") for line in lines if not line.startswith("#"))
    linters = {"ruff", "mypy", "import-linter"}
    assert oldest == {name: found[1] for name, found in floors.items() if name not in linters}


def test_public_names_resolve():
    for name in ebfed.__all__:
        assert getattr(ebfed, name) is not None
    assert set(ebfed.__all__) <= set(dir(ebfed))
    with pytest.raises(AttributeError, match="no attribute 'GaussianBE'"):
        ebfed.GaussianBE  # noqa: B018


@pytest.mark.parametrize("module", ["streams", "wire", "kernels", "theory", "tables.files"])
def test_a_module_may_be_imported_before_all_others(module):
    answer = run(sys.executable, "-c", f"import ebfed.{module}")
    assert answer.returncode == 0, answer.stderr


FOLDERS = sorted(path.parent.name for path in (ROOT / "ebfed").glob("*/__init__.py"))


@pytest.mark.parametrize("folder", [name for name in FOLDERS if name != "cli"])
def test_every_folder_lists_what_it_exports(folder):
    module = importlib.import_module(f"ebfed.{folder}")
    for name in module.__all__:
        assert getattr(module, name) is not None


LAZY = [
    path.parent.relative_to(ROOT).as_posix().replace("/", ".")
    for path in sorted((ROOT / "ebfed").rglob("__init__.py"))
    if "at_first_use(__name__)" in path.read_text()
]


@pytest.mark.parametrize("package", LAZY)
def test_type_checkers_see_the_names_of_run_time(package):
    module = importlib.import_module(package)
    tree = ast.parse(Path(module.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {each.name for node in block.body for each in node.names}
    assert set(module.__all__) <= seen
    # where a module has the name of what is in it, importing the module would hide that
    modules = {path.stem for path in Path(module.__file__).parent.iterdir()}
    for name in seen & modules:
        assert getattr(module, name).__name__ == f"{package}.{name}"


def test_few_names_are_at_the_top():
    names = dir(ebfed)
    assert len(names) == len(set(names)) <= 45
    assert sorted(names) == sorted([*ebfed.__all__, "__version__"])
    assert not set(names) & {"Any", "TYPE_CHECKING", "find_spec", "import_module"}
    assert not set(names) & set(ebfed.learning.__all__) - {"ClientPrivacy"}
    assert ebfed.learning.FedAvg.__module__ == "ebfed.learning.fed_avg"
    with pytest.raises(AttributeError, match="no attribute 'FedAvg'"):
        ebfed.FedAvg  # noqa: B018


def test_version_matches_the_project():
    assert f'version = "{ebfed.__version__}"' in (ROOT / "pyproject.toml").read_text()
    assert f"version: {ebfed.__version__}" in (ROOT / "CITATION.cff").read_text()


def test_types_are_shipped():
    # without the file a type checker sees none of them (PEP 561)
    assert (Path(ebfed.__file__).parent / "py.typed").is_file()


@pytest.mark.parametrize(
    "command",
    [["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"], ["lint-imports"]],
    ids=" ".join,
)
def test_quality(command):
    if command == ["mypy"] and np.lib.NumpyVersion(np.__version__) < "2.4.0":
        pytest.skip("the types of NumPy and Matplotlib differ by version; the newest are checked")
    tool = shutil.which(command[0], path=Path(sys.executable).parent)
    assert tool, f"{command[0]} is part of the extra 'test'"
    answer = run(tool, *command[1:])
    assert answer.returncode == 0, answer.stdout + answer.stderr
