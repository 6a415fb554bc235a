"""Errors of the user end with one line and code 2; others are not hidden."""

import pytest
import typer

from ebfed.cli.options import errors_of_the_user


@pytest.mark.parametrize("error", [OSError, ValueError, ImportError])
def test_one_line(error, capsys):
    with pytest.raises(typer.Exit) as ended, errors_of_the_user():
        raise error("two\n  lines")
    assert ended.value.exit_code == 2
    assert capsys.readouterr().err == "ebfed: two lines\n"


def test_errors_of_some_commands(capsys):
    with pytest.raises(RuntimeError, match="broken"), errors_of_the_user():
        raise RuntimeError("broken")
    with pytest.raises(typer.Exit), errors_of_the_user(RuntimeError):
        raise RuntimeError("not started")
    assert capsys.readouterr().err == "ebfed: not started\n"


def test_an_exit_keeps_its_code():
    with pytest.raises(typer.Exit) as ended, errors_of_the_user(RuntimeError):
        raise typer.Exit(130)
    assert ended.value.exit_code == 130
