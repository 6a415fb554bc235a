"""The study of subspaces: its clients and its table."""

import numpy as np
import pytest

from beyond import subspaces


def test_clients_have_bases_near_a_shared_one():
    rows, bases = subspaces.simulate(4000, 0.5, np.random.default_rng(0))
    np.testing.assert_allclose(
        bases.swapaxes(1, 2) @ bases, np.tile(np.eye(2), (4000, 1, 1)), atol=1e-12
    )
    outside = rows - rows @ bases @ bases.swapaxes(1, 2)
    # 80,000 rows with 18 numbers of variance .16 each
    assert (outside**2).sum(axis=2).mean() == pytest.approx(18 * 0.16, rel=0.01)
    assert subspaces._error(bases, bases) == pytest.approx(0, abs=1e-12)


def test_table(quick_studies):
    study = quick_studies["subspaces"]
    table = study.table.set_index(["spread", "method"])["error"].unstack()
    assert list(table.columns) == ["FedAvg", "HierarchicalEB", "local", "pooled"]
    assert table.loc[0.5, "HierarchicalEB"] < 0.8 * table.loc[0.5, ["local", "pooled"]].min()
    assert table.loc[4.0, "local"] < table.loc[4.0, "pooled"]
    assert "by spread" in study.to_text()
