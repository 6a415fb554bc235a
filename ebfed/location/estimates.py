"""Tables of estimates with standard errors, covariates and labels, read from what users have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ebfed.designs.design import Design
from ebfed.designs.terms import Terms
from ebfed.privacy.calibration import is_number
from ebfed.tables.clients import LARGEST, SMALLEST
from ebfed.tables.columns import Columns
from ebfed.tables.covariates import columns_of_units
from ebfed.tables.frames import Style, beside, frame
from ebfed.tables.rows import Rows
from ebfed.tables.values import NotNumericError, is_frame

__all__ = ["Estimates", "covariates_like"]

# Degrees of freedom with which the law of errors is computed.
FEWEST_DEGREES, MOST_DEGREES = 0.1, 1e10


@dataclass(frozen=True)
class Estimates:
    """Estimates, in the order of the first argument that has an index of pandas.

    Attributes
    ----------
    values, errors : ndarray of shape (n,)
        Estimates and standard errors.
    covariance : ndarray of shape (n, n) or None
        Covariance of the estimates, if that was given.
    covariates : ndarray of shape (n, k) or None
        Those of the mean, and then those of the spread that are not among them.
    names : list of k str
        Names of the covariates.
    labels : ndarray of shape (n,) or None
    style : Style
    degrees : ndarray of shape (n,) or None
        Degrees of freedom of the standard errors, infinite where errors are normal; None: all are.
    of_mean, of_spread : tuple of int
        Which covariates are those of the mean, and of the spread; `of_spread` is None if this is
        constant.
    formulas : pair of Design or None
        Formulas that gave these covariates.

    Examples
    --------
    >>> import pandas as pd
    >>> given = Estimates.read(pd.Series([1.0, 2.0], index=["a", "b"]), [0.5, 0.5])
    >>> given.labels.tolist(), given.has_data.tolist()
    (['a', 'b'], [True, True])
    """

    values: NDArray
    errors: NDArray
    covariance: NDArray | None
    covariates: NDArray | None
    names: list[str]
    labels: NDArray | None
    style: Style
    degrees: NDArray | None = None
    of_mean: tuple[int, ...] = ()
    of_spread: tuple[int, ...] | None = None
    formulas: tuple[Design | None, Design | None] = (None, None)

    @classmethod
    def read(
        cls,
        estimates: Any,
        std_errors: Any,
        covariates: Any = None,
        labels: Any = None,
        df: Any = None,
        *,
        mean: Any = None,
        spread: Any = None,
        data: Any = None,
        formulas: tuple[Design | None, Design | None] = (None, None),
        unit: str = "group",
    ) -> Self:
        """Read and check the arguments of `posterior_from`, or others that call them so.

        What the mean depends on is called `covariates` or `mean`. `formulas` are those of an
        earlier fit, whose columns the same texts mean. `unit` names labels without a name.

        Raises
        ------
        TypeError, ValueError
            As `posterior_from` does.
        """
        called = "covariates" if mean is None else "mean"
        given = {"estimates": estimates, "std_errors": std_errors}
        given |= {called: covariates if mean is None else mean, "labels": labels}
        given |= {"df": _degrees(df), "spread": spread, "data": data}
        figures = ["estimates", "std_errors", "df"]
        try:
            rows = Rows.of_units(given, figures, unit, covariance="std_errors", fill=True)
        except NotNumericError as error:
            other = (
                "estimates must be numbers, or a fitted regression with a covariance (of "
                "statsmodels, linearmodels, pyfixest): "
            )
            raise NotNumericError(f"{other * str(error).startswith('estimates')}{error}") from None
        values, errors, degrees = rows.X, rows.beside["std_errors"], rows.beside.get("df")
        covariance = _checked(errors) if errors.ndim == 2 else None
        if covariance is not None:
            errors = np.sqrt(np.diag(covariance))
        _check(values, errors)
        _check_degrees(degrees)
        tables = rows.tables
        table = None if data is None else Columns.of(tables["data"])
        of_mean = _Predictors.read(called, tables[called], errors, table, formulas[0])
        of_spread = _Predictors.read("spread", tables["spread"], errors, table, formulas[1])
        both, places = of_mean.with_those_of(of_spread)
        if degrees is not None and covariance is not None:
            raise ValueError(
                "df must be None with a covariance: errors of one regression are normal."
            )
        return cls(
            values,
            errors,
            covariance,
            None if tables[called] is None and spread is None else both.columns,
            both.names,
            rows.labels,
            rows.style,
            degrees,
            tuple(range(len(of_mean.names))),
            None if spread is None else places,
            (of_mean.formula, of_spread.formula),
        )

    @property
    def ids(self) -> NDArray:
        """Labels, shape (n,); estimates are numbered where they have none."""
        return np.arange(len(self.values)) if self.labels is None else self.labels

    @property
    def has_data(self) -> NDArray[np.bool_]:
        """Which estimates have a finite standard error, shape (n,)."""
        return np.isfinite(self.errors)

    @property
    def messages(self) -> tuple[NDArray, NDArray]:
        """Estimates and their variances, shape (n,): 0 and infinite where there is no estimate."""
        known = self.has_data
        return np.where(known, self.values, 0.0), np.where(known, self.errors, np.inf) ** 2


def covariates_like(given: Estimates, covariates: Any) -> NDArray:
    """Read covariates of new units, in the order of those of a fit.

    Raises
    ------
    ValueError
        If there were none in the fit, or other ones.
    """
    if not given.names:
        raise ValueError("covariates must be None: there were none in the fit.")
    if given.formulas[0] is not None:
        if not is_frame(covariates):
            raise TypeError(
                f"covariates must be a frame with the columns of '~ {given.formulas[0].text}'; got "
                f"{type(covariates).__name__}."
            )
        return given.formulas[0].of(covariates)
    return columns_of_units(covariates, "covariates", names=given.names)[0]


@dataclass(frozen=True)
class _Predictors:
    """Columns that mean or spread depends on, their names, and the formula that gave them."""

    columns: NDArray
    names: list[str]
    formula: Design | None = None

    @classmethod
    def read(
        cls, name: str, given: Any, errors: NDArray, table: Columns | None, past: Design | None
    ) -> Self:
        """Read a formula, or columns as they are; `past` is the formula of an earlier fit."""
        if given is None:
            return cls(np.empty((len(errors), 0)), [])
        if isinstance(given, str):
            return cls(*_of_formula(name, given, errors, table, past))
        return cls(*columns_of_units(given, name, len(errors)))

    def with_those_of(self, other: _Predictors) -> tuple[_Predictors, tuple[int, ...]]:
        """Add the columns of another that are not among these; also return the places of all."""
        columns, names, places = list(self.columns.T), list(self.names), []
        for column, name in zip(other.columns.T, other.names, strict=True):
            same = [i for i, x in enumerate(columns) if names[i] == name and (x == column).all()]
            places.append(same[0] if same else len(columns))
            if not same:
                columns.append(column)
                names.append(name)
        whole = np.reshape(columns, (len(columns), len(self.columns))).T
        return _Predictors(whole, names), tuple(places)


def _of_formula(
    name: str, text: str, errors: NDArray, table: Columns | None, past: Design | None
) -> tuple[NDArray, list[str], Design]:
    """Columns of a formula: of `data`, and of ``se`` unless that is a column of it."""
    before, tilde, terms = text.partition("~")
    if not tilde or before.strip():
        raise ValueError(f"{name} must be a formula such as '~ log(se)', or numbers; got {text!r}.")
    if table is None or "se" not in table.names:
        own = {"se": errors}
        native = frame(own, Style()) if table is None else beside(table.native, own)
        table = Columns.of(native)
    try:
        if past is not None and past.text == terms.strip():
            return past.of(table), past.names, past
        design, columns = Design.learn(terms.strip(), table, None)
    except ValueError as error:
        unknown = ~(np.isfinite(errors) & (errors > 0))
        rows = f" Estimate {int(np.argmax(unknown))} has no positive, finite standard error."
        more = rows if unknown.any() and "se" in Terms.of(terms.strip()).columns else ""
        raise ValueError(f"{name}={text!r}: {error}{more}") from None
    if not design.constant:
        raise ValueError(f"{name}={text!r} must keep its intercept.")
    return columns, design.names, design


def _degrees(df: Any) -> Any:
    """Return degrees of freedom; None where all errors are normal."""
    if is_number(df):
        _check_degrees(np.array([df], float))
    return None if is_number(df) and df == np.inf else df


def _check_degrees(degrees: NDArray | None) -> None:
    if degrees is None:
        return
    known = (degrees >= FEWEST_DEGREES) & (degrees <= MOST_DEGREES)
    if (wrong := ~(known | np.isposinf(degrees))).any():
        raise ValueError(
            f"df must be degrees of freedom from {FEWEST_DEGREES:g} to {MOST_DEGREES:g}, or "
            f"infinite for normal errors; got {float(degrees[wrong].flat[0])!r}."
        )


def _check(values: NDArray, errors: NDArray) -> None:
    has_data = np.isfinite(errors)
    if np.any(errors < 0):
        raise ValueError("std_errors must not be negative.")
    if not np.isfinite(values[has_data]).all():
        raise ValueError("estimates must be finite wherever their standard error is.")
    for sizes in (np.abs(values[has_data]), errors[has_data]):
        if sizes.max(initial=0.0) > LARGEST or 0 < sizes.max(initial=0.0) < SMALLEST:
            raise ValueError(
                f"estimates and std_errors must stay below {LARGEST:g}, and not all be smaller "
                f"than {SMALLEST:g}: their squares leave the range of float64. Rescale them."
            )


def _checked(covariance: NDArray) -> NDArray:
    """Return a covariance that is finite, symmetric and positive definite."""
    n = len(covariance)
    invalid = ~np.isfinite(covariance)
    if invalid.any():
        i, j = np.argwhere(invalid)[0]
        raise ValueError(
            f"std_errors is a covariance with {int(invalid.sum())} entries missing or infinite, "
            f"the first in row {i}, column {j}."
        )
    variances = np.diag(covariance)
    if not (variances > SMALLEST**2).all() or not (variances < LARGEST**2).all():
        raise ValueError(
            f"std_errors is a covariance whose diagonal must lie between {SMALLEST**2:g} and "
            f"{LARGEST**2:g}; it reaches from {variances.min():g} to {variances.max():g}."
        )
    size = np.sqrt(variances)
    correlation = covariance / size / size[:, None]
    if np.abs(correlation - correlation.T).max() > 1e-8:
        raise ValueError("std_errors is a covariance that is not symmetric.")
    covariance = (covariance + covariance.T) / 2
    eigenvalues = np.linalg.eigvalsh(covariance)
    if eigenvalues[0] <= 4 * n * np.finfo(float).eps * eigenvalues[-1]:
        raise ValueError(
            f"std_errors is a covariance that is not positive definite: its eigenvalues reach from "
            f"{eigenvalues[0]:.3g} to {eigenvalues[-1]:.3g}. Leave out an estimate that the others "
            "determine."
        )
    return covariance
