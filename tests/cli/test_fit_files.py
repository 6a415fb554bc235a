"""What `ebfed fit` writes is there whole, whenever it is killed and however full the disk is."""

import contextlib
import io
import os
import resource
import signal
import time

import numpy as np
import pandas as pd
import pytest
from forks import fork
from typer.testing import CliRunner

from ebfed.cli.app import app

pytestmark = [pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")]
OLD = "what was there before\n"


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(3000), 3)
    rows = pd.DataFrame({"g": groups, "v": rng.normal(groups % 7, 1).round(3)})
    rows.to_csv(path := tmp_path / "rows.csv", index=False)
    return path


def command(table, out):
    option = "--report" if out.suffix == ".html" else "--out"
    return ["fit", str(table), "--group", "g", "--value", "v", option, str(out)]


def start(table, out, size=None):
    """Run the command in a process of its own, whose files may have so many bytes."""

    def run():
        if size is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        with contextlib.redirect_stderr(io.StringIO()):
            return CliRunner().invoke(app, command(table, out)).exit_code

    return fork(run)


def whole_result(table, out):
    began = time.monotonic()
    result = CliRunner().invoke(app, command(table, out))
    assert result.exit_code == 0, result.output
    return out.read_bytes(), time.monotonic() - began


@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=pytest.mark.slow)])
def test_killed_at_random_moments(kills, table, tmp_path):
    whole_result(table, out := tmp_path / "out.csv")  # loads what is loaded once
    new, takes = whole_result(table, out)
    rng = np.random.default_rng(kills)
    for _ in range(kills):
        out.write_text(OLD)
        child = start(table, out)
        time.sleep(takes * rng.uniform(0.2, 1.2))
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert out.read_bytes() in (OLD.encode(), new)


# The moments at which a file could be half written: before and after each step.
STEPS = ["open", "fsync", "replace"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
def test_killed_while_it_writes(step, suffix, table, tmp_path):
    out = tmp_path / f"out{suffix}"
    out.write_text(OLD)

    def write():
        setattr(os, step, lambda *args: os.kill(os.getpid(), signal.SIGKILL))
        from ebfed.cli.fit import _write

        _write(pd.read_csv(table), out)

    assert os.WIFSIGNALED(os.waitpid(fork(write), 0)[1])
    assert out.read_text() == OLD


@pytest.mark.parametrize("steps", [3, pytest.param(50, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "suffix", [".csv", ".csv.gz", ".parquet", pytest.param(".html", marks=pytest.mark.slow)]
)
def test_a_full_disk_leaves_the_old_file(steps, suffix, table, tmp_path):
    folder = tmp_path / "results"
    folder.mkdir()
    new, _ = whole_result(table, out := folder / f"out{suffix}")
    for size in np.linspace(0, len(new) - 1, steps).astype(int).tolist():
        out.write_text(OLD)
        child = start(table, out, size)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
        assert out.read_text() == OLD
        assert os.listdir(folder) == [out.name]
