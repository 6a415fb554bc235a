"""Random numbers of simulated channels, which do not depend on blocks and engines.

A `Stream` belongs to one round of one fit. Client ``i`` of all clients owns its draws
``i * stride, …, (i + 1) * stride - 1``, for all blocks and engines, so results are the same to the
last bit for any number of blocks. Draws are computed from their numbers (see
`ebfed.kernels.streams`), so a block starts at its first client without cost.

Each call of a method uses a new sub-stream: the first call of a round, the second, and so on are
independent. All blocks run the same code, so they use the same sub-streams. The contract is:
**within a round every block calls the same methods in the same order**, with the same number of
draws for each client. Draw for all clients of a block and drop the draws that are not needed.

These streams are for simulation. They give no privacy: their key is known, and floats leak.

A key is never used for two fits with privacy, unless a fixed seed asks for that (`noise_key`): who
sees two messages with the same noise sees their difference without any.
"""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ebfed import kernels

__all__ = ["Stream", "is_fixed", "make_key", "noise_key"]


class Stream:
    """The draws of a block of clients in one round.

    Parameters
    ----------
    key : ndarray of shape (2,)
        Key of 128 bits, two words of 64; see `make_key`. Different keys give independent streams.
    round_ : int
        Number of the round, from 0. Rounds of one key are independent.
    first : int, default=0
        Number of clients before this block.

    Attributes
    ----------
    calls : int
        Number of calls so far; selects the sub-stream of the next call.

    Notes
    -----
    Draws come from Philox 4x32-10 (Salmon et al., 2011). Its name within all streams, a key of 64
    bits and half a counter, is the image of (key, round, call) under NumPy's Philox 4x64-10.

    Examples
    --------
    >>> key = make_key(0)
    >>> whole = Stream(key, 0).normals(5, 2)
    >>> block = Stream(key, 0, first=3).normals(2, 2)
    >>> bool((whole[3:] == block).all())
    True
    """

    def __init__(self, key: NDArray[np.uint64], round_: int, first: int = 0) -> None:
        self.key = np.asarray(key, dtype=np.uint64)
        if self.key.shape != (2,):
            raise ValueError(f"key must be two words from make_key; got {key!r}.")
        self.round_ = round_
        self.first = first
        self.calls = 0

    def __repr__(self) -> str:
        return f"Stream({self.key!r}, {self.round_}, first={self.first})"

    def after(self, n_clients: int, calls: int) -> Stream:
        """Return the stream of the clients after the first `n_clients`, at that call."""
        later = Stream(self.key, self.round_, self.first + n_clients)
        later.calls = calls
        return later

    def uniforms(self, n_clients: int, stride: int = 1) -> NDArray[np.float64]:
        """Draw uniforms of the open interval (0, 1).

        They are odd multiples of 2^-53, so that ``u`` and ``1 - u`` are equally likely and exact.

        Parameters
        ----------
        n_clients : int
        stride : int, default=1
            Number of draws of each client.

        Returns
        -------
        ndarray of shape (n_clients, stride)

        Examples
        --------
        >>> Stream(make_key(0), 0).uniforms(2, 3).shape
        (2, 3)
        """
        out = np.empty((n_clients, stride))
        kernels.fill_uniforms(out.reshape(-1), *self._next(stride))
        return out

    def normals(self, n_clients: int, stride: int = 1) -> NDArray[np.float64]:
        """Draw standard normals: quantiles of the uniforms that the same call would give.

        Parameters
        ----------
        n_clients : int
        stride : int, default=1
            Number of draws of each client.

        Returns
        -------
        ndarray of shape (n_clients, stride)

        Examples
        --------
        >>> from scipy.special import ndtr
        >>> z, u = Stream(make_key(0), 0).normals(4), Stream(make_key(0), 0).uniforms(4)
        >>> bool(np.allclose(ndtr(z), u))
        True
        """
        out = np.empty((n_clients, stride))
        kernels.fill_normals(out.reshape(-1), *self._next(stride))
        return out

    def bernoulli(self, probabilities: ArrayLike) -> NDArray[np.bool_]:
        """Draw bits: ``uniforms(n_clients, stride) < probabilities`` in one pass.

        Parameters
        ----------
        probabilities : array-like of shape (n_clients,) or (n_clients, stride)
            Probabilities of a one, 0 and 1 included.

        Returns
        -------
        bool ndarray of the shape of `probabilities`

        Examples
        --------
        >>> Stream(make_key(0), 0).bernoulli([0.0, 1.0])
        array([False,  True])
        """
        probabilities = _kernel_input(probabilities)
        out = np.empty(probabilities.shape, np.bool_)
        kernels.fill_bernoulli(
            probabilities.reshape(-1), out.reshape(-1), *self._next(_stride(probabilities))
        )
        return out

    def add_normals(
        self,
        values: ArrayLike,
        scale: ArrayLike,
        lower: float = -np.inf,
        upper: float = np.inf,
    ) -> NDArray[np.float64]:
        """Clip and add noise: ``clip(values) + scale * normals(n_clients, stride)`` in one pass.

        Parameters
        ----------
        values : array-like of shape (n_clients,) or (n_clients, stride)
            Values, which are not changed in place.
        scale : float or array-like that broadcasts to the shape of `values`
            Standard deviation of the noise.
        lower, upper : float
            Bounds of the values before the noise is added.

        Returns
        -------
        ndarray of the shape of `values`

        Examples
        --------
        >>> Stream(make_key(0), 0).add_normals([-3.0, 0.25, 7.0], 0.0, lower=-1, upper=1)
        array([-1.  ,  0.25,  1.  ])
        """
        values = _kernel_input(values)
        if np.ndim(scale) == 0:
            scales = np.full(1, scale, np.float64)
        else:
            scales = _kernel_input(np.broadcast_to(scale, values.shape))
        out = np.empty(values.shape)
        kernels.add_normals(
            values.reshape(-1),
            scales.reshape(-1),
            float(lower),
            float(upper),
            out.reshape(-1),
            *self._next(_stride(values)),
        )
        return out

    def words(self, stride: int) -> tuple[np.uint64, np.uint64, np.uint64]:
        """Reserve words for a kernel that uses a varying number of them.

        Parameters
        ----------
        stride : int
            Largest number of words of each client.

        Returns
        -------
        key, tag, start : uint64
            Arguments of kernels; client i of the block owns the words from ``start + i * stride``.
        """
        return self._next(stride)

    def _next(self, stride: int) -> tuple[np.uint64, np.uint64, np.uint64]:
        """Return the next sub-stream and the number of the first draw of this block."""
        counter = np.array([0, 0, self.calls, self.round_], np.uint64)
        name, tag = np.random.Philox(key=self.key, counter=counter).random_raw(2)
        self.calls += 1
        return name, tag, np.uint64(self.first * stride)


