"""Sound channels pass, broken ones fail, and the bound holds as often as it says."""

import math

import numpy as np
import pytest
from scipy.stats import beta, binom, norm

from ebfed import Summary, channels
from ebfed.channels.one_bit import Coin
from ebfed.evaluation.audit import extremes, run
from ebfed.privacy import PrivacyWarning, gaussian_sigma, paper_delta
from ebfed.privacy.audit import audit, largest_bound, lower_bound

ERROR = 1e-6  # as one row of the whole audit has it: 1e-4 / 63


# Registered channels ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def found():
    return run()


def test_every_promise_is_audited(found):
    assert set(found.table["name"]) == {
        "DiscreteGaussian",
        "Gaussian",
        "Gaussian, ball",
        "Hybrid",
        "Laplace",
        "OneBit",
        "Piecewise",
        "RandomizedCategory",
        "RandomizedResponse",
        "TwoBit",
        "UnaryEncoding",
    }
    assert found.not_private == ("AddNoise", "Clip", "Exact", "Quantizer")
    assert len(found.table) == 3 * (10 * 2 + 1)  # epsilons, one and three columns, and the ball


def test_no_promise_is_refuted(found):
    failed = found.table[~found.table["passed"]]
    assert failed.empty, failed.to_string()
    assert found.passed
    assert "None of 63 claims is refuted" in found.to_text()


@pytest.mark.parametrize(("epsilon", "share"), [(0.5, 0.8), (1.0, 0.9), (4.0, 0.95)])
def test_the_audit_is_sharp(found, epsilon, share):
    table = found.table[found.table["epsilon"] == epsilon]
    pure = table["delta"] == 0
    assert (table["lower"][pure] >= share * epsilon).all()
    shares = table["lower"][~pure] / epsilon
    assert shares.between(0.3, 0.6).all(), "the rest is too rare to be counted"


# Planted bugs -------------------------------------------------------------------------------


class WrongNoise(channels.Gaussian):
    """Half the noise that it needs, or less."""

    def _law(self, n_features):
        law = super()._law(n_features)
        return type(law)(law.sigma * (0.4 if self.epsilon < 1 else 0.5))


class Coins(channels.OneBit):
    """Answers with the odds of an epsilon 5 % larger."""

    def _law(self, n_features):
        return Coin(1.05 * self.epsilon)


class OpenBox(channels.report.Box):
    """Clips nothing."""

    def clip(self, u):
        return u


def unclipped(cls):
    class Unclipped(cls):
        def _box(self, n_features):
            box = super()._box(n_features)
            return OpenBox(box.centre, box.half, box.ball)

    return Unclipped


@pytest.mark.parametrize("epsilon", [0.5, 1, 4])
@pytest.mark.parametrize("d", [1, 3])
def test_wrong_noise_is_caught(epsilon, d):
    channel = WrongNoise(epsilon, 1e-5, range=(0, 1))
    assert not audit(channel, extremes(d), error=ERROR).passed


@pytest.mark.parametrize("epsilon", [1, 4])
def test_a_biased_coin_is_caught(epsilon):
    assert not audit(Coins(epsilon, range=(0, 1)), extremes(), error=ERROR).passed


@pytest.mark.parametrize("epsilon", [0.5, 1, 4])
@pytest.mark.parametrize("name", ["Gaussian", "Laplace", "OneBit", "Piecewise"])
def test_a_missing_clip_is_caught(name, epsilon):
    cls = unclipped(getattr(channels, name))
    delta = {"delta": 1e-5} if name == "Gaussian" else {}
    found = audit(cls(epsilon, range=(0, 1), **delta), extremes(), error=ERROR)
    assert not found.passed
    assert {found.first, found.second} & {"far below", "far above"}


def test_a_report_beside_the_report_is_caught():
    class Talkative(channels.OneBit):
        def encode(self, summary, rng=None):
            return super().encode(summary, rng) | {"scatter": summary.scatter}

    assert not audit(Talkative(4, range=(0, 1)), extremes(), error=ERROR).passed


