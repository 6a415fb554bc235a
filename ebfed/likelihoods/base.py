"""What a message says about a client's parameter.

A `Likelihood` is a batch of n clients. It gives the probability of each client's message under any
value theta of the parameter. Priors are fitted to it, and posteriors are computed from it, whatever
channel sent the message. An implementation

- gives `logpdf`, the log-probability (density) of each client's message at each of k values of
  theta, normalised over messages, so that fits of different priors can be compared; it is 0
  everywhere for a client without information;
- states the `support` of theta and the dimension `n_features`;
- has `nodes`, a one-dimensional grid fine enough that the likelihood of every client is
  smooth between neighbours, which covers all values that are likely for some client;
- is maximised over theta for weighted groups of clients (`combine`), the M-step of any
  mixture;
- merges clients whose messages are (nearly) the same into one row with a count (`compress`), so
  that a fit costs the number of different messages, not of clients;
- is immutable, and `take`s clients by position.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ebfed.likelihoods.distinct import distinct_in_order, number_rows, repeats
from ebfed.likelihoods.lattice import Lattice

PartsOfReports = tuple[Callable[..., "Likelihood"], NDArray, dict[str, NDArray]]

__all__ = ["MANY", "Joined", "Likelihood", "between_scales", "join", "without_gaps"]

MANY = 20_000  # rows beyond which fewer are used first


class Likelihood(ABC):
    """Likelihoods of the parameters theta_1 … theta_n of n clients, given their messages."""

    support: ClassVar[tuple[float, float]]
    is_noisy: ClassVar[bool] = False
    """Whether messages are reports of a channel that clips, rounds or randomises."""
    adds_noise: bool = True
    """Whether messages are local means, perhaps with noise that was added."""
    counts_rows: ClassVar[bool] = False
    """Whether local estimates are proportions of rows, so that reports may be of counts."""
    adds_up: ClassVar[bool] = False
    """Whether the coordinates of theta are shares that add up to 1."""
    row_counts: int = 0
    """Rows of the first client, of which its reports may be counts; 0 where they are none."""

    # Fields with a row for each client: the first has a column for each coordinate of theta, and so
    # have the second ones, where they are rows; others have an entry for each.
    _of_clients: ClassVar[tuple[str, ...]] = ()
    _of_coordinates: ClassVar[tuple[str, ...]] = ()

    @property
    def n_features(self) -> int:
        """Dimension d of theta."""
        return int(getattr(self, self._of_clients[0]).shape[1])

    def __len__(self) -> int:
        """Count the clients."""
        return len(getattr(self, self._of_clients[0]))

    @abstractmethod
    def logpdf(self, theta: NDArray) -> NDArray:
        """Log-likelihood of each client at each value.

        Parameters
        ----------
        theta : ndarray of shape (k, d)
            Of likelihoods whose local estimates have a `sampling_variance`, also of shape (n, k,
            d): k values for each client.

        Returns
        -------
        ndarray of shape (n, k)
        """

    @abstractmethod
    def log_peak(self) -> NDArray:
        """Log-likelihood of each client at its own best guess, shape (n,)."""

    @abstractmethod
    def marginal(self, mean: NDArray, variance: NDArray) -> NDArray:
        """Log marginal likelihood under the conjugate population with these moments, shape (n,).

        Normal where theta lives on the line, beta on [0, 1]; coordinates are independent.

        Parameters
        ----------
        mean, variance : ndarray of shape (d,)
            Of exact counts, also (n, d), where the share of the variance that depends on the mean
            is one for all clients.
        """

    def marginals(self, means: NDArray, variances: NDArray) -> NDArray:
        """Log marginal likelihoods under k conjugate populations, shape (n, k).

        Parameters
        ----------
        means, variances : ndarray of shape (k, d)
        """
        pairs = zip(means, variances, strict=True)
        found = [self.marginal(mean, variance) for mean, variance in pairs]
        return np.stack(found, axis=1) if found else np.empty((len(self), 0))

    def sampling_variance(self, mean: float, variance: float) -> NDArray:
        """Variance of local estimates around theta, averaged over a population, shape (n,).

        Parameters
        ----------
        mean, variance : float
            Moments of the population of the first coordinate; a mean may be that of each client.
        """
        raise TypeError(f"{type(self).__name__} clients have no local estimates of known variance.")

    def feasible(self, mean: float, variance: float) -> tuple[float, float]:
        """Return the nearest moments that a population on the support can have."""
        return mean, variance

    def through(
        self, law: Any, reports: NDArray, has_data: NDArray, centre: NDArray, half: NDArray
    ) -> Likelihood:
        """Likelihood of reports on these clients' local estimates; see `Reported`.

        Raises
        ------
        TypeError
            If these clients cannot report through such a channel.
        ValueError
            If the scale of the variances is open.
        """
        kind, has_data, public = self._reported(law, has_data)
        sizes = public.pop("sizes", np.zeros(len(self), np.int64))
        return kind(law, reports, has_data, sizes, centre, half, **public)

    def _reported(self, law: Any, has_data: NDArray) -> PartsOfReports:
        """Kind of likelihood of reports, clients that have one, and what more is public of them.

        Numbers of rows are 0 unless they are public, as no report is a count of them.
        """
        raise TypeError(f"{type(self).__name__} clients cannot report through a channel.")

    def blurred(self, variance: NDArray) -> Likelihood:
        """Likelihood of these clients' means plus Gaussian noise of a known variance."""
        raise TypeError(f"{type(self).__name__} clients cannot report plain noisy means.")

    def resampled(self, theta: NDArray, rng: np.random.Generator) -> Self:
        """Draw new messages of these clients, whose parameters are theta of shape (n, d).

        Clients without information still have none.

        Raises
        ------
        TypeError
            If messages are reports of a channel that clips, rounds or randomises.
        """
        raise TypeError(
            "new messages are drawn for means and counts that are exact or have plain Gaussian "
            f"noise, not for {type(self).__name__}."
        )

    @property
    @abstractmethod
    def local(self) -> NDArray:
        """Each client's own best guess, shape (n, d); NaN where its message says nothing."""

    @property
    def exact(self) -> NDArray | None:
        """Values of theta that messages show exactly, shape (n, d), NaN where they do not.

        None if no message does. `logpdf` is 0 there, as a point has no density.
        """
        return None

    @abstractmethod
    def nodes(self, k: int) -> NDArray:
        """Return an increasing grid of at least `k` values of a scalar theta, shape (>= k,)."""

    def mirrored(self) -> tuple[Self, float] | None:
        """Messages about ``total - theta``, of the same kind of law, and the total; or None."""
        return None

    def search(self, k: int) -> NDArray:
        """Return nodes, and values between them that show peaks of very precise clients."""
        return self.nodes(k)

    def combine(self, weights: NDArray) -> NDArray:
        """Maximise ``sum_i weights[i, j] * logpdf_i(theta)`` over theta for each column j.

        Coordinate by coordinate: the best of the nodes, refined by parabolas.

        Parameters
        ----------
        weights : ndarray of shape (n, k)

        Returns
        -------
        ndarray of shape (k, d)
        """
        if self.n_features > 1:
            return np.hstack([column.combine(weights) for column in self._columns])
        nodes, values = self._at_nodes
        low, high = nodes[0], nodes[-1]
        best = nodes[np.argmax(weights.T @ values, axis=1)]
        step = np.full(len(best), np.diff(nodes).max())
        for _ in range(10):
            left, here, right = (
                (weights * self.logpdf(np.clip(best + side * step, low, high)[:, None])).sum(axis=0)
                for side in (-1, 0, 1)
            )
            bend = 2 * here - left - right
            move = np.clip((right - left) / np.where(bend > 0, 2 * bend, np.inf), -1, 1)
            best = np.clip(best + step * move, low, high)
            step = step / 3
        return best[:, None]

    @cached_property
    def _columns(self) -> list[Self]:
        """Each coordinate: what repeated calls of `combine` share."""
        return [self.column(j) for j in range(self.n_features)]

    @cached_property
    def _at_nodes(self) -> tuple[NDArray, NDArray]:
        """Nodes, and the log-likelihoods there: what repeated calls of `combine` share."""
        nodes = self.nodes(400)
        return nodes, np.maximum(self.logpdf(nodes[:, None]), -1e300)  # 0 * -inf is no number

    @property
    def _columns_of_messages(self) -> list[NDArray]:
        """What equal messages have in common, in the order by which `compress` sorts them."""
        raise NotImplementedError

    def compress(self) -> tuple[Self, NDArray]:
        """Return one row for each distinct message, and how many clients sent it.

        Clients without information, or whose message shows theta exactly, are left out. The order
        of rows depends on the messages alone, whatever that of clients.
        """
        first, times = distinct_in_order(self._columns_of_messages)
        rows = self.take(first)
        informed = np.isfinite(rows.local).all(axis=1)
        return (rows, times) if informed.all() else (rows.take(informed), times[informed])

    def distinct(self) -> tuple[Self, NDArray]:
        """As `compress`, merging only messages that are equal."""
        return self.compress()

    def summed(self) -> tuple[Self, NDArray]:
        """As `compress`, for sums over clients of smooth functions of their messages.

        Rows may be messages between those of clients, with counts that are negative; see `Lattice`.
        """
        return self.compress()

    def weighed(self, counts: NDArray) -> tuple[Likelihood, NDArray]:
        """Rows that stand for these in sums of smooth functions, and weights for these counts."""
        return self, counts

    @property
    def lattice(self) -> Lattice | None:
        """Messages that figures of the clients can be interpolated between, where that is worth it.

        They stand for the clients that are neither without information nor seen exactly.
        """
        return None

    @property
    def at_lattice(self) -> Any:
        """Messages at the nodes of the lattice; None without one."""
        return None

    def numbered(self) -> tuple[Self, NDArray] | None:
        """Return one row for each distinct message, and which of them each client has, shape (n,).

        None if messages are numbers, of which hardly two are equal.
        """
        return None

    def _numbered(self) -> tuple[Self, NDArray] | None:
        """Return what `numbered` does, of messages that are counts."""
        columns = self._columns_of_messages
        if columns[0].dtype.kind == "f" and not repeats(columns[0]):
            return None
        codes, first, _ = number_rows(columns)
        return self.take(first), codes

    def condensed(self, counts: NDArray) -> tuple[Self, NDArray]:
        """Fewer rows, and counts, that stand for many of one coordinate: an even tenth of them.

        Parameters
        ----------
        counts : ndarray of shape (n,)
            How many clients each row stands for now.
        """
        if len(self) <= MANY:
            return self, counts
        few = np.argsort(self.local[:, 0], kind="stable")[5::10]
        return self.take(few), counts[few] * (counts.sum() / counts[few].sum())

    def relative(self, theta: NDArray) -> NDArray:
        """Likelihood of each client at theta of shape (k, d), over that at its peak, (n, k)."""
        return np.exp(self.logpdf(theta) - self.log_peak()[:, None])

    def tally(self, masses: NDArray, nodes: NDArray) -> NDArray:
        """``sum_i masses_i L_i(node) / L_i(peak)`` at increasing values of a scalar theta.

        Parameters
        ----------
        masses : ndarray of shape (n,)
            Positive weights of the clients.
        nodes : ndarray of shape (k,)

        Returns
        -------
        ndarray of shape (k,)
        """
        n_blocks = 1 + len(self) * len(nodes) // 4_000_000
        edges = np.linspace(0, len(self), n_blocks + 1).astype(int)
        return np.sum(
            [
                masses[slice(*edge)] @ self.take(slice(*edge)).relative(nodes[:, None])
                for edge in pairwise(edges)
            ],
            axis=0,
        )

    def column(self, j: int) -> Self:
        """Keep one coordinate of theta."""
        if self.n_features == 1:
            return self
        axes = {name: int(name in self._of_clients) for name in self._of_coordinates}
        kept = {name: np.take(getattr(self, name), [j], axis) for name, axis in axes.items()}
        return self._with(**kept)

    def take(self, index: NDArray | slice) -> Self:
        """Keep the clients in these positions (or where a mask is true)."""
        return self._with(**{name: getattr(self, name)[index] for name in self._of_clients})

    def _with(self, **fields: Any) -> Self:
        return replace(self, **fields)  # type: ignore[type-var]

    @classmethod
    def concatenated(cls, parts: Sequence[Self]) -> Self | None:
        """Put likelihoods of this kind one after another; None if they stay parts of a `Joined`.

        They do where they have more than the rows of clients.
        """
        others = [each for each in fields(cls) if each.name not in cls._of_clients]  # type: ignore[arg-type]
        if any(each.default is MISSING for each in others):
            return None
        rows = [np.concatenate([getattr(x, name) for x in parts]) for name in cls._of_clients]
        return cls(*rows)

    def split(self, n_blocks: int) -> list[Self]:
        """Cut into at most `n_blocks` blocks of about as many clients each."""
        edges = np.linspace(0, len(self), max(1, min(n_blocks, len(self))) + 1).astype(int)
        return [self.take(slice(*edge)) for edge in pairwise(edges)]


