"""Fits that one node cannot spoil: what nodes must agree on, and how far each of them moves a fit.

A server has the answer of each node, unless sums are secure. So it can fit again without each of
them, and nothing more is sent. The *shift* of a node is how far it moves the population: the
difference between the fit with and without it, in standard errors of the fit without it, and of the
parameter that it moves furthest. Errors of a fit with the node would grow with what it says. Where
a method has no standard errors, they come from how much the other nodes differ.

The fit without one node shows what that one does. Of nodes that lie together, each alone may seem
to move little.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Settled",
    "alone_in_units",
    "check_finite",
    "check_max_shift",
    "differing",
    "guilty",
    "largest_move",
    "newton_step",
    "pair",
    "settle",
    "shifts_of_means",
    "shifts_of_steps",
]

# Facts that all nodes must state alike. Others are of their own groups.
ALIKE = ("n_features", "columns", "covariate_names", "covariates", "levels", "dispersion")
# A node whose column is so much larger than that of all others decides alone on its unit.
FAR_UNITS = 1e3
# Information, in units of that on single parameters, that is rounding.
SAME = 1e-10
# Texts in errors are not longer.
SHOWN = 60

Population = Mapping[str, tuple[NDArray, NDArray]]
"""Parameters of a population by name, with standard errors, NaN where there are none."""


class Settled(NamedTuple):
    """What a round has led to.

    Attributes
    ----------
    state : dict
        The state after the round.
    shifts : dict of float
        Shift of each node, NaN where it is not known.
    left : dict of str
        Why nodes were left out.
    """

    state: Any
    shifts: dict[str, float]
    left: dict[str, str]


def check_max_shift(max_shift: Any) -> None:
    """Raise a ValueError if that is no limit of shifts.

    Examples
    --------
    >>> check_max_shift(-1.0)
    Traceback (most recent call last):
    ...
    ValueError: max_shift must be a positive number of standard errors, or None; got -1.0.
    """
    number = isinstance(max_shift, int | float) and not isinstance(max_shift, bool)
    if max_shift is not None and not (number and max_shift > 0):
        raise ValueError(
            f"max_shift must be a positive number of standard errors, or None; got {max_shift!r}."
        )


def differing(facts: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return which nodes state other columns than most do, and what they state.

    Parameters
    ----------
    facts : dict of dict
        Facts of each node, by its name.

    Raises
    ------
    ValueError
        If nodes differ, and no more than half of them agree.

    Examples
    --------
    >>> one, other = ({"n": np.array([3]), "n_features": np.array([d])} for d in (1, 2))
    >>> differing({"a": one, "b": one, "c": other})
    {'c': 'facts that differ from those of most nodes: n_features is 2 rather than 1'}
    """
    stated = {name: _alike(each) for name, each in facts.items()}
    groups: dict[tuple, list[str]] = {}
    for name, each in stated.items():
        groups.setdefault(tuple(sorted(each.items())), []).append(name)
    most = max(groups, key=lambda each: len(groups[each]), default=())
    if len(groups) > 1 and 2 * len(groups[most]) <= len(facts):
        kinds = [dict(each) for each in groups]
        differ = [x for x in kinds[0] | kinds[1] if len({each.get(x) for each in kinds}) > 1]
        who = (
            f"{', '.join(names)}: {differ[0]} is {_short(dict(each).get(differ[0], 'missing'))}"
            for each, names in groups.items()
        )
        raise ValueError(f"nodes state different facts, and most do not agree: {'; '.join(who)}.")
    return {
        name: f"facts that differ from those of most nodes: {_difference(each, dict(most))}"
        for name, each in stated.items()
        if each != dict(most)
    }


def _alike(facts: Mapping[str, Any]) -> dict[str, str]:
    """Return as text what must be the same at all nodes: which facts, and some values."""
    kinds = {f"kind of {name}": np.asarray(x).dtype.kind for name, x in facts.items()}
    one = {x: np.asarray(facts[x]) for x in ALIKE if x in facts}
    values = {
        name: str(x[0]).replace("\n", ", ")
        for name, x in one.items()
        if len(x) == 1 and (x.dtype.kind == "U" or name == "n_features")
    }
    return kinds | values


