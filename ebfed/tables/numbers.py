"""What counts as numbers: no masked entries, times or complex numbers, and rarely booleans."""

from __future__ import annotations

import contextlib
import datetime
import inspect
import re
import warnings
from decimal import Decimal
from functools import cache
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.tables.alignment import index_of

__all__ = [
    "check_numeric",
    "check_single",
    "filled",
    "lacks_integer",
    "numbers",
    "plain",
    "unmasked",
    "validated",
]

# Objects that NumPy turns into numbers, in a unit that nobody chose.
TIMES = (np.datetime64, np.timedelta64, datetime.date, datetime.timedelta)


def unmasked(values: Any, name: str) -> Any:
    """Return values without their mask; a masked entry is missing, and never used.

    Parameters
    ----------
    values : array-like, masked array or anything else
    name : str
        Name of the argument in errors.

    Raises
    ------
    ValueError
        If an entry is masked.

    Examples
    --------
    >>> unmasked(np.ma.array([1.0, 2.0], mask=[False, False]), "X")
    array([1., 2.])
    """
    if not _has_masks(values):
        return values
    values = _masked_array(values)
    mask = np.ma.getmaskarray(values)
    if mask.any():
        first = np.argwhere(mask)[0].tolist() if mask.ndim else []
        where = f", the first in row {first[0]}" if first else ""
        raise ValueError(
            f"{name} has {int(mask.sum())} masked entries{where}; drop them or fill them in."
        )
    return values.data


def filled(values: Any, name: str) -> Any:
    """Return values with NaN for masked entries, where NaN says that there are no data.

    Raises
    ------
    ValueError
        If an entry of something else than numbers is masked.

    Examples
    --------
    >>> filled(np.ma.array([1, 2], mask=[False, True]), "estimates")
    array([ 1., nan])
    """
    if not _has_masks(values):
        return values
    values = _masked_array(values)
    if values.dtype.kind in "iuf":
        return values.astype(float).filled(np.nan)
    return unmasked(values, name)


def plain(values: Any) -> NDArray:
    """Return values as an array of one of few types: their own type and what they hold say which.

    Whole numbers are int64, other numbers float64, and truth values bool, of whatever size and byte
    order; also where objects are all numbers (such as ``Decimal``) or missing, which is NaN. The
    rest stays as it is: text, dates, objects of several kinds, truth values of which some are
    missing.

    Parameters
    ----------
    values : array-like, or series of pandas

    Examples
    --------
    >>> from decimal import Decimal
    >>> plain(np.array([Decimal("0.5"), None], object)), plain(np.array([1, 2], ">i2"))
    (array([0.5, nan]), array([1, 2]))
    """
    array = np.asarray(values)
    kind = array.dtype.kind
    if kind == "O":
        return _of_objects(array)
    if kind == "f":
        return array.astype(np.float64, copy=False)
    if array.dtype == np.int32 and (absent := lacks_integer(array)).any():
        return np.where(absent, np.nan, array)
    if kind in "iu" and (kind == "i" or array.max(initial=0) <= np.iinfo(np.int64).max):
        return array.astype(np.int64, copy=False)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def lacks_integer(array: NDArray) -> NDArray[np.bool_]:
    """Return a mask of R's missing integers, which reach Python as the smallest of 32 bits.

    Examples
    --------
    >>> lacks_integer(np.array([3, -(2**31)], np.int32)), lacks_integer(np.array([-(2**31)]))
    (array([False,  True]), array([False]))
    """
    if array.dtype.kind != "i" or array.dtype.itemsize != 4:
        return np.zeros(array.shape, bool)
    return array == np.iinfo(np.int32).min


def _of_objects(array: NDArray) -> NDArray:
    """Return objects that are all numbers as these, and others as they are."""
    import pandas as pd

    kind = pd.api.types.infer_dtype(array.ravel(), skipna=True)
    missing = pd.isna(array)
    if kind == "boolean":
        return array if missing.any() else array.astype(bool)
    if kind in ("mixed", "mixed-integer"):  # as of Decimal beside int
        known = array[~missing].tolist()
        if not all(isinstance(x, Real | Decimal) and not isinstance(x, bool) for x in known):
            return array
    elif kind not in ("integer", "floating", "mixed-integer-float", "decimal", "empty"):
        return array
    if kind == "integer" and not missing.any():
        with contextlib.suppress(OverflowError):
            return array.astype(np.int64)
    found = np.full(array.shape, np.nan)
    found[~missing] = array[~missing].astype(float)
    return found


