"""Intervals of the parameters of linear mixed models, spreads included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ebfed.inference.degrees_of_freedom import Method
from ebfed.inference.profiles import Held, MixedDeviance, drawn
from ebfed.inference.sums import LinearMixedFit
from ebfed.regression.base import RegressionEstimator
from ebfed.regression.inferring import mixed_fit, walds_intervals
from ebfed.report.view import Parameter
from ebfed.tables.frames import Style, frame

__all__ = [
    "IntervalMethod",
    "check_draws",
    "check_no_degrees",
    "confint_of_linear",
    "frame_of_ends",
]

IntervalMethod = Literal["wald", "profile", "bootstrap"]


def confint_of_linear(
    self: RegressionEstimator,
    level: float = 0.95,
    *,
    method: IntervalMethod = "wald",
    ddf: Method | None = None,
    n_boot: int = 1000,
    random_state: Any = 0,
    progress: bool = False,
) -> Any:
    """Return intervals for the parameters of the population.

    Parameters
    ----------
    level : float
    method : {"wald", "profile", "bootstrap"}
        Wald's are ``estimate ± t std.error`` of the mean's coefficients, with `ddf` degrees of
        freedom. Those by the profile of the likelihood, and by parametric bootstrap, are of
        spreads, correlations and noise too, as lme4's ``confint``. The profile is of the
        likelihood, not the restricted one (Bates and others 2015, section 5.1); the bootstrap draws
        rows from the fit, fits each draw by the fit's own method, and takes quantiles of the
        estimates.
    ddf : {"satterthwaite", "kenward-roger", "residual", "asymptotic"}, optional
        Degrees of freedom of Wald's intervals, as in `tests`; ``"asymptotic"`` are infinite, as of
        lme4's ``confint(method = "Wald")``. Satterthwaite's if None; infinite where the noise of
        rows has levels, or rows are at other nodes.
    n_boot : int
        Number of draws.
    random_state : int, Generator or None
        Seed of the draws.
    progress : bool
        Whether to show a progress bar.

    Returns
    -------
    DataFrame
        ``term``, ``estimate``, ``conf.low``, ``conf.high``; by profile and bootstrap with
        ``effect`` and ``group`` first, as in `tidy`. A parameter that is not identified has NaN.

    Raises
    ------
    ValueError
        If the level is not between 0 and 1, or the method unknown; or the fit has not the rows, no
        likelihood or no noise, or covariates of groups or levels of noise, and the method is not
        Wald's.

    References
    ----------
    Bates, Maechler, Bolker, Walker (2015), Fitting linear mixed-effects models using lme4, J. Stat.
    Softw. 67.

    Examples
    --------
    >>> import ebfed as eb
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(np.arange(20), 6)
    >>> x = rng.normal(size=120)
    >>> y = 3 + x + rng.normal(size=20)[groups] + rng.normal(size=120)
    >>> fit = eb.LinearEB(varying=["intercept"]).fit(x[:, None], y, groups=groups)
    >>> fit.confint(method="profile")[["term", "estimate", "conf.low", "conf.high"]].round(1)
                  term  estimate  conf.low  conf.high
    0        intercept       2.9       2.4        3.5
    1               x0       1.0       0.8        1.2
    2    sd__intercept       1.2       0.8        1.7
    3  sd__Observation       1.1       0.9        1.2
    """
    if method not in get_args(IntervalMethod):
        raise ValueError(f"method must be 'wald', 'profile' or 'bootstrap'; got {method!r}.")
    if method == "wald":
        return walds_intervals(self, level, ddf)
    check_no_degrees(method, ddf)
    if not 0 < level < 1:
        raise ValueError(f"a level must lie between 0 and 1; got {level!r}.")
    if self.covariate_names_:
        raise ValueError(f"method={method!r} takes no covariates of groups; use method='wald'.")
    if self.noise_variances_:
        raise ValueError(f"method={method!r} takes no dispersion; use method='wald'.")
    fit = mixed_fit(self)
    every = _parameters(fit, self._columns().terms_of_levels())
    rows = self.__ebfed_view__().parameters()
    if method == "profile":
        ends = _profiled(fit, every, level, progress)
    else:
        ends = _bootstrapped(fit, every, level, n_boot, random_state, progress)
    unknown = [
        held is None or (held.kind == "mean" and bool(np.isnan(row[4])))
        for held, row in zip(every, rows, strict=True)
    ]
    ends[unknown] = np.nan
    return frame_of_ends(rows, ends, self._style_)


def frame_of_ends(rows: Sequence[Parameter], ends: NDArray, style: Style) -> Any:
    """Return a frame of parameters and the ends of their intervals, shape (k, 2)."""
    columns = {
        name: np.array([row[j] for row in rows])
        for j, name in enumerate(("effect", "group", "term", "estimate"))
    }
    return frame(columns | {"conf.low": ends[:, 0], "conf.high": ends[:, 1]}, style)


def check_no_degrees(method: str, ddf: Any) -> None:
    """Raise a ValueError if degrees of freedom are given for intervals that have none."""
    if ddf is not None:
        raise ValueError(f"ddf={ddf!r} is of method='wald'; method={method!r} has no use for it.")


def check_draws(n_boot: Any) -> int:
    """Return the number of draws of a bootstrap.

    Raises
    ------
    ValueError
        If it is no whole number of at least 2.
    """
    if not isinstance(n_boot, int | np.integer) or n_boot < 2:
        raise ValueError(f"n_boot must be a whole number of at least 2; got {n_boot!r}.")
    return int(n_boot)


def _parameters(fit: LinearMixedFit, shown: Sequence[Sequence[NDArray]]) -> list[Held | None]:
    """Parameters in the order of `tidy`, of the columns of these terms; None if not identified."""
    found: list[Held | None] = [Held("mean", first=j) for j in fit.fixed.tolist()]
    for level, (known, terms) in enumerate(zip(fit.places, shown, strict=True)):
        place = {column: j for j, column in enumerate(known.tolist())}
        own = [[place.get(column) for column in term.tolist()] for term in terms]
        found += [None if j is None else Held("spread", level, j) for term in own for j in term]
        found += [
            None if j is None or k is None else Held("correlation", level, k, j)
            for term in (own if fit.kind == "full" else [])
            for a, j in enumerate(term)
            for k in term[:a]
        ]
    return [*found, Held("noise")]


def _profiled(
    fit: LinearMixedFit, every: list[Held | None], level: float, progress: bool
) -> NDArray[np.float64]:
    from scipy.special import ndtri
    from tqdm import tqdm

    z, deviance = float(ndtri((1 + level) / 2)), MixedDeviance(fit)
    known = fit.identified(np.eye(len(fit.mean)))
    ends = np.full((len(every), 2), np.nan)
    while True:
        lowest = deviance.best
        for row, held in enumerate(tqdm(every, desc="profiles", disable=not progress)):
            if held is not None and (held.kind != "mean" or known[held.first]):
                ends[row] = deviance.interval(held, z)[1:]
        if deviance.best is lowest:  # else a profile has led to a lower minimum
            return ends


def _bootstrapped(
    fit: LinearMixedFit,
    every: list[Held | None],
    level: float,
    n_boot: int,
    random_state: Any,
    progress: bool,
) -> NDArray[np.float64]:
    from tqdm import trange

    n_boot, known = check_draws(n_boot), [held for held in every if held is not None]
    draw = drawn(fit, np.random.default_rng(random_state))
    found = np.array(
        [
            MixedDeviance(draw(), restricted=fit.restricted).estimates(known)
            for _ in trange(n_boot, desc="bootstrap", disable=not progress)
        ]
    )
    tail, ends = (1 - level) / 2, np.full((len(every), 2), np.nan)
    ends[[held is not None for held in every]] = np.nanquantile(found, [tail, 1 - tail], axis=0).T
    return ends
