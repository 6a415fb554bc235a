"""The one place that configures numba."""

from numba import njit

# nogil: engines run blocks in threads. error_model: division follows IEEE, as in NumPy.
jit = njit(cache=True, nogil=True, error_model="numpy")
