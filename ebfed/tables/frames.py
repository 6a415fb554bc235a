"""Frames in, frames out: how results look that are of the library and labels of the caller.

A `Style` has the library of a frame, and the names and types of its labels. `frame` builds a result
in that style, so labels keep their type. `ebfed.tables.rows` reads the rows themselves.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from ebfed.tables.alignment import labels_of
from ebfed.tables.values import PLAIN, check_labels, label_array, read_labels, wrapped

__all__ = [
    "Style",
    "backend_of",
    "beside",
    "frame",
    "indexed_like",
    "series_of",
    "style_for",
    "style_of",
    "style_of_levels",
    "style_of_rows",
    "titles",
]


# Libraries of frames that are optional, and the extras that install them.
EXTRAS = {"polars": "polars", "pyarrow": "parquet"}


@dataclass(frozen=True)
class Style:
    """Library, names and types of results.

    Attributes
    ----------
    backend : str
        Library of the frames.
    group : str
        Name of the group column.
    dtype : narwhals data type or None
        Type of the labels in the input.
    native : data type or None
        Type of the labels in the library itself, for categories and nullable types of pandas.
    above : tuple of Style
        Names and types of the columns of the levels above, from the outermost.
    rows : ndarray or None
        Labels of rows that are groups of their own, and so are numbered: those of their index.
    """

    backend: Any = "pandas"
    group: str = "group"
    dtype: Any = None
    native: Any = field(default=None, compare=False)
    above: tuple[Style, ...] = ()
    rows: NDArray | None = field(default=None, compare=False)

    def using(self, backend: str) -> Style:
        """Return the style with another library.

        Raises
        ------
        ImportError
            If that library is not installed.
        """
        if backend in EXTRAS and find_spec(backend) is None:
            raise ImportError(f'{backend} is not installed: pip install "ebfed[{EXTRAS[backend]}]"')
        return replace(
            self, backend=backend, native=None if backend != self.backend else self.native
        )

    def unlabelled(self) -> Style:
        """Return the style without the type of labels, which may have all of them."""
        above = tuple(each.unlabelled() for each in self.above)
        return Style(self.backend, self.group, above=above)

    def as_data(self) -> dict[str, Any]:
        """Return the style as plain data, from which `of_data` makes it again.

        Examples
        --------
        >>> import pandas as pd
        >>> style = style_of(pd.Series(["a"], name="city", dtype="category"))
        >>> style.as_data()["native"]["categories"]
        array(['a'], dtype=object)
        >>> Style.of_data(style.as_data()) == style
        True
        """
        native: Any = None
        if isinstance(self.native, pd.CategoricalDtype):
            categories = np.asarray(self.native.categories)
            native = {"categories": categories, "ordered": bool(self.native.ordered)}
        elif self.native is not None and pd.api.types.pandas_dtype(str(self.native)) == self.native:
            native = str(self.native)
        known = self.dtype is None or isinstance(native, dict)  # as that of the library says
        dtype = None if known else repr(self.dtype)
        data = {"backend": self.backend, "group": self.group, "dtype": dtype, "native": native}
        data |= {} if self.rows is None else {"rows": self.rows}
        return data | {"above": [each.as_data() for each in self.above]}

    @classmethod
    def of_data(cls, data: Mapping[str, Any]) -> Style:
        """Make a style of plain data.

        Raises
        ------
        ValueError
            If there is no such type of labels.
        """
        native = data["native"]
        if isinstance(native, dict):
            native = pd.CategoricalDtype(native["categories"], native["ordered"])
        elif native is not None:
            native = pd.api.types.pandas_dtype(native)
        dtype = None if data["dtype"] is None else _type_of(data["dtype"])
        if isinstance(native, pd.CategoricalDtype):
            dtype = style_of(pd.Series([], dtype=native)).dtype
        above = tuple(map(cls.of_data, data["above"]))
        named = str(data["backend"]), str(data["group"])
        return cls(*named, dtype, native, above, data.get("rows"))

    def avoiding(self, names: Iterable[str]) -> Style:
        """Rename the group column if a result has its name."""
        return replace(self, group=f"{self.group}_group") if self.group in set(names) else self


def style_for(X: Any) -> Style:
    """Return how frames look that are of the library of a frame or series.

    Examples
    --------
    >>> style_for([1.0]).backend
    'pandas'
    """
    if isinstance(X, PLAIN):
        return Style()
    import narwhals as nw

    given = wrapped(X, eager_only=True, allow_series=True)
    known = isinstance(given, nw.Series | nw.DataFrame)
    return Style().using(backend_of(given)) if known else Style()


def style_of(labels: Any, style: Style | None = None) -> Style:
    """Return how frames of the groups with these labels look, like another one but for labels.

    Examples
    --------
    >>> import pandas as pd
    >>> style_of(pd.Series(["a"], name="county")).group, style_of(["a"]).group
    ('county', 'group')
    """
    style = Style() if style is None else style
    if isinstance(labels, PLAIN):
        return style
    import narwhals as nw

    labels = wrapped(labels, series_only=True)
    if not isinstance(labels, nw.Series):
        return style
    name = labels.name if isinstance(labels.name, str) and labels.name else style.group
    if style.backend == "pandas":
        style = style.using(backend_of(labels))
    native = labels.to_native().dtype if labels.implementation.is_pandas_like() else None
    return replace(style, group=name, dtype=labels.dtype, native=native)


def style_of_levels(levels: Sequence[Any], style: Style) -> Style:
    """Return how frames look of groups of one level or several, from the outermost.

    Examples
    --------
    >>> style_of_levels([["n", "n"], ["a", "b"]], Style()).above[0].group
    'parent'
    """
    *upper, lowest = levels
    above = []
    for each, default in zip(upper, unnamed_levels(len(upper)), strict=True):
        own = style_of(each)
        above.append(own if own.group != Style().group else replace(own, group=default.group))
    return replace(style_of(lowest, style), above=tuple(above))


def unnamed_levels(n_above: int) -> tuple[Style, ...]:
    """Name levels above groups that have no names.

    Examples
    --------
    >>> [each.group for each in unnamed_levels(1)], [each.group for each in unnamed_levels(2)]
    (['parent'], ['parent1', 'parent2'])
    """
    numbers = range(1, n_above + 1)
    return tuple(Style(group="parent" + f"{j}" * (n_above > 1)) for j in numbers)


def titles(style: Style) -> list[str]:
    """Return what errors call the labels of each level, by the names that they have.

    Examples
    --------
    >>> titles(Style()), titles(Style(group="ward"))
    (['groups'], ["groups 'ward'"])
    """
    unnamed = {Style().group, *(each.group for each in unnamed_levels(len(style.above)))}
    shown = [f"groups of level {level}" for level in range(1, len(style.above) + 1)] + ["groups"]
    for place, each in enumerate((*style.above, style)):
        if each.group not in unnamed:
            shown[place] = f"groups {each.group!r}"
    return shown


def style_of_rows(X: Any, style: Style) -> Style:
    """Return how frames look whose groups are the rows of a frame or series of pandas.

    They have the labels of its index, unless that only counts.

    Examples
    --------
    >>> import pandas as pd
    >>> style_of_rows(pd.Series([1.0, 2.0], index=["b", "a"]), Style()).rows.tolist()
    ['b', 'a']
    """
    own = labels_of(X)
    if own is None or own.index.nlevels > 1 or own.index.hasnans:
        return style
    named = own if own.index.name == own.name else own.rename(None)
    return replace(style_of(named, style), rows=read_labels(own, "the index of X"))


def backend_of(native: Any) -> str:
    """Return the library of a frame or series of narwhals."""
    return str(native.implementation).removeprefix("Implementation.").lower()


def _type_of(text: str) -> Any:
    """Return the type of narwhals that has this text, such as ``Datetime(time_unit='us')``."""
    import narwhals as nw

    called = ast.parse(text, mode="eval").body
    named = called.func if isinstance(called, ast.Call) else called
    kind = getattr(nw, named.id, None) if isinstance(named, ast.Name) else None
    if not (isinstance(kind, type) and issubclass(kind, nw.dtypes.DType)):
        raise ValueError(f"{text[:40]!r} is no type of labels")
    keywords = called.keywords if isinstance(called, ast.Call) else []
    return kind(**{str(each.arg): ast.literal_eval(each.value) for each in keywords})


def frame(
    columns: Mapping[str, ArrayLike], style: Style | None = None, own: Container[str] = ()
) -> Any:
    """Build a frame in `style`; the group column gets the type of the labels.

    Parameters
    ----------
    columns : mapping from str to array-like
    style : Style, optional
    own : container of str
        Columns whose arrays have no other user. The others are copied: who changes a frame must
        not change the rows that he gave, or the figures of a fit.

    Examples
    --------
    >>> frame({"group": ["a", "b"], "estimate": [0.5, 0.7]})
      group  estimate
    0     a       0.5
    1     b       0.7
    """
    style = style or Style()
    series = []
    for name, values in columns.items():
        array = np.asarray(values) if name in own else np.array(values)
        is_group = name == style.group
        if is_group:
            series += _restored(array, style)
        else:
            series.append(series_of(name, array, style.backend))
    # nw.from_dict loses categories and time zones of pandas; nw.concat compares all indexes
    return series[0].to_frame().with_columns(*series[1:]).to_native()


def beside(X: Any, columns: Mapping[str, ArrayLike]) -> Any:
    """Return a frame with columns added; columns of the same name are replaced.

    Examples
    --------
    >>> import pandas as pd
    >>> beside(pd.DataFrame({"x": [1, 2]}, index=["a", "b"]), {"y": np.array([3.0, 4.0])})
       x    y
    a  1  3.0
    b  2  4.0
    """
    import narwhals as nw

    table = nw.from_native(X, eager_only=True)
    new = indexed_like(frame(columns, Style(backend_of(table))), X)
    return table.with_columns(*nw.from_native(new, eager_only=True).iter_columns()).to_native()


def indexed_like(result: Any, X: Any) -> Any:
    """Return a result with the index of its rows, if both are pandas frames.

    Examples
    --------
    >>> import pandas as pd
    >>> indexed_like(pd.DataFrame({"x": [1.0]}), pd.Series([2.0], index=["a"])).index.tolist()
    ['a']
    """
    import pandas as pd

    both = isinstance(result, pd.DataFrame) and isinstance(X, pd.DataFrame | pd.Series)
    return result.set_axis(X.index) if both else result


def series_of(name: str, array: NDArray, backend: Any) -> Any:
    """Return an array as a series of narwhals, of a library."""
    import narwhals as nw

    unit = np.datetime_data(array.dtype)[0] if array.dtype.kind == "M" else ""
    if unit not in ("", "ms", "us", "ns"):
        array = array.astype("M8[us]")
    values = array.tolist() if array.dtype.kind in "OUS" else array
    series = nw.new_series(name, values, backend=backend)
    return series.cast(nw.Date) if unit == "D" and backend != "pandas" else series


def _restored(ids: NDArray, style: Style) -> list[Any]:
    """Return labels in the type of the input: of several levels, a column for each."""
    if style.rows is not None and ids.dtype.kind == "i" and ids.max(initial=-1) < len(style.rows):
        ids = style.rows[ids]
    if not (style.above and len(ids) and isinstance(ids[0], tuple)):
        return [_restore(ids, style)]
    parts = map(list, zip(*ids.tolist(), strict=True))
    styles = [*(replace(each, backend=style.backend) for each in style.above), style]
    return [_restore(check_labels(part), own) for part, own in zip(parts, styles, strict=True)]


def _restore(ids: NDArray, style: Style) -> Any:
    """Return labels in the type of the input if it can hold them; new labels may not fit."""
    import narwhals as nw

    has_no_objects = ids.dtype.str[1:] == "M8[ns]"  # which NumPy makes whole numbers
    if style.native is not None and style.native == np.dtype(object) and not has_no_objects:
        ids = ids.astype(object)
    column = series_of(style.group, ids, style.backend)
    if style.dtype is None:
        return column
    if style.dtype == nw.Datetime and style.dtype.time_zone is not None and ids.dtype.kind == "M":
        column = column.dt.replace_time_zone("UTC")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            if style.native is not None:
                back = nw.from_native(column.to_native().astype(style.native), series_only=True)
            else:
                back = column.cast(style.dtype)
            same = np.array_equal(label_array(back, style.group), ids)
    except Exception:  # libraries raise different errors if a type cannot hold a value
        return column
    return back if same else column
