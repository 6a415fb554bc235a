"""The one place that configures numba."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
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


class _Cache(FunctionCache):
    """Code on disk, which is compiled anew where a file is damaged or cut off.

    A process that is killed, or a full disk, leaves such files; unpickling them raises errors of
    many kinds.
    """

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
