"""Densities of durations, some of them censored."""

import numpy as np
import pytest
from scipy import stats

from ebfed.families import Duration


def test_density_of_durations():
    """Events have the density of an exponential, censored durations its upper tail."""
    family, theta = Duration(), 0.7
    times, observed = np.array([0.5, 2.0, 1.5, 3.0]), np.array([1.0, 0.0, 1.0, 1.0])
    summary = family.summarise(times[:, None], np.zeros(4, int), {"observed": observed})
    log = family.likelihood(family.figures(summary)).logpdf(np.array([[theta]]))[0, 0]
    log += family.log_base_measure(summary)[0]
    law = stats.expon(scale=1 / theta)
    expected = np.where(observed == 1, law.logpdf(times), law.logsf(times)).sum()
    assert log == pytest.approx(expected, rel=1e-12)


def test_summaries_merge_as_rows_do():
    rng = np.random.default_rng(0)
    times, labels = rng.exponential(2.0, 40), np.repeat(np.arange(8), 5)
    observed, family = (times < 3).astype(float), Duration()
    whole = family.summarise(times[:, None], labels, {"observed": observed})
    halves = [
        family.summarise(times[part, None], labels[part], {"observed": observed[part]})
        for part in (slice(0, 17), slice(17, 40))
    ]
    both = family.merge(*halves)
    np.testing.assert_allclose(both.mean, whole.mean, rtol=1e-13)
    np.testing.assert_allclose(both.weight, whole.weight, rtol=1e-13)
    assert family.figures(both).keys() == family.figures(whole).keys()
