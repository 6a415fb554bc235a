"""Gaussian messages: estimates with known variances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ebfed.kernels import gaussian_tally
from ebfed.likelihoods.base import MANY, Likelihood, PartsOfReports, between_scales
from ebfed.likelihoods.distinct import two_of_each_cell
from ebfed.likelihoods.reported import ReportedMeans, ReportLaw
from ebfed.tables.labels import number_integers

__all__ = ["Gaussian"]


@dataclass(frozen=True)
class Gaussian(Likelihood):
    """Client i's message is ``values[i] ~ N(theta_i, diag(variances[i]))``.

    With `scatter`, the variances are known only up to a common factor for each column, the noise
    variance of one observation (``variances[i] = 1 / n_i``); the pooled within-group sum of squares
    `scatter`, on `degrees` degrees of freedom, estimates it.

    Parameters
    ----------
    values : ndarray of shape (n, d)
    variances : ndarray of shape (n, 1) or (n, d)
        Sampling variances. 0: theta_i is known; infinity: the message says nothing.
    scatter : ndarray of shape (d,), optional
    degrees : int, optional

    Examples
    --------
    >>> messages = Gaussian(np.array([[0.0], [2.0]]), np.array([[1.0], [np.inf]]))
    >>> messages.logpdf(np.array([[0.0], [1.0]]))
    array([[-0.9189, -1.4189],
           [ 0.    ,  0.    ]])
    """

    values: NDArray
    variances: NDArray
    scatter: NDArray | None = None
    degrees: int = 0

    support: ClassVar[tuple[float, float]] = (-np.inf, np.inf)
    _of_clients = ("values", "variances")

    @property
    def noise_variance(self) -> NDArray:
        """Pooled within-group variance ``scatter / degrees`` of each column, shape (d,).

        0 where no group has two rows: then nothing is known of the noise, and it is taken to be
        none.
        """
        if self.scatter is None:
            raise AttributeError("the variances of this likelihood are known; nothing is pooled.")
        return self.scatter / max(self.degrees, 1)

    @property
    def has_scatter(self) -> NDArray[np.bool_]:
        """Whether rows of a group differ by more than rounding of their mean, shape (d,)."""
        if self.scatter is None:
            return np.ones(self.n_features, bool)
        size = (1 / self.variances).sum(axis=0)
        largest = np.abs(self.values).max(axis=0, where=np.isfinite(self.values), initial=0.0)
        return self.scatter > size * (2 * np.finfo(float).eps * largest) ** 2

    def scaled(self, noise_variance: NDArray) -> Gaussian:
        """Settle the common factor of the variances."""
        with np.errstate(invalid="ignore"):  # 0 * inf: no rows, whatever the noise
            variances = self.variances * noise_variance
        return Gaussian(self.values, np.where(np.isnan(variances), np.inf, variances))

    def logpdf(self, theta: NDArray) -> NDArray:
        """Sum over coordinates of ``log N(values; theta, variances)``."""
        total = np.zeros((len(self), theta.shape[-2]))
        variances = np.broadcast_to(self.variances, self.values.shape)
        columns = zip(self.values.T, variances.T, np.moveaxis(theta, -1, 0), strict=True)
        for value, variance, at in columns:
            has_data = np.isfinite(variance) & (variance > 0)
            variance = np.where(has_data, variance, 1.0)[:, None]
            term = (value[:, None] - at) ** 2
            term /= -2 * variance
            term -= 0.5 * np.log(2 * np.pi * variance)
            total += np.where(has_data[:, None], term, 0.0)
        return total

    @property
    def exact(self) -> NDArray | None:
        """Values of variance zero; where the scale is open, those of columns without scatter."""
        known = self.variances == 0
        if self.scatter is not None:
            known = known | (np.isfinite(self.variances) & (self.scatter == 0))
        return np.where(known, self.values, np.nan) if known.any() else None

    def log_peak(self) -> NDArray:
        """Log-density of the values at themselves."""
        variances = np.broadcast_to(self.variances, self.values.shape)
        has_data = np.isfinite(variances) & (variances > 0)
        return np.where(
            has_data, -0.5 * np.log(2 * np.pi * np.where(has_data, variances, 1)), 0
        ).sum(axis=1)

    @property
    def local(self) -> NDArray:
        """The values; NaN at infinite variance."""
        return np.where(np.isfinite(self.variances), self.values, np.nan)

    def nodes(self, k: int) -> NDArray:
        """Cover the values and four typical errors beyond, with four points to a small error.

        Stretches without values are left out, so that an outlier does not thin the grid.
        """
        has_data = np.isfinite(self.variances[:, 0])
        if not has_data.any():
            return np.linspace(-1.0, 1.0, k)
        values, errors = np.sort(self.values[has_data, 0]), np.sqrt(self.variances[has_data, 0])
        reach = 4 * np.median(errors) or max(values[-1] - values[0], 1.0)
        reach = max(reach, 4 * np.spacing(np.abs(values[[0, -1]]).max()))  # or all nodes are one
        cuts = np.flatnonzero(np.diff(values) > 4 * reach * (1 + 1e-9))
        low = values[np.append(0, cuts + 1)] - reach
        high = values[np.append(cuts, len(values) - 1)] + reach
        length = (high - low).sum()
        fine = max(np.quantile(errors, 0.05), length / 2000)
        k = int(max(k, min(4 * length / fine, 2000)) + 1e-6)  # the same in any unit
        shares = np.ceil(k * (high - low) / length - 1e-6).astype(int) + 2
        even = np.concatenate([np.linspace(*ends) for ends in zip(low, high, shares, strict=True)])
        # values known more sharply than the grid are nodes themselves
        sharp = self.values[has_data, 0][np.sqrt(self.variances[has_data, 0]) < 2 * length / k]
        if len(sharp) > 1000:
            sharp = np.quantile(sharp, np.linspace(0, 1, 1000), method="nearest")
        return np.union1d(even, sharp)

    def mirrored(self) -> tuple[Self, float]:
        """Messages with the other sign."""
        return type(self)(-self.values, self.variances, self.scatter, self.degrees), 0.0

    def search(self, k: int) -> NDArray:
        """Nodes, and values about half an error apart around each estimate."""
        nodes, seen = self.nodes(k), np.isfinite(self.variances[:, 0]) & (self.variances[:, 0] > 0)
        values, errors = self.values[seen, 0], np.sqrt(self.variances[seen, 0])
        return np.union1d(nodes, between_scales(nodes, values, errors))

    def resampled(self, theta: NDArray, rng: np.random.Generator) -> Gaussian:
        """Draw values around the parameters; a common factor of the variances is settled first.

        Examples
        --------
        >>> messages = Gaussian(np.array([[0.0], [2.0]]), np.array([[0.0], [np.inf]]))
        >>> messages.resampled(np.array([[5.0], [6.0]]), np.random.default_rng(0)).local
        array([[ 5.],
               [nan]])
        """
        one = self if self.scatter is None else self.scaled(self.noise_variance)
        errors = np.sqrt(np.where(np.isfinite(one.variances), one.variances, 0.0))
        return Gaussian(theta + errors * rng.standard_normal(theta.shape), one.variances)

    def combine(self, weights: NDArray) -> NDArray:
        """Average with weights times precisions."""
        precisions = np.broadcast_to(1 / self.variances, self.values.shape)
        total = weights.T @ precisions
        return weights.T @ (precisions * self.values) / np.where(total > 0, total, 1)

    def compress(self) -> tuple[Gaussian, NDArray]:
        """Merge equal messages; past 20,000, also those closer than a fiftieth of their error.

        Merging moves a value by less than 1/100 of its standard error and a variance by less than
        1 %, both without bias over the messages merged.
        """
        has_data = (np.isfinite(self.variances) & (self.variances > 0)).all(axis=1)
        values = self.values[has_data]
        variances = np.broadcast_to(self.variances[has_data], values.shape)
        d = self.n_features
        if len(values) <= MANY or d > 1:
            rows, counts = np.unique(np.hstack([values, variances]), axis=0, return_counts=True)
            return Gaussian(rows[:, :d], rows[:, d:]), counts.astype(float)
        level = np.round(np.log(variances[:, 0] / variances.min()) / 0.02)
        width = 0.02 * np.sqrt(variances.min()) * np.exp(0.01 * level)
        cell = np.round((values[:, 0] - values.min()) / width)
        key = level * (cell.max() + 1) + cell  # exact in float64 up to 2**53 cells
        codes, _ = number_integers(key.astype(np.int64))
        counts = np.bincount(codes).astype(float)
        centre, level = (np.bincount(codes, x[:, 0]) / counts for x in (values, variances))
        return Gaussian(centre[:, None], level[:, None]), counts

    def distinct(self) -> tuple[Gaussian, NDArray]:
        if self.n_features > 1:
            return self.compress()
        has_data = np.isfinite(self.variances[:, 0]) & (self.variances[:, 0] > 0)
        rows = self if has_data.all() else self.take(has_data)
        bits = [
            number_integers(np.ascontiguousarray(each[:, 0]).view(np.int64))[0]
            for each in (rows.values, rows.variances)
        ]
        codes, first = number_integers(bits[0] * (bits[1].max(initial=0) + 1) + bits[1])
        return rows.take(first), np.bincount(codes).astype(float)

    def condensed(self, counts: NDArray) -> tuple[Gaussian, NDArray]:
        """Fewer rows: of messages within half an error and with errors within 5 %, two.

        Number, mean and spread of the values and the mean variance are kept, so that it is terms
        of third order that differ.
        """
        if len(self) <= MANY:
            return self, counts
        centres, variances, times, _ = two_of_each_cell(self.values, self.variances, counts)
        return Gaussian(centres, variances), times

    def relative(self, theta: NDArray) -> NDArray:
        """Likelihood of each client at theta of shape (k, d), over that at its value, (n, k)."""
        if self.n_features > 1 or not self._all_have_data:
            return super().relative(theta)
        z = self.values - theta[:, 0]
        z *= np.sqrt(0.5 / self.variances)
        z *= z
        # products of what is below 1e-130 may be subnormal, which is slow
        return np.exp(np.maximum(np.negative(z, out=z), -300.0, out=z), out=z)

    def tally(self, masses: NDArray, nodes: NDArray) -> NDArray:
        """``sum_i masses_i exp(-(values_i - node)**2 / (2 variances_i))`` at increasing nodes."""
        if not self._all_have_data:
            return super().tally(masses, nodes)
        return gaussian_tally(masses, self.values[:, 0], np.sqrt(self.variances[:, 0]), nodes)

    @cached_property
    def _all_have_data(self) -> bool:
        return bool((np.isfinite(self.variances) & (self.variances > 0)).all())

    def column(self, j: int) -> Self:
        """One coordinate."""
        variances = self.variances[:, [j if self.variances.shape[1] > 1 else 0]]
        scatter = None if self.scatter is None else self.scatter[[j]]
        return type(self)(self.values[:, [j]], variances, scatter, self.degrees)

    def marginal(self, mean: NDArray, variance: NDArray) -> NDArray:
        """Log-density of the values where theta is normal with these moments, shape (n,)."""
        total = self.variances + variance
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.log(2 * np.pi * total) + (self.values - mean) ** 2 / total
        # a variance of zero met exactly: infinite density
        terms = np.where(np.isnan(terms), -np.inf, terms)
        return -0.5 * np.where(np.isinf(total), 0.0, terms).sum(axis=1)

    def normals(
        self, away: NDArray, variances: NDArray, lowest: float, highest: float
    ) -> tuple[NDArray, NDArray]:
        """One normal for each error, of log-weight 0; see `StudentT.normals`."""
        return np.zeros((1, len(away))), variances[None]

    def log_ratio(self, away: NDArray, variances: NDArray) -> NDArray:
        """Log-density of these errors of one coordinate, over that of none, (n,)."""
        return -0.5 * away**2 / variances

    def sampling_variance(self, mean: float, variance: float) -> NDArray:
        """Return the variances, whatever the population."""
        return np.broadcast_to(self.variances, self.values.shape)[:, 0]

    def _reported(self, law: ReportLaw, has_data: NDArray) -> PartsOfReports:
        self._check_scale()
        variances = np.broadcast_to(self.variances, self.values.shape)
        has_data = has_data & np.isfinite(variances)
        return ReportedMeans, has_data, {"variances": np.where(has_data, variances, 1.0)}

    def blurred(self, variance: NDArray) -> Gaussian:
        """Likelihood of the values plus Gaussian noise of a known variance.

        Raises
        ------
        ValueError
            If the scale of the variances is open.
        """
        self._check_scale()
        return Gaussian(self.values, self.variances + variance)

    def _check_scale(self) -> None:
        if self.scatter is not None:
            raise ValueError(
                "variances must be given: this channel reports on the means alone, and nothing of "
                "the noise within groups leaves a client."
            )

    @classmethod
    def concatenated(cls, parts: Sequence[Self]) -> Self:
        """Put messages one after another; sums of squares for an open scale are added."""
        scatters = [part.scatter for part in parts if part.scatter is not None]
        return cls(
            np.concatenate([part.values for part in parts]),
            np.concatenate([np.broadcast_to(p.variances, p.values.shape) for p in parts]),
            np.sum(scatters, axis=0) if scatters else None,
            sum(part.degrees for part in parts),
        )
