"""Intervals of generalized linear models: Wald's, by profile, and by bootstrap."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import copy
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ebfed.inference.degrees_of_freedom import Method
from ebfed.priors import IdentificationWarning
from ebfed.regression.base import RegressionEstimator
from ebfed.regression.generalized_notes import UNBOUNDED
from ebfed.regression.generalized_profile import GeneralizedProfile
from ebfed.regression.inferring import check_rows_of_all, walds_intervals
from ebfed.regression.intervals import IntervalMethod, check_draws, check_no_degrees, frame_of_ends
from ebfed.report.view import Parameter
from ebfed.tables.clients import Clients
from ebfed.tables.levels import parents_of

__all__ = ["confint_of_generalized"]


def confint_of_generalized(
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
        and degrees of freedom of `ddf`.
        Those by the profile of the likelihood, and by parametric bootstrap, are of spreads,
        correlations and the family's own parameters too, as lme4's ``confint``. The bootstrap draws
        coefficients of groups and responses of rows from the fit, fits each draw, and takes
        quantiles of the estimates.
    ddf : {"satterthwaite", "asymptotic"}, optional
        Degrees of freedom of Wald's intervals, as in `tests`; ``"asymptotic"`` are infinite, as of
        lme4's ``confint(method = "Wald")``, right for many groups. Satterthwaite's if None;
        infinite where rows are at other nodes, or the fit is not by quadrature.
    n_boot : int
        Number of draws.
    random_state : int, Generator or None
        Seed of the draws.
    progress : bool
        Whether to show a progress bar.

    Returns
    -------
    DataFrame
        ``term``, ``estimate``, ``conf.low``, ``conf.high``; by profile with ``effect`` and
        ``group`` first, as in `tidy`. A parameter that is not identified has NaN.

    Raises
    ------
    ValueError
        If the level is not between 0 and 1, or the method unknown; the rows of the fit are with the
        clients; by profile, the likelihood has no maximum, or is rounding where responses agree;
        or, by bootstrap, rows have weights or ordered classes, of which a draw may have no row.

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
    >>> y = rng.poisson(np.exp(1 + 0.5 * x + rng.normal(0, 0.5, 20)[groups]))
    >>> fit = eb.GeneralizedEB("poisson", varying=["intercept"]).fit(x[:, None], y, groups=groups)
    >>> fit.confint(method="profile")[["term", "estimate", "conf.low", "conf.high"]].round(1)
                term  estimate  conf.low  conf.high
    0      intercept       1.1       0.8        1.3
    1             x0       0.5       0.4        0.6
    2  sd__intercept       0.4       0.3        0.7
    """
    if method not in get_args(IntervalMethod):
        raise ValueError(f"method must be 'wald', 'profile' or 'bootstrap'; got {method!r}.")
    if method == "wald":
        return walds_intervals(self, level, ddf)
    check_no_degrees(method, ddf)
    if not 0 < level < 1:
        raise ValueError(f"a level must lie between 0 and 1; got {level!r}.")
    check_is_fitted(self, "clients_")
    check_rows_of_all(self, f"intervals by {method!r}")
    rows = self.__ebfed_view__().parameters()
    if method == "profile":
        if "sizes" not in self._result:
            raise ValueError("method='profile' needs a fit by quadrature, LogisticEB's 'aghq'.")
        ends = _profiled(self, rows, level, progress)
    else:
        ends = _bootstrapped(self, rows, level, n_boot, random_state, progress)
    return frame_of_ends(rows, ends, self._style_)


def _profiled(
    fit: RegressionEstimator, rows: list[Parameter], level: float, progress: bool
) -> NDArray[np.float64]:
    from scipy.special import ndtri
    from tqdm import tqdm

    if UNBOUNDED in fit.notes_:
        raise ValueError(
            "method='profile' needs a likelihood with a maximum; that of this fit rises as a "
            "variance between groups grows."
        )
    profile, ends = GeneralizedProfile(fit), np.full((len(rows), 2), np.nan)
    if profile.rounds_off:
        raise ValueError(
            "method='profile' needs noise; responses vary so little that rounding is most of what "
            "their log-likelihood changes by."
        )
    while True:
        best, _ = profile.best
        every = zip(profile.every(), rows, strict=True)
        for j, (held, row) in enumerate(tqdm(every, "profiles", len(rows), disable=not progress)):
            fixed = held is not None and held.kind in ("mean", "shape")
            if held is not None and not (fixed and np.isnan(row[3])):
                ends[j] = profile.interval(held, float(ndtri((1 + level) / 2)))
        if profile.settled(best):  # else a profile has led to a higher maximum
            return ends


def _bootstrapped(
    fit: RegressionEstimator,
    rows: list[Parameter],
    level: float,
    n_boot: int,
    random_state: Any,
    progress: bool,
) -> NDArray[np.float64]:
    from tqdm import trange

    n_boot = check_draws(n_boot)
    rng, found = np.random.default_rng(random_state), []
    draw = _drawn(fit, rng)
    for _ in trange(n_boot, desc="bootstrap", disable=not progress):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IdentificationWarning)
            again = copy(fit)._fit(draw(), {})
        found.append([row[3] for row in again.__ebfed_view__().parameters()])
    values = np.array(found)
    unknown = np.array([effect == "fixed" and np.isnan(error) for effect, *_, error in rows])
    known, tail = ~unknown & ~np.isnan(values).all(axis=0), (1 - level) / 2
    ends = np.full((len(rows), 2), np.nan)
    ends[known] = np.nanquantile(values[:, known], [tail, 1 - tail], axis=0).T
    return ends


def _drawn(fit: RegressionEstimator, rng: np.random.Generator) -> Callable[[], Clients]:
    """Return a function that draws coefficients of groups, and responses of their rows."""
    clients, result = fit.clients_, fit._result
    population: Any = fit._population()
    family, responses = population.family, population.responses(clients)
    whole = np.array_equal(responses.weight, np.rint(responses.weight))
    if family.classes or not (
        whole if family.name == "binomial" else (responses.weight == 1).all()
    ):
        raise ValueError(
            "method='bootstrap' takes no ordered classes, of which a draw may have no row, and no "
            "sample_weight; use method='profile'."
        )
    roots = [*population.roots_above, population.root]
    owners: list[NDArray] = [np.arange(len(clients))]  # of groups, their place in each level
    ids = clients.ids
    for _ in roots[:-1]:
        ids, codes = parents_of(ids)
        owners.insert(0, codes[owners[0]])

    def draw() -> Clients:
        theta = np.tile(result["mean"], (len(clients), 1))
        for owner, root in zip(owners, roots, strict=True):
            theta += (rng.standard_normal((owner.max() + 1, root.shape[1])) @ root.T)[owner]
        z = np.einsum("np,np->n", clients.X, np.repeat(theta, clients.n, axis=0))
        y = family.draw(z + responses.offset, responses.weight, result["shapes"], rng)
        return population.observing(clients, y)

    return draw
