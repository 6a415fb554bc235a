"""Axes to draw on, and styles that distinguish groups and methods.

Colours are those of Okabe and Ito (2008), which colour-blind readers can distinguish. Lines,
markers and hatches differ too, so that no meaning depends on colour alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

__all__ = [
    "BLACK",
    "BLUE",
    "COLOURS",
    "GREEN",
    "GREY",
    "HATCHES",
    "LINES",
    "MANY",
    "MARKERS",
    "ORANGE",
    "PURPLE",
    "SKY",
    "VERMILLION",
    "finish",
    "legend_above",
    "new_axes",
    "open_axes",
    "open_right",
    "plain",
    "shades",
]

BLUE, VERMILLION, GREEN, BLACK = "#0072B2", "#D55E00", "#009E73", "#000000"
PURPLE, ORANGE, SKY, GREY = "#CC79A7", "#E69F00", "#56B4E9", "#7f7f7f"
COLOURS = (BLUE, VERMILLION, GREEN, BLACK, PURPLE, ORANGE, SKY)
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)), (0, (1, 3)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
MOST_LETTERS = 60  # of a name in a picture
MANY = 1000  # marks; more are pixels in a file of vectors
HATCHES = ("", "///", "...", "\\\\\\", "xxx", "---", "ooo")


def new_axes(
    n_columns: int = 1, size: tuple[float, float] = (6.4, 4.4), *, n_rows: int = 1
) -> list[Axes]:
    """Open a figure outside pyplot and return its axes, side by side and row by row.

    Parameters
    ----------
    n_columns, n_rows : int
        Numbers of axes beside and below each other.
    size : tuple of float
        Width and height of the figure in inches.

    Examples
    --------
    >>> left, right = new_axes(2)
    >>> left.figure is right.figure
    True
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(wspace=0.06))
    return list(figure.subplots(n_rows, n_columns, squeeze=False).ravel())


def open_axes(ax: Axes | None) -> Axes:
    """Return the axes that were given, or those of a new figure of pyplot."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(layout="constrained")[1]


def finish(ax: Axes, title: str = "", *, left: bool = True, **labels: Any) -> None:
    """Write a title and the labels of axes, and remove the frame above, right and perhaps left."""
    ax.set(**labels)
    if title:
        ax.set_title(title, loc="left", fontsize="medium")
    ax.spines[["top", "right", *(() if left else ("left",))]].set_visible(False)


def legend_above(ax: Axes, side: str = "left", **options: Any) -> None:
    """Put a legend without a frame above axes, at their left or right end."""
    at: dict[str, Any] = {"loc": f"lower {side}", "bbox_to_anchor": (float(side == "right"), 1)}
    ax.legend(frameon=False, fontsize="small", borderaxespad=0.2, **at, **options)


def open_right(ax: Axes) -> Axes:
    """Return new axes with a scale on the right, below the given ones and their legend."""
    right = ax.twinx()
    ax.set_zorder(right.get_zorder() + 1)
    ax.patch.set_visible(False)
    return right


def plain(text: object, most: int = MOST_LETTERS) -> str:
    r"""Return text of data for a picture: short, printable, and without formulas between dollars.

    Examples
    --------
    >>> plain("5 $\n a day"), plain(7), len(plain("x" * 1000))
    ('5 \\$ a day', '7', 60)
    """
    words = "".join(c if c.isprintable() else " " for c in str(text)).split()
    short = " ".join(words)
    if len(short) > most:
        short = f"{short[: most - 1]}…"
    return short.replace("$", r"\$")


def shades(kind: str) -> Colormap:
    """Return colours from light to dark, all visible on white, of which greys keep the order.

    Parameters
    ----------
    kind : {"size", "probability"}
        From sand to dark blue, or from pale grey to dark blue.

    Examples
    --------
    >>> round(float(shades("probability")(0.0)[0]), 2)
    0.83
    """
    from matplotlib import colormaps
    from matplotlib.colors import LinearSegmentedColormap

    colours: Any = ["#d4d4d4", SKY, BLUE, "#08306b"]
    if kind == "size":
        colours = [colormaps["cividis_r"](share) for share in (0.2, 0.4, 0.6, 0.8, 1.0)]
    return LinearSegmentedColormap.from_list(kind, colours)
