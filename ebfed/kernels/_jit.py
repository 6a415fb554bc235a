"""The one place that configures numba."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.caching import FunctionCache
from numba.core.runtime import rtsys

# nogil: engines run blocks in threads. error_model: division follows IEEE, as in NumPy.
_compile = njit(nogil=True, error_model="numpy")


def jit(function: Callable) -> Any:
    """Compile a function when it is first called, or load its code from the cache on disk."""
    compiled: Any = _compile(function)
    if compiled is not function:  # which it is if NUMBA_DISABLE_JIT is set
        compiled._cache = _Cache(function)
    return compiled


@cache
def _checksum(path: str) -> int:
    """Checksum of a file, and of the files of kernels from which it imports functions."""
    source = Path(path).read_bytes()
    names = re.findall(rb"^from ebfed\.kernels\.([a-z]\w*) import", source, re.MULTILINE)
    others = [_checksum(str(Path(__file__).with_name(f"{name.decode()}.py"))) for name in names]
    return zlib.crc32(repr((zlib.crc32(source), others)).encode())


class _Cache(FunctionCache):
    """Code on disk, which is compiled anew where a file is damaged or cut off, or a source changed.

    A process that is killed, or a full disk, leaves such files; unpickling them raises errors of
    many kinds. Numba looks at the source of a function itself; but functions of other files are
    compiled into it, and these change too when the package is upgraded.
    """

    def __init__(self, function: Callable) -> None:
        super().__init__(function)
        with suppress(OSError):  # there is no file of the source: numba's own stamp is left
            self._cache_file._source_stamp = _checksum(function.__code__.co_filename)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            rtsys.initialize(target_context)
            with self._guard_against_spurious_io_errors():
                return self._load_overload(sig, target_context)
        except Exception:
            with suppress(OSError):
                self.flush()  # an empty index: the next code that is saved replaces the file
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        # the code is compiled, and works, if it cannot be stored
        with suppress(OSError, EOFError, ValueError):
            super().save_overload(sig, data)
