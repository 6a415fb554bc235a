"""Tables in files: summarised batch by batch, of any size, or read into memory.

`summarise` adds two columns of .csv or .parquet files to a `Tally`, and counts incomplete rows.
`read_rows` and `read_csv` read all rows. One rule says what is missing in a .csv file: a blank
cell everywhere, and the words in `MISSING` among numbers, and among true and false. In a column of
text they are text: "NA" is Namibia, and "None" a treatment. Labels are text until all are read.
"""

from __future__ import annotations

import gzip
import importlib.util
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ebfed.tables.clients import Summary
from ebfed.tables.dialect import Dialect, explain
from ebfed.tables.frames import read_labels, style_of
from ebfed.tables.labels import number_labels
from ebfed.tables.lazy import Summarised
from ebfed.tables.numbers import lacks_integer, numbers
from ebfed.tables.tally import Adders
from ebfed.tables.unseen import warn_of_blanks

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Incomplete", "format_of", "naming", "read_csv", "read_rows", "summarise"]

# Rows of a batch: many enough to be fast, few enough for any memory.
ROWS = 1 << 19
COMMAS = Dialect()
# Missing numbers in .csv files.
DATE = r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?)?"
MISSING = ["", "NA", "N/A", "NaN", "nan", "NULL", "null", "None"]


class Incomplete(NamedTuple):
    """Numbers of rows without a label, without a value, without either, and of all rows."""

    labels: int = 0
    values: int = 0
    rows: int = 0
    total: int = 0

    def plus(self, other: Incomplete) -> Incomplete:
        """Add the counts of another file."""
        return Incomplete(*map(sum, zip(self, other, strict=True)))

    def describe(self, group: str, value: str) -> str:
        """Describe the counts by column."""
        parts = [(self.labels, group), (self.values, value)]
        return " and ".join(f"{count:,} without {name!r}" for count, name in parts if count)


class _Chunk(NamedTuple):
    """Rows of a file: the label of row i is ``labels[i]``, or ``labels[codes[i]]`` with codes."""

    labels: Any
    codes: NDArray | None
    unnamed: NDArray | bool
    values: Any
    size: float


def summarise(
    files: Sequence[Path],
    group: str,
    value: str,
    *,
    drop_missing: bool = False,
    binary: bool = False,
    dialect: Dialect = COMMAS,
    progress: Callable[[float], Any] = lambda size: None,
) -> tuple[Summarised, Incomplete]:
    """Summarise one column of files by the labels in another.

    Memory is needed for one batch of rows and for the groups.

    Parameters
    ----------
    files : sequence of Path
        Files of one kind: .csv (or .csv.gz), or .parquet.
    group, value : str
        Columns of labels and of values. Labels of .csv files are numbers only if all of them are
        written as numbers.
    drop_missing : bool
        Whether rows without a label or value are dropped and counted. Otherwise they are an error.
    binary : bool
        Whether values other than 0 and 1 are an error.
    dialect : Dialect
        How .csv files are written.
    progress : callable
        Function that is called with the number of bytes read.

    Raises
    ------
    ValueError, OSError
        With the name of the invalid file.
    """
    if len({format_of(file) for file in files}) > 1:
        raise ValueError("give files of one kind at a time, .csv or .parquet")
    _check_dialect(files, dialect)
    twice = [file for i, file in enumerate(files) if file.resolve() in map(Path.resolve, files[:i])]
    if twice:
        raise ValueError(f"{twice[0]} is given twice")
    lacking, kinds = Incomplete(), []
    with Adders() as adders:
        for file in files:
            with naming(file):
                kinds.append(_label_type(file, group, value))
                if kinds[-1] != kinds[0]:
                    raise ValueError(
                        f"labels in {group!r} are {kinds[-1]}, but {kinds[0]} in {files[0]}"
                    )
                here = _read(file, group, value, binary, dialect, adders, progress)
                if here.rows and not drop_missing:
                    raise ValueError(
                        f"{here.rows:,} of {here.total:,} rows are incomplete "
                        f"({here.describe(group, value)}); fill them in, or drop them with "
                        "--na-action drop"
                    )
                lacking = lacking.plus(here)
    with naming(*files):
        if not lacking.total:
            raise ValueError("no rows")
        if lacking.rows == lacking.total:
            raise ValueError(
                f"there are no complete rows: all {lacking.rows:,} are incomplete "
                f"({lacking.describe(group, value)})"
            )
        tallies = [tally for tally in adders.tallies if len(tally)]
        if any(tally.overflows() for tally in tallies):
            raise ValueError(
                f"column {value!r} holds a value too large for float64 arithmetic: its square "
                "overflows; rescale the data"
            )
    labels = _restore(np.concatenate([tally.labels() for tally in tallies]), kinds[0])
    labels = labels.rename(group)
    ids, codes = number_labels(read_labels(labels, group), group)
    warn_of_blanks(ids, group)
    edges = np.cumsum([0, *map(len, tallies)])
    parts = [
        tally.summary(ids[codes[slice(*edge)]])
        for tally, edge in zip(tallies, pairwise(edges), strict=True)
    ]
    return Summarised(reduce(Summary.merge, parts), style_of(labels), [value]), lacking


