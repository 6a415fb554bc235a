"""What a given column holds, decided once by its type and its entries: numbers, labels, classes.

No masked entry is used; times and complex numbers are no numbers, and booleans rarely. Labels are
checked here; `ebfed.tables.labels` numbers them.
"""

from __future__ import annotations

import contextlib
import datetime
import warnings
from collections.abc import Mapping
from decimal import Decimal
from numbers import Real
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "NA_VALUES",
    "PLAIN",
    "NotNumericError",
    "Read",
    "check_labels",
    "column",
    "dates_of_objects",
    "is_frame",
    "is_series",
    "label_array",
    "lacks_integer",
    "missing_in",
    "not_numeric",
    "numbers",
    "of_batch",
    "of_categories",
    "of_one_type",
    "plain",
    "read_labels",
    "read_response",
    "unmasked",
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
# What pandas calls objects that are dates or time spans.
CALENDAR = ("date", "datetime", "datetime64", "timedelta", "timedelta64")
# Characters of a value that errors show.
MOST_SHOWN = 60


class NotNumericError(TypeError, ValueError):
    """Something is no number: a value of the wrong type, as which both of these are known."""


def wrapped(X: Any, **kinds: bool) -> Any:
    """Return a table or series of any library as one of narwhals, and anything else as it is.

    Examples
    --------
    >>> import pandas as pd
    >>> wrapped([1.0]), wrapped(pd.Series([1.0]), series_only=True).implementation.is_pandas()
    ([1.0], True)

    Raises
    ------
    ValueError
        If two columns have one name.
    """
    if isinstance(X, PLAIN):
        return X
    import narwhals as nw

    if isinstance(X, nw.Series | nw.DataFrame | nw.LazyFrame):
        return X
    if type(X).__module__ == "pyarrow.lib" and hasattr(X, "dictionary_encode"):
        import pyarrow as pa

        X = pa.chunked_array([X]) if isinstance(X, pa.Array) else X  # which narwhals knows
    X = of_batch(X)
    try:
        return nw.from_native(X, pass_through=True, **kinds)
    except nw.exceptions.DuplicateError:
        names = list(getattr(X, "column_names", X.columns))  # of Arrow, or of pandas
        twice = next(name for j, name in enumerate(names) if name in names[:j])
        raise ValueError(f"the table has more than one column {twice!r}; rename one.") from None


def of_batch(X: Any) -> Any:
    """Return a batch of rows of Arrow as a table, which narwhals knows, and anything else as it is.

    Examples
    --------
    >>> import pyarrow as pa
    >>> of_batch(pa.record_batch({"x": [1, 2]})).num_rows, of_batch([1.0])
    (2, [1.0])
    """
    if type(X).__module__ == "pyarrow.lib" and type(X).__name__ == "RecordBatch":
        import pyarrow as pa

        return pa.Table.from_batches([X])
    return X


def is_frame(X: Any) -> bool:
    """Return whether `X` is a data frame in memory.

    Examples
    --------
    >>> import pandas as pd
    >>> is_frame(pd.DataFrame({"x": [1.0]})), is_frame([1.0])
    (True, False)
    """
    if isinstance(X, PLAIN):
        return False
    import narwhals as nw

    return isinstance(wrapped(X, eager_only=True), nw.DataFrame)


def is_series(X: Any) -> bool:
    """Return whether `X` is a series.

    Examples
    --------
    >>> import pandas as pd
    >>> is_series(pd.Series([1.0])), is_series([1.0])
    (True, False)
    """
    if isinstance(X, PLAIN):
        return False
    import narwhals as nw

    return isinstance(wrapped(X, series_only=True), nw.Series)


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


def dates_of_objects(values: NDArray, skipna: bool = False) -> NDArray:
    """Return objects as dates or time spans, if all of them are (or missing): times in UTC.

    Examples
    --------
    >>> import datetime
    >>> dates_of_objects(np.array([datetime.date(2020, 1, 2)], object))
    array(['2020-01-02'], dtype='datetime64[D]')
    """
    import pandas as pd

    kind = pd.api.types.infer_dtype(values, skipna=skipna) if values.ndim == 1 else ""
    if kind == "date" and not skipna:
        return values.astype("M8[D]")
    if kind in ("date", "datetime", "datetime64"):
        return pd.to_datetime(values, utc=True).tz_localize(None).to_numpy()
    if kind in ("timedelta", "timedelta64"):
        return pd.to_timedelta(values).to_numpy()
    if kind == "period":
        return pd.PeriodIndex(values).to_timestamp().to_numpy()
    return values


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
    if array.dtype.kind == "U" and isinstance(values, list | tuple):
        array = np.array(values, object)  # NumPy turns numbers beside text to text
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


