"""Small versions of the simulated studies, run once for all tests."""

import pytest

from ebfed.studies import (
    adamix,
    bits,
    coverage,
    joint_dp,
    logistic,
    mixed_models,
    mixture,
    opt_out,
    opt_out_learning,
    personal_strengths,
    personalization,
    ppsgd,
    private_means,
    private_rates,
    regression,
)

MODULES = {
    "adamix": adamix,
    "private-means": private_means,
    "private-rates": private_rates,
    "bits": bits,
    "logistic": logistic,
    "mixed-models": mixed_models,
    "mixture": mixture,
    "opt-out": opt_out,
    "opt-out-learning": opt_out_learning,
    "regression": regression,
    "personalization": personalization,
    "personal-strengths": personal_strengths,
    "ppsgd": ppsgd,
    "joint-dp": joint_dp,
    "coverage": coverage,
}


class Studies(dict):
    """Run a study when it is first asked for."""

    def __missing__(self, name):
        self[name] = MODULES[name].run(2, 3, quick=True)
        return self[name]


@pytest.fixture(scope="session")
def quick_studies():
    return Studies()
