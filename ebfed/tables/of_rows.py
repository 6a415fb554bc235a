"""What goes with the rows of a table: exposures, what was observed, weights.

Each is an array with an entry for each row, or the name of a column of the frame of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, TypedDict, get_args

import numpy as np
from numpy.typing import NDArray

from ebfed.arguments import check_choice
from ebfed.tables.clients import LARGEST, SMALLEST
from ebfed.tables.values import column, read_labels, read_response

__all__ = [
    "NOTHING",
    "ROUNDED",
    "WHOLE_SUCCESSES",
    "OfRows",
    "Predicted",
    "are_shares",
    "check_whole",
    "given_of_rows",
    "of_rows",
    "wants_rate",
    "won_of_shares",
]


class OfRows(TypedDict, total=False):
    """Arguments of methods that read rows, besides the rows and their groups.

    Attributes
    ----------
    exposure : array-like of shape (n_rows,) or str, optional
        Of counts of events: the expected number of events at a rate of 1, such as person-years.
    observed : array-like of shape (n_rows,) or str, optional
        Of durations: 1 (or True) where the event ended the duration, 0 where it is censored.
    sample_weight : array-like of shape (n_rows,) or str, optional
        Weight of each row. Of means and variances it is a precision: the variance of a row is that
        of its group over the weight, as in lme4. Of rates, counts, categories and durations it is
        a frequency, a whole number: the row stands for so many equal ones of its group. A row of
        weight 0 adds nothing to its group.
    """

    exposure: Any
    observed: Any
    sample_weight: Any


NOTHING: Mapping[str, Any] = MappingProxyType({})
# What `predict` returns: the expected response of a row as given, or that at an exposure of 1; or
# the linear predictor.
Predicted = Literal["response", "rate", "link"]
# What must hold of shares with weights, up to an error of rounded shares.
WHOLE_SUCCESSES = "times its weight, the number of trials, must be a whole number of successes"
ROUNDED = 1e-3
PURPOSE = {
    "exposure": "for counts of events",
    "observed": "for durations until an event",
    "sample_weight": "for rows that may be weighed",
}


def given_of_rows(given: Mapping[str, Any], known: tuple[str, ...], rows: str) -> dict[str, Any]:
    """Return the arguments that are not None, where they are among the known ones.

    Parameters
    ----------
    given : mapping
    known : tuple of str
        Names that rows of this kind may have.
    rows : str
        Kind of the rows, for errors.

    Raises
    ------
    TypeError
        If there is no argument of that name.
    ValueError
        If rows of this kind have none.

    Examples
    --------
    >>> given_of_rows({"exposure": [1.0], "observed": None}, ("exposure",), "poisson")
    {'exposure': [1.0]}
    """
    for name, value in given.items():
        if name not in PURPOSE:
            raise TypeError(f"there is no argument {name!r}; rows may have {', '.join(PURPOSE)}.")
        if value is not None and name not in known:
            raise ValueError(f"{name}= is {PURPOSE[name]}; rows are {rows} here.")
    return {name: value for name, value in given.items() if value is not None}


def wants_rate(type: Predicted, has_rates: bool, rows: str, *, has_predictor: bool = False) -> bool:
    """Tell whether rates are to be predicted, rather than responses.

    Parameters
    ----------
    type : {"response", "rate", "link"}
        The argument of `predict`.
    has_rates : bool
        Whether rows have exposures.
    rows : str
        Kind of the rows, for errors.
    has_predictor : bool
        Whether rows have a linear predictor, which ``"link"`` asks for.

    Raises
    ------
    ValueError
        If there is no such prediction of rows of this kind.

    Examples
    --------
    >>> wants_rate("rate", True, "poisson")
    True
    """
    check_choice("type", type, get_args(Predicted))
    if type == "link" and not has_predictor:
        raise ValueError(f"type='link' is the linear predictor of a mixed model; rows are {rows}.")
    if type == "rate" and not has_rates:
        raise ValueError(f"type='rate' is for rows that may have exposures; rows are {rows} here.")
    return type == "rate"


def of_rows(values: Any, name: str) -> Any:
    """Return what goes with rows: a number for each, or a label.

    Parameters
    ----------
    values : array-like or series, or dict from group to choice of consent
    name : str
        Name of the argument, which says what it may be: a number with a range, else a label.

    Raises
    ------
    ValueError, TypeError
        If something is not one number per row, or out of its range.

    Examples
    --------
    >>> of_rows([2, 0], "sample_weight")
    array([2., 0.])
    """
    if name == "consent":  # labels of classes, or numbers that may be infinite
        if isinstance(values, Mapping):
            return values
        if np.ndim(choices := read_response(values, name)) == 0:
            raise ValueError(f"{name} must be a sequence of labels, one per row; got {values!r}.")
        return choices
    if name not in _RULES:
        return read_labels(values, name)
    found = column(values, name, booleans=name == "observed")
    if found.ndim != 1:
        raise ValueError(f"{name} must be one number per row; it has shape {found.shape}.")
    for holds, text in _RULES[name]:
        _refuse(~holds(found), found, f"{name} {text}")
    return found


def _refuse(wrong: NDArray, values: NDArray, text: str) -> None:
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(f"{text}; row {row} has {values[row]}.")


def check_whole(weights: NDArray, rows: str) -> None:
    """Refuse frequencies that are not whole numbers.

    Raises
    ------
    ValueError

    Examples
    --------
    >>> check_whole(np.array([2.0, 0.0]), "binomial")
    """
    text = f"sample_weight of {rows} rows must be whole numbers, the rows that a row stands for"
    _refuse((weights != np.floor(weights)) | (weights > 2**53), weights, text)


def are_shares(values: NDArray) -> bool:
    """Tell whether numbers are shares of trials: between 0 and 1, and not all of them ends.

    Examples
    --------
    >>> are_shares(np.array([0.0, 0.25, 1.0])), are_shares(np.array([0.0, 1.0]))
    (True, False)
    """
    if values.dtype.kind != "f":
        return False
    return bool(((values >= 0) & (values <= 1)).all() and not np.isin(values, (0, 1)).all())


def won_of_shares(shares: NDArray, trials: NDArray, name: str = "y") -> NDArray[np.int64]:
    """Numbers of successes of shares of trials, as `glm` of R reads shares with weights.

    Parameters
    ----------
    shares : ndarray of shape (n_rows,)
    trials : ndarray of shape (n_rows,)
        Weights of the rows.
    name : str
        Name of the shares, for errors.

    Raises
    ------
    ValueError
        If trials or successes are not whole numbers: shares that were rounded may be off by a
        thousandth of a success.

    Examples
    --------
    >>> won_of_shares(np.array([0.0, 0.333]), np.array([5.0, 3.0]))
    array([0, 1])
    """
    check_whole(trials, "binomial")
    won = shares * trials
    _refuse(~(np.abs(won - np.rint(won)) <= ROUNDED), won, f"{name} {WHOLE_SUCCESSES}")
    return np.rint(won).astype(np.int64)


# What must hold of each number, by argument, and how an error says so.
_SIZE = f"must be between {SMALLEST:g} and {LARGEST:g}; rescale"
_RULES: Mapping[str, Sequence[tuple[Callable[[NDArray], NDArray], str]]] = {
    "exposure": [
        (lambda x: (x > 0) & np.isfinite(x), "must be positive and finite"),
        (lambda x: (x > SMALLEST) & (x < LARGEST), _SIZE),
    ],
    "offset": [
        (
            lambda x: np.abs(x) <= 100,
            "must be finite, and at most 100 in size: it is on the scale of the link, such as "
            "log(exposure)",
        )
    ],
    "trials": [
        (lambda x: (x >= 0) & (x < 2**53) & (x == np.floor(x)), "must be whole numbers from 0")
    ],
    "observed": [
        (
            lambda x: (x == 0) | (x == 1),
            "must be 1 where the event ended a duration and 0 where that is censored",
        )
    ],
    "sample_weight": [
        (lambda x: (x >= 0) & np.isfinite(x), "must be finite, and 0 or more"),
        (lambda x: (x == 0) | ((x > SMALLEST) & (x < LARGEST)), _SIZE),
        (lambda x: np.full(len(x), x.any()), "must not be zero in every row"),
    ],
}
