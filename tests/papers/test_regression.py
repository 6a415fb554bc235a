"""The study of regression: its table, and the risks of section K.2."""

import numpy as np
import pytest

from ozkara2023 import regression


@pytest.fixture(scope="module")
def study(quick_studies):
    return quick_studies["regression"]


def test_table(study):
    table = study.table.set_index(["d", "method"])
    assert table.index.get_level_values("method").unique().tolist() == [
        "local",
        "pooled",
        "Algorithm 4",
        "REML",
        "known",
    ]
    for d in (10, 20):
        errors = table.loc[d, "mse"]
        assert errors["known"] < errors["REML"] < 1.03 * errors["known"]
        assert errors["REML"] < errors["pooled"] < errors["local"]
        # 1000 clients: the mean of d squared normals over them has some 2 % of error
        assert table.loc[(d, "known"), "formula"] == pytest.approx(errors["known"], rel=0.1)


def test_page_and_figure(study):
    page = str(study.to_text())
    assert "exact risk" in page
    assert "s_t**2 fitted" in page
    lines = study.figure().axes[0].get_lines()
    assert len(lines) >= 5


@pytest.fixture(scope="module")
def full():
    return regression.RegressionStudy.run(5)


@pytest.mark.slow
def test_risk_of_section_k2(full):
    """Five runs of 10,000 clients: standard errors of .0005 and .0006, and a quarter per cent."""
    errors = full.table.set_index(["d", "method"])["mse"]
    assert errors[50, "REML"] <= 0.4700
    assert errors[100, "REML"] <= 0.9530 + 2 * 0.0006
    for d in (50, 100):
        assert errors[d, "REML"] < 1.0025 * errors[d, "known"]
    formula = full.table.dropna(subset="formula").set_index("d")
    assert np.abs(formula["mse"] / formula["formula"] - 1).max() < 0.005
