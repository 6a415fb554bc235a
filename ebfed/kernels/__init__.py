"""Compiled loops: every numba function of the package and nothing else.

A kernel is a module-level function on contiguous arrays and scalars. It keeps no random state (a
draw is a function of the number it is given), holds no objects and knows no statistics beyond its
docstring; each has a NumPy reference of a few lines in ``tests/kernels``. Kernels compile at their
first call and are cached on disk from then on (``ebfed warm`` fills the cache).
"""

from ebfed.kernels.groups import add_rows, number_integers, number_more, summarise_rows
from ebfed.kernels.streams import add_normals, fill_bernoulli, fill_normals, fill_uniforms

__all__ = [
    "add_normals",
    "add_rows",
    "fill_bernoulli",
    "fill_normals",
    "fill_uniforms",
    "number_integers",
    "number_more",
    "summarise_rows",
]
