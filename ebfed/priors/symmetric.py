"""Populations symmetric around one mode: scale mixtures of normals or of Laplaces."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx, expit, log_ndtr, logsumexp, ndtr
from sklearn.utils.validation import check_is_fitted

from ebfed.kernels import student_blurred
from ebfed.likelihoods import Gaussian, Likelihood, StudentT
from ebfed.priors.base import Prior
from ebfed.priors.gibbs import dirichlet_draws
from ebfed.priors.identification import ONE_GROUP
from ebfed.priors.mixture_posterior import N_NORMALS, NOTHING, Components, MixturePosterior
from ebfed.priors.posterior import Posterior
from ebfed.priors.weights import fit_weights
from ebfed.privacy.calibration import is_number
from ebfed.tables.values import numbers

__all__ = ["Estimates", "LaplaceSlab", "NormalSlab", "Parts", "ScaleMixture", "Slab", "Symmetric"]

Parts = list[tuple[NDArray, NDArray, NDArray, NDArray, int]]
"""Share, anchor less mode, scale, start and side of each piece; see `mixture_below`."""


class NormalSlab:
    """``N(0, scale**2)``."""

    square: ClassVar[float] = 1.0  # variance at scale 1

    @staticmethod
    def logpdf(u: NDArray, scale: NDArray) -> NDArray:
        """Log-density."""
        return -0.5 * (np.log(2 * np.pi * scale**2) + (u / scale) ** 2)

    @staticmethod
    def cdf(u: NDArray, scale: NDArray) -> NDArray:
        """Distribution function."""
        return ndtr(u / scale)

    @staticmethod
    def sample(size: int, rng: np.random.Generator) -> NDArray:
        """Draws at scale 1."""
        return rng.standard_normal(size)

    @staticmethod
    def log_blurred(u: NDArray, s2: NDArray, scale: NDArray) -> NDArray:
        """``log N(u; 0, s2 + scale**2) / N(0; 0, s2)``."""
        total = s2 + scale**2
        return 0.5 * (np.log(s2 / total) - u**2 / total)

    @staticmethod
    def parts(u: NDArray, s2: NDArray, scale: float) -> Parts:
        """One normal: the conjugate posterior."""
        share = scale**2 / (scale**2 + s2)
        one, zero = np.ones(u.shape), np.zeros(u.shape)
        return [(one, share * u, np.sqrt(share * s2), zero, 0)]


class LaplaceSlab:
    """Double exponential, density ``exp(-|theta| / scale) / (2 scale)``."""

    square: ClassVar[float] = 2.0

    @staticmethod
    def logpdf(u: NDArray, scale: NDArray) -> NDArray:
        """Log-density."""
        return -np.log(2 * scale) - np.abs(u) / scale

    @staticmethod
    def cdf(u: NDArray, scale: NDArray) -> NDArray:
        """Distribution function."""
        tail = 0.5 * np.exp(-np.abs(u) / scale)
        return np.where(u > 0, 1 - tail, tail)

    @staticmethod
    def sample(size: int, rng: np.random.Generator) -> NDArray:
        """Draws at scale 1."""
        return rng.laplace(size=size)

    @staticmethod
    def log_blurred(u: NDArray, s2: NDArray, scale: NDArray) -> NDArray:
        """``log (k / 2) (R(k - z) + R(k + z)) - z**2 / 2``: k = s / scale, z = u / s, R Mills'."""
        s = np.sqrt(s2)
        k, z = np.broadcast_arrays(s / scale, np.abs(u) / s)
        half = 0.5 * z**2
        away = k - z < -5
        near = _log_mills(np.where(away, 0.0, k - z)) - half
        if away.any():  # many errors away z**2 / 2 cancels a square in R, and both are left out
            far, by = k[away], z[away]
            near[away] = far * (0.5 * far - by) + 0.5 * np.log(2 * np.pi) + log_ndtr(by - far)
        return np.log(k / 2) + np.logaddexp(near, _log_mills(k + z) - half)

    @staticmethod
    def parts(u: NDArray, s2: NDArray, scale: float) -> Parts:
        """Two half-line normals, ``N(u - s2 / scale, s2)`` above 0 and its mirror below."""
        s = np.sqrt(s2)
        above, below = s / scale - u / s, s / scale + u / s
        odds = _log_mills(above) - _log_mills(below)
        zero = np.zeros(u.shape)
        return [(expit(odds), zero, s, above, 1), (expit(-odds), zero, s, below, -1)]


