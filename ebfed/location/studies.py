"""Random-effects meta-analysis: effects, their mean, how studies differ, and each study shrunk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ebfed.arguments import check_choice, check_level
from ebfed.location.estimates import Estimates, covariates_like
from ebfed.location.synthesis import Synthesis
from ebfed.priors.regression import Design, RandomEffects, check_covariates
from ebfed.report.plots.forest import plot_forest, plot_funnel
from ebfed.report.summary import Grid, Sheet, Text, p_text
from ebfed.tables.alignment import index_of
from ebfed.tables.frames import frame, indexed_like
from ebfed.tables.rows import Rows

__all__ = ["MetaAnalysis", "effect_sizes", "meta_analysis"]

# Methods of the variance between studies: that of the population, and the name in a summary.
METHODS = {
    "reml": ("reml", "REML"),
    "ml": ("ml", "maximum likelihood"),
    "pm": ("paule_mandel", "Paule-Mandel"),
    "dl": ("moments", "DerSimonian-Laird"),
}
TESTS = {"z": "normal", "knha": "Knapp-Hartung"}

LARGEST = 2.0**53  # larger floats have no unit


def meta_analysis(
    estimates: Any,
    std_errors: ArrayLike,
    covariates: Any = None,
    *,
    data: Any = None,
    labels: Any = None,
    method: Literal["reml", "ml", "pm", "dl"] = "reml",
    test: Literal["z", "knha"] = "z",
    level: float = 0.95,
) -> MetaAnalysis:
    """Combine the estimates of studies whose true effects differ: a random-effects meta-analysis.

    Study i has the estimate ``x_i ~ N(theta_i, s_i**2)`` of its own effect, and the effects of
    studies are normal, ``theta_i ~ N(mu, tau2)``; with covariates (moderators), around
    ``w_i' beta``. The function estimates mu, its interval, the variance tau2 between studies with
    its interval, the effect in a new study, and the effect in each study, shrunk to the mean.
    Intervals of mu take tau2 as known; with few studies use ``test="knha"``. The posterior of each
    study averages over the plausible tau2.

    Parameters
    ----------
    estimates : array-like or series of shape (k,)
        Effects: log risk ratios, mean differences, ….  See `effect_sizes`.
    std_errors : array-like or series of shape (k,)
        Their standard errors, in the same unit.
    covariates : str, data frame or array-like of shape (k, p) or (k,), optional
        Moderators of each study: a meta-regression, as numbers, or as a formula of columns of
        `data` and of ``se``, the standard errors, such as ``"~ year + log(se)"``. An intercept is
        always included.
    data : data frame, optional
        Columns that the formula uses, row by row those of the estimates.
    labels : array-like or series of shape (k,), optional
        Names of the studies; if None, the index of a pandas series.
    method : {"reml", "ml", "pm", "dl"}
        Estimate of tau2: restricted or full maximum likelihood, Paule and Mandel's moments (also
        called empirical Bayes), or DerSimonian and Laird's.
    test : {"z", "knha"}
        Intervals and tests of coefficients: normal, or by Knapp and Hartung (2003; also Hartung,
        Knapp, Sidik and Jonkman), with a variance from the residuals and Student's t.
    level : float in (0, 1)
        Level of all intervals.

    Returns
    -------
    MetaAnalysis

    Raises
    ------
    ValueError
        If an estimate is missing, a standard error is not positive and finite, lengths or labels
        differ, there are fewer than two studies (with p covariates, p + 2), covariates are missing,
        constant or collinear, or `method`, `test` or `level` is unknown.

    References
    ----------
    DerSimonian and Laird (1986), Meta-analysis in clinical trials; Knapp and Hartung (2003),
    Improved tests for a random effects meta-regression with a single covariate; Higgins, Thompson
    and Spiegelhalter (2009), A re-evaluation of random-effects meta-analysis; Viechtbauer (2010),
    Conducting meta-analyses in R with the metafor package.

    Examples
    --------
    >>> found = meta_analysis([0.2, 0.5, 0.9, 0.1], [0.1, 0.15, 0.3, 0.2], labels=list("abcd"))
    >>> round(found.estimate, 3), [round(end, 3) for end in found.interval]
    (0.363, [0.089, 0.636])
    >>> round(found.tau2, 4), round(found.i2, 3)
    (0.0459, 0.628)
    >>> found.to_frame()[["study", "local", "estimate", "lower", "upper"]].round(2)
      study  local  estimate  lower  upper
    0     a    0.2      0.23   0.03   0.41
    1     b    0.5      0.45   0.20   0.76
    2     c    0.9      0.54   0.19   1.29
    3     d    0.1      0.22  -0.21   0.52
    """
    check_choice("method", method, METHODS)
    check_choice("test", test, TESTS)
    check_level(level)
    given = Estimates.read(estimates, std_errors, covariates, labels, data=data, unit="study")
    if given.covariance is not None:
        raise ValueError("std_errors must be one-dimensional: studies are independent.")
    wrong = ~(np.isfinite(given.values) & given.has_data & (given.errors > 0))
    if wrong.any():
        i = int(np.argmax(wrong))
        raise ValueError(
            "estimates must be finite, and std_errors positive and finite; got "
            f"{given.values[i]:g} and {given.errors[i]:g} in row {i}. Leave such a study out."
        )
    if len(given.values) < 2:
        raise ValueError("estimates must be of at least two studies.")
    if given.covariates is not None:
        check_covariates(given.covariates, given.names)
    design = Design.of(given.covariates, given.has_data)
    fit = RandomEffects.fit(given.values, given.errors**2, design, METHODS[method][0])
    return MetaAnalysis(given, fit, method, level, test)


@dataclass(frozen=True, eq=False, repr=False)
class MetaAnalysis(Synthesis):
    """Result of `meta_analysis`.

    Attributes
    ----------
    given : Estimates
        Estimates, standard errors, covariates and labels of the studies.
    random_effects : RandomEffects
        The fit of the variance and the coefficients.
    method : str
    level : float
        Level of all intervals.
    test : str
    """

    test: str

    # The studies ---------------------------------------------------------------------------------

    @property
    def n_studies(self) -> int:
        """Number of studies."""
        return self.random_effects.size

    @property
    def share(self) -> NDArray:
        """Weight of each study in the mean, of all weights, shape (k,)."""
        weights = 1 / (self.tau2 + self.given.errors**2)
        return weights / weights.sum()

    def to_frame(self) -> Any:
        """Return one row per study: estimates as given and shrunk.

        Returns
        -------
        DataFrame
            The name of the study, ``local`` and ``std_error`` (as given), ``share`` (of the study
            in the mean), and of its own effect ``estimate``, ``sd``, ``lower``, ``upper`` and
            ``weight`` (of its own estimate); in the library of the estimates.
        """
        posterior, given = self.posterior, self.given
        columns = {"local": given.values, "std_error": given.errors, "share": self.share}
        return posterior.labelled(given.ids, columns, given.style).to_frame(self.level)

    # Coefficients --------------------------------------------------------------------------------

    @property
    def terms(self) -> list[str]:
        return ["intercept", *self.given.names] if self.given.names else ["mean"]

    @property
    def std_errors(self) -> NDArray:
        """Standard errors of `coefficients`, shape (1 + p,)."""
        return self._errors

    @property
    def estimate(self) -> float:
        """Mean of the effects of studies; with covariates, at their average."""
        return float(self.random_effects.profile.inner[0][0])

    @property
    def std_error(self) -> float:
        """Standard error of `estimate`."""
        return float(np.sqrt(self._inflation * self.random_effects.profile.inner[1][0, 0]))

    @property
    def interval(self) -> tuple[float, float]:
        """Interval of `estimate`."""
        half = self._reach * self.std_error
        return self.estimate - half, self.estimate + half

    @property
    def prediction_interval(self) -> tuple[float, float]:
        """Interval of the effect in a new study; with covariates, in one with average ones.

        ``estimate ± q sqrt(tau2 + std_error**2)``, with q the quantile of `interval`.
        """
        half = self._reach * float(np.sqrt(self.tau2 + self.std_error**2))
        return self.estimate - half, self.estimate + half

    def predict(self, covariates: Any = None) -> Any:
        """Return the mean effect, and that in a new study, at given covariates.

        Parameters
        ----------
        covariates : data frame or array-like of shape (n, p) or (n,), optional
            Those of the studies if None.

        Returns
        -------
        DataFrame
            ``estimate``, ``std_error``, ``lower`` and ``upper`` of the mean, and ``new_lower`` and
            ``new_upper``, the prediction interval of a new study.

        Raises
        ------
        ValueError
            If the analysis has no covariates, or other ones.
        """
        found = None
        if covariates is not None:
            found = covariates_like(self.given, covariates)
        centre, variance = self.random_effects.predict(found)
        error = np.sqrt(self._inflation * variance)
        half, wide = self._reach * error, self._reach * np.sqrt(self.tau2 + error**2)
        columns = {"estimate": centre, "std_error": error}
        columns |= {"lower": centre - half, "upper": centre + half}
        columns |= {"new_lower": centre - wide, "new_upper": centre + wide}
        return self._frame(columns)

    @property
    def _inflation(self) -> float:
        """Factor of the variances of coefficients by Knapp and Hartung."""
        return (
            float(self.random_effects.profile.quadratic) / self.random_effects.degrees
            if self.test == "knha"
            else 1.0
        )

    @property
    def _law(self) -> Any:
        from scipy.stats import t

        return super()._law if self.test == "z" else t(self.random_effects.degrees)

    # How the studies differ ----------------------------------------------------------------------

    @property
    def tau2(self) -> float:
        """Variance between studies; with covariates, around their means."""
        return self.random_effects.variance

    @property
    def tau2_interval(self) -> tuple[float, float]:
        """Interval of `tau2` by the Q-profile (Viechtbauer 2007)."""
        return self.random_effects.variance_interval(self.level)

    @property
    def i2(self) -> float:
        """Share of the variance of estimates that is between studies, I squared.

        ``tau2 / (tau2 + s2)`` with s2 the sampling variance of a typical study (Higgins and
        Thompson 2002).
        """
        return float(_i2(self, self.tau2))

    @property
    def i2_interval(self) -> tuple[float, float]:
        """Interval of `i2`, from that of `tau2`."""
        lower, upper = self.tau2_interval
        return float(_i2(self, lower)), float(_i2(self, upper))

    @property
    def h2(self) -> float:
        """Variance of estimates over that of sampling, H squared."""
        return 1 + self.tau2 / self.random_effects.typical_variance

    @property
    def q(self) -> float:
        """Cochran's Q; with covariates, of the residuals."""
        return self.random_effects.q

    @property
    def q_p_value(self) -> float:
        """Probability of a larger `q` if studies did not differ."""
        from scipy.stats import chi2

        return float(chi2.sf(self.q, self.random_effects.degrees))

    @property
    def moderator_test(self) -> tuple[float, float]:
        """Test that all slopes are zero: statistic and p-value; NaN without covariates.

        The statistic is Wald's, chi-squared with p degrees of freedom; with ``test="knha"`` it is
        that over p, with F's distribution.
        """
        from scipy import stats

        slopes, p = self.coefficients[1:], len(self.coefficients) - 1
        if p == 0:
            return np.nan, np.nan
        given = self.random_effects.covariance[1:, 1:]
        with np.errstate(divide="ignore", invalid="ignore"):
            wald = float(np.float64(slopes @ np.linalg.solve(given, slopes)) / self._inflation)
        if self.test == "z":
            return wald, float(stats.chi2.sf(wald, p))
        return wald / p, float(stats.f.sf(wald / p, p, self.random_effects.degrees))

    @property
    def r2(self) -> float:
        """Share of the variance between studies that covariates explain; NaN without them.

        ``1 - tau2 / tau2_0``, cut at 0, with tau2_0 that of the same studies without covariates.
        """
        if not self.given.names:
            return np.nan
        design = Design.of(None, self.given.has_data)
        alone = RandomEffects.fit(
            self.given.values, self.given.errors**2, design, self.random_effects.method
        ).variance
        return max(0.0, 1 - self.tau2 / alone) if alone > 0 else np.nan

    # Reports -------------------------------------------------------------------------------------

    def tidy(self, *, exponentiate: bool = False) -> Any:
        """Return coefficients and the variance between studies, with the columns of broom.

        Parameters
        ----------
        exponentiate : bool
            Whether coefficients and their intervals are exponentiated: ratios from their
            logarithms. Standard errors and ``tau2`` are not.

        Returns
        -------
        DataFrame
            ``term``, ``estimate``, ``std.error``, ``statistic``, ``p.value``, ``conf.low``,
            ``conf.high``.
        """
        return self._tidied("tau2", np.exp if exponentiate else np.asarray)

    def glance(self) -> Any:
        """Return the analysis in one row.

        Returns
        -------
        DataFrame
            ``nobs`` (studies), ``npar``, ``tau2``, ``i2``, ``h2``, ``q``, ``q.df``, ``q.p.value``,
            ``logLik`` (log marginal likelihood at the estimates, by every method), ``AIC``,
            ``BIC``.
        """
        differ = {"tau2": self.tau2, "i2": self.i2, "h2": self.h2, "q": self.q}
        differ |= {"q.df": self.random_effects.degrees, "q.p.value": self.q_p_value}
        return self._glanced({}, differ)

    def summary(self, *, exponentiate: bool = False) -> Text:
        """Describe the analysis: coefficients, and how studies differ.

        Parameters
        ----------
        exponentiate : bool
            Whether coefficients, their intervals and the prediction interval are exponentiated.
        """
        shown = np.exp if exponentiate else np.asarray
        sheet = Sheet("Random-effects meta-analysis")
        sheet.facts = [
            ("Studies", f"{self.n_studies:,}"),
            ("tau^2 by", METHODS[self.method][1]),
            ("Intervals", TESTS[self.test]),
            ("Level", f"{100 * self.level:g}%"),
        ]
        low, high = self.tau2_interval
        error = self.random_effects.variance_error
        sheet.details = [
            ("tau^2", f"{self.tau2:.5g} (std. error {error:.4g}), {_range(low, high)}"),
            ("tau", f"{np.sqrt(self.tau2):.5g}, {_range(np.sqrt(low), np.sqrt(high))}"),
            ("I^2", f"{self.i2:.2%}, {' to '.join(f'{end:.2%}' for end in self.i2_interval)}"),
            ("H^2", f"{self.h2:.2f}"),
            ("Q", f"{self.q:.4f} on {self.random_effects.degrees} df, {_p_value(self.q_p_value)}"),
        ]
        if self.given.names:
            statistic, p = self.moderator_test
            name = "chi-squared" if self.test == "z" else "F"
            sheet.details += [("Moderators", f"{name} {statistic:.4f}, {_p_value(p)}")]
            if np.isfinite(self.r2):
                sheet.details += [("R^2", f"{self.r2:.2%} of tau^2 without covariates")]
        error_title = "std. error" + (" (log)" if exponentiate else "")
        titles = ("coefficient", "estimate", error_title, "p-value", "lower", "upper")
        width = len(error_title) + 2
        table = Grid(titles, (32 - width, 13, width, 9, 12, 12), 1)
        sheet.tables.append(table)
        ends = map(shown, self._ends)
        for name, x, error, p, lower, upper in zip(
            self.terms, shown(self.coefficients), self.std_errors, self.p_values, *ends, strict=True
        ):
            numbers = (f"{x:.5g}", f"{error:.4g}", p_text(p), f"{lower:.5g}", f"{upper:.5g}")
            table.rows.append((name, *numbers))
        new = shown(self.prediction_interval)
        where = " with average covariates" if self.given.names else ""
        sheet.remarks = [f"Effect in a new study{where}: {_range(*new)}"]
        if self.tau2 == 0:
            sheet.notes = [
                "tau^2 is estimated as zero: the studies differ no more than chance explains."
            ]
        if self._inflation < 1:
            sheet.notes += [
                "The estimates are more alike than their standard errors explain, so the intervals "
                "of Knapp and Hartung are short: compare with test='z'."
            ]
        return sheet.show()

    def forest(self, *, exponentiate: bool = False, ax: Any = None) -> Any:
        """Draw the studies with their intervals, and the mean; see `report.plot_forest`."""
        return plot_forest(self, exponentiate=exponentiate, ax=ax)

    def funnel(self, *, ax: Any = None) -> Any:
        """Draw the studies' estimates against their errors; see `report.plot_funnel`."""
        return plot_funnel(self, ax=ax)


