"""Features of rows, checked as scikit-learn does: number, names, and that all are finite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["check_finite", "validated"]


def validated(
    estimator: Any,
    values: NDArray[np.float64],
    columns: Sequence[Any] | None = None,
    *,
    reset: bool,
    single: bool = False,
) -> NDArray[np.float64]:
    """Check features as scikit-learn does, in one pass where nothing is wrong.

    Parameters
    ----------
    estimator : object
        It has the number and the names of the features of a fit.
    values : float64 ndarray
        As `numbers` returns them.
    columns : sequence, optional
        Names of the columns of a frame.
    reset : bool
        Whether this is the fit.
    single : bool
        Whether one-dimensional values are a single feature.

    Returns
    -------
    float64 ndarray of shape (n_rows, d)

    Raises
    ------
    ValueError
    """
    import pandas as pd
    from sklearn.utils.validation import check_array, validate_data

    values = values[:, None] if single and values.ndim == 1 else values
    if columns is not None and not len(columns):
        raise ValueError("X has no column but those of labels; nothing to estimate.")
    if values.ndim != 2 or not values.size:
        check_array(values, estimator=estimator)  # which refuses it
    if reset and columns is not None and len(columns) and all(type(x) is str for x in columns):
        estimator.n_features_in_ = values.shape[1]  # what scikit-learn would find in a frame
        estimator.feature_names_in_ = np.array(columns, object)
    elif columns is not None or not reset:
        given = values if columns is None else pd.DataFrame(values, columns=columns, copy=False)
        validate_data(estimator, given, skip_check_array=True, reset=reset)
    else:  # arrays have no names to check
        estimator.n_features_in_ = values.shape[1]
        estimator.__dict__.pop("feature_names_in_", None)
    check_finite(values, "X", columns)
    return values


def check_finite(
    values: NDArray[np.float64], name: str, columns: Sequence[Any] | None = None
) -> None:
    """Refuse numbers that are missing or infinite; say in which column, and where first.

    Raises
    ------
    ValueError

    Examples
    --------
    >>> check_finite(np.array([1.0]), "y")
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum()):
            return
    cells = values[:, None] if values.ndim == 1 else values
    missing = bool(np.isnan(cells).any())
    wrong = np.isnan(cells) if missing else np.isinf(cells)
    affected = np.flatnonzero(wrong.any(axis=0))
    if not len(affected):
        return
    j = int(affected[0])
    kind, found = ("missing", "NaN") if missing else ("infinite", "infinity")
    count, row = int(wrong[:, j].sum()), int(np.argmax(wrong[:, j]))
    named = f"column {(j if columns is None else columns[j])!r} has "
    text = f"{count} {kind} value{'s' * (count > 1)}, the first in row {row}"
    if len(affected) > 1:
        text += f", and {len(affected) - 1} more with such values"
    column = named if columns is not None or cells.shape[1] > 1 else ""
    raise ValueError(f"{name} contains {found}: {column}{text}; drop those rows or fill them in.")
