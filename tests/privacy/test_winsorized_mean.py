"""Winsorized means find concentrated vectors, and keep their promise for any others."""

import numpy as np
import pytest

from ebfed.privacy import accountant, events
from ebfed.privacy.audit import bound_from_scores
from ebfed.privacy.winsorized_mean import (
    WinsorizedMean,
    _clipped_average,
    _middles,
    rotate,
    rotate_back,
)

ERROR = 1e-6  # probability with which an audit raises a false alarm


def signs_of(rng, size):
    return rng.choice([-1.0, 1.0], size)


def concentrated(rng, count, size, tau):
    """Vectors within tau of one point of the unit ball."""
    around = rng.normal(size=(count, size))
    around *= tau * rng.random((count, 1)) / np.linalg.norm(around, axis=1, keepdims=True)
    return 0.3 * np.eye(1, size) + around


# Rotation ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 64])
def test_the_rotation_is_orthogonal(size):
    rng = np.random.default_rng(0)
    signs = signs_of(rng, size)
    matrix = rotate(np.eye(size), signs)
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(size), atol=1e-12)
    np.testing.assert_allclose(np.abs(matrix), size**-0.5)  # no coordinate is spared
    np.testing.assert_allclose(rotate_back(matrix, signs), np.eye(size), atol=1e-12)


def test_the_rotation_is_that_of_the_hadamard_matrix():
    from scipy.linalg import hadamard

    rng = np.random.default_rng(0)
    x, signs = rng.normal(size=(3, 11)), signs_of(rng, 16)
    padded = np.hstack([x, np.zeros((3, 5))])
    np.testing.assert_allclose(rotate(x, signs), (padded * signs) @ hadamard(16) / 4, atol=1e-12)


# Accuracy ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 5, 16])
def test_the_mean_of_concentrated_vectors_is_found(size):
    """An error of 6 standard deviations of the noise has a probability below 1e-7."""
    rng = np.random.default_rng(1)
    mean = WinsorizedMean(bound=1.0, concentration=0.02, rho=0.1, failure=1e-6)
    x = concentrated(rng, 2 * mean.fewest(size), size, 0.02)
    error = mean.release(x, rng) - x.mean(axis=0)
    assert np.abs(error).max() < 6 * mean.sigma(len(x), size)
    assert 6 * mean.sigma(len(x), size) < 0.02  # much less than where the vectors are


def test_nothing_is_clipped_where_vectors_are_concentrated():
    rng = np.random.default_rng(2)
    x = concentrated(rng, 3000, 16, 0.01)
    y = rotate(x, signs_of(rng, 16))
    deviation = WinsorizedMean(1.0, 0.01, 1.0, failure=1e-6).deviation(3000, 16)
    average = _clipped_average(y, 200, deviation, 5.0, rng)
    np.testing.assert_allclose(average, y.mean(axis=0), atol=1e-12)


def test_windows_of_two_deviations_would_clip_half():
    y = np.where(np.arange(1000) < 490, -1.0, 0.999)[:, None] + 1.001  # within 1 of their middle
    middle = _middles(y, 50, 1.0, 10.0, np.random.default_rng(0))
    assert (y < middle - 2.0).mean() == 0.49
    assert (np.abs(y - middle) <= 3.0).all()


def test_windows_are_drawn_by_the_exponential_mechanism():
    """A chi-squared statistic beyond its 1 - 1e-6 quantile is a false alarm."""
    from scipy.stats import chi2

    draws, epsilon = 20_000, 1.5
    y = np.array([-0.9, -0.4, -0.3, 0.6])[:, None].repeat(draws, axis=1)
    middle = _middles(y, 4, 0.25, epsilon, np.random.default_rng(3))
    assert set(np.unique(middle)) <= {-0.75, -0.25, 0.25, 0.75}
    farther = np.array([3, 1, 3, 3])  # vectors below a bin or above it
    weight = np.exp(-epsilon / 2 * farther)
    expected = draws * weight / weight.sum()
    counted = np.array([(middle == at).sum() for at in (-0.75, -0.25, 0.25, 0.75)])
    assert ((counted - expected) ** 2 / expected).sum() < chi2.isf(1e-6, 3)


