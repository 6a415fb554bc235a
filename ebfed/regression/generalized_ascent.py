"""The server's part of a generalized linear model by quadrature: Newton's method in rounds.

Clients send log-likelihoods with first and second derivatives, by few nodes until the maximum is
near and then by many; the server takes the best step within a radius that it trusts.
"""

from __future__ import annotations

from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from ebfed.inference.trust_region import climb
from ebfed.regression.notes import LITTLE, warn_unfinished
from ebfed.regression.numerics.descent import are_few
from ebfed.regression.numerics.quadrature_population import (
    Covariance,
    QuadraturePopulation,
    square_of,
)
from ebfed.regression.protocol import GeneralizedMessage, GeneralizedState

__all__ = [
    "FIRST_SPREAD",
    "SAME",
    "ascend",
    "ascend_again",
    "begin",
    "coordinates",
    "population_of",
]

# Standard deviations of the first population, and lengths of steps, in units of the logit.
FIRST_SPREAD, FIRST_RADIUS, RADIUS = 0.7, 2.0, 16.0
# Gain at which many nodes are used.
NEAR = 1e-3
# Gain at which a fit is done, some 1e-5 standard errors from the maximum; and what a change of the
# rules from one population to the next may lose.
EXACT, NOISE = 1e-10, 1e-6
# Standard deviations from which a second search begins, and what is kept of the first.
WIDE_SPREAD = 2.0
OF_MAXIMUM = (
    *("point", "best_point", "best_value", "log_likelihood", "slope", "second", "radius", "gain"),
    *("mean_covariance", "information", "converged", "phase", "unlimited"),
)
# Standard deviation, in units of the logit, from which quadrature loses digits of a likelihood that
# is a step at most rows.
WIDE = 8.0
# A share of a mean square that is rounding.
SAME = 1e-12


def coordinates(
    state: GeneralizedState,
    ways: NDArray,
    unit: NDArray,
    empty: NDArray,
    centre: NDArray,
    spread: NDArray,
    kind: Covariance,
    intercept: bool,
) -> QuadraturePopulation:
    """Choose coordinates in which columns have unit size, centred where the model allows it.

    So it does where they differ between groups with correlations: their coordinates are orthogonal.

    Parameters
    ----------
    state : dict
    ways : ndarray of shape (p, rank)
        Directions in which coefficients matter alike; see `find_directions`.
    unit : ndarray of shape (p,)
        Units of the coefficients.
    empty : bool ndarray of shape (p,)
        Whether a column is zero everywhere.
    centre : ndarray of shape (p,)
        Means of the columns.
    spread : ndarray of shape (p, p)
        Covariance of the columns.
    kind : {"diag", "spherical", "full"}
    intercept : bool
        Whether the first column is all ones, and has a mean.
    """
    of_levels = state["of_levels"]
    if kind == "full" and not of_levels.any() and len(state["fixed"]) == len(unit):
        frame, ways = ways, np.eye(ways.shape[1])
        of_levels = np.zeros((len(of_levels), len(ways)), np.int64)
    else:
        frame = np.diag(unit)
        if kind != "spherical":
            of_levels = np.where(empty, -1, of_levels)
        if kind == "full":
            for own in _correlated(of_levels):
                frame[np.ix_(own, own)] = _orthogonal(centre[own], spread[np.ix_(own, own)])
        if intercept:  # a constant moves between these and the intercept
            alike = np.flatnonzero(~state["varies"] & ~empty)
            alike = alike[alike > 0]
            size = np.linalg.norm(ways[alike], axis=1)
            frame[alike, alike] = np.where(size > 0, size, unit[alike])
            frame[0, alike] = -centre[alike] * frame[alike, alike]
        ways = np.linalg.solve(frame, ways)
    of_levels = np.where(state["known"][:, None], of_levels, -1)
    order = np.argsort(of_levels, axis=1, kind="stable")  # by block
    level, at = np.nonzero(np.take_along_axis(of_levels, order, axis=1) >= 0)
    places = order[level, at]
    return QuadraturePopulation(
        np.zeros(0),
        kind == "spherical",
        frame,
        ways,
        places,
        sizes=tuple((of_levels >= 0).sum(axis=1).tolist()),
        blocks=of_levels[level, places] + level * of_levels.shape[1],
    )


