"""Formulas whose terms are columns: an estimator, and the columns of each argument of `fit`.

Nodes of a federation read columns of their tables, and compute nothing that another party has
written. So a formula for them names columns.
"""

from __future__ import annotations

import re
from typing import Any

from ebfed.engines import Estimator
from ebfed.formula.choice import check_location, choose, following
from ebfed.formula.design import CONSTANT, Design
from ebfed.formula.grammar import FormulaTerms, parse
from ebfed.formula.names import column_name, plain_name
from ebfed.formula.terms import Terms
from ebfed.location.base import LocationEstimator

__all__ = ["model_of_columns"]

ADVICE = "nodes read columns and compute none; make a column of it in their tables, and name that"


def model_of_columns(
    formula: str, family: str = "gaussian"
) -> tuple[Estimator, dict[str, str | list[str]]]:
    """Translate a formula of columns.

    Parameters
    ----------
    formula : str
        As for `from_formula`, of one estimator for each form: ``y ~ x + (1 + x | g)`` is `LinearEB`
        or `LogisticEB`, ``y ~ 1 + (1 | g)`` is `GaussianEB`, `BernoulliEB` or `PoissonEB`.
    family : {"gaussian", "binomial", "poisson"}

    Returns
    -------
    estimator : Estimator
        Not fitted.
    rows : dict
        Column of each argument of `fit`.

    Raises
    ------
    ValueError
        If a term is not a column, such as ``log(x)``, ``a:b`` or ``C(kind)``, or the formula is
        wrong.

    Examples
    --------
    >>> estimator, rows = model_of_columns("score ~ age + (1 | ward)")
    >>> estimator
    LinearEB(varying=['intercept'])
    >>> rows
    {'groups': 'ward', 'X': ['age'], 'y': 'score'}
    """
    model = parse(formula)
    if model.counts:
        raise ValueError(f"{model.text!r}: each row has an outcome of its own, 0 or 1; not counts.")
    if model.above:
        raise ValueError(f"{model.text!r}: formulas of nodes have one level of groups.")
    names, constant = _columns(model.fixed)
    design = Design(model.fixed, names, constant)
    response = _column(model.response)
    estimator: Any = choose(model, design, family, None)
    rows: dict[str, str | list[str]] = {"groups": model.group}
    varying = None if model.varying is None else [_varying(model, design)]
    if not isinstance(estimator, LocationEstimator):
        if model.offset:
            raise ValueError(f"offset({model.offset}): nodes take no offset beside columns.")
        return following(estimator, model, design, varying), rows | {"X": names, "y": response}
    check_location(estimator, model, design, varying)
    if names:
        raise ValueError(f"term {names[0]!r}: nodes take no covariates of groups.")
    if model.offset:
        logarithm = re.fullmatch(r"(?:np\.)?log\((.+)\)", model.offset)
        rows["exposure"] = _column(logarithm[1] if logarithm else model.offset)
    return estimator, rows | {"X": [response]}


def _columns(text: str) -> tuple[list[str], bool]:
    """Columns of terms, and whether the constant is among them."""
    names, constant = [], False
    for term, factors in Terms.of(text).each:
        if factors == (("literal", "1"),):
            constant = True
        elif len(factors) == 1 and factors[0][0] == "lookup":
            names.append(plain_name(factors[0][1]))
        else:
            raise ValueError(f"term {term!r} is no column: {ADVICE}.")
    return names, constant


def _column(text: str) -> str:
    """Column of a response or an exposure."""
    if not (text.isidentifier() or re.fullmatch(r"`[^`]+`", text)):
        raise ValueError(f"{text!r} is no column: {ADVICE}.")
    return column_name(text)


def _varying(model: FormulaTerms, design: Design) -> list[str]:
    names, constant = _columns(str(model.varying))
    missing = [name for name in names if name not in design.names]
    if missing or constant > design.constant:
        raise design.lacking(missing[0] if missing else "1", f"({model.varying} | {model.group})")
    return [CONSTANT] * constant + names
