"""Bernoulli location: a rate for every group."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ebfed.families import Binomial
from ebfed.location.base import ReportingEstimator, chosen_prior
from ebfed.location.rounds import LocationRounds
from ebfed.priors import Prior
from ebfed.privacy.calibration import as_float
from ebfed.tables.intake import GroupRows, Intake
from ebfed.tables.rows import Rows

__all__ = ["BernoulliEB"]


@dataclass(eq=False, repr=False)
class BernoulliEB(ReportingEstimator):
    """Empirical Bayes rates of many groups.

    Rows of group i are 0 or 1 with probability ``p_i`` of a 1, and ``p_i`` is drawn from a
    distribution, the population.
    With a beta population, ``z_i`` ones in ``n_i`` rows give

        p_i^ = a_i z_i / n_i + (1 - a_i) mu,   a_i = n_i / (n_i + alpha + beta),

    with alpha and beta by maximum likelihood of the beta-binomial. Columns of `X` are treated one
    by one. A table of counts is fitted through `Summary.from_counts`.

    With covariates w_i of the groups, ``fit(X, groups=…, covariates=…)``, group i has its own mean,
    ``logit mu_i = w_i' c``, and the sum alpha + beta is the same in all groups. This is
    beta-binomial regression, by maximum likelihood. If the covariates explain all differences
    between groups, it is logistic regression. Covariates are public: clients send them without
    noise. The channel must be `channels.Exact`.

    Parameters
    ----------
    method : {"ml", "moments", "paper"}
        Method by which the beta population is fitted. ``"paper"`` is eq. (6) of Ozkara et al.
        (2023): for each client, the population has the mean and the variance of the raw proportions
        of the other clients; with a private channel, of their noisy reports (Theorem 4). This
        variance is too large, because it includes sampling noise. Use it only to repeat the results
        of the paper.
    prior : "beta", "log_spline", "npmle" or Prior
        The population. A `Prior` is copied, and has its own method; a fitted one is used as it is:
        see `ebfed.priors`.
    binarize : float, optional
        Threshold above which a value of `X` counts as 1, as in `sklearn.naive_bayes.BernoulliNB`.
        None: `X` must be 0 or 1.
    channel : Channel or dict of Channel, optional
        How a client, the owner of a group's rows, reports them: `channels.Exact()` if None, which
        sends sums without noise. A dict has a channel for each class of `consent`.
    guess : channels.Guess, optional
        Public guess of the population's mean and spread. A channel computes its range from it,
        and the questions that clients answer.
    participation : int or bool array-like of shape (n_groups,), optional
        Clients that report; all if None; see `GaussianEB`.
    mean_model : regressor of scikit-learn, optional
        Regressor that learns the mean of the population from covariates, as of `GaussianEB`; here
        ``logit mu_i = a + b logit x``, with x its prediction for the group.
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
    Ozkara, Girgis, Data, Diggavi (2023), A statistical framework for personalized federated
    learning and estimation, section 2.2; Ignatiadis and Wager (2019), Covariate-powered empirical
    Bayes estimation.

    Examples
    --------
    >>> import ebfed as eb
    >>> y, groups, p = eb.datasets.make_bernoulli_groups(500, 14, random_state=0)
    >>> est = eb.BernoulliEB().fit(y, groups=groups)
    >>> est.prior_.mean_.round(1), est.prior_.variance_.round(2)
    (array([0.5]), array([0.03]))
    >>> est.predict(groups=[0, 1, 999_999]).round(2)
    array([0.64, 0.36, 0.5 ])

    Rates that depend on covariates of the groups:

    >>> rng = np.random.default_rng(0)
    >>> age = rng.uniform(20, 80, 300)
    >>> rate = rng.beta(*(8 / (1 + np.exp(s * (3 - 0.06 * age))) for s in (1, -1)))
    >>> counts = eb.Summary.from_counts(rng.binomial(12, rate), np.full(300, 12))
    >>> est = eb.BernoulliEB().fit(counts, covariates=age)
    >>> est.coef_.round(2), est.posterior(groups=[999], covariates=[50]).mean.round(1)
    (array([0.06]), array([[0.5]]))
    """

    _: KW_ONLY
    method: Literal["ml", "moments", "paper"] = "ml"
    prior: str | Prior = "beta"
    binarize: float | None = None
    mean_model: Any = None

    def protocol(self) -> LocationRounds:
        if self.method not in ("ml", "moments", "paper"):
            raise ValueError(f"method must be 'ml', 'moments' or 'paper'; got {self.method!r}.")
        prior = chosen_prior(self.prior, "beta", "log_spline", "npmle", method=self.method)
        return LocationRounds(self, Binomial(), prior)

    def _read(
        self, X: Any, groups: Any, *, y: Any = None, learn: bool = False, **given: Any
    ) -> GroupRows:
        """Read rows of 0 and 1, or of shares with numbers of trials; see `Intake.read`."""
        if self.binarize is not None and Intake.is_lazy(X):
            raise ValueError(
                "binarize cuts rows in memory; cut those of X where they are, to a column of "
                "0 and 1."
            )
        rows = super()._read(X, groups, y=y, learn=learn, **given)
        if rows.values is not None and "sample_weight" not in rows.of_rows:
            family: Any = self.protocol().family
            family.check_whole_rows(rows.values)
        return rows

    def _checked_rows(self, rows: Rows, learn: bool) -> NDArray:
        """Check values, and cut them at the threshold if there is one."""
        if self.binarize is None:
            return super()._checked_rows(rows, learn)
        if np.isnan(as_float(self.binarize)):
            raise ValueError(f"binarize must be a number or None; got {self.binarize!r}.")
        return (self._numbers(rows, learn) > self.binarize).astype(float)
