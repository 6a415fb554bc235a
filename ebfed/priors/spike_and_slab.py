"""A point at the mode and a normal or Laplace slab around it, or the slab alone: the likeliest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, logit
from sklearn.utils.validation import check_is_fitted

from ebfed.kernels import gains_of_weights, point_and_slab, student_sizes, student_slab
from ebfed.likelihoods import Gaussian, Likelihood, StudentT
from ebfed.priors.base import WELL_KNOWN, relative_likelihoods
from ebfed.priors.exploration import explore, log_prior_of_spread, thinned
from ebfed.priors.search import maximise
from ebfed.priors.symmetric import (
    Estimates,
    LaplaceSlab,
    NormalSlab,
    Slab,
    Symmetric,
    cells,
    log_blurred,
)

__all__ = ["Laplace", "PointLaplace", "PointNormal", "SpikeAndSlab"]

FEW = 2000  # clients up to which what is not known of the population matters
N_POPULATIONS = 24  # of more clients, where it matters still
MOST = 600.0  # logarithm of a ratio beside which the spike is nothing
THIN = 2000  # clients that are used to find a start; all clients are used afterwards
KEPT = 2**23  # numbers that are kept of slabs whose likelihoods may be asked for again


class SpikeAndSlab(Symmetric):
    """Population ``pi0 delta(mode) + (1 - pi0) g((theta - mode) / scale) / scale``.

    Starts are the peaks of the marginal likelihood over a grid of modes, scales and weights; from
    the best of them Newton steps climb it, with analytic derivatives where messages are Gaussian.
    All mass at the mode is a normal answer, and so is none.

    Attributes
    ----------
    pi0_, scale_ : float
    """

    spike: ClassVar[bool] = True  # whether there is a point at all

    pi0_: float
    scale_: float

    def _fit_parts(self, rows: Likelihood, counts: NDArray) -> None:
        unit = _unit(rows)
        mode = None if self.mode is None else float(self.mode) / unit
        if isinstance(rows, Estimates):
            rows = replace(rows, values=rows.values / unit, variances=rows.variances / unit**2)
        whole = self._surface(rows, counts)
        thinner = [whole]  # a tenth of the clients, a hundredth, …
        for step in 10 ** np.arange(1, np.log10(max(len(rows) / THIN, 1)) + 1, dtype=int):
            if len(rows) / step < whole.size:
                thinner.append(self._surface(rows.take(slice(None, None, step)), counts[::step]))
        rough = thinner.pop()
        free = np.array([self.spike, True, mode is None])
        modes = whole.modes if mode is None else np.array([mode])
        weights = np.geomspace(1 / len(rows), 1, 8) if self.spike else np.ones(1)
        climbs = [
            rough.climb(start, free, whole)
            for place in modes
            for start in rough.peaks(place, weights, whole.scales(place))
        ]
        best = max(climbs, key=rough.value)
        for each in reversed(thinner):
            best = each.climb(best, free, whole)
        null = whole.centre if mode is None else mode
        weight, scale, place = best[0], np.exp(best[1]), best[2]
        if whole.value(best) <= whole.null(null) + 1e-9:
            weight, scale, place = 0.0, 0.0, null
        self.pi0_, self.scale_ = float(1 - weight), float(unit * scale)
        parts = np.array([self.pi0_, weight]), np.array([0.0, self.scale_])
        self._set(unit * place, *parts, int(free.sum()))
        fitted = np.array([weight, scale, place])
        kind = type(self)
        if len(rows) <= FEW:
            self._find_later(kind._learn_plausible, whole, fitted, free, unit)
        elif not _is_well_known(whole, fitted, free):  # the mode is, of so many clients
            some = free & [True, True, False]
            self._find_later(kind._learn_plausible, whole, fitted, some, unit)

    def _learn_plausible(
        self, whole: _Surface, fitted: NDArray, free: NDArray, unit: float
    ) -> None:
        """Find weights, scales and modes that the messages leave plausible.

        The prior is flat in the mode, in the fourth root of the weight of the point (so that it
        covers populations without one too), and in the scale, times the fifth root of ``scale**2 /
        (scale**2 + unit**2)``: up to twice the largest distance from
        the mode where there is a point, as a slab of rare members has no scale to be seen.
        Parameters of the surface are in units of `unit`.
        """
        furthest = max(whole.ends[1] - fitted[2], fitted[2] - whole.ends[0], whole.unit)
        largest = np.arcsinh((2.0 if self.spike else 1e3) * furthest / whole.unit)
        reach = 2 * furthest
        # of messages much preciser than the slab is wide, that is how well the mode is known
        step = max(whole.unit, fitted[1] / np.sqrt(whole.n_clients))
        low = np.array([-np.inf, 0.0, (whole.ends[0] - reach) / step])[free]
        high = np.array([np.inf, largest, (whole.ends[1] + reach) / step])[free]

        def full(points: NDArray) -> NDArray:
            """Weight, scale and mode, from a logit, an inverse sinh, and a number of steps."""
            whole_points = np.tile(fitted, (len(points), 1))
            whole_points[:, free] = points
            if free[2]:
                whole_points[:, 2] *= step
            if free[0]:
                whole_points[:, 0] = expit(whole_points[:, 0])
            else:
                whole_points[:, 0] = 1.0
            whole_points[:, 1] = whole.unit * np.sinh(whole_points[:, 1])
            return whole_points

        known: dict[tuple[float, float], Gains] = {}

        def log_density(points: NDArray) -> NDArray:
            parameters = full(points)
            values = np.empty(len(points))
            for mode in np.unique(parameters[:, 2]):
                at_mode = parameters[:, 2] == mode
                scales, place = np.unique(parameters[at_mode, 1], return_inverse=True)
                weights, row = np.unique(parameters[at_mode, 0], return_inverse=True)
                heights = whole.heights(mode, weights, scales, known)
                values[at_mode] = whole.null(mode) + heights[row, place]
            at = points[:, int(free[0])]
            prior = log_prior_of_spread(at)
            if free[0]:
                prior += log_expit(points[:, 0]) + 0.25 * log_expit(-points[:, 0])
            possible = ((low <= points) & (points <= high)).all(axis=1)
            return np.where(possible, values + prior, -np.inf)

        start = np.array(
            [
                logit(np.clip(fitted[0], 0.05, 0.95)),
                np.arcsinh(max(fitted[1], 0.1 * whole.unit) / whole.unit),
                fitted[2] / step,
            ]
        )[free]
        is_scale = np.array([False, True, False])[free]
        points, weights = explore(log_density, np.clip(start, low, high), is_scale)
        is_slow = isinstance(whole, _OfMessages) and isinstance(whole.rows, StudentT)
        if whole.n_clients > FEW or is_slow:  # fewer populations will do, and save time
            # with a free mode in both of its orders, so that reflected messages have reflected ones
            sides = [np.where([False, False, side], -1.0, 1.0)[free] for side in {False, free[2]}]
            some = [thinned(points * side, weights, N_POPULATIONS) for side in sides]
            points = np.concatenate([at * side for (at, _), side in zip(some, sides, strict=True)])
            weights = np.concatenate([share for _, share in some]) / len(sides)
        parameters = full(points)
        slab = parameters[:, 0]
        self.plausible_ = {
            "mode": unit * parameters[:, 2],
            "weights_": np.column_stack([1 - slab, slab]),
            "scales_": np.column_stack([np.zeros(len(slab)), unit * parameters[:, 1]]),
            "weights": weights[:, None],
        }

    @property
    def null(self) -> float | None:
        """Mode, if there is a point."""
        return self.mode_ if self.spike else None

    def _surface(self, rows: Likelihood, counts: NDArray) -> _Surface:
        if isinstance(rows, Estimates):
            return _OfMessages(self.slab, rows)
        return _OfReports(self.slab, rows, counts)


def _is_well_known(whole: _Surface, fitted: NDArray, free: NDArray) -> bool:
    """Whether the scale of the slab is, and its weight is inside its range."""
    weight, scale, place = fitted
    if not scale > 0 or (free[0] and weight >= 1):
        return False
    if not whole.smooth:
        return True
    bend = -whole.derivatives(np.array([weight, np.log(scale), place]))[1][np.ix_(free, free)]
    try:
        error = np.linalg.inv(np.linalg.cholesky(bend))[:, int(free[0])]
    except np.linalg.LinAlgError:
        return False
    return bool(np.linalg.norm(error) < WELL_KNOWN)


def _unit(rows: Likelihood) -> float:
    """A power of two near the smallest error: sizes in it are exact, whatever those of the data."""
    if not isinstance(rows, Estimates):
        return 1.0
    return float(2.0 ** (np.frexp(np.sqrt(rows.variances.min()))[1] - 1))


# What a slab adds to the likelihood of each client, and what is beyond the largest number.
Gains = tuple[NDArray, float]


class _Surface(ABC):
    """Log marginal likelihood at points (weight of the slab, log of its scale, mode).

    Attributes
    ----------
    n_clients, size : int
        Number of clients, and of rows that stand for them.
    counts : ndarray of shape (size,)
        Number of clients that each row stands for.
    unit : float
        Typical error of a message; slabs are sought down to a hundredth of the `smallest`.
    modes : ndarray
        Candidate modes.
    centre : float
        The likeliest mode if all mass is there.
    ends : tuple of float
        Smallest and largest value of the data.
    """

    smooth: ClassVar[bool] = False

    n_clients: int
    size: int
    counts: NDArray
    unit: float
    smallest: float
    modes: NDArray
    centre: float
    ends: tuple[float, float]

    @abstractmethod
    def value(self, point: NDArray) -> float: ...

    @abstractmethod
    def null(self, mode: float) -> float:
        """Value where all mass is at the mode."""

    @abstractmethod
    def gains(self, mode: float, scales: NDArray) -> list[Gains]:
        """Likelihood of each client under a slab, over that under the spike, less 1; of each slab.

        Logarithms of these ratios are cut at `MOST`, and what is beyond, of all clients together,
        goes with them.
        """

    def heights(
        self,
        mode: float,
        weights: NDArray,
        scales: NDArray,
        known: dict[tuple[float, float], Gains] | None = None,
    ) -> NDArray:
        """Value over that of `null`, shape (n_weights, n_scales); `known` are gains of before."""
        known = {} if known is None else known
        new = [scale for scale in scales.tolist() if (mode, scale) not in known]
        if (len(known) + len(new)) * self.size > KEPT:
            known.clear()
            new = scales.tolist()
        if new:
            places = [(mode, scale) for scale in new]
            known |= zip(places, self.gains(mode, np.array(new)), strict=True)
        heights = np.empty((len(weights), len(scales)))
        for k, scale in enumerate(scales.tolist()):
            ratios, beyond = known[mode, scale]
            heights[:, k] = gains_of_weights(ratios, self.counts, weights) + beyond
        return heights

    def derivatives(self, point: NDArray) -> tuple[NDArray, NDArray]:
        """Slope and second derivatives, where `smooth`; else differences serve."""
        raise NotImplementedError

    def scales(self, mode: float) -> NDArray:
        """Scales that a slab around this mode may have."""
        reach = 2 * max(self.ends[1] - mode, mode - self.ends[0], self.smallest)
        return np.geomspace(self.smallest, reach, int(2 + 2 * np.log2(reach / self.smallest)))

    def peaks(self, mode: float, weights: NDArray, scales: NDArray) -> list[NDArray]:
        """Points where the likelihood, at the best of the weights, peaks over scales."""
        heights = self.heights(mode, weights, scales)
        profile = np.concatenate(([-np.inf], heights.max(axis=0), [-np.inf]))
        tops = np.flatnonzero((profile[1:-1] >= profile[:-2]) & (profile[1:-1] > profile[2:]))
        best = weights[heights[:, tops].argmax(axis=0)]
        return [np.array([w, np.log(s), mode]) for w, s in zip(best, scales[tops], strict=True)]

    def climb(self, start: NDArray, free: NDArray, whole: _Surface) -> NDArray:
        """Maximum above a start, over the coordinates that are free, within the range of all."""
        units = np.array([1.0, 1.0, whole.unit if free[2] else 1.0])
        scales = whole.scales(start[2])
        low = np.array([1e-12, np.log(scales[0] / 100), whole.ends[0]])
        high = np.array([1.0, np.log(scales[-1]), whole.ends[1]])

        def full(x: NDArray) -> NDArray:
            point = start.copy()
            point[free] = x
            return point

        def derivatives(x: NDArray) -> tuple[NDArray, NDArray]:
            slope, bend = self.derivatives(full(x))
            return slope[free], bend[np.ix_(free, free)]

        x, _ = maximise(
            lambda x: self.value(full(x)),
            start[free],
            low[free],
            high[free],
            derivatives if self.smooth else None,
            units[free],
        )
        return full(x)


class _OfMessages(_Surface):
    """Estimates with normal or t errors: everything in closed form, or a short sum of these."""

    smooth: ClassVar[bool] = True

    def __init__(self, slab: Slab, rows: Estimates):
        self.slab, self.x, self.s2 = slab, *map(np.ravel, (rows.values, rows.variances))
        self.rows = rows
        self.nodes, self.counts = rows, np.ones(len(rows))
        if isinstance(rows, StudentT) and rows.lattice is not None:
            self.nodes, self.counts = rows.summed()
        self.n_clients, self.size = len(self.x), len(self.nodes)
        self.smallest = np.sqrt(self.s2.min()) / 10
        self.ends = self.x.min(), self.x.max()
        self._at = lru_cache(maxsize=4)(self._figures)

    def _figures(self, weight: float, log_scale: float, mode: float) -> NDArray:
        """Value, slope and second derivatives; see `kernels.point_and_slab`."""
        scale = np.exp(log_scale)
        point = weight, scale, mode, self.slab is LaplaceSlab
        if not isinstance(self.nodes, StudentT):
            return point_and_slab(self.x, self.s2, *point)
        x, s2 = map(np.ravel, (self.nodes.values, self.nodes.variances))
        errors = s2, self.nodes.degrees
        sizes = student_sizes(x - mode, *errors, scale**2, scale**2)
        return student_slab(x, *errors, sizes, self.counts, *point)

    @cached_property
    def unit(self) -> float:  # type: ignore[override]
        return float(np.sqrt(np.median(self.s2)))

    @cached_property
    def modes(self) -> NDArray:  # type: ignore[override]
        middle = np.quantile(self.x, [0.5, 0.1, 0.3, 0.7, 0.9], method="nearest")
        # a message much preciser than the others can hold the mode alone
        precise = np.argsort(self.s2, kind="stable")[:5]
        if self.n_clients > FEW:
            precise = precise[9 * self.s2[precise] < self.unit**2]
        return np.unique(np.concatenate((middle, self.x[precise], [self.centre])))

    @cached_property
    def centre(self) -> float:  # type: ignore[override]
        if isinstance(self.rows, StudentT):
            return self._peak(self.rows.degrees)
        return float((self.x / self.s2).sum() / (1 / self.s2).sum())

    def _peak(self, degrees: NDArray) -> float:
        """Likeliest common mean of t errors near their median, by reweighted means."""
        mode = float(np.median(self.x))
        for _ in range(100):
            with np.errstate(invalid="ignore"):
                weights = (degrees + 1) / (degrees + (self.x - mode) ** 2 / self.s2)
            weights = np.where(np.isinf(degrees), 1.0, weights) / self.s2
            last, mode = mode, float(weights @ self.x / weights.sum())
            if abs(mode - last) < 1e-9 * self.smallest:
                break
        return mode

    def value(self, point: NDArray) -> float:
        return float(self._at(*point)[0])

    def null(self, mode: float) -> float:
        x, s2 = map(np.ravel, (self.nodes.values, self.nodes.variances))
        return float(self.counts @ self.nodes.log_ratio(x - mode, s2))

    def derivatives(self, point: NDArray) -> tuple[NDArray, NDArray]:
        figures = self._at(*point)
        return figures[1:4], figures[[[4, 5, 6], [5, 7, 8], [6, 8, 9]]]

    def gains(self, mode: float, scales: NDArray) -> list[Gains]:
        x, s2 = map(np.ravel, (self.nodes.values, self.nodes.variances))
        logs = log_blurred(self.slab, self.nodes, x - mode, s2, scales)
        logs -= self.nodes.log_ratio(x - mode, s2)
        return [
            (np.expm1(np.minimum(own, MOST)), float(self.counts @ np.maximum(own - MOST, 0.0)))
            for own in logs
        ]


class _OfReports(_Surface):
    """Reports of a channel: slabs by quadrature, the spike as it is."""

    def __init__(self, slab: Slab, rows: Likelihood, counts: NDArray):
        self.slab, self.rows, self.counts = slab, rows, counts
        self.n_clients = self.size = len(rows)
        self.nodes = rows.nodes(Symmetric.n_nodes)
        self.at_nodes, self.scale = relative_likelihoods(rows.logpdf(self.nodes[:, None]))
        self.ends = self.nodes[0], self.nodes[-1]
        self.unit = self.smallest = (self.nodes[-1] - self.nodes[0]) / 100
        self.modes = np.quantile(self.nodes, [0.5, 0.3, 0.7], method="nearest")
        self.centre = self.nodes[np.argmax(counts @ np.log(self.at_nodes + 1e-300))]

    def _spike(self, mode: float) -> NDArray:
        return np.exp(self.rows.logpdf(np.array([[mode]]))[:, 0] - self.scale)

    def _slabs(self, mode: float, scales: NDArray) -> NDArray:
        return self.at_nodes @ cells(self.slab, self.nodes, mode, scales)

    def value(self, point: NDArray) -> float:
        weight, log_scale, mode = point
        slab = self._slabs(mode, np.exp([log_scale]))[:, 0]
        likelihood = (1 - weight) * self._spike(mode) + weight * slab
        with np.errstate(divide="ignore"):  # far from all messages
            return float(self.counts @ np.log(likelihood))

    def null(self, mode: float) -> float:
        with np.errstate(divide="ignore"):
            return float(self.counts @ np.log(self._spike(mode)))

    def gains(self, mode: float, scales: NDArray) -> list[Gains]:
        spike = np.maximum(self._spike(mode), 1e-200)
        return [(own / spike - 1, 0.0) for own in self._slabs(mode, scales).T]


class Laplace(SpikeAndSlab):
    """Population ``p(theta) = exp(-|theta - mean| / scale) / (2 scale)``.

    Heavier tails than the normal, and a peak. Under a message ``x ~ N(theta, s**2)`` the posterior
    is a mixture of two half-line normals, ``N(x - s**2 / scale, s**2)`` above the mean and ``N(x +
    s**2 / scale, s**2)`` below (Pericchi and Smith 1992); its mode is the soft threshold. Mean and
    scale maximise the marginal likelihood, and never the joint one with the parameters, which is
    unbounded. Intervals average over plausible means and scales, under a prior that is flat in the
    mean and, times the fifth root of ``scale**2 / (scale**2 + s**2)`` with s a typical error, in
    the scale.

    Parameters
    ----------
    mean : float or None
        Estimated if None.

    Attributes
    ----------
    scale_, mode_ : float
    mean_, variance_ : ndarray of shape (1,)

    References
    ----------
    Pericchi and Smith (1992), J. R. Statist. Soc. B 54, 793-804; Park and Casella (2008); Ozkara,
    Girgis, Data, Diggavi (2023), section 3.

    Examples
    --------
    >>> from ebfed.likelihoods import Gaussian
    >>> x = np.array([[-3.0], [-0.5], [0.0], [0.5], [1.0], [8.0]])
    >>> messages = Gaussian(x, np.full((6, 1), 1.0))
    >>> prior = Laplace(mean=0.0).fit(messages)
    >>> prior.scale_
    2.18
    >>> prior.posterior(messages).mean.ravel().round(2)
    array([-2.55, -0.35,  0.  ,  0.35,  0.73,  7.54])
    >>> prior.posterior_mode(messages).ravel().round(2)
    array([-2.54, -0.04,  0.  ,  0.04,  0.54,  7.54])
    """

    slab: ClassVar[type[LaplaceSlab]] = LaplaceSlab
    spike: ClassVar[bool] = False

    def __init__(self, mean: float | None = None):
        self.mean = mean

    @property
    def mode(self) -> float | None:  # type: ignore[override]
        """The mean, which is the mode."""
        return self.mean

    def posterior_mode(self, likelihood: Gaussian) -> NDArray:
        """Soft threshold ``mean + sign(u) max(|u| - s**2 / scale, 0)``, ``u = x - mean``.

        Parameters
        ----------
        likelihood : Gaussian

        Returns
        -------
        ndarray of shape (n, 1)
        """
        check_is_fitted(self, "mean_")
        u = likelihood.values - self.mode_
        with np.errstate(divide="ignore", invalid="ignore"):
            threshold = np.where(likelihood.variances > 0, likelihood.variances / self.scale_, 0.0)
        return self.mode_ + np.sign(u) * np.maximum(np.abs(u) - threshold, 0)


class PointLaplace(SpikeAndSlab):
    """Population ``pi0 delta(mode) + (1 - pi0) exp(-|theta - mode| / scale) / (2 scale)``.

    As `PointNormal`, for sparse effects of which a few are large: these are shrunk by a constant,
    ``s_i**2 / scale``, where a normal slab shrinks in proportion. Posteriors are a point and two
    half-line normals, and intervals average over populations as there.

    Parameters
    ----------
    mode : float or None
        Estimated if None.

    Attributes
    ----------
    pi0_, scale_, mode_ : float
    mean_, variance_ : ndarray of shape (1,)

    References
    ----------
    Johnstone and Silverman (2004), Annals of Statistics 32, 1594-1649.

    Examples
    --------
    >>> import numpy as np
    >>> from ebfed.likelihoods import Gaussian
    >>> x = np.array([0.1, -0.3, 0.2, 6.0, -5.0, 0.0, -0.1, 0.4])
    >>> messages = Gaussian(x[:, None], np.full((8, 1), 0.25))
    >>> prior = PointLaplace().fit(messages)
    >>> round(prior.pi0_, 2), round(prior.scale_, 1)
    (0.71, 4.8)
    """

    slab: ClassVar[type[LaplaceSlab]] = LaplaceSlab

    def __init__(self, mode: float | None = 0.0):
        self.mode = mode


class PointNormal(SpikeAndSlab):
    """Population ``theta ~ pi0 delta(mode) + (1 - pi0) N(mode, scale**2)``.

    For sparse effects: most are nothing, some are something. Fitted to Gaussian messages ``x_i ~
    N(theta_i, s_i**2)`` by maximising

        sum_i log [pi0 N(x_i; mode, s_i**2) + (1 - pi0) N(x_i; mode, scale**2 + s_i**2)]

    (Johnstone and Silverman 2004, with a normal slab); posteriors are a point and a normal. Reports
    of a channel are fitted by their exact marginal likelihood, integrated on a grid. Intervals
    average over plausible modes, weights and scales, under a prior that is flat in the mode, in the
    fourth root of ``pi0`` and, times the fifth root of ``scale**2 / (scale**2 + s**2)`` with s a
    typical error, in the scale; from 2000 clients on, the population is taken as known where
    it is known well.

    Parameters
    ----------
    mode : float or None
        Estimated if None.

    Attributes
    ----------
    pi0_, scale_, mode_ : float
    mean_, variance_ : ndarray of shape (1,)

    References
    ----------
    Johnstone and Silverman (2004), Annals of Statistics 32, 1594-1649; Willwerscheid, Carbonetto,
    Stephens (2025), ebnm, Journal of Statistical Software 114.

    Examples
    --------
    >>> import numpy as np
    >>> from ebfed.likelihoods import Gaussian
    >>> x = np.array([0.1, -0.3, 0.2, 6.0, -5.0, 0.0, -0.1, 0.4])
    >>> messages = Gaussian(x[:, None], np.full((8, 1), 0.25))
    >>> prior = PointNormal().fit(messages)
    >>> round(prior.pi0_, 2), round(prior.scale_, 1)
    (0.72, 5.2)
    >>> prior.posterior(messages).mean.ravel().round(2)
    array([ 0.  , -0.01,  0.01,  5.94, -4.95,  0.  , -0.  ,  0.02])
    """

    slab: ClassVar[type[NormalSlab]] = NormalSlab

    def __init__(self, mode: float | None = 0.0):
        self.mode = mode
