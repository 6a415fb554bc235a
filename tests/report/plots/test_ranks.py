"""Ranks with intervals."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import ebfed as eb
from ebfed.report import plot_ranks
from ebfed.report.plots.axes import shades


def ranks(n, library=pd, **more):
    rng = np.random.default_rng(0)
    rank = 1 + rng.permutation(n) + 0.25
    columns = {"school": [f"s{k}" for k in range(n)], "rank": rank}
    columns |= {"lower": np.maximum(np.floor(rank - 2), 1), "upper": np.minimum(rank + 2, n)}
    return library.DataFrame(columns | {name: make(rank) for name, make in more.items()})


def drawn(ax):
    (line,) = (line for line in ax.lines if line.get_color() == "#000000")
    return line.get_xdata(), np.array(ax.collections[0].get_segments())[:, :, 0]


@pytest.mark.parametrize("library", [pd, pl])
@pytest.mark.parametrize("n", [8, 500])
def test_ranks_are_drawn_with_the_first_at_the_top(n, library, ax):
    table = ranks(n, library)
    assert plot_ranks(table, ax=ax) is ax
    order = np.argsort(-np.asarray(table["rank"]))
    at, intervals = drawn(ax)
    np.testing.assert_array_equal(at, np.asarray(table["rank"])[order])
    np.testing.assert_array_equal(intervals[:, 0], np.asarray(table["lower"])[order])
    np.testing.assert_array_equal(intervals[:, 1], np.asarray(table["upper"])[order])
    names = [label.get_text() for label in ax.get_yticklabels()]
    sorted_names = [f"s{k}" for k in order]
    ends = ["\n".join(sorted_names[2::-1]), "\n".join(sorted_names[:-4:-1])]
    assert names == (sorted_names if n == 8 else ends)
    assert len(ax.figure.axes) == 1


@pytest.mark.parametrize("n", [8, 500])
def test_shades_tell_the_probability_to_be_among_the_top(n, ax):
    table = ranks(n, prob_top=lambda rank: 1 / rank)
    plot_ranks(table, ax=ax)
    expected = shades("probability")(np.sort(1 / table["rank"]))
    np.testing.assert_allclose(ax.collections[0].get_colors(), expected)
    assert ax.figure.axes[1].get_ylabel() == "probability to be among the top"


@pytest.mark.parametrize("library", [pd, pl])
def test_ranks_of_a_posterior(library, ax):
    X, groups, _ = eb.datasets.make_gaussian_groups(12, 4, random_state=0)
    frame = library.DataFrame({"x": X, "school": [f"s{k:02d}" for k in groups]})
    table = eb.GaussianEB().fit(frame, groups="school").posterior().ranks(top=3)
    plot_ranks(table, ax=ax)
    best = int(np.argmin(np.asarray(table["rank"])))
    assert ax.get_yticklabels()[-1].get_text() == table["school"][best]


def test_groups_without_labels_are_numbered(ax):
    ranks = eb.posterior_from([3.0, 9.0, -4.0], [1.0, 1.0, 1.0]).ranks()
    plot_ranks(ranks, ax=ax)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["2", "0", "1"]


def test_ranks_that_are_missing(ax):
    table = ranks(8)
    with pytest.raises(ValueError, match="'upper', which is not among the columns"):
        plot_ranks(table.drop(columns="upper"), ax=ax)
    for value in (np.nan, np.inf):
        table.loc[3, "lower"] = value
        with pytest.raises(ValueError, match="missing or infinite"):
            plot_ranks(table, ax=ax)
    with pytest.raises(TypeError, match="not numeric"):
        plot_ranks(table.assign(rank="first"), ax=ax)
