"""Files are written completely or not at all."""

import os
import stat
import subprocess
import sys

import pytest

from ebfed.tables.replacing import replaced


def permissions(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_failure_leaves_the_old_file(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("old")

    def write():
        with replaced(path) as new:
            new.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["table.csv"]


def test_names_end_alike_so_that_compression_is_known(tmp_path):
    with replaced(tmp_path / "table.csv.gz") as new:
        assert new.name.endswith("table.csv.gz")
        assert new.parent == tmp_path


def test_permissions_are_kept(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("old")
    path.chmod(0o640)
    with replaced(path) as new:
        new.write_text("new")
    assert permissions(path) == 0o640
    with replaced(path, private=True) as new:
        new.write_text("newer")
    assert permissions(path) == 0o600
    with replaced(tmp_path / "other") as new:
        new.write_text("x")
    (tmp_path / "plain").write_text("x")
    assert permissions(tmp_path / "other") == permissions(tmp_path / "plain")


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "folder").mkdir()
    link = tmp_path / "link.csv"
    link.symlink_to(tmp_path / "folder" / "table.csv")
    with replaced(link) as new:
        new.write_text("x")
    assert link.is_symlink()
    assert (tmp_path / "folder" / "table.csv").read_text() == "x"


def test_a_device_is_written_to(tmp_path):
    with replaced("/dev/null") as new:
        new.write_text("x")
    assert not os.path.isfile("/dev/null")


FULL = """
import resource, signal
from ebfed.tables.replacing import replaced
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
with replaced("{path}") as new:
    new.write_text("new" * 1000)
"""


def test_a_full_disk_leaves_the_old_file(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("old")
    code = [sys.executable, "-c", FULL.format(path=path)]
    done = subprocess.run(code, capture_output=True, text=True)
    assert "File too large" in done.stderr
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["table.csv"]
