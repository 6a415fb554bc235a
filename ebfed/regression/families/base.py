"""What the rounds of a generalized linear model need of a family, and rows as they take them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ebfed.regression.families.lazy_predictors import LazyPredictors
from ebfed.report.view import Parameter
from ebfed.tables.clients import Clients
from ebfed.tables.of_rows import are_shares, won_of_shares
from ebfed.tables.scans import where

__all__ = [
    "Base",
    "LogLink",
    "ResponseFamily",
    "Responses",
    "check_rows",
    "counts_rows",
    "responses_of",
]

# Of each row: what its log-likelihood has besides the part in the linear predictor; slopes of that
# in the family's shapes, (n_rows, s); and lower halves of second derivatives.
Base = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]


# Variances of linear predictors of which e^z has no mean: its logarithm would be uncertain by 7.
SEPARATED = 50.0


@dataclass(frozen=True)
class Responses:
    """What is observed in rows.

    Attributes
    ----------
    y : float64 ndarray of shape (n_rows,)
    weight : float64 ndarray of shape (n_rows,)
        Number by which the log-likelihood of a row is multiplied; of shares, that of one trial.
    offset : float64 ndarray of shape (n_rows,)
        What the linear predictor has besides ``x' theta``.
    trials : float64 ndarray of shape (n_rows,) or None
        Numbers of trials, where rows of several have weights too, which are in `weight`.
    """

    y: NDArray[np.float64]
    weight: NDArray[np.float64]
    offset: NDArray[np.float64]
    trials: NDArray[np.float64] | None = None

    def take(self, index: NDArray | slice) -> Self:
        """Keep the rows in these positions (or where a mask is true)."""
        return type(self)(*(column[index] for column in self.columns))

    @property
    def columns(self) -> list[NDArray[np.float64]]:
        """All that is observed, as columns from which `of` makes it again."""
        own = [self.y, self.weight, self.offset]
        return own if self.trials is None else [*own, self.trials]

    @classmethod
    def of(cls, clients: Clients, classes: NDArray | None = None) -> Self:
        """Return what clients observed: their columns, or 1 where a label is the second of two."""
        assert clients.y is not None
        if classes is not None:
            second = (np.asarray(clients.y) == classes[1]).astype(float)
            return cls(second, clients.weights(), np.zeros(len(second)))
        y, weight, *others = clients.y.T
        columns = y, weight * clients.weights(), *others
        return cls(*(np.require(column, float, ["C", "W"]) for column in columns))


class ResponseFamily(ABC):
    """A family of rows, with log-likelihood ``weight * l(y, z)`` at the linear predictor z.

    To write a new one: its part in z, with two derivatives, is in `ebfed.kernels.responses`, under
    a number; everything else is in one file like this. Shapes are parameters besides z, such as a
    dispersion, on a scale without bounds.

    Attributes
    ----------
    name : str
    kind : int
        Number of the family in `ebfed.kernels.responses`.
    link : str
        Name of one of `ebfed.families.base.LINKS`.
    classes : bool
        Whether responses are numbers of classes, each with a probability of its own.
    n_figures : int
        Number of figures of a client from which the search begins.
    whole : bool
        Whether responses are whole numbers.
    certain : bool
        Whether a log-likelihood of zero is that of rows that are certain.
    adds : bool
        Whether rows that move alike say what their sums say; see `ebfed.kernels.rates`.
    calm : tuple of float
        Shapes of rows that hardly scatter, if one of them is a scatter; else empty.
    """

    name: ClassVar[str]
    kind: ClassVar[int]
    link: ClassVar[str]
    classes: ClassVar[bool] = False
    n_figures: ClassVar[int] = 0
    whole: ClassVar[bool] = True
    certain: ClassVar[bool] = False
    adds: ClassVar[bool] = False
    calm: ClassVar[tuple[float, ...]] = ()

    @abstractmethod
    def check(self, y: NDArray, weight: NDArray) -> None:
        """Raise a ValueError if rows cannot be of this family."""

    @abstractmethod
    def base(self, rows: Responses, shapes: NDArray) -> Base:
        """Return what the log-likelihood has besides its part in the linear predictor."""

    def alone(self, rows: Responses) -> bool:
        """Whether groups of one row identify the spread between them: the noise is known."""
        return False

    def counts_rows(self, rows: Responses) -> bool:
        """Whether weights are numbers of equal rows that a row stands for."""
        return False

    def in_kernel(self, shapes: NDArray) -> NDArray[np.float64]:
        """Return shapes as kernels take them."""
        return shapes

    def turn(self, shapes: NDArray) -> NDArray[np.float64] | None:
        """Return derivatives (t, t) of the numbers in which kernels take derivatives, by shapes.

        These are sums of exponentials of the shapes. None: kernels take them in the shapes.
        """
        return None

    def figures(self, rows: Responses) -> NDArray[np.float64]:
        """Return figures of rows, (n_rows, n_figures), whose sums say where to begin."""
        return np.zeros((len(rows.y), 0))

    def begin(self, figures: NDArray) -> tuple[float, NDArray[np.float64]]:
        """Intercept and shapes at which the search begins, from sums of `figures`."""
        return 0.0, np.zeros(0)

    def bounds(self, X: NDArray, rows: Responses) -> NDArray[np.float64] | None:
        """Return B: likelihoods of rows do not fall along d if and only if ``B d >= 0``, (r, k).

        The first of the k coefficients are those of the columns of X. None: they always fall.
        """
        limited = self.limited(rows)
        if limited is None:
            return None
        return np.concatenate([X[limited[:, 0]], -X[limited[:, 1]]])

    def limited(self, rows: Responses) -> NDArray[np.bool_] | None:
        """Return whether a row bounds the predictor from below, and from above, (n_rows, 2).

        None: rows of any one group always do both.
        """
        return None

    @property
    def may_be_endless(self) -> bool:
        """Whether there are rows whose likelihood rises without end as a coefficient grows."""
        nothing = np.empty(0)
        return self.bounds(np.empty((0, 1)), Responses(nothing, nothing, nothing)) is not None

    @abstractmethod
    def mean(self, centre: NDArray, variance: NDArray, shapes: NDArray) -> NDArray[np.float64]:
        """Mean response where the linear predictor is normal with this centre and variance."""

    @abstractmethod
    def lazy_mean(self, rows: LazyPredictors, shapes: NDArray) -> Any:
        """Return `mean` as an expression of the engine of a lazy table."""

    @abstractmethod
    def inverse(self, z: NDArray, shapes: NDArray) -> NDArray[np.float64]:
        """Mean response at a linear predictor."""

    def probabilities(
        self, centre: NDArray, variance: NDArray, shapes: NDArray
    ) -> NDArray[np.float64]:
        """Probability of each class, (n_rows, n_classes), if responses are classes."""
        raise NotImplementedError

    def lazy_probabilities(self, rows: LazyPredictors, shapes: NDArray) -> list[Any]:
        """Return the probability of each class, of binomial rows too, as expressions."""
        raise NotImplementedError

    @abstractmethod
    def below(self, y: NDArray, z: NDArray, shapes: NDArray) -> NDArray[np.float64]:
        """Probability of a response up to y at a linear predictor."""

    @abstractmethod
    def draw(
        self, z: NDArray, weight: NDArray, shapes: NDArray, rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """Draw a response of each row at a linear predictor; weights are numbers of trials."""

    def around(
        self, y: NDArray, z: NDArray, weight: NDArray, shapes: NDArray
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Probabilities of a response below y, and up to y; weights are numbers of trials."""
        upto = self.below(y, z, shapes)
        return (self.below(y - 1, z, shapes) if self.whole else upto), upto

    @abstractmethod
    def spread(self, z: NDArray, shapes: NDArray) -> NDArray[np.float64]:
        """Variance of a response of weight 1 at a linear predictor."""

    def deviance(self, y: NDArray, mean: NDArray, shapes: NDArray) -> NDArray[np.float64]:
        """Twice the log-likelihood that a row of weight 1 loses at this mean, as R's `dev.resids`.

        Raises
        ------
        ValueError
            If responses are classes.
        """
        raise ValueError(f"rows of family={self.name!r} have no deviance residuals.")

    def parameters(self, mean: NDArray, shapes: NDArray, covariance: NDArray) -> list[Parameter]:
        """Rows of `tidy` for shapes, from the covariance of mean and shapes, (p + t, p + t)."""
        return []


