"""Factors of rows by level of noise."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from ebfed.tables.clients import Clients
from ebfed.tables.dispersed import MOST, Dispersed, check_names, levels_of_rows
from ebfed.tables.factors import Factors
from ebfed.tables.rows import Rows

RNG = np.random.default_rng(0)
GROUPS = np.repeat(np.arange(6), 5)
X = np.column_stack([np.ones(30), RNG.normal(size=30)])
Y = RNG.normal(size=30)
LEVELS = np.array(["a", "b", "c"])[RNG.integers(0, 3, 30)]
WEIGHTS = RNG.gamma(2.0, 1.0, 30)
CLIENTS = Clients.from_rows(X, GROUPS, Y)


def products(factors):
    return factors.rows.swapaxes(1, 2) @ factors.rows


@pytest.mark.parametrize("weight", [None, WEIGHTS])
def test_weighed_rows_are_rows_over_their_ratios(weight):
    ratios = np.array([1.0, 2.0, 0.5])
    block = Dispersed.of(CLIENTS, LEVELS, weight)
    per_row = 1 / ratios[np.searchsorted(["a", "b", "c"], LEVELS)] ** 2
    whole = Factors.of(CLIENTS, per_row if weight is None else weight * per_row)
    assert_allclose(products(block.weighed(ratios)), products(whole), rtol=1e-12, atol=1e-12)
    assert_array_equal(block.n, whole.n)
    assert_allclose(block.products(), Factors.of(CLIENTS, weight).products(), rtol=1e-12)
    if weight is not None:
        assert_allclose(block.log_weight, Factors.of(CLIENTS, weight).log_weight, rtol=1e-12)


def test_levels_without_rows_are_left_out():
    block = Dispersed.of(CLIENTS, np.where(GROUPS == 2, "b", LEVELS == "c"), WEIGHTS)
    assert block.occupied().levels == ("False", "True", "b")
    rest = block.take(block.ids != 2).occupied()
    assert rest.levels == ("False", "True")
    own = GROUPS != 2
    rows = Clients.from_rows(X[own], GROUPS[own], Y[own])
    other = Dispersed.of(rows, LEVELS[own] == "c", WEIGHTS[own])
    assert_array_equal(rest.counts, other.counts)
    ratios = np.array([1.0, 2.0])
    assert_allclose(products(rest.weighed(ratios)), products(other.weighed(ratios)), atol=1e-12)


def test_merged_blocks_are_the_block_of_all_rows():
    first = LEVELS != "c"  # the first block lacks a level
    parts = [
        Dispersed.of(Clients.from_rows(X[some], GROUPS[some], Y[some]), LEVELS[some], WEIGHTS[some])
        for some in (first, ~first)
    ]
    merged, whole = parts[0].merge(parts[1]), Dispersed.of(CLIENTS, LEVELS, WEIGHTS)
    assert merged.levels == whole.levels == ("a", "b", "c")
    assert_array_equal(merged.counts, whole.counts)
    ratios = np.array([1.0, 3.0, 0.7])
    both = merged.weighed(ratios), whole.weighed(ratios)
    assert_allclose(*map(products, both), rtol=1e-10, atol=1e-12)
    assert_allclose(merged.log_weight, whole.log_weight, rtol=1e-12)
    blocks = whole.split(4)
    assert [len(block) for block in blocks] == [2, 2, 1, 1]
    assert_array_equal(np.concatenate([block.counts for block in blocks]), whole.counts)


def levels_beside(X, dispersion):
    return levels_of_rows(Rows.read(X, beside={"dispersion": dispersion}).beside["dispersion"])


def test_labels_of_levels():
    assert levels_beside(X[:2], [True, False]).tolist() == ["True", "False"]
    frame = pd.DataFrame({"x": [1.0, 2.0], "kind": ["b", "a"]})
    assert levels_beside(frame, "kind").tolist() == ["b", "a"]
    moved = frame["kind"].rename({0: 7, 1: 3})
    frame.index = [3, 7]
    assert levels_beside(frame[["x"]], moved).tolist() == ["a", "b"]  # pairs by label
    with pytest.raises(ValueError, match="'k' is not a column of X"):
        levels_beside(frame, "k")
    with pytest.raises(ValueError, match="numbers that are not whole"):
        levels_beside(X[:2], [0.5, 1.0])
    with pytest.raises(ValueError, match="missing"):
        levels_beside(X[:2], ["a", None])
    with pytest.raises(ValueError, match="for the 3 rows"):
        levels_beside(X[:3], ["a", "b"])
    with pytest.raises(ValueError, match="one line"):
        check_names(["a\nb"])
    with pytest.raises(ValueError, match=f"at most {MOST}"):
        check_names([str(j) for j in range(MOST + 1)])
