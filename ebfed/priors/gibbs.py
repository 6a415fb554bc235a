"""Plausible mixtures: draws of weights and parameters of components from their posterior.

One Gibbs sampler, for components that are Gaussian, are atoms, or stay as they are.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv, ndtr, ndtri

from ebfed.kernels import bell_shapes, pick_members
from ebfed.likelihoods import Gaussian, Likelihood
from ebfed.priors.exploration import TILT

__all__ = ["atom_draws", "dirichlet_draws", "enough", "mixture_draws", "order_of"]

N_NODES = 200  # standard deviations that are tried
FURTHEST = 10.0  # the largest of them, in standard deviations of the values
WIDTH = 0.05  # noise variances are rounded to powers of 1 + WIDTH
N_PLACES = 120  # of an atom
BELL, NARROW, WIDE = 4.0, 0.02, 2.0  # degrees of freedom of a bell; widths, as shares of a grid
EVEN = 0.2  # share of the shapes that is even along a grid
ENOUGH = 1500  # rows after which the population is hardly open


class _Sampler(ABC):
    """Gibbs sampler of a mixture of k components, always the same for the same messages.

    A step gives each client a component, then all components weights, and then each its own
    parameters, given its clients (Diebolt and Robert 1994). `client` has the row of likelihoods of
    each client. Draws for a single component are independent.
    """

    burn_in, thinning = 50, 2
    parameters: tuple[NDArray, ...] = ()  # of the components, as they were last drawn
    members: NDArray  # component of each client, as it was last drawn

    def __init__(self, client: NDArray):
        self.client = client

    @abstractmethod
    def relative(self) -> NDArray:
        """Likelihood of each row in each component, up to a factor for each row, (k, n)."""

    def numbers(self, weights: NDArray, rng: np.random.Generator) -> NDArray:
        """Draw `members`, and return how many each component has, shape (k,)."""
        k, n = len(weights), len(self.client)
        if k == 1:
            self.members = np.zeros(n, np.int64)
        else:
            self.members = pick_members(self.relative(), weights, self.client, rng.random(n))
        return np.bincount(self.members, minlength=k)

    def weights_given(self, numbers: NDArray, rng: np.random.Generator) -> NDArray:
        """Draw weights under a uniform prior, continuously in the data: one number for each."""
        draws = np.maximum(gammaincinv(1.0 + numbers, rng.random(len(numbers))), 1e-300)
        return draws / draws.sum()

    @abstractmethod
    def move(self, k: int, rng: np.random.Generator) -> None:
        """Draw parameters of the k components, given their members."""

    def draws(self, weights: NDArray, size: int) -> tuple[NDArray, ...]:
        """Draw weights, (size, k), and each of the parameters, (size, k, ...)."""
        rng, k, kept = np.random.default_rng(0), len(weights), []
        burn_in, thinning = (0, 1) if k == 1 else (self.burn_in, self.thinning)
        for step in range(burn_in + thinning * size):
            weights = self.weights_given(self.numbers(weights, rng), rng)
            self.move(k, rng)
            if step >= burn_in and (step - burn_in) % thinning == thinning - 1:
                kept.append((weights, *self.parameters))
        return tuple(np.array(each) for each in zip(*kept, strict=True))


def mixture_draws(
    values: NDArray,
    noise: NDArray,
    start: tuple[NDArray, NDArray, NDArray],
    shared: bool,
    least: NDArray,
    size: int,
) -> tuple[NDArray, NDArray, NDArray]:
    r"""Draw parameters of a mixture of k Gaussians that noisy values leave plausible.

    A Gibbs sampler gives each client a component, then the components their weights, standard
    deviations and centres; clients' parameters are integrated out,

    .. math:: x_i \mid z_i = l \sim N(\mu_l, \mathrm{diag}(S_l + V_i)),

    so that standard deviations near zero are no trap. A standard deviation is drawn with its centre
    integrated out, on a lattice. The prior is, with m and s**2 mean and variance of the values (one
    s for all columns where these are `shared`), weights uniform on the simplex, centres ``N(m,
    s**2)`` and standard deviations half-Cauchy of scale s (Gelman 2006). A single component has the
    prior of `Normal`. Draws are always the same for the same values, and independent for a single
    component.

    Parameters
    ----------
    values : ndarray of shape (n, d)
    noise : ndarray of shape (n, d)
        Variances of the noise; infinite where a client has no value. For standard deviations and
        centres they are rounded to 5 %.
    start : tuple of ndarrays
        Weights (k,), centres (k, d) and variances (k, d) to start from.
    shared : bool
        Whether the columns of a component have one variance.
    least : ndarray of shape (d,)
        Lower bounds of the variances.
    size : int

    Returns
    -------
    weights : ndarray of shape (size, k)
    means, variances : ndarray of shape (size, k, d)

    References
    ----------
    Diebolt and Robert (1994), Estimation of finite mixture distributions through Bayesian sampling,
    J. R. Statist. Soc. B 56, 363-375; Gelman (2006), Prior distributions for variance parameters in
    hierarchical models.

    Examples
    --------
    >>> x = np.append(np.linspace(-6, -4, 20), np.linspace(4, 6, 30))[:, None]
    >>> start = np.array([0.4, 0.6]), np.array([[-5.0], [5.0]]), np.ones((2, 1))
    >>> weights, means, _ = mixture_draws(x, np.full((50, 1), 0.1), start, True, np.zeros(1), 200)
    >>> weights.mean(axis=0).round(1), means.mean(axis=0).ravel().round()
    (array([0.4, 0.6]), array([-5.,  5.]))
    """
    order = np.argsort(_lasting(Gaussian(values, noise)), kind="stable")
    values, noise = values[order], noise[order]  # each keeps its random numbers
    has_data = np.isfinite(noise)
    values = np.where(has_data, values, 0.0)
    centre = np.average(values, axis=0, weights=has_data + 1e-300)
    square = np.average((values - centre) ** 2, axis=0, weights=has_data + 1e-300)
    square = np.full_like(square, square.mean()) if shared else square
    spread = np.sqrt(np.where(square > 0, square, np.median(noise[has_data])))
    weights, means, variances = start
    sampler = _Gaussians((values - centre) / spread, noise / spread**2, shared, least / spread**2)
    sampler.parameters = (means - centre) / spread, variances / spread**2
    weights, means, variances = sampler.draws(weights, size)
    return weights, centre + spread * means, spread**2 * variances


class _Gaussians(_Sampler):
    """Gaussian components, in units in which the values have mean 0 and variance 1."""

    def __init__(self, values: NDArray, noise: NDArray, shared: bool, least: NDArray):
        super().__init__(np.arange(len(values)))
        self._values, self._noise, self._shared = values, noise, shared
        self._has_data, self._least = np.isfinite(noise), least
        known = noise[self._has_data]
        typical = min(np.median(column[np.isfinite(column)]) for column in noise.T)
        self._typical = typical
        unit = max(0.3 * float(np.sqrt(typical)), 1e-4)
        low, high = np.arcsinh(np.sqrt(least.min()) / unit), np.arcsinh(FURTHEST / unit)
        self._unit, self._nodes = unit, np.linspace(low, high, N_NODES)
        # noise is rounded: then sums over clients are few, and reciprocals are taken once
        floor = np.maximum(known, 1e-8 * unit**2)
        codes = np.rint(np.log(floor) / np.log1p(WIDTH)).astype(np.int64)
        levels, place = np.unique(codes, return_inverse=True)
        self._rounded = (1 + WIDTH) ** levels
        self._places = np.zeros(noise.shape, np.int64)
        self._places[self._has_data] = place
        total = self._rounded + self._variance(self._nodes)[:, None]
        self._logs, self._precisions = np.log(total), 1 / total

    def _variance(self, node: NDArray) -> NDArray:
        return (self._unit * np.sinh(node)) ** 2

    def move(self, k: int, rng: np.random.Generator) -> None:
        """Draw variances, and centres given these."""
        firm = 1.0 if k > 1 else 0.0  # a single component has the prior of `Normal`
        sums = self._sums(k)
        log = self._log_density(sums, firm)
        if self._shared:
            log = log.sum(axis=1, keepdims=True)
        sd = self._unit * np.sinh(self._nodes)
        log += np.log(np.cosh(self._nodes)) - firm * np.log1p(sd**2)
        if k == 1:
            log += TILT * np.log(np.maximum(sd**2, 1e-12) / (sd**2 + self._typical))
        below = np.cumsum(np.exp(log - log.max(axis=2, keepdims=True)), axis=2)
        uniform = rng.random((*below.shape[:2], 1)) * below[:, :, -1:]
        picked = np.minimum((below < uniform).sum(axis=2), N_NODES - 1)
        width = self._nodes[1] - self._nodes[0]
        node = self._nodes[picked] + width * (rng.random(picked.shape) - 0.5)
        # in the first cell, half of it; and never a point
        variances = self._variance(np.maximum(np.abs(node), 1e-3 * width))
        variances = np.maximum(variances, self._least)
        precision = 1 / (self._rounded + variances[:, :, None])
        weight = (sums[0] * precision).sum(axis=2) + firm
        means = (sums[1] * precision).sum(axis=2) / weight
        means = means + rng.standard_normal(means.shape) / np.sqrt(weight)
        self.parameters = means, variances

    def relative(self) -> NDArray:
        logs = []
        for mean, variance in zip(*self.parameters, strict=True):
            total = np.where(self._has_data, self._noise + variance, 1.0)
            square = np.where(self._has_data, (self._values - mean) ** 2 / total, 0.0)
            logs.append(-0.5 * (square + np.log(total)).sum(axis=1))
        return np.exp(logs - np.max(logs, axis=0))

    def _sums(self, k: int) -> NDArray:
        """Numbers, sums and sums of squares of a component's values at each level, (3, k, d, L)."""
        d, n_levels = self._values.shape[1], len(self._rounded)
        sums = np.empty((3, k, d, n_levels))
        for j in range(d):
            place = self.members * n_levels + self._places[:, j]
            for which, each in enumerate((1.0, self._values[:, j], self._values[:, j] ** 2)):
                found = np.bincount(place, each * self._has_data[:, j], minlength=k * n_levels)
                sums[which, :, j] = found.reshape(k, n_levels)
        return sums

    def _log_density(self, sums: NDArray, firm: float) -> NDArray:
        """Log-likelihood of each standard deviation, its centre integrated out, (k, d, G)."""
        number, first, second = (each @ self._precisions.T for each in sums)
        logs = sums[0] @ self._logs.T
        weight = np.maximum(number + firm, 1e-300)
        return -0.5 * (logs + np.log(weight) + second - first**2 / weight)


