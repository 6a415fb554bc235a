"""Rates of groups within parents: counties of states, each with a conjugate population.

`within` gives any population with parents that has the form of one without.

The mean of a parent is a number that is integrated out by quadrature: at each of its nodes all that
a group sent has a closed-form probability, and so have the group's posterior and all else.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from ebfed.likelihoods import Likelihood
from ebfed.priors.base import OwnReports, Prior, relative_likelihoods
from ebfed.priors.beta import Beta
from ebfed.priors.conjugate import ByColumn
from ebfed.priors.exploration import explore
from ebfed.priors.gamma import Gamma
from ebfed.priors.integrated import IntegratedPosterior
from ebfed.priors.nested import NestedNormal
from ebfed.priors.normal import Normal
from ebfed.priors.posterior import Posterior
from ebfed.priors.search import maximise
from ebfed.priors.two_moments import Distribution

__all__ = ["NestedBeta", "NestedGamma", "within"]

# Nodes of the first look at the parents; least and most of those after it; those of a posterior.
FIRST, FEWEST, MOST, SHOWN = 60, 60, 400, 15
# Nodes within the error of the parent that is known best.
PER_ERROR = 3.0
# Log of dispersions: of the least, which is taken for none, and of the largest.
LEAST, LARGEST = np.log(1e-7), np.log(1e3)
# How far from the mean of all groups those of parents are sought on the line.
REACH = 9.2
# Chances below it count as it.
TINY = 1e-300
# Log-likelihoods that far below the best say that a parent's mean is not there.
DEPTH = 25.0

NO_SPREAD = "Estimated spread between groups of one {name} is zero: they differ by chance alone."
NO_SPREAD_ABOVE = "Estimated spread between groups of level {name!r} is zero."


class NestedConjugate(Prior):
    """Base of populations within populations of rates; see `NestedBeta`.

    Parameters
    ----------
    names : sequence of one str
        Name of the level above the groups.

    Attributes
    ----------
    mean_ : ndarray of shape (1,)
        Mean of the population of parents; of each group's parent, where this is `at` it.
    variance_ : ndarray of shape (1,)
        Expected variance of groups around their parent.
    dispersion_, dispersion_above_ : float
        Of groups around their parent, and of parents: 1 over the concentration or shape.
    nodes_ : ndarray of shape (k,)
        Means that a parent may have.
    shares_ : ndarray of shape (n_parents, k)
        Probability of each for each parent, given all data.
    population_shares_ : ndarray of shape (k,)
        The same for parents without data.
    node_keys_ : ndarray of shape (n_parents,)
        Numbers of the parents, sorted.
    """

    takes_covariates: ClassVar[bool] = True
    of: ClassVar[type[ByColumn]]

    def __init__(self, names: Sequence[str] = ("parent",)):
        self.names = names

    # Fitting ----------------------------------------------------------------------------------

    def _fit(self, likelihood: Likelihood) -> None:
        raise ValueError("the parents of groups must be given.")

    def _fit_with_covariates(self, likelihood: Likelihood, covariates: NDArray) -> None:
        if covariates.shape[1] != 1 or len(self.names) != 1:
            raise ValueError(
                f"{type(self).__name__} has one level above the groups, {list(self.names)}; got "
                f"{covariates.shape[1]}."
            )
        self.node_keys_, parents = np.unique(covariates[:, 0], return_inverse=True)
        pooled = self.of().fit(likelihood)
        n_parents = len(self.node_keys_)
        alike = not self.of.kind.variance_of(pooled.mean_)[0] > 0
        if alike:
            self.notes_ += pooled.notes_
            found = _alike(float(pooled.mean_[0]), n_parents)
        else:
            found = _ParentTable.of(self, likelihood, parents.ravel(), n_parents, pooled).fit()
        self.__dict__.update(found)
        heights = self.of.kind.variance_of(self.nodes_)[0] @ self.known_population_
        self.variance_ = np.array([heights * self.of.kind.share_of(self.dispersion_)])
        above = self.nodes_**2 @ self.known_population_
        above -= (self.nodes_ @ self.known_population_) ** 2
        self.spreads_above_ = {str(self.names[0]): np.sqrt([max(above, 0.0)])}
        self.n_parameters_ = 3
        if alike:
            return
        if self.dispersion_ == 0:
            self._add_note(NO_SPREAD.format(name=self.names[0]))
        if self.dispersion_above_ == 0:
            self._add_note(NO_SPREAD_ABOVE.format(name=self.names[0]))

    @property
    def _positive_dispersion(self) -> float:
        """Dispersion of groups around their parent, of which the least is not zero."""
        return max(self.dispersion_, float(np.exp(LEAST)))

    # Populations ------------------------------------------------------------------------------

    @property
    def _n_covariates(self) -> int:
        return len(self.names)

    @property
    def weighs_own_reports(self) -> bool:
        """Whether a group that was in the fit differs from one that was not."""
        return True

    def at(self, covariates: NDArray) -> Self:
        """Return the population of groups of these parents, numbers of shape (n, 1)."""
        there = copy(self)
        there.covariates_ = np.asarray(covariates, float)
        keys = there.covariates_[:, 0]
        place = np.minimum(np.searchsorted(self.node_keys_, keys), len(self.node_keys_) - 1)
        seen = self.node_keys_[place] == keys
        table = there.table_ = np.vstack([self.shares_, self.population_shares_])
        place = there.places_ = np.where(seen, place, len(table) - 1)
        there.mean_ = (table @ self.nodes_)[place, None]
        squares = (table @ self.nodes_**2)[place, None]
        there.mean_variance_ = np.maximum(squares - there.mean_**2, 0.0)
        return there

    def without_doubt(self) -> Self:
        """Return the population as if its parameters were known; means of parents are not."""
        known = self._like({})
        known.shares_, known.population_shares_ = self.known_shares_, self.known_population_
        return known.at(self.covariates_) if self.mean_.ndim > 1 else known

    def _table(self, n: int) -> tuple[NDArray, NDArray[np.int64]]:
        """Probabilities of nodes, one row for each parent, and the row of each group."""
        if self.mean_.ndim > 1:
            return self.table_, self.places_
        return self.population_shares_[None], np.zeros(n, np.int64)

    def _weights(self, n: int) -> NDArray:
        table, place = self._table(n)
        return table[place]

    def _logs(self, likelihood: Likelihood) -> NDArray:
        """Log-probability of each group's data at each node, shape (n, k)."""
        return _log_marginals(self.of, likelihood, self.nodes_, self._positive_dispersion)

    def _posterior(self, likelihood: Likelihood, is_new: NDArray | None = None) -> Posterior:
        """Mixture of conjugate posteriors, by the probabilities of the parent's means.

        Parameters
        ----------
        likelihood : Likelihood
        is_new : bool ndarray of shape (n,), optional
            Groups whose data were not in the fit, and say something of the parent's mean too; none,
            if None.
        """
        n = len(likelihood)
        table, place = self._table(n)
        if is_new is not None and is_new.any():
            with np.errstate(divide="ignore"):
                logs = np.log(table[place[is_new]]) + self._logs(likelihood.take(is_new))
            own = np.arange(len(table), len(table) + len(logs))
            table, place = np.vstack([table, _normalised(logs)]), place.copy()
            place[is_new] = own
        used, place = np.unique(place, return_inverse=True)
        means, parents = _quantile_means(self.nodes_, table[used])
        means, parents = means[:, place], parents[place]
        populations = [self.of.known(mean[:, None], self._positive_dispersion) for mean in means]
        parts = [one.posterior(likelihood, integrate=False) for one in populations]
        return ParentMixture(parts, parents)

    def posterior_of_members(self, likelihood: Likelihood, own: OwnReports) -> Posterior:
        """Posterior of groups, those that sent nothing beside those of the fit."""
        return self._posterior(likelihood, np.isinf(own.variance[:, 0]))

    def log_marginal(self, likelihood: Likelihood) -> NDArray:
        """Log-probability of each group's data by itself, of its parent as estimated, (n,)."""
        with np.errstate(divide="ignore"):
            logs = np.log(self._weights(len(likelihood)))
        return logsumexp(logs + self._logs(likelihood), axis=1)

    def logpdf(self, theta: NDArray) -> NDArray:
        """Log-density at theta of shape (k, 1), shape (k,): of a group of an unknown parent."""
        logs = self.of.kind.at(self.nodes_, np.array([self._positive_dispersion])).logpdf(theta)
        with np.errstate(divide="ignore"):
            return logsumexp(logs + np.log(self._weights(1).mean(axis=0)), axis=1)

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        """Draw from the population: of unknown parents, or one of each given, shape (size, 1)."""
        rng = np.random.default_rng(random_state)
        below = np.cumsum(self._weights(size), axis=1)
        picked = (rng.random((size, 1)) > below[:, :-1]).sum(axis=1)
        own = self.of.kind.at(self.nodes_[picked], np.array([self._positive_dispersion]))
        draws = own.draw((size,), rng) if self.dispersion_ else self.nodes_[picked]
        return draws[:, None]