Slab = type[NormalSlab] | type[LaplaceSlab]


def _log_mills(t: NDArray) -> NDArray:
    """Log of Mills' ratio ``(1 - Phi(t)) / phi(t)``."""
    high = np.log(np.sqrt(np.pi / 2) * erfcx(np.maximum(t, -5) / np.sqrt(2)))
    low = t < -5
    if low.any():
        at = t[low]
        high[low] = 0.5 * at**2 + 0.5 * np.log(2 * np.pi) + log_ndtr(-at)
    return high


Estimates = Gaussian | StudentT
"""Messages that are estimates, with errors for which populations have closed forms."""


class Symmetric(Prior):
    """Population ``sum_k weights[k] g((theta - mode) / scales[k]) / scales[k]``.

    g is the density of the `slab`; a scale of zero is a point at the mode. A subclass estimates
    mode, weights and scales in `_fit_parts`; everything else is here, in closed form for Gaussian
    messages, those with t errors among them, and by quadrature for others.

    Attributes
    ----------
    mode_ : float
    weights_, scales_ : ndarray of shape (k,)
        Scales increase.
    """

    n_nodes: ClassVar[int] = 1000  # a point has no smooth density, so that nodes stand for cells
    slab: ClassVar[Slab] = NormalSlab

    mode: float | None
    mode_: float
    weights_: NDArray
    scales_: NDArray

    def _fit(self, likelihood: Likelihood) -> None:
        if self.mode is not None and not is_number(self.mode):
            raise TypeError(f"mode must be a number; got {self.mode!r}.")
        if self.mode is not None and not np.isfinite(self.mode):
            raise ValueError(f"mode must be finite; got {self.mode!r}.")
        rows = self._settled(likelihood)
        if isinstance(rows, Estimates):
            has_data = np.isfinite(rows.variances[:, 0]) & (rows.variances[:, 0] > 0)
            rows, counts = (
                (rows if has_data.all() else rows.take(has_data)),
                np.ones(has_data.sum()),
            )
        else:
            rows, counts = rows.compress()
        if len(rows):
            self._fit_parts(rows, counts)
            if counts.sum() == 1 and self.n_parameters_:
                known = "Only one group has data: the population is fitted to that one estimate."
                self._add_note(ONE_GROUP if self.mode is None else known, True)
        else:
            self._add_note("No client has data: the population is unknown.", True)
            self._set(self.mode or 0.0, np.ones(1), np.zeros(1), 0)

    @abstractmethod
    def _fit_parts(self, rows: Likelihood, counts: NDArray) -> None:
        """Estimate mode, weights and scales from clients with information."""

    def _set(self, mode: float, weights: NDArray, scales: NDArray, free: int) -> None:
        kept = weights > 0
        self.mode_, self.weights_, self.scales_ = float(mode), weights[kept], scales[kept]
        self.mean_ = np.array([self.mode_])
        self.variance_ = self.slab.square * np.array([self.weights_ @ self.scales_**2])
        self.n_parameters_ = free
        if not self.variance_[0] > 0:
            self._add_note(
                "The population is a point: clients differ no more than their noise explains, and "
                "every estimate is the mode."
            )

    def _take(self, mode: float, weights_: NDArray, scales_: NDArray) -> None:
        self._set(mode, weights_, scales_, 0)

    def logpdf(self, theta: NDArray) -> NDArray:
        """Log-density at theta of shape (k, 1), shape (k,); at the mode, log of a point's mass."""
        u = theta - self.mode_
        positive = self.scales_ > 0
        with np.errstate(divide="ignore"):
            density = np.exp(self.slab.logpdf(u, self.scales_[positive])) @ self.weights_[positive]
            mass = self.weights_[~positive].sum()
            return np.log(np.where((u[:, 0] == 0) & (mass > 0), mass, density))

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        rng = np.random.default_rng(random_state)
        scales = rng.choice(self.scales_, size, p=self.weights_ / self.weights_.sum())
        return (self.mode_ + scales * self.slab.sample(size, rng))[:, None]

    def points(self) -> tuple[NDArray, NDArray]:
        """The mode and its probability, where that is positive."""
        mass = self.weights_[self.scales_ == 0].sum()
        return np.full(int(mass > 0), self.mode_), np.full(int(mass > 0), mass)

    @property
    def null(self) -> float | None:
        """Mode, if the share of parameters that are exactly the mode is fitted; else None."""
        return None

    def grid(self, low: float, high: float) -> NDArray:
        """Leave out the mode if it is an atom, where the density is not that of its neighbours."""
        at = super().grid(low, high)
        return at[~np.isin(at, self.points()[0])]

    def parameters(self, j: int = 0) -> dict[str, float]:
        """Probability of the mode itself, and scale of the slab, where the population has these."""
        parameters = {}
        if getattr(self, "spike", True):
            parameters["pi0"] = float(self.weights_[self.scales_ == 0].sum())
        if hasattr(self, "scale_"):
            parameters["scale"] = self.scale_
        return parameters

    def _posterior(self, likelihood: Likelihood) -> Posterior:
        """Mixture of points, normals and half-line normals; by quadrature for other messages."""
        if not isinstance(likelihood, Estimates):
            return super()._posterior(likelihood)
        return MixturePosterior(self._components, self._size(likelihood), likelihood)

    def _size(self, likelihood: Estimates) -> int:
        """About the number of components of a posterior."""
        each = N_NORMALS if isinstance(likelihood, StudentT) else 1
        return each * len(self.scales_)

    def _mixes(self, likelihood: Likelihood) -> bool:
        return isinstance(likelihood, Estimates) and not self.averages_

    def _mixed(
        self, populations: Sequence[Prior], shares: NDArray, likelihood: Likelihood
    ) -> Posterior:
        assert isinstance(likelihood, Estimates)
        share = shares[:, 0, 0]
        alike: dict[Any, list[tuple[int, Symmetric]]] = {}
        for k, one in enumerate(populations):
            assert isinstance(one, Symmetric)
            alike.setdefault((one.mode_, one.scales_.tobytes()), []).append((k, one))
        parts, sizes = [], 0
        for each in alike.values():  # they differ in the weights of components only
            own, weights = share[[k for k, _ in each]], np.array([one.weights_ for _, one in each])
            middle = copy(each[0][1])
            middle.weights_ = own @ weights / own.sum()
            several = own / own.sum(), weights
            parts.append((own.sum(), partial(middle._components, several=several)))
            sizes += middle._size(likelihood)
        return MixturePosterior(partial(_components_of_all, parts), sizes, likelihood)

    def _components(
        self, likelihood: Estimates, several: tuple[NDArray, NDArray] | None = None
    ) -> Components:
        """Components of the posterior, averaged over `several` populations if these are given.

        Then they are probabilities (K,) of populations and their weights (K, k) of the same scales.
        """
        x, s2 = likelihood.values[:, 0], likelihood.variances[:, 0]
        has_data, exact = np.isfinite(s2), s2 == 0
        # without a message (a very poor one) the posterior is the population
        poor = 1e18 * (self.scales_[-1] ** 2 or 1.0)
        s2 = np.where(has_data, np.where(exact, 1.0, s2), poor)
        u = np.where(has_data & ~exact, x - self.mode_, 0.0)
        normals = _normals(likelihood, u, s2, self.scales_)
        parts = [
            self.slab.parts(u, noise, scale) if scale > 0 else _point(u)
            for scale in self.scales_
            for _, noise in (normals if scale > 0 else normals[:1])
        ]
        sizes = [len(normals) if scale > 0 else 1 for scale in self.scales_]
        joint = np.ones((1, len(u)))
        if len(parts) > 1:
            logs = np.concatenate(
                [
                    _logs(self.slab, likelihood, normals, u, s2, scale) + np.log(weight)
                    for scale, weight in zip(self.scales_, self.weights_, strict=True)
                ]
            )
            logs -= logs.max(axis=0)
            joint = np.exp(logs, out=logs)
            if several is None:
                joint /= joint.sum(axis=0)
            else:
                share, others = several[0], several[1] / self.weights_
                others = np.repeat(others, sizes, axis=1)
                joint *= others.T @ (share[:, None] / (others @ joint))
        if len(normals) > 1:
            joint[joint < NOTHING] = 0.0
        columns: list[tuple[NDArray, NDArray, NDArray, NDArray]] = []
        sides = []
        for weight, pieces in zip(joint, parts, strict=True):
            for share, anchor, spread, start, side in pieces:
                columns.append((weight * share, self.mode_ + anchor, spread, start))
                sides.append(side)
        weights, anchors, scales, starts = map(np.stack, zip(*columns, strict=True))
        anchors[:, exact], scales[:, exact] = x[exact], 0.0
        weights[:, exact] = np.arange(len(weights))[:, None] == 0
        return Components(weights, anchors, scales, starts, np.array(sides))

    def log_marginal(self, likelihood: Likelihood) -> NDArray:
        """Log-density of each message, shape (n,); of parameters seen exactly, that of `logpdf`."""
        check_is_fitted(self, "mean_")
        if not isinstance(likelihood, Estimates):
            return super().log_marginal(likelihood)
        u, s2 = likelihood.values[:, 0] - self.mode_, likelihood.variances[:, 0]
        exact = s2 == 0
        has_data = np.isfinite(s2) & ~exact
        out = np.zeros(len(u))
        rows = likelihood if has_data.all() else likelihood.take(has_data)
        logs = log_blurred(self.slab, rows, u[has_data], s2[has_data], self.scales_)
        out[has_data] = logsumexp(logs, axis=0, b=self.weights_[:, None])
        out[has_data] -= 0.5 * np.log(2 * np.pi * s2[has_data])
        out[exact] = self.logpdf(likelihood.values[exact])
        return out

    def _grid(self, likelihood: Likelihood) -> tuple[NDArray, NDArray]:
        """Nodes, the mode among them, and the exact mass in the cell of each."""
        if not self.variance_[0] > 0:
            return self.mean_[None], np.zeros(1)
        nodes = np.union1d(self._nodes(likelihood, *self._range()), self.mode_)
        positive = self.scales_ > 0
        slabs = cells(self.slab, nodes, self.mode_, self.scales_[positive])
        masses = slabs @ self.weights_[positive]
        masses[np.searchsorted(nodes, self.mode_)] += self.weights_[~positive].sum()
        with np.errstate(divide="ignore"):
            return nodes[:, None], np.log(masses)

    def _range(self) -> tuple[float, float]:
        reach = 9 * np.sqrt(self.slab.square) * self.scales_[-1]
        return self.mode_ - reach, self.mode_ + reach


