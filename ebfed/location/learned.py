"""What a location fit has learned: a population, the clients it was fitted to, and posteriors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.channels import Channel
from ebfed.engines.protocol import LocationMemory
from ebfed.families import Family
from ebfed.likelihoods import Likelihood
from ebfed.location.consent import settled
from ebfed.priors import Posterior, Prior
from ebfed.priors.base import OwnReports
from ebfed.priors.inverse_gamma import VariancePosterior
from ebfed.tables.clients import Summary
from ebfed.tables.intake import GroupRows
from ebfed.tables.unseen import warn_of_unseen

__all__ = ["Learned", "known_noise"]


def method_of(prior: Prior, of_means: bool = True) -> str:
    """Name how a population was fitted, to means or to other messages, in a few words.

    Examples
    --------
    >>> from ebfed.likelihoods import Gaussian
    >>> from ebfed.priors import Normal
    >>> messages = Gaussian(np.array([[0.0], [1.0], [4.0]]), np.ones((3, 1)))
    >>> [method_of(Normal(method=name).fit(messages)) for name in ("reml", "ml", "moments")]
    ['REML', 'maximum likelihood', 'moments']
    """
    if prior.is_reused_:
        return "an earlier fit"
    restricted = prior.restriction_ is not None
    method = getattr(prior, "method", "reml" if restricted else "ml")
    if method == "reml" and not (of_means or restricted):
        method = "ml"  # of reports that are not normal around the means
    names = {"reml": "REML", "moments": "moments", "paper": "eq. (6)"}
    names["paule_mandel"] = "Paule and Mandel"
    return names.get(method, "maximum likelihood")


@dataclass
class Learned:
    """The population of a fit, and what it says of groups.

    Parameters
    ----------
    prior : Prior
        Fitted.
    family : Family
        Family of the rows, with what the fit learned about them.
    channels : dict of Channel
        Channels by class of consent, as given.
    settings : list of dict
        Arguments of the channels in each round.
    summaries : Summary
        Figures of the clients of the fit; a server knows their numbers of rows only.
    memory : LocationMemory
        Memory of these clients.
    covariate_names : list of str
    n_clients : int
        Number of clients of the whole fit; a node of a federation has some of them.
    reported : float or None
        Log-likelihood of the reports; None where the clients compute it.
    terms : list of d str
        Names of the parameters of a group.
    is_server : bool
        Whether this is the server's copy; the rows are with the clients.
    ledger : list of dict
        Ledger of what clients sent.
    """

    prior: Prior
    family: Family
    channels: dict[str, Channel]
    settings: list[dict[str, dict[str, Any]]]
    summaries: Summary
    memory: LocationMemory
    covariate_names: list[str]
    n_clients: int
    reported: float | None
    terms: list[str]
    is_server: bool = False
    ledger: list[dict[str, Any]] = field(default_factory=list)

    # Groups -----------------------------------------------------------------------------------

    def places(self, ids: NDArray) -> NDArray[np.int64]:
        """Find groups among those of the fit; -1 for groups that were not in it."""
        import pandas as pd

        if ids is self.summaries.ids:
            return np.arange(len(ids))
        if self.is_server:  # a server does not have the labels of groups
            return np.full(len(ids), -1)
        known, asked = (pd.Index(x, tupleize_cols=False) for x in (self.summaries.ids, ids))
        return known.get_indexer(asked)

    def known(self, ids: NDArray) -> Summary:
        """Summaries of these groups in the fit, empty for groups that were not in it."""
        return self.summaries.among(ids, self.places(ids))

    def asked_for(self, ids: NDArray) -> Summary:
        """Summaries of groups that a user named, who is warned of those not in the fit."""
        warn_of_unseen(ids, self.summaries.ids)
        return self.known(ids)

    def covariates_of(self, ids: NDArray, given: NDArray) -> NDArray:
        """Covariates of these groups: those of the fit or, for others, the given ones."""
        fitted = self.memory["covariates"]
        if not fitted.shape[1]:
            return np.empty((len(ids), 0))
        place = self.places(ids)
        unseen = place < 0
        if not unseen.any():
            return fitted[place]
        if not given.shape[1]:
            raise ValueError(
                f"covariates= must give the covariates {', '.join(self.covariate_names)} of "
                f"{int(unseen.sum())} groups that were not in the fit."
            )
        values = given.copy()
        values[~unseen] = fitted[place[~unseen]]
        return values

    # Estimates --------------------------------------------------------------------------------

    def population(self, covariates: NDArray) -> Prior:
        """Return the fitted population, of clients with these covariates if it has some."""
        return self.prior.at(covariates) if covariates.shape[1] else self.prior

    def expected(self, covariates: NDArray, n: int) -> NDArray:
        """Mean of the population of n clients, shape (n, d)."""
        mean = self.population(covariates).mean_
        return np.broadcast_to(mean, (n, mean.shape[-1]))

    def likelihood(self, summary: Summary) -> Likelihood:
        """Likelihood of clients' own data, with what the fit has learned."""
        return self.family.likelihood(self.family.figures(summary))

    def posterior(self, summary: Summary, covariates: NDArray, integrate: bool = True) -> Posterior:
        """Posterior of clients, from their own data and the population they come from."""
        prior = self.population(covariates)
        prior = prior if integrate else prior.without_doubt()
        return self.shrink(summary, self.likelihood(summary), prior)

    def shown(self, posterior: Posterior) -> Posterior:
        """Return a posterior on the scale on which users read it."""
        return VariancePosterior(posterior) if self.family.is_transformed else posterior

    def estimates_of(self, rows: GroupRows) -> NDArray:
        """Estimate of the group of each row, shape (n_rows, d)."""
        given = self.covariates_of(rows.clients.ids, rows.covariates)
        return rows.spread(self.shown(self.posterior(rows.clients, given)).mean)

    def expected_of(self, rows: GroupRows) -> NDArray:
        """Estimate for each row if nothing were known of its group, shape (n_rows, d)."""
        given = self.covariates_of(rows.clients.ids, rows.covariates)
        if self.family.is_transformed:
            empty = self.family.blank(
                np.zeros(len(rows.summary), np.int64), rows.summary.n_features
            )
            return rows.spread(self.shown(self.posterior(empty, given)).mean)
        if not given.shape[1] and rows.values is not None:
            return np.full(rows.values.shape, self.expected(given, 1))
        return rows.spread(self.expected(given, len(rows.summary)))

    def shrink(self, summary: Summary, likelihood: Likelihood, prior: Prior) -> Posterior:
        """Apply a population to clients, some of whose messages it may have been fitted to."""
        if not prior.weighs_own_reports:
            return prior.posterior(likelihood)
        return prior.posterior_of_members(likelihood, self.own_reports(summary))

    def posterior_of_all(self) -> Posterior:
        """Posterior of the groups of the fit; it has no means on the server."""
        return self.posterior(self.summaries, self.memory["covariates"])

    def posterior_given_population(self) -> Posterior:
        """Posterior of the groups of the fit, if the population were known to be as fitted."""
        return self.posterior(self.summaries, self.memory["covariates"], integrate=False)

    def own_reports(self, summary: Summary) -> OwnReports:
        """Return what each client's own message contributed to the fitted population."""
        if not len(self.summaries) or self.prior.is_reused_:  # of a file without groups; of others
            unknown = np.full(summary.mean.shape, np.nan)
            error = None if self.all_exact or not self.keeps_means else unknown
            return OwnReports(np.full(unknown.shape, np.inf), error, unknown)
        place = self.places(summary.ids)
        seen, at = place >= 0, np.maximum(place, 0)
        turn = np.where(seen, self.memory["turn"][at], -1)
        consent = np.where(seen, self.memory["consent"][at], -1)
        variance = np.full(summary.mean.shape, np.inf)
        for wave, settings in enumerate(self.settings):
            for index, channel in enumerate(settled(self.channels, settings).values()):
                asked = (turn == wave) & (consent == index)
                if channel.is_exact:
                    variance[asked] = 0.0
                elif asked.any():
                    variance[asked] = channel.variance(self.summaries.take(place[asked]))
        reporting = seen & (turn >= 0) & (self.summaries.n[at] > 0)
        value = np.where(reporting[:, None], self.memory["report"][at], np.nan)
        if self.all_exact or not self.keeps_means:
            return OwnReports(variance, None, value)
        own = self.memory["report"][at] - self.summaries.take(at).mean
        return OwnReports(variance, np.where(seen[:, None], own, np.nan), value)

    @property
    def noise_variance(self) -> NDArray | None:
        """Variance of a row within its group, shape (d,), where the family has one."""
        return self.family.noise_variance(self.summaries.n_features)

    @property
    def n_parameters(self) -> int:
        """Number of fitted parameters, noise variances included."""
        prior = self.prior
        if prior.noise_variance_ is None or prior.noise_is_reused_:
            return prior.n_parameters_
        # spherical: fitted with the population's variance, and like it one for all columns
        shared = prior.shares_scale and self.all_exact
        return prior.n_parameters_ + (1 if shared else len(prior.noise_variance_))

    @property
    def method(self) -> str:
        """Name the method of the fit, in a few words."""
        return method_of(self.prior, self.keeps_means)

    @property
    def all_exact(self) -> bool:
        """Whether every client sent its figures as they are."""
        return all(channel.is_exact for channel in self.channels.values())

    @property
    def keeps_means(self) -> bool:
        """Whether every message was a mean, as it is or with Gaussian noise."""
        return all(channel.keeps_means for channel in self.channels.values())

    # Evidence ---------------------------------------------------------------------------------

    def log_evidence(self, summary: Summary, covariates: NDArray) -> NDArray:
        """Log marginal density of each group's rows, shape (n,)."""
        marginal = self.population(covariates).log_marginal(self.likelihood(summary))
        return marginal + self.family.log_base_measure(summary)

    def log_likelihood_of(self, summary: Summary, covariates: NDArray) -> float:
        """Log-likelihood that the fit has maximised, of the rows of all its groups."""
        joint = self.prior.joint_log_marginal_
        if joint is None:
            value = float(self.log_evidence(summary, covariates).sum())
        else:
            value = joint + float(self.family.log_base_measure(summary).sum())
        # rows that are all alike have no density
        return value + (self.prior.restriction_ or 0.0) if value < np.inf else np.nan

    def log_likelihood(self) -> float:
        """Log-likelihood that the fit has maximised: of all rows, or of reports."""
        if self.is_server or len(self.summaries) == self.n_clients:
            if self.reported is not None:  # what clients did not send is not summed up either
                return self.reported
        else:  # a node's own: the likelihood is that of all nodes together
            return np.nan
        return self.log_likelihood_of(self.summaries, self.memory["covariates"])

    @property
    def likelihood_kind(self) -> str:
        """Kind of that likelihood; see `GroupView`."""
        return "ML" if self.prior.restriction_ is None else "REML"

    def design_products(self) -> NDArray:
        """Products of the columns of the mean with themselves and the response; see `GroupView`."""
        n, columns = self.summaries.n, self.memory["covariates"]
        columns = np.column_stack([np.ones(len(n)), columns])
        return (columns * n[:, None]).T @ np.column_stack([columns, self.summaries.mean])


def known_noise(learned: Learned) -> NDArray:
    """Variance of a row around its group's parameter, shape (d,), of a family that has one."""
    noise = learned.noise_variance
    assert noise is not None
    return noise
