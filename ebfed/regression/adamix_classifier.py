"""AdaMix for classes: logistic regressions whose coefficients come from a Gaussian mixture."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ebfed import kernels
from ebfed.engines import Engine
from ebfed.regression.logistic import LogisticEB
from ebfed.regression.mixture_regression import MixtureRegression
from ebfed.regression.numerics.evidence import Evidence, MixturePopulation
from ebfed.regression.numerics.normal_population import LOW, NormalPopulation
from ebfed.regression.posteriors.logistic import WhiteRows
from ebfed.regression.posteriors.softmax import SoftmaxPosterior, approximate
from ebfed.tables.clients import Clients
from ebfed.tables.labels import number_labels

__all__ = ["AdaMixClassifier"]


class AdaMixClassifier(MixtureRegression, LogisticEB):  # type: ignore[misc]
    """Empirical Bayes logistic regression with a Gaussian mixture for a population.

    Rows of group i have class c with probability ``exp(x_ij' theta_ic) / sum_k exp(x_ij'
    theta_ik)``, where theta_i of the first class is zero, and the coefficients of the C - 1 others

        theta_i ~ sum_l w_l N(mu_l, s_l**2 I)

    (Ozkara et al. 2023, section 3.1, for the logistic loss). The population maximises the marginal
    likelihood as for `AdaMix`. That of a client in one component is found for two classes by
    expectation propagation, as in `LogisticEB`, which this is with one component; for more by
    Laplace's method: the log-posterior at its mode and half the log-determinant of the inverse V of
    its curvature. Slopes are those of this approximation, so that no round loses any of it;
    posteriors have covariance V and, for a mean, the mode and what skewness adds to it to first
    order (Tierney and Kadane 1986). Laplace's method underestimates the spread of the population
    where groups have few rows, in trials of 3 to 20 by up to 5 percent. The first class is the one
    whose coefficients do not vary: its choice is part of the model.

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
        1 shows a progress bar over rounds.
    random_state : int, Generator or None
        Of the starts.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        The labels of `y`, sorted.
    weights_ : ndarray of shape (k,)
    means_, variances_ : ndarray of shape (k, q)
        Of the components, sorted by their means; ``q = p (C - 1)``, class by class from the second
        on, the intercept first.
    means_covariance_ : ndarray of shape (k, q, q)
        Sampling covariance of each component's mean, given who belongs to it.
    mean_, variance_ : ndarray of shape (q,)
        Of the population.
    terms_ : list of str
        Names of the coefficients; with more than two classes, ``"x0[b]"`` is that of x0 for b.
    clients_, groups_, history_, privacy_, notes_ :
        See `RegressionEstimator`.

    References
    ----------
    Ozkara, Girgis, Data, Diggavi (2023), A statistical framework for personalized federated
    learning and estimation, section 3.1; Minka (2001), Expectation propagation for approximate
    Bayesian inference; Tierney and Kadane (1986), Accurate approximations for posterior moments and
    marginal densities, J. Am. Stat. Assoc. 81.

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
    _kind = SoftmaxPosterior
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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = True
        return tags

    @property
    def _one_variance(self) -> bool:
        return self.covariance == "spherical"

    @property
    def _many(self) -> bool:
        """Whether there are more than two classes."""
        return len(self.classes_) > 2

    def _check_arguments(self) -> None:
        if self.covariance not in ("spherical", "diag"):
            raise ValueError(f"covariance must be 'spherical' or 'diag'; got {self.covariance!r}.")

    def _fitted_by(self) -> str:
        return "Laplace" if self._many else "expectation propagation"

    # Clients ----------------------------------------------------------------------------------

    def _check_classes(self, classes: NDArray) -> None:
        """Take any number of them."""

    def _block(self, clients: Clients) -> Clients:
        return clients

    def _empty(self, ids: NDArray) -> Clients:
        columns = np.zeros((0, self.n_features_in_ + bool(self.fit_intercept)))
        return Clients(ids, np.zeros(len(ids) + 1, np.int64), columns, self.classes_[:0])

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
        self, sent: dict, memory: dict, clients: Clients, population: MixturePopulation
    ) -> Evidence:
        return _weigh(clients, population, sent["units"][:-1], sent["classes"])

    # Server -----------------------------------------------------------------------------------

    def start(self, facts: dict, key: NDArray) -> dict:
        """Return the state before the first round, which asks for the sizes of columns."""
        classes = np.unique(facts["classes"])
        state = super().start(facts, key)
        return state | {"classes": classes, "p": state["p"] * (len(classes) - 1)}

    def _measure(self, state: dict, messages: dict) -> dict:
        """Take units from the sizes of columns, the same for every class."""
        if len(state["classes"]) > 2:
            *columns, n = messages["squares"].T
            squares = np.stack([*columns * (len(state["classes"]) - 1), n], axis=1)
            messages = messages | {"squares": squares}
        return super()._measure(state, messages)

    def _learn(self, sent: dict) -> None:
        super()._learn(sent)
        self.classes_ = sent["classes"]
        if self._many:
            self.notes_ = [*self.notes_, LAPLACE]

    # Estimates --------------------------------------------------------------------------------

    @property
    def terms_(self) -> list[str]:
        """Names of the coefficients."""
        terms = super().terms_
        if not self._many:
            return terms
        return [f"{term}[{label}]" for label in self.classes_[1:] for term in terms]

    @property
    def coef_(self) -> NDArray:
        """Mean of the population without the intercept: (d,), or (C - 1, d) of many classes."""
        if not self._many:
            return super().coef_
        return self.mean_.reshape(len(self.classes_) - 1, -1)[:, bool(self.fit_intercept) :]

    @property
    def intercept_(self) -> Any:
        """Mean of the population's intercepts: a number, or (C - 1,) of many classes."""
        if not self._many:
            return super().intercept_
        intercepts = self.mean_.reshape(len(self.classes_) - 1, -1)[:, 0]
        return intercepts if self.fit_intercept else np.zeros_like(intercepts)

    def _weigh(self, block: Clients, population: MixturePopulation) -> Evidence:
        units = np.ones(population.means.shape[1])
        return _weigh(block, population, units, self.classes_)

    def decision_function(self, X: Any, *, groups: Any = None) -> NDArray:
        """Log-odds of the second of two classes, shape (n_rows,); of more, `predict_log_proba`.

        Not knowing the coefficients draws them towards zero: they are not as far from it as the
        posterior mean of the log-odds, which has the same sign.

        Parameters
        ----------
        X, groups : as in `predict`
        """
        check_is_fitted(self, "mean_")
        if self._many:
            return self.predict_log_proba(X, groups=groups)
        return super().decision_function(X, groups=groups)

    def predict(self, X: Any, *, groups: Any = None) -> NDArray:
        """Predict each row's label with the coefficients of its group: the most probable.

        Parameters
        ----------
        X : as in `fit`
        groups : as in `fit`, optional
            Label of each row. A group that was not in the fit is predicted by the population; so
            are all rows if None (unless `X` has the column that held them in the fit).

        Returns
        -------
        ndarray of shape (n_rows,)
        """
        check_is_fitted(self, "mean_")
        if self._many:
            return self.classes_[self.predict_log_proba(X, groups=groups).argmax(axis=1)]
        return super().predict(X, groups=groups)

    def predict_proba(self, X: Any, *, groups: Any = None) -> NDArray:
        """Probability of each class, averaged over the posterior of the row's group.

        For two classes by quadrature; for more over 512 points for each component, see
        `SoftmaxPosterior.probabilities`.

        Parameters
        ----------
        X, groups : as in `predict`

        Returns
        -------
        ndarray of shape (n_rows, C)
        """
        return super().predict_proba(X, groups=groups)

    def predict_log_proba(self, X: Any, *, groups: Any = None) -> NDArray:
        """Logarithm of `predict_proba`; of two classes, with digits where that is 0 or 1."""
        rows, labels = self._read_design(X, groups)
        if labels is None:
            ids, codes = np.zeros(1, np.int64), np.zeros(len(rows), np.int64)
            posterior = self._posterior(self._empty(ids))
        else:
            ids, codes = number_labels(labels)
            posterior = self._posterior(self._known(ids))
        assert isinstance(posterior, SoftmaxPosterior)
        if self._many:
            probabilities = posterior.probabilities(rows, codes)
            return np.log(np.maximum(probabilities, np.finfo(float).tiny))
        out, part = np.full((2, len(rows)), -np.inf), np.empty(len(rows))
        for share, mean, variance in posterior.along(rows, codes):
            for sign, total in zip((-1, 1), out, strict=True):
                kernels.log_logistic_normal(sign * mean, variance, part)
                with np.errstate(divide="ignore"):
                    np.logaddexp(total, part + np.log(share), out=total)
        # both sum to one, and none is less than floats can hold
        return np.maximum(out - np.logaddexp(*out), np.log(np.finfo(float).tiny)).T


