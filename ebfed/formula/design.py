"""Terms as columns of numbers, by formulaic, for the rows of the fit and later ones."""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import ModuleType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ebfed.formula.expressions import check_names, functions_of, multiplied, names_of
from ebfed.formula.limits import check_terms, check_text, materialized, shortened
from ebfed.formula.names import column_name, plain_name
from ebfed.tables.columns import days_of, levels_of, matrix_of, values_of
from ebfed.tables.lazy import column_names

__all__ = [
    "CONSTANT",
    "Context",
    "Design",
    "as_pandas",
    "evaluated",
    "formula_of",
    "required",
    "response_of",
    "terms_of",
]

# What formulaic calls the column of ones.
CONSTANT = "Intercept"
# What formulas from files may use besides columns and plain values.
SHARED = {"np": np, "numpy": np}


class Context(dict[str, Any]):
    """What formulas use besides columns; modules are pickled by their names."""

    @classmethod
    def of(cls, texts: Sequence[str], data: Any, context: Mapping[str, Any] | None) -> Self:
        """Keep of a context what these terms use."""
        there, context = set(column_names(data)), context or {}
        columns = {name for text in texts for name in _columns(text)}
        functions = {name for text in texts for name in _functions(text)}
        used = {plain_name(name) for name in columns} - there | functions
        check_names(used, context)
        return cls({name: context[name] for name in sorted(used) if name in context})

    @classmethod
    def named_in(cls, text: str, columns: Sequence[str], context: Mapping[str, Any]) -> Self:
        """Keep of a context what has a name in a text, and is no column."""
        used = set(re.findall(r"[^\W\d]\w*", text)) - set(columns)
        return cls({name: context[name] for name in sorted(used) if name in context})

    def as_data(self) -> dict[str, Any]:
        """Return the plain values, from which `of` makes a context again, with `SHARED`.

        Raises
        ------
        TypeError
            If there is anything else, such as a function of the caller.
        """
        values = {name: x for name, x in self.items() if x is not SHARED.get(name)}
        for name, value in values.items():
            if not isinstance(value, int | float | str | np.number):
                raise TypeError(
                    f"the formula uses {name!r} of the caller, which no file can hold. Pickle this "
                    "fit."
                )
        return values

    def __reduce__(self) -> tuple:
        modules = {name: x.__name__ for name, x in self.items() if isinstance(x, ModuleType)}
        return _remake, ({name: x for name, x in self.items() if name not in modules}, modules)


def _remake(others: Mapping[str, Any], modules: Mapping[str, str]) -> Context:
    return Context(others, **{name: importlib.import_module(x) for name, x in modules.items()})