def _i2(fit: MetaAnalysis, tau2: float) -> float:
    return tau2 / (tau2 + fit.random_effects.typical_variance)


def _range(low: float, high: float) -> str:
    return f"{low:.5g} to {high:.5g}"


def _p_value(p: float) -> str:
    return "p < 0.0001" if p < 1e-4 else f"p = {p:.4f}"


def effect_sizes(
    events: ArrayLike,
    n: ArrayLike,
    control_events: ArrayLike,
    control_n: ArrayLike,
    measure: Literal["RR", "OR", "RD"] = "RR",
    *,
    labels: Any = None,
) -> Any:
    """Compare events in two arms of each study: estimates and standard errors for a meta-analysis.

    With a of n events in the treated arm and c of m in the control arm,

        RR: log(a / n) - log(c / m),              variance 1/a - 1/n + 1/c - 1/m,
        OR: log(a / (n - a)) - log(c / (m - c)),  variance 1/a + 1/(n - a) + 1/c + 1/(m - c),
        RD: p - q = a / n - c / m,                variance p (1 - p) / n + q (1 - q) / m.

    In a study with an empty cell (no event in an arm, or nothing else), 1/2 is added to each of its
    four cells, as in R's metafor. Series of pandas are matched by their index.

    Parameters
    ----------
    events, n : array-like or series of shape (k,)
        Events, and persons, in the treated arm of each study.
    control_events, control_n : array-like or series of shape (k,)
        The same in the control arm.
    measure : {"RR", "OR", "RD"}
        Logarithm of the risk ratio, logarithm of the odds ratio, or risk difference.
    labels : array-like or series of shape (k,), optional
        Names of the studies.

    Returns
    -------
    DataFrame
        Column ``study``, or the name of the labels, if there are labels; ``estimate`` and
        ``std_error``. In the library of `events`, with the index of series of pandas.

    Raises
    ------
    ValueError
        If lengths differ, a number is missing, negative or not whole, there are more events than
        persons, an arm is empty, or `measure` is unknown.

    References
    ----------
    W. Viechtbauer (2010), Conducting meta-analyses in R with the metafor package, Journal of
    Statistical Software 36(3).

    Examples
    --------
    >>> effect_sizes([4, 0], [123, 50], [11, 3], [139, 52]).round(4)
       estimate  std_error
    0   -0.8893     0.5706
    1   -1.9074     1.4991
    """
    if measure not in ("RR", "OR", "RD"):
        raise ValueError(f"measure must be 'RR', 'OR' or 'RD'; got {measure!r}.")
    given: dict[str, Any] = {"events": events, "n": n}
    given |= {"control_events": control_events, "control_n": control_n}
    rows = Rows.of_units(given | {"labels": labels}, [*given], "study")
    counts = {"events": rows.X, **rows.beside}
    for name, values in counts.items():
        _check_counts(values, name)
    _check_arm(counts, "events", "n")
    _check_arm(counts, "control_events", "control_n")
    a, total, c, control = counts.values()
    cells = np.array([a, total - a, c, control - c])
    cells = cells + 0.5 * (cells == 0).any(axis=0)
    estimate, variance = _compare(cells, measure)
    columns = {"estimate": estimate, "std_error": np.sqrt(variance)}
    style = rows.style.avoiding(columns)
    if labels is not None:
        columns = {style.group: rows.labels} | columns
    first = next((each for each in given.values() if index_of(each) is not None), None)
    return indexed_like(frame(columns, style), first)


def _compare(cells: NDArray, measure: str) -> tuple[NDArray, NDArray]:
    """Estimates and variances of tables without an empty cell."""
    a, b, c, d = cells
    n, m = a + b, c + d
    if measure == "RR":
        return np.log(a / n) - np.log(c / m), 1 / a - 1 / n + 1 / c - 1 / m
    if measure == "OR":
        return np.log(a / b) - np.log(c / d), 1 / a + 1 / b + 1 / c + 1 / d
    return a / n - c / m, a * b / n**3 + c * d / m**3


def _check_counts(values: NDArray[np.float64], name: str) -> None:
    wrong = ~((values >= 0) & (values <= LARGEST) & (values == np.round(values)))
    if wrong.any():
        i = int(np.argmax(wrong))
        raise ValueError(f"{name} must be whole numbers, none missing; got {values[i]} in row {i}.")


def _check_arm(counts: dict[str, NDArray], events: str, size: str) -> None:
    wrong = (counts[events] > counts[size]) | (counts[size] == 0)
    if wrong.any():
        i = int(np.argmax(wrong))
        raise ValueError(
            f"{events} must not be more than {size}, and {size} not 0; got "
            f"{counts[events][i]:g} of {counts[size][i]:g} in row {i}."
        )
