"""Files that a server and its nodes write."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ebfed.tables.replacing import replaced

__all__ = ["now", "table_of", "write"]


def write(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replaced(path, private=True) as new:
        new.write_bytes(content)


def table_of(rows: list[dict[str, Any]]) -> bytes:
    """Return what nodes did in each exchange, as a CSV file."""
    text = io.StringIO()
    table = csv.DictWriter(text, ["exchange", "node", "status", "detail"], lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return text.getvalue().encode()


def now() -> str:
    """Return the time, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")
