r"""Vectors as integers, whose sum over nodes is private without a trusted server.

A node has some rows of real numbers, one for each of its clients, of a norm of at most C. It rounds
them at random to a grid of step :math:`\gamma`, adds them up, and adds its share of discrete
Gaussian noise. The sum over nodes by `ebfed.engines.secure_sum` then has all noise, and is what a
trusted server would publish: nobody sees a vector with less.

*How private.* With at least m honest nodes in the sum, it costs what one release with Gaussian
noise of standard deviation z C costs (`ebfed.privacy.discrete_gaussian`), to any account of
clients who join or do not. Each node draws noise for m nodes. If more than m are in the sum, it has
more noise than needed, as it must: a sum does not know who will stay, or is honest.

*How exact.* Rounding is unbiased: up with a probability that is the fraction. It can make a row
longer, so rows are rounded again until their norm is at most

.. math:: \Delta^2 = C^2 + \tfrac{1}{4} \gamma^2 d
    + \sqrt{2 \log(1/\beta)}\, \gamma\, (C + \tfrac{1}{2} \gamma \sqrt d),

or :math:`C + \gamma\sqrt d` if that is less, which no rounding exceeds. Here :math:`\beta` is 1e-9,
the largest probability of a second try. The grid is the finest with which no sum can overflow, and
its step a power of two, so that sums are exact floats. With 32 bits neither counts: a random
rotation, which flattens vectors for small integers, is not needed.

References
----------
Kairouz, Liu and Steinke (2021), The distributed discrete Gaussian mechanism for federated learning
with secure aggregation, Algorithm 1 and Theorem 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.channels import secure
from ebfed.privacy import events
from ebfed.privacy.calibration import as_float, check_count, check_positive
from ebfed.privacy.discrete_gaussian import distributed_multiplier, distributed_sigma
from ebfed.tables.clients import LARGEST, SMALLEST

__all__ = ["IntegerSum"]

# The share of rows that may be rounded twice.
BETA = 1e-9
# Noise of a node is within so many standard deviations, but once in 1e22 numbers.
REACH = 10.0
# Rounding of norms that is let pass, as in what learners check.
MARGIN = 1e-9


@dataclass(frozen=True)
class IntegerSum:
    """How rows become integers, and sums of integers sums of rows.

    Parameters
    ----------
    norm : float
        Largest Euclidean norm C of a row.
    size : int
        Length d of the rows.
    nodes : int
        Number of nodes.
    rows : int
        Largest number of rows of one node.
    multiplier : float
        Noise multiplier z: the noise of the sum costs as much as Gaussian noise of standard
        deviation z C. 0 for none.
    survivors : int, optional
        Least number m of nodes in a sum that are honest; at most the threshold of the secure sum,
        less the nodes that may be on the server's side. None: `nodes`.
    bits : {16, 32, 64}
        Bits of the integers, as of the secure sum.

    Raises
    ------
    ValueError
        If an argument is invalid, or the integers are too short for the grid that is needed.

    Examples
    --------
    Five nodes of one client each, of which four stay to the end:

    >>> grid = IntegerSum(norm=1.0, size=3, nodes=5, rows=1, multiplier=0.5, survivors=4)
    >>> rng = np.random.default_rng(0)
    >>> sent = [grid.encode(np.array([[0.1, 0.2, -0.3]]), rng) for _ in range(4)]
    >>> sent[0].dtype, grid.decode(sum(sent)).round(1)
    (dtype('int64'), array([ 0.5,  0.2, -1.3]))
    >>> grid.noise(4), grid.noise(5)
    (0.5, 0.559)
    """

    norm: float
    size: int
    nodes: int
    rows: int
    multiplier: float = 0.0
    survivors: int | None = None
    bits: int = 32

    def __post_init__(self) -> None:
        if not SMALLEST <= check_positive("norm", self.norm) <= LARGEST:
            raise ValueError(
                f"norm must lie between {SMALLEST:g} and {LARGEST:g}; got {self.norm!r}."
            )
        for name in ("size", "nodes", "rows"):
            check_count(name, getattr(self, name))
        z = as_float(self.multiplier)
        if not 0 <= z < math.inf:
            raise ValueError(f"multiplier must be a number, 0 or above; got {self.multiplier!r}.")
        if self.survivors is not None:
            check_count("survivors", self.survivors)
            if self.survivors > self.nodes:
                raise ValueError(
                    f"survivors must be at most nodes={self.nodes}; got {self.survivors!r}."
                )
        if self.bits not in (16, 32, 64):
            raise ValueError(f"bits must be 16, 32 or 64; got {self.bits!r}.")
        if self.step and self.sigma:  # both say what is wrong with the grid
            distributed_multiplier(self.sigma, self._honest, self.longest, self.size)

    @property
    def _honest(self) -> int:
        return self.nodes if self.survivors is None else self.survivors

    # The grid ---------------------------------------------------------------------------------

    @cached_property
    def step(self) -> float:
        """Step of the grid, a power of two."""
        # sums of 64 bits are to be exact as floats
        most = (2 ** min(self.bits - 1, 53) - 1) // self.nodes
        top = math.frexp(self.norm)[1]
        for below in range(53, -1, -1):
            step = math.ldexp(1.0, top - below)
            longest = _rounded_norm(self.norm * (1 + MARGIN) / step, self.size)
            sigma = self._sigma(longest)
            if self.rows * longest + REACH * sigma < most:
                if below > 2:
                    return step
                break
        raise ValueError(
            f"bits must be more than {self.bits}: the sum of {self.nodes} nodes of {self.rows} "
            "rows, with its noise, needs a finer grid."
        )

    @cached_property
    def longest(self) -> float:
        """Largest norm of a rounded row, in steps of the grid."""
        return _rounded_norm(self.norm * (1 + MARGIN) / self.step, self.size)

    @cached_property
    def sigma(self) -> float:
        """Parameter of the noise of each node, in steps of the grid."""
        return self._sigma(self.longest)

    def _sigma(self, longest: float) -> float:
        if self.multiplier == 0:
            return 0.0
        return distributed_sigma(self.multiplier, self._honest, longest)

    # Nodes ------------------------------------------------------------------------------------

    def encode(self, rows: NDArray[np.float64], rng: Any) -> NDArray[np.int64]:
        """Round the rows of a node, add them up, and add its share of the noise.

        Parameters
        ----------
        rows : float64 ndarray of shape (c, size)
            One for each client of the node, of a norm of at most `norm`; there may be none.
        rng : Generator or "secure"
            Generator for a simulation; ``"secure"`` draws noise from the operating system, which
            takes 10 to 30 microseconds a number.

        Returns
        -------
        int64 ndarray of shape (size,)

        Raises
        ------
        ValueError
            If rows are too many, too long, or not finite.
        """
        rows = np.asarray(rows, np.float64)
        if rows.ndim != 2 or rows.shape[1] != self.size or len(rows) > self.rows:
            raise ValueError(
                f"rows must have shape (c, {self.size}), with c at most {self.rows}; "
                f"got {rows.shape}."
            )
        with np.errstate(over="ignore"):
            norms = np.linalg.norm(rows, axis=1)
        if not (norms <= self.norm * (1 + MARGIN)).all():
            raise ValueError(f"rows must be finite, of norms of at most {self.norm:g}.")
        # how rows are rounded may be known: the guarantee holds for every way
        uniforms = np.random.default_rng() if isinstance(rng, str) else rng
        total = np.zeros(self.size, np.int64)
        for row in rows:
            total += self._rounded(row / self.step, uniforms)
        return secure.add_integer_gaussian(total, self.sigma, rng)

    def _rounded(self, row: NDArray, rng: np.random.Generator) -> NDArray[np.int64]:
        floor = np.floor(row)
        while True:
            rounded = floor + (rng.random(self.size) < row - floor)
            if np.linalg.norm(rounded) <= self.longest:
                return rounded.astype(np.int64)

    # The sum ----------------------------------------------------------------------------------

    def decode(self, total: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the sum of rows, with its noise, of a sum of integers."""
        return np.asarray(total, np.float64) * self.step

    def noise(self, counted: int) -> float:
        """Return the standard deviation of the noise in a sum over so many nodes.

        Rounding adds at most ``step / 2`` for each row, in quadrature.
        """
        return math.sqrt(counted) * self.sigma * self.step

    def event(self) -> events.Event:
        """Describe the release of a sum, by one client: Gaussian noise, or none."""
        return events.gaussian(self.multiplier) if self.multiplier else events.open_release()


def _rounded_norm(norm: float, size: int) -> float:
    """Bound the norm of a vector that is rounded to integers, on condition that it is kept."""
    root = math.sqrt(size)
    tail = math.sqrt(2 * math.log(1 / BETA)) * (norm + root / 2)
    return min(norm + root, math.sqrt(norm**2 + size / 4 + tail)) * (1 + MARGIN)
