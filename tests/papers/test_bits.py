"""The study of bits: its formula, and that its reports reach it."""

import numpy as np
import pytest

from ozkara2023 import bits


@pytest.fixture(scope="module")
def study(quick_studies):
    return quick_studies["bits"]


def test_table(study):
    table = study.table
    assert table["method"].unique().tolist() == [
        "local",
        "non-private",
        "variances known",
        "spread estimated",
    ]
    learned = table[table["method"] == "spread estimated"]
    assert learned["bits"].tolist() == [2, 4]  # one bit says nothing of the spread
    assert learned["formula"].isna().all()


def test_a_line_that_rises_is_marked(study):
    """As when estimates through four bits lost their gain, and nobody asked why."""
    assert "!" not in study.to_text()
    runs = study.runs.copy()
    at_four = (runs["method"] == "spread estimated") & (runs["bits"] == 4)
    runs.loc[at_four, "mse"] += 0.01
    text = bits.BitsStudy(bits._tabulate(runs), runs, 2, 3).to_text()
    assert text.count("!") == 2
    assert "! spread estimated, bits 4, figure 3b, m 500, n 5: above its own error" in text


def test_formula():
    b = 0.5 + (0.1 + 0.5 / np.sqrt(5)) * np.sqrt(np.log(500**2 * 5))
    q = b**2 / 3**2 / 499
    a = (0.01 + q) / (0.01 + q + 0.05)
    expected = 0.05 * ((1 - a) / 500 + a)
    assert bits._formula("variances known", 500, 5, 2.0) == pytest.approx(expected)


@pytest.fixture(scope="module")
def full():
    return bits.BitsStudy.run()


@pytest.mark.slow
def test_known_variances_stay_below_the_bound(full):
    """By no more than three standard errors of the mean of 50 runs do they lie above."""
    known = full.table[full.table["method"] == "variances known"]
    assert len(known) == 24
    assert known["apart"].max() < 3


@pytest.mark.slow
def test_a_few_bits_are_enough(full):
    """From four bits on, runs differ from exact means by less than five per cent."""
    table = full.table.set_index(["figure", "method", "bits"])["mse"]
    open_ = full.table[full.table["method"] == "non-private"].set_index("figure")["mse"]
    for figure, without in open_.items():
        for k in range(4, 9):
            assert table[figure, "variances known", k] < 1.05 * without
