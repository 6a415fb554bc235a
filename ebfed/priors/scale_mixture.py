"""Scale mixture of normals: any symmetric population with a peak, adaptively."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ebfed.likelihoods import Likelihood, StudentT
from ebfed.priors.symmetric import Estimates, NormalSlab, Symmetric, cells, log_blurred
from ebfed.priors.weights import dirichlet_draws, fit_weights
from ebfed.privacy.calibration import is_number
from ebfed.tables.values import numbers

__all__ = ["ScaleMixture"]

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
            draws = dirichlet_draws(likelihoods, counts, shapes, start, N_DRAWS)
            self.plausible_ = {
                "mode": np.full(N_DRAWS, float(self.mode)),
                "weights_": draws,
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
