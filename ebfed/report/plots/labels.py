"""Words and names for pictures: what is estimated, of which groups, and which point is whose."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ebfed.report.plots.axes import plain
from ebfed.report.view import FitView, GroupView, LocationView

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "LETTERS",
    "MOST_NAMED",
    "OWN",
    "coefficient",
    "count_groups",
    "fit_height",
    "name_points",
    "name_rows",
    "quantity",
]

OWN, CONSTANT = "own data alone", "intercept"
# Groups that are named one by one; of more, so many are named at either end.
MOST_NAMED, ENDS = 60, 3
# Of names on an axis.
LETTERS = 32
ROW = 0.15  # inches for a name
LEAST, MOST = 5.0, 10.0  # points of a letter


def quantity(view: LocationView, column: int) -> str:
    """Say what is estimated: ``mean of score``, ``rate of deaths, per unit of exposure``.

    Examples
    --------
    >>> import pandas as pd
    >>> import ebfed as eb
    >>> from ebfed.report.view import view_of
    >>> rows = pd.DataFrame({"score": [1.0, 2.0, 4.0, 3.0], "school": ["a", "a", "b", "b"]})
    >>> quantity(view_of(eb.from_formula("score | school", rows)), 0)
    'mean of score'
    >>> quantity(view_of(eb.GaussianEB().fit([1.0, 2.0, 4.0, 3.0], groups=[0, 0, 1, 1])), 0)
    'mean'
    """
    names, word = view.columns, view.family.parameter
    name = view.response if view.response and len(names) == 1 else names[column]
    if len(names) > 1 or not re.fullmatch(r"x\d+", name):  # of an array without names
        word += f" of {plain(name)}"
    rate = view.family.takes_exposure and view.summary.weight is not None
    return f"{word}, per unit of exposure" if rate else word


def coefficient(view: GroupView, term: str) -> str:
    """Name a coefficient, and the response of an intercept: ``coefficient of age``."""
    if term != CONSTANT:
        return f"coefficient of {plain(term)}"
    return f"{term} of {plain(view.response)}" if view.response else term


def count_groups(view: FitView | None, n: int) -> str:
    """Count groups by the name that they have in the table.

    Examples
    --------
    >>> count_groups(None, 5000)
    '5,000 groups'
    """
    name = "group" if view is None else view.style.group
    return f"{n:,} groups" + ("" if name == "group" else f" ({plain(name)})")


def fit_height(ax: Axes, n: int) -> float:
    """Points of paper for each of n rows, after a figure of these axes alone was made to fit."""
    figure, own = ax.figure.figure, ax.figure is ax.figure.figure
    width, height = figure.get_size_inches()
    if own and len(figure.axes) == 1 and n <= MOST_NAMED:
        height = max(height, 1 + ROW * n)
        figure.set_size_inches(width, height)
    return float(72 * height * ax.get_position().height / n)


def name_rows(ax: Axes, names: list[str], count: str, room: float) -> None:
    """Write names at rows 0, 1, … from the bottom: all, or those at either end."""
    n, size = len(names), 0.85 * room
    if n <= MOST_NAMED and size >= LEAST:
        ax.set_yticks(
            range(n), [plain(name, LETTERS) for name in names], fontsize=float(min(size, MOST))
        )
    else:
        last, first = names[:ENDS][::-1], names[-ENDS:][::-1]
        texts = ["\n".join(plain(name, LETTERS) for name in each) for each in (last, first)]
        ax.set_yticks([0, n - 1], texts, fontsize="x-small")
        lowest, highest = ax.get_yticklabels()
        lowest.set_verticalalignment("bottom")
        highest.set_verticalalignment("top")
        ax.set_ylabel(f"{count}, sorted")
    ax.tick_params(left=False)


def name_points(ax: Axes, at: NDArray, names: list[str], radius: float = 2.5) -> None:
    """Write names beside points, each where it overlaps least with points and earlier names."""
    ax.figure.figure.draw_without_rendering()  # the layout determines places on paper
    scale = 72 / ax.figure.dpi
    points = ax.transData.transform(at) * scale
    frame = ax.get_window_extent()
    left, right = frame.x0 * scale, frame.x1 * scale
    taken = [
        np.concatenate([point - radius, point + radius]) for point in points
    ]  # left low right high
    for point, place, name in zip(points, at, names, strict=True):
        text = plain(name, LETTERS)
        size = np.array([4.2 * len(text), 7.0])  # of extra small letters
        options: list[tuple] = []
        after, over, under = radius + 1.5, radius + 0.5, -radius - 7.5
        before = -after - size[0]
        sides = ((after, over), (after, under), (before, over), (before, under))
        for across, up in (*sides, (after, over + 9), (after, under - 9)):
            low = point + np.array([across, up])
            box = np.concatenate([low, low + size])
            overlap = sum(
                max(0.0, min(box[2], other[2]) - max(box[0], other[0]))
                * max(0.0, min(box[3], other[3]) - max(box[1], other[1]))
                for other in taken
            )
            outside = max(0.0, left - box[0]) + max(0.0, box[2] - right)
            options.append((overlap + size[1] * outside, len(options), box, (across, up)))
        _, _, box, offset = min(options, key=lambda option: option[:2])
        taken.append(box)
        ax.annotate(
            text, place, offset, textcoords="offset points", fontsize="x-small", color="#4d4d4d"
        )
