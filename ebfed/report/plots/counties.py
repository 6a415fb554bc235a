"""Counties of the USA on the map, and its states as hexagons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ebfed.report.plots.axes import open_axes, plain
from ebfed.tables.columns import numeric_columns
from ebfed.tables.lazy import column_names
from ebfed.tables.values import is_frame, read_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.path import Path
    from sklearn.utils import Bunch

__all__ = ["MISSING", "plot_counties", "plot_states"]

# Codes of counties that were renamed, and those of today.
RENAMED = {"46113": "46102", "02270": "02158"}

# Of places without a value.
MISSING: dict[str, Any] = {"facecolor": "#eeeeee", "edgecolor": "#b0b0b0"}
# Rows of hexagons from the north; where the first of each stands, in widths of one, and states from
# the west, a dot where there is none.
ROWS = (
    (0.0, "AK . . . . . . . . . . ME"),
    (9.5, "VT NH"),
    (1.0, "WA MT ND MN WI . MI . NY MA RI"),
    (1.5, "ID WY SD IA IL IN OH PA NJ CT"),
    (1.0, "OR NV CO NE MO KY WV VA MD DE"),
    (1.5, "CA UT KS AR TN NC SC DC"),
    (2.0, "AZ NM OK LA MS AL GA"),
    (0.5, "HI . . TX . . . . FL"),
)
PLACES = {
    state: (west + k, -float(row))
    for row, (west, states) in enumerate(ROWS)
    for k, state in enumerate(states.split())
    if state != "."
}


def plot_counties(
    values: Any,
    *,
    fips: str | ArrayLike | None = None,
    column: str = "estimate",
    cmap: str | None = None,
    centre: float | None = None,
    label: str | None = None,
    shapes: Bunch | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a map of the counties of the USA, coloured by a value of each.

    Counties without a value are grey and hatched. Where shapes cannot be fetched and `values` has a
    column ``state``, `plot_states` draws the means of states instead.

    Parameters
    ----------
    values : data frame of any library, series or array-like of shape (n,)
        A row for each county.
    fips : str or array-like of shape (n,), optional
        Codes of the counties, five digits or integers, or the column of the frame `values` that
        holds them; None: the column ``"fips"``, or the index of a pandas series.
    column : str
        Column of values, of a frame.
    cmap : str, optional
        Colours. None: ``"cividis_r"``, of which greys keep the order; with `centre` ``"PuOr"``, of
        which they keep the distance from it, not the side. Both are for the colour-blind too.
    centre : float, optional
        Value from which colours go both ways.
    label : str, optional
        Label of the scale of colours; the name of the column if None.
    shapes : Bunch, optional
        Result of `datasets.fetch_county_shapes`; fetched if None.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ValueError, TypeError
        If a column is missing or no number, a value is missing, or a code is not that of a county
        or is there twice.
    OSError, ImportError
        If shapes cannot be fetched and `values` has no column ``state``.

    Notes
    -----
    Counties are those of 2017. Shannon County, South Dakota (46113), is drawn as Oglala Lakota
    (46102), as it has been called since 2015. The city of Bedford, Virginia (51515), has been a
    part of Bedford County (51019) since 2013 and has no shape. The planning regions that stand for
    Connecticut's counties since 2022 (09110 and on) have none either. Alaska's elections are
    reported by districts that are no counties, so that it is missing in the county returns.

    Examples
    --------
    >>> import pandas as pd
    >>> import ebfed as eb
    >>> rates = pd.DataFrame({"fips": ["01001", "01003"], "estimate": [0.4, 0.6]})
    >>> ax = plot_counties(rates)  # doctest: +SKIP
    """
    from matplotlib.collections import PathCollection

    codes, numbers = _read(values, fips, column)
    if shapes is None:
        from ebfed.datasets import shapes as source

        try:
            shapes = source.fetch_county_shapes()
        except (OSError, ImportError):
            if not is_frame(values) or "state" not in column_names(values):
                raise
            return plot_states(values, column=column, cmap=cmap, centre=centre, label=label, ax=ax)
    unknown = sorted(set(codes) - shapes.counties.keys())
    if unknown:
        raise ValueError(
            f"fips must be codes of counties as they were in 2017; got {', '.join(unknown[:5])} "
            f"({len(unknown)} in all). See the notes of plot_counties."
        )
    ax = open_axes(ax)
    scale = colour_scale(numbers, cmap, centre)
    missing = [code for code in shapes.counties if code not in set(codes)]
    hatched = PathCollection([*_paths(shapes.counties, missing)], hatch="//////", lw=0, **MISSING)
    ax.add_collection(hatched)
    drawn = PathCollection([*_paths(shapes.counties, codes)], facecolors=scale.to_rgba(numbers))
    # edges of the colour of the county, or hairlines of the background show between counties
    drawn.set(edgecolors="face", linewidths=0.2)
    ax.add_collection(drawn)
    borders = PathCollection([*_paths(shapes.states, shapes.states)], facecolor="none", lw=0.6)
    borders.set_edgecolor("white")
    ax.add_collection(borders)
    ax.autoscale_view()
    name = plain(column) if is_frame(values) else "value"
    draw_scale(ax, scale, name if label is None else label, bool(missing))
    return ax


