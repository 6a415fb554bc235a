"""What is known of the coefficients of parents, such as districts, from the rows of their groups.

The rows of a group, divided by the factor of their covariance given its parent's coefficients, are
rows of the parent; see `ebfed.regression.numerics.nested_model`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ebfed.regression.posteriors.linear import CoefficientPosterior, Doubt
from ebfed.tables.clients import Clients
from ebfed.tables.factors import Factors
from ebfed.tables.labels import parents_among
from ebfed.tables.levels import parents_of

__all__ = ["posterior_of_levels", "relatives", "with_relatives"]

# Groups, with their rows or factors of these.
Block = TypeVar("Block", Clients, Factors)


def posterior_of_levels(
    block: Factors,
    whole: Factors,
    mean: NDArray,
    mean_covariance: NDArray,
    levels: Sequence[tuple[NDArray, Doubt | None]],
    noise_variance: float,
) -> list[tuple[CoefficientPosterior, Factors]]:
    """Posteriors of the groups of each level, from the top, each with its factors.

    Parameters
    ----------
    block : Factors
        Groups that are asked for.
    whole : Factors
        These and their relatives; see `with_relatives`.
    mean, mean_covariance : ndarrays
        Mean of the population.
    levels : sequence of tuple
        Covariance of each level, from the top, and what is not known of it.
    noise_variance : float
    """
    if len(levels) > 1 and not parents_among(
        whole.ids
    ):  # rows without labels: groups of parents that nobody knows
        unknown = [(j,) * len(levels) for j in range(len(whole))]
        whole = replace(whole, ids=np.fromiter(unknown, object, len(unknown)))
        block = replace(block, ids=whole.ids)
    stacks = [whole]
    noises = [noise_variance]
    for covariance, _ in levels[:0:-1]:
        stacks.insert(0, _stacked(stacks[0], covariance, noises[0]))
        # rows without noise have that of their groups, by which they were divided
        noises.insert(0, noises[0] if noises[0] > 0 or not covariance.any() else 1.0)
    stacks[-1] = block
    found: list[tuple[CoefficientPosterior, Factors]] = []
    for level, (own, (covariance, doubt)) in enumerate(zip(stacks, levels, strict=True)):
        parents = None
        if level:
            labels, codes = parents_of(own.ids)
            places = {label: j for j, label in enumerate(stacks[level - 1].ids.tolist())}
            parents = found[-1][0], np.array([places[each] for each in labels.tolist()])[codes]
        posterior = CoefficientPosterior(
            own, mean, mean_covariance, covariance, noises[level], doubt, parents=parents
        )
        found.append((posterior, own))
    return found


def with_relatives(block: Factors, fitted: Factors | None) -> Factors:
    """Return groups and all groups of the fit below the same parent of the top level.

    A group with rows of its own has these in place of those of the fit.
    """
    others = relatives(block, fitted)
    if others is None:
        return block
    size = max(block.rows.shape[1], others.rows.shape[1])
    ids = np.concatenate([block.ids, others.ids])
    rows = np.concatenate([block.padded(size), others.padded(size)])
    return Factors(ids, np.concatenate([block.n, others.n]), rows)


def relatives(block: Block, fitted: Block | None) -> Block | None:
    """Return other groups of the fit below the same groups of the top level; None if none are."""
    if fitted is None or block is fitted or not parents_among(block.ids):
        return None
    asked = block.ids.tolist()
    tops, known = {each[0] for each in asked}, set(asked)
    kept = [each[0] in tops and each not in known for each in fitted.ids.tolist()]
    return fitted.take(np.flatnonzero(kept)) if any(kept) else None


def _stacked(groups: Factors, covariance: NDArray, noise: float) -> Factors:
    """Factors of the rows of parents: those of their groups, whitened."""
    ids, codes = parents_of(groups.ids)
    rows = groups.rows
    if noise > 0 and covariance.any():
        X = rows[:, :, :-1]
        V = X @ (covariance / noise) @ X.swapaxes(1, 2)
        V[:, np.arange(rows.shape[1]), np.arange(rows.shape[1])] += 1.0
        rows = np.linalg.solve(np.linalg.cholesky(V), rows)
    elif covariance.any():
        X = rows[:, :, :-1]
        values, axes = np.linalg.eigh(X @ covariance @ X.swapaxes(1, 2))
        known = values > 1e-12 * values.max(axis=1, keepdims=True, initial=0.0)
        half = np.where(known, 1 / np.sqrt(np.where(known, values, 1.0)), 0.0)
        rows = half[:, :, None] * (axes.swapaxes(1, 2) @ rows)
    return replace(groups, ids=codes, rows=rows, log_weight=None).joined(ids)
