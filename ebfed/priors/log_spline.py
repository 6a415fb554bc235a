"""Population of any smooth shape, whose log-density is a spline: g-modelling (Efron 2016)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from numbers import Integral, Real
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr, ndtri, stdtr
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from ebfed.likelihoods import Gaussian, Joined, Likelihood, Reported, StudentT, join
from ebfed.likelihoods.base import parts_of, without_gaps
from ebfed.priors.base import Prior
from ebfed.priors.beta import Beta
from ebfed.priors.discrete_posterior import DiscretePosterior
from ebfed.priors.exploration import TILT
from ebfed.priors.gamma import Gamma
from ebfed.priors.narrow import error_of
from ebfed.priors.normal import Normal

__all__ = ["GModel", "LogSpline", "Maximum", "natural_basis"]

# Coefficients that stand for what is not known of the population.
N_DRAWS = 60
# Those that are tried, of few messages and of more, from a t distribution of so many degrees of
# freedom; steps that the draws make, and their length (of the best for a normal distribution).
FEW = 2000
N_TRIED, N_TRIED_OF_MANY, DEGREES = 600, 200, 5
N_STEPS, N_STEPS_OF_MANY, STRIDE = 50, 10, 2.0

# Degrees of freedom that df="auto" tries, until so many in a row are no better.
TRIED, PATIENCE = (5, 8, 12, 16, 24), 2

Moments = Callable[[], tuple[float, float]]
"""Mean and variance of the conjugate population, which are computed once."""

FINE = 1000  # cells of the range, for moments, draws and the constant of the density
COARSE = 20.0  # distance of knots, in that of the quartiles of groups, that is noted
WIDE = 50.0  # length of the interval, in deviations of most groups, from which its scale is bent
# Expected numbers of groups as far from a normal population as one is, by which the interval begins
# to reach for it, and does; errors that it reaches beyond.
SELDOM, NEVER, BEYOND = 0.5, 0.005, 4.0
SHARPEST = 800  # cells of the range; estimates with smaller errors are known from the density there
LEAST = 1e-6  # of the mass of a node, of which more is left than nothing
SHARP = 100  # power of the share of its own at which an estimate counts as sharp


class LogSpline(Prior):
    """Population with the density ``g(theta) = exp(Q(theta)' a - phi(a))`` on an interval.

    Q is a basis of natural cubic splines, so that the population may have any smooth shape, with
    one peak or several. Unlike the NPMLE (`Discrete`) it has a density, and standard errors. The
    coefficients maximise

        sum_i log integral L_i(theta) g(theta; a) dtheta - c0 |a|,

    where the columns of Q have mean 0 and are orthonormal over the interval: ``|a|`` is the
    standard deviation of log g there, whatever the basis. The penalty draws to the uniform
    population, which is the estimate where few groups say little. (deconvolveR's basis has
    columns of length 1 over K points: its ``c0`` is this one over ``sqrt(K)``.)

    The covariance of the coefficients is Efron's: with the information ``I = sum_i S_i S_i'`` of
    the clients' scores and the second derivatives P of the penalty,

        Cov(a^) = (I + P)^-1 I (I + P)^-1,

    and standard errors of all else follow by the delta method. They are errors of sampling; the
    bias that the penalty brings is not in them. Intervals average over coefficients drawn from
    their posterior distribution, under a Cauchy prior of scale ``1 / (2 c0 sqrt(df))`` times the
    power 4/5 of ``v / (v + u)``, v the variance of the population and u that of the uniform one.

    The number p of coefficients is chosen from the data: of 5, 8, 12, 16 and 24, that of the
    greatest ``sum_i log integral L_i(theta) g(theta; a^) dtheta - p log(m) / 2`` of m clients,
    Schwarz's criterion (BIC); larger numbers are left out after two that are worse. With few groups
    it is mostly 5. With 10,000 groups and 5, squared errors are up to 6 % above those under the
    true population where that has two humps; with the number that is chosen they are within 1 %.
    In populations of very heavy tails, such as t with 3 degrees of freedom, a single group that is
    far from all others may cost another 3 %.

    A density that is infinite at an end of its support, such as a beta's with a shape below 1, is
    not of this family: intervals of 95 % near that end cover less, about 87 %.

    Parameters
    ----------
    df : int or "auto"
        Degrees of freedom of the spline, the number of coefficients.
    c0 : float
        Size of the penalty.
    range : tuple of float, optional
        Ends of the interval. If None they are those of the clients' estimates, shrunk so that all
        together spread as the population does, and an error of these beyond. Estimates that are too
        far from all others for a normal population are not shrunk: the interval ends four errors
        beyond.

    Attributes
    ----------
    df_ : int
        Degrees of freedom.
    knots_ : ndarray of shape (df_ + 1,)
        Knots of the splines: in even steps; of rates, from 0 on, in those of their roots; on the
        whole line, quantiles of a law that is half uniform and half normal. Where the interval is
        more than 50 times as long as most groups spread, splines are of the inverse hyperbolic sine
        of the distance from their median, and knots in even steps of that.
    coefficients_ : ndarray of shape (df_,)
    covariance_ : ndarray of shape (df_, df_)
        Covariance of the coefficients. Near 0, where the penalty has a kink, P is that at ``|a| =
        df / c0``, the mean of ``|a|`` under a density ``exp(-c0 |a|)``.
    range_ : ndarray of shape (2,)
    mean_, variance_, mean_variance_, variance_variance_ : ndarray of shape (1,)

    References
    ----------
    Efron (2016), Empirical Bayes deconvolution estimates, Biometrika 103, 1-20; Narasimhan and
    Efron (2020), deconvolveR, J. Statist. Software 94(11); Schwarz (1978), Estimating the dimension
    of a model, Annals of Statistics 6, 461-464; ter Braak (2006), A Markov chain Monte Carlo
    version of the genetic algorithm differential evolution, Statistics and Computing 16, 239-249.

    Examples
    --------
    >>> from ebfed.likelihoods import Gaussian
    >>> rng = np.random.default_rng(0)
    >>> theta = rng.choice([-2.0, 2.0], 500) + rng.normal(0, 0.5, 500)
    >>> messages = Gaussian(rng.normal(theta)[:, None], np.ones((500, 1)))
    >>> prior = LogSpline().fit(messages)
    >>> at = np.array([[-2.0], [0.0], [2.0]])
    >>> np.exp(prior.logpdf(at)).round(2), prior.density_errors(at).round(2)
    (array([0.4 , 0.01, 0.41]), array([0.1 , 0.01, 0.08]))
    """

    def __init__(
        self,
        df: int | str = "auto",
        *,
        c0: float = 1.0,
        range: tuple[float, float] | None = None,
    ):
        self.df = df
        self.c0 = c0
        self.range = range

    knots_: NDArray
    # Median of the groups and a deviation, where the scale of the splines is bent; else NaN.
    bend_: NDArray
    coefficients_: NDArray
    covariance_: NDArray
    range_: NDArray

    @property
    def df_(self) -> int:
        """Degrees of freedom: one less than the number of knots."""
        return len(self.knots_) - 1

    @property
    def support(self) -> tuple[float, float]:  # type: ignore[override]
        """The interval; the line before it is known."""
        low, high = getattr(self, "range_", (-np.inf, np.inf))
        return float(low), float(high)

    def accepts(self, likelihood: Likelihood) -> bool:
        """Return whether theta has one coordinate; any support will do."""
        return likelihood.n_features == 1

    # Fitting ----------------------------------------------------------------------------------

    def _fit(self, likelihood: Likelihood) -> None:
        self._check(likelihood)
        settled = self._settled(likelihood)
        moments = cache(partial(_moments, settled))
        self.range_ = np.array(self._ends(likelihood, settled, moments), float)
        df = TRIED[0] if self.df == "auto" else int(self.df)
        self.bend_ = _bend(settled, *self.range_)
        settled = self._no_sharper_than_cells(settled)
        rows, counts = settled.summed()
        if np.isfinite(self.bend_).all():
            place = partial(_even, self._place)
        else:
            place = partial(_knots, *self._range(), *_centre(settled, moments), likelihood.support)
        self.knots_ = place(df)
        self.covariance_ = np.zeros((df, df))
        self._set(np.zeros(df))
        span = f"from {self.range_[0]:.4g} to {self.range_[1]:.4g}"
        if not counts.sum():
            self._add_note(
                f"No client has data: the population is unknown, taken to be uniform {span}.", True
            )
        elif not self.variance_[0] > 0:
            self._add_note("The population is a point: all parameters were seen, and are equal.")
        else:
            few = None if settled.lattice is None else settled.condensed(np.ones(len(settled)))
            self._maximise(rows, counts, place, few)
            if counts.sum() == 1:
                self._add_note(
                    "Only one group has data: the shape of the population is not identified.", True
                )
            elif not self.coefficients_.any():
                self._add_note(
                    "The messages say too little of the population's shape: it is taken to be "
                    f"uniform {span}."
                )
            if (ratio := self._coarseness(settled)) > COARSE:
                self._add_note(
                    f"Knots are {ratio:.0f} times as far apart as half of the groups, for others "
                    "lie far away: the spline cannot show how most of them differ. The NPMLE and "
                    "scale mixtures can.",
                    True,
                )
        self.n_parameters_ = self.df_
        self._learn_errors()

    def _coarseness(self, likelihood: Likelihood) -> float:
        """Distance of the knots around the median of groups, over that of their quartiles."""
        local = likelihood.local[:, 0]
        if not (informed := np.isfinite(local)).any():
            return 0.0
        low, median, high = np.quantile(local[informed], [0.25, 0.5, 0.75])
        place = np.searchsorted(self.knots_[1:-1], median)
        gap = self.knots_[place + 1] - self.knots_[place]
        return float(gap / (high - low)) if low < high else 0.0

    def _check(self, likelihood: Likelihood) -> None:
        is_number = isinstance(self.df, Integral) and self.df >= 1
        if not is_number and not (isinstance(self.df, str) and self.df == "auto"):
            raise ValueError(f"df must be a positive whole number, or 'auto'; got {self.df!r}.")
        if not isinstance(self.c0, Real) or not 0 < self.c0 < np.inf:
            raise ValueError(f"c0 must be a positive number; got {self.c0!r}.")
        if self.range is None:
            return
        ends = np.asarray(self.range, float)
        inside = ends.shape == (2,) and np.isfinite(ends).all() and ends[0] < ends[1]
        low, high = likelihood.support
        if not inside or ends[0] < low or ends[1] > high:
            raise ValueError(
                f"range must be two increasing numbers from {low} to {high}; got {self.range!r}."
            )

    def _ends(
        self, likelihood: Likelihood, settled: Likelihood, moments: Moments
    ) -> tuple[float, float]:
        """Ends of the interval, given moments of the conjugate population."""
        if self.range is not None:
            return self.range
        informed = np.isfinite(settled.local[:, 0])
        exact = likelihood.exact
        if exact is not None and informed.any():
            seen = exact[informed, 0]
            if (seen == seen[0]).all():
                return float(seen[0]), float(seen[0])
        if not informed.any():
            nodes = likelihood.nodes(self.n_nodes)
            return float(nodes[0]), float(nodes[-1])
        mean, variance = moments()
        return _ends(settled, mean, _widest(settled, mean, variance))

    def _maximise(
        self,
        rows: Likelihood,
        counts: NDArray,
        place: Callable[[int], NDArray],
        few: tuple[Likelihood, NDArray] | None,
    ) -> None:
        nodes = self._nodes(rows, *self._range())[:, 0]
        grid = nodes, _widths(nodes), self._basis(nodes)
        model = GModel(rows, counts, *grid, float(self.c0), few)
        if self.df == "auto":
            model = self._choose(model, place)
        found = model.maximise()
        if found.decrement > 1e-3:
            warnings.warn(
                f"LogSpline stopped though a step may still gain {found.decrement:.2g} in "
                "log-likelihood.",
                ConvergenceWarning,
                stacklevel=5,
            )
        self.covariance_ = model.covariance(found.coefficients)
        self._set(found.coefficients)
        self._find_later(type(self)._learn_plausible, model)

    def _choose(self, model: GModel, place: Callable[[int], NDArray]) -> GModel:
        """Take the degrees of freedom of the best criterion, and return their model."""
        best, reached, worse = model, model.criterion(), 0
        for df in TRIED[1:]:
            self.knots_ = place(df)
            model = model.rebased(self._basis(model.nodes))
            criterion = model.criterion()
            if criterion > reached:
                best, reached, worse = model, criterion, 0
            else:
                worse += 1
            if worse == PATIENCE:
                break
        self.knots_ = place(best.basis.shape[1])
        return best

    def _set(self, coefficients: NDArray) -> None:
        """Take these coefficients, and the moments of that density."""
        self.coefficients_ = coefficients
        at, masses, self.log_constant_ = self._table()
        self.mean_ = np.array([masses @ at])
        self.variance_ = np.array([masses @ (at - self.mean_) ** 2])

    def _learn_plausible(self, model: GModel) -> None:
        """Draw coefficients from their posterior distribution; always the same ones.

        They start as draws from a t distribution around the fit, picked by the roots of their
        weights. Then they move by differences of others (ter Braak 2006): a half is moved along
        those of the other half, so that steps have the shape of the distribution, also where this
        is far from a normal one.
        """
        rng = np.random.default_rng(0)
        is_small = len(model.rows) <= FEW
        centre = self.coefficients_
        values, vectors = np.linalg.eigh(model.curvature(centre)[1])
        # a mirror image of the messages has the mirrored draws
        vectors = vectors * np.where(centre @ vectors < 0, -1.0, 1.0)
        noise = rng.standard_normal((N_TRIED if is_small else N_TRIED_OF_MANY, self.df_))
        noise /= np.sqrt(rng.chisquare(DEGREES, (len(noise), 1)) / DEGREES)
        far = -(DEGREES + self.df_) / 2 * np.log1p((noise**2).sum(axis=1) / DEGREES)
        tried = centre + noise @ (vectors * np.sqrt(np.maximum(values, 0.0))).T
        heights = model.log_posterior(tried)
        logs = (heights - far) / 2
        weights = np.exp(logs - logs.max())
        picked = rng.choice(len(tried), N_DRAWS, p=weights / weights.sum())
        draws, heights = tried[picked], heights[picked]
        half = N_DRAWS // 2
        parts = [np.arange(half), np.arange(half, N_DRAWS)]
        for _ in range(N_STEPS if is_small else N_STEPS_OF_MANY):
            for moved, others in (parts, parts[::-1]):
                pairs = draws[others[rng.permuted(np.tile(np.arange(half), (half, 1)), axis=1)]]
                length = (
                    STRIDE / np.sqrt(2 * self.df_) * np.exp(0.5 * rng.standard_normal((half, 1)))
                )
                new = draws[moved] + length * (pairs[:, 0] - pairs[:, 1])
                there = model.log_posterior(new)
                up = np.log(rng.random(half)) < there - heights[moved]
                draws[moved[up]], heights[moved[up]] = new[up], there[up]
        even = np.full((N_DRAWS, 1), 1 / N_DRAWS)
        self.plausible_ = {"coefficients_": draws, "weights": even}

    def _take(self, coefficients_: NDArray) -> None:
        self._set(coefficients_)

    def _at(self, coefficients: NDArray) -> Self:
        """Return the population with these coefficients, shape (df,), on the same interval.

        Its `_grid` has the nodes and log-masses for a likelihood; standard errors are not its own.
        """
        there = copy(self)
        there._set(np.asarray(coefficients, float))
        return there

    def _table(self) -> tuple[NDArray, NDArray, float]:
        """Even points, masses of the trapezoidal rule there, and log of the integral of exp Q'a."""
        at = self._place(np.linspace(0, 1, FINE + 1))
        logs = self._basis(at) @ self.coefficients_
        if at[0] == at[-1]:
            return at[:1], np.ones(1), 0.0
        masses = np.exp(logs - logs.max()) * _widths(at)
        total = masses.sum()
        return at, masses / total, float(np.log(total) + logs.max())

    def _basis(self, theta: NDArray) -> NDArray:
        """Columns of Q at places in the interval, shape (k, df)."""
        low, high = self.range_
        if not high > low:
            return natural_basis(np.linspace(0, 1, len(self.knots_)), np.zeros(len(theta)))
        knots, unit = ((self._on_scale(x) - self._on_scale(low)) for x in (self.knots_, theta))
        return natural_basis(knots / knots[-1], np.clip(unit / knots[-1], 0, 1))

    def _on_scale(self, theta: Any) -> Any:
        """Scale of the splines, on which places of a wide interval are nearly logarithms."""
        centre, spread = self.bend_
        return np.arcsinh((theta - centre) / spread) if np.isfinite(centre) else theta

    def _place(self, unit: NDArray) -> NDArray:
        """Places in the interval, from shares of its length on the scale of the splines."""
        low, high = self.range_
        centre, spread = self.bend_
        if not np.isfinite(centre):
            return low + (high - low) * unit
        first, last = self._on_scale(low), self._on_scale(high)
        return np.clip(centre + spread * np.sinh(first + (last - first) * unit), low, high)

    # Standard errors --------------------------------------------------------------------------

    def _learn_errors(self) -> None:
        """Sampling variances of mean and variance."""
        at, masses, _ = self._table()
        basis = self._basis(at)
        away = basis - masses @ basis
        shift = at - self.mean_
        slopes = np.array([masses * shift, masses * shift**2]) @ away
        self.mean_variance_, self.variance_variance_ = _quadratic(slopes, self.covariance_)[:, None]

    def density_errors(self, theta: NDArray) -> NDArray:
        """Return standard errors of the density at theta of shape (k, 1), shape (k,).

        Raises
        ------
        NotFittedError
            If the population has not been fitted.
        """
        check_is_fitted(self, "mean_")
        at, masses, _ = self._table()
        away = self._basis(theta[:, 0]) - masses @ self._basis(at)
        return np.exp(self.logpdf(theta)) * np.sqrt(_quadratic(away, self.covariance_))

    def estimate_errors(self, likelihood: Likelihood) -> NDArray:
        """Return standard errors of posterior means, of what is not known of the population.

        They are not those of a client's parameter, of which a posterior has the `sd`: the two
        add in squares.

        Returns
        -------
        ndarray of shape (n, 1)

        Raises
        ------
        NotFittedError
            If the population has not been fitted.

        Examples
        --------
        >>> from ebfed.likelihoods import Binomial
        >>> counts = Binomial(np.repeat([1, 2, 3, 5, 9], 40)[:, None], np.full(200, 10))
        >>> LogSpline().fit(counts).estimate_errors(counts).ravel()[::40].round(3)
        array([0.017, 0.012, 0.011, 0.025, 0.027])
        """
        check_is_fitted(self, "mean_")
        nodes, log_masses = self._grid(likelihood)
        posterior = DiscretePosterior(nodes, log_masses, likelihood)
        at = posterior.atoms[:, 0]
        basis = self._basis(at)
        centre = at.mean()
        slopes = np.concatenate(
            [
                (weights * (at - centre)) @ basis
                - (weights @ (at - centre))[:, None] * (weights @ basis)
                for weights in posterior.weights()
            ]
        )
        errors = np.sqrt(_quadratic(slopes, self.covariance_))[:, None]
        exact = likelihood.exact
        return errors if exact is None else np.where(np.isnan(exact), errors, 0.0)

    # Messages that are sharper than a grid -----------------------------------------------------

    def _cells(self, likelihood: Likelihood) -> NDArray:
        """Length of the cell of each estimate, shape (n,), of cells that are fine beside knots."""
        low, high = self.range_
        edges = self._place(np.linspace(0, 1, SHARPEST + 1))
        at = np.clip(likelihood.local[:, 0], low, high)
        place = np.clip(np.searchsorted(edges, at), 1, SHARPEST)
        return edges[place] - edges[place - 1]

    def _no_sharper_than_cells(self, likelihood: Likelihood) -> Likelihood:
        """Messages with an error of at least a cell, over which a spline hardly changes."""
        if isinstance(likelihood, Joined):
            return join([self._no_sharper_than_cells(part) for part in likelihood.parts])
        if isinstance(likelihood, Gaussian):
            if likelihood.scatter is not None:
                return likelihood
            variances = np.maximum(likelihood.variances, self._cells(likelihood)[:, None] ** 2)
            variances = np.where(likelihood.variances > 0, variances, likelihood.variances)
            return replace(likelihood, variances=variances)
        if likelihood.is_noisy:
            return likelihood
        informed = _informed(likelihood)
        sharp, cells = informed.copy(), self._cells(likelihood)
        with np.errstate(invalid="ignore", divide="ignore"):
            errors = error_of(likelihood)
        sharp[informed] = (errors[informed] > 0) & (errors[informed] < cells[informed])
        if not sharp.any():
            return likelihood
        known = Gaussian(likelihood.local[sharp], cells[sharp, None] ** 2)
        return join([known] if sharp.all() else [likelihood.take(~sharp), known])

    # Using ------------------------------------------------------------------------------------

    def logpdf(self, theta: NDArray) -> NDArray:
        """Log-density at theta of shape (k, 1), shape (k,); -inf beyond the interval."""
        at, (low, high) = theta[:, 0], self.range_
        logs = self._basis(at) @ self.coefficients_ - self.log_constant_
        return np.where((at >= low) & (at <= high), logs, -np.inf)

    def parameters(self, j: int = 0) -> dict[str, float]:
        """Return the degrees of freedom."""
        return {"df": float(self.df_)}

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        rng = np.random.default_rng(random_state)
        at, masses, _ = self._table()
        if len(at) == 1:
            return np.full((size, 1), at[0])
        # the density as a mixture of triangles around the points, cut at the ends
        noise = rng.triangular(-1.0, 0.0, 1.0, size)
        unit = np.abs(rng.choice(len(at), size, p=masses) + noise) / FINE
        return self._place(1 - np.abs(1 - unit))[:, None]

    def _nodes(self, likelihood: Likelihood, low: float, high: float) -> NDArray:
        nodes = likelihood.nodes(self.n_nodes)
        nodes = np.union1d(nodes[(nodes > low) & (nodes < high)], [low, high])
        if np.isfinite(self.bend_).all():
            nodes = _graded(np.union1d(nodes, self._place(np.linspace(0, 1, self.n_nodes))))
        # messages may be vague, on the scale of the interval, or all in a part of it
        return without_gaps(nodes, self.n_nodes)[:, None]

    def _range(self) -> tuple[float, float]:
        return float(self.range_[0]), float(self.range_[1])

    def _log_masses(self, atoms: NDArray) -> NDArray:
        """Log of the mass around each node, with the mean and the variance of the population."""
        at = atoms[:, 0]
        above = int(np.clip(np.searchsorted(at, self.mean_[0]), 1, max(len(at) - 1, 1)))
        gap = at[above] - at[above - 1] if len(at) > 1 else 0.0
        if self.variance_[0] < (gap / 2) ** 2:  # a point, for these nodes
            masses = np.zeros(len(at))
            share = np.clip((self.mean_[0] - at[above - 1]) / gap, 0.0, 1.0)
            masses[above - 1 : above + 1] = 1 - share, share
        else:
            masses = np.exp(self.logpdf(atoms)) * _widths(at)
            powers = ((atoms - self.mean_) / np.sqrt(self.variance_)) ** np.arange(3)
            tilt = np.linalg.solve((powers.T * masses) @ powers, np.array([1.0, 0.0, 1.0]))
            # of nodes that are too few for it, none is left out
            masses = masses * np.maximum(powers @ tilt, LEAST)
        with np.errstate(divide="ignore"):
            return np.log(masses)


def _graded(nodes: NDArray) -> NDArray:
    """Put points into gaps, at distances from both ends that double: a node stands for its cell."""
    gaps = np.diff(nodes)
    before, after = np.append(gaps[0], gaps[:-1]), np.append(gaps[1:], gaps[-1])
    parts = [nodes]
    for j in np.flatnonzero(gaps > 3 * np.minimum(before, after)):
        for end, step in ((nodes[j], before[j]), (nodes[j + 1], -after[j])):
            n = int(np.log2(max(gaps[j] / (2 * abs(step)), 1.0)))
            parts.append(end + step * (2.0 ** np.arange(1, n + 1) - 1))
    return np.unique(np.concatenate(parts))


def _widths(at: NDArray) -> NDArray:
    """Weights of the trapezoidal rule at increasing points."""
    gaps = np.diff(at)
    return (np.append(gaps, 0.0) + np.append(0.0, gaps)) / 2


def _quadratic(rows: NDArray, covariance: NDArray) -> NDArray:
    """Variance of each row's combination, shape (n,)."""
    return np.maximum(((rows @ covariance) * rows).sum(axis=1), 0.0)


# The knots and the interval --------------------------------------------------------------------


def _bend(likelihood: Likelihood, low: float, high: float) -> NDArray:
    """Median of estimates on the line, and their deviation by quartiles, in a wide interval."""
    local = likelihood.local[_informed(likelihood), 0]
    if len(local) and not np.isfinite(likelihood.support).any():
        first, centre, last = np.quantile(local, [0.25, 0.5, 0.75])
        spread = (last - first) / 1.349  # of a normal distribution
        if 0 < WIDE * spread < high - low and low < centre < high:
            return np.array([centre, spread])
    return np.full(2, np.nan)


def _even(place: Callable[[NDArray], NDArray], df: int) -> NDArray:
    """Knots in even steps of a scale."""
    return place(np.linspace(0, 1, df + 1))


def _knots(
    low: float, high: float, mean: float, sd: float, support: tuple[float, float], df: int
) -> NDArray:
    """Place knots in even steps: of rates, in those of their roots, as of their errors.

    On the line they are quantiles of a law that is half uniform and half normal, as the farthest
    of many groups may be far from all others.
    """
    steps = np.linspace(0, 1, df + 1)
    if support == (0.0, np.inf):
        return np.linspace(np.sqrt(low), np.sqrt(high), df + 1) ** 2
    if np.isfinite(support).any() or not (sd > 0 and high > low):
        return low + (high - low) * steps
    near = mean + sd * ndtri((np.arange(FINE) + 0.5) / FINE)
    at = np.union1d(np.linspace(low, high, FINE + 1), near[(near > low) & (near < high)])
    below = ndtr((at - mean) / sd)
    even = (at - low) / (high - low)
    return np.interp(steps, (even + (below - below[0]) / (below[-1] - below[0])) / 2, at)


def _centre(likelihood: Likelihood, moments: Moments) -> tuple[float, float]:
    """Mean and standard deviation of the normal population on the line; 0 of no data."""
    if np.isfinite(likelihood.support).any() or not _informed(likelihood).any():
        return 0.0, 0.0
    mean, variance = moments()
    return mean, float(np.sqrt(variance))


def _moments(likelihood: Likelihood) -> tuple[float, float]:
    """Mean and variance of the conjugate population."""
    conjugate: Prior = {-np.inf: Normal(method="ml"), 0.0: Gamma()}[likelihood.support[0]]
    if np.isfinite(likelihood.support).all():
        conjugate = Beta()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is not identified is said of this population
        conjugate.fit(likelihood)
    mean, variance = float(conjugate.mean_[0]), float(conjugate.variance_[0])
    if variance == 0 and mean in likelihood.support:
        # where no client has an event, say, they together still allow for a rate above zero
        allowed = _pooled(*_at_nodes(likelihood))
        mean = float(allowed[np.argmax(np.abs(allowed - mean))])
    return mean, variance


def _at_nodes(likelihood: Likelihood) -> tuple[NDArray, NDArray, NDArray]:
    """Nodes, log-likelihoods of distinct rows at these, and how many rows are alike."""
    rows, counts = likelihood.compress()
    nodes = rows.nodes(Prior.n_nodes)
    return nodes, rows.logpdf(nodes[:, None]), counts


def _pooled(nodes: NDArray, logs: NDArray, counts: NDArray) -> NDArray[np.float64]:
    """Nodes whose likelihood, as the parameter of all, is exp(-2) of the largest or more."""
    total = counts @ logs
    return nodes[total >= total.max() - 2]


def _reported(likelihood: Likelihood, mean: float, variance: float) -> NDArray[np.float64]:
    """Parameters that reports make likely, as far as a population of this mean is to reach.

    Those of which it has four standard deviations; what may be the parameter of all, for few
    reports leave many means; and what a report says by itself, if few are expected to be as far.
    """
    nodes, logs, counts = _at_nodes(likelihood)
    shares = np.exp(logs - logs.max(axis=1, keepdims=True)) * _widths(nodes)
    shares /= shares.sum(axis=1, keepdims=True)
    x = shares @ nodes
    error = np.sqrt(((nodes - x[:, None]) ** 2 * shares).sum(axis=1))
    spread = np.maximum(np.hypot(np.sqrt(variance), error), 1e-300)
    far = _farness(likelihood, (x - mean) / spread, int(counts.sum()))
    side = np.sign(x - mean)
    reach = 4 * np.sqrt(variance)
    own = (1 - far) * (mean + side * reach) + far * (x + side * BEYOND * error)
    return np.concatenate([[mean - reach, mean + reach], _pooled(nodes, logs, counts), own])


def _ends(likelihood: Likelihood, mean: float, variance: float) -> tuple[float, float]:
    """Ends of the parameters of a population; `variance` errs upwards.

    Estimates ``x_i`` with errors ``s_i`` spread more than parameters; ``mean + sqrt(v / (v +
    s_i**2)) (x_i - mean)`` spread as these do (Louis 1984), v the variance of the population. The
    ends are an error ``sqrt(v s_i**2 / (v + s_i**2))`` beyond, and up to four where clients are
    few, which may all have come from one side of the population, or where estimates are sharp, so
    that these hardly are shrunk.
    """
    if isinstance(likelihood, Joined):
        ends = [_ends(part, mean, variance) for part in likelihood.parts if _informed(part).any()]
        return min(low for low, _ in ends), max(high for _, high in ends)
    low, high = likelihood.support
    if isinstance(likelihood, Reported):
        nodes = likelihood.nodes(Prior.n_nodes)
        low = low if np.isfinite(low) else float(nodes[0])
        high = high if np.isfinite(high) else float(nodes[-1])
        if not nodes[1] < mean < nodes[-2]:  # all reports are of one kind, and no mean is excluded
            return float(low), float(high)
        reached = _reported(likelihood, mean, variance)
        return float(max(low, reached.min())), float(min(high, reached.max()))
    informed = _informed(likelihood)
    x = likelihood.local[informed, 0]
    s2 = likelihood.sampling_variance(mean, min(variance, _most(likelihood, mean)))[informed]
    weights = 1 / (variance + s2)
    effective = weights.sum() ** 2 / (weights @ weights)  # number of clients
    share = variance * weights
    shrunk = mean + np.sqrt(share) * (x - mean)
    error = (1 + 3 * np.maximum(1 / effective, share**SHARP)) * np.sqrt(share * s2)
    reached = np.array([shrunk - error, shrunk + error])
    rows, z = likelihood.take(informed), (x - mean) * np.sqrt(weights)
    for i in _farthest(x, _farness(rows, z, len(x))):
        one = rows.take(np.array([i]))
        # of rates, by their size: most populations of these are skewed
        own = max(float(one.sampling_variance(float(x[i]), 0.0)[0]), float(s2[i]))
        away = (x[[i]] - mean) / np.sqrt(variance + own)
        side = int(x[i] > mean)
        reach = x[i] + (BEYOND if side else -BEYOND) * np.sqrt(own)
        reached[side, i] += _farness(one, away, len(x))[0] * (reach - reached[side, i])
    return float(max(low, reached[0].min())), float(min(high, reached[1].max()))


def _farness(rows: Likelihood, z: NDArray, n: int) -> NDArray:
    """Share of the way from shrunk estimates to the estimates that the interval reaches.

    It grows as fewer of n estimates are expected z deviations away in a normal population.
    """
    logs = log_ndtr(-np.abs(z))
    if isinstance(rows, StudentT):
        finite = np.isfinite(rows.degrees)
        with np.errstate(divide="ignore"):
            of_t = np.log(stdtr(np.where(finite, rows.degrees, 1.0), -np.abs(z)))
        logs = np.where(finite, of_t, logs)
    expected = np.log(2 * n) + logs
    return np.clip((np.log(SELDOM) - expected) / np.log(SELDOM / NEVER), 0.0, 1.0)


def _farthest(x: NDArray, far: NDArray) -> NDArray:
    """Places of estimates that are far, a few at either side."""
    some = np.flatnonzero(far > 0)
    some = some[np.argsort(x[some])]
    return np.unique(np.append(some[:20], some[-20:])).astype(np.int64)


def _widest(likelihood: Likelihood, mean: float, variance: float) -> float:
    """Variance of the population and about a standard error of it.

    By information where errors are known; else the largest variance whose likelihood is that of
    the best over ``exp(1/2)`` or more.
    """
    parts = parts_of(likelihood)
    if not any(isinstance(part, Reported) for part in parts):
        s2 = np.concatenate(
            [part.sampling_variance(mean, variance)[_informed(part)] for part in parts]
        )
        with np.errstate(divide="ignore"):  # of parameters that are seen
            return variance + float(np.sqrt(2 / (1 / (variance + s2[s2 > 0]) ** 2).sum()))
    rows, counts = likelihood.compress()

    def value(v: float) -> float:
        return float(counts @ rows.marginal(np.array([mean]), np.array([v])))

    nodes = likelihood.nodes(Prior.n_nodes)
    best, widest = value(variance), variance
    for more in (nodes[-1] - nodes[0]) ** 2 * np.geomspace(1e-4, 0.25, 24):
        if variance + more >= _most(likelihood, mean) or value(variance + more) < best - 0.5:
            break
        widest = variance + more
    return widest


def _most(likelihood: Likelihood, mean: float) -> float:
    """Most variance that a population with this mean is taken to have."""
    return 0.9 * mean * (1 - mean) if likelihood.support == (0.0, 1.0) else np.inf


def _informed(likelihood: Likelihood) -> NDArray:
    """Whether each client has data, shape (n,)."""
    return np.isfinite(likelihood.local[:, 0])


# Penalised maximum likelihood on a grid. Over nodes theta_k of width w_k the population has masses
# ``g_k = w_k exp(Q_k' a)``, which sum to 1 after division, and client i has the marginal likelihood
# ``f_i = sum_k L_i(theta_k) g_k``. With ``D_k = Q_k - sum_l g_l Q_l``, the score of a client is
# ``S_i = sum_k g_k L_i(theta_k) D_k / f_i``.

MOST_ENTRIES = 20_000_000  # of likelihoods that are kept; more are computed in each step
# Under the Cauchy prior alone, the density of a narrow population's standard deviation falls like
# its power -.4; under those of other priors it rises like `2 * TILT`, with a shape that is given.
# With 2 or 3 in place of 4, intervals of 2000 rates of small spread are too narrow.
NARROW = 4 * TILT
EVEN = 1 / 12  # variance of the uniform population, in squares of the range
ROUGH = 1e-2  # gain of a Newton step, twice, that a start lacks
MANY = 5_000  # messages beyond which a part of them gives the start


def natural_basis(knots: NDArray, at: NDArray) -> NDArray:
    """Evaluate natural cubic splines on [0, 1] of mean 0, orthonormal under the uniform law.

    They span the splines with these knots whose second derivative is 0 at both ends, but for the
    constant; the first is linear.

    Parameters
    ----------
    knots : increasing ndarray of shape (p + 1,), from 0 to 1
    at : ndarray of shape (k,)

    Returns
    -------
    ndarray of shape (k, p)

    Examples
    --------
    >>> natural_basis(np.array([0.0, 0.5, 1.0]), np.array([0.0, 0.25, 1.0])).round(3)
    array([[-1.732, -2.027],
           [-0.866,  0.203],
           [ 1.732, -2.027]])
    """
    from scipy.interpolate import CubicSpline

    cardinal = CubicSpline(knots, np.eye(len(knots)), bc_type="natural")

    def columns(at: NDArray) -> NDArray:
        return np.column_stack([np.ones(len(at)), at, cardinal(at)[:, 1:-1]])

    # Gauss-Legendre between knots integrates products of cubics exactly
    nodes, weights = np.polynomial.legendre.leggauss(4)
    half = np.diff(knots)[:, None] / 2
    places = ((knots[1:] + knots[:-1])[:, None] / 2 + half * nodes).ravel()
    triangle = np.linalg.qr(np.sqrt((half * weights).reshape(-1, 1)) * columns(places), mode="r")
    triangle *= np.sign(np.diag(triangle))[:, None]
    return np.linalg.solve(triangle.T, columns(at).T).T[:, 1:]


class Maximum(NamedTuple):
    """Coefficients of greatest penalised log-likelihood, shape (p,), and that, but for a constant.

    A next Newton step would gain half the `decrement`.
    """

    coefficients: NDArray
    value: float
    decrement: float


@dataclass(frozen=True)
class _Figures:
    """Value, slope and second derivatives of the log-likelihood; information by scores."""

    value: float
    slope: NDArray
    bend: NDArray
    information: NDArray


@dataclass(frozen=True)
class GModel:
    """Log-likelihood of messages in the coefficients of a population on a grid.

    Parameters
    ----------
    rows : Likelihood of n distinct messages
    counts : ndarray of shape (n,)
    nodes, widths : ndarray of shape (k,)
    basis : ndarray of shape (k, p)
    c0 : float
        Size of the penalty.
    few : tuple, optional
        Fewer messages, which stand for all, and their counts. They give the start, and what is said
        of coefficients relative to others.
    tol : float
        What a next Newton step may gain, twice.
    """

    rows: Likelihood
    counts: NDArray
    nodes: NDArray
    widths: NDArray
    basis: NDArray
    c0: float
    few: tuple[Likelihood, NDArray] | None = None
    tol: float = 1e-9

    def rebased(self, basis: NDArray) -> GModel:
        """Return the log-likelihood in coefficients of another basis, from the same likelihoods.

        The search for its maximum begins near that in the basis of before.
        """
        other = replace(self, basis=basis)
        shared: dict[str, Any] = {"_part": None}
        if self._part is not None:
            shared["_part"] = self._part.rebased(basis)
        else:
            shared["_near"] = self.basis @ self._peak.coefficients
            shared["_log_density_of_em"] = self._log_density_of_em
        if len(self.rows) * len(self.nodes) <= MOST_ENTRIES:
            shared["_all"] = self._all
        other.__dict__.update(shared)
        return other

    @cached_property
    def _part(self) -> GModel | None:
        """Log-likelihood of few messages in the place of many; None if they are few.

        They are a part of them, evenly spread, unless others are given.
        """
        if self.few is not None:
            return replace(self, rows=self.few[0], counts=self.few[1], few=None, tol=ROUGH)
        if len(self.rows) <= MANY:
            return None
        step = 2 * len(self.rows) // MANY
        some = np.argsort(self.rows.local[:, 0], kind="stable")[step // 2 :: step]
        share = self.counts.sum() / self.counts[some].sum()
        return replace(self, rows=self.rows.take(some), counts=share * self.counts[some])

    def maximise(self) -> Maximum:
        """Find the highest point above several starts."""
        return self._peak

    @cached_property
    def _peak(self) -> Maximum:
        if self._part is not None:
            starts = [self._part._peak.coefficients]
        elif self._near is not None:
            projected = [self._projected(self._near), self._projected(self._log_density_of_em)]
            starts = [max(projected, key=lambda a: self._penalised(a, self.figures(a)))]
        else:
            starts = self._starts()
        zero = np.zeros(self.basis.shape[1])
        best = Maximum(zero, self.figures(zero).value, 0.0)
        climbs = [self._climb(start) for start in starts if start.any()]
        return max([best, *climbs], key=lambda climb: climb.value)

    def criterion(self) -> float:
        """Log-likelihood at the maximum, less ``log(m) / 2`` for each of p coefficients.

        That is Schwarz's criterion (BIC) of m clients, over -2; of fewer messages, if they stand
        for all.
        """
        if self.few is not None and self._part is not None:
            return self._part.criterion()
        a = self._peak.coefficients
        return self.figures(a).value - len(a) / 2 * float(np.log(self.counts.sum()))

    def _starts(self) -> list[NDArray]:
        """Best point along the score at 0, and the splines next to a few steps of EM."""
        slope = self.figures(np.zeros(self.basis.shape[1])).slope
        steepest = float(np.linalg.norm(slope))
        starts = []
        if steepest > 0:
            line = [size * slope / steepest for size in np.geomspace(0.05, 10, 12)]
            starts.append(max(line, key=lambda a: self._penalised(a, self.figures(a))))
        starts.append(self._projected(self._log_density_of_em))
        return starts

    @cached_property
    def _near(self) -> NDArray | None:
        """Log-density at the nodes of the maximum in another basis, where that is known."""
        return None

    @cached_property
    def _log_density_of_em(self) -> NDArray:
        """Log-density at the nodes after a few steps of EM, of no shape."""
        g = self.widths / self.widths.sum()
        for _ in range(20):
            masses = np.zeros(len(g))
            for likelihoods, counts in self._blocks():
                masses += (counts / np.maximum(likelihoods @ g, 1e-300)) @ likelihoods
            g = g * masses / self.counts.sum()
        logs = np.log(np.maximum(g, 1e-300) / np.maximum(self.widths, 1e-300))
        return np.maximum(logs - logs.max(), -20.0)  # less is none

    def _projected(self, logs: NDArray) -> NDArray:
        """Coefficients of the splines next to a log-density at the nodes."""
        share = self.widths / self.widths.sum()
        return (self.basis.T * share) @ (logs - share @ logs)

    def figures(self, a: NDArray) -> _Figures:
        """Log-likelihood of all clients at coefficients a, with derivatives."""
        logs = np.log(self.widths) + self.basis @ a
        g = np.exp(logs - logs.max())
        g /= g.sum()
        away = self.basis - g @ self.basis
        columns = g[:, None] * np.column_stack([np.ones(len(g)), away])
        p = self.basis.shape[1]
        value, slope, information, masses = 0.0, np.zeros(p), np.zeros((p, p)), np.zeros(len(g))
        for likelihoods, counts in self._blocks():
            joint = likelihoods @ columns
            evidence = np.maximum(joint[:, 0], 1e-300)
            scores = joint[:, 1:] / evidence[:, None]
            value += float(counts @ np.log(evidence))
            slope += counts @ scores
            information += (scores.T * counts) @ scores
            masses += (counts / evidence) @ likelihoods
        excess = g * (masses - self.counts.sum())  # expected numbers of clients, less those of g
        return _Figures(value, slope, (away.T * excess) @ away - information, information)

    def _blocks(self) -> Iterator[tuple[NDArray, NDArray]]:
        """Likelihoods over those at their peaks, and the counts, some messages at a time."""
        if len(self.rows) * len(self.nodes) <= MOST_ENTRIES:
            yield self._all, self.counts
            return
        n_blocks = 1 + len(self.rows) * len(self.nodes) // 4_000_000
        done = 0
        for block in self.rows.split(n_blocks):
            yield block.relative(self.nodes[:, None]), self.counts[done : done + len(block)]
            done += len(block)

    @cached_property
    def _all(self) -> NDArray:
        return self.rows.relative(self.nodes[:, None])

    def log_posterior(self, several: NDArray) -> NDArray:
        """Log posterior density of coefficients, shape (K, p), up to a constant, shape (K,).

        Fewer messages serve, if they stand for all.
        Their prior is Cauchy's in p dimensions, of scale ``1 / (2 c0 sqrt(p))``, times the power
        4/5 of ``v / (v + u)``, v the population's variance and u that of the uniform one. The
        median of ``c0 |a|`` is .7 under the first. Under a density ``exp(-c0 |a|)`` it would be
        about p, so that populations would be narrow where messages leave them open.
        """
        if self.few is not None and self._part is not None:
            return self._part.log_posterior(several)
        logs = np.log(self.widths)[:, None] + self.basis @ several.T
        masses = np.exp(logs - logs.max(axis=0))
        masses /= masses.sum(axis=0)
        p = self.basis.shape[1]
        values: NDArray = -(p + 1) / 2 * np.log1p(4 * p * self.c0**2 * (several**2).sum(axis=1))
        unit = (self.nodes - self.nodes[0]) / (self.nodes[-1] - self.nodes[0])
        variances = unit**2 @ masses - (unit @ masses) ** 2
        values += NARROW * np.log(np.maximum(variances / (variances + EVEN), 1e-300))
        for likelihoods, counts in self._blocks():
            values += counts @ np.log(np.maximum(likelihoods @ masses, 1e-300))
        return values

    def _penalised(self, a: NDArray, figures: _Figures) -> float:
        return figures.value - self.c0 * float(np.linalg.norm(a))

    def _climb(self, a: NDArray) -> Maximum:
        """Newton steps; directions of wrong curvature by its size, and halved until they gain."""
        here = self.figures(a)
        value = self._penalised(a, here)
        for _ in range(200):
            size = float(np.linalg.norm(a))
            slope = here.slope - self.c0 * a / size
            values, vectors = np.linalg.eigh(self._bend(a, size) - here.bend)
            values = np.maximum(np.abs(values), 1e-8 * np.abs(values).max())
            step = vectors @ ((vectors.T @ slope) / values)
            decrement = float(slope @ step)
            # the error is that squared; near 0, where the penalty has a kink, 0 itself is compared
            if decrement < self.tol or size < 1e-3:
                break
            step *= min(1.0, max(size, 1.0) / float(np.linalg.norm(step)))
            for _ in range(40):
                there = self.figures(a + step)
                reached = self._penalised(a + step, there)
                if reached >= value:
                    break
                step = step / 2
            else:
                break  # rounding hides what is left to gain
            a, here, value = a + step, there, reached
        return Maximum(a, value, decrement)

    def covariance(self, a: NDArray) -> NDArray:
        """Efron's (2016) covariance of the coefficients, from the scores and the penalty."""
        information, inverse = self.curvature(a)
        return inverse @ information @ inverse

    def curvature(self, a: NDArray) -> tuple[NDArray, NDArray]:
        """Information of the scores, and the inverse of it with the penalty's.

        The latter is the covariance of coefficients near `a` whose prior density is the penalty's.
        """
        information = self.figures(a).information
        size = max(float(np.linalg.norm(a)), len(a) / self.c0)
        return information, np.linalg.pinv(information + self._bend(a, size), hermitian=True)

    def _bend(self, a: NDArray, size: float) -> NDArray:
        """Second derivatives of ``c0 |a|`` where `size` is ``|a|``; beyond, of a bowl like it."""
        return self.c0 / size * (np.eye(len(a)) - np.outer(a, a) / size**2)
