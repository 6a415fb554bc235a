"""One training with canaries: every private learner keeps its promise, planted errors are caught.

False alarms: the bound of a correct learner exceeds its epsilon with probability at most ERROR in
each audit. It does so far less often, since noise is independent between canaries: with 300 of them
at epsilon 4, 82 of 84 guesses must be right or 116 of 120, where 69.5 and 95.7 are expected, 3.6
and 4.6 standard errors fewer: once in 5,000 audits. Seeds are fixed.
"""

import numpy as np
import pytest
from planted import HalfTheNoise, NoClip, Planted

import ebfed.learning
from ebfed.learning import (
    ClientPrivacy,
    DPAdaPeD,
    DPFedAvg,
    FedAvg,
    FeO2,
    JointDPSGD,
    Learner,
    LocalOnly,
)
from ebfed.learning.canaries import Federation
from ebfed.learning.privacy import PrivateExchange
from ebfed.models import MLP, Linear
from ebfed.privacy import audit_one_run, one_run_limit
from ebfed.streams import Stream

ERROR = 0.05
LEARNERS = [
    each
    for each in (getattr(ebfed.learning, name) for name in ebfed.learning.__all__)
    if issubclass(each, Learner) and each not in (Learner, LocalOnly)
]
NAMES = ClientPrivacy().get_params().keys()


def make(learner, *, epsilon=4.0, n_rounds=3, **settings):
    """A learner, and those of the settings that are of its privacy."""
    privacy = {name: settings.pop(name) for name in NAMES & settings.keys()}
    if "noise_multiplier" in privacy:  # which need not be solved for
        epsilon = None
    if learner.__name__ == "FedBN":
        settings.setdefault("personal", ["intercept"])
    return learner(n_rounds=n_rounds, privacy=ClientPrivacy(epsilon, **privacy), **settings)


def found(learner, canaries=300, **kwargs):
    return audit_one_run(learner, canaries=canaries, error=kwargs.pop("error", ERROR), **kwargs)


# Sound learners -----------------------------------------------------------------------------


def test_all_private_learners_are_known():
    assert {each.__name__ for each in LEARNERS} >= {"PPSGD", "DPAdaPeD", "FeO2", "JointDPSGD"}
    assert len(LEARNERS) == 17


@pytest.mark.parametrize("trust", ["server", "none"])
@pytest.mark.parametrize("learner", LEARNERS)
def test_no_promise_is_refuted(learner, trust):
    audit = found(make(learner, trust=trust))
    assert audit.passed
    assert (audit.epsilon, audit.delta) == pytest.approx((4.0, 1e-5), rel=1e-3)
    assert audit.lower > 0.5


@pytest.mark.parametrize("seed", range(3))
def test_the_bound_is_near_the_limit(seed):
    """175 of 200 guesses suffice, where 194 are expected, with a standard error of 2.4."""
    audit = audit_one_run(make(DPFedAvg, epsilon=8.0), rng=seed)
    limit = one_run_limit(8.0, 1e-5, 1000)
    assert 0.5 * limit < audit.lower < audit.epsilon
    assert audit.canaries == 1000


@pytest.mark.parametrize(
    "learner",
    [
        make(DPFedAvg, sample_rate=0.5, noise_multiplier=1.0),
        make(DPFedAvg, sample_rate=0.5, sampling="fixed", noise_multiplier=2.0),
        make(DPFedAvg, sample_rate=0.5, trust="none"),
        make(JointDPSGD, sample_rate=0.5, noise_multiplier=1.0, personal=["x0"]),
        make(DPFedAvg, clip_quantile=0.5),
        make(FeO2, clip_quantile=0.5, ratio=0.5, trust="none"),
        make(DPAdaPeD, shared_model=MLP([3]), local_steps=4),
        make(DPAdaPeD, clip_quantile=0.5, local_steps=4),
        make(JointDPSGD, clip_quantile=0.5, sample_rate=0.5, noise_multiplier=1.0),
        make(FedAvg, local_steps=6, batch_size=3, weight_decay=0.1, classes=[0, 1]),
    ],
    ids=lambda learner: " ".join(repr(learner).split()),
)
def test_samples_bits_and_models(learner):
    audit = found(learner, 1000 if learner.sampling == "fixed" else 300)
    assert 0.1 < audit.lower < audit.epsilon


