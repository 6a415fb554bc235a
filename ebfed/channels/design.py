"""Ranges and questions of channels, chosen by Fisher information.

A report carries more information about a population if its range fits well. Before any report, a
public `Guess` says where the population may lie; after a first wave of reports, an estimate takes
its place. The criterion is the expected regret of the personalised estimates: with the inverse
Fisher information C of one client's report about (mean, variance), noise variance v of a local mean
and population variance t,

    regret = (v / (v + t))**2 C_11 + v**2 / (v + t)**3 C_22

(what estimating the population adds to a client's risk, times the number of clients), averaged
over the guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from ebfed.channels.levels import counts_are_levels
from ebfed.channels.report import Report
from ebfed.channels.two_bit import TwoBit
from ebfed.families import Family
from ebfed.likelihoods import Likelihood
from ebfed.tables.values import numbers

__all__ = ["DEFAULT_GUESS", "Guess", "fisher_information", "settle", "theorem_range"]


@dataclass(frozen=True)
class Guess:
    """Public guess of a population, before any data.

    Parameters
    ----------
    mean : (float, float)
        Ends of the range in which the mean of the population may lie.
    spread : float
        Rough standard deviation of the population.

    Examples
    --------
    >>> Guess(mean=(-0.5, 0.5), spread=0.1)
    Guess(mean=(-0.5, 0.5), spread=0.1)
    """

    mean: tuple[ArrayLike, ArrayLike]
    spread: ArrayLike

    def column(self, j: int, n_features: int) -> tuple[float, float, float]:
        """Return low, high and spread of one column.

        Raises
        ------
        ValueError
            If they are not finite, low exceeds high, or the spread is not positive.
        """
        try:
            low, high = self.mean
            given = (numbers(each, "guess") for each in (low, high, self.spread))
            ends = [float(np.broadcast_to(each, n_features)[j]) for each in given]
        except (TypeError, ValueError):
            ends = [np.nan]
        if not (np.isfinite(ends).all() and ends[0] <= ends[1] and ends[2] > 0):
            raise ValueError(
                "guess must be Guess(mean=(low, high), spread=positive), each a number or one per "
                f"column; got {self!r}."
            )
        return ends[0], ends[1], ends[2]


# Of rates, where nothing else is guessed.
DEFAULT_GUESS = Guess(mean=(0.2, 0.8), spread=0.2)


def theorem_range(low: float, high: float, spread: float, error: float, m: int, n: float) -> tuple:
    """Range ``centre ± b`` with b of Theorem 2: guessed means, plus spread and error of all m.

    ``b = r + (spread + error) sqrt(log(m**2 n))``, where `error` is the standard deviation of a
    local mean around its parameter (Ozkara et al. 2023).

    Examples
    --------
    >>> theorem_range(-0.5, 0.5, 0.1, 0.5 / 15**0.5, 10_000, 15)
    (-1.5531, 1.5531)
    """
    centre, r = (low + high) / 2, (high - low) / 2
    b = r + (spread + error) * np.sqrt(np.log(max(m, 2) ** 2 * max(n, 1)))
    return float(centre - b), float(centre + b)


def settle(
    channel: Report,
    family: Family,
    n_features: int,
    n_clients: int,
    size: float,
    guess: Guess | None,
) -> dict[str, Any]:
    """Choose the arguments that a channel leaves open.

    Parameters
    ----------
    channel : Report
    family : Family
        Family of the rows of the clients.
    n_features, n_clients : int
    size : float
        Number of rows, or exposure, of a typical client.
    guess : Guess or None

    Returns
    -------
    dict
        Arguments for `set_params`; empty if the channel leaves nothing open.
    """
    tuned = isinstance(channel.range, str)
    if tuned and channel.range != "private":
        raise ValueError(f"range must be (low, high), Clip or 'private'; got {channel.range!r}.")
    auto = isinstance(channel, TwoBit) and channel.split == "auto"
    one = family.typical(size, n_features)
    bounded = bool(np.isfinite(family.support).all())
    if getattr(channel, "levels", 2) is None:
        counts_are_levels(one.counts_rows)
    if not (tuned or auto or channel.range is None) or getattr(channel, "radius", None):
        return {}
    if guess is None:
        if not bounded:
            return {}  # the channel itself raises the error
        guess = DEFAULT_GUESS
    columns = [guess.column(j, n_features) for j in range(n_features)]
    if auto:
        choices = [_tune_questions(channel, one.column(j), c) for j, c in enumerate(columns)]
        chosen = {name: choices[0][name] for name in ("split", "location", "spread")}
        if channel.range is not None and not tuned:
            return chosen
        ranges = [choice["range"] for choice in choices]
    elif tuned:
        chosen = {}
        ranges = [_tune_range(channel, one.column(j), c) for j, c in enumerate(columns)]
    elif bounded:
        return {"range": family.support}
    else:
        chosen = {}
        errors = [
            _noise(one.column(j), (low + high) / 2, 0.0) ** 0.5
            for j, (low, high, _) in enumerate(columns)
        ]
        ranges = [
            theorem_range(*c, error, n_clients, size)
            for c, error in zip(columns, errors, strict=True)
        ]
    low, high = (np.array(ends) for ends in zip(*ranges, strict=True))
    return chosen | {"range": (low, high)}


def _noise(one: Likelihood, mean: float, variance: float) -> float:
    """Variance of a local mean around its parameter."""
    return float(one.sampling_variance(mean, variance)[0])


def fisher_information(
    channel: Report, one: Likelihood, mean: float, variance: float
) -> tuple[NDArray, NDArray]:
    """Fisher information of one report about mean and variance of the population.

    The population is the conjugate one: normal, or beta for counts. Derivatives of the law of the
    report are central differences.

    Parameters
    ----------
    channel : Report
        Channel with every argument settled.
    one : Likelihood
        Likelihood of one client's exact figures, one coordinate.
    mean, variance : float

    Returns
    -------
    information : ndarray of shape (2, 2)
    by_report : ndarray of shape (n_outcomes, 2, 2)
        Contribution of each possible report to the information.
    """
    by_report = _by_report(channel, one, [(mean, variance)])[0]
    return by_report.sum(axis=0), by_report


def _by_report(channel: Report, one: Likelihood, points: Sequence[tuple]) -> NDArray:
    """Contributions of reports at p pairs of mean and variance, shape (p, n_outcomes, 2, 2)."""
    law = channel._law(1)
    reports, weights = law.outcomes(one.row_counts)
    many = one.take(np.zeros(len(reports), np.int64))
    where = channel._box(1)
    has_data = np.ones((len(reports), 1), bool)
    said = many.through(law, reports[:, None], has_data, where.centre, where.half)

    mean, variance = np.array([pair[:2] for pair in points]).T
    noise = np.array([_noise(one, *pair[:2]) for pair in points])
    steps = 1e-3 * np.sqrt(variance + noise), 1e-3 * np.maximum(variance, 0.1 * noise)
    less = np.maximum(variance - steps[1], 0.0)
    means = np.concatenate([mean, mean + steps[0], mean - steps[0], mean, mean])
    variances = np.concatenate([variance, variance, variance, variance + steps[1], less])
    density = np.exp(said.marginals(means[:, None], variances[:, None])).T
    base, *ends = density.reshape(5, len(points), len(reports))
    widths = 2 * steps[0], steps[1] + np.minimum(steps[1], variance)
    slopes = np.stack(
        [(ends[0] - ends[1]) / widths[0][:, None], (ends[2] - ends[3]) / widths[1][:, None]], axis=2
    )
    scale = np.where(base > 0, weights / np.where(base > 0, base, 1), 0.0)
    return scale[:, :, None, None] * slopes[..., :, None] * slopes[..., None, :]


def _points(one: Likelihood, low: float, high: float, spread: float) -> list[tuple]:
    """Means and variances to average over, with the weights of regret there."""
    points = []
    for at in np.linspace(low, high, 5 if high - low > spread else 3):
        mean, variance = one.feasible(float(at), spread**2)
        noise = _noise(one, mean, variance)
        total = variance + noise
        points.append((mean, variance, (noise / total) ** 2, noise**2 / total**3))
    return points


def _tune_range(channel: Report, one: Likelihood, guessed: tuple) -> tuple[float, float]:
    """Window around the guess whose reports tell most about the mean (and spread)."""
    from scipy.optimize import minimize_scalar

    low, high, spread = guessed
    centre = (low + high) / 2
    points = _points(one, *guessed)
    total = float(np.sqrt(spread**2 + _noise(one, points[len(points) // 2][0], spread**2)))
    both = channel.identifies_spread

    def regret(log_half: float) -> float:
        half = float(np.exp(log_half))
        trial = clone(channel).set_params(range=(centre - half, centre + half))
        cost = 0.0
        informations = _by_report(trial, one, points).sum(axis=1)
        for (_, _, *weights), information in zip(points, informations, strict=True):
            if both:
                cost += float(_cost(information[None], np.array(weights))[0])
            else:
                cost += weights[0] / max(information[0, 0], 1e-300)
        return np.log(cost)

    reach = np.log([0.2 * total, (high - low) / 2 + 6 * total])
    best = minimize_scalar(regret, bounds=reach, method="bounded", options={"xatol": 0.05})
    half = float(np.exp(best.x))
    return centre - half, centre + half


def _cost(information: NDArray, weights: NDArray) -> NDArray:
    """``weights @ diag(inverse information)``, for a stack of 2 x 2 matrices."""
    a, b, c = information[:, 0, 0], information[:, 0, 1], information[:, 1, 1]
    determinant = np.maximum(a * c - b**2, 1e-12 * a * c + 1e-300)
    return (weights[0] * c + weights[1] * a) / determinant


def _tune_questions(channel: TwoBit, one: Likelihood, guessed: tuple) -> dict[str, Any]:
    """Split, centre and ramps of the two questions."""
    low, high, spread = guessed
    points = _points(one, *guessed)
    centre = (low + high) / 2
    total = float(np.sqrt(spread**2 + _noise(one, points[len(points) // 2][0], spread**2)))
    reach = (high - low) / 2 + 6 * total
    if np.isfinite(one.support).all():
        reach = max(centre - one.support[0], one.support[1] - centre)
    locations = [x for x in (1e-3, 0.5, 1.0, 2.0) if x * total < reach]
    locations = [x * total / reach for x in locations] + [1.0]
    starts = np.arange(0.4, 2.6, 0.15) * total / reach
    ramps = [(a, min(a + w, 1.0)) for a in starts if a < 1 for w in (0.0, total / reach)]
    splits = np.arange(6, 35) / 40
    information = np.zeros((len(points), len(locations), len(ramps), 2, 2, 2))
    trial = clone(channel).set_params(split=0.5, range=(centre - reach, centre + reach))
    for k, location in enumerate(locations):
        trial.set_params(location=location)
        above = _by_report(trial, one, points)[:, :2].sum(axis=1)
        information[:, k, :, 0] = 2 * above[:, None]
    for k, ramp in enumerate(ramps):
        trial.set_params(spread=ramp)
        far = _by_report(trial, one, points)[:, 2:].sum(axis=1)
        information[:, :, k, 1] = 2 * far[:, None]
    cost = np.zeros((len(splits), len(locations), len(ramps)))
    for p, (_, _, *weights) in enumerate(points):
        for row, split in enumerate(splits):
            mixed = split * information[p, :, :, 0] + (1 - split) * information[p, :, :, 1]
            cost[row] += _cost(mixed.reshape(-1, 2, 2), np.array(weights)).reshape(cost[row].shape)
    s, at, r = np.unravel_index(np.argmin(cost), cost.shape)
    return {
        "split": float(splits[s]),
        "range": (centre - reach, centre + reach),
        "location": float(locations[at]),
        "spread": (float(ramps[r][0]), float(ramps[r][1])),
    }
