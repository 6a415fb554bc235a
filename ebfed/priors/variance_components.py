"""Variance components of messages ``x_i ~ N(mean, variance + s_i**2)``: REML, ML, two by moments.

Messages of equal variance are merged first, exactly, so that a step of the optimiser costs the
number of different group sizes, not of groups. Where the variances are known up to a common scale
(``s_i**2 = scale * u_i``), the scale is profiled out and the search is over one ratio.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ebfed.kernels import summarise_rows, weighted_moments
from ebfed.likelihoods import Gaussian
from ebfed.priors.exploration import explore_spreads
from ebfed.priors.search import Unanswered, minimise, minimum_near, together
from ebfed.tables.labels import number_integers

__all__ = [
    "MomentTable",
    "Profile",
    "SummedGaussian",
    "SummedTable",
    "fit_components",
    "information",
    "informative",
    "plausible_components",
    "ratio_at",
]

# Numbers in an array of ratios by messages: it stays within the processor's cache.
LARGEST_BLOCK = 2**16
# Of the largest ratio that there may be, where the likelihood is scanned.
SHARES = np.append(0.0, np.geomspace(1e-12, 1.0, 120))


@dataclass
class Profile:
    """Best mean given the ratio of variances, and what the criterion needs of it.

    `weight` is the expected information about the mean, `information` that about the ratio. All
    are numbers, or arrays with an entry for each of several ratios.
    """

    mean: Any
    weight: Any
    information: Any
    quadratic: Any
    log_det: Any
    slope_det: Any
    slope_quadratic: Any
    slope_weight: Any

    @property
    def mean_variance(self) -> Any:
        """Sampling variance of the mean, over the scale."""
        return 1 / self.weight

    @property
    def inner(self) -> tuple[NDArray, NDArray]:
        """Coefficients, shape (p,), and their sampling covariance over the scale."""
        return np.array([self.mean]), np.array([[self.mean_variance]])

    @property
    def log_weight(self) -> Any:
        """Log-determinant of the information about the mean."""
        return np.log(self.weight)

    @property
    def slope_log_weight(self) -> Any:
        """Its slope."""
        return self.slope_weight / self.weight


def informative(
    likelihood: Gaussian, column: int, noisy: bool
) -> tuple[NDArray, NDArray, NDArray, float | None, int]:
    """Messages of one column with information and error.

    One message of variance zero among others is enough to make a likelihood unbounded. Where all
    are without noise (or not `noisy`), values are the parameters themselves.

    Returns
    -------
    has_data : bool ndarray of shape (n,)
    variances, values : ndarray of shape (has_data.sum(),)
    scatter, degrees : within-group scatter, where the scale of the variances is open
    """
    variances = likelihood.variances[:, min(column, likelihood.variances.shape[1] - 1)]
    values = likelihood.values[:, column]
    scatter = None if likelihood.scatter is None else float(likelihood.scatter[column])
    has_data = np.isfinite(variances)
    if variances[has_data].any():
        has_data &= variances > 0
    if not has_data.all():
        variances, values = variances[has_data], values[has_data]
    if not noisy:
        variances, scatter = np.zeros_like(variances), None
    variances, values = np.ascontiguousarray(variances), np.ascontiguousarray(values)
    return has_data, variances, values, scatter, likelihood.degrees if noisy else 0


@dataclass
class MomentTable:
    """One coordinate's messages, those of equal variance merged: sufficient, and short.

    Attributes
    ----------
    variances, counts, means, scatters : ndarray of shape (r,)
        Distinct variances; number, mean and scatter of the messages of each.
    scatter, degrees : within-group scatter, where the scale of `variances` is open
    """

    # in arrays of ratios by messages, if a call of `profile` makes any
    most_numbers: ClassVar[float] = math.inf
    variances: NDArray
    counts: NDArray
    means: NDArray
    scatters: NDArray
    scatter: float | None
    degrees: int
    fixed_mean: float | None = None

    @classmethod
    def of(cls, likelihood: Gaussian, column: int, noisy: bool) -> Self:
        """Merge the messages of one column; those without information or error are left out."""
        _, variances, values, scatter, degrees = informative(likelihood, column, noisy)
        sample = variances[:1000]
        if len(sample) == 1000 == len(np.unique(sample)):  # few are equal: merging saves nothing
            nothing = np.zeros(len(values))
            return cls(variances, nothing + 1, values, nothing, scatter, degrees)
        codes, first = number_integers(np.ascontiguousarray(variances).view(np.int64))
        merged = summarise_rows(np.ascontiguousarray(values), codes, 0, len(first))
        counts, means, scatters = merged.T
        return cls(variances[first], counts, means, scatters, scatter, degrees)

    def coarse(self) -> MomentTable:
        """Merge messages whose variances differ by less than 2 %, for a scan."""
        if len(self.variances) < 2000 or not self.variances.all():
            return self
        level = np.log(self.variances / self.variances.min()) / 0.02
        codes = level.astype(np.int64)
        if codes.max() > len(codes):  # variances are too far apart to be tabulated
            codes, _ = number_integers(codes)
        else:
            codes = (np.cumsum(np.bincount(codes) > 0) - 1)[codes]
        counts = np.bincount(codes, self.counts)
        variances, means = (
            np.bincount(codes, self.counts * each) / counts for each in (self.variances, self.means)
        )
        around = self.scatters + self.counts * (self.means - means[codes]) ** 2
        scatters = np.bincount(codes, around)
        return replace(self, variances=variances, counts=counts, means=means, scatters=scatters)

    @property
    def size(self) -> float:
        """Number of messages."""
        return float(self.counts.sum())

    @property
    def n_means(self) -> int:
        """Number of parameters of the mean, if it is open."""
        return 1

    @property
    def left(self) -> float:
        """Number of messages, less that of parameters of the mean that are open."""
        return self.size - self.n_means * (self.fixed_mean is None)

    def totals(self, ratio: Any) -> NDArray:
        """Variances of messages at this between-group variance, (r,), or (k, r) of k of them.

        Where every variance is zero (equal messages), they are one.
        """
        return self.variances + self._above_zero(ratio)[..., None]

    def _above_zero(self, ratio: Any) -> NDArray[np.float64]:
        """Between-group variances; one in place of zero where every other variance is zero."""
        given = np.asarray(ratio, float)
        return given if self.variances.any() else np.where(given > 0, given, 1.0)

    def profile(self, ratio: Any) -> Profile:
        """Evaluate mean, residual sum of squares and their slopes at this between-group variance.

        At several in one call, if `ratio` is an array.
        """
        ratios = self._above_zero(ratio)
        weight, mean, quadratic, log_det, slope, slope_quadratic = weighted_moments(
            ratios.ravel(),
            self.variances,
            self.counts,
            self.means,
            self.scatters,
            np.nan if self.fixed_mean is None else self.fixed_mean,
        ).reshape(6, *ratios.shape)
        silent = weight == 0
        return Profile(
            mean=mean,
            weight=np.where(silent, np.inf, weight),
            information=0.5 * np.where(slope == 0, np.inf, slope),
            quadratic=quadratic,
            log_det=log_det,
            slope_det=np.where(silent, 0.0, weight),
            slope_quadratic=-slope_quadratic,
            slope_weight=-slope,
        )

    def largest_square(self) -> float:
        """Largest squared deviation of a message from the mean."""
        mean = self.profile(0.0).mean
        return float(np.max(self.scatters + self.counts * (self.means - mean) ** 2))

    def excess(self, scale: float) -> tuple[float, float]:
        """Weighted sum of squares beyond what noise explains, and what a unit of variance adds."""
        noise = scale * bool(self.variances.all())  # of noiseless messages, their plain variance
        unit, gain, _ = self.traces(0.0)
        return float(self.profile(0.0).quadratic) - noise * self.left, gain / unit

    @property
    def rows(self) -> NDArray:
        """Rows of the design, (r, p): what messages of one variance have in common, rotated."""
        return np.sqrt(self.counts)[:, None]

    def traces(self, ratio: float) -> tuple[float, float, float]:
        """Return a unit of variance, and the traces of P and P P in that unit, at a ratio.

        ``P = V^-1 - V^-1 X (X' V^-1 X)^-1 X' V^-1``, or ``V^-1`` where the mean is fixed. The first
        trace at 0 is what a unit of variance between groups adds to the weighted sum of squares.

        With the p heaviest rows A of the design, which determine the coefficients, and the others
        B, the contrasts ``y_B - C y_A`` with ``C = X_B X_A^-1`` have the variances ``M^-1 = V_B + C
        V_A C'`` and ``P = [-C, 1]' M [-C, 1]``: no weight is subtracted from itself, however much
        one outweighs the rest.
        """
        from scipy.linalg import qr, solve

        total = self.totals(ratio)
        unit = float(np.median(total)) if len(total) else 1.0
        total = total / unit
        if self.fixed_mean is not None or not len(total):
            return unit, float(self.counts @ (1 / total)), float(self.counts @ total**-2.0)
        design, p = self.rows, self.n_means
        heaviest = qr((design / np.sqrt(total)[:, None]).T, mode="r", pivoting=True)[1][:p]
        others = np.ones(len(total), bool)
        others[heaviest] = False
        left, starts = self.counts.copy(), np.flatnonzero(self.counts)
        np.subtract.at(left, starts[np.searchsorted(starts, heaviest, "right") - 1], 1)
        contrasts = solve(design[heaviest].T, design[others].T).T
        one, two, three = (
            contrasts.T @ (contrasts / total[others, None] ** power) for power in (1, 2, 3)
        )
        root = np.sqrt(total[heaviest])
        inner = root[:, None] * np.linalg.inv(np.eye(p) + root[:, None] * one * root) * root
        rest = np.eye(p) - inner @ one
        outer = one @ rest
        first = left @ (1 / total) - np.trace(inner @ two) + np.trace(outer)
        within = np.trace(inner @ (two @ inner @ two - 2 * three))
        second = left @ total**-2.0 + within + np.trace(2 * rest.T @ two @ rest + outer @ outer)
        return unit, float(first), float(second)


def fit_components(
    tables: list[MomentTable], method: str, near: float | None = None
) -> tuple[float, float]:
    """Between-group variance over scale, and scale (1 where the variances are known).

    Parameters
    ----------
    tables : the coordinates that share these two
    method : {"reml", "ml", "moments", "paule_mandel"}
    near : float, optional
        The first result for similar data, see `minimum_near`.
    """
    open_scale = tables[0].scatter is not None
    restricted = [method != "ml" and table.fixed_mean is None for table in tables]
    degrees = _degrees(tables, restricted)
    if sum(table.size for table in tables) <= len(tables):
        if not open_scale or not degrees > 0:
            return 0.0, 1.0
        return 0.0, _quadratic(tables, [table.profile(0.0) for table in tables]) / degrees
    if method == "moments":
        scale = _pooled(tables) if open_scale else 1.0
        return _moments(tables, scale) / scale, scale
    if not any(table.variances.any() for table in tables):  # parameters seen without noise
        return sum(table.profile(0.0).quadratic for table in tables) / degrees, 1.0
    if method == "paule_mandel":
        scale = _pooled(tables) if open_scale else 1.0
        rows = sum(table.degrees for table in tables)
        return ratio_at(tables, scale * (degrees - rows)), scale

    coarse = [table.coarse() for table in tables]
    criterion = partial(_criterion, tables, restricted=restricted)
    is_exact = all(one is other for one, other in zip(coarse, tables, strict=True))
    ratio = minimum_near(criterion, near, is_exact)
    if ratio is None:
        # a bound on the optimum: the largest squared deviation, over the scale
        largest = 10 * max(together(table.largest_square for table in tables))
        largest /= _pooled(tables) if open_scale else 1.0
        ratio = 0.0  # where all values are equal
        if largest > 0:
            rough = criterion if is_exact else partial(_criterion, coarse, restricted=restricted)
            ratio = minimise(criterion, largest * SHARES, rough)
    if not open_scale:
        return ratio, 1.0
    return ratio, _quadratic(tables, [table.profile(ratio) for table in tables]) / degrees


def ratio_at(tables: list[MomentTable], goal: float) -> float:
    """Ratio at which the weighted sum of squares falls to `goal`; 0 where it is less already.

    With ``goal`` the degrees of freedom this is the estimate of Paule and Mandel; with quantiles of
    chi-squared it gives their interval. The sum is ``sum c_j / (ratio + u_j)`` with positive c_j,
    so its inverse is concave, and Newton's method for that never steps beyond the root.

    References
    ----------
    R. C. Paule and J. Mandel (1982), Consensus values and weighting factors, Journal of Research of
    the National Bureau of Standards 87, 377-385.

    Examples
    --------
    >>> messages = Gaussian(np.array([[0.0], [2.0], [4.0]]), np.full((3, 1), 1.0))
    >>> ratio_at([MomentTable.of(messages, 0, True)], 2.0)
    3.0
    """
    ratio = 0.0
    for _ in range(200):
        profiles = together(partial(table.profile, ratio) for table in tables)
        value = float(sum(profile.quadratic for profile in profiles))
        slope = float(sum(profile.slope_quadratic for profile in profiles))
        if value <= goal or slope == 0:
            break
        last, ratio = ratio, ratio - value * (value / goal - 1) / slope
        if ratio - last <= 1e-15 * ratio:
            break
    return ratio


def information(table: MomentTable, profile: Profile, method: str, ratio: float) -> Any:
    """Inverse of the sampling variance of an estimated ratio, if the scale is 1.

    That of maximum likelihood, restricted or not, is ``sum(1 / v_i**2) / 2``. Moments of Paule and
    Mandel have ``(sum 1 / v_i)**2 / 2 m`` (Datta, Rao and Smith, 2005). The sampling variance of
    those of DerSimonian and Laird, before they are cut at zero, is that of a quadratic form,
    ``(2 d + 4 t tr(P) + 2 t**2 tr(P P)) / tr(P)**2`` with d degrees of freedom and P at t = 0.
    """
    if method == "moments":
        unit, first, second = table.traces(0.0)
        relative, noisy = ratio / unit, bool(table.variances.all())
        spread = noisy * (2 * table.left + 4 * relative * first) + 2 * relative**2 * second
        return (first / unit) ** 2 / spread if spread > 0 else np.inf
    if method != "paule_mandel":
        return profile.information
    return np.where(profile.slope_det == 0, np.inf, profile.slope_det**2 / (2 * table.size))


def plausible_components(tables: list[MomentTable], near: float) -> tuple[NDArray, NDArray]:
    """Find ratios and scales that the messages leave plausible, (K, 2), and their probabilities.

    The prior is flat in the means and in the log of the scale where that is open, and that of
    `log_prior_of_spread`; means are integrated out, as in REML. With fewer than three messages more
    than there are means, nothing bounds the standard deviation: the ratio is infinite. The search
    begins at the likeliest ratio, `near`.
    """
    open_scale = tables[0].scatter is not None
    restricted = [table.fixed_mean is None for table in tables]
    # neither depends on which rows stand for the messages
    variances = np.concatenate(
        [np.repeat(table.variances, table.counts.astype(int)) for table in tables]
    )
    unit = float(np.sqrt(np.median(variances[variances > 0])))

    def height(ratios: NDArray) -> NDArray:
        return -0.5 * _criterion(tables, ratios[:, 0], restricted)[0]

    found, weights = explore_spreads(height, [near], [unit])
    ratios = found[:, 0]
    scales = np.ones(len(ratios))
    if open_scale:
        profiles = [table.profile(ratios) for table in tables]
        scales = _quadratic(tables, profiles) / _degrees(tables, restricted)
    return np.column_stack([ratios, scales]), weights


def _criterion(tables: list[MomentTable], ratio: Any, restricted: list[bool]) -> tuple[Any, Any]:
    """Minus twice the log-likelihood of a ratio, profiled over all else, and its slope.

    Of each ratio, if they are several.
    """
    at_once = max(1.0, min(table.most_numbers / len(table.variances) for table in tables))
    if np.ndim(ratio) and len(ratio) > at_once:
        blocks = np.array_split(ratio, math.ceil(len(ratio) / at_once))
        parts = together(partial(_criterion, tables, block, restricted) for block in blocks)
        values, slopes = map(np.concatenate, zip(*parts, strict=True))
        return values, slopes
    profiles = together(partial(table.profile, ratio) for table in tables)
    value = sum(profile.log_det for profile in profiles)
    slope = sum(profile.slope_det for profile in profiles)
    for profile, lost in zip(profiles, restricted, strict=True):
        if lost:
            value += profile.log_weight
            slope += profile.slope_log_weight
    quadratic = _quadratic(tables, profiles)
    slope_quadratic = sum(profile.slope_quadratic for profile in profiles)
    if tables[0].scatter is None:
        return value + quadratic, slope + slope_quadratic
    degrees = _degrees(tables, restricted)
    return value + degrees * np.log(quadratic), slope + degrees * slope_quadratic / quadratic


def _degrees(tables: list[MomentTable], restricted: list[bool]) -> float:
    """Degrees of freedom of rows and messages, less those of means that are restricted."""
    return sum(
        table.degrees + table.size - lost * table.n_means
        for table, lost in zip(tables, restricted, strict=True)
    )


def _quadratic(tables: list[MomentTable], profiles: Sequence[Profile]) -> Any:
    """Sum of squares within and between groups."""
    within = sum(table.scatter or 0.0 for table in tables)
    return within + sum(profile.quadratic for profile in profiles)


def _pooled(tables: list[MomentTable]) -> float:
    """Pooled within-group variance."""
    return sum(table.scatter or 0.0 for table in tables) / max(
        1, sum(table.degrees for table in tables)
    )


def _moments(tables: list[MomentTable], scale: float) -> float:
    """ANOVA (DerSimonian-Laird) estimate, cut at zero."""
    excess, unit = np.sum([table.excess(scale) for table in tables], axis=0)
    return max(0.0, float(excess / unit))


Sums = Mapping[tuple[int, float], NDArray[np.float64]]
"""Four sums by column and ratio."""


@dataclass(frozen=True)
class SummedGaussian(Gaussian):
    """Messages whose values are not known, only sums of them.

    Attributes
    ----------
    values : ndarray of shape (n, d)
        NaN.
    centre : ndarray of shape (d,)
        Subtracted from values before they are summed up.
    sums : dict
        What is known: ``sum w x``, ``sum w x**2``, ``sum w**2 x`` and ``sum w**2 x**2`` by column
        and ratio.
    """

    centre: NDArray = field(default_factory=lambda: np.zeros(1))
    sums: Sums = field(default_factory=dict)


@dataclass
class SummedTable(MomentTable):
    """One coordinate's messages, of whose values only sums are known.

    Attributes
    ----------
    means, scatters : ndarray of shape (r,)
        NaN.
    column : int
    centre, sums : as in `SummedGaussian`
    """

    most_numbers: ClassVar[float] = LARGEST_BLOCK
    column: int = 0
    centre: float = 0.0
    sums: Sums = field(default_factory=dict)

    @classmethod
    def of(cls, likelihood: Gaussian, column: int, noisy: bool) -> Self:
        """Merge the variances of one column."""
        assert isinstance(likelihood, SummedGaussian)
        _, variances, _, scatter, degrees = informative(likelihood, column, noisy)
        distinct, counts = np.unique(variances, return_counts=True)
        nothing = np.full(len(distinct), np.nan)
        return cls(
            distinct,
            counts.astype(float),
            nothing,
            nothing,
            scatter,
            degrees,
            column=column,
            centre=float(likelihood.centre[column]),
            sums=likelihood.sums,
        )

    def coarse(self) -> Self:
        """Return itself: what is not known cannot be merged."""
        return self

    def known(self, ratio: Any) -> NDArray[np.float64]:
        """Sums at ratios, with four of them along the last axis.

        Raises
        ------
        Unanswered
            With a list of columns and ratios, if some are not known.
        """
        asked = [(self.column, float(each)) for each in np.ravel(ratio)]
        if unknown := [each for each in asked if each not in self.sums]:
            raise Unanswered(unknown)
        return np.array([self.sums[each] for each in asked]).reshape(*np.shape(ratio), 4)

    def profile(self, ratio: Any) -> Profile:
        total = self.totals(ratio)
        weights = self.counts / total
        weight, slope = weights.sum(axis=-1), (weights / total).sum(axis=-1)
        silent = weight == 0
        first, second, first_slope, second_slope = np.moveaxis(self.known(ratio), -1, 0)
        away = first / (weight + silent)
        if self.fixed_mean is not None:
            away = np.full_like(away, self.fixed_mean - self.centre)
        square = second - 2 * away * first + away**2 * weight
        square_slope = second_slope - 2 * away * first_slope + away**2 * slope
        return Profile(
            mean=self.centre + away,
            weight=np.where(silent, np.inf, weight),
            information=0.5 * np.where(slope == 0, np.inf, slope),
            quadratic=np.maximum(square, 0.0),
            log_det=np.log(total) @ self.counts,
            slope_det=np.where(silent, 0.0, weight),
            slope_quadratic=-np.maximum(square_slope, 0.0),
            slope_weight=-slope,
        )

    def largest_square(self) -> float:
        """Bound of the squared deviation of a message from the mean."""
        largest = self.variances.max(initial=0.0) or 1.0
        return float(largest * self.profile(0.0).quadratic)
