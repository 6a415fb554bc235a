"""The kernels of streams against Philox in Python's integers and SciPy's normal quantiles.

(Not called test_streams.py: pytest wants names of test files to differ over folders.)
"""

import numpy as np
import pytest
from scipy.special import ndtri

from ebfed.kernels import add_normals, fill_bernoulli, fill_normals, fill_uniforms
from ebfed.kernels.streams import CHUNK, _log, _philox, _write_normals

# Wichura promises 16 digits, Cephes (ndtri) about as many: a dozen roundings between them.
QUANTILE = 4e-15
NAMES = [(0, 0, 0), (2**64 - 1, 2**64 - 1, 2**40 + 1), (0x123456789ABCDEF0, 2**63, 7)]
SIZES = [0, 1, 2, CHUNK - 1, CHUNK, CHUNK + 1]


# --- reference -----------------------------------------------------------------------------------


def philox(counter, key):
    """Philox 4x32-10, as in section 4.3 of Salmon et al. (2011)."""
    c, k = list(counter), list(key)
    for _ in range(10):
        left, right = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [right >> 32 ^ c[1] ^ k[0], right % 2**32, left >> 32 ^ c[3] ^ k[1], left % 2**32]
        k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
    return c


def halves(word):
    return word % 2**32, word >> 32


def word(key, tag, number):
    four = philox([*halves(number // 2), *halves(tag)], halves(key))
    return four[2 * (number % 2)] + (four[2 * (number % 2) + 1] << 32)


def uniforms(size, key, tag, start):
    return np.array([(2 * (word(key, tag, start + k) >> 12) + 1) / 2**53 for k in range(size)])


def unsigned(name):
    return tuple(np.uint64(each) for each in name)


# --- words ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counter", "key", "answer"),
    [
        ("00000000" * 4, "00000000" * 2, "6627e8d5e169c58dbc57ac4c9b00dbd8"),
        ("ffffffff" * 4, "ffffffff" * 2, "408f276d41c83b0ea20bc7c66d5451fd"),
        (
            "243f6a8885a308d313198a2e03707344",
            "a4093822299f31d0",
            "d16cfe0994fdcceb5001e42024126ea1",
        ),
    ],
)
def test_known_answers_of_philox(counter, key, answer):
    """The authors' own, from kat_vectors of their library Random123."""

    def parts(digits):
        return [int(digits[k : k + 8], 16) for k in range(0, len(digits), 8)]

    assert philox(parts(counter), parts(key)) == parts(answer)
    c0, c1, c2, c3 = parts(counter)
    k0, k1 = parts(key)
    words = np.empty(2, np.uint64)
    _philox(words, *unsigned((k1 << 32 | k0, c3 << 32 | c2, c1 << 32 | c0)))
    a0, a1, a2, a3 = parts(answer)
    assert words.tolist() == [a1 << 32 | a0, a3 << 32 | a2]


# --- kernels -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", SIZES)
def test_uniforms(name, size):
    out = np.empty(size)
    fill_uniforms(out, *unsigned(name))
    np.testing.assert_array_equal(out, uniforms(size, *name))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", SIZES)
def test_normals(name, size):
    out = np.empty(size)
    fill_normals(out, *unsigned(name))
    np.testing.assert_allclose(out, ndtri(uniforms(size, *name)), rtol=QUANTILE, atol=0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", SIZES)
def test_bernoulli(name, size):
    u = uniforms(size, *name)
    for probabilities in (np.linspace(0, 1, size), u, np.nextafter(u, 1), np.full(size, np.nan)):
        out = np.empty(size, np.bool_)
        fill_bernoulli(probabilities, out, *unsigned(name))
        np.testing.assert_array_equal(out, u < probabilities)


@pytest.mark.parametrize("size", SIZES)
def test_add_normals(size):
    name = unsigned(NAMES[2])
    z, out, values = np.empty(size), np.empty(size), np.linspace(-2, 2, size)
    values[1:2] = np.nan
    fill_normals(z, *name)
    for scale in (np.array([1.5]), np.linspace(0, 3, size)):
        add_normals(values, scale, -1.0, 1.5, out, *name)
        np.testing.assert_array_equal(out, np.clip(values, -1.0, 1.5) + scale * z)
    add_normals(values, scale, -np.inf, np.inf, out, *name)
    np.testing.assert_array_equal(out, values + scale * z)


# --- quantiles -----------------------------------------------------------------------------------


def quantiles(odd):
    """Of the uniforms `odd` / 2^53, which are all there are."""
    words = np.array([(each >> 1) << 12 for each in odd], np.uint64)
    out, n = np.empty(len(words)), len(words)
    _write_normals(words, out, np.empty(n + 1, np.int64), np.empty(n + 1), np.empty(n))
    return out


def test_quantiles_to_the_last_uniform():
    lower = {int(each) | 1 for each in np.geomspace(1, 2**52, 3_000)}  # to 1.1e-16
    lower |= {2**52 - int(each) | 1 for each in np.geomspace(2, 2**51, 500)}  # around 1/2
    edges = [0.075 * 2**53, np.exp(-25) * 2**53]  # where one formula follows another
    lower |= {int(edge) + step | 1 for edge in edges for step in range(-4, 5)}
    odd = sorted(each for each in lower if each < 2**52)
    below = quantiles(odd)
    np.testing.assert_allclose(below, ndtri(np.array(odd) / 2**53), rtol=QUANTILE, atol=0)
    np.testing.assert_array_equal(quantiles([2**53 - each for each in odd]), -below)
    assert (np.diff(below) >= 0).all(), "they never fall"
    assert below[0] == pytest.approx(-8.209536151601387)


def test_log_is_accurate_to_the_last_place():
    tails = np.concatenate([np.geomspace(2.0**-53, 0.5, 5_000), 2.0 ** -np.arange(1, 54)])
    ours = np.array([_log(each) for each in tails])
    theirs = np.log(tails)
    assert (abs(ours - theirs) <= np.spacing(abs(theirs))).all()
