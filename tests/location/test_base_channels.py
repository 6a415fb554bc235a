"""Estimators through channels: weights, waves, participation, refusals and the ledger."""

import numpy as np
import polars as pl
import pytest

import ebfed as eb
from ebfed import channels as ch
from ebfed import theory
from ebfed.engines import Local
from ebfed.location.consent import named_channels, settled
from ebfed.priors import Beta, Discrete, Normal
from ebfed.priors.base import OwnReports
from ebfed.privacy import PrivacyWarning, accountant, events, gaussian_sigma

GUESS = eb.channels.Guess(mean=(-0.5, 0.5), spread=0.1)
KNOWN = {"variances": 0.25, "prior": Normal(variance=0.01), "guess": GUESS}


def summary(m, n=5, seed=0, mean=0.2):
    rng = np.random.default_rng(seed)
    theta = rng.normal(mean, 0.1, m)
    sizes = np.broadcast_to(n, m).astype(np.int64)
    x = rng.normal(theta, 0.5 / np.sqrt(np.maximum(sizes, 1)))
    x = np.where(sizes > 0, x, 0.0)
    return eb.Summary(np.arange(m), sizes, x[:, None], np.zeros((m, 1))), theta


def rates(m, n=14, seed=0):
    rng = np.random.default_rng(seed)
    p = rng.beta(4, 6, m)
    sizes = np.broadcast_to(n, m).astype(np.int64)
    return eb.Summary.from_counts(rng.binomial(sizes, p), sizes), p


@pytest.mark.parametrize("m", [10, 1000])
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_known_variances_give_the_weight_of_theorem_2(m, epsilon):
    data, _ = summary(m)
    channel = ch.Gaussian(epsilon, 1e-4, range=(-20, 20))  # nothing is near its ends
    fit = eb.GaussianEB(channel=channel, **KNOWN).fit(data)
    noise = gaussian_sigma(epsilon, 1e-4, 40.0) ** 2
    weight = theory.shrinkage_weight(0.01, 0.25, 5, m, noise)
    # the clipped law's information about the mean differs from the unclipped by what is clipped
    np.testing.assert_allclose(fit.posterior().weight, weight, rtol=1e-3)
    risk = theory.mean_risk(0.01, 0.25, 5, m, noise)
    np.testing.assert_allclose(fit.posterior().sd ** 2, risk, rtol=2e-3)


def test_theorem_2_is_exact_for_a_posterior_with_that_variance():
    data, _ = summary(50)
    prior = Normal(variance=0.01)
    prior.fit(eb.likelihoods.Gaussian(data.mean, np.full((50, 1), 0.25 / 5 + 3.0)))
    local = eb.likelihoods.Gaussian(data.mean, np.full((50, 1), 0.25 / 5))
    own = OwnReports(np.full((50, 1), 3.0), None, data.mean)
    posterior = prior.posterior_of_members(local, own)
    np.testing.assert_allclose(
        posterior.weight, theory.shrinkage_weight(0.01, 0.25, 5, 50, 3.0), rtol=1e-12
    )
    np.testing.assert_allclose(
        posterior.sd**2, theory.mean_risk(0.01, 0.25, 5, 50, 3.0), rtol=1e-12
    )
    none = OwnReports(np.full((50, 1), np.inf), None, data.mean)
    strangers = prior.posterior_of_members(local, none)
    np.testing.assert_allclose(
        strangers.sd**2, theory.nonparticipant_risk(0.01, 0.25, 5, 50, 3.0), rtol=1e-12
    )


@pytest.mark.parametrize(
    "channel",
    [
        ch.Gaussian(2, 1e-4),
        ch.OneBit(2),
        ch.OneBit(2, range="private"),
        ch.Hybrid(2, range="private"),
        ch.TwoBit(2),
        ch.TwoBit(2, range="private"),
        ch.DiscreteGaussian(2, 1e-4),
        ch.Quantizer(4),
    ],
    ids=repr,
)
def test_blocks_do_not_matter(channel):
    data, _ = summary(300, n=np.arange(300) % 7)
    estimator = eb.GaussianEB(channel=channel, random_state=3, participation=250, **KNOWN)
    whole = estimator.fit(data)
    whole, ledger = whole.predict(), whole.privacy_
    parts = estimator.set_params(engine=Local(13)).fit(data)
    np.testing.assert_array_equal(parts.predict(), whole)
    assert parts.privacy_.to_dict("list") == ledger.to_dict("list")
    again = estimator.set_params(random_state=4).fit(data)
    assert not np.array_equal(again.predict(), whole)


