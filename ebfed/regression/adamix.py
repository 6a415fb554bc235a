"""AdaMix: regressions whose coefficients are drawn from a Gaussian mixture."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from ebfed.arguments import check_choice
from ebfed.channels import Channel, Exact
from ebfed.privacy.calibration import check_positive
from ebfed.regression.base import RegressionEstimator
from ebfed.regression.coefficient_rounds import CoefficientRounds, check_channel
from ebfed.regression.evidence_rounds import EvidenceRounds
from ebfed.regression.evidence_sources import NumberEvidence
from ebfed.regression.mixture import (
    FittedMixture,
    MixtureRegression,
    MixtureSettings,
)
from ebfed.regression.numerics.evidence import weigh
from ebfed.regression.numerics.laplace_population import weigh_laplace
from ebfed.regression.posteriors.laplace import LaplacePosterior, approximations
from ebfed.regression.schemes import Draws, GradientSteps

__all__ = ["AdaMix"]

# Settings of components of Laplace's distribution: none is a point.
LAPLACE: dict[str, Any] = {"shape": "Laplace distributions", "least_variance": 1e-8}


@dataclass(eq=False, repr=False)
class AdaMix(RegressorMixin, MixtureRegression):
    """Empirical Bayes regression with a Gaussian mixture for a population.

    Rows of group i are ``y_ij = x_ij' theta_i + e_ij``, ``e_ij ~ N(0, noise)``, and

        theta_i ~ sum_l w_l N(mu_l, s_l**2 I)

    (Ozkara et al. 2023, eq. 10, whose normaliser is to read ``(2 pi s_l**2)^(d/2)``). The
    population maximises the marginal likelihood, in which the theta_i are integrated out, so that
    no component can collapse and the log-likelihood never falls; clients send its slopes, the
    server takes steps (see `evidence` and `scoring`). Each group's estimate is its posterior mean.

    Parameters
    ----------
    n_components : int, "bic" or "heldout"
        Number of components, or how it is chosen from 1 to `max_components`: the least BIC, or the
        largest likelihood of groups that were held out; see `ebfed.priors.n_components`. All
        numbers are climbed in the same rounds.
    max_components : int
    covariance : {"spherical", "diag"}
        Whether the coefficients of a component share one variance or have one each; the latter
        asks for many groups, or many rows in each.
    population : {"normal", "laplace"}
        Shape of the components. ``"laplace"``: coefficients are independent, each ``theta_ij ~
        Laplace(mu_lj, b_l)`` of variance ``s_l**2 = 2 b_l**2``, so that most groups are near the
        mean and some far from it (section 3, example 2, of the paper). Their marginal likelihood
        and posteriors are found by expectation propagation.
    noise_variance : float, optional
        Variance of the noise of rows, estimated if None. Must be given where clients send draws
        through a `channel`; 1 if None for ``"gradient"``, whose loss is half the sum of squares
        divided by it.
    fit_intercept : bool
        Whether to put a column of ones first.
    solver : {"em", "gradient"}
        ``"em"`` maximises the marginal likelihood.
        ``"gradient"`` is Algorithm 1 of Ozkara et al.: from a random theta_i, in every round each
        client takes one step of gradient descent and sends it, and the server fits a Gaussian
        mixture to the messages. For replication: that objective is unbounded below, so what is
        found depends on the number of rounds.
    channel : Channel, optional
        Channel through which clients send their coefficients: least-squares estimates in the first
        round, then draws from their posterior given the population of before, to which the server
        fits a Gaussian mixture with the channel's variance as noise (stochastic EM). None: the
        slopes of the likelihood are sent instead, as they are, which needs fewer rounds and loses
        nothing.
    learning_rate : float
        Learning rate of ``"gradient"``.
    n_rounds : int, optional
        Number of rounds, at most, from 3 on; 300 if None. Their exact number for ``"gradient"``
        (301 if None: the start and 300 steps) and through a `channel`, where it has to be given:
        each round is one more report of every client.
    n_init : int
        Number of starts, by k-means++; the likeliest is kept.
    tol : float
        Smallest gain of log-likelihood per group; a round that gains less is the last.
    engine : Engine, optional
        Engine on which clients compute; `engines.Local()` if None.
    verbose : int
        1 shows a progress bar over rounds.
    random_state : int, Generator or None
        Seed of starts, draws and channels.

    Attributes
    ----------
    n_components_ : int
    criterion_ : ndarray
        For each number of components that was tried: its BIC, or with ``"heldout"`` minus twice the
        log-likelihood of groups that were held out.
    weights_ : ndarray of shape (k,)
        Weights of the components.
    means_, variances_ : ndarray of shape (k, p)
        Means and variances of the components, sorted by their means; the intercept first.
    means_covariance_ : ndarray of shape (k, p, p)
        Sampling covariance of each component's mean, given who belongs to it.
    mean_, variance_ : ndarray of shape (p,)
        Mean and variance of the population.
    noise_variance_ : float
    coefficients_ : ndarray of shape (n_groups, p)
        Coefficients of each group: posterior means, or the result of ``"gradient"``.
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
    >>> import numpy as np
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

    _: KW_ONLY
    covariance: Literal["spherical", "diag"] = "spherical"
    population: Literal["normal", "laplace"] = "normal"
    noise_variance: float | None = None
    solver: Literal["em", "gradient"] = "em"
    channel: Channel | None = None
    learning_rate: float = 1e-3

    @property
    def _sends_coefficients(self) -> bool:
        """Whether clients send coefficients, rather than slopes of the likelihood."""
        exact = self.channel is None or isinstance(self.channel, Exact)
        return self.solver == "gradient" or not exact

    def _settings(self) -> MixtureSettings:
        return self._with_settings(
            noise_variance=self.noise_variance,
            one_variance=self.covariance == "spherical",
            default_rounds=301 if self.solver == "gradient" else 300,
            **LAPLACE if self.population == "laplace" else {},
        )

    def protocol(self) -> EvidenceRounds | CoefficientRounds:
        check_choice("covariance", self.covariance, ("spherical", "diag"))
        check_choice("solver", self.solver, ("em", "gradient"))
        check_choice("population", self.population, ("normal", "laplace"))
        check_positive("learning_rate", self.learning_rate)
        if self._sends_coefficients:
            if self.population != "normal":
                raise ValueError(
                    "population must be 'normal' where clients send coefficients; "
                    f"got {self.population!r}."
                )
            if self.n_rounds is None and not isinstance(check_channel(self.channel), Exact):
                raise ValueError(
                    f"n_rounds must be given with {self.channel!r}: in each round every client "
                    "sends one more report."
                )
            if self.noise_variance is None and self.solver == "em":
                raise ValueError(
                    f"noise_variance must be given with {self.channel!r}: coefficients alone do "
                    "not identify it."
                )
        settings = self._settings()
        if not self._sends_coefficients:
            source = NumberEvidence(weigh_laplace if self.population == "laplace" else weigh)
            return EvidenceRounds(settings, source, estimator=self)
        noise = 1.0 if self.noise_variance is None else self.noise_variance
        drawn = settings.given_number, self.covariance, noise
        if self.solver == "gradient":
            scheme: Draws = GradientSteps(*drawn, self.learning_rate)
        else:
            scheme = Draws(*drawn)
        return CoefficientRounds(settings, scheme, self.channel, estimator=self)

    score = RegressionEstimator.score  # the mixin's has no groups

    def _population(self) -> FittedMixture:
        name = "stochastic EM" if self._sends_coefficients else "ML"
        if self.solver == "gradient":
            name = "gradient descent"
        if self.population == "laplace":
            how = "expectation propagation", approximations, LaplacePosterior, "approximate"
            return self._mixture(*how)
        return self._mixture(name)

    # Estimates --------------------------------------------------------------------------------

    @property
    def coefficients_(self) -> NDArray:
        """Coefficients of each group, shape (n_groups, p)."""
        check_is_fitted(self, "mean_")
        if self.solver == "gradient" and "theta" in self._memory:
            return self._memory["theta"]
        return self.posterior().mean
