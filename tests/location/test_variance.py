"""Variances of groups."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import ebfed as eb
from ebfed import channels, priors

REFERENCE = Path(__file__).parents[1] / "reference"
RNG = np.random.default_rng(0)
GROUPS = np.repeat(np.arange(300), 6)
SD = np.sqrt(6 / RNG.chisquare(6, 300))
ROWS = RNG.normal(5.0, SD[GROUPS])


def test_limma():
    """`squeezeVar` of limma, see `reference/limma.R`: 2,248 schools with two pupils or more."""
    rows = pd.read_csv(REFERENCE / "chem97.csv.gz")
    prior = priors.InverseGamma(method="moments")
    fit = eb.VarianceEB(prior=prior).fit(rows["score"], groups=rows["school"])
    np.testing.assert_allclose(fit.prior_.df_, 1.185751, atol=5e-7)
    np.testing.assert_allclose(fit.prior_.scale_, 2.156506, atol=5e-7)
    table = rows.groupby("school")["score"].agg(["var", "count"])
    df, variance = table["count"] - 1, table["var"].fillna(0.0)
    squeezed = (fit.prior_.df_ * fit.prior_.scale_ + df * variance) / (fit.prior_.df_ + df)
    np.testing.assert_allclose(fit.predict(), squeezed, rtol=1e-10)


def test_estimates_are_near_the_oracle():
    """Squared error of log variances, at 300 groups, within 3 % of that of the true population."""
    fit = eb.VarianceEB().fit(ROWS, groups=GROUPS)
    oracle = eb.VarianceEB(prior=priors.InverseGamma(df=6.0, variance=1.0)).fit(ROWS, groups=GROUPS)
    loss = [((np.log(e.predict()) - 2 * np.log(SD)) ** 2).mean() for e in (fit, oracle)]
    assert loss[0] < 1.03 * loss[1]


def test_intervals_cover():
    """Of 300 intervals at 90 %, 254 to 286 cover in all but 1e-3 of draws (binomial)."""
    lower, upper = eb.VarianceEB().fit(ROWS, groups=GROUPS).posterior().interval(0.9)
    covered = ((lower[:, 0] < SD**2) & (upper[:, 0] > SD**2)).sum()
    assert 254 <= covered <= 286


@pytest.mark.parametrize(
    "channel",
    [channels.Laplace(4.0, (-3, 3)), channels.TwoBit(6.0), channels.Quantizer(3, (-3, 3))],
)
def test_reports_show_the_population(channel):
    """Mean of the log variances within five standard errors; estimates beat the own ones."""
    guess = eb.channels.Guess(mean=(-0.5, 0.5), spread=0.6)
    fit = eb.VarianceEB(channel=channel, guess=guess, random_state=0).fit(ROWS, groups=GROUPS)
    true = float(np.mean(2 * np.log(SD)))
    assert abs(fit.prior_.mean_[0] - true) < 5 * fit.prior_.mean_error()[0]
    own = eb.VarianceEB().fit(ROWS, groups=GROUPS).posterior().to_frame()["local"]
    error = ((np.log(fit.predict()) - 2 * np.log(SD)) ** 2).mean()
    assert error < ((np.log(own) - 2 * np.log(SD)) ** 2).mean()


def test_shapes_of_answers():
    frame = pd.DataFrame({"score": ROWS, "school": GROUPS})
    fit = eb.VarianceEB().fit(frame[["score"]], groups=frame["school"])
    posterior = fit.posterior()
    table = posterior.to_frame()
    assert list(table.columns[:4]) == ["school", "n", "local", "estimate"]
    np.testing.assert_allclose(table["local"], frame.groupby("school")["score"].var())
    augmented = fit.augment(frame[["score"]], groups=frame["school"])
    assert ".resid" not in augmented
    np.testing.assert_allclose(augmented[".fitted"], table["estimate"].to_numpy()[GROUPS])
    formula = eb.from_formula("score | school", frame, family="variance")
    np.testing.assert_allclose(formula.posterior().mean, posterior.mean)
    assert posterior.prob_below(0.0).max() == 0
    np.testing.assert_allclose(posterior.prob_below(posterior.quantile(0.3)), 0.3, atol=1e-8)


def test_tables_elsewhere_give_the_same(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    frame = pd.DataFrame({"score": ROWS, "school": GROUPS})
    table = duckdb.from_df(frame)
    one = eb.VarianceEB().fit(table, groups="school")
    two = eb.VarianceEB().fit(frame, groups="school")
    np.testing.assert_allclose(one.posterior().mean, two.posterior().mean, rtol=1e-8)


def test_little_data():
    with pytest.warns(priors.IdentificationWarning, match="No group shows a variance"):
        eb.VarianceEB().fit(np.arange(5.0), groups=np.arange(5))
    weights = np.linspace(0.3, 3.7, 20)
    with pytest.warns(priors.IdentificationWarning, match="No group shows a variance"):
        eb.VarianceEB().fit(np.full(20, 0.1), groups=np.arange(20) % 4, sample_weight=weights)
    with pytest.warns(priors.IdentificationWarning, match="Only one group"):
        one = eb.VarianceEB().fit([1.0, 2.0, 4.0], groups=[0, 0, 0])
    np.testing.assert_allclose(one.predict(), 7 / 3)
    ties = eb.VarianceEB().fit(np.append(ROWS, [3.0, 3.0]), groups=np.append(GROUPS, [300, 300]))
    lower, upper = ties.posterior().interval()
    assert 0 < lower[300, 0] < ties.predict()[300] < upper[300, 0]


@pytest.mark.parametrize("seed", [28, 30])
def test_new_groups_have_an_estimate_after_noisy_reports(seed):
    """They were NaN: scales of the widest plausible populations are beyond all numbers."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(30), 4)
    rows = rng.normal(groups % 3, 1.0)
    channel = channels.Laplace(2.0, (-3.0, 3.0))
    fit = eb.VarianceEB(channel=channel, random_state=seed).fit(rows, groups=groups)
    new = fit.predict(groups=[999])
    assert fit.posterior(groups=[999]).sd > 0
    assert 0.25 < new[0] / fit.prior_.scale_[0] < 4


@pytest.mark.parametrize("prior", ["inverse_gamma", "log_spline", "npmle"])
def test_groups_without_any_variance_leave_the_population_unknown(prior):
    rows, groups = np.repeat([1.0, 4.0, 2.0], 4), np.repeat([0, 1, 2], 4)
    with pytest.warns(eb.priors.IdentificationWarning, match="population is unknown"):
        fit = eb.VarianceEB(prior=prior).fit(rows, groups=groups)
    assert np.ptp(fit.predict(groups=[0, 1, 2])) == 0
    assert np.isfinite(np.concatenate(fit.posterior().interval())).all()


def test_reports_with_hardly_any_noise_give_the_exact_population():
    """Probabilities of cells below zero, by rounding, made it -17 and every posterior NaN."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(200), rng.integers(3, 25, 200))
    rows = np.exp(rng.normal(0, 0.4, 200))[groups] * rng.normal(size=len(groups))
    exact = eb.VarianceEB().fit(rows, groups=groups).prior_
    channel = channels.Laplace(1e3, (-25.0, 8.0))
    fit = eb.VarianceEB(channel=channel, random_state=1).fit(rows, groups=groups)
    # noise has less than a tenth of the standard deviation of the logarithms
    np.testing.assert_allclose(fit.prior_.mean_, exact.mean_, atol=0.02)
    np.testing.assert_allclose(fit.prior_.variance_, exact.variance_, rtol=0.03)
    assert (fit.posterior().sd > 0).all()
