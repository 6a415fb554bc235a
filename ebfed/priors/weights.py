"""Maximum likelihood of the weights of known components: a concave problem on the simplex."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ebfed.kernels import count_members
from ebfed.kernels.threads import one_thread

__all__ = [
    "FLAT",
    "analytic_centre",
    "climb",
    "cross_products",
    "dirichlet_draws",
    "enough",
    "fit_weights",
    "gradient",
    "line_search",
    "order_of",
]

BLOCK = 4096  # rows at a time: what fits the cache
MANY = 20_000  # rows beyond which some are used first
BURN_IN, THINNING = 200, 10  # steps of a Gibbs sampler
ENOUGH = 1500  # rows after which the population is hardly open
FLOOR = 1e-13  # curvature that is added, as a share of what there is
ENOUGH_GAIN = 1e-6  # of a model, as a share of the gain so far
SETTLED = 1e-11  # a gradient per client that is nothing but rounding
FLAT = 1e-5  # a gradient per client that is nowhere steeper vanishes everywhere


def fit_weights(
    likelihoods: NDArray, counts: NDArray, weights: NDArray, tol: float
) -> tuple[NDArray, float]:
    """Maximise ``sum_i counts_i log sum_j weights_j L_ij`` to a duality gap of `tol`.

    Where the gradient vanishes at every column and the columns depend on each other, there are
    several maximisers, and the answer is their analytic centre.

    Parameters
    ----------
    likelihoods : ndarray of shape (n, k)
        Each row up to a factor.
    counts : ndarray of shape (n,)
    weights : ndarray of shape (k,)
        A start, which makes every row possible.
    tol : float

    Returns
    -------
    weights : ndarray of shape (k,)
    gap : float
        The log-likelihood is at most this much below its maximum.

    Examples
    --------
    >>> weights, gap = fit_weights(np.eye(2), np.array([3.0, 1.0]), np.array([0.5, 0.5]), 1e-9)
    >>> weights.round(6)
    array([0.75, 0.25])
    """
    with one_thread():
        return _fitted(likelihoods, counts, weights, tol)


def _fitted(
    likelihoods: NDArray, counts: NDArray, weights: NDArray, tol: float
) -> tuple[NDArray, float]:
    if (
        len(likelihoods) > MANY and (counts > 0).all()
    ):  # a start from a tenth of the rows, unless it fails another
        rough, _ = _fitted(likelihoods[::10], counts[::10], weights, tol)
        weights = rough if (likelihoods @ rough > 0).all() else (rough + weights) / 2
    weights, rising = climb(likelihoods, counts, weights, tol)
    gap = max(float(rising.max()), 0.0)
    total = counts.sum()
    if gap <= tol and rising.min() >= -FLAT * total and (counts > 0).all():
        cells, width = np.ones(len(weights)), tol / total / 100
        centre = analytic_centre(likelihoods, counts, likelihoods @ weights, cells, width)
        if centre is not None:
            rise = max(float(gradient(likelihoods, counts, likelihoods @ centre).max()), 0.0)
            if rise <= tol:
                return centre, rise
    return weights, gap


def dirichlet_draws(
    likelihoods: NDArray, counts: NDArray, shapes: NDArray, start: NDArray, size: int
) -> NDArray:
    """Draw weights of components from their posterior under a Dirichlet prior, always the same.

    A Gibbs sampler gives each client a component, and then all components weights. With many
    components of small shapes the prior is nearly a Dirichlet process, whose concentration is the
    sum of the shapes (Ishwaran and Zarepour, 2002).

    Parameters
    ----------
    likelihoods : ndarray of shape (n, k)
        Each row up to a factor.
    counts : ndarray of shape (n,)
    shapes : ndarray of shape (k,)
        Parameters of the Dirichlet prior.
    start : ndarray of shape (k,)
        First weights, positive.
    size : int

    Returns
    -------
    ndarray of shape (size, k)

    Examples
    --------
    >>> draws = dirichlet_draws(np.eye(2), np.array([30.0, 10.0]), np.ones(2), np.ones(2), 400)
    >>> draws.mean(axis=0).round(1)
    array([0.7, 0.3])
    """
    rng = np.random.default_rng(0)
    times = np.rint(counts).astype(np.int64)
    likelihoods = likelihoods / likelihoods.max(axis=1, keepdims=True)
    order = order_of(likelihoods)
    likelihoods, times = np.ascontiguousarray(likelihoods[order]), times[order]
    single = bool((times == 1).all())
    weights, draws = start, []
    for step in range(BURN_IN + THINNING * size):
        if single:
            members = count_members(likelihoods, weights, rng.random(len(likelihoods)))
        else:
            shares = likelihoods * weights
            shares /= shares.sum(axis=1, keepdims=True)
            members = rng.multinomial(times, shares).sum(axis=0)
        weights = rng.standard_gamma(shapes + members)
        weights = np.maximum(weights / weights.sum(), 1e-200)
        if step >= BURN_IN and (step - BURN_IN) % THINNING == THINNING - 1:
            draws.append(weights)
    return np.array(draws)


def order_of(figures: NDArray) -> NDArray[np.int64]:
    """Order of rows that does not depend on how they are given, so that draws do not either.

    By a combination of their figures; rows with nearly the same figures may change places.

    Examples
    --------
    >>> order_of(np.array([[0.4, 1.0], [1.0, 0.5], [0.2, 1.0]]))
    array([1, 2, 0])
    """
    return np.argsort(figures @ np.linspace(1.0, 2.0, figures.shape[1]), kind="stable")


def enough(n: int) -> NDArray:
    """Positions of n rows, or of 1500 evenly spread ones: draws from them are wide enough.

    Examples
    --------
    >>> enough(3), len(enough(10**6))
    (array([0, 1, 2]), 1500)
    """
    return np.linspace(0, n - 1, min(n, ENOUGH)).astype(int)


def gradient(likelihoods: NDArray, counts: NDArray, mixture: NDArray) -> NDArray:
    """Return the gain in log-likelihood per unit of mass moved to each column."""
    return (counts / mixture) @ likelihoods - counts.sum()


def climb(
    likelihoods: NDArray,
    counts: NDArray,
    weights: NDArray,
    tol: float,
    tilt: NDArray | None = None,
    steps: int = 200,
) -> tuple[NDArray, NDArray]:
    """Newton steps for the weights of columns, up to a duality gap of `tol`.

    Parameters
    ----------
    likelihoods, counts, weights :
        See `fit_weights`.
    tol : float
    tilt : ndarray of shape (k,), optional
        Coefficients of a linear term ``tilt @ weights`` of the objective.
    steps : int
        Most steps.

    Returns
    -------
    weights : ndarray of shape (k,)
    rises : ndarray of shape (k,)
        What mass moved to each column gains, per unit.
    """
    tilt = np.zeros(len(weights)) if tilt is None else tilt
    for step in range(steps + 1):
        rises = gradient(likelihoods, counts, likelihoods @ weights) + tilt - tilt @ weights
        if step == steps or rises.max() <= tol:
            break
        active = (weights > 0) | (rises > 0)
        moved = np.zeros(len(weights))
        some = likelihoods[:, active], counts, weights[active]
        moved[active] = _newton(*some, tilt[active], tol)
        if (moved == weights).all():  # as far as rounding lets it
            break
        weights = moved
    return weights, rises


def _newton(
    likelihoods: NDArray, counts: NDArray, weights: NDArray, tilt: NDArray, tol: float
) -> NDArray:
    """One constrained Newton step for the weights, with a line search.

    The quadratic model of the log-likelihood per client at w, over the simplex, has the slope
    ``L' (c / f)`` and the curvature ``L' diag(c / f**2) L`` (Wang 2007, eq. 5).
    """
    mixture, total = likelihoods @ weights, counts.sum()
    bend = cross_products(likelihoods, counts / mixture**2) / total
    slope = ((counts / mixture) @ likelihoods + tilt) / total
    proposal = _likeliest_of_model(bend, slope, weights, max(0.1 * tol / total, SETTLED))
    gain = float(tilt @ (proposal - weights))
    step = line_search(counts, mixture, likelihoods @ proposal, gain)
    return (1 - step) * weights + step * proposal


def _likeliest_of_model(bend: NDArray, slope: NDArray, weights: NDArray, settled: float) -> NDArray:
    """Maximise ``slope @ d - d @ bend @ d / 2`` over weights v = w + d of a simplex.

    An interior point method finds which weights are positive, and an active set method solves for
    these. It drops what comes out negative and adds what would rise, or, where that does not raise
    the model, a quarter as many. A single one is added with care: up to where the first becomes
    negative, so that it always rises (Lawson and Hanson 1974).
    """
    bend = bend + np.diag(FLOOR * np.diag(bend))  # so little curvature keeps weights as they are
    start = weights / weights.sum()
    best, height = start, -np.inf
    used, batch = _inside(bend, slope + bend @ start), len(start)
    for _ in range(10 * len(weights) + 50):
        found = _on_face(bend, slope, start, best, used, batch == 1)
        moved = found - start
        reached = float(slope @ moved - moved @ bend @ moved / 2)
        if reached > height * (1 + ENOUGH_GAIN):
            best, height, batch = found, reached, 2 * batch
        elif batch == 1:
            break
        else:
            batch = max(batch // 4, 1)
        used = best > 0
        rises = slope - bend @ (best - start)
        rises = np.where(used, -np.inf, rises - best @ rises)
        order = np.argsort(-rises)[:batch]
        order = order[rises[order] > (settled if height > 0 else SETTLED)]
        if not len(order) and (height > 0 or batch == 1):
            break
        used[order] = True
        batch = min(batch, max(len(order), 1))
    return best


def _inside(bend: NDArray, linear: NDArray) -> NDArray:
    """Which weights are positive at the maximum of ``linear @ v - v @ bend @ v / 2`` on a simplex.

    Mehrotra's predictor-corrector method (Nocedal and Wright 2006, Numerical Optimization, 16.6).
    """
    k = len(linear)
    v = np.full(k, 1 / k)
    away = bend @ v - linear
    level = away.min() - max(np.ptp(away), 1e-3)
    z = away - level
    for _ in range(50):
        if v @ z < 1e-14:
            break
        lacking, excess = bend @ v - linear - level - z, v.sum() - 1
        solve = _cholesky(bend, z / v)
        aim, ones = np.zeros(k), solve(np.ones(k))
        for corrected in (False, True):
            move = solve(aim / v - z - lacking)
            shift = -(excess + move.sum()) / ones.sum()
            move += shift * ones
            turn = (aim - z * move) / v - z
            far = min(_room(v, move), _room(z, turn))
            if not corrected:
                left = (v + far * move) @ (z + far * turn) / (v @ z)
                aim = left**3 * (v @ z) / k - move * turn
        far *= 0.995
        v, z, level = v + far * move, z + far * turn, level + far * shift
    return v > z


def _room(at: NDArray, move: NDArray) -> float:
    """How far a positive point can move before a coordinate is zero, 1 at most."""
    down = move < 0
    return float(np.min(at[down] / -move[down], initial=1.0))


def _on_face(
    bend: NDArray, slope: NDArray, start: NDArray, v: NDArray, used: NDArray, careful: bool
) -> NDArray:
    """Maximise the model of `_likeliest_of_model` over the columns in use, some of which it drops.

    From v, it goes straight to the maximum if that is `careful`, and stops at the first edge.
    """
    used = used.copy()
    while used.any():
        at = np.flatnonzero(used)
        if len(at) == 1:
            return used.astype(float)
        v = np.where(used, v, 0.0)
        v = v / v.sum() if v.any() else used / len(at)
        residual = (slope - bend @ (v - start))[at]
        solve = _cholesky(bend[np.ix_(at, at)])
        both = solve(np.column_stack([residual, np.ones(len(at))]))
        move = both[:, 0] - both[:, 0].sum() / both[:, 1].sum() * both[:, 1]
        target = v[at] + move
        negative = target < 0
        if not negative.any():
            v[at] = target
            return v / v.sum()
        if careful:
            room = np.full(len(at), np.inf)
            room[negative] = v[at][negative] / -move[negative]
            share = room.min()
            negative = room <= share
            v[at] = np.where(negative, 0.0, np.maximum(v[at] + share * move, 0.0))
        used[at[negative]] = False
    return start


def _cholesky(matrix: NDArray, more: NDArray | float = 0.0) -> Callable[[NDArray], NDArray]:
    """Solve systems with a matrix, more on its diagonal, and as much as rounding takes."""
    from scipy.linalg.lapack import dpotrf, dpotrs

    scale, extra, failed = np.diag(matrix) + more, 0.0, 1
    places = np.diag_indices(len(matrix))
    while failed:
        whole = np.array(matrix, order="F")
        whole[places] = (1 + extra) * scale
        factor, failed = dpotrf(whole, lower=1, overwrite_a=1, clean=0)
        extra = max(10 * extra, 1e-13)
    return lambda right: dpotrs(factor, right, lower=1)[0]


def line_search(counts: NDArray, mixture: NDArray, target: NDArray, tilt: float = 0.0) -> float:
    """How far to go from one mixture towards another, so that the log-likelihood climbs; 0 if not.

    Parameters
    ----------
    counts, mixture, target : ndarray of shape (n,)
    tilt : float
        What a linear term gains on the whole way.
    """
    before = counts @ np.log(mixture)
    # a client made all but impossible would rule the next step
    step = 1.0 if (target > 0.1 * mixture).all() else 0.9
    slope = (counts / mixture) @ (target - mixture) + tilt
    while step > 1e-10:
        after = counts @ np.log((1 - step) * mixture + step * target) + step * tilt
        if after >= before + 1e-4 * step * slope:
            return step
        step /= 2
    return 0.0


def analytic_centre(
    likelihoods: NDArray, counts: NDArray, mixture: NDArray, cells: NDArray, width: float
) -> NDArray | None:
    """Return the weights at the centre of those that maximise the likelihood.

    They maximise, over positive weights of sum one,

        sum_i counts_i log(f_i) / n  +  width sum_j cells_j log(weights_j),   f = L weights.

    That problem is strictly concave: its answer is unique and depends on the data alone. For
    ``width -> 0`` it is the analytic centre of the maximisers (Boyd and Vandenberghe 2004, section
    8.5.3); the duality gap is at most ``width * n``. Newton steps for f leave a problem whose dual
    has one unknown for each independent row of L (`_barrier`).

    Parameters
    ----------
    likelihoods : ndarray of shape (n, k)
        Each row up to a factor.
    counts : ndarray of shape (n,)
    mixture : ndarray of shape (n,)
        f of a maximiser. The gradient of the likelihood there is next to zero at every column.
    cells : ndarray of shape (k,)
        Measure of each column; scaled to sum one.
    width : float

    Returns
    -------
    ndarray of shape (k,) or None
        None where the columns of `likelihoods` are independent, so that the maximiser is unique,
        and where Newton's method does not settle.

    Examples
    --------
    >>> likelihoods = np.array([[1, 0.5, 0], [0, 0.5, 1]])  # a trial at rates 0, 1/2 and 1
    >>> centre = analytic_centre(likelihoods, np.ones(2), np.full(2, 0.5), np.ones(3), 1e-10)
    >>> centre.round(6)
    array([0.333333, 0.333333, 0.333333])
    """
    share = np.sqrt(counts / counts.sum())
    cells = cells / cells.sum()
    last = np.inf
    for _ in range(30):
        # log f has the model -|A w - 2 share|**2 / 2, as in `newton`
        system = (likelihoods * (share / mixture)[:, None]).T
        right, sizes, left = np.linalg.svd(system, full_matrices=False)
        rank = int((sizes > 1e-8 * sizes[0]).sum())
        if rank == len(cells):
            return None
        left, sizes, right = left[:rank], sizes[:rank], right[:, :rank].T
        middle = left @ share
        # one multiplier holds the sum of weights; A' u = 1 moves it into the square
        target = 2 * middle - right.sum(axis=1) / sizes
        weights = _barrier(sizes[:, None] * right, target, cells, width, middle)
        if weights is None:
            return None
        before, mixture = mixture, likelihoods @ weights
        moved = float(np.abs(mixture / before - 1).max())
        if moved < 1e-13 or last <= moved < 1e-9:  # as far as rounding lets it
            return weights / weights.sum()
        last = moved
    return None


def _barrier(
    system: NDArray, target: NDArray, cells: NDArray, width: float, start: NDArray
) -> NDArray | None:
    """Maximise ``cells @ log(w) - |system @ w - target|**2 / (2 width)`` by its dual.

    The answer is ``w = cells / (system.T @ x)`` where x minimises the convex function
    ``-cells @ log(system.T @ x) + target @ x + width |x|**2 / 2``; `start` has to be in its domain.
    Damped Newton steps; None if they do not end.
    """
    x, slack = start, start @ system
    if not (slack > 0).all():
        return None

    def value(x: NDArray, slack: NDArray) -> float:
        return float(target @ x + width / 2 * (x @ x) - cells @ np.log(slack))

    last = np.inf
    for _ in range(500):
        slope = target + width * x - system @ (cells / slack)
        bend = (system * (cells / slack**2)) @ system.T + width * np.eye(len(x))
        step = -np.linalg.solve(bend, slope)
        moves = step @ system
        fall = float(-slope @ step)
        if fall < 1e-12 and fall >= last:  # as far as rounding lets it
            return cells / slack
        size = 1.0
        while fall >= 1e-12:
            at = slack + size * moves
            if (at > 0).all() and value(x + size * step, at) <= value(x, slack) - size * fall / 10:
                break
            size /= 2
            if size < 1e-10:
                return None
        x = x + size * step
        slack, last = x @ system, fall
        if not (slack > 0).all():
            return None
    return None


def cross_products(likelihoods: NDArray, factors: NDArray) -> NDArray:
    """``sum_i factors_i L_ij L_ik``, a block of rows at a time."""
    total = np.zeros((likelihoods.shape[1],) * 2)
    for first in range(0, len(likelihoods), BLOCK):
        block = likelihoods[first : first + BLOCK]
        total += (block * factors[first : first + BLOCK, None]).T @ block
    return total
