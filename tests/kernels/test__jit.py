"""The kernels are plain Python too: their tests pass uncompiled."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

OTHERS = sorted(set(Path(__file__).parent.glob("test_*.py")) - {Path(__file__)})


@pytest.mark.parametrize("tests", OTHERS, ids=[each.stem for each in OTHERS])
def test_kernels_without_jit(tests):
    answer = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", str(tests)],
        env=dict(os.environ, NUMBA_DISABLE_JIT="1"),
        capture_output=True,
        text=True,
        cwd=tests.parents[2],
    )
    assert answer.returncode == 0, answer.stdout
