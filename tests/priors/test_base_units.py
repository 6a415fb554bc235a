"""Units do not matter: the fit of (c x, c s) is c times the fit of (x, s)."""

import numpy as np
import pytest

import ebfed.priors as priors
from ebfed.likelihoods import Gaussian

# What is exact in units of a power of two; elsewhere numbers are rounded at other digits.
POWERS, OTHERS = (2.0**20, 2.0**-17), (1e3, 3e-5)

PRIORS = {
    "normal": priors.Normal(),
    "normal, ml": priors.Normal(method="ml"),
    "normal, moments": priors.Normal(method="moments"),
    "point_normal": priors.PointNormal(),
    "point_normal, free mode": priors.PointNormal(mode=None),
    "laplace": priors.Laplace(),
    "laplace at 0": priors.Laplace(mean=0.0),
    "point_laplace": priors.PointLaplace(),
    "point_laplace, free mode": priors.PointLaplace(mode=None),
    "scale_mixture": priors.ScaleMixture(),
    "npmle": priors.Discrete("npmle"),
    "two atoms": priors.Discrete(2, random_state=0),
    "gaussian mixture": priors.GaussianMixture(2, random_state=0),
}
SLABS = [name for name in PRIORS if "laplace" in name or "point" in name]

# Errors over twelve orders of magnitude, and of one.
WIDTHS = {"wide": (-6, 6), "even": (-0.5, 0.5)}


def messages(width, c=1.0, m=40):
    rng = np.random.default_rng(5)
    s = 10 ** rng.uniform(*WIDTHS[width], m)
    theta = np.where(rng.random(m) < 0.5, 0.0, rng.normal(0, 3, m))
    x = theta + s * rng.standard_normal(m)
    return Gaussian(c * x[:, None], (c * s[:, None]) ** 2)


def answer(prior, rows, c):
    """Posterior means, and the log-likelihood, in the units of c = 1."""
    fitted = prior.fit(rows)
    likelihood = fitted.log_marginal(rows).sum() + len(rows) * np.log(c)
    return fitted.posterior(rows).mean[:, 0] / c, likelihood


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PRIORS)
def test_units_do_not_matter(name, width):
    rows = messages(width)
    errors = np.sqrt(rows.variances[:, 0])
    means, likelihood = answer(PRIORS[name], rows, 1.0)
    for c in POWERS + OTHERS:
        there, reached = answer(PRIORS[name], messages(width, c), c)
        # two atoms are far from estimates with errors of 1e-6: of -1e12, 1e-4 is rounding
        lost = name == "two atoms" and width == "wide"
        assert reached == pytest.approx(likelihood, abs=1e-8, rel=1e-15 if lost else 0)
        # the likelihood of a nonparametric fit ends within 1e-8 of its maximum, means within more
        near = 1e-6 if lost or name == "npmle" else 1e-8
        np.testing.assert_allclose((there - means) / errors, 0.0, atol=near)


@pytest.mark.parametrize("c", POWERS)
@pytest.mark.parametrize("name", SLABS)
def test_slabs_are_exact_in_units_of_a_power_of_two(name, c):
    means, _ = answer(PRIORS[name], messages("wide"), 1.0)
    there, _ = answer(PRIORS[name], messages("wide", c), c)
    np.testing.assert_array_equal(there, means)


@pytest.mark.parametrize("name", ["point_normal", "point_laplace", "scale_mixture"])
def test_effects_many_errors_away_keep_their_digits(name):
    """u**2 / 2 s**2 is 5e23 for the last, and its log-density -3 or so."""
    x = np.array([[0.0], [1.5], [-0.7], [2.0], [1.0]])
    s = np.array([[1.0], [1.0], [0.5], [1.0], [1e-12]])
    prior = PRIORS[name].fit(Gaussian(x, s**2))
    tenfold = prior.log_marginal(Gaussian(x[4:], (10 * s[4:]) ** 2))
    assert prior.log_marginal(Gaussian(x[4:], s[4:] ** 2)) == pytest.approx(tenfold, abs=1e-10)