def test_it_moves_with_the_vectors_and_ignores_their_order():
    rng = np.random.default_rng(4)
    x = concentrated(rng, 4000, 8, 0.01)
    mean = WinsorizedMean(1.0, 0.01, 0.1)
    one = mean.release(x, np.random.default_rng(0))
    np.testing.assert_allclose(
        mean.release(rng.permutation(x), np.random.default_rng(0)), one, atol=1e-12
    )
    scaled = WinsorizedMean(10.0, 0.1, 0.1).release(10 * x, np.random.default_rng(0))
    np.testing.assert_allclose(scaled, 10 * one, rtol=1e-9)


def test_windows_do_not_depend_on_how_many_are_weighed_at_once(monkeypatch):
    y = np.random.default_rng(5).normal(size=(50, 40))
    whole = _middles(y, 30, 0.2, 1.0, np.random.default_rng(0))
    monkeypatch.setattr("ebfed.privacy.winsorized_mean.CELLS", 100)
    np.testing.assert_array_equal(_middles(y, 30, 0.2, 1.0, np.random.default_rng(0)), whole)


def test_few_vectors_are_better_served_by_a_gaussian_mean():
    rng, mean = np.random.default_rng(6), WinsorizedMean(1.0, 0.01, 0.1)

    def ratio(count, size):
        x = concentrated(rng, count, size, 0.01)
        error = mean.release(x, rng) - x.mean(axis=0)
        return np.sqrt(np.mean(error**2)) * count / 2 * np.sqrt(2 * mean.rho)

    assert mean.fewest(1024) > 1000
    assert ratio(1000, 1024) > 5  # about 15
    assert ratio(5000, 16) < 0.5  # about 0.2


# Privacy ----------------------------------------------------------------------------------------


def test_parts_cost_what_is_promised():
    mean = WinsorizedMean(2.0, 0.05, 0.3, share=0.4)
    windows = 128 * mean.window_epsilon(100) ** 2 / 8
    noise = mean.sensitivity(500, 100) ** 2 / (2 * mean.sigma(500, 100) ** 2)
    np.testing.assert_allclose([windows, noise], [0.12, 0.18])
    assert mean.event.rho == 0.3


@pytest.mark.parametrize("tau", [0.001, 0.3, 5.0])
def test_the_average_moves_by_no_more_than_its_sensitivity(tau):
    """Windows as they fall, and vectors as far apart as they can be."""
    rng, count, size = np.random.default_rng(7), 5, 8
    mean = WinsorizedMean(1.0, tau, 1.0)
    deviation = mean.deviation(count, size)
    bins, most = int(np.ceil(1.0 / deviation)), 0.0
    for seed in range(300):
        y = rng.normal(size=(count, size))
        y /= np.linalg.norm(y, axis=1, keepdims=True)
        other = y.copy()
        other[0] *= -1
        middle = _middles(y, bins, deviation, 1.0, np.random.default_rng(seed))
        ends = middle - 3 * deviation, middle + 3 * deviation
        moved = (np.clip(y, *ends) - np.clip(other, *ends)).mean(axis=0)
        most = max(most, np.linalg.norm(moved))
    assert most <= mean.sensitivity(count, size) * (1 + 1e-12)
    assert most > 0.3 * mean.sensitivity(count, size)  # it is not far too large


def shown(first, second):
    """Epsilon at delta=0.01 that scores of two neighbours show; at most `ERROR` are too large."""
    return bound_from_scores(first, second, delta=0.01, error=ERROR).lower


def claimed(rho):
    event = events.concentrated(rho)
    return accountant.epsilon(event, 0.01, relation="replace_one", method="rdp")


