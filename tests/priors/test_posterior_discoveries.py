"""Which effects are discoveries: rates, q-values, calibration, beside Benjamini and Hochberg."""

import microarrays
import numpy as np
import pandas as pd
import pytest
from scipy.stats import false_discovery_control, norm, t

import ebfed as eb
from ebfed.likelihoods import Gaussian
from ebfed.priors import Discrete, PointNormal, ScaleMixture
from ebfed.priors.posterior import q_values

WITH_NULL = ["point_normal", "point_laplace", ScaleMixture(null_weight=10)]
EFFECTS = [0.3, -0.6, 5.1, 0.2, -0.9, 0.4, -4.2, 0.8]


def effects(seed, n=2000, share=0.1, df=None):
    rng = np.random.default_rng(seed)
    errors = rng.uniform(0.5, 1.5, n)
    theta = np.where(rng.random(n) < share, rng.normal(0, 4, n), 0.0)
    noise = rng.standard_normal(n) if df is None else rng.standard_t(df, n)
    return theta + errors * noise, errors, theta


def test_q_values_are_means_of_rates():
    rates = np.array([[0.5, 0.1], [0.1, 0.1], [0.3, 0.7]])
    expected = [[0.3, 0.1], [0.1, 0.1], [0.2, 0.3]]
    np.testing.assert_allclose(q_values(rates), expected, rtol=1e-14)


def test_rates_are_those_of_bayes():
    x, s = np.array([0.2, -1.0, 3.0]), np.array([1.0, 0.5, 1.0])
    prior = PointNormal().fit(Gaussian(x[:, None], s[:, None] ** 2)).without_doubt()
    prior._set(0.0, np.array([0.7, 0.3]), np.array([0.0, 2.0]), 0)
    null, other = 0.7 * norm.pdf(x, 0, s), 0.3 * norm.pdf(x, 0, np.sqrt(s**2 + 4))
    rates = prior.posterior(Gaussian(x[:, None], s[:, None] ** 2)).lfdr()
    np.testing.assert_allclose(rates[:, 0], null / (null + other), rtol=1e-12)


@pytest.mark.parametrize("prior", WITH_NULL)
@pytest.mark.parametrize("df", [None, 5.0])
def test_null_effects_are_as_many_as_expected(prior, df):
    """The rates sum to about the number of null effects; q at .05 is kept."""
    x, errors, theta = effects(0, n=1000, df=df)
    posterior = eb.posterior_from(x, errors, prior, df=df)
    assert posterior.lfdr().sum() == pytest.approx((theta == 0).sum(), rel=0.1)
    found = posterior.select(0.05)["group"].to_numpy()
    assert np.mean(theta[found] == 0) < 0.1
    # of effects of few degrees of freedom, only the largest are sure
    assert np.mean(np.isin(np.flatnonzero(theta), found)) > (0.35 if df is None else 0.1)
    assert posterior.q_value().max() <= posterior.lfdr().max() + 1e-12


def test_false_discoveries_and_power_beside_benjamini_and_hochberg():
    """Over 30 tables: the rate has a standard error of about .5 %."""
    ours, power, peers = [], [], []
    for seed in range(30):
        x, errors, theta = effects(seed, n=1000)
        found = eb.posterior_from(x, errors, "point_normal").q_value()[:, 0] <= 0.05
        peer = false_discovery_control(2 * norm.sf(np.abs(x / errors))) <= 0.05
        ours.append((theta[found] == 0).sum() / max(found.sum(), 1))
        power.append(found[theta != 0].mean())
        peers.append(peer[theta != 0].mean())
    assert 0.03 < np.mean(ours) < 0.07
    # the others control at .05 times the share of null effects, by z-values alone
    assert np.mean(power) > np.mean(peers)


def test_planted_effects_among_real_genes():
    """150 of 3,051 genes of permuted samples differ; genes are correlated.

    Rates of false discoveries differ much between tables. The mean of 20 has a standard error of
    .01 to .02; it is .05 within four of these, .006 %.
    """
    shares, power = [], []
    for seed in range(20):
        (difference, error, df, unscaled), is_effect = microarrays.permuted(seed, effects=150)
        tests = eb.moderated_t(difference, error, df, unscaled=unscaled)
        posterior = eb.posterior_from(difference, tests.std_error, "point_normal", df=tests.df)
        found = posterior.q_value()[:, 0] <= 0.05
        shares.append(found[~is_effect].sum() / max(found.sum(), 1))
        power.append(found[is_effect].mean())
    error = np.std(shares) / np.sqrt(20)
    assert error < 0.025
    assert abs(np.mean(shares) - 0.05) < 4 * error
    assert np.mean(power) > 0.7


