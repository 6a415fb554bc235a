"""Terms as columns of numbers, by formulaic, remembered for rows that come later."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.pushdown import column_names
from ebfed.tabular import matrix_of, values_of

__all__ = ["CONSTANT", "Design", "required", "response_of"]

# What formulaic calls the column of ones.
CONSTANT = "Intercept"


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
    _context: dict[str, Any] = field(default_factory=dict)

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
        context = context or {}
        kept = {name: context[name] for name in _outside(formula, data) if name in context}
        design = cls(text, _context=kept)
        matrix = design._build(formula, data)
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


def _outside(formula: Any, data: Any) -> list[str]:
    """Names that a formula uses and the frame does not have."""
    there = set(column_names(data))
    used = {str(name).split(".")[0] for term in formula for name in _variables(term)}
    return sorted(used - there)


def _variables(term: Any) -> set[str]:
    import ast

    found: set[str] = set()
    for factor in term.factors:
        try:
            tree = ast.parse(str(factor.expr), mode="eval")
        except SyntaxError:
            continue
        found |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return found


def required(texts: Sequence[str], there: Sequence[str]) -> list[str]:
    """Columns, of those that are there, that these terms use."""
    from formulaic import Formula

    used: set[str] = set()
    for text in texts:
        with _syntax(text):
            used |= {str(name) for name in Formula(text).required_variables}
    return [name for name in there if name in used]


def response_of(text: str, data: Any, context: Mapping[str, Any] | None) -> NDArray:
    """Values of the response: a column, as it is, or an expression."""
    if (name := text.strip("`")) in column_names(data):
        return values_of(data, name)
    design, values = Design.learn(f"0 + {text}", data, context)
    if values.shape[1] != 1:
        raise ValueError(
            f"response {text!r} must be one column; it comes to {', '.join(design.names)}. Of a "
            "condition, make a column of it first."
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
    import re

    plain = re.sub(r"\x1b?[⧛⧚]?\[[0-9;]*m[⧚⧛]?|[⧛⧚]", "", str(error))
    return " ".join(plain.split())
