"""Negative binomial rows: laws of rows and sums, and the dispersion within groups."""

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize_scalar
from scipy.special import gammaln

from ebfed.families import NegativeBinomial

RNG = np.random.default_rng(0)
N = RNG.integers(1, 7, 800)
GROUPS = np.repeat(np.arange(800), N)
EXPOSURE = RNG.uniform(0.5, 3, 800)
RATES = RNG.gamma(4, 0.8, 800)


def rows(dispersion):
    mean = (EXPOSURE * RATES)[GROUPS]
    return RNG.poisson(RNG.gamma(1 / dispersion, mean * dispersion))[:, None].astype(float)


@pytest.mark.parametrize("dispersion", [0.02, 0.5, 3.0])
def test_conditional_likelihood_of_the_dispersion(dispersion):
    """The optimum from 32 nodes is that of the rows themselves, within 1e-4 of it."""
    y, family = rows(dispersion), NegativeBinomial()
    (found,) = family.pooled(
        [family.figures(family.summarise(y, GROUPS, {"exposure": EXPOSURE[GROUPS]}))]
    )
    total = np.bincount(GROUPS, y[:, 0])

    def minus(log_dispersion):
        size = np.exp(-log_dispersion)
        within = gammaln(y + size).sum() - len(y) * gammaln(size)
        return -(within - (gammaln(total + N * size) - gammaln(N * size)).sum())

    best = minimize_scalar(minus, bounds=(-6, 4), method="bounded", options={"xatol": 1e-9})
    assert found == pytest.approx(np.exp(best.x), rel=1e-4)
    assert found == pytest.approx(dispersion, rel=0.3)  # its standard error is below a tenth


@pytest.mark.parametrize("learned", [False, True])
def test_density_of_rows(learned):
    """Sum and base measure make up the probability of rows; interpolated where it is learned."""
    y = rows(0.5)
    family = NegativeBinomial() if learned else NegativeBinomial(0.5)
    summary = family.summarise(y, GROUPS, {"exposure": EXPOSURE[GROUPS]})
    family = family.settled(np.array([0.5])) if learned else family
    log = family.log_base_measure(summary)
    likelihood = family.likelihood(family.figures(summary))
    log += [likelihood.take([i]).logpdf(RATES[[i], None])[0, 0] for i in range(800)]
    each = stats.nbinom.logpmf(y[:, 0], 2, 2 / (2 + (EXPOSURE * RATES)[GROUPS]))
    expected = np.bincount(GROUPS, each)
    np.testing.assert_allclose(log, expected, rtol=0, atol=1e-4 if learned else 1e-9)


def test_without_dispersion_rows_are_poisson():
    """Rows that are more alike than Poisson counts: the dispersion is 0, and the density theirs."""
    y, groups = np.tile([[2.0], [3.0]], (60, 1)), np.repeat(np.arange(30), 4)
    family = NegativeBinomial()
    summary = family.summarise(y, groups)
    found = family.pooled([family.figures(summary)])
    assert found[0] == 0
    family = family.settled(found)
    log = family.log_base_measure(summary)
    log += family.likelihood(family.figures(summary)).logpdf(np.array([[2.4]]))[:, 0]
    expected = np.bincount(groups, stats.poisson.logpmf(y[:, 0], 2.4))
    np.testing.assert_allclose(log, expected, rtol=1e-9)


def test_nothing_shows_the_scatter():
    family = NegativeBinomial()
    alone = family.summarise(np.array([[3.0], [5.0]]), np.array([0, 1]))
    assert family.pooled([family.figures(alone)]) is None


def test_exposures_are_those_of_groups():
    with pytest.raises(ValueError, match=r"the same in all rows of a group.*row 0 has 1, another"):
        NegativeBinomial(1.0).summarise(
            np.array([[3.0], [5.0]]), np.array([0, 0]), {"exposure": np.array([1.0, 2.0])}
        )
