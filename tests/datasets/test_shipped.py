"""The shipped batting averages, and what shrinkage gains on the next season."""

import numpy as np

from ebfed.datasets import load_batting
from ebfed.location import BernoulliEB
from ebfed.tables.clients import Summary


def test_counts_are_possible():
    table = load_batting()
    assert table.shape == (953, 5)
    assert not table["player"].duplicated().any()
    assert (table["at_bats"] > 0).all()
    for year in ("", "_2016"):
        assert table[f"hits{year}"].between(0, table[f"at_bats{year}"]).all()


def test_estimates_predict_the_next_season():
    """Squared errors weighted by the at-bats of 2016, measured independently."""
    table = load_batting()
    fit = BernoulliEB().fit(
        Summary.from_counts(table["hits"].to_numpy(), table["at_bats"].to_numpy())
    )
    later = table["at_bats_2016"] > 0
    weights = table.loc[later, "at_bats_2016"]
    truth = table.loc[later, "hits_2016"] / weights
    own = (table["hits"] / table["at_bats"])[later]
    mean = table["hits"].sum() / table["at_bats"].sum()
    errors = [
        np.average((estimate - truth) ** 2, weights=weights)
        for estimate in (own, mean, fit.predict()[later])
    ]
    np.testing.assert_allclose(errors, [0.00236, 0.00166, 0.00134], atol=5e-6)