@pytest.mark.parametrize(("noise", "sound"), [(1.0, True), (0.5, False)])
def test_the_noise_of_the_average_keeps_the_promise(noise, sound):
    """Nineteen of twenty vectors hold the window; the last goes from one of its ends to the other.

    A false alarm has a probability of 1e-6; half the noise is found out.
    """
    mean, draws, rng = WinsorizedMean(1.0, 0.05, 0.5, share=0.2), 60_000, np.random.default_rng(8)

    def releases(vectors):  # of one coordinate, side by side
        y = np.array(vectors)[:, None].repeat(draws, axis=1)
        epsilon, bins = mean.window_epsilon(1), mean._bins(20, 1)
        average = _clipped_average(y, bins, mean.deviation(20, 1), epsilon, rng)
        return average + noise * mean.sigma(20, 1) * rng.standard_normal(draws)

    lower = shown(releases([0.0] * 19 + [1.0]), releases([0.0] * 19 + [-1.0]))
    assert lower > 0.5 * claimed(mean.rho)
    assert (lower < claimed(mean.rho)) == sound


@pytest.mark.parametrize(("factor", "sound"), [(1.0, True), (2.0, False)])
def test_the_choice_of_windows_keeps_the_promise(factor, sound):
    """One vector goes from a corner of the cube to the opposite one, and draws 16 windows along.

    A false alarm has a probability of 1e-6; windows of twice the epsilon are found out.
    """
    mean, draws, rng = WinsorizedMean(1.0, 1.0, 0.5), 30_000, np.random.default_rng(9)
    epsilon = factor * mean.window_epsilon(16)

    def middles(end):
        y = np.full((1, 16 * draws), end)
        return _middles(y, 2, 0.5, epsilon, rng).reshape(draws, 16).sum(axis=1)

    lower = shown(middles(0.25), middles(-0.25))
    assert lower > 0.5 * claimed(mean.share * mean.rho)
    assert (lower < claimed(mean.share * mean.rho)) == sound


def test_a_budget_is_spent_but_not_exceeded():
    mean = WinsorizedMean.from_budget(1.0, 0.1, epsilon=2.0, delta=1e-5, times=50)
    spent = accountant.epsilon(
        events.repeated(mean.event, 50), 1e-5, relation="replace_one", method="rdp"
    )
    assert 1.99 < spent <= 2.0


# What cannot be -----------------------------------------------------------------------------------


def test_long_and_infinite_vectors_count_for_no_more_than_others():
    rng = np.random.default_rng(9)
    x = concentrated(rng, 5000, 4, 0.01)
    x[0], x[1], x[2] = np.inf, np.nan, 1e300
    mean = WinsorizedMean(1.0, 0.01, 0.1)
    assert np.abs(mean.release(x, rng) - x[3:].mean(axis=0)).max() < 0.01


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"bound": 0}, "bound must be a finite number above 0"),
        ({"concentration": -1.0}, "concentration must be a finite number above 0"),
        ({"rho": np.inf}, "rho must be a finite number above 0"),
        ({"share": 1.0}, "share must lie between 0 and 1"),
        ({"failure": 0}, "failure must lie between 0 and 1"),
    ],
)
def test_wrong_arguments(change, words):
    with pytest.raises(ValueError, match=words):
        WinsorizedMean(**{"bound": 1.0, "concentration": 0.1, "rho": 0.1} | change)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (3,)])
def test_there_must_be_vectors(shape):
    with pytest.raises(ValueError, match="at least one vector and one coordinate"):
        WinsorizedMean(1.0, 0.1, 0.1).release(np.zeros(shape), np.random.default_rng(0))


def test_bins_must_not_be_too_many_nor_the_generator_a_seed():
    with pytest.raises(ValueError, match="concentration must be large enough"):
        WinsorizedMean(1.0, 1e-9, 0.1).release(np.zeros((3, 2)), np.random.default_rng(0))
    with pytest.raises(TypeError, match=r"rng must be a numpy\.random\.Generator"):
        WinsorizedMean(1.0, 0.1, 0.1).release(np.zeros((3, 2)), 0)
