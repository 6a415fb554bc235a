"""Durations until an event: a rate of events for every group."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from ebfed.families import Duration, EndedDuration
from ebfed.location.base import ReportingEstimator, chosen_prior
from ebfed.location.consent import named_channels
from ebfed.location.rounds import LocationRounds
from ebfed.priors import Prior

__all__ = ["DurationEB"]


@dataclass(eq=False, repr=False)
class DurationEB(ReportingEstimator):
    r"""Empirical Bayes rates of events of many groups, from durations until the event.

    Durations of group i are exponential with a rate ``lambda_i`` of its own, which is drawn from a
    distribution, the population; ``1 / lambda_i`` is the mean duration. Some durations are
    right-censored: the event had not occurred when observation ended. With a gamma population of
    shape a and mean mu, ``y_i`` events in a total time of ``T_i`` give

    .. math:: \hat\lambda_i = b_i \frac{y_i}{T_i} + (1 - b_i) \mu,
        \qquad b_i = \frac{T_i}{T_i + a / \mu},

    with a and mu by maximum likelihood. The likelihood of rates is that of `PoissonEB` with the
    time at risk as exposure; scores and likelihoods are densities of durations.

    With covariates w_i of the groups, ``log mu_i = w_i' c``, as in `PoissonEB`.

    Parameters
    ----------
    prior : "gamma", "log_spline", "npmle" or Prior
        The population of rates. A `Prior` is copied; a fitted one is used as it is: see
        `ebfed.priors`.
    channel : Channel or dict of Channel, optional
        How a client, the owner of a group's rows, reports them: `channels.Exact()` if None, which
        sends numbers of events and total times. A dict has a channel for each class of `consent`.
        Other channels report the rate ``n_i / T_i`` of n_i durations, and their range is one of
        rates. The number is public, and no duration may be censored: clients refuse such rows, as
        the law of ``T_i`` would depend on what censors them.
    guess : channels.Guess, optional
        Public guess of mean and spread of the rates, from which a channel that has no range
        computes it.
    participation : int or bool array-like of shape (n_groups,), optional
        Clients that report; all if None; see `GaussianEB`.
    engine : Engine, optional
        Engine on which clients compute; `engines.Local()` if None.
    random_state : int, Generator or None
        Seed of the channel's noise, and of `participation`.

    Attributes
    ----------
    prior_ : Prior
        The fitted population, with `mean_` and `variance_`.
    summaries_, groups_, notes_, log_likelihood_ :
        See `LocationEstimator`.

    Notes
    -----
    `X` holds positive durations. All methods that read rows take ``observed=``: 1 (or True) where
    the event ended a duration, 0 where it is censored; an array, or the name of a column of the
    frame `X`. None: all durations ended with the event, or, in a frame with the column that was
    named in `fit`, what that says.

    References
    ----------
    Gaver and O'Muircheartaigh (1987), Robust empirical Bayes analyses of event rates.

    Examples
    --------
    >>> import numpy as np
    >>> import ebfed as eb
    >>> rng = np.random.default_rng(0)
    >>> machine = np.repeat(np.arange(300), 5)
    >>> rate = rng.gamma(4, 0.05, 300)
    >>> hours = rng.exponential(1 / rate[machine])
    >>> seen = hours < 10  # after ten hours observation ends
    >>> est = eb.DurationEB().fit(np.minimum(hours, 10), groups=machine, observed=seen)
    >>> est.prior_.mean_.round(1), est.prior_.shape_.round(0)
    (array([0.2]), array([4.]))
    >>> (1 / est.predict(groups=[0, 999])).round(1)  # mean durations; no row of 999 was seen
    array([5.4, 5. ])
    """

    _: KW_ONLY
    prior: str | Prior = "gamma"

    def protocol(self) -> LocationRounds:
        exact = all(channel.is_exact for channel in named_channels(self.channel).values())
        family = Duration() if exact else EndedDuration()
        prior = chosen_prior(self.prior, "gamma", "log_spline", "npmle")
        return LocationRounds(self, family, prior)
