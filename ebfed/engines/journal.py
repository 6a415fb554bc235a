"""Journals: files to which lines are added for good, such as a node's ledger.

A line is a JSON object with a checksum of itself. It is on the disk before `append` returns. Only
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
    lines = [json.dumps(entry | {CHECK: _checksum(entry)}) + "\n" for entry in entries]
    content = "".join(lines).encode()
    with open(path, "ab", buffering=0, opener=_own) as file:
        before = file.seek(0, os.SEEK_END)
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
    return [_entry(path, i, line) for i, line in enumerate(whole.splitlines(), 1)]


def _entry(path: Path, i: int, line: bytes) -> dict[str, Any]:
    try:
        entry = json.loads(line)
        if entry.pop(CHECK) == _checksum(entry):
            return entry
    except (ValueError, TypeError, AttributeError, KeyError):
        pass
    raise ValueError(
        f"{path}, line {i}, is damaged. Restore the file from a copy. If you delete the line, what "
        "was spent there is forgotten."
    )


def _checksum(entry: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(entry, sort_keys=True).encode()).hexdigest()[:16]


def _own(path: str, flags: int) -> int:
    """Open a file that only its owner may read."""
    return os.open(path, flags, 0o600)
