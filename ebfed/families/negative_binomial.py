"""Rows that count events, and scatter more within their groups than Poisson counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ebfed.families.base import Figures
from ebfed.families.poisson import Poisson, RowsOfGroups, log_factorial, of_counts
from ebfed.likelihoods import NegativeBinomial as NegativeBinomialLikelihood
from ebfed.likelihoods.counting import POISSON, log_ways
from ebfed.likelihoods.distinct import number_rows
from ebfed.tables.clients import Summary
from ebfed.tables.labels import number_labels
from ebfed.tables.of_rows import NOTHING

__all__ = ["NegativeBinomial"]

# Logarithms of the sizes at which groups state the likelihood of their rows given their sum:
# nodes of Chebyshev, between which a polynomial has the rest.
LOWEST, HIGHEST, N_NODES = np.log(1e-2), np.log(1e5), 32


@dataclass(frozen=True)
class NegativeBinomial(Poisson):
    """Rows ``y_ij ~ NB(mean m = e_i theta_i, variance m + dispersion m**2)``.

    Rows of one group have one exposure ``e_i``: their sum is then negative binomial too, and says
    all that they say of theta. How they share the sum depends on the dispersion alone. If that is
    open, a group states the logarithms of ``prod_j size (size + 1) ... (size + y_ij - 1) / y_ij!``
    for some sizes, one over the dispersion.

    Parameters
    ----------
    dispersion : float or ndarray of shape (d,), optional
        One for all columns, or one for each; open if None.
    learned : bool
        Whether it is an estimate, from groups that state these logarithms.

    Examples
    --------
    >>> rows, labels = np.array([[2.0], [4.0], [1.0]]), np.array(["a", "a", "b"])
    >>> family = NegativeBinomial(0.5)
    >>> family.likelihood(family.figures(family.summarise(rows, labels))).sizes.ravel()
    array([4., 2.])
    """

    dispersion: Any = None
    learned: bool = False

    name: ClassVar[str] = "negative_binomial"
    needs_values: ClassVar[bool] = True
    open_parameter: ClassVar[str] = "dispersion"
    pools_first: ClassVar[bool] = True
    unidentified: ClassVar[str] = (
        "No group has two rows, and two events in them: the dispersion of rows is not identified "
        "and taken to be zero, as of Poisson counts. Give dispersion= if it is known."
    )

    def summarise(
        self,
        values: NDArray,
        labels: NDArray | None,
        of_rows: Mapping[str, NDArray] = NOTHING,
    ) -> Summary:
        """Add up events and exposures; refuse exposures that differ within a group."""
        exposure = of_rows.get("exposure")
        if exposure is not None and labels is not None:
            ids, codes = number_labels(labels)
            first = np.full(len(ids), -1.0)
            counted = of_rows.get("sample_weight", np.ones(len(codes))) > 0
            first[codes[counted]] = exposure[counted]
            other = counted & (np.abs(exposure - first[codes]) > 1e-9 * exposure)
            if other.any():
                row = int(np.argmax(other))
                raise ValueError(
                    "exposure must be the same in all rows of a group, as sums of negative "
                    f"binomial counts have no simple law else; row {row} has {exposure[row]:g}, "
                    f"another row of its group {first[codes][row]:g}."
                )
        return super().summarise(values, labels, of_rows)

    def _sums(
        self, rows: RowsOfGroups, events: NDArray, exposure: NDArray | None
    ) -> dict[str, NDArray]:
        """Log base measures of rows, up to what the sums of groups have."""
        from ebfed.kernels import add_entries

        sizes = np.broadcast_to(self._sizes(), events.shape[1])
        if self.dispersion is not None and not self.learned:
            pairs = zip(sizes, events.T, strict=True)
            logs = [of_counts(partial(log_ways, sizes=r), y) for r, y in pairs]
            return {"log_base": rows.totals(np.stack(logs, axis=1))}
        times = np.empty(0) if rows.times is None else np.asarray(rows.times, float)
        sums = np.empty((N_NODES + 1, rows.m, events.shape[1]))
        for j, column in enumerate(events.T):
            places, first, _ = number_rows([column.astype(np.int64)])
            y = column[first][:, None]
            table = np.hstack([-log_factorial(y), log_ways(y, np.exp(_nodes()))])
            add_entries(rows.codes, places, times, table, sums[:, :, j])
        names = ["log_base", *(f"ways_{k}" for k in range(N_NODES))]
        return dict(zip(names, sums, strict=True))

    def _sizes(self) -> NDArray:
        """One over the dispersion of each column."""
        dispersion = 0.0 if self.dispersion is None else self.dispersion
        return 1 / np.maximum(np.atleast_1d(np.asarray(dispersion, float)), 1 / POISSON)

    def likelihood(self, figures: Figures) -> NegativeBinomialLikelihood:  # type: ignore[override]
        """``sum_j y_ij ~ NB(mean E_i theta_i, size n_i / dispersion)``."""
        exposure = np.asarray(figures.get("weight", figures["n"]), float)
        counts = np.rint(figures["mean"] * exposure[:, None]).astype(np.int64)
        sizes = figures["n"][:, None] * np.broadcast_to(self._sizes(), counts.shape[1])
        return NegativeBinomialLikelihood(counts, exposure, sizes)

    def log_base_measure(self, summary: Summary) -> NDArray:
        likelihood = self.likelihood(self.figures(summary))
        if "log_base" not in summary.sums:  # one row of all the exposure
            return np.zeros(len(summary))
        base = summary.sums["log_base"]
        if "ways_0" not in summary.sums:
            return base.sum(axis=1) - likelihood.log_coefficient()
        table = np.stack([summary.sums[f"ways_{k}"] for k in range(N_NODES)])
        at = np.broadcast_to(np.log(self._sizes()), summary.n_features)
        total = np.zeros(len(summary))
        for j, x in enumerate(at):
            one = likelihood.column(j)
            if x <= HIGHEST:
                total += _between(table[:, :, j], x) - one.log_coefficient()
            else:  # Poisson counts, of which each row has the same share
                y = one.counts[:, 0]
                total += base[:, j] + log_factorial(y) - y * np.log(np.maximum(summary.n, 1))
        return total

    def sampling_variance(self, theta: Any, size: Any, column: int = 0) -> Any:
        """``theta / E + dispersion theta**2 / E`` for rows of exposure 1."""
        return theta * (1 + theta / self._sizes()[min(column, len(self._sizes()) - 1)]) / size

    def simulate(
        self, theta: NDArray, size: NDArray, rng: np.random.Generator, column: int = 0
    ) -> NDArray:
        """Draw events over exposures, of rows of exposure 1."""
        number = size * self._sizes()[min(column, len(self._sizes()) - 1)]
        return rng.poisson(rng.gamma(number, theta * size / number)) / size

    def blank(self, n: NDArray, n_features: int, weight: NDArray | None = None) -> Summary:
        summary = super().blank(n, n_features, weight)
        no_row = RowsOfGroups(np.empty(0, np.int64), None, 0)
        names = self._sums(no_row, np.empty((0, n_features)), None)
        nothing = np.zeros((len(n), n_features))
        return replace(summary, sums=dict.fromkeys(names, nothing))

    # The dispersion ---------------------------------------------------------------------------

    @property
    def needs_scatter(self) -> bool:
        """Whether the dispersion is to be learned."""
        return self.dispersion is None

    def settled(self, noise_variance: NDArray | None) -> Self:
        """Return the family with the dispersion that a fit has learned."""
        return self if noise_variance is None else type(self)(noise_variance, learned=True)

    def pooled(self, messages: Sequence[Figures]) -> NDArray | None:
        """Dispersion of greatest likelihood of rows given the sums of their groups, shape (d,).

        That is free of the rates of groups, whatever their population (the conditional likelihood
        of Robinson and Smyth, 2008). At no dispersion rows are Poisson counts. None if no group has
        two rows, and two events in them.
        """
        from scipy.optimize import minimize_scalar

        nodes = _nodes()
        names = ("n", "weight", "mean", *(f"ways_{k}" for k in range(len(nodes))))
        figures = {
            name: _joined([message.get(name, message["n"]) for message in messages])
            for name in names
        }
        n, sums = figures["n"], figures["mean"] * np.asarray(figures["weight"], float)[:, None]
        sums = np.rint(sums).astype(np.int64)
        if not ((n[:, None] > 1) & (sums > 1)).any():
            return None
        totals = np.array([_total(figures[f"ways_{k}"]) for k in range(len(nodes))])
        for j, column in enumerate(sums.T):
            _, first, times = number_rows([n, column])
            order = np.lexsort((column[first], n[first]))  # in whatever order they stand
            first, times = first[order], times[order]
            sizes = np.maximum(n[first], 1) * np.exp(nodes)[:, None]
            totals[:, j] -= log_ways(column[first], sizes) @ times
        grid, found = np.linspace(LOWEST, HIGHEST, 200), []
        for column, heights in zip(totals.T, _between(totals, grid).T, strict=True):
            best = int(np.argmax(heights))
            if best == len(grid) - 1:
                found.append(0.0)
                continue
            ends = grid[max(best - 1, 0)], grid[best + 1]
            peak = minimize_scalar(
                lambda x, column=column: -_between(column, x),
                bounds=ends,
                method="bounded",
                options={"xatol": 1e-10},
            )
            found.append(float(np.exp(-peak.x)))
        return np.array(found)


def _joined(parts: Sequence[NDArray]) -> NDArray:
    """Concatenate; without a copy of one array."""
    return np.concatenate(parts) if len(parts) > 1 else parts[0]


def _total(values: NDArray) -> NDArray:
    """Add up the rows of an array as whole numbers of small units, which have no order.

    Examples
    --------
    >>> _total(np.array([[0.25], [1.5]]))
    array([1.75])
    """
    largest = float(np.abs(values).max(initial=0.0))
    digits = 62 - np.frexp(largest)[1] - len(values).bit_length()
    return np.ldexp(np.rint(np.ldexp(values, digits)).astype(np.int64).sum(axis=0), -digits)


def _nodes() -> NDArray:
    """Chebyshev nodes on the range of logarithms of sizes."""
    unit = np.cos((np.arange(N_NODES) + 0.5) * np.pi / N_NODES)
    return (LOWEST + HIGHEST) / 2 + (HIGHEST - LOWEST) / 2 * unit


def _between(values: NDArray, x: Any) -> Any:
    """Polynomial through values at the nodes, by its barycentric form.

    Examples
    --------
    >>> float(_between(_nodes() ** 2, 1.5).round(10))
    2.25
    """
    gap = np.asarray(x)[..., None] - _nodes()
    signs = np.sin((np.arange(N_NODES) + 0.5) * np.pi / N_NODES) * (-1.0) ** np.arange(N_NODES)
    at_node = gap == 0
    weights = signs / np.where(at_node, 1.0, gap)
    weights = np.where(at_node.any(axis=-1, keepdims=True), at_node, weights)
    return np.tensordot(weights / weights.sum(axis=-1, keepdims=True), values, axes=1)
