"""What is easily written otherwise in R, and what frames do to numbers and levels."""

import re

import numpy as np
import pandas as pd
import polars as pl
import pytest

import ebfed as eb

RNG = np.random.default_rng(0)
M, N = 12, 8
ROWS = pd.DataFrame({"g": np.repeat(np.arange(M), N), "x": np.tile(np.arange(N), M)})
ROWS["y"] = 3 + 2.0 * ROWS["x"] + RNG.normal(size=M)[ROWS["g"]] + RNG.normal(size=M * N)
ROWS["kind"] = np.where(ROWS["g"] % 2, "odd", "even")
ROWS["won"] = (ROWS["y"] > 10).astype(int)


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "int32"])
@pytest.mark.parametrize("term", ["I(x * x * 10)", "x:x2", "I(x - 5)", "I(x**3)"])
def test_small_whole_numbers_have_room(kind, term):
    wide = ROWS.assign(x=ROWS["x"] * 15, x2=ROWS["x"] * 15)
    narrow = wide.astype({"x": kind, "x2": kind})
    formula = f"y ~ {term} + (1 | g)"
    expected, found = (eb.from_formula(formula, rows).tidy("fixed") for rows in (wide, narrow))
    pd.testing.assert_frame_equal(found, expected)


def test_counts_of_small_whole_numbers():
    rows = pd.DataFrame({"g": range(6), "won": [100, 90, 80, 110, 70, 120], "lost": [50] * 6})
    expected = eb.from_formula("cbind(won, lost) | g", rows).predict()
    found = eb.from_formula("cbind(won, lost) | g", rows.astype(np.int8)).predict()
    np.testing.assert_array_equal(found, expected)


def test_levels_that_no_row_has_are_dropped():
    every = ROWS.assign(kind=pd.Categorical(ROWS["kind"], ["none", "even", "odd", "never"]))
    expected = eb.from_formula("y ~ kind + (1 | g)", ROWS).tidy("fixed")
    fit = eb.from_formula("y ~ kind + (1 | g)", every)
    pd.testing.assert_frame_equal(fit.tidy("fixed"), expected)
    assert len(fit.predict(every.head(3))) == 3


def test_order_of_levels_is_kept():
    order = ["odd", "even"]
    first = ROWS.assign(kind=pd.Categorical(ROWS["kind"], order))
    second = pl.DataFrame(ROWS).with_columns(pl.col("kind").cast(pl.Enum(order)))
    terms = [
        list(eb.from_formula("y ~ kind + (1 | g)", rows).tidy("fixed")["term"])
        for rows in (first, second)
    ]
    assert terms == [["intercept", "kind[T.even]"]] * 2


def test_rates_are_predicted_of_counts():
    rows = ROWS.groupby("g").agg(won=("won", "sum"), n=("won", "size"), x=("g", "first"))
    fit = eb.from_formula("cbind(won, trials=n) ~ x + (1 | g)", rows.reset_index())
    np.testing.assert_array_equal(fit.predict(), fit.augment()[".fitted"])
    assert ((fit.predict() > 0) & (fit.predict() < 1)).all()


def test_the_frame_is_copied_and_only_what_is_used():
    rows = ROWS.assign(secret="s")
    fit = eb.from_formula("y ~ x + (1 | g)", rows)
    before = fit.predict()
    rows["x"] = 0
    np.testing.assert_array_equal(fit.predict(), before)
    added = {".fitted", ".fixed", ".resid", ".hat", ".cooksd"}
    assert set(fit.augment().columns) == {"x", "y", "g", *added}


@pytest.mark.parametrize("name", ["yield", "class", "a b", "Sepal.Length"])
def test_names_that_are_no_names_of_python(name):
    rows = ROWS.rename(columns={"y": name})
    expected = eb.from_formula("y ~ x + (1 | g)", ROWS).tidy("fixed")["estimate"]
    written = f"`{name}`"
    found = eb.from_formula(f"{written} ~ x + (1 | g)", rows).tidy("fixed")["estimate"]
    np.testing.assert_array_equal(found, expected)


BAD = {
    "y ~ I(x^2) + (1 | g)": "a power is written **",
    "y ~ z + (1 | g)": "'z' is neither a column of data nor known here",
    "y ~ kin + (1 | g)": "did you mean 'kind'?",
    "y ~ ns(x) + (1 | g)": "needs either df or knots",
    "y ~ ns(x, df=0) + (1 | g)": "whole number of at least 1",
    "y ~ offset(x) | g": "GaussianEB has no offset",
    "y ~ x + (1 | g) + (x | g)": "two terms of 'g'",
    "y ~ one + (1 | g)": "'one' has the same value in all rows",
    "kind ~ x + (1 | g)": "response 'kind' must be numbers for LinearEB",
    "kind | g": "response 'kind' must be numbers for GaussianEB",
    "y ~ Intercept + (1 | g)": "a column is called 'Intercept'",
    "y ~ intercept + (1 | g)": "a column is called 'intercept'",
}


@pytest.mark.parametrize("formula", BAD)
def test_what_is_wrong_is_said(formula):
    rows = ROWS.assign(one="a", Intercept=ROWS["x"], intercept=ROWS["x"])
    with pytest.raises(ValueError, match=re.escape(BAD[formula])):
        eb.from_formula(formula, rows)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"REML": False}, "method='ml' or 'reml'"),
        ({"weights": "w"}, "weights 'w' is not a column of data"),
        ({"nonsense": 1}, "has no argument 'nonsense'"),
        ({"trials": "n", "family": "binomial"}, r"of the response, cbind\(won, trials=n\)"),
        ({"fractions": True}, "has no argument 'fractions'"),
        ({"varying": ["x"]}, "those of the formula"),
        ({"exposure": "x", "family": "poisson"}, r"offset\(log\(exposure\)\)"),
        ({"groups": "g"}, r"\(1 \| group\)"),
        ({"sample_weight": "x"}, "weights= has"),
    ],
)
def test_settings_of_others(option, message):
    with pytest.raises(ValueError, match=message):
        eb.from_formula("y ~ x + (1 | g)", ROWS, **option)


def test_columns_twice():
    rows = ROWS.set_axis(["g", "x", "y", "x", "won"], axis="columns")
    with pytest.raises(ValueError, match="more than one column 'x'"):
        eb.from_formula("y ~ x + (1 | g)", rows)


def test_labels_of_another_kind_are_refused():
    fit = eb.from_formula("y ~ x + (1 | g)", ROWS.astype({"g": str}))
    means = eb.from_formula("y | g", ROWS)
    for each, rows in ((fit, ROWS), (means, ROWS.astype({"g": str}))):
        with pytest.raises(ValueError, match="convert them"):
            each.predict(rows)


def test_intervals_of_rows_where_there_are_none():
    with pytest.raises(ValueError, match=r"GaussianEB has no intervals for rows.*posterior"):
        eb.from_formula("y | g", ROWS, prior="npmle").predict_interval(ROWS)
