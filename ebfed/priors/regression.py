"""Populations whose mean depends on covariates: ``w_i' beta`` for client i.

`Normal` takes the linear predictor for the mean itself, `Beta` for its logit. Inside, covariates
are centred at the average client and scaled, so that their units do not matter; what is kept is the
predictor at average covariates and the slopes. `RegressionTable` is to messages with covariates
what `MomentTable` is to those without.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ebfed.likelihoods import Gaussian
from ebfed.priors.base import Prior
from ebfed.priors.exploration import interval_of, side_by_side, spread_of
from ebfed.priors.variance_components import (
    LARGEST_BLOCK,
    MomentTable,
    Profile,
    SummedGaussian,
    SummedTable,
    fit_components,
    information,
    informative,
    ratio_at,
)
from ebfed.tables.labels import number_integers

__all__ = [
    "Design",
    "RandomEffects",
    "RegressionTable",
    "WithCovariates",
    "check_covariates",
    "table_of",
]


def check_covariates(
    covariates: NDArray, names: list[str] | None = None, called: str = "covariates"
) -> None:
    """Raise a ValueError if coefficients of these covariates and an intercept are not determined.

    Parameters
    ----------
    covariates : ndarray of shape (n, k)
        Covariates of the clients with data.
    names : list of k str, optional
        Names of the covariates; ``w0``, ``w1``, … if None.
    called : str
        What errors call them.

    Examples
    --------
    >>> check_covariates(np.array([[1.0, 2.0], [2.0, 4.0], [4.0, 8.0], [5.0, 10.0]]), ["a", "b"])
    Traceback (most recent call last):
    ValueError: covariates have collinear columns: 'a', 'b'; leave one of them out.
    """
    n, k = covariates.shape
    if not np.isfinite(covariates).all():
        raise ValueError(f"{called} must be finite numbers, none missing.")
    shown = [repr(name) for name in (names or [f"w{j}" for j in range(k)])]
    if n < k + 2:
        raise ValueError(
            f"{called} have {k} columns for {n} groups with data; an intercept, a coefficient "
            f"for each column and a spread need at least {k + 2} groups."
        )
    centred = covariates - covariates.mean(axis=0)
    size = np.abs(centred).max(axis=0)
    constant = np.flatnonzero(size <= 1e-13 * np.abs(covariates).max(axis=0))
    if len(constant):
        raise ValueError(
            f"{called} have constant columns: {', '.join(shown[j] for j in constant)}; an "
            "intercept is always included."
        )
    _, sizes, axes = np.linalg.svd(centred / size / np.sqrt(n), full_matrices=False)
    free = axes[sizes < 1e-10 * sizes.max(initial=0.0)]
    if len(free):
        involved = np.flatnonzero((np.abs(free) > 1e-6).any(axis=0))
        raise ValueError(
            f"{called} have collinear columns: {', '.join(shown[j] for j in involved)}; leave "
            "one of them out."
        )


@dataclass(frozen=True)
class Design:
    """Covariates with an intercept, made ready for fitting.

    Attributes
    ----------
    matrix : ndarray of shape (n, 1 + k)
        Ones, and covariates centred and scaled.
    centre, scale : ndarray of shape (k,)
    has_covariates : bool
        Whether covariates were given, if only of no columns.
    """

    matrix: NDArray
    centre: NDArray
    scale: NDArray
    has_covariates: bool = True

    @classmethod
    def of(cls, covariates: NDArray | None, has_data: NDArray) -> Self:
        """Centre and scale by the clients that say something, a mask of shape (n,).

        Examples
        --------
        >>> Design.of(None, np.array([True, False])).matrix
        array([[1.],
               [1.]])
        """
        if covariates is None:
            return cls(np.ones((len(has_data), 1)), np.empty(0), np.empty(0), False)
        check_covariates(covariates[has_data])
        centre = covariates[has_data].mean(axis=0)
        scale = (covariates[has_data] - centre).std(axis=0)
        ones = np.ones((len(covariates), 1))
        return cls(np.hstack([ones, (covariates - centre) / scale]), centre, scale)


class WithCovariates(Prior):
    """Base of the priors whose predictor is linear in covariates.

    Attributes
    ----------
    slopes_ : ndarray of shape (k, d) or None
        Slopes; None where the population was fitted without covariates.
    predictor_ : ndarray of shape (d,)
        Linear predictor of a client with average covariates.
    covariates_mean_ : ndarray of shape (k,)
        The average covariates.
    coefficients_covariance_ : ndarray of shape (d, 1 + k, 1 + k)
        Sampling covariance of `predictor_` and `slopes_`, for each column.
    """

    takes_covariates: ClassVar[bool] = True

    slopes_: NDArray | None
    predictor_: NDArray
    covariates_mean_: NDArray
    coefficients_covariance_: NDArray
    # Columns whose maximum of likelihood is at the boundary: its curvature says little.
    at_boundary_: NDArray[np.bool_] | None = None

    def _learn_coefficients(self, design: Design, profiles: Sequence[Any], scale: NDArray) -> None:
        """Take over, for each column, coefficients of the scaled design and their covariance."""
        if not design.has_covariates:
            return
        unit = np.concatenate(([1.0], design.scale))
        coefficients = np.array([profile.coefficients for profile in profiles]) / unit
        self.predictor_, self.slopes_ = coefficients[:, 0], coefficients[:, 1:].T
        self.covariates_mean_ = design.centre
        covariances = np.array([profile.covariance for profile in profiles])
        self.coefficients_covariance_ = scale[:, None, None] * covariances / np.outer(unit, unit)

    def _hold(self, names: tuple[str, ...], found: Sequence[tuple[NDArray, NDArray]]) -> None:
        """Hold plausible parameters of each column, and their probabilities."""
        points, weights = side_by_side(found)
        self.plausible_ = {name: points[:, i] for i, name in enumerate(names)}
        self.plausible_["weights"] = weights

    def _hold_populations(self, populations: Sequence[Any], weights: NDArray) -> None:
        """Hold plausible normal populations, and their probabilities, shape (K, d)."""
        names = ["variance_", "mean_", "mean_variance_", "variance_variance_"]
        if self.slopes_ is not None:
            names += ["predictor_", "slopes_", "coefficients_covariance_"]
        self.plausible_ = {
            name: np.array([getattr(one, name) for one in populations]) for name in names
        }
        self.plausible_["weights"] = weights

    def _take_coefficients(self, predictor_: NDArray, slopes_: NDArray) -> None:
        """Set coefficients, taken as known."""
        self.predictor_, self.slopes_ = predictor_, slopes_
        self.coefficients_covariance_ = np.zeros_like(self.coefficients_covariance_)

    def _predict(self, covariates: Any) -> tuple[NDArray, NDArray]:
        """Linear predictor of clients with these covariates and its variance, (n, d) each."""
        if self.slopes_ is None:
            raise ValueError("the population was fitted without covariates.")
        shape = np.shape(covariates)
        if len(shape) != 2 or shape[1] != len(self.slopes_):
            raise ValueError(f"covariates must have shape (n, {len(self.slopes_)}); got {shape}.")
        away = np.asarray(covariates, float) - self.covariates_mean_
        rows = np.hstack([np.ones((len(away), 1)), away])
        variance = _variances(rows, self.coefficients_covariance_)
        linear = np.broadcast_to(self.predictor_, variance.shape)
        for column, slope in zip(away.T, self.slopes_, strict=True):
            # a product of matrices would round by how many clients are in it
            linear = linear + column[:, None] * slope
        return linear, variance

    @property
    def coefficients_(self) -> NDArray:
        """Intercept and coefficients, shape (1 + k, d)."""
        if self.slopes_ is None:
            raise AttributeError("the population was fitted without covariates.")
        return np.vstack([self.predictor_ - self.covariates_mean_ @ self.slopes_, self.slopes_])

    @property
    def coefficient_errors_(self) -> NDArray:
        """Standard errors of `coefficients_`, shape (1 + k, d).

        Where the fit of counts is at the boundary (without overdispersion, or with coefficients
        that would grow without bound) they are standard deviations of plausible coefficients.
        """
        move = np.eye(1 + len(self.covariates_mean_))
        move[0, 1:] = -self.covariates_mean_
        moved = move @ self.coefficients_covariance_ @ move.T
        errors = np.sqrt(np.diagonal(moved, axis1=1, axis2=2)).T
        if self.plausible_ is None or self.at_boundary_ is None:
            return errors
        return np.where(self.at_boundary_, spread_of(*self._plausible_coefficients()), errors)

    def coefficient_interval(self, level: float = 0.95) -> tuple[NDArray, NDArray]:
        """Return intervals of `coefficients_` over plausible populations, (1 + k, d) each.

        Raises
        ------
        AttributeError
            If no plausible coefficients are held: those of counts are, where their spread is not
            known well.

        Examples
        --------
        >>> from ebfed.likelihoods import Binomial
        >>> from ebfed.priors import Beta
        >>> counts = Binomial(np.array([[0], [3], [1], [0], [4]]), np.full(5, 10))
        >>> prior = Beta().fit(counts, np.array([[0.0], [1.0], [2.0], [3.0], [4.0]]))
        >>> lower, upper = prior.coefficient_interval()
        >>> bool(lower[1, 0] < 0 < upper[1, 0])
        True
        """
        if self.plausible_ is None or "dispersion" not in self.plausible_:
            raise AttributeError("the population holds no plausible coefficients.")
        values, weights = self._plausible_coefficients()
        pairs = [
            [interval_of(*each, level) for each in zip(row.T, weights.T, strict=True)]
            for row in values
        ]
        lower, upper = np.moveaxis(np.array(pairs), 2, 0)
        return lower, upper

    def _plausible_coefficients(self) -> tuple[NDArray, NDArray]:
        """Plausible intercepts and coefficients, shape (1 + k, K, d), and weights, (K, d)."""
        assert self.plausible_ is not None
        predictor, slopes = self.plausible_["predictor_"], self.plausible_["slopes_"]
        first = predictor - np.einsum("i,kid->kd", self.covariates_mean_, slopes)
        return np.concatenate([first[None], slopes.swapaxes(0, 1)]), self.plausible_["weights"]


def _variances(rows: NDArray, covariances: NDArray) -> NDArray:
    """Variances ``w_i' C_j w_i`` of predictors, (n, d): at least 0, also where digits cancel."""
    return np.maximum(np.einsum("ni,dij,nj->nd", rows, covariances, rows), 0.0)


