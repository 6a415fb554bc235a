"""Columns of terms are what they are by hand, and stay so for rows that come later."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from ebfed.designs.design import Context, Design, _table, values_of
from ebfed.designs.grammar import plain_name
from ebfed.designs.terms import Terms, evaluated, required
from ebfed.tables.columns import Columns

RNG = np.random.default_rng(0)
COLUMNS = {
    "x": RNG.normal(size=12),
    "z": RNG.uniform(1, 2, size=12),
    "kind": list("abcabcabcabc"),
    "my col": RNG.normal(size=12),
}
FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}
X, Z, OTHER = COLUMNS["x"], COLUMNS["z"], COLUMNS["my col"]
KIND = np.array(COLUMNS["kind"])


def double(values):
    return 2 * values


@pytest.fixture(params=FRAMES)
def data(request):
    return FRAMES[request.param](COLUMNS)


def is_kind(*names):
    return [1.0 * (name == KIND) for name in names]


@pytest.mark.parametrize(
    ("text", "constant", "expected"),
    [
        ("1", True, {}),
        ("0 + x", False, {"x": X}),
        ("x - 1", False, {"x": X}),
        ("x + z", True, {"x": X, "z": Z}),
        ("x:z", True, {"x:z": X * Z}),
        ("x * z", True, {"x": X, "z": Z, "x:z": X * Z}),
        ("(x + z)**2", True, {"x": X, "z": Z, "x:z": X * Z}),
        ("I(x + 1)", True, {"I(x + 1)": X + 1}),
        ("np.log(z)", True, {"np.log(z)": np.log(Z)}),
        ("double(x)", True, {"double(x)": 2 * X}),
        ("`my col`", True, {"my col": OTHER}),
        ("double(`my col`)", True, {"double(`my col`)": 2 * OTHER}),
        ("center(x)", True, {"center(x)": X - X.mean()}),
        (
            "C(kind)",
            True,
            dict(zip(["C(kind)[T.b]", "C(kind)[T.c]"], is_kind("b", "c"), strict=True)),
        ),
        ("kind", True, dict(zip(["kind[T.b]", "kind[T.c]"], is_kind("b", "c"), strict=True))),
        (
            "0 + kind",
            False,
            dict(zip(["kind[a]", "kind[b]", "kind[c]"], is_kind("a", "b", "c"), strict=True)),
        ),
        (
            "C(kind, contr.sum)",
            True,
            {
                "C(kind, contr.sum)[S.a]": is_kind("a")[0] - is_kind("c")[0],
                "C(kind, contr.sum)[S.b]": is_kind("b")[0] - is_kind("c")[0],
            },
        ),
    ],
)
def test_columns_by_hand(data, text, constant, expected):
    design, values = Design.learn(text, data, {"np": np, "double": double})
    assert design.constant is constant
    assert design.names == [*expected]
    by_hand = np.column_stack([*expected.values()]) if expected else np.zeros((12, 0))
    np.testing.assert_allclose(values, by_hand, rtol=1e-14, atol=1e-15)
    np.testing.assert_array_equal(design.of(data), values)


@pytest.mark.parametrize("text", ["center(x)", "scale(x)", "poly(x, 2)", "bs(x, df=4)"])
def test_later_rows_are_read_as_the_first_were(data, text):
    design, values = Design.learn(text, data, None)
    some = FRAMES[type(data).__module__.split(".")[0]](
        {name: list(x)[3:6] for name, x in COLUMNS.items()}
    )
    np.testing.assert_allclose(design.of(some), values[3:6], rtol=1e-12, atol=1e-14)


def test_poly_is_orthonormal(data):
    _, values = Design.learn("poly(x, 3)", data, None)
    np.testing.assert_allclose(values.T @ values, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(values.sum(axis=0), 0, atol=1e-12)


def test_later_rows_with_few_categories(data):
    design, values = Design.learn("C(kind) + C(kind, contr.sum):x", data, None)
    some = pd.DataFrame(COLUMNS).query("kind == 'b'")
    assert (design.of(some) == values[KIND == "b"]).all()


@pytest.mark.parametrize(
    ("text", "new", "message"),
    [
        ("C(kind)", {"kind": ["q"]}, r"term 'C\(kind\)': the rows of the fit had no 'q'"),
        ("x + z", {"x": [1.0]}, "term 'z'"),
        ("x", {"x": [np.nan]}, "term 'x'"),
        ("x", {"x": [np.inf]}, "term 'x' is not finite in 1 rows, the first 0"),
        ("x + np.log(z)", {"x": [1.0], "z": [-1.0]}, r"term 'np.log\(z\)'"),
        ("x + np.log(z)", {"x": [1.0], "z": [0.0]}, r"term 'np.log\(z\)' is not finite"),
    ],
)
def test_rows_that_cannot_be_read(data, text, new, message):
    design, _ = Design.learn(text, data, {"np": np})
    with pytest.raises(ValueError, match=message):
        design.of(pd.DataFrame(new))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x * * z", r"'x \* \* z' cannot be read"),
        ("absent", "term 'absent'"),
        ("x + absent(z)", r"term 'absent\(z\)'"),
        ("np.log(x)", r"term 'np.log\(x\)'"),
    ],
)
def test_terms_that_cannot_be_read(data, text, message):
    with pytest.raises(ValueError, match=message):
        Design.learn(text, data, {"np": np})


def test_terms_that_differ_are_columns_too(data):
    design, columns = Design.learn("x + C(kind)", data, None)
    assert design.names_in("1 + x", data, {}) == ["Intercept", "x"]
    assert design.names_in("0 + x", data, {}) == ["x"]
    assert design.names_in("C(kind)", data, {}) == ["Intercept", "C(kind)[T.b]", "C(kind)[T.c]"]
    assert design.without_mean == []
    assert design.names_in("z + double(x)", data, {"double": double})[1:] == ["z", "double(x)"]
    assert design.names_in("0 + z", data, {}) == ["z"]
    assert design.without_mean == ["z", "double(x)"]
    assert design.names_with_mean == design.names[:3]
    whole = np.column_stack([columns, Z, 2 * X])
    twin = Design.of_data(design.text, design.context, design.as_data())
    for each in (design, pickle.loads(pickle.dumps(design)), twin):
        np.testing.assert_array_equal(each.of(data), whole)
    without, _ = Design.learn("0 + x", data, None)
    assert without.names_in("x", data, {}) == ["Intercept", "x"]
    assert (without.constant, without.constant_with_mean) == (True, False)
    assert without.without_mean == ["Intercept"]


# --- responses -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x", X),
        ("`my col`", OTHER),
        ("x - 3", X - 3),
        ("x / 2", X / 2),
        ("-x", -X),
        ("x + z", X + Z),
        ("x * z", X * Z),
        ("np.log(z)", np.log(Z)),
        ("double(`my col`) + 1", 2 * OTHER + 1),
        ("x > 0", 1.0 * (X > 0)),
        ("kind == 'a'", 1.0 * (KIND == "a")),
    ],
)
def test_responses_are_expressions(data, text, expected):
    """Their signs are those of arithmetic, not of terms."""
    found, _ = values_of(text, data, {"np": np, "double": double})
    np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_a_response_of_several_columns(data):
    with pytest.raises(ValueError, match="response 'poly\\(x, 2\\)' must be one column; it comes"):
        values_of("poly(x, 2)", data, None)


def test_columns_that_terms_need():
    there = ["x", "z", "my col", "kind"]
    assert required(["z:x + double(`my col`)"], there) == ["x", "z", "my col"]
    assert required(["poly(x, 2)", "C(kind, contr.sum)"], there) == ["x", "kind"]
    assert required([evaluated("x > z")], there) == ["x", "z"]
    assert required(["1"], there) == []


# --- what surrounds a formula --------------------------------------------------------------------


def test_of_the_context_only_what_is_used_is_kept(data):
    around = {"np": np, "double": double, "x": "hidden by the column", "other": object()}
    kept = Context.of(["np.log(z) + double(x)", evaluated("other_(x)")], data, around)
    assert kept == {"np": np, "double": double}
    again = pickle.loads(pickle.dumps(kept))
    assert type(again) is Context
    assert again == kept


def test_a_design_survives_pickling(data):
    design, values = Design.learn("np.log(z) + double(x) + poly(x, 2) + kind", data, globals())
    again = pickle.loads(pickle.dumps(design))
    np.testing.assert_array_equal(again.of(data), values)
    assert again.names == design.names


@pytest.mark.parametrize("text", ["x:z", "z:x", "1 + x + z:x"])
def test_terms_that_differ_are_found_in_whatever_order(data, text):
    design, _ = Design.learn("x * z + kind", data, None)
    names = design.names_in(text, data, {})
    assert names[-1] == "x:z"
    coded, _ = Design.learn("x * kind", data, None)
    found = coded.names_in("1 + x + kind + kind:x", data, {})
    assert found == ["Intercept", *coded.names]
    assert coded.without_mean == []


OF_FACTORS = "x", "a", "0 + a", "a + b", "a * b", "a:b", "0 + a:b", "a * x", "a:x", "a:b + b:c"


@pytest.mark.parametrize("differing", OF_FACTORS)
@pytest.mark.parametrize("text", OF_FACTORS)
def test_factors_that_differ_have_the_columns_that_they_have_alone(text, differing):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({name: rng.choice(list("uvw"), 60) for name in "abc"})
    table["x"] = rng.normal(size=60)
    design, _ = Design.learn(text, table, {})
    names = design.names_in(differing, table, {})
    alone, expected = Design.learn(differing, table, {})
    whole = {"Intercept": np.ones(60)} | dict(zip(design.names, design.of(table).T, strict=True))
    found = np.column_stack([whole[name] for name in names])
    np.testing.assert_array_equal(found[:, alone.constant :], expected)
    assert names[0] == "Intercept" or not alone.constant


def test_columns_of_later_rows_that_are_text_or_missing():
    table = pd.DataFrame({"x": [1.0, 2.0, 4.0], "kind": ["a", "b", "b"]})
    design, _ = Design.learn("x + kind", table, {})
    with pytest.raises(ValueError, match="column 'x' is text, and was a number in the fit"):
        design.of(table.assign(x="1"))
    with pytest.raises(ValueError, match="column 'kind' has 1 missing values, the first in row 1"):
        design.of(table.assign(kind=["a", None, "b"]))
    for text in ("np.log(x) + kind", "poly(x, 2)", "bs(x, df=4)"):
        design, _ = Design.learn(text, pd.concat([table] * 4, ignore_index=True), {"np": np})
        with pytest.raises(ValueError, match="column 'x' has 1 missing values, the first in row 2"):
            design.of(table.assign(x=[1.0, 2.0, np.nan]))


BANDS = pd.cut(np.arange(6.0), [-1, 1, 3, 6])
LEVELS = {
    "bands": BANDS,
    "days": pd.Categorical(pd.date_range("2024-01-01", periods=3).repeat(2)),
    "numbers": pd.Categorical([3, 3, 1, 1, 2, 2]),
    "truth": pd.Categorical([True, False] * 3),
}


@pytest.mark.parametrize("kind", LEVELS)
@pytest.mark.parametrize("text", ["kind", "x * kind", "C(kind)"])
def test_categories_of_any_kind_are_read_again_in_later_rows(kind, text):
    table = pd.DataFrame({"x": np.arange(6.0) ** 2, "kind": LEVELS[kind]})
    design, columns = Design.learn(text, table, {})
    assert np.linalg.matrix_rank(columns) == columns.shape[1] > 0
    np.testing.assert_array_equal(design.of(table), columns)
    np.testing.assert_array_equal(design.of(table[::-1]), columns[::-1])
    np.testing.assert_array_equal(design.of(table[4:]), columns[4:])
    plain = table["kind"].astype(table["kind"].cat.categories.dtype)  # as of a file
    np.testing.assert_array_equal(design.of(table.assign(kind=plain)), columns)


@pytest.mark.parametrize(
    ("kind", "other", "message"),
    [
        (["a", "b"] * 3, [1, 2] * 3, "'kind' is a number, and was text in the fit"),
        ([1, 2] * 3, pd.Categorical([1, 2] * 3), "'kind' is categories, and was a number"),
        ([1, 2] * 3, ["a", "b"] * 3, "'kind' is text, and was a number"),
        (pd.Categorical([1, 2] * 3), [1, 3] * 3, "the rows of the fit had no .*3"),
        (pd.Categorical([1, 2] * 3), ["1", "2"] * 3, "the rows of the fit had no '"),
    ],
)
def test_rows_of_another_kind_are_refused_and_leave_the_design_as_it_was(kind, other, message):
    table = pd.DataFrame({"x": np.arange(6.0) ** 2, "kind": kind})
    design, columns = Design.learn("x + kind", table, {})
    before = str(design.as_data())
    with pytest.raises(ValueError, match=message):
        design.of(table.assign(kind=other))
    assert str(design.as_data()) == before
    np.testing.assert_array_equal(design.of(table), columns)


@pytest.mark.parametrize("text", ["x", "1", "x * z + `my col`", "0 + z:x", "n + x:n", "on"])
def test_products_of_columns_need_no_model_matrix(text, monkeypatch):
    extra = {"n": np.arange(12, dtype=np.int16), "on": np.arange(12) % 3 == 0}
    data = pd.DataFrame(COLUMNS | extra)
    context = Context.of([text], data, {})
    slow = Design(text, context=context)
    matrix = slow._build(Terms.of(text).formula, _table(Columns.of(data), text), [])
    monkeypatch.setattr(Design, "_build", None)  # formulaic's
    design, columns = Design.learn(text, data, {})
    kept = [j for j, name in enumerate(matrix.model_spec.column_names) if name != "Intercept"]
    np.testing.assert_array_equal(columns, np.asarray(matrix)[:, kept])
    assert design.names == [plain_name(matrix.model_spec.column_names[j]) for j in kept]
    assert design.constant == ("Intercept" in matrix.model_spec.column_names)
    np.testing.assert_array_equal(design.of(data[::-1]), columns[::-1])
    twin = Design.of_data(text, context, design.as_data())
    np.testing.assert_array_equal(twin.of(data), columns)


def test_a_category_of_numbers_is_no_product():
    data = pd.DataFrame({"x": pd.Categorical([1, 2, 4]), "y": [1.0, 2.0, 3.0]})
    assert Design.learn("x:y", data, {})[0].names == ["x[1]:y", "x[2]:y", "x[4]:y"]


@pytest.mark.parametrize(
    "text", ["poly(t, degree=2)", "bs(t, df=4)", "ns(t, df=3)", "cr(t, df=4)", "scale(t, ddof=0)"]
)
def test_dates_are_days_in_calls_that_name_an_argument(text):
    days = np.array([3.0, 250, 40, 7, 120, 90, 300, 11, 64, 199])
    table = pd.DataFrame({"t": days}), pd.DataFrame({"t": days.astype("M8[D]").astype("M8[ns]")})
    (of_days, expected), (design, columns) = (Design.learn(text, each, {}) for each in table)
    np.testing.assert_array_equal(columns, expected)
    later = table[1][2:5].astype("M8[s]")  # whatever their unit
    np.testing.assert_array_equal(design.of(later), of_days.of(table[0][2:5]))


def test_what_is_no_function_does_not_stand_for_one():
    data, context = pd.DataFrame(COLUMNS), {"C": np.eye(2), "scale": 2.0}
    design, columns = Design.learn("C(kind) + I(x * scale)", data, context)
    assert design.names == ["C(kind)[T.b]", "C(kind)[T.c]", "I(x * scale)"]
    np.testing.assert_array_equal(columns[:, 2], 2 * X)
    assert Design.learn("scale(x)", data, context)[1].std() == pytest.approx(np.sqrt(11 / 12))
    np.testing.assert_array_equal(Design.learn("scale(x)", data, {"scale": double})[1][:, 0], 2 * X)