Normals = list[tuple[NDArray, NDArray]]
"""Log-weights and variances of the normals that stand for the noise of messages."""


def _components_of_all(
    several: Sequence[tuple[float, Callable[[Any], Components]]], likelihood: Estimates
) -> Components:
    """Components of several posteriors with these probabilities."""
    parts = [components(likelihood) for _, components in several]
    arrays = [np.concatenate(each) for each in zip(*(x.arrays() for x in parts), strict=True)]
    weight = np.repeat([share for share, _ in several], [len(x.sides) for x in parts])
    return Components(weight[:, None] * arrays[0], *arrays[1:])


def _normals(rows: Estimates, u: NDArray, s2: NDArray, scales: NDArray) -> Normals:
    """Normals that stand for the noise, beside slabs of these scales."""
    slabs = scales[scales > 0]
    if not len(slabs):
        return [(np.zeros(len(u)), s2)]
    return list(zip(*rows.normals(u, s2, slabs.min() ** 2, slabs.max() ** 2), strict=True))


def _logs(
    slab: Slab, rows: Estimates, normals: Normals, u: NDArray, s2: NDArray, scale: Any
) -> NDArray:
    """Log-density of each message under each part of a component, over its noise's peak, (k, n)."""
    if not scale > 0:
        return rows.log_ratio(u, s2)[None]
    if len(normals) == 1:
        return slab.log_blurred(u, s2, scale)[None]
    # a density is over the peak of the normal that it is blurred by
    return np.stack(
        [
            log - 0.5 * np.log(noise / s2) + slab.log_blurred(u, noise, scale)
            for log, noise in normals
        ]
    )


