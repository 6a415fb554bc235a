"""Tables that people open in a spreadsheet, where text may not become a formula."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["without_formulas", "write_csv"]

# A number has a sign too.
FORMULA = r"(?s)(?![-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?\Z)[=+\-@\t\r\n]"


def without_formulas(table: pd.DataFrame) -> pd.DataFrame:
    """Put a quote before text that a spreadsheet would compute, and before such names of columns.

    Text that begins with ``=``, ``+``, ``-``, ``@``, a tabulator or a new line is a formula to
    spreadsheets, and may run commands. After ``'`` it is text. Numbers stay as they are, text
    that is a number too. The quote stays where the table is read again, and no second one is added.

    References
    ----------
    OWASP, CSV Injection.

    Examples
    --------
    >>> import pandas as pd
    >>> without_formulas(pd.DataFrame({"place": ["=1+1", "-7", "a"], "x": [-1, 2, 3]}))
       place  x
    0  '=1+1 -1
    1     -7  2
    2      a  3
    """
    import pandas as pd

    table = table.copy()
    for j, dtype in enumerate(table.dtypes):
        column = table.iloc[:, j]
        if isinstance(dtype, pd.CategoricalDtype):
            column = column.astype(object)
        if not (pd.api.types.is_object_dtype(column) or pd.api.types.is_string_dtype(column)):
            continue
        risky = _risky(column)
        if risky.any():
            column = column.astype(object)
            column[risky] = "'" + column[risky]
            table.isetitem(j, column)
    names = pd.Series(list(table.columns), dtype=object)
    table.columns = pd.Index(
        ["'" + name if risky else name for name, risky in zip(names, _risky(names), strict=True)],
        name=table.columns.name,
    )
    return table


def write_csv(table: pd.DataFrame, path: Path) -> None:
    """Write a table to a .csv file, or .csv.gz, whose text a spreadsheet computes nowhere."""
    without_formulas(table).to_csv(path, index=False)


def _risky(values: pd.Series) -> pd.Series:
    """Return which values are text that would be computed."""
    return values.map(lambda each: isinstance(each, str) and bool(re.match(FORMULA, each)))
