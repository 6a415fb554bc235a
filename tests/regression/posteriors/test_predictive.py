"""Averages over coefficients that are at a limit."""

import warnings

import numpy as np
import pandas as pd
import pytest

import ebfed as eb

RNG = np.random.default_rng(1)
GROUPS = np.repeat(np.arange(8), 8)
X = RNG.normal(size=64)
D = np.arange(64) % 4 == 0
Z = 0.3 + 0.5 * X + RNG.normal(size=8)[GROUPS]
SUCCESS = (RNG.random(64) < 1 / (1 + np.exp(-Z))) & ~D
ROWS = pd.DataFrame(
    {
        "g": GROUPS,
        "h": RNG.integers(0, 4, 64),
        "d": D.astype(float),
        "x": X,
        "le": 0.0,
        "b": SUCCESS.astype(int),
        "n": RNG.poisson(np.exp(Z)) * ~D,
        "o": 1 + SUCCESS + (SUCCESS & (RNG.random(64) < 0.5)),
    }
)


@pytest.mark.parametrize(
    ("formula", "family"),
    [
        ("b ~ x + d + (1 | g)", "binomial"),
        ("b ~ x + d + offset(le) + (1 | g)", "binomial"),
        ("b ~ x + d + (1 | g) + (1 | h)", "binomial"),
        ("n ~ x + d + (1 | g)", "poisson"),
        ("n ~ x + d + (1 | g)", "negative_binomial"),
        ("n ~ x + d + (1 | g) + (1 | h)", "poisson"),
        ("o ~ x + d + (1 | g)", "ordinal"),
    ],
)
def test_rows_without_events_are_predicted_to_have_none(formula, family):
    """Probabilities were .49 or 1, and counts infinite, for a level of 16 rows without an event."""
    lowest = 1.0 if family == "ordinal" else 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of separation
        fit = eb.from_formula(formula, ROWS, family=family)
    table = fit.augment()
    np.testing.assert_allclose(table.loc[D, ".fitted"], lowest, atol=1e-3)
    np.testing.assert_allclose(table.loc[D, ".fixed"], lowest, atol=1e-3)
    np.testing.assert_allclose(fit.predict(ROWS)[D], lowest, atol=1e-3)
    np.testing.assert_allclose(fit.residuals()[D], 0, atol=1e-3)
    assert 0 < fit.score(ROWS) < 1
    # other rows are predicted as without these
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rest = eb.from_formula(formula.replace("d + ", ""), ROWS[~D], family=family)
    np.testing.assert_allclose(fit.predict(ROWS[~D]), rest.predict(ROWS[~D]), rtol=0.01)
