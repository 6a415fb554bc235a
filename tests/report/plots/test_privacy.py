"""What privacy costs."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from ebfed.report import plot_privacy


def prices(library=pd):
    return library.DataFrame(
        {
            "channel": ["one bit", "Laplace", "one bit", "Laplace"],
            "epsilon": [4.0, 1.0, 1.0, 4.0],
            "error": [0.2, 0.3, 0.4, 0.1],
            "std_error": [0.02, 0.03, 0.04, 0.01],
            "local_error": 0.25,
        }
        | ({"local_error": [0.25] * 4} if library is pl else {})
    )


@pytest.mark.parametrize("library", [pd, pl])
def test_a_curve_and_a_band_for_each_channel(library, ax):
    assert plot_privacy(prices(library), ax=ax) is ax
    lines = {line.get_label(): line.get_xydata().tolist() for line in ax.lines}
    assert lines["one bit"] == [[1, 0.4], [4, 0.2]]
    assert lines["Laplace"] == [[1, 0.3], [4, 0.1]]
    bands = [band.get_paths()[0].vertices for band in ax.collections]
    ends = sorted((band[:, 1].min(), band[:, 1].max()) for band in bands)
    np.testing.assert_allclose(ends, [(0.09, 0.33), (0.18, 0.44)])
    assert ax.get_xscale() == "log"
    assert [text.get_text() for text in ax.texts] == ["own data only", "worse than own data"]
    (level,) = (line for line in ax.lines if line.get_marker() == "None")
    assert set(level.get_ydata()) == {0.25}
    markers = {line.get_marker() for line in ax.lines if line is not level}
    assert len(markers) == 2


def test_points_that_are_worse_than_own_data_are_hollow_and_shaded(ax):
    plot_privacy(prices(), ax=ax)
    hollow = [line.get_xydata() for line in ax.lines if line.get_markerfacecolor() == "white"]
    assert sorted(np.concatenate(hollow).tolist()) == [[1, 0.3], [1, 0.4]]
    (area,) = (patch for patch in ax.patches if patch.get_alpha())
    low, high = area.get_extents().transformed(ax.transData.inverted()).intervaly
    np.testing.assert_allclose([low, high], [0.25, ax.get_ylim()[1]])


def test_nothing_is_shaded_where_all_gain(ax):
    plot_privacy(prices().assign(local_error=0.5), ax=ax)
    assert [text.get_text() for text in ax.texts] == ["own data only"]
    assert not ax.patches


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("error", np.nan, "must be finite"),
        ("epsilon", np.inf, "must be finite"),
        ("epsilon", 0.0, "epsilon positive"),
        ("local_error", 0.5, "the same in all rows"),
    ],
)
def test_numbers_that_make_no_sense(column, value, message, ax):
    table = prices()
    table.loc[0, column] = value
    with pytest.raises(ValueError, match=message):
        plot_privacy(table, ax=ax)


def test_columns_that_are_missing(ax):
    with pytest.raises(ValueError, match="must have the column 'channel'"):
        plot_privacy(prices().drop(columns="channel"), ax=ax)
    with pytest.raises(ValueError, match="'std_error', which is not among the columns"):
        plot_privacy(prices().drop(columns="std_error"), ax=ax)
