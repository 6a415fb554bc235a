"""Every run tries the same examples: a failure is a change of the code, not of the weather."""

import os
import sys
from pathlib import Path
from zlib import crc32

# Processes that test side by side each have a core: with more threads than cores, small products of
# matrices take many times as long. NumPy reads this when it is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pytest
from hypothesis import settings

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.load_profile("fixed")

THOROUGH, SLOW = (
    frozenset(Path(__file__).with_name(f"{tier}.txt").read_text().split("\n"))
    for tier in ("thorough", "slow")
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark the tests that the quick or the thorough set does not have; see `tests/tiers.py`."""
    for item in items:
        name = item.nodeid.split("[", 1)[0]
        if not THOROUGH.isdisjoint((name, name.split("::")[0])):
            item.add_marker("thorough")
        if item.nodeid.split("\n")[0] in SLOW:
            item.add_marker("slow")


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector, name):
    """Make no items of the thorough tests for a run that has none of them."""
    left_out = "not thorough" in collector.config.option.markexpr
    names = collector.nodeid, f"{collector.nodeid}::{name}"
    return [] if left_out and not THOROUGH.isdisjoint(names) else None


STARTS = {}  # of each generator of a module: its state after the import


def restart(module, jumps=0):
    """Let the generators of a module begin again, or far from there; returns where they were."""
    before = {}
    for generator in vars(module or object).values():
        if isinstance(generator, np.random.Generator):
            bits = generator.bit_generator
            before[bits] = bits.state
            bits.state = STARTS.setdefault(generator, bits.state)
            if jumps:
                bits.state = bits.jumped(jumps).state
    return before


def pytest_runtest_setup(item):
    """Let a test draw the same numbers whichever tests ran before it in its process."""
    restart(getattr(item, "module", None))


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef):
    """Let what tests share be the same, whichever needs it first, and not what they draw."""
    before = {}
    if fixturedef.scope != "function":
        jumps = 1 + crc32(fixturedef.argname.encode())  # a stream of its own
        before = restart(sys.modules.get(fixturedef.func.__module__), jumps)
    try:
        return (yield)
    finally:
        for bits, state in before.items():
            bits.state = state