def check_single(estimator: Any) -> None:
    """Refuse values of arguments that are of another kind than the default.

    Arguments that have arguments are looked into.

    Where the default is True or False, these are the only values. Where it is a number or text, a
    value may be a number, text, None, or an object with arguments of its own, but no array.

    Parameters
    ----------
    estimator : object
        Its arguments are attributes of the same names, as in scikit-learn.

    Raises
    ------
    ValueError

    Examples
    --------
    >>> from ebfed.models import Softmax
    >>> check_single(Softmax(fit_intercept=7))
    Traceback (most recent call last):
    ...
    ValueError: fit_intercept must be True or False; got 7.
    """
    kind: Any = type(estimator)
    for name, argument in _arguments(kind):
        value, default = getattr(estimator, name, None), argument.default
        for part in value.values() if isinstance(value, dict) else [value]:
            if hasattr(part, "get_params") and not isinstance(part, type):
                check_single(part)
        if isinstance(default, bool):
            if not isinstance(value, bool | np.bool_):
                raise ValueError(f"{name} must be True or False; got {value!r}.")
        elif isinstance(default, int | float | str) and "Array" not in str(argument.annotation):
            known = value is None or hasattr(value, "get_params") or isinstance(value, str | Real)
            known = known and not isinstance(value, np.timedelta64)  # a whole number, to NumPy
            words = isinstance(default, str) or "Literal" in str(argument.annotation)
            if not known or (isinstance(value, str) and not words):
                what = "text or a number" if isinstance(default, str) else "a number"
                raise ValueError(f"{name} must be {what}, such as {default!r}; got {value!r}.")


def validated(estimator: Any, X: Any, y: Any = None, *, reset: bool, **options: Any) -> Any:
    """Check rows as scikit-learn does, in errors that say whether it is `X` or `y`.

    Returns
    -------
    X : float64 ndarray of shape (n_rows, d)
        And y, where it was given.

    Raises
    ------
    ValueError, TypeError
    """
    from sklearn.utils.validation import validate_data

    given = {} if y is None else {"y": y}
    named = _named_matrix(X)
    if named is not None and options.keys() <= {"y_numeric"} and _are_valid(named, y):
        validate_data(estimator, X, skip_check_array=True, reset=reset)
        return named if y is None else (named, y)
    if options.keys() <= {"y_numeric"} and _are_valid(X, y):  # as most are: checks would find that
        if reset:  # arrays have no names to check
            estimator.n_features_in_ = X.shape[1]
            estimator.__dict__.pop("feature_names_in_", None)
        else:
            validate_data(estimator, X, skip_check_array=True, reset=False)
        return X if y is None else (X, y)
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # in the sum that looks for NaN
            return validate_data(estimator, X, **given, dtype=np.float64, reset=reset, **options)
    except (TypeError, ValueError, OverflowError) as error:
        message = str(error)
        if lacks := re.match(r"Input ([Xy]) contains (NaN|infinity)", message):
            name, kind_of_value = lacks.groups()
            text = _not_finite(X if name == "X" else y, name, kind_of_value == "NaN")
            raise ValueError(text) from None
        says_which = re.search(r"(?<!['\w])[Xy](?!['\w])", message)
        if says_which and type(error) in (TypeError, ValueError):
            raise
        name = "X"
        if y is not None and "feature" not in message:
            with contextlib.suppress(TypeError, ValueError, OverflowError):
                if np.asarray(X, np.float64).ndim == 2:
                    name = "y"
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(
            f"{name} must hold numbers, in one row for each observation: {message}"
        ) from None


def _named_matrix(X: Any) -> NDArray[np.float64] | None:
    """Return the values of a pandas frame of plain floats, which are not copied."""
    kinds = getattr(X, "dtypes", ())
    plain_floats = len(kinds) and all(kind == np.float64 for kind in kinds)
    return X.to_numpy() if plain_floats and hasattr(X, "to_numpy") else None


def _are_valid(X: Any, y: Any) -> bool:
    """Whether rows, and their responses if given, are finite numbers in plain arrays."""
    arrays = [X] if y is None else [X, y]
    if not all(type(each) is np.ndarray and each.dtype == np.float64 for each in arrays):
        return False
    if X.ndim != 2 or X.size == 0 or (y is not None and y.shape != X.shape[:1]):
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        return all(np.isfinite(each.sum()) for each in arrays)


