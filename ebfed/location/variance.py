"""Variances: one for every group, shrunk as in limma."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Unpack

from ebfed.families import Variance
from ebfed.location.base import ReportingEstimator, chosen_prior
from ebfed.location.rounds import LocationRounds
from ebfed.priors import Prior
from ebfed.tables.of_rows import OfRows

__all__ = ["VarianceEB"]


@dataclass(eq=False, repr=False)
class VarianceEB(ReportingEstimator):
    r"""Empirical Bayes variances of many groups.

    Rows of group i are ``x_ij ~ N(mu_i, sigma_i**2)``, with a mean of its own that is of no
    interest, and ``sigma_i**2`` is drawn from a distribution, the population. The sample variance
    ``s_i**2`` has ``d_i = n_i - 1`` degrees of freedom. With an inverse gamma population of prior
    variance ``s0**2`` on ``d0`` degrees of freedom, the estimate is

    .. math:: \tilde s_i^2 = \frac{d_0 s_0^2 + d_i s_i^2}{d_0 + d_i},

    with d0 and s0**2 by maximum likelihood, or by moments as in the R package limma:
    ``prior=priors.InverseGamma(method="moments")``. For other populations the estimate is ``1 /
    E(1 / sigma_i**2)``, which that is for an inverse gamma. Columns of `X` are treated one by one.

    With covariates w_i of the groups the mean of ``log sigma_i**2`` is ``w_i' c``, and d0 is the
    same in all groups. Covariates are public, and the channel must be `channels.Exact`.

    Any channel can send ``log s_i**2``: its range, and a `guess`, are those of a logarithm. A
    channel protects the values; numbers of rows are public.

    The fitted population `prior_`, `tidy`, `summary` and plots are on the scale of ``log
    sigma**2``; `predict`, `posterior`, `estimates` and `augment` give variances.

    Parameters
    ----------
    prior : "inverse_gamma", "log_spline", "npmle" or Prior
        The population of the logarithms of variances. A `Prior` is copied; a fitted one is used as
        it is: see `ebfed.priors`.
    channel : Channel or dict of Channel, optional
        How a client, the owner of a group's rows, reports them: `channels.Exact()` if None. A dict
        has a channel for each class of `consent`.
    guess : channels.Guess, optional
        Public guess of mean and spread of the logarithms. A channel that has no range computes its
        range from the guess.
    participation : int or bool array-like of shape (n_groups,), optional
        Clients that report; all if None; see `GaussianEB`.
    engine : Engine, optional
        Engine on which clients compute; `engines.Local()` if None.
    random_state : int, Generator or None
        Seed of the channel's noise.

    Attributes
    ----------
    prior_ : Prior
        The fitted population. An inverse gamma has `df_` and `scale_`, which are d0 and s0**2.
    summaries_, groups_, notes_, log_likelihood_ :
        See `LocationEstimator`.

    References
    ----------
    Smyth (2004), Linear models and empirical Bayes methods for assessing differential expression in
    microarray experiments; Lu and Stephens (2016), Variance adaptive shrinkage.

    Examples
    --------
    >>> import numpy as np
    >>> import ebfed as eb
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(np.arange(500), 4)
    >>> sd = np.sqrt(6 / rng.chisquare(6, 500))
    >>> est = eb.VarianceEB().fit(rng.normal(0, sd[groups]), groups=groups)
    >>> est.prior_.df_.round(1), est.prior_.scale_.round(2)
    (array([7.6]), array([1.07]))
    >>> est.predict(groups=[0, 999]).round(2)  # 999: no row of it was seen
    array([0.96, 1.07])
    """

    _: KW_ONLY
    prior: str | Prior = "inverse_gamma"

    def protocol(self) -> LocationRounds:
        prior = chosen_prior(self.prior, "inverse_gamma", "log_spline", "npmle")
        return LocationRounds(self, Variance(), prior)

    def augment(
        self, X: Any, *, groups: Any = None, covariates: Any = None, **of_rows: Unpack[OfRows]
    ) -> Any:
        """Return the rows with the variance of their group.

        Parameters
        ----------
        X, groups, covariates, sample_weight : as in `predict`

        Returns
        -------
        DataFrame
            As of `LocationEstimator.augment`, without residuals: rows are not around a variance.
        """
        found = super().augment(X, groups=groups, covariates=covariates, **of_rows)
        residuals = [name for name in found.columns if str(name).startswith(".resid")]
        return found.drop(columns=residuals) if hasattr(found, "loc") else found.drop(residuals)
