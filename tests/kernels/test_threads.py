"""Threads of the library of linear algebra."""

import numpy as np
from threadpoolctl import threadpool_info

from ebfed.kernels.threads import one_thread


def threads():
    np.linalg.inv(np.eye(2))
    return [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]


def test_one_thread_within_and_as_before_after():
    before = threads()
    with one_thread():
        assert set(threads()[: len(before)]) <= {1}
    assert threads() == before
