"""States of the USA as hexagons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ebfed.report.plots.axes import open_axes, plain
from ebfed.tables.columns import numeric_columns
from ebfed.tables.lazy import column_names
from ebfed.tables.values import is_frame, read_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable

# Of places without a value.
MISSING: dict[str, Any] = {"facecolor": "#eeeeee", "edgecolor": "#b0b0b0"}

__all__ = ["MISSING", "colour_scale", "draw_scale", "plot_states"]

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
