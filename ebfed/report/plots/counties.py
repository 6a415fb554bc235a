"""Counties of the USA on the map."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ebfed.report.plots.axes import open_axes, plain
from ebfed.report.plots.states import MISSING, colour_scale, draw_scale, plot_states
from ebfed.tables.columns import numeric_columns
from ebfed.tables.lazy import column_names
from ebfed.tables.values import is_frame, read_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.path import Path
    from sklearn.utils import Bunch

__all__ = ["plot_counties"]

# Codes of counties that were renamed, and those of today.
RENAMED = {"46113": "46102", "02270": "02158"}


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
