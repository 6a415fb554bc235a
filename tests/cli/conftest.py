"""A table of rows, and a file of it."""

import numpy as np
import pandas as pd
import pytest


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    number = np.repeat(np.arange(1, 21), 6)
    return pd.DataFrame(
        {
            "fips": [f"{k:05d}" for k in number],
            "number": number,
            "score": rng.normal(number, 4.0).round(3),
            "won": rng.integers(0, 2, len(number)),
        }
    )


@pytest.fixture
def file(rows, tmp_path):
    path = tmp_path / "rows.csv"
    rows.to_csv(path, index=False)
    return path
