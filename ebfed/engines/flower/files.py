"""Files that a server and its nodes write."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ebfed.tables.replacing import replaced
from ebfed.tables.spreadsheets import without_formulas

__all__ = ["alone", "now", "table_of", "write"]


def write(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, completely or not at all; so of a new folder."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with replaced(path, private=True) as new:
        new.write_bytes(content)


@contextlib.contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Let one process work in a folder at a time; the others wait until it ends."""
    import fcntl

    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed
        yield


def table_of(table: Any, columns: list[str] | None = None) -> bytes:
    """Return a table, or rows, as a CSV file whose text a spreadsheet does not compute."""
    import pandas as pd

    return without_formulas(pd.DataFrame(table, columns=columns)).to_csv(index=False).encode()


def now() -> str:
    """Return the time, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")
