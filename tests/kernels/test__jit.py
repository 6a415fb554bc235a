"""The kernels are plain Python too: their tests pass uncompiled."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import pytest

ROOT = Path(__file__).parents[2]
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


KERNEL = """
from ebfed.kernels._jit import jit

@jit
def doubled(x):
    return 2 * x
"""


CALLER = """
from ebfed.kernels._jit import jit
from ebfed.kernels.called import doubled

@jit
def twice(x):
    return doubled(doubled(x))
"""


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
@pytest.mark.parametrize("left", [b"", None, b"no pickle"])
def test_a_damaged_cache_is_compiled_anew(suffix, left, tmp_path, monkeypatch):
    """Of a process that was killed: files that are empty, cut off or hold something else."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "kernel.py").write_text(KERNEL)

    def loaded():
        """Whether a new process would load the code."""
        spec = importlib.util.spec_from_file_location("kernel", tmp_path / "kernel.py")
        spec.loader.exec_module(kernel := importlib.util.module_from_spec(spec))
        assert kernel.doubled(21) == 42
        return bool(kernel.doubled.stats.cache_hits)

    assert not loaded()
    assert loaded()
    (damaged,) = (tmp_path / "cache").rglob(f"*{suffix}")
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[: len(whole) // 2] if left is None else left)
    assert not loaded()
    assert loaded()
    assert damaged.read_bytes()[:20] == whole[:20]


def test_code_is_compiled_anew_where_a_function_that_it_calls_has_changed(tmp_path):
    """Numba looks at the file of the function alone: an upgrade left results of the old version."""
    package = tmp_path / "ebfed"
    shutil.copytree(ROOT / "ebfed", package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "kernels" / "caller.py").write_text(CALLER)
    place = dict(os.environ, NUMBA_CACHE_DIR=str(tmp_path / "cache"), PYTHONPATH=str(tmp_path))
    place["PYTHONDONTWRITEBYTECODE"] = "1"  # Python looks at the second and the size of a file
    command = [sys.executable, "-c", "from ebfed.kernels import caller; print(caller.twice(1.0))"]
    printed = []
    for factor in (2, 2, 3):
        (package / "kernels" / "called.py").write_text(KERNEL.replace("2 *", f"{factor} *"))
        run = subprocess.run(command, env=place, capture_output=True, text=True, cwd=tmp_path)
        printed.append(run.stdout.strip())
    assert printed == ["4.0", "4.0", "9.0"], run.stderr


def test_code_that_is_stored_is_loaded_without_the_compiler(tmp_path):
    """Loading a kernel prepared all that numba compiles with: a fifth of a second a process."""
    (tmp_path / "kernel.py").write_text(KERNEL)
    code = "import kernel, sys; kernel.doubled(21.0); print('numba.typed.typeddict' in sys.modules)"
    place = dict(
        os.environ, NUMBA_CACHE_DIR=str(tmp_path / "cache"), PYTHONPATH=f"{tmp_path}:{ROOT}"
    )
    command = [sys.executable, "-c", code]
    runs = [subprocess.run(command, env=place, capture_output=True, text=True) for _ in range(2)]
    assert [run.stdout.strip() for run in runs] == ["True", "False"], runs
