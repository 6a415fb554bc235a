"""Formulas that ask for more than a machine has are refused before anything is computed."""

import inspect

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ebfed as eb
from ebfed.designs import limits
from ebfed.designs.design import Design
from ebfed.designs.expressions import multiplied, names_of
from ebfed.designs.grammar import parse
from ebfed.designs.terms import Terms

RNG = np.random.default_rng(5)
ROWS = pd.DataFrame(RNG.normal(size=(60, 40)), columns=[f"x{i}" for i in range(40)])
ROWS = ROWS.assign(
    v=RNG.normal(size=60),
    g=np.arange(60) % 6,
    k=list("abcdef" * 10),
    **{f"f{i}": RNG.integers(0, 2, 60).astype(str) for i in range(14)},
    **{f"w{i}": RNG.integers(0, 40, 60).astype(str) for i in range(3)},
)
SUM = " + ".join(f"x{i}" for i in range(39))

TOO_MUCH = {
    "powers of sums": (f"({SUM})**3", "at most 2,000 terms; .* has 9,920"),
    "powers that never end": ("(x0 + x1)**99999999", "at most 200,000 products"),
    "powers of one column": ("x0**99999999", "at most 200,000 products"),
    "powers of numbers": ("I(I(9)**I(9)**I(9) * x0)", "a power must be of a column"),
    "powers of abs": ("I(abs(9)**abs(9)**abs(9) * x0)", "a power must be of a column"),
    "products": ("*".join(f"f{i}" for i in range(14)), "at most 2,000 terms; .* has 16,384"),
    "long terms": (":".join(f"f{i}" for i in range(14)), "at most 7 factors; .* has 14"),
    "sums": (" + ".join(f"z{i}" for i in range(2500)), "at most 2,000 terms; .* has 2,501"),
    "splines": ("bs(x0, df=5e7)", "at most 1,000 columns; .* has 50,000,000"),
    "degrees": ("bs(x0, degree=1000000000)", "at most 1,000 columns"),
    "cubic splines": ("cr(x0, df=100000000)", "at most 1,000 columns"),
    "cyclic splines": ("cc(x0, 100000000)", "at most 1,000 columns"),
    "polynomials": ("poly(x0, 1e6)", "at most 1,000 columns; .* has 1,000,000"),
    "products as arguments": ("poly(x0, 1000 * 1000)", "at most 1,000 columns"),
    "hashes": ("hashed(k, levels=1000000000)", "at most 10,000 columns"),
    "products of hashes": ("hashed(k, 9000):hashed(f0, 9000)", "has 81,000,000"),
    "products of levels": ("w0:w1:w2", "at most 10,000 columns"),
    "many polynomials": (
        " + ".join(f"poly(x{i}, 500, raw=True)" for i in range(22)),
        "at most 10,000",
    ),
    "repeated text": ("I(k * 1000000000)", "'k' is text"),
    "filled text": ("I(k % 3)", "'k' is text"),
    "brackets": ("(" * 5000 + "x0" + ")" * 5000, "brackets in 100 brackets"),
    "calls": ("I(" * 5000 + "x0" + ")" * 5000, "brackets in 100 brackets"),
    "signs": ("I(" + "-" * 5000 + "x0)", "cannot be read"),
    "sums within": ("I(" + "+".join(["x0"] * 9000) + ")", "cannot be read"),
    "digits": (f"I(x0 * {'9' * 4000})", "term"),
    "more digits": (f"I(x0 * {'9' * 6000})", "cannot be read"),
    "large numbers": ("I(x0 * 1e400)", "not finite"),
    "characters": ("x0" + " + x1" * 20000, "at most 50,000 characters; got 100,"),
    "levels": (
        "x0 + (1 | " + "/".join(f"g{i}" for i in range(3000)) + ")",
        "100 columns of labels",
    ),
    "factors": (" + ".join(f"(1 | g{i})" for i in range(3000)), "100 columns of labels"),
}


@pytest.mark.parametrize("case", TOO_MUCH)
def test_too_much_is_refused(case):
    text, message = TOO_MUCH[case]
    with pytest.raises(ValueError, match=message):
        eb.from_formula(f"v ~ {text} + (1 | g)", ROWS, context={})


@pytest.mark.parametrize("case", ["splines", "powers of abs", "repeated text", "signs"])
@pytest.mark.parametrize("place", ["{} ~ x1 + (1 | g)", "v ~ x1 + (1 + {} | g)"])
def test_too_much_is_refused_everywhere(case, place):
    text, _ = TOO_MUCH[case]
    with pytest.raises(ValueError):
        eb.from_formula(place.format(text), ROWS, context={})


