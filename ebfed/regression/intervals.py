"""Intervals of the parameters of mixed models, spreads included: Wald's, by profile, and bootstrap.

Of every fit here, `_criterion` is its deviance as a function of the parameters, of which
`ebfed.inference.profiles` takes profiles, and `_redraws` draws responses and fits again.

The bootstrap of a linear model draws factors of rows from the fit rather than rows: the projections
of responses on the columns of a group are normal, and what is left of them is ``noise`` times a
chi-squared number (Cochran's theorem).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from ebfed.inference.degrees_of_freedom import Method
from ebfed.inference.profiles import Held, Profile
from ebfed.inference.sums import LinearMixedFit
from ebfed.kernels.threads import threads_for
from ebfed.priors.identification import IdentificationWarning
from ebfed.regression.diagnosis import renewed_predictors
from ebfed.regression.families import ResponseFamily, Responses
from ebfed.regression.inferring import check_rows_of_all, mixed_fit, walds_intervals
from ebfed.regression.reading import repeated
from ebfed.report.view import Parameter
from ebfed.tables.frames import Style, frame

__all__ = [
    "IntervalMethod",
    "check_drawn",
    "confint_of_rows",
    "drawn",
    "redraws_of_generalized",
    "redraws_of_linear",
]

IntervalMethod = Literal["wald", "profile", "bootstrap"]


def confint_of_rows(
    self: Any,
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
        if the rows of the fit are with the clients, or a file had none; the fit has no noise,
        covariates of groups or levels of noise; by profile, the likelihood has no maximum, or is
        rounding where responses agree; by bootstrap, rows of a family have weights or ordered
        classes, of which a draw may have no row.

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
    check_is_fitted(self, "mean_")
    rows = self.__ebfed_view__().parameters()
    profile = Profile(self._criterion(method))
    every: list[Held | None] = []
    for held, (*_, estimate, _) in zip(profile.every(), rows, strict=True):
        known = held is None or held.kind not in ("mean", "shape") or not np.isnan(estimate)
        every.append(held if known else None)  # rows do not identify it
    with threads_for(profile.criterion.n_dense):
        if method == "profile":
            ends = _profiled(profile, every, level, progress)
        else:
            n_boot = _checked_draws(n_boot)
            redraws = self._redraws(np.random.default_rng(random_state))
            ends = _bootstrapped(redraws, rows, level, n_boot, progress)
    ends[[held is None for held in every]] = np.nan
    return _frame_of_ends(rows, ends, self._style_)


def _frame_of_ends(rows: Sequence[Parameter], ends: NDArray, style: Style) -> Any:
    """Return a frame of parameters and the ends of their intervals, shape (k, 2)."""
    columns = {
        name: np.array([row[j] for row in rows])
        for j, name in enumerate(("effect", "group", "term", "estimate"))
    }
    return frame(columns | {"conf.low": ends[:, 0], "conf.high": ends[:, 1]}, style)


def _checked_draws(n_boot: Any) -> int:
    """Return the number of draws of a bootstrap.

    Raises
    ------
    ValueError
        If it is no whole number of at least 2.
    """
    if not isinstance(n_boot, int | np.integer) or n_boot < 2:
        raise ValueError(f"n_boot must be a whole number of at least 2; got {n_boot!r}.")
    return int(n_boot)


def _profiled(
    profile: Profile, every: Sequence[Held | None], level: float, progress: bool
) -> NDArray[np.float64]:
    from scipy.special import ndtri
    from tqdm import tqdm

    if refusal := profile.criterion.refusal():
        raise ValueError(refusal)
    z = float(ndtri((1 + level) / 2))
    ends = np.full((len(every), 2), np.nan)
    while True:
        before = profile.best[0]
        for j, held in enumerate(tqdm(every, "profiles", disable=not progress)):
            if held is not None:
                ends[j] = profile.interval(held, z)
        if profile.settled(before):  # else a profile has led to a lower minimum
            return ends


def _bootstrapped(
    redraws: Callable[[], Any],
    rows: Sequence[Parameter],
    level: float,
    n_boot: int,
    progress: bool,
) -> NDArray[np.float64]:
    from tqdm import trange

    found = []
    for _ in trange(n_boot, desc="bootstrap", disable=not progress):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IdentificationWarning)
            warnings.simplefilter("ignore", ConvergenceWarning)
            again = redraws()
        found.append([row[3] for row in again.__ebfed_view__().parameters()])
    values, ends = np.array(found), np.full((len(rows), 2), np.nan)
    known, tail = ~np.isnan(values).all(axis=0), (1 - level) / 2
    ends[known] = np.nanquantile(values[:, known], [tail, 1 - tail], axis=0).T
    return ends


def redraws_of_linear(self: Any, rng: np.random.Generator) -> Callable[[], Any]:
    """Return a function that draws responses of a linear model of groups, and fits again."""
    draw = drawn(mixed_fit(self), rng)
    clients = self.clients_

    def again() -> Any:
        return copy(self)._beginning_at(self)._fit(replace(clients, rows=draw()), {})

    return again


def redraws_of_generalized(self: Any, rng: np.random.Generator) -> Callable[[], Any]:
    """Return a function that draws responses of a family, and fits again."""
    check_rows_of_all(self, "intervals by 'bootstrap'")
    clients, population = self.clients_, self._population()
    if clients.weight is not None:  # rows that one stands for have responses of their own
        clients = repeated(clients, clients.weight)
    family, responses = population.family, population.responses(clients)
    check_drawn(family, responses)
    levels = [root @ root.T for root in (*population.roots_above, population.root)]
    places = np.repeat(np.arange(len(clients)), clients.n)
    renewed = renewed_predictors(clients.X, population.mean, clients.ids, places, levels)

    def again() -> Any:
        z = renewed(rng) + responses.offset
        y = family.draw(z, responses.weight, population.shapes, rng)
        return copy(self)._beginning_at(self)._fit(population.observing(clients, y), {})

    return again


def check_drawn(family: ResponseFamily, responses: Responses) -> None:
    """Refuse rows whose responses have no distribution, or cannot be fitted again.

    Raises
    ------
    ValueError
    """
    weight = responses.weight
    whole = np.array_equal(weight, np.rint(weight))
    if family.classes or not (whole if family.name == "binomial" else (weight == 1).all()):
        raise ValueError(
            "method='bootstrap' takes no ordered classes, of which a draw may have no row, and no "
            "sample_weight; use method='profile'."
        )


def drawn(fit: LinearMixedFit, rng: np.random.Generator) -> Callable[[], NDArray]:
    """Return a function that draws the responses of all groups from a fit.

    Parameters
    ----------
    fit : LinearMixedFit
    rng : Generator

    Returns
    -------
    callable
        Without arguments; returns factors of rows with other responses.
    """
    m, _, width = fit.rows.shape
    p = width - 1
    upper = np.asarray(np.linalg.qr(fit.rows[:, :, :-1], mode="r"))
    r = upper.shape[1]
    # directions of a group's columns that its rows do have
    rank = np.linalg.matrix_rank(upper)
    left, inside = np.maximum(fit.n - rank, 0), np.arange(r) < rank[:, None]
    _, s, Vt = np.linalg.svd(upper, full_matrices=False)
    X = s[:, :, None] * Vt
    values = [np.linalg.eigh(G) for G in fit.covariances]
    halves = [vectors * np.sqrt(np.maximum(x, 0)) for x, vectors in values]

    def draw() -> NDArray[np.float64]:
        coefficients = np.zeros((1, p))
        for owner, places, half in zip(fit.owners, fit.places, halves, strict=True):
            coefficients = coefficients[owner]
            coefficients[:, places] += rng.normal(size=(len(owner), len(places))) @ half.T
        coefficients = coefficients + fit.mean
        noise = np.sqrt(fit.noise)
        z = np.einsum("nrp,np->nr", X, coefficients) + noise * rng.normal(size=(m, r)) * inside
        rest = noise * np.sqrt(rng.chisquare(np.maximum(left, 1)) * (left > 0))
        rows = np.zeros((m, r + 1, p + 1))
        rows[:, :r, :p], rows[:, :r, p], rows[:, r, p] = X, z, rest
        return np.asarray(np.linalg.qr(rows, mode="r"))

    return draw
