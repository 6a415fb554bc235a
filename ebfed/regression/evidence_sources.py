"""Evidence of clients' rows for the components of a mixture: of numbers, or of classes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ebfed.regression.families import Binomial, Responses
from ebfed.regression.numerics.evidence import (
    Evidence,
    MixturePopulation,
    RotatedRows,
    rotate,
    weigh,
)
from ebfed.regression.posteriors.approximate import GaussianRows
from ebfed.regression.posteriors.softmax import approximate
from ebfed.regression.protocol import MixtureMemory, MixtureSent
from ebfed.regression.reading import repeated
from ebfed.tables.clients import Clients
from ebfed.tables.factors import Factors

__all__ = [
    "ClassEvidence",
    "EvidenceSource",
    "NumberEvidence",
    "rotated",
    "rows_of",
    "weigh_classes",
]


class EvidenceSource(ABC):
    """Evidence of clients' rows for the components of a mixture."""

    @abstractmethod
    def block(self, clients: Clients, weight: NDArray[np.float64] | None = None) -> Any:
        """Return what is kept of clients' rows, which may have weights."""

    @abstractmethod
    def squares(self, clients: Any) -> NDArray[np.float64]:
        """Sums of squares of the columns of ``[X y]``, shape (n, p + 1)."""

    def prepare(self, sent: MixtureSent, memory: MixtureMemory, clients: Any) -> MixtureMemory:
        """Return memory with what is needed in every round, in the units of the server."""
        return memory

    @abstractmethod
    def weigh(
        self,
        sent: MixtureSent,
        memory: MixtureMemory,
        clients: Any,
        population: MixturePopulation,
    ) -> Evidence:
        """Weigh clients' rows, in the units of the server."""

    def n_responses(self, classes: NDArray | None) -> int:
        """Number of coefficients that each column has."""
        return 1


@dataclass(frozen=True)
class NumberEvidence(EvidenceSource):
    """Evidence of numbers with normal noise, from triangular factors of the rows.

    Parameters
    ----------
    by : callable
        Function from rotated rows and a population to the `Evidence` of clients: `weigh`, or that
        of components of another shape.
    """

    by: Callable[[RotatedRows, MixturePopulation], Evidence] = weigh

    def block(
        self, clients: Clients | Factors, weight: NDArray[np.float64] | None = None
    ) -> Factors:
        """Return the clients' triangular factors."""
        return clients if isinstance(clients, Factors) else Factors.of(clients, weight)

    def squares(self, clients: Factors) -> NDArray[np.float64]:
        return (clients.rows**2).sum(axis=1)

    def prepare(self, sent: MixtureSent, memory: MixtureMemory, clients: Factors) -> MixtureMemory:
        """Return memory with the rotated rows, in the units of the server."""
        if "design" in memory:
            return memory
        return memory | rotated(clients.padded(sent["rank"]) / sent["units"], clients.n)

    def weigh(
        self,
        sent: MixtureSent,
        memory: MixtureMemory,
        clients: Factors,
        population: MixturePopulation,
    ) -> Evidence:
        return self.by(rows_of(memory), population)


class ClassEvidence(EvidenceSource):
    """Evidence of classes, from the rows themselves."""

    def block(self, clients: Clients, weight: NDArray[np.float64] | None = None) -> Clients:
        """Return the clients as they are, their rows as often as the weights say."""
        return clients if weight is None else repeated(clients, weight)

    def squares(self, clients: Clients) -> NDArray[np.float64]:
        """Sums of squares of the columns of X, and numbers of rows: logits have a unit of one."""
        owner = np.repeat(np.arange(len(clients)), clients.n)
        columns = [np.bincount(owner, x**2, len(clients)) for x in clients.X.T]
        return np.stack([*columns, clients.n.astype(float)], axis=1)

    def weigh(
        self,
        sent: MixtureSent,
        memory: MixtureMemory,
        clients: Clients,
        population: MixturePopulation,
    ) -> Evidence:
        return weigh_classes(clients, population, sent["units"][:-1], sent["classes"])

    def n_responses(self, classes: NDArray | None) -> int:
        """Number of coefficients of each column: one for each class but the first."""
        return 1 if classes is None else len(classes) - 1


def rotated(factors: NDArray, sizes: NDArray) -> MixtureMemory:
    """Return rotated rows as what clients keep."""
    return cast(MixtureMemory, rotate(factors, sizes)._asdict())


def rows_of(memory: MixtureMemory) -> RotatedRows:
    """Return the rotated rows that clients kept."""
    return RotatedRows(*(cast(dict, memory)[name] for name in RotatedRows._fields))


def weigh_classes(
    clients: Clients, population: MixturePopulation, units: NDArray, classes: NDArray
) -> Evidence:
    """Weigh the rows of clients against every component.

    In coordinates in which a component is standard normal, a client's coefficients have mean a and
    covariance V: with D the component's variances, ``g = D^-1/2 a`` and ``P = D^-1/2 (I - V)
    D^-1/2`` are what `evidence` has for normal rows. Of Laplace's approximation ``a = mode +
    shift``, and its slope in a variance is that of the rows less ``shift_j**2 / (2 D_jj)``.
    """
    parts = []
    for mean, variances in zip(population.means, population.variances, strict=True):
        # no variance of the population is one so small that only the evidence notices
        root = np.broadcast_to(np.maximum(np.sqrt(variances), 1e-8), units.shape)
        shift: Any = 0.0
        if len(classes) == 2:
            rows = Responses.of(clients, classes)
            two = GaussianRows.of(clients, rows, Binomial(), [len(units)], "ep")
            X, offset = clients.X * (root / units), clients.X @ (mean / units)
            a, V, log = two.moments(X, offset)
        else:
            mode, V, shift, log = approximate(clients, mean / units, root / units, classes)
            a = mode + shift
        values, vectors = np.linalg.eigh(np.eye(len(units)) - V)
        white = np.sqrt(np.maximum(values, 0))[:, :, None] * vectors.swapaxes(1, 2) / root
        slope = a / root
        own = (white**2).sum(axis=1)
        squares = ((white.swapaxes(1, 2) @ white) ** 2).sum(axis=2)
        steps = 0.5 * (slope**2 - (shift / root) ** 2 - own), 0.5 * own**2, 0.5 * (squares - own**2)
        if len(variances) == 1:
            steps = steps[0].sum(axis=1)[:, None], 0.5 * squares.sum(axis=1)[:, None], None
            steps = *steps[:2], np.zeros_like(steps[1])
        nothing = np.zeros(len(log))
        figures = *steps, np.zeros_like(steps[0]), nothing, nothing
        parts.append((log, slope, *figures, white, np.ones(white.shape[:2])))
    return Evidence.of(parts)
