"""Kernels of t errors against quadrature; run also with NUMBA_DISABLE_JIT=1."""

import numpy as np
import pytest
from scipy import stats

from ebfed.kernels import (
    point_and_slab,
    student_log_density,
    student_moments,
    student_normal,
    student_normals,
    student_sizes,
    student_slab,
)
from ebfed.likelihoods import Gaussian, StudentT
from ebfed.priors.symmetric import LaplaceSlab, NormalSlab, log_blurred

pytestmark = pytest.mark.filterwarnings("ignore:(overflow|divide by zero) encountered")

Z = np.array([0.01, 1.0, 4.0, 12.0, 50.0])
VARIANCES = (1e-3, 0.3, 1.0, 10.0, 1e3)


def by_quadrature(z, df, t):
    """Log marginal, posterior mean and sd, on grids around the three places where mass can be."""
    logs, at = [], []
    for centre, scale in ((0.0, np.sqrt(t)), (z * t / (1 + t), np.sqrt(t / (1 + t))), (z, 1.0)):
        at.append(centre + scale * np.sinh(np.linspace(-8, 8, 4001)))
    theta = np.unique(np.concatenate(at))
    theta = theta[np.abs(theta) < 40 * np.sqrt(t) + z]
    # Gauss-Legendre between neighbours: the grid is finer than anything in the integrand
    nodes, weights = np.polynomial.legendre.leggauss(4)
    half = np.diff(theta)[:, None] / 2
    theta = ((theta[1:] + theta[:-1])[:, None] / 2 + half * nodes).ravel()
    logs = stats.norm.logpdf(theta, 0, np.sqrt(t)) + stats.t.logpdf(z - theta, df)
    masses = np.exp(logs - logs.max()) * (half * weights).ravel()
    mean = masses @ theta / masses.sum()
    sd = np.sqrt(masses @ (theta - mean) ** 2 / masses.sum())
    return np.log(masses.sum()) + logs.max(), mean, sd


@pytest.mark.parametrize("df", [1.0, 2.0, 5.0, 30.0, 1e3, 1e6])
def test_moments_are_those_of_quadrature(df):
    ones = np.ones(len(Z))
    for t in VARIANCES:
        sizes = student_sizes(Z, ones, df * ones, t, t)
        marginal = student_normal(Z, ones, df * ones, sizes, t)[0]
        mean, variance = student_moments(Z, ones, df * ones, sizes, t, 0 * ones, 0.0)
        expected = np.array([by_quadrature(z, df, t) for z in Z]).T
        np.testing.assert_allclose(marginal, expected[0], rtol=0, atol=1e-6)
        np.testing.assert_allclose(mean, expected[1], rtol=1e-6)
        np.testing.assert_allclose(np.sqrt(variance), expected[2], rtol=1e-6)


def test_infinite_degrees_are_normal_errors():
    s2, df = np.full(5, 2.0), np.full(5, np.inf)
    sizes = student_sizes(Z, s2, df, 3.0, 3.0)
    assert (sizes == 1).all()
    expected = stats.norm.logpdf(Z, 0, np.sqrt(5.0))
    np.testing.assert_allclose(student_normal(Z, s2, df, sizes, 3.0)[0], expected, rtol=1e-12)
    mean, variance = student_moments(Z, s2, df, sizes, 3.0, np.full(5, 0.5), 0.25)
    np.testing.assert_allclose(mean, 0.6 * Z, rtol=1e-12)
    np.testing.assert_allclose(variance, 1.2 + 0.4**2 * (0.5 + 2 * 0.25 / 5), rtol=1e-12)
    logs, spreads = student_normals(s2, df, sizes)
    assert (logs == 0).all()
    assert (spreads == 2.0).all()