@pytest.mark.parametrize("channel", [ch.TwoBit(2), ch.UnaryEncoding(2), ch.Gaussian(4, 1e-4)])
def test_blocks_do_not_matter_for_rates(channel):
    data, _ = rates(300, n=np.arange(300) % 12)
    estimator = eb.BernoulliEB(channel=channel, random_state=3)
    whole = estimator.fit(data).predict()
    np.testing.assert_array_equal(estimator.set_params(engine=Local(13)).fit(data).predict(), whole)


@pytest.mark.parametrize(
    "channel", [ch.OneBit(1, (-1, 1)), ch.Quantizer(1, (-1, 1)), ch.Hybrid(0.5)]
)
def test_one_bit_says_nothing_about_a_spread(channel):
    data, _ = summary(100)
    with pytest.raises(ValueError, match=r"nothing about the spread.*TwoBit"):
        eb.GaussianEB(0.25, channel=channel).fit(data)
    with pytest.raises(ValueError, match=r"nothing about the spread.*TwoBit"):
        eb.GaussianEB(0.25, channel=channel, prior="npmle").fit(data)
    eb.GaussianEB(channel=channel, **KNOWN).fit(data)


def test_one_bit_of_rates_needs_a_known_spread_or_the_paper():
    data, _ = rates(2000)
    channel = ch.OneBit(1)
    with pytest.raises(ValueError, match="nothing about the spread"):
        eb.BernoulliEB(channel=channel).fit(data)
    known = eb.BernoulliEB(channel=channel, prior=Beta(4, 6)).fit(data)
    assert known.prior_.mean_ == 0.4
    paper = eb.BernoulliEB(channel=channel, method="paper", random_state=0).fit(data)
    # Theorem 4 takes the variance of the bits, which is about a quarter over a squared slope, for
    # that of the rates
    slope = np.tanh(0.5)
    concentration = 0.24 / (0.25 / slope**2)
    np.testing.assert_allclose(paper.prior_.concentration_, concentration, rtol=0.05)
    assert np.isfinite(paper.predict()).all()


def test_theorem_4_leaves_one_out():
    data, _ = rates(40)
    channel = ch.OneBit(3, (0, 1))
    fit = eb.BernoulliEB(channel=channel, method="paper", random_state=5).fit(data)
    reports = fit._learned.memory["report"][:, 0]
    others = np.delete(reports, 7)
    mean, variance = others.mean(), others.var(ddof=1)
    concentration = mean * (1 - mean) / variance
    weight = 14 / (14 + concentration)
    expected = weight * data.mean[7, 0] + (1 - weight) * mean
    np.testing.assert_allclose(fit.predict()[7], expected, rtol=1e-10)


def test_private_reports_need_known_noise():
    data, _ = summary(100)
    with pytest.raises(ValueError, match="variances must be given"):
        eb.GaussianEB(channel=ch.Gaussian(1, 1e-4, (-1, 1))).fit(data)
    with pytest.raises(ValueError, match=r"range.*guess=Guess"):
        eb.GaussianEB(0.25, channel=ch.Gaussian(1, 1e-4)).fit(data)


def test_spread_and_mean_are_fitted_through_noise():
    rng = np.random.default_rng(1)
    x = rng.normal(0.4, np.sqrt(0.3**2 + 0.05), 20_000)
    data = eb.Summary(np.arange(len(x)), np.full(len(x), 5), x[:, None], np.zeros((len(x), 1)))
    guess = eb.channels.Guess((0, 1), 0.3)
    for channel in (ch.Piecewise(4, (-1, 2)), ch.TwoBit(4, range=(-1, 2)), ch.Clip((0, 1))):
        fit = eb.GaussianEB(0.25, channel=channel, guess=guess, random_state=0).fit(data)
        errors = [fit.prior_.mean_[0] - 0.4, fit.prior_.variance_[0] - 0.09]
        bounds = np.sqrt([fit.prior_.mean_variance_[0], fit.prior_.variance_variance_[0]])
        assert np.all(np.abs(errors) < 5 * bounds)  # five standard errors: 1e-6
        assert bounds[1] < 0.02


