"""Optima that are global over a grid and exact in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["Unanswered", "maximise", "minimise", "minimum_near", "together"]

# Number of points between two of the grid at which a slope is evaluated in one call, and their
# relative distance at which a cubic between them has all digits.
N_PLACES, CLOSE = 9, 3e-4


Criterion = Callable[[float], tuple[float, float]]
# Takes a number, or an array of them all at once.
Rough = Callable[[Any], tuple[Any, Any]]


def minimise(criterion: Criterion, grid: NDArray, rough: Rough | None = None) -> float:
    """Scan a grid, then solve for a zero slope around its best point.

    Profile likelihoods of a variance can have several optima, one of them often at zero; a scan
    finds the right one, and solving for the slope gives it to full precision.

    Parameters
    ----------
    criterion : callable
        Function that returns value and slope.
    grid : increasing ndarray
    rough : callable, optional
        Cheaper, nearly equal criterion for the scan, of the whole grid in one call; its lowest
        points are compared by the exact one, which takes arrays too. Or `criterion` itself, if it
        takes arrays.

    Returns
    -------
    float

    Examples
    --------
    >>> minimise(lambda t: ((t - 2) ** 2, 2 * (t - 2)), np.linspace(0, 10, 8))
    2.0
    """
    from scipy.optimize import brentq

    if rough:
        values, slopes = rough(grid)
    else:
        values, slopes = zip(*(criterion(float(t)) for t in grid), strict=True)
    best = int(np.argmin(values))
    at_once = rough is criterion
    if at_once:
        rough = None
    known: dict[float, float] = {} if rough else dict(zip(grid.tolist(), slopes, strict=True))

    def slope(t: float) -> float:
        if t not in known:
            known[t] = criterion(t)[1]
        return known[t]

    if rough:
        padded = np.concatenate(([np.inf], values, [np.inf]))
        dips = np.flatnonzero((values <= padded[:-2]) & (values <= padded[2:]))
        if len(dips) > 1:
            best = int(min(dips, key=lambda j: criterion(float(grid[j]))[0]))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    if rough and rough(low)[1] < 0 < rough(high)[1]:
        near = brentq(lambda t: rough(t)[1], low, high, rtol=1e-6)
        left, right = _closing_in(criterion, 0.999 * near, 1.001 * near)
        if left == right:
            return left
    if not slope(low) < 0 < slope(high):
        # at an end of the range, or where the rough criterion missed the dip
        at_end = best in (0, len(grid) - 1)
        return float(grid[best]) if at_end or not rough else minimise(criterion, grid)
    if at_once:
        low, high = _closing_in(criterion, float(low), float(high))
        if low == high:
            return low
    return float(brentq(slope, low, high, xtol=1e-300, rtol=1e-14))


def _closing_in(criterion: Rough, low: float, high: float) -> tuple[float, float]:
    """Narrow an interval in which a slope rises through zero, many points in a call.

    Between points, the place is a cubic function of the slope.

    Returns
    -------
    low, high : float
        Equal, and exact to all digits, unless slopes are no smooth function of the place.
    """
    ends = cell = low, high
    for _ in range(4):
        places = np.linspace(low, high, N_PLACES)
        slopes = criterion(places)[1]
        if not slopes[0] < 0 < slopes[-1]:
            return cell
        above = int(np.argmax(slopes > 0))
        cell = float(places[above - 1]), float(places[above])
        first = min(max(above - 2, 0), N_PLACES - 4)
        some, there = slopes[first : first + 4], places[first : first + 4]
        if not np.all(some[1:] > some[:-1]):
            return cell
        apart, own = some - some[:, None], np.eye(len(some), dtype=bool)
        apart[own] = 1.0
        shares = np.where(own, 1.0, some / apart).prod(axis=1)
        place = min(max(float(there @ shares), cell[0]), cell[1])
        if cell[1] - cell[0] < CLOSE * cell[1]:
            return place, place
        straight = float(np.interp(0.0, some, there))
        reach = max(abs(place - straight), 1e-5 * cell[1])  # a cubic is nearer than a line
        low, high = max(place - reach, ends[0]), min(place + reach, ends[1])
    return cell


def minimum_near(criterion: Rough, near: float | None, takes_arrays: bool) -> float | None:
    """Find a minimum that is within a factor of 2 of the one of similar data.

    To some seven digits; the scan of `minimise` finds it to all, wherever it is.

    Parameters
    ----------
    criterion : callable
        Function that returns value and slope.
    near : float or None
    takes_arrays : bool
        Whether the criterion can be evaluated at several points in one call.

    Returns
    -------
    float or None
        None if there is no such minimum, or `near` is None or 0.

    Examples
    --------
    >>> round(minimum_near(lambda t: ((t - 2) ** 2, 2 * (t - 2)), 1.5, True), 3)
    2.0
    """
    from scipy.optimize import brentq

    if not near:  # around zero there are no factors
        return None
    low, high = np.log(near / 2), np.log(2 * near)
    if not takes_arrays:
        if not criterion(near / 2)[1] < 0 < criterion(2 * near)[1]:
            return None
        return float(np.exp(brentq(lambda x: criterion(np.exp(x))[1], low, high, xtol=1e-7)))
    points = np.linspace(low, high, 24)
    slopes = criterion(np.exp(points))[1]
    if not slopes[0] < 0 < slopes[-1]:
        return None
    above = int(np.argmax(slopes > 0))
    cell = slice(above - 1, above + 1)
    place = float(np.interp(0.0, slopes[cell], points[cell]))  # some 1e-4 from the minimum
    left, right = criterion(np.exp(place + np.array([-1e-3, 1e-3])))[1]
    return float(np.exp(place - 1e-3 * (left + right) / (right - left)))


def maximise(
    function: Callable[[NDArray], float],
    start: NDArray,
    low: NDArray,
    high: NDArray,
    derivatives: Callable[[NDArray], tuple[NDArray, NDArray] | None] | None = None,
    unit: NDArray | None = None,
) -> tuple[NDArray, NDArray]:
    """Climb a smooth log-likelihood of few parameters within a box, by Newton steps.

    Directions of wrong curvature are climbed by their size, and steps are halved until they gain.

    Parameters
    ----------
    function : callable
        Log-likelihood of a point; in each coordinate it should bend over about a unit.
    start, low, high : ndarray of shape (p,)
        Start and bounds of the search; a maximum may be at a bound.
    derivatives : callable, optional
        Slope, shape (p,), and second derivatives, shape (p, p), at a point; differences if None,
        or where it returns None.
    unit : ndarray of shape (p,), optional
        Units of the coordinates; 1 if None.

    Returns
    -------
    point : ndarray of shape (p,)
    covariance : ndarray of shape (p, p)
        Inverse of the negative second derivatives there.

    Examples
    --------
    >>> point, covariance = maximise(
    ...     lambda x: -((x[0] - 1) ** 2) / 2 - (x[1] + 1) ** 2,
    ...     np.array([0.0, 3.0]),
    ...     np.array([-5.0, 0.0]),
    ...     np.array([5.0, 5.0]),
    ... )
    >>> point.round(6) + 0, covariance.round(6) + 0
    (array([1., 0.]), array([[1. , 0. ],
           [0. , 0.5]]))
    """
    if unit is not None:
        outer = np.outer(unit, unit)

        def scaled(x: NDArray) -> tuple[NDArray, NDArray] | None:
            found = derivatives(x * unit) if derivatives else None
            return found and (found[0] * unit, found[1] * outer)

        point, covariance = maximise(
            lambda x: function(x * unit), start / unit, low / unit, high / unit, scaled
        )
        return point * unit, covariance * outer
    differences, known = partial(_differences, function, low, high), derivatives or (lambda x: None)
    x = np.clip(start, low, high)
    value = function(x)
    for _ in range(100):
        slope, second = known(x) or differences(x)
        held = ((x <= low) & (slope < 0)) | ((x >= high) & (slope > 0))
        free = np.flatnonzero(~held)
        if not len(free):
            break
        sizes, axes = np.linalg.eigh(-second[np.ix_(free, free)])
        step = np.zeros(len(x))
        step[free] = axes @ ((axes.T @ slope[free]) / np.maximum(np.abs(sizes), 1e-8))
        if slope @ step < 2e-9:  # the height that is left; a sum's rounding may be more
            x = np.clip(x + step, low, high)
            break
        length = 1.0
        while True:
            candidate = np.clip(x + length * step, low, high)
            reached = function(candidate)
            if reached >= value + 1e-4 * slope @ (candidate - x) or length < 1e-10:
                break
            length /= 2
        moved, gained = np.abs(candidate - x).max(), reached - value
        if gained > 0:
            x, value = candidate, reached
        if moved < 1e-9 or gained < 1e-10:
            break
    values, vectors = np.linalg.eigh(-(known(x) or differences(x))[1])
    # nothing is known in a direction without curvature
    return x, (vectors / np.maximum(values, 1e-8)) @ vectors.T


def _differences(
    function: Callable[[NDArray], float], low: NDArray, high: NDArray, x: NDArray
) -> tuple[NDArray, NDArray]:
    """Slope and second derivatives by differences."""
    p = len(x)
    slope = np.empty(p)
    for j, unit in enumerate(1e-4 * np.eye(p)):
        ahead, behind = np.minimum(x + unit, high), np.maximum(x - unit, low)
        slope[j] = (function(ahead) - function(behind)) / (ahead - behind).sum()
    steps = 1e-3 * np.eye(p)
    bend = np.empty((p, p))
    for j, a in enumerate(steps):
        for k, b in enumerate(steps[: j + 1]):
            at = np.clip(x, low + a + b, high - a - b)  # off the edge
            corners = function(at + a + b) + function(at - a - b)
            corners -= function(at + a - b) + function(at - a + b)
            bend[j, k] = bend[k, j] = corners / (4 * 1e-3**2)
    return slope, bend


Found = TypeVar("Found")


class Unanswered(Exception):
    """A search has come to a question whose answer is not known.

    Who caught it asks, and repeats the search with the answer. A search that draws nothing comes to
    the same questions again, and then further.

    Attributes
    ----------
    question : object
        A list of questions, where several searches are held `together`.
    """

    def __init__(self, question: Any):
        super().__init__("figures are asked for that are not known")
        self.question = question


def together(searches: Iterable[Callable[[], Found]]) -> list[Found]:
    """Run searches that do not depend on one another, and return what they found.

    Raises
    ------
    Unanswered
        With the questions of all of them, if some have come to one.
    """
    found, asked = [], []
    for search in searches:
        try:
            found.append(search())
        except Unanswered as open_:
            asked += open_.question
    if asked:
        raise Unanswered(asked)
    return found
