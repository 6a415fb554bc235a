"""Two groups of statistics: on simulated data and on real genes, beside R and BH, and bad input."""

import microarrays
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


def test_locfdr():
    """Genes and HIV: the null is narrower than in theory, and both find it by maximum likelihood.

    The statistics that are taken for null ones differ a little: estimates differ by less than a
    standard error, and rates by less than .05.
    """
    z, rates = microarrays.hiv()
    found = microarrays.found("hiv", "locfdr")
    result = eb.two_groups(z)
    for name, value in (("p0", result.p0), ("delta", result.delta0), ("sigma", result.sigma0)):
        assert abs(value - found[f"mlest {name}"]) < found[f"mleSD {name}"], name
    np.testing.assert_allclose(result.lfdr[::20], rates["empirical"], atol=0.05)
    assert (result.lfdr <= 0.2).sum() == pytest.approx(found["mlest rates to .2"], rel=0.1)
    # fdrtool, of another method, has its null at 0, and more of them
    other = microarrays.found("hiv", "fdrtool")
    assert result.sigma0 == pytest.approx(other["sigma"], abs=0.05)
    assert result.p0 == pytest.approx(other["p0"], abs=0.03)
    assert (result.lfdr <= 0.2).sum() >= other["rates to .2"]


def test_locfdr_with_a_null_that_is_too_wide():
    """In theory more than all statistics are null, and locfdr leaves it at that; here all are."""
    z, rates = microarrays.hiv()
    found = microarrays.found("hiv", "locfdr")
    result = eb.two_groups(z, "theoretical")
    assert (result.p0, found["thest p0"] > 1.2) == (1.0, True)
    theirs = np.minimum(rates["theoretical"] / found["thest p0"], 1)
    below = rates["theoretical"] < 1
    np.testing.assert_allclose(result.lfdr[::20][below], theirs[below], atol=0.02)
    assert (result.lfdr <= 0.2).sum() == found["thest rates to .2"]


def test_many_effects():
    """Half of the genes of two leukaemias differ: a theoretical null finds them.

    By maximum likelihood that is a wide null, here as with locfdr and fdrtool, and a note says so.
    """
    z = microarrays.z_values(*microarrays.leukaemias())
    found, genes = microarrays.found("golub", "locfdr"), microarrays.genes()
    np.testing.assert_allclose(z[::10], genes["z"], rtol=1e-7)
    result = eb.two_groups(z, "theoretical")
    assert result.p0 == pytest.approx(found["thest p0"], abs=0.01)
    np.testing.assert_allclose(result.lfdr[::10], genes["theoretical"], atol=0.02)
    assert (result.lfdr <= 0.2).sum() == pytest.approx(found["thest rates to .2"], rel=0.02)
    # the share of null statistics is larger than in qvalue, which looks at the largest p-values
    storey = microarrays.found("golub", "qvalue")
    assert storey["p0"] < result.p0 < 1
    n_bh = microarrays.found("golub", "stats")["BH to .05"]
    assert n_bh < len(result.select(0.05)) < storey["q to .05"]
    assert not result.notes

    wide = eb.two_groups(z)
    for name, value in (("delta", wide.delta0), ("sigma", wide.sigma0)):
        assert abs(value - found[f"mlest {name}"]) < 1.5 * found[f"mleSD {name}"], name
    assert wide.p0 == 1 < found["mlest p0"]
    assert microarrays.found("golub", "fdrtool")["rates to .2"] == found["mlest rates to .2"] == 0
    assert (wide.lfdr > 0.2).all()
    assert "compare with null='theoretical'" in wide.notes[0]


def test_permuted_labels():
    """All genes are null: any discovery is false, and 5 % of tables may have one.

    Of 60 tables with a probability of 5 %, more than 9 have discoveries in 1 of 1,000 studies. The
    genes are correlated, so that their z-values are wider than in theory in some tables, and
    narrower in others: the empirical null follows them.
    """
    rows = []
    for seed in range(60):
        z = microarrays.z_values(*microarrays.permuted(seed)[0])
        result = eb.two_groups(z)
        in_theory = len(eb.two_groups(z, "theoretical").select(0.05))
        rows.append([len(result.select(0.05)), in_theory, result.sigma0, z.std()])
    n_found, in_theory, sigma0, spread = np.transpose(rows)
    assert (n_found > 0).sum() <= 9
    assert (in_theory > 0).sum() <= 9
    assert np.corrcoef(sigma0, spread)[0, 1] > 0.95
    assert spread.min() < 0.9 < 1.2 < spread.max()


def test_planted_effects():
    """150 effects planted among real null genes, at a rate of 5 %.

    The empirical null keeps it on average: four standard errors of 60 tables, .006 %. A theoretical
    null has .08, not .05, as correlated genes are no sample of ``N(0, 1)``; so it is bounded by .1
    and four standard errors.
    """
    shares = []
    for seed in range(60):
        table, is_effect = microarrays.permuted(seed, effects=150)
        z = microarrays.z_values(*table)
        row = []
        for null in ("empirical", "theoretical"):
            found = eb.two_groups(z, null).q_value <= 0.05
            row += [found[~is_effect].sum() / max(found.sum(), 1), found[is_effect].mean()]
        shares.append(row)
    (fdr, power, in_theory, _), error = np.mean(shares, axis=0), np.std(shares, axis=0) / 60**0.5
    assert error[0] < 0.01
    assert abs(fdr - 0.05) < 4 * error[0]
    assert power > 0.7
    assert in_theory < 0.1 + 4 * error[2]


def test_discoveries_replicate():
    """Discoveries in half of the samples, and what the other half says of them, by 20 splits.

    A null gene has a p-value in the other half, towards the same side, that is uniform: five times
    the share of those above .8 is the share of null genes (Storey 2002), or more. Its standard
    deviation over splits is .06 among discoveries and .15 elsewhere, and splits share samples: the
    bounds are two of them.
    """
    ends = (0.3, 0.6), (0.8, 1.0)
    rows = []
    for seed in range(20):
        one, other = (microarrays.z_values(*half) for half in microarrays.halves(seed))
        result = eb.two_groups(one, "theoretical")
        p = stats.norm.sf(np.sign(one) * other)
        found = result.q_value <= 0.05
        row = [found.sum(), (p[found] < 0.5).mean(), 5 * (p[found] > 0.8).mean()]
        for low, high in ends:
            near = (result.lfdr > low) & (result.lfdr <= high)
            row += [result.lfdr[near].mean(), 5 * (p[near] > 0.8).mean()]
        rows.append(row)
    n_found, same_sign, fdr, *by_rate = np.mean(rows, axis=0)
    assert n_found > 150
    assert same_sign > 0.92
    assert abs(fdr - 0.05) < 0.12
    assert abs(by_rate[1] - by_rate[0]) < 0.3
    assert abs(by_rate[3] - by_rate[2]) < 0.3


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
    "errors": (np.arange(200.0), {"null": np.ones(200)}, "got a ndarray. z are statistics: est"),
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
