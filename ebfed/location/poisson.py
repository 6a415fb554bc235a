"""Poisson location: a rate of events for every group."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

from ebfed.families import Poisson
from ebfed.location.base import ReportingEstimator, chosen_prior
from ebfed.location.rounds import LocationRounds
from ebfed.priors import Prior

__all__ = ["PoissonEB"]


@dataclass(eq=False, repr=False)
class PoissonEB(ReportingEstimator):
    """Empirical Bayes rates of events of many groups.

    Rows of group i are counts ``y_ij ~ Poisson(e_ij lambda_i)`` with known exposures ``e_ij`` (1 if
    none are given), and ``lambda_i`` is drawn from a distribution, the population. With a gamma
    population of shape a and mean mu, y_i events at an exposure of E_i give

        lambda_i^ = b_i y_i / E_i + (1 - b_i) mu,   b_i = E_i / (E_i + a / mu),

    with a and mu by maximum likelihood of the negative binomial. Columns of `X` are treated one by
    one.

    With covariates w_i of the groups, ``fit(X, groups=…, covariates=…)``, group i has its own
    mean, ``log mu_i = w_i' c``, and the shape a is the same in all groups. This is negative
    binomial regression, by maximum likelihood. If the covariates explain all differences between
    groups, it is Poisson regression. Covariates are public: clients send them without noise. The
    channel must be `channels.Exact`.

    Without covariates, any channel can send the counts. A channel protects only the counts:
    numbers of rows and exposures are public, and are sent without noise.

    Parameters
    ----------
    prior : "gamma", "log_spline", "npmle" or Prior
        The population. A `Prior` is copied; a fitted one is used as it is: see `ebfed.priors`.
    channel : Channel or dict of Channel, optional
        How a client, the owner of a group's rows, reports them: `channels.Exact()` if None, which
        sends sums without noise. A dict has a channel for each class of `consent`.
    guess : channels.Guess, optional
        Public guess of the population's mean and spread. A channel that has no range computes its
        range from the guess.
    participation : int or bool array-like of shape (n_groups,), optional
        Clients that report; all if None; see `GaussianEB`.
    mean_model : regressor of scikit-learn, optional
        Regressor that learns the mean of the population from covariates, as of `GaussianEB`; here
        ``log mu_i = a + b log x``, with x its prediction for the group.
    engine : Engine, optional
        Engine on which clients compute; `engines.Local()` if None.
    random_state : int, Generator or None
        Seed of the channel's noise, and of the parts for `mean_model`.

    Attributes
    ----------
    prior_ : Prior
        The fitted population, with `mean_` and `variance_`.
    mean_model_ : regressor or None
        The regressor that was fitted to all groups, if there is a `mean_model`; None if its
        predictions are of no use.
    summaries_, groups_, notes_, log_likelihood_ :
        See `LocationEstimator`.

    References
    ----------
    Clayton and Kaldor (1987), Empirical Bayes estimates of age-standardized relative risks for use
    in disease mapping; Ignatiadis and Wager (2019), Covariate-powered empirical Bayes estimation.

    Examples
    --------
    >>> import numpy as np
    >>> import ebfed as eb
    >>> rng = np.random.default_rng(0)
    >>> person_years = rng.uniform(10, 100, 300)
    >>> deaths = rng.poisson(person_years * rng.gamma(4, 0.05, 300))
    >>> est = eb.PoissonEB().fit(deaths, groups=np.arange(300), exposure=person_years)
    >>> est.prior_.mean_.round(1), est.prior_.shape_.round(0)
    (array([0.2]), array([4.]))
    >>> est.predict(groups=[0, 999]).round(2)  # 999: no row of it was seen
    array([0.2 , 0.19])
    """

    _: KW_ONLY
    prior: str | Prior = "gamma"
    mean_model: Any = None

    def protocol(self) -> LocationRounds:
        prior = chosen_prior(self.prior, "gamma", "log_spline", "npmle")
        return LocationRounds(self, Poisson(), prior)