class ParentMixture(IntegratedPosterior):
    """Mixture of posteriors under means of parents, each as likely.

    Parameters
    ----------
    parts : list of Posterior of n groups
    parents : int64 ndarray of shape (n,)
        Number of each group's parent: in a draw, its groups have one mean.
    """

    def __init__(self, parts: list[Posterior], parents: NDArray[np.int64]):
        self._parents = parents
        shares = np.full((len(parts), 1, 1), 1 / len(parts))
        super().__init__(parts[len(parts) // 2], lambda: (parts, shares), True)

    def _picks(self, size: int, rng: np.random.Generator) -> NDArray[np.int32]:
        n_parents = int(self._parents.max(initial=0)) + 1
        of_parents = rng.integers(SHOWN, size=(size, n_parents), dtype=np.int32)
        return of_parents[:, self._parents, None]


class NestedBeta(NestedConjugate):
    """Rates of groups of parents: ``theta_i ~ Beta(mean mu_s, k)``, ``mu_s ~ Beta(mean mu, k_2)``.

    Group i belongs to the parent s, such as a county to a state. mu, k_2 and the concentration k
    maximise the marginal likelihood, in which each mu_s is integrated out on a grid of logits as
    fine as a third of the error of the parent that is known best; given mu_s groups are
    beta-binomial. The posterior of a group is a mixture of beta distributions, by the probabilities
    of mu_s given all data. What is not known of mu and k_2 is part of it, under a prior that is
    flat in mu and in the standard deviation of parents; k is taken to be as estimated, which
    matters where there are few groups.

    Examples
    --------
    >>> from ebfed.likelihoods import Binomial
    >>> counts = Binomial(np.array([[1], [2], [8], [9]]), np.full(4, 10))
    >>> prior = NestedBeta(["state"]).fit(counts, np.array([[0.0], [0.0], [1.0], [1.0]]))
    >>> prior.at(np.array([[0.0], [1.0], [2.0]])).mean_.ravel().round(1)
    array([0.2, 0.8, 0.5])
    """

    support: ClassVar[tuple[float, float]] = (0.0, 1.0)
    of: ClassVar[type[ByColumn]] = Beta


class NestedGamma(NestedConjugate):
    """Rates of events of groups of parents, gamma within gamma; see `NestedBeta`.

    ``theta_i ~ Gamma(mean mu_s, shape k)``, ``mu_s ~ Gamma(mean mu, shape k_2)``.

    Examples
    --------
    >>> from ebfed.likelihoods import Poisson
    >>> counts = Poisson(np.array([[1], [2], [18], [19]]), np.full(4, 10.0))
    >>> prior = NestedGamma(["state"]).fit(counts, np.array([[0.0], [0.0], [1.0], [1.0]]))
    >>> prior.at(np.array([[0.0], [1.0]])).mean_.ravel().round(1)
    array([0.2, 1.8])
    """

    support: ClassVar[tuple[float, float]] = (0.0, np.inf)
    of: ClassVar[type[ByColumn]] = Gamma


class _ParentTable:
    """Messages of groups, and the nodes at which their parents' means may be.

    Attributes
    ----------
    nodes : ndarray of shape (k,)
    start : float
        Log of the dispersion of all groups together.
    nearest : list of ndarray
        The population of parents that was found last.
    """

    def __init__(self, prior: NestedConjugate, rows: Likelihood, times: Any):
        self.prior, self.rows, self.times = prior, rows, times
        self.nodes, self.start = np.empty(0), 0.0
        self.nearest: list[NDArray] = []

    @classmethod
    def of(
        cls,
        prior: NestedConjugate,
        likelihood: Likelihood,
        parents: NDArray,
        n_parents: int,
        pooled: Any,
    ) -> Self:
        """Count the different messages of the groups of each parent, and choose nodes."""
        from scipy.sparse import coo_array

        rows, place = likelihood.numbered() or (likelihood, np.arange(len(likelihood)))
        shape = (n_parents, len(rows))
        table = cls(prior, rows, coo_array((np.ones(len(place)), (parents, place)), shape).tocsr())
        kind = prior.of.kind
        centre = float(kind.to_line(pooled.mean_[0]))
        first, last = centre - REACH, centre + REACH
        # of all groups together; not quite none
        dispersion = float(np.clip(pooled.dispersion_[0], 1e-4, 1e2))
        for size in (FIRST, 4 * FIRST):  # where parents may be, and how well they are known
            table.nodes = kind.from_line(np.linspace(first, last, size))
            logs = table.logs(dispersion)
            near = logs > logs.max(axis=1, keepdims=True) - DEPTH
            some = np.flatnonzero(near.any(axis=0))
            line = kind.to_line(table.nodes)
            step = line[1] - line[0]
            first, last = line[some[0]] - step, line[some[-1]] + step
        density = np.exp(logs - logs.max(axis=1, keepdims=True))
        density /= density.sum(axis=1, keepdims=True)
        centre = density @ line
        error = np.sqrt(np.maximum(density @ line**2 - centre**2, step**2 / 12))
        wanted = PER_ERROR * (last - first) / error.min()
        n_nodes = int(np.clip(wanted, FEWEST, MOST))
        table.nodes = kind.from_line(np.linspace(first, last, n_nodes))
        table.start = float(np.log(dispersion))
        return table

    def logs(self, dispersion: float) -> NDArray:
        """Log-likelihood of each parent's mean at each node, shape (n_parents, k)."""
        dispersion = max(dispersion, float(np.exp(LEAST)))
        return self.times @ _log_marginals(self.prior.of, self.rows, self.nodes, dispersion)

    @property
    def kind(self) -> type[Distribution]:
        """Kind of both populations."""
        return self.prior.of.kind

    def masses(self, point: NDArray) -> NDArray:
        """Log-probabilities of nodes for a mean on the line and the log of a dispersion."""
        mean = self.kind.from_line(point[0])
        with np.errstate(invalid="ignore"):  # differences of tails, below zero by rounding
            masses = self.kind.at(mean, np.exp(point[1])).log_masses(self.nodes, mean)
        return np.where(np.isnan(masses), -np.inf, masses)

    def above(self, logs: NDArray) -> tuple[NDArray, NDArray, float]:
        """Fit the population of parents: point, covariance and log-likelihood."""
        likelihoods, scale = relative_likelihoods(logs)

        def height(point: NDArray) -> float:
            chances = likelihoods @ np.exp(self.masses(point))
            return float(np.log(np.maximum(chances, TINY)).sum() + scale.sum())

        ends = self.kind.to_line(self.nodes[[0, -1]])
        low, high = np.array([ends[0], LEAST]), np.array([ends[1], LARGEST])
        best = self.kind.to_line(self.nodes)[logs.argmax(axis=1)]
        starts = [np.array([np.median(best), start]) for start in (-8.0, -4.0, -1.5)]
        start = max(starts + self.nearest, key=height)
        point, covariance = maximise(height, start, low, high)
        self.nearest = [point]
        return point, covariance, height(point)

    def fit(self) -> dict[str, Any]:
        """Maximise the marginal likelihood; return the attributes of the population."""
        result = minimize_scalar(
            lambda x: -self.above(self.logs(np.exp(x)))[2],
            bounds=(max(LEAST, self.start - 8), min(LARGEST, self.start + 3)),
            method="bounded",
            options={"xatol": 1e-5},
        )
        at = float(result.x)
        at = LEAST if at < LEAST + 0.5 or at < self.start - 7.5 else at
        logs = self.logs(np.exp(at))
        point, covariance, value = self.above(logs)
        mean = float(self.kind.from_line(point[0]))
        slope = self.kind.steepness(mean)
        # what is not known of the population of parents
        points, weights = self._plausible(logs, point)
        masses = np.array([self.masses(each) for each in points])
        shares = np.zeros(logs.shape)
        for weight, mass in zip(weights, masses, strict=True):
            shares += weight * _normalised(logs + mass)
        return {
            "nodes_": self.nodes,
            "joint_log_marginal_": value,
            "mean_": np.array([mean]),
            "mean_variance_": np.array([slope**2 * covariance[0, 0]]),
            "dispersion_above_": 0.0 if point[1] < LEAST + 0.5 else float(np.exp(point[1])),
            "dispersion_": 0.0 if at == LEAST else float(np.exp(at)),
            "shares_": shares,
            "known_shares_": _normalised(logs + self.masses(point)),
            "population_shares_": weights @ np.exp(masses),
            "known_population_": np.exp(self.masses(point)),
        }

    def _plausible(self, logs: NDArray, point: NDArray) -> tuple[NDArray, NDArray]:
        """Find populations of parents that are plausible beside the best one."""
        ends = self.kind.to_line(self.nodes[[0, -1]])
        likelihoods, _ = relative_likelihoods(logs)

        def log_density(points: NDArray) -> NDArray:
            # flat in the mean and in the standard deviation of parents
            share = self.kind.share_of(np.exp(points[:, 1]))
            steepness = self.kind.steepness(self.kind.from_line(points[:, 0]))
            prior = np.log(steepness) + 1.5 * np.log(share) - points[:, 1]
            chances = likelihoods @ np.exp([self.masses(each) for each in points]).T
            values = prior + np.log(np.maximum(chances, TINY)).sum(axis=0)
            return np.where(((low <= points) & (points <= high)).all(axis=1), values, -np.inf)

        low, high = np.array([ends[0], LEAST]), np.array([ends[1], np.log(1e2)])
        return explore(log_density, np.clip(point, low, high))


def _alike(mean: float, n_parents: int) -> dict[str, Any]:
    """Attributes of the population where all outcomes are the same."""
    one = np.ones((n_parents, 1))
    found: dict[str, Any] = {"nodes_": np.array([mean]), "mean_": np.array([mean])}
    found |= dict.fromkeys(("shares_", "known_shares_"), one)
    found |= dict.fromkeys(("population_shares_", "known_population_"), one[0])
    found |= dict.fromkeys(("joint_log_marginal_", "dispersion_", "dispersion_above_"), 0.0)
    return found | {"mean_variance_": np.zeros(1)}


def _log_marginals(
    of: type[ByColumn], rows: Likelihood, nodes: NDArray, dispersion: float
) -> NDArray:
    """Log-probability of each row at each node, shape (n, k)."""
    variances = of.kind.variance_of(nodes)[0] * of.kind.share_of(dispersion)
    return rows.marginals(nodes[:, None], variances[:, None])


def _normalised(logs: NDArray) -> NDArray:
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


def _quantile_means(nodes: NDArray, weights: NDArray) -> tuple[NDArray, NDArray[np.int64]]:
    """Means of a parent between quantiles of equal distance, each as likely; shape (SHOWN, n).

    And the number of each group's parent: groups with equal weights have one.
    """
    _, first, place = np.unique(weights @ nodes, return_index=True, return_inverse=True)
    ends = np.linspace(0, 1, SHOWN + 1)
    means = np.empty((SHOWN, len(first)))
    for j, i in enumerate(first):
        below = np.concatenate(([0.0], np.cumsum(weights[i])))
        # the mean up to each quantile is a broken line
        sums = np.concatenate(([0.0], np.cumsum(weights[i] * nodes)))
        means[:, j] = np.diff(np.interp(ends * below[-1], below, sums)) * SHOWN / below[-1]
    return np.clip(means, nodes[0], nodes[-1])[:, place.ravel()], place.ravel()


def within(prior: Prior, names: Sequence[str]) -> Prior:
    """Return the population of groups of parents that has the form of a population of groups.

    Parameters
    ----------
    prior : Prior
    names : sequence of str
        Names of the levels above the groups, from the outermost.

    Raises
    ------
    TypeError
        If populations of this form have no parents.
    ValueError
        If it has arguments that a population of parents has not.

    Examples
    --------
    >>> within(Normal(), ["state"])
    NestedNormal(names=['state'])
    """
    if isinstance(prior, NestedNormal | NestedConjugate):
        return prior.unfitted().set_params(names=list(names))
    if isinstance(prior, Normal):
        if prior.mean is not None or prior.variance is not None or prior.covariance != "diag":
            raise ValueError(
                "levels of groups are for priors.Normal() whose mean and variance are estimated, "
                f"each column with its own; got {prior!r}."
            )
        return NestedNormal(list(names), method=prior.method)  # type: ignore[arg-type]
    if isinstance(prior, Beta) and prior.alpha is None and prior.method == "ml":
        return NestedBeta(list(names))
    if isinstance(prior, Gamma) and prior.shape is None:
        return NestedGamma(list(names))
    if isinstance(prior, Beta | Gamma):
        raise ValueError(
            f"levels of groups are for priors.{type(prior).__name__}() fitted by maximum "
            f"likelihood; got {prior!r}."
        )
    raise TypeError(
        f"{prior!r} is one population for all groups; levels of groups are for "
        "priors.Normal ('normal'), priors.Beta ('beta') and priors.Gamma ('gamma')."
    )
