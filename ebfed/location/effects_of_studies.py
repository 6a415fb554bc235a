"""Effect sizes of two-by-two tables: risk ratios, odds ratios and risk differences of trials."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ebfed.tables.alignment import index_of
from ebfed.tables.frames import frame, indexed_like
from ebfed.tables.rows import Rows

__all__ = ["effect_sizes"]

LARGEST = 2.0**53  # larger floats have no unit


def effect_sizes(
    events: ArrayLike,
    n: ArrayLike,
    control_events: ArrayLike,
    control_n: ArrayLike,
    measure: Literal["RR", "OR", "RD"] = "RR",
    *,
    labels: Any = None,
) -> Any:
    """Compare events in two arms of each study: estimates and standard errors for a meta-analysis.

    With a of n events in the treated arm and c of m in the control arm,

        RR: log(a / n) - log(c / m),              variance 1/a - 1/n + 1/c - 1/m,
        OR: log(a / (n - a)) - log(c / (m - c)),  variance 1/a + 1/(n - a) + 1/c + 1/(m - c),
        RD: p - q = a / n - c / m,                variance p (1 - p) / n + q (1 - q) / m.

    In a study with an empty cell (no event in an arm, or nothing else), 1/2 is added to each of its
    four cells, as in R's metafor. Series of pandas are matched by their index.

    Parameters
    ----------
    events, n : array-like or series of shape (k,)
        Events, and persons, in the treated arm of each study.
    control_events, control_n : array-like or series of shape (k,)
        The same in the control arm.
    measure : {"RR", "OR", "RD"}
        Logarithm of the risk ratio, logarithm of the odds ratio, or risk difference.
    labels : array-like or series of shape (k,), optional
        Names of the studies.

    Returns
    -------
    DataFrame
        Column ``study``, or the name of the labels, if there are labels; ``estimate`` and
        ``std_error``. In the library of `events`, with the index of series of pandas.

    Raises
    ------
    ValueError
        If lengths differ, a number is missing, negative or not whole, there are more events than
        persons, an arm is empty, or `measure` is unknown.

    References
    ----------
    W. Viechtbauer (2010), Conducting meta-analyses in R with the metafor package, Journal of
    Statistical Software 36(3).

    Examples
    --------
    >>> effect_sizes([4, 0], [123, 50], [11, 3], [139, 52]).round(4)
       estimate  std_error
    0   -0.8893     0.5706
    1   -1.9074     1.4991
    """
    if measure not in ("RR", "OR", "RD"):
        raise ValueError(f"measure must be 'RR', 'OR' or 'RD'; got {measure!r}.")
    given: dict[str, Any] = {"events": events, "n": n}
    given |= {"control_events": control_events, "control_n": control_n}
    rows = Rows.of_units(given | {"labels": labels}, [*given], "study")
    counts = {"events": rows.X, **rows.beside}
    for name, values in counts.items():
        _check_counts(values, name)
    _check_arm(counts, "events", "n")
    _check_arm(counts, "control_events", "control_n")
    a, total, c, control = counts.values()
    cells = np.array([a, total - a, c, control - c])
    cells = cells + 0.5 * (cells == 0).any(axis=0)
    estimate, variance = _compare(cells, measure)
    columns = {"estimate": estimate, "std_error": np.sqrt(variance)}
    style = rows.style.avoiding(columns)
    if labels is not None:
        columns = {style.group: rows.labels} | columns
    first = next((each for each in given.values() if index_of(each) is not None), None)
    return indexed_like(frame(columns, style), first)


def _compare(cells: NDArray, measure: str) -> tuple[NDArray, NDArray]:
    """Estimates and variances of tables without an empty cell."""
    a, b, c, d = cells
    n, m = a + b, c + d
    if measure == "RR":
        return np.log(a / n) - np.log(c / m), 1 / a - 1 / n + 1 / c - 1 / m
    if measure == "OR":
        return np.log(a / b) - np.log(c / d), 1 / a + 1 / b + 1 / c + 1 / d
    return a / n - c / m, a * b / n**3 + c * d / m**3


def _check_counts(values: NDArray[np.float64], name: str) -> None:
    wrong = ~((values >= 0) & (values <= LARGEST) & (values == np.round(values)))
    if wrong.any():
        i = int(np.argmax(wrong))
        raise ValueError(f"{name} must be whole numbers, none missing; got {values[i]} in row {i}.")


def _check_arm(counts: dict[str, NDArray], events: str, size: str) -> None:
    wrong = (counts[events] > counts[size]) | (counts[size] == 0)
    if wrong.any():
        i = int(np.argmax(wrong))
        raise ValueError(
            f"{events} must not be more than {size}, and {size} not 0; got "
            f"{counts[events][i]:g} of {counts[size][i]:g} in row {i}."
        )
