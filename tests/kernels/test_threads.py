"""Threads of the library of linear algebra."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from ebfed.kernels.threads import in_parts, one_thread


def threads():
    np.linalg.inv(np.eye(2))
    return [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]


def test_one_thread_within_and_as_before_after():
    before = threads()
    with one_thread():
        assert set(threads()[: len(before)]) <= {1}
    assert threads() == before


def where(first, last):
    return first, last, threading.get_ident()


def test_parts_of_a_range_have_a_thread_each_and_come_back_in_order():
    with threadpool_limits(3, user_api="blas"), one_thread():
        parts = in_parts(where, 10)
        assert [part[:2] for part in parts] == [(0, 3), (3, 6), (6, 10)]
        assert parts[0][2] == threading.get_ident()
        assert threading.get_ident() not in {part[2] for part in parts[1:]}
        assert [part[:2] for part in in_parts(where, 10, 4)] == [(0, 5), (5, 10)]
        assert len(in_parts(where, 10, 6)) == len(in_parts(where, 0)) == 1


def test_there_is_one_part_outside_and_where_the_library_had_one_thread():
    assert len(in_parts(where, 10)) == 1
    with threadpool_limits(1, user_api="blas"), one_thread():
        assert len(in_parts(where, 10)) == 1


def test_parts_within_a_part_have_no_threads_of_their_own():
    with threadpool_limits(2, user_api="blas"), one_thread():
        with one_thread():
            assert [len(each) for each in in_parts(lambda *_: in_parts(where, 10), 2)] == [1, 1]
        with ThreadPoolExecutor(1) as pool:  # as an engine has it
            assert len(pool.submit(in_parts, where, 10).result()) == 1


def test_a_part_has_the_settings_of_its_caller_and_its_error_is_raised():
    with threadpool_limits(2, user_api="blas"), one_thread():
        with np.errstate(over="raise"):
            assert in_parts(lambda *_: np.geterr()["over"], 2) == ["raise", "raise"]
        with pytest.raises(ZeroDivisionError):
            in_parts(lambda first, _: 1 // (1 - first), 2)
