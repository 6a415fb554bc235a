"""Rows of successes, a share of trials or one trial each."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, expit, gammaln, xlogy

from ebfed import kernels
from ebfed.kernels.responses import BINOMIAL
from ebfed.regression.families.base import Base, ResponseFamily, Responses, check_rows
from ebfed.regression.families.lazy_predictors import LazyPredictors

__all__ = ["Binomial", "BinomialLink"]

BinomialLink = Literal["logit", "probit", "cloglog"]


class Binomial(ResponseFamily):
    """Rows of ``weight`` trials, of which the share y are successes.

    ``l = y log p + (1 - y) log(1 - p)``, with ``p = 1 / (1 + e^-z)``, or another function of z in
    classes that follow from this one; as in R, the number of trials is the weight of a row.

    Examples
    --------
    >>> Binomial().inverse(np.array([0.0]), np.zeros(0))
    array([0.5])
    """

    name: ClassVar[str] = "binomial"
    kind: ClassVar[int] = BINOMIAL
    link: ClassVar[BinomialLink] = "logit"
    certain: ClassVar[bool] = True

    def check(self, y: NDArray, weight: NDArray) -> None:
        """Refuse shares outside 0 to 1, and shares of trials that are not whole numbers."""
        text = "y must be 0 or 1, or numbers of successes with trials="
        check_rows(~((y >= 0) & (y <= 1)), y, text)
        won = y * weight
        check_rows(np.abs(won - np.rint(won)) > 1e-6 * np.maximum(won, 1), won, text)

    def alone(self, rows: Responses) -> bool:
        """Shares of several trials vary more where chances differ; single trials do not."""
        return bool((rows.weight > 1).any())

    def counts_rows(self, rows: Responses) -> bool:
        """Whole weights of rows that are 0 or 1, as those of `LogisticEB`."""
        whole = np.array_equal(rows.weight, np.floor(rows.weight))
        return whole and bool(np.isin(rows.y, (0, 1)).all())

    def base(self, rows: Responses, shapes: NDArray) -> Base:
        """Logarithm of the number of ways to have these successes, as often as a row counts."""
        n = len(rows.y)
        trials = rows.weight if rows.trials is None else rows.trials
        if np.array_equal(trials, np.ones(n)):
            ways = np.zeros(n)
        else:
            won = rows.y * trials
            ways = gammaln(trials + 1) - gammaln(won + 1) - gammaln(trials - won + 1)
            ways *= rows.weight / np.maximum(trials, 1) if rows.trials is not None else 1.0
        return ways, np.zeros((n, 0)), np.zeros((n, 0))

    def limited(self, rows: Responses) -> NDArray[np.bool_] | None:
        """Return whether a row has successes, and failures."""
        return np.column_stack([rows.y > 0, rows.y < 1])

    def mean(self, centre: NDArray, variance: NDArray, shapes: NDArray) -> NDArray[np.float64]:
        """Average of the logistic function."""
        out = np.empty(len(centre))
        kernels.log_logistic_normal(centre, variance, out)
        return np.exp(out)

    def log_probabilities(self, centre: NDArray, variance: NDArray) -> NDArray[np.float64]:
        """Logarithm of the average probability of a failure, and of a success, (n_rows, 2)."""
        out = np.empty((2, len(centre)))
        for sign, total in zip((-1, 1), out, strict=True):
            kernels.log_logistic_normal(sign * centre, variance, total)
        with np.errstate(invalid="ignore"):  # rows that are not identified are NaN
            return (out - np.logaddexp(*out)).T  # the last digits of two integrals

    def lazy_mean(self, rows: LazyPredictors, shapes: NDArray) -> Any:
        return rows.logistic()

    def lazy_probabilities(self, rows: LazyPredictors, shapes: NDArray) -> list[Any]:
        """Return the probabilities of a failure and of a success, as expressions."""
        won = rows.logistic()
        return [1.0 - won, won]

    def inverse(self, z: NDArray, shapes: NDArray) -> NDArray[np.float64]:
        """Probability of a success, ``1 / (1 + e^-z)``."""
        return expit(z)

    def failure(self, z: NDArray) -> NDArray[np.float64]:
        """Probability of a failure, with digits where that is small."""
        return expit(-z)

    def draw(
        self, z: NDArray, weight: NDArray, shapes: NDArray, rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """Draw the share of successes of each row."""
        trials = np.rint(weight).astype(np.int64)
        return rng.binomial(trials, self.inverse(z, shapes)) / np.maximum(trials, 1)

    def below(self, y: NDArray, z: NDArray, shapes: NDArray) -> NDArray[np.float64]:
        """Probability of a response up to y in one trial."""
        return np.where(y < 0, 0.0, np.where(y < 1, self.failure(z), 1.0))

    def around(
        self, y: NDArray, z: NDArray, weight: NDArray, shapes: NDArray
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Probabilities of fewer successes than this share of the trials, and of at most these."""
        trials = np.rint(weight)
        won = np.rint(y * trials)
        lost, failure = trials - won, self.failure(z)
        upto = betainc(np.maximum(lost, 1), won + 1, failure)
        fewer = betainc(lost + 1, np.maximum(won, 1), failure)
        return np.where(won > 0, fewer, 0.0), np.where(lost > 0, upto, 1.0)

    def spread(self, z: NDArray, shapes: NDArray) -> NDArray[np.float64]:
        """``p (1 - p)``."""
        return self.inverse(z, shapes) * self.failure(z)

    def deviance(self, y: NDArray, mean: NDArray, shapes: NDArray) -> NDArray[np.float64]:
        """``2 (y log(y / m) + (1 - y) log((1 - y) / (1 - m)))``."""
        lost = xlogy(y, y) - xlogy(y, mean) + xlogy(1 - y, 1 - y) - xlogy(1 - y, 1 - mean)
        return 2 * np.maximum(lost, 0)
