"""Price of privacy: how far estimates move if groups report through a private channel."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.channels import Channel, Guess
from ebfed.channels.private import has_epsilon, make_private, registered
from ebfed.privacy.calibration import check_count
from ebfed.report.view import LocationView, view_of
from ebfed.tables.frames import frame

__all__ = ["price_of_privacy"]

EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
CHANNELS = ("TwoBit", "Piecewise", "Gaussian")
DELTA = 1e-6
# Differences from own data that count: above so many standard errors, and this share of the error.
CLEAR, LARGE = 2, 0.05


def price_of_privacy(
    fit: Any,
    epsilons: Sequence[float] = EPSILONS,
    *,
    channels: Any = None,
    n_runs: int = 20,
    random_state: int | None = 0,
    verbose: int = 1,
) -> Any:
    """Fit the same groups again through private channels, and see how far their estimates move.

    A group is estimated from its own rows and the fitted population. Only the report from which the
    population is fitted is private. If noise hides the population, estimates may be worse than the
    groups' own means: the column ``verdict`` says so, and then a group does better without the
    others.

    For means, this function uses two things that a real private fit does not have: the noise
    variance of the fit without privacy and, if the fit had no `guess`, a guess made from its fitted
    population. So the real price is higher than the price shown here.

    The noise is simulated, and the result is computed from all groups' data: it is not private
    itself. Compute it where the data are, or from similar data.

    Parameters
    ----------
    fit : fit of means or rates, such as GaussianEB or BernoulliEB, or a formula with one
        Fit through an exact channel, without covariates. The range of a channel is computed from
        the `guess` of the fit. If the fit has no guess, and parameters have no bounds (means have
        none; rates lie in 0 to 1), it is computed from the fitted population.
    epsilons : sequence of float
        Values of epsilon, at least one.
    channels : str, class, list of these, or dict, optional
        Private channels: ``"TwoBit"`` or `channels.TwoBit`, or several in a list. A dict has names
        of your choice, and a name, a class or a function from epsilon to a channel for each. If
        None: `TwoBit`, `Piecewise` and `Gaussian`. Channels with a delta have 1e-6.
    n_runs : int
        Number of draws of everything random; from two on there is a ``std_error``.
    random_state : int or None
        Seed, from 0; None: other draws in every call.
    verbose : int
        Whether to show a progress bar after two seconds: 1 or 0.

    Returns
    -------
    DataFrame
        A row for each channel and epsilon. ``error``: how far estimates lie from those without
        privacy, as a root mean square over groups and runs; ``std_error``: of that, from the runs;
        ``local_error``: how far the groups' own means lie from them, a root mean square too;
        ``verdict``: ``"better than own data"`` or ``"worse than own data"`` where the two errors
        differ by more than two standard errors and 5 %, else ``"like own data"``.

    Raises
    ------
    TypeError, ValueError
        If the fit is of another kind, had covariates, or was private itself; if its means do not
        vary, within groups or between them; if there is no epsilon or no channel; if a channel is
        unknown or has no epsilon.

    Examples
    --------
    >>> import ebfed as eb
    >>> y, groups, p = eb.datasets.make_bernoulli_groups(2000, 6, random_state=0)
    >>> est = eb.BernoulliEB().fit(y, groups=groups)
    >>> price_of_privacy(est, [1, 4], channels="TwoBit", n_runs=3).round(2)
      channel  epsilon  error  std_error  local_error               verdict
    0  TwoBit      1.0   0.02        0.0         0.14  better than own data
    1  TwoBit      4.0   0.01        0.0         0.14  better than own data
    """
    from tqdm import tqdm

    view, refit = _checked(fit)
    check_count("n_runs", n_runs)
    if random_state is None:
        random_state = np.random.SeedSequence().generate_state(1).item()
    check_count("random_state", random_state, 0)
    if np.ndim(epsilons) != 1 or not len(epsilons):
        raise ValueError(f"epsilons must be a list of at least one number; got {epsilons!r}.")
    cells = [
        (name, float(epsilon), make(float(epsilon)))
        for name, make in _makers(CHANNELS if channels is None else channels).items()
        for epsilon in epsilons
    ]
    has_rows = view.has_rows
    best, local = view.posterior().mean[has_rows], view.summary.mean[has_rows]
    known, local_error = _known(view), math.sqrt(_distance(local, best))
    rows = []
    shown: dict[str, Any] = {"unit": " fits", "leave": False, "delay": 2, "disable": not verbose}
    with tqdm(total=len(cells) * n_runs, **shown) as bar:
        for name, epsilon, channel in cells:
            bar.set_description(f"{name}, epsilon {epsilon:g}", refresh=False)
            squares = []
            for run in range(n_runs):
                draws = {"random_state": [random_state, run]}
                with warnings.catch_warnings():
                    # a population that is hardly identified is a part of the price
                    warnings.simplefilter("ignore", UserWarning)
                    estimates = refit(view.summary, channel=channel, **draws, **known)
                squares.append(_distance(estimates[has_rows], best))
                bar.update()
            error = math.sqrt(np.mean(squares))
            spread = np.std(squares, ddof=1) / np.sqrt(n_runs) if n_runs > 1 else np.nan
            std_error = spread / (2 * error) if error > 0 else 0.0  # of a root, by the delta method
            verdict = _verdict(error, std_error, local_error)
            rows.append((name, epsilon, error, std_error, local_error, verdict))
    names = ("channel", "epsilon", "error", "std_error", "local_error", "verdict")
    columns = dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True))
    return frame(columns, view.style)


def _makers(channels: Any) -> dict[str, Callable[[float], Channel]]:
    """Return what makes each channel for an epsilon, by name."""
    if isinstance(channels, str | type):
        channels = [channels]
    if isinstance(channels, Mapping):
        makers = {str(name): _maker(each) for name, each in channels.items()}
    elif isinstance(channels, Iterable):
        listed: list[Any] = list(channels)
        if odd := [each for each in listed if not isinstance(each, str | type)]:
            raise _no_channels(odd[0])
        names = [each if isinstance(each, str) else each.__name__ for each in listed]
        if twice := [name for k, name in enumerate(names) if name in names[:k]]:
            raise ValueError(f"channels must name each once; got {twice[0]!r} twice.")
        makers = dict(zip(names, map(_maker, listed), strict=True))
    else:
        raise _no_channels(channels)
    if not makers:
        raise ValueError(f"channels must name at least one; got {channels!r}.")
    return makers


def _maker(channel: Any) -> Callable[[float], Channel]:
    """Return a function from epsilon to a channel."""
    known = {name: each for name, each in registered().items() if has_epsilon(each)}
    if isinstance(channel, str):
        if channel not in known:
            raise ValueError(f"channels must be among {', '.join(known)}; got {channel!r}.")
        channel = known[channel]
    if isinstance(channel, type) and issubclass(channel, Channel):
        if not has_epsilon(channel):
            raise ValueError(
                f"channels must be private ones, such as {', '.join(known)}; "
                f"{channel.__name__} has no epsilon."
            )
        return lambda epsilon: make_private(channel, epsilon, delta=DELTA)
    if isinstance(channel, Channel) or not callable(channel):
        raise _no_channels(channel)

    def made(epsilon: float) -> Channel:
        result = channel(epsilon)
        if not isinstance(result, Channel):
            raise TypeError(f"channels must return a channel for an epsilon; got {result!r}.")
        return result

    return made


def _no_channels(given: Any) -> TypeError:
    return TypeError(
        "channels must be a name such as 'TwoBit', a class such as channels.TwoBit, a list of "
        f"these, or a dict of these or of functions from epsilon to a channel; got {given!r}."
    )


def _verdict(error: float, std_error: float, local_error: float) -> str:
    """Compare an error with that of groups that use their own data alone."""
    apart = max(0.0 if math.isnan(std_error) else CLEAR * std_error, LARGE * local_error)
    if error > local_error + apart:
        return "worse than own data"
    if error < local_error - apart:
        return "better than own data"
    return "like own data"


def _checked(fit: Any) -> tuple[LocationView, Callable[..., NDArray]]:
    """Return the view of a fit whose price can be computed, and how it is refitted."""
    estimator = getattr(fit, "estimator_", fit)
    settings = estimator.get_params() if hasattr(estimator, "get_params") else {}
    view = view_of(fit) if "channel" in settings else None
    if not isinstance(view, LocationView) or view.refit is None:
        kind = type(getattr(fit, "estimator_", fit)).__name__
        raise TypeError(
            f"fit must be one of means or rates, such as GaussianEB or BernoulliEB; got {kind}."
        )
    if not view.all_exact:
        raise ValueError("fit must be without privacy: it is what the others are compared with.")
    if any(view.covariate_names):
        raise ValueError("fit must be without covariates: private channels take none.")
    if _needs_guess(view):
        spread = _spread(view)
        if np.any(spread <= 0):
            name = view.terms[int(np.argmax(spread <= 0))]
            raise ValueError(
                f"fit must be of rows that vary; {name!r} is the same in all, so that channels "
                "have no range to choose."
            )
    return view, view.refit


def _known(view: LocationView) -> dict[str, Any]:
    """Return arguments of the private fits that their channels cannot tell."""
    known: dict[str, Any] = {}
    if view.noise_variance is not None:
        known["variances"] = view.noise_variance
    if _needs_guess(view):
        mean, spread, support = view.prior.mean_, _spread(view), view.family.support
        low, high = (np.clip(mean + sign * spread, *support) for sign in (-1, 1))
        known["guess"] = Guess(mean=(low, high), spread=spread)
    return known


def _needs_guess(view: LocationView) -> bool:
    """Whether channels have no range: parameters have no bounds, and nobody guessed."""
    return view.guess is None and not np.isfinite(view.family.support).all()


def _spread(view: LocationView) -> NDArray:
    """Spread of the fitted population; of one row, where the population is a point."""
    mean, spread = view.prior.mean_, np.sqrt(view.prior.variance_)
    rows = [view.family.sampling_variance(x, 1.0, j) for j, x in enumerate(mean)]
    return np.where(spread > 0, spread, np.sqrt(rows))


def _distance(estimates: NDArray, best: NDArray) -> float:
    return float(np.mean((estimates - best) ** 2))
