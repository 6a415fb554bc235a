"""Every vignette runs from top to bottom."""

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

FOLDER = Path(__file__).parents[1] / "vignettes"
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
