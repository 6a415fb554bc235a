"""Rows as integers: unbiased, of bounded norm, and with the noise that is claimed."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, kstest

from ebfed.channels.integer_sum import IntegerSum
from ebfed.channels.secure import add_integer_gaussian
from ebfed.engines.secure_sum import LocalNodes, secure_sum, terms
from ebfed.engines.secure_sum.messages import largest
from ebfed.privacy import accountant, gaussian_sigma
from ebfed.privacy.discrete_gaussian import distributed_multiplier


def rows_of(rng, c, size, norm=1.0):
    rows = rng.standard_normal((c, size))
    return norm * rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)


# Noise -----------------------------------------------------------------------------------------


def pvalue(noise, sigma):
    """Chi-square test of draws against the discrete Gaussian distribution."""
    reach = math.ceil(3 * sigma)
    masses = np.exp(-0.5 * (np.arange(-20 * reach, 20 * reach + 1) / sigma) ** 2)
    masses /= masses.sum()
    middle = masses[19 * reach : 21 * reach + 1]
    counts = np.bincount(np.clip(noise + reach, -1, 2 * reach + 1) + 1, minlength=2 * reach + 3)
    outside = (1 - middle.sum()) / 2
    expected = len(noise) * np.concatenate([[outside], middle, [outside]])
    statistic = ((counts - expected) ** 2 / expected).sum()
    return chi2.sf(statistic, len(counts) - 1)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 2.7, 11.0])
def test_simulated_noise_is_discrete_gaussian(sigma):
    noise = add_integer_gaussian(np.zeros(200_000, np.int64), sigma, np.random.default_rng(0))
    assert pvalue(noise, sigma) > 1e-4  # a fixed seed


def test_fine_noise_is_normal():
    noise = add_integer_gaussian(np.zeros(100_000, np.int64), 1e9, np.random.default_rng(0))
    assert kstest(noise / 1e9, "norm").pvalue > 1e-4


def test_noise_of_the_operating_system_is_discrete_gaussian():
    """At 1e-9: one of a billion runs would fail."""
    noise = add_integer_gaussian(np.full(20_000, 5), 4.0, "secure") - 5
    assert pvalue(noise, 4.0) > 1e-9


@pytest.mark.parametrize("nodes", [2, 5, 20])
def test_noise_of_the_sum_is_that_of_one_party(nodes):
    """The sum of what nodes draw has the distribution of discrete Gaussian noise of all of it."""
    rng, sigma = np.random.default_rng(1), 2.5
    noise = sum(add_integer_gaussian(np.zeros(100_000, np.int64), sigma, rng) for _ in range(nodes))
    assert pvalue(noise, math.sqrt(nodes) * sigma) > 1e-4
    assert pvalue(noise, math.sqrt(nodes) * sigma * 1.02) < 1e-4  # the test can tell two per cent


# Rounding --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bits", "size"), [(16, 3), (16, 400), (32, 400)])
def test_rounding_is_unbiased(bits, size):
    grid = IntegerSum(norm=1.0, size=size, nodes=2, rows=1000, bits=bits)
    rng = np.random.default_rng(0)
    row = rows_of(rng, 1, size)
    total = grid.decode(grid.encode(np.repeat(row, 1000, axis=0), rng))
    # a rounded number has a variance of at most a quarter of a squared step
    z = (total - 1000 * row[0]) / (grid.step / 2 * math.sqrt(1000))
    assert np.abs(z).max() < 5
    assert np.abs(z).max() > 0.01


@given(
    bits=st.sampled_from([16, 32, 64]),
    nodes=st.integers(1, 30),
    c=st.integers(0, 4),
    size=st.integers(1, 300),
    norm=st.floats(1e-60, 1e60),
    multiplier=st.sampled_from([0.0, 0.3, 1.0, 8.0]),
)
@settings(max_examples=60, deadline=None)
def test_no_sum_overflows_and_all_are_exact_floats(bits, nodes, c, size, norm, multiplier):
    if bits == 16:  # a grid for this noise may be too fine for them, which is another test
        nodes, multiplier = min(nodes, 5), min(multiplier, 1.0)
    grid = IntegerSum(norm, size, nodes, 4, multiplier, bits=bits)
    rng = np.random.default_rng(size)
    sent = grid.encode(rows_of(rng, c, size, norm), rng)
    assert np.abs(sent).max() <= min(largest(bits, nodes), 2**53 // nodes)
    assert math.frexp(grid.step)[0] == 0.5
    assert np.array_equal((grid.decode(sent) / grid.step).astype(np.int64), sent)


@pytest.mark.parametrize("size", [1, 3, 30, 3000])
@pytest.mark.parametrize("bits", [16, 32])
def test_rows_are_no_longer_than_is_accounted(size, bits):
    grid = IntegerSum(norm=1.0, size=size, nodes=5, rows=1, bits=bits)
    rng = np.random.default_rng(0)
    lengths = [np.linalg.norm(grid.encode(rows_of(rng, 1, size), rng)) for _ in range(50)]
    assert max(lengths) <= grid.longest
    assert grid.longest <= (1 / grid.step + math.sqrt(size)) * (1 + 3e-9)
    # not always longer than the rounding of almost all rows makes them
    assert max(lengths) > 0.9 * grid.longest


def test_rows_that_rounding_makes_too_long_are_rounded_again():
    grid = IntegerSum(norm=1.0, size=2, nodes=2, rows=1, bits=16)
    object.__setattr__(grid, "longest", math.hypot(3, 4) + 1e-9)
    drawn = {
        tuple(grid._rounded(np.array([3.5, 3.5]), np.random.default_rng(i))) for i in range(99)
    }
    assert drawn == {(3, 3), (3, 4), (4, 3)}


# Total noise -----------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [2, 5, 100])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 8.0])
@pytest.mark.parametrize("size", [1, 2260, 100_000])
def test_total_noise_is_that_of_a_trusted_server(nodes, epsilon, size):
    """Within two per cent of the least Gaussian noise of the same epsilon, rounding included."""
    delta, norm = 1e-5, 0.7
    central = gaussian_sigma(epsilon, delta, norm)
    grid = IntegerSum(norm, size, nodes, rows=10, multiplier=central / norm)
    spent = accountant.epsilon(grid.event(), delta, relation="add_or_remove", interval=1e-3)
    assert spent == pytest.approx(epsilon, rel=3e-3)  # the interval of the accountant
    z = distributed_multiplier(grid.sigma, nodes, grid.longest, size)
    assert z == pytest.approx(grid.multiplier, rel=1e-12)
    total = math.hypot(grid.noise(nodes), grid.step / 2 * math.sqrt(nodes * grid.rows))
    assert central <= total < 1.02 * central
    assert total < 1.0001 * central  # with 32 bits, nearly nothing is lost


@pytest.mark.parametrize("nodes", [3, 7])
def test_total_noise_of_sixteen_bits(nodes):
    """Short integers cost some noise, which is accounted."""
    grid = IntegerSum(1.0, 500, nodes, rows=1, multiplier=1.0, bits=16)
    total = math.hypot(grid.noise(nodes), grid.step / 2 * math.sqrt(nodes))
    assert 1.0 < total < 1.02


@pytest.mark.parametrize(("nodes", "multiplier"), [(3, 0.6), (5, 2.0), (12, 1.0)])
def test_simulated_noise_of_a_secure_sum(nodes, multiplier):
    """From rows to the decoded sum: unbiased, normal, and within two per cent of central noise."""
    size, norm = 20_000, 2.0
    grid = IntegerSum(norm, size, nodes, rows=2, multiplier=multiplier)
    names = [f"node {i:02d}" for i in range(nodes)]
    agreed = terms("run", names, size)
    rng = np.random.default_rng(0)
    rows = {name: rows_of(rng, 2, size, norm) for name in names}
    local = LocalNodes(agreed, {name: grid.encode(rows[name], rng) for name in names})
    found = grid.decode(secure_sum(agreed, 0, local.ask).total)
    noise = found - sum(each.sum(axis=0) for each in rows.values())
    # the error of a standard deviation of 20,000 numbers is half a per cent
    assert noise.std() == pytest.approx(multiplier * norm, rel=0.02)
    assert kstest(noise / (multiplier * norm), "norm").pvalue > 1e-3
    assert abs(noise.mean()) < 5 * noise.std() / math.sqrt(size)


def test_nodes_that_are_lost_take_their_noise_with_them():
    """With noise for three survivors of five, any three of them have enough."""
    grid = IntegerSum(1.0, 50, nodes=5, rows=1, multiplier=1.0, survivors=3)
    assert grid.noise(3) == pytest.approx(1.0, rel=1e-3)
    assert grid.noise(5) == pytest.approx(math.sqrt(5 / 3), rel=1e-3)
    assert IntegerSum(1.0, 50, nodes=5, rows=1, multiplier=1.0).noise(3) < 0.8


def test_a_sum_without_noise_is_open():
    grid = IntegerSum(1.0, 4, nodes=3, rows=1)
    assert grid.noise(3) == 0
    assert type(grid.event()).__name__ == "NonPrivateDpEvent"
    sent = grid.encode(np.array([[0.5, 0.25, 0.0, -0.5]]), "secure")
    np.testing.assert_allclose(grid.decode(sent), [0.5, 0.25, 0.0, -0.5], atol=grid.step)


def test_secure_noise_differs_each_time():
    grid = IntegerSum(1.0, 40, nodes=3, rows=1, multiplier=1.0)
    one, two = (grid.encode(np.zeros((0, 40)), "secure") for _ in range(2))
    assert (one != two).mean() > 0.9


# Arguments -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"norm": 0.0}, "norm"),
        ({"norm": math.nan}, "norm"),
        ({"norm": 1e308}, "norm must lie between"),
        ({"norm": 1e-308}, "norm must lie between"),
        ({"size": 0}, "size"),
        ({"nodes": 1.5}, "nodes"),
        ({"rows": 0}, "rows"),
        ({"multiplier": -1.0}, "multiplier must be"),
        ({"multiplier": math.inf}, "multiplier must be"),
        ({"multiplier": math.nan}, "multiplier must be"),
        ({"multiplier": None}, "multiplier must be"),
        ({"survivors": 6}, "survivors must be at most nodes=5; got 6"),
        ({"survivors": 0}, "survivors"),
        ({"bits": 8}, "bits must be 16, 32 or 64"),
        ({"bits": 16, "rows": 10**4}, "bits must be more than 16"),
        ({"bits": 16, "multiplier": 1000.0}, "bits must be more than 16"),
        ({"bits": 16, "rows": 700, "multiplier": 0.1}, "Take a finer grid"),
    ],
)
def test_wrong_arguments(wrong, message):
    good = {"norm": 1.0, "size": 3, "nodes": 5, "rows": 2, "multiplier": 1.0}
    with pytest.raises(ValueError, match=message):
        IntegerSum(**good | wrong)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.zeros(3), "rows must have shape"),
        (np.zeros((1, 4)), "rows must have shape"),
        (np.zeros((3, 3)), "with c at most 2"),
        (np.array([[np.nan, 0, 0]]), "rows must be finite"),
        (np.array([[1e308, 1e308, 0]]), "rows must be finite"),
        (np.array([[0.9, 0.9, 0]]), "of norms of at most 1"),
    ],
)
def test_wrong_rows(rows, message):
    grid = IntegerSum(norm=1.0, size=3, nodes=5, rows=2)
    with pytest.raises(ValueError, match=message):
        grid.encode(rows, np.random.default_rng(0))
