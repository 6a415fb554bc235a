"""The weight of private clients beside those that opted out."""

import numpy as np
import pytest

import ebfed as eb
from ebfed.models import Linear

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
