"""Streams: the same draws wherever blocks are cut, and draws that are what they say."""

import pickle
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import ndtri

from ebfed.streams import Stream, is_fixed, make_key, noise_key

KEY = make_key(20240229)
N_DRAWS = 10**6
# Seeds are fixed, so a test that passes will pass; were draws made anew, each comparison of
# distributions or correlations would fail once in 10^4 runs.
FALSE_ALARM = 1e-4
STORED = [0.4378917709017013, 0.9958522325391924, 0.5601492862845533, 0.42287146910623596]


def draw(stream, n_clients, stride):
    """Draw by every method, in this order."""
    where = np.arange(stream.first, stream.first + n_clients)[:, None] + np.zeros(stride)
    return [
        stream.uniforms(n_clients, stride),
        stream.normals(n_clients, stride),
        stream.bernoulli(where % 10 / 10),
        stream.add_normals(where, 1.5, lower=2, upper=7),
        stream.add_normals(where, where + 1),
    ]


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """Compile outside the tests that hypothesis times."""
    draw(Stream(KEY, 0), 1, 1)


# --- who draws, not who computes -----------------------------------------------------------------


@given(
    n_clients=st.integers(0, 1500),
    stride=st.integers(1, 4),
    first=st.integers(0, 2**40),
    data=st.data(),
)
def test_blocks_draw_what_the_whole_draws(n_clients, stride, first, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, n_clients), max_size=4)))
    bounds = [0, *cuts, n_clients]
    blocks = [
        draw(Stream(KEY, 3, first + low), high - low, stride) for low, high in pairwise(bounds)
    ]
    whole = draw(Stream(KEY, 3, first), n_clients, stride)
    for pieces, answer in zip(zip(*blocks, strict=True), whole, strict=True):
        np.testing.assert_array_equal(np.concatenate(pieces), answer)


def test_fused_methods_are_what_they_replace():
    p, x = np.random.default_rng(0).uniform(size=(2, 3000, 2))
    scales = np.random.default_rng(1).uniform(size=(3000, 1))
    u, z = Stream(KEY, 1, 5).uniforms(3000, 2), Stream(KEY, 1, 5).normals(3000, 2)
    stream = Stream(KEY, 1, 5)
    np.testing.assert_array_equal(stream.bernoulli(p), u < p)
    np.testing.assert_allclose(z, ndtri(u), rtol=4e-15)
    noisy = Stream(KEY, 1, 5).add_normals(x, 0.3, lower=0.2, upper=0.7)
    np.testing.assert_array_equal(noisy, np.clip(x, 0.2, 0.7) + 0.3 * z)
    np.testing.assert_array_equal(Stream(KEY, 1, 5).add_normals(x, scales), x + scales * z)


def test_one_column_is_a_vector():
    p = np.linspace(0, 1, 100)
    bits = Stream(KEY, 0).bernoulli(p)
    assert bits.shape == (100,)
    assert bits.dtype == bool
    np.testing.assert_array_equal(bits, Stream(KEY, 0).bernoulli(p[:, None])[:, 0])
    np.testing.assert_array_equal(
        Stream(KEY, 0).add_normals(p, 1), Stream(KEY, 0).add_normals(p[:, None], 1)[:, 0]
    )


def test_arrays_of_every_make():
    values = np.arange(12.0).reshape(4, 3)
    answer = Stream(KEY, 0).add_normals(values, 0.5)
    frozen = values.copy()
    frozen.flags.writeable = False
    for other in (frozen, values.tolist(), np.asfortranarray(values), values.astype(np.int32)):
        np.testing.assert_array_equal(Stream(KEY, 0).add_normals(other, 0.5), answer)
    np.testing.assert_array_equal(values, frozen)  # untouched


def test_a_stream_travels():
    stream = Stream(KEY, 2, 9)
    stream.normals(4)
    copy = pickle.loads(pickle.dumps(stream))
    np.testing.assert_array_equal(copy.uniforms(5, 2), stream.uniforms(5, 2))
    assert repr(stream) == f"Stream({KEY!r}, 2, first=9)"


# --- what is drawn -------------------------------------------------------------------------------