def atom_draws(
    rows: Likelihood, counts: NDArray, atoms: NDArray, weights: NDArray, size: int
) -> tuple[NDArray, NDArray]:
    """Draw places and weights of atoms from their posterior, always the same.

    Weights have a uniform prior on the simplex, and places a uniform prior on the range of the
    messages. A step gives each client an atom, then all atoms weights, and then each atom a place
    by the likelihood of its clients (Diebolt and Robert, 1994). Random numbers belong to clients by
    their order, so that draws are nearly the same where messages are: see `_lasting`.

    Parameters
    ----------
    rows : Likelihood of n clients
    counts : ndarray of shape (n,)
        Clients of each row.
    atoms : ndarray of shape (k, d)
        Fitted places.
    weights : ndarray of shape (k,)
        Fitted weights.
    size : int

    Returns
    -------
    atoms : ndarray of shape (size, k, d)
    weights : ndarray of shape (size, k)

    References
    ----------
    Diebolt and Robert (1994), Estimation of finite mixture distributions through Bayesian
    sampling, J. R. Statist. Soc. B 56, 363-375.

    Examples
    --------
    >>> from ebfed.likelihoods import Gaussian
    >>> rows = Gaussian(np.repeat([[-5.0], [5.0]], 25, axis=0), np.ones((50, 1)))
    >>> atoms, weights = atom_draws(
    ...     rows, np.ones(50), np.array([[-5.0], [5.0]]), np.array([0.5, 0.5]), 500
    ... )
    >>> atoms.mean(axis=0).ravel().round(), atoms.std(axis=0).ravel().round(1)
    (array([-5.,  5.]), array([0.2, 0.2]))
    """
    client = np.repeat(np.arange(len(rows)), np.rint(counts).astype(np.int64))
    client = client[_lasting(rows)[client].argsort(kind="stable")]
    sampler: _Atoms
    if isinstance(rows, Gaussian) and (rows.variances > 0).all():
        sampler = _NormalAtoms(rows, client)
    else:
        sampler = _TabulatedAtoms(rows, client)
    sampler.parameters = (atoms,)
    weights, atoms = sampler.draws(weights, size)
    return atoms, weights


