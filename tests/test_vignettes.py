"""Every vignette runs from top to bottom."""

import runpy
from pathlib import Path

import pytest

# What is slow, and the package that it needs.
SLOW = {"hospitals": "flwr"}
VIGNETTES = [
    pytest.param(path, marks=pytest.mark.slow if path.stem in SLOW else ())
    for path in sorted((Path(__file__).parents[1] / "vignettes").glob("*.py"))
]


@pytest.mark.parametrize("path", VIGNETTES, ids=lambda path: path.stem)
def test_vignette(path, tmp_path, monkeypatch, capsys):
    if path.stem in SLOW:
        pytest.importorskip(SLOW[path.stem])
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(path))
    assert names["eb"].__name__ == "ebfed"
    assert capsys.readouterr().out
