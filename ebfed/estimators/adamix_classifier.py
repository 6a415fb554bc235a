"""AdaMix for classes: logistic regressions whose coefficients come from a Gaussian mixture."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ebfed import kernels
from ebfed.clients import Clients, number_labels
from ebfed.engines import Engine
from ebfed.estimators.evidence import Evidence, Population
from ebfed.estimators.logistic import LogisticEB
from ebfed.estimators.logistic_posterior import Approximation, WhiteRows
from ebfed.estimators.mixture_regression import MixtureRegression
from ebfed.estimators.normal_population import LOW, NormalPopulation

__all__ = ["AdaMixClassifier"]


class AdaMixClassifier(MixtureRegression, LogisticEB):  # type: ignore[misc]
    """Empirical Bayes logistic regression with a Gaussian mixture for a population.

    Rows of group i are ``y_ij ~ Bernoulli(1 / (1 + exp(-x_ij' theta_i)))``, and

        theta_i ~ sum_l w_l N(mu_l, s_l**2 I)

    (Ozkara et al. 2023, eq. 10, for the logistic loss). The population maximises the marginal
    likelihood as for `AdaMix`; that of a client in one component is found by expectation
    propagation, as in `LogisticEB`, which this is with one component.

    Parameters
    ----------
    n_components : int
    covariance : {"spherical", "diag"}
        Whether the coefficients of a component share one variance or have one each.
    fit_intercept : bool
        Whether to put a column of ones first.
    n_rounds : int, optional
        At most; 300 if None.
    n_init : int
        Starts, by k-means++, of which the likeliest is kept.
    tol : float
        The fit ends with a round that gains less log-likelihood per group.
    engine : Engine, optional
        Where clients compute; `engines.Local()` if None.
    verbose : int
    random_state : int, Generator or None
        Of the starts.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        The labels of `y`, sorted; the model is of the probability of the second.
    weights_ : ndarray of shape (k,)
    means_, variances_ : ndarray of shape (k, p)
        Of the components, sorted by their means; the intercept first.
    means_covariance_ : ndarray of shape (k, p, p)
        Sampling covariance of each component's mean, given who belongs to it.
    mean_, variance_ : ndarray of shape (p,)
        Of the population.
    clients_, groups_, terms_, history_, privacy_, notes_ :
        See `RegressionEstimator`.

    References
    ----------
    Ozkara, Girgis, Data, Diggavi (2023), A statistical framework for personalized federated
    learning and estimation, section 3.1; Minka (2001), Expectation propagation for approximate
    Bayesian inference.

    Examples
    --------
    >>> import ebfed as eb
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(np.arange(600), 20)
    >>> slope = np.where(rng.random(600) < 0.3, -2, 2)[groups]
    >>> x = rng.normal(size=12000)
    >>> y = rng.random(12000) < 1 / (1 + np.exp(-slope * x))
    >>> est = eb.AdaMixClassifier(2, fit_intercept=False, random_state=0)
    >>> est = est.fit(x[:, None], y, groups=groups)
    >>> est.weights_.round(1), est.means_.ravel().round(0)
    (array([0.3, 0.7]), array([-2.,  2.]))
    """

    RESULTS: ClassVar[tuple[str, ...]] = (*MixtureRegression.RESULTS, "classes")
    _has_noise: ClassVar[bool] = False
    _least: ClassVar[float] = LOW
    # where rows are separable, means run away: none is told worse than a tenth of a row would
    _ridge: ClassVar[float] = 0.01
    noise_variance: float = 1.0

    def __init__(
        self,
        n_components: int = 2,
        *,
        covariance: Literal["spherical", "diag"] = "spherical",
        fit_intercept: bool = True,
        n_rounds: int | None = None,
        n_init: int = 4,
        tol: float = 1e-8,
        engine: Engine | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ):
        self.n_components = n_components
        self.covariance = covariance
        self.fit_intercept = fit_intercept
        self.n_rounds = n_rounds
        self.n_init = n_init
        self.tol = tol
        self.engine = engine
        self.verbose = verbose
        self.random_state = random_state

    @property
    def _one_variance(self) -> bool:
        return self.covariance == "spherical"

    def _check_arguments(self) -> None:
        if self.covariance not in ("spherical", "diag"):
            raise ValueError(f"covariance must be 'spherical' or 'diag'; {self.covariance!r} came.")

    def _fitted_by(self) -> str:
        return "expectation propagation"

    # Clients ----------------------------------------------------------------------------------

    def _block(self, clients: Clients) -> Clients:
        return clients

    def _squares(self, clients: Clients) -> NDArray:
        """Sums of squares of the columns of X, and numbers of rows: logits have a unit of one."""
        owner = np.repeat(np.arange(len(clients)), clients.n)
        columns = [np.bincount(owner, x**2, len(clients)) for x in clients.X.T]
        return np.stack([*columns, clients.n.astype(float)], axis=1)

    def _prepared(self, sent: dict, memory: dict, clients: Clients) -> dict:
        return memory

    def _asked(self, state: dict) -> dict:
        return super()._asked(state) | {"classes": state["classes"]}

    def _found(
        self, sent: dict, memory: dict, clients: Clients, population: Population
    ) -> Evidence:
        return _weigh(clients, population, sent["units"][:-1], sent["classes"][1], "corrected")

    def _learn(self, sent: dict) -> None:
        super()._learn(sent)
        self.classes_ = sent["classes"]

    # Estimates --------------------------------------------------------------------------------

    def _weigh(self, block: Clients, population: Population) -> Evidence:
        units = np.ones(population.means.shape[1])
        return _weigh(block, population, units, self.classes_[1], "corrected")

    def predict_log_proba(self, X: Any, *, groups: Any = None) -> NDArray:
        """Logarithm of `predict_proba`, with digits where that is 0 or 1."""
        rows, labels = self._read_design(X, groups)
        if labels is None:
            ids, codes = np.zeros(1, np.int64), np.zeros(len(rows), np.int64)
            posterior = self._posterior(self._empty(ids))
        else:
            ids, codes = number_labels(labels)
            posterior = self._known_posterior(ids)  # type: ignore[assignment]
        out, part = np.full((2, len(rows)), -np.inf), np.empty(len(rows))
        for share, mean, variance in posterior.along(rows, codes):
            for sign, total in zip((-1, 1), out, strict=True):
                kernels.log_logistic_normal(sign * mean, variance, part)
                with np.errstate(divide="ignore"):
                    np.logaddexp(total, part + np.log(share), out=total)
        # both sum to one, and none is less than floats can hold
        return np.maximum(out - np.logaddexp(*out), np.log(np.finfo(float).tiny)).T


def _weigh(
    clients: Clients, population: Population, units: NDArray, second: Any, how: Approximation
) -> Evidence:
    """Weigh the rows of clients against every component.

    In coordinates in which a component is standard normal, a client's coefficients have mean a and
    covariance V: with D the component's variances, ``g = D^-1/2 a`` and ``P = D^-1/2 (I - V)
    D^-1/2`` are what `evidence` has for normal rows.
    """
    parts = []
    for mean, variances in zip(population.means, population.variances, strict=True):
        # no variance of the population is one so small that only the evidence notices
        root = np.broadcast_to(np.maximum(np.sqrt(variances), 1e-8), units.shape)
        normal = NormalPopulation(mean / units, np.diag(root / units), np.ones(len(units)))
        a, V, log = WhiteRows.of(clients, normal, second).approximate(how)
        values, vectors = np.linalg.eigh(np.eye(len(units)) - V)
        white = np.sqrt(np.maximum(values, 0))[:, :, None] * vectors.swapaxes(1, 2) / root
        slope = a / root
        own = (white**2).sum(axis=1)
        squares = ((white.swapaxes(1, 2) @ white) ** 2).sum(axis=2)
        steps = 0.5 * (slope**2 - own), 0.5 * own**2, 0.5 * (squares - own**2)
        if len(variances) == 1:
            steps = steps[0].sum(axis=1)[:, None], 0.5 * squares.sum(axis=1)[:, None], None
            steps = *steps[:2], np.zeros_like(steps[1])
        nothing = np.zeros(len(log))
        parts.append((log, slope, *steps, np.zeros_like(steps[0]), nothing, nothing, white))
    *figures, whites = zip(*parts, strict=True)
    stacked = [np.stack(x, axis=1) for x in figures]
    log, by_mean, by_variance, own, rest, crossed, by_noise, noise_own = stacked
    scale = np.ones((len(whites), *whites[0].shape[:2]))
    return Evidence(
        log, by_mean, by_variance, own, rest, crossed, by_noise, noise_own, [*whites], scale
    )
