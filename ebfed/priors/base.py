"""Populations: the distribution P(Gamma) that clients' parameters are drawn from.

A `Prior` is fitted to a `Likelihood` by maximum marginal likelihood,

    Gamma^ = argmax  sum_i log integral L_i(theta) p(theta; Gamma) dtheta,

and then turns any likelihood, of the same clients or of new ones, into a `Posterior`. Since it uses
only the likelihood, it serves messages of every channel. A subclass

- states the `support` of theta and its `max_features`, from which `accepts` follows;
- writes `logpdf`, `sample`, `_start` (first guess) and `_m_step` (maximise the expected
  log-density of theta over Gamma): this base gives EM on a grid, during which the marginal
  likelihood never falls, posteriors by quadrature, and marginal likelihoods;
- overrides `_fit`, `_posterior` and `log_marginal` where a closed form exists. The contract in
  `ebfed.testing` holds the two equal;
- states its `free` parameters, and sets them in `_set`: this base finds the populations that the
  messages leave plausible, and standard deviations, intervals, probabilities and draws are averages
  over them. (A subclass with a `_fit` of its own finds them there, by `_find_later`.)

The mean of a prior that `takes_covariates` depends on the covariates of each client: then `at`
gives the population of clients with given covariates, which is used with their likelihoods.

Constructor arguments that are None are estimated; learned attributes end in ``_``. A fitted prior
is a value: estimators and `posterior_from` use it as it is, its clones are fitted, and `unfitted`
returns one that is to be fitted. It has `mean_` and `variance_` of the population, shape (d,),
`n_parameters_`, and a list `notes_` of sentences about what could not be identified. Where a
Gaussian likelihood leaves its noise variance open, fitting learns it too, as `noise_variance_`.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, logsumexp, ndtri
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from ebfed.arguments import WithArguments
from ebfed.likelihoods import Gaussian, Joined, Likelihood, StudentT, join
from ebfed.likelihoods.base import parts_of
from ebfed.priors.dependence import FEWEST_TO_TEST, estimates_of, note_of_dependence
from ebfed.priors.discrete_posterior import DiscretePosterior
from ebfed.priors.exploration import explore, interval_of, spread_of, thinned
from ebfed.priors.identification import UNKNOWN_NOISE, IdentificationWarning
from ebfed.priors.integrated import (
    IntegratedPosterior,
    SeparatePosteriors,
    integrated,
    of_distinct,
    several,
)
from ebfed.priors.narrow import Around, NarrowPosterior, error_of
from ebfed.priors.posterior import IndependentNormals, Posterior
from ebfed.priors.robust import LinearShrinkage, moments_of
from ebfed.priors.search import maximise
from ebfed.privacy.calibration import is_number
from ebfed.wire import Later, WhenAsked

__all__ = ["FreeParameters", "OwnReports", "Prior", "relative_likelihoods"]

# Standard error of a variance, relative to it, up to which closed forms of second order are as good
# as sums over plausible populations.
WELL_KNOWN = 0.1

# Most steps of EM; few where Newton's method goes on.
STEPS, FEW_STEPS = 2000, 50

# Number of clients from which on they say something about the spread of a population.
FEWEST = 3

# Statistic of Anderson and Darling from which on messages do not have a population's shape, at the
# level of 1 % (Stephens 1986, table 4.7).
MISFIT = 1.035


@dataclass(frozen=True)
class OwnReports:
    """Contribution of clients' own messages to a fitted population.

    Attributes
    ----------
    variance : ndarray of shape (n, d)
        Variance that the channel added to the client's mean; infinite if it sent nothing.
    error : ndarray of shape (n, d) or None
        Noise that the channel added, where a client knows it; NaN where not.
    value : ndarray of shape (n, d)
        Client's mean according to its message; NaN if it sent nothing.
    """

    variance: NDArray
    error: NDArray | None
    value: NDArray


class Prior(WithArguments, ABC):
    """Distribution of a population of parameters."""

    support: ClassVar[tuple[float, float]] = (-np.inf, np.inf)
    max_features: ClassVar[float] = 1
    n_nodes: ClassVar[int] = 400
    # Parameters that are learned, at most three, by how they lie: "line"; "positive", known up to a
    # factor; "spread", from zero. `_set` takes them, and keeps each as an attribute "…_". Plausible
    # ones have a prior that is flat: in the logarithm of a positive one.
    free: ClassVar[Mapping[str, Literal["line", "positive", "spread"]]] = MappingProxyType({})
    takes_covariates: ClassVar[bool] = False
    # Whether a plausible population is one of all coordinates, or of each its own.
    couples_columns: ClassVar[bool] = False
    # Whether posterior means of Gaussian estimates are on a line, with robust intervals of its own.
    _is_linear: ClassVar[bool] = False
    # Learned attributes with an entry for each coordinate, besides `mean_` and `variance_`.
    _by_column: ClassVar[tuple[str, ...]] = ("mean_variance_", "variance_variance_")

    # Sets the `free` parameters, and all attributes that follow from them.
    _set: Callable[..., Any]

    mean_: NDArray
    variance_: NDArray
    mean_variance_: NDArray
    variance_variance_: NDArray
    n_parameters_: int
    notes_ = WhenAsked[list[str]]()
    # Parameters of the plausible populations by name, K of each; and "weights", (K, d).
    plausible_ = WhenAsked[dict[str, NDArray] | None]()
    noise_variance_: NDArray | None
    slopes_: NDArray | None = None
    covariates_: NDArray  # of the clients, where this is the population `at` their covariates
    restriction_: float | None = None
    # Log-density of all messages of the fit, where these are not independent of one another.
    joint_log_marginal_: float | None = None
    # Standard deviations of levels above the groups, by name, of each coordinate.
    spreads_above_: dict[str, NDArray] | None = None
    # Moments that Gaussian messages show, whatever the shape that was fitted; see `moments_of`.
    moments_ = WhenAsked[dict[str, NDArray] | None]()
    # Whether messages are reports of a channel, so that estimates are averages as well.
    averages_: bool = False
    n_seen_: int  # clients with data, where messages are estimates
    # Whether too few clients have data, or none has two rows, for spread and noise to be known.
    spread_is_unknown_: bool = False
    noise_is_unknown_: bool = False
    # Whether this fitted population is used for other clients than it was fitted to; whether the
    # noise variance is of that fit too.
    is_reused_: bool = False
    noise_is_reused_: bool = False
    # Formulas that gave the covariates of location and spread, where these were formulas.
    formulas_: tuple[Any, Any] = (None, None)

    @property
    def _has_others(self) -> bool:
        """Whether there are plausible populations, found or yet to be found, which takes long."""
        return vars(self).get("plausible_") is not None

    def _find_later(self, find: Callable[..., None], *given: Any) -> None:
        """Let a method set the plausible populations when they are asked for.

        Parameters
        ----------
        find : callable
            Function of this population as it is now, and of `given`.
        """
        as_it_is = copy(self)

        def found() -> dict[str, NDArray] | None:
            find(as_it_is, *given)
            return as_it_is.plausible_

        self.plausible_ = Later(found)

    def _learn_later(
        self, names: Sequence[str], find: Callable[..., Sequence[NDArray] | NDArray], *given: Any
    ) -> None:
        """Let a function of `given` find attributes of these names when one is asked for."""
        found = Later(partial(find, *given))
        for place, name in enumerate(names):
            setattr(self, name, Later(partial(lambda place: found()[place], place)))

    # A fitted population is a value -----------------------------------------------------------

    @property
    def is_fitted(self) -> bool:
        """Whether this is a fitted population, which is used as it is.

        Examples
        --------
        >>> from ebfed.priors import Discrete
        >>> Discrete().is_fitted, Discrete.known(np.zeros((1, 1)), np.ones(1)).is_fitted
        (False, True)
        """
        return "mean_" in vars(self)

    def unfitted(self) -> Self:
        """Return a population with the same arguments, which is to be fitted.

        Examples
        --------
        >>> from ebfed.priors import Discrete
        >>> Discrete.known(np.zeros((1, 1)), np.ones(1)).unfitted().is_fitted
        False
        """
        return super().__sklearn_clone__()

    def __sklearn_clone__(self) -> Self:
        """Copy a population, which stays fitted: clones of an estimator use it as it is."""
        if not self.is_fitted:
            return self.unfitted()
        one = copy(self)
        one.notes_ = list(self.notes_)
        return one

    def set_params(self, **params: Any) -> Self:
        """Set arguments; a population that was fitted with others is to be fitted anew."""
        for name in [name for name in vars(self) if params and name.endswith("_")]:
            delattr(self, name)
        return super().set_params(**params)

    def check_reuse(self, n_features: int, n_covariates: int) -> None:
        """Refuse a fitted population of other columns, or other covariates.

        Raises
        ------
        ValueError
        """
        for own, given, what in (
            (self.mean_.shape[-1], n_features, "columns"),
            (self._n_covariates, n_covariates, "covariates"),
        ):
            if own != given:
                raise ValueError(
                    f"prior={self!r} was fitted with {own} {what}, and is used as it is; got "
                    f"{given} {what}. A population that is to be fitted is prior.unfitted()."
                )

    def _given(self, *names: str, infinite: str = "") -> list[float] | None:
        """Return positive arguments that are given together; None if none is.

        All are finite but the one that may be `infinite`.
        """
        values = [getattr(self, name) for name in names]
        if values.count(None) == len(values):
            return None
        if None in values:
            raise ValueError(f"give both {' and '.join(names)}, or neither.")
        both = zip(names, values, strict=True)
        if not all(is_number(x) and x > 0 and (x < np.inf or name == infinite) for name, x in both):
            got = " and ".join(map(repr, values))
            raise ValueError(f"{' and '.join(names)} must be positive; got {got}.")
        return values

    @property
    def _n_covariates(self) -> int:
        return 0 if self.slopes_ is None else len(self.slopes_)

    def split(self, covariates: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return those of the covariates that the mean depends on, and those of the spread."""
        return list(covariates), []

    def reused_for(self, likelihood: Likelihood, covariates: NDArray | None = None) -> Self:
        """Return this fitted population, as it is, for clients that it was not fitted to.

        With the populations that its own fit left plausible. Noise that the likelihood leaves open
        is that of the fit or, where this had none, pooled.

        Parameters
        ----------
        likelihood, covariates : as in `fit`

        Raises
        ------
        TypeError
            If this prior does not fit this likelihood's parameter.
        ValueError
            If it was fitted with other numbers of columns or covariates.
        """
        self._check_accepts(likelihood)
        n_covariates = 0 if covariates is None else covariates.shape[1]
        self.check_reuse(likelihood.n_features, n_covariates)
        one = clone(self)
        one.is_reused_, one.n_parameters_ = True, 0
        one.restriction_ = one.joint_log_marginal_ = None
        one.noise_is_reused_ = one.noise_variance_ is not None
        if not one.noise_is_reused_:
            one._settled(likelihood)
        one._add_note("The population is that of an earlier fit, as it was fitted then.")
        return one

    def posterior_of_others(self, likelihood: Likelihood, integrate: bool = True) -> Posterior:
        """Posterior of clients whose messages this population was not fitted to."""
        if not self.weighs_own_reports:
            return self.posterior(likelihood, integrate)
        prior = self if integrate else self.without_doubt()
        nothing = np.full((len(likelihood), likelihood.n_features), np.nan)
        own = OwnReports(np.full(nothing.shape, np.inf), None, nothing)
        return prior.posterior_of_members(likelihood, own)

    # What a kind of population says of itself -------------------------------------------------

    @property
    def fits_raw_reports(self) -> bool:
        """Whether a paper's formula is applied to reports as if they were the clients' means."""
        return False

    @property
    def shares_scale(self) -> bool:
        """Whether all columns have one variance, and one noise variance fitted with it."""
        return False

    @property
    def weighs_own_reports(self) -> bool:
        """Whether `posterior_of_members` differs from `posterior`."""
        return False

    @property
    def estimates_spread(self) -> bool:
        """Whether fitting learns how wide the population is, not only where."""
        return True

    def accepts(self, likelihood: Likelihood) -> bool:
        """Return whether this prior is for parameters of that likelihood."""
        low, high = likelihood.support
        inside = low <= self.support[0] and self.support[1] <= high
        few = likelihood.n_features <= self.max_features
        return inside and few and not likelihood.adds_up

    def fit(self, likelihood: Likelihood, covariates: NDArray | None = None) -> Self:
        """Estimate the population by maximum marginal likelihood.

        Parameters
        ----------
        likelihood : Likelihood of n clients
        covariates : ndarray of shape (n, k), optional
            Covariates on which the mean depends, besides an intercept; `at` then gives the
            population of clients with given ones. `mean_` and `variance_` are those at average
            covariates.

        Raises
        ------
        TypeError
            If this prior does not fit this likelihood's parameter, or has no covariates.
        ValueError
            If covariates are constant or collinear, or too many for so few clients.
        """
        self._check_accepts(likelihood)
        self.notes_ = []
        self.noise_variance_ = self.slopes_ = self.restriction_ = self.plausible_ = None
        self.moments_ = None
        self.averages_ = likelihood.is_noisy
        self.noise_is_unknown_ = self.is_reused_ = self.noise_is_reused_ = False
        if covariates is None:
            self._fit(likelihood)
        else:
            self._fit_with_covariates(likelihood, covariates)
        self.spread_is_unknown_ = False
        if isinstance(likelihood, Gaussian | StudentT):
            self.n_seen_ = int(np.isfinite(likelihood.variances).all(axis=1).sum())
            learned = self.estimates_spread and self.n_parameters_ > 0
            self.spread_is_unknown_ = learned and self.n_seen_ < FEWEST
        if not self._is_linear:
            settled = join(parts_of(self._settled(likelihood)))
            if isinstance(settled, Gaussian):
                self.moments_ = Later(partial(moments_of, settled))
        if covariates is None and (known := estimates_of(likelihood)) is not None:
            noise = 1.0 if self.noise_variance_ is None else float(self.noise_variance_[0])
            dependence = partial(note_of_dependence, *known, noise, float(self.variance_[0]))
            notes = self.notes_
            self.notes_ = Later(lambda: notes + dependence())
        return self

    def _check_accepts(self, likelihood: Likelihood) -> None:
        if not self.accepts(likelihood):
            raise TypeError(
                f"{self!r} is a population on {self.support} in at most {self.max_features} "
                f"dimensions; the parameter of a {type(likelihood).__name__} likelihood lives on "
                f"{likelihood.support} in {likelihood.n_features}. Choose a prior that fits, or "
                "fit fewer columns."
            )

    def _fit_with_covariates(self, likelihood: Likelihood, covariates: NDArray) -> None:
        raise TypeError(
            f"{type(self).__name__} is one population for all clients, without covariates; those "
            "with are priors.Normal and priors.LocationScale for means, and priors.Beta for rates."
        )

    def at(self, covariates: NDArray) -> Self:
        """Return the population of clients with these covariates, shape (n, k).

        Its `mean_` and `mean_variance_` have shape (n, d), a row for each client; it serves
        likelihoods of those n clients, in that order. `sample(n)` draws a parameter for each, and
        `logpdf` has shape (n, k).
        """
        raise TypeError(f"{type(self).__name__} is one population for all clients.")

    # What is not known of the population -------------------------------------------------------

    def mean_error(self) -> NDArray:
        """Return the standard error of the population's mean, shape (d,).

        That of the fit where it has one, else the spread over the plausible populations, as always
        where reports are noisy; NaN where the fit has neither.
        """
        closed = np.sqrt(getattr(self, "mean_variance_", np.full(self.mean_.shape, np.nan)))
        if self.plausible_ is None or self.mean_.ndim > 1:
            return closed
        populations, weights = self.populations()
        means = np.array([one.mean_ for one in populations])
        within = np.array([getattr(one, "mean_variance_", 0 * one.mean_) for one in populations])
        error = np.hypot(spread_of(means, weights), np.sqrt((weights * within).sum(axis=0)))
        return np.where((closed > 0) & (not self.averages_), closed, error)

    def mean_interval(self, level: float = 0.95) -> tuple[NDArray, NDArray]:
        """Return the interval of the population's mean over the plausible populations, (d,) each.

        Under each of them the mean is known, or has a sampling variance.

        Examples
        --------
        >>> from ebfed.likelihoods import Binomial
        >>> from ebfed.priors import Beta
        >>> counts = Binomial(np.array([[0], [3], [1], [0]]), np.full(4, 10))
        >>> lower, upper = Beta().fit(counts).mean_interval()
        >>> bool(0 < lower[0] < 0.1 < upper[0] < 0.5)
        True
        """
        populations, weights = self.populations()
        if any(np.any(getattr(one, "mean_variance_", 0.0) > 0) for one in populations):
            parts = [one._posterior_of_mean() for one in populations]
            whole = IntegratedPosterior(parts[0], lambda: (parts, weights[:, None]))
            lower, upper = (whole.quantile((1 + side * level) / 2)[0] for side in (-1, 1))
            return lower, upper
        to_line, from_line = self._line_of_means
        with np.errstate(divide="ignore"):  # of rates that are all 0 or 1
            means = to_line(np.array([one.mean_ for one in populations]))
        pairs = zip(means.T, weights.T, strict=True)
        lower, upper = from_line(np.array([interval_of(*pair, level) for pair in pairs])).T
        return lower, upper

    @property
    def _line_of_means(self) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
        """Functions that map means to a line, on which plausible ones lie evenly, and back."""
        return np.positive, np.positive

    def _posterior_of_mean(self) -> Posterior:
        """Posterior of the population's mean, as the only client, given the other parameters."""
        return IndependentNormals(self.mean_[None], np.sqrt(self.mean_variance_)[None])

    def populations(self) -> tuple[list[Self], NDArray]:
        """Return populations that the messages leave plausible, and their probabilities.

        A fit by maximum likelihood is one of many populations that explain the messages. These are
        weighted points of the posterior distribution of the parameters, under a reference prior
        that is stated with each class.

        Returns
        -------
        populations : list of K fitted priors
        probabilities : ndarray of shape (K, d)
            They sum to 1 for each coordinate, whose populations are independent of the others'.

        Examples
        --------
        >>> from ebfed.likelihoods import Gaussian
        >>> from ebfed.priors import Normal
        >>> prior = Normal().fit(Gaussian(np.array([[0.0], [1.0], [1.5]]), np.ones((3, 1))))
        >>> populations, probabilities = prior.populations()
        >>> variances = np.array([each.variance_ for each in populations])
        >>> prior.variance_, bool((variances * probabilities).sum() > 1)
        (array([0.]), True)
        """
        if self.plausible_ is None:
            return [self], np.ones((1, self.mean_.shape[-1]))
        parameters = dict(self.plausible_)
        weights = parameters.pop("weights")
        each = [{name: x[k] for name, x in parameters.items()} for k in range(len(weights))]
        populations = [self._like(one) for one in each]
        if self.mean_.ndim > 1:  # of clients with given covariates
            populations = [one.at(self.covariates_) for one in populations]
        return populations, weights

    def _like(self, parameters: dict[str, NDArray]) -> Self:
        """Return the population with these parameters, taken as known."""
        one = copy(self)
        one.plausible_, one.notes_ = None, []
        one.spread_is_unknown_ = one.noise_is_unknown_ = False
        if parameters:
            if hasattr(one, "mean_variance_"):
                one.mean_variance_ = np.zeros_like(one.mean_variance_)
            one._take(**parameters)
        return one

    def _is_hardly_known(self) -> NDArray[np.bool_]:
        """Whether the spread of each column is not known well, shape (d,)."""
        doubt = np.sqrt(self.variance_variance_) > WELL_KNOWN * self.variance_
        return doubt | (self.variance_ == 0)

    def _check_clients(self) -> None:
        """Refuse likelihoods that need one population for all clients."""
        if self.mean_.ndim > 1:
            raise TypeError("populations of covariates serve Gaussian messages and counts only.")

    def _take_attributes(self, **parameters: NDArray) -> None:
        """Set parameters by their names."""
        if self.free:
            self._set(**parameters)
            return
        for name, value in parameters.items():
            setattr(self, name, value)

    # Sets the parameters that `plausible_` holds of one population.
    _take: Callable[..., None] = _take_attributes

    def _mixes(self, likelihood: Likelihood) -> bool:
        """Whether `_mixed` averages over populations faster than one by one."""
        return type(self)._posterior is Prior._posterior and likelihood.n_features == 1

    def _mixed(
        self, populations: Sequence[Prior], shares: NDArray, likelihood: Likelihood
    ) -> Posterior:
        """Posterior averaged over populations at once.

        `shares` are the probabilities of the populations, shape (K, 1 or n, 1 or d).
        """
        return several(populations, shares, likelihood)

    # To draw and to describe -------------------------------------------------------------------

    def column(self, j: int) -> Self:
        """Return the population of one coordinate, to draw from and to evaluate.

        Examples
        --------
        >>> from ebfed.priors import Discrete
        >>> prior = Discrete.known(np.array([[1.0, 5.0], [2.0, 7.0]]), np.array([0.5, 0.5]))
        >>> prior.column(1).mean_
        array([6.])
        """
        if self.mean_.shape[-1] == 1:
            return self
        one = self._like({})
        for name in ("mean_", "variance_", *self._by_column):
            if hasattr(self, name):
                setattr(one, name, getattr(self, name)[..., [j]])
        if self.moments_ is not None:
            one.moments_ = {name: value[[j]] for name, value in self.moments_.items()}
        return one

    def points(self) -> tuple[NDArray, NDArray]:
        """Points of a scalar population that have a probability, and these probabilities.

        They sum to 1 where the population is discrete, and to less where it has a density too.

        Examples
        --------
        >>> from ebfed.priors import Discrete
        >>> Discrete.known(np.array([[0.0], [2.0]]), np.array([0.25, 0.75])).points()
        (array([0., 2.]), array([0.25, 0.75]))
        """
        if np.all(self.variance_ == 0):
            mean = np.unique(self.mean_) if self.mean_.ndim == 1 else self.mean_[:, 0]
            return mean, np.full(len(mean), 1 / len(mean))
        return np.empty(0), np.empty(0)

    def grid(self, low: float, high: float) -> NDArray:
        """Places at which to draw the density of a scalar population: more where it is narrow.

        Examples
        --------
        >>> from ebfed.priors import Normal
        >>> len(Normal().grid(-1.0, 1.0))
        600
        """
        return np.linspace(low, high, 600)

    def parameters(self, j: int = 0) -> dict[str, float]:
        """Return parameters of coordinate j by name, besides mean and variance.

        Examples
        --------
        >>> from ebfed.likelihoods import Binomial
        >>> from ebfed.priors import Beta
        >>> counts = Binomial(np.array([[1], [4], [9], [5]]), np.array([10, 10, 10, 10]))
        >>> {name: round(x, 2) for name, x in Beta().fit(counts).parameters().items()}
        {'alpha': 1.52, 'beta': 1.65}
        """
        return {}

    def _fit(self, likelihood: Likelihood) -> None:
        """Run EM over a grid of theta."""
        rows, counts = self._settled(likelihood).compress()
        free = FreeParameters(self, rows, counts)
        atoms, likelihoods, scale = free.table
        self._start(rows, counts)
        path = [-np.inf]
        for _ in range(FEW_STEPS if self.free else STEPS):
            joint = likelihoods * np.exp(self._log_masses_of_density(atoms))
            evidence = joint.sum(axis=1)
            path.append(float(counts @ (np.log(evidence) + scale)))
            if path[-1] - path[-2] < 1e-10 * (1 + abs(path[-1])):
                break
            self._m_step(atoms, (counts / evidence) @ joint)
        else:
            if self.free:
                self._set(**free.likeliest())
            else:
                warnings.warn(
                    f"EM for {type(self).__name__} stopped after {STEPS} steps, still gaining "
                    f"{path[-1] - path[-2]:.2g} in log-likelihood per step.",
                    ConvergenceWarning,
                    stacklevel=4,
                )
        self.path_ = np.array(path[1:])
        if self.free:
            self._find_later(Prior._hold_free, rows, counts)
        elif self.estimates_spread:
            self._add_note(
                f"Intervals take the population as known: {type(self).__name__} does not state its "
                "`free` parameters."
            )

    def _hold_free(self, rows: Likelihood, counts: NDArray) -> None:
        """Hold plausible values of the `free` parameters, under a flat prior."""
        self.plausible_ = FreeParameters(self, rows, counts).plausible()

    def _add_note(self, sentence: str, unidentified: bool = False) -> None:
        """Add a note; warn where the data do not identify something."""
        if sentence not in self.notes_:
            self.notes_.append(sentence)
            if unidentified:
                warnings.warn(sentence, IdentificationWarning, stacklevel=6)

    def _note_if_open(self) -> None:
        """Note a variance whose standard error is larger than the variance."""
        if np.any(np.sqrt(self.variance_variance_) > np.maximum(self.variance_, 1e-300)):
            self._add_note(
                "The messages hardly identify the spread of the population: its standard error "
                "exceeds it. More clients, a larger epsilon or a better range would help."
            )

    def _note_if_misfit(self, below: NDArray, above: NDArray, sentence: str) -> None:
        """Note messages that are not distributed as the fitted population has them.

        Their normal scores are tested for normality, with mean and variance estimated as the
        population's location and spread were: the test of Anderson and Darling (Stephens 1986).

        Parameters
        ----------
        below, above : ndarray of shape (n,)
            Probabilities of a message below and above each, under the fitted population.
        sentence : str
        """
        n = len(below)
        if n < FEWEST_TO_TEST:
            return
        scores = np.sort(np.clip(np.where(below < 0.5, ndtri(below), -ndtri(above)), -8.0, 8.0))
        scores = (scores - scores.mean()) / scores.std(ddof=1)
        tails = log_ndtr(scores) + log_ndtr(-scores[::-1])
        statistic = -n - (2 * np.arange(n) + 1) @ tails / n
        if statistic * (1 + 0.75 / n + 2.25 / n**2) > MISFIT:
            self._add_note(sentence)

    def _settled(self, likelihood: Likelihood) -> Likelihood:
        """Plug in the pooled noise variance where the likelihood leaves it open.

        Where there is no noise, the population is seen itself; it is fitted as if seen with a
        thousandth of its own spread as error.
        """
        if isinstance(likelihood, Joined):
            return Joined(tuple(map(self._settled, likelihood.parts)))
        if not isinstance(likelihood, Gaussian):
            return likelihood
        has_data = np.isfinite(likelihood.variances).all(axis=1)
        values = likelihood.values[has_data]
        floor = 1e-6 * values.var(axis=0) if len(values) else np.ones(likelihood.n_features)
        floor = np.where(floor > 0, floor, 1.0)
        if likelihood.scatter is not None:
            noise = self.noise_variance_ = likelihood.noise_variance
            if likelihood.degrees == 0:
                self.noise_is_unknown_ = True
                self._add_note(UNKNOWN_NOISE, True)
            return likelihood.scaled(np.where(noise > 0, noise, floor))
        if likelihood.variances[has_data].any():
            return likelihood
        return Gaussian(likelihood.values, np.where(has_data[:, None], floor, np.inf))

    def _start(self, rows: Likelihood, counts: NDArray) -> None:
        """Set the parameters to a first guess."""
        raise TypeError(f"{type(self).__name__} is fitted by its own methods.")

    def _m_step(self, atoms: NDArray, masses: NDArray) -> None:
        """Set the parameters to their maximum given expected numbers of clients at each node."""
        raise TypeError(f"{type(self).__name__} is fitted by its own methods.")

    @abstractmethod
    def logpdf(self, theta: NDArray) -> NDArray:
        """Log-density of the population at theta of shape (k, d), shape (k,)."""

    @abstractmethod
    def sample(self, size: int, random_state: Any = None) -> NDArray:
        """Draw `size` parameters from the population, shape (size, d)."""

    def _log_masses(self, atoms: NDArray) -> NDArray:
        """Log of the prior mass in the cell around each node."""
        return self._log_masses_of_density(atoms)

    def _log_masses_of_density(self, atoms: NDArray) -> NDArray:
        """Log of the mass in the cell around each node: density times width."""
        at = atoms[:, 0]
        ends = (max(at[0], self.support[0]), min(at[-1], self.support[1]))
        low, high = np.where(np.isfinite(self.support), self.support, ends)
        edges = np.concatenate(([low], (at[1:] + at[:-1]) / 2, [high]))
        with np.errstate(divide="ignore"):
            return self.logpdf(atoms) + np.log(np.diff(edges))

    def _nodes(self, likelihood: Likelihood, low: float, high: float) -> NDArray:
        """Nodes of the likelihood, and even ones from `low` to `high` where these are finite."""
        nodes = likelihood.nodes(self.n_nodes)
        if np.isfinite([low, high]).all():
            nodes = np.union1d(nodes, np.linspace(low, high, self.n_nodes))
        # strictly inside: at the end of its support a density may be infinite
        return nodes[(nodes > self.support[0]) & (nodes < self.support[1])][:, None]

    def _grid(self, likelihood: Likelihood) -> tuple[NDArray, NDArray]:
        """Nodes and log-masses for quadrature."""
        if likelihood.n_features > 1:
            raise ValueError(
                f"posteriors of {type(self).__name__} under a {type(likelihood).__name__} "
                "likelihood are for one coordinate: give likelihood.column(j), and a prior fitted "
                "to it."
            )
        if not self.variance_[0] > 0:  # a point
            return self.mean_[None], np.zeros(1)
        atoms = self._nodes(likelihood, *self._range())
        return atoms, self._log_masses(atoms)

    def _range(self) -> tuple[float, float]:
        """Range of practically all of the population."""
        reach = 9 * np.sqrt(self.variance_[0])
        low, high = self.mean_[0] - reach, self.mean_[0] + reach
        return max(low, self.support[0]), min(high, self.support[1])

    def posterior(self, likelihood: Likelihood, integrate: bool = True) -> Posterior:
        """Posterior of each client's parameter.

        Parameters
        ----------
        likelihood : Likelihood of n clients
        integrate : bool
            Whether what is not known of the population is part of standard deviations, intervals,
            probabilities and draws (of estimates too, where messages are reports of a channel).
            False: the population is taken to be as fitted.

        Raises
        ------
        NotFittedError
            If the population has not been fitted.
        """
        check_is_fitted(self, "mean_")
        of_each = partial(_posterior_of_each, self, integrate)
        if self.mean_.ndim > 1:  # each client has a population of its own
            return of_each(likelihood)
        narrow = self._is_narrow(likelihood)
        if not narrow.any():
            return of_distinct(of_each, likelihood)
        own = likelihood.take(narrow)
        parts: list[Posterior] = [NarrowPosterior(own, self._around(own, [self], np.ones((1, 1))))]
        if integrate:
            parts = [integrated(self, own, parts[0])]
        if not narrow.all():
            parts.append(of_distinct(of_each, likelihood.take(~narrow)))
        found = SeparatePosteriors(parts, np.where(narrow, 0, 1))
        if self.moments_ is not None and isinstance(likelihood, Gaussian):
            found._line = LinearShrinkage(self.moments_, likelihood)
        return found

    def without_doubt(self) -> Self:
        """Return the population as if it were known to be as fitted."""
        known = self._like({})
        for name in ("mean_variance_", "variance_variance_"):
            if hasattr(known, name):
                setattr(known, name, np.zeros_like(getattr(known, name)))
        return known

    def _posterior(self, likelihood: Likelihood) -> Posterior:
        """Posterior under this population."""
        return DiscretePosterior(*self._grid(likelihood), likelihood)

    def posterior_of_members(self, likelihood: Likelihood, own: OwnReports) -> Posterior:
        """Posterior of clients whose own messages the population was fitted to.

        Parameters
        ----------
        likelihood : Likelihood
            Likelihood of the clients' exact data.
        own : OwnReports
            Contribution of each client's own message.
        """
        return self.posterior(likelihood)

    # Messages that are sharper than a grid ----------------------------------------------------

    def _cells(self, likelihood: Likelihood) -> NDArray:
        """Length of the grid's cell at each local estimate, shape (n,)."""
        at = self._grid(likelihood)[0][:, 0]
        place = np.clip(np.searchsorted(at, likelihood.local[:, 0]), 1, max(len(at) - 1, 1))
        return at[place] - at[place - 1] if len(at) > 1 else np.zeros(len(likelihood))

    def _is_narrow(self, likelihood: Likelihood) -> NDArray[np.bool_]:
        """Which messages, about values inside of the support, a grid of it cannot show."""
        if isinstance(likelihood, Joined):
            return np.concatenate([self._is_narrow(part) for part in likelihood.parts])
        is_open = isinstance(likelihood, Gaussian) and likelihood.scatter is not None
        on_grid = self._mixes(likelihood) and type(self)._grid is Prior._grid
        on_grid = on_grid and self.variance_[0] > 0 and not len(self.points()[0])
        if likelihood.is_noisy or is_open or not on_grid:
            return np.zeros(len(likelihood), bool)
        x = likelihood.local[:, 0]
        with np.errstate(invalid="ignore", divide="ignore"):
            errors = error_of(likelihood)
            narrow = (errors > 0) & (self.support[0] < x) & (x < self.support[1])
        if narrow.any():
            narrow[narrow] = errors[narrow] < self._cells(likelihood.take(narrow))
        return narrow

    def _around(
        self, likelihood: Likelihood, populations: Sequence[Any], shares: NDArray
    ) -> Around:
        """Average density of populations around narrow messages; shares have shape (K, 1 or n)."""
        return Around.of(populations, shares, likelihood, self._cells(likelihood), self.support)

    def log_marginal(self, likelihood: Likelihood) -> NDArray:
        """Log marginal likelihood of each client's message, shape (n,)."""
        check_is_fitted(self, "mean_")
        narrow = self._is_narrow(likelihood)
        if not narrow.any():
            return self._log_marginal_on_grid(likelihood)
        found, own = np.empty(len(likelihood)), likelihood.take(narrow)
        if not narrow.all():
            found[~narrow] = self._log_marginal_on_grid(likelihood.take(~narrow))
        posterior = NarrowPosterior(own, self._around(own, [self], np.ones((1, 1))))
        found[narrow] = self.logpdf(own.local) + posterior.log_integral()
        return found

    def _log_marginal_on_grid(self, likelihood: Likelihood) -> NDArray:
        atoms, log_masses = self._grid(likelihood)
        n_blocks = 1 + len(likelihood) * len(atoms) // 4_000_000
        marginal = np.concatenate(
            [
                logsumexp(block.logpdf(atoms) + log_masses, axis=1)
                for block in likelihood.split(n_blocks)
            ]
        )
        exact = likelihood.exact
        if exact is not None:  # there, the message has the population's own density
            seen = ~np.isnan(exact).any(axis=1)
            marginal[seen] = self._density(exact[seen])
        return marginal

    def _density(self, theta: NDArray) -> NDArray:
        """Log-density of parameters that were seen, shape (k,)."""
        return self.logpdf(theta)


