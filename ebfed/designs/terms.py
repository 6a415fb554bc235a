"""The terms of a text, as formulaic reads them, and what they use."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import combinations
from typing import Any

from ebfed.designs.expressions import functions_of, is_comparison, multiplied, names_of
from ebfed.designs.grammar import plain_name, written
from ebfed.designs.limits import check_terms, check_text, shortened

__all__ = ["Terms", "evaluated", "reason_of", "required"]


class Terms:
    """Terms of a text, read once.

    Parameters
    ----------
    text : str

    Attributes
    ----------
    formula : Formula of formulaic
    each : tuple
        Of each term the text, and of its factors the kind, such as "lookup" for a column, and the
        text.

    Raises
    ------
    ValueError
        If the text cannot be read, or stands for too many terms.

    Examples
    --------
    >>> Terms.of("x:z").each
    (('1', (('literal', '1'),)), ('x:z', (('lookup', 'x'), ('lookup', 'z'))))
    >>> sorted(Terms.of("np.log(x + z)").columns), sorted(Terms.of("np.log(x)").functions)
    (['np.log(x + z)', 'x', 'z'], ['np'])
    """

    def __init__(self, text: str):
        from formulaic import Formula
        from formulaic.errors import FormulaicError

        check_text(text)
        try:
            check_terms(text)
            # of words in backticks formulaic would put some around their letters everywhere
            self.formula: Any = Formula(re.sub("`([^`]*)`", lambda name: written(name[1]), text))
        except (FormulaicError, SyntaxError, RecursionError, MemoryError) as error:
            shown = f"{shortened(text, 200)!r} cannot be read"
            raise ValueError(f"{shown}: {shortened(reason_of(error), 200)}") from None
        self.each = tuple(
            (str(term), tuple((x.eval_method.value, str(x.expr)) for x in term.factors))
            for term in self.formula
        )

    @classmethod
    def of(cls, text: str) -> Terms:
        """Return the terms of a text, which are kept."""
        return _kept(text)

    def __len__(self) -> int:
        return len(self.each)

    def has_margins(self, term: Any) -> bool:
        """Whether the constant, and all terms of some factors of this term, are among these.

        A factor of such a term has contrasts, whatever the other terms are.
        """
        factors = sorted({str(factor.expr) for factor in term.factors} - {"1"})
        margins = (set(some) for n in range(len(factors)) for some in combinations(factors, n))
        return all(margin in self.factors for margin in margins)

    @cached_property
    def factors(self) -> list[set[str]]:
        """Factors of each term; the constant has an empty set."""
        return [{text for _, text in factors} - {"1"} for _, factors in self.each]

    def _factors(self, *kinds: str) -> Iterator[tuple[str, str]]:
        return (x for _, factors in self.each for x in factors if x[0] in kinds)

    @cached_property
    def columns(self) -> set[str]:
        """Names that may be columns, marked as they are there."""
        found: set[str] = set()
        for kind, text in self._factors("lookup", "python"):
            own = names_of(text) - functions_of(text) if kind == "python" else set()
            found |= own | {text}
        return found

    @cached_property
    def numeric(self) -> set[str]:
        """Names that stand for numbers: not only for levels, or sides of comparisons."""
        found: set[str] = set()
        for kind, text in self._factors("lookup", "python"):
            if kind == "lookup":
                found.add(text)
            elif not (re.match(r"(C|factor)\(", text) or is_comparison(text)):
                found |= names_of(text)
        return found

    def only_levels(self, name: str) -> bool:
        """Whether a column is used in ``C(…)`` alone."""
        uses = [
            text
            for kind, text in self._factors("lookup", "python")
            if name in ({text} if kind == "lookup" else names_of(text))
        ]
        return all(re.match(r"(C|factor)\(", text) for text in uses)

    @cached_property
    def functions(self) -> set[str]:
        """Names of functions, and of what has them."""
        return {name for _, text in self._factors("python") for name in functions_of(text)}

    @cached_property
    def multiplied(self) -> set[str]:
        """Names of what is multiplied."""
        return {name for _, text in self._factors("python") for name in multiplied(text)}


_kept = lru_cache(maxsize=1024)(Terms)


def required(texts: Sequence[str], there: Sequence[str]) -> list[str]:
    """Columns, of those that are there, that these terms use."""
    used = {plain_name(name) for text in texts for name in Terms.of(text).columns}
    return [name for name in there if name in used]


def evaluated(text: str, there: Sequence[str] = ()) -> str:
    """Write a term whose signs are those of arithmetic: a response is no sum of terms."""
    name = text.strip("`")
    return f"0 + `{name}`" if plain_name(name) in there else f"0 + {{{text}}}"


def reason_of(error: Exception | Warning) -> str:
    """First line of a message of formulaic, without colours."""
    plain = re.sub(r"\x1b?[⧛⧚]?\[[0-9;]*m[⧚⧛]?|[⧛⧚]", "", str(error))
    return " ".join(plain.split())
