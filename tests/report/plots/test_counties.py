"""Maps of counties and states."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from sklearn.utils import Bunch

from ebfed.datasets import shapes as source
from ebfed.report import plot_counties, plot_states


def square(x, y, size=1.0):
    return np.array([[x, y], [x + size, y], [x + size, y + size], [x, y + size], [x, y]])


@pytest.fixture
def shapes():
    """Four counties, of which the second has a hole that the third fills."""
    hole = square(1.25, 0.25, 0.5)
    return Bunch(
        counties={
            "01001": [square(0, 0)],
            "01003": [square(1, 0), hole[::-1]],
            "01005": [hole],
            "46102": [square(2, 0), square(3, 1)],
        },
        states={"01": [square(0, 0), square(1, 0)], "46": [square(2, 0), square(3, 1)]},
    )


# Neighbours among the 256 colours of a map differ by less, and rounding may choose either.
ONE_COLOUR = 0.03
VALUES = {"fips": ["01003", "46102", "01001"], "estimate": [0.2, 1.0, 0.6]}


def drawn(ax):
    """Hatched counties, coloured ones and borders."""
    return ax.collections


@pytest.mark.parametrize("library", [pd, pl])
def test_counties_have_the_colours_of_their_values(library, shapes, ax):
    assert plot_counties(library.DataFrame(VALUES), shapes=shapes, ax=ax) is ax
    missing, counties, borders = drawn(ax)
    colours = colormaps["cividis_r"](np.array([0.0, 1.0, 0.5]))
    np.testing.assert_allclose(counties.get_facecolors(), colours, atol=ONE_COLOUR)
    boxes = [path.get_extents().bounds for path in counties.get_paths()]
    np.testing.assert_allclose(boxes, [(1, 0, 1, 1), (2, 0, 2, 2), (0, 0, 1, 1)])
    (left_out,) = missing.get_paths()
    assert left_out.get_extents().bounds == (1.25, 0.25, 0.5, 0.5)
    assert missing.get_hatch()
    assert len(borders.get_paths()) == 2
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["no value"]
    assert ax.figure.axes[1].get_xlabel() == "estimate"


def test_a_hole_is_none_of_the_county(shapes, ax):
    plot_counties(pl.DataFrame(VALUES), shapes=shapes, ax=ax)
    canvas = FigureCanvasAgg(ax.figure)
    canvas.draw()
    image = np.asarray(canvas.buffer_rgba())
    height = len(image)
    colours = {}
    for name, place in {"rim": (1.1, 0.5), "hole": (1.5, 0.5)}.items():
        x, y = ax.transData.transform(place).astype(int)
        colours[name] = image[height - y - 4 : height - y + 5, x - 4 : x + 5, :3].reshape(-1, 3)
    yellow = 255 * np.array(colormaps["cividis_r"](0.0)[:3])
    assert np.abs(colours["rim"] - yellow).max() <= 1
    assert np.abs(colours["hole"] - yellow).max(axis=1).min() > 50


@pytest.mark.parametrize(
    "values",
    [
        {"values": pd.DataFrame(VALUES).astype({"fips": int})},
        {"values": pl.DataFrame(VALUES).cast({"fips": pl.Int64})},
        {"values": pd.DataFrame(VALUES).rename(columns={"fips": "code"}), "fips": "code"},
        {"values": pd.Series(VALUES["estimate"], index=VALUES["fips"])},
        {"values": VALUES["estimate"], "fips": VALUES["fips"]},
        {"values": pl.Series(VALUES["estimate"]), "fips": pl.Series(VALUES["fips"])},
        {"values": pd.DataFrame(VALUES).assign(fips=["01003", "46113", "01001"])},
    ],
)
def test_codes_come_in_many_ways(values, shapes, ax):
    plot_counties(**values, shapes=shapes, ax=ax)
    (given, *_), boxes = drawn(ax)[1].get_paths(), drawn(ax)[1].get_facecolors()
    assert given.get_extents().bounds == (1, 0, 1, 1)
    assert len(boxes) == 3


def test_colours_go_both_ways_from_a_centre(shapes, ax):
    plot_counties(pd.DataFrame(VALUES), centre=0.5, label="rate", shapes=shapes, ax=ax)
    colours = colormaps["PuOr"](np.array([0.2, 1.0, 0.6]))  # 0.5 either side of 0.5
    np.testing.assert_allclose(drawn(ax)[1].get_facecolors(), colours, atol=ONE_COLOUR)
    assert ax.figure.axes[1].get_xlabel() == "rate"


def test_without_missing_counties_there_is_no_legend(shapes, ax):
    values = {"fips": list(shapes.counties), "estimate": [1.0] * 4}
    plot_counties(pd.DataFrame(values), shapes=shapes, ax=ax)
    assert ax.get_legend() is None


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"fips": ["01003", "09110", "01001"]}, ValueError, r"got 09110 \(1 in all\)"),
        ({"fips": ["01003", "01003", "01001"]}, ValueError, "01003 is there twice"),
        ({"fips": ["01003", None, "01001"]}, ValueError, "fips has 1 missing"),
        ({"estimate": [0.1, np.nan, 0.3]}, ValueError, "missing or infinite"),
        ({"estimate": ["R", "D", "R"]}, TypeError, "not numeric"),
    ],
)
def test_values_that_cannot_be_drawn(change, error, message, shapes, ax):
    for library in (pd, pl):
        with pytest.raises(error, match=message):
            plot_counties(library.DataFrame(VALUES | change), shapes=shapes, ax=ax)


def test_columns_that_are_not_there(shapes, ax):
    values = pd.DataFrame(VALUES)
    with pytest.raises(ValueError, match="'rate', which is not among the columns"):
        plot_counties(values, column="rate", shapes=shapes, ax=ax)
    with pytest.raises(ValueError, match="fips='code' is not among the columns 'fips'"):
        plot_counties(values, fips="code", shapes=shapes, ax=ax)
    with pytest.raises(ValueError, match="fips must be an array of codes"):
        plot_counties(np.ones(3), shapes=shapes, ax=ax)
    with pytest.raises(ValueError, match=r"fips has \(2,\) codes"):
        plot_counties(np.ones(3), fips=["01001", "01003"], shapes=shapes, ax=ax)


def test_without_shapes_the_map_is_of_states(monkeypatch, ax):
    def fail():
        raise OSError("npm is not installed.")

    monkeypatch.setattr(source, "fetch_county_shapes", fail)
    values = pd.DataFrame(VALUES)
    with pytest.raises(OSError, match="npm is not installed"):
        plot_counties(values, ax=ax)
    plot_counties(values.assign(state=["AL", "SD", "AL"]), ax=ax)
    assert len(ax.texts) == 51


# --- states --------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", [pd, pl])
def test_states_have_the_colours_of_their_means(library, ax):
    values = {"state": ["OH", "TX", "OH", "WY"], "estimate": [0.2, 1.0, 0.4, 0.0]}
    assert plot_states(library.DataFrame(values), ax=ax) is ax
    states, missing = ax.collections
    # in the order of the table of tiles: from the north, from the west
    expected = colormaps["cividis_r"](np.array([0.0, 0.3, 1.0]))
    np.testing.assert_allclose(states.get_facecolors(), expected, atol=ONE_COLOUR)
    assert len(missing.get_paths()) == 48
    places = {text.get_text(): text.get_position() for text in ax.texts}
    for name, outline in zip(["WY", "OH", "TX"], states.get_paths(), strict=True):
        np.testing.assert_allclose(outline.vertices[:6].mean(axis=0), places[name], atol=1e-9)


def test_no_two_states_are_in_one_place(ax):
    values = pd.DataFrame({"state": ["OH"], "estimate": [1.0]})
    plot_states(values, ax=ax)
    places = np.array([text.get_position() for text in ax.texts])
    away = np.linalg.norm(places[:, None] - places, axis=2) + 9 * np.eye(len(places))
    assert away.min() > 0.99
    where = {text.get_text(): text.get_position() for text in ax.texts}
    assert len(where) == 51
    assert where["WA"][0] < where["MN"][0] < where["NY"][0]
    assert where["MN"][1] > where["MO"][1] > where["LA"][1]


def test_states_that_do_not_exist(ax):
    with pytest.raises(ValueError, match="postal codes of states; got 'PR'"):
        plot_states(pd.DataFrame({"state": ["OH", "PR"], "estimate": [1.0, 2.0]}), ax=ax)
    with pytest.raises(ValueError, match="missing or infinite; drop those rows"):
        plot_states(pd.DataFrame({"state": ["OH"], "estimate": [np.nan]}), ax=ax)
    with pytest.raises(ValueError, match="with the column 'code' of postal codes"):
        plot_states(pd.DataFrame({"state": ["OH"], "estimate": [1.0]}), state="code", ax=ax)
