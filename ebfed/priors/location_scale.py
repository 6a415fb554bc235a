"""Populations whose location and spread depend on precision or other covariates, and their fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr
from sklearn.base import clone

from ebfed.likelihoods import Gaussian, Likelihood, StudentT, join
from ebfed.likelihoods.base import parts_of
from ebfed.priors.base import Prior
from ebfed.priors.exploration import TILT, reweighted, student_draws
from ebfed.priors.identification import NO_SPREAD
from ebfed.priors.integrated import quantile_between
from ebfed.priors.normal import Normal
from ebfed.priors.posterior import Posterior, root_of
from ebfed.priors.regression import check_covariates
from ebfed.priors.robust import moments_around

__all__ = ["LocationScale", "LocationScaleFit"]


class LocationScale(Prior):
    r"""Population :math:`\theta_i = m(w_i) + s(w_i)\,\tau_i`, the tau_i of one shape.

    The location is ``m = w' b`` and the spread ``log s = w' c``, each linear in its columns of the
    covariates, with intercepts. Where precision is among them, estimates may depend on it in mean
    and spread (Chen 2024, CLOSE).

    b and c maximise the marginal likelihood of a normal shape, ``N(m_i, s_i**2 + v_i)`` for an
    estimate of error variance v_i; restricted, ``log |sum_i w_i w_i' / (s_i**2 + v_i)| / 2`` is
    taken off. Another shape is then fitted to ``(x_i - m_i) / s_i``, with errors of variance
    ``v_i / s_i**2``, as to any estimates. It is right whatever the shape that b and c are
    those of mean and variance; they are not the most likely ones. With such a shape they are at the
    peak of likelihood times prior, as slopes of a spread that is hardly seen would go astray.

    With the normal shape, posteriors average over plausible b and c. These are weighted by the
    likelihood times a prior: flat in b; standard normal in the slopes of log s over a standard
    deviation of the covariates; and at average covariates ``(s (s**2 / (s**2 + v))**(1/5))**k`` in
    log s, with v a typical error variance. As c has k coefficients it is that of k kinds of client
    with a spread each, flat in these but for the power of 1/5. With other shapes they average over
    the plausible shapes, and are wider by what errors of b and c add to the variance, to first
    order: errors with the covariance that holds whatever the shape (the sandwich).

    Parameters
    ----------
    shape : Prior, optional
        Population on the line of the tau_i; normal if None. ``Normal(method="ml")`` is the one
        whose likelihood is not restricted. A mode that is given is that of tau: 0 is the location.
    mean, spread : sequence of int, optional
        Which columns of the covariates location and spread depend on; all if None.

    Attributes
    ----------
    coefficients_, coefficient_errors_ : ndarray of shape (1 + k, 1)
        b, the intercept first, and standard errors.
    spread_coefficients_, spread_coefficient_errors_ : ndarray of shape (1 + k, 1)
        c, the intercept first, and standard errors.
    location_, scale_ : ndarray of shape (1, 1), or (n, 1) where covariates are given
    shape_ : Prior
        Population of the tau_i.
    mean_, variance_ : ndarray of shape (1,)
        Those at average covariates.
    restriction_ : float or None
        Restricted log-likelihood less the marginal one, of a normal shape.

    References
    ----------
    Chen (2024), Empirical Bayes when estimation precision predicts parameters.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> w = rng.normal(size=(2000, 1))
    >>> theta = 1 + w + np.exp(-1 + 0.5 * w) * rng.standard_normal((2000, 1))
    >>> messages = Gaussian(theta + 0.3 * rng.standard_normal((2000, 1)), np.full((2000, 1), 0.09))
    >>> prior = LocationScale().fit(messages, w)
    >>> prior.coefficients_.ravel().round(1), prior.spread_coefficients_.ravel().round(1)
    (array([1., 1.]), array([-1. ,  0.5]))
    >>> prior.at(w[:2]).posterior(messages.take(slice(2))).mean.shape
    (2, 1)
    """

    takes_covariates: ClassVar[bool] = True
    couples_columns: ClassVar[bool] = True
    _is_linear: ClassVar[bool] = True  # robust intervals are those of the shape

    location_: NDArray
    scale_: NDArray
    coefficients_: NDArray
    coefficient_errors_: NDArray
    spread_coefficients_: NDArray
    spread_coefficient_errors_: NDArray
    covariates_mean_: NDArray
    covariates_scale_: NDArray
    # Coefficients of the scaled covariates, those of the location first; directions in which they
    # are in doubt, by a standard error each; and what the fit of the shape has learned.
    point_: NDArray
    doubt_: NDArray
    shape_state_: dict[str, Any]

    def __init__(
        self,
        shape: Prior | None = None,
        *,
        mean: Sequence[int] | None = None,
        spread: Sequence[int] | None = None,
    ):
        self.shape = shape
        self.mean = mean
        self.spread = spread

    @property
    def _n_covariates(self) -> int:
        return len(self.covariates_mean_)

    def split(self, covariates: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return those of the covariates that the mean depends on, and those of the spread."""
        everything = range(len(covariates))
        of_mean, of_spread = (
            [covariates[j] for j in (everything if places is None else places)]
            for places in (self.mean, self.spread)
        )
        return of_mean, of_spread

    @property
    def shape_(self) -> Prior:
        """Population of the tau_i."""
        shape = Normal() if self.shape is None else clone(self.shape).unfitted()
        shape.__dict__.update(self.shape_state_)
        return shape

    def _take_shape(self, shape: Prior) -> None:
        self.shape_state_ = {name: x for name, x in vars(shape).items() if name.endswith("_")}

    @property
    def _is_normal(self) -> bool:
        return self.shape is None or isinstance(self.shape, Normal)

    def accepts(self, likelihood: Likelihood) -> bool:
        """Estimates of one parameter with normal or t errors, also with Gaussian noise."""
        known = all(isinstance(part, Gaussian | StudentT) for part in parts_of(likelihood))
        return known and likelihood.n_features == 1

    def _fit(self, likelihood: Likelihood) -> None:
        self._fit_with_covariates(likelihood, np.empty((len(likelihood), 0)))

    def _fit_with_covariates(self, likelihood: Likelihood, covariates: NDArray) -> None:
        self._check(covariates.shape[1])
        self.__dict__.pop("shape_state_", None)
        messages = join(parts_of(self._settled(likelihood)))
        assert isinstance(messages, Gaussian | StudentT)
        seen = np.isfinite(messages.variances[:, 0]) & (messages.variances[:, 0] > 0)
        known = covariates[seen]
        self.covariates_mean_ = known.mean(axis=0)
        for columns in filter(len, self._columns):
            check_covariates(known[:, columns])
        spreads = (known - self.covariates_mean_).std(axis=0)
        self.covariates_scale_ = np.where(spreads > 0, spreads, 1.0)
        mean, spread = self._designs(known)
        restricted = getattr(self.shape, "method", "reml") == "reml" or not self._is_normal
        fit = LocationScaleFit(messages.take(seen), mean, spread, restricted)
        point, note = fit.likeliest() if self._is_normal else (fit.likely(), "")
        if note:
            self._add_note(note)
        self._set(point)
        self._learn_errors(fit, point)
        if self._is_normal and restricted:
            scale = self.covariates_scale_[self._columns[0]]
            self.restriction_ = fit.restriction(point) - np.log(scale).sum()
        self.n_parameters_ = len(point)
        self._fit_shape(self.at(covariates)._standardised(messages))
        self.n_parameters_ += self.shape_state_["n_parameters_"]
        self._set(point)
        if self._is_normal:
            self._find_later(LocationScale._learn_plausible, fit)

    def _check(self, n_covariates: int) -> None:
        for name in ("mean", "spread"):
            columns = getattr(self, name)
            if columns is None:
                continue
            if isinstance(columns, str) or not set(columns) <= set(range(n_covariates)):
                raise ValueError(
                    f"{name} must be numbers of columns, of the {n_covariates} covariates; got "
                    f"{columns!r}. Formulas are for `posterior_from(…, {name}='~ log(se)')`."
                )
        if self.shape is not None and not isinstance(self.shape, Prior):
            raise TypeError(f"shape must be a prior of ebfed.priors; got {self.shape!r}.")
        if not isinstance(self.shape, Normal):
            return
        if self.shape.mean is not None or self.shape.variance is not None:
            raise ValueError(
                "shape must leave mean and variance open, which covariates predict; got "
                f"{self.shape!r}."
            )
        if self.shape.method not in ("reml", "ml"):
            raise ValueError(f"shape must have the method 'reml' or 'ml'; got {self.shape!r}.")

    @property
    def _columns(self) -> list[list[int]]:
        """Columns that location and spread depend on."""
        every = range(len(self.covariates_mean_))
        return [list(every if x is None else x) for x in (self.mean, self.spread)]

    def _designs(self, covariates: NDArray) -> list[NDArray]:
        """Ones beside the scaled covariates of location and spread, shape (n, 1 + k) each."""
        scaled = (covariates - self.covariates_mean_) / self.covariates_scale_
        ones = np.ones((len(covariates), 1))
        return [np.hstack([ones, scaled[:, columns]]) for columns in self._columns]

    def _split(self, point: NDArray) -> list[NDArray]:
        """Coefficients of the location and those of the log-spread."""
        return np.split(point, [1 + len(self._columns[0])])

    def _unscaled(self) -> list[NDArray]:
        """Matrices that turn coefficients of scaled covariates into those of covariates."""
        moves = []
        for columns in self._columns:
            move = np.diag(np.concatenate([[1.0], 1 / self.covariates_scale_[columns]]))
            move[0, 1:] = -self.covariates_mean_[columns] / self.covariates_scale_[columns]
            moves.append(move)
        return moves

    def _set(self, point: NDArray) -> None:
        """Set coefficients, those of scaled covariates given."""
        self.point_, parts = point, self._split(point)
        moved = [move @ own for move, own in zip(self._unscaled(), parts, strict=True)]
        self.coefficients_, self.spread_coefficients_ = (each[:, None] for each in moved)
        self.slopes_ = self.coefficients_[1:]
        self._place(*(own[:1, None] for own in parts))

    def _place(self, location: NDArray, log_scale: NDArray) -> None:
        """Set location and spread, shape (n, 1), and the moments that follow."""
        self.location_, self.scale_ = location, np.exp(log_scale)
        mean, variance = np.zeros(1), np.ones(1)
        if "shape_state_" in vars(self):
            mean, variance = self.shape_state_["mean_"], self.shape_state_["variance_"]
        self.mean_ = self.location_ + self.scale_ * mean
        self.variance_ = self.scale_**2 * variance
        if len(location) == 1:
            self.mean_, self.variance_ = self.mean_[0], self.variance_[0]

    def _learn_errors(self, fit: LocationScaleFit, point: NDArray) -> None:
        """Set standard errors of coefficients, and a root of the covariance of those in doubt."""
        covariance = fit.covariance(point, robust=not self._is_normal)
        p, errors = len(self._split(point)[0]), []
        for own, move in zip(np.split(np.arange(len(point)), [p]), self._unscaled(), strict=True):
            root = root_of(covariance[np.ix_(own, own)])
            errors.append(np.linalg.norm(move @ root, axis=1, keepdims=True))
        self.coefficient_errors_, self.spread_coefficient_errors_ = errors
        self.doubt_ = np.empty((0, len(point)))
        if not self._is_normal:
            # a location and a scale that the shape has of its own are not counted twice
            free = np.arange(len(point)) != p
            free[0] = getattr(self.shape, "mode", None) is not None
            self.doubt_ = root_of(covariance * np.outer(free, free)).T

    def _fit_shape(self, rows: Gaussian | StudentT) -> None:
        """Fit the shape to standardised messages."""
        if not self._is_normal:
            shape = clone(self.shape).unfitted().fit(rows)
            self.notes_ += [note for note in shape.notes_ if note not in self.notes_]
            self._take_shape(shape)
            return
        shape = Normal.known(np.ones(1))
        known = np.isfinite(rows.variances[:, 0]) & (rows.variances[:, 0] > 0)
        if isinstance(rows, Gaussian) and known.sum() > 1:
            moments = moments_around(rows.values[known, 0], rows.variances[known, 0])
            shape.second_moment_, shape.kurtosis_ = np.array(moments)[:, None]
        self._take_shape(shape)

    def _learn_plausible(self, fit: LocationScaleFit) -> None:
        points, weights = fit.plausible()
        self.plausible_ = {"point_": points, "weights": weights[:, None]}

    def _take(self, point_: NDArray) -> None:
        self._set(point_)

    def without_doubt(self) -> Self:
        known = super().without_doubt()
        known.doubt_ = self.doubt_[:0]
        known._take_shape(self.shape_.without_doubt())
        return known

    def at(self, covariates: NDArray) -> Self:
        shape = np.shape(covariates)
        if len(shape) != 2 or shape[1] != self._n_covariates:
            raise ValueError(f"covariates must have shape (n, {self._n_covariates}); got {shape}.")
        there, covariates = copy(self), np.asarray(covariates, float)
        # sums of few terms, as a product of matrices would round by how many clients are in it
        pairs = zip(self._designs(covariates), self._split(self.point_), strict=True)
        there._place(*((matrix * own).sum(axis=1, keepdims=True) for matrix, own in pairs))
        there.mean_, there.variance_ = there.mean_.reshape(-1, 1), there.variance_.reshape(-1, 1)
        there.covariates_ = covariates
        return there

    def _standardised(self, likelihood: Likelihood) -> Gaussian | StudentT:
        """What the messages say of the tau_i."""
        messages = join(parts_of(likelihood))
        assert isinstance(messages, Gaussian | StudentT)
        has_data = np.isfinite(messages.variances)
        away = np.where(has_data, messages.values, self.location_) - self.location_
        rest = (messages.degrees,) if isinstance(messages, StudentT) else ()
        return type(messages)(away / self.scale_, messages.variances / self.scale_**2, *rest)

    def _grid(self, likelihood: Likelihood) -> tuple[NDArray, NDArray]:
        atoms, log_masses = self.shape_._grid(self._standardised(likelihood))
        return self.location_ + self.scale_ * atoms, log_masses

    def _posterior(self, likelihood: Likelihood) -> Posterior:
        inner = self.shape_.posterior(self._standardised(likelihood))
        if not self.doubt_.any():
            return MovedPosterior(inner, self.location_, self.scale_)
        errors, points = partial(self._errors, likelihood), self.shape_.points()[0]
        return MovedPosterior(inner, self.location_, self.scale_, errors, points)

    def _errors(self, likelihood: Likelihood) -> NDArray:
        """Errors of posterior means, for a standard error in each direction of doubt, (r, n)."""
        known = self.without_doubt()

        def mean(point: NDArray) -> NDArray:
            there = known._like({"point_": point})
            there = there if self.mean_.ndim == 1 else there.at(self.covariates_)
            return there._posterior(likelihood).mean[:, 0]

        sides = [[mean(self.point_ + sign * each) for each in self.doubt_] for sign in (1, -1)]
        return (np.array(sides[0]) - np.array(sides[1])) / 2

    def log_marginal(self, likelihood: Likelihood) -> NDArray:
        rows = self._standardised(likelihood)
        has_data = np.isfinite(rows.variances[:, 0])
        scale = np.broadcast_to(self.scale_, rows.values.shape)[:, 0]
        return self.shape_.log_marginal(rows) - np.where(has_data, np.log(scale), 0.0)

    def logpdf(self, theta: NDArray) -> NDArray:
        """Log-density at theta of shape (k, 1), shape (k,), or (n, k) of n clients."""
        away = (theta[:, 0] - self.location_) / self.scale_
        logs = self.shape_.logpdf(away.reshape(-1, 1)).reshape(away.shape) - np.log(self.scale_)
        return logs if self.mean_.ndim > 1 else logs[0]

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        return self.location_ + self.scale_ * self.shape_.sample(size, random_state)

    def parameters(self, j: int = 0) -> dict[str, float]:
        """Parameters of the shape."""
        return self.shape_.parameters(j)


