"""What an answer of a node may take: counts in plans, seconds, and memory."""

from __future__ import annotations

import contextlib
import inspect
import math
import re
import signal
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ebfed.blocks import memory

__all__ = ["COUNT", "check_counts", "check_round", "limited"]

# Largest count that a plan may have, as of rounds, steps, levels, components or hidden units.
COUNT = 10**6


def check_counts(plan: Any, classes: Mapping[str, type], name: str = "") -> None:
    """Refuse a count of a plan that is too large: arguments of the type int, at any depth.

    Parameters
    ----------
    plan : nested data
        As `portable.describe` returns it.
    classes : mapping
        Classes that a plan may name.

    Examples
    --------
    >>> from ebfed.loading import METHODS
    >>> plan = {"object": "models.MLP", "arguments": {"hidden": 10**9}}
    >>> check_counts(plan, METHODS)
    Traceback (most recent call last):
    ValueError: hidden of a plan must be at most 1,000,000; got 1,000,000,000.
    """
    if isinstance(plan, list | tuple):
        for each in plan:
            check_counts(each, classes, name)
        return
    if not isinstance(plan, dict):
        return
    counts: set[str] = set()
    if isinstance(plan.get("object"), str) and plan["object"] in classes:
        parameters = inspect.signature(classes[plan["object"]]).parameters
        counts = {key for key, each in parameters.items() if _is_count(each.annotation)}
    for key, value in (plan["arguments"] if counts else plan).items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if key in counts and number and not abs(value) <= COUNT:
            shown = f"{value:,}" if abs(value) < 1e15 else f"more than {10**15:,}"
            raise ValueError(f"{key} of a plan must be at most {COUNT:,}; got {shown}.")
        check_counts(value, classes, key)


def check_round(sent: Mapping[str, Any]) -> None:
    """Refuse a round that no plan has: places of records are bounded by its number."""
    round_ = sent["round"]
    if type(round_) is not int or not 0 <= round_ <= COUNT:
        shown = f"{round_:,}" if type(round_) is int else f"a {type(round_).__name__}"
        raise ValueError(f"round must be an integer from 0 to {COUNT:,}; got {shown}.")


def _is_count(annotation: Any) -> bool:
    """Whether an argument is a whole number, and no magnitude."""
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    words = re.findall(r"\w+", text)
    return "int" in words and "float" not in words


@contextlib.contextmanager
def limited(seconds: float, gibibytes: float | None) -> Iterator[None]:
    """Raise an error where the work within takes more seconds, or adds more memory; see `Rules`.

    Raises
    ------
    TimeoutError, MemoryError

    Notes
    -----
    Seconds are counted in the main thread of a process only, and memory on Linux only.
    """

    def stop(*_: Any) -> None:
        raise TimeoutError(f"an answer may take max_seconds={seconds:g}, as node.toml says.")

    with contextlib.ExitStack() as stack:
        timed = math.isfinite(seconds) and threading.current_thread() is threading.main_thread()
        if timed and hasattr(signal, "setitimer"):
            before = signal.signal(signal.SIGALRM, stop)
            stack.callback(signal.signal, signal.SIGALRM, before)
            stack.callback(signal.setitimer, signal.ITIMER_REAL, 0.0)
            signal.setitimer(signal.ITIMER_REAL, seconds)
        used = Path("/proc/self/statm")
        added = memory() / 2 if gibibytes is None else gibibytes * 2**30
        if math.isfinite(added) and used.exists():
            import resource

            soft, hard = resource.getrlimit(resource.RLIMIT_AS)
            page = resource.getpagesize()
            most = int(used.read_text().split()[0]) * page + int(added)
            if soft == resource.RLIM_INFINITY or most < soft:
                resource.setrlimit(resource.RLIMIT_AS, (most, hard))
                stack.callback(resource.setrlimit, resource.RLIMIT_AS, (soft, hard))
        yield
