"""Sound learners pass the audit of training, planted errors fail it."""

import math

import numpy as np
import pytest
from planted import HalfTheNoise, NoClip, Planted

from ebfed.evaluation.audit import run, trials
from ebfed.evaluation.training_audit import audit_training
from ebfed.learning import ClientPrivacy, DPAdaPeD, DPFedAvg, FedAvg, FeO2
from ebfed.learning.feo2 import FeO2Rounds, OptOutExchange
from ebfed.learning.privacy import PrivateExchange
from ebfed.privacy import events
from ebfed.privacy.audit import bound_from_scores
from ebfed.theory.private_learning import adaped_claimed_epsilon

# A sound learner fails a test with at most this probability, and seeds are fixed.
ERROR = 1e-5
COMMON = {"n_rounds": 2, "learning_rate": 0.01, "epsilon": 2.5, "delta": 0.1}
BITS = COMMON | {"clip_quantile": 0.5, "clip_step": 0.02}
NAMES = ClientPrivacy().get_params().keys()


def make(learner, **settings):
    """A learner, and those of the settings that are of its privacy."""
    privacy = ClientPrivacy(**{name: settings.pop(name) for name in NAMES & settings.keys()})
    return learner(privacy=privacy, **settings)


def found(learner, simulations=1000, **kwargs):
    return audit_training(learner, simulations=simulations, error=ERROR, **kwargs)


# Sound learners -----------------------------------------------------------------------------


SOUND = {name: (learner, canary) for name, learner, canary in trials()}
# What is to be seen of epsilon at 4,000 trainings: 0.1 less than was seen with several seeds.
SHARE = {"DPFedAvg 5 of 10": 0.15}


@pytest.mark.slow
@pytest.mark.parametrize("name", SOUND)
def test_no_promise_is_refuted_and_the_audit_is_sharp(name):
    learner, canary = SOUND[name]
    audit = found(learner, 4000, canary=canary)
    assert audit.passed
    assert audit.lower > SHARE.get(name, 0.4) * audit.epsilon
    promise = (learner.privacy.epsilon, learner.privacy.delta)
    assert (audit.epsilon, audit.delta) == pytest.approx(promise, rel=1e-3)


@pytest.mark.parametrize("name", ["DPFedAvg no trust", "FeO2 no trust", "PPSGD no trust"])
def test_messages_of_clients_that_trust_nobody(name):
    audit = found(SOUND[name][0], 10_000)
    assert 0.65 * audit.epsilon < audit.lower < audit.epsilon
    assert {audit.first, audit.second} == {"far above", "far below"}


def test_a_sound_learner_passes():
    audit = found(make(DPFedAvg, **COMMON))
    assert 0.25 * audit.epsilon < audit.lower < audit.epsilon
    assert {audit.first, audit.second} == {"present", "absent"}
    assert audit == found(make(DPFedAvg, **COMMON), rng=np.random.default_rng(0))


def test_who_has_no_rows_sends_no_bit():
    audit = found(make(DPFedAvg, **BITS, bit_noise=0.5))
    assert 0.25 * audit.epsilon < audit.lower < audit.epsilon


# Planted errors -----------------------------------------------------------------------------


class EachCoordinateClipped(Planted):
    class kind(PrivateExchange):
        def send(self, changes, who):
            clipped = np.clip(changes["w"], -who.sent["clip"], who.sent["clip"])
            return super().send(changes, who) | {"changes": {"w": clipped}}


class AlwaysInvited(Planted):
    class kind(PrivateExchange):
        def invite(self, state, rng):
            turn = super().invite(state, rng)
            turn[0] = 0
            return turn


class Counted(Planted):
    """Says how many took part: whoever knows of the others knows of the last one, too."""

    class kind(PrivateExchange):
        def note(self, state, row):
            clients = float((state["turn"] == 0).sum())
            return super().note(state, row | {"clients": clients})


class NoAccountOfBits(Planted):
    class kind(PrivateExchange):
        def split(self, parts=1):
            z = self.multiplier
            return z, self.privacy.bit_noise if z else 0.0


class BitsNotCentred(Planted):
    class kind(PrivateExchange):
        def send(self, changes, *others):
            message = super().send(changes, *others)
            moved = changes["w"].any(axis=1)[:, None]
            return message | {"bit": np.where(moved, message["bit"] + 0.5, 0.0)}

        def follow(self, state, bits):
            return super().follow(state, bits - 0.5)


class WeighedTwice(FeO2):
    """Gives the noise of private clients their weight, and again."""

    class kind(OptOutExchange):
        def server_scales(self, sent):
            scales, bits = super().server_scales(sent)
            return {name: self.ratio * scale for name, scale in scales.items()}, bits

    def protocol(self):
        return WeighingRounds(self)


class WeighingRounds(FeO2Rounds):
    def exchange(self, n_clients):
        given = self.estimator
        common = self.schedule, n_clients, given.privacy, self.message_bounds
        return given.kind(*common, given.ratio, self.levels)


