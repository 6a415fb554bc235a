"""Weighted points that represent a density of a few parameters."""

import numpy as np
import pytest

from ebfed.priors.exploration import explore


def moments(points, weights):
    mean = weights @ points
    return mean, (points - mean).T * weights @ (points - mean)


@pytest.mark.parametrize("spread", [1e-5, 0.03, 1.0, 3.0])
@pytest.mark.parametrize("start", [0.0, 0.9])
def test_a_normal_density_however_narrow(spread, start):
    """Wherever the search begins: a ridge as narrow as 1e-5 of a unit has the moments that it has.

    The share of probability that is left out, .001, is worth .7 percent of a variance.
    """
    covariance = spread**2 * np.array([[1.0, 0.9], [0.9, 2.0]])
    precision = np.linalg.inv(covariance)
    centre = np.array([0.7, -0.4])

    def log_density(points):
        away = points - centre
        return -0.5 * np.einsum("ki,ij,kj->k", away, precision, away)

    points, weights = explore(log_density, [start, -start])
    mean, found = moments(points, weights)
    assert abs(mean - centre).max() < 0.01 * spread
    np.testing.assert_allclose(found, covariance, rtol=0.015)
    assert len(points) < 300


@pytest.mark.parametrize("power", [0.0, 0.4])
def test_a_spread_that_may_be_zero(power):
    """Half a normal density, times a power that is zero at the end: see moments of a chi variable.

    A sum over points misses an infinite slope at the end by a percent or two.
    """
    from scipy.special import gamma

    points, weights = explore(
        lambda x: -0.5 * x[:, 0] ** 2 + power * np.log(x[:, 0]), [0.1], positive=True
    )
    total = gamma((power + 1) / 2)
    first, second = (2 ** (k / 2) * gamma((power + 1 + k) / 2) / total for k in (1, 2))
    assert (points > 0).all()
    assert weights @ points[:, 0] == pytest.approx(first, rel=0.03)
    assert weights @ points[:, 0] ** 2 == pytest.approx(second, rel=0.03)


def test_heavy_tails_are_followed_to_their_ends():
    """Exponential tails, as of the hyperbolic secant; a thousandth is left out, far away."""
    points, weights = explore(lambda x: -np.log(np.cosh(x[:, 0])), [2.0])
    assert points.min() < -6
    assert points.max() > 6
    assert weights @ points[:, 0] ** 2 == pytest.approx(np.pi**2 / 4, rel=0.03)


def test_a_support_that_ends():
    def log_density(x):
        return np.where(np.abs(x[:, 0]) <= 1, 0.0 * x[:, 0], -np.inf)

    points, _ = explore(log_density, [0.2])
    assert np.abs(points).max() <= 1
    assert len(points) >= 3


def test_a_density_that_does_not_fall_is_refused():
    with pytest.raises(ValueError, match="does not fall to zero"):
        explore(lambda x: 0.0 * x[:, 0], [0.0])


def test_a_density_of_two_peaks_that_a_lattice_misses_is_refused():
    """The start is far higher than what a climb from it can reach: a spike of no width."""

    def log_density(x):
        return np.where(x[:, 0] == 0.1, 50.0, -0.5 * x[:, 0] ** 2)

    with pytest.raises(ValueError, match="not smooth"):
        explore(log_density, [0.1])


def test_a_peak_at_an_end_of_the_support():
    """An exponential density on (-inf, 1]: mean and standard deviation, by few points.

    Half a cell is beyond the end or short of it: within a third of the standard deviation.
    """
    points, weights = explore(lambda x: np.where(x[:, 0] <= 1, 4 * x[:, 0], -np.inf), [0.0])
    mean = weights @ points[:, 0]
    assert mean == pytest.approx(0.75, abs=0.08)
    assert np.sqrt(weights @ (points[:, 0] - mean) ** 2) == pytest.approx(0.25, abs=0.08)
    assert len(points) < 150
