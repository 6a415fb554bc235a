"""What counts as numbers: no masked entries, times or complex numbers, and rarely booleans."""

from __future__ import annotations

import contextlib
import datetime
import inspect
import warnings
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import cache
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "NA_VALUES",
    "NotNumericError",
    "Read",
    "check_finite",
    "check_single",
    "column",
    "lacks_integer",
    "not_numeric",
    "numbers",
    "plain",
    "unmasked",
    "validated",
    "wrapped",
]

# Words that say, among numbers or truth values, that there is none; they are text otherwise.
NA_VALUES = ("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None")


class Read:
    """What was read already: no table of a library."""


# Types that are no frame or series of any library; narwhals would look at all libraries.
PLAIN = (np.ndarray, list, tuple, str, Mapping, type(None), Read)
# Objects that Python or NumPy takes for whole numbers.
NO_NUMBERS = (bool, np.bool_, np.timedelta64)
# Objects that NumPy turns into numbers, in a unit that nobody chose.
DATES = (np.datetime64, np.timedelta64, datetime.date, datetime.timedelta)
# What pandas calls objects that are dates or times.
TIMES = {"date", "datetime", "datetime64", "timedelta", "timedelta64", "time", "period", "interval"}
# Characters of a value that errors show.
MOST_SHOWN = 60


class NotNumericError(TypeError, ValueError):
    """Something is no number: a value of the wrong type, as which both of these are known."""


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


def plain(values: Any) -> NDArray:
    """Return values as an array of one of few types: their own type and what they hold say which.

    Whole numbers are int64, other numbers float64, and truth values bool, of whatever size and byte
    order; also where objects are all numbers (such as ``Decimal``) or missing, which is NaN, as are
    the words of `NA_VALUES` among numbers. The rest stays as it is: text, dates, objects of several
    kinds, truth values of which some are missing.

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
    given, missing = array, np.asarray(pd.isna(array), bool)
    if kind in ("mixed", "mixed-integer"):  # perhaps of text beside numbers
        words = [isinstance(each, str) and each in NA_VALUES for each in array.flat]
        missing |= np.reshape(words, array.shape)
        if any(words):
            array = array.copy()
            array[missing] = None
            kind = pd.api.types.infer_dtype(array.ravel(), skipna=True)
    if kind == "boolean":
        return array if missing.any() else array.astype(bool)
    if kind in ("mixed", "mixed-integer"):  # as of Decimal beside int
        known = array[~missing].tolist()
        if any(not isinstance(x, Real | Decimal) or isinstance(x, NO_NUMBERS) for x in known):
            return given
    elif kind not in ("integer", "floating", "mixed-integer-float", "decimal", "empty"):
        return given
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


def numbers(
    values: Any, name: str, *, booleans: bool = False, fill: bool = False
) -> NDArray[np.float64]:
    """Return an argument as floats: the one rule of what is a number, and what is not.

    Integers and floats of any size and byte order are, those of nullable and Arrow types,
    ``Decimal`` and other objects that are numbers. Text is not, even of digits; nor are
    categories, dates, times and complex numbers, whatever library holds them. A missing one is NaN.

    Parameters
    ----------
    values : array-like, series or data frame of any library
    name : str
        Name of the argument in errors.
    booleans : bool
        Whether True and False are numbers, as where they are data.
    fill : bool
        Whether a masked entry is NaN, as where that says that there are no data; else an error.

    Raises
    ------
    NotNumericError
        If it holds anything but numbers: a TypeError, and a ValueError.
    ValueError
        If an entry is masked.

    Examples
    --------
    >>> from decimal import Decimal
    >>> numbers([1, 2], "variances"), numbers([Decimal("0.5"), None], "variances")
    (array([1., 2.]), array([0.5, nan]))
    """
    if type(values) is np.ndarray and values.dtype == np.float64:
        return values
    if not isinstance(values, PLAIN):
        import narwhals as nw

        table = wrapped(values, eager_only=True, allow_series=True)
        if isinstance(table, nw.DataFrame):
            native = table.to_native()
            if table.implementation.is_pandas() and _are_floats(native):
                return native.to_numpy()
            columns = (_numbers_of(each, name, booleans, table) for each in table.iter_columns())
            return np.column_stack([*columns]) if table.shape[1] else np.empty(table.shape)
        if isinstance(table, nw.Series):
            return _numbers_of(table, name, booleans)
    if _has_masks(values):
        given: Any = _masked_array(values)
        if fill and given.dtype.kind in "iuf":
            return given.astype(float).filled(np.nan)
        values = unmasked(values, name)
    try:
        array = np.asarray(values)
    except ValueError:
        raise NotNumericError(f"{name} must be numbers; got {_shown(values)}.") from None
    if not booleans and array.dtype.kind == "f" and isinstance(values, list | tuple):
        mixed = any(isinstance(each, bool | np.bool_) for each in values)
        array = np.array([True]) if mixed else array
    return _of_array(array, name, booleans, values)


def column(
    values: Any, name: str, *, booleans: bool = False, fill: bool = False
) -> NDArray[np.float64]:
    """Return numbers, those of a single column in one dimension; see `numbers`.

    Examples
    --------
    >>> column([[1.0], [2.0]], "exposure")
    array([1., 2.])
    """
    found = numbers(values, name, booleans=booleans, fill=fill)
    return found[:, 0] if found.ndim == 2 and found.shape[1] == 1 else found


def _numbers_of(column: Any, name: str, booleans: bool, table: Any = None) -> NDArray[np.float64]:
    """Return a series of narwhals, perhaps a column of a frame, as floats."""
    import narwhals as nw

    kind, array = column.dtype, None
    if kind in (nw.Object, nw.Unknown, nw.Decimal, nw.Int32):
        array = plain(column.to_numpy())  # of Decimal, of another byte order, of R
    elif kind == nw.Boolean and not booleans:
        array = np.ones(1, bool)
    elif kind.is_numeric() or kind == nw.Boolean:
        whole = column.cast(nw.Float64).fill_null(np.nan) if column.null_count() else column
        array = whole.to_numpy()
    try:
        if array is not None:
            return _of_array(array, name, booleans, array)
    except NotNumericError:
        if table is None:
            raise
    if table is not None:
        raise not_numeric(column.name, name, kind)
    times = " Give the time since a date, in a unit of your choice." * kind.is_temporal()
    what = "dates or times" if kind.is_temporal() else "a series"
    raise NotNumericError(f"{name} must be numbers; got {what} ({kind}).{times}")


def _of_array(array: NDArray, name: str, booleans: bool, given: Any) -> NDArray[np.float64]:
    """Return an array as floats; `given` is what errors show."""
    array = plain(array)
    kind: str = array.dtype.kind
    if kind == "O":
        content, known = _content(array)
        if content == "boolean" and (booleans or not known.any()):
            found = np.full(array.shape, np.nan)
            found[known] = array[known].astype(float)
            return found
        kind = {"boolean": "b", "complex": "c"}.get(content, "M" if content in TIMES else "O")
    if kind in "iuf" or (kind == "b" and booleans):
        return array.astype(np.float64, copy=False)
    if kind == "b":
        raise NotNumericError(f"{name} must be numbers; got booleans.")
    if kind == "c":
        raise NotNumericError(
            f"{name} must be numbers. Complex data not supported: {name} holds complex numbers."
        )
    if kind in "Mm":
        what = type(array.flat[0]).__name__ if array.dtype.kind == "O" else array.dtype
        raise NotNumericError(
            f"{name} must be numbers; got dates or times ({what}). Give the time since a date, in "
            "a unit of your choice."
        )
    reason = "text"
    try:
        array.astype(float)
    except (TypeError, ValueError) as error:
        reason = str(error)
    raise NotNumericError(f"{name} must be numbers; got {_shown(given)} ({reason}).")


def not_numeric(column: str, name: str, kind: Any) -> NotNumericError:
    """Return the error of a column of an argument, of a type of narwhals, that has no numbers.

    Examples
    --------
    >>> print(not_numeric("city", "X", "String"))
    column 'city' of X is String, not numeric; code it in columns of numbers, or select those that \
