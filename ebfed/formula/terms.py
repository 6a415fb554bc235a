"""Terms of a formula and their columns, for tests of whole terms."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.formula.design import Design, as_pandas, formula_of
from ebfed.formula.limits import materialized
from ebfed.formula.names import plain_name
from ebfed.tables.columns import matrix_of

__all__ = ["contrasts_of_terms"]


def contrasts_of_terms(design: Design, data: Any, type: str) -> dict[str, NDArray[np.float64]]:
    """Return what is zero of the coefficients where a term does not matter.

    Parameters
    ----------
    design : Design
    data : data frame
        Rows of the fit.
    type : {"wald", "III"}
        All coefficients of the term's own columns; or those that it would have if factors were
        coded by contrasts that sum to zero, so that the others are averaged over, whatever their
        coding.

    Returns
    -------
    dict of ndarrays of shape (n, p)
        By term, the constant left out.

    Raises
    ------
    ValueError
        If not all combinations of factors that the terms of type III compare are there.
    """
    columns, places = _matrix(design, design.text, data)
    if type == "wald":
        unit = np.eye(columns.shape[1])
        return {name: unit[each] for name, each in places.items()}
    coded, others = _matrix(design, _sum_coded(design), data)
    if np.linalg.matrix_rank(coded) < coded.shape[1]:
        raise ValueError(
            "type='III' needs rows of all combinations of the factors of its terms; some are "
            "missing. type='wald' tests the coefficients of each term."
        )
    back = np.linalg.lstsq(coded, columns, rcond=None)[0]
    return {name: _reduced(back[each]) for name, each in zip(places, others.values(), strict=True)}


def _reduced(contrasts: NDArray) -> NDArray[np.float64]:
    """Write contrasts so that each has a first coefficient of 1 which the others do not have.

    Degrees of freedom of several contrasts together depend a little on how they are written.
    """
    reduced, row = contrasts / np.abs(contrasts).max(initial=1e-300), 0
    for column in range(reduced.shape[1]):
        if row == len(reduced):
            break
        best = row + int(np.argmax(np.abs(reduced[row:, column])))
        if abs(reduced[best, column]) < 1e-9:
            continue
        reduced[[row, best]] = reduced[[best, row]]
        reduced[row] /= reduced[row, column]
        others = np.arange(len(reduced)) != row
        reduced[others] -= np.outer(reduced[others, column], reduced[row])
        row += 1
    return np.where(np.abs(reduced) < 1e-9, 0.0, reduced)


def _matrix(design: Design, text: str, data: Any) -> tuple[NDArray, dict[str, list[int]]]:
    """Columns of terms, that of the constant included, and places of those of each other term."""
    table = as_pandas(data, [design.text], levels=True)
    for name in table.select_dtypes("category"):
        table[name] = table[name].cat.remove_unused_categories()
    matrix = materialized(formula_of(text), table, design.context)
    values = np.asarray(matrix_of(getattr(matrix, "__wrapped__", matrix)), float)
    found = matrix.model_spec.term_indices.items()
    named = [(":".join(str(factor.expr) for factor in term.factors), own) for term, own in found]
    return values, {plain_name(name): list(own) for name, own in named if name != "1"}


def _sum_coded(design: Design) -> str:
    """Write the terms with factors whose contrasts sum to zero."""
    terms = ["1" if design.constant else "0"]
    for term in formula_of(design.text):
        factors = [_coded(factor, factor.expr in design.factors) for factor in term.factors]
        if factors != ["1"]:
            terms.append(":".join(factors))
    return " + ".join(terms)


def _coded(factor: Any, categorical: bool) -> str:
    """Write a factor: ``x``, a column of another name in backticks, or a sum-coded one."""
    text = str(factor.expr)
    looked_up = factor.eval_method.value == "lookup"
    name = f"`{text}`" if looked_up else text
    if not categorical:
        return name if looked_up or text.isidentifier() or text.endswith(")") else f"{{{text}}}"
    call = None if looked_up else ast.parse(text, mode="eval").body
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "C":
        levels = [f", {ast.unparse(each)}" for each in call.keywords if each.arg == "levels"]
        name = ast.unparse(call.args[0])
        return f"C({name}, contr.sum{''.join(levels)})"
    return f"C({name}, contr.sum)"