NO_POINTS: NDArray = np.empty(0)


class MovedPosterior(Posterior):
    """Posterior of ``location + scale * tau``, where that of tau is given.

    Errors that clients share widen it about its mean, to the variance that it has with them; one
    point among its values becomes a normal with the standard deviation of the errors.

    Parameters
    ----------
    inner : Posterior of n clients
    location, scale : ndarray of shape (n, 1)
        Scales are positive.
    errors : callable, optional
        Function without arguments, called when it is needed: r independent errors, (r, n).
    points : ndarray of shape (k,)
        Values of tau that have a probability of their own. If there are several, errors widen the
        distribution as if it had none.
    """

    def __init__(
        self,
        inner: Posterior,
        location: NDArray,
        scale: NDArray,
        errors: Callable[[], NDArray] | None = None,
        points: NDArray = NO_POINTS,
    ):
        self._inner, self._location, self._scale = inner, location, scale
        self._has_points, self.weight = inner._has_points, inner.weight
        self.mean = location + scale * inner.mean
        self._make, self._point = errors, points if len(points) == 1 else NO_POINTS

    @cached_property
    def _errors(self) -> NDArray:
        return np.zeros((0, len(self.mean))) if self._make is None else self._make()

    @property
    def expectation(self) -> NDArray:
        """Mean of the posterior, shape (n, 1)."""
        return self._location + self._scale * self._inner.expectation

    @cached_property
    def _reach(self) -> NDArray:
        """Standard deviation of the errors, in units of tau, shape (n, 1)."""
        return np.sqrt((self._errors**2).sum(axis=0))[:, None] / self._scale

    @cached_property
    def sd(self) -> NDArray:  # type: ignore[override]
        """Standard deviation, shape (n, 1)."""
        return self._scale * np.hypot(self._inner.sd, self._reach)

    @cached_property
    def _mass(self) -> NDArray:
        """Probability of the point, shape (n, 1); 0 without a point, and without errors."""
        mass = np.zeros(self.mean.shape)
        for at in self._point:
            mass = self._inner._prob_to(at) + self._inner._prob_to(at, -1) - 1
        return np.where(self._reach > 0, np.maximum(mass, 0.0), 0.0)

    @cached_property
    def _rest(self) -> tuple[NDArray, NDArray]:
        """Mean of tau where it is not the point, and the factor by which errors widen it."""
        mean, variance = self._inner.expectation, self._inner.sd**2
        rest = np.maximum(1 - self._mass, 1e-9)
        away = (mean - self._point.sum()) / rest  # from the point
        own = np.sqrt(np.maximum(variance / rest - self._mass * away**2, 0.0))
        wider = np.divide(np.hypot(own, self._reach), own, out=np.ones_like(own), where=own > 0)
        return self._point.sum() + away, wider

    def _prob_to(self, threshold: ArrayLike, sign: int = 1) -> NDArray:
        tau = (np.asarray(threshold, float) - self._location) / self._scale
        centre, wider = self._rest
        back = np.where(wider > 1, centre + (tau - centre) / wider, tau)
        found = self._inner._prob_to(back, sign)
        for at in self._point:
            reach = np.where(self._mass > 0, self._reach, 1.0)
            found += self._mass * (ndtr(sign * (tau - at) / reach) - (sign * at <= sign * back))
        return np.clip(found, 0.0, 1.0)

    def _ahead(self, tau: NDArray) -> NDArray:
        """Widen the distribution of tau about its mean, and move it."""
        centre, own = self._inner.expectation, self._scale * self._inner.sd
        wider = np.divide(self.sd, own, out=np.ones_like(own), where=own > 0)
        return self._location + self._scale * (centre + wider * (tau - centre))

    def _quantile(self, q: float) -> NDArray:
        if not self._mass.any() or q in (0, 1):
            return self._ahead(self._inner.quantile(q))
        reach = self.sd * np.sqrt(1 / q - 1)  # of Chebyshev's inequality for one side
        low, high = self.expectation - reach, self.expectation + self.sd * np.sqrt(q / (1 - q))
        return quantile_between(lambda x: self._prob_to(x) - q, low, high)

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        """Draw `size` values of each parameter, shape (size, n, 1); clients share errors."""
        rng = np.random.default_rng(random_state)
        draws = self._location + self._scale * self._inner.sample(size, rng)
        shared = rng.standard_normal((size, len(self._errors))) @ self._errors
        return draws + shared[:, :, None]

    def _robust_ends(self, level: float) -> tuple[NDArray, NDArray]:
        lower, upper = self._inner.interval(level, "robust")
        return self._ahead(lower), self._ahead(upper)