def _difference(own: Mapping[str, str], others: Mapping[str, str]) -> str:
    name = next(x for x in (*others, *own) if own.get(x) != others.get(x))
    if name not in own or name not in others:
        lacks = f"{name.removeprefix('kind of ')} is"
        return f"{lacks} missing" if name not in own else f"{lacks} stated by few nodes"
    return f"{name} is {_short(own[name])} rather than {_short(others[name])}"


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def guilty(names: Sequence[str], tried: Callable[[Sequence[str]], Any]) -> str | None:
    """Return the node without which something does not fail, if that is one of three or more."""
    if len(names) < 3:
        return None
    others = {name: [each for each in names if each != name] for name in names}
    found = [name for name, rest in others.items() if not isinstance(tried(rest), Exception)]
    return found[0] if len(found) == 1 else None


def check_finite(protocol: Any, state: Any) -> Any:
    """Return a state; raise a ValueError if it is the last, and a parameter is not finite."""
    if state["done"]:
        found = protocol.fitted_parameters(state)
        wrong = [name for name, (x, _) in found.items() if not np.isfinite(x).all()]
        if wrong:
            are = "is" if len(wrong) == 1 else "are"
            raise ValueError(
                f"the fit is not finite: {', '.join(wrong)} {are} no finite number. Figures may be "
                "too large for float64 arithmetic: rescale the data."
            )
    return state