def _kernel_input(values: ArrayLike) -> NDArray[np.float64]:
    """Make an array contiguous and writeable: kernels compile for one type only."""
    return np.require(values, np.float64, ("C", "W"))


def _stride(values: NDArray) -> int:
    if values.ndim not in (1, 2):
        raise ValueError(
            f"An array of shape (n_clients,) or (n_clients, stride) is needed; got {values.shape}."
        )
    return values.shape[1] if values.ndim == 2 else 1


def make_key(random_state: Any = None) -> NDArray[np.uint64]:
    """Make the key of streams from a random state of scikit-learn.

    Parameters
    ----------
    random_state : None, int, sequence of int, Generator, RandomState or key
        Seed: integers give the same key always, a generator its next one, None a new one; a key is
        itself.

    Returns
    -------
    ndarray of shape (2,)
        Words of 64 bits.

    Examples
    --------
    >>> bool((make_key(7) == make_key(7)).all())
    True
    >>> rng = np.random.default_rng(7)
    >>> bool((make_key(rng) == make_key(rng)).all())
    False
    """
    if isinstance(random_state, np.random.RandomState):
        return random_state.randint(0, 2**64, size=2, dtype=np.uint64)
    if isinstance(random_state, np.ndarray) and random_state.dtype == np.uint64:
        return Stream(random_state, 0).key
    if random_state is None:
        return np.frombuffer(secrets.token_bytes(16), np.uint64).copy()
    try:
        rng = np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise ValueError(f"random_state must be a seed; got {random_state!r}: {error}.") from None
    return rng.integers(0, 2**64, size=2, dtype=np.uint64)


def is_fixed(random_state: Any) -> bool:
    """Whether a random state is a seed that gives the same numbers always.

    Examples
    --------
    >>> is_fixed(7), is_fixed(None), is_fixed(np.random.default_rng(7))
    (True, False, False)
    """
    moving = np.random.Generator | np.random.RandomState | np.random.BitGenerator
    return random_state is not None and not isinstance(random_state, moving)


def noise_key(random_state: Any = None) -> NDArray[np.uint64]:
    """Make the key of noise: a new one, unless the seed is fixed.

    A generator can be copied, and both copies give the same numbers. So numbers of the operating
    system are mixed into its key.

    Parameters
    ----------
    random_state : as in `make_key`

    Returns
    -------
    ndarray of shape (2,)

    Examples
    --------
    >>> bool((noise_key(7) == make_key(7)).all())
    True
    >>> one, copy = np.random.default_rng(7), np.random.default_rng(7)
    >>> bool((noise_key(one) == noise_key(copy)).any())
    False
    """
    key = make_key(random_state)
    if is_fixed(random_state):
        return key
    return key ^ np.frombuffer(secrets.token_bytes(16), np.uint64)
