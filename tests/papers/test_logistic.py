"""The study of logistic regression: what each method is compared with."""

import numpy as np
import pytest

from ozkara2023 import logistic


@pytest.fixture(scope="module")
def study(quick_studies):
    return quick_studies["logistic"]


def test_table(study):
    table = study.table.set_index("method")
    assert list(table.index) == ["pooled", "alone", *logistic.LEARNERS, logistic.ORACLE]
    assert np.isfinite(table["mse"]).all()
    # 100 clients of ten rows: nobody who learns is far from the best, whose error is near 2
    assert table.loc["expectation propagation", "mse"] < table.loc["alone", "mse"]
    assert table.loc[logistic.ORACLE, "mse"] == pytest.approx(2, abs=0.4)


def test_clients_are_those_of_the_population():
    clients, theta = logistic.simulate(2000, 5, 1)
    assert clients.X.shape == (10_000, 10)
    # five standard errors: a false alarm in 2e6 for each of 21 figures
    np.testing.assert_allclose(theta.mean(axis=0), 0.5, atol=5 * 0.5 / np.sqrt(2000))
    np.testing.assert_allclose(theta.var(axis=0), 0.25, atol=5 * 0.25 * np.sqrt(2 / 2000))
    assert clients.y.mean() == pytest.approx(0.5, abs=5 * 0.5 / np.sqrt(2000))
