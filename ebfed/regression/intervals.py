"""Intervals of the parameters of linear mixed models, spreads included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

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
    "confint_of_rows",
    "ends_of_linear",
]

IntervalMethod = Literal["wald", "profile", "bootstrap"]


def confint_of_rows(
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
        Wald's are ``estimate ± t std.error`` of the mean's coefficients, with the standard errors
        and degrees of freedom of `ddf`. Those by the profile of the likelihood, and by parametric
        bootstrap, are of spreads, correlations, noise and the family's own parameters too, as
        lme4's ``confint``. The profile is of the likelihood, not the restricted one (Bates and
        others 2015, section 5.1). The bootstrap draws coefficients of groups and responses of rows
        from the fit, fits each draw by the fit's own method, and takes quantiles of the estimates.
    ddf : {"satterthwaite", "kenward-roger", "residual", "asymptotic"}, optional
        Degrees of freedom of Wald's intervals, as in `tests`; ``"asymptotic"`` are infinite, as of
        lme4's ``confint(method = "Wald")``. Satterthwaite's if None; infinite where the noise of
        rows has levels, rows are at other nodes, or a fit of a family is not by quadrature.
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
        If the level is not between 0 and 1, or the method unknown. Where the method is not Wald's:
        if the rows of the fit are with the clients; the fit has no noise, covariates of groups or
        levels of noise; by profile, the likelihood has no maximum, or is rounding where responses
        agree; by bootstrap, rows of a family have weights or ordered classes, of which a draw may
        have no row.

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
    if ddf is not None:
        raise ValueError(f"ddf={ddf!r} is of method='wald'; method={method!r} has no use for it.")
    if not 0 < level < 1:
        raise ValueError(f"a level must lie between 0 and 1; got {level!r}.")
    check_is_fitted(self, "clients_")
    rows = self.__ebfed_view__().parameters()
    ends = self._ends(rows, method, level, n_boot, random_state, progress)
    return _frame_of_ends(rows, ends, self._style_)


def ends_of_linear(
    self: RegressionEstimator,
    rows: Sequence[Parameter],
    method: str,
    level: float,
    n_boot: int,
    random_state: Any,
    progress: bool,
) -> NDArray[np.float64]:
    """Return the ends of intervals of linear models by profile, or by bootstrap, shape (k, 2)."""
    if self.covariate_names_:
        raise ValueError(f"method={method!r} takes no covariates of groups; use method='wald'.")
    if self.noise_variances_:
        raise ValueError(f"method={method!r} takes no dispersion; use method='wald'.")
    fit = mixed_fit(self)
    every = _parameters(fit, self._columns().terms_of_levels())
    if method == "profile":
        ends = _profiled(fit, every, level, progress)
    else:
        ends = _bootstrapped(fit, every, level, n_boot, random_state, progress)
    unknown = [
        held is None or (held.kind == "mean" and bool(np.isnan(row[4])))
        for held, row in zip(every, rows, strict=True)
    ]
    ends[unknown] = np.nan
    return ends


def _frame_of_ends(rows: Sequence[Parameter], ends: NDArray, style: Style) -> Any:
    """Return a frame of parameters and the ends of their intervals, shape (k, 2)."""
    columns = {
        name: np.array([row[j] for row in rows])
        for j, name in enumerate(("effect", "group", "term", "estimate"))
    }
    return frame(columns | {"conf.low": ends[:, 0], "conf.high": ends[:, 1]}, style)


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