def _posterior_of_each(prior: Prior, integrate: bool, likelihood: Likelihood) -> Posterior:
    """Posterior of each client by itself; see `Prior.posterior`."""
    one = prior if integrate else prior.without_doubt()
    fitted = one._posterior(likelihood)
    if prior.moments_ is not None and isinstance(likelihood, Gaussian):
        fitted._line = LinearShrinkage(prior.moments_, likelihood)
    if not integrate:
        return fitted
    return integrated(prior, likelihood, fitted)


# The likelihood of `free` parameters is integrated over nodes of theta or, where a population is
# too narrow for these, over nodes of its own. Newton's method finds the peak where EM is slow, as
# where a spread is nearly zero; a lattice around the peak has the populations that are plausible.

# Plausible populations that are held.
MOST = 200
# Standard deviation of a population, in distances of nodes, below which it counts as a point, and
# below which it is integrated over nodes of its own.
POINT, COARSE = 0.05, 3.0
# Least spread, which is as good as none.
TINIEST = 1e-6


class FreeParameters:
    """Free parameters of a prior that was fitted to messages, or is nearly.

    Points are parameters on the scales on which they lie: the logarithm of a positive one.

    Parameters
    ----------
    prior : Prior
    rows : Likelihood of n different messages
    counts : ndarray of shape (n,)
        How many clients sent each.
    """

    def __init__(self, prior: Any, rows: Likelihood, counts: NDArray):
        self.prior, self.rows, self.counts = prior, rows, counts
        kinds = np.array([*prior.free.values()])
        if len(kinds) > 3 or not set(kinds) <= {"line", "positive", "spread"}:
            raise ValueError(
                "free must have at most three parameters, each on the 'line', 'positive' or a "
                f"'spread'; got {dict(prior.free)!r}."
            )
        self.positive, self.spreads = kinds == "positive", kinds == "spread"

    @cached_property
    def table(self) -> tuple[NDArray, NDArray, NDArray]:
        """Nodes, likelihoods there over the largest of each message, and logarithms of these."""
        atoms = self.prior._nodes(self.rows, *self.prior.support)
        return atoms, *relative_likelihoods(self.rows.logpdf(atoms))

    @property
    def point(self) -> NDArray:
        """The point where the prior is, shape (p,)."""
        values = [np.ravel(getattr(self.prior, f"{name}_"))[0] for name in self.prior.free]
        at = np.array(values, float)
        return np.where(self.positive, np.log(np.where(self.positive, at, 1.0)), at)

    def named(self, points: NDArray) -> dict[str, NDArray]:
        """Return the parameters of points, shape (..., p), by name."""
        values = np.where(self.positive, np.exp(points), points)
        return dict(zip(self.prior.free, np.moveaxis(values, -1, 0), strict=True))

    def log_density(self, points: NDArray) -> NDArray:
        """Log-likelihood of points, shape (k, p), up to a constant, shape (k,)."""
        return np.array([self._of(self.prior._like(self.named(point))) for point in points])

    def _of(self, one: Any) -> float:
        atoms, likelihoods, scale = self.table
        near = int(np.argmin(np.abs(atoms[:, 0] - one.mean_[0])))
        spread = np.sqrt(one.variance_[0]) / np.gradient(atoms[:, 0])[near]
        if spread < POINT:
            values = self.rows.logpdf(one.mean_[None])[:, 0] - scale
        elif spread < COARSE:
            values = one.log_marginal(self.rows) - scale
        else:
            values = np.log(likelihoods @ np.exp(one._log_masses_of_density(atoms)))
        return float(self.counts @ values)

    def likeliest(self) -> dict[str, NDArray]:
        """Return the parameters of greatest likelihood, from where the prior is."""
        unit = np.where(self.positive, 1.0, max(float(np.sqrt(self.prior.variance_[0])), TINIEST))
        low = np.where(self.spreads, TINIEST, -np.inf)
        high = np.full(len(low), np.inf)
        height = self.log_density
        point, _ = maximise(lambda x: float(height(x[None])[0]), self.point, low, high, unit=unit)
        return self.named(point)

    def plausible(self) -> dict[str, NDArray]:
        """Return plausible parameters, shape (K,) each, and "weights" of shape (K, 1)."""
        points, weights = explore(self.log_density, self.point, self.spreads)
        points, weights = thinned(points, weights, MOST)
        return self.named(points) | {"weights": weights[:, None]}


def relative_likelihoods(log_likelihoods: NDArray) -> tuple[NDArray, NDArray]:
    """Likelihoods with each row divided by its largest, and the log of that largest.

    Examples
    --------
    >>> relative_likelihoods(np.log([[1.0, 2.0]]))
    (array([[0.5, 1. ]]), array([0.69314718]))
    """
    scale = log_likelihoods.max(axis=1)
    return np.exp(log_likelihoods - scale[:, None]), scale
