"""Processes that a test may kill."""

import os
import threading

from tqdm import tqdm


def fork():
    """Fork this process, as `os.fork` does.

    The lock of tqdm is one of all processes. A child that is killed while it holds the lock would
    stop this one for ever, so each child gets a lock of its own.
    """
    child = os.fork()
    if child == 0:
        tqdm.set_lock(threading.RLock())
    return child
