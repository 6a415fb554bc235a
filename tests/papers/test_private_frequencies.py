"""The study of private frequencies: its clients, its table, and who is ahead."""

import numpy as np
import pytest

from beyond import private_frequencies as pf


def test_clients_come_in_kinds():
    counts, theta = pf.simulate(20_000, 10, np.random.default_rng(0))
    np.testing.assert_allclose(theta.sum(axis=1), 1.0)
    assert (counts.sum(axis=1) == 10).all()
    known = pf.known()
    np.testing.assert_allclose(theta.mean(axis=0), known.mean_, atol=0.01)
    np.testing.assert_allclose(theta.var(axis=0), known.variance_, rtol=0.05)


def test_table(quick_studies):
    study = quick_studies["private-frequencies"]
    assert set(study.table["method"]) == set(pf.METHODS)
    open_ = study.table[study.table["epsilon"].isna()].set_index("method")["mse"]
    assert open_["population known"] < open_["mixture"] < open_["one Dirichlet"] < open_["local"]
    assert open_["local"] < open_["pooled"]
    assert "Kinds that the least BIC chose" in study.to_text()


@pytest.mark.slow
def test_mixture_is_ahead_where_epsilon_allows():
    """2 runs of 10,000 clients at epsilon 16; all methods see the same clients."""
    rows = [row for seed in range(2) for row in pf._one_run((0, seed), 10_000, 10, 16.0)]
    risk = {name: np.mean([x["mse"] for x in rows if x["method"] == name]) for name in pf.METHODS}
    assert risk["mixture"] < 0.95 * risk["one Dirichlet"] < risk["local"] < risk["pooled"]
