"""The command `ebfed county`."""

import json

from typer.testing import CliRunner

from ebfed.cli.app import app


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_county(tmp_path):
    result = invoke("county", "--json", "--out", tmp_path / "results")
    assert result.exit_code == 0, result.output
    study = json.loads(result.stdout)
    assert study["n_counties"] == 3111
    assert len(study["folds"]) == 48  # eight methods, six elections
    assert result.stderr.count("Wrote ") == 7
    assert len(list((tmp_path / "results").iterdir())) == 7


def test_county_refuses_a_file_for_a_directory(file):
    result = invoke("county", "--out", file)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("ebfed: ")
    assert "File exists" in line
