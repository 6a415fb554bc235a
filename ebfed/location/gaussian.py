"""Gaussian location: a mean for every group."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ebfed.engines.sums import Share, check_share
from ebfed.families import Gaussian
from ebfed.location.base import ReportingEstimator, chosen_prior
from ebfed.location.learned import known_noise
from ebfed.location.rounds import LocationRounds
from ebfed.location.sum_rounds import SumRounds
from ebfed.priors import Prior

__all__ = ["GaussianEB"]

NO_NOISE = (
    "The noise variance is zero: rows of a group agree exactly, have no joint density, and so the "
    "fit has no log-likelihood, AIC or BIC."
)
POPULATIONS = (
    *("normal", "point_normal", "laplace", "point_laplace"),
    *("scale_mixture", "log_spline", "npmle"),
)


@dataclass(eq=False, repr=False)
class GaussianEB(ReportingEstimator):
    """Empirical Bayes means of many groups.

    Rows of group i are ``x_ij ~ N(theta_i, noise)``, and ``theta_i`` is drawn from a distribution,
    the population. With a normal population the estimate is (Ozkara et al. 2023, Theorem 1, for
    unequal n_i)

        theta_i^ = a_i xbar_i + (1 - a_i) mu^,   a_i = s_t**2 / (s_t**2 + noise / n_i),

    with `mu^` the precision-weighted mean and both variances by restricted maximum likelihood.
    If a channel adds noise, the likelihood includes this noise exactly, and `a_i` is that of
    Theorem 2 (see `priors.normal.NormalPosterior`). Columns of `X` are treated one by one.

    With covariates w_i of the groups, ``fit(X, groups=…, covariates=…)``, estimates shrink towards
    ``w_i' beta`` instead of one mean: ``x ~ w + (1 | group)`` of lme4, and the model of Fay and
    Herriot (1979) where the noise is known. beta and the variances are fitted together, and
    intervals include the uncertainty of both. Covariates are public: clients send them without
    noise, and `channel` protects only rows. The channel must be `channels.Exact` or
    `channels.AddNoise`, whose reports are Gaussian.

    With levels of groups, ``fit(X, groups=["state", "county"])``, a county is shrunk to its state,
    and a state to all, each by what is known of it: ``x ~ 1 + (1 | state/county)`` of lme4. All
    variances are fitted jointly. A new county in a known state gets what is known of the state.
    Intervals include what is not known of the variances and of the mean (`priors.nested`).
    Labels of parents are public, and rows of a county are sent through the channel as above.

    Parameters
    ----------
    variances : float or array-like of shape (d,), optional
        Known noise variance of one row; estimated from the scatter within groups if None.
    method : {"reml", "ml", "moments"}
        Method by which the normal population is fitted to exact messages; through any other channel
        it is fitted by maximum likelihood.
    prior : str or Prior
        The population: ``"normal"``, ``"point_normal"``, ``"laplace"``, ``"point_laplace"``,
        ``"scale_mixture"``, ``"log_spline"`` or ``"npmle"``. ``"laplace"`` is
        symmetric around its own mean. Those with a point and the scale mixture have their mode at
        0. ``"log_spline"`` can have any smooth shape, and ``"npmle"`` any shape. A `Prior` is
        copied, and its own `method` is used. With a prior other than the normal, the noise is the
        pooled variance within groups. A fitted `Prior` is used as it is, with the noise variance of
        its fit if `variances` is None: see `ebfed.priors`.
    channel : Channel or dict of Channel, optional
        How a client, the owner of a group's rows, reports them: `channels.Exact()` if None, which
        sends sums without noise. A dict has a channel for each class of `consent`. Other channels
        report the group's mean alone, so the noise variance cannot be estimated from them: give
        `variances`. Or let one class of `consent` use `Exact`: the noise variance is then estimated
        from that class. Then give every other channel a range, to which means are clipped.
    guess : channels.Guess, optional
        Public guess of the population's mean and spread. A channel that has no range computes its
        range from the guess.
    participation : int or bool array-like of shape (n_groups,), optional
        Clients that report; all if None. A number: so many, chosen at random. An array: True for
        those that report, in the order of sorted labels. The others are estimated from their own
        rows and the fitted population.
    share : {"groups", "sums"}
        What a block of groups sends through `channels.Exact`: mean and scatter of each group, in
        one round; or, for a normal population without covariates, only sums over its groups at each
        ratio of variances that the search comes to, in some ten to thirty rounds. The fit is the
        same, but for robust intervals, which then hold for any kurtosis: fourth moments are not
        among the sums. A sum over one group is that group's figure, and sums at many ratios
        together may say much of few groups: it is less that leaves, not a guarantee of privacy.
    mean_model : regressor of scikit-learn, optional
        The mean of the population is a function of the covariates that this regressor learns,
        instead of a linear one: ``a + b x``, with x its prediction for the group. Each
        group is predicted by a regressor that was fitted to other groups, of five parts in which
        they are dealt, so that no estimate is shrunk towards its own data; the spread that remains
        is estimated (Ignatiadis and Wager, 2019). Groups that were not in the fit are predicted by
        the regressor that was fitted to all, `mean_model_`. Its `sample_weight`, if it has that,
        are precisions around one mean. If b is not larger than its standard error, the predictions
        are of no use, and are left out. The channel must be `channels.Exact`, in one place: no
        federation.
    engine : Engine, optional
        Engine on which clients compute; `engines.Local()` if None.
    random_state : int, Generator or None
        Seed of the channel's noise, and of the parts for `mean_model`.

    Attributes
    ----------
    prior_ : Prior
        The fitted population, with `mean_` and `variance_`.
    noise_variance_ : ndarray of shape (d,)
    mean_model_ : regressor or None
        The regressor that was fitted to all groups, if there is a `mean_model`; None if its
        predictions are of no use.
    summaries_, groups_, notes_, log_likelihood_ :
        See `LocationEstimator`.

    References
    ----------
    Ozkara, Girgis, Data, Diggavi (2023), A statistical framework for personalized federated
    learning and estimation, section 2.1; Ignatiadis and Wager (2019), Covariate-powered empirical
    Bayes estimation.

    Examples
    --------
    >>> import ebfed as eb
    >>> X, groups, theta = eb.datasets.make_gaussian_groups(200, 5, random_state=0)
    >>> est = eb.GaussianEB().fit(X, groups=groups)
    >>> est.prior_.variance_.round(1), est.noise_variance_.round(1)
    (array([1.]), array([1.]))
    >>> est.posterior().to_frame().columns.tolist()
    ['group', 'n', 'local', 'estimate', 'sd', 'lower', 'upper', 'weight']

    Radon in the houses of 85 counties, simulated; the uranium in their soil is known:

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> uranium = rng.normal(0, 0.5, 85)
    >>> level = 1.4 + 0.7 * uranium + rng.normal(0, 0.2, 85)
    >>> county = np.repeat(np.arange(85), rng.integers(1, 20, 85))
    >>> radon = rng.normal(level[county], 0.7)
    >>> est = eb.GaussianEB().fit(radon, groups=county, covariates=uranium)
    >>> est.coef_.round(1), est.prior_.coefficient_errors_.ravel().round(2)
    (array([0.7]), array([0.03, 0.07]))
    >>> est.predict(groups=[0, 999], covariates=[uranium[0], 0.5]).round(1)  # 999: no house seen
    array([1.5, 1.7])
    """

    variances: ArrayLike | None = None
    _: KW_ONLY
    method: Literal["reml", "ml", "moments"] = "reml"
    prior: str | Prior = "normal"
    share: Share = "groups"
    mean_model: Any = None

    def protocol(self) -> LocationRounds:
        check_share(self.share)
        kind = LocationRounds if self.share == "groups" else SumRounds
        if self.method not in ("reml", "ml", "moments"):
            raise ValueError(f"method must be 'reml', 'ml' or 'moments'; got {self.method!r}.")
        prior = chosen_prior(self.prior, *POPULATIONS, method=self.method)
        return kind(self, Gaussian(self.variances), prior)

    @property
    def noise_variance_(self) -> NDArray:
        """Variance of a row around its group's parameter, shape (d,)."""
        return known_noise(self._learned)

    @property
    def notes_(self) -> list[str]:
        notes, learned = super().notes_, self._learned
        if not learned.all_exact or learned.is_server or (self.noise_variance_ > 0).all():
            return notes
        return [*notes, NO_NOISE] if np.any(learned.summaries.n > 1) else notes
