"""Clients' generalized linear models by adaptive quadrature (Pinheiro and Bates, 1995).

And by what approximates it, where quadrature has too many dimensions: see `approximate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ebfed import kernels
from ebfed.regression.families import ResponseFamily, Responses
from ebfed.regression.families.base import Base
from ebfed.regression.posteriors.approximate import GaussianRows
from ebfed.regression.posteriors.normal import NormalCoefficients
from ebfed.tables.clients import Clients

__all__ = [
    "METHODS",
    "MOST_INTEGRATED",
    "Accuracy",
    "Base",
    "Method",
    "Used",
    "derivatives",
    "method_for",
    "posteriors",
]

# Coefficients of a group over which a product of rules is affordable.
MOST_INTEGRATED = 3

Accuracy = Literal["coarse", "fine"]
# Adaptive Gauss-Hermite quadrature, expectation propagation, Laplace's approximation.
Used = Literal["aghq", "ep", "laplace"]
Method = Literal["auto", "aghq", "ep", "laplace"]
METHODS: tuple[str, ...] = get_args(Method)
# A search of a mode ends when a step gains no more than this share of the log-posterior.
TOLERANCE, MOST_SWEEPS = 1e-8, 200

# Numbers of nodes on an axis, each with the largest standard deviation of a logit for which it is
# used. The logistic function has poles pi away from the line: wider posteriors need more nodes.
# Fine rules leave some 1e-7 of a group's log-likelihood.
RULES: dict[Accuracy, dict[int, dict[int, float]]] = {
    "fine": {
        1: {15: 0.4, 31: 1.0, 61: 2.5, 121: 4.0, 201: np.inf},
        2: {11: 0.5, 15: 0.8, 21: 1.2, 31: 1.8, 45: np.inf},
        3: {7: 0.3, 9: 0.5, 11: 0.9, 15: 1.4, 21: 2.3, 31: np.inf},
    },
    "coarse": {
        1: {9: 1.0, 21: 2.5, 61: np.inf},
        2: {7: 1.0, 15: 2.5, 25: np.inf},
        3: {5: 1.0, 9: 2.5, 15: np.inf},
    },
}


def method_for(method: Method, family: ResponseFamily, sizes: Sequence[int] | NDArray) -> Used:
    """Return the method by which so many coefficients of each level are integrated over.

    Raises
    ------
    ValueError
        If the method is not of these.

    Examples
    --------
    >>> from ebfed.regression.families import Binomial, Poisson
    >>> [method_for("auto", Binomial(), each) for each in ([3], [4], [1, 1])]
    ['aghq', 'ep', 'laplace']
    >>> method_for("auto", Poisson(), [4])
    'laplace'
    """
    one = len(sizes) == 1
    few = one and sum(sizes) <= MOST_INTEGRATED
    if method == "auto":
        return "aghq" if few else "ep" if one and _has_logits(family) else "laplace"
    if method == "aghq" and not few:
        raise ValueError(
            f"method='aghq' integrates over at most {MOST_INTEGRATED} coefficients that differ "
            f"between groups of one level; got {sum(sizes)} of {len(sizes)}. Use method='auto', or "
            "name fewer columns in varying."
        )
    if method == "ep" and not (one and _has_logits(family)):
        raise ValueError(
            "method='ep' is of binomial rows with a logit, in groups of one level; got "
            f"family={family.name!r}, link={family.link!r} and {len(sizes)} levels. "
            "Use method='auto'."
        )
    return method


def _has_logits(family: ResponseFamily) -> bool:
    return (family.name, family.link) == ("binomial", "logit")


@cache
def _rules(q: int, accuracy: Accuracy) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """Nodes, log weights over the normal density, numbers of nodes, and limits of the rules."""
    from scipy.special import roots_hermitenorm

    limits = RULES[accuracy][max(q, 1)]
    sizes = np.array([*limits], np.int64)
    nodes, weights = np.zeros((2, len(sizes), sizes[-1]))
    for rule, size in enumerate(sizes):
        t, w = roots_hermitenorm(size)
        nodes[rule, :size], weights[rule, :size] = t, np.log(w / w.sum()) + 0.5 * t**2
    return nodes, weights, sizes, np.array([*limits.values()])


# Log-likelihood, slopes, lower halves of second derivatives, and modes.
Derivatives = tuple[NDArray, NDArray, NDArray, NDArray]

# Rows and their family, as kernels take them: whitened rows, offsets, responses, weights, ends of
# clients, number and shapes of the family.
ClientRows = tuple[NDArray, NDArray, NDArray, NDArray, NDArray, int, NDArray]


def _modes(rows: ClientRows, start: NDArray | None = None) -> tuple[NDArray, NDArray]:
    """Mode of each client's log-posterior, and its inverse curvature."""
    m, q = len(rows[4]) - 1, rows[0].shape[1]
    mode, cov = np.zeros((m, q)) if start is None else start.copy(), np.empty((m, q, q))
    kernels.laplace(*rows, TOLERANCE, MOST_SWEEPS, mode, cov, np.empty(m))
    return mode, cov


