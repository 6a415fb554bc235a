"""Small versions of the simulated studies, run once for all tests."""

import pytest

from ebfed.studies import bits, opt_out, private_means, private_rates

MODULES = {
    "private-means": private_means,
    "private-rates": private_rates,
    "bits": bits,
    "opt-out": opt_out,
}


class Studies(dict):
    """Run a study when it is first asked for."""

    def __missing__(self, name):
        self[name] = MODULES[name].run(2, 3, quick=True)
        return self[name]


@pytest.fixture(scope="session")
def quick_studies():
    return Studies()
