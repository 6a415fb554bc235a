"""P-values and intervals of several contrasts."""

import numpy as np
import pytest
from scipy.stats import norm, t

from ebfed.inference.contrasts import adjusted_p_values, check_adjustment, critical_values


def test_two_means_need_no_allowance():
    """The studentised range of two means is the root of 2 times Student's t."""
    statistic, df = np.array([0.5, 2.0, 3.0]), np.array([5.0, 12.0, np.inf])
    p = 2 * t.sf(statistic, df)
    found = adjusted_p_values(statistic, df, p, "tukey", 2)
    np.testing.assert_allclose(found, p, rtol=1e-5)
    half = critical_values(df[:2], 0.9, "tukey", 2)
    np.testing.assert_allclose(half, t.ppf(0.95, df[:2]), rtol=1e-5)


def test_critical_values_of_one_and_of_several():
    df = np.array([4.0, np.inf, np.nan])
    found = critical_values(df, 0.95, "none", 3)
    np.testing.assert_allclose(found, [t.ppf(0.975, 4), norm.ppf(0.975), np.nan])
    found = critical_values(df[:2], 0.95, "bonferroni", 3)
    np.testing.assert_allclose(found, [t.ppf(1 - 0.0125, 4), norm.ppf(1 - 0.0125)])


def test_unknown_p_values_stay_unknown():
    p = np.array([0.01, np.nan, 0.5])
    for adjust in ("none", "holm", "bonferroni", "tukey"):
        found = adjusted_p_values(np.ones(3), np.full(3, 9.0), p, adjust, 3)
        assert np.isnan(found).tolist() == [False, True, False]
    with pytest.raises(ValueError, match="adjust must be"):
        check_adjustment("sidak")