def read_rows(
    files: Sequence[Path], labels: Sequence[str], dialect: Dialect = COMMAS, used: str = ""
) -> pd.DataFrame:
    """Read all rows of files into memory.

    Parameters
    ----------
    files : sequence of Path
        Files: .csv (or .csv.gz), or .parquet.
    labels : sequence of str
        Columns of labels, read as in `summarise`. Others are dates if all of their cells in .csv
        files are, as ISO 8601 writes them, such as 2026-01-31.
    dialect : Dialect
        How .csv files are written.
    used : str
        Text, such as a formula, that names columns: each file must have all of these that one has.

    Raises
    ------
    ValueError, OSError
        With the name of the invalid file.
    """
    import pandas as pd

    tables = []
    _check_dialect(files, dialect)
    for file in files:
        with naming(file):
            if not file.is_file():
                raise ValueError("no such file")
            if format_of(file) == "parquet":
                tables.append(_whole_parquet(file, labels))
                continue
            names = _check_header(file, dialect)
            if labels[0] not in names and (advice := dialect.other_separator(names)):
                raise ValueError(f"no column {labels[0]!r} among {names[0]!r}{advice}")
            tables.append(read_csv(file, labels, dialect))
    every = dict.fromkeys(str(name) for table in tables for name in table)
    named = [name for name in every if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", used)]
    for file, table in zip(files, tables, strict=True):
        if missing := [name for name in named if name not in table]:
            among = ", ".join(map(repr, table))
            raise ValueError(f"{file}: no column {missing[0]!r} among {among}")
    rows = pd.concat(tables, ignore_index=True)
    if format_of(files[0]) == "csv":
        for name in set(labels) & set(rows):
            rows[name] = _numbered(rows[name])
        for name in set(rows) - set(labels):
            rows[name] = _dated(rows[name])
    return rows


def _dated(column: pd.Series) -> pd.Series:
    """Read text that is dates throughout; a column of anything else as it is."""
    import pandas as pd

    text = column.dropna() if column.dtype.kind not in "biufcmM" else column[:0]
    if not len(text) or not re.fullmatch(DATE, str(text.iloc[0])):
        return column
    if not text.astype(str).str.fullmatch(DATE).all():
        return column
    try:
        return pd.to_datetime(column, format="ISO8601")
    except ValueError:  # no day of the calendar
        return column


def read_csv(
    file: Path, labels: Sequence[str], dialect: Dialect, columns: Sequence[str] | None = None
) -> pd.DataFrame:
    """Read a .csv file, whose columns are numbers if all of their cells are.

    Parameters
    ----------
    file : Path
    labels : sequence of str
        Columns that are text whatever their cells are.
    dialect : Dialect
    columns : sequence of str, optional
        Columns to read; all if None.

    Raises
    ------
    ValueError, OSError
    """
    import pandas as pd

    names = _check_header(file, dialect)
    # with usecols, pandas does not see that rows have more fields than the header
    table = pd.read_csv(file, **_options(file, dialect, names, labels))
    _check_width(table, dialect.other_separator(names))
    if columns is not None:
        table = table[[name for name in table.columns if name in set(columns)]].copy()
    for name in table.columns:
        if table[name].dtype.kind not in "biuf":
            table[name] = _by_content(table[name], dialect, name in labels)
    return table


def holds_labels(file: Path, value: str, dialect: Dialect = COMMAS) -> bool:
    """Tell whether a column of a file has labels: text, of which none of the first is a number."""
    import pandas as pd

    if not file.is_file():
        return False  # which reading says
    if format_of(file) == "parquet":
        import pyarrow as pa
        from pyarrow import parquet

        schema = parquet.read_schema(file)
        kind = schema.field(value).type if value in schema.names else pa.null()
        words = kind.value_type if pa.types.is_dictionary(kind) else kind
        return pa.types.is_string(words) or pa.types.is_large_string(words)
    options = dialect.options(file) | {"na_values": {value: MISSING}, "keep_default_na": False}
    first = pd.read_csv(file, dtype=str, usecols=lambda name: name == value, nrows=1000, **options)
    if value not in first:
        return False
    values = first[value].dropna()
    found = pd.to_numeric(dialect.plain_numbers(values), errors="coerce")
    return len(values) > 0 and bool(found.isna().all())


@contextmanager
def naming(*files: Path) -> Iterator[None]:
    """Put the name or the number of files in front of an error."""
    name = files[0] if len(files) == 1 else f"{len(files)} files"
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{name}: the compressed file is damaged or cut off ({error})") from None
    except ValueError as error:
        raise ValueError(f"{name}: {explain(error)}") from None
    except OSError as error:
        if error.filename is not None:  # the error names the file itself
            raise
        raise ValueError(f"{name}: the file is damaged or cut off ({error})") from None


def format_of(file: Path) -> str:
    """Return ``csv`` or ``parquet``, by the name of the file.

    Examples
    --------
    >>> format_of(Path("rows.csv.gz"))
    'csv'
    """
    name = file.name.lower()
    if name.endswith((".csv", ".csv.gz")):
        return "csv"
    if not name.endswith(".parquet"):
        raise ValueError(f"the name must end in .csv, .csv.gz or .parquet, not {file.suffix!r}")
    if importlib.util.find_spec("pyarrow") is None:
        raise ValueError('parquet files need pyarrow: pip install "ebfed[parquet]"')
    return "parquet"


def _read(
    file: Path,
    group: str,
    value: str,
    binary: bool,
    dialect: Dialect,
    adders: Adders,
    progress: Callable[[float], Any],
) -> Incomplete:
    """Add the rows of a file; count the incomplete ones."""
    lacking, invalid, first = Incomplete(), 0, ""
    csv = format_of(file) == "csv"
    for batch in _csv(file, group, value, dialect) if csv else _parquet(file, group, value):
        found, unknown, odd = _numbers(batch.values, dialect)
        if np.any(odd):
            row = int(np.argmax(odd))
            text = str(np.asarray(batch.values)[row])
            place = f"{text!r} in row {lacking.total + row + 1}"
            first = first or place + dialect.other_decimal(text)
            invalid += int(np.count_nonzero(odd))
        labels, codes, absent = batch.labels, batch.codes, batch.unnamed | unknown
        unused = [int(np.count_nonzero(each)) for each in (batch.unnamed, unknown, absent)]
        lacking = lacking.plus(Incomplete(unused[0], unused[1], unused[2], len(found)))
        if np.any(absent):
            kept = np.flatnonzero(~np.asarray(absent))
            found = found[kept]
            labels, codes = (labels[kept], None) if codes is None else (labels, codes[kept])
        if binary and not invalid and not np.all((found == 0) | (found == 1)):
            raise ValueError(f"column {value!r} must hold only 0 and 1 for a bernoulli model")
        adders.add(labels, found, codes)
        progress(batch.size)
    if invalid:
        raise ValueError(
            f"column {value!r} is not numeric: {invalid:,} of {lacking.total:,} values are not "
            f"finite numbers, the first {first}"
        )
    return lacking


def _csv(file: Path, group: str, value: str, dialect: Dialect) -> Iterator[_Chunk]:
    import pandas as pd

    names = _check_header(file, dialect)
    _check_columns(names, group, value, advice=dialect.other_separator(names))
    with file.open("rb") as raw:
        options = _options(file, dialect, names, [group], [value])
        before = 0
        for table in pd.read_csv(raw, chunksize=ROWS, **options):
            _check_width(table, dialect.other_separator(names))
            codes, labels = pd.factorize(_by_content(table[group], dialect, True))
            values = table[value]
            if values.dtype.kind not in "biuf":
                values = _by_content(values, dialect, False)
            position = raw.tell()
            yield _Chunk(labels.tolist(), codes, codes < 0, values, position - before)
            before = position


def _options(
    file: Path, dialect: Dialect, names: list[str], labels: Sequence[str], numbers: Sequence = ()
) -> dict[str, Any]:
    """Return arguments of `pandas.read_csv`: which columns are text, and what is missing."""
    missing = {name: MISSING if name in numbers else [""] for name in names}
    return dialect.options(file) | {
        "dtype": dict.fromkeys(labels, str),
        "na_values": missing,
        "keep_default_na": False,
        "low_memory": False,
    }


def _by_content(text: pd.Series, dialect: Dialect, is_label: bool) -> pd.Series:
    """Return cells as numbers, or as true and false, if all are; else as text, none blank."""
    import pandas as pd

    text = text.map(str, na_action="ignore")  # pandas reads some cells as numbers or truth values
    blank = text.isna() | (text.str.strip() == "")
    given = text.mask(blank | text.str.strip().isin(MISSING))
    words = given.dropna()
    if is_label:
        return text.mask(blank)
    if len(words) and words.str.lower().isin(["true", "false"]).all():
        return given.str.lower().map({"true": True, "false": False}).astype(object)
    found = pd.to_numeric(dialect.plain_numbers(given), errors="coerce")
    return found if (found.notna() == given.notna()).all() else text.mask(blank)


def _check_width(table: pd.DataFrame, advice: str) -> None:
    import pandas as pd

    if not isinstance(table.index, pd.RangeIndex):  # as after a decimal comma
        raise ValueError(f"rows have more fields than the header has names{advice}")


def _whole_parquet(file: Path, labels: Sequence[str]) -> pd.DataFrame:
    """Read a .parquet file; whole numbers that are labels stay whole where one is missing."""
    from pyarrow import parquet

    for name in set(labels) & set(parquet.read_schema(file).names):
        _label_type(file, name)
    table = parquet.read_table(file)
    rows = table.to_pandas(ignore_metadata=True)  # an index may be the labels
    for name in set(labels) & set(rows):
        rows[name] = table[name].to_pandas(integer_object_nulls=True)
    return rows.drop(columns=[name for name in rows if re.fullmatch(r"__index_level_\d+__", name)])


def _parquet(file: Path, group: str, value: str) -> Iterator[_Chunk]:
    import pyarrow as pa
    from pyarrow import parquet

    kind = _label_type(file, group, value)
    words = [group] if pa.types.is_string(kind) else None
    # whole column chunks would be read ahead
    with parquet.ParquetFile(file, pre_buffer=False, read_dictionary=words) as table:
        share = file.stat().st_size / max(table.metadata.num_rows, 1)
        for rows in table.iter_batches(ROWS, columns=[group, value]):
            labels, size = rows[group], share * len(rows)
            if pa.types.is_temporal(rows[value].type):
                raise ValueError(f"column {value!r} holds dates, not numbers")
            values = numbers(rows[value], f"column {value!r}", booleans=True)
            unnamed = (
                labels.is_null().to_numpy(zero_copy_only=False) if labels.null_count else False
            )
            if not _is_number(kind):
                if not isinstance(labels, pa.DictionaryArray):
                    labels = labels.dictionary_encode()
                codes = labels.indices.fill_null(-1).to_numpy()
                yield _Chunk(labels.dictionary.to_pylist(), codes, unnamed, values, size)
                continue
            ids = labels.drop_null().to_numpy(zero_copy_only=False)
            if labels.null_count:
                ids, given = np.zeros(len(labels), ids.dtype), ids
                ids[~unnamed] = given
            absent = np.isnan(ids) if ids.dtype.kind == "f" else lacks_integer(ids)
            unnamed = unnamed | absent if absent.any() else unnamed
            yield _Chunk(ids, None, unnamed, values, size)


def _label_type(file: Path, group: str, *others: str) -> Any:
    """Return the type of the labels: an Arrow type, or text."""
    if not file.is_file():
        raise ValueError("no such file")
    if format_of(file) == "csv":
        return "text"
    import pyarrow as pa
    from pyarrow import parquet

    schema = parquet.read_schema(file)
    _check_columns(schema.names, group, *others)
    kind = schema.field(group).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_nested(kind):
        raise ValueError(f"column {group!r} holds {kind}, not labels of groups")
    return pa.string() if pa.types.is_large_string(kind) else kind


def _is_number(kind: Any) -> bool:
    """Return whether an Arrow type is a number or a time of up to 64 bits."""
    from pyarrow import types

    tests = ("integer", "floating", "boolean", "date", "timestamp", "duration")
    return any(getattr(types, f"is_{each}")(kind) for each in tests)


def _check_columns(names: list[str], *columns: str, advice: str = "") -> None:
    for option, column in zip(("--group", "--value"), columns, strict=False):
        if column not in names:
            among = ", ".join(map(repr, names))
            raise ValueError(f"no column {column!r} ({option}) among {among}{advice}")
        if names.count(column) > 1:
            raise ValueError(f"{names.count(column)} columns are called {column!r}")


def _check_dialect(files: Sequence[Path], dialect: Dialect) -> None:
    """Refuse options of .csv files for others."""
    if dialect != COMMAS and any(format_of(file) != "csv" for file in files):
        raise ValueError("--sep, --encoding and --decimal are for .csv files")


def _check_header(file: Path, dialect: Dialect) -> list[str]:
    """Return the names of columns; refuse two of one name, which pandas would rename."""
    import pandas as pd

    first = pd.read_csv(
        file, header=None, nrows=1, dtype=str, keep_default_na=False, **dialect.options(file)
    )
    names = first.iloc[0].tolist()
    twice = [name for i, name in enumerate(names) if name in names[:i] and name]
    if twice:
        raise ValueError(f"{names.count(twice[0])} columns are called {twice[0]!r}")
    return names


def _numbers(values: Any, dialect: Dialect) -> tuple[NDArray, NDArray | bool, NDArray | bool]:
    """Return values as floats, a mask of missing ones, and a mask of other invalid ones."""
    import pandas as pd

    if isinstance(values, np.ndarray) and _all_finite(values):
        return values, False, False
    values = pd.Series(values)
    found = pd.to_numeric(dialect.plain_numbers(values), errors="coerce")
    found = found.astype("float64").to_numpy()
    if _all_finite(found):
        return found, False, False
    missing = values.isna().to_numpy()
    return found, missing, ~missing & ~np.isfinite(found)


def _all_finite(values: NDArray) -> bool:
    """Return whether the sum of numbers is finite, which is fast; False may be an overflow."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(values.sum()))


def _restore(labels: NDArray, kind: Any) -> pd.Series:
    """Return labels in the type of the file."""
    import pandas as pd

    if kind == "text":
        return _numbered(pd.Series(labels, dtype=str))
    import pyarrow as pa

    if _is_number(kind):
        return pa.array(labels).cast(kind).to_pandas()
    return pa.array(labels.tolist(), kind).to_pandas()


def _numbered(text: pd.Series) -> pd.Series:
    """Return text as whole numbers if that loses nothing; missing labels stay missing."""
    known = text.dropna()
    if not known.str.fullmatch(r"0|-?[1-9]\d{0,17}").all():
        return text
    if len(known) == len(text):
        return text.astype("int64")
    return known.astype("int64").astype(object).reindex(text.index)