def settle(
    protocol: Any,
    before: Any,
    at: Callable[[Sequence[str]], tuple[Any, Any]],
    messages: Mapping[str, Any],
    *,
    limit: float | None,
    least: int,
) -> Settled:
    """Take a round; leave out a node without which alone it succeeds, or that moves it too far.

    Parameters
    ----------
    protocol : Rounds
    before : dict
        The state before the round.
    at : callable
        Returns the state before the round, and the joined message, of nodes with these names.
    messages : dict
        Message of each node, by its name.
    limit : float or None
        Largest shift of a node; None: any.
    least : int
        How many nodes must be left; more than half of them must be in any case.

    Raises
    ------
    RuntimeError
        If too few nodes are left, or the fit of all answers fails in the arithmetic.
    """
    kept, left, moved = list(messages), dict[str, str](), dict[str, float]()
    least = max(least, len(kept) // 2 + 1)
    fits = _Fits(protocol, at, {})
    while True:
        whole = fits.state(kept)
        if isinstance(whole, Exception):
            worst, shift, found = _guilty(kept, fits, whole), math.nan, {}
            reason = f"the fit fails with its answer: {_short(str(whole))}"
        else:
            fits.keep(kept, whole)
            found = _shifts(fits, before, whole, messages, kept)
            if limit is None or not _most(found) > limit:
                return Settled(whole, found | moved, left)
            worst = _worst(found, partial(_shifts, fits, before, whole, messages))
            shift = found[worst]
            own = "it moves" if shift > limit else "it makes another move"
            most = shift if shift > limit else _most(found)
            reason = f"{own} the fit by {most:.3g} standard errors; max_shift is {limit:g}"
        if len(kept) - 1 < least:
            raise RuntimeError(
                f"{worst}: {reason}. Without it there are {len(kept) - 1} nodes, and {least} are "
                "needed. Nothing was estimated."
            )
        if protocol.begins_again and before["round"]:
            shown = ", ".join(f"{name} {x:.3g}" for name, x in found.items())
            raise RuntimeError(
                f"{worst}: {reason}. It took part in the rounds before, and cannot be left out of "
                f"them: fit again without it (shifts are {shown}). Nothing was estimated."
            )
        kept.remove(worst)
        left[worst], moved[worst] = reason, shift


@dataclass(frozen=True)
class _Fits:
    """Rounds as they would have been with fewer nodes."""

    protocol: Any
    at: Callable[[Sequence[str]], tuple[Any, Any]]
    known: dict[tuple[str, ...], Any]

    def state(self, names: Sequence[str]) -> Any:
        """Return the state after the round with these nodes, or the error in its place."""
        try:
            state, message = self.at(names)
            return check_finite(self.protocol, self.protocol.update(state, message))
        except Exception as error:  # arithmetic of figures that no check can foresee
            return error

    def _look(self, names: Sequence[str]) -> Any:
        if (key := tuple(names)) not in self.known:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = self.state(names) if names else ValueError("there is no node.")
            self.keep(names, found)
        return self.known[key]

    def keep(self, names: Sequence[str], found: Any) -> None:
        """Keep what a round of these nodes has found."""
        if not isinstance(found, Exception):
            done = bool(found["done"])
            found = done, self.protocol.fitted_parameters(found) if done else {}
        self.known[tuple(names)] = found

    def ended(self, names: Sequence[str]) -> Any:
        """Return whether that is the last round, or the error in its place."""
        found = self._look(names)
        return found if isinstance(found, Exception) else found[0]

    def parameters(self, names: Sequence[str]) -> Population:
        """Return what the last round has found; nothing if it failed or is not the last."""
        found = self._look(names)
        return {} if isinstance(found, Exception) else found[1]


def _guilty(names: Sequence[str], fits: _Fits, error: Exception) -> str:
    """Return the node without which a fit does not fail, or raise the error."""
    if (found := guilty(names, fits.ended)) is not None:
        return found
    if isinstance(error, np.linalg.LinAlgError | ArithmeticError | LookupError | AssertionError):
        raise RuntimeError(
            f"the fit of the answers of {', '.join(names)} fails in the arithmetic: {error}."
        ) from error
    raise error


def _most(shifts: Mapping[str, float]) -> float:
    """Return the largest shift, 0 if none is known."""
    return max((x for x in shifts.values() if not math.isnan(x)), default=0.0)


def _worst(
    shifts: Mapping[str, float], again: Callable[[Sequence[str]], Mapping[str, float]]
) -> str:
    """Return the node without which the others move the fit least, and their moves are known."""
    rest = {}
    for name in shifts:
        others = again([each for each in shifts if each != name]).values()
        rest[name] = max(np.nan_to_num(x, nan=math.inf) for x in others)
    return min(shifts, key=lambda name: (rest[name], -np.nan_to_num(shifts[name])))


def _shifts(
    fits: _Fits, before: Any, whole: Any, messages: Mapping[str, Any], names: Sequence[str]
) -> dict[str, float]:
    """Return the shift of each node, by the method's own account or by fits without each."""
    known = fits.protocol.shifts(before, whole, [messages[name] for name in names])
    if known is not None:
        return dict(zip(names, known.tolist(), strict=True))
    if not whole["done"] or len(names) < 2:
        return dict.fromkeys(names, math.nan)
    full, shifts = fits.parameters(names), dict[str, float]()
    for name in names:
        others = [each for each in names if each != name]
        alone = [partial(fits.parameters, [each]) for each in others]
        shifts[name] = _furthest(full, fits.parameters(others), alone)
    return shifts


def _furthest(
    full: Population, without: Population, alone: Sequence[Callable[[], Population]]
) -> float:
    """Return the largest move of a parameter by a node, in standard errors of the fit without it.

    Where there are none, or 0, fits of single other nodes say how much these differ.
    """
    shift = math.nan
    for parameter, (values, _) in full.items():
        there, errors = without.get(parameter, (np.zeros(0), np.zeros(0)))
        if there.shape != values.shape:  # another number of components
            continue
        open_ = ~(errors > 0) & (values != there)
        if open_.any() and len(alone) > 1:
            fits = [each().get(parameter, (np.zeros(0), 0))[0] for each in alone]
            fits = [each for each in fits if each.shape == values.shape]
            if len(fits) > 1:
                spread = np.std(fits, axis=0, ddof=1) / math.sqrt(len(fits))
                errors = np.where(open_, spread, errors)
        shift = np.fmax(shift, largest_move(values - there, errors))
    return float(shift)


def largest_move(moves: NDArray[np.float64], errors: NDArray[np.float64]) -> float:
    """Return the size of the largest move in standard errors; NaN if none has any.

    Examples
    --------
    >>> largest_move(np.array([1.0, -3.0, 5.0]), np.array([1.0, 2.0, 0.0]))
    1.5
    """
    known = np.isfinite(errors) & (errors > 0)
    with np.errstate(over="ignore", invalid="ignore"):
        moved = np.abs(moves[known]) / errors[known]
    return float(np.nan_to_num(moved, nan=math.inf).max()) if known.any() else math.nan


def pair(values: Any, squares: Any = np.nan) -> tuple[NDArray, NDArray]:
    """Return parameters, and their standard errors from sampling variances, which may be NaN.

    Examples
    --------
    >>> pair([1.0, 2.0], [4.0, np.nan])
    (array([1., 2.]), array([ 2., nan]))
    """
    values = np.atleast_1d(np.asarray(values, float))
    with np.errstate(invalid="ignore"):
        return values, np.sqrt(np.broadcast_to(np.asarray(squares, float), values.shape))


def shifts_of_steps(
    k: int, step: Callable[[NDArray[np.intp]], tuple[NDArray, NDArray]], *, settled: bool = True
) -> NDArray[np.float64]:
    """Return how far each of k nodes moves a fit, by a step to the maximum without it.

    Parameters
    ----------
    k : int
    step : callable
        Returns the step with some nodes, given by their numbers, and its standard errors.
    settled : bool
        Whether the step with all nodes ends at a maximum. If False, as where figures do not fit
        together, the step without a node counts, too.

    Returns
    -------
    ndarray of shape (k,)
        NaN if there is one node only.
    """
    nodes, shifts = np.arange(k), np.full(k, np.nan)
    if k < 2:
        return shifts
    whole, _ = step(nodes)
    for i in nodes:
        without, errors = step(np.delete(nodes, i))
        moves = [whole - without] if settled else [whole - without, without]
        shifts[i] = max(largest_move(each, errors) for each in moves)
    return shifts


def newton_step(
    slope: NDArray[np.float64], second: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the step to a maximum, and standard errors; of directions that have one.

    Examples
    --------
    >>> newton_step(np.array([2.0, 1.0]), np.diag([-4.0, 1.0]))
    (array([0.5, 0. ]), array([0.5, 0. ]))
    """
    units = np.sqrt(np.abs(np.diag(second)))
    units = np.where(units > 0, units, 1.0)
    values, vectors = np.linalg.eigh(-second / units / units[:, None])
    vectors = vectors[:, values > SAME] / np.sqrt(values[values > SAME]) / units[:, None]
    return vectors @ (vectors.T @ slope), np.sqrt((vectors**2).sum(axis=1))


def alone_in_units(squares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return infinity for a node beside which the others' columns are negligible, else NaN.

    Parameters
    ----------
    squares : ndarray of shape (k, p)
        Sums of squares of the columns of each node. Those that the others have not are not counted.

    Examples
    --------
    >>> alone_in_units(np.array([[1.0, 3.0], [2.0, 2.0], [1e9, 0.0]]))
    array([nan, nan, inf])
    """
    others = np.array([np.delete(squares, i, axis=0).sum(axis=0) for i in range(len(squares))])
    far = ((others > 0) & (squares > FAR_UNITS**2 * others)).any(axis=1)
    return np.where(far, np.inf, np.nan)


def shifts_of_means(sums: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how far each node moves a weighted mean of vectors, in errors of that of the others.

    The error of the mean of the other nodes is that of vectors of their lengths, of any directions:
    how much a few nodes differ says little of how much they might.

    Parameters
    ----------
    sums : ndarray of shape (k, size)
        Weighted sum of each node.
    weights : ndarray of shape (k,)
        Weight of each node.

    Returns
    -------
    ndarray of shape (k,)

    Examples
    --------
    >>> shifts_of_means(np.array([[1.0], [1.2], [0.8], [90.0]]), np.ones(4)).round(1)
    array([ 0.2,  0.2,  0.2, 38. ])
    """
    k = len(sums)
    size = np.abs(sums).max(initial=0.0)
    scaled = sums / size if size > 0 else sums
    squares, shifts = (scaled**2).sum(axis=1), np.full(k, np.nan)
    weight = float(weights.sum())
    for i in range(k):
        rest = weight - weights[i]
        if k < 2 or not (rest > 0 and weights[i] > 0):
            continue
        away = scaled[i] - weights[i] / rest * np.delete(scaled, i, axis=0).sum(axis=0)
        moved = math.sqrt(float((away**2).sum())) / weight
        error = math.sqrt(np.delete(squares, i).sum()) / rest
        shifts[i] = moved / error if error > 0 else (math.inf if moved > 0 else 0.0)
    return shifts
