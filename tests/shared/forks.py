"""Processes that a test may kill."""

import os
import sys
import threading
import traceback

from tqdm import tqdm

FAILED = 70  # exit code after an error


def fork(work):
    """Work in a process of its own; returns its number.

    What `work` returns is the exit code; None is 0. The process ends there, after an error too: in
    a process that went on, the test runner would run the other tests a second time, and tell of
    them in place of this one.

    The lock of tqdm is one of all processes. A child that is killed while it holds the lock would
    stop this one for ever, so each child gets a lock of its own.
    """
    if child := os.fork():
        return child
    code = FAILED
    try:
        tqdm.set_lock(threading.RLock())
        code = work() or 0
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
    finally:
        os._exit(code)