def test_a_discrete_population_through_a_channel():
    rng = np.random.default_rng(2)
    p = rng.choice([0.2, 0.7], 5000)
    data = eb.Summary.from_counts(rng.binomial(14, p), np.full(len(p), 14))
    prior = Discrete(2, n_init=2, random_state=0)
    fit = eb.BernoulliEB(prior=prior, channel=ch.UnaryEncoding(2), random_state=0).fit(data)
    np.testing.assert_allclose(fit.prior_.atoms_.ravel(), [0.2, 0.7], atol=0.05)
    best = eb.BernoulliEB(channel=ch.UnaryEncoding(2), prior="npmle", random_state=0).fit(data)
    # plausible populations are smooth, so that intervals hold: of two points that costs estimates
    exact = eb.BernoulliEB(prior="npmle").fit(data)
    beta = eb.BernoulliEB(channel=ch.UnaryEncoding(2), random_state=0).fit(data)
    risk, least, smooth = (((each.predict() - p) ** 2).mean() for each in (best, exact, beta))
    assert risk < 1.8 * least
    assert risk < 0.75 * smooth


def test_intervals_of_the_mean_under_npmle_hold_their_estimates():
    # plausible populations are about one whose place is open, not about the middle of the range
    for seed in range(4):
        rng = np.random.default_rng(seed)
        rates = rng.gamma(2.0, 2.0, 300)
        events, groups = rng.poisson(rates[:, None], (300, 8)).ravel(), np.repeat(np.arange(300), 8)
        channel = ch.TwoBit(4, range=(0, 20))
        fit = eb.PoissonEB(prior="npmle", channel=channel, random_state=seed)
        found = fit.fit(events, groups=groups).confint().iloc[0]
        assert found["conf.low"] < found["estimate"] < found["conf.high"]


def test_participation_keeps_the_others_silent():
    data, theta = summary(2000)
    mask = np.arange(2000) < 500
    fit = eb.GaussianEB(participation=mask, **KNOWN).fit(data)
    alone = eb.GaussianEB(**KNOWN).fit(data.take(mask))
    np.testing.assert_array_equal(fit.prior_.mean_, alone.prior_.mean_)
    # those not asked weigh the mean as strangers do: Remark 7
    risk = theory.nonparticipant_risk(0.01, 0.25, 5, 500)
    np.testing.assert_allclose(fit.posterior().sd[1000] ** 2, risk, rtol=1e-9)
    np.testing.assert_allclose(
        fit.posterior().sd[0] ** 2, theory.mean_risk(0.01, 0.25, 5, 500), rtol=1e-9
    )
    assert ((fit.predict() - theta) ** 2).mean() < 0.012
    silent = fit.privacy_.iloc[-1]
    assert (silent["who"], silent["clients"], silent["epsilon"]) == ("not asked", 1500, 0.0)
    some = eb.GaussianEB(participation=100, random_state=0, **KNOWN).fit(data)
    assert some.privacy_["clients"].tolist() == [100, 1900]


@pytest.mark.parametrize("wanted", [0, -1, 101, 2.5, "all", True, [True], np.zeros(100, bool)])
def test_impossible_participation(wanted):
    data, _ = summary(100)
    with pytest.raises(ValueError, match="participation"):
        eb.GaussianEB(participation=wanted, **KNOWN).fit(data)


def test_each_client_reports_once_in_a_private_range():
    data, _ = summary(1000)
    fit = eb.GaussianEB(channel=ch.OneBit(1, "private"), random_state=0, **KNOWN).fit(data)
    ledger = fit.privacy_
    assert ledger["clients"].sum() == 1000
    assert (ledger["times"] == 1).all()
    assert (ledger["epsilon"] == 1.0).all()
    assert ledger["bits"].sum() == 1000
    channels = named_channels(fit.channel)
    each_round = [settled(channels, settings)["all clients"] for settings in fit._learned.settings]
    windows = [channel._box(1).half[0] for channel in each_round]
    assert windows[0] > 2 * windows[-1]


def test_the_ledger_counts_what_is_clipped():
    x = np.array([[-3.0], [0.0], [0.5], [1.0], [7.0]])
    data = eb.Summary(np.arange(5), np.full(5, 5), x, np.zeros((5, 1)))
    fit = eb.GaussianEB(0.25, prior=Normal(0.0, 1.0), channel=ch.OneBit(1, (-1, 1))).fit(data)
    assert fit.privacy_["clipped"].tolist() == [2]


def test_the_ledger_says_what_the_papers_noise_is_worth():
    data, _ = summary(50)
    channel = ch.Gaussian(10, 1e-4, (-2, 2), calibration="paper")
    with pytest.warns(PrivacyWarning, match="has delta="):
        fit = eb.GaussianEB(channel=channel, **KNOWN).fit(data)
    assert fit.privacy_["delta"][0] > 1e-4
    sound = eb.GaussianEB(channel=ch.Gaussian(10, 1e-4, (-2, 2)), **KNOWN).fit(data)
    assert sound.privacy_["delta"][0] == 1e-4


