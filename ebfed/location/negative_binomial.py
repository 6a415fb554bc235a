"""Negative binomial location: a rate of events for every group, from rows that scatter more."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ebfed.families import NegativeBinomial
from ebfed.location.base import ReportingEstimator, chosen_prior
from ebfed.location.rounds import LocationRounds
from ebfed.priors import Prior
from ebfed.privacy.calibration import is_number
from ebfed.tables.rows import Rows

__all__ = ["NegativeBinomialEB"]


@dataclass(eq=False, repr=False)
class NegativeBinomialEB(ReportingEstimator):
    r"""Empirical Bayes rates of events of many groups, whose rows scatter more than Poisson counts.

    Rows of group i are negative binomial counts, with mean ``m_i = e_i lambda_i`` and variance
    ``m_i + dispersion m_i**2``; the rate ``lambda_i`` is drawn from a distribution, the population.
    `PoissonEB` has rows without dispersion: it takes all scatter of rows within groups for Poisson
    noise, and the means of groups for more precise than they are.

    The dispersion is the same in all groups. It is estimated from the rows within groups alone, by
    the likelihood of rows given the sum of their group,

    .. math:: \sum_i \Big[\sum_j \log \frac{\Gamma(y_{ij} + r)}{\Gamma(r)}
        - \log \frac{\Gamma(y_i + n_i r)}{\Gamma(n_i r)}\Big], \qquad r = 1 / \text{dispersion},

    which does not depend on the rates. The sum of a group is negative binomial of size ``n_i r``;
    given it and the dispersion, the population is fitted by maximum likelihood, and posteriors are
    by quadrature. Intervals take the dispersion as known.

    A channel protects only the counts: numbers of rows and exposures are public, and are sent
    without noise.

    Parameters
    ----------
    dispersion : "estimate" or float
        Positive number, where it is known. At 0, rows are those of `PoissonEB`.
    prior : "gamma", "log_spline", "npmle" or Prior
        The population. A `Prior` is copied; a fitted one is used as it is, with the dispersion of
        its fit: see `ebfed.priors`.
    channel : Channel or dict of Channel, optional
        How a client, the owner of a group's rows, reports them: `channels.Exact()` if None. A dict
        has a channel for each class of `consent`. Reports of rates show nothing of how rows
        scatter: where no class has `channels.Exact`, the dispersion must be given.
    guess : channels.Guess, optional
        Public guess of the population's mean and spread; see `PoissonEB`.
    participation : int or bool array-like of shape (n_groups,), optional
        Clients that report; all if None; see `GaussianEB`.
    engine : Engine, optional
        Engine on which clients compute; `engines.Local()` if None.
    random_state : int, Generator or None
        Seed of the channel's noise, and of `participation`.

    Attributes
    ----------
    dispersion_ : ndarray of shape (d,)
        Dispersion of each column; 0 if rows scatter no more than Poisson counts.
    prior_ : Prior
        The fitted population, with `mean_` and `variance_`.
    summaries_, groups_, notes_, log_likelihood_ :
        See `LocationEstimator`.

    References
    ----------
    Robinson and Smyth (2008), Small-sample estimation of negative binomial dispersion.

    Examples
    --------
    >>> import numpy as np
    >>> import ebfed as eb
    >>> rng = np.random.default_rng(0)
    >>> group, rate = np.repeat(np.arange(400), 6), rng.gamma(4, 1.0, 400)
    >>> counts = rng.poisson(rate[group] * rng.gamma(2, 0.5, 2400))  # a dispersion of 1/2
    >>> est = eb.NegativeBinomialEB().fit(counts, groups=group)
    >>> est.dispersion_.round(1), est.prior_.mean_.round(1), est.prior_.shape_.round(0)
    (array([0.5]), array([4.]), array([4.]))
    """

    _: KW_ONLY
    dispersion: float | Literal["estimate"] = "estimate"
    prior: str | Prior = "gamma"

    def protocol(self) -> LocationRounds:
        family = NegativeBinomial()
        if not (isinstance(self.dispersion, str) and self.dispersion == "estimate"):
            if not (is_number(self.dispersion) and 0 < float(self.dispersion) < 1e6):
                raise ValueError(
                    "dispersion must be 'estimate' or a positive number; got "
                    f"{self.dispersion!r}. PoissonEB has rows without dispersion."
                )
            family = NegativeBinomial(float(self.dispersion))
        prior = chosen_prior(self.prior, "gamma", "log_spline", "npmle")
        return NegativeBinomialRounds(self, family, prior)

    @property
    def dispersion_(self) -> NDArray:
        """Dispersion of each column, shape (d,)."""
        check_is_fitted(self, "prior_")
        known: Any = self.prior_.noise_variance_
        if known is None:  # it is given, or not identified
            known = 0.0 if isinstance(self.dispersion, str) else self.dispersion
        return np.array(np.broadcast_to(known, self.n_features_in_), float)

    def _checked_rows(self, rows: Rows, learn: bool) -> NDArray:
        """Check counts of one column."""
        values = super()._checked_rows(rows, learn)
        if values.shape[1] > 1:
            raise ValueError(
                f"X must be one column of counts; it has {values.shape[1]}. Fit them one by one."
            )
        return values


class NegativeBinomialRounds(LocationRounds):
    """Rounds of one population for all groups."""

    def check_covariates(self) -> None:
        """Refuse covariates and levels."""
        raise TypeError(
            "NegativeBinomialEB has one population for all groups; PoissonEB takes covariates= and "
            "levels of groups."
        )