def without_gaps(nodes: NDArray, k: int) -> NDArray:
    """Put even points into gaps between nodes that are longer than a k-th of all.

    Where there are none the distances stay equal, so that sums are those of a trapezoidal rule,
    whose error falls exponentially with their number.

    Examples
    --------
    >>> without_gaps(np.array([0.0, 0.1, 1.0]), 4)
    array([0.   , 0.1  , 0.325, 0.55 , 0.775, 1.   ])
    """
    gaps = np.diff(nodes)
    longest = (nodes[-1] - nodes[0]) / k
    parts = [
        np.linspace(nodes[j], nodes[j + 1], int(np.ceil(gaps[j] / longest)) + 1)[1:-1]
        for j in np.flatnonzero(gaps > 1.5 * longest)
    ]
    return np.sort(np.concatenate([nodes, *parts]))


# Ratio of the widths of two classes, distance of values in units of the smallest width of a class,
# and how many there are on each side of a centre.
RATIO, STEP, REACH = np.sqrt(2.0), 0.6, 6


def between_scales(nodes: NDArray, centres: NDArray, widths: NDArray) -> NDArray:
    """Values that a grid lacks for a sum of bells of these centres and widths to show its peaks.

    Beyond its points of inflection a bell is convex, so that a peak of the sum is within one width
    of some centre. Each centre has values about half a width apart, up to three widths away, but
    for those near which there is a node, or a value for a narrower bell.

    Parameters
    ----------
    nodes : increasing ndarray of shape (k,)
        Values outside of their range are left out.
    centres, widths : ndarray of shape (n,)
        Widths positive.

    Returns
    -------
    increasing ndarray

    Examples
    --------
    >>> between_scales(np.linspace(-5, 5, 11), np.array([0.0, 1.0]), np.array([2.0, 0.1])).round(2)
    array([0.64, 0.7 , 0.76, 0.82, 0.88, 0.94, 1.06, 1.12, 1.18, 1.24, 1.3 , 1.36])
    """
    low, high, smallest = nodes[0], nodes[-1], widths.min(initial=np.inf)
    classes = np.floor(np.log(widths / smallest) / np.log(RATIO) + 1e-9).astype(np.int64)
    offsets, points = np.arange(-REACH, REACH + 1), nodes
    for each in np.unique(classes):
        step = STEP * smallest * RATIO**each
        own = centres[classes == each]
        cells = np.rint((own - own.min()) / step)
        found = own.min() + np.unique(cells[:, None] + offsets) * step
        found = found[(found > low) & (found < high)]
        place = np.searchsorted(points, found)
        before, after = points[np.maximum(place - 1, 0)], points[np.minimum(place, len(points) - 1)]
        apart = np.minimum(np.abs(found - before), np.abs(after - found)) > step / 2
        points = np.union1d(points, found[apart])
    return np.setdiff1d(points, nodes, assume_unique=True)


