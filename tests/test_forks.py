"""Processes of `tests/shared/forks.py` end where their work ends."""

import os

import pytest
from forks import FAILED, fork

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt])
def test_an_error_ends_the_child_and_is_shown(error, capfd):
    def work():
        raise error("in the child")

    assert os.waitstatus_to_exitcode(os.waitpid(fork(work), 0)[1]) == FAILED
    assert "in the child" in capfd.readouterr().err


@pytest.mark.parametrize(("returned", "code"), [(None, 0), (3, 3)])
def test_what_work_returns_is_the_exit_code(returned, code):
    assert os.waitstatus_to_exitcode(os.waitpid(fork(lambda: returned), 0)[1]) == code