def _correlated(of_levels: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Find columns that are in one block in each level in which they are, or in none."""
    kinds, which = np.unique(of_levels, axis=1, return_inverse=True)
    together = [np.flatnonzero(which.ravel() == k) for k in range(kinds.shape[1])]
    return [own for own in together if len(own) > 1 and (of_levels[:, own[0]] >= 0).any()]


def _orthogonal(centre: NDArray, spread: NDArray) -> NDArray[np.float64]:
    """Triangle that turns columns into orthogonal ones, whose squares have a mean of 1.

    A column of ones goes first. Columns that follow from each other are scaled alone.

    Examples
    --------
    >>> turn = _orthogonal(np.array([1.0, 400.0]), np.diag([0.0, 4.0]))
    >>> turn
    array([[   1. , -200. ],
           [   0. ,    0.5]])
    """
    square = spread + np.outer(centre, centre)
    turn = np.diag(1 / np.sqrt(np.diag(square)))
    first = int(spread[0, 0] <= SAME * square[0, 0])
    rest = (spread if first else square)[first:, first:]
    size = np.sqrt(np.diag(rest))
    if not len(rest) or (size**2 <= SAME * np.diag(square)[first:]).any():
        return turn
    alike = rest / np.outer(size, size)
    if np.linalg.eigvalsh(alike)[0] > SAME:
        own = np.linalg.inv(np.linalg.cholesky(alike)).T / size[:, None]
        turn[first:, first:] = own
        if first:
            turn[0, first:] = -centre[first:] @ own / centre[0]
    return turn


def begin(
    state: GeneralizedState, start: QuadraturePopulation, phase: Literal["coarse", "fine"]
) -> GeneralizedState:
    """Ask about the first population."""
    return state | {
        "phase": phase,
        "frame": start.frame,
        "directions": start.ways,
        "places": start.places,
        "sizes": np.array(start.sizes),
        "blocks": start.blocks,
        "point": start.point,
        "radius": FIRST_RADIUS,
        "best_value": -np.inf,
    }


def population_of(state: GeneralizedState, kind: Covariance) -> QuadraturePopulation:
    """Return the population that is asked about."""
    coordinates = state["frame"], state["directions"], state["places"]
    sizes = tuple(state["sizes"].tolist())
    return QuadraturePopulation(
        state["point"], kind == "spherical", *coordinates, sizes, state["blocks"]
    )


def ascend(
    state: GeneralizedState, messages: GeneralizedMessage, kind: Covariance, n_rounds: int
) -> GeneralizedState:
    """Take a step of Newton's method; a shorter one from the best point if that led down."""
    here, value = population_of(state, kind), float(messages["evidence"].sum())
    root = np.column_stack(here.seen()[1])
    tried = {"log_likelihood": value, "sd": np.sqrt((root**2).sum(axis=1)).mean()}
    state = state | {"history": [*state["history"], tried]}
    rise, gain = value - state["best_value"], state["gain"]
    radius, noise = state["radius"], NOISE + 1e-12 * abs(value)
    raw = square_of(messages["curvature"].sum(axis=0))
    if "best_point" in state and not (rise >= -noise and np.isfinite(raw).all()):
        radius = min(radius, float(np.linalg.norm(state["point"] - state["best_point"]))) / 4
    else:
        slope, curvature = here.chain(messages["score"].sum(axis=0), raw)
        if _freezes(state) and state["phase"] == "coarse":
            state = state | {"missing": _missing(state, here.point, slope, curvature)}
        if rise > 0.75 * gain or gain < noise:
            radius = min(2 * radius, RADIUS)
        elif rise < 0.25 * gain:
            radius = radius / 4
        state = state | {
            "best_value": value,
            "best_point": here.point,
            "slope": slope,
            "second": curvature,
            "log_likelihood": value,
            "mean_covariance": here.mean_covariance(curvature),
            "information": -np.diag(raw)[here.places],
        }
    step, gain = climb(state["slope"], _bent(state), radius)
    # where rules change from round to round, the last digits do not settle
    stalled = gain < noise and 4 * gain > state["gain"]
    asked = state | {"point": state["best_point"] + step, "gain": gain, "radius": radius}
    fine = {name: each for name, each in asked.items() if name != "missing"}
    fine |= {"phase": "fine", "best_value": -np.inf, "gain": np.inf}
    near = NOISE if _freezes(state) else NEAR  # derivatives cost more when fine
    value, enough = state["best_value"], EXACT + 1e-14 * abs(state["best_value"])
    ended = state | {"phase": "end", "point": state["best_point"]}
    unlimited = state["unlimited"] or here.at_bounds()[1]
    if value > state["perfect"] or (unlimited and gain <= LITTLE):
        return ended
    if gain <= enough or stalled or radius < EXACT:
        if state["phase"] == "fine":
            if gain <= enough:  # wherever the search began, the last step leads to one place
                ended = ended | {"point": asked["point"]}
            return ended | _settled(state, here, gain <= enough + noise, unlimited)
        return cast(GeneralizedState, fine)
    if state["round"] >= n_rounds:
        if not unlimited:  # there is nothing to converge to
            warn_unfinished(f"after {state['round']} rounds", gain, "Raise n_rounds.")
        return ended | {"converged": None if unlimited else False}
    if state["phase"] == "coarse" and gain <= near:
        return cast(GeneralizedState, fine)
    return asked


def _freezes(state: GeneralizedState) -> bool:
    """Whether coarse second derivatives hold what stands in for rows; see `approximate`."""
    return state["method"] != "aghq" and len(state["sizes"]) == 1


def _bent(state: GeneralizedState) -> NDArray[np.float64]:
    """Second derivatives by which a step is taken."""
    return state["second"] + state["missing"] if "missing" in state else state["second"]


def _missing(
    state: GeneralizedState, point: NDArray, slope: NDArray, curvature: NDArray
) -> NDArray[np.float64]:
    """What second derivatives lack, by how slopes changed (Dennis, Gay, Welsch, 1981).

    Those that hold what stands in for rows leave something out: each step shows along it what, and
    an update of rank two says so. What is known of other steps is no larger
    than what this step shows.
    """
    known = state.get("missing", np.zeros_like(curvature))
    if "best_point" not in state:
        return known
    step, bent = point - state["best_point"], slope - state["slope"]
    unknown, along = bent - curvature @ step, float(bent @ step)
    if along > -1e-8 * np.linalg.norm(bent) * np.linalg.norm(step):
        return known
    size = abs(float(step @ known @ step))
    known = known * min(1.0, abs(float(step @ unknown)) / max(size, 1e-300))
    left = unknown - known @ step
    cross = np.outer(left, bent) / along
    return known + cross + cross.T - float(left @ step) / along**2 * np.outer(bent, bent)


def ascend_again(
    state: GeneralizedState, kind: Covariance, calm: tuple[float, ...]
) -> GeneralizedState:
    """End a search, or begin it again from wide spreads where there may be a second maximum.

    Rows that scatter and groups that do not differ, or that little, can be a maximum beside that of
    rows that hardly scatter, with shapes `calm`, and groups that differ; so may be few groups of
    which one that has few rows is far from the others. The higher maximum is kept.
    """
    if "earlier" in state:
        earlier = state["earlier"]
        if state["best_value"] > earlier["best_value"] + NOISE:
            return state
        return cast(GeneralizedState, {**state, **earlier})
    if not (calm and state["estimates_spread"]):
        return state
    here = population_of(state, kind)
    if not (are_few(state["n"]) or here.at_bounds()[0]):
        return state
    point, rank = here.start(WIDE_SPREAD, 0.0, np.array(calm)).point, here.ways.shape[1]
    point[:rank] = here.point[:rank]
    return state | {
        "earlier": {name: each for name, each in state.items() if name in OF_MAXIMUM},
        "phase": "coarse",
        "point": point,
        "radius": FIRST_RADIUS,
        "gain": np.inf,
        "best_value": -np.inf,
    }


def _settled(
    state: GeneralizedState, here: QuadraturePopulation, short: bool, unlimited: bool
) -> dict[str, bool | None]:
    """Return whether a search has arrived, of which no step is better, or there is no maximum.

    Steps that are short only because none of them was better leave more to gain. Where spreads are
    so wide that almost every row's likelihood is a step, it no longer depends on their scale.
    """
    left = climb(state["slope"], _bent(state), max(state["radius"], FIRST_RADIUS / 2))[1]
    if left <= NEAR or unlimited:
        return {"converged": short}
    if np.linalg.norm(here.root, 2) > WIDE:
        return {"converged": None, "unlimited": True}
    warn_unfinished(f"after {state['round']} rounds no step was better, but", left, "Rescale X.")
    return {"converged": False}
