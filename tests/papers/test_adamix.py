"""The study of AdaMix: its parts, and the figures it is to reach."""

import numpy as np
import pytest

from ozkara2023 import adamix


@pytest.fixture(scope="module")
def study(quick_studies):
    return quick_studies["adamix"]


def test_table(study):
    table = study.table
    assert table["method"].unique().tolist() == [
        adamix.LOCAL,
        adamix.DESCENT,
        adamix.CLUSTERING,
        adamix.POINTS,
        adamix.MIXTURE,
        adamix.BAYES,
    ]
    mse = table.set_index(["method", "round"])["mse"]
    assert mse[adamix.LOCAL].item() == pytest.approx(40, abs=1.5)
    assert mse[adamix.DESCENT][1.0] == pytest.approx(51, abs=0.5)  # |mu|**2 and that of the draws
    assert mse[adamix.DESCENT][51.0] < mse[adamix.LOCAL].item()
    assert mse[adamix.BAYES].item() < mse[adamix.MIXTURE].item() < 0.075
    assert mse[adamix.CLUSTERING].item() > 25
    assert study.runs["n"].unique().tolist() == [10]


def test_text_and_figure(study):
    text = study.to_text()
    assert "printed in the paper: AdaMix" in text
    assert "10.42" in text
    assert "AdaMix lies above the Bayes risk" in text
    assert "stopped after 50 steps, of 350" in text
    assert max(map(len, text.splitlines())) <= 96
    (ax,) = study.figure().axes
    assert "steps" in ax.get_xlabel()
    lines = {line.get_label(): line for line in ax.get_lines()}
    assert lines[adamix.DESCENT].get_xdata().tolist() == [0, 25, 50]
    assert study.to_dict()["study"] == "adamix"


def test_steps_to_the_printed_figure():
    """Interpolated between the rounds that are shown."""
    import pandas as pd

    rows = pd.DataFrame(
        {"n": 10, "method": adamix.DESCENT, "round": [1, 101, 301], "mse": [40.0, 30.42, 0.42]}
    )
    steps = adamix.AdaMixStudy(rows, rows, 2, 0).passes()
    assert steps[10] == pytest.approx(100 + 200 * 20 / 30)


def test_clients():
    clients, theta, mu = adamix.simulate(50, 10, np.random.default_rng(0))
    assert clients.X.shape == (500, 50)
    assert mu @ mu == pytest.approx(50)
    away = np.minimum(((theta - mu) ** 2).sum(axis=1), ((theta + mu) ** 2).sum(axis=1))
    assert away.mean() == pytest.approx(0.05, rel=0.1)


@pytest.mark.slow
def test_published_descent():
    """Five runs at n = 10, after 300 steps: 10.4, with a standard error below .06."""
    errors = []
    for seed in range(5):
        clients, theta, _ = adamix.simulate(1000, 10, np.random.default_rng([0, seed, 10]))
        path = adamix._descend(clients, 301, seed)
        errors.append(((path[301] - theta) ** 2).sum(axis=1).mean())
    assert np.mean(errors) == pytest.approx(10.4, abs=0.1)
