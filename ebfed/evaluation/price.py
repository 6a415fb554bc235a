"""What privacy costs: how far estimates move when groups report through a private channel."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from ebfed.channels import Channel, Gaussian, Guess, Piecewise, TwoBit
from ebfed.location import BernoulliEB, GaussianEB
from ebfed.tables.frames import frame

__all__ = ["price_of_privacy"]

EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
DELTA = 1e-6


def price_of_privacy(
    fit: Any,
    epsilons: Sequence[float] = EPSILONS,
    *,
    channels: Mapping[str, Callable[[float], Channel]] | None = None,
    n_runs: int = 20,
    random_state: int | None = 0,
    verbose: int = 0,
) -> Any:
    """Fit the same groups again through private channels, and see how far their estimates move.

    A group's estimate comes from its own rows and the population; private is only what it tells of
    itself for the population to be fitted. Where the population is lost in the noise, estimates may
    be worse than the groups' own means.

    Of means, the private fits are told more than they would know: the noise variance of the fit
    without privacy, which no such channel sends, and, where the fit had no `guess`, one that is
    centred on its population. Where these are not known, privacy costs more than is shown here.

    The result is computed from all groups' data and is not private itself: make it where the data
    are, or from data like them.

    Parameters
    ----------
    fit : fitted GaussianEB or BernoulliEB, or a formula with one
        Through an exact channel, without covariates. Where means have no `guess`, from which
        channels take their range, it is the mean of the fitted population, give or take a standard
        deviation, and that deviation.
    epsilons : sequence of float
        At least one.
    channels : mapping of name to callable, optional
        From epsilon to a channel. If None: `TwoBit`, `Piecewise`, and `Gaussian` with delta 1e-6.
    n_runs : int
        Times that everything is drawn anew; from two on there is a ``std_error``.
    random_state : int or None
        From 0; None: other draws in every call.
    verbose : int
        1 shows a progress bar.

    Returns
    -------
    DataFrame
        A row for each channel and epsilon. ``error``: how far estimates lie from those without
        privacy, as a root mean square over groups and runs; ``std_error``: of that, from the runs;
        ``local_error``: how far the groups' own means lie from them, a root mean square too.

    Raises
    ------
    TypeError, ValueError
        If the fit is of another kind, had covariates, or was private itself; if its means do not
        vary, within groups or between them; if there is no epsilon or no channel.

    Examples
    --------
    >>> import ebfed as eb
    >>> y, groups, p = eb.datasets.make_bernoulli_groups(2000, 6, random_state=0)
    >>> est = eb.BernoulliEB().fit(y, groups=groups)
    >>> price = price_of_privacy(est, [1, 4], channels={"two bits": eb.channels.TwoBit}, n_runs=3)
    >>> price.round(2)
        channel  epsilon  error  std_error  local_error
    0  two bits      1.0   0.02        0.0         0.14
    1  two bits      4.0   0.01        0.0         0.14
    """
    from tqdm import tqdm

    estimator = getattr(fit, "estimator_", fit)
    _check(estimator)
    if not _whole(n_runs, 1):
        raise ValueError(f"n_runs must be a whole number from 1; got {n_runs!r}.")
    if random_state is None:
        random_state = np.random.SeedSequence().generate_state(1).item()
    if not _whole(random_state, 0):
        raise ValueError(
            f"random_state must be a whole number from 0, or None; got {random_state!r}."
        )
    if channels is None:
        channels = {"TwoBit": TwoBit, "Piecewise": Piecewise, "Gaussian": _gaussian}
    if np.ndim(epsilons) != 1 or not len(epsilons):
        raise ValueError(f"epsilons must be a list of at least one number; got {epsilons!r}.")
    if not channels:
        raise ValueError(f"channels must name at least one; got {channels!r}.")
    has_data = estimator.summaries_.n > 0
    best, local = estimator.posterior().mean[has_data], estimator.summaries_.mean[has_data]
    cells = [(name, float(epsilon)) for name in channels for epsilon in epsilons]
    rows = []
    for name, epsilon in tqdm(cells, disable=not verbose, unit=" settings", leave=False):
        channel = channels[name](epsilon)
        squares = [
            _distance(_again(estimator, channel, [random_state, run])[has_data], best)
            for run in range(n_runs)
        ]
        error = np.sqrt(np.mean(squares))
        # of a root, by the delta method
        spread = np.std(squares, ddof=1) / np.sqrt(n_runs) if n_runs > 1 else np.nan
        doubt = spread / (2 * error) if error > 0 else 0.0
        rows.append((name, epsilon, error, doubt, np.sqrt(_distance(local, best))))
    names = ("channel", "epsilon", "error", "std_error", "local_error")
    columns = dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True))
    return frame(columns, estimator._style())


def _gaussian(epsilon: float) -> Channel:
    return Gaussian(epsilon, DELTA)


def _whole(value: Any, least: int) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def _check(estimator: Any) -> None:
    if type(estimator) not in (GaussianEB, BernoulliEB):
        raise TypeError(
            f"fit must be a fitted GaussianEB or BernoulliEB; got {type(estimator).__name__}."
        )
    check_is_fitted(estimator, "prior_")
    if not estimator._all_exact():
        raise ValueError("fit must be without privacy: it is what the others are compared with.")
    if estimator.covariate_names_:
        raise ValueError("fit must be without covariates: private channels take none.")
    if isinstance(estimator, GaussianEB) and estimator.guess is None:
        still = (estimator.prior_.variance_ <= 0) & (estimator.noise_variance_ <= 0)
        if still.any():
            name = estimator._response_names()[int(np.argmax(still))]
            raise ValueError(
                f"fit must be of rows that vary; {name!r} is the same in all, which leaves "
                "channels no range to choose."
            )


def _again(estimator: Any, channel: Channel, seed: list[int]) -> NDArray:
    """Estimates of the same groups, the population fitted to what a channel lets through."""
    settings: dict[str, Any] = {"channel": channel, "random_state": np.random.default_rng(seed)}
    if isinstance(estimator, GaussianEB):  # what varies within groups does not pass a channel
        settings["variances"] = estimator.noise_variance_
        settings["guess"] = _guess(estimator) if estimator.guess is None else estimator.guess
    with warnings.catch_warnings():
        # a population that is hardly identified is a part of the price
        warnings.simplefilter("ignore", UserWarning)
        again = clone(estimator).set_params(**settings).fit(estimator.summaries_)
    return again.posterior().mean


def _guess(estimator: GaussianEB) -> Guess:
    """Guess the population within a spread of where it is."""
    mean, spread = estimator.prior_.mean_, np.sqrt(estimator.prior_.variance_)
    spread = np.where(spread > 0, spread, np.sqrt(estimator.noise_variance_))
    return Guess(mean=(mean - spread, mean + spread), spread=spread)


def _distance(estimates: NDArray, best: NDArray) -> float:
    return float(np.mean((estimates - best) ** 2))
