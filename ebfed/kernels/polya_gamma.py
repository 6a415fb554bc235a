"""Draws of Pólya-Gamma variables, and the Gibbs sampler of logistic regression they make.

Each draw uses the words of a Philox stream (see `ebfed.kernels.streams`) from a number of its own
on, as many as rejections need.
"""

import math

import numpy as np

from ebfed.kernels._jit import jit
from ebfed.kernels.small import _cholesky, _invert, _solve_lower, _solve_upper
from ebfed.kernels.streams import ONE, _philox, _uniform

BUFFER = 64  # words made at a time; even

CUT = 0.64  # where one series of the density hands over to the other; any value is right
ROOT = math.sqrt(1 / CUT)


@jit
def fill_polya_gamma(tilts, out, key, tag, start, stride):
    """Draw PG(1, c) variables (Polson, Scott and Windle, 2013, section 4; Devroye, 2009).

    Exact: an exponential and an inverse Gaussian envelope, accepted by an alternating series.

    Parameters
    ----------
    tilts : float64 ndarray of shape (n,)
        The c of each draw.
    out : float64 ndarray of shape (n,)
        Is overwritten.
    key, tag, start, stride : uint64
        Draw k takes words from ``start + k * stride`` on, both even.
    """
    words, place = np.empty(BUFFER, np.uint64), np.zeros(2, np.uint64)
    for k in range(len(out)):
        _rewind(place, start + np.uint64(k) * stride)
        out[k] = _polya_gamma(tilts[k], words, place, key, tag)


@jit
def gibbs_logistic(X, offset, signs, indptr, state, n_burn, n_draws, draws, mean, cov, name):
    """Draw coefficients of clients' logistic regressions with a standard normal prior.

    ``P(sign = 1) = 1 / (1 + exp(-offset - x' eta))``, ``eta ~ N(0, I)``. Given the rows'
    Pólya-Gamma variables omega, eta is normal with precision ``I + X' diag(omega) X``; means and
    covariances of these normals are averaged over the sweeps after `n_burn` (Rao-Blackwell).

    Parameters
    ----------
    X : float64 ndarray of shape (n_rows, d)
    offset, signs : float64 ndarrays of shape (n_rows,)
        Signs are 1 and -1.
    indptr : int64 ndarray of shape (n_clients + 1,)
    state : float64 ndarray of shape (n_clients, d)
        Start of the chains; is overwritten with their ends.
    n_burn, n_draws : int
        Numbers of sweeps that are not counted, and that are.
    draws : float64 ndarray of shape (n_draws, n_clients, d)
        Is overwritten with draws.
    mean : float64 ndarray of shape (n_clients, d)
        Is overwritten with the mean.
    cov : float64 ndarray of shape (n_clients, d, d)
        Is overwritten with the covariance.
    name : tuple of uint64
        Key, tag, start and stride: client i takes words from ``start + i * stride`` on, both even.
    """
    key, tag, start, stride = name
    d = X.shape[1]
    words, place = np.empty(BUFFER, np.uint64), np.zeros(2, np.uint64)
    L, centre, eta = np.empty((d, d)), np.empty(d), np.empty(d)
    for i in range(len(indptr) - 1):
        _rewind(place, start + np.uint64(i) * stride)
        eta[:] = state[i]
        mean[i], cov[i] = 0.0, 0.0
        for sweep in range(-n_burn, n_draws):
            _precision(
                X, offset, signs, indptr[i], indptr[i + 1], eta, L, centre, words, place, key, tag
            )
            _cholesky(L)
            _solve_lower(L, centre)
            _solve_upper(L, centre)  # the conditional mean
            for j in range(d):
                eta[j] = _normal(words, place, key, tag)
            _solve_upper(L, eta)
            for j in range(d):
                eta[j] += centre[j]
            if sweep >= 0:
                draws[sweep, i] = eta
                _invert(L)
                for j in range(d):
                    mean[i, j] += centre[j]
                    for k in range(j + 1):
                        cov[i, j, k] += L[j, k] + centre[j] * centre[k]
        state[i] = eta
        for j in range(d):
            mean[i, j] /= n_draws
        for j in range(d):
            for k in range(j + 1):
                cov[i, j, k] = cov[i, j, k] / n_draws - mean[i, j] * mean[i, k]
                cov[i, k, j] = cov[i, j, k]


