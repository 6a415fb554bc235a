"""Every vignette runs from top to bottom."""

import runpy
from pathlib import Path

import pytest

VIGNETTES = sorted((Path(__file__).parents[1] / "vignettes").glob("*.py"))


@pytest.mark.parametrize("path", VIGNETTES, ids=lambda path: path.stem)
def test_vignette(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(path))
    assert names["eb"].__name__ == "ebfed"
    assert capsys.readouterr().out