@pytest.mark.parametrize(
    "subset",
    ["x0 > abs(9)**abs(9)**abs(9)", "not " * 4000 + "x0 > 1", "(" * 300 + "x0 > 1" + ")" * 300],
)
def test_subsets_have_the_same_limits(subset):
    with pytest.raises(ValueError):
        eb.from_formula("v ~ x1 + (1 | g)", ROWS, subset=subset, context={})


@pytest.mark.parametrize("text", ["v ~ `` + (1 | g)", "v ~ x0 + (1 | ``g``)", "`` ~ x0 + (1 | g)"])
def test_empty_names_are_refused(text):
    """Formulaic leaves such a term out."""
    rows = ROWS.rename(columns={"x1": "", "x2": "`g`"})
    with pytest.raises(ValueError, match="a formula has an empty name"):
        eb.from_formula(text, rows)


numbers = st.sampled_from(["2", "9", "99", "1e3", "5e7", "10**9", "999999999", "abs(9)", "9**9"])
columns = st.sampled_from(["x0", "x1", "k", "f0", "w0", "`x2`"])


def deeper(part):
    return st.one_of(
        st.builds("({} + {})".format, part, part),
        st.builds("{}:{}".format, part, part),
        st.builds("({} * {})".format, part, part),
        st.builds("({})**{}".format, part, numbers),
        st.builds("I({} * {})".format, columns, numbers),
        st.builds("I({}**{})".format, columns, numbers),
        st.builds(
            "{}({}, {})".format,
            st.sampled_from(["bs", "cr", "poly", "hashed", "lag", "C"]),
            columns,
            numbers,
        ),
    )


@settings(max_examples=60, derandomize=True, deadline=None, database=None)
@given(st.recursive(columns, deeper, max_leaves=12))
def test_random_formulas_end(text):
    """Each is read, or refused with a message: none asks for more than the limits."""
    try:
        design, matrix = Design.learn(text, ROWS.iloc[:12], {})
    except ValueError:
        return
    assert matrix.shape[1] == len(design.names) <= limits.COLUMNS


def test_honest_formulas_are_read():
    assert len(Terms.of(f"({SUM})**2")) == 1 + 39 + 39 * 38 // 2
    assert len(Terms.of("*".join(f"f{i}" for i in range(10)))) == 2**10
    assert len(Terms.of(" + ".join(f"z{i}" for i in range(1900)))) == 1901
    assert len(Terms.of("(x0 + x1)**10 - x0")) == 3
    wide = Design.learn("bs(x0, df=20) + poly(x1, 9) + C(w0):C(f0) + hashed(k, 50)", ROWS, {})
    assert wide[1].shape[1] > 80
    assert parse("v ~ x0 + (1 + x0 | a/b/c/d)").levels == list("abcd")
    assert names_of("x**2 + abs(x)**3") == {"x", "abs"}
    assert Design.learn("I((k == 'a') * x0)", ROWS, {})[1].shape == (60, 1)


def test_counts_are_those_of_formulaic():
    """At least as many as formulaic lists; terms that are taken out again are counted."""
    for text in ["x0*x1*x2", "(x0+x1+x2+x3)**3", "x0/x1 + x2", "x0:x1 + x2 - x2", "x1 %in% x2"]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(limits, "TERMS", 0)
            with pytest.raises(ValueError, match="has ") as caught:
                limits.check_terms(text)
        counted = int(str(caught.value).rpartition(" has ")[2].strip("."))
        assert len(Terms.of(text)) <= counted <= len(Terms.of(text)) + 2


def test_each_function_with_a_size_has_a_limit():
    """Of a newer formulaic too: a size has one of the names that are checked."""
    from formulaic.transforms import TRANSFORMS

    known = {"x", "data", "k", "offset", "raw", "knots", "include_intercept", "lower_bound"}
    known |= {"upper_bound", "extrapolation", "contrasts", "hash_func", "spans_intercept"}
    known |= {
        "constraints",
        "cyclic",
        "center",
        "scale",
        "ddof",
        "variable",
        "reference",
        "rescale",
    }
    for name, function in TRANSFORMS.items():
        if not inspect.isfunction(function) or name.startswith("exp"):
            continue
        own = {x for x in inspect.signature(function).parameters if x[0] != "_"}
        assert own <= known | limits.SIZES.keys() | {"args", "kwargs"}, (name, own)


def test_memory_of_the_machine(monkeypatch):
    monkeypatch.setattr(limits, "memory", lambda: 2**30)
    limits.check_cells(10**5, 1000, "x")
    with pytest.raises(ValueError, match=r"x needs 7 GiB; this machine has 1 GiB\."):
        limits.check_cells(10**6, 1000, "x")


def test_what_is_multiplied():
    assert multiplied("`a b` * 3 + (k == 'a') * x") == {"a b", "x"}
