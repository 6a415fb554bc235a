"""Two groups of statistics: estimates and rates on simulated data, beside BH, and bad input."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import ebfed as eb
from ebfed.location.nulls import _basis, _poisson


def statistics(seed, n=5000, share=0.05, sigma0=1.0, effect=4.0, delta0=0.0):
    rng = np.random.default_rng(seed)
    z, k = rng.normal(delta0, sigma0, n), int(n * share)
    z[:k] += effect * rng.choice([-1, 1], k) + rng.normal(0, 0.5, k)
    return z, np.arange(n) < k


def simulate(null, n_tables=30, **options):
    """Means of the estimates, of the share of false discoveries, and of power; and those of BH."""
    rows = []
    for seed in range(n_tables):
        z, is_effect = statistics(seed, **options)
        result = eb.two_groups(z, null)
        row = [result.p0, result.delta0, result.sigma0]
        adjusted = stats.false_discovery_control(2 * stats.norm.sf(np.abs(z)))
        for q in (result.q_value, adjusted):
            found = q <= 0.05
            row += [found[~is_effect].sum() / max(found.sum(), 1), found[is_effect].mean()]
        rows.append(row)
    names = ("p0", "delta0", "sigma0", "fdr", "power", "bh_fdr", "bh_power")
    return dict(zip(names, np.mean(rows, axis=0), strict=True))


def test_theoretical_null():
    found = simulate("theoretical")
    assert (found["delta0"], found["sigma0"]) == (0.0, 1.0)
    assert found["p0"] == pytest.approx(0.95, abs=0.01)
    assert 0.03 < found["fdr"] < 0.08
    assert found["power"] > found["bh_power"]


@pytest.mark.parametrize(("sigma0", "effect"), [(1.0, 4.0), (1.2, 5.0), (0.8, 3.5)])
def test_empirical_null(sigma0, effect):
    """Standard errors of the means over 30 tables: .005 of delta0 and sigma0, .002 of p0."""
    found = simulate("empirical", sigma0=sigma0, effect=effect, delta0=0.1)
    assert found["p0"] == pytest.approx(0.95, abs=0.01)
    assert found["delta0"] == pytest.approx(0.1, abs=0.02)
    assert found["sigma0"] == pytest.approx(sigma0, abs=0.02)
    assert 0.0 <= found["fdr"] < 0.1
    if sigma0 > 1:  # a null that is wider than in theory
        assert found["bh_fdr"] > 0.15
    elif sigma0 < 1:
        assert found["power"] > found["bh_power"] + 0.1


def test_no_effects():
    """Nearly all tables have no discovery."""
    n_found = [
        len(eb.two_groups(statistics(s, share=0.0, sigma0=1.2)[0]).select()) for s in range(30)
    ]
    assert np.mean(np.array(n_found) > 0) <= 0.2


def test_rates_are_shares_of_null_statistics():
    """Among statistics with rates near .3, about .3 are null."""
    pairs = [statistics(seed, n=20_000, share=0.08, effect=3.0) for seed in range(5)]
    rates = np.concatenate([eb.two_groups(z, "theoretical").lfdr for z, _ in pairs])
    is_null = ~np.concatenate([is_effect for _, is_effect in pairs])
    for low, high in ((0.05, 0.2), (0.2, 0.4), (0.4, 0.6), (0.6, 0.8)):
        near = (rates > low) & (rates <= high)
        assert near.sum() > 200
        # the standard error is below .035; p0 and the density add as much
        assert np.mean(is_null[near]) == pytest.approx(rates[near].mean(), abs=0.08)


def test_density_is_that_of_a_general_optimiser():
    """Lindsey's method: counts are Poisson, and their total and moments are kept."""
    z, _ = statistics(1)
    result = eb.two_groups(z, "theoretical")
    middle = (result.edges[1:] + result.edges[:-1]) / 2
    basis = _basis(middle, result.edges, 7)
    expected = np.exp(basis @ result.coefficients)
    # the score is zero: means of all columns are those of the counts
    np.testing.assert_allclose(basis.T @ expected, basis.T @ result.counts, rtol=1e-6, atol=1e-3)
    again = _poisson(basis, result.counts)
    np.testing.assert_array_equal(again, result.coefficients)
    grid = np.linspace(result.edges[0], result.edges[-1], 4001)
    assert np.trapezoid(result.density(grid), grid) == pytest.approx(1.0, abs=0.01)
    assert np.trapezoid(result.null_density(grid), grid) == pytest.approx(1.0, abs=1e-3)


def test_frames_and_labels():
    z, _ = statistics(2, n=1000)
    names = pd.Index([f"g{i}" for i in range(1000)], name="gene")
    result = eb.two_groups(pd.Series(z, names))
    found = result.select(0.05)
    assert list(found) == ["gene", "z", "lfdr", "q_value"]
    assert (found["q_value"] <= 0.05).all()
    assert found["lfdr"].is_monotonic_increasing
    everything = result.to_frame().set_index("gene")
    pd.testing.assert_series_equal(
        everything.loc[found["gene"], "z"].reset_index(drop=True), found["z"], check_names=False
    )
    assert list(eb.two_groups(z).to_frame()) == ["z", "lfdr", "q_value"]
    np.testing.assert_array_equal(
        eb.two_groups(z, labels=names.to_numpy()).select()["group"], found["gene"]
    )
    assert "empirical null: p0 = 0.9" in repr(result)


def test_units_of_z():
    """An empirical null follows a shift and a scale; rates are the same."""
    z, _ = statistics(3)
    one, other = eb.two_groups(z), eb.two_groups(10 * z - 7)
    assert other.sigma0 == pytest.approx(10 * one.sigma0, rel=1e-6)
    assert other.delta0 == pytest.approx(10 * one.delta0 - 7, rel=1e-6)
    np.testing.assert_allclose(other.lfdr, one.lfdr, atol=1e-5)


def test_far_statistics_leave_the_histogram_alone():
    z, _ = statistics(4)
    far = eb.two_groups(np.append(z, [1e6, -1e9]))
    near = eb.two_groups(z)
    assert far.sigma0 == pytest.approx(near.sigma0, rel=0.01)
    assert (far.lfdr[-2:] < 1e-3).all()


BAD = {
    "NaN": (np.append(np.zeros(200), np.nan), {}, "z must be finite"),
    "infinite": (np.append(np.arange(200.0), np.inf), {}, "z must be finite"),
    "few": (np.arange(99.0), {}, "at least 100 statistics"),
    "equal": (np.zeros(200), {}, "z must spread"),
    "huge": (1e306 * np.linspace(-1, 1, 200), {}, "z must spread"),
    "two columns": (np.zeros((200, 2)), {}, "one-dimensional"),
    "null": (np.arange(200.0), {"null": "permuted"}, "null must be 'empirical' or 'theoretical'"),
    "df": (np.arange(200.0), {"df": 2}, "df must be a whole number from 3 to 30"),
    "labels": (np.arange(200.0), {"labels": np.arange(3)}, "labels"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    z, options, message = BAD[name]
    with pytest.raises(ValueError, match=message), np.errstate(over="ignore", invalid="ignore"):
        eb.two_groups(z, **options)


def test_words_are_refused():
    with pytest.raises((TypeError, ValueError), match="z must be numbers"):
        eb.two_groups(["a"] * 200)