@dataclass
class RegressionProfile(Profile):
    """Best coefficients given the ratio of variances; `covariance` is over the scale."""

    coefficients: NDArray
    covariance: NDArray
    log_information: Any
    slope_log_information: Any

    @property
    def inner(self) -> tuple[NDArray, NDArray]:
        return self.coefficients, self.covariance

    @property
    def mean_variance(self) -> Any:
        """Sampling variance of the mean at average covariates, over the scale."""
        return self.covariance[..., 0, 0]

    @property
    def log_weight(self) -> Any:
        """``log |W' V^-1 W|``."""
        return self.log_information

    @property
    def slope_log_weight(self) -> Any:
        return self.slope_log_information


@dataclass
class RegressionTable(MomentTable):
    """One coordinate's messages beside their covariates, those of equal variance rotated together.

    The triangular factor of the rows ``[w_i, x_i]`` of all messages of one variance has the same
    squares and products, in at most ``k + 2`` rows. So a step of the optimiser costs no more than
    the number of different group sizes, and no digit is lost to sums of squares.

    Attributes
    ----------
    variances, means : ndarray of shape (r,)
        Variances and values of the rows; values are less `shift`.
    counts : ndarray of shape (r,)
        Numbers of messages: all those of one variance are counted in its first row.
    matrix : ndarray of shape (r, 1 + k)
    shift : float
    """

    most_numbers: ClassVar[float] = LARGEST_BLOCK
    matrix: NDArray = None  # type: ignore[assignment]
    shift: float = 0.0

    @classmethod
    def beside(cls, likelihood: Gaussian, column: int, noisy: bool, design: Design) -> Self:
        """Rotate the messages of one column and their rows of the design."""
        has_data, variances, values, scatter, degrees = informative(likelihood, column, noisy)
        shift = float(values.mean())
        rows = np.column_stack([design.matrix[has_data], values - shift])
        codes, first = number_integers(np.ascontiguousarray(variances).view(np.int64))
        sizes = np.bincount(codes)
        if len(first) < len(rows):
            order = np.argsort(codes, kind="stable")
            blocks = np.split(rows[order], np.cumsum(sizes)[:-1])
            blocks = [_triangle(x) if len(x) > x.shape[1] else x for x in blocks]
            rows, lengths = np.concatenate(blocks), np.array([len(x) for x in blocks])
        else:
            rows, lengths = rows[np.argsort(codes)], np.ones(len(first), int)
        counts = np.zeros(len(rows))
        counts[np.cumsum(lengths) - lengths] = sizes
        spread = np.repeat(variances[first], lengths)
        nothing = np.zeros(len(rows))
        return cls(
            spread,
            counts,
            rows[:, -1],
            nothing,
            scatter,
            degrees,
            matrix=rows[:, :-1],
            shift=shift,
        )

    @property
    def rows(self) -> NDArray:
        return self.matrix

    @property
    def n_means(self) -> int:
        """Number of coefficients."""
        return self.matrix.shape[1]

    def coarse(self) -> Self:
        """Return itself: messages of one variance still differ in their covariates."""
        return self

    def profile(self, ratio: Any) -> RegressionProfile:
        """Evaluate coefficients, residual sum of squares and slopes, by weighted least squares."""
        total = self.totals(ratio)
        fit = _least_squares(self.matrix, self.means, total)
        coefficients = fit.coefficients.copy()
        coefficients[..., 0] += self.shift
        return RegressionProfile(
            mean=coefficients[..., 0],
            weight=np.nan,
            information=0.5 * (self.counts / total**2).sum(axis=-1),
            quadratic=(fit.squares / total).sum(axis=-1),
            log_det=np.log(total) @ self.counts,
            slope_det=(self.counts / total).sum(axis=-1),
            slope_quadratic=-(fit.squares / total**2).sum(axis=-1),
            slope_weight=np.nan,
            coefficients=coefficients,
            covariance=fit.covariance,
            log_information=fit.log_information,
            slope_log_information=-(fit.leverage / total).sum(axis=-1),
        )

    def largest_square(self) -> float:
        """Bound on a squared deviation from the regression."""
        return float(
            _least_squares(self.matrix, self.means, np.ones(len(self.means))).squares.sum()
        )


