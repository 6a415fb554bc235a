"""What is known of each client after its data: the interface of all posteriors.

A `Posterior` is a batch of n clients with parameters in R^d, coordinate by coordinate. A subclass
gives `mean`, `sd`, `_quantile`, `_prob_to` and `sample`; everything else follows. Estimators
attach to it what identifies a client (label, number of rows, local estimate) by `labelled`, so
that `to_frame` gives one tidy table.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from math import ceil
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from ebfed.arguments import check_level
from ebfed.priors.robust import LinearShrinkage
from ebfed.privacy.calibration import is_number
from ebfed.tables.frames import Style, frame

__all__ = [
    "NO_NULL",
    "IndependentNormals",
    "NormalMarginals",
    "Posterior",
    "check_rate",
    "has_point",
    "mean_errors",
    "normal_below",
    "q_values",
    "root_of",
]

# Quantiles that are closer than this, in standard deviations, are one point.
SAME = 1e-6


class Posterior(ABC):
    """Posterior distributions of n clients' parameters, coordinate by coordinate.

    Attributes
    ----------
    mean, sd : ndarray of shape (n, d)
    weight : ndarray of shape (n, d) or None
        Share of the client's own estimate in its posterior mean, where the mean is linear in it.
    prior : Prior or None
        The population, where `posterior_from` fitted one for this posterior alone.
    """

    mean: NDArray
    sd: NDArray
    weight: NDArray | None = None
    prior: Any = None

    # The same, or that of each client, where it depends on covariates.
    _population: Any = None
    # Tables of `posterior_from`; fits have their own.
    _face: Any = None
    _line: LinearShrinkage | None = None
    # Whether single values can have a probability of their own.
    _has_points: bool = False
    _ids: NDArray | None = None
    _columns: Mapping[str, NDArray] = {}
    _style: Style = Style()
    _terms: tuple[str, ...] | None = None

    def __len__(self) -> int:
        """Count the clients."""
        return len(self.mean)

    @property
    def expectation(self) -> NDArray:
        """Mean of the posterior, shape (n, d): `mean`, unless that is under one population only."""
        return self.mean

    @property
    def notes(self) -> list[str]:
        """Remarks on the fit of `prior`; none where that is None."""
        return [] if self.prior is None else list(self.prior.notes_)

    def __ebfed_view__(self) -> Any:
        """Return what comparisons read of a posterior that has a population of its own."""
        return None if self._face is None else self._face.__ebfed_view__()

    @property
    def _shown(self) -> Any:
        if self._face is None:
            raise TypeError(
                "tables of a population are those of posterior_from with independent errors; those "
                "of an estimator are fit.summary(), fit.tidy() and fit.glance()."
            )
        return self._face

    def summary(self) -> Any:
        """Return the population of `posterior_from`, and how it was fitted, as a printed page.

        Raises
        ------
        TypeError
            If this is a posterior of an estimator, which has a summary of its own, or estimates
            have a covariance.

        Examples
        --------
        >>> import ebfed as eb
        >>> fit = eb.posterior_from([1.8, 8.0, -3.1, 7.2, -0.9], [1.0, 2.0, 1.5, 1.0, 1.2])
        >>> print(*str(fit.summary()).splitlines()[2:5], sep=chr(10))
        Population:     Normal                  Estimates:                           5
        Fitted by:      REML                    logLik (REML):                  -12.79
        AIC:            29.59                   BIC:                             28.81
        """
        return self._shown.summary()

    def save(self, path: str | Path) -> None:
        """Write the population of `posterior_from` to a JSON file.

        `ebfed.load_fit` reads it, and returns a fitted `Prior`: an argument `prior=` for estimates
        to come. No estimate is in the file, unless the population has it as a point of its own.

        Parameters
        ----------
        path : str or Path

        Raises
        ------
        TypeError
            As `summary`; or a formula uses a function of the caller.

        Examples
        --------
        >>> import tempfile
        >>> import ebfed as eb
        >>> past = eb.posterior_from([0.1, -0.6, 0.4, 0.2, -0.9, 0.6, 0.5, -0.3], [0.3] * 8)
        >>> path = tempfile.mkdtemp() + "/past.json"
        >>> past.save(path)
        >>> eb.posterior_from([2.0], [0.3], prior=eb.load_fit(path)).mean.round(2)
        array([[1.5]])
        """
        self._shown.save(path)

    def tidy(self) -> Any:
        """Return the parameters of the population, one row for each; as `summary`."""
        return self._shown.tidy()

    def glance(self) -> Any:
        """Return the fit in one row: number of estimates, log-likelihood, AIC; as `summary`."""
        return self._shown.glance()

    @property
    def ids(self) -> NDArray:
        """Labels of the clients, shape (n,); they are numbered where they have none."""
        return np.arange(len(self)) if self._ids is None else self._ids

    @property
    def terms(self) -> tuple[str, ...]:
        """Names of the coordinates; they are numbered where they have none.

        Examples
        --------
        >>> import ebfed as eb
        >>> eb.posterior_from([28, 8], [5, 4]).terms
        ('x0',)
        """
        return self._terms or tuple(f"x{j}" for j in range(self.mean.shape[1]))

    def quantile(self, q: float) -> NDArray:
        """Return the `q`-quantile of each coordinate, shape (n, d).

        Raises
        ------
        ValueError
            If `q` is outside [0, 1].
        """
        if not is_number(q) or not 0 <= q <= 1:
            raise ValueError(f"q must lie between 0 and 1; got {q!r}.")
        return self._quantile(q)

    @abstractmethod
    def _quantile(self, q: float) -> NDArray: ...

    def _quantile_together(
        self, parts: Sequence[Posterior], weights: NDArray, q: float
    ) -> NDArray | None:
        """Quantiles of the mixture of posteriors of this kind, of which this is the first.

        `weights` has shape (K, n, d). None where there is no faster way than to use probabilities
        of one after the other.
        """
        return None

    def prob_below(self, threshold: ArrayLike) -> NDArray:
        """Probability that a coordinate is at most `threshold`, shape (n, d).

        Parameters
        ----------
        threshold : float, or array-like that broadcasts to (n, d)
            Of one coordinate, also one of shape (n,): a threshold for each client.

        Raises
        ------
        ValueError
            If `threshold` has another shape, or is no number.

        Examples
        --------
        >>> import ebfed as eb
        >>> posterior = eb.posterior_from([0.0, 4.0, 9.0], [1.0, 1.0, 1.0], integrate=False)
        >>> posterior.prob_below([0.0, 4.0, 10.0]).ravel().round(2)
        array([0.41, 0.49, 0.9 ])
        """
        return self._prob_to(self._thresholds(threshold))

    @abstractmethod
    def _prob_to(self, threshold: ArrayLike, sign: int = 1) -> NDArray:
        """Probability of a coordinate at most a checked threshold; at least it, if `sign` is -1."""

    def _thresholds(self, threshold: ArrayLike) -> NDArray:
        """Return thresholds that broadcast to the shape of the mean."""
        shape = self.mean.shape
        try:
            at = np.asarray(threshold, float)
            if shape[1] == 1 and at.shape == shape[:1]:
                at = at[:, None]
            fits = np.broadcast_shapes(at.shape, shape) == shape
        except (TypeError, ValueError):
            fits = False
        if not fits or np.isnan(at).any():
            raise ValueError(
                f"threshold must be a number, or numbers that broadcast to shape {shape}; got "
                f"{threshold!r}."
            )
        return at

    def prob_above(self, threshold: ArrayLike) -> NDArray:
        """Probability that a coordinate is more than `threshold`, shape (n, d).

        One less `prob_below`, without its rounding error where that is near 1.

        Parameters
        ----------
        threshold : as in `prob_below`

        Examples
        --------
        >>> import ebfed as eb
        >>> rates = eb.BernoulliEB().fit(eb.Summary.from_counts([2, 7, 9], [10, 10, 10]))
        >>> rates.posterior().prob_above(0.5).ravel().round(2)
        array([0.09, 0.89, 0.99])
        """
        return self._prob_to(np.nextafter(self._thresholds(threshold), np.inf), -1)

    def local_false_sign_rate(self) -> NDArray:
        """Probability that the sign is not the likelier one, shape (n, d).

        ``min(P(theta <= 0), P(theta >= 0))``: how sure one is of the direction of an effect
        (Stephens 2017). A point at zero is of neither sign, so near 1 where there surely is none.
        """
        rate = np.minimum(self.prob_below(0.0), self._prob_to(0.0, -1))
        return np.clip(rate, 0.0, 1.0)

    def lfdr(self, null: float = 0.0) -> NDArray:
        """Local false discovery rate: probability that a parameter is `null`, shape (n, d).

        Parameters
        ----------
        null : float
            Value of parameters that are no discovery.

        Raises
        ------
        ValueError
            If `null` is no finite number.
        TypeError
            If the population has no point at `null`, as the normal one, so that this probability is
            zero for every estimate; or one whose probability is not known, as a scale mixture
            without ``null_weight=10``.

        References
        ----------
        Efron, Tibshirani, Storey, Tusher (2001), Empirical Bayes analysis of a microarray
        experiment, J. Amer. Statist. Assoc. 96, 1151-1160.

        Examples
        --------
        >>> import ebfed as eb
        >>> effects = [0.3, -0.6, 5.1, 0.2, -0.9, 0.4, -4.2, 0.8]
        >>> posterior = eb.posterior_from(effects, [1.0] * 8, prior="point_normal")
        >>> posterior.lfdr().ravel().round(2)
        array([0.7 , 0.68, 0.  , 0.7 , 0.66, 0.7 , 0.  , 0.67])
        """
        if not is_number(null) or not np.isfinite(null):
            raise ValueError(f"null must be a finite number; got {null!r}.")
        known = self._has_points if self.prior is None else has_point(self.prior, null)
        rate = self.prob_below(null) + self._prob_to(null, -1) - 1
        if not known or (self.prior is None and not (rate > 0).any()):
            which = "the population of this posterior" if self.prior is None else repr(self.prior)
            raise TypeError(NO_NULL.format(null=null, which=which))
        return np.clip(rate, 0.0, 1.0)

    def q_value(self, null: float = 0.0) -> NDArray:
        """Mean `lfdr` of all clients that are at least as surprising, shape (n, d).

        It estimates the share of false discoveries among them. Each coordinate is by itself.

        Parameters
        ----------
        null : float

        Examples
        --------
        >>> import ebfed as eb
        >>> effects = [0.3, -0.6, 5.1, 0.2, -0.9, 0.4, -4.2, 0.8]
        >>> posterior = eb.posterior_from(effects, [1.0] * 8, prior="point_normal")
        >>> posterior.q_value().ravel().round(2)
        array([0.49, 0.4 , 0.  , 0.51, 0.22, 0.45, 0.  , 0.33])
        """
        return q_values(self.lfdr(null))

    def select(self, fdr: float = 0.05, null: float = 0.0, *, column: int | str = 0) -> Any:
        """Return the discoveries: clients whose q-value is at most `fdr`, surest first.

        Parameters
        ----------
        fdr : float in (0, 1)
            Share of false discoveries that is allowed for.
        null : float
        column : int or str
            Coordinate, by its place or its name.

        Returns
        -------
        DataFrame
            One row per discovery: its label (its number, without labels), what `labelled`
            attached, ``estimate``, ``sd``, ``lfdr`` and ``q_value``.

        Raises
        ------
        TypeError
            If the population has no point at `null`.
        ValueError
            If `fdr` is not between 0 and 1, or there is no such `column`.

        Examples
        --------
        >>> import ebfed as eb
        >>> effects = [0.3, -0.6, 5.1, 0.2, -0.9, 0.4, -4.2, 0.8]
        >>> posterior = eb.posterior_from(effects, [1.0] * 8, prior="point_normal")
        >>> posterior.select(0.05)[["group", "local", "estimate", "q_value"]].round(3)
           group  local  estimate  q_value
        0      2    5.1     4.767    0.000
        1      6   -4.2    -3.919    0.001
        """
        check_rate(fdr)
        j = self._place_of(column)
        rates = self.lfdr(null)
        columns: dict[str, NDArray] = {}
        for name, values in self._columns.items():
            values = np.asarray(values)
            columns[name] = values if values.ndim == 1 else values[:, min(j, values.shape[1] - 1)]
        columns |= {"estimate": self.mean[:, j], "sd": self.sd[:, j]}
        columns |= {"lfdr": rates[:, j], "q_value": q_values(rates)[:, j]}
        order = np.argsort(columns["lfdr"], kind="stable")
        found = order[columns["q_value"][order] <= fdr]
        style = self._style.avoiding(columns)
        columns = {style.group: self.ids} | columns
        return frame({name: values[found] for name, values in columns.items()}, style)

    @abstractmethod
    def sample(self, size: int, random_state: Any = None) -> NDArray:
        """Draw `size` values of each client's parameter, shape (size, n, d).

        What is not known of the population's mean is an error that all clients share: within a draw
        it is the same for all. Posteriors that take the population as known draw clients
        independently.
        """

    def interval(
        self, level: float = 0.95, kind: Literal["eb", "robust"] = "eb"
    ) -> tuple[NDArray, NDArray]:
        """Interval that holds the parameter with probability `level`.

        Parameters
        ----------
        level : float in (0, 1)
        kind : {"eb", "robust"}
            ``"eb"``: equal-tailed interval of the posterior; right on average over clients if the
            fitted family of priors is. Where a point has most of the probability, both ends may be
            at it: then the interval also holds that of a normal distribution with the same mean and
            standard deviation, as far as the parameter can be there.
            ``"robust"``, for Gaussian estimates under any fitted population, and for counts under a
            beta: as wide as it must be for any population with the second and fourth moments that
            the messages show (Armstrong, Kolesár, Plagborg-Møller, 2022). It holds ``"eb"``, and an
            interval around an estimate that is shrunk along a line (`ebfed.priors.robust`): where
            the posterior mean is another curve, it is not symmetric around it.

        Returns
        -------
        lower, upper : ndarray of shape (n, d)

        Raises
        ------
        ValueError
            If `level` is outside (0, 1), `kind` is unknown, or a robust interval is asked where
            there is none: of correlated estimates, reports of a channel, coefficients of a
            regression, counts under other populations than a beta.
        """
        check_level(level)
        if kind not in ("eb", "robust"):
            raise ValueError(f"kind must be 'eb' or 'robust'; got {kind!r}.")
        low, high = self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)
        if self._has_points:
            low, high = self._around_points(low, high, level)
        # between atoms, a mean may lie beyond every quantile
        lower, upper = np.minimum(low, self.mean), np.maximum(high, self.mean)
        if kind == "robust":
            low, high = self._robust_ends(level)
            # where the population is badly known, its own family may be the wider
            lower, upper = np.minimum(lower, low), np.maximum(upper, high)
        return lower, upper

    def _around_points(self, low: NDArray, high: NDArray, level: float) -> tuple[NDArray, NDArray]:
        """Widen intervals where a point has more than half of the probability.

        At every level, so that the interval of a higher level holds that of a lower one.
        """
        reach = float(ndtri((1 + level) / 2)) * self.sd
        if not ((low > self.mean - reach) | (high < self.mean + reach)).any():
            return low, high
        is_point = self.quantile(0.75) - self.quantile(0.25) <= SAME * self.sd
        reach = np.where(is_point, reach, 0.0)
        return (
            np.minimum(low, np.maximum(self.mean - reach, self.quantile(0.0))),
            np.maximum(high, np.minimum(self.mean + reach, self.quantile(1.0))),
        )

    def _robust_ends(self, level: float) -> tuple[NDArray, NDArray]:
        """Ends of an interval that needs moments of the population only."""
        if self._line is None:
            raise ValueError(
                "robust intervals are built around linear shrinkage: they exist for Gaussian "
                "estimates under any fitted population, and for counts under prior='beta'."
            )
        return self._line.interval(level)

    def around_parents(self) -> Posterior | None:
        """Posterior of how each client differs from its parent; None if clients have no parents."""
        return None

    def labelled(
        self,
        ids: NDArray | None,
        columns: Mapping[str, NDArray],
        style: Style | None = None,
        terms: tuple[str, ...] | None = None,
    ) -> Self:
        """Attach what identifies the clients, to head the rows of `to_frame`.

        Parameters
        ----------
        ids : ndarray of shape (n,) or None
            Labels.
        columns : mapping of name to ndarray of shape (n,) or (n, d)
        style : Style, optional
            Library of the frame, name and type of the labels.
        terms : tuple of d strings, optional
            Names of the coordinates.
        """
        self._ids, self._columns = ids, dict(columns)
        self._style, self._terms = style or Style(), terms
        return self

    def using(self, backend: str) -> Self:
        """Have `to_frame` build frames of that library."""
        self._style = self._style.using(backend)
        return self

    def to_frame(self, level: float = 0.95, kind: Literal["eb", "robust"] = "eb") -> Any:
        """One row per client (and coordinate, if there are several).

        Parameters
        ----------
        level : float in (0, 1)
        kind : {"eb", "robust"}
            See `interval`.

        Returns
        -------
        DataFrame
            Whatever `labelled` attached, then ``estimate``, ``sd``, ``lower``, ``upper`` and,
            where it exists, ``weight``; of a population around zero ``lfsr``, the
            `local_false_sign_rate`, and of one with a point there `lfdr`; in the library of the
            frame that was fitted.
        """
        lower, upper = self.interval(level, kind)
        n, d = self.mean.shape
        columns: dict[str, Any] = {}
        if d > 1:
            columns["term"] = np.tile(np.asarray(self.terms, dtype=object), (n, 1))
        columns |= self._columns
        columns |= {"estimate": self.mean, "sd": self.sd, "lower": lower, "upper": upper}
        if self.weight is not None:
            columns["weight"] = self.weight
        if getattr(self.prior, "mode", None) == 0:
            columns["lfsr"] = self.local_false_sign_rate()
            if has_point(self.prior, 0.0):
                columns["lfdr"] = self.lfdr()
        style = self._style.avoiding(columns)
        if self._ids is not None:
            columns = {style.group: self._ids} | columns
        return frame({name: _long(values, (n, d)) for name, values in columns.items()}, style)

    def ranks(
        self,
        top: int | None = None,
        level: float = 0.95,
        *,
        ascending: bool = False,
        column: int | str = 0,
        n_draws: int = 4000,
        random_state: Any = 0,
    ) -> Any:
        """Rank of each client among all, by draws from the posterior.

        The rank of theta_i is ``1 + #{j: theta_j > theta_i}`` plus half of the number of others
        that tie with it: the largest is first, unless `ascending`. Its posterior mean is the best
        estimate of it (Laird and Louis 1989), and less far from the middle than the rank of an
        estimate is. Draws are of all clients together, by `sample`.

        Parameters
        ----------
        top : int, optional
            Number of first ranks of which ``prob_top`` is the probability. These probabilities sum
            to `top`: clients that tie for the last of these ranks share it.
        level : float in (0, 1)
        ascending : bool
            Whether rank 1 is the smallest, rather than the largest.
        column : int or str
            Coordinate, by its place or its name.
        n_draws : int
        random_state : int, Generator or None

        Returns
        -------
        DataFrame
            One row per client, in their order: its label, if there is one, ``estimate``, ``rank``,
            ``lower`` and ``upper`` (of the interval that holds the rank with probability `level`),
            and ``prob_top``.

        Raises
        ------
        ValueError
            If `top` is not a number of clients, `level` is outside (0, 1), there is no such
            `column`, or `n_draws` is not positive.

        References
        ----------
        Laird and Louis (1989), Empirical Bayes ranking methods; Shen and Louis (1998), Triple-goal
        estimates in two-stage hierarchical models.

        Examples
        --------
        >>> from ebfed.likelihoods import Gaussian
        >>> from ebfed.priors import Normal
        >>> estimates = Gaussian(np.array([[0.0], [2.0], [4.0]]), np.full((3, 1), 1.0))
        >>> Normal().fit(estimates).posterior(estimates).ranks(top=1).round(1)
           estimate  rank  lower  upper  prob_top
        0       0.5   2.9    2.0    3.0       0.0
        1       2.0   2.0    1.0    3.0       0.1
        2       3.5   1.1    1.0    2.0       0.9
        """
        n, d = self.mean.shape
        j = self._place_of(column)
        check_level(level)
        if not isinstance(n_draws, Integral) or n_draws < 1:
            raise ValueError(f"n_draws must be a positive whole number; got {n_draws!r}.")
        if top is not None and (not isinstance(top, Integral) or not 1 <= top <= n):
            raise ValueError(f"top must be a whole number from 1 to {n}; got {top!r}.")
        rng = np.random.default_rng(random_state)
        total, among = np.zeros(n), np.zeros(n)
        # the quantiles are the least of the smallest and of the largest ranks: the rest is not kept
        n_tail = max(1, ceil((1 - level) / 2 * n_draws - 1e-9))
        smallest, largest = np.empty((2, n, 0), np.float32)
        pending: list[NDArray] = []
        block = max(1, min(250, 2_000_000 // max(1, n * d)))
        for done in range(0, n_draws, block):
            draws = self.sample(min(block, n_draws - done), rng)[:, :, j]
            first, last = _places(draws if ascending else -draws)
            rank = (first + last) / 2
            total += rank.sum(axis=0)
            if top is not None:
                among += np.clip((top + 1 - first) / (last + 1 - first), 0, 1).sum(axis=0)
            pending.append(rank.astype(np.float32).T)
            if len(pending) * block >= n_tail or done + block >= n_draws:
                ranks = np.hstack(pending)
                smallest = _least(np.hstack([smallest, ranks]), n_tail)
                largest = _least(np.hstack([largest, -ranks]), n_tail)
                pending.clear()
        columns = {
            "estimate": self.mean[:, j],
            "rank": total / n_draws,
            "lower": smallest.max(axis=1).astype(float),
            "upper": -largest.max(axis=1).astype(float),
        }
        if top is not None:
            columns["prob_top"] = among / n_draws
        style = self._style.avoiding(columns)
        if self._ids is not None:
            columns = {style.group: self._ids} | columns
        return frame(columns, style)

    def _place_of(self, column: int | str) -> int:
        """Place of the coordinate with this name or number."""
        d = self.mean.shape[1]
        names = list(self.terms)
        if column in names:
            return names.index(str(column))
        if not isinstance(column, Integral) or not 0 <= column < d:
            shown = ", ".join(map(repr, names))
            raise ValueError(f"column must be below {d} or one of {shown}; got {column!r}.")
        return int(column)

    def __repr__(self) -> str:
        n, d = self.mean.shape
        return f"<{type(self).__name__} of {n} clients, {d} coordinate{'s' * (d > 1)}>"


def _long(values: ArrayLike, shape: tuple[int, int]) -> NDArray:
    values = np.asarray(values)
    return np.broadcast_to(values[:, None] if values.ndim == 1 else values, shape).ravel()


def _places(draws: NDArray) -> tuple[NDArray, NDArray]:
    """First and last place, from 1, of each value among those of its row; equal ones share them."""
    order = np.argsort(draws, axis=1)
    values = np.take_along_axis(draws, order, axis=1)
    place = np.broadcast_to(np.arange(1.0, draws.shape[1] + 1), draws.shape)
    tied = values[:, 1:] == values[:, :-1]
    if not tied.any():
        first = _unsorted(place, order)
        return first, first
    edge = np.zeros((len(draws), 1), bool)
    first = np.maximum.accumulate(np.where(np.hstack([edge, tied]), 1.0, place), axis=1)
    last = np.where(np.hstack([tied, edge]), np.inf, place)
    last = np.minimum.accumulate(last[:, ::-1], axis=1)[:, ::-1]
    return _unsorted(first, order), _unsorted(last, order)


def _unsorted(values: NDArray, order: NDArray) -> NDArray:
    out = np.empty(values.shape)
    np.put_along_axis(out, order, values, axis=1)
    return out


def _least(values: NDArray, k: int) -> NDArray:
    """Return the `k` least values of each row, all of them if there are not more."""
    return np.partition(values, k - 1, axis=1)[:, :k] if values.shape[1] > k else values


def mean_errors(prior: Any, size: int, rng: np.random.Generator) -> NDArray:
    """Draw the error of a population's mean, in units of its standard error.

    Parameters
    ----------
    prior : Normal or Beta, fitted
        Population of all clients, or `at` the covariates of each.
    size : int
    rng : Generator

    Returns
    -------
    ndarray of shape (size, 1, d), or (size, n, d) where the mean depends on covariates
        Standard normal; of several clients as correlated as their ``w_i' beta`` are, and of several
        columns independent.
    """
    if prior.mean_.ndim == 1:
        return rng.standard_normal((size, 1, len(prior.mean_)))
    rows = np.hstack([np.ones((len(prior.mean_), 1)), prior.covariates_ - prior.covariates_mean_])
    columns = []
    for covariance in prior.coefficients_covariance_:
        root = rows @ root_of(covariance)
        length = np.sqrt((root**2).sum(axis=1, keepdims=True))
        root = np.divide(root, length, out=np.zeros_like(root), where=length > 0)
        columns.append(rng.standard_normal((size, len(covariance))) @ root.T)
    return np.stack(columns, axis=2)


def root_of(covariance: NDArray) -> NDArray:
    """Return a root of a covariance, which may be singular.

    That of a correlation, scaled, so that units of the coordinates do not matter.
    """
    scale = np.sqrt(np.diag(covariance))
    outer = np.outer(scale, scale)
    unit = np.divide(covariance, outer, out=np.eye(len(scale)), where=outer > 0)
    values, vectors = np.linalg.eigh(unit)
    return scale[:, None] * vectors * np.sqrt(np.maximum(values, 0))


class NormalMarginals(Posterior):
    """Posterior whose every coordinate is normal, with `mean` and `sd`; a point where that is 0."""

    def _quantile(self, q: float) -> NDArray:
        with np.errstate(invalid="ignore"):  # infinity times zero
            reach = ndtri(q) * self.sd
        return self.mean + np.where(np.isnan(reach), 0.0, reach)

    def _prob_to(self, threshold: ArrayLike, sign: int = 1) -> NDArray:
        return normal_below(sign * (np.asarray(threshold) - self.mean), self.sd)


class IndependentNormals(NormalMarginals):
    """Posterior whose coordinates are normal and independent.

    Parameters
    ----------
    mean, sd : ndarray of shape (n, d)
    """

    def __init__(self, mean: NDArray, sd: NDArray):
        self.mean, self.sd = mean, sd

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        rng = np.random.default_rng(random_state)
        return self.mean + self.sd * rng.standard_normal((size, *self.mean.shape))


def normal_below(distance: NDArray, sd: NDArray) -> NDArray:
    """Probability that a normal, or a point where `sd` is 0, is at most so far above its mean."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(sd > 0, ndtr(distance / sd), distance >= 0)


