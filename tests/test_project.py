"""Files about the project say what is true of it: how to contribute, the paper, the recipe."""

import contextlib
import io
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import ebfed as eb

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
FOLDER = ROOT / "vignettes/paper"
PAPER = (FOLDER / "paper.md").read_text()
PAGES = ["CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "README.md"]


def test_the_examples_for_contributors_run(monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```", CONTRIBUTING, flags=re.DOTALL)
    module = ModuleType("examples")
    monkeypatch.setitem(sys.modules, "examples", module)  # pickles name it
    names = vars(module)
    for code in blocks:
        exec(code, names)
    assert abs(names["fit"].predict() - names["shares"]).mean() < 0.06  # sd of 50 points is .07
    assert names["rates"].prior_.scale_ == pytest.approx(2, rel=0.4)  # four standard errors
    assert len(names["ax"].lines) == 1
    assert re.findall(r"^## … an? (\w+)$", CONTRIBUTING, re.MULTILINE) == [
        "family",
        "prior",
        "channel",
        "learner",
        "plot",
    ]


def test_blocks_of_the_paper_print_what_stands_below_them():
    blocks = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAPER, flags=re.DOTALL)
    assert len(blocks) == PAPER.count("```python") == PAPER.count("```text")
    names = {}
    for code, expected in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, names)
        assert printed.getvalue().rstrip() == expected.rstrip()


def test_references_of_the_paper_are_those_it_cites():
    entries = re.findall(r"^@\w+\{(\w+),", (FOLDER / "paper.bib").read_text(), re.MULTILINE)
    assert len(entries) == len(set(entries))
    assert set(entries) == set(re.findall(r"@(\w+\d{4})", PAPER))


def test_packages_that_the_paper_names_are_in_the_references():
    """Stored results are of R's packages that the scripts beside them attach."""
    scripts = "".join(path.read_text() for path in (ROOT / "tests/reference").glob("*.R"))
    for package in ("lme4", "MASS", "mixsqp", "deconvolveR"):
        assert package in PAPER
        assert f"library({package})" in scripts or f"{package}::" in scripts


@pytest.mark.parametrize("page", PAGES)
def test_links_to_files_are_right(page):
    for link in re.findall(r"\]\(([^)#]+)", (ROOT / page).read_text()):
        assert link.startswith("https://") or (ROOT / link).exists(), link


@pytest.mark.parametrize("page", PAGES)
def test_named_files_exist(page):
    """Paths of new files, in "In the package: ...", are those of the examples."""
    text = re.sub(r"In the package:.*?(?=\n\n)", "", (ROOT / page).read_text(), flags=re.DOTALL)
    for path in re.findall(r"`((?:ebfed|tests|vignettes|data|\.ci|\.conda)/[\w./]+)`", text):
        assert (ROOT / path).exists() or path == "tests/priors/test_gamma.py", path


def test_the_recipe_has_the_dependencies_of_the_project():
    yaml = pytest.importorskip("yaml")
    recipe = yaml.safe_load((ROOT / ".conda/recipe.yaml").read_text())
    python, *run = recipe["requirements"]["run"]
    assert python == "python >=${{ python_min }}"
    assert f">={recipe['context']['python_min']}" == PROJECT["requires-python"]
    wanted = {re.sub(r"^matplotlib\b", "matplotlib-base", each) for each in PROJECT["dependencies"]}
    assert {each.replace(" ", "") for each in run} == wanted
    assert recipe["context"]["version"] == PROJECT["version"] == eb.__version__
    assert recipe["about"]["summary"] == PROJECT["description"]
    command, target = recipe["build"]["python"]["entry_points"][0].split(" = ")
    assert PROJECT["scripts"] == {command: target}


def test_the_workflow_has_the_pythons_of_the_project():
    yaml = pytest.importorskip("yaml")
    jobs = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())["jobs"]
    listed = [each.rsplit(" ", 1)[1] for each in PROJECT["classifiers"] if "Python :: 3." in each]
    assert jobs["quick"]["strategy"]["matrix"]["python"] == listed
    commands = [step.get("run", "") for step in jobs["windows"]["steps"]]
    folders = [word for run in commands for word in run.split() if word.startswith("tests/")]
    assert folders
    assert all((ROOT / folder).is_dir() for folder in folders)


def test_limits_are_at_least_those_of_spec_0():
    """Lower limits are no younger than two years at the release of this version."""
    # first releases of late 2024, and the last series before
    youngest = {
        "numpy": "2.2",
        "scipy": "1.15",
        "pandas": "2.3",
        "scikit-learn": "1.6",
        "matplotlib": "3.10",
    }
    lower = dict(each.split(">=") for each in PROJECT["dependencies"])
    for name, version in youngest.items():
        assert [*map(int, lower[name].split("."))] <= [*map(int, version.split("."))], name
