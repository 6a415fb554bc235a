"""Terms as columns of numbers, by formulaic, remembered for rows that come later."""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ebfed.pushdown import column_names
from ebfed.tabular import matrix_of, values_of

__all__ = ["CONSTANT", "Context", "Design", "evaluated", "required", "response_of"]

# What formulaic calls the column of ones.
CONSTANT = "Intercept"


class Context(dict[str, Any]):
    """What formulas use besides columns; modules are pickled by their names."""

    @classmethod
    def of(cls, texts: Sequence[str], data: Any, context: Mapping[str, Any] | None) -> Self:
        """Keep of a context what these terms use."""
        there, context = set(column_names(data)), context or {}
        used = {name for text in texts for name in _names(text)} - there
        return cls({name: context[name] for name in sorted(used) if name in context})

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
        Of the columns, that of the constant left out.
    constant : bool
        Whether there is one.
    """

    text: str
    names: list[str] = field(default_factory=list)
    constant: bool = True
    _spec: Any = None
    _context: Context = field(default_factory=Context)

    @classmethod
    def learn(
        cls, text: str, data: Any, context: Mapping[str, Any] | None
    ) -> tuple[Design, NDArray[np.float64]]:
        """Learn categories, contrasts and what transformations keep from a frame's rows.

        Returns
        -------
        design : Design
        columns : ndarray of shape (n_rows, d)
        """
        from formulaic import Formula

        with _syntax(text):
            formula = Formula(text)
        design = cls(text, _context=Context.of([text], data, context))
        matrix = design._build(formula, _as_pandas(data, [text]))
        design._spec = matrix.model_spec
        names = list(design._spec.column_names)
        design.constant = CONSTANT in names
        design.names = [name for name in names if name != CONSTANT]
        return design, design._numbers(matrix, names)

    def of(self, data: Any) -> NDArray[np.float64]:
        """Return the columns for other rows.

        Raises
        ------
        ValueError
            If a column is missing or has values missing, a category is new, or a term comes to no
            finite number.
        """
        data = _as_pandas(data, [self.text])
        return self._numbers(self._build(self._spec, data), list(self._spec.column_names))

    def _build(self, spec: Any, data: Any) -> Any:
        from formulaic.errors import DataMismatchWarning, FormulaicError

        options = {"context": self._context, "na_action": "raise"}
        with warnings.catch_warnings(), np.errstate(all="ignore"):  # what is not finite is said
            warnings.simplefilter("error", DataMismatchWarning)
            warnings.simplefilter("ignore", RuntimeWarning)
            try:
                return spec.get_model_matrix(data, **options)
            except (FormulaicError, DataMismatchWarning, ValueError, TypeError) as error:
                term = self._culprit(spec, data, options)
                raise ValueError(f"term {term!r}: {_reason(error)}") from None

    def _culprit(self, spec: Any, data: Any, options: Mapping[str, Any]) -> str:
        """Find the term that cannot be evaluated by itself."""
        from formulaic import Formula

        for term in getattr(spec, "formula", spec):
            try:
                if spec is self._spec:
                    spec.subset([term]).get_model_matrix(data, **options)
                else:
                    Formula([term]).get_model_matrix(data, **options)
            except Exception:
                return str(term)
        return self.text

    def _numbers(self, matrix: Any, names: Sequence[str]) -> NDArray[np.float64]:
        values = matrix_of(getattr(matrix, "__wrapped__", matrix))
        strange = ~np.isfinite(values)
        if strange.any():
            row, j = np.argwhere(strange)[0]
            raise ValueError(
                f"term {names[j]!r} is not finite in {int(strange[:, j].sum())} rows, the first "
                f"{int(row)}."
            )
        return values[:, [name != CONSTANT for name in names]]

    def names_in(self, text: str, data: Any, whole: str) -> list[str]:
        """Names of the columns of some terms, that of the constant included.

        Raises
        ------
        ValueError
            If one is not a column of this design.
        """
        some, _ = Design.learn(text, data, self._context)
        missing = [name for name in some.names if name not in self.names]
        if some.constant and not self.constant:
            missing.insert(0, "1")
        if missing:
            raise ValueError(
                f"term {missing[0]!r} differs between groups in {whole!r}, and so must be among "
                "the terms of all groups too: its mean is estimated from them."
            )
        return [CONSTANT] * some.constant + some.names


def _names(text: str) -> set[str]:
    """Names in the expressions of terms, those of functions included."""
    import ast

    from formulaic import Formula

    found: set[str] = set()
    with _syntax(text):
        factors = [factor for term in Formula(text) for factor in term.factors]
    for text in (str(factor.expr) for factor in factors):
        found |= {text, *re.findall("`([^`]*)`", text)}
        try:
            tree = ast.parse(re.sub("`[^`]*`", "0", text), mode="eval")
        except SyntaxError:  # the name of a column, or what formulaic will refuse
            continue
        found |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return found


def _as_pandas(data: Any, texts: Sequence[str]) -> Any:
    """Put the columns that terms use in a frame of pandas, so that any frame is read alike."""
    import pandas as pd

    if isinstance(data, pd.DataFrame):
        return data
    columns = {name: values_of(data, name) for name in required(texts, column_names(data))}
    return pd.DataFrame(columns, index=range(len(data)))


def required(texts: Sequence[str], there: Sequence[str]) -> list[str]:
    """Columns, of those that are there, that these terms use."""
    used = {name for text in texts for name in _names(text)}
    return [name for name in there if name in used]


def evaluated(text: str) -> str:
    """Write a term whose signs are those of arithmetic: a response is no sum of terms."""
    return f"0 + {{{text}}}"


def response_of(text: str, data: Any, context: Mapping[str, Any] | None) -> NDArray:
    """Values of the response: a column, as it is, or an expression."""
    if (name := text.strip("`")) in column_names(data):
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

        if isinstance(error, FormulaicError):
            raise ValueError(f"{self.text!r} cannot be read: {_reason(error)}") from None


def _reason(error: Exception | Warning) -> str:
    """First line of a message, without colours."""
    plain = re.sub(r"\x1b?[⧛⧚]?\[[0-9;]*m[⧚⧛]?|[⧛⧚]", "", str(error))
    return " ".join(plain.split())
