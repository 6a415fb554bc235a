"""The weight of private clients beside those that opted out."""

import numpy as np
import pytest

import ebfed as eb
from ebfed.channels import AddNoise, Exact
from ebfed.models import Linear
from ebfed.priors import Normal
from ebfed.privacy.calibration import gaussian_sigma

M, OPEN, D = 40, 10, 8
CONSENT = {i: "open" if i < OPEN else "private" for i in range(M)}


def learner(ratio="optimal", trust="server", **more):
    privacy = eb.ClientPrivacy(noise_multiplier=more.pop("noise", 6.0), clip=0.1, trust=trust)
    settings = {"n_rounds": 5, "regularization": 0.0} | more
    return eb.learning.FeO2(Linear(fit_intercept=False), ratio=ratio, privacy=privacy, **settings)


def rows(seed):
    """Responses so large that every change is clipped to its norm, in a direction of its own."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(M, D)), 1e6 * rng.choice([-1.0, 1.0], M)


@pytest.mark.parametrize(("trust", "noise"), [("server", 12.0), ("none", 1.8)])
def test_it_is_the_ratio_of_least_variance(trust, noise):
    """The mean of all directions is 0, so that all that w has is noise and what clients differ."""
    made = learner(trust=trust, noise=noise, random_state=0)
    best = made.fit(*rows(0), groups=range(M), consent=CONSENT).ratio_
    assert 0.1 < best < 0.4
    ratios = [best / 3, best, 3 * best, 0.0, 1.0]
    risk = np.zeros(len(ratios))
    for seed in range(25):
        X, y = rows(seed)
        for k, ratio in enumerate(ratios):
            est = learner(ratio, trust, noise=noise, random_state=seed)
            w = est.fit(X, y, groups=range(M), consent=CONSENT).shared_["w"]
            risk[k] += np.sum(w**2)
    assert np.argmin(risk) == 1, (ratios, risk)


def test_its_formula():
    """p z^2 / (T q^2 N_p), and z / sqrt(q N_p) for z where clients add the noise."""
    X, y = rows(0)
    for trust, noise in (("server", 36.0), ("none", 36.0 * 0.5 * 30)):
        est = learner(trust=trust, sample_rate=0.5, n_rounds=7, random_state=0)
        est.fit(X, y, groups=range(M), consent=CONSENT)
        assert est.ratio_ == pytest.approx(1 / (1 + D * noise / (7 * 0.25 * 30)), rel=1e-12)


def test_it_is_one_without_noise_and_a_number_where_given():
    X, y = rows(0)
    assert learner(noise=0.0).fit(X, y, groups=range(M), consent=CONSENT).ratio_ == 1.0
    assert learner(0.3).fit(X, y, groups=range(M), consent=CONSENT).ratio_ == 0.3
    alone = learner(random_state=0).fit(X, y, groups=range(M))
    whole = learner(1.0, random_state=0).fit(X, y, groups=range(M))
    np.testing.assert_allclose(alone.shared_["w"], whole.shared_["w"], rtol=1e-10, atol=1e-12)


def test_other_words_are_refused():
    with pytest.raises(ValueError, match="ratio must be 'optimal' or a number from 0 to 1; got 'b"):
        learner("best").fit(*rows(0), groups=range(M), consent=CONSENT)


@pytest.mark.parametrize("ratio", [1.0, 0.2])
def test_means_are_reached_in_two_rounds(ratio):
    """Aldaghri et al. (2021), Lemma 7: steps of 1 and 1 / (1 + lambda), no noise, long clip."""
    means, penalty = np.array([0.3, -1.1, 0.4, 1.2, 0.7]), 0.6
    consent = dict(enumerate(["private"] * 4 + ["open"]))
    est = eb.learning.FeO2(
        Linear(fit_intercept=False),
        regularization=penalty,
        own_learning_rate=1 / (1 + penalty),
        ratio=ratio,
        n_rounds=2,
        learning_rate=1.0,
        privacy=eb.ClientPrivacy(noise_multiplier=0.0, clip=100.0),
        random_state=0,
    ).fit(np.ones((5, 1)), means, groups=range(5), consent=consent)
    theta = np.average(means, weights=[ratio] * 4 + [1.0])
    assert est.shared_["w"].item() == pytest.approx(theta, rel=1e-12)
    expected = (means + penalty * theta) / (1 + penalty)
    np.testing.assert_allclose(est.parameters_.ravel(), expected, rtol=1e-12)


LEVELS = {"strict": 9.0, "lax": 1.5}
CHOICES = dict(enumerate(np.repeat([*LEVELS, "open"], [12, 18, 10])))


@pytest.mark.parametrize("trust", ["server", "none"])
def test_weights_of_levels_are_those_of_the_normal_likelihood(trust):
    """To 1e-10: those of OptOutMean, and of GaussianEB with a channel for each level."""
    est = learner(trust=trust, noise=LEVELS, n_rounds=7, random_state=0)
    est.fit(*rows(0), groups=range(M), consent=CHOICES)
    numbers = {"strict": 12, "lax": 18}
    variance = {
        name: z**2 * 0.01 / (7 * (numbers[name] if trust == "server" else 1))
        for name, z in LEVELS.items()
    }
    gamma2 = {name: q / numbers[name] for name, q in variance.items()}
    mean = eb.OptOutMean(0.0, 0.01 / D, gamma2, random_state=0)
    mean.fit(np.arange(40.0), consent=list(CHOICES.values()))
    np.testing.assert_allclose(est.ratio_, mean.ratio_[:, 0], rtol=1e-10)
    channel = {name: AddNoise(np.sqrt(q)) for name, q in variance.items()} | {"open": Exact()}
    location = eb.GaussianEB(0.01 / D, prior=Normal(variance=0.0), channel=channel, random_state=0)
    location.fit(np.arange(40.0), consent=list(CHOICES.values()))
    own = location._learned.own_reports(location.summaries_).variance[:, 0]
    precision = 1 / (0.01 / D + own)
    np.testing.assert_allclose(est.ratio_, precision[[0, 12]] / precision[-1], rtol=1e-10)


def test_a_round_averages_as_the_likelihood_of_its_messages():
    est = learner(trust="none", noise=LEVELS, n_rounds=1, random_state=3)
    rounds = est.protocol()
    clients, memory = rounds.prepare(*rows(1), groups=range(M), consent=CHOICES)
    state = rounds.start(rounds.describe(clients, memory), np.array([5, 7], np.uint64))
    sent, turn = rounds.broadcast(state), {"turn": state["turn"]}
    message, _ = rounds.local(sent, memory | turn, clients, eb.streams.Stream(state["key"], 0))
    weights = np.append(sent["ratio"], 1.0)[memory["consent"]]
    reports = message["changes"]["w"] / weights[:, None]
    noise = np.array([*LEVELS.values(), 0.0])[memory["consent"]] * 0.1
    after = rounds.update(state, message)["shared"]["w"]
    expected = np.average(reports, axis=0, weights=1 / (0.01 / D + noise**2))
    np.testing.assert_allclose(after, expected, rtol=1e-9, atol=1e-9 * abs(after).max())
    # 12 x 8 and 18 x 8 numbers: a spread is known to 7 % and 6 %, here within 5 standard errors
    assert reports[:12].std() == pytest.approx(0.9, rel=0.36)
    assert reports[12:30].std() == pytest.approx(0.15, rel=0.30)
    assert np.linalg.norm(reports[30:], axis=1).max() < 0.1 + 1e-9


@pytest.mark.parametrize("trust", ["server", "none"])
def test_levels_of_epsilon_and_their_ledger(trust, tmp_path):
    privacy = eb.ClientPrivacy(epsilon={"strict": 0.5, "lax": 4.0}, trust=trust, clip_quantile=0.5)
    est = eb.learning.FeO2(
        Linear(), privacy=privacy, ratio="optimal", n_rounds=6, regularization=0.0
    )
    est.fit(*rows(0), groups=range(M), consent=CHOICES)
    ledger = est.privacy_.set_index("who")
    assert ledger["epsilon"].round(6).to_dict() == {"strict": 0.5, "lax": 4.0, "open": np.inf}
    assert ledger["clients"].tolist() == [12, 18, 10]
    assert est.ratio_[0] < est.ratio_[1] < 1
    assert est.history_["epsilon"].iloc[-1] == pytest.approx(4.0)
    for name, level in est.protocol().exchange(M).levels.items():
        sensitivity = 2.0 if trust == "none" else 1.0
        sigma = gaussian_sigma(privacy.epsilon[name], 1e-5, sensitivity)
        assert level.multiplier == pytest.approx(np.sqrt(6) * sigma)
    est.save(tmp_path / "fit.json", groups=False)
    read = eb.load_fit(tmp_path / "fit.json")
    np.testing.assert_allclose(read.ratio_, est.ratio_, rtol=1e-14)
    shown = ["who", "clients", "epsilon"]
    assert read.privacy_[shown].equals(est.privacy_[shown])
    plans = {plan.who: plan.epsilon for plan in est.protocol().exchange(M).plan(est._memory, M)}
    assert plans == pytest.approx({"open": np.inf, "strict": 0.5, "lax": 4.0})


def test_a_level_without_noise_is_open():
    est = learner(noise={"a": 1.0, "b": 0.0}, random_state=0)
    consent = ["a"] * 20 + ["b"] * 20
    est.fit(*rows(0), groups=range(M), consent=consent)
    assert est.ratio_[1] == 1.0
    assert np.isinf(est.privacy_.set_index("who")["epsilon"]["b"])
    clients, memory = est.protocol().prepare(*rows(0), groups=range(M), consent=consent)
    opened = est.protocol().rows_shown(clients, memory)[1]
    assert opened.tolist() == [False] * 20 + [True] * 20


def test_levels_have_names_and_are_chosen():
    given = {"groups": range(M), "consent": ["a"] * M}
    for wrong in ({}, {"open": 1.0}, {1: 1.0}):
        with pytest.raises(ValueError, match="noise_multiplier must be a number, or name levels"):
            learner(noise=wrong).fit(*rows(0), **given)
    with pytest.raises(
        ValueError, match=r"consent= must say which level of privacy \('a', 'b', 'o"
    ):
        learner(noise={"a": 1.0, "b": 2.0}).fit(*rows(0), groups=range(M))
    with pytest.raises(ValueError, match=r"noise_multiplier must be .*; got -1"):
        learner(noise={"a": 1.0, "b": -1.0}).fit(*rows(0), **given)
    with pytest.raises(ValueError, match=r"epsilon must be .*; got {'a'"):
        eb.learning.DPFedAvg(privacy=eb.ClientPrivacy(epsilon={"a": 1.0})).fit(*rows(0))
    with pytest.raises(
        ValueError, match="privacy must have one level, as one is audited; got a, b"
    ):
        eb.privacy.audit_one_run(learner(noise={"a": 1.0, "b": 2.0}))