def test_effects_on_genes_replicate():
    """Half of the samples of two leukaemias, and what the other half says, by 8 splits.

    The posterior says with which probability the difference in the other half has the same sign.
    Standard deviations over splits, which share samples: .04 of the share of equal signs minus that
    probability, .26 of the slope of a regression on estimates, .03 of the coverage of intervals of
    predictions. The bounds are two of these. Where rates are larger, signs are equal .07 more often
    than expected: small effects are more than a spike and one normal distribution say.
    """
    rows = []
    for seed in range(8):
        halves = microarrays.halves(seed)
        (x, one), (y, other) = (
            (half[0], eb.moderated_t(*half[:3], unscaled=half[3])) for half in halves
        )
        posterior = eb.posterior_from(x, one.std_error, "point_normal", df=one.df)
        draws = posterior.sample(200, random_state=seed).reshape(200, -1)
        spread = np.sqrt(posterior.sd[:, 0] ** 2 + other.std_error**2)
        mean, rate = posterior.mean[:, 0], posterior.lfdr()[:, 0]
        same, expected = x * y > 0, t.cdf(np.sign(x) * draws / other.std_error, other.df).mean(0)
        found = posterior.q_value()[:, 0] <= 0.05
        row = [found.sum(), mean[found] @ y[found] / (mean[found] @ mean[found])]
        row += [(abs(y - mean) < t.ppf(0.975, other.df) * spread).mean()]
        for some in (found, (rate > 0.1) & (rate < 0.3), rate > 0.3):
            row.append(same[some].mean() - expected[some].mean())
        rows.append(row)
    n_found, slope, covered, of_found, *of_others = np.mean(rows, axis=0)
    assert n_found > 200
    assert abs(slope - 1) < 0.5
    assert abs(covered - 0.95) < 0.06
    assert abs(of_found) < 0.08
    assert -0.08 < min(of_others) <= max(of_others) < 0.15


def test_selection_is_a_frame_with_labels():
    names = pd.Index([f"gene{i}" for i in range(8)], name="gene")
    posterior = eb.posterior_from(pd.Series(EFFECTS, names), [1.0] * 8, "point_normal")
    found = posterior.select(0.05)
    assert found["gene"].tolist() == ["gene2", "gene6"]
    assert list(found) == ["gene", "local", "std_error", "estimate", "sd", "lfdr", "q_value"]
    assert posterior.select(1e-12).empty
    # of the next effect the rate is .71, so that a quarter of three are false
    assert len(posterior.select(0.25)) == 3
    frame = posterior.using("polars").select(0.05)
    assert type(frame).__module__.startswith("polars")


@pytest.mark.parametrize(
    ("prior", "rates"),
    [
        ("point_normal", ["lfsr", "lfdr"]),
        ("point_laplace", ["lfsr", "lfdr"]),
        ("laplace", []),  # whose mode is estimated
        ("scale_mixture", ["lfsr"]),  # whose share of zeros its messages do not identify
        (ScaleMixture(null_weight=10), ["lfsr", "lfdr"]),
        ("normal", []),
        ("npmle", []),
        (PointNormal(mode=None), []),
        (PointNormal(mode=3.0), []),
    ],
)
def test_frames_have_rates_of_populations_around_zero(prior, rates):
    posterior = eb.posterior_from(EFFECTS, [1.0] * 8, prior)
    frame = posterior.to_frame()
    assert [name for name in frame if name in ("lfsr", "lfdr")] == rates
    if "lfsr" in rates:
        np.testing.assert_array_equal(frame["lfsr"], posterior.local_false_sign_rate()[:, 0])
    if "lfdr" in rates:
        np.testing.assert_array_equal(frame["lfdr"], posterior.lfdr()[:, 0])


