"""Blocks of a long array."""

import pytest

from ebfed.blocks import blocks


@pytest.mark.parametrize("length", [0, 1, 6, 7, 8])
def test_blocks_cover_every_entry_once(length):
    entries = list(range(length))
    found = [entries[block] for block in blocks(length, 3)]
    assert [entry for block in found for entry in block] == entries
    assert all(1 <= len(block) <= 3 for block in found)
