"""Log-likelihoods of large counts, against those of many digits."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest

from ebfed.kernels import laplace, quadrature_derivatives
from ebfed.kernels.responses import _row
from ebfed.regression.families import NegativeBinomial, Poisson
from ebfed.regression.families.base import Responses

DISPERSION = 0.4


def log_gamma(x):
    """Stirling's series, for x from 1e5 on."""
    half_log_tau = Decimal(math.log(2 * math.pi)) / 2
    return (x - Decimal("0.5")) * x.ln() - x + half_log_tau + 1 / (12 * x)


def poisson(y, z):
    return y * z - z.exp() - log_gamma(y + 1)


def negative_binomial(y, z):
    size = 1 / Decimal(DISPERSION)
    ways = log_gamma(y + size) - Decimal(math.lgamma(size)) - log_gamma(y + 1)
    return ways + y * (z - size.ln()) - (y + size) * (1 + z.exp() / size).ln()


CASES = [(Poisson(), poisson, np.zeros(0)), (NegativeBinomial(), negative_binomial, None)]
CASES[1] = (*CASES[1][:2], np.log([DISPERSION]))


@pytest.mark.parametrize(("family", "exact", "shapes"), CASES, ids=["poisson", "negative binomial"])
@pytest.mark.parametrize("y", [2e5, 1e8, 1e11])
@pytest.mark.parametrize("away", [-3.0, 0.0, 1.0])
def test_values_of_large_counts_keep_their_digits(family, exact, shapes, y, away):
    z = math.log(y) + away * (1 / math.sqrt(y) if family.name == "poisson" else 1)
    with localcontext(prec=50):
        expected = float(exact(Decimal(y), Decimal(z)))
    rest = family.base(Responses(np.array([y]), np.array([2.0]), np.zeros(1)), shapes)[0][0]
    value = _row(family.kind, y, 2.0, z, family.in_kernel(shapes))[0]
    # a predictor of 25 has errors of 4e-15, which deviations of 3 sqrt(y) multiply
    assert value + rest == pytest.approx(2 * expected, abs=1e-8)


@pytest.mark.parametrize(("family", "exact", "shapes"), CASES, ids=["poisson", "negative binomial"])
def test_slopes_in_all_parameters_are_those_of_values(family, exact, shapes):
    """Of a client with small and large counts, by differences of its marginal likelihood."""
    y = np.array([3.0, 4e5, 2e5, 70.0])
    rows = Responses(y, np.array([1.0, 2.0, 1.0, 1.0]), np.array([0.0, 11.0, 11.5, 3.0]))
    t, w = np.polynomial.hermite_e.hermegauss(25)
    rules = t[None], (np.log(w / w.sum()) + t**2 / 2)[None], np.array([25]), np.array([np.inf])
    column, factor = np.arange(1 + len(shapes)), np.full(1 + len(shapes), -1)

    def at(point):
        z, numbers = point[0] + rows.offset, point[1:]
        taken = np.ones((4, 1)), z, y, rows.weight, np.array([0, 4]), family.kind
        taken += (family.in_kernel(numbers),)
        mode, cov = np.zeros((1, 1)), np.empty((1, 1, 1))
        laplace(*taken, 1e-14, 200, mode, cov, np.empty(1))
        d = len(point)
        value, slope, bend = np.empty(1), np.empty((1, d)), np.empty((1, d * (d + 1) // 2))
        found = value, slope, bend
        quadrature_derivatives(*taken, mode, cov, *rules, np.ones((4, 1)), column, factor, *found)
        base = family.base(rows, numbers)
        slope[0, 1:] += base[1].sum(axis=0)
        return value[0] + base[0].sum(), slope[0]

    point = np.array([0.3, *shapes])
    slope = at(point)[1]
    for j, move in enumerate(1e-4 * np.eye(len(point))):
        difference = (at(point + move)[0] - at(point - move)[0]) / 2e-4
        assert slope[j] == pytest.approx(difference, rel=1e-5, abs=1e-4)
