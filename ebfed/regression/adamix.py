"""AdaMix: regressions whose coefficients are drawn from a Gaussian mixture."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ebfed.channels import Channel, Exact
from ebfed.engines import Engine
from ebfed.likelihoods import Gaussian
from ebfed.priors import GaussianMixture
from ebfed.privacy.calibration import check_positive
from ebfed.regression.numerics.evidence import MixturePopulation, RotatedRows, responsibilities
from ebfed.regression.parameter_rounds import ParameterRounds, draw
from ebfed.streams import Stream
from ebfed.tables.clients import LARGEST

__all__ = ["AdaMix"]


class AdaMix(ParameterRounds):
    """Empirical Bayes regression with a Gaussian mixture for a population.

    Rows of group i are ``y_ij = x_ij' theta_i + e_ij``, ``e_ij ~ N(0, noise)``, and

        theta_i ~ sum_l w_l N(mu_l, s_l**2 I)

    (Ozkara et al. 2023, eq. 10, whose normaliser is to read ``(2 pi s_l**2)^(d/2)``). The
    population maximises the marginal likelihood, in which the theta_i are integrated out, so that
    no component can collapse and the log-likelihood never falls; clients send its slopes, the
    server takes steps (see `evidence` and `scoring`). Each group's estimate is its posterior mean.

    Parameters
    ----------
    n_components : int
    covariance : {"spherical", "diag"}
        Whether the coefficients of a component share one variance or have one each; the latter
        asks for many groups, or many rows in each.
    noise_variance : float, optional
        Estimated if None. Must be given where clients send draws through a `channel`; 1 if None
        for ``"gradient"``, whose loss is half the sum of squares divided by it.
    fit_intercept : bool
        Whether to put a column of ones first.
    local_solver : {"exact", "gradient"}
        ``"gradient"`` is Algorithm 1 of Ozkara et al.: from a random theta_i, in every round each
        client takes one step of gradient descent and sends it, and the server fits a Gaussian
        mixture to what came. For replication: that objective is unbounded below, so what is found
        depends on the number of rounds.
    channel : Channel, optional
        How clients send their coefficients: least-squares estimates in the first round, then draws
        from their posterior given the population of before, to which the server fits a Gaussian
        mixture with the channel's variance as noise (stochastic EM). None: the slopes of the
        likelihood are sent instead, as they are, which needs fewer rounds and loses nothing.
    learning_rate : float
        Of ``"gradient"``.
    n_rounds : int, optional
        At most, from 3 on; 300 if None. Their exact number for ``"gradient"`` (301 if None: the
        start and 300 steps) and through a `channel`, where it has to be given: each round is one
        more report of every client.
    n_init : int
        Starts, by k-means++, of which the likeliest is kept.
    tol : float
        The fit ends with a round that gains less log-likelihood per group.
    engine : Engine, optional
        Where clients compute; `engines.Local()` if None.
    verbose : int
        1 shows a progress bar over rounds.
    random_state : int, Generator or None
        Of starts, draws and channels.

    Attributes
    ----------
    weights_ : ndarray of shape (k,)
    means_, variances_ : ndarray of shape (k, p)
        Of the components, sorted by their means; the intercept first.
    means_covariance_ : ndarray of shape (k, p, p)
        Sampling covariance of each component's mean, given who belongs to it.
    mean_, variance_ : ndarray of shape (p,)
        Of the population.
    noise_variance_ : float
    coefficients_ : ndarray of shape (n_groups, p)
        Each group's own: posterior means, or what ``"gradient"`` arrived at.
    log_likelihood_ : float
        NaN where the rows are explained exactly, so that it has no bound, and of ``"gradient"`` or
        through a `channel`.
    history_ : DataFrame
        A row for each round; NaN in the first ones, before there are components.
    clients_, groups_, terms_, privacy_, notes_ :
        See `RegressionEstimator`.

    References
    ----------
    Ozkara, Girgis, Data, Diggavi (2023), A statistical framework for personalized federated
    learning and estimation, section 3.1, Algorithm 1 and Table 3; Celeux and Diebolt (1985), The
    SEM algorithm.

    Examples
    --------
    >>> import ebfed as eb
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(np.arange(300), 6)
    >>> slope = np.where(rng.random(300) < 0.3, -2, 1) + 0.2 * rng.normal(size=300)
    >>> x = rng.normal(size=1800)
    >>> y = slope[groups] * x + 0.5 * rng.normal(size=1800)
    >>> est = eb.AdaMix(2, fit_intercept=False, random_state=0).fit(x[:, None], y, groups=groups)
    >>> est.weights_.round(2), est.means_.ravel().round(1), np.sqrt(est.variances_).ravel().round(1)
    (array([0.25, 0.75]), array([-2.,  1.]), array([0.2, 0.2]))
    >>> est.responsibilities().columns.tolist()
    ['group', 'component_0', 'component_1']
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        covariance: Literal["spherical", "diag"] = "spherical",
        noise_variance: float | None = None,
        fit_intercept: bool = True,
        local_solver: Literal["exact", "gradient"] = "exact",
        channel: Channel | None = None,
        learning_rate: float = 1e-3,
        n_rounds: int | None = None,
        n_init: int = 4,
        tol: float = 1e-8,
        engine: Engine | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ):
        self.n_components = n_components
        self.covariance = covariance
        self.noise_variance = noise_variance
        self.fit_intercept = fit_intercept
        self.local_solver = local_solver
        self.channel = channel
        self.learning_rate = learning_rate
        self.n_rounds = n_rounds
        self.n_init = n_init
        self.tol = tol
        self.engine = engine
        self.verbose = verbose
        self.random_state = random_state

    @property
    def _one_variance(self) -> bool:
        return self.covariance == "spherical"

    @property
    def _sends_parameters(self) -> bool:
        exact = self.channel is None or isinstance(self.channel, Exact)
        return self.local_solver == "gradient" or not exact

    def _most_rounds(self) -> int:
        if self.n_rounds is None and self.local_solver == "gradient":
            return 301
        return super()._most_rounds()

    def _fitted_by(self) -> str:
        if self.local_solver == "gradient":
            return "gradient descent"
        return "stochastic EM" if self._sends_parameters else "ML"

    def _check(self) -> None:
        super()._check()
        for name, known in (
            ("covariance", ("spherical", "diag")),
            ("local_solver", ("exact", "gradient")),
        ):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name} must be {' or '.join(map(repr, known))}; got {getattr(self, name)!r}."
                )
        check_positive("learning_rate", self.learning_rate)
        if not self._sends_parameters:
            return
        if self.n_rounds is None and not isinstance(self._channel(), Exact):
            raise ValueError(
                f"n_rounds must be given with {self.channel!r}: in each round every client sends "
                "one more report."
            )
        if self.noise_variance is None and self.local_solver == "exact":
            raise ValueError(
                f"noise_variance must be given with {self.channel!r}: coefficients alone do not "
                "tell it."
            )

    def _first(self, rows: RotatedRows, rng: Any) -> NDArray[np.float64]:
        """Least squares or, for gradient descent, draws of expected square one."""
        if self.local_solver == "exact":
            return super()._first(rows, rng)
        n, _, p = rows.design.shape
        if isinstance(rng, Stream):
            return rng.normals(n, p) / np.sqrt(p)
        return np.random.default_rng().standard_normal((n, p)) / np.sqrt(p)

    def _next(
        self, rows: RotatedRows, theta: NDArray, population: MixturePopulation, rng: Any
    ) -> NDArray[np.float64]:
        """Take a step of gradient descent, or draw from the posterior."""
        if self.local_solver == "exact":
            return draw(rows, population, rng)
        away = rows.response - (rows.design @ theta[:, :, None])[:, :, 0]
        slope = -(rows.design.swapaxes(1, 2) @ away[:, :, None])[:, :, 0] / population.noise
        from_means = theta[:, None] - population.means
        log = -0.5 * (from_means**2 / population.variances + np.log(population.variances))
        share = responsibilities(log.sum(axis=2), population.weights)[1]
        slope += (share[:, :, None] * from_means / population.variances).sum(axis=1)
        theta = theta - self.learning_rate * slope
        if not np.abs(theta).max(initial=0.0) < LARGEST:
            raise ValueError(
                f"gradient descent diverged: learning_rate={self.learning_rate!r} is too large."
            )
        return theta

    def _cluster(self, values: NDArray, variances: NDArray, seed: int) -> MixturePopulation:
        """Fit a Gaussian mixture."""
        k = min(self.n_components, len(values))
        prior = GaussianMixture(k, self.covariance, n_init=1, random_state=seed)
        prior.fit(Gaussian(values, np.broadcast_to(variances, values.shape)))
        noise = 1.0 if self.noise_variance is None else float(self.noise_variance)
        own = prior.variances_
        if self.local_solver == "gradient":  # which divides by them
            own = np.maximum(own, 1e-12 * max(float(prior.variance_.max()), 1e-300))
        return MixturePopulation(prior.weights_, prior.means_, own, noise)

    @property
    def coefficients_(self) -> NDArray:
        """Coefficients of each group, shape (n_groups, p)."""
        check_is_fitted(self, "mean_")
        if self.local_solver == "gradient" and "theta" in self._memory:
            return self._memory["theta"]
        return self.posterior().mean
