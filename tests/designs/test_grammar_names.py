"""Names of columns that formulas could read as something else."""

import numpy as np
import pandas as pd
import pytest

import ebfed as eb
from ebfed.designs.grammar import marked, plain_name

RNG = np.random.default_rng(3)
G = np.repeat(np.arange(20), 6)
X, Z = RNG.normal(size=(2, 120))
Y = RNG.normal(size=20)[G] + X + 0.5 * Z + RNG.normal(size=120)
ROWS = pd.DataFrame({"y": Y, "x": X, "z": Z, "g": G})
ODD = {
    "1": "`1`",
    "0.5": "`0.5`",
    "1B dose": "Q('1B dose')",
    "two words": "`two words`",
    "tick`s": 'Q("tick`s")',
    "it's": "`it's`",
    "a:b": "`a:b`",
    "na.me": "na.me",
    "größe": "größe",
    "class": "class",
    "None": "`None`",
    "exp": "exp",
    "np": "np",
    "C": "C",
    "Q": "Q",
    "log": "`log`",
}


@pytest.fixture(scope="module")
def plain():
    """Return the fit whose columns have plain names."""
    return eb.from_formula("y ~ x + np.exp(z) + (1 + x | g)", ROWS)


@pytest.mark.parametrize("name", ODD)
def test_odd_names_are_columns(name, plain):
    data = pd.DataFrame({"y": Y, name: X, "z": Z, "g": G})
    text = f"y ~ {ODD[name]} + np.exp(z) + (1 + {ODD[name]} | g)"
    fit = eb.from_formula(text, data)
    assert fit.fixef()["term"].tolist() == ["intercept", name, "np.exp(z)"]
    np.testing.assert_allclose(fit.fixef()["estimate"], plain.fixef()["estimate"], rtol=1e-7)
    np.testing.assert_allclose(fit.predict(data.tail(3)), plain.predict()[-3:], rtol=1e-6)
    table = fit.tests(type="III")
    assert table["term"].tolist() == [name, "np.exp(z)"]
    assert fit.margins(slope=name).frame()["estimate"].item() == pytest.approx(
        fit.fixef()["estimate"][1]
    )
    assert plain_name(fit.formula) == fit.formula


def test_functions_beside_columns_of_their_names():
    data = pd.DataFrame({"y": Y, "center": X, "z": Z, "g": G, "C": G % 2, "log": 1.0, "np": Z})
    fit = eb.from_formula("y ~ center(center) + C(C) + np.exp(z) + np + (1 | g)", data)
    assert fit.design_.names == ["center(`center`)", "C(`C`)[T.1]", "np.exp(z)", "np"]
    twin = data.rename(columns={"center": "x", "C": "kind", "np": "w"})
    other = eb.from_formula("y ~ center(x) + C(kind) + np.exp(z) + w + (1 | g)", twin)
    np.testing.assert_allclose(fit.predict(data), other.predict(twin), rtol=1e-8)


@pytest.mark.parametrize(
    "formula",
    [
        "Q('the y') ~ x + (1 | Q('the g'))",
        "`the y` ~ x + (1 | `the g`)",
        "`the\ny`\n ~ x + (1 |\t`the g`)",
    ],
)
def test_responses_and_groups(formula):
    data = pd.DataFrame({"the y": Y, "x": X, "the g": G, "h": np.arange(120) % 5})
    fit = eb.from_formula(formula, data)
    assert fit.ranef().columns[0] == "the g"
    expected = eb.from_formula("y ~ x + (1 | g)", ROWS)
    np.testing.assert_array_equal(fit.predict(), expected.predict())
    np.testing.assert_array_equal(fit.augment()[".resid"], Y - fit.predict())
    crossed = eb.from_formula("`the y` ~ x + (1 | `the g`) + (1 | h)", data)
    assert crossed.predict(data).shape == (120,)


def test_numbers_as_names_of_columns():
    """A frame made of an array has the names 0, 1, 2."""
    fit = eb.from_formula("`0` ~ `1` + (1 | `2`)", pd.DataFrame(np.column_stack([Y, X, G])))
    expected = eb.from_formula("y ~ x + (1 | g)", ROWS)
    np.testing.assert_allclose(fit.predict(), expected.predict(), rtol=1e-12)


def test_interactions_of_a_column_that_is_called_one():
    data = pd.DataFrame({"y": Y, "1": X, "z": Z, "g": G})
    fit = eb.from_formula("y ~ `1` * z + (1 | g)", data)
    assert fit.design_.names == ["1", "z", "1:z"]


def test_marks_leave_other_formulas_alone():
    for text in (
        "y ~ x + (1 + x | county)",
        "y ~ C(kind, levels=['a', 'b c']) + (1 | `the county`)",
        "cbind(won, trials=games) ~ np.log(x) + (1 | g)",
    ):
        assert marked(text) == text
    assert plain_name(marked("y ~ log(log) + `1`")) == "y ~ log(`log`) + `1`"
