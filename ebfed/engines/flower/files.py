"""Files that a server and its nodes write."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ebfed.tables.replacing import replaced
from ebfed.tables.spreadsheets import without_formulas

__all__ = ["now", "table_of", "write"]


def write(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replaced(path, private=True) as new:
        new.write_bytes(content)


def table_of(table: Any, columns: list[str] | None = None) -> bytes:
    """Return a table, or rows, as a CSV file whose text a spreadsheet does not compute."""
    import pandas as pd

    return without_formulas(pd.DataFrame(table, columns=columns)).to_csv(index=False).encode()


def now() -> str:
    """Return the time, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")
