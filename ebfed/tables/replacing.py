"""Files that are written completely or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["replaced"]


@contextmanager
def replaced(path: str | Path, *, private: bool = False) -> Iterator[Path]:
    """Give the name of a new file that takes the place of `path` once it is written.

    Until then `path` is as it was. If writing fails, the new file is deleted. If the process is
    killed, the new file remains, under a name that begins with a dot.

    Parameters
    ----------
    path : str or Path
        File to write, in a folder that exists. A device or a pipe, such as /dev/stdout, is written
        to as it is.
    private : bool
        Whether only the owner may read the file. Otherwise it has the permissions of the file it
        replaces, or those of a new file.

    Yields
    ------
    Path
        Name to write to, which ends as `path` does.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "table.csv"
    >>> with replaced(path) as new:
    ...     _ = new.write_text("a,b")
    >>> path.read_text()
    'a,b'
    """
    path = Path(os.path.realpath(path))  # a link stays a link
    if path.exists() and not path.is_file():
        yield path
        return
    new = path.with_name(f".{secrets.token_hex(4)}-{path.name}")
    try:
        os.close(os.open(new, os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666))
        if path.exists() and not private:
            shutil.copymode(path, new)
        yield new
        with open(new, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(new, path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
