"""Reports about local values with a density, whose law is known but for theta."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ebfed.likelihoods.reported import Reported

__all__ = ["ReportedNumbers"]

# Cells of the range over which the law of a report is averaged, and points in each: laws may jump.
CELLS, POINTS = 400, 8


@dataclass(frozen=True)
class ReportedNumbers(Reported):
    """Reports about values ``x_i`` whose law depends on theta and public degrees of freedom.

    The range is cut into cells. The density of a report is averaged within each, and weighed by the
    probability that the local value is there.

    Parameters
    ----------
    law, reports, has_data, sizes, centre, half :
        See `Reported`.
    degrees : ndarray of shape (n,)
    """

    degrees: NDArray

    _of_clients: ClassVar[tuple[str, ...]] = (*Reported._of_clients, "degrees")

    def _mixed(self, below: Callable[[NDArray, float], NDArray], k: int, j: int) -> NDArray:
        """Density of the reports where local values have k laws, shape (n, k).

        `below` is the distribution function of a local value on so many degrees of freedom.
        """
        density = np.ones((len(self), k))
        edges = self.centre[j] + self.half[j] * np.linspace(-1, 1, CELLS + 1)
        for degrees, clients, table in self._tables[j]:
            inside = below(edges, degrees)
            ends = np.zeros((1, inside.shape[1])), np.ones((1, inside.shape[1]))
            masses = np.diff(np.concatenate([ends[0], inside, ends[1]]), axis=0)
            density[clients] = table @ masses
        return density

    @cached_property
    def _tables(self) -> list[list[tuple[float, NDArray, NDArray]]]:
        """For each coordinate: degrees, clients with them, and their reports' density by cell."""
        within = ((np.arange(POINTS) + 0.5) / POINTS)[:, None]
        inside = -1 + 2 * (np.arange(CELLS) + within) / CELLS
        ends = np.ones((POINTS, 1))  # to which values beyond are clipped
        u = np.hstack([-ends, inside, ends])
        tables = []
        for j in range(self.n_features):
            parts = []
            for degrees in np.unique(self.degrees[self.has_data[:, j]]):
                clients = np.flatnonzero(self.has_data[:, j] & (self.degrees == degrees))
                reports, sizes = self.reports[clients, j], self.sizes[clients]
                table = np.zeros((len(clients), CELLS + 2))
                for each in u:
                    table += self.law.density(reports, each, sizes) / POINTS
                parts.append((float(degrees), clients, table))
            tables.append(parts)
        return tables