# Logarithm of a spread over a typical error below which it is negligible; longest step of one.
NONE, LONGEST = -9.0, 2.0
STEEP = (
    "The likelihood rises as the slopes of the spread grow without bound. They are taken from the "
    "peak of their posterior density."
)
# Logarithm of a spread over a typical error, beyond which it is not computed.
FURTHEST = 40.0
# Slope of the log-spread over a standard deviation of the covariates that is not believed.
STEEPEST = 4.0
# Rise of the log-likelihood that a step promises, below which it is the last.
DONE = 1e-11
# Numbers of plausible points (second of each pair) up to a number of messages (first).
SIZES = ((500, 256), (4000, 128), (np.inf, 48))
ROUNDS = 3  # of proposals


class Figures(NamedTuple):
    """Criterion at a point, its slope, expected information, and scores of each message.

    `roots` are those of each message's information on b and on c, shape (n, p) and (n, q).
    """

    value: float
    slope: NDArray
    information: NDArray
    scores: NDArray
    roots: list[NDArray]


@dataclass(frozen=True)
class LocationScaleFit:
    """Estimates ``x_i`` of ``theta_i ~ N(w_i' b, exp(2 z_i' c))``.

    Standardised by location and spread, a message has a population N(0, 1) and the log-density
    ``log f(u_i) - log s_i``. Its slopes are ``-f'/f / s_i`` in the location and, as a normal
    density solves the heat equation, ``f''/f`` in the log-spread.

    Attributes
    ----------
    rows : Gaussian or StudentT of n clients with data
    mean, spread : ndarray of shape (n, p) and (n, q)
        Columns of ones, and centred and scaled covariates.
    restricted : bool
        Whether b is integrated out.
    """

    rows: Gaussian | StudentT
    mean: NDArray
    spread: NDArray
    restricted: bool

    @cached_property
    def noise(self) -> NDArray:
        """Variances of the errors, shape (n,)."""
        return self.rows.sampling_variance(0.0, 1.0)

    @cached_property
    def typical(self) -> float:
        """Typical variance of the errors."""
        return float(np.median(self.noise))

    @property
    def _parts(self) -> tuple[slice, slice]:
        """Places of b and of c in a point."""
        return slice(self.mean.shape[1]), slice(self.mean.shape[1], None)

    def at(self, point: NDArray, with_prior: bool = False) -> Figures:
        """Evaluate the criterion: (restricted) likelihood, or that with the prior."""
        p, c = self.mean.shape[1], point[self.mean.shape[1] :]
        scale, total, one, two = self._figures(point)
        precision = 1 / (1 + self.noise / scale**2)
        scores = np.hstack([self.mean * (one / scale)[:, None], self.spread * two[:, None]])
        of_rows = (self.mean, np.sqrt(precision) / scale), (self.spread, np.sqrt(2) * precision)
        roots = [each * root[:, None] for each, root in of_rows]
        information = np.zeros((len(point), len(point)))
        for part, root in zip(self._parts, roots, strict=True):
            information[part, part] = root.T @ root
        slope = scores.sum(axis=0)
        if self.restricted and not with_prior:
            own = information[:p, :p]
            total -= 0.5 * np.linalg.slogdet(own)[1]
            slope[p:] += self.spread.T @ (_leverages(roots[0], np.linalg.inv(own)) * precision)
        if with_prior:
            share = self._share(c)
            total += self._log_prior(c)
            slope[p] += len(c) * (1 + 2 * TILT * share)
            slope[p + 1 :] -= c[1:]
            bend = [4 * len(c) * TILT * share * (1 - share)] + [1.0] * (len(c) - 1)
            information[p:, p:] += np.diag(bend)
        return Figures(total, slope, information, scores, roots)

    def heights(self, points: NDArray) -> NDArray:
        """Log posterior density of points up to a constant, shape (k,)."""
        p = self.mean.shape[1]
        return np.array([self._figures(each)[1] + self._log_prior(each[p:]) for each in points])

    def _share(self, c: NDArray) -> float:
        """Share of typical errors in the variance of an estimate at average covariates."""
        return float(self.typical / (np.exp(2 * c[0]) + self.typical))

    def _log_prior(self, c: NDArray) -> float:
        """Flat in the spreads of as many kinds of client, were they kinds, as c has numbers."""
        each = c[0] + TILT * np.log1p(-self._share(c))
        return float(len(c) * each - 0.5 * c[1:] @ c[1:])

    def _figures(self, point: NDArray) -> tuple[NDArray, float, NDArray, NDArray]:
        """Scales, log-likelihood, and ``-f'/f`` and ``f''/f`` of each message."""
        b, c = np.split(point, [self.mean.shape[1]])
        centre = 0.5 * np.log(self.typical)
        log_scale = np.clip(self.spread @ c, centre - FURTHEST, centre + FURTHEST)
        scale = np.exp(log_scale)
        away = (self.rows.values[:, 0] - self.mean @ b) / scale
        value, one, two = self._standardised(away, scale)
        return scale, float(value.sum() - log_scale.sum()), one, two

    def _standardised(self, away: NDArray, scale: NDArray) -> tuple[NDArray, NDArray, NDArray]:
        """``log f``, ``-f'/f`` and ``f''/f`` at standardised values, shape (n,) each."""
        noise = self.rows.variances[:, 0] / scale**2
        if isinstance(self.rows, StudentT):
            rows = StudentT(away[:, None], noise[:, None], self.rows.degrees)
            log, one, two = rows.derivatives(away, 1.0)[:3]
            return log, one, two
        precision = 1 / (1 + noise)
        one = away * precision
        log = -0.5 * (np.log(2 * np.pi / precision) + away * one)
        return log, one, one**2 - precision

    def start(self) -> NDArray:
        """Point without slopes of the spread: moments of residuals."""
        values = self.rows.values[:, 0]
        root = 1 / np.sqrt(self.noise + self.typical)
        b = np.linalg.lstsq(self.mean * root[:, None], values * root)[0]
        excess = np.mean((values - self.mean @ b) ** 2 - self.noise)
        c = np.zeros(self.spread.shape[1])
        c[0] = 0.5 * np.log(max(float(excess), 0.1 * self.typical))
        return np.concatenate([b, c])

    def climb(self, point: NDArray, with_prior: bool = False) -> tuple[NDArray, Figures, bool]:
        """Climb by scoring; also return whether the spread stays above none."""
        p = self.mean.shape[1]
        lowest = 0.5 * np.log(self.typical) + NONE
        figures = self.at(point, with_prior)
        for _ in range(500):
            pairs = [(figures.information[k, k], figures.slope[k]) for k in self._parts]
            step = np.concatenate([np.linalg.lstsq(*pair)[0] for pair in pairs])
            step *= min(1.0, LONGEST / max(np.abs(self.spread @ step[p:]).max(), 1e-300))
            for _ in range(40):
                tried = self.at(point + step, with_prior)
                if tried.value >= figures.value:
                    break
                step = step / 3
            else:
                return point, figures, True
            promised = float(figures.slope @ step)
            point, figures = point + step, tried
            if not (self.spread @ point[p:]).max() > lowest:
                return point, figures, False
            if not with_prior and (np.abs(point[p + 1 :]) > STEEPEST).any():
                return point, figures, True
            if promised < DONE:
                return point, figures, True
        return point, figures, True

    def likeliest(self) -> tuple[NDArray, str]:
        """Coefficients of (restricted) maximum likelihood, and a note if there is no maximum."""
        point, _, has_spread = self.climb(self.start())
        p = self.mean.shape[1]
        if not has_spread:
            point[p:] = 0.0
            point[p] = 0.5 * np.log(self.typical) + NONE
            return point, NO_SPREAD
        if (np.abs(point[p + 1 :]) > STEEPEST).any():
            return self.likely(), STEEP
        return point, ""

    def likely(self) -> NDArray:
        """Coefficients at the peak of their posterior density, where there is always a spread."""
        return self.climb(self.start(), with_prior=True)[0]

    def restriction(self, point: NDArray) -> float:
        """What integrating b out adds to the log-likelihood, ``log |2 pi C| / 2``."""
        p = self.mean.shape[1]
        own = self.at(point).information[:p, :p]
        return float(0.5 * (p * np.log(2 * np.pi) - np.linalg.slogdet(own)[1]))

    def covariance(self, point: NDArray, robust: bool) -> NDArray:
        """Sampling covariance of a point; robust, whatever the shape of the population."""
        figures = self.at(point)
        inverse = np.zeros_like(figures.information)
        # in blocks: coefficients b of the location have the units of the estimates, c are numbers
        for k in self._parts:
            own = figures.information[k, k]
            inverse[k, k] = np.linalg.pinv(own, rcond=1e-12, hermitian=True)
        if not robust:
            return inverse
        # At the fit the score of a client varies less than at the truth: its leverage is the share
        # that is lacking, all of it where a slope is seen in one client alone. That share of its
        # expected information is added.
        scores = figures.scores.T @ figures.scores
        for part, root in zip(self._parts, figures.roots, strict=True):
            scores[part, part] += (root.T * _leverages(root, inverse[part, part])) @ root
        return inverse @ scores @ inverse

    def plausible(self) -> tuple[NDArray, NDArray]:
        """Weighted points of the posterior distribution, under a normal shape."""
        centre = self.likely()
        figures = self.at(centre, with_prior=True)
        root = np.linalg.cholesky(np.linalg.inv(figures.information))
        size = next(size for most, size in SIZES if len(self.rows) <= most)
        return reweighted(
            *student_draws(size, len(centre))[:2],
            lambda moved: centre + moved @ root.T,
            self.heights,
            ROUNDS,
        )


def _leverages(roots: NDArray, inverse: NDArray) -> NDArray:
    """Leverage of each row of a matrix, shape (n,), of whose products this is the inverse."""
    leverages: NDArray = np.einsum("ij,ij->i", roots @ inverse, roots)
    return leverages