def _read(values: Any, fips: Any, column: str) -> tuple[Sequence[str], NDArray]:
    """Codes of five digits, and values."""
    if is_frame(values):
        numbers = numeric_columns(values, [column], "values")[:, 0]
        fips = "fips" if fips is None else fips
        if isinstance(fips, str):
            if fips not in column_names(values):
                shown = ", ".join(map(repr, column_names(values)))
                raise ValueError(f"fips={fips!r} is not among the columns {shown}.")
            fips = values[fips]
    else:
        if fips is None:
            fips = getattr(values, "index", None)
        if fips is None or isinstance(fips, str):
            raise ValueError("fips must be an array of codes, one for each value.")
        numbers = np.asarray(values, float)
    labels = read_labels(fips, "fips")
    if numbers.shape != labels.shape:
        raise ValueError(f"fips has {labels.shape} codes for {numbers.shape} values.")
    if not np.isfinite(numbers).all():
        raise ValueError("values are missing or infinite; leave out the rows of those counties.")
    codes = [_five_digits(label) for label in labels.tolist()]
    codes = [RENAMED.get(code, code) for code in codes]
    if len(set(codes)) < len(codes):
        twice = next(code for k, code in enumerate(codes) if code in codes[:k])
        raise ValueError(f"fips must have each county once; {twice} is there twice.")
    return codes, numbers


def _five_digits(label: Any) -> str:
    """Restore the leading zero of a code, which integers lose."""
    if isinstance(label, float) and label.is_integer():
        label = int(label)
    return str(label).zfill(5)


def _paths(shapes: Mapping[str, list[NDArray]], codes: Iterable[str]) -> Iterable[Path]:
    """Outlines as compound paths: rings the other way round are holes."""
    from matplotlib.path import Path

    for code in codes:
        yield Path.make_compound_path(*(Path(ring, closed=True) for ring in shapes[code]))


def plot_states(
    values: Any,
    *,
    state: str = "state",
    column: str = "estimate",
    cmap: str | None = None,
    centre: float | None = None,
    label: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a map of the states of the USA, a hexagon for each, coloured by a mean over its rows.

    Hexagons lie about where their states are; those without rows are grey and hatched.

    Parameters
    ----------
    values : data frame of any library
        A row for each county, or any part of a state.
    state : str
        Column of postal codes.
    column : str
        Column of values.
    cmap, centre, label, ax :
        See `plot_counties`.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ValueError, TypeError
        If a column is missing or no number, a value is missing, or a state is none.

    Examples
    --------
    >>> import pandas as pd
    >>> import ebfed as eb
    >>> rates = pd.DataFrame({"state": ["OH", "OH", "TX"], "estimate": [0.4, 0.6, 0.7]})
    >>> ax = plot_states(rates, ax=eb.report.new_axes()[0])
    >>> len(ax.texts)
    51
    """
    from matplotlib.collections import PolyCollection

    if not is_frame(values) or state not in column_names(values):
        raise ValueError(f"values must be a data frame with the column {state!r} of postal codes.")
    numbers = numeric_columns(values, [column], "values")[:, 0]
    if not np.isfinite(numbers).all():
        raise ValueError(f"{column!r} has values that are missing or infinite; drop those rows.")
    codes = read_labels(values[state], state).astype(object)
    unknown = sorted({str(code) for code in codes} - PLACES.keys())
    if unknown:
        raise ValueError(f"{state!r} must hold postal codes of states; got {unknown[0]!r}.")
    means = {code: float(numbers[codes == code].mean()) for code in np.unique(codes)}

    ax = open_axes(ax)
    scale = colour_scale(np.array([*means.values()]), cmap, centre)
    places = np.array([*PLACES.values()])
    corners = np.deg2rad(np.arange(30, 390, 60))
    hexagon = np.column_stack([np.cos(corners), np.sin(corners)]) / np.sqrt(3)
    upright = np.array([1.0, np.sqrt(3) / 2])  # rows are nearer than neighbours in a row
    outlines = places[:, None] * upright + 0.96 * hexagon
    seen = np.array([code in means for code in PLACES])
    colours = scale.to_rgba(np.array([means[code] for code in PLACES if code in means]))
    ax.add_collection(PolyCollection(list(outlines[seen]), facecolors=colours))
    if not seen.all():
        ax.add_collection(PolyCollection(list(outlines[~seen]), hatch="////", lw=0.5, **MISSING))
    for code, (x, y) in PLACES.items():
        dark = code in means and _lightness(scale.to_rgba(np.array([means[code]]))[0]) < 0.5
        ax.text(
            x, y * upright[1], code, ha="center", va="center", fontsize=9,
            color="white" if dark else "black",
        )  # fmt: skip
    ax.autoscale_view()
    draw_scale(ax, scale, plain(column) if label is None else label, not seen.all())
    return ax


def _lightness(colour: NDArray) -> float:
    return float(colour[:3] @ [0.299, 0.587, 0.114])


def colour_scale(values: NDArray, cmap: str | None, centre: float | None) -> ScalarMappable:
    """Colours of values: from light to dark, or away from a centre."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import CenteredNorm, Normalize

    low, high = float(values.min()), float(values.max())
    if low == high:
        low, high = low - 0.5, high + 0.5
    if centre is None:
        return ScalarMappable(Normalize(low, high), cmap or "cividis_r")
    reach = max(high - centre, centre - low)
    return ScalarMappable(CenteredNorm(centre, reach), cmap or "PuOr")


def draw_scale(ax: Axes, scale: ScalarMappable, label: str, missing: bool) -> None:
    """Draw the scale of colours below a map, and the meaning of hatching; remove the frame."""
    from matplotlib.patches import Patch

    ax.set_aspect("equal")
    ax.set_axis_off()
    options: dict[str, Any] = {"orientation": "horizontal", "shrink": 0.5, "aspect": 30}
    ax.figure.colorbar(scale, ax=ax, pad=0.02, label=label, **options)
    if missing:
        patch = Patch(hatch="////", label="no value", **MISSING)
        ax.legend(handles=[patch], loc="lower right", frameon=False, fontsize="small")
