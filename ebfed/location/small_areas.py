"""Small areas: the model of Fay and Herriot for direct estimates of a survey and known errors.

With ``B_i = s_i**2 / (t + s_i**2)``, the best predictor of area i has the mean squared error
``g_1 = t B_i`` if t and beta are known. The rest is what estimating them adds, by the formula of
Prasad and Rao or by a bootstrap. See `fay_herriot` for the references.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ebfed.arguments import check_choice, check_level
from ebfed.likelihoods import Gaussian
from ebfed.location.estimates import Estimates, covariates_like
from ebfed.location.synthesis import Synthesis
from ebfed.priors.regression import Design, RandomEffects, check_covariates
from ebfed.privacy.calibration import check_count
from ebfed.report.plots.areas import plot_areas
from ebfed.report.summary import Grid, Sheet, Text, p_text
from ebfed.tables.alignment import labels_of, of_groups
from ebfed.tables.clients import LARGEST
from ebfed.tables.frames import frame
from ebfed.tables.values import numbers, read_labels

__all__ = ["FayHerriot", "bootstrap", "fay_herriot", "prasad_rao", "shrinkage_of"]

# Methods of the variance between areas: that of the population, and the name in a summary.
METHODS = {
    "reml": ("reml", "REML"),
    "ml": ("ml", "maximum likelihood"),
    "fh": ("paule_mandel", "Fay-Herriot moments"),
}
MSES = {"prasad_rao": "Prasad-Rao", "bootstrap": "parametric bootstrap"}


def fay_herriot(
    estimates: Any,
    std_errors: ArrayLike,
    covariates: Any = None,
    *,
    data: Any = None,
    labels: Any = None,
    method: Literal["reml", "ml", "fh"] = "reml",
    mse: Literal["prasad_rao", "bootstrap"] = "prasad_rao",
    n_bootstrap: int = 500,
    level: float = 0.95,
    random_state: Any = 0,
    verbose: int = 0,
) -> FayHerriot:
    """Estimate small areas from a survey's direct estimates and covariates (Fay and Herriot 1979).

    Area i has the direct estimate ``x_i ~ N(theta_i, s_i**2)`` with a known standard error, and its
    true value is ``theta_i = w_i' beta + u_i`` with ``u_i ~ N(0, t)``. With
    ``B_i = s_i**2 / (t + s_i**2)`` the estimate of area i (the EBLUP) is

        (1 - B_i) x_i + B_i w_i' beta.

    An area without a direct estimate (NaN, with the standard error NaN or infinite) has the
    synthetic estimate ``w_i' beta``.

    Parameters
    ----------
    estimates : array-like or series of shape (m,)
        Direct estimates.
    std_errors : array-like or series of shape (m,)
        Their standard errors, taken as known. An area with 0 is known exactly.
    covariates : str, data frame or array-like of shape (m, k) or (m,), optional
        Covariates of the areas, as numbers, or as a formula of columns of `data`, such as
        ``"~ income + C(region)"``; an intercept is always included.
    data : data frame, optional
        Columns that the formula uses, row by row those of the estimates.
    labels : array-like or series of shape (m,), optional
        Names of the areas; if None, the index of a pandas series.
    method : {"reml", "ml", "fh"}
        Estimate of t: restricted or full maximum likelihood, or Fay and Herriot's moments, at
        which ``sum_i (x_i - w_i' beta)**2 / (t + s_i**2)`` is its own expectation.
    mse : {"prasad_rao", "bootstrap"}
        Mean squared error of the estimates. ``"prasad_rao"`` is the formula of Prasad and Rao
        (1990), for restricted and full likelihood as in Datta and Lahiri (2000), and for moments as
        in Datta, Rao and Smith (2005). ``"bootstrap"`` fits simulated areas again.
    n_bootstrap : int
        Number of simulations.
    level : float in (0, 1)
        Level of all intervals.
    random_state : int, Generator or None
        Seed of the bootstrap.
    verbose : int
        Whether the bootstrap shows a progress bar.

    Returns
    -------
    FayHerriot

    Raises
    ------
    ValueError
        If a standard error is negative or all are 0, lengths or labels differ, fewer than ``k + 2``
        areas have a direct estimate, covariates are missing, constant or collinear, or another
        argument is invalid.

    References
    ----------
    Fay and Herriot (1979), Estimates of income for small places: an application of James-Stein
    procedures to census data, JASA 74, 269-277; Prasad and Rao (1990), The estimation of the mean
    squared error of small-area estimators, JASA 85, 163-171; Datta and Lahiri (2000), A unified
    measure of uncertainty of estimated best linear unbiased predictors in small area estimation
    problems, Statistica Sinica 10, 613-627; Datta, Rao and Smith (2005), On measuring the
    variability of small area estimators under a basic area level model, Biometrika 92, 183-196.

    Examples
    --------
    >>> direct, errors = [1.3, 0.6, 1.6, 0.5, np.nan, 0.3], [0.1, 0.2, 0.3, 0.1, np.nan, 0.2]
    >>> fit = fay_herriot(direct, errors, [1.0, 0.2, 0.7, 0.5, 0.9, 0.1], labels=list("abcdef"))
    >>> fit.to_frame()[["area", "direct", "estimate", "cv", "shrinkage"]].round(2)
      area  direct  estimate    cv  shrinkage
    0    a     1.3      1.31  0.08       0.12
    1    b     0.6      0.55  0.36       0.35
    2    c     1.6      1.29  0.20       0.55
    3    d     0.5      0.54  0.19       0.12
    4    e     NaN      1.26  0.28       1.00
    5    f     0.3      0.31  0.65       0.35
    """
    check_choice("method", method, METHODS)
    check_choice("mse", mse, MSES)
    check_count("n_bootstrap", n_bootstrap, 2)
    check_level(level)
    given = Estimates.read(estimates, std_errors, covariates, labels, data=data, unit="area")
    if given.covariance is not None:
        raise ValueError("std_errors must be one-dimensional: areas are independent.")
    sampled = given.has_data & (given.errors > 0)
    if not sampled.any():
        raise ValueError("std_errors must be positive for some areas with a direct estimate.")
    if given.covariates is not None:
        check_covariates(given.covariates[sampled], given.names)
    elif sampled.sum() < 2:
        raise ValueError("estimates must have at least two areas with a positive std_error.")
    values, variances = given.messages
    design = Design.of(given.covariates, sampled)
    fit = RandomEffects.fit(values, variances, design, METHODS[method][0])
    if mse == "prasad_rao":
        errors = prasad_rao(fit, variances, fit.predict()[1])
    else:
        errors = bootstrap(fit, variances, n_bootstrap, random_state, verbose)
    return FayHerriot(given, fit, method, level, mse, errors)


@dataclass(frozen=True, eq=False, repr=False)
class FayHerriot(Synthesis):
    """Result of `fay_herriot`.

    Attributes
    ----------
    given : Estimates
        Direct estimates, standard errors, covariates and labels of the areas.
    random_effects : RandomEffects
        The fit of the variance and the coefficients.
    method : str
    level : float
        Level of all intervals.
    mse_method : str
    mse : ndarray of shape (m,)
        Mean squared error of each estimate.
    """

    mse_method: str
    mse: NDArray

    # The areas -----------------------------------------------------------------------------------

    @property
    def synthetic(self) -> NDArray:
        """Estimates from covariates alone, ``w_i' beta``, shape (m,)."""
        return self.random_effects.predict()[0]

    @property
    def shrinkage(self) -> NDArray:
        """Share B_i of the synthetic estimate in each estimate, shape (m,)."""
        return shrinkage_of(self.variance, self.given.messages[1])

    @property
    def estimates(self) -> NDArray:
        """Estimates of the areas, EBLUPs, shape (m,)."""
        values = self.given.messages[0]
        return values + self.shrinkage * (self.synthetic - values)

    def interval(self) -> tuple[NDArray, NDArray]:
        """Return the interval of each area, from `posterior`, shape (m,) each.

        It averages over the t that the estimates leave plausible. So it is wider than
        ``estimate ± 1.96 sqrt(mse)`` where t is badly known, as with few areas, and where t is
        estimated as 0.
        """
        lower, upper = self.posterior.interval(self.level)
        return lower[:, 0], upper[:, 0]

    def to_frame(self) -> Any:
        """Return one row per area.

        Returns
        -------
        DataFrame
            The name of the area, ``direct`` and ``std_error`` as given, ``estimate``, ``mse``,
            ``cv`` (``sqrt(mse) / |estimate|``), ``lower``, ``upper`` and ``shrinkage`` (0: the
            direct estimate; 1: the synthetic one); in the library of the estimates.
        """
        return self._table(
            self.labels, self.given.values, self.given.errors, self.estimates, self.mse,
            self.interval(), self.shrinkage,
        )  # fmt: skip

    def predict(self, covariates: Any, *, labels: Any = None) -> Any:
        """Estimate areas that are not in the survey, from their covariates.

        Their mean squared error is that of the formula of Prasad and Rao, whatever `mse_method`.

        Parameters
        ----------
        covariates : data frame or array-like of shape (n, k) or (n,)
        labels : array-like of shape (n,), optional

        Returns
        -------
        DataFrame
            As `to_frame`.

        Raises
        ------
        ValueError
            If the fit has no covariates, or other ones.
        """
        found = covariates_like(self.given, covariates)
        n, labels = len(found), labels_of(covariates, labels)
        names = np.arange(n) if labels is None else read_labels(labels, "labels")
        if len(names) != n:
            raise ValueError(f"labels has {len(names)} entries for {n} areas.")
        centre, uncertain = self.random_effects.predict(found)
        nothing = np.full(n, np.inf)
        message = Gaussian(np.zeros((n, 1)), nothing[:, None])
        there = self.posterior.prior.at(found).posterior(message)
        ends = tuple(end[:, 0] for end in there.interval(self.level))
        return self._table(
            names, np.full(n, np.nan), np.full(n, np.nan), centre,
            prasad_rao(self.random_effects, nothing, uncertain), ends, np.ones(n),
        )  # fmt: skip

    def _table(
        self, labels: NDArray, direct: NDArray, errors: NDArray, estimates: NDArray, mse: NDArray,
        ends: tuple[NDArray, ...], shrinkage: NDArray,
    ) -> Any:  # fmt: skip
        columns = {"direct": direct, "std_error": errors, "estimate": estimates, "mse": mse}
        columns["cv"] = variation(estimates, mse)
        columns |= {"lower": ends[0], "upper": ends[1], "shrinkage": shrinkage}
        style = self.given.style.avoiding(columns)
        return frame({style.group: labels} | columns, style)

    def benchmark(
        self, weights: ArrayLike, total: float, *, method: Literal["ratio", "difference"] = "ratio"
    ) -> Any:
        """Make the estimates add up to a total that is known, such as the national figure.

        ``"ratio"`` multiplies all estimates by ``total / sum_j w_j estimate_j``; ``"difference"``
        adds ``(total - sum_j w_j estimate_j) / sum_j w_j`` to each. The mean squared error of a
        benchmarked estimate is ``mse + shift**2``: that of its posterior, around another point than
        the mean (You, Rao and Dick 2004).

        Parameters
        ----------
        weights : array-like or series of shape (m,)
            Weights in the total: shares of the population for a mean, sizes for a sum. A pandas
            series is read by the names of the areas in its index.
        total : float
        method : {"ratio", "difference"}

        Returns
        -------
        DataFrame
            The name of the area, ``direct``, ``estimate``, ``benchmarked``, ``shift`` and ``mse``.

        Raises
        ------
        ValueError
            If weights are negative, missing, all 0 or not one for each area, `total` is not finite,
            `method` is unknown, or a ratio is asked where the weighted sum is 0 or has not the sign
            of `total`.

        References
        ----------
        You, Rao and Dick (2004), Benchmarking hierarchical Bayes small area estimators in the
        Canadian census undercoverage estimation, Statistics in Transition 6, 631-640.

        Examples
        --------
        >>> fit = fay_herriot([1.0, 2.0, 4.0], [0.5, 0.5, 0.5])
        >>> fit.benchmark([0.5, 0.3, 0.2], 2.0).round(2)
           area  direct  estimate  benchmarked  shift   mse
        0     0     1.0      1.14         1.17   0.03  0.27
        1     1     2.0      2.04         2.09   0.06  0.27
        2     2     4.0      3.82         3.93   0.11  0.28
        """
        if method not in ("ratio", "difference"):
            raise ValueError(f"method must be 'ratio' or 'difference'; got {method!r}.")
        sizes = numbers(of_groups(weights, "weights", self.labels), "weights")
        if sizes.shape != self.mse.shape:
            raise ValueError(
                f"weights must be one for each of {len(self.mse)} areas; it has shape "
                f"{sizes.shape}."
            )
        if not ((sizes >= 0) & (sizes < LARGEST)).all() or not sizes.any():
            raise ValueError(f"weights must lie between 0 and {LARGEST:g}, and not all be 0.")
        if not np.isfinite(numbers(total, "total")) or np.ndim(total):
            raise ValueError(f"total must be a finite number; got {total!r}.")
        estimates = self.estimates
        found = float(sizes @ estimates)
        if method == "difference":
            shift = np.full(len(sizes), (total - found) / sizes.sum())
        elif found * total > 0:
            shift = estimates * (total / found - 1)
        else:
            raise ValueError(
                f"a ratio leads from no sum of {found:g} to a total of {total:g}; use "
                "method='difference'."
            )
        if not np.abs(shift).max() < LARGEST:
            raise ValueError(f"total is too far from the sum of the estimates; got {total:g}.")
        columns = {"direct": self.given.values, "estimate": estimates}
        columns |= {"benchmarked": estimates + shift, "shift": shift, "mse": self.mse + shift**2}
        style = self.given.style.avoiding(columns)
        return frame({style.group: self.labels} | columns, style)

    # The fit -------------------------------------------------------------------------------------

    @property
    def terms(self) -> list[str]:
        return ["intercept", *self.given.names]

    @property
    def coefficient_errors(self) -> NDArray:
        """Standard errors of `coefficients`, shape (1 + k,)."""
        return self._errors

    @property
    def variance(self) -> float:
        """Variance t between areas, around ``w_i' beta``."""
        return self.random_effects.variance

    @property
    def variance_interval(self) -> tuple[float, float]:
        """Interval of `variance` by the Q-profile, exact for normal areas (Viechtbauer 2007)."""
        return self.random_effects.variance_interval(self.level)

    def tidy(self) -> Any:
        """Return coefficients and the variance between areas, with the columns of broom.

        Returns
        -------
        DataFrame
            ``term``, ``estimate``, ``std.error``, ``statistic``, ``p.value``, ``conf.low``,
            ``conf.high``; tests and intervals of coefficients are normal.
        """
        return self._tidied("variance")

    def glance(self) -> Any:
        """Return the fit in one row.

        Returns
        -------
        DataFrame
            ``nobs`` (areas with a direct estimate), ``n_areas``, ``npar``, ``variance``, ``logLik``
            (log marginal likelihood at the estimates, by every method), ``AIC``, ``BIC``.
        """
        return self._glanced({"n_areas": len(self.mse)}, {"variance": self.variance})

    def summary(self) -> Text:
        """Describe the fit: coefficients, variance between areas, and precision gained."""
        sheet = Sheet("Small areas: Fay and Herriot")
        known = self.given.has_data
        low, high = self.variance_interval
        direct = variation(self.given.values[known], self.given.errors[known] ** 2)
        model = variation(self.estimates[known], self.mse[known])
        sheet.facts = [
            ("Areas", f"{len(known):,}"),
            ("Direct estimates", f"{known.sum():,}"),
            ("Variance by", METHODS[self.method][1]),
            ("MSE by", MSES[self.mse_method]),
            ("logLik", f"{self.random_effects.log_likelihood:.2f}"),
            ("Level", f"{100 * self.level:g}%"),
        ]
        sheet.details = [
            ("Variance", f"{self.variance:.5g}, {low:.5g} to {high:.5g}"),
            ("Median cv", f"direct {np.median(direct):.1%}, estimates {np.median(model):.1%}"),
            ("Shrinkage", " … ".join(f"{x:.3f}" for x in np.quantile(self.shrinkage, [0, 0.5, 1]))),
        ]
        titles = ("coefficient", "estimate", "std. error", "p-value", "lower", "upper")
        table = Grid(titles, (20, 13, 12, 9, 12, 12), 1)
        sheet.tables.append(table)
        for name, x, error, p, lower, upper in zip(
            self.terms, self.coefficients, self._errors, self.p_values, *self._ends, strict=True
        ):
            numbers_ = (f"{x:.5g}", f"{error:.4g}", p_text(p), f"{lower:.5g}", f"{upper:.5g}")
            table.rows.append((name, *numbers_))
        if self.variance == 0:
            sheet.notes = [
                "The variance between areas is estimated as zero: estimates are synthetic."
            ]
        return sheet.show()

    def plot(self, *, ax: Any = None) -> Any:
        """Draw direct estimates and estimates of all areas; see `report.plot_areas`."""
        return plot_areas(self, ax=ax)


def variation(estimates: NDArray, mse: NDArray) -> NDArray:
    """Coefficients of variation; infinite for an estimate of 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sqrt(mse) / np.abs(estimates)


def shrinkage_of(t: float, variances: NDArray) -> NDArray:
    """Return ``B_i = s_i**2 / (t + s_i**2)``, 1 for an infinite variance and 0 for one of 0."""
    finite = np.where(np.isinf(variances), 1.0, variances)
    shares = np.divide(finite, t + finite, out=np.zeros(len(finite)), where=finite > 0)
    return np.where(np.isinf(variances), 1.0, shares)


def prasad_rao(fit: RandomEffects, variances: NDArray, uncertain: NDArray) -> NDArray:
    """Return ``g_1 - B_i**2 bias + g_2 + 2 g_3`` of areas with these sampling variances.

    ``g_2 = B_i**2 w_i' Cov(beta) w_i`` is for estimating beta, and ``g_3 = B_i**2 Var(t) / (t +
    s_i**2)`` for t. g_3 counts twice, since g_1 at the estimate of t is too small by as much again;
    it is off by ``B_i**2`` times the bias of t, too, which is 0 by REML. The first two terms
    together are cut at 0, which they pass only where the bias is larger than t.

    Parameters
    ----------
    fit : RandomEffects
    variances : ndarray of shape (n,)
        Sampling variances, infinite for areas without a direct estimate.
    uncertain : ndarray of shape (n,)
        Sampling variances ``w_i' Cov(beta) w_i`` of the synthetic estimates.

    Examples
    --------
    >>> from ebfed.priors.regression import Design
    >>> x, s = np.array([0.0, 2.0, 4.0]), np.ones(3)
    >>> fit = RandomEffects.fit(x, s**2, Design.of(None, s > 0))
    >>> prasad_rao(fit, np.array([1.0, np.inf]), fit.predict()[1][:2]).round(3)
    array([1.167, 4.333])
    """
    t = fit.variance
    squared = shrinkage_of(t, variances) ** 2
    total = np.where(variances + t > 0, variances + t, np.inf)
    first = np.maximum(t * shrinkage_of(t, variances) - squared * fit.variance_bias, 0.0)
    return first + squared * uncertain + 2 * squared * fit.sampling_variance / total


def bootstrap(
    fit: RandomEffects, variances: NDArray, size: int, random_state: Any, verbose: int
) -> NDArray:
    """Return mean squared errors in areas simulated from the fit, and fitted again.

    The error of an estimate is that of the best predictor, which knows t and beta, plus their
    difference; the two are not correlated. So g_1 is known, and only the second is simulated.

    Parameters
    ----------
    fit : RandomEffects
    variances : ndarray of shape (n,)
        Sampling variances of the areas of the fit, infinite for those without a direct estimate.
    size : int
        Number of simulations.
    random_state : int, Generator or None
    verbose : int
        Whether to show a progress bar.

    References
    ----------
    González-Manteiga, Lombardía, Molina, Morales and Santamaría (2008), Bootstrap mean squared
    error of a small-area EBLUP, Journal of Statistical Computation and Simulation 78, 443-462.
    """
    from tqdm import trange

    rng = np.random.default_rng(random_state)
    t, centre = fit.variance, fit.predict()[0]
    noise = np.sqrt(np.where(np.isinf(variances), 0.0, variances))
    away = shrinkage_of(t, variances)
    squares = np.zeros(len(variances))
    for _ in trange(size, desc="bootstrap", leave=False, disable=not verbose):
        theta = centre + np.sqrt(t) * rng.standard_normal(len(centre))
        x = theta + noise * rng.standard_normal(len(centre))
        again = RandomEffects.fit(x, variances, fit.design, fit.method)
        best = x + away * (centre - x)
        found = x + shrinkage_of(again.variance, variances) * (again.predict()[0] - x)
        squares += (found - best) ** 2
    return t * away + squares / size
