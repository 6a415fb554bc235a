"""Small versions of the simulated studies, run once for all tests."""

import pytest

import run


class Studies(dict):
    """Run a study when it is first asked for."""

    def __missing__(self, name):
        self[name] = run.find(name).run(2, 3, quick=True)
        return self[name]


@pytest.fixture(scope="session")
def quick_studies():
    return Studies()