class LogLink(ResponseFamily):
    """A family of rows with mean ``e^z``."""

    link: ClassVar[str] = "log"

    def mean(self, centre: NDArray, variance: NDArray, shapes: NDArray) -> NDArray[np.float64]:
        """Mean of a log-normal number.

        Where rows separate a coefficient, as a cell without events does, the variance has no limit,
        and a normal approximation is no distribution: the mean is then that at the centre.
        """
        return np.exp(centre + np.where(variance < SEPARATED, variance, 0.0) / 2)

    def lazy_mean(self, rows: LazyPredictors, shapes: NDArray) -> Any:
        known = where(rows.variance < SEPARATED, rows.variance, 0.0)
        return (rows.centre + known / 2).exp()

    def inverse(self, z: NDArray, shapes: NDArray) -> NDArray[np.float64]:
        """``e^z``."""
        with np.errstate(over="ignore"):  # of ends of intervals where z has no limit
            return np.exp(z)


def responses_of(
    y: NDArray[np.float64], beside: Mapping[str, NDArray], family: ResponseFamily | None
) -> Responses:
    """Return the responses of rows, those of weight 0 too.

    Binomial shares are of as many trials as their weight says, as in R.

    Parameters
    ----------
    y : ndarray of shape (n_rows,)
    beside : mapping
        `sample_weight`, `trials` and `offset`, where rows have them.
    family : ResponseFamily or None
        None: any number.

    Raises
    ------
    ValueError, TypeError
        If they cannot be of the family.
    """
    weight, trials = beside.get("sample_weight"), beside.get("trials")
    name = "gaussian" if family is None else family.name
    if trials is not None and name != "binomial":
        raise ValueError(f"trials= is for family='binomial'; got family={name!r}.")
    if name == "binomial" and trials is None and weight is not None and are_shares(y):
        trials, weight = weight, None
        y = won_of_shares(y, trials).astype(float)
    weighted = weight is not None
    weight = np.ones(len(y)) if weight is None else weight
    if trials is not None:
        if (over := y > trials).any():
            row = int(np.argmax(over))
            raise ValueError(
                f"y must be at most trials; row {row} has {y[row]:g} of {trials[row]:g}."
            )
        y, weight = y / np.maximum(trials, 1), weight * trials
    if family is not None:
        family.check(y, np.ones(1) if trials is None else trials)
    both = trials if weighted else None
    return Responses(y, weight, beside.get("offset", np.zeros(len(y))), both)


def counts_rows(
    rows: Responses, beside: Mapping[str, NDArray], family: ResponseFamily | None
) -> bool:
    """Whether weights of rows are numbers of rows, and no numbers of trials."""
    return family is not None and "trials" not in beside and family.counts_rows(rows)


def check_rows(wrong: NDArray, values: NDArray, text: str) -> None:
    """Raise a ValueError that shows the first wrong row, if one is wrong."""
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(f"{text}; row {row} has {values[row]:g}.")
