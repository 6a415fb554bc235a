"""Tables in files: summarised batch by batch, of any size, or read into memory.

`summarise` adds up two columns of .csv or .parquet files, and counts incomplete rows.
`read_rows` and `read_csv` read all rows. One rule says what is missing in a .csv file: a blank
cell everywhere, and the words of `numbers.NA_VALUES` among numbers, and among true and false. In a
column of text they are text: "NA" is Namibia, and "None" a treatment. Labels are text until all are
read.
"""

from __future__ import annotations

import gzip
import importlib.util
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ebfed.tables.clients import LARGEST, Summary
from ebfed.tables.columns import Columns
from ebfed.tables.dialect import Dialect, explain
from ebfed.tables.frames import style_of
from ebfed.tables.labels import number_labels, one_of_each
from ebfed.tables.lazy import Summarised
from ebfed.tables.unseen import warn_of_blanks
from ebfed.tables.values import NA_VALUES, NotNumericError, numbers, read_labels

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Incomplete", "Parts", "format_of", "naming", "read_csv", "read_rows", "summarise"]

# Rows of a batch: many enough to be fast, few enough for any memory.
ROWS = 1 << 19
# Groups of batches that are kept apart, beyond four times those of all.
MOST = 1 << 20
COMMAS = Dialect()
# Dates in .csv files.
DATE = r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?)?"


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
    import pandas as pd

    if len({format_of(file) for file in files}) > 1:
        raise ValueError("give files of one kind at a time, .csv or .parquet")
    _check_dialect(files, dialect)
    twice = [file for i, file in enumerate(files) if file.resolve() in map(Path.resolve, files[:i])]
    if twice:
        raise ValueError(f"{twice[0]} is given twice")
    lacking, kinds, parts = Incomplete(), [], Parts()
    for file in files:
        with naming(file):
            kinds.append(_label_type(file, group, value))
            if kinds[-1] != kinds[0]:
                raise ValueError(
                    f"labels in {group!r} are {kinds[-1]}, but {kinds[0]} in {files[0]}"
                )
            here = _add(file, group, value, binary, dialect, parts, progress)
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
    summary, shown = parts.merged(), parts.example
    if kinds[0] == "text":  # numbers, if all labels of all files are
        shown = _numbered(pd.Series(summary.ids, dtype=str)).rename(group)
        ids, codes = number_labels(read_labels(shown, group), group)
        summary = summary.renamed(ids[codes]).take(np.argsort(codes))
    warn_of_blanks(summary.ids, group)
    return Summarised(summary, style_of(shown), [value]), lacking


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
    names = _check_header(file, dialect)
    return next(_typed(file, file, names, labels, dialect, columns))


def _typed(
    source: Any,
    file: Path,
    names: list[str],
    labels: Sequence[str],
    dialect: Dialect,
    columns: Sequence[str] | None,
    size: int | None = None,
) -> Iterator[pd.DataFrame]:
    """Read a .csv file in batches of so many rows, or at once, each column typed by its cells."""
    import pandas as pd

    options = dialect.options(file) | {"dtype": dict.fromkeys(labels, str), "low_memory": False}
    missing = ["", *dialect.na_values]
    options |= {"na_values": dict.fromkeys(names, missing), "keep_default_na": False}
    # with usecols, pandas does not see that rows have more fields than the header
    read = pd.read_csv(source, chunksize=size, **options)
    for table in [read] if size is None else read:
        if not isinstance(table.index, pd.RangeIndex):  # as after a decimal comma
            advice = dialect.other_separator(names)
            raise ValueError(f"rows have more fields than the header has names{advice}")
        if columns is not None:
            table = table[[name for name in table.columns if name in set(columns)]].copy()
        for name in table.columns:
            if table[name].dtype.kind not in "biuf":
                table[name] = _by_content(table[name], dialect, name in labels)
        yield table


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
    options = dialect.options(file) | {
        "na_values": {value: [*(dialect.na_values or NA_VALUES)]},
        "keep_default_na": False,
    }
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


class Parts:
    """Summaries of batches, merged before they take much memory.

    Means are kept as distances from a value of the group, so that no digit of a scatter is lost
    however large they are.

    Attributes
    ----------
    example : series of pandas
        A label, in the type of the file.
    """

    def __init__(self) -> None:
        self.example: Any = None
        self._parts: list[tuple[Summary, NDArray]] = []

    def add(self, values: NDArray[np.float64], labels: NDArray) -> None:
        """Summarise the rows of a batch."""
        ids, codes = number_labels(labels)
        centre = values[one_of_each(codes)]
        part = Summary.from_rows(values - centre[codes], codes).renamed(ids)
        self._parts.append((part, centre))
        if sum(len(part) for part, _ in self._parts) > MOST + 4 * len(self._parts[0][0]):
            self._merge()

    def merged(self) -> Summary:
        """Summarise the rows of all batches."""
        summary, centre = self._merge()
        return replace(summary, mean=summary.mean + centre[:, None])

    def _merge(self) -> tuple[Summary, NDArray]:
        """Merge all at once (Chan, Golub, LeVeque 1983)."""
        summaries, centres = zip(*self._parts, strict=True)
        whole, given = Summary.join([*summaries]), np.concatenate(centres)
        ids, codes = number_labels(whole.ids)
        centre = given[one_of_each(codes)]
        away = given - centre[codes] + whole.mean[:, 0]
        n = np.bincount(codes, whole.n)
        shift = np.bincount(codes, whole.n * away) / n
        squares = whole.scatter[:, 0] + whole.n * (away - shift[codes]) ** 2
        scatter = np.bincount(codes, squares).astype(float)[:, None]
        self._parts = [(Summary(ids, n.astype(np.int64), shift[:, None], scatter), centre)]
        return self._parts[0]


