"""Moderated t-statistics: tests of many estimates whose standard errors have few degrees."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ebfed.arguments import check_level
from ebfed.likelihoods import LogVariance
from ebfed.priors import InverseGamma
from ebfed.priors.inverse_gamma import VariancePosterior
from ebfed.priors.regression import check_covariates
from ebfed.privacy.calibration import is_number
from ebfed.tables.clients import LARGEST, SMALLEST
from ebfed.tables.covariates import columns_of_units
from ebfed.tables.frames import Style, frame
from ebfed.tables.rows import Rows

__all__ = ["ModeratedT", "moderated_t"]


@dataclass(frozen=True)
class ModeratedT:
    """Moderated t-statistics of n estimates.

    Attributes
    ----------
    estimate, std_error, statistic, df, p_value : ndarray of shape (n,)
        Estimates, moderated standard errors, their quotients, degrees of freedom, and p-values
        against a true value of 0 on both sides.
    prior : InverseGamma
        Population of the logarithms of the residual variances.
    """

    estimate: NDArray[np.float64]
    std_error: NDArray[np.float64]
    statistic: NDArray[np.float64]
    df: NDArray[np.float64]
    p_value: NDArray[np.float64]
    prior: InverseGamma
    _labels: NDArray | None = field(default=None, repr=False)
    _style: Style = field(default_factory=Style, repr=False)

    @property
    def notes(self) -> list[str]:
        """Remarks on the fit of the population."""
        return list(self.prior.notes_)

    def __len__(self) -> int:
        return len(self.estimate)

    def interval(self, level: float = 0.95) -> tuple[NDArray, NDArray]:
        """Interval of each true value, by Student's t with the moderated degrees of freedom.

        Raises
        ------
        ValueError
            If `level` is outside (0, 1).
        """
        from scipy.special import stdtrit

        check_level(level)
        reach = stdtrit(np.minimum(self.df, 1e10), (1 + level) / 2) * self.std_error
        return self.estimate - reach, self.estimate + reach

    def to_frame(self, level: float = 0.95) -> Any:
        """One row for each estimate, with its label and interval."""
        lower, upper = self.interval(level)
        columns = {
            "estimate": self.estimate,
            "std_error": self.std_error,
            "t": self.statistic,
            "df": self.df,
            "p_value": self.p_value,
            "lower": lower,
            "upper": upper,
        }
        if self._labels is not None:
            columns = {self._style.group: self._labels} | columns
        return frame(columns, self._style)


def moderated_t(
    estimates: Any,
    std_errors: Any,
    df: ArrayLike,
    *,
    unscaled: ArrayLike = 1.0,
    covariates: Any = None,
    method: str = "ml",
    labels: Any = None,
) -> ModeratedT:
    r"""Test many estimates, with standard errors that borrow strength from each other.

    Each estimate comes from a linear model of its own with few residual degrees of freedom
    :math:`d_i`, such as the change of expression of a gene. Its standard error is :math:`s_i v_i`,
    with residual standard deviation :math:`s_i`, and :math:`v_i` from the design. The residual
    variances are shrunk to :math:`\tilde s_i^2 = (d_0 s_0^2 + d_i s_i^2) / (d_0 + d_i)`, and

    .. math:: \tilde t_i = \hat\beta_i / (\tilde s_i v_i)

    has Student's t distribution with :math:`d_0 + d_i` degrees of freedom where the true value is 0
    (Smyth 2004, section 4), at most the sum of all :math:`d_i`.

    Parameters
    ----------
    estimates : array-like or series of shape (n,)
    std_errors : array-like or series of shape (n,)
        Ordinary standard errors; 0 is possible where residuals are all 0.
    df : float or array-like of shape (n,)
        Residual degrees of freedom. Where they are 0, the standard error is not used.
    unscaled : float or array-like of shape (n,)
        The factors :math:`v_i`. Differences between them are no differences between residual
        variances; leave 1 where all estimates have one design.
    covariates : data frame or array-like of shape (n, k) or (n,), optional
        Covariates on which the mean of the log variances depends linearly, such as the average
        expression of a gene (the trend of limma, there a spline).
    method : {"ml", "moments"}
        How d0 and s0**2 are estimated: by maximum likelihood, or as in the R package limma.
    labels : array-like or series of shape (n,), optional
        Names of the estimates; the index of a pandas series if None.

    Returns
    -------
    ModeratedT

    Raises
    ------
    ValueError
        If lengths differ, a standard error or a number of degrees is negative or missing, or an
        estimate is not finite.

    References
    ----------
    Smyth (2004), Linear models and empirical Bayes methods for assessing differential expression in
    microarray experiments.

    Examples
    --------
    >>> tests = moderated_t([1.2, -0.3, 2.0, 0.1], [0.5, 0.2, 0.6, 0.4], df=4)
    >>> tests.to_frame()[["t", "df", "p_value"]].round(3)
           t    df  p_value
    0  2.667  16.0    0.017
    1 -0.667  16.0    0.514
    2  4.444  16.0    0.000
    3  0.222  16.0    0.827
    """
    from scipy.special import stdtr

    if is_number(df) and not np.isfinite(df):
        raise ValueError(f"df must be finite and not negative; got {df!r}.")
    given = {"estimates": estimates, "std_errors": std_errors, "df": df, "unscaled": unscaled}
    figures, also = [*given], {"covariates": covariates, "labels": labels}
    rows = Rows.of_units(given | also, figures, "label")
    values, (errors, degrees, scale) = rows.X, rows.beside.values()
    if not np.isfinite(values).all():
        raise ValueError("estimates must be finite numbers.")
    if not (np.isfinite(degrees) & (degrees >= 0)).all():
        raise ValueError("df must be finite and not negative.")
    if not degrees.any():
        raise ValueError("df must be positive for some estimates: else no error shows a variance.")
    if not (np.isfinite(scale) & (scale > 0)).all():
        raise ValueError("unscaled must be positive and finite.")
    sd = np.where(degrees > 0, errors / scale, 0.0)
    if not (np.isfinite(sd).all() and np.all(sd >= 0)):
        raise ValueError("std_errors must be finite and not negative where df is positive.")
    largest = sd.max(initial=0.0)
    if largest > 0 and not SMALLEST < largest < LARGEST:
        raise ValueError(
            f"std_errors must be between {SMALLEST:g} and {LARGEST:g}; got {largest:g}. Rescale."
        )
    if covariates is not None and method != "ml":
        raise ValueError(f"method must be 'ml' with covariates; got {method!r}.")
    messages = LogVariance((degrees * sd**2)[:, None], degrees)
    prior = InverseGamma(method=method)
    if covariates is None:
        prior.fit(messages)
    else:
        table, names = columns_of_units(rows.tables["covariates"], "covariates", len(values))
        check_covariates(table[degrees > 0], names)
        prior.fit(messages, table)
    there = prior if covariates is None else prior.at(table)
    variances = VariancePosterior(there.posterior(messages, integrate=False)).mean[:, 0]
    std_error = np.sqrt(variances) * scale
    total = np.minimum(degrees + prior.df_[0], degrees.sum())
    statistic = values / std_error
    p_value = 2 * stdtr(np.minimum(total, 1e10), -np.abs(statistic))
    found = values, std_error, statistic, total, p_value, prior
    return ModeratedT(*found, rows.labels, rows.style)