class Parity:
    """Two fair bits, of which one is repeated or reversed: only together do they tell."""

    def encode(self, summary, rng):
        first = rng.random(summary.mean.shape) < 0.5
        lie = rng.random(summary.mean.shape) < 1 / (1 + math.e)
        return {"bits": np.hstack([first, first ^ (summary.mean > 0.5) ^ lie])}

    def guarantee(self, n_features=1):
        return self.epsilon, 0.0

    def __init__(self, epsilon):
        self.epsilon = epsilon

    def __repr__(self):
        return f"Parity({self.epsilon})"


def test_coordinates_that_tell_only_together():
    assert 0.95 < audit(Parity(1.0), extremes()).lower <= 1
    assert not audit(Parity(0.9), extremes()).passed


def test_the_papers_noise_for_vectors_breaks_its_promise():
    d, claim = 50, (1.0, 1e-4)
    channel = channels.Gaussian(*claim, range=(0, 1), calibration="paper")
    ends = extremes(d).take([1, 3])
    assert not audit(channel, ends, claim=claim, simulations=50_000).passed
    with pytest.warns(PrivacyWarning, match="delta=0.356"):
        found = audit(channel, ends, simulations=50_000)
    assert found.passed, "the ledger holds the true delta"
    assert found.delta == paper_delta(*claim, d)


def test_the_papers_noise_for_large_epsilon_is_beyond_an_audit():
    claim = (20.0, 1e-4)
    channel = channels.Gaussian(*claim, range=(0, 1), calibration="paper")
    with pytest.warns(PrivacyWarning):
        assert channel.guarantee()[1] > 10 * claim[1], "the formula says so, the ledger too"
    with pytest.raises(ValueError, match="cannot be refuted by 200,000 simulations"):
        audit(channel, extremes(), claim=claim)


# The bound ----------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.5, 1, 4])
def test_bound_of_randomised_response(epsilon):
    total, error = 100_000, 1e-6
    truth = 1 / (1 + math.exp(-epsilon))
    k = round(truth * total)
    p, q = beta.ppf(error / 2, k, total - k + 1), beta.isf(error / 2, total - k + 1, k)
    bound = lower_bound(k, total - k, total, error=error)
    assert bound == pytest.approx(math.log(p / q), rel=1e-6)
    assert 0.9 * epsilon < bound < epsilon
    assert lower_bound(k, total - k, total, 0.1, error) == pytest.approx(math.log((p - 0.1) / q))


@pytest.mark.parametrize("error", [0.05, 0.3])
@pytest.mark.parametrize("epsilon", [0.2, 1, 3])
def test_bound_fails_no_oftener_than_it_says(epsilon, error):
    total = 16  # all outcomes of two clients who answer by randomised response
    truth = 1 / (1 + math.exp(-epsilon))
    times = np.arange(total + 1)
    chance = np.outer(binom.pmf(times, total, truth), binom.pmf(times, total, 1 - truth))
    bounds = np.array([[lower_bound(a, b, total, 0.0, error) for b in times] for a in times])
    assert chance[bounds > epsilon].sum() <= error
    assert epsilon < 3 or chance[bounds > 0].sum() > 0.9, "it is no empty bound"


def test_bound_at_its_ends():
    assert lower_bound(0, 0, 1000) == 0
    assert lower_bound(0, 1000, 1000) == 0
    assert lower_bound(500, 0, 1000, delta=0.6) == 0
    assert lower_bound(1000, 0, 1000) == pytest.approx(largest_bound(1000))
    assert lower_bound(1000, 0, 1000, 1e-3, 1e-4) == pytest.approx(largest_bound(1000, 1e-3, 1e-4))
    assert largest_bound(150_000) == pytest.approx(math.log(150_000 / math.log(2e6)), abs=1e-3)
    assert largest_bound(10, delta=0.9) == 0


