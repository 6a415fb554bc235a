"""Draws of a counter-based stream: Philox words, and what channels make of them.

No state is kept: draw number ``k`` of a stream is a function of ``k`` and of the two words that
name the stream. The generator is Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, 2011, "Parallel
random numbers: as easy as 1, 2, 3"), whose 32-bit products fill a vector register. Everything is
done in chunks that stay in the first-level cache, so that no array of random numbers ever goes to
memory and back. Each loop is a function of its own, which is what lets LLVM vectorise it.

Arithmetic is plain and in a fixed order, and so is the logarithm: a stream has the same bits on
every machine and wherever it is cut.

A kernel here is given

key, tag : uint64
    The name of the stream: key and upper half of the counter of Philox.
start : uint64
    The number of the first draw.
"""

import numpy as np

from ebfed.kernels._jit import jit

CHUNK = 1024  # draws at a time; even, since Philox gives two words of 64 bits at a time

# Philox 4x32: multipliers and key increments.
MULTIPLIER_0, MULTIPLIER_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
WEYL_0, WEYL_1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
LOW, HALF, ONE = np.uint64(0xFFFFFFFF), np.uint64(32), np.uint64(1)

# The layout of a float64.
FRACTION, SPARE = np.uint64(52), np.uint64(12)
FRACTION_MASK = np.uint64(2**52 - 1)
ONE_BITS = np.uint64(0x3FF0000000000000)  # 1.0
ROOT_BITS = np.uint64(0x3FE6A09E00000000)  # close to the root of 1/2


@jit
def fill_uniforms(out, key, tag, start):
    """Uniforms (2 m + 1) / 2^53 with m an integer of 52 bits: never 0, never 1, symmetric.

    Parameters
    ----------
    out : float64 ndarray of shape (n,)
        Is overwritten.
    key, tag, start : uint64
    """
    words = np.empty(CHUNK + 2, np.uint64)
    for low in range(0, len(out), CHUNK):
        high = min(low + CHUNK, len(out))
        _write_uniforms(_words(words, high - low, key, tag, start + np.uint64(low)), out[low:high])


@jit
def fill_bernoulli(probabilities, out, key, tag, start):
    """Whether the uniform of the same number lies below a probability.

    Parameters
    ----------
    probabilities : float64 ndarray of shape (n,)
        1 and above is always true; 0, below and NaN never.
    out : bool ndarray of shape (n,)
        Is overwritten.
    key, tag, start : uint64
    """
    words = np.empty(CHUNK + 2, np.uint64)
    for low in range(0, len(out), CHUNK):
        high = min(low + CHUNK, len(out))
        drawn = _words(words, high - low, key, tag, start + np.uint64(low))
        _compare(drawn, probabilities[low:high], out[low:high])


@jit
def fill_normals(out, key, tag, start):
    """Standard normals: the normal quantile of the uniform of the same number.

    Parameters
    ----------
    out : float64 ndarray of shape (n,)
        Is overwritten.
    key, tag, start : uint64
    """
    words = np.empty(CHUNK + 2, np.uint64)
    places, roots, scores = np.empty(CHUNK + 1, np.int64), np.empty(CHUNK + 1), np.empty(CHUNK)
    for low in range(0, len(out), CHUNK):
        high = min(low + CHUNK, len(out))
        drawn = _words(words, high - low, key, tag, start + np.uint64(low))
        _write_normals(drawn, out[low:high], places, roots, scores)


@jit
def add_normals(values, scale, lower, upper, out, key, tag, start):
    """Values clipped to an interval, plus scaled standard normals.

    Parameters
    ----------
    values : float64 ndarray of shape (n,)
        NaN stays NaN.
    scale : float64 ndarray of shape (n,) or (1,)
        Standard deviation of the noise of each value, or of all.
    lower, upper : float
        Ends of the interval to which values are clipped first.
    out : float64 ndarray of shape (n,)
        Is overwritten.
    key, tag, start : uint64
    """
    words, normals = np.empty(CHUNK + 2, np.uint64), np.empty(CHUNK)
    places, roots, scores = np.empty(CHUNK + 1, np.int64), np.empty(CHUNK + 1), np.empty(CHUNK)
    for low in range(0, len(out), CHUNK):
        high = min(low + CHUNK, len(out))
        drawn = _words(words, high - low, key, tag, start + np.uint64(low))
        noise = normals[: high - low]
        _write_normals(drawn, noise, places, roots, scores)
        if len(scale) == 1:
            _clip_and_add(values[low:high], scale[0], noise, lower, upper, out[low:high])
        else:
            _scale(noise, scale[low:high])
            _clip_and_add(values[low:high], 1.0, noise, lower, upper, out[low:high])


