"""Efron's two groups: null statistics and others, with a null that the statistics show."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ebfed.priors.log_spline import natural_basis
from ebfed.priors.posterior import check_rate, q_values
from ebfed.tables.frames import Style, frame
from ebfed.tables.rows import Rows

__all__ = ["TwoGroups", "two_groups"]

FEWEST = 100  # statistics, of which a density is estimated
WIDTH = 0.1  # of a bin, in spreads of the middle half
REACH = 12.0  # spreads beyond which statistics count as if they were there
NARROWEST = 0.05  # spread of a null that is fitted
QUARTER = 0.6744897501960817  # upper quartile of the normal distribution
WIDE = 1.5  # sd of a null, wider than correlated genes alone were seen to make it
FINE = {"xatol": 1e-9, "fatol": 1e-13, "maxiter": 2000}


@dataclass(frozen=True)
class TwoGroups:
    r"""Statistics of two groups: null ones, ``N(delta0, sigma0**2)``, and others.

    Their density is :math:`f(z) = p_0 f_0(z) + (1 - p_0) f_1(z)`, and ``lfdr = p0 f0(z) / f(z)`` is
    the probability that a statistic is null.

    Attributes
    ----------
    z : ndarray of shape (n,)
    p0, delta0, sigma0 : float
        Share, mean and standard deviation of null statistics.
    lfdr : ndarray of shape (n,)
        Local false discovery rates.
    null : str
        Whether the null is theoretical or empirical.
    edges, counts : ndarray of shape (k + 1,) and (k,)
        Histogram that the density is fitted to.
    coefficients : ndarray of shape (1 + df,)
        Those of the log-density on an intercept and natural splines.
    """

    z: NDArray
    p0: float
    delta0: float
    sigma0: float
    lfdr: NDArray = field(repr=False)
    null: str
    edges: NDArray = field(repr=False)
    counts: NDArray = field(repr=False)
    coefficients: NDArray = field(repr=False)
    labels: NDArray | None = field(default=None, repr=False)
    style: Style = field(default_factory=Style, repr=False)

    def __repr__(self) -> str:
        return (
            f"<TwoGroups of {len(self.z)} statistics, {self.null} null: p0 = {self.p0:.3f}, "
            f"delta0 = {self.delta0:.3f}, sigma0 = {self.sigma0:.3f}>"
        )

    def density(self, at: NDArray) -> NDArray:
        """Return the density of all statistics, shape (k,)."""
        width = self.edges[1] - self.edges[0]
        logs = _basis(at, self.edges, len(self.coefficients) - 1) @ self.coefficients
        return np.exp(logs) / (self.counts.sum() * width)

    def null_density(self, at: NDArray) -> NDArray:
        """Return the density of null statistics, shape (k,)."""
        away = (at - self.delta0) / self.sigma0
        return np.exp(-0.5 * away**2) / (np.sqrt(2 * np.pi) * self.sigma0)

    @property
    def notes(self) -> list[str]:
        """Remarks on the null."""
        if self.null == "theoretical" or self.sigma0 <= WIDE:
            return []
        return [
            f"The null has the standard deviation {self.sigma0:.2f}. Where more than about a tenth "
            "of the statistics have effects, an empirical null takes these for its own spread; "
            "compare with null='theoretical'."
        ]

    @property
    def q_value(self) -> NDArray:
        """Mean rate of all statistics that are at least as surprising, shape (n,)."""
        return q_values(self.lfdr[:, None])[:, 0]

    def to_frame(self) -> Any:
        """Return a row for each statistic: its label, if there is one, z, lfdr and q_value."""
        columns: dict[str, NDArray] = {"z": self.z, "lfdr": self.lfdr, "q_value": self.q_value}
        style = self.style.avoiding(columns)
        if self.labels is not None:
            columns = {style.group: self.labels} | columns
        return frame(columns, style)

    def select(self, fdr: float = 0.05) -> Any:
        """Return the discoveries: statistics whose q-value is at most `fdr`, surest first.

        Parameters
        ----------
        fdr : float in (0, 1)
            Share of false discoveries that is allowed for.

        Returns
        -------
        DataFrame
            One row per discovery: its label (its place, without labels), z, lfdr and q_value.

        Raises
        ------
        ValueError
            If `fdr` is not between 0 and 1.
        """
        check_rate(fdr)
        q = self.q_value
        order = np.argsort(self.lfdr, kind="stable")
        found = order[q[order] <= fdr]
        columns = {"z": self.z[found], "lfdr": self.lfdr[found], "q_value": q[found]}
        style = self.style.avoiding(columns)
        labels = np.arange(len(q)) if self.labels is None else self.labels
        return frame({style.group: labels[found]} | columns, style)

    def plot(self, ax: Any = None) -> Any:
        """Draw the histogram, the density, and its null part; see `report.plot_two_groups`."""
        from ebfed.report import plot_two_groups

        return plot_two_groups(self, ax=ax)


def two_groups(
    z: Any,
    null: Literal["theoretical", "empirical"] = "empirical",
    *,
    df: int = 7,
    labels: Any = None,
) -> TwoGroups:
    r"""Find the statistics that are not null, where thousands are tested at once.

    A test statistic is null or not; null ones are normal. The theoretical null is ``N(0, 1)``. Rows
    that are correlated, covariates that were not seen and errors of standard errors make real null
    statistics wider or narrower than that, and p-values wrong. Where most statistics are null, the
    middle of their distribution shows the null itself: ``N(delta0, sigma0**2)`` (Efron 2004).

    The density f of all statistics is a Poisson regression of the counts of a histogram on natural
    splines (Lindsey's method). Of an empirical null, ``delta0``, ``sigma0`` and p0 are of greatest
    likelihood for the statistics near the median, within

    .. math:: 4.3 \exp(-0.26 \log_{10} n)

    spreads of it (1 from n = 500,000 on), where all are taken to be null (Efron 2007). Of a
    theoretical null, p0 is the share of statistics in the middle half, over that of ``N(0, 1)``
    there.

    An empirical null needs a null share of about .9 or more: where many statistics have effects, it
    takes these for the spread of the null, and finds nothing (`notes` say so). A theoretical null
    finds them, with a p0 that is then too large. (A parabola through ``log f`` in the middle,
    central matching, is not offered: it finds too narrow a null where the splines are coarse.)

    Parameters
    ----------
    z : array-like or series of shape (n,)
        Statistics that are standard normal in theory where there is no effect: z-values, or
        t-values as ``norm.ppf(t.cdf(t_value, df))``.
    null : {"empirical", "theoretical"}
    df : int
        Degrees of freedom of the log-density.
    labels : array-like or series of shape (n,), optional
        Labels of the statistics. If None, those in the index of a pandas series.

    Returns
    -------
    TwoGroups
        Result with `p0`, `delta0`, `sigma0`, `lfdr`, `q_value`, `select` and `plot`.

    Raises
    ------
    ValueError
        If there are less than 100 statistics, one is not finite, labels have another length, they
        are so equal that their middle half has no spread, or an option is unknown.

    References
    ----------
    Efron (2004), Large-scale simultaneous hypothesis testing: the choice of a null hypothesis, J.
    Amer. Statist. Assoc. 99, 96-104; Efron (2007), Size, power and false discovery rates, Annals of
    Statistics 35, 1351-1377; Efron (2010), Large-Scale Inference, chapters 5 and 6.

    Examples
    --------
    Of 5000 statistics 200 have an effect, and the others a spread of 1.2:

    >>> rng = np.random.default_rng(0)
    >>> z = 1.2 * rng.normal(size=5000)
    >>> z[:200] += 5
    >>> result = two_groups(z)
    >>> result
    <TwoGroups of 5000 statistics, empirical null: p0 = 0.964, delta0 = -0.022, sigma0 = 1.211>
    >>> found = result.select(0.05)["group"]
    >>> len(found), int((found < 200).sum())
    (184, 180)
    """
    if not isinstance(null, str):
        raise ValueError(
            f"null must be 'empirical' or 'theoretical'; got a {type(null).__name__}. z are "
            "statistics: estimates over their standard errors."
        )
    if null not in ("empirical", "theoretical"):
        raise ValueError(f"null must be 'empirical' or 'theoretical'; got {null!r}.")
    if isinstance(df, bool) or not isinstance(df, int) or not 3 <= df <= 30:
        raise ValueError(f"df must be a whole number from 3 to 30; got {df!r}.")
    values, found_labels, style = _read(z, labels)
    centre, spread = _middle(values)
    ends = centre + REACH * spread * np.array([-1, 1])
    inside = np.clip(values, *ends)
    n_bins = int(np.clip((inside.max() - inside.min()) / (WIDTH * spread), 40, 400))
    counts, edges = np.histogram(inside, n_bins)
    coefficients = _poisson(_basis((edges[1:] + edges[:-1]) / 2, edges, df), counts)
    if null == "theoretical":
        delta0, sigma0 = 0.0, 1.0
        p0 = _share(values, centre, QUARTER * spread, delta0, sigma0)
    else:
        delta0, sigma0, p0 = _by_likelihood(values, centre, spread)
    parts = (values, p0, delta0, sigma0, values, null, edges, counts, coefficients)
    bare = TwoGroups(*parts)
    at = np.clip(values, edges[0], edges[-1])  # beyond, a density of splines means nothing
    lfdr = np.minimum(p0 * bare.null_density(at) / bare.density(at), 1.0)
    return TwoGroups(*parts[:4], lfdr, *parts[5:], found_labels, style)


def _read(z: Any, labels: Any) -> tuple[NDArray, NDArray | None, Style]:
    """Return statistics, their labels if they have any, and the style of results."""
    rows = Rows.of_units({"z": z, "labels": labels}, ["z"], fill=True)
    values = rows.X
    if not np.isfinite(values).all():
        raise ValueError("z must be finite; leave out statistics that are NaN or infinite.")
    if len(values) < FEWEST:
        raise ValueError(
            f"z must have at least {FEWEST} statistics, of which a null can be seen; got "
            f"{len(values)}. For fewer use posterior_from(..., prior='point_normal').lfdr()."
        )
    return values, rows.labels, rows.style


def _middle(values: NDArray) -> tuple[float, float]:
    """Median, and the standard deviation of a normal distribution with the same quartiles."""
    low, centre, high = np.quantile(values, [0.25, 0.5, 0.75])
    spread = (high - low) / (2 * QUARTER)
    if not spread > 1e-12 * max(1.0, abs(float(centre))) or spread > 1e100:
        raise ValueError(
            f"z must spread, and not beyond 1e100; the quartiles are {low:g} and {high:g}."
        )
    return float(centre), float(spread)


def _basis(at: NDArray, edges: NDArray, df: int) -> NDArray:
    """Intercept and natural splines with even knots over the histogram, shape (k, 1 + df)."""
    unit = np.clip((at - edges[0]) / (edges[-1] - edges[0]), 0.0, 1.0)
    splines = natural_basis(np.linspace(0, 1, df + 1), unit)
    return np.hstack([np.ones((len(at), 1)), splines])


def _poisson(basis: NDArray, counts: NDArray) -> NDArray:
    """Coefficients of greatest Poisson likelihood, by Newton steps that are halved until they gain.

    The likelihood is concave in them.
    """
    beta = np.zeros(basis.shape[1])
    beta[0] = np.log(counts.mean())

    def value(beta: NDArray) -> float:
        linear = np.minimum(basis @ beta, 700.0)
        return float(counts @ linear - np.exp(linear).sum())

    here = value(beta)
    for _ in range(200):
        expected = np.exp(np.minimum(basis @ beta, 700.0))
        slope = basis.T @ (counts - expected)
        bend = (basis.T * expected) @ basis
        step = np.linalg.lstsq(bend, slope)[0]
        if slope @ step < 1e-10:
            break
        while value(beta + step) < here and np.abs(step).max() > 1e-12:
            step = step / 2
        beta = beta + step
        here = value(beta)
    return beta


def _share(values: NDArray, centre: float, reach: float, delta0: float, sigma0: float) -> float:
    """Share of null statistics, if all within `reach` of the centre are null; at most 1."""
    from scipy.special import ndtr

    ends = (centre + reach * np.array([-1, 1]) - delta0) / sigma0
    mass = ndtr(ends[1]) - ndtr(ends[0])
    return float(min((np.abs(values - centre) <= reach).mean() / max(mass, 1e-300), 1.0))


def _by_likelihood(values: NDArray, centre: float, spread: float) -> tuple[float, float, float]:
    """Mean and sd of a normal distribution of which the middle is seen, and its share p0 <= 1.

    Statistics within two ends have the probability ``theta = p0 H``, H that of the null there, and
    a truncated normal density. Theta is their share, or H where this is smaller.
    """
    from scipy.optimize import minimize
    from scipy.special import ndtr

    n = len(values)
    width = 1.0 if n > 500_000 else 4.3 * np.exp(-0.26 * np.log10(n))
    u = (values - centre) / spread
    u = u[np.abs(u) <= width]
    mean, square, share = u.mean(), (u**2).mean(), len(u) / n

    def loss(point: NDArray) -> float:
        delta, sigma = point[0], np.exp(point[1])
        mass = ndtr((width - delta) / sigma) - ndtr((-width - delta) / sigma)
        theta = min(share, mass)
        inside = np.log(theta / mass / sigma)
        inside -= 0.5 * (square - 2 * delta * mean + delta**2) / sigma**2
        return float(-share * inside - (1 - share) * np.log1p(-theta))

    bounds = [(-width, width), (np.log(NARROWEST), np.log(10.0))]
    best = minimize(loss, [mean, 0.0], bounds=bounds, method="Nelder-Mead", options=FINE)
    delta, sigma = float(best.x[0]), float(np.exp(best.x[1]))
    delta0, sigma0 = centre + spread * delta, spread * sigma
    return delta0, sigma0, _share(values, centre, width * spread, delta0, sigma0)