def _lasting(rows: Likelihood) -> NDArray[np.float64]:
    """Number by which clients are ordered whatever the rounding of their messages, shape (n,).

    Two clients have about the same number only if they have about the same message.
    """
    columns = [rows.local]
    if isinstance(rows, Gaussian):
        columns.append(np.log(np.maximum(rows.variances, 1e-300)))
    total = np.zeros(len(rows))
    for place, column in enumerate(np.hstack(columns).T):
        finite = np.where(np.isfinite(column), column, 0.0)
        spread = np.ptp(finite)
        total += (finite - finite.min(initial=0.0)) / (spread or 1.0) / np.sqrt(place + 1.7)
    return total


class _Atoms(_Sampler):
    """Atoms, whose places are drawn by the likelihoods of their clients."""

    thinning = 5

    def __init__(self, rows: Any, client: NDArray):
        super().__init__(client)
        self._n_rows = len(rows)

    @abstractmethod
    def log_likelihoods(self, atoms: NDArray) -> NDArray:
        """Log-likelihood of each row at each atom, up to a number for each row, (n, k)."""

    @abstractmethod
    def places(self, members: NDArray, rng: np.random.Generator) -> NDArray:
        """Draw places of atoms, shape (k, d), given how many clients of each row they have."""

    def relative(self) -> NDArray:
        logs = np.ascontiguousarray(self.log_likelihoods(*self.parameters).T)
        return np.exp(logs - logs.max(axis=0))

    def move(self, k: int, rng: np.random.Generator) -> None:
        numbers = np.bincount(self.client * k + self.members, minlength=self._n_rows * k)
        self.parameters = (self.places(numbers.reshape(-1, k).astype(float), rng),)


