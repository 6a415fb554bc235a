"""The grammar: response, terms of all groups, terms that differ between groups, and groups.

    y ~ x + C(kind) + (1 + x | county)     as in lme4: x differs between counties, kind does not
    y ~ x + (1 + x || county)              the same, intercept and slope not correlated
    y ~ x + (1 | county) + (0 + x | county)    the same again: terms apart are not correlated
    y ~ x + C(kind) | county               everything differs between counties
    rate | county                          a mean for every county
    y ~ 1 + (1 | state/county)             counties of states: labels need only differ within states
    y ~ x + (1 + x | state) + (1 | state:county)    the same, x differs between states alone
    y ~ x + (1 | state:county)             the same, states do not differ
    y ~ x + (1 | student) + (1 | lecturer)    an effect of every level of crossed factors
    y ~ x + (1 | student) + (1 + x | lecturer)    the same, x differs between lecturers
    y ~ . + (1 | county)                   all columns that have no other role
    deaths ~ uv + offset(log(e)) + (1 | county)    counts of events with exposures e

The formula is parsed here; formulaic reads its terms.

Formulaic reads `` `1` `` as the constant, ``Q('a b')`` as a function of a column that it does not
know, and a column ``log`` in place of the function in ``log(x)``. Such names have a mark within a
formula, which distinguishes them; it is in no name that a user sees.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, chain
from keyword import iskeyword
from typing import Any

from ebfed.designs.expressions import functions_of, names_of
from ebfed.designs.limits import check_labels, check_text

__all__ = ["FormulaTerms", "column_name", "marked", "parse", "plain_name", "spelled_out", "written"]

# Characters of no language: the end of a name that is marked, and what stands for a backtick.
MARK, TICK = "\ue000", "\ue001"
QUOTES = r"`[^`]*`|'[^']*'|\"[^\"]*\""
QUOTED_NAME = r"(?<![\w.`])Q\(\s*(?:'([^']*)'|\"([^\"]*)\")\s*\)"
COUNTS = "cbind(successes, failures), as in R, or cbind(successes, trials=total)"
# A point that stands for columns.
OTHERS = re.compile(r"(^|[\s+*:(-])\.($|[\s+*:)-])")
FORMS = "'y ~ x + (1 + x | county)', 'y ~ x | county' or 'rate | county'"


@dataclass(frozen=True)
class FormulaTerms:
    """The parts of a formula.

    Attributes
    ----------
    text : str
    response : str
        Expression of the response; for counts, of the successes.
    failures, trials : str
        Expression of the number of failures or trials; one of them, for counts, else empty.
    fixed : str
        Terms of all groups.
    varying : tuple or None
        Terms that differ between groups, of each level of groups from the outermost: texts of terms
        that are independent of each other, each with whether its coefficients may be correlated.
        None: all terms differ, as the estimator has it.
    group : str
        The column of labels.
    offset : str
        Expression of the log of the exposure of a row, else empty.
    correlated : bool or None
        Whether all terms may be correlated if all differ; None: as the estimator has it.
    above : tuple of str
        Columns of labels of the levels above the groups, from the outermost.
    factors : tuple of tuple of str
        Columns of the labels of each factor, where factors are crossed; `above` and `group` are
        then the distinct columns.
    slopes : tuple
        Terms that differ between the levels of each factor, as `varying` has those of levels; empty
        where these are the intercepts alone.
    """

    text: str
    response: str
    fixed: str
    group: str
    failures: str = ""
    trials: str = ""
    varying: tuple[tuple[tuple[str, bool], ...], ...] | None = None
    offset: str = ""
    correlated: bool | None = None
    above: tuple[str, ...] = ()
    factors: tuple[tuple[str, ...], ...] = ()
    slopes: tuple[tuple[tuple[str, bool], ...], ...] = ()

    @property
    def levels(self) -> list[str]:
        """Columns of labels, from the outermost."""
        return [*self.above, self.group]

    @property
    def texts(self) -> list[str]:
        """Texts of all terms: those of all groups, then those that differ between groups."""
        terms = [each for level in (*(self.varying or ()), *self.slopes) for each in level]
        return [self.fixed, *(text for text, _ in terms)]

    @property
    def counts(self) -> bool:
        """Whether the response is a number of successes, beside one of failures or trials."""
        return bool(self.failures or self.trials)

    @property
    def counted(self) -> str:
        """What the two parts of ``cbind(…)`` were read as, in a sentence."""
        if self.trials:
            return f"Each row has {self.response} successes of {self.trials} trials."
        return f"Each row has {self.response} successes and {self.failures} failures."

    @property
    def observed(self) -> list[str]:
        """Expressions of the response."""
        return [text for text in (self.response, self.failures, self.trials) if text]


def parse(formula: str) -> FormulaTerms:
    """Parse a formula.

    Raises
    ------
    TypeError, ValueError
        If it is not of one of the forms above; the message has the part that is wrong.

    Examples
    --------
    >>> model = parse("np.log(y) ~ x * C(kind) + (1 + x || county)")
    >>> model.response, model.fixed, model.varying, model.group
    ('np.log(y)', 'x * C(kind)', ((('1 + x', False),),), 'county')
    >>> parse("cbind(won, lost) | county").failures
    'lost'
    >>> parse("cbind(won, trials=games) | county").trials
    'games'
    >>> parse("y ~ x + (1 | s) + (1 | d) + (1 | dept:service)").factors
    (('s',), ('d',), ('dept', 'service'))
    >>> parse("y ~ 1 + (1 | state/county)").levels
    ['state', 'county']
    >>> nested = parse("y ~ x + (1 + x | state) + (1 | state:county)")
    >>> nested.levels, nested.varying
    (['state', 'county'], ((('1 + x', True),), (('1', True),)))
    >>> parse("y ~ x + (1 | state:county) + (0 + x | state:county)").varying
    ((), (('1', True), ('0 + x', True)))
    """
    if not isinstance(formula, str):
        raise TypeError(
            f"formula, the first argument, must be a string like {FORMS}; "
            f"got {type(formula).__name__}."
        )
    return _parsed(formula)


def spelled_out(
    formula: str, columns: Callable[[], Sequence[str]], beside: Sequence[str] = ()
) -> str:
    """Write the columns that ``.`` stands for: those that have no other role in the formula.

    Parameters
    ----------
    formula : str
    columns : callable
        Returns the names of the columns that there are.
    beside : sequence of str
        Names of columns that have a role beside the formula, such as weights.

    Raises
    ------
    ValueError
        If all columns have a role.

    Examples
    --------
    >>> spelled_out("log(y) ~ . + x:z + (1 + x | g)", lambda: ["g", "x", "y", "z", "w"], ["w"])
    'log(y) ~ (x + z) + x:z + (1 + x | g)'
    """
    left, tilde, right = formula.partition("~") if isinstance(formula, str) else ("", "", "")
    if not OTHERS.search(right):
        return formula
    model = parse(left + tilde + OTHERS.sub(r"\g<1>1\g<2>", right))
    texts = [*model.observed, *([model.offset] if model.offset else [])]
    used = {*model.levels, *beside, *chain(*(names_of(x) - functions_of(x) for x in texts))}
    others = [name for name in columns() if name not in {plain_name(each) for each in used}]
    if not others:
        raise ValueError(f"'.' stands for no columns in {formula!r}: all have a role.")
    terms = " + ".join(map(written, others))
    return left + tilde + OTHERS.sub(rf"\g<1>({terms})\g<2>", right)


@lru_cache(maxsize=1024)
def _parsed(formula: str) -> FormulaTerms:
    check_text(formula)
    marked_text = marked(formula)
    text = plain_name(marked_text)
    left, *right = _split(marked_text, "~")
    if len(right) > 1:
        raise ValueError(f"formula has more than one '~': {text!r}.")
    if not right:
        response, *groups = _split_bars(marked_text)
        check_labels("/".join(groups))
        if len(groups) != 1:
            raise ValueError(f"formula must be like {FORMS}; got {text!r}.")
        return _model(text, response, "1", groups[0])
    fixed, *groups = _split_bars(right[0])
    if groups and not fixed:
        raise ValueError(
            f"formula: nothing stands between '~' and '|' in {text!r}; write 1 for a constant."
        )
    fixed, bars = _take_bars(fixed)
    check_labels("/".join([*groups, *bars]))
    levels, varying = ([], ()) if groups else _levels(bars)
    factors = [] if groups or levels or len(bars) < 2 else _factors(bars)
    factors = factors if len(set(factors)) > 1 else []
    if len(groups) + len(bars) != 1 and not levels and not factors:
        owners = {_split_bars(bar)[-1] for bar in bars}
        if len(owners) < len(bars):
            raise ValueError(
                f"a crossed factor is given twice in {text!r}; (1 + x || a) has terms that are not "
                "correlated."
            )
        many = "more than one part" if groups or bars else "no part"
        raise ValueError(
            f"formula has {many} that says who the groups are: {text!r}. It must be like {FORMS}."
        )
    if OTHERS.search(fixed):
        raise ValueError(f"'.' stands for no columns here; name the terms of {text!r}.")
    fixed, offset = _take_offset(fixed)
    fixed = fixed or "1"
    if groups:
        correlated = False if "||" in right[0] else None
        return _model(text, left, fixed, groups[0], offset=offset, correlated=correlated)
    if factors:
        path = "/".join(f"`{column}`" for column in dict.fromkeys(sum(factors, ())))
        rest: dict[str, Any] = {
            "offset": offset,
            "factors": tuple(dict.fromkeys(factors)),
            "slopes": _slopes(bars, factors),
        }
        return _model(text, left, fixed, path, **rest)
    return _model(text, left, fixed, "/".join(levels), offset=offset, varying=varying)


def _levels(bars: list[str]) -> tuple[list[str], tuple[tuple[tuple[str, bool], ...], ...]]:
    """Columns of levels, from the outermost, and terms of each; none if groups are crossed.

    Examples
    --------
    >>> _levels(["1 | school:lea", "1 + x | lea"])
    (['lea', 'school'], ((('1 + x', True),), (('1', True),)))
    >>> _levels(["1 || a/b"]), _levels(["1 | a", "1 | b"])
    ((['a', 'b'], ((('1', False),), (('1', False),))), ([], ()))
    """
    parts: list[tuple[list[str], tuple[str, bool]]] = []
    for bar in bars:
        terms, *owners = _split_bars(bar)
        if not terms or len(owners) != 1:
            if len(bars) > 1:
                return [], ()
            raise ValueError(f"formula: ({bar}) must be like (1 + x | county).")
        path = [_split(each, ":") for each in _split(owners[0], "/")]
        columns = list(chain(*path))
        if twice := [column for column in columns if columns.count(column) > 1]:
            raise ValueError(f"formula: {twice[0]!r} is twice among the levels {owners[0]!r}.")
        ends = accumulate(map(len, path))
        parts += [(columns[:end], (terms, "||" not in bar)) for end in ends]
    levels: list[str] = []
    found: list[tuple[tuple[str, bool], ...]] = []
    for columns, own in sorted(parts, key=lambda part: len(part[0])):
        if not set(levels) <= set(columns):
            return [], ()
        new = [column for column in columns if column not in levels]
        levels, found = levels + new, found + [()] * len(new)
        found[-1] += (own,)
    return levels, tuple(found)


def _factors(bars: list[str]) -> list[tuple[str, ...]]:
    """Columns of the labels of crossed factors, of (1 | a) + (1 | b:c), in the order of bars.

    Examples
    --------
    >>> _factors(["1 | s", "1 | a / b"]), _factors(["1 | a", "1 | b", "0 + x | a"])
    ([('s',), ('a',), ('a', 'b')], [('a',), ('b',), ('a',)])
    """
    factors: list[tuple[str, ...]] = []
    for bar in bars:
        terms, *owners = _split_bars(bar)
        if len(owners) != 1 or not terms:
            return []
        path = [_split(each, ":") for each in _split(owners[0], "/")]
        for depth in range(1, len(path) + 1):
            factors.append(tuple(_column(each) for part in path[:depth] for each in part))
    same: dict[frozenset[str], tuple[str, ...]] = {}
    return [same.setdefault(frozenset(each), each) for each in factors]


def _slopes(
    bars: list[str], factors: list[tuple[str, ...]]
) -> tuple[tuple[tuple[str, bool], ...], ...]:
    """Terms of each crossed factor, as of levels; empty for an intercept of each.

    Examples
    --------
    >>> bars = ["1 | s", "x || a"]
    >>> _slopes(bars, _factors(bars)), _slopes(["1 | a"], [("a",)])
    (((('1', True),), (('x', False),)), ())
    """
    found: dict[tuple[str, ...], tuple[tuple[str, bool], ...]] = {}
    own = []
    for bar in bars:
        terms, owner = _split_bars(bar)
        own += [(terms, "||" not in bar)] * len(_split(owner, "/"))
    for factor, term in zip(factors, own, strict=True):
        found[factor] = (*found.get(factor, ()), term)
    plain = all([terms for terms, _ in each] == ["1"] for each in found.values())
    return () if plain else tuple(found.values())


def _model(text: str, response: str, fixed: str, groups: str, **given: Any) -> FormulaTerms:
    if not response:
        raise ValueError(f"formula has no response: {text!r}.")
    *above, group = map(_column, _split(groups, "/"))
    if twice := [name for name in above if [*above, group].count(name) > 1]:
        raise ValueError(f"formula: {twice[0]!r} is twice among the levels {groups!r}.")
    rest: dict[str, Any] = given | {"above": tuple(above)}
    if not (counts := re.fullmatch(r"cbind\((.*)\)", response)):
        return FormulaTerms(text, response, fixed, group, **rest)
    parts = _split(counts[1], ",")
    if len(parts) != 2 or not all(parts):
        raise ValueError(f"{response} must have two parts, {COUNTS}.")
    successes, second = parts
    named = re.match(r"(\w+)\s*=(?!=)\s*", second)
    if named and (named[1] != "trials" or named.end() == len(second)):
        raise ValueError(f"{response} must be {COUNTS}; got {second!r}.")
    key = "trials" if named else "failures"
    second = second[named.end() :] if named else second
    return FormulaTerms(text, successes, fixed, group, **(rest | {key: second}))


def _column(text: str) -> str:
    """Name of a column, perhaps in backticks."""
    if not re.fullmatch(r"`[^`]+`|[^\s+*/:()~|]+", text):
        raise ValueError(
            f"{text!r} must be one column of labels, or columns of levels, as in state/county. Of "
            "crossed groups write (1 | a) + (1 | b)."
        )
    return column_name(text)


def _plain(text: str) -> Iterator[tuple[int, str, int]]:
    """Characters outside quotes: where they are, and how deep in brackets before and after."""
    depth, quote = 0, ""
    for place, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"`":
            quote = character
        else:
            depth += (character in "([{") - (character in ")]}")
            if depth < 0:
                raise ValueError(f"a bracket is closed that was not opened: {text[: place + 1]!r}.")
            yield place, character, depth
    if depth or quote:
        raise ValueError(f"{quote or 'a bracket'} is not closed in {text!r}.")


def _split(text: str, sign: str) -> list[str]:
    """Split at a sign outside brackets and quotes."""
    cuts = [place for place, character, depth in _plain(text) if depth == 0 and character == sign]
    return [
        text[i:j].strip() for i, j in zip([0, *(c + 1 for c in cuts)], [*cuts, None], strict=True)
    ]


def _split_bars(text: str) -> list[str]:
    """Split at ``|`` or ``||``."""
    parts = _split(text, "|")
    twice = [j for j in range(1, len(parts) - 1) if not parts[j]]
    return [part for j, part in enumerate(parts) if j not in twice[:1]]


def _take_offset(text: str) -> tuple[str, str]:
    """Separate ``offset(...)`` from the other terms."""
    terms = _split(text, "+")
    found = [each for each in map(_inside_offset, terms) if each]
    if len(found) > 1:
        raise ValueError(f"a formula has one offset; got {len(found)} in {text!r}.")
    if not found:
        return text, ""
    return " + ".join(term for term in terms if not _inside_offset(term)), found[0]


def _inside_offset(term: str) -> str:
    offset = re.fullmatch(r"offset\((.*)\)", term)
    return offset[1].strip() if offset else ""


def _take_bars(text: str) -> tuple[str, list[str]]:
    """Separate ``( … | … )`` from the other terms; brackets of a function are its own."""
    bars, start, kept, last = [], 0, "", 0
    before = 0
    for place, character, depth in _plain(text):
        if before == 0 and depth == 1:
            start = place
        if before == 1 and depth == 0 and character == ")":
            inside = text[start + 1 : place]
            called = re.match(r"\w", text[start - 1 : start])
            if not called and len(_split(inside, "|")) > 1:
                ahead = text[last:start].rstrip()
                if ahead and not ahead.endswith("+"):
                    raise ValueError(f"formula: ({inside}) must be added with '+' in {text!r}.")
                kept += ahead.removesuffix("+").rstrip()
                last = place + 1
                bars.append(inside)
        before = depth
    left = (kept + text[last:]).strip()
    return left.strip("+").strip(), bars


def plain_name(text: str) -> str:
    """Return a name, or a text with names, without marks.

    Examples
    --------
    >>> plain_name("x:`1" + MARK + "`")
    'x:`1`'
    """
    return text.replace(MARK, "").replace(TICK, "`")


def written(name: str) -> str:
    """Write a name in a formula, in backticks if it is no word.

    >>> written("a b"), written("a")
    ('`a b`', 'a')
    """
    return name if name.isidentifier() and not iskeyword(name) else f"`{name}`"


def column_name(text: str) -> str:
    """Return the column that a text names in backticks; another text without marks.

    Examples
    --------
    >>> column_name("`a b`"), column_name("`a` + `b`")
    ('a b', '`a` + `b`')
    """
    quoted = re.fullmatch(r"`([^`]+)`", text)
    return plain_name(quoted[1] if quoted else text)


def marked(formula: str) -> str:
    """Return a formula in which no name can be read as anything else, on one line.

    Examples
    --------
    >>> marked("y ~ Q('a b')  + (1 | g)")
    'y ~ `a b` + (1 | g)'
    >>> plain_name(marked("y ~ log(log) + `1`"))
    'y ~ log(`log`) + `1`'
    """
    text = re.sub(QUOTED_NAME, _in_backticks, " ".join(formula.split()))
    outside = "".join(" " if quoted else each for quoted, each in _apart(text))
    called = set(re.findall(r"([^\W\d]\w*)\s*\(", outside))
    spaces = {"np", "numpy", "contr"} & set(re.findall(r"(\w+)\.(?=[^\W\d])", outside))
    return "".join(
        _in_quotes(each, called | spaces) if quoted else _bare(each, called, spaces)
        for quoted, each in _apart(text)
    )


def _apart(text: str) -> list[tuple[bool, str]]:
    """Split a text into parts in quotes and others."""
    parts = re.split(f"({QUOTES})", text)
    return [(j % 2 == 1, each) for j, each in enumerate(parts) if each]


def _in_backticks(found: re.Match[str]) -> str:
    name = found[1] if found[1] is not None else found[2]
    return f"`{name.replace('`', TICK)}`"


def _in_quotes(text: str, functions: set[str]) -> str:
    """Mark a name in backticks that is a number, a function or a word of Python."""
    name = text[1:-1]
    if text[0] != "`" or not name or name.endswith(MARK):
        return text
    number = re.fullmatch(r"[-+]?[\d.]+", name)
    return f"`{name}{MARK}`" if number or iskeyword(name) or name in functions else text


def _bare(text: str, called: set[str], spaces: set[str]) -> str:
    """Mark columns that have the name of a function of the formula."""

    def mark(found: re.Match[str]) -> str:
        return f"`{found[0]}{MARK}`" if found[0] in called else found[0]

    text = re.sub(r"(?<![\w.])[^\W\d]\w*(?!\w|\s*\()", mark, text)
    for name in spaces - called:
        text = re.sub(rf"(?<![\w.]){name}(?!\w|\.)", f"`{name}{MARK}`", text)
    return text
