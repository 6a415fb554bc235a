"""Gaussian location: a mean for every group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from ebfed import families
from ebfed.channels import AddNoise, Channel, Exact, Guess
from ebfed.channels.base import Message
from ebfed.engines import Engine
from ebfed.families import Family
from ebfed.likelihoods import Gaussian, Likelihood
from ebfed.location.base import LocationEstimator
from ebfed.priors import (
    Discrete,
    Laplace,
    Normal,
    PointLaplace,
    PointNormal,
    Posterior,
    Prior,
    ScaleMixture,
)
from ebfed.tables.clients import LARGEST, SMALLEST, Summary

__all__ = ["GaussianEB"]


class GaussianEB(LocationEstimator):
    """Empirical Bayes means of many groups.

    Rows of group i are ``x_ij ~ N(theta_i, noise)``, and ``theta_i`` comes from a population. With
    the normal population the estimate is (Ozkara et al. 2023, Theorem 1, for unequal n_i)

        theta_i^ = a_i xbar_i + (1 - a_i) mu^,   a_i = s_t**2 / (s_t**2 + noise / n_i),

    with `mu^` the precision-weighted mean and both variances by restricted maximum likelihood.
    Through a channel that adds noise, the population is fitted to the exact law of the messages,
    and `a_i` is that of Theorem 2 (see `priors.normal.NormalPosterior`). Columns of `X` are treated
    one by one.

    With covariates w_i of the groups, ``fit(X, groups=…, covariates=…)``, estimates shrink towards
    ``w_i' beta`` instead of one mean: ``x ~ w + (1 | group)`` of lme4, and the model of Fay and
    Herriot (1979) where the noise is known. beta and the variances are fitted together, and
    intervals include the uncertainty of both. Covariates are public: clients state them as they
    are, so that `channel` protects rows, not covariates. It takes `channels.Exact` or
    `channels.AddNoise`, whose messages are Gaussian.

    Parameters
    ----------
    variances : float or array-like of shape (d,), optional
        Known noise variance of one row; estimated from the scatter within groups if None.
    method : {"reml", "ml", "moments"}
        How the normal population is fitted to exact messages; through any other channel it is
        fitted by maximum likelihood.
    prior : "normal", "point_normal", "laplace", "point_laplace", "scale_mixture", "npmle" or Prior
        The population; those with a point and the scale mixture have their mode at 0. A `Prior` is
        copied, and brings its own method. With a prior other than the normal, the noise is the
        pooled variance within groups.
    channel : Channel or dict of Channel, optional
        What leaves a client; `channels.Exact()` if None. A dict has a channel for each class of
        `consent`. Other channels report on the means alone, so `variances` must be given; or the
        channels have ranges, and those clients show the noise that are in an `Exact` class.
    guess : channels.Guess, optional
        What is publicly assumed of the population: from it a channel without a range takes one.
    participation : int or bool array-like of shape (n_groups,), optional
        How many clients, chosen at random, or which ones (in the order of their sorted labels) send
        anything. The others are estimated from their own rows and the fitted population.
    engine : Engine, optional
        Where clients compute; `engines.Local()` if None.
    random_state : int, Generator or None
        Of what a channel draws.

    Attributes
    ----------
    prior_ : Prior
        The fitted population, with `mean_` and `variance_`.
    noise_variance_ : ndarray of shape (d,)
    summaries_, groups_, notes_, log_likelihood_ :
        See `LocationEstimator`.

    References
    ----------
    Ozkara, Girgis, Data, Diggavi (2023), A statistical framework for personalized federated
    learning and estimation, section 2.1.

    Examples
    --------
    >>> import ebfed as eb
    >>> X, groups, theta = eb.datasets.make_gaussian_groups(200, 5, random_state=0)
    >>> est = eb.GaussianEB().fit(X, groups=groups)
    >>> est.prior_.variance_.round(1), est.noise_variance_.round(1)
    (array([1.]), array([1.]))
    >>> est.posterior().to_frame().columns.tolist()
    ['group', 'n', 'local', 'estimate', 'sd', 'lower', 'upper', 'weight']

    Radon in the houses of 85 counties, of which the uranium in the soil is known:

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

    def __init__(
        self,
        variances: ArrayLike | None = None,
        *,
        method: Literal["reml", "ml", "moments"] = "reml",
        prior: str | Prior = "normal",
        channel: Channel | Mapping[Any, Channel] | None = None,
        guess: Guess | None = None,
        participation: int | ArrayLike | None = None,
        engine: Engine | None = None,
        random_state: Any = None,
    ):
        self.variances = variances
        self.method = method
        self.prior = prior
        self.channel = channel
        self.guess = guess
        self.participation = participation
        self.engine = engine
        self.random_state = random_state

    def model(self, message: Message) -> Gaussian:
        """``mean_i ~ N(theta_i, noise / n_i)``, the noise open if it is not known."""
        n = message["n"]
        size = np.maximum(np.abs(message["mean"]), np.sqrt(message["scatter"]))
        size = size.max(axis=0, initial=0.0)
        if np.any((size > 0) & (size < SMALLEST)):
            raise ValueError(
                f"X holds a column of values too small for float64 arithmetic (below "
                f"{SMALLEST:g}): their squares underflow. Rescale the data."
            )
        with np.errstate(divide="ignore"):
            variances = 1 / n[:, None]
        if self.variances is None:
            scatter = message["scatter"].sum(axis=0)
            return Gaussian(message["mean"], variances, scatter, int(np.maximum(n - 1, 0).sum()))
        return Gaussian(message["mean"], variances).scaled(self._known_variances(message))

    def _known_variances(self, message: Message) -> NDArray:
        d = message["mean"].shape[1]
        try:
            variances = np.asarray(self.variances, float)
        except (TypeError, ValueError):
            raise TypeError(f"variances must be numbers; got {self.variances!r}.") from None
        if variances.shape not in ((), (1,), (d,)):
            raise ValueError(
                f"variances must be a number or one per column of X ({d}); it has shape "
                f"{variances.shape}."
            )
        if not np.all((variances == 0) | ((variances > SMALLEST) & (variances < LARGEST))):
            raise ValueError(
                f"variances must be 0 or between {SMALLEST:g} and {LARGEST:g}; "
                f"got {self.variances!r}."
            )
        return np.broadcast_to(variances, d)

    def _make_prior(self) -> Prior:
        if self.method not in ("reml", "ml", "moments"):
            raise ValueError(f"method must be 'reml', 'ml' or 'moments'; got {self.method!r}.")
        return self._prior_instance(
            {
                "normal": Normal(method=self.method),
                "point_normal": PointNormal(),
                "laplace": Laplace(),
                "point_laplace": PointLaplace(),
                "scale_mixture": ScaleMixture(),
                "npmle": Discrete("npmle"),
            }
        )

    @property
    def noise_variance_(self) -> NDArray:
        """Variance of a row around its group's parameter, shape (d,)."""
        if self.prior_.noise_variance_ is not None:
            return self.prior_.noise_variance_
        return self._known_variances({"mean": self.summaries_.mean})

    def _likelihood(self, summary: Summary) -> Gaussian:
        with np.errstate(divide="ignore"):
            return Gaussian(summary.mean, 1 / summary.n[:, None]).scaled(self.noise_variance_)

    def _family(self) -> Family:
        return families.Gaussian(self.noise_variance_)

    def _log_rows(self, summary: Summary) -> NDArray:
        noise, n = self.noise_variance_, summary.n[:, None]
        if np.any(noise == 0):
            if np.any(n > 1):
                raise ValueError(
                    "the noise variance is zero, so rows of one group have no joint density."
                )
            return np.zeros(len(n))
        seen = np.maximum(n, 1)
        log_density = (
            -0.5 * (seen - 1) * np.log(2 * np.pi * noise)
            - 0.5 * np.log(seen)
            - 0.5 * summary.scatter / noise
        )
        return np.where(n > 0, log_density, 0.0).sum(axis=1)

    def _posterior(self, summary: Summary, likelihood: Likelihood, prior: Prior) -> Posterior:
        """Weigh by what each client's own message left in the fitted mean."""
        if not isinstance(prior, Normal):
            return super()._posterior(summary, likelihood, prior)
        return prior.posterior(likelihood, *self._own(summary))

    def _own(self, summary: Summary) -> tuple[NDArray, NDArray | None]:
        """Return the noise of each client's own message: its variance, and (if useful) its value.

        The variance is infinite for clients that sent nothing. A mean fitted to Gaussian messages
        is linear in them, so that each client can take its own noise out again.
        """
        place = self._places(summary.ids)
        seen = place >= 0
        turn = np.where(seen, self._memory["turn"][np.maximum(place, 0)], -1)
        consent = np.where(seen, self._memory["consent"][np.maximum(place, 0)], -1)
        own = np.full(summary.mean.shape, np.inf)
        for wave, settings in enumerate(self.settings_):
            for index, channel in enumerate(self._channels(settings).values()):
                asked = (turn == wave) & (consent == index)
                if asked.any():
                    own[asked] = channel.variance(self.summaries_.take(place[asked]))
        if self._all_exact() or not self._sends_gaussians():
            return own, None
        has_data = self.summaries_.take(np.maximum(place, 0)).mean
        report = self._memory["report"][np.maximum(place, 0)]
        return own, np.where(seen[:, None], report - has_data, np.nan)

    def _sends_gaussians(self) -> bool:
        """Whether every message is a mean, as it is or with Gaussian noise."""
        return all(isinstance(each, Exact | AddNoise) for each in self._channels().values())

    def _is_linear(self) -> bool:
        return self._sends_gaussians()

    def start(self, facts: dict, key: NDArray) -> dict:
        """Return the state before the first round: how clients are to report."""
        self._check_noise(facts)
        return super().start(facts, key)

    def _check_noise(self, facts: dict) -> None:
        """Refuse, before anything is sent, where nobody would show the noise that all need."""
        if self.variances is None and not self._all_exact() and not self._shows_noise(facts):
            raise ValueError(
                "variances must be given: these channels report on the means alone, and no client "
                "with an Exact channel has two rows to show the noise within groups."
            )

    def _shows_noise(self, facts: dict) -> bool:
        """Whether some client sends the scatter of two rows or more as it is."""
        exact = [isinstance(channel, Exact) for channel in self._channels().values()]
        return bool(np.any(np.array(exact)[facts["consent"]] & (facts["n"] > 1)))

    def _joined_likelihood(self, state: dict) -> Likelihood:
        """Likelihood of all messages; unknown noise from those that show their scatter."""
        if self.variances is None and not self._all_exact():
            noise = self._pooled(state)
            if noise is not None:
                return clone(self).set_params(variances=noise)._joined_likelihood(state)
        return super()._joined_likelihood(state)

    def _fit_prior(self, state: dict) -> Prior:
        prior = super()._fit_prior(state)
        if self.variances is None and not self._all_exact():
            prior.noise_variance_ = self._pooled(state)
        return prior

    def _pooled(self, state: dict) -> NDArray | None:
        """Pooled variance within the groups of clients that send theirs as it is; None if none."""
        shown = [
            message[name]
            for message in state["messages"]
            for name, channel in self._channels().items()
            if isinstance(channel, Exact)
        ]
        degrees = sum(int(np.maximum(message["n"] - 1, 0).sum()) for message in shown)
        if not degrees:
            return None
        return np.sum([message["scatter"].sum(axis=0) for message in shown], axis=0) / degrees

    @property
    def n_parameters_(self) -> int:
        """Number of fitted parameters, noise variances included."""
        prior = self.prior_
        if prior.noise_variance_ is None:
            return prior.n_parameters_
        # spherical: fitted with the population's variance, and like it one for all columns
        spherical = isinstance(prior, Normal) and prior.covariance == "spherical"
        shared = spherical and prior.variance is None and self._all_exact()
        return prior.n_parameters_ + (1 if shared else len(prior.noise_variance_))