class _NormalAtoms(_Atoms):
    """Messages with normal errors, whose sums are all that the place of an atom depends on."""

    def __init__(self, rows: Gaussian, client: NDArray):
        super().__init__(rows, client)
        ends = [rows.column(j).nodes(N_PLACES)[[0, -1]] for j in range(rows.n_features)]
        self.low, self.high = np.array(ends).T
        self.centre = self.low / 2 + self.high / 2
        self.precisions = np.broadcast_to(1 / rows.variances, rows.values.shape)  # 0 without data
        away = np.where(self.precisions > 0, rows.values - self.centre, 0.0)
        self.weighted = away * self.precisions

    def log_likelihoods(self, atoms: NDArray) -> NDArray:
        """Log-likelihood of each client at each atom, up to a number for each client."""
        away = atoms - self.centre
        return self.weighted @ away.T - 0.5 * self.precisions @ (away**2).T

    def places(self, members: NDArray, rng: np.random.Generator) -> NDArray:
        """Draw places of atoms from normal distributions, cut at the ends of the range."""
        precision = members.T @ self.precisions
        empty = precision == 0
        precision = np.where(empty, 1.0, precision)
        mean = self.centre + members.T @ self.weighted / precision
        sd = 1 / np.sqrt(precision)
        below, above = (ndtr((end - mean) / sd) for end in (self.low, self.high))
        share = rng.random(mean.shape)
        drawn = mean + sd * ndtri(below + share * (above - below))
        anywhere = self.low + share * (self.high - self.low)
        return np.where(empty, anywhere, np.clip(drawn, self.low, self.high))


class _TabulatedAtoms(_Atoms):
    """Messages of any other kind, by their log-likelihoods at nodes of each coordinate."""

    def __init__(self, rows: Likelihood, client: NDArray):
        super().__init__(rows, client)
        self.rows, self.tables = rows, []
        for j in range(rows.n_features):
            column = rows.column(j)
            nodes = column.nodes(N_PLACES)
            self.tables.append((nodes, np.maximum(column.logpdf(nodes[:, None]), -1e300)))

    def log_likelihoods(self, atoms: NDArray) -> NDArray:
        """Log-likelihood of each client at each atom."""
        return self.rows.logpdf(atoms)

    def places(self, members: NDArray, rng: np.random.Generator) -> NDArray:
        """Draw places of atoms, coordinate by coordinate."""
        return np.column_stack([_places(nodes, members.T @ at, rng) for nodes, at in self.tables])


def _places(nodes: NDArray, log_likelihoods: NDArray, rng: np.random.Generator) -> NDArray:
    """Draw a place for each row of log-likelihoods at nodes, shape (k, q).

    Where the likelihood is narrower than the nodes are apart, it is a normal one whose logarithm is
    the parabola through the highest three.
    """
    edges = np.concatenate((nodes[:1], (nodes[1:] + nodes[:-1]) / 2, nodes[-1:]))
    widths = np.diff(edges)
    below = np.cumsum(np.exp(log_likelihoods - log_likelihoods.max(axis=1)[:, None]) * widths, 1)
    picked = (rng.random((len(below), 1)) * below[:, -1:] > below).sum(axis=1)
    places = edges[picked] + rng.random(len(picked)) * widths[picked]
    best = np.clip(np.argmax(log_likelihoods, axis=1), 1, len(nodes) - 2)
    here = np.arange(len(best))
    heights = [log_likelihoods[here, best + side] for side in (-1, 0, 1)]
    gaps = [nodes[best + side] - nodes[best] for side in (-1, 1)]
    left, right = (height - heights[1] for height in (heights[0], heights[2]))
    narrow = (left < -0.5) & (right < -0.5)
    # height(gap) = slope * gap - bend * gap**2 / 2 through the two neighbours
    bend = 2 * (left * gaps[1] - right * gaps[0]) / (gaps[0] * gaps[1] * (gaps[1] - gaps[0]))
    slope = left / gaps[0] + bend * gaps[0] / 2
    precision = np.where(narrow, bend, 1.0)
    normal = nodes[best] + slope / precision + rng.standard_normal(len(best)) / np.sqrt(precision)
    return np.where(narrow, np.clip(normal, nodes[0], nodes[-1]), places)


