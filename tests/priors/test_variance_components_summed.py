"""Tables of which only sums are known, beside those of all values."""

import numpy as np
import pytest

from ebfed.likelihoods import Gaussian
from ebfed.priors.search import Unanswered
from ebfed.priors.variance_components import MomentTable, SummedGaussian, SummedTable

RNG = np.random.default_rng(0)
N = RNG.integers(0, 6, 30)
VALUES = RNG.normal(3.0, 2.0, (30, 1))
with np.errstate(divide="ignore"):
    VARIANCES = 1 / N[:, None]


def tables(ratios, centre=2.5):
    known, away = {}, (VALUES[:, 0] - centre)[N > 0]
    for ratio in ratios:
        w = 1 / (VARIANCES[N > 0, 0] + ratio)
        terms = w * away, w * away**2, w**2 * away, w**2 * away**2
        known[0, float(ratio)] = np.array([each.sum() for each in terms])
    scatter = np.array([7.0]), 12
    summed = SummedGaussian(
        np.full_like(VALUES, np.nan), VARIANCES, *scatter, np.array([centre]), known
    )
    whole = Gaussian(VALUES, VARIANCES, *scatter)
    return SummedTable.of(summed, 0, True), MomentTable.of(whole, 0, True)


@pytest.mark.parametrize("fixed", [None, 1.5])
def test_profiles_are_those_of_values(fixed):
    ratios = np.array([0.0, 0.3, 2.0])
    pair = tables(ratios)
    for table in pair:
        table.fixed_mean = fixed
    for ratio in (ratios, 0.3):
        one, other = (vars(table.profile(ratio)) for table in pair)
        for name, value in other.items():
            np.testing.assert_allclose(
                one[name], np.broadcast_to(value, np.shape(one[name])), 1e-10
            )
    one, other = (table.excess(0.7) for table in pair)
    np.testing.assert_allclose(one, other, rtol=1e-10)
    assert pair[0].largest_square() >= pair[1].largest_square()
    assert pair[0].size == pair[1].size


def test_what_is_not_known_is_asked():
    summed, _ = tables([0.5])
    with pytest.raises(Unanswered) as open_:
        summed.profile(np.array([0.5, 0.6, 0.7]))
    assert open_.value.question == [(0, 0.6), (0, 0.7)]
