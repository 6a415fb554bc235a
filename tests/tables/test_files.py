"""Files: rows added in batches give what all of them give at once."""

import numpy as np
import pytest

from ebfed import Summary
from ebfed.tables import files

RNG = np.random.default_rng(0)
BLOCKS = {
    "near": [RNG.integers(-50, 50, 1000) for _ in range(5)],
    "lower and lower": [np.arange(100) + k for k in (500, 0, -300)],
    "far apart in the end": [
        RNG.integers(0, 100, 1000),
        RNG.integers(0, 100, 500) * 10**9,
        RNG.integers(-5, 50, 100),
    ],
    "sorted": [np.repeat(np.arange(k * 1000, (k + 1) * 1000), 3) for k in range(9)],
    "large": [np.array([2**63 + 5, 7], np.uint64), np.array([7], np.uint64)],
    "short": [RNG.integers(0, 9, 50).astype(np.int32), np.array([2**31 - 1, 4], np.int32)],
    "floats": [RNG.integers(0, 9, 50).astype(float)],
    "booleans": [RNG.random(9) < 0.5, RNG.random(9) < 0.5],
    "dates": [np.array(["2020-01-01", "2021-01-01"], "M8[D]"), np.array(["2020-01-01"], "M8[D]")],
    "none at first": [np.empty(0, int), np.array([3, 3])],
}


@pytest.mark.parametrize("most", [0, 1 << 20])
@pytest.mark.parametrize("kind", BLOCKS)
def test_blocks_add_up(kind, most, monkeypatch):
    monkeypatch.setattr(files, "MOST", most)  # whether they are merged early
    blocks, parts = BLOCKS[kind], files.Parts()
    values = [RNG.normal(1e8, 1.0, len(labels)) for labels in blocks]
    for labels, block in zip(blocks, values, strict=True):
        parts.add(block, labels)
    expected = Summary.from_rows(np.concatenate(values), np.concatenate(blocks))
    found = parts.merged()
    assert len(found) == len(expected)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.n, expected.n)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-15)
    np.testing.assert_allclose(found.scatter, expected.scatter, rtol=1e-10, atol=1e-7)


def test_many_groups_of_batches():
    labels, x = RNG.integers(0, 5000, 20_000) * 10**12, RNG.normal(1e8, 1.0, 20_000)
    words = labels.astype(str).astype(object)
    numbers, texts = files.Parts(), files.Parts()
    for rows in np.array_split(np.arange(20_000), 7):
        numbers.add(x[rows], labels[rows])
        texts.add(x[rows], words[rows])
    expected = Summary.from_rows(x, labels)
    for parts in (numbers, texts):
        found = parts.merged()
        found = found.take(np.argsort(found.ids.astype(np.int64)))
        np.testing.assert_array_equal(found.n, expected.n)
        np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-15)
        np.testing.assert_allclose(found.scatter, expected.scatter, rtol=1e-12)
