"""Residuals of rows, and checks of what a fit assumes of them.

`Diagnostics` has rows with what a fit says of them; an estimator or a formula makes it. Residuals
that need effects of groups by simulation draw them from their posterior: effects at their posterior
mean have adapted to the rows, and the residuals around them are too small.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["Check", "Diagnostics", "ResidualKind", "RowLaw", "diagnostics_of"]

ResidualKind = Literal["response", "pearson", "deviance", "standardized", "quantile"]
KINDS = ("response", "pearson", "deviance", "standardized", "quantile")

N_NODES = 41  # over the linear predictor of a new group
SMALLEST = 2.0**-53  # probability of a tail, of which quantiles are known


class RowLaw(ABC):
    """Distribution of the responses of n rows, given their linear predictors.

    Attributes
    ----------
    weight : ndarray of shape (n,)
        Weight of each row in Pearson and deviance residuals.
    counts : bool
        Whether responses may be zero events or successes.
    has_noise : bool
        Whether the variance of rows was fitted with a parameter of its own.
    """

    weight: NDArray
    counts: bool = False
    has_noise: bool = False

    @abstractmethod
    def mean(self, z: NDArray) -> NDArray[np.float64]:
        """Mean response."""

    @abstractmethod
    def at(self, mean: NDArray, z: NDArray) -> NDArray[np.float64]:
        """Linear predictor of a mean response; of classes, z."""

    @abstractmethod
    def spread(self, z: NDArray) -> NDArray[np.float64]:
        """Variance of a response; where weights are not part of it, that of weight 1."""

    @abstractmethod
    def around(self, y: NDArray, z: NDArray) -> tuple[NDArray, NDArray]:
        """Probabilities of a response below y, and up to y."""

    @abstractmethod
    def draw(self, z: NDArray, rng: np.random.Generator) -> NDArray[np.float64]:
        """Draw responses."""

    @abstractmethod
    def deviance(self, y: NDArray, mean: NDArray) -> NDArray[np.float64]:
        """Deviance of each row."""


@dataclass(frozen=True)
class Check:
    """Result of a check of a fit.

    Attributes
    ----------
    name : str
        What was checked.
    observed, expected : float
        The figure in the rows, and on average where the fit is right.
    ratio : float
        Observed over expected.
    p_value : float
    alternative : {"greater", "less", "two-sided"}
    method : str
        How the p-value was computed.
    """

    name: str
    observed: float
    expected: float
    p_value: float
    alternative: str
    method: str

    @property
    def ratio(self) -> float:
        """Observed over expected."""
        return self.observed / self.expected if self.expected > 0 else np.nan

    def __str__(self) -> str:
        return (
            f"{self.name}: observed {self.observed:.6g}, expected {self.expected:.6g}, "
            f"ratio {self.ratio:.3f}\np = {self.p_value:.4g} ({self.alternative}, {self.method})"
        )

    __repr__ = __str__


@dataclass(frozen=True, kw_only=True, repr=False)
class Diagnostics:
    """Rows with what a fit says of them: residuals and checks.

    Attributes
    ----------
    response, fitted, expected : ndarray of shape (n,)
        What was observed; `predict` of the row; and what is predicted of a group that is not known.
    predictor : ndarray of shape (n,)
        Posterior mean of the linear predictor.
    unknown : tuple of ndarray of shape (n,)
        Mean and variance of the linear predictor of a row of a new group.
    law : RowLaw
    drawn : callable
        Linear predictors with effects of groups drawn from their posterior, of a generator.
    renewed : callable
        The same with effects of new groups.
    leverage : callable or None
        Share of each response in its own fitted value; None where rows are not those of a fit of a
        linear model, as far as is known.
    smoothed : callable or None
        Mean and variance of linear predictors if the rows had other responses.
    rank : callable
        Number of coefficients of the mean.
    """

    response: NDArray
    fitted: NDArray
    expected: NDArray
    predictor: NDArray
    unknown: tuple[NDArray, NDArray]
    law: RowLaw
    drawn: Callable[[np.random.Generator], NDArray]
    renewed: Callable[[np.random.Generator], NDArray]
    leverage: Callable[[], NDArray] | None
    smoothed: Callable[[NDArray], tuple[NDArray, NDArray]] | None
    rank: Callable[[], int]

    def __repr__(self) -> str:
        return f"<Diagnostics of {len(self.response):,} rows>"

    def residuals(
        self,
        kind: ResidualKind = "response",
        *,
        conditional: bool = True,
        random_state: Any = 0,
    ) -> NDArray[np.float64]:
        """Return a residual of each row.

        Parameters
        ----------
        kind : {"response", "pearson", "deviance", "standardized", "quantile"}
            - ``"response"``: the response less the fitted value.
            - ``"pearson"``: that over the standard deviation of a row. Marginal ones are over the
              standard deviation of a row of any group, so that their variance is 1 too.
            - ``"deviance"``: the signed root of the deviance of the row, as in R.
            - ``"standardized"``: of linear models, over ``sigma sqrt(1 - h)``, h the leverage.
            - ``"quantile"``: the standard normal quantile of ``P(Y < y) + u P(Y = y)``, u uniform
              (Dunn and Smyth 1996); standard normal where the model is right, also of counts and
              classes. Beyond 8.2 the tails are cut.
        conditional : bool
            Whether the effects of groups are given. If not, rows are compared with those of new
            groups, as DHARMa does by simulation and this by integration; residuals of one group are
            then correlated. Conditional quantile residuals are around effects that are drawn once
            from their posterior (Waagepetersen 2006).
        random_state : int, Generator or None
            Seed of quantile residuals.

        Returns
        -------
        ndarray of shape (n,)
            Where a row has no variance, a Pearson residual is 0 of a response that is its mean, and
            NaN of others.

        Raises
        ------
        ValueError
            If there are no such residuals of these rows.

        References
        ----------
        Dunn, Smyth (1996), Randomized quantile residuals, J. Comput. Graph. Stat. 5; Waagepetersen
        (2006), A simulation-based goodness-of-fit test for random effects in generalized linear
        mixed models, Scand. J. Stat. 33.
        """
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(map(repr, KINDS))}; got {kind!r}.")
        if kind == "quantile":
            return self._quantile(conditional, np.random.default_rng(random_state))
        mean = self.fitted if conditional else self.expected
        away = self.response - mean
        if kind == "response":
            return away
        root = np.sqrt(self.law.weight)
        if kind == "deviance":
            return np.sign(away) * root * np.sqrt(self.law.deviance(self.response, mean))
        if kind == "pearson":
            variance = self._variance(mean, conditional)
            # a response that is certain is its mean, but for rounding
            unknown = np.where(np.abs(away) <= 1e-9 * np.abs(mean), 0.0, np.nan)
            return np.divide(away * root, np.sqrt(variance), out=unknown, where=variance > 0)
        if not conditional or self.leverage is None:
            raise ValueError(
                "standardized residuals are conditional ones, of all rows of the fit of a linear "
                "model."
            )
        left = np.maximum(1 - self.leverage(), 0)
        variance = self._variance(mean, True) * left
        return np.divide(
            away * root, np.sqrt(variance), out=np.full(len(away), np.nan), where=left > 1e-12
        )

    def _variance(self, mean: NDArray, conditional: bool) -> NDArray:
        """Variance of a row, of weight 1."""
        if conditional:
            return self.law.spread(self.law.at(mean, self.predictor))
        parts = [(self.law.mean(z), self.law.spread(z), share) for z, share in self._nodes()]
        middle = sum(share * m for m, _, share in parts)
        # the spread between groups does not fall with the weight of a row
        between = sum(share * (m - middle) ** 2 for m, _, share in parts)
        return sum(share * v for _, v, share in parts) + between * self.law.weight

    def _nodes(self) -> list[tuple[NDArray, float]]:
        """Linear predictors of new groups, and their shares."""
        from scipy.special import roots_hermitenorm

        nodes, shares = roots_hermitenorm(N_NODES)
        centre, deviation = self.unknown[0], np.sqrt(self.unknown[1])
        return [
            (centre + deviation * t, float(w))
            for t, w in zip(nodes, shares / shares.sum(), strict=True)
        ]

    def _quantile(self, conditional: bool, rng: np.random.Generator) -> NDArray:
        from scipy.special import ndtri

        if conditional:
            below, upto = self.law.around(self.response, self.drawn(rng))
        else:
            below, upto = np.zeros((2, len(self.response)))
            for z, share in self._nodes():
                low, high = self.law.around(self.response, z)
                below, upto = below + share * low, upto + share * high
        place = below + rng.random(len(below)) * (upto - below)
        return ndtri(np.clip(place, SMALLEST, 1 - SMALLEST))

    def simulate(self, *, conditional: bool = True, random_state: Any = 0) -> NDArray[np.float64]:
        """Draw a response of each row, of its group or of a new one.

        Parameters
        ----------
        conditional : bool
            Whether effects of groups are drawn from their posterior, rather than anew.
        random_state : int, Generator or None

        Returns
        -------
        ndarray of shape (n,)
        """
        rng = np.random.default_rng(random_state)
        return self.law.draw((self.drawn if conditional else self.renewed)(rng), rng)

    # Checks -----------------------------------------------------------------------------------

    def overdispersion(
        self,
        *,
        alternative: Literal["greater", "less", "two-sided"] = "greater",
        n_simulations: int = 200,
        random_state: Any = 0,
    ) -> Check:
        """Check whether rows scatter more than their distribution says.

        The figure is the sum of squares of Pearson residuals. It is compared with that of rows
        simulated from the fit with new effects of groups, whose effects are then estimated as those
        of the fit are; the parameters of the population stay as fitted.

        Parameters
        ----------
        alternative : {"greater", "less", "two-sided"}
        n_simulations : int
            The smallest p-value is ``1 / (n_simulations + 1)``.
        random_state : int, Generator or None

        Returns
        -------
        Check

        Raises
        ------
        ValueError
            If rows are normal, whose noise is fitted; or weights are not numbers of trials.
        """
        if self.smoothed is None or self.law.has_noise:
            raise ValueError(
                "overdispersion is checked of counts and classes whose variance follows from the "
                "mean; that of these rows was fitted."
            )

        def squares(y: NDArray, mean: NDArray, variance: NDArray) -> float:
            middle = _average(self.law.mean, mean, variance)
            spread = self.law.spread(self.law.at(middle, mean))
            return float(np.sum(self.law.weight * (y - middle) ** 2 / spread))

        return self._compared(
            "overdispersion, squares of Pearson residuals",
            squares,
            alternative,
            n_simulations,
            random_state,
        )

    def zero_inflation(
        self,
        *,
        alternative: Literal["greater", "less", "two-sided"] = "greater",
        n_simulations: int = 200,
        random_state: Any = 0,
    ) -> Check:
        """Check whether there are more zeros than simulated rows have.

        The figure is the number of rows of zero events, less that which the fit expects of these
        groups; see `overdispersion`. The result has the two numbers themselves.

        Parameters
        ----------
        alternative, n_simulations, random_state : as in `overdispersion`

        Returns
        -------
        Check

        Raises
        ------
        ValueError
            If responses are no counts.
        """
        if self.smoothed is None or not self.law.counts:
            raise ValueError("zeros are checked of counts and of numbers of successes.")
        zero = np.zeros(len(self.response))

        def chance(z: NDArray) -> NDArray:
            return self.law.around(zero, z)[1]

        def more(y: NDArray, mean: NDArray, variance: NDArray) -> float:
            return float((y == 0).sum() - _average(chance, mean, variance).sum())

        found = self._compared("zeros", more, alternative, n_simulations, random_state)
        observed = float((self.response == 0).sum())
        expected = observed - (found.observed - found.expected)
        return Check("zeros", observed, expected, found.p_value, alternative, found.method)

    def _compared(
        self,
        name: str,
        figure: Callable[[NDArray, NDArray, NDArray], float],
        alternative: str,
        n_simulations: int,
        random_state: Any,
    ) -> Check:
        if alternative not in ("greater", "less", "two-sided"):
            raise ValueError(
                f"alternative must be 'greater', 'less' or 'two-sided'; got {alternative!r}."
            )
        if n_simulations < 20:
            raise ValueError(f"n_simulations must be at least 20; got {n_simulations!r}.")
        assert self.smoothed is not None
        rng = np.random.default_rng(random_state)
        observed = figure(self.response, *self.smoothed(self.response))
        simulated = np.empty(n_simulations)
        for j in range(n_simulations):
            y = self.law.draw(self.renewed(rng), rng)
            simulated[j] = figure(y, *self.smoothed(y))
        tails = {
            "greater": (simulated >= observed).sum(),
            "less": (simulated <= observed).sum(),
        }
        tails["two-sided"] = 2 * min(tails.values())
        twice = 1 + (alternative == "two-sided")
        p = min(1.0, float((tails[alternative] + twice) / (n_simulations + 1)))
        method = f"{n_simulations} simulations"
        return Check(name, observed, float(simulated.mean()), p, alternative, method)


def _average(of: Callable[[NDArray], NDArray], mean: NDArray, variance: NDArray) -> NDArray:
    """Average a function of a normal number, by five nodes."""
    from scipy.special import roots_hermitenorm

    nodes, shares = roots_hermitenorm(5)
    total, deviation = np.zeros(len(mean)), np.sqrt(np.maximum(variance, 0))
    for t, share in zip(nodes, shares / shares.sum(), strict=True):
        total = total + share * of(mean + deviation * t)
    return total


def diagnostics_of(fit: Any) -> Diagnostics:
    """Return the diagnostics of a fit that has its rows, or those that were given.

    Raises
    ------
    TypeError
        If it is neither.
    """
    if isinstance(fit, Diagnostics):
        return fit
    found = getattr(fit, "diagnostics", None)
    if found is None or not hasattr(fit, "formula"):
        raise TypeError(
            "fit must be a fitted formula of a regression, or what diagnostics(X, y, groups=…) of "
            f"an estimator returns; got {type(fit).__name__}."
        )
    return found()
