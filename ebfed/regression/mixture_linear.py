"""Mixture of linear regressions: a few coefficient vectors that all groups share."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ebfed.engines import Engine
from ebfed.priors.kmeans import kmeans
from ebfed.regression.numerics.evidence import (
    MixturePopulation,
    RotatedRows,
    responsibilities,
    weigh,
)
from ebfed.regression.parameter_rounds import ParameterRounds

__all__ = ["MixtureLinearEB"]


class MixtureLinearEB(ParameterRounds):
    """Mixture of regressions: every group has one of k coefficient vectors.

    Rows of group i are ``y_ij = x_ij' theta_i + e_ij``, ``e_ij ~ N(0, noise)``, with ``theta_i =
    mu_l`` with probability w_l: the population of `AdaMix` without variances. Each group's estimate
    is its posterior mean

        theta_i^ = sum_l alpha_il mu_l,   alpha_il ∝ w_l exp(-|y_i - X_i mu_l|**2 / (2 noise)).

    Parameters
    ----------
    n_components : int
    noise_variance : float, optional
        Estimated if None. Must be given for ``"clustering"``.
    fit_intercept : bool
        Whether to put a column of ones first.
    solver : {"em", "clustering"}
        ``"em"``: maximum likelihood; every step solves the weighted least squares of all groups.
        ``"clustering"`` is Algorithm 6 of Ozkara et al.: clients send theta_i^, which the server
        clusters by k-means. For replication.
    n_rounds : int, optional
        At most, from 3 on; 300 if None. Their exact number for ``"clustering"`` (10 if None).
    n_init : int
        Starts, by k-means++, of which the likeliest is kept.
    tol : float
        The fit ends with a round that gains less log-likelihood per group.
    engine : Engine, optional
        Where clients compute; `engines.Local()` if None.
    verbose : int
        1 shows a progress bar over rounds.
    random_state : int, Generator or None
        Of the starts.

    Attributes
    ----------
    weights_ : ndarray of shape (k,)
    means_ : ndarray of shape (k, p)
        The coefficient vectors, sorted; the intercept first.
    means_covariance_ : ndarray of shape (k, p, p)
        Sampling covariance of each, given who has it.
    mean_, variance_ : ndarray of shape (p,)
        Of the population.
    noise_variance_ : float
    log_likelihood_ : float
        NaN where the rows are explained exactly, so that it has no bound, and of ``"clustering"``.
    history_ : DataFrame
        A row for each round; NaN in the first ones, before there are components.
    clients_, groups_, terms_, privacy_, notes_ :
        See `RegressionEstimator`.

    References
    ----------
    Ozkara, Girgis, Data, Diggavi (2023), A statistical framework for personalized federated
    learning and estimation, Algorithm 6; Marfoq, Neglia, Bellet, Kameni and Vidal (2021), Federated
    multi-task learning under a mixture of distributions; DeSarbo and Cron (1988), A maximum
    likelihood methodology for clusterwise linear regression.

    Examples
    --------
    >>> import ebfed as eb
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(np.arange(300), 6)
    >>> x = rng.normal(size=1800)
    >>> y = np.where(groups % 3, 1, -2) * x + 0.5 * rng.normal(size=1800)
    >>> est = eb.MixtureLinearEB(2, fit_intercept=False, random_state=0)
    >>> est = est.fit(x[:, None], y, groups=groups)
    >>> est.weights_.round(2), est.means_.ravel().round(1)
    (array([0.33, 0.67]), array([-2.,  1.]))
    """

    _has_variances: ClassVar[bool] = False

    def __init__(
        self,
        n_components: int = 2,
        *,
        noise_variance: float | None = None,
        fit_intercept: bool = True,
        solver: Literal["em", "clustering"] = "em",
        n_rounds: int | None = None,
        n_init: int = 4,
        tol: float = 1e-8,
        engine: Engine | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ):
        self.n_components = n_components
        self.noise_variance = noise_variance
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.n_rounds = n_rounds
        self.n_init = n_init
        self.tol = tol
        self.engine = engine
        self.verbose = verbose
        self.random_state = random_state

    @property
    def _sends_parameters(self) -> bool:
        return self.solver == "clustering"

    def _most_rounds(self) -> int:
        if self.n_rounds is None and self._sends_parameters:
            return 10
        return super()._most_rounds()

    def _fitted_by(self) -> str:
        return "k-means" if self._sends_parameters else "ML"

    def _check(self) -> None:
        super()._check()
        if self.solver not in ("em", "clustering"):
            raise ValueError(f"solver must be 'em' or 'clustering'; got {self.solver!r}.")
        if self._sends_parameters and self.noise_variance is None:
            raise ValueError("noise_variance must be given with solver='clustering'.")

    def _next(
        self, rows: RotatedRows, theta: NDArray, population: MixturePopulation, rng: Any
    ) -> NDArray[np.float64]:
        """Average the coefficient vectors."""
        share = responsibilities(weigh(rows, population).log, population.weights)[1]
        return share @ population.means

    def _cluster(self, values: NDArray, variances: NDArray, seed: int) -> MixturePopulation:
        """Cluster by k-means."""
        assert self.noise_variance is not None
        k = min(self.n_components, len(np.unique(values, axis=0)))
        labels, centres = kmeans(values, k, np.random.RandomState(seed))
        order = np.lexsort(centres.T[::-1])
        shares = np.bincount(labels, minlength=k)[order] / len(labels)
        return MixturePopulation(
            shares, centres[order], np.zeros((k, 1)), float(self.noise_variance)
        )
