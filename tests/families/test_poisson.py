"""Counts with exposures: what is summarised, and that summaries say what rows say."""

import narwhals as nw
import numpy as np
import pytest
from scipy import special, stats

from ebfed import Summary, families
from ebfed.families import Poisson
from ebfed.families.poisson import lazy_log_gamma

RNG = np.random.default_rng(3)
GROUPS = RNG.integers(0, 12, 200)
EXPOSURE = RNG.uniform(0.5, 4.0, 200)
ROWS = RNG.poisson(EXPOSURE * RNG.gamma(3, 0.5, 12)[GROUPS])[:, None].astype(float)


def summary(rows=slice(None)):
    return Poisson().summarise(ROWS[rows], GROUPS[rows], {"exposure": EXPOSURE[rows]})


def test_events_and_exposures_add_up():
    found = summary()
    for i, group in enumerate(found.ids):
        own = group == GROUPS
        assert found.n[i] == own.sum()
        assert found.weight[i] == pytest.approx(EXPOSURE[own].sum())
        assert found.mean[i, 0] == pytest.approx(ROWS[own].sum() / EXPOSURE[own].sum())


def test_merging_is_summarising_the_union():
    first, second = summary(slice(0, 90)), summary(slice(90, None))
    merged, whole = first.merge(second), summary()
    np.testing.assert_array_equal(merged.n, whole.n)
    for name in ("mean", "weight"):
        np.testing.assert_allclose(getattr(merged, name), getattr(whole, name), rtol=1e-12)
    np.testing.assert_allclose(merged.sums["log_base"], whole.sums["log_base"], rtol=1e-12)


def test_cutting_and_joining_keeps_everything():
    whole = summary()
    again = Summary.join(whole.split(5))
    np.testing.assert_array_equal(again.weight, whole.weight)
    np.testing.assert_array_equal(again.sums["log_base"], whole.sums["log_base"])
    some = whole.among(np.array([99, whole.ids[3]]), np.array([-1, 3]))
    assert some.n.tolist() == [0, whole.n[3]]
    assert some.weight.tolist() == [0.0, whole.weight[3]]


def test_likelihood_and_base_measure_are_the_density_of_the_rows():
    family, found = Poisson(), summary()
    theta = np.array([[0.3], [1.7]])
    log = family.likelihood(family.figures(found)).logpdf(theta)
    log = log + family.log_base_measure(found)[:, None]
    for i, group in enumerate(found.ids):
        own = group == GROUPS
        expected = stats.poisson.logpmf(ROWS[own], EXPOSURE[own, None] * theta.T).sum(axis=0)
        np.testing.assert_allclose(log[i], expected, rtol=1e-10)


def test_a_row_without_exposure_counts_for_one():
    plain = Poisson().summarise(ROWS, GROUPS)
    ones = Poisson().summarise(ROWS, GROUPS, {"exposure": np.ones(200)})
    np.testing.assert_array_equal(plain.mean, ones.mean)
    np.testing.assert_array_equal(plain.weight, plain.n)


def test_draws_have_the_law_of_the_rows():
    """Means of 40,000 draws: false alarms are rarer than 1e-6 each."""
    family, size = Poisson(), np.full(40_000, 2.5)
    rates = family.simulate(np.full(40_000, 1.4), size, np.random.default_rng(0))
    variance = family.sampling_variance(1.4, 2.5)
    assert abs(rates.mean() - 1.4) < 5 * np.sqrt(variance / 40_000)
    assert rates.var() == pytest.approx(variance, rel=0.05)
    values = family.outcomes(2.5, 3.0)
    assert set(np.unique(rates[rates <= 3.0])) <= set(values)
    theta = family.draw_population(1.4, 0.3, 40_000, np.random.default_rng(1))
    assert theta.mean() == pytest.approx(1.4, abs=5 * np.sqrt(0.3 / 40_000))
    assert theta.var() == pytest.approx(0.3, rel=0.1)


@pytest.mark.parametrize("values", [[[0.5]], [[-1.0]], [[2.0**60]]])
def test_rows_that_are_no_counts_are_refused(values):
    text = r"X must hold counts, whole numbers from 0( to 2\*\*53)?; row 0"
    with pytest.raises(ValueError, match=text):
        families.Poisson().check_rows(np.array(values))


def test_summaries_of_other_rows_are_refused():
    with pytest.raises(ValueError, match="X must summarise counts"):
        Poisson().check_summary(Summary.from_rows([0.5, 0.25], groups=[0, 1]))


def test_log_factorials_of_engines_are_those_of_scipy():
    pl = pytest.importorskip("polars")
    counts = np.concatenate([np.arange(3000.0), 2.0 ** np.arange(12, 54)])
    table = nw.from_native(pl.DataFrame({"y": counts}))
    found = table.select(y=lazy_log_gamma(nw.col("y") + 1.0))["y"].to_numpy()
    # what the interpolation of the remainder promises
    np.testing.assert_allclose(found, special.gammaln(counts + 1), rtol=5e-14, atol=5e-14)