def test_sound_channels_fail_as_seldom_as_said():
    ends = extremes().take([1, 3])
    channel = channels.OneBit(1, range=(0, 1))
    passed = [
        audit(channel, ends, simulations=4000, error=0.5, rng=seed).passed for seed in range(100)
    ]
    assert 50 < sum(passed) < 100, "at most half fail, but some do"


def test_bound_of_gaussian_noise_is_near_what_can_be_shown():
    channel = channels.Gaussian(1, 1e-4, range=(0, 1))
    shift = 1 / gaussian_sigma(1, 1e-4, 1.0)
    edges = np.linspace(-2, 5, 200)
    total = 150_000
    possible = max(
        lower_bound(round(total * norm.sf(edge - shift)), round(total * norm.sf(edge)), total, 1e-4)
        for edge in edges
    )
    found = audit(channel, extremes())
    assert 0.85 * possible < found.lower < 1.2 * possible


# Arguments ----------------------------------------------------------------------------------


def test_results():
    channel = channels.TwoBit(1, split=0.5, range=(0, 1))
    found = audit(channel, extremes(3), simulations=5000)
    assert found == audit(channel, extremes(3), simulations=5000, rng=np.random.default_rng(0))
    assert found != audit(channel, extremes(3), simulations=5000, rng=1)
    row = found.row()
    assert row["channel"] == "TwoBit(epsilon=1, range=(0, 1), split=0.5)"
    assert (row["n_features"], row["epsilon"], row["delta"]) == (3, 1.0, 0.0)
    assert row["event"] == (
        f"an event is seen in {100 * found.p:.1f} % of runs if the client is {found.first}, "
        f"in {100 * found.q:.1f} % if {found.second}"
    )
    assert found.p > found.q


def test_reports_that_are_infinite_or_all_alike():
    class Odd(Parity):
        def encode(self, summary, rng):
            report = rng.choice([np.nan, np.inf, 1.0], summary.mean.shape)
            return {"report": np.where(summary.mean > 0.5, report, -np.inf)}

    class Mute(Parity):
        def encode(self, summary, rng):
            return {"n": summary.n}

    assert not audit(Odd(4.0), extremes(), simulations=5000).passed
    assert audit(Mute(1.0), extremes(), simulations=5000).lower == 0


def test_bad_arguments():
    channel, two = channels.OneBit(1, range=(0, 1)), extremes().take([1, 3])
    with pytest.raises(TypeError, match="methods encode and guarantee; got 'OneBit'"):
        audit("OneBit", two)
    with pytest.raises(TypeError, match="got"):
        audit(channels.OneBit, two)
    with pytest.raises(ValueError, match=r"Exact\(\) has no guarantee to refute"):
        audit(channels.Exact(), two)
    with pytest.raises(ValueError, match="at least 1,000; got 999"):
        audit(channel, two, simulations=999)
    with pytest.raises(ValueError, match="whole number"):
        audit(channel, two, simulations=1e5)
    with pytest.raises(ValueError, match="at least two clients"):
        audit(channel, two.take([0]))
    with pytest.raises(ValueError, match="the same number of rows"):
        audit(channel, Summary.from_counts([0, 3], [3, 4]))
    for error in (0, 1, -1, 1e-20, "1e-6", math.nan):
        with pytest.raises(ValueError, match="error must be"):
            audit(channel, two, error=error)
    with pytest.raises(ValueError, match="epsilon must be"):
        audit(channel, two, claim=(0.0, 0.0))
    for delta in (-0.1, 1, math.nan):
        with pytest.raises(ValueError, match="delta must be"):
            audit(channel, two, claim=(1.0, delta))
    with pytest.raises(ValueError, match="show at most"):
        audit(channel, two, claim=(4.0, 0.5), simulations=1000)
    with pytest.raises(ValueError, match="at least one epsilon"):
        run([])