def read_labels(labels: Any, name: str = "groups") -> NDArray:
    """Read labels from an array or a series of any library.

    Raises
    ------
    ValueError, TypeError
        If a label is missing, or labels are not a sequence.

    Examples
    --------
    >>> import pandas as pd
    >>> read_labels(pd.Series(["b", "a"])).tolist()
    ['b', 'a']
    """
    import narwhals as nw

    if isinstance(labels, str) or not np.iterable(labels):
        raise ValueError(f"{name} must be a sequence of labels, one per row; got {labels!r}.")
    series = wrapped(labels, series_only=True)
    if isinstance(series, nw.Series):
        return check_labels(label_array(series, name), name)
    return check_labels(cast(ArrayLike, labels), name)


def check_labels(labels: ArrayLike, name: str = "groups") -> NDArray:
    """Return labels as a one-dimensional array; integers become int64."""
    given = unmasked(labels, name)
    try:
        labels = np.asarray(given)
    except ValueError:
        raise ValueError(f"{name} must be one label per row; got lists of several.") from None
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise ValueError(
            f"{name} must be one label per row, a 1-D array; got shape {labels.shape}."
        )
    if isinstance(given, list | tuple) and labels.dtype.kind in "Uf":
        # NumPy turns numbers beside strings into strings, and large integers into floats
        objects = np.array(given, dtype=object)
        if labels.dtype.kind == "U" or not any(isinstance(label, float) for label in given):
            labels = objects
    text = False
    if labels.dtype.kind == "O":
        labels, text = _plain_labels(labels)
    if not labels.dtype.isnative:
        labels = labels.astype(labels.dtype.newbyteorder("="))
    if labels.dtype.kind in "iu":
        whole = labels.dtype != np.uint64 or labels.max(initial=0) <= np.iinfo(np.int64).max
        missing = lacks_integer(labels) if labels.dtype == np.int32 else np.zeros(0, bool)
        labels = labels.astype(np.int64, copy=False) if whole else labels
    elif labels.dtype.kind == "f":
        if labels.dtype.itemsize not in (4, 8):  # which pandas has no index of
            labels = labels.astype(np.float64)
        missing = ~np.isfinite(labels)
    elif labels.dtype.kind in "Mm":
        missing = np.isnat(labels)
    elif labels.dtype.kind == "O" and not text:
        import pandas as pd

        missing = pd.isna(labels)
        try:
            hash(tuple(labels.tolist()))
        except TypeError as error:
            raise TypeError(
                f"{name} must hold labels such as numbers or text, which can be compared: {error}."
            ) from None
    elif labels.dtype.kind == "c":
        raise TypeError(f"{name} must be labels that can be sorted; got complex numbers.")
    else:
        missing = np.zeros(0, bool)
    if missing.any():
        raise ValueError(
            f"{name} has {int(missing.sum())} missing or infinite labels, the first in row "
            f"{int(np.argmax(missing))}; drop those rows or give them a label."
        )
    return labels


def missing_in(series: Any) -> NDArray[np.bool_]:
    """Return a mask of the missing values of a series of narwhals, which takes long in pandas.

    Examples
    --------
    >>> import pandas as pd
    >>> missing_in(wrapped(pd.Series(["a", None]), series_only=True))
    array([False,  True])
    """
    pandas = series.implementation.is_pandas()
    found = series.to_native().isna() if pandas else series.is_null()
    return np.asarray(found.to_numpy(), bool)


def label_array(labels: Any, name: str) -> NDArray:
    """Return labels as an array: times in UTC, categories as their values."""
    import narwhals as nw

    missing = missing_in(labels)
    if missing.any():
        raise ValueError(
            f"{name} has {int(missing.sum())} missing labels, the first in row "
            f"{int(np.argmax(missing))}; drop those rows or give them a label."
        )
    labels = of_categories(labels)
    kind = labels.dtype  # asked once: it is slow in pandas
    if kind == nw.Datetime and kind.time_zone is not None:
        labels = labels.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    if kind == nw.String:
        return np.asarray(labels.to_list(), dtype=object)
    array = labels.to_numpy()
    return array.astype("M8[D]") if kind == nw.Date else array