def dirichlet_draws(
    likelihoods: NDArray, counts: NDArray, shapes: NDArray | float, start: NDArray, size: int
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
    shapes : ndarray of shape (k,), or float
        Parameters of the Dirichlet prior. A number is their sum, where components are in order
        along a line, and shapes are a bell of unknown place and width.
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
    sampler = _Fixed(likelihoods, np.rint(counts).astype(np.int64), shapes)
    (weights,) = sampler.draws(start, size)
    return weights


class _Fixed(_Sampler):
    """Components that stay as they are."""

    burn_in, thinning = 300, 20

    def __init__(self, likelihoods: NDArray, times: NDArray, shapes: NDArray | float):
        likelihoods = likelihoods / likelihoods.max(axis=1, keepdims=True)
        order = order_of(likelihoods)
        self._likelihoods, self._times = np.ascontiguousarray(likelihoods[order].T), times[order]
        self._once = bool((times == 1).all())
        self._shapes = shapes if np.ndim(shapes) else _Bell(float(shapes), likelihoods.shape[1])
        super().__init__(np.arange(len(times)))

    def relative(self) -> NDArray:
        return self._likelihoods

    def numbers(self, weights: NDArray, rng: np.random.Generator) -> NDArray:
        if self._once:
            return super().numbers(weights, rng)
        shares = self._likelihoods.T * weights
        shares /= shares.sum(axis=1, keepdims=True)
        return rng.multinomial(self._times, shares).sum(axis=0)

    def weights_given(self, numbers: NDArray, rng: np.random.Generator) -> NDArray:
        """Draw weights under the Dirichlet prior, some of whose shapes may be next to zero."""
        shapes = self._shapes
        if isinstance(shapes, _Bell):
            shapes = shapes.moved(numbers, rng)
        weights = rng.standard_gamma(shapes + numbers)
        return np.maximum(weights / weights.sum(), 1e-200)

    def move(self, k: int, rng: np.random.Generator) -> None:
        """Components stay."""


class _Bell:
    """Shapes of a Dirichlet prior along a grid: a bell of unknown place and width.

    With it the prior is a mixture of Dirichlet processes (Antoniak, 1974, Ann. Statist. 2,
    1152-1174): populations are near a member of a parametric family, here t with `BELL` degrees of
    freedom along the grid, mixed with even shapes for populations that are no bell. Its place and
    width, in shares of the grid, are uniform, so that few or noisy rows leave the mean of the
    population open: shapes that are all even would draw it to the middle of the grid.
    """

    def __init__(self, concentration: float, k: int) -> None:
        self._total, self._place, self._width = concentration, 0.5, 0.3
        nobody = np.zeros(k, np.int64)
        self._shapes, _ = self._try(nobody, np.ones(k), self._place, self._width)

    def _try(
        self, numbers: NDArray, shapes: NDArray, place: float, width: float
    ) -> tuple[NDArray, float]:
        return bell_shapes(numbers, shapes, place, width, self._total, BELL, EVEN)

    def moved(self, numbers: NDArray, rng: np.random.Generator) -> NDArray:
        """Return shapes after a step of Metropolis, given the members of each component, (k,)."""
        reach = math.exp(rng.uniform(-3, 0))  # near and far
        place, width = (reach * rng.standard_normal(2)).tolist()
        place, width = self._place + place / 2, self._width * math.exp(width)
        least = math.log(rng.random())
        if 0 <= place <= 1 and NARROW <= width <= WIDE:
            tried, gain = self._try(numbers, self._shapes, place, width)
            if least < gain + math.log(width / self._width):
                self._place, self._width, self._shapes = place, width, tried
        return self._shapes


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
