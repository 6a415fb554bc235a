"""Normal populations within normal populations: counties of states, and states of a country."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ebfed.likelihoods import Gaussian, Likelihood
from ebfed.priors.base import WELL_KNOWN, OwnReports, Prior
from ebfed.priors.exploration import side_by_side
from ebfed.priors.identification import ONE_GROUP, ONE_ROW, UNKNOWN_NOISE
from ebfed.priors.integrated import integrated
from ebfed.priors.nested import NestedFit, descend, fit_nested, paths_of, settled
from ebfed.priors.normal import NormalPosterior
from ebfed.priors.posterior import IndependentNormals, Posterior
from ebfed.tables.labels import number_keys, number_parents

__all__ = ["NestedNormal"]

NO_SPREAD = (
    "Estimated variance between groups of one {parent} is zero: they differ no more than their "
    "noise explains, and every estimate is that of the {parent}."
)
NO_SPREAD_ABOVE = (
    "Estimated variance between groups of level {name!r} is zero: they differ no more than the "
    "levels below explain."
)
ALONE = (
    "No parent has two groups of level {name!r}: its variance is not identified apart, and taken "
    "to be zero."
)
ALONE_BELOW = (
    "Every {name} has one group: variances within and between them are not identified apart, and "
    "taken to be that of the {name} alone."
)
FEW = (
    "Level {name!r} has {n} groups with data: its variance is hardly known. Standard deviations "
    "and intervals take it to be as estimated."
)


# Learned attributes that differ between plausible populations.
OF_EACH = (
    *("variance_", "above_", "mean_", "mean_variance_", "centre_", "centre_variance_"),
    *("node_means_", "node_variances_", "node_pulls_"),
)


class NestedNormal(Prior):
    """Populations within populations: ``theta_i ~ N(mu_s, variance)``, ``mu_s ~ N(mean, above)``.

    Group i belongs to the parent s, such as a county to a state, and a parent may belong to another
    one. Fitted to Gaussian messages, the variances of all levels and the noise maximise one joint
    restricted likelihood (`priors.nested`), as lme4's ``(1 | state/county)``; variances of zero are
    normal answers. A level in which no parent has two groups shares its variance with the one
    above: that has it all.

    A group of a known parent comes from ``N(mu_s^, variance)``, where what is not known of mu_s
    given all data is part of its standard deviation; a group of an unknown one comes from the
    population of parents.

    Where variances are not known well, posteriors average over plausible ones of all such levels,
    under a prior that is flat in the standard deviation of each level, times the fifth root of its
    share of the variance of a typical message; else terms of second order are added, for the lowest
    level. A level with two parents has no interval of its own for its variance: that is taken as
    estimated, and said.

    Parameters
    ----------
    names : sequence of str
        Names of the levels above the groups, from the top.
    method : {"reml", "ml"}

    Attributes
    ----------
    mean_, centre_ : ndarray of shape (d,)
        Mean of all; `mean_` is that of each group's parent, where this is the population `at` it.
    variance_ : ndarray of shape (d,)
        Variance of groups around their parent.
    above_ : ndarray of shape (n_above, d)
        Variances of the levels above, from the top.
    mean_variance_, centre_variance_, variance_variance_ : ndarray of shape (d,)
        Sampling variances of `mean_`, `centre_` and `variance_`.
    noise_variance_ : ndarray of shape (d,) or None
    node_keys_ : ndarray of shape (n_nodes, n_above)
        Numbers of each parent and those above it, from the top; NaN below its own level.
    node_means_, node_variances_ : ndarray of shape (n_nodes, d)
        Estimates of the parents, and their variances.

    References
    ----------
    Searle, Casella and McCulloch (1992), Variance components; Bates, Maechler, Bolker, Walker
    (2015), Fitting linear mixed-effects models using lme4, J. Stat. Softw. 67; Gelman (2006), Prior
    distributions for variance parameters in hierarchical models.

    Examples
    --------
    >>> counties = Gaussian(np.array([[1.0], [3.0], [6.0], [8.0]]), np.full((4, 1), 0.5))
    >>> states = np.array([[48.0], [48.0], [12.0], [12.0]])
    >>> prior = NestedNormal(["state"]).fit(counties, states)
    >>> prior.mean_, prior.variance_, prior.above_.ravel()
    (array([4.5]), array([1.5]), array([11.5]))
    >>> prior.at(np.array([[48.0], [99.0]])).mean_.ravel().round(2)
    array([2.2, 4.5])
    """

    takes_covariates: ClassVar[bool] = True
    max_features: ClassVar[float] = np.inf
    _is_linear: ClassVar[bool] = True
    _by_column: ClassVar[tuple[str, ...]] = ("mean_variance_", "variance_variance_", "above_")

    kurtosis_: NDArray
    second_moment_: NDArray
    node_keys_: NDArray
    node_means_: NDArray
    node_variances_: NDArray
    node_pulls_: NDArray
    node_above_: NDArray[np.int64]
    above_: NDArray
    centre_: NDArray
    centre_variance_: NDArray

    def __init__(
        self, names: Sequence[str] = ("parent",), *, method: Literal["reml", "ml"] = "reml"
    ):
        self.names = names
        self.method = method

    # Fitting ----------------------------------------------------------------------------------

    def _fit(self, likelihood: Likelihood) -> None:
        raise ValueError("the parents of groups must be given.")

    def _fit_with_covariates(self, likelihood: Likelihood, covariates: NDArray) -> None:
        if self.method not in ("reml", "ml"):
            raise ValueError(f"method must be 'reml' or 'ml' with levels; got {self.method!r}.")
        if not isinstance(likelihood, Gaussian):
            raise TypeError(
                "levels are for Gaussian messages: means as they are, or with Gaussian noise."
            )
        if covariates.shape[1] != len(self.names):
            raise ValueError(
                f"the parents of groups must have shape (n, {len(self.names)}); got "
                f"{covariates.shape}."
            )
        self.node_keys_, parents = number_parents(covariates)
        self.node_above_ = _above(parents)
        columns = [likelihood.column(j) for j in range(likelihood.n_features)]
        paths = paths_of(parents, len(likelihood))
        fits = [fit_nested(column, paths, self.method) for column in columns]
        self._set(columns, parents, [(fit.variances, fit.noise) for fit in fits])
        self.spreads_above_ = dict(zip(map(str, self.names), np.sqrt(self.above_), strict=True))
        if likelihood.scatter is not None:
            self.noise_variance_ = np.array([fit.noise for fit in fits])
        self.variance_variance_ = np.array([fit.covariance[-1, -1] for fit in fits])
        # fourth moments around estimates of parents are not those around the parents
        self.kurtosis_ = np.full(len(fits), np.inf)
        self.second_moment_ = self.variance_ + np.sqrt(self.variance_variance_)
        self.n_parameters_ = len(fits) + sum(fit.n_free for fit in fits)
        self.joint_log_marginal_ = sum(fit.log_likelihood for fit in fits)
        if self.method == "reml":
            with np.errstate(divide="ignore"):
                value = float(np.log(2 * np.pi * self.mean_variance_).sum() / 2)
            self.restriction_ = value if np.isfinite(value) else None
        self._explain(likelihood, fits)
        self._find_later(NestedNormal._learn_plausible, columns, parents, fits)

    def _set(
        self,
        columns: Sequence[Gaussian],
        parents: list[NDArray[np.int64]],
        found: Sequence[tuple[NDArray, float]],
    ) -> None:
        """Set the population with these variances and noise: best means of all parents."""
        whole = [
            descend(column.values[:, 0], settled(column.variances[:, 0], noise), parents, between)
            for column, (between, noise) in zip(columns, found, strict=True)
        ]
        self.mean_ = self.centre_ = np.array([each.centre for each in whole])
        self.mean_variance_ = self.centre_variance_ = np.array([each.doubt for each in whole])
        for name, parts in (
            ("node_means_", [each.levels for each in whole]),
            ("node_variances_", [each.variances for each in whole]),
            ("node_pulls_", [each.pulls for each in whole]),
        ):
            setattr(self, name, np.array([np.concatenate(part[:-1]) for part in parts]).T)
        variances = np.array([between for between, _ in found]).T
        self.above_, self.variance_ = variances[:-1], variances[-1]

    def _learn_plausible(
        self, columns: Sequence[Gaussian], parents: list[NDArray[np.int64]], fits: list[NestedFit]
    ) -> None:
        """Find variances of all levels that the messages leave plausible, each with its means."""
        searches = [fit.plausible(fit.hardly_known(WELL_KNOWN)) for fit in fits]
        if all(len(weights) == 1 for _, weights in searches):
            return
        points, weights = side_by_side(searches)  # shape (K, n_levels + 1, d)
        populations = [copy(self) for _ in points]
        for one, each in zip(populations, points, strict=True):
            one._set(columns, parents, [(column[:-1], float(column[-1])) for column in each.T])
        self.plausible_ = {
            name: np.array([getattr(one, name) for one in populations]) for name in OF_EACH
        }
        self.plausible_["variance_variance_"] = np.zeros(self.plausible_["variance_"].shape)
        self.plausible_["weights"] = weights

    def _explain(self, likelihood: Gaussian, fits: list[NestedFit]) -> None:
        """Add notes on what the data do not identify, or is at a boundary."""
        sizes = np.max([fit.sizes for fit in fits], axis=0)
        if sizes[-1] < 2:
            self._add_note(ONE_GROUP, True)
            if likelihood.scatter is not None and likelihood.degrees == 0:
                self._add_note(ONE_ROW)
            return
        if likelihood.scatter is not None and likelihood.degrees == 0:
            self.noise_is_unknown_ = True
            self._add_note(UNKNOWN_NOISE, True)
        more = np.diff([1, *sizes])
        for level, name in enumerate(self.names):
            if not more[level]:
                self._add_note(ALONE.format(name=name))
            elif more[level] < 2:
                self._add_note(FEW.format(name=name, n=sizes[level]))
            elif np.any(self.above_[level] == 0):
                self._add_note(NO_SPREAD_ABOVE.format(name=name))
        if not more[-1]:
            self._add_note(ALONE_BELOW.format(name=self.names[-1]))
        elif np.any(self.variance_ == 0):
            self._add_note(NO_SPREAD.format(parent=self.names[-1]))

    # Populations ------------------------------------------------------------------------------

    @property
    def _n_covariates(self) -> int:
        return len(self.names)

    @property
    def weighs_own_reports(self) -> bool:
        """Whether a group's exact mean replaces its own message in that of its parent."""
        return True

    def at(self, covariates: NDArray) -> Self:
        """Return the population of groups of these parents, numbers of shape (n, n_above).

        Of a parent that was not in the fit, all that is known is its own parent, or the mean.
        """
        there = copy(self)
        there.covariates_ = np.asarray(covariates, float)
        place, known = self._places(there.covariates_)
        seen = (place >= 0)[:, None]
        there.mean_ = np.where(seen, self.node_means_[place], self.centre_)
        extra = np.array([self.above_[n:].sum(axis=0) for n in range(len(self.names) + 1)])
        doubt = np.where(seen, self.node_variances_[place], self.centre_variance_)
        there.mean_variance_ = doubt + extra[known]
        return there

    def _places(self, keys: NDArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Find the lowest known parent of each group, -1 for none, and how many are known."""
        place, known = np.full(len(keys), -1), np.zeros(len(keys), np.int64)
        depth = np.isfinite(self.node_keys_).sum(axis=1)
        for level in range(1, len(self.names) + 1):
            nodes = np.flatnonzero(depth == level)
            codes = number_keys(np.vstack([self.node_keys_[nodes, :level], keys[:, :level]]))
            table = np.full(codes.max(initial=0) + 1, -1)
            table[codes[: len(nodes)]] = nodes
            found = table[codes[len(nodes) :]]
            place, known = np.where(found >= 0, found, place), known + (found >= 0)
        return place, known

    def _posterior(
        self, likelihood: Likelihood, own: ArrayLike = 0.0, noise: ArrayLike | None = None
    ) -> Posterior:
        """Conjugate posterior; see `NormalPosterior`."""
        if not isinstance(likelihood, Gaussian):
            raise TypeError("levels are for Gaussian messages.")
        return NestedPosterior(self, likelihood, own, noise)

    def posterior_of_members(self, likelihood: Likelihood, own: OwnReports) -> Posterior:
        """Weigh by what each group's own message left in the mean of its parent."""
        fitted = self._posterior(likelihood, own.variance, own.error)
        return integrated(self, likelihood, fitted, own.variance, own.error)

    def without_doubt(self) -> Self:
        """Return the population as if variances and the mean of all were known.

        What is not known of parents stays: they are no parameters of the population.
        """
        known = self._like({})
        shares = np.ones_like(self.node_pulls_)
        for node, above in enumerate(self.node_above_):  # parents come first
            shares[node] = self.node_pulls_[node] * (shares[above] if above >= 0 else 1.0)
        left = self.node_variances_ - shares**2 * self.centre_variance_
        known.node_variances_ = np.maximum(left, 0.0)
        known.variance_variance_ = known.centre_variance_ = np.zeros_like(self.centre_variance_)
        known.mean_, known.mean_variance_ = self.centre_, known.centre_variance_
        return known.at(self.covariates_) if self.mean_.ndim > 1 else known

    def errors_of_means(self, size: int, rng: np.random.Generator) -> NDArray:
        """Draw the error of the mean of each group's parent, shape (size, n, d)."""
        d = len(self.centre_)
        centre = np.sqrt(self.centre_variance_) * rng.standard_normal((size, 1, d))
        if self.mean_.ndim == 1:
            return centre
        nodes = np.empty((size, len(self.node_means_), d))
        depth = np.isfinite(self.node_keys_).sum(axis=1)
        for level in range(1, len(self.names) + 1):
            some = np.flatnonzero(depth == level)
            above, pull = self.node_above_[some], self.node_pulls_[some]
            error = nodes[:, above] if level > 1 else centre
            spread = self.node_variances_[above] if level > 1 else self.centre_variance_
            own = np.sqrt(np.maximum(self.node_variances_[some] - pull**2 * spread, 0.0))
            nodes[:, some] = pull * error + own * rng.standard_normal((size, len(some), d))
        place, _ = self._places(self.covariates_)
        seen = (place >= 0)[:, None]
        errors = np.where(seen, nodes[:, place], centre)
        doubt = np.where(seen, self.node_variances_[place], self.centre_variance_)
        extra = np.sqrt(np.maximum(self.mean_variance_ - doubt, 0.0))
        return errors + extra * rng.standard_normal(errors.shape)

    def logpdf(self, theta: NDArray) -> NDArray:
        """Log-density at theta of shape (k, d), shape (k,); of given parents, (n, k)."""
        away = theta - self.mean_[..., None, :]
        variance = self._total()[..., None, :]
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.log(2 * np.pi * variance) + away**2 / variance
        return -0.5 * terms.sum(axis=-1)

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        """Draw from the population: of unknown parents, or one of each given, shape (size, d)."""
        noise = np.random.default_rng(random_state).standard_normal((size, self.mean_.shape[-1]))
        return self.mean_ + np.sqrt(self._total()) * noise

    def log_marginal(self, likelihood: Likelihood) -> NDArray:
        """Log-density of each message by itself: of its parent as estimated, or of any, (n,)."""
        if not isinstance(likelihood, Gaussian):
            raise TypeError("levels are for Gaussian messages.")
        return likelihood.marginal(self.mean_, self._total())

    def _total(self) -> NDArray:
        """Variance of a group's parameter."""
        if self.mean_.ndim > 1:
            return self.variance_ + self.mean_variance_
        return self.variance_ + self.above_.sum(axis=0)


class NestedPosterior(NormalPosterior):
    """`NormalPosterior` whose draws have one error of the mean for all groups of a parent."""

    _prior: Any

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        """Draw `size` values of each group's parameter, shape (size, n, d)."""
        rng, prior = np.random.default_rng(random_state), self._prior
        pull = 1 - self._weight
        common = np.minimum(pull**2 * prior.mean_variance_, self.sd**2)
        draws = pull * prior.errors_of_means(size, rng)
        draws = draws + np.sqrt(self.sd**2 - common) * rng.standard_normal((size, *self.mean.shape))
        return self.mean + draws

    def around_parents(self) -> IndependentNormals:
        """Posterior of how each group differs from its parent."""
        prior, own = self._prior, self._weight
        variance = self.sd**2 + (own**2 - (1 - own) ** 2) * prior.mean_variance_
        return IndependentNormals(self.mean - prior.mean_, np.sqrt(np.maximum(variance, 0)))


def _above(parents: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Place of each node's parent among the nodes; -1 at the top."""
    n_top = (parents[0].max() if len(parents) else 0) + 1
    above, first = [np.full(n_top, -1)], 0
    for of_level in parents[:-1]:
        above.append(of_level + first)
        first += len(above[-2])
    return np.concatenate(above)