def _add(
    file: Path,
    group: str,
    value: str,
    binary: bool,
    dialect: Dialect,
    parts: Parts,
    progress: Callable[[float], Any],
) -> Incomplete:
    """Add the rows of a file; count the incomplete ones."""
    lacking, invalid, first = Incomplete(), 0, ""
    csv = format_of(file) == "csv"
    for table, size in _csv(file, group, value, dialect) if csv else _parquet(file, group, value):
        columns = Columns.of(table)
        unnamed = ~columns.known(group)
        found, unknown, odd = _numbers(columns, value, dialect if csv else None)
        if odd.any():
            row = int(np.argmax(odd))
            text = str(columns.values(value)[row])
            place = f"{text!r} in row {lacking.total + row + 1}"
            first = first or place + dialect.other_decimal(text)
            invalid += int(odd.sum())
        absent = unnamed | unknown
        lacks, lost, without = (int(each.sum()) for each in (unnamed, unknown, absent))
        lacking = lacking.plus(Incomplete(lacks, lost, without, len(found)))
        progress(size)
        if invalid or absent.all():
            continue
        if absent.any():
            columns, found = columns.take(~absent, [group]), found[~absent]
        if (largest := np.abs(found).max()) >= LARGEST:
            raise ValueError(
                f"column {value!r} holds a value too large for float64 arithmetic "
                f"({largest:.3g}): its square overflows; rescale it"
            )
        if binary and not np.isin(found, (0, 1)).all():
            raise ValueError(f"column {value!r} must hold only 0 and 1 for a bernoulli model")
        if parts.example is None:
            shown = columns.series(group).head(1).to_native()  # which knows days and time zones
            shown = shown.to_pandas() if hasattr(shown, "to_pandas") else shown
            parts.example = shown.rename(group)
        parts.add(found, read_labels(columns.series(group), group))
    if invalid:
        raise ValueError(
            f"column {value!r} is not numeric: {invalid:,} of {lacking.total:,} values are not "
            f"finite numbers, the first {first}"
        )
    return lacking


def _csv(file: Path, group: str, value: str, dialect: Dialect) -> Iterator[tuple[Any, float]]:
    """Read batches of rows of a .csv file, and the size of each in bytes."""
    names = _check_header(file, dialect)
    _check_columns(names, group, value, advice=dialect.other_separator(names))
    with file.open("rb") as raw:
        before = 0
        for table in _typed(raw, file, names, [group], dialect, [group, value], ROWS):
            position = raw.tell()
            yield table, position - before
            before = position


def _by_content(text: pd.Series, dialect: Dialect, is_label: bool) -> pd.Series:
    """Return cells as numbers, or as true and false, if all are; else as text, none blank."""
    import pandas as pd

    text = text.map(str, na_action="ignore")  # pandas reads some cells as numbers or truth values
    blank = text.isna() | (text.str.strip() == "")
    missing = () if dialect.na_values else NA_VALUES
    given = text.mask(blank | text.str.strip().isin([*missing, *dialect.na_values]))
    words = given.dropna()
    if is_label:
        return text.mask(blank)
    if len(words) and words.str.lower().isin(["true", "false"]).all():
        return given.str.lower().map({"true": True, "false": False}).astype(object)
    found = pd.to_numeric(dialect.plain_numbers(given), errors="coerce")
    return found if (found.notna() == given.notna()).all() else text.mask(blank)


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


def _parquet(file: Path, group: str, value: str) -> Iterator[tuple[Any, float]]:
    """Read batches of rows of a .parquet file, and the size of each in bytes."""
    import pyarrow as pa
    from pyarrow import parquet

    # whole column chunks would be read ahead
    with parquet.ParquetFile(file, pre_buffer=False) as table:
        if pa.types.is_temporal(table.schema_arrow.field(value).type):
            raise ValueError(f"column {value!r} holds dates, not numbers")
        share = file.stat().st_size / max(table.metadata.num_rows, 1)
        for rows in table.iter_batches(ROWS, columns=[group, value]):
            yield pa.table(rows), share * len(rows)


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


def _numbers(
    columns: Columns, name: str, dialect: Dialect | None
) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
    """Return a column as floats, which are missing, and which are invalid; text only of .csv."""
    import pandas as pd

    column = columns.series(name).to_native()
    try:
        found = numbers(column, f"column {name!r}", booleans=True)
        missing = np.isnan(found)
    except NotNumericError:
        if dialect is None:
            raise
        found = pd.to_numeric(dialect.plain_numbers(column), errors="coerce").to_numpy(float)
        missing = column.isna().to_numpy()
        if not dialect.na_values:
            missing = missing | column.isin(NA_VALUES).to_numpy()
    return found, missing, ~missing & ~np.isfinite(found)


def _numbered(text: pd.Series) -> pd.Series:
    """Return text as whole numbers if that loses nothing; missing labels stay missing."""
    known = text.dropna()
    if not known.str.fullmatch(r"0|-?[1-9]\d{0,17}").all():
        return text
    if len(known) == len(text):
        return text.astype("int64")
    return known.astype("int64").astype(object).reindex(text.index)
