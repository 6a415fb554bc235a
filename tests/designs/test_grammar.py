"""Formulas are taken apart as written, or refused with the part that is wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebfed.designs.grammar import FormulaTerms, parse, spelled_out


def one(text, correlated=True):
    """A level with one term."""
    return (((text, correlated),),)


# --- forms ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("rate | county", {"response": "rate", "fixed": "1"}),
        ("y ~ x | county", {"response": "y", "fixed": "x"}),
        ("y ~ 1 | county", {"response": "y", "fixed": "1"}),
        ("y ~ x || county", {"response": "y", "fixed": "x", "correlated": False}),
        (
            "y ~ x * C(kind) + (1 + x | county)",
            {"response": "y", "fixed": "x * C(kind)", "varying": one("1 + x")},
        ),
        (
            "y ~ x + (1 + x || county)",
            {"response": "y", "fixed": "x", "varying": one("1 + x", False)},
        ),
        (
            "y ~ (1 | county)",
            {"response": "y", "fixed": "1", "varying": one("1")},
        ),
        (
            "y ~ (1 + x | county) + x + z",
            {"response": "y", "fixed": "x + z", "varying": one("1 + x")},
        ),
        (
            "y ~ x + (1 + x | state/county)",
            {"above": ("state",), "varying": 2 * one("1 + x"), "response": "y", "fixed": "x"},
        ),
        (
            "y ~ x + (1 | county:state) + (1 + x || state)",
            {"above": ("state",), "varying": one("1 + x", False) + one("1")}
            | {"response": "y", "fixed": "x"},
        ),
        (
            "y ~ x + (1 | county) + z",
            {"response": "y", "fixed": "x + z", "varying": one("1")},
        ),
        (
            "np.log(y + 1) ~ I(x | z) + poly(x, 2) + (0 + x | county)",
            {
                "response": "np.log(y + 1)",
                "fixed": "I(x | z) + poly(x, 2)",
                "varying": one("0 + x"),
            },
        ),
        ("`a ~ b` ~ `c | d` | county", {"response": "`a ~ b`", "fixed": "`c | d`"}),
        ("f('a|b(') ~ x | county", {"response": "f('a|b(')", "fixed": "x"}),
        ("y ~ x | `county`", {"response": "y", "fixed": "x"}),
        ("y ~ (x + z)**2 | county", {"response": "y", "fixed": "(x + z)**2"}),
    ],
)
def test_forms(text, parts):
    assert parse(text) == FormulaTerms(text=text, group="county", **parts)


@pytest.mark.parametrize(
    ("response", "parts"),
    [
        ("cbind(won, lost)", {"failures": "lost"}),
        ("cbind(won, trials=games)", {"trials": "games"}),
        ("cbind(won, trials = f(a, b) + 1)", {"trials": "f(a, b) + 1"}),
        ("cbind(won, f(a, b=1) + 1)", {"failures": "f(a, b=1) + 1"}),
        ("cbind(won, a == b)", {"failures": "a == b"}),
    ],
)
@pytest.mark.parametrize("rest", ["| team", "~ x + (1 | team)"])
def test_counts(response, parts, rest):
    model = parse(f"{response} {rest}")
    assert model.counts
    assert model.response == "won"
    assert {name: getattr(model, name) for name in parts} == parts
    assert model.observed == ["won", *parts.values()]
    assert not parse(f"y {rest}").counts
    assert parse(f"y {rest}").observed == ["y"]


def test_a_group_in_backticks():
    assert parse("y ~ x + (1 | `my county`)").group == "my county"


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "formula must be like"),
        ("y", "formula must be like"),
        ("y ~ x", "has no part that says who the groups are: 'y ~ x'"),
        ("y ~ x ~ z | g", "more than one '~'"),
        ("y | a | b", "formula must be like"),
        ("y ~ x + (1 | a) | b", "more than one part"),
        ("y ~ x | a | b", "more than one part"),
        ("y ~ x ||| g", "more than one part"),
        ("y ~ x + (1 | a | b)", r"\(1 \| a \| b\) must be like \(1 \+ x \| county\)"),
        ("y ~ x + (| g)", r"\(\| g\) must be like"),
        ("y ~ x + (1 |)", "'' must be one column of labels"),
        ("y ~ | g", "nothing stands between '~' and '|'"),
        ("~ x | g", "formula has no response: '~ x | g'"),
        ("| g", "formula has no response"),
        ("y ~ x |", "'' must be one column of labels"),
        ("y ~ x + (1 | a/a)", "'a' is twice among the levels 'a/a'"),
        ("y ~ x + (1 | a/)", "'' must be one column of labels, or columns of levels"),
        ("y ~ x | a + b", "must be one column"),
        ("y ~ x | f(a)", "must be one column"),
        ("y ~ x * (1 | g)", r"\(1 \| g\) must be added with '\+' in 'x \* \(1 \| g\)'"),
        ("y ~ x - (1 | g)", "must be added with"),
        ("y ~ f(x | g", "a bracket is not closed"),
        ("y ~ x) | g", r"closed that was not opened: 'y ~ x\)'"),
        ("y ~ `x | g", "` is not closed"),
        ("y ~ f('x) | g", "' is not closed"),
        ("cbind(won) | g", r"cbind\(won\) must have two parts"),
        (
            "cbind(a, b, c) | g",
            r"two parts, cbind\(successes, failures\), .*, trials=total\)",
        ),
        ("cbind(, b) | g", "must have two parts"),
        ("cbind(a, ) | g", "must have two parts"),
        ("cbind(a, failures=b) | g", r"must be cbind\(successes, failures\).*got 'failures=b'"),
        ("cbind(a, trials=) | g", "got 'trials='"),
    ],
)
def test_refused(text, message):
    with pytest.raises(
        ValueError, match=message.replace("'|'", r"'\|'").replace("x | g", r"x \| g")
    ):
        parse(text)


@pytest.mark.parametrize("formula", [None, 3, ["y ~ x | g"], b"y ~ x | g"])
def test_no_string(formula):
    with pytest.raises(TypeError, match="must be a string like"):
        parse(formula)


# --- any formula ---------------------------------------------------------------------------------

NAME = st.from_regex(r"[a-z][a-z0-9_.]{0,5}", fullmatch=True)
TERM = st.one_of(
    NAME,
    NAME.map("C({})".format),
    NAME.map("np.log({} + 1)".format),
    NAME.map("C({}, contr.sum)".format),
    st.tuples(NAME, NAME).map(":".join),
    st.tuples(NAME, NAME).map(" * ".join),
    NAME.map("I({0} | ({0} > 1))".format),
    NAME.map("`{0} | ~ ({0}`".format),
)
TERMS = st.lists(TERM, min_size=1, max_size=4).map(" + ".join)


def whole(response, fixed, bar, varying, group):
    if varying is None:
        return f"{response} ~ {fixed} {bar} {group}"
    return f"{response} ~ {fixed} + ({varying} {bar} {group})"


@given(NAME, TERMS, st.sampled_from(["|", "||"]), st.none() | TERMS, NAME)
def test_what_is_written_is_read(response, fixed, bar, varying, group):
    model = parse(whole(response, fixed, bar, varying, group))
    assert (model.response, model.fixed, model.group) == (response, fixed, group)
    assert model.varying == (None if varying is None else one(varying, bar == "|"))
    assert model.correlated is (False if varying is None and bar == "||" else None)


@given(TERMS, st.sampled_from(["|", "||"]), st.none() | TERMS, st.lists(st.sampled_from(" \n\t")))
def test_whitespace_does_not_matter(fixed, bar, varying, blank):
    text = whole("y", fixed, bar, varying, "g")
    spaced = text.replace(" ", " " + "".join(blank))
    assert parse(spaced) == parse(text)
    signs = text if "`" in text else text.replace(" ~ ", "~").replace(f" {bar} g", f"{bar}g")
    tight, model = parse(signs), parse(text)
    for name in ("response", "fixed", "varying", "group", "correlated"):
        assert getattr(tight, name) == getattr(model, name)


@given(st.text(alphabet="yx1g ~|+-*:/()[]{}'\"`,=.cbind", max_size=30) | st.text(max_size=30))
def test_any_text_is_read_or_refused(text):
    try:
        model = parse(text)
    except ValueError:
        return
    assert model.response
    assert model.fixed
    assert model.group


@pytest.mark.parametrize(
    ("formula", "written"),
    [
        ("y ~ . + (1 | g)", "y ~ (x + `a b`) + (1 | g)"),
        ("y ~ . - x + (1 + x | g)", "y ~ (x + `a b`) - x + (1 + x | g)"),
        ("y ~ (.)**2 | g", "y ~ ((x + `a b`))**2 | g"),
        ("log(`a b`) ~ . + offset(w) + (1 | g/y)", "log(`a b`) ~ (x) + offset(w) + (1 | g/y)"),
        ("y ~ x + (1 | g)", "y ~ x + (1 | g)"),
        ("y ~ I(x * .5) + (1 | g)", "y ~ I(x * .5) + (1 | g)"),
        ("y | g", "y | g"),
    ],
)
def test_a_point_stands_for_the_other_columns(formula, written):
    assert spelled_out(formula, lambda: ["g", "y", "x", "a b", "w"], ["w"]) == written
