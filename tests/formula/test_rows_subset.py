"""Rows that are chosen by an expression of columns, as R and pandas choose them."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import ebfed as eb
from ebfed.formula.rows import chosen_rows

rng = np.random.default_rng(0)
N = 120
ROWS = pd.DataFrame(
    {
        "y": rng.normal(size=N),
        "x": rng.normal(size=N),
        "kind": rng.choice(list("abc"), N),
        "g": np.repeat(np.arange(12), 10),
        "a column": rng.integers(0, 5, N),
        "yes": rng.random(N) < 0.7,
    }
)

# An expression, and the same for `query` of pandas.
SAME = [
    "x > 0",
    "x > 0 & kind == 'a'",
    "x > 0 and not kind == 'a'",
    "(x > 0 | g >= 5) & kind != 'b'",
    "kind in ['a', 'c'] | x < -1",
    "kind not in ['a', 'c']",
    "0 < x < 1",
    "`a column` > 2 & yes",
    "~(x > 0)",
    "x + y > 1",
    "x**2 < 1 & y * 2 >= -1",
    "kind == 'a & b' | kind == 'a'",
    "yes",
    "g == -3 | g == 4",
]


@pytest.mark.parametrize("text", SAME)
def test_rows_are_those_of_pandas(text):
    expected = np.isin(ROWS.index, ROWS.query(text).index)
    np.testing.assert_array_equal(chosen_rows(ROWS, text), expected)
    np.testing.assert_array_equal(chosen_rows(pl.from_pandas(ROWS), text), expected)


def test_signs_of_r():
    """`!` is of the comparison behind it, and functions of single numbers are those of formulas."""
    np.testing.assert_array_equal(chosen_rows(ROWS, "!(x > 0)"), ROWS["x"] <= 0)
    np.testing.assert_array_equal(chosen_rows(ROWS, "!yes & x != 0"), ~ROWS["yes"])
    np.testing.assert_array_equal(
        chosen_rows(ROWS, "np.exp(x) > cut", {"np": np, "cut": 1.5}), np.exp(ROWS["x"]) > 1.5
    )


def test_what_lacks_a_value_is_not_chosen():
    """As in R: NA | TRUE is true, NA & FALSE false, and !NA is NA."""
    rows = pd.DataFrame({"x": [1.0, np.nan, np.nan], "z": [0.0, 1.0, 0.0], "k": ["a", None, "b"]})
    assert chosen_rows(rows, "x > 0 | z > 0").tolist() == [True, True, False]
    assert chosen_rows(rows, "!(x > 0 & z > 0)").tolist() == [True, False, True]
    assert chosen_rows(rows, "!(x > 5)").tolist() == [True, False, False]
    assert chosen_rows(rows, "k != 'a'").tolist() == [False, False, True]
    assert chosen_rows(rows, "x != 3 | k == 'b'").tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x >", "cannot be read"),
        ("x", "must be true or false of each row"),
        ("w > 1", "'w' is not a column of data"),
        ("x > 100", "chooses no row"),
        ("x.max() > 1", "attributes cannot be used"),
        ("__import__('os').system('ls') == 0", "attributes cannot be used|cannot be used"),
        ("open('f') == 0", "not a column of data"),
        ("kind > 3", "not supported"),
        ("x is y", "compare by"),
        ("[x for x in y]", "cannot be used"),
    ],
)
def test_wrong_expressions_are_refused(text, says):
    with pytest.raises(ValueError, match=says):
        chosen_rows(ROWS, text)


def test_arrays():
    mask = (ROWS["x"] > 0).to_numpy()
    np.testing.assert_array_equal(chosen_rows(ROWS, mask), mask)
    turned = pd.Series(mask, ROWS.index)[::-1]
    labelled = ROWS.set_axis([f"r{j}" for j in range(N)])
    turned.index = labelled.index[::-1]
    np.testing.assert_array_equal(chosen_rows(labelled, turned), mask)
    with pytest.raises(ValueError, match="true or false for each of 120 rows; got int64"):
        chosen_rows(ROWS, mask.astype(np.int64))
    with pytest.raises(ValueError, match="of shape \\(3,\\)"):
        chosen_rows(ROWS, mask[:3])
    with pytest.raises(ValueError, match="subset chooses no row"):
        chosen_rows(ROWS, np.zeros(N, bool))


def test_a_missing_truth_value_is_not_true():
    mask = np.array([True, False, None] * 40, object)
    given = [
        mask,
        mask.tolist(),
        pd.array(mask, "boolean"),
        pl.Series(mask.tolist()),
        mask[:, None],
    ]
    for values in [*given, pd.Series(mask), pd.DataFrame({"m": mask})]:
        np.testing.assert_array_equal(chosen_rows(ROWS, values), [True, False, False] * 40)


DAYS = pd.Series(pd.date_range("2024-01-01", periods=N, freq="D"))
CALENDARS = {
    "pandas": DAYS,
    "dates": DAYS.dt.date,
    "with a zone": DAYS.dt.tz_localize("UTC"),
    "missing": DAYS.where(DAYS.index != 50),
    "polars": pl.Series(DAYS).cast(pl.Date),
}


@pytest.mark.parametrize("kind", CALENDARS)
def test_dates_are_compared_with_text(kind):
    backend = pl.DataFrame if kind == "polars" else pd.DataFrame
    rows = backend({"day": CALENDARS[kind]})
    known = np.arange(N) != (50 if kind == "missing" else N)
    for text, expected in {
        "day > '2024-02-10'": np.arange(N) > 40,
        "'2024-02-10' >= day": np.arange(N) <= 40,
        "day == '2024-02-10' | day == '2024-02-12'": np.isin(np.arange(N), [40, 42]),
        "day in ['2024-02-10', '2024-02-12']": np.isin(np.arange(N), [40, 42]),
        "'2024-01-31' < day <= '2024-02-29T00:00'": np.isin(np.arange(N), np.arange(31, 60)),
    }.items():
        np.testing.assert_array_equal(chosen_rows(rows, text), expected & known)
    with pytest.raises(ValueError, match="dates are compared with '2024-01-31'"):
        chosen_rows(rows, "day > '10 Feb'")
    with pytest.raises(ValueError, match=r"compares unlike values: these are datetime64.* and int"):
        chosen_rows(rows, "day > 5")


def test_fits_are_those_of_the_rows():
    text, weights = "x > -1 & kind != 'c'", rng.uniform(1, 2, N)
    chosen = chosen_rows(ROWS, text)
    fit = eb.from_formula("y ~ x + (1 | g)", ROWS, subset=text, weights=weights)
    alone = eb.from_formula("y ~ x + (1 | g)", ROWS[chosen], weights=weights[chosen])
    pd.testing.assert_frame_equal(fit.tidy(), alone.tidy())
    assert len(fit.predict()) == chosen.sum()
    by_array = eb.from_formula("y ~ x + (1 | g)", ROWS, subset=chosen, weights=weights)
    pd.testing.assert_frame_equal(fit.tidy(), by_array.tidy())


@pytest.mark.parametrize("library", [pd.DataFrame, pl.from_pandas])
def test_excluded_rows_have_missing_predictions(library):
    """As with R's na.exclude; rows outside of the subset are gone, as in R."""
    holes = ROWS.assign(x=ROWS["x"].where(ROWS.index % 7 != 3), y=ROWS["y"].where(ROWS.index != 8))
    lacks = holes[["x", "y"]].isna().any(axis=1).to_numpy()
    fit = eb.from_formula("y ~ x + (1 | g)", library(holes), na_action="exclude")
    drop = eb.from_formula("y ~ x + (1 | g)", library(holes), na_action="drop")
    predicted = fit.predict()
    assert np.isnan(predicted[lacks]).all()
    np.testing.assert_array_equal(predicted[~lacks], drop.predict())
    low, high = fit.predict_interval()
    assert np.isnan(low[lacks]).all()
    assert (low[~lacks] < high[~lacks]).all()
    found, kept = fit.augment(), drop.augment()
    assert len(found) == N
    for name in (".fitted", ".fixed", ".resid"):
        np.testing.assert_array_equal(found[name].to_numpy()[~lacks], kept[name].to_numpy())
        assert np.isnan(found[name].to_numpy()[lacks].astype(float)).all()
    some = eb.from_formula("y ~ x + (1 | g)", library(holes), subset="g > 2", na_action="exclude")
    assert len(some.predict()) == (ROWS["g"] > 2).sum()
    assert "left out" in str(fit.summary())
    assert len(fit.predict(library(ROWS))) == N


def test_excluded_rows_have_no_probability():
    rows = ROWS.assign(won=np.where(ROWS["y"] > 0, "won", "lost"), x=ROWS["x"].mask(ROWS["g"] == 3))
    fit = eb.from_formula("won ~ x + (1 | g)", rows, eb.LogisticEB(), na_action="exclude")
    found = fit.predict()
    assert np.isnan(found[rows["g"] == 3]).all()
    np.testing.assert_array_equal(found, fit.predict_proba()[:, 1])
    assert np.isnan(fit.predict_proba()[rows["g"] == 3]).all()


def test_wrong_action():
    with pytest.raises(ValueError, match="na_action must be 'raise', 'drop' or 'exclude'; got 'x'"):
        eb.from_formula("y ~ x + (1 | g)", ROWS, na_action="x")