def _point(u: NDArray) -> Parts:
    """The mode itself."""
    zero = np.zeros(len(u))
    return [(np.ones(len(u)), zero, zero, zero, 0)]


def log_blurred(slab: Slab, rows: Estimates, u: NDArray, s2: NDArray, scales: NDArray) -> NDArray:
    """Log-density of each message under each component, over its noise's peak, shape (k, n)."""
    if isinstance(rows, StudentT):
        at_mode = np.repeat(rows.log_ratio(u, s2)[None], (scales == 0).sum(), axis=0)
        laplace = slab is LaplaceSlab
        slabs = student_blurred(u, s2, rows.degrees, scales[scales > 0], laplace)
        return np.concatenate([at_mode, slabs])
    normals, logs = _normals(rows, u, s2, scales), np.empty((len(scales), len(u)))
    for row, scale in zip(logs, scales, strict=True):
        parts = _logs(slab, rows, normals, u, s2, scale)
        peak = parts.max(axis=0)
        row[:] = peak if len(parts) == 1 else peak + np.log(np.exp(parts - peak).sum(axis=0))
    return logs


def cells(slab: Slab, nodes: NDArray, mode: float, scales: NDArray) -> NDArray:
    """Mass that slabs of these scales have in the cell around each node, shape (n_nodes, k)."""
    edges = np.concatenate(([-np.inf], (nodes[1:] + nodes[:-1]) / 2, [np.inf]))
    return np.diff(slab.cdf((edges - mode)[:, None], scales), axis=0)