def derivatives(
    clients: Clients,
    responses: Responses,
    family: ResponseFamily,
    shapes: NDArray,
    base: Base,
    *,
    frame: NDArray,
    mean: NDArray,
    root: NDArray,
    places: NDArray,
    sizes: Sequence[int] | NDArray,
    entries: tuple[NDArray, NDArray],
    accuracy: Accuracy,
    start: NDArray | None = None,
    method: Used = "aghq",
) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """Log marginal likelihood of each client with its first and second derivatives.

    Coefficients are ``frame @ c``, where c has mean `mean`, and its entries `places` differ from it
    by ``root @ eta``, eta standard normal.

    Parameters
    ----------
    clients : Clients
    responses : Responses
    family : ResponseFamily
    shapes : ndarray of shape (t,)
        Parameters of the family.
    base : tuple of ndarray
        Of each client, what its log-likelihood has besides the part in linear predictors, with
        first and second derivatives in the shapes.
    frame : ndarray of shape (p, r)
    mean : ndarray of shape (r,)
    root : ndarray of shape (q, q)
    places : int64 ndarray of shape (q,)
    sizes : sequence of int
        Numbers of these that are of each level of groups, from the top.
    entries : tuple of int64 ndarray
        Rows and columns of the entries of `root` that are parameters, after those of `mean` and
        before the shapes.
    accuracy : {"coarse", "fine"}
    start : ndarray of shape (n, q), optional
        Modes under a population nearby, from which those under this one are searched.
    method : {"aghq", "ep", "laplace"}

    Returns
    -------
    evidence : ndarray of shape (n,)
    score : ndarray of shape (n, d)
    curvature : ndarray of shape (n, d (d + 1) / 2)
        Lower halves of the second derivatives.
    mode : ndarray of shape (n, q)
        Modes of the log-posteriors of eta.
    """
    m, q = len(clients), len(places)
    if method == "aghq" and family.adds and q == 1:
        alike = _of_rates(clients, responses, frame, mean, places[0], root[0, 0], accuracy, start)
        if alike is not None:
            return (alike[0] + base[0], *alike[1:])
    # einsum: products of matrices round differently for blocks of different lengths
    design = np.ascontiguousarray(np.einsum("np,pr->nr", clients.X, frame))
    X = np.ascontiguousarray(np.einsum("nq,qk->nk", design[:, places], root))
    offset = np.einsum("nr,r->n", design, mean) + responses.offset
    shaped = family.in_kernel(shapes)
    rows = X, offset, responses.y, responses.weight, clients.indptr, family.kind, shaped
    r, t = design.shape[1], len(shapes)
    if method != "aghq":
        approximate = GaussianRows.of(clients, responses, family, sizes, method)
        at = mean, root, places, entries, shapes
        found = approximate.derivatives(design, *at, start, exact=accuracy == "fine")
        return _with_base(found, base, t)
    moved = np.arange(r), places[entries[0]], np.arange(r, r + t)
    column = np.concatenate(moved).astype(np.int64)
    factor = np.concatenate([np.full(r, -1), entries[1], np.full(t, -1)]).astype(np.int64)
    d = len(column)
    empty = np.empty(m), np.empty((m, d)), np.empty((m, d * (d + 1) // 2))
    mode, cov = _modes(rows, start)
    kernels.quadrature_derivatives(
        *rows, mode, cov, *_rules(q, accuracy), design, column, factor, *empty
    )
    turn = family.turn(shapes)
    if turn is not None:
        _turn(empty[1], empty[2], turn)
    return _with_base((*empty, mode), base, t)


def _with_base(found: Derivatives, base: Base, t: int) -> Derivatives:
    """Add what log-likelihoods have besides their parts in predictors, which t shapes move."""
    evidence, score, curvature, mode = found
    evidence += base[0]
    if t:
        d = score.shape[1]
        score[:, d - t :] += base[1]
        rows, columns = np.tril_indices(d)
        curvature[:, (rows >= d - t) & (columns >= d - t)] += base[2]
    return evidence, score, curvature, mode


def _turn(score: NDArray, curvature: NDArray, turn: NDArray) -> None:
    """Write derivatives in shapes over those in sums of their exponentials, which come last."""
    t, d = len(turn), score.shape[1]
    whole = np.eye(d)
    whole[d - t :, d - t :] = turn
    rows, columns = np.tril_indices(d)
    score[:] = np.einsum("mi,ij->mj", score, whole)
    for some in np.array_split(np.arange(len(score)), 1 + len(score) // 10_000):
        square = np.zeros((len(some), d, d))
        square[:, rows, columns] = square[:, columns, rows] = curvature[some]
        square = np.einsum("ki,mkl,lj->mij", whole, square, whole, optimize=True)
        places = np.arange(d - t, d)
        square[:, places, places] += score[some, d - t :]
        curvature[some] = square[:, rows, columns]


def _of_rates(
    clients: Clients,
    responses: Responses,
    frame: NDArray,
    mean: NDArray,
    place: int,
    sd: float,
    accuracy: Accuracy,
    start: NDArray | None,
) -> tuple[NDArray, NDArray, NDArray, NDArray] | None:
    """Return the derivatives of clients whose counts have one rate each; None if they have not."""
    m, d = len(clients), frame.shape[1] + 1
    mode = np.zeros((m, 1)) if start is None else start.copy()
    found = np.empty(m), np.empty((m, d)), np.empty((m, d * (d + 1) // 2))
    rows = np.require(clients.X, float, ["C", "W"]), responses.y, responses.weight, responses.offset
    population = frame, mean, int(place), float(sd)
    rules = _rules(1, accuracy)
    alike = kernels.rate_derivatives(*rows, clients.indptr, *population, *rules, mode, *found)
    return (*found, mode) if alike else None


def posteriors(
    clients: Clients,
    responses: Responses,
    family: ResponseFamily,
    shapes: NDArray,
    mean: NDArray,
    roots: Sequence[NDArray],
    mean_covariance: NDArray,
    method: Used,
) -> list[NormalCoefficients]:
    """Posteriors of the coefficients of groups of each level, from the top; clients are the lowest.

    Parameters
    ----------
    clients : Clients
    responses : Responses
    family : ResponseFamily
    shapes : ndarray of shape (t,)
        Parameters of the family.
    mean : ndarray of shape (p,)
    roots : sequence of ndarray of shape (p, q)
        Roots of the population's covariances, of levels from the top.
    mean_covariance : ndarray of shape (p, p)
        Sampling covariance of `mean`.
    method : {"aghq", "ep", "laplace"}
    """
    if method != "aghq":
        sizes = [root.shape[1] for root in roots]
        joint = GaussianRows.of(clients, responses, family, sizes, method)
        return joint.posteriors(clients.X, shapes, mean, roots, mean_covariance)
    (root,) = roots
    X = np.ascontiguousarray(np.einsum("np,pq->nq", clients.X, root))
    offset = np.einsum("np,p->n", clients.X, mean) + responses.offset
    shaped = family.in_kernel(shapes)
    rows = X, offset, responses.y, responses.weight, clients.indptr, family.kind, shaped
    m, (p, q) = len(clients), root.shape
    first, covariance, along = np.empty((m, q)), np.empty((m, q, q)), np.empty((m, q, p))
    design = np.array(clients.X, order="C")  # a read-only one is another type to the compiler
    kernels.quadrature_moments(
        *rows, *_modes(rows), *_rules(q, "fine"), design, np.empty(m), first, covariance, along
    )
    found = NormalCoefficients(
        mean + first @ root.T,
        root @ covariance @ root.T,
        np.eye(p) + root @ along,
        mean_covariance,
    )
    return [found]
