"""Densities of durations, some of them censored."""

import numpy as np
import pytest
from scipy import stats

from ebfed.families import Duration, EndedDuration


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


def test_summaries_of_ended_durations_merge_as_rows_do():
    """What a channel may see of them is the number of rows alone."""
    rng = np.random.default_rng(1)
    times, labels, family = rng.exponential(2.0, 40), np.repeat(np.arange(8), 5), EndedDuration()
    whole = family.summarise(times[:, None], labels)
    halves = [family.summarise(times[x, None], labels[x]) for x in (slice(0, 17), slice(17, 40))]
    both = family.merge(*halves)
    np.testing.assert_allclose(both.mean, whole.mean, rtol=1e-13)
    np.testing.assert_array_equal(both.n, whole.n)
    assert both.weight is None
    assert whole.weight is None
    likelihood = family.likelihood(family.figures(whole))
    np.testing.assert_allclose(likelihood.exposure, np.bincount(labels, times), rtol=1e-13)
    open_ = Duration().summarise(times[:, None], labels)
    np.testing.assert_allclose(
        family.log_base_measure(whole), Duration().log_base_measure(open_), rtol=1e-12
    )


def test_censored_durations_have_no_report():
    times, labels = np.array([[1.0], [2.0]]), np.array([0, 0])
    with pytest.raises(ValueError, match=r"observed must be 1 in all rows .* row 1 has 0"):
        EndedDuration().summarise(times, labels, {"observed": np.array([1.0, 0.0])})