@dataclass
class Design:
    """The columns of a formula's terms.

    Attributes
    ----------
    text : str
    names : list of str
        Names of the columns, without that of the constant.
    constant : bool
        Whether there is one.
    counts_constant : bool
        Whether the constant is a column like others, and has a name.
    context : Context
        What the terms use besides columns.
    """

    text: str
    names: list[str] = field(default_factory=list)
    constant: bool = True
    counts_constant: bool = False
    context: Context = field(default_factory=Context)
    _spec: Any = None

    @classmethod
    def learn(
        cls, text: str, data: Any, context: Mapping[str, Any] | None, there: Sequence[str] = ()
    ) -> tuple[Design, NDArray[np.float64]]:
        """Learn categories, contrasts and what transformations keep from a frame's rows.

        `there` are names that may have been meant, where one is not known.

        Returns
        -------
        design : Design
        columns : ndarray of shape (n_rows, d)
        """
        formula = formula_of(text)
        design = cls(text, context=Context.of([text], data, context))
        table = as_pandas(data, [text], levels=True)
        for name in table.select_dtypes("category"):  # levels that no row has, as after filtering
            table[name] = table[name].cat.remove_unused_categories()
        if clash := {CONSTANT, CONSTANT.lower()} & set(table.columns):
            raise ValueError(f"a column is called {min(clash)!r}, as is the constant; rename it.")
        matrix = design._build(formula, table, there or column_names(data))
        learned = matrix.model_spec
        for term, places in learned.term_indices.items():
            if not places:
                term = plain_name(str(term))
                raise ValueError(f"term {term!r} has the same value in all rows.")
        names = [plain_name(name) for name in learned.column_names]
        design._spec = learned.update(structure=None)  # it follows from the rest
        design.constant = CONSTANT in names
        design.names = [name for name in names if name != CONSTANT]
        return design, design._numbers(matrix, names)

    def of(self, data: Any) -> NDArray[np.float64]:
        """Return the columns for other rows.

        Raises
        ------
        ValueError
            If a column is missing or has values missing, a category is new, or a term is not a
            finite number.
        """
        table = as_pandas(data, [self.text], levels=False)
        matrix = self._build(self._spec, table, column_names(data))
        names = [plain_name(name) for name in matrix.model_spec.column_names]
        expected = [] if self.counts_constant else self.names
        if wrong := set(names) - {CONSTANT} ^ set(expected):
            raise ValueError(
                f"the terms give {min(wrong)!r} in one of the frames only; columns of data must "
                "have the types that they had in the fit."
            )
        return self._numbers(matrix, names)

    def as_data(self) -> dict[str, Any]:
        """Return what was learned as plain data, from which `of_data` makes it again."""
        encoded = self._spec.encoder_state
        return {
            "names": self.names,
            "constant": self.constant,
            "counts_constant": self.counts_constant,
            "transformations": self._spec.transform_state,
            "kinds": {factor: kind.value for factor, (kind, _) in encoded.items()},
            "categories": self.factors,
        }

    @classmethod
    def of_data(cls, text: str, context: Context, data: Mapping[str, Any]) -> Self:
        """Make a design of plain data.

        Examples
        --------
        >>> import pandas as pd
        >>> table = pd.DataFrame({"x": [1.0, 2.0, 4.0], "kind": ["a", "b", "b"]})
        >>> design, columns = Design.learn("center(x) + kind", table, {})
        >>> twin = Design.of_data(design.text, Context(), design.as_data())
        >>> np.array_equal(twin.of(table), columns)
        True
        """
        from formulaic import Formula, ModelSpec
        from formulaic.parser.types import Factor

        categories = data["categories"]
        encoded = {
            factor: (
                Factor.Kind(kind),
                {"categories": categories[factor]} if factor in categories else {},
            )
            for factor, kind in data["kinds"].items()
        }
        spec = ModelSpec(
            Formula(text),
            "pandas",
            transform_state=data["transformations"],
            encoder_state=encoded,
        )
        rest = data["constant"], data["counts_constant"]
        return cls(text, data["names"], *rest, context, spec)

    def _build(self, spec: Any, data: Any, there: Sequence[str]) -> Any:
        from formulaic.errors import DataMismatchWarning

        with warnings.catch_warnings(), np.errstate(all="ignore"):  # what is not finite is said
            warnings.simplefilter("error", DataMismatchWarning)
            warnings.simplefilter("ignore", RuntimeWarning)
            try:
                return materialized(spec, data, self.context)
            except Exception as error:  # whatever an expression raises
                term = self._culprit(spec, data)
                term, reason = plain_name(term), plain_name(_explained(error, there))
                raise ValueError(f"term {term!r}: {reason}") from None

    def _culprit(self, spec: Any, data: Any) -> str:
        """Find the term that cannot be evaluated by itself."""
        from formulaic import Formula

        for term in getattr(spec, "formula", spec):
            alone = Formula([term])
            if spec is self._spec:
                alone = spec.update(formula=alone)
            try:
                materialized(alone, data, self.context)
            except Exception:
                return str(term)
        return self.text

    def _numbers(self, matrix: Any, names: Sequence[str]) -> NDArray[np.float64]:
        values = matrix_of(getattr(matrix, "__wrapped__", matrix))
        unknown = ~np.isfinite(values)
        if unknown.any():
            row, j = np.argwhere(unknown)[0]
            raise ValueError(
                f"term {names[j]!r} is not finite in {int(unknown[:, j].sum())} rows, the first "
                f"{int(row)}."
            )
        return values[:, [self.counts_constant or name != CONSTANT for name in names]]

    @property
    def factors(self) -> dict[str, list[Any]]:
        """Factors that have categories, such as ``C(kind)``, and these."""
        return {
            str(factor): list(state["categories"])
            for factor, (_, state) in self._spec.encoder_state.items()
            if "categories" in state
        }

    @property
    def figures(self) -> list[str]:
        """Terms that keep figures of the rows of the fit, such as ``center(x)``."""
        return list(self._spec.transform_state)

    def of_constant(self) -> Design:
        """Return the design of ``1`` whose one column is that of ones."""
        return replace(self, names=[CONSTANT.lower()], constant=False, counts_constant=True)

    def names_in(self, text: str, data: Any, whole: str) -> list[str]:
        """Names of the columns of some terms, that of the constant included.

        Raises
        ------
        ValueError
            If one is not a column of this design.
        """
        some, _ = Design.learn(text, data, self.context)
        missing = [name for name in some.names if name not in self.names]
        if some.constant and not self.constant:
            missing.insert(0, "1")
        if missing:
            raise self.lacking(missing[0], whole)
        return [CONSTANT] * some.constant + some.names

    @staticmethod
    def lacking(name: str, whole: str) -> ValueError:
        """Return the error of a term that differs between groups, and is not one of all groups."""
        return ValueError(
            f"term {name!r} differs between groups in {whole!r}, and so must be among the terms of "
            "all groups too: its mean is estimated from them."
        )


@lru_cache(maxsize=1024)
def terms_of(text: str) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
    """Return each term, and of its factors the kind, such as "lookup" for a column, and the text.

    Raises
    ------
    ValueError
        If the text cannot be read.
    """
    return tuple(
        (
            str(term),
            tuple((factor.eval_method.value, str(factor.expr)) for factor in term.factors),
        )
        for term in formula_of(text)
    )


def formula_of(text: str) -> Any:
    """Read terms by formulaic, if they are not too many."""
    from formulaic import Formula

    check_text(text)
    with _syntax(text):
        check_terms(text)
        return Formula(text)


