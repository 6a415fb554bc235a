"""Functions that R users know: the same fits as by the names of formulaic and NumPy."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import ebfed as eb
from ebfed.designs.words import natural_spline

RNG = np.random.default_rng(3)
N = 240
ROWS = pd.DataFrame(
    {"g": np.repeat(np.arange(12), 20), "h": np.tile([3, 1, 2, 5], 60), "x": RNG.uniform(0, 5, N)}
)
ROWS["y"] = np.sin(ROWS["x"]) + RNG.normal(size=12)[ROWS["g"]] + 0.3 * RNG.normal(size=N)
SAME = {
    "factor(h)": "C(h)",
    "factor(h) * x": "C(h) * x",
    "sqrt(x)": "np.sqrt(x)",
    "log1p(x)": "np.log1p(x)",
    "floor(x) + ceiling(x):x": "np.floor(x) + np.ceil(x):x",
    "ns(x, df=4)": "cr(x, df=4, constraints='center')",  # another basis of the same space
    "factor(h) * ns(x, 3)": "C(h) * ns(x, df=3)",
}


@pytest.mark.parametrize("words", SAME)
def test_words_of_r_fit_the_same(words):
    one, other = (
        eb.from_formula(f"y ~ {text} + (1 | g)", ROWS, method="ml") for text in (words, SAME[words])
    )
    assert one.log_likelihood_ == pytest.approx(other.log_likelihood_, abs=1e-9)
    new = ROWS.sample(40, random_state=1)
    np.testing.assert_allclose(one.predict(new), other.predict(new), atol=1e-9)
    columns = ["num.df", "statistic"]
    found = [fit.tests(type="III")[columns].to_numpy() for fit in (one, other)]
    np.testing.assert_allclose(*found, rtol=1e-6)


def test_a_fit_with_a_natural_spline_is_kept(tmp_path):
    fit = eb.from_formula("y ~ ns(x, df=4) + (1 | g)", ROWS)
    fit.save(tmp_path / "fit.json")
    np.testing.assert_array_equal(
        eb.load_fit(tmp_path / "fit.json").predict(ROWS.head(9)), fit.predict(ROWS.head(9))
    )


def test_natural_splines_are_linear_beyond_their_knots_and_smooth_within():
    knots = [0.0, 1.0, 2.5, 4.0]
    x = np.linspace(-3, 7, 2001)
    columns = natural_spline(x, knots)
    second = np.diff(columns, 2, axis=0)
    outside = (x[1:-1] < -0.01) | (x[1:-1] > 4.01)
    np.testing.assert_allclose(second[outside], 0, atol=1e-12)  # rounding of differences
    assert np.abs(np.diff(second, axis=0)).max() < 1e-6  # second derivatives have no jumps
    assert np.linalg.matrix_rank(np.column_stack([np.ones(2001), columns])) == 4


def test_a_column_goes_before_a_word():
    rows = ROWS.assign(factor=ROWS["x"] ** 2)
    assert "factor" in eb.from_formula("y ~ factor + (1 | g)", rows).fixef()["term"].tolist()


def test_factors_of_lazy_tables_are_pushed_down():
    fit = eb.from_formula("y ~ factor(h) + sqrt(x) + (1 | g)", pl.from_pandas(ROWS).lazy())
    here = eb.from_formula("y ~ factor(h) + sqrt(x) + (1 | g)", ROWS)
    np.testing.assert_allclose(
        fit.fixef()["estimate"].to_numpy(), here.fixef()["estimate"], atol=1e-12
    )
