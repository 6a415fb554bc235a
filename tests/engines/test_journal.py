"""Journals: a torn last line is removed, other damage is refused."""

import stat
import subprocess
import sys

import pytest

from ebfed.engines import journal

ENTRIES = [{"round": i, "epsilon": 0.1 * i, "group": f"größe {i}"} for i in range(5)]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "ledger.jsonl"
    for entry in ENTRIES:
        journal.append(path, [entry])
    return path


def test_entries_come_back(path):
    assert journal.read(path) == ENTRIES
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_line_torn_at_any_place_is_removed(path):
    content = path.read_bytes()
    last = content.rstrip(b"\n").rfind(b"\n") + 1
    for end in range(last, len(content)):
        path.write_bytes(content[:end])
        assert journal.read(path) == ENTRIES[:-1]
        journal.append(path, ENTRIES[-1:])
        assert journal.read(path) == ENTRIES


def test_a_line_that_is_being_written_is_left_to_its_writer(path):
    content = path.read_bytes()[:-5]
    path.write_bytes(content)
    assert journal.read(path, repair=False) == ENTRIES[:-1]
    assert path.read_bytes() == content


def test_other_damage_is_refused_with_the_line(path):
    lines = path.read_bytes().splitlines(keepends=True)
    for damaged in (
        lines[1].replace(b"0.1", b"0.0"),
        lines[1][:-5] + b"\n",
        b"{}\n",
        b"[1]\n",
        b"\xff\n",
        b"\n",
    ):
        path.write_bytes(b"".join([lines[0], damaged, *lines[2:]]))
        with pytest.raises(ValueError, match=r"ledger\.jsonl, line 2, is damaged"):
            journal.read(path)


def test_a_line_that_is_missing_is_noticed(path):
    lines = path.read_bytes().splitlines(keepends=True)
    for kept in ([0, 2, 3, 4], [0, 2, 1, 3, 4], [1, 2, 3, 4], [0, 1, 1, 2, 3, 4]):
        path.write_bytes(b"".join(lines[i] for i in kept))
        with pytest.raises(ValueError, match="is damaged, or the line before it is missing"):
            journal.read(path)


def test_lines_of_any_length_are_chained(tmp_path):
    entries = [{"people": ["p" * 50] * n} for n in (1, 500, 0, 3000, 70, 71)]
    for entry in entries:
        journal.append(tmp_path / "ledger.jsonl", [entry])
    assert journal.read(tmp_path / "ledger.jsonl") == entries


def test_no_file_has_no_entries(tmp_path):
    assert journal.read(tmp_path / "ledger.jsonl") == []


FULL = """
import resource, signal
from pathlib import Path
from ebfed.engines import journal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))
journal.append(Path("{path}"), [{{"round": 2}}, {{"round": 3}}])
"""


def test_a_full_disk_leaves_no_torn_line(tmp_path):
    path = tmp_path / "ledger.jsonl"
    journal.append(path, [{"round": 1}])
    before = path.read_bytes()
    for more in (0, 1, 60):
        code = FULL.format(size=len(before) + more, path=path)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert "OSError" in done.stderr
        assert path.read_bytes() == before
    journal.append(path, [{"round": 2}])
    assert journal.read(path) == [{"round": 1}, {"round": 2}]
