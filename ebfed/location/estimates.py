"""Tables of estimates with standard errors, covariates and labels, read from what users have."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ebfed.privacy.calibration import is_number
from ebfed.tables.alignment import aligned, index_of
from ebfed.tables.clients import LARGEST, SMALLEST
from ebfed.tables.covariates import read_covariates
from ebfed.tables.frames import Style, is_frame, labels_of_units
from ebfed.tables.lazy import column_names
from ebfed.tables.numbers import NotNumericError, numbers

__all__ = ["Estimates", "check_level", "covariates_like"]

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
    names : list of k str
        Names of the covariates.
    labels : ndarray of shape (n,) or None
    style : Style
    degrees : ndarray of shape (n,) or None
        Degrees of freedom of the standard errors, infinite where errors are normal; None: all are.

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

    @classmethod
    def read(
        cls,
        estimates: Any,
        std_errors: Any,
        covariates: Any = None,
        labels: Any = None,
        df: Any = None,
    ) -> Self:
        """Read and check the arguments of `posterior_from`.

        Raises
        ------
        TypeError, ValueError
            As `posterior_from` does.
        """
        given = _paired(estimates, std_errors, covariates, labels, df)
        estimates, std_errors, covariates, labels, df = given
        values, errors = _numbers(estimates, "estimates"), _numbers(std_errors, "std_errors")
        n = len(values) if values.ndim == 1 else -1
        if errors.ndim == 0 and np.isfinite(errors):
            errors = np.full(values.shape, errors)
        if errors.shape not in ((n,), (n, n)) or errors.shape == (0, 0):
            raise ValueError(
                f"estimates and std_errors must be one-dimensional and of one length, or "
                f"std_errors a covariance of shape (n, n); they have shapes {values.shape} and "
                f"{errors.shape}."
            )
        labels, style = labels_of_units(estimates, labels, n)
        covariance = _checked(errors) if errors.ndim == 2 else None
        if covariance is not None:
            errors = np.sqrt(np.diag(covariance))
        _check(values, errors)
        found, names = _covariates(covariates, n)
        degrees = _degrees(df, n)
        if degrees is not None and covariance is not None:
            raise ValueError(
                "df must be None with a covariance: errors of one regression are normal."
            )
        return cls(values, errors, covariance, found, names, labels, style, degrees)

    def called(self, unit: str) -> Self:
        """Name the column of labels, if they have no name."""
        if self.style.group != "group":
            return self
        return replace(self, style=replace(self.style, group=unit))

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


def check_level(level: float) -> None:
    """Refuse what is no level of an interval."""
    if isinstance(level, bool) or not isinstance(level, int | float) or not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1; got {level!r}.")


def covariates_like(given: Estimates, covariates: Any) -> NDArray:
    """Read covariates of new units, in the order of those of a fit.

    Raises
    ------
    ValueError
        If there were none in the fit, or other ones.
    """
    if not given.names:
        raise ValueError("covariates must be None: there were none in the fit.")
    if hasattr(covariates, "to_numpy") and not is_frame(covariates):
        covariates = numbers(covariates, "covariates", booleans=True)
    n = len(covariates)
    columns = column_names(covariates) if is_frame(covariates) else covariates
    if is_frame(covariates):
        missing = [name for name in given.names if name not in columns]
        if missing:
            raise ValueError(f"covariates lack the column {missing[0]!r}, which the fit had.")
        columns = given.names
    return read_covariates(columns, covariates, None, np.arange(n), names=given.names)[0]


def _covariates(covariates: Any, n: int) -> tuple[NDArray | None, list[str]]:
    if covariates is None:
        return None, []
    names = None
    if hasattr(covariates, "to_numpy") and not is_frame(covariates):
        name = getattr(covariates, "name", None)
        names = [name] if isinstance(name, str) and name else None
        # a series, in the order of the estimates by now
        covariates = numbers(covariates, "covariates", booleans=True)
    columns = column_names(covariates) if is_frame(covariates) else covariates
    return read_covariates(columns, covariates, None, np.arange(n), names=names)


def _paired(estimates: Any, std_errors: Any, covariates: Any, labels: Any, df: Any) -> tuple:
    """Put what has an index of pandas in the order of the first of them; a covariance both ways."""
    given = {"estimates": estimates, "std_errors": std_errors}
    given |= {"covariates": covariates, "labels": labels, "df": df}
    given = aligned(given, rows=False)
    if index_of(std_errors) is not None and np.ndim(std_errors) == 2:
        turned = {"rows of std_errors": given["std_errors"]}
        turned["columns of std_errors"] = given["std_errors"].T
        turned = aligned(turned, rows=False)
        # labels, and so names of columns, may be repeated
        given["std_errors"] = turned["columns of std_errors"].T.to_numpy()
    return tuple(given.values())


def _numbers(values: Any, name: str) -> NDArray:
    try:
        found = numbers(values, name, booleans=name == "estimates", fill=True)
    except NotNumericError as error:
        other = (
            f"{name} must be numbers, or a fitted regression with a covariance (of statsmodels, "
            "linearmodels, pyfixest): "
        )
        raise NotNumericError(f"{other * (name == 'estimates')}{error}") from None
    return found[:, 0] if found.ndim == 2 and found.shape[1] == 1 < len(found) else found


def _degrees(df: Any, n: int) -> NDArray | None:
    """Degrees of freedom of each estimate; None where errors are normal."""
    if df is None:
        return None
    given = np.asarray(df, float) if np.ndim(df) == 0 and is_number(df) else _numbers(df, "df")
    if given.shape not in ((), (n,)):
        raise ValueError(f"df must be a number, or one for each of {n} estimates; got {df!r}.")
    wrong = ~(((given >= FEWEST_DEGREES) & (given <= MOST_DEGREES)) | np.isposinf(given))
    if wrong.any():
        raise ValueError(
            f"df must be degrees of freedom from {FEWEST_DEGREES:g} to {MOST_DEGREES:g}, or "
            f"infinite for normal errors; got {float(given[wrong].flat[0])!r}."
        )
    return np.broadcast_to(given, n).astype(float)


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
