"""What every family keeps: links, likelihoods, sampling laws, blank summaries."""

import numpy as np
import pytest
from scipy.special import psi

from ebfed import families, priors
from ebfed.channels import Exact, OneBit
from ebfed.families.base import IDENTITY, LOG, LOGIT

FAMILIES = {
    "gaussian": families.Gaussian(0.5),
    "binomial": families.Binomial(),
    "categorical": families.Categorical(),
    "duration": families.Duration(),
    "ended duration": families.EndedDuration(),
    "negative_binomial": families.NegativeBinomial(0.5),
    "poisson": families.Poisson(),
    "variance": families.Variance(),
}
# Mean of the log of a chi-square on five degrees of freedom, over five.
BIAS = {"variance": psi(2.5) - np.log(2.5)}


def test_every_family_is_tried():
    listed = [getattr(families, name) for name in families.__all__]
    concrete = [cls for cls in listed if hasattr(cls, "conjugate")]
    assert set(concrete) == {type(family) for family in FAMILIES.values()}


@pytest.mark.parametrize("link", [IDENTITY, LOGIT, LOG], ids=lambda link: link.name)
def test_links_and_their_slopes(link):
    theta = np.array([0.1, 0.4, 0.8])
    np.testing.assert_allclose(link.from_line(link.to_line(theta)), theta, rtol=1e-12)
    step = 1e-6
    slope = (link.to_line(theta + step) - link.to_line(theta - step)) / (2 * step)
    np.testing.assert_allclose(link.slope(theta), slope, rtol=1e-6)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_conjugate_population_is_a_prior_on_the_support(name):
    family = FAMILIES[name]
    prior = getattr(priors, family.conjugate)
    assert prior.support == family.support
    assert family.likelihood(family.figures(family.blank(np.array([3]), 1))).support == (
        family.support
    )


@pytest.mark.parametrize("name", FAMILIES)
def test_the_open_channel_counts_all_that_it_sends(name):
    rows = np.array([[1.0], [2.0 if "duration" in name else 0.0], [1.0]])
    given = {"sample_weight": np.array([1.0, 2.0, 3.0]), "exposure": np.full(3, 2.0)}
    for weigh in ({}, given):
        summary = FAMILIES[name].summarise(rows, np.array([0, 0, 1]), weigh)
        sent = Exact().encode(summary)
        bits = 8 * sum(values.nbytes for part, values in sent.items() if part != "n")
        assert Exact().message_bits(summary).sum() == bits


def test_channels_count_the_exposures_that_they_send():
    private = OneBit(1.0, (0, 3))
    for given in ({}, {"exposure": np.full(3, 2.0)}):
        summary = FAMILIES["poisson"].summarise(np.ones((3, 1)), np.array([0, 0, 1]), given)
        sent = private.encode(summary, 0)
        assert ("weight" in sent) == (summary.weight is not None)
        expected = private.bits + 64 * ("weight" in sent)
        np.testing.assert_array_equal(private.message_bits(summary), np.full(2, expected))


@pytest.mark.parametrize("name", FAMILIES)
def test_blank_summaries_have_the_parts_of_real_ones(name):
    family = FAMILIES[name]
    rows = np.array([[1.0], [2.0 if "duration" in name else 0.0], [1.0]])
    real = family.summarise(rows, np.array([0, 0, 1]))
    blank = family.blank(real.n, 1, real.weight)
    assert family.figures(blank).keys() == family.figures(real).keys()
    for part, values in family.figures(blank).items():
        assert values.dtype == family.figures(real)[part].dtype, part


@pytest.mark.parametrize("name", FAMILIES)
def test_own_estimates_vary_as_stated(name):
    """Variances of 40,000 draws, within 5 %: false alarms are rarer than 1e-6."""
    family, rng = FAMILIES[name], np.random.default_rng(0)
    size = 200 if name == "ended duration" else 6  # its variance is that of many rows
    draws = family.simulate(np.full(40_000, 0.4), np.full(40_000, size), rng)
    assert draws.mean() == pytest.approx(0.4 + BIAS.get(name, 0.0), abs=0.02)
    assert draws.var() == pytest.approx(family.sampling_variance(0.4, size), rel=0.05)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_is_one_value(name):
    family = FAMILIES[name]
    assert family == type(family)(**vars(family))
    assert family.settled(None) == family