# --- words ---------------------------------------------------------------------------------------


@jit
def _words(words, size, key, tag, start):
    """`size` words of the stream from number `start` on, in the given memory."""
    odd = np.int64(start & ONE)
    _philox(words[: (odd + size + 1) // 2 * 2], key, tag, start >> ONE)
    return words[odd : odd + size]


@jit
def _philox(words, key, tag, first):
    """Philox 4x32-10 of the counters (`tag`, `first`), (`tag`, `first` + 1), …: two words each."""
    key_0, key_1 = key & LOW, key >> HALF
    tag_0, tag_1 = tag & LOW, tag >> HALF
    for block in range(len(words) // 2):
        counter = first + np.uint64(block)
        c0, c1, c2, c3 = counter & LOW, counter >> HALF, tag_0, tag_1
        k0, k1 = key_0, key_1
        for _ in range(10):
            product_0, product_1 = c0 * MULTIPLIER_0, c2 * MULTIPLIER_1
            c0, c1 = (product_1 >> HALF) ^ c1 ^ k0, product_1 & LOW
            c2, c3 = (product_0 >> HALF) ^ c3 ^ k1, product_0 & LOW
            k0, k1 = (k0 + WEYL_0) & LOW, (k1 + WEYL_1) & LOW
        words[2 * block] = c1 << HALF | c0
        words[2 * block + 1] = c3 << HALF | c2


@jit
def _uniform(word):
    """The upper 52 bits of a word, as a number of [1, 2) that is moved, exactly, to (0, 1)."""
    return np.uint64(word >> SPARE | ONE_BITS).view(np.float64) - (1.0 - 2.0**-53)


@jit
def _write_uniforms(words, out):
    for k in range(len(out)):
        out[k] = _uniform(words[k])


@jit
def _compare(words, probabilities, out):
    for k in range(len(out)):
        out[k] = _uniform(words[k]) < probabilities[k]


# --- normals -------------------------------------------------------------------------------------


@jit
def _write_normals(words, out, places, roots, scores):
    """Normal quantiles of uniforms (Wichura, 1988, algorithm AS 241, PPND16).

    The rational function of the centre is evaluated everywhere and overwritten in the tails, 15 %
    of all, which are gathered in `roots` and scattered back to `places`.
    """
    _write_uniforms(words, out)
    n_tails = _find_tails(out, places, roots)
    places, roots, scores = places[:n_tails], roots[:n_tails], scores[:n_tails]
    _quantiles_of_centre(out)
    _roots_of_logs(roots)
    _quantiles_of_tails(roots, scores)
    _put_tails(roots, scores, places, out)


@jit
def _find_tails(uniforms, places, tails):
    """Subtract 1/2, exactly; note where the tails are and how much lies beyond; count them."""
    count = 0
    for k in range(len(uniforms)):
        uniforms[k] -= 0.5
        beyond = 0.5 - abs(uniforms[k])
        places[count] = k
        tails[count] = beyond
        count += beyond < 0.075
    return count


@jit
def _quantiles_of_centre(q):
    for k in range(len(q)):
        r = 0.180625 - q[k] * q[k]
        above = 2.5090809287301226727e3 * r + 3.3430575583588128105e4
        above = above * r + 6.7265770927008700853e4
        above = above * r + 4.5921953931549871457e4
        above = above * r + 1.3731693765509461125e4
        above = above * r + 1.9715909503065514427e3
        above = above * r + 1.3314166789178437745e2
        above = above * r + 3.3871328727963666080e0
        below = 5.2264952788528545610e3 * r + 2.8729085735721942674e4
        below = below * r + 3.9307895800092710610e4
        below = below * r + 2.1213794301586595867e4
        below = below * r + 5.3941960214247511077e3
        below = below * r + 6.8718700749205790830e2
        below = below * r + 4.2313330701600911252e1
        q[k] = q[k] * above / (below * r + 1.0)


@jit
def _roots_of_logs(tails):
    """The root of minus the logarithm, in place."""
    for k in range(len(tails)):
        tails[k] = np.sqrt(-_log(tails[k]))


@jit
def _log(x):
    """The logarithm of a normal float: FreeBSD's msun e_log.c without its special cases.

    x = 2^e (1 + f) with 1 + f around 1, s = f / (2 + f), log(1 + f) = 2 artanh(s); the error stays
    below one unit in the last place. NumPy's would do, but it is not the same on every machine.
    """
    bits = np.float64(x).view(np.uint64) + (ONE_BITS - ROOT_BITS)
    exponent = np.float64(np.int64(bits >> FRACTION) - 1023)
    f = np.uint64((bits & FRACTION_MASK) + ROOT_BITS).view(np.float64) - 1.0
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    even = 2.222219843214978396e-01 + w * 1.531383769920937332e-01
    even = w * (3.999999999940941908e-01 + w * even)
    odd = 1.818357216161805012e-01 + w * 1.479819860511658591e-01
    odd = z * (6.666666666666735130e-01 + w * (2.857142874366239149e-01 + w * odd))
    half = 0.5 * f * f
    small = s * (half + (even + odd)) + exponent * 1.90821492927058770002e-10  # of log 2
    return exponent * 6.93147180369123816490e-01 - ((half - small) - f)


@jit
def _quantiles_of_tails(roots, out):
    for k in range(len(roots)):
        r = roots[k] - 1.6
        above = 7.74545014278341407640e-4 * r + 2.27238449892691845833e-2
        above = above * r + 2.41780725177450611770e-1
        above = above * r + 1.27045825245236838258e0
        above = above * r + 3.64784832476320460504e0
        above = above * r + 5.76949722146069140550e0
        above = above * r + 4.63033784615654529590e0
        above = above * r + 1.42343711074968357734e0
        below = 1.05075007164441684324e-9 * r + 5.47593808499534494600e-4
        below = below * r + 1.51986665636164571966e-2
        below = below * r + 1.48103976427480074590e-1
        below = below * r + 6.89767334985100004550e-1
        below = below * r + 1.67638483018380384940e0
        below = below * r + 2.05319162663775882187e0
        out[k] = above / (below * r + 1.0)


@jit
def _quantile_far_out(root):
    """For less than exp(-25): once in 10^11 draws."""
    r = root - 5.0
    above = 2.01033439929228813265e-7 * r + 2.71155556874348757815e-5
    above = above * r + 1.24266094738807843860e-3
    above = above * r + 2.65321895265761230930e-2
    above = above * r + 2.96560571828504891230e-1
    above = above * r + 1.78482653991729133580e0
    above = above * r + 5.46378491116411436990e0
    above = above * r + 6.65790464350110377720e0
    below = 2.04426310338993978564e-15 * r + 1.42151175831644588870e-7
    below = below * r + 1.84631831751005468180e-5
    below = below * r + 7.86869131145613259100e-4
    below = below * r + 1.48753612908506148525e-2
    below = below * r + 1.36929880922735805310e-1
    below = below * r + 5.99832206555887937690e-1
    return above / (below * r + 1.0)


@jit
def _put_tails(roots, scores, places, out):
    """Write the scores of the tails where they belong, each with its sign."""
    for k in range(len(roots)):
        score = scores[k] if roots[k] <= 5.0 else _quantile_far_out(roots[k])
        out[places[k]] = np.copysign(score, out[places[k]])


@jit
def _scale(noise, scale):
    for k in range(len(noise)):
        noise[k] *= scale[k]


@jit
def _clip_and_add(values, scale, noise, lower, upper, out):
    for k in range(len(out)):
        value = values[k]
        value = lower if value < lower else value
        value = upper if value > upper else value
        out[k] = value + scale * noise[k]
