"""Journals: files to which lines are added for good, such as a node's ledger.

A line is a JSON object with a checksum of itself and of the line before it, so that a line that was
removed or moved is noticed, unless it was the last. It is on the disk before `append` returns. Only
the last line can be torn, by a process that was killed while it wrote; as nothing was done yet that
the line is about, it is removed. Any other damage is refused.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from pathlib import Path
from typing import Any

__all__ = ["append", "read"]

CHECK = "check"
FIRST = ""  # what stands for the checksum of a line before the first


def append(path: Path, entries: list[dict[str, Any]]) -> None:
    """Add a line for each entry, or nothing; only the owner may read a new file.

    Raises
    ------
    OSError
        If they cannot all be written, as on a full disk.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "ledger.jsonl"
    >>> append(path, [{"round": 1}, {"round": 2}])
    >>> read(path)
    [{'round': 1}, {'round': 2}]
    """
    with open(path, "ab+", buffering=0, opener=_own) as file:
        before, check, content = file.seek(0, os.SEEK_END), _last_check(file), b""
        for entry in entries:
            check = _checksum(entry, check)
            content += json.dumps(entry | {CHECK: check}).encode() + b"\n"
        try:
            if file.write(content) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            os.fsync(file.fileno())
        except OSError:
            os.ftruncate(file.fileno(), before)
            raise


def read(path: Path, *, repair: bool = True) -> list[dict[str, Any]]:
    """Return the entries; none if there is no file.

    Parameters
    ----------
    path : path
    repair : bool
        Whether to remove a torn last line; only for the process that adds lines. To another, a line
        that is being written looks torn.

    Raises
    ------
    ValueError
        If another line is damaged.
    """
    if not path.exists():
        return []
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if repair and len(whole) < len(content):
        os.truncate(path, len(whole))
    entries, check = [], FIRST
    for i, line in enumerate(whole.splitlines(), 1):
        entry = _entry(line, check)
        if entry is None:
            raise ValueError(
                f"{path}, line {i}, is damaged, or the line before it is missing. Restore the file "
                "from a copy."
            )
        check = entry.pop(CHECK)
        entries.append(entry)
    return entries


def _entry(line: bytes, before: str) -> dict[str, Any] | None:
    """Return an entry with its checksum, if that is right after the one of the line before."""
    try:
        entry = json.loads(line)
        plain = {name: value for name, value in entry.items() if name != CHECK}
        return entry if entry[CHECK] == _checksum(plain, before) else None
    except (ValueError, TypeError, AttributeError, KeyError):
        return None


def _last_check(file: Any) -> str:
    """Return the checksum of the last line of a file that is open at its end."""
    end = file.tell()
    size = min(end, 4096)
    while size:
        file.seek(end - size)
        lines = file.read(size).rstrip(b"\n").rpartition(b"\n")
        if lines[1] or size == end:
            try:
                return str(json.loads(lines[2])[CHECK])
            except (ValueError, TypeError, KeyError):  # `read` says which line is damaged
                return FIRST
        size = min(2 * size, end)
    return FIRST


def _checksum(entry: dict[str, Any], before: str) -> str:
    text = before + json.dumps(entry, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _own(path: str, flags: int) -> int:
    """Open a file that only its owner may read."""
    return os.open(path, flags, 0o600)
