import numpy as np
import pytest

from ebfed.kernels import weighted_moments


def reference(ratios, variances, counts, means, scatters, mean):
    total = variances + ratios[:, None]
    weights = counts / total
    weight = weights.sum(axis=1)
    centre = weights @ means / np.where(weight == 0, 1.0, weight) if np.isnan(mean) else mean
    centre = np.broadcast_to(centre, ratios.shape)
    squares = (scatters + counts * (means - centre[:, None]) ** 2) / total
    sums = weight, centre, squares.sum(axis=1), np.log(total) @ counts
    return np.array([*sums, (weights / total).sum(axis=1), (squares / total).sum(axis=1)])


@pytest.mark.parametrize("mean", [np.nan, 0.3])
@pytest.mark.parametrize("apart", [0.5, 20.0])  # products of far variances leave the range
def test_sums_are_those_of_numpy(apart, mean):
    rng = np.random.default_rng(0)
    variances, means = np.exp(apart * rng.normal(size=203)), rng.normal(size=203)
    counts = np.where(np.arange(203) % 5, 1.0, rng.integers(0, 4, 203))
    scatters = np.where(counts > 1, rng.gamma(2.0, size=203), 0.0)
    ratios = np.append(0.0, np.geomspace(1e-8, 1e8, 17))
    found = weighted_moments(ratios, variances, counts, means, scatters, mean)
    expected = reference(ratios, variances, counts, means, scatters, mean)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    alone = weighted_moments(ratios[3:4], variances, counts, means, scatters, mean)
    np.testing.assert_array_equal(alone[:, 0], found[:, 3])


def test_without_messages_the_mean_is_zero():
    none = np.zeros(0)
    found = weighted_moments(np.array([0.0, 2.0]), none, none, none, none, np.nan)
    np.testing.assert_array_equal(found, np.zeros((6, 2)))
