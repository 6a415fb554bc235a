"""The view of a fit: the interface between estimators and what reports on them.

Of every fitted estimator, and every fitted formula, `view_of` returns one of three dataclasses: a
`LocationView` of means or rates, a `RegressionView` of coefficients, or a `LearnerView` of
predictors; of a result of `posterior_from`, a `PopulationView`. Tables, plots and comparisons read
these and public attributes, and nothing private.

To write a new report or plot, start from `view_of`, which takes an estimator, a formula or a view:

>>> import ebfed as eb
>>> from ebfed.report import GroupView, view_of
>>> def typical_error(fit):
...     view = view_of(fit)
...     assert isinstance(view, GroupView)
...     return (view.posterior().sd ** 2).mean(axis=0) ** 0.5

Figures that take time to compute are functions. To write a new estimator outside this package,
build the view of its wing in a method `__ebfed_view__`; all tables and plots then work. A view of
another kind registers its own `tidy`, `glance` and `summary_table`, which are
`functools.singledispatch` functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ebfed.families.base import IDENTITY
from ebfed.tables.frames import Style

if TYPE_CHECKING:
    from ebfed.channels import Channel, Guess
    from ebfed.families import Family, Link
    from ebfed.likelihoods import Likelihood
    from ebfed.priors import Posterior, Prior
    from ebfed.tables.clients import Summary

__all__ = [
    "ChannelView",
    "Components",
    "FitView",
    "GroupView",
    "LearnerView",
    "LocationView",
    "Parameter",
    "PopulationView",
    "RegressionView",
    "reliability",
    "view_of",
    "view_with",
]

# A row of `tidy`: effect, group, term, estimate, standard error.
Parameter = tuple[str, str, str, float, float]


class Components(NamedTuple):
    """Components of a mixture.

    Attributes
    ----------
    weights : ndarray of shape (k,)
    means, variances : ndarray of shape (k, d)
    """

    weights: NDArray
    means: NDArray
    variances: NDArray


class ChannelView(NamedTuple):
    """Channel of one class of clients, and its privacy.

    Attributes
    ----------
    name : str
        Class of consent.
    channel : Channel
    epsilon, delta : float
        Privacy of each client of this class. Epsilon is infinite where there is none.
    kind : str
        Kind of privacy, in words: against whom it protects.
    """

    name: str
    channel: Channel
    epsilon: float
    delta: float
    kind: str


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FitView:
    """What every fit shows.

    Attributes
    ----------
    title : str
        Name of the estimator.
    style : Style
        Library of the frames, and name of the column of labels.
    is_server : bool
        Whether this is a server's copy, without the rows of clients.
    sizes : int64 ndarray of shape (n_groups,)
        Number of rows of each group.
    columns : list of str
        Names of the columns of `X`.
    ledger : list of dict
        Rows of `privacy_`.
    notes : list of str
        Remarks on the fit.
    formula, response : str or None
        Formula and its left side, of a fit by formula.
    totals : (int, int) or None
        Numbers of groups and of rows of a fit that was saved without its groups.
    """

    title: str
    style: Style
    is_server: bool
    sizes: NDArray[np.int64]
    columns: list[str]
    ledger: list[dict[str, Any]]
    notes: list[str]
    formula: str | None = None
    response: str | None = None
    totals: tuple[int, int] | None = None

    @property
    def n_groups(self) -> int:
        """Number of groups of the fit."""
        return len(self.sizes) if self.totals is None else self.totals[0]

    @property
    def n_rows(self) -> int:
        """Number of rows of the fit."""
        return int(self.sizes.sum()) if self.totals is None else self.totals[1]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class GroupView(FitView):
    """What a fit shows that has a posterior of every group.

    Attributes
    ----------
    terms : list of d str
        Names of the parameters of a group.
    varies : bool ndarray of shape (d,)
        Whether each parameter differs between groups.
    method : str
        Method of the fit, in words.
    n_parameters : int
        Number of fitted parameters of the population.
    posterior : callable
        Posterior of the groups of the fit.
    posterior_given_population : callable
        The same, if the population were known to be as fitted.
    expected : callable
        Parameters that the population expects of each group, shape (n_groups, d).
    log_likelihood : callable
        Log marginal likelihood at the fitted parameters; of a fit by REML the restricted one.
    has_density : bool
        Whether rows have a density, rather than probabilities.
    components : Components or None
        Components of a mixture.
    link : Link
        Scale on which intervals of the population's mean are computed.
    population : str
        Name of the population.
    likelihood_kind : {"ML", "REML", "approximate"}
        Kind of the likelihood. ``"ML"`` is the marginal likelihood itself; ``"REML"`` is the
        restricted one, with the coefficients of the mean integrated out; ``"approximate"`` is an
        approximation of the marginal one.
    maximum : callable or None
        Log marginal likelihood of the same model fitted to the same rows by maximum likelihood;
        None where it cannot be fitted again.
    approximation : callable or None
        Laplace's approximation of the log marginal likelihood, of the same model fitted by it to
        the same rows; None where it cannot be fitted again.
    design_products : callable or None
        Products ``X' [X y]`` of the columns X of the mean with themselves and the response, summed
        over rows; None where they are not known.
    """

    terms: list[str]
    varies: NDArray[np.bool_]
    method: str
    n_parameters: int
    posterior: Callable[[], Posterior]
    posterior_given_population: Callable[[], Posterior]
    expected: Callable[[], NDArray]
    log_likelihood: Callable[[], float]
    has_density: bool
    components: Components | None = None
    link: Link = IDENTITY
    population: str = "normal"
    likelihood_kind: str = "ML"
    maximum: Callable[[], float] | None = None
    approximation: Callable[[], float] | None = None
    design_products: Callable[[], NDArray] | None = None

    def effects(self) -> tuple[Posterior, NDArray | float]:
        """Return what is known of the effects of groups, given the population.

        Returns
        -------
        posterior : Posterior
        expected : ndarray of shape (n_groups, d) or float
            What is to be subtracted from it: effects are differences.
        """
        given = self.posterior_given_population()
        around = given.around_parents()
        return (given, self.expected()) if around is None else (around, 0.0)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PopulationView(GroupView):
    """What a fit shows that has a population of numbers, those of `posterior_from` among them.

    Attributes
    ----------
    prior : Prior
        The fitted population.
    covariate_names : pair of lists of str
        Names of the covariates of the mean, and of those of the spread.
    noise_variance : ndarray of shape (d,) or None
        Variance of a row within its group, where it is a parameter.
    weight : callable
        Weight of each group's own data in its estimate, shape (n_groups, d); None where estimates
        are not linear.
    """

    prior: Prior
    covariate_names: tuple[list[str], list[str]]
    noise_variance: NDArray | None
    weight: Callable[[], NDArray | None]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LocationView(PopulationView):
    """What a fit of means or rates shows.

    Attributes
    ----------
    family : Family
        Family of the rows, with what the fit has learned about them.
    summary : Summary
        Summary of the rows of each group.
    covariates : ndarray of shape (n_groups, k)
    guess : Guess or None
        Public guess of the population.
    reports : bool ndarray of shape (n_groups,)
        Whether each client was asked for a report.
    all_exact : bool
        Whether every client sends its summary as it is.
    channels : callable
        Channel of each class of clients, a list of `ChannelView`.
    refit : callable or None
        Posterior means of the same fit to another `Summary` of these groups, with other arguments
        of the estimator by name; None where a fit is not repeated like that.
    """

    family: Family
    summary: Summary
    covariates: NDArray
    guess: Guess | None
    reports: NDArray[np.bool_]
    all_exact: bool
    channels: Callable[[], list[ChannelView]]
    refit: Callable[..., NDArray] | None = None

    @property
    def has_rows(self) -> NDArray[np.bool_]:
        """Which groups have rows, shape (n_groups,)."""
        return self.summary.n > 0

    def likelihood(self, summary: Summary) -> Likelihood:
        """Likelihood of groups, with what the fit has learned."""
        return self.family.likelihood(self.family.figures(summary))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RegressionView(GroupView):
    """What a fit of coefficients shows.

    Attributes
    ----------
    parameters : callable
        Rows of `tidy`.
    figures : callable
        Further numbers of `glance`, by name.
    between : ndarray of shape (d, d) or None
        Covariance of the coefficients between groups (of the same parent); None where there is not
        a single one.
    converged : bool or None
        Whether the fit reached its goal; None where it has a fixed number of steps.
    n_rounds, n_steps : int
        Number of rounds, and of rows of the history.
    degrees : callable or None
        Standard errors and degrees of freedom of the mean's coefficients, for intervals by
        Student's t; None for normal quantiles of the standard errors of `tidy`.
    has_offset : bool
        Whether rows of the fit had offsets.
    """

    parameters: Callable[[], list[Parameter]]
    figures: Callable[[], dict[str, float]]
    between: NDArray | None
    converged: bool | None
    n_rounds: int
    n_steps: int
    degrees: Callable[[], tuple[NDArray, NDArray]] | None = None
    has_offset: bool = False

    def reliability(self) -> dict[str, NDArray]:
        """Share of each coefficient's variance that a group's own rows explain, by term."""
        if self.between is None or self.is_server:
            return {}
        return reliability(self.terms, self.effects()[0].sd, self.between)


def reliability(terms: Sequence[str], sd: NDArray, between: NDArray) -> dict[str, NDArray]:
    """Share of each variance between groups that the rows of a group explain, where there is one.

    Parameters
    ----------
    terms : sequence of d str
    sd : ndarray of shape (n_groups, d)
        Standard deviations of effects given the population.
    between : ndarray of shape (d, d)
        Covariance of effects.

    Examples
    --------
    >>> reliability(["intercept"], np.array([[1.0], [2.0]]), np.array([[4.0]]))
    {'intercept': array([0.75, 0.  ])}
    """
    variances = np.diag(between)
    varying = [j for j, variance in enumerate(variances) if variance > 0]
    shares = {terms[j]: 1 - sd[:, j] ** 2 / variances[j] for j in varying}
    # of a group without rows, the rounding of 1 - 1
    return {term: np.where(abs(x) < 1e-12, 0.0, x) for term, x in shares.items()}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LearnerView(FitView):
    """What a fit of predictors shows.

    Attributes
    ----------
    model : str
        The model that was trained.
    terms : callable
        Names of the parameters of a predictor.
    shared : dict of ndarray
        Parameters that the server knows.
    n_parameters : int
        Number of parameters of one predictor.
    n_rounds : int
    history : callable
        Rows of `history_`.
    """

    model: str
    terms: Callable[[], list[str]]
    shared: dict[str, NDArray]
    n_parameters: int
    n_rounds: int
    history: Callable[[], list[dict[str, Any]]]


@runtime_checkable
class Viewed(Protocol):
    """A fit that has a view."""

    def __ebfed_view__(self) -> FitView:
        """Return the view."""


def view_with(fit: Any, what: str) -> FitView:
    """Return the view of a fit; a view itself has no such figures.

    Functions of `functools.singledispatch` that no kind of view has registered end here.

    Raises
    ------
    TypeError
        If it is a view, or no fit.
    """
    if isinstance(fit, FitView):
        raise TypeError(f"{fit.title} has no {what}.")
    return view_of(fit)


def view_of(fit: Any) -> FitView:
    """Return the view of a fit.

    Parameters
    ----------
    fit : fitted estimator or formula, or a view

    Raises
    ------
    TypeError
        If it is none of these.
    """
    if isinstance(fit, FitView):
        return fit
    view = fit.__ebfed_view__() if isinstance(fit, Viewed) else None
    if not isinstance(view, FitView):
        raise TypeError(f"fit must be a fitted estimator or formula; got {fit!r}.")
    return view