def parts_of(likelihood: Likelihood) -> tuple[Likelihood, ...]:
    """Likelihoods that were joined, or the only one."""
    return likelihood.parts if isinstance(likelihood, Joined) else (likelihood,)


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
        return sum(map(len, self.parts))

    def logpdf(self, theta: NDArray) -> NDArray:
        own = [theta] * len(self.parts)
        if theta.ndim == 3:
            own = np.split(theta, np.cumsum([len(part) for part in self.parts])[:-1])
        return np.concatenate([part.logpdf(at) for part, at in zip(self.parts, own, strict=True)])

    def sampling_variance(self, mean: Any, variance: float) -> NDArray:
        own = [mean] * len(self.parts)
        if np.ndim(mean):
            own = np.split(mean, np.cumsum([len(part) for part in self.parts])[:-1])
        pairs = zip(self.parts, own, strict=True)
        return np.concatenate([part.sampling_variance(at, variance) for part, at in pairs])

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
        return type(self)(tuple(part.column(j) for part in self.parts))

    def take(self, index: NDArray | slice) -> Self:
        kept = np.arange(len(self))[index]
        edges = np.cumsum([0, *map(len, self.parts)])
        place = np.searchsorted(edges, kept, side="right") - 1
        # clients stay grouped by part, in the order asked for within each
        return type(self)(
            tuple(part.take(kept[place == p] - edges[p]) for p, part in enumerate(self.parts))
        )
