"""The climb of a start towards the most likely mixture, round by round.

A round judges the population that was tried. If that is as likely as the one before, the next step
goes on from it, extrapolated where gains are small; if not, half of the step is tried.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from ebfed.regression.numerics.evidence import MixturePopulation, make_grid
from ebfed.regression.numerics.scoring import MEMORY, accelerate, between, improve, ridged
from ebfed.regression.protocol import Candidate, EvidenceMessage, MixtureParameters

__all__ = ["Steps", "new_candidate", "parameters_of"]

SMALLEST_STEP = 1e-4  # share of a step that is still tried
SLOW = 1e-2  # gain of a round, per client, below which steps are extrapolated


def parameters_of(population: MixturePopulation) -> MixtureParameters:
    """Return a population as a dict."""
    return cast(MixtureParameters, population._asdict())


def new_candidate(population: MixturePopulation, fold: int = -1) -> Candidate:
    """Return a candidate that clients were not asked about yet."""
    return {
        "fold": fold,
        "tried": parameters_of(population),
        "path": [],
        "weights": [],
        "trail": [],
        "leap": 4.0,
        "reach": 1.0,
        "gain": np.inf,
        "lost": 0,
        "stuck": False,
    }


@dataclass(frozen=True)
class Steps:
    """Steps of all candidates in one round.

    Parameters
    ----------
    size : ndarray of shape (p,)
        Largest norm of a column of one client's design.
    has_data : bool ndarray of shape (n_clients,)
        Whether a client has rows.
    folds : int ndarray of shape (n_clients,)
        Which clients are held out together.
    ridge : float
        Information added on the means.
    least_variance : float
        Lower bound on variances.
    spread, noise : bool
        Whether variances, and the noise, are estimated.
    """

    size: NDArray
    has_data: NDArray[np.bool_]
    folds: NDArray[np.int64]
    ridge: float
    least_variance: float
    spread: bool
    noise: bool

    def advance(self, candidate: Candidate, received: EvidenceMessage) -> Candidate:
        """Accept the population tried, or go back half of the way."""
        n_clients, own = len(self.has_data), self.has_data & (self.folds != candidate["fold"])
        tried = MixturePopulation(**candidate["tried"])
        grid = make_grid(self.size, tried, n_clients)
        units = grid[:, :, None] * grid[:, None, :]
        # that of all clients: of a fold that is held out too, which is as informative as others
        share = own.sum() / max(self.has_data.sum(), 1)
        known = ridged(share * received["information"].sum(axis=0) / units, self.ridge)
        figures = cast(dict[str, NDArray], received) | {"information": known}
        evidence, target = improve(tried, figures, own, spread=self.spread, noise=self.noise)
        value = float(evidence[own].sum())
        target = self._bounded(target)
        path, leap, reach = candidate["path"], candidate["leap"], candidate["reach"]
        if not path or value >= path[-1]:
            step = parameters_of(tried), parameters_of(target)
            trail = [*candidate["trail"], step][-MEMORY:]
            gain = value - path[-1] if path else np.inf
            candidate = candidate | {
                "path": [*path, value],
                "evidence": evidence,
                "weights": [*candidate["weights"], tried.weights],
                "gain": gain,
                "information": known,
                "trail": trail,
                "tried": parameters_of(target),
                "leap": 2 * leap if reach > 1 else leap,
                "reach": 1.0,
            }
            if gain > SLOW * n_clients or len(trail) < 2:
                return candidate
            pairs = [(MixturePopulation(**begin), MixturePopulation(**end)) for begin, end in trail]
            aim = self._bounded(accelerate(pairs, candidate["leap"]))
            return candidate | {"tried": parameters_of(aim), "reach": 2.0}
        # after an extrapolation the step itself is tried; after a step, half of it
        begin, end = (MixturePopulation(**x) for x in candidate["trail"][-1])
        return candidate | {
            "path": [*path, path[-1]],
            "weights": [*candidate["weights"], candidate["weights"][-1]],
            "tried": parameters_of(between(begin, end, reach / 2)),
            "leap": leap / 4 if reach > 1 else leap,
            "reach": reach / 2,
            "lost": candidate["lost"] + 1,
            "stuck": reach / 2 < SMALLEST_STEP,
        }

    def rest(self, candidate: Candidate) -> Candidate:
        """Return a candidate after a round that did not ask about it."""
        path, weights = candidate["path"], candidate["weights"]
        return candidate | {"path": [*path, path[-1]], "weights": [*weights, weights[-1]]}

    def _bounded(self, population: MixturePopulation) -> MixturePopulation:
        variances = np.maximum(population.variances, self.least_variance)
        return population._replace(variances=variances)