def _columns(text: str) -> set[str]:
    """Names in terms that may be columns, marked as they are there."""
    found: set[str] = set()
    for _, factors in terms_of(text):
        for method, expression in factors:
            if method == "lookup":
                found.add(expression)
            elif method == "python":
                found |= names_of(expression) - functions_of(expression) | {expression}
    return found


def _numeric(text: str) -> set[str]:
    """Names in terms that stand for numbers: not only for levels, or sides of comparisons."""
    found: set[str] = set()
    for _, factors in terms_of(text):
        for method, expression in factors:
            if method == "lookup":
                found.add(expression)
            elif method == "python" and not re.match(r"C\(|.*[<>=]", expression):
                found |= names_of(expression)
    return found


def _functions(text: str) -> set[str]:
    """Names of functions in terms, and of what has them."""
    pairs = [pair for _, factors in terms_of(text) for pair in factors]
    return {name for method, each in pairs if method == "python" for name in functions_of(each)}


def as_pandas(data: Any, texts: Sequence[str], *, levels: bool) -> Any:
    """Put the columns that terms use in a frame of pandas, so that any frame is read alike.

    With `levels`, categories have them in their order: that is learned, and then remembered.
    Numbers of any type are int64 or float64, as of `values_of`: products of small ones have room.
    Dates are days since 1970-01-01, as in R, except where they are only compared or are levels of
    ``C(…)``.
    """
    import pandas as pd

    columns, names = {}, column_names(data)
    there = set(names)
    numeric = {name for text in texts for name in _numeric(text)}
    factors = [factor for text in texts for _, each in terms_of(text) for factor in each]
    of_numbers = {x for kind, text in factors if kind == "python" for x in multiplied(text)}
    for marked in sorted({name for text in texts for name in _columns(text)}):
        name = plain_name(marked)
        if name not in there:
            continue
        values = values_of(data, name)
        if marked in of_numbers and pd.api.types.infer_dtype(values, skipna=True) == "string":
            raise ValueError(f"{name!r} is text, and arithmetic is for numbers.")
        order = levels_of(data, name) if levels else None
        if order is not None:
            values = pd.Categorical(values, order)
        elif marked in numeric:
            values = days_of(values)
        columns[marked] = values
    return pd.DataFrame(columns, index=range(len(values_of(data, names[0]))))


def required(texts: Sequence[str], there: Sequence[str]) -> list[str]:
    """Columns, of those that are there, that these terms use."""
    used = {plain_name(name) for text in texts for name in _columns(text)}
    return [name for name in there if name in used]


def evaluated(text: str, there: Sequence[str] = ()) -> str:
    """Write a term whose signs are those of arithmetic: a response is no sum of terms."""
    name = text.strip("`")
    return f"0 + `{name}`" if plain_name(name) in there else f"0 + {{{text}}}"


def response_of(text: str, data: Any, context: Mapping[str, Any] | None) -> NDArray:
    """Values of the response: a column, as it is, or an expression."""
    if (name := column_name(text)) in column_names(data):
        return values_of(data, name)
    design, values = Design.learn(evaluated(text), data, context)
    if values.shape[1] != 1:
        raise ValueError(
            f"response {text!r} must be one column; it comes to {', '.join(design.names)}."
        )
    return values[:, 0]


class _syntax:
    """Point at the part of a formula that cannot be read."""

    def __init__(self, text: str):
        self.text = text

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is None:
            return
        from formulaic.errors import FormulaicError

        if isinstance(error, FormulaicError | SyntaxError | RecursionError | MemoryError):
            text = shortened(self.text, 200)
            raise ValueError(f"{text!r} cannot be read: {shortened(_reason(error), 200)}") from None


HINTS = {
    "factor": "C(…) makes a factor",
    "offset": "an offset is a term of its own, + offset(log(e))",
    "weights": "there are no weights",
    "s": "there are no smooth terms; bs(x, df=4) is a spline",
}


def _explained(error: Exception | Warning, there: Sequence[str]) -> str:
    """Explain what is wrong with a term, and what would work."""
    from difflib import get_close_matches

    text = _reason(error)
    if limit := re.search(r"\[ValueError: (.* has at most .*|.* needs .* GiB; .*)\]", text):
        return limit[1]
    if unknown := re.search(r"`([^`]+)` is not present|name '(\w+)' is not defined", text):
        name = unknown[1] or unknown[2]
        near = get_close_matches(name, there, 1)
        hint = HINTS.get(name) or (f"did you mean {near[0]!r}?" if near else "")
        return f"{name!r} is neither a column of data nor known here{'; ' + hint if hint else ''}"
    if unseen := re.search(r"not seen in original dataset\): (\{.*?\})", text):
        return f"the rows of the fit had no {unseen[1].strip('{}')}"
    return text


def _reason(error: Exception | Warning) -> str:
    """First line of a message, without colours."""
    plain = re.sub(r"\x1b?[⧛⧚]?\[[0-9;]*m[⧚⧛]?|[⧛⧚]", "", str(error))
    return " ".join(plain.split())