def table_of(likelihood: Gaussian, column: int, noisy: bool, design: Design) -> MomentTable:
    """Tabulate the messages of one column; `noisy` as of `informative`."""
    if design.has_covariates:
        return RegressionTable.beside(likelihood, column, noisy, design)
    kind = SummedTable if isinstance(likelihood, SummedGaussian) else MomentTable
    return kind.of(likelihood, column, noisy)


@dataclass(frozen=True)
class _Fit:
    coefficients: NDArray
    covariance: NDArray
    log_information: Any
    squares: NDArray
    leverage: NDArray


def _least_squares(matrix: NDArray, values: NDArray, variances: NDArray) -> _Fit:
    """Weighted least squares by the triangular factor of the weighted rows.

    With `variances` of shape (r,), or (k, r) of k problems.
    """
    p, root = matrix.shape[1], np.sqrt(variances)[..., None]
    factor = _triangle(np.hstack([matrix, values[:, None]]) / root)
    upper = factor[..., :p, :p]
    inverse = np.linalg.inv(upper)
    coefficients = (inverse @ factor[..., :p, p:])[..., 0]
    sizes = np.abs(np.diagonal(upper, axis1=-2, axis2=-1))
    return _Fit(
        coefficients,
        inverse @ inverse.mT,
        2 * np.log(sizes).sum(axis=-1),
        (values - coefficients @ matrix.T) ** 2,
        ((matrix / root @ inverse) ** 2).sum(axis=-1),
    )


def _triangle(rows: NDArray) -> NDArray:
    """Triangular factor: fewer rows with the same squares and products."""
    return np.asarray(np.linalg.qr(rows, mode="r"))


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
        return matrix @ coefficients, _variances(matrix, covariance[None])[:, 0]

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
        return float(1 / information(self.table, self.profile, self.method, self.variance))

    @property
    def variance_error(self) -> float:
        """Standard error of `variance`, with the coefficients estimated.

        With ``P = V^-1 - V^-1 X (X' V^-1 X)^-1 X' V^-1`` and d degrees of freedom, its square is
        ``2 / tr(P P)`` of restricted likelihood and ``2 d / tr(P)**2`` of Paule and Mandel's
        moments; of full likelihood, and of other moments, it is `sampling_variance`.
        """
        if self.method in ("ml", "moments"):
            return float(np.sqrt(self.sampling_variance))
        unit, first, second = self.table.traces(self.variance)
        noise = 2 / second if self.method == "reml" else 2 * self.degrees / first**2
        return float(unit * np.sqrt(noise))

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