@pytest.mark.parametrize("prior", ["normal", "laplace", "log_spline", "npmle", "scale_mixture"])
def test_populations_without_a_point_are_refused(prior):
    posterior = eb.posterior_from(EFFECTS, [1.0] * 8, prior)
    for use in (posterior.lfdr, posterior.q_value, posterior.select):
        with pytest.raises(TypeError, match="have one are 'point_normal', 'point_laplace'"):
            use()


def test_other_nulls():
    shifted = np.array(EFFECTS) + 3
    posterior = eb.posterior_from(shifted, [1.0] * 8, PointNormal(mode=3.0))
    same = eb.posterior_from(EFFECTS, [1.0] * 8, "point_normal")
    np.testing.assert_allclose(posterior.lfdr(3.0), same.lfdr(), atol=1e-9)
    assert len(posterior.select(0.05, null=3.0)) == 2
    with pytest.raises(TypeError, match="the probability that a parameter is 0"):
        posterior.lfdr()
    with pytest.raises(TypeError, match="no point there"):
        eb.posterior_from(EFFECTS, [1.0] * 8, ScaleMixture(0.0, [1.0, 2.0], null_weight=10)).lfdr()


@pytest.mark.parametrize("weight", [0.5, np.nan, np.inf, "a", None])
def test_the_penalty_is_checked(weight):
    with pytest.raises(ValueError, match="null_weight must be a number >= 1"):
        eb.posterior_from(EFFECTS, [1.0] * 8, ScaleMixture(null_weight=weight))


def test_the_penalty_is_that_of_ashr():
    """Weights maximise ``sum log f_i + 9 log w_0``."""
    x, errors, _ = effects(3, n=300)
    prior = ScaleMixture(scales=[0.0, 0.3, 1.0, 3.0], null_weight=10)
    prior.fit(Gaussian(x[:, None], errors[:, None] ** 2))
    densities = norm.pdf(
        x[:, None], 0, np.sqrt(errors[:, None] ** 2 + np.array([0, 0.3, 1, 3]) ** 2)
    )
    weights = np.zeros(4)
    weights[np.searchsorted([0.0, 0.3, 1.0, 3.0], prior.scales_)] = prior.weights_
    slope = (densities / (densities @ weights)[:, None]).sum(axis=0)
    slope[0] += 9 / weights[0]
    # at the maximum on the simplex the slopes are 309 where weights are positive, and no more
    np.testing.assert_allclose(slope[weights > 0], 309, rtol=1e-4)
    assert (slope < 309 * (1 + 1e-4)).all()


def test_atoms_at_zero():
    posterior = eb.posterior_from(EFFECTS, [1.0] * 8, Discrete([-4.5, 0.0, 4.5]))
    rates = posterior.lfdr()[:, 0]
    assert (rates[[2, 6]] < 0.02).all()
    assert (np.delete(rates, [2, 6]) > 0.98).all()


def test_posteriors_of_fits_of_rows():
    rng = np.random.default_rng(2)
    groups = np.repeat(np.arange(60), 8)
    theta = np.where(np.arange(60) < 12, 3.0, 0.0)
    fit = eb.GaussianEB(prior="point_normal").fit(rng.normal(theta[groups]), groups=groups)
    found = fit.posterior().select(0.05)
    assert found["group"].isin(np.arange(12)).mean() > 0.9
    assert len(found) >= 10
    with pytest.raises(TypeError, match="the population of this posterior has no point there"):
        eb.GaussianEB().fit(rng.normal(theta[groups]), groups=groups).posterior().lfdr()


@pytest.mark.parametrize("fdr", [0, 1, -0.1, np.nan, "a", None])
def test_rates_are_checked(fdr):
    posterior = eb.posterior_from(EFFECTS, [1.0] * 8, "point_normal")
    with pytest.raises(ValueError, match="fdr must lie between 0 and 1"):
        posterior.select(fdr)


def test_exact_and_missing_estimates():
    x, s = [0.0, 3.0, 1.0, 0.2, -0.3], [0.0, 0.0, np.nan, 1.0, 1.0]
    posterior = eb.posterior_from(x, s, PointNormal())
    rates = posterior.lfdr()[:, 0]
    assert rates[0] == pytest.approx(1)  # the shares of plausible populations are added up
    assert rates[1] == 0
    assert 0 <= rates[2] <= 1
