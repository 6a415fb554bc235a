"""The study of kinds: its clients and its table."""

import numpy as np

from beyond import kinds


def test_clients_are_of_three_kinds():
    for d in (1, 10):
        theta, _ = kinds.simulate(d, 0)
        centres = np.unique(np.round(theta / 8), axis=0)
        assert len(centres) == kinds.KINDS
        away = np.linalg.norm(theta[:, None] - 8 * centres, axis=2)
        # .5 in each dimension: the largest of 150 lies below 3.5 deviations more
        assert away.min(axis=1).max() < 0.5 * (np.sqrt(d) + 3.5)


def test_table(quick_studies):
    """Numbers are right, and then the risk is that of who knows them, but for other starts."""
    study = quick_studies["kinds"]
    assert len(study.table) == len(kinds.DATA) * 2 * len(kinds.RULES)
    assert study.table["right"].mean() > 0.9
    right = study.runs[study.runs["right"] == 1]
    np.testing.assert_allclose(right["risk"], 1, rtol=1e-3)
    assert "2 of 2" in study.to_text()