def read_response(values: Any, name: str) -> NDArray:
    """Return a response as an array of a plain type: numbers, or labels of classes.

    Raises
    ------
    ValueError
        If an entry is masked, or there are several for a row.

    Examples
    --------
    >>> read_response(["yes", "no"], "y")
    array(['yes', 'no'], dtype=object)
    """
    import narwhals as nw

    series = wrapped(values, eager_only=True, allow_series=True)
    if isinstance(series, nw.DataFrame):
        if series.shape[1] != 1:
            raise ValueError(f"{name} must be one response for each row; got shape {series.shape}.")
        series = series[series.columns[0]]
    if isinstance(series, nw.Series):
        array = of_categories(series).to_numpy()
    else:
        given = unmasked(values, name)
        try:
            array = np.asarray(given)
        except ValueError as error:
            raise ValueError(f"{name} must be one response for each row: {error}") from None
        if array.dtype.kind == "U" and isinstance(given, list | tuple):
            array = np.array(given, object)  # NumPy turns numbers beside text to text
    if array.dtype.kind == "O":
        array = dates_of_objects(array)
    if array.dtype.kind == "c":
        return numbers(array, name)  # which refuses them
    if array.dtype.kind in "iu" and not lacks_integer(array).any():  # classes keep their type
        return array.astype(array.dtype.newbyteorder("="), copy=False)
    return plain(array)


def of_categories(series: Any) -> Any:
    """Return a series of narwhals whose categories are their values.

    Examples
    --------
    >>> import pandas as pd
    >>> of_categories(wrapped(pd.Series([7, 5], dtype="category"), series_only=True)).to_list()
    [7, 5]
    """
    import narwhals as nw

    if series.dtype not in (nw.Categorical, nw.Enum):
        return series
    native = series.to_native()
    if series.implementation.is_pandas_like():
        # integers have no type that can be missing
        values = native.astype(object if native.isna().any() else native.cat.categories.dtype)
    elif series.implementation.is_pyarrow():
        values = native.cast(native.type.value_type)
    else:
        return series.cast(nw.String)
    return nw.from_native(values, series_only=True)


def of_one_type(labels: NDArray, name: str) -> NDArray:
    """Return objects that are labels of classes as an array of the type that they have.

    Raises
    ------
    ValueError
        If they have several types that are no numbers, or are lists.

    Examples
    --------
    >>> of_one_type(np.array(["b", "a"], object), "y"), of_one_type(np.array([1, 2.5], object), "y")
    (array(['b', 'a'], dtype='<U1'), array([1. , 2.5]))
    """
    kinds = {type(label) for label in labels}
    try:
        found = np.array(labels.tolist())
    except ValueError as error:
        raise ValueError(f"{name} must be one label for each row: {error}") from None
    if len(kinds) > 1 and found.dtype.kind not in "bif":
        raise ValueError(
            f"{name} has labels of several types: "
            f"{', '.join(sorted(kind.__name__ for kind in kinds))}."
        )
    return found


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


def _numbers_of(column: Any, name: str, booleans: bool, table: Any = None) -> NDArray[np.float64]:
    """Return a series of narwhals, perhaps a column of a frame, as floats."""
    import narwhals as nw

    kind, array = column.dtype, None
    empty = kind == nw.String and bool(missing_in(column).all())  # as objects that are all None
    if empty or kind in (nw.Object, nw.Unknown, nw.Decimal, nw.Int32):
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


def _plain_labels(labels: NDArray) -> tuple[NDArray, bool]:
    """Return objects as numbers or dates, if all of them are; and whether all are strings."""
    import pandas as pd

    kind = pd.api.types.infer_dtype(labels, skipna=False)
    if kind in CALENDAR:
        labels = dates_of_objects(labels)
    elif kind == "mixed-integer-float":
        labels = plain(labels)
    elif kind in ("integer", "boolean", "floating"):
        # integers beyond 64 bits stay objects
        with contextlib.suppress(OverflowError):
            labels = labels.astype({"integer": np.int64, "boolean": bool, "floating": float}[kind])
    return labels, kind == "string"


def _shown(values: Any) -> str:
    """Return values as an error shows them, in a few words."""
    if isinstance(values, np.ndarray) and values.size:
        first = repr(values.ravel()[:1].tolist()[0])
        return f"{first}, …" if values.size > 1 else first
    text = repr(values)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"


def _has_masks(values: Any) -> bool:
    if isinstance(values, list | tuple):
        return any(isinstance(each, np.ma.MaskedArray) for each in values)
    return isinstance(values, np.ma.MaskedArray)


def _masked_array(values: Any) -> np.ma.MaskedArray:
    with warnings.catch_warnings():  # of a masked entry in a list, which keeps its mask
        warnings.simplefilter("ignore", UserWarning)
        return np.ma.asarray(values)
