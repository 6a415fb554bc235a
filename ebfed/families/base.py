"""The interface of a family: what the rows of a group are, given the group's parameter theta.

A `Family` is a small immutable object. It has

- the statistic that summarises the rows of a group, and how it is read from a table (`summarise`);
- the likelihood of theta given the summary (`likelihood`), and the density of the rows given the
  summary (`log_base_measure`): the two together are the log-density of the rows;
- the sampling variance of a group's own estimate (`sampling_variance`), and draws of it
  (`simulate`), from which plots and channels work;
- the name, the support and the link of theta, and its conjugate population.

The statistic of every family has a *mean*, the group's own estimate of theta, and a *size*, what
that mean is an average over: the number of rows, their weights, or the exposure. A new family is
one file here, and one for its conjugate population in `ebfed.priors`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from ebfed.tables.clients import Summary
from ebfed.tables.of_rows import NOTHING

if TYPE_CHECKING:
    from ebfed.likelihoods import Likelihood

__all__ = ["IDENTITY", "LINKS", "LOG", "LOGIT", "TINY", "Family", "Figures", "Link"]

# Added to exposures and trials, for some engines refuse to divide by 0, or its logarithm. It is far
# below the last digit of any but 0.
TINY = 1e-300
# Arrays of a summary, or of the message of a channel that hides nothing.
Figures = Mapping[str, NDArray]


@dataclass(frozen=True)
class Link:
    """A smooth scale for theta, on which it may take any value.

    Parameters
    ----------
    name : str
    to_line, from_line : callable
        Functions from theta to the scale, and back.
    slope : callable
        Derivative of `to_line` at theta.

    Examples
    --------
    >>> LOGIT.to_line(np.array([0.5])), LOGIT.from_line(np.array([0.0])), LOGIT.slope(0.5)
    (array([0.]), array([0.5]), 4.0)
    """

    name: str
    to_line: Callable[[Any], Any] = field(repr=False)
    from_line: Callable[[Any], Any] = field(repr=False)
    slope: Callable[[Any], Any] = field(repr=False)


def _logit(p: Any) -> Any:
    from scipy.special import logit

    return logit(p)


def _expit(x: Any) -> Any:
    from scipy.special import expit

    return expit(x)


def _probit(p: Any) -> Any:
    from scipy.special import ndtri

    return ndtri(p)


def _phi(x: Any) -> Any:
    from scipy.special import ndtr

    return ndtr(x)


def _same(x: Any) -> Any:
    return x


IDENTITY = Link("identity", _same, _same, np.ones_like)
LOGIT = Link("logit", _logit, _expit, lambda p: 1 / (p * (1 - p)))
LOG = Link("log", np.log, np.exp, lambda x: 1 / x)
PROBIT = Link("probit", _probit, _phi, lambda p: np.sqrt(2 * np.pi) * np.exp(_probit(p) ** 2 / 2))
CLOGLOG = Link(
    "cloglog",
    lambda p: np.log(-np.log1p(-p)),
    lambda x: -np.expm1(-np.exp(x)),
    lambda p: -1 / ((1 - p) * np.log1p(-p)),
)
LINKS = {each.name: each for each in (IDENTITY, LOGIT, LOG, PROBIT, CLOGLOG)}


@dataclass(frozen=True)
class Family(ABC):
    """Distribution of the rows of a group."""

    name: ClassVar[str]
    """Name of the family in formulas and at the command line."""
    parameter: ClassVar[str]
    """Usual word for theta, such as ``"mean"`` or ``"rate"``."""
    support: ClassVar[tuple[float, float]]
    """Interval in which theta lies."""
    link: ClassVar[Link]
    """Scale on which covariates act and intervals are computed."""
    has_density: ClassVar[bool]
    """Whether rows have a density, rather than probabilities."""
    conjugate: ClassVar[str]
    """Name of the conjugate population in `ebfed.priors`."""
    is_transformed: ClassVar[bool] = False
    """Whether estimates are shown on another scale than that of theta: see `shown`."""
    exact_only: ClassVar[str] = ""
    """Why reports on local means do not serve; empty if they do."""
    adds_up: ClassVar[bool] = False
    """Whether the coordinates of theta are shares of categories, which add up to 1."""
    pools_first: ClassVar[bool] = False
    """Whether what is open is settled by `pooled` before populations are fitted."""
    open_parameter: ClassVar[str] = "variances"
    """Argument with which `needs_scatter` ends."""
    unidentified: ClassVar[str] = ""
    """Note on a fit in which `pooled` finds nothing, where that comes first."""
    has_rates: ClassVar[bool] = False
    """Whether theta is a rate: a row is expected to show theta times its exposure."""
    takes_exposure: ClassVar[bool] = False
    """Whether estimates are averages over exposures, rather than numbers of rows."""
    of_rows: ClassVar[tuple[str, ...]] = ("sample_weight",)
    """What may go with each row; see `ebfed.tables.of_rows`."""
    needs_values: ClassVar[bool] = False
    """Whether a summary needs each different value of rows, which engines of tables count."""
    weights: ClassVar[Literal["precision", "frequency"]] = "precision"
    """What `sample_weight` is: the variance of a row is over it, or it counts equal rows."""

    # Reading ----------------------------------------------------------------------------------

    def check_rows(self, values: NDArray) -> NDArray:
        """Return rows as the family has them.

        Raises
        ------
        ValueError
            If they are not rows of this family.
        """
        return values

    def check_summary(self, summary: Summary) -> None:
        """Raise a ValueError if this is no summary of rows of this family."""
        return None

    def check_figures(self, figures: Figures) -> None:
        """Raise a ValueError if exact figures are beyond what the arithmetic can hold."""
        return None

    def summarise(
        self,
        values: NDArray,
        labels: NDArray | None,
        of_rows: Mapping[str, NDArray] = NOTHING,
    ) -> Summary:
        """Summarise rows of shape (n_rows, d) by group; each row is a group without labels.

        `of_rows` is what goes with rows, by name.
        """
        weight = of_rows.get("sample_weight")
        if labels is None:
            return Summary.each_row(values, weight)
        return Summary.from_rows(values, labels, weight)

    figures_of_rows: ClassVar[Callable[..., Any] | None] = None
    """Figures that engines of tables add up for a summary; of means and scatters if None. See
    `ebfed.tables.lazy.added_up`."""

    def responses(
        self, values: NDArray, of_rows: Mapping[str, NDArray]
    ) -> tuple[NDArray, NDArray | None]:
        """Return what rows show of theta, and how often that is expected, shape (n_rows,)."""
        return values, None

    def times_column(self, value: str, of_rows: Mapping[str, Any]) -> str | None:
        """Return the column of that second number, given those of values and of what is beside."""
        return None

    def converted(self, summary: Summary) -> Summary:
        """Return a summary of rows as the family has it.

        Raises
        ------
        ValueError
            If it is no summary of rows of this family.
        """
        self.check_summary(summary)
        return summary

    def averaged_over(self, summary: Summary) -> NDArray:
        """Return what own estimates are averages over, shape (n,): numbers of rows, exposures."""
        return summary.size

    def merge(self, one: Summary, other: Summary) -> Summary:
        """Summarise the union of the rows behind two summaries."""
        return one.merge(other)

    # Laws -------------------------------------------------------------------------------------

    @abstractmethod
    def likelihood(self, figures: Figures) -> Likelihood:
        """Return what exact figures say of each group's parameter."""

    @abstractmethod
    def log_base_measure(self, summary: Summary) -> NDArray:
        """Log-density of the rows given their summary, shape (n,), not in `likelihood`."""

    @abstractmethod
    def sampling_variance(self, theta: Any, size: Any, column: int = 0) -> Any:
        """Variance of a group's own estimate around theta, where it is an average over `size`."""

    @abstractmethod
    def simulate(
        self, theta: NDArray, size: NDArray, rng: np.random.Generator, column: int = 0
    ) -> NDArray:
        """Draw the own estimates of groups with these parameters and sizes, shape (n,)."""

    @abstractmethod
    def draw_population(
        self, mean: float, variance: float, size: int, rng: np.random.Generator
    ) -> NDArray:
        """Draw parameters from the conjugate population with these moments, shape (size,)."""

    def outcomes(self, size: float, highest: float) -> NDArray:
        """List the own estimates that a group of this size can have, up to `highest`."""
        raise TypeError(f"own estimates of {self.name} rows are not a list of values.")

    def typical(self, size: float, n_features: int) -> Likelihood:
        """Likelihood of one group of this size."""
        return self.likelihood(self.figures(self.blank(np.array([size]), n_features)))

    def noise_variance(self, n_features: int) -> NDArray | None:
        """Variance of a row within its group, shape (d,), where that is a parameter of its own."""
        return None

    # What is open -----------------------------------------------------------------------------

    @property
    def needs_scatter(self) -> bool:
        """Whether something about rows is to be learned from their scatter within groups."""
        return False

    def settled(self, noise_variance: NDArray | None) -> Self:
        """Return the family with what a fit has learned about rows."""
        return self

    def pooled(self, messages: Sequence[Figures]) -> NDArray | None:
        """Estimate what is open from figures that show their scatter; None if none does."""
        return None

    # Figures ----------------------------------------------------------------------------------

    @staticmethod
    def figures(summary: Summary) -> dict[str, NDArray]:
        """Return the arrays of a summary, as a channel that hides nothing sends them."""
        figures = {"n": summary.n, "mean": summary.mean, "scatter": summary.scatter}
        if summary.weight is not None:
            figures["weight"] = summary.weight
        return figures | dict(summary.sums)

    def blank(self, n: NDArray, n_features: int, weight: NDArray | None = None) -> Summary:
        """Return a summary of groups with so many rows whose figures are all 0.

        With `weight`, that is what their estimates are averages over.
        """
        nothing = np.zeros((len(n), n_features))
        weighed = weight is not None and not self.takes_exposure
        sums = {"log_weight": nothing} if weighed else {}
        return Summary(np.arange(len(n)), n, nothing, nothing, weight=weight, sums=sums)