def _not_finite(values: Any, name: str, missing: bool) -> str:
    """Say in which column a value is missing, or infinite, and where it is first."""
    columns = list(getattr(values, "columns", ()))
    with np.errstate(over="ignore"):  # of numbers of more than 64 bits
        cells = numbers(values, name, booleans=True)
    cells = cells[:, None] if cells.ndim == 1 else cells
    wrong = np.isnan(cells) if missing else np.isinf(cells)
    affected = np.flatnonzero(wrong.any(axis=0))
    j = int(affected[0])
    kind, found = ("missing", "NaN") if missing else ("infinite", "infinity")
    count, row = int(wrong[:, j].sum()), int(np.argmax(wrong[:, j]))
    column = f"column {columns[j] if columns else j!r} has "
    text = f"{count} {kind} value{'s' * (count > 1)}, the first in row {row}"
    if len(affected) > 1:
        text += f", and {len(affected) - 1} more with such values"
    named = column if columns or cells.shape[1] > 1 else ""
    return f"{name} contains {found}: {named}{text}; drop those rows or fill them in."


def check_numeric(values: Any, name: str) -> None:
    """Refuse times and complex numbers, which NumPy would turn into numbers.

    Raises
    ------
    TypeError
        For dates, times and durations.
    ValueError
        For complex numbers.

    Examples
    --------
    >>> check_numeric(np.array([1.0]), "X")
    """
    dtype = getattr(values, "dtype", None)
    if isinstance(values, list | tuple):
        try:
            values = np.asarray(values)
        except ValueError:  # of unequal lengths, which others refuse
            return
        dtype = values.dtype
    elif isinstance(values, TIMES):
        raise _times(name, type(values).__name__)
    kind = getattr(dtype, "kind", "")
    if kind == "O":
        for each in np.asarray(values).ravel():
            if isinstance(each, TIMES):
                raise _times(name, type(each).__name__)
            if isinstance(each, complex | np.complexfloating):
                kind = "c"
    if kind in ("M", "m"):
        raise _times(name, str(dtype))
    if kind == "c":
        raise ValueError(f"Complex data not supported: {name} holds complex numbers.")


def numbers(values: Any, name: str, *, booleans: bool = False) -> NDArray[np.float64]:
    """Return an argument as floats; booleans are numbers only where they are data.

    Raises
    ------
    TypeError
        If it holds anything but numbers.
    ValueError
        If an entry is masked, or complex.

    Examples
    --------
    >>> numbers([1, 2], "variances")
    array([1., 2.])
    """
    values = unmasked(values, name)
    check_numeric(values, name)
    if not booleans and _has_booleans(values):
        raise TypeError(f"{name} must be numbers; got booleans.")
    try:
        if type(values) is np.ndarray or index_of(values) is not None:
            found = plain(values)
            if (
                found.dtype.kind == "O" and index_of(values) is not None
            ):  # truth values, some missing
                found = values.to_numpy(float, na_value=np.nan)
            values = found
        return np.asarray(values, float)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"{name} must be numbers; got {values!r}.") from None


def _has_masks(values: Any) -> bool:
    if isinstance(values, list | tuple):
        return any(isinstance(each, np.ma.MaskedArray) for each in values)
    return isinstance(values, np.ma.MaskedArray)


def _masked_array(values: Any) -> np.ma.MaskedArray:
    with warnings.catch_warnings():  # of a masked entry in a list, which keeps its mask
        warnings.simplefilter("ignore", UserWarning)
        return np.ma.asarray(values)


def _has_booleans(values: Any) -> bool:
    if not hasattr(values, "dtype"):
        try:
            values = np.asarray(values, object)
        except ValueError:
            return False
    kind = getattr(values.dtype, "kind", "")
    if kind == "O":
        return any(isinstance(each, bool | np.bool_) for each in np.asarray(values).ravel())
    return bool(kind == "b")


def _times(name: str, kind: str) -> TypeError:
    return TypeError(
        f"{name} must be numbers; got dates or times ({kind}). Give the time since a date, in a "
        "unit of your choice."
    )


@cache
def _arguments(kind: type) -> list[tuple[str, inspect.Parameter]]:
    """Return the arguments of a class, and what is known of them."""
    return list(inspect.signature(kind).parameters.items())
