"""Estimates ``x_i ~ N(w_i' beta, t + s_i**2)`` of areas or studies, and what they say about t.

`Normal` is the population of the parameters. This is the same fit as survey statisticians and
meta-analysts use it: without a posterior, so that it is repeated cheaply, and with Cochran's Q, the
interval of t, and what estimating t costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ebfed.likelihoods import Gaussian
from ebfed.priors.regression import Design, table_of
from ebfed.priors.variance_components import (
    MomentTable,
    Profile,
    fit_components,
    information,
    ratio_at,
)

__all__ = ["RandomEffects"]


@dataclass(frozen=True)
class RandomEffects:
    """A fit of the variance t between units, and of the coefficients beta given t.

    Attributes
    ----------
    design : Design
        Of all n units, those without an estimate too.
    table : MomentTable
        Estimates of the units that have one.
    method : {"reml", "ml", "moments", "paule_mandel"}
    variance : float
        The fitted t.
    profile : Profile
        The fit given t.

    Examples
    --------
    >>> x, s = np.array([0.0, 2.0, 4.0]), np.ones(3)
    >>> fit = RandomEffects.fit(x, s**2, Design.of(None, s > 0))
    >>> fit.variance, fit.coefficients, fit.q
    (3.0, array([2.]), 8.0)
    """

    design: Design
    table: MomentTable
    method: str
    variance: float
    profile: Any

    @classmethod
    def fit(cls, values: NDArray, variances: NDArray, design: Design, method: str = "reml") -> Self:
        """Fit estimates, shape (n,), with sampling variances, infinite where there is none."""
        likelihood = Gaussian(values[:, None], variances[:, None])
        table = table_of(likelihood, 0, True, design)
        t = fit_components([table], method)[0]
        return cls(design, table, method, float(t), table.profile(t))

    @property
    def size(self) -> int:
        """Number of units with an estimate."""
        return int(self.table.size)

    @property
    def degrees(self) -> int:
        """Number of units with an estimate, less that of coefficients."""
        return self.size - self.table.n_means

    @property
    def log_likelihood(self) -> float:
        """Log marginal likelihood of the estimates at t and beta, whatever the method."""
        constant = self.size * np.log(2 * np.pi)
        return float(-0.5 * (constant + self.profile.log_det + self.profile.quadratic))

    # Coefficients --------------------------------------------------------------------------------

    @property
    def coefficients(self) -> NDArray:
        """Intercept and coefficients of the covariates, shape (p,)."""
        return self._outward() @ self.profile.inner[0]

    @property
    def covariance(self) -> NDArray:
        """Sampling covariance of `coefficients`, if t were known, shape (p, p)."""
        move = self._outward()
        return move @ self.profile.inner[1] @ move.T

    def _outward(self) -> NDArray:
        """Map from coefficients of the scaled design to those of the covariates."""
        move = np.eye(1 + len(self.design.centre))
        move[1:, 1:] /= self.design.scale
        move[0, 1:] = -self.design.centre / self.design.scale
        return move

    def predict(self, covariates: NDArray | None = None) -> tuple[NDArray, NDArray]:
        """Return ``w_i' beta`` and its sampling variance: of the units, or of these covariates."""
        matrix = self.design.matrix
        if covariates is not None:
            scaled = (covariates - self.design.centre) / self.design.scale
            matrix = np.column_stack([np.ones(len(scaled)), scaled])
        coefficients, covariance = self.profile.inner
        return matrix @ coefficients, np.einsum("ni,ij,nj->n", matrix, covariance, matrix)

    # The variance between units ------------------------------------------------------------------

    @property
    def q(self) -> float:
        """Cochran's Q, the residual sum of squares weighted by ``1 / s_i**2``.

        It is chi-squared with `degrees` degrees of freedom if t is zero.
        """
        return float(self.table.profile(0.0).quadratic)

    @property
    def typical_variance(self) -> float:
        """Sampling variance of a typical unit, `degrees` over the trace of P.

        ``P = W - W X (X' W X)^-1 X' W`` with ``W = diag(1 / s_i**2)`` (Higgins and Thompson 2002).
        """
        return self.degrees / self.table.excess(1.0)[1]

    @property
    def sampling_variance(self) -> float:
        """Sampling variance of the fitted t, to leading order; see `information`."""
        return float(1 / information(self.table, self.profile, self.method))

    @property
    def variance_error(self) -> float:
        """Standard error of `variance`, with the coefficients estimated.

        With ``P = V^-1 - V^-1 X (X' V^-1 X)^-1 X' V^-1`` and d degrees of freedom, its square is
        ``2 / tr(P P)`` of restricted likelihood, ``2 d / tr(P)**2`` of Paule and Mandel's moments,
        and ``(2 d + 4 t tr(P) + 2 t**2 tr(P P)) / tr(P)**2`` of DerSimonian and Laird's, with P
        at t = 0 there; of full likelihood that of `sampling_variance`.
        """
        if self.method == "ml":
            return float(np.sqrt(self.sampling_variance))
        t = 0.0 if self.method == "moments" else self.variance
        unit, first, second = self._traces(t)
        if self.method == "reml":
            return float(unit * np.sqrt(2 / second))
        noise = 2.0 * self.degrees
        if self.method == "moments":
            relative = self.variance / unit
            noise = noise + 4 * relative * first + 2 * relative**2 * second
        return float(unit * np.sqrt(noise) / first)

    def _traces(self, t: float) -> tuple[float, float, float]:
        """Return a unit of variance, and the traces of P and P P in that unit, at t."""
        total = self.table.totals(t)
        unit = float(total.min())
        total = total / unit
        counts = self.table.counts
        matrix = getattr(self.table, "matrix", np.sqrt(counts)[:, None])
        powers = [matrix.T @ (matrix / total[:, None] ** k) for k in (1, 2, 3)]
        inner = np.linalg.inv(powers[0])
        hat = inner @ powers[1]
        first = counts @ (1 / total) - np.trace(hat)
        second = counts @ total**-2.0 - 2 * np.trace(inner @ powers[2]) + np.trace(hat @ hat)
        return unit, float(first), float(second)

    @property
    def variance_bias(self) -> float:
        """Bias of `variance`, up to terms of smaller order than one over the number of units.

        Of maximum likelihood ``-tr[(X' V^-1 X)^-1 X' V^-2 X] / sum(1 / v_i**2)``, and of Paule and
        Mandel's moments ``2 [m sum(1 / v_i**2) - (sum 1 / v_i)**2] / (sum 1 / v_i)**3``. That of
        restricted likelihood is zero.

        References
        ----------
        Datta and Lahiri (2000), A unified measure of uncertainty of estimated best linear unbiased
        predictors in small area estimation problems, Statistica Sinica 10, 613-627; Datta, Rao and
        Smith (2005), On measuring the variability of small area estimators under a basic area level
        model, Biometrika 92, 183-196.
        """
        profile: Profile = self.profile
        squares = 2 * float(profile.information)
        if self.method == "ml":
            return float(profile.slope_log_weight) / squares
        if self.method == "paule_mandel":
            total = float(profile.slope_det)
            return 2 * (self.size * squares / total**2 - 1) / total
        return 0.0

    def variance_interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the interval of t by the Q-profile: exact if estimates are normal.

        At the true t, the weighted sum of squares is chi-squared. The interval has the t at which
        it lies between two quantiles. Both ends are 0 where it is below both even at 0.

        References
        ----------
        W. Viechtbauer (2007), Confidence intervals for the amount of heterogeneity in
        meta-analysis, Statistics in Medicine 26, 37-52.

        Examples
        --------
        >>> x = np.array([0.0, 2.0, 4.0])
        >>> fit = RandomEffects.fit(x, np.ones(3), Design.of(None, x >= 0))
        >>> tuple(round(end, 3) for end in fit.variance_interval())
        (0.084, 156.992)
        """
        from scipy.stats import chi2

        goals = chi2.ppf([(1 + level) / 2, (1 - level) / 2], self.degrees)
        lower, upper = (ratio_at([self.table], float(goal)) for goal in goals)
        return lower, upper