@jit
def _precision(X, offset, signs, first, last, eta, A, b, words, place, key, tag):
    """Draw omega given eta; the lower half of the precision of eta given omega, times its mean."""
    d = X.shape[1]
    A[:], b[:] = 0.0, 0.0
    for j in range(d):
        A[j, j] = 1.0
    for row in range(first, last):
        x = X[row]
        logit = offset[row]
        for j in range(d):
            logit += x[j] * eta[j]
        omega = _polya_gamma(logit, words, place, key, tag)
        score = 0.5 * signs[row] - omega * offset[row]
        for j in range(d):
            b[j] += score * x[j]
            weighted = omega * x[j]
            for k in range(j + 1):
                A[j, k] += weighted * x[k]


# --- Pólya-Gamma ---------------------------------------------------------------------------------


@jit
def _polya_gamma(tilt, words, place, key, tag):
    """A quarter of a draw of J*(1, z), z = |c| / 2."""
    z = 0.5 * abs(tilt)
    rate = math.pi**2 / 8 + 0.5 * z * z
    right = _share_of_right(z, rate)
    while True:
        if _next(words, place, key, tag) < right:
            x = CUT - math.log(_next(words, place, key, tag)) / rate
        else:
            x = _inverse_gaussian(z, words, place, key, tag)
        total = _term(0, x)
        height = _next(words, place, key, tag) * total
        n = 0
        while True:
            n += 1
            if n % 2 == 1:
                total -= _term(n, x)
                if height <= total:
                    return 0.25 * x
            else:
                total += _term(n, x)
                if height > total:
                    break


@jit
def _share_of_right(z, rate):
    """Probability that a draw of the envelope lies right of the cut."""
    if z > 30:  # below exp(-250)
        return 0.0
    base = math.log(rate) + rate * CUT
    first = math.exp(base - z) * 0.5 * math.erfc(-ROOT * (CUT * z - 1) / math.sqrt(2.0))
    second = math.exp(base + z) * 0.5 * math.erfc(ROOT * (CUT * z + 1) / math.sqrt(2.0))
    return 1 / (1 + 4 / math.pi * (first + second))


@jit
def _inverse_gaussian(z, words, place, key, tag):
    """Draw IG(1 / z, 1), given that it is below the cut."""
    if z * CUT < 1:
        while True:
            first = -math.log(_next(words, place, key, tag))
            second = -math.log(_next(words, place, key, tag))
            if first * first > 2 * second / CUT:
                continue
            x = CUT / (1 + CUT * first) ** 2
            if _next(words, place, key, tag) <= math.exp(-0.5 * z * z * x):
                return x
    mean = 1 / z
    while True:
        square = _normal(words, place, key, tag) ** 2
        half = 0.5 * mean * square
        # the smaller root, by the larger: no digits cancel
        x = mean / (1 + half + math.sqrt(half * (2 + half)))
        if _next(words, place, key, tag) > mean / (mean + x):
            x = mean * mean / x
        if x <= CUT:
            return x


@jit
def _term(n, x):
    """A term of the alternating series of the density of J*(1, 0)."""
    k = n + 0.5
    if x > CUT:
        return math.pi * k * math.exp(-0.5 * k * k * math.pi**2 * x)
    return math.pi * k * (2 / (math.pi * x)) ** 1.5 * math.exp(-2 * k * k / x)


# --- draws one by one ----------------------------------------------------------------------------


@jit
def _rewind(place, word):
    """Go to a word, an even one; nothing is in the buffer."""
    place[0] = word >> ONE
    place[1] = BUFFER


@jit
def _next(words, place, key, tag):
    """Return the next uniform of the stream; `place` is the next counter, and one in the buffer."""
    if place[1] == BUFFER:
        _philox(words, key, tag, place[0])
        place[0] += np.uint64(BUFFER // 2)
        place[1] = 0
    word = words[np.int64(place[1])]
    place[1] += ONE
    return _uniform(word)


@jit
def _normal(words, place, key, tag):
    """A standard normal (Box and Muller, 1958)."""
    radius = math.sqrt(-2 * math.log(_next(words, place, key, tag)))
    return radius * math.cos(2 * math.pi * _next(words, place, key, tag))
