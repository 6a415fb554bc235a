"""Atoms of an NPMLE that stand for outliers of the error alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ebfed.likelihoods import Likelihood
from ebfed.priors.weights import fit_weights

__all__ = ["LEVEL", "Fewer", "without_outlying"]

LEVEL = 0.05  # probability that an outlier of the error is taken for a parameter


class Fewer(NamedTuple):
    """Atoms that are left, their weights, and the log-likelihood that was given up for the rest."""

    atoms: NDArray
    weights: NDArray
    loss: float


def without_outlying(
    rows: Likelihood,
    counts: NDArray,
    atoms: NDArray,
    weights: NDArray,
    price: float,
    tol: float,
) -> Fewer:
    r"""Drop atoms that bring no more log-likelihood than an outlier of the error does.

    Errors with heavy tails are far from their parameter now and then. The likelihood is highest if
    such an estimate has an atom of its own, of weight near 1/n: it is taken for a parameter, with a
    squared error as large as it can be. Without atom j, the others rescaled, the log-likelihood
    falls by

    .. math:: n \log(1 - w_j) - \sum_i \log(1 - w_j L_{ij} / f_i).

    The atom of the smallest loss is left out if that is below the price, the weights of the others
    are fitted again, and so on. Some groups far from the others bring more than the price; so does
    a single estimate, if it is too far for an error (`StudentT.outlier_gain`).

    Parameters
    ----------
    rows : Likelihood of k messages
    counts : ndarray of shape (k,)
        Clients that each stands for.
    atoms, weights : ndarray of shape (j,)
        An NPMLE.
    price : float
        Log-likelihood that an atom must bring.
    tol : float
        Duality gap of the weights.

    Examples
    --------
    Two of 400 estimates are 8 errors away. An error with three degrees of freedom is that large in
    one of 250 cases; one with 30 never is.

    >>> from ebfed.likelihoods import StudentT
    >>> from ebfed.priors.npmle import npmle
    >>> x = np.append(np.random.default_rng(0).standard_normal(398), [8.0, -8.5])[:, None]
    >>> for df in (3.0, 30.0):
    ...     rows, ones = StudentT(x, np.ones((400, 1)), np.full(400, df)), np.ones(400)
    ...     found = npmle(rows, ones, 400, 1e-6)
    ...     price = rows.outlier_gain(ones, LEVEL)
    ...     left = without_outlying(rows, ones, found.atoms, found.weights, price, 1e-6)
    ...     print(left.atoms.round(1))
    [0.]
    [-8.5  0.   8. ]
    """
    n = counts.sum()
    at_atoms = rows.relative(atoms[:, None])
    mixture, loss = at_atoms @ weights, 0.0
    while len(atoms) > 1:
        shares = np.minimum(at_atoms * (weights / mixture[:, None]), 1 - 1e-16)
        losses = n * np.log1p(-weights) - counts @ np.log1p(-shares)
        least = int(np.argmin(losses))
        if losses[least] >= price:
            break
        fewer, rest = np.delete(at_atoms, least, axis=1), np.delete(weights, least)
        fitted, _ = fit_weights(fewer, counts, rest / rest.sum(), tol)
        kept, there = fitted > 0, fewer @ fitted
        loss += float(counts @ np.log(mixture / there))
        atoms, at_atoms = np.delete(atoms, least)[kept], fewer[:, kept]
        weights, mixture = fitted[kept], there
    return Fewer(atoms, weights, max(loss, 0.0))