NO_NULL = (
    "a false discovery rate is the probability that a parameter is {null:g}, and {which} has no "
    "point there of which the probability is known; populations that have one are 'point_normal', "
    "'point_laplace', priors.ScaleMixture(null_weight=10), and priors.Discrete with an atom there. "
    "local_false_sign_rate() needs none."
)


def has_point(prior: Any, value: float) -> bool:
    """Return whether a population gives a value a probability that its messages identify.

    Examples
    --------
    >>> from ebfed.priors import Discrete
    >>> prior = Discrete.known(np.array([[0.0], [2.0]]), np.array([0.25, 0.75]))
    >>> has_point(prior, 0.0), has_point(prior, 1.0)
    (True, False)
    """
    if hasattr(prior, "null"):
        return prior.null is not None and prior.null == value
    return bool(np.isin(value, prior.points()[0]))


def q_values(lfdr: NDArray) -> NDArray:
    """Mean of the rates of all effects that are at least as surprising, in each column.

    It is the share of false discoveries that is expected where an effect and all with a smaller
    rate are called discoveries (Newton, Noueiry, Sarkar, Ahlquist 2004; Stephens 2017).

    Parameters
    ----------
    lfdr : ndarray of shape (n, d)

    Returns
    -------
    ndarray of shape (n, d)

    Examples
    --------
    >>> q_values(np.array([[0.0], [0.6], [0.2], [0.2]])).ravel().round(3)
    array([0.   , 0.25 , 0.133, 0.133])
    """
    order = np.argsort(lfdr, axis=0, kind="stable")
    rates = np.take_along_axis(lfdr, order, axis=0)
    means = np.cumsum(rates, axis=0) / np.arange(1, len(rates) + 1)[:, None]
    # effects that are equally surprising are discoveries together
    is_last = np.vstack([rates[1:] > rates[:-1], np.ones((1, rates.shape[1]), bool)])
    means = np.where(is_last, means, np.inf)[::-1]
    found = np.empty(lfdr.shape)
    np.put_along_axis(found, order, np.minimum.accumulate(means, axis=0)[::-1], axis=0)
    return found


def check_rate(fdr: float) -> None:
    """Raise a ValueError unless a rate is a number in (0, 1)."""
    if not is_number(fdr) or not 0 < fdr < 1:
        raise ValueError(f"fdr must lie between 0 and 1; got {fdr!r}.")