def test_half_the_noise_is_caught():
    assert not found(make(HalfTheNoise, **COMMON)).passed
    assert not found(make(HalfTheNoise, **COMMON, trust="none"), 4000).passed


def test_a_missing_clip_is_caught():
    audit = found(make(NoClip, **COMMON))
    assert not audit.passed
    assert audit.p > 0.98
    assert audit.q == 0
    assert not found(make(NoClip, **COMMON, trust="none"), 4000).passed


def test_noise_of_too_little_weight_is_caught():
    assert not found(make(WeighedTwice, **COMMON, ratio=0.5)).passed


def test_what_theorem_5_of_adaped_claims_is_refuted():
    """A sum of tau clipped gradients is taken to be sqrt(tau) long."""
    tau, m = 100, 10
    learner = make(
        DPAdaPeD, n_rounds=2, noise_multiplier=1.0, delta=0.1, local_steps=tau, psi_clip=0.01
    ).set_params(variant="paper")
    # one joint release: both parts have the noise of sqrt(2), and each step of one client this
    step = math.sqrt(2) * math.sqrt(tau / m)
    claim = adaped_claimed_epsilon([step] * 2, 0.1, rounds=2, participants=m, n_clients=m)
    assert events.joint_multiplier([math.sqrt(m / tau) * step] * 2) == pytest.approx(1.0)
    audit = found(learner)
    assert audit.passed
    assert not found(learner, claim=(claim, 0.1)).passed


SLOW = COMMON | {"n_rounds": 5}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("learner", "canary"),
    [
        (make(HalfTheNoise, **SLOW, sample_rate=0.2), "beyond"),
        (make(EachCoordinateClipped, **SLOW), "beyond"),
        (make(AlwaysInvited, **SLOW, sample_rate=0.2), "beyond"),
        (make(Counted, **SLOW | {"n_rounds": 20, "epsilon": 1.3}, sample_rate=0.2), "beyond"),
        (make(NoAccountOfBits, **BITS, bit_noise=0.3), "within"),
        (make(BitsNotCentred, **BITS, bit_noise=0.5), "within"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_planted_errors_are_caught(learner, canary):
    assert not found(learner, 4000, canary=canary).passed


# Scores -------------------------------------------------------------------------------------


def test_scores_bound_epsilon_from_either_side():
    x = np.random.default_rng(0).standard_normal((2, 40_000))
    near = bound_from_scores(x[0] + 1, x[1], delta=0.05, error=ERROR)
    assert 0.8 * 1.569 < near.lower < 1.569, "epsilon of the normal law at delta 0.05"
    noise = np.random.default_rng(1).standard_normal((2, 40_000))
    both = [np.array([noise[k], x[k] + (k == 0)]) for k in (0, 1)]
    assert bound_from_scores(*both, delta=0.05, error=ERROR) == near, "the better score is chosen"
    rare = np.where(np.arange(8000) % 10 == 0, -1.0, 0.0), np.zeros(8000)
    shown = bound_from_scores(*rare, delta=0.05)
    assert (shown.swapped, shown.p) == (False, 0.0) or shown.lower == 0
    apart = bound_from_scores(np.zeros(8000), np.where(np.arange(8000) % 10 == 0, 1.0, 0.0))
    assert apart.swapped is False or apart.p > apart.q


def test_bad_scores():
    with pytest.raises(ValueError, match="at least 1,000 simulations are needed, none of them NaN"):
        bound_from_scores(np.zeros(999), np.zeros(999))
    with pytest.raises(ValueError, match="none of them NaN"):
        bound_from_scores(np.full(1000, np.nan), np.zeros(1000))
    with pytest.raises(ValueError, match="delta must be"):
        bound_from_scores(np.zeros(1000), np.zeros(1000), delta=1)


# Arguments ----------------------------------------------------------------------------------


def test_bad_arguments():
    learner = make(DPFedAvg, **COMMON)
    with pytest.raises(TypeError, match="learner must be a learner with privacy"):
        audit_training(FedAvg())
    with pytest.raises(ValueError, match="canary must be one of"):
        audit_training(learner, canary="near")
    with pytest.raises(ValueError, match="simulations must be at least 1,000; got 999"):
        audit_training(learner, simulations=999)
    with pytest.raises(ValueError, match="others must be"):
        audit_training(learner, others=0)
    with pytest.raises(ValueError, match="gives no guarantee"):
        audit_training(make(DPFedAvg, n_rounds=1, noise_multiplier=0.0), simulations=1000)
    with pytest.raises(ValueError, match="cannot be refuted by 1,000 simulations"):
        audit_training(learner, claim=(8.0, 0.1), simulations=1000)


@pytest.mark.slow
def test_the_whole_audit_lists_learners():
    whole = run([1.0], simulations=3000, trainings=4000, n_jobs=-1)
    assert whole.passed
    assert list(whole.table["name"][-len(SOUND) :]) == list(SOUND)
    lines = whole.to_text().splitlines()
    assert "learners, 4,000 trainings with each of two inputs" in lines
    assert max(map(len, lines)) <= 100
    assert whole.to_dict()["trainings"] == 4000
