"""Intervals of generalized linear models: Wald's, by profile, and by bootstrap."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.priors import IdentificationWarning
from ebfed.regression.base import RegressionEstimator
from ebfed.regression.generalized_notes import UNBOUNDED
from ebfed.regression.generalized_profile import GeneralizedProfile
from ebfed.regression.inferring import check_rows_of_all
from ebfed.regression.intervals import check_draws
from ebfed.report.view import Parameter
from ebfed.tables.clients import Clients
from ebfed.tables.levels import parents_of

__all__ = ["ends_of_generalized"]


def ends_of_generalized(
    self: RegressionEstimator,
    rows: Sequence[Parameter],
    method: str,
    level: float,
    n_boot: int,
    random_state: Any,
    progress: bool,
) -> NDArray[np.float64]:
    """Return the ends of intervals by profile, or by bootstrap, shape (k, 2); see `confint`."""
    check_rows_of_all(self, f"intervals by {method!r}")
    if method == "profile":
        if "sizes" not in self._result:
            raise ValueError(
                "method='profile' needs a fit whose likelihood has a maximum, not that of "
                "LogisticEB's method='gradient'."
            )
        return _profiled(self, rows, level, progress)
    return _bootstrapped(self, rows, level, n_boot, random_state, progress)


def _profiled(
    fit: RegressionEstimator, rows: Sequence[Parameter], level: float, progress: bool
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
    rows: Sequence[Parameter],
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
            again = copy(fit)._beginning_at(fit)._fit(draw(), {})
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