@pytest.mark.parametrize("df", [0.5, 1.0, 4.0, 19.0, 21.0, 1e4, 1e9, np.inf])
def test_log_density(df):
    away, s2 = np.append(Z, -3.0), np.full(6, 4.0)
    found = student_log_density(away, s2, np.full(6, df)) - 0.5 * np.log(2 * np.pi * s2)
    law = stats.norm(scale=2.0) if np.isinf(df) else stats.t(df, scale=2.0)
    # scipy's gamma functions lose digits at 1e9
    np.testing.assert_allclose(found, law.logpdf(away), rtol=1e-7 if df > 1e5 else 1e-10)


def test_derivatives_in_the_mean():
    s2, df, t, h = np.full(5, 1.5), np.array([1.0, 3.0, 8.0, 30.0, np.inf]), 0.7, 1e-3

    def density(mean):
        away = Z / 5 - mean
        sizes = student_sizes(away, s2, df, t, t) + 5 * (df < np.inf)  # the same nodes for all
        return np.exp(student_normal(away, s2, df, sizes, t)[0])

    figures = student_normal(Z / 5, s2, df, student_sizes(Z / 5, s2, df, t, t), t)
    at = [density(k * h) for k in range(-3, 4)]
    first = (at[4] - at[2]) / (2 * h)
    second = (at[4] - 2 * at[3] + at[2]) / h**2
    third = (at[5] - 2 * at[4] + 2 * at[2] - at[1]) / (2 * h**3)
    fourth = (at[5] - 4 * at[4] + 6 * at[3] - 4 * at[2] + at[1]) / h**4
    # differences of the fourth order round to 1e-16 / 1e-12
    for found, expected, atol in zip(
        figures[1:5], (first, second, third, fourth), (1e-5, 1e-5, 1e-4, 5e-3), strict=True
    ):
        np.testing.assert_allclose(found, expected / at[3], rtol=1e-4, atol=atol)


@pytest.mark.parametrize("slab", [NormalSlab, LaplaceSlab])
def test_slabs(slab):
    """Value by the sum of normals written out, derivatives by differences, the limit at once."""
    x, s2 = np.array([0.3, -2.0, 7.0, 0.0]), np.array([1.0, 0.5, 2.0, 1.0])
    df, is_laplace = np.array([2.0, 6.0, 40.0, np.inf]), slab is LaplaceSlab

    def value(point):
        weight, log_scale, mode = point
        u, scale = x - mode, np.exp(log_scale)
        rows = StudentT(x[:, None], s2[:, None], df)
        slabs = log_blurred(slab, rows, u, s2, np.array([scale]))[0]
        both = (1 - weight) * np.exp(rows.log_ratio(u, s2)) + weight * np.exp(slabs)
        return np.log(both).sum()

    point = np.array([0.4, np.log(1.3), 0.2])
    scale2 = np.exp(2 * point[1])
    sizes = student_sizes(x - point[2], s2, df, scale2, scale2)
    found = student_slab(
        x, s2, df, sizes, np.ones(len(x)), point[0], np.exp(point[1]), point[2], is_laplace
    )
    assert found[0] == pytest.approx(value(point), rel=1e-9)
    steps = 1e-3 * np.eye(3)
    slopes = [(value(point + e) - value(point - e)) / 2e-3 for e in steps]
    np.testing.assert_allclose(found[1:4], slopes, rtol=1e-4, atol=1e-5)
    pairs = [(i, j) for i in range(3) for j in range(i, 3)]
    bends = [
        sum(a * b * value(point + a * steps[i] + b * steps[j]) for a in (1, -1) for b in (1, -1))
        for i, j in pairs
    ]
    np.testing.assert_allclose(found[4:], np.array(bends) / 4e-6, rtol=1e-3, atol=1e-4)
    far = np.full(4, np.inf)
    limit = student_slab(x, s2, far, np.ones(4, np.int64), np.ones(4), 0.4, 1.3, 0.2, is_laplace)
    expected = point_and_slab(x, s2, 0.4, 1.3, 0.2, is_laplace)
    np.testing.assert_allclose(limit, expected, rtol=1e-10)
    same = Gaussian(x[:, None], s2[:, None])
    assert log_blurred(slab, same, x, s2, np.ones(1)).shape == (1, 4)
