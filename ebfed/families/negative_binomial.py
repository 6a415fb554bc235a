"""Rows that count events, and scatter more within their groups than Poisson counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ebfed.families.base import Family, Figures
from ebfed.families.poisson import Poisson
from ebfed.likelihoods import NegativeBinomial as NegativeBinomialLikelihood
from ebfed.likelihoods.distinct import number_rows
from ebfed.likelihoods.negative_binomial import log_rising_of
from ebfed.tables.clients import Summary
from ebfed.tables.labels import number_labels
from ebfed.tables.of_rows import NOTHING

__all__ = ["NegativeBinomial"]

# Logarithms of the sizes at which groups state the likelihood of their rows given their sum:
# nodes of Chebyshev, between which a polynomial has the rest.
LOWEST, HIGHEST, N_NODES = np.log(1e-2), np.log(1e5), 32
# Dispersion that stands for none.
NONE = 1e-12


@dataclass(frozen=True)
class NegativeBinomial(Poisson):
    """Rows ``y_ij ~ NB(mean m = e_i theta_i, variance m + dispersion m**2)``.

    Rows of one group have one exposure ``e_i``: their sum is then negative binomial too, and says
    all that they say of theta. How they share the sum depends on the dispersion alone. If that is
    open, a group states the logarithms of ``prod_j size (size + 1) ... (size + y_ij - 1)`` for some
    sizes, one over the dispersion.

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

    def _base_of_rows(self, values: NDArray, exposure: NDArray) -> dict[str, NDArray]:
        """Log base measures of rows, up to what the sums of groups have."""
        from scipy.special import gammaln

        counts, place = np.unique(values, return_inverse=True)
        place = place.reshape(values.shape)
        found = {"log_base": -gammaln(counts + 1)[place]}
        if self.dispersion is not None and not self.learned:
            sizes = np.broadcast_to(self._sizes(), values.shape[1])
            rising = [
                log_rising_of(counts, size)[at] for size, at in zip(sizes, place.T, strict=True)
            ]
            return {"log_base": found["log_base"] + np.stack(rising, axis=1)}
        for k, size in enumerate(np.exp(_nodes())):
            found[f"rising_{k}"] = log_rising_of(counts, np.array([size]))[place]
        return found

    def _sizes(self) -> NDArray:
        """One over the dispersion of each column."""
        dispersion = 0.0 if self.dispersion is None else self.dispersion
        return 1 / np.maximum(np.atleast_1d(np.asarray(dispersion, float)), NONE)

    def likelihood(self, figures: Figures) -> NegativeBinomialLikelihood:  # type: ignore[override]
        """``sum_j y_ij ~ NB(mean E_i theta_i, size n_i / dispersion)``."""
        exposure = np.asarray(figures.get("weight", figures["n"]), float)
        counts = np.rint(figures["mean"] * exposure[:, None]).astype(np.int64)
        sizes = figures["n"][:, None] * np.broadcast_to(self._sizes(), counts.shape[1])
        return NegativeBinomialLikelihood(counts, exposure, sizes)

    def log_base_measure(self, summary: Summary) -> NDArray:
        """Log-probability of how the events of a group are spread over its rows."""
        likelihood = self.likelihood(self.figures(summary))
        if "log_base" not in summary.sums:  # one row of all the exposure
            return np.zeros(len(summary))
        base = summary.sums["log_base"]
        if "rising_0" in summary.sums:
            table = np.stack([summary.sums[f"rising_{k}"] for k in range(N_NODES)])
            at = np.broadcast_to(np.log(self._sizes()), summary.n_features)
            columns = [  # beyond all nodes, every factor is the size
                _between(table[:, :, j], x) if x <= HIGHEST else likelihood.counts[:, j] * x
                for j, x in enumerate(at)
            ]
            base = base + np.stack(columns, axis=1)
        return base.sum(axis=1) - likelihood.log_coefficient()

    def sampling_variance(self, theta: Any, size: Any, column: int = 0) -> Any:
        """``theta / E + dispersion theta**2 / E`` for rows of exposure 1."""
        return theta * (1 + theta / self._sizes()[min(column, len(self._sizes()) - 1)]) / size

    def simulate(
        self, theta: NDArray, size: NDArray, rng: np.random.Generator, column: int = 0
    ) -> NDArray:
        """Draw events over exposures, of rows of exposure 1."""
        number = size * self._sizes()[min(column, len(self._sizes()) - 1)]
        return rng.poisson(rng.gamma(number, theta * size / number)) / size

    def outcomes(self, size: float, highest: float) -> NDArray:
        """List the rates ``0, 1/E, 2/E, ...`` up to the highest."""
        return np.arange(int(np.ceil(highest * size)) + 1) / size

    def typical(self, size: float, n_features: int) -> Any:
        """Likelihood of one group of this exposure."""
        return Family.typical(self, size, n_features)

    def blank(self, n: NDArray, n_features: int, weight: NDArray | None = None) -> Summary:
        """Return a summary of groups with so many rows, without events."""
        summary = super().blank(n, n_features, weight)
        names = self._base_of_rows(np.zeros((1, n_features)), np.ones(1))
        nothing = np.zeros((len(n), n_features))
        return type(summary)(
            summary.ids,
            summary.n,
            summary.mean,
            summary.scatter,
            weight=summary.weight,
            sums=dict.fromkeys(names, nothing),
        )

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
        names = ("n", "weight", "mean", *(f"rising_{k}" for k in range(len(nodes))))
        figures = {
            name: np.concatenate([message.get(name, message["n"]) for message in messages])
            for name in names
        }
        # groups in an order of their own: sums do not depend on who sent which first
        own = figures["n"], figures["mean"][:, 0], figures["rising_0"][:, 0]
        order = np.lexsort(own)
        figures = {name: values[order] for name, values in figures.items()}
        n, sums = figures["n"], figures["mean"] * np.asarray(figures["weight"], float)[:, None]
        sums = np.rint(sums).astype(np.int64)
        informed = bool(((n[:, None] > 1) & (sums > 1)).any())
        totals = np.array([figures[f"rising_{k}"].sum(axis=0) for k in range(len(nodes))])
        for j, column in enumerate(sums.T):
            _, first, times = number_rows([n, column])
            sizes = np.maximum(n[first], 1) * np.exp(nodes)[:, None]
            totals[:, j] -= log_rising_of(column[first], sizes) @ times
        if not informed:
            return None
        grid, found = np.linspace(LOWEST, HIGHEST, 200), []
        for column in totals.T:
            heights = np.array([_between(column, x) for x in grid])
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


def _nodes() -> NDArray:
    """Chebyshev nodes on the range of logarithms of sizes."""
    unit = np.cos((np.arange(N_NODES) + 0.5) * np.pi / N_NODES)
    return (LOWEST + HIGHEST) / 2 + (HIGHEST - LOWEST) / 2 * unit


def _between(values: NDArray, x: float) -> Any:
    """Polynomial through values at the nodes, by its barycentric form.

    Examples
    --------
    >>> float(_between(_nodes() ** 2, 1.5).round(10))
    2.25
    """
    nodes = _nodes()
    gap = x - nodes
    if np.any(gap == 0):
        return values[int(np.argmin(np.abs(gap)))]
    signs = np.sin((np.arange(N_NODES) + 0.5) * np.pi / N_NODES) * (-1.0) ** np.arange(N_NODES)
    weights = signs / gap
    return np.tensordot(weights, values, axes=1) / weights.sum()
