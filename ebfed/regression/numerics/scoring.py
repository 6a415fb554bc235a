"""The server's steps towards the most likely mixture of regressions, and where they start.

Labels of clients are what is missing; coefficients are integrated out (see `evidence`). Given
responsibilities r_il, the means take the step of generalised least squares,

    mu_l + (sum_i r_il P_il)^-1 sum_i r_il g_il,

and the variances one of Fisher scoring: EM with these for its M-step (Dempster, Laird and Rubin
1977; Jennrich and Schluchter 1986). It climbs where EM with the coefficients missing too hardly
moves: where clients have few rows, or the variances are small.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ebfed.regression.numerics.evidence import MixturePopulation, responsibilities

__all__ = ["FLOOR", "accelerate", "between", "improve", "invert", "rank", "ridged", "shortest"]

MEMORY = 6  # steps that acceleration looks back on
FLOOR = 1e-14  # least noise, in units of the response, with room for an offset


def improve(
    population: MixturePopulation,
    messages: dict[str, NDArray],
    has_data: NDArray,
    *,
    spread: bool,
    noise: bool,
) -> tuple[NDArray, MixturePopulation]:
    """Log-likelihood of each client under a population, and the one that a step leads to.

    Parameters
    ----------
    population : MixturePopulation
    messages : dict of arrays
        Fields of `Evidence`, and ``information`` of shape (k, p, p), of all clients.
    has_data : bool ndarray of shape (n,)
        Whether each client has rows, which are to be explained.
    spread, noise : bool
        Whether variances, and the noise, are to be estimated.
    """
    total, share = responsibilities(messages["log"], population.weights)
    share = share * has_data[:, None]
    count = share.sum(axis=0)
    slope = (share[:, :, None] * messages["mean"]).sum(axis=0)
    means = population.means + np.stack(
        [_solve(*each) for each in zip(messages["information"], slope, strict=True)]
    )
    by_variance, own, rest, crossed = (
        (share[:, :, None] * messages[name]).sum(axis=0)
        for name in ("variance", "variance_information", "variance_rest", "crossed")
    )
    by_noise, noise_information = (
        float((share * messages[name]).sum()) for name in ("noise", "noise_information")
    )
    variances, level = _score(
        population.variances if spread else None,
        population.noise,
        by_variance,
        own,
        rest,
        crossed,
        by_noise if noise else 0.0,
        noise_information if noise else np.inf,
    )
    variances = variances if spread else population.variances
    return total, MixturePopulation(count / count.sum(), means, variances, level)


def _solve(information: NDArray, slope: NDArray) -> NDArray:
    """Step in a mean; none in directions without information."""
    values, vectors = _axes(information)
    return vectors @ ((vectors.T @ slope) / values)


def invert(information: NDArray) -> NDArray:
    """Sampling covariance of a mean, zero in directions without information."""
    values, vectors = _axes(information)
    return (vectors / values) @ vectors.T


def rank(information: NDArray) -> int:
    """Number of directions with information on a mean."""
    return len(_axes(information)[0])


def shortest(means: NDArray, information: NDArray) -> NDArray:
    """Set means (k, p) to zero in directions without information."""
    values, vectors = _axes(information)
    if len(values) == means.shape[1]:
        return means
    basis = np.linalg.qr(information @ vectors)[0]
    return means @ basis @ basis.T


def ridged(information: NDArray, ridge: float) -> NDArray:
    """Add to the information on means (k, p, p), but not in directions without any.

    There it is left out: a step would be a rounding error divided by the ridge.
    """
    if ridge == 0:
        return information
    bases = [np.linalg.qr(_axes(each, 1e-7)[1])[0] for each in information]
    onto = np.stack([basis @ basis.T for basis in bases])
    return onto @ information @ onto + ridge * onto


def _axes(information: NDArray, least: float = 1e-9) -> tuple[NDArray, NDArray]:
    """Eigenvalues and vectors, columns scaled alike, of the directions with information."""
    size = np.sqrt(np.diag(information))
    size = np.where(size > 0, size, np.inf)
    values, vectors = np.linalg.eigh(information / np.outer(size, size))
    known = values > least * max(values[-1], 1e-300)
    return values[known], vectors[:, known] / size[:, None]


def _score(
    variances: NDArray | None,
    noise: float,
    slope: NDArray,
    information: NDArray,
    rest: NDArray,
    crossed: NDArray,
    noise_slope: float,
    noise_information: float,
) -> tuple[NDArray, float]:
    """Take a step of Fisher scoring in all variances at once, none of which may turn negative.

    The information is an arrow: the variances of different components are known from different
    clients, and all are correlated with the noise. Of one component beside its diagonal, only the
    sums of rows o are known; ``o o' / sum(o)`` has the same.
    """
    values = np.zeros_like(slope) if variances is None else variances
    open_ = (information > 0) & ((values > 0) | (slope > 0)) & (variances is not None)
    step = np.zeros_like(slope)
    while True:
        # information^-1 of slope and of what is crossed with the noise, component by component
        fixed = np.where(open_, 0.0, step)
        toward, ratio = np.zeros_like(slope), np.zeros_like(slope)
        for j, free in enumerate(open_):
            if free.any():
                block = _block(information[j], rest[j])
                sides = np.stack([slope[j] - block @ fixed[j], crossed[j]], axis=1)[free]
                toward[j, free], ratio[j, free] = np.linalg.solve(
                    block[np.ix_(free, free)], sides
                ).T
        pivot = noise_information - (ratio * crossed).sum()
        by_noise = noise_slope - (toward * crossed).sum() - (crossed * fixed).sum()
        own = by_noise / pivot if pivot > 1e-9 * noise_information else 0.0
        own = max(own, -0.9 * noise, FLOOR - noise)
        step = np.where(open_, toward - ratio * own, step)
        below = open_ & (values + step <= 0)
        if not below.any():
            return values + step, noise + own
        open_ &= ~below
        step[below] = -values[below]


def _block(diagonal: NDArray, rest: NDArray) -> NDArray:
    """Information with this diagonal and about these sums of rows beside it; positive definite."""
    own = np.maximum(diagonal - rest**2 / max(rest.sum(), 1e-300), 0.1 * diagonal)
    return np.diag(own) + np.outer(rest, rest) / max(rest.sum(), 1e-300)


def between(one: MixturePopulation, other: MixturePopulation, share: float) -> MixturePopulation:
    """Population that lies so far on the way from one to the other."""
    return MixturePopulation(
        one.weights + share * (other.weights - one.weights),
        one.means + share * (other.means - one.means),
        one.variances + share * (other.variances - one.variances),
        one.noise + share * (other.noise - one.noise),
    )


def accelerate(
    trail: list[tuple[MixturePopulation, MixturePopulation]], leap: float
) -> MixturePopulation:
    """Extrapolate from the last steps, each from a population to another (Anderson 1965).

    Where components overlap, EM goes many small steps along the same curve. The combination of
    past steps that leaves least to go is taken (Walker and Ni 2011); whether it is likelier has to
    be tried.

    Parameters
    ----------
    trail : list of at least two pairs of MixturePopulation
        Pairs of begin and end of steps, the last step last.
    leap : float
        Largest extrapolation, in multiples of the last step.
    """
    begun, ended = (
        np.stack([_flat(x) for x in each]) for each in zip(*trail[-MEMORY:], strict=True)
    )
    steps = ended - begun
    share = np.linalg.lstsq(np.diff(steps, axis=0).T, steps[-1], rcond=1e-8)[0]
    beyond = -share @ np.diff(ended, axis=0)
    most = leap * float(np.linalg.norm(steps[-1]))
    beyond *= min(1.0, most / max(float(np.linalg.norm(beyond)), 1e-300))
    return _unflat(ended[-1] + beyond, trail[-1][1])


def _flat(population: MixturePopulation) -> NDArray:
    """Put all parameters in a row; logs of those that are never zero."""
    with np.errstate(divide="ignore"):
        weights = np.maximum(np.log(population.weights), -50.0)
    parts = weights, population.means.ravel(), population.variances.ravel()
    return np.concatenate([*parts, [np.log(population.noise)]])


def _unflat(values: NDArray, like: MixturePopulation) -> MixturePopulation:
    k, split = len(like.weights), len(like.weights) + like.means.size
    weights = np.exp(values[:k] - values[:k].max())
    # what has reached the boundary stays there
    variances = np.where(
        like.variances > 0, np.maximum(values[split:-1].reshape(like.variances.shape), 0), 0.0
    )
    means = values[k:split].reshape(like.means.shape)
    return MixturePopulation(weights / weights.sum(), means, variances, float(np.exp(values[-1])))