def test_nothing_is_asked_twice():
    data, _ = summary(50)
    fit = eb.GaussianEB(channel=ch.OneBit(1), **KNOWN).fit(data)
    with pytest.raises(ValueError, match="second report"):
        fit.partial_fit(data)


def test_several_columns():
    rng = np.random.default_rng(0)
    x = rng.normal([0.0, 2.0, -1.0], [0.4, 0.5, 0.6], (6000, 3))
    data = eb.Summary(np.arange(6000), np.full(6000, 5), x, np.zeros((6000, 3)))
    centre = np.array([0.0, 2.0, -1.0])
    for channel in (
        ch.Gaussian(8, 1e-4, (centre - 2, centre + 2)),
        ch.Clip(radius=3.0, centre=centre) | ch.Gaussian(8, 1e-4),
        ch.Piecewise(6, (centre - 2, centre + 2)),
        ch.TwoBit(4, range="private"),
    ):
        guess = eb.channels.Guess((centre - 1, centre + 1), 0.4)
        fit = eb.GaussianEB([0.25] * 3, channel=channel, guess=guess, random_state=1).fit(data)
        errors = np.sqrt(fit.prior_.mean_variance_)
        assert np.all(np.abs(fit.prior_.mean_ - centre) < 5 * errors)
        assert np.all(errors < 0.3)
    rows = fit.privacy_
    assert rows["bits"].sum() == 6000 * 4  # two bits, and two to name one of three columns


def test_frames_come_back_as_they_came():
    frame = pl.DataFrame({"v": [0.1, 0.2, 0.3, 0.4], "g": ["a", "a", "b", "c"]})
    fit = eb.GaussianEB().fit(frame, groups="g")
    assert isinstance(fit.privacy_, pl.DataFrame)


def test_empty_clients_are_not_heard():
    data, _ = summary(400, n=np.arange(400) % 2 * 5)
    fit = eb.GaussianEB(channel=ch.Gaussian(2, 1e-4), random_state=1, **KNOWN).fit(data)
    estimates = fit.predict()
    np.testing.assert_allclose(estimates[::2], fit.prior_.mean_[0])


@pytest.mark.parametrize("guess", [(0, 1, 2), "wide", 3])
def test_a_guess_is_a_guess(guess):
    data, _ = summary(50)
    with pytest.raises(TypeError, match="guess"):
        eb.GaussianEB(0.25, channel=ch.OneBit(1), guess=guess, prior=Normal(variance=1)).fit(data)


@pytest.mark.parametrize(
    "guess",
    [
        eb.channels.Guess((1, 0), 1),
        eb.channels.Guess((0, np.nan), 1),
        eb.channels.Guess((0, 1), 0),
        eb.channels.Guess(0, 1),
    ],
)
def test_a_guess_makes_sense(guess):
    data, _ = summary(50)
    with pytest.raises(ValueError, match="guess"):
        eb.GaussianEB(0.25, channel=ch.OneBit(1), guess=guess, prior=Normal(variance=1)).fit(data)


@pytest.mark.parametrize(
    ("channel", "method"),
    [
        (ch.Gaussian(1.0, 1e-5, (0, 1)), "pld"),
        (ch.OneBit(1.0, (0, 1)), "pld"),
        (ch.Hybrid(1.0, (0, 1)), "pld"),
        (ch.DiscreteGaussian(1.0, 1e-5, (0, 1)), "rdp"),
    ],
    ids=repr,
)
def test_an_account_of_one_report_is_its_promise(channel, method):
    epsilon, delta = channel.guarantee()
    spent = accountant.epsilon(
        channel.event(), delta or 1e-12, relation="replace_one", method=method
    )
    # accounts are bounds; Renyi's is loose for a single release
    assert epsilon * (1 - 1e-9) <= spent <= epsilon * (1.001 if method == "pld" else 1.5)
    twice = accountant.epsilon(
        events.repeated(channel.event(), 2), 1e-5, relation="replace_one", method=method
    )
    assert spent < twice < 2.2 * spent


def test_a_spread_that_noise_hides_is_noted():
    data, _ = summary(60)
    fit = eb.GaussianEB(0.25, channel=ch.Gaussian(0.5, 1e-6, (-3, 3)), random_state=1).fit(data)
    assert "hardly identify" in fit.notes_[0]
    assert np.isfinite(fit.predict()).all()
    few, _ = rates(60)
    private = eb.BernoulliEB(channel=ch.Gaussian(0.5, 1e-6), random_state=1).fit(few)
    assert "hardly identify" in private.notes_[0]
    with pytest.raises(ValueError, match="method"):
        eb.GaussianEB(0.25, method="moments", channel=ch.Piecewise(2, (-3, 3))).fit(data)