are.
    """
    return NotNumericError(
        f"column {column!r} of {name} is {kind}, not numeric; code it in columns of numbers, or "
        "select those that are."
    )


def _content(array: NDArray) -> tuple[str, NDArray[np.bool_]]:
    """Return what objects are, as pandas calls it, and which of them are not missing."""
    import pandas as pd

    flat = array.ravel()
    known = ~np.asarray(pd.isna(flat), bool).reshape(array.shape)
    content = pd.api.types.infer_dtype(flat, skipna=True)
    if content.startswith("mixed"):
        for each in flat:
            if isinstance(each, complex | np.complexfloating):
                return "complex", known
            if isinstance(each, DATES):
                return "date", known
    return content, known


def _are_floats(X: Any) -> bool:
    """Tell whether all columns of a frame of pandas are floats of 64 bits."""
    return bool(len(X.columns)) and all(dtype == np.float64 for dtype in X.dtypes.unique())


def _shown(values: Any) -> str:
    """Return values as an error shows them, in a few words."""
    if isinstance(values, np.ndarray) and values.size:
        first = repr(values.ravel()[:1].tolist()[0])
        return f"{first}, …" if values.size > 1 else first
    text = repr(values)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"


def wrapped(X: Any, **kinds: bool) -> Any:
    """Return a table or series of any library as one of narwhals, and anything else as it is.

    Examples
    --------
    >>> import pandas as pd
    >>> wrapped([1.0]), wrapped(pd.Series([1.0]), series_only=True).implementation.is_pandas()
    ([1.0], True)
    """
    if isinstance(X, PLAIN):
        return X
    import narwhals as nw

    if isinstance(X, nw.Series | nw.DataFrame | nw.LazyFrame):
        return X
    if type(X).__module__ == "pyarrow.lib" and hasattr(X, "dictionary_encode"):
        import pyarrow as pa

        X = pa.chunked_array([X]) if isinstance(X, pa.Array) else X  # which narwhals knows
    return nw.from_native(X, pass_through=True, **kinds)


def _has_masks(values: Any) -> bool:
    if isinstance(values, list | tuple):
        return any(isinstance(each, np.ma.MaskedArray) for each in values)
    return isinstance(values, np.ma.MaskedArray)


def _masked_array(values: Any) -> np.ma.MaskedArray:
    with warnings.catch_warnings():  # of a masked entry in a list, which keeps its mask
        warnings.simplefilter("ignore", UserWarning)
        return np.ma.asarray(values)


@cache
def _arguments(kind: type) -> list[tuple[str, inspect.Parameter]]:
    """Return the arguments of a class, and what is known of them."""
    return list(inspect.signature(kind).parameters.items())