FEW = 4000  # clients up to which what is not known of the population matters
CONCENTRATION = 2.0  # of the Dirichlet prior of the weights
N_DRAWS = 50
KNOWN = 10.0  # least `null_weight` with which a share of false discoveries is kept


class ScaleMixture(Symmetric):
    """Population ``sum_k weights_k N(mode, scales_k**2)``, the first scale being zero.

    The scales are a fixed grid, and the weights maximise the marginal likelihood, which is concave
    in them. It is found to a duality gap of `tol` times n. Everything symmetric and falling from
    its mode to both sides that is as smooth as a mixture of normals (normal, Laplace, t,
    point-normal) is near some member (Stephens 2017).

    For Gaussian estimates the weights are unique. Reports of few kinds, fewer than there are
    scales, can leave them open; the answer is then the analytic centre of the maximisers, as for
    `Discrete`. Intervals average over weights drawn under a Dirichlet prior of concentration 2,
    with a share for each scale in proportion to its square root; from 4000 different messages on,
    the population is taken as known.

    Parameters
    ----------
    mode : float
    scales : array-like of shape (k,), optional
        Standard deviations of the components. If None: 0, then from a tenth of the smallest
        standard error in steps of a factor sqrt(2) to ``2 sqrt(max((x_i - mode)**2 - s_i**2))``.
    null_weight : float
        At 1, the likelihood alone decides between the point and small scales, which no data tell
        apart: the share of parameters that are exactly the mode is not known. More is a penalty
        ``(null_weight - 1) log weights_[0]`` that prefers the point; ashr's is 10, and
        `Posterior.lfdr` needs as much.
    tol : float
        Largest duality gap, in units of log-likelihood per client.

    Attributes
    ----------
    weights_, scales_ : ndarray
        Weights and scales of the components with positive weight.
    gap_, mode_ : float
    mean_, variance_ : ndarray of shape (1,)

    References
    ----------
    Stephens (2017), False discovery rates: a new deal, Biostatistics 18, 275-294; Kim, Carbonetto,
    Stephens, Anitescu (2020), J. Comput. Graph. Statist. 29, 261-273.

    Examples
    --------
    >>> from ebfed.likelihoods import Gaussian
    >>> x = np.array([0.1, -0.3, 0.2, 6.0, -5.0, 0.0, -0.1, 0.4])
    >>> messages = Gaussian(x[:, None], np.full((8, 1), 0.25))
    >>> prior = ScaleMixture(scales=[0, 1, 2, 4, 8]).fit(messages)
    >>> prior.scales_, prior.weights_.round(2)
    (array([0., 4.]), array([0.71, 0.29]))
    """

    slab: ClassVar[type[NormalSlab]] = NormalSlab

    mode: float

    def __init__(
        self,
        mode: float = 0.0,
        scales: ArrayLike | None = None,
        *,
        null_weight: float = 1.0,
        tol: float = 1e-8,
    ):
        self.mode = mode
        self.scales = scales
        self.null_weight = null_weight
        self.tol = tol

    def _fit(self, likelihood: Likelihood) -> None:
        if self.mode is None:
            raise TypeError("mode must be a number: a scale mixture does not estimate it.")
        if not is_number(self.null_weight) or not 1 <= self.null_weight < np.inf:
            raise ValueError(f"null_weight must be a number >= 1; got {self.null_weight!r}.")
        super()._fit(likelihood)

    def _fit_parts(self, rows: Likelihood, counts: NDArray) -> None:
        scales, n_messages = self._grid_of_scales(rows), len(rows)
        if isinstance(rows, StudentT) and rows.lattice is not None:
            rows, counts = rows.summed()
        likelihoods = self._likelihoods(rows, scales)
        if self.null_weight > 1 and scales[0] == 0 and len(scales) > 1:
            # as many more clients, of whom it is known that they are at the mode
            likelihoods = np.vstack([likelihoods, np.arange(len(scales)) == 0])
            counts = np.append(counts, self.null_weight - 1)
        start = np.full(len(scales), 1 / len(scales))
        tol = self.tol * counts.sum()
        weights, self.gap_ = fit_weights(likelihoods, counts, start, tol)
        self._set(self.mode, weights, scales, len(scales) - 1)
        if len(scales) > 1 and n_messages <= FEW:
            # in between even over scales and over their logarithms, of which the grid is even
            base = np.sqrt(np.maximum(scales, scales[1]))
            shapes = CONCENTRATION * base / base.sum()
            self._find_later(ScaleMixture._draw_weights, likelihoods, counts, shapes, start, scales)

    def _draw_weights(
        self,
        likelihoods: NDArray,
        counts: NDArray,
        shapes: NDArray,
        start: NDArray,
        scales: NDArray,
    ) -> None:
        """Draw weights of the scales under a Dirichlet prior."""
        self.plausible_ = {
            "mode": np.full(N_DRAWS, float(self.mode)),
            "weights_": dirichlet_draws(likelihoods, counts, shapes, start, N_DRAWS),
            "scales_": np.tile(scales, (N_DRAWS, 1)),
            "weights": np.full((N_DRAWS, 1), 1 / N_DRAWS),
        }

    def _grid_of_scales(self, rows: Likelihood) -> NDArray:
        if self.scales is not None:
            return self._given_scales()
        if isinstance(rows, Estimates):
            smallest = np.sqrt(rows.variances.min()) / 10
            largest = 2 * np.sqrt(max(0, ((rows.values - self.mode) ** 2 - rows.variances).max()))
        else:
            nodes = rows.nodes(self.n_nodes)
            smallest = np.diff(nodes).max() / 2
            largest = nodes[-1] - nodes[0]
        steps = int(np.ceil(2 * np.log2(max(largest / smallest, 8))))
        return np.append(0.0, smallest * np.sqrt(2) ** np.arange(steps + 1))

    @property
    def null(self) -> float | None:
        """Mode, if the penalty keeps its point apart from small scales."""
        has_point = self.scales is None or 0 in self._given_scales()
        return self.mode_ if has_point and self.null_weight >= KNOWN else None

    def _given_scales(self) -> NDArray:
        try:
            scales = np.unique(numbers(self.scales, "scales"))
        except (TypeError, ValueError):
            raise TypeError(f"scales must be numbers; got {self.scales!r}.") from None
        if not len(scales) or not ((scales >= 0) & (scales < np.inf)).all():
            raise ValueError(
                f"scales must be finite numbers, none of them negative; got {self.scales!r}."
            )
        return scales

    def _likelihoods(self, rows: Likelihood, scales: NDArray) -> NDArray:
        """Likelihood of each client under each component, up to a factor, shape (n, k)."""
        if isinstance(rows, Estimates):
            u, s2 = rows.values[:, 0] - self.mode, rows.variances[:, 0]
            logs = log_blurred(self.slab, rows, u, s2, scales)
            logs -= logs.max(axis=0)
            return np.exp(logs, out=logs).T
        nodes = np.union1d(rows.nodes(self.n_nodes), self.mode)
        at_nodes = np.exp(rows.logpdf(nodes[:, None]) - rows.log_peak()[:, None])
        masses = np.zeros((len(nodes), len(scales)))
        masses[np.searchsorted(nodes, self.mode)] = 1.0
        positive = scales > 0
        masses[:, positive] = cells(self.slab, nodes, self.mode, scales[positive])
        return at_nodes @ masses
