"""Names of columns in formulas that would be read as something else, and what stands for them.

Formulaic reads `` `1` `` as the constant, ``Q('a b')`` as a function of a column that it does not
know, and a column ``log`` in place of the function in ``log(x)``. Such names have a mark within a
formula, which distinguishes them; it is in no name that a user sees.
"""

from __future__ import annotations

import re

__all__ = ["column_name", "marked", "plain_name"]

# Characters of no language: the end of a name that is marked, and what stands for a backtick.
MARK, TICK = "\ue000", "\ue001"
QUOTES = r"`[^`]*`|'[^']*'|\"[^\"]*\""
QUOTED_NAME = r"(?<![\w.`])Q\(\s*(?:'([^']*)'|\"([^\"]*)\")\s*\)"


def plain_name(text: str) -> str:
    """Return a name, or a text with names, without marks.

    Examples
    --------
    >>> plain_name("x:`1" + MARK + "`")
    'x:`1`'
    """
    return text.replace(MARK, "").replace(TICK, "`")


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
    spaces = {"np", "numpy"} & set(re.findall(r"(\w+)\.(?=[^\W\d])", outside))
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
    """Mark a name in backticks that is a number, a constant or a function."""
    name = text[1:-1]
    if text[0] != "`" or not name or name.endswith(MARK):
        return text
    number = re.fullmatch(r"[-+]?[\d.]+", name) or name in ("True", "False", "None")
    return f"`{name}{MARK}`" if number or name in functions else text


def _bare(text: str, called: set[str], spaces: set[str]) -> str:
    """Mark columns that have the name of a function of the formula."""

    def mark(found: re.Match[str]) -> str:
        return f"`{found[0]}{MARK}`" if found[0] in called else found[0]

    text = re.sub(r"(?<![\w.])[^\W\d]\w*(?!\w|\s*\()", mark, text)
    for name in spaces - called:
        text = re.sub(rf"(?<![\w.]){name}(?!\w|\.)", f"`{name}{MARK}`", text)
    return text
