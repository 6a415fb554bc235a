import numpy as np
import pytest

from ebfed.kernels import shrink


def reference(values, variances, mean, mean_variance, own, noise, share, weight, t, doubt):
    """The formulas of `NormalPosterior`, by arrays."""
    silent = np.isinf(variances) | np.isinf(own)
    added, finite = np.where(silent, 0.0, own), np.where(np.isinf(variances), 0.0, variances)
    with np.errstate(invalid="ignore", divide="ignore"):
        precise = np.clip(np.nan_to_num(mean_variance / (t + finite + added)), 0, 1)
        h = np.where(silent, 0.0, np.where(np.isnan(share), precise, share))
        excess = mean_variance - h * (t + finite + added)
        excess[np.isnan(share) & ~silent] = 0.0
        rest = np.maximum(1 - h, 1e-9)
        known = ~np.isnan(noise) & ~silent
        mean = mean - np.where(known, h * noise, 0.0)
        spread = t + np.where(known, h, h / rest) * added + excess / rest
        best = np.where(variances == 0, 1.0, spread / (spread + variances))
        best = np.where(np.isinf(variances), 0.0, best)
        a = np.where(np.isnan(weight) | silent, best, weight)
        more = 2 * (1 - a) ** 2 * doubt / np.where(a < 1, spread + variances, 1.0)
    between = (1 - a) ** 2 * rest * spread + (1 - a**2) * h * finite
    of_own = a**2 * finite
    return a, a * values + (1 - a) * mean, of_own, np.sqrt(of_own + between + more)


@pytest.mark.parametrize("spread", [0.0, 0.8])
def test_shrunken_estimates_are_those_of_the_formulas(spread):
    rng = np.random.default_rng(0)
    n = 400

    def some(column, value, share=0.3):
        return np.where(rng.random(n) < share, value, column)

    values, mean = rng.normal(size=(2, n))
    variances = some(some(rng.gamma(2.0, size=n), 0.0, 0.1), np.inf, 0.1)
    own = some(some(rng.gamma(2.0, size=n), 0.0), np.inf, 0.1)
    mean_variance = rng.uniform(0, 0.2, n)
    noise, weight = some(rng.normal(size=n), np.nan), some(rng.uniform(0, 0.9, n), np.nan)
    share = some(rng.random(n) * mean_variance / (spread + variances + own + 1), np.nan)
    given = values, variances, mean, mean_variance, own, noise, share, weight
    given += np.full(n, spread), np.full(n, 0.1)
    found = np.empty((4, n))
    with np.errstate(divide="ignore", invalid="ignore"):  # of NumPy's numbers, if not compiled
        shrink(*given, *found)
    np.testing.assert_allclose(found, reference(*given), rtol=1e-13)
