"""Categories of columns: what is one category, and what is unknown."""

import numpy as np
import pandas as pd
import pytest

from ebfed.tables.categories import Categories, NestedCategories
from ebfed.tables.unseen import UnseenGroupWarning


@pytest.mark.parametrize(
    "values",
    [
        np.array([3, 1, 3, 2]),
        np.array([3.5, 1.0, 3.5, 2.0]),
        np.array(["c", "a", "c", "b"]),
        np.array(["c", "a", "c", "b"], dtype=object),
        np.array(["2024-01-03", "2024-01-01", "2024-01-03", "2024-01-02"], dtype="M8[D]"),
        pd.Series([3, 1, 3, None], dtype="Int64"),
        pd.Series(["c", "a", "c", None], dtype="string"),
        pd.Series(pd.Categorical(["c", "a", "c", None])),
    ],
    ids=lambda values: str(values.dtype),
)
def test_codes_are_found_again(values):
    categories, codes = Categories.of(values)
    assert codes[0] == codes[2]
    assert len(set(codes)) == len(categories) == 3
    np.testing.assert_array_equal(categories.codes_of(values), codes)


def test_categories_of_pandas_are_found_by_value():
    categories, _ = Categories.of(pd.Series(pd.Categorical(["a", "b", None], ["b", "a"])))
    other = pd.Series(pd.Categorical(["a", "c", None, "b"], ["c", "b", "a"]))
    assert categories.codes_of(other).tolist() == [1, -1, 2, 0]
    assert categories.codes_of(np.array(["b", "c"], dtype=object)).tolist() == [0, -1]


def test_mixed_types_are_categories():
    categories, codes = Categories.of(np.array([1, "a", 2.5, None], dtype=object))
    assert codes.tolist() == [0, 1, 2, 3]
    with pytest.warns(UnseenGroupWarning, match=r"'1' \(is it 1\?\)"):
        codes = categories.codes_of(np.array(["a", "1"], dtype=object))
    assert codes.tolist() == [1, -1]


def test_lists_are_no_categories():
    values = np.empty(2, object)
    values[:] = [["a"], ["b"]]
    with pytest.raises(TypeError, match="unhashable"):
        Categories.of(values)


def test_missing_values_are_unknown_if_the_fit_had_none():
    categories, _ = Categories.of(np.array([1.0, 2.0]))
    assert categories.codes_of(np.array([np.nan, 2.0])).tolist() == [-1, 1]


def test_chains_of_three_columns():
    rng = np.random.default_rng(0)
    columns = [rng.integers(0, 3, 200) for _ in range(3)]
    chain, nodes = NestedCategories.of(columns)
    assert chain.sizes() == [3, 9, 27]
    labels = chain.labels(2)
    assert [labels[node] for node in nodes[2]] == list(
        zip(*(c.tolist() for c in columns), strict=True)
    )
    np.testing.assert_array_equal(chain.parents[1][nodes[2]], nodes[1])
    for found, expected in zip(chain.nodes_of(columns), nodes, strict=True):
        np.testing.assert_array_equal(found, expected)
    unknown = chain.nodes_of([np.array([0, 9]), np.array([9, 0]), np.array([0, 0])])
    assert [each.tolist() for each in unknown] == [[unknown[0][0], -1], [-1, -1], [-1, -1]]
