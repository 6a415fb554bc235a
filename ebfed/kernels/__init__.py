"""Compiled loops: every numba function of the package and nothing else.

A kernel is a module-level function on contiguous arrays and scalars. It draws no random numbers,
holds no objects and knows no statistics beyond its docstring; each has a NumPy reference of a few
lines in ``tests/kernels``. Kernels compile at their first call and are cached on disk from then
on (``ebfed warm`` fills the cache).
"""

from ebfed.kernels.groups import number_integers, summarise_rows

__all__ = ["number_integers", "summarise_rows"]
