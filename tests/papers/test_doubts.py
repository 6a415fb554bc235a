"""Risks that cannot be right are found, and chance is no doubt."""

import numpy as np
import pandas as pd
import pytest

from ozkara2023.doubts import doubts


def errors(**risks):
    """Errors of methods, ± .001, against bits; NaN: none."""
    rows = [
        {"m": 500, "method": method, "bits": bits, "mse": mse, "mse_se": 0.001}
        for method, line in risks.items()
        for bits, mse in line.items()
    ]
    return pd.DataFrame(rows)


LOCAL = {np.nan: 0.05}


def test_a_line_that_rises_with_information_is_doubtful():
    table = errors(local=LOCAL, known={1: 0.02, 2: 0.01}, learned={2: 0.0096, 4: 0.0159, 8: 0.009})
    told = "learned, bits 4, m 500: above its own error at bits 2"
    assert doubts(table, "bits") == ["", "", "", "", told, ""]


def test_a_risk_above_that_of_local_estimates_is_doubtful():
    table = errors(local=LOCAL, learned={2: 0.056, 4: 0.009})
    told = "learned, bits 2, m 500: above the error of local estimates"
    assert doubts(table, "bits") == ["", told, ""]


@pytest.mark.parametrize("risk", [0.0101, 0.0104, 0.009])
def test_chance_is_no_doubt(risk):
    """Neither where the error is small, nor less than one error or 5 % above."""
    assert not any(doubts(errors(local=LOCAL, learned={2: 0.01, 4: risk}), "bits"))
    table = errors(local=LOCAL, learned={2: 0.01, 4: 0.0112})
    assert not any(doubts(table, "bits"))
    assert any(doubts(table.assign(mse_se=1e-4), "bits"))
