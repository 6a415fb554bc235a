"""Mixture populations: groups whose parameters come in a few kinds."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Literal, Self, Unpack

from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from ebfed.families import Gaussian
from ebfed.location.base import ReportingEstimator
from ebfed.location.learned import known_noise
from ebfed.location.mixture_rounds import CentralRounds, ClusteringRounds, EMRounds, MixtureRounds
from ebfed.priors import Discrete, GaussianMixture, Prior
from ebfed.report.view import Components, LocationView
from ebfed.tables.frames import frame
from ebfed.tables.of_rows import OfRows

__all__ = ["MixtureEB"]


@dataclass(eq=False, repr=False)
class MixtureEB(ReportingEstimator):
    """Empirical Bayes means of groups of a few kinds.

    Rows of group i are ``x_ij ~ N(theta_i, noise)``, and ``theta_i`` comes from one of k
    components: points mu_l, or Gaussians around them. The estimate is the posterior mean, for
    points (Ozkara et al. 2023, Theorem 6)

        theta_i^ = sum_l r_il mu_l,   r_il = w_l exp(-n_i |xbar_i - mu_l|**2 / (2 noise)) / c_i,

    with c_i such that the r_il of a group sum to one, and weights and centres by maximum marginal
    likelihood. Components have no covariates.

    Parameters
    ----------
    n_components : int, "bic" or "heldout"
        Number of components, or how it is chosen from 1 to `max_components`: the least BIC, or the
        largest likelihood of clients that were held out; see `ebfed.priors.n_components`. Too few
        cost much accuracy, too many cost little.
    components : {"points", "spherical", "diag"}
        Kind of the components: one value; or a Gaussian whose columns share one variance, or have
        one each. Gaussians are for messages that are exact or have Gaussian noise
        (`channels.Exact`, `channels.AddNoise`).
    solver : {"em", "clustering"}
        ``"em"``: clients send one message, and the server fits the population to it by EM.
        ``"clustering"``: Algorithm 3 of the paper, for replication. In each round clients send
        their posterior means as they are, and the server clusters these by k-means.
    variances : float or array-like of shape (d,), optional
        Known noise variance of one row; estimated from the scatter within groups if None.
    max_components : int
    n_init : int
        Number of starts by k-means++; the best is kept.
    n_rounds : int
        Number of rounds of clustering, or of noisy EM.
    channel : Channel or dict of Channel, optional
        Channel of each client's one report: see `GaussianEB`. For vectors,
        ``Clip(radius=theory.reporting_radius(...)) | Gaussian(epsilon, delta)``.
    trust : {"none", "server"}
        ``"none"``: `channel` protects what each client sends. ``"server"``: clients send means
        clipped to a ball, ``channel=Clip(radius=...)``, and the server releases only noisy sums and
        counts of each of k points, in `n_rounds` rounds of EM (see `location.noisy_em`).
        (`epsilon`, `delta`) protects each client against everybody who sees the fitted population,
        also other clients. `variances` must be given.
    epsilon, delta : float, optional
        Guarantee of all rounds together, with ``trust="server"``.
    guess, participation, engine :
        See `GaussianEB`.
    random_state : int, Generator or None
        Seed of the starts, and of the channel's noise.

    Attributes
    ----------
    n_components_ : int
    weights_ : ndarray of shape (k,)
    means_, variances_ : ndarray of shape (k, d)
        Means and variances of the components, sorted by the means.
    history_ : DataFrame
        A row for each step of EM or round of clustering. ``message_log_likelihood`` is the
        log-likelihood of the messages; in clustering, of the means of the first round. It leaves
        out the part of `log_likelihood_` that is due to scatter within groups. For noisy EM, a row
        says how far the centres moved.
    prior_, noise_variance_, summaries_, groups_, notes_, privacy_, log_likelihood_ :
        See `GaussianEB`. With ``trust="server"`` the log-likelihood is not released: NaN.

    References
    ----------
    Ozkara, Girgis, Data, Diggavi (2023), A statistical framework for personalized federated
    learning and estimation, appendix D (Theorem 6, Algorithm 3, Lemma 3).

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> theta = rng.choice([-2.0, 0.0, 2.0], 300)
    >>> X, groups = rng.normal(np.repeat(theta, 5)), np.repeat(np.arange(300), 5)
    >>> est = MixtureEB(random_state=0).fit(X, groups=groups)
    >>> est.n_components_, est.means_.ravel().round(1)
    (3, array([-2. , -0.1,  2. ]))
    >>> est.responsibilities().head(2).round(2)
       group  component_0  component_1  component_2
    0      0          0.0          0.0          1.0
    1      1          0.0          1.0          0.0
    """

    n_components: int | Literal["bic", "heldout"] = "bic"
    _: KW_ONLY
    components: Literal["points", "spherical", "diag"] = "points"
    solver: Literal["em", "clustering"] = "em"
    variances: ArrayLike | None = None
    max_components: int = 10
    n_init: int = 8
    n_rounds: int = 5
    trust: Literal["none", "server"] = "none"
    epsilon: float | None = None
    delta: float | None = None

    _takes_weights: ClassVar[bool] = False

    def protocol(self) -> MixtureRounds:
        """Return EM on messages, clustering in rounds, or EM by a trusted server."""
        kind: type[MixtureRounds] = EMRounds
        if self.solver == "clustering":
            kind = ClusteringRounds
        elif self.trust == "server":
            kind = CentralRounds
        starts: dict[str, Any] = {"n_init": self.n_init, "random_state": self.random_state}
        if self.components == "points":
            prior: Prior = Discrete(self.n_components, max_atoms=self.max_components, **starts)
        else:
            starts |= {"max_components": self.max_components}
            prior = GaussianMixture(self.n_components, self.components, **starts)
        return kind(self, Gaussian(self.variances), prior)

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        covariates: Any = None,
        **of_rows: Unpack[OfRows],
    ) -> Self:
        """Add a block of rows to those fitted before; see `LocationEstimator.partial_fit`.

        Raises
        ------
        ValueError
            With ``trust="server"``, where something was released before.
        """
        if self.trust == "server" and hasattr(self, "summaries_"):
            raise ValueError(
                "partial_fit would release sums of every client a second time, at twice the "
                "privacy; fit all rows at once."
            )
        return super().partial_fit(X, y, groups=groups, covariates=covariates, **of_rows)

    # What was learned -------------------------------------------------------------------------

    def __ebfed_view__(self) -> LocationView:
        components = Components(self.weights_, self.means_, self.variances_)
        return replace(super().__ebfed_view__(), components=components, refit=None)

    @property
    def noise_variance_(self) -> NDArray:
        """Variance of a row around its group's parameter, shape (d,)."""
        return known_noise(self._learned)

    @property
    def n_components_(self) -> int:
        """Number of components."""
        return len(self.weights_)

    @property
    def weights_(self) -> NDArray:
        """Weights of the components, shape (k,)."""
        check_is_fitted(self, "prior_")
        return self._mixture.weights_

    @property
    def means_(self) -> NDArray:
        """Centres of the components, shape (k, d)."""
        check_is_fitted(self, "prior_")
        return self._mixture.centres_

    @property
    def variances_(self) -> NDArray:
        """Variances of the components, shape (k, d); zero for points."""
        check_is_fitted(self, "prior_")
        return self._mixture.spreads_

    @property
    def _mixture(self) -> Any:
        return self.prior_

    @property
    def history_(self) -> Any:
        """Frame of the steps or rounds of the fit."""
        check_is_fitted(self, "prior_")
        return frame(self._history, self.__ebfed_view__().style)

    def responsibilities(self, X: Any = None, *, groups: Any = None) -> Any:
        """Probability that each group belongs to each component.

        Parameters
        ----------
        X, groups : as in `posterior`

        Returns
        -------
        DataFrame
            One row per distinct group: its label, then ``component_0`` and so on, in the order of
            `means_`.
        """
        posterior = self.posterior(X, groups=groups, integrate=False)
        shares = self._mixture.responsibilities(posterior.likelihood)  # type: ignore[attr-defined]
        columns = {f"component_{j}": share for j, share in enumerate(shares.T)}
        style = posterior._style.avoiding(columns)
        return frame({style.group: posterior._ids} | columns, style)
