"""Priors that users write: the base finds the populations that the messages leave plausible."""

import numpy as np
import pytest
from scipy import stats

import ebfed as eb
from ebfed.likelihoods import Gaussian, Poisson
from ebfed.priors import Prior
from ebfed.priors.base import FreeParameters


class HalfNormal(Prior):
    """Population of rates ``|z|``, ``z ~ N(0, scale^2)``."""

    support = (0.0, np.inf)
    free = {"scale": "spread"}

    def _start(self, rows, counts):
        self._set(np.nanmean(rows.local) + 0.1)

    def _m_step(self, atoms, masses):
        self._set(np.sqrt(np.average(atoms[:, 0] ** 2, weights=masses)))

    def _set(self, scale):
        self.scale_, self.n_parameters_ = scale, 1
        self.mean_ = np.array([scale * np.sqrt(2 / np.pi)])
        self.variance_ = np.array([scale**2 * (1 - 2 / np.pi)])

    def logpdf(self, theta):
        return stats.halfnorm.logpdf(theta[:, 0], scale=self.scale_)

    def sample(self, size, random_state=None):
        return abs(np.random.default_rng(random_state).normal(0, self.scale_, (size, 1)))


class StudentPopulation(Prior):
    """Population ``location + scale t``, t of 5 degrees of freedom."""

    free = {"location": "line", "scale": "spread"}

    def _start(self, rows, counts):
        self._set(np.nanmean(rows.local), np.nanstd(rows.local) + 1e-3)

    def _m_step(self, atoms, masses):
        x, location, scale = atoms[:, 0], self.location_, self.scale_
        for _ in range(20):
            weights = masses * 6 / (5 + ((x - location) / scale) ** 2)
            location = np.average(x, weights=weights)
            scale = max(np.sqrt(weights @ (x - location) ** 2 / masses.sum()), 1e-6)
        self._set(location, scale)

    def _set(self, location, scale):
        self.location_, self.scale_, self.n_parameters_ = location, scale, 2
        self.mean_, self.variance_ = np.array([location]), np.array([scale**2 * 5 / 3])

    def logpdf(self, theta):
        return stats.t.logpdf(theta[:, 0], 5, self.location_, self.scale_)

    def sample(self, size, random_state=None):
        draws = np.random.default_rng(random_state).standard_t(5, (size, 1))
        return self.location_ + self.scale_ * draws


EVENTS, EXPOSURE = np.array([3, 0, 9, 2, 14, 1, 6, 4]), np.array([2.0, 1, 3, 2, 5, 2, 1, 4])
ESTIMATES = np.array([0.3, 1.9, -0.4, 1.1, 5.2, 0.8, 1.4, 0.1, 1.0, 2.2])


def test_plausible_scales_are_those_of_bayes_theorem():
    prior = HalfNormal().fit(Poisson(EVENTS[:, None], EXPOSURE))

    scales, rates = np.linspace(0.05, 40, 400), np.linspace(0, 40, 8001)[1:]
    probabilities = stats.poisson.pmf(EVENTS[:, None], EXPOSURE[:, None] * rates)
    # all of them end at zero before the last rate, so that sums over rates are integrals
    marginals = probabilities @ stats.halfnorm.pdf(rates[:, None], scale=scales) * 0.005
    density = marginals.prod(axis=0)
    density /= density.sum()
    mean = density @ scales
    held = prior.plausible_
    # a lattice of steps of .75 deviations, of which a thousandth of the probability is left out
    assert held["weights"][:, 0] @ held["scale"] == pytest.approx(mean, rel=0.01)
    found = np.sqrt(held["weights"][:, 0] @ (held["scale"] - mean) ** 2)
    assert found == pytest.approx(np.sqrt(density @ (scales - mean) ** 2), rel=0.05)
    assert prior.scale_ == pytest.approx(scales[np.argmax(density)], abs=0.06)  # half a step


def test_intervals_average_over_plausible_populations():
    messages = Poisson(EVENTS[:, None], EXPOSURE)
    prior = HalfNormal().fit(messages)
    wide, known = (prior.posterior(messages, integrate=each) for each in (True, False))
    assert (wide.sd > known.sd).mean() > 0.7
    new = eb.PoissonEB(prior=HalfNormal()).fit(EVENTS, exposure=EXPOSURE)
    np.testing.assert_allclose(new.posterior().sd, wide.sd)  # the same through both doors


def test_likelihoods_of_narrow_populations_go_on_to_that_of_a_point():
    # nodes are .01 apart: of densities between them, masses would be those of no distribution
    messages = Gaussian(ESTIMATES[:, None], np.full((10, 1), 0.8))
    prior = StudentPopulation().fit(messages)
    rows, counts = messages.compress()
    free = FreeParameters(prior, rows, counts)
    scales = np.geomspace(1e-6, 1e-2, 60)
    found = free.log_density(np.column_stack([np.full(60, 1.0), scales]))
    at_point = counts @ (rows.logpdf(np.ones((1, 1)))[:, 0] - free.table[-1])
    np.testing.assert_allclose(found[scales < 1e-3], at_point, rtol=0, atol=5e-3)
    assert np.abs(np.diff(found)).max() < 0.01


def test_a_spread_of_almost_nothing_is_found_without_thousands_of_steps():
    # estimates that differ less than their errors: EM would creep towards zero
    messages = Gaussian(ESTIMATES[:, None] / 10, np.ones((10, 1)))
    prior = StudentPopulation().fit(messages)
    assert len(prior.path_) <= 50
    assert prior.log_marginal(messages).sum() > prior.path_[0]
    assert prior.posterior(messages).interval(0.95)[1].max() < 3


def test_what_is_free_is_checked_and_its_absence_noted():
    class Unknown(HalfNormal):
        free = {"scale": "log"}

    class Silent(HalfNormal):
        free = {}

    messages = Poisson(EVENTS[:, None], EXPOSURE)
    with pytest.raises(ValueError, match="on the 'line', 'positive' or a 'spread'; got "):
        _ = Unknown().fit(messages).plausible_
    silent = Silent().fit(messages)
    assert silent.plausible_ is None
    assert any("Silent does not state its `free` parameters" in note for note in silent.notes_)
    assert not any("free" in note for note in HalfNormal().fit(messages).notes_)


@pytest.mark.slow
@pytest.mark.parametrize("m", [8, 15, 40])
@pytest.mark.parametrize("spread", [0.3, 1.0])
@pytest.mark.parametrize("population", ["half normal", "t"])
def test_intervals_of_few_groups_cover(population, spread, m):
    rng, inside, total = np.random.default_rng(m), 0, 0
    for _ in range(150):
        if population == "half normal":
            theta, exposure = abs(rng.normal(0, 2 * spread, m)), rng.uniform(0.25, 5, m)
            fit = eb.PoissonEB(prior=HalfNormal())
            posterior = fit.fit(rng.poisson(exposure * theta), exposure=exposure).posterior()
        else:
            theta, se = 1 + spread * rng.standard_t(5, m), rng.uniform(0.5, 1.5, m)
            estimates = rng.normal(theta, se)
            posterior = eb.posterior_from(estimates, se, prior=StudentPopulation())
        low, high = (np.ravel(end) for end in posterior.interval(0.95))
        inside, total = inside + int(((low <= theta) & (theta <= high)).sum()), total + m
    assert 0.93 <= inside / total <= 0.985
