"""Messages of different channels, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ebfed.likelihoods.base import Likelihood

__all__ = ["Joined", "join"]


def join(parts: Sequence[Likelihood]) -> Likelihood:
    """Put likelihoods of different clients one after another, as one law where they are one.

    Examples
    --------
    >>> from ebfed.likelihoods import Binomial
    >>> join([Binomial(np.array([[1]]), np.array([2])), Binomial(np.array([[0]]), np.array([3]))])
    Binomial(successes=array([[1],
           [0]]), trials=array([2, 3]))
    """
    parts = [part for part in parts if len(part)] or list(parts[:1])
    if len(parts) == 1:
        return parts[0]
    kind = type(parts[0])
    if all(type(part) is kind for part in parts):
        together = kind.concatenated(parts)
        if together is not None:
            return together
    return Joined(tuple(parts))


@dataclass(frozen=True)
class Joined(Likelihood):
    """Likelihoods of different clients about parameters of the same kind, one after another.

    Parameters
    ----------
    parts : tuple of Likelihood
        At least one; all with one support and dimension.

    Examples
    --------
    >>> from ebfed.likelihoods import Gaussian
    >>> sharp = Gaussian(np.array([[0.0]]), np.array([[0.1]]))
    >>> blunt = Gaussian(np.array([[1.0], [2.0]]), np.array([[1.0], [1.0]]))
    >>> len(Joined((sharp, blunt)))
    3
    """

    parts: tuple[Likelihood, ...]

    @property
    def is_noisy(self) -> bool:  # type: ignore[override]
        """Whether some messages are reports of a channel."""
        return any(part.is_noisy for part in self.parts)

    @property
    def adds_noise(self) -> bool:  # type: ignore[override]
        """Whether all messages are local means, perhaps with noise that was added."""
        return all(part.adds_noise for part in self.parts)

    @property
    def adds_up(self) -> bool:  # type: ignore[override]
        """Whether the coordinates of theta are shares that add up to 1."""
        return self.parts[0].adds_up

    @property
    def support(self) -> tuple[float, float]:  # type: ignore[override]
        """Interval in which theta lies."""
        return self.parts[0].support

    @property
    def n_features(self) -> int:
        return self.parts[0].n_features

    def __len__(self) -> int:
        """Count the clients."""
        return sum(map(len, self.parts))

    def logpdf(self, theta: NDArray) -> NDArray:
        """Log-likelihood of each client at each value, shape (n, k)."""
        return np.concatenate([part.logpdf(theta) for part in self.parts])

    def marginal(self, mean: NDArray, variance: NDArray) -> NDArray:
        return np.concatenate([part.marginal(mean, variance) for part in self.parts])

    def marginals(self, means: NDArray, variances: NDArray) -> NDArray:
        return np.concatenate([part.marginals(means, variances) for part in self.parts])

    def log_peak(self) -> NDArray:
        return np.concatenate([part.log_peak() for part in self.parts])

    @property
    def local(self) -> NDArray:
        return np.concatenate([part.local for part in self.parts])

    @property
    def exact(self) -> NDArray | None:
        known = [part.exact for part in self.parts]
        if all(values is None for values in known):
            return None
        return np.concatenate(
            [
                np.full((len(part), self.n_features), np.nan) if values is None else values
                for part, values in zip(self.parts, known, strict=True)
            ]
        )

    def nodes(self, k: int) -> NDArray:
        """Nodes of all parts."""
        return np.unique(np.concatenate([part.nodes(k) for part in self.parts if len(part)]))

    def search(self, k: int) -> NDArray:
        """Values of all parts."""
        return np.unique(np.concatenate([part.search(k) for part in self.parts if len(part)]))

    def compress(self) -> tuple[Self, NDArray]:
        """Compress each part."""
        rows, counts = zip(*[part.compress() for part in self.parts], strict=True)
        return type(self)(rows), np.concatenate(counts)

    def column(self, j: int) -> Self:
        """One coordinate."""
        return type(self)(tuple(part.column(j) for part in self.parts))

    def take(self, index: NDArray | slice) -> Self:
        kept = np.arange(len(self))[index]
        edges = np.cumsum([0, *map(len, self.parts)])
        place = np.searchsorted(edges, kept, side="right") - 1
        # clients stay grouped by part, in the order asked for within each
        return type(self)(
            tuple(part.take(kept[place == p] - edges[p]) for p, part in enumerate(self.parts))
        )
