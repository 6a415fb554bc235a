"""How .csv files are written, and what their errors mean."""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Dialect", "explain"]

TAB = ("tab", "\\t")
SEPARATORS = (";", "\t", "|", ",")
# Errors of pandas and Arrow, and plain words for them.
ERRORS = (
    (
        r"Expected (\d+) fields in line (\d+), saw (\d+)",
        r"line \2 has \3 fields, but the lines before it have \1",
    ),
    (
        r"EOF inside string starting at row (\d+)",
        r"a quotation mark in row \1 is never closed; the file may be cut off",
    ),
    (r"No columns to parse from file", "the file is empty"),
    (r"[Mm]agic bytes|file size is", "this is no parquet file, or one that is cut off"),
)


class Dialect(NamedTuple):
    """How .csv files are written.

    Attributes
    ----------
    sep : str
        One character between the fields of a line.
    encoding : str
    decimal : str
        One character between the digits of a number: a point or a comma.
    na_values : tuple of str
        Cells that are missing in every column. None are given: those of `numbers.NA_VALUES` among
        numbers and truth values.
    """

    sep: str = ","
    encoding: str = "utf-8"
    decimal: str = "."
    na_values: tuple[str, ...] = ()

    @classmethod
    def checked(
        cls, sep: str, encoding: str, decimal: str, na_values: Sequence[str] | None = None
    ) -> Dialect:
        r"""Return a dialect from what a user has written.

        Raises
        ------
        ValueError
            If these are no single, different characters, or the encoding is unknown.

        Examples
        --------
        >>> Dialect.checked("tab", "latin-1", ",")
        Dialect(sep='\t', encoding='latin-1', decimal=',', na_values=())
        """
        sep = "\t" if sep in TAB else sep
        if len(sep) != 1 or sep in '"\n\r':
            raise ValueError(f"--sep must be one character, or tab; got {sep!r}")
        if decimal not in (".", ","):
            raise ValueError(f"--decimal must be a point or a comma; got {decimal!r}")
        if sep == decimal:
            raise ValueError(
                f"--sep and --decimal are both {sep!r}; files with a decimal comma mostly have "
                "--sep ';'"
            )
        try:
            codecs.lookup(encoding)
        except LookupError:
            raise ValueError(
                f"--encoding must be one that Python knows, such as utf-8, latin-1 or cp1252; got "
                f"{encoding!r}"
            ) from None
        return cls(sep, encoding, decimal, tuple(na_values or ()))

    def options(self, file: Path) -> dict[str, Any]:
        """Return the arguments with which pandas reads a file."""
        packed = "gzip" if file.name.lower().endswith(".gz") else None
        given = {name: each for name, each in self._asdict().items() if name != "na_values"}
        return {**given, "compression": packed}

    def plain_numbers(self, values: Any) -> Any:
        """Return a Series of text with points for decimal commas, and commas for points."""
        if self.decimal == "." or values.dtype.kind in "biuf":
            return values
        swap = {ord(","): ".", ord("."): ","}
        return values.map(lambda each: each.translate(swap) if isinstance(each, str) else each)

    def other_separator(self, names: list[str]) -> str:
        """Return advice if the names of columns look like a line that was not separated."""
        if len(names) == 1:
            for sep in SEPARATORS:
                if sep != self.sep and sep in names[0]:
                    name = "tab" if sep == "\t" else f"'{sep}'"
                    return f"; if {name} is between the columns, give --sep {name}"
        return ""

    def other_decimal(self, value: str) -> str:
        """Return advice if a text looks like a number with the other decimal sign."""
        other = "," if self.decimal == "." else "."
        if re.fullmatch(rf"\s*[-+]?\d+{re.escape(other)}\d+\s*", value):
            name = "comma" if other == "," else "point"
            return f"; if this is a decimal {name}, give --decimal {other}"
        return ""


def explain(error: Exception) -> str:
    """Return the text of an error of pandas or Arrow in plain words.

    Examples
    --------
    >>> explain(ValueError("Error tokenizing data. Expected 2 fields in line 3, saw 4"))
    'line 3 has 4 fields, but the lines before it have 2'
    """
    text = str(error)
    if isinstance(error, UnicodeDecodeError):
        return (
            f"the text is not in {error.encoding}; give the encoding of the file, such as "
            "--encoding latin-1 or --encoding cp1252"
        )
    for pattern, plain in ERRORS:
        if found := re.search(pattern, text):
            return found.expand(plain)
    return text