LAPLACE = (
    "Laplace's approximation, by which more than two classes are fitted, underestimates the spread "
    "of the population where groups have few rows: in trials, by up to 5 percent."
)


def _weigh(
    clients: Clients, population: MixturePopulation, units: NDArray, classes: NDArray
) -> Evidence:
    """Weigh the rows of clients against every component.

    In coordinates in which a component is standard normal, a client's coefficients have mean a and
    covariance V: with D the component's variances, ``g = D^-1/2 a`` and ``P = D^-1/2 (I - V)
    D^-1/2`` are what `evidence` has for normal rows. Of Laplace's approximation ``a = mode +
    shift``, and its slope in a variance is that of the rows less ``shift_j**2 / (2 D_jj)``.
    """
    parts = []
    for mean, variances in zip(population.means, population.variances, strict=True):
        # no variance of the population is one so small that only the evidence notices
        root = np.broadcast_to(np.maximum(np.sqrt(variances), 1e-8), units.shape)
        shift: Any = 0.0
        if len(classes) == 2:
            normal = NormalPopulation(mean / units, np.diag(root / units), np.ones(len(units)))
            a, V, log = WhiteRows.of(clients, normal, classes[1]).approximate("corrected")
        else:
            mode, V, shift, log = approximate(clients, mean / units, root / units, classes)
            a = mode + shift
        values, vectors = np.linalg.eigh(np.eye(len(units)) - V)
        white = np.sqrt(np.maximum(values, 0))[:, :, None] * vectors.swapaxes(1, 2) / root
        slope = a / root
        own = (white**2).sum(axis=1)
        squares = ((white.swapaxes(1, 2) @ white) ** 2).sum(axis=2)
        steps = 0.5 * (slope**2 - (shift / root) ** 2 - own), 0.5 * own**2, 0.5 * (squares - own**2)
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