@pytest.mark.filterwarnings("error")
def test_a_round_may_invite_nobody():
    rare = make(DPFedAvg, n_rounds=30, sample_rate=0.005, trust="none", delta=1e-3)
    assert found(rare).passed


def test_a_seed_decides():
    first = found(make(DPFedAvg, random_state=3))
    again = found(make(DPFedAvg, random_state=4), progress=True)
    assert (first.right, first.lower) == (again.right, again.lower)
    others = {found(make(DPFedAvg), rng=seed).lower for seed in range(3)}
    assert len(others) > 1
    assert found(make(DPFedAvg, epsilon=2.0), mechanism="any").lower < 1.0


@pytest.mark.slow
def test_many_seeds_and_rounds():
    """Of 20 audits with 1,000 canaries none is above the claim: `error` permits one."""
    for seed in range(10):
        assert audit_one_run(make(DPFedAvg, epsilon=8.0, n_rounds=20), rng=seed).passed
        sampled = make(DPFedAvg, epsilon=8.0, n_rounds=20, sample_rate=0.2)
        assert 1 < audit_one_run(sampled, rng=seed).lower < 8


# Planted errors -----------------------------------------------------------------------------


class SameNoise(Planted):
    """Uses the key of the first round in all rounds."""

    class kind(PrivateExchange):
        def average(self, state, sent, message, rng):
            return super().average(state, sent, message, np.random.default_rng(state["key"]))

        def disturb(self, values, scale, who):
            return super().disturb(values, scale, who._replace(rng=Stream(who.rng.key, 0)))


class NoNoise(Planted):
    class kind(PrivateExchange):
        def scales(self, sent):
            scales, bits = super().scales(sent)
            return dict.fromkeys(scales, 0.0), 0 * bits


@pytest.mark.parametrize("trust", ["server", "none"])
@pytest.mark.parametrize("learner", [NoClip, SameNoise, NoNoise])
def test_missing_clips_and_noise_used_twice_are_caught(learner, trust):
    """False alarms: at most 0.01 each, the `error`, with these numbers of guesses."""
    audit = found(make(learner, trust=trust), guesses=200, error=0.01)
    assert not audit.passed
    assert audit.right == audit.guesses
    assert found(make(DPFedAvg, trust=trust), guesses=200, error=0.01).passed


def test_noise_used_twice_is_caught_in_samples():
    assert not found(
        make(SameNoise, n_rounds=6, sample_rate=0.5, noise_multiplier=1.5), error=0.01
    ).passed


@pytest.mark.parametrize("trust", ["server", "none"])
@pytest.mark.parametrize(("epsilon", "canaries"), [(4.0, 1000), (8.0, 2000)])
def test_half_the_noise_is_caught(epsilon, canaries, trust):
    """False alarms: at most 0.05, the `error`. With other seeds one error of 10 is missed."""
    settings = {"epsilon": epsilon, "trust": trust, "n_rounds": 2}
    assert not found(make(HalfTheNoise, **settings), canaries).passed
    assert found(make(DPFedAvg, **settings), canaries).passed


# Arguments ----------------------------------------------------------------------------------


def test_bad_arguments():
    with pytest.raises(TypeError, match="estimator must be a learner with privacy"):
        audit_one_run(FedAvg())
    with pytest.raises(ValueError, match="gives no guarantee"):
        found(FedAvg(n_rounds=1, privacy=ClientPrivacy(noise_multiplier=0.0)))
    winsorized = make(JointDPSGD, private_mean="winsorized", concentration=0.1, trust="none")
    with pytest.raises(ValueError, match="private_mean must be 'gaussian'"):
        found(winsorized)


def test_federations_differ_in_rows_alone():
    X, y, owner = np.eye(4)[[0, 0, 1, 2]], np.arange(4.0), np.array([0, 0, 1, 2])
    whole = Federation.of(FedAvg(Linear()), X, y, owner, 2)
    assert whole.clients.n.tolist() == [2, 1, 1, 1, 1]
    absent = np.array([True, False, True, False, False])
    left = whole.without(absent).clients
    assert left.n.tolist() == [0, 1, 0, 1, 1]
    assert left.y.tolist() == [2.0, 0.0, 0.0]
    assert whole.without(absent).facts is whole.facts, "numbers of rows are public"
    assert whole.opposite(absent).clients.y.tolist() == [0.0, -1.0, 2.0, -3.0, 0.0, 0.0]