def test_draws_of_a_key_for_ever():
    """Stored: whoever changes them changes every simulation with a seed.

    tests/kernels checks the words against Philox in Python's integers.
    """
    key = np.array([1, 2], np.uint64)
    stream = Stream(key, 3, first=4)
    name, tag = np.random.Philox(key=key, counter=[0, 0, 0, 3]).random_raw(2)
    by_hand = []
    for number in (8, 9, 10, 11):  # the first is client 4's, at two draws for each client
        c = [number // 2, 0, int(tag) % 2**32, int(tag) >> 32]
        k = [int(name) % 2**32, int(name) >> 32]
        for _ in range(10):
            left, right = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
            c = [right >> 32 ^ c[1] ^ k[0], right % 2**32, left >> 32 ^ c[3] ^ k[1], left % 2**32]
            k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
        word = c[2 * (number % 2)] + (c[2 * (number % 2) + 1] << 32)
        by_hand.append((2 * (word >> 12) + 1) / 2**53)
    assert stream.uniforms(2, 2).ravel().tolist() == by_hand
    assert by_hand == STORED


def test_uniforms_are_uniform():
    u = Stream(KEY, 0).uniforms(N_DRAWS // 4, 4)
    assert u.min() > 0
    assert u.max() < 1
    assert stats.kstest(u.ravel(), "uniform").pvalue > FALSE_ALARM
    counts = np.bincount((u.ravel() * 1000).astype(int), minlength=1000)
    assert stats.chisquare(counts).pvalue > FALSE_ALARM
    fine = (u.ravel() * 2**53).astype(np.int64)
    assert (fine % 2 == 1).all(), "odd multiples of 2^-53"
    assert stats.chisquare(np.bincount(fine // 2 % 256)).pvalue > FALSE_ALARM  # the last bits
    pairs = np.histogram2d(u[:, 0], u[:, 1], bins=30, range=[(0, 1), (0, 1)])[0]
    assert stats.chisquare(pairs.ravel()).pvalue > FALSE_ALARM


def test_normals_are_normal():
    z = Stream(KEY, 1).normals(N_DRAWS).ravel()
    assert stats.kstest(z, "norm").pvalue > FALSE_ALARM
    inner = ndtri(np.arange(1, 1000) / 1000)
    counts = np.histogram(z, np.concatenate([[-np.inf], inner, [np.inf]]))[0]
    assert stats.chisquare(counts).pvalue > FALSE_ALARM
    assert (z**2).sum() < stats.chi2(N_DRAWS).isf(FALSE_ALARM / 2)
    assert (z**2).sum() > stats.chi2(N_DRAWS).ppf(FALSE_ALARM / 2)
    beyond = (abs(z) > 4).sum()
    law = stats.binom(N_DRAWS, 2 * stats.norm.sf(4))
    assert law.ppf(FALSE_ALARM / 2) <= beyond <= law.isf(FALSE_ALARM / 2)


@pytest.mark.parametrize("p", [1e-4, 0.3, 0.5, 0.999])
def test_bits_have_their_probability(p):
    ones = Stream(KEY, 2).bernoulli(np.full(N_DRAWS, p)).sum()
    law = stats.binom(N_DRAWS, p)
    assert law.ppf(FALSE_ALARM / 2) <= ones <= law.isf(FALSE_ALARM / 2)


def test_certain_bits():
    stream = Stream(KEY, 2)
    assert stream.bernoulli(np.ones(N_DRAWS)).all()
    assert not stream.bernoulli(np.zeros(N_DRAWS)).any()


# --- sub-streams ---------------------------------------------------------------------------------


def after(*calls):
    stream = Stream(KEY, 0)
    for call in calls:
        call(stream)
    return stream


OTHERS = {
    "next client": lambda: Stream(KEY, 0, 1),
    "far client": lambda: Stream(KEY, 0, 2**33),
    "next round": lambda: Stream(KEY, 1),
    "far round": lambda: Stream(KEY, 2**32),
    "next call": lambda: after(lambda s: s.uniforms(1)),
    "third call": lambda: after(lambda s: s.bernoulli([0.5]), lambda s: s.normals(1)),
    "one bit of the key": lambda: Stream(KEY ^ np.array([1, 0], np.uint64), 0),
    "top bit of the key": lambda: Stream(KEY ^ np.array([0, 2**63], np.uint64), 0),
    "words of the key exchanged": lambda: Stream(KEY[::-1], 0),
    "next seed": lambda: Stream(make_key(20240230), 0),
}


@pytest.mark.parametrize("which", OTHERS)
def test_other_streams_are_independent(which):
    n = 200_000
    u, v = Stream(KEY, 0).uniforms(n).ravel(), OTHERS[which]().uniforms(n).ravel()
    assert (u == v).sum() == 0
    assert abs(stats.pearsonr(u, v)[0]) < stats.norm.isf(FALSE_ALARM / 2) / np.sqrt(n)
    pairs = np.histogram2d(u, v, bins=20, range=[(0, 1), (0, 1)])[0]
    assert stats.chisquare(pairs.ravel()).pvalue > FALSE_ALARM


# --- keys ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [int, np.int64, np.random.RandomState, np.random.default_rng])
def test_equal_seeds_make_equal_keys(make):
    key = make_key(make(5))
    assert key.dtype == np.uint64
    assert key.shape == (2,)
    np.testing.assert_array_equal(key, make_key(make(5)))
    assert (key != make_key(make(6))).all()


@pytest.mark.parametrize("make", [np.random.RandomState, np.random.default_rng])
def test_generators_move_on(make):
    rng = make(5)
    assert (make_key(rng) != make_key(rng)).all()


def test_no_seed_is_another_one_every_time():
    assert (make_key(None) != make_key()).all()


@pytest.mark.parametrize("seed", ["monday", -1, 0.5])
def test_what_is_no_seed(seed):
    with pytest.raises(ValueError, match=f"random_state must be a seed; got {seed!r}: "):
        make_key(seed)


# --- what replaced it -----------------------------------------------------------------------------


def test_bad_keys_and_shapes():
    with pytest.raises(ValueError, match="key must be two words from make_key; got 5"):
        Stream(5, 0)
    for shape in ((), (2, 2, 2)):
        with pytest.raises(ValueError, match=r"shape \(n_clients,\) or .* is needed; got \("):
            Stream(KEY, 0).bernoulli(np.full(shape, 0.5))


def test_keys_of_noise_are_new_unless_the_seed_is_fixed():
    for seed in (7, [7, 8], np.random.SeedSequence(7), make_key(7)):
        assert is_fixed(seed)
        np.testing.assert_array_equal(noise_key(seed), make_key(seed))
    moving = (np.random.default_rng, np.random.RandomState, np.random.PCG64, lambda seed: None)
    for make in moving:
        assert not is_fixed(make(7))
        assert not np.any(noise_key(make(7)) == noise_key(make(7)))


def test_a_key_is_its_own_seed():
    rng = np.random.default_rng(3)
    np.testing.assert_array_equal(make_key(make_key(rng)), make_key(np.random.default_rng(3)))
    with pytest.raises(ValueError, match="key must be two words"):
        make_key(np.zeros(3, np.uint64))
